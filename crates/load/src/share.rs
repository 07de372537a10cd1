//! How a job is shared out over its queues, once its namespace is known.

use std::sync::Arc;
use std::time::Duration;

use initiator::Association;
use nvme::identify::IdentifyNamespace;
use stdx::num::{u64_of, usize32};

use crate::Error;
use crate::job::{Direction, Job, Limit, Verify};
use crate::limits::{DATA_AREA_MAX, VERIFY_BLOCKS_MAX};
use crate::link::Link;

/// What one queue is to do.
#[derive(Clone, Debug)]
pub struct Share {
    /// Namespace.
    pub nsid: u32,
    /// Logical block size, bytes.
    pub logical: u32,
    /// Logical blocks of one command.
    pub blocks: u32,
    /// First logical block of this queue's range.
    pub first_lba: u64,
    /// Commands' worth of blocks in this queue's range.
    pub count: u64,
    /// Commands outstanding.
    pub depth: u16,
    /// Direction.
    pub direction: Direction,
    /// Random order.
    pub random: bool,
    /// Commands to submit; `u64::MAX` for no limit.
    pub commands: u64,
    /// Nanoseconds to submit for; `None` for no limit.
    pub runtime: Option<u64>,
    /// Check data.
    pub verify: Verify,
    /// First block of this queue's range, from the start of the job's region.
    pub first: u64,
    /// Nanoseconds between commands.
    pub interval: Option<u64>,
    /// Seed of order and direction; differs from queue to queue.
    pub seed: u64,
    /// Mark of this run in the data.
    pub run: u64,
}

impl Share {
    /// Bytes of one command.
    pub fn bytes(&self) -> u32 {
        self.logical * self.blocks
    }

    /// Byte offset in the namespace of this queue's block `block`.
    pub fn offset(&self, block: u64) -> u64 {
        (self.first_lba + block * u64::from(self.blocks)) * u64::from(self.logical)
    }

    /// Whether data is checked.
    pub fn checks(&self) -> bool {
        self.verify != Verify::Off
    }

    /// Bytes of memory its commands need.
    pub fn area_bytes(&self) -> usize {
        let each = usize32(self.bytes());
        if self.checks() { each * usize::from(self.depth) } else { each }
    }
}

/// What a job learnt of its namespace and controller.
#[derive(Clone, Debug)]
pub struct Session {
    /// By which I/O queues are connected.
    pub link: Arc<Link>,
    /// Largest transfer of one command, bytes.
    pub transfer_max: u64,
    /// Commands that can be outstanding on one queue.
    pub depth_max: u16,
    /// NGUID and EUI64: what the namespace is, wherever it is.
    pub identity: ([u8; 16], [u8; 8]),
    /// I/O queues the controller granted.
    pub granted: u16,
    /// Logical block size, bytes.
    pub logical: u32,
    /// Logical blocks of the namespace.
    pub size: u64,
}

impl Session {
    /// # Errors
    /// [`initiator::Error::Unsupported`] when the namespace's format is none that can be used.
    pub fn new(
        association: Association,
        granted: u16,
        namespace: &IdentifyNamespace,
        patience: Option<Duration>,
    ) -> Result<Self, initiator::Error> {
        let unsupported = |what: &str| initiator::Error::Unsupported(what.to_owned());
        let format =
            namespace.format().ok_or_else(|| unsupported("the namespace has no format"))?;
        if format.ms.get() != 0 {
            return Err(unsupported("the namespace is formatted with metadata"));
        }
        let logical =
            namespace.block_bytes().ok_or_else(|| unsupported("the logical block size is odd"))?;
        Ok(Self {
            granted,
            logical,
            size: namespace.nsze.get(),
            transfer_max: association.transfer_max(),
            depth_max: association.depth_max(),
            identity: (namespace.nguid, namespace.eui64),
            link: Arc::new(Link::new(association, patience)),
        })
    }

    /// Whether `other` is of the same namespace, and can be worked on as this one.
    pub fn same_namespace(&self, other: &Self) -> bool {
        let place = |session: &Self| (session.identity, session.logical);
        place(self) == place(other) && self.size <= other.size && self.granted <= other.granted
    }
}

