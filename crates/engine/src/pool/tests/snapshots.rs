//! Snapshots: what they see, for how long, and what they cost.

use super::*;
use crate::address::{Key, View};
use crate::canary::{Step, misses};
use crate::dump::{Given, Severity, Spec, dump};
use crate::format::catalog::{Catalog, Object, Record};
use stdx::num::u64_of;

const B: u64 = BLOCK as u64;

pub(super) fn named(volume: &str, name: &str) -> SnapshotSpec {
    SnapshotSpec { volume: volume.into(), name: name.into(), id: [9; 16], created: 1_700_000_000 }
}

pub(super) async fn take(pool: &Pool, name: &str) {
    pool.take_snapshots(vec![named("db", name)]).await.unwrap();
}

/// Contents that a version alone decides: copies have them elsewhere.
pub(super) async fn put(v: &Volume, model: &mut Model, first: u64, count: u64, version: u64) {
    let data = (0..count).map(|n| block(0, version + n)).collect::<Vec<_>>().concat();
    v.write(first * B, &data).await.unwrap();
    (0..count).for_each(|n| _ = model.insert(first + n, version + n));
}

pub(super) async fn trim(v: &Volume, model: &mut Model, first: u64, count: u64) {
    v.deallocate(first * B, count * B).await.unwrap();
    (first..first + count).for_each(|at| _ = model.remove(&at));
}

pub(super) async fn check(v: &Volume, model: &Model) {
    let mut got = vec![0; 16 * BLOCK];
    let blocks = v.len() / B;
    for first in (0..blocks).step_by(16) {
        let got = &mut got[..usize64(16.min(blocks - first)) * BLOCK];
        v.read(first * B, got).await.unwrap();
        for (at, got) in (first..).zip(got.chunks_exact(BLOCK)) {
            let wanted =
                model.get(&at).map_or_else(|| vec![0; BLOCK], |version| block(0, *version));
            assert!(got == wanted, "block {at} of {}", v.name());
        }
    }
}

pub(super) async fn live(pool: &Pool) -> u64 {
    pool.audit_space().await.unwrap().live
}

/// Nothing on the drives of a pool contradicts anything else.
pub(super) async fn check_drives(drives: &[Arc<Drive>], log: &LogSpec) {
    let given = |(n, drive): (usize, &Arc<Drive>)| Given {
        name: format!("drive {n}"),
        drive: Ok(Arc::clone(drive)),
    };
    let spec = Spec {
        drives: drives.iter().enumerate().map(given).collect(),
        log: Some(log.clone()),
        data: true,
        ..Spec::default()
    };
    let report = dump(&spec, &mut |_| {}).await;
    let wrong = |severity| matches!(severity, Severity::Error | Severity::Warning);
    let found: Vec<_> = report.findings.iter().filter(|f| wrong(f.severity)).collect();
    assert!(found.is_empty(), "{found:#?}");
}

pub(super) async fn made(shards: u16) -> (Vec<Arc<Drive>>, LogSpec, Pool, Volume) {
    let (drives, log) = (drives(6, 64 * MIB), LogSpec::Bbu(vec![pmem(8 * MIB)]));
    let (shards, au_bytes) = (Some(shards), Some(MIB));
    let spec = PoolSpec { shards, au_bytes, ..spec(&drives, log.clone()) };
    let pool = Pool::create(spec, &[]).await.unwrap();
    let v = pool.create_volume(volume("db", 4 * MIB)).await.unwrap();
    (drives, log, pool, v)
}

