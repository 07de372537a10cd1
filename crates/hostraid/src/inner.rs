//! A set in use: its members, and what is shared by all that work on it.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use initiator::{Error, Fua};
use reactor::join_all;
use reactor::sync::{Semaphore, Signal};

use crate::bitmap::Bitmap;
use crate::book::Book;
#[cfg(test)]
use crate::canary::Canary;
use crate::fence::Held;
use crate::format::{Health, PAGE_BYTES};
use crate::journal::Journal;
use crate::layout::{Layout, Slots};
use crate::limits::PAGE;
use crate::locks::StripeLocks;
use crate::member::Member;
use crate::work::Work;

pub struct Inner {
    pub id: [u8; 16],
    pub name: String,
    pub layout: Layout,
    /// By slot; those that are there.
    pub members: RefCell<Vec<Option<Rc<Member>>>>,
    /// By slot; those that were lost meanwhile, and may come back when nobody else has them any more.
    pub away: RefCell<Vec<Option<Rc<Member>>>>,
    pub book: RefCell<Book>,
    /// Others are kept from it.
    pub held: OnceCell<Held>,
    /// One writer of superblocks at a time.
    pub meta: Semaphore,
    pub locks: StripeLocks,
    /// For what callers give; taken before stripes are locked.
    pub input: Rc<Work>,
    /// For work on locked stripes.
    pub work: Rc<Work>,
    /// For superblocks, bitmaps and records without data, which others wait for while they hold of the former.
    pub pages: Rc<Work>,
    pub bitmap: Bitmap,
    pub journal: Journal,
    /// A member was lost or is back, or the set is broken.
    pub changed: Signal,
    /// Which copy is read next.
    pub turn: Cell<usize>,
    /// One sweep (rebuild or check) at a time.
    pub sweep: Semaphore,
    #[cfg(test)]
    pub canary: Cell<Option<Canary>>,
}

impl Inner {
    #[must_use]
    pub fn member(&self, slot: usize) -> Option<Rc<Member>> {
        self.members.borrow()[slot].clone()
    }

    /// Slots of the members that are there.
    #[must_use]
    pub fn present(&self) -> Slots {
        let members = self.members.borrow();
        (0..members.len()).filter(|&slot| members[slot].is_some()).collect()
    }

    /// Slots whose members have all of `stripe`.
    #[must_use]
    pub fn live(&self, stripe: u64) -> Slots {
        let book = self.book.borrow();
        let members = self.members.borrow();
        let live = |slot: &usize| {
            members[*slot].is_some()
                && match book.seats[*slot].health {
                    Health::InSync => true,
                    Health::Missing => false,
                    Health::Rebuilding { frontier, .. } => {
                        let todo = book.todo[*slot].as_ref();
                        let clean = todo.is_some_and(|bits| !bits.has(self.layout.region(stripe)));
                        stripe < frontier || clean
                    }
                }
        };
        (0..members.len()).filter(live).collect()
    }

    /// Slots whose members have all of `stripe`, as units of it.
    #[must_use]
    pub fn live_units(&self, stripe: u64) -> Slots {
        self.live(stripe).iter().map(|slot| self.layout.unit(stripe, slot)).collect()
    }

    #[must_use]
    pub fn all_in_sync(&self) -> bool {
        self.book.borrow().seats.iter().all(|seat| seat.health == Health::InSync)
    }

    #[cfg(test)]
    #[must_use]
    pub fn has_canary(&self, canary: Canary) -> bool {
        self.canary.get() == Some(canary)
    }

    /// Whether superblocks, bitmap and journal must stay as they are.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        #[cfg(test)]
        if self.has_canary(Canary::StoreStopped) {
            return false;
        }
        self.usable().is_err()
    }

    /// # Errors
    /// When too many members are lost, or the set was closed.
    pub fn usable(&self) -> Result<(), Error> {
        self.book.borrow().broken.map_or(Ok(()), |why| Err(Error::Lost(why)))
    }

    pub fn regions(&self, stripes: &std::ops::Range<u64>) -> std::ops::Range<u64> {
        self.layout.region(stripes.start)..self.layout.region(stripes.end - 1) + 1
    }

    /// Writes the same on every member that is there.
    pub async fn put_everywhere(&self, at: u64, bytes: &[u8], fua: Fua) {
        join_all(self.present().iter().map(|slot| self.put(slot, at, bytes, fua))).await;
    }

    /// Writes a page on a member; it is lost if that fails. A set that stopped changes nothing any more: what its
    /// members say then is what makes up for what was under way.
    pub async fn put(&self, slot: usize, at: u64, bytes: &[u8], fua: Fua) {
        if self.has_stopped() {
            return;
        }
        let Some(member) = self.member(slot) else { return };
        let permit = self.pages.permit(1, PAGE_BYTES).await;
        let mut buffer = permit.buffer(PAGE_BYTES).await;
        buffer.copy_from_slice(bytes);
        if let Err(error) = member.write(at, PAGE, &mut buffer, fua).await {
            self.lose(slot, &error);
            if self.layout.parity() == 0 {
                self.end("a member's superblock cannot be written");
            }
        }
    }
}
