//! What hosts ask of a shard: reads, writes, deallocations, copies.

mod admit;
mod bytes;
mod changes;
mod clone;
mod copy;
mod detach;
mod owners;
mod plan;
mod read;
mod reserved;
mod snapshot;
mod windows;
mod write;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use reactor::GracePeriod;

use super::base::Base;
use super::bounded::BoundedVolumes;
use super::capacity::{Capacity, Turns};
use super::carry::Carrying;
use super::count::Counting;
use super::destage::Destage;
use super::search::SpaceSearch;
use crate::partial::Locks;
pub use changes::{Change, Compared, Looked};
pub use copy::CopyRange;
use owners::Owners;
pub use plan::Plan;
use windows::Windows;
pub use write::Writing;

/// Where requests enter a shard.
pub struct Front {
    base: Rc<Base>,
    capacity: Rc<Capacity>,
    search: Rc<SpaceSearch>,
    destage: Rc<Destage>,
    counting: Rc<Counting>,
    quotas: Rc<BoundedVolumes>,
    /// Changes of volumes under way: whoever takes a volume, or a part of it, away waits for them.
    writing: GracePeriod,
    /// Reads of clones that may have to ask ancestors: whoever cuts a clone loose waits for them.
    inheriting: GracePeriod,
    /// Blocks that users change in part.
    partial: Locks,
    /// Plans of reads that ended, used again and again.
    spare_plans: RefCell<Vec<Plan>>,
    /// Blocks that hosts wrote, since the shard was opened.
    written: Cell<u64>,
    /// Reads that found blocks that nothing gives, since then.
    unreadable: Cell<u64>,
    carry: Rc<Carrying>,
    /// Which ancestors of clones have what was read.
    owners: Owners,
    /// Changes of volumes with a reservation that look what is there.
    reserved: Rc<Turns>,
    /// Where hosts store by themselves.
    pub windows: Windows,
}

impl Front {
    /// Knows the quotas there are by now.
    pub fn look_at_quotas(&self) {
        self.quotas.look();
    }

    #[must_use]
    pub fn new(
        base: Rc<Base>,
        capacity: Rc<Capacity>,
        search: Rc<SpaceSearch>,
        destage: Rc<Destage>,
        counting: Rc<Counting>,
        quotas: Rc<BoundedVolumes>,
        carry: Rc<Carrying>,
    ) -> Self {
        Self {
            base,
            capacity,
            search,
            destage,
            counting,
            quotas,
            writing: GracePeriod::default(),
            inheriting: GracePeriod::default(),
            partial: Locks::default(),
            spare_plans: RefCell::default(),
            written: Cell::new(0),
            unreadable: Cell::new(0),
            carry,
            owners: Owners::default(),
            reserved: Rc::default(),
            windows: Windows::default(),
        }
    }

    /// Blocks that hosts wrote, since the shard was opened.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.written.get()
    }

    /// Reads that found blocks that nothing gives, since the shard was opened.
    #[must_use]
    pub const fn unreadable(&self) -> u64 {
        self.unreadable.get()
    }
}
