//! A namespace of another target that has the commit log, beside memory here or alone: what befalls it, and what is true
//! of the two whatever the pool believes.
//!
//! What a life that is cut short leaves on either is all of the log, if the pool had told of both copies by then; of one
//! of them nothing may be left.

mod moves;
mod openings;
mod waits;

pub use moves::FarLog;

use super::operator::newest_label;
use super::{Media, Seen, memory};
use crate::plan::{Plan, Remote};
use crate::rough::moment;
use engine::format::label::{Label, LogKind};
use engine::{LogDevice, LogSpec, Pool};
use media::drive::{Refusal, SimulatedContents, SimulatedOptions};
use media::{Drive, Kind, Operation, Pmem, Power, Simulated, SimulatedPmem};
use reactor::{sleep, spawn};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::Prng;
use stdx::num::{u64_of, usize64};

/// The longest that something befalls it, as doublings of some microseconds: up to eight seconds.
const SPELL: u64 = 21;

/// Errors that a namespace with the only copy answers in a row, and how long it then takes to answer at most.
const FEW: u64 = 5;
const LATE: Duration = Duration::from_secs(1);

/// One of the two that have the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Memory,
    Namespace,
}

const BOTH: [Side; 2] = [Side::Memory, Side::Namespace];

/// What is true of them, as long as the log is on them.
#[derive(Clone, Debug, Default)]
struct Truth {
    /// Those that surely have all of it.
    current: BTreeSet<Side>,
    /// One of them has, and nobody knows which.
    unsure: bool,
}

pub(super) struct Far {
    drive: Arc<Simulated>,
    /// Of this machine: without it nothing goes there.
    power: Arc<Power>,
    plan: Remote,
    nothing: SimulatedContents,
    capacity: u64,
    truth: RefCell<Truth>,
    /// One that has had everything since the pool was opened.
    base: Cell<Option<Side>>,
    /// How many of them the pool knows of.
    given: Cell<u64>,
    /// The open pool, and the drives that do not lie.
    pool: RefCell<Option<Pool>>,
    drives: RefCell<Vec<Arc<Simulated>>>,
    /// The memory that a blank one is given in place of.
    kept: RefCell<Option<Arc<SimulatedPmem>>>,
    /// It lost what it had, which the pool may not have seen: it counts for both.
    wary: Cell<bool>,
    /// It did in this life: whether that was seen, shows when memory dies.
    was_emptied: Cell<bool>,
    /// That comes once.
    was_blanked: Cell<bool>,
    /// Something befalls it; how often something did.
    ails: Cell<bool>,
    ailed: Cell<u64>,
    /// It was told to refuse a few operations, and may not have yet.
    refuses: Cell<bool>,
    /// Nothing more does in this life.
    stays: Cell<bool>,
    /// The log is on its way.
    moving: Cell<bool>,
    /// Writes surely wait while one side alone has everything.
    waits: Cell<bool>,
    said: RefCell<Vec<String>>,
}

impl Far {
    pub fn new(plan: &Plan, power: &Arc<Power>) -> Option<Self> {
        let remote = plan.remote?;
        let capacity = plan.shape.log_bytes.next_multiple_of(4096);
        let drive = Simulated::new(SimulatedOptions {
            capacity,
            seed: plan.seed ^ 0x5eed_0fa4_0000_0002,
            volatile_cache: !plan.seed.is_multiple_of(4),
            power: Arc::clone(power),
            in_flight: super::taking::in_flight(plan.outlives, true),
            ..SimulatedOptions::default()
        });
        Some(Self {
            nothing: drive.contents(),
            capacity,
            drive,
            power: Arc::clone(power),
            plan: remote,
            truth: RefCell::default(),
            base: Cell::default(),
            given: Cell::default(),
            pool: RefCell::default(),
            drives: RefCell::default(),
            kept: RefCell::default(),
            wary: Cell::default(),
            was_emptied: Cell::default(),
            was_blanked: Cell::default(),
            ails: Cell::default(),
            ailed: Cell::default(),
            refuses: Cell::default(),
            stays: Cell::default(),
            moving: Cell::default(),
            waits: Cell::default(),
            said: RefCell::default(),
        })
    }

