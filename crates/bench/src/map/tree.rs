//! The alternative: a copy-on-write tree of map pages behind a buffer of changes.
//!
//! A leaf has the locations and checksums (11 bytes) of 372 neighbouring blocks. Changes gather in
//! memory; when the buffer is full, the next leaf of a round through the key space takes all that
//! waits for it: it is read, changed and written elsewhere, and its parents with it, once for all
//! their leaves of the round. Only counts are simulated: they are all that its costs depend on.

use super::ratio;
use stdx::Prng;
use stdx::num::usize64;

const LEAF_BLOCKS: u64 = 4096 / 11;
/// Bytes of memory of one buffered change: the slot of our memtable, none of it unused.
const CHANGE: u64 = 24;
/// Bytes of memory that find a leaf: its location and checksum.
const FIND: u64 = 12;

pub fn run(space: u64, memory_per_tib: u64, entries: u64) {
    let whole = space / 4096;
    let scale = whole.div_ceil(entries).max(1);
    let memory =
        u64::try_from((u128::from(memory_per_tib) * u128::from(space)) >> 40).unwrap_or(u64::MAX);
    let leaves = (whole / LEAF_BLOCKS / scale).max(1);
    // Three quarters of what finding leaves does not need for changes, which is what it lives by.
    let rest = memory.saturating_sub(whole / LEAF_BLOCKS * FIND) / scale;
    let (buffer, cached) = (rest * 3 / 4 / CHANGE, rest / 4 / 4096);
    let mut waiting = vec![0u32; usize64(leaves)];
    let mut random = Prng::new(11);
    let (mut total, mut cursor, mut written, mut counted) = (0u64, 0, 0u64, 0u64);
    let warm = buffer * 3;
    let window = buffer * 3;
    for n in 0..warm + window {
        waiting[usize64(random.below(leaves))] += 1;
        total += 1;
        while total > buffer {
            let taken = std::mem::take(&mut waiting[cursor]);
            cursor = (cursor + 1) % waiting.len();
            total -= u64::from(taken);
            written += u64::from(taken > 0 && n >= warm);
        }
        counted += u64::from(n >= warm);
    }
    let per_write = ratio(written * 4096, counted);
    // Parents have as many children as leaves have blocks.
    let parents = per_write / ratio(LEAF_BLOCKS, 1);
    let reads = 1.0 - ratio(cached, leaves) - ratio(buffer, whole / scale);
    println!("copy-on-write tree with a buffer of changes, 1 in {scale} of the blocks");
    println!(
        "  memory {} ({} of it finds leaves)",
        stdx::size::show(memory),
        stdx::size::show(whole / LEAF_BLOCKS * FIND)
    );
    println!(
        "  a random 4 KiB overwrite: {:.0} bytes of pages written, {per_write:.0} read",
        per_write + parents
    );
    println!("  a random lookup: {reads:.3} media reads");
}
