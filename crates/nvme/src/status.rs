//! The status of a completion (section 4.2.3).

use core::fmt;

/// Status code type, status code and their flags, laid out as the status field is above its phase
/// bit: SC 7:0, SCT 10:8, CRD 12:11, M 13, DNR 14.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

/// Bits of code type and code.
const CODE: u16 = 0x07ff;
const CRD_SHIFT: u32 = 11;
const CRD: u16 = 0x1800;
const MORE: u16 = 0x2000;
const DNR: u16 = 0x4000;

impl Status {
    /// A status of a code type (3 bits) and a code, no flags.
    #[must_use]
    pub const fn new(code_type: u8, code: u8) -> Self {
        Self(((code_type as u16) << 8 | code as u16) & CODE)
    }

    /// From the 16-bit status field of a completion; the phase bit is dropped.
    #[must_use]
    pub const fn from_field(field: u16) -> Self {
        Self(field >> 1)
    }

    /// As the 16-bit status field of a completion, phase bit 0.
    #[must_use]
    pub const fn to_field(self) -> u16 {
        self.0 << 1
    }

    /// Status Code Type (SCT).
    #[must_use]
    pub const fn code_type(self) -> u8 {
        self.0.to_be_bytes()[0] & 0x07
    }

    /// Status Code (SC).
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0.to_be_bytes()[1]
    }

    /// The status without flags, for comparison with the named constants.
    #[must_use]
    pub const fn kind(self) -> Self {
        Self(self.0 & CODE)
    }

    /// Whether code type and code are those of `other`, whatever the flags.
    #[must_use]
    pub const fn is(self, other: Self) -> bool {
        self.0 & CODE == other.0 & CODE
    }

    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 & CODE == 0
    }

    /// Do Not Retry: the same command is expected to fail again.
    #[must_use]
    pub const fn dnr(self) -> bool {
        self.0 & DNR != 0
    }

    /// The status with Do Not Retry set.
    #[must_use]
    pub const fn with_dnr(self) -> Self {
        Self(self.0 | DNR)
    }

    /// More: an Error Information log entry belongs to this completion.
    #[must_use]
    pub const fn more(self) -> bool {
        self.0 & MORE != 0
    }

    /// The status with More set.
    #[must_use]
    pub const fn with_more(self) -> Self {
        Self(self.0 | MORE)
    }

    /// Command Retry Delay index: 0 none, 1 to 3 the controller's CRDT1 to CRDT3.
    #[must_use]
    pub const fn retry_delay(self) -> u16 {
        (self.0 & CRD) >> CRD_SHIFT
    }

    /// The status with Command Retry Delay index `index`, of which bits 1:0 count.
    #[must_use]
    pub const fn with_retry_delay(self, index: u8) -> Self {
        Self((self.0 & !CRD) | ((index as u16 & 3) << CRD_SHIFT))
    }

    /// The specification's name, read as the status of a Fabrics command: codes 80h and up of the
    /// command specific type mean there what Connect, Disconnect and the like define.
    #[must_use]
    pub const fn fabrics_name(self) -> Option<&'static str> {
        match fabrics_known(self.0 & CODE) {
            Some(name) => Some(name),
            None => known(self.0 & CODE),
        }
    }

    /// The specification's name, read as the status of an Admin or I/O command.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        known(self.0 & CODE)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.name() {
            Some(name) => name,
            None => match self.code_type() {
                7 => "Vendor Specific",
                _ => "Reserved",
            },
        };
        write!(f, "{name} ({:#x}/{:#04x}", self.code_type(), self.code())?;
        f.write_str(if self.dnr() { ", do not retry)" } else { ")" })
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({self})")
    }
}

macro_rules! statuses {
    ($function:ident; $($code_type:literal: { $($name:ident = $code:literal, $text:literal;)+ })+) => {
        impl Status {
            $($(#[doc = $text] pub const $name: Self = Self::new($code_type, $code);)+)+
        }

        pub(super) const fn $function(code: u16) -> Option<&'static str> {
            $($(if code == Status::$name.0 { return Some($text); })+)+
            None
        }
    };
}

mod table;

use table::{fabrics_known, known};