#[test]
fn a_snapshot_sees_what_there_was() {
    reactor::simulate(1, async {
        let (drives, log, pool, v) = made(2).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 100, 1).await;
        put(&v, &mut model, 500, 100, 500).await;
        take(&pool, "mon").await;
        let monday = model.clone();
        let mon = pool.snapshot("db", "mon").unwrap();
        // What is in the log only, on both sides.
        put(&v, &mut model, 50, 10, 1000).await;
        trim(&v, &mut model, 520, 30).await;
        check(&mon, &monday).await;
        check(&v, &model).await;
        take(&pool, "tue").await;
        let tuesday = model.clone();
        assert_eq!(live(&pool).await, 200 + 10, "what was replaced is kept");
        put(&v, &mut model, 0, 100, 2000).await;
        for _ in 0..2 {
            check(&mon, &monday).await;
            check(&pool.snapshot("db", "tue").unwrap(), &tuesday).await;
            check(&v, &model).await;
            assert_eq!(live(&pool).await, 200 + 10 + 100);
        }
        let found = pool.snapshots("db").unwrap();
        assert_eq!(found.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["mon", "tue"]);
        assert_eq!((found[0].bytes, found[0].created), (4 * MIB, 1_700_000_000));
        pool.close().await.unwrap();
        assert_eq!(mon.read(0, &mut [0; BLOCK]).await.unwrap_err().kind, Kind::Gone);
        check_drives(&drives, &log).await;
        let pool = Pool::open(drives.clone(), log.clone(), OpenOptions::default(), &[]).await;
        let pool = pool.unwrap();
        let v = pool.volume("db").unwrap();
        check(&pool.snapshot("db", "mon").unwrap(), &monday).await;
        // Versions go on where they were.
        put(&v, &mut model, 500, 100, 3000).await;
        check(&pool.snapshot("db", "tue").unwrap(), &tuesday).await;
        let mon = pool.snapshot("db", "mon").unwrap();
        pool.delete_snapshot("db", "mon").await.unwrap();
        assert_eq!(mon.read(0, &mut [0; BLOCK]).await.unwrap_err().kind, Kind::Gone);
        // 10 of them only Monday had, and 30 that were deallocated.
        assert_eq!(live(&pool).await, 200 + tuesday.len() as u64);
        check(&pool.snapshot("db", "tue").unwrap(), &tuesday).await;
        pool.delete_snapshot("db", "tue").await.unwrap();
        assert_eq!(live(&pool).await, model.len() as u64);
        check(&v, &model).await;
        pool.delete_volume("db").await.unwrap();
        assert_eq!(live(&pool).await, 0);
        pool.close().await.unwrap();
        check_drives(&drives, &log).await;
    });
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    reactor::simulate(2, async {
        let (.., pool, v) = made(1).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 10, 1).await;
        take(&pool, "mon").await;
        let refused = async |specs| pool.take_snapshots(specs).await.unwrap_err().kind;
        assert_eq!(refused(vec![named("db", "mon")]).await, Kind::Exists);
        assert_eq!(refused(vec![named("web", "mon")]).await, Kind::NotFound);
        assert_eq!(refused(vec![named("db", "a b")]).await, Kind::Invalid);
        assert_eq!(refused(vec![named("db", "a"), named("db", "b")]).await, Kind::Invalid);
        assert_eq!(pool.snapshots("db").unwrap().len(), 1);
        assert_eq!(pool.snapshots("web").unwrap_err().kind, Kind::NotFound);
        assert_eq!(pool.snapshot("db", "tue").unwrap_err().kind, Kind::NotFound);
        assert_eq!(pool.delete_snapshot("db", "tue").await.unwrap_err().kind, Kind::NotFound);
        assert_eq!(pool.delete_volume("db").await.unwrap_err().kind, Kind::Busy);
        let mon = pool.snapshot("db", "mon").unwrap();
        let one = block(0, 7);
        assert_eq!(mon.write(0, &one).await.unwrap_err().kind, Kind::Invalid);
        assert_eq!(mon.write(1, &one[..5]).await.unwrap_err().kind, Kind::Invalid);
        assert_eq!(mon.deallocate(0, B).await.unwrap_err().kind, Kind::Invalid);
        assert_eq!(mon.write_zeroes(0, B).await.unwrap_err().kind, Kind::Invalid);
        assert_eq!(mon.copy_from(&v, 0, B, B).await.unwrap_err().kind, Kind::Invalid);
        assert_eq!(mon.read(4 * MIB, &mut [0; BLOCK]).await.unwrap_err().kind, Kind::OutOfRange);
        check(&mon, &model).await;
        // As of a snapshot, what is copied from it, and its size.
        let before = model.clone();
        put(&v, &mut model, 0, 5, 100).await;
        v.copy_from(&mon, 0, 20 * B, 10 * B).await.unwrap();
        (0..10).for_each(|n| _ = model.insert(20 + n, before[&n]));
        pool.resize_volume("db", MIB).await.unwrap();
        check(&v, &model).await;
        check(&mon, &before).await;
        assert_eq!((mon.len(), v.len()), (4 * MIB, MIB));
        pool.rename_volume("db", "web").await.unwrap();
        check(&pool.snapshot("web", "mon").unwrap(), &before).await;
        pool.close().await.unwrap();
    });
}

