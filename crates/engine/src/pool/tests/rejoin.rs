//! Drives that were away: what they missed is made anew, and they count only once all of it is.

use std::time::Duration;

use super::*;
use crate::area;
use crate::drives::{Cause, DriveState};
use crate::format::label::StaysOut;

const BLOCKS: u64 = 6144;

/// A pool of simulated drives, and what is in it.
pub(super) struct Rig {
    pub(super) media: Vec<Arc<Simulated>>,
    pub(super) drives: Vec<Arc<Drive>>,
    pub(super) log: LogSpec,
    pub(super) pool: Pool,
    pub(super) v: Volume,
    pub(super) model: Model,
}

/// Small enough that reclaim has work: twice what is written fits, or less.
pub(super) async fn rig(
    count: u64,
    scheme: raid::Scheme,
    log: LogSpec,
    shards: u16,
    seed: u64,
) -> Rig {
    let (media, drives) = simulated(count, 96 * MIB, seed * 100);
    let made = PoolSpec { scheme, au_bytes: Some(MIB), ..spec(&drives, log.clone()) };
    let pool = Pool::create(PoolSpec { shards: Some(shards), ..made }, &[]).await.unwrap();
    let v = pool.create_volume(volume("db", BLOCKS * BLOCK as u64)).await.unwrap();
    let mut model = Model::new();
    scribble(&v, &mut model, 1500, seed).await;
    Rig { media, drives, log, pool, v, model }
}

pub(super) fn bbu() -> LogSpec {
    LogSpec::Bbu(vec![pmem(8 * MIB)])
}

// Not of its status, which counts all that its segments hold: some ask each microsecond.
pub(super) fn states(pool: &Pool) -> Vec<DriveState> {
    let drives = &pool.0.common.superblock.drives;
    drives.indices().map(|index| drives.state(index)).collect()
}

/// Waits until a drive that was taken back is whole, or was given up.
pub(super) async fn settled(pool: &Pool, index: usize) -> (DriveState, Option<crate::Rejoin>) {
    loop {
        let drive = pool.status().await.unwrap().drives.swap_remove(index);
        if drive.state != DriveState::Rejoining {
            return (drive.state, drive.rejoin);
        }
        reactor::sleep(Duration::from_millis(10)).await;
    }
}

impl Rig {
    /// The drive goes, and the pool notices.
    pub(super) async fn pull(&mut self, index: usize, seed: u64) {
        self.media[index].fail();
        while states(&self.pool)[index] == DriveState::Online {
            scribble(&self.v, &mut self.model, 200, seed).await;
            self.pool.audit_space().await.unwrap();
        }
    }

    pub(super) async fn give_back(&self, index: usize) {
        self.media[index].revive();
        let back = self.pool.rejoin(Arc::clone(&self.drives[index])).await.unwrap();
        assert_eq!(usize::from(back), index);
    }

    pub(super) async fn open(&mut self, options: OpenOptions) -> Result<()> {
        let pool = Pool::open(self.drives.clone(), self.log.clone(), options, &[]).await?;
        self.v = pool.volume("db")?;
        self.pool = pool;
        Ok(())
    }
}

#[test]
fn a_drive_that_was_away_counts_once_what_it_missed_was_made_anew() {
    for (seed, scheme, count) in [(1, raid::Scheme::Raid5, 4), (2, raid::Scheme::Raid6, 6)] {
        reactor::simulate(seed, async move {
            let mut rig = rig(count, scheme, bbu(), 1, seed).await;
            let usual = rig.pool.status().await.unwrap().capacity;
            // Each once, each time another that fails when the one before is whole: nobody has all.
            for round in 0..usize64(count) {
                rig.pull(round, seed * 10 + round as u64).await;
                scribble(&rig.v, &mut rig.model, 800, seed * 20 + round as u64).await;
                verify(&rig.v, &rig.model).await;
                rig.give_back(round).await;
                let (state, rejoin) = settled(&rig.pool, round).await;
                assert_eq!(state, DriveState::Online, "{rejoin:?}");
                let rejoin = rejoin.unwrap();
                assert!(rejoin.units > 0 && rejoin.units == rejoin.done, "{rejoin:?}");
                assert_eq!((rejoin.lost, rejoin.failure), (0, None));
                assert_eq!(rig.pool.status().await.unwrap().capacity, usual);
            }
            // And as many others as the redundancy bears, at once.
            for index in 0..usize::from(count > 4) + 1 {
                rig.media[index].fail();
            }
            verify(&rig.v, &rig.model).await;
            let pool = rig.pool.clone();
            pool.close().await.unwrap();
            rig.media.iter().for_each(|drive| drive.revive());
            rig.open(OpenOptions::default()).await.unwrap();
            verify(&rig.v, &rig.model).await;
        });
    }
}

