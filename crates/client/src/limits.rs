//! Bounds of this crate, each with its reason.

use std::time::Duration;

/// Commands outstanding of one queue: as many as the deepest NVMe queues in use have entries.
pub const DEPTH_MAX: u16 = 4096;

/// Commands that a blocking call has in flight at most: one call of some MiB is cut into as many.
pub const KEPT_QUEUE_DEPTH: u16 = 32;

/// Queues kept for the next blocking calls; those of more threads at once are made and dropped.
pub const QUEUES_KEPT: usize = 64;

/// Ranges of one Dataset Management or Copy command.
pub const RANGES_MAX: usize = 256;

/// Blocks of one command that moves no data.
pub const BLOCKS_MAX: u32 = 1 << 16;

/// How long the end of a namespace's last handle waits for the controller to shut down.
pub const FAREWELL: Duration = Duration::from_secs(2);

/// Between looks at whether others want the CPU while a thread spins for completions: a `sched_yield` costs
/// about half a microsecond, so that this loses little of what spinning is for.
pub const SPINS_A_LOOK: u32 = 64;
