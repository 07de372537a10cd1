//! Bounds of a load run, each with its reason.

/// Jobs in one plan: sixteen readers beside a writer is the largest test described; the rest is room.
pub const JOBS_MAX: usize = 64;

/// I/O queues of one job: what one Flashloom controller offers.
pub const QUEUES_MAX: u16 = 128;

/// Commands outstanding on one queue: the deepest queue a Flashloom controller offers.
pub const IO_DEPTH_MAX: u16 = 1024;

/// Largest transfer of one command, bytes: keeps `depth * block size` of a verifying job in reason.
pub const BLOCK_SIZE_MAX: u32 = 4 * 1024 * 1024;

/// Data area of one queue, bytes. A verifying job keeps every outstanding block there.
pub const DATA_AREA_MAX: usize = 1024 * 1024 * 1024;

/// Blocks one verifying job remembers the sequence of (4 bytes each, so 512 MiB at most).
pub const VERIFY_BLOCKS_MAX: u64 = 128 * 1024 * 1024;

/// Verification errors listed one by one in the report; further ones are only counted.
pub const VERIFY_ERRORS_LISTED: usize = 32;

/// A run in which no command completes for this long is given up, nanoseconds. It is the keep alive timeout of
/// its controllers too: a load on a crowded machine may not get a CPU for seconds.
pub const STALL_NS: u64 = 30_000_000_000;

/// Interval of progress calls, nanoseconds.
pub const PROGRESS_NS: u64 = 100_000_000;

/// How long controllers may take to shut down at the end of a run, nanoseconds.
pub const CLOSE_NS: u64 = 2_000_000_000;
