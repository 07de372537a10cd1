//! The plots of a result.

use load::{JobReport, Latency, Moment, MomentSide, Report, export};

use super::svg::{Chart, Line, Scale};

/// Nanoseconds as microseconds.
#[allow(clippy::cast_precision_loss, reason = "latencies for display")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

#[allow(clippy::cast_precision_loss, reason = "milliseconds of a run")]
fn seconds(millis: u64) -> f64 {
    millis as f64 / 1000.0
}

fn depth(job: &JobReport) -> Option<f64> {
    job.options.get("iodepth")?.parse().ok()
}

/// Whether jobs of this one's name ran at other depths.
fn is_swept(report: &Report, job: &JobReport) -> bool {
    let alike = |other: &&JobReport| other.jobname == job.jobname;
    report.jobs.iter().filter(alike).any(|other| depth(other) != depth(job))
}

/// A job's name, with its depth where jobs of one name differ in it, and with the direction.
fn name(report: &Report, job: &JobReport, direction: &str) -> String {
    match depth(job) {
        Some(depth) if is_swept(report, job) => {
            format!("{}, depth {depth}, {direction}", job.jobname)
        }
        _ => format!("{}, {direction}", job.jobname),
    }
}

/// Points of the distribution: some to each tenth of what is left, as far as the samples go.
fn percentiles(latency: &Latency) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    let mut left = 100.0;
    for _ in 0..6 {
        for step in [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15] {
            let percent = 100.0 - left * step;
            // The last one of the samples is the largest: nothing is known beyond.
            if percent > 0.0 && left * step * whole(latency.samples) >= 100.0 {
                points.push((percent, micros(export::percentile(latency, percent))));
            }
        }
        left /= 10.0;
    }
    points
}

#[allow(clippy::cast_precision_loss, reason = "a number of samples")]
fn whole(samples: u64) -> f64 {
    samples as f64
}

/// Latency by percentile, a line for each direction of each job.
pub fn latency_percentiles(report: &Report) -> Chart {
    let mut lines = Vec::new();
    for job in &report.jobs {
        for (direction, figures) in export::directions(job) {
            let points = percentiles(&figures.clat_ns);
            lines.push(Line { name: name(report, job, direction), points });
        }
    }
    Chart {
        title: "Latency by percentile".to_owned(),
        x: ("percentile".to_owned(), Scale::Nines),
        y: ("latency, us".to_owned(), Scale::Log),
        lines,
    }
}

/// What a line shows of each interval, with what is added to its name.
type Figure = (&'static str, fn(&MomentSide) -> f64);

fn over_time(report: &Report, figures: &[Figure]) -> Vec<Line> {
    let mut lines = Vec::new();
    for job in &report.jobs {
        for (direction, _) in export::directions(job) {
            let side = |moment: &Moment| match direction {
                "read" => moment.read.clone(),
                _ => moment.write.clone(),
            };
            for (figure, of) in figures {
                let series = full(&job.flashloom.series).iter();
                let points = series.map(|moment| (seconds(moment.end_ms), of(&side(moment))));
                let name = format!("{}{figure}", name(report, job, direction));
                lines.push(Line { name, points: points.collect() });
            }
        }
    }
    lines
}

/// The intervals of a series without what little there is behind the last full one: a moment in which only what was
/// under way came to its end.
fn full(series: &[Moment]) -> &[Moment] {
    match series {
        [rest @ .., before, last] => {
            let usual = rest.first().unwrap_or(before).end_ms;
            let is_full = (last.end_ms - before.end_ms) * 2 >= usual;
            if is_full { series } else { &series[..series.len() - 1] }
        }
        _ => series,
    }
}

/// Latency over time: median and 99th percentile.
pub fn latency_over_time(report: &Report) -> Chart {
    let figures: [Figure; 2] =
        [(" p50", |side| micros(side.p50_ns)), (" p99", |side| micros(side.p99_ns))];
    Chart {
        title: "Latency over time".to_owned(),
        x: ("time, s".to_owned(), Scale::Linear),
        y: ("latency, us".to_owned(), Scale::Log),
        lines: over_time(report, &figures),
    }
}

/// Commands a second over time.
pub fn iops_over_time(report: &Report) -> Chart {
    Chart {
        title: "Commands a second over time".to_owned(),
        x: ("time, s".to_owned(), Scale::Linear),
        y: ("IOPS".to_owned(), Scale::Linear),
        lines: over_time(report, &[("", |side| side.iops)]),
    }
}

/// What `of` says of each depth, a line for each direction of jobs of one name, in their order: a job has the same
/// colour in all plots.
fn by_depth(report: &Report, of: fn(&load::DirectionReport) -> f64) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for job in &report.jobs {
        let Some(depth) = depth(job) else { continue };
        for (direction, figures) in export::directions(job) {
            let (name, point) = (format!("{}, {direction}", job.jobname), (depth, of(figures)));
            match lines.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(point),
                None => lines.push(Line { name, points: vec![point] }),
            }
        }
    }
    lines
}

