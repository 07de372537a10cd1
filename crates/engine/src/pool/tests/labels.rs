//! Drives whose labels cannot be relied on: they do not answer, fail, or take no writes.

use std::time::Duration;

use media::{Kind as MediaKind, Operation, Refusal};
use reactor::now;

use super::*;
use crate::drives::DriveState;
use crate::format::area as at;
use crate::format::catalog::CatalogArea;

async fn raid6(log: LogSpec) -> (Vec<Arc<Simulated>>, Vec<Arc<Drive>>, Model) {
    let (media, drives) = simulated(6, 96 * MIB, 0);
    let pool = PoolSpec { au_bytes: Some(MIB), ..spec(&drives, log) };
    let pool = Pool::create(pool, &[]).await.unwrap();
    let v = pool.create_volume(volume("db", 32 * MIB)).await.unwrap();
    let mut model = Model::new();
    scribble(&v, &mut model, 2000, 1).await;
    drop((v, pool));
    // As after a crash.
    reactor::sleep(Duration::from_secs(60)).await;
    (media, drives, model)
}

fn refusal(operation: Operation, kind: MediaKind, times: Option<u64>) -> Refusal {
    Refusal { operation: Some(operation), range: 0..u64::MAX, kind, times }
}

/// A drive that reads and takes no writes kept its pool from opening for ever.
#[test]
fn a_pool_opens_without_a_drive_that_only_reads() {
    for (n, flushes) in [(0, false), (5, false), (0, true), (5, true)] {
        reactor::simulate(7, async move {
            let (media, drives, model) = raid6(LogSpec::Drives).await;
            media[n].refuse(refusal(Operation::Write, MediaKind::Medium, None));
            media[n].refuse(refusal(Operation::WriteZeroes, MediaKind::Medium, None));
            if !flushes {
                media[n].refuse(refusal(Operation::Flush, MediaKind::Medium, None));
            }
            let options =
                OpenOptions { degraded: true, unattended: true, ..OpenOptions::default() };
            let pool = Pool::open(drives, LogSpec::Drives, options, &[]).await.unwrap();
            let status = pool.status().await.unwrap();
            assert_ne!(status.drives[n].state, DriveState::Online, "drive {n}");
            verify(&pool.volume("db").unwrap(), &model).await;
            pool.close().await.unwrap();
        });
    }
}

/// They were waited for one after the other, half a minute each, and then had "no label".
#[test]
fn drives_that_hang_are_found_out_side_by_side_and_named_for_what_they_do() {
    reactor::simulate(8, async {
        let (media, drives, _) = raid6(LogSpec::Bbu(vec![pmem(8 * MIB)])).await;
        [1, 4].iter().for_each(|n: &usize| media[*n].set_hanging(true));
        // It passes.
        media[0].refuse(refusal(Operation::Read, MediaKind::Medium, Some(2)));
        media[2].refuse(refusal(Operation::Read, MediaKind::Medium, None));
        media[3].refuse(refusal(Operation::Flush, MediaKind::Medium, None));
        let (begun, mut waited) = (now(), Vec::new());
        let waits = |silent: &std::collections::BTreeSet<usize>| waited.extend(silent.clone());
        let seen = look_at_labels(&drives, |label| label.pool == [7; 16], waits).await;
        assert!(now() - begun < 6_000_000_000, "{}", now() - begun);
        assert_eq!(waited, [1, 4]);
        assert!(seen[0].is_ok() && seen[5].is_ok(), "{seen:?}");
        let said = |n: usize| seen[n].as_ref().unwrap_err().to_string();
        assert!([1, 4].iter().all(|n| said(*n).starts_with("does not answer")), "{seen:?}");
        assert!(said(2).starts_with("cannot be read"), "{}", said(2));
        assert!(said(3).starts_with("does not make durable"), "{}", said(3));
        // Those of other pools are only read.
        media[3].refuse_nothing();
        media[5].refuse(refusal(Operation::Flush, MediaKind::Medium, None));
        let seen = look_at_labels(&drives[5..], |_| false, |_| ()).await;
        assert!(seen[0].is_ok(), "{seen:?}");
    });
}

fn labels(
    media: &Simulated,
) -> [std::result::Result<crate::format::label::Label, crate::format::Bad>; 2] {
    [0, 1].map(|slot| {
        let mut bytes = vec![0; BLOCK];
        media.peek(at::LABEL + slot * BLOCK as u64, &mut bytes);
        crate::format::label::Label::from_block(&bytes)
    })
}

