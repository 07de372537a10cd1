//! A neighbour beside a host that does nothing that is not legal, but as much of it as it can.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nvme::opcode::io;
use nvme::sqe::{Sgl, Sqe};
use stdx::Prng;
use stdx::num::u32_of;

use super::super::client::median;
use super::super::process::favour;
use super::super::server::{Drives, Flashloom, Log, Server};
use super::super::{Options, Outcome};
use super::flood::{Command, Flood};
use super::neighbour::{self, Waits};
use super::{BLOCK, HALF_BLOCKS, command};
use crate::rank;

/// How a flood is named, by what of, over how many queues of how many entries.
const fn flood(
    case: &'static str,
    name: &'static str,
    (queues, entries): (u16, u16),
    command: Command,
) -> Flood {
    Flood { case, name, queues, entries, command }
}

const FLOODS: &[Flood] = &[
    flood("flood-read-large", "128K reads, 32 queues of 32", (32, 33), read_large),
    flood("flood-write-large", "128K writes, 32 queues of 32", (32, 33), write_large),
    flood("flood-read-small", "4K reads, 32 queues of 127", (32, 128), read_small),
    flood("flood-write-small", "4K writes, 32 queues of 127", (32, 128), write_small),
    flood("flood-verify", "Verify of 8 MiB, 8 queues of 127", (8, 128), verify),
    flood("flood-zeroes", "Write Zeroes of 8 MiB, 8 queues of 127", (8, 128), zeroes),
    flood("flood-copy", "Copy of 2 MiB, 8 queues of 127", (8, 128), copy),
    flood("flood-deallocate", "Deallocate of 32 MiB, 8 queues of 127", (8, 128), deallocate),
];

/// Serves a namespace with a poll policy.
type Start = fn(&Options, &str) -> Outcome<Flashloom>;

/// Where the namespace is, and how it is served.
const PLACES: &[(&str, Start)] = &[
    ("memory", |options, poll| Flashloom::start(&options.flashloom, poll)),
    ("drive", |options, poll| Flashloom::with_file(&options.flashloom, poll)),
    ("volume", |options, poll| {
        Flashloom::with_volume(&options.flashloom, poll, Drives::Memory, Log::Memory)
    }),
];

/// How long a flood goes on before it is measured beside.
const RAMP: Duration = Duration::from_millis(300);

/// What one run came to.
struct Run {
    alone: Waits,
    beside: Waits,
    /// Beside the same flood of another daemon on the same core.
    elsewhere: Waits,
    answered: f64,
}

/// Measures a neighbour alone, beside each flood, and beside the same flood of another daemon that has what is left of
/// the core: what clients, kernel and caches cost it whatever the target does.
///
/// # Errors
/// What could not be started, or did not answer.
pub fn print(options: &Options) -> Outcome<()> {
    favour(std::process::id());
    println!(
        "\n| namespace | a neighbour's 4K reads at depth 1 beside | commands/s | p50 us, alone | beside | ratio | p99 us, alone | beside | ratio | p99 beside that flood of another daemon | ratio to it |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let wanted = |name: &str| {
        let named = |case: &str| options.cases.iter().any(|other| other == case);
        let some_place = PLACES.iter().any(|(place, _)| named(place));
        let some_flood = FLOODS.iter().any(|flood| named(flood.case));
        let is_place = PLACES.iter().any(|(place, _)| *place == name);
        named(name) || !(if is_place { some_place } else { some_flood })
    };
    for (place, start) in PLACES.iter().filter(|(place, _)| wanted(place)) {
        let server = start(options, "adaptive")?;
        let behind = start(options, "interrupt")?;
        behind.fill(&options.flashloom)?;
        // Other work of the machine is not what is measured.
        rank::give(server.id(), rank::SECOND);
        rank::give(behind.id(), rank::FIRST);
        behind.run_while(false)?;
        for flood in FLOODS.iter().filter(|flood| wanted(flood.case)) {
            // Whatever the one before did to it.
            server.fill(&options.flashloom)?;
            let runs: Outcome<Vec<Run>> =
                (0..options.runs).map(|_| run(options, flood, &server, &behind)).collect();
            show(place, flood, &runs?);
        }
    }
    Ok(())
}

/// Whether `name` chooses among floods and places.
pub fn is_choice(name: &str) -> bool {
    PLACES.iter().any(|(place, _)| *place == name) || FLOODS.iter().any(|flood| flood.case == name)
}

fn run(options: &Options, flood: &Flood, server: &Flashloom, behind: &Flashloom) -> Outcome<Run> {
    let alone = neighbour::measure(server, options.seconds)?;
    let (beside, answered) = during(flood, server, || neighbour::measure(server, options.seconds))?;
    behind.run_while(true)?;
    let elsewhere = during(flood, server, || neighbour::measure(behind, options.seconds));
    behind.run_while(false)?;
    Ok(Run { alone, beside, elsewhere: elsewhere?.0, answered })
}

