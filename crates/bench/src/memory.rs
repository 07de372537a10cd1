//! Copies out of a memory region at random, from pages of the usual size and from memory committed in huge ones.

use media::memory::{Region, RegionOptions};
use reactor::now_exact;
use std::error::Error;
use stdx::Prng;
use stdx::num::{u32_of, u64_of};

const BLOCK: usize = 4096;
const COPIES: usize = 200_000;

/// Nanoseconds of one random 4 KiB copy from a region of `bytes`, all of it written before.
fn copies(bytes: u64, committed: bool, shared: bool) -> Result<f64, Box<dyn Error>> {
    let options = RegionOptions { shared, committed, ..RegionOptions::default() };
    let region = Region::new(bytes, options)?;
    let mut block = [0x5a; BLOCK];
    let blocks = bytes / u64_of(BLOCK);
    for n in 0..blocks {
        region.copy_in(n * u64_of(BLOCK), &block)?;
    }
    let mut prng = Prng::new(1);
    let begun = now_exact();
    for _ in 0..COPIES {
        region.copy_out(prng.below(blocks) * u64_of(BLOCK), &mut block)?;
    }
    let nanos = std::time::Duration::from_nanos(now_exact() - begun);
    Ok(nanos.as_secs_f64() * 1e9 / f64::from(u32_of(COPIES)))
}

pub fn run(bytes: u64, rounds: usize) -> Result<(), Box<dyn Error>> {
    let ways = [
        ("one core", false, false),
        ("one core, huge pages", true, false),
        ("several cores", false, true),
        ("several cores, huge pages", true, true),
    ];
    let mut figures = vec![Vec::new(); ways.len()];
    for _ in 0..rounds {
        for ((_, committed, shared), list) in ways.iter().zip(&mut figures) {
            list.push(copies(bytes, *committed, *shared)?);
        }
    }
    for ((name, ..), list) in ways.iter().zip(&mut figures) {
        list.sort_by(f64::total_cmp);
        println!("{name:>26}: median {:.0} ns, best {:.0} ns", list[rounds / 2], list[0]);
    }
    Ok(())
}
