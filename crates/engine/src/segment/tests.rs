use super::*;
use crate::address::{BLOCK, Key, Location, Version, View};
use crate::drives::{Cause, DriveCounters, DriveSlot, DriveState};
use media::memory::RegionOptions;
use media::{Drive, FaultPlan};
use raid::{Scheme, Shape};
use reactor::{Config, run};
use stdx::Prng;
use stdx::crc32c;
use stdx::num::{low16, u16_of, u32_of, u64_of, usize32};

const AU: u64 = 1 << 20;
const BEGINS: u64 = 8192;
const POOL: [u8; 16] = *b"a pool of tests!";

fn go<F: Future<Output = ()> + 'static>(future: F) {
    run(Config::default(), future).unwrap();
}

/// A drive with room for a few allocation units.
fn memory() -> Drive {
    let options = RegionOptions { block_size: 4096, ..RegionOptions::default() };
    Drive::memory(8 * AU, options).unwrap()
}

fn gone_after(operations: u64) -> FaultPlan {
    FaultPlan { gone_after: Some(operations), ..FaultPlan::default() }
}

/// A pool of the shape with as many drives as it needs, a segment on it, and a model of its
/// contents.
struct Rig {
    segments: Segments,
    info: Rc<SegmentInfo>,
    /// Location and contents of every block written.
    written: Vec<(Location, Vec<u8>)>,
    prng: Prng,
    sequence: u64,
}

impl Rig {
    fn over(drives: Vec<Option<Drive>>, parity: u8) -> Self {
        let data = drives.len() - usize::from(parity);
        let shape = Shape { data: stdx::num::low8(u64_of(data)), parity };
        let geometry = Geometry::for_au(shape, u32_of(usize32(256))).unwrap();
        let count = DriveSet::au_count(8 * AU, BEGINS, AU);
        let slots = drives.into_iter().map(|drive| DriveSlot {
            vacant: false,
            drive: drive.map(Arc::new),
            failed: false,
            begins: BEGINS,
            au_count: count,
        });
        let set = Arc::new(DriveSet::new(slots.collect(), AU, usize::from(parity)));
        let members = (0..geometry.width())
            .map(|n| Member { drive: u16_of(n), au: u32_of(n * 5 + 1) % count });
        let info = SegmentInfo {
            id: SegmentId::new(11),
            generation: 3,
            members: members.collect(),
            stream: Stream::User,
            shard: 0,
            geometry,
        };
        Self {
            segments: Segments::new(set, POOL, geometry).unwrap(),
            info: Rc::new(info),
            written: Vec::new(),
            prng: Prng::new(1),
            sequence: 100,
        }
    }

    fn new(data: usize, parity: u8) -> Self {
        let drives = (0..data + usize::from(parity)).map(|_| Some(memory()));
        Self::over(drives.collect(), parity)
    }

    /// Writes stripe `stripe` with records of random lengths, full or nearly so.
    async fn write(&mut self, stripe: u32) -> Result<StripeHeader> {
        let mut builder = self.segments.begin(Rc::clone(&self.info), stripe).await;
        let mut written = Vec::new();
        while builder.room() > 3 {
            let count = 1 + self.prng.below(builder.room().min(40).into());
            let mut data = vec![0; stdx::num::usize64(count) * BLOCK];
            self.prng.fill(&mut data);
            let crcs: Vec<u32> = data.chunks(BLOCK).map(crc32c).collect();
            let key = Key::new(View::new(1), self.prng.below(1 << 30));
            let first = builder.push(Owner::Write { key }, Version::FIRST, &crcs, &data).unwrap();
            for (n, block) in data.chunks(BLOCK).enumerate() {
                assert_eq!(builder.block(first.slot() + u32_of(n)), block);
                written.push((first.offset(u32_of(n)), block.to_vec()));
            }
        }
        self.sequence += 1;
        let sealed = builder.seal(self.sequence).await;
        let header = self.segments.write(sealed).await?;
        self.written.append(&mut written);
        Ok(header)
    }

    async fn write_all(&mut self) {
        for stripe in 0..self.info.geometry.stripes() {
            self.write(stripe).await.unwrap();
        }
    }

