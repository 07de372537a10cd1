//! A log of persistent memory that moves from some devices to others and back, beside everything else.

use super::{Media, memory, told};
use crate::shape::LogShape;
use crate::store::Refusal;
use engine::{Kind, LogSpec, Pool};
use media::{Pmem, Power, SimulatedPmem};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

type Devices = Rc<RefCell<Vec<Arc<SimulatedPmem>>>>;

/// These devices, and those, for a log.
pub(super) fn spec(some: &[Arc<SimulatedPmem>], more: &[Arc<SimulatedPmem>]) -> LogSpec {
    let device = |pmem: &Arc<SimulatedPmem>| Arc::new(Pmem::Simulated(Arc::clone(pmem)));
    LogSpec::Pmem(some.iter().chain(more).map(device).collect())
}

/// The devices between which the log moves.
pub struct MovableLog {
    pmem: Devices,
    others: Devices,
    /// Makes a blank device.
    blank: Box<dyn Fn() -> Arc<SimulatedPmem>>,
    under_way: Cell<bool>,
}

impl Media {
    pub(super) fn movable_log(&self) -> MovableLog {
        let (plan, power) = (self.plan.clone(), Arc::<Power>::clone(&self.power));
        MovableLog {
            pmem: Rc::clone(&self.pmem),
            others: Rc::clone(&self.others),
            blank: Box::new(move || memory(&plan, &power)),
            under_way: Cell::new(false),
        }
    }

    /// All devices that may have the log: the pool knows which of them are stale. Of a pool that was closed in order
    /// none has it.
    pub(super) fn log_anywhere(&self) -> LogSpec {
        match self.plan.shape.log {
            LogShape::Pmem(_) if !self.closed.get() => {
                spec(&self.pmem.borrow(), &self.others.borrow())
            }
            LogShape::Pmem(_) | LogShape::Drives => self.log(),
        }
    }
}

impl MovableLog {
    /// Moves the log, unless that is under way.
    pub async fn move_on(&self, pool: &Pool) -> Result<(), Refusal> {
        if self.under_way.replace(true) {
            return Ok(());
        }
        let moved = self.try_to_move(pool).await;
        self.under_way.set(false);
        moved
    }

    async fn try_to_move(&self, pool: &Pool) -> Result<(), Refusal> {
        let to = spec(&self.others.borrow(), &[]);
        match pool.move_log(to).await {
            Ok(()) => self.pmem.swap(&self.others),
            // A crash left it there.
            Err(error)
                if error.kind == Kind::Invalid && error.context.contains("the log already") =>
            {
                self.pmem.swap(&self.others);
            }
            // A crash left half a copy there, which somebody wipes.
            Err(error) if error.kind == Kind::Invalid => {
                self.others.borrow_mut().iter_mut().for_each(|pmem| *pmem = (self.blank)());
            }
            Err(error) => return told(Err(error)),
        }
        Ok(())
    }
}
