//! A report in other programs' formats: CSV, HdrHistogram's percentile text, and fio's logs.

use std::fmt::Write;

use crate::report::{DirectionReport, JobReport, Latency, Moment, MomentSide, Percent, Report};

/// Columns of [`csv`].
pub const CSV_HEADER: &str = "job,direction,bs,iodepth,queues,ios,bytes,iops,bw_bytes,min_ns,mean_ns,stddev_ns,\
                              p50_ns,p90_ns,p99_ns,p99.9_ns,p99.99_ns,max_ns,errors";

/// A field of CSV, quoted when it has to be (RFC 4180).
fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// The directions of a job that moved data, by name.
pub fn directions(job: &JobReport) -> impl Iterator<Item = (&'static str, &DirectionReport)> {
    let both = [("read", &job.read), ("write", &job.write)];
    both.into_iter().filter(|(_, direction)| direction.total_ios > 0)
}

/// One row for each direction of each job that moved data, without the header.
#[must_use]
pub fn csv_rows(report: &Report) -> String {
    let mut out = String::new();
    for job in &report.jobs {
        let option = |key: &str| field(job.options.get(key).map_or("", String::as_str));
        let sizes = if job.options.contains_key("bs") { "bs" } else { "bssplit" };
        for (name, direction) in directions(job) {
            let latency = &direction.clat_ns;
            let at = |percent| latency.percentile(percent).unwrap_or(0);
            let _ = writeln!(
                out,
                "{},{name},{},{},{},{},{},{:.2},{},{},{:.1},{:.1},{},{},{},{},{},{},{}",
                field(&job.jobname),
                option(sizes),
                option("iodepth"),
                option("numjobs"),
                direction.total_ios,
                direction.io_bytes,
                direction.iops,
                direction.bw_bytes,
                latency.min,
                latency.mean,
                latency.stddev,
                at(50.0),
                at(90.0),
                at(99.0),
                at(99.9),
                at(99.99),
                latency.max,
                job.total_err,
            );
        }
    }
    out
}

/// The report as CSV: [`CSV_HEADER`], then [`csv_rows`].
#[must_use]
pub fn csv(report: &Report) -> String {
    format!("{CSV_HEADER}\n{}", csv_rows(report))
}

fn sides(moment: &Moment) -> [(&'static str, &MomentSide); 2] {
    [("read", &moment.read), ("write", &moment.write)]
}

/// The time series as CSV.
#[must_use]
pub fn series_csv(report: &Report) -> String {
    let mut out = "job,end_ms,direction,iops,bw_bytes,mean_ns,p50_ns,p99_ns,max_ns\n".to_owned();
    for job in &report.jobs {
        let moved: Vec<&str> = directions(job).map(|(name, _)| name).collect();
        for moment in &job.flashloom.series {
            for (name, side) in sides(moment).iter().filter(|(name, _)| moved.contains(name)) {
                let _ = writeln!(
                    out,
                    "{},{},{name},{:.2},{},{:.1},{},{},{}",
                    field(&job.jobname),
                    moment.end_ms,
                    side.iops,
                    side.bw_bytes,
                    side.mean_ns,
                    side.p50_ns,
                    side.p99_ns,
                    side.max_ns
                );
            }
        }
    }
    out
}

/// A latency distribution as HdrHistogram prints it (its percentile text, in microseconds): what its plotters
/// read. Five steps for each halving of what is left to 100 %.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "counts and nanoseconds for display")]
pub fn hgrm(latency: &Latency) -> String {
    let mut out = format!(
        "{:>12} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let total: u64 = latency.bins.values().sum();
    let (mut seen, mut tick) = (0u64, 0i32);
    for (&value, &n) in &latency.bins {
        seen += n;
        let reached = seen as f64 / total as f64;
        // A row for each value that passes a tick; the ticks within one value are one row.
        if reached < tick_of(tick) && seen < total {
            continue;
        }
        while tick_of(tick) <= reached && tick < TICKS_MAX {
            tick += 1;
        }
        let micros = value.min(latency.max) as f64 / 1000.0;
        let _ = write!(out, "{micros:>12.3} {reached:>14.12} {seen:>10}");
        let _ = match seen < total {
            true => writeln!(out, " {:>14.2}", 1.0 / (1.0 - reached)),
            false => writeln!(out),
        };
    }
    let micros = |nanos: f64| nanos / 1000.0;
    let _ = writeln!(
        out,
        "#[Mean    = {:>12.3}, StdDeviation   = {:>12.3}]\n#[Max     = {:>12.3}, Total count    = {total:>12}]\n\
         #[Buckets = {:>12}, SubBuckets     = {:>12}]",
        micros(latency.mean),
        micros(latency.stddev),
        micros(latency.max as f64),
        latency.bins.len(),
        64
    );
    out
}

/// Enough for one in 2^40.
const TICKS_MAX: i32 = 5 * 40;

/// Where the tick is: five evenly from 0 to a half, five from there to three quarters, and so on.
fn tick_of(tick: i32) -> f64 {
    let (halvings, step) = (tick / 5, tick % 5);
    let left = 0.5f64.powi(halvings);
    1.0 - left + left / 2.0 * f64::from(step) / 5.0
}

/// Which of fio's logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// KiB a second.
    Bandwidth,
    /// Commands a second.
    Iops,
    /// Mean completion latency, nanoseconds.
    Latency,
}

impl Log {
    /// All of them, with what fio puts in their file names.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Bandwidth, "bw"), (Self::Iops, "iops"), (Self::Latency, "clat")];
}

/// One of fio's logs of a job's time series: `time in ms, value, direction, block size, offset`.
#[must_use]
pub fn fio_log(job: &JobReport, log: Log) -> String {
    let mut out = String::new();
    let moved: Vec<&str> = directions(job).map(|(name, _)| name).collect();
    for moment in &job.flashloom.series {
        for (direction, (name, side)) in sides(moment).iter().enumerate() {
            if !moved.contains(name) {
                continue;
            }
            let value = match log {
                Log::Bandwidth => side.bw_bytes / 1024,
                Log::Iops => whole(side.iops),
                Log::Latency => whole(side.mean_ns),
            };
            let _ = writeln!(out, "{}, {value}, {direction}, 0, 0", moment.end_ms);
        }
    }
    out
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates and latencies are neither negative nor near 2^64"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// The report without the counts of its latency histograms: `json` where the other is fio's `json+`.
#[must_use]
pub fn without_bins(report: &Report) -> Report {
    let mut report = report.clone();
    for job in &mut report.jobs {
        job.read.clat_ns.bins.clear();
        job.write.clat_ns.bins.clear();
    }
    report
}

/// The latency at `percent` of a distribution with its counts, nanoseconds: any percentile, not only those listed.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "a rank among counts")]
pub fn percentile(latency: &Latency, percent: f64) -> u64 {
    let total: u64 = latency.bins.values().sum();
    let rank = percent / 100.0 * total as f64;
    let mut seen = 0;
    for (&value, &n) in &latency.bins {
        seen += n;
        if seen as f64 >= rank {
            return value.clamp(latency.min, latency.max);
        }
    }
    latency.max
}

/// Percentiles of a report, as numbers.
#[must_use]
pub fn percents(latency: &Latency) -> Vec<f64> {
    latency.percentile.keys().map(|percent: &Percent| percent.value()).collect()
}

#[cfg(test)]
mod tests;
