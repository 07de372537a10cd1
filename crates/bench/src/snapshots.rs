//! What snapshots cost: hosts' rates right after one and beside many of them, in turn with a pool that has none; how long
//! taking them holds hosts back; how fast they are taken and deleted where there are many. Without protocol or network.

use crate::upkeep::{drive, median, per_second};
use crate::volume::Load;
use engine::{CloneSpec, LogSpec, OpenOptions, Pool, PoolSpec, SnapshotSpec, Volume, VolumeSpec};
use media::memory::RegionOptions;
use media::{Drive, Pmem};
use reactor::{Config, Nanos, PollPolicy, now_exact};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use stdx::{Histogram, Prng};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;

type Failed = Box<dyn Error>;

#[derive(clap::Args, Clone)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Clone)]
enum What {
    /// 4K random writes and reads right after a snapshot, and beside many, against a pool without any
    Rates(Rates),
    /// 4K random writes and reads on a clone of clones, against a volume that is none
    Clones(Clones),
    /// The longest wait of 4K random reads and writes while snapshots of a group of volumes are taken
    Stalls(Stalls),
    /// Snapshots taken and deleted one by one, with many there; opening such a pool
    Many {
        /// Volumes
        #[arg(long, default_value_t = 10_000)]
        volumes: u64,
        /// Snapshots of each
        #[arg(long, default_value_t = 10)]
        snapshots: u64,
        /// Taken and deleted while that is measured
        #[arg(long, default_value_t = 5000)]
        changes: u64,
    },
}

#[derive(clap::Args, Clone, Copy)]
struct Rates {
    /// MiB of the volume
    #[arg(long, default_value_t = 256)]
    size: u64,
    /// Snapshots, where there are many
    #[arg(long, default_value_t = 1000)]
    snapshots: u64,
    /// Blocks written at random between two of them
    #[arg(long, default_value_t = 64)]
    between: u64,
    /// Requests outstanding
    #[arg(long, default_value_t = 32)]
    iodepth: usize,
    /// Seconds of each run
    #[arg(long, default_value_t = 0.5)]
    runtime: f64,
    /// Paired runs
    #[arg(long, default_value_t = 7)]
    rounds: u64,
}

#[derive(clap::Args, Clone, Copy)]
struct Stalls {
    /// Volumes, all in one group
    #[arg(long, default_value_t = 16)]
    volumes: u64,
    /// Milliseconds from one snapshot of the group to the next
    #[arg(long, default_value_t = 20)]
    every: u64,
    /// Requests outstanding on each volume
    #[arg(long, default_value_t = 2)]
    iodepth: usize,
    /// Seconds of each run
    #[arg(long, default_value_t = 1.0)]
    runtime: f64,
    /// Paired runs
    #[arg(long, default_value_t = 7)]
    rounds: u64,
}

#[derive(clap::Args, Clone, Copy)]
struct Clones {
    /// How many clones lie between the volume and what was written first
    #[arg(long, default_value_t = 32)]
    depth: u64,
    /// Give the last one all that it shares as its own first
    #[arg(long)]
    detached: bool,
    #[command(flatten)]
    rates: Rates,
}

fn id(number: u64) -> [u8; 16] {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_le_bytes());
    id
}

/// A pool in memory, with volumes of so many bytes.
async fn made(
    drives: Vec<Arc<Drive>>,
    log: LogSpec,
    volumes: u64,
    bytes: u64,
) -> Result<Pool, Failed> {
    let spec = PoolSpec {
        name: "fast".into(),
        id: [1; 16],
        drives,
        scheme: raid::Scheme::Raid6,
        log,
        log_bytes: None,
        shards: Some(1),
        au_bytes: None,
        created: 0,
    };
    let pool = Pool::create(spec, &[]).await?;
    for n in 0..volumes {
        let spec = VolumeSpec {
            name: format!("v{n}"),
            id: id(n),
            bytes,
            block_size: 4096,
            quota: None,
            reservation: None,
        };
        pool.create_volume(spec).await?;
    }
    Ok(pool)
}

