//! Small durable writes by size: to a volume whose pool has its log in memory, by a direct write window and as commands,
//! beside a namespace in memory, whose writes nothing has to make durable.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use api::value::{Backend, Size};
use array::desired::NamespaceDef;
use array::node::Node;
use initiator::WindowUse;
use load::{DirectionReport, Job, JobReport, Limit, Plan, Probe, Report, Sizes, Target};
use reactor::now_exact;
use reactor::shared::Mapping;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use stdx::Histogram;
use stdx::num::usize32;

use super::{COST, note_cost, port_of, shape, thousands};
use crate::bench::svg::{Chart, Line, Scale};
use crate::bench::{judge, with_progress};
use crate::cli::DEFAULT_NQN;
use crate::cli::bench::ReportArgs;
use crate::exit::{Exit, Failure, Outcome};

/// Bytes of a write.
const SIZES: [u32; 6] = [512, 1024, 2048, 4096, 8192, 16384];

/// Bytes of a write where one size stands for all.
const PAGE: u32 = 4096;

/// Writes a second, one at a time: what one takes is asked for, not how many the drives behind bear.
const RATE: u64 = 5000;

/// NSIDs of the namespace in memory and of the volume, which have blocks of 512 bytes.
const MEMORY: u32 = 3;
const VOLUME: u32 = 4;

/// Bytes of either.
const BYTES: u64 = 64 << 20;

/// Commands outstanding where it is asked how many go.
const MANY: u16 = 32;

/// Behind the name of a way where that is asked.
const AS_MANY_AS_GO: &str = ", as many as go";

/// Of the memory of the floor: a ring as it is granted. Writes of it for each size.
const RING: usize = 4 << 20;
const FLOOR_WRITES: usize = 100_000;

/// Bytes of a record beside its data.
const HEADER: usize = 64;

const POOL: &str = "report";
const DRIVES: usize = 4;

/// A way that a write goes.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    nsid: u32,
    window: WindowUse,
}

const WAYS: [Way; 3] = [
    Way { name: "memory", nsid: MEMORY, window: WindowUse::Off },
    Way { name: "volume", nsid: VOLUME, window: WindowUse::Off },
    Way { name: "window", nsid: VOLUME, window: WindowUse::Require },
];

/// What is served for it; its files are gone with it.
pub struct Served {
    log: PathBuf,
    drives: PathBuf,
    port: u16,
    probe: Probe,
}

/// What was measured: the writes, and by size 50th and 99th percentile of their floor, in nanoseconds.
#[derive(Default)]
pub struct Measured {
    pub writes: Report,
    floors: Vec<[u64; 2]>,
}

/// The same bytes as a record's copied into shared memory and fenced, in a bare loop, with nobody to take them.
fn floor(bytes: u32) -> Outcome<[u64; 2]> {
    let (bytes, failed) = (usize32(bytes), |error| Failure::new(Exit::Failed, error));
    let (memory, _) = Mapping::create(c"floor", RING).map_err(failed)?;
    // All of it is there: no page comes with the first write.
    memory.write(0, &vec![1; RING]);
    let (data, header) = (vec![0x5a; bytes], [7; HEADER]);
    let (mut latency, mut at) = (Histogram::new(), 0);
    for _ in 0..FLOOR_WRITES {
        if at + HEADER + bytes > RING {
            at = 0;
        }
        let begun = now_exact();
        memory.write(at + HEADER, &data);
        memory.write(at, &header);
        fence(Ordering::SeqCst);
        latency.record(now_exact() - begun);
        at += HEADER + bytes;
    }
    Ok([50.0, 99.0].map(|percent| latency.percentile(percent)))
}

/// The namespace in memory, for the subsystem.
pub fn namespace() -> (u32, NamespaceDef) {
    let memory = Backend::Memory { size: Size::new(BYTES) };
    (MEMORY, NamespaceDef { backend: memory, block_size: 512, uuid: None })
}

impl Served {
    /// Makes a pool of files in `dir`, with its log in memory, and maps a volume of it.
    pub fn begin(node: &Arc<Node>, dir: &Path, probe: Probe) -> Outcome<Self> {
        let log = PathBuf::from(format!("/dev/shm/flashloom-report-{}.log", std::process::id()));
        // A folder of its own: all of it is removed in the end.
        let drives = dir.join(format!("drives-{}", std::process::id()));
        std::fs::create_dir(&drives).map_err(|error| {
            Failure::new(Exit::Failed, format!("{}: {error}", drives.display()))
        })?;
        let served = Self { log, drives, port: port_of(node), probe };
        let drive = |nth: usize| {
            let path = served.drives.join(nth.to_string());
            format!("{},size=1GiB", path.display())
        };
        let drives: Vec<String> = (0..DRIVES).map(drive).collect();
        let log = format!("bbu:{}", served.log.display());
        node.create_pool(&read(json!({"name": POOL, "drives": drives, "log": [log]}))?)?;
        let volume = json!({"name": "small", "size": BYTES, "block_size": 512});
        node.create_volume(&read(json!(POOL))?, &read(volume)?)?;
        let mapping = json!({"subsystem": DEFAULT_NQN, "nsid": VOLUME});
        node.map_volume(&read(json!(format!("{POOL}/small")))?, read(mapping)?)?;
        Ok(served)
    }

