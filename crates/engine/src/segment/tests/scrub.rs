//! Stripes are checked as they lie on the drives, and put right.

use super::*;

async fn scrub(rig: &Rig) -> Scrubbed {
    let mut all = Scrubbed::default();
    for stripe in 0..rig.info.geometry.stripes() {
        let Some(found) = rig.segments.scrub(&rig.info, stripe).await.unwrap() else { continue };
        all.damaged += found.damaged;
        all.repaired += found.repaired;
        all.lost += found.lost;
    }
    all
}

/// Whatever of a stripe it is, and without anybody having read it.
#[test]
fn damage_to_data_parity_and_headers_is_found_and_put_right() {
    for (data, parity) in SHAPES.into_iter().filter(|(_, parity)| *parity > 0) {
        go(async move {
            let mut rig = Rig::new(data, parity);
            rig.write_all().await;
            assert_eq!(scrub(&rig).await, Scrubbed::default(), "nothing is found where nothing is");
            let units = data + usize::from(parity);
            let last = rig.info.geometry.unit_blocks() - 1;
            // The header, contents or parity, and the end, which may be padding; each in a stripe of its own.
            let mut damaged = 0;
            for unit in 0..units {
                for block in [0, 3, last] {
                    let stripe = damaged % rig.info.geometry.stripes();
                    if stripe == 0 && damaged > 0 {
                        break;
                    }
                    rig.damage(stripe, unit, block).await;
                    damaged += 1;
                }
            }
            let found = scrub(&rig).await;
            let damaged = u64::from(damaged);
            assert_eq!(found, Scrubbed { damaged, repaired: damaged, lost: 0 }, "{data}+{parity}");
            assert_eq!(scrub(&rig).await, Scrubbed::default(), "it is right by then");
            rig.check().await.unwrap();
        });
    }
}

/// Parity made of what is damaged would say that it is right.
#[test]
fn what_nothing_gives_is_told_and_its_parity_left_alone() {
    go(async {
        let mut rig = Rig::new(2, 1);
        rig.write_all().await;
        let kept = rig.segments.verify(&rig.info, 0).await.unwrap().unwrap();
        assert!(kept.1.is_none());
        rig.damage(0, 0, 3).await;
        rig.damage(0, 1, 3).await;
        rig.damage(0, 1, 5).await;
        let found = scrub(&rig).await;
        assert_eq!(found, Scrubbed { damaged: 3, repaired: 1, lost: 2 });
        let (_, faults) = rig.segments.verify(&rig.info, 0).await.unwrap().unwrap();
        assert_eq!(faults.parity, [3], "the row of what is lost");
    });
}

/// A pool is read by them where nothing else is left.
#[test]
fn headers_of_allocation_units_are_checked_too() {
    go(async {
        let mut rig = Rig::new(4, 2);
        rig.segments.write_member_headers(&rig.info).await.unwrap();
        rig.write(0).await.unwrap();
        let scrub = async || rig.segments.scrub_headers(&rig.info).await;
        assert_eq!(scrub().await, Scrubbed::default());
        let (set, member) = (&rig.segments.drives, rig.info.members[3]);
        let junk = reactor::buffer::alloc(BLOCK).await;
        let at = set.header_offset(member.drive, member.au);
        set.drive(member.drive).unwrap().write(at, junk, false).await.unwrap();
        assert_eq!(scrub().await, Scrubbed { damaged: 1, repaired: 1, lost: 0 });
        assert_eq!(scrub().await, Scrubbed::default());
    });
}

/// What a drive had that is out is not damage, and what is left is checked.
#[test]
fn a_segment_that_lacks_a_drive_is_checked_as_far_as_it_is_there() {
    go(async {
        let mut rig = Rig::new(4, 2);
        rig.write_all().await;
        rig.segments.drives.fail(rig.info.member(0, 1).drive, crate::drives::Cause::Operator);
        assert_eq!(scrub(&rig).await, Scrubbed::default());
        rig.damage(0, 2, 4).await;
        assert_eq!(scrub(&rig).await, Scrubbed { damaged: 1, repaired: 1, lost: 0 });
        rig.check().await.unwrap();
    });
}

/// What two drives would not give in one moment was told of as lost, and they gave it in the next.
#[test]
fn reads_that_fail_now_and_then_are_no_loss() {
    go(async {
        let drives = (0..3).map(|n| {
            let plan = FaultPlan { seed: n, read_error_ppm: 120_000, ..FaultPlan::default() };
            Some(memory().with_faults(plan))
        });
        let mut rig = Rig::over(drives.collect(), 1);
        rig.write_all().await;
        for round in 0..60 {
            rig.damage(round % rig.info.geometry.stripes(), 1, 5 + round % 50).await;
            let found = scrub(&rig).await;
            assert_eq!(found.lost, 0, "round {round}: {found:?}");
        }
        assert!(rig.total(|c| c.read_errors) > 20);
    });
}