/// Everything is looked at, which takes hours where drives are large, and what it missed came when its turn was: what it
/// has gives back what others lose only once it is there.
#[test]
fn what_a_drive_missed_is_made_anew_before_the_rest_is_looked_at() {
    reactor::simulate(60, async {
        let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 60).await;
        scribble(&rig.v, &mut rig.model, 3000, 61).await;
        rig.pull(1, 62).await;
        scribble(&rig.v, &mut rig.model, 300, 63).await;
        rig.pool.audit_space().await.unwrap();
        rig.give_back(1).await;
        let mut seen = Vec::new();
        loop {
            let drive = rig.pool.status().await.unwrap().drives.swap_remove(1);
            if drive.state != DriveState::Rejoining {
                break;
            }
            let rejoin = drive.rejoin.unwrap();
            // At the end it gets what all have to have.
            if rejoin.done < rejoin.units {
                seen.push((rejoin.done, rejoin.units, drive.counters.bytes_written));
            }
            reactor::sleep(Duration::from_micros(100)).await;
        }
        let (before, whole) = (seen[0].2, seen.last().unwrap().2);
        let at_half = seen.iter().find(|(done, units, _)| done * 2 >= *units).unwrap().2;
        let anew = whole - before;
        assert!(anew > MIB, "{seen:?}");
        assert!((at_half - before) * 100 >= anew * 99, "{seen:?}");
    });
}

/// What was written while it was away was not on it, and once the drive that had it failed nobody had it.
#[test]
fn a_drive_that_is_missing_at_one_opening_is_taken_back_at_the_next() {
    reactor::simulate(3, async {
        let mut rig = rig(4, raid::Scheme::Raid5, LogSpec::Drives, 1, 3).await;
        rig.pool.clone().close().await.unwrap();
        let all = rig.drives.clone();
        let degraded = OpenOptions { degraded: true, ..OpenOptions::default() };
        for round in 0..4 {
            rig.drives = all.clone();
            rig.drives.remove(round);
            rig.open(degraded).await.unwrap();
            verify(&rig.v, &rig.model).await;
            scribble(&rig.v, &mut rig.model, 500, 30 + round as u64).await;
            rig.pool.clone().close().await.unwrap();
            // Without flags: what is lacking is known.
            rig.drives = all.clone();
            rig.open(OpenOptions::default()).await.unwrap();
            verify(&rig.v, &rig.model).await;
            while states(&rig.pool)[round] == DriveState::Missing {
                reactor::yield_now().await;
            }
            let (state, rejoin) = settled(&rig.pool, round).await;
            assert_eq!(state, DriveState::Online, "{rejoin:?}");
            rig.pool.clone().close().await.unwrap();
        }
    });
}

#[test]
fn a_rejoin_that_is_cut_short_begins_again_with_the_next_opening() {
    let mut rig = reactor::simulate(4, async {
        let mut rig = rig(6, raid::Scheme::Raid6, LogSpec::Drives, 1, 4).await;
        rig.pull(2, 40).await;
        scribble(&rig.v, &mut rig.model, 500, 41).await;
        rig
    });
    for round in 0..4 {
        rig = reactor::simulate(50 + round, async move {
            rig.media.iter().for_each(|drive| drive.revive());
            rig.open(OpenOptions::default()).await.unwrap();
            let done =
                |status: &crate::PoolStatus| status.drives[2].rejoin.as_ref().map(|r| r.done);
            while done(&rig.pool.status().await.unwrap()).is_none_or(|done| done <= 3 * round) {
                assert_ne!(states(&rig.pool)[2], DriveState::Online, "round {round}");
                scribble(&rig.v, &mut rig.model, 1, 60 + round).await;
            }
            // As it is: the process is killed.
            assert_eq!(states(&rig.pool)[2], DriveState::Rejoining);
            rig
        });
    }
    reactor::simulate(5, async move {
        rig.open(OpenOptions::default()).await.unwrap();
        while states(&rig.pool)[2] == DriveState::Missing {
            reactor::yield_now().await;
        }
        assert_eq!(settled(&rig.pool, 2).await.0, DriveState::Online);
        rig.media[0].fail();
        rig.media[5].fail();
        verify(&rig.v, &rig.model).await;
    });
}

