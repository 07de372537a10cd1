//! The engine's pool over simulated media.

mod damage;
mod exam;
mod forks;
mod groups;
mod log_moves;
mod node;
mod operator;
mod poison;
mod pool;
mod remote;
mod returning;
mod scrubs;
mod sick;
mod slow;
mod starts;
mod taking;
mod windows;

pub use exam::Examined;
pub use forks::Fork;
pub use pool::Array;
pub use starts::Start;

use crate::plan::Plan;
use crate::shape::{LogLoss, LogShape};
use crate::store::Refusal;
use crate::world::plant;
use engine::canary::Canary;
use engine::dump::{Finding, Given, Severity, Spec, Structure};
use engine::format::Bad;
use engine::{Kind, LogSpec, OpenOptions, Pool};
use media::drive::{SimulatedFaults, SimulatedOptions};
use media::{Drive, Power, Simulated, SimulatedPmem};
use reactor::{Handle, Nanos, sleep, spawn};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use stdx::Prng;
use stdx::num::u64_of;

/// What is left of an array between its lives.
pub struct Media {
    plan: Plan,
    power: Arc<Power>,
    drives: Vec<Arc<Simulated>>,
    pmem: Rc<RefCell<Vec<Arc<SimulatedPmem>>>>,
    /// Where the log moves, and where it may be where nobody knows how far it came.
    others: Rc<RefCell<Vec<Arc<SimulatedPmem>>>>,
    /// A namespace of another target that has the log.
    far: Option<Rc<remote::Far>>,
    /// Devices of the log that are blank since the pool was open last.
    log_loss: Cell<Option<LogLoss>>,
    /// The pool was made; before that there is none to open.
    made: Cell<bool>,
    /// It may have been exported, and was not opened since.
    exported: Rc<Cell<bool>>,
    /// It was closed in order, and nothing was done since: it needs no log.
    closed: Rc<Cell<bool>>,
    /// More drives are away than the redundancy bears.
    broken: Rc<Cell<bool>>,
    /// Contents may be lost.
    rotten: Cell<bool>,
    truth: Rc<RefCell<operator::Truth>>,
    kept: RefCell<operator::Kept>,
    /// There is no space behind some drives in this life, now or later.
    scarce: Cell<bool>,
    /// Until when there is no space behind some drive, or was last.
    lacked_space: Rc<Cell<Option<Nanos>>>,
    /// Drives that did not let themselves be taken for what is opened or made now.
    untaken: RefCell<BTreeSet<usize>>,
    /// What happens to the media, for the trace.
    said: Rc<RefCell<Vec<String>>>,
    stage: Rc<Cell<returning::Stage>>,
    scrubs: Rc<scrubs::Scrubs>,
    seen: Rc<Cell<Seen>>,
    node: node::Node,
    canary: Option<Canary>,
    /// The reactors of this life, in the order in which shards take them; none where there is but one.
    reactors: RefCell<Vec<Handle>>,
}

/// What came of drives that were slow, and of scrubs, over all lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Looks at which a drive was told to be slow.
    pub slow: u64,
    /// Copies of the log that were made on other drives.
    pub log_copies: u64,
    /// Scrubs that came to their end, and those that were examined.
    pub scrubs: u64,
    pub exams: u64,
    /// Blocks that they put right.
    pub mended: u64,
    /// Copies of the log that an end of a life took, and openings that were refused without one.
    pub buried: u64,
    pub refused: u64,
    /// Lives at whose end memory and a namespace of another target had the log, and those with one of them.
    pub doubles: u64,
    pub singles: u64,
    /// Starts with whatever was there that opened the pool, and those that were refused.
    pub starts: u64,
    pub no_starts: u64,
}

fn refusal(error: &engine::Error) -> Refusal {
    match error.kind {
        Kind::Full if error.context.contains("quota") => Refusal::Quota,
        Kind::Full => Refusal::Full,
        Kind::OutOfRange => Refusal::OutOfRange,
        // A volume that was deleted meanwhile is gone for those who work on it.
        Kind::NotFound | Kind::Gone => Refusal::NotFound,
        Kind::Corrupt => Refusal::Lost(error.to_string()),
        Kind::Busy => Refusal::Busy(error.to_string()),
        Kind::Failed | Kind::Missing => Refusal::Failed(format!("{:?}: {error}", error.kind)),
        _ => Refusal::Other(format!("{:?}: {error}", error.kind)),
    }
}

