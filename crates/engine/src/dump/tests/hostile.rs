//! Arbitrary damage, and structures that carry their checksums and make no sense: a dump says so
//! and never panics.

use super::*;
use crate::address::Entry;
use crate::format::manifest::{Paged, Read, SegmentRecord};
use crate::format::root::{RawEntry, Root};
use crate::format::seal;
use stdx::crc32c;
use zerocopy::{FromBytes, IntoBytes};

/// What was where something else was put.
struct Undo {
    drive: usize,
    offset: u64,
    bytes: Vec<u8>,
}

/// Puts bytes on a drive, and takes note of those that were there.
fn put(media: &Media, undo: &mut Vec<Undo>, drive: usize, offset: u64, bytes: &[u8]) {
    let mut before = vec![0; bytes.len()];
    media.drives[drive].peek(offset, &mut before);
    media.drives[drive].poke(offset, bytes);
    undo.push(Undo { drive, offset, bytes: before });
}

fn take_back(media: &Media, undo: Vec<Undo>) {
    undo.into_iter().rev().for_each(|u| media.drives[u.drive].poke(u.offset, &u.bytes));
}

/// A pool that crashed in the middle of work, so that there is something of everything.
fn crashed() -> Media {
    let media = Media::new(4, 0);
    let made = media.clone();
    reactor::simulate(11, async move {
        let pool = made.create(raid::Scheme::Raid5).await;
        scribble(&volume(&pool, "db", 8 * MIB).await, 900, 1).await;
        pool.close().await.unwrap();
        let pool = made.open().await;
        scribble(&pool.volume("db").unwrap(), 400, 2).await;
    });
    media
}

#[test]
fn noise_anywhere_is_survived() {
    let media = crashed();
    reactor::simulate(12, async move {
        let mut prng = Prng::new(3);
        let ends = [64 << 10, MIB, 3 * MIB, 7 * MIB, 8 * MIB, 40 * MIB];
        for case in 0..80 {
            let mut undo = Vec::new();
            for _ in 0..1 + prng.below(40) {
                let drive = usize64(prng.below(4));
                let end = ends[usize64(prng.below(6))];
                let mut noise = vec![0; 1 + usize64(prng.below(200))];
                if prng.below(3) > 0 {
                    prng.fill(&mut noise);
                }
                let offset = prng.below(end - 4096);
                put(&media, &mut undo, drive, offset, &noise);
            }
            media.dump(case % 4 == 0).await;
            take_back(&media, undo);
        }
        whole(&media.dump(true).await);
    });
}

/// Changes a few bytes, small numbers rather than large ones, all of them after the first 16.
fn scramble(prng: &mut Prng, bytes: &mut [u8], most: u64) {
    for _ in 0..1 + prng.below(most) {
        let at = 16 + usize64(prng.below(bytes.len() as u64 - 16));
        bytes[at] = match prng.below(4) {
            0 => 0,
            1 => 0xff,
            2 => bytes[at].wrapping_add(1),
            _ => stdx::num::low8(prng.below(256)),
        };
    }
}

/// Labels, roots, catalogs and headers of units that carry right checksums over wrong fields.
#[test]
fn sealed_nonsense_at_fixed_places_is_survived() {
    let media = crashed();
    reactor::simulate(13, async move {
        let mut prng = Prng::new(5);
        let root = crate::area::root_at(0, 0);
        for case in 0..120 {
            let (at, len, magic) = match case % 4 {
                0 => (0, 300, *b"FLASHLBL"),
                1 => (root, 400, *b"FLASHROO"),
                2 => (crate::format::area::CATALOG, 160, *b"FLASHCAT"),
                _ => (7 * MIB, 200, *b"FLASHAUH"),
            };
            let second = match case % 4 {
                2 => crate::format::catalog::CatalogArea::LEAST.half_at(1),
                _ => at + BLOCK as u64,
            };
            let mut undo = Vec::new();
            for slot in [at, second] {
                let mut block = vec![0; BLOCK];
                media.drives[0].peek(slot, &mut block);
                scramble(&mut prng, &mut block[..len], 6);
                // Newer than all others, so that it counts.
                if case % 3 == 0 {
                    block[38] = 1;
                }
                seal(&mut block, magic);
                let alike = if prng.below(2) == 0 { 1 } else { 4 };
                (0..alike).for_each(|drive| put(&media, &mut undo, drive, slot, &block));
            }
            media.dump(case % 5 == 0).await;
            take_back(&media, undo);
        }
        whole(&media.dump(false).await);
    });
}

