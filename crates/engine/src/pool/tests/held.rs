//! What snapshots hold, and what comes back when one goes.

use super::changes::Seen;
use super::snapshots::{check_drives, empty_all, live, made, put, take, trim};
use super::*;
use std::time::Duration;

const B: u64 = BLOCK as u64;

/// Blocks of the volume that are used, of those the ones that no snapshot sees, and what only snapshots see; and of each
/// snapshot what it sees, and what it alone does.
#[derive(Debug, PartialEq, Eq)]
struct Space {
    volume: (u64, u64, u64),
    snapshots: Vec<(u64, u64)>,
}

async fn space(pool: &Pool) -> Space {
    assert!(pool.counted().await.unwrap(), "all pages can be read");
    let v = pool.volume("db").unwrap();
    let [used, unique, held] =
        [v.used(), v.unique(), v.held_by_snapshots()].map(|bytes| bytes.unwrap() / B);
    let snapshots = pool.snapshots("db").unwrap().into_iter().map(|snapshot| {
        let seen = pool.snapshot("db", &snapshot.name).unwrap();
        assert_eq!((seen.used(), seen.unique()), (snapshot.referenced, snapshot.unique));
        (snapshot.referenced.unwrap() / B, snapshot.unique.unwrap() / B)
    });
    Space { snapshots: snapshots.collect(), volume: (used, unique, held) }
}

/// By what each block was changed last, of those that have contents.
fn instances(seen: &Seen) -> BTreeMap<u64, u64> {
    seen.model.keys().map(|at| (*at, seen.changed[at])).collect()
}

/// The numbers are those of a model of the volume, and its snapshots in their order.
pub(super) async fn check_space(pool: &Pool, newest: &Seen, snapshots: &[(String, Seen)]) {
    let all: Vec<_> = snapshots.iter().map(|(_, seen)| seen).chain([newest]).collect();
    let all: Vec<_> = all.into_iter().map(instances).collect();
    let mut seen_by: BTreeMap<(u64, u64), Vec<usize>> = BTreeMap::new();
    for (viewer, instances) in all.iter().enumerate() {
        for (at, changed) in instances {
            seen_by.entry((*at, *changed)).or_default().push(viewer);
        }
    }
    let hosts = snapshots.len();
    let alone = |viewer: usize| seen_by.values().filter(|by| **by == [viewer]).count() as u64;
    let held = seen_by.values().filter(|by| !by.contains(&hosts)).count() as u64;
    let referenced = |viewer: usize| all[viewer].len() as u64;
    let expected = Space {
        volume: (referenced(hosts), alone(hosts), held),
        snapshots: (0..hosts).map(|viewer| (referenced(viewer), alone(viewer))).collect(),
    };
    assert_eq!(space(pool).await, expected);
}

fn told<const N: usize>(volume: (u64, u64, u64), snapshots: [(u64, u64); N]) -> Space {
    Space { volume, snapshots: snapshots.to_vec() }
}

