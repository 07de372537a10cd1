mod crash;
mod fences;
mod loss;
mod model;
mod reserve;

use super::*;
use crate::address::{Encoding, Location, Method, SegmentId, SharedBlockId, Stored, View};
use media::memory::RegionOptions;
use media::{Drive, Pmem, SimulatedPmem};
use reactor::{Config, run, spawn, yield_now};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stdx::num::{low32, u64_of, usize64};

const BYTES: u64 = LOG_BYTES_MIN;
const RING: u64 = 0x1122_3344_5566_7788;

pub(super) fn key(view: u32, block: u64) -> Key {
    Key::new(View::new(view), block)
}

/// A block that tells what it is.
pub(super) fn block(tag: u64) -> Vec<u8> {
    let mut bytes = vec![low32(tag).to_le_bytes()[0]; BLOCK];
    bytes[..8].copy_from_slice(&tag.to_le_bytes());
    bytes
}

fn simulated() -> Device {
    let pmem = Arc::new(Pmem::Simulated(Arc::new(SimulatedPmem::new(BYTES))));
    Device::Memory(vec![Area { pmem, offset: 0 }])
}

fn drives() -> Device {
    let drive = |offset| {
        let drive = Drive::memory(16 << 20, RegionOptions::default()).unwrap();
        Zone::new(Arc::new(drive), offset)
    };
    Device::Drives(vec![drive(0), drive(1 << 20)])
}

fn both() -> Device {
    let (Device::Memory(areas), Device::Drives(zones)) = (simulated(), drives()) else {
        panic!("one of each")
    };
    let places = areas.into_iter().map(Place::Memory);
    Device::Both(places.chain(zones.into_iter().take(1).map(Place::Zone)).collect())
}

/// Runs the same story on each kind of device.
fn on_each<F: Future<Output = ()> + 'static>(story: impl Fn(Device) -> F) {
    for device in [simulated(), drives(), both()] {
        run(Config::default(), story(device)).unwrap();
    }
}

/// Opens a log that may have losses.
async fn open_accepting(device: Device, rebuilt: Option<Rebuilt>) -> Result<(Log, Opened)> {
    let looked = Log::look(device, BYTES, RING, true, rebuilt).await?;
    let opened = looked.opened();
    Ok((looked.begin().await?, opened))
}

async fn write(log: &Log, key: Key, tags: std::ops::Range<u64>) -> u64 {
    let data: Vec<u8> = tags.flat_map(block).collect();
    log.append(Append::Write { key, data: &[&data] }).await.unwrap()
}

/// The tag of what the log has of a block.
fn tag(log: &Log, key: Key) -> Option<u64> {
    let (Found::Data(data), 1) = log.lookup(key, 1) else { return None };
    let mut out = vec![0; BLOCK];
    log.copy_out(data, &mut out).unwrap();
    let tag = u64::from_le_bytes(out[..8].try_into().unwrap());
    assert_eq!(out, block(tag));
    Some(tag)
}

#[test]
fn what_was_appended_is_found_until_it_is_trimmed() {
    on_each(|device| async {
        let log = Log::create(device, BYTES, RING).await.unwrap();
        assert_eq!(write(&log, key(1, 10), 0..1).await, 1);
        write(&log, key(1, 11), 5..9).await;
        write(&log, key(1, 12), 20..21).await;
        log.append(Append::Hole { key: key(1, 14), count: 100 }).await.unwrap();
        let tags: Vec<_> = (10..15).map(|n| tag(&log, key(1, n))).collect();
        assert_eq!(tags, [Some(0), Some(5), Some(20), Some(7), None]);
        assert_eq!(log.lookup(key(1, 14), 200), (Found::Hole, 100));
        assert_eq!(log.lookup(key(1, 114), 50), (Found::Nothing, 50));
        assert_eq!(log.lookup(key(1, 0), 50), (Found::Nothing, 10));
        assert_eq!(log.lookup(key(2, 10), 7), (Found::Nothing, 7));
        let mut items = Vec::new();
        let through = log.next_batch(1000, &mut items).unwrap();
        let seen: Vec<_> = items.iter().map(|i| (i.key.block, i.what)).collect();
        assert_eq!(seen.iter().map(|s| s.0).collect::<Vec<_>>(), [10, 11, 13, 12, 14]);
        assert_eq!(seen[4].1, What::Hole { count: 100 });
        log.trim(through, 7).await.unwrap();
        assert_eq!(log.lookup(key(1, 0), 1000), (Found::Nothing, 1000));
        assert_eq!((log.fill(), log.status().indexed), (0, 0));
    });
}