    pub fn drive(&self) -> Arc<Simulated> {
        Arc::clone(&self.drive)
    }

    /// Those of the two that there are.
    fn sides(&self) -> BTreeSet<Side> {
        BOTH.into_iter().filter(|side| *side == Side::Namespace || !self.plan.alone).collect()
    }

    /// The log on these of them.
    fn spec(&self, sides: &BTreeSet<Side>, pmem: &[Arc<SimulatedPmem>]) -> LogSpec {
        let mut devices = Vec::new();
        for side in sides {
            match side {
                Side::Memory => devices
                    .extend(pmem.iter().map(|pmem| {
                        LogDevice::Memory(Arc::new(Pmem::Simulated(Arc::clone(pmem))))
                    })),
                Side::Namespace => devices
                    .push(LogDevice::remote(Arc::new(Drive::Simulated(Arc::clone(&self.drive))))),
            }
        }
        if self.plan.first {
            devices.reverse();
        }
        LogSpec::Remote(devices)
    }

    /// The log on all there is.
    pub fn log(&self, pmem: &[Arc<SimulatedPmem>]) -> LogSpec {
        self.spec(&self.sides(), pmem)
    }

    /// A copy of the namespace as it is.
    pub fn copy(&self) -> Arc<Simulated> {
        super::starts::copy_of(&self.drive, self.capacity, 0)
    }

    fn note(&self, what: String) {
        self.said.borrow_mut().push(what);
    }

    /// It is there, and answers.
    fn cure(&self) {
        self.drive.revive();
        self.drive.set_hanging(false);
        self.drive.refuse_nothing();
        self.ails.set(false);
        self.refuses.set(false);
    }

    /// Likewise, in another life: there time begins anew.
    fn cure_by_now(&self) {
        self.cure();
        self.drive.stall(Duration::ZERO);
    }

    /// Power fails there, and is back: what is on its way is lost, or done in part.
    fn lose_power(&self, prng: &mut Prng) {
        let is_on = self.power.is_on();
        self.drive.power_cut(prng);
        self.drive.power_on();
        if !is_on {
            self.power.cut();
        }
    }

    /// The power of this machine fails.
    pub fn crash_kept(&self, prng: &mut Prng) {
        self.kept.borrow().iter().for_each(|pmem| pmem.crash(prng));
    }

    /// Where the log is by the labels.
    fn kind(&self) -> Option<LogKind> {
        self.label().map(|label| label.log)
    }

    fn label(&self) -> Option<Label> {
        let drives = self.drives.borrow();
        drives.iter().filter_map(|drive| newest_label(drive)).max_by_key(|label| label.epoch)
    }

    /// Whether the pool says that both have everything, and all labels do.
    fn has_both(&self, pool: &Pool) -> bool {
        let drives = self.drives.borrow();
        let told =
            drives.iter().filter(|drive| Drive::Simulated(Arc::clone(drive)).failure().is_none());
        let mut labels = told.map(|drive| newest_label(drive));
        let is_told = |label: Option<Label>| {
            label.is_some_and(|l| l.log == LogKind::Remote && l.current_members().count() == 2)
        };
        !self.wary.get() && pool.log_copies().0 == 2 && labels.all(is_told)
    }

    /// What is known of it when a life ends, whatever ended it.
    fn look_last(&self, pool: &Pool) {
        let (mut current, mut unsure) = (BTreeSet::new(), self.moving.get());
        if !unsure && self.kind() == Some(LogKind::Remote) {
            match self.base.get() {
                _ if self.has_both(pool) => current.extend(BOTH),
                Some(side) => current.extend([side]),
                None => unsure = true,
            }
        }
        *self.truth.borrow_mut() = Truth { current, unsure };
    }
}

