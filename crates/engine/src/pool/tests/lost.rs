//! Blocks damaged beyond what redundancy gives back: their readers are told, all others go on.

use std::time::Duration;

use super::*;
use crate::address::{Encoding, Key, Location, Method, View};
use crate::canary::{Step, misses};
use crate::dump::{Given, Severity, Spec, Structure, dump};
use crate::format;
use crate::format::catalog::CatalogArea;
use crate::log::Found;
use crate::map::{Contents, Extents};
use crate::segment::Stream;
use crate::shard::Shard;
use crate::shard::reclaim::Emptied;

struct Rig {
    media: Vec<Arc<Simulated>>,
    pool: Pool,
    volume: Volume,
}

/// Blocks of the volume.
const BLOCKS: u64 = 8192;

/// A pool whose drives have all of a volume, version 0 of each block.
async fn rig(scheme: raid::Scheme, drives: usize, memories: usize) -> (Rig, Vec<Arc<Pmem>>) {
    let (media, opened) = simulated(drives as u64, 96 * MIB, 0);
    let memories: Vec<_> = (0..memories).map(|_| pmem(8 * MIB)).collect();
    let spec = PoolSpec { scheme, ..spec(&opened, LogSpec::Bbu(memories.clone())) };
    let pool = Pool::create(PoolSpec { au_bytes: Some(MIB), ..spec }, &[]).await.unwrap();
    let volume = pool.create_volume(volume("db", BLOCKS * BLOCK as u64)).await.unwrap();
    for at in 0..BLOCKS {
        volume.write(at * BLOCK as u64, &block(at, 0)).await.unwrap();
    }
    // All of it leaves the log.
    pool.audit_space().await.unwrap();
    (Rig { media, pool, volume }, memories)
}

impl Rig {
    /// Where on the drives something lies that a block begins with.
    fn find(&self, wanted: &[u8]) -> Vec<(usize, u64)> {
        let mut found = Vec::new();
        let mut got = vec![0; wanted.len()];
        for (n, drive) in self.media.iter().enumerate() {
            for at in (4 * MIB..96 * MIB).step_by(BLOCK) {
                drive.peek(at, &mut got);
                if got == wanted {
                    found.push((n, at));
                }
            }
        }
        found
    }

    async fn read(&self, at: u64) -> Result<Vec<u8>> {
        let mut got = vec![0; BLOCK];
        self.volume.read(at * BLOCK as u64, &mut got).await?;
        Ok(got)
    }

    /// Overwrites three of four blocks until reclaim must have moved the others.
    async fn churn(&self, versions: std::ops::Range<u64>) {
        for version in versions {
            for at in (0..BLOCKS).filter(|at| at % 4 != 1) {
                self.volume.write(at * BLOCK as u64, &block(at, version)).await.unwrap();
            }
        }
    }

    /// Waits until reclaim moves nothing any more, which would count twice for a while.
    async fn calm(&self) {
        let mut before = u64::MAX;
        while before != self.pool.status().await.unwrap().segments_reclaimed {
            before = self.pool.status().await.unwrap().segments_reclaimed;
            reactor::sleep(Duration::from_secs(10)).await;
        }
    }

    /// Every block is what it should be after that, but for those of `lost`, which say so.
    async fn verify(&self, version: u64, lost: &[u64]) {
        for at in 0..BLOCKS {
            let version = if at % 4 == 1 { 0 } else { version };
            match self.read(at).await {
                Ok(got) => {
                    assert!(!lost.contains(&at), "block {at} was lost");
                    assert!(got == block(at, version), "block {at}");
                }
                Err(error) => {
                    assert!(lost.contains(&at), "block {at}: {error}");
                    assert_eq!(error.kind, Kind::Corrupt, "{error}");
                }
            }
        }
    }
}

