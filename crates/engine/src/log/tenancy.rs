//! Who has which slot among the devices of a log, as cores share it: a word of each slot says how its device is doing, and
//! which of those that had the slot it is.

use crate::concurrent::{AtomicU64, Lock, Ordering};

/// Nothing is written there, and nothing read.
const VACANT: u64 = 0;
/// It has everything that was acknowledged.
const CURRENT: u64 = 1;
/// It is being made whole: what is written goes there too.
const JOINING: u64 = 2;
/// It did not take a write, and the labels do not say so yet.
const LOST: u64 = 3;
const STATE_BITS: u32 = 8;

/// What a device's control slots carry for it to be known by.
pub type MemberId = [u8; 16];

#[derive(Default)]
struct Slot {
    /// Its state, and above that how many devices had the slot before: whoever speaks of one of those does
    /// not speak of this one.
    word: AtomicU64,
    id: Lock<MemberId>,
}

/// A device in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenant {
    pub slot: usize,
    turn: u64,
}

impl Tenant {
    const fn word(self, state: u64) -> u64 {
        self.turn << STATE_BITS | state
    }
}

/// The slots of a log's devices, in the order of the labels.
pub struct Tenancy<const N: usize> {
    slots: [Slot; N],
    /// How often devices were reported.
    reported: AtomicU64,
}

impl<const N: usize> Tenancy<N> {
    /// Of devices that are current or not, each known by its name.
    pub fn new(listed: impl Iterator<Item = (MemberId, bool)>) -> Self {
        let slots: [Slot; N] = std::array::from_fn(|_| Slot::default());
        for (slot, (id, is_current)) in slots.iter().zip(listed) {
            slot.word.store(if is_current { CURRENT } else { VACANT }, Ordering::Relaxed);
            *slot.id.lock() = id;
        }
        Self { slots, reported: AtomicU64::new(0) }
    }

    fn word(&self, slot: usize) -> u64 {
        self.slots[slot].word.load(Ordering::Acquire)
    }

    /// Who has a slot now.
    pub fn tenant(&self, slot: usize) -> Tenant {
        Tenant { slot, turn: self.word(slot) >> STATE_BITS }
    }

    pub fn id(&self, slot: usize) -> MemberId {
        *self.slots[slot].id.lock()
    }

    pub fn is_current(&self, tenant: Tenant) -> bool {
        self.word(tenant.slot) == tenant.word(CURRENT)
    }

    /// Whether what is appended goes there.
    pub fn takes(&self, tenant: Tenant) -> bool {
        let word = self.word(tenant.slot);
        word == tenant.word(CURRENT) || word == tenant.word(JOINING)
    }

    /// Whether the device in a slot was reported, and the labels are to say so.
    pub fn is_lost(&self, slot: usize) -> bool {
        self.word(slot) == self.tenant(slot).word(LOST)
    }

    /// How many are current.
    pub fn current(&self) -> usize {
        (0..N).filter(|slot| self.is_current(self.tenant(*slot))).count()
    }

    fn change(&self, tenant: Tenant, from: u64, to: u64) -> bool {
        let word = &self.slots[tenant.slot].word;
        let (from, to) = (tenant.word(from), tenant.word(to));
        word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// A device did not take a write. Tells whether that is news.
    pub fn report(&self, tenant: Tenant) -> bool {
        // Before it is lost, so that whoever sees that sees that there is something to tell; and after it, in case
        // labels were written in between.
        self.reported.fetch_add(1, Ordering::AcqRel);
        // Again where it was admitted in between: it would be current in spite of what it did not take.
        let is_news = loop {
            if self.change(tenant, CURRENT, LOST) || self.change(tenant, JOINING, VACANT) {
                break true;
            }
            if !self.is_current(tenant) {
                break false;
            }
        };
        if is_news {
            self.reported.fetch_add(1, Ordering::AcqRel);
        }
        is_news
    }

    /// Reports who was known by this name in a slot, unless another is there by now.
    pub fn report_member(&self, slot: usize, id: MemberId) -> bool {
        let tenant = self.tenant(slot);
        self.id(slot) == id && self.report(tenant)
    }

    /// How often devices were reported.
    pub fn reported(&self) -> u64 {
        self.reported.load(Ordering::Acquire)
    }

    /// The labels say by now that who is known by this name is not current. Tells whether anything changed.
    pub fn let_go(&self, slot: usize, id: MemberId) -> bool {
        let tenant = self.tenant(slot);
        self.id(slot) == id
            && (self.change(tenant, LOST, VACANT) || self.change(tenant, CURRENT, VACANT))
    }

    /// Those that were reported are not current any more: of a log that no labels tell of.
    pub fn let_lost_go(&self) {
        for slot in 0..N {
            self.change(self.tenant(slot), LOST, VACANT);
        }
    }

    /// A place for a device that is to be made whole, known by `id` from now on; none while all are taken. One at a time.
    pub fn begin(&self, id: MemberId) -> Option<Tenant> {
        let free = |slot: &usize| self.word(*slot) == self.tenant(*slot).word(VACANT);
        let slot = (0..N).find(free)?;
        let tenant = Tenant { slot, turn: self.tenant(slot).turn + 1 };
        // Its name first: whoever looks who is there, and then how it is called, never takes it for the one before.
        *self.slots[slot].id.lock() = id;
        self.slots[slot].word.store(tenant.word(JOINING), Ordering::Release);
        Some(tenant)
    }

    /// It has everything: from now on it has to be told when it fails. False when it failed already.
    pub fn admit(&self, tenant: Tenant) -> bool {
        self.change(tenant, JOINING, CURRENT)
    }

    /// It is not to be one of the log's devices, which the labels never said it is.
    pub fn give_up(&self, tenant: Tenant) {
        for state in [JOINING, CURRENT, LOST] {
            self.change(tenant, state, VACANT);
        }
    }
}
