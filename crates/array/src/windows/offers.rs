//! Rings that wait for whoever shows their token.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::GrantedRing;
use reactor::Nanos;
use std::os::fd::OwnedFd;
use uuid::Uuid;
use window::Token;

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
}

impl Ring {
    /// Of one that was granted.
    ///
    /// # Errors
    /// Those of opening the files.
    pub fn of(granted: GrantedRing) -> engine::Result<Self> {
        let files = |copy: &engine::RingCopy| {
            let [state, ring] = copy.share()?;
            Ok(RingFiles { state, ring })
        };
        let copies = granted.copies.iter().map(files).collect::<engine::Result<_>>()?;
        let none = || engine::Error::new(engine::Kind::Unsupported, "a window without a bell");
        Ok(Self { copies, bell: granted.bell.ok_or_else(none)? })
    }
}

/// The rings of a window.
#[derive(Debug)]
struct Offer {
    volume: [u8; 16],
    number: u32,
    until: Nanos,
    rings: Vec<Ring>,
}

/// By token. One of a volume at a time, which bounds them.
#[derive(Debug, Default)]
pub struct Offers(Mutex<BTreeMap<Token, Offer>>);

impl Offers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Token, Offer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has rings be handed out, once and until then, in place of others of the volume; the token for them.
    pub fn offer(
        &self,
        until: Nanos,
        (volume, number): ([u8; 16], u32),
        rings: Vec<Ring>,
    ) -> Token {
        let token = drawn();
        let mut offers = self.lock();
        offers.retain(|_, offer| offer.volume != volume);
        offers.insert(token, Offer { volume, number, until, rings });
        token
    }

    /// The rings for a token, which is good no more.
    pub fn take(&self, now: Nanos, token: &Token) -> Option<Vec<Ring>> {
        let mut offers = self.lock();
        // One that is late is not taken: it is what nobody has asked for.
        offers.get(token).filter(|offer| now < offer.until)?;
        offers.remove(token).map(|offer| offer.rings)
    }

    /// A window ends: its rings are nobody's.
    pub fn withdraw(&self, volume: [u8; 16], number: u32) {
        self.lock().retain(|_, offer| (offer.volume, offer.number) != (volume, number));
    }

    /// Lets go of what nobody has asked for in time: the windows that nobody will ever write by.
    pub fn expire(&self, now: Nanos) -> Vec<([u8; 16], u32)> {
        let mut offers = self.lock();
        let expired = offers.extract_if(.., |_, offer| now >= offer.until);
        expired.map(|(_, offer)| (offer.volume, offer.number)).collect()
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
