//! What a run costs in CPU time, on this side and on the target's.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reactor::{Handle, Nanos, Usage};

use crate::report::{Cost, RunExtra, rate};

/// CPU time of one side from some moment on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// CPU time, spinning included.
    pub cpu: Option<Duration>,
    /// Time that its reactors were at work by their own account, spinning not included.
    pub busy: Option<Duration>,
}

/// Asks what the target has spent: of a process on this machine, or by its metrics.
#[derive(Clone)]
pub struct Probe(Arc<dyn Fn() -> Option<Spent> + Send + Sync>);

impl Probe {
    /// Asks by `ask`, which gives `None` when there is no answer.
    pub fn new(ask: impl Fn() -> Option<Spent> + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Probe")
    }
}

/// One reactor: its CPU, what its thread cost, and how long it was at work.
type Reading = (Option<usize>, Usage, Duration);

/// Everything read at one moment.
#[derive(Clone, Debug)]
struct Sample {
    at: Nanos,
    /// Commands completed by then.
    completed: u64,
    host: Vec<Reading>,
    target: Option<Spent>,
}

/// What the reactors cost while the load ran.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    /// From when on it counts.
    pub due: Nanos,
    probe: Option<Probe>,
    begun: Option<Sample>,
    ended: Option<Sample>,
}

fn read(handle: &Handle) -> Option<(Usage, Duration)> {
    let asked = handle.call(|| async { (reactor::thread_usage(), reactor::metrics::here()) });
    let (usage, metrics) = asked.wait().ok()?;
    Some((usage, Duration::from_nanos(metrics.busy_nanos)))
}

impl Costs {
    /// Counting from `due` on.
    pub fn new(due: Nanos, probe: Option<Probe>) -> Self {
        Self { due, probe, begun: None, ended: None }
    }

    fn sample(&self, at: Nanos, completed: u64, reactors: &[(Option<usize>, Handle)]) -> Sample {
        let target = self.probe.as_ref().and_then(|Probe(ask)| ask());
        let host = reactors.iter().filter_map(|(cpu, handle)| {
            let (usage, busy) = read(handle)?;
            Some((*cpu, usage, busy))
        });
        Sample { at, completed, host: host.collect(), target }
    }

    /// Begins when it is due.
    pub fn look(&mut self, now: Nanos, completed: u64, reactors: &[(Option<usize>, Handle)]) {
        if self.begun.is_none() && now >= self.due {
            self.begun = Some(self.sample(now, completed, reactors));
        }
    }

    /// The load is over.
    pub fn end(&mut self, now: Nanos, completed: u64, reactors: &[(Option<usize>, Handle)]) {
        self.ended = Some(self.sample(now, completed, reactors));
    }

    /// What each reactor's thread cost meanwhile, and how long that was.
    fn host(&self) -> (Vec<Reading>, Nanos) {
        let (Some(begun), Some(ended)) = (&self.begun, &self.ended) else {
            return (Vec::new(), 0);
        };
        let pairs = begun.host.iter().zip(&ended.host);
        let all = pairs.map(|((cpu, then, busy), (_, now, later))| {
            let usage = Usage {
                user: now.user.saturating_sub(then.user),
                system: now.system.saturating_sub(then.system),
                voluntary_switches: now.voluntary_switches - then.voluntary_switches,
                involuntary_switches: now.involuntary_switches - then.involuntary_switches,
            };
            (*cpu, usage, later.saturating_sub(*busy))
        });
        (all.collect(), ended.at.saturating_sub(begun.at))
    }

    /// fio's `usr_cpu`, `sys_cpu` in percent, and `ctx`, of the threads on `cpus` (`None`: the one that is not
    /// pinned) together.
    pub fn of_threads(&self, cpus: &[Option<usize>]) -> (f64, f64, u64) {
        let (all, time) = self.host();
        let time = Duration::from_nanos(time).as_secs_f64();
        let mut sum = (0.0, 0.0, 0);
        for (_, usage, _) in all.iter().filter(|(cpu, ..)| cpus.contains(cpu)) {
            sum.0 += usage.user.as_secs_f64();
            sum.1 += usage.system.as_secs_f64();
            sum.2 += usage.voluntary_switches + usage.involuntary_switches;
        }
        let percent = |seconds: f64| if time > 0.0 { seconds / time * 100.0 } else { 0.0 };
        (percent(sum.0), percent(sum.1), sum.2)
    }

    /// For the report.
    pub fn report(&self) -> RunExtra {
        let (Some(begun), Some(ended)) = (&self.begun, &self.ended) else {
            return RunExtra::default();
        };
        let ios = ended.completed.saturating_sub(begun.completed);
        let (all, _) = self.host();
        let cpu = all.iter().map(|(_, usage, _)| usage.user + usage.system).sum();
        let busy = all.iter().map(|(.., busy)| *busy).sum();
        let spent =
            |then: Option<Duration>, now: Option<Duration>| Some(now?.saturating_sub(then?));
        let target = begun.target.zip(ended.target).map(|(then, now)| Spent {
            cpu: spent(then.cpu, now.cpu),
            busy: spent(then.busy, now.busy),
        });
        RunExtra {
            host: Some(cost(Spent { cpu: Some(cpu), busy: Some(busy) }, ios)),
            target: target.map(|spent| cost(spent, ios)),
        }
    }
}

fn cost(spent: Spent, ios: u64) -> Cost {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let each = |time: Duration| rate(nanos(time), ios.saturating_mul(1_000_000_000));
    Cost {
        ios,
        cpu_ns: spent.cpu.map(nanos),
        cpu_ns_per_io: spent.cpu.map(each),
        busy_ns: spent.busy.map(nanos),
        busy_ns_per_io: spent.busy.map(each),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_of_the_time_between_and_per_command() {
        let seconds = Duration::from_secs;
        let sample = |at, completed, user: u64, target: u64| {
            let usage = Usage { user: seconds(user), voluntary_switches: user, ..Usage::default() };
            let target = Spent { cpu: None, busy: Some(seconds(target)) };
            Sample { at, completed, host: vec![(Some(1), usage, seconds(1))], target: Some(target) }
        };
        let mut costs = Costs::new(0, None);
        costs.begun = Some(sample(1_000_000_000, 100, 3, 7));
        costs.ended = Some(sample(5_000_000_000, 1100, 5, 10));
        assert_eq!(costs.of_threads(&[Some(1)]), (50.0, 0.0, 2));
        assert_eq!(costs.of_threads(&[None]), (0.0, 0.0, 0));
        let RunExtra { host: Some(host), target: Some(target) } = costs.report() else { panic!() };
        assert_eq!((host.ios, host.cpu_ns, host.busy_ns), (1000, Some(2_000_000_000), Some(0)));
        assert_eq!((host.cpu_ns_per_io, target.busy_ns_per_io), (Some(2e6), Some(3e6)));
        assert_eq!(target.cpu_ns, None);
    }
}
