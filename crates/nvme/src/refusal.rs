//! Why a command entry does not become a typed command.

use core::fmt;

use crate::status::Status;

/// Where in the submission queue entry the offending field starts: what the Parameter Error
/// Location field of an Error Information log entry reports (section 5.1.12.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// Byte of the entry, 0 to 63.
    pub byte: u8,
    /// Bit of that byte, 0 to 7.
    pub bit: u8,
}

impl Location {
    /// Bit `bit` (0 to 31) of Command Dword `dword` (0 to 15).
    #[must_use]
    pub const fn dword(dword: u8, bit: u8) -> Self {
        Self { byte: dword * 4 + bit / 8, bit: bit % 8 }
    }

    /// As the log's field: byte in bits 7:0, bit in bits 10:8.
    #[must_use]
    pub const fn to_field(self) -> u16 {
        (self.bit as u16) << 8 | self.byte as u16
    }
}

/// Why an entry was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The opcode or command type is not one this controller has.
    Opcode,
    /// PSDT is not one that this transport allows.
    DataPointerType,
    /// FUSE has its reserved value, or the command cannot be part of a fused operation.
    Fused,
    /// Bits the specification reserves are set.
    Reserved,
    /// A field has a value that is reserved or not supported.
    Value,
    /// The namespace identifier cannot be used with this command.
    Namespace,
    /// The range ends behind the last logical block, or behind the last representable one.
    LbaRange,
    /// Format of a descriptor list that is not supported.
    Format,
    /// Record format of a Fabrics command that is not supported.
    RecordFormat,
    /// Length of the data does not fit the command.
    Length,
}

/// A refused command: reason, and the field at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refusal {
    pub reason: Reason,
    pub location: Location,
}

impl Refusal {
    #[must_use]
    pub const fn new(reason: Reason, location: Location) -> Self {
        Self { reason, location }
    }

    /// The field at bit `bit` of Command Dword `dword` is at fault.
    #[must_use]
    pub const fn at(reason: Reason, dword: u8, bit: u8) -> Self {
        Self::new(reason, Location::dword(dword, bit))
    }

    /// The status that completes the command; Do Not Retry, as the same entry is refused again.
    #[must_use]
    pub const fn status(self) -> Status {
        match self.reason {
            Reason::Opcode => Status::INVALID_OPCODE,
            Reason::Namespace => Status::INVALID_NAMESPACE_OR_FORMAT,
            Reason::LbaRange => Status::LBA_OUT_OF_RANGE,
            Reason::RecordFormat => Status::CONNECT_INCOMPATIBLE_FORMAT,
            Reason::Length => Status::DATA_SGL_LENGTH_INVALID,
            Reason::DataPointerType
            | Reason::Fused
            | Reason::Reserved
            | Reason::Value
            | Reason::Format => Status::INVALID_FIELD,
        }
        .with_dnr()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.reason {
            Reason::Opcode => "opcode not supported",
            Reason::DataPointerType => "data pointer type not allowed",
            Reason::Fused => "fused operation not allowed",
            Reason::Reserved => "reserved bits set",
            Reason::Value => "value not supported",
            Reason::Namespace => "namespace identifier not usable",
            Reason::LbaRange => "LBA range out of bounds",
            Reason::Format => "descriptor format not supported",
            Reason::RecordFormat => "record format not supported",
            Reason::Length => "data length wrong",
        };
        write!(f, "{text} (byte {}, bit {})", self.location.byte, self.location.bit)
    }
}

impl core::error::Error for Refusal {}
