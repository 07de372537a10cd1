//! Drives that do not answer, or fall apart, while the others have all that they have.

use std::time::Duration;

use media::{Kind as MediaKind, Operation, Refusal};
use reactor::now;

use super::*;
use crate::drives::DriveState;

const BLOCKS: u64 = 8192;

async fn raid6(log: LogSpec) -> (Vec<Arc<Simulated>>, Vec<Arc<Drive>>, Pool, Volume) {
    let (media, drives) = simulated(6, 96 * MIB, 0);
    let spec = PoolSpec { scheme: raid::Scheme::Raid6, ..spec(&drives, log) };
    let pool = Pool::create(PoolSpec { au_bytes: Some(MIB), ..spec }, &[]).await.unwrap();
    let volume = pool.create_volume(volume("db", BLOCKS * BLOCK as u64)).await.unwrap();
    for at in 0..BLOCKS {
        volume.write(at * BLOCK as u64, &block(at, 0)).await.unwrap();
    }
    pool.audit_space().await.unwrap();
    (media, drives, pool, volume)
}

async fn read(volume: &Volume, at: u64, version: u64) {
    let mut got = vec![0; BLOCK];
    volume.read(at * BLOCK as u64, &mut got).await.unwrap();
    assert!(got == block(at, version), "block {at}");
}

fn seconds_since(begun: u64) -> u64 {
    Duration::from_nanos(now() - begun).as_secs()
}

/// Writes stood still for as long as a drive has to answer, though other drives had what was in the log.
#[test]
fn a_drive_that_hangs_under_the_log_is_waited_for_no_longer_than_under_a_stripe() {
    reactor::simulate(3, async {
        let (media, drives, pool, v) = raid6(LogSpec::Drives).await;
        media[0].set_hanging(true);
        let begun = now();
        v.write(0, &block(0, 1)).await.unwrap();
        assert!(seconds_since(begun) < 15, "{} s", seconds_since(begun));
        let status = pool.status().await.unwrap();
        assert!(!status.log.drives.contains(&0), "{status:?}");
        // What the drive has of it is not read again.
        drop((v, pool));
        reactor::sleep(Duration::from_secs(60)).await;
        media[0].set_hanging(false);
        let pool = Pool::open(drives, LogSpec::Drives, OpenOptions::default(), &[]).await.unwrap();
        read(&pool.volume("db").unwrap(), 0, 1).await;
        pool.close().await.unwrap();
    });
}

/// Each of ten attempts had a patience of its own: a write took a minute, and hosts give it half of that.
#[test]
fn a_drive_that_is_told_to_try_again_without_end_under_the_log_is_waited_for_no_longer() {
    reactor::simulate(4, async {
        let (media, _, pool, v) = raid6(LogSpec::Drives).await;
        let (operation, kind) = (Some(Operation::Write), MediaKind::Passing);
        media[0].refuse(Refusal { operation, range: 0..u64::MAX, kind, times: None });
        let begun = now();
        v.write(0, &block(0, 1)).await.unwrap();
        assert!(seconds_since(begun) < 20, "{} s", seconds_since(begun));
        assert!(!pool.status().await.unwrap().log.drives.contains(&0));
        read(&v, 0, 1).await;
        media[0].refuse_nothing();
        pool.close().await.unwrap();
    });
}

/// The second one was noticed only when the labels had to tell of the first, and waited for as long again.
#[test]
fn two_drives_that_hang_at_once_are_waited_for_once() {
    reactor::simulate(5, async {
        let (media, drives, pool, v) = raid6(LogSpec::Drives).await;
        // One of them has a copy of the log, the other has none.
        assert_eq!(pool.status().await.unwrap().log.drives, [0, 1, 2]);
        [0, 5].iter().for_each(|n: &usize| media[*n].set_hanging(true));
        let begun = now();
        v.write(0, &block(0, 1)).await.unwrap();
        assert!(seconds_since(begun) < 14, "{} s", seconds_since(begun));
        let begun = now();
        pool.close().await.unwrap();
        assert!(seconds_since(begun) < 14, "{} s", seconds_since(begun));
        drop(v);
        reactor::sleep(Duration::from_secs(60)).await;
        media.iter().for_each(|drive| drive.set_hanging(false));
        let pool = Pool::open(drives, LogSpec::Drives, OpenOptions::default(), &[]).await.unwrap();
        read(&pool.volume("db").unwrap(), 0, 1).await;
        pool.close().await.unwrap();
    });
}

