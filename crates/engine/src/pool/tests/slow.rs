//! Drives that answer, but later than the others.

use std::time::Duration;

use reactor::now;

use super::*;

const BLOCKS: u64 = 8192;

/// Drives that take 20 to 60 us, and all of a volume on them.
async fn pool_of(drives: u64, scheme: raid::Scheme) -> (Vec<Arc<Simulated>>, Pool, Volume) {
    let options = |seed| SimulatedOptions {
        capacity: 96 * MIB,
        seed,
        transfer: Duration::from_micros(20)..Duration::from_micros(60),
        ..Default::default()
    };
    let media: Vec<_> = (0..drives).map(|n| Simulated::new(options(n))).collect();
    let drives: Vec<_> = media.iter().map(|d| Arc::new(Drive::Simulated(Arc::clone(d)))).collect();
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
        for _ in 0..40 {
            reactor::sleep(Duration::from_secs(1)).await;
            pool.look_at_drives().await.unwrap();
        }
        assert!(!slow(&pool).await[3]);
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
