//! Groups: which volumes they have, whatever becomes of these, and snapshots of all of them at one instant.

use std::pin::Pin;

use super::clones::{cloned, reopened, take_of};
use super::snapshots::{check, check_drives, live, made, put};
use super::*;
use crate::format::catalog::Catalog;
use crate::limits::GROUP_VOLUMES_MAX;

const B: u64 = BLOCK as u64;

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

pub(super) fn group(name: &str, volumes: &[&str]) -> GroupSpec {
    let (id, volumes) = ([3; 16], owned(volumes));
    GroupSpec { name: name.into(), id, created: 1_800_000_000, volumes, quota: None }
}

pub(super) async fn group_of(pool: &Pool, name: &str, volumes: &[&str]) {
    pool.create_group(group(name, volumes)).await.unwrap();
}

pub(super) fn adding(volumes: &[&str]) -> GroupChange {
    GroupChange { add: owned(volumes), ..GroupChange::default() }
}

pub(super) fn removing(volumes: &[&str]) -> GroupChange {
    GroupChange { remove: owned(volumes), ..GroupChange::default() }
}

pub(super) async fn change(pool: &Pool, group: &str, change: GroupChange) -> Result<()> {
    pool.change_group(group, change).await
}

pub(super) async fn take(pool: &Pool, group: &str, name: &str) -> Result<Vec<String>> {
    let (group, name) = (group.to_owned(), name.to_owned());
    let spec = GroupSnapshotSpec { group, name, created: 1_800_000_001 };
    let drawn = Cell::new(0);
    let draw = move || {
        drawn.set(u8::wrapping_add(drawn.get(), 1));
        [drawn.get(); 16]
    };
    pool.take_group_snapshots(spec, draw).await
}

pub(super) fn groups(pool: &Pool) -> Vec<(String, Vec<String>)> {
    pool.groups().into_iter().map(|group| (group.name, group.volumes)).collect()
}

pub(super) fn is(all: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
    all.iter().map(|(name, volumes)| ((*name).to_owned(), owned(volumes))).collect()
}

fn names(pool: &Pool, volume: &str) -> Vec<String> {
    pool.snapshots(volume).unwrap().into_iter().map(|snapshot| snapshot.name).collect()
}

pub(super) fn objects(pool: &Pool) -> usize {
    pool.0.common.superblock.catalog(|catalog| catalog.len())
}

/// As a process that is killed leaves it.
pub(super) async fn killed(drives: &[Arc<Drive>], log: &LogSpec, pool: Pool) -> Pool {
    pool.abandon().await;
    Pool::open(drives.to_vec(), log.clone(), OpenOptions::default(), &[]).await.unwrap()
}

#[test]
fn a_group_has_the_volumes_that_it_was_given_whatever_becomes_of_them() {
    reactor::simulate(1, async {
        let (drives, log, pool, _) = made(2).await;
        for name in ["log", "web", "other"] {
            pool.create_volume(volume(name, MIB)).await.unwrap();
        }
        group_of(&pool, "app", &["log", "db"]).await;
        group_of(&pool, "empty", &[]).await;
        let all = is(&[("app", &["db", "log"]), ("empty", &[])]);
        assert_eq!(groups(&pool), all);
        let pool = killed(&drives, &log, pool).await;
        assert_eq!(groups(&pool), all);
        let status = &pool.groups()[0];
        assert_eq!((status.id, status.created), ([3; 16], 1_800_000_000));
        // Whatever is changed of a member leaves it where it is.
        pool.rename_volume("log", "journal").await.unwrap();
        pool.resize_volume("db", 2 * MIB).await.unwrap();
        pool.resize_volume("journal", 2 * MIB).await.unwrap();
        let both = GroupChange { add: owned(&["web"]), ..removing(&["journal"]) };
        change(&pool, "app", both).await.unwrap();
        change(&pool, "empty", adding(&["journal"])).await.unwrap();
        let renamed = GroupChange { name: Some("job".into()), ..adding(&["other"]) };
        change(&pool, "empty", renamed).await.unwrap();
        let all = is(&[("app", &["db", "web"]), ("job", &["journal", "other"])]);
        assert_eq!(groups(&pool), all);
        // What is deleted leaves it, and another of that name is not in it.
        pool.delete_volume("web").await.unwrap();
        pool.create_volume(volume("web", MIB)).await.unwrap();
        let all = is(&[("app", &["db"]), ("job", &["journal", "other"])]);
        assert_eq!(groups(&pool), all);
        let pool = reopened(&drives, &log, pool).await;
        assert_eq!(groups(&pool), all);
        assert_eq!(pool.volumes(), ["db", "journal", "other", "web"]);
        // Its volumes stay, and can be in another one.
        pool.delete_group("job").await.unwrap();
        change(&pool, "app", adding(&["journal", "other"])).await.unwrap();
        let pool = killed(&drives, &log, pool).await;
        assert_eq!(groups(&pool), is(&[("app", &["db", "journal", "other"])]));
        pool.delete_group("app").await.unwrap();
        assert_eq!((groups(&pool), objects(&pool)), (vec![], 4));
        pool.close().await.unwrap();
        check_drives(&drives, &log).await;
    });
}