/// What reclaim moves of old versions is found by its name, and given back when nobody sees it any more.
#[test]
fn old_versions_that_are_moved_are_found() {
    reactor::simulate(3, async {
        let (drives, log, pool, v) = made(1).await;
        let mut model = Model::new();
        // Segments with a block in eight that stays, among others that go.
        for round in 0..8 {
            for at in (round..1024).step_by(8) {
                put(&v, &mut model, at, 1, 10_000 * (round + 1) + at).await;
            }
        }
        take(&pool, "mon").await;
        let monday = model.clone();
        assert_eq!(live(&pool).await, model.len() as u64);
        for round in 1..4 {
            for at in (0..1024).step_by(16) {
                put(&v, &mut model, at, 16, 100_000 * round + at).await;
            }
        }
        check(&pool.snapshot("db", "mon").unwrap(), &monday).await;
        assert_eq!(live(&pool).await, 2 * model.len() as u64);
        empty_all(&pool).await;
        check(&pool.snapshot("db", "mon").unwrap(), &monday).await;
        check(&v, &model).await;
        assert_eq!(live(&pool).await, 2 * model.len() as u64);
        pool.close().await.unwrap();
        check_drives(&drives, &log).await;
        let pool = Pool::open(drives.clone(), log.clone(), OpenOptions::default(), &[]).await;
        let pool = pool.unwrap();
        check(&pool.snapshot("db", "mon").unwrap(), &monday).await;
        empty_all(&pool).await;
        check(&pool.snapshot("db", "mon").unwrap(), &monday).await;
        pool.delete_snapshot("db", "mon").await.unwrap();
        assert_eq!(live(&pool).await, model.len() as u64);
        check(&pool.volume("db").unwrap(), &model).await;
        pool.close().await.unwrap();
        check_drives(&drives, &log).await;
    });
}

/// Moves all that lives, and gives back where it was.
pub(super) async fn empty_all(pool: &Pool) {
    let empty = |shard: std::rc::Rc<crate::shard::Shard>| async move {
        shard.destage.run_to_head().await?;
        let all: Vec<_> = shard
            .base
            .table()
            .sealed_on(u64::MAX, 0, |stream| stream != crate::segment::Stream::Metadata);
        let mut emptied = Vec::new();
        for (segment, _) in all {
            if shard.reclaim.is_being_emptied(segment) {
                continue;
            }
            shard.reclaim.empty(segment).await?;
            emptied.push(segment);
        }
        shard.keeper.settle_reclaim().await?;
        for segment in emptied {
            shard.reclaim.verify_dead(segment).await?;
        }
        shard.keeper.flush().await
    };
    pool.each(empty).await.unwrap();
}

/// A pool, its volume, and what it and its snapshots should hold.
struct World {
    drives: Vec<Arc<Drive>>,
    log: LogSpec,
    model: Model,
    snapshots: BTreeMap<String, Model>,
    version: u64,
}

