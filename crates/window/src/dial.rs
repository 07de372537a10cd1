//! What is said when a ring is asked for by RDMA: private data of the connection manager's request, and of the answer.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Token;
use crate::grant::RINGS_MAX;

const ASKS: [u8; 8] = *b"FLWINDRQ";
const GIVES: [u8; 8] = *b"FLWINDRG";
const VERSION: u16 = 1;

/// Copies of a ring that mirror each other, at most.
pub const COPIES_MAX: usize = 2;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct AskLayout {
    magic: [u8; 8],
    version: U16,
    ring: U16,
    reserved: U32,
    token: [u8; 16],
}
const _: () = assert!(size_of::<AskLayout>() == Ask::BYTES);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct CopyLayout {
    state: U64,
    ring: U64,
    state_key: U32,
    ring_key: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct GiveLayout {
    magic: [u8; 8],
    version: U16,
    ring: U16,
    copies: U16,
    /// A bit for each copy.
    flushed: U16,
    places: [CopyLayout; COPIES_MAX],
}
const _: () = assert!(size_of::<GiveLayout>() == Give::BYTES);

/// Asks for a ring of a window that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// What shows that the grant is the asker's.
    pub token: Token,
    /// Which of the window's rings.
    pub ring: usize,
}

impl Ask {
    /// Bytes of it.
    pub const BYTES: usize = 32;

    /// As it is sent.
    ///
    /// # Panics
    /// When there are not so many rings.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        assert!(self.ring < RINGS_MAX);
        let ring = stdx::num::low16(stdx::num::u64_of(self.ring)).into();
        let layout = AskLayout {
            magic: ASKS,
            version: VERSION.into(),
            ring,
            reserved: 0.into(),
            token: self.token,
        };
        zerocopy::transmute!(layout)
    }

    /// What was sent; `None` when it is something else. What is behind it is the connection manager's padding.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let layout = AskLayout::ref_from_bytes(bytes.get(..Self::BYTES)?).ok()?;
        let ring = usize::from(layout.ring.get());
        let is_one = layout.magic == ASKS && layout.version.get() == VERSION && ring < RINGS_MAX;
        is_one.then_some(Self { token: layout.token, ring })
    }
}

/// Where memory of the target is, to whoever has the connection: an address, and the key that goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keyed {
    pub address: u64,
    pub key: u32,
}

/// Where a copy of a ring is: its state page, to be read, and itself, to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedCopy {
    pub state: Keyed,
    pub ring: Keyed,
    /// What is written to it is durable when it was flushed, not when it is seen.
    pub flushed: bool,
}

/// Gives a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Give {
    /// Which of the window's.
    pub ring: usize,
    /// One or two, which mirror each other.
    pub copies: Vec<KeyedCopy>,
}

impl Give {
    /// Bytes of it.
    pub const BYTES: usize = 64;

    /// As it is sent.
    ///
    /// # Panics
    /// When there are not so many rings, or copies of one.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        assert!(self.ring < RINGS_MAX && (1..=COPIES_MAX).contains(&self.copies.len()));
        let none =
            CopyLayout { state: 0.into(), ring: 0.into(), state_key: 0.into(), ring_key: 0.into() };
        let mut places = [none; COPIES_MAX];
        for (place, copy) in places.iter_mut().zip(&self.copies) {
            *place = CopyLayout {
                state: copy.state.address.into(),
                ring: copy.ring.address.into(),
                state_key: copy.state.key.into(),
                ring_key: copy.ring.key.into(),
            };
        }
        let low16 = |number| stdx::num::low16(stdx::num::u64_of(number)).into();
        let bits = self.copies.iter().enumerate().map(|(at, copy)| u16::from(copy.flushed) << at);
        let layout = GiveLayout {
            magic: GIVES,
            version: VERSION.into(),
            ring: low16(self.ring),
            copies: low16(self.copies.len()),
            flushed: bits.sum::<u16>().into(),
            places,
        };
        zerocopy::transmute!(layout)
    }

    /// What was sent; `None` when it is something else. What is behind it is the connection manager's padding.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let layout = GiveLayout::ref_from_bytes(bytes.get(..Self::BYTES)?).ok()?;
        let (copies, flushed) = (usize::from(layout.copies.get()), layout.flushed.get());
        let ring = usize::from(layout.ring.get());
        let is_one = layout.magic == GIVES
            && layout.version.get() == VERSION
            && ring < RINGS_MAX
            && (1..=COPIES_MAX).contains(&copies)
            && flushed >> copies == 0;
        is_one.then(|| Self {
            ring,
            copies: layout.places[..copies]
                .iter()
                .enumerate()
                .map(|(at, place)| KeyedCopy {
                    state: Keyed { address: place.state.get(), key: place.state_key.get() },
                    ring: Keyed { address: place.ring.get(), key: place.ring_key.get() },
                    flushed: flushed >> at & 1 != 0,
                })
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard_behind_which_is_padding() {
        let ask = Ask { token: [9; 16], ring: 3 };
        let mut bytes = ask.encode().to_vec();
        bytes.resize(56, 0);
        assert_eq!(Ask::decode(&bytes), Some(ask));
        let at = |address, key| Keyed { address, key };
        let copy =
            |flushed| KeyedCopy { state: at(1 << 40, 7), ring: at(u64::MAX, u32::MAX), flushed };
        for flushed in [vec![false], vec![true], vec![false, true], vec![true; COPIES_MAX]] {
            let give = Give { ring: 63, copies: flushed.into_iter().map(copy).collect() };
            let mut bytes = give.encode().to_vec();
            bytes.resize(196, 0);
            assert_eq!(Give::decode(&bytes), Some(give));
        }
    }

    #[test]
    fn anything_else_is_none() {
        let ask = Ask { token: [9; 16], ring: 3 }.encode();
        assert_eq!(Ask::decode(&ask[..31]), None);
        assert_eq!(Ask::decode(&[0; 56]), None);
        // Each byte that says what it is.
        for at in [0, 7, 8, 11] {
            let mut other = ask;
            other[at] ^= 0x80;
            assert_eq!(Ask::decode(&other), None, "{at}");
        }
        let (state, ring) = (Keyed { address: 1, key: 1 }, Keyed { address: 2, key: 2 });
        let copy = KeyedCopy { state, ring, flushed: false };
        let give = Give { ring: 0, copies: vec![copy] }.encode();
        // Of a copy that is not there, too: what else is to be done is not known.
        for (at, byte) in [(12, 0), (12, 3), (8, 2), (11, 1), (0, 0), (14, 2), (15, 1)] {
            let mut other = give;
            other[at] = byte;
            assert_eq!(Give::decode(&other), None, "{at}");
        }
    }
}
