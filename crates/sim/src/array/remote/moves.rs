//! A log that moves between other memory, drives, and the two that mirror each other; and that is whole again at last.

use super::Far;
use crate::array::{Media, log_moves, memory, told};
use crate::store::Refusal;
use engine::format::label::LogKind;
use engine::{Kind, LogSpec, Pool};
use media::{Power, SimulatedPmem};
use reactor::{random, sleep, timeout};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::num::u64_of;

/// How long the log may take to have all of its copies again, once nothing is wrong any more.
const PATIENCE: Duration = Duration::from_mins(10);

type Devices = Rc<RefCell<Vec<Arc<SimulatedPmem>>>>;

/// The log of an open pool.
pub struct FarLog {
    far: Rc<Far>,
    pmem: Devices,
    others: Devices,
    /// Makes a blank device.
    blank: Box<dyn Fn() -> Arc<SimulatedPmem>>,
    /// The drives have no room for it.
    no_room: Cell<bool>,
}

impl Media {
    pub(in crate::array) fn far_log(&self) -> Option<FarLog> {
        let (plan, power) = (self.plan.clone(), Arc::<Power>::clone(&self.power));
        Some(FarLog {
            far: Rc::clone(self.far.as_ref()?),
            pmem: Rc::clone(&self.pmem),
            others: Rc::clone(&self.others),
            blank: Box::new(move || memory(&plan, &power)),
            no_room: Cell::new(false),
        })
    }
}

impl FarLog {
    /// Moves the log, unless that is under way.
    pub async fn move_on(&self, pool: &Pool) -> Result<(), Refusal> {
        if self.far.moving.replace(true) {
            return Ok(());
        }
        let moved = self.try_to_move(pool).await;
        self.far.moving.set(false);
        moved
    }

    async fn try_to_move(&self, pool: &Pool) -> Result<(), Refusal> {
        let Ok(status) = pool.status().await else { return Ok(()) };
        let (from, draw) = (status.log.kind, random() % 4);
        let to = match from {
            LogKind::Remote if draw < 2 && !self.no_room.get() => LogKind::Drives,
            LogKind::Remote => LogKind::Pmem,
            _ if draw > 0 => LogKind::Remote,
            LogKind::Drives => LogKind::Pmem,
            _ if self.no_room.get() => LogKind::Remote,
            _ => LogKind::Drives,
        };
        let spec = match to {
            // It would be all there is.
            LogKind::Remote if self.far.plan.alone && self.far.ails.get() => return Ok(()),
            LogKind::Remote => {
                self.far.base.set(self.far.sides().first().copied());
                self.far.log(&self.pmem.borrow())
            }
            LogKind::Drives => LogSpec::Drives,
            _ => log_moves::spec(&self.others.borrow(), &[]),
        };
        self.far.note(format!("the log is to move from {from:?} to {to:?}"));
        let (ailed, ails) = (self.far.ailed.get(), self.far.ails.get());
        let moved = pool.move_log(spec).await;
        let error = match moved {
            Ok(()) => {
                if to == LogKind::Remote {
                    self.far.given.set(u64_of(self.far.sides().len()));
                }
                return Ok(());
            }
            Err(error) => error,
        };
        self.far.note(format!("it does not: {:?}: {error}", error.kind));
        let did_ail = ails || self.far.refuses.get() || ailed != self.far.ailed.get();
        match error.kind {
            Kind::Invalid if to == LogKind::Drives => self.no_room.set(true),
            // A move that was cut short left half a copy there, which somebody wipes.
            Kind::Invalid => self.wipe(to),
            Kind::Failed | Kind::Busy if to == LogKind::Remote && did_ail => {}
            _ => return told(Err(error)),
        }
        Ok(())
    }

    fn wipe(&self, to: LogKind) {
        let of = if to == LogKind::Remote { &self.pmem } else { &self.others };
        of.borrow_mut().iter_mut().for_each(|pmem| *pmem = (self.blank)());
        if to == LogKind::Remote {
            self.far.drive.restore(&self.far.nothing);
        }
    }

    /// As [`Far::holds_back`].
    pub fn holds_back(&self) -> Option<u64> {
        self.far.holds_back()
    }

    /// Nothing befalls the namespace any more: the log has its copies again.
    pub async fn make_whole(&self, pool: &Pool) -> Result<(), Refusal> {
        self.far.stays.set(true);
        self.far.cure();
        let is_whole = || {
            self.far.kind() != Some(LogKind::Remote) || pool.log_copies().0 >= self.far.given.get()
        };
        let whole = async {
            while !is_whole() {
                sleep(Duration::from_millis(100)).await;
            }
        };
        if timeout(PATIENCE, whole).await.is_ok() {
            return Ok(());
        }
        let (has, wants) = pool.log_copies();
        Err(Refusal::Other(format!("the log has {has} of its {wants} copies, and no more come")))
    }
}
