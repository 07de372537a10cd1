//! What blocks hold: bytes that tell which write put them there, and where.

use std::fmt;
use stdx::num::usize64;

/// Bytes of a block, as the engine's.
pub const BLOCK: usize = 4096;

/// Names one write of the whole run. 0 is the write that never was: zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub u64);

impl Stamp {
    pub const ZERO: Self = Self(0);
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ZERO { f.write_str("zeroes") } else { write!(f, "write {}", self.0) }
    }
}

/// What was found in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// What that write put here.
    Stamp(Stamp),
    /// A whole block, but another one's.
    Elsewhere { stamp: Stamp, volume: u64, block: u64 },
    /// Bytes no write ever gave.
    Garbage { head: u64 },
    /// Nothing: it was said that the block is lost.
    Lost,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stamp(stamp) => write!(f, "{stamp}"),
            Self::Elsewhere { stamp, volume, block } => {
                write!(f, "{stamp} of block {block} of volume {volume}")
            }
            Self::Garbage { head } => write!(f, "garbage beginning {head:#x}"),
            Self::Lost => f.write_str("that it is lost"),
        }
    }
}

const fn mix(a: u64) -> u64 {
    let z = a.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Bytes of a sector: what media write whole or not at all, so each tells whose it is.
const SECTOR: usize = 512;

static ZEROES: [u8; BLOCK] = [0; BLOCK];

/// Fills a block of `volume`, of 512 or 4096 bytes, with what the write `stamp` puts there.
pub fn fill(out: &mut [u8], stamp: Stamp, volume: u64, block: u64) {
    assert!(matches!(out.len(), SECTOR | BLOCK), "one block at a time");
    if stamp == Stamp::ZERO {
        out.fill(0);
        return;
    }
    let seed = mix(stamp.0) ^ mix(volume << 40 ^ block);
    for (sector, number) in out.chunks_exact_mut(SECTOR).zip(0..) {
        let word = mix(seed.wrapping_add(number)) | 1;
        let (first, rest) = sector.split_at_mut(SECTOR / 8);
        first.as_chunks_mut().0.fill(word.to_le_bytes());
        rest.chunks_exact_mut(SECTOR / 8).for_each(|part| part.copy_from_slice(first));
    }
    for (to, word) in out.chunks_exact_mut(8).zip([stamp.0, volume, block]) {
        to.copy_from_slice(&word.to_le_bytes());
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.as_chunks().0.get(at).map_or(0, |word| u64::from_le_bytes(*word))
}

/// Recognizes what is in a block of `volume`.
pub fn recognize(bytes: &[u8], volume: u64, block: u64) -> Found {
    if *bytes == ZEROES[..bytes.len()] {
        return Found::Stamp(Stamp::ZERO);
    }
    let (stamp, of, at) = (Stamp(word(bytes, 0)), word(bytes, 1), word(bytes, 2));
    let mut whole = ZEROES;
    let whole = &mut whole[..bytes.len()];
    fill(whole, stamp, of, at);
    match bytes == whole {
        true if (of, at) == (volume, block) => Found::Stamp(stamp),
        true => Found::Elsewhere { stamp, volume: of, block: at },
        false => Found::Garbage { head: word(bytes, 0) },
    }
}

/// Whether a block has what some write put into some block.
pub fn is_written(block: &[u8]) -> bool {
    match recognize(block, u64::MAX, u64::MAX) {
        Found::Elsewhere { .. } => true,
        Found::Stamp(_) | Found::Garbage { .. } | Found::Lost => false,
    }
}

/// The blocks of `bytes`, each of `unit` bytes, recognized.
pub fn recognize_all(bytes: &[u8], unit: usize, volume: u64, first: u64) -> Vec<Found> {
    let blocks = bytes.chunks_exact(unit).zip(first..);
    blocks.map(|(bytes, block)| recognize(bytes, volume, block)).collect()
}

/// How many bytes `blocks` take.
pub fn bytes_of(blocks: u64) -> usize {
    usize64(blocks) * BLOCK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_filled_is_recognized_and_nothing_else() {
        let mut block = [0; BLOCK];
        assert_eq!(recognize(&block, 1, 2), Found::Stamp(Stamp::ZERO));
        fill(&mut block, Stamp(9), 1, 2);
        assert_eq!(recognize(&block, 1, 2), Found::Stamp(Stamp(9)));
        let elsewhere = Found::Elsewhere { stamp: Stamp(9), volume: 1, block: 2 };
        assert_eq!(recognize(&block, 1, 3), elsewhere);
        block[4095] ^= 1;
        assert!(matches!(recognize(&block, 1, 2), Found::Garbage { head: 9 }));
        fill(&mut block, Stamp::ZERO, 1, 2);
        assert!(block.iter().all(|&b| b == 0));
    }
}
