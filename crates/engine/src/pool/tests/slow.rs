//! Drives that answer, but later than the others.

use std::time::Duration;

use crate::DriveState;
use reactor::now;

use super::*;

const BLOCKS: u64 = 8192;

/// Drives that take 20 to 60 us.
fn drives_of(count: u64, bytes: u64) -> (Vec<Arc<Simulated>>, Vec<Arc<Drive>>) {
    let options = |seed| SimulatedOptions {
        capacity: bytes,
        seed,
        transfer: Duration::from_micros(20)..Duration::from_micros(60),
        ..Default::default()
    };
    let media: Vec<_> = (0..count).map(|n| Simulated::new(options(n))).collect();
    let drives = media.iter().map(|d| Arc::new(Drive::Simulated(Arc::clone(d)))).collect();
    (media, drives)
}

/// All of a volume on such drives.
async fn pool_of(drives: u64, scheme: raid::Scheme) -> (Vec<Arc<Simulated>>, Pool, Volume) {
    let (media, drives) = drives_of(drives, 96 * MIB);
    let spec = spec(&drives, LogSpec::Bbu(vec![pmem(8 * MIB)]));
    let pool = Pool::create(PoolSpec { scheme, au_bytes: Some(MIB), ..spec }, &[]).await.unwrap();
    let volume = pool.create_volume(volume("db", BLOCKS * BLOCK as u64)).await.unwrap();
    for at in 0..BLOCKS {
        volume.write(at * BLOCK as u64, &block(at, 0)).await.unwrap();
    }
    pool.audit_space().await.unwrap();
    (media, pool, volume)
}

/// Reads blocks here and there; what each took, the shortest first.
async fn read(volume: &Volume, count: u64) -> Vec<Duration> {
    let mut spans = Vec::new();
    let mut got = vec![0; BLOCK];
    for n in 0..count {
        let (at, begun) = (n * 2741 % BLOCKS, now());
        volume.read(at * BLOCK as u64, &mut got).await.unwrap();
        spans.push(Duration::from_nanos(now() - begun));
        assert!(got == block(at, 0), "block {at}");
    }
    spans.sort_unstable();
    spans
}

fn at(spans: &[Duration], permille: usize) -> Duration {
    spans[(spans.len() - 1) * permille / 1000]
}

async fn slow(pool: &Pool) -> Vec<bool> {
    pool.status().await.unwrap().drives.iter().map(|drive| drive.slow).collect()
}

/// One read in six took fifty times as long.
fn reads_go_around_a_slow_drive(drives: u64, scheme: raid::Scheme) {
    reactor::simulate(1, async move {
        let (media, pool, v) = pool_of(drives, scheme).await;
        let healthy = read(&v, 20_000).await;
        media[1].set_slower(50);
        // Until it is known, no read waits for longer than it is late.
        let first = read(&v, 500).await;
        assert!(at(&first, 1000) < Duration::from_millis(5), "{:?}", at(&first, 1000));
        let repaired = pool.status().await.unwrap().drives[1].counters.repaired;
        assert_eq!(repaired, 0, "what is late is not written anew");
        let sick = read(&v, 20_000).await;
        let (was, is) = (at(&healthy, 999), at(&sick, 999));
        assert!(is <= 2 * was, "p99.9 {was:?} with all, {is:?} with one slow drive");
        let mut one = vec![false; media.len()];
        one[1] = true;
        assert_eq!(slow(&pool).await, one);
        media[1].set_slower(1);
        reactor::sleep(Duration::from_secs(1)).await;
        let begun = now();
        while slow(&pool).await != vec![false; media.len()] {
            read(&v, 100).await;
            assert!(now() - begun < 10_000_000_000, "it is as fast as the others again");
        }
        let before = pool.status().await.unwrap().drives[1].counters.reads;
        read(&v, 1000).await;
        assert!(pool.status().await.unwrap().drives[1].counters.reads > before + 50);
        pool.close().await.unwrap();
    });
}

#[test]
fn reads_go_around_a_slow_drive_of_a_raid_5() {
    reads_go_around_a_slow_drive(6, raid::Scheme::Raid5);
}

#[test]
fn reads_go_around_a_slow_drive_of_a_raid_6() {
    reads_go_around_a_slow_drive(6, raid::Scheme::Raid6);
}

#[test]
fn reads_go_around_a_slow_drive_of_a_mirror() {
    reads_go_around_a_slow_drive(2, raid::Scheme::Mirror { copies: 2 });
}