/// Hosts write and give back all the while: segments are filled, emptied and used again under the drive that is made
/// whole, by several shards.
#[test]
fn a_drive_is_made_whole_beside_everything_that_goes_on() {
    for seed in 0..2 {
        reactor::simulate_in(seed, reactor::Order::Shuffled, async move {
            let mut rig = rig(6, raid::Scheme::Raid6, bbu(), 2, 70 + seed).await;
            for round in 0..3 {
                let away = [round, (round + 3) % 6];
                for index in away {
                    rig.pull(index, seed * 10 + 1).await;
                }
                scribble(&rig.v, &mut rig.model, 1000, seed * 10 + 2).await;
                for index in away {
                    rig.give_back(index).await;
                    while states(&rig.pool)[index] == DriveState::Rejoining {
                        scribble(&rig.v, &mut rig.model, 100, seed * 10 + round as u64 + 3).await;
                    }
                    assert_eq!(states(&rig.pool)[index], DriveState::Online);
                }
                // What the two have is needed from now on.
                for index in [1, 5].map(|n| (round + n) % 6) {
                    rig.media[index].fail();
                }
                verify(&rig.v, &rig.model).await;
                for index in [1, 5].map(|n| (round + n) % 6) {
                    rig.media[index].revive();
                    if states(&rig.pool)[index] == DriveState::Failed {
                        rig.give_back(index).await;
                        assert_eq!(settled(&rig.pool, index).await.0, DriveState::Online);
                    }
                }
            }
            let audit = rig.pool.audit_space().await.unwrap();
            assert_eq!(audit.taken, audit.owned);
            rig.pool.clone().close().await.unwrap();
            rig.open(OpenOptions::default()).await.unwrap();
            verify(&rig.v, &rig.model).await;
        });
    }
}

#[test]
fn another_drive_that_fails_meanwhile_is_borne_and_the_first_is_made_whole_all_the_same() {
    reactor::simulate(6, async {
        let mut rig = rig(6, raid::Scheme::Raid6, bbu(), 1, 6).await;
        rig.pull(1, 61).await;
        scribble(&rig.v, &mut rig.model, 500, 62).await;
        rig.give_back(1).await;
        rig.media[4].fail();
        scribble(&rig.v, &mut rig.model, 500, 63).await;
        assert_eq!(settled(&rig.pool, 1).await.0, DriveState::Online);
        verify(&rig.v, &rig.model).await;
        rig.media[0].fail();
        verify(&rig.v, &rig.model).await;
    });
}

/// It is waited for no longer than the others bear, and the pool goes on without it as before.
#[test]
fn a_drive_that_fails_or_hangs_while_it_is_made_whole_is_out_again() {
    for hangs in [false, true] {
        reactor::simulate(7, async move {
            let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 7).await;
            rig.pull(3, 71).await;
            rig.give_back(3).await;
            if hangs {
                rig.media[3].set_hanging(true)
            } else {
                rig.media[3].fail()
            }
            while states(&rig.pool)[3] != DriveState::Failed {
                scribble(&rig.v, &mut rig.model, 100, 72).await;
                reactor::sleep(Duration::from_millis(100)).await;
            }
            verify(&rig.v, &rig.model).await;
            rig.media[3].set_hanging(false);
            while rig.pool.status().await.unwrap().drives[3]
                .rejoin
                .as_ref()
                .unwrap()
                .failure
                .is_none()
            {
                reactor::sleep(Duration::from_millis(100)).await;
            }
            rig.give_back(3).await;
            assert_eq!(settled(&rig.pool, 3).await.0, DriveState::Online);
            rig.media[0].fail();
            verify(&rig.v, &rig.model).await;
        });
    }
}

/// What was there before it went is as good as ever where its checksum says so: another drive lost a part of it
/// meanwhile.
#[test]
fn what_a_drive_still_has_gives_back_what_another_lost_meanwhile() {
    reactor::simulate(8, async {
        let rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 8).await;
        rig.pool.audit_space().await.unwrap();
        rig.media[2].fail();
        while states(&rig.pool)[2] == DriveState::Online {
            verify(&rig.v, &rig.model).await;
        }
        for at in (8 * MIB..40 * MIB).step_by(256 << 10) {
            rig.media[0].damage(at, 4096);
        }
        rig.give_back(2).await;
        let (state, rejoin) = settled(&rig.pool, 2).await;
        assert_eq!((state, rejoin.unwrap().lost), (DriveState::Online, 0));
        verify(&rig.v, &rig.model).await;
    });
}

