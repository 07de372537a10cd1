//! One life of the array: opened, verified, worked on, and ended.

mod answer;
mod exam;
mod groups;
mod operations;
mod windows;

use crate::contents;
use crate::host;
use crate::model::{Model, Settling, Violation};
use crate::plan::{Ending, Plan};
use crate::store::{Refusal, Store};
use crate::trace::Trace;
use crate::windows::Windows;
use crate::world::World;
use answer::Answer;
use reactor::{Handle, Nanos, metrics, now, random, sleep, spawn, timeout};
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt::Arguments;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use stdx::num::u64_of;

/// An operation that takes longer is stuck. In virtual time, and no fault lasts as long.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Likewise, of all openings that an operator tries; each has a shorter time of its own.
const OPENINGS_PATIENCE: Duration = Duration::from_hours(2);

/// What hosts give a write: Linux gives a command 30 seconds. No drive that hangs, and no label that is to say so, may
/// take as long.
const COMMAND: Duration = Duration::from_secs(30);

/// The most blocks read at once when everything is verified.
const VERIFY_BLOCKS: u64 = 64;

/// Nanoseconds for which processes that had windows find no target, at most.
const ALONE: u64 = 1 << 18;

/// How often a life looks whether the power is still on, and in which part of its age if that is more: what goes on
/// without power is told to nobody.
const POWER_LOOK: Duration = Duration::from_micros(20);
const POWER_LOOK_PART: u32 = 256;

/// The longest that a life lasts, in virtual time: all that an operator tries, and then work that is not stuck.
const LONGEST: Duration = Duration::from_hours(12);

/// The most turns of the reactor in a life: whoever takes more goes round in circles. The longest takes a fifteenth.
const TURNS_MOST: u64 = 30_000_000;

/// How often that is looked at.
const TURNS_LOOK: Duration = Duration::from_millis(10);

/// What all lives of a run share.
pub struct Run {
    pub plan: Plan,
    pub world: World,
    pub model: RefCell<Model>,
    pub trace: RefCell<Trace>,
    /// When this life began, and when it ended.
    begun: Cell<Nanos>,
    ended: Cell<Nanos>,
    pub counts: RefCell<Counts>,
    /// Direct write windows that hosts have.
    pub windows: Windows,
    /// When a life that is to be cut short is, at the latest.
    strikes: Cell<Option<Nanos>>,
}

/// What was done in a run, over all lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub writes: u64,
    pub reads: u64,
    pub others: u64,
    pub copies: u64,
    pub crashes: u64,
    pub refused_full: u64,
    pub refused_quota: u64,
    /// Operations whose host went away, and those that failed because too many drives were away.
    pub given_up: u64,
    pub failed: u64,
    /// Reads that said that something of them is lost.
    pub lost: u64,
    /// Operations whose volume was changed beside them, and was not theirs any more.
    pub missed: u64,
    /// Times that drives went on elsewhere, and the others here.
    pub forks: u64,
    /// Operations that waited for another copy of the log.
    pub held: u64,
    /// Times that what had been answered was seen to have left the log.
    pub destaged: u64,
    /// Moves of the log.
    pub log_moves: u64,
    /// Times that copies of several volumes were looked at, and were of one instant.
    pub instants: u64,
    /// Direct write windows that were granted, and writes that were complete by them.
    pub windows: u64,
    pub direct: u64,
    /// Writes by them that found the window at its end, or without credit, and went as commands.
    pub direct_ends: u64,
    /// Writes that were complete while there was no target, or it was being opened.
    pub survived: u64,
    /// Writers that died in the midst, and those that did what none may.
    pub died: u64,
    pub strayed: u64,
}

impl Run {
    pub fn new(plan: Plan, world: World, echo: bool) -> Rc<Self> {
        let model = Model::new(!plan.shape.faults.log_losses.is_empty());
        Rc::new(Self {
            plan,
            world,
            model: RefCell::new(model),
            trace: RefCell::new(Trace::new(echo)),
            begun: Cell::new(0),
            ended: Cell::new(0),
            counts: RefCell::default(),
            windows: Windows::default(),
            strikes: Cell::new(None),
        })
    }

    /// A life begins.
    pub fn begin(&self) {
        self.begun.set(now());
    }

