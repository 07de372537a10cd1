//! One life of the array: opened, verified, worked on, and ended.

use crate::contents::{self, Found, Stamp, recognize_all};
use crate::host;
use crate::model::{Begun, Model, Target, Violation};
use crate::plan::{Ending, Plan};
use crate::store::{Refusal, Store};
use crate::trace::Trace;
use crate::world::World;
use reactor::{Nanos, now, sleep, spawn, timeout};
use std::cell::{Cell, RefCell};
use std::fmt::Arguments;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use stdx::num::{u64_of, usize64};

/// An operation that takes longer is stuck. In virtual time, and no fault lasts as long.
const PATIENCE: Duration = Duration::from_secs(120);

/// The most blocks read at once when everything is verified.
const VERIFY_BLOCKS: u64 = 64;

/// How often a life looks whether the power is still on.
const POWER_LOOK: Duration = Duration::from_micros(20);

/// What all lives of a run share.
pub struct Run {
    pub plan: Plan,
    pub world: World,
    pub model: RefCell<Model>,
    pub trace: RefCell<Trace>,
    /// When this life began.
    begun: Cell<Nanos>,
    pub counts: RefCell<Counts>,
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
    /// Operations whose host went away, and those that failed because too many drives were away.
    pub given_up: u64,
    pub failed: u64,
    /// Reads that said that something of them is lost.
    pub lost: u64,
}

impl Run {
    pub fn new(plan: Plan, world: World, echo: bool) -> Rc<Self> {
        Rc::new(Self {
            plan,
            world,
            model: RefCell::default(),
            trace: RefCell::new(Trace::new(echo)),
            begun: Cell::new(0),
            counts: RefCell::default(),
        })
    }

    pub fn note(&self, what: Arguments<'_>) {
        let at = now().saturating_sub(self.begun.get());
        self.trace.borrow_mut().note(at, what);
    }
}

/// What the tasks of one life share.
pub struct Life {
    pub run: Rc<Run>,
    pub store: Store,
    violation: RefCell<Option<Violation>>,
    /// Operations each host may still begin.
    pub operations: u64,
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

    /// Waits for an operation that is not stuck, and sorts what a pool may refuse from what it may
    /// not.
    async fn settled<T>(
        &self,
        what: &str,
        operation: impl Future<Output = Result<T, Refusal>>,
    ) -> Answer<T> {
        self.settled_within(what, operation, None).await
    }

    /// As [`settled`](Self::settled), given up after so long.
    async fn settled_within<T>(
        &self,
        what: &str,
        operation: impl Future<Output = Result<T, Refusal>>,
        patience: Option<Duration>,
    ) -> Answer<T> {
        let answer = timeout(patience.unwrap_or(PATIENCE), operation).await;
        if !self.run.world.is_on() {
            // Whatever it says, nobody heard it.
            std::future::pending::<()>().await;
        }
        match answer {
            Ok(Ok(value)) => Answer::Done(value),
            Ok(Err(Refusal::Full)) => {
                self.note(format_args!("{what}: full"));
                self.count(|c| c.refused_full += 1);
                Answer::Refused(Refusal::Full)
            }
            Ok(Err(Refusal::Lost(why))) if self.run.model.borrow().has_rotted() => {
                self.note(format_args!("{what}: {why}"));
                Answer::Refused(Refusal::Lost(why))
            }
            Ok(Err(Refusal::Failed(why) | Refusal::Lost(why))) if self.run.world.is_broken() => {
                self.note(format_args!("{what}: {why}"));
                self.count(|c| c.failed += 1);
                Answer::Lost
            }
            Ok(Err(refusal @ (Refusal::OutOfRange | Refusal::NotFound))) => {
                Answer::Refused(refusal)
            }
            Ok(Err(Refusal::Other(why) | Refusal::Failed(why) | Refusal::Lost(why))) => {
                self.violate(Violation(format!("{what} failed: {why}")));
                Answer::Lost
            }
            Err(_) if patience.is_some() => {
                self.note(format_args!("{what}: given up"));
                self.count(|c| c.given_up += 1);
                Answer::GivenUp
            }
            Err(_) => {
                let how = self.store.describe().await;
                self.note(format_args!("{how}"));
                self.violate(Violation(format!("{what} is stuck")));
                Answer::Lost
            }
        }
    }