/// Nobody noticed until the next write, whenever that was.
#[test]
fn a_drive_of_the_log_that_is_gone_is_noticed_though_nobody_writes() {
    reactor::simulate(4, async {
        let (media, _, pool, _) = raid6(LogSpec::Drives).await;
        media[1].fail();
        pool.look_at_drives().await.unwrap();
        let status = pool.status().await.unwrap();
        assert_eq!(status.drives[1].state, DriveState::Failed);
        while pool.log_copies() != (3, 3) {
            reactor::sleep(Duration::from_millis(10)).await;
        }
        pool.close().await.unwrap();
    });
}

/// Of 170 reads 50 did not end within a minute, and writes stopped for good once the log was full.
#[test]
fn a_drive_that_hangs_does_not_stop_a_pool_that_can_do_without_it() {
    reactor::simulate(1, async {
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let (media, drives, pool, v) = raid6(log.clone()).await;
        media[2].set_hanging(true);
        let begun = now();
        for at in (0..BLOCKS).step_by(48).take(170) {
            read(&v, at, 0).await;
        }
        assert!(seconds_since(begun) < 5, "{} s", seconds_since(begun));
        let status = pool.status().await.unwrap();
        assert!(status.drives[2].counters.slow > 0);
        let begun = now();
        for at in 0..100 * MIB / BLOCK as u64 {
            v.write(at % BLOCKS * BLOCK as u64, &block(at % BLOCKS, 1 + at / BLOCKS))
                .await
                .unwrap();
        }
        assert!(seconds_since(begun) < 20, "{} s", seconds_since(begun));
        let status = pool.status().await.unwrap();
        let states: Vec<DriveState> = status.drives.iter().map(|drive| drive.state).collect();
        let gone = [DriveState::Online, DriveState::Failed];
        assert_eq!(states, [0, 0, 1, 0, 0, 0].map(|n: usize| gone[n]));
        assert!(status.drives[2].counters.timeouts > 0);
        // A second one, which RAID 6 bears too.
        media[5].set_hanging(true);
        let begun = now();
        for at in 0..20 * MIB / BLOCK as u64 {
            v.write(at * BLOCK as u64, &block(at, 7)).await.unwrap();
        }
        for at in (0..20 * MIB / BLOCK as u64).step_by(37) {
            read(&v, at, 7).await;
        }
        assert!(seconds_since(begun) < 20, "{} s", seconds_since(begun));
        pool.close().await.unwrap();
        media.iter().for_each(|drive| drive.set_hanging(false));
        let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
        let v = pool.volume("db").unwrap();
        for at in 0..20 * MIB / BLOCK as u64 {
            read(&v, at, 7).await;
        }
        pool.close().await.unwrap();
    });
}

/// What hangs all drives is not their doing: nothing is given up, and all goes on when it is over.
#[test]
fn drives_that_all_hang_for_a_while_are_all_in_use_after_it() {
    reactor::simulate(2, async {
        let (media, _, pool, v) = raid6(LogSpec::Bbu(vec![pmem(8 * MIB)])).await;
        media.iter().for_each(|drive| drive.set_hanging(true));
        let writer = reactor::spawn({
            let v = v.clone();
            async move {
                for at in 0..16 * MIB / BLOCK as u64 {
                    v.write(at % BLOCKS * BLOCK as u64, &block(at % BLOCKS, 1)).await?;
                }
                Ok::<(), crate::error::Error>(())
            }
        });
        reactor::sleep(Duration::from_secs(25)).await;
        media.iter().for_each(|drive| drive.set_hanging(false));
        writer.await.unwrap().unwrap();
        let status = pool.status().await.unwrap();
        assert!(status.drives.iter().all(|drive| drive.state == DriveState::Online));
        for at in (0..4096).step_by(31) {
            read(&v, at, 1).await;
        }
        pool.close().await.unwrap();
    });
}

