//! Data on its way from a host: one RDMA_READ for each command, its buffer, and who waits for it.

use core::future::Future;
use core::mem;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use reactor::buffer::Buffer;
use stdx::num::usize32;
use verbs::Remote;

use super::{Connection, Work};
use crate::error::TransferError;
use crate::rdma::staging::{Place, Ticket};

/// One command's data. Dropped before it is done, its buffer is given back and the data will be dropped as it comes.
pub struct Transfer<'c> {
    connection: &'c Connection,
    tag: u16,
    stage: Stage,
}

enum Stage {
    /// The card has not been asked: it waits for registered memory.
    Idle {
        cid: u16,
        length: u32,
        buffer: Buffer,
        ticket: Ticket,
    },
    /// The card has been asked.
    Asked,
    Done,
}

impl<'c> Transfer<'c> {
    pub(super) fn new(
        connection: &'c Connection,
        tag: u16,
        cid: u16,
        length: u32,
        buffer: Buffer,
    ) -> Self {
        let ticket = Ticket::new(&connection.share);
        Self { connection, tag, stage: Stage::Idle { cid, length, buffer, ticket } }
    }
}

impl Future for Transfer<'_> {
    type Output = Result<Buffer, TransferError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { connection, tag, stage } = self.get_mut();
        match mem::replace(stage, Stage::Done) {
            Stage::Idle { cid, length, buffer, mut ticket } => {
                if connection.is_closed() || connection.transfers.borrow().closed {
                    return Poll::Ready(Err(TransferError::Closed));
                }
                let Poll::Ready(place) = ticket.poll_take(usize32(length), cx) else {
                    *stage = Stage::Idle { cid, length, buffer, ticket };
                    return Poll::Pending;
                };
                connection.begin_read(*tag, cid, place, buffer)?;
            }
            Stage::Asked => {}
            Stage::Done => return Poll::Ready(Err(TransferError::Closed)),
        }
        let ended = connection.transfers.borrow_mut().poll(*tag, cx);
        if ended.is_pending() {
            *stage = Stage::Asked;
        }
        ended
    }
}

impl Drop for Transfer<'_> {
    fn drop(&mut self) {
        if matches!(self.stage, Stage::Asked) {
            self.connection.transfers.borrow_mut().discard(self.tag);
        }
    }
}

impl Connection {
    /// Has the card read what a command named, as much as the place has room for.
    fn begin_read(
        &self,
        tag: u16,
        cid: u16,
        place: Place,
        buffer: Buffer,
    ) -> Result<(), TransferError> {
        let at = place.at();
        let from = {
            let mut named = self.named.borrow_mut();
            let named = named.get_mut(&cid).ok_or(TransferError::Closed)?;
            if at.length > usize32(named.keyed.length) || self.transfers.borrow().is_busy(tag) {
                return Err(TransferError::Closed);
            }
            named.reading = true;
            Remote { address: named.keyed.address, key: named.keyed.key }
        };
        // Each command reads or is answered, and the queue is long enough for both.
        let posted = match self.work_free.get().checked_sub(1) {
            Some(left) => {
                self.work_free.set(left);
                self.with(|endpoint| endpoint.post_read(Work::Read.id(tag), at, from))
            }
            None => Err(std::io::Error::other("the send queue is full")),
        };
        if let Err(error) = posted {
            self.fail(error.to_string());
            return Err(TransferError::Closed);
        }
        self.transfers.borrow_mut().begin(tag, Reading { cid, place, buffer: Some(buffer) });
        Ok(())
    }

    /// Notes the end of a read.
    pub(super) fn end_read(&self, tag: u16, is_ok: bool) {
        let Some(reading) = self.transfers.borrow_mut().take_read(tag) else { return };
        let Reading { cid, place, buffer } = reading;
        let brought = match buffer {
            Some(mut buffer) if is_ok => {
                let at = place.at();
                let copied = self.with(|endpoint| {
                    endpoint.shared().copy_out(at.offset, &mut buffer[..at.length]);
                    Ok(())
                });
                self.party.borrow().spend(at.length);
                copied.map(|()| buffer).map_err(|_| TransferError::Closed)
            }
            _ => Err(TransferError::Closed),
        };
        drop(place);
        self.transfers.borrow_mut().end(tag, brought);
        self.end_reading(cid);
    }
}

/// What the card reads.
struct Reading {
    cid: u16,
    /// The card's until it says so.
    place: Place,
    /// Where it goes; `None` when nobody waits for it any more.
    buffer: Option<Buffer>,
}

#[derive(Default)]
struct Tag {
    reading: Option<Reading>,
    ended: Option<Result<Buffer, TransferError>>,
    waiter: Option<Waker>,
}

/// Transfers by tag. A tag is the command's slot, so there are never more than the queue's depth.
#[derive(Default)]
pub(super) struct Transfers {
    tags: Vec<Tag>,
    /// None is to begin any more.
    closed: bool,
}

impl Transfers {
    pub fn is_busy(&self, tag: u16) -> bool {
        self.tags.get(usize::from(tag)).is_some_and(|tag| tag.reading.is_some())
    }

    fn begin(&mut self, tag: u16, reading: Reading) {
        let index = usize::from(tag);
        if index >= self.tags.len() {
            self.tags.resize_with(index + 1, Tag::default);
        }
        self.tags[index] = Tag { reading: Some(reading), ended: None, waiter: None };
    }

    fn take_read(&mut self, tag: u16) -> Option<Reading> {
        self.tags.get_mut(usize::from(tag))?.reading.take()
    }

    /// Notes what came of a read, for whoever waits.
    fn end(&mut self, tag: u16, brought: Result<Buffer, TransferError>) {
        let Some(tag) = self.tags.get_mut(usize::from(tag)) else { return };
        // Who was told that it failed is not told again.
        tag.ended.get_or_insert(brought);
        if let Some(waiter) = tag.waiter.take() {
            waiter.wake();
        }
    }

    /// Gives back the buffer of a transfer that has not ended.
    fn discard(&mut self, tag: u16) {
        if let Some(tag) = self.tags.get_mut(usize::from(tag))
            && let Some(reading) = &mut tag.reading
        {
            reading.buffer = None;
        }
    }

    /// Fails every transfer that has not ended. What the card reads it reads to its end.
    pub fn close(&mut self) {
        self.closed = true;
        for tag in &mut self.tags {
            if let Some(reading) = &mut tag.reading {
                reading.buffer = None;
                tag.ended = Some(Err(TransferError::Closed));
            }
            if let Some(waiter) = tag.waiter.take() {
                waiter.wake();
            }
        }
    }

    /// Frees what the card read into: it is done with all of it.
    pub fn forget(&mut self) {
        self.tags.clear();
    }

    /// Ready when the tag is idle; what came of its transfer is dropped.
    pub fn poll_rest(&mut self, tag: u16, cx: &mut Context<'_>) -> Poll<()> {
        let closed = self.closed;
        let Some(tag) = self.tags.get_mut(usize::from(tag)) else { return Poll::Ready(()) };
        if tag.reading.is_some() && !closed {
            tag.waiter = Some(cx.waker().clone());
            return Poll::Pending;
        }
        tag.ended = None;
        Poll::Ready(())
    }

    /// The transfer's result, once it has ended.
    fn poll(&mut self, tag: u16, cx: &mut Context<'_>) -> Poll<Result<Buffer, TransferError>> {
        let Some(tag) = self.tags.get_mut(usize::from(tag)) else {
            return Poll::Ready(Err(TransferError::Closed));
        };
        match tag.ended.take() {
            Some(result) => Poll::Ready(result),
            None => {
                tag.waiter = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
