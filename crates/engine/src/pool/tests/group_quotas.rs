//! Quotas of groups: what all their volumes and the snapshots of these may hold together.

use std::num::NonZeroU32;
use std::time::Duration;

use super::clones::{clone_of, cloned, take_of};
use super::groups::{adding, change, group, group_of, killed, removing, take};
use super::quotas::{UNIT, fill, is_full, with_quota};
use super::snapshots::{check, made, put, trim};
use super::*;
use crate::QuotaStatus;

fn of(name: &str, volumes: &[&str], quota: u64) -> GroupSpec {
    GroupSpec { quota: Some(quota), ..group(name, volumes) }
}

fn bounded(quota: Option<u64>) -> GroupChange {
    GroupChange { quota: Some(quota), ..GroupChange::default() }
}

fn status(pool: &Pool, name: &str) -> Option<QuotaStatus> {
    let group = pool.groups().into_iter().find(|group| group.name == name).unwrap();
    group.quota.map(|quota| quota.status())
}

fn refused(done: Result<()>, kind: Kind, words: &str) {
    let error = done.unwrap_err();
    assert!(error.kind == kind && error.context.contains(words), "{words}: {error}");
}

/// Volumes of 16 MiB.
async fn volumes<const N: usize>(pool: &Pool, names: [&str; N]) -> [Volume; N] {
    for name in names {
        pool.create_volume(volume(name, 16 * MIB)).await.unwrap();
    }
    names.map(|name| pool.volume(name).unwrap())
}