/// A record is of the version that its volume was at when it was reserved, also after a crash.
#[test]
fn what_is_handed_out_says_of_which_version_it_is() {
    on_each(|device| async move {
        let log = Log::create(device.clone(), BYTES, RING).await.unwrap();
        let version = |number| Version::new(number).unwrap();
        write(&log, key(1, 1), 0..1).await;
        let mut early = log.reserve(key(1, 2), 1).await.unwrap();
        log.set_version(View::new(1), version(5));
        early.fill(&block(1)).unwrap();
        let stored = early.commit().unwrap();
        log.make_durable(stored.sequence).await.unwrap();
        write(&log, key(1, 3), 2..4).await;
        write(&log, key(2, 1), 4..5).await;
        log.append(Append::Hole { key: key(1, 9), count: 4 }).await.unwrap();
        log.set_version(View::new(1), Version::LAST);
        write(&log, key(1, 5), 5..6).await;
        log.set_version(View::new(1), Version::FIRST);
        write(&log, key(1, 6), 6..7).await;
        let wanted = [0, 0, 5, 5, 0, 5, Version::LAST.get(), 0].map(version).to_vec();
        let versions = |log: &Log| {
            let mut items = Vec::new();
            log.next_batch(1000, &mut items).unwrap();
            items.iter().map(|item| item.version).collect::<Vec<_>>()
        };
        assert_eq!(versions(&log), wanted);
        drop(log);
        let (log, _) = open_accepting(device, None).await.unwrap();
        assert_eq!(versions(&log), wanted);
    });
}

/// A snapshot sees what was there when it was taken, and what came over it is on its way to the drives as well.
#[test]
fn what_a_later_version_covers_is_handed_out_too() {
    on_each(|device| async move {
        let log = Log::create(device.clone(), BYTES, RING).await.unwrap();
        write(&log, key(1, 1), 10..15).await;
        write(&log, key(1, 1), 20..21).await;
        log.set_version(View::new(1), Version::new(1).unwrap());
        write(&log, key(1, 1), 30..32).await;
        write(&log, key(1, 2), 40..41).await;
        log.append(Append::Hole { key: key(1, 3), count: 2 }).await.unwrap();
        write(&log, key(1, 4), 50..51).await;
        // Others have no versions: what is covered there is nobody's.
        write(&log, key(2, 1), 60..61).await;
        write(&log, key(2, 1), 61..62).await;
        let seen = |log: &Log| {
            let mut items = Vec::new();
            let through = log.next_batch(1000, &mut items).unwrap();
            let tag = |item: &Item| {
                let mut out = vec![0; BLOCK];
                item.data().map(|data| {
                    log.copy_out(data, &mut out).unwrap();
                    assert_eq!(stdx::crc32c(&out), data.crc);
                    u64::from_le_bytes(out[..8].try_into().unwrap())
                })
            };
            let of = |item: &Item| (item.key.block, item.version.get(), tag(item));
            (through, items.iter().map(of).collect::<Vec<_>>())
        };
        let old = [(2, 11), (3, 12), (4, 13), (5, 14), (1, 20)];
        let old = old.map(|(block, tag)| (block, 0, Some(tag)));
        let new = [(1, 1, Some(30)), (2, 1, Some(40)), (3, 1, None), (4, 1, Some(50))];
        // Blocks 1 to 5 of the first record: what its own version had again is not handed out.
        let wanted: Vec<_> = [(1, 0, Some(10))]
            .into_iter()
            .chain(old)
            .chain(new)
            .chain([(1, 0, Some(61))])
            .collect();
        drop(seen(&log));
        drop(log);
        let (log, _) = open_accepting(device, None).await.unwrap();
        let (through, found) = seen(&log);
        assert_eq!(found, wanted);
        log.trim(through, 1).await.unwrap();
        write(&log, key(1, 1), 70..71).await;
        assert_eq!(seen(&log).1, [(1, 0, Some(70))], "whoever opened it has not told of a version");
    });
}