/// The newest root of a pool's only shard, and where blocks of the segments it names are.
struct Forge<'a> {
    media: &'a Media,
    root: Root,
    geometry: raid::Geometry,
    places: Box<dyn Fn(Entry) -> (u16, u64) + 'a>,
}

impl<'a> Forge<'a> {
    async fn new(media: &'a Media, spec: &'a Spec) -> Self {
        let mut quiet = |_| {};
        let mut report = Report::default();
        let found = drives::find(spec, &mut report).await.unwrap();
        let Ok(look) = found.look(spec, report, &mut quiet) else { panic!("a label") };
        let root = drives::root(&look, 0).await.unwrap();
        let found = checkpoint::find(&look, 0, &mut checkpoint::Units::default()).await.unwrap();
        let (set, geometry) = (Arc::clone(&look.set), look.geometry);
        let places = move |at: Entry| {
            let info = &found.table[&at.location.segment()].info;
            let place = info.geometry.place(at.location.slot());
            let member = info.member(place.stripe, stdx::num::usize32(place.unit));
            let block = info.geometry.member_block(place.stripe, place.block);
            (member.drive, set.offset(member.drive, member.au, block))
        };
        Self { media, root, geometry, places: Box::new(places) }
    }

    fn peek(&self, at: Entry) -> Vec<u8> {
        let (drive, offset) = (self.places)(at);
        let mut block = vec![0; BLOCK];
        self.media.drives[usize::from(drive)].peek(offset, &mut block);
        assert_eq!(crc32c(&block), at.crc);
        block
    }

    /// Puts other contents at a block; gives what refers to them.
    fn put(&self, undo: &mut Vec<Undo>, at: Entry, block: &[u8]) -> Entry {
        let (drive, offset) = (self.places)(at);
        put(self.media, undo, usize::from(drive), offset, block);
        Entry { crc: crc32c(block), ..at }
    }

    fn entries(&self) -> Vec<Entry> {
        let index = self.root.index.iter().flat_map(|at| {
            let block = self.peek(*at);
            let raw = block.chunks_exact(size_of::<RawEntry>());
            raw.map(|raw| RawEntry::read_from_bytes(raw).unwrap().entry().unwrap())
                .collect::<Vec<_>>()
        });
        index.take(usize64(self.root.bytes).div_ceil(BLOCK)).collect()
    }

    fn manifest(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.entries().iter().flat_map(|at| self.peek(*at)).collect();
        bytes.truncate(usize64(self.root.bytes));
        bytes
    }

    fn listed(&self, manifest: &[u8]) -> Paged {
        let read = Read::from_bytes(manifest, self.root.pool, 0, self.geometry);
        let Ok(Read::Paged(paged)) = read else { panic!("it lists pages") };
        paged
    }

    /// The manifest with another page in the place of one.
    fn with_page(
        &self,
        undo: &mut Vec<Undo>,
        listed: &Paged,
        which: usize,
        mut page: Vec<u8>,
    ) -> Vec<u8> {
        seal(&mut page, *b"FLASHMPG");
        let mut listed = listed.clone();
        listed.pages[which] = self.put(undo, listed.pages[which], &page);
        listed.to_bytes(self.root.pool, self.geometry.width())
    }

    /// Puts another manifest of the same length in its place, so that all refers to it rightly.
    fn replace(&self, undo: &mut Vec<Undo>, manifest: &[u8]) {
        let mut padded = manifest.to_vec();
        padded.resize(manifest.len().next_multiple_of(BLOCK), 0);
        let blocks = self.entries().into_iter().zip(padded.chunks_exact(BLOCK));
        let entries: Vec<Entry> = blocks.map(|(at, block)| self.put(undo, at, block)).collect();
        let mut root = self.root.clone();
        for (index, entries) in root.index.iter_mut().zip(entries.chunks(341)) {
            let raw: Vec<RawEntry> = entries.iter().map(|e| RawEntry::from(*e)).collect();
            let mut block = raw.as_bytes().to_vec();
            block.resize(BLOCK, 0);
            *index = self.put(undo, *index, &block);
        }
        let at = crate::area::root_at(0, root.generation % 2);
        (0..4).for_each(|drive| put(self.media, undo, drive, at, &root.to_block()[..]));
    }
}

