//! A load on a volume of an engine on this reactor.

use engine::Volume;
use reactor::{now_exact, sleep, spawn};
use std::time::Duration;
use stdx::num::u64_of;
use stdx::{Histogram, Prng};

const BLOCK: u64 = 4096;

/// 4 KiB at random.
#[derive(Clone, Copy)]
pub struct Load {
    /// Bytes of the volume.
    pub bytes: u64,
    /// Requests outstanding.
    pub iodepth: usize,
    /// Seconds.
    pub runtime: f64,
    /// Of a hundred requests; the others are writes.
    pub reads: u64,
    /// Each of the outstanding ones comes so long after the one before it, and counts from when it was due; at once
    /// after the answer where this is 0.
    pub every: Duration,
    pub seed: u64,
}

impl Load {
    /// Asks for so long; how long each took, in nanoseconds.
    pub async fn put_on(self, volume: Volume) -> Result<Histogram, String> {
        let nanos = Duration::from_secs_f64(self.runtime).as_nanos();
        let end = now_exact().saturating_add(u64::try_from(nanos).unwrap_or(u64::MAX));
        let every = u64::try_from(self.every.as_nanos()).unwrap_or(u64::MAX);
        let task = |n: usize| {
            let volume = volume.clone();
            spawn(async move {
                let (mut prng, mut latency) = (Prng::new(self.seed + u64_of(n)), Histogram::new());
                let mut data = vec![0x5a; 4096];
                let mut due = now_exact() + prng.below(every.max(1));
                loop {
                    // A reactor's timers are as fine as its turns.
                    while every > 0 && now_exact() < due {
                        sleep(Duration::from_nanos(due.saturating_sub(now_exact()))).await;
                    }
                    let begun = if every > 0 { due } else { now_exact() };
                    if begun >= end {
                        return Ok(latency);
                    }
                    due += every;
                    let at = prng.below(self.bytes / BLOCK) * BLOCK;
                    // No block is as another, or as it was before.
                    data[..8].copy_from_slice(&prng.next_u64().to_le_bytes());
                    let done = match prng.below(100) < self.reads {
                        true => volume.read(at, &mut data).await,
                        false => volume.write(at, &data).await,
                    };
                    done.map_err(|e| e.to_string())?;
                    latency.record(now_exact() - begun);
                    // As a host would: others have their turn between two requests.
                    reactor::yield_now().await;
                }
            })
        };
        let tasks: Vec<_> = (0..self.iodepth).map(task).collect();
        let mut all = Histogram::new();
        for task in tasks {
            let one: Result<Histogram, String> = task.await.ok_or("a task was dropped")?;
            all.merge(&one?);
        }
        Ok(all)
    }
}
