//! The hot set: sockets that get one receive each turn without a notice from the ring.
//!
//! A socket that waits for data is either hot or has a poll armed in the ring. It becomes hot when
//! data arrives, and cools when others keep finding work while it does not, or when the reactor
//! goes to sleep. An idle reactor that spins keeps trying: nothing else wants the time.

use crate::core::Core;
use crate::limits::{HOT_MAX, HOT_MISSES};
use crate::ring::OpFuture;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};

/// The receive side of a socket as the loop sees it.
pub(crate) struct Receiver {
    pub fd: Rc<OwnedFd>,
    /// The turn of the last receive.
    tried: Cell<u64>,
    /// Who waits for data.
    waiter: RefCell<Option<Waker>>,
    /// The poll armed while cold.
    armed: RefCell<Option<OpFuture>>,
    hot: Cell<bool>,
    misses: Cell<u32>,
}

impl Receiver {
    pub fn new(fd: Rc<OwnedFd>) -> Rc<Self> {
        Rc::new(Self {
            fd,
            tried: Cell::new(u64::MAX),
            waiter: RefCell::new(None),
            armed: RefCell::new(None),
            hot: Cell::new(false),
            misses: Cell::new(0),
        })
    }

    /// Whether a receive is due: at most one a turn, and while cold only when the ring said so.
    pub fn poll_due(self: &Rc<Self>, core: &Core, cx: &mut Context<'_>) -> bool {
        if let Some(armed) = self.armed.borrow_mut().as_mut()
            && Pin::new(armed).poll(cx).is_pending()
        {
            return false;
        }
        *self.armed.borrow_mut() = None;
        self.tried.replace(core.turn.get()) != core.turn.get()
    }

    /// Data came: nobody waits until the next receive.
    pub fn hit(&self, core: &Core) {
        self.waiter.take();
        self.seen(core);
    }

    /// Data came to somebody else than who waits.
    pub fn seen(&self, core: &Core) {
        self.misses.set(0);
        core.worked.set(true);
    }

    /// Nothing there, or not our turn: wait for data.
    pub fn wait(self: &Rc<Self>, core: &Core, cx: &mut Context<'_>) -> std::io::Result<()> {
        if self.armed.borrow().is_some() {
            return Ok(());
        }
        if self.hot.get() || core.hot.admit(core, self) {
            let mut waiter = self.waiter.borrow_mut();
            if !waiter.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                *waiter = Some(cx.waker().clone());
            }
            return Ok(());
        }
        if !self.arm(core, cx)? {
            // Without a wait of the ring, a look every turn.
            core.executor.defer(cx.waker().clone());
        }
        Ok(())
    }

    /// False when the ring has no slot for one more wait.
    fn arm(&self, core: &Core, cx: &mut Context<'_>) -> std::io::Result<bool> {
        let ring = core.driver.ring()?;
        let Some(mut op) = ring.start_poll(&self.fd, libc::POLLIN | libc::POLLRDHUP) else {
            return Ok(false);
        };
        // Fresh: this only leaves the waker.
        let polled = Pin::new(&mut op).poll(cx);
        debug_assert!(polled.is_pending());
        *self.armed.borrow_mut() = Some(op);
        Ok(true)
    }

    /// Leaves the hot set; a poll takes over for whoever waits. Without one, the waiter looks again.
    fn cool(&self, core: &Core) {
        self.hot.set(false);
        self.misses.set(0);
        let Some(waker) = self.waiter.take() else { return };
        if !matches!(self.arm(core, &mut Context::from_waker(&waker)), Ok(true)) {
            waker.wake();
        }
    }

    /// The socket is going away.
    pub fn close(self: &Rc<Self>, core: &Core) {
        if self.hot.replace(false) {
            core.hot.members.borrow_mut().retain(|m| !Rc::ptr_eq(m, self));
        }
        self.waiter.take();
        self.armed.take();
    }
}

#[derive(Default)]
pub(crate) struct HotSet {
    members: RefCell<Vec<Rc<Receiver>>>,
}

impl HotSet {
    fn admit(&self, core: &Core, receiver: &Rc<Receiver>) -> bool {
        if !core.polls_sockets {
            return false;
        }
        let mut members = self.members.borrow_mut();
        if members.len() >= HOT_MAX {
            return false;
        }
        receiver.hot.set(true);
        members.push(Rc::clone(receiver));
        true
    }

    /// Wakes every waiting member for its receive of this turn, the first one a different one each
    /// time; cools those that missed too often.
    pub fn wake(&self, core: &Core, last_turn_worked: bool) {
        let mut members = self.members.borrow_mut();
        if last_turn_worked && members.len() > 1 {
            members.rotate_left(1);
        }
        let mut at = 0;
        while at < members.len() {
            let member = &members[at];
            if last_turn_worked {
                member.misses.set(member.misses.get() + 1);
                if member.misses.get() > HOT_MISSES {
                    members.swap_remove(at).cool(core);
                    continue;
                }
            }
            // The waker stays: taken only when data comes, so that a miss costs no more than this.
            if let Some(waker) = member.waiter.borrow().as_ref() {
                waker.wake_by_ref();
            }
            at += 1;
        }
    }

    /// Everyone out: the reactor goes to sleep, and the ring must tell it.
    pub fn cool_all(&self, core: &Core) {
        for member in self.members.borrow_mut().drain(..) {
            member.cool(core);
        }
    }
}

impl Receiver {
    /// The waiter was served.
    pub fn served(&self) {
        self.waiter.take();
    }
}
