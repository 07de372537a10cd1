//! A namespace as the commands of one queue see it.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use media::memory::SharedRegion;
use nvme::nvm::LbaRange;
use nvme::status::Status;
use reactor::ReadGuard;
use reactor::budget::{Account, Ledger};
use reactor::turns::Party;

use super::Slot;
use super::ranges::{Ranges, UnderWay};
use crate::namespace::{Backend, Namespace};
use crate::reservation::{CachedAccess, CommandGroup, HostId};

/// A namespace attached to a controller, for one queue: what the I/O path needs without touching
/// anything that cores share, but for counters that rarely move.
pub struct Attached {
    namespace: Arc<Namespace>,
    /// The region of a memory namespace, counted on this core only.
    region: Option<SharedRegion>,
    host: HostId,
    access: Cell<Option<CachedAccess>>,
    ranges: Rc<Ranges>,
    /// The number of the queue.
    queue: u64,
    /// What its host has of a drive's places.
    places: OnceCell<Rc<Account>>,
}

thread_local! {
    /// The ranges of every namespace that a queue of this core has attached.
    static RANGES: RefCell<Vec<Weak<Ranges>>> = const { RefCell::new(Vec::new()) };
}

/// This core's ranges of a namespace, known by its fence, which they keep: they may outlive the namespace.
fn ranges_of(namespace: &Namespace) -> Rc<Ranges> {
    RANGES.with_borrow_mut(|known| {
        known.retain(|ranges| ranges.strong_count() > 0);
        let mut ranges = known.iter().filter_map(Weak::upgrade);
        if let Some(ranges) = ranges.find(|ranges| ranges.are_of(&namespace.fence)) {
            return ranges;
        }
        let ranges = Ranges::join(Arc::clone(&namespace.fence));
        known.push(Rc::downgrade(&ranges));
        ranges
    })
}

/// The queue with this number is lost: what backends have of its commands comes before what is written there from now on.
pub(crate) fn lose(queue: u64) {
    RANGES.with_borrow(|known| {
        known.iter().filter_map(Weak::upgrade).for_each(|ranges| ranges.lose(queue));
    });
}

impl Attached {
    /// `namespace` for a queue of a controller of `host`, on this core. Call on a reactor.
    #[must_use]
    pub fn new(namespace: Arc<Namespace>, host: HostId) -> Self {
        let region = match &namespace.backend {
            Backend::Memory(region) => Some(Rc::new(Arc::clone(region))),
            Backend::Drive(_)
            | Backend::Passthrough(_)
            | Backend::Volume(_)
            | Backend::Absent { .. } => None,
        };
        let ranges = ranges_of(&namespace);
        let (access, places) = (Cell::new(None), OnceCell::new());
        Self { namespace, region, host, access, ranges, queue: 0, places }
    }

    /// The same for the queue with this number, by which it is [lost](lose).
    #[must_use]
    pub(crate) const fn of_queue(mut self, queue: u64) -> Self {
        self.queue = queue;
        self
    }

    #[must_use]
    pub fn namespace(&self) -> &Arc<Namespace> {
        &self.namespace
    }

    pub(super) fn region(&self) -> Option<&SharedRegion> {
        self.region.as_ref()
    }

    pub(super) const fn host(&self) -> HostId {
        self.host
    }

    pub(crate) fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    /// Waits as long as a lost queue has commands under way on some of these ranges, which may be long. To be asked before
    /// anything is taken that others may wait for.
    ///
    /// # Errors
    /// As [`Slot::unless_aborted`].
    pub(super) async fn after_lost(
        &self,
        ranges: &[LbaRange],
        slot: &impl Slot,
    ) -> Result<(), Status> {
        if self.ranges.is_kept(ranges) {
            slot.unless_aborted(self.ranges.let_go(ranges)).await?;
        }
        Ok(())
    }

