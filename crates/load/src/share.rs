//! How a job is shared out over its queues, once its namespace is known.

use std::time::Duration;

use initiator::Namespace;
use reactor::file::File;
use stdx::num::{u64_of, usize32};

use crate::Error;
use crate::job::{Direction, Job, Limit, Verify};
use crate::limits::{DATA_AREA_MAX, IO_DEPTH_MAX, VERIFY_BLOCKS_MAX};
use crate::order::Distribution;
use crate::pace::Pace;
use crate::sizes::Sizes;

/// What one queue is to do.
#[derive(Clone, Debug)]
pub struct Share {
    /// Logical block size, bytes.
    pub logical: u32,
    /// Logical blocks of one block of the job: what is verified as one.
    pub blocks: u32,
    /// Blocks of the smallest command, of which addresses are multiples.
    pub align: u32,
    /// Blocks that one NVMe command moves at most: a larger command of the job goes in parts.
    pub part: u32,
    /// First logical block of this queue's range.
    pub first_lba: u64,
    /// Blocks of the job in this queue's range.
    pub count: u64,
    /// Commands of the job outstanding.
    pub depth: u16,
    /// NVMe commands that these can be.
    pub lane_depth: u16,
    /// Direction.
    pub direction: Direction,
    /// How addresses are drawn; `None` is ascending.
    pub random: Option<Distribution>,
    /// Sizes of commands.
    pub sizes: Sizes,
    /// Blocks of the job to move; `u64::MAX` for no limit.
    pub amount: u64,
    /// Nanoseconds to warm up for before anything is measured.
    pub ramp: u64,
    /// Nanoseconds to submit for; `None` for no limit.
    pub runtime: Option<u64>,
    /// Check data.
    pub verify: Verify,
    /// First block of this queue's range, from the start of the job's region.
    pub first: u64,
    /// When commands may be sent; `None` is as soon as there is room.
    pub pace: Option<Pace>,
    /// Nanoseconds between the points of a time series.
    pub series: Option<u64>,
    /// Seed of order and direction; differs from queue to queue.
    pub seed: u64,
    /// Mark of this run in the data.
    pub run: u64,
}

impl Share {
    /// Bytes of one block.
    pub fn bytes(&self) -> u32 {
        self.logical * self.blocks
    }

    /// Bytes of the largest NVMe command.
    pub fn largest(&self) -> u32 {
        self.sizes.largest().min(self.part * self.bytes())
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
        let each = usize32(self.largest());
        if self.checks() { each * usize::from(self.lane_depth) } else { each }
    }
}

/// What a job learnt of what it works on.
#[derive(Clone, Debug)]
pub struct Session {
    /// The file, where it is one.
    pub file: Option<File>,
    /// Largest transfer of one command, bytes.
    pub transfer_max: u64,
    /// Commands that can be outstanding on one queue.
    pub depth_max: u16,
    /// Logical block size, bytes.
    pub logical: u32,
    /// Logical blocks of the namespace.
    pub size: u64,
}

impl Session {
    /// Of a namespace in use.
    pub fn new(namespace: &Namespace) -> Self {
        let geometry = namespace.geometry();
        Self {
            file: None,
            logical: geometry.block_bytes,
            size: geometry.blocks,
            transfer_max: geometry.transfer_max_bytes.into(),
            depth_max: namespace.queue_depths().into_iter().min().unwrap_or(0),
        }
    }

    /// Of a set.
    pub fn of_set(set: &hostraid::Set) -> Self {
        let geometry = set.geometry();
        Self {
            file: None,
            logical: geometry.block_bytes,
            size: geometry.blocks,
            transfer_max: geometry.transfer_max_bytes.into(),
            depth_max: IO_DEPTH_MAX,
        }
    }

    /// Of a file or block device: its blocks are those that direct I/O takes.
    ///
    /// # Errors
    /// As the file's size.
    pub fn of_file(file: File) -> std::io::Result<Self> {
        let logical = file.logical_block();
        Ok(Self {
            logical,
            size: file.size()? / u64::from(logical),
            transfer_max: u64_of(reactor::BUFFER_MAX),
            depth_max: IO_DEPTH_MAX,
            file: Some(file),
        })
    }
}

