//! Waiting until the map has all that snapshots see: what is in the log of that goes to the drives (decision 0026).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::base::Base;
use super::destage::Destage;
use crate::address::{Version, View};
use crate::canary::{self, Step};
use crate::error::{Error, Kind, Result};

/// A version of a view, which a snapshot sees the last of, and what is written from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    pub view: View,
    pub sees: Version,
    pub next: Version,
}

/// Up to which record the log has something that snapshots see.
struct Cuts {
    /// Of any of them: of those there were when the shard was opened, and since.
    last: Cell<u64>,
    /// Of those taken since, as long as the log has that record.
    since: RefCell<BTreeMap<(View, Version), u64>>,
    /// The last one that the map is known to have all of.
    settled: Cell<u64>,
}

impl Cuts {
    /// Of a shard whose log ends before this record.
    fn new(opened: u64) -> Self {
        Self { last: Cell::new(opened), since: RefCell::default(), settled: Cell::new(0) }
    }

    /// The record before which the log has all that a snapshot sees that was taken since the opening.
    fn of(&self, view: View, sees: Version) -> Option<u64> {
        self.since.borrow().get(&(view, sees)).copied()
    }

    fn add(&self, taken: &[Taken], cut: u64) {
        let mut since = self.since.borrow_mut();
        since.extend(taken.iter().map(|taken| ((taken.view, taken.sees), cut)));
        self.last.set(self.last.get().max(cut));
    }

    /// The map has all before this record: what was said of those is not needed any more.
    fn settle(&self, tail: u64) {
        let before = self.settled.replace(tail);
        assert!(before <= tail, "the log does not go back");
        if before < tail {
            self.since.borrow_mut().retain(|_, cut| *cut > tail);
        }
    }
}

/// Carries what snapshots see from the log to the map.
pub struct Carrying {
    base: Rc<Base>,
    destage: Rc<Destage>,
    cuts: Cuts,
}

impl Carrying {
    /// Of a shard that is being opened: what its log has may be seen by any snapshot there is.
    #[must_use]
    pub fn new(base: Rc<Base>, destage: Rc<Destage>) -> Self {
        let cuts = Cuts::new(base.log.head());
        Self { base, destage, cuts }
    }

    /// Snapshots were taken: they see something of the log before its end.
    pub fn note(&self, taken: &[Taken]) {
        self.cuts.settle(self.base.log.tail());
        self.cuts.add(taken, self.base.log.head());
    }

    /// Whether the map has all that a snapshot sees.
    pub fn has(&self, view: View, sees: Version) -> bool {
        let tail = self.base.log.tail();
        let has = tail >= self.cuts.last.get() || tail >= self.cut_of(view, sees);
        has || canary::skips(Step::SnapshotCarries)
    }

    /// The record before which the log has all that a snapshot sees. Of one that was there at the opening that is what the
    /// log had of it then, and not all that the log had: what others wrote may not leave it for long.
    fn cut_of(&self, view: View, sees: Version) -> u64 {
        self.cuts.of(view, sees).unwrap_or_else(|| self.base.log.opened_before(view, sees))
    }

    /// Waits until the map has all that a snapshot sees.
    ///
    /// # Errors
    /// `Busy` while nothing leaves the log, for want of space or of drives; `Gone` when the shard ends; `Failed` when its
    /// drives failed.
    pub async fn carry(&self, view: View, sees: Version) -> Result<()> {
        self.carry_before(|| self.cut_of(view, sees)).await
    }

    /// Waits until the map has all that the snapshots see that there are now.
    ///
    /// # Errors
    /// As [`carry`](Self::carry).
    pub async fn carry_all(&self) -> Result<()> {
        let cut = self.cuts.last.get();
        self.carry_before(|| cut).await
    }

    /// Waits until the map has all that the log has now.
    ///
    /// # Errors
    /// As [`carry`](Self::carry).
    pub async fn carry_log(&self) -> Result<()> {
        let head = self.base.log.head();
        self.carry_before(|| head).await
    }

    /// Waits until the map has all that the log had before a record.
    async fn carry_before(&self, cut: impl Fn() -> u64) -> Result<()> {
        loop {
            let tail = self.base.log.tail();
            self.cuts.settle(tail);
            if cut() <= tail || canary::skips(Step::SnapshotCarries) {
                return Ok(());
            }
            self.base.writer.check()?;
            if let Some(why) = self.base.refuses() {
                let what = "some of what the snapshot sees is in the log, and nothing leaves that";
                return Err(Error::caused(Kind::Busy, what, why.error()));
            }
            if self.base.has_ended() {
                return Err(Error::new(Kind::Gone, "the pool was closed"));
            }
            self.destage.run_unless_hindered().await;
        }
    }
}
