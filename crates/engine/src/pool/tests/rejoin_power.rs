//! Power fails in the moment in which a drive that was away counts again, or was put right: it has everything, and
//! lastingly.

use std::time::Duration;

use media::Operation;
use media::drive::Refusal;

use super::rejoin::{self, Rig, bbu, rig, settled, states};
use super::*;
use crate::canary::{Step, misses};
use crate::drives::DriveState;
use crate::format::area as at;
use crate::format::catalog::CatalogArea;

const DEGRADED: OpenOptions = OpenOptions {
    degraded: true,
    import: false,
    accept_loss: false,
    unattended: false,
    known_term: 0,
    known_log: None,
    new_log: None,
};

const MIRROR: raid::Scheme = raid::Scheme::Mirror { copies: 2 };

pub(super) fn cut(rig: &Rig, seed: u64) {
    rig.media.iter().for_each(|drive| drive.power_cut(&mut Prng::new(seed)));
    rig.media.iter().for_each(|drive| drive.power_on());
}

async fn is_whole(rig: &Rig, index: usize) {
    while states(&rig.pool)[index] != DriveState::Online {
        assert_eq!(states(&rig.pool)[index], DriveState::Rejoining);
        reactor::sleep(Duration::from_micros(1)).await;
    }
}

/// The pool opens without a drive, and has everything.
fn has_all_without(mut rig: Rig, gone: usize, seed: u64) {
    rig.drives.remove(gone);
    reactor::simulate(seed, async move {
        rig.open(DEGRADED).await.unwrap();
        verify(&rig.v, &rig.model).await;
    });
}

/// A drive is away, comes back, and power fails when it counts; then another is gone.
fn comes_back(count: u64, gone: usize, seed: u64) {
    let rig = reactor::simulate(seed, async move {
        let mut rig = rig(count, MIRROR, bbu(), 1, seed).await;
        rig.pull(1, seed).await;
        scribble(&rig.v, &mut rig.model, 300, seed + 1).await;
        rig.pool.audit_space().await.unwrap();
        rig.give_back(1).await;
        is_whole(&rig, 1).await;
        cut(&rig, seed);
        rig
    });
    has_all_without(rig, gone, seed);
}

#[test]
fn half_of_a_mirror_that_was_away_is_all_it_takes() {
    (20..23).for_each(|seed| comes_back(2, 0, seed));
}

#[test]
fn the_roots_on_a_drive_that_is_whole_are_missed() {
    misses(Step::RejoinRoot, "root", half_of_a_mirror_that_was_away_is_all_it_takes);
}

#[test]
fn the_catalog_on_a_drive_that_is_whole_is_missed() {
    misses(Step::RejoinCatalog, "catalog", half_of_a_mirror_that_was_away_is_all_it_takes);
}

#[test]
fn what_was_made_anew_is_durable_before_the_drive_counts() {
    for seed in 30..36 {
        comes_back(4, [0, 2, 3][usize64(seed % 3)], seed);
    }
}

#[test]
fn the_flush_of_what_was_made_anew_is_missed() {
    misses(
        Step::RejoinFlush,
        "reconstructed",
        what_was_made_anew_is_durable_before_the_drive_counts,
    );
}

#[test]
fn the_wipe_of_a_drive_that_is_taken_back_is_missed() {
    misses(
        Step::RejoinWipe,
        "no volume",
        rejoin::what_a_drive_alone_has_of_catalog_and_roots_does_not_come_back_with_it,
    );
}

/// What came to a drive after it was made whole, and before it counted, was in its cache alone, and the log forgot it.
#[test]
fn what_comes_to_a_drive_that_is_about_to_count_is_durable_with_the_others() {
    let seed = 40;
    let rig = reactor::simulate(seed, async move {
        let mut rig = rig(2, MIRROR, bbu(), 1, seed).await;
        rig.pull(1, seed).await;
        rig.give_back(1).await;
        // The label that says it waits for space.
        let range = at::LABEL..at::LABEL + 2 * BLOCK as u64;
        let (operation, kind) = (Some(Operation::Write), media::Kind::Full);
        rig.media[0].refuse(Refusal { operation, range, kind, times: None });
        let refused = rig.media[0].counters().errors;
        while rig.media[0].counters().errors == refused {
            reactor::sleep(Duration::from_micros(10)).await;
        }
        scribble(&rig.v, &mut rig.model, 500, seed + 1).await;
        rig.pool.audit_space().await.unwrap();
        assert_eq!(states(&rig.pool)[1], DriveState::Rejoining);
        rig.media[0].refuse_nothing();
        is_whole(&rig, 1).await;
        cut(&rig, seed);
        rig
    });
    has_all_without(rig, 0, seed);
}

#[test]
fn the_flush_of_a_drive_that_is_about_to_count_is_missed() {
    misses(
        Step::RejoinFlushesToo,
        "reconstructed",
        what_comes_to_a_drive_that_is_about_to_count_is_durable_with_the_others,
    );
}

