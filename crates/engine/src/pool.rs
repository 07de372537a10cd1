//! Pools: drives put together, and the volumes on them.

mod add;
mod assemble;
mod breakdown;
mod changes;
mod clones;
mod copies;
mod create;
mod delete_snapshots;
mod detach;
mod discard;
mod group_clones;
mod groups;
mod identity;
mod labels;
mod lineage;
mod look;
mod members;
mod move_log;
mod newest;
mod open;
mod quotas;
mod rebuild;
mod rejoin;
mod replace;
mod reservations;
mod rollback;
mod scrub;
mod snapshots;
mod space;
mod status;
mod volumes;
mod windows;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use media::{Drive, Pmem};
use reactor::sync::{Held, Semaphore};

use crate::address::View;
use crate::canary::{self, Step};
use crate::common::Common;
use crate::error::Result;
use crate::format::label::{Label, Layout, PoolState};
use crate::log::LogDevice;
use crate::shard::Shard;
use crate::shard::rejoin::Throttle;
use crate::shard_handle::ShardHandle;
use crate::volume;

pub use breakdown::{Breakdown, PoolPlan};
pub use changes::{ChangedExtent, Changes};
pub use clones::CloneSpec;
pub(crate) use create::device;
pub use delete_snapshots::SnapshotName;
pub use detach::Detaching;
pub use discard::Discards;
pub use group_clones::GroupCloneSpec;
pub use groups::{GroupChange, GroupSnapshotSpec, GroupSpec, GroupStatus};
pub(crate) use identity::ring;
pub use labels::{Unknown, look_at_labels};
pub use open::OpenOptions;
pub use rebuild::Rebuild;
pub use rejoin::Rejoin;
pub use rollback::RollbackSpec;
pub use scrub::{Scrub, ScrubPosition};
pub use snapshots::{SnapshotSpec, SnapshotStatus};
pub use status::{DriveStatus, LogStatus, PoolStatus, SpaceAudit, Spread, VolumeStatus};
pub use volumes::VolumeSpec;
pub use windows::{GrantedRing, GrantedWindow, WindowEnd};

/// What a pool is made of.
#[derive(Clone, Debug)]
pub struct PoolSpec {
    pub name: String,
    /// What identifies it for ever; drawn at random.
    pub id: [u8; 16],
    /// Its drives, whose contents are lost.
    pub drives: Vec<Arc<Drive>>,
    pub scheme: raid::Scheme,
    pub log: LogSpec,
    /// Bytes of the commit log, of all shards together; `None` for a size that suits.
    pub log_bytes: Option<u64>,
    /// Shards it is cut into for ever; `None` for one for each reactor, as far as its size allows.
    pub shards: Option<u16>,
    /// Bytes of an allocation unit, a power of two; `None` for a size that suits.
    pub au_bytes: Option<u64>,
    /// Seconds since 1970.
    pub created: u64,
}

/// Where a pool's commit log lies.
#[derive(Clone, Debug)]
pub enum LogSpec {
    /// Persistent memory: one device, or two that mirror each other.
    Pmem(Vec<Arc<Pmem>>),
    /// Memory that the operator says survives; likewise.
    Bbu(Vec<Arc<Pmem>>),
    /// Zones on the pool's own drives, on one more than it bears the loss of.
    Drives,
    /// Namespaces of other targets, beside memory here where there is any: all mirror each other.
    Remote(Vec<LogDevice>),
}

/// An open pool. Cloning shares it. Belongs to one reactor; its shards have theirs.
#[derive(Clone)]
pub struct Pool(Rc<Inner>);