impl World {
    async fn live_through(&mut self, pool: Pool, prng: &mut Prng, steps: u64) -> Pool {
        let mut pool = pool;
        let mut v = pool.volume("db").unwrap();
        let blocks = v.len() / B;
        for _ in 0..steps {
            let count = 1 + prng.below(24);
            let first = prng.below(blocks - count);
            self.version += count;
            match prng.below(100) {
                0..60 => put(&v, &mut self.model, first, count, self.version).await,
                60..66 => trim(&v, &mut self.model, first, count * 4 % (blocks - first)).await,
                66..72 => {
                    let to = prng.below(blocks - count);
                    v.copy_from(&v, first * B, to * B, count * B).await.unwrap();
                    let had: Vec<_> =
                        (first..first + count).map(|at| self.model.get(&at).copied()).collect();
                    for (at, had) in (to..).zip(had) {
                        match had {
                            Some(had) => _ = self.model.insert(at, had),
                            None => _ = self.model.remove(&at),
                        }
                    }
                }
                72..80 if self.snapshots.len() < 6 => {
                    let name = format!("s{}", self.version);
                    take(&pool, &name).await;
                    self.snapshots.insert(name, self.model.clone());
                }
                72..86 => {
                    let nth = usize64(prng.below(self.snapshots.len() as u64 + 1));
                    if let Some(name) = self.snapshots.keys().nth(nth).cloned() {
                        self.snapshots.remove(&name);
                        pool.delete_snapshot("db", &name).await.unwrap();
                    }
                }
                86..92 => {
                    let nth = usize64(prng.below(self.snapshots.len() as u64 + 1));
                    if let Some((name, model)) = self.snapshots.iter().nth(nth) {
                        check(&pool.snapshot("db", name).unwrap(), model).await;
                    }
                }
                92 => _ = live(&pool).await,
                93 => v = self.roll_back(&pool, prng).await,
                94..97 => empty_all(&pool).await,
                _ => {
                    pool.close().await.unwrap();
                    check_drives(&self.drives, &self.log).await;
                    pool = self.open().await;
                    v = pool.volume("db").unwrap();
                }
            }
        }
        self.check(&pool).await;
        pool
    }

    /// Perhaps keeping a snapshot of what there was.
    async fn roll_back(&mut self, pool: &Pool, prng: &mut Prng) -> Volume {
        let nth = usize64(prng.below(self.snapshots.len() as u64 + 1));
        let Some((snapshot, model)) = self.snapshots.iter().nth(nth) else {
            return pool.volume("db").unwrap();
        };
        let keep = (prng.below(2) == 0).then(|| format!("s{}", self.version));
        let spec = RollbackSpec {
            volume: "db".into(),
            snapshot: snapshot.clone(),
            keep: keep.clone().map(|name| (name, [3; 16])),
            created: 0,
        };
        let had = std::mem::replace(&mut self.model, model.clone());
        let v = pool.rollback_volume(spec).await.unwrap();
        self.snapshots.extend(keep.map(|name| (name, had)));
        v
    }

    async fn open(&self) -> Pool {
        let (drives, log) = (self.drives.clone(), self.log.clone());
        Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap()
    }

    async fn check(&self, pool: &Pool) {
        check(&pool.volume("db").unwrap(), &self.model).await;
        assert_eq!(pool.snapshots("db").unwrap().len(), self.snapshots.len());
        for (name, model) in &self.snapshots {
            check(&pool.snapshot("db", name).unwrap(), model).await;
        }
    }
}

