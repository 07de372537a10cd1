//! What to run: the jobs of a plan, checked before anything is connected.

use std::path::PathBuf;
use std::time::Duration;

use hostraid::Claim;
use initiator::{HostIdentity, Options, PathPolicy, Remote, WindowUse};
use reactor::PollPolicy;

use crate::Error;
use crate::cost::Probe;
use crate::limits::{
    BLOCK_SIZE_MAX, IO_DEPTH_MAX, JOBS_MAX, KEEP_ALIVE, QUEUES_MAX, SERIES_INTERVAL_MIN_NS,
    STALL_NS,
};
use crate::order::Distribution;
use crate::pace::Think;
use crate::sizes::Sizes;

/// Jobs that run together, started at one instant.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The jobs. Jobs on the same CPU share its reactor.
    pub jobs: Vec<Job>,
    /// Asks what the load costs the target.
    pub probe: Option<Probe>,
}

impl Plan {
    /// How long no command may complete: as long as a target may be away, whose namespace may be inaccessible as long.
    #[must_use]
    pub fn patience(&self) -> Duration {
        let away = self.jobs.iter().filter_map(|job| job.reconnect).max();
        away.unwrap_or_default().max(Duration::from_nanos(STALL_NS))
    }

    /// Jobs, by their place, whose writes would go by a direct write window if that could be had ([`WindowUse::Auto`]),
    /// and go as commands: one thread has a window, and one job of a namespace. That is the job that asks for it by
    /// name, else the first.
    #[must_use]
    pub fn without_window(&self) -> Vec<usize> {
        let wants = |job: &Job| {
            let is_namespace = !matches!(job.target, Target::File(_));
            job.window == WindowUse::Auto && job.pattern.writes() && is_namespace
        };
        let mut have: Vec<&Job> = self.jobs.iter().filter(|job| job.asks_for_window()).collect();
        let mut without = Vec::new();
        for (at, job) in self.jobs.iter().enumerate().filter(|(_, job)| wants(job)) {
            let is_anothers = have.iter().any(|other| job.target.same(&other.target));
            if is_anothers || job.threads().len() > 1 {
                without.push(at);
            } else {
                have.push(job);
            }
        }
        without
    }
}

impl From<Job> for Plan {
    fn from(job: Job) -> Self {
        Self { jobs: vec![job], probe: None }
    }
}

/// What a job works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A namespace of an NVMe/TCP subsystem.
    Namespace {
        /// How to connect: its paths, the first one first, at least one.
        remotes: Vec<Remote>,
        /// Namespace.
        nsid: u32,
        /// How commands are spread over the paths.
        policy: PathPolicy,
    },
    /// Namespaces of several targets, as one by RAID at the host. One thread uses it, of one job.
    Set {
        /// How to connect to each member, and its namespace.
        members: Vec<(Remote, u32)>,
        /// As whom it is used.
        claim: Claim,
    },
    /// A file or block device on this machine, past the page cache: what a namespace is compared with.
    File(PathBuf),
}

impl Target {
    /// Namespace `nsid` of a subsystem, connected to as usual by this machine, or by the host named.
    #[must_use]
    pub fn namespace(traddr: &str, trsvcid: u16, subnqn: &str, nsid: u32) -> Self {
        let remote = Remote {
            traddr: traddr.to_owned(),
            trsvcid,
            subnqn: subnqn.to_owned(),
            host: HostIdentity::of_machine(),
            options: Options { keep_alive: KEEP_ALIVE, ..Options::default() },
        };
        Self::Namespace { remotes: vec![remote], nsid, policy: PathPolicy::default() }
    }

    /// The namespace; 1 of a file.
    #[must_use]
    pub fn nsid(&self) -> u32 {
        match self {
            Self::Namespace { nsid, .. } => *nsid,
            Self::Set { .. } | Self::File(_) => 1,
        }
    }

