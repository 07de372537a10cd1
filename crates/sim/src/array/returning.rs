//! Drives that come and go while a pool is open: pulled in the midst of anything, given back as they were or as they
//! were long ago, and pulled again before they are whole; never more at once than the redundancy bears.

mod changes;

use super::operator::Truth;
use super::sick::ROTS;
use super::{Array, Media};
use crate::rough::moment;
use crate::shape::LogShape;
use crate::store::Refusal;
use engine::canary::Canary;
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
    /// Drives are pulled, and given back; without that an operator only changes what works.
    pulls: bool,
    stage: Rc<Cell<Stage>>,
    pool: Pool,
    drives: Vec<Arc<Simulated>>,
    capacities: Vec<u64>,
    bears: usize,
    /// The log lies on them.
    log: bool,
    power: Arc<Power>,
    truth: Rc<RefCell<Truth>>,
    said: Rc<RefCell<Vec<String>>>,
    prng: Prng,
    /// An operator takes drives out and replaces them; by what chance.
    replaces: bool,
    operator: Prng,
    /// An operator adds drives, and has others emptied; by what chance.
    widens: bool,
    changes: Prng,
    /// Of the next drive that is put in a place.
    identity: u128,
    /// Drives that were given back, and are not whole as far as is known.
    coming: BTreeSet<usize>,
    /// Whatever a process before has in flight.
    takes_early: bool,
}

