//! The data of verification: each logical block written says where it belongs, which write it is, and its
//! checksum.

use stdx::crc32c;
use stdx::num::{u64_of, usize32, usize64};
use stdx::prng::Prng;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::contents::Held;

/// What stands at the start of each logical block; the rest of the block is pseudo-random.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    magic: U64,
    run: U64,
    offset: U64,
    sequence: U32,
    /// CRC32C of the whole block with this field 0.
    checksum: U32,
}
const HEADER_BYTES: usize = 32;
const CHECKSUM_AT: usize = 28;
const _: () = assert!(size_of::<Header>() == HEADER_BYTES);
const _: () = assert!(std::mem::offset_of!(Header, checksum) == CHECKSUM_AT);

const MAGIC: u64 = u64::from_le_bytes(*b"flashblk");

/// Pseudo-random bytes the bodies are cut from: any window of a block's length starting in the first half.
const POOL_BYTES: usize = 128 * 1024;

/// Makes and checks the data of one run.
pub struct Stamp {
    run: u64,
    logical: usize,
    pool: Box<[u8]>,
}

/// What was wrong with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// No header of this program.
    NoHeader {
        /// All bytes are zero.
        zeroes: bool,
    },
    /// Written by another run.
    OtherRun,
    /// The data of another address.
    Misdirected {
        /// Byte offset found in the block.
        holds: u64,
    },
    /// The data of another write to this address.
    Sequence {
        /// Sequence found.
        holds: u32,
        /// Sequence of the last write acknowledged.
        expected: u32,
    },
    /// Header right, checksum not.
    Checksum,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoHeader { zeroes: true } => f.write_str("all zeroes: the write is lost"),
            Self::NoHeader { zeroes: false } => f.write_str("not data of this program"),
            Self::OtherRun => f.write_str("data of an earlier run: the write is lost"),
            Self::Misdirected { holds } => write!(f, "holds the data of byte offset {holds}"),
            Self::Sequence { holds, expected } => {
                write!(f, "holds write {holds} of this block, the last acknowledged is {expected}")
            }
            Self::Checksum => f.write_str("checksum does not match: torn or corrupted"),
        }
    }
}

impl Stamp {
    /// For blocks of `logical` bytes (a power of two from 512 to 64 KiB) of the run named by `seed`.
    pub fn new(seed: u64, logical: u32) -> Self {
        let logical = usize32(logical);
        assert!((HEADER_BYTES..=POOL_BYTES / 2).contains(&logical), "no such block format");
        let mut pool = vec![0; POOL_BYTES].into_boxed_slice();
        Prng::new(seed).fill(&mut pool);
        Self { run: seed, logical, pool }
    }

    fn body(&self, offset: u64, sequence: u32) -> &[u8] {
        let mixed = (offset ^ (u64::from(sequence) << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // 8-byte steps through the first half.
        let start = usize64(mixed >> 32) % (POOL_BYTES / 16) * 8;
        &self.pool[start..start + self.logical]
    }

    /// Fills `data` as write number `sequence` of the blocks from byte `offset` on.
    pub fn fill(&self, data: &mut [u8], offset: u64, sequence: u32) {
        let mut at = offset;
        for block in data.chunks_exact_mut(self.logical) {
            block.copy_from_slice(self.body(at, sequence));
            let mut header = Header {
                magic: MAGIC.into(),
                run: self.run.into(),
                offset: at.into(),
                sequence: sequence.into(),
                checksum: 0.into(),
            };
            block[..HEADER_BYTES].copy_from_slice(header.as_bytes());
            header.checksum = crc32c(block).into();
            block[..HEADER_BYTES].copy_from_slice(header.as_bytes());
            at += u64_of(self.logical);
        }
    }

    /// Checks the blocks in `data`, read from byte `offset` on; calls `wrong` for each bad one. Returns the
    /// bytes found right.
    pub fn check(
        &self,
        data: &mut [u8],
        offset: u64,
        held: Held,
        mut wrong: impl FnMut(u64, Wrong),
    ) -> u64 {
        let (mut at, mut right) = (offset, 0);
        for block in data.chunks_exact_mut(self.logical) {
            match self.check_block(block, at, held) {
                Ok(()) => right += u64_of(self.logical),
                Err(what) => wrong(at, what),
            }
            at += u64_of(self.logical);
        }
        right
    }

    fn check_block(&self, block: &mut [u8], offset: u64, held: Held) -> Result<(), Wrong> {
        let Ok((header, _)) = Header::read_from_prefix(block) else {
            return Err(Wrong::NoHeader { zeroes: false });
        };
        if header.magic.get() != MAGIC {
            return Err(Wrong::NoHeader { zeroes: block.iter().all(|&byte| byte == 0) });
        }
        block[CHECKSUM_AT..HEADER_BYTES].fill(0);
        if crc32c(block) != header.checksum.get() {
            return Err(Wrong::Checksum);
        }
        if header.run.get() != self.run {
            return Err(Wrong::OtherRun);
        }
        if header.offset.get() != offset {
            return Err(Wrong::Misdirected { holds: header.offset.get() });
        }
        let holds = header.sequence.get();
        if !held.allows(holds) {
            return Err(Wrong::Sequence { holds, expected: held.acked });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(stamp: &Stamp, data: &[u8], offset: u64, sequence: u32) -> (u64, Vec<(u64, Wrong)>) {
        let mut found = Vec::new();
        let right = stamp.check(&mut data.to_vec(), offset, Held::known(sequence), |at, what| {
            found.push((at, what))
        });
        (right, found)
    }

    #[test]
    fn what_was_written_is_right_and_nothing_else() {
        let stamp = Stamp::new(7, 512);
        let mut data = vec![0; 2048];
        stamp.fill(&mut data, 8192, 3);
        assert_eq!(checked(&stamp, &data, 8192, 3), (2048, vec![]));
        let (right, found) = checked(&stamp, &data, 8192, 4);
        assert_eq!((right, found.len()), (0, 4));
        assert_eq!(found[0], (8192, Wrong::Sequence { holds: 3, expected: 4 }));
        let (_, found) = checked(&stamp, &data, 0, 3);
        assert_eq!(found[1], (512, Wrong::Misdirected { holds: 8192 + 512 }));
        let (_, found) = checked(&Stamp::new(8, 512), &data, 8192, 3);
        assert_eq!(found[0].1, Wrong::OtherRun);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let stamp = Stamp::new(1, 512);
        let mut data = vec![0; 512];
        stamp.fill(&mut data, 0, 1);
        for bit in 0..512 * 8 {
            let mut bad = data.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(checked(&stamp, &bad, 0, 1).1.len(), 1, "bit {bit}");
        }
    }

    #[test]
    fn a_lost_write_is_named() {
        let stamp = Stamp::new(1, 4096);
        let (_, found) = checked(&stamp, &[0; 4096], 0, 1);
        assert_eq!(found, [(0, Wrong::NoHeader { zeroes: true })]);
        assert!(found[0].1.to_string().contains("lost"));
    }
}
