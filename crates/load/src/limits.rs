//! Bounds of a load run, each with its reason.

/// Jobs in one plan: sixteen readers beside a writer is the largest test described; the rest is room.
pub const JOBS_MAX: usize = 64;

/// I/O queues of one job: what one Flashloom controller offers.
pub const QUEUES_MAX: u16 = 128;

/// Commands outstanding on one queue: the deepest queue a Flashloom controller offers.
pub const IO_DEPTH_MAX: u16 = 1024;

/// Largest transfer of one command, bytes: keeps `depth * block size` of a verifying job in reason.
pub const BLOCK_SIZE_MAX: u32 = 4 * 1024 * 1024;

/// Memory for the data of one queue's commands, bytes. A verifying job keeps every outstanding block there.
pub const DATA_AREA_MAX: usize = 1024 * 1024 * 1024;

/// Blocks one verifying job remembers the sequence of (4 bytes each, so 512 MiB at most).
pub const VERIFY_BLOCKS_MAX: u64 = 128 * 1024 * 1024;

/// Verification errors listed one by one in the report; further ones are only counted.
pub const VERIFY_ERRORS_LISTED: usize = 32;

/// A run in which no command completes for this long is given up, nanoseconds. It is the keep alive timeout of
/// its controllers too: a load on a crowded machine may not get a CPU for seconds.
pub const STALL_NS: u64 = 30_000_000_000;

/// Keep alive timeout of a load's controllers.
pub const KEEP_ALIVE: std::time::Duration = std::time::Duration::from_nanos(STALL_NS);

/// Interval of progress calls, nanoseconds.
pub const PROGRESS_NS: u64 = 100_000_000;

/// How long controllers may take to shut down at the end of a run, nanoseconds.
pub const CLOSE_NS: u64 = 2_000_000_000;

/// Acknowledgements in one frame of a journal: those of a deep queue's turn, in one call.
pub const JOURNAL_FRAME_ACKS: usize = 1024;

/// Sequences that a worker says at once it may send: a block written anew each time says so every this many
/// writes, at most.
pub const JOURNAL_RESERVE: u32 = 1 << 16;

/// A journal that has got so far is not continued, so that sequences never wrap within one: half of them.
pub const JOURNAL_SEQUENCE_MAX: u32 = 1 << 30;

/// Blocks found wrong that a check of a journal lists; further ones are only counted.
pub const CHECK_ERRORS_LISTED: usize = 4096;

/// Interval between attempts to connect again, nanoseconds: quick beside the start of a target.
pub const RECONNECT_NS: u64 = 200_000_000;

/// Keep alive timeout of a load that connects again, nanoseconds: by it a target that vanished is noticed well
/// before [`STALL_NS`].
pub const RECONNECT_KEEP_ALIVE_NS: u64 = 10_000_000_000;

/// Sizes in one mix: more than fio's examples have, and few enough to look through for each command.
pub const SIZES_MAX: usize = 16;

/// What a queue that fell behind its rate may catch up on, nanoseconds: longer than a crowded machine makes a
/// thread wait, shorter than anyone would call a burst.
pub const PACE_DEBT_NS: u64 = 50_000_000;

/// Longest time a queue with nothing outstanding sleeps before it looks whether the run was stopped, nanoseconds.
pub const IDLE_NS: u64 = 100_000_000;

/// Points of a time series. When a run is longer, each two neighbours become one and the interval doubles.
pub const SERIES_POINTS_MAX: usize = 4096;

/// Shortest interval of a time series, nanoseconds: below, points are noise.
pub const SERIES_INTERVAL_MIN_NS: u64 = 1_000_000;

/// Commands in a row that one task of a worker runs, when they may end without a wait: a turn of the reactor then, so
/// that whoever else is there (keep alives, other depths) has its own. About 50 us of writes of 4 KiB.
pub const STRAIGHT_MAX: u32 = 64;
