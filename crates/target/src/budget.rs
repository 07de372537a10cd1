//! What each host may have of a reactor: memory, places for commands, and work that others wait behind.
//!
//! A host is who its Connect says it is; whoever has not connected to a subsystem, or to the discovery service
//! only, is its address. Each kind of thing has a [`Ledger`], in which each host has an account, those of one address in
//! one group, and all those that have not said who they are in one: see there for who gets how much. The four are
//! apart so that none waits for what only the other gives back:
//!
//! - `data`: bytes that go back when the *host* does something: data it was asked for, data read and not yet
//!   taken, responses not yet taken.
//! - `capsules`: bytes that came unasked, in a capsule, and go back when their command is done, which takes nothing
//!   of the host any more.
//! - `work`: pieces of commands that move no data (Verify, Write Zeroes, Copy, Dataset Management).
//! - `entries`: entries of connected queues, and so the commands and tasks there can be.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::{Rc, Weak};

use reactor::budget::{Account, Grant, Group, Ledger};
use reactor::turns::{self, Party};

use crate::limits::{
    CAPSULES_HELD_BYTES, DATA_HELD_BYTES, QUEUE_CHARGE_MIN, QUEUE_ENTRIES_MAX, WORK_PIECES_MAX,
};

/// Who has a share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Who {
    Stranger(IpAddr),
    Host(IpAddr, String),
}

/// Who are in one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum From {
    Strangers,
    Address(IpAddr),
}

