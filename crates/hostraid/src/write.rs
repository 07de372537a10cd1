//! Writes: recorded on the members they change, then done, then acknowledged.

use std::rc::Rc;

use initiator::{Buffer, Error, Fua};
use reactor::{Task, join_all, spawn};
use stdx::crc32c;
use stdx::num::{low32, u64_of, usize32};

#[cfg(test)]
use crate::canary::Canary;
use crate::format::{Change, PAGE_BYTES, Record};
use crate::inner::Inner;
use crate::journal::Ticket;
use crate::layout::{Level, Segment, Slots};
use crate::limits::PAGE;
use crate::plan::{Method, Part, Plan};
use crate::read::Units;
use crate::work::Permit;

/// What one member is to be given of a stripe.
struct Piece {
    slot: usize,
    /// From the unit's beginning, bytes.
    at: u32,
    len: u32,
    /// New contents, and room for a page behind them.
    buffer: Buffer,
}

impl Inner {
    /// Writes `data` at `offset`.
    pub async fn write(this: &Rc<Self>, offset: u64, data: &[u8], fua: Fua) -> Result<(), Error> {
        this.usable()?;
        let mut tasks = Vec::new();
        let mut from = 0;
        while from < data.len() {
            let begin = offset + u64_of(from);
            let end = this.end_of_part(begin).min(offset + u64_of(data.len()));
            let len = stdx::num::usize64(end - begin);
            let permit = this.input.permit(1, len).await;
            let mut input = permit.buffer(len).await;
            input.copy_from_slice(&data[from..from + len]);
            // A task of its own goes on to its end when whoever asked for it does not wait.
            let inner = Rc::clone(this);
            tasks.push(spawn(async move {
                let _permit = permit;
                match inner.layout.level {
                    Level::Stripe => inner.write_striped(begin, &input, fua).await,
                    Level::Mirror => inner.write_copies(begin, &input).await,
                    Level::Raid5 | Level::Raid6 => inner.write_stripe(begin, &input).await,
                }
            }));
            from += len;
        }
        all(tasks).await
    }

    /// Where a write that begins at `offset` is cut: at the end of a stripe, or of what one command carries.
    fn end_of_part(&self, offset: u64) -> u64 {
        let step = match self.layout.level {
            Level::Mirror => u64::from(self.layout.chunk),
            _ => self.layout.stripe_bytes().min(u64_of(reactor::BUFFER_MAX)),
        };
        let stripe = self.layout.stripe_bytes();
        let rest = offset % stripe;
        offset - rest + ((rest / step + 1) * step).min(stripe)
    }

    async fn write_striped(&self, offset: u64, data: &[u8], fua: Fua) -> Result<(), Error> {
        let segments: Vec<Segment> = self.layout.segments(offset, u64_of(data.len())).collect();
        let permit = self.work.permit(segments.len(), usize32(self.layout.chunk)).await;
        let writes = segments.iter().map(|segment| async {
            let len = usize32(segment.len);
            let mut buffer = permit.buffer(len).await;
            buffer.copy_from_slice(&data[segment.from..segment.from + len]);
            let slot = self.layout.slot(segment.stripe, segment.unit);
            let member = self.member(slot).ok_or(Error::Lost("a member is missing"))?;
            let at = self.layout.member_at(segment.stripe, segment.at);
            member.write(at, segment.len, &mut buffer, fua).await
        });
        join_all(writes).await.into_iter().collect()
    }

