//! Checkpoints and trims: what the roots name, and where a log begins, is there in whatever moment power fails, on as many
//! drives as the labels say.

use std::time::Duration;

use media::Operation;
use media::drive::Refusal;

use super::rejoin::settled;
use super::snapshots::empty_all;
use super::*;
use crate::address::{Location, SegmentId};
use crate::area;
use crate::canary::{Step, misses};
use crate::drives::DriveState;
use crate::format::area as at;
use crate::format::catalog::CatalogArea;
use crate::segment::{SegmentInfo, Stream};
use crate::segment_table::Segment;
use crate::shard::Shard;

const DEGRADED: OpenOptions = OpenOptions {
    degraded: true,
    import: false,
    accept_loss: false,
    unattended: false,
    known_term: 0,
    known_log: None,
    new_log: None,
};

/// A pool of four drives of which one may go, and a volume with something in it; nothing is under way.
async fn filled(drives: &[Arc<Drive>], log: LogSpec, seed: u64) -> (Pool, Volume, Model) {
    let spec = PoolSpec { scheme: raid::Scheme::Raid5, ..spec(drives, log) };
    let pool = Pool::create(PoolSpec { au_bytes: Some(MIB), ..spec }, &[]).await.unwrap();
    let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
    let mut model = Model::new();
    scribble(&v, &mut model, 600, seed).await;
    reactor::sleep(Duration::from_secs(1)).await;
    (pool, v, model)
}

async fn flush(pool: &Pool) {
    pool.each(|shard: Rc<Shard>| async move { shard.keeper.flush().await }).await.unwrap();
}

fn cut(media: &[Arc<Simulated>], seed: u64) {
    media.iter().for_each(|drive| drive.power_cut(&mut Prng::new(seed)));
    media.iter().for_each(|drive| drive.power_on());
}

fn without(drives: &[Arc<Drive>], gone: usize) -> Vec<Arc<Drive>> {
    let there = drives.iter().enumerate().filter(|(n, _)| *n != gone);
    there.map(|(_, drive)| Arc::clone(drive)).collect()
}

/// Power failed right behind a checkpoint, and its manifest was in the drives' caches, or on its way there.
#[test]
fn what_a_root_names_is_there_after_a_power_cut() {
    for seed in 0..6 {
        let (media, all) = simulated(4, 96 * MIB, seed * 100);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let (given, same) = (all.clone(), log.clone());
        let model = reactor::simulate(seed, async move {
            let (pool, _, model) = filled(&given, same, seed).await;
            flush(&pool).await;
            cut(&media, seed);
            model
        });
        reactor::simulate(seed, async move {
            let opened = Pool::open(all, log, OpenOptions::default(), &[]).await;
            let pool = opened.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            verify(&pool.volume("db").unwrap(), &model).await;
        });
    }
}

/// Each one that failed left its blocks in use for good, over openings too: metadata had no room left in the end.
#[test]
fn a_checkpoint_that_finds_no_room_leaves_nothing_behind() {
    let (media, all) = simulated(4, 96 * MIB, 3);
    reactor::simulate(3, async move {
        let (pool, _, _) = filled(&all, LogSpec::Bbu(vec![pmem(8 * MIB)]), 3).await;
        let take = || pool.each(|shard: Rc<Shard>| async move { shard.checkpoints.take().await });
        let live = || {
            pool.each(|shard: Rc<Shard>| async move {
                let table = shard.base.table();
                let of_metadata = table.iter().filter(|of| of.info.stream == Stream::Metadata);
                Ok(of_metadata.map(|segment| segment.live).sum::<u32>())
            })
        };
        take().await.unwrap();
        let before = live().await.unwrap();
        let (operation, kind) = (Some(Operation::Write), media::Kind::Full);
        let range = at::ROOTS..at::ROOTS + 64 * BLOCK as u64;
        for drive in &media {
            drive.refuse(Refusal { operation, range: range.clone(), kind, times: None });
        }
        assert_eq!(take().await.unwrap_err().kind, Kind::Full);
        let held = live().await.unwrap();
        // Nor does each take numbers of segments, which are never used again.
        let next = || pool.0.common.allocator.lock().next();
        let numbered = next();
        for _ in 0..20 {
            assert_eq!(take().await.unwrap_err().kind, Kind::Full);
        }
        // What the first one wrote before is held until one is done. The others wrote nothing.
        assert!(held > before);
        assert_eq!((live().await.unwrap(), next()), (held, numbered));
        media.iter().for_each(|drive| drive.refuse_nothing());
        take().await.unwrap();
        assert_eq!(live().await.unwrap(), before);
    });
}

