//! What a controller's connection has yet to send.

use std::io;

use reactor::net::TcpStream;
use stdx::num::{u64_of, usize64};

use super::gather::{Gather, Sent};
use crate::payload::Payload;

/// Read data, responses and R2Ts in sending order, and how much memory they hold.
#[derive(Default)]
pub struct Out {
    gather: Gather<Payload>,
    /// Bytes of memory held.
    held: usize,
    /// Whether any of the data is lent.
    lent: bool,
    /// The socket took less than there was when it was last tried.
    blocked: bool,
}

impl Out {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.gather.is_empty()
    }

    /// Bytes of memory that wait here.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Appends bytes by copy.
    pub fn push_head(&mut self, bytes: &[u8]) {
        self.gather.push(bytes);
    }

    /// Appends data, kept until it is sent.
    pub fn push_payload(&mut self, mut payload: Payload) {
        if !payload.is_empty() {
            if self.blocked {
                payload.give_back();
            }
            self.lent |= matches!(payload, Payload::Loan(_));
            self.held += payload.held();
            self.gather.push_data(payload);
        }
    }

    /// Drops everything unsent: the connection is gone.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Sends as much as the socket takes, up to a turn's share.
    ///
    /// # Errors
    /// The socket's own, other than "would block".
    pub fn send(&mut self, stream: &TcpStream) -> io::Result<Sent> {
        let held = &mut self.held;
        let sent = self.gather.send(
            &(),
            |(), payload| payload.bytes(),
            |slices, _| stream.try_send_vectored(slices),
            |payload| *held -= payload.held(),
        )?;
        self.blocked = sent == Sent::Blocked;
        if sent == Sent::All {
            self.lent = false;
        } else {
            self.settle();
        }
        Ok(sent)
    }

    /// After a partial send: gives back what is lent, as nobody knows when the host takes the rest, and
    /// keeps a logical block whole. Where a region's data was cut in the middle
    /// of a block, the rest of that block is copied, so that a write between this send and the next
    /// cannot give the host half of each.
    fn settle(&mut self) {
        if std::mem::take(&mut self.lent) {
            self.gather.for_each(Payload::give_back);
        }
        let Some((Payload::Region { region, offset, length }, sent)) = self.gather.cut() else {
            return;
        };
        // Regions and formats are aligned, so that block ends fall on multiples of the largest.
        let at = *offset + u64_of(sent);
        let rest = usize64(at.next_multiple_of(BLOCK_BYTES) - at).min(*length - sent);
        let torn = region.bytes(at, rest).unwrap_or_default().to_vec();
        let whole = sent + rest;
        let after = Payload::Region {
            region: region.clone(),
            offset: *offset + u64_of(whole),
            length: *length - whole,
        };
        self.held += torn.len();
        let parts = [Payload::Bytes(torn), after];
        self.gather.replace_front(parts.into_iter().filter(|part| !part.is_empty()));
    }
}

/// The largest logical block, bytes.
const BLOCK_BYTES: u64 = 4096;
