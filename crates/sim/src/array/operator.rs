//! An operator who opens a pool with whatever drives and log devices are at hand, and what is true of them meanwhile.
//!
//! What opens without accepting losses has everything that was acknowledged: that is for the model to say. What is
//! refused has changed nothing. And where what was given bears it, it opens.

use super::{Media, memory};
use crate::contents::BLOCK;
use crate::shape::{LogShape, Shape};
use crate::store::Refusal;
use engine::format::{area, label::Label};
use engine::{DriveState, LogSpec, OpenOptions, Pool};
use media::drive::SimulatedContents;
use media::{Drive, Pmem, Simulated, SimulatedPmem};
use reactor::timeout;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use stdx::Prng;
use stdx::num::{u64_of, usize64};

/// An opening that takes longer is stuck: a drive that does not answer is waited for, some times over.
const OPENING: Duration = Duration::from_secs(600);

/// What is true of the media, whatever the pool believes.
#[derive(Clone, Debug, Default)]
pub(super) struct Truth {
    /// Drives that may lack something, for it was done without them, or that cannot be relied upon.
    pub out: BTreeSet<usize>,
    /// Places, of those, in which nothing of the pool lies for sure.
    pub vacant: BTreeSet<usize>,
    /// Drives that hold an old copy of themselves.
    pub replaced: BTreeSet<usize>,
    /// Devices of memory that surely have all of the log.
    pub current: BTreeSet<usize>,
    /// Those of which some cannot be reached, perhaps.
    pub poisoned: BTreeSet<usize>,
    /// The pool was closed in order, and an opening was cut short since: it has a new log, or needs none.
    between_logs: bool,
    /// The last openings were cut short: perhaps they left nobody out of the current ones.
    pub unsure: bool,
    /// Drives that misbehave in this life, or did in the last.
    pub sick: BTreeSet<usize>,
    /// Drives that forgot what was written to them, and were not made whole since: they seem sound.
    pub rotten: BTreeSet<usize>,
    /// Drives that do not give their part of the log, and seem sound.
    pub mute: BTreeSet<usize>,
    /// Drives that were put in the place of others, and may be blank as yet.
    pub fresh: BTreeSet<usize>,
    /// A drive's contents of long ago.
    pub aside: Option<Aside>,
}

impl Truth {
    /// Of a pool that is to be made.
    pub fn new(shape: &Shape) -> Self {
        let later: BTreeSet<usize> = (shape.drives.len()..shape.all_drives().count()).collect();
        Self { out: later.clone(), vacant: later.clone(), fresh: later, ..Self::default() }
    }

    /// Drives that the redundancy makes up for.
    pub fn lost(&self) -> BTreeSet<usize> {
        &self.out - &self.vacant
    }
}

/// A copy that a drive left of itself.
#[derive(Clone, Debug)]
pub(super) struct Aside {
    pub drive: usize,
    pub contents: SimulatedContents,
    /// The newest label of all drives at that time.
    epoch: u64,
    /// Another drive has its place for sure.
    pub is_former: bool,
}

impl Aside {
    /// Whether labels of this epoch tell it from the drive.
    pub const fn is_old(&self, newest: u64) -> bool {
        self.epoch + 1 < newest
    }
}

/// An opening with some of what there is.
#[derive(Debug)]
struct Attempt {
    hidden: BTreeSet<usize>,
    /// The drive of which an old copy is given.
    old: Option<usize>,
    /// Devices of the log that are given, and one that is blank in the place of another.
    log: BTreeSet<usize>,
    blank: Option<usize>,
    options: OpenOptions,
}

impl Attempt {
    /// The devices of the log that are given, but for a blank one.
    fn with_contents(&self) -> BTreeSet<usize> {
        self.log.iter().copied().filter(|n| Some(*n) != self.blank).collect()
    }
}

