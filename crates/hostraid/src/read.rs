//! Reads: from the members that have it, else from what the others say of it.

use std::rc::Rc;

use initiator::{Buffer, Error, Fua};
use reactor::join_all;
use stdx::num::{low32, usize32};

use crate::inner::Inner;
use crate::layout::{Level, Segment, Slots};
use crate::member::is_medium;
use crate::work::{Permit, to_its_end};

/// The units of a stripe over a hull, as far as they are known.
pub type Units = Vec<Option<Buffer>>;

impl Inner {
    /// Reads `len` bytes at `offset` into the start of `to`.
    pub async fn read(
        this: &Rc<Self>,
        offset: u64,
        len: u64,
        to: &mut Buffer,
    ) -> Result<(), Error> {
        this.usable()?;
        if this.layout.level == Level::Mirror {
            return Self::read_copy(this, offset, low32(len), to).await;
        }
        let segments: Vec<Segment> = this.layout.segments(offset, len).collect();
        if let [only] = segments[..]
            && let Some(read) = this.read_direct(&only, to).await
        {
            return read;
        }
        // As many at once as have their buffers.
        for some in segments.chunks(this.layout.width() * 2) {
            let permit = this.input.permit(some.len(), usize32(this.layout.chunk)).await;
            let reads = join_all(some.iter().map(|one| Self::read_segment(this, one, &permit)));
            let reads = reads.await;
            for (segment, read) in some.iter().zip(reads) {
                let (from, len) = (segment.from, usize32(segment.len));
                to[from..from + len].copy_from_slice(&read?[..len]);
            }
        }
        Ok(())
    }

    async fn read_segment(
        this: &Rc<Self>,
        segment: &Segment,
        permit: &Permit,
    ) -> Result<Buffer, Error> {
        let mut buffer = permit.buffer(usize32(this.layout.chunk)).await;
        match this.read_direct(segment, &mut buffer).await {
            Some(Ok(())) => Ok(buffer),
            Some(Err(error)) => Err(error),
            None => {
                let (inner, segment) = (Rc::clone(this), *segment);
                to_its_end(async move {
                    inner.read_computed(&segment, &mut buffer).await?;
                    Ok(buffer)
                })
                .await?
            }
        }
    }

    /// Reads where a segment lies; `None` when that is not possible and others may tell.
    async fn read_direct(&self, segment: &Segment, to: &mut Buffer) -> Option<Result<(), Error>> {
        let slot = self.layout.slot(segment.stripe, segment.unit);
        let member = self.member(slot).filter(|_| self.live(segment.stripe).has(slot));
        let Some(member) = member else {
            let lost = Error::Lost("the member that has it is missing");
            return (self.layout.parity() == 0).then_some(Err(lost));
        };
        let at = self.layout.member_at(segment.stripe, segment.at);
        match member.read(at, segment.len, to).await {
            Ok(()) => Some(Ok(())),
            Err(error) if self.layout.parity() == 0 => Some(Err(error)),
            Err(error) => {
                if !is_medium(&error) {
                    self.lose(slot, &error);
                }
                None
            }
        }
    }

    /// Computes a segment from the rest of its stripe.
    async fn read_computed(&self, segment: &Segment, to: &mut Buffer) -> Result<(), Error> {
        let _held = self.locks.lock(segment.stripe..segment.stripe + 1, false).await;
        self.settle().await?;
        let len = usize32(segment.len);
        let permit = self.work.permit(self.layout.width(), len).await;
        let hull = (segment.at, segment.len);
        let wanted = [segment.unit].into_iter().collect();
        let units = self.fetch(&permit, segment.stripe, hull, wanted, len).await?;
        let unit = units[segment.unit].as_ref();
        let unit = unit.ok_or(Error::Lost("what was asked for was not computed"))?;
        to[..len].copy_from_slice(&unit[..len]);
        Ok(())
    }