#[test]
fn groups_and_volumes_are_not_taken_for_each_other() {
    reactor::simulate(1, async {
        let (drives, log, pool, _) = made(1).await;
        pool.create_volume(volume("log", MIB)).await.unwrap();
        take_of(&pool, "db", "mon").await;
        group_of(&pool, "app", &["db"]).await;
        group_of(&pool, "other", &[]).await;
        let (before, count) = (groups(&pool), objects(&pool));
        let refused = |done: Result<()>, kind: Kind, words: &str| {
            let error = done.unwrap_err();
            assert!(error.kind == kind && error.context.contains(words), "{words}: {error}");
        };
        let is_group = "app is a group, not a volume";
        refused(pool.delete_volume("app").await, Kind::NotFound, is_group);
        refused(pool.rename_volume("app", "x").await, Kind::NotFound, is_group);
        refused(pool.resize_volume("app", MIB).await, Kind::NotFound, "app");
        let spec = |volume: &str| SnapshotSpec {
            volume: volume.into(),
            name: "tue".into(),
            id: [1; 16],
            created: 0,
        };
        let taken = pool.take_snapshots(vec![spec("db"), spec("app")]).await;
        refused(taken, Kind::NotFound, is_group);
        refused(pool.delete_snapshot("app", "mon").await, Kind::NotFound, is_group);
        assert!(pool.volume("app").is_err() && pool.snapshots("app").is_err());
        let clone = |name: &str| super::clones::clone_of("db", "mon", name);
        let is_taken = "a group is called app already";
        refused(pool.clone_volume(clone("app")).await.map(drop), Kind::Exists, is_taken);
        let same = pool.create_volume(volume("app", MIB)).await.map(drop);
        refused(same, Kind::Exists, is_taken);
        refused(pool.rename_volume("log", "app").await, Kind::Exists, is_taken);
        let of = |name: &str, volumes: &[&str]| pool.create_group(group(name, volumes));
        refused(of("app", &[]).await, Kind::Exists, is_taken);
        refused(of("log", &[]).await, Kind::Exists, "a volume is called log already");
        refused(of("-", &[]).await, Kind::Invalid, "");
        refused(of("new", &["app"]).await, Kind::NotFound, is_group);
        refused(of("new", &["none"]).await, Kind::NotFound, "no volume is called none");
        refused(of("new", &["log", "log"]).await, Kind::Invalid, "log is named twice");
        let elsewhere = "volume db is in group app, and can be in one only";
        refused(of("new", &["log", "db"]).await, Kind::Busy, elsewhere);
        refused(change(&pool, "other", adding(&["log", "db"])).await, Kind::Busy, elsewhere);
        let in_it = "volume db is in group app already";
        refused(change(&pool, "app", adding(&["log", "db"])).await, Kind::Exists, in_it);
        let not_in = "volume log is not in group app";
        refused(change(&pool, "app", removing(&["db", "log"])).await, Kind::NotFound, not_in);
        let twice = GroupChange { add: owned(&["db"]), ..removing(&["db"]) };
        refused(change(&pool, "app", twice).await, Kind::Invalid, "db is named twice");
        refused(change(&pool, "log", adding(&["db"])).await, Kind::NotFound, "log is a volume");
        let renamed = GroupChange { name: Some("db".into()), ..adding(&["log"]) };
        refused(change(&pool, "app", renamed).await, Kind::Exists, "volume is called db");
        refused(pool.delete_group("db").await, Kind::NotFound, "db is a volume, not a group");
        refused(pool.delete_group("none").await, Kind::NotFound, "no group is called none");
        refused(take(&pool, "db", "tue").await.map(drop), Kind::NotFound, "db is a volume");
        refused(take(&pool, "other", "tue").await.map(drop), Kind::Invalid, "has no volumes");
        refused(take(&pool, "app", "mon").await.map(drop), Kind::Exists, "db@mon already");
        assert_eq!((groups(&pool), objects(&pool)), (before.clone(), count));
        let pool = reopened(&drives, &log, pool).await;
        assert_eq!((groups(&pool), objects(&pool)), (before, count));
        pool.close().await.unwrap();
    });
}

