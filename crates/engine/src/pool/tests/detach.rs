//! Clones that are given what they inherit, and what they were made of.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use stdx::num::u64_of;

use super::clones::{clone_of, cloned, reopened, take_of};
use super::snapshots::{check, check_drives, empty_all, live, made, put, take, trim};
use super::*;
use crate::canary::{Step, misses};
use crate::format::catalog::Catalog;
use crate::limits::CLONES_DEEP_MAX;

const B: u64 = BLOCK as u64;

/// Waits until nothing is being detached any more.
pub(super) async fn detached(pool: &Pool) {
    while !pool.0.detaching.borrow().is_empty() {
        reactor::sleep(Duration::from_millis(1)).await;
    }
}

async fn detach(pool: &Pool, name: &str) -> Volume {
    pool.detach_volume(name).await.unwrap();
    detached(pool).await;
    pool.volume(name).unwrap()
}

fn objects(pool: &Pool) -> usize {
    pool.0.common.superblock.catalog(|catalog| catalog.len())
}

/// Wherever what it began with lies: in the log, moved by reclaim, or where it was written.
#[test]
fn a_detached_clone_has_all_that_it_had_and_needs_nobody() {
    for moved in [false, true] {
        reactor::simulate(1, async move {
            let (drives, log, pool, v) = made(2).await;
            let mut model = Model::new();
            put(&v, &mut model, 0, 100, 1).await;
            put(&v, &mut model, 500, 300, 500).await;
            take(&pool, "mon").await;
            let mut of_dev = model.clone();
            let dev = cloned(&pool, "db", "mon", "dev").await;
            put(&v, &mut model, 0, 700, 5000).await;
            put(&dev, &mut of_dev, 90, 20, 2000).await;
            trim(&dev, &mut of_dev, 510, 30).await;
            for _ in 0..if moved { 2 } else { 0 } {
                empty_all(&pool).await;
            }
            let dev = detach(&pool, &dev.name()).await;
            assert_eq!(dev.origin(), None);
            check(&dev, &of_dev).await;
            put(&dev, &mut of_dev, 95, 10, 3000).await;
            take_of(&pool, "dev", "own").await;
            let own = of_dev.clone();
            trim(&dev, &mut of_dev, 500, 20).await;
            pool.delete_snapshot("db", "mon").await.unwrap();
            pool.delete_volume("db").await.unwrap();
            assert_eq!(objects(&pool), 2, "the clone, and its snapshot");
            for _ in 0..2 {
                check(&pool.volume("dev").unwrap(), &of_dev).await;
                check(&pool.snapshot("dev", "own").unwrap(), &own).await;
                empty_all(&pool).await;
            }
            assert_eq!(live(&pool).await, u64_of(own.len()));
            let pool = reopened(&drives, &log, pool).await;
            let dev = pool.volume("dev").unwrap();
            assert_eq!(dev.origin(), None);
            check(&dev, &of_dev).await;
            check(&pool.snapshot("dev", "own").unwrap(), &own).await;
            pool.delete_snapshot("dev", "own").await.unwrap();
            pool.delete_volume("dev").await.unwrap();
            assert_eq!((objects(&pool), live(&pool).await), (0, 0));
            pool.close().await.unwrap();
            check_drives(&drives, &log).await;
        });
    }
}

/// A rollback that is refused has hosts open the volume anew: that is the one which needs its parent no more.
#[test]
fn a_clone_that_is_opened_anew_while_it_is_cut_loose_is_cut_loose() {
    reactor::simulate(3, async {
        let (_drives, _log, pool, v) = made(1).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 100, 1).await;
        take(&pool, "mon").await;
        let dev = cloned(&pool, "db", "mon", "dev").await;
        pool.detach_volume("dev").await.unwrap();
        let turn = pool.turn().await.unwrap();
        while pool.detaching(&dev).unwrap().done < dev.len() {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        let object = |catalog: &Catalog| catalog.get(dev.state.view).cloned().unwrap();
        let object = pool.0.common.superblock.catalog(object);
        dev.state.close();
        pool.adopt_volume(&object, dev.state.lineage.clone());
        drop(turn);
        detached(&pool).await;
        let dev = pool.volume("dev").unwrap();
        assert_eq!(dev.origin(), None);
        check(&dev, &model).await;
    });
}

