//! One run: readers, and a writer beside them, over a namespace in use.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use initiator::{Counters, Error, Fua, Namespace, Remote};
use reactor::Handle;
use serde::Serialize;
use stdx::histogram::Histogram;
use stdx::num::usize32;
use stdx::prng::Prng;

use crate::cli::ablation::Load;

/// Bytes of a read.
const READ_BYTES: u32 = 4096;

/// Bytes of a write of the writer, in as many commands as that takes, and how many it has in flight.
const WRITE_BYTES: u32 = 1 << 20;
const WRITES: u32 = 16;

/// What to run, and where.
pub struct Run {
    pub remote: Remote,
    pub nsid: u32,
    pub load: Load,
    pub seconds: u32,
    /// The reactor that this runs on.
    pub reactor: Handle,
}

/// What a run came to. Times in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Measured {
    /// Reads a second.
    pub iops: f64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p9999_us: f64,
    /// What the writer moved, MB a second.
    pub writer_mb: f64,
    /// Time of the core at work, looking for work not counted, for each command.
    pub busy_us: f64,
    /// System calls that sent something, for each command.
    pub sends: f64,
}

impl Measured {
    /// The median of each measure.
    pub fn median(runs: &[Self]) -> Self {
        let of = |measure: fn(&Self) -> f64| {
            let mut values: Vec<_> = runs.iter().map(measure).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        Self {
            iops: of(|run| run.iops),
            mean_us: of(|run| run.mean_us),
            p50_us: of(|run| run.p50_us),
            p99_us: of(|run| run.p99_us),
            p9999_us: of(|run| run.p9999_us),
            writer_mb: of(|run| run.writer_mb),
            busy_us: of(|run| run.busy_us),
            sends: of(|run| run.sends),
        }
    }
}

/// What the tasks of a run share.
#[derive(Default)]
struct Shared {
    latency: RefCell<Histogram>,
    /// Bytes that the writer has written.
    written: Cell<u64>,
    stop: Cell<bool>,
}

/// Runs it on this reactor.
pub async fn drive(run: Run) -> Result<Measured, Error> {
    let namespace = Namespace::attach(&run.remote, run.nsid).await?;
    let shared = Rc::<Shared>::default();
    let readers = match run.load {
        Load::Qd1 => 1,
        Load::Qd32 => 32,
        Load::Qd128 => 128,
        Load::Many => 256,
        Load::Beside => 16,
    };
    let mut tasks = Vec::new();
    for seed in 0..readers {
        tasks.push(reactor::spawn(read(namespace.clone(), Rc::clone(&shared), seed)));
    }
    if run.load == Load::Beside {
        let bytes = WRITE_BYTES.min(namespace.geometry().transfer_max_bytes);
        let commands = WRITES * (WRITE_BYTES / bytes);
        for at in 0..commands {
            let places = at..commands;
            tasks.push(reactor::spawn(write(namespace.clone(), Rc::clone(&shared), bytes, places)));
        }
    }
    let seconds = Duration::from_secs(run.seconds.into());
    reactor::sleep(seconds / 4).await;
    let begin = mark(&namespace, &shared, &run.reactor);
    shared.latency.borrow_mut().clear();
    reactor::sleep(seconds).await;
    let end = mark(&namespace, &shared, &run.reactor);
    let measured = sum(&begin, &end, &shared.latency.borrow());
    shared.stop.set(true);
    for task in tasks {
        // Nobody takes it down before it ends.
        task.await.unwrap_or(Ok(()))?;
    }
    // The association ends either way.
    let _ = namespace.shut_down().await;
    Ok(measured)
}

/// Where everything is at an instant.
struct Mark {
    at: reactor::Nanos,
    busy: reactor::Nanos,
    counters: Counters,
    written: u64,
}

fn mark(namespace: &Namespace, shared: &Shared, reactor: &Handle) -> Mark {
    let [default, read, poll] = namespace.counters();
    Mark {
        at: reactor::now_exact(),
        busy: reactor.metrics().busy_nanos,
        counters: default + read + poll,
        written: shared.written.get(),
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts far below 2^52, for people")]
fn sum(begin: &Mark, end: &Mark, latency: &Histogram) -> Measured {
    let seconds = (end.at - begin.at) as f64 / 1e9;
    let commands = (end.counters.commands - begin.counters.commands).max(1) as f64;
    let micros = |percent| latency.percentile(percent) as f64 / 1000.0;
    Measured {
        iops: latency.count() as f64 / seconds,
        mean_us: latency.mean() / 1000.0,
        p50_us: micros(50.0),
        p99_us: micros(99.0),
        p9999_us: micros(99.99),
        writer_mb: (end.written - begin.written) as f64 / 1e6 / seconds,
        busy_us: (end.busy - begin.busy) as f64 / 1000.0 / commands,
        sends: (end.counters.sends - begin.counters.sends) as f64 / commands,
    }
}

/// Reads at random, one command after the other.
async fn read(namespace: Namespace, shared: Rc<Shared>, seed: u64) -> Result<(), Error> {
    let geometry = namespace.geometry();
    let blocks = (READ_BYTES / geometry.block_bytes).max(1);
    let places = (geometry.blocks / u64::from(blocks)).max(1);
    let mut buffer = namespace.buffer(usize32(blocks * geometry.block_bytes)).await;
    let mut prng = Prng::new(seed);
    while !shared.stop.get() {
        let lba = prng.below(places) * u64::from(blocks);
        let begin = reactor::now_exact();
        namespace.read(lba, blocks, &mut buffer).await?;
        shared.latency.borrow_mut().record(reactor::now_exact() - begin);
    }
    Ok(())
}

/// Writes one command after the other, in ascending order: the first of `places` and every so manieth from there.
async fn write(
    namespace: Namespace,
    shared: Rc<Shared>,
    bytes: u32,
    places: Range<u32>,
) -> Result<(), Error> {
    let geometry = namespace.geometry();
    let blocks = (bytes / geometry.block_bytes).max(1);
    let last = (geometry.blocks / u64::from(blocks)).max(1);
    let mut buffer = namespace.buffer(usize32(bytes)).await;
    let mut place = u64::from(places.start);
    while !shared.stop.get() {
        let lba = (place % last) * u64::from(blocks);
        namespace.write(lba, blocks, &mut buffer, Fua::No).await?;
        shared.written.set(shared.written.get() + u64::from(bytes));
        place += u64::from(places.end);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_each_measure() {
        let run = |iops, mean_us| Measured { iops, mean_us, ..Measured::default() };
        let median = Measured::median(&[run(3.0, 10.0), run(1.0, 30.0), run(2.0, 20.0)]);
        assert_eq!((median.iops, median.mean_us), (2.0, 20.0));
    }
}
