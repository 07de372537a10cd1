//! Requests on their way to a shard of another reactor, and back.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use stdx::num::usize64;

use crate::canary::{self, Canary};
use crate::door::gone;
use crate::error::Result;
use crate::limits::{PARCEL_BYTES_KEPT, PARCELS_KEPT};
use crate::shard::{Copy, Shard};
use crate::volume::State;
use reactor::across::Lock;

/// What is asked of the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Read,
    Write,
    Punch,
    /// From this place of that volume to where the parcel says.
    Copy {
        from: u64,
    },
}

/// One request, with the data it moves.
#[derive(Debug)]
pub struct Parcel {
    /// `None` while it waits to be used again.
    volume: Option<Arc<State>>,
    /// What is copied from.
    pub source: Option<Arc<State>>,
    request: Request,
    offset: u64,
    length: u64,
    /// What is written, or was read.
    pub bytes: Vec<u8>,
    /// Where the sender waits.
    back: Arc<Back>,
}

/// Where a parcel comes back to.
#[derive(Debug, Default)]
struct Back {
    state: Lock<Returned>,
}

#[derive(Debug, Default)]
struct Returned {
    parcel: Option<(Parcel, Result<()>)>,
    waker: Option<Waker>,
    /// The sender is gone: its command was aborted, or its queue ended.
    forgotten: bool,
    /// The hand that attends to it.
    hand: Option<Waker>,
}

/// The way from all reactors to one.
#[derive(Debug, Default)]
pub struct Lane {
    state: Lock<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    waiting: VecDeque<Parcel>,
    /// Hands with nothing to do.
    idle: Vec<Waker>,
    /// Parcels to be used again.
    spare: Vec<Parcel>,
    closed: bool,
}

impl Lane {
    /// A parcel without data.
    pub fn parcel(&self, to: &Arc<State>, request: Request, offset: u64, length: u64) -> Parcel {
        let volume = Some(Arc::clone(to));
        match self.state.lock().spare.pop() {
            Some(mut parcel) => {
                (parcel.volume, parcel.request) = (volume, request);
                (parcel.offset, parcel.length) = (offset, length);
                parcel
            }
            None => {
                let (bytes, back) = (Vec::new(), Arc::default());
                Parcel { volume, source: None, request, offset, length, bytes, back }
            }
        }
    }

    /// Sends a parcel, awaits it back, and lets `take` have the bytes if what was asked was done.
    pub async fn carry(&self, parcel: Parcel, take: impl FnOnce(&[u8])) -> Result<()> {
        let back = Arc::clone(&parcel.back);
        {
            let mut state = self.state.lock();
            if state.closed {
                return Err(gone());
            }
            state.waiting.push_back(parcel);
            let hand = state.idle.pop();
            drop(state);
            if let Some(hand) = hand {
                hand.wake();
            }
        }
        let (parcel, done) = Awaited { back: &back, arrived: false }.await;
        if done.is_ok() {
            take(&parcel.bytes);
        }
        self.keep(parcel);
        done
    }

    fn keep(&self, mut parcel: Parcel) {
        (parcel.volume, parcel.source) = (None, None);
        parcel.bytes.clear();
        parcel.bytes.shrink_to(PARCEL_BYTES_KEPT);
        let mut state = self.state.lock();
        if state.spare.len() < PARCELS_KEPT {
            state.spare.push(parcel);
        }
    }

