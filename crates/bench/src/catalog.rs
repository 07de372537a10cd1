//! What making a volume costs, with few and with many of them in the pool: bytes written to each drive, and time of the
//! core. And what opening such a pool takes. Drives are simulated: they take no time of their own.

#![allow(clippy::disallowed_methods, reason = "simulated time stands still while the core works")]

use engine::{LogSpec, OpenOptions, Pool, PoolSpec, VolumeSpec};
use media::drive::SimulatedOptions;
use media::{Drive, Pmem, Simulated};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stdx::num::u64_of;

const DRIVES: u64 = 3;
const GIB: u64 = 1 << 30;

/// What is measured.
#[derive(clap::Args, Clone)]
pub struct Arguments {
    /// Volumes that there are before
    #[arg(long, value_delimiter = ',', default_values_t = [10, 1000, 100_000])]
    volumes: Vec<u64>,
    /// Volumes made and measured then
    #[arg(long, default_value_t = 8000)]
    changes: u64,
    /// Bytes of each drive
    #[arg(long, default_value = "16GiB", value_parser = stdx::size::parse)]
    drive_size: u64,
}

fn volume(n: u64) -> VolumeSpec {
    VolumeSpec {
        name: format!("volume-{n:06}"),
        id: [1; 16],
        bytes: GIB,
        block_size: 4096,
        quota: None,
        reservation: None,
    }
}

/// Bytes of the process's memory.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 4096
}

struct Made {
    spans: Vec<Duration>,
    bytes: Vec<u64>,
}

async fn make(pool: &Pool, drive: &Simulated, volumes: u64, changes: u64) -> engine::Result<Made> {
    for n in 0..volumes {
        pool.create_volume(volume(n)).await?;
    }
    let mut made = Made { spans: Vec::new(), bytes: Vec::new() };
    for n in volumes..volumes + changes {
        let (begun, had) = (Instant::now(), drive.counters().bytes_written);
        pool.create_volume(volume(n)).await?;
        made.spans.push(begun.elapsed());
        made.bytes.push(drive.counters().bytes_written - had);
    }
    Ok(made)
}

fn spec(drives: &[Arc<Drive>], log: LogSpec) -> PoolSpec {
    PoolSpec {
        name: "fast".into(),
        id: [7; 16],
        drives: drives.to_vec(),
        scheme: raid::Scheme::Raid5,
        log,
        log_bytes: None,
        shards: Some(1),
        au_bytes: None,
        created: 0,
    }
}

fn micros(span: Duration) -> f64 {
    span.as_secs_f64() * 1e6
}

fn one(volumes: u64, a: &Arguments) -> Result<(), Box<dyn Error>> {
    let options = |n| SimulatedOptions { capacity: a.drive_size, seed: n, ..Default::default() };
    let media: Vec<_> = (0..DRIVES).map(|n| Simulated::new(options(n))).collect();
    let drives: Vec<_> =
        media.iter().map(|medium| Arc::new(Drive::Simulated(Arc::clone(medium)))).collect();
    let log = LogSpec::Bbu(vec![Arc::new(Pmem::anonymous(8 << 20)?)]);
    let (given, first, spec, changes) =
        (drives.clone(), Arc::clone(&media[0]), spec(&drives, log.clone()), a.changes);
    let made = reactor::simulate(1, async move {
        let pool = Pool::create(spec, &[]).await?;
        let made = make(&pool, &first, volumes, changes).await;
        pool.close().await?;
        made
    });
    let Made { mut spans, mut bytes } = made?;
    let count = u64_of(spans.len()).max(1);
    let mean_span: Duration = spans.iter().sum::<Duration>() / u32::try_from(count)?;
    let mean_bytes = bytes.iter().sum::<u64>() / count;
    spans.sort();
    bytes.sort_unstable();
    let half = spans.len() / 2;
    let had = resident();
    let (opened, grown) = reactor::simulate(2, async move {
        let begun = Instant::now();
        let pool = Pool::open(given, log, OpenOptions::default(), &[]).await?;
        let opened = begun.elapsed();
        let grown = resident().saturating_sub(had);
        pool.close().await?;
        engine::Result::Ok((opened, grown))
    })?;
    println!(
        "{volumes:>8} {mean_bytes:>12} {:>10} {:>10} {:>9.1} {:>9.1} {:>9.0} {:>9.0} {:>8.1}",
        bytes[half],
        bytes[bytes.len() - 1],
        micros(mean_span),
        micros(spans[half]),
        micros(spans[spans.len() - 1]),
        micros(opened) / 1e3,
        f64::from(u32::try_from(grown >> 10)?) / 1024.0,
    );
    Ok(())
}

/// Prints a row for each number of volumes.
pub fn run(a: &Arguments) -> Result<(), Box<dyn Error>> {
    println!(
        "{DRIVES} drives, {} volumes made and measured; bytes are those of one drive",
        a.changes
    );
    println!(
        "{:>8} {:>12} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>8}",
        "volumes", "bytes, mean", "median", "most", "us, mean", "median", "most", "open, ms", "MiB"
    );
    a.volumes.iter().try_for_each(|volumes| one(*volumes, a))
}
