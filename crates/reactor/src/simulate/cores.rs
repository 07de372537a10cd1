//! Several simulated cores. Each is a thread, as thread-locals are to be as they are on real ones, and one of them at a
//! time has the baton: nothing is left to the system's scheduler.

use super::{Order, TURN_NANOS, World, deadlock, simulated};
use crate::core::{self, Core};
use crate::handle::Handle;
use crate::limits::{POLLS_PER_TURN, SIMULATED_START_NANOS};
use crate::mail::Mailbox;
use crate::network;
use crate::time::Nanos;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use stdx::Prng;
use stdx::num::{u64_of, usize64};

/// One in so many turns does not come: its core stands still for a while.
const STANDS_STILL: u64 = 512;

/// For how long, at most, in doublings of a nanosecond: about a millisecond.
const STANDS_STILL_DOUBLINGS: u64 = 20;

pub(super) type Panic = Box<dyn Any + Send>;

/// What ends a run early.
enum Fault {
    /// A task panicked, or what was dropped.
    Panic(Panic),
    /// Nothing would ever happen again.
    Deadlock(String),
}

/// A core while another has the baton.
struct Waiting {
    mailbox: Arc<Mailbox>,
    /// It has something to do in its next turn, and so many tasks in all.
    runnable: bool,
    alive: usize,
    deadline: Option<Nanos>,
    /// It stands still until then.
    still_until: Nanos,
    left: bool,
}

impl Waiting {
    /// When it can run next, if nobody else does anything.
    fn next(&self, now: Nanos) -> Option<Nanos> {
        let at_once = self.runnable || self.mailbox.has_mail();
        let next = if at_once { Some(now) } else { self.deadline.map(|at| at.max(now)) };
        next.filter(|_| !self.left).map(|at| at.max(self.still_until))
    }
}

struct Inside {
    seed: u64,
    prng: Prng,
    /// Who has the baton.
    holder: usize,
    now: Nanos,
    turns: u64,
    cores: Vec<Waiting>,
    /// Those that can have the next turn, in memory of its own: whoever counts what a core allocates counts none of
    /// this.
    able: Vec<usize>,
    /// Whoever has the baton ends.
    over: bool,
    fault: Option<Fault>,
}

/// What all cores of a run share.
struct Baton {
    inside: Mutex<Inside>,
    /// Rung for the core that the baton is given to.
    given: Vec<Condvar>,
    network: network::Shared,
}

/// What a core does with the baton.
struct Turn {
    now: Nanos,
    turns: u64,
    polls: usize,
}

impl Baton {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give(&self, inside: &mut Inside, to: usize) {
        inside.holder = to;
        self.given[to].notify_one();
    }

