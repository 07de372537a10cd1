//! Measurements: the loopback floor, the engine's parts, whole targets. Every figure is meant to be quoted as a ratio to
//! another one of the same run.

mod amplification;
mod catalog;
mod checksum;
mod client;
mod compare;
mod crossing;
mod engine;
mod floor;
mod log;
mod map;
mod memory;
mod parity;
mod rank;
mod report;
mod slow;
mod snapshots;
mod stripes;
mod upkeep;
mod volume;
mod window;
mod wire;

use clap::{Parser, Subcommand};
use report::{Case, Direction, Output, Report};
use std::error::Error;
use std::path::PathBuf;

#[derive(Parser)]
#[command(about = "Measures what the machine and the ways to use it can give")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// A ping-pong of NVMe/TCP's message sizes over loopback, with no NVMe in it: what no target
    /// here can beat
    Floor(FloorArguments),
    /// Flashloom, the loopback floor, and SPDK where it was built, in paired runs
    Compare(CompareArguments),
    /// What a random 4 KiB copy out of a memory region costs
    Memory {
        #[arg(long, default_value = "1GiB", value_parser = stdx::size::parse)]
        size: u64,
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
    /// What parity costs, against a copy of the data it protects
    Parity {
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
    /// What checksums cost, against the library that computes the others
    Checksum {
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
    /// What writing data through stripes to drives costs, against copying it
    Stripes {
        #[arg(long, default_value_t = 3)]
        rounds: usize,
    },
    /// What the engine's map costs over large address spaces, and what its alternative would
    Map {
        /// Address spaces
        #[arg(long, value_delimiter = ',', default_values = ["1TiB", "16TiB"], value_parser = stdx::size::parse)]
        spaces: Vec<u64>,
        /// Memory for each TiB
        #[arg(long, default_value = "64MiB", value_parser = stdx::size::parse)]
        memory: u64,
        /// Blocks simulated at most; larger spaces are sampled
        #[arg(long, default_value_t = 1 << 23)]
        entries: u64,
        /// Flushed runs that start a merge, in place of the engine's choice
        #[arg(long)]
        runs: Option<usize>,
        /// How many times a level is larger than the one above, likewise
        #[arg(long)]
        ratio: Option<u64>,
        /// The same of the last level
        #[arg(long)]
        ratio_last: Option<u64>,
    },
    /// The array engine on drives in memory, without network
    Engine(engine::EngineArguments),
    /// What it costs that a request's shard is on another core
    Crossing(crossing::Arguments),
    /// What reclaim writes for each block of hosts, at random over a volume that fills a share of
    /// the pool, against what greedy cleaning must
    Amplification(amplification::Arguments),
    /// What a drive costs that is slower than the others
    Slow(slow::Arguments),
    /// What looking after a pool costs its hosts, and how fast it is done
    Upkeep(upkeep::Arguments),
    /// What snapshots cost, and how many can be had
    Snapshots(snapshots::Arguments),
    /// What making a volume costs beside few others and beside many, and what opening their pool takes
    Catalog(catalog::Arguments),
    /// What a write by a direct write window costs, against the copy and the fence that it cannot do without
    Window(window::Arguments),
    /// What an append to the commit log costs, against a copy of its data
    Log {
        /// A folder of shared memory
        #[arg(long, default_value = "/dev/shm")]
        folder: PathBuf,
        /// A file on a DAX file system, to measure persistent memory too
        #[arg(long)]
        dax: Option<PathBuf>,
        #[arg(long, default_value_t = 3)]
        rounds: usize,
    },
}

#[derive(clap::Args)]
struct FloorArguments {
    /// Which way the data goes; `empty` is 72 bytes both ways
    #[arg(long, value_enum, default_value_t = Direction::Read)]
    rw: Direction,
    /// Bytes of data with each request; above 16 KiB writes are asked for by an R2T
    #[arg(long, default_value = "4k", value_parser = stdx::size::parse)]
    bs: u64,
    /// Requests outstanding on each connection
    #[arg(long, default_value_t = 1)]
    iodepth: usize,
    /// Connections, all driven by one client thread
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Seconds measured
    #[arg(long, default_value_t = 2.0)]
    runtime: f64,
    /// The server sleeps in the kernel between messages instead of spinning
    #[arg(long)]
    server_blocks: bool,
    /// The client sleeps in the kernel between messages instead of spinning
    #[arg(long)]
    client_blocks: bool,
    /// Congestion control of both ends; the floor is lowest without one that paces. `system` leaves
    /// the system's
    #[arg(long, default_value = "reno")]
    congestion: String,
    #[arg(long, default_value_t = 0)]
    server_cpu: usize,
    #[arg(long, default_value_t = 1)]
    client_cpu: usize,
    /// Leaves both threads to the scheduler
    #[arg(long)]
    no_pin: bool,
    /// The server passes each request on to another one, and answers once that has: two exchanges, one after the other. The
    /// other one runs there, sleeps in the kernel between messages, and comes before who else runs there
    #[arg(long, conflicts_with = "no_pin")]
    onward_cpu: Option<usize>,
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(clap::Args)]
struct CompareArguments {
    /// The program under test
    #[arg(long, default_value = "target/release/flashloom")]
    flashloom: PathBuf,
    /// The program before a change: it and the one under test run in turn, each with its own client, and nothing else
    #[arg(long, conflicts_with = "spdk")]
    before: Option<PathBuf>,
    /// A folder in which SPDK was built; without it, only what needs none of it runs
    #[arg(long)]
    spdk: Option<PathBuf>,
    /// Paired runs of each case
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Seconds of each run
    #[arg(long, default_value_t = 4)]
    seconds: u32,
    /// Names of the cases to run; all without
    cases: Vec<String>,
}

/// Runs one exchange: it is served on a thread of its own, the client measures.
fn measure(a: &FloorArguments) -> Result<Report, Box<dyn Error>> {
    let case = Case::new(a.rw, a.bs)?;
    let congestion = (a.congestion != "system").then_some(a.congestion.as_str());
    let manner = floor::Manner {
        cpu: (!a.no_pin).then_some(a.server_cpu),
        blocks: a.server_blocks,
        is_first: false,
        congestion,
        onward: None,
    };
    let start_onward = |cpu| {
        let sleeps = floor::Manner { cpu: Some(cpu), blocks: true, is_first: true, ..manner };
        floor::Server::start(case, sleeps)
    };
    let onward = a.onward_cpu.map(start_onward).transpose()?;
    let passes_on = floor::Manner { onward: onward.as_ref().map(|server| server.addr), ..manner };
    let server = floor::Server::start(case, passes_on)?;
    let client_cpu = (!a.no_pin).then_some(a.client_cpu);
    let plan = client::Plan {
        addr: server.addr,
        case,
        depth: a.iodepth,
        connections: a.connections,
        seconds: a.runtime,
        blocks: a.client_blocks,
        congestion,
        cpu: client_cpu,
    };
    let report = client::run(&plan);
    server.stop()?;
    onward.map_or(Ok(()), floor::Server::stop)?;
    Ok(report?)
}

fn main() -> Result<(), Box<dyn Error>> {
    match Arguments::parse().what {
        What::Floor(a) => report::show(&measure(&a)?, a.output),
        What::Compare(a) => compare::run(&compare::Options {
            flashloom: a.flashloom,
            before: a.before,
            spdk: a.spdk,
            runs: a.runs,
            seconds: a.seconds,
            cases: a.cases,
        })?,
        What::Map { spaces, memory, entries, runs, ratio, ratio_last } => {
            map::run(&map::Options { spaces, memory, entries, runs, ratio, ratio_last })?;
        }
        What::Engine(arguments) => engine::run(arguments)?,
        What::Crossing(arguments) => crossing::run(arguments)?,
        What::Amplification(arguments) => amplification::run(arguments)?,
        What::Slow(arguments) => slow::run(arguments)?,
        What::Upkeep(arguments) => upkeep::run(arguments)?,
        What::Snapshots(arguments) => snapshots::run(arguments)?,
        What::Catalog(arguments) => catalog::run(&arguments)?,
        What::Window(arguments) => window::run(arguments)?,
        What::Memory { size, rounds } => memory::run(size, rounds)?,
        What::Parity { rounds } => parity::run(rounds),
        What::Checksum { rounds } => checksum::run(rounds),
        What::Stripes { rounds } => stripes::run(rounds)?,
        What::Log { folder, dax, rounds } => log::run(&folder, dax.as_deref(), rounds)?,
    }
    Ok(())
}
