//! What the node's state says of a pool.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use api::value::LogPlace;
use engine::DriveStatus;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::lives::Life;
use super::{PausedRebuild, ScrubRecord, SpareDef, WereFast};

/// A pool that this node knows: what it takes to open it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolDef {
    /// What identifies it for ever.
    pub id: Uuid,
    /// Its drives, absolute, by index: where each was last.
    pub drives: Vec<PathBuf>,
    /// Where drives are whose places others are being given: until labels say so it is they that have them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub drives_from: BTreeSet<PathBuf>,
    /// Where its commit log lies.
    pub log: Vec<LogPlace>,
    /// Where it is on its way to, if it is: it is at one of the two, and its drives say which.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log_to: Vec<LogPlace>,
    /// The newest term of its labels that this node knows of: what is older than that is not the pool's newest.
    #[serde(default)]
    pub term: u64,
    /// The name of its log when it was opened last: with another one half of its drives are another machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_id: Option<Uuid>,
    /// The name that its next log gets: its drives may have it before this says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_next: Option<Uuid>,
    /// It is being exported: it is known for as long as its drives do not say that it was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exporting: bool,
    /// It is being deleted: it is known until nothing of it is left, and never opened again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleting: bool,
    /// What is remembered of its scrubs.
    #[serde(default)]
    pub scrub: ScrubRecord,
    /// Drives that stand by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spares: Vec<SpareDef>,
    /// It was given spares, and an operator did not take the last of them back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub had_spares: bool,
    /// Drives that are being removed, by their places: emptied, then made blank. Another one in a place is not.
    #[serde(default, deserialize_with = "removing_of", skip_serializing_if = "BTreeMap::is_empty")]
    pub removing: BTreeMap<u16, Uuid>,
    /// A rebuild or an evacuation that waits to be resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<PausedRebuild>,
    /// Drives of which an operator had nothing more moved: none of it is by itself before they are whole.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub stopped: BTreeSet<u16>,
    /// How fast drives that were away are made whole.
    #[serde(default)]
    pub rejoin: RejoinPace,
    /// What is remembered of the drives in its places.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lives: BTreeMap<u16, Life>,
    /// Bytes in a second that the rebuild or evacuation under way moves at most, should the node go on with it; 0 for as
    /// many as there is time for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rebuild_limit: u64,
    /// Drives that were as fast as the others once.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub were_fast: WereFast,
}

impl PoolDef {
    /// Whether the drive that has a place by now is being removed.
    pub fn removes(&self, index: u16, drive: &DriveStatus) -> bool {
        self.removing.get(&index).is_some_and(|id| id.into_bytes() == drive.id)
    }

    /// Whether a log of this name is one that this node made, or found, when it opened the pool last.
    pub fn knows_log(&self, log: Uuid) -> bool {
        self.log_id.is_none_or(|known| known == log) || self.log_next == Some(log)
    }

    /// Where its drives may be, as far as that is known.
    pub fn places(&self) -> impl Iterator<Item = &PathBuf> {
        self.drives.iter().chain(&self.drives_from)
    }

    /// The drive of a place is not looked for any more where it was last, at this path; another one may have come there.
    pub fn forget_place(&mut self, index: u16, at: Option<&Path>) {
        if let Some(place) = self.drives.get_mut(usize::from(index))
            && at == Some(place.as_path())
        {
            *place = PathBuf::new();
        }
        while self.drives.last().is_some_and(|path| path.as_os_str().is_empty()) {
            self.drives.pop();
        }
    }
}

/// Earlier daemons wrote places only, of which nobody knows what is there by now: what was being emptied is emptied, and
/// not wiped before somebody asks again.
fn removing_of<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<u16, Uuid>, D::Error> {
    use serde::de::Error;
    let removing = serde_json::Value::deserialize(deserializer)?;
    if let Ok(places) = BTreeSet::<u16>::deserialize(&removing) {
        tracing::warn!("drives {places:?} of a pool were being removed, and are emptied only");
        return Ok(BTreeMap::new());
    }
    serde_json::from_value(removing).map_err(D::Error::custom)
}

/// How fast drives of a pool are made whole that were away, or are new in their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RejoinPace {
    /// Bytes in a second at most; 0 for as many as hosts leave time for.
    pub limit: u64,
    /// An operator has it wait.
    pub paused: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_zero(limit: &u64) -> bool {
    *limit == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removals_that_an_earlier_daemon_wrote_down_are_read() {
        #[derive(Deserialize)]
        struct Part {
            #[serde(default, deserialize_with = "removing_of")]
            removing: BTreeMap<u16, Uuid>,
        }
        let read = |text: &str| serde_json::from_str::<Part>(text).map(|part| part.removing);
        let id = Uuid::from_u128(7);
        assert_eq!(read(&format!(r#"{{"removing":{{"2":"{id}"}}}}"#)).unwrap()[&2], id);
        assert!(read(r#"{"removing":[2,5]}"#).unwrap().is_empty());
        assert!(read("{}").unwrap().is_empty());
        assert!(read(r#"{"removing":["x"]}"#).is_err());
    }
}
