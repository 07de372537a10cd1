//! What a drive costs that is slower than the others: random reads of a pool whose drives all take as long, or writes to it,
//! and of one where a drive takes many times that, in turn; without protocol or network.

use crate::volume::Load;
use engine::{DriveState, LogSpec, Pool, PoolSpec, Volume, VolumeSpec};
use media::memory::RegionOptions;
use media::{Drive, FaultPlan, Pmem};
use reactor::{Config, PollPolicy};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use stdx::num::u64_of;
use stdx::{Histogram, Prng};

const MIB: u64 = 1 << 20;
const DRIVE: u64 = 256 * MIB;
const LOG: u64 = 64 * MIB;
const VOLUME: u64 = 64 * MIB;
/// How often the drives are looked at, as a node does.
const LOOK: Duration = Duration::from_millis(500);

#[derive(clap::Args, Clone, Copy)]
pub struct Arguments {
    /// Drives of the pool, a RAID 5
    #[arg(long, default_value_t = 6)]
    drives: usize,
    /// Microseconds that a drive takes, at least; up to half as long more
    #[arg(long, default_value_t = 100)]
    takes: u64,
    /// How many times that the slow one takes
    #[arg(long, default_value_t = 50)]
    times: u64,
    /// Requests outstanding
    #[arg(long, default_value_t = 4)]
    iodepth: usize,
    /// Write, in place of reading
    #[arg(long)]
    writes: bool,
    /// Drives that there are beyond those of a stripe
    #[arg(long, default_value_t = 0)]
    more: usize,
    /// The log is on drives, and not in memory
    #[arg(long)]
    log_on_drives: bool,
    /// Seconds of each run
    #[arg(long, default_value_t = 2.0)]
    runtime: f64,
    /// Paired runs
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// What a run came to, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Figures {
    iops: f64,
    p50: u64,
    p99: u64,
    p999: u64,
    longest: u64,
}

fn drive(takes: Duration, seed: u64) -> Result<Arc<Drive>, Box<dyn Error>> {
    let options = RegionOptions { committed: true, ..RegionOptions::default() };
    let delay = takes..takes + takes / 2;
    let plan = FaultPlan { seed, delay_ppm: 1_000_000, delay, ..FaultPlan::default() };
    Ok(Arc::new(Drive::memory(DRIVE, options)?.with_faults(plan)))
}

