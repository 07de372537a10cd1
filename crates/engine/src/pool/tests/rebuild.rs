//! Pools that get wider, and drives whose contents go to the others.

use std::time::Duration;

use super::rejoin::{Rig, bbu, rig, settled, states};
use super::*;
use crate::drives::DriveState;

const DEGRADED: OpenOptions = OpenOptions {
    degraded: true,
    import: false,
    accept_loss: false,
    unattended: false,
    known_term: 0,
};

impl Rig {
    /// One drive more.
    async fn add(&mut self, seed: u64) -> usize {
        let (mut media, mut drives) = simulated(1, 96 * MIB, seed);
        let id = u128::from(seed).to_le_bytes();
        let index = self.pool.add_drive(Arc::clone(&drives[0]), id).await.unwrap();
        let index = usize::from(index);
        assert_eq!(index, self.drives.len());
        self.media.append(&mut media);
        self.drives.append(&mut drives);
        let (state, rejoin) = settled(&self.pool, index).await;
        assert_eq!(state, DriveState::Online, "{rejoin:?}");
        index
    }

    async fn rebuilt(&self) {
        loop {
            let rebuild = self.pool.status().await.unwrap().rebuild.unwrap();
            if !rebuild.is_under_way {
                assert_eq!(rebuild.failure, None, "{rebuild:?}");
                return;
            }
            reactor::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn vacant(&self) -> Vec<usize> {
        let drives = self.pool.status().await.unwrap().drives;
        (0..drives.len()).filter(|index| drives[*index].vacant).collect()
    }
}

#[test]
fn a_pool_that_gets_wider_has_more_room_and_uses_it() {
    for (seed, scheme, count, shards) in [
        (1, raid::Scheme::Raid5, 4, 1),
        (2, raid::Scheme::Mirror { copies: 2 }, 2, 1),
        (3, raid::Scheme::Raid6, 4, 2),
    ] {
        reactor::simulate(seed, async move {
            let mut rig = rig(count, scheme, LogSpec::Drives, shards, seed).await;
            let before = rig.pool.status().await.unwrap().capacity;
            for n in 0..2 {
                let index = rig.add(100 * seed + n).await;
                scribble(&rig.v, &mut rig.model, 1500, seed * 10 + n).await;
                rig.pool.audit_space().await.unwrap();
                let status = rig.pool.status().await.unwrap();
                assert!(status.capacity > before, "{}", status.capacity);
                let written = status.drives[index].counters.bytes_written;
                assert!(written > MIB, "new segments use it: {written}");
                verify(&rig.v, &rig.model).await;
            }
            let audit = rig.pool.audit_space().await.unwrap();
            assert_eq!(audit.taken, audit.owned);
            rig.pool.clone().close().await.unwrap();
            rig.open(OpenOptions::default()).await.unwrap();
            verify(&rig.v, &rig.model).await;
            // One of those that came is lost like any other.
            let last = rig.media.len() - 1;
            rig.media[last].fail();
            verify(&rig.v, &rig.model).await;
        });
    }
}

#[test]
fn a_drive_that_is_lost_is_rebuilt_on_the_others_and_another_one_may_go() {
    for (seed, shards, log) in [(4, 1, bbu()), (5, 2, LogSpec::Drives), (6, 1, LogSpec::Drives)] {
        reactor::simulate(seed, async move {
            let mut rig = rig(4, raid::Scheme::Raid5, log, shards, seed).await;
            rig.add(400 + seed).await;
            scribble(&rig.v, &mut rig.model, 1500, seed).await;
            for (round, lost) in [1, 3].into_iter().enumerate() {
                rig.pull(lost, seed * 10).await;
                if round == 1 {
                    // Four are left, and a stripe is four wide.
                    let error = rig.pool.rebuild(0).await.unwrap_err();
                    assert_eq!(error.kind, Kind::Invalid, "{error}");
                    break;
                }
                rig.pool.rebuild(0).await.unwrap();
                assert_eq!(rig.pool.rebuild(0).await.unwrap_err().kind, Kind::Exists);
                scribble(&rig.v, &mut rig.model, 300, seed * 20).await;
                rig.rebuilt().await;
                assert_eq!(rig.vacant().await, [1]);
                verify(&rig.v, &rig.model).await;
            }
            // Two are out, of a RAID 5.
            verify(&rig.v, &rig.model).await;
            scribble(&rig.v, &mut rig.model, 300, seed * 30).await;
            rig.pool.clone().close().await.unwrap();
            rig.media[1].revive();
            let all = rig.drives.clone();
            rig.drives = [0, 2, 4].map(|n| Arc::clone(&all[n])).to_vec();
            rig.open(DEGRADED).await.unwrap();
            verify(&rig.v, &rig.model).await;
            // The first one comes back to its place, with nothing to be made anew.
            rig.drives = all;
            rig.media[3].revive();
            rig.give_back(3).await;
            assert_eq!(settled(&rig.pool, 3).await.0, DriveState::Online);
            rig.give_back(1).await;
            assert_eq!(settled(&rig.pool, 1).await.0, DriveState::Online);
            assert!(rig.vacant().await.is_empty());
            scribble(&rig.v, &mut rig.model, 500, seed * 40).await;
            rig.media[0].fail();
            verify(&rig.v, &rig.model).await;
        });
    }
}

#[test]
fn a_drive_that_works_is_emptied_and_then_not_of_the_pool() {
    reactor::simulate(7, async {
        let mut rig = rig(4, raid::Scheme::Raid6, LogSpec::Drives, 1, 7).await;
        assert_eq!(rig.pool.evacuate(0, 0).await.unwrap_err().kind, Kind::Invalid);
        rig.add(700).await;
        scribble(&rig.v, &mut rig.model, 500, 70).await;
        rig.pool.evacuate(0, 0).await.unwrap();
        scribble(&rig.v, &mut rig.model, 500, 71).await;
        rig.rebuilt().await;
        assert_eq!(rig.vacant().await, [0]);
        let status = rig.pool.status().await.unwrap();
        assert_eq!((status.log.failed_devices, status.log.drives.contains(&0)), (0, false));
        assert!(status.drives[0].retired);
        assert_eq!(states(&rig.pool).await[0], DriveState::Failed);
        // The others bear as much as before.
        rig.media[1].fail();
        rig.media[2].fail();
        verify(&rig.v, &rig.model).await;
        rig.media[1].revive();
        rig.media[2].revive();
        rig.pool.clone().close().await.unwrap();
        rig.open(DEGRADED).await.unwrap();
        reactor::sleep(Duration::from_secs(5)).await;
        assert_eq!(states(&rig.pool).await[0], DriveState::Missing);
        verify(&rig.v, &rig.model).await;
    });
}

/// Whatever it was at, what was acknowledged is there, and it goes on where it is asked for again.
#[test]
fn a_rebuild_that_power_cuts_short_has_lost_nothing_and_can_go_on() {
    for round in 0..12 {
        let rig = reactor::simulate(800 + round, async move {
            let mut rig = rig(4, raid::Scheme::Raid5, LogSpec::Drives, 1, 80 + round).await;
            rig.add(900 + round).await;
            scribble(&rig.v, &mut rig.model, 1000, round).await;
            rig.pull(2, round).await;
            rig.pool.rebuild(0).await.unwrap();
            let cut = round * 40;
            for _ in 0..cut {
                reactor::sleep(Duration::from_micros(500)).await;
            }
            rig.media.iter().for_each(|media| media.power_cut(&mut Prng::new(round)));
            rig.media.iter().for_each(|media| media.power_on());
            rig
        });
        reactor::simulate(850 + round, async move {
            let mut rig = rig;
            let all = rig.drives.clone();
            rig.drives.remove(2);
            rig.open(DEGRADED).await.unwrap();
            rig.drives = all;
            verify(&rig.v, &rig.model).await;
            let status = rig.pool.status().await.unwrap();
            if !status.drives[2].vacant {
                rig.pool.rebuild(0).await.unwrap();
                rig.rebuilt().await;
            }
            assert_eq!(rig.vacant().await, [2]);
            rig.media[0].fail();
            verify(&rig.v, &rig.model).await;
        });
    }
}

/// Whoever calls a place vacant that something lies on calls a pool whole that bears nothing any more.
#[test]
fn a_place_that_is_called_vacant_too_early_is_missed() {
    let ended = std::thread::spawn(|| {
        crate::canary::plant(Some(crate::canary::Canary::VacatesEarly));
        a_drive_that_is_lost_is_rebuilt_on_the_others_and_another_one_may_go();
    });
    assert!(ended.join().is_err(), "nobody misses it");
}
