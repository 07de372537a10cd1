//! Which devices the log is on, and which of them count.

use std::cell::RefCell;
use std::time::Duration;

use media::Operation;
use media::Simulated;
use media::drive::Refusal;

use super::*;
use crate::area::read_label;
use crate::canary::{Step, misses};
use crate::drives::DriveState;
use crate::format::area as at;
use crate::format::catalog::CatalogArea;

/// Where a drive's log zones lie.
const ZONES: std::ops::Range<u64> = CatalogArea::LEAST.end()..CatalogArea::LEAST.end() + 4 * MIB;

const DEGRADED: OpenOptions = OpenOptions {
    degraded: true,
    import: false,
    accept_loss: false,
    unattended: false,
    known_term: 0,
    known_log: None,
    new_log: None,
};

fn array(seed: u64) -> (Vec<Arc<Simulated>>, Vec<Arc<Drive>>) {
    simulated(6, 128 * MIB, seed * 100)
}

/// One write to a drive's log fails.
fn fail_once(drive: &Simulated) {
    let (operation, kind) = (Some(Operation::Write), media::Kind::Medium);
    drive.refuse(Refusal { operation, range: ZONES, kind, times: Some(1) });
}

fn without(drives: &[Arc<Drive>], gone: &[usize]) -> Vec<Arc<Drive>> {
    let there = drives.iter().enumerate().filter(|(n, _)| !gone.contains(n));
    there.map(|(_, drive)| Arc::clone(drive)).collect()
}

async fn create(drives: &[Arc<Drive>], log: &LogSpec) -> (Pool, Volume) {
    let pool = Pool::create(spec(drives, log.clone()), &[]).await.unwrap();
    let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
    (pool, v)
}

async fn open(drives: &[Arc<Drive>], log: &LogSpec, options: OpenOptions) -> crate::Result<Pool> {
    Pool::open(drives.to_vec(), log.clone(), options, &[]).await
}

/// The pool opens and has what it should have.
async fn has(drives: &[Arc<Drive>], log: &LogSpec, options: OpenOptions, model: &Model) -> Pool {
    let pool = open(drives, log, options).await.unwrap();
    verify(&pool.volume("db").unwrap(), model).await;
    pool
}

/// Waits until the log has all its copies.
async fn mirrored(pool: &Pool) {
    for _ in 0..10_000 {
        let (current, wanted) = pool.log_copies();
        if current >= wanted {
            return;
        }
        reactor::sleep(Duration::from_millis(1)).await;
    }
    panic!("{:?}", pool.log_copies());
}

/// A drive answered a few reads with "gone", and was back; then one write of the log failed on another. The log went
/// on where nobody looked, and a plain restart brought back what the first drive had.
#[test]
fn a_log_goes_on_only_where_the_labels_say() {
    for seed in 0..3 {
        let (media, all) = array(seed);
        let drives = all.clone();
        let model = reactor::simulate(seed, async move {
            let (pool, v) = create(&drives, &LogSpec::Drives).await;
            let mut model = Model::new();
            scribble(&v, &mut model, 1500, 1).await;
            media[0].fail();
            verify(&v, &model).await;
            media[0].revive();
            assert_eq!(pool.status().await.unwrap().drives[0].state, DriveState::Failed);
            fail_once(&media[1]);
            scribble(&v, &mut model, 3000, 2).await;
            let status = pool.status().await.unwrap();
            assert!(
                !status.log.drives.contains(&0) && !status.log.drives.contains(&1),
                "{status:?}"
            );
            model
        });
        reactor::simulate(seed, async move {
            has(&all, &LogSpec::Drives, OpenOptions::default(), &model)
                .await
                .close()
                .await
                .unwrap();
        });
    }
}

/// One write of the log failed on one drive, and much later another drive died: the pool was opened with what the first had.
#[test]
fn a_copy_that_missed_one_write_is_not_read_when_the_other_drive_is_dead() {
    for (seed, closed) in [(1, false), (2, true)] {
        let (media, all) = array(seed);
        let drives = all.clone();
        let model = reactor::simulate(seed, async move {
            let (pool, v) = create(&drives, &LogSpec::Drives).await;
            let mut model = Model::new();
            scribble(&v, &mut model, 300, 1).await;
            fail_once(&media[0]);
            scribble(&v, &mut model, 1500, 2).await;
            media[1].fail();
            scribble(&v, &mut model, 500, 3).await;
            if closed {
                pool.close().await.unwrap();
            }
            model
        });
        reactor::simulate(seed, async move {
            let left = without(&all, &[1]);
            has(&left, &LogSpec::Drives, OpenOptions::default(), &model)
                .await
                .close()
                .await
                .unwrap();
        });
    }
}

