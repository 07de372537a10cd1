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
    place: Place,
    def: NamespaceDef,
    /// It was begun for somebody who asks for the drive, whichever it is: nothing was compared with what is known.
    is_asked: bool,
    /// Whoever began it waits for it still.
    is_waited_for: bool,
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

    /// Of what a change asks for.
    pub fn of_change() -> Self {
        #[cfg(test)]
        return Self { all: start_patience(), ..Self::LONG };
        #[cfg(not(test))]
        Self::LONG
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

/// By number.
type Openings = BTreeMap<u64, Opening>;

/// Openings under way, and those that nobody has asked after since they ended.
#[derive(Debug, Default)]
struct Book {
    all: Mutex<Openings>,
    changed: Condvar,
}

impl Book {
    fn lock(&self) -> MutexGuard<'_, Openings> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for those that were begun, with `limit` from `since` on.
    fn wait<'a>(
        &self,
        all: MutexGuard<'a, Openings>,
        begun: &BTreeSet<u64>,
        since: Nanos,
        limit: Limit,
    ) -> MutexGuard<'a, Openings> {
        let any = |all: &Openings, is: fn(&Opening) -> bool| {
            begun.iter().any(|number| all.get(number).is_some_and(is))
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
pub(super) fn left(since: Nanos, limit: Duration) -> Duration {
    limit.saturating_sub(Duration::from_nanos(now_exact().saturating_sub(since)))
}

/// The end of an opening, however it comes.
struct Ending {
    book: Arc<Book>,
    number: u64,
    came: Option<Result<OpenedDrive>>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let none = || Err(Error::new(Kind::Failed, "its opening was cut short"));
        if let Some(opening) = self.book.lock().get_mut(&self.number) {
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
    /// is given when it is asked for again; nothing else is begun of that drive meanwhile.
    pub fn open(
        &self,
        drives: &[LateDrive],
        (machine, opener): (&Machine, &Opener),
        limit: Limit,
    ) -> Opened {
        let since = now_exact();
        let under_way =
            |all: &Openings| all.values().filter(|opening| opening.came.is_none()).count();
        let is_wanted = |opening: &Opening| {
            drives.iter().any(|drive| {
                drive.place == opening.place
                    && drive.def == opening.def
                    && drive.is_asked() == opening.is_asked
            })
        };
        let mut begun = BTreeSet::new();
        let mut all = self.book.lock();
        // Others are let go of that nobody waits for: they hold their drives.
        all.retain(|_, one| one.came.is_none() || one.is_waited_for || is_wanted(one));
        for drive in drives {
            let is_it = |one: &Opening| one.def.backend.is_same_medium(&drive.def.backend);
            if all.values().any(is_it) {
                continue;
            }
            let is_full = |all: &mut BTreeMap<_, _>| under_way(all) >= DRIVE_OPENERS;
            let waited = self.book.changed.wait_timeout_while(all, left(since, limit.all), is_full);
            all = waited.unwrap_or_else(PoisonError::into_inner).0;
            if under_way(&all) >= DRIVE_OPENERS {
                break;
            }
            let number = all.last_key_value().map_or(0, |(last, _)| last + 1);
            let with = (machine.clone(), opener.clone());
            let came = self.begin(number, drive.clone(), with).err().map(Err);
            let opening = Opening {
                place: drive.place.clone(),
                def: drive.def.clone(),
                is_asked: drive.is_asked(),
                is_waited_for: true,
                answers: false,
                came,
            };
            all.insert(number, opening);
            begun.insert(number);
        }
        let mut all = self.book.wait(all, &begun, since, limit);
        for number in &begun {
            if let Some(opening) = all.get_mut(number) {
                opening.is_waited_for = false;
            }
        }
        let is_mine = |one: &Opening| one.came.is_some() && !one.is_waited_for && is_wanted(one);
        let ended: Openings = all.extract_if(.., |_, opening| is_mine(opening)).collect();
        drop(all);
        ended.into_values().filter_map(|opening| Some((opening.place, opening.came?))).collect()
    }

    fn begin(
        &self,
        number: u64,
        drive: LateDrive,
        (machine, opener): (Machine, Opener),
    ) -> Result<()> {
        let book = Arc::clone(&self.book);
        let open = move || {
            let mut ending = Ending { book, number, came: None };
            let answers = || {
                if let Some(opening) = ending.book.lock().get_mut(&ending.number) {
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
