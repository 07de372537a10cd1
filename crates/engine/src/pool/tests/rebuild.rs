//! Pools that get wider, and drives whose contents go to the others.

use std::time::Duration;

use super::rejoin::{Rig, bbu, rig, settled, states};
use super::*;
use crate::area;
use crate::drives::DriveState;
use crate::format::label::StaysOut;

const DEGRADED: OpenOptions = OpenOptions {
    degraded: true,
    import: false,
    accept_loss: false,
    unattended: false,
    known_term: 0,
    known_log: None,
    new_log: None,
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

/// Nobody told what waited for space that there is some: no host's write could, for they waited, too.
#[test]
fn what_waits_for_space_goes_on_once_a_drive_is_added() {
    reactor::simulate(12, async {
        let mut rig = rig(4, raid::Scheme::Mirror { copies: 2 }, bbu(), 1, 12).await;
        let pool = rig.pool.clone();
        let volume = pool.create_volume(volume("late", 96 * MIB)).await.unwrap();
        let blocks = volume.len() / BLOCK as u64;
        // All space there is is somebody's, but for that of metadata, so that nothing can be won back.
        let common = &pool.0.common;
        while common.allocator.lock().available() > common.keep_for_metadata() {
            common.allocator.lock().allocate();
        }
        let written = Rc::new(Cell::new(0_u64));
        let count = Rc::clone(&written);
        let writer = reactor::spawn(async move {
            for at in 0..blocks {
                volume.write(at * BLOCK as u64, &block(at, 1)).await.unwrap();
                count.set(at + 1);
            }
        });
        reactor::sleep(Duration::from_secs(60)).await;
        let before = written.get();
        assert!(before < blocks, "there is not enough space for all of it");
        reactor::sleep(Duration::from_secs(20)).await;
        assert_eq!(written.get(), before, "it waits");
        // A mirror needs two.
        rig.add(12).await;
        rig.add(13).await;
        reactor::timeout(Duration::from_secs(60), writer).await.expect("there is space").unwrap();
    });
}

/// Labels and drives agree on how many places there are, whatever came of the drive.
#[test]
fn a_drive_is_added_though_no_labels_could_tell_of_it_the_first_time() {
    use crate::format::area::LABEL;
    reactor::simulate(11, async {
        let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 11).await;
        // More than may be left out.
        for media in &rig.media[..2] {
            media.refuse(media::Refusal {
                operation: Some(media::Operation::Write),
                range: LABEL..LABEL + 2 * BLOCK as u64,
                kind: media::Kind::Passing,
                times: None,
            });
        }
        let (_, drives) = simulated(1, 96 * MIB, 110);
        let first = rig.pool.add_drive(Arc::clone(&drives[0]), [1; 16]).await.unwrap_err();
        assert_eq!(first.kind, Kind::Busy, "{first}");
        rig.media[..2].iter().for_each(|media| media.refuse_nothing());
        assert_eq!(states(&rig.pool)[4], DriveState::Failed);
        let labels = rig.pool.0.common.superblock.label().drives.len();
        assert_eq!(labels, rig.pool.0.common.superblock.drives.len());
        let (mut media, mut drives) = simulated(1, 96 * MIB, 111);
        rig.pool.replace_drive(4, Arc::clone(&drives[0]), [2; 16]).await.unwrap();
        rig.media.append(&mut media);
        rig.drives.append(&mut drives);
        assert_eq!(settled(&rig.pool, 4).await.0, DriveState::Online);
        scribble(&rig.v, &mut rig.model, 300, 12).await;
        rig.media[1].fail();
        verify(&rig.v, &rig.model).await;
    });
}

/// A checkpoint was being written to the drive whose place became vacant meanwhile, in a pool that bears no loss: it
/// was one too few, and the shard failed.
#[test]
fn a_checkpoint_ends_well_while_a_drive_leaves() {
    // The root is written there once the place is vacant, or never.
    for times in [Some(1), None] {
        reactor::simulate(12, take_checkpoint_beside_vacate(times));
    }
}

async fn take_checkpoint_beside_vacate(times: Option<u64>) {
    let (media, drives) = simulated(3, 256 * MIB, 12);
    let spec = PoolSpec { scheme: raid::Scheme::Single, ..spec(&drives, bbu()) };
    let pool = Pool::create(spec, &[]).await.unwrap();
    let v = pool.create_volume(volume("db", MIB)).await.unwrap();
    v.write(0, &block(0, 1)).await.unwrap();
    let superblock = &pool.0.common.superblock;
    superblock.set_leaving(0b100).await.unwrap();
    use crate::format::area::{CATALOG, ROOTS};
    media[2].refuse(media::Refusal {
        operation: Some(media::Operation::Write),
        range: ROOTS..CATALOG,
        kind: media::Kind::Passing,
        times,
    });
    let checkpoint = {
        let pool = pool.clone();
        reactor::spawn(async move { pool.audit_space().await })
    };
    while media[2].counters().errors == 0 {
        reactor::sleep(Duration::from_micros(10)).await;
    }
    superblock.vacate(2, true).await.unwrap();
    checkpoint.await.unwrap().unwrap();
    v.write(0, &block(0, 2)).await.unwrap();
    assert_eq!(superblock.beyond(), None);
}

