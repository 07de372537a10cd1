//! One record damaged between its acknowledgement and recovery: nothing else is lost with it.

use super::model::{BLOCKS, Op};
use super::*;
use crate::address::Location;
use crate::error::Kind as ErrorKind;
use crate::log::limits::CONTROL_BYTES;
use crate::log::record::{HEADER, list_bytes};
use media::drive::{Simulated, SimulatedOptions};
use reactor::simulate;
use stdx::Prng;

/// A medium of one log, and a way to its bytes past the log.
enum Medium {
    Memory(Arc<SimulatedPmem>),
    Drive(Arc<Simulated>),
}

impl Medium {
    fn new(seed: u64) -> Self {
        if seed.is_multiple_of(2) {
            return Self::Memory(Arc::new(SimulatedPmem::new(BYTES)));
        }
        let options = SimulatedOptions { capacity: 8 << 20, seed, ..SimulatedOptions::default() };
        Self::Drive(Simulated::new(options))
    }

    fn device(&self) -> Device {
        match self {
            Self::Memory(pmem) => {
                let pmem = Arc::new(Pmem::Simulated(Arc::clone(pmem)));
                Device::Memory(vec![Area { pmem, offset: 0 }])
            }
            Self::Drive(drive) => {
                let drive = Arc::new(Drive::Simulated(Arc::clone(drive)));
                Device::Drives(vec![Zone::new(drive, 0)])
            }
        }
    }

    /// Damages a byte of the ring.
    fn damage(&self, at: u64, prng: &mut Prng) {
        match self {
            Self::Memory(pmem) => pmem.rot(CONTROL_BYTES + at),
            Self::Drive(drive) if prng.below(2) == 0 => drive.damage(CONTROL_BYTES + at, 1),
            Self::Drive(drive) => drive.flip(CONTROL_BYTES + at, low32(prng.below(8))),
        }
    }
}

/// What is known of a block: its contents, a hole, or that it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Tag(u64),
    Hole,
    Lost,
}

fn see(log: &Log) -> BTreeMap<u64, Seen> {
    let mut seen = BTreeMap::new();
    for at in 0..BLOCKS {
        let what = match log.lookup(key(1, at), 1).0 {
            Found::Data(data) => {
                let mut out = vec![0; BLOCK];
                match log.copy_out(data, &mut out) {
                    Ok(()) => {
                        let tag = u64::from_le_bytes(out[..8].try_into().unwrap());
                        assert_eq!(out, block(tag));
                        Seen::Tag(tag)
                    }
                    Err(error) => {
                        assert_eq!(error.kind, ErrorKind::Corrupt);
                        Seen::Lost
                    }
                }
            }
            Found::Hole => Seen::Hole,
            Found::Lost => Seen::Lost,
            Found::Nothing | Found::Refers { .. } => continue,
        };
        seen.insert(at, what);
    }
    seen
}

fn apply(op: &Op, to: &mut BTreeMap<u64, Seen>) {
    match op {
        Op::Write { key, tags } => {
            to.extend((key.block..).zip(tags.iter().map(|tag| Seen::Tag(*tag))));
        }
        Op::Hole { key, count } => {
            to.extend((key.block..key.block + count).map(|n| (n, Seen::Hole)));
        }
    }
}

/// Which part of a record is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Header,
    List,
    /// So many bytes into its contents.
    Block(u64),
}