    /// Reads runs of blocks back, and compares.
    async fn check(&mut self) -> Result<()> {
        let mut at = 0;
        while at < self.written.len() {
            let first = self.written[at].0;
            let longest = 1 + usize32(low16(self.prng.below(64)).into());
            let run = self.written[at..].iter().enumerate();
            let run = run.take_while(|(n, w)| w.0 == first.offset(u32_of(*n))).take(longest);
            let bytes: Vec<u8> = run.flat_map(|(_, w)| w.1.iter().copied()).collect();
            let crcs: Vec<u32> = bytes.chunks(BLOCK).map(crc32c).collect();
            let mut out = vec![0; bytes.len()];
            self.segments.read(&self.info, first.slot(), &crcs, &mut out).await?;
            assert!(out == bytes, "{first:?}, {} blocks", crcs.len());
            at += crcs.len();
        }
        Ok(())
    }

    /// Overwrites a block of a unit on its drive behind everybody's back.
    async fn damage(&self, stripe: u32, unit: usize, block: u32) {
        let member = self.info.member(stripe, unit);
        let set = &self.segments.drives;
        let at =
            set.offset(member.drive, member.au, self.info.geometry.member_block(stripe, block));
        let mut junk = reactor::buffer::alloc(BLOCK).await;
        junk.fill(0x5a);
        set.drive(member.drive).unwrap().write(at, junk, false).await.unwrap();
    }

    fn total(&self, of: impl Fn(DriveCounters) -> u64) -> u64 {
        self.segments.drives.indices().map(|d| of(self.segments.drives.counters(d))).sum()
    }
}

const SHAPES: [(usize, u8); 6] = [(1, 0), (1, 1), (1, 2), (2, 1), (4, 2), (8, 2)];

#[test]
fn what_was_written_is_read() {
    go(async {
        for (data, parity) in SHAPES {
            let mut rig = Rig::new(data, parity);
            rig.write_all().await;
            rig.check().await.unwrap();
            assert_eq!(rig.total(|c| c.reconstructed + c.corrupt + c.read_errors), 0);
        }
    });
}

#[test]
fn writes_read_nothing_and_cost_what_the_shape_says() {
    go(async {
        let mut rig = Rig::new(4, 2);
        rig.write_all().await;
        assert_eq!(rig.total(|c| c.reads), 0);
        let stripes = u64::from(rig.info.geometry.stripes());
        assert_eq!(rig.total(|c| c.bytes_written), stripes * Segments::stripe_bytes(&rig.info));
        assert_eq!(rig.total(|c| c.writes), stripes * 6);
    });
}

#[test]
fn headers_tell_what_stripes_hold() {
    go(async {
        let mut rig = Rig::new(4, 2);
        let one = rig.write(0).await.unwrap();
        let back = rig.segments.read_header(&rig.info, 0).await.unwrap().unwrap();
        assert_eq!(back, one);
        assert_eq!((back.sequence, back.stream), (101, Stream::User));
        let blocks = back.placed().flat_map(|p| {
            p.crcs.iter().enumerate().map(move |(n, crc)| (p.location.offset(u32_of(n)), *crc))
        });
        let expected = rig.written.iter().map(|(at, data)| (*at, crc32c(data)));
        assert!(blocks.eq(expected));
        assert_eq!(rig.segments.read_header(&rig.info, 1).await.unwrap(), None);
        // Another life of the same segment sees nothing of this one.
        let next = SegmentInfo { generation: 4, ..(*rig.info).clone() };
        assert_eq!(rig.segments.read_header(&next, 0).await.unwrap(), None);
    });
}

/// Rolling forward ends at a stripe that was never written, and took that for a failure in pools
/// without redundancy or with all of it used up.
#[test]
fn stripes_that_were_not_written_are_told_however_many_drives_failed() {
    go(async {
        for (data, parity) in SHAPES {
            let mut rig = Rig::new(data, parity);
            rig.write(0).await.unwrap();
            for drive in 0..u16::from(parity) {
                rig.segments.drives.fail(drive, Cause::Operator);
                assert_eq!(rig.segments.read_header(&rig.info, 1).await.unwrap(), None);
                assert!(rig.segments.read_header(&rig.info, 0).await.unwrap().is_some());
            }
            assert_eq!(rig.segments.read_header(&rig.info, 1).await.unwrap(), None);
        }
    });
}

