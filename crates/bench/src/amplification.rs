//! What reclaim writes: a volume that fills a share of the pool is overwritten at random, block by
//! block, until what is moved for each block of hosts changes no more.
//!
//! It is compared with what greedy cleaning must move. Say the pool's segments have room for `1 / u`
//! times the live blocks. A segment that was just filled loses its blocks one by one to overwrites
//! that come uniformly over all live blocks; until it is cleaned, `1 / u` times the live blocks are
//! written, those of hosts and those moved. With a share `v` of it live when it is cleaned, each
//! segment cleaned gives `1 - v` of its room to hosts, so of what is written a share `1 - v` is
//! theirs: they write `(1 - v) / u` times the live blocks meanwhile, each of which leaves a given
//! block alone with probability `1 - 1 / live`. What stays is `v = exp(-(1 - v) / u)`, hence `u = (1 -
//! v) / -ln v` (Menon 1995; Robinson 1996; Desnoyers 2012 shows that greedy cleaning comes to it when
//! segments have many blocks). A block of hosts costs `1 / (1 - v)` blocks written.

use engine::{PoolStatus, VolumeSpec};
use reactor::{Config, PollPolicy, spawn};
use std::error::Error;
use std::rc::Rc;
use stdx::Prng;
use stdx::num::u64_of;

use crate::engine::{PoolArguments, pool};

const BLOCK: u64 = 4096;

/// Bytes of each request that fills the volume.
const PIECE: usize = 256 << 10;

/// What is measured, and on what.
#[derive(clap::Args, Clone)]
pub struct Arguments {
    #[command(flatten)]
    pool: PoolArguments,
    /// Shares of the usable capacity that the volume has, in percent
    #[arg(long, value_delimiter = ',', default_values_t = [50, 75, 90])]
    fill: Vec<u64>,
    /// How often the volume is overwritten, blocks counted; the last time is measured
    #[arg(long, default_value_t = 4)]
    rounds: u64,
    /// Requests outstanding
    #[arg(long, default_value_t = 32)]
    iodepth: u64,
    #[arg(long, default_value_t = 0)]
    cpu: usize,
}

/// The share of a segment still live when greedy cleaning comes to it, where live blocks take the
/// share `utilisation` of all room.
fn live_when_cleaned(utilisation: f64) -> f64 {
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    // (1 - v) / -ln v grows with v, from 0 to 1.
    for _ in 0..60 {
        let v = f64::midpoint(low, high);
        if (1.0 - v) / -v.ln() < utilisation { low = v } else { high = v }
    }
    low
}

/// Blocks written for each block of hosts, at least.
fn bound(utilisation: f64) -> f64 {
    1.0 / (1.0 - live_when_cleaned(utilisation))
}

/// Writes so many random blocks.
async fn overwrite(
    volume: &engine::Volume,
    bytes: u64,
    times: u64,
    depth: u64,
    seed: u64,
) -> Result<(), String> {
    let tasks: Vec<_> = (0..depth)
        .map(|n| {
            let volume = volume.clone();
            spawn(async move {
                let mut prng = Prng::new(seed * depth + n);
                let mut data = [0; 4096];
                prng.fill(&mut data);
                for _ in 0..times / depth {
                    let at = prng.below(bytes / BLOCK) * BLOCK;
                    volume.write(at, &data).await.map_err(|e| e.to_string())?;
                    reactor::yield_now().await;
                }
                Ok::<(), String>(())
            })
        })
        .collect();
    for task in tasks {
        task.await.ok_or("a task was dropped")??;
    }
    Ok(())
}

