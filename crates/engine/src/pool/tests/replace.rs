//! Drives that an operator takes out and replaces: the new one counts once it has everything, the old one never again.

use super::rejoin::{Rig, bbu, rig, settled, states};
use super::*;
use crate::area;
use crate::drives::DriveState;
use crate::format::label::StaysOut;

fn simulated_drive(bytes: u64, seed: u64) -> (Arc<Simulated>, Arc<Drive>) {
    let (mut media, mut drives) = simulated(1, bytes, seed);
    (media.remove(0), drives.remove(0))
}

impl Rig {
    /// Has a new drive in a place. Gives the one that was there.
    async fn replace(&mut self, index: usize, seed: u64) -> (Arc<Simulated>, Arc<Drive>) {
        let (media, drive) = simulated_drive(96 * MIB, seed);
        let (place, id) = (stdx::num::u16_of(index), u128::from(seed).to_le_bytes());
        self.pool.replace_drive(place, Arc::clone(&drive), id).await.unwrap();
        let media = std::mem::replace(&mut self.media[index], media);
        (media, std::mem::replace(&mut self.drives[index], drive))
    }

    async fn has_whole(&self, index: usize) {
        let (state, rejoin) = settled(&self.pool, index).await;
        assert_eq!(state, DriveState::Online, "{rejoin:?}");
        assert_eq!(rejoin.unwrap().lost, 0);
    }
}

#[test]
fn every_drive_is_replaced_one_after_the_other_and_nothing_is_lost() {
    for (seed, scheme, count, log) in [
        (1, raid::Scheme::Raid5, 4, bbu()),
        (2, raid::Scheme::Raid6, 6, LogSpec::Drives),
        (3, raid::Scheme::Mirror { copies: 2 }, 2, LogSpec::Drives),
    ] {
        reactor::simulate(seed, async move {
            let mut rig = rig(count, scheme, log, 1, seed).await;
            for index in 0..usize64(count) {
                // Some are gone, others work.
                if index % 2 == 0 {
                    rig.pull(index, seed * 10 + index as u64).await;
                }
                rig.replace(index, 1000 + seed * 10 + index as u64).await;
                scribble(&rig.v, &mut rig.model, 300, seed * 20 + index as u64).await;
                rig.has_whole(index).await;
                while rig.pool.log_copies().0 != rig.pool.log_copies().1 {
                    reactor::sleep(std::time::Duration::from_millis(10)).await;
                }
                verify(&rig.v, &rig.model).await;
            }
            let audit = rig.pool.audit_space().await.unwrap();
            assert_eq!(audit.taken, audit.owned);
            rig.pool.clone().close().await.unwrap();
            rig.open(OpenOptions::default()).await.unwrap();
            assert!(states(&rig.pool).iter().all(|state| *state == DriveState::Online));
            verify(&rig.v, &rig.model).await;
        });
    }
}

/// What is on the new drive is needed, and there.
#[test]
fn a_drive_that_was_put_in_a_place_is_relied_on_once_it_is_whole() {
    reactor::simulate(4, async {
        let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 4).await;
        rig.replace(2, 40).await;
        rig.has_whole(2).await;
        rig.media[0].fail();
        verify(&rig.v, &rig.model).await;
    });
}

#[test]
fn a_drive_that_was_replaced_is_not_of_the_pool_any_more() {
    reactor::simulate(5, async {
        let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 5).await;
        rig.pull(1, 50).await;
        let (media, old) = rig.replace(1, 51).await;
        media.revive();
        rig.has_whole(1).await;
        // The new one is gone, and the old one is found in its place.
        rig.pull(1, 52).await;
        let error = rig.pool.rejoin(Arc::clone(&old)).await.unwrap_err();
        assert_eq!(error.kind, Kind::Missing);
        assert!(error.context.contains("another drive has replaced it"), "{error}");
        rig.media[1].revive();
        rig.give_back(1).await;
        rig.has_whole(1).await;
        rig.pool.clone().close().await.unwrap();
        // Given beside the new one it is left alone, and in its place it does not help.
        let new = rig.drives.clone();
        rig.drives.push(Arc::clone(&old));
        rig.open(OpenOptions::default()).await.unwrap();
        verify(&rig.v, &rig.model).await;
        rig.pool.clone().close().await.unwrap();
        rig.drives = new;
        rig.drives[1] = old;
        let error = rig.open(OpenOptions::default()).await.unwrap_err();
        assert!(error.context.contains("drive 1 was replaced by another"), "{error}");
        rig.open(OpenOptions { degraded: true, ..OpenOptions::default() }).await.unwrap();
        assert_eq!(states(&rig.pool)[1], DriveState::Missing);
        verify(&rig.v, &rig.model).await;
    });
}