/// A drive that is slow although nobody reads is found to be fast again, too.
#[test]
fn a_slow_drive_that_nobody_reads_is_asked_now_and_then() {
    reactor::simulate(2, async {
        let (media, pool, v) = pool_of(6, raid::Scheme::Raid5).await;
        media[3].set_slower(100);
        read(&v, 1000).await;
        assert!(slow(&pool).await[3]);
        media[3].set_slower(1);
        let begun = now();
        while slow(&pool).await[3] {
            reactor::sleep(Duration::from_secs(1)).await;
            pool.look_at_drives().await.unwrap();
            assert!(now() - begun < 60_000_000_000, "it is as fast as the others again");
        }
        pool.close().await.unwrap();
    });
}

/// Drives that all have too much to do get no more of it.
#[test]
fn where_all_drives_are_slow_none_is_gone_around() {
    reactor::simulate(3, async {
        let (media, pool, v) = pool_of(6, raid::Scheme::Raid5).await;
        media.iter().for_each(|drive| drive.set_slower(50));
        let asked = |pool: &Pool| {
            let pool = pool.clone();
            async move {
                let drives = pool.status().await.unwrap().drives;
                drives.iter().map(|drive| drive.counters.reads).sum::<u64>()
            }
        };
        let before = asked(&pool).await;
        read(&v, 6400).await;
        let more = asked(&pool).await - before;
        // One hedge in 32 reads costs five more, and sixteen are to be had at once.
        assert!(more < 6400 + (6400 / 32 + 16) * 6, "{more} reads for 6400");
        assert_eq!(slow(&pool).await, [false; 6]);
        pool.close().await.unwrap();
    });
}

/// A drive that takes writes late is told of; nothing else waits for it than what has to be durable.
#[test]
fn a_drive_that_is_slow_to_write_is_told_of() {
    reactor::simulate(4, async {
        let (media, pool, v) = pool_of(6, raid::Scheme::Raid5).await;
        media[2].set_slower(100);
        for n in 0..20_000 {
            let at = n * 2741 % BLOCKS;
            v.write(at * BLOCK as u64, &block(at, 0)).await.unwrap();
        }
        assert_eq!(slow(&pool).await, [false, false, true, false, false, false]);
        pool.close().await.unwrap();
    });
}

