//! The engine's pool over simulated media.

use crate::contents::{BLOCK, bytes_of};
use crate::plan::Plan;
use crate::shape::LogShape;
use crate::store::{Refusal, Volumes};
use engine::dump::{Given, Severity, Spec};
use engine::{Kind, LogSpec, OpenOptions, Pool, VolumeSpec};
use media::drive::{SimulatedFaults, SimulatedOptions};
use media::{Drive, Pmem, Power, Simulated, SimulatedPmem};
use reactor::{random, sleep, spawn};
use std::cell::Cell;
use std::sync::Arc;
use stdx::Prng;
use stdx::num::u64_of;

/// What is left of an array between its lives.
pub struct Media {
    plan: Plan,
    power: Arc<Power>,
    drives: Vec<Arc<Simulated>>,
    pmem: Vec<Arc<SimulatedPmem>>,
    /// The pool was made; before that there is none to open.
    made: Cell<bool>,
}

fn refusal(error: &engine::Error) -> Refusal {
    match error.kind {
        Kind::Full => Refusal::Full,
        Kind::OutOfRange => Refusal::OutOfRange,
        Kind::NotFound => Refusal::NotFound,
        _ => Refusal::Other(format!("{:?}: {error}", error.kind)),
    }
}

fn told<T>(result: engine::Result<T>) -> Result<T, Refusal> {
    result.map_err(|error| refusal(&error))
}

impl Media {
    pub fn new(plan: &Plan) -> Self {
        let shape = &plan.shape;
        let power = Arc::<Power>::default();
        let drive = |(n, &capacity): (usize, &u64)| {
            Simulated::new(SimulatedOptions {
                capacity,
                seed: plan.seed ^ (u64_of(n) + 1) << 32,
                volatile_cache: shape.volatile_caches,
                power: Arc::clone(&power),
                ..SimulatedOptions::default()
            })
        };
        let memories = match shape.log {
            LogShape::Pmem(count) => count,
            LogShape::Drives => 0,
        };
        let memory = |_| Arc::new(SimulatedPmem::with_power(shape.log_bytes, Arc::clone(&power)));
        Self {
            drives: shape.drives.iter().enumerate().map(drive).collect(),
            pmem: (0..memories).map(memory).collect(),
            plan: plan.clone(),
            power,
            made: Cell::new(false),
        }
    }

    fn log(&self) -> LogSpec {
        match self.plan.shape.log {
            LogShape::Drives => LogSpec::Drives,
            LogShape::Pmem(_) => {
                let device =
                    |pmem: &Arc<SimulatedPmem>| Arc::new(Pmem::Simulated(Arc::clone(pmem)));
                LogSpec::Pmem(self.pmem.iter().map(device).collect())
            }
        }
    }

    /// The drives that answer at all.
    fn drives(&self) -> Vec<Arc<Drive>> {
        let drives = self.drives.iter().map(|d| Drive::Simulated(Arc::clone(d)));
        drives.filter(|drive| drive.failure().is_none()).map(Arc::new).collect()
    }

    /// Makes the pool when there is none, and opens it when there is.
    pub async fn open(&self, life: usize) -> Result<Pool, Refusal> {
        self.set_faults(life);
        if self.made.get() {
            let options = OpenOptions { degraded: true, import: false };
            return told(Pool::open(self.drives(), self.log(), options, &[]).await);
        }
        let mut spec = self.plan.shape.spec(self.plan.seed);
        spec.drives = self.drives();
        spec.log = self.log();
        let pool = told(Pool::create(spec, &[]).await)?;
        // A machine without power has made nothing.
        self.made.set(self.is_on());
        Ok(pool)
    }