/// Manifests, their pages, the map's part of them and index pages that carry right checksums over wrong fields.
#[test]
fn sealed_nonsense_behind_the_root_is_survived() {
    let media = crashed();
    reactor::simulate(14, async move {
        let spec = media.spec(false);
        let forge = Forge::new(&media, &spec).await;
        let good = forge.manifest();
        let map_bytes = u64::from_le_bytes(good[64..72].try_into().unwrap());
        let map_at = good.len() - usize64(map_bytes);
        assert_eq!(&good[map_at..map_at + 8], b"FLmapset");
        let listed = forge.listed(&good);
        let kind = |n: u8| listed.pages.iter().position(|at| forge.peek(*at)[32] == n).unwrap();
        let (segments, tables) = (kind(1), kind(2));
        let mut prng = Prng::new(8);
        let mut undo = Vec::new();
        forge.replace(&mut undo, &good);
        whole(&media.dump(false).await);
        for case in 0..150 {
            let (mut undo, mut bytes) = (Vec::new(), good.clone());
            match case % 5 {
                0 => scramble(&mut prng, &mut bytes[..map_at], 4),
                1 => {
                    scramble(&mut prng, &mut bytes[map_at..], 4);
                    seal(&mut bytes[map_at..], *b"FLmapset");
                }
                2 => {
                    // The index page of the first table.
                    let mut page = forge.peek(listed.pages[tables]);
                    let record = 40;
                    let field =
                        |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().unwrap());
                    let location = crate::address::Location::from_bits(field(record + 40)).unwrap();
                    let crc = stdx::num::low32(field(record + 64));
                    let mut index = forge.peek(Entry { location, crc });
                    scramble(&mut prng, &mut index[..400], 3);
                    let at = forge.put(&mut undo, Entry { location, crc }, &index);
                    page[record + 64..record + 68].copy_from_slice(&at.crc.to_le_bytes());
                    bytes = forge.with_page(&mut undo, &listed, tables, page);
                }
                other => {
                    let which = if other == 3 { segments } else { tables };
                    let mut page = forge.peek(listed.pages[which]);
                    scramble(&mut prng, &mut page[..600], 4);
                    bytes = forge.with_page(&mut undo, &listed, which, page);
                }
            }
            seal(&mut bytes, *b"FLASHMAN");
            forge.replace(&mut undo, &bytes);
            media.dump(case % 7 == 0).await;
            take_back(&media, undo);
        }
        whole(&media.dump(true).await);
    });
}

/// A record that was missing from a page was missed by nobody: what lies in its segment was given to another.
#[test]
fn a_manifest_whose_pages_lack_a_segment_is_refused() {
    let media = crashed();
    reactor::simulate(15, async move {
        let spec = media.spec(false);
        let forge = Forge::new(&media, &spec).await;
        let listed = forge.listed(&forge.manifest());
        let which = listed.pages.iter().position(|at| forge.peek(*at)[32] == 1).unwrap();
        let mut page = forge.peek(listed.pages[which]);
        let each = u32::try_from(SegmentRecord::len(forge.geometry.width())).unwrap();
        let records = u16::from_le_bytes([page[34], page[35]]) - 1;
        page[34..36].copy_from_slice(&records.to_le_bytes());
        page[36..40].copy_from_slice(&(u32::from(records) * each).to_le_bytes());
        let mut undo = Vec::new();
        let bytes = forge.with_page(&mut undo, &listed, which, page);
        forge.replace(&mut undo, &bytes);
        let told = format!("{:?}", media.dump(false).await);
        assert!(told.contains("field out of range: segments"), "{told}");
        take_back(&media, undo);
        whole(&media.dump(true).await);
    });
}
