//! What a target answers to a host that asks for a window: the data of its vendor-specific admin command.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{RING_BYTES_MAX, RING_BYTES_MIN, RING_STEP};

const MAGIC: [u8; 8] = *b"FLWINDGR";
const VERSION: u16 = 1;

/// Bytes of a grant, as it is answered.
pub const GRANT_BYTES: usize = 512;

/// Bytes of a path to a socket of the machine, at most: what `sockaddr_un` has room for.
pub const PATH_BYTES_MAX: usize = 107;

/// By which whoever comes to the socket shows that the grant is his.
pub type Token = [u8; 16];

/// The most shards a window may have rings for.
pub const RINGS_MAX: usize = 64;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Layout {
    magic: [u8; 8],
    version: U16,
    rings: U16,
    number: U32,
    epoch: U64,
    ring_bytes: U64,
    volume_bytes: U64,
    chunk_bytes: U64,
    block_bytes: U32,
    placement: U32,
    token: [u8; 16],
    path_bytes: U16,
    path: [u8; PATH_BYTES_MAX],
    reserved: [u8; 331],
}
const _: () = assert!(size_of::<Layout>() == GRANT_BYTES);
const _: () = assert!(std::mem::offset_of!(Layout, token) == 56);
const _: () = assert!(std::mem::offset_of!(Layout, path) == 74);

/// A window as its host is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// By which it is given back.
    pub number: u32,
    pub epoch: u64,
    /// Of each ring.
    pub ring_bytes: u64,
    /// One for each shard.
    pub rings: usize,
    pub volume_bytes: u64,
    /// Logical block, in bytes.
    pub block_bytes: u32,
    /// Bytes next to each other that go to one ring.
    pub chunk_bytes: u64,
    /// Which ring has the first of them.
    pub placement: u32,
    pub token: Token,
    /// A Unix socket of this machine, where whoever shows the token is given the rings.
    pub path: String,
}

impl Grant {
    /// As it is answered.
    ///
    /// # Panics
    /// When the path is longer than [`PATH_BYTES_MAX`], or there are more rings than [`RINGS_MAX`].
    #[must_use]
    pub fn encode(&self) -> [u8; GRANT_BYTES] {
        assert!(self.path.len() <= PATH_BYTES_MAX && self.rings <= RINGS_MAX);
        let mut path = [0; PATH_BYTES_MAX];
        path[..self.path.len()].copy_from_slice(self.path.as_bytes());
        let layout = Layout {
            magic: MAGIC,
            version: VERSION.into(),
            rings: stdx::num::low16(stdx::num::u64_of(self.rings)).into(),
            number: self.number.into(),
            epoch: self.epoch.into(),
            ring_bytes: self.ring_bytes.into(),
            volume_bytes: self.volume_bytes.into(),
            chunk_bytes: self.chunk_bytes.into(),
            block_bytes: self.block_bytes.into(),
            placement: self.placement.into(),
            token: self.token,
            path_bytes: stdx::num::low16(stdx::num::u64_of(self.path.len())).into(),
            path,
            reserved: [0; 331],
        };
        zerocopy::transmute!(layout)
    }

    /// What was answered; `None` when it is no grant, or none that can be used.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let layout = Layout::ref_from_bytes(bytes.get(..GRANT_BYTES)?).ok()?;
        let rings = usize::from(layout.rings.get());
        let ring_bytes = layout.ring_bytes.get();
        let (chunk_bytes, block_bytes) = (layout.chunk_bytes.get(), layout.block_bytes.get());
        let path = layout.path.get(..usize::from(layout.path_bytes.get()))?;
        let makes_sense = layout.magic == MAGIC
            && layout.version.get() == VERSION
            && (1..=RINGS_MAX).contains(&rings)
            && (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes)
            && ring_bytes.is_multiple_of(RING_STEP)
            && (512..=4096).contains(&block_bytes)
            && block_bytes.is_power_of_two()
            && chunk_bytes > 0
            && chunk_bytes.is_multiple_of(u64::from(block_bytes));
        makes_sense.then_some(())?;
        Some(Self {
            number: layout.number.get(),
            epoch: layout.epoch.get(),
            ring_bytes,
            rings,
            volume_bytes: layout.volume_bytes.get(),
            block_bytes,
            chunk_bytes,
            placement: layout.placement.get(),
            token: layout.token,
            path: std::str::from_utf8(path).ok()?.to_owned(),
        })
    }

    /// The ring for `length` bytes from `offset` on; `None` when they are not whole blocks of the volume, or several rings
    /// would have them: such a write goes as a command.
    #[must_use]
    #[inline]
    pub fn ring_of(&self, offset: u64, length: usize) -> Option<usize> {
        let end = offset.checked_add(stdx::num::u64_of(length))?;
        let block = u64::from(self.block_bytes);
        let is_whole = offset.is_multiple_of(block) && end.is_multiple_of(block) && length > 0;
        if !is_whole || end > self.volume_bytes {
            return None;
        }
        let rings = stdx::num::u64_of(self.rings);
        let chunk = offset / self.chunk_bytes;
        if rings > 1 && chunk != (end - 1) / self.chunk_bytes {
            return None;
        }
        Some(stdx::num::usize64((chunk + u64::from(self.placement)) % rings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> Grant {
        Grant {
            number: 3,
            epoch: 8,
            ring_bytes: 1 << 20,
            rings: 2,
            volume_bytes: 10 << 20,
            block_bytes: 4096,
            chunk_bytes: 1 << 20,
            placement: 1,
            token: [7; 16],
            path: "/run/flashloom/windows.sock".to_owned(),
        }
    }

    #[test]
    fn a_grant_is_read_back_and_nonsense_refused() {
        let bytes = grant().encode();
        assert_eq!(Grant::decode(&bytes), Some(grant()));
        assert_eq!(Grant::decode(&bytes[..511]), None);
        assert_eq!(Grant::decode(&[0; GRANT_BYTES]), None);
        let none = Grant { chunk_bytes: 0, ..grant() };
        assert_eq!(Grant::decode(&none.encode()), None);
        let none = Grant { ring_bytes: (1 << 20) + 64, ..grant() };
        assert_eq!(Grant::decode(&none.encode()), None);
        let none = Grant { rings: 0, ..grant() };
        assert_eq!(Grant::decode(&none.encode()), None);
    }

    #[test]
    fn blocks_belong_to_rings_by_turns() {
        let grant = grant();
        assert_eq!(grant.ring_of(0, 4096), Some(1));
        assert_eq!(grant.ring_of(1 << 20, 4096), Some(0));
        assert_eq!(grant.ring_of((1 << 20) - 4096, 8192), None, "of two");
        assert_eq!(grant.ring_of(512, 4096), None, "no whole blocks");
        assert_eq!(grant.ring_of(10 << 20, 4096), None, "beyond the end");
        assert_eq!(grant.ring_of(u64::MAX, 4096), None);
        assert_eq!(grant.ring_of(0, 0), None);
        let one = Grant { rings: 1, ..grant };
        assert_eq!(one.ring_of((1 << 20) - 4096, 8192), Some(0));
    }
}
