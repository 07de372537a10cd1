//! Many commands in flight, for one thread.
#![allow(unsafe_code, reason = "commands bring memory by its address")]

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use reactor::spsc::{Putter, Taker, ring};
use reactor::{Bell, Nanos, Spinner, now_exact};

use crate::buffer::Buffer;
use crate::command::{Command, Raw};
use crate::limits::{DEPTH_MAX, SPINS_A_LOOK};
use crate::serve::{End, Order, Shared, serve};
use crate::thread::Thread;
use crate::{Error, Geometry};

/// A command that has ended.
#[derive(Debug)]
pub struct Completion {
    /// What was given with the command.
    pub user: u64,
    /// How it ended.
    pub result: Result<(), Error>,
    /// Its memory, given back.
    pub buffer: Option<Buffer>,
}

/// A command that is outstanding.
#[derive(Debug, Default)]
struct Slot {
    user: u64,
    buffer: Option<Buffer>,
}

/// What the writes of a queue go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The namespace's direct write window, where there is one and it takes them; else commands.
    WindowFirst,
    /// Commands: whoever puts them there has asked the window already.
    Commands,
}

/// Commands in flight of one thread: submitted in batches, in no order among each other, and reaped as they end.
///
/// Dropping it waits for the commands that are outstanding, as their memory is in use until they end. When the
/// target is away that may take as long as the namespace waits for it;
/// [`Namespace::shut_down`](crate::Namespace::shut_down) ends that.
pub struct Queue {
    orders: Putter<Order>,
    ends: Taker<End>,
    slots: Box<[Slot]>,
    free: Vec<u16>,
    by: By,
    /// Writes that were done when they were submitted: by the window.
    done: Vec<u16>,
    /// Orders were put and not published.
    unsent: bool,
    shared: Arc<Shared>,
    /// Has the serving side look for orders.
    waker: Waker,
    spinner: Spinner,
    thread: Arc<Thread>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (outstanding, depth) = (self.outstanding(), self.depth());
        f.debug_struct("Queue").field("outstanding", &outstanding).field("depth", &depth).finish()
    }
}

impl Queue {
    /// `polled` has its commands go to the queues for polled ones, where there are any.
    pub(crate) fn new(
        thread: &Arc<Thread>,
        depth: u16,
        polled: bool,
        by: By,
    ) -> Result<Self, Error> {
        if depth == 0 || depth > DEPTH_MAX {
            return Err(Error::invalid(format!("a queue has 1 to {DEPTH_MAX} places")));
        }
        let no_bell =
            |error| Error::System { what: "cannot create an eventfd", source: Arc::new(error) };
        let shared = Arc::new(Shared::new(Bell::new().map_err(no_bell)?));
        let (orders, their_orders) = ring(usize::from(depth));
        let (their_ends, ends) = ring(usize::from(depth));
        let theirs = Arc::clone(&shared);
        let waker = thread.ask(move |namespace| async move {
            let namespace = if polled { Rc::new(namespace.polled()) } else { namespace };
            // SAFETY: `submit_raw` has its caller promise it for the time until the command's end is reaped,
            // which is put there after it was run; without it, only after the thread has ended.
            unsafe { serve(namespace, depth, their_orders, their_ends, theirs) }
        })?;
        Ok(Self {
            orders,
            ends,
            slots: (0..depth).map(|_| Slot::default()).collect(),
            free: (0..depth).rev().collect(),
            by,
            done: Vec::with_capacity(usize::from(depth)),
            unsent: false,
            shared,
            waker,
            spinner: Spinner::new(thread.options.poll),
            thread: Arc::clone(thread),
        })
    }

