//! Which devices hold a pool's log: one answer for all of its shards.
//!
//! What is durable of it is in the labels. A device that did not take a write is reported here, and nothing is
//! acknowledged without it before the labels say that it is not current any more: from then on nobody reads it.

pub use super::tenancy::{MemberId, Tenant};

use super::tenancy::Tenancy;
use crate::common::Common;
use crate::drives::Company;
use crate::error::{Error, Kind, Result};
use crate::format::label::{Label, LogMember};
use crate::limits::LOG_MEMBERS_MAX;
use reactor::cross_core::Watch;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The devices of a pool's log, in the order of the labels.
pub struct Members {
    slots: Tenancy<LOG_MEMBERS_MAX>,
    /// As the labels have it.
    term: AtomicU64,
    /// How many the labels call current, and how many have to be for anything to be acknowledged.
    listed: AtomicUsize,
    needed: AtomicUsize,
    /// Nothing more is acknowledged that waits for that.
    closing: AtomicBool,
    changes: Watch<u64>,
}

impl Members {
    #[must_use]
    pub fn new(listed: &[LogMember], term: u64) -> Self {
        let slots = Tenancy::new(listed.iter().map(|member| (member.id, member.current)));
        let listed = AtomicUsize::new(listed.iter().filter(|member| member.current).count());
        let (term, needed) = (AtomicU64::new(term), AtomicUsize::new(0));
        let closing = AtomicBool::new(false);
        Self { slots, term, listed, needed, closing, changes: Watch::default() }
    }

    /// As a label lists them.
    #[must_use]
    pub fn of(label: &Label) -> Self {
        let members = Self::new(&label.log_members, label.term);
        members.needed.store(needed(label), Ordering::Relaxed);
        members
    }

    /// Of a log that no pool has, with so many devices.
    fn alone(devices: usize) -> Self {
        Self::new(&vec![LogMember { id: NOBODYS, drive: None, current: true }; devices], 0)
    }

    /// Who has a slot now.
    #[must_use]
    pub fn tenant(&self, slot: usize) -> Tenant {
        self.slots.tenant(slot)
    }

    /// Reports who was known by this name in a slot, unless another is there by now.
    pub fn report_member(&self, slot: usize, id: MemberId) {
        if self.slots.report_member(slot, id) {
            self.wake();
        }
    }

    #[must_use]
    pub fn is_current(&self, tenant: Tenant) -> bool {
        self.slots.is_current(tenant)
    }

    /// Whether what is appended goes there.
    #[must_use]
    pub fn takes(&self, tenant: Tenant) -> bool {
        self.slots.takes(tenant)
    }

    /// Whether the device in a slot was reported, and the labels are to say so.
    #[must_use]
    pub fn is_lost(&self, slot: usize) -> bool {
        self.slots.is_lost(slot)
    }

    #[must_use]
    pub fn id(&self, slot: usize) -> MemberId {
        self.slots.id(slot)
    }

    #[must_use]
    pub fn term(&self) -> u64 {
        self.term.load(Ordering::Acquire)
    }

    /// How many are current.
    #[must_use]
    pub fn current(&self) -> usize {
        self.slots.current()
    }

    /// A device did not take a write.
    pub fn report(&self, tenant: Tenant) {
        if self.slots.report(tenant) {
            self.wake();
        }
    }

    /// How often devices were reported.
    #[must_use]
    pub fn reported(&self) -> u64 {
        self.slots.reported()
    }

    /// The labels say by now which devices are current.
    pub fn follow(&self, label: &Label) {
        let listed = &label.log_members;
        self.term.store(label.term, Ordering::Release);
        self.listed.store(label.current_members().count(), Ordering::Release);
        let had = self.needed.swap(needed(label), Ordering::AcqRel);
        if had > 0 {
            // Somebody may wait for what the labels say by now.
            self.wake();
        }
        for (slot, member) in listed.iter().enumerate().filter(|(_, member)| !member.current) {
            if self.slots.let_go(slot, member.id) {
                self.wake();
            }
        }
    }

    /// A place for a device that is to be made whole, known by `id` from now on; none while all are taken.
    pub fn begin(&self, id: MemberId) -> Option<Tenant> {
        self.slots.begin(id)
    }

    /// It has everything: from now on it has to be told when it fails. False when it failed already.
    pub fn admit(&self, tenant: Tenant) -> bool {
        self.slots.admit(tenant)
    }

    /// It is not to be one of the log's devices, which the labels never said it is.
    pub fn give_up(&self, tenant: Tenant) {
        self.slots.give_up(tenant);
    }

