//! The executor: a slab of tasks and three run queues.

use crate::limits::{POLLS_PER_TURN, TASKS_MAX};
use crate::time::{Nanos, clock};
use crate::waker::TaskRef;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};
use stdx::Prng;
use stdx::num::{u32_of, u64_of, usize32, usize64};

pub(crate) type BoxedTask = Pin<Box<dyn Future<Output = ()>>>;

/// Which run queue a task's wakes go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Normal,
    /// Runs after the normal queue is drained: for work that gathers what the turn produced.
    Late,
    /// Runs when nothing else can, and not for long in one turn: for work that nobody waits for.
    Behind,
}

struct Slot {
    /// Taken out while it is polled.
    future: Option<BoxedTask>,
    generation: u32,
    lane: Lane,
    queued: bool,
    alive: bool,
}

#[derive(Default)]
struct Tasks {
    slots: Vec<Slot>,
    free: Vec<u32>,
    alive: usize,
}

pub(crate) struct Executor {
    reactor: u32,
    /// The generation of a slot's first task. Reactors take each other's places in the registry; far from the
    /// generations of those before, wakers they left behind mean nobody here.
    first: u32,
    tasks: RefCell<Tasks>,
    normal: RefCell<VecDeque<u32>>,
    late: RefCell<VecDeque<u32>>,
    behind: RefCell<VecDeque<u32>>,
    /// There is no time in which work could be behind other: it comes with the rest.
    simulated: bool,
    /// Tasks that yielded: they run in the next turn.
    deferred: RefCell<Vec<Waker>>,
    polls: Cell<u64>,
}

/// Executors made so far in this process.
static EXECUTORS: AtomicU32 = AtomicU32::new(0);

/// 2^32 over the golden ratio: its multiples lie as far apart as so many numbers can.
const FAR: u32 = 0x9e37_79b9;

/// Takes any one out.
fn pick(queue: &RefCell<VecDeque<u32>>, prng: &mut Prng) -> Option<u32> {
    let mut queue = queue.borrow_mut();
    if queue.is_empty() {
        return None;
    }
    let at = usize64(prng.below(u64_of(queue.len())));
    queue.swap_remove_front(at)
}

impl Executor {
    pub fn new(reactor: u32, simulated: bool) -> Self {
        Self {
            reactor,
            simulated,
            first: EXECUTORS.fetch_add(1, Ordering::Relaxed).wrapping_mul(FAR),
            tasks: RefCell::default(),
            normal: RefCell::default(),
            late: RefCell::default(),
            behind: RefCell::default(),
            deferred: RefCell::default(),
            polls: Cell::new(0),
        }
    }

    /// Adds a task and queues its first poll.
    ///
    /// # Panics
    /// When `TASKS_MAX` tasks are alive, which whoever spawns has looked at.
    pub fn spawn(&self, future: BoxedTask, lane: Lane) -> TaskRef {
        let mut tasks = self.tasks.borrow_mut();
        assert!(tasks.alive < TASKS_MAX, "task limit reached");
        tasks.alive += 1;
        let slot = if let Some(slot) = tasks.free.pop() {
            slot
        } else {
            tasks.slots.push(Slot {
                future: None,
                generation: self.first,
                lane,
                queued: false,
                alive: false,
            });
            u32_of(tasks.slots.len() - 1)
        };
        let entry = &mut tasks.slots[usize32(slot)];
        entry.future = Some(future);
        entry.lane = lane;
        entry.alive = true;
        let generation = entry.generation;
        drop(tasks);
        self.wake(slot, generation);
        TaskRef { reactor: self.reactor, slot, generation }
    }

    #[inline]
    pub fn wake(&self, slot: u32, generation: u32) {
        let mut tasks = self.tasks.borrow_mut();
        let Some(entry) = tasks.slots.get_mut(usize32(slot)) else { return };
        if !entry.alive || entry.generation != generation || entry.queued {
            return;
        }
        entry.queued = true;
        match entry.lane {
            Lane::Behind if !self.simulated => self.behind.borrow_mut().push_back(slot),
            Lane::Normal | Lane::Behind => self.normal.borrow_mut().push_back(slot),
            Lane::Late => self.late.borrow_mut().push_back(slot),
        }
    }

    /// Wakes every task: the answer to more wakes from elsewhere than the mailbox holds.
    pub fn wake_all(&self) {
        let refs: Vec<_> = self
            .tasks
            .borrow()
            .slots
            .iter()
            .enumerate()
            .filter(|(_, s)| s.alive)
            .map(|(i, s)| (u32_of(i), s.generation))
            .collect();
        for (slot, generation) in refs {
            self.wake(slot, generation);
        }
    }

    /// Wakes `waker` at the start of the next turn.
    pub fn defer(&self, waker: Waker) {
        self.deferred.borrow_mut().push(waker);
    }

    /// Queues the tasks that yielded; true when there were any.
    pub fn promote_deferred(&self) -> bool {
        if self.deferred.borrow().is_empty() {
            return false;
        }
        let mut list = self.deferred.take();
        for waker in list.drain(..) {
            waker.wake();
        }
        // The emptied list goes back, to keep its memory.
        let mut deferred = self.deferred.borrow_mut();
        if deferred.is_empty() {
            *deferred = list;
        }
        true
    }