/// What snapshots and clones of it saw before stays theirs, and what that takes goes with the last of them.
#[test]
fn what_saw_a_clone_before_it_was_detached_keeps_its_parent() {
    reactor::simulate(2, async {
        let (drives, log, pool, v) = made(2).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 100, 1).await;
        take(&pool, "mon").await;
        let mut of_dev = model.clone();
        let dev = cloned(&pool, "db", "mon", "dev").await;
        put(&dev, &mut of_dev, 50, 10, 1000).await;
        take_of(&pool, "dev", "before").await;
        let before = of_dev.clone();
        let test = cloned(&pool, "dev", "before", "test").await;
        let mut of_test = before.clone();
        put(&test, &mut of_test, 0, 10, 2000).await;
        let dev = detach(&pool, "dev").await;
        put(&dev, &mut of_dev, 0, 30, 3000).await;
        take_of(&pool, "dev", "after").await;
        let after = of_dev.clone();
        let late = cloned(&pool, "dev", "after", "late").await;
        put(&dev, &mut of_dev, 20, 30, 4000).await;
        pool.delete_snapshot("db", "mon").await.unwrap();
        pool.delete_volume("db").await.unwrap();
        empty_all(&pool).await;
        let pool = reopened(&drives, &log, pool).await;
        empty_all(&pool).await;
        check(&pool.volume("dev").unwrap(), &of_dev).await;
        check(&pool.volume("test").unwrap(), &of_test).await;
        check(&pool.volume("late").unwrap(), &after).await;
        check(&pool.snapshot("dev", "before").unwrap(), &before).await;
        check(&pool.snapshot("dev", "after").unwrap(), &after).await;
        let depth =
            |name: &str| pool.volume(name).unwrap().state.ancestors().map_or(0, |a| a.len());
        assert_eq!((depth("dev"), depth("test"), depth("late")), (0, 2, 1));
        // dev, its two snapshots, test, late, and what was db.
        assert_eq!((objects(&pool), late.len()), (6, v.len()));
        pool.delete_volume("test").await.unwrap();
        assert_eq!(objects(&pool), 5);
        pool.delete_snapshot("dev", "before").await.unwrap();
        assert_eq!(objects(&pool), 3, "with the last that saw it goes what was db");
        let pool = reopened(&drives, &log, pool).await;
        check(&pool.volume("dev").unwrap(), &of_dev).await;
        check(&pool.volume("late").unwrap(), &after).await;
        detach(&pool, "late").await;
        pool.delete_snapshot("dev", "after").await.unwrap();
        pool.delete_volume("dev").await.unwrap();
        check(&pool.volume("late").unwrap(), &after).await;
        assert_eq!((objects(&pool), live(&pool).await), (1, u64_of(after.len())));
        pool.close().await.unwrap();
        check_drives(&drives, &log).await;
    });
}

/// It goes on where a pool is closed and opened again, or its power fails; and a chain that is as deep as can be is none
/// then.
#[test]
fn the_deepest_of_a_chain_is_detached_over_openings() {
    reactor::simulate(3, async {
        let (drives, log, pool, v) = made(2).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 600, 1).await;
        for n in 0..CLONES_DEEP_MAX {
            take(&pool, "deep").await;
            let spec = RollbackSpec {
                volume: "db".into(),
                snapshot: "deep".into(),
                keep: None,
                created: 0,
            };
            let v = pool.rollback_volume(spec).await.unwrap();
            pool.delete_snapshot("db", "deep").await.unwrap();
            put(&v, &mut model, 9 * u64_of(n), 3, 1000 + u64_of(n)).await;
        }
        take(&pool, "deepest").await;
        assert!(pool.clone_volume(clone_of("db", "deepest", "dev")).await.is_err());
        pool.delete_snapshot("db", "deepest").await.unwrap();
        pool.detach_volume("db").await.unwrap();
        assert!(!pool.0.detaching.borrow().is_empty(), "it takes longer");
        let pool = reopened(&drives, &log, pool).await;
        detached(&pool).await;
        check(&pool.volume("db").unwrap(), &model).await;
        assert_eq!((objects(&pool), live(&pool).await), (1, 600));
        take(&pool, "top").await;
        let dev = cloned(&pool, "db", "top", "dev").await;
        check(&dev, &model).await;
        pool.close().await.unwrap();
        check_drives(&drives, &log).await;
    });
}