    /// As [`Ranges::enter`], for a command of the queue.
    ///
    /// # Errors
    /// As [`Slot::permit_entry`] and [`Slot::unless_aborted`].
    pub(super) async fn enter(
        &self,
        range: LbaRange,
        slot: &impl Slot,
    ) -> Result<UnderWay<'_>, Status> {
        slot.permit_entry()?;
        match self.ranges.try_enter(self.queue, range) {
            Some(entered) => Ok(entered),
            None => slot.unless_aborted(self.ranges.enter(self.queue, range)).await,
        }
    }

    /// As [`Ranges::enter_all`], for a command of the queue.
    ///
    /// # Errors
    /// As [`Slot::unless_aborted`].
    pub(super) async fn enter_all(
        &self,
        ranges: &[LbaRange],
        slot: &impl Slot,
    ) -> Result<Vec<UnderWay<'_>>, Status> {
        slot.permit_entry()?;
        slot.unless_aborted(self.ranges.enter_all(self.queue, ranges)).await
    }

    /// Where a command's place in the drive is to be taken from: while other hosts are active a drive has little at once, as
    /// it serves what it has in an order of its own. `make` makes the account of the host.
    pub(crate) fn places(
        &self,
        make: impl FnOnce(&Rc<Ledger>) -> Rc<Account>,
    ) -> Option<&Rc<Account>> {
        let is_drive =
            matches!(self.namespace.backend, Backend::Drive(_) | Backend::Passthrough(_));
        let shared = is_drive && Party::is_bounded();
        shared.then(|| self.places.get_or_init(|| make(self.ranges.places())))
    }

    /// Refuses every command while what keeps the bytes is not there, in words that hosts wait and retry on.
    ///
    /// # Errors
    /// Asymmetric Access Inaccessible.
    #[inline]
    pub(super) fn permit_access(&self) -> Result<(), Status> {
        if self.namespace.backend.is_absent() { Err(Status::ANA_INACCESSIBLE) } else { Ok(()) }
    }

    /// Counts a command among those that the backend has: as long as what is returned lives, the namespace is
    /// neither let go of nor made smaller. What was checked before the command had to wait is checked again.
    ///
    /// # Errors
    /// Invalid Namespace or Format when the namespace was removed, LBA Out of Range for bytes that it has no more.
    pub(super) fn use_backend(&self, offset: u64, length: u64) -> Result<ReadGuard, Status> {
        self.check_there()?;
        if offset.checked_add(length).is_none_or(|end| end > self.namespace.bytes()) {
            return Err(Status::LBA_OUT_OF_RANGE.with_dnr());
        }
        Ok(self.ranges.use_backend())
    }

    /// Refuses commands of a namespace that was removed.
    #[inline]
    fn check_there(&self) -> Result<(), Status> {
        match self.ranges.is_closed() {
            true => Err(Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr()),
            false => Ok(()),
        }
    }

    /// Refuses what a reservation does not let this host do, and everything when the namespace was removed.
    #[inline]
    pub(super) fn permit(&self, group: CommandGroup) -> Result<(), Status> {
        self.check_there()?;
        let mut cached = self.access.get();
        let access = self.namespace.reservation.access(self.host, &mut cached);
        self.access.set(cached);
        if access.allows(group) { Ok(()) } else { Err(Status::RESERVATION_CONFLICT.with_dnr()) }
    }

    /// [`Attached::permit`] for a command that changes data, and the namespace's write protection.
    #[inline]
    pub(super) fn permit_change(&self) -> Result<(), Status> {
        self.permit(CommandGroup::Write)?;
        if self.namespace.write_protected() {
            return Err(Status::NAMESPACE_IS_WRITE_PROTECTED.with_dnr());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::tests::double::{HOST, On, Place, on_reactor};

    /// They were known by the address of the namespace, which another one may have by then.
    #[test]
    fn ranges_that_outlive_their_namespace_are_no_others() {
        on_reactor(async {
            for _ in 0..100 {
                let ranges = Place::new(On::Memory, 1, 8, 512).await.attach(HOST).ranges.clone();
                let next = Place::new(On::Memory, 1, 8, 512).await.attach(HOST);
                assert!(!Rc::ptr_eq(&ranges, &next.ranges));
                assert!(Rc::ptr_eq(&ranges_of(&next.namespace), &next.ranges));
            }
        });
    }
}