fn told<T>(result: engine::Result<T>) -> Result<T, Refusal> {
    result.map_err(|error| refusal(&error))
}

async fn is_blank(drive: &Drive) -> bool {
    matches!(engine::read_label(drive).await, Ok(Err(Bad::Blank)))
}

/// A blank device for the log.
fn memory(plan: &Plan, power: &Arc<Power>) -> Arc<SimulatedPmem> {
    Arc::new(SimulatedPmem::with_power(plan.shape.log_bytes, Arc::clone(power)))
}

impl Media {
    pub fn new(plan: &Plan, canary: Option<Canary>) -> Self {
        let shape = &plan.shape;
        let power = Arc::<Power>::default();
        let drive = |(n, capacity): (usize, u64)| {
            Simulated::new(SimulatedOptions {
                capacity,
                seed: plan.seed ^ (u64_of(n) + 1) << 32,
                volatile_cache: shape.volatile_caches,
                power: Arc::clone(&power),
                in_flight: taking::in_flight(plan.outlives, false),
                ..SimulatedOptions::default()
            })
        };
        let memories = match shape.log {
            LogShape::Pmem(count) => count,
            LogShape::Drives => 0,
        };
        let others = match plan.remote {
            Some(_) => usize::from(plan.moves_log),
            None if plan.moves_log => memories,
            None => 0,
        };
        let memory = |_| memory(plan, &power);
        Self {
            drives: shape.all_drives().enumerate().map(drive).collect(),
            pmem: Rc::new(RefCell::new((0..memories).map(memory).collect())),
            others: Rc::new(RefCell::new((0..others).map(memory).collect())),
            far: remote::Far::new(plan, &power).map(Rc::new),
            log_loss: Cell::default(),
            plan: plan.clone(),
            power,
            made: Cell::new(false),
            exported: Rc::default(),
            closed: Rc::default(),
            broken: Rc::default(),
            rotten: Cell::new(false),
            truth: Rc::new(RefCell::new(operator::Truth::new(shape))),
            kept: RefCell::default(),
            scarce: Cell::new(false),
            lacked_space: Rc::default(),
            untaken: RefCell::default(),
            said: Rc::default(),
            stage: Rc::default(),
            scrubs: Rc::default(),
            seen: Rc::default(),
            node: node::Node::new(plan.seed),
            canary,
            reactors: RefCell::default(),
        }
    }

    /// The reactors of a life, which are all to have the bug that is planted.
    pub async fn move_to(&self, mut reactors: Vec<Handle>) {
        if reactors.len() == 1 {
            return;
        }
        let (canary, small_maps) = (self.canary, self.plan.small_maps);
        for reactor in &reactors {
            let planted = reactor.call(move || async move { plant(canary, small_maps) });
            planted.await.expect("a simulated reactor lives as long as the first");
        }
        reactors.rotate_left(self.plan.first_reactor);
        self.reactors.replace(reactors);
    }

    /// The reactors that shards live on.
    fn on(&self) -> Vec<Handle> {
        self.reactors.borrow().clone()
    }

    fn log(&self) -> LogSpec {
        if let Some(far) = &self.far {
            return far.log(&self.pmem.borrow());
        }
        match self.plan.shape.log {
            LogShape::Drives => LogSpec::Drives,
            LogShape::Pmem(_) => log_moves::spec(&self.pmem.borrow(), &[]),
        }
    }

    /// The drives that answer at all, once nothing is in flight to them any more.
    fn drives_at_rest(&self) -> Vec<Arc<Drive>> {
        let answers =
            |n: &usize| Drive::Simulated(Arc::clone(&self.drives[*n])).failure().is_none();
        let drives = (0..self.drives.len()).filter(answers);
        drives.map(|n| Arc::new(Drive::Simulated(self.at_rest(n)))).collect()
    }

