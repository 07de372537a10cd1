//! Volumes on a log: the array's brain. It knows no NVMe; `docs/format.md` describes its bytes on
//! media.
//!
//! A write is appended to the commit log and acknowledged; behind that, destage gathers what is
//! still current into full stripes, the map learns where it lies, and the log is trimmed. Nothing is
//! ever overwritten in place, and nothing is read from a drive in order to write.

pub mod address;
mod error;
pub mod format;
pub mod join;
mod limits;
pub mod log;
pub mod map;
pub mod segment;

pub use error::{Error, Kind, Result};
pub use limits::{DRIVES_MAX, NAME_MAX, SHARDS_MAX, VOLUME_BYTES_MAX, VOLUMES_MAX};
