//! Drives that come and go while a pool is open: pulled in the midst of anything, given back as they were or as they
//! were long ago, and pulled again before they are whole; never more at once than the redundancy bears.

use super::operator::Truth;
use super::{Array, Media};
use crate::rough::moment;
use crate::shape::LogShape;
use crate::store::Refusal;
use engine::{DriveState, Kind, Pool, PoolStatus};
use media::drive::SimulatedFaults;
use media::{Drive, Power, Simulated};
use reactor::{sleep, spawn};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::Prng;
use stdx::num::{u64_of, usize64};

/// Pauses between two things that happen, as doublings of some microseconds: up to a third of a second.
const PAUSE: u64 = 16;

/// How long everything may take to be whole again, and how long it has to stay so: what a drive fails at late shows
/// by then.
const PATIENCE: Duration = Duration::from_mins(30);
const STAYS: Duration = Duration::from_secs(60);

/// How far a life has come with its drives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    ComeAndGo,
    /// All are given back.
    Returns,
    /// All are whole.
    Whole,
    /// One came and went too often to be taken back in this life.
    Worn,
}

struct Shelf {
    stage: Rc<Cell<Stage>>,
    pool: Pool,
    drives: Vec<Arc<Simulated>>,
    bears: usize,
    /// The log lies on them.
    log: bool,
    power: Arc<Power>,
    truth: Rc<RefCell<Truth>>,
    said: Rc<RefCell<Vec<String>>>,
    prng: Prng,
    /// Drives that were given back, and are not whole as far as is known.
    coming: BTreeSet<usize>,
}

impl Media {
    /// From now on drives come and go, until the life ends.
    pub(super) fn come_and_go(&self, life: usize, pool: &Pool) {
        self.stage.set(Stage::ComeAndGo);
        let shelf = Shelf {
            stage: Rc::clone(&self.stage),
            pool: pool.clone(),
            drives: self.drives.clone(),
            bears: self.plan.shape.redundancy(),
            log: self.plan.shape.log == LogShape::Drives,
            power: Arc::clone(&self.power),
            truth: Rc::clone(&self.truth),
            said: Rc::clone(&self.said),
            prng: Prng::new(self.plan.seed ^ 0x5eed_0bac_4000_0001 ^ u64_of(life) << 48),
            coming: BTreeSet::new(),
        };
        drop(spawn(shelf.turn_over()));
    }
}

impl Shelf {
    async fn turn_over(mut self) {
        let mut is_first = true;
        loop {
            let Ok(status) = self.pool.status().await else { return };
            if !self.power.is_on() {
                return;
            }
            if std::mem::take(&mut is_first) {
                let rejoins = |n: &usize| status.drives[*n].state == DriveState::Rejoining;
                self.coming = (0..self.drives.len()).filter(rejoins).collect();
            }
            self.look(&status);
            let out = self.truth.borrow().out.clone();
            let returns = self.stage.get() == Stage::Returns;
            if returns && self.is_whole(&status) && self.stays_whole().await {
                return;
            }
            match self.prng.below(3) {
                0 if !returns => self.pull(&out),
                _ => self.give_back(&out, &status).await,
            }
            sleep(moment(&mut self.prng, PAUSE)).await;
        }
    }

    /// Whether it is whole for good: then all drives have everything.
    async fn stays_whole(&self) -> bool {
        sleep(STAYS).await;
        let is_so = self.pool.status().await.is_ok_and(|status| self.is_whole(&status));
        if is_so && self.power.is_on() {
            self.note("all drives are whole".into());
            let mut truth = self.truth.borrow_mut();
            (truth.out, truth.sick, truth.replaced) = Default::default();
            self.stage.set(Stage::Whole);
        }
        is_so
    }

    /// Whether a copy of the log that was lost with a drive has no place yet.
    const fn lacks_log(&self, status: &PoolStatus) -> bool {
        self.log && status.log.failed_devices > 0
    }