/// What was written between two looks, for each block of hosts: by reclaim and hosts together, and to
/// the drives.
#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn between(before: &PoolStatus, after: &PoolStatus) -> (f64, f64) {
    let of = |value: fn(&PoolStatus) -> u64| (value(after) - value(before)) as f64;
    let written = of(|s| s.written);
    ((written + of(|s| s.moved)) / written, of(|s| s.drive_written) / written)
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
async fn measure(arguments: Rc<Arguments>, percent: u64) -> Result<(), String> {
    let pool = pool(&arguments.pool).await.map_err(|e| e.to_string())?;
    let begun = pool.status().await.map_err(|e| e.to_string())?;
    let bytes = (begun.capacity / 100 * percent).next_multiple_of(u64_of(PIECE));
    let spec = VolumeSpec {
        name: "v".into(),
        id: [2; 16],
        bytes,
        block_size: 4096,
        quota: None,
        reservation: None,
    };
    let volume = pool.create_volume(spec).await.map_err(|e| e.to_string())?;
    let mut piece = vec![0; PIECE];
    Prng::new(7).fill(&mut piece);
    for at in (0..bytes).step_by(PIECE) {
        volume.write(at, &piece).await.map_err(|e| e.to_string())?;
    }
    let mut looks = vec![pool.status().await.map_err(|e| e.to_string())?];
    for round in 0..arguments.rounds {
        overwrite(&volume, bytes, bytes / BLOCK, arguments.iodepth, round + 1).await?;
        looks.push(pool.status().await.map_err(|e| e.to_string())?);
    }
    let Some([before, last]) = looks.last_chunk::<2>() else { return Ok(()) };
    let segments: u64 = last.segments.iter().sum();
    let utilisation = bytes as f64 / (segments * last.segment_bytes) as f64;
    let (written, drives) = between(before, last);
    let bound = bound(utilisation);
    let earlier: Vec<_> =
        looks.windows(2).map(|pair| format!("{:.2}", between(&pair[0], &pair[1]).0)).collect();
    println!(
        "{percent:>3} % of {:.2} GiB usable, {utilisation:.3} of {segments} segments: {written:.2} written for each block of \
         hosts, bound {bound:.2}, ratio {:.2}; {drives:.2} to drives; by round {}",
        begun.capacity as f64 / f64::from(1 << 30),
        written / bound,
        earlier.join(" "),
    );
    pool.close().await.map_err(|e| e.to_string())
}

pub fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    for percent in &arguments.fill {
        let config = Config {
            cpu: Some(arguments.cpu),
            poll: PollPolicy::Busy,
            name: "amplification".into(),
        };
        let arguments = arguments.clone();
        let percent = *percent;
        reactor::run(config, async move { measure(Rc::new(arguments), percent).await })??;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Segments of nothing but who is in them, cleaned greedily as late as can be.
    #[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    fn cleaned(utilisation: f64) -> f64 {
        const SEGMENTS: usize = 512;
        const BLOCKS: usize = 256;
        let live = (0..SEGMENTS * BLOCKS)
            .take_while(|n| (*n as f64) < utilisation * (SEGMENTS * BLOCKS) as f64)
            .count();
        let mut prng = Prng::new(1);
        // Where each block is, and what each segment has.
        let mut place = vec![usize::MAX; live];
        let mut segments = vec![Vec::new(); SEGMENTS];
        let mut counts = vec![0_usize; SEGMENTS];
        let mut free: Vec<usize> = (1..SEGMENTS).collect();
        let mut open = 0;
        let (mut hosts, mut moved) = (0_u64, 0_u64);
        let total = 12 * live;
        for n in 0..total {
            if n == total / 2 {
                (hosts, moved) = (0, 0);
            }
            let block = if n < live { n } else { stdx::num::usize64(prng.below(u64_of(live))) };
            hosts += 1;
            let mut queue = vec![block];
            while let Some(block) = queue.pop() {
                if segments[open].len() == BLOCKS {
                    if free.len() == 1 {
                        let sealed = (0..SEGMENTS).filter(|s| *s != open && !free.contains(s));
                        let victim = sealed.min_by_key(|s| counts[*s]).unwrap();
                        let here = |b: &usize| place[*b] == victim;
                        let mut left: Vec<usize> =
                            segments[victim].drain(..).filter(here).collect();
                        left.sort_unstable();
                        left.dedup();
                        moved += u64_of(left.len());
                        counts[victim] = 0;
                        left.iter().for_each(|b| place[*b] = usize::MAX);
                        queue.extend(left);
                        free.insert(0, victim);
                    }
                    open = free.pop().unwrap();
                }
                if let Some(count) = counts.get_mut(place[block]) {
                    *count -= 1;
                }
                place[block] = open;
                counts[open] += 1;
                segments[open].push(block);
            }
        }
        (hosts + moved) as f64 / hosts as f64
    }

    #[test]
    fn greedy_cleaning_of_bare_lists_comes_to_the_bound() {
        for utilisation in [0.5, 0.7, 0.85] {
            let (found, bound) = (cleaned(utilisation), bound(utilisation));
            assert!((found / bound - 1.0).abs() < 0.04, "{utilisation}: {found} and {bound}");
        }
    }

    #[test]
    fn the_bound_is_what_others_have_printed() {
        // A victim that is half live: (1 - 0.5) / ln 2.
        assert!((bound(0.5 / std::f64::consts::LN_2) - 2.0).abs() < 1e-6);
        assert!(bound(0.01) < 1.000_001 && bound(0.99) > 45.0);
    }
}
