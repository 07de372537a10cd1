//! Less space than was to be expected: behind the drives, or on those that are left.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use media::{Operation, Refusal};

use super::*;
use crate::area::catalog;
use crate::canary::{self, Step};
use crate::format::area as at;
use crate::format::catalog::{Catalog, CatalogArea, PAGE};
use crate::shard::Shard;

/// Overwrites a volume block by block until the pool has no space; how many it took.
pub(super) async fn write_until_full(volume: &Volume, model: &mut Model, version: u64) -> u64 {
    for at in 0..volume.len() / BLOCK as u64 {
        match volume.write(at * BLOCK as u64, &block(at, version)).await {
            Ok(()) => _ = model.insert(at, version),
            Err(error) => {
                assert_eq!(error.kind, Kind::Full, "{error}");
                return at;
            }
        }
    }
    volume.len() / BLOCK as u64
}

/// A file system that was full took the drives out of use, and the pool with them.
#[test]
fn without_space_behind_the_drives_writers_are_refused_until_it_is_back() {
    reactor::simulate(1, async {
        let (media, drives) = simulated(3, 96 * MIB, 0);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let spec = PoolSpec { scheme: raid::Scheme::Raid5, ..spec(&drives, log.clone()) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 48 * MIB)).await.unwrap();
        let blocks = v.len() / BLOCK as u64;
        let mut model = Model::new();
        for at in 0..256 {
            v.write(at * BLOCK as u64, &block(at, 0)).await.unwrap();
            model.insert(at, 0);
        }
        for full in [&media[..], &media[1..2]] {
            full.iter().for_each(|drive| drive.set_full(true));
            assert!(write_until_full(&v, &mut model, 1).await < blocks);
            verify(&v, &model).await;
            v.deallocate(7 * BLOCK as u64, BLOCK as u64).await.unwrap();
            model.remove(&7);
            verify(&v, &model).await;
            full.iter().for_each(|drive| drive.set_full(false));
            // Whoever tries again finds that it is back.
            let back = async {
                while v.write(0, &block(0, 2)).await.is_err() {
                    reactor::sleep(Duration::from_millis(10)).await;
                }
            };
            reactor::timeout(Duration::from_secs(60), back).await.expect("there is space again");
            model.insert(0, 2);
            assert_eq!(write_until_full(&v, &mut model, 3).await, blocks);
            verify(&v, &model).await;
            let volume = volume("gone", MIB);
            pool.create_volume(volume).await.unwrap();
            pool.delete_volume("gone").await.unwrap();
        }
        pool.close().await.unwrap();
        let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
        verify(&pool.volume("db").unwrap(), &model).await;
        let status = pool.status().await.unwrap();
        assert!(status.drives.iter().all(|d| d.state == crate::drives::DriveState::Online));
        pool.close().await.unwrap();
    });
}

/// Reclaim can read nothing of what has the space while a drive is away, since another one has rotted: writers waited
/// for ever.
#[test]
fn where_what_has_the_space_cannot_be_read_writers_are_refused_until_it_can() {
    reactor::simulate(15, async {
        let mut rig = rejoin::rig(4, raid::Scheme::Raid5, rejoin::bbu(), 1, 15).await;
        let room = rig.pool.status().await.unwrap().capacity / MIB * MIB;
        let mut held = Model::new();
        let large = rig.pool.create_volume(volume("large", room / 4 * 3)).await.unwrap();
        write_until_full(&large, &mut held, 0).await;
        rig.pool.audit_space().await.unwrap();
        let drives = &rig.pool.0.common.superblock.drives;
        let begins = |(at, version): (&u64, &u64)| block(*at, *version)[..16].to_vec();
        let contents: BTreeSet<_> = held.iter().chain(&rig.model).map(begins).collect();
        rig.media[1].rot_where(1_000_000, |_, block| contents.contains(&block[..16]));
        rig.media[2].fail();
        drives.fail(2, crate::drives::Cause::Operator);
        let blocks = rig.v.len() / BLOCK as u64;
        let overwritten = async {
            let mut version = 1;
            while write_until_full(&rig.v, &mut rig.model, version).await == blocks {
                version += 1;
            }
        };
        let span = Duration::from_secs(600);
        reactor::timeout(span, overwritten).await.expect("nobody waits for ever");
        let refuses = rig.pool.status().await.unwrap().refuses;
        assert_eq!(refuses, Some(crate::WritesRefused::Unreadable));
        rig.give_back(2).await;
        let back = async {
            while write_until_full(&rig.v, &mut rig.model, 1000).await < blocks {
                reactor::sleep(Duration::from_millis(100)).await;
            }
        };
        reactor::timeout(span, back).await.expect("there is space again");
        assert_eq!(rig.pool.status().await.unwrap().refuses, None);
        verify(&rig.v, &rig.model).await;
        verify(&large, &held).await;
        rig.pool.close().await.unwrap();
    });
}