struct Inner {
    common: Arc<Common>,
    /// The ways to its shards.
    handles: Arc<[ShardHandle]>,
    volumes: RefCell<BTreeMap<String, Arc<volume::state::State>>>,
    /// By the number of each.
    snapshots: RefCell<BTreeMap<View, Arc<volume::state::State>>>,
    /// One change of the volumes at a time.
    changing: Semaphore,
    /// One change of the log's devices at a time.
    moving: Semaphore,
    /// One drive is taken back at a time, and one made whole; beside that, one counts at a time that came to a place where
    /// nothing lies.
    taking_back: Semaphore,
    rejoining: Semaphore,
    widening: Semaphore,
    /// How fast drives are made whole.
    throttle: Arc<Throttle>,
    /// Namespaces of other targets that have the log, or had it.
    remotes: RefCell<Vec<copies::RemoteCopy>>,
    /// What that will be of a log that was moved, and not all drives have labels that say so.
    half_moved: RefCell<Option<Vec<copies::RemoteCopy>>>,
    /// Drives that were taken back since the pool was opened, by index.
    returned: RefCell<BTreeMap<u16, rejoin::Returned>>,
    /// Drives that are being emptied, or were last.
    rebuilding: RefCell<Option<rebuild::Rebuilding>>,
    scrubbing: RefCell<Option<scrub::Scrubbing>>,
    /// Clones that are being given what they inherit.
    detaching: RefCell<BTreeMap<View, Rc<detach::Job>>>,
    /// Drives are told of the space that becomes free.
    discards: Cell<bool>,
    closed: Cell<bool>,
    /// Changes of volumes that found no room for their last step are ended behind everything else.
    ending: Cell<bool>,
    /// Its drives are being looked at.
    looking: Cell<bool>,
    /// Something is written for what such a look found.
    look_writes: Semaphore,
    looks: RefCell<look::Looks>,
    /// It was opened without its log, which was lost.
    log_lost: Cell<bool>,
    /// It was opened without devices of its log, in which nothing was.
    log_rebuilt: Cell<bool>,
    /// Devices that the log was to be copied to since the pool was opened, and those it was.
    joined: Cell<u64>,
    copies_made: Cell<u64>,
    /// Windows that were ended for what their hosts did, or found damaged, and were not told of yet.
    window_ends: RefCell<Vec<WindowEnd>>,
    /// Volumes that have a window.
    windows: RefCell<BTreeMap<View, windows::Open>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Who keeps the copies of the log sees that there is no pool any more.
        self.common.superblock.members.wake();
    }
}

impl Inner {
    fn new(common: Arc<Common>, handles: Arc<[ShardHandle]>) -> Self {
        Self {
            common,
            handles,
            volumes: RefCell::default(),
            snapshots: RefCell::default(),
            changing: Semaphore::new(1),
            taking_back: Semaphore::new(1),
            rejoining: Semaphore::new(1),
            widening: Semaphore::new(1),
            throttle: Arc::default(),
            remotes: RefCell::default(),
            half_moved: RefCell::default(),
            returned: RefCell::default(),
            rebuilding: RefCell::default(),
            scrubbing: RefCell::default(),
            detaching: RefCell::default(),
            discards: Cell::new(false),
            closed: Cell::new(false),
            ending: Cell::new(false),
            looking: Cell::new(false),
            look_writes: Semaphore::new(1),
            looks: RefCell::default(),
            moving: Semaphore::new(1),
            log_lost: Cell::new(false),
            log_rebuilt: Cell::new(false),
            joined: Cell::new(0),
            copies_made: Cell::new(0),
            window_ends: RefCell::default(),
            windows: RefCell::default(),
        }
    }
}

/// How the segments of a pool are laid out.
pub(crate) fn geometry_of(layout: &Layout) -> Result<raid::Geometry> {
    let shape = raid::Shape { data: layout.data, parity: layout.parity };
    let blocks = u32::try_from(layout.au_bytes / crate::address::BLOCK as u64).unwrap_or(u32::MAX);
    raid::Geometry::new(shape, layout.unit_blocks, blocks / layout.unit_blocks)
        .map_err(|why| crate::Error::caused(crate::Kind::Invalid, "the pool's geometry", why))
}

impl Pool {
    /// Closes the pool: what the log holds goes to the drives first, so that the next opening finds
    /// nothing to repeat.
    ///
    /// # Errors
    /// `Failed` when the log or too many drives failed: the pool is closed all the same, and what
    /// was acknowledged is in the log.
    pub async fn close(self) -> Result<()> {
        self.shut(PoolState::Active).await
    }