/// A sector that another drive gives no more, and nobody else has, kept the drive out for good: with one that fails next
/// the pool was lost.
#[test]
fn what_nothing_gives_does_not_keep_a_drive_out() {
    for (scheme, away) in [(raid::Scheme::Raid5, 1), (raid::Scheme::Raid6, 2)] {
        reactor::simulate(12, async move {
            let mut rig = rig(4, scheme, bbu(), 1, 12).await;
            for index in 0..away {
                rig.pull(index, 121).await;
            }
            scribble(&rig.v, &mut rig.model, 1000, 122).await;
            rig.pool.audit_space().await.unwrap();
            for at in (8 * MIB..60 * MIB).step_by(1 << 20) {
                rig.media[3].damage(at + (20 << 12), 2 << 12);
            }
            let mut told = 0;
            for index in 0..away {
                rig.give_back(index).await;
            }
            for index in 0..away {
                let (state, rejoin) = settled(&rig.pool, index).await;
                assert_eq!(state, DriveState::Online, "{:?}", rejoin.unwrap().failure);
                told += rejoin.unwrap().lost;
            }
            assert!(told > 0, "nothing gives what the other drive does not");
            let (mut lost, mut got) = (0, vec![0; BLOCK]);
            for (&at, &round) in &rig.model {
                match rig.v.read(at * BLOCK as u64, &mut got).await {
                    Ok(()) => assert!(got == block(at, round), "block {at}"),
                    Err(error) => {
                        assert_eq!(error.kind, Kind::Corrupt);
                        lost += 1;
                    }
                }
            }
            // What is not theirs to have is not looked at.
            assert!((1..=2 * told).contains(&lost), "{lost}, and {told} were told of");
        });
    }
}

#[test]
fn only_the_drive_that_was_there_is_taken_back_and_not_for_ever() {
    reactor::simulate(9, async {
        let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 9).await;
        let kind =
            async |drive: &Arc<Drive>| rig.pool.rejoin(Arc::clone(drive)).await.unwrap_err().kind;
        assert_eq!(kind(&rig.drives[0]).await, Kind::Exists);
        let (blank, others) = (drives(1, 96 * MIB), drives(4, 96 * MIB));
        assert_eq!(kind(&blank[0]).await, Kind::Missing);
        let other = PoolSpec { id: [9; 16], ..spec(&others, bbu()) };
        let other = PoolSpec { scheme: raid::Scheme::Raid5, ..other };
        Pool::create(other, &[]).await.unwrap().close().await.unwrap();
        assert_eq!(kind(&others[0]).await, Kind::Missing);
        for round in 0..crate::limits::RETURNS_MAX {
            rig.pull(1, 90 + round as u64).await;
            rig.give_back(1).await;
            assert_eq!(settled(&rig.pool, 1).await.0, DriveState::Online);
        }
        rig.pull(1, 99).await;
        rig.media[1].revive();
        let error = rig.pool.rejoin(Arc::clone(&rig.drives[1])).await.unwrap_err();
        assert_eq!(error.kind, Kind::Full, "{error}");
        verify(&rig.v, &rig.model).await;
        rig.pool.clone().close().await.unwrap();
        rig.open(OpenOptions::default()).await.unwrap();
        while states(&rig.pool)[1] == DriveState::Missing {
            reactor::yield_now().await;
        }
        assert_eq!(settled(&rig.pool, 1).await.0, DriveState::Online);
    });
}

/// A change of the catalog that was cut short may be on the drive that was away, newer than all others have.
#[test]
pub(super) fn what_a_drive_alone_has_of_catalog_and_roots_does_not_come_back_with_it() {
    reactor::simulate(10, async {
        let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 10).await;
        let area = crate::format::catalog::CatalogArea::LEAST;
        let mut newer = crate::format::catalog::Catalog::default();
        newer.generation = 1000;
        let newer = newer.to_base([7; 16]);
        area::catalog::write(&rig.drives[2], area, (1, 0), &newer).await.unwrap();
        rig.pull(2, 100).await;
        rig.give_back(2).await;
        assert_eq!(settled(&rig.pool, 2).await.0, DriveState::Online);
        rig.pool.clone().close().await.unwrap();
        rig.open(OpenOptions::default()).await.unwrap();
        verify(&rig.v, &rig.model).await;
    });
}

