//! Rings of direct write windows by RDMA (`docs/anof.md`): the host writes records into memory of this process by itself,
//! and reads whether its window stands. A ring has a connection of its own, and that a protection domain of its own: the
//! keys are of no use to anybody else.

mod host;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use media::Pmem;
use reactor::event::Descriptor;
use reactor::{Bell, Nanos, now};
use stdx::num::{u64_of, usize64};
use verbs::{
    Cause, Completion, Domain, Endpoint, Exposed, Kept, Memory, Peers, Place, Reach, Sizes,
};
use window::dial::{Ask, COPIES_MAX, Give, Keyed, KeyedCopy};
use window::page::{PAGE, PHASE_AT};
use window::{Phase, Token};

use crate::race;

pub use host::{RemoteRing, Wanted, can_flush};

/// Receives for bells. A host rings once for each quarter of its ring.
const BELLS: u32 = 32;

/// Bytes of each: a bell has none.
const BELL_BYTES: usize = 64;

/// Reads of a host that are answered at once: a look at each copy.
const READS: u8 = 4;

/// Between two looks whether a window has ended whose host says nothing.
const LOOK: Duration = Duration::from_secs(1);

/// How long the memory of a window that has ended stays within its host's reach: it reads there what of its last write
/// became.
const LINGER: Duration = Duration::from_secs(2);

/// A ring that a host asks for. Dropped, it is refused.
pub struct Asked {
    request: verbs::Request,
    ask: Ask,
}

impl core::fmt::Debug for Asked {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Asked").field("peer", &self.peer()).finish_non_exhaustive()
    }
}

/// Whether hosts can have what they wrote to persistent memory be flushed, by the card that has this address.
///
/// # Errors
/// When that cannot be told now.
pub async fn can_be_flushed(address: IpAddr) -> io::Result<bool> {
    reactor::blocking(move || Domain::open(address).map(|on| on.can_be_flushed())).await
}

/// What a copy of a ring is made of.
#[derive(Debug)]
pub struct CopyFiles {
    /// Its state page.
    pub state: OwnedFd,
    pub ring: OwnedFd,
    /// What is stored in it is durable when it was flushed, not when it is seen.
    pub flushed: bool,
}

/// What a ring is made of.
#[derive(Debug)]
pub struct Files {
    pub copies: Vec<CopyFiles>,
    pub ring_bytes: u64,
    /// An eventfd, for when its host rings.
    pub bell: OwnedFd,
}

/// A ring within its host's reach.
struct Reached {
    endpoint: Endpoint,
    /// Behind the endpoint, which goes first.
    _exposed: Vec<Exposed>,
    states: Vec<Pmem>,
    bell: Bell,
}

impl Asked {
    pub(super) const fn new(request: verbs::Request, ask: Ask) -> Self {
        Self { request, ask }
    }

    /// The host's address.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        self.request.peer()
    }

    /// What shows that the window is the host's.
    #[must_use]
    pub const fn token(&self) -> &Token {
        &self.ask.token
    }

    /// Which of the window's rings.
    #[must_use]
    pub const fn ring(&self) -> usize {
        self.ask.ring
    }

    /// Has the host reach the ring, until it goes or the window has ended.
    ///
    /// # Errors
    /// Too little of anything here, in words for an administrator, and the host is refused; the connection's end, if it was not
    /// the host's wish.
    pub async fn serve(self, files: Files) -> io::Result<()> {
        let reached = reactor::blocking(move || self.reach(files)).await?;
        let served = reached.serve().await;
        reactor::blocking(move || {
            drop(reached);
            Ok(())
        })
        .await?;
        served
    }

    fn reach(self, files: Files) -> io::Result<Reached> {
        let Self { request, ask } = self;
        let Files { copies, ring_bytes, bell } = files;
        if !(1..=COPIES_MAX).contains(&copies.len()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let domain = Arc::new(Domain::open(request.local().ip())?);
        let (mut exposed, mut states, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for CopyFiles { state, ring, flushed } in copies {
            let kept = if flushed { Kept::Flushed } else { Kept::Seen };
            let page = Exposed::of_fd(&domain, &state, PAGE, Peers::Read, kept)?;
            let records = Exposed::of_fd(&domain, &ring, usize64(ring_bytes), Peers::Write, kept)?;
            places.push(KeyedCopy { state: keyed(&page), ring: keyed(&records), flushed });
            exposed.extend([page, records]);
            states.push(Pmem::of_fd_to_read(state, u64_of(PAGE)).map_err(io::Error::other)?);
        }
        let memory = stdx::num::usize32(BELLS) * BELL_BYTES;
        let sizes = Sizes { sends: 1, receives: BELLS, memory };
        // It sends nothing.
        let shared = Arc::new(Memory::register(&domain, BELL_BYTES, Reach::Ours)?);
        let endpoint = Endpoint::build(request, &domain, &shared, sizes)?;
        for slot in 0..BELLS {
            endpoint.post_receive(u64::from(slot), bell_place(slot))?;
        }
        endpoint.accept(&Give { ring: ask.ring, copies: places }.encode(), READS)?;
        Ok(Reached { endpoint, _exposed: exposed, states, bell: bell.into() })
    }
}

fn keyed(exposed: &Exposed) -> Keyed {
    let verbs::Remote { address, key } = exposed.remote();
    Keyed { address, key }
}

fn bell_place(slot: u32) -> Place {
    Place { offset: stdx::num::usize32(slot) * BELL_BYTES, length: BELL_BYTES }
}

fn nanos(time: Duration) -> Nanos {
    Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)
}