/// It wrote what it had learnt before it said a word, and waited for the space for ever.
#[test]
fn a_pool_opens_although_there_is_no_space_behind_its_drives() {
    let (media, drives) = simulated(3, 96 * MIB, 0);
    let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
    let spec = PoolSpec { scheme: raid::Scheme::Raid5, ..spec(&drives, log.clone()) };
    let full = media.clone();
    let mut model = reactor::simulate(6, async move {
        let pool = Pool::create(spec, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 48 * MIB)).await.unwrap();
        let mut model = Model::new();
        scribble(&v, &mut model, 4000, 1).await;
        full.iter().for_each(|drive| drive.set_full(true));
        write_until_full(&v, &mut model, 1).await;
        model
    });
    reactor::simulate(7, async move {
        let opened = Pool::open(drives, log, OpenOptions::default(), &[]);
        let opened = reactor::timeout(Duration::from_secs(60), opened).await;
        let pool = opened.expect("it opens").unwrap();
        let v = pool.volume("db").unwrap();
        verify(&v, &model).await;
        media.iter().for_each(|drive| drive.set_full(false));
        let back = async {
            while v.write(0, &block(0, 2)).await.is_err() {
                reactor::sleep(Duration::from_millis(10)).await;
            }
        };
        reactor::timeout(Duration::from_secs(60), back).await.expect("there is space again");
        model.insert(0, 2);
        assert_eq!(write_until_full(&v, &mut model, 3).await, v.len() / BLOCK as u64);
        verify(&v, &model).await;
        pool.close().await.unwrap();
    });
}

/// What drives answer to whoever writes catalogs.
pub(super) fn refuse_catalogs(drives: &[Arc<Simulated>], kind: media::Kind, times: Option<u64>) {
    let range = at::CATALOG..CatalogArea::LEAST.end();
    let refusal = Refusal { operation: Some(Operation::Write), range, kind, times };
    for drive in drives {
        drive.refuse_nothing();
        drive.refuse(refusal.clone());
    }
}

/// One drive had no space where its catalog lies: a change was refused, and after the next crash the whole pool stayed
/// closed, since that drive could not be given the catalog that all others had.
#[test]
fn a_pool_opens_although_a_drive_has_no_space_for_the_catalog_that_the_others_have() {
    let (media, drives) = simulated(6, 96 * MIB, 0);
    let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
    let spec = spec(&drives, log.clone());
    let full = media.clone();
    let model = reactor::simulate(6, async move {
        let pool = Pool::create(spec, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 48 * MIB)).await.unwrap();
        let mut model = Model::new();
        scribble(&v, &mut model, 1000, 1).await;
        refuse_catalogs(&full[3..4], media::Kind::Full, None);
        let refused = pool.create_volume(volume("more", MIB)).await.err().unwrap();
        assert_eq!(refused.kind, Kind::Full, "{refused}");
        assert!(refused.to_string().contains("drive 3"), "{refused}");
        model
    });
    for round in 7..9 {
        let (media, drives) = (media.clone(), drives.clone());
        let (log, model) = (log.clone(), model.clone());
        reactor::simulate(round, async move {
            let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
            assert_eq!(pool.volumes(), ["db"]);
            verify(&pool.volume("db").unwrap(), &model).await;
            let refused = pool.rename_volume("db", "other").await.err().unwrap();
            assert_eq!(refused.kind, Kind::Full, "{refused}");
            if round == 8 {
                // Whoever tries again finds that there is space again.
                media[3].refuse_nothing();
                pool.rename_volume("db", "other").await.unwrap();
                pool.rename_volume("other", "db").await.unwrap();
                pool.close().await.unwrap();
            }
        });
    }
    // The one that missed them has them as well.
    reactor::simulate(9, async move {
        let found = crate::area::catalog::read(&drives[3], CatalogArea::LEAST, [7; 16])
            .await
            .unwrap()
            .unwrap();
        let other = crate::area::catalog::read(&drives[0], CatalogArea::LEAST, [7; 16])
            .await
            .unwrap()
            .unwrap();
        assert_eq!(found, other);
    });
}