#[test]
fn a_group_has_as_many_volumes_as_go_back_in_one_step() {
    reactor::simulate(1, async {
        let (drives, log) = (drives(4, 96 * MIB), LogSpec::Bbu(vec![pmem(4 * MIB)]));
        let pool = Pool::create(spec(&drives, log.clone()), &[]).await.unwrap();
        let all: Vec<String> = (0..=GROUP_VOLUMES_MAX).map(|n| format!("v{n}")).collect();
        for name in &all {
            pool.create_volume(volume(name, MIB)).await.unwrap();
        }
        let app = |volumes: &[String]| GroupSpec { volumes: volumes.to_vec(), ..group("app", &[]) };
        let refused = pool.create_group(app(&all)).await.unwrap_err();
        assert_eq!(refused.kind, Kind::Full);
        assert!(refused.context.contains("at most 500 volumes"), "{refused}");
        let (last, first) = all.split_last().unwrap();
        pool.create_group(app(first)).await.unwrap();
        let refused = change(&pool, "app", adding(&[last])).await.unwrap_err();
        assert_eq!(refused.kind, Kind::Full);
        let instead = GroupChange { add: vec![last.clone()], ..removing(&["v0"]) };
        change(&pool, "app", instead).await.unwrap();
        assert_eq!(take(&pool, "app", "mon").await.unwrap().len(), GROUP_VOLUMES_MAX);
        let keep = Some(("last".to_owned(), [4; 16]));
        let back = |volume: String| RollbackSpec {
            volume,
            snapshot: "mon".into(),
            keep: keep.clone(),
            created: 0,
        };
        let members = pool.groups()[0].volumes.clone();
        pool.rollback_volumes(members.into_iter().map(back).collect()).await.unwrap();
        assert_eq!(names(&pool, last), ["mon", "last"]);
        assert!(names(&pool, "v0").is_empty());
        let pool = killed(&drives, &log, pool).await;
        assert_eq!(pool.groups()[0].volumes.len(), GROUP_VOLUMES_MAX);
        pool.delete_group("app").await.unwrap();
        pool.close().await.unwrap();
    });
}

/// A volume that is rolled back is another object, and the one it was has to be there no longer than its snapshots.
#[test]
fn a_volume_that_is_rolled_back_stays_in_its_group_and_what_it_was_does_not() {
    for dies in [false, true] {
        reactor::simulate(2, async move {
            let (drives, log, pool, v) = made(1).await;
            let mut model = Model::new();
            put(&v, &mut model, 0, 50, 1).await;
            take_of(&pool, "db", "mon").await;
            let monday = model.clone();
            put(&v, &mut model, 0, 10, 1000).await;
            group_of(&pool, "app", &["db"]).await;
            let keep = Some(("before".to_owned(), [8; 16]));
            let (volume, snapshot) = ("db".to_owned(), "mon".to_owned());
            let spec = RollbackSpec { volume, snapshot, keep, created: 0 };
            pool.rollback_volume(spec).await.unwrap();
            let pool = if dies { killed(&drives, &log, pool).await } else { pool };
            assert_eq!(groups(&pool), is(&[("app", &["db"])]));
            // Of its former view there is what its snapshots see.
            let of_group = |catalog: &Catalog| {
                let group = catalog.find("app").unwrap().view;
                (catalog.needing(group), catalog.objects().filter(|of| of.deleted).count())
            };
            assert_eq!(pool.0.common.superblock.catalog(of_group), (1, 1));
            assert_eq!(take(&pool, "app", "tue").await.unwrap(), ["db"]);
            assert_eq!(names(&pool, "db"), ["mon", "before", "tue"]);
            check(&pool.snapshot("db", "before").unwrap(), &model).await;
            check(&pool.snapshot("db", "tue").unwrap(), &monday).await;
            // Out of it, so that nothing keeps it.
            change(&pool, "app", removing(&["db"])).await.unwrap();
            assert_eq!(pool.0.common.superblock.catalog(of_group), (0, 1));
            change(&pool, "app", adding(&["db"])).await.unwrap();
            pool.delete_group("app").await.unwrap();
            let pool = reopened(&drives, &log, pool).await;
            check(&pool.volume("db").unwrap(), &monday).await;
            pool.close().await.unwrap();
            check_drives(&drives, &log).await;
        });
    }
}