/// Runs `measure` while the flood goes on; what it measured, and the flood's commands a second.
#[allow(
    clippy::disallowed_methods,
    reason = "a blocking client is measured, which runs no reactor"
)]
fn during<T>(
    flood: &Flood,
    server: &Flashloom,
    measure: impl FnOnce() -> Outcome<T>,
) -> Outcome<(T, f64)> {
    let running = flood.connect(server)?;
    let (ends, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let flooding = scope.spawn(|| {
            rank::take(neighbour::CLIENTS_CPU, rank::SECOND);
            running.run(&ends, &answered)
        });
        std::thread::park_timeout(RAMP);
        let (begin, before) = (Instant::now(), answered.load(Ordering::Relaxed));
        let measured = measure();
        let commands = answered.load(Ordering::Relaxed) - before;
        let rate = commands as f64 / begin.elapsed().as_secs_f64();
        ends.store(true, Ordering::Relaxed);
        flooding.join().map_err(|_| "a flood ended".to_owned())??;
        Ok((measured?, rate))
    })
}

fn show(place: &str, flood: &Flood, runs: &[Run]) {
    let of = |figure: fn(&Run) -> f64| median(runs.iter().map(figure).collect());
    let floor = |figure: fn(&Run, &Waits) -> f64| {
        median(runs.iter().map(|run| figure(run, &run.elsewhere)).collect())
    };
    println!(
        "| {place} | {} | {:.0} | {:.1} | {:.1} | {:.2} | {:.1} | {:.1} | {:.2} | {:.1} | {:.2} |",
        flood.name,
        of(|r| r.answered),
        of(|r| r.alone.p50),
        of(|r| r.beside.p50),
        of(|r| r.beside.p50 / r.alone.p50),
        of(|r| r.alone.p99),
        of(|r| r.beside.p99),
        of(|r| r.beside.p99 / r.alone.p99),
        floor(|_, floor| floor.p99),
        floor(|run, floor| run.beside.p99 / floor.p99),
    );
}

/// Blocks of the largest of its commands.
const LARGE: u16 = 32;
const LONG: u16 = 2048;
const COPIED: u16 = 512;
/// Ranges of a Deallocate, and blocks of each.
const RANGES: u16 = 256;
const RANGE: u32 = 32;

/// A command somewhere in the second half.
fn somewhere(opcode: u8, blocks: u16, prng: &mut Prng) -> Sqe {
    let at = HALF_BLOCKS + prng.below(HALF_BLOCKS / u64::from(blocks)) * u64::from(blocks);
    Sqe { cdw10: u32::try_from(at).unwrap_or(0).into(), ..command(opcode, blocks) }
}

fn moved(opcode: u8, blocks: u16, prng: &mut Prng) -> (Sqe, Vec<u8>) {
    let dptr = Sgl::transport(u32::from(blocks) * BLOCK);
    (Sqe { dptr, ..somewhere(opcode, blocks, prng) }, Vec::new())
}

fn read_large(prng: &mut Prng) -> (Sqe, Vec<u8>) {
    moved(io::READ, LARGE, prng)
}

fn write_large(prng: &mut Prng) -> (Sqe, Vec<u8>) {
    moved(io::WRITE, LARGE, prng)
}

fn read_small(prng: &mut Prng) -> (Sqe, Vec<u8>) {
    moved(io::READ, 1, prng)
}

fn write_small(prng: &mut Prng) -> (Sqe, Vec<u8>) {
    let sqe = somewhere(io::WRITE, 1, prng);
    (Sqe { dptr: Sgl::in_capsule(0, BLOCK), ..sqe }, vec![7; BLOCK as usize])
}

fn verify(prng: &mut Prng) -> (Sqe, Vec<u8>) {
    (somewhere(io::VERIFY, LONG, prng), Vec::new())
}

fn zeroes(prng: &mut Prng) -> (Sqe, Vec<u8>) {
    (somewhere(io::WRITE_ZEROES, LONG, prng), Vec::new())
}

/// From the neighbour's half, of which nothing changes. One range, of 32 bytes: where it begins is at byte 8, its blocks
/// less one at 16.
fn copy(prng: &mut Prng) -> (Sqe, Vec<u8>) {
    let mut range = vec![0; 32];
    let from = prng.below(HALF_BLOCKS / u64::from(COPIED)) * u64::from(COPIED);
    range[8..16].copy_from_slice(&from.to_le_bytes());
    range[16..18].copy_from_slice(&(COPIED - 1).to_le_bytes());
    let sqe = somewhere(io::COPY, COPIED, prng);
    (Sqe { dptr: Sgl::in_capsule(0, 32), cdw12: 0.into(), ..sqe }, range)
}

/// Ranges of 16 bytes: blocks at byte 4, where they begin at 8.
fn deallocate(_: &mut Prng) -> (Sqe, Vec<u8>) {
    let mut ranges = Vec::new();
    for n in 0..u64::from(RANGES) {
        ranges.extend_from_slice(&[0; 4]);
        ranges.extend_from_slice(&RANGE.to_le_bytes());
        ranges.extend_from_slice(&(HALF_BLOCKS + n * u64::from(RANGE)).to_le_bytes());
    }
    let mut sqe = Sqe::new(io::DATASET_MANAGEMENT, 0, 1);
    sqe.cdw10 = u32::from(RANGES - 1).into();
    // Attribute: deallocate.
    sqe.cdw11 = 4.into();
    (Sqe { dptr: Sgl::in_capsule(0, u32_of(ranges.len())), ..sqe }, ranges)
}
