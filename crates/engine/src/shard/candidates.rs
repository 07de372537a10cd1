//! Shared blocks that may have no reference: what a sweep looks for.

use std::cell::RefCell;
use std::collections::BTreeMap;

use stdx::num::{u32_of, usize32};

use crate::address::{Location, SegmentId, SharedBlockId};
use crate::limits::SWEEP_BYTES;

/// Shared blocks that may have no reference: a bit each. Only those whose names are of whole blocks: nothing here makes
/// others, which stay.
#[derive(Debug)]
pub struct Candidates {
    segments: BTreeMap<SegmentId, Vec<u64>>,
    /// Words for the slots of a segment.
    words: usize,
}

impl Candidates {
    pub fn new(slots: u32) -> Self {
        Self { segments: BTreeMap::new(), words: usize32(slots).div_ceil(64) }
    }

    /// Whether no segment more finds room.
    fn is_full(&self) -> bool {
        self.segments.len() * self.words * size_of::<u64>() >= SWEEP_BYTES
    }

    /// Adds shared blocks; false when there is no room.
    pub fn add(&mut self, name: SharedBlockId, count: u32) -> bool {
        let at = name.origin();
        if !at.is_of_block() {
            return true;
        }
        if self.is_full() && !self.segments.contains_key(&at.segment()) {
            return false;
        }
        let words = self.words;
        let bits = self.segments.entry(at.segment()).or_insert_with(|| vec![0; words]);
        for slot in at.slot()..at.slot() + count {
            if let Some(word) = bits.get_mut(usize32(slot / 64)) {
                *word |= 1 << (slot % 64);
            }
        }
        true
    }

    /// These have references. Tells whether any of them was a candidate until now.
    pub fn keep(&mut self, name: SharedBlockId, count: u32) -> bool {
        let at = name.origin();
        let Some(bits) = self.segments.get_mut(&at.segment()) else { return false };
        let mut kept = false;
        for slot in at.slot()..at.slot() + count {
            if let Some(word) = bits.get_mut(usize32(slot / 64)) {
                kept |= *word & 1 << (slot % 64) != 0;
                *word &= !(1 << (slot % 64));
            }
        }
        kept
    }

    /// What is left, in runs of adjacent names.
    pub fn runs(&self) -> Vec<(SharedBlockId, u32)> {
        let mut runs: Vec<(SharedBlockId, u32)> = Vec::new();
        for (segment, bits) in &self.segments {
            for slot in 0..u32_of(bits.len() * 64) {
                if bits[usize32(slot / 64)] & 1 << (slot % 64) == 0 {
                    continue;
                }
                let name = SharedBlockId::of(Location::new(*segment, slot));
                match runs.last_mut() {
                    Some((first, count))
                        if first.offset(*count - 1).origin().offset(1) == name.origin() =>
                    {
                        *count += 1;
                    }
                    _ => runs.push((name, 1)),
                }
            }
        }
        runs
    }
}

/// The candidates of the sweep under way, if one is.
#[derive(Debug, Default)]
pub struct Sought(RefCell<Option<Candidates>>);

/// Takes the candidates away whatever happens.
pub struct Seeking<'a>(&'a Sought);

impl Drop for Seeking<'_> {
    fn drop(&mut self) {
        self.0.0.take();
    }
}

impl Sought {
    /// From now on references to these are heard of, until this is dropped.
    pub fn begin(&self, candidates: Candidates) -> Seeking<'_> {
        let before = self.0.replace(Some(candidates));
        assert!(before.is_none(), "one sweep at a time");
        Seeking(self)
    }

    /// These have references.
    pub fn keep(&self, name: SharedBlockId, count: u32) {
        if let Some(candidates) = &mut *self.0.borrow_mut() {
            let _kept = candidates.keep(name, count);
        }
    }

    /// Whether there is nothing to look for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.borrow().as_ref().is_none_or(|candidates| candidates.segments.is_empty())
    }

    /// Those that no reference was heard of.
    pub fn take(&self) -> Option<Candidates> {
        self.0.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_is_left_in_runs() {
        let at = |segment, slot| SharedBlockId::of(Location::new(SegmentId::new(segment), slot));
        let mut found = Candidates::new(256);
        assert!(found.add(at(3, 60), 10) && found.add(at(3, 100), 1) && found.add(at(4, 0), 256));
        assert!(found.keep(at(3, 62), 3) && !found.keep(at(3, 62), 1));
        assert!(!found.keep(at(9, 0), 3));
        assert!(found.keep(at(4, 1), 255));
        let left = [(at(3, 60), 2), (at(3, 65), 5), (at(3, 100), 1), (at(4, 0), 1)];
        assert_eq!(found.runs(), left);
    }
}
