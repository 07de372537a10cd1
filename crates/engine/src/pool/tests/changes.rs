//! What changed between snapshots: all of it, and nothing else, whatever else the pool did meanwhile.

use super::held::check_space;
use super::snapshots::{check_drives, empty_all, live, made, put, take, trim};
use super::*;
use crate::address::{Key, Version, View};

const B: u64 = BLOCK as u64;

/// Blocks that were told, and whether they have data.
type Told = BTreeMap<u64, bool>;

/// Adds what was told, in order; what goes on where the last one ended is told apart only between calls.
fn tell(told: &mut Told, extents: &[ChangedExtent]) {
    let mut last: Option<&ChangedExtent> = None;
    for extent in extents {
        assert!(extent.bytes > 0 && extent.offset % B == 0 && extent.bytes % B == 0);
        if let Some(last) = last {
            let end = last.offset + last.bytes;
            assert!(end <= extent.offset, "in order");
            assert!(end < extent.offset || last.has_data != extent.has_data, "joined");
        }
        for block in extent.offset / B..(extent.offset + extent.bytes) / B {
            assert_eq!(told.insert(block, extent.has_data), None, "told twice");
        }
        last = Some(extent);
    }
}

/// All changes from `start` on, told so many at a time.
async fn changes(pool: &Pool, from: Option<&str>, to: &str, start: u64, most: usize) -> Told {
    let (mut told, mut at) = (Told::new(), start);
    loop {
        let Changes { extents, next } = pool.changes("db", from, to, at, most).await.unwrap();
        assert!(extents.len() <= most.max(1));
        let end = extents.last().map_or(at, |last| last.offset + last.bytes);
        tell(&mut told, &extents);
        let Some(next) = next else { return told };
        assert!(next > at && next >= end, "each call gets on");
        at = next;
    }
}

async fn one(pool: &Pool, from: Option<&str>, to: &str) -> Vec<(u64, u64, bool)> {
    let Changes { extents, next } = pool.changes("db", from, to, 0, 1000).await.unwrap();
    assert_eq!(next, None);
    extents.iter().map(|extent| (extent.offset / B, extent.bytes / B, extent.has_data)).collect()
}

#[test]
fn what_was_written_and_what_was_given_back_is_told_in_order() {
    for shards in 1..=3 {
        reactor::simulate(u64::from(shards), async move {
            let (.., pool, v) = made(shards).await;
            let mut model = Model::new();
            put(&v, &mut model, 0, 700, 1).await;
            take(&pool, "mon").await;
            put(&v, &mut model, 100, 300, 10_000).await;
            trim(&v, &mut model, 400, 200).await;
            // Over what is a hole: nothing changes.
            trim(&v, &mut model, 800, 100).await;
            put(&v, &mut model, 1000, 1, 20_000).await;
            // Written and given back, or written again, between the two.
            put(&v, &mut model, 1010, 1, 20_001).await;
            trim(&v, &mut model, 1010, 1).await;
            put(&v, &mut model, 150, 1, 20_002).await;
            take(&pool, "tue").await;
            put(&v, &mut model, 0, 1, 30_000).await;
            take(&pool, "wed").await;
            for _ in 0..2 {
                let tuesday = [(100, 300, true), (400, 200, false), (1000, 1, true)];
                assert_eq!(one(&pool, Some("mon"), "tue").await, tuesday);
                assert_eq!(one(&pool, Some("tue"), "wed").await, [(0, 1, true)]);
                let both = [&[(0, 1, true)], &tuesday[..]].concat();
                assert_eq!(one(&pool, Some("mon"), "wed").await, both);
                let all = [(0, 400, true), (600, 100, true), (1000, 1, true)];
                assert_eq!(one(&pool, None, "tue").await, all);
                assert_eq!(one(&pool, None, "mon").await, [(0, 700, true)]);
                empty_all(&pool).await;
            }
            let middle = pool.changes("db", Some("mon"), "tue", 450 * B + 1, 1).await.unwrap();
            let rest = ChangedExtent { offset: 450 * B, bytes: 150 * B, has_data: false };
            let expected = Changes { extents: vec![rest], next: Some(1000 * B) };
            assert_eq!(middle, expected);
            let beyond = pool.changes("db", Some("mon"), "tue", 1 << 40, 1).await.unwrap();
            assert_eq!(beyond, Changes::default());
            pool.close().await.unwrap();
        });
    }
}

