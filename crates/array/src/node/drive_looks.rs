//! Looks at what lies on drives before anything is asked of them, each by a thread of its own: open(2) itself may hang.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use reactor::now_exact;

use super::drive_openings::left;
use crate::limits::DRIVE_OPENERS;
use crate::serving::does_not_answer;
use crate::{Error, Result};

/// Where it is being looked.
#[derive(Debug, Default)]
struct Book {
    paths: Mutex<BTreeSet<PathBuf>>,
    changed: Condvar,
}

impl Book {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A look, until it is dropped.
struct Looking {
    book: Arc<Book>,
    path: PathBuf,
}

impl Looking {
    /// Begins one where nobody looks, within `limit`.
    fn begin(book: &Arc<Book>, path: &Path, limit: Duration) -> Option<Self> {
        let is_kept_out =
            |paths: &mut BTreeSet<PathBuf>| paths.contains(path) || paths.len() >= DRIVE_OPENERS;
        let waited = book.changed.wait_timeout_while(book.lock(), limit, is_kept_out);
        let (mut paths, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if is_kept_out(&mut paths) {
            return None;
        }
        paths.insert(path.to_owned());
        Some(Self { book: Arc::clone(book), path: path.to_owned() })
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.book.lock().remove(&self.path);
        self.book.changed.notify_all();
    }
}

/// Looks under way.
#[derive(Debug, Default)]
pub(super) struct DriveLooks {
    book: Arc<Book>,
}

impl DriveLooks {
    /// What `look` finds at each of `paths`, waited for as long as a change waits for drives to be opened. No second
    /// look is begun where one hangs.
    ///
    /// # Errors
    /// `Failed` where one does not answer, and those of `look`.
    pub fn look_at<T: Send + 'static>(
        &self,
        paths: &[PathBuf],
        look: impl Fn(&Path) -> Result<T> + Clone + Send + 'static,
    ) -> Result<Vec<T>> {
        let (since, limit) = (now_exact(), patience());
        let (tell, told) = channel();
        for (number, path) in paths.iter().enumerate() {
            let looking = Looking::begin(&self.book, path, left(since, limit));
            let looking = looking.ok_or_else(|| does_not_answer(&path.display()))?;
            let (tell, look) = (tell.clone(), look.clone());
            let run = move || {
                let found = look(&looking.path);
                drop(looking);
                // Nobody may wait for it any more.
                let _ = tell.send((number, found));
            };
            let thread = thread::Builder::new().name("look-at-drive".to_owned()).spawn(run);
            thread.map(drop).map_err(|error| Error::failed("cannot start a thread", error))?;
        }
        drop(tell);
        let mut found = BTreeMap::new();
        while let Ok((number, of)) = told.recv_timeout(left(since, limit)) {
            found.insert(number, of);
        }
        let each = paths.iter().enumerate().map(|(number, path)| {
            found.remove(&number).unwrap_or_else(|| Err(does_not_answer(&path.display())))
        });
        each.collect()
    }
}

#[cfg(not(test))]
const fn patience() -> Duration {
    super::drive_openings::Limit::LONG.all
}

/// Tests are not about how busy their machine is.
#[cfg(test)]
fn patience() -> Duration {
    tests::PATIENCE.get()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Barrier;

    use super::*;

    thread_local! {
        /// How long looks of this thread are waited for.
        pub static PATIENCE: Cell<Duration> = const { Cell::new(Duration::from_secs(120)) };
    }

    /// An addition, a reload and an import hung for ever with open(2) of the drive, before there was any limit.
    #[test]
    fn a_look_at_a_drive_that_hangs_ends_and_is_the_only_one() {
        let looks = DriveLooks::default();
        let at = |name: &str| [PathBuf::from(name)];
        let (gate, long) = (Arc::new(Barrier::new(2)), PATIENCE.get());
        PATIENCE.set(Duration::ZERO);
        let hangs = {
            let gate = Arc::clone(&gate);
            move |_: &Path| {
                gate.wait();
                Ok(())
            }
        };
        let refused = looks.look_at(&at("hangs"), hangs).unwrap_err();
        assert!(refused.context.starts_with("hangs does not answer"), "{refused}");
        looks.look_at(&at("hangs"), |_| Ok(())).unwrap_err();
        PATIENCE.set(long);
        assert_eq!(looks.look_at(&at("well"), |_| Ok(7)).unwrap(), [7]);
        assert_eq!(looks.book.lock().len(), 1);
        gate.wait();
        assert_eq!(looks.look_at(&at("hangs"), |_| Ok(8)).unwrap(), [8]);
    }
}