    pub fn has_runnable(&self) -> bool {
        !self.normal.borrow().is_empty()
            || !self.late.borrow().is_empty()
            || !self.behind.borrow().is_empty()
            || !self.deferred.borrow().is_empty()
    }

    /// Whether a task waits for the normal queue of this turn: it may produce more before the turn ends.
    #[inline]
    pub fn has_normal(&self) -> bool {
        !self.normal.borrow().is_empty()
    }

    /// Runs the normal queue until it is empty (or the turn's budget is used), and the turn-end queue: what was
    /// produced does not wait for the work behind it, which gets so much of the turn then. Whom the turn's end wakes goes
    /// on in it, once: who waited for a commit is answered without another look at all sockets.
    pub fn run_turn(&self, behind: Nanos) {
        let mut polls = self.run_normal(POLLS_PER_TURN);
        self.run_late();
        if self.has_normal() || !self.late.borrow().is_empty() {
            polls = self.run_normal(polls);
            self.run_late();
        }
        if self.behind.borrow().is_empty() {
            return;
        }
        // One of them at least, however much else there is: others wait for it in the end.
        let mut polls = polls.max(1);
        let begun = clock();
        while polls > 0 {
            let Some(slot) = self.behind.borrow_mut().pop_front() else { break };
            self.poll(slot);
            polls = self.run_normal(polls - 1);
            if clock() - begun > behind {
                break;
            }
        }
        self.run_late();
    }

    /// As [`run_turn`](Self::run_turn) in simulation, with a budget of so many polls.
    #[inline]
    pub fn run_some(&self, polls: usize) {
        self.run_normal(polls);
        self.run_late();
    }

    /// Gives how many polls are left.
    #[inline]
    fn run_normal(&self, mut polls: usize) -> usize {
        while polls > 0 {
            let Some(slot) = self.normal.borrow_mut().pop_front() else { break };
            self.poll(slot);
            polls -= 1;
        }
        polls
    }

    #[inline]
    fn run_late(&self) {
        let late = self.late.borrow().len();
        for _ in 0..late {
            let Some(slot) = self.late.borrow_mut().pop_front() else { break };
            self.poll(slot);
        }
    }

    /// As [`run_turn`](Self::run_turn), each queue in an order of chance.
    pub fn run_turn_shuffled(&self, prng: &mut Prng, polls: usize) {
        for _ in 0..polls {
            let Some(slot) = pick(&self.normal, prng) else { break };
            self.poll(slot);
        }
        let late = self.late.borrow().len();
        for _ in 0..late {
            let Some(slot) = pick(&self.late, prng) else { break };
            self.poll(slot);
        }
    }

    fn poll(&self, slot: u32) {
        let (mut future, generation) = {
            let mut tasks = self.tasks.borrow_mut();
            let entry = &mut tasks.slots[usize32(slot)];
            entry.queued = false;
            let Some(future) = entry.future.take() else { return };
            (future, entry.generation)
        };
        self.polls.set(self.polls.get() + 1);
        let waker = TaskRef { reactor: self.reactor, slot, generation }.waker();
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut tasks = self.tasks.borrow_mut();
        let entry = &mut tasks.slots[usize32(slot)];
        if !done && entry.alive && entry.generation == generation {
            entry.future = Some(future);
            return;
        }
        if entry.alive && entry.generation == generation {
            Self::release(&mut tasks, slot);
        }
        drop(tasks);
        // Dropped last: its destructors may spawn, wake or abort.
        drop(future);
    }

    fn release(tasks: &mut Tasks, slot: u32) {
        let entry = &mut tasks.slots[usize32(slot)];
        entry.alive = false;
        entry.generation = entry.generation.wrapping_add(1);
        tasks.alive -= 1;
        tasks.free.push(slot);
    }

    /// Drops the task's future. A task that aborts itself is dropped when its poll returns.
    pub fn abort(&self, task: TaskRef) {
        let future = {
            let mut tasks = self.tasks.borrow_mut();
            let Some(entry) = tasks.slots.get_mut(usize32(task.slot)) else { return };
            if !entry.alive || entry.generation != task.generation {
                return;
            }
            let future = entry.future.take();
            Self::release(&mut tasks, task.slot);
            future
        };
        drop(future);
    }

    /// Drops every task; true when any was left. Destructors may spawn: call until false.
    pub fn abort_all(&self) -> bool {
        let refs: Vec<_> = self
            .tasks
            .borrow()
            .slots
            .iter()
            .enumerate()
            .filter(|(_, s)| s.alive)
            .map(|(i, s)| TaskRef {
                reactor: self.reactor,
                slot: u32_of(i),
                generation: s.generation,
            })
            .collect();
        for &task in &refs {
            self.abort(task);
        }
        !refs.is_empty()
    }

    pub fn alive(&self) -> usize {
        self.tasks.borrow().alive
    }

    pub fn polls(&self) -> u64 {
        self.polls.get()
    }
}

#[cfg(test)]
mod tests;
