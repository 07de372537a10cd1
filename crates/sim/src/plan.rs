//! What a seed means: the shape of the pool, the workload, and how each life of the array ends.

mod later;
mod remote;
mod windows;

use crate::rough::Rough;
use crate::shape::{Faults, LogShape, Shape};
use engine::Discards;
pub use remote::Remote;
use std::ops::Range;
use std::time::Duration;
use stdx::Prng;
use stdx::num::{usize32, usize64};
pub use windows::Windows;

/// How one life of the array, from opening to whatever ends it, ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The workload comes to its end, and the pool is closed.
    Closed,
    /// Likewise, and exported: the next life imports it, without the log it had.
    Exported,
    /// The process is killed: caches of drives survive that.
    Killed(Duration),
    /// Power fails.
    PowerCut(Duration),
    /// Power fails when so many lines were stored to persistent memory: in the midst of whatever
    /// stores them. Where there is none, or not so much is stored, after this long.
    PowerCutInStore(u64, Duration),
    /// Power fails in place of this fence of persistent memory. Likewise.
    PowerCutAtFence(u64, Duration),
}

/// How often a host does what, in parts of their sum.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    pub write: u32,
    pub read: u32,
    pub zero: u32,
    pub deallocate: u32,
    pub flush: u32,
    pub rest: u32,
}

/// Everything a run does that does not depend on how it went.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// Tasks run in an order of chance.
    pub shuffled: bool,
    /// Tasks that each have one operation at a time.
    pub hosts: u32,
    /// Operations of each host in a life that is closed.
    pub operations: u32,
    pub mix: Mix,
    /// The most blocks of one operation.
    pub longest: u64,
    /// Of a hundred operations, those within the hot blocks.
    pub hot_percent: u64,
    pub hot_blocks: u64,
    /// Sizes of volumes in blocks.
    pub sizes: Range<u64>,
    /// The most volumes at once.
    pub volumes: u64,
    /// Of a hundred operations, those whose host goes away before they are answered.
    pub impatience: u64,
    /// How long such hosts wait at most, in doublings of a nanosecond.
    pub patience: u64,
    /// Of a hundred operations, those that copy.
    pub copy_percent: u64,
    /// Of a hundred copies, those whose source is deallocated at the same time.
    pub move_percent: u64,
    /// Of a hundred volumes, those with blocks of 512 bytes.
    pub small_percent: u64,
    /// The pool is as small as can be, and the hosts fill it.
    pub tiny: bool,
    /// Of ten thousand operations, those that have everything carried to the drives.
    pub settles: u64,
    /// Free space is given back to the drives.
    pub discards: Option<Discards>,
    /// Of a hundred changes of volumes, those that nobody makes room for: hosts go on meanwhile.
    pub beside_percent: u64,
    pub rough: Option<Rough>,
    /// Maps have tiny tables, and many levels.
    pub small_maps: bool,
    /// The log moves from some devices to others beside what hosts do.
    pub moves_log: bool,
    /// Of a hundred operations, those that have to do with snapshots.
    pub snapshot_percent: u64,
    /// Of a hundred volumes, those that have all of their size reserved, if there is room for that.
    pub reserve_percent: u64,
    /// The pool is scrubbed beside everything else, by a node that goes on where it was cut short.
    pub scrubs: bool,
    /// After lives a daemon starts with whatever is there, and with nobody to ask; some drives go elsewhere meanwhile.
    pub starts: bool,
    /// Writes are to wait, at times, while one of two places alone has the log.
    pub log_waits: bool,
    /// What a process has in flight outlives it.
    pub outlives: bool,
    /// Hosts reach it over a simulated network.
    pub network: bool,
    /// Hosts have direct write windows.
    pub windows: Option<Windows>,
    /// A namespace of another target has the log.
    pub remote: Option<Remote>,
    /// Reactors: the shards live on them by turns, beginning with this one, and hosts are on all of them.
    pub reactors: usize,
    pub first_reactor: usize,
    pub lives: Vec<Ending>,
    pub shape: Shape,
}

/// A length from 1 to `most`, short ones as likely as long ones of twice the length.
pub fn length(prng: &mut Prng, most: u64) -> u64 {
    let doublings = u64::from(most.ilog2()) + 1;
    let limit = (1 << prng.below(doublings)).min(most);
    1 + prng.below(limit)
}

fn span(prng: &mut Prng, least: Duration, doublings: u64) -> Duration {
    let factor = 1u64 << prng.below(doublings);
    let nanos = u64::try_from(least.as_nanos()).unwrap_or(u64::MAX >> doublings) * factor;
    Duration::from_nanos(nanos + prng.below(nanos))
}

