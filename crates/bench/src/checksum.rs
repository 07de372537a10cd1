//! The checksum of blocks in the cache, against the library that does what our own does not.

use reactor::now_exact;
use std::hint::black_box;
use std::time::Duration;
use stdx::num::u64_of;
use stdx::{Prng, crc32c};

/// Bytes gone through for one figure.
const BYTES: usize = 256 << 20;

/// Gigabytes a second that `sum` gets through, `len` at a time.
fn rate(bytes: &[u8], sum: impl Fn(&[u8]) -> u32) -> f64 {
    let turns = BYTES / bytes.len();
    let begun = now_exact();
    for _ in 0..turns {
        black_box(sum(black_box(bytes)));
    }
    let taken = Duration::from_nanos(now_exact() - begun);
    Duration::from_nanos(u64_of(turns * bytes.len())).as_secs_f64() / taken.as_secs_f64()
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Prints medians of `rounds` paired runs.
pub fn run(rounds: usize) {
    println!("| bytes | ours, GB/s | crc-fast, GB/s | ratio |\n|---|---|---|---|");
    for len in [128, 512, 4096, 16 << 10, 128 << 10] {
        let mut bytes = vec![0; len];
        Prng::new(3).fill(&mut bytes);
        let pairs = (0..rounds.max(1))
            .map(|_| (rate(&bytes, crc32c), rate(&bytes, crc_fast::crc32_iscsi)))
            .collect::<Vec<_>>();
        let (ours, theirs) = pairs.into_iter().unzip();
        let (ours, theirs) = (median(ours), median(theirs));
        println!("| {len} | {ours:.1} | {theirs:.1} | {:.2} |", ours / theirs);
    }
}
