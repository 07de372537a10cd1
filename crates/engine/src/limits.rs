//! Every bound of this crate, with its reason.

use crate::address::BLOCK;

/// Drives of one pool: what a label of one block can list.
pub const DRIVES_MAX: usize = 64;

/// Shards of one pool: as many root slots as the label area has room for.
pub const SHARDS_MAX: usize = 64;

/// Bytes of a pool's or volume's name, in UTF-8.
pub const NAME_MAX: usize = 64;

/// Volumes of one pool: what a catalog slot of 1 MiB can list.
pub const VOLUMES_MAX: usize = 4096;

/// The largest volume: what 40 bits of block numbers address.
pub const VOLUME_BYTES_MAX: u64 = (BLOCK as u64) << crate::address::BLOCK_BITS;

/// The smallest and largest allocation unit. Smaller ones make the segment table long, larger ones
/// make reclaim coarse.
pub const AU_MIN: u64 = 256 << 10;
pub const AU_MAX: u64 = 64 << 20;
