//! What all users of a volume share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use reactor::cross_core::Lock;

use crate::address::{BLOCK, Version, View};
use crate::error::{Error, Kind, Result};
use crate::format::catalog::{Catalog, Object};

pub const BLOCK_BYTES: u64 = BLOCK as u64;

/// What is asked where a clone has nothing of its own: a view, as of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ancestor {
    pub view: View,
    pub sees: Version,
}

/// Where a clone came from, by what identifies that for ever, whether it is still there or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The volume.
    pub volume: [u8; 16],
    /// The snapshot of it, if that was there when the pool was opened.
    pub snapshot: Option<[u8; 16]>,
}

/// What a volume was before it was what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage {
    /// Where it came from, if it is a clone.
    pub origin: Option<Origin>,
    /// The views that it had before it was rolled back.
    pub former: Vec<View>,
}

/// Nobody knows how many: no volume has so many blocks.
const UNCOUNTED: u64 = u64::MAX;

/// Blocks with contents that a volume has, or a snapshot sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupied {
    pub referenced: u64,
    /// Of those, what none of its snapshots sees; of a snapshot, what no other does, nor hosts.
    pub unique: u64,
    /// What snapshots of it see, and hosts do not.
    pub held: u64,
    /// What it began with, as a clone or where it was rolled back, whether it was overwritten since or not, if that is known.
    pub inherited: Option<u64>,
}

impl std::iter::Sum for Occupied {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self { inherited: Some(0), ..Self::default() }, |sum, one| Self {
            referenced: sum.referenced + one.referenced,
            unique: sum.unique + one.unique,
            held: sum.held + one.held,
            inherited: sum.inherited.zip(one.inherited).map(|(sum, one)| sum + one),
        })
    }
}

fn bytes_of(blocks: &AtomicU64) -> Option<u64> {
    let blocks = blocks.load(Ordering::Acquire);
    (blocks != UNCOUNTED).then(|| blocks.saturating_mul(BLOCK_BYTES))
}

/// What is asked where a view has nothing of what is seen of it, up to a version or all: its parent, as of the version that
/// it sees, and what that one's parent is, one behind another. `None` unless it is a clone's.
#[must_use]
pub fn ancestors(catalog: &Catalog, view: View, sees: Option<Version>) -> Option<Arc<[Ancestor]>> {
    let mut all = Vec::new();
    let mut at = (view, sees);
    while let Some(clone) = catalog.get(at.0).filter(|of| of.inherits(at.1))
        && let (Some(view), Some(sees)) = (clone.parent, clone.sees())
    {
        all.push(Ancestor { view, sees });
        at = (view, Some(sees));
    }
    (!all.is_empty()).then(|| all.into())
}

/// What all users of a volume share. Changes when the volume does.
#[derive(Debug)]
pub struct State {
    pub view: View,
    /// The last version of the view that it sees, if it is a snapshot: nobody changes that.
    pub sees: Option<Version>,
    /// What is asked where the view has nothing, if it is a clone's, until it has all of that itself.
    ancestors: Option<Arc<[Ancestor]>>,
    detached: AtomicBool,
    /// Bytes looked through while it is given that; [`UNCOUNTED`] where it is not.
    detaching: AtomicU64,
    /// All that change it take turns.
    takes_turns: AtomicBool,
    /// A host has a direct write window of it: what is there is to be taken before anything else is done with it.
    window: AtomicBool,
    pub lineage: Lineage,
    /// Which shards its blocks are of follows from it.
    placement: u32,
    pub id: [u8; 16],
    pub name: Lock<String>,
    bytes: AtomicU64,
    /// Blocks that have contents, as of the last count; [`UNCOUNTED`] before the first. Those that nobody else sees of
    /// them, and what only snapshots have.
    used: AtomicU64,
    unique: AtomicU64,
    held: AtomicU64,
    inherited: AtomicU64,
    pub block_size: u32,
    /// Set when the volume or its pool went: whoever still holds it is told.
    gone: AtomicBool,
    /// Set once the pool could not keep what it was given.
    failed: AtomicBool,
}

impl State {
    #[must_use]
    pub fn new(volume: &Object) -> Self {
        Self {
            view: volume.view,
            sees: None,
            ancestors: None,
            detached: AtomicBool::new(false),
            detaching: AtomicU64::new(UNCOUNTED),
            takes_turns: AtomicBool::new(volume.detaching),
            window: AtomicBool::new(false),
            lineage: Lineage::default(),
            placement: volume.placement,
            id: volume.id,
            name: Lock::new(volume.name.to_string()),
            bytes: AtomicU64::new(volume.bytes),
            used: AtomicU64::new(UNCOUNTED),
            unique: AtomicU64::new(UNCOUNTED),
            held: AtomicU64::new(UNCOUNTED),
            inherited: AtomicU64::new(UNCOUNTED),
            block_size: volume.block_size,
            gone: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        }
    }

    /// Of a volume of a catalog.
    #[must_use]
    pub fn of(volume: &Object, lineage: Lineage, catalog: &Catalog) -> Self {
        Self { ancestors: ancestors(catalog, volume.view, None), lineage, ..Self::new(volume) }
    }

