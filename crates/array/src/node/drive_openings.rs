//! Drives of namespaces are opened beside each other and beside everything else, each by a thread of its own: one that
//! hangs holds up nothing but its namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use api::v1::Kind;
use hardware::Machine;
use media::drive::WRITES_PATIENCE;
use reactor::{Nanos, now_exact};

use crate::desired::NamespaceDef;
use crate::limits::{DRIVE_OPENERS, DRIVE_PATIENCE};
use crate::pools::Opener;
use crate::serving::{LateDrive, OpenedDrive, Place};
use crate::{Error, Result};

/// What came of opening drives.
pub(super) type Opened = BTreeMap<Place, Result<OpenedDrive>>;

/// The opening of one.
#[derive(Debug)]
struct Opening {
    def: NamespaceDef,
    /// The drive answers: it is waited for until nobody else can write to it any more.
    answers: bool,
    /// What came of it, once that is known.
    came: Option<Result<OpenedDrive>>,
}

/// How long openings are waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// From the beginning.
    pub all: Duration,
    /// After that, those whose drives answer.
    pub more: Duration,
}

impl Limit {
    /// Of what is taken up later where it takes longer.
    pub const BRIEF: Self = Self { all: DRIVE_PATIENCE, more: Duration::ZERO };

    /// Of what hosts had before: a drive that a killed daemon still has writes for is theirs in some seconds, and hosts see
    /// no absent namespace meanwhile; one that does not even open may never be.
    pub fn of_start() -> Self {
        Self { all: start_patience(), more: WRITES_PATIENCE }
    }

    /// Of what is not taken up later.
    pub const LONG: Self =
        Self { all: DRIVE_PATIENCE.saturating_add(WRITES_PATIENCE), more: Duration::ZERO };
}

#[cfg(not(test))]
const fn start_patience() -> Duration {
    DRIVE_PATIENCE
}

/// Tests are not about how busy their machine is, but for those of drives that hang.
#[cfg(test)]
fn start_patience() -> Duration {
    tests::START.get()
}

/// Openings under way, and those that nobody has asked after since they ended.
#[derive(Debug, Default)]
struct Book {
    all: Mutex<BTreeMap<Place, Opening>>,
    changed: Condvar,
}

impl Book {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Place, Opening>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for those that were begun, with `limit` from `since` on.
    fn wait<'a>(
        &self,
        all: MutexGuard<'a, BTreeMap<Place, Opening>>,
        begun: &BTreeSet<Place>,
        since: Nanos,
        limit: Limit,
    ) -> MutexGuard<'a, BTreeMap<Place, Opening>> {
        let any = |all: &BTreeMap<Place, Opening>, is: fn(&Opening) -> bool| {
            begun.iter().any(|place| all.get(place).is_some_and(is))
        };
        let waited = self.changed.wait_timeout_while(all, left(since, limit.all), |all| {
            any(all, |opening| opening.came.is_none())
        });
        let (all, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let more = left(since, limit.all.saturating_add(limit.more));
        let waited = self.changed.wait_timeout_while(all, more, |all| {
            any(all, |opening| opening.came.is_none() && opening.answers)
        });
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// What is left of `limit` from `since` on.
fn left(since: Nanos, limit: Duration) -> Duration {
    limit.saturating_sub(Duration::from_nanos(now_exact().saturating_sub(since)))
}

/// The end of an opening, however it comes.
struct Ending {
    book: Arc<Book>,
    place: Place,
    came: Option<Result<OpenedDrive>>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let none = || Err(Error::new(Kind::Failed, "its opening was cut short"));
        if let Some(opening) = self.book.lock().get_mut(&self.place) {
            opening.came = Some(self.came.take().unwrap_or_else(none));
        }
        self.book.changed.notify_all();
    }
}

/// The drives of namespaces that are being opened.
#[derive(Debug, Default)]
pub(super) struct DriveOpenings {
    book: Arc<Book>,
}

impl DriveOpenings {
    /// Opens drives, and waits for those of them that are begun now, within `limit`. What came of one that takes longer
    /// is given when it is asked for again, and it is not begun twice.
    pub fn open(
        &self,
        drives: &[LateDrive],
        (machine, opener): (&Machine, &Opener),
        limit: Limit,
    ) -> Opened {
        let since = now_exact();
        let under_way = |all: &BTreeMap<Place, Opening>| {
            all.values().filter(|opening| opening.came.is_none()).count()
        };
        let mut begun = BTreeSet::new();
        let mut all = self.book.lock();
        for drive in drives {
            if all.contains_key(&drive.place) {
                continue;
            }
            let is_full = |all: &mut BTreeMap<_, _>| under_way(all) >= DRIVE_OPENERS;
            let waited = self.book.changed.wait_timeout_while(all, left(since, limit.all), is_full);
            all = waited.unwrap_or_else(PoisonError::into_inner).0;
            if under_way(&all) >= DRIVE_OPENERS {
                break;
            }
            let came = self.begin(drive.clone(), machine.clone(), opener.clone()).err().map(Err);
            let opening = Opening { def: drive.def.clone(), answers: false, came };
            all.insert(drive.place.clone(), opening);
            begun.insert(drive.place.clone());
        }
        let mut all = self.book.wait(all, &begun, since, limit);
        let ended: BTreeMap<_, _> =
            all.extract_if(.., |_, opening| opening.came.is_some()).collect();
        drop(all);
        // Of those that were asked for: others are let go of.
        let asked = |place: &Place, opening: &Opening| {
            drives.iter().any(|drive| drive.place == *place && drive.def == opening.def)
        };
        let ended = ended.into_iter().filter(|(place, opening)| asked(place, opening));
        ended.filter_map(|(place, opening)| Some((place, opening.came?))).collect()
    }

    fn begin(&self, drive: LateDrive, machine: Machine, opener: Opener) -> Result<()> {
        let (book, place) = (Arc::clone(&self.book), drive.place.clone());
        let open = move || {
            let mut ending = Ending { book, place, came: None };
            let answers = || {
                if let Some(opening) = ending.book.lock().get_mut(&ending.place) {
                    opening.answers = true;
                }
            };
            let came = OpenedDrive::open(&drive, &machine, &opener, &answers);
            ending.came = Some(came);
        };
        let thread = thread::Builder::new().name("open-drive".to_owned()).spawn(open);
        thread.map(drop).map_err(|error| Error::failed("cannot start a thread", error))
    }
}

#[cfg(test)]
pub(super) mod tests;
