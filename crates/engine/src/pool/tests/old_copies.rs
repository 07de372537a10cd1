//! Drives with older contents than the pool has: copies of earlier lives, and drives that missed a label.

use std::time::Duration;

use media::{Kind as MediaKind, Operation, Refusal};
use reactor::now;

use super::*;
use crate::area::{read_label, write_label};
use crate::canary::{Step, misses};
use crate::drives::DriveState;
use crate::format::area as at;
use crate::format::label::DriveMark;

const DEGRADED: OpenOptions = OpenOptions {
    degraded: true,
    import: false,
    accept_loss: false,
    unattended: false,
    known_term: 0,
    known_log: None,
    new_log: None,
};

async fn create(drives: &[Arc<Drive>], log: &LogSpec) -> (Pool, Volume) {
    let pool = Pool::create(spec(drives, log.clone()), &[]).await.unwrap();
    let volume = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
    (pool, volume)
}

async fn open(drives: &[Arc<Drive>], log: &LogSpec, options: OpenOptions) -> Result<Pool> {
    Pool::open(drives.to_vec(), log.clone(), options, &[]).await
}

async fn epochs(drives: &[Arc<Drive>]) -> Vec<u64> {
    let mut epochs = Vec::new();
    for drive in drives {
        epochs.push(read_label(drive).await.unwrap().unwrap().epoch);
    }
    epochs
}

/// The labels said that the drive is one of those in use, and nobody looked how old its own was: what the pool had
/// written since was read from it, or made of it.
#[test]
pub(super) fn a_copy_from_before_a_life_is_not_a_drive_of_the_pool() {
    for closed in [false, true] {
        let (media, all) = simulated(6, 128 * MIB, 0);
        let log = LogSpec::Drives;
        let (drives, l) = (all.clone(), log.clone());
        // The life that the copy is from.
        let mut model = reactor::simulate(1, async move {
            let (pool, v) = create(&drives, &l).await;
            let mut model = Model::new();
            scribble(&v, &mut model, 500, 1).await;
            if closed {
                pool.close().await.unwrap();
            }
            model
        });
        let copy = media[0].contents();
        // The one it misses.
        let (drives, l) = (all.clone(), log.clone());
        let model = reactor::simulate(2, async move {
            let pool = open(&drives, &l, OpenOptions::default()).await.unwrap();
            let v = pool.volume("db").unwrap();
            scribble(&v, &mut model, 500, 2).await;
            if closed {
                pool.close().await.unwrap();
            }
            model
        });
        media[0].restore(&copy);
        reactor::simulate(3, async move {
            let refused = open(&all, &log, OpenOptions::default()).await.err().unwrap();
            assert_eq!(refused.kind, Kind::Missing, "{refused}");
            assert!(refused.to_string().contains("old copy"), "{refused}");
            let pool = open(&all, &log, DEGRADED).await.unwrap();
            assert_eq!(pool.status().await.unwrap().drives[0].state, DriveState::Missing);
            verify(&pool.volume("db").unwrap(), &model).await;
            pool.close().await.unwrap();
        });
    }
}

/// Power fails while labels are written, again and again: each opening finds some with one and some with the one before.
#[test]
fn drives_that_missed_a_label_get_it_before_there_is_another() {
    let (media, all) = simulated(6, 128 * MIB, 0);
    let log = LogSpec::Drives;
    reactor::simulate(1, async move {
        let (pool, v) = create(&all, &log).await;
        let mut model = Model::new();
        scribble(&v, &mut model, 500, 1).await;
        pool.close().await.unwrap();
        let labels = |drive: &Simulated| {
            let mut bytes = vec![0; 2 * BLOCK];
            drive.peek(at::LABEL, &mut bytes);
            bytes
        };
        for cut in 0..4 {
            let before: Vec<_> = media.iter().map(|drive| labels(drive)).collect();
            let newest = epochs(&all).await[0];
            // One drive takes no labels any more after the others have the first of an opening.
            let slot = at::LABEL + (newest + 1) % 2 * BLOCK as u64;
            let late = &media[cut];
            let (operation, kind) = (Some(Operation::Write), MediaKind::Full);
            let range = slot..slot + BLOCK as u64;
            late.refuse(Refusal { operation, range, kind, times: None });
            let refused = open(&all, &log, OpenOptions::default()).await.err().unwrap();
            assert_eq!(refused.kind, Kind::Full, "{refused}");
            late.refuse_nothing();
            let mut wanted = vec![newest + 1; all.len()];
            wanted[cut] = newest;
            assert_eq!(epochs(&all).await, wanted);
            assert!(labels(late) == before[cut]);
            let pool = open(&all, &log, OpenOptions::default()).await.unwrap();
            verify(&pool.volume("db").unwrap(), &model).await;
            let now = epochs(&all).await;
            assert!(now.iter().all(|epoch| *epoch == now[0] && *epoch >= newest + 3), "{now:?}");
            pool.close().await.unwrap();
        }
    });
}

