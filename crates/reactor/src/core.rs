//! The loop of one reactor.
#![allow(unsafe_code, reason = "the current reactor is reached through a thread-local pointer")]

use crate::budget::Ledger;
use crate::buffer::Pool;
use crate::commands::CommandRing;
use crate::driver::Driver;
use crate::error::Error;
use crate::executor::{Executor, Lane};
use crate::file::Files;
use crate::hot::HotSet;
use crate::limits::{
    CONTENTION_CHECK_NANOS, CONTENTION_PATIENCE_NANOS, CONTENTION_YIELD_NANOS, DRAIN_NANOS,
    FILE_OPS_MAX, POOL_BYTES, SCRATCH_BYTES, SLEEP_MAX_NANOS,
};
use crate::mail::{Mailbox, Registration};
use crate::metrics::{Metrics, Published};
use crate::peers::Peers;
use crate::policy::{PollPolicy, Spinner};
use crate::ring::Ring;
use crate::simulate::World;
use crate::time::{Nanos, clock};
use crate::timer::Timers;
use crate::turns::Sharing;
use crate::{Config, sys};
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::error::Error as _;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

thread_local! {
    static CURRENT: Cell<Option<NonNull<Core>>> = const { Cell::new(None) };
}

/// Runs `f` on this thread's reactor, if there is one.
#[inline]
pub(crate) fn try_with<R>(f: impl FnOnce(&Core) -> R) -> Option<R> {
    // During the thread's own teardown the variable may be gone, and the reactor long before.
    let core = CURRENT.try_with(Cell::get).ok().flatten()?;
    // SAFETY: `Running` sets the pointer to a `Core` it keeps in a box on this thread, and clears it
    // before that goes; the reference does not outlive this call.
    Some(f(unsafe { core.as_ref() }))
}

/// Runs `f` on this thread's reactor.
///
/// # Panics
/// When this thread runs none.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&Core) -> R) -> R {
    try_with(f).expect("called outside a reactor")
}

/// The number of this thread's reactor, as [`Handle::id`](crate::Handle::id) says it.
///
/// # Panics
/// When this thread runs none.
#[must_use]
pub fn id() -> u32 {
    with(|core| core.id)
}

pub(crate) struct Core {
    pub id: u32,
    pub executor: Executor,
    pub driver: Driver,
    /// The ring for commands of drives, from the first one on.
    commands: OnceCell<CommandRing>,
    pub timers: RefCell<Timers>,
    pub hot: HotSet,
    pub turns: Sharing,
    pub pool: Pool,
    pub scratch: Pool,
    pub files: Files,
    /// Places for file operations in flight.
    pub file_ops: Rc<Ledger>,
    /// The time this turn began.
    pub now: Cell<Nanos>,
    pub turn: Cell<u64>,
    /// This turn found something to do.
    pub worked: Cell<bool>,
    /// False when sockets are only ever looked at on the ring's notice.
    pub polls_sockets: bool,
    policy: PollPolicy,
    mailbox: Arc<Mailbox>,
    pub peers: Peers,
    published: Arc<Published>,
    busy_nanos: Cell<Nanos>,
    spin_nanos: Cell<Nanos>,
    /// Of this turn: spinning within a task.
    spun: Cell<Nanos>,
    sleep_nanos: Cell<Nanos>,
    sleeps: Cell<u64>,
    registration: Registration,
}

/// What the loop remembers from turn to turn.
struct Turns {
    spinner: Spinner,
    last_work: Nanos,
    /// The last turn found nothing, and the next one followed without sleep.
    spinning: bool,
    last_check: Nanos,
    switches: u64,
    yield_until: Nanos,
    stop: bool,
}

impl Core {
    pub fn new(policy: PollPolicy, published: Arc<Published>) -> Result<Self, Error> {
        let registration = Registration::new()?;
        let ring = Ring::new()?;
        let wrap = |source| Error::System { what: "cannot poll the mailbox", source };
        ring.arm_mail(registration.mailbox.bell());
        ring.enter().map_err(wrap)?;
        Self::on(Driver::Ring(ring), registration, policy, published)
    }

    /// A core without a ring, in virtual time.
    pub fn simulated(world: World) -> Result<Self, Error> {
        let registration = Registration::new()?;
        let driver = Driver::Simulated(world);
        Self::on(driver, registration, PollPolicy::Interrupt, Arc::default())
    }

