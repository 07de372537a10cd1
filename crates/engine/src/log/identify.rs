//! Whose log lies in a place, before anything relies on it.

use super::control::{Control, Holder};
use super::device::{Store, read_slot};
use super::members::MemberId;
use super::place::{Device, Place, Site};
use super::{rebuild, ring_of};
use crate::error::{Error, Kind, Result};

/// What lies where a device would have its part of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Nothing.
    Blank,
    /// Records of the log, without a control block.
    Records,
    /// A device of this pool's log, in that term at least.
    /// With `beside`, something else is where other control blocks should be.
    Member { id: MemberId, term: u64, beside: bool },
    /// Another pool's log, or somebody's bytes.
    Foreign,
}

/// What lies in the parts of all shards, `ring` being the number of the first one's. `apart`: of a device that another pool
/// may have by now, and not of a zone of the pool's own drives.
///
/// # Errors
/// `Failed` when the device cannot be read, `Invalid` for one that is too short.
pub async fn identify(
    parts: &[Place],
    bytes: u64,
    pool: [u8; 16],
    ring: u64,
    apart: bool,
) -> Result<Identity> {
    let mut newest: Option<(u64, Holder)> = None;
    let (mut foreign, mut another, mut failure, mut answers) = (false, false, None, false);
    for place in parts {
        for slot in 0..2 {
            let read = match read_slot(place, slot).await {
                Ok(read) => read,
                Err(error) => {
                    failure = Some(error);
                    continue;
                }
            };
            answers = true;
            let Ok((_, holder)) = Control::decode(&read) else {
                foreign |= Control::remains(&read, pool) == Some(false);
                continue;
            };
            another |= holder.pool != pool;
            if holder.pool == pool && newest.is_none_or(|(term, _)| term <= holder.term) {
                newest = Some((holder.term, holder));
            }
        }
    }
    if let Some((term, holder)) = newest {
        return Ok(Identity::Member { id: holder.member, term, beside: foreign || another });
    }
    if another && apart {
        // Records of this log may be left behind what the other pool has of its own.
        return Ok(Identity::Foreign);
    }
    for (part, ring) in parts.iter().zip((0..).map(|n| ring.wrapping_add(n))) {
        let device = match part {
            Place::Memory(area) => Device::Memory(vec![area.clone()]),
            Place::Zone(zone) => Device::Drives(vec![zone.clone()]),
        };
        let store = Store::new(Site::from(device), bytes)?;
        if rebuild::has_records(&store, ring_of(bytes)?, ring).await? {
            return Ok(Identity::Records);
        }
    }
    match failure {
        _ if foreign || another => Ok(Identity::Foreign),
        Some(error) if !answers => {
            Err(Error::caused(Kind::Failed, "the commit log's device cannot be read", error))
        }
        _ => Ok(Identity::Blank),
    }
}
