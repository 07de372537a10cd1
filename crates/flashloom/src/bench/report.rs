//! `flashloom bench report`: a file or device used locally against the same one over the fabric, and small durable writes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::value::{Address, Backend, Nqn, Refused, Size};
use array::desired::{BLOCK_SIZE, Desired, ListenerDef, NamespaceDef, SubsystemDef};
use array::node::{Node, Options, Source};
use load::{
    DirectionReport, Job, JobReport, Limit, Plan, Probe, Report, RunExtra, Sizes, Spent, Target,
};

use super::folder::{make, put};
use super::{judge, plot, with_progress};
use crate::cli::bench::ReportArgs;
use crate::cli::{DEFAULT_NQN, Global, Output};
use crate::exit::{Exit, Failure, Outcome};
use crate::log::{self, Format};
use crate::output::{emit, json};
use crate::serve::serve;

mod durable;

/// Bytes of the namespace in memory: far more than any cache of a processor.
const MEMORY_BYTES: u64 = 256 << 20;

/// Depths of the throughput plot, on one queue.
const DEPTHS: [u16; 5] = [1, 4, 16, 64, 256];

/// One row of the comparison.
struct Case {
    name: &'static str,
    file: &'static str,
    rw: &'static str,
    queues: u16,
    depth: u16,
}

/// Source of the rows: what a deployment guide measures first.
const CASES: [Case; 4] = [
    Case {
        name: "random read, 1 outstanding",
        file: "read-1",
        rw: "randread",
        queues: 1,
        depth: 1,
    },
    Case {
        name: "random read, 256 outstanding",
        file: "read-256",
        rw: "randread",
        queues: 4,
        depth: 64,
    },
    Case {
        name: "random write, 1 outstanding",
        file: "write-1",
        rw: "randwrite",
        queues: 1,
        depth: 1,
    },
    Case {
        name: "random write, 256 outstanding",
        file: "write-256",
        rw: "randwrite",
        queues: 4,
        depth: 64,
    },
];

/// Something to measure.
#[derive(Clone)]
struct Side {
    name: &'static str,
    target: Target,
    bytes: u64,
    probe: Option<Probe>,
}

/// What was measured: by case, and over depths.
#[derive(Default)]
struct Results {
    cases: Vec<Report>,
    depths: Report,
    /// Where they are served here.
    durable: Option<durable::Measured>,
}

/// `flashloom bench report`
pub fn run(global: &Global, args: &ReportArgs) -> Outcome {
    make(&args.out)?;
    let made = args.local.is_none().then(|| args.out.join("local.img"));
    let local =
        std::path::absolute(args.local.clone().or_else(|| made.clone()).unwrap_or_default())
            .map_err(|error| Failure::new(Exit::Failed, error))?;
    if let Some(path) = &made {
        // What is there already is not this report's.
        let file = std::fs::File::create_new(path);
        let file = file.and_then(|file| file.set_len(args.size.bytes()));
        file.map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", path.display())))?;
    }
    let result = compare(args, &local);
    if let Some(path) = made {
        // What cannot be removed is in the way of nobody.
        let _ = std::fs::remove_file(path);
    }
    let results = result?;
    let text = markdown(args, &local, &results);
    write(&args.out, &text, &results)?;
    match global.output {
        Output::Json => json(&results.cases)?,
        Output::Csv => {
            let mut all = Report::default();
            all.jobs.extend(results.cases.into_iter().flat_map(|case| case.jobs));
            emit(&load::export::csv(&all))?;
        }
        Output::Table => emit(&text)?,
    }
    Ok(())
}

fn compare(args: &ReportArgs, local: &Path) -> Outcome<Results> {
    let mut results = Results::default();
    results.cases.resize_with(CASES.len(), Report::default);
    let target = Target::File(local.to_owned());
    let bytes = args.size.bytes();
    measure(args, &Side { name: "local", target, bytes, probe: None }, &mut results)?;
    if let Some(traddr) = &args.traddr {
        let port = traddr.trsvcid.unwrap_or(args.trsvcid);
        let target = Target::namespace(&traddr.traddr, port, &args.subnqn, args.nsid);
        measure(args, &Side { name: "fabric", target, bytes, probe: None }, &mut results)?;
        return Ok(results);
    }
    log::start(Format::Human, "warn");
    // One of its own: all of it is removed in the end.
    let state_dir = args.out.join(format!("state-{}", std::process::id()));
    let options = Options {
        state_dir: state_dir.clone(),
        source: Source::CommandLine(desired(local)?),
        fresh: true,
        cpus: args.target_cpu.map(|cpu| vec![cpu]),
        poll: Some(args.poll.into()),
    };
    let (args, measured) = (args.clone(), Arc::new(std::sync::Mutex::new(results)));
    let into = Arc::clone(&measured);
    let served = serve(options, async move |node, _| {
        let sides = served_sides(&node, bytes)?;
        let work = move || {
            let mut results = into.lock().map_err(|error| Failure::new(Exit::Failed, error))?;
            sides.iter().try_for_each(|side| measure(&args, side, &mut results))?;
            let probe =
                sides[0].probe.clone().ok_or_else(|| Failure::new(Exit::Failed, "no probe"))?;
            let served = durable::Served::begin(&node, &args.out, probe)?;
            results.durable = Some(served.measure(&args)?);
            Ok(())
        };
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| Failure::new(Exit::Failed, error))?
    });
    // The next run makes it anew.
    let _ = std::fs::remove_dir_all(state_dir);
    served?;
    let mut results = measured.lock().map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(std::mem::take(&mut *results))
}