fn log() -> Result<LogSpec, Failed> {
    Ok(LogSpec::Bbu(vec![Arc::new(Pmem::anonymous(64 * MIB)?)]))
}

/// A pool of six drives with a volume that is full.
async fn full(size: u64) -> Result<(Pool, Volume), Failed> {
    // Far more than contents and old versions take.
    let bytes = size * MIB;
    let drives: Vec<_> = (0..6).map(|n| drive(2 * bytes, None, n)).collect::<Result<_, _>>()?;
    let pool = made(drives, log()?, 1, bytes).await?;
    let volume = pool.volume("v0")?;
    let mut piece = vec![0; 256 << 10];
    let mut prng = Prng::new(7);
    for at in (0..volume.len()).step_by(piece.len()) {
        prng.fill(&mut piece[..4096]);
        volume.write(at, &piece).await?;
    }
    pool.audit_space().await?;
    Ok((pool, volume))
}

async fn take(pool: &Pool, volumes: u64, name: &str) -> Result<(), Failed> {
    let spec = |n| {
        let (volume, name) = (format!("v{n}"), name.to_owned());
        SnapshotSpec { volume, name, id: id(n), created: 0 }
    };
    Ok(pool.take_snapshots((0..volumes).map(spec).collect()).await?)
}

async fn delete(pool: &Pool, volumes: u64, name: &str) -> Result<(), Failed> {
    for n in 0..volumes {
        pool.delete_snapshot(&format!("v{n}"), name).await?;
    }
    Ok(())
}

/// How many a second are answered.
async fn rate(volume: &Volume, a: Rates, reads: u64, seed: u64) -> Result<f64, Failed> {
    let Rates { iodepth, runtime, .. } = a;
    let (bytes, every) = (volume.len(), Duration::ZERO);
    let load = Load { bytes, iodepth, runtime, reads, every, seed };
    Ok(per_second(load.put_on(volume.clone()).await?.count(), runtime))
}

/// As [`rate`]. What it leaves to be done behind it is done, too: both pools have one core, and the next one measured is not
/// to pay for the other.
async fn settled_rate(
    pool: &Pool,
    volume: &Volume,
    a: Rates,
    reads: u64,
    seed: u64,
) -> Result<f64, Failed> {
    let rate = rate(volume, a, reads, seed).await?;
    pool.audit_space().await?;
    Ok(rate)
}

/// Rates of pairs, and the median of their ratios.
fn show(what: &str, pairs: &[(f64, f64)]) {
    let (without, with) = pairs.iter().copied().unzip();
    let ratio = median(pairs.iter().map(|(without, with)| with / without).collect());
    println!(
        "{what:<36} {:>8.0} IOPS, without any {:>8.0}; {ratio:.2} of that",
        median(with),
        median(without)
    );
}

async fn rates(a: Rates) -> Result<(), Failed> {
    let ((plain, without), (pool, with)) = (full(a.size).await?, full(a.size).await?);
    println!(
        "a volume of {} MiB on six drives of a RAID 6, in memory, one core; 4K at random, depth {}; {} paired runs, \
         medians",
        a.size, a.iodepth, a.rounds
    );
    let mut after = Vec::new();
    for seed in 0..a.rounds {
        let before = settled_rate(&plain, &without, a, 0, seed).await?;
        take(&pool, 1, "one").await?;
        after.push((before, rate(&with, a, 0, seed).await?));
        delete(&pool, 1, "one").await?;
        // The space of what it saw is had back.
        pool.audit_space().await?;
    }
    show("writes right after a snapshot", &after);
    let mut prng = Prng::new(1);
    for n in 0..a.snapshots {
        take(&pool, 1, &format!("s{n}")).await?;
        for _ in 0..a.between {
            let at = prng.below(a.size * MIB / BLOCK) * BLOCK;
            with.write(at, &[0x11; 4096]).await?;
            without.write(at, &[0x11; 4096]).await?;
        }
    }
    for (what, reads) in [("writes", 0), ("reads", 100)] {
        let mut pairs = Vec::new();
        for seed in 0..a.rounds {
            let before = settled_rate(&plain, &without, a, reads, seed).await?;
            pairs.push((before, settled_rate(&pool, &with, a, reads, seed).await?));
        }
        show(&format!("{what} beside {} snapshots", a.snapshots), &pairs);
    }
    drop((without, with));
    plain.close().await?;
    Ok(pool.close().await?)
}