/// Each of them is a mirror's half, and has all that was acknowledged to somebody.
#[test]
fn a_half_that_went_on_by_itself_after_it_was_replaced_is_refused_beside_the_others() {
    reactor::simulate(6, async {
        let mut rig = rig(2, raid::Scheme::Mirror { copies: 2 }, LogSpec::Drives, 1, 6).await;
        rig.pull(1, 60).await;
        let (media, old) = rig.replace(1, 61).await;
        rig.has_whole(1).await;
        rig.pool.clone().close().await.unwrap();
        media.revive();
        let both = std::mem::replace(&mut rig.drives, vec![Arc::clone(&old)]);
        let degraded = OpenOptions { degraded: true, ..OpenOptions::default() };
        for _ in 0..4 {
            rig.open(degraded).await.unwrap();
            rig.pool.clone().close().await.unwrap();
        }
        rig.drives = both.clone();
        rig.drives.push(old);
        let error = rig.open(degraded).await.unwrap_err();
        assert!(error.context.contains("went on by itself"), "{error}");
        rig.drives = both;
        rig.open(OpenOptions::default()).await.unwrap();
        verify(&rig.v, &rig.model).await;
    });
}

#[test]
fn what_cannot_be_put_in_a_place_is_refused_and_the_drive_there_goes_on() {
    reactor::simulate(7, async {
        let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 7).await;
        let replace = async |pool: &Pool, index: u16, drive: &Arc<Drive>| {
            pool.replace_drive(index, Arc::clone(drive), [1; 16]).await.unwrap_err()
        };
        let (_, small) = simulated_drive(90 * MIB, 70);
        let error = replace(&rig.pool, 1, &small).await;
        assert_eq!(error.kind, Kind::Invalid);
        assert!(error.context.contains("needs"), "{error}");
        let (media, new) = simulated_drive(200 * MIB, 71);
        assert_eq!(replace(&rig.pool, 4, &new).await.kind, Kind::NotFound);
        media.fail();
        assert_eq!(replace(&rig.pool, 1, &new).await.kind, Kind::Failed);
        assert!(states(&rig.pool).iter().all(|state| *state == DriveState::Online));
        media.revive();
        // Another one is lost: the one there cannot be spared.
        rig.pull(3, 72).await;
        let error = replace(&rig.pool, 1, &new).await;
        assert_eq!(error.kind, Kind::Invalid, "{error}");
        assert_eq!(states(&rig.pool)[1], DriveState::Online);
        verify(&rig.v, &rig.model).await;
        // The one that is lost can be replaced, by a larger one, too.
        let new = simulated_drive(200 * MIB, 73).1;
        rig.pool.replace_drive(3, new, [3; 16]).await.unwrap();
        rig.has_whole(3).await;
        rig.media[1].fail();
        verify(&rig.v, &rig.model).await;
    });
}

