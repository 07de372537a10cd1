//! The shape of a pool, and what goes wrong with its media.

use engine::PoolSpec;
use media::drive::SimulatedFaults;
use raid::Scheme;
use std::time::Duration;
use stdx::Prng;
use stdx::num::{u64_of, usize64};

const MIB: u64 = 1 << 20;

/// Where the commit log lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogShape {
    /// This many persistent memories, mirrors of each other.
    Pmem(usize),
    Drives,
}

/// What a pool is made of.
#[derive(Clone, Debug)]
pub struct Shape {
    pub scheme: Scheme,
    /// Capacity of each drive in bytes.
    pub drives: Vec<u64>,
    /// Likewise of those that may be added later.
    pub later: Vec<u64>,
    pub volatile_caches: bool,
    /// Shards the pool is cut into, all on the one reactor there is.
    pub shards: u16,
    pub log: LogShape,
    /// Of all shards together.
    pub log_bytes: u64,
    pub faults: Faults,
}

/// What goes wrong, never beyond what the redundancy bears but for rot of contents and disasters.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// The drives that may fail in any way; the others are perfect.
    pub drives: Vec<usize>,
    pub kinds: SimulatedFaults,
    /// One of them dies so long after a life begins, and in which life.
    pub death: Option<(usize, usize, Duration)>,
    /// Of all drives: operations that take a hundred times as long.
    pub slow_ppm: u32,
    /// Drives that go silent, so long after a life begins, and for how long.
    pub stalls: Vec<Stall>,
    /// More drives than the redundancy bears are away from some moment of a life to its end.
    pub disaster: Option<Disaster>,
    /// Bits of contents rot at some moment, on all drives at once.
    pub rot: Option<Rot>,
    /// The commit log, or one of its two devices, is gone when a life begins.
    pub log_losses: Vec<LogLoss>,
    /// What rots whenever all of the log is lost.
    pub unit_rot: Option<UnitRot>,
}

impl Faults {
    /// What happens to the log before a life begins.
    pub fn log_loss(&self, life: usize) -> Option<LogLoss> {
        self.log_losses.iter().find(|loss| loss.life == life).copied()
    }
}

/// Devices of the commit log that are blank when a life begins.
#[derive(Clone, Copy, Debug)]
pub struct LogLoss {
    pub life: usize,
    /// All of them, or this one.
    pub device: Option<usize>,
    /// Opened as if nothing were lost first, which is refused.
    pub asks: bool,
}

/// Units of stripes that rot, whatever they hold, on no more drives than the redundancy bears.
#[derive(Clone, Debug)]
pub struct UnitRot {
    pub drives: Vec<usize>,
    /// Blocks hit, of a million.
    pub ppm: u32,
}

/// Contents that rot.
#[derive(Clone, Copy, Debug)]
pub struct Rot {
    pub life: usize,
    pub after: Duration,
    /// Blocks hit, of a million.
    pub ppm: u32,
    /// Those in the commit log, too.
    pub log: bool,
}

/// A drive that is silent for a while.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    pub drive: usize,
    pub after: Duration,
    pub span: Duration,
}

/// Drives that are away for the rest of one life.
#[derive(Clone, Debug)]
pub struct Disaster {
    pub life: usize,
    pub after: Duration,
    pub drives: Vec<usize>,
}

fn pick<T: Copy>(prng: &mut Prng, of: &[T]) -> T {
    of[usize64(prng.below(u64_of(of.len())))]
}

impl Shape {
    pub fn new(prng: &mut Prng, lives: usize) -> Self {
        let (scheme, least, most) = match prng.below(8) {
            0 => (Scheme::Single, 1, 3),
            1 => (Scheme::Mirror { copies: 2 }, 2, 4),
            2 => (Scheme::Mirror { copies: 3 }, 3, 4),
            3 | 4 => (Scheme::Raid5, 3, 5),
            _ => (Scheme::Raid6, 4, 8),
        };
        let count = usize64(least + prng.below(most - least + 1));
        let log = match prng.below(4) {
            0 => LogShape::Drives,
            1 => LogShape::Pmem(2),
            _ => LogShape::Pmem(1),
        };
        let shards = 1 + prng.below(8).saturating_sub(4);
        let log_bytes = (3 + prng.below(4)) * MIB * shards;
        // Every shard wants some segments.
        let base = (8 + 18 * shards + prng.below(32)) * MIB + log_bytes;
        let mut shape = Self {
            scheme,
            drives: (0..count).map(|_| base + prng.below(8) * MIB).collect(),
            later: Vec::new(),
            volatile_caches: prng.below(4) > 0,
            shards: u16::try_from(shards).unwrap_or(1),
            log,
            log_bytes,
            faults: Faults::default(),
        };
        shape.faults = shape.faults(prng, lives);
        shape
    }

