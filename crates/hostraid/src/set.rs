//! A set as those see it who use it.

use std::rc::Rc;

use initiator::{Buffer, Deallocate, Error, Fua, Geometry, Supports};
use reactor::join_all;
use stdx::num::{low32, u32_of, u64_of, usize32};

use crate::format::{Health, Seat};
use crate::inner::Inner;
use crate::layout::{Layout, Level, Slots};
use crate::work::to_its_end;

/// A set of members, used as one namespace is. Cloning is cheap and shares it; it belongs to one reactor.
///
/// With redundancy every write is durable when it completes, and a crash at any moment leaves each block as it
/// was or as it was to be, whichever members are missing then.
#[derive(Clone)]
pub struct Set {
    pub(crate) inner: Rc<Inner>,
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
        let all: Vec<_> = members.iter().flatten().map(|member| member.traits()).collect();
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
                reservations: false,
                reservations_persist: false,
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
        Inner::read(&self.inner, offset, bytes, buffer).await
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
            let inner = Rc::clone(&self.inner);
            return to_its_end(async move { inner.settle().await }).await?;
        }
        let members: Vec<_> = self.inner.members.borrow().iter().flatten().cloned().collect();
        join_all(members.iter().map(|member| member.flush())).await.into_iter().collect()
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
        let set = self.clone();
        to_its_end(async move { set.close().await }).await?
    }

    async fn close(&self) -> Result<(), Error> {
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
        if let Some(held) = inner.held.get() {
            let away = inner.away.borrow().clone();
            let all = members.iter().flatten().chain(away.iter().flatten()).cloned();
            held.release(&all.collect::<Vec<_>>()).await;
        }
        join_all(members.iter().flatten().map(|member| member.shut_down())).await;
        closed
    }
}

/// As many seats as a set has, all in sync.
pub fn seats(ids: Vec<[u8; 16]>, events: u64) -> Vec<Seat> {
    let seat = |member| Seat { member, health: Health::InSync, seen: events, left: 0 };
    debug_assert!(u32_of(ids.len()) > 0);
    ids.into_iter().map(seat).collect()
}