/// The last of clones of clones, each with some blocks of its own.
async fn chain(pool: &Pool, a: Clones) -> Result<Volume, Failed> {
    let mut prng = Prng::new(2);
    let mut last = pool.volume("v0")?;
    for n in 0..a.depth {
        let (volume, name) = (last.name(), "one".to_owned());
        pool.take_snapshots(vec![SnapshotSpec { volume, name, id: id(n), created: 0 }]).await?;
        let (volume, snapshot, name) = (last.name(), "one".into(), format!("v{}", n + 1));
        let spec = CloneSpec {
            volume,
            snapshot,
            name,
            id: id(n + 1),
            bytes: None,
            quota: None,
            reservation: None,
        };
        last = pool.clone_volume(spec).await?;
        for _ in 0..a.rates.between {
            let at = prng.below(a.rates.size * MIB / BLOCK) * BLOCK;
            last.write(at, &[0x11; 4096]).await?;
        }
    }
    pool.audit_space().await?;
    Ok(last)
}

/// Gives a clone what it shares as its own, and says how long that takes.
async fn detach(pool: &Pool, clone: &Volume) -> Result<(), Failed> {
    let begun = now_exact();
    pool.detach_volume(&clone.name()).await?;
    while clone.inherits() {
        reactor::sleep(Duration::from_millis(1)).await;
    }
    let took = Duration::from_nanos(now_exact() - begun).as_secs_f64();
    let blocks = f64::from(u32::try_from(clone.len() / BLOCK)?);
    println!("detached in {took:.2} s: {:.0} blocks a second", blocks / took);
    pool.audit_space().await?;
    Ok(())
}

async fn clones(a: Clones) -> Result<(), Failed> {
    let ((plain, without), (pool, first)) = (full(a.rates.size).await?, full(a.rates.size).await?);
    drop(first);
    println!(
        "a volume of {} MiB on six drives of a RAID 6, in memory, one core, and a clone of it, {} deep; 4K at random, depth \
         {}; {} paired runs, medians",
        a.rates.size, a.depth, a.rates.iodepth, a.rates.rounds
    );
    let clone = chain(&pool, a).await?;
    if a.detached {
        detach(&pool, &clone).await?;
    }
    // Reads first: what is written is the clone's own.
    for (what, reads) in [("reads", 100), ("writes", 0)] {
        let mut pairs = Vec::new();
        for seed in 0..a.rates.rounds {
            let before = rate(&without, a.rates, reads, seed).await?;
            pairs.push((before, rate(&clone, a.rates, reads, seed).await?));
        }
        show(&format!("{what} of a clone {} deep", a.depth), &pairs);
    }
    drop((without, clone));
    plain.close().await?;
    Ok(pool.close().await?)
}

