//! One life of the array: opened, verified, worked on, and ended.

use crate::contents::{self, Found, Stamp, bytes_of, recognize_all};
use crate::host;
use crate::model::{Begun, Model, Serial, Violation};
use crate::plan::{Ending, Plan};
use crate::store::{Refusal, Store};
use crate::trace::Trace;
use crate::world::World;
use reactor::{Nanos, now, sleep, spawn, timeout};
use std::cell::{Cell, RefCell};
use std::fmt::Arguments;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use stdx::num::u64_of;

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
    pub crashes: u64,
    pub refused_full: u64,
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
    store: Store,
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
    /// not. `None` when the life is over for it.
    async fn settled<T>(
        &self,
        what: &str,
        operation: impl Future<Output = Result<T, Refusal>>,
    ) -> Option<Result<T, Refusal>> {
        let answer = timeout(PATIENCE, operation).await;
        if !self.run.world.is_on() {
            // Whatever it says, nobody heard it.
            std::future::pending::<()>().await;
        }
        match answer {
            Ok(Err(Refusal::Other(why))) => {
                self.violate(Violation(format!("{what} failed: {why}")));
                None
            }
            Ok(Err(Refusal::Full)) => {
                self.note(format_args!("{what}: full"));
                self.count(|c| c.refused_full += 1);
                Some(Err(Refusal::Full))
            }
            Ok(answer) => Some(answer),
            Err(_) => {
                let how = self.store.describe().await;
                self.note(format_args!("{how}"));
                self.violate(Violation(format!("{what} is stuck")));
                None
            }
        }
    }

    /// Refuses what is not about space.
    fn only_full(&self, what: &str, refusal: &Refusal) {
        if *refusal != Refusal::Full {
            self.violate(Violation(format!("{what} failed: {refusal:?}")));
        }
    }

    pub async fn write(&self, v: &Target, first: u64, count: u64) {
        let stamp = self.run.model.borrow_mut().stamp();
        let mut data = vec![0; bytes_of(count)];
        for (block, out) in (first..).zip(data.chunks_exact_mut(contents::BLOCK)) {
            contents::fill(out, stamp, v.serial, block);
        }
        let begun = self.begin_write(v, first, count, stamp);
        let what = format!("{stamp}: {count} at {first} of {}", v.name);
        self.note(format_args!("{what}"));
        let write = self.store.write(&v.name, first, data);
        let answer = self.settled(&what, write).await;
        self.end_write(&what, &begun, answer);
        self.count(|c| c.writes += 1);
    }

    fn begin_write(&self, v: &Target, first: u64, count: u64, stamp: Stamp) -> Begun {
        self.run.model.borrow_mut().begin_write(v.serial, first, count, stamp)
    }

    pub async fn zero(&self, v: &Target, first: u64, count: u64, deallocate: bool) {
        let verb = if deallocate { "deallocate" } else { "zero" };
        let what = format!("{verb} {count} at {first} of {}", v.name);
        self.note(format_args!("{what}"));
        let begun = self.begin_write(v, first, count, Stamp::ZERO);
        let zero = self.store.zero(&v.name, first, count, deallocate);
        let answer = self.settled(&what, zero).await;
        self.end_write(&what, &begun, answer);
        self.count(|c| c.others += 1);
    }

    fn end_write(&self, what: &str, begun: &Begun, answer: Option<Result<(), Refusal>>) {
        if let Some(Err(refusal)) = &answer {
            self.only_full(what, refusal);
        }
        let done = matches!(answer, Some(Ok(())));
        if done {
            self.note(format_args!("{what}: done"));
        }
        self.run.model.borrow_mut().end_write(begun, done);
    }

    pub async fn read(&self, v: &Target, first: u64, count: u64) {
        let begun = self.run.model.borrow_mut().begin_read(v.serial, first, count);
        let what = format!("read {count} at {first} of {}", v.name);
        let read = self.store.read(&v.name, first, count);
        let answer = self.settled(&what, read).await;
        self.count(|c| c.reads += 1);
        match answer {
            Some(Ok(bytes)) => {
                let found = recognize_all(&bytes, v.serial, first);
                self.note(format_args!("{what}: {}", Summary(&found)));
                let seen = self.run.model.borrow_mut().end_read(&begun, &found);
                if let Err(violation) = seen {
                    self.violate(Violation(format!("{what}: {violation}")));
                }
            }
            Some(Err(refusal)) => {
                self.violate(Violation(format!("{what} failed: {refusal:?}")));
            }
            None => self.run.model.borrow_mut().fail_read(&begun),
        }
    }

    pub async fn flush(&self, v: &Target) {
        let what = format!("flush {}", v.name);
        let flush = async { self.store.flush(&v.name) };
        let answer = self.settled(&what, flush).await;
        if let Some(Err(refusal)) = answer {
            self.violate(Violation(format!("{what} failed: {refusal:?}")));
        }
        self.count(|c| c.others += 1);
    }

    pub async fn create(&self, name: &str, size: u64) {
        self.note(format_args!("create {name} of {size}"));
        let serial = self.run.model.borrow_mut().begin_create(name, size);
        let create = self.store.create(name, size);
        let answer = self.settled(&format!("create {name}"), create).await;
        match answer {
            Some(Ok(())) => self.run.model.borrow_mut().end_create(serial),
            Some(Err(refusal)) => {
                self.only_full(&format!("create {name}"), &refusal);
                self.run.model.borrow_mut().end_delete(serial);
            }
            None => {}
        }
    }

    pub async fn delete(&self, v: &Target) {
        self.note(format_args!("delete {}", v.name));
        self.run.model.borrow_mut().begin_delete(v.serial);
        let delete = self.store.delete(&v.name);
        match self.settled(&format!("delete {}", v.name), delete).await {
            Some(Ok(())) => self.run.model.borrow_mut().end_delete(v.serial),
            Some(Err(refusal)) => {
                self.violate(Violation(format!("delete {} failed: {refusal:?}", v.name)));
            }
            None => {}
        }
    }

    pub async fn resize(&self, v: &Target, size: u64) {
        self.note(format_args!("resize {} to {size}", v.name));
        let begun = self.run.model.borrow_mut().begin_resize(v.serial, size);
        let resize = self.store.resize(&v.name, size);
        match self.settled(&format!("resize {}", v.name), resize).await {
            Some(Ok(())) => self.run.model.borrow_mut().end_resize(&begun),
            Some(Err(refusal)) => {
                self.violate(Violation(format!("resize {} failed: {refusal:?}", v.name)));
            }
            None => {}
        }
    }

    /// Reads everything that was ever touched, and the ends of each volume.
    pub async fn verify(&self) {
        let present = self.run.model.borrow().present();
        for (serial, name, size) in present {
            let v = Target { serial, name, size };
            let mut ranges = self.run.model.borrow().touched(serial, size);
            ranges.extend([0..size.min(4), size.saturating_sub(4)..size]);
            for range in ranges {
                let mut first = range.start;
                while first < range.end && !self.is_over() {
                    let count = VERIFY_BLOCKS.min(range.end - first);
                    self.read(&v, first, count).await;
                    first += count;
                }
            }
        }
    }

    async fn close(&self) {
        self.note(format_args!("close"));
        if let Some(Err(refusal)) = self.settled("close", self.store.close()).await {
            self.violate(Violation(format!("closing failed: {refusal:?}")));
        }
    }

    fn settle_volumes(&self) {
        let listed = self.store.volumes();
        if let Err(violation) = self.run.model.borrow_mut().settle_volumes(&listed) {
            self.violate(violation);
        }
    }
}

