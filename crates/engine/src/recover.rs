//! Opening a shard: its last checkpoint, rolled forward by the headers of the stripes written
//! since, and then its log.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use stdx::num::usize64;

use crate::address::{BLOCK, Entry, Location, SegmentId};
use crate::allocator::Allocator;
use crate::area;
use crate::canary::{self, Canary, Step};
use crate::error::{Error, Kind, Result};
use crate::format::manifest::{Manifest, Page, Paged, Read, SegmentRecord};
use crate::format::root::{RawEntry, Root};
use crate::manifest_pages::{self, ManifestPages};
use crate::segment::{SegmentInfo, Segments, StripeHeader};
use crate::segment_table::{Segment, State, Table};
use crate::stripe_writer::UNORDERED;
use crate::superblock::{RootOn, Superblock};
use reactor::cross_core::Lock;
use reactor::join_all;

/// Pages of a manifest that are read at once: their drives have something to do, and each takes a block of memory.
const PAGES_AT_ONCE: usize = 64;

/// A shard's last checkpoint, as found on the drives.
pub struct Found {
    pub root: Root,
    pub manifest: Manifest,
    /// The blocks that hold the manifest itself and its index.
    pub blocks: Vec<Entry>,
    /// The pages that it lists.
    pub pages: ManifestPages,
    /// The segments of all those blocks, as the root and the manifest describe them.
    pub segments: Vec<SegmentRecord>,
    pub root_on: RootOn,
}

impl Found {
    /// The segments for contents that were open at the checkpoint, each with the first stripe that may have come
    /// since.
    fn open(&self) -> impl Iterator<Item = (&SegmentRecord, u32)> {
        // Some were kept for contents when the manifest was made, and taken for the manifest itself.
        let roots: BTreeSet<_> = self.segments.iter().map(|record| record.info.id).collect();
        let records = self.manifest.segments.iter();
        let open = records.filter_map(|record| Some((record, record.roll_from?)));
        open.filter(move |(record, _)| !roots.contains(&record.info.id))
    }
}

fn corrupt(what: impl Into<String>) -> Error {
    Error::new(Kind::Corrupt, what)
}

/// The newest root that any drive has, and which drives have it.
async fn newest_root(superblock: &Superblock, shard: u16) -> Result<(Root, RootOn)> {
    let pool = superblock.label().pool;
    let mut newest: Option<(Root, Vec<u16>)> = None;
    let (mut unread, mut failure) = (Vec::new(), None);
    for index in superblock.drives.indices() {
        let Some(drive) = superblock.drives.drive(index).cloned() else { continue };
        // A drive that cannot be read, or carries a damaged root, is outvoted by the others.
        match area::read_root(&drive, pool, shard).await {
            Ok(Ok(root)) => match &mut newest {
                Some((known, on)) if *known == root => on.push(index),
                Some((known, _)) if known.generation >= root.generation => {}
                _ => newest = Some((root, vec![index])),
            },
            Ok(Err(_)) => {}
            Err(error) => {
                unread.push(index);
                failure = Some(error);
            }
        }
    }
    let what = format!("no drive has a root of shard {shard}");
    let (root, found) = newest.ok_or_else(|| match failure {
        Some(error) => Error::caused(Kind::Failed, what, error),
        None => corrupt(what),
    })?;
    Ok((root, RootOn { found, unread }))
}

/// Reads a shard's last checkpoint.
///
/// # Errors
/// `Corrupt` when there is none, or it is damaged beyond the redundancy.
pub async fn find(
    superblock: &Superblock,
    segments: &Segments,
    geometry: raid::Geometry,
    shard: u16,
) -> Result<Found> {
    let (root, root_on) = newest_root(superblock, shard).await?;
    let bad = |what: &'static str| move |why| Error::caused(Kind::Corrupt, what, why);
    let records: Vec<SegmentRecord> = root
        .segments
        .iter()
        .map(|raw| SegmentRecord::from_bytes(raw, shard, geometry).map_err(bad("root")))
        .collect::<Result<_>>()?;
    let mut holders: BTreeMap<SegmentId, SegmentRecord> =
        records.into_iter().map(|record| (record.info.id, record)).collect();
    let (bytes, blocks) = read_manifest(&root, segments, &holders).await?;
    let read = Read::from_bytes(&bytes, root.pool, shard, geometry).map_err(bad("manifest"))?;
    let (manifest, pages) = match read {
        Read::Whole(manifest) => (manifest, ManifestPages::default()),
        Read::Paged(paged) => {
            add_holders(&mut holders, &paged.holders);
            let pages = read_pages(&paged, &root, segments, &holders, geometry).await?;
            manifest_pages::assemble(paged, pages).map_err(bad("manifest pages"))?
        }
    };
    let segments = holders.into_values().collect();
    Ok(Found { root, manifest, blocks, pages, segments, root_on })
}