/// The shard has so many segments more, which are nowhere.
pub(super) fn put_segments(shard: &Shard, count: u32) {
    let mut table = shard.base.writer.table_mut();
    let some = table.iter().next().map(|segment| SegmentInfo::clone(&segment.info)).unwrap();
    for n in 0..count {
        let id = SegmentId::new(1_000_000 + n);
        let info = SegmentInfo { id, stream: Stream::User, ..some.clone() };
        // Nobody finds any to be worth reclaiming.
        let live = info.geometry.slots();
        table.insert(Segment::sealed(Rc::new(info), Some(1), live));
    }
}

/// Each wrote the description of every segment that the shard has: 45 MB for 24 drives of 15 TB.
#[test]
fn a_checkpoint_writes_what_changed_and_not_what_there_is() {
    let all = drives(4, 96 * MIB);
    reactor::simulate(9, async move {
        let (pool, _, _) = filled(&all, LogSpec::Bbu(vec![pmem(8 * MIB)]), 9).await;
        let wrote = pool.each(|shard: Rc<Shard>| async move {
            put_segments(&shard, 50_000);
            let take = || async {
                shard.checkpoints.take().await?;
                Ok::<_, crate::Error>(shard.checkpoints.blocks())
            };
            let first = take().await?;
            // A segment for the map's pages may have come, and counts of what was written have changed.
            let (second, third) = (take().await?, take().await?);
            for n in [7, 20_000, 49_999] {
                let id = SegmentId::new(1_000_000 + n);
                shard.base.writer.table_mut().add_live(Location::new(id, 0), 50);
            }
            let few = take().await?;
            Ok([first, second, third, few])
        });
        let wrote = wrote.await.unwrap();
        for [(first, pages), (second, _), (third, _), (few, same)] in wrote {
            // 84 to a page, and one of the manifest for some hundred pages.
            let least = 50_000 / 84;
            assert!(pages > least && first > least, "{first} blocks, {pages} pages");
            for (blocks, changed) in [(second, 4), (third, 4), (few, 7)] {
                assert!(blocks <= changed + 4, "{blocks} blocks, with {first} before");
            }
            assert_eq!(pages, same);
        }
    });
}

/// Pages of a manifest that nothing changes stay where they are. A segment of metadata that is to be given back, as its
/// drive is, would keep them for good.
#[test]
fn pages_of_the_manifest_leave_a_segment_that_is_emptied() {
    let all = drives(4, 96 * MIB);
    reactor::simulate(10, async move {
        let (pool, _, _) = filled(&all, LogSpec::Bbu(vec![pmem(8 * MIB)]), 10).await;
        let left = pool.each(|shard: Rc<Shard>| async move {
            // So many that most pages of theirs say what they said.
            put_segments(&shard, 5_000);
            shard.checkpoints.take().await?;
            shard.base.writer.leave(|_| true).await?;
            let of_metadata = |segment: &&Segment| segment.info.stream == Stream::Metadata;
            let ids = || -> Vec<SegmentId> {
                let table = shard.base.table();
                table.iter().filter(of_metadata).map(|segment| segment.info.id).collect()
            };
            let before = ids();
            for id in &before {
                shard.checkpoints.evacuate(*id).await?;
            }
            shard.checkpoints.take().await?;
            shard.checkpoints.take().await?;
            Ok((before.len(), ids().iter().filter(|id| before.contains(id)).count()))
        });
        for (before, left) in left.await.unwrap() {
            assert!(before > 0);
            assert_eq!(left, 0, "of {before} segments");
        }
    });
}

