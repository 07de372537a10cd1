//! Every bound of this crate, with its reason.

use std::ops::RangeInclusive;
use std::time::Duration;

use media::drive::{PASSING_PATIENCE, TRANSFER_DEADLINES};

use crate::address::BLOCK;

/// Drives of one pool: what a label of one block can list.
pub const DRIVES_MAX: usize = 64;

/// Copies of a pool's log: as many as the highest redundancy bears losses, and one more.
pub const LOG_COPIES_MAX: usize = 4;

/// Devices that the label lists for a pool's log: while it is moved, those it has and those it is to have.
pub const LOG_MEMBERS_MAX: usize = 2 * LOG_COPIES_MAX;

/// Shards of one pool: as many root slots as the label area has room for.
pub const SHARDS_MAX: usize = 64;

/// Bytes of a pool's or volume's name, in UTF-8.
pub const NAME_MAX: usize = 64;

/// Snapshots taken at one instant at most: one edit of the catalog has a record of each, and one of its volume.
pub const SNAPSHOTS_AT_ONCE: usize = 800;

/// Versions of a volume that snapshots and clones see at most: of a block that changed between all of them the map has as
/// many, which one index page names.
pub const VERSIONS_SEEN_MAX: usize = 1 << 16;

/// Volumes of a group at most: they are rolled back together, and one edit of the catalog has three records of each then.
pub const GROUP_VOLUMES_MAX: usize = 500;

/// Which part of a volume's quota may be left for its writers to be let in without a look at what they replace.
pub const QUOTA_MARGIN: u64 = 16;

/// How long a count of a volume with a quota waits for what was let in before.
pub const QUOTA_SETTLES: Duration = Duration::from_secs(1);

/// Quotas are told in units of so many bytes: the catalog has 32 bits for each.
pub const QUOTA_UNIT: u64 = 1 << 20;

/// The largest one in bytes.
pub const QUOTA_MAX: u64 = QUOTA_UNIT * 0xffff_ffff;

/// The largest reservation in bytes: what lies beyond that in the catalog is all of a volume.
pub const RESERVATION_MAX: u64 = QUOTA_MAX - QUOTA_UNIT;

/// How often a writer within its volume's reservation has space looked for: each time others replace what they had.
pub const SEARCHES_WHEN_RESERVED: u32 = 64;

/// The same where the pool does not have what is kept, since it lost drives.
pub const SEARCHES_WHEN_OVERDRAWN: u32 = 4;

/// How often what it replaces is looked up, or counted, where that does not hold when it is known.
pub const LOOKS_WHEN_RESERVED: u32 = 16;

/// Between two counts of what is kept, for writers without space, at most: it is as long as the first of them took.
pub const RECOUNT_PAUSE_MAX: Duration = Duration::from_millis(100);

/// Blocks of a range whose contents are looked up before others on the core have their turn.
pub const LOOKED_AT_ONCE: u64 = 1 << 10;

/// How often they are looked up as of two instants before nobody knows: what was read is not in the cache any more.
pub const LOOKS_AT_SNAPSHOTS: u32 = 16;

/// Clones of clones, one made of a snapshot of the other: so many views a read may have to ask.
pub const CLONES_DEEP_MAX: usize = 64;

/// Blocks of clones of which a shard knows, part by part, which ancestor has them, and so many parts: 4 GiB of them, in
/// little more than a MiB.
pub(crate) const OWNERS_BLOCKS: u64 = 256;
pub(crate) const OWNERS_KEPT: usize = 4096;

/// Blocks of clones of which a shard knows, part by part, whether its map has nothing of their own, and so many parts:
/// 8 GiB of them, in a third of a MiB.
pub(crate) const ABSENT_BLOCKS: u64 = 512;
pub(crate) const ABSENT_KEPT: usize = 4096;

/// Objects of one pool at most, where its drives are large enough: volumes, snapshots, clones and groups.
pub const OBJECTS_MAX: usize = 1 << 17;

/// The largest volume: what 40 bits of block numbers address.
pub const VOLUME_BYTES_MAX: u64 = (BLOCK as u64) << crate::address::BLOCK_BITS;

/// The smallest and largest allocation unit. Smaller ones make the segment table long, larger ones
/// make reclaim coarse.
pub const AU_MIN: u64 = 1 << 20;
pub const AU_MAX: u64 = 64 << 20;

/// Stripes one shard has in memory at once, open, being written or waiting: three streams with one
/// open and one being written each, and as many again so that the drives always have work.
pub(crate) const STRIPES_IN_MEMORY: usize = 12;

