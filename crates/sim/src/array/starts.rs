//! The daemon that starts with whatever drives and devices of the log are at hand, and with nobody to ask: what opens then
//! has everything that was acknowledged. On copies, so that the pool goes on as if nobody had tried.

use super::operator::newest_label;
use super::{Media, Seen};
use crate::contents::recognize_all;
use crate::model::Model;
use engine::format::label::{Label, LogKind};
use engine::{LogDevice, LogSpec, OpenOptions, Pool};
use media::drive::SimulatedOptions;
use media::{Drive, Pmem, Simulated, SimulatedPmem};
use reactor::timeout;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use stdx::Prng;
use stdx::num::{u64_of, usize64};

/// An opening that takes longer is stuck.
const OPENING: Duration = Duration::from_secs(600);

/// Blocks of one read.
const READ: u64 = 256;

/// Starts that are tried after a life, at most.
const STARTS: u64 = 2;

/// A copy of a drive.
pub(super) fn copy_of(drive: &Simulated, capacity: u64, seed: u64) -> Arc<Simulated> {
    let copy = Simulated::new(SimulatedOptions { capacity, seed, ..SimulatedOptions::default() });
    copy.restore(&drive.contents());
    copy
}

/// A copy of a device of memory.
pub(super) fn memory_of(bytes: Vec<u8>) -> Arc<Pmem> {
    Arc::new(Pmem::Simulated(Arc::new(SimulatedPmem::holding(bytes))))
}

/// Opens a pool from copies, or tells why not.
pub(super) async fn open(
    drives: Vec<Arc<Simulated>>,
    log: LogSpec,
    options: OpenOptions,
) -> Result<Result<Pool, engine::Error>, String> {
    let drives = drives.into_iter().map(|drive| Arc::new(Drive::Simulated(drive))).collect();
    let opened = timeout(OPENING, Pool::open(drives, log, options, &[])).await;
    opened.map_err(|_| "an opening neither succeeds nor is refused".to_owned())
}

/// Whether a pool has everything that it has to have, beside volumes of these names.
pub(super) async fn check(pool: &Pool, mut model: Model, beside: &[&str]) -> Result<(), String> {
    let names = pool.volumes().into_iter().filter(|name| !beside.contains(&name.as_str()));
    let sized = names.filter_map(|name| {
        let volume = pool.volume(&name).ok()?;
        Some((name, volume.len() / u64::from(volume.block_size())))
    });
    model.settle_volumes(&sized.collect()).map_err(|violation| violation.0)?;
    for v in model.present() {
        let volume = pool.volume(&v.name).map_err(|error| error.to_string())?;
        for range in model.touched(v.serial, v.size) {
            for first in range.clone().step_by(usize64(READ)) {
                let count = READ.min(range.end - first);
                let mut bytes = vec![0xEE; usize64(count) * v.unit];
                let begun = model.begin_read(v.serial, first, count);
                let read = volume.read(first * u64_of(v.unit), &mut bytes).await;
                read.map_err(|error| format!("read {count} at {first} of {}: {error}", v.name))?;
                let found = recognize_all(&bytes, v.unit, v.serial, first);
                model.end_read(&begun, &found).map_err(|violation| violation.0)?;
            }
        }
    }
    Ok(())
}

/// What a start finds.
pub struct Start {
    drives: Vec<Arc<Simulated>>,
    log: LogSpec,
    options: OpenOptions,
    model: Model,
    what: String,
}

impl Media {
    /// Whether the contents of drives or memory are not what was written there, for whatever reason, or not known.
    pub(super) fn is_doubtful(&self) -> bool {
        let (faults, truth) = (&self.plan.shape.faults, self.truth.borrow());
        !self.made.get()
            || self.broken.get()
            || self.rotten.get()
            || self.scarce.get()
            || self.log_loss.get().is_some()
            || faults.rot.is_some()
            || faults.unit_rot.is_some()
            || !faults.drives.is_empty()
            || !truth.rotten.is_empty()
            || !truth.poisoned.is_empty()
    }

    /// The label that tells how the pool is.
    pub(super) fn newest(&self) -> Option<Label> {
        let labels = self.drives.iter().filter_map(|drive| newest_label(drive));
        labels.max_by_key(|label| label.epoch)
    }