    /// In place of fio's file name.
    #[must_use]
    pub fn show(&self) -> String {
        match self {
            Self::Namespace { remotes, nsid, .. } => {
                let subnqn = remotes.first().map_or("", |remote| &remote.subnqn);
                format!("{subnqn}:{nsid}")
            }
            Self::Set { members, .. } => {
                let each = |(remote, nsid): &(Remote, u32)| format!("{}:{nsid}", remote.subnqn);
                members.iter().map(each).collect::<Vec<_>>().join("+")
            }
            Self::File(path) => path.display().to_string(),
        }
    }

    /// Whether both are the same bytes, as far as their names say.
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Namespace { remotes: a, nsid: x, .. },
                Self::Namespace { remotes: b, nsid: y, .. },
            ) => {
                let place = |r: &Remote| (r.traddr.clone(), r.trsvcid, r.subnqn.clone());
                x == y && a.iter().any(|a| b.iter().any(|b| place(a) == place(b)))
            }
            (Self::Set { members: a, .. }, Self::Set { members: b, .. }) => a == b,
            (Self::File(a), Self::File(b)) => a == b,
            _ => false,
        }
    }
}

/// Which addresses a job visits, and in which direction data moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Reads, writes or both.
    pub direction: Direction,
    /// Addresses in a random order, each once before any comes again; otherwise ascending.
    pub random: bool,
}

impl Pattern {
    /// fio's name of the pattern.
    #[must_use]
    pub fn name(self) -> &'static str {
        match (self.direction, self.random) {
            (Direction::Read, false) => "read",
            (Direction::Read, true) => "randread",
            (Direction::Write, false) => "write",
            (Direction::Write, true) => "randwrite",
            (Direction::Mixed { .. }, false) => "rw",
            (Direction::Mixed { .. }, true) => "randrw",
        }
    }

    /// Parses fio's name of a pattern; `read_percent` is the share of reads of the mixed ones.
    ///
    /// # Errors
    /// [`Error::Job`] when the name is none of read, write, randread, randwrite, rw, randrw, or the share
    /// is above 100.
    pub fn parse(name: &str, read_percent: u8) -> Result<Self, Error> {
        if read_percent > 100 {
            return Err(Error::Job(format!("rwmixread {read_percent} is above 100")));
        }
        let mixed = Direction::Mixed { read_percent };
        let (direction, random) = match name {
            "read" => (Direction::Read, false),
            "randread" => (Direction::Read, true),
            "write" => (Direction::Write, false),
            "randwrite" => (Direction::Write, true),
            "rw" | "readwrite" => (mixed, false),
            "randrw" => (mixed, true),
            other => {
                return Err(Error::Job(format!(
                    "rw `{other}` is none of read, write, randread, randwrite, rw, randrw"
                )));
            }
        };
        Ok(Self { direction, random })
    }

    /// Whether the job writes.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(self.direction, Direction::Read)
    }
}

/// Direction of the data of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Only reads.
    Read,
    /// Only writes.
    Write,
    /// Both, drawn per command.
    Mixed {
        /// Share of reads, 0 to 100.
        read_percent: u8,
    },
}

/// When a job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// After this time.
    Runtime(Duration),
    /// After this many bytes over all queues, rounded up to whole blocks.
    Size(u64),
    /// After one visit of every block.
    OnePass,
}

/// Whether data is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Data is not looked at.
    Off,
    /// Every block written carries its address, its sequence and a checksum; reads of blocks this run wrote are
    /// checked at once, and after the load all blocks it wrote are read back and checked.
    On,
    /// There is no load: the blocks whose writes a journal says were acknowledged are read back and checked.
    Check,
}

