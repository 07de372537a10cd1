//! Pools of several shards, on one reactor and on several.

use reactor::{Config, Reactor};

use super::*;

fn sharded(drives: &[Arc<Drive>], log: LogSpec, shards: u16) -> PoolSpec {
    PoolSpec { shards: Some(shards), au_bytes: Some(MIB), ..spec(drives, log) }
}

fn bbu(bytes: u64) -> LogSpec {
    LogSpec::Bbu(vec![pmem(bytes)])
}

async fn open(drives: &[Arc<Drive>], log: &LogSpec, on: &[reactor::Handle]) -> Pool {
    Pool::open(drives.to_vec(), log.clone(), OpenOptions::default(), on).await.unwrap()
}

#[test]
fn every_shard_has_its_part_after_closing_and_opening() {
    for shards in 1..=4 {
        reactor::simulate(u64::from(shards), async move {
            let (drives, log) = (drives(6, 128 * MIB), bbu(16 * MIB));
            let pool = Pool::create(sharded(&drives, log.clone(), shards), &[]).await.unwrap();
            assert_eq!(pool.status().await.unwrap().shards, shards);
            let v = pool.create_volume(volume("db", 32 * MIB)).await.unwrap();
            let mut model = Model::new();
            scribble(&v, &mut model, 3000, 1).await;
            verify(&v, &model).await;
            pool.close().await.unwrap();
            assert_eq!(v.read(0, &mut [0; BLOCK]).await.unwrap_err().kind, Kind::Gone);
            let pool = open(&drives, &log, &[]).await;
            let v = pool.volume("db").unwrap();
            verify(&v, &model).await;
            scribble(&v, &mut model, 1000, 2).await;
            pool.resize_volume("db", 16 * MIB).await.unwrap();
            pool.resize_volume("db", 32 * MIB).await.unwrap();
            model.retain(|at, _| *at < 16 * MIB / BLOCK as u64);
            verify(&v, &model).await;
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn what_was_acknowledged_by_several_shards_is_there_after_every_crash() {
    let (drives, log) = (drives(6, 128 * MIB), bbu(16 * MIB));
    let mut model = reactor::simulate(1, {
        let (drives, log) = (drives.clone(), log.clone());
        async move {
            let pool = Pool::create(sharded(&drives, log, 3), &[]).await.unwrap();
            pool.create_volume(volume("db", 48 * MIB)).await.unwrap();
            Model::new()
        }
    });
    for round in 2..8 {
        let (drives, log) = (drives.clone(), log.clone());
        model = reactor::simulate(round, async move {
            let pool = open(&drives, &log, &[]).await;
            let v = pool.volume("db").unwrap();
            verify(&v, &model).await;
            scribble(&v, &mut model, 700 * round, round).await;
            verify(&v, &model).await;
            model
        });
    }
}

#[test]
fn a_pool_is_full_as_a_whole_whichever_shard_is_written_to() {
    reactor::simulate(3, async {
        let (drives, log) = (drives(6, 128 * MIB), bbu(16 * MIB));
        let pool = Pool::create(sharded(&drives, log, 3), &[]).await.unwrap();
        let capacity = pool.status().await.unwrap().capacity;
        // Only every third MiB: all of one shard.
        let v = pool.create_volume(volume("db", 1 << 40)).await.unwrap();
        let piece = vec![0x5a; usize64(MIB)];
        let fill = async |from: u64| {
            for n in 0.. {
                match v.write((from + 3 * n) * MIB, &piece).await {
                    Ok(()) => {}
                    Err(error) => {
                        assert_eq!(error.kind, Kind::Full, "{error}");
                        return n * MIB;
                    }
                }
            }
            0
        };
        let taken = fill(0).await;
        assert!(taken > capacity / 100 * 97, "{taken} of {capacity}");
        // What that shard gives up, another can have.
        v.deallocate(0, taken / 2 * 3 / MIB * MIB).await.unwrap();
        let again = fill(1).await;
        assert!(again > taken / 100 * 45, "{again} after {taken}");
        pool.close().await.unwrap();
    });
}

#[test]
fn users_of_small_blocks_meet_at_the_borders_of_shards() {
    reactor::simulate(5, async {
        let (drives, log) = (drives(6, 128 * MIB), bbu(16 * MIB));
        let pool = Pool::create(sharded(&drives, log, 2), &[]).await.unwrap();
        let spec = VolumeSpec { block_size: 512, ..volume("db", 8 * MIB) };
        let v = pool.create_volume(spec).await.unwrap();
        // Neighbouring sectors around the border of two shards, all at once.
        let tasks: Vec<_> = (0..64)
            .map(|n| {
                let v = v.clone();
                reactor::spawn(async move {
                    let offset = MIB - 16 * 1024 + u64::from(n) * 512;
                    v.write(offset, &vec![n + 1; 512]).await.unwrap();
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let mut got = vec![0; 32 * 1024];
        v.read(MIB - 16 * 1024, &mut got).await.unwrap();
        for (n, sector) in (1..).zip(got.chunks_exact(512)) {
            assert!(sector.iter().all(|byte| *byte == n), "sector {n}");
        }
        // Zeroes that begin and end within blocks, over both shards.
        v.write_zeroes(MIB - 8192 - 512, 16384 + 1024).await.unwrap();
        v.read(MIB - 16 * 1024, &mut got).await.unwrap();
        for (n, sector) in (1..).zip(got.chunks_exact(512)) {
            let wanted = if (15..49).contains(&(n - 1)) { 0 } else { n };
            assert!(sector.iter().all(|byte| *byte == wanted), "sector {n}");
        }
        pool.close().await.unwrap();
    });
}

/// Two reactors, a pool with a shard on each, and requests from both and from a third.
#[test]
fn shards_on_several_reactors_are_reached_from_all() {
    let start =
        |n: usize| Reactor::start(Config { name: format!("r{n}"), ..Config::default() }).unwrap();
    let reactors: Vec<_> = (0..3).map(start).collect();
    let on = reactors[..2].to_vec();
    let (drives, log) = (drives(6, 128 * MIB), bbu(16 * MIB));
    let home = reactors[0].clone();
    let mut models: Vec<Model> = vec![Model::new(); 3];
    for round in 0..3_u64 {
        let (drives, log, on) = (drives.clone(), log.clone(), on.clone());
        let made = home.call(move || async move {
            let pool = match round {
                0 => Pool::create(sharded(&drives, log, 2), &on).await.unwrap(),
                // Once with all shards on one reactor.
                1 => open(&drives, &log, &[]).await,
                _ => open(&drives, &log, &on).await,
            };
            let mut volumes = Vec::new();
            for n in 0..3 {
                let name = format!("v{n}");
                let made = match round {
                    0 => pool.create_volume(volume(&name, 16 * MIB)).await,
                    _ => pool.volume(&name),
                };
                volumes.push(made.unwrap());
            }
            POOL.set(Some(pool));
            volumes
        });
        let volumes = made.wait().unwrap();
        // With all shards on the home reactor and no hands, only that one can be asked.
        let askers = if round == 1 { [0, 0, 0] } else { [0, 1, 2] };
        let calls: Vec<_> = (0..3)
            .map(|n| {
                let (v, mut model) = (volumes[n].clone(), std::mem::take(&mut models[n]));
                reactors[askers[n]].call(move || async move {
                    verify(&v, &model).await;
                    scribble(&v, &mut model, 1000, 10 * round + n as u64 + 1).await;
                    verify(&v, &model).await;
                    model
                })
            })
            .collect();
        for (model, call) in models.iter_mut().zip(calls) {
            *model = call.wait().unwrap();
        }
        let closed = home.call(move || async move {
            let pool = POOL.take().unwrap();
            let status = pool.status().await.unwrap();
            assert!(status.written > 0);
            pool.delete_volume("v9").await.unwrap_err();
            pool.close().await.unwrap();
        });
        closed.wait().unwrap();
    }
    for reactor in reactors {
        reactor.stop();
        reactor.join().unwrap();
    }
}

thread_local! {
    static POOL: Cell<Option<Pool>> = const { Cell::new(None) };
}

#[test]
fn as_many_shards_as_roots_can_name_what_they_list() {
    let least = |units: u32, shape, au_mib: u64| {
        let units = [units; 10];
        super::super::create::least_shards(
            &units[..usize::from(shape) + 1],
            (shape, 1),
            au_mib << 20,
        )
    };
    // A mirror of small units: of what it lists 42 MiB lie in segments that a root can name.
    assert_eq!(least(1_500_000, 1, 1), 1);
    assert_eq!(least(60_000_000, 1, 1), 2);
    // With larger ones, or wider stripes, the number of blocks is what counts.
    assert_eq!(least(60_000_000, 1, 64), 1);
    assert_eq!(least(28_000_000, 9, 1), 2);
    assert_eq!(least(15_000_000, 9, 1), 1);
}
