//! What it costs that the shard of a request is on another core: a volume read and written from the shard's own
//! reactor, from another one, and from two of which each has a shard; without protocol or network.

use crate::volume::Load;
use engine::{LogSpec, Pool, PoolSpec, Volume, VolumeSpec};
use media::memory::RegionOptions;
use media::{Drive, Pmem};
use reactor::{Config, Handle, PollPolicy, Reactor, now_exact};
use std::cell::Cell;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use stdx::num::u64_of;
use stdx::{Histogram, Prng};

const MIB: u64 = 1 << 20;
const VOLUME: u64 = 128 * MIB;

#[derive(clap::Args, Clone, Copy)]
pub struct Arguments {
    /// Requests outstanding on each reactor that asks
    #[arg(long, default_value_t = 32)]
    iodepth: usize,
    /// Seconds of each run
    #[arg(long, default_value_t = 0.2)]
    runtime: f64,
    /// Runs of each row; the best is shown, as what else the machine does only ever takes time
    #[arg(long, default_value_t = 20)]
    rounds: usize,
}

/// Who has the shards, and who asks: of reactors 0 and 1.
struct Row {
    name: &'static str,
    shards: u16,
    asks: &'static [usize],
}

const ROWS: [Row; 4] = [
    Row { name: "1 reactor, 1 shard, asked there", shards: 1, asks: &[0] },
    Row { name: "1 shard, asked from the other reactor", shards: 1, asks: &[1] },
    Row { name: "1 shard, asked from both", shards: 1, asks: &[0, 1] },
    Row { name: "2 shards on 2 reactors, asked from both", shards: 2, asks: &[0, 1] },
];

/// What a run came to.
#[derive(Clone, Copy)]
struct Figures {
    iops: f64,
    p50: u64,
    /// Nanoseconds at work for each request, of either reactor.
    busy: [f64; 2],
}

thread_local! {
    static POOL: Cell<Option<Pool>> = const { Cell::new(None) };
}

async fn make(shards: u16, on: Vec<Handle>) -> Result<Volume, Box<dyn Error>> {
    let options = RegionOptions { committed: true, ..RegionOptions::default() };
    let drive = || Drive::memory(128 * MIB, options).map(Arc::new);
    let drives = (0..6).map(|_| drive()).collect::<Result<Vec<_>, _>>()?;
    let spec = PoolSpec {
        name: "crossing".into(),
        id: [1; 16],
        drives,
        scheme: raid::Scheme::Raid6,
        log: LogSpec::Bbu(vec![Arc::new(Pmem::anonymous(64 * MIB)?)]),
        log_bytes: None,
        shards: Some(shards),
        au_bytes: Some(MIB),
        created: 0,
    };
    let pool = Pool::create(spec, &on).await?;
    let spec = VolumeSpec {
        name: "v".into(),
        id: [2; 16],
        bytes: VOLUME,
        block_size: 4096,
        quota: None,
        reservation: None,
    };
    let volume = pool.create_volume(spec).await?;
    let mut piece = vec![0x5a; 256 << 10];
    Prng::new(7).fill(&mut piece);
    for at in (0..VOLUME).step_by(piece.len()) {
        volume.write(at, &piece).await?;
    }
    POOL.set(Some(pool));
    Ok(volume)
}

/// On the pool's reactor.
async fn close() -> Result<(), String> {
    match POOL.take() {
        Some(pool) => pool.close().await.map_err(|e| e.to_string()),
        None => Err("there is no pool".into()),
    }
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn run_once(row: &Row, read: bool, a: Arguments) -> Result<Figures, Box<dyn Error>> {
    let start = |n: usize| {
        let (name, poll) = (format!("r{n}"), PollPolicy::Busy);
        Reactor::start(Config { cpu: Some(n), poll, name })
    };
    let on = [start(0)?, start(1)?];
    let (shards, theirs) = (row.shards, on.to_vec());
    let made =
        on[0].call(move || async move { make(shards, theirs).await.map_err(|e| e.to_string()) });
    let volume = made.wait()??;
    let busy = || [0, 1].map(|n: usize| on[n].metrics().busy_nanos);
    let (before, begun) = (busy(), now_exact());
    let asked = row.asks.iter().map(|n| {
        let (volume, seed) = (volume.clone(), 1000 * u64_of(*n));
        let Arguments { iodepth, runtime, .. } = a;
        let (reads, every) = (if read { 100 } else { 0 }, Duration::ZERO);
        let load = Load { bytes: VOLUME, iodepth, runtime, reads, every, seed };
        on[*n].call(move || load.put_on(volume))
    });
    let asked: Vec<_> = asked.collect();
    let mut latency = Histogram::new();
    for one in asked {
        latency.merge(&one.wait()??);
    }
    let (after, seconds) = (busy(), Duration::from_nanos(now_exact() - begun).as_secs_f64());
    on[0].call(close).wait()??;
    for reactor in &on {
        reactor.stop();
        reactor.join()?;
    }
    let count = latency.count() as f64;
    let each = [0, 1].map(|n| (after[n] - before[n]) as f64 / count);
    Ok(Figures { iops: count / seconds, p50: latency.percentile(50.0), busy: each })
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
pub fn run(a: Arguments) -> Result<(), Box<dyn Error>> {
    println!(
        "4 KiB at random, depth {}; the best of {} runs, each figure by itself",
        a.iodepth, a.rounds
    );
    for read in [false, true] {
        // Rows in turn, so that runs are paired.
        let mut runs: Vec<Vec<Figures>> = ROWS.iter().map(|_| Vec::new()).collect();
        for _ in 0..a.rounds {
            for (row, runs) in ROWS.iter().zip(&mut runs) {
                runs.push(run_once(row, read, a)?);
            }
        }
        for (row, runs) in ROWS.iter().zip(&runs) {
            // What else the machine does only ever takes time.
            let most = |of: &dyn Fn(&Figures) -> f64| runs.iter().map(of).fold(0.0, f64::max);
            let least = |of: &dyn Fn(&Figures) -> f64| runs.iter().map(of).fold(f64::MAX, f64::min);
            println!(
                "{} {:40} {:>8.0} IOPS, p50 {:>5.1} us; at work for each: both reactors {:>5.0} ns, reactor 1 {:>5.0} ns",
                if read { "read " } else { "write" },
                row.name,
                most(&|run| run.iops),
                least(&|run| run.p50 as f64 / 1e3),
                least(&|run| run.busy[0] + run.busy[1]),
                least(&|run| run.busy[1]),
            );
        }
    }
    Ok(())
}