/// Some labels called it vacant, and the next ones would: at the next opening what lay there since was lost.
#[test]
fn a_place_that_labels_may_call_vacant_takes_nothing_any_more() {
    reactor::simulate(13, async {
        let (media, drives) = simulated(3, 256 * MIB, 13);
        let spec = PoolSpec { scheme: raid::Scheme::Single, ..spec(&drives, bbu()) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let superblock = &pool.0.common.superblock;
        superblock.set_leaving(0b100).await.unwrap();
        media[0].refuse(media::Refusal {
            operation: Some(media::Operation::Write),
            range: 0..crate::format::area::ROOTS,
            kind: media::Kind::Full,
            times: None,
        });
        assert_eq!(superblock.vacate(2, true).await.unwrap_err().kind, Kind::Full);
        media[0].refuse_nothing();
        superblock.set_leaving(0).await.unwrap();
        assert!(superblock.drives.is_vacant(2) && superblock.label().drives[2].is_out());
    });
}

/// The label that called the place vacant left the log with no copy that anybody looks for.
#[test]
fn a_place_is_not_vacant_while_the_log_is_there() {
    reactor::simulate(14, async {
        let rig = rig(4, raid::Scheme::Mirror { copies: 2 }, LogSpec::Drives, 1, 14).await;
        let superblock = &rig.pool.0.common.superblock;
        let label = superblock.label();
        let has_log = label.current_members().find_map(|member| member.drive).unwrap();
        superblock.set_leaving(1 << has_log).await.unwrap();
        let refused = superblock.vacate(has_log, true).await.unwrap_err();
        assert_eq!(refused.kind, Kind::Busy, "{refused}");
        superblock.set_leaving(0).await.unwrap();
        rig.pool.evacuate(has_log, 0).await.unwrap();
        rig.rebuilt().await;
        assert_eq!(rig.vacant().await, [usize::from(has_log)]);
    });
}

/// Were it to fail at once it would be one too many, so that it did not count: it failed instead of waiting.
#[test]
fn a_drive_in_a_vacant_place_waits_while_the_pool_lacks_as_many_as_it_bears() {
    reactor::simulate(74, async {
        let mut rig = rig(6, raid::Scheme::Raid5, bbu(), 1, 74).await;
        rig.add(77).await;
        rig.pool.evacuate(1, 0).await.unwrap();
        rig.rebuilt().await;
        assert_eq!(rig.vacant().await, [1]);
        rig.pull(2, 75).await;
        rig.pool.throttle_rejoins(0, true);
        rig.give_back(2).await;
        let (_media, drives) = simulated(1, 96 * MIB, 76);
        rig.pool.replace_drive(1, Arc::clone(&drives[0]), [76; 16]).await.unwrap();
        reactor::sleep(Duration::from_mins(1)).await;
        assert_eq!(states(&rig.pool)[1..3], [DriveState::Rejoining; 2]);
        rig.pool.throttle_rejoins(0, false);
        for index in [2, 1] {
            let (state, rejoin) = settled(&rig.pool, index).await;
            assert_eq!(state, DriveState::Online, "{index}: {rejoin:?}");
        }
        verify(&rig.v, &rig.model).await;
    });
}

/// One was paused, the other waited for its turn behind it: both stayed in use for whoever wanted to replace them.
#[test]
fn drives_that_fail_while_it_is_paused_to_make_them_whole_are_taken_back_again() {
    reactor::simulate(78, async {
        let mut rig = rig(6, raid::Scheme::Raid6, bbu(), 1, 78).await;
        let both = [1, 2];
        for index in both {
            rig.pull(index, 79).await;
        }
        rig.pool.throttle_rejoins(0, true);
        for index in both {
            rig.give_back(index).await;
        }
        reactor::sleep(Duration::from_secs(5)).await;
        both.into_iter().for_each(|index| rig.media[index].fail());
        rig.pool.try_drives().await.unwrap();
        assert_eq!(states(&rig.pool)[1..3], [DriveState::Failed; 2]);
        reactor::sleep(Duration::from_secs(5)).await;
        for index in both {
            rig.media[index].revive();
            let back = rig.pool.rejoin(Arc::clone(&rig.drives[index])).await;
            let back = back.unwrap_or_else(|error| panic!("drive {index}: {error}"));
            assert_eq!(usize::from(back), index);
        }
        rig.pool.throttle_rejoins(0, false);
        for index in both {
            let (state, rejoin) = settled(&rig.pool, index).await;
            assert_eq!(state, DriveState::Online, "{index}: {rejoin:?}");
        }
        [0, 3].into_iter().for_each(|index| rig.media[index].fail());
        verify(&rig.v, &rig.model).await;
    });
}

/// What was to be moved waited for space, and whoever cancelled that kept all others from the drives.
#[test]
fn other_drives_are_not_waited_with_while_a_rebuild_is_cancelled() {
    reactor::simulate(79, async {
        let mut rig = rig(6, raid::Scheme::Raid5, bbu(), 1, 79).await;
        rig.add(81).await;
        rig.pool.evacuate(1, 0).await.unwrap();
        for media in &rig.media {
            media.refuse(media::Refusal {
                operation: Some(media::Operation::Write),
                range: crate::format::catalog::CatalogArea::LEAST.end()..u64::MAX,
                kind: media::Kind::Full,
                times: None,
            });
        }
        reactor::sleep(Duration::from_secs(1)).await;
        let pool = rig.pool.clone();
        let cancelled = reactor::spawn(async move { pool.cancel_rebuild().await });
        reactor::sleep(Duration::from_secs(1)).await;
        assert!(rig.pool.status().await.unwrap().rebuild.unwrap().is_under_way);
        let (_media, more) = simulated(1, 96 * MIB, 80);
        let add = rig.pool.add_drive(Arc::clone(&more[0]), [80; 16]);
        let added = reactor::timeout(Duration::from_secs(20), add).await;
        assert_eq!(added.expect("whoever cancels has the turn").unwrap(), 7);
        rig.media.iter().for_each(|media| media.refuse_nothing());
        cancelled.await.unwrap().unwrap();
        assert_eq!(rig.vacant().await, [] as [usize; 0]);
        verify(&rig.v, &rig.model).await;
    });
}

/// It has nothing to be made anew, and waited for hours behind one that had.
#[test]
fn a_drive_that_is_added_counts_while_another_is_made_whole() {
    reactor::simulate(70, async {
        let mut rig = rig(6, raid::Scheme::Raid6, bbu(), 1, 70).await;
        rig.pull(1, 71).await;
        rig.pool.throttle_rejoins(0, true);
        rig.give_back(1).await;
        let added = reactor::timeout(Duration::from_mins(5), rig.add(72)).await;
        assert_eq!(added.unwrap(), 6);
        assert_eq!(states(&rig.pool)[1], DriveState::Rejoining);
        // What is written now lies on it, and what the other one missed is made anew beside that.
        scribble(&rig.v, &mut rig.model, 500, 73).await;
        rig.pool.throttle_rejoins(0, false);
        let (state, rejoin) = settled(&rig.pool, 1).await;
        assert_eq!(state, DriveState::Online, "{rejoin:?}");
        [0, 2].into_iter().for_each(|index| rig.media[index].fail());
        verify(&rig.v, &rig.model).await;
    });
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
        assert_eq!(status.drives[0].stays_out, Some(StaysOut::Operator));
        assert_eq!(states(&rig.pool)[0], DriveState::Failed);
        // The others bear as much as before.
        rig.media[1].fail();
        rig.media[2].fail();
        verify(&rig.v, &rig.model).await;
        rig.media[1].revive();
        rig.media[2].revive();
        rig.pool.clone().close().await.unwrap();
        rig.open(DEGRADED).await.unwrap();
        reactor::sleep(Duration::from_secs(5)).await;
        assert_eq!(states(&rig.pool)[0], DriveState::Missing);
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

/// A drive came back to a vacant place and failed before it was whole. The place was taken for one that something lies
/// in, though labels called it vacant: segments came to lie there, and that they lacked a part was no loss to anybody.
#[test]
fn a_place_stays_vacant_whose_drive_fails_before_it_is_whole() {
    reactor::simulate(14, async {
        let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 14).await;
        rig.add(140).await;
        rig.pull(2, 14).await;
        rig.pool.rebuild(0).await.unwrap();
        rig.rebuilt().await;
        assert_eq!(rig.vacant().await, [2]);
        let superblock = &rig.pool.0.common.superblock;
        rig.media[2].revive();
        superblock.readmit(2, Arc::clone(&rig.drives[2])).await.unwrap();
        superblock.drives.fail(2, crate::drives::Cause::Operator);
        let failed = superblock.make_online(2).await.unwrap_err();
        assert_eq!(failed.kind, Kind::Failed, "{failed}");
        superblock.tell_failures().await.unwrap();
        assert!(superblock.drives.is_vacant(2));
        assert_eq!(rig.vacant().await, [2]);
        scribble(&rig.v, &mut rig.model, 1000, 15).await;
        rig.media[0].fail();
        verify(&rig.v, &rig.model).await;
    });
}

/// Labels were to say that a drive in a vacant place is whole, and it failed on them, when as many others were gone as
/// the pool bears: it counted as one more of them, and the pool stood still. Nothing lies there yet.
#[test]
fn a_drive_that_fails_on_the_labels_that_call_it_whole_is_no_loss() {
    reactor::simulate(16, async {
        let mut rig = rig(4, raid::Scheme::Raid6, bbu(), 1, 16).await;
        rig.add(160).await;
        scribble(&rig.v, &mut rig.model, 500, 16).await;
        rig.pull(2, 16).await;
        rig.pool.rebuild(0).await.unwrap();
        rig.rebuilt().await;
        assert_eq!(rig.vacant().await, [2]);
        rig.pull(1, 17).await;
        let superblock = &rig.pool.0.common.superblock;
        rig.media[2].revive();
        superblock.readmit(2, Arc::clone(&rig.drives[2])).await.unwrap();
        // The same labels are the first to say that this one is gone.
        rig.media[0].fail();
        superblock.drives.fail(0, crate::drives::Cause::Operator);
        rig.media[2].fail();
        let failed = superblock.make_online(2).await.unwrap_err();
        assert_eq!(failed.kind, Kind::Failed, "{failed}");
        superblock.tell_failures().await.unwrap();
        assert_eq!(superblock.beyond(), None);
        assert_eq!(rig.vacant().await, [2]);
        scribble(&rig.v, &mut rig.model, 500, 18).await;
        verify(&rig.v, &rig.model).await;
        // So do those say that open it later.
        rig.pool.clone().close().await.unwrap();
        let all = rig.drives.clone();
        rig.drives = all[3..].to_vec();
        rig.open(DEGRADED).await.unwrap();
        rig.drives = all;
        assert_eq!(rig.vacant().await, [2]);
        verify(&rig.v, &rig.model).await;
    });
}

/// Labels that told of a new place went where the newest ones were: power that failed meanwhile left those before, or
/// none, and with them what had failed was forgotten.
#[test]
fn a_widening_that_power_cuts_short_forgets_no_failure() {
    let (mut with, mut without) = (0, 0);
    for round in 0..20 {
        let rig = reactor::simulate(300 + round, async move {
            let mut rig = rig(5, raid::Scheme::Raid6, bbu(), 1, round).await;
            rig.pull(2, round).await;
            let (mut media, mut drives) = simulated(1, 96 * MIB, 3000 + round);
            let (pool, added) = (rig.pool.clone(), Arc::clone(&drives[0]));
            reactor::spawn(async move {
                let _ = pool.add_drive(added, u128::from(round).to_le_bytes()).await;
            });
            rig.media.append(&mut media);
            rig.drives.append(&mut drives);
            while rig.media[5].counters().writes == 0 {
                reactor::sleep(Duration::from_micros(1)).await;
            }
            reactor::sleep(Duration::from_micros(30 * round)).await;
            scribble(&rig.v, &mut rig.model, 10, round).await;
            rig.media.iter().for_each(|media| media.power_cut(&mut Prng::new(round)));
            rig.media.iter().for_each(|media| media.power_on());
            rig.media[2].revive();
            rig
        });
        let places = reactor::simulate(350 + round, async move {
            let mut rig = rig;
            let all = rig.drives.clone();
            if area::read_label(&rig.drives[5]).await.unwrap().is_err() {
                rig.drives.truncate(5);
            }
            rig.open(DEGRADED).await.unwrap();
            rig.drives = all;
            let before = rig.pool.0.common.superblock.drives.state(2);
            assert_ne!(before, DriveState::Online, "what it missed is forgotten");
            while states(&rig.pool)[2] == DriveState::Missing {
                reactor::yield_now().await;
            }
            assert_eq!(settled(&rig.pool, 2).await.0, DriveState::Online);
            rig.media[0].fail();
            rig.media[1].fail();
            verify(&rig.v, &rig.model).await;
            states(&rig.pool).len()
        });
        *(if places == 6 { &mut with } else { &mut without }) += 1;
    }
    assert!(with > 0 && without > 0, "{with} with it, {without} without");
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