    /// Writes to every copy.
    async fn write_copies(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let stripes = self.layout.stripes_of(offset, u64_of(data.len()));
        let _held = self.locks.lock(stripes.clone(), true).await;
        let regions = self.regions(&stripes);
        if self.all_in_sync() && self.bitmap.is_full() {
            self.bitmap.clear(self).await;
        }
        let _active = self.bitmap.enter(regions.clone());
        self.bitmap.mark(self, regions).await;
        self.settle().await?;
        let permit = self.work.permit(self.layout.width(), data.len()).await;
        let writes = self.present().iter().map(|slot| {
            let permit = &permit;
            async move {
                let Some(member) = self.member(slot) else { return };
                let mut buffer = permit.buffer(data.len()).await;
                buffer.copy_from_slice(data);
                let len = low32(u64_of(data.len()));
                let at = self.layout.data_at + offset;
                if let Err(error) = member.write(at, len, &mut buffer, Fua::Yes).await {
                    self.lose(slot, &error);
                }
            }
        });
        join_all(writes).await;
        self.settle().await
    }

    /// Writes a part of one stripe with parity.
    async fn write_stripe(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let segments = self.layout.segments(offset, u64_of(data.len()));
        let parts = |s: Segment| Part { unit: s.unit, at: s.at, len: s.len, from: s.from };
        let parts: Vec<Part> = segments.map(parts).collect();
        let stripe = offset / self.layout.stripe_bytes();
        let _held = self.locks.lock(stripe..stripe + 1, true).await;
        let room = usize32(self.layout.chunk + PAGE);
        let permit = self.work.permit(self.layout.width() + 1, room).await;
        let (plan, units) = loop {
            self.settle().await?;
            let live = self.live_units(stripe);
            let plan = Plan::new(&self.layout, &parts, live);
            let units = self.fetch(&permit, stripe, plan.hull, plan.reads, room).await?;
            if self.live_units(stripe) == live {
                break (plan, units);
            }
        };
        let pieces = self.pieces(&permit, stripe, &plan, (&parts, data), units).await;
        self.mark_missed(stripe..stripe + 1).await?;
        self.change(stripe, plan.hull, pieces).await
    }

    /// Notes that a member which is not in sync may miss what is written to `stripes`.
    pub async fn mark_missed(&self, stripes: std::ops::Range<u64>) -> Result<(), Error> {
        #[cfg(test)]
        if self.has_canary(Canary::ForgetBits) {
            return Ok(());
        }
        if !self.all_in_sync() {
            self.bitmap.mark(self, self.regions(&stripes)).await;
        }
        self.settle().await
    }

    /// Computes what each member gets.
    async fn pieces(
        &self,
        permit: &Permit,
        stripe: u64,
        plan: &Plan,
        (parts, data): (&[Part], &[u8]),
        mut units: Units,
    ) -> Vec<Piece> {
        let room = usize32(self.layout.chunk + PAGE);
        let live = self.live_units(stripe);
        let len = usize32(plan.hull.1);
        match plan.method {
            Method::Modify => {
                for part in parts {
                    if units[part.unit].is_none() {
                        units[part.unit] = Some(permit.buffer(room).await);
                    }
                }
                let mut change = permit.buffer(room).await;
                modify(&mut units, &mut change, plan, (parts, data), self.layout.data());
            }
            Method::Encode => {
                for unit in &mut units {
                    if unit.is_none() {
                        *unit = Some(permit.buffer(room).await);
                    }
                }
                encode(&mut units, plan, (parts, data), self.layout.data(), len);
            }
        }
        let mut pieces = Vec::new();
        for (unit, buffer) in units.into_iter().enumerate() {
            let Some(mut buffer) = buffer.filter(|_| live.has(unit)) else { continue };
            let slot = self.layout.slot(stripe, unit);
            if unit >= self.layout.data() {
                #[cfg(test)]
                if self.has_canary(Canary::ForgetParity) {
                    continue;
                }
                pieces.push(Piece { slot, at: plan.hull.0, len: plan.hull.1, buffer });
            } else if let Some(part) = parts.iter().find(|part| part.unit == unit) {
                let from = usize32(part.at - plan.hull.0);
                buffer.copy_within(from..from + usize32(part.len), 0);
                pieces.push(Piece { slot, at: part.at, len: part.len, buffer });
            }
        }
        pieces
    }

