//! Finding shared blocks that nothing refers to any more.
//!
//! Nobody counts references: a count would have to survive crashes together with every merge of the map
//! that finds one superseded. Instead the whole map is looked through, once for as many shared blocks
//! as a bounded memory has bits for, when space is wanted and references were dropped since the last
//! time. What has no reference then never has one again: references come of references only. Those
//! that come up behind the look are heard of as the map learns them, and those still on their way the
//! log knows.

use std::collections::BTreeMap;

use stdx::num::{u32_of, usize32};

use crate::address::{Key, Location, Name, SegmentId, View};
use crate::canary::{self, Canary, Step};
use crate::error::Result;
use crate::limits::SWEEP_BYTES;
use crate::segment::{Owner, Stream};
use crate::shard::Shard;

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
    pub fn add(&mut self, name: Name, count: u32) -> bool {
        let at = name.birth();
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
    pub fn keep(&mut self, name: Name, count: u32) -> bool {
        let at = name.birth();
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
    fn runs(&self) -> Vec<(Name, u32)> {
        let mut runs: Vec<(Name, u32)> = Vec::new();
        for (segment, bits) in &self.segments {
            for slot in 0..u32_of(bits.len() * 64) {
                if bits[usize32(slot / 64)] & 1 << (slot % 64) == 0 {
                    continue;
                }
                let name = Name::of(Location::new(*segment, slot));
                match runs.last_mut() {
                    Some((first, count))
                        if first.offset(*count - 1).birth().offset(1) == name.birth() =>
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

/// Takes the candidates away whatever happens.
struct Sweeping<'a>(&'a Shard);

impl Drop for Sweeping<'_> {
    fn drop(&mut self) {
        self.0.candidates.take();
    }
}

impl Shard {
    /// Finds shared blocks that nothing refers to any more, and makes holes of them. Tells whether
    /// there were any. What of the map's references was superseded and not merged counts.
    ///
    /// # Errors
    /// As [`Shard::flush_map`].
    pub async fn sweep(&self) -> Result<bool> {
        if self.is_swept() {
            return Ok(false);
        }
        let dropped = self.pages.references_dropped();
        let (mut swept, mut complete) = (false, true);
        let mut from = Some(Key::new(View::SHARED, 0));
        while let Some(first) = from {
            let _sweeping = Sweeping(self);
            from = self.gather(first).await?;
            if self.candidates.borrow().as_ref().is_none_or(|c| c.segments.is_empty()) {
                break;
            }
            self.map
                .scan(
                    Key::new(View::METADATA, 0),
                    Some(Key::new(View::SHARED, 0)),
                    |_, at, count| {
                        let name = at.and_then(Location::name);
                        if let (Some(name), Some(found)) =
                            (name, &mut *self.candidates.borrow_mut())
                        {
                            found.keep(name, count);
                        }
                        true
                    },
                )
                .await?;
            // Whoever found a reference in the map has told the log by then.
            if !canary::skips(Step::SweepGrace) {
                self.grace.pass().await;
            }
            let (found, kept) = self.decide();
            (swept, complete) = (swept || !found.is_empty(), complete && !kept);
            self.forget(found).await?;
        }
        self.swept.set(complete.then_some(dropped));
        Ok(swept)
    }

    /// Whether a sweep would find nothing that the last one did not.
    pub fn is_swept(&self) -> bool {
        self.swept.get() == Some(self.pages.references_dropped())
    }

    /// Takes as many shared blocks as there is room for as candidates, from `first` on. Gives where
    /// the next ones begin.
    async fn gather(&self, first: Key) -> Result<Option<Key>> {
        let mut candidates = Candidates::new(self.writer.geometry().slots());
        let mut next = None;
        let gather = |key: Key, _, count| {
            let Some(name) = Name::of_key(key) else { return true };
            if candidates.add(name, count) {
                return true;
            }
            next = Some(key);
            false
        };
        self.map.scan(first, None, gather).await?;
        *self.candidates.borrow_mut() = Some(candidates);
        Ok(next)
    }

    /// The candidates that have no reference in the map, none in the log, and none on its way there;
    /// and whether the log alone kept others. Those may have been learnt and superseded already, so
    /// that the map has nothing more to tell of them once the log is trimmed.
    fn decide(&self) -> (Vec<(Name, u32)>, bool) {
        let Some(mut found) = self.candidates.take() else { return (Vec::new(), false) };
        let mut kept = false;
        if !canary::has(Canary::SweepsWhatLogRefersTo) {
            self.log.each_referred(|name| kept |= found.keep(name, 1));
        }
        (found.runs(), kept)
    }

    /// Makes holes of shared blocks, and waits until the map has learnt that.
    async fn forget(&self, found: Vec<(Name, u32)>) -> Result<()> {
        if found.is_empty() {
            return Ok(());
        }
        for (name, count) in found {
            let owner = Owner::Hole { key: name.key(), blocks: u64::from(count) };
            while self.writer.try_append(Stream::Reclaim, owner, &[], &[]).is_none() {
                self.writer.make_room(Stream::Reclaim).await?;
            }
        }
        self.settle_reclaim().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_is_left_in_runs() {
        let at = |segment, slot| Name::of(Location::new(SegmentId::new(segment), slot));
        let mut found = Candidates::new(256);
        assert!(found.add(at(3, 60), 10) && found.add(at(3, 100), 1) && found.add(at(4, 0), 256));
        assert!(found.keep(at(3, 62), 3) && !found.keep(at(3, 62), 1));
        assert!(!found.keep(at(9, 0), 3));
        assert!(found.keep(at(4, 1), 255));
        let left = [(at(3, 60), 2), (at(3, 65), 5), (at(3, 100), 1), (at(4, 0), 1)];
        assert_eq!(found.runs(), left);
    }
}