/// Shares `job` out over its queues. `index` is its place in the plan, `run` the mark of the run.
///
/// # Errors
/// [`Error::Job`] when the job does not fit the namespace or the controller.
pub fn shares(job: &Job, index: usize, session: &Session, run: u64) -> Result<Vec<Share>, Error> {
    let fail = |what: String| Err(Error::Job(format!("job `{}`: {what}", job.name)));
    let (bytes, largest, logical) = (job.sizes.block(), job.sizes.largest(), session.logical);
    if !bytes.is_multiple_of(logical) {
        return fail(format!("bs {bytes} is not a multiple of the logical block size {logical}"));
    }
    let Some(cuts) = Cuts::of(job, session) else {
        let most = session.transfer_max;
        return fail(format!("bs {bytes} cannot be cut into transfers of at most {most}"));
    };
    let each = cuts.parts(largest);
    if u32::from(job.io_depth) * each > session.depth_max.into() {
        let most = session.depth_max;
        return fail(format!(
            "queues hold {most} commands, and each of bs {largest} goes in {each}"
        ));
    }
    let end = session.size.saturating_mul(u64::from(logical));
    let region = job.region.unwrap_or_else(|| end.saturating_sub(job.offset));
    let count = region / u64::from(bytes) * u64::from(cuts.align);
    if count == 0 || job.offset.checked_add(region).is_none_or(|to| to > end) {
        return fail(format!("offset and size do not fit the namespace of {end} bytes"));
    }
    let each = region / u64::from(bytes) / u64::from(job.queues);
    if each.max(1) < u64::from(largest / bytes) {
        return fail(format!("a queue's part of the region is smaller than bs {largest}"));
    }
    if job.verify != Verify::Off && (count > VERIFY_BLOCKS_MAX || count < job.queues.into()) {
        return fail(format!(
            "verification wants {} to {VERIFY_BLOCKS_MAX} blocks of bs in the region",
            job.queues
        ));
    }
    let template = template(job, session, cuts, run);
    if template.area_bytes() > DATA_AREA_MAX {
        return fail(format!("iodepth times bs exceeds {DATA_AREA_MAX} bytes"));
    }
    Ok((0..job.queues).map(|queue| cut(job, &template, index, queue, count)).collect())
}

/// How a job's commands are cut into those that the controller takes.
#[derive(Clone, Copy)]
struct Cuts {
    /// Bytes of a block.
    block: u32,
    /// Blocks of the smallest command.
    align: u32,
    /// Blocks of an NVMe command at most.
    part: u32,
}

impl Cuts {
    /// The largest blocks that one transfer takes, a whole number of which are the smallest command.
    fn of(job: &Job, session: &Session) -> Option<Self> {
        let smallest = job.sizes.block();
        // NLB is 16 bits, 0's based (NVM Command Set, section 3.3.4).
        let most = session.transfer_max.min(u64::from(session.logical) << 16);
        let fits = |align: &u32| {
            let block = smallest / align;
            smallest.is_multiple_of(*align)
                && block.is_multiple_of(session.logical)
                && u64::from(block) <= most
        };
        let align = (1..=smallest / session.logical).find(fits)?;
        let block = smallest / align;
        let part = u32::try_from(most / u64::from(block)).unwrap_or(u32::MAX);
        Some(Self { block, align, part })
    }

    /// NVMe commands that a command of `bytes` goes in.
    fn parts(self, bytes: u32) -> u32 {
        (bytes / self.block).div_ceil(self.part)
    }
}

/// What all queues of a job have in common.
fn template(job: &Job, session: &Session, cuts: Cuts, run: u64) -> Share {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let runtime = match job.limit {
        Limit::Runtime(runtime) => Some(nanos(runtime)),
        Limit::Size(_) | Limit::OnePass => None,
    };
    Share {
        logical: session.logical,
        blocks: cuts.block / session.logical,
        align: cuts.align,
        part: cuts.part,
        first_lba: 0,
        count: 0,
        depth: job.io_depth,
        lane_depth: u16::try_from(u32::from(job.io_depth) * cuts.parts(job.sizes.largest()))
            .unwrap_or(u16::MAX),
        direction: job.pattern.direction,
        random: job.pattern.random.then_some(job.distribution),
        sizes: job.sizes.clone(),
        amount: 0,
        ramp: nanos(job.ramp),
        runtime,
        verify: job.verify,
        first: 0,
        pace: None,
        series: job.series.map(nanos),
        seed: 0,
        run,
    }
}

/// Queue `queue`'s part: a range of its own, so that no two queues touch one block, unless there are fewer
/// blocks than queues.
fn cut(job: &Job, template: &Share, index: usize, queue: u16, count: u64) -> Share {
    let (queues, queue) = (u64::from(job.queues), u64::from(queue));
    let part = |total: u64| total / queues + u64::from(queue < total % queues);
    // By whole smallest commands, so that each queue's addresses are multiples of them.
    let align = u64::from(template.align);
    let whole = count / align;
    let (first, mine) = if whole < queues {
        (0, count)
    } else {
        ((queue * (whole / queues) + queue.min(whole % queues)) * align, part(whole) * align)
    };
    let amount = match job.limit {
        _ if job.verify == Verify::Check => 0,
        Limit::Runtime(_) => u64::MAX,
        Limit::Size(bytes) => part(bytes.div_ceil(u64::from(job.sizes.block()))) * align,
        Limit::OnePass => mine,
    };
    let base = job.offset / u64::from(template.logical);
    Share {
        first_lba: base + first * u64::from(template.blocks),
        count: mine,
        first,
        amount,
        pace: Pace::new((queue, queues), job.rate_iops, job.rate, job.think),
        seed: job.seed ^ (u64_of(index) << 48 | queue << 32),
        ..template.clone()
    }
}
