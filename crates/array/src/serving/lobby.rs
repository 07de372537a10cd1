//! Connections that have not become a queue yet: whoever reaches the port has these, and no more of them than leave the
//! others theirs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use target::budget::address_owner;

use super::signal::Signal;
use crate::limits::{LEAVING, NEWCOMERS, NEWCOMERS_OF_ADDRESS};

/// How many are inside at most.
const ROOM: usize = NEWCOMERS - LEAVING;

/// Where connections wait from accept to Connect.
#[derive(Debug, Default)]
pub struct Lobby {
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    /// Those inside, by when they came.
    newcomers: BTreeMap<u64, Newcomer>,
    /// Which of them each address has: one at least.
    addresses: HashMap<IpAddr, BTreeSet<u64>>,
    /// Those that were shown out, and are not closed yet.
    leaving: BTreeSet<u64>,
    arrivals: u64,
}

#[derive(Debug)]
struct Newcomer {
    address: IpAddr,
    shown_out: Signal,
}

/// A connection's stay in the lobby: until it leaves, at the latest when it is dropped.
#[derive(Debug)]
pub struct Stay {
    lobby: Arc<Lobby>,
    number: u64,
    shown_out: Signal,
}

impl Lobby {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a connection from `address` in; `None` when its address has as many inside as it may have. If need be another
    /// makes room, of an address that has most inside: a host on its way in has one or two.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Stay> {
        let address = address_owner(address);
        let mut inside = self.inside();
        if inside.addresses.get(&address).is_some_and(|its| its.len() >= NEWCOMERS_OF_ADDRESS) {
            return None;
        }
        let full = inside.newcomers.len() >= ROOM;
        let shown_out = if full { inside.longest_of_most() } else { None };
        let shown_out = shown_out.and_then(|number| {
            inside.leaving.insert(number);
            inside.leave(number)
        });
        let number = inside.arrivals;
        inside.arrivals += 1;
        inside.addresses.entry(address).or_default().insert(number);
        let newcomer = Newcomer { address, shown_out: Signal::default() };
        let stay = Stay { lobby: Arc::clone(self), number, shown_out: newcomer.shown_out.clone() };
        inside.newcomers.insert(number, newcomer);
        drop(inside);
        if let Some(newcomer) = shown_out {
            newcomer.shown_out.give();
        }
        Some(stay)
    }

    /// How many were shown out and are not closed yet: they have a descriptor, and slots of a reactor, until then.
    pub fn leaving(&self) -> usize {
        self.inside().leaving.len()
    }

    /// How many are inside.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.inside().newcomers.len()
    }
}

impl Inside {
    /// The one that has been here the longest of an address that has most, and that of those came first.
    fn longest_of_most(&self) -> Option<u64> {
        let longest = |its: &BTreeSet<u64>| Some((its.len(), Reverse(*its.first()?)));
        self.addresses.values().filter_map(longest).max().map(|(_, Reverse(number))| number)
    }

    fn leave(&mut self, number: u64) -> Option<Newcomer> {
        let newcomer = self.newcomers.remove(&number)?;
        if let Some(its) = self.addresses.get_mut(&newcomer.address) {
            its.remove(&number);
            if its.is_empty() {
                self.addresses.remove(&newcomer.address);
            }
        }
        Some(newcomer)
    }
}

impl Stay {
    /// Leaves the lobby: the connection is a queue's now.
    pub fn leave(&self) {
        drop(self.lobby.inside().leave(self.number));
    }

    /// Runs `future` to its end, unless the connection is shown out of the lobby before.
    pub async fn unless_shown_out<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        self.shown_out.unless(future).await
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.leave();
        self.lobby.inside().leaving.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_shown_out(stay: &Stay) -> bool {
        let waiting = pin!(stay.unless_shown_out(pending::<()>()));
        waiting.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(None)
    }

    fn address(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    /// One address's silent connections had every descriptor of the daemon: no host could connect.
    #[test]
    fn an_address_has_its_share_and_no_more() {
        let lobby = Arc::<Lobby>::default();
        let mut stays: Vec<_> = std::iter::from_fn(|| lobby.enter(address(1))).collect();
        assert_eq!(stays.len(), NEWCOMERS_OF_ADDRESS);
        assert!(lobby.enter(address(2)).is_some());
        // The same address in other words.
        assert!(lobby.enter("::ffff:0.0.0.1".parse().unwrap()).is_none());
        stays[7].leave();
        stays.push(lobby.enter(address(1)).unwrap());
        assert!(lobby.enter(address(1)).is_none());
        assert!(!stays.iter().any(is_shown_out));
        drop(stays);
        assert_eq!((lobby.len(), lobby.inside().addresses.len()), (0, 0));
        // All of a /64 is one's own.
        let six = |low: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, low]);
        let stays: Vec<_> = (0..=u16::MAX).map_while(|low| lobby.enter(six(low))).collect();
        assert_eq!(stays.len(), NEWCOMERS_OF_ADDRESS);
    }

    /// Hosts that connected amid a flood from some hundred addresses were shown out with it, as the oldest by then.
    #[test]
    fn who_has_most_makes_room_first() {
        let lobby = Arc::<Lobby>::default();
        let host = lobby.enter(address(0)).unwrap();
        let flood = (0..4 * ROOM).filter_map(|number| {
            let of = u32::try_from(number % 300).unwrap();
            lobby.enter(address(1 + of))
        });
        let flood: Vec<_> = flood.collect();
        assert_eq!((lobby.len(), flood.len()), (ROOM, 4 * ROOM));
        assert!(!is_shown_out(&host) && is_shown_out(&flood[0]));
        assert!(!is_shown_out(flood.last().unwrap()));
        assert_eq!(lobby.leaving(), 3 * ROOM + 1);
        drop((host, flood));
        assert_eq!((lobby.len(), lobby.leaving()), (0, 0));
    }

    #[test]
    fn the_oldest_makes_room_unless_it_has_connected() {
        let lobby = Arc::<Lobby>::default();
        let enter = |number| lobby.enter(address(number)).unwrap();
        let stays: Vec<_> = (0..u32::try_from(ROOM).unwrap()).map(enter).collect();
        stays[0].leave();
        let later = [enter(1 << 20), enter(1 << 21)];
        assert_eq!(lobby.len(), ROOM);
        assert!(!is_shown_out(&stays[0]) && is_shown_out(&stays[1]) && !is_shown_out(&stays[2]));
        assert!(!later.iter().any(is_shown_out));
        drop((stays, later));
        assert_eq!((lobby.len(), lobby.inside().addresses.len()), (0, 0));
    }
}
