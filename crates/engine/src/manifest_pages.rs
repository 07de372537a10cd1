//! The pages of a shard's manifest: which records are on which, and which of them a checkpoint writes anew.
//!
//! A page is one block, and never changed. A checkpoint writes those anew on which a record came, went, or says something
//! else; the others stay where they are. What is written costs what changed, so, and not what the shard has. New records
//! go to pages that are written anyhow. A page that is written and less than half full is given up for others: pages
//! that are less than half full are one of each class at most, and opening reads no more than twice what there is.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};

use crate::address::{Entry, SegmentId};
use crate::canary::{self, Step};
use crate::format::Bad;
use crate::format::manifest::{Manifest, PAGE_BYTES, Page, PageKind, Paged, SegmentRecord};
use crate::map;
use crate::segment::{SegmentInfo, Stream};

/// What a record on a page says, as far as it may change.
pub trait Said: Copy + PartialEq {
    const KIND: PageKind;

    /// Bytes of the record.
    fn bytes(&self) -> usize;

    /// Records of one class change together, and have pages of their own.
    fn class(&self) -> bool;

    /// Whether what was written will do in place of this.
    fn stands_for(&self, now: &Self) -> bool;
}

/// Of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSaid {
    live: u32,
    roll_from: Option<u32>,
    stripes: Option<u32>,
    stream: Stream,
    /// So many live blocks fewer are not worth writing a page.
    slack: u32,
    bytes: u16,
}

/// What a page is given where the simulator wants many: some of the longest records.
const ROOM_LEAST: usize = 400;

/// Which part of a segment's blocks may have gone before a count of them is written anew.
const SLACK: u32 = 256;

impl SegmentSaid {
    /// What is to be said of a segment.
    #[must_use]
    pub fn new(
        info: &SegmentInfo,
        live: u32,
        roll_from: Option<u32>,
        stripes: Option<u32>,
    ) -> Self {
        let (slack, width) = (info.geometry.slots() / SLACK, info.geometry.width());
        let bytes = stdx::num::u16_of(SegmentRecord::len(width));
        Self { live, roll_from, stripes, stream: info.stream, slack, bytes }
    }

    /// Nothing else will do in place of this.
    #[must_use]
    pub const fn exactly(self) -> Self {
        Self { slack: 0, ..self }
    }

    fn of(record: &SegmentRecord) -> Self {
        Self::new(&record.info, record.live, record.roll_from, record.stripes)
    }

    /// As it is on a page.
    #[must_use]
    pub fn record(&self, info: &SegmentInfo) -> SegmentRecord {
        let info = SegmentInfo { stream: self.stream, ..info.clone() };
        SegmentRecord { info, roll_from: self.roll_from, stripes: self.stripes, live: self.live }
    }

    /// The first stripe that is rolled forward.
    #[must_use]
    pub const fn roll_from(&self) -> Option<u32> {
        self.roll_from
    }
}

impl Said for SegmentSaid {
    const KIND: PageKind = PageKind::Segments;

    fn bytes(&self) -> usize {
        self.bytes.into()
    }

    /// Counts of metadata are exact, and change with each merge.
    fn class(&self) -> bool {
        self.stream == Stream::Metadata
    }

    /// Overwrites all over the pool count down a little everywhere. A count of data is a hint, which may be too high, but
    /// not too low; one that comes to nothing tells that there is space to be won.
    fn stands_for(&self, now: &Self) -> bool {
        let is_hint = self.stream != Stream::Metadata && now.live > 0;
        let fewer = self.live.checked_sub(now.live);
        let will_do = fewer.is_some_and(|fewer| fewer == 0 || is_hint && fewer <= now.slack);
        will_do && Self { live: now.live, slack: now.slack, ..*self } == *now
    }
}

/// Of a table of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSaid {
    hash: u64,
    bytes: u16,
}

impl TableSaid {
    #[must_use]
    pub fn of(record: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(record);
        Self { hash: hasher.finish(), bytes: stdx::num::u16_of(record.len()) }
    }
}