    fn on(
        driver: Driver,
        registration: Registration,
        policy: PollPolicy,
        published: Arc<Published>,
    ) -> Result<Self, Error> {
        let mailbox = Arc::clone(&registration.mailbox);
        let no_space = |source| Error::System { what: "no address space for buffers", source };
        let pool = Pool::new(POOL_BYTES).map_err(no_space)?;
        let scratch = Pool::new(SCRATCH_BYTES).map_err(no_space)?;
        Ok(Self {
            id: registration.id,
            executor: Executor::new(registration.id, driver.world().is_some()),
            driver,
            commands: OnceCell::new(),
            timers: RefCell::new(Timers::new()),
            hot: HotSet::default(),
            turns: Sharing::default(),
            pool,
            scratch,
            files: Files::default(),
            file_ops: Ledger::new(FILE_OPS_MAX),
            now: Cell::new(clock()),
            turn: Cell::new(0),
            worked: Cell::new(false),
            polls_sockets: policy != PollPolicy::Interrupt,
            policy,
            mailbox,
            peers: Peers::default(),
            published,
            busy_nanos: Cell::new(0),
            spin_nanos: Cell::new(0),
            spun: Cell::new(0),
            sleep_nanos: Cell::new(0),
            sleeps: Cell::new(0),
            registration,
        })
    }

    /// Time within a task's poll that went into looking for work.
    pub fn spun(&self, nanos: Nanos) {
        self.spun.set(self.spun.get() + nanos);
    }

    /// Whether something is left for the next turn.
    pub fn has_work(&self) -> bool {
        self.executor.has_runnable() || self.turns.somebody_waits()
    }

    pub const fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    /// The ring for commands, which the first one makes.
    ///
    /// # Errors
    /// As io_uring_setup(2); `Unsupported` in simulation.
    pub fn commands(&self) -> std::io::Result<&CommandRing> {
        self.driver.ring()?;
        if let Some(commands) = self.commands.get() {
            return Ok(commands);
        }
        let made = CommandRing::new()?;
        Ok(self.commands.get_or_init(|| made))
    }

    pub fn metrics(&self) -> Metrics {
        let ring = self.driver.ring().ok();
        let commands = self.commands.get().map_or(0, CommandRing::in_flight);
        Metrics {
            busy_nanos: self.busy_nanos.get(),
            spin_nanos: self.spin_nanos.get(),
            sleep_nanos: self.sleep_nanos.get(),
            turns: self.turn.get(),
            sleeps: self.sleeps.get(),
            enters: ring.map_or(0, Ring::enters)
                + self.commands.get().map_or(0, CommandRing::enters),
            polls: self.executor.polls(),
            tasks: stdx::num::u64_of(self.executor.alive()),
            operations: stdx::num::u64_of(ring.map_or(0, Ring::in_flight) + commands),
        }
    }

    /// Runs turns until `done` or a stop by mail.
    fn turns(&self, ring: &Ring, done: &Cell<bool>) -> Result<(), Error> {
        let now = clock();
        self.now.set(now);
        let mut t = Turns {
            spinner: Spinner::new(self.policy),
            last_work: now,
            spinning: false,
            last_check: now,
            switches: sys::thread_usage().involuntary_switches,
            yield_until: 0,
            stop: false,
        };
        loop {
            self.turn(ring, &mut t)?;
            if done.get() || t.stop {
                self.published.publish(&self.metrics());
                return Ok(());
            }
            self.rest(ring, &mut t)?;
        }
    }

    /// One turn: everything that is due, once.
    fn turn(&self, ring: &Ring, t: &mut Turns) -> Result<(), Error> {
        let last_turn_worked = self.worked.replace(false);
        self.turn.set(self.turn.get() + 1);
        if self.mailbox.has_mail() {
            self.worked.set(true);
            t.stop |= self.take_mail();
        }
        let reaped = ring.reap();
        if reaped.any {
            self.worked.set(true);
        }
        if let Some(commands) = self.commands.get() {
            if reaped.commands_poll_ended {
                commands.unwatched();
            }
            if commands.reap() {
                self.worked.set(true);
            }
        }
        if reaped.mail_poll_ended {
            ring.arm_mail(self.mailbox.bell());
        }
        self.fire_timers();
        if self.executor.promote_deferred() {
            self.worked.set(true);
        }
        self.turns.begin(self);
        self.hot.wake(self, last_turn_worked);
        self.executor.run_turn(self.turns.behind(self.now.get()));
        if let Some(commands) = self.commands.get()
            && commands.wants_enter()
        {
            commands.enter().map_err(ring_failed)?;
        }
        if ring.wants_enter() {
            ring.enter().map_err(ring_failed)?;
        }
        let before = self.now.replace(clock());
        let spent = self.now.get() - before;
        let spun = self.spun.take().min(spent);
        self.spin_nanos.set(self.spin_nanos.get() + spun);
        let account = if self.worked.get() { &self.busy_nanos } else { &self.spin_nanos };
        account.set(account.get() + spent - spun);
        Ok(())
    }

