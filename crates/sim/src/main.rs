//! Runs seeds.

use clap::Parser;
use engine::canary::Canary;
use initiator::canary::Canary as HostCanary;
use sim::crew::{self, Job, Outcome};
use sim::mode::{Era, Mode};
use sim::mutate;
use sim::reference::Lie;
use sim::run::carry_out;
use sim::world::Subject;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use target::canary::Canary as TargetCanary;

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
    /// Run fresh seeds of all workloads by turns for so long.
    #[arg(long, conflicts_with_all = ["seed", "seeds", "start", "moves", "loses_log", "operator", "rough", "large", "returns", "crosses", "snapshots", "network", "windows", "reserves", "remote", "reference"])]
    minutes: Option<u64>,
    /// Leave out each step the engine relies on, one by one, until somebody misses it, for as many seeds of each
    /// workload as are given at most.
    #[arg(long, conflicts_with_all = ["seed", "minutes", "reference", "canary"])]
    mutate: bool,
    /// Only steps whose name contains this.
    #[arg(long, requires = "mutate")]
    step: Option<String>,
    /// Where seeds that fail are kept, one a line with what went wrong.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Seeds to run side by side; as many as there are cores where nobody says.
    #[arg(long)]
    threads: Option<usize>,
    /// Run on the reference pool instead of the engine.
    #[arg(long)]
    reference: bool,
    /// Plant this bug, by its number among all there are, from 0: the engine's, then the target's, then the hosts'.
    #[arg(long, conflicts_with = "reference")]
    canary: Option<usize>,
    /// Run the workload with a bit of everything, which is what is run where nothing else is asked for.
    #[arg(long, conflicts_with_all = ["moves", "loses_log", "operator", "rough", "large", "returns", "crosses", "snapshots", "network", "windows"])]
    plain: bool,
    /// Run the workload that moves things about in a pool with hardly any space.
    #[arg(long)]
    moves: bool,
    /// Run the workload during which the commit log is lost.
    #[arg(long, conflicts_with_all = ["moves", "reference"])]
    loses_log: bool,
    /// Run the workload during which an operator opens the pool with whatever drives and log devices are at hand.
    #[arg(long, conflicts_with_all = ["moves", "loses_log", "reference"])]
    operator: bool,
    /// Run the workload during which several things go wrong at once.
    #[arg(long, conflicts_with_all = ["moves", "loses_log", "operator", "reference"])]
    rough: bool,
    /// Run the workload of a large pool that is written to for long.
    #[arg(long, conflicts_with_all = ["moves", "loses_log", "operator", "rough", "reference"])]
    large: bool,
    /// Run the workload of a pool whose drives come and go while it is open.
    #[arg(long, conflicts_with_all = ["moves", "loses_log", "operator", "rough", "large", "reference"])]
    returns: bool,
    /// Run the workload of a pool on several reactors, from each of which hosts reach all of it.
    #[arg(long, conflicts_with_all = ["moves", "loses_log", "operator", "rough", "large", "returns", "reference"])]
    crosses: bool,
    /// Run the workload in which snapshots are taken, read, copied from, cloned, gone back to and deleted beside everything else.
    #[arg(long, conflicts_with_all = ["moves", "loses_log", "operator", "rough", "large", "returns", "crosses", "reference"])]
    snapshots: bool,
    /// Run the workload of hosts and targets over a network with faults.
    #[arg(long, conflicts_with_all = ["moves", "loses_log", "operator", "rough", "large", "returns", "crosses", "snapshots", "known", "reference"])]
    network: bool,
    /// Run the workload in which hosts write by direct write windows, beside everything else.
    #[arg(long, conflicts_with_all = ["moves", "loses_log", "operator", "rough", "large", "returns", "crosses", "snapshots", "network", "known", "reference"])]
    windows: bool,
    /// Run the workload in which some volumes have all of their size reserved, in a pool with hardly any space.
    #[arg(long, conflicts_with_all = ["moves", "loses_log", "operator", "rough", "large", "returns", "crosses", "snapshots", "network", "windows", "known", "reference"])]
    reserves: bool,
    /// Run the workload in which a namespace of another target has the log, beside memory here or alone.
    #[arg(long, conflicts_with_all = ["moves", "loses_log", "operator", "rough", "large", "returns", "crosses", "snapshots", "network", "windows", "reserves", "known", "reference"])]
    remote: bool,
    /// Run it as seeds were run at some time, on one reactor if nothing else is said: the known ones that found something
    /// are.
    #[arg(long, requires = "seed", value_name = "WHEN", num_args = 0..=1, default_missing_value = "alone")]
    known: Option<Era>,
    /// Print every event.
    #[arg(long, requires = "seed")]
    trace: bool,
}

