//! What a controller's connection has yet to send, and what is on its way.

use std::collections::VecDeque;
use std::rc::Rc;

use nvme::cqe::Cqe;
use nvme::rdma::Keyed;
use reactor::budget::Account;

use crate::limits::SEGMENT_BYTES;
use crate::payload::Payload;
use crate::rdma::staging::Place;

/// A response, with the data before it.
pub struct Reply {
    pub cqe: Cqe,
    pub data: Option<(Payload, Keyed)>,
    /// The key that is to be invalid then.
    pub invalidate: Option<u32>,
}

impl Reply {
    /// What it counts for: data goes through registered memory, wherever it lies.
    fn charge(&self) -> usize {
        SEGMENT_BYTES + self.data.as_ref().map_or(0, |(payload, _)| payload.len())
    }
}

/// A response on its way.
struct Sent {
    charge: usize,
    /// Places in the send queue.
    work: u32,
    /// Its data, until the card is done with it.
    _place: Option<Place>,
}

/// Responses in sending order.
pub struct Out {
    queue: VecDeque<Reply>,
    /// Those on their way, by where they are in the connection's memory.
    sent: Vec<Option<Sent>>,
    free: Vec<u16>,
    /// Who answers for the memory.
    account: Rc<Account>,
    held: usize,
}

impl Out {
    /// Room for so many responses on their way.
    pub fn new(account: Rc<Account>, responses: u16) -> Self {
        Self {
            queue: VecDeque::new(),
            sent: (0..responses).map(|_| None).collect(),
            free: (0..responses).rev().collect(),
            account,
            held: 0,
        }
    }

    /// Nothing waits, and nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.free.len() == self.sent.len()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Responses that wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Bytes of memory that wait, or are on their way.
    pub const fn held(&self) -> usize {
        self.held
    }

    pub const fn account(&self) -> &Rc<Account> {
        &self.account
    }

    /// Has somebody else answer for what waits here.
    pub fn charge_to(&mut self, account: Rc<Account>) {
        account.charge(self.held);
        let before = core::mem::replace(&mut self.account, account);
        before.release(self.held);
    }

    pub fn push(&mut self, reply: Reply) {
        let charge = reply.charge();
        self.account.charge(charge);
        self.held += charge;
        self.queue.push_back(reply);
    }

    /// The first that waits.
    pub fn front(&self) -> Option<&Reply> {
        self.queue.front()
    }

    /// Gives back what is lent: nobody knows when it will be sent.
    pub fn give_back(&mut self) {
        for reply in &mut self.queue {
            if let Some((payload, _)) = &mut reply.data {
                payload.give_back();
            }
        }
    }

    /// Where the next response goes; `None` when all are on their way.
    pub fn next_free(&self) -> Option<u16> {
        self.free.last().copied()
    }

    /// Notes that the first is on its way, as the [next](Self::next_free): `work` requests, its data in `place`.
    pub fn start(&mut self, place: Option<Place>, work: u32) {
        let (Some(reply), Some(index)) = (self.queue.pop_front(), self.free.pop()) else { return };
        let sent = Sent { charge: reply.charge(), work, _place: place };
        self.sent[usize::from(index)] = Some(sent);
    }

    /// Notes that one is with the host; how many places of the send queue that frees.
    pub fn end(&mut self, index: u16) -> u32 {
        let Some(sent) = self.sent.get_mut(usize::from(index)).and_then(Option::take) else {
            return 0;
        };
        self.free.push(index);
        self.held -= sent.charge.min(self.held);
        self.account.release(sent.charge);
        sent.work
    }

    /// Drops what waits: the connection is gone. What is on its way is kept, and counts no more.
    pub fn clear(&mut self) {
        self.account.release(self.held);
        self.held = 0;
        self.queue.clear();
        self.sent.iter_mut().flatten().for_each(|sent| sent.charge = 0);
    }

    /// Frees what was on its way: the card is done with all of it.
    pub fn forget(&mut self) {
        self.sent.clear();
        self.free.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdma::staging::Staging;
    use nvme::status::Status;
    use reactor::budget::Ledger;

    fn reply(length: usize) -> Reply {
        let keyed = Keyed { address: 0, length: 1 << 20, key: 7, invalidate: true };
        let data = (length > 0).then(|| (Payload::Bytes(vec![0; length]), keyed));
        Reply { cqe: Cqe::new(1, Status::SUCCESS), data, invalidate: Some(7) }
    }

    #[test]
    fn what_is_on_its_way_counts_until_it_is_there() {
        let (ledger, staging) = (Ledger::new(1 << 20), Staging::new(1 << 20));
        let account = Account::new(&ledger);
        let mut out = Out::new(Rc::clone(&account), 2);
        out.push(reply(4096));
        out.push(reply(0));
        assert_eq!((out.waiting(), account.held()), (2, 4096 + 2 * SEGMENT_BYTES));
        let first = out.next_free().unwrap();
        out.start(staging.try_take(4096), 2);
        out.start(None, 1);
        assert_eq!((out.next_free(), out.waiting(), out.is_idle()), (None, 0, false));
        assert_eq!(out.held(), 4096 + 2 * SEGMENT_BYTES);
        assert_eq!((out.end(first), out.next_free()), (2, Some(first)));
        assert_eq!((out.end(first), account.held()), (0, SEGMENT_BYTES));
        assert!(staging.try_take(1 << 20).is_some());
    }

    /// The host is gone, and the card is not done yet.
    #[test]
    fn memory_of_what_is_on_its_way_is_kept_when_the_connection_ends() {
        let (ledger, staging) = (Ledger::new(1 << 20), Staging::new(1 << 20));
        let account = Account::new(&ledger);
        let mut out = Out::new(Rc::clone(&account), 2);
        out.push(reply(4096));
        out.push(reply(4096));
        let index = out.next_free().unwrap();
        out.start(staging.try_take(4096), 2);
        out.clear();
        assert_eq!((account.held(), out.waiting()), (0, 0));
        assert!(staging.try_take(1 << 20).is_none());
        // It may say so late.
        assert_eq!((out.end(index), account.held()), (2, 0));
        out.forget();
        assert!(staging.try_take(1 << 20).is_some());
    }
}