/// A block that had been a hole before it was written read as zeroes for a moment: while the log forgot many records,
/// what it had of the data went first, and the hole last.
#[test]
fn the_older_of_two_records_is_not_found_while_the_newer_is_forgotten() {
    // Memory has room for so many records.
    run(Config::default(), async {
        let log = Rc::new(Log::create(simulated(), BYTES, RING).await.unwrap());
        let hole = |key| log.append(Append::Hole { key, count: 1 });
        hole(key(1, 1)).await.unwrap();
        write(&log, key(1, 1), 7..8).await;
        write(&log, key(1, 5), 8..9).await;
        hole(key(1, 5)).await.unwrap();
        // So many that they are forgotten in several turns.
        for n in 0..u64_of(2 * limits::TRIM_STEP) {
            hole(key(2, 2 * n)).await.unwrap();
        }
        let mut items = Vec::new();
        let through = log.next_batch(usize::MAX, &mut items).unwrap();
        assert_eq!(items.len(), 2 * limits::TRIM_STEP + 3);
        let trimmed = Rc::new(std::cell::Cell::new(false));
        let trim = spawn({
            let (log, trimmed) = (Rc::clone(&log), Rc::clone(&trimmed));
            async move {
                log.trim(through, 0).await.unwrap();
                trimmed.set(true);
            }
        });
        let mut without_data = 0;
        for _ in 0..1_000_000 {
            if trimmed.get() {
                break;
            }
            let (written, emptied) = (log.lookup(key(1, 1), 1).0, log.lookup(key(1, 5), 1).0);
            assert!(matches!(written, Found::Data(_) | Found::Nothing), "{written:?}");
            assert!(matches!(emptied, Found::Hole | Found::Nothing), "{emptied:?}");
            without_data += usize::from(written == Found::Nothing);
            reactor::yield_now().await;
        }
        assert!(without_data > 1, "it was seen in the midst");
        trim.await.unwrap();
    })
    .unwrap();
}

#[test]
fn blocks_that_lie_one_behind_another_are_carried_out_together() {
    on_each(|device| async {
        let log = Log::create(device, BYTES, RING).await.unwrap();
        write(&log, key(1, 10), 0..6).await;
        write(&log, key(1, 16), 6..7).await;
        write(&log, key(1, 13), 20..21).await;
        log.append(Append::Hole { key: key(1, 14), count: 1 }).await.unwrap();
        write(&log, key(2, 15), 30..32).await;
        let mut items = Vec::new();
        log.next_batch(1000, &mut items).unwrap();
        let (mut rest, mut runs) = (&items[..], Vec::new());
        while let [first, ..] = rest {
            let (run, behind) = rest.split_at(log.run_of(rest));
            if first.data().is_some() {
                runs.push((first.key.block, log.with_run(run, <[u8]>::to_vec).unwrap()));
            }
            rest = behind;
        }
        let expected = [(10, 0..3), (15, 5..6), (16, 6..7), (13, 20..21), (15, 30..32)];
        let expected = expected.map(|(at, tags)| (at, tags.flat_map(block).collect::<Vec<_>>()));
        assert!(
            runs == expected,
            "{:?}",
            runs.iter().map(|r| (r.0, r.1.len())).collect::<Vec<_>>()
        );
    });
}

#[test]
fn a_reopened_log_has_what_was_not_trimmed() {
    on_each(|device| async move {
        let log = Log::create(device.clone(), BYTES, RING).await.unwrap();
        write(&log, key(1, 0), 0..9).await;
        let mut items = Vec::new();
        let through = log.next_batch(256, &mut items).unwrap();
        log.trim(through, 3).await.unwrap();
        write(&log, key(1, 4), 100..101).await;
        log.append(Append::Hole { key: key(2, 0), count: 1 << 30 }).await.unwrap();
        log.close().await;
        for _ in 0..3 {
            let (log, opened) = Log::open(device.clone(), BYTES, RING).await.unwrap();
            assert_eq!((opened.durable_stripe, opened.repaired), (3, 0));
            assert_eq!(tag(&log, key(1, 4)), Some(100));
            assert_eq!(log.lookup(key(1, 0), 4), (Found::Nothing, 4));
            assert_eq!(log.lookup(key(2, 5), 10), (Found::Hole, 10));
            items.clear();
            log.next_batch(256, &mut items).unwrap();
            assert_eq!(items.len(), 2);
            log.close().await;
        }
    });
}