/// A change that was cut short, and that so few drives have that an opening may miss it, is not shown to anybody.
#[test]
fn a_pool_stays_closed_while_there_is_no_space_for_a_catalog_that_hardly_a_drive_has() {
    let (media, drives) = simulated(6, 96 * MIB, 0);
    let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
    let spec = spec(&drives, log.clone());
    let busy = media.clone();
    reactor::simulate(6, async move {
        let pool = Pool::create(spec, &[]).await.unwrap();
        refuse_catalogs(&busy[2..], media::Kind::Passing, None);
        let (all, had) = (busy.clone(), busy[1].counters().writes);
        let changing = reactor::spawn(async move { pool.create_volume(volume("db", MIB)).await });
        while all[1].counters().writes == had {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        drop(changing);
    });
    reactor::simulate(7, async move {
        refuse_catalogs(&media[2..], media::Kind::Full, None);
        let open = || Pool::open(drives.clone(), log.clone(), OpenOptions::default(), &[]);
        let refused = open().await.err().unwrap();
        assert_eq!(refused.kind, Kind::Full, "{refused}");
        refuse_catalogs(&media[3..], media::Kind::Full, None);
        media[2].refuse_nothing();
        let pool = open().await.unwrap();
        assert_eq!(pool.volumes(), ["db"]);
        media.iter().for_each(|drive| drive.refuse_nothing());
        pool.close().await.unwrap();
    });
}

/// It waited for the drive for ever, and whoever opens pools one after the other with it.
#[test]
fn a_pool_opens_although_one_of_its_drives_hangs_that_it_can_do_without() {
    let (media, drives) = simulated(6, 96 * MIB, 0);
    let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
    let spec = spec(&drives, log.clone());
    let model = reactor::simulate(8, async move {
        let pool = Pool::create(spec, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 48 * MIB)).await.unwrap();
        let mut model = Model::new();
        scribble(&v, &mut model, 6000, 1).await;
        model
    });
    reactor::simulate(9, async move {
        media[3].set_hanging(true);
        let options = OpenOptions { degraded: true, ..OpenOptions::default() };
        let opened = Pool::open(drives, log, options, &[]);
        let opened = reactor::timeout(Duration::from_secs(600), opened).await;
        let pool = opened.expect("there is an answer").unwrap();
        verify(&pool.volume("db").unwrap(), &model).await;
        pool.close().await.unwrap();
    });
}