/// It ended the shard when reclaim came to move it.
#[test]
fn a_lost_block_is_carried_along_as_lost_until_it_is_written() {
    reactor::simulate(1, async {
        let (mut rig, memories) = rig(raid::Scheme::Single, 1, 1).await;
        for at in [5, 1001] {
            let [(drive, offset)] = rig.find(&block(at, 0))[..] else { panic!("one copy") };
            rig.media[drive].flip(offset + 77, 3);
        }
        // One that cannot even be read.
        let [(drive, offset)] = rig.find(&block(2001, 0))[..] else { panic!("one copy") };
        rig.media[drive].damage(offset, 512);
        let lost = [5, 1001, 2001];
        rig.verify(0, &lost).await;
        rig.churn(1..8).await;
        rig.verify(7, &lost).await;
        let status = rig.pool.status().await.unwrap();
        assert!(status.segments_reclaimed > 20, "{status:?}");
        assert_eq!(status.lost_blocks, 3, "each is counted once");
        assert!(rig.find(&block(5, 0)).is_empty());
        rig.pool.close().await.unwrap();

        let opened = rig.media.iter().map(|d| Arc::new(Drive::Simulated(Arc::clone(d))));
        let log = LogSpec::Bbu(memories);
        let options = OpenOptions::default();
        rig.pool = Pool::open(opened.collect(), log, options, &[]).await.unwrap();
        rig.volume = rig.pool.volume("db").unwrap();
        rig.verify(7, &lost).await;
        rig.volume.write(1001 * BLOCK as u64, &block(1001, 0)).await.unwrap();
        rig.volume.deallocate(5 * BLOCK as u64, BLOCK as u64).await.unwrap();
        assert_eq!(rig.read(5).await.unwrap(), vec![0; BLOCK]);
        rig.volume.write(5 * BLOCK as u64, &block(5, 0)).await.unwrap();
        rig.churn(8..10).await;
        rig.verify(9, &[2001]).await;
        let audit = rig.pool.audit_space().await.unwrap();
        // What is lost takes no space.
        assert_eq!((audit.live, audit.taken), (BLOCKS - 1, audit.owned));
        rig.pool.close().await.unwrap();
    });
}

/// Where the map has a block of the volume.
async fn lies_at(shard: &Shard, view: View, at: u64) -> Location {
    let mut extents = Extents::default();
    shard.base.map.lookup(view, at, 1, &mut extents).await.unwrap();
    match extents.iter().next().unwrap().contents {
        Contents::Stored { location, .. } => location,
        other => panic!("block {at} is {other:?}"),
    }
}

/// That a block is lost may be learnt after what was written there since: it counts for what lay where it was lost.
#[test]
fn a_block_written_while_its_loss_is_on_its_way_is_whole() {
    reactor::simulate(5, async {
        let (rig, _) = rig(raid::Scheme::Single, 1, 1).await;
        let view = rig.pool.0.volumes.borrow()["db"].view;
        // The last blocks of a segment, so that the stripe that says so is not full.
        let last = move |shard: Rc<Shard>| async move {
            let (segment, mut last) = (lies_at(&shard, view, 0).await.segment(), 0);
            while lies_at(&shard, view, last + 1).await.segment() == segment {
                last += 1;
            }
            Ok(last)
        };
        let last = rig.pool.each(last).await.unwrap()[0];
        for at in [last - 1, last] {
            let [(drive, offset)] = rig.find(&block(at, 0))[..] else { panic!("one copy") };
            rig.media[drive].flip(offset + 77, 3);
        }
        let empty = move |shard: Rc<Shard>| async move {
            let segment = lies_at(&shard, view, last).await.segment();
            assert_eq!(shard.reclaim.empty(segment).await?, Emptied::Whole);
            // The map has not heard of it.
            assert!(shard.base.writer.has_partial(Stream::Reclaim));
            assert_eq!(lies_at(&shard, view, last).await.segment(), segment);
            Ok(())
        };
        rig.pool.each(empty).await.unwrap();
        rig.volume.write(last * BLOCK as u64, &block(last, 9)).await.unwrap();
        let settle = move |shard: Rc<Shard>| async move {
            shard.destage.run_unless_hindered().await;
            let learnt = lies_at(&shard, view, last).await;
            shard.keeper.settle_reclaim().await?;
            assert_eq!(lies_at(&shard, view, last).await, learnt);
            Ok(())
        };
        rig.pool.each(settle).await.unwrap();
        assert!(rig.read(last).await.unwrap() == block(last, 9));
        assert_eq!(rig.read(last - 1).await.unwrap_err().kind, Kind::Corrupt);
        // What was lost takes no space, nor does what took its place more than that.
        assert_eq!(rig.pool.audit_space().await.unwrap().live, BLOCKS - 1);
        rig.pool.close().await.unwrap();
    });
}

