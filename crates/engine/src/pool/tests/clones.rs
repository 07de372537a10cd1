//! Clones: what they begin with, for how long, and what they cost.

use std::collections::BTreeSet;
use std::time::Duration;

use super::snapshots::{check, check_drives, empty_all, live, made, put, take, trim};
use super::*;
use crate::address::View;
use crate::area::catalog as area_catalog;
use crate::canary::{Step, misses};
use crate::format::area as at;
use crate::format::catalog::{self, Catalog, CatalogArea, Object, PAGE, Record};
use crate::limits::CLONES_DEEP_MAX;

const B: u64 = BLOCK as u64;

pub(super) fn clone_of(volume: &str, snapshot: &str, name: &str) -> CloneSpec {
    CloneSpec {
        volume: volume.into(),
        snapshot: snapshot.into(),
        name: name.into(),
        id: [name.as_bytes()[0]; 16],
        bytes: None,
        quota: None,
        reservation: None,
    }
}

pub(super) async fn cloned(pool: &Pool, volume: &str, snapshot: &str, name: &str) -> Volume {
    pool.clone_volume(clone_of(volume, snapshot, name)).await.unwrap()
}

pub(super) async fn take_of(pool: &Pool, volume: &str, name: &str) {
    let spec = SnapshotSpec {
        volume: volume.into(),
        name: name.into(),
        id: [name.as_bytes()[0]; 16],
        created: 0,
    };
    pool.take_snapshots(vec![spec]).await.unwrap();
}

pub(super) async fn reopened(drives: &[Arc<Drive>], log: &LogSpec, pool: Pool) -> Pool {
    pool.close().await.unwrap();
    check_drives(drives, log).await;
    Pool::open(drives.to_vec(), log.clone(), OpenOptions::default(), &[]).await.unwrap()
}

#[test]
fn a_clone_begins_with_what_its_snapshot_sees_and_goes_its_own_way() {
    reactor::simulate(1, async {
        let (drives, log, pool, v) = made(2).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 100, 1).await;
        put(&v, &mut model, 500, 100, 500).await;
        take(&pool, "mon").await;
        let monday = model.clone();
        put(&v, &mut model, 50, 100, 1000).await;
        let dev = cloned(&pool, "db", "mon", "dev").await;
        let mut of_dev = monday.clone();
        check(&dev, &of_dev).await;
        assert_eq!(live(&pool).await, 200 + 100, "a clone takes no space");
        put(&dev, &mut of_dev, 90, 20, 2000).await;
        trim(&dev, &mut of_dev, 510, 30).await;
        trim(&v, &mut model, 0, 10).await;
        for _ in 0..2 {
            check(&dev, &of_dev).await;
            check(&v, &model).await;
            check(&pool.snapshot("db", "mon").unwrap(), &monday).await;
            assert_eq!(live(&pool).await, 200 + 100 + 20);
            empty_all(&pool).await;
        }
        let origin = dev.origin().unwrap();
        assert_eq!((origin.volume, origin.snapshot), (v.id(), Some([9; 16])));
        let pool = reopened(&drives, &log, pool).await;
        let dev = pool.volume("dev").unwrap();
        assert_eq!(dev.origin(), Some(origin));
        check(&dev, &of_dev).await;
        check(&pool.volume("db").unwrap(), &model).await;
        // What only the clone has goes with it; 10 that hosts gave back are seen on Monday.
        pool.delete_volume("dev").await.unwrap();
        assert_eq!(live(&pool).await, 200 + 100);
        check(&pool.snapshot("db", "mon").unwrap(), &monday).await;
        pool.close().await.unwrap();
        check_drives(&drives, &log).await;
    });
}