#[test]
fn a_full_log_takes_more_once_it_was_trimmed_in_the_order_of_arrival() {
    on_each(|device| async {
        let log = Rc::new(Log::create(device, BYTES, RING).await.unwrap());
        let writers: Vec<_> = (0..16u64)
            .map(|n| {
                let log = Rc::clone(&log);
                spawn(async move { write(&log, key(1, n * 256), n * 1000..n * 1000 + 200).await })
            })
            .collect();
        let mut taken = 0;
        while taken < 16 * 200 {
            log.wait_for_work().await;
            let mut items = Vec::new();
            let through = log.next_batch(256, &mut items).unwrap();
            taken += items.len();
            log.trim(through, 0).await.unwrap();
        }
        let mut sequences = Vec::new();
        for writer in writers {
            sequences.push(writer.await.unwrap());
        }
        assert!(sequences.is_sorted(), "{sequences:?}");
        assert_eq!(log.status().waiting, 0);
    });
}

/// The hole waits on, and whoever was behind it waited with it.
#[test]
fn who_writes_behind_a_hole_that_waits_for_room_is_told_that_there_is_no_space() {
    on_each(|device| async {
        let log = Rc::new(Log::create(device, BYTES, RING).await.unwrap());
        let mut n = 0;
        while log.status().waiting == 0 {
            let log = Rc::clone(&log);
            let count = 1 + n % 7;
            spawn(async move {
                log.append(Append::Hole { key: key(1, n * 1000), count }).await.unwrap();
            });
            yield_now().await;
            n += 1;
        }
        let behind = spawn({
            let log = Rc::clone(&log);
            async move { log.append(Append::Write { key: key(2, 0), data: &[&block(1)] }).await }
        });
        yield_now().await;
        log.refuse_writes(true);
        let told = reactor::timeout(Duration::from_secs(1), behind).await;
        let refused = told.expect("it is told").unwrap().unwrap_err();
        assert_eq!(refused.kind, Kind::Full);
    });
}

/// It held up all that came after it, and every change of a volume, as long as there was no space.
#[test]
fn a_hole_that_finds_no_room_while_there_is_no_space_is_refused_in_the_end() {
    reactor::simulate(1, async {
        let log = Rc::new(Log::create(simulated(), BYTES, RING).await.unwrap());
        log.refuse_writes(true);
        let begin = reactor::now();
        let mut n = 0;
        let refused = loop {
            let hole = Append::Hole { key: key(1, n * 1000), count: 1 + n % 7 };
            match log.append(hole).await {
                Ok(_) => n += 1,
                Err(refused) => break refused,
            }
        };
        assert!(n > 1000 && refused.kind == Kind::Full, "{n}: {refused}");
        let waited = Duration::from_nanos(reactor::now() - begin);
        assert!(waited >= crate::limits::HOLE_PATIENCE, "{waited:?}");
        // Who comes next does not wait for so long again, one behind the other.
        let begin = reactor::now();
        for n in 0..50 {
            let hole = Append::Hole { key: key(2, n * 1000), count: 1 };
            assert_eq!(log.append(hole).await.unwrap_err().kind, Kind::Full);
        }
        assert!(reactor::now() - begin < 1_000_000_000);
        // Room came: whoever finds none later waits as the first one did.
        let mut items = Vec::new();
        let through = log.next_batch(256, &mut items).unwrap();
        log.trim(through, 0).await.unwrap();
        let (begin, mut more) = (reactor::now(), 0);
        while log.append(Append::Hole { key: key(3, more * 1000), count: 1 }).await.is_ok() {
            more += 1;
        }
        let waited = Duration::from_nanos(reactor::now() - begin);
        assert!(more > 0 && waited >= crate::limits::HOLE_PATIENCE, "{more}: {waited:?}");
        log.refuse_writes(false);
        let waits = spawn({
            let log = Rc::clone(&log);
            async move { log.append(Append::Hole { key: key(1, 0), count: 1 }).await }
        });
        assert!(reactor::timeout(2 * crate::limits::HOLE_PATIENCE, waits).await.is_err());
    });
}