    /// Whether it was done; refusals are violations.
    fn expect<T>(&self, what: &str, answer: Answer<T>) -> Option<T> {
        match answer {
            Answer::Done(value) => return Some(value),
            Answer::Refused(refusal) => {
                self.violate(Violation(format!("{what} failed: {refusal:?}")));
            }
            Answer::GivenUp | Answer::Lost => {}
        }
        None
    }

    /// Refuses what is not about space.
    fn only_full(&self, what: &str, refusal: &Refusal) {
        if *refusal != Refusal::Full {
            self.violate(Violation(format!("{what} failed: {refusal:?}")));
        }
    }

    pub async fn write(&self, v: &Target, first: u64, count: u64, patience: Option<Duration>) {
        let stamp = self.run.model.borrow_mut().stamp();
        let mut data = vec![0; usize64(count) * v.unit];
        for (block, out) in (first..).zip(data.chunks_exact_mut(v.unit)) {
            contents::fill(out, stamp, v.serial, block);
        }
        let begun = self.begin_write(v, first, count, stamp);
        let what = format!("{stamp}: {count} at {first} of {}", v.name);
        self.note(format_args!("{what}"));
        let write = self.store.write(&v.name, first, data);
        let answer = self.settled_within(&what, write, patience).await;
        if matches!(answer, Answer::Refused(Refusal::Full)) {
            self.check_full(&what, count).await;
        }
        self.end_write(&what, &begun, answer);
        self.count(|c| c.writes += 1);
    }

    /// A pool that says it is full must not be far from it.
    async fn check_full(&self, what: &str, count: u64) {
        // Counting takes a while, and pools that are full say so often.
        let refused = self.run.counts.borrow().refused_full;
        if !refused.is_power_of_two() {
            return;
        }
        let (_, most) = self.run.model.borrow().population();
        let others = u64::from(self.run.plan.hosts) * self.run.plan.longest;
        let capacity = self.store.capacity().await;
        if most + count + others < capacity / 10 * 9 {
            let text = format!("{what}: full, with {most} blocks of {capacity} at most");
            self.violate(Violation(text));
        }
    }

    fn begin_write(&self, v: &Target, first: u64, count: u64, stamp: Stamp) -> Begun {
        self.run.model.borrow_mut().begin_write(v.serial, first, count, stamp)
    }

    pub async fn zero(
        &self,
        v: &Target,
        range: Range<u64>,
        deallocate: bool,
        patience: Option<Duration>,
    ) {
        let (first, count) = (range.start, range.end - range.start);
        let verb = if deallocate { "deallocate" } else { "zero" };
        let what = format!("{verb} {count} at {first} of {}", v.name);
        self.note(format_args!("{what}"));
        // Parts of blocks stay what they are when they are deallocated.
        let ratio = if deallocate { u64_of(contents::BLOCK / v.unit) } else { 1 };
        let (from, to) = (range.start.next_multiple_of(ratio), range.end / ratio * ratio);
        let begun = self.begin_write(v, from, to.saturating_sub(from), Stamp::ZERO);
        let zero = self.store.zero(&v.name, first, count, deallocate);
        let answer = self.settled_within(&what, zero, patience).await;
        self.end_write(&what, &begun, answer);
        self.count(|c| c.others += 1);
    }

    /// Copies `count` blocks from `from` of one volume to `to` of another, or of the same.
    pub async fn copy(
        &self,
        (source, from): (&Target, u64),
        (target, to): (&Target, u64),
        count: u64,
        patience: Option<Duration>,
    ) {
        let what = format!("copy {count} at {from} of {} to {to} of {}", source.name, target.name);
        self.note(format_args!("{what}"));
        let begun = {
            let mut model = self.run.model.borrow_mut();
            model.begin_copy((source.serial, from), (target.serial, to), count)
        };
        let copy = self.store.copy((&source.name, from), (&target.name, to), count);
        let answer = self.settled_within(&what, copy, patience).await;
        self.end_write(&what, &begun, answer);
        self.count(|c| c.copies += 1);
    }

    fn end_write(&self, what: &str, begun: &Begun, answer: Answer<()>) {
        let mut model = self.run.model.borrow_mut();
        match answer {
            Answer::Done(()) => {
                self.note(format_args!("{what}: done"));
                model.end_write(begun, true);
            }
            Answer::Refused(refusal) => {
                // What is copied by its contents must be there.
                if !matches!(refusal, Refusal::Lost(_)) {
                    self.only_full(what, &refusal);
                }
                model.end_write(begun, false);
            }
            Answer::GivenUp | Answer::Lost => model.give_up_write(begun),
        }
    }