impl Media {
    /// From now on drives come and go, if they do in this run, until the life ends.
    pub(super) fn turn_over(&self, life: usize, pool: &Pool) {
        let rough = self.plan.rough.unwrap_or_default();
        if !rough.returns && !rough.widens {
            return;
        }
        self.stage.set(Stage::ComeAndGo);
        let shelf = Shelf {
            pulls: rough.returns,
            stage: Rc::clone(&self.stage),
            pool: pool.clone(),
            drives: self.drives.clone(),
            capacities: self.plan.shape.all_drives().collect(),
            bears: self.plan.shape.redundancy(),
            log: self.plan.shape.log == LogShape::Drives,
            power: Arc::clone(&self.power),
            truth: Rc::clone(&self.truth),
            said: Rc::clone(&self.said),
            prng: Prng::new(self.plan.seed ^ 0x5eed_0bac_4000_0001 ^ u64_of(life) << 48),
            replaces: rough.replaces,
            operator: Prng::new(self.plan.seed ^ 0x5eed_0be7_d12e_0001 ^ u64_of(life) << 48),
            widens: rough.widens,
            changes: Prng::new(self.plan.seed ^ 0x5eed_0add_c4a9_0001 ^ u64_of(life) << 48),
            identity: u128::from(self.plan.seed) << 64 | u128::from(u64_of(life) + 1) << 32,
            coming: BTreeSet::new(),
            takes_early: self.canary == Some(Canary::TakesEarly),
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
                self.coming = (0..status.drives.len()).filter(rejoins).collect();
            }
            self.look(&status);
            let out = self.truth.borrow().out.clone();
            let returns = self.stage.get() == Stage::Returns;
            if returns {
                // What is slow on purpose would take for ever. Nothing may be under way.
                let _ = self.pool.limit_rebuild(0);
            }
            if returns && self.is_whole(&status) && self.stays_whole(status.drives.len()).await {
                return;
            }
            if self.widens && !returns && self.changes.below(3) == 0 {
                self.change(&out, &status).await;
            } else if self.pulls {
                match self.prng.below(3) {
                    0 if !returns => self.pull(&out, &status).await,
                    _ => self.give_back(&out, &status).await,
                }
            }
            sleep(moment(&mut self.prng, PAUSE)).await;
        }
    }

    /// Whether it is whole for good: then all drives have everything.
    async fn stays_whole(&self, places: usize) -> bool {
        sleep(STAYS).await;
        let is_so = self.pool.status().await.is_ok_and(|status| self.is_whole(&status));
        if is_so && self.power.is_on() {
            self.note("all drives are whole".into());
            let mut truth = self.truth.borrow_mut();
            // What the pool does not have is not of it.
            truth.out.retain(|n| *n >= places);
            truth.fresh.retain(|n| *n >= places);
            (truth.sick, truth.replaced) = Default::default();
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
        drives.all(|drive| drive.state == DriveState::Online)
            && !self.lacks_log(status)
            && !status.rebuild.as_ref().is_some_and(|rebuild| rebuild.is_under_way)
            && self.truth.borrow().rotten.is_empty()
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
        self.look_for_vacant(status);
        if self.lacks_log(status) {
            return;
        }
        for n in std::mem::take(&mut self.coming) {
            match status.drives[n].state {
                DriveState::Online => {
                    self.note(format!("drive {n} is whole"));
                    let mut truth = self.truth.borrow_mut();
                    if truth.mute.contains(&n) {
                        // What it has of the log it still does not give.
                        continue;
                    }
                    truth.out.remove(&n);
                    truth.sick.remove(&n);
                    truth.replaced.remove(&n);
                    truth.fresh.remove(&n);
                    truth.rotten.remove(&n);
                }
                DriveState::Rejoining => drop(self.coming.insert(n)),
                DriveState::Failed | DriveState::Missing => {}
            }
        }
    }

    /// One more goes, or one that is coming.
    async fn pull(&mut self, out: &BTreeSet<usize>, status: &PoolStatus) {
        let all: BTreeSet<usize> = (0..status.drives.len()).collect();
        // What lay on a place that is vacant is on the others.
        let is_vacant = |n: &usize| status.drives.get(*n).is_none_or(|drive| drive.vacant);
        let lost = out.iter().filter(|n| !is_vacant(n)).count();
        let some = match lost < self.bears {
            true => &all - out,
            // One that comes to a vacant place may be relied on at once.
            false if lost == self.bears => {
                self.coming.iter().copied().filter(|n| !is_vacant(n)).collect()
            }
            // One did that in a place that was vacant when another was pulled.
            false => return,
        };
        let Some(n) = self.one_of(&some) else { return };
        let drive = &self.drives[n];
        let how = self.prng.below(4);
        match how {
            _ if self.widens && self.changes.below(6) == 0 => {
                drive.set_faults(ROTS);
                self.truth.borrow_mut().rotten.insert(n);
            }
            _ if self.replaces && self.operator.below(4) == 0 => return self.take_out(n).await,
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
        self.goes_out(n);
    }

    async fn give_back(&mut self, out: &BTreeSet<usize>, status: &PoolStatus) {
        let known: BTreeSet<usize> = (0..status.drives.len()).collect();
        let Some(n) = self.one_of(&(&(out & &known) - &self.coming)) else { return };
        let drive = Arc::clone(&self.drives[n]);
        drive.revive();
        drive.set_hanging(false);
        drive.refuse_nothing();
        drive.set_faults(SimulatedFaults::default());
        if !drive.is_alone() && !self.takes_early {
            return self.note(format!("drive {n} is not taken: what is in flight has not ended"));
        }
        if status.drives[n].state.is_written() {
            // Nobody has noticed, so far: but who knows of one that forgets does not wait for that.
            if self.truth.borrow().rotten.contains(&n) {
                let taken = self.pool.fail_drive(stdx::num::u16_of(n)).await;
                self.note(format!("drive {n} forgets, and is taken out: {taken:?}"));
            }
            return;
        }
        if self.replaces && self.operator.below(4) == 0 {
            return self.replace(n, true).await;
        }
        if self.replaces && self.operator.below(3) == 0 {
            // Where there are more drives than a stripe is wide.
            let begun = self.pool.rebuild(0).await.map_err(|error| error.to_string());
            return self.note(format!("an operator has the pool rebuilt: {begun:?}"));
        }
        if status.drives[n].stays_out.is_some() {
            self.truth.borrow_mut().vacant.remove(&n);
            let may = self.pool.let_return(stdx::num::u16_of(n)).await;
            let may = may.map_err(|error| error.to_string());
            self.note(format!("drive {n} may return: {may:?}"));
            if may.is_err() {
                // Labels could not be written: the operator tries again later.
                return;
            }
            // Whoever opened the pool may have tried in the same moment.
            let Ok(now) = self.pool.status().await else { return };
            if now.drives[n].state.is_written() {
                self.coming.insert(n);
                return;
            }
        }
        let aside = self.truth.borrow().aside.clone();
        let mut is_former = false;
        if let Some(old) = aside.filter(|aside| aside.drive == n)
            && self.prng.below(2) == 0
        {
            self.note(format!("drive {n} is an old copy"));
            drive.restore(&old.contents);
            self.truth.borrow_mut().replaced.insert(n);
            is_former = old.is_former;
        }
        self.truth.borrow_mut().vacant.remove(&n);
        match self.pool.rejoin(Arc::new(Drive::Simulated(drive))).await {
            Ok(_) => {
                assert!(!is_former, "drive {n} is taken back, though another has its place");
                self.note(format!("drive {n} is back"));
                self.coming.insert(n);
            }
            Err(error) if !self.power.is_on() => drop(error),
            // It is not of the pool any more, or has no label as yet.
            Err(error) if error.kind == Kind::Missing => {
                self.note(format!("drive {n} is not taken back: {error}"));
                self.replace(n, false).await;
            }
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
        if let Some(remote) = &self.remote {
            // That may take a while, in which it would be scrubbed over and over.
            self.scrubs.end().await;
            return remote.make_whole(&self.pool).await;
        }
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