/// One write of the log failed on a drive, power failed, and the other drives of the log did not come back.
#[test]
pub(super) fn a_copy_that_missed_one_write_is_not_read_when_the_others_are_away() {
    for seed in 0..4 {
        let (media, all) = array(seed);
        let drives = all.clone();
        let later = seed % 2 == 1;
        let model = reactor::simulate(seed, async move {
            let (pool, v) = create(&drives, &LogSpec::Drives).await;
            let mut model = Model::new();
            scribble(&v, &mut model, 64, 1).await;
            fail_once(&media[0]);
            scribble(&v, &mut model, 64, 2).await;
            if later {
                mirrored(&pool).await;
                scribble(&v, &mut model, 64, 3).await;
            }
            model
        });
        reactor::simulate(seed, async move {
            match open(&without(&all, &[1, 2]), &LogSpec::Drives, DEGRADED).await {
                Ok(pool) => verify(&pool.volume("db").unwrap(), &model).await,
                Err(error) => assert!(!later && error.kind == Kind::Loss, "{error}"),
            }
        });
    }
}

fn memories() -> [LogSpec; 3] {
    let (a, b) = (pmem(16 * MIB), pmem(16 * MIB));
    [vec![Arc::clone(&a), Arc::clone(&b)], vec![a], vec![b]].map(LogSpec::Bbu)
}

/// A pool went on with one of two devices of its log; then only the other was given, and its old records were replayed
/// over newer contents, even after the pool had been closed in order.
#[test]
fn a_device_of_the_log_that_was_away_is_not_taken_for_current() {
    for closed in [false, true] {
        let ([both, first, second], all) = (memories(), drives(4, 128 * MIB));
        let (given, log) = (all.clone(), both.clone());
        let mut model = reactor::simulate(1, async move {
            let (_, v) = create(&given, &log).await;
            let mut model = Model::new();
            scribble(&v, &mut model, 300, 1).await;
            model
        });
        let (given, log) = (all.clone(), second.clone());
        model = reactor::simulate(2, async move {
            let pool = has(&given, &log, OpenOptions::default(), &model).await;
            let log = pool.status().await.unwrap().log;
            assert_eq!((log.devices, log.failed_devices), (2, 1));
            scribble(&pool.volume("db").unwrap(), &mut model, 300, 2).await;
            if closed {
                pool.close().await.unwrap();
            }
            model
        });
        reactor::simulate(3, async move {
            if closed {
                let pool = has(&all, &first, OpenOptions::default(), &model).await;
                assert!(pool.has_new_log());
                return pool.close().await.unwrap();
            }
            let error = open(&all, &first, OpenOptions::default()).await.err().unwrap();
            assert_eq!(error.kind, Kind::Loss, "{error}");
            has(&all, &second, OpenOptions::default(), &model).await.close().await.unwrap();
        });
    }
}

/// With the other one beside it, it is made whole, and current only then.
#[test]
fn a_device_of_the_log_that_comes_back_is_made_whole_behind_the_writes() {
    let ([both, first, second], all) = (memories(), drives(4, 128 * MIB));
    let (given, log) = (all.clone(), both.clone());
    let mut model = reactor::simulate(1, async move {
        let (_, v) = create(&given, &log).await;
        let mut model = Model::new();
        scribble(&v, &mut model, 300, 1).await;
        model
    });
    for (round, log) in (2..).zip([second, both, first.clone()]) {
        let given = all.clone();
        model = reactor::simulate(round, async move {
            let pool = has(&given, &log, OpenOptions::default(), &model).await;
            let v = pool.volume("db").unwrap();
            scribble(&v, &mut model, 200, round).await;
            if round == 3 {
                mirrored(&pool).await;
                assert_eq!(pool.log_copies_made(), 1);
                scribble(&v, &mut model, 200, 100 + round).await;
            }
            model
        });
    }
    reactor::simulate(9, async move {
        has(&all, &first, OpenOptions::default(), &model).await.close().await.unwrap();
    });
}