/// What an operator has put something else in the place of, until that is taken.
#[derive(Default)]
pub(super) struct Kept {
    drive: Option<(usize, SimulatedContents)>,
    pmem: Option<(usize, Arc<SimulatedPmem>)>,
}

/// Everything there is, as it was.
struct Before {
    drives: Vec<SimulatedContents>,
    pmem: Vec<Vec<u8>>,
}

impl Media {
    /// Tries some openings, and in the end one with everything there is. Gives the pool of the last that did.
    pub(super) async fn open_roughly(&self, life: usize, tries: u64) -> Result<Pool, Refusal> {
        let mut prng = Prng::new(self.plan.seed ^ 0x5eed_0be7_a707_0001 ^ u64_of(life) << 48);
        self.swap_back();
        self.put_aside(&mut prng);
        let tries = prng.below(tries + 1);
        for _ in 0..tries {
            let mut attempt = self.draw(&mut prng);
            let Some(pool) = self.attempt(&mut attempt).await? else { continue };
            if prng.below(2) == 0 {
                return Ok(pool);
            }
            self.note("closed, and tried again");
            match super::told(pool.close().await) {
                Ok(()) => self.closed.set(self.is_on()),
                // Without space behind the drives it ends with what is in its log.
                Err(Refusal::Full) if self.scarce.get() => {}
                Err(refusal) => return Err(refusal),
            }
        }
        let mut everything = self.everything();
        if let Some(pool) = self.attempt(&mut everything).await? {
            return Ok(pool);
        }
        // What is refused for want of space is not refused for ever.
        self.give_space();
        everything.options.import = true;
        let pool = self.attempt(&mut everything).await?;
        pool.ok_or_else(|| {
            let said = self.said().join("; ");
            Refusal::Other(format!("refused with everything there is: {said}"))
        })
    }

    fn everything(&self) -> Attempt {
        Attempt {
            hidden: BTreeSet::new(),
            old: None,
            log: (0..self.pmem.borrow().len()).collect(),
            blank: None,
            options: self.as_node(OpenOptions {
                degraded: true,
                import: self.exported.get(),
                ..OpenOptions::default()
            }),
        }
    }

    fn draw(&self, prng: &mut Prng) -> Attempt {
        let (count, truth) = (self.drives.len(), self.truth.borrow());
        let all = 0..count;
        let hidden: BTreeSet<usize> = match prng.below(5) {
            0 => BTreeSet::new(),
            // Those the pool has learnt to be without, and no more than it bears.
            1 | 2 => {
                let mut hidden = self.some_drives(&truth.lost(), prng);
                hidden.retain(|_| prng.below(3) > 0);
                hidden
            }
            3 => all.filter(|n| *n < 2 || prng.below(8) == 0).collect(),
            _ => all.filter(|_| prng.below(2) == 0).collect(),
        };
        // One at least that was never away: without a witness nobody can know what it missed.
        let witness = (0..count).cycle().skip(usize64(prng.below(u64_of(count)))).take(count);
        let witness = witness.into_iter().find(|n| !truth.out.contains(n)).unwrap_or(0);
        let mut hidden = hidden;
        hidden.remove(&witness);
        let devices = 0..self.pmem.borrow().len();
        // No opening has come to its end since where they have the label of that time: nothing tells the copy from the
        // drive then, and it is as good.
        let newest = self.newest_epoch();
        let old = truth.aside.as_ref().filter(|aside| aside.is_old(newest));
        let old = old.map(|aside| aside.drive);
        let old = old.filter(|n| !hidden.contains(n) && *n != witness);
        let blank = (prng.below(6) == 0).then(|| usize64(prng.below(2)));
        // Often all the devices that the pool went on without, and nothing else: from a source of its own.
        let mut aside = Prng::new(prng.clone().next_u64() ^ 0x5eed_0571_a1e0_0001);
        let stale: BTreeSet<usize> =
            devices.clone().filter(|n| !truth.current.contains(n)).collect();
        let takes_stale = !stale.is_empty() && aside.below(3) == 0;
        let mut old = old.filter(|_| prng.below(2) == 0);
        let bears = self.plan.shape.redundancy();
        let mut lacking = &(&truth.out - &truth.rotten) | &hidden;
        lacking.extend(old);
        lacking = &lacking - &truth.vacant;
        if !truth.rotten.is_empty() && (&lacking | &truth.rotten).len() > bears {
            // Where it opens, what rots on a drive is one loss too many; and it may open, however many are hidden: some
            // that are out may be vacant by now. Nor are those hidden that are perhaps out already: of one that was hidden
            // when an opening was cut short, nobody knows.
            hidden = &hidden & &truth.vacant;
            old = None;
        }
        Attempt {
            hidden,
            old,
            log: {
                let some = devices.clone().filter(|_| prng.below(3) > 0).collect();
                if takes_stale { stale } else { some }
            },
            // Not where nobody knows whether a new log was made: the one it would take the place of may be that.
            blank: blank.filter(|n| devices.contains(n) && !truth.between_logs),
            options: self.as_node(self.of_nobody(
                OpenOptions {
                    degraded: prng.below(4) > 0,
                    import: self.exported.get() || prng.below(4) == 0,
                    ..OpenOptions::default()
                },
                &mut aside,
            )),
        }
    }