    pub async fn read(&self, v: &Target, first: u64, count: u64, patience: Option<Duration>) {
        let begun = self.run.model.borrow_mut().begin_read(v.serial, first, count);
        let what = format!("read {count} at {first} of {}", v.name);
        let read = self.store.read(&v.name, first, count);
        let answer = self.settled_within(&what, read, patience).await;
        self.count(|c| c.reads += 1);
        if let Answer::Refused(Refusal::Lost(_)) = answer {
            return self.lost(v, &begun, &what, patience).await;
        }
        let Some(bytes) = self.expect(&what, answer) else {
            return self.run.model.borrow_mut().fail_read(&begun);
        };
        let found = recognize_all(&bytes, v.unit, v.serial, first);
        self.note(format_args!("{what}: {}", Summary(&found)));
        let seen = self.run.model.borrow_mut().end_read(&begun, &found);
        if let Err(violation) = seen {
            self.violate(Violation(format!("{what}: {violation}")));
        }
    }

    /// A read said that something of it is lost: then each of its blocks is there, or lost.
    async fn lost(&self, v: &Target, read: &Begun, what: &str, patience: Option<Duration>) {
        self.count(|c| c.lost += 1);
        let blocks = read.blocks();
        if blocks.end - blocks.start == 1 {
            let seen = self.run.model.borrow_mut().end_read(read, &[Found::Lost]);
            return seen.unwrap_or_else(|why| self.violate(Violation(format!("{what}: {why}"))));
        }
        let may_be = {
            let mut model = self.run.model.borrow_mut();
            model.fail_read(read);
            model.may_be_lost(read)
        };
        if !may_be {
            self.violate(Violation(format!("{what}: said to be lost, and nothing of it can be")));
        }
        for block in blocks {
            Box::pin(self.read(v, block, 1, patience)).await;
        }
    }

    pub async fn flush(&self, v: &Target) {
        let what = format!("flush {}", v.name);
        let flush = async { self.store.flush(&v.name) };
        let answer = self.settled(&what, flush).await;
        self.expect(&what, answer);
        self.count(|c| c.others += 1);
    }

    /// Makes a volume of `size` blocks of `unit` bytes.
    pub async fn create(&self, name: &str, size: u64, unit: usize) {
        let what = format!("create {name} of {size}");
        self.note(format_args!("{what}"));
        let serial = self.run.model.borrow_mut().begin_create(name, size, unit);
        let create = self.store.create(name, size, unit);
        match self.settled(&what, create).await {
            Answer::Done(()) => self.run.model.borrow_mut().end_create(serial),
            Answer::Refused(refusal) => {
                self.only_full(&what, &refusal);
                self.run.model.borrow_mut().end_delete(serial);
            }
            Answer::GivenUp | Answer::Lost => {}
        }
    }

    pub async fn delete(&self, v: &Target) {
        let what = format!("delete {}", v.name);
        self.note(format_args!("{what}"));
        self.run.model.borrow_mut().begin_delete(v.serial);
        let answer = self.settled(&what, self.store.delete(&v.name)).await;
        if self.expect(&what, answer).is_some() {
            self.run.model.borrow_mut().end_delete(v.serial);
        }
    }

    /// Tells whether it was done.
    pub async fn resize(&self, v: &Target, size: u64) -> bool {
        let what = format!("resize {} to {size}", v.name);
        self.note(format_args!("{what}"));
        let begun = self.run.model.borrow_mut().begin_resize(v.serial, size);
        let answer = self.settled(&what, self.store.resize(&v.name, size)).await;
        let done = self.expect(&what, answer).is_some();
        if done {
            self.run.model.borrow_mut().end_resize(&begun);
        }
        done
    }