/// Adds the segments that hold pages of a manifest to those that hold itself, which are as of a moment later.
pub fn add_holders(to: &mut BTreeMap<SegmentId, SegmentRecord>, holders: &[SegmentRecord]) {
    for holder in holders {
        match to.get_mut(&holder.info.id) {
            Some(known) => known.live = known.live.saturating_add(holder.live),
            None => _ = to.insert(holder.info.id, holder.clone()),
        }
    }
}

/// The manifest that a root names, and the blocks of it and of its index.
async fn read_manifest(
    root: &Root,
    segments: &Segments,
    holders: &BTreeMap<SegmentId, SegmentRecord>,
) -> Result<(Vec<u8>, Vec<Entry>)> {
    let bad = |why| Error::caused(Kind::Corrupt, "index", why);
    let mut block = vec![0; BLOCK];
    let mut blocks = Vec::new();
    for at in &root.index {
        read(segments, holders, *at, &mut block).await?;
        for raw in block.chunks_exact(size_of::<RawEntry>()) {
            let raw: RawEntry =
                zerocopy::FromBytes::read_from_bytes(raw).map_err(|_| corrupt("index"))?;
            blocks.push(raw.entry().map_err(bad)?);
        }
    }
    blocks.truncate(usize64(root.bytes).div_ceil(BLOCK));
    let mut bytes = Vec::with_capacity(blocks.len() * BLOCK);
    for at in &blocks {
        read(segments, holders, *at, &mut block).await?;
        bytes.extend_from_slice(&block);
    }
    if u64::try_from(bytes.len()).is_ok_and(|len| len < root.bytes) {
        return Err(corrupt("the manifest is shorter than its root says"));
    }
    bytes.truncate(usize64(root.bytes));
    blocks.extend_from_slice(&root.index);
    Ok((bytes, blocks))
}

/// The pages that a manifest lists.
async fn read_pages(
    paged: &Paged,
    root: &Root,
    segments: &Segments,
    holders: &BTreeMap<SegmentId, SegmentRecord>,
    geometry: raid::Geometry,
) -> Result<Vec<(Entry, Page)>> {
    let one = |at: Entry| async move {
        let mut block = vec![0; BLOCK];
        read(segments, holders, at, &mut block).await?;
        let page = Page::from_block(&block, root.pool, root.shard, geometry);
        let bad = |why| Error::caused(Kind::Corrupt, format!("page at {:?}", at.location), why);
        page.map(|page| (at, page)).map_err(bad)
    };
    let mut pages = Vec::with_capacity(paged.pages.len());
    for some in paged.pages.chunks(PAGES_AT_ONCE) {
        for page in join_all(some.iter().map(|at| one(*at))).await {
            pages.push(page?);
        }
    }
    Ok(pages)
}

async fn read(
    segments: &Segments,
    holders: &BTreeMap<SegmentId, SegmentRecord>,
    at: Entry,
    out: &mut [u8],
) -> Result<()> {
    let id = at.location.segment();
    let holder =
        holders.get(&id).ok_or_else(|| corrupt("the manifest lies outside its segments"))?;
    segments.read(&holder.info, at.location.slot(), &[at.crc], out).await
}

/// Ordered stripes since a checkpoint, by number. What a life of the pool wrote that the next one did not know as
/// durable, that one has written anew, under the same numbers and others: then the later one's count.
pub struct Since<T> {
    /// With the opening of the pool since which their segments were filled.
    stripes: BTreeMap<u64, (u64, T)>,
}

impl<T> Since<T> {
    pub const fn new() -> Self {
        Self { stripes: BTreeMap::new() }
    }