    /// A life ends: what its process has in flight is on its way.
    pub fn end(&self) {
        self.ended.set(now());
    }

    /// Its reactors are gone.
    pub fn end_process(&self, number: usize) {
        self.world.end_process(self.ended.get(), number);
    }

    /// A life that is to be cut short is so after this time at the latest.
    fn strike(&self, after: Duration) {
        let at = now() + u64::try_from(after.as_nanos()).unwrap_or(Nanos::MAX / 2);
        self.strikes.set(Some(self.strikes.get().map_or(at, |other| other.min(at))));
    }

    pub fn note(&self, what: Arguments<'_>) {
        let at = now().saturating_sub(self.begun.get());
        for what in self.world.said() {
            self.trace.borrow_mut().note(at, format_args!("{what}"));
        }
        self.trace.borrow_mut().note(at, what);
    }
}

/// What the tasks of one life share.
pub struct Life {
    pub run: Rc<Run>,
    pub store: Store,
    violation: RefCell<Option<Violation>>,
    /// What was answered by some moment, and the record after that of each log.
    watched: RefCell<Option<(Settling, Vec<u64>)>>,
    /// Operations each host may still begin.
    pub operations: u64,
    /// Nobody writes by windows any more.
    windows_over: Cell<bool>,
}

impl Life {
    /// The first violation ends the life.
    pub fn violate(&self, violation: Violation) {
        self.run.note(format_args!("VIOLATION: {violation}"));
        self.violation.borrow_mut().get_or_insert(violation);
    }

    pub fn is_over(&self) -> bool {
        self.violation.borrow().is_some()
    }

    pub fn note(&self, what: Arguments<'_>) {
        self.run.note(what);
    }

