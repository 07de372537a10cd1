//! How much of volumes is used: what was written and is no hole, whoever else has the same.

use std::time::Duration;

use reactor::{Config, Reactor};

use super::*;

const B: u64 = BLOCK as u64;

fn sharded(drives: &[Arc<Drive>], log: LogSpec, shards: u16) -> PoolSpec {
    PoolSpec { shards: Some(shards), au_bytes: Some(MIB), ..spec(drives, log) }
}

async fn open(drives: &[Arc<Drive>], log: &LogSpec) -> Pool {
    Pool::open(drives.to_vec(), log.clone(), OpenOptions::default(), &[]).await.unwrap()
}

/// Blocks of a volume that are used, as of now.
async fn used(pool: &Pool, name: &str) -> u64 {
    assert!(pool.counted().await.unwrap(), "all pages can be read");
    let v = pool.volume(name).unwrap();
    let bytes = v.used().unwrap();
    let status = pool.status().await.unwrap();
    let told = status.volumes.iter().find(|volume| volume.name == name).unwrap().used;
    assert_eq!(told, Some(bytes));
    assert!(bytes <= v.len());
    bytes / B
}

fn blocks(model: &Model) -> u64 {
    stdx::num::u64_of(model.len())
}

#[test]
fn a_volume_uses_what_was_written_and_is_no_hole() {
    for shards in 1..=3 {
        reactor::simulate(u64::from(shards), async move {
            let (drives, log) = (drives(6, 128 * MIB), LogSpec::Bbu(vec![pmem(24 * MIB)]));
            let pool = Pool::create(sharded(&drives, log.clone(), shards), &[]).await.unwrap();
            let v = pool.create_volume(volume("db", 48 * MIB)).await.unwrap();
            assert_eq!(v.used(), Some(0), "nothing is in a new one");
            // In the log alone, then in runs and levels, too.
            let mut model = Model::new();
            for (round, writes) in [(1, 100), (2, 2000), (3, 4000), (4, 10)] {
                scribble(&v, &mut model, writes, round).await;
                assert_eq!(used(&pool, "db").await, blocks(&model), "round {round}");
            }
            pool.audit_space().await.unwrap();
            assert_eq!(used(&pool, "db").await, blocks(&model), "all on the drives");
            // Zeroes are holes, however they are written.
            v.write_zeroes(3 * MIB, MIB).await.unwrap();
            v.deallocate(7 * MIB, 5 * MIB).await.unwrap();
            model.retain(|at, _| ![3, 7, 8, 9, 10, 11].contains(&(at * B / MIB)));
            assert_eq!(used(&pool, "db").await, blocks(&model), "holes");
            pool.close().await.unwrap();
            let pool = open(&drives, &log).await;
            assert_eq!(pool.volume("db").unwrap().used(), None, "nobody has counted yet");
            assert_eq!(used(&pool, "db").await, blocks(&model), "opened");
            pool.resize_volume("db", 10 * MIB).await.unwrap();
            assert!(pool.volume("db").unwrap().used().unwrap() <= 10 * MIB);
            model.retain(|at, _| *at < 10 * MIB / B);
            assert_eq!(used(&pool, "db").await, blocks(&model), "smaller");
            pool.resize_volume("db", 48 * MIB).await.unwrap();
            assert_eq!(used(&pool, "db").await, blocks(&model), "larger");
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn what_volumes_share_counts_for_each_and_a_new_volume_has_nothing_of_an_old_one() {
    reactor::simulate(5, async move {
        let (drives, log) = (drives(6, 128 * MIB), LogSpec::Bbu(vec![pmem(16 * MIB)]));
        let pool = Pool::create(sharded(&drives, log.clone(), 2), &[]).await.unwrap();
        let a = pool.create_volume(volume("a", 16 * MIB)).await.unwrap();
        let other = VolumeSpec { id: [2; 16], ..volume("b", 16 * MIB) };
        let b = pool.create_volume(other.clone()).await.unwrap();
        let data = (0..300).map(|at| block(at, 1)).collect::<Vec<_>>().concat();
        a.write(0, &data).await.unwrap();
        // Copied from the log, from the drives, with holes, and what is shared already.
        b.copy_from(&a, 0, 0, 10 * B).await.unwrap();
        pool.audit_space().await.unwrap();
        b.copy_from(&a, 100 * B, 100 * B, 250 * B).await.unwrap();
        a.copy_from(&b, 100 * B, 600 * B, 50 * B).await.unwrap();
        assert_eq!((used(&pool, "a").await, used(&pool, "b").await), (350, 210));
        pool.audit_space().await.unwrap();
        assert_eq!((used(&pool, "a").await, used(&pool, "b").await), (350, 210));
        pool.rename_volume("a", "c").await.unwrap();
        assert_eq!(a.used(), Some(350 * B));
        pool.delete_volume("b").await.unwrap();
        let b = pool.create_volume(other).await.unwrap();
        assert_eq!(b.used(), Some(0));
        b.write(0, &data[..7 * BLOCK]).await.unwrap();
        assert_eq!((used(&pool, "c").await, used(&pool, "b").await), (350, 7));
        pool.close().await.unwrap();
    });
}

/// It was said that something changes before it had: nothing was counted any more.
#[test]
fn what_changes_after_it_was_told_is_counted() {
    reactor::simulate(6, async move {
        let (drives, log) = (drives(6, 128 * MIB), LogSpec::Bbu(vec![pmem(16 * MIB)]));
        let pool = Pool::create(sharded(&drives, log, 1), &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
        assert_eq!(used(&pool, "db").await, 0);
        let tell = |shard: Rc<Shard>| async move {
            shard.counting.note_change();
            Ok(())
        };
        pool.each(tell).await.unwrap();
        reactor::sleep(Duration::from_mins(1)).await;
        v.write(0, &block(0, 1)).await.unwrap();
        let counted = reactor::timeout(Duration::from_hours(1), used(&pool, "db")).await;
        assert_eq!(counted.unwrap(), 1);
        pool.close().await.unwrap();
    });
}

#[test]
fn what_is_used_is_found_after_every_crash() {
    let (drives, log) = (drives(6, 128 * MIB), LogSpec::Bbu(vec![pmem(16 * MIB)]));
    let mut model = reactor::simulate(1, {
        let (drives, log) = (drives.clone(), log.clone());
        async move {
            let pool = Pool::create(sharded(&drives, log, 2), &[]).await.unwrap();
            pool.create_volume(volume("db", 48 * MIB)).await.unwrap();
            Model::new()
        }
    });
    for round in 2..6 {
        let (drives, log) = (drives.clone(), log.clone());
        model = reactor::simulate(round, async move {
            let pool = open(&drives, &log).await;
            assert_eq!(used(&pool, "db").await, blocks(&model), "round {round}");
            let v = pool.volume("db").unwrap();
            scribble(&v, &mut model, 900 * round, round).await;
            assert_eq!(used(&pool, "db").await, blocks(&model), "round {round}, later");
            scribble(&v, &mut model, 300, 100 + round).await;
            model
        });
    }
}

/// Of a pool that is full of random blocks, while they are overwritten and merged.
#[test]
fn counting_beside_writers_ends_and_a_close_does_not_wait_for_it() {
    reactor::simulate(7, async move {
        let (drives, log) = (drives(6, 256 * MIB), LogSpec::Bbu(vec![pmem(8 * MIB)]));
        let pool = Pool::create(spec(&drives, log.clone()), &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 256 * MIB)).await.unwrap();
        let (mut model, mut known) = (Model::new(), 0);
        let begun = reactor::now();
        for round in 1..2000 {
            scribble(&v, &mut model, 50, round).await;
            reactor::sleep(std::time::Duration::from_millis(10)).await;
            let now = v.used().unwrap();
            known += u64::from(now > 0);
            assert!(now <= (blocks(&model) + 5000) * B, "nothing is counted twice");
            if reactor::now() - begun > 5_000_000_000 {
                break;
            }
        }
        assert!(known > 100, "counted while it was written to: {known}");
        let begun = reactor::now();
        pool.close().await.unwrap();
        assert!(reactor::now() - begun < 1_000_000_000, "no pause is waited for");
    });
}

/// Once counted, nothing is read until something changes.
#[test]
fn a_pool_at_rest_counts_nothing() {
    reactor::simulate(8, async move {
        let (drives, log) = (drives(6, 128 * MIB), LogSpec::Bbu(vec![pmem(8 * MIB)]));
        let pool = Pool::create(spec(&drives, log.clone()), &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 48 * MIB)).await.unwrap();
        let mut model = Model::new();
        scribble(&v, &mut model, 3000, 1).await;
        assert_eq!(used(&pool, "db").await, blocks(&model));
        reactor::sleep(std::time::Duration::from_secs(10)).await;
        let turns = || reactor::metrics::here().turns;
        let before = turns();
        reactor::sleep(std::time::Duration::from_secs(100)).await;
        let after = turns() - before;
        assert!(after < 100, "{after} turns of the reactor with nothing to do");
        pool.close().await.unwrap();
    });
}

/// Asked where neither the pool nor its shards are.
#[test]
fn shards_on_several_reactors_add_up() {
    thread_local! {
        static POOL: Cell<Option<Pool>> = const { Cell::new(None) };
    }
    let start =
        |n: usize| Reactor::start(Config { name: format!("r{n}"), ..Config::default() }).unwrap();
    let reactors: Vec<_> = (0..3).map(start).collect();
    let on = reactors[..2].to_vec();
    let made = reactors[0].call(move || async move {
        let (drives, log) = (drives(6, 128 * MIB), LogSpec::Bbu(vec![pmem(16 * MIB)]));
        let pool = Pool::create(sharded(&drives, log, 2), &on).await.unwrap();
        let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
        POOL.set(Some(pool));
        v
    });
    let v = made.wait().unwrap();
    let (other, elsewhere) = (v.clone(), reactors[2].clone());
    let written = elsewhere.call(move || async move {
        let mut model = Model::new();
        scribble(&other, &mut model, 1000, 1).await;
        blocks(&model)
    });
    let written = written.wait().unwrap();
    let counted = reactors[0].call(|| async {
        let pool = POOL.take().unwrap();
        assert!(pool.counted().await.unwrap());
        pool.close().await.unwrap();
    });
    counted.wait().unwrap();
    assert_eq!(v.used(), Some(written * B));
    for reactor in reactors {
        reactor.stop();
        reactor.join().unwrap();
    }
}
