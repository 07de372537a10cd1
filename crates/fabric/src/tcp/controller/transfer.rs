//! Data on its way from a host: one R2T for each command, its buffer, and who waits for it.

use core::future::Future;
use core::mem;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use reactor::buffer::Buffer;

use super::Connection;
use crate::error::TransferError;

/// One command's data. Dropped before it is done, its buffer is given back and the data will be dropped as it comes.
pub struct Transfer<'c> {
    connection: &'c Connection,
    tag: u16,
    stage: Stage,
}

enum Stage {
    /// Nothing is asked for yet.
    Idle {
        cid: u16,
        length: u32,
        buffer: Buffer,
    },
    /// The host has been asked.
    Asked,
    Done,
}

impl<'c> Transfer<'c> {
    pub(super) const fn new(
        connection: &'c Connection,
        tag: u16,
        cid: u16,
        length: u32,
        buffer: Buffer,
    ) -> Self {
        Self { connection, tag, stage: Stage::Idle { cid, length, buffer } }
    }
}

impl Future for Transfer<'_> {
    type Output = Result<Buffer, TransferError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { connection, tag, stage } = self.get_mut();
        match mem::replace(stage, Stage::Done) {
            Stage::Idle { .. } if connection.transfers.borrow().closed => {
                return Poll::Ready(Err(TransferError::Closed));
            }
            Stage::Idle { cid, length, buffer } => {
                connection.begin_transfer(*tag, cid, length, buffer);
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

/// The state of one transfer tag.
#[derive(Default)]
enum Tag {
    #[default]
    Idle,
    Active {
        buffer: Buffer,
        digest_ok: bool,
        waiter: Option<Waker>,
        /// The look at which it began.
        since: u32,
    },
    /// The data is to come, and is not wanted.
    Discarded(Option<Waker>),
    Ended(Result<Buffer, TransferError>),
    /// No more is received: the host may have yet to send some of the data.
    Cut,
}

/// Transfers by tag. A tag is the command's slot, so there are never more than the queue's depth.
#[derive(Default)]
pub struct Transfers {
    tags: Vec<Tag>,
    /// None is to begin any more.
    closed: bool,
}

impl Transfers {
    /// Begins a transfer into the start of `buffer`, at look `since`. The tag must be idle.
    pub fn begin(&mut self, tag: u16, buffer: Buffer, since: u32) {
        let index = usize::from(tag);
        if index >= self.tags.len() {
            self.tags.resize_with(index + 1, Tag::default);
        }
        assert!(matches!(self.tags[index], Tag::Idle), "transfer tag {tag} is in use");
        self.tags[index] = Tag::Active { buffer, digest_ok: true, waiter: None, since };
    }

    /// Where bytes at `offset` of a transfer go; `None` when nobody waits for them any more.
    pub fn space(&mut self, tag: u16, offset: usize) -> Option<&mut [u8]> {
        match self.tags.get_mut(usize::from(tag)) {
            Some(Tag::Active { buffer, .. }) => buffer.get_mut(offset..),
            _ => None,
        }
    }

    /// Notes the end of one data PDU, and of the transfer when it is `complete`.
    pub fn end(&mut self, tag: u16, complete: bool, pdu_digest_ok: bool) {
        let Some(transfer) = self.tags.get_mut(usize::from(tag)) else { return };
        if let Tag::Active { digest_ok, .. } = transfer {
            *digest_ok &= pdu_digest_ok;
        }
        if complete && let Tag::Discarded(waiter) = transfer {
            let waiter = waiter.take();
            *transfer = Tag::Idle;
            waiter.into_iter().for_each(Waker::wake);
        } else if complete
            && let Tag::Active { buffer, digest_ok, waiter, .. } = mem::take(transfer)
        {
            *transfer =
                Tag::Ended(if digest_ok { Ok(buffer) } else { Err(TransferError::DataDigest) });
            if let Some(waker) = waiter {
                waker.wake();
            }
        }
    }

    /// How many looks before `now` the oldest transfer began that has not ended.
    pub fn oldest(&self, now: u32) -> Option<u32> {
        let ages = self.tags.iter().filter_map(|transfer| match transfer {
            Tag::Active { since, .. } => Some(now.wrapping_sub(*since)),
            Tag::Idle | Tag::Discarded(_) | Tag::Ended(_) | Tag::Cut => None,
        });
        ages.max()
    }

    /// Gives back the buffer of a transfer that has not ended.
    pub fn discard(&mut self, tag: u16) {
        if let Some(transfer @ Tag::Active { .. }) = self.tags.get_mut(usize::from(tag)) {
            *transfer = Tag::Discarded(None);
        }
    }

    /// Whether the host has been asked for data that somebody waits for, and has not sent it all.
    pub fn is_under_way(&self, tag: u16) -> bool {
        matches!(self.tags.get(usize::from(tag)), Some(Tag::Active { .. }))
    }

    /// Fails every transfer that has not ended.
    pub fn close(&mut self) {
        self.closed = true;
        for transfer in &mut self.tags {
            if let Tag::Active { waiter, .. } | Tag::Discarded(waiter) = transfer {
                let waiter = waiter.take();
                *transfer = Tag::Cut;
                if let Some(waker) = waiter {
                    waker.wake();
                }
            }
        }
    }

    /// Ready when the tag is idle, or its transfer was cut off; false then. What came of it is dropped.
    pub fn poll_rest(&mut self, tag: u16, cx: &mut Context<'_>) -> Poll<bool> {
        match self.tags.get(usize::from(tag)) {
            None | Some(Tag::Idle) => Poll::Ready(true),
            Some(Tag::Cut) => Poll::Ready(false),
            Some(_) => self.poll(tag, cx).map(|_| true),
        }
    }

    /// The transfer's result, once it has ended; the tag is idle again then.
    pub fn poll(&mut self, tag: u16, cx: &mut Context<'_>) -> Poll<Result<Buffer, TransferError>> {
        let transfer = &mut self.tags[usize::from(tag)];
        match mem::take(transfer) {
            Tag::Idle => Poll::Ready(Err(TransferError::Closed)),
            Tag::Ended(result) => Poll::Ready(result),
            Tag::Cut => {
                *transfer = Tag::Cut;
                Poll::Ready(Err(TransferError::Closed))
            }
            Tag::Discarded(_) => {
                *transfer = Tag::Discarded(Some(cx.waker().clone()));
                Poll::Pending
            }
            Tag::Active { buffer, digest_ok, since, .. } => {
                let waiter = Some(cx.waker().clone());
                *transfer = Tag::Active { buffer, digest_ok, waiter, since };
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::future::poll_fn;
    use core::time::Duration;
    use std::net::SocketAddr;

    use reactor::budget::{Account, Ledger};
    use reactor::buffer;
    use reactor::net::{ListenOptions, TcpListener, TcpStream};
    use reactor::turns::{Group, Party};

    use super::*;

    #[test]
    fn a_transfer_that_is_dropped_gives_its_buffer_back_and_keeps_its_tag() {
        reactor::simulate(1, async {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let listener = TcpListener::bind(any, ListenOptions::default()).unwrap();
            let _host = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let account = Account::new(&Ledger::new(1 << 20));
            let connection = Connection::new(stream, account, Party::of(&Group::new())).unwrap();
            let all = buffer::pool().available();

            // Nothing is asked for before it is polled.
            drop(connection.transfer(0, 7, 4096, buffer::alloc(4096).await));
            assert_eq!(buffer::pool().available(), all);
            assert!(connection.rest_of_transfer(0).await, "there is none");

            let mut transfer = connection.transfer(0, 7, 4096, buffer::alloc(4096).await);
            let asked = poll_fn(|cx| Poll::Ready(Pin::new(&mut transfer).poll(cx))).await;
            assert!(asked.is_pending());
            drop(transfer);
            assert_eq!(buffer::pool().available(), all);
            let rest = reactor::timeout(Duration::from_secs(1), connection.rest_of_transfer(0));
            assert!(rest.await.is_err(), "the host has yet to send the data");
            connection.close();
            assert!(!connection.rest_of_transfer(0).await, "it never came");
        });
    }
}
