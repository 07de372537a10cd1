//! Rings that wait for whoever shows their token.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::GrantedRing;
use reactor::Nanos;
use uuid::Uuid;
use window::Token;

/// The rings of a window.
#[derive(Debug)]
struct Offer {
    volume: [u8; 16],
    number: u32,
    until: Nanos,
    rings: Vec<GrantedRing>,
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
        rings: Vec<GrantedRing>,
    ) -> Token {
        let token = drawn();
        let mut offers = self.lock();
        offers.retain(|_, offer| offer.volume != volume);
        offers.insert(token, Offer { volume, number, until, rings });
        token
    }

    /// The rings for a token, which is good no more.
    pub fn take(&self, now: Nanos, token: &Token) -> Option<Vec<GrantedRing>> {
        let offer = self.lock().remove(token)?;
        (now < offer.until).then_some(offer.rings)
    }

    /// A window ends: its rings are nobody's.
    pub fn withdraw(&self, volume: [u8; 16], number: u32) {
        self.lock().retain(|_, offer| (offer.volume, offer.number) != (volume, number));
    }

    /// Lets go of what nobody has asked for in time.
    pub fn expire(&self, now: Nanos) {
        self.lock().retain(|_, offer| now < offer.until);
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

/// 128 bits from the system's generator: of a UUID made at random six are not.
fn drawn() -> Token {
    let (one, other) = (Uuid::new_v4(), Uuid::new_v4());
    let (one, mut other) = (one.as_bytes(), *other.as_bytes());
    // So that what is fixed in the one meets what is drawn in the other.
    other.rotate_left(3);
    std::array::from_fn(|at| one[at] ^ other[at])
}
