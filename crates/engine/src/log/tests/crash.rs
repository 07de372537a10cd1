//! Crashes: whatever the moment, what was acknowledged is there afterwards, and nothing is invented.

use super::model::{History, Op, first_tag};
use super::*;
use crate::canary::{Step, misses};
use media::Power;
use media::drive::{Simulated, SimulatedFaults, SimulatedOptions};
use reactor::{Order, simulate, simulate_in, sleep, timeout};
use std::time::Duration;
use stdx::Prng;

/// Persistent memories that lose their power together.
pub(super) struct Memories {
    pub(super) sides: Vec<Arc<SimulatedPmem>>,
}

impl Memories {
    pub(super) fn new(sides: usize) -> Self {
        let power = Arc::new(Power::default());
        let side = |_| Arc::new(SimulatedPmem::with_power(BYTES, Arc::clone(&power)));
        Self { sides: (0..sides).map(side).collect() }
    }

    pub(super) fn device(&self) -> Device {
        let area = |side: &Arc<SimulatedPmem>| Area {
            pmem: Arc::new(Pmem::Simulated(Arc::clone(side))),
            offset: 0,
        };
        Device::Memory(self.sides.iter().map(area).collect())
    }

    fn is_cut(&self) -> bool {
        self.sides[0].is_cut()
    }

    pub(super) fn crash(&self, prng: &mut Prng) {
        for side in &self.sides {
            side.crash(prng);
        }
    }
}

/// What destage asked the log to forget.
#[derive(Clone, Copy, Default)]
struct Trims {
    done: u64,
    asked: u64,
}

/// Everything that is known of what a log was told.
#[derive(Default)]
struct Told {
    history: History,
    trims: Trims,
    tag: u64,
}

/// Appends and trims until the power goes: what ends after that was never answered.
async fn live(log: &Log, memories: &Memories, told: &mut Told, prng: &mut Prng) {
    loop {
        if prng.below(8) == 0 || log.fill() > 600 {
            let mut items = Vec::new();
            let through = log.next_batch(256, &mut items).unwrap();
            told.trims.asked = through;
            log.trim(through, through * 2).await.unwrap();
            if memories.is_cut() {
                return;
            }
            told.trims.done = through;
            continue;
        }
        let op = Op::random(1, &mut told.tag, prng);
        told.history.asked = Some(op.clone());
        let sequence = op.append(log).await.unwrap();
        if memories.is_cut() {
            return;
        }
        told.history.asked = None;
        told.history.acked.insert(sequence, op);
    }
}

async fn memory_story(seed: u64, sides: usize, rot: bool) {
    let mut prng = Prng::new(seed);
    let memories = Memories::new(sides);
    let mut told = Told { tag: first_tag(0), ..Told::default() };
    let ring = prng.next_u64();
    let mut log = Log::create(memories.device(), BYTES, ring).await.unwrap();
    for life in 0..6 {
        let side = usize64(prng.below(u64_of(sides)));
        let lines = if prng.below(2) == 0 { 500 } else { 30_000 };
        memories.sides[side].cut_after(1 + prng.below(lines));
        live(&log, &memories, &mut told, &mut prng).await;
        drop(log);
        memories.crash(&mut prng);
        for _ in 0..if rot { 20 } else { 0 } {
            memories.sides[side].rot(prng.below(BYTES));
        }
        // Opening may be cut short too.
        if prng.below(3) == 0 {
            memories.sides[side].cut_after(1 + prng.below(4));
            let _ = Log::open(memories.device(), BYTES, ring).await;
            memories.crash(&mut prng);
        }
        let opened;
        (log, opened) = Log::open(memories.device(), BYTES, ring).await.unwrap();
        let story = format!("seed {seed}, life {life}");
        let trims = [told.trims.done, told.trims.asked];
        assert!(trims.contains(&opened.trimmed), "{story}: {opened:?}");
        assert_eq!(opened.durable_stripe, opened.trimmed * 2, "{story}");
        told.trims = Trims { done: opened.trimmed, asked: opened.trimmed };
        told.history.check(&log, 1, opened.trimmed, &story);
    }
}

#[test]
fn memory_recovers_what_was_acknowledged_from_any_crash() {
    for seed in 0..30 {
        simulate(seed, memory_story(seed, 1, false));
    }
}

#[test]
fn mirrored_memory_bears_a_side_that_rots() {
    for seed in 1000..1020 {
        simulate(seed, memory_story(seed, 2, seed % 2 == 0));
    }
}

/// Devices that lose their power together.
struct Pair {
    drives: Vec<Arc<Simulated>>,
    /// In place of the first drive.
    memory: Option<Arc<SimulatedPmem>>,
}

impl Pair {
    fn new(prng: &mut Prng, with_memory: bool) -> Self {
        let power = Arc::<Power>::default();
        let memory = with_memory.then(|| SimulatedPmem::with_power(BYTES, Arc::clone(&power)));
        let options = SimulatedOptions {
            capacity: 8 << 20,
            power,
            volatile_cache: prng.below(2) == 0,
            ..SimulatedOptions::default()
        };
        let drive = |seed| Simulated::new(SimulatedOptions { seed, ..options.clone() });
        let drives = vec![drive(prng.next_u64()), drive(prng.next_u64())];
        Self { drives, memory: memory.map(Arc::new) }
    }