/// The holes come to the last level of the map, where nothing of their own view lies below.
#[test]
fn what_a_clone_gave_back_stays_away() {
    reactor::simulate(2, async {
        let (drives, log, pool, v) = made(1).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 300, 1).await;
        take(&pool, "mon").await;
        let dev = cloned(&pool, "db", "mon", "dev").await;
        let mut of_dev = model.clone();
        trim(&dev, &mut of_dev, 100, 50).await;
        assert_eq!(live(&pool).await, 300);
        take_of(&pool, "dev", "a").await;
        let before = of_dev.clone();
        put(&dev, &mut of_dev, 120, 10, 5000).await;
        trim(&dev, &mut of_dev, 140, 60).await;
        trim(&dev, &mut of_dev, 125, 1).await;
        for _ in 0..2 {
            assert_eq!(live(&pool).await, 300 + 9);
            check(&dev, &of_dev).await;
            check(&pool.snapshot("dev", "a").unwrap(), &before).await;
        }
        pool.delete_snapshot("dev", "a").await.unwrap();
        assert_eq!(live(&pool).await, 300 + 9);
        check(&dev, &of_dev).await;
        let pool = reopened(&drives, &log, pool).await;
        check(&pool.volume("dev").unwrap(), &of_dev).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn the_holes_of_clones_are_missed() {
    misses(Step::CloneHoles, "block 100 of dev", what_a_clone_gave_back_stays_away);
}

fn back_to(volume: &str, snapshot: &str) -> RollbackSpec {
    let (volume, snapshot) = (volume.into(), snapshot.into());
    RollbackSpec { volume, snapshot, keep: None, created: 1_800_000_000 }
}

/// Where it was looked for, a clone is known to have nothing of its own: until something comes there, whatever it is and
/// whoever brings it, and wherever that lies.
#[test]
fn what_comes_to_a_clone_is_found_where_it_was_known_to_have_nothing() {
    reactor::simulate(9, async {
        let (drives, log, pool, v) = made(2).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 300, 1).await;
        put(&v, &mut model, 600, 300, 600).await;
        take(&pool, "mon").await;
        let mut of_dev = model.clone();
        let mut dev = cloned(&pool, "db", "mon", "dev").await;
        put(&v, &mut model, 0, 1024, 5000).await;
        live(&pool).await;
        for turn in 0..3 {
            let at = 100 * turn;
            // Pages are read the first time; the other times nobody looks for them.
            for _ in 0..3 {
                check(&dev, &of_dev).await;
            }
            put(&dev, &mut of_dev, at, 10, 20_000 + at).await;
            trim(&dev, &mut of_dev, at + 20, 10).await;
            put(&dev, &mut of_dev, at + 300, 10, 30_000 + at).await;
            dev.copy_from(&v, (at + 600) * B, (at + 600) * B, 10 * B).await.unwrap();
            (at + 600..at + 610).for_each(|n| _ = of_dev.insert(n, model[&n]));
            // In the log, then carried while it is looked for, then moved.
            check(&dev, &of_dev).await;
            live(&pool).await;
            check(&dev, &of_dev).await;
            if turn == 1 {
                empty_all(&pool).await;
                check(&dev, &of_dev).await;
            }
        }
        take_of(&pool, "dev", "a").await;
        let before = of_dev.clone();
        put(&dev, &mut of_dev, 0, 100, 40_000).await;
        trim(&dev, &mut of_dev, 650, 20).await;
        live(&pool).await;
        check(&dev, &of_dev).await;
        // Hosts have another view from then on.
        dev = pool.rollback_volume(back_to("dev", "a")).await.unwrap();
        of_dev = before;
        for _ in 0..2 {
            check(&dev, &of_dev).await;
            put(&dev, &mut of_dev, 40, 10, 50_000).await;
            trim(&dev, &mut of_dev, 150, 60).await;
            live(&pool).await;
            check(&dev, &of_dev).await;
            put(&dev, &mut of_dev, 155, 1, 60_000).await;
            check(&dev, &of_dev).await;
        }
        let mut pool = reopened(&drives, &log, pool).await;
        for _ in 0..2 {
            dev = pool.volume("dev").unwrap();
            check(&dev, &of_dev).await;
            put(&dev, &mut of_dev, 270, 10, 70_000).await;
            check(&dev, &of_dev).await;
            pool = reopened(&drives, &log, pool).await;
        }
        dev = pool.volume("dev").unwrap();
        check(&dev, &of_dev).await;
        // All that it inherits comes to it; then its parents go.
        pool.detach_volume("dev").await.unwrap();
        super::detach::detached(&pool).await;
        check(&dev, &of_dev).await;
        pool.delete_snapshot("dev", "a").await.unwrap();
        pool.delete_snapshot("db", "mon").await.unwrap();
        pool.delete_volume("db").await.unwrap();
        assert_eq!(live(&pool).await, of_dev.len() as u64);
        check(&dev, &of_dev).await;
        pool.close().await.unwrap();
        check_drives(&drives, &log).await;
    });
}

#[test]
fn what_is_not_forgotten_to_be_absent_is_missed() {
    misses(
        Step::AbsentForgets,
        "block 0 of dev",
        what_comes_to_a_clone_is_found_where_it_was_known_to_have_nothing,
    );
}

#[test]
fn what_a_clone_began_with_stays_when_its_snapshot_goes_and_its_volume() {
    reactor::simulate(3, async {
        let (drives, log, pool, v) = made(2).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 200, 1).await;
        take(&pool, "mon").await;
        let mut of_dev = model.clone();
        let dev = cloned(&pool, "db", "mon", "dev").await;
        put(&v, &mut model, 0, 150, 1000).await;
        assert_eq!(pool.delete_volume("db").await.unwrap_err().kind, Kind::Busy);
        pool.delete_snapshot("db", "mon").await.unwrap();
        assert_eq!(live(&pool).await, 200 + 150);
        check(&dev, &of_dev).await;
        pool.delete_volume("db").await.unwrap();
        assert_eq!(pool.volumes(), ["dev"]);
        assert_eq!(live(&pool).await, 200);
        check(&dev, &of_dev).await;
        // The name is free; another one of it has nothing to do with the clone.
        let again = pool.create_volume(volume("db", 4 * MIB)).await.unwrap();
        let mut of_again = Model::new();
        put(&again, &mut of_again, 0, 10, 9000).await;
        let pool = reopened(&drives, &log, pool).await;
        let dev = pool.volume("dev").unwrap();
        assert_eq!(dev.origin().map(|origin| origin.snapshot), Some(None));
        check(&dev, &of_dev).await;
        empty_all(&pool).await;
        put(&dev, &mut of_dev, 0, 20, 3000).await;
        check(&dev, &of_dev).await;
        check(&pool.volume("db").unwrap(), &of_again).await;
        assert_eq!(live(&pool).await, 200 + 10 + 20);
        pool.delete_volume("dev").await.unwrap();
        assert_eq!(live(&pool).await, 10);
        pool.delete_volume("db").await.unwrap();
        let pool = reopened(&drives, &log, pool).await;
        assert_eq!(live(&pool).await, 0);
        assert_eq!(pool.0.common.superblock.catalog(|catalog| catalog.len()), 0);
        pool.close().await.unwrap();
    });
}