    /// Of a snapshot of this view of a catalog, up to this version.
    #[must_use]
    pub fn of_snapshot(snapshot: &Object, view: View, sees: Version, catalog: &Catalog) -> Self {
        let ancestors = ancestors(catalog, view, Some(sees));
        Self { view, sees: Some(sees), ancestors, ..Self::new(snapshot) }
    }

    /// What is asked where the view has nothing, if it is a clone's.
    #[must_use]
    #[inline]
    pub fn ancestors(&self) -> Option<&Arc<[Ancestor]>> {
        self.ancestors.as_ref().filter(|_| !self.detached.load(Ordering::Acquire))
    }

    /// It has all that it inherits as its own.
    pub fn set_detached(&self) {
        self.detached.store(true, Ordering::Release);
    }

    /// Bytes of it looked through while it is given what it inherits.
    #[must_use]
    pub fn detaching(&self) -> Option<u64> {
        let done = self.detaching.load(Ordering::Acquire);
        (done != UNCOUNTED).then_some(done)
    }

    /// As [`detaching`](Self::detaching) tells from now on.
    pub fn set_detaching(&self, done: Option<u64>) {
        self.detaching.store(done.unwrap_or(UNCOUNTED), Ordering::Release);
    }

    /// Has all that change it take turns, or not, from now on; whoever began before does not.
    pub fn take_turns(&self, does: bool) {
        self.takes_turns.store(does, Ordering::Release);
    }

    /// Whether all that change the same blocks take turns: where users write less than whole ones as a matter of course, or
    /// the pool looks what is there before it puts something there.
    #[must_use]
    #[inline]
    pub fn takes_turns(&self) -> bool {
        self.has_small_blocks() || self.takes_turns.load(Ordering::Acquire)
    }

    /// Whether a host has a direct write window of it: what is there is to be taken before anything else is done.
    #[must_use]
    #[inline]
    pub fn has_window(&self) -> bool {
        self.window.load(Ordering::Acquire)
    }

    /// As [`has_window`](Self::has_window) tells from now on.
    pub fn set_window(&self, has: bool) {
        self.window.store(has, Ordering::Release);
    }

    /// Which shards its blocks are of follows from it.
    #[must_use]
    pub const fn placement(&self) -> u32 {
        self.placement
    }

    /// The pool could not keep what it was given.
    pub fn note_failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Whether the pool could not keep what it was given.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    pub fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Release);
    }

    /// Bytes that have contents, as of the last count; `None` before the first.
    #[must_use]
    pub fn used(&self) -> Option<u64> {
        bytes_of(&self.used).map(|bytes| bytes.min(self.bytes()))
    }

    /// Of those, bytes that neither its snapshots see nor, if it is one, others and hosts.
    #[must_use]
    pub fn unique(&self) -> Option<u64> {
        bytes_of(&self.unique).map(|bytes| bytes.min(self.bytes()))
    }

    /// Bytes that snapshots of it see, and hosts do not any more.
    #[must_use]
    pub fn held(&self) -> Option<u64> {
        bytes_of(&self.held)
    }

    /// Bytes that it began with, as a clone or where it was rolled back, and keeps.
    #[must_use]
    pub fn inherited(&self) -> Option<u64> {
        bytes_of(&self.inherited)
    }

    /// So many blocks have contents.
    pub fn set_used(&self, blocks: u64) {
        self.used.store(blocks, Ordering::Release);
    }

    pub fn set_occupied(&self, occupied: Occupied) {
        let Occupied { referenced, unique, held, inherited } = occupied;
        self.set_used(referenced);
        self.unique.store(unique, Ordering::Release);
        self.held.store(held, Ordering::Release);
        self.inherited.store(inherited.unwrap_or(UNCOUNTED), Ordering::Release);
    }

    /// From now on every request is refused.
    pub fn close(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Whether users write less than whole blocks as a matter of course.
    #[must_use]
    pub fn has_small_blocks(&self) -> bool {
        u64::from(self.block_size) < BLOCK_BYTES
    }

    /// Refuses what is outside of the volume, and everything once it is gone.
    ///
    /// # Errors
    /// `Gone`, `OutOfRange`.
    pub fn check(&self, offset: u64, len: u64) -> Result<()> {
        if self.gone.load(Ordering::Acquire) {
            return Err(Error::new(Kind::Gone, "the volume was closed or deleted"));
        }
        match offset.checked_add(len) {
            Some(end) if end <= self.bytes() => Ok(()),
            _ => {
                let context = format!("{len} bytes at {offset} are not inside the volume");
                Err(Error::new(Kind::OutOfRange, context))
            }
        }
    }

    /// As [`check`](Self::check), of a change.
    ///
    /// # Errors
    /// As there; `Invalid` for a snapshot.
    #[inline]
    pub fn check_change(&self, offset: u64, len: u64) -> Result<()> {
        if self.sees.is_some() {
            return Err(Error::new(Kind::Invalid, "a snapshot cannot be changed"));
        }
        self.check(offset, len)
    }
}