/// Of the address that it listens at.
fn port_of(node: &Node) -> u16 {
    node.bound(Address::loopback(0)).unwrap_or(Address::loopback(0)).socket().port()
}

/// The file or device and a namespace in memory, as they are served here.
fn served_sides(node: &Arc<Node>, bytes: u64) -> Outcome<[Side; 2]> {
    let port = port_of(node);
    let node = Arc::clone(node);
    let probe = Probe::new(move || {
        let metrics = node.metrics();
        let busy: f64 = metrics.reactors.iter().map(|reactor| reactor.busy_seconds).sum();
        Some(Spent { cpu: None, busy: Duration::try_from_secs_f64(busy).ok() })
    });
    let side = |name, nsid, bytes| Side {
        name,
        target: Target::namespace("127.0.0.1", port, DEFAULT_NQN, nsid),
        bytes,
        probe: Some(probe.clone()),
    };
    Ok([side("fabric", 1, bytes), side("memory", 2, MEMORY_BYTES)])
}

fn desired(local: &Path) -> Outcome<Desired> {
    let namespace = |backend| NamespaceDef { backend, block_size: BLOCK_SIZE, uuid: None };
    let drive = Backend::Drive { path: local.to_owned(), size: None };
    let memory = Backend::Memory { size: Size::new(MEMORY_BYTES) };
    let subsystem = SubsystemDef {
        allow_any_host: true,
        namespaces: BTreeMap::from([
            (1, namespace(drive)),
            (2, namespace(memory)),
            durable::namespace(),
        ]),
        ..SubsystemDef::default()
    };
    let nqn: Nqn =
        DEFAULT_NQN.parse().map_err(|refused: Refused| Failure::new(Exit::Failed, refused))?;
    Ok(Desired {
        listeners: BTreeMap::from([(Address::loopback(0), ListenerDef::default())]),
        subsystems: BTreeMap::from([(nqn, subsystem)]),
        ..Desired::default()
    })
}

/// What all loads have in common.
fn shape(args: &ReportArgs, target: Target, rw: &str) -> Outcome<Job> {
    Ok(Job {
        pattern: load::Pattern::parse(rw, 50)?,
        cpus: args.cpu.into_iter().collect(),
        poll: args.poll.policy(),
        ..Job::new(target)
    })
}

fn job(args: &ReportArgs, side: &Side, rw: &str) -> Outcome<Job> {
    Ok(Job {
        name: side.name.to_owned(),
        region: Some(side.bytes),
        limit: Limit::Runtime(args.runtime),
        ramp: args.runtime / 5,
        series: Some(Duration::from_secs(1)),
        ..shape(args, side.target.clone(), rw)?
    })
}

/// Fills a side, then runs all cases and depths on it.
fn measure(args: &ReportArgs, side: &Side, results: &mut Results) -> Outcome {
    eprintln!("{}: writing {}", side.name, Size::new(side.bytes));
    let fill = Job {
        sizes: Sizes::one(128 << 10),
        io_depth: 8,
        limit: Limit::OnePass,
        ramp: Duration::ZERO,
        ..job(args, side, "write")?
    };
    judge(&with_progress(&Plan::from(fill))?)?;
    for (case, into) in CASES.iter().zip(&mut results.cases) {
        eprintln!("{}: {}", side.name, case.name);
        let job = Job { io_depth: case.depth, queues: case.queues, ..job(args, side, case.rw)? };
        let mut report = with_progress(&Plan { jobs: vec![job], probe: side.probe.clone() })?;
        judge(&report)?;
        note_cost(&mut report, matches!(side.target, Target::File(_)));
        into.jobs.append(&mut report.jobs);
    }
    for depth in DEPTHS {
        eprintln!("{}: random read, depth {depth}", side.name);
        let limit = Limit::Runtime((args.runtime / 2).max(Duration::from_secs(1)));
        let job = Job { io_depth: depth, limit, ..job(args, side, "randread")? };
        let mut report = with_progress(&Plan::from(job))?;
        judge(&report)?;
        results.depths.jobs.append(&mut report.jobs);
    }
    Ok(())
}