/// The log moved away from it. It may have it again once it is whole, and not before.
#[test]
fn a_drive_that_is_whole_again_may_have_the_log_again() {
    reactor::simulate(11, async {
        let mut rig = rig(4, raid::Scheme::Raid6, LogSpec::Drives, 1, 11).await;
        let before = rig.pool.status().await.unwrap().log.drives;
        for round in 0..6 {
            let index = usize::from(before[round % 3]);
            rig.pull(index, 110 + round as u64).await;
            rig.give_back(index).await;
            loop {
                let status = rig.pool.status().await.unwrap();
                let on_it = status.log.drives.contains(&stdx::num::u16_of(index));
                if status.drives[index].state == DriveState::Online {
                    break;
                }
                assert!(!on_it, "it is not whole");
                reactor::yield_now().await;
            }
            while rig.pool.log_copies() != (3, 3) {
                reactor::sleep(Duration::from_millis(10)).await;
            }
            verify(&rig.v, &rig.model).await;
        }
        // Both that bear it besides.
        rig.media[0].fail();
        rig.media[1].fail();
        scribble(&rig.v, &mut rig.model, 100, 119).await;
        verify(&rig.v, &rig.model).await;
    });
}

/// The label that calls a drive failed was written to the drive itself, before the one that takes it back. A process
/// killed in between left a drive that seemed to have gone on without the others, and a pool that nobody could open.
#[test]
fn a_process_killed_while_it_takes_a_drive_back_leaves_one_that_can_be_taken_back() {
    let mut rig = reactor::simulate(12, async {
        let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 12).await;
        rig.pool.clone().close().await.unwrap();
        let away = rig.drives.remove(2);
        rig.open(OpenOptions { degraded: true, ..OpenOptions::default() }).await.unwrap();
        rig.pool.clone().close().await.unwrap();
        rig.drives.insert(2, away);
        rig
    });
    let labels = |drive: &Simulated| {
        let mut slots = vec![0; 2 * BLOCK];
        drive.peek(crate::format::area::LABEL, &mut slots);
        slots
    };
    let mut rig = reactor::simulate(13, async move {
        let before = labels(&rig.media[2]);
        rig.open(OpenOptions::default()).await.unwrap();
        while labels(&rig.media[2]) == before {
            reactor::sleep(Duration::from_micros(1)).await;
        }
        rig
    });
    reactor::simulate(14, async move {
        rig.open(OpenOptions::default()).await.unwrap();
        while states(&rig.pool)[2] == DriveState::Missing {
            reactor::yield_now().await;
        }
        assert_eq!(settled(&rig.pool, 2).await.0, DriveState::Online);
        verify(&rig.v, &rig.model).await;
    });
}

/// It went on as one that is being made whole, which nobody did: what was new went there, and it was refused ever after.
#[test]
fn a_drive_of_which_no_labels_can_tell_is_taken_back_later() {
    use crate::format::area::LABEL;
    reactor::simulate(9, async {
        let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 9).await;
        rig.pull(1, 90).await;
        rig.media[1].revive();
        rig.media[0].refuse(media::Refusal {
            operation: Some(media::Operation::Write),
            range: LABEL..LABEL + 2 * BLOCK as u64,
            kind: media::Kind::Passing,
            times: None,
        });
        let refused = rig.pool.rejoin(Arc::clone(&rig.drives[1])).await.unwrap_err();
        assert_eq!(refused.kind, Kind::Busy, "{refused}");
        assert_eq!(states(&rig.pool)[1], DriveState::Failed);
        rig.media[0].refuse_nothing();
        rig.give_back(1).await;
        assert_eq!(settled(&rig.pool, 1).await.0, DriveState::Online);
        rig.media[2].fail();
        verify(&rig.v, &rig.model).await;
    });
}

