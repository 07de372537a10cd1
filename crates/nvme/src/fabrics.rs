//! Fabrics commands and responses (section 6), and the Connect data (section 6.3).

use stdx::num::{low8, low16};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::cqe::Cqe;
use crate::limits::NQN_FIELD_BYTES;
use crate::nqn::Nqn;
use crate::opcode;
use crate::property::offset;
use crate::refusal::{Location, Reason, Refusal};
use crate::sqe::Sqe;
use crate::status::Status;

/// Connect data, 1024 bytes.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ConnectData {
    /// Host Identifier (HOSTID), 128 bits.
    pub hostid: [u8; 16],
    /// Controller ID asked for: [`CNTLID_DYNAMIC`] or [`CNTLID_STATIC_ANY`] on the Admin Queue, the
    /// association's on an I/O queue.
    pub cntlid: U16,
    pub reserved_18: [u8; 238],
    /// NVM Subsystem NQN.
    pub subnqn: [u8; NQN_FIELD_BYTES],
    /// Host NQN.
    pub hostnqn: [u8; NQN_FIELD_BYTES],
    pub reserved_768: [u8; 256],
}
layout!(
    ConnectData, 1024, hostid @ 0, cntlid @ 16, reserved_18 @ 18, subnqn @ 256, hostnqn @ 512,
    reserved_768 @ 768,
);

/// CNTLID of Connect data: any controller, dynamic controller model.
pub const CNTLID_DYNAMIC: u16 = 0xffff;
/// CNTLID of Connect data: any controller, static controller model.
pub const CNTLID_STATIC_ANY: u16 = 0xfffe;
/// Largest controller identifier a controller can have (section 3.1.1).
pub const CNTLID_MAX: u16 = 0xffef;

impl ConnectData {
    /// The data a host sends.
    #[must_use]
    pub fn new(hostid: [u8; 16], cntlid: u16, subnqn: &Nqn, hostnqn: &Nqn) -> Self {
        let mut data = Self::new_zeroed();
        data.hostid = hostid;
        data.cntlid = cntlid.into();
        data.subnqn = subnqn.to_field();
        data.hostnqn = hostnqn.to_field();
        data
    }

    /// Byte offsets in the data, for [`ConnectInvalid`].
    pub const HOSTID_AT: u16 = 0;
    pub const CNTLID_AT: u16 = 16;
    pub const SUBNQN_AT: u16 = 256;
    pub const HOSTNQN_AT: u16 = 512;
}

/// A Fabrics command, read from an entry whose opcode is 7Fh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    PropertySet(PropertySet),
    PropertyGet(PropertyGet),
    Connect(Connect),
    Disconnect,
    AuthenticationSend(Authentication),
    AuthenticationReceive(Authentication),
}

/// Property Get: `offset` has a property of `size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertyGet {
    pub offset: u32,
    pub size: PropertySize,
}

/// Property Set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertySet {
    pub offset: u32,
    pub size: PropertySize,
    /// The value; of a 4-byte property the low half.
    pub value: u64,
}

wire_enum! {
    /// Size of a property access (ATTRIB bits 2:0).
    pub enum PropertySize: u8 {
        Four = 0, "4 bytes";
        Eight = 1, "8 bytes";
    }
}

impl PropertySize {
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Four => 4,
            Self::Eight => 8,
        }
    }
}

/// Connect, the entry's part; the rest is in [`ConnectData`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Record Format: 0 is the only one defined.
    pub recfmt: u16,
    /// Queue Identifier: 0 is the Admin Queue.
    pub qid: u16,
    /// Submission Queue Size, 0's based as on the wire.
    pub sqsize: u16,
    /// Connect Attributes (CATTR).
    pub attributes: ConnectAttributes,
    /// Keep Alive Timeout in milliseconds; Admin Queue only, 0 is none.
    pub kato: u32,
}

/// Connect Attributes (CATTR).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectAttributes(pub u8);

