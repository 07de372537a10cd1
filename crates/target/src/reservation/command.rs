//! Reservation Register, Acquire and Release as typed commands (NVMe Base 2.1, sections 7.3, 7.6
//! and 7.5): raw dwords and data go in, a command or a refusal comes out.

use super::{Kind, Refusal};

/// Change Persist Through Power Loss State (CPTPL).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    Unchanged,
    Clear,
    Set,
}

/// A reservation command that changes state. `current_key: None` is IEKEY set: any key will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Register { new_key: u64, persistence: Persistence },
    Unregister { current_key: Option<u64>, persistence: Persistence },
    Replace { current_key: Option<u64>, new_key: u64, persistence: Persistence },
    Acquire { current_key: u64, kind: Kind },
    Preempt { current_key: u64, preempt_key: u64, kind: Kind, abort: bool },
    Release { current_key: u64, kind: Kind },
    Clear { current_key: u64 },
}

const IEKEY: u32 = 1 << 3;

impl Command {
    /// Bytes of host data that Reservation Register and Acquire carry.
    pub const KEY_PAIR: usize = 16;
    /// Bytes of host data that Reservation Release carries.
    pub const KEY: usize = 8;

    /// Reservation Register: `data` is CRKEY and NRKEY.
    ///
    /// # Errors
    /// Invalid Field for a reserved RREGA or CPTPL value.
    pub fn register(cdw10: u32, data: &[u8; Self::KEY_PAIR]) -> Result<Self, Refusal> {
        let (current, new_key) = keys(data);
        let current_key = (cdw10 & IEKEY == 0).then_some(current);
        let persistence = match cdw10 >> 30 {
            0 => Persistence::Unchanged,
            2 => Persistence::Clear,
            3 => Persistence::Set,
            _ => return Err(Refusal::InvalidField),
        };
        match cdw10 & 7 {
            0 => Ok(Self::Register { new_key, persistence }),
            1 => Ok(Self::Unregister { current_key, persistence }),
            2 => Ok(Self::Replace { current_key, new_key, persistence }),
            _ => Err(Refusal::InvalidField),
        }
    }

    /// Reservation Acquire: `data` is CRKEY and PRKEY.
    ///
    /// # Errors
    /// Invalid Field for a reserved RACQA or RTYPE value, and for IEKEY set.
    pub fn acquire(cdw10: u32, data: &[u8; Self::KEY_PAIR]) -> Result<Self, Refusal> {
        let (current_key, preempt_key) = keys(data);
        if cdw10 & IEKEY != 0 {
            return Err(Refusal::InvalidField);
        }
        let kind = Kind::from_rtype(rtype(cdw10)).ok_or(Refusal::InvalidField)?;
        match cdw10 & 7 {
            0 => Ok(Self::Acquire { current_key, kind }),
            1 => Ok(Self::Preempt { current_key, preempt_key, kind, abort: false }),
            2 => Ok(Self::Preempt { current_key, preempt_key, kind, abort: true }),
            _ => Err(Refusal::InvalidField),
        }
    }

    /// Reservation Release: `data` is CRKEY.
    ///
    /// # Errors
    /// Invalid Field for a reserved RRELA value, for IEKEY set, and for a reserved RTYPE in a
    /// release (a clear does not look at RTYPE).
    pub fn release(cdw10: u32, data: &[u8; Self::KEY]) -> Result<Self, Refusal> {
        let current_key = u64::from_le_bytes(*data);
        if cdw10 & IEKEY != 0 {
            return Err(Refusal::InvalidField);
        }
        match cdw10 & 7 {
            0 => {
                let kind = Kind::from_rtype(rtype(cdw10)).ok_or(Refusal::InvalidField)?;
                Ok(Self::Release { current_key, kind })
            }
            1 => Ok(Self::Clear { current_key }),
            _ => Err(Refusal::InvalidField),
        }
    }

    /// Whether success increments the generation counter: every Register, Preempt and Clear.
    pub(super) const fn counts(&self) -> bool {
        !matches!(self, Self::Acquire { .. } | Self::Release { .. })
    }
}

fn rtype(cdw10: u32) -> u8 {
    cdw10.to_le_bytes()[1]
}

fn keys(data: &[u8; Command::KEY_PAIR]) -> (u64, u64) {
    let [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7] = *data;
    (
        u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
        u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7]),
    )
}
