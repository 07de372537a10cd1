//! Clones of groups: of one instant, all or none, whatever happens.

use super::clones::{clone_of, reopened, take_of};
use super::groups::{
    adding, change, count_up, group_of, groups, is, killed, number, objects, removing, take,
};
use super::snapshots::{check, check_drives, live, made, put};
use super::*;
use crate::limits::{CLONES_DEEP_MAX, GROUP_VOLUMES_MAX};

fn spec_of(group: &str, snapshot: &str, name: &str) -> GroupCloneSpec {
    GroupCloneSpec {
        group: group.into(),
        snapshot: snapshot.into(),
        name: name.into(),
        id: [5; 16],
        created: 1_800_000_002,
    }
}

/// Each clone is called after the group that it is in and its volume.
pub(super) async fn cloned(
    pool: &Pool,
    group: &str,
    snapshot: &str,
    name: &str,
) -> Result<Vec<String>> {
    let (to, drawn) = (name.to_owned(), Cell::new(100));
    let call = move |volume: &str| {
        drawn.set(u8::wrapping_add(drawn.get(), 1));
        (format!("{to}-{volume}"), [drawn.get(); 16])
    };
    pool.clone_group(spec_of(group, snapshot, name), call).await
}

const ALL: [&str; 3] = ["db", "log", "web"];
const OF_ALL: [&str; 3] = ["new-db", "new-log", "new-web"];

/// A group of volumes, some MiB each.
async fn made_of_all(shards: u16) -> (Vec<Arc<Drive>>, LogSpec, Pool, Vec<Volume>) {
    let (drives, log, pool, first) = made(shards).await;
    let mut volumes = vec![first];
    for (id, name) in (2..).zip(&ALL[1..]) {
        let spec = VolumeSpec { id: [id; 16], ..volume(name, 4 * MIB) };
        volumes.push(pool.create_volume(spec).await.unwrap());
    }
    group_of(&pool, "app", &ALL).await;
    (drives, log, pool, volumes)
}

#[test]
fn clones_of_a_group_begin_with_what_it_had_at_one_instant() {
    const UNTIL: u64 = 400;
    let mut between = 0;
    for seed in 0..6 {
        between += reactor::simulate(seed, async move {
            let (drives, log, pool, volumes) = made_of_all(3).await;
            let counting = reactor::spawn(count_up(volumes, UNTIL));
            reactor::sleep(std::time::Duration::from_micros(97 * seed)).await;
            take(&pool, "app", "mon").await.unwrap();
            let mut names = cloned(&pool, "app", "mon", "new").await.unwrap();
            names.sort();
            assert_eq!(names, OF_ALL);
            let mut seen = Vec::new();
            for (of, name) in ALL.iter().zip(&OF_ALL) {
                let has = number(&pool.volume(name).unwrap()).await;
                assert_eq!(has, number(&pool.snapshot(of, "mon").unwrap()).await, "{name}");
                seen.push(has);
            }
            let follows = seen.windows(2).all(|two| two[1] <= two[0] && two[0] <= two[1] + 1);
            assert!(follows, "of one instant: {seen:?}");
            counting.await.unwrap();
            // Hosts went on, and the clones did not.
            let pool = killed(&drives, &log, pool).await;
            assert_eq!(groups(&pool), is(&[("app", &ALL), ("new", &OF_ALL)]));
            for (seen, (of, name)) in seen.iter().zip(ALL.iter().zip(&OF_ALL)) {
                assert_eq!(number(&pool.volume(name).unwrap()).await, *seen);
                assert_eq!(number(&pool.volume(of).unwrap()).await, UNTIL);
            }
            pool.close().await.unwrap();
            u64::from(0 < seen[0] && seen[0] < UNTIL)
        });
    }
    assert!(between > 2, "clones were made while hosts wrote: {between}");
}

