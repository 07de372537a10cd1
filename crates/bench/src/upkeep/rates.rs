//! How fast what a drive had is made anew without load: on a drive in its place, and in free space on the others. Beside each
//! stands what one core's copies and parity alone come to, for the same stripes.

use super::{Failed, MIB, Rig, median, per_second, seconds};
use raid::Shape;
use raid::parity::{encode, reconstruct};
use reactor::now_exact;
use std::hint::black_box;
use std::time::Duration;
use stdx::Prng;
use stdx::num::{u64_of, usize32};

#[derive(clap::Args, Clone)]
pub struct Arguments {
    /// Drives of the pools, each a RAID 6
    #[arg(long, value_delimiter = ',', default_values_t = [6, 12, 24])]
    drives: Vec<usize>,
    /// MiB of each
    #[arg(long, default_value_t = 256)]
    size: u64,
    /// Paired runs
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// Stripes that copies and parity alone are measured with: more than caches hold.
const BARE_BYTES: usize = 128 << 20;
const BARE_TURNS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Replaced,
    /// In free space on the others.
    Rebuilt,
}

impl How {
    const fn name(self) -> &'static str {
        match self {
            Self::Replaced => "on a drive in its place",
            Self::Rebuilt => "in free space on the others",
        }
    }

    /// A pool of so many drives, and what its stripes are over: less than all where what a drive had needs space elsewhere.
    async fn rig(self, drives: usize, bytes: u64) -> Result<(Rig, Shape), Failed> {
        let shape = |drives| raid::Scheme::Raid6.shape(drives).ok_or("too few drives");
        let more = usize::from(self == Self::Rebuilt && shape(drives)?.width() == drives);
        Ok((Rig::wider(drives - more, more, bytes, None).await?, shape(drives - more)?))
    }
}

/// Bytes of the drive in a second that are made anew, and the shape of the pool's stripes.
async fn rate(how: How, drives: usize, bytes: u64) -> Result<(f64, Shape), Failed> {
    let (mut rig, shape) = how.rig(drives, bytes).await?;
    let (made, took) = match how {
        How::Replaced => {
            rig.replace(1).await?;
            let begun = now_exact();
            let units = rig.whole(1).await?;
            (units * MIB, now_exact() - begun)
        }
        How::Rebuilt => {
            rig.pool.fail_drive(1).await?;
            let begun = now_exact();
            rig.pool.rebuild(0).await?;
            let moved = moved(&rig).await?;
            // Of each stripe's data the drive had a unit, or its parity.
            (moved / u64::from(shape.data), now_exact() - begun)
        }
    };
    rig.close().await?;
    Ok((per_second(made, seconds(took)), shape))
}

/// Bytes of data that were moved by the time that the place is vacant.
async fn moved(rig: &Rig) -> Result<u64, Failed> {
    loop {
        let rebuild = rig.pool.status().await?.rebuild.ok_or("nothing is rebuilt")?;
        match (rebuild.is_under_way, rebuild.failure) {
            (_, Some(failure)) => return Err(failure.into()),
            (false, None) => return Ok(rebuild.done),
            (true, None) => reactor::sleep(Duration::from_micros(200)).await,
        }
    }
}

type Stripe = Vec<Vec<u8>>;

/// One core, with the units of stripes in its memory.
struct Bare {
    shape: Shape,
    from: Vec<Stripe>,
    to: Vec<Stripe>,
}

impl Bare {
    fn new(shape: Shape) -> Self {
        let unit = usize32(raid::Geometry::default_unit(shape.data)) * 4096;
        let count = (BARE_BYTES / (shape.width() * unit)).max(1);
        let mut prng = Prng::new(7);
        let mut unit = || {
            let mut unit = vec![0; unit];
            prng.fill(&mut unit);
            unit
        };
        let mut stripes =
            || (0..count).map(|_| (0..shape.width()).map(|_| unit()).collect()).collect();
        Self { shape, from: stripes(), to: stripes() }
    }

    /// Bytes of a drive in a second: as many units as it has of data are read of the others, its own is made of them, and
    /// that is written, or all of the stripe anew.
    fn rate(&mut self, how: How) -> f64 {
        let data = usize::from(self.shape.data);
        let (mut read, mut anew) = (self.from[0].clone(), self.from[0].clone());
        let (unit, count) = (read[0].len(), self.from.len());
        let begun = now_exact();
        for n in 0..BARE_TURNS * count {
            let (from, to) = (black_box(&self.from[n % count]), &mut self.to[n % count]);
            for (read, from) in read[1..=data].iter_mut().zip(&from[1..=data]) {
                read.copy_from_slice(from);
            }
            let mut units: Vec<&mut [u8]> = read.iter_mut().map(Vec::as_mut_slice).collect();
            reconstruct(&mut units, data, &[0]);
            match how {
                How::Replaced => to[0].copy_from_slice(&read[0]),
                How::Rebuilt => {
                    for (anew, read) in anew[..data].iter_mut().zip(&read[..data]) {
                        anew.copy_from_slice(read);
                    }
                    let (of_data, parity) = anew.split_at_mut(data);
                    let of_data: Vec<&[u8]> = of_data.iter().map(Vec::as_slice).collect();
                    let mut parity: Vec<&mut [u8]> =
                        parity.iter_mut().map(Vec::as_mut_slice).collect();
                    encode(&of_data, &mut parity);
                    to.iter_mut().zip(&anew).for_each(|(to, anew)| to.copy_from_slice(anew));
                }
            }
            black_box(to);
        }
        per_second(u64_of(BARE_TURNS * count * unit), seconds(now_exact() - begun))
    }
}

pub async fn show(a: &Arguments) -> Result<(), Failed> {
    println!(
        "what a drive of a RAID 6 had is made anew, no load; drives of {} MiB in memory, three fifths full, one core, {} runs, \
         medians",
        a.size, a.rounds
    );
    for how in [How::Replaced, How::Rebuilt] {
        let mut all = vec![Vec::new(); a.drives.len()];
        for _ in 0..a.rounds {
            for (drives, of) in a.drives.iter().zip(&mut all) {
                let (made, shape) = rate(how, *drives, a.size * MIB).await?;
                of.push((made, Bare::new(shape).rate(how), shape));
            }
        }
        for (drives, of) in a.drives.iter().zip(all) {
            let shape = of.first().ok_or("no runs")?.2;
            println!(
                "{:<28} {drives:>3} drives, {}+{}: {:>6.0} MB/s of the drive; copies and parity alone {:>6.0} MB/s; {:.2} of \
                 that",
                how.name(),
                shape.data,
                shape.parity,
                median(of.iter().map(|of| of.0 / 1e6).collect()),
                median(of.iter().map(|of| of.1 / 1e6).collect()),
                median(of.iter().map(|of| of.0 / of.1).collect())
            );
        }
    }
    Ok(())
}