    /// Waits for the baton; `None` when the core is to end.
    fn wait(&self, mut inside: MutexGuard<'_, Inside>, core: usize) -> Option<Turn> {
        while inside.holder != core {
            inside = self.given[core].wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
        if inside.over || inside.fault.is_some() {
            return None;
        }
        inside.turns += 1;
        let most = 1 << inside.prng.below(u64::from(POLLS_PER_TURN.ilog2()) + 1);
        Some(Turn { now: inside.now, turns: inside.turns, polls: most })
    }

    /// Gives the baton to whoever is to have it next, and waits for it to come back.
    fn pass(&self, number: usize, core: &Core) -> Option<Turn> {
        let mut inside = self.inside();
        let waiting = &mut inside.cores[number];
        waiting.runnable = core.has_work();
        waiting.alive = core.executor.alive();
        waiting.deadline = core.timers.borrow().next_deadline();
        inside.now += TURN_NANOS;
        let next = inside.choose();
        self.give(&mut inside, next);
        self.wait(inside, number)
    }

    /// A core's end, with what it panicked of.
    fn leave(&self, core: usize, panic: Option<Panic>) {
        let mut inside = self.inside();
        if let Some(core) = inside.cores.get_mut(core) {
            core.left = true;
        }
        if let Some(panic) = panic {
            inside.fault.get_or_insert(Fault::Panic(panic));
        }
        // The first one waits for that, or hears of it.
        let is_over = inside.over || inside.fault.is_some();
        let next = if is_over { 0 } else { inside.choose() };
        self.give(&mut inside, next);
    }

    /// Has a core end, once the first one has.
    fn end(&self, core: usize) {
        let mut inside = self.inside();
        inside.over = true;
        if inside.cores.get(core).is_none_or(|core| core.left) {
            return;
        }
        self.give(&mut inside, core);
        while inside.holder != 0 {
            inside = self.given[0].wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Inside {
    /// Who is to have the next turn; the first one, to end, when there is none.
    fn choose(&mut self) -> usize {
        loop {
            let now = self.now;
            let is_able = |core: &Waiting| core.next(now) == Some(now);
            let (able, cores) = (&mut self.able, &self.cores);
            able.clear();
            able.extend((0..cores.len()).filter(|&n| is_able(&cores[n])));
            if able.is_empty() {
                let Some(next) = self.cores.iter().filter_map(|core| core.next(now)).min() else {
                    let alive = self.cores.iter().filter(|core| !core.left).map(|core| core.alive);
                    let text = deadlock(alive.sum(), self.seed, now);
                    self.fault.get_or_insert(Fault::Deadlock(text));
                    return 0;
                };
                self.now = next;
                continue;
            }
            let chosen = able[usize64(self.prng.below(u64_of(able.len())))];
            if self.prng.below(STANDS_STILL) > 0 {
                return chosen;
            }
            let most = 1 << self.prng.below(STANDS_STILL_DOUBLINGS + 1);
            self.cores[chosen].still_until = now + 1 + self.prng.below(most);
        }
    }
}

/// A core's place among those of a run.
pub(super) struct Seat {
    baton: Arc<Baton>,
    number: usize,
}

impl Seat {
    pub const fn number(&self) -> usize {
        self.number
    }

    /// Takes turns until the core is `done`, asked to end, or the run is over; `run` runs tasks with so many polls.
    ///
    /// # Panics
    /// On the first core, when another one did, or all of them wait.
    pub fn turns(&self, core: &Core, done: &Cell<bool>, run: impl Fn(usize)) {
        let mut turn = self.baton.wait(self.baton.inside(), self.number);
        while let Some(Turn { now, turns, polls }) = turn {
            core.now.set(now);
            // Turns are counted together: whoever looks whether a run goes round in circles is on one core.
            core.turn.set(turns - 1);
            let stop = core.begin_turn();
            run(polls);
            // The first one ends with its future.
            if done.get() || stop && self.number > 0 {
                return;
            }
            turn = self.baton.pass(self.number, core);
        }
        if self.number > 0 {
            return;
        }
        let fault = self.baton.inside().fault.take();
        match fault {
            Some(Fault::Panic(panic)) => resume_unwind(panic),
            Some(Fault::Deadlock(text)) => panic!("{text}"),
            None => {}
        }
    }
}

/// All cores of a run.
pub(super) struct Crew {
    baton: Arc<Baton>,
    threads: RefCell<Vec<JoinHandle<()>>>,
}

pub(super) fn name(core: usize) -> String {
    format!("simulated {core}")
}

impl Crew {
    pub fn new(seed: u64, cores: usize) -> Self {
        let inside = Inside {
            seed,
            prng: Prng::new(seed ^ 0x636f_7265_7320_6f66),
            holder: 0,
            now: SIMULATED_START_NANOS,
            turns: 0,
            cores: Vec::new(),
            able: Vec::with_capacity(cores),
            over: false,
            fault: None,
        };
        let given = (0..cores).map(|_| Condvar::new()).collect();
        let baton =
            Arc::new(Baton { inside: Mutex::new(inside), given, network: network::new(seed) });
        Self { baton, threads: RefCell::default() }
    }

    /// The first core, to be run on this thread, and handles of all.
    pub fn begin(&self, seed: u64, order: Order) -> (Core, Vec<Handle>) {
        let first = simulated(world(&self.baton, 0, seed, order));
        let mut handles = vec![Handle::of(&first, name(0))];
        self.seat(&handles[0]);
        for number in 1..self.baton.given.len() {
            let (tell, told) = channel();
            let baton = Arc::clone(&self.baton);
            let live = move || {
                let lived = catch_unwind(AssertUnwindSafe(|| {
                    live(world(&baton, number, seed, order), number, &tell);
                }));
                baton.leave(number, lived.err());
            };
            let thread = std::thread::Builder::new()
                .name(name(number))
                .spawn(live)
                .unwrap_or_else(|e| panic!("no thread for a simulated core: {e}"));
            self.threads.borrow_mut().push(thread);
            handles.push(told.recv().expect("a core begins, or panics"));
            self.seat(&handles[number]);
        }
        (first, handles)
    }

    fn seat(&self, handle: &Handle) {
        self.baton.inside().cores.push(Waiting {
            mailbox: Arc::clone(handle.mailbox()),
            runnable: false,
            alive: 0,
            deadline: None,
            still_until: 0,
            left: false,
        });
    }

    /// Ends the other cores, one after the other, once the first one has; gives what one panicked of meanwhile.
    pub fn end(&self) -> Option<Panic> {
        for (number, thread) in (1..).zip(self.threads.take()) {
            self.baton.end(number);
            // What it panicked of was left with the baton.
            let _ = thread.join();
        }
        match self.baton.inside().fault.take() {
            Some(Fault::Panic(panic)) => Some(panic),
            Some(Fault::Deadlock(_)) | None => None,
        }
    }
}

/// What a core stands on: made on its own thread.
fn world(baton: &Arc<Baton>, number: usize, seed: u64, order: Order) -> World {
    let seat = Seat { baton: Arc::clone(baton), number };
    World::new(seed ^ u64_of(number) << 32, order, Some(seat), Arc::clone(&baton.network))
}

/// The life of a core but the first, on its thread.
fn live(world: World, number: usize, tell: &Sender<Handle>) {
    let core = simulated(world);
    // Whoever listens waits for it.
    let _ = tell.send(Handle::of(&core, name(number)));
    let ran = core::run_core(core, &Rc::default(), |_, _| ());
    debug_assert!(ran.is_ok(), "there is no ring to fail");
}

#[cfg(test)]
mod tests;
