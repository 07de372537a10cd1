//! A namespace's reservation state as the cores share it: reservation commands take a lock, I/O
//! reads one counter and keeps what it found.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reactor::cross_core::Watch;

use super::keep::Attempts;
use super::published::{Cached, Published};
use super::{Access, Command, Effects, HostId, Keeper, Keeping, PowerLoss, Refusal, State};

/// One per namespace.
#[derive(Debug)]
pub struct Shared {
    state: Published<State>,
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
pub type CachedAccess = Cached<Access>;

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
        let state = Published::new(State::power_on(power_loss, saved)?);
        Some(Self { state, kept, attempts: Watch::default() })
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
        self.state.with(look)
    }

    /// Applies a command that came from an address.
    ///
    /// # Errors
    /// As [`State::execute_from`].
    pub fn execute(
        &self,
        host: HostId,
        address: IpAddr,
        command: &Command,
    ) -> Result<Effects, Refusal> {
        self.state.change(|state| state.execute_from(host, address, command))
    }

    /// Set Features, Reservation Persistence.
    ///
    /// # Errors
    /// As [`State::set_persist`].
    pub fn set_persist(&self, persist: bool) -> Result<(), Refusal> {
        self.state.change(|state| state.set_persist(persist))
    }

    /// What `host` may do.
    pub fn access(&self, host: HostId, cached: &mut Option<CachedAccess>) -> Access {
        self.state.cached(cached, |state| state.access(host))
    }
}