/// Its memory was cut short, and the first to notice was one who read: every write failed from then on, and the log
/// went on being called whole.
#[test]
fn a_device_of_the_log_that_does_not_give_what_it_holds_is_the_logs_no_more() {
    for devices in [1, 2] {
        let all = drives(4, 128 * MIB);
        let memories: Vec<_> =
            (0..devices).map(|_| Arc::new(media::SimulatedPmem::new(16 * MIB))).collect();
        let log = memories.iter().map(|m| Arc::new(Pmem::Simulated(Arc::clone(m))));
        let log = LogSpec::Bbu(log.collect());
        let (given, with) = (all.clone(), log.clone());
        let model = reactor::simulate(1, async move {
            let (pool, v) = create(&given, &with).await;
            let mut model = Model::new();
            for at in 0..64 {
                v.write(at * BLOCK as u64, &block(at, 1)).await.unwrap();
                model.insert(at, 1);
            }
            // But not of what is written next.
            memories[0].poison(0..4 * MIB);
            let mut bytes = vec![0; BLOCK];
            let read = v.read(0, &mut bytes).await;
            assert_eq!(pool.log_copies().0, devices - 1);
            let written = v.write(0, &block(0, 2)).await;
            if devices == 1 {
                assert!(read.is_err() && written.is_err());
                return None;
            }
            assert!(read.is_ok() && bytes == block(0, 1));
            written.unwrap();
            model.insert(0, 2);
            let record = read_label(&given[0]).await.unwrap().unwrap();
            assert_eq!(record.current_members().count(), 1, "it is told before the write is");
            Some(model)
        });
        let Some(model) = model else { continue };
        reactor::simulate(2, async move {
            let second = match log {
                LogSpec::Bbu(all) => LogSpec::Bbu(all[1..].to_vec()),
                other => other,
            };
            has(&all, &second, OpenOptions::default(), &model).await.close().await.unwrap();
        });
    }
}

/// A file that was cut short, or emptied, was noticed when somebody wrote or read, and not before.
#[test]
fn memory_that_is_gone_is_told_of_though_nobody_uses_the_log() {
    let log_bytes = 4 * MIB;
    for gone in [log_bytes - 4096..16 * MIB, 0..4096 * 4] {
        let (all, memories) =
            (drives(4, 128 * MIB), [(); 2].map(|()| media::SimulatedPmem::new(16 * MIB)));
        let memories = memories.map(Arc::new);
        let log = memories.iter().map(|m| Arc::new(Pmem::Simulated(Arc::clone(m))));
        let log = LogSpec::Bbu(log.collect());
        reactor::simulate(1, async move {
            let (pool, v) = create(&all, &log).await;
            v.write(0, &block(0, 1)).await.unwrap();
            // Nothing is owed any more.
            for _ in 0..3 {
                pool.look_at_drives().await.unwrap();
            }
            assert_eq!(pool.log_copies(), (2, 2));
            memories[1].poison(gone);
            pool.look_at_drives().await.unwrap();
            pool.look_at_drives().await.unwrap();
            assert_eq!(pool.log_copies(), (1, 2));
            let record = read_label(&all[0]).await.unwrap().unwrap();
            assert_eq!(record.current_members().count(), 1);
            pool.close().await.unwrap();
        });
    }
}

async fn epochs(drives: &[Arc<Drive>]) -> Vec<u64> {
    let mut epochs = Vec::new();
    for drive in drives {
        epochs.push(read_label(drive).await.unwrap().unwrap().epoch);
    }
    epochs
}