    /// Tells whether it was done.
    pub async fn rename(&self, v: &Target, to: &str) -> bool {
        let what = format!("rename {} to {to}", v.name);
        self.note(format_args!("{what}"));
        self.run.model.borrow_mut().begin_rename(v.serial, to);
        let answer = self.settled(&what, self.store.rename(&v.name, to)).await;
        let done = self.expect(&what, answer).is_some();
        if done {
            self.run.model.borrow_mut().end_rename(v.serial);
        }
        done
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

    /// The space adds up, as far as the volumes say.
    async fn audit(&self) {
        if self.is_over() || self.run.world.is_broken() {
            return;
        }
        let bounds = self.run.model.borrow().population();
        let audit = async { Ok(self.store.audit(bounds).await) };
        let Answer::Done(Some(what)) = self.settled("audit", audit).await else { return };
        // Too many drives may have gone meanwhile.
        if !self.run.world.is_broken() {
            self.violate(Violation(format!("the space does not add up: {what}")));
        }
    }

    /// Gives everything back, and fills half of the pool again.
    async fn empty_and_fill(&self) {
        let present = self.run.model.borrow().present();
        for v in &present {
            self.zero(v, 0..v.size, true, None).await;
        }
        let mut left = self.store.capacity().await / 2;
        for v in &present {
            let ratio = u64_of(contents::BLOCK / v.unit);
            let mut first = 0;
            while left >= 64 && first + 64 * ratio <= v.size && !self.is_over() {
                let full = self.run.counts.borrow().refused_full;
                self.write(v, first, 64 * ratio, None).await;
                if self.run.counts.borrow().refused_full > full {
                    self.note(format_args!("{}", self.store.describe().await));
                    let text = format!("an empty pool is full with {left} blocks to go");
                    return self.violate(Violation(text));
                }
                (left, first) = (left - 64, first + 64 * ratio);
            }
        }
    }

    async fn close(&self, export: bool) {
        let what = if export { "export" } else { "close" };
        self.note(format_args!("{what}"));
        let answer = self.settled(what, self.store.close(export)).await;
        self.expect(what, answer);
        // What was given up has a fate now.
        self.run.model.borrow_mut().crash();
    }

    fn settle_volumes(&self) {
        let listed = self.store.volumes();
        if let Err(violation) = self.run.model.borrow_mut().settle_volumes(&listed) {
            self.violate(violation);
        }
    }
}

/// What became of an operation.
enum Answer<T> {
    Done(T),
    /// For want of space, or because what was asked makes no sense.
    Refused(Refusal),
    /// Its host did not wait.
    GivenUp,
    /// Nothing is known of it.
    Lost,
}

/// What was found, in few words.
struct Summary<'a>(&'a [Found]);

impl std::fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut rest = self.0;
        while let Some(first) = rest.first() {
            let same = rest.iter().take_while(|found| *found == first).count();
            write!(f, "{same} x {first}; ")?;
            rest = &rest[same..];
        }
        Ok(())
    }
}

/// Lives once, on a reactor of its own; whether the life ended with a [`crash`], which is for when that reactor has
/// gone: its tasks may run on until then, and must not meet media that have power again.
pub async fn live(run: Rc<Run>, number: usize, ending: Ending) -> Result<bool, Violation> {
    run.begun.set(now());
    run.note(format_args!("life {number}, to be ended by {ending:?}"));
    let body = spawn(body(Rc::clone(&run), number, ending));
    let span = match ending {
        Ending::Closed | Ending::Exported => {
            return body.await.unwrap_or(Ok(())).map(|()| false);
        }
        Ending::Killed(span) | Ending::PowerCut(span) => span,
        Ending::PowerCutInStore(lines, span) => {
            run.world.cut_after(lines);
            span
        }
    };
    let powerless = async {
        while run.world.is_on() {
            sleep(POWER_LOOK).await;
        }
    };
    let ended = either(body, timeout(span, powerless)).await;
    // Of itself only where the pool could not be opened: what was to end it is called off.
    ended.flatten().unwrap_or(Ok(()))?;
    run.note(format_args!("{ending:?}"));
    Ok(true)
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

/// What the end of a life does to the model and the media.
pub fn crash(run: &Run, number: usize, ending: Ending) {
    run.model.borrow_mut().crash();
    run.counts.borrow_mut().crashes += 1;
    if !matches!(ending, Ending::Killed(_)) {
        let seed = run.plan.seed.wrapping_add(u64_of(number) << 32);
        run.world.power_cut(&mut stdx::Prng::new(seed));
    }
}

async fn body(run: Rc<Run>, number: usize, ending: Ending) -> Result<(), Violation> {
    let store = match timeout(PATIENCE, run.world.open(number)).await {
        Ok(Ok(store)) => store,
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
    let life = Life { run, store, violation: RefCell::default(), operations };
    let life = Rc::new(life);
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
    life.verify().await;
    life.audit().await;
    if !life.is_over() {
        host::work(&life).await;
    }
    if !life.is_over() {
        life.verify().await;
    }
    life.audit().await;
    if !life.is_over() && closes && life.run.plan.tiny {
        life.empty_and_fill().await;
    }
    if !life.is_over() && closes {
        life.close(ending == Ending::Exported).await;
    }
    life.violation.take().map_or(Ok(()), Err)
}