#[test]
fn the_volumes_of_a_group_hold_together_what_its_quota_says() {
    for shards in 1..=3 {
        reactor::simulate(u64::from(shards), async move {
            let (drives, log, pool, other) = made(shards).await;
            let [a, b] = volumes(&pool, ["a", "b"]).await;
            pool.create_group(of("app", &["a", "b"], 2 * MIB)).await.unwrap();
            let (mut of_a, mut of_b) = (Model::new(), Model::new());
            put(&a, &mut of_a, 0, UNIT + UNIT / 2, 1).await;
            assert_eq!(fill(&b, &mut of_b, 0).await, UNIT / 2);
            for round in 0..3 {
                put(&a, &mut of_a, 0, UNIT, 10_000 + round * 1000).await;
                put(&b, &mut of_b, 0, UNIT / 2, 10_000 + round * 1000).await;
                assert!(is_full(&a, 3 * UNIT, 1).await && is_full(&b, 3 * UNIT, 1).await);
            }
            // What one gives back the other can have.
            trim(&a, &mut of_a, 10, 20).await;
            assert_eq!(fill(&b, &mut of_b, 2 * UNIT).await, 20);
            put(&other, &mut Model::new(), 0, 3 * UNIT, 1).await;
            check(&a, &of_a).await;
            assert_eq!((a.quota(), other.quota()), (None, None));
            let pool = killed(&drives, &log, pool).await;
            let [a, b] = ["a", "b"].map(|name| pool.volume(name).unwrap());
            assert_eq!(status(&pool, "app"), Some(QuotaStatus { bytes: 2 * MIB, used: None }));
            // Nobody has counted yet.
            assert!(is_full(&b, 3 * UNIT, 1).await);
            put(&b, &mut of_b, 0, 16, 90_000).await;
            assert_eq!(status(&pool, "app").unwrap().used, Some(2 * MIB));
            check(&a, &of_a).await;
            check(&b, &of_b).await;
            let refused = a.write(3 * MIB, &block(0, 1)).await.unwrap_err();
            let words = "the volumes of group app and their snapshots hold their quota of 2 MiB";
            assert!(refused.context.contains(words), "{refused}");
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn a_quota_of_a_group_is_given_changed_and_taken_away() {
    reactor::simulate(1, async {
        let (drives, log, pool, _) = made(2).await;
        let [a, b] = volumes(&pool, ["a", "b"]).await;
        let mut model = Model::new();
        put(&a, &mut model, 0, UNIT, 1).await;
        put(&b, &mut Model::new(), 0, 10, 1).await;
        refused(pool.create_group(of("app", &["a"], 0)).await, Kind::Invalid, "quota");
        let small = pool.create_group(of("app", &["a", "b"], MIB)).await;
        refused(small, Kind::Full, "the volumes of group app and their snapshots hold");
        assert_eq!((pool.groups(), a.quota()), (vec![], None));
        put(&a, &mut model, 2 * UNIT, 10, 1).await;
        group_of(&pool, "app", &["a", "b"]).await;
        refused(change(&pool, "app", bounded(Some(MIB + 1))).await, Kind::Invalid, "quota");
        refused(change(&pool, "app", bounded(Some(MIB))).await, Kind::Full, "hold");
        assert_eq!(status(&pool, "app"), None);
        put(&a, &mut model, 3 * UNIT, UNIT, 1).await;
        change(&pool, "app", bounded(Some(3 * MIB))).await.unwrap();
        assert_eq!(fill(&b, &mut Model::new(), UNIT).await, UNIT - 20);
        refused(change(&pool, "app", bounded(Some(2 * MIB))).await, Kind::Full, "hold");
        assert!(is_full(&a, UNIT, 1).await);
        // By another name, and after an opening.
        let more = GroupChange { name: Some("job".into()), ..bounded(Some(4 * MIB)) };
        change(&pool, "app", more).await.unwrap();
        assert_eq!(fill(&a, &mut model, 5 * UNIT).await, UNIT);
        let error = a.write(12 * MIB, &block(0, 1)).await.unwrap_err();
        assert!(error.context.contains("group job"), "{error}");
        let pool = killed(&drives, &log, pool).await;
        let a = pool.volume("a").unwrap();
        assert!(is_full(&a, 12 * UNIT, 1).await);
        change(&pool, "job", bounded(None)).await.unwrap();
        put(&a, &mut model, 12 * UNIT, 10, 1).await;
        assert_eq!(status(&pool, "job"), None);
        change(&pool, "job", bounded(Some(5 * MIB))).await.unwrap();
        assert!(is_full(&a, 13 * UNIT, UNIT).await);
        // With the group its quota goes.
        pool.delete_group("job").await.unwrap();
        put(&a, &mut model, 13 * UNIT, UNIT, 1).await;
        check(&a, &model).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn volumes_join_where_there_is_room_for_them_and_leave_it_to_others() {
    for shards in 1..=2 {
        reactor::simulate(u64::from(shards), async move {
            let (_, _, pool, _) = made(shards).await;
            let [a, b, c] = volumes(&pool, ["a", "b", "c"]).await;
            put(&a, &mut Model::new(), 0, UNIT, 1).await;
            put(&b, &mut Model::new(), 0, UNIT, 1).await;
            put(&c, &mut Model::new(), 0, 2 * UNIT, 1).await;
            pool.create_group(of("app", &[], 2 * MIB)).await.unwrap();
            assert_eq!(status(&pool, "app"), Some(QuotaStatus { bytes: 2 * MIB, used: Some(0) }));
            change(&pool, "app", adding(&["a"])).await.unwrap();
            // All of it, or nothing.
            let both = adding(&["b", "c"]);
            refused(change(&pool, "app", both).await, Kind::Full, "hold 4 MiB already");
            put(&c, &mut Model::new(), 3 * UNIT, 1, 1).await;
            refused(change(&pool, "app", adding(&["c"])).await, Kind::Full, "group app");
            change(&pool, "app", adding(&["b"])).await.unwrap();
            assert!(is_full(&a, UNIT, 1).await && is_full(&b, UNIT, 1).await);
            // What is beyond it in any case may leave, and what takes its place has to fit.
            let swap = GroupChange { add: vec!["c".into()], ..removing(&["b"]) };
            refused(change(&pool, "app", swap.clone()).await, Kind::Full, "hold");
            assert!(is_full(&b, UNIT, 1).await);
            change(&pool, "app", GroupChange { quota: Some(Some(4 * MIB)), ..swap }).await.unwrap();
            put(&b, &mut Model::new(), UNIT, UNIT, 1).await;
            assert_eq!(fill(&a, &mut Model::new(), UNIT).await, UNIT - 1);
            change(&pool, "app", removing(&["c"])).await.unwrap();
            put(&c, &mut Model::new(), 4 * UNIT, UNIT, 1).await;
            assert_eq!(fill(&a, &mut Model::new(), 4 * UNIT).await, 2 * UNIT + 1);
            // What is deleted leaves as well.
            change(&pool, "app", removing(&["a"])).await.unwrap();
            change(&pool, "app", adding(&["b"])).await.unwrap();
            assert_eq!(fill(&b, &mut Model::new(), 4 * UNIT).await, 2 * UNIT);
            let [d] = volumes(&pool, ["d"]).await;
            change(&pool, "app", adding(&["d"])).await.unwrap();
            assert!(is_full(&d, 0, 1).await);
            pool.delete_volume("b").await.unwrap();
            assert_eq!(fill(&d, &mut Model::new(), 0).await, 4 * UNIT);
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn a_volume_is_held_to_its_own_quota_and_to_its_groups() {
    reactor::simulate(1, async {
        let (drives, log, pool, _) = made(2).await;
        let a = pool.create_volume(with_quota("a", 16 * MIB, MIB)).await.unwrap();
        let [b] = volumes(&pool, ["b"]).await;
        pool.create_group(of("app", &["a", "b"], 2 * MIB)).await.unwrap();
        let (mut of_a, mut of_b) = (Model::new(), Model::new());
        assert_eq!(fill(&a, &mut of_a, 0).await, UNIT);
        let error = a.write(2 * MIB, &block(0, 1)).await.unwrap_err();
        assert!(error.context.contains("volume a"), "{error}");
        assert_eq!(fill(&b, &mut of_b, 0).await, UNIT);
        // One refuses: nothing is taken of the other.
        pool.set_quota("a", Some(3 * MIB)).await.unwrap();
        for n in 0..20 {
            assert!(is_full(&a, 4 * UNIT + n, 1).await);
        }
        let error = a.write(2 * MIB, &block(0, 1)).await.unwrap_err();
        assert!(error.context.contains("group app"), "{error}");
        change(&pool, "app", bounded(Some(4 * MIB))).await.unwrap();
        assert_eq!(fill(&a, &mut of_a, UNIT).await, 2 * UNIT);
        let pool = killed(&drives, &log, pool).await;
        let [a, b] = ["a", "b"].map(|name| pool.volume(name).unwrap());
        assert!(is_full(&a, 5 * UNIT, 1).await && is_full(&b, 5 * UNIT, 1).await);
        pool.set_quota("a", None).await.unwrap();
        change(&pool, "app", bounded(Some(5 * MIB))).await.unwrap();
        assert_eq!(fill(&a, &mut of_a, 3 * UNIT).await, UNIT);
        check(&a, &of_a).await;
        check(&b, &of_b).await;
        assert_eq!((a.quota(), status(&pool, "app").unwrap().bytes), (None, 5 * MIB));
        pool.close().await.unwrap();
    });
}

#[test]
fn what_snapshots_of_a_group_hold_counts_and_going_back_keeps_the_bound() {
    for shards in 1..=2 {
        reactor::simulate(u64::from(shards), async move {
            let (_, _, pool, _) = made(shards).await;
            let [a, b] = volumes(&pool, ["a", "b"]).await;
            pool.create_group(of("app", &["a", "b"], 2 * MIB)).await.unwrap();
            let (mut of_a, mut of_b) = (Model::new(), Model::new());
            put(&a, &mut of_a, 0, UNIT / 2, 1).await;
            put(&b, &mut of_b, 0, UNIT / 2, 1).await;
            take(&pool, "app", "mon").await.unwrap();
            let monday = of_a.clone();
            put(&a, &mut of_a, 0, UNIT / 2, 1000).await;
            put(&b, &mut of_b, 0, UNIT / 2, 1000).await;
            assert!(is_full(&a, UNIT, 1).await && is_full(&b, UNIT, 1).await);
            put(&b, &mut of_b, 0, 16, 2000).await;
            let back = |volume: &str| RollbackSpec {
                volume: volume.into(),
                snapshot: "mon".into(),
                keep: (volume == "a").then(|| ("before".into(), [7; 16])),
                created: 0,
            };
            pool.rollback_volumes(vec![back("a"), back("b")]).await.unwrap();
            let [a, b] = ["a", "b"].map(|name| pool.volume(name).unwrap());
            check(&a, &monday).await;
            // Of b what it had is gone: half a unit.
            assert_eq!(fill(&b, &mut Model::new(), UNIT).await, UNIT / 2);
            assert!(is_full(&a, UNIT, 1).await);
            pool.delete_snapshot("a", "before").await.unwrap();
            assert_eq!(fill(&a, &mut Model::new(), UNIT).await, UNIT / 2);
            // A group of clones has none, and takes nothing of it.
            let call = |of: &str| (format!("{of}-2"), [of.as_bytes()[0]; 16]);
            let spec = GroupCloneSpec {
                group: "app".into(),
                snapshot: "mon".into(),
                name: "two".into(),
                id: [4; 16],
                created: 0,
            };
            pool.clone_group(spec, call).await.unwrap();
            assert_eq!(status(&pool, "two"), None);
            put(&pool.volume("a-2").unwrap(), &mut Model::new(), 0, 2 * UNIT, 1).await;
            assert!(is_full(&a, 3 * UNIT, 1).await);
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn clones_are_detached_where_their_group_has_room_for_all_of_them() {
    reactor::simulate(1, async {
        let (_, _, pool, v) = made(2).await;
        put(&v, &mut Model::new(), 0, 2 * UNIT, 1).await;
        take_of(&pool, "db", "mon").await;
        let a = cloned(&pool, "db", "mon", "a").await;
        let spec = CloneSpec { quota: Some(8 * MIB), ..clone_of("db", "mon", "b") };
        let b = pool.clone_volume(spec).await.unwrap();
        pool.create_group(of("app", &["a", "b"], MIB)).await.unwrap();
        assert!(pool.counted().await.unwrap());
        refused(pool.detach_volume("a").await, Kind::Full, "group app");
        change(&pool, "app", bounded(Some(3 * MIB))).await.unwrap();
        pool.detach_volume("a").await.unwrap();
        refused(pool.detach_volume("b").await, Kind::Full, "once volume b is detached");
        while a.inherits() {
            reactor::sleep(Duration::from_millis(10)).await;
        }
        assert!(pool.counted().await.unwrap());
        assert_eq!(status(&pool, "app").unwrap().used, Some(2 * MIB));
        refused(pool.detach_volume("b").await, Kind::Full, "group app");
        change(&pool, "app", bounded(Some(4 * MIB))).await.unwrap();
        pool.detach_volume("b").await.unwrap();
        while b.inherits() {
            reactor::sleep(Duration::from_millis(10)).await;
        }
        assert!(is_full(&a, 3 * UNIT, 1).await);
        pool.close().await.unwrap();
    });
}

#[test]
fn many_writers_hold_to_the_quota_of_their_group() {
    reactor::simulate(1, async {
        let (_, _, pool, _) = made(3).await;
        let all = volumes(&pool, ["a", "b", "c"]).await;
        pool.create_group(of("app", &["a", "b"], 4 * MIB)).await.unwrap();
        let write = |n: u64| {
            let (pool, all) = (pool.clone(), all.clone());
            async move {
                let (mut prng, mut refused) = (Prng::new(n), 0);
                for round in 0..200 {
                    let v = &all[usize64(prng.below(3))];
                    let count = 1 + prng.below(8);
                    let first = prng.below(4 * UNIT - count);
                    match prng.below(10) {
                        0 => v.deallocate(first * 4096, count * 4096).await.unwrap(),
                        _ => refused += u64::from(is_full(v, first, count).await),
                    }
                    // One comes and goes, if there is room.
                    if n == 0 && round % 20 == 10 {
                        let moved = match round % 40 {
                            10 => adding(&["c"]),
                            _ => removing(&["c"]),
                        };
                        let _ = change(&pool, "app", moved).await;
                    }
                }
                refused
            }
        };
        let refused: u64 = reactor::join_all((0..8).map(write)).await.into_iter().sum();
        assert!(refused > 0);
        assert!(pool.counted().await.unwrap());
        let members = pool.groups()[0].volumes.clone();
        let held = members.iter().map(|name| pool.volume(name).unwrap().used().unwrap() / 4096);
        let held: u64 = held.sum();
        assert!(held <= 4 * UNIT + 64, "{held} of {}", 4 * UNIT);
        assert_eq!(status(&pool, "app").unwrap().used, Some(held * 4096));
        pool.close().await.unwrap();
    });
}

#[test]
fn writers_who_stay_within_the_quota_of_their_group_are_never_refused() {
    for shards in 1..=3 {
        reactor::simulate(u64::from(shards), async move {
            let (_, _, pool, _) = made(shards).await;
            let all = volumes(&pool, ["a", "b"]).await;
            pool.create_group(of("app", &["a", "b"], 3 * MIB)).await.unwrap();
            let write = |n: u64| {
                let all = all.clone();
                async move {
                    let mut prng = Prng::new(n);
                    for _ in 0..30 {
                        let count = 1 + prng.below(100);
                        let first = prng.below(UNIT + UNIT / 2 - count);
                        let v = &all[usize64(prng.below(2))];
                        assert!(!is_full(v, first, count).await, "it has room for all of them");
                    }
                }
            };
            reactor::join_all((0..24).map(write)).await;
            assert!(is_full(&all[0], 4 * UNIT, 2 * UNIT).await);
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn a_group_with_a_quota_has_no_windows() {
    reactor::simulate(1, async {
        let (_, log) = super::windows::memory(1);
        let (shards, au_bytes) = (Some(2), Some(MIB));
        let spec = PoolSpec { shards, au_bytes, ..spec(&drives(6, 64 * MIB), log) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        for (name, id) in [("a", [1; 16]), ("b", [2; 16])] {
            pool.create_volume(VolumeSpec { id, ..volume(name, 16 * MIB) }).await.unwrap();
        }
        let number = NonZeroU32::new(7).unwrap();
        let grant = |id: u8| pool.grant_window([id; 16], window::RING_BYTES_MIN, 9, number);
        assert!(grant(1).await.is_ok() && grant(2).await.is_ok());
        pool.create_group(of("app", &["a"], 2 * MIB)).await.unwrap();
        assert_eq!((pool.open_windows(), grant(1).await.unwrap_err().kind), (1, Kind::Unsupported));
        change(&pool, "app", adding(&["b"])).await.unwrap();
        assert_eq!((pool.open_windows(), grant(2).await.unwrap_err().kind), (0, Kind::Unsupported));
        change(&pool, "app", bounded(None)).await.unwrap();
        assert!(grant(1).await.is_ok());
        change(&pool, "app", bounded(Some(MIB))).await.unwrap();
        assert_eq!(pool.open_windows(), 0);
        pool.close().await.unwrap();
    });
}