    pub(super) fn device(&self) -> Device {
        let zone = |drive: &Arc<Simulated>| {
            Zone::new(Arc::new(Drive::Simulated(Arc::clone(drive))), 1 << 20)
        };
        let Some(memory) = &self.memory else {
            return Device::Drives(self.drives.iter().map(zone).collect());
        };
        let pmem = Arc::new(Pmem::Simulated(Arc::clone(memory)));
        Device::Both(vec![
            Place::Memory(Area { pmem, offset: 0 }),
            Place::Zone(zone(&self.drives[1])),
        ])
    }

    fn power_cut(&self, prng: &mut Prng) {
        if let Some(memory) = &self.memory {
            memory.crash(prng);
        }
        for drive in &self.drives {
            drive.power_cut(prng);
        }
        for drive in &self.drives {
            drive.power_on();
        }
    }
}

const WRITERS: usize = 5;

/// What several writers did, each to a view of its own.
struct Scene {
    log: Log,
    histories: RefCell<Vec<History>>,
    trims: Cell<Trims>,
}

async fn writer(scene: Rc<Scene>, n: usize, lives: u64, mut prng: Prng) {
    let mut tag = first_tag(n) + (lives << 16);
    loop {
        let op = Op::random(low32(u64_of(n)), &mut tag, &mut prng);
        scene.histories.borrow_mut()[n].asked = Some(op.clone());
        let Ok(sequence) = op.append(&scene.log).await else { return };
        scene.histories.borrow_mut()[n].asked = None;
        scene.histories.borrow_mut()[n].acked.insert(sequence, op);
        if prng.below(3) == 0 {
            sleep(Duration::from_micros(prng.below(500))).await;
        }
    }
}

async fn destage(scene: Rc<Scene>, mut prng: Prng) {
    loop {
        sleep(Duration::from_micros(100 + prng.below(3000))).await;
        scene.log.wait_for_work().await;
        let mut items = Vec::new();
        let Ok(through) = scene.log.next_batch(512, &mut items) else { return };
        sleep(Duration::from_micros(10 + prng.below(2000))).await;
        let done = scene.trims.get().done;
        scene.trims.set(Trims { done, asked: through });
        if scene.log.trim(through, through * 2).await.is_err() {
            return;
        }
        scene.trims.set(Trims { done: through, asked: through });
    }
}

async fn drives_story(seed: u64, with_memory: bool, faults: SimulatedFaults) {
    let mut prng = Prng::new(seed);
    let pair = Pair::new(&mut prng, with_memory);
    let log = Log::create(pair.device(), BYTES, RING).await.unwrap();
    let histories = RefCell::new((0..WRITERS).map(|_| History::default()).collect());
    let mut scene = Rc::new(Scene { log, histories, trims: Cell::default() });
    let mut liar = 0;
    for life in 0..4 {
        // One that the log uses no more since it was opened leaves no other to lie.
        if scene.log.status().failed_devices == 0 {
            liar = usize64(prng.below(2));
        }
        pair.drives[liar].set_faults(faults);
        let mut tasks: Vec<_> = (0..WRITERS)
            .map(|n| {
                let prng = Prng::new(prng.next_u64());
                spawn(writer(Rc::clone(&scene), n, life, prng))
            })
            .collect();
        tasks.push(spawn(destage(Rc::clone(&scene), Prng::new(prng.next_u64()))));
        sleep(Duration::from_micros(prng.below(60_000))).await;
        for task in tasks {
            task.abort();
        }
        pair.power_cut(&mut prng);
        let (log, opened) = Log::open(pair.device(), BYTES, RING).await.unwrap();
        pair.drives[0].set_faults(SimulatedFaults::default());
        pair.drives[1].set_faults(SimulatedFaults::default());
        let story = format!("seed {seed}, life {life}");
        let trims = scene.trims.get();
        assert!([trims.done, trims.asked].contains(&opened.trimmed), "{story}: {opened:?}");
        assert_eq!(opened.durable_stripe, opened.trimmed * 2, "{story}");
        let mut histories = scene.histories.take();
        for (n, history) in histories.iter_mut().enumerate() {
            history.check(&log, low32(u64_of(n)), opened.trimmed, &story);
        }
        let trims = Trims { done: opened.trimmed, asked: opened.trimmed };
        let histories = RefCell::new(histories);
        scene = Rc::new(Scene { log, histories, trims: Cell::new(trims) });
    }
}

#[test]
fn drives_recover_what_was_acknowledged_from_any_crash() {
    for seed in 0..20 {
        let faults = SimulatedFaults::default();
        simulate_in(seed, Order::Shuffled, drives_story(seed, seed % 2 == 1, faults));
    }
}