#[test]
fn a_drive_that_an_operator_takes_out_stays_out_until_it_is_wanted_back() {
    reactor::simulate(8, async {
        let mut rig = rig(4, raid::Scheme::Raid6, LogSpec::Drives, 1, 8).await;
        rig.pool.fail_drive(2).await.unwrap();
        assert_eq!(states(&rig.pool)[2], DriveState::Failed);
        let error = rig.pool.rejoin(Arc::clone(&rig.drives[2])).await.unwrap_err();
        assert!(error.context.contains("an operator took it out"), "{error}");
        scribble(&rig.v, &mut rig.model, 300, 80).await;
        rig.pool.clone().close().await.unwrap();
        // Nor does it come back with an opening.
        rig.open(OpenOptions::default()).await.unwrap();
        reactor::sleep(std::time::Duration::from_secs(5)).await;
        let drive = rig.pool.status().await.unwrap().drives.swap_remove(2);
        assert_eq!((drive.state, drive.stays_out), (DriveState::Missing, Some(StaysOut::Operator)));
        rig.pool.let_return(2).await.unwrap();
        rig.give_back(2).await;
        rig.has_whole(2).await;
        assert_eq!(rig.pool.status().await.unwrap().drives[2].stays_out, None);
        // One that failed by itself can be kept out, too.
        rig.pull(1, 81).await;
        rig.media[1].revive();
        rig.pool.fail_drive(1).await.unwrap();
        assert!(rig.pool.rejoin(Arc::clone(&rig.drives[1])).await.is_err());
        // No more than the redundancy bears.
        rig.pool.fail_drive(0).await.unwrap();
        let error = rig.pool.fail_drive(3).await.unwrap_err();
        assert_eq!(error.kind, Kind::Invalid);
        assert_eq!(rig.pool.fail_drive(9).await.unwrap_err().kind, Kind::NotFound);
        verify(&rig.v, &rig.model).await;
    });
}

/// Given up half way it is out, and is not taken back by itself.
#[test]
fn a_drive_that_is_being_made_whole_can_be_taken_out() {
    reactor::simulate(9, async {
        let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 9).await;
        rig.replace(1, 90).await;
        rig.pool.fail_drive(1).await.unwrap();
        let failure = async |pool: &Pool| {
            let drive = pool.status().await.unwrap().drives.swap_remove(1);
            (drive.state, drive.rejoin.unwrap().failure)
        };
        while failure(&rig.pool).await.1.is_none() {
            reactor::sleep(std::time::Duration::from_millis(1)).await;
        }
        assert_eq!(failure(&rig.pool).await.0, DriveState::Failed);
        verify(&rig.v, &rig.model).await;
        rig.replace(1, 91).await;
        rig.has_whole(1).await;
        rig.media[3].fail();
        verify(&rig.v, &rig.model).await;
    });
}

/// The labels have the old drive in its place, or the new one, which begins anew with the next opening or is blank.
#[test]
fn a_replacement_that_power_cuts_short_is_there_or_not() {
    let (mut with, mut without) = (0, 0);
    for round in 0..20 {
        let mut rig = reactor::simulate(100 + round, async move {
            let mut rig = rig(4, raid::Scheme::Raid5, LogSpec::Drives, 1, round).await;
            rig.pull(1, round).await;
            let (media, drive) = simulated_drive(96 * MIB, 2000 + round);
            let (pool, put) = (rig.pool.clone(), Arc::clone(&drive));
            reactor::spawn(async move {
                let _ = pool.replace_drive(1, put, u128::from(round).to_le_bytes()).await;
            });
            reactor::sleep(std::time::Duration::from_micros(80 * round)).await;
            rig.media[1] = media;
            rig.drives[1] = drive;
            rig.media.iter().for_each(|media| media.power_cut(&mut Prng::new(round)));
            rig.media.iter().for_each(|media| media.power_on());
            rig
        });
        let is_blank = reactor::simulate(200 + round, async move {
            let label = area::read_label(&rig.drives[1]).await.unwrap();
            let is_blank = label.is_err();
            let all = rig.drives.clone();
            if is_blank {
                rig.drives.remove(1);
            }
            rig.open(OpenOptions { degraded: true, ..OpenOptions::default() }).await.unwrap();
            rig.drives = all;
            match is_blank {
                true => {
                    rig.pool.replace_drive(1, Arc::clone(&rig.drives[1]), [9; 16]).await.unwrap()
                }
                false => {
                    while states(&rig.pool)[1] == DriveState::Missing {
                        reactor::yield_now().await;
                    }
                }
            }
            rig.has_whole(1).await;
            rig.media[0].fail();
            verify(&rig.v, &rig.model).await;
            is_blank
        });
        with += u32::from(!is_blank);
        without += u32::from(is_blank);
    }
    assert!(with > 3 && without > 3, "{with} and {without}");
}