#[test]
fn what_is_no_clone_is_not_detached_and_what_is_can_be_left() {
    reactor::simulate(4, async {
        let (drives, log, pool, v) = made(1).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 900, 1).await;
        let refused = pool.detach_volume("db").await.unwrap_err();
        assert_eq!(refused.kind, Kind::Invalid);
        assert_eq!(pool.detach_volume("web").await.unwrap_err().kind, Kind::NotFound);
        assert_eq!(pool.stop_detaching("db").await.unwrap_err().kind, Kind::Invalid);
        take(&pool, "mon").await;
        let dev = cloned(&pool, "db", "mon", "dev").await;
        pool.detach_volume("dev").await.unwrap();
        pool.detach_volume("dev").await.unwrap();
        pool.stop_detaching("dev").await.unwrap();
        detached(&pool).await;
        assert!(dev.origin().is_some() && !dev.state.takes_turns());
        check(&dev, &model).await;
        // One that is deleted, or rolled back, in the midst of it is detached no more.
        pool.detach_volume("dev").await.unwrap();
        pool.delete_volume("dev").await.unwrap();
        cloned(&pool, "db", "mon", "dev").await;
        take_of(&pool, "dev", "own").await;
        pool.detach_volume("dev").await.unwrap();
        let spec =
            RollbackSpec { volume: "dev".into(), snapshot: "own".into(), keep: None, created: 0 };
        let dev = pool.rollback_volume(spec).await.unwrap();
        detached(&pool).await;
        check(&dev, &model).await;
        assert!(dev.origin().is_some());
        let pool = reopened(&drives, &log, pool).await;
        assert!(pool.0.detaching.borrow().is_empty());
        check(&pool.volume("dev").unwrap(), &model).await;
        pool.close().await.unwrap();
        check_drives(&drives, &log).await;
    });
}