    /// Reads the `wanted` units of a stripe that the caller has locked, over `hull`, into buffers of `room`
    /// bytes. What cannot be read is computed; what a medium does not give is written there again.
    pub async fn fetch(
        &self,
        permit: &Permit,
        stripe: u64,
        hull: (u32, u32),
        wanted: Slots,
        room: usize,
    ) -> Result<Units, Error> {
        self.fetch_but(permit, stripe, hull, (wanted, Slots::default()), room).await
    }

    /// As [`fetch`](Self::fetch), where units in `bad` are not to be read; they are written again.
    pub async fn fetch_but(
        &self,
        permit: &Permit,
        stripe: u64,
        hull: (u32, u32),
        (wanted, mut bad): (Slots, Slots),
        room: usize,
    ) -> Result<Units, Error> {
        let (data, width) = (self.layout.data(), self.layout.width());
        let mut units: Units = (0..width).map(|_| None).collect();
        loop {
            self.usable()?;
            let live = self.live_units(stripe);
            let good = |unit: &usize| live.has(*unit) && !bad.has(*unit);
            let lost: Slots = wanted.iter().filter(|unit| !good(unit)).collect();
            let mut reads: Slots = wanted.iter().filter(good).collect();
            if lost.count() > 0 {
                let others: Vec<_> = (0..width).filter(good).collect();
                if others.len() < data {
                    let text = "more of a stripe is unreadable than parity can make up for";
                    return Err(Error::Lost(text));
                }
                for unit in others {
                    if reads.count() < data {
                        reads.add(unit);
                    }
                }
            }
            let reads: Vec<_> = reads.iter().filter(|&unit| units[unit].is_none()).collect();
            let got = reads.iter().map(|&unit| self.read_unit(permit, stripe, unit, hull, room));
            let mut failed = false;
            for (&unit, got) in reads.iter().zip(join_all(got).await) {
                match got {
                    Ok(buffer) => units[unit] = Some(buffer),
                    Err(medium) => {
                        failed = true;
                        if medium {
                            bad.add(unit);
                        }
                    }
                }
            }
            if failed {
                self.settle().await?;
                continue;
            }
            if lost.count() > 0 {
                self.compute(permit, &mut units, hull, room).await;
                for unit in bad.iter() {
                    self.mend(stripe, unit, hull, units[unit].as_mut()).await;
                }
            }
            return Ok(units);
        }
    }

    /// Reads a unit; else whether it is for the medium. The member is lost if not.
    async fn read_unit(
        &self,
        permit: &Permit,
        stripe: u64,
        unit: usize,
        hull: (u32, u32),
        room: usize,
    ) -> Result<Buffer, bool> {
        let slot = self.layout.slot(stripe, unit);
        let Some(member) = self.member(slot) else { return Err(false) };
        let mut buffer = permit.buffer(room).await;
        let at = self.layout.member_at(stripe, hull.0);
        match member.read(at, hull.1, &mut buffer).await {
            Ok(()) => Ok(buffer),
            Err(error) => {
                let medium = is_medium(&error);
                if !medium {
                    self.lose(slot, &error);
                }
                Err(medium)
            }
        }
    }

    /// Computes the units that were not read from those that were.
    async fn compute(&self, permit: &Permit, units: &mut Units, hull: (u32, u32), room: usize) {
        let len = usize32(hull.1);
        let lost: Vec<_> = (0..units.len()).filter(|&unit| units[unit].is_none()).collect();
        for &unit in &lost {
            units[unit] = Some(permit.buffer(room).await);
        }
        let mut slices: Vec<&mut [u8]> =
            units.iter_mut().flatten().map(|buffer| &mut buffer[..len]).collect();
        raid::parity::reconstruct(&mut slices, self.layout.data(), &lost);
    }

    /// Writes what a medium did not give where it belongs.
    async fn mend(&self, stripe: u64, unit: usize, hull: (u32, u32), what: Option<&mut Buffer>) {
        let slot = self.layout.slot(stripe, unit);
        let (Some(member), Some(buffer)) = (self.member(slot), what) else { return };
        let at = self.layout.member_at(stripe, hull.0);
        tracing::debug!("{} bytes at {at} of member {slot} are written again", hull.1);
        if let Err(error) = member.write(at, hull.1, buffer, Fua::Yes).await {
            self.lose(slot, &error);
        }
    }