impl Plan {
    pub fn new(seed: u64) -> Self {
        let mut plan = Self::base(seed);
        plan.cuts_at_fences(&mut Prng::new(seed ^ 0x5eed_0fe4_ce00_0001));
        let mut prng = Prng::new(seed ^ 0x5eed_0109_304e_0001);
        let is_memory = matches!(plan.shape.log, LogShape::Pmem(_));
        plan.moves_log = is_memory && plan.shape.faults.rot.is_none() && prng.below(3) == 0;
        plan
    }

    /// Power fails anywhere but in place of fences, and the log stays where it is.
    fn base(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let p = &mut prng;
        let mix = Mix {
            write: 20 + weight(p),
            read: weight(p),
            zero: weight(p) / 4,
            deallocate: weight(p) / 4,
            flush: weight(p) / 8,
            rest: weight(p) / 2,
        };
        let mut lives: Vec<Ending> = (0..2 + p.below(4)).map(|_| ending(p)).collect();
        lives.push(Ending::Closed);
        let mut plan = Self {
            seed,
            shuffled: p.below(2) == 0,
            hosts: 1 << p.below(5),
            operations: stdx::num::low32(10 << p.below(4)),
            mix,
            longest: [1, 8, 64, 256][usize64(p.below(4))],
            hot_percent: p.below(100),
            hot_blocks: 1 << p.below(8),
            sizes: 1..1 << (4 + p.below(10)),
            volumes: 1 + p.below(4),
            impatience: 0,
            patience: 24,
            copy_percent: 0,
            move_percent: 0,
            small_percent: 0,
            tiny: false,
            settles: 0,
            discards: None,
            beside_percent: 0,
            rough: None,
            small_maps: false,
            moves_log: false,
            snapshot_percent: 0,
            reserve_percent: 0,
            scrubs: false,
            starts: false,
            log_waits: false,
            outlives: false,
            network: false,
            windows: None,
            remote: None,
            reactors: 1,
            first_reactor: 0,
            shape: Shape::new(p, lives.len()),
            lives,
        };
        plan.add(&mut Prng::new(seed ^ 0x5eed_0f3a_11b1_7500));
        // Copies came later still.
        let mut prng = Prng::new(seed ^ 0x5eed_0fc0_b1e5_0001);
        plan.copy_percent = [0, 5, 20, 50][usize64(prng.below(4))];
        if plan.tiny && plan.copy_percent > 0 {
            // So much that reclaim comes to what was copied.
            plan.operations *= 3;
        }
        // Discards likewise.
        let mut prng = Prng::new(seed ^ 0x5eed_0d15_ca4d_0001);
        if prng.below(2) == 0 {
            let after = Duration::from_micros(1 << (4 + prng.below(12)));
            let bytes_per_second = 1 << (30 + prng.below(8));
            plan.discards = Some(Discards { after, bytes_per_second });
        }
        let lives = plan.lives.len();
        plan.shape.add_rot(&mut Prng::new(seed ^ 0x5eed_0b17_0707_0001), lives);
        if plan.shape.faults.rot.is_some() {
            // Whose parts are lost with the whole: the model knows whole blocks only.
            plan.small_percent = 0;
        }
        plan
    }

    /// Power fails between stores and what makes them last, too: chance has that hardly ever.
    fn cuts_at_fences(&mut self, prng: &mut Prng) {
        for ending in &mut self.lives {
            if let Ending::PowerCutInStore(_, span) = *ending
                && prng.below(2) == 0
            {
                *ending = Ending::PowerCutAtFence(length(prng, 1 << 8), span);
            }
        }
    }

    /// A workload that moves things about in a pool with hardly any space: shared blocks are emptied out
    /// of the segments they were born in, and looked for by sweeps while the only reference to them
    /// is on its way through the log. Chance has that hardly ever.
    pub fn moves(seed: u64) -> Self {
        let mut plan = Self::new(seed);
        let mut prng = Prng::new(seed ^ 0x5eed_0307_e500_0001);
        plan.shape.scheme = raid::Scheme::Raid5;
        plan.shape.drives = vec![0; 3];
        plan.shape.log = LogShape::Pmem(1);
        plan.shape.log_bytes = 3 << 20;
        plan.shape.add(&mut Prng::new(0), 0, true);
        plan.shape.faults = Faults::default();
        plan.tiny = true;
        plan.hosts = 16;
        plan.operations = 300;
        plan.longest = 64;
        plan.mix = Mix { write: 60, read: 5, zero: 0, deallocate: 1, flush: 0, rest: 2 };
        plan.sizes = 1 << 12..1 << 13;
        plan.hot_percent = 20;
        plan.hot_blocks = 1 << 9;
        plan.volumes = 2;
        plan.impatience = 0;
        plan.small_percent = 0;
        plan.moves_log = false;
        plan.copy_percent = 50;
        plan.move_percent = 50 + prng.below(50);
        plan.lives = vec![Ending::Killed(Duration::from_millis(20)), Ending::Closed];
        plan
    }