    /// A copy of a drive as it is.
    pub(super) fn copy(&self, n: usize) -> Arc<Simulated> {
        let capacity = self.plan.shape.all_drives().nth(n).unwrap_or(0);
        copy_of(&self.drives[n], capacity, self.plan.seed ^ u64_of(n))
    }

    /// What the daemon may find after a life.
    pub fn starts(&self, model: &Model, life: usize) -> Vec<Start> {
        if !self.plan.starts || self.is_doubtful() || self.exported.get() {
            return Vec::new();
        }
        self.swap_back();
        self.take_back_memory();
        let mut prng = Prng::new(self.plan.seed ^ 0x5eed_0da0_6057_0002 ^ u64_of(life) << 48);
        let count = prng.below(STARTS + 1);
        (0..count).filter_map(|_| self.start(model, &mut prng)).collect()
    }

    fn start(&self, model: &Model, prng: &mut Prng) -> Option<Start> {
        let newest = self.newest()?;
        let labelled = (0..self.drives.len()).filter(|n| newest_label(&self.drives[*n]).is_some());
        let labelled: BTreeSet<usize> = labelled.collect();
        let is_out = |n: &usize| newest.drives.get(*n).is_none_or(|record| record.is_out());
        let given: BTreeSet<usize> = match prng.below(4) {
            0 => labelled,
            // Those that others went on without, and some beside them.
            1 => labelled.into_iter().filter(|n| is_out(n) || prng.below(3) == 0).collect(),
            2 => labelled.into_iter().filter(|_| prng.below(4) > 0).collect(),
            _ => labelled.into_iter().filter(|_| prng.below(2) == 0).collect(),
        };
        if given.is_empty() {
            return None;
        }
        let drives: Vec<_> = given.iter().map(|n| self.copy(*n)).collect();
        // A drive may have left an older copy of itself.
        let aside = self.truth.borrow().aside.clone();
        let old = aside.filter(|aside| aside.is_old(newest.epoch) && prng.below(3) == 0);
        let old = old.and_then(|old| {
            let nth = given.iter().position(|n| *n == old.drive)?;
            drives[nth].restore(&old.contents);
            Some(old.drive)
        });
        let log = self.log_at_hand(newest.log, prng);
        // Whoever is asked knows what the node knows: that is enough where it knows all there is.
        let knows = self.node.term() >= newest.term;
        let unattended = !knows || prng.below(3) > 0;
        let options = OpenOptions { degraded: true, unattended, ..OpenOptions::default() };
        let options = self.as_node(options);
        let what = format!(
            "drives {given:?}, of which {old:?} is old, {} devices of the log, {options:?}",
            log.devices().len()
        );
        Some(Start { drives, log, options, model: model.clone(), what })
    }

    /// Copies of some devices that may have the log.
    fn log_at_hand(&self, kind: LogKind, prng: &mut Prng) -> LogSpec {
        let all = prng.below(2) == 0;
        let mut is_given = || all || prng.below(2) == 0;
        let (pmem, others) = (self.pmem.borrow(), self.others.borrow());
        let memory = pmem.iter().chain(&*others).filter(|_| is_given());
        let memory: Vec<_> = memory.map(|pmem| memory_of(pmem.contents())).collect();
        match kind {
            LogKind::Drives => LogSpec::Drives,
            LogKind::Pmem | LogKind::Bbu => LogSpec::Pmem(memory),
            LogKind::Remote => {
                let far = self.far.as_ref().filter(|_| is_given()).map(|far| far.copy());
                let far = far.map(|far| LogDevice::remote(Arc::new(Drive::Simulated(far))));
                LogSpec::Remote(memory.into_iter().map(LogDevice::Memory).chain(far).collect())
            }
        }
    }

    /// What came of a start.
    pub async fn try_start(&self, start: Start) -> Result<(), String> {
        let Start { drives, log, options, model, what } = start;
        let opened = open(drives, log, options).await?;
        let count = |count: fn(&mut Seen)| {
            let mut seen = self.seen.get();
            count(&mut seen);
            self.seen.set(seen);
        };
        match opened {
            Ok(pool) => {
                count(|seen| seen.starts += 1);
                let checked = check(&pool, model, &[]).await;
                checked.map_err(|wrong| format!("a start with {what}: {wrong}"))
            }
            Err(error) => {
                count(|seen| seen.no_starts += 1);
                self.note(&format!("a start with {what} is refused: {error}"));
                Ok(())
            }
        }
    }
}
