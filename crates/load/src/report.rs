//! What a run measured, as documents whose JSON is a subset of fio's (version 3 format): tools made for
//! fio's output read it. Keys fio does not have are under `flashloom`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stdx::histogram::Histogram;

/// Result of a run: fio's top-level object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Program and version in fio's place.
    #[serde(rename = "fio version")]
    pub version: String,
    /// Seconds since 1970 at the end of the run.
    pub timestamp: u64,
    /// Milliseconds since 1970 at the end of the run.
    pub timestamp_ms: u64,
    /// The jobs, in the plan's order.
    pub jobs: Vec<JobReport>,
    /// What fio does not have.
    #[serde(default)]
    pub flashloom: RunExtra,
}

/// What a run reports beyond fio's keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunExtra {
    /// What the load cost on this side: the threads of all jobs.
    pub host: Option<Cost>,
    /// What it cost the target; `None` when it was not asked.
    pub target: Option<Cost>,
}

/// CPU time of one side while the load ran, warming up not included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Commands completed meanwhile.
    pub ios: u64,
    /// CPU time, spinning included.
    pub cpu_ns: Option<u64>,
    /// The same for each command.
    pub cpu_ns_per_io: Option<f64>,
    /// Time at work by the reactors' own account, spinning not included.
    pub busy_ns: Option<u64>,
    /// The same for each command.
    pub busy_ns_per_io: Option<f64>,
}

/// Result of one job: an element of fio's `jobs`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    /// Name of the job.
    pub jobname: String,
    /// Always 0: jobs are not grouped.
    pub groupid: u32,
    /// 0, or 5 (EIO) when a command failed, or 84 (EILSEQ, as fio) when data was wrong.
    pub error: i32,
    /// Seconds from start to end, rounded up.
    pub elapsed: u64,
    /// Options of the job in fio's words.
    #[serde(rename = "job options")]
    pub options: BTreeMap<String, String>,
    /// The reads.
    pub read: DirectionReport,
    /// The writes.
    pub write: DirectionReport,
    /// Always empty: fio's tools expect it.
    #[serde(default)]
    pub trim: DirectionReport,
    /// Milliseconds the job ran.
    pub job_runtime: u64,
    /// CPU time of its threads in user space, percent of the run. Threads that several jobs share count for each.
    #[serde(default)]
    pub usr_cpu: f64,
    /// The same in the kernel.
    #[serde(default)]
    pub sys_cpu: f64,
    /// Context switches of its threads.
    #[serde(default)]
    pub ctx: u64,
    /// Commands that failed and blocks found wrong.
    pub total_err: u64,
    /// What fio does not have.
    pub flashloom: Extra,
}

/// What a job reports beyond fio's keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Extra {
    /// The first failed commands: operation, address and status in the specification's words.
    pub failed: Vec<String>,
    /// Result of verification; `None` when it was off.
    pub verify: Option<VerifyReport>,
    /// Times that a broken connection was made again.
    #[serde(default)]
    pub reconnects: u64,
    /// Writes that went by a direct write window, and needed no command; all of the run.
    #[serde(default)]
    pub direct_writes: u64,
    /// The network card's queues (NAPI identifiers) that the I/O queues of each reactor come by; empty within a machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub card_queues: Vec<Vec<u32>>,
    /// Commands sent on the queues of each map: of everything (or of what is no read), of reads, of polled
    /// commands; all of the run, reading back included. Zero for files.
    #[serde(default)]
    pub map_commands: [u64; 3],
    /// System calls made to send them.
    #[serde(default)]
    pub sends: u64,
    /// Nanoseconds from the first command's submission to the last one's completion.
    pub active_ns: u64,
    /// What it did over time; empty when that was not asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Moment>,
}

/// One interval of a time series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Its end, milliseconds from the start of the load.
    pub end_ms: u64,
    /// The reads that completed in it.
    pub read: MomentSide,
    /// The writes.
    pub write: MomentSide,
}

