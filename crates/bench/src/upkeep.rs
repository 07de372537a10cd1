//! What looking after a pool costs and brings: hosts' latency while it is scrubbed, a drive is made whole, or what one had is
//! rebuilt on the others, in turn with runs in which nothing else goes on; how fast drives are made whole; what is made anew
//! of one that was away. Without protocol or network.

mod rates;
mod returned;

use crate::volume::Load;
use engine::{DriveState, LogSpec, Pool, PoolSpec, ScrubPosition, Volume, VolumeSpec};
use media::memory::RegionOptions;
use media::{Drive, FaultPlan, Pmem};
use reactor::{Config, Nanos, PollPolicy};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use stdx::num::{u16_of, u64_of};
use stdx::{Histogram, Prng};

const MIB: u64 = 1 << 20;

#[derive(clap::Args, Clone)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Clone)]
enum What {
    /// Hosts' latency at half of what the pool can do, beside scrubs and beside a drive that is made whole; and of a pool
    /// with one drive more than its stripes are wide, where one is out, and beside the rebuild of what it had
    Latency(Latency),
    /// How fast what a drive had is made anew, on a drive in its place and in free space on the others, for pools of
    /// different numbers of drives, against copies and parity alone
    Rate(rates::Arguments),
    /// What is made anew of a drive that was away under load, against what its share of the writes was meanwhile
    Return(returned::Arguments),
}

#[derive(clap::Args, Clone, Copy)]
struct Latency {
    /// Drives of the pool, a RAID 6
    #[arg(long, default_value_t = 6)]
    drives: usize,
    /// Microseconds that a drive takes, at least; up to half as long more
    #[arg(long, default_value_t = 100)]
    takes: u64,
    /// MiB of each
    #[arg(long, default_value_t = 512)]
    size: u64,
    /// Requests outstanding where the pool does what it can, of which 70 in a hundred are reads
    #[arg(long, default_value_t = 16)]
    iodepth: usize,
    /// Seconds of each run
    #[arg(long, default_value_t = 1.0)]
    runtime: f64,
    /// Paired runs
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only what is measured of the wider pool
    #[arg(long)]
    wider: bool,
}

const READS: u64 = 70;

type Failed = Box<dyn Error>;

struct Rig {
    pool: Pool,
    volume: Volume,
    drives: Vec<Arc<Drive>>,
    /// The next new one. Memory is neither taken nor given back while anything is measured.
    spare: Arc<Drive>,
    replaced: u64,
}

/// A drive in memory that takes so long for each of its operations.
pub fn drive(bytes: u64, takes: Option<Duration>, seed: u64) -> Result<Arc<Drive>, Failed> {
    let options = RegionOptions { committed: true, ..RegionOptions::default() };
    let drive = Drive::memory(bytes, options)?;
    let Some(takes) = takes else { return Ok(Arc::new(drive)) };
    let delay = takes..takes + takes / 2;
    let plan = FaultPlan { seed, delay_ppm: 1_000_000, delay, ..FaultPlan::default() };
    Ok(Arc::new(drive.with_faults(plan)))
}

impl Rig {
    /// A RAID 6 of drives of so many bytes, whose volume is full, three fifths of what they have for data.
    async fn new(count: usize, bytes: u64, takes: Option<Duration>) -> Result<Self, Failed> {
        Self::wider(count, 0, bytes, takes).await
    }

