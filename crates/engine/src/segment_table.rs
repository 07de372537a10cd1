//! The segments of one shard: what state each is in, and how much of it is live.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use stdx::num::u64_of;

use crate::address::{Location, SegmentId};
use crate::segment::{SegmentInfo, Stream};

/// Where a segment is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Named in a checkpoint, not yet written: recovery looks for stripes here.
    Reserved,
    /// Being filled.
    Open,
    /// Filled, or closed early; never written again but to repair it.
    Sealed,
}

/// How often a block of a segment may count as live.
pub const LIVE_FACTOR: u32 = 2;

/// One segment of the shard.
#[derive(Debug)]
pub struct Segment {
    pub info: Rc<SegmentInfo>,
    pub state: State,
    /// Stripes given to be written.
    pub stripes: u32,
    /// Nobody knows how many there were: `stripes` is how many there can be.
    pub may_have_fewer: bool,
    /// Stripes whose records the map has.
    pub applied: u32,
    /// Stripes whose records the map on media has: those from here on are rolled forward.
    pub settled: u32,
    /// Stripes that the log or a checkpoint knows as durable: later ones do not count after a crash.
    pub durable: u32,
    /// Blocks the map points to. A hint: it may count blocks that nobody sees any more, until the
    /// map's merges find out.
    pub live: u32,
    /// Every block was counted when the map learnt it, and is counted down once when the map gives it
    /// up: `live` is never too low. A crash repeats some of that, so not for a segment that was there
    /// when the shard was opened.
    counted: bool,
    /// When the last live block went: the stripe applied last then.
    dead_since: Option<u64>,
}

impl Segment {
    /// One in which nothing was written.
    #[must_use]
    pub const fn new(info: Rc<SegmentInfo>, state: State) -> Self {
        Self {
            info,
            state,
            stripes: 0,
            may_have_fewer: false,
            applied: 0,
            settled: 0,
            durable: 0,
            live: 0,
            counted: false,
            dead_since: None,
        }
    }

    /// One that was filled before the last checkpoint, with so many stripes: as many as there can be where that is not
    /// known.
    #[must_use]
    pub fn sealed(info: Rc<SegmentInfo>, stripes: Option<u32>, live: u32) -> Self {
        let may_have_fewer = stripes.is_none();
        let stripes = stripes.unwrap_or_else(|| info.geometry.stripes());
        let dead_since = (live == 0).then_some(0);
        Self {
            stripes,
            may_have_fewer,
            applied: stripes,
            settled: stripes,
            durable: stripes,
            live,
            dead_since,
            ..Self::new(info, State::Sealed)
        }
    }

    fn is_settled(&self) -> bool {
        self.state == State::Sealed && self.settled == self.stripes
    }

    /// Whether the map points to none of its blocks by the keys that they have there: not by the name
    /// that one may have got since.
    #[must_use]
    pub const fn is_surely_dead(&self) -> bool {
        self.counted && self.live == 0
    }
}

/// All segments of a shard.
#[derive(Debug, Default)]
pub struct Table {
    segments: BTreeMap<SegmentId, Segment>,
    reserved: VecDeque<SegmentId>,
    /// Named in a checkpoint, and never to be used: the next one does without.
    withdrawn: BTreeSet<SegmentId>,
    unsettled: BTreeSet<SegmentId>,
    /// Live blocks of user data, and of metadata.
    live_data: u64,
    live_metadata: u64,
    /// The ordered stripe applied last.
    applied: u64,
}

impl Table {
    pub fn insert(&mut self, mut segment: Segment) {
        let id = segment.info.id;
        if segment.state == State::Sealed && segment.live == 0 {
            // One that never had a live block, found when the shard was opened: only holes in it.
            segment.dead_since.get_or_insert(0);
        }
        match segment.state {
            State::Reserved => self.reserved.push_back(id),
            State::Open | State::Sealed if !segment.is_settled() => {
                self.unsettled.insert(id);
            }
            _ => {}
        }
        *self.total_of(segment.info.stream) += u64::from(segment.live);
        let before = self.segments.insert(id, segment);
        assert!(before.is_none(), "a segment number has one owner");
    }

