//! Snapshots of several volumes deleted in one step: all or none, and what was there for them alone goes, too.

use super::super::delete_snapshots::edit_to_delete;
use super::clones::{cloned, reopened};
use super::detach::detached;
use super::groups::{group_of, killed, objects, take};
use super::snapshots::{check, check_drives, live, made, put};
use super::*;
use crate::format::catalog::{Catalog, Object};
use crate::limits::{GROUP_VOLUMES_MAX, SNAPSHOTS_AT_ONCE};

const ALL: [&str; 3] = ["db", "log", "web"];

pub(super) fn of_each<'a>(
    volumes: impl IntoIterator<Item = &'a str>,
    name: &str,
) -> Vec<SnapshotName> {
    let of = |volume: &str| SnapshotName { volume: volume.into(), name: name.into() };
    volumes.into_iter().map(of).collect()
}

fn back(volume: &str, snapshot: &str) -> RollbackSpec {
    RollbackSpec { volume: volume.into(), snapshot: snapshot.into(), keep: None, created: 0 }
}

/// A group of volumes, each with a snapshot `mon` of some blocks, of which it has others by now.
async fn made_of_all(pool: &Pool, first: Volume) -> Vec<(Volume, Model, Model)> {
    let mut volumes = vec![first];
    for (id, name) in (2..).zip(&ALL[1..]) {
        let spec = VolumeSpec { id: [id; 16], ..volume(name, 4 * MIB) };
        volumes.push(pool.create_volume(spec).await.unwrap());
    }
    let mut all: Vec<_> = volumes.into_iter().map(|v| (v, Model::new(), Model::new())).collect();
    for (n, (v, model, _)) in (0..).zip(&mut all) {
        put(v, model, 10 * n, 200, 1000 * n).await;
    }
    group_of(pool, "app", &ALL).await;
    take(pool, "app", "mon").await.unwrap();
    for (n, (v, model, monday)) in (0..).zip(&mut all) {
        *monday = model.clone();
        put(v, model, 50, 100, 5000 * (n + 1)).await;
    }
    all
}

#[test]
fn snapshots_of_a_group_are_deleted_together_and_give_their_space_back() {
    for dies in [false, true] {
        reactor::simulate(1, async move {
            let (drives, log, pool, first) = made(3).await;
            let all = made_of_all(&pool, first).await;
            let dev = cloned(&pool, "web", "mon", "dev").await;
            // What this volume was goes with its snapshot.
            let v = pool.rollback_volume(back("log", "mon")).await.unwrap();
            assert_eq!((objects(&pool), live(&pool).await), (4 + 3 + 1 + 1, 3 * 300 - 100));
            let count = objects(&pool);
            take(&pool, "app", "tue").await.unwrap();
            pool.delete_snapshots(of_each(ALL, "tue")).await.unwrap();
            assert_eq!(objects(&pool), count);
            pool.delete_snapshots(of_each(ALL, "mon")).await.unwrap();
            let pool = match dies {
                true => killed(&drives, &log, pool).await,
                false => reopened(&drives, &log, pool).await,
            };
            // Four volumes and a group, and what two of them inherit: of `log` as it was, and of `web`, that is there.
            assert_eq!(objects(&pool), 4 + 1 + 1);
            drop((v, dev));
            assert_eq!(live(&pool).await, 200 + 200 + 300, "{:?}", pool.audit_space().await);
            for ((v, model, monday), is_back) in all.iter().zip([false, true, false]) {
                assert!(pool.snapshots(&v.name()).unwrap().is_empty());
                let model = if is_back { monday } else { model };
                check(&pool.volume(&v.name()).unwrap(), model).await;
            }
            check(&pool.volume("dev").unwrap(), &all[2].2).await;
            pool.close().await.unwrap();
            check_drives(&drives, &log).await;
        });
    }
}

#[test]
fn what_is_in_the_way_of_one_leaves_all_snapshots() {
    reactor::simulate(2, async {
        let (drives, log, pool, first) = made(2).await;
        let all = made_of_all(&pool, first).await;
        take(&pool, "app", "tue").await.unwrap();
        pool.delete_snapshot("web", "tue").await.unwrap();
        let count = objects(&pool);
        let many = of_each(std::iter::repeat_n("db", SNAPSHOTS_AT_ONCE + 1), "mon");
        let wrong = [
            (of_each(ALL, "tue"), Kind::NotFound, "no snapshot is called web@tue"),
            (of_each(["db", "none"], "mon"), Kind::NotFound, "no volume is called none"),
            (of_each(["db", "app"], "mon"), Kind::NotFound, "app is a group, not a volume"),
            (of_each(["db", "log", "db"], "mon"), Kind::Invalid, "db@mon is named twice"),
            (many, Kind::Invalid, "at most 800"),
        ];
        for (names, kind, words) in wrong {
            let error = pool.delete_snapshots(names).await.unwrap_err();
            assert!(error.kind == kind && error.context.contains(words), "{words}: {error}");
        }
        assert_eq!(objects(&pool), count);
        let pool = reopened(&drives, &log, pool).await;
        assert_eq!(objects(&pool), count);
        for (v, _, monday) in &all {
            check(&pool.snapshot(&v.name(), "mon").unwrap(), monday).await;
        }
        pool.close().await.unwrap();
    });
}