/// Bytes of one shard's buffers for reads that do not go straight to where they are wanted, beside what drives keep
/// that do not answer: as many as the redundancy bears, `reactor::FILE_BYTES_KEPT` each.
pub(crate) const READ_BYTES: usize = 8 << 20;

/// Bytes of one shard's buffers for reconstructing: five recoveries at the widest, or hundreds of
/// single blocks. Beside them are, as for reads, those that drives keep.
pub(crate) const RECOVER_BYTES: usize = 16 << 20;

/// An operation of a drive is late that takes so many times what such operations take on average, and this at least:
/// what is shorter nobody minds, and a core is kept from looking for as long now and then.
pub(crate) const LATE_FACTOR: u64 = 8;
pub(crate) const LATE_MIN: Duration = Duration::from_millis(1);
/// The average is taken for this at least, in nanoseconds: it begins with nothing.
pub(crate) const PACE_MIN: u64 = 100_000;

/// A read that is late is made of the others' as well, if that leaves hedges to one in so many reads: these at once, at
/// most. One without is waited for as long as that, and the drive is called slow then.
pub(crate) const READS_A_HEDGE: u64 = 32;
pub(crate) const HEDGES_AT_ONCE: u64 = 16;
pub(crate) const HEDGE_MIN: Duration = Duration::from_millis(250);
pub(crate) const HEDGE_MAX: Duration = Duration::from_secs(1);

/// How often a drive that reads go around is asked whether it still is slow, beside the reads: one question at a time.
/// When three in four answers are in time again, reads do.
pub(crate) const PROBE_PAUSE: Duration = Duration::from_millis(100);

/// Reads that say how fast a drive is have so many bytes at most: longer ones take longer by themselves.
pub(crate) const PACED_BYTES: usize = 64 << 10;

/// How long the writes of a stripe, and flushes, wait for a drive when enough others have ended theirs: it is out
/// of use then. Longer than a healthy drive ever takes (it may erase, or reset, meanwhile), and less than the 30
/// seconds that hosts give a command.
pub(crate) const WRITE_PATIENCE: Duration = Duration::from_secs(10);
/// It is looked so often whether the others have.
pub(crate) const WRITE_PATIENCE_STEPS: u32 = 10;
const _: () = assert!(PASSING_PATIENCE.as_secs() < WRITE_PATIENCE.as_secs());
const _: () = assert!(WRITE_PATIENCE.as_secs() < TRANSFER_DEADLINES.0.as_secs());

/// How long a label, root or catalog is tried on a drive that the system has no means for: until one that alone is
/// told so is out of use, where it can be spared.
pub(crate) const PUT_PATIENCE: Duration = Duration::from_secs(20);
const _: () = assert!(WRITE_PATIENCE.as_secs() < PUT_PATIENCE.as_secs());

/// For how long there has to be no space behind the drives until a pool that is closed waits for none any more.
pub(crate) const CLOSING_PATIENCE: Duration = Duration::from_secs(3);

/// How long a hole waits for room in the log while there is no space behind it: then it is refused, as writes are at once,
/// for it holds up all that comes after it, and who changes volumes.
pub(crate) const HOLE_PATIENCE: Duration = Duration::from_secs(5);

/// How long a drive has to say what it is of: one that takes longer is as good as missing. Drives that work answer in
/// milliseconds, those that were just powered in a second or two.
pub(crate) const LABEL_PATIENCE: Duration = Duration::from_secs(5);
/// It is told which ones have not answered for so long.
pub(crate) const LABEL_SILENCE: Duration = Duration::from_millis(500);
/// Attempts to read a label, and what is waited between: one error may pass.
pub(crate) const LABEL_ATTEMPTS: u32 = 4;
pub(crate) const LABEL_PAUSE: Duration = Duration::from_millis(100);

/// How often the drives that have the log of an open pool are made to take a write that changes nothing, at most.
pub(crate) const LOG_TRY_PAUSE: Duration = Duration::from_secs(10);
/// How long a drive is left alone whose labels were written anew and are gone again.
pub(crate) const LABEL_ANEW_PAUSE: Duration = Duration::from_mins(1);
/// Looks in a row, a few seconds apart, at which a drive gives nothing: then it is of no use. One may pass.
pub(crate) const MUTE_LOOKS: u32 = 3;
/// Looks in a row at which most of the log's writes to a drive were late: then its copy moves. What keeps a drive busy
/// for a moment passes.
pub(crate) const LATE_LOOKS: u32 = 2;

/// How long an opening waits until what it learnt is on the drives: one that hangs is out of use by then.
pub(crate) const OPENING_PATIENCE: Duration = Duration::from_secs(15);
const _: () = assert!(WRITE_PATIENCE.as_secs() < OPENING_PATIENCE.as_secs());