    /// The drives that answer at all and were taken, by their numbers.
    fn taken(&self) -> Vec<(usize, Arc<Drive>)> {
        let untaken = self.untaken.borrow();
        let drives = self.drives.iter().map(|d| Arc::new(Drive::Simulated(Arc::clone(d))));
        let drives = drives.enumerate().filter(|(n, _)| !untaken.contains(n));
        drives.filter(|(_, drive)| drive.failure().is_none()).collect()
    }

    /// Those to open the pool with. One whose label is gone is refused, and left out by whoever reads that: writes
    /// that went astray may have gone over one copy, and taken the place of the other.
    async fn labelled(&self) -> Vec<Arc<Drive>> {
        let mut labelled = Vec::new();
        for (n, drive) in self.taken() {
            let is_bad = self.plan.shape.faults.drives.contains(&n);
            if !is_bad || !is_blank(&drive).await {
                labelled.push(drive);
            }
        }
        labelled
    }

    /// Makes the pool when there is none, and opens it when there is.
    pub async fn open(&self, life: usize) -> Result<Array, Refusal> {
        self.set_faults(life);
        if !self.made.get() || self.plan.rough.is_none() {
            let untaken = self.take_all().await;
            self.untaken.replace(untaken);
        }
        if self.made.get() {
            let pool = match self.plan.rough {
                Some(rough) => self.open_roughly(life, rough.tries).await?,
                None if self.far.is_some() => self.open_remotely(life).await?,
                None => self.open_again().await?,
            };
            if self.plan.rough.is_some_and(|rough| rough.sick) {
                self.fall_sick(life);
            }
            self.poison_later(life);
            self.turn_over(life, &pool);
            self.look_after(life, &pool);
            self.scrub_now_and_then(life, &pool);
            self.befall(life, &pool);
            self.wait_for_both(life, &pool).await;
            self.discard(&pool).await?;
            self.log_loss.set(self.log_loss.get().filter(|_| !self.is_on()));
            // What a machine without power has read and written, nobody knows of.
            self.exported.set(self.exported.get() && !self.is_on());
            self.closed.set(self.closed.get() && !self.is_on());
            return Ok(self.array(life, pool));
        }
        // What a killed process that made one wiped would be wiped once more otherwise, in the midst of this one's life.
        self.take_all().await;
        let mut spec = self.plan.shape.spec(self.plan.seed);
        spec.drives = self.taken().into_iter().map(|(_, drive)| drive).collect();
        spec.drives.truncate(self.plan.shape.drives.len());
        spec.log = self.first_log();
        let pool = told(Pool::create(spec, &self.on()).await)?;
        self.discard(&pool).await?;
        // A machine without power has made nothing.
        self.made.set(self.is_on());
        self.log_was_made();
        self.poison_later(life);
        self.turn_over(life, &pool);
        self.look_after(life, &pool);
        self.scrub_now_and_then(life, &pool);
        self.remote_was_made();
        self.befall(life, &pool);
        self.wait_for_both(life, &pool).await;
        Ok(self.array(life, pool))
    }

    fn array(&self, life: usize, pool: Pool) -> Array {
        if self.is_on() && !self.plan.network {
            self.node.opened(&pool);
        }
        let returns = self.plan.rough.is_some_and(|rough| rough.returns);
        let sound = if returns { BTreeSet::new() } else { self.sound() };
        let (exported, closed) = (Rc::clone(&self.exported), Rc::clone(&self.closed));
        let stage = Rc::clone(&self.stage);
        let log = (self.plan.moves_log && self.far.is_none()).then(|| self.movable_log());
        let remote = self.far_log();
        let (scrubs, examiner) = (Rc::clone(&self.scrubs), self.examiner(life));
        let reactors = self.on();
        let bounds_groups = Cell::new(false);
        let shards = self.plan.shape.shards;
        let ring_bytes = self.plan.windows.map_or(0, |windows| windows.ring_bytes);
        let (reserve_percent, reservings) = (self.plan.reserve_percent, Cell::new(0));
        Array {
            pool,
            exported,
            closed,
            sound,
            returns,
            stage,
            log,
            remote,
            reactors,
            scrubs,
            examiner,
            bounds_groups,
            shards,
            ring_bytes,
            reserve_percent,
            reservings,
        }
    }

