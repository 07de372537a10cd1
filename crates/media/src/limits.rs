//! Every bound of this crate, with its reason.

use std::time::Duration;

use reactor::BUFFER_MAX;

/// The most bytes one call moves: a buffer, less what alignment may add at both ends.
pub const TRANSFER_MAX: usize = BUFFER_MAX / 2;

/// The largest memory region: no machine served has more memory for one, and it keeps address
/// arithmetic far from its ends.
pub const REGION_MAX: u64 = 16 << 40;

/// Address space a memory region reserves at least, so that it can grow in place. Reserving costs
/// no memory, and 47 bits of addresses hold a thousand of these.
pub(crate) const REGION_RESERVE: u64 = 128 << 30;

/// Locks of a region used by several cores, one for each block address modulo this: two cores on
/// different blocks meet once in a thousand times.
pub(crate) const REGION_LOCKS: usize = 1024;

/// Zeroes written at once where neither file system nor device can make them.
pub(crate) const ZERO_CHUNK: usize = 256 * 1024;

/// A turn at the gate of partial-block writes is tried this often before other tasks run.
pub(crate) const LOCK_SPINS: u32 = 64;

/// Bytes read at once to compare them: a share of the scratch pool small enough for several.
pub(crate) const COMPARE_CHUNK: usize = 128 * 1024;
const _: () = assert!(COMPARE_CHUNK < TRANSFER_MAX);

/// How long a drive may take for a read, a write or a flush: what Linux gives an NVMe command before it
/// resets the controller. Whoever has other drives to turn to waits less.
pub const TRANSFER_DEADLINE: Duration = Duration::from_secs(30);

/// What an operator may have it be instead: longer than writes wait for one drive beside others, and not much longer than
/// hosts wait for a command.
pub const TRANSFER_DEADLINES: (Duration, Duration) =
    (Duration::from_secs(15), Duration::from_secs(60));

/// How long whoever takes a drive waits for writes that the system still has of a process that was killed, and between two
/// looks: disks take milliseconds, and what is queued before a slow one seconds.
pub const WRITES_PATIENCE: Duration = Duration::from_secs(15);
pub const WRITES_LOOK: Duration = Duration::from_millis(5);

/// How long it may take to allocate, free or zero space: drives erase, and file systems write, much at once.
pub const SPACE_DEADLINE: Duration = Duration::from_secs(120);

/// What an operator may have that be instead.
pub const SPACE_DEADLINES: (Duration, Duration) =
    (Duration::from_secs(60), Duration::from_secs(3600));

/// How long an operation is tried again that failed for a passing reason. Less than it takes to give a drive
/// up that does not answer.
pub const PASSING_PATIENCE: Duration = Duration::from_secs(5);

/// The pause before the first and before later ones of those attempts: it doubles in between.
pub(crate) const PASSING_PAUSE: Duration = Duration::from_millis(1);
pub(crate) const PASSING_PAUSE_MAX: Duration = Duration::from_millis(100);
const _: () = assert!(PASSING_PATIENCE.as_secs() < TRANSFER_DEADLINES.0.as_secs());

/// Ranges of one Dataset Management: what the command can name.
pub(crate) const DSM_RANGES_MAX: usize = 256;

/// How long who asks an NVMe drive how it is waits for that: drives take milliseconds, some a second when they wake. A
/// host resets its connection when it waits a minute.
pub const HEALTH_PATIENCE: Duration = Duration::from_secs(5);

/// How often a drive is asked that at most, however many hosts ask: what it tells moves in minutes, and each look holds up
/// its other commands for some milliseconds.
pub(crate) const HEALTH_EVERY: Duration = Duration::from_secs(1);
/// How often is looked whether the first answer has come.
pub(crate) const HEALTH_LOOK: Duration = Duration::from_millis(10);

/// How long an Identify Namespace of a host waits for how much is allocated, which is told as it was then, and how
/// often a drive is asked that at most.
pub(crate) const USED_PATIENCE: Duration = Duration::from_millis(500);
pub(crate) const USED_EVERY: Duration = Duration::from_secs(1);
