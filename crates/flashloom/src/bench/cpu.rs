//! What a load costs the target, where it can be asked.

use std::path::PathBuf;
use std::time::Duration;

use load::{Probe, Spent};

use crate::cli::Global;
use crate::cli::bench::CpuOf;
use crate::daemon::ask;
use crate::exit::{Exit, Failure, Outcome};

/// Asks `of`, which has to answer now.
pub fn probe(global: &Global, of: CpuOf) -> Outcome<Probe> {
    match of {
        CpuOf::Process(pid) => {
            if process(pid).is_none() {
                let wrong = format!("there is no process {pid} on this machine");
                return Err(Failure::new(Exit::Failed, wrong)
                    .help("name the target's process with --cpu-of, or leave it out"));
            }
            Ok(Probe::new(move || Some(Spent { cpu: process(pid), busy: None })))
        }
        CpuOf::Daemon => {
            let pid = ask(global, async |client| client.status().await)?.pid;
            let global = global.clone();
            Ok(Probe::new(move || {
                let metrics = ask(&global, async |client| client.metrics().await).ok()?;
                Some(Spent { cpu: process(pid), busy: busy(&metrics) })
            }))
        }
    }
}

/// CPU time of all threads of process `pid` that live: the first number of `schedstat`, nanoseconds
/// (`Documentation/scheduler/sched-stats.rst` of the kernel).
fn process(pid: u32) -> Option<Duration> {
    let tasks = std::fs::read_dir(PathBuf::from(format!("/proc/{pid}/task"))).ok()?;
    let nanos = tasks.flatten().filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Some(Duration::from_nanos(nanos.sum()))
}

/// The reactors' time at work together, from the daemon's metrics.
fn busy(metrics: &str) -> Option<Duration> {
    let lines =
        metrics.lines().filter(|line| line.starts_with("flashloom_reactor_busy_seconds_total"));
    let seconds: f64 = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum();
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_the_cpu() {
        let before = process(std::process::id()).unwrap();
        let mut sum = 0u64;
        while process(std::process::id()).unwrap() == before {
            sum = (0..10_000).fold(sum, |sum, n| sum.wrapping_add(n));
        }
        assert_eq!(process(u32::MAX), None);
    }

    #[test]
    fn time_at_work_is_that_of_all_reactors() {
        let text = "# TYPE flashloom_reactor_busy_seconds counter\n\
                    flashloom_reactor_busy_seconds_total{reactor=\"0\"} 1.5\n\
                    flashloom_reactor_busy_seconds_total{reactor=\"1\"} 0.25\nflashloom_reactor_tasks 3\n";
        assert_eq!(busy(text), Some(Duration::from_millis(1750)));
    }
}