impl Media {
    /// The log of a pool that is made.
    pub(super) fn first_log(&self) -> LogSpec {
        let on_drives = self.far.as_ref().is_some_and(|far| far.plan.on_drives);
        if on_drives { LogSpec::Drives } else { self.log() }
    }

    /// The pool was made, with its log on all there is.
    pub(super) fn remote_was_made(&self) {
        let Some(far) = &self.far else { return };
        far.base.set(far.sides().first().copied().filter(|_| !far.plan.on_drives));
        far.given.set(u64_of(far.sides().len()));
    }

    /// From now on something befalls the namespace now and then, as long as the pool is open.
    pub(super) fn befall(&self, life: usize, pool: &Pool) {
        let Some(far) = &self.far else { return };
        far.pool.replace(Some(pool.clone()));
        far.stays.set(false);
        far.moving.set(false);
        let is_sound = |n: &usize| !self.plan.shape.faults.drives.contains(n);
        let sound = (0..self.drives.len()).filter(is_sound).map(|n| Arc::clone(&self.drives[n]));
        far.drives.replace(sound.collect());
        let prng = Prng::new(self.plan.seed ^ 0x5eed_0fa4_0000_0003 ^ u64_of(life) << 48);
        drop(spawn(Rc::clone(far).fare(prng, pool.clone())));
    }

    pub(super) fn said_of_far(&self) -> Vec<String> {
        self.far.as_ref().map_or_else(Vec::new, |far| far.said.take())
    }

    /// As [`World::look_last`](crate::world::World::look_last).
    pub fn look_last(&self) {
        self.note_term();
        let Some(far) = &self.far else { return };
        let Some(pool) = far.pool.take() else { return };
        far.look_last(&pool);
        let copies = far.truth.borrow().current.len();
        self.count(|seen| {
            seen.log_copies += pool.log_copies_made();
            seen.doubles += u64::from(copies == 2);
            seen.singles += u64::from(copies == 1);
        });
    }

    fn count(&self, count: impl FnOnce(&mut Seen)) {
        let mut seen = self.seen.get();
        count(&mut seen);
        self.seen.set(seen);
    }

    /// As [`World::bury`](crate::world::World::bury).
    pub fn bury(&self, seed: u64) {
        let Some(far) = &self.far else { return };
        self.take_back_memory();
        far.cure();
        let mut prng = Prng::new(seed ^ 0x5eed_0fa4_0000_0004);
        if prng.below(3) == 0 {
            far.lose_power(&mut prng);
        }
        let mut truth = far.truth.borrow_mut();
        let is_doubtful = far.was_emptied.take() && truth.current.contains(&Side::Namespace);
        let deaths = if is_doubtful { 75 } else { far.plan.deaths };
        if truth.unsure || truth.current.is_empty() || prng.below(100) >= deaths {
            return;
        }
        let stays = usize64(prng.below(u64_of(truth.current.len())));
        let stays = match is_doubtful {
            true => Some(Side::Namespace),
            false => truth.current.iter().copied().nth(stays),
        };
        for side in far.sides().into_iter().filter(|side| Some(*side) != stays) {
            truth.current.remove(&side);
            self.blank(far, side);
            self.count(|seen| seen.buried += 1);
        }
    }

    /// Nothing is left there.
    fn blank(&self, far: &Far, side: Side) {
        far.note(format!("nothing is left of the log's {side:?}"));
        match side {
            Side::Memory => self.pmem.borrow_mut()[0] = memory(&self.plan, &self.power),
            Side::Namespace => {
                far.drive.restore(&far.nothing);
                // What is blank nobody takes for the log.
                far.wary.set(false);
            }
        }
    }

    /// Whether nobody knows where the log is.
    pub(super) fn is_log_unsure(&self) -> bool {
        self.far.as_ref().is_some_and(|far| far.truth.borrow().unsure)
    }