    /// Likewise, with so many drives more than its stripes are wide.
    async fn wider(
        count: usize,
        more: usize,
        bytes: u64,
        takes: Option<Duration>,
    ) -> Result<Self, Failed> {
        let mut drives: Vec<_> =
            (0..count).map(|n| drive(bytes, takes, u64_of(n))).collect::<Result<_, _>>()?;
        let spec = PoolSpec {
            name: "upkeep".into(),
            id: [1; 16],
            drives: drives.clone(),
            scheme: raid::Scheme::Raid6,
            log: LogSpec::Bbu(vec![Arc::new(Pmem::anonymous(64 * MIB)?)]),
            log_bytes: None,
            shards: Some(1),
            au_bytes: Some(MIB),
            created: 0,
        };
        let pool = Pool::create(spec, &[]).await?;
        for n in count..count + more {
            let added = drive(bytes, takes, u64_of(n))?;
            let mut id = [0; 16];
            Prng::new(u64_of(1000 + n)).fill(&mut id);
            pool.add_drive(Arc::clone(&added), id).await?;
            drives.push(added);
        }
        while pool.status().await?.drives.iter().any(|drive| drive.state != DriveState::Online) {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        let full = pool.status().await?.capacity * 3 / 5 / MIB * MIB;
        let spec = VolumeSpec {
            name: "v".into(),
            id: [2; 16],
            bytes: full,
            block_size: 4096,
            quota: None,
            reservation: None,
        };
        let volume = pool.create_volume(spec).await?;
        let spare = drive(bytes, takes, u64_of(count + more))?;
        let rig = Self { pool, volume, drives, spare, replaced: 0 };
        rig.write(full, 7).await?;
        Ok(rig)
    }

    /// Writes so many bytes in pieces of 256 KiB, one behind another, and has them on the drives.
    async fn write(&self, bytes: u64, seed: u64) -> Result<(), Failed> {
        let mut piece = vec![0; 256 << 10];
        let mut prng = Prng::new(seed);
        for at in (0..bytes).step_by(piece.len()) {
            prng.fill(&mut piece);
            self.volume.write(at % self.volume.len(), &piece).await?;
        }
        self.pool.audit_space().await?;
        Ok(())
    }

    /// Puts another drive in the place of one.
    async fn replace(&mut self, index: u16) -> Result<(), Failed> {
        self.replaced += 1;
        let mut id = [0; 16];
        Prng::new(self.replaced).fill(&mut id);
        self.pool.replace_drive(index, Arc::clone(&self.spare), id).await?;
        std::mem::swap(&mut self.spare, &mut self.drives[usize::from(index)]);
        Ok(())
    }

    /// How many allocation units of the drive were made anew by the time it is whole.
    async fn whole(&self, index: u16) -> Result<u64, Failed> {
        loop {
            let status = self.pool.status().await?.drives.swap_remove(usize::from(index));
            match (status.state, status.rejoin) {
                (DriveState::Online, rejoin) => return Ok(rejoin.map_or(0, |of| of.done)),
                (DriveState::Rejoining, _) => {}
                (state, rejoin) => return Err(format!("it is {state:?}: {rejoin:?}").into()),
            }
            reactor::sleep(Duration::from_micros(200)).await;
        }
    }

    /// Whether it is scrubbed, a drive is made whole, or what one had is moved.
    async fn is_at_work(&self) -> Result<bool, Failed> {
        let status = self.pool.status().await?;
        let is_rejoining = status.drives.iter().any(|drive| drive.state == DriveState::Rejoining);
        let is_moving = status.rebuild.is_some_and(|of| of.is_under_way) || status.spread.is_some();
        Ok(is_rejoining || is_moving || status.scrub.is_some_and(|scrub| scrub.is_under_way))
    }

    async fn rest(&self) -> Result<(), Failed> {
        while self.is_at_work().await? {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Has all its drives again, whole, and rests then.
    async fn mend(&mut self) -> Result<(), Failed> {
        self.rest().await?;
        let drives = self.pool.status().await?.drives;
        let lost = drives.iter().position(|drive| drive.state != DriveState::Online);
        if let Some(index) = lost {
            self.replace(u16_of(index)).await?;
        }
        self.rest().await
    }

    async fn close(self) -> Result<(), Failed> {
        drop(self.volume);
        Ok(self.pool.close().await?)
    }
}

/// What goes on beside hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    Scrub,
    MadeWhole,
    /// A drive is out, and nothing is done about it.
    Degraded,
    /// What a drive had is made anew in free space on the others.
    Rebuild,
}

impl Beside {
    const OF_NARROW: [Self; 3] = [Self::Nothing, Self::Scrub, Self::MadeWhole];
    const OF_WIDER: [Self; 3] = [Self::Nothing, Self::Degraded, Self::Rebuild];

    const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "alone",
            Self::Scrub => "scrubbed",
            Self::MadeWhole => "a drive is made whole",
            Self::Degraded => "a drive is out",
            Self::Rebuild => "rebuilt on the others",
        }
    }