    fn is_whole(&self, status: &PoolStatus) -> bool {
        let mut drives = status.drives.iter();
        drives.all(|drive| drive.state == DriveState::Online) && !self.lacks_log(status)
    }

    fn note(&self, what: String) {
        self.said.borrow_mut().push(what);
    }

    fn one_of(&mut self, some: &BTreeSet<usize>) -> Option<usize> {
        let nth = self.prng.below(u64_of(some.len()).max(1));
        some.iter().nth(usize64(nth)).copied()
    }

    /// What is whole counts again, once all that the log had on others is where it was to be, too.
    fn look(&mut self, status: &PoolStatus) {
        if self.lacks_log(status) {
            return;
        }
        for n in std::mem::take(&mut self.coming) {
            match status.drives[n].state {
                DriveState::Online => {
                    self.note(format!("drive {n} is whole"));
                    let mut truth = self.truth.borrow_mut();
                    truth.out.remove(&n);
                    truth.sick.remove(&n);
                    truth.replaced.remove(&n);
                }
                DriveState::Rejoining => drop(self.coming.insert(n)),
                DriveState::Failed | DriveState::Missing => {}
            }
        }
    }

    /// One more goes, or one that is coming.
    fn pull(&mut self, out: &BTreeSet<usize>) {
        let all: BTreeSet<usize> = (0..self.drives.len()).collect();
        let some = if out.len() < self.bears { &all - out } else { self.coming.clone() };
        let Some(n) = self.one_of(&some) else { return };
        let drive = &self.drives[n];
        let how = self.prng.below(4);
        match how {
            0 => drive.set_hanging(true),
            1 => drive.refuse(media::Refusal {
                operation: Some(media::Operation::Write),
                range: 0..u64::MAX,
                kind: media::Kind::Medium,
                times: None,
            }),
            _ => drive.fail(),
        }
        self.note(format!("drive {n} goes ({how})"));
        self.coming.remove(&n);
        let mut truth = self.truth.borrow_mut();
        truth.out.insert(n);
        truth.sick.insert(n);
    }

    async fn give_back(&mut self, out: &BTreeSet<usize>, status: &PoolStatus) {
        let Some(n) = self.one_of(&(out - &self.coming)) else { return };
        let drive = Arc::clone(&self.drives[n]);
        drive.revive();
        drive.set_hanging(false);
        drive.refuse_nothing();
        drive.set_faults(SimulatedFaults::default());
        if status.drives[n].state.is_written() {
            // Nobody has noticed, so far.
            return;
        }
        let aside = self.truth.borrow().aside.clone();
        if let Some(old) = aside.filter(|aside| aside.drive == n)
            && self.prng.below(2) == 0
        {
            self.note(format!("drive {n} is an old copy"));
            drive.restore(&old.contents);
            self.truth.borrow_mut().replaced.insert(n);
        }
        match self.pool.rejoin(Arc::new(Drive::Simulated(drive))).await {
            Ok(_) => {
                self.note(format!("drive {n} is back"));
                self.coming.insert(n);
            }
            Err(error) if !self.power.is_on() => drop(error),
            Err(error) => {
                if error.kind == Kind::Full {
                    self.stage.set(Stage::Worn);
                }
                self.note(format!("drive {n} is not taken back: {:?}: {error}", error.kind));
                assert_ne!(error.kind, Kind::Invalid, "drive {n} is refused for good: {error}");
            }
        }
    }
}

impl Array {
    /// Has all drives given back that came and went, and waits for them to be whole.
    pub async fn make_whole(&self) -> Result<(), Refusal> {
        if !self.returns {
            return Ok(());
        }
        self.stage.set(Stage::Returns);
        let whole = async {
            while self.stage.get() == Stage::Returns {
                sleep(Duration::from_millis(100)).await;
            }
        };
        let Err(_) = reactor::timeout(PATIENCE, whole).await else { return Ok(()) };
        let status = self.describe().await;
        Err(Refusal::Other(format!("the pool is not whole again by itself: {status}")))
    }
}
