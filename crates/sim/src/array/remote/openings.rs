//! An operator who opens the pool with one of the two, both, or another one in the place of memory, while the other target
//! answers or not.

use super::{Far, Side, Truth};
use crate::array::{Media, log_moves, memory, refusal};
use crate::rough::moment;
use crate::store::Refusal;
use engine::format::label::LogKind;
use engine::{Error, Kind, LogSpec, OpenOptions, Pool};
use media::SimulatedPmem;
use media::drive::SimulatedContents;
use reactor::{sleep, spawn, timeout};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::Prng;
use stdx::num::u64_of;

/// When a namespace goes that answered an opening, as doublings of some microseconds.
const GOES: u64 = 12;

/// An opening that takes longer is stuck.
const OPENING: Duration = Duration::from_secs(600);

/// How long a namespace that was away at an opening stays so, as doublings of some microseconds.
const BACK: u64 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Away {
    Fails,
    Hangs,
    /// After so long, in the midst of it perhaps.
    Goes(Duration),
}

/// What an opening is given.
#[derive(Clone, Debug)]
struct Attempt {
    sides: BTreeSet<Side>,
    /// The memory is a blank one.
    blank: bool,
    away: Option<Away>,
}

impl Attempt {
    fn everything(far: &Far) -> Self {
        Self { sides: far.sides(), blank: false, away: None }
    }

    /// Those that answer, but for blank memory if `with_blank` is not said.
    fn answering(&self, with_blank: bool) -> BTreeSet<Side> {
        let answers = |side: &Side| match side {
            Side::Memory => with_blank || !self.blank,
            Side::Namespace => self.away.is_none(),
        };
        self.sides.iter().copied().filter(answers).collect()
    }
}

/// Everything there is, as it was.
struct Before {
    drives: Vec<SimulatedContents>,
    pmem: Vec<Vec<u8>>,
    far: SimulatedContents,
}

impl Far {
    fn draw(&self, prng: &mut Prng, closed: bool) -> Attempt {
        let everything = Attempt::everything(self);
        let unsure = self.truth.borrow().unsure && !closed;
        if unsure || prng.below(4) == 0 {
            return everything;
        }
        let (memory, namespace) = (prng.below(4), prng.below(4) > 0);
        let away = prng.below(3) == 0;
        let away = away.then(|| if prng.below(2) == 0 { Away::Fails } else { Away::Hangs });
        if self.plan.alone {
            return Attempt { away, ..everything };
        }
        let is_given = |side: &Side| match side {
            Side::Memory => memory > 0 || self.wary.get(),
            Side::Namespace => namespace || memory == 0,
        };
        let sides: BTreeSet<Side> = everything.sides.into_iter().filter(is_given).collect();
        let blank = memory == 1 && !self.wary.get();
        let mut away = away.filter(|_| sides.contains(&Side::Namespace));
        // Only where another one has all of it: with nothing else an opening ends in the midst of what it does.
        let has_other = sides.contains(&Side::Memory)
            && (closed || !blank && self.truth.borrow().current.contains(&Side::Memory));
        if away.is_some() && has_other && prng.below(2) == 0 {
            away = Some(Away::Goes(moment(prng, GOES)));
        }
        Attempt { sides, blank, away }
    }

    /// Whether what is given bears being opened.
    fn must_open(&self, attempt: &Attempt, closed: bool) -> bool {
        let truth = self.truth.borrow();
        if closed {
            return !attempt.answering(true).is_empty();
        }
        let given = attempt.answering(false);
        if truth.unsure { given == self.sides() } else { !given.is_disjoint(&truth.current) }
    }
}