/// By powers of ten where one line would lie flat below another.
fn scale_of(lines: &[Line]) -> Scale {
    let peak = |line: &Line| line.points.iter().map(|point| point.1).fold(0.0, f64::max);
    let highest = lines.iter().map(peak).fold(0.0, f64::max);
    let lowest = lines.iter().map(peak).fold(f64::INFINITY, f64::min);
    if lowest * 5.0 < highest { Scale::Log } else { Scale::Linear }
}

/// Commands a second against the depth, and the mean latency against it; `None` when no job ran at several depths.
pub fn depths(report: &Report) -> Option<[Chart; 2]> {
    if !report.jobs.iter().any(|job| is_swept(report, job)) {
        return None;
    }
    let chart = |title: &str, y: &str, scale, lines| Chart {
        title: title.to_owned(),
        x: ("commands outstanding on each queue".to_owned(), Scale::Depths),
        y: (y.to_owned(), scale),
        lines,
    };
    let iops = by_depth(report, |figures| figures.iops);
    let latency = by_depth(report, |figures| figures.clat_ns.mean / 1000.0);
    Some([
        chart("Throughput against depth", "IOPS", scale_of(&iops), iops),
        chart("Mean latency against depth", "latency, us", Scale::Log, latency),
    ])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use load::DirectionReport;

    fn job(name: &str, depth: u32, latency: u64) -> JobReport {
        let bins = BTreeMap::from([(latency, 990), (latency * 10, 10)]);
        let clat_ns =
            Latency { min: latency, max: latency * 10, samples: 1000, bins, ..Latency::default() };
        let read = DirectionReport {
            total_ios: 1,
            iops: f64::from(depth) * 100.0,
            clat_ns,
            ..DirectionReport::default()
        };
        let mut job = JobReport { jobname: name.to_owned(), read, ..JobReport::default() };
        job.options.insert("iodepth".to_owned(), depth.to_string());
        job
    }

    #[test]
    fn percentiles_end_where_the_samples_do() {
        let points = percentiles(&job("a", 1, 2000).read.clat_ns);
        assert_eq!((points[0].1, points.last().unwrap().1), (2.0, 20.0));
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
        assert!(points.last().unwrap().0 <= 99.9, "{points:?}");
    }

    #[test]
    fn depths_are_drawn_where_there_are_several() {
        let mut report =
            Report { jobs: vec![job("a", 1, 10), job("b", 1, 10)], ..Report::default() };
        assert!(depths(&report).is_none());
        report.jobs.push(job("a", 4, 20));
        let [iops, _] = depths(&report).unwrap();
        assert_eq!(
            (iops.lines[0].name.as_str(), iops.lines[0].points.as_slice()),
            ("a, read", &[(1.0, 100.0), (4.0, 400.0)][..])
        );
        assert_eq!(iops.y.1, Scale::Linear);
        let names: Vec<String> =
            latency_percentiles(&report).lines.into_iter().map(|line| line.name).collect();
        assert_eq!(names, ["a, depth 1, read", "b, read", "a, depth 4, read"]);
    }

    #[test]
    fn sides_keep_their_order_and_can_be_told_apart_when_one_is_far_above() {
        let mut jobs = vec![job("local", 1, 10), job("fabric", 1, 10), job("memory", 1, 10)];
        jobs.extend(["local", "fabric", "memory"].map(|name| job(name, 4, 10)));
        jobs[5].read.iops = 1_000_000.0;
        let [iops, _] = depths(&Report { jobs, ..Report::default() }).unwrap();
        let names: Vec<_> = iops.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(
            (names, iops.y.1),
            (vec!["local, read", "fabric, read", "memory, read"], Scale::Log)
        );
    }

    /// What came to its end behind the last interval was drawn as one more, straight above or below it.
    #[test]
    fn a_series_is_drawn_to_its_last_full_interval() {
        let of = |ends: &[u64]| -> Vec<Moment> {
            ends.iter().map(|&end_ms| Moment { end_ms, ..Moment::default() }).collect()
        };
        let drawn = |ends: &[u64]| full(&of(ends)).len();
        assert_eq!(
            [drawn(&[1000, 2000, 2003]), drawn(&[1000, 2000, 2500]), drawn(&[1000, 1003])],
            [2, 3, 1]
        );
        assert_eq!([drawn(&[]), drawn(&[7]), drawn(&[1000, 2000])], [0, 1, 2]);
    }
}
