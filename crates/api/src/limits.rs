//! Bounds on what a document may ask for, each with its reason.

/// Longest NQN in bytes: NVMe Base 2.1, 4.7 (223 bytes and a terminating null in 224).
pub const NQN_BYTES: usize = 223;
/// Serial number field of Identify Controller (SN), in bytes.
pub const SERIAL_BYTES: usize = 20;
/// Model number field of Identify Controller (MN), in bytes.
pub const MODEL_BYTES: usize = 40;
/// Highest NSID handed out. A host scans the active list in pages of 1024 entries; one page keeps
/// a scan to one command.
pub const NSID_MAX: u32 = 1024;
/// Subsystems of one node: what a discovery log page of 256 entries and a few listeners stays
/// small with.
pub const SUBSYSTEMS_MAX: usize = 256;
/// Hosts on one subsystem's list: looked up once per Connect, held in memory.
pub const HOSTS_MAX: usize = 1024;
/// Listening sockets of one node.
pub const LISTENERS_MAX: usize = 64;
/// Referrals to other discovery services: each is a record in every host's discovery log.
pub const REFERRALS_MAX: usize = 64;
/// Longest name of a pool or volume, in bytes: what the pool's own records have room for.
pub const NAME_BYTES: usize = 64;
/// Pools of one node: each has reactor memory for its log, its map and its stripes.
pub const POOLS_MAX: usize = 64;
/// Shortest period of a schedule's rule: what is taken more often is a log, not a snapshot.
pub const PERIOD_SECONDS_MIN: u64 = 60;
/// And the longest: a year.
pub const PERIOD_SECONDS_MAX: u64 = 366 * 24 * 3600;
/// Schedules of one node: each is looked at every second.
pub const SCHEDULES_MAX: usize = 1024;
/// Rules of one schedule: from minutes to years.
pub const SCHEDULE_RULES_MAX: usize = 8;
/// Volumes of one schedule: what an application spreads over several.
pub const SCHEDULE_VOLUMES_MAX: usize = 64;
/// Longest key of a request (`Idempotency-Key`), in bytes: UUIDs and what orchestrators derive names from.
pub const KEY_BYTES: usize = 128;
/// Smallest namespace: one MiB, below which no file system can be made.
pub const NAMESPACE_BYTES_MIN: u64 = 1 << 20;
/// Largest namespace: 2^60 bytes, so that block arithmetic in bytes never overflows 64 bits.
pub const NAMESPACE_BYTES_MAX: u64 = 1 << 60;
/// Logical block sizes served.
pub const BLOCK_SIZES: [u32; 2] = [512, 4096];

const _: () = assert!(NAMESPACE_BYTES_MIN.is_multiple_of(BLOCK_SIZES[1] as u64));
const _: () = assert!(NAMESPACE_BYTES_MIN < NAMESPACE_BYTES_MAX);
