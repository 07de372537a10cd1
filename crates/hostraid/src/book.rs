//! What the superblocks say: who is in the set, and which records are history.
//!
//! A superblock is never ahead of the bitmap: bits of what is being written are stored before a loss is. Nothing is
//! acknowledged, and nothing put in place from a record, before all superblocks say who is missing.

use initiator::{Error, Fua};
use reactor::join_all;

use crate::bitmap::Bits;
#[cfg(test)]
use crate::canary::Canary;
use crate::format::{Health, Seat, Superblock};
use crate::inner::Inner;
use crate::limits::PAGE;
use crate::member::is_fenced;

/// What is known of the members, and how much of it is in their superblocks.
pub struct Book {
    pub seats: Vec<Seat>,
    pub events: u64,
    /// Every member there has taken this event count.
    pub durable: u64,
    pub generation: u64,
    /// Which of its two pages a member's newer superblock is in, by slot.
    pub newer: Vec<u64>,
    /// The tail that every member's superblock has.
    pub tail: u64,
    /// What a partial rebuild has to do, by slot.
    pub todo: Vec<Option<Bits>>,
    /// Why the set is of no more use.
    pub broken: Option<&'static str>,
}

impl Inner {
    #[must_use]
    pub fn stored_tail(&self) -> u64 {
        self.book.borrow().tail
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
            if !self.is_settled() {
                self.store_books().await;
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
            self.store_books().await;
        }
        self.settle().await
    }

    /// Returns when every record that was begun before this is history. Before a member is given what it has not: a
    /// record of the time before, done again after a crash, would take from it what it was given.
    ///
    /// # Errors
    /// When the set is of no more use.
    pub async fn make_history(&self) -> Result<(), Error> {
        if self.layout.records == 0 {
            return Ok(());
        }
        let next = self.journal.next();
        self.journal.ended_below(self, next).await?;
        while self.stored_tail() < next {
            self.checkpoint(next.saturating_sub(1)).await?;
        }
        Ok(())
    }

    /// Has all superblocks say how far a rebuild has come.
    pub async fn store_progress(&self) {
        let _turn = self.meta.hold(1).await;
        self.store_books().await;
    }

    /// Stores the bits of what is being written if somebody was lost or has joined since the last time: it may or may
    /// not be on those.
    async fn store_bits(&self) {
        while !self.is_settled() {
            let events = self.book.borrow().events;
            for stripes in self.locks.written() {
                self.bitmap.add(self.regions(&stripes));
            }
            self.bitmap.store(self).await;
            if self.book.borrow().events == events {
                return;
            }
        }
    }

    /// Writes all superblocks, as of now. The caller has the turn.
    async fn store_books(&self) {
        self.store_bits().await;
        if self.has_stopped() {
            return;
        }
        // No waiting from here to the writes: they say what is so now.
        let tail = self.journal.tail();
        let (mut superblock, newer) = {
            let mut book = self.book.borrow_mut();
            book.generation += 1;
            // Never over the newer one: a torn superblock leaves that.
            for slot in self.present().iter() {
                book.newer[slot] = 1 - book.newer[slot];
            }
            let superblock = Superblock {
                set: self.id,
                slot: 0,
                name: self.name.clone(),
                layout: self.layout,
                events: book.events,
                floor: book.durable,
                generation: book.generation,
                tail,
                seats: book.seats.clone(),
            };
            (superblock, book.newer.clone())
        };
        let writes: Vec<_> = self
            .present()
            .iter()
            .map(|slot| {
                superblock.slot = slot;
                let page = superblock.to_page();
                let at = newer[slot] * u64::from(PAGE);
                async move { self.put(slot, at, &page, Fua::Yes).await }
            })
            .collect();
        join_all(writes).await;
        let mut book = self.book.borrow_mut();
        if book.broken.is_some() {
            // Some may not have it.
            return;
        }
        book.tail = tail;
        if book.events == superblock.events {
            book.durable = superblock.events;
        }
        drop(book);
        self.journal.wake();
    }
}
