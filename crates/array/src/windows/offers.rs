//! Rings that wait for whoever shows their token.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::GrantedRing;
use nvme::window::Fabric;
use reactor::Nanos;
use std::os::fd::OwnedFd;
use uuid::Uuid;
use window::Token;

use super::reach::Place;

/// A ring as it is handed out: descriptors of its copies, and of the bell.
#[derive(Debug)]
pub struct Ring {
    pub copies: Vec<RingFiles>,
    pub bell: OwnedFd,
}

/// A copy of a ring: its state page, to be read, and itself, to be read and written.
#[derive(Debug)]
pub struct RingFiles {
    pub state: OwnedFd,
    pub ring: OwnedFd,
    /// What a network card stores in it is durable when it was flushed, not when it is seen.
    pub flushed: bool,
}

impl Ring {
    /// Of one that was granted.
    ///
    /// # Errors
    /// Those of opening the files.
    pub fn of(granted: GrantedRing) -> engine::Result<Self> {
        let files = |copy: &engine::RingCopy| {
            let [state, ring] = copy.share()?;
            Ok(RingFiles { state, ring, flushed: !copy.ring.keeps_what_is_seen() })
        };
        let copies = granted.copies.iter().map(files).collect::<engine::Result<_>>()?;
        let none = || engine::Error::new(engine::Kind::Unsupported, "a window without a bell");
        Ok(Self { copies, bell: granted.bell.ok_or_else(none)? })
    }
}

/// The rings of a window.
#[derive(Debug)]
struct Offer {
    of: Of,
    until: Nanos,
    /// Those that were not handed out.
    rings: Vec<Option<Ring>>,
}

/// A ring for somebody who asked for it alone.
#[derive(Debug)]
pub struct One {
    pub ring: Ring,
    pub ring_bytes: u64,
}

/// What a grant offers, beside its rings.
#[derive(Clone, Copy, Debug)]
pub struct Of {
    pub pool: Uuid,
    pub volume: [u8; 16],
    pub number: u32,
    pub fabric: Fabric,
    pub ring_bytes: u64,
}

impl Offer {
    fn is_good(&self, now: Nanos, fabric: Fabric) -> bool {
        now < self.until && self.of.fabric == fabric
    }
}

/// By token. One of a volume at a time, which bounds them.
#[derive(Debug, Default)]
pub struct Offers(Mutex<BTreeMap<Token, Offer>>);

impl Offers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Token, Offer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has rings be handed out, once and until then, in place of others of the volume; the token for them.
    pub fn offer(&self, until: Nanos, of: Of, rings: Vec<Ring>) -> Token {
        let token = drawn();
        let rings = rings.into_iter().map(Some).collect();
        let mut offers = self.lock();
        offers.retain(|_, offer| offer.of.volume != of.volume);
        offers.insert(token, Offer { of, until, rings });
        token
    }

    /// The rings for a token, which is good no more.
    pub fn take(&self, now: Nanos, token: &Token) -> Option<Vec<Ring>> {
        let mut offers = self.lock();
        // One that is late is not taken: it is what nobody has asked for.
        offers.get(token).filter(|offer| offer.is_good(now, Fabric::Shm))?;
        offers.remove(token).map(|offer| offer.rings.into_iter().flatten().collect())
    }

    /// A ring for a token by RDMA, which is good for the others still; none where it may not come within reach, and stays.
    pub fn take_one<T>(
        &self,
        now: Nanos,
        (token, ring): (&Token, usize),
        enter: impl FnOnce(Place) -> Option<T>,
    ) -> Option<(One, T)> {
        let mut offers = self.lock();
        let offer = offers.get_mut(token).filter(|offer| offer.is_good(now, Fabric::Rdma))?;
        let rings = offer.rings.len();
        let slot = offer.rings.get_mut(ring).filter(|slot| slot.is_some())?;
        let Of { pool, volume, ring_bytes, .. } = offer.of;
        let stay = enter(Place { pool, volume, bytes: ring_bytes, rings })?;
        let one = One { ring: slot.take()?, ring_bytes };
        if offer.rings.iter().all(Option::is_none) {
            offers.remove(token);
        }
        Some((one, stay))
    }

    /// A window ends: its rings are nobody's.
    pub fn withdraw(&self, volume: [u8; 16], number: u32) {
        self.lock().retain(|_, offer| (offer.of.volume, offer.of.number) != (volume, number));
    }

    /// Lets go of what nobody has asked for in time: the windows that nobody will ever write by.
    pub fn expire(&self, now: Nanos) -> Vec<([u8; 16], u32)> {
        let mut offers = self.lock();
        let expired = offers.extract_if(.., |_, offer| now >= offer.until);
        expired.map(|(_, offer)| (offer.of.volume, offer.of.number)).collect()
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

/// 128 bits from the system's generator: of a UUID made at random six are not.
pub(super) fn drawn() -> Token {
    let (one, other) = (Uuid::new_v4(), Uuid::new_v4());
    let (one, mut other) = (one.as_bytes(), *other.as_bytes());
    // So that what is fixed in the one meets what is drawn in the other.
    other.rotate_left(3);
    std::array::from_fn(|at| one[at] ^ other[at])
}