/// A volume a host works on.
#[derive(Clone, Debug)]
pub struct Target {
    pub serial: Serial,
    pub name: String,
    pub size: u64,
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

/// Lives once, on a reactor of its own.
pub async fn live(run: Rc<Run>, number: usize, ending: Ending) -> Result<(), Violation> {
    run.begun.set(now());
    run.note(format_args!("life {number}, to be ended by {ending:?}"));
    let body = spawn(body(Rc::clone(&run), number, ending));
    let span = match ending {
        Ending::Closed => return body.await.unwrap_or(Ok(())),
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
    match ended {
        Some(ended) => ended.unwrap_or(Ok(())),
        None => {
            crash(&run, number, ending);
            Ok(())
        }
    }
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

fn crash(run: &Run, number: usize, ending: Ending) {
    run.note(format_args!("{ending:?}"));
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
        Ok(Err(refusal)) => return Err(Violation(format!("opening failed: {refusal:?}"))),
        Err(_) => return Err(Violation("opening is stuck".into())),
    };
    run.note(format_args!("open"));
    let operations = match ending {
        Ending::Closed => u64::from(run.plan.operations),
        _ => u64::MAX,
    };
    let life = Life { run, store, violation: RefCell::default(), operations };
    let life = Rc::new(life);
    life.settle_volumes();
    life.verify().await;
    if !life.is_over() {
        host::work(&life).await;
    }
    if !life.is_over() {
        life.verify().await;
    }
    if !life.is_over() && ending == Ending::Closed {
        life.close().await;
    }
    life.violation.take().map_or(Ok(()), Err)
}
