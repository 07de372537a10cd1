//! Reactors in virtual time: the same executor, tasks, timers, buffers and mailbox on the calling
//! thread, without a ring; or on several threads, one of which runs at a time.
//!
//! A turn costs [`TURN_NANOS`] of virtual time; when nothing can run, time jumps to the next timer.
//! Everything a future can learn here follows from its seed: two runs take the same steps.

mod cores;

use crate::core::{self, Core};
use crate::driver::Driver;
use crate::handle::Handle;
use crate::limits::{POLLS_PER_TURN, SIMULATED_START_NANOS};
use crate::network;
use crate::time::Nanos;
use cores::{Crew, Seat};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use stdx::Prng;

/// Which task runs next among those that can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The one that has waited longest, as on a real reactor.
    Arrival,
    /// Any, as the seed says: finds code that leans on an order nobody promised.
    Shuffled,
}

/// What stands in for the kernel: chance, and nothing else.
pub(crate) struct World {
    seed: u64,
    /// For what is simulated on this reactor.
    prng: RefCell<Prng>,
    /// For the order of tasks; its own, so that either order draws the same numbers otherwise.
    order: Option<RefCell<Prng>>,
    /// Its place among several cores.
    seat: Option<Seat>,
    pub network: network::Shared,
}

impl World {
    fn new(seed: u64, order: Order, seat: Option<Seat>, network: network::Shared) -> Self {
        let shuffle = || RefCell::new(Prng::new(seed ^ 0x6f72_6465_7220_6f66));
        Self {
            seed,
            prng: RefCell::new(Prng::new(seed)),
            order: (order == Order::Shuffled).then(shuffle),
            seat,
            network,
        }
    }

    /// On one reactor alone.
    fn alone(seed: u64, order: Order) -> Self {
        Self::new(seed, order, None, network::new(seed))
    }

    /// Its number among the reactors of the run.
    pub fn number(&self) -> usize {
        self.seat.as_ref().map_or(0, Seat::number)
    }

    /// Runs turns until `done`.
    ///
    /// # Panics
    /// When every task waits and no timer is armed: nothing would ever happen again. When another core panicked.
    pub fn turns(&self, core: &Core, done: &Cell<bool>) {
        match &self.seat {
            None => self.turns_alone(core, done),
            Some(seat) => seat.turns(core, done, |polls| self.run_tasks(core, polls)),
        }
    }

    /// Whether it is one of several cores.
    pub const fn has_others(&self) -> bool {
        self.seat.is_some()
    }

    fn run_tasks(&self, core: &Core, polls: usize) {
        match &self.order {
            None => core.executor.run_some(polls),
            Some(prng) => core.executor.run_turn_shuffled(&mut prng.borrow_mut(), polls),
        }
    }

    fn turns_alone(&self, core: &Core, done: &Cell<bool>) {
        core.now.set(SIMULATED_START_NANOS);
        loop {
            core.begin_turn();
            self.run_tasks(core, POLLS_PER_TURN);
            if done.get() {
                return;
            }
            core.now.set(core.now.get() + TURN_NANOS);
            if core.has_work() || core.mailbox().has_mail() {
                continue;
            }
            let Some(next) = core.timers.borrow().next_deadline() else { self.deadlock(core) };
            core.now.set(next.max(core.now.get()));
        }
    }

    fn deadlock(&self, core: &Core) -> ! {
        panic!("{}", deadlock(core.executor.alive(), self.seed, core.now.get()))
    }
}

fn deadlock(tasks: usize, seed: u64, now: Nanos) -> String {
    let into = now - SIMULATED_START_NANOS;
    format!(
        "deadlock in simulation: {tasks} tasks wait and no timer is armed (seed {seed}, {into} ns in)"
    )
}

/// What one turn of a simulated reactor takes, in nanoseconds of virtual time: about what a real one
/// takes, so that a task that polls for a point in time gets there.
pub const TURN_NANOS: u64 = 1_000;

/// Runs `future` on a simulated reactor on this thread, and drops every other task when it is done.
/// Tasks run in the order a real reactor would run them in.
///
/// # Panics
/// When this thread runs a reactor already, a task panics, or every task waits and no timer is armed.
pub fn simulate<F>(seed: u64, future: F) -> F::Output
where
    F: Future + 'static,
    F::Output: 'static,
{
    simulate_in(seed, Order::Arrival, future)
}

/// As [`simulate`], with a choice of the order in which tasks run.
///
/// # Panics
/// As [`simulate`].
pub fn simulate_in<F>(seed: u64, order: Order, future: F) -> F::Output
where
    F: Future + 'static,
    F::Output: 'static,
{
    run(simulated(World::alone(seed, order)), future)
}

/// As [`simulate_in`], on so many reactors, which reach each other by handles, the first one's among them: that runs
/// `main`. Each has a thread of its own, of which one at a time goes on; which one, and for how long, follows from the
/// seed, as do times in which one stands still. All have the same time. When `main` is done, the first one's tasks
/// are dropped, and then those of the others in their order: as a kill drops them.
///
/// # Panics
/// As [`simulate`], whichever of them a task panics on, and when all of them wait.
pub fn simulate_on<M, F>(seed: u64, order: Order, reactors: usize, main: M) -> F::Output
where
    M: FnOnce(Vec<Handle>) -> F,
    F: Future + 'static,
    F::Output: 'static,
{
    if reactors <= 1 {
        let core = simulated(World::alone(seed, order));
        let handles = vec![Handle::of(&core, cores::name(0))];
        return run(core, main(handles));
    }
    let crew = Crew::new(seed, reactors);
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let (core, handles) = crew.begin(seed, order);
        run(core, main(handles))
    }));
    match (ran, crew.end()) {
        (Ok(output), None) => output,
        (Err(panic), _) | (Ok(_), Some(panic)) => resume_unwind(panic),
    }
}

fn simulated(world: World) -> Core {
    Core::simulated(world).unwrap_or_else(|e| panic!("no simulated reactor: {e}"))
}

/// Runs `future` on this reactor until it is done.
fn run<F>(core: Core, future: F) -> F::Output
where
    F: Future + 'static,
    F::Output: 'static,
{
    let output = Rc::new(Cell::new(None));
    let to = Rc::clone(&output);
    let ran = core::run_core(core, &Rc::default(), move |core, done| {
        core.spawn_main(future, to, done);
    });
    debug_assert!(ran.is_ok(), "there is no ring to fail");
    output.take().expect("the loop ends when the future is done")
}

/// A number from the simulation's seed.
///
/// # Panics
/// Outside a simulation: real programs have no business with reproducible chance.
#[must_use]
pub fn random() -> u64 {
    core::with(|core| match core.driver.world() {
        Some(world) => world.prng.borrow_mut().next_u64(),
        None => panic!("there is no seeded chance outside a simulation"),
    })
}

/// Whether this thread runs a simulated reactor.
#[must_use]
pub fn is_simulated() -> bool {
    core::try_with(|core| matches!(core.driver, Driver::Simulated(_))).unwrap_or(false)
}

#[cfg(test)]
mod tests;