async fn make(a: Arguments, is_sick: bool) -> Result<(Pool, Volume), Box<dyn Error>> {
    let takes = |n: usize| {
        let times = if is_sick && n == 1 { a.times } else { 1 };
        Duration::from_micros(a.takes * times)
    };
    let drives = (0..a.drives).map(|n| drive(takes(n), u64_of(n))).collect::<Result<_, _>>()?;
    let log = match a.log_on_drives {
        true => LogSpec::Drives,
        false => LogSpec::Bbu(vec![Arc::new(Pmem::anonymous(LOG)?)]),
    };
    let spec = PoolSpec {
        name: "slow".into(),
        id: [1; 16],
        drives,
        scheme: raid::Scheme::Raid5,
        log,
        log_bytes: a.log_on_drives.then_some(LOG),
        shards: Some(1),
        au_bytes: Some(MIB),
        created: 0,
    };
    let pool = Pool::create(spec, &[]).await?;
    for n in 0..a.more {
        let of = a.drives + n;
        let mut id = [0; 16];
        Prng::new(u64_of(of)).fill(&mut id);
        let index = pool.add_drive(drive(takes(of), u64_of(of))?, id).await?;
        while pool.status().await?.drives[usize::from(index)].state != DriveState::Online {
            reactor::sleep(Duration::from_millis(1)).await;
        }
    }
    let spec = VolumeSpec {
        name: "v".into(),
        id: [2; 16],
        bytes: VOLUME,
        block_size: 4096,
        quota: None,
        reservation: None,
    };
    let volume = pool.create_volume(spec).await?;
    let mut piece = vec![0; 256 << 10];
    Prng::new(7).fill(&mut piece);
    for at in (0..VOLUME).step_by(piece.len()) {
        volume.write(at, &piece).await?;
    }
    // Nothing of it is in the log any more.
    pool.audit_space().await?;
    Ok((pool, volume))
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn figures(latency: &Histogram, a: Arguments) -> Figures {
    Figures {
        iops: latency.count() as f64 / a.runtime,
        p50: latency.percentile(50.0),
        p99: latency.percentile(99.0),
        p999: latency.percentile(99.9),
        longest: latency.percentile(100.0),
    }
}

async fn measure(a: Arguments) -> Result<[Vec<Figures>; 2], String> {
    let pools = [
        make(a, false).await.map_err(|e| e.to_string())?,
        make(a, true).await.map_err(|e| e.to_string())?,
    ];
    for (pool, _) in &pools {
        let pool = pool.clone();
        drop(reactor::spawn(async move {
            // Until it is closed.
            while pool.look_at_drives().await.is_ok() && pool.status().await.is_ok() {
                reactor::sleep(LOOK).await;
            }
        }));
    }
    let mut all = [Vec::new(), Vec::new()];
    // Once more than is counted: until then nobody knows which one is slow.
    for round in 0..=a.rounds {
        for ((pool, volume), figures_of) in pools.iter().zip(&mut all) {
            let (bytes, seed) = (VOLUME, u64_of(round * a.iodepth));
            let Arguments { iodepth, runtime, .. } = a;
            let reads = if a.writes { 0 } else { 100 };
            let load = Load { bytes, iodepth, runtime, reads, every: Duration::ZERO, seed };
            let latency = load.put_on(volume.clone()).await?;
            if round > 0 {
                figures_of.push(figures(&latency, a));
            }
            if a.writes {
                // What is still in the log would be the next run's to wait for.
                pool.audit_space().await.map_err(|e| e.to_string())?;
            }
        }
    }
    for (pool, volume) in pools {
        drop(volume);
        pool.close().await.map_err(|e| e.to_string())?;
    }
    Ok(all)
}

fn median<T: PartialOrd + Copy>(of: &[Figures], value: impl Fn(&Figures) -> T) -> T {
    let mut values: Vec<T> = of.iter().map(value).collect();
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    values[values.len() / 2]
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
pub fn run(a: Arguments) -> Result<(), Box<dyn Error>> {
    let poll = PollPolicy::Busy;
    let config = Config { cpu: Some(0), poll, name: "slow".into() };
    let [healthy, sick] = reactor::run(config, async move { measure(a).await })??;
    let times = a.times;
    println!(
        "{} drives, stripes of a RAID 5 over {}, {} us and more each; one {times} times slower; 4K random {}, depth {}, {} \
         paired runs, medians",
        a.drives + a.more,
        a.drives,
        a.takes,
        if a.writes { "writes" } else { "reads" },
        a.iodepth,
        a.rounds
    );
    let show = |name: &str, of: &[Figures]| {
        let us = |value: fn(&Figures) -> u64| median(of, value) as f64 / 1e3;
        println!(
            "{name:<16} {:>8.0} IOPS, p50 {:>7.0} us, p99 {:>7.0} us, p99.9 {:>7.0} us, longest {:>7.0} us",
            median(of, |f| f.iops),
            us(|f| f.p50),
            us(|f| f.p99),
            us(|f| f.p999),
            us(|f| f.longest)
        );
    };
    show("all healthy", &healthy);
    show("one slow", &sick);
    let ratio = |value: fn(&Figures) -> u64| {
        let mut ratios: Vec<f64> =
            healthy.iter().zip(&sick).map(|(h, s)| value(s) as f64 / value(h) as f64).collect();
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    };
    let mut rates: Vec<f64> = healthy.iter().zip(&sick).map(|(h, s)| s.iops / h.iops).collect();
    rates.sort_by(f64::total_cmp);
    println!(
        "one slow against all healthy: IOPS {:.2}, p50 {:.2}, p99 {:.2}, p99.9 {:.2}",
        rates[rates.len() / 2],
        ratio(|f| f.p50),
        ratio(|f| f.p99),
        ratio(|f| f.p999)
    );
    Ok(())
}