/// Whenever power fails, all of the snapshots are there, or none.
#[test]
fn snapshots_of_a_group_are_all_there_or_none_after_a_power_cut() {
    let mut gone = 0;
    for seed in 0..40 {
        let (media, drives) = simulated(3, 64 * MIB, seed * 100);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let (scheme, shards) = (raid::Scheme::Raid5, Some(2));
        let au_bytes = Some(MIB);
        let spec = PoolSpec { scheme, au_bytes, shards, ..spec(&drives, log.clone()) };
        let all = reactor::simulate(seed, async move {
            let pool = Pool::create(spec, &[]).await.unwrap();
            let first = pool.create_volume(volume("db", 4 * MIB)).await.unwrap();
            let all = made_of_all(&pool, first).await;
            let deleting = reactor::spawn(async move {
                pool.delete_snapshots(of_each(ALL, "mon")).await.unwrap();
            });
            reactor::sleep(std::time::Duration::from_micros(seed)).await;
            media.iter().for_each(|medium| medium.power_cut(&mut Prng::new(seed)));
            media.iter().for_each(|medium| medium.power_on());
            drop(deleting);
            all.into_iter().map(|(_, model, monday)| (model, monday)).collect::<Vec<_>>()
        });
        gone += reactor::simulate(seed, async move {
            let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
            let left = ALL.map(|name| pool.snapshots(name).unwrap().len());
            assert!(left == [0; 3] || left == [1; 3], "seed {seed}: {left:?}");
            for (name, (model, monday)) in ALL.iter().zip(&all) {
                check(&pool.volume(name).unwrap(), model).await;
                if left[0] == 1 {
                    check(&pool.snapshot(name, "mon").unwrap(), monday).await;
                }
            }
            pool.close().await.unwrap();
            u64::from(left[0] == 0)
        });
    }
    assert!((3..38).contains(&gone), "power failed before and behind it: {gone} of 40");
}

/// A group of as many as can be, of which each has more behind its snapshot than one edit has room for, all in all.
async fn made_deep() -> (Vec<Arc<Drive>>, LogSpec, Pool, Vec<String>) {
    let (drives, log) = (drives(4, 96 * MIB), LogSpec::Bbu(vec![pmem(4 * MIB)]));
    let pool = Pool::create(spec(&drives, log.clone()), &[]).await.unwrap();
    let all: Vec<String> = (0..GROUP_VOLUMES_MAX).map(|n| format!("v{n}")).collect();
    let each = || all.iter().map(String::as_str);
    for name in each() {
        pool.create_volume(volume(name, MIB)).await.unwrap();
    }
    group_of(&pool, "app", &each().collect::<Vec<_>>()).await;
    for _ in 0..3 {
        take(&pool, "app", "deep").await.unwrap();
        pool.rollback_volumes(each().map(|name| back(name, "deep")).collect()).await.unwrap();
        pool.delete_snapshots(of_each(each(), "deep")).await.unwrap();
    }
    take(&pool, "app", "mon").await.unwrap();
    for name in each() {
        pool.detach_volume(name).await.unwrap();
    }
    detached(&pool).await;
    // The group, and of each volume itself, its snapshot, and what it was three times.
    assert_eq!(objects(&pool), 1 + 5 * GROUP_VOLUMES_MAX);
    (drives, log, pool, all)
}

#[test]
fn what_was_there_for_deleted_snapshots_goes_also_where_it_is_more_than_one_edit_has() {
    for dies in [false, true] {
        reactor::simulate(3, async move {
            let (drives, log, pool, all) = made_deep().await;
            let names = of_each(all.iter().map(String::as_str), "mon");
            let pool = if dies {
                // Killed behind the first edit, by which the snapshots are gone.
                let first = |catalog: &Catalog| Ok((edit_to_delete(catalog, &names)?.0, ()));
                pool.0.common.superblock.change_catalog(first).await.unwrap();
                assert!(objects(&pool) > 1 + GROUP_VOLUMES_MAX, "there is more to do");
                killed(&drives, &log, pool).await
            } else {
                pool.delete_snapshots(names).await.unwrap();
                pool
            };
            let is_loose = |of: &Object| of.is_group() || of.parent.is_none();
            let rest = |catalog: &Catalog| (catalog.len(), catalog.objects().all(is_loose));
            let rest = pool.0.common.superblock.catalog(rest);
            assert_eq!(rest, (1 + GROUP_VOLUMES_MAX, true));
            assert!(pool.0.common.snapshots.of_clones().is_empty());
            pool.close().await.unwrap();
            check_drives(&drives, &log).await;
        });
    }
}