async fn stalls(a: Stalls) -> Result<(), Failed> {
    let drives: Vec<_> = (0..6).map(|n| drive(256 * MIB, None, n)).collect::<Result<_, _>>()?;
    let pool = made(drives, log()?, a.volumes, 16 * MIB).await?;
    println!(
        "{} volumes of a RAID 6 in memory, one core, each with {} requests of 4K at random, 70 of 100 reads; snapshots of \
         all each {} ms; {} paired runs",
        a.volumes, a.iodepth, a.every, a.rounds
    );
    let names: Vec<_> = (0..a.volumes).map(|n| format!("v{n}")).collect();
    let volumes: Vec<Volume> =
        names.iter().map(|name| pool.volume(name)).collect::<Result<_, _>>()?;
    let mut longest = [Vec::new(), Vec::new()];
    for round in 0..a.rounds {
        for (snapshots, of) in [false, true].into_iter().zip(&mut longest) {
            let Stalls { iodepth, runtime, .. } = a;
            let loads = volumes.iter().zip(0..).map(|(volume, n)| {
                let (bytes, every) = (volume.len(), Duration::ZERO);
                let seed = round * 1000 + n * 100;
                let load = Load { bytes, iodepth, runtime, reads: 70, every, seed };
                reactor::spawn(load.put_on(volume.clone()))
            });
            let loads: Vec<_> = loads.collect();
            let nanos = u64::try_from(Duration::from_secs_f64(runtime).as_nanos())?;
            let end = now_exact().saturating_add(nanos);
            let mut taken = 0;
            while snapshots && now_exact() < end {
                reactor::sleep(Duration::from_millis(a.every)).await;
                take(&pool, a.volumes, "group").await?;
                delete(&pool, a.volumes, "group").await?;
                taken += 1;
            }
            let mut all = Histogram::new();
            for load in loads {
                all.merge(&load.await.ok_or("a task was dropped")??);
            }
            of.push(all);
            if snapshots && round == 0 {
                println!("{taken} snapshots of the group in the first run");
            }
        }
    }
    for (what, of) in ["alone", "snapshots"].iter().zip(&longest) {
        let us = |percent| {
            let of_each = of.iter().map(|run| micros(run.percentile(percent)));
            median(of_each.collect())
        };
        println!(
            "{what:<10} p50 {:>6.0} us, p99 {:>6.0} us, p99.99 {:>6.0} us, longest {:>6.0} us (medians of runs)",
            us(50.0),
            us(99.0),
            us(99.99),
            us(100.0)
        );
    }
    drop(volumes);
    Ok(pool.close().await?)
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn micros(nanos: Nanos) -> f64 {
    nanos as f64 / 1e3
}

fn since(begun: Nanos) -> f64 {
    micros(now_exact() - begun) / 1e6
}

async fn many(volumes: u64, snapshots: u64, changes: u64) -> Result<(), Failed> {
    let drive = |_| Drive::memory(16 << 30, RegionOptions::default()).map(Arc::new);
    let drives: Vec<_> = (0..4).map(drive).collect::<Result<_, _>>()?;
    let log = log()?;
    let pool = made(drives.clone(), log.clone(), volumes, 1 << 30).await?;
    for n in 0..snapshots {
        // By the hundred: an edit of the catalog has room for some hundreds.
        let all: Vec<_> = (0..volumes).collect();
        for part in all.chunks(100) {
            let spec = |of: &u64| SnapshotSpec {
                volume: format!("v{of}"),
                name: format!("s{n}"),
                id: id(*of),
                created: 0,
            };
            pool.take_snapshots(part.iter().map(spec).collect()).await?;
        }
    }
    let of = |n: u64| (format!("v{}", n % volumes), format!("x{n}"));
    let begun = now_exact();
    for n in 0..changes {
        let (volume, name) = of(n);
        pool.take_snapshots(vec![SnapshotSpec { volume, name, id: id(n), created: 0 }]).await?;
    }
    let took = since(begun);
    let begun = now_exact();
    for n in 0..changes {
        let (volume, name) = of(n);
        pool.delete_snapshot(&volume, &name).await?;
    }
    let deleted = since(begun);
    pool.close().await?;
    let begun = now_exact();
    let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await?;
    let opened = since(begun);
    let there = pool.all_snapshots().len();
    pool.close().await?;
    println!(
        "{volumes} volumes, {there} snapshots: {:.0} taken a second, {:.0} deleted a second, opened in {:.2} s",
        per_second(changes, took),
        per_second(changes, deleted),
        opened
    );
    Ok(())
}

async fn measure(what: What) -> Result<(), Failed> {
    match what {
        What::Rates(a) => rates(a).await,
        What::Clones(a) => clones(a).await,
        What::Stalls(a) => stalls(a).await,
        What::Many { volumes, snapshots, changes } => many(volumes, snapshots, changes).await,
    }
}

pub fn run(a: Arguments) -> Result<(), Failed> {
    let config = Config { cpu: Some(0), poll: PollPolicy::Busy, name: "snapshots".into() };
    let done =
        reactor::run(config, async move { measure(a.what).await.map_err(|e| e.to_string()) });
    Ok(done??)
}