    /// Where each drive has its zone of the log, if it has one.
    pub fn zones_at(&self) -> u64 {
        let smallest = self.drives.iter().copied().min().unwrap_or(0);
        engine::format::catalog::CatalogArea::for_drive(smallest).end()
    }

    /// More of what goes wrong, from a source of its own, so that what seeds meant before stays.
    pub fn add(&mut self, prng: &mut Prng, lives: usize, tiny: bool) {
        if tiny {
            let log = if self.log == LogShape::Drives { self.log_bytes } else { 0 };
            let base = (21 + prng.below(4)) * MIB + log;
            self.drives.iter_mut().for_each(|bytes| *bytes = base);
            // More need more space than that.
            self.shards = 1;
        }
        let count = u64_of(self.drives.len());
        if !self.faults.drives.is_empty() {
            let kinds = &mut self.faults.kinds;
            kinds.write_error_ppm = pick(prng, &[0, 0, 0, 100, 2_000]);
            kinds.flush_error_ppm = pick(prng, &[0, 0, 0, 1_000, 20_000]);
        }
        let stalls = [0, 0, 0, 1, 3][usize64(prng.below(5))];
        let mut stall = || Stall {
            drive: usize64(prng.below(count)),
            after: Duration::from_micros(1 << prng.below(16)),
            span: Duration::from_millis(1 << prng.below(13)),
        };
        self.faults.stalls = (0..stalls).map(|_| stall()).collect();
        if self.faults.drives.is_empty() && prng.below(5) == 0 {
            let lost = u64_of(self.redundancy()) + 1;
            let first = prng.below(count);
            self.faults.disaster = Some(Disaster {
                life: usize64(prng.below(u64_of(lives))),
                after: Duration::from_micros(1 << prng.below(15)),
                drives: (0..lost).map(|n| usize64((first + n) % count)).collect(),
            });
        }
    }

    /// Rot came last. Where nothing else damages what is not contents.
    pub fn add_rot(&mut self, prng: &mut Prng, lives: usize) {
        let faults = &mut self.faults;
        if !faults.drives.is_empty() || faults.disaster.is_some() || prng.below(3) > 0 {
            return;
        }
        faults.rot = Some(Rot {
            life: usize64(prng.below(u64_of(lives))),
            after: Duration::from_micros(1 << prng.below(16)),
            ppm: pick(prng, &[10_000, 100_000, 500_000, 1_000_000]),
            log: prng.below(2) == 0,
        });
    }

    /// The commit log is lost once at least.
    pub fn add_log_losses(&mut self, prng: &mut Prng, lives: usize) {
        let devices = match self.log {
            LogShape::Pmem(count) => count,
            LogShape::Drives => self.drives.len().min(2),
        };
        // One zone is all there is where the other's drive may be lost.
        let is_mirrored = match self.log {
            LogShape::Pmem(_) => devices == 2,
            LogShape::Drives => self.redundancy() > 0 && self.faults.drives.is_empty(),
        };
        let certain = 1 + prng.below(u64_of(lives) - 1);
        for life in 1..lives {
            let is_certain = u64_of(life) == certain;
            if !is_certain && prng.below(3) > 0 {
                continue;
            }
            let whole = is_certain || !is_mirrored || prng.below(2) == 0;
            let device = (!whole).then(|| usize64(prng.below(u64_of(devices))));
            self.faults.log_losses.push(LogLoss { life, device, asks: prng.below(2) == 0 });
        }
    }

    /// Where the log is lost, units rot on as many drives as the redundancy bears, or more drives than that are away.
    /// Not both: of those that are away as many may be left out of the pool for good as it bears.
    pub fn add_losses_beside_log(&mut self, prng: &mut Prng) {
        let count = u64_of(self.drives.len());
        let (first, most) = (prng.below(count), u64_of(self.redundancy()));
        let some = |lost: u64| (0..lost).map(|n| usize64((first + n) % count)).collect();
        let ppm = pick(prng, &[10_000, 100_000, 500_000, 1_000_000]);
        match prng.below(4) {
            0 => {}
            1 if self.faults.drives.is_empty() => {
                self.faults.unit_rot = Some(UnitRot { drives: some(most), ppm });
            }
            // The bad ones are all that it bears.
            1 => self.faults.unit_rot = Some(UnitRot { drives: self.faults.drives.clone(), ppm }),
            _ if self.faults.drives.is_empty() => self.add_disaster(prng, some(most + 1)),
            _ => {}
        }
    }

