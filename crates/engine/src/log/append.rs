//! Appending, which is to reserve, to fill and to commit; and what holds it back: the fuller the ring, the
//! longer an append waits, and once it is full they wait in line.

use super::limits::{RECORD_BLOCKS_MAX, SLOW_FROM, SLOW_NANOS_MAX, SLOW_NANOS_MIN};
use super::record::Kind;
use super::reserve::{Reserved, Stored};
use super::ring::Ring;
use super::{Append, Claim, Shared, Turn};
use crate::address::{BLOCK, BLOCK_BITS, Key};
use crate::error::{Error, Kind as ErrorKind, Result};
use crate::limits::HOLE_PATIENCE;
use std::time::Duration;
use stdx::Counted;
use stdx::num::u64_of;

/// The record to be stored, if it can be one.
fn kind_of(record: &Append<'_>) -> Result<Kind> {
    match *record {
        Append::Write { key, data } => {
            let bytes: usize = data.iter().map(|piece| piece.len()).sum();
            let whole = bytes.is_multiple_of(BLOCK);
            kind_of_write(key, if whole { bytes / BLOCK } else { 0 })
        }
        Append::Hole { key, count } => within(key, count, Kind::Hole { key, count }),
        Append::Refer { key, entries, .. } => {
            let blocks = entries.len();
            within(key, counted(blocks), Kind::Refer { key, blocks })
        }
    }
}

/// As that, of the contents of so many blocks.
#[inline]
pub(super) fn kind_of_write(key: Key, blocks: usize) -> Result<Kind> {
    within(key, counted(blocks), Kind::Write { key, blocks })
}

/// How many blocks a record is about; none when they are more than one may have.
const fn counted(blocks: usize) -> u64 {
    if blocks <= RECORD_BLOCKS_MAX { u64_of(blocks) } else { 0 }
}

#[inline]
fn within(key: Key, count: u64, kind: Kind) -> Result<Kind> {
    let end = key.block.checked_add(count);
    if count == 0 || end.is_none_or(|end| end > 1 << BLOCK_BITS) {
        return Err(Error::new(ErrorKind::Invalid, "a record has 1 to 256 whole blocks"));
    }
    Ok(kind)
}

/// How long an append is held back at a fill in parts of 1024: nothing at first, then rising with
/// the cube of what is left above the threshold, so that writers meet no wall when the drives are
/// slower than they are.
///
/// In nanoseconds.
pub(super) fn delay(fill: u64) -> Option<u64> {
    let over = fill.min(1024).checked_sub(SLOW_FROM)?;
    let span = 1024 - SLOW_FROM;
    let nanos = SLOW_NANOS_MAX * over * over * over / (span * span * span);
    (nanos >= SLOW_NANOS_MIN).then_some(nanos)
}

impl Ring {
    /// The share of the ring in use, in parts of 1024.
    pub(super) const fn fill(&self) -> u64 {
        // The ring has at most 2^37 bytes.
        self.used() * 1024 / self.control.ring_bytes
    }
}

fn fill_and_commit(mut reserved: Reserved<'_>, record: &Append<'_>) -> Result<Stored> {
    match *record {
        Append::Write { data, .. } => {
            data.iter().try_for_each(|piece| reserved.fill(piece))?;
            reserved.commit()
        }
        Append::Hole { .. } => reserved.commit(),
        Append::Refer { source, entries, .. } => {
            reserved.commit_with(&super::record::references(source, entries))
        }
    }
}

impl Shared {
    pub(super) async fn append(&self, record: Append<'_>) -> Result<u64> {
        let stored = fill_and_commit(self.reserve(kind_of(&record)?, Claim::New).await?, &record)?;
        if !stored.is_durable {
            self.make_durable(stored.sequence).await?;
        }
        Ok(stored.sequence)
    }

    /// Waits until what is durable may be acknowledged: as many devices have it as the pool's operator wants.
    pub(super) async fn until_enough(&self) -> Result<()> {
        let members = self.store.owner().members();
        if !self.store.is_memory() && members.is_short() {
            // On the heap: rare, and too large for all that may come to it.
            Box::pin(members.until_enough(|| self.ended.get())).await?;
        }
        Ok(())
    }