async fn damaged_story(seed: u64) {
    let mut prng = Prng::new(seed);
    let medium = Medium::new(seed);
    let log = Log::create(medium.device(), BYTES, RING).await.unwrap();
    let (mut tag, mut ops, mut places) = (1, Vec::new(), Vec::new());
    for _ in 0..3 + prng.below(20) {
        let op = Op::random(1, &mut tag, &mut prng);
        let sequence = op.append(&log).await.unwrap();
        let ring = log.shared.ring.borrow();
        let mark = ring.mark_after(sequence - 1, &log.shared.store).unwrap();
        places.push(ring.at(mark.position));
        ops.push(op);
    }
    // On drives the last commit's padding is what knows of the record before it only.
    let hit = usize64(prng.below(u64_of(ops.len() - 1)));
    let blocks = if let Op::Write { tags, .. } = &ops[hit] { tags.len() } else { 0 };
    let part = match (blocks, prng.below(3)) {
        (0, _) | (_, 0) => Part::Header,
        (2.., 1) => Part::List,
        _ => Part::Block(prng.below(u64_of(blocks * BLOCK))),
    };
    log.close().await;
    drop(log);
    let list = list_bytes(blocks);
    let at = match part {
        Part::Header => prng.below(u64_of(HEADER)),
        Part::List => u64_of(HEADER) + prng.below(list),
        Part::Block(at) => u64_of(HEADER) + list + at,
    };
    medium.damage(places[hit] + at, &mut prng);
    let story = format!("seed {seed}: {part:?} of record of {:?}", ops[hit]);

    let strict = Log::open(medium.device(), BYTES, RING).await;
    let log = match strict {
        Ok((log, opened)) => {
            let mut expected = BTreeMap::new();
            ops.iter().for_each(|op| apply(op, &mut expected));
            let seen = see(&log);
            let lost = seen.values().filter(|seen| **seen == Seen::Lost).count();
            assert_eq!(opened.lost_blocks, u64_of(lost), "{story}");
            for (at, seen) in &seen {
                let Op::Write { key, tags } = &ops[hit] else { panic!("{story}: {seen:?}") };
                let of_hit = (key.block..key.block + u64_of(tags.len())).contains(at);
                let is_right = expected.get(at) == Some(seen);
                assert!(is_right || (of_hit && *seen == Seen::Lost), "{story}, block {at}");
            }
            assert_eq!(seen.len(), expected.len(), "{story}");
            log
        }
        Err(error) => {
            // A sector takes what else it has with it.
            assert_eq!(error.kind, ErrorKind::Loss, "{story}: {error}");
            let (log, _) = open_accepting(medium.device(), None).await.unwrap();
            let mut expected = BTreeMap::new();
            let others = ops.iter().enumerate().filter(|(n, _)| *n != hit);
            others.for_each(|(_, op)| apply(op, &mut expected));
            let seen = see(&log);
            let near = places.iter().filter(|p| **p / 512 == (places[hit] + at) / 512).count();
            if near == 1 {
                assert_eq!(seen, expected, "{story}");
            }
            log
        }
    };
    goes_on(log, &medium, tag, &mut prng, &story).await;
}

/// It takes more, and what was lost stays so, or is healed, with the next opening.
async fn goes_on(log: Log, medium: &Medium, mut tag: u64, prng: &mut Prng, story: &str) {
    let before = see(&log);
    let op = Op::random(1, &mut tag, prng);
    op.append(&log).await.unwrap();
    let mut expected = before;
    apply(&op, &mut expected);
    assert_eq!(see(&log), expected, "{story}");
    log.close().await;
    let (log, _) = Log::open(medium.device(), BYTES, RING).await.unwrap();
    assert_eq!(see(&log), expected, "{story}, once more");
    let mut items = Vec::new();
    log.next_batch(1 << 16, &mut items).unwrap();
    for (n, item) in items.iter().enumerate() {
        let lost = expected.get(&item.key.block) == Some(&Seen::Lost);
        assert!(!lost || log.run_of(&items[n..]) == 1, "{story}, {item:?}");
        if let What::Data(_) | What::Lost = item.what {
            assert_eq!(log.was_lost(item).unwrap(), lost, "{story}, {item:?}");
        }
    }
}

#[test]
fn a_damaged_record_takes_nothing_else_with_it() {
    for seed in 0..400 {
        simulate(seed, damaged_story(seed));
    }
}