/// Key under which a job's options carry what it cost, for the tables.
const COST: &str = "cost";

/// The cost is of a run and there is one job in it: keeps it with the job.
fn note_cost(report: &mut Report, is_file: bool) {
    let RunExtra { host, target } = &report.flashloom;
    let each = |cost: &Option<load::Cost>| {
        let cost = cost.as_ref()?;
        Some(format!("{:.2}", cost.busy_ns_per_io? / 1000.0))
    };
    let text = match (each(host), each(target)) {
        (Some(host), Some(target)) => format!("{host} + {target}"),
        // A file has no target; that of a host elsewhere does not say.
        (Some(host), None) if is_file => host,
        (Some(host), None) => format!("{host} + ?"),
        _ => "-".to_owned(),
    };
    for job in &mut report.jobs {
        job.options.insert(COST.to_owned(), text.clone());
    }
}

fn moved(job: &JobReport) -> &DirectionReport {
    if job.read.total_ios > 0 { &job.read } else { &job.write }
}

#[allow(clippy::cast_precision_loss, reason = "latencies for display")]
fn micros(nanos: u64) -> String {
    format!("{:.1}", nanos as f64 / 1000.0)
}

/// A number with its thousands apart.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The table of one case: a row for each side, and what the fabric adds to local.
fn table(out: &mut String, case: &Report) {
    let head = "| | IOPS | mean us | p50 us | p99 us | p99.9 us | p99.99 us | us at work for each command, host + target |";
    let _ = writeln!(out, "{head}\n|---|---:|---:|---:|---:|---:|---:|---:|");
    for job in &case.jobs {
        let figures = moved(job);
        let at = |percent| micros(figures.clat_ns.percentile(percent).unwrap_or(0));
        let _ = writeln!(
            out,
            "| {} | {} | {:.1} | {} | {} | {} | {} | {} |",
            job.jobname,
            thousands(figures.iops),
            figures.clat_ns.mean / 1000.0,
            at(50.0),
            at(99.0),
            at(99.9),
            at(99.99),
            job.options.get(COST).map_or("-", String::as_str)
        );
    }
    let side = |name: &str| case.jobs.iter().find(|job| job.jobname == name).map(moved);
    if let (Some(local), Some(fabric)) = (side("local"), side("fabric")) {
        let added = (fabric.clat_ns.mean - local.clat_ns.mean) / 1000.0;
        let share = if local.iops > 0.0 { fabric.iops / local.iops } else { 0.0 };
        let _ = writeln!(
            out,
            "\nOver the fabric: {share:.2} times local's IOPS, {added:+.1} us in the mean.\n"
        );
    }
}

fn kernel() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    read.trim().to_owned()
}

/// The namespace of another target that is measured.
fn served(args: &ReportArgs, traddr: &initiator::Address) -> String {
    let place = traddr.with_port(args.trsvcid);
    format!("namespace {} of {} at {place}", args.nsid, args.subnqn)
}

fn markdown(args: &ReportArgs, local: &Path, results: &Results) -> String {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let place = match (&args.local, &args.traddr) {
        (_, Some(traddr)) => served(args, traddr),
        (Some(_), None) => {
            "the same device, served by this program over NVMe/TCP on 127.0.0.1".to_owned()
        }
        (None, None) => {
            "the same file, served by this program over NVMe/TCP on 127.0.0.1".to_owned()
        }
    };
    let shown = local.file_name().map_or_else(PathBuf::new, PathBuf::from);
    let what = args.local.as_deref().unwrap_or(&shown).display().to_string();
    let mut out = format!(
        "# Local against fabric\n\n4 KiB commands over {}, {} s each, after {:.1} s unmeasured; every block written \
         before. flashloom {}, Linux {}, {cpus} CPUs, the load waiting by `{}`.\n\n\
         - **local**: {what}, past the page cache (`O_DIRECT`), through the same reactor and load generator; \
         no network and no NVMe.\n- **fabric**: {place}.\n",
        args.size,
        args.runtime.as_secs_f64(),
        (args.runtime / 5).as_secs_f64(),
        env!("CARGO_PKG_VERSION"),
        kernel(),
        name(args),
    );
    if args.traddr.is_none() {
        let memory = Size::new(MEMORY_BYTES);
        let _ = writeln!(
            out,
            "- **memory**: a namespace of {memory} in memory, served likewise: what the fabric alone costs."
        );
    }
    for (case, results) in CASES.iter().zip(&results.cases) {
        let how = if case.queues > 1 {
            format!(" ({} queues of {})", case.queues, case.depth)
        } else {
            String::new()
        };
        let _ = writeln!(out, "\n## 4K {}{how}\n", case.name);
        table(&mut out, results);
        let _ = writeln!(
            out,
            "![latency by percentile](latency-{0}.svg)\n![latency over time](time-{0}.svg)",
            case.file
        );
    }
    depths(&mut out, &results.depths);
    if let Some(measured) = &results.durable {
        durable::markdown(&mut out, measured);
    }
    out
}