#[test]
fn what_keeps_the_parents_contents_for_a_clone_is_missed() {
    misses(
        Step::CloneHolds,
        "left: 200",
        what_a_clone_began_with_stays_when_its_snapshot_goes_and_its_volume,
    );
}

/// What others wrote may not leave the log for long, for want of space: clones waited for all of it once a pool was opened.
#[test]
fn an_opened_clone_waits_only_for_what_it_began_with() {
    let given: (Vec<Arc<Drive>>, LogSpec) =
        (drives(6, 64 * MIB), LogSpec::Bbu(vec![pmem(8 * MIB)]));
    let (drives, log) = given.clone();
    let mut model = Model::new();
    (0..100).for_each(|n| _ = model.insert(n, 1 + n));
    let written = model.clone();
    reactor::simulate(7, async move {
        let pool = Pool::create(spec(&drives, log), &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 4 * MIB)).await.unwrap();
        put(&v, &mut Model::new(), 0, 100, 1).await;
        take(&pool, "mon").await;
        cloned(&pool, "db", "mon", "dev").await;
        live(&pool).await;
        // In the log only: of the parent, of the clone, of another.
        let web = pool.create_volume(VolumeSpec { id: [2; 16], ..volume("web", MIB) }).await;
        put(&web.unwrap(), &mut Model::new(), 0, 10, 100).await;
        put(&v, &mut Model::new(), 0, 10, 1000).await;
        put(&pool.volume("dev").unwrap(), &mut Model::new(), 90, 10, 2000).await;
    });
    let (drives, log) = given;
    reactor::simulate(8, async move {
        let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
        let mut of_dev = written;
        (0..10).for_each(|n| _ = of_dev.insert(90 + n, 2000 + n));
        check(&pool.volume("dev").unwrap(), &of_dev).await;
        let left = |shard: Rc<crate::shard::Shard>| async move {
            Ok(shard.base.log.head() - shard.base.log.tail())
        };
        let left: u64 = pool.each(left).await.unwrap().into_iter().sum();
        assert!(left >= 3, "reading the clone carried the log to the drives: {left} records left");
        pool.close().await.unwrap();
    });
}