    fn note(&self, what: &str) {
        self.said.borrow_mut().push(what.to_owned());
    }

    /// What happened to the media since this was last asked.
    pub fn said(&self) -> Vec<String> {
        let mut said = self.said.take();
        said.extend(self.said_of_far());
        said
    }

    /// What came of drives that were slow, and of scrubs.
    pub fn seen(&self) -> Seen {
        self.seen.get()
    }

    /// There may be no space behind the drives in this life.
    pub const fn is_scarce(&self) -> bool {
        self.scarce.get()
    }

    /// There was no space behind some drive then, or later.
    pub fn has_lacked_space(&self, since: Nanos) -> bool {
        self.lacked_space.get().is_some_and(|until| until >= since)
    }

    /// Opens the pool there is; where its log is lost, for whoever accepts that.
    async fn open_again(&self) -> Result<Pool, Refusal> {
        let import = self.exported.get();
        let options = OpenOptions { degraded: true, import, ..OpenOptions::default() };
        let options = self.as_node(options);
        self.hide_windows(false);
        if self.plan.windows.is_some_and(|windows| windows.hides)
            && self.log_loss.get().is_none()
            && let Some(pool) = self.open_without_windows(options).await?
        {
            return Ok(pool);
        }
        let open = async |options| {
            let drives = self.labelled().await;
            let all = Pool::open(drives.clone(), self.log_anywhere(), options, &self.on()).await;
            match all {
                // It may have been closed, and has no log: a new one is made on some devices, not on all.
                Err(error) if error.kind == Kind::Invalid && self.plan.moves_log => {
                    Pool::open(drives, self.log(), options, &self.on()).await
                }
                opened => opened,
            }
        };
        let Some(loss) = self.log_loss.get().filter(|loss| loss.device.is_none()) else {
            return told(open(options).await);
        };
        // An opening that is cut short makes some of a log, or all of it.
        let is_blank = self.is_log_blank();
        if loss.asks && is_blank {
            match open(options).await {
                // A pool that was exported, or closed in order, needs no log.
                Ok(pool) if import || self.closed.get() => return Ok(pool),
                Err(error) if error.kind == Kind::Loss => {}
                // A drive that died meanwhile may have had it, for all the pool knows.
                Err(error) if error.kind == Kind::Failed && self.has_deaths() => {}
                Ok(_) => return Err(Refusal::Other("it opens as if nothing were lost".into())),
                Err(error) => return Err(refusal(&error)),
            }
        }
        let accepting = self.as_node(OpenOptions { accept_loss: true, ..options });
        let pool = match open(accepting).await {
            Err(error) if error.kind == Kind::Failed && self.has_deaths() => open(accepting).await,
            opened => opened,
        };
        let pool = told(pool)?;
        if is_blank && !import && !self.closed.get() && !pool.has_lost_log() {
            return Err(Refusal::Other("it does not say that its log was lost".into()));
        }
        Ok(pool)
    }

    fn has_deaths(&self) -> bool {
        self.plan.shape.faults.death.is_some()
    }

    async fn discard(&self, pool: &Pool) -> Result<(), Refusal> {
        match self.plan.discards {
            Some(how) => told(pool.discard(how).await),
            None => Ok(()),
        }
    }

    /// Whether more drives are away than the redundancy bears.
    pub fn is_broken(&self) -> bool {
        self.broken.get()
    }

