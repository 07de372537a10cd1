//! A shard's newest checkpoint: from the root to the manifest and the segments it names.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use stdx::num::{u64_of, usize64};

use super::report::{Finding, SegmentSeen, Structure};
use super::{Look, advice, blocks, drives};
use crate::address::{BLOCK, Entry, SegmentId};
use crate::format::manifest::{Manifest, Page, Read, SegmentRecord};
use crate::format::root::{RawEntry, Root};
use crate::manifest_pages;
use crate::recover::add_holders;
use crate::segment::{SegmentInfo, Stream};

/// A segment of the shard.
pub(super) struct Segment {
    pub info: Rc<SegmentInfo>,
    pub roll_from: Option<u32>,
    /// Blocks in use, as the checkpoint says.
    pub hint: u32,
    /// Stripes rolled forward, and blocks of contents in them.
    pub rolled: u32,
    pub rolled_blocks: u32,
}

impl Segment {
    fn new(record: &SegmentRecord) -> Self {
        let info = Rc::new(record.info.clone());
        Self { info, roll_from: record.roll_from, hint: record.live, rolled: 0, rolled_blocks: 0 }
    }
}

/// A shard's checkpoint.
pub(super) struct Checkpoint {
    pub shard: u16,
    pub generation: u64,
    pub cut: u64,
    pub table: BTreeMap<SegmentId, Segment>,
    /// The blocks of manifest and index, and the pages that it lists.
    pub blocks: Vec<Entry>,
    /// The map's part of the manifest.
    pub map: Vec<u8>,
}

/// Which allocation unit belongs to which segment, over all shards.
#[derive(Default)]
pub(super) struct Units {
    owners: BTreeMap<(u16, u32), u32>,
    numbers: BTreeSet<u32>,
}

impl Units {
    /// Whether a segment can be; what is wrong with it is told.
    fn check(&mut self, look: &Look<'_>, record: &SegmentRecord) -> bool {
        let wrong = |what: String| tell_wrong(look, &record.info, what);
        if !self.numbers.insert(record.info.id.get()) {
            wrong("two segments have this number".into());
        }
        for (n, member) in record.info.members.iter().enumerate() {
            let known = usize::from(member.drive) < look.set.len();
            if !known || member.au >= look.set.units(member.drive) {
                wrong(format!(
                    "it has allocation unit {} of drive {}, which there is not",
                    member.au, member.drive
                ));
                return false;
            }
            if record.info.members[..n].iter().any(|other| other.drive == member.drive) {
                wrong(format!("two of its members are on drive {}", member.drive));
            }
        }
        true
    }

    /// Takes the units of a shard's segments. Those that were reserved and in which nothing counts
    /// are free: another shard may have them since.
    pub fn take(&mut self, look: &Look<'_>, found: &Checkpoint) {
        for segment in found.table.values() {
            if segment.roll_from == Some(0) && segment.rolled == 0 {
                continue;
            }
            let number = segment.info.id.get();
            for member in &segment.info.members {
                let (drive, au) = (member.drive, member.au);
                let before = self.owners.insert((drive, au), number);
                if let Some(other) = before.filter(|other| *other != number) {
                    let what =
                        format!("allocation unit {au} of drive {drive} is segment {other}'s too");
                    tell_wrong(look, &segment.info, what);
                }
            }
        }
    }

    /// How many units of each drive are taken.
    pub fn tell(&self, look: &Look<'_>) {
        let mut report = look.report.borrow_mut();
        for (drive, _) in self.owners.keys() {
            if let Some(seen) = report.drives.iter_mut().find(|seen| seen.index == Some(*drive)) {
                seen.taken += 1;
            }
        }
    }
}

fn tell_wrong(look: &Look<'_>, info: &SegmentInfo, what: String) {
    let finding = Finding::error(Structure::Segment, what).shard(info.shard);
    look.add(finding.segment(info.id.get()).advise(advice::REPORT));
}

/// The newest checkpoint of a shard, or `None` when it is lost, which is told.
pub(super) async fn find(look: &Look<'_>, shard: u16, units: &mut Units) -> Option<Checkpoint> {
    let root = drives::root(look, shard).await?;
    let lost = |what: String| {
        let finding = Finding::error(Structure::Manifest, what).shard(shard);
        look.add(finding.advise(advice::RESTORE));
    };
    let mut of_root = BTreeMap::new();
    for raw in &root.segments {
        match SegmentRecord::from_bytes(raw, shard, look.geometry) {
            // What is wrong with it is told where it stands in the manifest.
            Ok(record) if are_members(look, &record) => _ = of_root.insert(record.info.id, record),
            Ok(record) => lost(format!(
                "the root names segment {}, whose members cannot be",
                record.info.id.get()
            )),
            Err(bad) => lost(format!("a segment that the root names: {bad}")),
        }
    }
    let (manifest, entries) = match read_all(look, &root, &mut of_root).await {
        Ok(found) => found,
        Err(what) => {
            lost(what);
            return None;
        }
    };
    if manifest.generation != root.generation {
        let (says, is) = (root.generation, manifest.generation);
        lost(format!("the root of generation {says} names a manifest of generation {is}"));
    }
    let table = segments(look, &manifest, of_root, units);
    Some(Checkpoint {
        shard,
        generation: root.generation,
        cut: manifest.cut,
        table,
        blocks: entries,
        map: manifest.map,
    })
}