    pub fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.run.counts.borrow_mut());
    }

    /// Reads everything that was ever touched, and the ends of each volume.
    pub async fn verify(&self) {
        let present = self.run.model.borrow().present();
        for v in present {
            let mut ranges = self.run.model.borrow().touched(v.serial, v.size);
            ranges.extend([0..v.size.min(4), v.size.saturating_sub(4)..v.size]);
            for range in ranges {
                let mut first = range.start;
                while first < range.end && !self.is_over() {
                    let count = VERIFY_BLOCKS.min(range.end - first);
                    self.read(&v, first, count, None).await;
                    first += count;
                }
            }
        }
    }

    /// Has everything carried to the drives.
    pub async fn settle(&self) {
        self.note(format_args!("settle"));
        let settling = self.run.model.borrow_mut().begin_settle();
        let answer = self.settled("settle", self.store.settle()).await;
        if self.expect("settle", answer).is_some()
            && !self.run.world.is_broken()
            && !self.is_unreadable().await
        {
            self.note(format_args!("settled"));
            self.run.model.borrow_mut().end_settle(&settling);
        }
    }

    /// Has the log move from its devices to others.
    pub async fn move_log(&self) {
        self.note(format_args!("move the log"));
        let answer = self.settled("move the log", self.store.move_log()).await;
        if self.expect("move the log", answer).is_some() {
            self.note(format_args!("the log moved"));
            self.count(|c| c.log_moves += 1);
        }
    }

    /// Looks whether what was answered some time ago has left the log: then the drives have it, in stripes that no
    /// checkpoint knows of perhaps. Costs the pool nothing, and changes nothing of what it does.
    fn watch_log(&self) {
        if !self.run.plan.watches_log() {
            return;
        }
        let Some(undestaged) = self.store.undestaged() else { return };
        let mut watched = self.watched.borrow_mut();
        let is_destaged = |(_, heads): &mut (Settling, Vec<u64>)| {
            undestaged.iter().zip(heads).all(|(records, head)| records.start >= *head)
        };
        if let Some((settling, _)) = watched.take_if(is_destaged) {
            self.run.model.borrow_mut().end_settle(&settling);
            self.count(|c| c.destaged += 1);
        }
        watched.get_or_insert_with(|| {
            let heads = undestaged.iter().map(|records| records.end).collect();
            (self.run.model.borrow_mut().begin_settle(), heads)
        });
    }

    /// Whether the pool wins no space back because it cannot read what has it: nothing leaves its log then.
    async fn is_unreadable(&self) -> bool {
        let is_unreadable = self.store.is_unreadable().await;
        if is_unreadable && !self.run.model.borrow().has_rotted() && !self.run.world.is_broken() {
            self.violate(Violation("what can be read is called unreadable".into()));
        }
        is_unreadable
    }

    /// The space adds up, as far as the volumes say. What is in the log for want of space is not counted: the next
    /// life looks.
    async fn audit(&self) {
        if self.is_over() || self.run.world.is_broken() || self.run.world.is_scarce() {
            return;
        }
        let bounds = self.run.model.borrow().population();
        let settling = self.run.model.borrow_mut().begin_settle();
        let audit = async { Ok(self.store.audit(bounds).await) };
        let Answer::Done(wrong) = self.settled("audit", audit).await else { return };
        // Too many drives may have gone meanwhile.
        if self.run.world.is_broken() || self.is_unreadable().await {
            return;
        }
        // Space is counted once everything is on the drives.
        self.run.model.borrow_mut().end_settle(&settling);
        if let Some(what) = wrong {
            self.violate(Violation(format!("the space does not add up: {what}")));
        }
    }

    /// Volumes use what the model says that they hold. Counting is a leisurely business: this is for a life's end.
    async fn check_used(&self) {
        if self.is_over() || self.run.world.is_broken() {
            return;
        }
        let volumes = self.run.model.borrow().used();
        let at_once = u64::from(self.run.plan.hosts) * self.run.plan.longest;
        let held = self.run.model.borrow().held();
        let check = async { Ok(self.store.check_used(&volumes, &held, at_once).await) };
        let patience = Some(Duration::from_hours(1));
        let answer = self.settled_within("count what is used", check, patience).await;
        if let Answer::Done(Some(what)) = answer
            && !self.run.world.is_broken()
        {
            self.violate(Violation(what));
        }
    }

    /// Gives everything back, and fills half of the pool again.
    async fn empty_and_fill(&self) {
        let present = self.run.model.borrow().present();
        let (snapshots, present): (Vec<_>, Vec<_>) =
            present.into_iter().partition(|v| v.parent.is_some());
        for v in &snapshots {
            self.delete(v).await;
        }
        // What they began with is kept for them, also where they gave it back.
        let (clones, present): (Vec<_>, Vec<_>) = present.into_iter().partition(|v| v.inherits);
        for v in &clones {
            self.delete(v).await;
        }
        for v in &present {
            self.zero(v, 0..v.size, true, None).await;
        }
        let mut written = 0;
        for v in &present {
            let ratio = u64_of(contents::BLOCK / v.unit);
            let mut first = 0;
            while self.has_half_for(written + 64).await && first + 64 * ratio <= v.size {
                let Counts { refused_full: full, refused_quota, .. } = *self.run.counts.borrow();
                let held = self.run.model.borrow().held();
                let others = u64::from(self.run.plan.hosts) * self.run.plan.longest;
                let has_quota = self.store.has_quota_for(&v.name, &held, 64 + others);
                self.write(v, first, 64 * ratio, None).await;
                let is_full = self.run.counts.borrow().refused_full > full;
                if self.run.counts.borrow().refused_quota > refused_quota {
                    if has_quota {
                        let held = held.iter().find(|(name, ..)| *name == v.name);
                        let text = format!("refused for a quota that has room: {held:?}");
                        self.violate(Violation(text));
                    }
                    break;
                }
                // What could free it waits in the log.
                if is_full && self.is_unreadable().await {
                    return;
                }
                // A drive may have failed, and taken room along.
                if is_full && self.has_half_for(written + 64).await {
                    self.note(format_args!("{}", self.store.describe().await));
                    let text = format!("an empty pool is full with {written} blocks");
                    return self.violate(Violation(text));
                }
                (written, first) = (written + 64, first + 64 * ratio);
            }
        }
    }

    /// Whether so many blocks are no more than half of what the pool holds.
    async fn has_half_for(&self, blocks: u64) -> bool {
        let free = self.store.capacity().await.saturating_sub(self.store.kept().await);
        !self.is_over() && blocks <= free / 2
    }

    /// What passes is no reason to go without a drive.
    async fn look_at_drives(&self) {
        let condemned = self.store.condemned().await;
        if !condemned.is_empty() && !self.run.world.is_broken() && self.run.plan.rough.is_some() {
            let text =
                format!("drives {condemned:?} are out of use, and nothing was wrong with them");
            self.violate(Violation(text));
        }
    }

    async fn close(&self, export: bool) {
        let what = if export { "export" } else { "close" };
        if !self.run.world.is_broken() {
            let patience = Some(Duration::from_hours(1));
            let whole = self.store.make_whole();
            let whole = self.settled_within("make whole", whole, patience).await;
            self.expect("make whole", whole);
        }
        self.examine().await;
        if self.is_over() {
            return;
        }
        self.note(format_args!("{what}"));
        let begun = now();
        let is_unreadable = self.is_unreadable().await;
        let answer = self.settled(what, self.store.close(export)).await;
        // What is not written anywhere else stays in the log where there is no space behind a drive while it is to be
        // carried off: only then may it be full.
        let is_full = match is_unreadable {
            true => matches!(answer, Answer::Refused(Refusal::Full)),
            false => self.lacks_space(&answer) && self.run.world.has_lacked_space(begun),
        };
        let closed = !is_full && self.expect(what, answer).is_some();
        // What was given up has a fate now.
        let mut model = self.run.model.borrow_mut();
        model.crash();
        if closed {
            let settling = model.begin_settle();
            model.end_settle(&settling);
        }
    }

    fn settle_volumes(&self) {
        let listed = self.store.volumes();
        if let Err(violation) = self.run.model.borrow_mut().settle_volumes(&listed) {
            self.violate(violation);
        }
    }
}

