//! From what the workers measured to the report.

use std::collections::BTreeMap;

use stdx::histogram::Histogram;

use crate::cost::Costs;
use crate::job::{Direction, Job, Limit, Plan, Verify};
use crate::limits::{CHECK_ERRORS_LISTED, VERIFY_ERRORS_LISTED};
use crate::order::Distribution;
use crate::pace::Think;
use crate::report::{DirectionReport, Extra, JobReport, Moment, MomentSide, Report, VerifyReport};
use crate::series::Tally;
use crate::series::{Sample, Series};
use crate::sizes::Sizes;
use crate::worker::Outcome;

/// fio's error numbers: a command failed (EIO), data was wrong (EILSEQ).
const EIO: i32 = 5;
const EILSEQ: i32 = 84;

/// Puts the workers' outcomes together, each with the index of its job. `torn` is by job what its journal's end
/// has of no use, bytes; `wall` is nanoseconds since 1970.
pub fn report(
    plan: &Plan,
    outcomes: impl Iterator<Item = (usize, Box<Outcome>)>,
    torn: &[u64],
    wall: u128,
    costs: &Costs,
) -> Report {
    let mut by_job: Vec<Vec<Outcome>> = plan.jobs.iter().map(|_| Vec::new()).collect();
    for (job, outcome) in outcomes {
        by_job[job].push(*outcome);
    }
    let millis = u64::try_from(wall / 1_000_000).unwrap_or(u64::MAX);
    Report {
        version: concat!("flashloom-", env!("CARGO_PKG_VERSION")).to_owned(),
        timestamp: millis / 1000,
        timestamp_ms: millis,
        jobs: plan
            .jobs
            .iter()
            .zip(by_job)
            .zip(torn)
            .map(|((job, all), torn)| job_report(job, all, *torn, costs))
            .collect(),
        flashloom: costs.report(),
    }
}

fn job_report(job: &Job, mut outcomes: Vec<Outcome>, torn: u64, costs: &Costs) -> JobReport {
    let started = outcomes.iter().map(|outcome| outcome.started).min().unwrap_or(0);
    let ended = outcomes.iter().map(|outcome| outcome.ended).max().unwrap_or(started);
    let active_ns = ended.saturating_sub(started);
    let series = outcomes.iter_mut().filter_map(|outcome| outcome.series.take()).collect();
    let outcomes = outcomes.as_slice();
    let (usr_cpu, sys_cpu, ctx) = costs.of_threads(&job.threads());
    let failed: u64 = outcomes.iter().map(|outcome| outcome.failed).sum();
    let wrong: u64 = outcomes.iter().map(|outcome| outcome.wrong).sum();
    let checked = job.verify == Verify::Check;
    let listed = if checked { CHECK_ERRORS_LISTED } else { VERIFY_ERRORS_LISTED };
    let verify = (job.verify != Verify::Off).then(|| VerifyReport {
        verified_bytes: outcomes.iter().map(|outcome| outcome.verified_bytes).sum(),
        acknowledged_bytes: checked
            .then(|| outcomes.iter().map(|outcome| outcome.written_bytes).sum()),
        journal_torn_bytes: checked.then_some(torn),
        errors: wrong,
        listed: outcomes
            .iter()
            .flat_map(|outcome| outcome.wrong_listed.iter().cloned())
            .take(listed)
            .collect(),
    });
    JobReport {
        jobname: job.name.clone(),
        groupid: 0,
        error: match (wrong, failed) {
            (0, 0) => 0,
            (0, _) => EIO,
            _ => EILSEQ,
        },
        elapsed: active_ns.div_ceil(1_000_000_000),
        options: options(job),
        read: direction(outcomes, active_ns, |outcome| &outcome.reads),
        write: direction(outcomes, active_ns, |outcome| &outcome.writes),
        trim: DirectionReport::default(),
        job_runtime: active_ns.div_ceil(1_000_000),
        usr_cpu,
        sys_cpu,
        ctx,
        total_err: failed + wrong,
        flashloom: Extra {
            failed: outcomes.iter().flat_map(|outcome| outcome.failures.iter().cloned()).collect(),
            verify,
            reconnects: outcomes.iter().map(|outcome| outcome.reconnects).sum(),
            direct_writes: outcomes.iter().map(|outcome| outcome.direct_writes).sum(),
            card_queues: outcomes
                .iter()
                .filter(|outcome| !outcome.card_queues.is_empty())
                .map(|outcome| outcome.card_queues.clone())
                .collect(),
            map_commands: [0, 1, 2]
                .map(|map| outcomes.iter().map(|outcome| outcome.counters[map].commands).sum()),
            sends: outcomes.iter().flat_map(|outcome| outcome.counters).map(|map| map.sends).sum(),
            active_ns,
            series: Series::samples(series, ended).iter().map(moment).collect(),
        },
    }
}

fn moment(sample: &Sample) -> Moment {
    let [read, write] = sample
        .directions
        .each_ref()
        .map(|(ios, bytes, latency)| MomentSide::of(*ios, *bytes, sample.length, latency));
    Moment { end_ms: sample.end.div_ceil(1_000_000), read, write }
}

fn direction(
    outcomes: &[Outcome],
    active_ns: u64,
    pick: impl Fn(&Outcome) -> &Tally,
) -> DirectionReport {
    let mut latency = Histogram::new();
    let (mut ios, mut bytes) = (0, 0);
    for tally in outcomes.iter().map(pick) {
        latency.merge(&tally.latency);
        ios += tally.ios;
        bytes += tally.bytes;
    }
    DirectionReport::of(ios, bytes, active_ns, &latency)
}

/// The job in fio's option names.
fn options(job: &Job) -> BTreeMap<String, String> {
    let mut options: BTreeMap<String, String> = [
        ("rw", job.pattern.name().to_owned()),
        ("iodepth", job.io_depth.to_string()),
        ("numjobs", job.queues.to_string()),
        ("filename", job.target.show()),
        ("randseed", job.seed.to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    let mut add = |key: &str, value: String| options.insert(key.to_owned(), value);
    match job.limit {
        Limit::Runtime(runtime) => {
            add("runtime", runtime.as_secs_f64().to_string());
            add("time_based", "1".to_owned());
        }
        Limit::Size(bytes) => {
            add("io_size", bytes.to_string());
        }
        Limit::OnePass => {}
    }
    if let Direction::Mixed { read_percent } = job.pattern.direction {
        add("rwmixread", read_percent.to_string());
    }
    let Sizes { read, write } = &job.sizes;
    let both =
        if read == write { read.show() } else { format!("{},{}", read.show(), write.show()) };
    let mixed = read.sizes().len() > 1 || write.sizes().len() > 1;
    add(if mixed { "bssplit" } else { "bs" }, both);
    if job.pattern.random && job.distribution != Distribution::Even {
        add("random_distribution", job.distribution.show());
    }
    if let Some(rate) = job.rate_iops {
        add("rate_iops", rate.to_string());
    }
    if let Some(rate) = job.rate {
        add("rate", rate.to_string());
    }
    if let Some(Think { time, after }) = job.think {
        add("thinktime", time.as_micros().to_string());
        add("thinktime_blocks", after.to_string());
    }
    if !job.ramp.is_zero() {
        add("ramp_time", job.ramp.as_secs_f64().to_string());
    }
    if job.offset > 0 {
        add("offset", job.offset.to_string());
    }
    if let Some(region) = job.region {
        add("size", region.to_string());
    }
    options
}
