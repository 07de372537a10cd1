//! Finding shared blocks that nothing refers to any more.
//!
//! Nobody counts references: a count would have to survive crashes together with every merge of the map
//! that finds one superseded. Instead the map is looked through, once for as many shared blocks
//! as a bounded memory has bits for, when space is wanted and references were dropped since the last
//! time: those of its tables that have references, and of volumes with snapshots or clones all, for
//! where an old version lay is its name. What has no reference then never has one again: references come of references only. Those
//! that come up behind the look are heard of as the map learns them, and those still on their way the
//! log knows.

use std::cell::Cell;
use std::rc::Rc;

use super::base::Base;
use super::candidates::{Candidates, Seeking, Sought};
use super::keeper::MapKeeper;
use crate::address::{Key, Location, SharedBlockId, Version, View};
use crate::canary::{self, Canary, Step};
use crate::error::Result;
use crate::segment::{Owner, Stream};

/// References superseded, and snapshots deleted, whose old versions are references as well.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Dropped {
    references: u64,
    snapshots: u64,
}

/// Finds shared blocks without a reference.
pub struct Sweep {
    base: Rc<Base>,
    keeper: Rc<MapKeeper>,
    sought: Rc<Sought>,
    /// What had been dropped when the last one began; none when the log kept
    /// blocks from it, which the next one looks at again.
    swept: Cell<Option<Dropped>>,
}

impl Sweep {
    #[must_use]
    pub fn new(base: Rc<Base>, keeper: Rc<MapKeeper>, sought: Rc<Sought>) -> Self {
        Self { base, keeper, sought, swept: Cell::new(None) }
    }

    /// Finds shared blocks that nothing refers to any more, and makes holes of them. Tells whether
    /// there were any. What of the map's references was superseded and not merged counts.
    ///
    /// # Errors
    /// As [`MapKeeper::flush`].
    pub async fn sweep(&self) -> Result<bool> {
        if self.is_swept() {
            return Ok(false);
        }
        let dropped = self.dropped();
        let (mut swept, mut complete) = (false, true);
        let mut from = Some(Key::new(View::SHARED, 0));
        while let Some(first) = from {
            let (_seeking, next) = self.gather(first).await?;
            from = next;
            if self.sought.is_empty() {
                break;
            }
            // Asked now: of what has a name by now, and is no reference, an old version is needed in these alone. What gets
            // one from now on is none of those sought.
            let old = self.base.common.snapshots.views();
            let keep = |at: Location, count| {
                // What lies there has that name, once it is an old version and was moved.
                let is_kept = at.name().is_some() || !canary::skips(Step::SweepKeepsOld);
                if is_kept {
                    self.sought.keep(SharedBlockId::of(at), count);
                }
            };
            self.base.map.scan_referring(&old, Key::new(View::SHARED, 0), keep).await?;
            // Whoever found a reference in the map has told the log by then.
            if !canary::skips(Step::SweepGrace) {
                self.base.grace.pass().await;
            }
            let (found, kept) = self.decide();
            (swept, complete) = (swept || !found.is_empty(), complete && !kept);
            self.forget(found).await?;
        }
        self.swept.set(complete.then_some(dropped));
        Ok(swept)
    }

    /// Whether a sweep would find nothing that the last one did not.
    pub fn is_swept(&self) -> bool {
        self.swept.get() == Some(self.dropped())
    }

    fn dropped(&self) -> Dropped {
        let snapshots = self.base.common.snapshots.deleted();
        Dropped { references: self.base.pages.references_dropped(), snapshots }
    }

    /// Takes as many shared blocks as there is room for as candidates, from `first` on. Gives where
    /// the next ones begin.
    async fn gather(&self, first: Key) -> Result<(Seeking<'_>, Option<Key>)> {
        let mut candidates = Candidates::new(self.base.writer.geometry().slots());
        let mut next = None;
        let gather = |key: Key, _, count, _| {
            let Some(name) = SharedBlockId::of_key(key) else { return true };
            if candidates.add(name, count) {
                return true;
            }
            next = Some(key);
            false
        };
        self.base.map.scan(first, None, gather).await?;
        Ok((self.sought.begin(candidates), next))
    }

    /// The candidates that have no reference in the map, none in the log, and none on its way there;
    /// and whether the log alone kept others. Those may have been learnt and superseded already, so
    /// that the map has nothing more to tell of them once the log is trimmed.
    fn decide(&self) -> (Vec<(SharedBlockId, u32)>, bool) {
        let Some(mut found) = self.sought.take() else { return (Vec::new(), false) };
        let mut kept = false;
        if !canary::has(Canary::SweepsWhatLogRefersTo) {
            self.base.log.each_referred(|name| kept |= found.keep(name, 1));
        }
        (found.runs(), kept)
    }

    /// Makes holes of shared blocks, and waits until the map has learnt that.
    async fn forget(&self, found: Vec<(SharedBlockId, u32)>) -> Result<()> {
        if found.is_empty() {
            return Ok(());
        }
        for (name, count) in found {
            let owner = Owner::Hole { key: name.key(), blocks: u64::from(count) };
            let append =
                || self.base.writer.try_append(Stream::Reclaim, owner, Version::FIRST, &[], &[]);
            while append().is_none() {
                self.base.writer.make_room(Stream::Reclaim).await?;
            }
        }
        self.keeper.settle_reclaim().await
    }
}