    /// Now and then it is the daemon that opens it, and nobody is asked.
    fn of_nobody(&self, options: OpenOptions, prng: &mut Prng) -> OpenOptions {
        let may_be = self.plan.starts && options.degraded && !options.import;
        OpenOptions { unattended: may_be && prng.below(2) == 0, ..options }
    }

    /// As many drives as the redundancy bears, those among them, if they are no more.
    pub(super) fn some_drives(&self, among: &BTreeSet<usize>, prng: &mut Prng) -> BTreeSet<usize> {
        let mut some = among.clone();
        let bears = self.plan.shape.redundancy();
        while some.len() < bears {
            some.insert(usize64(prng.below(u64_of(self.drives.len()))));
        }
        some
    }

    /// Whether what is given bears being opened.
    fn must_open(&self, attempt: &Attempt, truth: &Truth) -> bool {
        let Attempt { hidden, old, log, blank, options } = attempt;
        let mut lacking = &truth.out | hidden;
        lacking.extend(old);
        lacking = &lacking - &truth.vacant;
        let is_complete = hidden.is_empty() && old.is_none() && truth.replaced.is_empty();
        let drives = is_complete || lacking.len() <= self.plan.shape.redundancy();
        let is_current = |n: &usize| truth.current.contains(n) && Some(*n) != *blank;
        let log = match self.plan.shape.log {
            LogShape::Drives => true,
            // Nothing is in the log of a pool that was closed in order, exported or not. An export may have failed.
            LogShape::Pmem(_) if self.closed.get() => !log.is_empty(),
            LogShape::Pmem(_) => log.iter().any(is_current),
        };
        let is_asked = !options.unattended || lacking.len() < self.needed() || is_complete;
        let is_allowed = is_asked && options.degraded && (options.import || !self.exported.get());
        drives && log && is_allowed
    }

    fn before(&self) -> Before {
        let drives = self.drives.iter().map(|drive| drive.contents()).collect();
        Before { drives, pmem: self.pmem.borrow().iter().map(|pmem| pmem.contents()).collect() }
    }

    /// What is not as it was.
    fn changed(&self, before: &Before) -> Option<String> {
        let drives = self.drives.iter().zip(&before.drives).enumerate();
        let mut drives = drives.filter_map(|(n, (drive, was))| Some((n, drive.difference(was)?)));
        if let Some((n, at)) = drives.next() {
            return Some(format!("drive {n} at {at:#x}"));
        }
        let pmem = self.pmem.borrow();
        let same = |(pmem, was): (&Arc<SimulatedPmem>, &Vec<u8>)| pmem.holds(was);
        let n = pmem.iter().zip(&before.pmem).position(|both| !same(both))?;
        Some(format!("device {n} of the log"))
    }