/// Hosts that write to a clone while it is detached: what they were told is durable stays.
#[test]
fn what_is_written_while_a_clone_is_detached_stays() {
    for step in 0..12 {
        reactor::simulate(step, async move {
            let (_, drives) = simulated(4, 96 * MIB, step);
            let scheme = raid::Scheme::Raid5;
            let spec = PoolSpec { scheme, au_bytes: Some(MIB), ..spec(&drives, LogSpec::Drives) };
            let pool = Pool::create(spec, &[]).await.unwrap();
            let v = pool.create_volume(volume("db", MIB)).await.unwrap();
            let mut model = Model::new();
            put(&v, &mut model, 0, 200, 1).await;
            take(&pool, "mon").await;
            let dev = cloned(&pool, "db", "mon", "dev").await;
            let model = Rc::new(RefCell::new(model));
            let writers: Vec<_> = (0..48)
                .map(|n| {
                    let (dev, model) = (dev.clone(), Rc::clone(&model));
                    reactor::spawn(async move {
                        for round in 0..4 {
                            let at = n * 4 + (n + round) % 4;
                            let version = 1000 * (round + 1) + at;
                            dev.write(at * B, &block(0, version)).await.unwrap();
                            model.borrow_mut().insert(at, version);
                        }
                    })
                })
                .collect();
            reactor::sleep(Duration::from_micros(40 * step)).await;
            pool.detach_volume("dev").await.unwrap();
            for writer in writers {
                writer.await.unwrap();
            }
            detached(&pool).await;
            assert_eq!(dev.origin(), None);
            let model = model.take();
            check(&dev, &model).await;
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn the_turns_of_writers_while_a_clone_is_detached_are_missed() {
    misses(Step::DetachWriters, "of dev", what_is_written_while_a_clone_is_detached_stays);
    misses(Step::DetachTurns, "of dev", what_is_written_while_a_clone_is_detached_stays);
}

/// What its parent had is in the log alone, where nobody looks for what is inherited.
#[test]
fn a_clone_is_given_what_is_only_in_the_log() {
    reactor::simulate(6, async {
        let (_, _, pool, v) = made(1).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 100, 1).await;
        take(&pool, "mon").await;
        let dev = cloned(&pool, "db", "mon", "dev").await;
        let dev = detach(&pool, &dev.name()).await;
        pool.delete_snapshot("db", "mon").await.unwrap();
        pool.delete_volume("db").await.unwrap();
        check(&dev, &model).await;
        pool.close().await.unwrap();
    });
}

/// Who had found that the clone has nothing of its own there asked its parent, of which nothing was left by then.
#[test]
fn a_clone_is_not_cut_loose_while_somebody_asks_its_parent() {
    reactor::simulate(5, async {
        let (_, _, pool, v) = made(1).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 100, 1).await;
        take(&pool, "mon").await;
        let dev = cloned(&pool, "db", "mon", "dev").await;
        // As if it had begun before, and took its time.
        let asks = |shard: Rc<crate::shard::Shard>| async move {
            let asking = shard.base.grace.enter();
            reactor::spawn(async move {
                reactor::sleep(Duration::from_mins(1)).await;
                drop(asking);
            });
            Ok(())
        };
        pool.each(asks).await.unwrap();
        pool.detach_volume("dev").await.unwrap();
        let early = reactor::timeout(Duration::from_secs(30), detached(&pool)).await;
        assert!(early.is_err(), "the parent may be gone while it is asked");
        detached(&pool).await;
        assert_eq!(dev.origin(), None);
        check(&dev, &model).await;
    });
}

#[test]
fn the_wait_for_those_who_ask_the_parent_of_a_clone_is_missed() {
    misses(
        Step::DetachHeirs,
        "while it is asked",
        a_clone_is_not_cut_loose_while_somebody_asks_its_parent,
    );
}

/// All of a chain of clones goes, in any order, and with it all that it held.
#[test]
fn nothing_is_left_of_a_chain_that_is_deleted_in_any_order() {
    for seed in 0..3 {
        reactor::simulate(seed, async move {
            let mut prng = Prng::new(seed);
            let (drives, log, pool, v) = made(2).await;
            let mut model = Model::new();
            put(&v, &mut model, 0, 300, 1).await;
            let mut last = "db".to_owned();
            let (mut volumes, mut snapshots) = (vec![last.clone()], Vec::new());
            for n in 0..40_u64 {
                take_of(&pool, &last, "one").await;
                let name = format!("c{n}");
                let c = cloned(&pool, &last, "one", &name).await;
                snapshots.push((last, "one".to_owned()));
                let (at, version) = (prng.below(900), 1000 + 100 * n);
                put(&c, &mut model, at, 1 + prng.below(60), version).await;
                take_of(&pool, &name, "two").await;
                snapshots.push((name.clone(), "two".to_owned()));
                trim(&c, &mut model, prng.below(900), 1 + prng.below(60)).await;
                put(&c, &mut model, prng.below(900), 1 + prng.below(60), version + 50).await;
                volumes.push(name.clone());
                last = name;
            }
            while !(volumes.is_empty() && snapshots.is_empty()) {
                let free = |volume: &String| snapshots.iter().all(|(of, _)| of != volume);
                let deletable: Vec<usize> =
                    (0..volumes.len()).filter(|n| free(&volumes[*n])).collect();
                let pick = usize64(prng.below(u64_of(deletable.len() + snapshots.len())));
                if let Some(n) = deletable.get(pick) {
                    let name = volumes.swap_remove(*n);
                    pool.delete_volume(&name).await.unwrap();
                } else {
                    let (of, name) = snapshots.swap_remove(pick - deletable.len());
                    pool.delete_snapshot(&of, &name).await.unwrap();
                }
            }
            assert_eq!(objects(&pool), 0);
            let find = |shard: Rc<crate::shard::Shard>| async move {
                shard.search.find().await;
                Ok(())
            };
            pool.each(find).await.unwrap();
            assert_eq!(live(&pool).await, 0);
            assert_eq!(pool.status().await.unwrap().used, 0, "seed {seed}");
            pool.close().await.unwrap();
            check_drives(&drives, &log).await;
        });
    }
}

/// What a clone began with counted twice once it was detached, as long as a snapshot of its parent saw it, and stayed so when
/// what had been detached was gone: a pool was called full that had a third of its space free.
#[test]
fn what_is_detached_counts_once_whatever_goes_first() {
    for (seed, clone_first) in [(1, true), (2, false), (3, true), (4, false)] {
        reactor::simulate(seed, async move {
            let (drives, log, pool, v) = made(1 + u16::try_from(seed % 2).unwrap()).await;
            let mut model = Model::new();
            put(&v, &mut model, 0, 300, 1).await;
            take(&pool, "mon").await;
            let (monday, mut of_dev) = (model.clone(), model.clone());
            put(&v, &mut model, 0, 200, 1000).await;
            let dev = cloned(&pool, "db", "mon", "dev").await;
            // In the midst of what is the same otherwise.
            put(&dev, &mut of_dev, 30, 5, 2000).await;
            trim(&dev, &mut of_dev, 60, 3).await;
            assert_eq!(live(&pool).await, 300 + 200 + 5);
            if seed > 2 {
                empty_all(&pool).await;
            }
            detach(&pool, "dev").await;
            let held = |pool: &Pool| {
                let pool = pool.clone();
                async move {
                    let audit = pool.audit_space().await.unwrap();
                    assert_eq!(audit.taken, audit.owned);
                    audit.live
                }
            };
            for _ in 0..2 {
                assert_eq!(held(&pool).await, 300 + 200 + 5, "detached");
                check(&pool.volume("dev").unwrap(), &of_dev).await;
                check(&pool.snapshot("db", "mon").unwrap(), &monday).await;
                empty_all(&pool).await;
            }
            let pool = reopened(&drives, &log, pool).await;
            assert_eq!(held(&pool).await, 300 + 200 + 5, "opened");
            if clone_first {
                pool.delete_volume("dev").await.unwrap();
                assert_eq!(held(&pool).await, 300 + 200);
                empty_all(&pool).await;
                check(&pool.snapshot("db", "mon").unwrap(), &monday).await;
                let pool = super::groups::killed(&drives, &log, pool).await;
                assert_eq!(held(&pool).await, 300 + 200);
                pool.delete_snapshot("db", "mon").await.unwrap();
                assert_eq!(held(&pool).await, 300);
                check(&pool.volume("db").unwrap(), &model).await;
                pool.close().await.unwrap();
            } else {
                pool.delete_snapshot("db", "mon").await.unwrap();
                // 3 of the 200 that were replaced were given back in the clone, and 5 written anew.
                assert_eq!(held(&pool).await, 300 + 200 - 8 + 5);
                let pool = super::groups::killed(&drives, &log, pool).await;
                assert_eq!(held(&pool).await, 300 + 200 - 8 + 5);
                check(&pool.volume("dev").unwrap(), &of_dev).await;
                pool.delete_volume("dev").await.unwrap();
                assert_eq!(held(&pool).await, 300);
                check(&pool.volume("db").unwrap(), &model).await;
                pool.close().await.unwrap();
            }
            check_drives(&drives, &log).await;
        });
    }
}
