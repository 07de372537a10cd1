//! A pair of rings between two tasks, mostly of two reactors: bounded, and without a lock or an atomic
//! read-modify-write. What one end sends the other receives, in order. An end that has nothing to receive waits as a
//! task, and is woken by the other's [`flush`](End::flush) or its end.

use crate::concurrent::Arc;
use crate::spsc::{Doze, Putter, Taker, ring};
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

/// An end: sends `Out`, receives `In`.
#[derive(Debug)]
pub struct End<Out, In> {
    out: Putter<Out>,
    inward: Taker<In>,
    sides: Arc<[Side; 2]>,
    /// Which of the sides is its own.
    own: usize,
}

/// How the other end wakes this one.
#[derive(Debug, Default)]
struct Side {
    dozing: Doze,
    waker: OnceLock<Waker>,
}

/// Two ends, with room for so many messages each way.
#[must_use]
pub fn duplex<A: Send, B: Send>(there: usize, back: usize) -> (End<A, B>, End<B, A>) {
    let (there, back) = (ring(there), ring(back));
    let sides = Arc::new(<[Side; 2]>::default());
    // Rare: once for both.
    let first = End { out: there.0, inward: back.1, sides: Arc::clone(&sides), own: 0 };
    (first, End { out: back.0, inward: there.1, sides, own: 1 })
}

impl<Out, In> End<Out, In> {
    /// Puts a message behind those before; [`flush`](Self::flush) shows it to the other end.
    ///
    /// # Errors
    /// The message, when there is no room.
    pub fn send(&mut self, message: Out) -> Result<(), Out> {
        self.out.put(message)
    }

    /// Shows the other end what was sent, and wakes it if it waits.
    pub fn flush(&self) {
        self.out.publish();
        self.rouse();
    }

    fn rouse(&self) {
        let other = &self.sides[1 - self.own];
        if other.dozing.is_due()
            && let Some(waker) = other.waker.get()
        {
            waker.wake_by_ref();
        }
    }

    /// The next message, if there is one.
    pub fn receive(&mut self) -> Option<In> {
        self.inward.take()
    }

    /// Whether the other end is gone, and all it sent was received.
    pub fn has_ended(&mut self) -> bool {
        self.inward.is_abandoned() && self.inward.look() == 0
    }

    /// Waits until there is something to receive, or the other end is gone. One task waits at an end, the same one for
    /// ever.
    pub fn poll_receivable(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.is_receivable() {
            return Poll::Ready(());
        }
        let Side { dozing, waker } = &self.sides[self.own];
        let waker = waker.get_or_init(|| cx.waker().clone());
        debug_assert!(cfg!(loom) || waker.will_wake(cx.waker()), "one task waits at an end");
        dozing.doze();
        // Sent before the other end could see that.
        if self.is_receivable() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn is_receivable(&mut self) -> bool {
        self.inward.look() > 0 || self.inward.is_abandoned()
    }
}

impl<Out, In> Drop for End<Out, In> {
    fn drop(&mut self) {
        self.out.leave();
        self.rouse();
    }
}

#[cfg(loom)]
#[cfg(test)]
mod loom_tests {
    use super::duplex;
    use crate::concurrent::explore;
    use loom::future::block_on;
    use loom::sync::Arc;
    use loom::thread;
    use std::future::poll_fn;
    use std::task::Poll;

    /// One end asks twice and waits for each answer; the other answers until the first is gone.
    #[test]
    fn loom_what_is_sent_is_received_and_answered() {
        explore(|| {
            let (mut asks, mut answers) = duplex::<u32, u32>(2, 2);
            let answering = thread::spawn(move || {
                block_on(poll_fn(|cx| {
                    loop {
                        while let Some(n) = answers.receive() {
                            answers.send(n + 10).unwrap();
                            answers.flush();
                        }
                        if answers.has_ended() {
                            return Poll::Ready(());
                        }
                        if answers.poll_receivable(cx).is_pending() {
                            return Poll::Pending;
                        }
                    }
                }));
            });
            asks.send(1).unwrap();
            asks.flush();
            let answer = block_on(poll_fn(|cx| match asks.receive() {
                Some(answer) => Poll::Ready(answer),
                None => match asks.poll_receivable(cx) {
                    Poll::Ready(()) => Poll::Ready(asks.receive().unwrap()),
                    Poll::Pending => Poll::Pending,
                },
            }));
            assert_eq!(answer, 11);
            drop(asks);
            answering.join().unwrap();
        });
    }

    #[test]
    fn loom_an_end_hears_that_the_other_is_gone_after_all_it_sent() {
        explore(|| {
            let (mut first, mut second) = duplex::<Arc<()>, ()>(2, 1);
            let value = Arc::new(());
            let theirs = Arc::clone(&value);
            let sending = thread::spawn(move || {
                first.send(theirs).unwrap();
                drop(first);
            });
            let mut received = 0;
            block_on(poll_fn(|cx| {
                loop {
                    while second.receive().is_some() {
                        received += 1;
                    }
                    if second.has_ended() {
                        return Poll::Ready(());
                    }
                    if second.poll_receivable(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
            }));
            sending.join().unwrap();
            assert_eq!(received, 1);
            assert_eq!(Arc::strong_count(&value), 1, "nothing is left in the rings");
        });
    }
}
