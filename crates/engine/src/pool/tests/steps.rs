//! Steps of openings, of trims and of stopping, that something relies on: each left out, and the story that misses it.

use std::time::Duration;

use media::drive::{Refusal, SimulatedOptions};
use media::{Operation, Power, SimulatedPmem};

use super::*;
use crate::canary::{Step, misses};
use crate::drives::DriveState;
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

fn without(drives: &[Arc<Drive>], gone: usize) -> Vec<Arc<Drive>> {
    let there = drives.iter().enumerate().filter(|(n, _)| *n != gone);
    there.map(|(_, drive)| Arc::clone(drive)).collect()
}

#[test]
fn the_flush_of_an_opening_is_missed() {
    misses(Step::OpeningFlush, "seed", lasting::a_volume_that_was_seen_is_there_after_a_power_cut);
}

#[test]
fn the_second_labels_of_an_opening_are_missed() {
    misses(
        Step::OpeningTwice,
        "None",
        old_copies::a_copy_from_before_a_life_is_not_a_drive_of_the_pool,
    );
}

#[test]
fn the_look_at_how_far_the_log_had_come_is_missed() {
    let story = log_copies::a_copy_of_the_log_from_the_same_life_is_not_the_log;
    misses(Step::OpeningMarks, "an old copy was taken", story);
}

#[test]
fn the_try_of_an_opening_is_missed() {
    let story = old_copies::an_opening_that_too_few_drives_take_the_writes_of_changes_nothing;
    misses(Step::OpeningTries, "lacks 4 drives", story);
}

#[test]
fn the_labels_of_an_opening_are_missed() {
    let story = old_copies::a_copy_from_before_a_life_is_not_a_drive_of_the_pool;
    misses(Step::OpeningTells, "None", story);
}

#[test]
fn the_drain_of_a_pool_that_is_closed_is_missed() {
    misses(
        Step::CloseDrains,
        "block 0",
        the_last_block_of_an_exported_pool_does_not_stay_in_its_log,
    );
}

/// Somebody was told that there is a volume, and power failed.
#[test]
fn a_volume_that_was_made_is_there_after_a_power_cut() {
    for seed in 0..8 {
        let (media, drives) = simulated(2, 64 * MIB, seed * 100);
        let log = LogSpec::Bbu(vec![pmem(4 * MIB)]);
        let scheme = raid::Scheme::Mirror { copies: 2 };
        let spec = PoolSpec { scheme, au_bytes: Some(MIB), ..spec(&drives, log.clone()) };
        reactor::simulate(seed, async move {
            let pool = Pool::create(spec, &[]).await.unwrap();
            // Whatever was written until now lasts.
            for medium in &media {
                Drive::Simulated(Arc::clone(medium)).flush().await.unwrap();
            }
            pool.create_volume(volume("db", MIB)).await.unwrap();
            media.iter().for_each(|medium| medium.power_cut(&mut Prng::new(seed)));
            media.iter().for_each(|medium| medium.power_on());
        });
        reactor::simulate(seed, async move {
            let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
            assert_eq!(pool.volumes(), ["db"], "seed {seed}: the volume is gone");
        });
    }
}

#[test]
fn the_force_behind_labels_roots_and_catalogs_is_missed() {
    misses(Step::SuperblockFua, "is gone", a_volume_that_was_made_is_there_after_a_power_cut);
}

#[test]
fn the_catalog_of_an_opening_is_missed() {
    misses(
        Step::OpeningCatalog,
        "late",
        lost::a_change_cut_short_that_an_opening_shows_is_on_all_drives,
    );
}

