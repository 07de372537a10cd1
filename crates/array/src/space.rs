//! How full pools are, and when that is worth telling.
//!
//! What a pool says it holds includes, until merges find out, blocks that nobody sees any more. So a level
//! is told as reached only after the pool was made to find out, and while it is told the pool is asked again
//! now and then: nothing else makes an idle pool find out what was deleted.

pub mod quotas;
pub mod reserved;

use api::v1::{Health, PoolSpace};
use api::value::{Name, Size};
use engine::WritesRefused;

use self::quotas::Quotas;
use self::reserved::Reserved;
use crate::limits::FAULTS_WARNED;

/// From which share of a pool's capacity on it is low on space, and when that is critical, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    pub low: u8,
    pub critical: u8,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { low: 80, critical: 95 }
    }
}

/// A pool with less room than this is full: a queue of large writes does not fit.
const FULL_BYTES: u64 = 4 << 20;

/// A level is left when so many percent of the capacity more are free than where it was reached.
const SLACK: u64 = 1;

/// A pool that turned out to hold less than it said is asked to find out again when hosts have written
/// this part of its capacity.
const ASK_AGAIN: u64 = 32;

/// A pool of which reads failed is told of as such for so many looks after the last one.
const LOOKS_UNREADABLE: u32 = 150;

/// A pool that is low on space and written to is asked whether it has room again at every so many looks
/// at the latest.
const LOOKS_BETWEEN: u32 = 15;

/// What a pool says of itself, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub used: u64,
    pub capacity: u64,
    /// Since it was opened.
    pub written: u64,
    /// Why it takes no writes, whatever it holds.
    pub refuses: Option<WritesRefused>,
}

impl Usage {
    /// How much of `status` this is about.
    pub const fn of(status: &engine::PoolStatus) -> Self {
        Self {
            used: status.used,
            capacity: status.capacity,
            written: status.written,
            refuses: status.refuses,
        }
    }

    /// The same with `percent` of the capacity more in use.
    const fn fuller(self, percent: u64) -> Self {
        Self { used: self.used + self.capacity / 100 * percent, ..self }
    }

    fn free(self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }

    /// Percent in use, rounded down.
    pub fn percent(self) -> u8 {
        let share = u128::from(self.used) * 100 / u128::from(self.capacity.max(1));
        u8::try_from(share.min(100)).unwrap_or(100)
    }
}

impl Thresholds {
    fn level(self, usage: Usage) -> PoolSpace {
        let over = |percent: u8| {
            u128::from(usage.used) * 100 >= u128::from(usage.capacity) * u128::from(percent)
        };
        if usage.refuses.is_some() || usage.free() < FULL_BYTES.min(usage.capacity / 100) {
            PoolSpace::Full
        } else if over(self.critical) {
            PoolSpace::Critical
        } else if over(self.low) {
            PoolSpace::Low
        } else {
            PoolSpace::Enough
        }
    }

    /// Available Spare and its threshold as hosts are told, in percent: what is free, and what is left
    /// when it becomes critical. The warning that goes with being below comes and goes with the level.
    pub fn spare(self, told: PoolSpace, usage: Usage) -> (u8, u8) {
        let (free, threshold) = (100 - usage.percent(), 100 - self.critical);
        match told {
            PoolSpace::Enough | PoolSpace::Low => (free.max(threshold), threshold),
            PoolSpace::Critical | PoolSpace::Full => (free.min(threshold - 1), threshold),
        }
    }
}

/// What went wrong with a drive since its pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    pub read_errors: u64,
    pub corrupt: u64,
    pub repaired: u64,
}

impl Faults {
    /// How much of `counters` this is about.
    pub const fn of(counters: &engine::drives::DriveCounters) -> Self {
        let (read_errors, corrupt) = (counters.read_errors, counters.corrupt);
        Self { read_errors, corrupt, repaired: counters.repaired }
    }

    /// Grows with the first of each, and with each power of ten.
    fn digits(self) -> [u32; 3] {
        let digits = |count: u64| count.checked_ilog10().map_or(0, |log| log + 1);
        [digits(self.read_errors), digits(self.corrupt), digits(self.repaired)]
    }
}