fn are_members(look: &Look<'_>, record: &SegmentRecord) -> bool {
    let is =
        |drive: u16, au: u32| usize::from(drive) < look.set.len() && au < look.set.units(drive);
    record.info.members.iter().all(|member| is(member.drive, member.au))
}

/// Reads the manifest that a root names, with its pages, and tells where all those blocks are. Adds the segments that hold
/// pages to those of the root.
async fn read_all(
    look: &Look<'_>,
    root: &Root,
    holders: &mut BTreeMap<SegmentId, SegmentRecord>,
) -> Result<(Manifest, Vec<Entry>), String> {
    let (bytes, mut entries) = read(look, root, holders).await?;
    let bad = |bad| format!("the manifest of generation {}: {bad}", root.generation);
    let read = Read::from_bytes(&bytes, root.pool, root.shard, look.geometry).map_err(bad)?;
    let paged = match read {
        Read::Whole(manifest) => return Ok((manifest, entries)),
        Read::Paged(paged) => paged,
    };
    let can_be: Vec<SegmentRecord> =
        paged.holders.iter().filter(|holder| are_members(look, holder)).cloned().collect();
    add_holders(holders, &can_be);
    let (mut pages, mut block) = (Vec::new(), vec![0; BLOCK]);
    for at in &paged.pages {
        read_block(look, holders, *at, &mut block).await?;
        let page = Page::from_block(&block, root.pool, root.shard, look.geometry);
        let bad = |bad| format!("a page of the manifest at {:?}: {bad}", at.location);
        pages.push((*at, page.map_err(bad)?));
    }
    entries.extend_from_slice(&paged.pages);
    let (manifest, _) = manifest_pages::assemble(paged, pages).map_err(bad)?;
    Ok((manifest, entries))
}

/// Reads the manifest that a root names, without its pages, and tells where its blocks are.
async fn read(
    look: &Look<'_>,
    root: &Root,
    infos: &BTreeMap<SegmentId, SegmentRecord>,
) -> Result<(Vec<u8>, Vec<Entry>), String> {
    let mut block = vec![0; BLOCK];
    let mut entries = Vec::new();
    for at in &root.index {
        read_block(look, infos, *at, &mut block).await?;
        for raw in block.chunks_exact(size_of::<RawEntry>()) {
            let raw: RawEntry =
                zerocopy::FromBytes::read_from_bytes(raw).map_err(|_| "its index".to_owned())?;
            entries.push(raw.entry().map_err(|bad| format!("its index: {bad}"))?);
        }
    }
    entries.truncate(usize64(root.bytes).div_ceil(BLOCK));
    let mut bytes = Vec::with_capacity(entries.len() * BLOCK);
    for at in &entries {
        read_block(look, infos, *at, &mut block).await?;
        bytes.extend_from_slice(&block);
    }
    if u64_of(bytes.len()) < root.bytes {
        return Err("the manifest is shorter than its root says".to_owned());
    }
    bytes.truncate(usize64(root.bytes));
    entries.extend_from_slice(&root.index);
    Ok((bytes, entries))
}

async fn read_block(
    look: &Look<'_>,
    infos: &BTreeMap<SegmentId, SegmentRecord>,
    at: Entry,
    out: &mut [u8],
) -> Result<(), String> {
    let Some(record) = infos.get(&at.location.segment()) else {
        return Err(format!("a block of the manifest is at {:?}, of no segment", at.location));
    };
    let read = blocks::read(look, Structure::Manifest, &record.info, at, out).await;
    read.map_err(|error| format!("a block of the manifest is lost: {error}"))
}

/// The segments of manifest and root that can be.
fn segments(
    look: &Look<'_>,
    manifest: &Manifest,
    of_root: BTreeMap<SegmentId, SegmentRecord>,
    units: &mut Units,
) -> BTreeMap<SegmentId, Segment> {
    let mut table = BTreeMap::new();
    for record in &manifest.segments {
        if record.info.id.get() >= manifest.next_segment {
            let what = format!("segments from {} on were never used", manifest.next_segment);
            let finding = Finding::error(Structure::Segment, what).shard(manifest.shard);
            look.add(finding.segment(record.info.id.get()).advise(advice::REPORT));
        }
        if units.check(look, record) {
            table.insert(record.info.id, Segment::new(record));
        }
    }
    // Those of the manifest itself may be newer than it.
    for (id, record) in of_root {
        match table.get_mut(&id) {
            Some(segment) => segment.hint = segment.hint.saturating_add(record.live),
            None if units.check(look, &record) => _ = table.insert(id, Segment::new(&record)),
            None => {}
        }
    }
    table
}

impl Checkpoint {
    /// Describes the segments, of which `live` tells how many blocks are in use.
    pub fn tell(&self, look: &Look<'_>, live: impl Fn(SegmentId) -> u32) {
        let mut report = look.report.borrow_mut();
        for segment in self.table.values() {
            let info = &segment.info;
            report.segments.push(SegmentSeen {
                number: info.id.get(),
                shard: self.shard,
                generation: info.generation,
                stream: info.stream,
                roll_from: segment.roll_from,
                rolled: segment.rolled,
                hint: segment.hint,
                live: live(info.id),
                members: info.members.clone(),
            });
        }
    }

    /// Whether a segment's count must be exact: metadata's are.
    pub fn is_metadata(segment: &Segment) -> bool {
        segment.info.stream == Stream::Metadata
    }
}
