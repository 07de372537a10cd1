//! The array engine by itself: a volume on drives in memory, without protocol or network, beside the
//! plain copy that a memory namespace makes of the same blocks.

use engine::{LogSpec, Pool, PoolSpec, VolumeSpec};
use media::memory::{Region, RegionOptions};
use media::{Drive, Pmem};
use reactor::{Config, PollPolicy, now_exact, spawn};
use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::num::{u64_of, usize64};
use stdx::{Histogram, Prng};

const BLOCK: u64 = 4096;

/// The pool that is measured.
#[derive(clap::Args, Clone)]
pub struct PoolArguments {
    /// Drives, each in memory
    #[arg(long, default_value_t = 10)]
    drives: usize,
    /// Bytes of each drive
    #[arg(long, default_value = "512MiB", value_parser = stdx::size::parse)]
    drive_size: u64,
    /// `single`, `mirror`, `raid5` or `raid6`
    #[arg(long, default_value = "raid6")]
    raid: String,
    /// Bytes of the commit log, in memory
    #[arg(long, default_value = "64MiB", value_parser = stdx::size::parse)]
    log_size: u64,
}

/// What is measured, and on what.
#[derive(clap::Args, Clone)]
pub struct EngineArguments {
    #[command(flatten)]
    pool: PoolArguments,
    /// Bytes of the volume; filled first
    #[arg(long, default_value = "1GiB", value_parser = stdx::size::parse)]
    volume: u64,
    /// Bytes of each request
    #[arg(long, default_value = "4k", value_parser = stdx::size::parse)]
    bs: u64,
    /// Requests outstanding
    #[arg(long, default_value_t = 32)]
    iodepth: usize,
    /// Requests go one after another through the volume instead of at random
    #[arg(long)]
    sequential: bool,
    /// Reads instead of writes
    #[arg(long)]
    read: bool,
    /// Seconds measured
    #[arg(long, default_value_t = 3.0)]
    runtime: f64,
    #[arg(long, default_value_t = 0)]
    cpu: usize,
}

/// What a run came to.
struct Figures {
    operations: u64,
    seconds: f64,
    latency: Histogram,
}

fn scheme(name: &str) -> Result<raid::Scheme, Box<dyn Error>> {
    Ok(match name {
        "single" => raid::Scheme::Single,
        "mirror" => raid::Scheme::Mirror { copies: 2 },
        "raid5" => raid::Scheme::Raid5,
        "raid6" => raid::Scheme::Raid6,
        other => return Err(format!("{other} is not a RAID scheme").into()),
    })
}

/// Makes it, with one shard.
pub async fn pool(arguments: &PoolArguments) -> Result<Pool, Box<dyn Error>> {
    // A drive does not fault.
    let options = RegionOptions { committed: true, ..RegionOptions::default() };
    let drive = || Drive::memory(arguments.drive_size, options).map(Arc::new);
    let drives = (0..arguments.drives).map(|_| drive()).collect::<Result<Vec<_>, _>>()?;
    let log = LogSpec::Bbu(vec![Arc::new(Pmem::anonymous(arguments.log_size)?)]);
    let spec = PoolSpec {
        name: "bench".into(),
        id: [1; 16],
        drives,
        scheme: scheme(&arguments.raid)?,
        log,
        log_bytes: None,
        shards: Some(1),
        au_bytes: None,
        created: 0,
    };
    Ok(Pool::create(spec, &[]).await?)
}