    /// Takes what others brought; tells whether it is asked to end.
    fn take_mail(&self) -> bool {
        let stop = self.mailbox.has_letters() && self.take_letters();
        if self.mailbox.take_knock() {
            self.peers.take(&self.executor);
        }
        stop
    }

    fn take_letters(&self) -> bool {
        let mail = self.mailbox.take();
        for errand in mail.errands {
            errand();
        }
        for task in mail.wakes {
            self.executor.wake(task.slot, task.generation);
        }
        if mail.wake_all {
            self.executor.wake_all();
        }
        if !mail.rings.is_empty() {
            self.peers.join(mail.rings, &self.executor);
        }
        mail.stop
    }

    fn fire_timers(&self) {
        let now = self.now.get();
        loop {
            let due = self.timers.borrow_mut().pop_due(now);
            let Some(waker) = due else { return };
            self.worked.set(true);
            waker.wake();
        }
    }

    /// Between turns: goes on at once, gives the CPU away, or sleeps.
    fn rest(&self, ring: &Ring, t: &mut Turns) -> Result<(), Error> {
        let now = self.now.get();
        self.look_around(t, now);
        if self.worked.get() {
            if t.spinning {
                t.spinner.hit();
            }
            t.spinning = false;
            t.last_work = now;
            return Ok(());
        }
        if self.has_work() {
            return Ok(());
        }
        if t.spinner.should_sleep(now.saturating_sub(t.last_work)) {
            t.spinning = false;
            return self.sleep(ring, t);
        }
        t.spinning = true;
        let idle = now.saturating_sub(t.last_work);
        if now < t.yield_until && idle >= CONTENTION_PATIENCE_NANOS {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// About once a millisecond: publishes the counters, and sees whether others want this CPU
    /// while we spin on it.
    fn look_around(&self, t: &mut Turns, now: Nanos) {
        if now.saturating_sub(t.last_check) < CONTENTION_CHECK_NANOS {
            return;
        }
        t.last_check = now;
        self.files.sweep();
        self.published.publish(&self.metrics());
        let switches = sys::thread_usage().involuntary_switches;
        if switches != t.switches {
            t.switches = switches;
            t.yield_until = now + CONTENTION_YIELD_NANOS;
        }
    }

    fn sleep(&self, ring: &Ring, t: &mut Turns) -> Result<(), Error> {
        self.hot.cool_all(self);
        self.files.sweep();
        let now = self.now.get();
        let deadline = self.timers.borrow().next_deadline();
        let nanos = deadline.map_or(SLEEP_MAX_NANOS, |d| d.saturating_sub(now));
        if nanos == 0 || self.has_work() || !self.mailbox.prepare_sleep() {
            self.mailbox.awake();
            return Ok(());
        }
        if let Some(commands) = self.commands.get() {
            // What ended since it was looked at is there already when the poll begins, which ends at once then.
            commands.watch(ring);
        }
        self.published.publish(&self.metrics());
        t.spinner.sleeping();
        self.sleeps.set(self.sleeps.get() + 1);
        let result = ring.sleep(nanos.min(SLEEP_MAX_NANOS)).map_err(ring_failed);
        self.mailbox.awake();
        let woke = clock();
        self.now.set(woke);
        t.spinner.woke(woke - now);
        t.last_work = woke;
        self.sleep_nanos.set(self.sleep_nanos.get() + (woke - now));
        result
    }

    /// Drops all tasks and waits for what the kernel still holds. False when it does not let go.
    fn drain(&self) -> bool {
        while self.executor.abort_all() {}
        let Driver::Ring(ring) = &self.driver else { return true };
        ring.cancel_all();
        let commands = self.commands.get();
        let deadline = clock() + DRAIN_NANOS;
        while ring.in_flight() + commands.map_or(0, CommandRing::in_flight) > 0 {
            let now = clock();
            if let Some(commands) = commands {
                if commands.enter().is_err() {
                    return false;
                }
                commands.watch(ring);
            }
            if now >= deadline || ring.sleep(deadline - now).is_err() {
                return false;
            }
            let reaped = ring.reap();
            if let Some(commands) = commands {
                if reaped.commands_poll_ended {
                    commands.unwatched();
                }
                commands.reap();
            }
            // Buffers given back may wake a waiting task's waker, but no task is left.
        }
        true
    }

    /// What a turn of a simulated reactor does before it runs tasks; tells whether it is asked to end.
    pub fn begin_turn(&self) -> bool {
        self.turn.set(self.turn.get() + 1);
        let stop = self.mailbox.has_mail() && self.take_mail();
        self.fire_timers();
        self.executor.promote_deferred();
        self.turns.begin(self);
        stop
    }

    /// Starts the task whose end ends the reactor.
    pub fn spawn_main<F>(
        &self,
        future: F,
        output: Rc<Cell<Option<F::Output>>>,
        done: Rc<Cell<bool>>,
    ) where
        F: Future + 'static,
        F::Output: 'static,
    {
        let main = async move {
            output.set(Some(future.await));
            done.set(true);
        };
        self.executor.spawn(Box::pin(main), Lane::Normal);
    }
}

fn ring_failed(source: std::io::Error) -> Error {
    Error::System { what: "io_uring_enter failed", source }
}

/// Runs a reactor on this thread until `future` is done, and drops every other task then.
///
/// # Errors
/// When the reactor cannot start, or its ring fails.
///
/// # Panics
/// When this thread runs a reactor already, or a task panics.
pub fn run<F>(config: Config, future: F) -> Result<F::Output, Error>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let core = start(&config, Arc::default())?;
    let output = Rc::new(Cell::new(None));
    let to = Rc::clone(&output);
    run_core(core, &Rc::default(), move |core, done| core.spawn_main(future, to, done))?;
    // A stop by mail is for reactors with a handle; this one has none.
    Ok(output.take().expect("the loop ends when the future is done"))
}

pub(crate) fn start(config: &Config, published: Arc<Published>) -> Result<Core, Error> {
    if let Some(cpu) = config.cpu {
        sys::pin(cpu).map_err(|source| Error::Pin { cpu, source })?;
    }
    Core::new(config.poll, published)
}

pub(crate) fn run_core(
    core: Core,
    done: &Rc<Cell<bool>>,
    first: impl FnOnce(&Core, Rc<Cell<bool>>),
) -> Result<(), Error> {
    let running = Running::new(core);
    let core = &running.core;
    first(core, Rc::clone(done));
    match &core.driver {
        Driver::Ring(ring) => core.turns(ring, done),
        Driver::Simulated(world) => {
            world.turns(core, done);
            Ok(())
        }
    }
}

/// Runs a reactor until it is stopped by mail. What keeps it from going on is told to `failed` before anything else
/// is done about it.
pub(crate) fn run_watched(core: Core, failed: impl FnOnce(&str)) -> Result<(), Error> {
    let running = Running::new(core);
    let turns = || match &running.core.driver {
        Driver::Ring(ring) => running.core.turns(ring, &Cell::new(false)),
        Driver::Simulated(_) => unreachable!("simulated reactors have nobody who watches them"),
    };
    // Nothing of the core is looked at after a panic, only dropped.
    match catch_unwind(AssertUnwindSafe(turns)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            let cause = error.source().map_or_else(String::new, |cause| format!(": {cause}"));
            failed(&format!("{error}{cause}"));
            Err(error)
        }
        Err(panic) => {
            failed(words(&*panic));
            resume_unwind(panic)
        }
    }
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words")
}

/// A core at work: however it ends, panics included, its tasks are dropped and the kernel has let
/// go of every buffer before the memory is given back.
struct Running {
    core: ManuallyDrop<Box<Core>>,
}

impl Running {
    fn new(core: Core) -> Self {
        let core = Box::new(core);
        CURRENT.with(|current| {
            assert!(current.get().is_none(), "a reactor runs on this thread already");
            current.set(Some(NonNull::from(&*core)));
        });
        Self { core: ManuallyDrop::new(core) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let drained = self.core.drain();
        CURRENT.with(|current| current.set(None));
        if drained {
            // SAFETY: dropped here only, and not used after.
            unsafe { ManuallyDrop::drop(&mut self.core) };
        } else {
            // The kernel may still write into buffers of operations that did not end: leave the
            // memory to it, and only tell the world that this reactor is gone.
            self.core.registration.close();
        }
    }
}