#[test]
fn headers_survive_what_data_survives() {
    go(async {
        let mut rig = Rig::new(4, 2);
        let header = rig.write(1).await.unwrap();
        rig.damage(1, 0, 0).await;
        rig.damage(1, 3, 0).await;
        assert_eq!(rig.segments.read_header(&rig.info, 1).await.unwrap(), Some(header.clone()));
        rig.segments.drives.fail(rig.info.member(1, 0).drive, Cause::Operator);
        assert_eq!(rig.segments.read_header(&rig.info, 1).await.unwrap(), Some(header));
    });
}

#[test]
fn any_drives_up_to_the_redundancy_may_fail() {
    go(async {
        for (data, parity) in SHAPES {
            for first in 0..data + usize::from(parity) {
                let mut rig = Rig::new(data, parity);
                rig.write_all().await;
                for n in 0..usize::from(parity) {
                    rig.segments.drives.fail(
                        u16_of((first + n * 3) % (data + usize::from(parity))),
                        Cause::Operator,
                    );
                    rig.check().await.unwrap();
                }
                if parity > 0 && data > 1 {
                    assert!(rig.total(|c| c.reconstructed) > 0);
                }
                assert_eq!(rig.total(|c| c.repaired + c.corrupt), 0);
            }
        }
    });
}

/// A drive that is there when the pool is opened and gone after one operation on it.
fn short_lived() -> Drive {
    memory().with_faults(gone_after(1))
}

#[test]
fn one_failure_too_many_is_told() {
    go(async {
        for (data, parity) in SHAPES {
            let width = data + usize::from(parity);
            let drives = (0..width)
                .map(|n| Some(if n <= usize::from(parity) { short_lived() } else { memory() }));
            let mut rig = Rig::over(drives.collect(), parity);
            rig.write(0).await.unwrap();
            assert_eq!(rig.write(1).await.unwrap_err().kind, Kind::Failed, "{data}+{parity}");
            assert_eq!(rig.check().await.unwrap_err().kind, Kind::Failed);
            assert_eq!(rig.segments.flush(&[&rig.info]).await.unwrap_err().kind, Kind::Failed);
        }
    });
}

#[test]
fn failed_drives_are_read_when_nothing_else_is_left() {
    go(async {
        for (data, parity) in SHAPES {
            let mut rig = Rig::new(data, parity);
            rig.write(0).await.unwrap();
            for drive in 0..=u16::from(parity) {
                rig.segments.drives.fail(drive, Cause::Operator);
            }
            rig.check().await.unwrap();
            assert_eq!(rig.write(1).await.unwrap_err().kind, Kind::Failed);
            assert!(rig.segments.read_header(&rig.info, 0).await.unwrap().is_some());
        }
        // What they hold is not believed.
        let mut rig = Rig::new(4, 2);
        rig.write(0).await.unwrap();
        for unit in 1..4 {
            let block = rig.written.len() / 4;
            rig.damage(0, unit, u32_of(block % 32)).await;
        }
        for unit in 1..4 {
            rig.segments.drives.fail(rig.info.member(0, unit).drive, Cause::Operator);
        }
        assert_eq!(rig.check().await.unwrap_err().kind, Kind::Failed);
    });
}

#[test]
fn writes_go_on_while_the_redundancy_bears_it() {
    go(async {
        // Drives that vanish in the middle of things, one after the other.
        let plans = [(1, 3), (4, 5)];
        let drives = (0..6).map(|n| match plans.iter().find(|p| p.0 == n) {
            Some((_, operations)) => Some(memory().with_faults(gone_after(*operations))),
            None => Some(memory()),
        });
        let mut rig = Rig::over(drives.collect(), 2);
        rig.write_all().await;
        rig.segments.flush(&[&rig.info]).await.unwrap();
        assert_eq!(rig.segments.drives.changes(), 2);
        assert_eq!(rig.segments.drives.state(1), DriveState::Failed);
        assert_eq!(rig.segments.lost(&rig.info), 2);
        rig.check().await.unwrap();
    });
}

#[test]
fn a_missing_drive_is_neither_read_nor_written() {
    go(async {
        let mut rig = Rig::over(vec![Some(memory()), None, Some(memory())], 1);
        rig.write_all().await;
        rig.check().await.unwrap();
        assert_eq!(rig.segments.drives.state(1), DriveState::Missing);
        let counters = rig.segments.drives.counters(1);
        assert_eq!((counters.reads, counters.writes, counters.repaired), (0, 0, 0));
        assert!(counters.reconstructed > 0);
    });
}