#[test]
fn clones_of_a_group_are_volumes_of_another_one_as_others_are() {
    reactor::simulate(2, async {
        let (drives, log, pool, volumes) = made_of_all(2).await;
        let mut models = vec![Model::new(); 3];
        for ((n, v), model) in (0..).zip(&volumes).zip(&mut models) {
            put(v, model, 10 * n, 100, 1000 * n).await;
        }
        take(&pool, "app", "mon").await.unwrap();
        let monday = models.clone();
        for ((n, v), model) in (0..).zip(&volumes).zip(&mut models) {
            put(v, model, 50, 100, 5000 * (n + 1)).await;
        }
        let before = live(&pool).await;
        cloned(&pool, "app", "mon", "new").await.unwrap();
        assert_eq!(live(&pool).await, before, "clones take no space");
        let status = &pool.groups()[1];
        assert_eq!((status.id, status.created), ([5; 16], 1_800_000_002));
        let mut ids = Vec::new();
        for (v, name) in volumes.iter().zip(&OF_ALL) {
            let origin = pool.volume(name).unwrap().origin().unwrap();
            assert_eq!(origin.volume, v.id());
            ids.push(pool.volume(name).unwrap().id());
        }
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
        // The clones are a group as others are, and the first goes with its volumes.
        let mut of_clone = monday[1].clone();
        put(&pool.volume("new-log").unwrap(), &mut of_clone, 0, 20, 9000).await;
        assert_eq!(take(&pool, "new", "tue").await.unwrap().len(), 3);
        cloned(&pool, "new", "tue", "more").await.unwrap();
        for (name, model) in [("new-db", &monday[0]), ("new-web", &monday[2])] {
            check(&pool.volume(name).unwrap(), model).await;
        }
        pool.delete_group("app").await.unwrap();
        for name in ALL {
            pool.delete_snapshot(name, "mon").await.unwrap();
            pool.delete_volume(name).await.unwrap();
        }
        let pool = reopened(&drives, &log, pool).await;
        let more = ["more-new-db", "more-new-log", "more-new-web"];
        assert_eq!(groups(&pool), is(&[("more", &more), ("new", &OF_ALL)]));
        for names in [more, OF_ALL] {
            for (name, model) in names.iter().zip([&monday[0], &of_clone, &monday[2]]) {
                check(&pool.volume(name).unwrap(), model).await;
            }
        }
        for name in more.iter().chain(&OF_ALL) {
            for snapshot in pool.snapshots(name).unwrap() {
                pool.delete_snapshot(name, &snapshot.name).await.unwrap();
            }
            pool.delete_volume(name).await.unwrap();
        }
        assert_eq!(live(&pool).await, 0);
        // The groups are there, and nothing else.
        assert_eq!((groups(&pool), objects(&pool)), (is(&[("more", &[]), ("new", &[])]), 2));
        pool.close().await.unwrap();
        check_drives(&drives, &log).await;
    });
}

#[test]
fn clones_of_a_group_that_cannot_be_leave_nothing() {
    reactor::simulate(3, async {
        let (drives, log, pool, volumes) = made_of_all(2).await;
        group_of(&pool, "empty", &[]).await;
        take(&pool, "app", "mon").await.unwrap();
        take_of(&pool, "db", "tue").await;
        let spec = VolumeSpec { id: [9; 16], ..volume("new-web", MIB) };
        pool.create_volume(spec).await.unwrap();
        let (before, count) = (groups(&pool), objects(&pool));
        let refused = |done: Result<Vec<String>>, kind: Kind, words: &str| {
            let error = done.unwrap_err();
            assert!(error.kind == kind && error.context.contains(words), "{words}: {error}");
        };
        // With what is put behind it, none of its clones could be called so.
        let long = "x".repeat(62);
        let of = |group, snapshot, name| cloned(&pool, group, snapshot, name);
        refused(of("none", "mon", "x").await, Kind::NotFound, "no group is called none");
        refused(of("db", "mon", "x").await, Kind::NotFound, "db is a volume, not a group");
        refused(of("empty", "mon", "x").await, Kind::Invalid, "has no volumes");
        refused(of("app", "wed", "x").await, Kind::NotFound, "@wed");
        refused(of("app", "tue", "x").await, Kind::NotFound, "log@tue");
        refused(of("app", "mon", "app").await, Kind::Exists, "a group is called app already");
        refused(of("app", "mon", "db").await, Kind::Exists, "a volume is called db already");
        refused(of("app", "mon", "new").await, Kind::Exists, "a volume is called new-web");
        refused(of("app", "mon", "a b").await, Kind::Invalid, "");
        refused(of("app", "mon", &long).await, Kind::Invalid, "");
        let spec = || spec_of("app", "mon", "x");
        let one = |name: &'static str| move |_: &str| (name.to_owned(), [1; 16]);
        refused(pool.clone_group(spec(), one("y")).await, Kind::Exists, "would be called y");
        refused(pool.clone_group(spec(), one("x")).await, Kind::Exists, "would be called x");
        // One of them is as deep as can be.
        pool.delete_volume("new-web").await.unwrap();
        let mut last = "db".to_owned();
        for n in 1..=CLONES_DEEP_MAX {
            let next = format!("c{n}");
            pool.clone_volume(clone_of(&last, "mon", &next)).await.unwrap();
            take_of(&pool, &next, "mon").await;
            last = next;
        }
        change(&pool, "app", adding(&[&last])).await.unwrap();
        let count = count - 1 + 2 * CLONES_DEEP_MAX;
        refused(of("app", "mon", "new").await, Kind::Full, "64 deep");
        change(&pool, "app", removing(&[&last])).await.unwrap();
        assert_eq!((groups(&pool), objects(&pool)), (before.clone(), count));
        drop(volumes);
        let pool = reopened(&drives, &log, pool).await;
        assert_eq!((groups(&pool), objects(&pool)), (before, count));
        cloned(&pool, "app", "mon", "new").await.unwrap();
        assert_eq!(objects(&pool), count + 4);
        pool.close().await.unwrap();
        check_drives(&drives, &log).await;
    });
}