#[test]
fn pages_of_the_manifest_that_stay_are_missed() {
    misses(Step::ManifestLeaves, "segments", pages_of_the_manifest_leave_a_segment_that_is_emptied);
}

#[test]
fn the_flush_before_a_root_is_missed() {
    misses(Step::CheckpointFlush, "seed", what_a_root_names_is_there_after_a_power_cut);
}

#[test]
fn the_wait_for_metadata_on_its_way_is_missed() {
    misses(Step::MetadataInFlight, "seed", what_a_root_names_is_there_after_a_power_cut);
}

/// The ring had come round, and its records lay over those that its control block still began with.
#[test]
fn a_log_does_not_begin_with_what_was_written_over() {
    let (all, log) = (drives(4, 96 * MIB), LogSpec::Bbu(vec![pmem(4 * MIB)]));
    let (given, same) = (all.clone(), log.clone());
    let model = reactor::simulate(1, async move {
        let (pool, v, mut model) = filled(&given, same, 1).await;
        // More than twice the ring.
        scribble(&v, &mut model, 600, 2).await;
        assert!(pool.undestaged().unwrap()[0].start > 0);
        model
    });
    reactor::simulate(2, async move {
        let opened = Pool::open(all, log, OpenOptions::default(), &[]).await;
        let pool = opened.unwrap_or_else(|error| panic!("the log is not there: {error}"));
        verify(&pool.volume("db").unwrap(), &model).await;
    });
}

#[test]
fn the_control_block_before_a_trim_is_missed() {
    misses(Step::TrimControl, "", a_log_does_not_begin_with_what_was_written_over);
}

/// Blocks were moved while a drive failed, and their old places given back with the next checkpoint: no log has them. After
/// a crash the labels called the drive whole, nobody made anew what it lacked, and with another drive it was lost.
#[test]
fn a_drive_that_lacks_what_a_root_names_is_made_whole_after_a_crash() {
    let (media, all) = simulated(4, 96 * MIB, 1);
    let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
    let (given, same) = (all.clone(), log.clone());
    let model = reactor::simulate(1, async move {
        let (pool, _, model) = filled(&given, same, 1).await;
        pool.audit_space().await.unwrap();
        let (operation, kind) = (Some(Operation::Write), media::Kind::Medium);
        let range = CatalogArea::LEAST.end()..u64::MAX;
        media[1].refuse(Refusal { operation, range, kind, times: Some(1) });
        empty_all(&pool).await;
        let state = pool.status().await.unwrap().drives[1].state;
        assert_eq!(state, DriveState::Failed);
        cut(&media, 1);
        model
    });
    let (given, same) = (all.clone(), log.clone());
    reactor::simulate(2, async move {
        let pool = Pool::open(given, same, OpenOptions::default(), &[]).await.unwrap();
        while pool.status().await.unwrap().drives[1].state == DriveState::Missing {
            reactor::yield_now().await;
        }
        assert_eq!(settled(&pool, 1).await.0, DriveState::Online);
        pool.close().await.unwrap();
    });
    reactor::simulate(3, async move {
        let opened = Pool::open(without(&all, 0), log, DEGRADED, &[]).await;
        let pool = opened.unwrap_or_else(|error| panic!("one drive is too many: {error}"));
        verify(&pool.volume("db").unwrap(), &model).await;
    });
}

#[test]
fn labels_that_tell_after_a_root_are_missed() {
    misses(Step::RootTells, "", a_drive_that_lacks_what_a_root_names_is_made_whole_after_a_crash);
}

/// What each drive says of shard 0's checkpoint.
async fn generations(pool: &Pool) -> Vec<u64> {
    let superblock = &pool.0.common.superblock;
    let mut all = Vec::new();
    for index in superblock.drives.indices() {
        let drive = superblock.drives.drive(index).unwrap();
        let root = area::read_root(drive, superblock.pool(), 0).await.unwrap();
        all.push(root.unwrap().generation);
    }
    all
}

