//! The network of a simulation: what TCP does between programs, in virtual time and from the seed.
//!
//! On simulated reactors [`TcpStream`](crate::net::TcpStream) and [`TcpListener`](crate::net::TcpListener) are ends of
//! connections here. All reactors of a run share one network; each has an address of its own on it ([`address`]), and
//! addresses within a machine (127.0.0.0/8) work as well. Bytes of a connection come in their order, late by chance and
//! in pieces; those of different connections overtake each other. What goes wrong is asked for: connections are [`cut`],
//! machines [`stop`], or [`refuse`] whoever connects.

mod link;
mod socket;

use crate::core;
use crate::limits::BACKLOG;
use crate::time::{Nanos, nanos_of};
use link::{End, Link};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;
use stdx::Prng;
use stdx::num::{u64_of, usize64};

pub(crate) use socket::{Acceptor, Socket};

/// How connections are that are made from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// How long a piece is under way at least, and at most unless one before it is later.
    pub delay: RangeInclusive<Duration>,
    /// Bytes that each end's buffer has room for, of what it sends and of what it receives.
    pub buffer: RangeInclusive<usize>,
    /// The most bytes that arrive at once.
    pub piece: usize,
}

impl Default for Conditions {
    /// A switch between machines, and buffers as a kernel has them.
    fn default() -> Self {
        Self {
            delay: Duration::from_micros(5)..=Duration::from_micros(50),
            buffer: 64 << 10..=1 << 20,
            piece: 64 << 10,
        }
    }
}

/// A connection, by its number among all of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

/// A connection that both ends have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connected {
    pub id: ConnectionId,
    /// Who connected.
    pub from: SocketAddr,
    /// Who accepted.
    pub to: SocketAddr,
}

/// How a connection ends that neither end wanted to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Each end hears of it (`ECONNRESET`), not at the same time.
    Reset,
    /// Who connected hears of it, who accepted does not: the connection is half open.
    HalfOpen,
    /// Nothing comes any more, and nobody hears why. An end that asked TCP to find out
    /// ([`set_keepalive`](crate::net::TcpStream::set_keepalive)) does after that time (`ETIMEDOUT`).
    Silent,
}

/// The first port given out where nobody asks for one.
const FIRST_PORT: u16 = 49_152;

struct Listening {
    waiting: VecDeque<ConnectionId>,
    acceptor: Option<Waker>,
}

/// What all reactors of a run share.
pub(crate) struct Network {
    prng: Prng,
    conditions: Conditions,
    links: BTreeMap<ConnectionId, Link>,
    listeners: BTreeMap<SocketAddr, Listening>,
    made: u64,
    /// Until when machines stand still.
    stopped: BTreeMap<IpAddr, Nanos>,
    refusing: BTreeSet<SocketAddr>,
}

pub(crate) type Shared = Arc<Mutex<Network>>;

/// The network of a run that has this seed.
pub(crate) fn new(seed: u64) -> Shared {
    Arc::new(Mutex::new(Network {
        prng: Prng::new(seed ^ 0x6e65_7477_6f72_6b20),
        conditions: Conditions::default(),
        links: BTreeMap::new(),
        listeners: BTreeMap::new(),
        made: 0,
        stopped: BTreeMap::new(),
        refusing: BTreeSet::new(),
    }))
}

fn lock(network: &Shared) -> MutexGuard<'_, Network> {
    // Valid after every statement, whoever panicked.
    network.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The network that this thread's reactor is on, if it is simulated.
pub(crate) fn here() -> Option<Shared> {
    core::try_with(|core| core.driver.world().map(|world| Arc::clone(&world.network))).flatten()
}

fn with<R>(f: impl FnOnce(&mut Network) -> R) -> R {
    let network = here().expect("there is no simulated network outside a simulation");
    f(&mut lock(&network))
}

impl Network {
    fn delay(&mut self) -> Nanos {
        let (least, most) = self.conditions.delay.clone().into_inner();
        let (least, most) = (nanos_of(least), nanos_of(most));
        least + self.prng.below(most.saturating_sub(least) + 1)
    }

    fn buffer(&mut self) -> usize {
        let (least, most) = self.conditions.buffer.clone().into_inner();
        least + usize64(self.prng.below(u64_of(most.saturating_sub(least)) + 1))
    }

    /// How long one of the two machines stands still yet; the past when neither does.
    fn still_until(&self, [one, other]: [IpAddr; 2]) -> Nanos {
        let until = |ip| self.stopped.get(&ip).copied().unwrap_or(0);
        until(one).max(until(other))
    }