#[test]
fn two_drives_bear_one_that_lies() {
    let faults = SimulatedFaults {
        read_error_ppm: 50_000,
        write_error_ppm: 2_000,
        latent_ppm: 20_000,
        rot_ppm: 20_000,
        lost_ppm: 20_000,
        slow_ppm: 1_000,
        ..SimulatedFaults::default()
    };
    for seed in 500..520 {
        simulate_in(seed, Order::Shuffled, drives_story(seed, seed % 2 == 1, faults));
    }
}

/// What one of two memories had of a record that power cut short was stored in the other at the next opening, which was
/// cut short, too. Then the first was lost, and the log was refused although nobody had been told of that record.
#[test]
fn what_an_opening_stores_again_is_there_before_the_log_says_so() {
    for seed in 0..60 {
        for lines in 1..16 {
            simulate(seed, async move {
                let (memories, mut prng) = (Memories::new(2), Prng::new(seed));
                let log = Log::create(memories.device(), BYTES, RING).await.unwrap();
                write(&log, key(1, 0), 0..1).await;
                memories.sides[1].cut_after(1);
                let hole = Append::Hole { key: key(1, 5), count: 1 };
                log.append(hole).await.unwrap();
                assert!(memories.is_cut());
                drop(log);
                memories.crash(&mut prng);
                memories.sides[1].cut_after(lines);
                drop(Log::open(memories.device(), BYTES, RING).await);
                memories.crash(&mut prng);
                let Device::Memory(areas) = memories.device() else { panic!("memory") };
                let opened = Log::open(Device::Memory(areas[1..].to_vec()), BYTES, RING).await;
                let (log, _) =
                    opened.unwrap_or_else(|error| panic!("seed {seed}, {lines} lines: {error}"));
                assert_eq!(tag(&log, key(1, 0)), Some(0));
            });
        }
    }
}

#[test]
fn the_fence_behind_what_an_opening_stores_is_missed() {
    misses(
        Step::RecoverFence,
        "lines",
        what_an_opening_stores_again_is_there_before_the_log_says_so,
    );
}

/// A block that was put right from a mirror, which then died, was damaged again after a power cut.
#[test]
fn what_was_put_right_from_a_mirror_stays_right() {
    for seed in 0..16 {
        simulate(seed, async move {
            let (memories, mut prng) = (Memories::new(2), Prng::new(seed));
            let log = Log::create(memories.device(), BYTES, RING).await.unwrap();
            write(&log, key(1, 0), 7..8).await;
            let bytes = memories.sides[0].contents();
            let at = bytes.windows(BLOCK).position(|piece| piece == block(7)).unwrap();
            memories.sides[0].rot(u64_of(at) + 100);
            assert_eq!(tag(&log, key(1, 0)), Some(7));
            drop(log);
            memories.crash(&mut prng);
            let Device::Memory(areas) = memories.device() else { panic!("memory") };
            let opened = Log::open(Device::Memory(areas[..1].to_vec()), BYTES, RING).await;
            let (log, _) = opened.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_eq!(tag(&log, key(1, 0)), Some(7), "seed {seed}");
        });
    }
}

#[test]
fn the_fence_behind_what_was_put_right_is_missed() {
    misses(Step::RepairFence, "seed", what_was_put_right_from_a_mirror_stays_right);
}

/// The log had forgotten a record, and the first one to come over it was cut short: what says where the log begins was
/// gone with it, and the blocks that the drives had were lost in the log.
#[test]
fn where_the_log_begins_is_there_before_anything_is_written_over() {
    for seed in 0..32 {
        simulate(seed, async move {
            let (memories, mut prng) = (Memories::new(1), Prng::new(seed));
            let log = Log::create(memories.device(), BYTES, RING).await.unwrap();
            // The first record alone fits a batch.
            write(&log, key(2, 0), 5000..5000 + u64_of(RECORD_BLOCKS_MAX)).await;
            let mut full = 0;
            let next = |n: u64| write(&log, key(1, n), n..n + 1);
            while timeout(Duration::from_millis(1), next(full)).await.is_ok() {
                full += 1;
            }
            let mut items = Vec::new();
            let through = log.next_batch(RECORD_BLOCKS_MAX, &mut items).unwrap();
            assert_eq!(through, 1);
            log.trim(through, 0).await.unwrap();
            // The next one comes to lie over that, as far as it gets.
            memories.sides[0].cut_after(1 + 300 * (seed % 8));
            let blocks = [16, 64, 128, 200][usize64(seed / 8)];
            let over = write(&log, key(2, 0), 1000..1000 + blocks);
            let _ = timeout(Duration::from_millis(1), over).await;
            memories.sides[0].cut_after(0);
            drop(log);
            memories.crash(&mut prng);
            let opened = Log::open(memories.device(), BYTES, RING).await;
            let (log, opened) = opened.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            // What was trimmed is on the drives: nobody may be told that it is lost.
            assert_eq!(opened.lost_blocks, 0, "seed {seed}");
            assert!(full > 8);
            for n in 0..full {
                assert_eq!(tag(&log, key(1, n)), Some(n), "seed {seed}: record {n} of {full}");
            }
        });
    }
}

#[test]
fn the_fence_behind_a_control_block_is_missed() {
    misses(
        Step::ControlFence,
        "seed",
        where_the_log_begins_is_there_before_anything_is_written_over,
    );
}
