//! Data on its way from a host: one R2T for each command, its buffer, and who waits for it.

use core::task::{Context, Poll, Waker};

use reactor::buffer::Buffer;

/// Why a transfer did not bring its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferError {
    /// A data digest did not match: the command fails, the connection goes on.
    DataDigest,
    /// The connection ended.
    Closed,
}

/// The state of one transfer tag.
#[derive(Default)]
enum Transfer {
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
}

/// Transfers by tag. A tag is the command's slot, so there are never more than the queue's depth.
#[derive(Default)]
pub struct Transfers {
    tags: Vec<Transfer>,
}

impl Transfers {
    /// Begins a transfer into the start of `buffer`, at look `since`. The tag must be idle.
    pub fn begin(&mut self, tag: u16, buffer: Buffer, since: u32) {
        let index = usize::from(tag);
        if index >= self.tags.len() {
            self.tags.resize_with(index + 1, Transfer::default);
        }
        assert!(matches!(self.tags[index], Transfer::Idle), "transfer tag {tag} is in use");
        self.tags[index] = Transfer::Active { buffer, digest_ok: true, waiter: None, since };
    }

    /// Where bytes at `offset` of a transfer go; `None` when nobody waits for them any more.
    pub fn space(&mut self, tag: u16, offset: usize) -> Option<&mut [u8]> {
        match self.tags.get_mut(usize::from(tag)) {
            Some(Transfer::Active { buffer, .. }) => buffer.get_mut(offset..),
            _ => None,
        }
    }

    /// Notes the end of one data PDU, and of the transfer when it is `complete`.
    pub fn end(&mut self, tag: u16, complete: bool, pdu_digest_ok: bool) {
        let Some(transfer) = self.tags.get_mut(usize::from(tag)) else { return };
        if let Transfer::Active { digest_ok, .. } = transfer {
            *digest_ok &= pdu_digest_ok;
        }
        if complete && let Transfer::Discarded(waiter) = transfer {
            let waiter = waiter.take();
            *transfer = Transfer::Ended(Err(TransferError::Closed));
            waiter.into_iter().for_each(Waker::wake);
        } else if complete
            && let Transfer::Active { buffer, digest_ok, waiter, .. } = core::mem::take(transfer)
        {
            *transfer = Transfer::Ended(if digest_ok {
                Ok(buffer)
            } else {
                Err(TransferError::DataDigest)
            });
            if let Some(waker) = waiter {
                waker.wake();
            }
        }
    }

    /// How many looks before `now` the oldest transfer began that has not ended.
    pub fn oldest(&self, now: u32) -> Option<u32> {
        let ages = self.tags.iter().filter_map(|transfer| match transfer {
            Transfer::Active { since, .. } => Some(now.wrapping_sub(*since)),
            Transfer::Idle | Transfer::Discarded(_) | Transfer::Ended(_) => None,
        });
        ages.max()
    }

    /// Gives back the buffer of a transfer that has not ended.
    pub fn discard(&mut self, tag: u16) {
        if let Some(transfer @ Transfer::Active { .. }) = self.tags.get_mut(usize::from(tag)) {
            *transfer = Transfer::Discarded(None);
        }
    }

    /// Fails every transfer that has not ended.
    pub fn close(&mut self) {
        for transfer in &mut self.tags {
            if let Transfer::Active { waiter, .. } | Transfer::Discarded(waiter) = transfer {
                let waiter = waiter.take();
                *transfer = Transfer::Ended(Err(TransferError::Closed));
                if let Some(waker) = waiter {
                    waker.wake();
                }
            }
        }
    }

    /// Ready when the tag is idle; what came of its transfer is dropped.
    pub fn poll_rest(&mut self, tag: u16, cx: &mut Context<'_>) -> Poll<()> {
        if usize::from(tag) >= self.tags.len() {
            return Poll::Ready(());
        }
        self.poll(tag, cx).map(drop)
    }

    /// The transfer's result, once it has ended; the tag is idle again then.
    pub fn poll(&mut self, tag: u16, cx: &mut Context<'_>) -> Poll<Result<Buffer, TransferError>> {
        let transfer = &mut self.tags[usize::from(tag)];
        match core::mem::take(transfer) {
            Transfer::Idle => Poll::Ready(Err(TransferError::Closed)),
            Transfer::Ended(result) => Poll::Ready(result),
            Transfer::Discarded(_) => {
                *transfer = Transfer::Discarded(Some(cx.waker().clone()));
                Poll::Pending
            }
            Transfer::Active { buffer, digest_ok, since, .. } => {
                let waiter = Some(cx.waker().clone());
                *transfer = Transfer::Active { buffer, digest_ok, waiter, since };
                Poll::Pending
            }
        }
    }
}