#[test]
fn clones_of_clones_read_through_all_of_them_and_go_in_any_order() {
    reactor::simulate(4, async {
        let (drives, log, pool, v) = made(1).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 300, 1).await;
        take(&pool, "s").await;
        let mut models = vec![("db".to_owned(), model)];
        for n in 1..=CLONES_DEEP_MAX as u64 {
            let (parent, mut model) = models.last().unwrap().clone();
            let name = format!("c{n}");
            let clone = cloned(&pool, &parent, "s", &name).await;
            put(&clone, &mut model, 4 * n, 2, 1000 * n).await;
            trim(&clone, &mut model, 4 * n + 2, 1).await;
            take_of(&pool, &name, "s").await;
            models.push((name, model));
        }
        let (deepest, _) = models.last().unwrap().clone();
        let refused = pool.clone_volume(clone_of(&deepest, "s", "deeper")).await.unwrap_err();
        assert_eq!(refused.kind, Kind::Full);
        let pool = reopened(&drives, &log, pool).await;
        for (name, model) in &models {
            check(&pool.volume(name).unwrap(), model).await;
            check(&pool.snapshot(name, "s").unwrap(), model).await;
        }
        let mut left: BTreeMap<String, Model> = models.into_iter().collect();
        let mut prng = Prng::new(4);
        while !left.is_empty() {
            let nth = usize64(prng.below(left.len() as u64));
            let name = left.keys().nth(nth).unwrap().clone();
            left.remove(&name);
            pool.delete_snapshot(&name, "s").await.unwrap();
            pool.delete_volume(&name).await.unwrap();
            if left.len().is_multiple_of(9) {
                live(&pool).await;
                for (name, model) in &left {
                    check(&pool.volume(name).unwrap(), model).await;
                }
            }
        }
        assert_eq!(live(&pool).await, 0);
        assert_eq!(pool.0.common.superblock.catalog(|catalog| catalog.len()), 0);
        pool.close().await.unwrap();
        check_drives(&drives, &log).await;
    });
}

#[test]
fn clones_that_cannot_be_are_refused_and_those_that_can_are_volumes_in_everything() {
    reactor::simulate(5, async {
        let (.., pool, v) = made(2).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 600, 1).await;
        take(&pool, "mon").await;
        let refused = async |spec| pool.clone_volume(spec).await.unwrap_err().kind;
        assert_eq!(refused(clone_of("db", "tue", "dev")).await, Kind::NotFound);
        assert_eq!(refused(clone_of("web", "mon", "dev")).await, Kind::NotFound);
        assert_eq!(refused(clone_of("db", "mon", "db")).await, Kind::Exists);
        assert_eq!(refused(clone_of("db", "mon", "a b")).await, Kind::Invalid);
        let sized = |bytes| CloneSpec { bytes: Some(bytes), ..clone_of("db", "mon", "dev") };
        assert_eq!(refused(sized(4 * MIB - B)).await, Kind::Invalid);
        assert_eq!(refused(sized(4 * MIB + 1)).await, Kind::Invalid);
        let dev = pool.clone_volume(sized(6 * MIB)).await.unwrap();
        let mut of_dev = model.clone();
        check(&dev, &of_dev).await;
        // Parts of blocks that it has not of its own.
        let part = [7; 100];
        dev.write(10 * B + 50, &part).await.unwrap();
        let mut got = vec![0; BLOCK];
        dev.read(10 * B, &mut got).await.unwrap();
        let mut wanted = block(0, model[&10]);
        wanted[50..150].copy_from_slice(&part);
        assert!(got == wanted, "what was not written stays what it began with");
        put(&dev, &mut of_dev, 10, 1, 5000).await;
        // Copies of what it has not of its own, and to it.
        v.copy_from(&dev, 100 * B, 700 * B, 50 * B).await.unwrap();
        (0..50).for_each(|n| _ = model.insert(700 + n, of_dev[&(100 + n)]));
        dev.copy_from(&v, 700 * B, 300 * B, 100 * B).await.unwrap();
        (0..50).for_each(|n| _ = of_dev.insert(300 + n, model[&(700 + n)]));
        (350..400).for_each(|at| _ = of_dev.remove(&at));
        check(&dev, &of_dev).await;
        check(&v, &model).await;
        // What it gave up with its end does not come back.
        pool.resize_volume("dev", 128 * B).await.unwrap();
        of_dev.retain(|at, _| *at < 128);
        check(&dev, &of_dev).await;
        pool.resize_volume("dev", 8 * MIB).await.unwrap();
        check(&dev, &of_dev).await;
        pool.rename_volume("dev", "test").await.unwrap();
        take_of(&pool, "test", "now").await;
        let deeper = cloned(&pool, "test", "now", "deeper").await;
        check(&deeper, &of_dev).await;
        // All that a snapshot of a clone sees, whoever has it, and what it gave back since.
        let told = pool.changes("test", None, "now", 0, 1000).await.unwrap();
        let told: u64 = told.extents.iter().map(|extent| extent.bytes / B).sum();
        assert_eq!(told, of_dev.len() as u64);
        trim(&pool.volume("test").unwrap(), &mut of_dev, 20, 5).await;
        take_of(&pool, "test", "then").await;
        let told = pool.changes("test", Some("now"), "then", 0, 1000).await.unwrap();
        let trimmed = ChangedExtent { offset: 20 * B, bytes: 5 * B, has_data: false };
        assert_eq!((told.extents, told.next), (vec![trimmed], None));
        pool.close().await.unwrap();
    });
}

