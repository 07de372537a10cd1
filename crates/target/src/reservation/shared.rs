//! A namespace's reservation state as the cores share it: reservation commands take a lock, I/O
//! reads one counter and keeps what it found.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{Access, Command, Effects, HostId, PowerLoss, Refusal, State};

/// One per namespace.
#[derive(Debug)]
pub struct Shared {
    /// Moves with every change, before the change's command completes.
    epoch: AtomicU32,
    state: Mutex<State>,
}

/// A host's access to a namespace, as a queue remembers it.
#[derive(Clone, Copy, Debug)]
pub struct CachedAccess {
    epoch: u32,
    access: Access,
}

impl Shared {
    pub const fn new(power_loss: PowerLoss) -> Self {
        Self { epoch: AtomicU32::new(0), state: Mutex::new(State::new(power_loss)) }
    }

    /// Runs `look` on the state; for reports, features and identify.
    pub fn with<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Applies a command.
    ///
    /// # Errors
    /// As [`State::execute`].
    pub fn execute(&self, host: HostId, command: &Command) -> Result<Effects, Refusal> {
        self.change(|state| state.execute(host, command))
    }

    /// Set Features, Reservation Persistence.
    ///
    /// # Errors
    /// As [`State::set_persist`].
    pub fn set_persist(&self, persist: bool) -> Result<(), Refusal> {
        self.change(|state| state.set_persist(persist))
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut state);
        // Release: whoever sees the new epoch and then locks sees the new state.
        self.epoch.fetch_add(1, Ordering::Release);
        result
    }

    /// What `host` may do. The fast path is one load of a line that changes only with
    /// reservations.
    pub fn access(&self, host: HostId, cached: &mut Option<CachedAccess>) -> Access {
        let epoch = self.epoch.load(Ordering::Acquire);
        match cached {
            Some(known) if known.epoch == epoch => known.access,
            _ => {
                // The epoch was read before the state: at worst the next call looks again.
                let access = self.with(|state| state.access(host));
                *cached = Some(CachedAccess { epoch, access });
                access
            }
        }
    }
}