/// Refuses the roots that are written to these drives, as where no space is left behind them.
fn refuse_roots(media: &[Arc<Simulated>]) {
    let (operation, kind) = (Some(Operation::Write), media::Kind::Full);
    let range = at::ROOTS..at::ROOTS + 64 * BLOCK as u64;
    for drive in media {
        drive.refuse(Refusal { operation, range: range.clone(), kind, times: None });
    }
}

/// Refuses what else is written, so that no checkpoint comes to its root.
fn refuse_contents(media: &[Arc<Simulated>]) {
    let (operation, kind) = (Some(Operation::Write), media::Kind::Full);
    let range = CatalogArea::LEAST.end()..u64::MAX;
    for drive in media {
        drive.refuse(Refusal { operation, range: range.clone(), kind, times: None });
    }
}

/// A pool whose last checkpoint was cut short: its root is on drive 0 alone.
fn cut_short(media: &[Arc<Simulated>], all: &[Arc<Drive>], log: &LogSpec) -> Model {
    let (media, given, log) = (media.to_vec(), all.to_vec(), log.clone());
    reactor::simulate(1, async move {
        let (pool, v, mut model) = filled(&given, log, 1).await;
        let take = || pool.each(|shard: Rc<Shard>| async move { shard.checkpoints.take().await });
        take().await.unwrap();
        scribble(&v, &mut model, 100, 2).await;
        pool.audit_space().await.unwrap();
        refuse_roots(&media[1..]);
        assert_eq!(take().await.unwrap_err().kind, Kind::Full);
        media.iter().for_each(|drive| drive.refuse_nothing());
        let found = generations(&pool).await;
        assert_eq!(found[1..], [found[0] - 1; 3]);
        model
    })
}

/// The opening went on from it, and trimmed the log and wrote over what the one before had named. Then that drive went.
#[test]
fn the_root_that_an_opening_goes_on_from_is_on_all_drives() {
    let (media, all) = simulated(4, 96 * MIB, 1);
    let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
    let model = cut_short(&media, &all, &log);
    let (given, same, refusing) = (all.clone(), log.clone(), media.clone());
    reactor::simulate(2, async move {
        refuse_contents(&refusing);
        let pool = Pool::open(given, same, OpenOptions::default(), &[]).await.unwrap();
        let found = generations(&pool).await;
        assert_eq!(found, [found[0]; 4], "not all drives have the root");
    });
    media.iter().for_each(|drive| drive.refuse_nothing());
    reactor::simulate(3, async move {
        let pool = Pool::open(without(&all, 0), log, DEGRADED, &[]).await.unwrap();
        verify(&pool.volume("db").unwrap(), &model).await;
    });
}

#[test]
fn a_root_that_is_not_spread_is_missed() {
    misses(
        Step::OpeningRoot,
        "not all drives",
        the_root_that_an_opening_goes_on_from_is_on_all_drives,
    );
}

/// Where some have no space for it the opening goes on once no loss that the pool bears takes it away, and not before.
#[test]
fn a_root_is_spread_as_far_as_the_pool_bears_losses() {
    let (media, all) = simulated(4, 96 * MIB, 1);
    let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
    let model = cut_short(&media, &all, &log);
    reactor::simulate(2, async move {
        refuse_roots(&media[1..]);
        refuse_contents(&media);
        let refused = Pool::open(all.clone(), log.clone(), OpenOptions::default(), &[]).await;
        assert_eq!(refused.err().map(|error| error.kind), Some(Kind::Full));
        media[2].refuse_nothing();
        refuse_contents(&media[2..3]);
        let pool = Pool::open(all, log, OpenOptions::default(), &[]).await.unwrap();
        let found = generations(&pool).await;
        assert_eq!(found, [0, 1, 0, 1].map(|behind| found[0] - behind));
        media.iter().for_each(|drive| drive.refuse_nothing());
        verify(&pool.volume("db").unwrap(), &model).await;
        pool.close().await.unwrap();
    });
}

