//! A commit log whose records and a map whose pages are damaged in ways that checksums do not tell.

use engine::address::{
    BLOCK, Encoding, Entry, Key, Location, SegmentId, SharedBlockId, Stored, Version, View,
};
use engine::log::{Append, Area, Device, LOG_BYTES_MIN, Log, What};
use engine::map::{Extents, Map, MapLimits, Pages};
use media::{Pmem, SimulatedPmem};
use std::cell::RefCell;
use std::sync::Arc;
use stdx::crc32c;

/// What a target does with an input.
pub type Target = fn(&[u8]);

/// Every target by the name of its file in `fuzz_targets` and its folder in `corpus`.
pub const TARGETS: &[(&str, Target)] = &[("log_records", log_records), ("map_pages", map_pages)];

const LANE: u64 = 0x0102_0304_0506_0708;
/// Control slots and the part of the ring that is in use.
const USED: usize = 128 * 1024;
const LINE: usize = 64;

fn key(block: u64) -> Key {
    Key::new(View::new(1), block)
}

/// Records of every kind, some of several blocks.
async fn append_some(log: &Log) -> engine::Result<()> {
    for n in 0..9_u8 {
        let data = vec![n; BLOCK * (1 + usize::from(n % 3))];
        log.append(Append::Write { key: key(u64::from(n) * 2), data: &[&data] }).await?;
        log.append(Append::Hole { key: key(u64::from(n)), count: 3 }).await?;
        let at = Location::new(SegmentId::new(3), u32::from(n) + 1);
        let entries =
            [at, SharedBlockId::of(at).reference()].map(|location| Stored::plain(location, 7));
        log.append(Append::Refer { key: key(40), source: key(80), entries: &entries }).await?;
    }
    Ok(())
}

/// Reads all that a log says it has, has it forget that, and opens it again.
async fn use_log(device: &Device, accept: bool) -> Result<(), engine::Kind> {
    let looked = Log::look(device.clone(), LOG_BYTES_MIN, LANE, accept, None).await;
    let looked = looked.map_err(|error| error.kind)?;
    let opened = looked.opened();
    let log = looked.begin().await.map_err(|error| error.kind)?;
    let mut items = Vec::new();
    let mut block = vec![0; BLOCK];
    // What is damaged while it is in use ends the log with an error.
    let mut through = 0;
    while let Ok(next) = log.next_batch(256, &mut items) {
        if next == through || items.len() > 1 << 16 {
            break;
        }
        through = next;
    }
    for item in &items {
        let _ = log.was_lost(item);
        if let What::Data(data) = item.what {
            let _ = log.copy_out(data, &mut block);
        }
    }
    for at in 0..100 {
        let _ = log.lookup(key(at), 10);
    }
    let _ = log.append(Append::Write { key: key(5), data: &[&block] }).await;
    if through > opened.trimmed {
        let _ = log.trim(through, opened.durable_stripe).await;
    }
    log.close().await;
    drop(log);
    // What could be opened once can be again.
    match Log::open(device.clone(), LOG_BYTES_MIN, LANE).await {
        Ok(_) => Ok(()),
        Err(error) => panic!("not a second time: {error}"),
    }
}

/// Four bytes each: a line of the log (12 bits; the highest bit puts the record's checksum right
/// afterwards, the next the control slot's), a byte in it, and what it becomes.
pub fn log_records(input: &[u8]) {
    let input = input.to_vec();
    reactor::simulate(1, async move {
        let memory = Arc::new(Pmem::Simulated(Arc::new(SimulatedPmem::new(LOG_BYTES_MIN))));
        let device = Device::Memory(vec![Area { pmem: Arc::clone(&memory), offset: 0 }]);
        let log = Log::create(device.clone(), LOG_BYTES_MIN, LANE).await.expect("a new log");
        append_some(&log).await.expect("room");
        log.close().await;
        drop(log);
        for [low, high, at, value] in input.as_chunks::<4>().0.iter().take(64) {
            let line = usize::from(u16::from_le_bytes([*low, high & 0xF])) % (USED / LINE) * LINE;
            let from = u64::try_from(line).expect("within the log");
            let mut bytes = [0; 2 * LINE];
            memory.read(from, &mut bytes).expect("within the log");
            let is_control = high & 0x40 != 0;
            bytes[usize::from(*at) % if is_control { 2 * LINE } else { LINE }] = *value;
            if high & 0x80 != 0 {
                let crc = crc32c(&bytes[8..LINE]).to_le_bytes();
                bytes[4..8].copy_from_slice(&crc);
            }
            if is_control {
                bytes[8..12].fill(0);
                let crc = crc32c(&bytes).to_le_bytes();
                bytes[8..12].copy_from_slice(&crc);
            }
            memory.write(from, &bytes).expect("within the log");
        }
        if use_log(&device, false).await == Err(engine::Kind::Loss) {
            let _ = use_log(&device, true).await;
        }
    });
}

