//! `flashloom bench`: a load from user space, and its result.

use std::ops::ControlFlow;

use comfy_table::Table;
use initiator::Remote;
use load::{Cost, Phase, Plan, Progress, Report, export};
use reactor::{Config, PollPolicy, Reactor};

use api::value::Size;

use crate::ablation;
use crate::cli::bench::{BenchArgs, BenchVerb};
use crate::cli::{Global, Output};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{emit, json, table};
use crate::progress;
use crate::raid;

mod cpu;
mod folder;
mod jobfile;
mod plot;
mod report;
pub mod spec;
mod svg;

use spec::Spec;

/// `flashloom bench`
pub fn run(global: &Global, args: &BenchArgs) -> Outcome {
    match &args.verb {
        Some(BenchVerb::Ablation(args)) => return ablation::run(global, args),
        Some(BenchVerb::Report(args)) => return report::run(global, args),
        None => {}
    }
    let report = measure(global, args)?;
    if let Some(dir) = &args.out {
        folder::write(dir, &report)?;
    }
    match global.output {
        Output::Json if args.bins => json(&report)?,
        Output::Json => json(&export::without_bins(&report))?,
        Output::Csv => emit(&export::csv(&report))?,
        Output::Table if args.check => emit(&format!("{}\n", check_table(&report)))?,
        Output::Table => emit(&format!("{}\n{}", result_table(&report), costs(&report)))?,
    }
    if args.check { judge_check(&report) } else { judge(&report) }
}

/// Runs what is asked for, once for each depth.
fn measure(global: &Global, args: &BenchArgs) -> Outcome<Report> {
    let depths = &args.load.iodepth;
    let first = plan(global, args, depths.first().map(String::as_str))?;
    tell_of_windows(&first);
    if depths.len() < 2 {
        return with_progress(&first);
    }
    let mut all = Report::default();
    for depth in depths {
        let mut one = with_progress(&plan(global, args, Some(depth))?)?;
        one.jobs.splice(..0, std::mem::take(&mut all.jobs));
        all = one;
    }
    // It would be that of the last depth only.
    all.flashloom = load::RunExtra::default();
    Ok(all)
}

/// Says whose writes go as commands, though they would go by a direct write window if that could be had.
fn tell_of_windows(plan: &Plan) {
    let (without, jobs) = (plan.without_window().len(), plan.jobs.len());
    if without > 0 {
        eprintln!(
            "writes of {without} of {jobs} jobs go as commands: a volume has one direct write window, of one job with one \
             CPU"
        );
    }
}

/// What the options, `--job` and the job file say, at one depth.
fn plan(global: &Global, args: &BenchArgs, depth: Option<&str>) -> Outcome<Plan> {
    let mut base = Spec::new(&args.connect, &other_paths(args)?);
    for (key, value) in args.load.given() {
        base.set(key, &value).map_err(Failure::from)?;
    }
    if let Some(depth) = depth {
        base.set("iodepth", depth).map_err(Failure::from)?;
    }
    base.use_set(args.members.iter().map(|spec| raid::remote(&args.connect, spec)).collect());
    if args.check {
        base.check_journal();
    }
    let mut jobs = Vec::new();
    if let Some(path) = &args.job_file {
        jobs.extend(jobfile::load(path, &base)?);
    }
    for (number, words) in args.job.iter().enumerate() {
        let mut spec = base.clone();
        if args.load.name.is_none() {
            spec.set("name", &format!("job{}", number + 1)).map_err(Failure::from)?;
        }
        for (key, value) in words {
            spec.set(key, value).map_err(Failure::from)?;
        }
        jobs.extend(spec.jobs()?);
    }
    if jobs.is_empty() {
        jobs = base.jobs()?;
    }
    let probe = args.cpu_of.map(|of| cpu::probe(global, of)).transpose()?;
    Ok(Plan { jobs, probe })
}

/// The paths that are asked for beside the first.
fn other_paths(args: &BenchArgs) -> Outcome<Vec<Remote>> {
    let connect = args.connect.clone();
    if !connect.all_paths {
        return Ok(connect.remotes().split_off(1));
    }
    let config = Config { cpu: None, poll: PollPolicy::Interrupt, name: "discover".to_owned() };
    let failed = |error: reactor::Error| Failure::new(Exit::Failed, error);
    let reactor = Reactor::start(config).map_err(failed)?;
    let found = reactor.call(move || async move { crate::paths::remotes(&connect).await }).wait();
    reactor.stop();
    reactor.join().map_err(failed)?;
    let found = found.map_err(|gone| Failure::new(Exit::Failed, gone))?;
    Ok(found?.split_off(1))
}

/// What came of a check: sums, then one row per wrong block.
fn check_table(report: &Report) -> Table {
    let mut table = table(&["byte", "what is wrong"], &[0]);
    for verify in report.jobs.iter().filter_map(|job| job.flashloom.verify.as_ref()) {
        for wrong in &verify.listed {
            table.add_row([wrong.offset.to_string(), wrong.what.clone()]);
        }
        let acknowledged = Size::new(verify.acknowledged_bytes.unwrap_or(0));
        let right = Size::new(verify.verified_bytes);
        table.add_row([
            String::new(),
            format!("{} wrong; {right} right of {acknowledged} acknowledged", verify.errors),
        ]);
    }
    table
}

