//! Drives that a pool, or its node, lets go of: not before they have done what they were asked to write, which would come over
//! what somebody else writes there.

use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use reactor::now_exact;

use super::super::made_of::Member;
use super::OpenPool;
use crate::limits::REST_LOOK;
use crate::lock::{Lock, is_at};

/// A drive that is held though nothing of the pool needs it.
#[derive(Debug)]
pub(super) struct Leaving {
    /// The place it had.
    index: usize,
    path: PathBuf,
    /// Drives that were there then, by where they are in memory: another may be opened at the path, which comes back.
    drives: Vec<usize>,
    is_told: bool,
}

fn address(member: &Member) -> usize {
    Arc::as_ptr(&member.drive).addr()
}

/// Whether both lead to the same: names are several, and what was removed has its old one only.
fn is_same(one: &Path, other: &Path) -> bool {
    let real = one.canonicalize().ok();
    one == other || real.is_some() && other.canonicalize().ok() == real
}

impl OpenPool {
    /// Lets go of what holds this path, where a drive was that had this place; not where another one of the pool is by now:
    /// the system gives names anew. One that has not done all that it was asked to write is held until it has.
    pub fn unlock(&self, index: usize, path: &Path) {
        let at_path = |of: &Member| (of.path == path).then(|| address(of));
        let drives = self.media().iter().filter_map(at_path).collect();
        let leaving = Leaving { index, path: path.to_owned(), drives, is_told: false };
        let mut left = self.leaving();
        left.extend(self.still_held(leaving));
    }

    /// Lets go of those that had something to do yet, and are done with it.
    pub fn unlock_rest(&self) {
        let mut left = self.leaving();
        let again = std::mem::take(&mut *left).into_iter().filter_map(|of| self.still_held(of));
        left.extend(again.map(|of| {
            if !of.is_told {
                let (name, path) = (self.name(), of.path.display());
                tracing::warn!("{path} is out of pool {name}, and held while it may be written to");
            }
            Leaving { is_told: true, ..of }
        }));
    }

    fn leaving(&self) -> MutexGuard<'_, Vec<Leaving>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of one, unless it has something to do yet: then it gives that back.
    fn still_held(&self, of: Leaving) -> Option<Leaving> {
        let others = self.paths().into_iter().enumerate().filter(|(place, _)| *place != of.index);
        if others.filter_map(|(_, at)| at).any(|at| is_same(&of.path, &at)) {
            return None;
        }
        if self.changes_at(&of.path) {
            return Some(of);
        }
        // It stays open until the pool is closed.
        let media = self.media();
        let left = media.iter().filter(|member| of.drives.contains(&address(member)));
        left.for_each(|member| member.drive.unmark());
        drop(media);
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        // What was removed is at no path.
        locks.retain(|lock| lock.path() != of.path && !is_at(lock, &of.path));
        None
    }

    /// A drive is here now, which `lock` holds.
    pub fn moved(&self, index: usize, path: PathBuf, lock: Option<Arc<Lock>>) {
        let mut left = self.leaving();
        left.retain(|of| !is_same(&of.path, &path));
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        let places = paths.len().max(index + 1);
        paths.resize(places, None);
        paths[index] = Some(path);
        drop(paths);
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = lock.filter(|lock| !locks.iter().any(|own| Arc::ptr_eq(own, lock)));
        locks.extend(lock);
    }

    fn changes_at(&self, path: &Path) -> bool {
        self.media().iter().any(|member| member.path == path && member.drive.has_changes())
    }

    /// Waits until a drive at this path, which is out of use, has done all that it was asked to write, or for so long. Whether
    /// it has.
    pub fn await_rest_at(&self, path: &Path, patience: Duration) -> bool {
        let begun = now_exact();
        while self.changes_at(path) {
            if Duration::from_nanos(now_exact() - begun) >= patience {
                return false;
            }
            thread::park_timeout(REST_LOOK);
        }
        true
    }

    /// Whether the kernel may still change what a drive holds, with nobody waiting for it.
    pub fn has_late_changes(&self) -> bool {
        self.media().iter().any(|member| member.drive.has_late_changes())
    }

    /// Waits until the kernel has no change of its drives any more that nobody waits for, or for so long. Gives where
    /// those are that it still has some of.
    pub fn await_changes(&self, patience: Duration) -> Vec<PathBuf> {
        // What was replaced is nobody's of those who get the pool.
        let paths = self.paths();
        let is_own = |member: &&Member| paths.iter().flatten().any(|path| *path == member.path);
        let begun = now_exact();
        loop {
            let media = self.media();
            let late = media.iter().filter(|of| is_own(of) && of.drive.has_late_changes());
            let late: Vec<_> = late.map(|member| member.path.clone()).collect();
            drop(media);
            if late.is_empty() || Duration::from_nanos(now_exact() - begun) >= patience {
                return late;
            }
            thread::park_timeout(REST_LOOK);
        }
    }

    /// Where those of its drives are whose contents may still change.
    pub fn late_paths(&self) -> Vec<PathBuf> {
        let mut media = self.media();
        let late = media.iter_mut().filter_map(|of| (!is_at_rest(of)).then(|| of.path.clone()));
        late.collect()
    }
}

/// Whether nobody else has a drive, and the kernel has nothing of it: a task that is left of a closed pool could write
/// to it, and so could the kernel.
pub(super) fn is_at_rest(member: &mut Member) -> bool {
    Arc::get_mut(&mut member.drive).is_some_and(|drive| !drive.has_late_changes())
}