/// Whose address it is: who has one of IPv6 has its whole /64.
#[must_use]
pub fn address_owner(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// What there is on one reactor.
struct Budget {
    data: Rc<Ledger>,
    capsules: Rc<Ledger>,
    work: Rc<Ledger>,
    entries: Rc<Ledger>,
    shares: RefCell<HashMap<Who, Weak<Share>>>,
    groups: RefCell<HashMap<From, Weak<Groups>>>,
}

impl Budget {
    fn groups(&self, from: From) -> Rc<Groups> {
        let mut groups = self.groups.borrow_mut();
        if let Some(groups) = groups.get(&from).and_then(Weak::upgrade) {
            return groups;
        }
        let new = Rc::new(Groups {
            from,
            data: Group::new(&self.data),
            capsules: Group::new(&self.capsules),
            work: Group::new(&self.work),
            entries: Group::new(&self.entries),
            turns: turns::Group::new(),
            others: RefCell::default(),
        });
        groups.insert(from, Rc::downgrade(&new));
        new
    }
}

/// What those of one address have together, as long as any of them has a connection.
#[derive(Debug)]
struct Groups {
    from: From,
    data: Rc<Group>,
    capsules: Rc<Group>,
    work: Rc<Group>,
    entries: Rc<Group>,
    turns: Rc<turns::Group>,
    /// Of other ledgers than this reactor's four.
    others: RefCell<Vec<Weak<Group>>>,
}

impl Groups {
    fn of(&self, ledger: &Rc<Ledger>) -> Rc<Group> {
        let is_its = |group: &Rc<Group>| Rc::ptr_eq(group.ledger(), ledger);
        found_or_made(&self.others, is_its, || Group::new(ledger))
    }
}

/// Finds the one that `is_it`, or makes it. What nobody has any more is forgotten.
fn found_or_made<T>(
    all: &RefCell<Vec<Weak<T>>>,
    is_it: impl Fn(&Rc<T>) -> bool,
    make: impl FnOnce() -> Rc<T>,
) -> Rc<T> {
    let mut all = all.borrow_mut();
    if let Some(found) = all.iter().filter_map(Weak::upgrade).find(is_it) {
        return found;
    }
    all.retain(|one| one.strong_count() > 0);
    let made = make();
    all.push(Rc::downgrade(&made));
    made
}

impl Drop for Groups {
    fn drop(&mut self) {
        // A thread that ends has no budget any more.
        let _ = BUDGET.try_with(|budget| forget(&budget.groups, &self.from));
    }
}

/// Takes away what nobody has any more. Another may have taken its place between the last reference and now.
fn forget<K: Eq + Hash, V>(map: &RefCell<HashMap<K, Weak<V>>>, key: &K) {
    let mut map = map.borrow_mut();
    if map.get(key).is_some_and(|value| value.strong_count() == 0) {
        map.remove(key);
    }
}

thread_local!(static BUDGET: Rc<Budget> = Rc::new(Budget {
    data: Ledger::new(DATA_HELD_BYTES),
    capsules: Ledger::new(CAPSULES_HELD_BYTES),
    work: Ledger::new(WORK_PIECES_MAX),
    entries: Ledger::new(QUEUE_ENTRIES_MAX),
    shares: RefCell::default(),
    groups: RefCell::default(),
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
    groups: Rc<Groups>,
    others: RefCell<Vec<Weak<Account>>>,
    pub data: Rc<Account>,
    pub capsules: Rc<Account>,
    pub work: Rc<Account>,
    pub entries: Rc<Account>,
    /// Its turns of the core.
    pub turns: Rc<Party>,
}

impl Share {
    /// The share of whoever is at an address and has not said who it is.
    #[must_use]
    pub fn of_address(address: IpAddr) -> Rc<Self> {
        Self::of(Who::Stranger(address_owner(address)), From::Strangers)
    }

    /// The share of a host by its NQN and where it is.
    #[must_use]
    pub fn of_host(nqn: &str, address: IpAddr) -> Rc<Self> {
        let address = address_owner(address);
        Self::of(Who::Host(address, nqn.to_owned()), From::Address(address))
    }

    fn of(who: Who, from: From) -> Rc<Self> {
        BUDGET.with(|budget| {
            let mut shares = budget.shares.borrow_mut();
            if let Some(share) = shares.get(&who).and_then(Weak::upgrade) {
                return share;
            }
            let groups = budget.groups(from);
            let share = Rc::new(Self {
                who: who.clone(),
                data: Account::among(&groups.data),
                capsules: Account::among(&groups.capsules),
                work: Account::among(&groups.work),
                entries: Account::among(&groups.entries),
                turns: Party::of(&groups.turns),
                groups,
                others: RefCell::default(),
            });
            shares.insert(who, Rc::downgrade(&share));
            share
        })
    }

    /// Its account of a ledger that is not one of this reactor's four.
    #[must_use]
    pub fn account_of(&self, ledger: &Rc<Ledger>) -> Rc<Account> {
        let is_its = |account: &Rc<Account>| Rc::ptr_eq(account.ledger(), ledger);
        found_or_made(&self.others, is_its, || Account::among(&self.groups.of(ledger)))
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
        let _ = BUDGET.try_with(|budget| forget(&budget.shares, &self.who));
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
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    /// Nobody could see how much of what hosts share was in use, nor that anybody was refused.
    #[test]
    fn what_is_used_and_who_was_refused_is_told() {
        set_queue_entries(300);
        let host = Share::of_host("a", HERE);
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
        let seats: Vec<_> = (0..3).map(|_| Share::of_host("a", HERE).seat(1024).unwrap()).collect();
        let other = Share::of_host("b", HERE).seat(128).unwrap();
        assert!(Rc::ptr_eq(seats[0].share(), seats[2].share()));
        assert_eq!((shares(), entries()), (2, QUEUE_ENTRIES_MAX - 3 * 1024 - 128));
        drop((seats, other));
        assert_eq!((shares(), entries()), (0, QUEUE_ENTRIES_MAX));
        assert_eq!(BUDGET.with(|budget| budget.groups.borrow().len()), 0);
    }

    /// Each name, and each address on the discovery service, had a share of its own.
    #[test]
    fn neither_names_nor_strangers_take_what_others_need() {
        let hoard = |share: &Rc<Share>| -> Vec<Grant> {
            std::iter::from_fn(|| share.data.try_take(64 << 10)).collect()
        };
        let names: Vec<_> = (0..50).map(|n| Share::of_host(&n.to_string(), HERE)).collect();
        let strangers: Vec<_> =
            (0..50).map(|n| Share::of_address(Ipv4Addr::new(192, 0, 2, n).into())).collect();
        let _held: Vec<_> = names.iter().chain(&strangers).map(hoard).collect();
        let other = Share::of_host("other", THERE);
        let _others = hoard(&other);
        assert!(other.data.held() > DATA_HELD_BYTES / 32, "{}", other.data.held());
    }

    #[test]
    fn a_whole_64_is_one_address() {
        let one = address_owner("2001:db8::1".parse().unwrap());
        assert_eq!(one, address_owner("2001:db8::ffff:0:0:2".parse().unwrap()));
        assert_ne!(one, address_owner("2001:db8:0:1::1".parse().unwrap()));
        assert_eq!(address_owner("::ffff:192.0.2.1".parse().unwrap()), THERE);
    }

    /// 5,118 queues of two entries were all the connections that a reactor takes, and a hundredth of its entries: nobody
    /// else could connect.
    #[test]
    fn one_host_cannot_take_all_connections_with_short_queues() {
        let host = Share::of_host("greedy", HERE);
        let queues: Vec<_> = std::iter::from_fn(|| host.seat(2)).collect();
        assert!(queues.len() < reactor::CONNECTIONS_MAX * 2 / 3, "{} queues", queues.len());
    }

    /// 264 queues of 1024 entries, each with a command that waited, were more tasks than a reactor has.
    #[test]
    fn one_host_cannot_connect_more_queue_entries_than_leave_some_to_others() {
        let host = Share::of_host("greedy", HERE);
        let queues: Vec<_> = std::iter::from_fn(|| host.seat(1024)).collect();
        assert!(queues.len() * 1024 <= QUEUE_ENTRIES_MAX * 2 / 3);
        let other = Share::of_host("other", THERE);
        let others: Vec<_> = std::iter::from_fn(|| other.seat(128)).collect();
        assert!(others.len() * 128 > QUEUE_ENTRIES_MAX / 6, "{} queues", others.len());
    }
}