/// A volume, a clone perhaps, and what it and its snapshots should hold.
#[derive(Default)]
struct Of {
    model: Model,
    snapshots: BTreeMap<String, Model>,
}

/// A pool of volumes and clones.
struct World {
    drives: Vec<Arc<Drive>>,
    log: LogSpec,
    all: BTreeMap<String, Of>,
    made: u64,
}

fn any<'a, T>(prng: &mut Prng, all: &'a BTreeMap<String, T>) -> Option<(&'a String, &'a T)> {
    let nth = prng.below(all.len().max(1) as u64);
    all.iter().nth(usize64(nth))
}

impl World {
    async fn step(&mut self, pool: &Pool, prng: &mut Prng) {
        let Some((name, _)) = any(prng, &self.all) else { return };
        let name = name.clone();
        let v = pool.volume(&name).unwrap();
        let of = self.all.get_mut(&name).unwrap();
        let (count, blocks) = (1 + prng.below(40), v.len() / B);
        let first = prng.below(blocks - count);
        self.made += count;
        // What is found here, or not, is remembered when it changes.
        v.read(first * B, &mut vec![0; usize64(count) * BLOCK]).await.unwrap();
        match prng.below(100) {
            0..50 => put(&v, &mut of.model, first, count, 1000 * self.made).await,
            50..65 => trim(&v, &mut of.model, first, count).await,
            65..78 => {
                let snapshot = format!("s{}", self.made);
                take_of(pool, &name, &snapshot).await;
                of.snapshots.insert(snapshot, of.model.clone());
            }
            78..90 => {
                if let Some((snapshot, model)) = any(prng, &of.snapshots) {
                    let clone = format!("c{}", self.made);
                    let made = pool.clone_volume(clone_of(&name, snapshot, &clone)).await;
                    let model = model.clone();
                    match made {
                        Ok(_) => _ = self.all.insert(clone, Of { model, ..Of::default() }),
                        Err(error) => assert_eq!(error.kind, Kind::Full),
                    }
                }
            }
            90..96 => {
                if let Some((snapshot, _)) = any(prng, &of.snapshots) {
                    let snapshot = snapshot.clone();
                    pool.delete_snapshot(&name, &snapshot).await.unwrap();
                    of.snapshots.remove(&snapshot);
                }
            }
            _ => {
                if self.all.len() > 2 {
                    for snapshot in self.all.remove(&name).unwrap().snapshots.into_keys() {
                        pool.delete_snapshot(&name, &snapshot).await.unwrap();
                    }
                    pool.delete_volume(&name).await.unwrap();
                }
            }
        }
    }

    async fn check(&self, pool: &Pool) {
        for (name, of) in &self.all {
            check(&pool.volume(name).unwrap(), &of.model).await;
            for (snapshot, model) in &of.snapshots {
                check(&pool.snapshot(name, snapshot).unwrap(), model).await;
            }
        }
    }
}

