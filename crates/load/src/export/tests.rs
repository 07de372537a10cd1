//! Golden texts. fio's own tools read them in `tests/hosts`.

use super::*;
use stdx::histogram::Histogram;

/// A report of one reader and one mixed job over two intervals, made of round numbers.
fn report() -> Report {
    let mut latency = Histogram::new();
    (1..=100).for_each(|tens| latency.record(tens * 10));
    let direction = DirectionReport::of(100, 409_600, 1_000_000_000, &latency);
    let side = MomentSide {
        iops: 50.0,
        bw_bytes: 204_800,
        mean_ns: 500.0,
        p50_ns: 500,
        p99_ns: 990,
        max_ns: 1000,
    };
    let moment = |end_ms| Moment { end_ms, read: side.clone(), write: MomentSide::default() };
    let mut job =
        JobReport { jobname: "a \"b\", c".to_owned(), read: direction, ..JobReport::default() };
    for (key, value) in [("bs", "4096"), ("iodepth", "8"), ("numjobs", "2")] {
        job.options.insert(key.to_owned(), value.to_owned());
    }
    job.flashloom.series = vec![moment(500), moment(1000)];
    Report { version: "flashloom-0".to_owned(), jobs: vec![job], ..Report::default() }
}

#[test]
fn csv_is_a_header_and_a_row_for_each_direction() {
    let text = csv(&report());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], CSV_HEADER);
    let row = "\"a \"\"b\"\", c\",read,4096,8,2,100,409600,100.00,409600,10,505.0,";
    assert!(lines[1].starts_with(row), "{}", lines[1]);
    let fields = |line: &str| line.replace("\"a \"\"b\"\", c\"", "x").split(',').count();
    assert_eq!((lines.len(), fields(lines[1])), (2, fields(lines[0])));
}

#[test]
fn the_series_is_a_row_for_each_interval() {
    let text = series_csv(&report());
    assert!(text.ends_with(",1000,read,50.00,204800,500.0,500,990,1000\n"), "{text}");
    assert_eq!(text.lines().count(), 3);
}

#[test]
fn hdr_text_ends_with_all_and_never_falls() {
    let text = hgrm(&report().jobs[0].read.clat_ns);
    let rows: Vec<Vec<f64>> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_whitespace().filter_map(|word| word.parse().ok()).collect())
        .filter(|row: &Vec<f64>| row.len() >= 3)
        .collect();
    assert!(rows.len() > 10, "{text}");
    assert!(
        rows.windows(2).all(|pair| pair[0][0] < pair[1][0] && pair[0][1] < pair[1][1]),
        "{text}"
    );
    let last = rows.last().unwrap();
    assert_eq!((last[0], last[1], last[2]), (1.0, 1.0, 100.0));
    assert!(text.contains("#[Mean    =        0.505"), "{text}");
    assert!(text.contains("Total count    =          100]"), "{text}");
}

#[test]
fn percentiles_from_counts_are_those_of_the_histogram() {
    let latency = &report().jobs[0].read.clat_ns;
    for percent in percents(latency) {
        assert_eq!(Some(percentile(latency, percent)), latency.percentile(percent), "{percent}");
    }
    assert!(without_bins(&report()).jobs[0].read.clat_ns.bins.is_empty());
}

#[test]
fn fios_logs_have_five_columns() {
    let job = &report().jobs[0];
    assert_eq!(fio_log(job, Log::Bandwidth), "500, 200, 0, 0, 0\n1000, 200, 0, 0, 0\n");
    assert_eq!(fio_log(job, Log::Iops), "500, 50, 0, 0, 0\n1000, 50, 0, 0, 0\n");
    assert_eq!(fio_log(job, Log::Latency), "500, 500, 0, 0, 0\n1000, 500, 0, 0, 0\n");
}