#[test]
fn a_deleted_volume_that_is_there_for_its_clones_is_in_no_group() {
    reactor::simulate(3, async {
        let (drives, log, pool, v) = made(1).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 50, 1).await;
        group_of(&pool, "app", &["db"]).await;
        take(&pool, "app", "mon").await.unwrap();
        let dev = cloned(&pool, "db", "mon", "dev").await;
        assert_eq!(groups(&pool), is(&[("app", &["db"])]), "a clone is in no group");
        change(&pool, "app", adding(&["dev"])).await.unwrap();
        pool.delete_snapshot("db", "mon").await.unwrap();
        pool.delete_volume("db").await.unwrap();
        // The group, the clone, and what it has of the volume.
        assert_eq!((groups(&pool), objects(&pool)), (is(&[("app", &["dev"])]), 3));
        let pool = killed(&drives, &log, pool).await;
        assert_eq!((groups(&pool), objects(&pool)), (is(&[("app", &["dev"])]), 3));
        drop(dev);
        pool.delete_group("app").await.unwrap();
        check(&pool.volume("dev").unwrap(), &model).await;
        pool.delete_volume("dev").await.unwrap();
        assert_eq!((objects(&pool), live(&pool).await), (0, 0));
        pool.close().await.unwrap();
        check_drives(&drives, &log).await;
    });
}

/// A number in each volume, in the first before it is in the next.
pub(super) async fn count_up(volumes: Vec<Volume>, until: u64) {
    for number in 1..=until {
        let mut data = [0; BLOCK];
        data[..8].copy_from_slice(&number.to_le_bytes());
        for volume in &volumes {
            volume.write(5 * B, &data).await.unwrap();
            reactor::sleep(std::time::Duration::from_micros(1)).await;
        }
    }
}

pub(super) async fn number(v: &Volume) -> u64 {
    let mut data = [0; BLOCK];
    v.read(5 * B, &mut data).await.unwrap();
    u64::from_le_bytes(data[..8].try_into().unwrap())
}

/// A volume comes into the group, and at the same time snapshots are taken of it. What is asked for first is done first.
async fn join_and_take(pool: &Pool, name: &str) -> Result<Vec<String>> {
    type Asked<'p> = Pin<Box<dyn Future<Output = Result<Vec<String>>> + 'p>>;
    let join = async { change(pool, "app", adding(&["log"])).await.map(|()| Vec::new()) };
    let both: [Asked<'_>; 2] = [Box::pin(join), Box::pin(take(pool, "app", name))];
    let mut done = reactor::join_all(both).await;
    done.pop().unwrap()
}

#[test]
fn snapshots_of_a_group_are_of_one_instant_and_of_whoever_was_in_it_by_then() {
    const UNTIL: u64 = 400;
    let mut between = 0;
    for seed in 0..8 {
        between += reactor::simulate(seed, async move {
            let (drives, log, pool, first) = made(3).await;
            let mut volumes = vec![first];
            for name in ["log", "web"] {
                volumes.push(pool.create_volume(volume(name, 4 * MIB)).await.unwrap());
            }
            group_of(&pool, "app", &["web", "db"]).await;
            let counting = reactor::spawn(count_up(volumes, UNTIL));
            let mut between = 0;
            for n in 0..10 {
                let name = format!("s{n}");
                let taken = if n == 5 {
                    join_and_take(&pool, &name).await
                } else {
                    take(&pool, "app", &name).await
                };
                let names: &[&str] = if n < 5 { &["db", "web"] } else { &["db", "log", "web"] };
                let mut taken = taken.unwrap();
                taken.sort();
                assert_eq!(taken, names);
                let mut last = u64::MAX;
                for volume in names {
                    let seen = number(&pool.snapshot(volume, &name).unwrap()).await;
                    let follows = last == u64::MAX || seen <= last && last <= seen + 1;
                    assert!(follows, "{seen} in {volume}@{name}, {last} before it");
                    between += u64::from(0 < seen && seen < UNTIL);
                    last = seen;
                }
                reactor::sleep(std::time::Duration::from_micros(37 * n)).await;
            }
            counting.await.unwrap();
            // Each is known by its own number.
            let ids = ["db", "log", "web"].map(|of| pool.snapshot(of, "s9").unwrap().id());
            assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
            let pool = killed(&drives, &log, pool).await;
            assert_eq!((names(&pool, "web").len(), names(&pool, "log").len()), (10, 5));
            pool.close().await.unwrap();
            between
        });
    }
    assert!(between > 10, "snapshots were taken while hosts wrote: {between}");
}