/// A device of the log did not take a record that a host was told of. The other one did not come back, and the pool went
/// on with what the first had.
#[test]
fn a_memory_that_missed_a_record_is_not_the_log_by_itself() {
    let all = drives(4, 96 * MIB);
    let sides = [4, 4].map(|mib| Arc::new(SimulatedPmem::new(mib * MIB)));
    let log = |side: &Arc<SimulatedPmem>| Arc::new(Pmem::Simulated(Arc::clone(side)));
    let both = LogSpec::Bbu(sides.iter().map(log).collect());
    let (given, late) = (all.clone(), Arc::clone(&sides[1]));
    let model = reactor::simulate(1, async move {
        let pool = Pool::create(spec(&given, both), &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
        let mut model = Model::new();
        scribble(&v, &mut model, 20, 1).await;
        late.poison(0..4 * MIB);
        scribble(&v, &mut model, 20, 2).await;
        model
    });
    let left = Arc::new(SimulatedPmem::new(4 * MIB));
    log(&left).write(0, &sides[1].contents()).unwrap();
    reactor::simulate(2, async move {
        match Pool::open(all, LogSpec::Bbu(vec![log(&left)]), DEGRADED, &[]).await {
            Err(error) => assert_eq!(error.kind, Kind::Loss, "{error}"),
            Ok(pool) => verify(&pool.volume("db").unwrap(), &model).await,
        }
    });
}

#[test]
fn labels_that_tell_of_the_log_are_missed() {
    misses(Step::LogTells, "block", a_memory_that_missed_a_record_is_not_the_log_by_itself);
}

/// A stripe was written without a drive that had failed just then, and the log forgot it. After a crash the labels
/// called the drive whole, and without another one the stripe was gone.
#[test]
fn what_the_log_forgets_is_not_on_a_drive_that_seems_whole() {
    for seed in 0..3 {
        let (media, all) = simulated(4, 1024 * MIB, seed * 100);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let (drives, same) = (all.clone(), log.clone());
        let model = reactor::simulate(seed, async move {
            let spec = PoolSpec { scheme: raid::Scheme::Raid5, ..spec(&drives, same) };
            // So large that the log is trimmed more than once while one segment is filled.
            let spec = PoolSpec { au_bytes: Some(8 * MIB), ..spec };
            let pool = Pool::create(spec, &[]).await.unwrap();
            let v = pool.create_volume(volume("db", 48 * MIB)).await.unwrap();
            let mut model = Model::new();
            scribble(&v, &mut model, 500, seed).await;
            let (operation, kind) = (Some(Operation::Write), media::Kind::Medium);
            let range = CatalogArea::LEAST.end()..u64::MAX;
            media[2].refuse(Refusal { operation, range, kind, times: Some(1) });
            // What is in the log by now is carried without that drive, and forgotten.
            let head = pool.undestaged().unwrap()[0].end;
            for more in 0.. {
                if pool.undestaged().unwrap()[0].start > head {
                    break;
                }
                scribble(&v, &mut model, 10, 1000 * (seed + 1) + more).await;
            }
            assert_eq!(pool.status().await.unwrap().drives[2].state, DriveState::Failed);
            model
        });
        reactor::simulate(seed, async move {
            let opened = Pool::open(without(&all, 0), log.clone(), DEGRADED, &[]).await;
            match opened {
                // It lacks two, and bears the loss of one.
                Err(error) => assert_eq!(error.kind, Kind::Missing, "{error}"),
                Ok(pool) => verify(&pool.volume("db").unwrap(), &model).await,
            }
            let pool = Pool::open(all, log, DEGRADED, &[]).await.unwrap();
            verify(&pool.volume("db").unwrap(), &model).await;
        });
    }
}

#[test]
fn labels_that_tell_before_a_trim_are_missed() {
    misses(Step::TrimTells, "are missing", what_the_log_forgets_is_not_on_a_drive_that_seems_whole);
}

/// Drives and memory that lose their power together.
struct Machine {
    media: Vec<Arc<Simulated>>,
    drives: Vec<Arc<Drive>>,
    memory: Arc<SimulatedPmem>,
    log: LogSpec,
}

impl Machine {
    fn new(count: u64, seed: u64) -> Self {
        let power = Arc::<Power>::default();
        // What is written to the first one is mostly still on its way when the others have theirs.
        let spans = |n| if n == 0 { [2000, 4000] } else { [5, 120] }.map(Duration::from_micros);
        let options = |n| SimulatedOptions {
            capacity: 96 * MIB,
            seed: seed * 100 + n,
            transfer: spans(n)[0]..spans(n)[1],
            power: Arc::clone(&power),
            ..SimulatedOptions::default()
        };
        let media: Vec<_> = (0..count).map(|n| Simulated::new(options(n))).collect();
        let drives = media.iter().map(|d| Arc::new(Drive::Simulated(Arc::clone(d)))).collect();
        let memory = Arc::new(SimulatedPmem::with_power(4 * MIB, power));
        let log = LogSpec::Bbu(vec![Arc::new(Pmem::Simulated(Arc::clone(&memory)))]);
        Self { media, drives, memory, log }
    }

    fn crash(&self, seed: u64) {
        let mut prng = Prng::new(seed);
        self.media.iter().for_each(|drive| drive.power_cut(&mut prng));
        self.memory.crash(&mut prng);
        self.media.iter().for_each(|drive| drive.power_on());
    }
}

/// A process was killed in the midst of stripes, and the log lost its control block. An opening made them whole, and had
/// the log rely on them; power failed, and what it had put right was gone: with a drive less nothing gave it.
#[test]
fn stripes_that_an_opening_made_whole_bear_as_much_as_others_after_a_power_cut() {
    let mut opened = 0;
    for seed in 0..24 {
        let machine = Machine::new(4, seed);
        let (drives, log) = (machine.drives.clone(), machine.log.clone());
        let model = reactor::simulate(seed, async move {
            let spec = PoolSpec { scheme: raid::Scheme::Raid5, ..spec(&drives, log) };
            let pool = Pool::create(PoolSpec { au_bytes: Some(MIB), ..spec }, &[]).await.unwrap();
            let v = pool.create_volume(volume("db", 48 * MIB)).await.unwrap();
            let mut model = Model::new();
            scribble(&v, &mut model, 100 + 10 * seed, seed).await;
            reactor::sleep(Duration::from_millis(1)).await;
            model
        });
        [0, 4096].iter().for_each(|at| machine.log_write(*at));
        let (drives, log) = (machine.drives.clone(), machine.log.clone());
        machine.memory.cut_after(2 + seed % 3);
        reactor::simulate(seed, async move {
            let accepting = OpenOptions { accept_loss: true, ..OpenOptions::default() };
            let open = Pool::open(drives, log, accepting, &[]);
            let _ = reactor::timeout(Duration::from_secs(1), open).await;
        });
        machine.crash(seed);
        let done = reactor::simulate(seed, async move {
            let drives = without(&machine.drives, 1 + usize64(seed % 3));
            let options = OpenOptions { accept_loss: true, ..DEGRADED };
            match Pool::open(drives, machine.log, options, &[]).await {
                Ok(pool) => {
                    verify(&pool.volume("db").unwrap(), &model).await;
                    true
                }
                Err(error) => {
                    // It may be told once all drives are there.
                    assert_eq!(error.kind, Kind::Failed, "seed {seed}: {error}");
                    false
                }
            }
        });
        opened += u64::from(done);
    }
    assert!(opened > 12, "{opened} of 24 were opened: the moments are chosen badly");
}

impl Machine {
    /// Damages a control slot of the log.
    fn log_write(&self, at: u64) {
        let LogSpec::Bbu(devices) = &self.log else { panic!("bbu") };
        devices[0].write(at, &[0xA5; 64]).unwrap();
        devices[0].fence();
    }
}

#[test]
fn the_flush_of_stripes_that_were_made_whole_is_missed() {
    misses(
        Step::WholeFlush,
        "are missing",
        stripes_that_an_opening_made_whole_bear_as_much_as_others_after_a_power_cut,
    );
}

/// A pool of which the drives are slow, and all of a volume on them.
async fn with_slow_drives(seed: u64) -> (Vec<Arc<Simulated>>, Pool, Volume) {
    let slow = Duration::from_millis(20);
    let options = |n| SimulatedOptions {
        capacity: 96 * MIB,
        seed: seed + n,
        transfer: slow..slow,
        ..Default::default()
    };
    let media: Vec<_> = (0..4).map(|n| Simulated::new(options(n))).collect();
    let drives: Vec<_> = media.iter().map(|d| Arc::new(Drive::Simulated(Arc::clone(d)))).collect();
    let spec = spec(&drives, LogSpec::Bbu(vec![pmem(8 * MIB)]));
    let spec = PoolSpec { scheme: raid::Scheme::Raid5, au_bytes: Some(MIB), ..spec };
    let pool = Pool::create(spec, &[]).await.unwrap();
    let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
    for at in 0..512 {
        v.write(at * BLOCK as u64, &block(at, 1)).await.unwrap();
    }
    pool.audit_space().await.unwrap();
    (media, pool, v)
}

/// What is on the drives does not change any more: they may be another machine's.
async fn are_at_rest(media: &[Arc<Simulated>]) {
    let before: Vec<_> = media.iter().map(|drive| drive.contents()).collect();
    reactor::sleep(Duration::from_secs(10)).await;
    for (n, (drive, before)) in media.iter().zip(&before).enumerate() {
        assert_eq!(drive.difference(before), None, "drive {n} is written after the end");
    }
}

/// All that one drive has is damaged, somebody reads it, and after so long the pool stops.
fn stops_beside_a_reader(after: Duration, goes: bool) {
    reactor::simulate(1, async move {
        let (media, pool, v) = with_slow_drives(0).await;
        media[1].rot_where(1_000_000, |offset, _| offset >= CatalogArea::LEAST.end());
        let reader = reactor::spawn(async move {
            let mut out = vec![0; 256 * BLOCK];
            let space_wait = if goes { after } else { Duration::from_secs(1) };
            let _ = reactor::timeout(space_wait, v.read(0, &mut out)).await;
        });
        reactor::sleep(after).await;
        pool.stop().await;
        are_at_rest(&media).await;
        reader.await.unwrap();
    });
}

/// It read on when the pool had stopped, and put right what it found.
#[test]
fn a_reader_under_way_puts_nothing_right_after_the_end() {
    (4..80).step_by(8).for_each(|ms| stops_beside_a_reader(Duration::from_millis(ms), false));
}

/// Who had read it had gone.
#[test]
fn what_is_being_put_right_is_there_before_the_end() {
    (4..80).step_by(8).for_each(|ms| stops_beside_a_reader(Duration::from_millis(ms), true));
}

#[test]
fn the_wait_for_readers_before_the_end_is_missed() {
    misses(Step::StopGrace, "after the end", a_reader_under_way_puts_nothing_right_after_the_end);
}

#[test]
fn the_wait_for_repairs_before_the_end_is_missed() {
    misses(Step::StopRepairs, "after the end", what_is_being_put_right_is_there_before_the_end);
}

#[test]
fn stripes_on_their_way_are_there_before_the_end() {
    reactor::simulate(1, async move {
        let (media, pool, v) = with_slow_drives(0).await;
        let mut model = Model::new();
        scribble(&v, &mut model, 150, 1).await;
        reactor::sleep(Duration::from_millis(1)).await;
        pool.stop().await;
        are_at_rest(&media).await;
    });
}

#[test]
fn the_wait_for_stripes_before_the_end_is_missed() {
    misses(Step::StopStripes, "after the end", stripes_on_their_way_are_there_before_the_end);
}