/// Each shard of a clone knew of a hole over all of it, and told of the blocks of the others, too: behind what these had.
#[test]
fn what_a_clone_gave_back_is_told_once() {
    for shards in 1..=3 {
        reactor::simulate(u64::from(shards), async move {
            let (.., pool, v) = made(shards).await;
            let mut model = Model::new();
            put(&v, &mut model, 0, 600, 1).await;
            take(&pool, "mon").await;
            let dev = super::clones::cloned(&pool, "db", "mon", "dev").await;
            super::clones::take_of(&pool, "dev", "a").await;
            trim(&dev, &mut model, 0, 1000).await;
            put(&dev, &mut model, 200, 200, 5000).await;
            super::clones::take_of(&pool, "dev", "b").await;
            for most in [1, 2, 3, 1000] {
                let (mut told, mut start) = (Told::new(), Some(0));
                while let Some(at) = start {
                    let part = pool.changes("dev", Some("a"), "b", at, most).await.unwrap();
                    tell(&mut told, &part.extents);
                    start = part.next;
                }
                let right: Told = (0..1000).map(|at| (at, (200..400).contains(&at))).collect();
                assert_eq!(told, right, "{shards} shards, {most} at once");
            }
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn volumes_may_have_grown_or_shrunk_in_between() {
    reactor::simulate(1, async {
        let (.., pool, v) = made(2).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 1024, 1).await;
        take(&pool, "mon").await;
        pool.resize_volume("db", MIB).await.unwrap();
        take(&pool, "tue").await;
        pool.resize_volume("db", 3 * MIB).await.unwrap();
        put(&v, &mut model, 500, 10, 5000).await;
        take(&pool, "wed").await;
        assert_eq!(one(&pool, Some("mon"), "tue").await, []);
        assert_eq!(one(&pool, Some("tue"), "wed").await, [(500, 10, true)]);
        let expected = [(256, 244, false), (500, 10, true), (510, 258, false)];
        assert_eq!(one(&pool, Some("mon"), "wed").await, expected);
        assert_eq!(one(&pool, None, "wed").await, [(0, 256, true), (500, 10, true)]);
        pool.close().await.unwrap();
    });
}

#[test]
fn what_cannot_be_compared_is_refused() {
    reactor::simulate(1, async {
        let (.., pool, v) = made(1).await;
        v.write(0, &block(0, 1)).await.unwrap();
        take(&pool, "mon").await;
        take(&pool, "tue").await;
        let refused = async |from, to| {
            let refused = pool.changes("db", from, to, 0, 1).await.unwrap_err();
            (refused.kind, refused.to_string())
        };
        let (kind, what) = refused(Some("tue"), "mon").await;
        assert!(
            kind == Kind::Invalid && what.contains("db@tue is not older than db@mon"),
            "{what}"
        );
        assert_eq!(refused(Some("mon"), "mon").await.0, Kind::Invalid);
        assert_eq!(refused(Some("sun"), "mon").await.0, Kind::NotFound);
        assert_eq!(refused(None, "wed").await.0, Kind::NotFound);
        let none = pool.changes("web", None, "mon", 0, 1).await.unwrap_err();
        assert_eq!(none.kind, Kind::NotFound);
        pool.close().await.unwrap();
    });
}

/// What is found while a snapshot goes may be what others see.
#[test]
fn nothing_is_told_of_a_snapshot_that_is_deleted_meanwhile() {
    reactor::simulate(1, async {
        let (.., pool, v) = made(2).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 1024, 1).await;
        take(&pool, "mon").await;
        put(&v, &mut model, 0, 500, 5000).await;
        take(&pool, "tue").await;
        let deleting = {
            let pool = pool.clone();
            reactor::spawn(async move { pool.delete_snapshot("db", "mon").await })
        };
        let mut refused = None;
        for _ in 0..1000 {
            match pool.changes("db", Some("mon"), "tue", 0, 1000).await {
                Ok(told) => assert_eq!(told.extents.len(), 1),
                Err(error) => {
                    refused = Some(error.kind);
                    break;
                }
            }
        }
        deleting.await.unwrap().unwrap();
        assert!(matches!(refused, Some(Kind::Gone | Kind::NotFound)), "{refused:?}");
        pool.close().await.unwrap();
    });
}

#[test]
fn what_is_lost_is_told_as_data() {
    reactor::simulate(1, async {
        let (.., pool, v) = made(1).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 10, 1).await;
        take(&pool, "mon").await;
        // The map has all that is older.
        empty_all(&pool).await;
        let lose = |shard: Rc<Shard>| async move {
            shard.base.map.reserve(1).await?;
            shard.base.map.insert_lost(Key::new(View::new(1), 3), Version::new(1).unwrap(), 1);
            Ok(())
        };
        pool.each(lose).await.unwrap();
        take(&pool, "tue").await;
        assert_eq!(one(&pool, Some("mon"), "tue").await, [(3, 1, true)]);
        let tuesday = pool.snapshot("db", "tue").unwrap();
        let lost = tuesday.read(3 * B, &mut [0; BLOCK]).await.unwrap_err();
        assert_eq!(lost.kind, Kind::Corrupt);
        pool.close().await.unwrap();
    });
}

/// Few blocks far from each other, and holes over nearly all of it: the map is not asked block by block.
#[test]
fn a_thin_volume_is_gone_through_in_few_steps() {
    const TIB: u64 = 1 << 40;
    for shards in 1..=3 {
        reactor::simulate(u64::from(shards), async move {
            let (drives, log) = (drives(6, 64 * MIB), LogSpec::Bbu(vec![pmem(8 * MIB)]));
            let (shards, au_bytes) = (Some(shards), Some(MIB));
            let spec = PoolSpec { shards, au_bytes, ..spec(&drives, log) };
            let pool = Pool::create(spec, &[]).await.unwrap();
            let v = pool.create_volume(volume("db", TIB)).await.unwrap();
            take(&pool, "empty").await;
            v.deallocate(0, TIB).await.unwrap();
            take(&pool, "discarded").await;
            let at = |n: u64| n * (TIB / 100) / B;
            for n in 0..100 {
                v.write(at(n) * B, &block(0, n)).await.unwrap();
            }
            take(&pool, "written").await;
            v.deallocate(0, TIB).await.unwrap();
            v.write(at(50) * B, &block(0, 200)).await.unwrap();
            take(&pool, "emptied").await;
            for _ in 0..2 {
                assert_eq!(one(&pool, None, "discarded").await, []);
                assert_eq!(one(&pool, Some("empty"), "discarded").await, []);
                let written: Vec<_> = (0..100).map(|n| (at(n), 1, true)).collect();
                assert_eq!(one(&pool, Some("empty"), "written").await, written);
                assert_eq!(one(&pool, None, "written").await, written);
                let emptied: Vec<_> = (0..100).map(|n| (at(n), 1, n == 50)).collect();
                assert_eq!(one(&pool, Some("written"), "emptied").await, emptied);
                assert_eq!(one(&pool, None, "emptied").await, [(at(50), 1, true)]);
                empty_all(&pool).await;
            }
            pool.close().await.unwrap();
        });
    }
}

/// What a snapshot saw, and when each block was changed last by then.
#[derive(Clone, Default)]
pub(super) struct Seen {
    pub(super) model: Model,
    pub(super) changed: BTreeMap<u64, u64>,
    now: u64,
    blocks: u64,
}

impl Seen {
    fn change(&mut self, first: u64, count: u64) {
        self.now += 1;
        (first..first + count).for_each(|at| _ = self.changed.insert(at, self.now));
    }

    /// What is to be told of this one.
    fn changes_from(&self, from: Option<&Self>) -> Told {
        let changed = |at: u64| self.changed.get(&at).copied().unwrap_or(0);
        let told = |at| {
            let has_data = self.model.contains_key(&at);
            match from {
                Some(from) if at < from.blocks => {
                    let is_told = has_data || from.model.contains_key(&at);
                    (is_told && changed(at) > from.now).then_some((at, has_data))
                }
                _ => has_data.then_some((at, true)),
            }
        };
        (0..self.blocks).filter_map(told).collect()
    }
}

struct World {
    drives: Vec<Arc<Drive>>,
    log: LogSpec,
    newest: Seen,
    /// In the order in which they were taken.
    snapshots: Vec<(String, Seen)>,
    checks: u64,
}

impl World {
    async fn open(&self) -> Pool {
        let (drives, log) = (self.drives.clone(), self.log.clone());
        Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap()
    }

    async fn live_through(&mut self, pool: Pool, prng: &mut Prng, steps: u64) -> Pool {
        let mut pool = pool;
        for _ in 0..steps {
            let v = pool.volume("db").unwrap();
            let blocks = self.newest.blocks;
            let count = 1 + prng.below(24);
            let first = prng.below(blocks - count);
            match prng.below(100) {
                0..55 => {
                    self.newest.change(first, count);
                    let version = 1000 * self.newest.now;
                    put(&v, &mut self.newest.model, first, count, version).await;
                }
                55..62 => {
                    let count = (count * 8).min(blocks - first);
                    self.newest.change(first, count);
                    trim(&v, &mut self.newest.model, first, count).await;
                }
                62..66 => self.copy(&v, first, prng.below(blocks - count), count).await,
                66..68 => self.resize(&pool, 256 + prng.below(512)).await,
                68..76 => {
                    let name = format!("s{}", self.newest.now);
                    if self.snapshots.iter().all(|(other, _)| *other != name) {
                        take(&pool, &name).await;
                        self.snapshots.push((name, self.newest.clone()));
                    }
                }
                76..82 if self.snapshots.len() > 3 => {
                    let nth = usize64(prng.below(self.snapshots.len() as u64));
                    let (name, _) = self.snapshots.remove(nth);
                    pool.delete_snapshot("db", &name).await.unwrap();
                }
                82..92 => self.compare(&pool, prng).await,
                92..94 => _ = live(&pool).await,
                94..96 => check_space(&pool, &self.newest, &self.snapshots).await,
                96..98 => empty_all(&pool).await,
                98 => {
                    pool.close().await.unwrap();
                    check_drives(&self.drives, &self.log).await;
                    pool = self.open().await;
                }
                _ => {}
            }
        }
        for _ in 0..4 {
            self.compare(&pool, prng).await;
        }
        check_space(&pool, &self.newest, &self.snapshots).await;
        pool
    }

    async fn copy(&mut self, v: &Volume, from: u64, to: u64, count: u64) {
        if from == to {
            return;
        }
        let newest = &mut self.newest;
        newest.change(to, count);
        v.copy_from(v, from * B, to * B, count * B).await.unwrap();
        let had: Vec<_> = (from..from + count).map(|at| newest.model.get(&at).copied()).collect();
        for (at, had) in (to..).zip(had) {
            match had {
                Some(had) => _ = newest.model.insert(at, had),
                None => _ = newest.model.remove(&at),
            }
        }
    }

    async fn resize(&mut self, pool: &Pool, blocks: u64) {
        let before = self.newest.blocks;
        pool.resize_volume("db", blocks * B).await.unwrap();
        self.newest.blocks = blocks;
        if blocks < before {
            self.newest.change(blocks, before - blocks);
            self.newest.model.retain(|at, _| *at < blocks);
        }
    }

    /// Compares two snapshots, or one with nothing.
    async fn compare(&mut self, pool: &Pool, prng: &mut Prng) {
        let Some(most) = self.snapshots.len().checked_sub(1) else { return };
        let to = usize64(prng.below(self.snapshots.len() as u64));
        let from = usize64(prng.below(to as u64 + 1));
        let (name, seen) = &self.snapshots[to.min(most)];
        let older = (from < to).then(|| &self.snapshots[from]);
        let expected = seen.changes_from(older.map(|(_, seen)| seen));
        let from = older.map(|(name, _)| name.as_str());
        let what = format!("from {from:?} to {name}");
        assert_eq!(changes(pool, from, name, 0, usize::MAX).await, expected, "{what}");
        assert_eq!(changes(pool, from, name, 0, 1).await, expected, "{what}, one by one");
        let start = prng.below(seen.blocks);
        let rest = changes(pool, from, name, start * B, usize64(2 + prng.below(5))).await;
        let expected: Told = expected.range(start..).map(|(at, has)| (*at, *has)).collect();
        assert_eq!(rest, expected, "{what}, from block {start} on");
        self.checks += u64::from(!expected.is_empty());
    }
}

/// Each life but the last ends in the midst of what the pool does.
#[test]
fn random_lives_are_told_as_they_were() {
    let mut checks = 0;
    for seed in 0..6 {
        let shards = [1, 2, 3][usize64(seed % 3)];
        let (drives, log) = (drives(6, 64 * MIB), LogSpec::Bbu(vec![pmem(8 * MIB)]));
        let newest = Seen { blocks: 768, ..Seen::default() };
        let (snapshots, checks_before) = (Vec::new(), checks);
        let world =
            World { drives: drives.clone(), log: log.clone(), newest, snapshots, checks: 0 };
        let (shards, au_bytes) = (Some(shards), Some(MIB));
        let spec = PoolSpec { shards, au_bytes, ..spec(&drives, log) };
        let mut world = reactor::simulate(seed, async move {
            let mut world = world;
            let pool = Pool::create(spec, &[]).await.unwrap();
            pool.create_volume(volume("db", 768 * B)).await.unwrap();
            world.live_through(pool, &mut Prng::new(seed), 150).await;
            world
        });
        for life in 1..4 {
            world = reactor::simulate(seed + 1000 * life, async move {
                let mut prng = Prng::new(seed + 1000 * life);
                let pool = world.open().await;
                world.live_through(pool, &mut prng, 100).await;
                world
            });
        }
        checks += world.checks;
        assert!(checks > checks_before, "something was compared");
    }
    assert!(checks > 150, "{checks}");
}