/// It waited for room with its turn, without end: whoever came after it waited, too. So did a hole where somebody said
/// again and again that there is no space.
#[test]
fn what_was_acknowledged_waits_with_its_turn_no_longer_than_a_hole() {
    reactor::simulate(1, async {
        let log = Rc::new(Log::create(simulated(), BYTES, RING).await.unwrap());
        log.refuse_writes(true);
        let mut n = 0;
        while log.append(Append::Hole { key: key(1, n * 1000), count: 1 }).await.is_ok() {
            n += 1;
        }
        let busy = loop {
            match log.reserve_acknowledged(key(2, 0), 1).await {
                Ok(mut reserved) => {
                    reserved.fill(&block(1)).unwrap();
                    log.make_durable(reserved.commit().unwrap().sequence).await.unwrap();
                }
                Err(error) => break error,
            }
        };
        assert_eq!(busy.kind, Kind::Busy);
        let mut items = Vec::new();
        let through = log.next_batch(256, &mut items).unwrap();
        log.trim(through, 0).await.unwrap();
        drop(log.reserve_acknowledged(key(2, 0), 1).await.unwrap());
        log.refuse_writes(false);
        let fills = spawn({
            let log = Rc::clone(&log);
            async move {
                let mut n = 0;
                while log.append(Append::Hole { key: key(3, n * 1000), count: 1 }).await.is_ok() {
                    n += 1;
                }
            }
        });
        let mut turns = 0;
        while !fills.is_finished() {
            log.refuse_writes(turns % 2 == 0);
            reactor::sleep(Duration::from_millis(50)).await;
            turns += 1;
            assert!(turns < 200, "it is refused in the end");
        }
    });
}

#[test]
fn there_must_be_a_log_of_this_length() {
    on_each(|device| async move {
        let missing = Log::open(device.clone(), BYTES, RING).await.err().unwrap();
        assert_eq!(missing.kind, Kind::Missing);
        let short = Log::create(device.clone(), PAGE, RING).await.err().unwrap();
        assert_eq!(short.kind, Kind::Invalid);
        Log::create(device.clone(), BYTES, RING).await.unwrap();
        let longer = Log::open(device, 2 * BYTES, RING).await.err().unwrap();
        assert_eq!(longer.kind, Kind::Invalid);
    });
}

#[test]
fn who_opens_a_log_of_another_length_is_told_of_both() {
    run(Config::default(), async {
        let device = drives();
        Log::create(device.clone(), BYTES, RING).await.unwrap();
        let other = Log::open(device, BYTES + PAGE, RING).await.err().unwrap();
        let lengths = [BYTES, BYTES + PAGE].map(|bytes| (bytes - CONTROL_BYTES).to_string());
        assert!(lengths.iter().all(|bytes| other.context.contains(bytes)), "{other}");
    })
    .unwrap();
}

#[test]
fn pieces_may_be_cut_anywhere() {
    on_each(|device| async {
        let log = Log::create(device, BYTES, RING).await.unwrap();
        let data: Vec<u8> = (0..4).flat_map(block).collect();
        let pieces = [&data[..1], &data[1..5000], &[], &data[5000..12288], &data[12288..]];
        log.append(Append::Write { key: key(1, 0), data: &pieces }).await.unwrap();
        let tags: Vec<_> = (0..4).map(|n| tag(&log, key(1, n))).collect();
        assert_eq!(tags, [Some(0), Some(1), Some(2), Some(3)]);
        let half = log.append(Append::Write { key: key(1, 0), data: &[&data[..5000]] }).await;
        assert_eq!(half.unwrap_err().kind, Kind::Invalid);
        let none = log.append(Append::Write { key: key(1, 0), data: &[] }).await;
        assert_eq!(none.unwrap_err().kind, Kind::Invalid);
    });
}