/// One direction within one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MomentSide {
    /// Commands a second.
    pub iops: f64,
    /// Bytes a second.
    pub bw_bytes: u64,
    /// Mean latency, nanoseconds; 0 when nothing completed, as the others.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 99 % of the commands took at most this long.
    pub p99_ns: u64,
    /// Longest.
    pub max_ns: u64,
}

impl MomentSide {
    /// Sums up `ios` commands of `bytes` in total that completed in `length` nanoseconds.
    #[must_use]
    pub fn of(ios: u64, bytes: u64, length: u64, latency: &Histogram) -> Self {
        Self {
            iops: rate(ios, length),
            bw_bytes: per_second(bytes, length),
            mean_ns: latency.mean(),
            p50_ns: latency.percentile(50.0),
            p99_ns: latency.percentile(99.0),
            max_ns: latency.max(),
        }
    }
}

/// Result of verification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VerifyReport {
    /// Bytes read back and found right.
    pub verified_bytes: u64,
    /// Bytes whose writes were acknowledged, by the journal that is checked; `None` for a load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged_bytes: Option<u64>,
    /// Bytes at the end of the journal that were not read, as they were not written whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal_torn_bytes: Option<u64>,
    /// Blocks found wrong.
    pub errors: u64,
    /// The first of them.
    pub listed: Vec<VerifyError>,
}

/// A block that did not hold what was written to it last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyError {
    /// Byte offset in the namespace.
    pub offset: u64,
    /// What was wrong, in words.
    pub what: String,
}

/// One direction of a job: fio's `read` or `write` object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// Bytes moved.
    pub io_bytes: u64,
    /// The same in KiB.
    pub io_kbytes: u64,
    /// Bytes a second.
    pub bw_bytes: u64,
    /// KiB a second.
    pub bw: u64,
    /// Commands a second.
    pub iops: f64,
    /// Milliseconds the direction was active; 0 when no command was sent.
    pub runtime: u64,
    /// Commands completed with success.
    pub total_ios: u64,
    /// Always 0: NVMe moves all of a command's data or fails it.
    pub short_ios: u64,
    /// Always 0.
    pub drop_ios: u64,
    /// Time from handing a command to the queue to its submission: always 0, the submitting loop sends itself.
    pub slat_ns: Latency,
    /// Time from submission to completion.
    pub clat_ns: Latency,
    /// Time from hand-over to completion: equals `clat_ns` here.
    pub lat_ns: Latency,
}

/// A latency distribution in fio's form, nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Smallest.
    pub min: u64,
    /// Largest.
    pub max: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Number of samples.
    #[serde(rename = "N")]
    pub samples: u64,
    /// Percentiles, keyed as fio does: "50.000000".
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub percentile: BTreeMap<Percent, u64>,
    /// How often each latency came, to 1.6 %: what fio's `json+` adds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bins: BTreeMap<u64, u64>,
}

/// A percentile as key: ordered as a number, written as fio's six decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent {
    /// Parts per million of a percent.
    micro: u32,
}

/// Percentiles reported: fio's default list.
const PERCENTS: [u32; 17] = [
    1_000_000, 5_000_000, 10_000_000, 20_000_000, 30_000_000, 40_000_000, 50_000_000, 60_000_000,
    70_000_000, 80_000_000, 90_000_000, 95_000_000, 99_000_000, 99_500_000, 99_900_000, 99_950_000,
    99_990_000,
];

impl Percent {
    /// As a number.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from(self.micro) / 1e6
    }
}

impl Serialize for Percent {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&format_args!("{}.{:06}", self.micro / 1_000_000, self.micro % 1_000_000))
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = String::deserialize(input)?;
        let wrong = || serde::de::Error::custom(format!("`{text}` is not a percentile"));
        let (whole, part) = text.split_once('.').ok_or_else(wrong)?;
        let digits = |s: &str| s.parse::<u32>().map_err(|_| wrong());
        if part.len() != 6 || digits(whole)? > 100 {
            return Err(wrong());
        }
        Ok(Self { micro: digits(whole)? * 1_000_000 + digits(part)? })
    }
}