impl Media {
    /// Opens the pool with what labels say that its log is on.
    pub(in crate::array) async fn open_remotely(&self, life: usize) -> Result<Pool, Refusal> {
        let Some(far) = &self.far else { return Err(Refusal::NotFound) };
        let mut prng = Prng::new(self.plan.seed ^ 0x5eed_0fa4_0000_0005 ^ u64_of(life) << 48);
        self.take_back_memory();
        far.cure_by_now();
        far.stays.set(false);
        if self.closed.get() && prng.below(4) == 0 {
            // It needs none of that.
            far.sides().into_iter().for_each(|side| self.blank(far, side));
        }
        match far.kind() {
            Some(LogKind::Drives) => return self.open_elsewhere(far, LogSpec::Drives).await,
            Some(LogKind::Pmem) => {
                let log = log_moves::spec(&self.others.borrow(), &[]);
                return self.open_elsewhere(far, log).await;
            }
            _ => {}
        }
        let tries = prng.below(far.plan.tries + 1);
        for _ in 0..tries {
            let attempt = far.draw(&mut prng, self.closed.get());
            if let Some(pool) = self.open_with(far, &attempt, &mut prng).await? {
                return Ok(pool);
            }
        }
        let pool = self.open_with(far, &Attempt::everything(far), &mut prng).await?;
        pool.ok_or_else(|| {
            let said = self.said().join("; ");
            Refusal::Other(format!("refused with everything there is: {said}"))
        })
    }

    /// With its log where the two do not matter.
    async fn open_elsewhere(&self, far: &Far, log: LogSpec) -> Result<Pool, Refusal> {
        let pool = self.open_on(log).await?.map_err(|error| refusal(&error))?;
        *far.truth.borrow_mut() = Truth::default();
        far.base.set(None);
        Ok(pool)
    }

    async fn open_on(&self, log: LogSpec) -> Result<engine::Result<Pool>, Refusal> {
        let import = self.exported.get();
        let options = OpenOptions { degraded: true, import, ..OpenOptions::default() };
        let options = self.as_node(options);
        let (drives, on) = (self.labelled().await, self.on());
        let Ok(opened) = timeout(OPENING, Pool::open(drives, log, options, &on)).await else {
            return Err(Refusal::Other("an opening neither succeeds nor is refused".into()));
        };
        if !self.is_on() {
            std::future::pending::<()>().await;
        }
        Ok(opened)
    }

    async fn open_with(
        &self,
        far: &Rc<Far>,
        attempt: &Attempt,
        prng: &mut Prng,
    ) -> Result<Option<Pool>, Refusal> {
        let was = far.truth.borrow().clone();
        let was_closed = self.closed.get();
        let must_open = far.must_open(attempt, was_closed);
        far.note(format!("an operator tries {attempt:?}, of {was:?}, closed: {was_closed}"));
        self.put_in(far, attempt, was_closed);
        let before = self.all_contents(far);
        match attempt.away {
            Some(Away::Fails) => far.drive.fail(),
            Some(Away::Hangs) => far.drive.set_hanging(true),
            Some(Away::Goes(after)) => far.go(after),
            None => {}
        }
        // Cut short, it may have done any of it.
        self.closed.set(false);
        far.narrow(attempt, was_closed);
        let log = far.spec(&attempt.sides, &self.pmem.borrow());
        let error = match self.open_on(log).await? {
            Ok(pool) => {
                far.note("it opens".to_owned());
                far.kept.take();
                far.opened(attempt, &was, was_closed);
                far.come_back(attempt, moment(prng, BACK));
                return Ok(Some(pool));
            }
            Err(error) => error,
        };
        far.cure();
        far.note(format!("it is refused: {:?}: {error}", error.kind));
        self.check_refused(far, &before, must_open, &error)?;
        self.count(|seen| seen.refused += 1);
        self.take_back_memory();
        *far.truth.borrow_mut() = was;
        self.closed.set(was_closed);
        Ok(None)
    }

    fn check_refused(
        &self,
        far: &Far,
        before: &Before,
        must_open: bool,
        error: &Error,
    ) -> Result<(), Refusal> {
        let said = format!("{:?}: {error}", error.kind);
        if let Some(what) = self.what_changed(far, before) {
            return Err(Refusal::Other(format!("a refused opening changed {what}: {said}")));
        }
        if must_open {
            return Err(Refusal::Other(format!("refused with enough to open it: {said}")));
        }
        if !matches!(error.kind, Kind::Loss | Kind::Failed | Kind::Missing) {
            return Err(Refusal::Other(format!("refused for no good reason: {said}")));
        }
        Ok(())
    }

