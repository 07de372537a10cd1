//! When a queue may send its next command: rates, and time to think.

use std::time::Duration;

use reactor::Nanos;

use crate::limits::PACE_DEBT_NS;

/// At most so much per second: a schedule on which each command has its time, kept to the nanosecond over any
/// number of them. A queue that fell behind catches up on [`PACE_DEBT_NS`] at most, so that an absence of the
/// target is not followed by a burst.
#[derive(Clone, Debug)]
struct Meter {
    /// Units a second.
    rate: u64,
    /// When the next command is due, and which part of `rate` of a nanosecond after.
    due: Nanos,
    part: u64,
}

impl Meter {
    fn new(rate: u64) -> Self {
        Self { rate: rate.max(1), due: 0, part: 0 }
    }

    fn charge(&mut self, now: Nanos, units: u64) {
        self.due = self.due.max(now.saturating_sub(PACE_DEBT_NS));
        let parts = u128::from(units) * 1_000_000_000 + u128::from(self.part);
        let whole = u64::try_from(parts / u128::from(self.rate)).unwrap_or(u64::MAX);
        self.part = u64::try_from(parts % u128::from(self.rate)).unwrap_or(0);
        self.due = self.due.saturating_add(whole);
    }
}

/// Time to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Think {
    /// How long.
    pub time: Duration,
    /// After this many commands of a queue, once they are done.
    pub after: u32,
}

/// What a queue may do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// Send a command.
    Now,
    /// Send none before then.
    At(Nanos),
    /// Send none while others are outstanding.
    WhenIdle,
}

/// The pace of one queue.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    commands: Option<Meter>,
    bytes: Option<Meter>,
    think: Option<Think>,
    sent: u32,
    until: Nanos,
}

impl Pace {
    /// The pace of queue `queue` of `queues` that share `iops` commands and `bandwidth` bytes a second; `None`
    /// when nothing limits it. Queues take their turns evenly.
    pub fn new(
        (queue, queues): (u64, u64),
        iops: Option<u64>,
        bandwidth: Option<u64>,
        think: Option<Think>,
    ) -> Option<Self> {
        if iops.is_none() && bandwidth.is_none() && think.is_none() {
            return None;
        }
        let part = |total: u64| (total / queues + u64::from(queue < total % queues)).max(1);
        let meter = |total: u64| Meter::new(part(total));
        let mut pace = Self {
            commands: iops.map(meter),
            bytes: bandwidth.map(meter),
            think,
            ..Self::default()
        };
        let first = iops.map_or(0, |iops| u128::from(queue) * 1_000_000_000 / u128::from(iops));
        pace.until = u64::try_from(first).unwrap_or(0);
        Some(pace)
    }

    /// The schedule begins at `now`.
    pub fn start(&mut self, now: Nanos) {
        for meter in [&mut self.commands, &mut self.bytes].into_iter().flatten() {
            meter.due = now.saturating_add(self.until);
        }
        self.until = 0;
    }

    /// What may be done with `outstanding` commands on the way.
    pub fn next(&mut self, now: Nanos, outstanding: u16) -> Go {
        if let Some(think) = self.think
            && self.sent >= think.after
        {
            if outstanding > 0 {
                return Go::WhenIdle;
            }
            self.sent = 0;
            self.until = now.saturating_add(u64::try_from(think.time.as_nanos()).unwrap_or(0));
        }
        let meters = [&self.commands, &self.bytes].into_iter().flatten();
        let due = meters.map(|meter| meter.due).fold(self.until, Nanos::max);
        if due > now { Go::At(due) } else { Go::Now }
    }

    /// A command of `bytes` was sent at `now`.
    pub fn sent(&mut self, now: Nanos, bytes: u32) {
        if let Some(meter) = &mut self.commands {
            meter.charge(now, 1);
        }
        if let Some(meter) = &mut self.bytes {
            meter.charge(now, bytes.into());
        }
        self.sent += u32::from(self.think.is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    /// When a queue that sends whenever it may does so, until `end`.
    fn times(mut pace: Pace, end: Nanos, bytes: u32) -> Vec<Nanos> {
        let (mut now, mut times) = (0, Vec::new());
        pace.start(0);
        while now < end {
            match pace.next(now, 0) {
                Go::Now => {
                    times.push(now);
                    pace.sent(now, bytes);
                }
                Go::At(then) => now = then,
                Go::WhenIdle => unreachable!("none is outstanding"),
            }
        }
        times.retain(|time| *time < end);
        times
    }

    #[test]
    fn a_rate_is_exact_and_smooth() {
        for rate in [1, 3, 7, 1000, 77_777, 333_333] {
            let times = times(Pace::new((0, 1), Some(rate), None, None).unwrap(), 3 * SECOND, 1);
            assert_eq!(times.len() as u64, 3 * rate);
            let step = SECOND / rate;
            let even = |pair: &[Nanos]| (step..=step + 1).contains(&(pair[1] - pair[0]));
            assert!(times.windows(2).all(even), "{rate}");
        }
    }

    #[test]
    fn queues_share_a_rate_and_take_turns() {
        let queue = |queue| Pace::new((queue, 4), Some(1001), None, None).unwrap();
        let mut all: Vec<_> = (0..4).flat_map(|q| times(queue(q), 10 * SECOND, 1)).collect();
        assert!((10_008..=10_010).contains(&all.len()), "{}", all.len());
        all.sort_unstable();
        let first: Vec<_> = all.iter().take(5).map(|time| time / 1_000_000).collect();
        assert_eq!(first, [0, 0, 1, 2, 3]);
    }

    #[test]
    fn bandwidth_is_by_bytes() {
        let pace = || Pace::new((0, 1), None, Some(1 << 20), None).unwrap();
        assert_eq!(times(pace(), 4 * SECOND, 4096).len(), 1024);
        assert_eq!(times(pace(), 4 * SECOND, 65536).len(), 64);
        let both = Pace::new((0, 1), Some(100), Some(1 << 20), None).unwrap();
        assert_eq!(times(both, 4 * SECOND, 4096).len(), 400);
    }

    #[test]
    fn an_absence_is_not_followed_by_a_burst() {
        let mut pace = Pace::new((0, 1), Some(1000), None, None).unwrap();
        pace.start(0);
        let late = 100 * SECOND;
        let mut burst = 0;
        while pace.next(late, 0) == Go::Now {
            pace.sent(late, 4096);
            burst += 1;
        }
        assert_eq!(burst, PACE_DEBT_NS / 1_000_000 + 1);
    }

    #[test]
    fn thinking_begins_when_the_commands_are_done() {
        let think = Think { time: Duration::from_nanos(500), after: 2 };
        let mut pace = Pace::new((0, 1), None, None, Some(think)).unwrap();
        pace.start(10);
        for outstanding in 0..2 {
            assert_eq!(pace.next(10, outstanding), Go::Now);
            pace.sent(10, 1);
        }
        assert_eq!(pace.next(20, 1), Go::WhenIdle);
        assert_eq!(pace.next(100, 0), Go::At(600));
        assert_eq!(pace.next(599, 0), Go::At(600));
        assert_eq!(pace.next(600, 0), Go::Now);
        assert!(Pace::new((0, 1), None, None, None).is_none());
    }
}