#[test]
fn what_snapshots_hold_adds_up() {
    for shards in 1..=3 {
        reactor::simulate(u64::from(shards), async move {
            let (drives, log, mut pool, v) = made(shards).await;
            let mut model = Model::new();
            put(&v, &mut model, 0, 600, 1).await;
            assert_eq!(space(&pool).await, told((600, 600, 0), []));
            take(&pool, "mon").await;
            assert_eq!(pool.snapshots("db").unwrap()[0].referenced, None, "not counted yet");
            assert_eq!(space(&pool).await, told((600, 0, 0), [(600, 0)]));
            // Half of it.
            put(&v, &mut model, 300, 300, 10_000).await;
            assert_eq!(space(&pool).await, told((600, 300, 300), [(600, 300)]));
            take(&pool, "tue").await;
            assert_eq!(space(&pool).await, told((600, 0, 300), [(600, 300), (600, 0)]));
            // All of it: the first half was in both.
            put(&v, &mut model, 0, 600, 20_000).await;
            assert_eq!(space(&pool).await, told((600, 600, 900), [(600, 300), (600, 300)]));
            take(&pool, "wed").await;
            trim(&v, &mut model, 100, 100).await;
            // Written, and written again: nobody sees the first.
            put(&v, &mut model, 900, 20, 30_000).await;
            put(&v, &mut model, 900, 20, 40_000).await;
            let all = || told((520, 20, 1000), [(600, 300), (600, 300), (600, 100)]);
            assert_eq!(space(&pool).await, all());
            empty_all(&pool).await;
            assert_eq!(space(&pool).await, all());
            assert_eq!(live(&pool).await, 520 + 1000);
            pool.close().await.unwrap();
            check_drives(&drives, &log).await;
            pool = Pool::open(drives.clone(), log, OpenOptions::default(), &[]).await.unwrap();
            assert_eq!(pool.snapshots("db").unwrap()[0].unique, None, "nobody has counted yet");
            assert_eq!(space(&pool).await, all());
            // The middle one: what it shared with the first is the first's alone.
            pool.delete_snapshot("db", "tue").await.unwrap();
            assert_eq!(space(&pool).await, told((520, 20, 700), [(600, 600), (600, 100)]));
            assert_eq!(live(&pool).await, 520 + 700);
            pool.delete_snapshot("db", "mon").await.unwrap();
            pool.delete_snapshot("db", "wed").await.unwrap();
            assert_eq!(space(&pool).await, told((520, 520, 0), []));
            pool.close().await.unwrap();
        });
    }
}

/// Others have no part in it, also where they share blocks.
#[test]
fn volumes_are_counted_apart() {
    reactor::simulate(1, async {
        let (.., pool, v) = made(2).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 400, 1).await;
        let other = VolumeSpec { id: [2; 16], ..volume("web", 4 * MIB) };
        let other = pool.create_volume(other).await.unwrap();
        other.copy_from(&v, 0, 0, 300 * B).await.unwrap();
        take(&pool, "mon").await;
        v.copy_from(&other, 0, 50 * B, 100 * B).await.unwrap();
        assert_eq!(space(&pool).await, told((400, 100, 100), [(400, 100)]));
        let others = [other.used(), other.unique(), other.held_by_snapshots()];
        assert_eq!(others, [Some(300 * B), Some(300 * B), Some(0)]);
        pool.close().await.unwrap();
    });
}

/// It was not counted what volumes use while something of a snapshot could not leave the log.
#[test]
fn what_hosts_see_is_counted_although_nothing_leaves_the_log() {
    reactor::simulate(1, async {
        let (media, drives) = simulated(3, 96 * MIB, 0);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let spec = PoolSpec { scheme: raid::Scheme::Raid5, ..spec(&drives, log.clone()) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 48 * MIB)).await.unwrap();
        let mut model = Model::new();
        put(&v, &mut model, 0, 10, 1).await;
        take(&pool, "mon").await;
        media.iter().for_each(|drive| drive.set_full(true));
        scarce::write_until_full(&v, &mut model, 100).await;
        assert!(pool.counted().await.unwrap());
        assert_eq!(v.used(), Some(model.len() as u64 * B));
        assert_eq!(pool.snapshot("db", "mon").unwrap().used(), None, "nobody knows");
        media.iter().for_each(|drive| drive.set_full(false));
        let back = async {
            while v.write(0, &block(0, 2)).await.is_err() {
                reactor::sleep(Duration::from_millis(10)).await;
            }
            while pool.snapshot("db", "mon").unwrap().used().is_none() {
                reactor::sleep(Duration::from_millis(10)).await;
            }
        };
        reactor::timeout(Duration::from_secs(600), back).await.expect("there is space again");
        let Space { volume, snapshots } = space(&pool).await;
        assert_eq!(
            (volume, snapshots),
            ((model.len() as u64, model.len() as u64, 10), vec![(10, 10)])
        );
        pool.close().await.unwrap();
    });
}