/// One shard's root could not be spread, and the others had begun to write over what the root before it names.
#[test]
fn no_shard_writes_before_the_roots_of_all_are_spread() {
    let (media, all) = simulated(4, 96 * MIB, 5);
    let log = LogSpec::Bbu(vec![pmem(16 * MIB)]);
    let refuse_second = |media: &[Arc<Simulated>]| {
        let (operation, kind) = (Some(Operation::Write), media::Kind::Full);
        for drive in media {
            let range = area::root_at(1, 0)..area::root_at(2, 0);
            drive.refuse(Refusal { operation, range, kind, times: None });
        }
    };
    let contents = |media: &[Arc<Simulated>]| {
        let begin = CatalogArea::LEAST.end();
        let mut bytes = vec![0; usize64(96 * MIB - begin)];
        let sum = |drive: &Arc<Simulated>| {
            drive.peek(begin, &mut bytes);
            stdx::crc32c(&bytes)
        };
        media.iter().map(sum).collect::<Vec<_>>()
    };
    let (given, same, refusing) = (all.clone(), log.clone(), media.clone());
    reactor::simulate(1, async move {
        let spec = PoolSpec { scheme: raid::Scheme::Raid5, ..spec(&given, same) };
        let spec = PoolSpec { au_bytes: Some(MIB), shards: Some(2), ..spec };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
        scribble(&v, &mut Model::new(), 300, 5).await;
        pool.audit_space().await.unwrap();
        refuse_second(&refusing[1..]);
        let take = |shard: Rc<Shard>| async move { shard.checkpoints.take().await };
        assert_eq!(pool.each(take).await.unwrap_err().kind, Kind::Full);
    });
    let before = contents(&media);
    reactor::simulate(2, async move {
        let refused = Pool::open(all.clone(), log.clone(), OpenOptions::default(), &[]).await;
        assert_eq!(refused.err().map(|error| error.kind), Some(Kind::Full));
        assert!(contents(&media) == before, "something was written");
        media.iter().for_each(|drive| drive.refuse_nothing());
        Pool::open(all, log, OpenOptions::default(), &[]).await.unwrap();
    });
}

/// It could not be read, and had the root of a checkpoint that was cut short. The next opening found that one, of which all
/// had been written over.
#[test]
fn a_drive_whose_root_could_not_be_read_has_no_later_one() {
    let (media, all) = simulated(4, 96 * MIB, 1);
    let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
    let model = cut_short(&media, &all, &log);
    reactor::simulate(2, async move {
        media[0].refuse(Refusal {
            operation: Some(Operation::Read),
            range: area::root_at(0, 0)..area::root_at(1, 0),
            kind: media::Kind::Passing,
            times: Some(1),
        });
        refuse_contents(&media);
        let pool = Pool::open(all, log, OpenOptions::default(), &[]).await.unwrap();
        let found = generations(&pool).await;
        assert_eq!(found, [found[1]; 4]);
        media.iter().for_each(|drive| drive.refuse_nothing());
        verify(&pool.volume("db").unwrap(), &model).await;
        pool.close().await.unwrap();
    });
}