impl Said for TableSaid {
    const KIND: PageKind = PageKind::Tables;

    fn bytes(&self) -> usize {
        self.bytes.into()
    }

    fn class(&self) -> bool {
        false
    }

    fn stands_for(&self, now: &Self) -> bool {
        self == now
    }
}

/// A page.
#[derive(Debug)]
struct Held<K> {
    /// Where it is, as the last checkpoint says.
    at: Option<Entry>,
    keys: Vec<K>,
    bytes: usize,
    class: bool,
}

#[derive(Debug)]
struct Placed<S> {
    page: u32,
    said: S,
}

/// Records of one kind, by their keys, on pages.
#[derive(Debug)]
pub struct Pages<K, S> {
    pages: BTreeMap<u32, Held<K>>,
    placed: BTreeMap<K, Placed<S>>,
    next: u32,
    /// Bytes of records that a page is given.
    room: usize,
    /// To be written by the next checkpoint.
    changed: BTreeSet<u32>,
    /// Where pages were that are given up with the next checkpoint.
    given_up: Vec<Entry>,
}

impl<K, S> Default for Pages<K, S> {
    fn default() -> Self {
        Self {
            pages: BTreeMap::new(),
            placed: BTreeMap::new(),
            next: 0,
            room: if canary::has_small_maps() { ROOM_LEAST } else { PAGE_BYTES },
            changed: BTreeSet::new(),
            given_up: Vec::new(),
        }
    }
}

impl<K: Copy + Ord, S: Said> Pages<K, S> {
    /// A page that the last checkpoint before an opening has.
    ///
    /// # Errors
    /// When a record is on another page, too.
    pub fn add(&mut self, at: Entry, records: &[(K, S)]) -> Result<(), Bad> {
        let number = self.page(records.first().is_some_and(|(_, said)| said.class()), Some(at));
        for (key, said) in records {
            if self.placed.contains_key(key) {
                return Err(Bad::Field("a record of two pages"));
            }
            self.put(number, *key, *said);
        }
        if self.pages.get(&number).is_none_or(|page| page.bytes == 0) {
            self.changed.insert(number);
        }
        Ok(())
    }

    fn page(&mut self, class: bool, at: Option<Entry>) -> u32 {
        let number = self.next;
        self.next += 1;
        self.pages.insert(number, Held { at, keys: Vec::new(), bytes: 0, class });
        number
    }

    fn put(&mut self, number: u32, key: K, said: S) {
        let before = self.placed.insert(key, Placed { page: number, said });
        assert!(before.is_none(), "a record is on one page");
        if let Some(page) = self.pages.get_mut(&number) {
            page.keys.push(key);
            page.bytes += said.bytes();
        }
    }

    /// Takes a record from its page, which is written without it.
    fn take(&mut self, key: K) {
        let Some(Placed { page: number, said }) = self.placed.remove(&key) else { return };
        self.changed.insert(number);
        if let Some(page) = self.pages.get_mut(&number) {
            page.keys.retain(|other| *other != key);
            page.bytes -= said.bytes();
        }
    }

    /// Gives every record of `now`, in the order of their keys, a page, and takes away those that are not among them.
    ///
    /// # Panics
    /// When they are in no order.
    pub fn update(&mut self, now: &[(K, S)]) {
        assert!(now.is_sorted_by(|a, b| a.0 < b.0), "each record once, in their order");
        let (mut gone, mut homeless) = (Vec::new(), Vec::new());
        let mut coming = now.iter().peekable();
        for (key, placed) in &mut self.placed {
            while let Some(new) = coming.next_if(|(other, _)| other < key) {
                homeless.push(*new);
            }
            match coming.next_if(|(other, _)| other == key) {
                None => gone.push(*key),
                Some((_, said)) if placed.said.stands_for(said) => {}
                Some((_, said)) => {
                    if canary::skips(Step::ManifestChanges) {
                        continue;
                    }
                    self.changed.insert(placed.page);
                    let moves = said.class() != placed.said.class();
                    if moves || said.bytes() != placed.said.bytes() {
                        gone.push(*key);
                        homeless.push((*key, *said));
                    }
                }
            }
        }
        homeless.extend(coming);
        gone.into_iter().for_each(|key| self.take(key));
        self.dissolve(&mut homeless);
        for class in [false, true] {
            self.settle(homeless.iter().filter(|(_, said)| said.class() == class), class);
        }
        for number in &self.changed {
            for key in self.pages.get(number).into_iter().flat_map(|page| &page.keys) {
                let at = now.binary_search_by(|(other, _)| other.cmp(key));
                if let (Ok(at), Some(placed)) = (at, self.placed.get_mut(key)) {
                    placed.said = now[at].1;
                }
            }
        }
    }