    /// Takes the drives that are to be given; what is in flight to others keeps those from being given that the pool
    /// bears to be without.
    async fn take_for(&self, attempt: &mut Attempt) {
        let given = (0..self.drives.len()).filter(|n| !attempt.hidden.contains(n)).collect();
        let busy = self.take_in_time(given).await;
        if busy.is_empty() {
            return;
        }
        let truth = self.truth.borrow().clone();
        let lacking = &(&(&truth.out | &attempt.hidden) | &busy) - &truth.vacant;
        // One at least that was never away.
        let is_told = (0..self.drives.len())
            .any(|n| !truth.out.contains(&n) && !attempt.hidden.contains(&n) && !busy.contains(&n));
        let is_sure = truth.rotten.is_empty() && attempt.old.is_none_or(|n| !busy.contains(&n));
        if is_told && is_sure && lacking.len() <= self.plan.shape.redundancy() {
            attempt.hidden.extend(busy);
        } else {
            // One that does not answer at all is as good as away.
            attempt.hidden.extend(self.take_all().await);
        }
    }

    async fn attempt(&self, attempt: &mut Attempt) -> Result<Option<Pool>, Refusal> {
        self.take_for(attempt).await;
        let attempt = &*attempt;
        self.note(&format!("an operator tries {attempt:?}"));
        self.cure_without_others(&attempt.with_contents());
        let was = self.truth.borrow().clone();
        let must_open = self.must_open(attempt, &was);
        self.swap_in(attempt);
        let before = self.before();
        // Cut short, it may have done any of it.
        let was_closed = self.closed.replace(false);
        self.believe_the_worst(attempt, was_closed);
        let drives = self.drives.iter().enumerate().filter(|(n, _)| !attempt.hidden.contains(n));
        // One that was put in a place and got no label is nobody's drive.
        let is_blank = |n: &usize| self.truth.borrow().fresh.contains(n);
        let drives = drives.filter(|(n, drive)| !is_blank(n) || newest_label(drive).is_some());
        let drives = drives.map(|(_, drive)| Arc::new(Drive::Simulated(Arc::clone(drive))));
        // One of no size is no drive to anybody.
        let is_there = |drive: &Arc<Drive>| drive.failure().is_none() && drive.capacity() > 0;
        let drives = drives.filter(is_there).collect();
        let on = self.on();
        let open = Pool::open(drives, self.log_given(attempt), attempt.options, &on);
        let Ok(opened) = timeout(OPENING, open).await else {
            return Err(Refusal::Other("an opening neither succeeds nor is refused".into()));
        };
        if !self.is_on() {
            std::future::pending::<()>().await;
        }
        let error = match opened {
            Ok(pool) => {
                self.note("it opens");
                self.node.opened(&pool);
                self.kept.take();
                // What was put in its place can be reached.
                if let Some(n) = attempt.blank.filter(|n| attempt.log.contains(n)) {
                    self.truth.borrow_mut().poisoned.remove(&n);
                }
                // Nobody needs to import it again.
                self.exported.set(false);
                self.learn(attempt, &pool).await?;
                return Ok(Some(pool));
            }
            Err(error) => error,
        };
        let said = format!("{:?}: {error}", error.kind);
        self.note(&format!("it is refused: {said}"));
        if let Some(what) = self.changed(&before) {
            return Err(Refusal::Other(format!("a refused opening changed {what}: {said}")));
        }
        if must_open {
            let text = format!("refused with enough to open it: {attempt:?}: {said}");
            return Err(Refusal::Other(text));
        }
        self.swap_back();
        *self.truth.borrow_mut() = was;
        self.closed.set(was_closed);
        Ok(None)
    }