    /// Closes the pool to be moved to another machine: only an import opens it again.
    ///
    /// # Errors
    /// As [`close`](Self::close); the pool is not marked as exported then.
    pub async fn export(self) -> Result<()> {
        self.shut(PoolState::Exported).await
    }

    /// Whether it was opened without its commit log, which was lost: what was acknowledged and not on
    /// the drives by then is lost with it.
    #[must_use]
    pub fn has_lost_log(&self) -> bool {
        self.0.log_lost.get()
    }

    /// Whether it was opened without a device of its log, which was closed in order: nothing was in it, and a new one
    /// was made.
    #[must_use]
    pub fn has_new_log(&self) -> bool {
        self.0.log_rebuilt.get()
    }

    /// Ends the pool as it is, like a process that is killed: what the log holds stays there, and the labels do not say
    /// that the pool was closed. The next opening finds everything that was acknowledged. For one whose drives failed
    /// and answer again: what it knows of them cannot be put right while it is open. The drives may be given to
    /// an opening when nobody has them any more, nor [late changes](media::Drive::has_late_changes) to come.
    pub async fn abandon(self) {
        if let Some(_quiet) = self.quiet().await {
            self.stop().await;
        }
    }

    /// Has what is done beside hosts' requests come to its end, and requests be refused; `None` when the pool was closed
    /// already.
    async fn quiet(&self) -> Option<[Held<'_>; 6]> {
        let inner = &self.0;
        let was_closed = inner.closed.replace(true);
        // Writers, and who changes volumes, may wait for a device of the log.
        inner.common.superblock.members.close();
        // A change of the volumes under way comes to its end first.
        let turn = inner.changing.hold(1).await;
        if was_closed {
            return None;
        }
        // What is under way may wait for that, and would for ever.
        self.wait_for_no_space().await;
        self.end_rebuild().await;
        self.end_scrub().await;
        inner.common.superblock.members.wake();
        // So does a copy of the log that is being made; a drive that is being made whole stays away.
        let copies = inner.moving.hold(1).await;
        let taking = inner.taking_back.hold(1).await;
        let looks = inner.look_writes.hold(1).await;
        inner.returned.borrow().values().for_each(rejoin::Returned::end);
        let rejoins = inner.rejoining.hold(1).await;
        let widens = inner.widening.hold(1).await;
        let (volumes, snapshots) = (inner.volumes.borrow(), inner.snapshots.borrow());
        volumes.values().chain(snapshots.values()).for_each(|state| state.close());
        Some([turn, copies, taking, looks, rejoins, widens])
    }

    /// As [`Shard::wait_for_no_space`], in all of them.
    async fn wait_for_no_space(&self) {
        let hasten = |shard: Rc<Shard>| async move {
            shard.wait_for_no_space();
            Ok(())
        };
        // A shard that has stopped waits for nothing.
        let _ = self.each(hasten).await;
    }

    async fn shut(self, state: PoolState) -> Result<()> {
        let inner = &self.0;
        let Some(_quiet) = self.quiet().await else { return Ok(()) };
        let ended = self.end_all_windows().await;
        // Writers that passed that check before are refused where they append: nothing is
        // acknowledged that the drain would not carry to the drives.
        let drain = |shard: Rc<Shard>| async move {
            shard.base.log.refuse();
            if canary::skips(Step::CloseDrains) {
                return Ok(());
            }
            shard.destage.drain().await
        };
        let mut done = ended.and(self.each(drain).await.map(drop));
        self.stop().await;
        // What reads put right may be in the drives' caches only: nothing else flushes it.
        let drives = &inner.common.superblock.drives;
        if !canary::skips(Step::CloseFlush) {
            drives.flush(drives.indices()).await;
        }
        // Last: from then on the drives may be another machine's.
        if done.is_ok() {
            done = inner.common.superblock.settle_catalog().await;
        }
        if done.is_ok() {
            let close = |label: &mut Label| (label.state, label.closed) = (state, true);
            done = inner.common.superblock.write_labels(close).await;
        }
        done
    }
}

#[cfg(test)]
mod tests;