/// Lives once, on a reactor of its own; whether the life ended with a [`crash`], which is for when that reactor has
/// gone: its tasks may run on until then, and must not meet media that have power again.
pub async fn live(
    run: Rc<Run>,
    reactors: Vec<Handle>,
    number: usize,
    ending: Ending,
) -> Result<bool, Violation> {
    let ended = live_on(Rc::clone(&run), reactors, number, ending).await;
    run.world.look_last();
    run.end();
    ended
}

async fn live_on(
    run: Rc<Run>,
    reactors: Vec<Handle>,
    number: usize,
    ending: Ending,
) -> Result<bool, Violation> {
    run.begun.set(now());
    run.strikes.set(None);
    run.world.move_to(reactors).await;
    run.note(format_args!("life {number}, to be ended by {ending:?}"));
    if let Some(loss) = run.plan.shape.faults.log_loss(number) {
        run.note(format_args!("{loss:?}"));
    }
    let body = bounded(spawn(body(Rc::clone(&run), number, ending)), TURNS_MOST);
    let span = match ending {
        Ending::Closed | Ending::Exported => {
            return body.await?.unwrap_or(Ok(())).map(|()| false);
        }
        Ending::Killed(span) | Ending::PowerCut(span) => span,
        Ending::PowerCutInStore(lines, span) => {
            run.world.cut_after(lines);
            span
        }
        Ending::PowerCutAtFence(fence, span) => {
            run.world.cut_at_fence(fence);
            span
        }
    };
    let powerless = async {
        while run.world.is_on() && run.strikes.get().is_none_or(|at| now() < at) {
            let age = Duration::from_nanos(now() - run.begun.get());
            sleep(POWER_LOOK.max(age / POWER_LOOK_PART)).await;
        }
    };
    let ended = either(body, timeout(span, powerless)).await;
    // Of itself only where the pool could not be opened: what was to end it is called off.
    ended.transpose()?.flatten().unwrap_or(Ok(()))?;
    run.note(format_args!("{ending:?}"));
    Ok(true)
}

/// What `life` gives, which ends at some time, and is not forever at it.
async fn bounded<T>(life: impl Future<Output = T>, turns: u64) -> Result<T, Violation> {
    let begun = now();
    let endless = async {
        while now() - begun < u64::try_from(LONGEST.as_nanos()).unwrap_or(Nanos::MAX)
            && metrics::here().turns < turns
        {
            sleep(TURNS_LOOK).await;
        }
    };
    either(life, endless).await.ok_or_else(|| {
        let (turns, seconds) = (metrics::here().turns, (now() - begun) / 1_000_000_000);
        Violation(format!("the life does not end: {turns} turns in {seconds} s"))
    })
}

/// What `a` gives, or `None` when `b` ends first.
async fn either<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> Option<A> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(|cx| match a.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => b.as_mut().poll(cx).map(|_| None),
    })
    .await
}