    /// Looks at everything that a life left, without changing it: no structure is lost, however the
    /// life ended.
    pub async fn check(&self) -> Result<(), String> {
        if !self.made.get() {
            return Ok(());
        }
        let given = |(n, drive)| Given { name: format!("drive {n}"), drive: Ok(drive) };
        let spec = Spec {
            drives: self.drives().into_iter().enumerate().map(given).collect(),
            log: Some(self.log()),
            data: true,
            ..Spec::default()
        };
        let report = engine::dump::dump(&spec, &mut |_| {}).await;
        match report.findings.iter().find(|finding| finding.severity == Severity::Error) {
            None => Ok(()),
            Some(error) => {
                let structure = error.structure.name();
                Err(format!("dump: {structure}, {}: {}", error.place, error.what))
            }
        }
    }

    fn set_faults(&self, life: usize) {
        let faults = &self.plan.shape.faults;
        for (n, drive) in self.drives.iter().enumerate() {
            let healthy = SimulatedFaults { slow_ppm: faults.slow_ppm, ..Default::default() };
            // A pool is made on drives that work.
            let bad = self.made.get() && faults.drives.contains(&n);
            drive.set_faults(if bad { faults.kinds } else { healthy });
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
        if let Some(pmem) = self.pmem.first() {
            pmem.cut_after(lines);
        }
    }

    pub fn is_on(&self) -> bool {
        self.power.is_on()
    }

    /// Power fails everywhere at once, and comes back.
    pub fn power_cut(&self, prng: &mut Prng) {
        self.power.cut();
        self.drives.iter().for_each(|drive| drive.power_cut(prng));
        self.pmem.iter().for_each(|pmem| pmem.crash(prng));
        self.drives.iter().for_each(|drive| drive.power_on());
    }
}

/// The engine's pool as the workload sees it.
pub struct Array(pub Pool);

impl Array {
    pub fn volumes(&self) -> Volumes {
        let sized = |name: String| {
            let volume = self.0.volume(&name).ok()?;
            Some((name, volume.len() / u64_of(BLOCK)))
        };
        self.0.volumes().into_iter().filter_map(sized).collect()
    }

    pub async fn create(&self, name: &str, size: u64) -> Result<(), Refusal> {
        let mut id = [0; 16];
        Prng::new(random()).fill(&mut id);
        let bytes = u64_of(bytes_of(size));
        let spec = VolumeSpec { name: name.to_owned(), id, bytes, block_size: 4096 };
        told(self.0.create_volume(spec).await).map(|_| ())
    }

    pub async fn delete(&self, name: &str) -> Result<(), Refusal> {
        told(self.0.delete_volume(name).await)
    }

    pub async fn resize(&self, name: &str, size: u64) -> Result<(), Refusal> {
        told(self.0.resize_volume(name, u64_of(bytes_of(size))).await)
    }

    pub async fn read(&self, name: &str, first: u64, count: u64) -> Result<Vec<u8>, Refusal> {
        let volume = told(self.0.volume(name))?;
        let mut out = vec![0xEE; bytes_of(count)];
        told(volume.read(u64_of(bytes_of(first)), &mut out).await)?;
        Ok(out)
    }

    pub async fn write(&self, name: &str, first: u64, data: &[u8]) -> Result<(), Refusal> {
        told(told(self.0.volume(name))?.write(u64_of(bytes_of(first)), data).await)
    }

    pub async fn zero(
        &self,
        name: &str,
        first: u64,
        count: u64,
        deallocate: bool,
    ) -> Result<(), Refusal> {
        let volume = told(self.0.volume(name))?;
        let (offset, len) = (u64_of(bytes_of(first)), u64_of(bytes_of(count)));
        told(match deallocate {
            true => volume.deallocate(offset, len).await,
            false => volume.write_zeroes(offset, len).await,
        })
    }

    pub fn flush(&self, name: &str) -> Result<(), Refusal> {
        told(self.0.volume(name).and_then(|volume| volume.flush()))
    }

    pub async fn describe(&self) -> String {
        format!("{:#?}", self.0.status().await)
    }

    pub async fn close(&self) -> Result<(), Refusal> {
        told(self.0.clone().close().await)
    }
}