/// Shares `job` out over its queues. `index` is its place in the plan, `run` the mark of the run.
///
/// # Errors
/// [`Error::Job`] when the job does not fit the namespace or the controller.
pub fn shares(job: &Job, index: usize, session: &Session, run: u64) -> Result<Vec<Share>, Error> {
    let fail = |what: String| Err(Error::Job(format!("job `{}`: {what}", job.name)));
    let (bytes, logical) = (job.block_size, session.logical);
    if !bytes.is_multiple_of(logical) {
        return fail(format!("bs {bytes} is not a multiple of the logical block size {logical}"));
    }
    if u64::from(bytes) > session.transfer_max {
        let most = session.transfer_max;
        return fail(format!("bs {bytes} exceeds the controller's largest transfer of {most}"));
    }
    if bytes / logical > 1 << 16 {
        return fail(format!("bs {bytes} exceeds the 65536 logical blocks of one command"));
    }
    if job.queues > session.granted {
        return fail(format!("the controller grants {} I/O queues", session.granted));
    }
    if job.io_depth > session.depth_max {
        let most = session.depth_max;
        return fail(format!("the controller's queues hold {most} commands"));
    }
    let end = session.size.saturating_mul(u64::from(logical));
    let region = job.region.unwrap_or_else(|| end.saturating_sub(job.offset));
    let count = region / u64::from(bytes);
    if count == 0 || job.offset.checked_add(region).is_none_or(|to| to > end) {
        return fail(format!("offset and size do not fit the namespace of {end} bytes"));
    }
    if job.verify != Verify::Off && (count > VERIFY_BLOCKS_MAX || count < job.queues.into()) {
        return fail(format!(
            "verification wants {} to {VERIFY_BLOCKS_MAX} blocks of bs in the region",
            job.queues
        ));
    }
    let template = template(job, session, run);
    if template.area_bytes() > DATA_AREA_MAX {
        return fail(format!("iodepth times bs exceeds {DATA_AREA_MAX} bytes"));
    }
    Ok((0..job.queues).map(|queue| cut(job, &template, index, queue, count)).collect())
}

/// What all queues of a job have in common.
fn template(job: &Job, session: &Session, run: u64) -> Share {
    let queues = u64::from(job.queues);
    let runtime = match job.limit {
        Limit::Runtime(runtime) => Some(u64::try_from(runtime.as_nanos()).unwrap_or(u64::MAX)),
        Limit::Size(_) | Limit::OnePass => None,
    };
    Share {
        nsid: job.target.nsid,
        logical: session.logical,
        blocks: job.block_size / session.logical,
        first_lba: 0,
        count: 0,
        depth: job.io_depth,
        direction: job.pattern.direction,
        random: job.pattern.random,
        commands: 0,
        runtime,
        verify: job.verify,
        first: 0,
        interval: job.rate.map(|rate| 1_000_000_000 * queues / rate),
        seed: 0,
        run,
    }
}

/// Queue `queue`'s part: a range of its own, so that no two queues touch one block, unless there are fewer
/// blocks than queues.
fn cut(job: &Job, template: &Share, index: usize, queue: u16, count: u64) -> Share {
    let (queues, queue) = (u64::from(job.queues), u64::from(queue));
    let part = |total: u64| total / queues + u64::from(queue < total % queues);
    let (first, mine) = if count < queues {
        (0, count)
    } else {
        (queue * (count / queues) + queue.min(count % queues), part(count))
    };
    let commands = match job.limit {
        _ if job.verify == Verify::Check => 0,
        Limit::Runtime(_) => u64::MAX,
        Limit::Size(bytes) => part(bytes.div_ceil(u64::from(job.block_size))),
        Limit::OnePass => mine,
    };
    let base = job.offset / u64::from(template.logical);
    Share {
        first_lba: base + first * u64::from(template.blocks),
        count: mine,
        first,
        commands,
        seed: job.seed ^ (u64_of(index) << 48 | queue << 32),
        ..template.clone()
    }
}