#[test]
fn whatever_happens_clones_and_snapshots_hold_what_they_should() {
    for seed in 0..12 {
        let shards = 1 + u16::try_from(seed % 3).unwrap();
        crate::canary::make_maps_small(seed % 2 == 0);
        reactor::simulate(seed, async move {
            let (drives, log, mut pool, _) = made(shards).await;
            let all = BTreeMap::from([("db".to_owned(), Of::default())]);
            let mut world = World { drives, log, all, made: 0 };
            let mut prng = Prng::new(seed);
            for round in 0..8 {
                for _ in 0..40 {
                    world.step(&pool, &mut prng).await;
                }
                match prng.below(4) {
                    0 => _ = live(&pool).await,
                    1 => empty_all(&pool).await,
                    2 => pool = reopened(&world.drives, &world.log, pool).await,
                    _ => {}
                }
                if round % 2 == 1 {
                    world.check(&pool).await;
                }
            }
            for name in std::mem::take(&mut world.all).into_keys() {
                for snapshot in pool.snapshots(&name).unwrap() {
                    pool.delete_snapshot(&name, &snapshot.name).await.unwrap();
                }
                pool.delete_volume(&name).await.unwrap();
            }
            assert_eq!(live(&pool).await, 0, "seed {seed}: all of it comes back");
            let pool = reopened(&world.drives, &world.log, pool).await;
            assert_eq!(pool.0.common.superblock.catalog(|catalog| catalog.len()), 0);
            pool.close().await.unwrap();
        });
        crate::canary::make_maps_small(false);
    }
}

/// The bytes of a pool are somebody's: volumes', snapshots', or clones' of what is deleted.
#[test]
fn what_volumes_snapshots_and_clones_have_is_all_there_is() {
    async fn adds_up(pool: &Pool) -> u64 {
        empty_all(pool).await;
        assert!(pool.counted().await.unwrap(), "all pages can be read");
        let of = |name: &String| {
            let v = pool.volume(name).unwrap();
            v.used().unwrap() + v.held_by_snapshots().unwrap()
        };
        let by_clones = pool.status().await.unwrap().held_by_clones.unwrap();
        let told = pool.volumes().iter().map(of).sum::<u64>() + by_clones;
        assert_eq!(told, live(pool).await * B);
        by_clones / B
    }
    reactor::simulate(1, async {
        let (drives, log, mut pool, v) = made(2).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 300, 1).await;
        take(&pool, "mon").await;
        put(&v, &mut model, 100, 100, 1000).await;
        let dev = cloned(&pool, "db", "mon", "dev").await;
        let mut of_dev = Model::new();
        put(&dev, &mut of_dev, 50, 50, 2000).await;
        take_of(&pool, "dev", "tue").await;
        let deep = cloned(&pool, "dev", "tue", "deep").await;
        put(&deep, &mut of_dev, 200, 20, 3000).await;
        trim(&deep, &mut of_dev, 0, 10).await;
        assert_eq!(adds_up(&pool).await, 0);
        pool.delete_snapshot("db", "mon").await.unwrap();
        assert_eq!(adds_up(&pool).await, 0, "what was replaced is still its volume's");
        pool.delete_volume("db").await.unwrap();
        assert_eq!(adds_up(&pool).await, 300);
        pool.delete_snapshot("dev", "tue").await.unwrap();
        pool.delete_volume("dev").await.unwrap();
        assert_eq!(adds_up(&pool).await, 350);
        pool = reopened(&drives, &log, pool).await;
        assert_eq!(adds_up(&pool).await, 350);
        pool.delete_volume("deep").await.unwrap();
        assert_eq!(adds_up(&pool).await, 0);
        pool.close().await.unwrap();
    });
}

/// What is beyond the end of a snapshot came to light in a larger clone, where a crash came before the clone had been told
/// that it has nothing there.
#[test]
fn a_larger_clone_has_nothing_where_its_snapshot_ends_whenever_a_crash_comes() {
    let mut found = BTreeSet::new();
    for moment in 0..60 {
        found.insert(reactor::simulate(moment, async move {
            let (drives, log, pool, v) = made(2).await;
            put(&v, &mut Model::new(), 0, 600, 1).await;
            take(&pool, "mon").await;
            // As if the volume had been smaller by then, and the log that said so were lost.
            let shrink = |catalog: &Catalog| {
                let is_snapshot = |of: &&Object| of.kind == catalog::Kind::Snapshot;
                let snapshot = catalog.objects().find(is_snapshot).unwrap().clone();
                Ok((catalog.edit(vec![Record::Put(Object { bytes: 300 * B, ..snapshot })]), ()))
            };
            pool.0.common.superblock.change_catalog(shrink).await.unwrap();
            let pool = reopened(&drives, &log, pool).await;
            let spec = CloneSpec { bytes: Some(600 * B), ..clone_of("db", "mon", "dev") };
            let given_up = Duration::from_micros(moment * 4);
            let _ = reactor::timeout(given_up, pool.clone_volume(spec)).await;
            let pool = super::groups::killed(&drives, &log, pool).await;
            let Ok(dev) = pool.volume("dev") else {
                pool.close().await.unwrap();
                return false;
            };
            let mut rest = vec![1; 300 * BLOCK];
            dev.read(300 * B, &mut rest).await.unwrap();
            assert!(rest.iter().all(|byte| *byte == 0), "moment {moment}");
            pool.close().await.unwrap();
            true
        }));
    }
    assert_eq!(found.len(), 2, "some crashes come before it is there, and some after");
}