impl ConnectAttributes {
    /// Bit 2: disable SQ flow control.
    pub const DISABLE_SQ_FLOW_CONTROL: u8 = 1 << 2;
    /// Bit 3: the host supports deletion of individual I/O queues by Disconnect.
    pub const INDIVIDUAL_QUEUE_DELETION: u8 = 1 << 3;
    /// Bit 4: connect to a secondary (persistent) discovery entity.
    pub const CONNECTION_ENTITY: u8 = 1 << 4;

    #[must_use]
    pub const fn disable_sq_flow_control(self) -> bool {
        self.0 & Self::DISABLE_SQ_FLOW_CONTROL != 0
    }

    #[must_use]
    pub const fn individual_queue_deletion(self) -> bool {
        self.0 & Self::INDIVIDUAL_QUEUE_DELETION != 0
    }

    /// Priority class, bits 1:0.
    #[must_use]
    pub const fn priority_class(self) -> u8 {
        self.0 & 0x03
    }
}

/// Authentication Send and Receive: the security protocol fields and the transfer length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authentication {
    pub spsp0: u8,
    pub spsp1: u8,
    pub secp: u8,
    /// Bytes to transfer (TL) or to allocate (AL).
    pub length: u32,
}

impl Command {
    /// Reads a Fabrics command. The command type and the property attributes are checked here;
    /// values that depend on the controller's state are the controller's to judge. Byte 1 is not
    /// looked at: it is reserved here, and hosts set the PSDT of their other commands in it.
    pub fn parse(sqe: &Sqe) -> Result<Self, Refusal> {
        if sqe.opcode != opcode::admin::FABRICS {
            return Err(Refusal::at(Reason::Opcode, 0, 0));
        }
        let fctype = fctype(sqe);
        match fctype {
            opcode::fabrics::PROPERTY_GET => {
                let (offset, size) = property(sqe)?;
                Ok(Self::PropertyGet(PropertyGet { offset, size }))
            }
            opcode::fabrics::PROPERTY_SET => {
                let (offset, size) = property(sqe)?;
                let low = u64::from(sqe.cdw12.get());
                let value = match size {
                    PropertySize::Four => low,
                    PropertySize::Eight => u64::from(sqe.cdw13.get()) << 32 | low,
                };
                Ok(Self::PropertySet(PropertySet { offset, size, value }))
            }
            opcode::fabrics::CONNECT => Ok(Self::Connect(Connect {
                recfmt: low16(sqe.cdw10.get().into()),
                qid: low16(u64::from(sqe.cdw10.get()) >> 16),
                sqsize: low16(sqe.cdw11.get().into()),
                attributes: ConnectAttributes(low8(u64::from(sqe.cdw11.get()) >> 16)),
                kato: sqe.cdw12.get(),
            })),
            // A record format other than 0 is refused as "Incompatible Format" (section 6.4).
            opcode::fabrics::DISCONNECT => match low16(sqe.cdw10.get().into()) {
                0 => Ok(Self::Disconnect),
                _ => Err(Refusal::at(Reason::RecordFormat, 10, 0)),
            },
            opcode::fabrics::AUTHENTICATION_SEND => Ok(Self::AuthenticationSend(auth(sqe))),
            opcode::fabrics::AUTHENTICATION_RECEIVE => Ok(Self::AuthenticationReceive(auth(sqe))),
            _ => Err(Refusal::new(Reason::Value, Location { byte: 4, bit: 0 })),
        }
    }
}

/// Fabrics Command Type (FCTYPE), byte 4 of the entry.
#[must_use]
pub fn fctype(sqe: &Sqe) -> u8 {
    low8(sqe.nsid.get().into())
}

fn property(sqe: &Sqe) -> Result<(u32, PropertySize), Refusal> {
    let attrib = low8(sqe.cdw10.get().into());
    if attrib & !0x07 != 0 {
        return Err(Refusal::new(Reason::Reserved, Location { byte: 40, bit: 3 }));
    }
    let size = PropertySize::from_raw(attrib)
        .ok_or(Refusal::new(Reason::Value, Location { byte: 40, bit: 0 }))?;
    let at = sqe.cdw11.get();
    match offset::width(at) {
        Some(width) if width == size.bytes() => Ok((at, size)),
        Some(_) => Err(Refusal::new(Reason::Value, Location { byte: 40, bit: 0 })),
        None => Err(Refusal::new(Reason::Value, Location { byte: 44, bit: 0 })),
    }
}

