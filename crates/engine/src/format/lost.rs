//! What stands in for a block whose contents are lost, once it was moved: reclaim must not keep a
//! segment for it, and its readers must go on to be told.
//!
//! The block keeps the checksum of what was lost, which this has not: so no reader takes it for
//! contents, and what tells the two apart is the same as for any other damage. It is there for those
//! who look at the drives.

use stdx::crc32c;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Bad, VERSION, check, seal};
use crate::address::{BLOCK, Location};

const MAGIC: [u8; 8] = *b"FLASHLST";

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    crc: U32,
    version: U16,
    salt: U16,
    pool: [u8; 16],
    from: U64,
    contents: U32,
    reserved: [u8; 4],
}
const _: () = assert!(size_of::<Raw>() == 48);
const _: () = assert!(std::mem::offset_of!(Raw, pool) == 16);
const _: () = assert!(std::mem::offset_of!(Raw, from) == 32);

/// A block known to be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Where it lay when its loss was found.
    pub from: Location,
    /// The CRC-32C of what it had.
    pub contents: u32,
}

impl Lost {
    /// [`from`](Self::from) of what was lost in the commit log: a place where no contents ever lie.
    pub const IN_LOG: Location = Location::new(crate::address::SegmentId::new(0), 0);

    /// Fills `block`, of 4096 bytes, with something that has not the checksum of what was lost.
    pub fn write(&self, pool: [u8; 16], block: &mut [u8]) {
        assert_eq!(block.len(), BLOCK);
        for salt in 0..=u16::MAX {
            block.fill(0);
            let raw = Raw {
                magic: MAGIC,
                crc: U32::new(0),
                version: U16::new(VERSION),
                salt: U16::new(salt),
                pool,
                from: U64::new(self.from.to_bits()),
                contents: U32::new(self.contents),
                reserved: [0; 4],
            };
            block[..size_of::<Raw>()].copy_from_slice(raw.as_bytes());
            seal(block, MAGIC);
            if crc32c(block) != self.contents {
                return;
            }
        }
        unreachable!("one of two salts gives another checksum");
    }

    /// Reads what stands for a lost block.
    ///
    /// # Errors
    /// Why it is none, or none of this pool's.
    pub fn read(block: &[u8], pool: [u8; 16]) -> Result<Self, Bad> {
        check(block, MAGIC)?;
        let (raw, _) = Raw::ref_from_prefix(block).map_err(|_| Bad::Field("length"))?;
        if raw.pool != pool {
            return Err(Bad::Field("pool"));
        }
        let from = Location::from_bits(raw.from.get()).ok_or(Bad::Field("place"))?;
        Ok(Self { from, contents: raw.contents.get() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::SegmentId;

    #[test]
    fn it_is_read_back_and_never_has_the_checksum_of_what_was_lost() {
        let from = Location::new(SegmentId::new(7), 9);
        let mut block = vec![0xFF; BLOCK];
        Lost { from, contents: 1 }.write([3; 16], &mut block);
        assert_eq!(Lost::read(&block, [3; 16]), Ok(Lost { from, contents: 1 }));
        assert_eq!(Lost::read(&block, [4; 16]), Err(Bad::Field("pool")));
        // The piece itself has a fixed checksum at its place: whatever it is over all, the next salt
        // gives another.
        let same = crc32c(&block);
        let lost = Lost { from, contents: same };
        lost.write([3; 16], &mut block);
        assert_ne!(crc32c(&block), same);
        block[100] ^= 1;
        assert_eq!(Lost::read(&block, [3; 16]), Err(Bad::Checksum));
    }
}
