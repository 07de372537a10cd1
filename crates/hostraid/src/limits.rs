//! Every bound of this crate, with its reason.

use std::time::Duration;

use raid::WIDTH_MAX;

/// Members of a set: what a stripe can have.
pub const MEMBERS_MAX: usize = WIDTH_MAX;

/// Bytes of a superblock, a bitmap page and a record's descriptor; the largest logical block a member may
/// have.
pub const PAGE: u32 = 4096;

/// The smallest chunk: a page.
pub const CHUNK_MIN: u32 = PAGE;

/// The largest chunk: what one transfer carries, with a record's descriptor in a buffer of twice its size.
pub const CHUNK_MAX: u32 = 1 << 20;

/// Chunk where nobody says: a transfer that drives do at full speed.
pub const CHUNK_DEFAULT: u32 = 64 << 10;

/// Where the bitmap begins on a member, bytes.
pub const BITMAP_AT: u64 = 64 << 10;

/// Bytes of the bitmap: half a million regions.
pub const BITMAP_BYTES: u32 = 64 << 10;

/// Bits of the bitmap.
pub const REGIONS_MAX: u64 = BITMAP_BYTES as u64 * 8;

/// Bytes a region of a member has at least: so that a write to each block of it costs one bit.
pub const REGION_MIN: u64 = 1 << 20;

/// Where the journal begins on a member, bytes.
pub const JOURNAL_AT: u64 = 1 << 20;

/// Bytes of a member's journal where nobody says.
pub const JOURNAL_BYTES: u64 = 32 << 20;

/// Records of a journal: fewer would have writes wait for checkpoints, more would lengthen the start after a
/// crash, which reads a page of each.
pub const RECORDS_MIN: u64 = 4;
pub const RECORDS_MAX: u64 = 256;

/// Alignment of where a member's data begins.
pub const DATA_ALIGN: u64 = 1 << 20;

/// Bytes of buffers that a set's own work takes at most: several of the largest stripe operations at once. It
/// is a pool of its own: whoever writes holds a buffer of the reactor's pool already.
pub const WORK_BYTES: usize = 128 << 20;

/// Stripes that one record of zeroes covers at most, and one turn of a rebuild or check locks: what others wait
/// for.
pub const ZERO_STRIPES: u64 = 256;

/// Stripes that a rebuild or check works on side by side.
pub const SWEEP_STRIPES: u64 = 4;

/// Stripes after which a rebuild's progress is made durable.
pub const PROGRESS_STRIPES: u64 = 1024;

/// Dirty regions of a mirror before the clean ones among them are cleared: what is copied after a crash.
pub const DIRTY_MAX: usize = 64;

/// Between two looks whether the members are still this program's: the next one waits for three times KATO before it
/// writes, which targets take for some seconds at least.
pub const CLAIM_LOOK: Duration = Duration::from_secs(1);

/// Bytes of a set's name.
pub const NAME_MAX: usize = 32;

/// What an assembly raises the event count by: more than members can be apart that were used together.
pub const ASSEMBLY_RAISE: u64 = 64;

const _: () = assert!(ASSEMBLY_RAISE > MEMBERS_MAX as u64);
const _: () = assert!(BITMAP_AT + BITMAP_BYTES as u64 <= JOURNAL_AT);
const _: () = assert!((CHUNK_MAX + PAGE) as usize <= reactor::BUFFER_MAX);
// The widest stripe operation with the largest chunk has its buffers.
const _: () = assert!(MEMBERS_MAX * reactor::BUFFER_MAX <= WORK_BYTES);
const _: () = assert!(WORK_BYTES.is_multiple_of(reactor::BUFFER_MAX));
