//! The discovery log (Base 2.1 section 5.1.12.3.1): what one host may know of where to connect.

use std::net::IpAddr;

use nvme::nqn::Nqn;
use stdx::num::{u64_of, usize64};
use zerocopy::IntoBytes;

use crate::controller::Path;
use crate::limits::ADMIN_QUEUE_ENTRIES_MAX;
use crate::listener::ListenerId;
use crate::registry::Registry;
use wire::{Entry, Header};

/// Log Specific Parameter bits of the Discovery log page.
pub(crate) mod lsp {
    /// Port Local Entries Only.
    pub const PORT_LOCAL: u8 = 1 << 1;
    /// All NVM Subsystem Entries.
    pub const ALL_SUBSYSTEMS: u8 = 1 << 2;
    /// Bits that a host may set; bit 0, extended entries, is not among them.
    pub const SUPPORTED: u8 = PORT_LOCAL | ALL_SUBSYSTEMS;
}

/// Bytes of the header and of each entry.
const UNIT: u64 = 1024;

/// One row of the log, before it becomes an [`Entry`].
struct Row<'a> {
    subtype: u8,
    nqn: &'a Nqn,
    address: (IpAddr, u16),
    port: u16,
    flags: u16,
}

/// Writes the bytes of `host`'s log that lie at `offset` and behind into `out`; what is behind the
/// log's end stays as it is. Returns the length of the whole log in bytes.
pub(crate) fn read(
    registry: &Registry,
    host: &Nqn,
    path: &Path,
    lsp: u8,
    offset: u64,
    out: &mut [u8],
) -> u64 {
    let rows = rows(registry, host, path, lsp);
    let count = u64_of(rows.len());
    let header = Header::new(registry.generation, count);
    place(header.as_bytes(), 0, offset, out);
    let end = offset.saturating_add(u64_of(out.len()));
    for (row, at) in rows.iter().zip((UNIT..).step_by(usize64(UNIT))) {
        if at < end && at + UNIT > offset {
            place(entry(row).as_bytes(), at, offset, out);
        }
    }
    UNIT * (count + 1)
}

/// Copies `bytes`, which start at `at` in the log, to where they are in a window at `offset`.
fn place(bytes: &[u8], at: u64, offset: u64, out: &mut [u8]) {
    let skip = usize64(offset.saturating_sub(at));
    let start = usize64(at.saturating_sub(offset));
    let (Some(bytes), Some(room)) = (bytes.get(skip..), out.get_mut(start..)) else { return };
    let length = bytes.len().min(room.len());
    room[..length].copy_from_slice(&bytes[..length]);
}

/// The rows a host gets: the discovery service itself, the subsystems that admit the host, both
/// for every listener that it can reach, and the referrals.
fn rows<'a>(registry: &'a Registry, host: &Nqn, path: &Path, lsp: u8) -> Vec<Row<'a>> {
    let local = path.local.ip();
    let mut rows = Vec::new();
    for (&id, info) in &registry.listeners {
        let is_own = id == path.listener;
        if lsp & lsp::PORT_LOCAL != 0 && !is_own {
            continue;
        }
        let Some(address) = info.reachable_at(local, is_own) else { continue };
        let ListenerId(port) = id;
        let nqn = &registry.discovery_name;
        let flags = wire::EFLAGS_DUPLICATES | wire::EFLAGS_PERSISTENT;
        rows.push(Row { subtype: wire::SUBTYPE_CURRENT, nqn, address, port, flags });
        if info.discovery_only {
            continue;
        }
        let admitting = registry.subsystems.iter().filter(|(_, s)| s.admission.admits(host));
        for (nqn, _) in admitting {
            rows.push(Row { subtype: wire::SUBTYPE_NVM, nqn, address, port, flags: 0 });
        }
    }
    for referral in &registry.referrals {
        let address = (referral.traddr, referral.trsvcid);
        let (subtype, nqn) = (wire::SUBTYPE_REFERRAL, &referral.nqn);
        rows.push(Row { subtype, nqn, address, port: 0, flags: 0 });
    }
    rows
}

fn entry(row: &Row<'_>) -> Entry {
    let mut entry = Entry {
        trtype: wire::TRTYPE_TCP,
        adrfam: match row.address.0 {
            IpAddr::V4(_) => wire::ADRFAM_IPV4,
            IpAddr::V6(_) => wire::ADRFAM_IPV6,
        },
        subtype: row.subtype,
        treq: wire::TREQ_NO_SECURE_CHANNEL | wire::TREQ_DISABLE_SQ_FLOW_CONTROL,
        portid: row.port.into(),
        cntlid: nvme::fabrics::CNTLID_DYNAMIC.into(),
        asqsz: ADMIN_QUEUE_ENTRIES_MAX.into(),
        eflags: row.flags.into(),
        ..Entry::default()
    };
    ascii(&mut entry.trsvcid, &row.address.1.to_string());
    entry.subnqn = row.nqn.to_field();
    ascii(&mut entry.traddr, &row.address.0.to_string());
    entry
}

/// ASCII text padded with NULs: hosts take the fields for C strings.
fn ascii(field: &mut [u8], text: &str) {
    for (slot, byte) in field.iter_mut().zip(text.bytes()) {
        *slot = byte;
    }
}

/// The structures on the wire.
mod wire {
    use zerocopy::little_endian::{U16, U64};
    use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

    pub const TRTYPE_TCP: u8 = 3;
    pub const ADRFAM_IPV4: u8 = 1;
    pub const ADRFAM_IPV6: u8 = 2;
    pub const SUBTYPE_REFERRAL: u8 = 1;
    pub const SUBTYPE_NVM: u8 = 2;
    pub const SUBTYPE_CURRENT: u8 = 3;
    /// TREQ bits 1:0 = 10b: a secure channel is not required.
    pub const TREQ_NO_SECURE_CHANNEL: u8 = 2;
    /// TREQ bit 2: the controller can disable SQ flow control.
    pub const TREQ_DISABLE_SQ_FLOW_CONTROL: u8 = 1 << 2;
    /// EFLAGS bit 0: other entries give the same information.
    pub const EFLAGS_DUPLICATES: u16 = 1 << 0;
    /// EFLAGS bit 1: explicit persistent connections are supported.
    pub const EFLAGS_PERSISTENT: u16 = 1 << 1;

    #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
    #[repr(C)]
    pub struct Header {
        pub genctr: U64,
        pub numrec: U64,
        pub recfmt: U16,
        reserved: [u8; 1006],
    }
    const _: () = assert!(size_of::<Header>() == 1024);

    impl Header {
        pub fn new(genctr: u64, numrec: u64) -> Self {
            Self { genctr: genctr.into(), numrec: numrec.into(), ..Self::new_zeroed() }
        }
    }

    #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
    #[repr(C)]
    pub struct Entry {
        pub trtype: u8,
        pub adrfam: u8,
        pub subtype: u8,
        pub treq: u8,
        pub portid: U16,
        pub cntlid: U16,
        pub asqsz: U16,
        pub eflags: U16,
        pub reserved_12: [u8; 20],
        pub trsvcid: [u8; 32],
        pub reserved_64: [u8; 192],
        pub subnqn: [u8; 256],
        pub traddr: [u8; 256],
        pub tsas: [u8; 256],
    }
    const _: () = assert!(size_of::<Entry>() == 1024);
    const _: () = assert!(core::mem::offset_of!(Entry, subnqn) == 256);
    const _: () = assert!(core::mem::offset_of!(Entry, traddr) == 512);

    impl Default for Entry {
        fn default() -> Self {
            Self::new_zeroed()
        }
    }
}