/// Whatever happens, each snapshot has what it had, after crashes too; and when all are gone, nothing of them is left.
#[test]
fn random_lives_with_snapshots() {
    let (mut lives, seeds) = (0, 6);
    for seed in 0..seeds {
        let shards = [1, 2, 3][usize64(seed % 3)];
        let (drives, log) = (drives(6, 64 * MIB), LogSpec::Bbu(vec![pmem(8 * MIB)]));
        let world = World {
            drives: drives.clone(),
            log: log.clone(),
            model: Model::new(),
            snapshots: BTreeMap::new(),
            version: 1,
        };
        let (shards, au_bytes) = (Some(shards), Some(MIB));
        let spec = PoolSpec { shards, au_bytes, ..spec(&drives, log) };
        let mut world = reactor::simulate(seed, async move {
            let pool = Pool::create(spec, &[]).await.unwrap();
            pool.create_volume(volume("db", 3 * MIB)).await.unwrap();
            // Dropped in the midst of what it does.
            let mut world = world;
            world.live_through(pool, &mut Prng::new(seed), 150).await;
            world
        });
        for life in 1..4 {
            world = reactor::simulate(seed + 1000 * life, async move {
                let mut prng = Prng::new(seed + 1000 * life);
                let pool = world.open().await;
                world.check(&pool).await;
                let pool = world.live_through(pool, &mut prng, 100).await;
                if life == 3 {
                    for name in std::mem::take(&mut world.snapshots).into_keys() {
                        pool.delete_snapshot("db", &name).await.unwrap();
                    }
                    // Twice: a sweep may leave to the next what was on its way.
                    live(&pool).await;
                    check(&pool.volume("db").unwrap(), &world.model).await;
                    pool.close().await.unwrap();
                    check_drives(&world.drives, &world.log).await;
                }
                world
            });
            lives += 1;
        }
    }
    assert_eq!(lives, 3 * seeds);
}

/// The log that had its deletion is lost, and the catalog does not tell how many snapshots the volume had: a hole of the
/// first version would have hidden nothing of the later ones.
#[test]
fn a_volume_that_had_snapshots_goes_although_the_log_of_that_is_lost() {
    let (drives, log) = (drives(6, 64 * MIB), LogSpec::Bbu(vec![pmem(8 * MIB)]));
    let given = drives.clone();
    reactor::simulate(5, async move {
        let pool = Pool::create(spec(&given, log), &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 4 * MIB)).await.unwrap();
        let mut model = Model::new();
        put(&v, &mut model, 0, 100, 1).await;
        take(&pool, "mon").await;
        put(&v, &mut model, 0, 100, 500).await;
        pool.delete_snapshot("db", "mon").await.unwrap();
        assert_eq!(live(&pool).await, 100);
        pool.delete_volume("db").await.unwrap();
        // Dropped with the hole in its log.
    });
    reactor::simulate(6, async move {
        let options = OpenOptions { degraded: true, accept_loss: true, ..OpenOptions::default() };
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let pool = Pool::open(drives.clone(), log.clone(), options, &[]).await.unwrap();
        assert!(pool.has_lost_log() && pool.volumes().is_empty());
        assert_eq!(live(&pool).await, 0);
        pool.close().await.unwrap();
        check_drives(&drives, &log).await;
    });
}

/// Of a volume that was being deleted, or rolled back, clones and snapshots see older versions: a hole of the last version
/// there can be, and then one of the volume's own, had them see nothing.
#[test]
fn what_others_see_of_a_deleted_volume_outlives_the_log() {
    let (drives, log) = (drives(6, 64 * MIB), LogSpec::Bbu(vec![pmem(8 * MIB)]));
    let (given, model) = (drives.clone(), Arc::new(std::sync::Mutex::new(Model::new())));
    let wanted = Arc::clone(&model);
    reactor::simulate(5, async move {
        let pool = Pool::create(spec(&given, log), &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 4 * MIB)).await.unwrap();
        let mut model = Model::new();
        put(&v, &mut model, 0, 100, 1).await;
        take(&pool, "mon").await;
        super::clones::cloned(&pool, "db", "mon", "dev").await;
        wanted.lock().unwrap().clone_from(&model);
        put(&v, &mut model, 50, 100, 500).await;
        pool.delete_snapshot("db", "mon").await.unwrap();
        pool.audit_space().await.unwrap();
        // As far as a deletion comes whose node is killed.
        let view = v.state.view;
        let mark = |catalog: &Catalog| {
            let deleted = Object { deleted: true, ..catalog.get(view).unwrap().clone() };
            Ok((catalog.edit(vec![Record::Put(deleted)]), ()))
        };
        pool.0.common.superblock.change_catalog(mark).await.unwrap();
    });
    reactor::simulate(6, async move {
        let options = OpenOptions { degraded: true, accept_loss: true, ..OpenOptions::default() };
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let pool = Pool::open(drives.clone(), log.clone(), options, &[]).await.unwrap();
        assert!(pool.has_lost_log());
        let model = model.lock().unwrap().clone();
        for _ in 0..2 {
            check(&pool.volume("dev").unwrap(), &model).await;
            empty_all(&pool).await;
        }
        assert_eq!(live(&pool).await, u64_of(model.len()));
        pool.close().await.unwrap();
        check_drives(&drives, &log).await;
    });
}

