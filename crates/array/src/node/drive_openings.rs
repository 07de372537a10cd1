//! Drives of namespaces are opened beside each other and beside everything else, each by a thread of its own: one that
//! hangs holds up nothing but its namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use api::v1::Kind;
use hardware::Machine;
use reactor::now_exact;

use crate::desired::NamespaceDef;
use crate::limits::DRIVE_OPENERS;
use crate::pools::Opener;
use crate::serving::{LateDrive, OpenedDrive, Place};
use crate::{Error, Result};

/// What came of opening drives.
pub(super) type Opened = BTreeMap<Place, Result<OpenedDrive>>;

/// The opening of one.
#[derive(Debug)]
struct Opening {
    def: NamespaceDef,
    /// What came of it, once that is known.
    came: Option<Result<OpenedDrive>>,
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
    /// Opens drives, and waits for those of them that are begun now, for `limit` at most. What came of one that takes longer
    /// is given when it is asked for again, and it is not begun twice.
    pub fn open(
        &self,
        drives: &[LateDrive],
        (machine, opener): (&Machine, &Opener),
        limit: Duration,
    ) -> Opened {
        let until = now_exact().saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        let left = || Duration::from_nanos(until.saturating_sub(now_exact()));
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
            let waited = self.book.changed.wait_timeout_while(all, left(), is_full);
            all = waited.unwrap_or_else(PoisonError::into_inner).0;
            if under_way(&all) >= DRIVE_OPENERS {
                break;
            }
            let came = self.begin(drive.clone(), machine.clone(), opener.clone()).err().map(Err);
            all.insert(drive.place.clone(), Opening { def: drive.def.clone(), came });
            begun.insert(drive.place.clone());
        }
        let is_awaited = |all: &mut BTreeMap<Place, Opening>| {
            begun.iter().any(|place| all.get(place).is_some_and(|opening| opening.came.is_none()))
        };
        let waited = self.book.changed.wait_timeout_while(all, left(), is_awaited);
        let mut all = waited.unwrap_or_else(PoisonError::into_inner).0;
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
            ending.came = Some(OpenedDrive::open(&drive, &machine, &opener));
        };
        let thread = thread::Builder::new().name("open-drive".to_owned()).spawn(open);
        thread.map(drop).map_err(|error| Error::failed("cannot start a thread", error))
    }
}