    /// Records the pieces on their members, and puts them in place then.
    async fn change(&self, stripe: u64, hull: (u32, u32), pieces: Vec<Piece>) -> Result<(), Error> {
        let ticket = self.journal.begin(self).await?;
        let members: Slots = pieces.iter().map(|piece| piece.slot).collect();
        let recorded = pieces.into_iter().map(|mut piece| async {
            self.record(&ticket, stripe, hull, members, &mut piece).await;
            piece
        });
        let pieces = join_all(recorded).await;
        // A member that has not got its part of the record must be known to be out before the others change.
        self.settle().await?;
        let written = pieces.into_iter().map(|mut piece| async move {
            let Some(member) = self.member(piece.slot) else { return };
            let at = self.layout.member_at(stripe, piece.at);
            if let Err(error) = member.write(at, piece.len, &mut piece.buffer, Fua::Yes).await {
                self.lose(piece.slot, &error);
            }
        });
        join_all(written).await;
        self.settle().await
    }

    async fn record(
        &self,
        ticket: &Ticket<'_>,
        stripe: u64,
        hull: (u32, u32),
        members: Slots,
        piece: &mut Piece,
    ) {
        #[cfg(test)]
        if self.has_canary(Canary::SkipJournal) {
            return;
        }
        let Some(member) = self.member(piece.slot) else { return };
        let len = usize32(piece.len);
        let crc = crc32c(&piece.buffer[..len]);
        let record = Record {
            set: self.id,
            slot: piece.slot,
            number: ticket.number,
            stripe,
            hull,
            members,
            change: Change::Unit { at: piece.at, len: piece.len, crc },
        };
        record.put(&mut piece.buffer[len..len + PAGE_BYTES]);
        let at = self.layout.record_end(ticket.number) - u64::from(piece.len + PAGE);
        if let Err(error) = member.write(at, piece.len + PAGE, &mut piece.buffer, Fua::Yes).await {
            self.lose(piece.slot, &error);
        }
    }
}

/// New data and new parity from the old ones.
fn modify(
    units: &mut Units,
    change: &mut Buffer,
    plan: &Plan,
    (parts, data): (&[Part], &[u8]),
    k: usize,
) {
    let (data_units, parity) = units.split_at_mut(k);
    for part in parts {
        let Some(old) = &mut data_units[part.unit] else { continue };
        let (from, len) = (usize32(part.at - plan.hull.0), usize32(part.len));
        let new = &data[part.from..part.from + len];
        let change = &mut change[..len];
        change.copy_from_slice(&old[from..from + len]);
        raid::parity::add(change, new);
        for (n, unit) in parity.iter_mut().enumerate() {
            if let Some(unit) = unit {
                raid::parity::update(part.unit, change, n, &mut unit[from..from + len]);
            }
        }
        old[from..from + len].copy_from_slice(new);
    }
}

/// New parity from all of the data.
fn encode(units: &mut Units, plan: &Plan, (parts, data): (&[Part], &[u8]), k: usize, len: usize) {
    for part in parts {
        let Some(unit) = &mut units[part.unit] else { continue };
        let (from, length) = (usize32(part.at - plan.hull.0), usize32(part.len));
        unit[from..from + length].copy_from_slice(&data[part.from..part.from + length]);
    }
    let (data_units, parity) = units.split_at_mut(k);
    let data_units: Vec<&[u8]> = data_units.iter().flatten().map(|unit| &unit[..len]).collect();
    let mut parity: Vec<&mut [u8]> =
        parity.iter_mut().flatten().map(|unit| &mut unit[..len]).collect();
    raid::parity::encode(&data_units, &mut parity);
}

/// What came of all of them: the first error there was.
pub async fn all(tasks: Vec<Task<Result<(), Error>>>) -> Result<(), Error> {
    let mut all = Ok(());
    for task in tasks {
        let one = task.await.unwrap_or(Err(Error::Lost("the work was ended")));
        all = all.and(one);
    }
    all
}