    /// The log on what surely has it.
    pub(super) fn log_to_check(&self) -> LogSpec {
        let Some(far) = &self.far else { return self.log_anywhere() };
        self.take_back_memory();
        far.cure_by_now();
        match far.kind() {
            Some(LogKind::Drives) => LogSpec::Drives,
            Some(LogKind::Pmem) => super::log_moves::spec(&self.others.borrow(), &[]),
            _ if self.closed.get() => self.log(),
            _ => far.spec(&far.truth.borrow().current, &self.pmem.borrow()),
        }
    }
}

impl Far {
    /// What befalls it, one after another.
    async fn fare(self: Rc<Self>, mut prng: Prng, pool: Pool) {
        loop {
            sleep(moment(&mut prng, self.plan.pause)).await;
            if self.stays.get() || !self.power.is_on() || pool.status().await.is_err() {
                return;
            }
            if self.stays.get() || self.ails.get() {
                continue;
            }
            if self.plan.alone && (self.moving.get() || self.kind() == Some(LogKind::Remote)) {
                self.ail_little(&mut prng).await;
            } else if self.may_go(&pool) {
                self.ails.set(true);
                self.ailed.set(self.ailed.get() + 1);
                self.ail(&mut prng, &pool).await;
                self.ails.set(false);
            }
        }
    }

    /// Whether the pool goes on without it.
    fn may_go(&self, pool: &Pool) -> bool {
        if self.kind() == Some(LogKind::Remote) && self.base.get() != Some(Side::Memory) {
            if !self.has_both(pool) {
                return false;
            }
            self.base.set(Some(Side::Memory));
        }
        true
    }

    /// What the only copy may do.
    async fn ail_little(&self, prng: &mut Prng) {
        match prng.below(3) {
            // It is connected anew, and what it has is there.
            2 => {
                self.drive.fail();
                self.drive.revive();
            }
            0 => {
                self.refuses.set(true);
                self.drive.refuse(Refusal::all(Kind::Passing, 1 + prng.below(FEW)));
            }
            _ => self.drive.stall(moment(prng, SPELL).min(LATE)),
        }
        // Never so long that it is given up.
        sleep(2 * LATE).await;
    }

    async fn ail(&self, prng: &mut Prng, pool: &Pool) {
        let span = moment(prng, SPELL);
        match prng.below(8) {
            0..3 => {
                let dark = prng.below(2) == 0;
                self.note(format!("the namespace is away for {span:?}, without power: {dark}"));
                self.drive.fail();
                if dark {
                    self.lose_power(prng);
                }
                sleep(span).await;
                self.drive.revive();
            }
            3..5 => {
                self.note(format!("the namespace hangs for {span:?}"));
                self.drive.set_hanging(true);
                sleep(span).await;
                self.drive.set_hanging(false);
            }
            5..7 => {
                let kinds = [Kind::Medium, Kind::Gone, Kind::Timeout, Kind::Passing];
                let kind = kinds[usize64(prng.below(4))];
                let operation = (prng.below(2) == 0).then_some(Operation::Write);
                let times = Some(1 << prng.below(6));
                self.note(format!("the namespace refuses {operation:?}, {times:?}: {kind:?}"));
                self.drive.refuse(Refusal { operation, range: 0..u64::MAX, kind, times });
                sleep(span).await;
                self.drive.refuse_nothing();
            }
            _ if self.was_blanked.replace(true) => {}
            // It may be back before anybody writes.
            _ => self.forget(Some(span).filter(|_| prng.below(2) == 0), pool).await,
        }
    }

    /// It is away for a while, and has nothing any more.
    async fn forget(&self, span: Option<Duration>, pool: &Pool) {
        self.note(format!("the namespace is away for {span:?}, and loses what it has"));
        self.wary.set(self.kind() == Some(LogKind::Remote));
        self.drive.fail();
        self.drive.restore(&self.nothing);
        self.was_emptied.set(true);
        if let Some(span) = span {
            sleep(span).await;
        }
        self.drive.revive();
        // A node looks every few seconds: from then on it is known, and made whole from end to end.
        if pool.look_at_drives().await.is_ok() {
            self.wary.set(false);
        }
    }
}
