//! One block of the model: which versions of it a read may still show.

use super::{Moment, Serial};
use crate::contents::{Found, Stamp};

/// Contents: what a write put into a block, which may have been copied since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin {
    pub stamp: Stamp,
    pub volume: Serial,
    pub block: u64,
}

impl Origin {
    pub const ZERO: Self = Self { stamp: Stamp::ZERO, volume: 0, block: 0 };
    pub const LOST: Self = Self { stamp: Stamp(u64::MAX), volume: u64::MAX, block: u64::MAX };

    pub fn new(stamp: Stamp, volume: Serial, block: u64) -> Self {
        if stamp == Stamp::ZERO { Self::ZERO } else { Self { stamp, volume, block } }
    }

    /// What was found in a block of a volume, unless it is garbage.
    pub fn of(found: Found, at: Serial, number: u64) -> Option<Self> {
        match found {
            Found::Stamp(stamp) => Some(Self::new(stamp, at, number)),
            Found::Elsewhere { stamp, volume, block } => Some(Self::new(stamp, volume, block)),
            Found::Lost => Some(Self::LOST),
            Found::Garbage { .. } => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Version {
    /// What it is: one of several for a copy, of whatever its source had meanwhile. In order.
    pub origins: Vec<Origin>,
    pub begun: Moment,
    /// `None` while it is under way.
    pub ended: Option<Moment>,
    /// It surely happened. A write that failed or was cut off may not have.
    pub certain: bool,
    pub kind: Kind,
}

impl Version {
    /// Zeroes on their way.
    pub fn zeroes(begun: Moment) -> Self {
        let (origins, kind) = (vec![Origin::ZERO], Kind::Written);
        Self { origins, begun, ended: None, certain: false, kind }
    }

    pub fn may_be(&self, origin: Origin) -> bool {
        self.origins.binary_search(&origin).is_ok()
    }

    /// Those of `more`, in order, that it was not known to be so far: it may be those as well from now on.
    pub fn add(&mut self, more: &[Origin]) -> Vec<Origin> {
        let new: Vec<Origin> =
            more.iter().copied().filter(|origin| !self.may_be(*origin)).collect();
        if !new.is_empty() {
            self.origins.extend_from_slice(&new);
            self.origins.sort();
        }
        new
    }
}

/// How a version is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Written,
    /// A read showed it.
    Seen,
    /// A write whose host did not wait for the answer: it may come to light later, but not over a
    /// write that began after that.
    GivenUp,
    /// What was left when the log was lost: one of its origins, whichever a read shows first.
    Left,
}

/// The versions a block may still show, oldest first by beginning.
#[derive(Clone, Debug)]
pub(super) struct Register {
    pub versions: Vec<Version>,
    /// It was copied, from or to: it may share its contents.
    pub copied: bool,
    /// What no read can show any more, and may be all that is left should the log be lost; `None`
    /// where it never is.
    older: Option<Vec<Version>>,
    /// The newest that are surely on the drives.
    destaged: Newest,
}

/// The newest version, seen or written, and the newest one written: when they began.
#[derive(Clone, Copy, Debug, Default)]
struct Newest {
    any: Moment,
    written: Moment,
}

impl Newest {
    /// Of those that surely happened, and had ended before some moment.
    fn of<'a>(versions: impl Iterator<Item = &'a Version>, before: Moment) -> Self {
        let mut newest = Self::default();
        for v in versions.filter(|v| v.certain && v.ended.is_some_and(|ended| ended < before)) {
            newest.any = newest.any.max(v.begun);
            if v.kind != Kind::Seen {
                newest.written = newest.written.max(v.begun);
            }
        }
        newest
    }

    /// Whether it surely came over this one, which may come to light again otherwise.
    fn is_after(self, v: &Version) -> bool {
        let newest = if v.kind == Kind::GivenUp { self.written } else { self.any };
        v.ended.is_some_and(|ended| ended < newest)
    }
}

impl Register {
    /// Zeroes from the beginning. The log may be lost, or not.
    pub fn new(log_may_be_lost: bool) -> Self {
        let zeroes = Version {
            origins: vec![Origin::ZERO],
            begun: 0,
            ended: Some(0),
            certain: true,
            kind: Kind::Written,
        };
        let older = log_may_be_lost.then(Vec::new);
        Self { versions: vec![zeroes], copied: false, older, destaged: Newest::default() }
    }

    /// What a read begun at `reading` can surely not show anything from before.
    fn newest(&self, reading: Moment) -> Newest {
        Newest::of(self.versions.iter(), reading)
    }

    /// What it is known to be when a read shows `origin`, if it may: that, or lost already where it
    /// came out of memory.
    pub fn shows(&self, origin: Origin, reading: Moment) -> Option<Vec<Origin>> {
        let mut possible = self.possible(reading).filter(|v| v.may_be(origin)).peekable();
        possible.peek()?;
        let lost = possible.any(|v| v.may_be(Origin::LOST));
        Some([origin].into_iter().chain(lost.then_some(Origin::LOST)).collect())
    }

    pub fn may_be_lost(&self, reading: Moment) -> bool {
        self.possible(reading).any(|v| v.may_be(Origin::LOST))
    }

    pub fn allowed(&self, reading: Moment) -> Vec<Origin> {
        merged(self.possible(reading))
    }

