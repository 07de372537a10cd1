//! More drives fail than the redundancy bears, and answer again: the pool is opened again, and has what it acknowledged.

use std::time::Duration;

use super::rejoin::{Rig, bbu, rig};
use reactor::join_all;

use super::*;
use crate::segment::{SegmentInfo, Stream};
use crate::segment_table::State;

/// More than what is under way at a pool's end takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Writes until it fails, as that is expected, and gives the block that may have either version.
async fn write_until_it_fails(rig: &mut Rig, seed: u64) -> (u64, u64) {
    let mut prng = Prng::new(seed);
    for version in seed * 1_000_000.. {
        let at = prng.below(rig.v.len() / BLOCK as u64);
        match rig.v.write(at * BLOCK as u64, &block(at, version)).await {
            Ok(()) => _ = rig.model.insert(at, version),
            Err(error) => {
                assert_eq!(error.kind, Kind::Failed, "{error}");
                return (at, version);
            }
        }
    }
    unreachable!("the versions are over");
}

/// Opens it again from what its drives have, once nobody uses them any more. Nothing says that it was closed.
async fn open_again(rig: Rig, options: OpenOptions) -> Rig {
    let Rig { media, drives, log, pool, v, model } = rig;
    pool.abandon().await;
    drop(v);
    let begun = reactor::now();
    while drives.iter().any(|drive| Arc::strong_count(drive) > 1) {
        reactor::sleep(Duration::from_millis(1)).await;
        assert!(Duration::from_nanos(reactor::now() - begun) < PATIENCE, "a drive is in use");
    }
    let labels = join_all(drives.iter().map(|drive| crate::area::read_label(drive))).await;
    assert!(labels.into_iter().flatten().flatten().all(|label| !label.closed));
    let opened = Pool::open(drives.clone(), log.clone(), options, &[]).await;
    let pool = opened.unwrap();
    let v = pool.volume("db").unwrap();
    Rig { media, drives, log, pool, v, model }
}

#[test]
fn a_pool_whose_drives_failed_and_answer_again_is_opened_again_and_has_everything() {
    let all: &[usize] = &[0, 1, 2, 3, 4, 5];
    let cases = [
        (raid::Scheme::Raid6, 6, all),
        (raid::Scheme::Raid6, 6, &[4, 5, 3]),
        (raid::Scheme::Raid5, 4, &[0, 1]),
        (raid::Scheme::Single, 1, &[0]),
    ];
    for (seed, (scheme, count, failing)) in (1..).zip(cases) {
        for on_drives in [true, false] {
            reactor::simulate(seed, async move {
                let log = if on_drives { LogSpec::Drives } else { bbu() };
                let mut rig = rig(count, scheme, log, 1 + u16::from(on_drives), seed).await;
                assert_eq!(rig.pool.status().await.unwrap().beyond, None);
                for round in 0..3 {
                    failing.iter().for_each(|&n| rig.media[n].fail());
                    let (at, version) = write_until_it_fails(&mut rig, seed * 10 + round).await;
                    let status = rig.pool.status().await.unwrap();
                    assert!(status.beyond.is_some(), "{status:?}");
                    // No term counts as known that no drive may have.
                    assert!(status.log.durable_term <= status.log.term);
                    let known_term = status.log.durable_term;
                    rig.media.iter().for_each(|drive| drive.revive());
                    // It does not come back by itself while it is open.
                    let again = rig.v.write(at * BLOCK as u64, &block(at, version)).await;
                    assert!(again.is_err());
                    rig = open_again(rig, OpenOptions::default()).await;
                    let status = rig.pool.status().await.unwrap();
                    assert_eq!(status.beyond, None);
                    assert!(status.log.durable_term >= known_term);
                    let mut got = vec![0; BLOCK];
                    rig.v.read(at * BLOCK as u64, &mut got).await.unwrap();
                    if got == block(at, version) {
                        rig.model.insert(at, version);
                    }
                    verify(&rig.v, &rig.model).await;
                    scribble(&rig.v, &mut rig.model, 300, seed * 100 + round).await;
                    // Those that the labels called out before are made whole.
                    for index in 0..usize64(count) {
                        super::rejoin::settled(&rig.pool, index).await;
                    }
                }
            });
        }
    }
}

/// Where the next stripe of a segment would have come one drive does not give a sector, and another drive is out. Nothing
/// says what lies there, and nothing needs it: the log has said which stripes count. The pool was not opened.
#[test]
fn what_lies_behind_the_last_stripe_need_not_be_readable() {
    for out in 0..4_u16 {
        reactor::simulate(70 + u64::from(out), async move {
            let rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 70 + u64::from(out)).await;
            let next = rig.pool.each(|shard| async move {
                shard.destage.drain().await?;
                let table = shard.base.table();
                let next = table.iter().filter(|segment| {
                    segment.state != State::Sealed && segment.info.stream != Stream::Metadata
                });
                Ok(next.map(|s| (SegmentInfo::clone(&s.info), s.stripes)).collect::<Vec<_>>())
            });
            let next: Vec<_> = next.await.unwrap().into_iter().flatten().collect();
            for (info, stripe) in next.iter().filter(|(i, stripe)| *stripe < i.geometry.stripes()) {
                let unit = usize::from(info.member(*stripe, 0).drive == out);
                let drive = usize::from(info.member(*stripe, unit).drive);
                let at = rig.offset_of(info, *stripe, unit);
                rig.media[drive].damage(at, u64::from(info.header_blocks()) * BLOCK as u64);
            }
            assert!(!next.is_empty());
            rig.media[usize::from(out)].fail();
            let rig =
                open_again(rig, OpenOptions { degraded: true, ..OpenOptions::default() }).await;
            verify(&rig.v, &rig.model).await;
        });
    }
}
