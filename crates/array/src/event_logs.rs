//! The Persistent Event logs of subsystems over restarts: a file for each, `events/ID` in the state
//! directory, the events as they stand in the log page.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use api::value::Nqn;
use uuid::Uuid;

use crate::limits::EVENT_LOG_BYTES;
use crate::state::{create_own_folder, read_file, remove_file, replace_file};
use crate::{Error, Result};

/// The files of one node.
#[derive(Debug)]
pub struct EventLogs {
    dir: PathBuf,
    /// What is in them, as far as they were read or written.
    kept: BTreeMap<Nqn, Vec<u8>>,
    /// Subsystems that were removed, whose events are there until that is written down.
    left: BTreeSet<Nqn>,
}

/// A name may hold what a file's must not.
fn file_of(nqn: &Nqn) -> String {
    Uuid::new_v5(&Uuid::NAMESPACE_URL, nqn.as_str().as_bytes()).to_string()
}

impl EventLogs {
    /// Those of the node with this state directory.
    ///
    /// # Errors
    /// `Failed` when the folder for them cannot be had.
    pub fn open(state_dir: &Path) -> Result<Self> {
        let dir = state_dir.join("events");
        match create_own_folder(&dir) {
            Err(error) => Err(Error::failed(format!("cannot create {}", dir.display()), error)),
            Ok(()) => Ok(Self { dir, kept: BTreeMap::new(), left: BTreeSet::new() }),
        }
    }

    /// What was kept of a subsystem's events. Serving does not depend on them: what cannot be read is
    /// told, and left out.
    pub fn read(&mut self, nqn: &Nqn) -> &[u8] {
        let path = self.dir.join(file_of(nqn));
        let kept = read_file(&path, EVENT_LOG_BYTES).unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::error!("events of {nqn} cannot be read from {}: {error}", path.display());
            }
            Vec::new()
        });
        self.kept.entry(nqn.clone()).insert_entry(kept).into_mut()
    }

    /// The subsystems whose events were read.
    pub fn subsystems(&self) -> Vec<Nqn> {
        self.kept.keys().cloned().collect()
    }

    /// Keeps a subsystem's events, if there are others than before.
    pub fn write(&mut self, nqn: &Nqn, events: Vec<u8>) {
        if self.kept.get(nqn) == Some(&events) {
            return;
        }
        match replace_file(&self.dir, &file_of(nqn), &events) {
            Ok(()) => drop(self.kept.insert(nqn.clone(), events)),
            Err(error) => {
                tracing::error!(
                    "events of {nqn} cannot be kept in {}: {error}",
                    self.dir.display()
                );
            }
        }
    }

    /// Subsystems were removed: they may be put back.
    pub fn leave(&mut self, left: BTreeSet<Nqn>) {
        self.left.extend(left);
    }

    /// Forgets the events of those that were removed, and are not wanted any more: that is written down.
    pub fn forget_left(&mut self, is_wanted: impl Fn(&Nqn) -> bool) {
        let left = std::mem::take(&mut self.left);
        left.iter().filter(|nqn| !is_wanted(nqn)).for_each(|nqn| self.forget(nqn));
    }

    fn forget(&mut self, nqn: &Nqn) {
        self.kept.remove(nqn);
        if let Err(error) = remove_file(&self.dir, &file_of(nqn)) {
            tracing::error!("events of {nqn} cannot be forgotten: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn events_outlive_the_process_until_they_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let nqn: Nqn = "nqn.2026-11.io.flashloom:a/b".parse().unwrap();
        let mut logs = EventLogs::open(dir.path()).unwrap();
        assert_eq!(logs.read(&nqn), b"");
        logs.write(&nqn, b"started".to_vec());
        let mut again = EventLogs::open(dir.path()).unwrap();
        assert_eq!(again.read(&nqn), b"started");
        again.forget(&nqn);
        assert_eq!(EventLogs::open(dir.path()).unwrap().read(&nqn), b"");
    }

    #[test]
    fn a_file_too_long_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let nqn: Nqn = "nqn.2026-11.io.flashloom:a".parse().unwrap();
        let mut logs = EventLogs::open(dir.path()).unwrap();
        let long = vec![0; stdx::num::usize64(EVENT_LOG_BYTES) + 1];
        fs::write(dir.path().join("events").join(file_of(&nqn)), long).unwrap();
        assert_eq!(logs.read(&nqn), b"");
    }

    #[test]
    fn what_did_not_change_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let nqn: Nqn = "nqn.2026-11.io.flashloom:a".parse().unwrap();
        let mut logs = EventLogs::open(dir.path()).unwrap();
        logs.write(&nqn, b"started".to_vec());
        fs::remove_file(dir.path().join("events").join(file_of(&nqn))).unwrap();
        logs.write(&nqn, b"started".to_vec());
        assert_eq!(EventLogs::open(dir.path()).unwrap().read(&nqn), b"", "not written again");
        logs.write(&nqn, b"stopped".to_vec());
        assert_eq!(EventLogs::open(dir.path()).unwrap().read(&nqn), b"stopped");
    }
}
