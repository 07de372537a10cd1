//! Reservations: space that is kept for what a volume's hosts have yet to write.

use std::time::Duration;

use super::clones::clone_of;
use super::snapshots::{check, named, put, trim};
use super::*;
use crate::Reservation;
use crate::canary::{Canary, plant};
use crate::limits::QUOTA_SETTLES;

const B: u64 = BLOCK as u64;

/// Blocks of a MiB.
const UNIT: u64 = MIB / B;

const WHOLE: Option<Reservation> = Some(Reservation::All);

fn mib(n: u64) -> Option<Reservation> {
    Some(Reservation::Bytes(n * MIB))
}

fn with_reservation(name: &str, bytes: u64, reservation: Option<Reservation>) -> VolumeSpec {
    VolumeSpec { reservation, id: [5; 16], ..volume(name, bytes) }
}

async fn made(shards: u16) -> (Vec<Arc<Drive>>, LogSpec, Pool) {
    let (drives, log) = (drives(6, 64 * MIB), LogSpec::Bbu(vec![pmem(8 * MIB)]));
    let spec = PoolSpec { shards: Some(shards), au_bytes: Some(MIB), ..spec(&drives, log.clone()) };
    let pool = Pool::create(spec, &[]).await.unwrap();
    (drives, log, pool)
}

/// Another volume that takes all the space that it gets, block by block of each shard.
async fn fill(pool: &Pool, name: &str) -> Volume {
    let bytes = pool.status().await.unwrap().capacity * 2;
    let other = VolumeSpec { id: [9; 16], ..volume(name, bytes) };
    let other = pool.create_volume(other).await.unwrap();
    fill_more(&other, 0).await;
    other
}

async fn fill_more(other: &Volume, from: u64) {
    let (mut at, mut refused) = (from, 0);
    let data = (0..16).map(|n| block(n, from)).collect::<Vec<_>>().concat();
    while at + 16 <= other.len() / B && refused < 64 {
        match other.write(at * B, &data).await {
            Ok(()) => refused = 0,
            Err(error) => {
                assert_eq!(error.kind, Kind::Full, "{error}");
                refused += 1;
            }
        }
        at += if refused > 0 { UNIT } else { 16 };
    }
}

fn kept(v: &Volume) -> u64 {
    v.reservation().unwrap().kept
}

async fn refused(setting: impl Future<Output = Result<()>>) -> String {
    let error = setting.await.unwrap_err();
    assert_eq!(error.kind, Kind::Full, "{error}");
    error.to_string()
}