/// Healthy drives were marked as failed, for good, by an opening that was refused.
#[test]
fn an_opening_that_is_refused_changes_nothing() {
    let ([both, ..], [others, blank, _], all) = (memories(), memories(), drives(5, 128 * MIB));
    let (given, log) = (all.clone(), both.clone());
    let model = reactor::simulate(1, async move {
        let (_, v) = create(&given, &log).await;
        let mut model = Model::new();
        scribble(&v, &mut model, 300, 1).await;
        model
    });
    reactor::simulate(2, async move {
        let before = epochs(&all).await;
        for log in [others, blank, LogSpec::Drives] {
            let error = open(&without(&all, &[4]), &log, DEGRADED).await.err().unwrap();
            assert!(matches!(error.kind, Kind::Loss | Kind::Missing), "{error}");
        }
        assert_eq!(epochs(&all).await, before);
        let pool = has(&all, &both, OpenOptions::default(), &model).await;
        let drives = pool.status().await.unwrap().drives;
        assert!(drives.iter().all(|drive| drive.state == DriveState::Online), "{drives:?}");
        pool.close().await.unwrap();
    });
}

/// The redundancy bears the loss of any two drives; the log was on two of them for ever.
#[test]
fn any_two_drives_may_be_away_those_of_the_log_too() {
    for seed in 0..6 {
        let (_, all) = array(seed);
        let closed = seed % 2 == 0;
        let gone = [[0, 1], [1, 2], [0, 2]][usize64(seed / 2)];
        let given = all.clone();
        let model = reactor::simulate(seed, async move {
            let (pool, v) = create(&given, &LogSpec::Drives).await;
            let mut model = Model::new();
            scribble(&v, &mut model, 300, 1).await;
            match (closed, seed) {
                (true, 4) => pool.export().await.unwrap(),
                (true, _) => pool.close().await.unwrap(),
                (false, _) => {}
            }
            model
        });
        reactor::simulate(seed, async move {
            let options = OpenOptions { import: true, ..DEGRADED };
            let pool = has(&without(&all, &gone), &LogSpec::Drives, options, &model).await;
            mirrored(&pool).await;
            pool.close().await.unwrap();
        });
    }
}

/// Both drives of the log died, and writes failed from then on.
#[test]
fn two_drives_of_the_log_may_die_at_the_same_instant_and_it_moves_to_others() {
    for seed in 0..3 {
        let (media, all) = array(seed);
        let given = all.clone();
        let model = reactor::simulate(seed, async move {
            let (pool, v) = create(&given, &LogSpec::Drives).await;
            let mut model = Model::new();
            scribble(&v, &mut model, 300, 1).await;
            media[0].fail();
            media[2].fail();
            scribble(&v, &mut model, 300, 2).await;
            mirrored(&pool).await;
            let drives = pool.status().await.unwrap().log.drives;
            assert!(
                drives.len() == 3 && !drives.contains(&0) && !drives.contains(&2),
                "{drives:?}"
            );
            scribble(&v, &mut model, 300, 3).await;
            model
        });
        reactor::simulate(seed, async move {
            let left = without(&all, &[0, 2]);
            has(&left, &LogSpec::Drives, OpenOptions::default(), &model)
                .await
                .close()
                .await
                .unwrap();
        });
    }
}

/// A pool that is closed in order leaves nothing in its log, and does not need its device.
#[test]
fn a_pool_that_was_closed_in_order_opens_without_its_log() {
    let ([both, ..], [other, ..], all) = (memories(), memories(), drives(4, 128 * MIB));
    reactor::simulate(1, async move {
        let (pool, v) = create(&all, &both).await;
        let mut model = Model::new();
        scribble(&v, &mut model, 300, 1).await;
        pool.close().await.unwrap();
        let pool = has(&all, &other, OpenOptions::default(), &model).await;
        assert!(pool.has_new_log() && !pool.has_lost_log());
        scribble(&pool.volume("db").unwrap(), &mut model, 300, 2).await;
        pool.close().await.unwrap();
        let pool = has(&all, &other, OpenOptions::default(), &model).await;
        assert!(!pool.has_new_log());
        pool.close().await.unwrap();
    });
}

