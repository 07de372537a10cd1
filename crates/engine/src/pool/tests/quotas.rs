//! Quotas: what a volume and its snapshots may hold.

use super::clones::clone_of;
use super::snapshots::{check, made, named, put, take, trim};
use std::time::Duration;

use super::*;
use crate::QuotaStatus;

const B: u64 = BLOCK as u64;

/// Blocks of the smallest quota.
pub(super) const UNIT: u64 = MIB / B;

pub(super) fn with_quota(name: &str, bytes: u64, quota: u64) -> VolumeSpec {
    VolumeSpec { quota: Some(quota), ..volume(name, bytes) }
}

pub(super) async fn is_full(v: &Volume, first: u64, count: u64) -> bool {
    let data = (0..count).map(|n| block(0, n)).collect::<Vec<_>>().concat();
    match v.write(first * B, &data).await {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(error.kind, Kind::Full, "{error}");
            assert!(error.to_string().contains("quota"), "{error}");
            true
        }
    }
}

/// Writes new blocks until no more are taken, a few at a time; gives how many were.
pub(super) async fn fill(v: &Volume, model: &mut Model, from: u64) -> u64 {
    let mut at = from;
    while !is_full(v, at, 1).await {
        model.insert(at, 0);
        at += 1;
    }
    at - from
}