thread_local! {
    static POOL: std::cell::RefCell<Option<Pool>> = const { std::cell::RefCell::new(None) };
}

fn here() -> Pool {
    POOL.with_borrow(|pool| pool.clone()).unwrap()
}

/// A number in two volumes: always in the first before it is in the second.
async fn count_up(first: Volume, second: Volume, at: u64, until: u64) {
    for number in 1..=until {
        let mut data = [0; BLOCK];
        data[..8].copy_from_slice(&number.to_le_bytes());
        first.write(at * B, &data).await.unwrap();
        second.write(at * B, &data).await.unwrap();
    }
}

async fn number(v: &Volume, at: u64) -> u64 {
    let mut data = [0; BLOCK];
    v.read(at * B, &mut data).await.unwrap();
    u64::from_le_bytes(data[..8].try_into().unwrap())
}

/// Whoever waits for one write before it sends the next has no snapshot of the second without the first, on whatever
/// shards and reactors they are.
#[test]
fn snapshots_of_several_volumes_are_of_one_instant() {
    const COUNTERS: u64 = 6;
    const UNTIL: u64 = 120;
    for seed in 0..12 {
        let seen = reactor::simulate_on(seed, reactor::Order::Shuffled, 3, |on| async move {
            let (home, hosts) = (on[0].clone(), [on[1].clone(), on[2].clone()]);
            let made = home.call(move || async move {
                let (drives, log) = (drives(6, 64 * MIB), LogSpec::Bbu(vec![pmem(12 * MIB)]));
                let (shards, au_bytes) = (Some(3), Some(MIB));
                let spec = PoolSpec { shards, au_bytes, ..spec(&drives, log) };
                let pool = Pool::create(spec, &on).await.unwrap();
                let a = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
                let b = pool.create_volume(volume("log", 16 * MIB)).await.unwrap();
                POOL.set(Some(pool));
                (a, b)
            });
            let (a, b) = made.await.unwrap();
            let counting: Vec<_> = (0..COUNTERS)
                .map(|n| {
                    let (a, b) = (a.clone(), b.clone());
                    // Neighbours are of different shards, and each volume begins with another.
                    let (at, host) = (n * 257, &hosts[usize64(n) % 2]);
                    host.call(move || count_up(a, b, at, UNTIL))
                })
                .collect();
            let taken = home.call(|| async {
                let pool = here();
                let mut between = 0;
                for n in 0..20 {
                    let specs = ["db", "log"].map(|of| named(of, &format!("s{n}"))).to_vec();
                    pool.take_snapshots(specs).await.unwrap();
                    reactor::sleep(std::time::Duration::from_micros(37 * n)).await;
                }
                for n in 0..20 {
                    let name = format!("s{n}");
                    let (a, b) = (pool.snapshot("db", &name), pool.snapshot("log", &name));
                    let (a, b) = (a.unwrap(), b.unwrap());
                    for at in (0..COUNTERS).map(|n| n * 257) {
                        let (first, second) = (number(&a, at).await, number(&b, at).await);
                        let follows = second <= first && first <= second + 1;
                        assert!(follows, "{first} in the first volume, {second} in the second");
                        between += u64::from(0 < first && first < UNTIL);
                    }
                }
                between
            });
            for counting in counting {
                counting.await.unwrap();
            }
            let between = taken.await.unwrap();
            let closed = home.call(|| async { POOL.take().unwrap().close().await.unwrap() });
            closed.await.unwrap();
            between
        });
        assert!(seen > 10, "snapshots were taken while hosts wrote: {seen}");
    }
}