/// A stripe was on its way while a drive was taken back: begun without it, and not yet to be seen on the others.
#[test]
fn a_stripe_that_was_on_its_way_when_a_drive_came_back_is_made_anew_there() {
    // Whether one was depends on the moment.
    (53..58).for_each(on_its_way);
}

fn on_its_way(seed: u64) {
    let rig = reactor::simulate(seed, async move {
        let mut rig = rig(2, MIRROR, bbu(), 1, seed).await;
        rig.pull(1, seed).await;
        rig.pool.audit_space().await.unwrap();
        let (operation, kind) = (Some(Operation::Write), media::Kind::Full);
        rig.media[0].refuse(Refusal {
            operation,
            range: CatalogArea::LEAST.end()..u64::MAX,
            kind,
            times: None,
        });
        scribble(&rig.v, &mut rig.model, 150, seed + 1).await;
        // What the log has goes to the drives from now on.
        let pool = rig.pool.clone();
        let carrying = reactor::spawn(async move { pool.settle_space().await });
        reactor::sleep(Duration::from_millis(1)).await;
        rig.give_back(1).await;
        // As long as everything else that is made anew takes.
        reactor::sleep(Duration::from_millis(500)).await;
        rig.media[0].refuse_nothing();
        assert_eq!(settled(&rig.pool, 1).await.0, DriveState::Online);
        carrying.await.unwrap().unwrap();
        rig.pool.audit_space().await.unwrap();
        rig
    });
    has_all_without(rig, 0, seed);
}

#[test]
fn the_wait_for_stripes_before_a_drive_is_made_whole_is_missed() {
    misses(
        Step::RejoinBetween,
        "reconstructed",
        a_stripe_that_was_on_its_way_when_a_drive_came_back_is_made_anew_there,
    );
}

/// A pool that was opened anew, half of whose mirror is damaged: all of it settled.
async fn half_damaged(count: u64, seed: u64) -> Rig {
    let mut rig = rig(count, MIRROR, bbu(), 1, seed).await;
    rig.pool.clone().close().await.unwrap();
    rig.open(OpenOptions::default()).await.unwrap();
    rig.damage(0, 4000, seed);
    rig
}

/// It was in the drive's cache alone, and what was damaged was there again when the other drive had gone.
#[test]
fn what_a_scrub_put_right_stays_right() {
    for seed in 70..74 {
        let rig = reactor::simulate(seed, async move {
            let rig = half_damaged(2, seed).await;
            let found = rig.scrub().await.position;
            assert!(found.damaged > 50 && found.repaired == found.damaged, "{found:?}");
            cut(&rig, seed);
            rig
        });
        has_all_without(rig, 1, seed);
    }
}

#[test]
fn the_flush_of_what_a_scrub_put_right_is_missed() {
    misses(Step::ScrubFlush, "reconstructed", what_a_scrub_put_right_stays_right);
}

/// Of what was begun while a drive was away it had no header, which say whose its units are where nothing else does.
#[test]
fn a_drive_that_counts_again_has_the_headers_of_its_units() {
    let seed = 90;
    reactor::simulate(seed, async move {
        let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, seed).await;
        rig.pull(1, seed).await;
        scribble(&rig.v, &mut rig.model, 800, seed + 1).await;
        rig.pool.audit_space().await.unwrap();
        rig.give_back(1).await;
        is_whole(&rig, 1).await;
        let found = rig.scrub().await.position;
        assert_eq!(found.damaged, 0, "what counts is not whole: {found:?}");
    });
}

#[test]
fn the_headers_of_a_drive_that_is_whole_are_missed() {
    misses(
        Step::RejoinHeaders,
        "is not whole",
        a_drive_that_counts_again_has_the_headers_of_its_units,
    );
}

#[test]
fn what_reads_put_right_stays_right_once_the_pool_was_closed() {
    for seed in 80..84 {
        let rig = reactor::simulate(seed, async move {
            let rig = half_damaged(5, seed).await;
            rig.settle().await;
            verify(&rig.v, &rig.model).await;
            assert!(rig.pool.status().await.unwrap().drives[0].counters.repaired > 50);
            rig.pool.clone().close().await.unwrap();
            cut(&rig, seed);
            rig
        });
        reactor::simulate(seed, async move {
            let mut rig = rig;
            rig.open(OpenOptions::default()).await.unwrap();
            verify(&rig.v, &rig.model).await;
            // But for pages of the map that were in memory.
            let again = rig.pool.status().await.unwrap().drives[0].counters.reconstructed;
            assert!(again < 10, "{again} reconstructed");
        });
    }
}

#[test]
fn the_flush_of_a_pool_that_is_closed_is_missed() {
    misses(
        Step::CloseFlush,
        "reconstructed",
        what_reads_put_right_stays_right_once_the_pool_was_closed,
    );
}