    /// Looks at everything that a life left, without changing it: no structure is lost, however the
    /// life ended.
    pub async fn check(&self) -> Result<(), String> {
        // Without enough drives nothing can be said, nor without a log.
        if !self.made.get()
            || self.broken.get()
            || self.log_loss.get().is_some()
            || self.is_log_unsure()
        {
            return Ok(());
        }
        let given = |(n, drive)| Given { name: format!("drive {n}"), drive: Ok(drive) };
        let (drives, log) = match self.plan.rough {
            Some(_) => self.sound_media(),
            None => (self.drives_at_rest(), self.log_to_check()),
        };
        let spec = Spec {
            drives: drives.into_iter().enumerate().map(given).collect(),
            log: Some(log),
            data: true,
            ..Spec::default()
        };
        let report = engine::dump::dump(&spec, &mut |_| {}).await;
        let is_wrong = |finding: &&Finding| {
            // A header on a drive that is out is made of the others', which have rotted.
            let contents = matches!(
                finding.structure,
                Structure::Data | Structure::LogRecord | Structure::StripeHeader
            );
            let lost = self.rotten.get() && contents;
            // What is whole again lacks nothing, though the others would give it back.
            let is_lacking = self.closed.get()
                && self.stage.get() == returning::Stage::Whole
                && finding.severity == Severity::Warning
                && matches!(
                    finding.structure,
                    Structure::Data
                        | Structure::Parity
                        | Structure::StripeHeader
                        | Structure::MemberHeader
                );
            finding.severity == Severity::Error && !lost || is_lacking
        };
        match report.findings.iter().find(is_wrong) {
            None => Ok(()),
            Some(error) => {
                let structure = error.structure.name();
                Err(format!("dump: {structure}, {}: {}", error.place, error.what))
            }
        }
    }

    fn set_faults(&self, life: usize) {
        self.treat_memory(life);
        let faults = &self.plan.shape.faults;
        for (n, drive) in self.drives.iter().enumerate() {
            let healthy = SimulatedFaults { slow_ppm: faults.slow_ppm, ..Default::default() };
            // A pool is made on drives that work.
            let bad = self.made.get() && faults.drives.contains(&n);
            drive.set_faults(if bad { faults.kinds } else { healthy });
        }
        if let Some(rough) = self.plan.rough {
            self.ail(life, rough);
        }
        self.slow_down(life);
        self.slow_before_kill(life);
        // What was away in the last life is there again, as it was.
        if self.broken.replace(false)
            && let Some(disaster) = &faults.disaster
        {
            disaster.drives.iter().for_each(|&n| self.drives[n].revive());
        }
        if let Some(disaster) = faults.disaster.clone()
            && disaster.life == life
            && self.made.get()
        {
            let drives = disaster.drives.iter().map(|&n| Arc::clone(&self.drives[n]));
            let (drives, broken): (Vec<_>, _) = (drives.collect(), Rc::clone(&self.broken));
            drop(spawn(async move {
                sleep(disaster.after).await;
                broken.set(true);
                drives.iter().for_each(|drive| drive.fail());
            }));
        }
        for stall in &faults.stalls {
            let (drive, stall) = (Arc::clone(&self.drives[stall.drive]), *stall);
            drop(spawn(async move {
                sleep(stall.after).await;
                drive.stall(stall.span);
            }));
        }
        if let Some((drive, at, after)) = faults.death
            && at == life
            && self.made.get()
        {
            let drive = Arc::clone(&self.drives[drive]);
            drop(spawn(async move {
                sleep(after).await;
                drive.fail();
            }));
        }
    }

    /// Power fails after so many lines more were stored to persistent memory.
    pub fn cut_after(&self, lines: u64) {
        if let Some(pmem) = self.pmem.borrow().first() {
            pmem.cut_after(lines);
        }
    }

    /// Power fails in place of a fence.
    pub fn cut_at_fence(&self, fence: u64) {
        // Wherever the log is.
        let (pmem, others) = (self.pmem.borrow(), self.others.borrow());
        pmem.iter().chain(&*others).for_each(|pmem| pmem.cut_at_fence(fence));
    }

    pub fn is_on(&self) -> bool {
        self.power.is_on()
    }

    /// Power fails everywhere at once, and comes back.
    pub fn power_cut(&self, prng: &mut Prng) {
        // What an operator had put elsewhere loses its power, too.
        self.swap_back();
        self.power.cut();
        self.drives.iter().for_each(|drive| drive.power_cut(prng));
        self.pmem.borrow().iter().for_each(|pmem| pmem.crash(prng));
        self.others.borrow().iter().for_each(|pmem| pmem.crash(prng));
        self.far.iter().for_each(|far| far.crash_kept(prng));
        self.drives.iter().for_each(|drive| drive.power_on());
    }
}