    async fn begin(self, rig: &mut Rig, round: usize) -> Result<(), Failed> {
        match self {
            Self::Nothing => Ok(()),
            Self::Scrub => Ok(rig.pool.scrub(&ScrubPosition::default(), 0).await?),
            Self::MadeWhole => rig.replace(u16_of(round % rig.drives.len())).await,
            Self::Degraded => Ok(rig.pool.fail_drive(u16_of(round % rig.drives.len())).await?),
            Self::Rebuild => {
                rig.pool.fail_drive(u16_of(round % rig.drives.len())).await?;
                Ok(rig.pool.rebuild(0).await?)
            }
        }
    }
}

/// Runs of each kind, and whether the work went on for all of each.
async fn latencies(
    a: Latency,
    more: usize,
    besides: [Beside; 3],
) -> Result<[Vec<Histogram>; 3], Failed> {
    let takes = Some(Duration::from_micros(a.takes));
    let mut rig = Rig::wider(a.drives, more, a.size * MIB, takes).await?;
    let Latency { iodepth, runtime, .. } = a;
    let bytes = rig.volume.len();
    let most = Load { bytes, iodepth, runtime, reads: READS, every: Duration::ZERO, seed: 1 };
    let answered = most.put_on(rig.volume.clone()).await?.count();
    // Half as many, by twice as many at most at a time.
    let each = Duration::from_secs_f64(runtime) * u32::try_from(4 * iodepth)?;
    let every = each / u32::try_from(answered)?;
    println!(
        "{} drives, stripes of a RAID 6 over {}, {} us and more each; 4K at random, {READS} of 100 reads: {:.0} a second at \
         depth {iodepth}; half of that, {} paired runs, medians",
        a.drives + more,
        a.drives,
        a.takes,
        per_second(answered, runtime),
        a.rounds
    );
    let mut all = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..a.rounds {
        for (beside, of) in besides.into_iter().zip(&mut all) {
            beside.begin(&mut rig, round).await?;
            let seed = u64_of(round * 100);
            let load = Load { bytes, iodepth: 2 * iodepth, runtime, reads: READS, every, seed };
            of.push(load.put_on(rig.volume.clone()).await?);
            let works = !matches!(beside, Beside::Nothing | Beside::Degraded);
            if works && !rig.is_at_work().await? {
                println!("{} was over before the run was: less --runtime", beside.name());
            }
            rig.mend().await?;
        }
    }
    rig.close().await?;
    Ok(all)
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
pub fn per_second(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn show_latencies(a: Latency, besides: [Beside; 3], all: &[Vec<Histogram>; 3]) {
    let us = |of: &Histogram, percent: f64| of.percentile(percent) as f64 / 1e3;
    let alone = &all[0];
    for (beside, of) in besides.into_iter().zip(all) {
        let of_all = |percent| median(of.iter().map(|run| us(run, percent)).collect());
        let ratio = |percent| {
            let pairs = of.iter().zip(alone);
            median(pairs.map(|(run, alone)| us(run, percent) / us(alone, percent)).collect())
        };
        println!(
            "{:<22} {:>7.0} IOPS, p50 {:>6.0} us, p99 {:>6.0} us, p99.9 {:>6.0} us; to alone p50 {:.2}, p99 {:.2}, \
             p99.9 {:.2}",
            beside.name(),
            median(of.iter().map(|run| per_second(run.count(), a.runtime)).collect()),
            of_all(50.0),
            of_all(99.0),
            of_all(99.9),
            ratio(50.0),
            ratio(99.0),
            ratio(99.9)
        );
    }
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e9
}

async fn measure(what: What) -> Result<(), Failed> {
    match what {
        What::Latency(a) => {
            let narrow = (0, Beside::OF_NARROW);
            let wider = (1, Beside::OF_WIDER);
            for (more, besides) in [narrow, wider].into_iter().skip(usize::from(a.wider)) {
                show_latencies(a, besides, &latencies(a, more, besides).await?);
            }
        }
        What::Rate(a) => rates::show(&a).await?,
        What::Return(a) => returned::show(a).await?,
    }
    Ok(())
}

pub fn run(a: Arguments) -> Result<(), Failed> {
    let config = Config { cpu: Some(0), poll: PollPolicy::Busy, name: "upkeep".into() };
    let done =
        reactor::run(config, async move { measure(a.what).await.map_err(|e| e.to_string()) });
    Ok(done??)
}