fn a_reserved_volume_is_written_in_a_full_pool(shards: u16) {
    reactor::simulate(u64::from(shards), async move {
        let (drives, log, pool) = made(shards).await;
        let v = pool.create_volume(with_reservation("db", 32 * MIB, mib(24))).await.unwrap();
        assert_eq!(kept(&v), 24 * MIB);
        let mut model = Model::new();
        put(&v, &mut model, 0, 4 * UNIT, 1).await;
        let other = fill(&pool, "other").await;
        // All of it, and what is there again and again.
        for first in (4 * UNIT..24 * UNIT).step_by(256) {
            put(&v, &mut model, first, 256, first).await;
        }
        for round in 0..8 {
            put(&v, &mut model, round * 700, 256, 90_000 + round).await;
        }
        assert_eq!(kept(&v), 0);
        // What it gives back nobody else has.
        trim(&v, &mut model, 100, 5 * UNIT).await;
        assert_eq!(kept(&v), 5 * MIB);
        fill_more(&other, other.len() / B / 2).await;
        for first in (0..5 * UNIT).step_by(64) {
            put(&v, &mut model, 24 * UNIT + first, 64, first).await;
        }
        check(&v, &model).await;
        // Beyond it, it is a volume as others are.
        let more = v.write(30 * MIB, &[7; 64 * BLOCK]).await.unwrap_err();
        assert_eq!(more.kind, Kind::Full);
        let status = pool.status().await.unwrap();
        assert_eq!((status.reservations.bytes, status.reservations.missing), (24 * MIB, 0));
        trim(&v, &mut model, 0, 8 * UNIT).await;
        pool.close().await.unwrap();
        let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
        let (v, other) = (pool.volume("db").unwrap(), pool.volume("other").unwrap());
        assert_eq!(v.reservation().unwrap().of, Reservation::Bytes(24 * MIB));
        fill_more(&other, other.len() / B / 2 + 7 * UNIT).await;
        let free = 24 * UNIT - stdx::num::u64_of(model.len());
        for n in 0..free {
            put(&v, &mut model, n, 1, n).await;
        }
        check(&v, &model).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn a_reserved_volume_is_written_in_a_full_pool_of_one_shard() {
    a_reserved_volume_is_written_in_a_full_pool(1);
}

#[test]
fn a_reserved_volume_is_written_in_a_full_pool_of_three_shards() {
    a_reserved_volume_is_written_in_a_full_pool(3);
}

#[test]
fn a_reservation_is_given_changed_and_taken_away_as_far_as_there_is_space() {
    reactor::simulate(1, async {
        let (_, _, pool) = made(2).await;
        let capacity = pool.status().await.unwrap().capacity;
        let v = pool.create_volume(volume("db", 2 * capacity)).await.unwrap();
        put(&v, &mut Model::new(), 0, 4 * UNIT, 1).await;
        let too_much = 3 * capacity / MIB;
        let said = refused(pool.set_reservation("db", WHOLE)).await;
        assert!(said.contains("volume db") && said.contains("MiB free"), "{said}");
        assert_eq!(v.reservation(), None);
        for (of, wrong) in
            [(Reservation::Bytes(5), "multiple"), (Reservation::Bytes(too_much * MIB), "more than")]
        {
            let error = pool.set_reservation("db", Some(of)).await.unwrap_err();
            assert!(error.kind == Kind::Invalid && error.to_string().contains(wrong), "{error}");
        }
        // What it has already is not asked for again.
        pool.set_reservation("db", mib(capacity / MIB - 8)).await.unwrap();
        assert_eq!(kept(&v), capacity - capacity % MIB - 12 * MIB);
        let more = with_reservation("more", 64 * MIB, WHOLE);
        assert_eq!(pool.create_volume(more.clone()).await.unwrap_err().kind, Kind::Full);
        assert_eq!(
            pool.status().await.unwrap().reservations.bytes,
            capacity - capacity % MIB - 8 * MIB
        );
        pool.set_reservation("db", mib(10)).await.unwrap();
        assert_eq!(kept(&v), 6 * MIB);
        let thick = pool.create_volume(more).await.unwrap();
        assert_eq!(kept(&thick), 64 * MIB);
        // All of it, whatever its size.
        pool.resize_volume("more", 80 * MIB).await.unwrap();
        assert_eq!(kept(&thick), 80 * MIB);
        refused(pool.resize_volume("more", 2 * capacity)).await;
        assert_eq!((thick.len(), kept(&thick)), (80 * MIB, 80 * MIB));
        pool.resize_volume("more", 16 * MIB).await.unwrap();
        assert_eq!(kept(&thick), 16 * MIB);
        pool.delete_volume("more").await.unwrap();
        pool.set_reservation("db", None).await.unwrap();
        pool.set_reservation("db", None).await.unwrap();
        assert_eq!((v.reservation(), pool.status().await.unwrap().reservations.kept), (None, 0));
        let all = with_reservation("all", capacity - 8 * MIB, WHOLE);
        assert!(pool.create_volume(all).await.is_ok());
        pool.close().await.unwrap();
    });
}

#[test]
fn a_snapshot_of_a_reserved_volume_needs_room_for_all_of_it_again() {
    reactor::simulate(1, async {
        let (_, _, pool) = made(2).await;
        let v = pool.create_volume(with_reservation("db", 16 * MIB, WHOLE)).await.unwrap();
        let mut model = Model::new();
        put(&v, &mut model, 0, 10 * UNIT, 1).await;
        let other = fill(&pool, "other").await;
        let said = refused(pool.take_snapshots(vec![named("db", "mon")])).await;
        assert!(said.contains("needs 10") && said.contains("volume db"), "{said}");
        assert!(pool.snapshots("db").unwrap().is_empty());
        put(&v, &mut model, 10 * UNIT, UNIT, 5).await;
        other.deallocate(0, 40 * MIB).await.unwrap();
        pool.take_snapshots(vec![named("db", "mon")]).await.unwrap();
        let monday = model.clone();
        assert_eq!(kept(&v), 16 * MIB);
        fill_more(&other, 0).await;
        for first in (0..16 * UNIT).step_by(128) {
            put(&v, &mut model, first, 128, 77 * first).await;
        }
        check(&v, &model).await;
        check(&pool.snapshot("db", "mon").unwrap(), &monday).await;
        // All is shared again where it is rolled back.
        let back =
            RollbackSpec { volume: "db".into(), snapshot: "mon".into(), keep: None, created: 1 };
        let error = pool.rollback_volumes(vec![back.clone()]).await.unwrap_err();
        assert_eq!(error.kind, Kind::Full, "{error}");
        other.deallocate(0, 60 * MIB).await.unwrap();
        pool.rollback_volumes(vec![back]).await.unwrap();
        let v = pool.volume("db").unwrap();
        assert_eq!(kept(&v), 16 * MIB);
        fill_more(&other, 0).await;
        let mut model = monday;
        for first in (0..16 * UNIT).step_by(128) {
            put(&v, &mut model, first, 128, 99 * first).await;
        }
        check(&v, &model).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn clones_have_reservations_of_their_own_and_copies_share_nothing_reserved() {
    reactor::simulate(1, async {
        let (_, _, pool) = made(2).await;
        let v = pool.create_volume(with_reservation("db", 8 * MIB, mib(8))).await.unwrap();
        let plain = pool.create_volume(volume("plain", 8 * MIB)).await.unwrap();
        let mut model = Model::new();
        put(&v, &mut model, 0, UNIT, 1).await;
        assert!(!plain.shares_with(&v, 0, 0, MIB) && !v.shares_with(&plain, 0, 0, MIB));
        plain.copy_from(&v, 0, 0, MIB).await.unwrap();
        pool.take_snapshots(vec![named("db", "mon")]).await.unwrap();
        let spec = CloneSpec { reservation: WHOLE, ..clone_of("db", "mon", "dev") };
        let dev = pool.clone_volume(spec).await.unwrap();
        assert_eq!((kept(&v), kept(&dev)), (8 * MIB, 8 * MIB));
        fill(&pool, "other").await;
        for first in (0..8 * UNIT).step_by(128) {
            put(&dev, &mut model, first, 128, first).await;
            put(&v, &mut Model::new(), first, 128, first).await;
        }
        check(&dev, &model).await;
        pool.close().await.unwrap();
    });
}

/// What was shared before is nobody's own.
#[test]
fn what_was_copied_by_reference_before_is_kept_in_full() {
    reactor::simulate(1, async {
        let (_, _, pool) = made(2).await;
        let v = pool.create_volume(volume("db", 8 * MIB)).await.unwrap();
        let other = pool.create_volume(VolumeSpec { id: [2; 16], ..volume("o", 8 * MIB) });
        let other = other.await.unwrap();
        let mut model = Model::new();
        put(&v, &mut model, 0, 2 * UNIT, 1).await;
        assert!(pool.counted().await.unwrap());
        other.copy_from(&v, 0, 0, MIB).await.unwrap();
        pool.set_reservation("db", mib(4)).await.unwrap();
        let shared = kept(&v).checked_sub(2 * MIB).unwrap();
        assert!(shared <= MIB, "{shared}");
        fill(&pool, "fill").await;
        for first in (0..4 * UNIT).step_by(64) {
            put(&v, &mut model, first, 64, 3 * first).await;
        }
        check(&v, &model).await;
        pool.close().await.unwrap();
    });
}

/// The count that a writer of a full pool needs waits for no writer, not even for that one.
#[test]
fn a_count_of_what_is_kept_has_nobody_wait() {
    reactor::simulate(1, async {
        let (drives, log, pool) = made(1).await;
        let v = pool.create_volume(with_reservation("db", 24 * MIB, WHOLE)).await.unwrap();
        put(&v, &mut Model::new(), 0, 4 * UNIT, 1).await;
        fill(&pool, "other").await;
        pool.close().await.unwrap();
        let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
        let v = pool.volume("db").unwrap();
        assert!(!pool.status().await.unwrap().reservations.is_counted);
        let begun = reactor::now_exact();
        put(&v, &mut Model::new(), 5 * UNIT, 16, 1).await;
        let took = Duration::from_nanos(reactor::now_exact() - begun);
        assert!(took < QUOTA_SETTLES, "{took:?}");
        assert!(pool.status().await.unwrap().reservations.is_counted);
        pool.close().await.unwrap();
    });
}

/// Hosts write, give back and are snapshotted at once, beside others that take what they can: nobody of those with a
/// reservation is refused.
async fn go_at_it(pool: Pool, volumes: [Volume; 2], seed: u64) {
    let other = pool.create_volume(VolumeSpec { id: [9; 16], ..volume("o", 1 << 30) });
    let other = other.await.unwrap();
    fill_more(&other, 0).await;
    let greedy = (0..3).map(|n| {
        let other = other.clone();
        reactor::spawn(async move {
            let mut prng = Prng::new(seed * 100 + n);
            for _ in 0..800 {
                let at = prng.below((1 << 30) / B - 16);
                match prng.below(12) {
                    0 => other.deallocate(at * B, 16 * B).await,
                    _ => other.write(at * B, &block(at, n).repeat(16)).await,
                }
                .or_else(|error| if error.kind == Kind::Full { Ok(()) } else { Err(error) })
                .unwrap();
            }
        })
    });
    let greedy: Vec<_> = greedy.collect();
    let modest = volumes.into_iter().zip(0_u64..).map(|(v, n)| {
        reactor::spawn(async move {
            let mut prng = Prng::new(seed * 100 + 50 + n);
            for version in 0..500 {
                let count = 1 + prng.below(64);
                let first = prng.below(v.len() / B - count);
                match prng.below(8) {
                    0 => v.deallocate(first * B, count * B).await,
                    _ => v.write(first * B, &block(first, version).repeat(usize64(count))).await,
                }
                .unwrap_or_else(|error| panic!("{} at {first}: {error}", v.name()));
            }
        })
    });
    for task in modest.collect::<Vec<_>>().into_iter().chain(greedy) {
        task.await.unwrap();
    }
}

fn race(shards: u16, seed: u64) {
    reactor::simulate(seed, async move {
        let (_, _, pool) = made(shards).await;
        let a = pool.create_volume(with_reservation("a", 24 * MIB, WHOLE)).await.unwrap();
        let b = VolumeSpec { id: [6; 16], ..with_reservation("b", 16 * MIB, WHOLE) };
        let b = pool.create_volume(b).await.unwrap();
        go_at_it(pool.clone(), [a, b], seed).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn whoever_stays_within_a_reservation_is_never_refused() {
    for (shards, seed) in [(1, 1), (2, 2), (3, 3)] {
        race(shards, seed);
    }
}

#[test]
fn what_is_kept_no_other_volume_takes() {
    for canary in [Canary::OthersTakeReserved, Canary::TrimForgetsReserved] {
        let is_found = (1..8).any(|seed| {
            let found = std::thread::spawn(move || {
                plant(Some(canary));
                race(1, seed);
            });
            found.join().is_err()
        });
        assert!(is_found, "{canary:?} is missed");
    }
}