/// The table over depths.
fn depths(out: &mut String, report: &Report) {
    out.push_str("\n## 4K random read against depth, one queue\n\n| depth |");
    let mut sides: Vec<&str> = report.jobs.iter().map(|job| job.jobname.as_str()).collect();
    sides.dedup();
    sides.iter().for_each(|side| {
        let _ = write!(out, " {side}, IOPS | {side}, mean us |");
    });
    let _ = writeln!(out, "\n|---:|{}", "---:|---:|".repeat(sides.len()));
    for depth in DEPTHS {
        let _ = write!(out, "| {depth} |");
        let at = |job: &&JobReport| job.options.get("iodepth") == Some(&depth.to_string());
        for job in report.jobs.iter().filter(at) {
            let figures = moved(job);
            let _ = write!(
                out,
                " {} | {:.1} |",
                thousands(figures.iops),
                figures.clat_ns.mean / 1000.0
            );
        }
        out.push('\n');
    }
    out.push_str("\n![throughput against depth](depth.svg)\n![mean latency against depth](depth-latency.svg)\n");
}

fn name(args: &ReportArgs) -> String {
    let value = clap::ValueEnum::to_possible_value(&args.poll);
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

fn write(dir: &Path, text: &str, results: &Results) -> Outcome {
    put(dir, "report.md", text)?;
    for (case, report) in CASES.iter().zip(&results.cases) {
        let (percentiles, time) =
            (plot::latency_percentiles(report), plot::latency_over_time(report));
        put(dir, &format!("latency-{}.svg", case.file), &percentiles.of(case.name).svg())?;
        put(dir, &format!("time-{}.svg", case.file), &time.of(case.name).svg())?;
        put_json(dir, case.file, report)?;
    }
    if let Some(measured) = &results.durable {
        put(dir, "durable.svg", &durable::chart(measured).svg())?;
        put_json(dir, "durable", &measured.writes)?;
    }
    if let Some([iops, latency]) = plot::depths(&results.depths) {
        put(dir, "depth.svg", &iops.svg())?;
        put(dir, "depth-latency.svg", &latency.svg())?;
    }
    Ok(())
}

fn put_json(dir: &Path, name: &str, report: &Report) -> Outcome {
    let json =
        serde_json::to_string_pretty(report).map_err(|error| Failure::new(Exit::Failed, error))?;
    put(dir, &format!("{name}.json"), &format!("{json}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::Latency;

    #[test]
    fn the_table_of_a_case_is_markdown_with_what_the_fabric_adds() {
        let job = |name: &str, iops: f64, mean: f64, cost: &str| {
            let clat_ns = Latency { mean, samples: 1, ..Latency::default() };
            let read =
                DirectionReport { total_ios: 1, iops, clat_ns, ..DirectionReport::default() };
            let mut job = JobReport { jobname: name.to_owned(), read, ..JobReport::default() };
            job.options.insert(COST.to_owned(), cost.to_owned());
            job
        };
        let jobs = vec![
            job("local", 714_643.0, 98_560.0, "1.00"),
            job("fabric", 701_184.0, 109_500.0, "1.00 + 2.00"),
        ];
        let mut out = String::new();
        table(&mut out, &Report { jobs, ..Report::default() });
        assert_eq!(
            out,
            "| | IOPS | mean us | p50 us | p99 us | p99.9 us | p99.99 us | us at work for each command, host + target |\n\
             |---|---:|---:|---:|---:|---:|---:|---:|\n\
             | local | 714,643 | 98.6 | 0.0 | 0.0 | 0.0 | 0.0 | 1.00 |\n\
             | fabric | 701,184 | 109.5 | 0.0 | 0.0 | 0.0 | 0.0 | 1.00 + 2.00 |\n\
             \n\
             Over the fabric: 0.98 times local's IOPS, +10.9 us in the mean.\n\n"
        );
    }

    #[test]
    fn thousands_are_apart() {
        let shown = [0.0, 12.4, 999.0, 1000.0, 1_234_567.8].map(thousands);
        assert_eq!(shown, ["0", "12", "999", "1,000", "1,234,568"]);
    }
}