#[test]
fn the_look_of_what_is_lost_for_what_was_written_is_missed() {
    misses(Step::LostLooks, "is Lost", a_block_written_while_its_loss_is_on_its_way_is_whole);
}

/// Whoever shares a lost block has lost it, too, each until it is written.
#[test]
fn a_copy_of_a_damaged_block_is_lost_with_it_and_whole_without_it() {
    let (media, memories) = reactor::simulate(6, async {
        let (rig, memories) = rig(raid::Scheme::Single, 1, 1).await;
        let b = BLOCK as u64;
        // By reference: nobody looks at what is copied.
        rig.volume.copy_from(&rig.volume, b, 5 * b, 2 * b).await.unwrap();
        let [(drive, offset)] = rig.find(&block(1, 0))[..] else { panic!("one copy") };
        rig.media[drive].flip(offset + 77, 3);
        for at in [1, 5] {
            assert_eq!(rig.read(at).await.unwrap_err().kind, Kind::Corrupt, "block {at}");
        }
        // Its segment goes, and the two have a name for it that is nowhere.
        let churn = |versions: std::ops::Range<u64>| {
            let volume = &rig.volume;
            async move {
                for version in versions {
                    for at in (8..BLOCKS).filter(|at| at % 4 != 1) {
                        volume.write(at * b, &block(at, version)).await.unwrap();
                    }
                }
            }
        };
        let mut version = 1;
        while rig.pool.status().await.unwrap().lost_blocks == 0 {
            assert!(version < 50, "reclaim has come to it");
            churn(version..version + 1).await;
            version += 1;
        }
        assert_eq!(rig.pool.status().await.unwrap().lost_blocks, 1);
        for at in [1, 5] {
            assert_eq!(rig.read(at).await.unwrap_err().kind, Kind::Corrupt, "block {at}");
        }
        assert!(rig.read(6).await.unwrap() == block(2, 0));
        // What is lost by its own name, and what shares it, are copied as references are.
        rig.volume.write(5 * b, &block(5, 1)).await.unwrap();
        assert!(rig.read(5).await.unwrap() == block(5, 1));
        assert_eq!(rig.read(1).await.unwrap_err().kind, Kind::Corrupt);
        rig.volume.write(b, &block(1, 1)).await.unwrap();
        rig.calm().await;
        let audit = rig.pool.audit_space().await.unwrap();
        // Blocks 2 and 6 share one.
        assert_eq!((audit.live, audit.taken), (BLOCKS - 1, audit.owned));
        (rig.media.clone(), memories)
    });
    // As a crash left it.
    reactor::simulate(7, async move {
        let opened: Vec<_> =
            media.iter().map(|d| Arc::new(Drive::Simulated(Arc::clone(d)))).collect();
        let log = LogSpec::Bbu(memories);
        let pool = Pool::open(opened, log, OpenOptions::default(), &[]).await.unwrap();
        let volume = pool.volume("db").unwrap();
        let mut got = vec![0; BLOCK];
        for (at, of, version) in [(1, 1, 1), (2, 2, 0), (5, 5, 1), (6, 2, 0)] {
            volume.read(at * BLOCK as u64, &mut got).await.unwrap();
            assert!(got == block(of, version), "block {at}");
        }
        pool.close().await.unwrap();
    });
}

