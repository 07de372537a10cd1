//! The Discovery log page, 70h (section 5.1.12.3.1).

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::limits::NQN_FIELD_BYTES;
use crate::nqn::Nqn;

wire_enum! {
    /// Transport Type (TRTYPE).
    pub enum TransportType: u8 {
        Rdma = 1, "rdma";
        FibreChannel = 2, "fc";
        Tcp = 3, "tcp";
        IntraHost = 254, "loop";
    }
}

wire_enum! {
    /// Address Family (ADRFAM).
    pub enum AddressFamily: u8 {
        Ipv4 = 1, "ipv4";
        Ipv6 = 2, "ipv6";
        InfiniBand = 3, "infiniband";
        FibreChannel = 4, "fibre-channel";
        IntraHost = 254, "intra-host";
    }
}

wire_enum! {
    /// Subsystem Type (SUBTYPE).
    pub enum SubsystemType: u8 {
        Referral = 1, "referral to another discovery service";
        Nvm = 2, "nvme subsystem";
        CurrentDiscovery = 3, "current discovery subsystem";
    }
}

/// Transport Requirements (TREQ) and Entry Flags (EFLAGS).
pub mod bits {
    /// TREQ bits 1:0: secure channel not specified, required, not required.
    pub const TREQ_SECURE_CHANNEL_NOT_SPECIFIED: u8 = 0;
    pub const TREQ_SECURE_CHANNEL_REQUIRED: u8 = 1;
    pub const TREQ_SECURE_CHANNEL_NOT_REQUIRED: u8 = 2;
    /// TREQ: the controller can disable SQ flow control.
    pub const TREQ_SQ_FLOW_CONTROL_DISABLE: u8 = 1 << 2;
    /// EFLAGS: Duplicate Returned Information; another entry leads to the same discovery log.
    pub const EFLAGS_DUPLICATE: u16 = 1 << 0;
    /// EFLAGS: Explicit Persistent Connection Support for Discovery.
    pub const EFLAGS_PERSISTENT: u16 = 1 << 1;
    /// EFLAGS: No CDC Connectivity.
    pub const EFLAGS_NO_CDC: u16 = 1 << 2;
    /// TSAS of TCP, SECTYPE: no security, TLS 1.2 (obsolete), TLS 1.3.
    pub const SECTYPE_NONE: u8 = 0;
    pub const SECTYPE_TLS_1_2: u8 = 1;
    pub const SECTYPE_TLS_1_3: u8 = 2;
    /// TSAS of RDMA: reliable connection (RDMA_QPTYPE), provider not specified (RDMA_PRTYPE), RDMA_IP_CM (RDMA_CMS).
    pub const RDMA_QPTYPE_CONNECTED: u8 = 1;
    pub const RDMA_PRTYPE_NONE: u8 = 1;
    pub const RDMA_CMS_RDMA_CM: u8 = 1;
    /// Log Specific Parameter of Get Log Page: extended entries, port local, all subsystems.
    pub const LSP_EXTENDED: u8 = 1 << 0;
    pub const LSP_PORT_LOCAL: u8 = 1 << 1;
    pub const LSP_ALL_SUBSYSTEMS: u8 = 1 << 2;
}

/// CNTLID of an entry for a subsystem with the dynamic controller model.
pub const CNTLID_DYNAMIC: u16 = 0xffff;

/// Header of the log page: 1024 bytes, entries follow.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// Generation Counter: moves whenever any host's view may have changed.
    pub genctr: U64,
    /// Number of Records.
    pub numrec: U64,
    /// Record Format: 0.
    pub recfmt: U16,
    pub reserved_18: [u8; 1006],
}
layout!(Header, 1024, genctr @ 0, numrec @ 8, recfmt @ 16, reserved_18 @ 18);

impl Header {
    #[must_use]
    pub fn new(genctr: u64, numrec: u64) -> Self {
        let mut header = Self::new_zeroed();
        header.genctr = genctr.into();
        header.numrec = numrec.into();
        header
    }
}

/// Discovery Log Page Entry: 1024 bytes.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Entry {
    /// [`TransportType`].
    pub trtype: u8,
    /// [`AddressFamily`].
    pub adrfam: u8,
    /// [`SubsystemType`].
    pub subtype: u8,
    /// Transport Requirements.
    pub treq: u8,
    /// Port ID.
    pub portid: U16,
    /// Controller ID.
    pub cntlid: U16,
    /// Admin Max SQ Size: entries, at least 32.
    pub asqsz: U16,
    /// Entry Flags.
    pub eflags: U16,
    pub reserved_12: [u8; 20],
    /// Transport Service Identifier: ASCII, padded with spaces (NUL ended in practice).
    pub trsvcid: [u8; 32],
    pub reserved_64: [u8; 192],
    /// NVM Subsystem Qualified Name.
    pub subnqn: [u8; NQN_FIELD_BYTES],
    /// Transport Address: ASCII, likewise.
    pub traddr: [u8; 256],
    /// Transport Specific Address Subtype: of TCP, byte 0 is the Security Type; of RDMA, bytes 0 to 2 are queue pair type,
    /// provider type and connection management service.
    pub tsas: [u8; 256],
}
layout!(
    Entry, 1024, trtype @ 0, adrfam @ 1, subtype @ 2, treq @ 3, portid @ 4, cntlid @ 6, asqsz @ 8,
    eflags @ 10, trsvcid @ 32, subnqn @ 256, traddr @ 512, tsas @ 768,
);

impl Entry {
    /// An entry without a secure channel. What does not fit its field is cut.
    #[must_use]
    pub fn new(
        trtype: TransportType,
        subtype: SubsystemType,
        family: AddressFamily,
        subnqn: &Nqn,
    ) -> Self {
        let mut entry = Self::new_zeroed();
        entry.trtype = trtype.raw();
        entry.adrfam = family.raw();
        entry.subtype = subtype.raw();
        entry.cntlid = CNTLID_DYNAMIC.into();
        entry.subnqn = subnqn.to_field();
        if trtype == TransportType::Rdma {
            let rdma =
                [bits::RDMA_QPTYPE_CONNECTED, bits::RDMA_PRTYPE_NONE, bits::RDMA_CMS_RDMA_CM];
            entry.tsas[..rdma.len()].copy_from_slice(&rdma);
        }
        entry
    }

    /// Sets Transport Address and Service Identifier.
    pub fn set_address(&mut self, traddr: &str, trsvcid: &str) {
        set_text(&mut self.traddr, traddr);
        set_text(&mut self.trsvcid, trsvcid);
    }

    /// Transport Address without its padding.
    #[must_use]
    pub fn traddr(&self) -> String {
        text(&self.traddr)
    }

    /// Transport Service Identifier without its padding.
    #[must_use]
    pub fn trsvcid(&self) -> String {
        text(&self.trsvcid)
    }

    /// NVM Subsystem Qualified Name as text, whether it is a valid one or not.
    #[must_use]
    pub fn subnqn(&self) -> String {
        text(&self.subnqn)
    }
}

/// Padded with spaces (section 1.4.3), which hosts cut off again.
fn set_text(field: &mut [u8], text: &str) {
    field.fill(b' ');
    for (slot, byte) in field.iter_mut().zip(text.bytes()) {
        *slot = byte;
    }
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    crate::identify::ascii(field.get(..end).unwrap_or_default())
}