/// Nobody noticed while the pool was open, and after a crash it could not be opened any more.
#[test]
fn labels_that_are_gone_are_written_anew_while_the_pool_is_open() {
    reactor::simulate(9, async {
        let (media, drives, model) = raid6(LogSpec::Drives).await;
        let open = || Pool::open(drives.clone(), LogSpec::Drives, OpenOptions::default(), &[]);
        let pool = open().await.unwrap();
        for n in [0, 2, 5] {
            // Labels, roots and catalog.
            media[n].poke(0, &vec![0; usize64(CatalogArea::LEAST.end())]);
        }
        pool.look_at_drives().await.unwrap();
        let status = pool.status().await.unwrap();
        let rebuilt: Vec<_> = status.drives.iter().map(|drive| drive.labels_rewritten).collect();
        assert_eq!(rebuilt, [1, 0, 1, 0, 0, 1]);
        assert!(status.drives.iter().all(|drive| drive.state == DriveState::Online));
        assert!(media.iter().all(|medium| labels(medium).iter().all(std::result::Result::is_ok)));
        pool.look_at_drives().await.unwrap();
        drop(pool);
        reactor::sleep(Duration::from_secs(60)).await;
        let pool = open().await.unwrap();
        assert!(!pool.status().await.unwrap().drives.iter().any(|d| d.state != DriveState::Online));
        verify(&pool.volume("db").unwrap(), &model).await;
        // One that carries another pool's label, and one that does not give its own.
        media[1].poke(at::LABEL, &[7; 2 * BLOCK]);
        media[4].damage(at::LABEL, 2 * BLOCK as u64);
        pool.look_at_drives().await.unwrap();
        assert_eq!([1, 4].map(|n| pool.labels_rewritten(n)), [1, 1]);
        assert!(labels(&media[1]).iter().all(std::result::Result::is_ok));
        pool.close().await.unwrap();
    });
}

/// It was online until something beyond its end was read.
#[test]
fn a_drive_that_was_cut_short_is_out_of_use() {
    reactor::simulate(10, async {
        let (media, drives, model) = raid6(LogSpec::Drives).await;
        let pool = Pool::open(drives, LogSpec::Drives, OpenOptions::default(), &[]).await.unwrap();
        media[3].set_capacity(80 * MIB);
        pool.look_at_drives().await.unwrap();
        assert_eq!(pool.status().await.unwrap().drives[3].state, DriveState::Failed);
        verify(&pool.volume("db").unwrap(), &model).await;
        pool.close().await.unwrap();
    });
}

/// Of a pool that nobody writes to, a log whose copies take no writes was noticed days later.
#[test]
fn a_copy_of_the_log_that_takes_no_writes_moves_though_nobody_writes() {
    for (operation, range) in [
        (Some(Operation::Write), 0..u64::MAX),
        (Some(Operation::Read), CatalogArea::LEAST.end()..CatalogArea::LEAST.end() + MIB),
        (None, 0..u64::MAX),
    ] {
        reactor::simulate(11, async move {
            let (media, drives, model) = raid6(LogSpec::Drives).await;
            let options = OpenOptions::default();
            let pool = Pool::open(drives, LogSpec::Drives, options, &[]).await.unwrap();
            pool.look_at_drives().await.unwrap();
            let held = pool.status().await.unwrap().log.drives;
            let refusal = Refusal { operation, range, kind: MediaKind::Medium, times: None };
            media[usize::from(held[1])].refuse(refusal);
            let begun = now();
            while pool.status().await.unwrap().log.drives.contains(&held[1]) {
                assert!(now() - begun < 15_000_000_000);
                reactor::sleep(Duration::from_secs(2)).await;
                pool.look_at_drives().await.unwrap();
            }
            while pool.log_copies() != (3, 3) {
                reactor::sleep(Duration::from_millis(10)).await;
            }
            verify(&pool.volume("db").unwrap(), &model).await;
            pool.close().await.unwrap();
        });
    }
}

/// What keeps all drives from answering is not their doing.
#[test]
fn drives_that_all_hang_are_not_called_out_by_a_look() {
    reactor::simulate(12, async {
        let (media, drives, _) = raid6(LogSpec::Drives).await;
        let pool = Pool::open(drives, LogSpec::Drives, OpenOptions::default(), &[]).await.unwrap();
        let states = async || {
            let status = pool.status().await.unwrap();
            status.drives.iter().filter(|drive| drive.state == DriveState::Online).count()
        };
        media.iter().for_each(|medium| medium.set_hanging(true));
        let looked = reactor::spawn({
            let pool = pool.clone();
            async move { pool.look_at_drives().await }
        });
        reactor::sleep(Duration::from_secs(20)).await;
        media.iter().for_each(|medium| medium.set_hanging(false));
        looked.await.unwrap().unwrap();
        assert_eq!(states().await, 6);
        media[3].set_hanging(true);
        pool.look_at_drives().await.unwrap();
        assert_eq!(states().await, 5);
        media[3].set_hanging(false);
        pool.close().await.unwrap();
    });
}
