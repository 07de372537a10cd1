//! A set in use: who is in it, and what its superblocks say.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use initiator::{Buffer, Deallocate, Error, Fua, Geometry, Supports};
use reactor::join_all;
use reactor::sync::{Semaphore, Signal};
use stdx::num::{low32, u32_of, u64_of, usize32};

use crate::bitmap::{Bitmap, Bits};
use crate::format::{Health, PAGE_BYTES, Seat, Superblock};
use crate::journal::Journal;
use crate::layout::{Layout, Level, Slots};
use crate::limits::PAGE;
use crate::locks::StripeLocks;
use crate::member::{Member, is_fenced};
use crate::work::Work;

/// What is planted for the simulator to find.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Stripes are changed without a record.
    SkipJournal,
    /// A write is acknowledged before the others know that a member is gone.
    EarlyAcknowledgement,
    /// Parity stays what it was.
    ForgetParity,
    /// A member that comes back gets nothing of what it missed.
    ForgetBits,
    /// Copies of a mirror are left different after a crash.
    SkipResync,
}

/// A set of members, used as one namespace is. Cloning is cheap and shares it; it belongs to one reactor.
///
/// With redundancy every write is durable when it completes, and a crash at any moment leaves each block as it
/// was or as it was to be, whichever members are missing then.
#[derive(Clone)]
pub struct Set {
    pub(crate) inner: Rc<Inner>,
}

/// What is known of the members, and how much of it is in their superblocks.
pub struct Book {
    pub seats: Vec<Seat>,
    pub events: u64,
    /// Every member there has taken this event count.
    pub durable: u64,
    pub generation: u64,
    /// The tail that every member's superblock has.
    pub tail: u64,
    /// What a partial rebuild has to do, by slot.
    pub todo: Vec<Option<Bits>>,
    /// Why the set is of no more use.
    pub broken: Option<&'static str>,
}