/// All that was destaged waited for the slow drive, though the others had room for it.
#[test]
fn new_segments_lie_elsewhere_than_on_a_slow_drive() {
    reactor::simulate(9, async {
        let (media, drives) = drives_of(6, 96 * MIB);
        let spec = spec(&drives[..5], LogSpec::Bbu(vec![pmem(8 * MIB)]));
        let scheme = raid::Scheme::Raid5;
        let pool =
            Pool::create(PoolSpec { scheme, au_bytes: Some(MIB), ..spec }, &[]).await.unwrap();
        pool.add_drive(Arc::clone(&drives[5]), [6; 16]).await.unwrap();
        while pool.status().await.unwrap().drives[5].state != DriveState::Online {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        let v = pool.create_volume(volume("db", BLOCKS * BLOCK as u64)).await.unwrap();
        let written = |pool: &Pool, drive: usize| {
            let pool = pool.clone();
            async move { pool.status().await.unwrap().drives[drive].counters.bytes_written }
        };
        write(&v, 2000, 1).await;
        pool.audit_space().await.unwrap();
        media[2].set_slower(100);
        let capacity = pool.status().await.unwrap().capacity;
        for round in 2..6 {
            write(&v, 2000, round).await;
            pool.look_at_drives().await.unwrap();
        }
        pool.audit_space().await.unwrap();
        assert!(slow(&pool).await[2]);
        let before = (written(&pool, 2).await, written(&pool, 3).await);
        write(&v, 4000, 6).await;
        pool.audit_space().await.unwrap();
        let data = (written(&pool, 2).await - before.0, written(&pool, 3).await - before.1);
        assert!(data.0 < MIB && data.1 > 2 * MIB, "{data:?} bytes of the slow one and another");
        assert_eq!(pool.status().await.unwrap().capacity, capacity, "it holds as much");
        media[2].set_slower(1);
        pool.close().await.unwrap();
    });
}

/// A read that went around one slow drive waited a quarter of a second for another one.
#[test]
fn two_slow_drives_of_a_raid_6_are_gone_around() {
    reactor::simulate(5, async {
        let (media, pool, v) = pool_of(6, raid::Scheme::Raid6).await;
        let healthy = read(&v, 10_000).await;
        // An answer in 0.1 to 0.3 s.
        [1, 4].into_iter().for_each(|n: usize| media[n].set_slower(5000));
        let first = read(&v, 500).await;
        // Once there are no hedges left, until both are called slow for it.
        let waited = first.iter().filter(|span| **span > Duration::from_millis(5)).count();
        assert!(waited <= 8, "{waited} reads waited");
        let sick = read(&v, 10_000).await;
        let (was, is) = (at(&healthy, 999), at(&sick, 999));
        assert!(is <= 2 * was, "p99.9 {was:?} with all, {is:?} with two slow drives");
        assert_eq!(slow(&pool).await, [false, true, false, false, true, false]);
        pool.close().await.unwrap();
    });
}

/// Writes blocks here and there; what each took, the shortest first.
async fn write(volume: &Volume, count: u64, version: u64) -> Vec<Duration> {
    let mut spans = Vec::new();
    for n in 0..count {
        let (at, begun) = (n * 2741 % BLOCKS, now());
        volume.write(at * BLOCK as u64, &block(at, version)).await.unwrap();
        spans.push(Duration::from_nanos(now() - begun));
    }
    spans.sort_unstable();
    spans
}

/// Hosts waited for the slowest drive that has the log for as long as it had it.
fn a_copy_of_the_log_moves_away(scheme: raid::Scheme, factor: u32) {
    let (media, all) = drives_of(6, 192 * MIB);
    let given = all.clone();
    let v = reactor::simulate(6, async move {
        let spec = PoolSpec { scheme, log_bytes: Some(32 * MIB), ..spec(&given, LogSpec::Drives) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", BLOCKS * BLOCK as u64)).await.unwrap();
        let fast = write(&v, 1000, 1).await;
        let drives = pool.status().await.unwrap().log.drives;
        let sick = drives[1];
        media[usize::from(sick)].set_slower(factor);
        let mut version = 1;
        let begun = now();
        while pool.status().await.unwrap().log.drives.contains(&sick) {
            version += 1;
            write(&v, 20, version).await;
            reactor::sleep(Duration::from_secs(2)).await;
            pool.look_at_drives().await.unwrap();
            assert!(now() - begun < 30_000_000_000, "the log stays on drive {sick}");
        }
        let after = write(&v, 1000, version + 1).await;
        let (was, is) = (at(&fast, 500), at(&after, 500));
        assert!(is <= 2 * was, "median {was:?} with all, {is:?} with a slow drive");
        let status = pool.status().await.unwrap();
        assert_eq!(status.log.drives.len(), drives.len());
        assert_eq!(pool.log_copies_made(), 1, "it moved once");
        version + 1
    });
    // The copy that it left is not read.
    reactor::simulate(7, async move {
        let pool = Pool::open(all, LogSpec::Drives, OpenOptions::default(), &[]).await.unwrap();
        let volume = pool.volume("db").unwrap();
        let mut got = vec![0; BLOCK];
        for n in 0..1000 {
            let at = n * 2741 % BLOCKS;
            volume.read(at * BLOCK as u64, &mut got).await.unwrap();
            assert!(got == block(at, v), "block {at}");
        }
        pool.close().await.unwrap();
    });
}

#[test]
fn a_copy_of_the_log_of_a_raid_6_moves_away_from_a_slow_drive() {
    a_copy_of_the_log_moves_away(raid::Scheme::Raid6, 100);
}

#[test]
fn a_copy_of_the_log_of_a_raid_5_moves_away_from_a_slow_drive() {
    a_copy_of_the_log_moves_away(raid::Scheme::Raid5, 100);
}

/// What keeps all drives busy is no reason to move anything, and what keeps one busy for a moment neither.
#[test]
fn a_copy_of_the_log_stays_where_no_drive_is_slower_than_the_others() {
    reactor::simulate(8, async move {
        let (media, all) = drives_of(6, 192 * MIB);
        let spec = PoolSpec { log_bytes: Some(32 * MIB), ..spec(&all, LogSpec::Drives) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", BLOCKS * BLOCK as u64)).await.unwrap();
        let drives = pool.status().await.unwrap().log.drives;
        write(&v, 1000, 1).await;
        media.iter().for_each(|drive| drive.set_slower(50));
        for round in 2..6 {
            write(&v, 20, round).await;
            pool.look_at_drives().await.unwrap();
        }
        media.iter().for_each(|drive| drive.set_slower(1));
        for round in 6..12 {
            media[usize::from(drives[0])].set_slower(100);
            write(&v, 20, round).await;
            pool.look_at_drives().await.unwrap();
            media[usize::from(drives[0])].set_slower(1);
            write(&v, 40, round).await;
            pool.look_at_drives().await.unwrap();
        }
        assert_eq!(pool.status().await.unwrap().log.drives, drives);
        assert_eq!(pool.log_copies_made(), 0);
        pool.close().await.unwrap();
    });
}
