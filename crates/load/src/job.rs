//! What to run: the jobs of a plan, checked before anything is connected.

use std::path::PathBuf;
use std::time::Duration;

use reactor::PollPolicy;

use crate::Error;
use crate::limits::{BLOCK_SIZE_MAX, IO_DEPTH_MAX, JOBS_MAX, QUEUES_MAX};

/// Jobs that run together, started at one instant.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The jobs. Jobs on the same CPU share its reactor.
    pub jobs: Vec<Job>,
}

impl From<Job> for Plan {
    fn from(job: Job) -> Self {
        Self { jobs: vec![job] }
    }
}

/// The namespace a job works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Transport address: an IP address or a host name.
    pub traddr: String,
    /// Transport service: the TCP port.
    pub trsvcid: u16,
    /// Subsystem NQN.
    pub subnqn: String,
    /// Host NQN to present; `None` makes one of the host's own identity.
    pub hostnqn: Option<String>,
    /// Host Identifier; `None` is that of the host NQN or this machine.
    pub hostid: Option<[u8; 16]>,
    /// Namespace.
    pub nsid: u32,
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
    /// Bytes of one command: a multiple of the namespace's logical block size.
    pub block_size: u32,
    /// Commands outstanding on each queue.
    pub io_depth: u16,
    /// I/O queues, each with a TCP connection of its own.
    pub queues: u16,
    /// When it ends.
    pub limit: Limit,
    /// First byte of the region worked on; a multiple of `block_size`.
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
    /// Asks for header digests.
    pub header_digest: bool,
    /// Asks for data digests.
    pub data_digest: bool,
    /// CPUs the queues are spread over, one reactor each; empty leaves one reactor unpinned.
    pub cpus: Vec<usize>,
    /// How the reactors wait. The first job on a CPU decides.
    pub poll: PollPolicy,
    /// Seed of addresses, directions and data: the same seed gives the same load.
    pub seed: u64,
    /// Commands a second over all queues; `None` is as fast as the target answers.
    pub rate: Option<u64>,
}

impl Job {
    /// A 4 KiB random read job at depth 32 on one queue for ten seconds.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            name: "job".to_owned(),
            target,
            pattern: Pattern { direction: Direction::Read, random: true },
            block_size: 4096,
            io_depth: 32,
            queues: 1,
            limit: Limit::Runtime(Duration::from_secs(10)),
            offset: 0,
            region: None,
            verify: Verify::Off,
            journal: None,
            reconnect: None,
            header_digest: false,
            data_digest: false,
            cpus: Vec::new(),
            poll: PollPolicy::Busy,
            seed: 0x666c_6173_686c_6f6d,
            rate: None,
        }
    }

    /// Checks what can be checked before the namespace is known.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let fail = |what: String| Err(Error::Job(format!("job `{}`: {what}", self.name)));
        if self.block_size == 0 || self.block_size > BLOCK_SIZE_MAX {
            return fail(format!("bs must be 1 to {BLOCK_SIZE_MAX} bytes"));
        }
        if self.io_depth == 0 || self.io_depth > IO_DEPTH_MAX {
            return fail(format!("iodepth must be 1 to {IO_DEPTH_MAX}"));
        }
        if self.queues == 0 || self.queues > QUEUES_MAX {
            return fail(format!("queues must be 1 to {QUEUES_MAX}"));
        }
        if !self.offset.is_multiple_of(u64::from(self.block_size)) {
            return fail(format!("offset {} is not a multiple of bs", self.offset));
        }
        if self.region.is_some_and(|bytes| bytes < u64::from(self.block_size)) {
            return fail("the region is smaller than one block".to_owned());
        }
        if self.rate == Some(0) || self.limit == Limit::Size(0) {
            return fail("rate and size must be above 0".to_owned());
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
        if self.target.nsid == 0 || self.target.nsid == u32::MAX {
            return fail(format!("nsid {} is not a namespace", self.target.nsid));
        }
        Ok(())
    }
}

impl Plan {
    /// Checks every job.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.jobs.is_empty() || self.jobs.len() > JOBS_MAX {
            return Err(Error::Job(format!("a plan has 1 to {JOBS_MAX} jobs")));
        }
        self.jobs.iter().try_for_each(Job::check)
    }
}