async fn measure(arguments: EngineArguments) -> Result<(Figures, engine::PoolStatus), String> {
    let pool = pool(&arguments.pool).await.map_err(|e| e.to_string())?;
    let spec = VolumeSpec {
        name: "v".into(),
        id: [2; 16],
        bytes: arguments.volume,
        block_size: 4096,
        quota: None,
        reservation: None,
    };
    let volume = pool.create_volume(spec).await.map_err(|e| e.to_string())?;
    let mut piece = vec![0x5a; 256 << 10];
    let mut prng = Prng::new(7);
    prng.fill(&mut piece);
    for at in (0..arguments.volume).step_by(piece.len()) {
        volume.write(at, &piece).await.map_err(|e| e.to_string())?;
    }
    let latency = Rc::new(std::cell::RefCell::new(Histogram::new()));
    let (operations, next) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(0_u64)));
    let begun = now_exact();
    let end = begun
        + u64::try_from(Duration::from_secs_f64(arguments.runtime).as_nanos()).unwrap_or(u64::MAX);
    let requests = arguments.volume / arguments.bs;
    let mut tasks = Vec::new();
    for n in 0..arguments.iodepth {
        let (volume, latency, operations) =
            (volume.clone(), Rc::clone(&latency), Rc::clone(&operations));
        let (arguments, next) = (arguments.clone(), Rc::clone(&next));
        tasks.push(spawn(async move {
            let mut prng = Prng::new(u64_of(n) + 100);
            let mut data = vec![0; usize64(arguments.bs)];
            prng.fill(&mut data);
            while now_exact() < end {
                let at = if arguments.sequential {
                    next.set(next.get() + 1);
                    next.get() % requests
                } else {
                    prng.below(requests)
                };
                let began = now_exact();
                let at = at * arguments.bs;
                if arguments.read {
                    volume.read(at, &mut data).await.map_err(|e| e.to_string())?;
                } else {
                    volume.write(at, &data).await.map_err(|e| e.to_string())?;
                }
                latency.borrow_mut().record(now_exact() - began);
                operations.set(operations.get() + 1);
                // As a host would: others have their turn between two requests.
                reactor::yield_now().await;
            }
            Ok::<(), String>(())
        }));
    }
    for task in tasks {
        task.await.ok_or("a task was dropped")??;
    }
    let seconds = Duration::from_nanos(now_exact() - begun).as_secs_f64();
    let latency = latency.take();
    let status = pool.status().await.map_err(|e| e.to_string())?;
    Ok((Figures { operations: operations.get(), seconds, latency }, status))
}

/// Copies of the same size into memory, as many a second as one core makes.
fn copies(arguments: &EngineArguments) -> Result<f64, Box<dyn Error>> {
    let options = RegionOptions { shared: false, ..RegionOptions::default() };
    let region = Region::new(arguments.volume, options)?;
    let mut data = vec![0x5a; usize64(arguments.bs)];
    for at in (0..arguments.volume).step_by(data.len()) {
        region.copy_in(at, &data)?;
    }
    let mut prng = Prng::new(1);
    let requests = arguments.volume / arguments.bs;
    let begun = now_exact();
    let mut done = 0_u32;
    while now_exact() < begun + 1_000_000_000 {
        let at = prng.below(requests) * arguments.bs;
        if arguments.read {
            region.copy_out(at, &mut data)?;
        } else {
            region.copy_in(at, &data)?;
        }
        done += 1;
    }
    Ok(f64::from(done) / Duration::from_nanos(now_exact() - begun).as_secs_f64())
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
pub fn run(arguments: EngineArguments) -> Result<(), Box<dyn Error>> {
    let config = Config { cpu: Some(arguments.cpu), poll: PollPolicy::Busy, name: "engine".into() };
    let (figures, status) = reactor::run(config, measure(arguments.clone()))??;
    let rate = figures.operations as f64 / figures.seconds;
    let copies = copies(&arguments)?;
    println!(
        "{:.0} requests/s, {:.0} MB/s; p50 {:.1} us, p99 {:.1} us; {:.2} of plain copies ({copies:.0}/s)",
        rate,
        rate * arguments.bs as f64 / 1e6,
        figures.latency.percentile(50.0) as f64 / 1e3,
        figures.latency.percentile(99.0) as f64 / 1e3,
        rate / copies,
    );
    let reads: u64 = status.drives.iter().map(|drive| drive.counters.reads).sum();
    println!(
        "drives: {reads} reads; {:.3} bytes written per byte of hosts; {} blocks moved, {} segments reclaimed",
        status.drive_written as f64 / status.written.max(1) as f64,
        status.moved / BLOCK,
        status.segments_reclaimed,
    );
    Ok(())
}
