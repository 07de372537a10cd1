//! Drives whose labels cannot be relied on: they do not answer, fail, or take no writes.

use std::time::Duration;

use media::{Kind as MediaKind, Operation, Refusal};
use reactor::now;

use super::*;
use crate::segment::DriveState;

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