/// One kind of load on one namespace.
#[derive(Clone, Debug)]
pub struct Job {
    /// Name shown in the report.
    pub name: String,
    /// Where to.
    pub target: Target,
    /// What.
    pub pattern: Pattern,
    /// Bytes of the commands: multiples of the namespace's logical block size.
    pub sizes: Sizes,
    /// How a random pattern draws its addresses.
    pub distribution: Distribution,
    /// Commands outstanding on each queue.
    pub io_depth: u16,
    /// I/O queues, each with a TCP connection of its own.
    pub queues: u16,
    /// When it ends.
    pub limit: Limit,
    /// How long it runs before that, unmeasured.
    pub ramp: Duration,
    /// First byte of the region worked on; a multiple of the smallest of `sizes`.
    pub offset: u64,
    /// Length of the region in bytes; `None` is up to the namespace's end.
    pub region: Option<u64>,
    /// Whether data is checked.
    pub verify: Verify,
    /// File that keeps what the target acknowledged. An existing one is continued; a check reads it, and takes
    /// block size, offset and region from it.
    pub journal: Option<PathBuf>,
    /// How long the target may be away: the job connects again meanwhile, and does again what was in flight.
    /// `None` ends the run when a connection breaks.
    pub reconnect: Option<Duration>,
    /// Whether writes go by a direct write window, which one thread has, of one job of the namespace
    /// ([`Plan::without_window`]).
    pub window: WindowUse,
    /// CPUs the queues are spread over, one reactor each; empty leaves one reactor unpinned.
    pub cpus: Vec<usize>,
    /// How the reactors wait. The first job on a CPU decides.
    pub poll: PollPolicy,
    /// Seed of addresses, directions and data: the same seed gives the same load.
    pub seed: u64,
    /// Commands a second over all queues at most; `None` is as fast as the target answers.
    pub rate_iops: Option<u64>,
    /// Bytes a second over all queues at most.
    pub rate: Option<u64>,
    /// Time to think.
    pub think: Option<Think>,
    /// Interval of the time series in the report; `None` has none kept.
    pub series: Option<Duration>,
}

