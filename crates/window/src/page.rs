//! The state page of a ring: written by the target, read by the host and by the target when it is started again. What a
//! ring is never changes; its words do, each by one store of 8 bytes.

use stdx::crc32c;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{RING_BYTES_MAX, RING_BYTES_MIN, RING_STEP};

const MAGIC: [u8; 8] = *b"FLWINDST";
const VERSION: u16 = 1;

/// Bytes of a state page.
pub const PAGE: usize = 4096;

/// Bytes of what never changes.
pub const IDENTITY: usize = 64;

/// Where the words lie, in bytes from the page's beginning: in one line. A [`Phase`].
pub const PHASE_AT: u64 = 64;
/// Records up to this position are in the target's log.
pub const TAKEN_AT: u64 = 72;
/// The host may store up to this position.
pub const CREDIT_AT: u64 = 80;

/// Not 0 when writes that were complete are damaged, for the target's own opening.
pub const LOST_AT: u64 = 88;

/// Whether a window stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// What is stored while it does is taken.
    Stands,
    /// What was stored before this was said is being taken; nobody may report success any more.
    Ending,
    /// What was stored is taken up to [`TAKEN_AT`], and nothing more ever will be.
    Ended,
}

impl Phase {
    /// As it is in memory.
    #[must_use]
    pub const fn word(self) -> u64 {
        match self {
            Self::Stands => 1,
            Self::Ending => 2,
            Self::Ended => 3,
        }
    }

    /// What a word says; anything unknown is the end.
    #[must_use]
    pub const fn of(word: u64) -> Self {
        match word {
            1 => Self::Stands,
            2 => Self::Ending,
            _ => Self::Ended,
        }
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Layout {
    magic: [u8; 8],
    /// CRC-32C of the 52 bytes after it.
    crc: U32,
    version: U16,
    reserved: U16,
    epoch: U64,
    ring_bytes: U64,
    pool: [u8; 16],
    view: U32,
    shard: U32,
    number: U32,
    reserved2: U32,
}
const _: () = assert!(size_of::<Layout>() == IDENTITY);
const _: () = assert!(std::mem::offset_of!(Layout, epoch) == 16);
const _: () = assert!(std::mem::offset_of!(Layout, view) == 48);

/// What a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Drawn at random for each window: records of another are none of its.
    pub epoch: u64,
    pub ring_bytes: u64,
    pub pool: [u8; 16],
    /// The view of the volume, in the pool's catalog.
    pub view: u32,
    pub shard: u32,
    /// The window's number in the pool's catalog.
    pub number: u32,
}

impl Identity {
    /// A state page's first bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; IDENTITY] {
        let mut layout = Layout {
            magic: MAGIC,
            crc: 0.into(),
            version: VERSION.into(),
            reserved: 0.into(),
            epoch: self.epoch.into(),
            ring_bytes: self.ring_bytes.into(),
            pool: self.pool,
            view: self.view.into(),
            shard: self.shard.into(),
            number: self.number.into(),
            reserved2: 0.into(),
        };
        layout.crc = crc32c(&layout.as_bytes()[12..]).into();
        zerocopy::transmute!(layout)
    }

    /// What a state page says; `None` when it is none, or of another version.
    #[must_use]
    pub fn decode(bytes: &[u8; IDENTITY]) -> Option<Self> {
        let layout = Layout::ref_from_bytes(bytes).ok()?;
        let ring_bytes = layout.ring_bytes.get();
        let fits = (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes)
            && ring_bytes.is_multiple_of(RING_STEP);
        let is_one = layout.magic == MAGIC
            && layout.crc.get() == crc32c(&bytes[12..])
            && layout.version.get() == VERSION;
        (fits && is_one).then(|| Self {
            epoch: layout.epoch.get(),
            ring_bytes,
            pool: layout.pool,
            view: layout.view.get(),
            shard: layout.shard.get(),
            number: layout.number.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_ring_is_is_read_back_and_damage_seen() {
        let ring = Identity {
            epoch: 77,
            ring_bytes: 1 << 20,
            pool: [3; 16],
            view: 9,
            shard: 1,
            number: 5,
        };
        let bytes = ring.encode();
        assert_eq!(Identity::decode(&bytes), Some(ring));
        for at in 0..IDENTITY {
            let mut bytes = bytes;
            bytes[at] ^= 1;
            assert_eq!(Identity::decode(&bytes), None, "byte {at}");
        }
        let short = Identity { ring_bytes: 4096, ..ring };
        assert_eq!(Identity::decode(&short.encode()), None);
    }

    #[test]
    fn an_unknown_word_is_the_end() {
        for phase in [Phase::Stands, Phase::Ending, Phase::Ended] {
            assert_eq!(Phase::of(phase.word()), phase);
        }
        assert_eq!(Phase::of(0), Phase::Ended);
        assert_eq!(Phase::of(u64::MAX), Phase::Ended);
    }
}