    fn total_of(&mut self, stream: Stream) -> &mut u64 {
        if stream == Stream::Metadata { &mut self.live_metadata } else { &mut self.live_data }
    }

    #[must_use]
    pub fn get(&self, id: SegmentId) -> Option<&Segment> {
        self.segments.get(&id)
    }

    /// How a location's segment is laid out.
    #[must_use]
    pub fn info(&self, at: Location) -> Option<&Rc<SegmentInfo>> {
        self.segments.get(&at.segment()).map(|segment| &segment.info)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Segment> {
        self.segments.values()
    }

    #[must_use]
    pub fn reserved(&self) -> usize {
        self.reserved.len()
    }

    /// Blocks of user data that the map points to.
    #[must_use]
    pub const fn live_data(&self) -> u64 {
        self.live_data
    }

    /// Blocks of metadata in use.
    #[must_use]
    pub const fn live_metadata(&self) -> u64 {
        self.live_metadata
    }

    /// Opens the segment reserved first for `stream`, unless no more than `keep` are reserved.
    pub fn open(&mut self, stream: Stream, keep: usize) -> Option<Rc<SegmentInfo>> {
        if self.reserved.len() <= keep {
            return None;
        }
        let id = self.reserved.pop_front()?;
        let segment = self.segments.get_mut(&id)?;
        let is_fresh = segment.state == State::Reserved && segment.stripes == 0;
        assert!(is_fresh && segment.live == 0, "a segment is opened once, with nothing in it");
        segment.state = State::Open;
        segment.counted = true;
        // What stream it serves is known only now.
        segment.info = Rc::new(SegmentInfo { stream, ..SegmentInfo::clone(&segment.info) });
        self.unsettled.insert(id);
        Some(Rc::clone(&segment.info))
    }

    /// This stripe of the segment was given to be written.
    pub fn stripe_begun(&mut self, id: SegmentId, stripe: u32) {
        if let Some(segment) = self.segments.get_mut(&id) {
            assert_eq!(segment.state, State::Open, "stripes are written to an open segment");
            assert_eq!(segment.stripes, stripe, "stripes of a segment are written in their order");
            segment.stripes += 1;
            assert!(
                segment.stripes <= segment.info.geometry.stripes(),
                "each stripe is written once"
            );
        }
    }

    /// A segment that was filled before the last checkpoint has so many stripes.
    pub fn set_stripes(&mut self, id: SegmentId, stripes: u32) {
        if let Some(segment) = self.segments.get_mut(&id).filter(|segment| segment.may_have_fewer) {
            assert!(stripes <= segment.stripes, "there are no more stripes than there can be");
            segment.may_have_fewer = false;
            (segment.stripes, segment.applied) = (stripes, stripes);
            (segment.settled, segment.durable) = (stripes, stripes);
        }
    }

    /// These reserved segments are not opened any more.
    pub fn withdraw(&mut self, is_left: impl Fn(&SegmentInfo) -> bool) {
        let (segments, withdrawn) = (&mut self.segments, &mut self.withdrawn);
        self.reserved.retain(|id| {
            let Some(segment) = segments.get_mut(id) else { return false };
            let is_left = is_left(&segment.info);
            if is_left {
                assert_eq!(segment.state, State::Reserved, "what is taken back was reserved");
                assert_eq!(segment.stripes, 0, "what is reserved was not written to");
                segment.state = State::Sealed;
                withdrawn.insert(*id);
            }
            !is_left
        });
    }

    /// Those that are not opened any more.
    #[must_use]
    pub fn withdrawn(&self) -> Vec<SegmentId> {
        self.withdrawn.iter().copied().collect()
    }

    /// Segments with a part on these drives.
    #[must_use]
    pub fn segments_on(&self, leaving: u64) -> usize {
        self.segments.values().filter(|segment| segment.info.parts_on(leaving) > 0).count()
    }

    /// Live blocks of them.
    #[must_use]
    pub fn live_on(&self, leaving: u64) -> u64 {
        let on = self.segments.values().filter(|segment| segment.info.parts_on(leaving) > 0);
        on.map(|segment| u64::from(segment.live)).sum()
    }

    /// Sealed segments of some streams with a part on these drives, each with its live blocks: those first that bear the
    /// fewest losses more, since they have most parts on drives that are `lost`, and then those with most parts on these.
    #[must_use]
    pub fn sealed_on(
        &self,
        leaving: u64,
        lost: u64,
        is_wanted: impl Fn(Stream) -> bool,
    ) -> Vec<(SegmentId, u32)> {
        let sealed = self.segments.values().filter(|segment| {
            segment.state == State::Sealed
                && segment.applied == segment.stripes
                && !self.withdrawn.contains(&segment.info.id)
                && is_wanted(segment.info.stream)
                && segment.info.parts_on(leaving) > 0
        });
        let mut sealed: Vec<_> = sealed.collect();
        sealed.sort_by_cached_key(|segment| {
            let [lost, leaving] =
                [lost, leaving].map(|drives| Reverse(segment.info.parts_on(drives)));
            (lost, leaving, segment.live)
        });
        sealed.into_iter().map(|segment| (segment.info.id, segment.live)).collect()
    }

    /// Nothing more is written to the segment.
    pub fn seal(&mut self, id: SegmentId) {
        if let Some(segment) = self.segments.get_mut(&id) {
            assert_eq!(segment.state, State::Open, "a segment is sealed once");
            segment.state = State::Sealed;
            let applied = self.applied;
            segment.dead_since = (segment.live == 0).then_some(applied);
        }
    }

    /// The map has the records of the segment's next stripe, which is the ordered stripe
    /// `sequence` (or an unordered one: `None`).
    pub fn stripe_applied(&mut self, id: SegmentId, sequence: Option<u64>) {
        if let Some(sequence) = sequence {
            self.applied = sequence;
        }
        let Some(segment) = self.segments.get_mut(&id) else { return };
        assert_ne!(segment.state, State::Reserved, "the map learns of segments that were opened");
        segment.applied += 1;
        assert!(segment.applied <= segment.stripes, "the map learns what was written");
        // Metadata is read from where the root says: nothing to roll forward.
        if sequence.is_none() {
            segment.settled = segment.applied;
            if segment.is_settled() {
                self.unsettled.remove(&id);
            }
        }
    }

    /// The map points to `blocks` more from `at` on.
    pub fn add_live(&mut self, at: Location, blocks: u32) {
        let Some(segment) = self.segments.get_mut(&at.segment()) else { return };
        // A checkpoint may have counted blocks of stripes that are rolled forward over it, and a block
        // that becomes shared counts twice until a merge finds that its first key gave it up: a hint
        // may be too high, but not beyond what there can be.
        let most = LIVE_FACTOR * segment.info.geometry.slots();
        let new = blocks.min(most.saturating_sub(segment.live));
        segment.live += new;
        segment.counted &= new == blocks;
        segment.dead_since = None;
        let stream = segment.info.stream;
        *self.total_of(stream) += u64::from(new);
    }

    /// The map no longer points to `blocks` from `at` on. Tells whether the segment is there.
    pub fn drop_live(&mut self, at: Location, blocks: u32) -> bool {
        let applied = self.applied;
        let Some(segment) = self.segments.get_mut(&at.segment()) else { return false };
        let gone = blocks.min(segment.live);
        segment.live -= gone;
        segment.counted &= gone == blocks;
        if segment.live == 0 {
            segment.dead_since = Some(applied);
        }
        let stream = segment.info.stream;
        let total = self.total_of(stream);
        assert!(u64::from(gone) <= *total, "what is live in a segment is live in the shard");
        *total -= u64::from(gone);
        true
    }

    /// Corrects a segment's live count, once it was counted block by block.
    pub fn set_live(&mut self, id: SegmentId, live: u32) {
        let Some(segment) = self.segments.get_mut(&id) else { return };
        // What the map has yet to give up was not found, and will be counted down all the same.
        segment.counted = false;
        self.correct_live(id, live);
    }

    fn correct_live(&mut self, id: SegmentId, live: u32) {
        let Some(segment) = self.segments.get(&id) else { return };
        let (at, before) = (Location::new(id, 0), segment.live);
        if live < before {
            self.drop_live(at, before - live);
        } else if live > before {
            self.add_live(at, live - before);
        }
    }

    /// Corrects the live counts of all segments of data: those of these, none of the others. The map gave
    /// up nothing that it has not told of.
    pub fn set_live_data(&mut self, live: &BTreeMap<SegmentId, u32>) {
        let data = self.segments.values().filter(|s| s.info.stream != Stream::Metadata);
        let ids: Vec<SegmentId> = data.map(|segment| segment.info.id).collect();
        for id in ids {
            self.correct_live(id, live.get(&id).copied().unwrap_or(0));
        }
    }

    /// Whether the block at `at` is there after a crash too, as far as the log survives it.
    #[must_use]
    pub fn is_durable(&self, at: Location) -> bool {
        self.segments.get(&at.segment()).is_some_and(|segment| {
            let stripe = segment.info.geometry.place(at.slot()).stripe;
            stripe < segment.durable
        })
    }

    /// The log or a checkpoint knows as durable so many stripes of these segments.
    pub fn made_durable(&mut self, known: impl IntoIterator<Item = (SegmentId, u32)>) {
        for (id, stripes) in known {
            if let Some(segment) = self.segments.get_mut(&id) {
                let all = segment.info.geometry.stripes();
                assert!(stripes <= all, "no more is durable than there is");
                segment.durable = segment.durable.max(stripes);
            }
        }
    }

    /// What the map has now: the stripes applied of each segment that is not settled.
    #[must_use]
    pub fn cut(&self) -> Vec<(SegmentId, u32)> {
        let applied = |id: &SegmentId| self.segments.get(id).map(|segment| (*id, segment.applied));
        self.unsettled.iter().filter_map(applied).collect()
    }

    /// The map on media has it.
    pub fn settle(&mut self, cut: &[(SegmentId, u32)]) {
        for (id, applied) in cut {
            let Some(segment) = self.segments.get_mut(id) else { continue };
            assert!(*applied <= segment.applied, "the map on media has what the map learnt");
            segment.settled = segment.settled.max(*applied);
            if segment.is_settled() {
                self.unsettled.remove(id);
            }
        }
    }

    /// Goes through all counts: those of the segments make up those of the shard, and no segment is ahead of itself.
    ///
    /// # Panics
    /// Where one contradicts another: what is given back by such counts may still be needed.
    pub fn assert_counts(&self) {
        let (mut data, mut metadata, mut reserved) = (0, 0, 0);
        for segment in self.segments.values() {
            let Segment { settled, applied, stripes, live, .. } = *segment;
            assert!(
                settled <= applied && applied <= stripes,
                "stripes are written, learnt, settled"
            );
            assert!(
                live <= LIVE_FACTOR * segment.info.geometry.slots(),
                "more is live than can be"
            );
            let most = segment.info.geometry.stripes();
            assert!(stripes <= most && segment.durable <= most, "more is written than can be");
            let is_dead = segment.dead_since.is_some();
            assert!(!is_dead || live == 0, "what is dead has no live block");
            let is_told = segment.is_settled() || self.unsettled.contains(&segment.info.id);
            let is_reserved = segment.state == State::Reserved;
            assert!(is_reserved || is_told, "what the map on media lacks is rolled forward");
            reserved += usize::from(is_reserved);
            let is_metadata = segment.info.stream == Stream::Metadata;
            *(if is_metadata { &mut metadata } else { &mut data }) += u64::from(live);
        }
        let counted = (self.live_data, self.live_metadata);
        assert_eq!((data, metadata), counted, "the shard's counts are those of its segments");
        let open = |id: &SegmentId| self.get(*id).is_some_and(|s| s.state == State::Reserved);
        assert!(self.reserved.iter().all(open), "what is reserved was not written to");
        assert_eq!(self.reserved.len(), reserved, "what is reserved is opened once");
        let unused = |id: &SegmentId| {
            self.get(*id).is_some_and(|s| s.state == State::Sealed && s.stripes == 0)
        };
        assert!(self.withdrawn.iter().all(unused), "what was taken back was not written to");
    }

    /// Sealed segments without a live block that a checkpoint taken now, with the map as of stripe
    /// `cut`, does not need. Metadata is what the checkpoint itself says; data must have been dead
    /// at the cut.
    #[must_use]
    pub fn dead(&self, cut: u64) -> Vec<SegmentId> {
        let dead = self.segments.values().filter(|segment| {
            segment.state == State::Sealed
                && segment.applied == segment.stripes
                && segment.is_settled()
                && segment
                    .dead_since
                    .is_some_and(|since| since <= cut || segment.info.stream == Stream::Metadata)
        });
        dead.map(|segment| segment.info.id).collect()
    }

    /// Forgets a segment whose space is given back.
    pub fn remove(&mut self, id: SegmentId) -> Option<Segment> {
        self.unsettled.remove(&id);
        self.reserved.retain(|reserved| *reserved != id);
        self.withdrawn.remove(&id);
        let gone = self.segments.remove(&id)?;
        assert_ne!(gone.state, State::Open, "what is being filled is not forgotten");
        // A count of all blocks may have found some in it again that the map has yet to give up.
        *self.total_of(gone.info.stream) -= u64::from(gone.live);
        Some(gone)
    }

    /// The sealed segment of user data whose reclaim costs least for what it gives: most space for
    /// fewest blocks moved, with its live blocks. One that gives no more than a stripe is not worth it:
    /// what was moved may end in a stripe that is not full.
    #[must_use]
    pub fn victim(&self, except: impl Fn(SegmentId) -> bool) -> Option<(SegmentId, u32)> {
        let candidates = self.segments.values().filter(|segment| {
            segment.state == State::Sealed
                && segment.info.stream != Stream::Metadata
                && segment.applied == segment.stripes
                && segment.live > 0
                && segment.live.saturating_add(segment.info.room()) < segment.info.capacity()
                && !except(segment.info.id)
        });
        let best = candidates.min_by_key(|segment| (segment.live, segment.info.generation));
        best.map(|segment| (segment.info.id, segment.live))
    }

    /// The sealed segment, of metadata or of data, that has fewest parts on these drives, by their bits, if not one on each;
    /// of equals that which costs least to move. With its live blocks.
    #[must_use]
    pub fn victim_beside(
        &self,
        drives: u64,
        is_metadata: bool,
        except: impl Fn(SegmentId) -> bool,
    ) -> Option<(SegmentId, u32)> {
        let parts = |segment: &&Segment| segment.info.parts_on(drives);
        let all = stdx::num::usize32(drives.count_ones());
        let candidates = self.segments.values().filter(|segment| {
            segment.state == State::Sealed
                && (segment.info.stream == Stream::Metadata) == is_metadata
                && segment.applied == segment.stripes
                && segment.live > 0
                && parts(segment) < all
                && !except(segment.info.id)
        });
        let best = candidates.min_by_key(|s| (parts(s), s.live, s.info.generation));
        best.map(|segment| (segment.info.id, segment.live))
    }

    /// Whether some are reserved, or being filled, that have no part on one of these drives.
    #[must_use]
    pub fn goes_on_beside(&self, drives: u64) -> bool {
        let all = stdx::num::usize32(drives.count_ones());
        let mut going_on = self.segments.values().filter(|s| s.state != State::Sealed);
        going_on.any(|segment| segment.info.parts_on(drives) < all)
    }

    /// Sealed segments of metadata of which a quarter or less is in use.
    #[must_use]
    pub fn sparse_metadata(&self) -> Vec<SegmentId> {
        let sparse = self.segments.values().filter(|segment| {
            segment.state == State::Sealed
                && segment.info.stream == Stream::Metadata
                && segment.applied == segment.stripes
                && (1..=segment.info.geometry.slots() / 4).contains(&segment.live)
        });
        sparse.map(|segment| segment.info.id).collect()
    }

    /// Segments of each kind: reserved, open, sealed.
    #[must_use]
    pub fn counts(&self) -> [u64; 3] {
        let count = |state| u64_of(self.segments.values().filter(|s| s.state == state).count());
        [count(State::Reserved), count(State::Open), count(State::Sealed)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Member;
    use raid::{Geometry, Shape};

    /// A table with one segment that is filled and has so many live blocks.
    fn table(live: u32) -> (Table, SegmentId) {
        let mut table = Table::default();
        let id = insert(&mut table, 7, 0, live);
        (table, id)
    }

    /// Adds such a segment, which lies on six drives from `first` on.
    fn insert(table: &mut Table, id: u32, first: u16, live: u32) -> SegmentId {
        let geometry = Geometry::for_au(Shape { data: 4, parity: 2 }, 256).unwrap();
        let id = SegmentId::new(id);
        let members = (first..first + 6).map(|drive| Member { drive, au: 0 }).collect();
        let (generation, stream, shard) = (1, Stream::User, 0);
        let info = SegmentInfo { id, generation, members, stream, shard, geometry };
        table.insert(Segment::sealed(Rc::new(info), None, live));
        id
    }

    /// Two drives are lost, of which the operator has what one had rebuilt, and a third is emptied.
    #[test]
    fn what_bears_the_fewest_losses_more_is_moved_first() {
        let mut table = Table::default();
        let [lost, leaving] = [0b11_0000, 0b101_0000];
        let bears_one = insert(&mut table, 1, 5, 1);
        let bears_none = insert(&mut table, 2, 0, 9);
        let bears_none_nor_has_less = insert(&mut table, 3, 3, 5);
        let elsewhere = insert(&mut table, 4, 7, 1);
        let order = table.sealed_on(leaving, lost, |_| true);
        let order: Vec<SegmentId> = order.into_iter().map(|(id, _)| id).collect();
        assert_eq!(order, [bears_none_nor_has_less, bears_none, bears_one]);
        assert!(!order.contains(&elsewhere));
    }

    /// A count of all blocks finds some in a segment that was proved dead, which the map has yet to give up: the pool
    /// went on counting them after the segment was gone.
    #[test]
    fn a_segment_that_goes_takes_its_count_along() {
        let (mut table, id) = table(0);
        table.set_live_data(&BTreeMap::from([(id, 3)]));
        assert_eq!(table.live_data(), 3);
        table.assert_counts();
        assert!(table.remove(id).is_some());
        assert_eq!(table.live_data(), 0);
        table.assert_counts();
    }

    #[test]
    #[should_panic(expected = "those of its segments")]
    fn counts_that_contradict_each_other_are_noticed() {
        let (mut table, _) = table(5);
        table.live_data += 1;
        table.assert_counts();
    }

    /// One that is reserved.
    fn reserved() -> (Table, SegmentId) {
        let (table, id) = table(0);
        let info = SegmentInfo::clone(&table.segments[&id].info);
        let mut table = Table::default();
        table.insert(Segment::new(Rc::new(info), State::Reserved));
        table.assert_counts();
        (table, id)
    }

    #[test]
    #[should_panic(expected = "in their order")]
    fn a_stripe_that_is_left_out_is_noticed() {
        let (mut table, id) = reserved();
        assert!(table.open(Stream::User, 0).is_some());
        table.stripe_begun(id, 0);
        table.stripe_begun(id, 2);
    }

    #[test]
    #[should_panic(expected = "is opened once")]
    fn a_reserved_segment_that_is_forgotten_is_noticed() {
        let (mut table, _) = reserved();
        table.reserved.clear();
        table.assert_counts();
    }

    #[test]
    #[should_panic(expected = "is rolled forward")]
    fn what_the_map_on_media_lacks_is_not_forgotten() {
        let (mut table, _) = reserved();
        assert!(table.open(Stream::User, 0).is_some());
        table.unsettled.clear();
        table.assert_counts();
    }

    #[test]
    #[should_panic(expected = "what was written")]
    fn a_stripe_that_was_not_written_is_not_learnt() {
        let (mut table, id) = table(5);
        table.stripe_applied(id, Some(1));
    }
}