/// A crash has stripes counted twice; that was corrected only in a moment in which nobody wrote. A pool that was
/// half empty said that it was full.
#[test]
fn what_a_crash_counted_twice_is_found_while_others_write() {
    let (_, drives) = simulated(3, 64 * MIB, 0);
    let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
    let spec = PoolSpec { scheme: raid::Scheme::Raid5, ..spec(&drives, log.clone()) };
    let made = PoolSpec { au_bytes: Some(MIB), ..spec };
    let (blocks, hot) = (6000, 64);
    reactor::simulate(10, async move {
        let pool = Pool::create(made, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", blocks * BLOCK as u64)).await.unwrap();
        for at in 0..blocks {
            v.write(at * BLOCK as u64, &block(at, 0)).await.unwrap();
        }
    });
    reactor::simulate(11, async move {
        let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
        let v = pool.volume("db").unwrap();
        let done = Rc::new(std::cell::Cell::new(false));
        let writer = reactor::spawn({
            let (v, done) = (v.clone(), Rc::clone(&done));
            async move {
                for version in 1.. {
                    for at in 0..hot {
                        v.write(at * BLOCK as u64, &block(at, version)).await.unwrap();
                    }
                    if done.get() {
                        return;
                    }
                }
            }
        });
        for round in 0..3 {
            let live = pool.audit_space().await.unwrap().live;
            // What the log gave to drives since is counted beside what it replaces, until that is found.
            let most = blocks + 8 * MIB / BLOCK as u64;
            assert!((blocks - hot..=most).contains(&live), "round {round}: {live} of {blocks}");
        }
        done.set(true);
        writer.await.unwrap();
        let audit = pool.audit_space().await.unwrap();
        assert_eq!(audit.live, blocks, "nobody writes");
        pool.close().await.unwrap();
    });
}

/// What is overwritten is held twice until that is found. Those who waited for that found it taken by others.
#[test]
fn many_who_overwrite_a_part_of_a_pool_are_never_told_that_it_is_full() {
    reactor::simulate(4, async {
        let (_, drives) = simulated(3, 23 * MIB, 0);
        let log = LogSpec::Bbu(vec![pmem(9 * MIB)]);
        let scheme = raid::Scheme::Mirror { copies: 2 };
        let spec = PoolSpec { scheme, au_bytes: Some(MIB), ..spec(&drives, log) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let bytes = pool.status().await.unwrap().capacity * 6 / 10 / BLOCK as u64 * BLOCK as u64;
        let v = pool.create_volume(volume("db", bytes)).await.unwrap();
        let writers = (0..16).map(|writer| {
            let v = v.clone();
            reactor::spawn(async move {
                let mut prng = Prng::new(writer);
                for _ in 0..300 {
                    let blocks = 1 + prng.below(64);
                    let first = prng.below(v.len() / BLOCK as u64 - blocks);
                    let data = vec![7; usize64(blocks) * BLOCK];
                    v.write(first * BLOCK as u64, &data).await?;
                }
                Ok::<(), crate::error::Error>(())
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap().unwrap();
        }
        pool.close().await.unwrap();
    });
}

/// It waited for ever for those who make room in the log, and they had ended.
#[test]
fn a_writer_that_waits_for_room_in_the_log_is_told_that_too_many_drives_failed() {
    reactor::simulate(3, async {
        let (media, drives) = simulated(3, 96 * MIB, 0);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let spec = PoolSpec { scheme: raid::Scheme::Raid5, ..spec(&drives, log) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 48 * MIB)).await.unwrap();
        media.iter().for_each(|drive| drive.stall(Duration::from_secs(10)));
        // One waits for room, the other behind it.
        let writers = [0, 4096].map(|first| {
            let v = v.clone();
            reactor::spawn(async move {
                for at in first.. {
                    if let Err(error) = v.write(at * BLOCK as u64, &block(at, 0)).await {
                        return (at - first, error.kind);
                    }
                }
                unreachable!("a volume has an end")
            })
        });
        let waiting = |shard: Rc<Shard>| async move { Ok(shard.base.log.waiting()) };
        while pool.each(waiting).await.unwrap()[..] != [2] {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        media[..2].iter().for_each(|drive| drive.fail());
        let mut written = 0;
        for writer in writers {
            let told = reactor::timeout(Duration::from_secs(60), writer).await;
            let (blocks, why) = told.expect("it is told").unwrap();
            assert_eq!(why, Kind::Failed);
            written += blocks;
        }
        assert!((7 * MIB..8 * MIB).contains(&(written * BLOCK as u64)), "{written}");
        assert_eq!(pool.close().await.unwrap_err().kind, Kind::Failed);
    });
}

/// It waited for records that nobody had been told of, and that nothing can make durable any more.
#[test]
fn a_pool_whose_log_failed_in_the_midst_of_a_write_is_closed() {
    reactor::simulate(5, async {
        let (media, drives) = simulated(2, 96 * MIB, 0);
        let scheme = raid::Scheme::Single;
        let made = PoolSpec { scheme, au_bytes: Some(MIB), ..spec(&drives, LogSpec::Drives) };
        let pool = Pool::create(made, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", MIB)).await.unwrap();
        let writer = reactor::spawn(async move { v.write(0, &block(0, 0)).await });
        reactor::yield_now().await;
        media.iter().for_each(|drive| drive.fail());
        assert_eq!(writer.await.unwrap().unwrap_err().kind, Kind::Failed);
        let closed = reactor::timeout(Duration::from_secs(60), pool.close()).await;
        assert_eq!(closed.expect("it ends").unwrap_err().kind, Kind::Failed);
    });
}

/// It came to a stand: the last units of the drives left were taken, and those of the lost one of no
/// use.
#[test]
fn a_full_pool_that_loses_a_drive_reads_overwrites_and_frees() {
    reactor::simulate(2, async {
        let (media, drives) = simulated(4, 32 * MIB, 0);
        let log = LogSpec::Bbu(vec![pmem(4 * MIB)]);
        let scheme = raid::Scheme::Mirror { copies: 2 };
        let spec = PoolSpec { scheme, au_bytes: Some(MIB), ..spec(&drives, log.clone()) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let before = pool.status().await.unwrap().capacity;
        let v = pool.create_volume(volume("db", before)).await.unwrap();
        let mut model = Model::new();
        let blocks = before / BLOCK as u64;
        assert_eq!(write_until_full(&v, &mut model, 0).await, blocks);
        media[1].fail();
        let mut prng = Prng::new(5);
        for version in 1..4 * blocks {
            let at = prng.below(blocks);
            v.write(at * BLOCK as u64, &block(at, version)).await.unwrap();
            model.insert(at, version);
        }
        verify(&v, &model).await;
        let after = pool.status().await.unwrap().capacity;
        assert!(after < before, "{after} of {before}");
        let more = pool.create_volume(VolumeSpec { id: [2; 16], ..volume("more", before) });
        let more = more.await.unwrap();
        let mut written = Model::new();
        assert!(write_until_full(&more, &mut written, 0).await < blocks / 16);
        v.deallocate(0, v.len()).await.unwrap();
        model.clear();
        let taken = write_until_full(&more, &mut written, 1).await * BLOCK as u64;
        assert!(taken > after / 10 * 9, "{taken} of {after}");
        verify(&v, &model).await;
        verify(&more, &written).await;
        pool.close().await.unwrap();

        let left = [0, 2, 3].map(|n: usize| Arc::clone(&drives[n]));
        let options = OpenOptions { degraded: true, ..OpenOptions::default() };
        let pool = Pool::open(left.to_vec(), log, options, &[]).await.unwrap();
        assert_eq!(pool.status().await.unwrap().capacity, after);
        verify(&pool.volume("more").unwrap(), &written).await;
        pool.close().await.unwrap();
    });
}

/// What was free lay on the drive that was to be emptied, and was closed at once: nothing was left to checkpoint with.
#[test]
fn a_full_pool_is_rebuilt_and_refuses_no_overwrite_meanwhile() {
    reactor::simulate(3, async {
        let (media, drives) = simulated(4, 32 * MIB, 0);
        let scheme = raid::Scheme::Mirror { copies: 2 };
        let log = LogSpec::Bbu(vec![pmem(4 * MIB)]);
        let spec = PoolSpec { scheme, au_bytes: Some(MIB), ..spec(&drives, log) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        media[1].fail();
        let mut model = Model::new();
        let after = pool.0.common.allocator.lock().capacity_without(1 << 1);
        let after = pool.0.common.capacity_while_emptying(after);
        let v = pool.create_volume(volume("db", after * BLOCK as u64)).await.unwrap();
        assert_eq!(write_until_full(&v, &mut model, 0).await, after);
        let mut prng = Prng::new(6);
        for version in 1..40 * after {
            if version == after {
                pool.rebuild(0).await.unwrap();
            }
            let at = prng.below(after);
            v.write(at * BLOCK as u64, &block(at, version)).await.unwrap();
            model.insert(at, version);
            let rebuild = pool.status().await.unwrap().rebuild;
            if rebuild.as_ref().is_some_and(|rebuild| !rebuild.is_under_way) {
                break;
            }
        }
        let status = pool.status().await.unwrap();
        assert_eq!(status.rebuild.as_ref().unwrap().failure, None);
        assert!(status.drives[1].vacant, "{:?} {:?}", status.rebuild, reactor::now());
        verify(&v, &model).await;
        media[2].fail();
        verify(&v, &model).await;
    });
}

/// There was space again, but nobody had written since: a close took the last refusal for an answer, and left everything
/// in the log.
#[test]
fn a_pool_that_there_is_space_for_again_is_closed_in_order() {
    reactor::simulate(1, async {
        let (media, drives) = simulated(3, 96 * MIB, 0);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let spec = PoolSpec { scheme: raid::Scheme::Raid5, ..spec(&drives, log.clone()) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 48 * MIB)).await.unwrap();
        let mut model = Model::new();
        media.iter().for_each(|drive| drive.set_full(true));
        assert!(write_until_full(&v, &mut model, 1).await < v.len() / BLOCK as u64);
        media.iter().for_each(|drive| drive.set_full(false));
        pool.close().await.unwrap();
        let other = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let pool = Pool::open(drives, other, OpenOptions::default(), &[]).await.unwrap();
        verify(&pool.volume("db").unwrap(), &model).await;
        pool.close().await.unwrap();
    });
}

/// What was under way waited for space, and whoever closed the pool for that.
#[test]
fn a_pool_is_closed_without_space_though_it_is_scrubbed_or_emptied() {
    for is_scrubbed in [true, false] {
        reactor::simulate(1, async move {
            let (media, drives) = simulated(4, 96 * MIB, 0);
            let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
            let scheme = raid::Scheme::Mirror { copies: 2 };
            let au_bytes = Some(MIB);
            let spec = PoolSpec { scheme, au_bytes, ..spec(&drives, log.clone()) };
            let pool = Pool::create(spec, &[]).await.unwrap();
            let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
            let mut model = Model::new();
            write_until_full(&v, &mut model, 1).await;
            media.iter().for_each(|drive| drive.set_full(true));
            if is_scrubbed {
                pool.scrub(&ScrubPosition::default(), 0).await.unwrap();
            } else {
                // Labels have room, what is moved has none.
                media.iter().for_each(|drive| drive.set_full(false));
                pool.evacuate(3, 0).await.unwrap();
                media.iter().for_each(|drive| drive.set_full(true));
            }
            reactor::sleep(Duration::from_secs(1)).await;
            let closes = reactor::timeout(Duration::from_secs(60), pool.close());
            let _ = closes.await.expect("it ends");
            media.iter().for_each(|drive| drive.set_full(false));
            let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
            verify(&pool.volume("db").unwrap(), &model).await;
            pool.close().await.unwrap();
        });
    }
}

/// Waits until the catalog has so many objects.
async fn until_objects(pool: &Pool, count: usize) {
    let there = async {
        while pool.0.common.superblock.catalog(|catalog| catalog.len()) != count {
            reactor::sleep(Duration::from_millis(10)).await;
        }
    };
    reactor::timeout(Duration::from_secs(60), there).await.expect("it is done behind this");
}

/// The name was gone, the deletion had failed, and its space was held until the pool was opened again.
#[test]
fn a_deletion_that_finds_no_room_for_its_last_step_goes_on_until_there_is_some() {
    reactor::simulate(16, async {
        let (media, drives) = simulated(3, 96 * MIB, 0);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let spec = PoolSpec { scheme: raid::Scheme::Raid5, ..spec(&drives, log.clone()) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        for name in ["db", "more"] {
            let v = pool.create_volume(volume(name, MIB)).await.unwrap();
            v.write(0, &block(0, 1)).await.unwrap();
        }
        let deleting = reactor::spawn({
            let pool = pool.clone();
            async move { pool.delete_volume("db").await }
        });
        while pool.volumes().len() == 2 {
            reactor::yield_now().await;
        }
        refuse_catalogs(&media[1..2], media::Kind::Full, None);
        deleting.await.unwrap().unwrap();
        assert_eq!(pool.0.common.superblock.catalog(|catalog| catalog.len()), 2);
        // Nothing of another change was done.
        assert_eq!(pool.delete_volume("more").await.unwrap_err().kind, Kind::Full);
        assert_eq!(pool.volumes(), ["more"]);
        reactor::sleep(Duration::from_secs(5)).await;
        media[1].refuse_nothing();
        until_objects(&pool, 1).await;
        pool.delete_volume("more").await.unwrap();
        pool.close().await.unwrap();
        let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
        until_objects(&pool, 0).await;
        pool.close().await.unwrap();
    });
}

/// As above. What was given back of the volume before is done once more then, and is not what its snapshot sees.
#[test]
fn a_rollback_that_finds_no_room_for_its_last_step_leaves_what_the_kept_snapshot_sees() {
    reactor::simulate(17, async {
        let (media, drives) = simulated(3, 96 * MIB, 0);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let made = PoolSpec { shards: Some(2), au_bytes: Some(MIB), ..spec(&drives, log.clone()) };
        let made = PoolSpec { scheme: raid::Scheme::Raid5, ..made };
        let pool = Pool::create(made, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 4 * MIB)).await.unwrap();
        let mut model = Model::new();
        super::snapshots::put(&v, &mut model, 0, 50, 1).await;
        super::snapshots::take(&pool, "mon").await;
        let monday = model.clone();
        super::snapshots::put(&v, &mut model, 20, 50, 1000).await;
        let keep = Some(("last".into(), [8; 16]));
        let (volume, snapshot, created) = ("db".into(), "mon".into(), 1_800_000_000);
        let back = RollbackSpec { volume, snapshot, keep, created };
        let rolling = reactor::spawn({
            let pool = pool.clone();
            async move { pool.rollback_volumes(vec![back]).await }
        });
        while pool.snapshots("db").unwrap().len() == 1 {
            reactor::yield_now().await;
        }
        refuse_catalogs(&media[1..2], media::Kind::Full, None);
        rolling.await.unwrap().unwrap();
        reactor::sleep(Duration::from_secs(5)).await;
        let is_unseen =
            |catalog: &Catalog| catalog.objects().any(|object| object.deleted && object.bytes == 0);
        assert!(!pool.0.common.superblock.catalog(is_unseen));
        media[1].refuse_nothing();
        let done = async {
            while !pool.0.common.superblock.catalog(is_unseen) {
                reactor::sleep(Duration::from_millis(10)).await;
            }
        };
        reactor::timeout(Duration::from_secs(60), done).await.expect("it is done behind this");
        let pool = super::clones::reopened(&drives, &log, pool).await;
        super::snapshots::check(&pool.volume("db").unwrap(), &monday).await;
        super::snapshots::check(&pool.snapshot("db", "last").unwrap(), &model).await;
        pool.close().await.unwrap();
    });
}

/// A snapshot that came between kept it, for nobody to read, for as long as it was there.
#[test]
fn what_a_volume_lost_as_it_became_smaller_is_gone_before_a_snapshot_is_taken() {
    reactor::simulate(18, async {
        let (media, drives) = simulated(3, 96 * MIB, 0);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let made = PoolSpec { au_bytes: Some(MIB), ..spec(&drives, log.clone()) };
        let made = PoolSpec { scheme: raid::Scheme::Raid5, ..made };
        let pool = Pool::create(made, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 4 * MIB)).await.unwrap();
        let more = VolumeSpec { id: [2; 16], ..volume("more", 48 * MIB) };
        let more = pool.create_volume(more).await.unwrap();
        super::snapshots::put(&v, &mut Model::new(), 0, 1024, 1).await;
        pool.audit_space().await.unwrap();
        media.iter().for_each(|drive| drive.set_full(true));
        write_until_full(&more, &mut Model::new(), 1).await;
        // Holes take less.
        let filled = async { while more.deallocate(0, BLOCK as u64).await.is_ok() {} };
        reactor::timeout(Duration::from_secs(600), filled).await.expect("the log is full");
        pool.resize_volume("db", MIB).await.unwrap();
        let is_begun = |of: &crate::format::catalog::Object| of.shrunk_from > of.bytes;
        let begun = || pool.0.common.superblock.catalog(|all| all.objects().any(is_begun));
        assert!(begun(), "there was room for it");
        let take = || pool.take_snapshots(vec![super::snapshots::named("db", "mon")]);
        let refused = take().await.unwrap_err();
        assert!(refused.may_pass(), "{refused}");
        media.iter().for_each(|drive| drive.set_full(false));
        let taken = async {
            while take().await.is_err() {
                reactor::sleep(Duration::from_millis(100)).await;
            }
        };
        reactor::timeout(Duration::from_secs(120), taken).await.expect("there is space again");
        assert!(!begun());
        pool.close().await.unwrap();
    });
}

/// A change that hosts are told of as failed, while they go on.
async fn change(pool: &Pool, what: &str) -> Result<()> {
    match what {
        "rollback" => {
            let (volume, snapshot, keep) = ("db".into(), "mon".into(), None);
            let back = RollbackSpec { volume, snapshot, keep, created: 1_800_000_000 };
            pool.rollback_volumes(vec![back]).await
        }
        "resize" => pool.resize_volume("db", MIB).await,
        "rename" => pool.rename_volume("db", "other").await,
        "delete" => pool.delete_volume("plain").await,
        _ => pool.delete_snapshot("db", "mon").await,
    }
}

const CHANGES: [&str; 5] = ["rollback", "resize", "rename", "delete", "delete-snapshot"];

/// Hosts went on writing to a volume whose rollback, deletion or smaller size had failed and could not be taken back for want
/// of space. A kill then, and the next opening found it done: what they had written was gone. It is waited for where not
/// even what needs no space is done.
fn hosts_go_on_once_a_change_is_taken_back(what: &'static str, is_waited_for: bool) {
    reactor::simulate(18, async move {
        let (media, drives) = simulated(3, 96 * MIB, 0);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let spec = PoolSpec { au_bytes: Some(MIB), ..spec(&drives, log.clone()) };
        let spec = PoolSpec { scheme: raid::Scheme::Raid5, ..spec };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let plain = pool.create_volume(volume("plain", 4 * MIB)).await.unwrap();
        let v = pool.create_volume(volume("db", 4 * MIB)).await.unwrap();
        let (mut model, mut of_plain) = (Model::new(), Model::new());
        super::snapshots::put(&v, &mut model, 0, 50, 1).await;
        super::snapshots::take(&pool, "mon").await;
        let monday = model.clone();
        // The second takes nothing, the others the edit and no base in its place.
        let area = CatalogArea::LEAST;
        let trails = catalog::trails(&drives[0], area, pool.0.common.superblock.pool()).await;
        let other = area.half_at(1 - catalog::newest(trails.unwrap()).unwrap().half);
        let half = other..other + u64::from(area.half_pages()) * PAGE as u64;
        let refusal = |operation, range| {
            let (operation, kind) = (Some(operation), media::Kind::Full);
            Refusal { operation, range, kind, times: None }
        };
        for drive in [&media[0], &media[2]] {
            drive.refuse(refusal(Operation::Write, half.clone()));
        }
        let all = at::CATALOG..area.end();
        media[1].refuse(refusal(Operation::Write, all.clone()));
        if is_waited_for {
            media[0].refuse(refusal(Operation::WriteZeroes, all));
        }
        let changing = reactor::spawn({
            let pool = pool.clone();
            async move { change(&pool, what).await }
        });
        reactor::sleep(Duration::from_secs(10)).await;
        assert_eq!(changing.is_finished(), !is_waited_for, "{what}");
        if is_waited_for {
            media.iter().for_each(|drive| drive.refuse_nothing());
        }
        assert_eq!(changing.await.unwrap().unwrap_err().kind, Kind::Full);
        let v = pool.volume("db").unwrap();
        super::snapshots::put(&v, &mut model, 700, 100, 1000).await;
        super::snapshots::put(&plain, &mut of_plain, 0, 50, 2000).await;
        media.iter().for_each(|drive| drive.refuse_nothing());
        let pool = super::groups::killed(&drives, &log, pool).await;
        super::snapshots::check(&pool.volume("db").unwrap(), &model).await;
        super::snapshots::check(&pool.volume("plain").unwrap(), &of_plain).await;
        super::snapshots::check(&pool.snapshot("db", "mon").unwrap(), &monday).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn a_change_that_failed_is_not_found_done() {
    CHANGES.iter().for_each(|what| hosts_go_on_once_a_change_is_taken_back(what, false));
}

#[test]
fn hosts_wait_while_a_change_that_failed_may_be_found_done() {
    CHANGES.iter().for_each(|what| hosts_go_on_once_a_change_is_taken_back(what, true));
}

#[test]
fn a_change_that_failed_and_is_left_where_it_lies_is_missed() {
    canary::misses(Step::CatalogBlanks, "", a_change_that_failed_is_not_found_done);
}
