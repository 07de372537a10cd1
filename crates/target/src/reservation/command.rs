//! Reservation commands with the keys they carry: fields and data go in, a command or a refusal
//! comes out (Base 2.1, sections 7.6, 7.8 and 7.9).

use nvme::reservation::{
    Acquire, AcquireAction, AcquireData, ChangePersistence, Register, RegisterAction, RegisterData,
    Release, ReleaseAction, ReleaseData,
};

use super::{Refusal, Type};

/// A reservation command that changes state. `current_key: None` is IEKEY set: any key will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Register { new_key: u64, persistence: ChangePersistence },
    Unregister { current_key: Option<u64>, persistence: ChangePersistence },
    Replace { current_key: Option<u64>, new_key: u64, persistence: ChangePersistence },
    Acquire { current_key: u64, kind: Type },
    Preempt { current_key: u64, preempt_key: u64, kind: Type, abort: bool },
    Release { current_key: u64, kind: Type },
    Clear { current_key: u64 },
}

impl Command {
    #[must_use]
    pub fn register(fields: Register, data: &RegisterData) -> Self {
        let current_key = (!fields.ignore_existing_key).then_some(data.crkey.get());
        let new_key = data.nrkey.get();
        let persistence = fields.persistence;
        match fields.action {
            RegisterAction::Register => Self::Register { new_key, persistence },
            RegisterAction::Unregister => Self::Unregister { current_key, persistence },
            RegisterAction::Replace => Self::Replace { current_key, new_key, persistence },
        }
    }

    /// # Errors
    /// Invalid Field when IEKEY is set, which Acquire does not allow.
    pub fn acquire(fields: Acquire, data: &AcquireData) -> Result<Self, Refusal> {
        if fields.ignore_existing_key {
            return Err(Refusal::InvalidField);
        }
        let (current_key, kind) = (data.crkey.get(), fields.rtype);
        let preempt_key = data.prkey.get();
        Ok(match fields.action {
            AcquireAction::Acquire => Self::Acquire { current_key, kind },
            AcquireAction::Preempt => {
                Self::Preempt { current_key, preempt_key, kind, abort: false }
            }
            AcquireAction::PreemptAndAbort => {
                Self::Preempt { current_key, preempt_key, kind, abort: true }
            }
        })
    }

    /// # Errors
    /// Invalid Field when IEKEY is set, which Release does not allow, or when no type is named.
    pub fn release(fields: Release, data: &ReleaseData) -> Result<Self, Refusal> {
        if fields.ignore_existing_key {
            return Err(Refusal::InvalidField);
        }
        let current_key = data.crkey.get();
        match (fields.action, fields.rtype) {
            (ReleaseAction::Clear, _) => Ok(Self::Clear { current_key }),
            (ReleaseAction::Release, Some(kind)) => Ok(Self::Release { current_key, kind }),
            (ReleaseAction::Release, None) => Err(Refusal::InvalidField),
        }
    }

    /// Whether success increments the generation counter: every Register, Preempt and Clear.
    pub(super) const fn counts(&self) -> bool {
        !matches!(self, Self::Acquire { .. } | Self::Release { .. })
    }
}