    /// Puts the old copy of a drive, and a blank device of the log, where they are to be given.
    fn swap_in(&self, attempt: &Attempt) {
        let (truth, mut kept) = (self.truth.borrow(), self.kept.borrow_mut());
        if let Some(old) = truth.aside.as_ref().filter(|aside| Some(aside.drive) == attempt.old) {
            let drive = &self.drives[old.drive];
            kept.drive = Some((old.drive, drive.contents()));
            drive.restore(&old.contents);
        }
        if let Some(n) = attempt.blank.filter(|n| attempt.log.contains(n)) {
            let blank = memory(&self.plan, &self.power);
            let replaced = std::mem::replace(&mut self.pmem.borrow_mut()[n], blank);
            // One that is not needed any more goes for good: cut short, the opening may have made the blank one the log.
            kept.pmem = (!self.closed.get()).then_some((n, replaced));
        }
    }

    /// What was not taken, or cut short in the midst of that, makes room for what there was.
    pub(super) fn swap_back(&self) {
        let Kept { drive, pmem } = self.kept.take();
        if let Some((n, newest)) = drive {
            self.drives[n].restore(&newest);
            self.truth.borrow_mut().replaced.remove(&n);
        }
        if let Some((n, device)) = pmem {
            self.pmem.borrow_mut()[n] = device;
        }
    }

    fn believe_the_worst(&self, attempt: &Attempt, was_closed: bool) {
        let mut truth = self.truth.borrow_mut();
        truth.out.extend(&attempt.hidden);
        truth.out.extend(attempt.old);
        truth.replaced.extend(attempt.old);
        let with_it = attempt.with_contents();
        if was_closed {
            truth.current = &attempt.log - &truth.poisoned;
            truth.between_logs = true;
        } else if !truth.current.is_disjoint(&with_it) {
            let narrowed = &truth.current & &with_it;
            truth.unsure |= narrowed != truth.current;
            truth.current = narrowed;
        } else if truth.between_logs || truth.unsure {
            // It is on these, or on those.
            truth.current.clear();
        }
    }

    fn log_given(&self, attempt: &Attempt) -> LogSpec {
        if self.plan.shape.log == LogShape::Drives {
            return LogSpec::Drives;
        }
        let pmem = self.pmem.borrow();
        let given = attempt.log.iter().map(|n| Arc::new(Pmem::Simulated(Arc::clone(&pmem[*n]))));
        LogSpec::Pmem(given.collect())
    }

    /// The drives and the log that have everything.
    pub(super) fn sound_media(&self) -> (Vec<Arc<Drive>>, LogSpec) {
        self.swap_back();
        let truth = self.truth.borrow();
        // More than it bears were never left out: nobody knows which of them were.
        let is_sure = truth.lost().len() <= self.plan.shape.redundancy();
        let is_sound = |n: &usize| !is_sure || !truth.out.contains(n);
        let is_blank = |n: &usize, drive| truth.fresh.contains(n) && newest_label(drive).is_none();
        let drives = self.drives.iter().enumerate();
        let drives = drives.filter(|(n, drive)| is_sound(n) && !is_blank(n, drive));
        let drives = drives.map(|(n, _)| Arc::new(Drive::Simulated(self.at_rest(n))));
        if self.plan.shape.log == LogShape::Drives {
            return (drives.collect(), LogSpec::Drives);
        }
        let pmem = self.pmem.borrow();
        // Where nobody knows, the labels do.
        let is_given = |n: &usize| truth.current.is_empty() || truth.current.contains(n);
        let log = (0..pmem.len()).filter(is_given);
        let log = log.map(|n| Arc::new(Pmem::Simulated(Arc::clone(&pmem[n]))));
        (drives.collect(), LogSpec::Pmem(log.collect()))
    }