    /// Adds a stripe of a segment of this generation. Metadata is none of them, for which a segment may have been taken that
    /// was kept for contents: nothing tells of what an opening wrote by the one since which it was filled.
    pub fn add(&mut self, generation: u64, sequence: u64, stripe: T) {
        if sequence == UNORDERED {
            return;
        }
        let opening = generation >> 32;
        if self.stripes.get(&sequence).is_none_or(|(other, _)| *other < opening) {
            self.stripes.insert(sequence, (opening, stripe));
        }
    }

    /// Whether each of these numbers has a stripe that none of a segment of this generation would take the place of.
    fn has_all(&self, mut sequences: impl Iterator<Item = u64>, generation: u64) -> bool {
        let opening = generation >> 32;
        sequences.all(|n| self.stripes.get(&n).is_some_and(|(found, _)| *found >= opening))
    }

    /// Those that count.
    pub fn counting(self) -> BTreeMap<u64, T> {
        let mut latest = 0;
        let counts = |(sequence, (opening, stripe))| {
            latest = latest.max(opening);
            (opening == latest).then_some((sequence, stripe))
        };
        self.stripes.into_iter().filter_map(counts).collect()
    }
}

/// The stripes since a checkpoint that count, none after number `until`: their segments, and their headers.
///
/// # Errors
/// `Failed` when too many drives are lost to tell.
async fn since<'a>(
    found: &'a Found,
    segments: &Segments,
    until: u64,
) -> Result<BTreeMap<u64, (&'a SegmentInfo, StripeHeader)>> {
    let (mut since, mut unread) = (Since::new(), Vec::new());
    for (record, from) in found.open() {
        let generation = record.info.generation;
        for stripe in from..record.info.geometry.stripes() {
            let header = match segments.read_header(&record.info, stripe).await {
                Ok(header) => header.filter(|header| header.sequence <= until),
                Err(error) => {
                    unread.push((generation, error));
                    None
                }
            };
            let Some(header) = header else { break };
            since.add(generation, header.sequence, (&record.info, header));
        }
    }
    // What cannot be read where no stripe is missing is what lies behind the last one.
    let wanted = found.manifest.cut + 1..=until;
    match unread.into_iter().find(|(generation, _)| !since.has_all(wanted.clone(), *generation)) {
        Some((_, error)) => Err(error),
        None => Ok(since.counting()),
    }
}

/// The last record of its log that a shard's drives know of: nothing leaves a log before it is durable there.
pub async fn newest_of_log(found: &Found, segments: &Segments, ring: u64) -> u64 {
    let root = found.root.log;
    if root.ring != ring {
        return 0;
    }
    let mut newest = root.sequence;
    for (record, from) in found.open() {
        for stripe in from..record.info.geometry.stripes() {
            // What cannot be read says nothing.
            let Ok(Some(header)) = segments.read_header(&record.info, stripe).await else { break };
            newest = newest.max(root.near(header.log));
        }
    }
    newest
}

/// The last ordered stripe up to which all since a checkpoint can be read whole, for a log that does not say
/// any more which are durable: those it relied on are among them. Durable when this returns.
///
/// # Errors
/// `Failed` when too many drives are lost.
pub async fn last_whole(found: &Found, segments: &Segments) -> Result<u64> {
    let stripes = since(found, segments, u64::MAX).await?;
    let mut last = found.manifest.cut;
    while let Some((info, header)) = stripes.get(&(last + 1)) {
        if canary::has(Canary::ForgetsStripes) {
            break;
        }
        if !canary::has(Canary::TrustsHeaders) && !segments.make_whole(info, header).await? {
            break;
        }
        last += 1;
    }
    // All that stripes can lie in: where they end cannot be told while too many drives are away.
    let open: Vec<&SegmentInfo> = found.open().map(|(record, _)| &record.info).collect();
    if !canary::skips(Step::WholeFlush) {
        segments.flush(&open).await?;
    }
    Ok(last)
}

/// Stripes to roll forward, in their order, and what they make of the segments.
pub struct Rolled {
    pub table: Table,
    pub headers: Vec<StripeHeader>,
    /// The last ordered stripe that counts.
    pub sequence: u64,
}