/// Keys of fio's JSON and what stands there: a number, a text, a map of keys of the run's own. `*` is one of the
/// directions, `+` one of the latencies.
const FIO_KEYS: [(&str, char); 40] = [
    ("fio version", 't'),
    ("timestamp", 'n'),
    ("timestamp_ms", 'n'),
    ("time", 't'),
    ("jobname", 't'),
    ("groupid", 'n'),
    ("error", 'n'),
    ("eta", 'n'),
    ("elapsed", 'n'),
    ("job options", 'm'),
    ("usr_cpu", 'n'),
    ("sys_cpu", 'n'),
    ("ctx", 'n'),
    ("job_runtime", 'n'),
    ("total_err", 'n'),
    ("first_error", 'n'),
    ("*.io_bytes", 'n'),
    ("*.io_kbytes", 'n'),
    ("*.bw_bytes", 'n'),
    ("*.bw", 'n'),
    ("*.iops", 'n'),
    ("*.runtime", 'n'),
    ("*.total_ios", 'n'),
    ("*.short_ios", 'n'),
    ("*.drop_ios", 'n'),
    ("*.bw_min", 'n'),
    ("*.bw_max", 'n'),
    ("*.bw_agg", 'n'),
    ("*.bw_mean", 'n'),
    ("*.bw_dev", 'n'),
    ("*.bw_samples", 'n'),
    ("*.iops_mean", 'n'),
    ("*.iops_samples", 'n'),
    ("*.+.min", 'n'),
    ("*.+.max", 'n'),
    ("*.+.mean", 'n'),
    ("*.+.stddev", 'n'),
    ("*.+.N", 'n'),
    ("*.+.percentile", 'm'),
    ("*.+.bins", 'm'),
];

/// Calls `seen` with each key below `value` that is no object of its own, and its kind.
fn walk(value: &serde_json::Value, path: &str, seen: &mut Vec<(String, char)>) {
    for (key, below) in value.as_object().unwrap() {
        let word = match key.as_str() {
            "read" | "write" | "trim" => "*",
            "slat_ns" | "clat_ns" | "lat_ns" => "+",
            // Ours, beside fio's.
            "flashloom" | "jobs" => continue,
            word => word,
        };
        let path = if path.is_empty() { word.to_owned() } else { format!("{path}.{word}") };
        match below {
            serde_json::Value::Number(_) => seen.push((path, 'n')),
            serde_json::Value::String(_) => seen.push((path, 't')),
            _ if ["job options", "percentile", "bins"].contains(&word) => seen.push((path, 'm')),
            _ => walk(below, &path, seen),
        }
    }
}

#[test]
fn the_json_is_a_subset_of_fios() {
    let json = serde_json::to_value(report()).unwrap();
    let mut seen = Vec::new();
    walk(&json, "", &mut seen);
    walk(&json["jobs"][0], "", &mut seen);
    for (path, kind) in &seen {
        assert!(FIO_KEYS.contains(&(path.as_str(), *kind)), "fio has no `{path}` of kind {kind}");
    }
    // What fio_jsonplus_clat2csv and most readers of fio's JSON take.
    for wanted in ["fio version", "jobname", "job options", "*.iops", "*.bw_bytes", "*.total_ios"] {
        assert!(seen.iter().any(|(path, _)| path == wanted), "{wanted} is missing");
    }
    // Bins are counts by latency, which add up, and give the percentiles.
    let clat = &json["jobs"][0]["read"]["clat_ns"];
    let bins = clat["bins"].as_object().unwrap();
    let mut counts: Vec<(u64, u64)> = bins
        .iter()
        .map(|(nanos, count)| (nanos.parse().unwrap(), count.as_u64().unwrap()))
        .collect();
    counts.sort_unstable();
    let total: u64 = counts.iter().map(|(_, count)| count).sum();
    assert_eq!(Some(total), clat["N"].as_u64());
    let mut below = 0;
    let median = counts.iter().find(|(_, count)| {
        below += count;
        below * 2 >= total
    });
    assert_eq!(Some(median.unwrap().0), clat["percentile"]["50.000000"].as_u64());
}
