//! The workloads there are.

use crate::plan::Plan;
use clap::ValueEnum;

/// What a seed is made into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// A bit of everything.
    Plain,
    /// Blocks are moved about in a pool with hardly any space.
    Moves,
    /// The commit log is lost.
    LosesLog,
    /// An operator opens the pool with whatever is at hand.
    Operator,
    /// Several things go wrong at once.
    Rough,
    /// A large pool, written to for long.
    Large,
    /// Drives come and go while the pool is open.
    Returns,
    /// Shards and hosts on several reactors, of whom many go away.
    Crosses,
    /// Snapshots are taken, read, copied from, cloned, gone back to and deleted beside everything else.
    Snapshots,
    /// Real hosts and targets over a network with faults.
    Network,
    /// Hosts write by direct write windows, beside everything else.
    Windows,
    /// Some volumes have all of their size reserved in a pool with hardly any space.
    Reserves,
    /// A namespace of another target has the log, beside memory here or alone.
    Remote,
}

/// What seeds meant, and when: those that found something are run as they were then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Era {
    /// Before there were several reactors, memory that cannot be reached, and drives that are replaced and added.
    Alone,
    /// Before drives got slow, and pools were scrubbed.
    Widened,
    /// Before what a process has in flight outlived it.
    Scrubbed,
    /// Before drives failed in part, and more than one was bad where the log is on drives.
    Outlived,
    #[default]
    Now,
}

impl Era {
    const fn flag(self) -> &'static str {
        match self {
            Self::Alone => " --known",
            Self::Widened => " --known widened",
            Self::Scrubbed => " --known scrubbed",
            Self::Outlived => " --known outlived",
            Self::Now => "",
        }
    }
}

impl Mode {
    pub const ALL: [Self; 13] = [
        Self::Plain,
        Self::Moves,
        Self::LosesLog,
        Self::Operator,
        Self::Rough,
        Self::Large,
        Self::Returns,
        Self::Crosses,
        Self::Snapshots,
        Self::Network,
        Self::Windows,
        Self::Reserves,
        Self::Remote,
    ];

    pub fn plan(self, seed: u64) -> Plan {
        let plan = self.plan_outlived(seed).bear();
        if self == Self::Rough { plan.fail_partly() } else { plan }
    }

    /// What a seed meant before drives failed in part, and more than one was bad where the log is on drives.
    pub fn plan_outlived(self, seed: u64) -> Plan {
        self.plan_scrubbed(seed).outlive()
    }

    /// What a seed meant before what a process has in flight outlived it.
    pub fn plan_scrubbed(self, seed: u64) -> Plan {
        match self {
            // Its own is all it has.
            Self::Network => Plan::network(seed),
            Self::Operator | Self::Returns | Self::LosesLog | Self::Remote => {
                self.plan_widened(seed).slow().scrub().start()
            }
            _ => self.plan_widened(seed).slow().scrub(),
        }
    }

    /// What a seed meant before drives got slow, and pools were scrubbed.
    pub fn plan_widened(self, seed: u64) -> Plan {
        match self {
            Self::Network => Plan::network(seed),
            _ => self.base(seed).spread().poison().replace().widen(self == Self::Large),
        }
    }

    /// What it meant at some time.
    pub fn plan_of(self, seed: u64, era: Era) -> Plan {
        match era {
            Era::Alone => self.plan_known(seed),
            Era::Widened => self.plan_widened(seed),
            Era::Scrubbed => self.plan_scrubbed(seed),
            Era::Outlived => self.plan_outlived(seed),
            Era::Now => self.plan(seed),
        }
    }

    /// What a seed meant before there were several reactors, memory that cannot be reached, and drives that are replaced
    /// and added: known ones were found without.
    pub fn plan_known(self, seed: u64) -> Plan {
        self.base(seed).alone()
    }

    fn base(self, seed: u64) -> Plan {
        match self {
            Self::Plain => Plan::new(seed),
            Self::Moves => Plan::moves(seed),
            Self::LosesLog => Plan::loses_log(seed),
            Self::Operator => Plan::operator(seed),
            Self::Rough => Plan::rough(seed),
            Self::Large => Plan::large(seed),
            Self::Returns => Plan::returns(seed),
            Self::Crosses => Plan::crosses(seed),
            Self::Snapshots => Plan::snapshots(seed),
            Self::Network => Plan::network(seed),
            Self::Windows => Plan::windows(seed),
            Self::Reserves => Plan::reserves(seed),
            Self::Remote => Plan::remote(seed),
        }
    }

    /// What asks for it on the command line.
    pub const fn flag(self) -> &'static str {
        match self {
            Self::Plain => " --plain",
            Self::Moves => " --moves",
            Self::LosesLog => " --loses-log",
            Self::Operator => " --operator",
            Self::Rough => " --rough",
            Self::Large => " --large",
            Self::Returns => " --returns",
            Self::Crosses => " --crosses",
            Self::Snapshots => " --snapshots",
            Self::Network => " --network",
            Self::Windows => " --windows",
            Self::Reserves => " --reserves",
            Self::Remote => " --remote",
        }
    }

    /// How one of its seeds is run again.
    pub fn replay(self, seed: u64) -> String {
        format!("cargo run --release -p sim -- --seed {seed}{} --trace", self.flag())
    }

    /// Likewise, as it was at some time.
    pub fn replay_of(self, seed: u64, era: Era) -> String {
        format!("{}{}", self.replay(seed), era.flag())
    }
}