/// Nothing makes such entries yet: whoever meets one says so, and takes it neither for contents nor for lost.
#[test]
fn what_this_version_cannot_decode_is_refused_by_name_and_stays() {
    reactor::simulate(11, async {
        let (rig, _) = rig(raid::Scheme::Single, 1, 1).await;
        let view = rig.pool.0.volumes.borrow()["db"].view;
        let encode = move |shard: Rc<Shard>| async move {
            let at = lies_at(&shard, view, 5).await;
            for (block, grains, method, key) in [(5, 3, Method::Lz4, 0), (6, 8, Method::Plain, 9)] {
                let encoding = Encoding::new(grains, method, key).unwrap();
                let key = Key::new(view, block);
                let location = lies_at(&shard, view, block).await;
                shard.base.map.insert(
                    key,
                    crate::address::Version::FIRST,
                    location,
                    encoding,
                    &[1],
                );
            }
            let refused = shard.reclaim.empty(at.segment()).await.unwrap_err();
            assert!(refused.to_string().contains("this version does not read"), "{refused}");
            assert!(matches!(shard.base.map.lookup_known(view, 5, 1, &mut Extents::default()), 1));
            Ok(())
        };
        rig.pool.each(encode).await.unwrap();
        for (at, what) in [(5, "Lz4"), (6, "key 9")] {
            let refused = rig.read(at).await.unwrap_err();
            assert!(refused.to_string().contains(what), "{refused}");
        }
        assert_eq!(rig.pool.status().await.unwrap().lost_blocks, 0);
    });
}

/// A block that the map knows as lost is no source of a copy, says a dump, and counts as used.
#[test]
fn what_is_known_as_lost_is_said_by_all_who_look() {
    let (media, memories) = reactor::simulate(8, async {
        let (rig, memories) = rig(raid::Scheme::Single, 1, 1).await;
        let [(drive, offset)] = rig.find(&block(5, 0))[..] else { panic!("one copy") };
        rig.media[drive].flip(offset + 77, 3);
        rig.churn(1..8).await;
        assert_eq!(rig.pool.status().await.unwrap().lost_blocks, 1);
        let b = BLOCK as u64;
        let copied = rig.volume.copy_from(&rig.volume, 4 * b, 400 * b, 3 * b).await;
        assert_eq!(copied.unwrap_err().kind, Kind::Corrupt);
        assert!(rig.read(402).await.unwrap() == block(402, 7), "what comes behind is as it was");
        assert!(rig.pool.counted().await.unwrap());
        assert_eq!(rig.volume.used(), Some(BLOCKS * b));
        rig.pool.close().await.unwrap();
        (rig.media.clone(), memories)
    });
    reactor::simulate(9, async move {
        let given = |drive: &Arc<Simulated>| Given {
            name: "drive".to_owned(),
            drive: Ok(Arc::new(Drive::Simulated(Arc::clone(drive)))),
        };
        let log = Some(LogSpec::Bbu(memories));
        let drives = media.iter().map(given).collect();
        let spec = Spec { drives, log, data: true, ..Spec::default() };
        let report = dump(&spec, &mut |_| {}).await;
        let errors: Vec<_> =
            report.findings.iter().filter(|f| f.severity == Severity::Error).collect();
        assert_eq!(errors.len(), 1, "{errors:#?}");
        let is_told = errors[0].structure == Structure::Data && errors[0].what.contains("block 5");
        assert!(is_told, "{errors:#?}");
        assert_eq!(report.volumes[0].used, BLOCKS * BLOCK as u64);
    });
}

/// Blocks whose stripe had lost its header were given up with it, whole as they were.
#[test]
fn blocks_of_a_stripe_without_its_header_are_found_by_the_map() {
    reactor::simulate(2, async {
        let (rig, _) = rig(raid::Scheme::Single, 1, 1).await;
        let headers = rig.find(b"FLASHSTR");
        assert!(headers.len() > 20);
        for (drive, offset) in headers.iter().step_by(3) {
            rig.media[*drive].flip(offset + 40, 1);
        }
        for (drive, offset) in headers.iter().skip(1).step_by(3) {
            rig.media[*drive].damage(*offset, 512);
        }
        rig.churn(1..8).await;
        rig.verify(7, &[]).await;
        let status = rig.pool.status().await.unwrap();
        assert!(status.segments_reclaimed > 20, "{status:?}");
        rig.pool.close().await.unwrap();
    });
}