pub struct Inner {
    pub id: [u8; 16],
    pub name: String,
    pub layout: Layout,
    /// By slot; those that are there.
    pub members: RefCell<Vec<Option<Member>>>,
    /// By slot; those that were lost meanwhile, and may come back.
    pub away: RefCell<Vec<Option<Member>>>,
    pub book: RefCell<Book>,
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
    pub fn member(&self, slot: usize) -> Option<Member> {
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

    #[must_use]
    pub fn stored_tail(&self) -> u64 {
        self.book.borrow().tail
    }

    #[cfg(test)]
    #[must_use]
    pub fn has_canary(&self, canary: Canary) -> bool {
        self.canary.get() == Some(canary)
    }

    /// # Errors
    /// When too many members are lost, or the set was closed.
    pub fn usable(&self) -> Result<(), Error> {
        self.book.borrow().broken.map_or(Ok(()), |why| Err(Error::Lost(why)))
    }

    /// Ends all use of the set.
    pub fn end(&self, why: &'static str) {
        self.book.borrow_mut().broken.get_or_insert(why);
        self.changed.raise();
        self.journal.wake();
    }

    /// A member failed. The set goes on without it if it can; nothing is acknowledged any more before
    /// [`settle`](Self::settle).
    pub fn lose(&self, slot: usize, error: &Error) {
        if is_fenced(error) {
            return self.end("another host has reserved a member");
        }
        if self.layout.parity() == 0 {
            // Nothing can be done without it: its errors are the caller's, as those of a namespace are.
            return;
        }
        let mut book = self.book.borrow_mut();
        if book.broken.is_some() || self.members.borrow()[slot].is_none() {
            return;
        }
        tracing::warn!("member {slot} of {} is lost: {error}", self.name);
        let others = (0..book.seats.len()).filter(|&n| book.seats[n].health != Health::InSync);
        let missing = others.filter(|&n| n != slot).count();
        if missing >= self.layout.parity() {
            // What the superblocks say stays: when this member is back, it has everything that counts.
            drop(book);
            return self.end("the set has lost more members than it can do without");
        }
        book.events += 1;
        let (durable, left) = (book.durable, book.events);
        let seat = &mut book.seats[slot];
        // One whose rebuild was to begin anew has nothing that it could go on from.
        let anew = matches!(seat.health, Health::Rebuilding { partial: false, .. });
        let seen = if anew { left } else { durable };
        (seat.health, seat.seen, seat.left) = (Health::Missing, seen, left);
        book.todo[slot] = None;
        drop(book);
        let lost = self.members.borrow_mut()[slot].take();
        self.away.borrow_mut()[slot] = lost;
        self.changed.raise();
        self.journal.wake();
    }

    /// Returns when the superblocks say who is in the set: before that nothing may count on the others alone.
    ///
    /// # Errors
    /// When the set is of no more use.
    pub async fn settle(&self) -> Result<(), Error> {
        #[cfg(test)]
        if self.has_canary(Canary::EarlyAcknowledgement) {
            let mut book = self.book.borrow_mut();
            book.durable = book.events;
        }
        loop {
            self.usable()?;
            if self.is_settled() {
                return Ok(());
            }
            let _turn = self.meta.hold(1).await;
            self.usable()?;
            if self.is_settled() {
                return Ok(());
            }
            let events = self.book.borrow().events;
            // What is being written now may or may not be on those that left.
            for stripes in self.locks.written() {
                self.bitmap.add(self.regions(&stripes));
            }
            self.bitmap.store(self).await;
            self.store_books(self.stored_tail()).await;
            let mut book = self.book.borrow_mut();
            if book.events == events && book.broken.is_none() {
                book.durable = events;
            }
        }
    }

    fn is_settled(&self) -> bool {
        let book = self.book.borrow();
        book.durable == book.events
    }

    /// Has all superblocks say that records below the journal's tail are history, unless they say more than
    /// `than` already.
    ///
    /// # Errors
    /// When the set is of no more use.
    pub async fn checkpoint(&self, than: u64) -> Result<(), Error> {
        {
            let _turn = self.meta.hold(1).await;
            if self.stored_tail() > than {
                return Ok(());
            }
            let tail = self.journal.tail();
            self.store_books(tail).await;
            self.usable()?;
            self.book.borrow_mut().tail = tail;
            self.journal.wake();
        }
        self.settle().await
    }

    pub fn regions(&self, stripes: &std::ops::Range<u64>) -> std::ops::Range<u64> {
        self.layout.region(stripes.start)..self.layout.region(stripes.end - 1) + 1
    }

    /// Writes all superblocks. The caller has the turn.
    pub async fn store_books(&self, tail: u64) {
        let mut superblock = {
            let mut book = self.book.borrow_mut();
            book.generation += 1;
            Superblock {
                set: self.id,
                slot: 0,
                name: self.name.clone(),
                layout: self.layout,
                events: book.events,
                floor: book.durable,
                generation: book.generation,
                tail,
                seats: book.seats.clone(),
            }
        };
        let at = superblock.generation % 2 * u64::from(PAGE);
        let writes: Vec<_> = self
            .present()
            .iter()
            .map(|slot| {
                superblock.slot = slot;
                let page = superblock.to_page();
                async move { self.put(slot, at, &page, Fua::Yes).await }
            })
            .collect();
        join_all(writes).await;
    }

    /// Writes the same on every member that is there.
    pub async fn put_everywhere(&self, at: u64, bytes: &[u8], fua: Fua) {
        join_all(self.present().iter().map(|slot| self.put(slot, at, bytes, fua))).await;
    }

    /// Writes a page on a member; it is lost if that fails.
    pub async fn put(&self, slot: usize, at: u64, bytes: &[u8], fua: Fua) {
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

/// How a set is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub seats: Vec<Seat>,
    /// Members that are there, by slot.
    pub present: Slots,
    pub events: u64,
    /// Regions that may differ, or that missing members have not got.
    pub dirty_regions: usize,
    pub regions: u64,
    pub broken: Option<&'static str>,
}

impl Set {
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.inner.id
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    #[must_use]
    pub fn layout(&self) -> Layout {
        self.inner.layout
    }

    #[must_use]
    pub fn status(&self) -> Status {
        let book = self.inner.book.borrow();
        Status {
            seats: book.seats.clone(),
            present: self.inner.present(),
            events: book.events,
            dirty_regions: self.inner.bitmap.bits().count(),
            regions: self.inner.layout.regions(),
            broken: book.broken,
        }
    }

    /// What the set is, in a namespace's words.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        let layout = &self.inner.layout;
        let members = self.inner.members.borrow();
        let all: Vec<_> = members.iter().flatten().map(Member::traits).collect();
        let stripe = layout.stripe_bytes();
        let most = u64_of(reactor::BUFFER_MAX);
        let transfer = match layout.level {
            // A copy is read by one command.
            Level::Mirror => all.iter().map(|m| u64::from(m.transfer_max)).fold(most, u64::min),
            _ if stripe <= most => most / stripe * stripe,
            _ => most,
        };
        let zeroes = all.iter().all(|member| member.write_zeroes);
        let frees = zeroes && all.iter().all(|member| member.zeroes_deallocate);
        Geometry {
            block_bytes: layout.block,
            blocks: layout.size() / u64::from(layout.block),
            transfer_max_bytes: low32(transfer),
            atomic_blocks: 1,
            atomic_power_fail_blocks: 1,
            optimal_write_blocks: low32(stripe / u64::from(layout.block)),
            supports: Supports {
                write_zeroes: zeroes,
                zeroes_deallocate: frees,
                deallocate: frees,
                deallocated_reads_zeroes: false,
                compare: false,
                verify: false,
            },
            copy: None,
            volatile_cache: layout.level == Level::Stripe && all.iter().any(|m| m.volatile_cache),
            read_only: all.iter().any(|member| member.read_only),
            identity: (self.inner.id, [0; 8]),
        }
    }

    /// Returns when the set is of no more use.
    ///
    /// # Errors
    /// Why, always.
    pub async fn ended(&self) -> Result<(), Error> {
        self.inner.changed.until(|| self.inner.usable().is_err()).await;
        self.inner.usable()
    }

    /// Waits until who is there is another than `seen` says.
    pub async fn changed(&self, seen: &Status) {
        self.inner.changed.until(|| self.status() != *seen).await;
    }

    /// A buffer of `bytes`.
    ///
    /// # Panics
    /// When `bytes` exceeds the largest buffer.
    pub async fn buffer(&self, bytes: usize) -> Buffer {
        Buffer::new(bytes).await
    }

    /// Where a range of blocks lies, in bytes.
    pub(crate) fn range(&self, lba: u64, blocks: u32) -> Result<(u64, u64), Error> {
        let block = u64::from(self.inner.layout.block);
        let bytes = u64::from(blocks) * block;
        let end = lba.checked_mul(block).and_then(|at| at.checked_add(bytes));
        if blocks == 0 || end.is_none_or(|end| end > self.inner.layout.size()) {
            let said = format!("{blocks} blocks from block {lba} are not in the set");
            return Err(Error::Unsupported(said));
        }
        Ok((lba * block, bytes))
    }

    /// As [`range`](Self::range), which `buffer` has room for.
    pub(crate) fn transfer(&self, lba: u64, n: u32, buffer: &Buffer) -> Result<(u64, u64), Error> {
        let (offset, bytes) = self.range(lba, n)?;
        let most = self.geometry().transfer_max_bytes;
        if bytes > u64::from(most) {
            let said = format!("{bytes} bytes exceed the largest transfer of {most}");
            return Err(Error::Unsupported(said));
        }
        if bytes > u64_of(buffer.len()) {
            let has = buffer.len();
            return Err(Error::Unsupported(format!("a buffer of {has} bytes is too small")));
        }
        Ok((offset, bytes))
    }

    /// Reads `blocks` from `lba` on into the start of `buffer`.
    ///
    /// # Errors
    /// When a range or buffer does not fit, or too many members are lost.
    pub async fn read(&self, lba: u64, blocks: u32, buffer: &mut Buffer) -> Result<(), Error> {
        let (offset, bytes) = self.transfer(lba, blocks, buffer)?;
        self.inner.read(offset, bytes, buffer).await
    }

    /// Writes `blocks` from `lba` on from the start of `buffer`. With redundancy it is durable when this
    /// returns, whatever `fua` says.
    ///
    /// # Errors
    /// As [`read`](Self::read). What was not acknowledged may be there or not, block by block.
    pub async fn write(
        &self,
        lba: u64,
        blocks: u32,
        buffer: &mut Buffer,
        fua: Fua,
    ) -> Result<(), Error> {
        let (offset, bytes) = self.transfer(lba, blocks, buffer)?;
        let bytes = usize32(low32(bytes));
        Inner::write(&self.inner, offset, &buffer[..bytes], fua).await
    }

    /// Makes every completed write durable.
    ///
    /// # Errors
    /// Those of the members, when nothing makes up for them.
    pub async fn flush(&self) -> Result<(), Error> {
        self.inner.usable()?;
        if self.inner.layout.parity() > 0 {
            // Writes are durable when they complete.
            return self.inner.settle().await;
        }
        let members: Vec<_> = self.inner.members.borrow().iter().flatten().cloned().collect();
        join_all(members.iter().map(Member::flush)).await.into_iter().collect()
    }

    /// Writes zeroes over `blocks` from `lba` on.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_zeroes(
        &self,
        lba: u64,
        blocks: u32,
        deallocate: Deallocate,
        fua: Fua,
    ) -> Result<(), Error> {
        let (offset, bytes) = self.range(lba, blocks)?;
        Inner::zero(&self.inner, offset, bytes, deallocate, fua).await
    }