/// The catalog's change that makes a larger clone failed, and could not be taken back for want of space. Its hole, as that of
/// a view which is no clone's, was merged away, and the next opening found the clone: with what is beyond its snapshot.
#[test]
fn a_larger_clone_that_may_be_found_made_keeps_its_hole() {
    reactor::simulate(1, async move {
        let (media, drives) = simulated(3, 96 * MIB, 0);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let made = PoolSpec { au_bytes: Some(MIB), ..spec(&drives, log.clone()) };
        let made = PoolSpec { scheme: raid::Scheme::Raid5, ..made };
        let pool = Pool::create(made, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 4 * MIB)).await.unwrap();
        put(&v, &mut Model::new(), 0, 600, 1).await;
        take(&pool, "mon").await;
        // As if the volume had been smaller by then.
        let shrink = |catalog: &Catalog| {
            let is_snapshot = |of: &&Object| of.kind == catalog::Kind::Snapshot;
            let snapshot = catalog.objects().find(is_snapshot).unwrap().clone();
            Ok((catalog.edit(vec![Record::Put(Object { bytes: 300 * B, ..snapshot })]), ()))
        };
        pool.0.common.superblock.change_catalog(shrink).await.unwrap();
        let pool = reopened(&drives, &log, pool).await;
        let next_view = || pool.0.common.superblock.catalog(Catalog::next_view);
        let first = next_view();
        let area = CatalogArea::LEAST;
        let trails = area_catalog::trails(&drives[0], area, pool.0.common.superblock.pool()).await;
        let other = area.half_at(1 - area_catalog::newest(trails.unwrap()).unwrap().half);
        let half = other..other + u64::from(area.half_pages()) * PAGE as u64;
        let cloning = reactor::spawn({
            let pool = pool.clone();
            let spec = CloneSpec { bytes: Some(600 * B), ..clone_of("db", "mon", "dev") };
            async move { pool.clone_volume(spec).await.map(drop) }
        });
        let view = View::new(first);
        while !pool.0.common.snapshots.is_clone(view) {
            reactor::yield_now().await;
        }
        // The view was set aside. Two drives take the edit, one takes nothing, and nothing is blanked.
        let refusal = |operation, range| {
            let (operation, kind) = (Some(operation), media::Kind::Full);
            media::drive::Refusal { operation, range, kind, times: None }
        };
        let all = at::CATALOG..area.end();
        for drive in [&media[0], &media[2]] {
            drive.refuse(refusal(media::Operation::Write, half.clone()));
        }
        media[1].refuse(refusal(media::Operation::Write, all.clone()));
        media[0].refuse(refusal(media::Operation::WriteZeroes, all));
        reactor::sleep(Duration::from_secs(10)).await;
        let is_forgotten = cloning.is_finished();
        // All that is in the log, and in memory, goes down to where holes end.
        empty_all(&pool).await;
        pool.each(|shard| async move { shard.keeper.compact(true).await }).await.unwrap();
        pool.each(|shard| async move { shard.keeper.flush().await }).await.unwrap();
        media.iter().for_each(|drive| drive.refuse_nothing());
        let pool = super::groups::killed(&drives, &log, pool).await;
        let dev = pool.volume("dev").expect("two drives of three have it");
        let mut rest = vec![1; 300 * BLOCK];
        dev.read(300 * B, &mut rest).await.unwrap();
        assert!(rest.iter().all(|byte| *byte == 0), "what is beyond the snapshot is there");
        assert!(!is_forgotten);
        pool.close().await.unwrap();
    });
}