    /// What the seed means otherwise, and the commit log is lost between lives.
    pub fn loses_log(seed: u64) -> Self {
        let mut plan = Self::base(seed);
        let mut prng = Prng::new(seed ^ 0x5eed_0109_1055_0001);
        let rot = plan.shape.faults.rot.take();
        plan.shape.faults.disaster = None;
        plan.settles = [0, 20, 200, 1000][usize64(prng.below(4))];
        plan.shape.add_log_losses(&mut prng, plan.lives.len());
        let mut prng = Prng::new(seed ^ 0x5eed_070a_4e57_0001);
        if prng.below(2) == 0 {
            plan.tears(&mut prng);
        }
        let mut prng = Prng::new(seed ^ 0x5eed_0057_12b3_0001);
        if prng.below(2) == 0 {
            plan.leaves_stripes(&mut prng);
        }
        match rot {
            Some(rot) if prng.below(2) == 0 => plan.shape.faults.rot = Some(rot),
            _ => plan.shape.add_losses_beside_log(&mut prng),
        }
        plan.lives_to_its_disaster();
        plan
    }

    /// A pool with room for much more, which hosts write to for long, all over: its maps have many levels.
    pub fn large(seed: u64) -> Self {
        let mut plan = Self::new(seed);
        let mut prng = Prng::new(seed ^ 0x5eed_01a4_6e00_0001);
        plan.tiny = false;
        plan.small_maps = true;
        let more = 4 + prng.below(8);
        plan.shape.drives.iter_mut().for_each(|bytes| *bytes *= more);
        plan.sizes = 1 << 13..1 << 15;
        plan.volumes = 2;
        (plan.hot_percent, plan.hot_blocks) = (10, 1 << 10);
        plan.mix.write += 60;
        plan.longest = [1, 16, 64][usize64(prng.below(3))];
        (plan.hosts, plan.operations) = (8, 600);
        plan.lives.truncate(3);
        plan.lives.push(Ending::Closed);
        plan
    }

    /// An operator opens the pool with whatever drives and log devices are at hand, and volumes are changed beside I/O.
    pub fn operator(seed: u64) -> Self {
        Self::roughly(seed, |_| Rough { tries: 4, ..Rough::default() })
    }

    /// Likewise, and several things go wrong at once.
    pub fn rough(seed: u64) -> Self {
        Self::roughly(seed, Rough::any)
    }

    /// Drives come and go while the pool is open, and an operator opens it with whatever is at hand.
    pub fn returns(seed: u64) -> Self {
        let rough = Rough { tries: 2, old_copies: true, returns: true, ..Rough::default() };
        let mut plan = Self::roughly(seed, |_| rough);
        let mut prng = Prng::new(seed ^ 0x5eed_04e7_0245_0001);
        if plan.shape.redundancy() == 0 || prng.below(2) == 0 {
            plan.shape.bear_two();
        }
        if plan.shape.log != LogShape::Drives && prng.below(2) == 0 {
            plan.shape.log = LogShape::Drives;
            plan.shape.drives.iter_mut().for_each(|bytes| *bytes += plan.shape.log_bytes);
        }
        // Little that hosts do, over lives so long that drives become whole in most of them.
        plan.hosts = plan.hosts.min(4);
        plan.mix.rest += 60;
        plan.operations = plan.operations.max(100);
        for ending in &mut plan.lives {
            let span = span(&mut prng, Duration::from_millis(4), 9);
            match ending {
                Ending::Killed(after) | Ending::PowerCut(after) => *after = span,
                Ending::PowerCutInStore(..) | Ending::PowerCutAtFence(..) => {
                    *ending = Ending::PowerCut(span);
                }
                Ending::Closed | Ending::Exported => {}
            }
        }
        plan
    }

