//! What a controller's connection has yet to send.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use reactor::net::TcpStream;
use stdx::num::{u64_of, usize64};

use crate::gather::{Gather, Sent};
use crate::limits::SEGMENT_BYTES;
use crate::payload::Payload;
use reactor::budget::Account;

/// Read data, responses and R2Ts in sending order, and how much memory they hold.
pub struct Out {
    gather: Gather<Payload>,
    /// Who answers for the memory.
    account: Rc<Account>,
    /// Bytes of memory that payloads hold.
    data_held: usize,
    /// Bytes ever queued, and ever sent.
    queued: u64,
    sent: u64,
    /// Where the responses that are not sent whole end, counted as `queued`.
    responses: VecDeque<u64>,
    /// Whether any of the data is lent.
    lent: bool,
    /// The socket took less than there was when it was last tried.
    blocked: bool,
}

impl Out {
    #[must_use]
    pub fn new(account: Rc<Account>) -> Self {
        Self {
            gather: Gather::default(),
            account,
            data_held: 0,
            queued: 0,
            sent: 0,
            responses: VecDeque::new(),
            lent: false,
            blocked: false,
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.gather.is_empty()
    }

    #[must_use]
    pub const fn account(&self) -> &Rc<Account> {
        &self.account
    }

    /// Has somebody else answer for what waits here.
    pub fn charge_to(&mut self, account: Rc<Account>) {
        account.charge(self.held());
        let before = core::mem::replace(&mut self.account, account);
        before.release(self.held());
    }

    /// Bytes of memory that wait here.
    #[inline]
    #[must_use]
    pub fn held(&self) -> usize {
        self.data_held + self.gather.unsent_heads()
    }

    /// Responses that have not been sent whole.
    #[inline]
    #[must_use]
    pub fn responses(&self) -> usize {
        self.responses.len()
    }

    /// Bytes ever sent.
    #[must_use]
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Appends bytes by copy.
    pub fn push_head(&mut self, bytes: &[u8]) {
        self.account.charge(bytes.len());
        self.queued += u64_of(bytes.len());
        self.gather.push(bytes);
    }

    /// Appends data, kept until it is sent.
    pub fn push_payload(&mut self, mut payload: Payload) {
        if !payload.is_empty() {
            if self.blocked {
                payload.give_back();
            }
            self.lent |= matches!(payload, Payload::PinnedRead(_));
            let held = SEGMENT_BYTES + payload.held();
            self.account.charge(held);
            self.data_held += held;
            self.queued += u64_of(payload.len());
            self.gather.push_data(payload);
        }
    }

    /// Notes that a response ends here.
    pub fn end_response(&mut self) {
        self.responses.push_back(self.queued);
    }

    /// Drops everything unsent: the connection is gone.
    pub fn clear(&mut self) {
        self.account.release(self.held());
        *self = Self::new(Rc::clone(&self.account));
    }

    /// Sends as much as the socket takes, `most` bytes at most.
    ///
    /// # Errors
    /// The socket's own, other than "would block".
    pub fn send(&mut self, stream: &TcpStream, most: usize) -> io::Result<Sent> {
        let before = self.held();
        let (data_held, sent_bytes) = (&mut self.data_held, &mut self.sent);
        let outcome = self.gather.send_share(
            most,
            &(),
            |(), payload| payload.bytes(),
            |slices, _| {
                let sent = stream.try_send_vectored(slices)?;
                *sent_bytes += u64_of(sent);
                Ok(sent)
            },
            |payload| *data_held -= SEGMENT_BYTES + payload.held(),
        );
        if matches!(outcome, Ok(Sent::All)) {
            self.lent = false;
            self.responses.clear();
        } else {
            self.settle();
            while self.responses.front().is_some_and(|&end| end <= self.sent) {
                self.responses.pop_front();
            }
        }
        self.blocked = matches!(outcome, Ok(Sent::Blocked));
        let after = self.held();
        if after < before {
            self.account.release(before - after);
        } else {
            // The rest of a block that was cut is a copy.
            self.account.charge(after - before);
        }
        outcome
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
        self.data_held += torn.len();
        if !torn.is_empty() && !after.is_empty() {
            self.data_held += SEGMENT_BYTES;
        }
        let parts = [Payload::Bytes(torn), after];
        self.gather.replace_front(parts.into_iter().filter(|part| !part.is_empty()));
    }
}

/// The largest logical block, bytes.
const BLOCK_BYTES: u64 = 4096;