/// What was told of one pool.
#[derive(Clone, Debug)]
pub struct Watch {
    told: PoolSpace,
    /// Bytes that hosts had written when the pool was last asked to find out what it holds.
    asked: Option<u64>,
    /// Looks since then.
    looks: u32,
    /// What it held when it had found out last, bytes.
    settled: u64,
    usage: Usage,
    /// Lost blocks told of.
    lost: u64,
    /// What it lacks, as it was told of.
    problem: Option<String>,
    /// That is more than its redundancy bears.
    is_beyond: bool,
    /// Faults of its drives that were told of, by index.
    faults: Vec<Faults>,
    /// How often the labels of each were written anew, as it was told of.
    labels_rewritten: Vec<u64>,
    /// Reads that failed as nothing gives what was asked for, and looks since there were more of them.
    unreadable: u64,
    readable: u32,
    /// What was told of its volumes' quotas.
    pub quotas: Quotas,
    /// And of their reservations.
    pub reserved: Reserved,
}

impl Default for Watch {
    fn default() -> Self {
        let usage = Usage { used: 0, capacity: 0, written: 0, refuses: None };
        let told = PoolSpace::Enough;
        Self {
            told,
            asked: None,
            looks: 0,
            settled: 0,
            usage,
            lost: 0,
            problem: None,
            is_beyond: false,
            faults: Vec::new(),
            labels_rewritten: Vec::new(),
            unreadable: 0,
            readable: 0,
            quotas: Quotas::default(),
            reserved: Reserved::default(),
        }
    }
}

impl Watch {
    pub const fn told(&self) -> PoolSpace {
        self.told
    }

    /// What it said of itself last.
    pub const fn usage(&self) -> Usage {
        self.usage
    }

    /// Takes how many blocks a pool found lost since it was opened; gives how many of them were not
    /// told of.
    pub const fn loses(&mut self, lost: u64) -> u64 {
        let new = lost.saturating_sub(self.lost);
        self.lost = lost;
        new
    }

    /// Takes how the pool is that lacks something, in words. `true` when that is something else than was told.
    pub fn lacks(&mut self, problem: Option<&str>, is_beyond: bool) -> bool {
        self.is_beyond = is_beyond;
        let new = self.problem.as_deref() != problem;
        self.problem = problem.map(str::to_owned);
        new
    }

    /// Takes how many reads failed as nothing gives what was asked for. Tells whether there were any lately.
    pub const fn reads_fail(&mut self, unreadable: u64) -> bool {
        self.readable =
            if unreadable > self.unreadable { 0 } else { self.readable.saturating_add(1) };
        self.unreadable = unreadable;
        self.fails_reads()
    }

    const fn fails_reads(&self) -> bool {
        self.unreadable > 0 && self.readable < LOOKS_UNREADABLE
    }

    /// Takes the faults of its drives; gives those that are worth telling: the first, and ten times as many as
    /// were told.
    pub fn faults(&mut self, now: Vec<Faults>) -> Vec<(usize, Faults)> {
        self.faults.resize(now.len(), Faults::default());
        let both = self.faults.iter_mut().zip(now).enumerate();
        both.filter_map(|(index, (told, now))| {
            let more = now.digits().iter().zip(told.digits()).any(|(now, told)| *now > told);
            if more {
                *told = now;
            }
            more.then_some((index, now))
        })
        .collect()
    }

    /// Takes how often the labels of its drives were written anew; gives the drives of which that was not told.
    pub fn labels_rewritten(&mut self, now: Vec<u64>) -> Vec<usize> {
        self.labels_rewritten.resize(now.len(), 0);
        let both = now.iter().zip(&self.labels_rewritten).enumerate();
        let new = both.filter(|(_, (now, told))| now > told).map(|(index, _)| index).collect();
        self.labels_rewritten = now;
        new
    }

    /// Whether a drive had so many faults that it may fail soon.
    pub fn is_worn(&self) -> bool {
        self.faults.iter().any(|faults| faults.read_errors + faults.corrupt >= FAULTS_WARNED)
    }

    /// How it is, if it lacks something.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Whether it lacks something: a further failure may cost data.
    pub const fn is_degraded(&self) -> bool {
        self.problem.is_some()
    }