    /// Two hosts reach one volume over a network that is cut, machines stop, hosts and targets are killed. The pool and
    /// its drives are sound.
    pub fn network(seed: u64) -> Self {
        let mut plan = Self::new(seed);
        let mut prng = Prng::new(seed ^ 0x5eed_0e7e_0000_0001);
        plan.network = true;
        (plan.tiny, plan.moves_log, plan.discards) = (false, false, None);
        plan.shape.faults = Faults::default();
        plan.reactors = 1 + usize64(prng.below(3));
        plan.first_reactor = usize64(prng.below(3)) % plan.reactors;
        let life = |prng: &mut Prng| {
            let after = span(prng, Duration::from_millis(5), 11);
            if prng.below(2) == 0 { Ending::Killed(after) } else { Ending::PowerCut(after) }
        };
        plan.lives = (0..prng.below(3)).map(|_| life(&mut prng)).collect();
        plan.lives.push(Ending::Closed);
        plan
    }

    /// Shards and hosts on several reactors. Many hosts go away while what they asked for is on its way to another one,
    /// and others come to the same blocks.
    pub fn crosses(seed: u64) -> Self {
        let mut plan = Self::new(seed);
        let mut prng = Prng::new(seed ^ 0x5eed_0c40_55e5_0001);
        let shards = 2 + prng.below(3);
        let more = (8 + 18 * shards) << 20;
        plan.shape.drives.iter_mut().for_each(|bytes| *bytes = (*bytes).max(more));
        if plan.shape.shards < 2 {
            let log = plan.shape.log_bytes * (shards - 1);
            plan.shape.log_bytes += log;
            plan.shape.drives.iter_mut().for_each(|bytes| *bytes += more + log);
            plan.shape.shards = stdx::num::low16(shards);
        }
        plan.tiny = false;
        plan.hosts = 4 << prng.below(3);
        plan.operations = plan.operations.min(100);
        plan.mix.write += 60;
        plan.mix.read += 30;
        (plan.impatience, plan.patience) = (20 + prng.below(50), 10 + prng.below(8));
        (plan.hot_percent, plan.hot_blocks) = (80, 1 << prng.below(5));
        plan.longest = [1, 8, 64][usize64(prng.below(3))];
        plan.reactors = 2 + usize64(prng.below(2));
        plan.first_reactor = usize64(prng.below(3)) % plan.reactors;
        plan
    }

    /// One of the others, and snapshots beside it.
    pub fn snapshots(seed: u64) -> Self {
        let mut prng = Prng::new(seed ^ 0x5eed_051a_b507_0001);
        let mut plan = match prng.below(8) {
            0..3 => Self::new(seed),
            3 => Self::moves(seed),
            4 => Self::large(seed),
            5 => Self::crosses(seed),
            6 => Self::returns(seed),
            _ => Self::rough(seed),
        };
        plan.snapshot_percent = [1, 3, 10][usize64(prng.below(3))];
        plan
    }

    /// A full pool in which some volumes have all of their size reserved: snapshots come and go, hosts write and give back.
    pub fn reserves(seed: u64) -> Self {
        let mut plan = Self::moves(seed);
        let mut prng = Prng::new(seed ^ 0x5eed_0e5e_0000_0001);
        plan.copy_percent = [0, 5, 20][usize64(prng.below(3))];
        let deallocate = [4, 30][usize64(prng.below(2))];
        plan.mix = Mix { write: 60, read: 5, zero: 0, deallocate, flush: 0, rest: 2 };
        plan.snapshot_percent = [0, 1, 3][usize64(prng.below(3))];
        // Some have all of their size reserved, and those that have not want more together than there is.
        plan.reserve_percent = 50;
        plan.volumes = 8;
        plan.sizes = [1 << 8..1 << 10, 1 << 9..1 << 11][usize64(prng.below(2))].clone();
        plan.hot_percent = [0, 0, 20][usize64(prng.below(3))];
        plan.hosts = [4, 8, 16][usize64(prng.below(3))];
        plan
    }

    fn roughly(seed: u64, rough: impl FnOnce(&mut Prng) -> Rough) -> Self {
        let mut plan = Self::new(seed);
        let mut prng = Prng::new(seed ^ 0x5eed_0906_4000_0001);
        let slow_ppm = plan.shape.faults.slow_ppm;
        plan.shape.faults = Faults { slow_ppm, ..Faults::default() };
        plan.shape.faults.kinds.slow_ppm = slow_ppm;
        plan.rough = Some(rough(&mut prng));
        plan.moves_log = false;
        plan.beside_percent = [0, 30, 100][usize64(prng.below(3))];
        // Of what is opened often there is little to look at each time.
        plan.operations = plan.operations.min(300);
        plan.lives.extend((0..prng.below(4)).map(|_| ending(&mut prng)));
        plan.lives.push(Ending::Closed);
        plan
    }