/// Half of a mirror did not take a change of the catalog. Its labels were as new as those that the node had seen, and from
/// that half alone the pool was opened, without a volume of which somebody was told.
#[test]
fn a_drive_that_lacks_a_change_of_the_catalog_is_not_the_pool_by_itself() {
    let (media, all) = simulated(2, 64 * MIB, 1);
    let log = LogSpec::Bbu(vec![pmem(4 * MIB)]);
    let (given, same) = (all.clone(), log.clone());
    let known_term = reactor::simulate(1, async move {
        let scheme = raid::Scheme::Mirror { copies: 2 };
        let spec = PoolSpec { scheme, au_bytes: Some(MIB), ..spec(&given, same) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let (operation, kind) = (Some(Operation::Write), media::Kind::Medium);
        let range = at::CATALOG..CatalogArea::LEAST.end();
        media[1].refuse(Refusal { operation, range, kind, times: Some(1) });
        pool.create_volume(volume("db", MIB)).await.unwrap();
        assert_eq!(media[1].counters().errors, 1);
        pool.durable_term()
    });
    reactor::simulate(2, async move {
        let knows = OpenOptions { known_term, ..DEGRADED };
        match Pool::open(without(&all, 0), log.clone(), knows, &[]).await {
            Err(error) => assert_eq!(error.kind, Kind::Missing, "{error}"),
            Ok(pool) => assert_eq!(pool.volumes(), ["db"], "a volume is gone"),
        }
        let pool = Pool::open(without(&all, 1), log, knows, &[]).await.unwrap();
        assert_eq!(pool.volumes(), ["db"]);
    });
}

/// It had taken a change that the other half had no space for, failed at what takes that back, and had labels as new as any.
#[test]
fn a_drive_that_kept_a_change_taken_back_is_not_the_pool_by_itself() {
    let (media, all) = simulated(2, 64 * MIB, 1);
    let log = LogSpec::Bbu(vec![pmem(4 * MIB)]);
    let (given, same) = (all.clone(), log.clone());
    let known_term = reactor::simulate(1, async move {
        let scheme = raid::Scheme::Mirror { copies: 2 };
        let spec = PoolSpec { scheme, au_bytes: Some(MIB), ..spec(&given, same) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        pool.create_volume(volume("db", MIB)).await.unwrap();
        let half = |half| CatalogArea::LEAST.half_at(half)..CatalogArea::LEAST.half_at(half + 1);
        let operation = Some(Operation::Write);
        let (failing, scarce) = (media::Kind::Medium, media::Kind::Full);
        media[0].refuse(Refusal { operation, range: half(1), kind: failing, times: None });
        media[1].refuse(Refusal { operation, range: half(0), kind: scarce, times: None });
        assert_eq!(pool.delete_volume("db").await.unwrap_err().kind, Kind::Full);
        assert_eq!(pool.status().await.unwrap().drives[0].state, DriveState::Failed);
        media.iter().for_each(|drive| drive.refuse_nothing());
        pool.durable_term()
    });
    reactor::simulate(2, async move {
        let knows = OpenOptions { known_term, ..DEGRADED };
        match Pool::open(without(&all, 1), log.clone(), knows, &[]).await {
            Err(error) => assert_eq!(error.kind, Kind::Missing, "{error}"),
            Ok(pool) => assert_eq!(pool.volumes(), ["db"], "a volume is gone"),
        }
        let pool = Pool::open(without(&all, 0), log, knows, &[]).await.unwrap();
        assert_eq!(pool.volumes(), ["db"]);
    });
}

#[test]
fn labels_that_tell_after_a_change_of_the_catalog_are_missed() {
    misses(
        Step::CatalogTells,
        "is gone",
        a_drive_that_lacks_a_change_of_the_catalog_is_not_the_pool_by_itself,
    );
}

/// It had failed at a moment when nobody wrote, so that the labels did not say so yet.
#[test]
fn a_drive_that_failed_just_now_is_taken_back() {
    let (media, all) = simulated(4, 96 * MIB, 1);
    reactor::simulate(1, async move {
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let (pool, v, model) = filled(&all, log, 1).await;
        media[1].fail();
        pool.try_drives().await.unwrap();
        media[1].revive();
        let back = pool.rejoin(Arc::clone(&all[1])).await;
        assert_eq!(back.unwrap_or_else(|error| panic!("it stays away: {error}")), 1);
        assert_eq!(settled(&pool, 1).await.0, DriveState::Online);
        verify(&v, &model).await;
    });
}

#[test]
fn labels_that_tell_before_a_drive_is_taken_back_are_missed() {
    misses(Step::ReadmitTells, "it stays away", a_drive_that_failed_just_now_is_taken_back);
}
