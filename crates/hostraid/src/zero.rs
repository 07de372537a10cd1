//! Zeroes: over whole stripes without sending any, parity being zero then, too.

use std::rc::Rc;

use initiator::{Deallocate, Error, Fua};
use reactor::{join_all, spawn};
use stdx::num::{u64_of, usize64};

use crate::format::{Change, PAGE_BYTES, Record};
use crate::inner::Inner;
use crate::layout::{Level, Slots};
use crate::limits::{PAGE, ZERO_STRIPES};
use crate::write::all;

impl Inner {
    /// Zeroes `len` bytes at `offset`.
    pub async fn zero(
        this: &Rc<Self>,
        offset: u64,
        len: u64,
        deallocate: Deallocate,
        fua: Fua,
    ) -> Result<(), Error> {
        this.usable()?;
        let stripe = this.layout.stripe_bytes();
        let end = offset + len;
        let first = offset.next_multiple_of(stripe).min(end);
        let last = (end / stripe * stripe).max(first);
        Self::write_zeroes(this, offset, first - offset, fua).await?;
        let (mut from, to) = (first / stripe, last / stripe);
        while from < to {
            let next = (from + ZERO_STRIPES).min(to);
            let inner = Rc::clone(this);
            let task = spawn(async move { inner.zero_stripes(from..next, deallocate, fua).await });
            all(vec![task]).await?;
            from = next;
        }
        Self::write_zeroes(this, last, end - last, fua).await
    }

    /// Writes zeroes as any other data: for what is no whole stripe.
    async fn write_zeroes(this: &Rc<Self>, offset: u64, len: u64, fua: Fua) -> Result<(), Error> {
        if len == 0 {
            return Ok(());
        }
        const STEP: u64 = 256 << 10;
        let zeroes = vec![0; usize64(len.min(STEP))];
        let mut at = offset;
        while at < offset + len {
            let some = (offset + len - at).min(STEP);
            Self::write(this, at, &zeroes[..usize64(some)], fua).await?;
            at += some;
        }
        Ok(())
    }

    async fn zero_stripes(
        &self,
        stripes: std::ops::Range<u64>,
        deallocate: Deallocate,
        fua: Fua,
    ) -> Result<(), Error> {
        let _held = self.locks.lock(stripes.clone(), true).await;
        self.settle().await?;
        if self.layout.level == Level::Mirror {
            let regions = self.regions(&stripes);
            let _active = self.bitmap.enter(regions.clone());
            self.bitmap.mark(self, regions).await;
            self.settle().await?;
            return self.zero_members(&stripes, deallocate, Fua::Yes).await;
        }
        if self.layout.level == Level::Stripe {
            return self.zero_members(&stripes, deallocate, fua).await;
        }
        self.mark_missed(stripes.clone()).await?;
        let ticket = self.journal.begin(self).await?;
        let members = self.present();
        join_all(
            members.iter().map(|slot| self.record_zeroes(ticket.number, &stripes, members, slot)),
        )
        .await;
        self.settle().await?;
        self.zero_members(&stripes, deallocate, Fua::Yes).await
    }

    async fn record_zeroes(
        &self,
        number: u64,
        stripes: &std::ops::Range<u64>,
        members: Slots,
        slot: usize,
    ) {
        let record = Record {
            set: self.id,
            slot,
            number,
            stripe: stripes.start,
            hull: (0, self.layout.chunk),
            members,
            change: Change::Zeroes { stripes: stripes.end - stripes.start },
        };
        let mut page = vec![0; PAGE_BYTES];
        record.put(&mut page);
        let at = self.layout.record_end(number) - u64::from(PAGE);
        self.put(slot, at, &page, Fua::Yes).await;
    }

    /// Zeroes locked stripes on every member that is there.
    async fn zero_members(
        &self,
        stripes: &std::ops::Range<u64>,
        deallocate: Deallocate,
        fua: Fua,
    ) -> Result<(), Error> {
        let zeroed = join_all(self.present().iter().map(|slot| {
            let stripes = stripes.clone();
            async move { (slot, self.zero_member(slot, &stripes, deallocate, fua).await) }
        }));
        for (slot, zeroed) in zeroed.await {
            if let Err(error) = zeroed {
                if self.layout.parity() == 0 {
                    return Err(error);
                }
                self.lose(slot, &error);
            }
        }
        self.settle().await
    }

    /// Zeroes a member's units of `stripes`.
    pub async fn zero_member(
        &self,
        slot: usize,
        stripes: &std::ops::Range<u64>,
        deallocate: Deallocate,
        fua: Fua,
    ) -> Result<(), Error> {
        let Some(member) = self.member(slot) else { return Ok(()) };
        let at = self.layout.member_at(stripes.start, 0);
        let len = (stripes.end - stripes.start) * u64::from(self.layout.chunk);
        debug_assert!(len <= u64_of(usize::MAX));
        if member.traits().write_zeroes {
            return member.zero(at, len, deallocate, fua).await;
        }
        let permit = self.work.permit(1, stdx::num::usize32(self.layout.chunk)).await;
        let mut zeroes = permit.buffer(stdx::num::usize32(self.layout.chunk)).await;
        zeroes.fill(0);
        for stripe in stripes.clone() {
            let at = self.layout.member_at(stripe, 0);
            member.write(at, self.layout.chunk, &mut zeroes, fua).await?;
        }
        Ok(())
    }
}