/// What happens to the log before a life begins.
pub fn lose_log(run: &Run, number: usize) {
    if let Some(loss) = run.plan.shape.faults.log_loss(number)
        && run.world.lose_log(loss)
    {
        run.model.borrow_mut().lose_log();
    }
}

/// What the end of a life does to the model and the media.
pub fn crash(run: &Run, number: usize, ending: Ending) {
    run.model.borrow_mut().crash();
    run.counts.borrow_mut().crashes += 1;
    let seed = run.plan.seed.wrapping_add(u64_of(number) << 32);
    let mut prng = stdx::Prng::new(seed);
    if matches!(ending, Ending::Killed(_)) {
        run.outlives(&mut prng);
    } else {
        run.end_hosts();
        run.world.power_cut(&mut prng);
    }
    run.world.bury(seed);
}

async fn body(run: Rc<Run>, number: usize, ending: Ending) -> Result<(), Violation> {
    let tries = run.plan.rough.is_some() || run.plan.remote.is_some();
    let patience = if tries { OPENINGS_PATIENCE } else { PATIENCE };
    let opened = Rc::<OnceCell<Rc<Life>>>::default();
    let survivors = run.outlive(&opened);
    if !survivors.is_empty() {
        // They go on while there is no target.
        sleep(Duration::from_nanos(random() % ALONE)).await;
    }
    let store = match timeout(patience, run.world.open(number)).await {
        Ok(Ok(store)) => store,
        // Whatever it says, nobody heard it.
        Ok(Err(_)) if !run.world.is_on() => std::future::pending().await,
        Ok(Err(refusal)) if run.world.is_broken() => {
            run.note(format_args!("opening failed: {refusal:?}"));
            return Ok(());
        }
        Ok(Err(refusal)) => return Err(Violation(format!("opening failed: {refusal:?}"))),
        Err(_) => return Err(Violation("opening is stuck".into())),
    };
    run.note(format_args!("open"));
    let closes = matches!(ending, Ending::Closed | Ending::Exported);
    let operations = if closes { u64::from(run.plan.operations) } else { u64::MAX };
    let (violation, watched) = (RefCell::default(), RefCell::default());
    let windows_over = Cell::new(false);
    let life = Life { run, store, violation, watched, operations, windows_over };
    let life = Rc::new(life);
    drop(opened.set(Rc::clone(&life)));
    if let Some(rot) = life.run.plan.shape.faults.rot.filter(|rot| rot.life == number) {
        let run = Rc::clone(&life.run);
        drop(spawn(async move {
            sleep(rot.after).await;
            if run.world.is_on() {
                run.note(format_args!("contents rot"));
                run.world.rot(rot);
                run.model.borrow_mut().rot();
            }
        }));
    }
    life.settle_volumes();
    for survivor in survivors {
        survivor.await;
    }
    life.check_window_ends();
    life.look_after_windows();
    life.verify().await;
    life.check_instants().await;
    life.audit().await;
    if !life.is_over() {
        host::work(&life).await;
    }
    if !life.is_over() {
        life.verify().await;
    }
    // Before everything is carried to the drives.
    life.check_used().await;
    life.audit().await;
    if !life.is_over() {
        life.look_at_drives().await;
    }
    let has_space = !life.run.world.is_scarce();
    if !life.is_over() && closes {
        life.end_windows().await;
    }
    if !life.is_over() && closes && life.run.plan.tiny && has_space {
        life.empty_and_fill().await;
    }
    if !life.is_over() && closes {
        life.close(ending == Ending::Exported).await;
    }
    life.violation.take().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A life that went round in circles ended with the patience of whoever had begun it, and with no word of its seed.
    #[test]
    fn a_life_that_does_not_end_fails() {
        let circles = |pause| async move {
            loop {
                sleep(pause).await;
            }
        };
        for pause in [Duration::from_micros(1), Duration::from_hours(1)] {
            let ended =
                reactor::simulate(1, async move { bounded::<()>(circles(pause), 100_000).await });
            let why = ended.expect_err("nothing ended it").0;
            assert!(why.contains("does not end"), "{why}");
        }
        assert_eq!(reactor::simulate(1, bounded(async { 7 }, 100_000)), Ok(7));
    }
}