    /// What a read begun at `reading` may show.
    fn possible(&self, reading: Moment) -> impl Iterator<Item = &Version> {
        let newest = self.newest(reading);
        self.versions.iter().filter(move |v| !newest.is_after(v))
    }

    pub fn end(&mut self, begun: Moment, now: Moment, certain: bool) {
        if let Some(version) = self.versions.iter_mut().find(|v| v.begun == begun) {
            version.ended = Some(now);
            version.certain = certain;
        }
    }

    pub fn give_up(&mut self, begun: Moment, now: Moment) {
        if let Some(version) = self.versions.iter_mut().find(|v| v.begun == begun) {
            (version.ended, version.kind) = (Some(now), Kind::GivenUp);
        }
    }

    /// Forgets what no read that runs or will run can show, unless it may come back without the log.
    pub fn prune(&mut self, oldest_read: Moment) {
        let newest = self.newest(oldest_read);
        let gone = self.versions.extract_if(.., |v| newest.is_after(v));
        match &mut self.older {
            Some(older) => older.extend(gone.filter(|v| !self.destaged.is_after(v))),
            None => drop(gone),
        }
    }

    /// Everything under way is cut off.
    pub fn cut_off(&mut self, now: Moment) {
        for version in &mut self.versions {
            version.ended.get_or_insert(now);
        }
        self.prune(Moment::MAX);
        let given_up = self.versions.iter_mut().filter(|v| v.kind == Kind::GivenUp);
        given_up.for_each(|v| (v.ended, v.kind) = (Some(now), Kind::Written));
    }

    /// A write that was cut off is under way again.
    pub fn resume(&mut self, begun: Moment) {
        let versions = self.versions.iter_mut().filter(|v| v.begun == begun);
        versions.for_each(|v| v.ended = None);
    }

    /// What it holds may be lost.
    pub fn rot(&mut self) {
        for version in self.versions.iter_mut().chain(self.older.iter_mut().flatten()) {
            // Zeroes are holes.
            if version.origins.iter().any(|origin| *origin != Origin::ZERO) {
                version.add(&[Origin::LOST]);
            }
        }
    }

    /// Whether something may have come over what was answered before `since`.
    pub fn is_overwritten(&self, since: Moment) -> bool {
        let all = || self.versions.iter().chain(self.older.iter().flatten());
        let any = Newest::of(all(), since).any;
        all().any(|w| match w.kind {
            // Nobody knows when that comes.
            Kind::GivenUp => w.ended.is_none_or(|ended| ended >= any),
            Kind::Written | Kind::Left => w.ended.is_none_or(|ended| ended >= since),
            Kind::Seen => false,
        })
    }

    /// Whether all that it may hold was answered before `since`, and is known to be on the drives: it is not
    /// [overwritten](Self::is_overwritten), and [settling](Self::settle) it changes nothing.
    pub fn is_settled(&self, since: Moment) -> bool {
        let ([v], true) = (&self.versions[..], self.older.as_ref().is_none_or(Vec::is_empty))
        else {
            return false;
        };
        let is_answered = v.certain && v.ended.is_some_and(|ended| ended < since);
        let Newest { any, written } = self.destaged;
        is_answered
            && any == v.begun
            && match v.kind {
                Kind::Written | Kind::Left => written >= v.begun,
                Kind::Seen => true,
                Kind::GivenUp => false,
            }
    }

    /// Everything that was answered before `since` has left the log: it is on the drives, and stays there without
    /// the log. Not for what was [overwritten](Self::is_overwritten) while it was still in the log: that never goes to a
    /// drive, and what came over it is in the log perhaps. Then the drives have what they had.
    pub fn settle(&mut self, since: Moment) {
        let Some(older) = &mut self.older else { return };
        let mut destaged = Newest::of(self.versions.iter().chain(older.iter()), since);
        destaged.written = destaged.written.max(self.destaged.written);
        self.destaged = destaged;
        older.retain(|v| !destaged.is_after(v));
    }

    /// The log is lost: any version since those that were on the drives may be left.
    pub fn lose_log(&mut self, now: Moment) {
        let all = self.versions.iter().chain(self.older.iter().flatten());
        let origins = merged(all);
        let (begun, ended) = (now, Some(now));
        self.versions = vec![Version { origins, begun, ended, certain: true, kind: Kind::Left }];
        self.older = Some(Vec::new());
        // What is left is on the drives.
        self.destaged = Newest { any: now, written: now };
    }

    /// A read showed `origin`: if that can only be what was left when the log was lost, that is it.
    pub fn know_left(&mut self, origin: Origin) {
        let mut with = self.versions.iter_mut().filter(|v| v.may_be(origin));
        if let (Some(left), None) = (with.next(), with.next())
            && left.kind == Kind::Left
        {
            left.origins.retain(|other| [origin, Origin::LOST].contains(other));
        }
    }
}

/// All that these may be, in order.
fn merged<'a>(versions: impl Iterator<Item = &'a Version>) -> Vec<Origin> {
    let mut all: Vec<Origin> = versions.flat_map(|v| v.origins.iter().copied()).collect();
    // Those of each version are in order, and of some there are many: a sort that knows what is in order already.
    all.sort();
    all.dedup();
    all
}
