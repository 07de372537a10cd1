//! Runs seeds.

use clap::Parser;
use engine::canary::Canary;
use sim::reference::Lie;
use sim::run::{Report, run};
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
    /// Print every event.
    #[arg(long)]
    trace: bool,
}

impl Options {
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
        let report = run(subject, seed, options.trace);
        failed += u64::from(report.failure.is_some());
        tell(seed, &report, options.seed.is_some());
    }
    println!("{count} seeds, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(seed: u64, report: &Report, always: bool) {
    if always {
        println!("{:?}", report.counts);
        println!("{} events, trace {:#018x}", report.events, report.trace);
    }
    if let Some((life, what)) = &report.failure {
        println!("seed {seed} fails in life {life}: {what}");
        println!("replay: cargo run -p sim -- --seed {seed} --trace");
    }
}
