//! Pools that lost more than their redundancy bears, by errors that passed: their labels can say nothing of that, so
//! what they know of their drives cannot be put right while they are open. Once enough drives answer again such a pool is
//! ended as the end of the process would end it, and opened as at a start.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::value::DrivePath;
use engine::DriveState;
use reactor::Nanos;
use uuid::Uuid;

use super::due::LOOK_AGAIN_NANOS;
use super::look::{peek, places};
use super::made_of::{Progress, open_drive_again};
use super::{Attempt, Condition, OpenPool, PoolDef, Pools};
use crate::limits::{LATE_TRIES, RETURN_PAUSE, RETURN_PAUSE_MAX};
use crate::{Error, Result};

/// A pool that is to be opened again.
#[derive(Debug)]
pub struct Reopening {
    pub pool: Arc<OpenPool>,
    /// What it lost, in words.
    pub why: String,
}

/// How long a pool that fails again and again is left as it is.
#[derive(Clone, Debug, Default)]
pub struct Pause {
    times: u32,
    /// When it was opened again last.
    last: Nanos,
}

impl Pause {
    fn is_over(&self) -> bool {
        let pause = RETURN_PAUSE.saturating_mul(2_u32.saturating_pow(self.times.saturating_sub(1)));
        self.times == 0 || self.gone() >= pause.min(RETURN_PAUSE_MAX)
    }

    fn gone(&self) -> Duration {
        Duration::from_nanos(reactor::now().saturating_sub(self.last))
    }

    fn begin(&mut self) {
        // One that was well for so long failed for another reason.
        let was_well = self.gone() >= 2 * RETURN_PAUSE_MAX;
        self.times = if was_well { 1 } else { self.times + 1 };
        self.last = reactor::now();
    }
}

/// Whether enough drives of a pool beyond its redundancy answer for it to be opened again. Waits for drives.
pub(super) fn is_time(pool: &OpenPool, def: &PoolDef, folders: &[PathBuf]) -> Result<bool> {
    // What is in memory would be gone. What may still come of what a drive was asked would change what is made of it.
    if def.drives.iter().any(|path| DrivePath::memory(path).is_some()) || pool.has_late_changes() {
        return Ok(false);
    }
    let status = pool.tried()?;
    // What the labels call out is of no use to an opening.
    let counting = status.drives.iter().enumerate().filter(|(_, drive)| !drive.out);
    let (there, lacking): (Vec<_>, Vec<_>) =
        counting.partition(|(_, drive)| drive.state == DriveState::Online);
    // To one that is being made whole labels are written, beside which nobody may try it.
    let failed = lacking.iter().filter(|(_, drive)| !drive.state.is_written());
    let wanted = failed.map(|(index, drive)| (*index, drive.id)).collect();
    let needed = status.drives.len().saturating_sub(usize::from(status.layout.parity));
    Ok(there.len() + answering(pool, def, folders, &wanted)? >= needed)
}

/// How many of these drives are found by their labels, and take writes.
fn answering(
    pool: &OpenPool,
    def: &PoolDef,
    folders: &[PathBuf],
    wanted: &BTreeMap<usize, [u8; 16]>,
) -> Result<usize> {
    let own = wanted.keys().filter_map(|index| def.drives.get(*index).cloned());
    let mut found = BTreeMap::new();
    let own = own.chain(def.drives_from.iter().cloned());
    for (path, label) in peek(pool.home(), own.chain(places(folders)).collect())? {
        let index = usize::from(label.drive);
        let id = label.drives.get(index).map(|record| record.id);
        if Uuid::from_bytes(label.pool) == pool.id()
            && id.is_some()
            && wanted.get(&index) == id.as_ref()
        {
            found.entry(index).or_insert(path);
        }
    }
    let mut answering = 0;
    for path in found.values() {
        let Ok((member, _lock)) = open_drive_again(path, |path| pool.own_lock(path)) else {
            continue;
        };
        // Nobody writes a label there: the pool took the drive out of use, and takes none back.
        let write = pool
            .home()
            .call(move || async move { engine::rewrite_older_label(&member.drive).await });
        let written = write
            .wait()
            .map_err(|_| Error::new(api::v1::Kind::Stopping, "the reactors have stopped"))?;
        answering += usize::from(written.is_ok());
    }
    Ok(answering)
}

impl Pools {
    /// Takes an open pool for one that is being opened, as it is about to be, with what it lacks waited for as long as at
    /// a start. `None` when it is not open any more, or has to be left alone for now.
    pub fn begin_again(&mut self, again: &Reopening, wait: Duration) -> Option<Attempt> {
        let name = again.pool.name();
        let known = self.known.get_mut(name)?;
        let is_open = known.pool().is_some_and(|open| Arc::ptr_eq(open, &again.pool));
        let pause = self.reopened.entry(name.clone()).or_default();
        // A log that is on its way comes to its end first.
        if !is_open || !known.def.log_to.is_empty() || !pause.is_over() {
            return None;
        }
        pause.begin();
        let now = reactor::now();
        let wait = Nanos::try_from(wait.as_nanos()).unwrap_or(Nanos::MAX);
        let progress = Progress::default();
        known.condition =
            Condition::opening(format!("beyond redundancy: {}", again.why), &progress);
        known.sight.clear();
        known.tries = LATE_TRIES;
        known.deadline = Some(now.saturating_add(wait));
        known.again = now.saturating_add(LOOK_AGAIN_NANOS);
        (known.is_routine, known.told, known.again_open) = (false, true, true);
        self.away.remove(name);
        self.watches.remove(name);
        Some(Attempt { name: name.clone(), def: known.def.clone(), degraded: false, progress })
    }
}
