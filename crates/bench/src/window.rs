//! What a write by a direct write window costs, against the same bytes copied and fenced into the same kind of memory,
//! which no window can do without.

use initiator::testing::{Taker, grant};
use initiator::{DirectWindow, NotDone, Written};
use reactor::now_exact;
use reactor::shared::Mapping;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;
use stdx::num::{u64_of, usize64};
use stdx::{Histogram, Prng};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const HEADER: usize = 64;
const SIZES: [usize; 6] = [512, 1024, 2048, 4096, 8192, 16384];
/// Sources in turn: as what a program has just made, they are in the cache.
const SOURCES: usize = 8;

#[derive(clap::Args, Clone, Copy)]
pub struct Arguments {
    /// Bytes of the ring, and of the memory of the floor
    #[arg(long, default_value = "1MiB", value_parser = stdx::size::parse)]
    ring: u64,
    /// Files that mirror each other
    #[arg(long, default_value_t = 1)]
    copies: usize,
    /// Records are taken all the time; without, when the bell is rung
    #[arg(long)]
    eager: bool,
    /// Writes of each run
    #[arg(long, default_value_t = 200_000)]
    writes: u32,
    /// Runs of each size, floor and window in turn; the medians are shown
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

fn sources(bytes: usize) -> Vec<Vec<u8>> {
    let mut prng = Prng::new(1);
    let mut source = || {
        let mut data = vec![0; bytes];
        prng.fill(&mut data);
        data
    };
    (0..SOURCES).map(|_| source()).collect()
}

/// Copies data and a header into shared memory, one behind the other, and fences fully.
fn floor(a: Arguments, bytes: usize) -> Result<Histogram> {
    let (ring, record) = (usize64(a.ring), HEADER + bytes.next_multiple_of(HEADER));
    let memory = (0..a.copies)
        .map(|_| Ok(Mapping::create(c"floor", ring)?.0))
        .collect::<std::io::Result<Vec<_>>>()?;
    // All of it is there: no page comes with the first write.
    memory.iter().for_each(|copy| copy.write(0, &vec![1; ring]));
    let (sources, header) = (sources(bytes), [7; HEADER]);
    let (mut latency, mut at) = (Histogram::new(), 0);
    for n in 0..usize64(a.writes.into()) {
        if at + record > ring {
            at = 0;
        }
        let begun = now_exact();
        for copy in &memory {
            copy.write(at + HEADER, &sources[n % SOURCES]);
        }
        for copy in &memory {
            copy.write(at, &header);
        }
        fence(Ordering::SeqCst);
        latency.record(now_exact() - begun);
        at += record;
    }
    Ok(latency)
}

/// 50th and 99th percentile of what one copy of the floor takes, in nanoseconds.
pub fn floor_of(ring: u64, bytes: usize) -> std::result::Result<[u64; 2], String> {
    let a = Arguments { ring, copies: 1, eager: false, writes: 100_000, rounds: 1 };
    let latency = floor(a, bytes).map_err(|error| error.to_string())?;
    Ok([50.0, 99.0].map(|at| latency.percentile(at)))
}

/// Takes records until told that there are no more.
fn take(a: Arguments, mut taker: Taker, over: &AtomicBool) {
    while !over.load(Ordering::Acquire) {
        if !a.eager {
            taker.bell().wait(Some(Duration::from_millis(1)));
            taker.bell().silence();
        }
        let taken = taker.take(|_, _| {});
        assert!(taken.is_ok(), "the window stores what is right");
        if taken != Ok(0) {
            taker.give_all();
        }
    }
}

/// Writes by a window whose ring a thread takes from; and how often there was no credit.
fn window(a: Arguments, bytes: usize) -> Result<(Histogram, u64)> {
    let grant = grant(1, a.ring);
    let (mut taker, descriptors) = Taker::new(&grant, 0, a.copies);
    taker.give_all();
    let mut window = DirectWindow::map(grant, vec![descriptors], Arc::default())?;
    let over = AtomicBool::new(false);
    let sources = sources(bytes);
    let blocks = (1 << 30) / u64_of(bytes);
    let (mut latency, mut waits, mut prng) = (Histogram::new(), 0, Prng::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| take(a, taker, &over));
        let mut left = a.writes;
        while left > 0 {
            let offset = prng.below(blocks) * u64_of(bytes);
            let source = &sources[usize64(left.into()) % SOURCES];
            let begun = now_exact();
            match window.write(offset, source) {
                Written::Done => {
                    latency.record(now_exact() - begun);
                    left -= 1;
                }
                Written::NotDone(NotDone::Credit) => {
                    waits += 1;
                    std::thread::yield_now();
                }
                other => unreachable!("{other:?}, though nobody ends the window"),
            }
        }
        over.store(true, Ordering::Release);
    });
    Ok((latency, waits))
}

fn median(mut list: Vec<u64>) -> u64 {
    list.sort_unstable();
    list[list.len() / 2]
}

#[allow(clippy::cast_precision_loss, reason = "shown to two decimals")]
fn ratio(of: u64, to: u64) -> f64 {
    of as f64 / to.max(1) as f64
}

pub fn run(a: Arguments) -> Result<()> {
    for bytes in SIZES {
        let mut rows: [Vec<u64>; 4] = Default::default();
        let mut waits = 0;
        for _ in 0..a.rounds.max(1) {
            let bare = floor(a, bytes)?;
            let (direct, without) = window(a, bytes)?;
            waits += without;
            let figures = [&bare, &direct].map(|of| [50.0, 99.0].map(|at| of.percentile(at)));
            rows.iter_mut().zip(figures.as_flattened()).for_each(|(row, &value)| row.push(value));
        }
        let [bare, bare_tail, direct, direct_tail] = rows.map(median);
        println!(
            "{bytes:>6} bytes: floor p50 {bare} ns, p99 {bare_tail}; window p50 {direct}, p99 {direct_tail}: {:.2} and {:.2} floors; {waits} times without credit",
            ratio(direct, bare),
            ratio(direct_tail, bare_tail),
        );
    }
    Ok(())
}