#[test]
fn damaged_blocks_are_repaired_on_their_drives() {
    go(async {
        for (data, parity) in SHAPES.into_iter().filter(|s| s.1 > 0) {
            let mut rig = Rig::new(data, parity);
            rig.write_all().await;
            let damage = [(0, 0, 5), (0, data - 1, 7), (1, 0, 3)];
            for (stripe, unit, block) in damage {
                rig.damage(stripe, unit, block).await;
            }
            rig.check().await.unwrap();
            assert_eq!(rig.total(|c| c.corrupt), 3);
            assert_eq!(rig.total(|c| c.repaired), 3);
            rig.check().await.unwrap();
            assert_eq!(rig.total(|c| c.corrupt), 3, "repaired for good");
        }
    });
}

#[test]
fn two_damaged_units_of_a_row_are_found_among_all() {
    go(async {
        let mut rig = Rig::new(4, 2);
        rig.write_all().await;
        // Neither the second data unit nor P says of itself that it is wrong.
        for (stripe, other) in [(0, 2), (1, 4), (2, 5)] {
            rig.damage(stripe, 1, 6).await;
            rig.damage(stripe, other, 6).await;
        }
        rig.check().await.unwrap();
        // P was put right too; Q was not asked.
        assert_eq!((rig.total(|c| c.corrupt), rig.total(|c| c.repaired)), (5, 5));
        // With one drive lost, a wrong block besides is still found; two are too many.
        let mut rig = Rig::new(4, 2);
        rig.write(0).await.unwrap();
        rig.segments.drives.fail(rig.info.member(0, 0).drive, Cause::Operator);
        rig.damage(0, 1, 9).await;
        rig.check().await.unwrap();
        rig.damage(0, 1, 9).await;
        rig.damage(0, 2, 9).await;
        assert_eq!(rig.check().await.unwrap_err().kind, Kind::Corrupt);
    });
}

#[test]
fn drives_that_fail_reads_now_and_then_lose_nothing() {
    go(async {
        let drives = (0..6).map(|n| {
            let plan = FaultPlan { seed: n, read_error_ppm: 50_000, ..FaultPlan::default() };
            Some(memory().with_faults(plan))
        });
        let mut rig = Rig::over(drives.collect(), 2);
        rig.write_all().await;
        rig.check().await.unwrap();
        assert!(rig.total(|c| c.read_errors) > 0);
        assert!(rig.total(|c| c.repaired) > 0);
        assert_eq!(rig.segments.lost(&rig.info), 0);
    });
}

#[test]
fn a_block_can_be_fetched_without_a_copy() {
    go(async {
        let mut rig = Rig::new(4, 2);
        rig.write(0).await.unwrap();
        let pool = reactor::buffer::pool();
        let (at, bytes) = rig.written[10].clone();
        let crcs = [crc32c(&bytes)];
        for _ in 0..3 {
            let got = rig.segments.fetch(&rig.info, at.slot(), &crcs, pool.clone()).await.unwrap();
            assert!(got[..] == bytes[..]);
            let place = rig.info.geometry.place(at.slot());
            match rig.total(|c| c.corrupt) {
                0 => rig.damage(0, usize32(place.unit), place.block).await,
                _ => rig
                    .segments
                    .drives
                    .fail(rig.info.member(0, usize32(place.unit)).drive, Cause::Operator),
            }
        }
        assert_eq!((rig.total(|c| c.repaired), rig.total(|c| c.reconstructed)), (1, 2));
    });
}

#[test]
fn a_stripe_takes_what_fits() {
    go(async {
        let rig = Rig::new(4, 2);
        let mut builder = rig.segments.begin(Rc::clone(&rig.info), 0).await;
        let key = |block| Key::new(View::new(1), block);
        let room = builder.room();
        assert_eq!(room, 127);
        let push = |builder: &mut StripeBuilder, owner, crcs: &[u32], data: &[u8]| {
            builder.push(owner, Version::FIRST, crcs, data)
        };
        let owner = Owner::Write { key: key(0) };
        assert!(push(&mut builder, owner, &[0; 128], &[0; 128 * BLOCK]).is_none());
        // Blocks that follow each other share a record.
        for n in 0..room {
            let block = [stdx::num::low8(n.into()); BLOCK];
            let owner = Owner::Write { key: key(n.into()) };
            let at = push(&mut builder, owner, &[crc32c(&block)], &block);
            assert_eq!(at.unwrap().slot(), 1 + n);
        }
        assert_eq!(builder.room(), 0);
        let owner = Owner::Write { key: key(9) };
        assert!(push(&mut builder, owner, &[0], &[0; BLOCK]).is_none());
        let (mut holes, owner) = (0, Owner::Hole { key: key(0), blocks: 1 << 40 });
        while push(&mut builder, owner, &[], &[]).is_some() {
            holes += 1;
        }
        let header = rig.segments.write(builder.seal(1).await).await.unwrap();
        assert_eq!((header.blocks(), header.records.len()), (127, 1 + holes));
        assert_eq!(rig.segments.read_header(&rig.info, 0).await.unwrap(), Some(header));
    });
}