fn places(device: &Device) -> Vec<Place> {
    match device {
        Device::Memory(areas) => areas.iter().cloned().map(Place::Memory).collect(),
        Device::Drives(zones) => zones.iter().cloned().map(Place::Zone).collect(),
        Device::Both(places) => places.clone(),
    }
}

/// Damages both control slots on every device.
async fn damage_control(device: &Device) {
    for at in [0, PAGE] {
        for place in places(device) {
            match place {
                Place::Memory(area) => {
                    area.pmem.write(area.offset + at, &[0xA5; 64]).unwrap();
                    area.pmem.fence();
                }
                Place::Zone(zone) => {
                    let mut page = reactor::buffer::alloc(usize64(PAGE)).await;
                    page.fill(0xA5);
                    zone.drive.write(zone.offset + at, page, true).await.unwrap();
                }
            }
        }
    }
}

/// The first place of a log alone.
fn first_of(device: &Device) -> Device {
    match device {
        Device::Memory(areas) => Device::Memory(areas[..1].to_vec()),
        Device::Drives(zones) => Device::Drives(zones[..1].to_vec()),
        Device::Both(places) => Device::Both(places[..1].to_vec()),
    }
}

/// Makes a control block anew.
async fn rebuild(device: &Device, rebuilt: Rebuilt) -> Result<()> {
    let (log, _) = open_accepting(device.clone(), Some(rebuilt)).await?;
    log.close().await;
    Ok(())
}

const fn rebuilt(durable_stripe: u64, epoch: u64) -> Rebuilt {
    Rebuilt { durable_stripe, epoch }
}

async fn refused(device: &Device) -> ErrorKind {
    let Err(error) = Log::open(device.clone(), BYTES, RING).await else { panic!("opened") };
    error.kind
}

#[test]
fn a_lost_control_block_is_made_anew_by_the_records_there_are() {
    on_each(|device| async move {
        let log = Log::create(device.clone(), BYTES, RING).await.unwrap();
        write(&log, key(1, 0), 0..9).await;
        let through = log.next_batch(256, &mut Vec::new()).unwrap();
        write(&log, key(1, 4), 100..101).await;
        log.trim(through, 3).await.unwrap();
        log.append(Append::Hole { key: key(1, 7), count: 1 }).await.unwrap();
        log.close().await;
        drop(log);
        // With another opening's records behind the first one's.
        let (log, _) = Log::open(device.clone(), BYTES, RING).await.unwrap();
        write(&log, key(1, 5), 200..201).await;
        log.close().await;
        drop(log);
        assert!(!Log::lacks_control(device.clone(), BYTES, RING).await.unwrap());
        damage_control(&device).await;
        assert_eq!(refused(&device).await, ErrorKind::Loss);
        assert!(Log::lacks_control(device.clone(), BYTES, RING).await.unwrap());
        rebuild(&device, rebuilt(7, 1)).await.unwrap();
        for _ in 0..2 {
            let (log, opened) = Log::open(device.clone(), BYTES, RING).await.unwrap();
            assert_eq!((opened.durable_stripe, opened.lost_blocks), (7, 0));
            // What was trimmed is there again, and nothing newer behind it.
            let tags: Vec<_> = (0..10).map(|n| tag(&log, key(1, n))).collect();
            let written = [Some(0), Some(1), Some(2), Some(3), Some(100), Some(200), Some(6)];
            assert_eq!(tags, [&written[..], &[None, Some(8), None]].concat());
            assert_eq!(log.lookup(key(1, 7), 1).0, Found::Hole);
            log.close().await;
        }
    });
}