    /// Gives up the blocks of `ranges`, as far as whole stripes go: those are zeroed with leave to deallocate, so
    /// that parity stays true. The others keep their contents.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn deallocate(&self, ranges: &[(u64, u32)]) -> Result<(), Error> {
        let stripe = self.inner.layout.stripe_bytes();
        for &(lba, blocks) in ranges {
            let (offset, bytes) = self.range(lba, blocks)?;
            let (from, to) = (offset.next_multiple_of(stripe), (offset + bytes) / stripe * stripe);
            if from < to {
                Inner::zero(&self.inner, from, to - from, Deallocate::Yes, Fua::No).await?;
            }
        }
        Ok(())
    }

    /// Ends the set in order: the journal is history, a mirror's copies are equal. Writes must have ended.
    ///
    /// # Errors
    /// When that could not be made durable; the next assembly sees to it.
    pub async fn shut_down(&self) -> Result<(), Error> {
        let inner = &self.inner;
        let closed = async {
            self.flush().await?;
            if inner.layout.level == Level::Mirror && inner.all_in_sync() {
                inner.bitmap.clear(inner).await;
            }
            if inner.layout.records > 0 {
                inner.checkpoint(inner.stored_tail()).await?;
            }
            inner.settle().await
        };
        let closed = closed.await;
        inner.end("the set was shut down");
        let members = inner.members.borrow().clone();
        join_all(members.iter().flatten().map(Member::shut_down)).await;
        closed
    }
}

/// As many seats as a set has, all in sync.
pub fn seats(ids: Vec<[u8; 16]>, events: u64) -> Vec<Seat> {
    let seat = |member| Seat { member, health: Health::InSync, seen: events, left: 0 };
    debug_assert!(u32_of(ids.len()) > 0);
    ids.into_iter().map(seat).collect()
}
