//! A drive that fails as its seed says.

use super::Drive;
use crate::error::{Error, Kind, Operation};
use crate::limits::TRANSFER_DEADLINE;
use reactor::sleep;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stdx::Prng;

/// Which faults, how often (in a million operations), from which seed.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    pub seed: u64,
    pub read_error_ppm: u32,
    pub write_error_ppm: u32,
    pub flush_error_ppm: u32,
    pub delay_ppm: u32,
    pub delay: Range<Duration>,
    /// Operations after which the drive is gone.
    pub gone_after: Option<u64>,
    /// How many microseconds each operation takes beside all that, which whoever has it changes as it goes.
    pub longer: Option<Arc<AtomicU64>>,
}

#[derive(Debug)]
struct State {
    prng: Prng,
    operations: u64,
}

/// A drive between us and another one.
#[derive(Debug)]
pub struct Faulty {
    inner: Drive,
    plan: FaultPlan,
    state: Mutex<State>,
}

impl Faulty {
    pub(super) fn new(inner: Drive, plan: FaultPlan) -> Self {
        let state = Mutex::new(State { prng: Prng::new(plan.seed), operations: 0 });
        Self { inner, plan, state }
    }

    pub(super) const fn inner(&self) -> &Drive {
        &self.inner
    }

    /// Delays or fails the operation that is about to run.
    pub(super) async fn before(
        &self,
        operation: Operation,
        offset: u64,
        len: u64,
    ) -> Result<(), Error> {
        let (delay, kind) = self.decide(operation);
        let longer = self.plan.longer.as_ref().map_or(0, |longer| longer.load(Ordering::Relaxed));
        let longer =
            (longer > 0).then(|| Duration::from_micros(longer) + delay.unwrap_or_default());
        if let Some(delay) = longer.or(delay) {
            sleep(delay.min(TRANSFER_DEADLINE)).await;
            if delay >= TRANSFER_DEADLINE {
                return Err(Error::new(Kind::Timeout, operation, offset, len));
            }
        }
        kind.map_or(Ok(()), |kind| Err(Error::new(kind, operation, offset, len)))
    }

    fn decide(&self, operation: Operation) -> (Option<Duration>, Option<Kind>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.operations += 1;
        if self.plan.gone_after.is_some_and(|n| state.operations > n) {
            return (None, Some(Kind::Gone));
        }
        let delay = state.prng.chance_ppm(self.plan.delay_ppm).then(|| {
            let span = self.plan.delay.end.saturating_sub(self.plan.delay.start);
            let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX - 1);
            self.plan.delay.start + Duration::from_nanos(state.prng.below(span + 1))
        });
        let ppm = match operation {
            Operation::Read => self.plan.read_error_ppm,
            Operation::Flush => self.plan.flush_error_ppm,
            _ => self.plan.write_error_ppm,
        };
        (delay, state.prng.chance_ppm(ppm).then_some(Kind::Medium))
    }
}
