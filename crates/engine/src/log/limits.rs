//! Every bound of the commit log, with its reason.

use crate::address::BLOCK;
use stdx::num::u64_of;

/// What records and their data are aligned to: a cache line, the unit of persistence.
pub(super) const ALIGN: u64 = 64;

/// Of a block that is destaged soon: as much as the processor does not find out by itself.
pub(super) const PREFETCH_BYTES: usize = 512;

/// Blocks of one record: a key's shard changes every 256 blocks, and 1 MiB is the largest transfer.
pub const RECORD_BLOCKS_MAX: usize = 256;

/// Bytes of one slot of the control block; also what each commit to drives is padded to, so that
/// bytes once acknowledged are never written again.
pub(super) const PAGE: u64 = 4096;

/// Bytes before the ring: two control slots.
pub(super) const CONTROL_BYTES: u64 = 2 * PAGE;

/// The largest record: header, checksums, data.
pub(super) const RECORD_BYTES_MAX: u64 =
    ALIGN + u64_of(RECORD_BLOCKS_MAX) * 4 + u64_of(RECORD_BLOCKS_MAX * BLOCK);

/// The shortest log of one shard: the largest record finds room in an empty ring wherever it
/// begins, after skipping less than its own length at the ring's end and padding one page.
pub const LOG_BYTES_MIN: u64 =
    CONTROL_BYTES + (2 * RECORD_BYTES_MAX + 2 * PAGE).next_multiple_of(PAGE);

/// The longest: what positions of 32 bits in cache lines tell apart, with half to spare.
pub const LOG_BYTES_MAX: u64 = 128 << 30;
const _: () = assert!(LOG_BYTES_MAX <= ALIGN << 31);

/// Distinct stretches of holes and references kept at once: 768 KiB of them, searched by halving. More
/// than that wait for destage, as data waits for room.
pub(super) const STRETCHES_MAX: usize = 16 * 1024;

/// Blocks that records in the ring refer to, at most: some megabytes of memory to know which. More wait
/// for destage.
pub(super) const REFERENCES_MAX: usize = 64 * 1024;

/// The fill from which appends are slowed down, in parts of 1024. Below it a log that is drained as
/// fast as it fills never delays anybody.
pub(super) const SLOW_FROM: u64 = 716;

/// The delay of an append just before the ring is full: with 32 of them in flight a 4 KiB writer
/// gets 13 MB/s there, less than any drive this is used with drains.
pub(super) const SLOW_NANOS_MAX: u64 = 10_000_000;

/// Delays shorter than this are not worth a timer.
pub(super) const SLOW_NANOS_MIN: u64 = 2_000;

/// Buffers of one log for writing its commits, apart from the reactor's: whoever waits for a commit
/// may hold all of those.
pub(super) const COMMIT_POOL_BYTES: usize = 2 * reactor::BUFFER_MAX;

/// Writes to a zone that fail for what passes, want of space or memory, before the log goes on without it; and the
/// pause between them. Writers wait meanwhile.
pub(super) const PASSING_ATTEMPTS: usize = 10;
pub(super) const PASSING_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// How long a commit waits for a device that is neither memory nor a drive of the pool, before the log goes on without it.
/// More than an operation of a namespace of another target takes to fail by itself.
pub(super) const FAR_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// How often the labels are tried for that reason while an acknowledgement depends on them: half a minute.
pub(super) const TELL_ATTEMPTS: usize = 300;

/// Bytes copied at once to a device of memory that is made whole, before other tasks run.
pub(super) const JOIN_STEP: u64 = 64 << 10;

/// Blocks, and records without any, whose index entries are dropped before other tasks run.
pub(super) const TRIM_STEP: usize = 128;

/// Records that are handed out or forgotten are looked at so many together, and where they are of many
/// blocks, about so many of those: the processor fetches what each needs while others are dealt with.
pub(super) const RECORDS_AHEAD: usize = 16;
pub(super) const BLOCKS_AHEAD: usize = 64;

/// Slots of the index that are looked at before other tasks run.
pub(super) const SLOTS_A_TURN: usize = 4096;