#[test]
fn many_laps_find_every_newest_block() {
    on_each(|device| async {
        let log = Log::create(device, BYTES, RING).await.unwrap();
        let mut newest = std::collections::BTreeMap::new();
        let mut prng = stdx::Prng::new(9);
        for n in 0..3000 {
            let (first, count) = (prng.below(64), 1 + prng.below(3));
            let begin = n * 8;
            write(&log, key(1, first), begin..begin + count).await;
            newest.extend((0..count).map(|i| (first + i, begin + i)));
            if log.fill() > 600 {
                let mut items = Vec::new();
                let through = log.next_batch(256, &mut items).unwrap();
                for item in items {
                    assert_eq!(tag(&log, item.key), newest.remove(&item.key.block));
                }
                log.trim(through, u64_of(0)).await.unwrap();
            }
            let probe = prng.below(70);
            assert_eq!(tag(&log, key(1, probe)), newest.get(&probe).copied());
        }
    });
}

/// The pool could not be opened any more: its own log was called another pool's.
#[test]
fn a_zone_that_forgot_the_new_log_does_not_hide_the_other() {
    run(Config::default(), async {
        let both = drives();
        let Device::Drives(zones) = &both else { panic!("drives") };
        let old = Log::create(both.clone(), BYTES, RING + 1).await.unwrap();
        for tag in 0..9 {
            write(&old, key(1, tag), tag..tag + 1).await;
        }
        drop(old);
        // As many times as it takes for the old one's generation to be the higher.
        for _ in 0..9 {
            drop(Log::open(both.clone(), BYTES, RING + 1).await.unwrap());
        }
        let new = Log::create(Device::Drives(zones[1..].to_vec()), BYTES, RING).await.unwrap();
        write(&new, key(1, 3), 30..31).await;
        drop(new);
        let (log, opened) = Log::open(both.clone(), BYTES, RING).await.unwrap();
        assert_eq!((tag(&log, key(1, 3)), opened.lost_blocks), (Some(30), 0));
        assert_eq!(log.lookup(key(1, 4), 1), (Found::Nothing, 1));
        drop(log);
        // It is on both from then on.
        let first = Device::Drives(zones[..1].to_vec());
        let (log, _) = Log::open(first, BYTES, RING).await.unwrap();
        assert_eq!(tag(&log, key(1, 3)), Some(30));
    })
    .unwrap();
}

#[test]
fn a_zone_that_fails_leaves_the_log_to_the_other() {
    let zone = |gone_after| {
        let plan = media::FaultPlan { gone_after, ..media::FaultPlan::default() };
        let drive = Drive::memory(16 << 20, RegionOptions::default()).unwrap();
        Zone::new(Arc::new(drive.with_faults(plan)), 0)
    };
    // Creating takes two writes of each; then the second drive, and later the first, are gone.
    let device = Device::Drives(vec![zone(Some(20)), zone(Some(10))]);
    run(Config::default(), async move {
        let log = Log::create(device, BYTES, RING).await.unwrap();
        for n in 0..15 {
            write(&log, key(1, n), n..n + 1).await;
        }
        let status = log.status();
        assert_eq!((status.devices, status.failed_devices), (2, 1));
        let mut n = 15;
        let error = loop {
            let data = block(n);
            match log.append(Append::Write { key: key(1, n), data: &[&data] }).await {
                Ok(_) => n += 1,
                Err(error) => break error,
            }
        };
        assert_eq!((error.kind, n), (Kind::Failed, 18));
        assert_eq!(tag(&log, key(1, 17)), Some(17));
        assert_eq!(tag(&log, key(1, 18)), None, "what is not durable is not shown");
        let later = log.append(Append::Hole { key: key(1, 0), count: 1 }).await;
        assert_eq!(later.unwrap_err().kind, Kind::Failed);
    })
    .unwrap();
}

