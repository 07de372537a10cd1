//! Copies: what is shared, and for how long.

use std::rc::Rc;

use media::memory::Region;

use super::*;
use crate::segment::Stream;
use crate::segment_table::Segment;
use crate::shard::Shard;
use crate::shard::reclaim::Emptied;

const B: u64 = BLOCK as u64;

/// Copies blocks, and notes it.
async fn copy(v: &Volume, model: &mut Model, from: u64, to: u64, count: u64) {
    v.copy_from(v, from * B, to * B, count * B).await.unwrap();
    let had: Vec<Option<u64>> = (from..from + count).map(|at| model.get(&at).copied()).collect();
    for (at, version) in (to..).zip(had) {
        // Versions of this module tell the block, too: a copy holds what another block was given.
        match version {
            Some(version) => model.insert(at, version),
            None => model.remove(&at),
        };
    }
}

/// Gives blocks contents that their version alone decides.
async fn put(v: &Volume, model: &mut Model, first: u64, count: u64, version: u64) {
    let data = (0..count).map(|n| block(0, version + n)).collect::<Vec<_>>().concat();
    v.write(first * B, &data).await.unwrap();
    (0..count).for_each(|n| _ = model.insert(first + n, version + n));
}

async fn check(v: &Volume, model: &Model) {
    let mut got = vec![0; BLOCK];
    for at in 0..v.len() / B {
        v.read(at * B, &mut got).await.unwrap();
        let wanted = model.get(&at).map_or_else(|| vec![0; BLOCK], |version| block(0, *version));
        assert!(got == wanted, "block {at}");
    }
}

async fn live(pool: &Pool) -> u64 {
    pool.audit_space().await.unwrap().live
}

async fn made(drives: &[Arc<Drive>], log: &LogSpec) -> (Pool, Volume) {
    let pool = Pool::create(spec(drives, log.clone()), &[]).await.unwrap();
    let v = pool.create_volume(volume("db", 4 * MIB)).await.unwrap();
    (pool, v)
}

#[test]
fn what_is_on_the_drives_is_shared_until_it_is_overwritten() {
    reactor::simulate(1, async {
        let (drives, log) = (drives(6, 64 * MIB), LogSpec::Bbu(vec![pmem(8 * MIB)]));
        let (pool, v) = made(&drives, &log).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 100, 1).await;
        assert_eq!(live(&pool).await, 100);
        let written = pool.status().await.unwrap().written;
        for to in [200, 400, 600] {
            copy(&v, &mut model, 0, to, 100).await;
        }
        // Of what the log has references to, as well.
        copy(&v, &mut model, 200, 800, 50).await;
        check(&v, &model).await;
        assert_eq!(pool.status().await.unwrap().written, written, "contents were moved");
        assert_eq!(live(&pool).await, 100);
        check(&v, &model).await;
        put(&v, &mut model, 0, 100, 1000).await;
        put(&v, &mut model, 200, 10, 2000).await;
        assert_eq!(live(&pool).await, 210);
        check(&v, &model).await;
        pool.close().await.unwrap();
        let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
        let v = pool.volume("db").unwrap();
        check(&v, &model).await;
        // The last ones to have them go.
        for (at, count) in [(200, 100), (400, 100), (600, 100)] {
            v.deallocate(at * B, count * B).await.unwrap();
            (at..at + count).for_each(|at| _ = model.remove(&at));
        }
        assert_eq!(live(&pool).await, 150, "50 are shared still");
        check(&v, &model).await;
        v.deallocate(0, v.len()).await.unwrap();
        assert_eq!(live(&pool).await, 0);
        pool.close().await.unwrap();
    });
}

