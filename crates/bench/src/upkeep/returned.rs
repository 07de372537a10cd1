//! A drive is away while hosts write, and comes back with what it had: what of it is made anew, and how soon.

use super::{Failed, MIB, Rig, median, mib, seconds};
use crate::volume::Load;
use engine::{DriveState, PoolStatus};
use reactor::{Nanos, now_exact};
use std::sync::Arc;
use std::time::Duration;
use stdx::num::{u16_of, u64_of};

#[derive(clap::Args, Clone, Copy)]
pub struct Arguments {
    /// Drives of the pool, a RAID 6
    #[arg(long, default_value_t = 6)]
    drives: usize,
    /// MiB of each
    #[arg(long, default_value_t = 256)]
    size: u64,
    /// Seconds for which it is away
    #[arg(long, default_value_t = 10.0)]
    away: f64,
    /// 4 KiB at random that hosts write in a second meanwhile. Much more than the pool holds says little: of what was
    /// overwritten again nothing is made anew
    #[arg(long, default_value_t = 2000)]
    iops: u64,
    /// Times
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

const IODEPTH: usize = 8;

/// What is seen of a drive while it is made whole.
struct Seen {
    at: Nanos,
    /// Bytes written to it by then.
    written: u64,
}

struct Returned {
    /// Bytes that were written to it to make it whole, and what the others were written in the mean while it was away.
    anew: u64,
    share: u64,
    /// Bytes that were read of it and of each of the others, in the mean.
    read: u64,
    others_read: u64,
    took: Nanos,
    /// Until all but a hundredth of what was made anew was there.
    missed: Nanos,
}

/// Waits until the drive is whole, while nobody asks for anything.
async fn whole(rig: &Rig, index: u16) -> Result<Vec<Seen>, Failed> {
    let mut seen = Vec::new();
    loop {
        let drive = rig.pool.status().await?.drives.swap_remove(usize::from(index));
        seen.push(Seen { at: now_exact(), written: drive.counters.bytes_written });
        match drive.state {
            DriveState::Online => return Ok(seen),
            DriveState::Rejoining => {}
            state => return Err(format!("it is {state:?}: {:?}", drive.rejoin).into()),
        }
        reactor::sleep(Duration::from_millis(1)).await;
    }
}

async fn away(rig: &Rig, a: Arguments, round: usize) -> Result<Returned, Failed> {
    let index = u16_of(round % rig.drives.len());
    let place = usize::from(index);
    let others = u64_of(rig.drives.len()) - 1;
    let of_others = |of: &PoolStatus, count: fn(&engine::DriveStatus) -> u64| -> u64 {
        let others = of.drives.iter().enumerate().filter(|(n, _)| *n != place);
        others.map(|(_, drive)| count(drive)).sum()
    };
    rig.pool.fail_drive(index).await?;
    let before = rig.pool.status().await?;
    let every = Duration::from_secs(1) * u32::try_from(IODEPTH)? / u32::try_from(a.iops)?;
    let (bytes, seed) = (rig.volume.len(), u64_of(1000 * (round + 1)));
    let load = Load { bytes, iodepth: IODEPTH, runtime: a.away, reads: 0, every, seed };
    load.put_on(rig.volume.clone()).await?;
    // What is in the log still is the others' as well.
    rig.pool.audit_space().await?;
    let after = rig.pool.status().await?;
    rig.pool.let_return(index).await?;
    let begun = now_exact();
    rig.pool.rejoin(Arc::clone(&rig.drives[place])).await?;
    let seen = whole(rig, index).await?;
    let whole = rig.pool.status().await?;
    let of = |status: &PoolStatus| {
        let counters = &status.drives[place].counters;
        (counters.bytes_read, counters.bytes_written)
    };
    let written = |drive: &engine::DriveStatus| drive.counters.bytes_written;
    let read = |drive: &engine::DriveStatus| drive.counters.bytes_read;
    let anew = of(&whole).1 - of(&after).1;
    let most = of(&after).1 + anew - anew / 100;
    let missed = seen.iter().find(|seen| seen.written >= most).map_or(begun, |seen| seen.at);
    let ended = seen.last().map_or(begun, |seen| seen.at);
    Ok(Returned {
        anew,
        share: (of_others(&after, written) - of_others(&before, written)) / others,
        read: of(&whole).0 - of(&after).0,
        others_read: (of_others(&whole, read) - of_others(&after, read)) / others,
        took: ended - begun,
        missed: missed - begun,
    })
}

pub async fn show(a: Arguments) -> Result<(), Failed> {
    let rig = Rig::new(a.drives, a.size * MIB, None).await?;
    println!(
        "{} drives of {} MiB in memory, a RAID 6, three fifths full; one is away for {} s while hosts write 4K at random, {} \
         a second, and comes back when they rest",
        a.drives, a.size, a.away, a.iops
    );
    let (mut ratios, mut parts) = (Vec::new(), Vec::new());
    for round in 0..a.rounds {
        let of = away(&rig, a, round).await?;
        println!(
            "{:.1} MiB made anew, its share {:.1} MiB; read {:.1} MiB of it, {:.1} of each other; whole after {:.0} ms, what it \
             missed was there after {:.0}",
            mib(of.anew),
            mib(of.share),
            mib(of.read),
            mib(of.others_read),
            seconds(of.took) * 1e3,
            seconds(of.missed) * 1e3
        );
        ratios.push(mib(of.anew) / mib(of.share));
        parts.push(seconds(of.missed) / seconds(of.took));
    }
    println!(
        "medians: made anew to its share {:.2}; what it missed was there after {:.2} of the time",
        median(ratios),
        median(parts)
    );
    rig.close().await
}
