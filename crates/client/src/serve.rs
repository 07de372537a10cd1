//! The serving side of a queue, on the namespace's reactor: as many tasks as commands may be in flight, each of
//! which takes an order, runs it, and puts its end into the other ring.
#![allow(unsafe_code, reason = "commands bring memory by its address")]

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use initiator::Namespace;
use reactor::spsc::{Doze, Putter, Taker, Wanted};
use reactor::sync::Notify;
use reactor::{Bell, Task};

use crate::Error;
use crate::command::{Command, Raw};

/// A command on its way to the serving side. Its memory is lent until its end comes back.
pub struct Order {
    pub slot: u16,
    pub command: Command<Raw>,
}

/// The end of a command.
pub struct End {
    pub slot: u16,
    pub result: Result<(), Error>,
}

/// What both sides of a queue look at.
pub struct Shared {
    /// The serving side has workers without work, and looks for orders only when it is woken.
    pub dozing: Doze,
    /// Ring the bell when so many ends have been put.
    pub wanted: Wanted,
    /// The queue is dropped.
    pub closing: AtomicBool,
    /// The serving side has ended.
    pub gone: AtomicBool,
    pub bell: Bell,
}

impl Shared {
    pub fn new(bell: Bell) -> Self {
        Self {
            dozing: Doze::default(),
            wanted: Wanted::default(),
            closing: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            bell,
        }
    }
}

/// Workers that wait for orders.
struct Idle {
    /// By worker; none while it works.
    wakers: Box<[Option<Waker>]>,
    /// Those that wait, the last one on top.
    stack: Vec<u16>,
}

impl Idle {
    fn add(&mut self, worker: u16, cx: &Context<'_>) {
        let place = &mut self.wakers[usize::from(worker)];
        if place.replace(cx.waker().clone()).is_none() {
            self.stack.push(worker);
        }
    }

    fn remove(&mut self, worker: u16) {
        if self.wakers[usize::from(worker)].take().is_some() {
            self.stack.retain(|&other| other != worker);
        }
    }

    fn wake_one(&mut self) {
        if let Some(worker) = self.stack.pop()
            && let Some(waker) = self.wakers[usize::from(worker)].take()
        {
            waker.wake();
        }
    }
}

struct Serving {
    namespace: Rc<Namespace>,
    orders: RefCell<Taker<Order>>,
    ends: RefCell<Putter<End>>,
    shared: Arc<Shared>,
    idle: RefCell<Idle>,
    /// Ends were put that the other side may sleep for.
    untold: Cell<bool>,
    tell: Notify,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.shared.gone.store(true, Ordering::Release);
        self.shared.bell.ring();
    }
}

/// Serves a queue of `depth` commands until it is dropped. The waker has it look for orders.
///
/// # Safety
/// The memory of each order is lent until its end has been put, or the reactor has ended.
pub unsafe fn serve(
    namespace: Rc<Namespace>,
    depth: u16,
    orders: Taker<Order>,
    ends: Putter<End>,
    shared: Arc<Shared>,
) -> Waker {
    let idle = Idle { wakers: (0..depth).map(|_| None).collect(), stack: Vec::new() };
    let serving = Rc::new(Serving {
        namespace,
        orders: RefCell::new(orders),
        ends: RefCell::new(ends),
        shared,
        idle: RefCell::new(idle),
        untold: Cell::new(false),
        tell: Notify::new(),
    });
    // SAFETY: as this function's.
    let worker = |index| reactor::spawn(unsafe { work(Rc::clone(&serving), index) });
    let workers = (0..depth).map(worker).collect();
    let teller = reactor::spawn_late(tell(Rc::clone(&serving)));
    reactor::spawn(hand_out(serving, workers, teller)).waker()
}

/// # Safety
/// As [`serve`].
async unsafe fn work(serving: Rc<Serving>, worker: u16) {
    loop {
        let order = poll_fn(|cx| serving.poll_order(worker, cx)).await;
        // SAFETY: as this function's. Dropped before its end, this leaves the memory to the namespace's queues
        // until those are dropped, too, which only the end of the reactor does: a queue waits for every end
        // before it has its workers dropped.
        let result = unsafe { order.command.run(&serving.namespace) }.await;
        serving.put(End { slot: order.slot, result });
    }
}

/// Gives orders to idle workers when woken, and ends with the queue.
async fn hand_out(serving: Rc<Serving>, workers: Vec<Task<()>>, teller: Task<()>) {
    poll_fn(|_| {
        if serving.shared.closing.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        serving.hand_out();
        Poll::Pending
    })
    .await;
    workers.iter().for_each(Task::abort);
    teller.abort();
}

/// Rings for a turn's ends at its end.
async fn tell(serving: Rc<Serving>) {
    loop {
        serving.tell.notified().await;
        serving.untold.set(false);
        let count = serving.ends.borrow().count();
        if serving.shared.wanted.is_due(count) {
            serving.shared.bell.ring();
        }
    }
}

impl Serving {
    fn poll_order(&self, worker: u16, cx: &Context<'_>) -> Poll<Order> {
        let mut orders = self.orders.borrow_mut();
        let order = orders.take().or_else(|| {
            self.idle.borrow_mut().add(worker, cx);
            self.doze();
            orders.take()
        });
        let Some(order) = order else { return Poll::Pending };
        self.idle.borrow_mut().remove(worker);
        Poll::Ready(order)
    }

    /// Asks to be woken for orders. Look once more after that: either the other side saw it, or we see its order.
    fn doze(&self) {
        self.shared.dozing.doze();
    }

    fn hand_out(&self) {
        let mut handed = 0;
        loop {
            let available = self.orders.borrow_mut().look();
            let mut idle = self.idle.borrow_mut();
            while handed < available {
                if idle.stack.is_empty() {
                    // Whoever is done with an order takes the next one.
                    return;
                }
                idle.wake_one();
                handed += 1;
            }
            drop(idle);
            self.doze();
            if self.orders.borrow_mut().look() == available {
                return;
            }
        }
    }

    fn put(&self, end: End) {
        let mut ends = self.ends.borrow_mut();
        // There are as many places as commands in flight.
        let put = ends.put(end);
        debug_assert!(put.is_ok(), "more ends than orders");
        ends.publish();
        if !self.untold.replace(true) {
            self.tell.notify();
        }
    }
}