#[test]
fn a_copy_outlives_the_volume_it_was_made_from() {
    reactor::simulate(2, async {
        let (drives, log) = (drives(6, 64 * MIB), LogSpec::Bbu(vec![pmem(8 * MIB)]));
        let (pool, v) = made(&drives, &log).await;
        let mut model = Model::new();
        put(&v, &mut model, 3, 200, 1).await;
        live(&pool).await;
        let other = pool.create_volume(volume("copy", 4 * MIB)).await.unwrap();
        other.copy_from(&v, 0, 0, v.len()).await.unwrap();
        pool.delete_volume("db").await.unwrap();
        check(&other, &model).await;
        assert_eq!(live(&pool).await, 200);
        check(&other, &model).await;
        assert_eq!(other.copy_from(&v, 0, 0, B).await.unwrap_err().kind, Kind::Gone);
        pool.close().await.unwrap();
        let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
        check(&pool.volume("copy").unwrap(), &model).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn what_is_in_the_log_holes_and_parts_of_blocks_are_copied_too() {
    reactor::simulate(3, async {
        let (drives, log) = (drives(6, 64 * MIB), LogSpec::Bbu(vec![pmem(8 * MIB)]));
        let (pool, v) = made(&drives, &log).await;
        let mut model = Model::new();
        put(&v, &mut model, 10, 30, 1).await;
        live(&pool).await;
        // Some settled, some in the log, some nowhere, over what was there.
        put(&v, &mut model, 20, 5, 100).await;
        v.deallocate(30 * B, 3 * B).await.unwrap();
        (30..33).for_each(|at| _ = model.remove(&at));
        put(&v, &mut model, 500, 60, 200).await;
        copy(&v, &mut model, 0, 500, 60).await;
        check(&v, &model).await;
        // Overlapping, both ways.
        copy(&v, &mut model, 10, 13, 40).await;
        copy(&v, &mut model, 13, 11, 40).await;
        check(&v, &model).await;
        live(&pool).await;
        check(&v, &model).await;
        // Parts of blocks.
        v.copy_from(&v, 500 * B + 512, 700 * B + 512, 3 * B).await.unwrap();
        v.copy_from(&v, 500 * B + 512, 800 * B + 1024, 3 * B).await.unwrap();
        let mut bytes = [vec![0; 4 * BLOCK], vec![0; 4 * BLOCK], vec![0; 4 * BLOCK]];
        for (at, out) in [500, 700, 800].into_iter().zip(&mut bytes) {
            v.read(at * B, out).await.unwrap();
        }
        let [from, same, shifted] = bytes;
        assert!(from[512..512 + 3 * BLOCK] == same[512..512 + 3 * BLOCK]);
        assert!(from[512..512 + 3 * BLOCK] == shifted[1024..1024 + 3 * BLOCK]);
        assert!(same[..512].iter().chain(&same[512 + 3 * BLOCK..]).all(|byte| *byte == 0));
        let out = v.copy_from(&v, 0, v.len() - B, 2 * B).await.unwrap_err();
        assert_eq!(out.kind, Kind::OutOfRange);
        pool.close().await.unwrap();
    });
}

#[test]
fn copies_across_shards_hold_the_same() {
    reactor::simulate(4, async {
        let (drives, log) = (drives(6, 128 * MIB), LogSpec::Bbu(vec![pmem(16 * MIB)]));
        let spec = PoolSpec { shards: Some(3), au_bytes: Some(MIB), ..spec(&drives, log.clone()) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
        let mut model = Model::new();
        put(&v, &mut model, 100, 900, 1).await;
        assert_eq!(live(&pool).await, 900);
        // A multiple of 3 MiB away the shards are the same, elsewhere they are not.
        copy(&v, &mut model, 100, 100 + 6 * 256, 900).await;
        assert_eq!(live(&pool).await, 900);
        copy(&v, &mut model, 300, 2100, 700).await;
        check(&v, &model).await;
        live(&pool).await;
        check(&v, &model).await;
        pool.close().await.unwrap();
        let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
        check(&pool.volume("db").unwrap(), &model).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn shared_blocks_are_moved_by_reclaim_for_all_who_have_them() {
    reactor::simulate(5, async {
        let (drives, log) = (drives(3, 96 * MIB), LogSpec::Bbu(vec![pmem(8 * MIB)]));
        let spec = PoolSpec { scheme: raid::Scheme::Raid5, ..spec(&drives, log.clone()) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 4 * MIB)).await.unwrap();
        let mut model = Model::new();
        // Shared blocks with others between them, which die.
        put(&v, &mut model, 0, 200, 1).await;
        live(&pool).await;
        for at in 0..100 {
            copy(&v, &mut model, 2 * at, 300 + at, 1).await;
            copy(&v, &mut model, 2 * at, 500 + at, 1).await;
        }
        v.deallocate(0, 200 * B).await.unwrap();
        (0..200).for_each(|at| _ = model.remove(&at));
        let churn = pool.create_volume(volume("churn", 64 * MIB)).await.unwrap();
        let mut noise = Model::new();
        scribble(&churn, &mut noise, 30_000, 1).await;
        let status = pool.status().await.unwrap();
        assert!(status.segments_reclaimed > 0, "{status:?}");
        check(&v, &model).await;
        v.deallocate(300 * B, 100 * B).await.unwrap();
        (300..400).for_each(|at| _ = model.remove(&at));
        scribble(&churn, &mut noise, 5_000, 2).await;
        check(&v, &model).await;
        let held = live(&pool).await;
        assert_eq!(held, u64::try_from(noise.len()).unwrap() + 100);
        pool.close().await.unwrap();
    });
}

/// Has all blocks moved, and gives nothing back of where they were.
async fn move_all(pool: &Pool) {
    let move_all = |shard: Rc<Shard>| async move {
        let data = |s: &&Segment| s.info.stream == Stream::User && s.live > 0;
        let ids: Vec<_> = shard.base.table().iter().filter(data).map(|s| s.info.id).collect();
        for id in ids {
            assert_eq!(shard.reclaim.empty(id).await?, Emptied::Whole);
        }
        shard.keeper.settle_reclaim().await
    };
    pool.each(move_all).await.unwrap();
}

/// Where the drives have contents that one of these versions decides.
fn places(drives: &[Arc<Drive>], versions: std::ops::Range<u64>) -> Vec<(&Arc<Region>, u64)> {
    let wanted: std::collections::BTreeSet<Vec<u8>> = versions.map(|v| block(0, v)).collect();
    let mut places = Vec::new();
    for drive in drives {
        let Drive::Memory(region) = &**drive else { panic!("a drive in memory") };
        let all = (0..region.len()).step_by(BLOCK);
        let has = |at: &u64| wanted.contains(region.bytes(*at, BLOCK).unwrap());
        places.extend(all.filter(has).map(|at| (region, at)));
    }
    places
}

/// Names were read where they were born for as long as that was not given back, and nobody watches over what nothing
/// lives in: a block that was moved could not be read once there was too much damage where it had been.
#[test]
fn what_was_moved_is_read_there_when_its_old_place_is_damaged() {
    reactor::simulate(8, async {
        let (drives, log) = (drives(6, 64 * MIB), LogSpec::Bbu(vec![pmem(8 * MIB)]));
        let (pool, v) = made(&drives, &log).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 200, 1).await;
        live(&pool).await;
        super::snapshots::take(&pool, "mon").await;
        let monday = model.clone();
        copy(&v, &mut model, 0, 300, 100).await;
        put(&v, &mut model, 100, 100, 1000).await;
        live(&pool).await;
        let old = places(&drives, 1..201);
        assert_eq!(old.len(), 200);
        move_all(&pool).await;
        // Parity of a block alone is as it is, too.
        assert!(places(&drives, 1..201).len() >= 400, "nothing was given back");
        for (region, at) in old {
            region.copy_in(at, &[0xa5; BLOCK]).unwrap();
        }
        check(&v, &model).await;
        check(&pool.snapshot("db", "mon").unwrap(), &monday).await;
        pool.close().await.unwrap();
        let pool = Pool::open(drives.clone(), log.clone(), OpenOptions::default(), &[]).await;
        let pool = pool.unwrap();
        check(&pool.volume("db").unwrap(), &model).await;
        check(&pool.snapshot("db", "mon").unwrap(), &monday).await;
        assert_eq!(pool.status().await.unwrap().lost_blocks, 0);
        pool.close().await.unwrap();
    });
}

#[test]
fn copies_of_what_reclaim_has_just_moved_outlive_a_crash() {
    let (drives, log) = (drives(6, 64 * MIB), LogSpec::Bbu(vec![pmem(8 * MIB)]));
    let model = reactor::simulate(6, {
        let (drives, log) = (drives.clone(), log.clone());
        async move {
            let (pool, v) = made(&drives, &log).await;
            let mut model = Model::new();
            put(&v, &mut model, 0, 100, 1).await;
            live(&pool).await;
            move_all(&pool).await;
            assert_eq!(pool.status().await.unwrap().moved, 100 * B);
            copy(&v, &mut model, 0, 300, 100).await;
            check(&v, &model).await;
            model
        }
    });
    reactor::simulate(7, async move {
        let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
        check(&pool.volume("db").unwrap(), &model).await;
        assert_eq!(live(&pool).await, 200);
        pool.close().await.unwrap();
    });
}