    /// How the pool is, why, and what to do.
    pub fn health(&self, name: &Name) -> (Health, Option<String>, Option<String>) {
        let space = |health, how: &str| {
            let why = format!("pool {name} is {how}: {} % in use", self.usage.percent());
            let help = "delete snapshots or volumes, or have hosts discard what they do not need: what a snapshot has takes \
                        space until that is deleted";
            (health, Some(why), Some(help.to_owned()))
        };
        match (&self.problem, self.told) {
            (Some(problem), _) if self.is_beyond => {
                let help = "put its drives back: it is opened again by itself; what can be read is, and hosts wait with the rest";
                (Health::Failed, Some(problem.clone()), Some(help.to_owned()))
            }
            (Some(problem), _) if self.fails_reads() => {
                let help = format!(
                    "put back the drives that it lacks, and look at the others: `flashloom drive list` has their faults, and \
                     `flashloom pool dump --data` of the closed pool {name} names what is lost"
                );
                (Health::Failed, Some(problem.clone()), Some(help))
            }
            (_, PoolSpace::Full) if self.usage.refuses.is_some() => self.refuses(name),
            (_, PoolSpace::Full) => space(Health::Failed, "full"),
            (Some(problem), _) => {
                let help = format!(
                    "put back what it lacks: a drive, or another target that has its log, is taken up by itself; where its log \
                     lacks memory, `flashloom pool log move {name}` has it elsewhere. `flashloom events` tells what went"
                );
                (Health::Degraded, Some(problem.clone()), Some(help))
            }
            (None, _) if self.reserved.missing() > 0 => {
                let why = format!(
                    "pool {name} lacks {} of the space that volumes have reserved",
                    Size::new(self.reserved.missing())
                );
                let help = "add drives, delete snapshots or volumes, or reserve less: until then hosts of volumes with a \
                            reservation may be refused as others are";
                (Health::Degraded, Some(why), Some(help.to_owned()))
            }
            (None, PoolSpace::Critical) => space(Health::Degraded, "critically low on space"),
            (None, PoolSpace::Low) => space(Health::Degraded, "low on space"),
            (None, PoolSpace::Enough) if self.is_worn() => {
                let why = format!("a drive of pool {name} has many faults, and may fail soon");
                let help = "`flashloom drive list` tells which: replace it".to_owned();
                (Health::Degraded, Some(why), Some(help))
            }
            (None, PoolSpace::Enough) => (Health::Ok, None, None),
        }
    }

    /// Of a pool that takes no writes although it has room.
    fn refuses(&self, name: &Name) -> (Health, Option<String>, Option<String>) {
        let (why, help) = match self.usage.refuses {
            Some(WritesRefused::Unreadable) => (
                "what has its space cannot be read while drives are missing",
                "put its drives back: space is won again then",
            ),
            Some(WritesRefused::NoDriveSpace) | None => (
                "there is no space behind a drive",
                "free space in the file systems, or thin devices, that its drives are in: writes go on by themselves",
            ),
        };
        (Health::Failed, Some(format!("pool {name} takes no writes: {why}")), Some(help.to_owned()))
    }

    /// Takes what the pool says of itself. `true` asks to have it find out what it holds, which goes to
    /// [`know`](Self::know) then.
    pub fn look(&mut self, usage: Usage, at: Thresholds) -> bool {
        self.usage = usage;
        self.looks += 1;
        let since = self.asked.map(|asked| usage.written.saturating_sub(asked));
        let stale = since.is_none_or(|since| since > usage.capacity / ASK_AGAIN);
        let level = at.level(usage);
        let asks = if level > self.told {
            stale || level == PoolSpace::Full
        } else {
            // Has it room again? Where nobody writes, what is deleted or discarded changes what it says.
            let deleted = since == Some(0) && usage.used != self.settled;
            self.told > PoolSpace::Enough
                && (stale || deleted || self.looks >= LOOKS_BETWEEN && since != Some(0))
        };
        if asks {
            (self.asked, self.looks) = (Some(usage.written), 0);
        }
        asks
    }

    /// Takes what the pool says of itself after it has found out what it holds. `true` when that is
    /// worth telling: [`told`](Self::told) is another level now.
    pub fn know(&mut self, usage: Usage, at: Thresholds) -> bool {
        (self.usage, self.settled) = (usage, usage.used);
        let level = at.level(usage);
        let worse = level > self.told;
        if worse {
            self.told = level;
        }
        worse
    }

    /// Whether there is room again: [`told`](Self::told) is a better level now.
    pub fn recovers(&mut self, at: Thresholds) -> bool {
        let level = at.level(self.usage.fuller(SLACK));
        let better = level < self.told;
        if better {
            self.told = level;
        }
        better
    }
}

#[cfg(test)]
mod tests;