    /// Whether nothing may be acknowledged, for too few devices have it.
    #[must_use]
    #[inline]
    pub fn is_short(&self) -> bool {
        let needed = self.needed.load(Ordering::Acquire);
        needed > 0 && self.current().min(self.listed.load(Ordering::Acquire)) < needed
    }

    /// Waits until so many devices have the log that what was appended may be acknowledged, and the labels say so.
    ///
    /// # Errors
    /// `Busy` when the pool is closed first, and why the log ended, if that `ended`.
    pub async fn until_enough(&self, ended: impl Fn() -> Option<Kind>) -> Result<()> {
        let over = |_: &mut u64| match (self.is_short(), ended()) {
            (false, _) => Some(None),
            (true, Some(why)) => Some(Some(why)),
            (true, None) => self.closing.load(Ordering::Acquire).then_some(Some(Kind::Busy)),
        };
        let context = "the log has too few copies, and ended or is closed";
        self.changes.until(over).await.map_or(Ok(()), |why| Err(Error::new(why, context)))
    }

    /// The pool is closed: nobody waits for devices any more.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.wake();
    }

    /// Has those who wait for changes look again.
    pub fn wake(&self) {
        self.changes.change(|changes| *changes += 1);
    }

    /// Waits for a change after the `seen`th; gives how many there were.
    pub async fn changed(&self, seen: u64) -> u64 {
        self.changes.until(|changes| (*changes > seen).then_some(*changes)).await
    }
}

/// How many devices have to have the log for anything to be acknowledged; 0 for those that it has.
fn needed(label: &Label) -> usize {
    if label.log_waits { usize::from(label.log_copies) } else { 0 }
}

/// What the devices of a log are known by that no pool has: nobody tells them apart.
const NOBODYS: MemberId = [1; 16];

/// Whose log it is, and who makes it durable which of its devices are current.
#[derive(Clone)]
pub enum Owner {
    /// Nobody's: what is known of its devices is so in memory only.
    Nobody(Arc<Members>),
    Pool(Arc<Common>),
}

impl Owner {
    #[must_use]
    pub fn nobody(devices: usize) -> Self {
        Self::Nobody(Arc::new(Members::alone(devices)))
    }

    pub fn members(&self) -> &Members {
        match self {
            Self::Nobody(members) => members,
            Self::Pool(common) => &common.superblock.members,
        }
    }

    pub fn pool(&self) -> [u8; 16] {
        match self {
            Self::Nobody(_) => [0; 16],
            Self::Pool(common) => common.superblock.pool(),
        }
    }

    /// Whether the drive of a zone can be used.
    pub fn has_drive(&self, drive: Option<u16>) -> bool {
        match (self, drive) {
            (Self::Pool(common), Some(drive)) => common.superblock.drives.is_online(drive),
            _ => true,
        }
    }

    /// Waits for a drive's write for no longer than those make it wait that have ended theirs: `None` for one that
    /// is out of use since. What a device writes that is not current yet is no reason to give up another.
    pub async fn in_company(
        &self,
        (tenant, drive): (Tenant, Option<u16>),
        company: &Company,
        write: impl Future<Output = std::result::Result<(), media::Error>>,
    ) -> Option<std::result::Result<(), media::Error>> {
        let (Self::Pool(common), Some(drive)) = (self, drive) else { return Some(write.await) };
        let drives = &common.superblock.drives;
        if self.members().is_current(tenant) {
            let written = drives.in_company(drive, company, write).await;
            if let Some(Ok(())) = written {
                drives.note_append(drive, company);
            }
            return written;
        }
        let uncounted = async { Err::<(), _>(write.await) };
        drives.in_company(drive, company, uncounted).await.and_then(std::result::Result::err)
    }

    /// Whether something failed that the labels do not tell of yet.
    pub fn has_news(&self) -> bool {
        match self {
            Self::Nobody(members) => (0..LOG_MEMBERS_MAX).any(|slot| members.is_lost(slot)),
            Self::Pool(common) => common.superblock.has_news(),
        }
    }

    /// Makes it durable which devices are current.
    ///
    /// # Errors
    /// When that cannot be, or none would be left.
    pub async fn tell(&self) -> Result<()> {
        match self {
            Self::Nobody(members) => {
                members.slots.let_lost_go();
                match members.current() {
                    0 => Err(Error::new(Kind::Failed, "no device takes the commit log's writes")),
                    _ => Ok(()),
                }
            }
            Self::Pool(common) => common.superblock.tell_failures().await,
        }
    }
}