/// Takes the segments of a checkpoint into a table, and finds the stripes written since: those up to
/// `durable`. Later ones do not count; what is in them is still in the log.
///
/// # Errors
/// `Corrupt` when the checkpoint contradicts itself or a stripe is missing, `Failed` when too many
/// drives are lost.
pub async fn roll(
    found: &Found,
    segments: &Segments,
    allocator: &Lock<Allocator>,
    durable: u64,
) -> Result<Rolled> {
    let mut table = Table::default();
    let mut headers = Vec::new();
    let cut = found.manifest.cut;
    allocator.lock().skip_to(found.manifest.next_segment);
    for record in found.manifest.segments.iter().filter(|record| record.roll_from.is_none()) {
        let info = Rc::new(record.info.clone());
        claim(allocator, &info)?;
        table.insert(Segment::sealed(info, record.stripes, record.live));
    }
    let since = since(found, segments, durable).await?.into_values();
    let mut by_place: BTreeMap<(SegmentId, u32), StripeHeader> =
        since.map(|(info, header)| ((info.id, header.stripe), header)).collect();
    for (record, from) in found.open() {
        let info = Rc::new(record.info.clone());
        let mut segment = Segment::new(Rc::clone(&info), State::Sealed);
        (segment.stripes, segment.applied, segment.settled) = (from, from, from);
        segment.live = record.live;
        while let Some(header) = by_place.remove(&(info.id, segment.stripes)) {
            segment.stripes += 1;
            // What the runs have already is not learnt again.
            if header.sequence > cut { headers.push(header) } else { segment.applied += 1 }
        }
        // Reserved and never used: its space is free again, and its stray stripes mean nothing.
        if segment.stripes > 0 {
            claim(allocator, &info)?;
            segment.settled = segment.settled.max(segment.applied);
            segment.durable = segment.stripes;
            table.insert(segment);
        }
    }
    for record in &found.segments {
        let info = Rc::new(record.info.clone());
        if table.get(info.id).is_none() {
            claim(allocator, &info)?;
            table.insert(Segment::sealed(Rc::clone(&info), record.stripes, 0));
        } else if let Some(stripes) = record.stripes {
            table.set_stripes(info.id, stripes);
        }
        table.add_live(Location::new(info.id, 0), record.live);
    }
    headers.sort_unstable_by_key(|header| header.sequence);
    let mut sequence = cut;
    for header in &headers {
        if header.sequence != sequence + 1 {
            return Err(corrupt(format!("stripe {} of the shard is missing", sequence + 1)));
        }
        sequence = header.sequence;
    }
    if sequence < durable {
        return Err(corrupt(format!("stripes {} to {durable} are missing", sequence + 1)));
    }
    let rolled = stdx::num::u64_of(headers.len());
    assert_eq!(sequence - cut, rolled, "each stripe since the checkpoint is learnt once");
    if canary::has(Canary::ReplaysInWrongOrder) {
        headers.reverse();
    }
    Ok(Rolled { table, headers, sequence })
}

fn claim(allocator: &Lock<Allocator>, info: &SegmentInfo) -> Result<()> {
    let context = || format!("segment {}", info.id.get());
    allocator
        .lock()
        .claim(info.id, &info.members)
        .map_err(|why| corrupt(format!("{}: {why}", context())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_later_opening_wrote_counts_and_nothing_earlier_after_it() {
        let (first, second) = (|n: u64| 3 << 32 | n, |n: u64| 4 << 32 | n);
        let mut since = Since::new();
        for sequence in 10..16 {
            since.add(first(7), sequence, "first");
        }
        for sequence in 12..14 {
            since.add(second(1), sequence, "second");
        }
        since.add(first(8), 13, "first");
        since.add(first(8), 16, "first");
        assert!(since.has_all(10..=16, first(9)) && !since.has_all(10..=17, first(9)));
        // One of the second opening could take the place of some of the first.
        assert!(since.has_all(12..=13, second(2)) && !since.has_all(11..=13, second(2)));
        let counting = since.counting().into_iter().collect::<Vec<_>>();
        assert_eq!(counting, [(10, "first"), (11, "first"), (12, "second"), (13, "second")]);
    }

    /// It had the number 0, came first, and nothing counted that an earlier opening had written.
    #[test]
    fn metadata_in_a_segment_kept_for_contents_takes_nothing_away() {
        let mut since = Since::new();
        since.add(4 << 32 | 9, UNORDERED, "metadata");
        for sequence in 10..12 {
            since.add(3 << 32 | 7, sequence, "contents");
        }
        let counting = since.counting().into_iter().collect::<Vec<_>>();
        assert_eq!(counting, [(10, "contents"), (11, "contents")]);
    }
}