fn auth(sqe: &Sqe) -> Authentication {
    let [_, spsp0, spsp1, secp] = sqe.cdw10.get().to_le_bytes();
    Authentication { spsp0, spsp1, secp, length: sqe.cdw11.get() }
}

fn entry(cid: u16, fctype: u8) -> Sqe {
    Sqe::new(opcode::admin::FABRICS, cid, fctype.into())
}

impl PropertyGet {
    /// The entry a host sends.
    #[must_use]
    pub fn to_sqe(self, cid: u16) -> Sqe {
        let mut sqe = entry(cid, opcode::fabrics::PROPERTY_GET);
        sqe.cdw10 = u32::from(self.size.raw()).into();
        sqe.cdw11 = self.offset.into();
        sqe
    }
}

impl PropertySet {
    /// The entry a host sends.
    #[must_use]
    pub fn to_sqe(self, cid: u16) -> Sqe {
        let mut sqe = entry(cid, opcode::fabrics::PROPERTY_SET);
        sqe.cdw10 = u32::from(self.size.raw()).into();
        sqe.cdw11 = self.offset.into();
        let [a, b, c, d, e, f, g, h] = self.value.to_le_bytes();
        sqe.cdw12 = u32::from_le_bytes([a, b, c, d]).into();
        sqe.cdw13 = u32::from_le_bytes([e, f, g, h]).into();
        sqe
    }
}

impl Connect {
    /// The entry a host sends; its data pointer is the caller's to set.
    #[must_use]
    pub fn to_sqe(self, cid: u16) -> Sqe {
        let mut sqe = entry(cid, opcode::fabrics::CONNECT);
        sqe.cdw10 = (u32::from(self.qid) << 16 | u32::from(self.recfmt)).into();
        sqe.cdw11 = (u32::from(self.attributes.0) << 16 | u32::from(self.sqsize)).into();
        sqe.cdw12 = self.kato.into();
        sqe
    }
}

/// The Disconnect entry a host sends on an I/O queue.
#[must_use]
pub fn disconnect_sqe(cid: u16) -> Sqe {
    entry(cid, opcode::fabrics::DISCONNECT)
}

/// DW0 of a successful Connect: the controller, and which authentication it requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectResponse {
    pub cntlid: u16,
    /// AUTHREQ: bit 1 in-band authentication (ATR), bit 2 secure channel concatenation (ASCR).
    pub authreq: u16,
}

impl ConnectResponse {
    #[must_use]
    pub const fn to_dw0(self) -> u32 {
        (self.authreq as u32) << 16 | self.cntlid as u32
    }

    #[must_use]
    pub fn from_dw0(dw0: u32) -> Self {
        Self { cntlid: low16(dw0.into()), authreq: low16(u64::from(dw0) >> 16) }
    }
}

/// DW0 of a Connect refused as Connect Invalid Parameters: which field was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectInvalid {
    /// Invalid Parameter Offset (IPO), bytes.
    pub offset: u16,
    /// Invalid Attributes (IATTR) bit 0: the offset is into the Connect data, not the entry.
    pub in_data: bool,
}

impl ConnectInvalid {
    #[must_use]
    pub const fn to_dw0(self) -> u32 {
        (self.in_data as u32) << 16 | self.offset as u32
    }

    #[must_use]
    pub fn from_dw0(dw0: u32) -> Self {
        Self { offset: low16(dw0.into()), in_data: dw0 & 1 << 16 != 0 }
    }

    /// The completion that carries it.
    #[must_use]
    pub fn to_cqe(self, cid: u16) -> Cqe {
        let mut cqe = Cqe::new(cid, Status::CONNECT_INVALID_PARAMETERS.with_dnr());
        cqe.dw0 = self.to_dw0().into();
        cqe
    }
}