/// What a stripe says it has room for fits in one piece, whatever its header has taken already.
#[test]
fn a_stripe_takes_all_it_has_room_for_at_once() {
    go(async {
        let rig = Rig::new(4, 2);
        let later = Version::new(7).unwrap();
        for (holes, before, version) in (0..400).flat_map(|holes| {
            [(Version::FIRST, Version::FIRST), (later, later), (later, Version::FIRST)]
                .map(|(before, version)| (holes, before, version))
        }) {
            let mut builder = rig.segments.begin(Rc::clone(&rig.info), 0).await;
            let key = |block| Key::new(View::new(1), block);
            for _ in 0..holes {
                builder.push(Owner::Hole { key: key(0), blocks: 9 }, before, &[], &[]);
            }
            let room = stdx::num::usize32(builder.room());
            let data = vec![0; room * BLOCK];
            let owner = Owner::Write { key: key(7) };
            let crcs = vec![0; room];
            let pushed = room == 0 || builder.push(owner, version, &crcs, &data).is_some();
            assert!(pushed, "{holes}");
        }
    });
}

/// The first version in a stripe takes room that it did not need before: what finds none goes into the next, and does not
/// wait for room in this one.
#[test]
fn a_stripe_that_has_no_room_for_a_version_is_full() {
    go(async {
        let rig = Rig::new(4, 2);
        let mut refused = 0;
        for holes in 0..400 {
            let mut builder = rig.segments.begin(Rc::clone(&rig.info), 0).await;
            let owner = Owner::Hole { key: Key::new(View::new(1), 0), blocks: 9 };
            for _ in 0..holes {
                builder.push(owner, Version::FIRST, &[], &[]);
            }
            let had_room = builder.room() > 0;
            let version = Version::new(1).unwrap();
            if builder.push(owner, version, &[], &[]).is_none() {
                refused += u32::from(had_room);
                assert_eq!(builder.room(), 0, "{holes}");
            }
            let header = rig.segments.write(builder.seal(1).await).await.unwrap();
            assert_eq!(rig.segments.read_header(&rig.info, 0).await.unwrap(), Some(header));
        }
        assert!(refused > 0, "the header got full");
    });
}

#[test]
fn unused_blocks_are_zero_and_protected() {
    go(async {
        let rig = Rig::new(4, 2);
        // Leaves bytes behind in the buffers.
        for fill in [0xff, 0x11] {
            let mut builder = rig.segments.begin(Rc::clone(&rig.info), 0).await;
            let key = Key::new(View::new(1), 4);
            let block = [fill; BLOCK];
            let owner = Owner::Write { key };
            builder.push(owner, Version::FIRST, &[crc32c(&block)], &block).unwrap();
            rig.segments.write(builder.seal(1).await).await.unwrap();
        }
        rig.segments.drives.fail(rig.info.member(0, 2).drive, Cause::Operator);
        let mut out = vec![1; 64 * BLOCK];
        let zero = crc32c(&[0; BLOCK]);
        rig.segments.read(&rig.info, 60, &[zero; 64], &mut out).await.unwrap();
        assert!(out.iter().all(|b| *b == 0));
    });
}

#[test]
fn stripes_in_memory_are_bounded() {
    go(async {
        let rig = Rig::new(8, 2);
        let mut open = Vec::new();
        while rig.segments.can_begin() {
            open.push(rig.segments.begin(Rc::clone(&rig.info), 0).await);
        }
        assert_eq!(open.len(), crate::limits::STRIPES_IN_MEMORY);
        let waiting = {
            let (segments, info) = (rig.segments.clone(), Rc::clone(&rig.info));
            reactor::spawn(async move { segments.begin(info, 1).await.stripe() })
        };
        reactor::yield_now().await;
        assert!(!waiting.is_finished());
        rig.segments.write(open.pop().unwrap().seal(1).await).await.unwrap();
        assert_eq!(waiting.await, Some(1));
    });
}