    /// Runs all sizes each way, and then as many as go to the volume.
    pub fn measure(&self, args: &ReportArgs) -> Outcome<Measured> {
        let floors = SIZES.into_iter().map(floor).collect::<Outcome<_>>()?;
        let mut all = Report::default();
        for way in WAYS {
            let fill = Job {
                sizes: Sizes::one(128 << 10),
                io_depth: 8,
                limit: Limit::OnePass,
                ramp: Duration::ZERO,
                window: WindowUse::Off,
                rate_iops: None,
                ..self.job(args, way)?
            };
            judge(&with_progress(&Plan::from(fill))?)?;
            for bytes in SIZES {
                eprintln!("{}: durable writes of {bytes} bytes", way.name);
                let job = Job { sizes: Sizes::one(bytes), ..self.job(args, way)? };
                self.run(job, &mut all)?;
            }
        }
        for way in &WAYS[1..] {
            eprintln!("{}: as many durable writes as go", way.name);
            let name = format!("{}{AS_MANY_AS_GO}", way.name);
            let job = self.job(args, *way)?;
            let job = Job { name, rate_iops: None, io_depth: MANY, ..job };
            self.run(Job { sizes: Sizes::one(PAGE), ..job }, &mut all)?;
        }
        Ok(Measured { writes: all, floors })
    }

    fn run(&self, job: Job, all: &mut Report) -> Outcome {
        let mut report = with_progress(&Plan { jobs: vec![job], probe: Some(self.probe.clone()) })?;
        judge(&report)?;
        note_cost(&mut report, false);
        all.jobs.append(&mut report.jobs);
        Ok(())
    }

    fn job(&self, args: &ReportArgs, way: Way) -> Outcome<Job> {
        let target = Target::namespace("127.0.0.1", self.port, DEFAULT_NQN, way.nsid);
        Ok(Job {
            name: way.name.to_owned(),
            region: Some(BYTES),
            io_depth: 1,
            limit: Limit::Runtime(args.runtime / 2),
            ramp: args.runtime / 10,
            window: way.window,
            rate_iops: Some(RATE),
            ..shape(args, target, "randwrite")?
        })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // What cannot be removed is in the way of nobody.
        let _ = std::fs::remove_file(&self.log);
        let _ = std::fs::remove_dir_all(&self.drives);
    }
}

fn read<T: DeserializeOwned>(value: Value) -> Outcome<T> {
    serde_json::from_value(value).map_err(|error| Failure::new(Exit::Failed, error))
}

/// What a job was, where it was run.
fn job<'a>(report: &'a Report, name: &str) -> Option<&'a JobReport> {
    report.jobs.iter().find(|job| job.jobname == name)
}

/// Writes of one size, one way.
fn figures(report: &Report, way: Way, bytes: u32) -> Option<&DirectionReport> {
    let nth = SIZES.iter().position(|&size| size == bytes)?;
    let job = report.jobs.iter().filter(|job| job.jobname == way.name).nth(nth)?;
    Some(&job.write)
}

/// Nanoseconds that so many percent of them took at most.
fn taken(report: &Report, way: Way, bytes: u32, percent: f64) -> Option<u64> {
    figures(report, way, bytes)?.clat_ns.percentile(percent)
}

#[allow(clippy::cast_precision_loss, reason = "latencies for display")]
fn ratio(of: u64, to: u64) -> f64 {
    of as f64 / to.max(1) as f64
}