/// A map's pages in memory, given out whatever their checksums are.
struct Held(RefCell<Vec<[u8; BLOCK]>>);

/// Slots of the one segment the pages lie in.
const SEGMENT: SegmentId = SegmentId::new(9);

impl Pages for &Held {
    async fn read(&self, first: Location, _: &[u32], out: &mut [u8]) -> engine::Result<()> {
        let pages = self.0.borrow();
        for (block, at) in out.chunks_exact_mut(BLOCK).zip(first.slot()..) {
            let page = pages.get(at as usize).filter(|_| first.segment() == SEGMENT);
            let lost = || engine::Error::new(engine::Kind::Corrupt, "no such page");
            block.copy_from_slice(page.ok_or_else(lost)?);
        }
        Ok(())
    }

    async fn append(&self, page: &[u8; BLOCK]) -> engine::Result<Entry> {
        let mut pages = self.0.borrow_mut();
        if pages.len() >= 4096 {
            return Err(engine::Error::new(engine::Kind::Full, "enough pages"));
        }
        let slot = u32::try_from(pages.len()).expect("few");
        pages.push(*page);
        Ok(Entry { location: Location::new(SEGMENT, slot), crc: crc32c(page) })
    }

    fn superseded(&self, _: Location, _: Encoding, _: u32) {}

    fn is_needed(&self, _: View, _: Version, _: Version) -> bool {
        true
    }

    fn seen(&self, _: View, out: &mut Vec<Version>) {
        out.extend((0..64).filter_map(Version::new));
    }

    fn seen_changes(&self) -> u64 {
        0
    }

    fn keeps_holes(&self, _: View) -> bool {
        true
    }
}

/// Five bytes each: a page (255 for the manifest, whose checksum is put right), two for a place in it,
/// what is there becomes the exclusive or with the fourth, and the fifth after it.
pub fn map_pages(input: &[u8]) {
    let input = input.to_vec();
    reactor::simulate(1, async move {
        let held = Held(RefCell::default());
        let limits = MapLimits::for_memory(4 << 20);
        let map = Map::new(&held, limits);
        for n in 0..400_u32 {
            map.reserve(2).await.expect("room");
            let at = Location::new(SegmentId::new(n % 5), n);
            let since = Version::new(n / 100).expect("few");
            map.insert(key(u64::from(n) * 7 % 300), since, at, Encoding::PLAIN, &[n]);
            if n % 50 == 0 {
                map.insert_hole(View::new(1), since, u64::from(n), 20);
                map.flush().await.expect("room");
            }
        }
        // More versions than a leaf holds.
        for n in 4..1000_u32 {
            map.reserve(1).await.expect("room");
            let since = Version::new(n).expect("few");
            let at = Location::new(SegmentId::new(7), n);
            map.insert(key(150), since, at, Encoding::PLAIN, &[n]);
        }
        map.flush().await.expect("room");
        let mut manifest = map.manifest();
        drop(map);
        for [page, low, high, first, second] in input.as_chunks::<5>().0.iter().take(64) {
            let at = usize::from(u16::from_le_bytes([*low, *high]));
            let mut pages = held.0.borrow_mut();
            let count = pages.len();
            let bytes = match page {
                255 => &mut manifest[..],
                page => &mut pages[usize::from(*page) % count][..],
            };
            let len = bytes.len();
            bytes[at % len] ^= first;
            bytes[(at + 1) % len] ^= second;
        }
        manifest[8..12].fill(0);
        let crc = crc32c(&manifest).to_le_bytes();
        manifest[8..12].copy_from_slice(&crc);
        let Ok(map) = Map::open(&manifest, &held, limits) else { return };
        let mut extents = Extents::default();
        for first in (0..400).step_by(16) {
            for as_of in [0, 2, 700].map(Version::new).into_iter().flatten().chain([Version::LAST])
            {
                if map.lookup_as_of(View::new(1), as_of, first, 16, &mut extents).await.is_ok() {
                    assert!(extents.iter().map(|extent| extent.count).sum::<u32>() == 16);
                }
            }
        }
        let _ = map.places(|_, _, _| ()).await;
        let _ = map.scan(key(0), None, |_, _, _, _| true).await;
        for _ in 0..8 {
            if !matches!(map.maintain().await, Ok(true)) {
                break;
            }
        }
        let _ = map.prune().await;
    });
}
