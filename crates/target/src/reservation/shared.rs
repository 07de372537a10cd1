//! A namespace's reservation state as the cores share it: reservation commands take a lock, I/O
//! reads one counter and keeps what it found.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use reactor::cross_core::Watch;

use super::keep::Attempts;
use super::{Access, Command, Effects, HostId, Keeper, Keeping, PowerLoss, Refusal, State};

/// One per namespace.
#[derive(Debug)]
pub struct Shared {
    /// Moves with every change, before the change's command completes.
    epoch: AtomicU32,
    state: Mutex<State>,
    kept: Option<Kept>,
    pub(super) attempts: Watch<Attempts>,
}

/// The state as it is kept through a loss of power.
#[derive(Debug)]
struct Kept {
    keeper: Arc<dyn Keeper>,
    /// Whether something is kept.
    something: AtomicBool,
}

/// A host's access to a namespace, as a queue remembers it.
#[derive(Clone, Copy, Debug)]
pub struct CachedAccess {
    epoch: u32,
    access: Access,
}

impl Shared {
    /// The state after power on; without `keeping`, what there is lasts as long as the process. `None`
    /// when what was kept does not hold together.
    pub fn new(keeping: Option<Keeping>) -> Option<Self> {
        let power_loss = keeping.as_ref().map_or(PowerLoss::Forgets, |_| PowerLoss::Keeps);
        let saved = keeping.as_ref().and_then(|keeping| keeping.saved.clone());
        let kept = keeping.map(|Keeping { saved, keeper }| Kept {
            keeper,
            something: AtomicBool::new(saved.is_some()),
        });
        let state = Mutex::new(State::power_on(power_loss, saved)?);
        Some(Self { epoch: AtomicU32::new(0), state, kept, attempts: Watch::default() })
    }

    /// Whether there is something to keep, or to keep no longer.
    pub fn is_to_be_kept(&self) -> bool {
        let Some(kept) = &self.kept else { return false };
        self.with(State::persists) || kept.something.load(Ordering::Acquire)
    }

    /// Keeps what persists through a loss of power, as it is now; for the attempt under way. Blocks.
    ///
    /// # Errors
    /// As [`Keeper::keep`].
    pub(super) fn keep(&self) -> io::Result<()> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let saved = self.with(State::saved);
        kept.keeper.keep(saved.as_ref())?;
        kept.something.store(saved.is_some(), Ordering::Release);
        Ok(())
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