/// A drive had no means for a label, nor for the next: two behind the others, it looked like a copy from before their life.
#[test]
fn a_drive_is_never_further_behind_than_a_crash_leaves_it() {
    let (media, all) = simulated(6, 128 * MIB, 0);
    let given = all.clone();
    reactor::simulate(1, async move {
        let (pool, v) = create(&given, &LogSpec::Drives).await;
        scribble(&v, &mut Model::new(), 100, 1).await;
        let range = at::LABEL..at::LABEL + 2 * BLOCK as u64;
        let (operation, kind) = (Some(Operation::Write), MediaKind::Full);
        media[5].refuse(Refusal { operation, range, kind, times: None });
        for _ in 0..3 {
            let written = pool.0.common.superblock.write_labels(|_| ()).await;
            assert_eq!(written.unwrap_err().kind, Kind::Full);
        }
        media[5].refuse_nothing();
    });
    reactor::simulate(2, async move {
        let pool = open(&all, &LogSpec::Drives, OpenOptions::default()).await.unwrap();
        let state = pool.status().await.unwrap().drives[5].state;
        assert_eq!(state, DriveState::Online, "the drive is taken for an old copy");
    });
}

#[test]
fn labels_that_drives_missed_and_get_first_are_missed() {
    let story = a_drive_is_never_further_behind_than_a_crash_leaves_it;
    misses(Step::LabelsCatchUp, "", story);
}

/// Labels were refused for good, and a flush was tried for ever.
#[test]
fn a_drive_that_never_has_the_means_does_not_stop_the_others() {
    for operation in [Operation::Write, Operation::Flush] {
        reactor::simulate(1, async move {
            let (media, drives) = simulated(6, 128 * MIB, 0);
            let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
            let (pool, v) = create(&drives, &log).await;
            let mut model = Model::new();
            scribble(&v, &mut model, 500, 1).await;
            let (range, kind) = (0..u64::MAX, MediaKind::Passing);
            media[3].refuse(Refusal { operation: Some(operation), range, kind, times: None });
            let begun = now();
            scribble(&v, &mut model, 5000, 2).await;
            pool.audit_space().await.unwrap();
            pool.create_volume(self::volume("more", MIB)).await.unwrap();
            let taken = Duration::from_nanos(now() - begun);
            assert!(taken < Duration::from_secs(60), "{taken:?}");
            assert_eq!(pool.status().await.unwrap().drives[3].state, DriveState::Failed);
            verify(&v, &model).await;
            pool.close().await.unwrap();
        });
    }
}

