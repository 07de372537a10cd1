//! What a checkpoint says, as of one moment, and which pages of it are to be written.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use raid::Geometry;
use stdx::num::u32_of;

use super::{Checkpoints, count};
use crate::address::{BLOCK, Entry, SegmentId};
use crate::format::manifest::{Page, PageKind, SegmentRecord};
use crate::format::root::RawEntry;
use crate::manifest_pages::{Pages, Said, SegmentSaid, TableSaid};
use crate::segment::{SegmentInfo, Stream};
use crate::segment_table::{Segment, State};

/// A page that was written: its kind, its number, and where it is.
pub(super) type Written = (PageKind, u32, Entry);

/// What a checkpoint is to say.
pub(super) struct Plan {
    pub cut: u64,
    pub next_segment: u32,
    /// Segments on its pages.
    pub segments: u32,
    /// The map's part without its tables.
    pub map: Vec<u8>,
    /// Pages to be written: their kinds, their numbers, what is on them.
    pub pages: Vec<(PageKind, u32, Box<[u8; BLOCK]>)>,
    /// Pages that stay where they are.
    pub kept: Vec<Entry>,
    /// Stripes that count once it is done, where that is news.
    pub durable: Vec<(SegmentId, u32)>,
    /// Segments that it leaves out because nothing needs them.
    pub dead: Vec<SegmentId>,
}

impl Plan {
    /// Bytes of its manifest, were each page in another segment.
    pub fn most_bytes(&self, geometry: Geometry) -> usize {
        let each = size_of::<RawEntry>() + SegmentRecord::len(geometry.width());
        BLOCK + (self.pages.len() + self.kept.len()) * each + self.map.len()
    }
}

/// What a checkpoint says of a segment, of whose live blocks so many are not the manifest's.
fn said(segment: &Segment, live: u32) -> SegmentSaid {
    let roll_from = match segment.state {
        _ if segment.info.stream == Stream::Metadata => None,
        State::Sealed if segment.settled == segment.stripes => None,
        State::Reserved | State::Open | State::Sealed => Some(segment.settled),
    };
    // Where metadata goes on being written, this checkpoint's first, the root says how many there are.
    let is_known = segment.state == State::Sealed && roll_from.is_none() && !segment.may_have_fewer;
    SegmentSaid::new(&segment.info, live, roll_from, is_known.then_some(segment.stripes))
}

impl Checkpoints {
    /// What the checkpoint says, and which segments it leaves out because nothing needs them.
    pub(super) fn plan(&self, fresh: &[Rc<SegmentInfo>]) -> Plan {
        let dead = self.dead();
        let next_segment = self.base.common.allocator.lock().next();
        let is_known = |info: &Rc<SegmentInfo>| info.id.get() < next_segment;
        assert!(fresh.iter().all(is_known), "no number is given to another segment again");
        let mut plan = Plan {
            cut: self.cut(),
            next_segment,
            segments: 0,
            map: self.base.map.manifest_without_tables(),
            pages: Vec::new(),
            kept: Vec::new(),
            durable: Vec::new(),
            dead,
        };
        self.plan_segments(&mut plan, fresh);
        self.plan_tables(&mut plan);
        plan
    }

    /// Segments that nothing needs.
    pub(super) fn dead(&self) -> Vec<SegmentId> {
        let table = self.base.table();
        let mut dead = table.dead(self.cut());
        let verified = self.verified.borrow();
        // A count alone frees nothing but metadata, whose counts are exact.
        dead.retain(|id| {
            let metadata = table.get(*id).is_some_and(|s| s.info.stream == Stream::Metadata);
            (metadata || verified.contains(id)) && !self.is_held(*id)
        });
        // Nothing was ever written there.
        dead.extend(table.withdrawn().into_iter().filter(|id| !self.is_held(*id)));
        dead
    }

    fn plan_segments(&self, plan: &mut Plan, fresh: &[Rc<SegmentInfo>]) {
        let table = self.base.table();
        // A pool may have a million segments, and a thousand blocks of the last manifest.
        let given_back: BTreeSet<SegmentId> = plan.dead.iter().copied().collect();
        let alive = || table.iter().filter(|segment| !given_back.contains(&segment.info.id));
        let mut pages = self.pages.borrow_mut();
        // What a manifest itself has of a segment is counted where that is listed: which blocks those are is known only
        // once they are written.
        let own =
            count(self.manifest_blocks.borrow().iter().chain(&pages.blocks().collect::<Vec<_>>()));
        let mut now: Vec<(SegmentId, SegmentSaid)> = Vec::new();
        for segment in alive() {
            let id = segment.info.id;
            let own = own.get(&id).copied().unwrap_or(0);
            let said = said(segment, segment.live.saturating_sub(own));
            let said = if self.exact.get() { said.exactly() } else { said };
            let durable = said.roll_from().unwrap_or(segment.info.geometry.stripes());
            plan.durable.extend((durable > segment.durable).then_some((id, durable)));
            now.push((id, said));
        }
        now.extend(fresh.iter().map(|info| (info.id, SegmentSaid::new(info, 0, Some(0), None))));
        now.sort_unstable_by_key(|(id, _)| *id);
        plan.segments = u32_of(now.len());
        let fresh: BTreeMap<SegmentId, &SegmentInfo> =
            fresh.iter().map(|info| (info.id, &**info)).collect();
        pages.segments.update(&now);
        self.put(plan, &pages.segments, |(id, said), to| {
            let known = table.get(id).map(|segment| &*segment.info);
            if let Some(info) = known.or_else(|| fresh.get(&id).copied()) {
                to.extend_from_slice(&said.record(info).to_bytes());
            }
        });
    }

    fn plan_tables(&self, plan: &mut Plan) {
        let mut pages = self.pages.borrow_mut();
        let mut now: Vec<(u64, TableSaid)> = Vec::new();
        self.base.map.each_table(|id, record| now.push((id, TableSaid::of(record))));
        now.sort_unstable_by_key(|(id, _)| *id);
        pages.tables.update(&now);
        let of_changed = pages.tables.changed().flat_map(|(_, records)| records);
        let wanted: BTreeSet<u64> = of_changed.map(|(id, _)| id).collect();
        let mut records = BTreeMap::new();
        self.base.map.each_table(|id, record| {
            if wanted.contains(&id) || cfg!(debug_assertions) {
                records.insert(id, record.to_vec());
            }
        });
        self.put(plan, &pages.tables, |(id, _), to| {
            to.extend(records.get(&id).into_iter().flatten());
        });
    }

    /// Adds pages to a plan.
    fn put<K: Copy + Ord, S: Said>(
        &self,
        plan: &mut Plan,
        pages: &Pages<K, S>,
        put: impl Fn((K, S), &mut Vec<u8>),
    ) {
        let (pool, shard) = (self.base.writer.pool(), self.base.writer.shard());
        let block = |records: Vec<(K, S)>| {
            let mut bytes = Vec::new();
            for (key, said) in &records {
                put((*key, *said), &mut bytes);
            }
            let all: usize = records.iter().map(|(_, said)| said.bytes()).sum();
            assert_eq!(bytes.len(), all, "a page has all that was put on it");
            Page::to_block(S::KIND, records.len(), &bytes, pool, shard)
        };
        for (number, records) in pages.changed() {
            plan.pages.push((S::KIND, number, block(records)));
        }
        for (at, records) in pages.kept() {
            if cfg!(debug_assertions) {
                let says = stdx::crc32c(&block(records())[..]);
                assert_eq!(says, at.crc, "a page that stays says what is");
            }
            plan.kept.push(at);
        }
    }
}
