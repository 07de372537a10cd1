//! `flashloom bench`: a load from user space, and its result.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::time::Duration;

use clap::ValueEnum;
use comfy_table::Table;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use load::{Job, Limit, Phase, Plan, Progress, Report, Target, Verify};

use api::value::Size;

use crate::ablation;
use crate::cli::{BenchArgs, BenchVerb, Beside, Global, Output, Pattern};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{emit, json, table};

/// `flashloom bench`
pub fn run(global: &Global, args: BenchArgs) -> Outcome {
    if let Some(BenchVerb::Ablation(args)) = &args.verb {
        return ablation::run(global, args);
    }
    let (beside, check) = (args.beside, args.check);
    let mut plan = Plan::from(job(args)?);
    if let Some(beside) = beside {
        let second = second(&plan.jobs[0], beside)?;
        plan.jobs.push(second);
    }
    let report = with_progress(&plan)?;
    match global.output {
        Output::Json => json(&report)?,
        Output::Table if check => emit(&format!("{}\n", check_table(&report)))?,
        Output::Table => emit(&format!("{}\n", result_table(&report)))?,
    }
    if check { judge_check(&report) } else { judge(&report) }
}

/// How long the target of a load with a journal may be away, unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(60);

fn verify(args: &BenchArgs) -> Verify {
    match (args.check, args.verify) {
        (true, _) => Verify::Check,
        (false, true) => Verify::On,
        (false, false) => Verify::Off,
    }
}

fn job(args: BenchArgs) -> Outcome<Job> {
    let (verify, reconnect) = (verify(&args), args.reconnect);
    let reconnect = reconnect.or(args.journal.as_ref().map(|_| PATIENCE));
    let bench = args.ask;
    let target = Target {
        traddr: bench.to.traddr,
        trsvcid: bench.to.trsvcid,
        subnqn: bench.subnqn,
        hostnqn: bench.to.hostnqn,
        hostid: bench.to.hostid,
        nsid: args.nsid,
    };
    Ok(Job {
        name: args.name,
        pattern: pattern(args.rw, args.rwmixread)?,
        block_size: block_size(args.bs)?,
        io_depth: args.iodepth,
        queues: args.queues,
        limit: match (args.runtime, args.size) {
            (_, Some(size)) => Limit::Size(size.bytes()),
            (runtime, None) => Limit::Runtime(runtime.unwrap_or(Duration::from_secs(10))),
        },
        region: args.region.map(|size| size.bytes()),
        verify,
        reconnect,
        journal: args.journal,
        header_digest: args.hdr_digest,
        data_digest: args.data_digest,
        cpus: args.cpus.map_or_else(Vec::new, |cpus| cpus.0),
        poll: args.poll.policy(),
        rate: args.rate,
        ..Job::new(target)
    })
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

/// The load beside `first`: all it does not say for itself is as there.
fn second(first: &Job, beside: Beside) -> Outcome<Job> {
    Ok(Job {
        name: "beside".to_owned(),
        pattern: pattern(beside.rw, 50)?,
        block_size: block_size(beside.bs)?,
        io_depth: beside.iodepth,
        queues: 1,
        verify: Verify::Off,
        rate: None,
        ..first.clone()
    })
}

fn pattern(rw: Pattern, read_percent: u8) -> Outcome<load::Pattern> {
    let name = rw.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
    Ok(load::Pattern::parse(&name, read_percent)?)
}

fn block_size(size: Size) -> Outcome<u32> {
    u32::try_from(size.bytes())
        .map_err(|_| Failure::new(Exit::Failed, format!("--bs {size} is too large")))
}

/// Steps of a progress bar.
const STEPS: u64 = 1000;

/// Runs `plan` with a progress bar on standard error, when that is a terminal.
pub fn with_progress(plan: &Plan) -> Outcome<Report> {
    let shown = std::io::stderr().is_terminal();
    let draw = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(STEPS), draw);
    if let Ok(style) = ProgressStyle::with_template("{prefix:>10} [{bar:40}] {percent:>3} % {msg}")
    {
        bar.set_style(style.progress_chars("=> "));
    }
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

/// The result table: one row per direction that moved data.
pub fn result_table(report: &Report) -> Table {
    let header = [
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
    let mut table = table(&header, &[2, 3, 4, 5, 6, 7, 8, 9, 10]);
    for job in &report.jobs {
        let verified = job.flashloom.verify.as_ref();
        let verified = verified.map_or_else(
            || "-".to_owned(),
            |verify| api::value::Size::new(verify.verified_bytes).to_string(),
        );
        for (name, direction) in [("read", &job.read), ("write", &job.write)] {
            if direction.total_ios == 0 {
                continue;
            }
            let percentile = |percent| micros(direction.clat_ns.percentile(percent).unwrap_or(0));
            table.add_row([
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
            ]);
        }
    }
    table
}

/// Nanoseconds as microseconds with one decimal.
fn micros(nanos: u64) -> String {
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