/// The catalog takes all that a group can have in one edit, and no more than there is room for.
#[test]
fn a_group_of_as_many_as_can_be_is_cloned_until_the_pool_is_full() {
    reactor::simulate(4, async {
        let (drives, log) = (drives(4, 96 * MIB), LogSpec::Bbu(vec![pmem(4 * MIB)]));
        let pool = Pool::create(spec(&drives, log.clone()), &[]).await.unwrap();
        let all: Vec<String> = (0..GROUP_VOLUMES_MAX).map(|n| format!("v{n}")).collect();
        for name in &all {
            pool.create_volume(volume(name, MIB)).await.unwrap();
        }
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        group_of(&pool, "app", &all).await;
        take(&pool, "app", "mon").await.unwrap();
        let most = pool.0.common.superblock.objects_max();
        let mut made = 0;
        while objects(&pool) + GROUP_VOLUMES_MAX < most {
            let clones = cloned(&pool, "app", "mon", &format!("n{made}")).await.unwrap();
            assert_eq!(clones.len(), GROUP_VOLUMES_MAX);
            made += 1;
        }
        let count = objects(&pool);
        let refused = cloned(&pool, "app", "mon", "last").await.unwrap_err();
        assert_eq!(refused.kind, Kind::Full);
        assert!(refused.context.contains(&format!("at most {most} volumes")), "{refused}");
        let pool = killed(&drives, &log, pool).await;
        assert_eq!((objects(&pool), pool.groups().len()), (count, made + 1));
        pool.close().await.unwrap();
    });
}

/// Whenever power fails, there are all of the clones and their group, or nothing of them.
#[test]
fn clones_of_a_group_are_all_there_or_none_after_a_power_cut() {
    let mut whole = 0;
    for seed in 0..40 {
        let (media, drives) = simulated(3, 64 * MIB, seed * 100);
        let log = LogSpec::Bbu(vec![pmem(4 * MIB)]);
        let scheme = raid::Scheme::Raid5;
        let spec = PoolSpec { scheme, au_bytes: Some(MIB), ..spec(&drives, log.clone()) };
        reactor::simulate(seed, async move {
            let pool = Pool::create(spec, &[]).await.unwrap();
            for (id, name) in (1..).zip(ALL) {
                let spec = VolumeSpec { id: [id; 16], ..volume(name, MIB) };
                let v = pool.create_volume(spec).await.unwrap();
                put(&v, &mut Model::new(), 0, 20, 1000 * u64::from(id)).await;
            }
            group_of(&pool, "app", &ALL).await;
            take(&pool, "app", "mon").await.unwrap();
            let cloning = reactor::spawn(async move {
                cloned(&pool, "app", "mon", "new").await.unwrap();
            });
            reactor::sleep(std::time::Duration::from_micros(60 * seed)).await;
            media.iter().for_each(|medium| medium.power_cut(&mut Prng::new(seed)));
            media.iter().for_each(|medium| medium.power_on());
            drop(cloning);
        });
        whole += reactor::simulate(seed, async move {
            let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
            let is_whole = pool.groups().len() == 2;
            if is_whole {
                assert_eq!(groups(&pool), is(&[("app", &ALL), ("new", &OF_ALL)]));
                for (id, name) in (1..).zip(OF_ALL) {
                    let model = (0..20).map(|at| (at, 1000 * id + at)).collect();
                    check(&pool.volume(name).unwrap(), &model).await;
                }
            } else {
                assert_eq!(groups(&pool), is(&[("app", &ALL)]));
                assert_eq!(pool.volumes(), ALL, "seed {seed}: nothing of them is there");
            }
            pool.close().await.unwrap();
            u64::from(is_whole)
        });
    }
    assert!((5..36).contains(&whole), "power failed before and behind it: {whole} of 40");
}