/// Every error but a lack of space was a verdict, also "no memory just now".
#[test]
fn what_passes_takes_no_drive_out_of_use() {
    reactor::simulate(3, async {
        let (media, _, pool, v) = raid6(LogSpec::Bbu(vec![pmem(8 * MIB)])).await;
        let all = Refusal::all(MediaKind::Passing, 0);
        media.iter().for_each(|drive| drive.refuse(Refusal { times: None, ..all.clone() }));
        let writer = reactor::spawn({
            let v = v.clone();
            async move {
                for at in 0..16 * MIB / BLOCK as u64 {
                    v.write(at % BLOCKS * BLOCK as u64, &block(at % BLOCKS, 1)).await?;
                }
                Ok::<(), crate::error::Error>(())
            }
        });
        // Longer than any one operation is tried again.
        reactor::sleep(Duration::from_secs(20)).await;
        media.iter().for_each(|drive| drive.refuse_nothing());
        writer.await.unwrap().unwrap();
        let status = pool.status().await.unwrap();
        assert!(status.drives.iter().all(|drive| drive.state == DriveState::Online));
        for at in (0..4096).step_by(31) {
            read(&v, at, 1).await;
        }
        pool.close().await.unwrap();
    });
}

/// Thousands of read errors left a truncated drive in use, and nobody was told.
#[test]
fn a_drive_whose_medium_falls_apart_is_taken_out_of_use_while_it_can_be_spared() {
    reactor::simulate(4, async {
        let (media, _, pool, v) = raid6(LogSpec::Bbu(vec![pmem(8 * MIB)])).await;
        let refusal = Refusal {
            operation: Some(Operation::Read),
            range: 8 * MIB..96 * MIB,
            kind: MediaKind::Medium,
            times: None,
        };
        for drive in [1, 3, 4] {
            media[drive].refuse(refusal.clone());
            for at in 0..BLOCKS {
                // Too many are bad in the end, for some blocks.
                let _ = v.read(at * BLOCK as u64, &mut vec![0; BLOCK]).await;
            }
        }
        let status = pool.status().await.unwrap();
        let out = [1, 3, 4].map(|n: usize| status.drives[n].state != DriveState::Online);
        assert_eq!(out, [true, true, false], "the third cannot be spared");
        pool.close().await.unwrap();
    });
}

/// Each block that only a drive gives that hangs was waited for, as long as a deadline is: writes stood for minutes
/// behind reclaim.
#[test]
fn a_drive_out_of_use_that_hangs_is_not_waited_for_block_by_block() {
    reactor::simulate(1, async {
        let (media, _, pool, v) = raid6(LogSpec::Bbu(vec![pmem(8 * MIB)])).await;
        [2, 5].iter().for_each(|n: &usize| media[*n].set_hanging(true));
        for at in 0..20 * MIB / BLOCK as u64 {
            v.write(at * BLOCK as u64, &block(at, 7)).await.unwrap();
        }
        let status = pool.status().await.unwrap();
        assert!([2, 5].iter().all(|n: &usize| status.drives[*n].state == DriveState::Failed));
        // Beyond what the redundancy gives back.
        media[0].damage(12 * MIB, 40 * MIB);
        let (begun, mut lost) = (now(), 0);
        let mut got = vec![0; BLOCK];
        for at in 0..BLOCKS {
            lost += u32::from(v.read(at * BLOCK as u64, &mut got).await.is_err());
        }
        assert!(lost > 20, "{lost}");
        assert!(seconds_since(begun) < 60, "{} s", seconds_since(begun));
        pool.close().await.unwrap();
    });
}