/// A drive that is away may come back with what is lacking: nothing is given up meanwhile.
#[test]
fn what_cannot_be_read_while_drives_are_away_is_left_alone() {
    reactor::simulate(3, async {
        let (rig, _) = rig(raid::Scheme::Raid5, 3, 1).await;
        let at = rig.find(&block(5, 0));
        let [(drive, offset)] = at[..] else { panic!("one copy") };
        rig.media[drive].flip(offset + 9, 3);
        rig.media[(drive + 1) % 3].fail();
        rig.churn(1..15).await;
        rig.verify(14, &[5]).await;
        let status = rig.pool.status().await.unwrap();
        assert!(status.segments_reclaimed > 10 && status.lost_blocks == 0, "{status:?}");
        let mut old = vec![0; BLOCK];
        rig.media[drive].peek(offset, &mut old);
        old[9] ^= 1 << 3;
        assert!(old == block(5, 0), "it is still there, but for the bit");
        rig.volume.write(5 * BLOCK as u64, &block(5, 0)).await.unwrap();
        rig.churn(15..17).await;
        rig.verify(16, &[]).await;
        rig.pool.close().await.unwrap();
    });
}

/// A log of two memories that had both lost a block ended the shard when it was to be destaged.
#[test]
fn a_block_lost_in_the_log_is_destaged_as_lost() {
    reactor::simulate(4, async {
        for memories in [1, 2] {
            let (rig, memories) = rig(raid::Scheme::Raid5, 3, memories).await;
            rig.volume.write(5 * BLOCK as u64, &block(5, 1)).await.unwrap();
            for memory in &memories {
                let data = block(5, 1);
                let is_there = |at: &u64| memory.with(*at, BLOCK, |b| b == data).unwrap();
                let at = (0..8 * MIB - BLOCK as u64).step_by(64).find(is_there).unwrap();
                memory.write(at, &[data[0] ^ 1]).unwrap();
            }
            assert_eq!(rig.read(5).await.unwrap_err().kind, Kind::Corrupt);
            rig.churn(1..8).await;
            rig.verify(7, &[5]).await;
            rig.volume.write(5 * BLOCK as u64, &block(5, 0)).await.unwrap();
            rig.verify(7, &[]).await;
            rig.pool.close().await.unwrap();
        }
    });
}

#[test]
fn a_pool_whose_log_lost_its_control_block_opens_for_whoever_accepts_that() {
    let (drives, memory) = (drives(6, 64 * MIB), pmem(8 * MIB));
    let log = LogSpec::Bbu(vec![Arc::clone(&memory)]);
    for round in 1..4 {
        // Some times the log, so that most of it went to the drives since the last checkpoint.
        let (given, same) = (drives.clone(), log.clone());
        let model = reactor::simulate(round, async move {
            let pool = if round == 1 {
                Pool::create(spec(&given, same), &[]).await.unwrap()
            } else {
                Pool::open(given, same, OpenOptions::default(), &[]).await.unwrap()
            };
            let name = format!("v{round}");
            let v = pool.create_volume(volume(&name, 12 * MIB)).await.unwrap();
            let mut model = Model::new();
            scribble(&v, &mut model, 2000 * round, round).await;
            model
        });
        // As a crash left it, and then damaged.
        [0, 4096].iter().for_each(|at| memory.write(*at, &[0xA5; 64]).unwrap());
        let (given, same) = (drives.clone(), log.clone());
        reactor::simulate(round, async move {
            let refused = Pool::open(given.clone(), same.clone(), OpenOptions::default(), &[]);
            let Err(error) = refused.await else { panic!("opened") };
            assert_eq!(error.kind, Kind::Loss);
            assert!(error.to_string().contains("control block"), "{error}");
            let accepting = OpenOptions { accept_loss: true, ..OpenOptions::default() };
            let pool = Pool::open(given, same, accepting, &[]).await.unwrap();
            // Nothing was copied, so nothing is lost.
            verify(&pool.volume(&format!("v{round}")).unwrap(), &model).await;
            pool.close().await.unwrap();
        });
    }
}

/// Whether the log still has a block that the map has learnt already.
async fn is_in_both(pool: &Pool, at: u64) -> bool {
    let view = pool.0.volumes.borrow()["db"].view;
    let both = pool.each(move |shard| async move {
        let mut extents = Extents::default();
        shard.base.map.lookup(view, at, 1, &mut extents).await?;
        let learnt = matches!(extents.iter().next().unwrap().contents, Contents::Stored { .. });
        Ok(learnt && matches!(shard.base.log.lookup(Key::new(view, at), 1).0, Found::Data(_)))
    });
    both.await.unwrap().contains(&true)
}