/// A drive file that was cut to half was "online" for as long as nobody read what was behind its end.
#[test]
fn a_drive_that_is_shorter_than_its_label_says_is_missing() {
    let (media, mut drives) = simulated(4, 96 * MIB, 0);
    let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
    let spec = spec(&drives, log.clone());
    let model = reactor::simulate(1, async move {
        let pool = Pool::create(spec, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
        let mut model = Model::new();
        scribble(&v, &mut model, 200, 1).await;
        pool.close().await.unwrap();
        model
    });
    let half = SimulatedOptions { capacity: 48 * MIB, seed: 1, ..Default::default() };
    let half = Simulated::new(half);
    half.restore(&media[1].contents());
    drives[1] = Arc::new(Drive::Simulated(half));
    reactor::simulate(2, async move {
        let open = |options| Pool::open(drives.clone(), log.clone(), options, &[]);
        let refused = open(OpenOptions::default()).await.err().unwrap();
        assert_eq!(refused.kind, Kind::Missing, "{refused}");
        let pool = open(OpenOptions { degraded: true, ..OpenOptions::default() }).await.unwrap();
        verify(&pool.volume("db").unwrap(), &model).await;
        let drives = pool.status().await.unwrap().drives;
        let states = drives.iter().map(|drive| drive.state);
        let is_online = states.map(|state| state == crate::drives::DriveState::Online);
        assert!(is_online.eq([true, false, true, true]));
        pool.close().await.unwrap();
    });
}

/// Two drives were away, and a third could be read and not written. The labels of the others called those two out before
/// the opening was refused, and once they were back with other drives away nobody opened the pool any more.
#[test]
pub(super) fn an_opening_that_too_few_drives_take_the_writes_of_changes_nothing() {
    let (media, all) = simulated(6, 128 * MIB, 0);
    reactor::simulate(1, async move {
        let log = LogSpec::Pmem(vec![pmem(8 * MIB)]);
        let (pool, v) = create(&all, &log).await;
        let mut model = Model::new();
        scribble(&v, &mut model, 200, 1).await;
        pool.close().await.unwrap();
        let before = epochs(&all).await;
        let (operation, kind) = (Some(Operation::Write), MediaKind::Medium);
        media[3].refuse(Refusal { operation, range: 0..u64::MAX, kind, times: None });
        let refused = open(&all[..4], &log, DEGRADED).await.err().unwrap();
        assert_eq!(refused.kind, Kind::Failed, "{refused}");
        media[3].refuse_nothing();
        let pool = open(&all[2..], &log, DEGRADED).await.unwrap();
        verify(&pool.volume("db").unwrap(), &model).await;
        pool.close().await.unwrap();
        assert_eq!(epochs(&all[..2]).await, before[..2]);
    });
}

/// Half of the drives were given, and the opening was cut short when one of them had its label. Then another half went
/// on, and the one drive was taken for having gone on without it.
#[test]
fn a_half_whose_opening_was_cut_short_is_no_fork() {
    let (_media, all) = simulated(4, 128 * MIB, 0);
    reactor::simulate(1, async move {
        let log = LogSpec::Pmem(vec![pmem(8 * MIB)]);
        let (pool, v) = create(&all, &log).await;
        let mut model = Model::new();
        scribble(&v, &mut model, 200, 1).await;
        pool.close().await.unwrap();
        let mut cut = read_label(&all[2]).await.unwrap().unwrap();
        cut.epoch += 1;
        cut.term += 1;
        for out in [0, 3] {
            cut.drives[out].set_mark(DriveMark::Failed, cut.epoch);
        }
        write_label(&all[2], &cut).await.unwrap();
        let pool = open(&all[..2], &log, DEGRADED).await.unwrap();
        scribble(&pool.volume("db").unwrap(), &mut model, 200, 2).await;
        pool.close().await.unwrap();
        let pool = open(&all, &log, DEGRADED).await.unwrap();
        verify(&pool.volume("db").unwrap(), &model).await;
        pool.close().await.unwrap();
    });
}

/// A label that calls nobody out was on two drives of four when power failed. The others went on without them, and those
/// were taken for having gone on by themselves.
#[test]
fn a_half_that_was_first_to_have_a_label_is_no_fork() {
    let (_media, all) = simulated(4, 128 * MIB, 0);
    reactor::simulate(1, async move {
        let log = LogSpec::Pmem(vec![pmem(8 * MIB)]);
        let (pool, v) = create(&all, &log).await;
        let mut model = Model::new();
        scribble(&v, &mut model, 200, 1).await;
        pool.close().await.unwrap();
        for drive in &all[..2] {
            let mut cut = read_label(drive).await.unwrap().unwrap();
            cut.epoch += 1;
            write_label(drive, &cut).await.unwrap();
        }
        let pool = open(&all[2..], &log, DEGRADED).await.unwrap();
        scribble(&pool.volume("db").unwrap(), &mut model, 200, 2).await;
        pool.close().await.unwrap();
        let pool = open(&all, &log, DEGRADED).await.unwrap();
        verify(&pool.volume("db").unwrap(), &model).await;
        pool.close().await.unwrap();
    });
}