    /// No life ends before drives go away in it.
    fn lives_to_its_disaster(&mut self) {
        let Some(disaster) = &self.shape.faults.disaster else { return };
        let least = 2 * disaster.after;
        let (Ending::Killed(span)
        | Ending::PowerCut(span)
        | Ending::PowerCutInStore(_, span)
        | Ending::PowerCutAtFence(_, span)) = &mut self.lives[disaster.life]
        else {
            return;
        };
        *span = least.max(*span);
    }

    /// The log is lost with many stripes outstanding since the last checkpoint.
    fn leaves_stripes(&mut self, prng: &mut Prng) {
        self.settles = 0;
        self.hosts = self.hosts.max(4);
        self.mix.write += 100;
        self.longest = self.longest.max(64);
        // What is overwritten in the log never comes to be in a stripe.
        self.sizes = 1 << 9..1 << 12;
        self.hot_percent /= 4;
        for loss in self.shape.faults.log_losses.iter().filter(|loss| loss.device.is_none()) {
            let after = span(prng, Duration::from_millis(8), 4);
            let ending = if prng.below(2) == 0 { Ending::Killed } else { Ending::PowerCut };
            self.lives[loss.life - 1] = ending(after);
        }
    }

    /// Whether the log is watched for what has left it. Not where contents rot on all drives at once: of the stripes
    /// since the last checkpoint, those from the first on that cannot be read any more do not count without the
    /// log, since nobody can tell what rotted from what was never written whole. Only what was settled, and has
    /// a checkpoint, is promised then.
    pub const fn watches_log(&self) -> bool {
        !self.shape.faults.log_losses.is_empty() && self.shape.faults.rot.is_none()
    }

    /// Power takes the log along in the midst of the work, and parts of the stripes that were not flushed.
    fn tears(&mut self, prng: &mut Prng) {
        self.shape.volatile_caches = true;
        if self.shape.faults.drives.is_empty() {
            // Nothing else gives back what is torn.
            self.shape.scheme = raid::Scheme::Single;
        }
        self.mix.write += 100;
        self.longest = self.longest.max(64);
        for loss in self.shape.faults.log_losses.iter().filter(|loss| loss.device.is_none()) {
            self.lives[loss.life - 1] = Ending::PowerCut(span(prng, Duration::from_millis(6), 3));
        }
    }

    /// What came to be tested later, from a source of its own: what seeds meant before stays.
    fn add(&mut self, p: &mut Prng) {
        self.impatience = [0, 0, 5, 30][usize64(p.below(4))];
        self.small_percent = [0, 0, 0, 50][usize64(p.below(4))];
        self.tiny = p.below(6) == 0;
        let closed = self.lives.iter_mut().filter(|ending| **ending == Ending::Closed);
        closed.filter(|_| p.below(3) == 0).for_each(|ending| *ending = Ending::Exported);
        if self.tiny {
            self.mix.write += 100;
            self.longest = self.longest.max(64);
            self.operations = self.operations.max(40);
            self.sizes = 1 << 9..1 << 13;
            self.hot_percent /= 2;
        }
        self.shape.add(p, self.lives.len(), self.tiny);
    }

    /// The order in which tasks run.
    pub const fn order(&self) -> reactor::Order {
        if self.shuffled { reactor::Order::Shuffled } else { reactor::Order::Arrival }
    }
}

fn weight(prng: &mut Prng) -> u32 {
    stdx::num::low32(1 << prng.below(6))
}

fn ending(prng: &mut Prng) -> Ending {
    match prng.below(10) {
        0..2 => Ending::Closed,
        2..4 => Ending::Killed(span(prng, Duration::from_micros(50), 9)),
        4..7 => {
            let lines = length(prng, 1 << 15);
            Ending::PowerCutInStore(lines, span(prng, Duration::from_millis(1), 5))
        }
        _ => Ending::PowerCut(span(prng, Duration::from_micros(10), 11)),
    }
}

/// What a host does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Write,
    Read,
    Zero,
    Deallocate,
    Flush,
    Rest,
}

impl Mix {
    pub fn pick(&self, prng: &mut Prng) -> Action {
        let parts = [
            (self.write, Action::Write),
            (self.read, Action::Read),
            (self.zero, Action::Zero),
            (self.deallocate, Action::Deallocate),
            (self.flush, Action::Flush),
            (self.rest, Action::Rest),
        ];
        let sum: usize = parts.iter().map(|(weight, _)| usize32(*weight)).sum();
        let mut at = usize64(prng.below(stdx::num::u64_of(sum)));
        for (weight, action) in parts {
            match at.checked_sub(usize32(weight)) {
                Some(rest) => at = rest,
                None => return action,
            }
        }
        Action::Rest
    }
}