    /// Drives are away from some moment on, mostly while the pool is opened without its log.
    fn add_disaster(&mut self, prng: &mut Prng, drives: Vec<usize>) {
        // One of those may have had what the other device of the log has not.
        self.faults.log_losses.retain(|loss| loss.device.is_none());
        let lost: Vec<usize> = self.faults.log_losses.iter().map(|loss| loss.life).collect();
        let life = pick(prng, &lost) - usize::from(prng.below(4) == 0);
        let most = 1 << (10 + prng.below(8));
        let after = Duration::from_micros(prng.below(most));
        self.faults.disaster = Some(Disaster { life, after, drives });
    }

    /// As many drives are bad as the redundancy bears, where there are any and the log is on drives.
    pub fn add_bad_drives(&mut self, prng: &mut Prng) {
        if self.log != LogShape::Drives || self.faults.drives.is_empty() {
            return;
        }
        while self.faults.drives.len() < self.redundancy() {
            let n = usize64(prng.below(u64_of(self.drives.len())));
            if !self.faults.drives.contains(&n) {
                self.faults.drives.push(n);
            }
        }
    }

    /// Some drives may be added, none smaller than the smallest there is.
    pub fn add_later(&mut self, prng: &mut Prng) {
        let least = self.drives.iter().copied().min().unwrap_or(0);
        let count = 1 + prng.below(3);
        self.later = (0..count).map(|_| least + prng.below(16) * MIB).collect();
    }

    /// Bytes of each drive, those that may be added later included.
    pub fn all_drives(&self) -> impl Iterator<Item = u64> {
        self.drives.iter().chain(&self.later).copied()
    }

    /// So many drives, of this redundancy.
    pub fn have_halves(&mut self, scheme: Scheme, count: usize) {
        self.scheme = scheme;
        let bytes = self.drives[0];
        self.drives.resize(count, bytes);
    }

    /// Two drives may be lost.
    pub fn bear_two(&mut self) {
        self.scheme = Scheme::Raid6;
        let bytes = self.drives[0];
        self.drives.resize(self.drives.len().max(4), bytes);
    }

    /// Drives that may be lost.
    pub fn redundancy(&self) -> usize {
        usize::from(self.scheme.shape(self.drives.len()).map_or(0, |shape| shape.parity))
    }

    fn faults(&self, prng: &mut Prng, lives: usize) -> Faults {
        let slow_ppm = pick(prng, &[0, 0, 1_000, 20_000]);
        // Where the log is on drives more of them may be bad, which came later: see `add_bad_drives`.
        let bears = if self.log == LogShape::Drives { 1 } else { usize::MAX };
        let bad = self.redundancy().min(bears);
        if bad == 0 || prng.below(2) == 0 {
            return Faults { slow_ppm, ..Faults::default() };
        }
        let mut all: Vec<usize> = (0..self.drives.len()).collect();
        let drives: Vec<usize> =
            (0..bad).map(|_| all.swap_remove(usize64(prng.below(u64_of(all.len()))))).collect();
        let death = (prng.below(3) == 0).then(|| {
            let life = usize64(prng.below(u64_of(lives)));
            (pick(prng, &drives), life, Duration::from_micros(1 << prng.below(15)))
        });
        let mut rate = || pick(prng, &[0, 0, 0, 1_000, 20_000]);
        let kinds = SimulatedFaults {
            read_error_ppm: rate(),
            write_error_ppm: 0,
            flush_error_ppm: 0,
            latent_ppm: rate(),
            rot_ppm: rate(),
            lost_ppm: rate(),
            misdirected_ppm: rate(),
            slow_ppm,
        };
        Faults { drives, kinds, death, slow_ppm, ..Faults::default() }
    }

    /// What is asked of the engine, drives and log devices left out.
    pub fn spec(&self, id: u64) -> PoolSpec {
        let mut bytes = [0; 16];
        Prng::new(id).fill(&mut bytes);
        PoolSpec {
            name: "pool".into(),
            id: bytes,
            drives: Vec::new(),
            scheme: self.scheme,
            log: engine::LogSpec::Drives,
            log_bytes: Some(self.log_bytes),
            shards: Some(self.shards),
            au_bytes: Some(MIB),
            created: 0,
        }
    }
}