    /// Reads from one of a mirror's copies, in turn.
    async fn read_copy(
        this: &Rc<Self>,
        offset: u64,
        len: u32,
        to: &mut Buffer,
    ) -> Result<(), Error> {
        let stripes = this.layout.stripes_of(offset, len.into());
        let mut bad = Slots::default();
        loop {
            this.usable()?;
            let good = this.copies(&stripes, bad);
            if good.is_empty() {
                return Err(Error::Lost("no copy of it can be read"));
            }
            let turn = this.turn.get();
            this.turn.set(turn.wrapping_add(1));
            let slot = good[turn % good.len()];
            let Some(member) = this.member(slot) else { continue };
            match member.read(this.layout.data_at + offset, len, to).await {
                Ok(()) => break,
                Err(error) if is_medium(&error) => bad.add(slot),
                Err(error) => this.lose(slot, &error),
            }
        }
        if bad.count() == 0 {
            return Ok(());
        }
        // What another copy has is written where it could not be read, with nobody writing meanwhile.
        let inner = Rc::clone(this);
        to_its_end(async move {
            let _held = inner.locks.lock(stripes.clone(), true).await;
            for slot in bad.iter() {
                inner.copy_range(&stripes, slot).await?;
            }
            Ok(())
        })
        .await?
    }

    /// Slots of the copies that have all of `stripes`, without those in `bad`.
    pub fn copies(&self, stripes: &std::ops::Range<u64>, bad: Slots) -> Vec<usize> {
        let all = (0..self.layout.width()).filter(|&slot| !bad.has(slot));
        let live = |slot: usize| stripes.clone().all(|stripe| self.live(stripe).has(slot));
        all.filter(|&slot| live(slot)).collect()
    }

    /// Copies locked stripes of a mirror to `slot` from another member that has them.
    pub async fn copy_range(
        &self,
        stripes: &std::ops::Range<u64>,
        slot: usize,
    ) -> Result<(), Error> {
        let one: Slots = [slot].into_iter().collect();
        for stripe in stripes.clone() {
            self.copy_stripe(stripe, one, one).await?;
        }
        Ok(())
    }

    /// Makes all copies of locked stripes what one of them is: the first that can be read.
    pub async fn level_copies(&self, stripes: &std::ops::Range<u64>) -> Result<(), Error> {
        for stripe in stripes.clone() {
            let all = self.copies(&(stripe..stripe + 1), Slots::default());
            if all.len() > 1 {
                self.copy_stripe(stripe, Slots::default(), all.into_iter().collect()).await?;
            }
        }
        Ok(())
    }

    /// Reads a stripe from a copy that is not in `bad`, and writes it to those in `to`.
    async fn copy_stripe(&self, stripe: u64, mut bad: Slots, to: Slots) -> Result<(), Error> {
        let (at, chunk) = (self.layout.member_at(stripe, 0), self.layout.chunk);
        let permit = self.work.permit(1, usize32(chunk)).await;
        let mut buffer = permit.buffer(usize32(chunk)).await;
        let source = loop {
            self.usable()?;
            let from = self.copies(&(stripe..stripe + 1), bad).first().copied();
            let from = from.ok_or(Error::Lost("no copy of a stripe can be read"))?;
            let Some(member) = self.member(from) else { continue };
            match member.read(at, chunk, &mut buffer).await {
                Ok(()) => break from,
                Err(error) if is_medium(&error) => bad.add(from),
                Err(error) => self.lose(from, &error),
            }
        };
        for slot in to.iter().filter(|&slot| slot != source) {
            let Some(member) = self.member(slot) else { continue };
            if let Err(error) = member.write(at, chunk, &mut buffer, Fua::Yes).await {
                self.lose(slot, &error);
            }
        }
        self.settle().await
    }
}