/// Fails when something acknowledged is lost or wrong: the list was printed.
fn judge_check(report: &Report) -> Outcome {
    let errors: u64 = report.jobs.iter().map(|job| job.total_err).sum();
    if errors == 0 {
        return Ok(());
    }
    Err(Failure::new(Exit::Failed, format!("{errors} acknowledged blocks are lost or wrong")))
}

/// Steps of a progress bar.
const STEPS: u64 = 1000;

/// Runs `plan` with a progress bar.
pub fn with_progress(plan: &Plan) -> Outcome<Report> {
    let bar = progress::bar(STEPS, progress::SHARE);
    let report = load::run(plan, &mut |progress| {
        bar.set_prefix(match progress.phase {
            Phase::Connecting => "connecting",
            Phase::Running => "running",
            Phase::Verifying => "verifying",
        });
        bar.set_position(steps(progress));
        bar.set_message(format!(
            "{:.0} reads/s, {:.0} writes/s, {} errors",
            progress.read_iops, progress.write_iops, progress.errors
        ));
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    Ok(report?)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share between 0 and 1 of a thousand steps"
)]
fn steps(progress: &Progress) -> u64 {
    (progress.done.clamp(0.0, 1.0) * 1000.0) as u64
}

/// The result table: one row per direction that moved data. Depths are shown when they differ.
pub fn result_table(report: &Report) -> Table {
    let depth = |job: &load::JobReport| job.options.get("iodepth").cloned().unwrap_or_default();
    let mut depths: Vec<String> = report.jobs.iter().map(depth).collect();
    depths.dedup();
    let many = depths.len() > 1;
    let mut header = vec![
        "job",
        "",
        "IOPS",
        "MB/s",
        "mean us",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "p99.99 us",
        "errors",
        "verified",
    ];
    if many {
        header.insert(1, "depth");
    }
    let right: Vec<usize> = (2 - usize::from(many)..header.len()).collect();
    let mut table = table(&header, &right);
    for job in &report.jobs {
        let verified = job.flashloom.verify.as_ref();
        let verified = verified
            .map_or_else(|| "-".to_owned(), |verify| Size::new(verify.verified_bytes).to_string());
        for (name, direction) in export::directions(job) {
            let percentile = |percent| micros(direction.clat_ns.percentile(percent).unwrap_or(0));
            let mut row = vec![
                job.jobname.clone(),
                name.to_owned(),
                format!("{:.0}", direction.iops),
                (direction.bw_bytes / 1_000_000).to_string(),
                format!("{:.1}", direction.clat_ns.mean / 1000.0),
                percentile(50.0),
                percentile(99.0),
                percentile(99.9),
                percentile(99.99),
                job.total_err.to_string(),
                verified.clone(),
            ];
            if many {
                row.insert(1, depth(job));
            }
            table.add_row(row);
        }
    }
    table
}

/// One line for each side whose cost is known.
fn costs(report: &Report) -> String {
    let sides = [("host", &report.flashloom.host), ("target", &report.flashloom.target)];
    let line = |(side, cost): (&str, &Option<Cost>)| {
        let cost = cost.as_ref().filter(|cost| cost.ios > 0)?;
        let part = |nanos: Option<f64>, what: &str| {
            nanos.map(|nanos| format!("{:.2} us {what}", nanos / 1000.0))
        };
        let parts = [part(cost.cpu_ns_per_io, "of CPU"), part(cost.busy_ns_per_io, "at work")];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        Some(format!("{side}: {} for each command\n", parts.join(", ")))
    };
    sides.into_iter().filter_map(line).chain(direct_writes(report)).collect()
}

/// How much went by direct write windows, where any did.
fn direct_writes(report: &Report) -> Option<String> {
    let direct: u64 = report.jobs.iter().map(|job| job.flashloom.direct_writes).sum();
    (direct > 0).then(|| format!("{direct} writes went by a direct write window\n"))
}

/// Nanoseconds as microseconds with one decimal.
pub fn micros(nanos: u64) -> String {
    format!("{}.{}", nanos / 1000, nanos % 1000 / 100)
}

/// Fails when a command did, or data was wrong.
pub fn judge(report: &Report) -> Outcome {
    let errors: u64 = report.jobs.iter().map(|job| job.total_err).sum();
    if errors == 0 {
        return Ok(());
    }
    let mut message = format!("{errors} commands failed or blocks were wrong");
    for job in &report.jobs {
        for failed in &job.flashloom.failed {
            message.push_str(&format!("\n  {failed}"));
        }
        for wrong in job.flashloom.verify.iter().flat_map(|verify| &verify.listed) {
            message.push_str(&format!("\n  byte {}: {}", wrong.offset, wrong.what));
        }
    }
    Err(Failure::new(Exit::Data, message))
}