    /// What the namespace is, as far as is known now.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.thread.geometry()
    }

    /// Commands that can be outstanding.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Commands submitted whose completion was not reaped.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Queues a command; [`Queue::commit`] sends it. `user` comes back in its completion. A write that the direct write
    /// window takes ([`Options::window`](crate::Options::window)) is done, and durable, when this returns; its
    /// completion is reaped as others are. Only when that window ends under it this waits until it is known what
    /// became of the write.
    ///
    /// # Errors
    /// [`Error::Full`]; whatever else is wrong with a command is for its completion to say.
    pub fn submit(&mut self, user: u64, command: Command) -> Result<(), Error> {
        let (command, buffer) = command.lend(|buffer| Raw(buffer.as_raw()));
        self.put(Slot { user, buffer }, command)
    }

    /// As [`Queue::submit`], with memory that the caller keeps alive.
    ///
    /// # Errors
    /// [`Error::Full`].
    ///
    /// # Safety
    /// Until the command's completion is reaped or the queue has been dropped, the memory is valid and nobody
    /// else's; for reads only unless the command is a Read, and then others may read it as well.
    pub unsafe fn submit_raw(
        &mut self,
        user: u64,
        command: Command<NonNull<[u8]>>,
    ) -> Result<(), Error> {
        let (command, _) = command.lend(|bytes| Raw(*bytes));
        self.put(Slot { user, buffer: None }, command)
    }

    fn put(&mut self, slot: Slot, command: Command<Raw>) -> Result<(), Error> {
        let index = self.free.pop().ok_or(Error::Full)?;
        self.slots[usize::from(index)] = slot;
        if self.write_directly(&command) {
            self.done.push(index);
            return Ok(());
        }
        let put = self.orders.put(Order { slot: index, command });
        // Places in the ring are at least as many, and vacant ones are known late only if not all are in use:
        // an order is taken before it ends.
        debug_assert!(put.is_ok(), "more orders than slots");
        self.unsent = true;
        Ok(())
    }

    /// Whether a command was a write that the window has taken. It is done then, and durable.
    #[inline]
    fn write_directly(&self, command: &Command<Raw>) -> bool {
        let (By::WindowFirst, Some(window)) = (self.by, &self.thread.window) else { return false };
        let Command::Write { lba, blocks, buffer, .. } = command else { return false };
        // SAFETY: whoever submits a command promises that its memory is valid for reads, and nobody else's to write.
        let buffer = unsafe { buffer.0.as_ref() };
        window.write_blocks(*lba, *blocks, buffer)
    }

    /// Sends what was submitted.
    pub fn commit(&mut self) {
        if !std::mem::replace(&mut self.unsent, false) {
            return;
        }
        self.orders.publish();
        if self.shared.dozing.is_due() {
            self.waker.wake_by_ref();
        }
    }

    /// Sends what was submitted, and reaps what has ended, without waiting: calls `done` for each, and returns how
    /// many there were.
    pub fn poll(&mut self, done: impl FnMut(Completion)) -> usize {
        self.poll_up_to(usize::MAX, done)
    }

    /// As [`Queue::poll`], at most `most`.
    pub fn poll_up_to(&mut self, most: usize, mut done: impl FnMut(Completion)) -> usize {
        self.commit();
        let mut count = 0;
        while count < most && self.outstanding() > 0 {
            let end = match self.ends.take().or_else(|| self.direct_end()) {
                Some(end) => end,
                None if self.shared.gone.load(Ordering::Acquire) => match self.last_end() {
                    Some(end) => end,
                    None => break,
                },
                None => break,
            };
            let slot = std::mem::take(&mut self.slots[usize::from(end.slot)]);
            self.free.push(end.slot);
            count += 1;
            done(Completion { user: slot.user, result: end.result, buffer: slot.buffer });
        }
        count
    }

    /// A write that was done when it was submitted.
    fn direct_end(&mut self) -> Option<End> {
        self.done.pop().map(|slot| End { slot, result: Ok(()) })
    }

    /// The serving side is gone: once its thread has ended, nothing uses the memory of what is outstanding.
    #[cold]
    fn last_end(&mut self) -> Option<End> {
        self.thread.wait_for_end();
        if let Some(end) = self.ends.take() {
            return Some(end);
        }
        let mut slots = 0..u16::try_from(self.slots.len()).unwrap_or(u16::MAX);
        let slot = slots.find(|slot| !self.free.contains(slot))?;
        Some(End { slot, result: Err(Error::Closed) })
    }

    /// Sends what was submitted, and waits until `least` commands have ended (or all that are outstanding), for
    /// `timeout` at most; `None` is for ever. Calls `done` for each, and returns how many there were.
    pub fn wait(
        &mut self,
        least: usize,
        timeout: Option<Duration>,
        done: impl FnMut(Completion),
    ) -> usize {
        self.wait_up_to(least, usize::MAX, timeout, done)
    }

    /// As [`Queue::wait`], at most `most`.
    pub fn wait_up_to(
        &mut self,
        least: usize,
        most: usize,
        timeout: Option<Duration>,
        mut done: impl FnMut(Completion),
    ) -> usize {
        let mut count = self.poll_up_to(most, &mut done);
        let least = least.min(most).min(count + self.outstanding());
        if count >= least {
            return count;
        }
        let start = now_exact();
        let deadline = timeout
            .map(|time| start.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)));
        let mut idle_since = start;
        loop {
            let now = now_exact();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return count;
            }
            let spins = !self.spinner.should_sleep(now - idle_since);
            if spins {
                self.spin(now - idle_since);
            } else {
                let left = deadline.map(|deadline| Duration::from_nanos(deadline - now));
                self.sleep(least - count, left);
                idle_since = now_exact();
            }
            let more = self.poll_up_to(most - count, &mut done);
            count += more;
            if more > 0 && spins {
                self.spinner.hit();
            }
            if count >= least {
                return count;
            }
        }
    }

    /// Looks for ends for a while; `idle` is for how long there were none.
    fn spin(&mut self, idle: Nanos) {
        for _ in 0..SPINS_A_LOOK {
            if self.ends.look() > 0 {
                return;
            }
            std::hint::spin_loop();
        }
        if idle > PATIENCE {
            std::thread::yield_now();
        }
    }

    fn sleep(&mut self, least: usize, timeout: Option<Duration>) {
        if self.arm_for(least) {
            return;
        }
        let asleep = now_exact();
        self.spinner.sleeping();
        self.shared.bell.wait(timeout);
        self.spinner.woke(now_exact() - asleep);
        self.shared.wanted.withdraw();
    }

    /// For event loops: has the queue's descriptor become readable when a command has ended that was not reaped.
    /// True when there is one already, which the descriptor may not tell. Call it again after each time the
    /// descriptor was readable, and reap after that.
    pub fn arm(&mut self) -> bool {
        self.commit();
        !self.done.is_empty() || (self.outstanding() > 0 && self.arm_for(1))
    }

    /// Has the bell ring when `least` can be reaped; true when they can be already.
    fn arm_for(&mut self, least: usize) -> bool {
        let Shared { bell, wanted, gone, .. } = &*self.shared;
        bell.silence();
        wanted.ask(self.ends.count() + least);
        let ready = self.ends.look() >= least || gone.load(Ordering::Acquire);
        if ready {
            wanted.withdraw();
        }
        ready
    }
}

/// How long others may want the CPU in vain.
const PATIENCE: Nanos = 50_000;

impl AsFd for Queue {
    /// What an event loop watches, see [`Queue::arm`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        while self.outstanding() > 0 {
            self.wait(usize::MAX, None, drop);
        }
        self.shared.closing.store(true, Ordering::Release);
        self.waker.wake_by_ref();
    }
}
