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
    },
    Ended(Result<Buffer, TransferError>),
}

/// Transfers by tag. A tag is the command's slot, so there are never more than the queue's depth.
#[derive(Default)]
pub struct Transfers {
    tags: Vec<Transfer>,
}

impl Transfers {
    /// Begins a transfer into the start of `buffer`. The tag must be idle.
    pub fn begin(&mut self, tag: u16, buffer: Buffer) {
        let index = usize::from(tag);
        if index >= self.tags.len() {
            self.tags.resize_with(index + 1, Transfer::default);
        }
        assert!(matches!(self.tags[index], Transfer::Idle), "transfer tag {tag} is in use");
        self.tags[index] = Transfer::Active { buffer, digest_ok: true, waiter: None };
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
        if complete
            && let Transfer::Active { buffer, digest_ok, waiter } = core::mem::take(transfer)
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

    /// Fails every transfer that has not ended.
    pub fn close(&mut self) {
        for transfer in &mut self.tags {
            if let Transfer::Active { waiter, .. } = transfer {
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
            Transfer::Active { buffer, digest_ok, .. } => {
                let waiter = Some(cx.waker().clone());
                *transfer = Transfer::Active { buffer, digest_ok, waiter };
                Poll::Pending
            }
        }
    }
}
