//! Small durable writes by size: to a volume whose pool has its log in memory, by a direct write window and as commands,
//! beside a namespace in memory, whose writes nothing has to make durable.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::value::{Backend, Size};
use array::desired::NamespaceDef;
use array::node::Node;
use initiator::WindowUse;
use load::{DirectionReport, Job, Limit, Plan, Report, Sizes, Target};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{micros, port_of, shape};
use crate::bench::svg::{Chart, Line, Scale};
use crate::bench::{judge, with_progress};
use crate::cli::DEFAULT_NQN;
use crate::cli::bench::ReportArgs;
use crate::exit::{Exit, Failure, Outcome};

/// Bytes of a write.
const SIZES: [u32; 6] = [512, 1024, 2048, 4096, 8192, 16384];

/// Writes a second, one at a time: what one takes is asked for, not how many the drives behind bear.
const RATE: u64 = 5000;

/// NSIDs of the namespace in memory and of the volume, which have blocks of 512 bytes.
const MEMORY: u32 = 3;
const VOLUME: u32 = 4;

/// Bytes of either.
const BYTES: u64 = 64 << 20;

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
}

/// The namespace in memory, for the subsystem.
pub fn namespace() -> (u32, NamespaceDef) {
    let memory = Backend::Memory { size: Size::new(BYTES) };
    (MEMORY, NamespaceDef { backend: memory, block_size: 512, uuid: None })
}

impl Served {
    /// Makes a pool of files in `dir`, with its log in memory, and maps a volume of it.
    pub fn begin(node: &Arc<Node>, dir: &Path) -> Outcome<Self> {
        let log = PathBuf::from(format!("/dev/shm/flashloom-report-{}.log", std::process::id()));
        // A folder of its own: all of it is removed in the end.
        let drives = dir.join(format!("drives-{}", std::process::id()));
        std::fs::create_dir(&drives).map_err(|error| {
            Failure::new(Exit::Failed, format!("{}: {error}", drives.display()))
        })?;
        let served = Self { log, drives, port: port_of(node) };
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

    /// Runs all sizes each way.
    pub fn measure(&self, args: &ReportArgs) -> Outcome<Report> {
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
                let mut report = with_progress(&Plan::from(job))?;
                judge(&report)?;
                all.jobs.append(&mut report.jobs);
            }
        }
        Ok(all)
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
pub fn markdown(out: &mut String, report: &Report) {
    let _ = writeln!(
        out,
        "\n## Durable writes, one at a time, {RATE} a second at most\n\n\
         - **memory**: a namespace in memory, over NVMe/TCP: nothing makes it durable.\n\
         - **volume**: a volume of a pool of {DRIVES} files, over NVMe/TCP; durable in its log, which is in memory \
         (`bbu:`).\n\
         - **window**: the same volume by a direct write window: no command, and no software of the target on the way.\n\n\
         | bytes | memory p50, p99 us | volume p50, p99 us | window p50, p99 us | volume to memory, p50 | window to \
         volume, p50 |\n\
         |---:|---:|---:|---:|---:|---:|"
    );
    for bytes in SIZES {
        let _ = write!(out, "| {bytes} |");
        for way in WAYS {
            let at = |percent| taken(report, way, bytes, percent).map_or("-".to_owned(), micros);
            let _ = write!(out, " {}, {} |", at(50.0), at(99.0));
        }
        for pair in WAYS.windows(2) {
            let p50 = |way: Way| taken(report, way, bytes, 50.0);
            let shown = p50(pair[1]).zip(p50(pair[0])).map(|(of, to)| ratio(of, to));
            let _ =
                write!(out, " {} |", shown.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")));
        }
        out.push('\n');
    }
    out.push_str("\n![median latency of durable writes by size](durable.svg)\n");
}

/// Median latency by size.
pub fn chart(report: &Report) -> Chart {
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
        lines: WAYS.iter().map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use load::{JobReport, Latency};

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
        for (way, nanos) in WAYS.iter().zip([10_000, 12_000, 600]) {
            report.jobs.extend(SIZES.iter().map(|_| JobReport {
                jobname: way.name.to_owned(),
                write: write(nanos),
                ..JobReport::default()
            }));
        }
        let mut out = String::new();
        markdown(&mut out, &report);
        for bytes in SIZES {
            let row = format!("| {bytes} | 10.0, 20.0 | 12.0, 24.0 | 0.6, 1.2 | 1.20 | 0.05 |\n");
            assert!(out.contains(&row), "{out}");
        }
        let lines = chart(&report).lines;
        assert_eq!(lines.len(), WAYS.len());
        assert!(lines.iter().all(|line| line.points.len() == SIZES.len()));
    }
}
