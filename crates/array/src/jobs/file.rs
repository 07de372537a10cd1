//! Jobs as they are kept in the state directory.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use api::v1::{JobKind, JobState, Kind, Problem};
use serde::{Deserialize, Serialize};

use super::{Jobs, Made, Record, pool_of, tell};
use crate::limits::{JOB_NUMBERS, JOBS_BYTES};
use crate::state::{State, StateDir, read_file, replace_file, set_aside};
use crate::{Error, Result, events};

/// The jobs' file in the state directory.
const FILE: &str = "jobs.json";

/// What the file holds.
#[derive(Debug, Serialize, Deserialize)]
struct Kept<R> {
    version: u32,
    /// Numbers below this one were given.
    next: u64,
    jobs: Vec<R>,
}

fn read(file: &Path) -> io::Result<Kept<Record>> {
    let text = match read_file(file, JOBS_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Kept { version: 1, next: 1, jobs: Vec::new() });
        }
        text => text?,
    };
    let kept: Kept<Record> = serde_json::from_slice(&text)?;
    if kept.version != 1 {
        return Err(io::Error::other(format!("version {} is not 1", kept.version)));
    }
    // Whoever counts on from there does not come to the end.
    let newest = kept.jobs.iter().map(|record| record.job.id).max();
    if kept.next > u64::MAX / 2 || newest.is_some_and(|newest| newest >= kept.next) {
        return Err(io::Error::other("its numbers of jobs cannot be"));
    }
    Ok(kept)
}

impl Jobs {
    /// The jobs that are kept. Those that were under way are interrupted, unless `state` tells that they are done; gives
    /// what is to be said of the others. A list that cannot be read is set aside: hosts do not wait for it.
    pub fn load(dir: &StateDir, state: &State) -> (Self, Vec<String>) {
        let file = dir.path().join(FILE);
        let mut said = Vec::new();
        let Kept { next, jobs, .. } = read(&file).unwrap_or_else(|error| {
            said.push(format!(
                "the list of jobs begins anew, and what they did stays: {}",
                set_aside(&file, &error)
            ));
            Kept { version: 1, next: 1, jobs: Vec::new() }
        });
        let (mut all, mut settled) = (BTreeMap::new(), false);
        for mut record in jobs {
            record.is_kept = true;
            if !record.job.state.is_over() {
                settle(&mut record, state);
                settled = true;
                let error = record.job.error.as_ref();
                said.extend(error.map(|error| format!("{}: {error}", record.job.title())));
            }
            all.insert(record.job.id, Arc::new(record));
        }
        let all = Arc::new(all);
        let mut jobs = Self { next, written_next: next, all, is_unsaved: false, is_closed: false };
        // What became of them is told by how the node is now: later it may be another way.
        if settled && let Err(error) = jobs.save(dir) {
            said.push(format!("what became of jobs is not written down: {error}"));
        }
        (jobs, said)
    }

    /// Replaces the file.
    pub(super) fn save(&mut self, dir: &StateDir) -> Result<()> {
        // Not one write for the number of each job that is not kept.
        let next = if self.is_closed { self.next } else { self.next + JOB_NUMBERS };
        let jobs = self.all.values().map(Arc::as_ref).filter(|record| record.is_kept).collect();
        let text = serde_json::to_vec(&Kept::<&Record> { version: 1, next, jobs });
        let saved = text.map_err(io::Error::from).and_then(|text| {
            replace_file(dir.path(), FILE, &text)?;
            self.written_next = next;
            Ok(())
        });
        self.is_unsaved = saved.is_err();
        saved.map_err(|error| {
            Error::failed(format!("cannot write {FILE}"), error).help(format!(
                "make room in {}, and see that it can be written to",
                dir.path().display()
            ))
        })
    }
}

/// What became of a job that was under way when the daemon ended.
fn settle(record: &mut Record, state: &State) {
    let (job, was_known) = (&mut record.job, record.was_known);
    job.ended_ms = Some(events::now_ms());
    let name = pool_of(job);
    let is_known = name.as_ref().is_some_and(|name| state.pools.contains_key(name));
    let help = match (job.kind, name, was_known, is_known) {
        // It is known from then on, and opened whenever the node starts.
        (JobKind::PoolCreate | JobKind::PoolImport, Some(name), false, true) => {
            return tell(job, Made::Pool(name));
        }
        (JobKind::PoolExport | JobKind::PoolDelete, _, true, false) => {
            return tell(job, Made::Nothing);
        }
        (JobKind::PoolDelete, ..) => {
            "`flashloom pool list`: if it is there and not being deleted, delete it again"
        }
        (JobKind::PoolExport, ..) => {
            "`flashloom pool list`: it is gone if it was exported; if it is there, export it again"
        }
        (JobKind::PoolCreate, _, false, _) => {
            "nothing is known of it: name its drives by their names under /dev/disk/by-id and create it again; where one \
             is refused as not blank, look what is on it (`flashloom pool import --dry-run` shows pools, `lsblk -f` all \
             else) before --force takes it"
        }
        (JobKind::PoolCreate, ..) => {
            "`flashloom pool list` shows the pool that had the name before"
        }
        (JobKind::PoolImport, ..) => {
            "`flashloom pool list` shows whether it is open; if not, import it again"
        }
        (JobKind::LogMove, ..) => {
            "`flashloom pool show` tells where the log is by now; move it again if need be"
        }
        (JobKind::DriveAdd, ..) => {
            "`flashloom drive list` tells which drives are there; add the others again"
        }
        (JobKind::PoolRebuild | JobKind::DriveEvacuate | JobKind::DriveRemove, ..) => {
            "it goes on by itself once the pool is open: `flashloom job list`"
        }
        (JobKind::PoolScrub, ..) => "it goes on by itself from there, once the pool is open",
        (JobKind::VolumeDetach, ..) => {
            "it goes on by itself once the pool is open, unless it was done: `flashloom job list`, `flashloom volume show`"
        }
        (JobKind::DriveFail, ..) => {
            "`flashloom drive list` tells whether it is out; take it out again if not"
        }
        (JobKind::DriveRejoin | JobKind::DriveReplace, ..) => {
            "`flashloom drive list` tells whether the drive is made whole, which goes on by itself; ask again if it is \
             not"
        }
        (JobKind::VolumeCreate | JobKind::VolumeChange | JobKind::VolumeDelete, ..) => {
            "`flashloom volume list` shows what there is; ask again if it was not done"
        }
        (JobKind::GroupClone, ..) => {
            "`flashloom group list` shows whether the group is there; ask again if it is not"
        }
    };
    job.state = JobState::Interrupted;
    job.error = Some(Problem {
        kind: Kind::Failed,
        message: "the daemon ended in the midst of it".to_owned(),
        help: Some(help.to_owned()),
    });
}
