//! Appending, and what holds it back: the fuller the ring, the longer an append waits, and once it
//! is full they wait in line.

use super::lane::Lane;
use super::limits::{RECORD_BLOCKS_MAX, SLOW_FROM, SLOW_NANOS_MAX, SLOW_NANOS_MIN};
use super::record::Kind;
use super::{Append, Shared, Turn};
use crate::address::{BLOCK, BLOCK_BITS};
use crate::error::{Error, Kind as ErrorKind, Result};
use stdx::Counted;

/// The record to be stored, if it can be one.
fn kind_of(record: &Append<'_>) -> Result<Kind> {
    let (key, count, kind) = match *record {
        Append::Write { key, data } => {
            let bytes: usize = data.iter().map(|piece| piece.len()).sum();
            let blocks = bytes / BLOCK;
            let fits = bytes.is_multiple_of(BLOCK) && blocks <= RECORD_BLOCKS_MAX;
            let count = if fits { stdx::num::u64_of(blocks) } else { 0 };
            (key, count, Kind::Write { key, blocks })
        }
        Append::Hole { key, count } => (key, count, Kind::Hole { key, count }),
        Append::Refer { key, entries, .. } => {
            let blocks = entries.len();
            let count = if blocks <= RECORD_BLOCKS_MAX { stdx::num::u64_of(blocks) } else { 0 };
            (key, count, Kind::Refer { key, blocks })
        }
    };
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
fn delay(fill: u64) -> Option<u64> {
    let over = fill.min(1024).checked_sub(SLOW_FROM)?;
    let span = 1024 - SLOW_FROM;
    let nanos = SLOW_NANOS_MAX * over * over * over / (span * span * span);
    (nanos >= SLOW_NANOS_MIN).then_some(nanos)
}

impl Lane {
    /// The share of the ring in use, in parts of 1024.
    pub(super) const fn fill(&self) -> u64 {
        // The ring has at most 2^37 bytes.
        self.used() * 1024 / self.control.ring
    }
}

impl Shared {
    pub(super) async fn append(&self, record: Append<'_>) -> Result<u64> {
        let kind = kind_of(&record)?;
        self.check_takes(kind)?;
        let turn = self.admit(kind).await?;
        let sequence = self.store(kind, &record)?;
        drop(turn);
        self.settle_trouble().await?;
        if !self.store.is_memory() {
            self.committed(sequence).await?;
        }
        Ok(sequence)
    }

    pub(super) fn append_at_once(&self, record: &Append<'_>) -> Option<u64> {
        let kind = kind_of(record).ok()?;
        let can = self.store.is_memory() && !self.store.is_troubled();
        if !can || !self.gate.try_acquire(1) {
            return None;
        }
        let _turn = Turn(&self.gate);
        let takes = {
            let lane = self.lane.borrow();
            delay(lane.fill()).is_none() && lane.has_room(kind, &self.store)
        };
        // Whoever appends the slow way is told what is wrong.
        if !takes || self.check_takes(kind).is_err() {
            return None;
        }
        let sequence = self.store(kind, record).ok()?;
        // A device failed on this: it is appended once more, and acknowledged when that is told.
        (!self.store.is_troubled()).then_some(sequence)
    }

    /// Has it told that a device of memory failed, before what it lacks is acknowledged.
    async fn settle_trouble(&self) -> Result<()> {
        self.store.settle_trouble().await.inspect_err(|error| self.end(error.kind))
    }

    /// Stores a record for which there is room; gives its sequence. On memory it is durable then.
    fn store(&self, kind: Kind, record: &Append<'_>) -> Result<u64> {
        let references = match *record {
            Append::Refer { source, entries, .. } => super::record::references(source, entries),
            Append::Write { .. } | Append::Hole { .. } => Vec::new(),
        };
        let references: &[&[u8]] = &[&references];
        let data = match *record {
            Append::Write { data, .. } => data,
            Append::Hole { .. } => &[],
            Append::Refer { .. } => references,
        };
        let stored = self.lane.borrow_mut().store(kind, data, &self.store);
        let mark = stored.inspect_err(|_| self.end(ErrorKind::Failed))?;
        if self.store.is_memory() {
            self.work.notify();
        }
        Ok(mark.sequence)
    }

    /// Waits for this record's turn and for room. The delay counts from now, so that those who came
    /// together wait together; whoever came first goes first.
    async fn admit(&self, kind: Kind) -> Result<Turn<'_>> {
        let slow_until = delay(self.lane.borrow().fill()).map(|nanos| reactor::now() + nanos);
        let turn = if self.gate.try_acquire(1) {
            Turn(&self.gate)
        } else {
            let _waits = Counted::new(&self.waiting);
            self.gate.acquire(1).await;
            Turn(&self.gate)
        };
        if let Some(until) = slow_until {
            let _waits = Counted::new(&self.waiting);
            reactor::sleep_until(until).await;
        }
        if !self.lane.borrow().has_room(kind, &self.store) {
            let _waits = Counted::new(&self.waiting);
            let _full = Counted::new(&self.full);
            self.wait_for_room(kind).await?;
        }
        self.check_takes(kind)?;
        Ok(turn)
    }

    /// Waits until a record finds room; whoever calls holds the gate.
    pub(super) async fn wait_for_room(&self, kind: Kind) -> Result<()> {
        while !self.lane.borrow().has_room(kind, &self.store) {
            self.check_takes(kind)?;
            self.more.notify();
            self.room.notified().await;
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