    /// An address with a port that nobody else has.
    fn fresh(&mut self, ip: IpAddr) -> SocketAddr {
        let ports = u64::from(u16::MAX - FIRST_PORT) + 1;
        let port = stdx::num::low16(u64::from(FIRST_PORT) + self.made % ports);
        self.made += 1;
        SocketAddr::new(ip, port)
    }

    fn bind(&mut self, addr: SocketAddr) -> io::Result<SocketAddr> {
        let addr = if addr.port() == 0 { self.fresh(addr.ip()) } else { addr };
        if self.listeners.contains_key(&addr) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let listening = Listening { waiting: VecDeque::new(), acceptor: None };
        self.listeners.insert(addr, listening);
        Ok(addr)
    }

    fn unbind(&mut self, addr: SocketAddr, now: Nanos) {
        let Some(listening) = self.listeners.remove(&addr) else { return };
        for id in listening.waiting {
            self.cut(id, Cut::Reset, now);
        }
    }

    /// Makes a connection, which waits to be accepted; `None` where nobody accepts any.
    fn connect(&mut self, from: SocketAddr, to: SocketAddr) -> Option<ConnectionId> {
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), to.port());
        let at = [to, any].into_iter().find(|at| self.listeners.contains_key(at))?;
        if self.refusing.contains(&to) {
            return None;
        }
        let backlog = self.listeners.get(&at).map_or(0, |listening| listening.waiting.len());
        if u64_of(backlog) >= u64::from(BACKLOG.unsigned_abs()) {
            return None;
        }
        let id = ConnectionId(self.made);
        self.made += 1;
        let ends = [from, to].map(|addr| End::new(addr, self.buffer(), self.buffer()));
        self.links.insert(id, Link::new(ends));
        let listening = self.listeners.get_mut(&at)?;
        listening.waiting.push_back(id);
        if let Some(waker) = listening.acceptor.take() {
            waker.wake();
        }
        Some(id)
    }

    fn cut(&mut self, id: ConnectionId, how: Cut, now: Nanos) {
        let heard = [self.delay(), self.delay()].map(|delay| now + delay);
        if let Some(link) = self.links.get_mut(&id) {
            link.cut(how, heard, now);
        }
    }
}

/// The address of this reactor: 10.0.0.1 of the first one, and so on.
///
/// # Panics
/// Outside a simulation.
#[must_use]
pub fn address() -> IpAddr {
    let number = core::with(|core| core.driver.world().map(crate::simulate::World::number));
    let number = number.expect("there is no simulated network outside a simulation");
    IpAddr::V4(Ipv4Addr::from(Ipv4Addr::new(10, 0, 0, 1).to_bits() + stdx::num::u32_of(number)))
}

/// Has connections that are made from now on be like this.
///
/// # Panics
/// Outside a simulation.
pub fn set_conditions(conditions: Conditions) {
    with(|network| network.conditions = conditions);
}

/// The connections there are that neither end has closed, in the order in which they were made.
///
/// # Panics
/// Outside a simulation.
#[must_use]
pub fn connections() -> Vec<Connected> {
    with(|network| {
        let open = network.links.iter().filter(|(_, link)| link.is_whole());
        open.map(|(&id, link)| Connected { id, from: link.address(0), to: link.address(1) })
            .collect()
    })
}

/// Cuts a connection. One that is gone already stays so.
///
/// # Panics
/// Outside a simulation.
pub fn cut(id: ConnectionId, how: Cut) {
    let now = crate::now();
    with(|network| network.cut(id, how, now));
}

/// Has a machine stand still for the network: nothing comes from there or arrives there for so long, and then all of it
/// goes on.
///
/// # Panics
/// Outside a simulation.
pub fn stop(machine: IpAddr, span: Duration) {
    let until = crate::now().saturating_add(nanos_of(span));
    with(|network| {
        let stopped = network.stopped.entry(machine).or_default();
        *stopped = until.max(*stopped);
    });
}

/// Has whoever connects to an address be refused, or not any more.
///
/// # Panics
/// Outside a simulation.
pub fn refuse(addr: SocketAddr, refused: bool) {
    with(|network| {
        if refused {
            network.refusing.insert(addr);
        } else {
            network.refusing.remove(&addr);
        }
    });
}

#[cfg(test)]
mod tests;