/// One half of a mirror went on by itself; then the other half alone was there.
#[test]
fn a_half_that_the_log_knows_to_be_old_is_refused() {
    let ([both, ..], all) = (memories(), drives(2, 256 * MIB));
    let (given, log) = (all.clone(), both.clone());
    let mut model = reactor::simulate(1, async move {
        let mirror = PoolSpec { scheme: raid::Scheme::Mirror { copies: 2 }, ..spec(&given, log) };
        let pool = Pool::create(mirror, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
        let mut model = Model::new();
        scribble(&v, &mut model, 300, 1).await;
        model
    });
    let unattended = OpenOptions { unattended: true, ..DEGRADED };
    let (given, log) = (without(&all, &[1]), both.clone());
    model = reactor::simulate(2, async move {
        // The log is a witness that the other half did not go on.
        let pool = has(&given, &log, unattended, &model).await;
        let v = pool.volume("db").unwrap();
        scribble(&v, &mut model, 300, 2).await;
        pool.audit_space().await.unwrap();
        scribble(&v, &mut model, 3000, 3).await;
        model
    });
    reactor::simulate(3, async move {
        let error = open(&without(&all, &[0]), &both, DEGRADED).await.err().unwrap();
        assert_eq!(error.kind, Kind::Missing, "{error}");
        has(&all, &both, OpenOptions::default(), &model).await.close().await.unwrap();
    });
}

/// It was refused by itself after an orderly stop, though the log could tell.
#[test]
fn a_half_of_a_closed_mirror_opens_by_itself_where_the_log_tells_that_the_other_did_not_go_on() {
    let ([both, one, _], all) = (memories(), drives(2, 256 * MIB));
    let unattended = OpenOptions { unattended: true, ..DEGRADED };
    reactor::simulate(1, async move {
        let mirror =
            PoolSpec { scheme: raid::Scheme::Mirror { copies: 2 }, ..spec(&all, both.clone()) };
        let pool = Pool::create(mirror, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
        let mut model = Model::new();
        scribble(&v, &mut model, 300, 1).await;
        pool.close().await.unwrap();
        let [half, other] = [without(&all, &[1]), without(&all, &[0])];
        // One of the log's two devices could have gone on with the other half.
        let error = open(&half, &one, unattended).await.err().unwrap();
        assert_eq!(error.kind, Kind::Missing, "{error}");
        let known = OpenOptions { known_term: u64::MAX, ..unattended };
        let error = open(&half, &both, known).await.err().unwrap();
        assert_eq!(error.kind, Kind::Missing, "{error}");
        let pool = has(&half, &both, unattended, &model).await;
        scribble(&pool.volume("db").unwrap(), &mut model, 300, 2).await;
        pool.close().await.unwrap();
        // Now the log tells that this one is old.
        let error = open(&other, &both, unattended).await.err().unwrap();
        assert_eq!(error.kind, Kind::Missing, "{error}");
        has(&all, &both, OpenOptions::default(), &model).await.close().await.unwrap();
    });
}

/// Where the log is on the drives themselves nothing tells.
#[test]
fn a_half_of_a_mirror_is_not_opened_by_itself_with_nobody_asked() {
    let all = drives(2, 256 * MIB);
    let given = all.clone();
    reactor::simulate(1, async move {
        let mirror = PoolSpec {
            scheme: raid::Scheme::Mirror { copies: 2 },
            ..spec(&given, LogSpec::Drives)
        };
        Pool::create(mirror, &[]).await.unwrap();
    });
    reactor::simulate(2, async move {
        let half = without(&all, &[1]);
        let unattended = OpenOptions { unattended: true, ..DEGRADED };
        let error = open(&half, &LogSpec::Drives, unattended).await.err().unwrap();
        assert_eq!(error.kind, Kind::Missing, "{error}");
        open(&half, &LogSpec::Drives, DEGRADED).await.unwrap().close().await.unwrap();
    });
}

/// What a host was told of a run of writes that a crash ends.
#[derive(Default)]
struct Told {
    acknowledged: BTreeMap<u64, u64>,
    /// The last one, which it was told nothing of.
    under_way: Option<(u64, u64)>,
}

/// Power fails at one moment after another while the log goes on without one drive and moves to another.
#[test]
fn power_may_fail_at_any_step_of_a_change_of_the_log_s_devices() {
    let mut moved = 0;
    for step in 0..40 {
        let (media, all) = array(step);
        let (given, cut) = (all.clone(), media.clone());
        let (told, made) = reactor::simulate(step, async move {
            let (pool, v) = create(&given, &LogSpec::Drives).await;
            let told = Rc::new(RefCell::new(Told::default()));
            let book = Rc::clone(&told);
            let writes = async move {
                for version in 1_u64.. {
                    let at = version % 64;
                    book.borrow_mut().under_way = Some((at, version));
                    v.write(at * BLOCK as u64, &block(at, version)).await.unwrap();
                    book.borrow_mut().acknowledged.insert(at, version);
                }
            };
            fail_once(&media[usize64(step % 3)]);
            let span = Duration::from_micros(100 + step * 400);
            assert!(reactor::timeout(span, writes).await.is_err());
            let mut prng = Prng::new(step);
            media.iter().for_each(|drive| drive.power_cut(&mut prng));
            (std::mem::take(&mut *told.borrow_mut()), pool.log_copies_made())
        });
        moved += made;
        cut.iter().for_each(|drive| drive.power_on());
        reactor::simulate(step, async move {
            let pool = open(&all, &LogSpec::Drives, OpenOptions::default()).await.unwrap();
            let v = pool.volume("db").unwrap();
            let mut got = vec![0; BLOCK];
            for (at, version) in &told.acknowledged {
                v.read(at * BLOCK as u64, &mut got).await.unwrap();
                let last = told.under_way.filter(|(block, _)| block == at).map(|(_, last)| last);
                let fits =
                    got == block(*at, *version) || last.is_some_and(|v| got == block(*at, v));
                assert!(fits, "step {step}: block {at}, version {version}");
            }
            pool.close().await.unwrap();
        });
    }
    assert!((5..40).contains(&moved), "{moved} of 40 had moved: the moments are chosen badly");
}

/// A change of the catalog that failed was done at the next restart.
#[test]
fn a_volume_whose_deletion_failed_is_there_after_a_restart() {
    let (media, all) = array(1);
    let given = all.clone();
    let model = reactor::simulate(1, async move {
        let (pool, v) = create(&given, &LogSpec::Drives).await;
        let mut model = Model::new();
        scribble(&v, &mut model, 300, 1).await;
        let range = at::CATALOG..CatalogArea::LEAST.end();
        let (operation, kind) = (Some(Operation::Write), media::Kind::Full);
        media[5].refuse(Refusal { operation, range, kind, times: Some(1) });
        assert_eq!(pool.delete_volume("db").await.unwrap_err().kind, Kind::Full);
        scribble(&v, &mut model, 300, 2).await;
        model
    });
    reactor::simulate(2, async move {
        has(&all, &LogSpec::Drives, OpenOptions::default(), &model).await.close().await.unwrap();
    });
}

/// A drive that had lost its copy of the log to a passing error, and then once more, was never tried again: with no other
/// to take it the log went on with a copy too few.
#[test]
fn a_copy_that_was_lost_twice_is_made_a_third_time() {
    let (media, all) = simulated(3, 256 * MIB, 0);
    reactor::simulate(1, async move {
        let spec =
            PoolSpec { scheme: raid::Scheme::Mirror { copies: 3 }, ..spec(&all, LogSpec::Drives) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
        let mut model = Model::new();
        for seed in 1..6 {
            fail_once(&media[0]);
            scribble(&v, &mut model, 20, seed).await;
            let made = async {
                while pool.log_copies() != (3, 3) || pool.log_copies_made() < seed {
                    reactor::sleep(Duration::from_secs(1)).await;
                }
            };
            reactor::timeout(Duration::from_mins(10), made).await.expect("all copies of the log");
        }
        assert_eq!(pool.status().await.unwrap().drives[0].state, DriveState::Online);
        pool.close().await.unwrap();
        let pool = open(&all, &LogSpec::Drives, OpenOptions::default()).await.unwrap();
        verify(&pool.volume("db").unwrap(), &model).await;
    });
}

/// A device with the same contents, as `cp` makes one.
fn copy(device: &Pmem) -> Arc<Pmem> {
    let mut bytes = vec![0; usize64(device.capacity())];
    device.read(0, &mut bytes).unwrap();
    let copy = pmem(device.capacity());
    copy.write(0, &bytes).unwrap();
    copy
}

/// A copy of the log that was made while the pool was open was taken for the log: thousands of acknowledged blocks were
/// old, and nobody was told.
#[test]
pub(super) fn a_copy_of_the_log_from_the_same_life_is_not_the_log() {
    let (_media, all) = array(1);
    let device = pmem(8 * MIB);
    let log = |device: &Arc<Pmem>| LogSpec::Bbu(vec![Arc::clone(device)]);
    let (given, first) = (all.clone(), log(&device));
    let (old, model) = reactor::simulate(1, async move {
        let (_pool, v) = create(&given, &first).await;
        let mut model = Model::new();
        scribble(&v, &mut model, 500, 1).await;
        let LogSpec::Bbu(devices) = &first else { panic!("bbu") };
        let old = copy(&devices[0]);
        scribble(&v, &mut model, 1500, 2).await;
        (old, model)
    });
    let (given, first, second) = (all.clone(), log(&device), log(&old));
    reactor::simulate(2, async move {
        let refused = open(&given, &second, OpenOptions::default()).await.err();
        let refused = refused.expect("an old copy was taken for the log");
        assert_eq!(refused.kind, Kind::Loss, "{refused}");
        assert!(refused.to_string().contains("is an old copy"), "{refused}");
        // The right one has all; a crash, so that it is needed again.
        has(&given, &first, OpenOptions::default(), &model).await;
    });
    reactor::simulate(3, async move {
        // For whoever accepts the loss it is no log at all, and what is made in its place is one.
        let accepting = OpenOptions { accept_loss: true, ..OpenOptions::default() };
        let second = log(&old);
        let pool = open(&all, &second, accepting).await.unwrap();
        assert!(pool.has_lost_log());
        let (v, mut model) = (pool.volume("db").unwrap(), Model::new());
        v.deallocate(0, v.len()).await.unwrap();
        scribble(&v, &mut model, 300, 3).await;
        pool.close().await.unwrap();
        has(&all, &second, OpenOptions::default(), &model).await.close().await.unwrap();
    });
}

/// One of two devices rotted, records and contents. Writes failed until a restart, and a move of the log took what was
/// there for all there is, and gave the good one up.
#[test]
fn what_one_of_two_memories_lost_is_taken_from_the_other() {
    let (_media, all) = array(2);
    let devices: Vec<_> = (0..3).map(|_| pmem(8 * MIB)).collect();
    let both = LogSpec::Bbu(devices[..2].to_vec());
    let third = LogSpec::Bbu(vec![Arc::clone(&devices[2])]);
    let (given, moved) = (all.clone(), third.clone());
    let model = reactor::simulate(1, async move {
        let (pool, v) = create(&given, &both).await;
        let mut model = Model::new();
        scribble(&v, &mut model, 800, 1).await;
        let rot = || devices[0].write(64 << 10, &vec![0; 7 << 20]).unwrap();
        rot();
        // The log is carried out, trimmed, and filled again.
        scribble(&v, &mut model, 3000, 2).await;
        rot();
        pool.move_log(moved).await.unwrap();
        model
    });
    reactor::simulate(2, async move {
        has(&all, &third, OpenOptions::default(), &model).await.close().await.unwrap();
    });
}

#[test]
fn what_is_put_right_before_a_log_is_copied_is_missed() {
    misses(Step::RingMends, "", what_one_of_two_memories_lost_is_taken_from_the_other);
}

/// It kept the pool closed, though the other had everything.
#[test]
fn a_memory_that_was_cut_short_is_no_reason_to_stay_closed() {
    for closed in [false, true] {
        let (_media, all) = array(3);
        let (whole, cut) = (pmem(8 * MIB), pmem(4 * MIB));
        let both = LogSpec::Bbu(vec![Arc::clone(&whole), pmem(8 * MIB)]);
        let given = all.clone();
        let model = reactor::simulate(1, async move {
            let (pool, v) = create(&given, &both).await;
            let mut model = Model::new();
            scribble(&v, &mut model, 300, 1).await;
            if closed {
                pool.close().await.unwrap();
            }
            model
        });
        reactor::simulate(2, async move {
            let alone = LogSpec::Bbu(vec![Arc::clone(&cut)]);
            let refused = open(&all, &alone, OpenOptions::default()).await.err().unwrap();
            assert!(refused.to_string().contains("shorter than the log"), "{refused}");
            let log = LogSpec::Bbu(vec![cut, whole]);
            let pool = has(&all, &log, OpenOptions::default(), &model).await;
            assert_eq!(pool.log_copies(), (1, 2));
            pool.close().await.unwrap();
        });
    }
}
