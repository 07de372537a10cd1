//! The commit log of a pool is moved to other places while hosts write. Both places are known to the node before
//! anything is written there: whatever ends it, the pool opens with the one that its drives say has the log.

use api::v1::{Kind, LogChange, LogMove, LogMoved, LogPolicy, Pool, Severity};
use api::value::{LogPlace, Name};

use super::Node;
use crate::jobs::Task;
use crate::pools::NotMoved;
use crate::{Error, Result};

impl Node {
    /// Moves the log of an open pool.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` for places that cannot have it, `Conflict` for what is in use, `Failed`.
    pub fn move_log(&self, name: &Name, change: &LogMove) -> Result<LogMoved> {
        self.shift_log(name, change, &Task::default())
    }

    /// Changes what becomes of writes while the log of an open pool has fewer devices than it is to have.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` while the pool is not open, `Invalid` for a log that waits for none.
    pub fn change_log(&self, name: &Name, change: &LogChange) -> Result<Pool> {
        self.view().serving()?.pools.pool(name)?.set_log_policy(change.policy)?;
        let words = match change.policy {
            LogPolicy::Wait => {
                format!("writes to pool {name} wait from now on while its log has too few copies")
            }
            LogPolicy::Continue => {
                format!("writes to pool {name} go on from now on while its log has too few copies")
            }
        };
        self.events.record(Severity::Info, words);
        self.pool(name)
    }

    pub(super) fn shift_log(&self, name: &Name, change: &LogMove, task: &Task) -> Result<LogMoved> {
        task.step(0, 1, "looks whether it can be moved")?;
        let (pool, node) = {
            let view = self.view();
            let pools = &view.serving()?.pools;
            (pools.pool(name)?, pools.opener().node)
        };
        let to = &change.to;
        let status = pool.status()?;
        let from = pool.places();
        check(&from, to)?;
        let size = status.log.device_bytes;
        let mut moved = LogMoved { pool: name.clone(), from, to: to.clone(), size, moved: false };
        if change.dry_run {
            return Ok(moved);
        }
        task.commit(0, 1, "moves it")?;
        let (of, from, there) = (name.clone(), moved.from.clone(), to.clone());
        self.owner.ask(move |owned| {
            owned.serving_mut()?.pools_mut().begin_move(&of, &there)?;
            let kept = owned.keep();
            if kept.is_err() {
                owned.serving_mut()?.pools_mut().end_move(&of, Some(from));
            }
            kept
        })?;
        let done = pool.move_log(to, node);
        let now = match &done {
            Ok(()) => Some(to.clone()),
            Err(NotMoved { is_sure: true, .. }) => Some(moved.from.clone()),
            Err(NotMoved { is_sure: false, .. }) => None,
        };
        let of = name.clone();
        let kept = self.owner.ask(move |owned| {
            owned.serving_mut()?.pools_mut().end_move(&of, now);
            Ok(owned.keep())
        })?;
        let (before, after) = (words(&moved.from), words(to));
        match done {
            Ok(()) => {
                let words = format!("the log of pool {name} was moved from {before} to {after}");
                self.events.record(Severity::Info, words);
            }
            Err(NotMoved { error, .. }) => {
                let words = format!("the log of pool {name} was not moved to {after}: {error}");
                self.events.record(Severity::Error, words);
                return Err(error);
            }
        }
        // It is there, and both places are known.
        kept?;
        moved.moved = true;
        Ok(moved)
    }
}

fn words(places: &[LogPlace]) -> String {
    places.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

fn check(from: &[LogPlace], to: &[LogPlace]) -> Result<()> {
    if to.is_empty() {
        return Err(Error::new(Kind::Invalid, "nothing says where the log is to go")
            .help("name pmem:PATH, bbu:PATH, drives, or a namespace of another target"));
    }
    if let Some(same) = to.iter().find(|place| from.contains(place)) {
        return Err(Error::new(Kind::Invalid, format!("the log is at {same} already"))
            .help("name places that do not have it"));
    }
    if let Some(path) = to.iter().filter_map(LogPlace::path).find(|path| !path.is_absolute()) {
        let wrong = format!("\"{}\" is a relative path", path.display());
        return Err(Error::new(Kind::Invalid, wrong).help("write it from the root"));
    }
    Ok(())
}