/// Damages a block in the log.
fn damage(memory: &Pmem, wanted: &[u8]) {
    let mut got = vec![0; BLOCK];
    let is_there = |at: &u64| {
        memory.read(*at, &mut got).unwrap();
        got == wanted
    };
    let at = (0..memory.capacity() - BLOCK as u64).step_by(64).find(is_there).unwrap();
    memory.write(at + 100, &[0xa5; 8]).unwrap();
}

#[test]
fn what_is_damaged_in_the_log_is_read_from_the_drives_once_it_is_there() {
    reactor::simulate(8, async {
        let (drives, memory) = (drives(6, 64 * MIB), pmem(8 * MIB));
        let spec = spec(&drives, LogSpec::Bbu(vec![Arc::clone(&memory)]));
        let pool = Pool::create(spec, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
        let mut written = 0;
        while !is_in_both(&pool, 0).await {
            v.write(written * BLOCK as u64, &block(written, 0)).await.unwrap();
            written += 1;
        }
        damage(&memory, &block(0, 0));
        damage(&memory, &block(written - 1, 0));
        let mut got = vec![0; BLOCK];
        v.read(0, &mut got).await.unwrap();
        assert!(got == block(0, 0));
        // The newest is in the log alone.
        let lost = v.read((written - 1) * BLOCK as u64, &mut got).await.unwrap_err();
        assert_eq!(lost.kind, Kind::Corrupt);
    });
}

/// It was said to be lost, and given a moment later.
#[test]
fn what_is_damaged_in_the_log_is_waited_for_on_its_way_to_the_drives() {
    reactor::simulate(9, async {
        let (media, drives) = simulated(4, 96 * MIB, 0);
        let memory = pmem(8 * MIB);
        let pool = Pool::create(spec(&drives, LogSpec::Bbu(vec![Arc::clone(&memory)])), &[]);
        let pool = pool.await.unwrap();
        let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
        for at in 0..1724 {
            if at == 1024 {
                reactor::sleep(Duration::from_millis(100)).await;
                media.iter().for_each(|medium| medium.stall(Duration::from_secs(10)));
            }
            v.write(at * BLOCK as u64, &block(at, 0)).await.unwrap();
        }
        // Time is simulated: destage has put it into a stripe, which the drives leave unwritten.
        reactor::sleep(Duration::from_millis(100)).await;
        damage(&memory, &block(1024, 0));
        let mut got = vec![0; BLOCK];
        v.read(1024 * BLOCK as u64, &mut got).await.unwrap();
        assert!(got == block(1024, 0));
        pool.close().await.unwrap();
    });
}

/// A crash had left a new volume in the catalog of one drive. The pool opened with it, and the others never heard of
/// it: without that drive the volume was gone.
#[test]
pub(super) fn a_change_cut_short_that_an_opening_shows_is_on_all_drives() {
    reactor::simulate(1, async {
        let (media, drives) = simulated(3, 160 * MIB, 0);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let scheme = raid::Scheme::Mirror { copies: 3 };
        let spec = PoolSpec { scheme, ..spec(&drives, log.clone()) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let catalogs = |drive: &media::Simulated| {
            let mut bytes = vec![0; usize64(CatalogArea::LEAST.end() - format::area::CATALOG)];
            drive.peek(format::area::CATALOG, &mut bytes);
            bytes
        };
        let old = catalogs(&media[1]);
        pool.create_volume(volume("late", MIB)).await.unwrap();
        pool.close().await.unwrap();
        media[1..].iter().for_each(|drive| drive.poke(format::area::CATALOG, &old));
        let options = OpenOptions { degraded: true, ..OpenOptions::default() };
        let pool = Pool::open(drives.clone(), log.clone(), options, &[]).await.unwrap();
        assert_eq!(pool.volumes(), ["late"]);
        pool.close().await.unwrap();
        let pool = Pool::open(drives[1..].to_vec(), log, options, &[]).await.unwrap();
        assert_eq!(pool.volumes(), ["late"]);
        pool.close().await.unwrap();
    });
}