impl Job {
    /// A 4 KiB random read job at depth 32 on one queue for ten seconds.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            name: "job".to_owned(),
            target,
            pattern: Pattern { direction: Direction::Read, random: true },
            sizes: Sizes::one(4096),
            distribution: Distribution::Even,
            io_depth: 32,
            queues: 1,
            limit: Limit::Runtime(Duration::from_secs(10)),
            ramp: Duration::ZERO,
            offset: 0,
            region: None,
            verify: Verify::Off,
            journal: None,
            reconnect: None,
            window: WindowUse::Off,
            cpus: Vec::new(),
            poll: PollPolicy::Busy,
            seed: 0x666c_6173_686c_6f6d,
            rate_iops: None,
            rate: None,
            think: None,
            series: None,
        }
    }

    /// The CPUs of its threads; `None` is one that is not pinned.
    pub(crate) fn threads(&self) -> Vec<Option<usize>> {
        let used = self.cpus.iter().take(self.queues.into()).copied().map(Some);
        if self.cpus.is_empty() { vec![None] } else { used.collect() }
    }

    /// Checks what can be checked before the namespace is known.
    ///
    /// # Errors
    /// [`Error::Job`] that says what is wrong.
    pub fn check(&self) -> Result<(), Error> {
        let fail = |what: String| Err(Error::Job(format!("job `{}`: {what}", self.name)));
        let block = self.sizes.block();
        if block == 0 || self.sizes.largest() > BLOCK_SIZE_MAX {
            return fail(format!("bs must be 1 to {BLOCK_SIZE_MAX} bytes"));
        }
        if let Some(odd) = self.sizes.odd() {
            return fail(format!("bs {odd} is not a multiple of the smallest size, {block}"));
        }
        if self.io_depth == 0 || self.io_depth > IO_DEPTH_MAX {
            return fail(format!("iodepth must be 1 to {IO_DEPTH_MAX}"));
        }
        if self.queues == 0 || self.queues > QUEUES_MAX {
            return fail(format!("queues must be 1 to {QUEUES_MAX}"));
        }
        if !self.offset.is_multiple_of(u64::from(block)) {
            return fail(format!("offset {} is not a multiple of bs", self.offset));
        }
        if self.region.is_some_and(|bytes| bytes < u64::from(block)) {
            return fail("the region is smaller than one block".to_owned());
        }
        if [self.rate, self.rate_iops].contains(&Some(0)) || self.limit == Limit::Size(0) {
            return fail("rates and sizes must be above 0".to_owned());
        }
        if self.think.is_some_and(|think| think.after == 0) {
            return fail("thinktime_blocks must be above 0".to_owned());
        }
        let shortest = Duration::from_nanos(SERIES_INTERVAL_MIN_NS);
        if self.series.is_some_and(|interval| interval < shortest) {
            return fail(format!("the interval of a time series must be at least {shortest:?}"));
        }
        if self.limit == Limit::Runtime(Duration::ZERO) {
            return fail("runtime must be above 0".to_owned());
        }
        match (self.verify, &self.journal) {
            (Verify::Off, Some(_)) => {
                return fail("a journal goes with --verify or --check".to_owned());
            }
            (Verify::Check, None) => return fail("a check goes with a journal".to_owned()),
            _ => {}
        }
        if matches!(&self.target, Target::Namespace { remotes, .. } if remotes.is_empty()) {
            return fail("no address is given".to_owned());
        }
        let nsid = self.target.nsid();
        if nsid == 0 || nsid == u32::MAX {
            return fail(format!("nsid {nsid} is not a namespace"));
        }
        if matches!(self.target, Target::Set { .. })
            && (self.threads().len() > 1 || self.queues > 1)
        {
            return fail(
                "one queue of one thread uses a set: give one CPU and one queue".to_owned(),
            );
        }
        if self.reconnect.is_some() && matches!(self.target, Target::File(_)) {
            return fail("a file does not go away: it takes no reconnect".to_owned());
        }
        if self.asks_for_window() && self.threads().len() > 1 {
            return fail("one thread has a direct write window: give one CPU".to_owned());
        }
        Ok(())
    }

    /// Whether it says which window its writes go by, or that there has to be one.
    fn asks_for_window(&self) -> bool {
        !matches!(self.window, WindowUse::Off | WindowUse::Auto)
    }

    /// Whether both work on some same byte.
    fn meets(&self, other: &Self) -> bool {
        let end =
            |job: &Self| job.region.map_or(u64::MAX, |bytes| job.offset.saturating_add(bytes));
        self.target.same(&other.target) && self.offset < end(other) && other.offset < end(self)
    }
}

impl Plan {
    /// Checks every job, and that none spoils what another verifies.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.jobs.is_empty() || self.jobs.len() > JOBS_MAX {
            return Err(Error::Job(format!("a plan has 1 to {JOBS_MAX} jobs")));
        }
        self.jobs.iter().try_for_each(Job::check)?;
        for (index, job) in self.jobs.iter().enumerate() {
            let spoils = |(at, other): &(usize, &Job)| {
                *at != index && other.pattern.writes() && job.meets(other)
            };
            let spoiler = self.jobs.iter().enumerate().find(spoils);
            let is_set = matches!(job.target, Target::Set { .. });
            let has_set = |other: &Job| job.target.same(&other.target);
            if is_set && self.jobs[..index].iter().any(has_set) {
                let what = "one job uses a set at a time, not several";
                return Err(Error::Job(format!("job `{}`: {what}", job.name)));
            }
            let rival = |other: &Job| other.asks_for_window() && job.target.same(&other.target);
            if job.asks_for_window() && self.jobs[..index].iter().any(rival) {
                let what = "one job of a namespace has its direct write window, not several";
                return Err(Error::Job(format!("job `{}`: {what}", job.name)));
            }
            if let (true, Some((_, other))) = (job.verify != Verify::Off, spoiler) {
                return Err(Error::Job(format!(
                    "job `{}` verifies what job `{}` writes too: give each an offset and a size of its own, or \
                     one of them queues in place of numjobs",
                    job.name, other.name
                )));
            }
        }
        Ok(())
    }
}