#[test]
fn a_volume_takes_what_its_quota_says_and_overwrites_go_on() {
    for shards in 1..=3 {
        reactor::simulate(u64::from(shards), async move {
            let (drives, log, pool, other) = made(shards).await;
            let v = pool.create_volume(with_quota("small", 16 * MIB, MIB)).await.unwrap();
            let mut model = Model::new();
            // Twice over: what replaces is no more than there was.
            for round in 0..4 {
                put(&v, &mut model, 0, UNIT / 2, 1 + round * 1000).await;
            }
            assert_eq!(fill(&v, &mut model, UNIT / 2).await, UNIT / 2);
            for round in 0..4 {
                put(&v, &mut model, 0, UNIT, 10_000 + round * 1000).await;
                assert!(is_full(&v, UNIT + round, 1).await);
            }
            check(&v, &model).await;
            // Half of it is new.
            assert!(is_full(&v, UNIT - 4, 8).await);
            put(&v, &mut model, UNIT - 4, 4, 20_000).await;
            // What was given back can be had again.
            trim(&v, &mut model, 10, 20).await;
            assert_eq!(fill(&v, &mut model, 2 * UNIT).await, 20);
            check(&v, &model).await;
            // Others are not concerned.
            put(&other, &mut Model::new(), 0, 3 * UNIT, 1).await;
            let quota = v.quota().unwrap();
            assert_eq!((quota.bytes, other.quota()), (MIB, None));
            pool.close().await.unwrap();
            let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
            let v = pool.volume("small").unwrap();
            assert_eq!(v.quota().unwrap(), QuotaStatus { bytes: MIB, used: None });
            // Nobody has counted yet.
            put(&v, &mut model, 50, 10, 50_000).await;
            assert!(is_full(&v, 3 * UNIT, 1).await);
            check(&v, &model).await;
            assert_eq!(v.quota().unwrap().used, Some(MIB));
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn what_snapshots_hold_counts_until_they_are_deleted() {
    for shards in 1..=2 {
        reactor::simulate(u64::from(shards), async move {
            let (drives, log, pool, _) = made(shards).await;
            let v = pool.create_volume(with_quota("small", 16 * MIB, 2 * MIB)).await.unwrap();
            let mut model = Model::new();
            put(&v, &mut model, 0, UNIT, 1).await;
            pool.take_snapshots(vec![named("small", "mon")]).await.unwrap();
            let monday = model.clone();
            // The same again beside what the snapshot sees: then both hold two units, and nothing replaces.
            put(&v, &mut model, 0, UNIT, 1000).await;
            assert!(is_full(&v, 2 * UNIT, 1).await);
            // What was written since the snapshot was taken is replaced by what takes no more.
            put(&v, &mut model, 0, 16, 2000).await;
            check(&v, &model).await;
            check(&pool.snapshot("small", "mon").unwrap(), &monday).await;
            // Going back copies nothing, and what was there is kept.
            let spec = RollbackSpec {
                volume: "small".into(),
                snapshot: "mon".into(),
                keep: Some(("before".into(), [7; 16])),
                created: 0,
            };
            let v = pool.rollback_volume(spec).await.unwrap();
            assert_eq!(v.quota().unwrap().bytes, 2 * MIB);
            check(&v, &monday).await;
            assert!(is_full(&v, 2 * UNIT, 1).await);
            pool.delete_snapshot("small", "before").await.unwrap();
            let mut model = monday.clone();
            assert_eq!(fill(&v, &mut model, UNIT).await, UNIT);
            pool.close().await.unwrap();
            let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
            let v = pool.volume("small").unwrap();
            assert!(is_full(&v, 3 * UNIT, 1).await);
            check(&v, &model).await;
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn a_quota_is_given_changed_and_taken_away() {
    reactor::simulate(1, async {
        let (_, _, pool, v) = made(2).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, UNIT + 10, 1).await;
        for (bytes, kind) in [
            (0, Kind::Invalid),
            (MIB + 4096, Kind::Invalid),
            (1 << 60, Kind::Invalid),
            (MIB, Kind::Full),
        ] {
            let refused = pool.set_quota("db", Some(bytes)).await.unwrap_err();
            assert_eq!(refused.kind, kind, "{refused}");
            assert_eq!(v.quota(), None);
        }
        assert_eq!(pool.set_quota("none", Some(MIB)).await.unwrap_err().kind, Kind::NotFound);
        pool.set_quota("db", Some(2 * MIB)).await.unwrap();
        assert_eq!(fill(&v, &mut model, UNIT + 10).await, UNIT - 10);
        assert_eq!(pool.set_quota("db", Some(MIB)).await.unwrap_err().kind, Kind::Full);
        assert_eq!(v.quota().unwrap().bytes, 2 * MIB);
        pool.set_quota("db", Some(3 * MIB)).await.unwrap();
        assert_eq!(fill(&v, &mut model, 2 * UNIT).await, UNIT);
        pool.set_quota("db", None).await.unwrap();
        put(&v, &mut model, 3 * UNIT, 10, 9000).await;
        check(&v, &model).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn copies_and_clones_are_charged_for_what_is_theirs() {
    reactor::simulate(1, async {
        let (_, _, pool, v) = made(1).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 3 * UNIT, 1).await;
        pool.settle_space().await.unwrap();
        take(&pool, "mon").await;
        let spec = CloneSpec { quota: Some(MIB), ..clone_of("db", "mon", "dev") };
        let dev = pool.clone_volume(spec).await.unwrap();
        let mut of_clone = model.clone();
        put(&dev, &mut of_clone, 0, UNIT, 5000).await;
        assert!(
            is_full(&dev, 2 * UNIT, 1).await,
            "a block of its own in the place of what it inherits"
        );
        check(&dev, &of_clone).await;
        // By reference, too.
        let copy = pool.create_volume(with_quota("copy", 16 * MIB, MIB)).await.unwrap();
        copy.copy_from(&v, 0, 0, MIB).await.unwrap();
        let refused = copy.copy_from(&v, MIB, MIB, 64 * B).await.unwrap_err();
        assert_eq!(refused.kind, Kind::Full);
        assert!(is_full(&copy, 3 * UNIT, 1).await);
        // What it has already may come again.
        copy.copy_from(&v, 0, 0, MIB).await.unwrap();
        pool.close().await.unwrap();
    });
}

/// Whatever hosts do at once, in the end a volume holds no more than its quota, but for what several cores let in at once.
#[test]
fn many_writers_hold_to_a_quota() {
    reactor::simulate(1, async {
        let (_, _, pool, _) = made(3).await;
        let v = pool.create_volume(with_quota("small", 16 * MIB, 4 * MIB)).await.unwrap();
        let write = |n: u64| {
            let v = v.clone();
            async move {
                let (mut prng, mut refused) = (Prng::new(n), 0);
                for _ in 0..300 {
                    let count = 1 + prng.below(8);
                    let first = prng.below(2 * 4 * UNIT - count);
                    match prng.below(10) {
                        0 => v.deallocate(first * B, count * B).await.unwrap(),
                        _ => refused += u64::from(is_full(&v, first, count).await),
                    }
                }
                refused
            }
        };
        let refused: u64 = reactor::join_all((0..8).map(write)).await.into_iter().sum();
        assert!(refused > 0);
        assert!(pool.counted().await.unwrap());
        let used = v.used().unwrap() / B;
        assert!((4 * UNIT - 64..=4 * UNIT + 16).contains(&used), "{used} of {}", 4 * UNIT);
        pool.close().await.unwrap();
    });
}

/// What was under way while a volume was counted counted twice, and whoever came was refused until the next count at
/// leisure, with a third of the quota free.
#[test]
fn writers_who_stay_within_a_quota_are_never_refused() {
    for shards in 1..=3 {
        reactor::simulate(u64::from(shards), async move {
            let (_, _, pool, _) = made(shards).await;
            let v = pool.create_volume(with_quota("small", 16 * MIB, 3 * MIB)).await.unwrap();
            let write = |n: u64| {
                let v = v.clone();
                async move {
                    let mut prng = Prng::new(n);
                    for _ in 0..30 {
                        let count = 1 + prng.below(100);
                        let first = prng.below(3 * UNIT - count);
                        assert!(!is_full(&v, first, count).await, "it has room for all of them");
                    }
                }
            };
            reactor::join_all((0..24).map(write)).await;
            assert!(is_full(&v, 4 * UNIT, 2 * UNIT).await);
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn a_clone_is_detached_where_its_quota_has_room_for_it() {
    reactor::simulate(1, async {
        let (_, _, pool, v) = made(2).await;
        put(&v, &mut Model::new(), 0, 2 * UNIT, 1).await;
        take(&pool, "mon").await;
        let spec = CloneSpec { quota: Some(2 * MIB), ..clone_of("db", "mon", "dev") };
        let dev = pool.clone_volume(spec).await.unwrap();
        // It was taken for a volume that begins with nothing, and hosts found its quota full for ever.
        let refused = pool.detach_volume("dev").await.unwrap_err();
        assert_eq!(refused.kind, Kind::Busy, "{refused}");
        put(&dev, &mut Model::new(), 3 * UNIT, 16, 1).await;
        assert!(pool.counted().await.unwrap());
        let refused = pool.detach_volume("dev").await.unwrap_err();
        assert_eq!(refused.kind, Kind::Full, "{refused}");
        assert!(dev.inherits() && dev.detaching().is_none());
        pool.set_quota("dev", Some(3 * MIB)).await.unwrap();
        pool.detach_volume("dev").await.unwrap();
        while dev.inherits() {
            reactor::sleep(Duration::from_millis(10)).await;
        }
        pool.close().await.unwrap();
    });
}
