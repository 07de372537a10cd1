//! Runs seeds.

use clap::Parser;
use engine::canary::Canary;
use sim::plan::Plan;
use sim::reference::Lie;
use sim::run::{Report, carry_out};
use sim::world::Subject;
use std::process::ExitCode;

/// Runs the array engine over simulated media, from seeds.
#[derive(Debug, Parser)]
struct Options {
    /// How many seeds to run.
    #[arg(long, default_value_t = 100, conflicts_with = "seed")]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0, conflicts_with = "seed")]
    start: u64,
    /// Run this one only.
    #[arg(long)]
    seed: Option<u64>,
    /// Run on the reference pool instead of the engine.
    #[arg(long)]
    reference: bool,
    /// Plant this bug, by its number among all there are, from 0.
    #[arg(long, conflicts_with = "reference")]
    canary: Option<usize>,
    /// Run the workload that moves things about in a pool with hardly any space.
    #[arg(long)]
    moves: bool,
    /// Run the workload during which the commit log is lost.
    #[arg(long, conflicts_with_all = ["moves", "reference"])]
    loses_log: bool,
    /// Print every event.
    #[arg(long)]
    trace: bool,
}

impl Options {
    fn plan(&self, seed: u64) -> Plan {
        match (self.moves, self.loses_log) {
            (true, _) => Plan::moves(seed),
            (_, true) => Plan::loses_log(seed),
            _ => Plan::new(seed),
        }
    }

    fn canary(&self) -> Option<Canary> {
        Canary::ALL.get(self.canary?).copied()
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let first = options.seed.unwrap_or(options.start);
    let count = if options.seed.is_some() { 1 } else { options.seeds };
    let subject = if options.reference {
        Subject::Reference(Lie::None)
    } else {
        Subject::Array(options.canary())
    };
    let mut failed = 0u64;
    for seed in first..first.saturating_add(count) {
        let plan = options.plan(seed);
        let report = carry_out(subject, plan, options.trace);
        failed += u64::from(report.failure.is_some());
        tell(seed, &report, &options);
    }
    println!("{count} seeds, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(seed: u64, report: &Report, options: &Options) {
    if options.seed.is_some() {
        println!("{:?}", report.counts);
        println!("{} events, trace {:#018x}", report.events, report.trace);
    }
    if let Some((life, what)) = &report.failure {
        println!("seed {seed} fails in life {life}: {what}");
        let workload = match (options.moves, options.loses_log) {
            (true, _) => " --moves",
            (_, true) => " --loses-log",
            _ => "",
        };
        println!("replay: cargo run -p sim -- --seed {seed}{workload} --trace");
    }
}
