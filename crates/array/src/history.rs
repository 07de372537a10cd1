//! Configurations that were served before: each is kept before something of it goes, `history/ID.json` in the state
//! directory, the latest of them.

use std::fs;
use std::path::{Path, PathBuf};

use api::v1::{KeptConfiguration, Kind};
use serde::{Deserialize, Serialize};

use crate::desired::Desired;
use crate::events::now_ms;
use crate::limits::{HISTORY, STATE_BYTES};
use crate::state::{create_own_folder, read_file, replace_file};
use crate::{Error, Result};

/// A configuration that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    id: u64,
    time_ms: u64,
    before: String,
    by: Option<String>,
    /// What was served.
    pub configuration: Desired,
}

fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join("history")
}

fn name(id: u64) -> String {
    format!("{id}.json")
}

/// The numbers of those that are kept, the oldest first.
fn ids(state_dir: &Path) -> Vec<u64> {
    let Ok(found) = fs::read_dir(folder(state_dir)) else { return Vec::new() };
    let id = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_suffix(".json")?.parse::<u64>().ok()
    };
    let mut ids: Vec<_> = found.filter_map(|entry| id(entry.ok()?)).collect();
    ids.sort_unstable();
    ids
}

/// Keeps `configuration` before `before` happens to it, as `by` asked for; the same as the latest is kept once. Gives its
/// number.
///
/// # Errors
/// `Failed` when it cannot be written: what is about to happen must not.
pub fn keep(
    state_dir: &Path,
    configuration: &Desired,
    before: &str,
    by: Option<String>,
) -> Result<u64> {
    let ids = ids(state_dir);
    let newest = ids.last().copied();
    if let Some(newest) = newest
        && read(state_dir, newest).is_ok_and(|kept| kept.configuration == *configuration)
    {
        return Ok(newest);
    }
    // A file that somebody put there does not have the numbers end.
    let id = newest.map_or(1, |newest| newest.saturating_add(1));
    let dir = folder(state_dir);
    let failed = |error| {
        let what = "what is served now cannot be kept, to be served again";
        Error::failed(format!("{what}: {}", dir.display()), error)
    };
    create_own_folder(&dir).map_err(failed)?;
    let configuration = configuration.clone();
    let kept = Kept { id, time_ms: now_ms(), before: before.to_owned(), by, configuration };
    let text = serde_json::to_vec_pretty(&kept).map_err(|error| failed(error.into()))?;
    replace_file(&dir, &name(id), &text).map_err(failed)?;
    for old in &ids[..(ids.len() + 1).saturating_sub(HISTORY)] {
        // One that stays is removed the next time.
        let _ = fs::remove_file(dir.join(name(*old)));
    }
    Ok(id)
}

/// One that is kept.
///
/// # Errors
/// `NotFound`; `Failed` when it cannot be read.
pub fn read(state_dir: &Path, id: u64) -> Result<Kept> {
    let file = folder(state_dir).join(name(id));
    let text = match read_file(&file, STATE_BYTES) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::new(Kind::NotFound, format!("configuration {id} is not kept"))
                .help("`flashloom config history` shows those that are"));
        }
        text => {
            text.map_err(|error| Error::failed(format!("cannot read {}", file.display()), error))?
        }
    };
    serde_json::from_slice(&text).map_err(|error| Error::failed(file.display().to_string(), error))
}

/// All that are kept, the newest first; those that cannot be read are left out.
pub fn list(state_dir: &Path) -> Vec<KeptConfiguration> {
    let all = ids(state_dir).into_iter().rev();
    all.filter_map(|id| Some(read(state_dir, id).ok()?.document(id))).collect()
}

impl Kept {
    fn document(self, id: u64) -> KeptConfiguration {
        let Desired { listeners, subsystems, .. } = &self.configuration;
        KeptConfiguration {
            id,
            time_ms: self.time_ms,
            listeners: listeners.len(),
            subsystems: subsystems.len(),
            namespaces: subsystems.values().map(|def| def.namespaces.len()).sum(),
            before: self.before,
            by: self.by,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(port: u16) -> Desired {
        let address = format!("127.0.0.1:{port}").parse().unwrap();
        let mut desired = Desired::default();
        desired.listeners.insert(address, Default::default());
        desired
    }

    #[test]
    fn the_latest_are_kept_and_the_same_only_once() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert!(list(dir).is_empty());
        for number in 1..=40 {
            let by = Some("uid 0".to_owned());
            assert_eq!(keep(dir, &served(number), "a change", by).unwrap(), u64::from(number));
        }
        assert_eq!(keep(dir, &served(40), "another", None).unwrap(), 40, "it is kept already");
        let all = list(dir);
        assert_eq!((all.len(), all[0].id, &*all[0].before), (HISTORY, 40, "a change"));
        assert_eq!(read(dir, 40).unwrap().configuration, served(40));
        assert_eq!(read(dir, 1).unwrap_err().kind, Kind::NotFound);
    }

    #[test]
    fn what_cannot_be_kept_is_told_and_what_cannot_be_read_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        keep(dir, &served(1), "a change", None).unwrap();
        fs::write(folder(dir).join("2.json"), b"{").unwrap();
        assert_eq!(read(dir, 2).unwrap_err().kind, Kind::Failed);
        assert_eq!(list(dir).len(), 1);
        assert_eq!(keep(dir, &served(1), "a change", None).unwrap(), 3);
        fs::remove_dir_all(folder(dir)).unwrap();
        fs::write(folder(dir), b"").unwrap();
        assert_eq!(keep(dir, &served(1), "a change", None).unwrap_err().kind, Kind::Failed);
    }
}