#[test]
fn a_stripe_can_be_verified() {
    go(async {
        for (data, parity) in SHAPES {
            let mut rig = Rig::new(data, parity);
            rig.write(0).await.unwrap();
            let (_, faults) = rig.segments.verify(&rig.info, 0).await.unwrap().unwrap();
            assert_eq!(faults, StripeFaults::default());
            assert_eq!(rig.segments.verify(&rig.info, 1).await.unwrap(), None);
            rig.damage(0, 0, 5).await;
            let (_, faults) = rig.segments.verify(&rig.info, 0).await.unwrap().unwrap();
            assert_eq!(faults.wrong, [5]);
            assert_eq!(faults.parity, [5].repeat(usize::from(parity.min(1))));
            rig.check().await.unwrap_or_else(|e| assert!(parity == 0, "{e}"));
            if parity == 0 {
                continue;
            }
            rig.damage(0, data, 3).await;
            rig.segments.drives.fail(rig.info.member(0, 0).drive, Cause::Operator);
            let (_, faults) = rig.segments.verify(&rig.info, 0).await.unwrap().unwrap();
            assert_eq!((faults.unreadable, faults.wrong), (vec![0], vec![]));
        }
    });
}

#[test]
fn a_stripe_is_made_whole_where_all_contents_are_there() {
    go(async {
        for (data, parity) in SHAPES {
            let mut rig = Rig::new(data, parity);
            let header = rig.write(0).await.unwrap();
            let last = rig.info.geometry.unit_blocks() - 1;
            // Each row lacks as many units as the redundancy bears.
            for unit in 0..data + usize::from(parity) {
                let row = if unit < usize::from(parity) { 0 } else { u32_of(unit).min(last) };
                if parity > 0 {
                    rig.damage(0, unit, row).await;
                }
            }
            assert!(rig.segments.make_whole(&rig.info, &header).await.unwrap());
            let (_, faults) = rig.segments.verify(&rig.info, 0).await.unwrap().unwrap();
            assert_eq!(faults, StripeFaults::default());
            for unit in 0..=usize::from(parity) {
                rig.damage(0, unit, 5).await;
            }
            assert!(!rig.segments.make_whole(&rig.info, &header).await.unwrap());
        }
    });
}

#[test]
fn allocation_units_say_what_they_are() {
    go(async {
        let rig = Rig::new(4, 2);
        rig.segments.write_member_headers(&rig.info).await.unwrap();
        for (column, member) in rig.info.members.iter().enumerate() {
            let header = rig.segments.read_member_header(member.drive, member.au).await.unwrap();
            let header = header.unwrap();
            assert_eq!(header.segment, *rig.info);
            assert_eq!(usize::from(header.column), column);
        }
        let other = (rig.info.members[0].au + 1) % rig.segments.drives.units(0);
        let blank = rig.segments.read_member_header(0, other).await.unwrap();
        assert_eq!(blank, Err(crate::format::Bad::Blank));
    });
}

#[test]
fn units_lie_inside_their_drive() {
    for (capacity, au) in [(8 * AU, AU), (1 << 30, 4 << 20), (BEGINS + AU, AU), (0, AU)] {
        let count = DriveSet::au_count(capacity, BEGINS, au);
        let slot = DriveSlot {
            drive: None,
            failed: false,
            begins: BEGINS,
            au_count: count,
            vacant: false,
        };
        let set = DriveSet::new(vec![slot], au, 0);
        if count == 0 {
            continue;
        }
        let last = set.offset(0, count - 1, set.au_blocks() - 1) + u64_of(BLOCK);
        assert!(last <= capacity, "{capacity}: {count} units end at {last}");
        assert!(capacity - last < 2 * au);
        assert!(set.header_offset(0, count - 1) + u64_of(BLOCK) <= set.offset(0, 0, 0));
        assert_eq!(set.offset(0, 0, 0) % (64 << 10), 0);
    }
    assert_eq!(Scheme::Raid6.shape(6).unwrap().width(), 6);
}

mod beyond;
mod late;
mod random;
mod scrub;