impl Options {
    fn mode(&self) -> Mode {
        self.asked().unwrap_or(Mode::Plain)
    }

    fn asked(&self) -> Option<Mode> {
        let asked = [
            (self.plain, Mode::Plain),
            (self.moves, Mode::Moves),
            (self.loses_log, Mode::LosesLog),
            (self.operator, Mode::Operator),
            (self.rough, Mode::Rough),
            (self.large, Mode::Large),
            (self.returns, Mode::Returns),
            (self.crosses, Mode::Crosses),
            (self.snapshots, Mode::Snapshots),
            (self.network, Mode::Network),
            (self.windows, Mode::Windows),
            (self.reserves, Mode::Reserves),
            (self.remote, Mode::Remote),
        ];
        asked.iter().find(|(is_asked, _)| *is_asked).map(|(_, mode)| *mode)
    }

    fn subject(&self) -> Subject {
        if self.reference {
            return Subject::Reference(Lie::None);
        }
        let Some(n) = self.canary else { return Subject::Array(None) };
        let engine = Canary::ALL.iter().map(|canary| Subject::Array(Some(*canary)));
        let target = TargetCanary::ALL.into_iter().map(Subject::Target);
        let hosts = HostCanary::ALL.into_iter().map(Subject::Host);
        engine.chain(target).chain(hosts).nth(n).unwrap_or(Subject::Array(None))
    }

    fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(cores).max(1)
    }

    /// Appends what failed to the file that keeps it.
    fn keep(&self, outcome: &Outcome) {
        let (mode, seed) = outcome.job;
        let Some((life, what)) = &outcome.failure else { return };
        println!("seed {seed} fails in life {life}: {what}");
        println!("replay: {}", mode.replay(seed));
        let Some(path) = &self.keep else { return };
        if let Some(folder) = path.parent() {
            // Should it not be there, the file says so.
            let _ = std::fs::create_dir_all(folder);
        }
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let line =
            format!("--seed {seed}{}\tlife {life}: {}\n", mode.flag(), what.replace('\n', " "));
        if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
            eprintln!("{}: {error}", path.display());
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.mutate {
        let modes = options.asked().map_or(Mode::ALL.to_vec(), |mode| vec![mode]);
        let missed = mutate::run(options.step.as_deref(), &modes, options.seeds, options.threads());
        return if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let subject = options.subject();
    let failed = match (options.seed, options.minutes) {
        (Some(seed), _) => u64::from(!one(subject, (options.mode(), seed), &options)),
        (_, Some(minutes)) => {
            let until = crew::real_now() + Duration::from_secs(60 * minutes);
            let first = fresh();
            println!("from seed {first}");
            let fits = move |_: &Job| crew::real_now() < until;
            let jobs = (first..).flat_map(|seed| Mode::ALL.map(|mode| (mode, seed)));
            many(subject, jobs.take_while(fits), &options)
        }
        _ => {
            let mode = options.mode();
            let last = options.start.saturating_add(options.seeds);
            many(subject, (options.start..last).map(move |seed| (mode, seed)), &options)
        }
    };
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A seed that was hardly ever run before.
fn fresh() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    stdx::Prng::new(since.as_secs() ^ u64::from(since.subsec_nanos()) << 32).next_u64() >> 16
}

fn many(
    subject: Subject,
    jobs: impl Iterator<Item = Job> + Send + 'static,
    options: &Options,
) -> u64 {
    let (done, failed) = crew::run(subject, jobs, options.threads(), |o| options.keep(o));
    println!("{done} seeds, {failed} failed");
    failed
}

fn one(subject: Subject, job: Job, options: &Options) -> bool {
    let (mode, seed) = job;
    let plan = mode.plan_of(seed, options.known.unwrap_or_default());
    let report = carry_out(subject, plan, options.trace);
    println!("{:?}\n{:?}", report.counts, report.seen);
    println!("{} events, trace {:#018x}", report.events, report.trace);
    let outcome = Outcome { job, failure: report.failure };
    options.keep(&outcome);
    outcome.failure.is_none()
}