#[test]
fn a_log_made_anew_begins_after_the_last_references() {
    on_each(|device| async move {
        let log = Log::create(device.clone(), BYTES, RING).await.unwrap();
        write(&log, key(1, 0), 0..2).await;
        let location = Location::new(crate::address::SegmentId::new(3), 5);
        let entries = [crate::address::Stored::plain(location, 1)];
        let (to, source) = (key(1, 9), key(1, 8));
        log.append(Append::Refer { key: to, source, entries: &entries }).await.unwrap();
        log.close().await;
        drop(log);
        for (written, epoch) in [(None, 1), (Some(50), 2)] {
            damage_control(&device).await;
            rebuild(&device, rebuilt(0, epoch)).await.unwrap();
            let (log, _) = Log::open(device.clone(), BYTES, RING).await.unwrap();
            let tags: Vec<_> = [0, 1, 9].map(|n| tag(&log, key(1, n))).into();
            assert_eq!(tags, [written, None, None]);
            write(&log, key(1, 0), 50..51).await;
            log.close().await;
        }
    });
}

/// The block made anew the second time once had the generation of the first, and the mirror that was
/// away had gone on counting from there.
#[test]
fn a_control_block_made_anew_twice_holds_against_a_mirror_that_was_away() {
    on_each(|device| async move {
        let log = Log::create(device.clone(), BYTES, RING).await.unwrap();
        write(&log, key(1, 0), 0..2).await;
        log.close().await;
        drop(log);
        damage_control(&device).await;
        rebuild(&device, rebuilt(0, 5)).await.unwrap();
        let (log, _) = Log::open(device.clone(), BYTES, RING).await.unwrap();
        for stripe in 1..9 {
            write(&log, key(1, 1), 10..11).await;
            let through = log.next_batch(256, &mut Vec::new()).unwrap();
            log.trim(through, stripe).await.unwrap();
        }
        write(&log, key(1, 2), 20..21).await;
        log.close().await;
        drop(log);
        let (first, both) = (first_of(&device), device);
        damage_control(&first).await;
        rebuild(&first, rebuilt(8, 6)).await.unwrap();
        let (log, _) = Log::open(first, BYTES, RING).await.unwrap();
        write(&log, key(1, 3), 30..31).await;
        let through = log.next_batch(256, &mut Vec::new()).unwrap();
        log.trim(through, 9).await.unwrap();
        write(&log, key(1, 4), 40..41).await;
        log.close().await;
        drop(log);
        let (log, opened) = Log::open(both, BYTES, RING).await.unwrap();
        assert_eq!(opened.durable_stripe, 9);
        assert_eq!([2, 3, 4].map(|n| tag(&log, key(1, n))), [None, None, Some(40)]);
        log.close().await;
    });
}

#[test]
fn a_device_without_records_is_not_taken_for_a_log() {
    on_each(|device| async move {
        damage_control(&device).await;
        assert_eq!(refused(&device).await, ErrorKind::Missing);
        assert!(!Log::lacks_control(device.clone(), BYTES, RING).await.unwrap());
        let rebuilt = rebuild(&device, rebuilt(7, 1)).await;
        assert_eq!(rebuilt.unwrap_err().kind, ErrorKind::Missing);
        let log = Log::create(device.clone(), BYTES, RING + 1).await.unwrap();
        write(&log, key(1, 0), 0..9).await;
        log.close().await;
        drop(log);
        damage_control(&device).await;
        assert_eq!(refused(&device).await, ErrorKind::Missing);
    });
}

/// That the log of a pool was lost was called a failure of its drive, which nobody can accept.
#[test]
fn a_slot_that_cannot_be_read_does_not_hide_that_there_is_no_log() {
    for slot in 0..2 {
        simulate(slot, async move {
            let options = SimulatedOptions { capacity: 8 << 20, ..SimulatedOptions::default() };
            let drive = Simulated::new(options);
            drive.damage(slot * CONTROL_BYTES / 2, 1);
            let drive = Arc::new(Drive::Simulated(drive));
            let device = Device::Drives(vec![Zone::new(drive, 0)]);
            assert_eq!(refused(&device).await, ErrorKind::Missing);
        });
    }
}