/// How long a drive out of use that did not answer within a deadline is not even asked for what nothing else gives:
/// each block would wait for as long as that.
pub(crate) const HUNG_FOR: Duration = Duration::from_mins(5);
/// As that, where it said at once that it does not answer: hosts ask again for what is not served many times a second.
pub(crate) const SILENT_FOR: Duration = Duration::from_secs(1);
const _: () = assert!(TRANSFER_DEADLINES.1.as_secs() < HUNG_FOR.as_secs());

/// Read errors and damaged blocks of one drive within [`ERROR_WINDOW`] that take it out of use while the
/// redundancy bears it: single ones are put right from the others, a medium that falls apart is not.
pub(crate) const ERRORS_BORNE: u64 = 1000;
pub(crate) const ERROR_WINDOW: Duration = Duration::from_secs(3600);

/// How often the drives of one place are taken back while a pool is open: each stays held until it is closed, with its
/// file descriptor. Once a week for as long as a drive lives; what comes and goes faster is kept out long before, by
/// whoever opened the pool. Tests have less.
pub(crate) const RETURNS_MAX: usize = if cfg!(test) { 15 } else { 254 };

/// How long a drive waits that failed to take a copy of the log, or lost it again, before it is tried once more: the
/// first time, and however often it was tried.
pub(crate) const COPY_PAUSES: RangeInclusive<Duration> =
    Duration::from_secs(10)..=Duration::from_mins(10);

/// The same of a namespace of another target, which is away as long as that target, or the way there, is.
pub(crate) const REMOTE_PAUSES: RangeInclusive<Duration> =
    Duration::from_secs(2)..=Duration::from_secs(30);

/// Attempts to read what a stripe of a drive is made anew from, and what is waited between: what the others answer may
/// pass.
pub(crate) const ANEW_ATTEMPTS: u32 = 5;
pub(crate) const ANEW_PAUSE: Duration = Duration::from_secs(1);

/// Blocks of a unit reconstructed at once.
pub(crate) const RECOVER_BLOCKS: usize = 16;

const _: () = assert!(
    2 * (raid::WIDTH_MAX + 1) * RECOVER_BLOCKS * BLOCK <= RECOVER_BYTES,
    "the widest recovery leaves room for another"
);
const _: () = assert!(
    READ_BYTES >= 4 * BLOCK * raid::UNIT_BLOCKS_MAX as usize,
    "several readers of whole units at once"
);

/// Reads of a block before it is given up when it has to be moved: a drive's error may pass.
pub(crate) const SALVAGE_ATTEMPTS: usize = 3;

/// How long whoever empties a drive waits for room on the others before it looks again, and before that is given up:
/// hosts give space back, or do not.
pub const REBUILD_PAUSE: Duration = Duration::from_millis(500);
pub const REBUILD_PATIENCE: Duration = Duration::from_secs(30);

/// How long a writer waits at most for what is there to be spread over drives that came, where the pool has no other room
/// for what it writes. Less than the 30 seconds that hosts give a command.
pub const SPREAD_PATIENCE: Duration = Duration::from_secs(20);

/// How long whoever begins to empty drives waits for a search for space, where the others seem to lack some.
pub const REBUILD_SEARCH: Duration = Duration::from_secs(30);

/// How long nothing may be free, and nothing be won back for want of drives, until writes are refused: hosts wait that
/// long.
pub const UNREADABLE_AFTER: Duration = Duration::from_secs(5);

/// How long reclaim leaves a segment alone whose blocks it cannot read for now.
pub const LEFT_ALONE: Duration = Duration::from_secs(60);

/// Allocation units a drive is cut into, about: enough that one segment is a small share, few enough
/// that a table of them is small.
pub const AUS_PER_DRIVE: u64 = 4096;

/// The fewest allocation units a drive must give: below that, reserves take everything.
pub const AUS_MIN: u64 = 16;

/// Stripe units of an allocation unit at least: its header and what is left over are a small share
/// then.
pub const UNITS_PER_AU: u64 = 16;

/// Stripes a shard writes at once: enough to keep drives busy, few enough that their buffers are a
/// small share of a reactor's memory.
pub const STRIPES_IN_FLIGHT: usize = 4;

/// Segments named in a checkpoint before they are used, at most: recovery looks for stripes in these
/// only.
pub const RESERVED_MAX: usize = 64;

/// Segments that only metadata may take, at least: a checkpoint must always be possible.
pub const METADATA_RESERVE: u64 = 2;

/// Besides those for metadata, segments that should find space on drives that are online: with less, new
/// ones may begin degraded.
pub const DEGRADE_BELOW: u64 = 4;