impl Latency {
    /// Sums up a histogram of nanoseconds, with percentiles.
    #[must_use]
    pub fn of(histogram: &Histogram) -> Self {
        let percentile = if histogram.count() == 0 {
            BTreeMap::new()
        } else {
            PERCENTS
                .iter()
                .map(|&micro| Percent { micro })
                .map(|percent| (percent, histogram.percentile(percent.value())))
                .collect()
        };
        Self {
            min: histogram.min(),
            max: histogram.max(),
            mean: histogram.mean(),
            stddev: histogram.stddev(),
            samples: histogram.count(),
            percentile,
            bins: histogram.iter().collect(),
        }
    }

    /// The value of one of the percentiles reported (such as 99.9); `None` when there are no samples or it is not
    /// one of fio's default list.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        self.percentile
            .iter()
            .find(|(key, _)| (key.value() - percent).abs() < 1e-6)
            .map(|(_, &value)| value)
    }
}

impl DirectionReport {
    /// Sums up `ios` commands of `bytes` in total over `active_ns`.
    #[must_use]
    pub fn of(ios: u64, bytes: u64, active_ns: u64, histogram: &Histogram) -> Self {
        let latency = Latency::of(histogram);
        let whole =
            Latency { percentile: BTreeMap::new(), bins: BTreeMap::new(), ..latency.clone() };
        let bw_bytes = per_second(bytes, active_ns);
        Self {
            io_bytes: bytes,
            io_kbytes: bytes / 1024,
            bw_bytes,
            bw: bw_bytes / 1024,
            iops: rate(ios, active_ns),
            runtime: if ios == 0 { 0 } else { active_ns.div_ceil(1_000_000) },
            total_ios: ios,
            short_ios: 0,
            drop_ios: 0,
            slat_ns: Latency::default(),
            clat_ns: latency,
            lat_ns: whole,
        }
    }
}

/// `count` per second over `ns` as a whole number; 0 over no time.
fn per_second(count: u64, ns: u64) -> u64 {
    if ns == 0 {
        return 0;
    }
    u64::try_from(u128::from(count) * 1_000_000_000 / u128::from(ns)).unwrap_or(u64::MAX)
}

/// `count` per second over `ns`; 0 over no time.
#[allow(clippy::cast_precision_loss, reason = "a rate is an estimate")]
pub(crate) fn rate(count: u64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { count as f64 * 1e9 / ns as f64 }
}

/// `part` of `whole`, 0.0 to 1.0; 1.0 of nothing.
#[allow(clippy::cast_precision_loss, reason = "a share for display")]
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 1.0 } else { (part as f64 / whole as f64).min(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_fios_keys() {
        let mut histogram = Histogram::new();
        (1..=1000).for_each(|us| histogram.record(us * 1000));
        let read = DirectionReport::of(1000, 4_096_000, 2_000_000_000, &histogram);
        let job = JobReport { jobname: "j".to_owned(), read, ..JobReport::default() };
        let report = Report { jobs: vec![job], ..Report::default() };
        let json = serde_json::to_value(&report).unwrap();
        let read = &json["jobs"][0]["read"];
        assert_eq!(read["bw_bytes"], 2_048_000);
        assert_eq!(read["iops"], 500.0);
        assert_eq!(read["runtime"], 2000);
        assert_eq!(read["clat_ns"]["N"], 1000);
        let p99 = read["clat_ns"]["percentile"]["99.000000"].as_u64().unwrap();
        assert!((980_000..=1_010_000).contains(&p99), "{p99}");
        assert!(read["lat_ns"].get("percentile").is_none());
        assert!(json["jobs"][0]["write"]["clat_ns"].get("percentile").is_none());
        let back: Report = serde_json::from_value(json).unwrap();
        assert_eq!(back, report);
        assert_eq!(back.jobs[0].read.clat_ns.percentile(99.0), Some(p99));
    }

    #[test]
    fn percentile_keys_are_checked() {
        for wrong in ["\"50\"", "\"101.000000\"", "\"x.000000\"", "\"5.0\""] {
            assert!(serde_json::from_str::<Percent>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_of_no_time_are_zero() {
        assert_eq!(per_second(5, 0), 0);
        assert!(rate(5, 0).abs() < f64::EPSILON);
    }
}
