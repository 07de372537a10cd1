//! Snapshots in a shard: taken by holding records of the log back for a moment, and read from the map alone, once all
//! that they see is there (decision 0026).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use stdx::num::u32_of;

use super::Front;
use crate::address::{BLOCK, Key, Version, View};
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
pub(super) struct Cuts {
    /// Of those there were when the shard was opened.
    opened: u64,
    /// Of others, as long as the log has that record.
    since: RefCell<BTreeMap<(View, Version), u64>>,
    /// The last one that the map is known to have all of.
    settled: Cell<u64>,
}

impl Cuts {
    /// Of a shard whose log ends before this record.
    pub(super) fn new(opened: u64) -> Self {
        Self { opened, since: RefCell::default(), settled: Cell::new(0) }
    }

    /// The record before which the log has all that a snapshot sees.
    fn of(&self, view: View, sees: Version) -> u64 {
        self.since.borrow().get(&(view, sees)).copied().unwrap_or(self.opened)
    }

    fn add(&self, taken: &[Taken], cut: u64) {
        let mut since = self.since.borrow_mut();
        since.extend(taken.iter().map(|taken| ((taken.view, taken.sees), cut)));
    }

    /// The map has all before this record: what was said of those is not needed any more.
    fn settle(&self, tail: u64) {
        if self.settled.replace(tail) < tail {
            self.since.borrow_mut().retain(|_, cut| *cut > tail);
        }
    }
}

impl Front {
    /// Lets nothing be reserved in the log until versions [were taken](Self::take_versions).
    pub fn pause_records(&self) {
        if !canary::skips(Step::SnapshotPauses) {
            self.base.log.pause();
        }
    }

    /// What is reserved from now on is of the next versions.
    pub fn take_versions(&self, taken: &[Taken]) {
        for Taken { view, next, .. } in taken {
            self.base.log.set_version(*view, *next);
        }
        self.base.log.resume();
    }

    /// Waits until all that was reserved before versions were taken is in the log, or was given up: from then on their
    /// snapshots do not change any more.
    pub async fn settle_versions(&self, taken: &[Taken]) {
        if !canary::skips(Step::SnapshotWaits) {
            self.base.log.between_records().await;
        }
        self.cuts.settle(self.base.log.tail());
        self.cuts.add(taken, self.base.log.head());
    }

    /// Waits until the map has all that a snapshot sees.
    pub(super) async fn carry(&self, view: View, sees: Version) -> Result<()> {
        loop {
            let tail = self.base.log.tail();
            self.cuts.settle(tail);
            if self.cuts.of(view, sees) <= tail || canary::skips(Step::SnapshotCarries) {
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

    /// Reads whole blocks of a view, from `first` on, as a snapshot sees it.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch); `Busy` while nothing leaves the log, for want of space or of drives.
    pub async fn read_as_of(
        &self,
        view: View,
        sees: Version,
        first: u64,
        out: &mut [u8],
    ) -> Result<()> {
        self.carry(view, sees).await?;
        let mut plan = self.spare_plan(Key::new(view, first));
        plan.reading = Some(self.base.grace.enter());
        let (blocks, extents) = (u32_of(out.len() / BLOCK), &mut plan.extents);
        self.base.map.lookup_as_of(view, sees, first, blocks, extents).await?;
        plan.learn(0);
        self.copy_pieces(&mut plan, out);
        Box::pin(self.fetch(plan, out)).await
    }
}