/// What is being stored is of the version before: whoever reads the snapshot would not see it at first, and then would.
#[test]
fn a_snapshot_is_not_told_of_before_what_was_reserved_is_committed() {
    reactor::simulate(4, async {
        let (.., pool, v) = made(1).await;
        v.write(0, &block(0, 1)).await.unwrap();
        let store = |shard: std::rc::Rc<crate::shard::Shard>| async move {
            let key = Key::new(View::new(1), 0);
            let mut reserved = shard.base.log.reserve(key, 1).await?;
            reserved.fill(&block(0, 2)[..100])?;
            reactor::sleep(std::time::Duration::from_millis(5)).await;
            reserved.fill(&block(0, 2)[100..])?;
            reserved.commit().map(drop)
        };
        let storing = {
            let pool = pool.clone();
            reactor::spawn(async move { pool.each(store).await.map(drop) })
        };
        reactor::sleep(std::time::Duration::from_millis(1)).await;
        take(&pool, "mon").await;
        let mon = pool.snapshot("db", "mon").unwrap();
        let mut first = vec![0; BLOCK];
        mon.read(0, &mut first).await.unwrap();
        storing.await.unwrap().unwrap();
        check(&mon, &Model::from([(0, 2)])).await;
        assert!(first == block(0, 2), "a snapshot changed");
        pool.close().await.unwrap();
    });
}

#[test]
fn what_snapshots_rely_on_is_missed() {
    let instant = snapshots_of_several_volumes_are_of_one_instant;
    misses(Step::SnapshotPauses, "in the first volume", instant);
    let told = a_snapshot_is_not_told_of_before_what_was_reserved_is_committed;
    misses(Step::SnapshotWaits, "block 0", told);
    misses(Step::SnapshotCarries, "block", a_snapshot_sees_what_there_was);
    misses(Step::OpeningVersions, "", a_snapshot_sees_what_there_was);
    misses(Step::SearchPrunes, "left", a_snapshot_sees_what_there_was);
    misses(Step::ReclaimLooksBack, "", old_versions_that_are_moved_are_found);
    misses(Step::SweepKeepsOld, "", old_versions_that_are_moved_are_found);
}

/// Of a block that is written and trimmed in turn the map has as many versions as there are snapshots: more than an index page
/// names ended the shard.
#[test]
fn a_volume_has_no_more_snapshots_than_the_map_has_versions_of_a_block() {
    reactor::simulate(1, async {
        let (_, _, pool, v) = made(1).await;
        let most = u32::try_from(crate::limits::VERSIONS_SEEN_MAX).unwrap();
        put(&v, &mut Model::new(), 0, 1, 1).await;
        take(&pool, "mon").await;
        // As if so many had been taken.
        let (snapshots, view) = (&pool.0.common.snapshots, v.state.view);
        let seen = |n| crate::address::Version::new(1000 + n).unwrap();
        (1..most).for_each(|n| snapshots.add(view, seen(n)));
        let refused = pool.take_snapshots(vec![named("db", "tue")]).await.unwrap_err();
        assert_eq!(refused.kind, Kind::Full);
        assert!(refused.to_string().contains("65536 snapshots"), "{refused}");
        let spec = RollbackSpec {
            volume: "db".into(),
            snapshot: "mon".into(),
            keep: Some(("before".into(), [7; 16])),
            created: 0,
        };
        assert_eq!(pool.rollback_volumes(vec![spec]).await.unwrap_err().kind, Kind::Full);
        snapshots.remove(view, seen(1));
        take(&pool, "tue").await;
        pool.close().await.unwrap();
    });
}