/// What woke whoever waits for something to happen to a ring.
enum Woken {
    Completions,
    Events,
    Time,
}

impl Reached {
    /// Passes bells on, until the host is gone or the window has ended.
    async fn serve(&self) -> io::Result<()> {
        let completions = Descriptor::of(self.endpoint.completions_fd())?;
        let events = Descriptor::of(self.endpoint.events_fd())?;
        let (mut ended, mut over_since, mut next_look) = (Vec::new(), None, now() + nanos(LOOK));
        loop {
            // However often it is rung.
            if now() >= next_look {
                next_look = now() + nanos(LOOK);
                let since = self.has_ended().then(|| *over_since.get_or_insert_with(now));
                let is_over = since.is_some_and(|since| now() - since >= nanos(LINGER));
                if is_over || !self.goes_on()? {
                    return Ok(());
                }
            }
            // Armed first: what comes between the last look and the wait ends the wait.
            self.endpoint.arm()?;
            self.endpoint.poll(&mut ended)?;
            if !ended.is_empty() {
                if !self.take_bells(&mut ended)? {
                    return Ok(());
                }
                // Others of this reactor have their turn, however often it is rung.
                reactor::yield_now().await;
                continue;
            }
            let of_card = async { completions.readable().await.map(|()| Woken::Completions) };
            let of_manager = async { events.readable().await.map(|()| Woken::Events) };
            let of_time = async {
                reactor::sleep_until(next_look).await;
                Ok(Woken::Time)
            };
            match race(of_card, race(of_manager, of_time)).await? {
                Woken::Events if !self.goes_on()? => return Ok(()),
                Woken::Completions | Woken::Events | Woken::Time => {}
            }
        }
    }

    /// Rings once for all bells there are, and has as many more be heard; false when the connection is over.
    fn take_bells(&self, ended: &mut Vec<Completion>) -> io::Result<bool> {
        let is_over = ended.iter().any(|completion| completion.outcome.is_err());
        if is_over {
            return Ok(false);
        }
        for completion in ended.drain(..) {
            let slot = stdx::num::low32(completion.id);
            self.endpoint.post_receive(u64::from(slot), bell_place(slot))?;
        }
        self.bell.ring();
        Ok(true)
    }

    /// Hears the connection manager; false when the connection is over.
    fn goes_on(&self) -> io::Result<bool> {
        while let Some(cause) = self.endpoint.next_event()? {
            match cause {
                Cause::Established | Cause::Other => {}
                Cause::Disconnected | Cause::Failed => return Ok(false),
                Cause::Removed => return Err(io::Error::other("the network card was removed")),
            }
        }
        Ok(true)
    }

    /// Whether the window has ended: nobody takes what is written any more.
    fn has_ended(&self) -> bool {
        let ended = Phase::Ended.word();
        // A page that cannot be read is of memory that failed: the others tell.
        let mut phases = self.states.iter().filter_map(|state| state.load(PHASE_AT).ok());
        phases.all(|phase| phase == ended)
    }
}