/// The section of the report.
pub fn markdown(out: &mut String, measured: &Measured) {
    let report = &measured.writes;
    let _ = writeln!(
        out,
        "\n## Durable writes, one at a time, {RATE} a second at most\n\n\
         - **memory**: a namespace in memory, over NVMe/TCP: nothing makes it durable.\n\
         - **volume**: a volume of a pool of {DRIVES} files, over NVMe/TCP; durable in its log, which is in memory \
         (`bbu:`).\n\
         - **window**: the same volume by a direct write window: no command, and no software of the target on the way.\n\
         - **floor**: the same bytes copied into shared memory and fenced, in a bare loop.\n\n\
         | bytes | floor p50, p99 us | memory p50, p99 us | volume p50, p99 us | window p50, p99 us | volume to memory, \
         p50 | window to volume, p50 | window to floor, p50 |\n\
         |---:|---:|---:|---:|---:|---:|---:|---:|"
    );
    for (bytes, floor) in SIZES.into_iter().zip(&measured.floors) {
        let [p50, p99] = floor.map(fine);
        let _ = write!(out, "| {bytes} | {p50}, {p99} |");
        for way in WAYS {
            let at = |percent| taken(report, way, bytes, percent).map_or("-".to_owned(), fine);
            let _ = write!(out, " {}, {} |", at(50.0), at(99.0));
        }
        for pair in WAYS.windows(2) {
            let p50 = |way: Way| taken(report, way, bytes, 50.0);
            let shown = p50(pair[1]).zip(p50(pair[0])).map(|(of, to)| ratio(of, to));
            let _ =
                write!(out, " {} |", shown.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")));
        }
        let p50 = taken(report, WAYS[2], bytes, 50.0).map(|of| ratio(of, floor[0]));
        let _ = writeln!(out, " {} |", p50.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")));
    }
    let _ = writeln!(
        out,
        "\n| writes of {PAGE} bytes | volume | window |\n|---|---:|---:|\n\
         | us at work for each, host + target | {} | {} |\n\
         | a second, {MANY} outstanding | {} | {} |",
        cost(report, WAYS[1]),
        cost(report, WAYS[2]),
        most(report, WAYS[1]),
        most(report, WAYS[2]),
    );
    out.push_str("\n![median latency of durable writes by size](durable.svg)\n");
}

/// What writes of a page cost, host and target.
fn cost(report: &Report, way: Way) -> &str {
    let nth = SIZES.iter().position(|&size| size == PAGE).unwrap_or(0);
    let job = report.jobs.iter().filter(|job| job.jobname == way.name).nth(nth);
    job.and_then(|job| job.options.get(COST)).map_or("-", String::as_str)
}

/// How many go.
fn most(report: &Report, way: Way) -> String {
    let job = job(report, &format!("{}{AS_MANY_AS_GO}", way.name));
    job.map_or("-".to_owned(), |job| thousands(job.write.iops))
}

/// Nanoseconds as microseconds: what a window takes is a part of one.
#[allow(clippy::cast_precision_loss, reason = "latencies for display")]
fn fine(nanos: u64) -> String {
    format!("{:.2}", nanos as f64 / 1000.0)
}

/// Median latency by size.
pub fn chart(measured: &Measured) -> Chart {
    let report = &measured.writes;
    let floor = SIZES.into_iter().zip(&measured.floors);
    let floor = floor.map(|(bytes, floor)| (f64::from(bytes), ratio(floor[0], 1000)));
    let floor = Line { name: "floor".to_owned(), points: floor.collect() };
    let line = |way: &Way| {
        let point = |&bytes: &u32| {
            let p50 = taken(report, *way, bytes, 50.0)?;
            Some((f64::from(bytes), ratio(p50, 1000)))
        };
        Line { name: way.name.to_owned(), points: SIZES.iter().filter_map(point).collect() }
    };
    Chart {
        title: "Durable writes, one at a time: median latency".to_owned(),
        x: ("bytes".to_owned(), Scale::Depths),
        y: ("latency, us".to_owned(), Scale::Log),
        lines: WAYS.iter().map(line).chain([floor]).collect(),
    }
}

#[cfg(test)]
mod tests {
    use load::Latency;

    use super::*;

    fn write(nanos: u64) -> DirectionReport {
        let percentile = json!({"50.000000": nanos, "99.000000": nanos * 2});
        let percentile = serde_json::from_value(percentile).unwrap();
        let clat_ns = Latency { samples: 1, percentile, ..Latency::default() };
        DirectionReport { total_ios: 1, clat_ns, ..DirectionReport::default() }
    }

    #[test]
    fn each_size_has_a_row_with_all_ways_and_their_ratios() {
        let mut report = Report::default();
        let floors = vec![[300, 500]; SIZES.len()];
        for (way, nanos) in WAYS.iter().zip([10_000, 12_000, 600]) {
            report.jobs.extend(SIZES.iter().map(|_| JobReport {
                jobname: way.name.to_owned(),
                write: write(nanos),
                ..JobReport::default()
            }));
        }
        for (way, iops) in WAYS[1..].iter().zip([80_000.0, 150_000.0]) {
            report.jobs.push(JobReport {
                jobname: format!("{}{AS_MANY_AS_GO}", way.name),
                write: DirectionReport { iops, ..write(1) },
                ..JobReport::default()
            });
        }
        let mut out = String::new();
        let measured = Measured { writes: report, floors };
        markdown(&mut out, &measured);
        assert!(out.contains("| a second, 32 outstanding | 80,000 | 150,000 |\n"), "{out}");
        for bytes in SIZES {
            let row = format!(
                "| {bytes} | 0.30, 0.50 | 10.00, 20.00 | 12.00, 24.00 | 0.60, 1.20 | 1.20 | 0.05 | 2.00 |\n"
            );
            assert!(out.contains(&row), "{out}");
        }
        let lines = chart(&measured).lines;
        assert_eq!(lines.len(), WAYS.len() + 1);
        assert!(lines.iter().all(|line| line.points.len() == SIZES.len()));
    }
}