    /// What the pool says of its devices once it is open.
    async fn learn(&self, attempt: &Attempt, pool: &Pool) -> Result<(), Refusal> {
        let status = super::told(pool.status().await)?;
        let mut truth = self.truth.borrow_mut();
        let drive = |n: &usize| status.drives.get(*n);
        let is_out = |n: &usize| drive(n).is_none_or(|d| d.state != DriveState::Online);
        truth.out = (0..self.drives.len()).filter(is_out).collect();
        // One that was given, and that nobody took out, is taken back.
        let is_away = |n: &usize, is_retired: bool| is_retired || attempt.hidden.contains(n);
        let is_vacant = |n: &usize| {
            drive(n).is_none_or(|d| {
                d.vacant && d.state != DriveState::Rejoining && is_away(n, d.stays_out.is_some())
            })
        };
        truth.vacant = truth.out.iter().copied().filter(is_vacant).collect();
        // What is out is made whole before it is relied upon again.
        truth.rotten = &truth.rotten - &truth.out;
        truth.out = &(&truth.out | &truth.rotten) | &truth.mute;
        truth.replaced = &truth.replaced & &truth.out;
        truth.fresh = &truth.fresh & &truth.out;
        (truth.between_logs, truth.unsure) = (false, false);
        // A zone of the log may lie where a drive was sick, until another has taken its place.
        if status.log.failed_devices > 0 {
            let sick = truth.sick.clone();
            truth.out.extend(sick);
        }
        // One that was given beside those that have it is made a copy of them while the pool is open.
        let has_all = self.told_copies(&truth.out) >= attempt.log.len();
        // Without any that had all of it, what is there now was made of what was given.
        let is_new =
            !truth.current.is_empty() && truth.current.is_disjoint(&attempt.with_contents());
        if (status.log.failed_devices == 0 && has_all) || is_new {
            truth.current = &attempt.log - &truth.poisoned;
        }
        // By now, perhaps, or as long as nobody met what cannot be reached: who opens the pool with that alone has all
        // of it.
        truth.unsure |= !attempt.log.is_subset(&truth.current);
        Ok(())
    }

    /// Puts a copy of some drive aside, for an operator to find later.
    fn put_aside(&self, prng: &mut Prng) {
        let mut truth = self.truth.borrow_mut();
        let copies = self.plan.rough.is_some_and(|rough| rough.old_copies);
        if !copies || self.plan.shape.redundancy() == 0 {
            return;
        }
        if truth.aside.is_none() || prng.below(3) == 0 {
            let n = usize64(prng.below(u64_of(self.drives.len())));
            if newest_label(&self.drives[n]).is_none() {
                return;
            }
            let (contents, epoch) = (self.drives[n].contents(), self.newest_epoch());
            truth.aside = Some(Aside { drive: n, contents, epoch, is_former: false });
        }
    }

    /// Drives that a pool opens with, at least.
    fn needed(&self) -> usize {
        self.newest().map_or(0, |label| label.needed())
    }

    /// Of all labels there are.
    fn newest_epoch(&self) -> u64 {
        let labels = self.drives.iter().filter_map(|drive| newest_label(drive));
        labels.map(|label| label.epoch).max().unwrap_or(0)
    }

    /// Devices that have the log by the labels of every drive in use.
    fn told_copies(&self, out: &BTreeSet<usize>) -> usize {
        let used = self.drives.iter().enumerate().filter(|(n, _)| !out.contains(n));
        let told =
            used.map(|(_, drive)| newest_label(drive).map_or(0, |l| l.current_members().count()));
        told.min().unwrap_or(0)
    }

    /// All devices of the log have it.
    pub(super) fn log_was_made(&self) {
        self.truth.borrow_mut().current = (0..self.pmem.borrow().len()).collect();
    }
}

/// The newest label that a drive carries.
pub(super) fn newest_label(drive: &Simulated) -> Option<Label> {
    let slots = [area::LABEL, area::LABEL + u64_of(BLOCK)].into_iter();
    let labels = slots.filter_map(|at| {
        let mut block = [0; BLOCK];
        drive.peek(at, &mut block);
        Label::from_block(&block).ok()
    });
    labels.max_by_key(|label| label.epoch)
}