    /// The next parcel; `None` when there will be none.
    async fn next(&self) -> Option<Parcel> {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            match state.waiting.pop_front() {
                Some(parcel) => Poll::Ready(Some(parcel)),
                None if state.closed => Poll::Ready(None),
                None => {
                    state.idle.push(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Refuses what waits and what comes, and lets the hands go.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let (waiting, idle) = (std::mem::take(&mut state.waiting), std::mem::take(&mut state.idle));
        state.spare.clear();
        drop(state);
        waiting.into_iter().for_each(|parcel| parcel.send_back(Err(gone())));
        idle.into_iter().for_each(Waker::wake);
    }
}

/// On the shard's reactor: attends to one parcel at a time until the lane is closed.
pub async fn attend(lane: Arc<Lane>, shard: Rc<Shard>) {
    while let Some(parcel) = lane.next().await {
        let mut opened = Opened(Some(parcel));
        opened.attend(&shard).await;
    }
}

/// A parcel that goes back in any case: should its hand end with the reactor, as refused.
struct Opened(Option<Parcel>);

impl Opened {
    async fn attend(&mut self, shard: &Shard) {
        let Some(parcel) = &mut self.0 else { return };
        let back = Arc::clone(&parcel.back);
        let done = unless_forgotten(&back, parcel.execute(shard)).await;
        // What was given up half way goes back to nobody.
        if let Some(parcel) = self.0.take() {
            parcel.send_back(done.unwrap_or_else(|| Err(gone())));
        }
    }
}

/// Attends to what is asked until its sender is gone: from then on nothing of it happens. Otherwise
/// a write that was given up could come after, and over, one its sender was told is done.
async fn unless_forgotten<T>(back: &Back, attending: impl Future<Output = T>) -> Option<T> {
    let mut attending = pin!(attending);
    poll_fn(|cx| {
        {
            let mut state = back.state.lock();
            if state.forgotten && !canary::has(Canary::AttendsForgotten) {
                return Poll::Ready(None);
            }
            match &mut state.hand {
                Some(hand) => hand.clone_from(cx.waker()),
                hand => *hand = Some(cx.waker().clone()),
            }
        }
        attending.as_mut().poll(cx).map(Some)
    })
    .await
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(parcel) = self.0.take() {
            parcel.send_back(Err(gone()));
        }
    }
}

impl Parcel {
    async fn execute(&mut self, shard: &Shard) -> Result<()> {
        let volume = self.volume.as_ref().ok_or_else(gone)?;
        match self.request {
            Request::Read => {
                self.bytes.resize(usize64(self.length), 0);
                shard.read_bytes(volume, self.offset, &mut self.bytes).await
            }
            Request::Write => shard.write_bytes(volume, self.offset, &self.bytes).await,
            Request::Punch => shard.punch_bytes(volume, self.offset, self.length).await,
            Request::Copy { from } => {
                let source = self.source.as_ref().ok_or_else(gone)?;
                let copy = Copy { from, to: self.offset, length: self.length };
                shard.copy_bytes(volume, source, copy).await
            }
        }
    }

    fn send_back(self, done: Result<()>) {
        let back = Arc::clone(&self.back);
        let mut state = back.state.lock();
        state.hand = None;
        if state.forgotten {
            return;
        }
        state.parcel = Some((self, done));
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A parcel on its way.
struct Awaited<'a> {
    back: &'a Back,
    arrived: bool,
}

impl Future for Awaited<'_> {
    type Output = (Parcel, Result<()>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.back.state.lock();
        if let Some(returned) = state.parcel.take() {
            drop(state);
            self.arrived = true;
            return Poll::Ready(returned);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        if self.arrived {
            return;
        }
        let mut state = self.back.state.lock();
        state.waker = None;
        // One that came back for nobody goes; one that is still out is given up, and goes when it
        // comes.
        let returned = state.parcel.take();
        state.forgotten = returned.is_none();
        let hand = state.hand.take();
        drop(state);
        drop(returned);
        if let Some(hand) = hand {
            hand.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::time::Duration;

    /// A write whose command had been aborted while it waited for its turn once came after, and
    /// over, what the host wrote next.
    #[test]
    fn what_is_given_up_does_not_happen_any_more() {
        reactor::simulate(1, async {
            let back = Arc::<Back>::default();
            let done = Rc::new(Cell::new(false));
            let hand = reactor::spawn({
                let (back, done) = (Arc::clone(&back), Rc::clone(&done));
                async move {
                    let attending = async {
                        reactor::sleep(Duration::from_millis(1)).await;
                        done.set(true);
                    };
                    unless_forgotten(&back, attending).await
                }
            });
            reactor::sleep(Duration::from_micros(1)).await;
            drop(Awaited { back: &back, arrived: false });
            assert_eq!(hand.await, Some(None));
            assert!(!done.get());
        });
    }
}