    /// Gives up pages that are written anyhow and less than half full.
    fn dissolve(&mut self, homeless: &mut Vec<(K, S)>) {
        let few = |number: &&u32| self.pages.get(number).is_some_and(|p| p.bytes < self.room / 2);
        let sparse: Vec<u32> = self.changed.iter().filter(few).copied().collect();
        for number in sparse {
            self.changed.remove(&number);
            let Some(page) = self.pages.remove(&number) else { continue };
            self.given_up.extend(page.at);
            for key in page.keys {
                homeless.extend(self.placed.remove(&key).map(|placed| (key, placed.said)));
            }
        }
    }

    /// Puts records on pages that are written anyhow, then on those less than half full, and on new ones only then.
    fn settle<'a>(&mut self, homeless: impl Iterator<Item = &'a (K, S)>, class: bool)
    where
        (K, S): 'a,
    {
        let mut homeless = homeless.peekable();
        if homeless.peek().is_none() {
            return;
        }
        let of_class = self.pages.iter().filter(|(_, page)| page.class == class);
        let is_roomy = |(number, page): &(&u32, &Held<K>)| {
            self.changed.contains(number) || page.bytes < self.room / 2
        };
        let mut roomy: Vec<u32> = of_class.filter(is_roomy).map(|(number, _)| *number).collect();
        // The last is taken first.
        roomy.sort_by_key(|number| Reverse(!self.changed.contains(number)));
        for (key, said) in homeless {
            let number = loop {
                let Some(number) = roomy.last().copied() else {
                    let new = self.page(class, None);
                    roomy.push(new);
                    continue;
                };
                let used = self.pages.get(&number).map_or(self.room, |page| page.bytes);
                if used + said.bytes() <= self.room {
                    break number;
                }
                assert!(used > 0, "a record fits a page");
                roomy.pop();
            };
            self.changed.insert(number);
            self.put(number, *key, *said);
        }
    }

    /// Pages in these segments are written anew, elsewhere. Tells whether there are some.
    pub fn leave(&mut self, is_left: impl Fn(SegmentId) -> bool) -> bool {
        if canary::skips(Step::ManifestLeaves) {
            return false;
        }
        let there = |page: &Held<K>| page.at.is_some_and(|at| is_left(at.location.segment()));
        let leaving = self.pages.iter().filter(|(_, page)| there(page));
        let leaving: Vec<u32> = leaving.map(|(number, _)| *number).collect();
        self.changed.extend(&leaving);
        !leaving.is_empty()
    }

    fn records(&self, page: &Held<K>) -> Vec<(K, S)> {
        let said = |key: &K| self.placed.get(key).map(|placed| (*key, placed.said));
        page.keys.iter().filter_map(said).collect()
    }

    /// The pages to be written, each with its records.
    pub fn changed(&self) -> impl Iterator<Item = (u32, Vec<(K, S)>)> {
        let records = |n: &u32| self.pages.get(n).map(|page| (*n, self.records(page)));
        self.changed.iter().filter_map(records)
    }

    /// The pages that the next checkpoint leaves as they are: where they are, with their records.
    pub fn kept(&self) -> impl Iterator<Item = (Entry, impl Fn() -> Vec<(K, S)>)> {
        let pages = self.pages.iter().filter(|(number, _)| !self.changed.contains(number));
        pages.filter_map(|(_, page)| page.at.map(|at| (at, || self.records(page))))
    }

    /// All blocks that the last checkpoint has.
    pub fn blocks(&self) -> impl Iterator<Item = Entry> {
        self.pages.values().filter_map(|page| page.at).chain(self.given_up.iter().copied())
    }

    /// A checkpoint is done that has these pages there. Gives the blocks that are in use no more.
    pub fn written(&mut self, at: impl IntoIterator<Item = (u32, Entry)>) -> Vec<Entry> {
        let mut before = std::mem::take(&mut self.given_up);
        for (number, entry) in at {
            self.changed.remove(&number);
            if let Some(page) = self.pages.get_mut(&number) {
                before.extend(page.at.replace(entry));
            }
        }
        before
    }
}