    /// Puts a blank memory where it is to be given.
    fn put_in(&self, far: &Far, attempt: &Attempt, was_closed: bool) {
        if attempt.blank && attempt.sides.contains(&Side::Memory) {
            let blank = memory(&self.plan, &self.power);
            let replaced = std::mem::replace(&mut self.pmem.borrow_mut()[0], blank);
            // What is not needed any more goes for good: cut short, the opening may have made the blank one the log.
            let kept: Option<Arc<SimulatedPmem>> = (!was_closed).then_some(replaced);
            far.kept.replace(kept);
        }
    }

    /// What was not taken makes room for what there was.
    pub(in crate::array) fn take_back_memory(&self) {
        let Some(far) = &self.far else { return };
        if let Some(memory) = far.kept.take() {
            self.pmem.borrow_mut()[0] = memory;
        }
    }

    fn all_contents(&self, far: &Far) -> Before {
        let drives = self.drives.iter().map(|drive| drive.contents()).collect();
        let pmem = self.pmem.borrow().iter().map(|pmem| pmem.contents()).collect();
        Before { drives, pmem, far: far.drive.contents() }
    }

    /// What is not as it was.
    fn what_changed(&self, far: &Far, before: &Before) -> Option<String> {
        let drives = self.drives.iter().zip(&before.drives).enumerate();
        let mut drives = drives.filter_map(|(n, (drive, was))| Some((n, drive.difference(was)?)));
        if let Some((n, at)) = drives.next() {
            return Some(format!("drive {n} at {at:#x}"));
        }
        if let Some(at) = far.drive.difference(&before.far) {
            return Some(format!("the namespace at {at:#x}"));
        }
        let pmem = self.pmem.borrow();
        let is_other = |(pmem, was): (&Arc<SimulatedPmem>, &Vec<u8>)| !pmem.holds(was);
        pmem.iter().zip(&before.pmem).any(is_other).then(|| "the log's memory".to_owned())
    }
}

impl Far {
    /// What is sure of an opening that is cut short.
    fn narrow(&self, attempt: &Attempt, was_closed: bool) {
        let mut truth = self.truth.borrow_mut();
        if was_closed {
            *truth = Truth { current: attempt.answering(true), unsure: false };
            return;
        }
        let narrowed = &truth.current & &attempt.answering(false);
        if !narrowed.is_empty() {
            truth.current = narrowed;
        }
    }

    /// What is sure of one that succeeded.
    fn opened(&self, attempt: &Attempt, was: &Truth, was_closed: bool) {
        let known = match was_closed {
            true => attempt.answering(true),
            false => &was.current & &attempt.answering(false),
        };
        let only = self.plan.alone.then_some(Side::Namespace);
        self.base.set(only.or_else(|| known.first().copied()));
        self.given.set(u64_of(attempt.sides.len()));
        if was_closed || attempt.answering(true).len() == 2 {
            self.wary.set(false);
        }
    }

    /// It goes after a while, if the life has not come to its end by then.
    fn go(self: &Rc<Self>, after: Duration) {
        let far = Rc::clone(self);
        drop(spawn(async move {
            sleep(after).await;
            if !far.stays.get() && far.power.is_on() {
                far.drive.fail();
            }
        }));
    }

    /// What was away is back after a while.
    fn come_back(self: &Rc<Self>, attempt: &Attempt, after: Duration) {
        if attempt.away.is_none() {
            return;
        }
        let far = Rc::clone(self);
        // After it has gone.
        let after = if let Some(Away::Goes(later)) = attempt.away { after + later } else { after };
        far.ails.set(true);
        drop(spawn(async move {
            sleep(after).await;
            far.cure();
        }));
    }
}
