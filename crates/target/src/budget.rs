//! What each host may have of a reactor: memory, places for commands, and work that others wait behind.
//!
//! A host is who its Connect says it is; whoever has not connected to a subsystem, or to the discovery service
//! only, is its address. Each kind of thing has a [`Ledger`], in which each host has an account: see there for who
//! gets how much. The four are apart so that none waits for what only the other gives back:
//!
//! - `data`: bytes that go back when the *host* does something: data asked for by R2T, data read and not yet
//!   taken, responses not yet taken.
//! - `capsules`: bytes that came unasked, in a capsule, and go back when their command is done, which takes nothing
//!   of the host any more.
//! - `work`: pieces of commands that move no data (Verify, Write Zeroes, Copy, Dataset Management).
//! - `entries`: entries of connected queues, and so the commands and tasks there can be.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::{Rc, Weak};

use reactor::budget::{Account, Grant, Ledger};

use crate::limits::{
    CAPSULES_HELD_BYTES, DATA_HELD_BYTES, QUEUE_CHARGE_MIN, QUEUE_ENTRIES_MAX, WORK_PIECES_MAX,
};

/// Who has a share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Who {
    Address(IpAddr),
    Host(String),
}

/// What there is on one reactor.
struct Budget {
    data: Rc<Ledger>,
    capsules: Rc<Ledger>,
    work: Rc<Ledger>,
    entries: Rc<Ledger>,
    shares: RefCell<HashMap<Who, Weak<Share>>>,
}

thread_local!(static BUDGET: Rc<Budget> = Rc::new(Budget {
    data: Ledger::new(DATA_HELD_BYTES),
    capsules: Ledger::new(CAPSULES_HELD_BYTES),
    work: Ledger::new(WORK_PIECES_MAX),
    entries: Ledger::new(QUEUE_ENTRIES_MAX),
    shares: RefCell::default(),
}));

/// How much there is of one thing on this reactor, and how much of it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub name: &'static str,
    pub used: usize,
    pub limit: usize,
    /// How often somebody was refused it, or had to wait for it.
    pub missed: u64,
}

/// What this reactor's hosts use.
#[must_use]
pub fn usage() -> Vec<Usage> {
    BUDGET.with(|budget| {
        let of = [
            ("data_bytes", &budget.data),
            ("capsule_bytes", &budget.capsules),
            ("work_pieces", &budget.work),
            ("queue_entries", &budget.entries),
        ];
        let usage = of.map(|(name, ledger)| Usage {
            name,
            used: ledger.used(),
            limit: ledger.total(),
            missed: ledger.missed(),
        });
        usage.to_vec()
    })
}

/// Has this reactor's queues have no more entries than this, together: each may take memory.
pub fn set_queue_entries(entries: usize) {
    BUDGET.with(|budget| budget.entries.set_total(entries.min(QUEUE_ENTRIES_MAX)));
}

/// What one host has of this reactor, as long as it has a connection to it.
#[derive(Debug)]
pub struct Share {
    who: Who,
    pub data: Rc<Account>,
    pub capsules: Rc<Account>,
    pub work: Rc<Account>,
    pub entries: Rc<Account>,
}

impl Share {
    /// The share of whoever is at an address and has not said who it is.
    #[must_use]
    pub fn of_address(address: IpAddr) -> Rc<Self> {
        Self::of(Who::Address(address))
    }

    /// The share of a host by its NQN.
    #[must_use]
    pub fn of_host(nqn: &str) -> Rc<Self> {
        Self::of(Who::Host(nqn.to_owned()))
    }

    fn of(who: Who) -> Rc<Self> {
        BUDGET.with(|budget| {
            let mut shares = budget.shares.borrow_mut();
            if let Some(share) = shares.get(&who).and_then(Weak::upgrade) {
                return share;
            }
            let share = Rc::new(Self {
                who: who.clone(),
                data: Account::new(&budget.data),
                capsules: Account::new(&budget.capsules),
                work: Account::new(&budget.work),
                entries: Account::new(&budget.entries),
            });
            shares.insert(who, Rc::downgrade(&share));
            share
        })
    }

    /// A queue of `entries` entries; `None` where that is more than this host may have of this reactor.
    #[must_use]
    pub fn seat(self: &Rc<Self>, entries: u16) -> Option<Seat> {
        let entries = self.entries.try_take(usize::from(entries.max(QUEUE_CHARGE_MIN)))?;
        Some(Seat { share: Rc::clone(self), _entries: entries })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // A thread that ends has no budget any more.
        let _ = BUDGET.try_with(|budget| {
            let mut shares = budget.shares.borrow_mut();
            // Another one may have taken its place between the last reference and now.
            if shares.get(&self.who).is_some_and(|share| share.strong_count() == 0) {
                shares.remove(&self.who);
            }
        });
    }
}

/// A connected queue's place in its host's share.
#[derive(Debug)]
pub struct Seat {
    share: Rc<Share>,
    _entries: Grant,
}

impl Seat {
    #[must_use]
    pub fn share(&self) -> &Rc<Share> {
        &self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody could see how much of what hosts share was in use, nor that anybody was refused.
    #[test]
    fn what_is_used_and_who_was_refused_is_told() {
        set_queue_entries(300);
        let host = Share::of_host("a");
        let seat = host.seat(200).unwrap();
        assert!(host.seat(100).is_none());
        let entries = usage().into_iter().find(|usage| usage.name == "queue_entries").unwrap();
        assert_eq!((entries.used, entries.limit, entries.missed), (200, 300, 1));
        drop(seat);
        assert!(usage().iter().all(|usage| usage.used == 0 && usage.limit > 0));
    }

    #[test]
    fn a_host_has_one_share_and_gives_it_back_with_its_last_connection() {
        let entries = || BUDGET.with(|budget| budget.entries.free());
        let shares = || BUDGET.with(|budget| budget.shares.borrow().len());
        let seats: Vec<_> = (0..3).map(|_| Share::of_host("a").seat(1024).unwrap()).collect();
        let other = Share::of_host("b").seat(128).unwrap();
        assert!(Rc::ptr_eq(seats[0].share(), seats[2].share()));
        assert_eq!((shares(), entries()), (2, QUEUE_ENTRIES_MAX - 3 * 1024 - 128));
        drop((seats, other));
        assert_eq!((shares(), entries()), (0, QUEUE_ENTRIES_MAX));
    }

    /// 5,118 queues of two entries were all the connections that a reactor takes, and a hundredth of its entries: nobody
    /// else could connect.
    #[test]
    fn one_host_cannot_take_all_connections_with_short_queues() {
        let host = Share::of_host("greedy");
        let queues: Vec<_> = std::iter::from_fn(|| host.seat(2)).collect();
        assert!(queues.len() < reactor::CONNECTIONS_MAX * 2 / 3, "{} queues", queues.len());
    }

    /// 264 queues of 1024 entries, each with a command that waited, were more tasks than a reactor has.
    #[test]
    fn one_host_cannot_connect_more_queue_entries_than_leave_some_to_others() {
        let host = Share::of_host("greedy");
        let queues: Vec<_> = std::iter::from_fn(|| host.seat(1024)).collect();
        assert!(queues.len() * 1024 <= QUEUE_ENTRIES_MAX * 2 / 3);
        let other = Share::of_host("other");
        let others: Vec<_> = std::iter::from_fn(|| other.seat(128)).collect();
        assert!(others.len() * 128 > QUEUE_ENTRIES_MAX / 6, "{} queues", others.len());
    }
}