/// One that fell apart was taken back five seconds later, and by every opening, over and over.
#[test]
fn a_drive_that_had_too_many_faults_stays_out_until_it_is_wanted_back() {
    reactor::simulate(17, async {
        let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 17).await;
        let drives = |rig: &Rig| rig.pool.0.common.superblock.drives.for_another();
        drives(&rig).count_corrupt(2, 1001);
        scribble(&rig.v, &mut rig.model, 100, 1).await;
        rig.pool.0.common.superblock.tell_failures().await.unwrap();
        let of = async |rig: &Rig| rig.pool.status().await.unwrap().drives[2].clone();
        let seen = of(&rig).await;
        assert_eq!((seen.state, seen.cause), (DriveState::Failed, Some(Cause::Faults(1001))));
        assert_eq!(seen.stays_out, Some(StaysOut::Faults));
        let refused = rig.pool.rejoin(Arc::clone(&rig.drives[2])).await.unwrap_err();
        assert_eq!(refused.kind, Kind::Invalid, "{refused}");
        // Once it is wanted back, labels that are written do not find it anew.
        rig.pool.let_return(2).await.unwrap();
        rig.pool.0.common.superblock.set_leaving(0).await.unwrap();
        assert_eq!(of(&rig).await.stays_out, None);
        rig.pool.keep_out(2, StaysOut::Faults).await.unwrap();
        rig.pool.clone().close().await.unwrap();
        // An opening has it with the others, and leaves it alone.
        rig.open(OpenOptions::default()).await.unwrap();
        reactor::sleep(Duration::from_secs(10)).await;
        let seen = of(&rig).await;
        assert_eq!((seen.state, seen.stays_out), (DriveState::Missing, Some(StaysOut::Faults)));
        assert_eq!((seen.cause, seen.changed), (None, None));
        rig.pool.let_return(2).await.unwrap();
        rig.give_back(2).await;
        assert_eq!(settled(&rig.pool, 2).await.0, DriveState::Online);
        assert_eq!(of(&rig).await.stays_out, None);
        rig.media[0].fail();
        verify(&rig.v, &rig.model).await;
    });
}

/// It was asked back before the labels told that it stays out: they said both then, of all drives, and the pool never opened
/// again.
#[test]
fn a_drive_that_fell_apart_just_now_is_back_or_out_and_labels_stay_readable() {
    for is_wanted in [false, true] {
        reactor::simulate(19, async move {
            let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 19).await;
            scribble(&rig.v, &mut rig.model, 100, 1).await;
            rig.pool.0.common.superblock.drives.for_another().count_corrupt(2, 1001);
            if is_wanted {
                rig.pool.let_return(2).await.unwrap();
            }
            let back = rig.pool.rejoin(Arc::clone(&rig.drives[2])).await;
            assert_eq!(back.is_ok(), is_wanted, "{back:?}");
            if is_wanted {
                assert_eq!(settled(&rig.pool, 2).await.0, DriveState::Online);
            }
            // Both slots of all labels are written.
            for _ in 0..3 {
                rig.pool.0.common.superblock.write_labels(|_| ()).await.unwrap();
            }
            rig.pool.clone().close().await.unwrap();
            rig.open(OpenOptions::default()).await.unwrap();
            let stays_out = rig.pool.status().await.unwrap().drives[2].stays_out;
            assert_eq!(stays_out.is_none(), is_wanted, "{stays_out:?}");
            verify(&rig.v, &rig.model).await;
        });
    }
}

#[test]
fn a_drive_that_is_kept_out_comes_back_once_it_is_wanted() {
    reactor::simulate(18, async {
        let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 18).await;
        let refused = rig.pool.keep_out(1, StaysOut::Returns).await.unwrap_err();
        assert!(matches!(refused.kind, Kind::Busy | Kind::Exists), "it is in use: {refused}");
        rig.pull(1, 180).await;
        rig.pool.keep_out(1, StaysOut::Returns).await.unwrap();
        rig.media[1].revive();
        let refused = rig.pool.rejoin(Arc::clone(&rig.drives[1])).await.unwrap_err();
        assert_eq!(refused.kind, Kind::Invalid, "{refused}");
        let seen = rig.pool.status().await.unwrap().drives[1].clone();
        assert!(matches!(seen.cause, Some(Cause::Failure(_))) && seen.changed.is_some());
        rig.pool.clone().close().await.unwrap();
        rig.open(OpenOptions::default()).await.unwrap();
        reactor::sleep(Duration::from_secs(10)).await;
        let seen = rig.pool.status().await.unwrap().drives[1].clone();
        assert_eq!((seen.state, seen.stays_out), (DriveState::Missing, Some(StaysOut::Returns)));
        rig.pool.let_return(1).await.unwrap();
        rig.give_back(1).await;
        assert_eq!(settled(&rig.pool, 1).await.0, DriveState::Online);
        rig.media[3].fail();
        verify(&rig.v, &rig.model).await;
    });
}