/// All pages of a manifest.
#[derive(Debug, Default)]
pub struct ManifestPages {
    pub segments: Pages<SegmentId, SegmentSaid>,
    pub tables: Pages<u64, TableSaid>,
}

impl ManifestPages {
    /// All blocks that the last checkpoint has.
    pub fn blocks(&self) -> impl Iterator<Item = Entry> {
        self.segments.blocks().chain(self.tables.blocks())
    }

    /// Pages in these segments are written anew, elsewhere, by the next checkpoint. Between two of them: one under way would
    /// take those for written. Tells whether there are some.
    pub fn leave(&mut self, is_left: impl Fn(SegmentId) -> bool) -> bool {
        let of_segments = self.segments.leave(&is_left);
        self.tables.leave(is_left) || of_segments
    }
}

/// A manifest put together from the pages that it lists, and what is on which.
///
/// # Errors
/// When they contradict each other.
pub fn assemble(
    paged: Paged,
    read: impl IntoIterator<Item = (Entry, Page)>,
) -> Result<(Manifest, ManifestPages), Bad> {
    let mut pages = ManifestPages::default();
    let (mut segments, mut tables) = (Vec::new(), Vec::new());
    for (at, page) in read {
        match page {
            Page::Segments(records) => {
                let said = |record: &SegmentRecord| (record.info.id, SegmentSaid::of(record));
                pages.segments.add(at, &records.iter().map(said).collect::<Vec<_>>())?;
                segments.extend(records);
            }
            Page::Tables(count, bytes) => {
                let records = map::records(&bytes)?;
                if records.len() != count {
                    return Err(Bad::Field("records"));
                }
                let said = |(id, record): &(u64, &[u8])| (*id, TableSaid::of(record));
                pages.tables.add(at, &records.iter().map(said).collect::<Vec<_>>())?;
                tables.push(bytes);
            }
        }
    }
    if segments.len() != stdx::num::usize32(paged.segments) {
        return Err(Bad::Field("segments"));
    }
    let mut records = Vec::new();
    for bytes in &tables {
        records.extend(map::records(bytes)?.into_iter().map(|(_, record)| record));
    }
    segments.sort_unstable_by_key(|record: &SegmentRecord| record.info.id);
    let manifest = Manifest {
        shard: paged.shard,
        generation: paged.generation,
        cut: paged.cut,
        next_segment: paged.next_segment,
        segments,
        map: map::assemble(&paged.map, &records)?,
    };
    Ok((manifest, pages))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Location;
    use crate::segment::Member;
    use stdx::Prng;
    use stdx::num::u32_of;

    fn geometry() -> raid::Geometry {
        raid::Geometry::for_au(raid::Shape { data: 8, parity: 2 }, 16_384).unwrap()
    }

    fn info(id: u32, stream: Stream) -> SegmentInfo {
        let (members, generation, shard) =
            ((0..10).map(|drive| Member { drive, au: id }).collect(), 1, 0);
        let (id, geometry) = (SegmentId::new(id), geometry());
        SegmentInfo { id, generation, members, stream, shard, geometry }
    }

    fn said(id: u32, live: u32) -> (SegmentId, SegmentSaid) {
        let info = info(id, Stream::User);
        (info.id, SegmentSaid::new(&info, live, None, Some(1)))
    }

    type Shard = Pages<SegmentId, SegmentSaid>;

    /// Writes what changed, as checkpoints do; tells how many pages that are.
    fn write(pages: &mut Shard, now: &BTreeMap<SegmentId, SegmentSaid>, number: &mut u32) -> usize {
        pages.update(&now.iter().map(|(id, said)| (*id, *said)).collect::<Vec<_>>());
        let changed: Vec<u32> = pages.changed().map(|(page, _)| page).collect();
        let place = |page: &u32| {
            *number += 1;
            (*page, Entry { location: Location::new(SegmentId::new(1), *number), crc: *number })
        };
        let written: Vec<_> = changed.iter().map(place).collect();
        let before = pages.blocks().count();
        let gone = pages.written(written.iter().copied()).len();
        assert_eq!(before - gone + changed.len(), pages.blocks().count(), "each block is told of");
        check(pages, now);
        changed.len()
    }

    /// All is there once, as it is or as a hint has it, on pages no more than twice what it takes.
    fn check(pages: &Shard, now: &BTreeMap<SegmentId, SegmentSaid>) {
        assert_eq!(pages.changed().count(), 0, "all is written");
        let mut found = BTreeMap::new();
        for (_, records) in pages.kept() {
            let records = records();
            let bytes: usize = records.iter().map(|(_, said)| said.bytes()).sum();
            assert!((1..=PAGE_BYTES).contains(&bytes), "a page has {bytes} bytes");
            let known = found.len();
            found.extend(records.iter().copied());
            assert_eq!(found.len(), known + records.len(), "each record is on one page");
        }
        assert_eq!(found.len(), now.len());
        for (id, said) in now {
            assert!(found[id].stands_for(said), "{id:?}: {:?} for {said:?}", found[id]);
        }
        let least = (now.len() * SegmentRecord::len(10)).div_ceil(PAGE_BYTES);
        let (count, per_class) = (pages.kept().count(), 2);
        assert!(count <= 2 * least + per_class, "{count} pages for what fits {least}");
    }

    /// Bytes of a manifest that lists so many pages, which lie in so many segments.
    fn manifest_bytes(pages: u32, holders: u32) -> usize {
        let entry = |n| Entry { location: Location::new(SegmentId::new(1), n), crc: n };
        let holder = |id| said(id, 0).1.record(&info(id, Stream::Metadata));
        let (pages, holders) =
            ((0..pages).map(entry).collect(), (0..holders).map(holder).collect());
        let [shard, generation, cut] = [0, 1, 1];
        let (map, next_segment) = (vec![0; 40], 1);
        let shard = u16::try_from(shard).unwrap();
        let segments = 100_000;
        Paged { shard, generation, cut, next_segment, segments, holders, pages, map }
            .to_bytes([0; 16], 10)
            .len()
    }

    /// A checkpoint wrote the description of every segment that the shard has. `FLASHLOOM_SEGMENTS` has as many as that,
    /// and what is printed is in `docs/sizing.md`.
    #[test]
    fn what_is_written_follows_what_changed_and_not_what_there_is() {
        let count = std::env::var("FLASHLOOM_SEGMENTS");
        let count: u32 = count.map_or(100_000, |count| count.parse().unwrap());
        let (mut pages, mut number) = (Shard::default(), 0);
        let mut now: BTreeMap<_, _> = (0..count).map(|id| said(id, 50_000)).collect();
        let all = write(&mut pages, &now, &mut number);
        assert_eq!(
            all,
            usize::try_from(count).unwrap().div_ceil(PAGE_BYTES / SegmentRecord::len(10))
        );
        assert_eq!(write(&mut pages, &now, &mut number), 0);
        for id in [7, 30_000, 99_999] {
            now.extend([said(id, 9)]);
        }
        assert_eq!(write(&mut pages, &now, &mut number), 3);
        // Others come where some went, and some are filled.
        let mut most = 0;
        for round in 0..50 {
            let some = || (0..64).map(|n| (round * 64 + n) * 997 % count);
            some().for_each(|id| _ = now.remove(&SegmentId::new(id)));
            for n in 0..64 {
                now.extend([said(count + round * 64 + n, 0)]);
                if round > 0 {
                    now.extend([said(count + (round - 1) * 64 + n, 131_000)]);
                }
            }
            most = most.max(write(&mut pages, &now, &mut number));
        }
        assert!(most <= 2 * 64 + 1, "{most} pages");
        let listed = manifest_bytes(u32_of(pages.kept().count()), 64);
        println!(
            "{count} segments: {all} pages, {most} at most for 64 that go, come and are filled"
        );
        println!("{listed} bytes of manifest");
        // Overwrites all over the shard take a few blocks of each.
        now = now
            .into_iter()
            .map(|(id, was)| (id, SegmentSaid { live: was.live - was.live.min(300), ..was }))
            .collect();
        let hints = write(&mut pages, &now, &mut number);
        assert!(hints < 150, "{hints} pages for hints");
    }

    #[test]
    fn a_page_that_changed_and_is_not_written_is_missed() {
        crate::canary::misses(
            Step::ManifestChanges,
            " for ",
            what_is_written_follows_what_changed_and_not_what_there_is,
        );
    }

    #[test]
    fn a_count_that_is_too_low_or_comes_to_nothing_is_written() {
        let [was, fewer, much_fewer, none, more] =
            [1000, 990, 100, 0, 1001].map(|live| said(1, live).1);
        assert!(was.stands_for(&was) && was.stands_for(&fewer));
        assert!(![much_fewer, none, more].iter().any(|now| was.stands_for(now)));
        assert!(was.stands_for(&was.exactly()) && !was.stands_for(&fewer.exactly()));
        let metadata = |live| SegmentSaid::new(&info(1, Stream::Metadata), live, None, None);
        assert!(metadata(10).stands_for(&metadata(10)) && !metadata(10).stands_for(&metadata(9)));
    }

    /// Segments come, change and go for a long time, checkpoints fail now and then, and segments of metadata are emptied.
    #[test]
    fn pages_are_no_more_than_twice_what_there_is_for_ever() {
        let (mut pages, mut number) = (Shard::default(), 0);
        let (mut now, mut next) = (BTreeMap::new(), 0);
        let mut prng = Prng::new(3);
        for round in 0..400_u64 {
            let grows = round / 50 % 2 == 0;
            for _ in 0..prng.below(if grows { 200 } else { 20 }) {
                now.extend([said(next, 0)]);
                next += 1;
            }
            let ids: Vec<SegmentId> = now.keys().copied().collect();
            for id in ids {
                let goes = prng.below(if grows { 100 } else { 10 }) == 0;
                if goes {
                    now.remove(&id);
                } else if prng.below(40) == 0 {
                    let stream = if prng.below(8) == 0 { Stream::Metadata } else { Stream::User };
                    let live = u32::try_from(prng.below(9000)).unwrap();
                    let info = info(id.get(), stream);
                    now.insert(id, SegmentSaid::new(&info, live, None, Some(2)));
                }
            }
            if prng.below(4) == 0 {
                // What was to be written never was.
                pages.update(&now.iter().map(|(id, said)| (*id, *said)).collect::<Vec<_>>());
            }
            write(&mut pages, &now, &mut number);
            if prng.below(5) == 0 {
                let before: BTreeSet<_> = pages.blocks().map(|at| at.crc).collect();
                assert!(pages.leave(|id| id == SegmentId::new(1)));
                assert_eq!(pages.kept().count(), 0);
                write(&mut pages, &now, &mut number);
                assert!(pages.blocks().all(|at| !before.contains(&at.crc)), "all have left");
            }
        }
        assert!(next > 10_000);
    }
}