    /// As [`reserve`](Self::reserve), if nothing has to be waited for.
    #[inline]
    pub(super) fn try_reserve(&self, kind: Kind, claim: Claim) -> Result<Option<Reserved<'_>>> {
        self.check_takes(kind, claim)?;
        if self.paused.get() || !self.gate.try_acquire(1) {
            return Ok(None);
        }
        let turn = Turn(&self.gate);
        let takes = {
            let ring = self.ring.borrow();
            let is_slowed = claim == Claim::New && delay(ring.fill()).is_some();
            !is_slowed && self.has_room(&ring, kind)
        };
        Ok(takes.then(|| Reserved::new(self, kind, claim, turn)))
    }

    /// Reserves a range for a record, once its turn has come and there is room. The delay counts from now, so that
    /// those who came together wait together; whoever came first goes first.
    pub(super) async fn reserve(&self, kind: Kind, claim: Claim) -> Result<Reserved<'_>> {
        self.check_takes(kind, claim)?;
        let delay = match claim {
            Claim::New => delay(self.ring.borrow().fill()),
            Claim::Acknowledged => None,
        };
        let slow_until = delay.map(|nanos| reactor::now() + nanos);
        if !self.gate.try_acquire(1) {
            let _waits = Counted::new(&self.waiting);
            // Whoever has the gate may be a hole, or what was acknowledged, and wait on for room.
            let refused = || self.check_takes(kind, claim).is_err();
            while !self.gate.acquire_unless(1, refused).await {
                self.check_takes(kind, claim)?;
            }
        }
        let turn = Turn(&self.gate);
        if let Some(until) = slow_until {
            let _waits = Counted::new(&self.waiting);
            reactor::sleep_until(until).await;
        }
        if !self.has_room(&self.ring.borrow(), kind) {
            let _waits = Counted::new(&self.waiting);
            let _full = Counted::new(&self.full);
            self.wait_for_room(&kind, claim).await?;
        }
        while self.paused.get() && self.ended.get().is_none() {
            self.resumed.notified().await;
        }
        self.check_takes(kind, claim)?;
        Ok(Reserved::new(self, kind, claim, turn))
    }

    /// Waits until the record of this sequence, which was stored, is durable and can be looked up.
    pub(super) async fn make_durable(&self, sequence: u64) -> Result<()> {
        // A device of memory that failed is told of before what it lacks is acknowledged.
        if self.store.is_troubled() {
            // Whoever waits for this may not stay.
            self.more.notify();
        }
        self.store.settle_trouble().await.inspect_err(|error| self.end(error.kind))?;
        if !self.store.is_memory() {
            return self.committed(sequence).await;
        }
        {
            let mut ring = self.ring.borrow_mut();
            let head = ring.head.position;
            ring.settle(head, &self.store).inspect_err(|error| self.end(error.kind))?;
            assert!(ring.settled.sequence > sequence, "what was stored can be looked up");
        }
        self.work.notify();
        self.more.notify();
        Ok(())
    }

    /// Whether there is room for a record now: then whoever finds none later waits for as long as any does.
    #[inline]
    fn has_room(&self, ring: &Ring, kind: Kind) -> bool {
        let has_room = ring.has_room(kind, &self.store);
        if has_room {
            self.no_room_since.set(None);
        }
        has_room
    }

    /// Waits until a record finds room; whoever calls holds the gate.
    pub(super) async fn wait_for_room(&self, kind: &Kind, claim: Claim) -> Result<()> {
        assert_eq!(self.gate.available(), 0, "who waits for room has the gate");
        while !self.has_room(&self.ring.borrow(), *kind) {
            self.check_takes(*kind, claim)?;
            self.more.notify();
            if !self.refusing_writes.get() {
                self.room.notified().await;
                continue;
            }
            // All of them together wait for so long: they come one after the other.
            let since = self.no_room_since.get().unwrap_or_else(reactor::now);
            self.no_room_since.set(Some(since));
            let waited = Duration::from_nanos(reactor::now() - since);
            let Some(left) = HOLE_PATIENCE.checked_sub(waited).filter(|left| !left.is_zero())
            else {
                let kind = match claim {
                    Claim::New => ErrorKind::Full,
                    Claim::Acknowledged => ErrorKind::Busy,
                };
                return Err(Error::new(kind, "there is no space behind the commit log"));
            };
            // Room may come until then.
            let _ = reactor::timeout(left, self.room.notified()).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_rise_smoothly_from_nothing() {
        assert_eq!(delay(0), None);
        assert_eq!(delay(SLOW_FROM), None);
        let mut last = 0;
        for fill in SLOW_FROM..=1024 {
            let now = delay(fill).unwrap_or(0);
            assert!(now >= last && now - last < 150_000, "at {fill}");
            last = now;
        }
        assert_eq!(last, SLOW_NANOS_MAX);
    }
}