/// A log of ten records of one block each, with a byte of the record at `n` damaged; what opening
/// it gives.
async fn open_damaged(n: u64) -> Result<Opened> {
    let memory = Arc::new(SimulatedPmem::new(BYTES));
    let area = Area { pmem: Arc::new(Pmem::Simulated(Arc::clone(&memory))), offset: 0 };
    let device = Device::Memory(vec![area]);
    let log = Log::create(device.clone(), BYTES, RING).await?;
    for n in 0..10 {
        write(&log, key(1, n), n..n + 1).await;
    }
    memory.rot(CONTROL_BYTES + n * u64_of(64 + BLOCK) + 1000);
    Ok(Log::open(device, BYTES, RING).await?.1)
}

#[test]
fn damage_before_the_end_is_no_torn_tail() {
    run(Config::default(), async {
        for n in 0..9 {
            let opened = open_damaged(n).await.unwrap();
            assert_eq!((opened.records, opened.lost_blocks), (10, 1));
        }
        // Of the last one nobody can tell.
        assert_eq!(open_damaged(9).await.unwrap().records, 9);
    })
    .unwrap();
}

#[test]
fn damage_of_the_last_record_is_known_once_the_log_was_opened() {
    run(Config::default(), async {
        let memory = Arc::new(SimulatedPmem::new(BYTES));
        let area = Area { pmem: Arc::new(Pmem::Simulated(Arc::clone(&memory))), offset: 0 };
        let device = Device::Memory(vec![area]);
        let log = Log::create(device.clone(), BYTES, RING).await.unwrap();
        for n in 0..10 {
            write(&log, key(1, n), n..n + 1).await;
        }
        drop(log);
        assert_eq!(Log::open(device.clone(), BYTES, RING).await.unwrap().1.records, 10);
        memory.rot(CONTROL_BYTES + 9 * u64_of(64 + BLOCK) + 1000);
        let opened = Log::open(device.clone(), BYTES, RING).await.unwrap().1;
        assert_eq!((opened.records, opened.lost_blocks), (10, 1));
        // Nothing tells what a record was without its header.
        memory.rot(CONTROL_BYTES + 9 * u64_of(64 + BLOCK) + 10);
        let refused = Log::open(device.clone(), BYTES, RING).await.map(|_| ()).unwrap_err();
        assert_eq!(refused.kind, Kind::Loss);
        assert_eq!(refused.context, "commit log record 10 and all after it are damaged");
        let accepted = open_accepting(device.clone(), None).await.unwrap().1;
        assert_eq!((accepted.records, accepted.lost_through), (9, 10));
        // What was accepted once is not asked for again.
        assert_eq!(Log::open(device, BYTES, RING).await.unwrap().1.records, 9);
    })
    .unwrap();
}

/// What a record refers to stays as it was encoded, and is known by the names of whole blocks in a row.
#[test]
fn references_keep_how_contents_are_encoded_and_their_names_are_found_in_a_range() {
    on_each(|device| async move {
        let log = Log::create(device, BYTES, RING).await.unwrap();
        let at = |slot| Location::new(SegmentId::new(3), slot);
        let encoded = |grains, method, key| Encoding::new(grains, method, key).unwrap();
        let encodings = [
            Encoding::PLAIN,
            encoded(8, Method::Plain, (1 << 24) - 1),
            encoded(1, Method::Lz4, 7),
            encoded(7, Method::Zstd, 0),
        ];
        let places = [10, 12, 13, 20].map(at);
        let stored = |(location, encoding)| Stored { location, encoding, crc: 9 };
        let entries: Vec<_> = places.into_iter().zip(encodings).map(stored).collect();
        let (to, source) = (key(1, 9), key(1, 100));
        log.append(Append::Refer { key: to, source, entries: &entries }).await.unwrap();
        let (Found::Refers { position, index: 0 }, 4) = log.lookup(to, 9) else { panic!("refers") };
        for (n, stored) in entries.into_iter().enumerate() {
            let source = source.forward(u64_of(n));
            assert_eq!(log.reference(position, n).unwrap(), Reference { source, stored });
        }
        let referred = |first, blocks| log.referred(SharedBlockId::of(at(first)), blocks);
        assert_eq!(referred(10, 11), places.map(SharedBlockId::of));
        assert_eq!(referred(11, 9), [places[1], places[2]].map(SharedBlockId::of));
        assert_eq!(referred(14, 6), []);
        log.close().await;
    });
}