/// The share of what a shard holds that hosts give back before it is looked for: all of the map is
/// merged for it, some bytes for each block held.
pub const DISCARD_WORTH: u64 = 128;

/// How long a write waits before it is tried again that finds no space behind a drive.
pub const NO_SPACE_PAUSE: Duration = Duration::from_millis(100);

/// Segments that only reclaim and metadata may take: without them no space could ever be won.
pub const RECLAIM_RESERVE: usize = 2;

/// Requests from one reactor to one shard of another that are under way at a time: enough that its log and drives are
/// always busy. Further ones wait for their turn where they come from.
pub const REQUESTS_MAX: usize = 256;

/// Bytes that those requests keep between uses: 32 KiB each. Beyond that they are allocated.
pub const REQUEST_BYTES_KEPT: usize = 8 << 20;

/// Volumes that both ends of such a way know by a number; each has one place by its view. Those that share a place
/// are told of again and again, by one reference count each time.
pub const VOLUMES_KNOWN: usize = 256;

/// Requests of one reactor that are begun before those of the next.
pub const BEGUN_AT_ONCE: usize = 64;

/// Requests of other reactors that wait in a shard at a time, for drives or for room: each has a task. Further ones
/// are not begun.
pub const WORKERS_MAX: usize = 1024;

/// Tasks of those that are kept while there is nothing to wait for.
pub const WORKERS_KEPT: usize = 64;

/// Plans of reads kept to be used again: reads under way at most times.
pub const PLANS_KEPT: usize = 256;

/// Segments of a pool for each shard, where nobody says how many shards there are to be: with fewer, what every
/// shard keeps open and in reserve would be more than the twelfth that pools keep back anyway.
pub const SHARD_SEGMENTS: u64 = 128;

/// As [`SHARD_SEGMENTS`], where somebody says so.
pub const SHARD_SEGMENTS_MIN: u64 = 16;

/// Bytes of commit log for each shard, where nobody says how many there are to be: some time of
/// writing at full speed.
pub const SHARD_LOG_BYTES: u64 = 16 << 20;

/// Findings of one severity that a dump tells one by one: more are the same trouble over and over.
pub const FINDINGS_MAX: u64 = 1000;

/// Bytes of the bits that tell which shared blocks have references, while a sweep looks: those of 256 GiB
/// in one go. For more of them the map is looked through again.
pub const SWEEP_BYTES: usize = 8 << 20;

/// How long a shard waits after a change before it counts what its volumes use: more will have changed by then.
pub(crate) const COUNT_PAUSE: Duration = Duration::from_secs(1);

/// After each piece of a count so many times what that took is waited: a count has less than 5 percent of its core,
/// and of the time in which the drives could be read.
pub(crate) const COUNT_PAUSE_FACTOR: u32 = 20;

/// The longest such wait: a drive that is slow to answer makes pieces of a count long that cost nothing, and what is told
/// of volumes is not to be minutes old for it.
pub(crate) const COUNT_PAUSE_MAX: Duration = Duration::from_secs(10);

/// Pages of the map in a piece of a count: space that becomes free waits for some milliseconds at most. The first ones
/// of each run and level are read again for the next piece, which makes small ones dear.
pub(crate) const COUNT_PAGES: usize = 1024;

/// Blocks of the log that a count has in mind at once: half a megabyte of them. With more of them in the log its index
/// is gone through as often as that.
pub(crate) const COUNT_KEYS: usize = 32 << 10;

/// Extents that are told at once of what changed between snapshots, at most: 1.5 MiB of them.
pub(crate) const CHANGES_MOST: usize = 64 << 10;

/// Extents, as few as are asked for within these bounds, and steps of the map with which a shard looks for them in one
/// go: each step reads a page of it at most.
pub(crate) const CHANGES_EXTENTS: RangeInclusive<usize> = 64..=1024;
pub(crate) const CHANGES_STEPS: usize = 4096;

/// Blocks of a clone whose contents a shard looks for at once, in its own view and its ancestors', and how often it does
/// in one go.
pub(crate) const CONTENTS_BLOCKS: u64 = 4096;
pub(crate) const CONTENTS_TURNS: usize = 64;

/// How often shards are asked so for one call: what that does not find is the next call's.
pub(crate) const CHANGES_ROUNDS: usize = 16;

/// Extents of what a clone inherits that are looked for at once when it is detached, and how long it waits where that does
/// not go on.
pub(crate) const DETACH_EXTENTS: usize = 256;
pub(crate) const DETACH_PAUSE: Duration = Duration::from_secs(5);

/// Blocks copied with their contents at once: those in the log, and those just moved.
pub const COPY_CONTENTS_BLOCKS: u64 = 64;
