//! The catalog: a pool's volumes. Rewritten whole, in two slots on every drive.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Bad, VERSION, area, check, name_from_bytes, name_to_bytes, seal};
use crate::address::{BLOCK, View};
use crate::limits::{NAME_MAX, VOLUMES_MAX};

const MAGIC: [u8; 8] = *b"FLASHCAT";

/// One volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    pub view: View,
    pub name: String,
    /// What identifies it for ever.
    pub id: [u8; 16],
    /// Size in bytes, a multiple of the block.
    pub bytes: u64,
    /// The logical block hosts see: 512 or 4096 bytes.
    pub block_size: u32,
    /// It was deleted; its blocks are still being given back.
    pub deleted: bool,
    /// Where the blocks of an earlier, larger size end, while they are still being given back;
    /// otherwise as `bytes`.
    pub shrunk_from: u64,
}

/// All volumes of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    /// Grows with every catalog written.
    pub generation: u64,
    /// The view the next volume gets; views are never used again.
    pub next_view: u32,
    pub volumes: Vec<VolumeRecord>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    magic: [u8; 8],
    crc: U32,
    version: U16,
    reserved: [u8; 2],
    pool: [u8; 16],
    generation: U64,
    next_view: U32,
    volumes: U32,
}
const _: () = assert!(size_of::<Head>() == 48);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    view: U32,
    block_size: U32,
    id: [u8; 16],
    bytes: U64,
    shrunk_from: U64,
    deleted: u8,
    reserved: [u8; 7],
    name: [u8; NAME_MAX],
}
const _: () = assert!(size_of::<Raw>() == 112);
const _: () =
    assert!((size_of::<Head>() + VOLUMES_MAX * size_of::<Raw>()) as u64 <= area::CATALOG_SLOT);

impl Catalog {
    /// The catalog as bytes, a whole number of blocks, sealed as `pool`'s.
    #[must_use]
    pub fn to_bytes(&self, pool: [u8; 16]) -> Vec<u8> {
        let head = Head {
            magic: MAGIC,
            crc: 0.into(),
            version: VERSION.into(),
            reserved: [0; 2],
            pool,
            generation: self.generation.into(),
            next_view: self.next_view.into(),
            volumes: stdx::num::u32_of(self.volumes.len()).into(),
        };
        let mut bytes = head.as_bytes().to_vec();
        for volume in &self.volumes {
            let raw = Raw {
                view: volume.view.get().into(),
                block_size: volume.block_size.into(),
                id: volume.id,
                bytes: volume.bytes.into(),
                shrunk_from: volume.shrunk_from.into(),
                deleted: volume.deleted.into(),
                reserved: [0; 7],
                name: name_to_bytes(&volume.name),
            };
            bytes.extend_from_slice(raw.as_bytes());
        }
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        seal(&mut bytes, MAGIC);
        bytes
    }

    /// How many bytes the catalog that begins with `first` takes; to be read whole before
    /// [`from_bytes`](Self::from_bytes).
    ///
    /// # Errors
    /// `Blank` where none begins.
    pub fn len_of(first: &[u8]) -> Result<usize, Bad> {
        let (head, _) = Head::ref_from_prefix(first).map_err(|_| Bad::Blank)?;
        let volumes = stdx::num::usize32(head.volumes.get());
        if head.magic != MAGIC {
            return Err(Bad::Blank);
        }
        if volumes > VOLUMES_MAX {
            return Err(Bad::Field("volumes"));
        }
        Ok((size_of::<Head>() + volumes * size_of::<Raw>()).next_multiple_of(BLOCK))
    }

    /// The catalog of `pool` in `bytes`.
    ///
    /// # Errors
    /// `Blank` where none of this pool was written, and what is wrong with the one there.
    pub fn from_bytes(bytes: &[u8], pool: [u8; 16]) -> Result<Self, Bad> {
        check(bytes, MAGIC)?;
        let (head, rest) = Head::ref_from_prefix(bytes).map_err(|_| Bad::Blank)?;
        if head.pool != pool {
            return Err(Bad::Blank);
        }
        let count = stdx::num::usize32(head.volumes.get());
        let mut volumes = Vec::with_capacity(count.min(VOLUMES_MAX));
        for raw in rest.chunks_exact(size_of::<Raw>()).take(count) {
            let raw = Raw::ref_from_bytes(raw).map_err(|_| Bad::Field("volumes"))?;
            if raw.view.get() == 0 || raw.view.get() >= head.next_view.get() {
                return Err(Bad::Field("view"));
            }
            volumes.push(VolumeRecord {
                view: View::new(raw.view.get()),
                name: name_from_bytes(&raw.name)?,
                id: raw.id,
                bytes: raw.bytes.get(),
                block_size: raw.block_size.get(),
                deleted: raw.deleted != 0,
                shrunk_from: raw.shrunk_from.get(),
            });
        }
        if volumes.len() != count {
            return Err(Bad::Field("volumes"));
        }
        Ok(Self { generation: head.generation.get(), next_view: head.next_view.get(), volumes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_catalog_comes_back_as_written() {
        let volume = |i: u32| VolumeRecord {
            view: View::new(i),
            name: format!("v{i}"),
            id: [1; 16],
            bytes: 1 << 40,
            block_size: 512,
            deleted: i == 3,
            shrunk_from: 2 << 40,
        };
        for count in [0, 1, 36, 37, 4000] {
            let catalog = Catalog {
                generation: 5,
                next_view: count + 1,
                volumes: (1..=count).map(volume).collect(),
            };
            let bytes = catalog.to_bytes([4; 16]);
            assert_eq!(Catalog::len_of(&bytes[..BLOCK]), Ok(bytes.len()));
            assert_eq!(Catalog::from_bytes(&bytes, [4; 16]), Ok(catalog));
            assert_eq!(Catalog::from_bytes(&bytes, [5; 16]), Err(Bad::Blank));
        }
    }
}
