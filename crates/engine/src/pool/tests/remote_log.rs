//! A log that a namespace of another target has, too.

use std::time::Duration;

use media::{Simulated, SimulatedPmem};

use super::*;
use crate::format::label::LogKind;

const LOG: u64 = 6 * MIB;

/// Drives, memory for the log, and another target's namespace.
struct Rig {
    drives: Vec<Arc<Drive>>,
    memory: Arc<Pmem>,
    far: Arc<Simulated>,
    namespace: Arc<Drive>,
}

impl Rig {
    fn new(seed: u64) -> Self {
        let (_, drives) = simulated(4, 128 * MIB, seed * 100);
        let options = SimulatedOptions { capacity: 16 * MIB, seed, ..SimulatedOptions::default() };
        let far = Simulated::new(options);
        let namespace = Arc::new(Drive::Simulated(Arc::clone(&far)));
        Self { drives, memory: blank(), far, namespace }
    }

    fn here(&self) -> LogDevice {
        LogDevice::Memory(Arc::clone(&self.memory))
    }

    fn there(&self) -> LogDevice {
        LogDevice::Remote(Arc::clone(&self.namespace))
    }

    /// On both.
    fn log(&self) -> LogSpec {
        LogSpec::Remote(vec![self.here(), self.there()])
    }

    async fn create(&self) -> (Pool, Volume) {
        let spec = PoolSpec { log_bytes: Some(LOG), ..spec(&self.drives, self.log()) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
        (pool, v)
    }

    async fn open(&self, log: LogSpec) -> crate::Result<Pool> {
        Pool::open(self.drives.clone(), log, OpenOptions::default(), &[]).await
    }

    async fn has(&self, log: LogSpec, model: &Model) -> Pool {
        let pool = self.open(log).await.unwrap();
        verify(&pool.volume("db").unwrap(), model).await;
        pool
    }
}

fn blank() -> Arc<Pmem> {
    Arc::new(Pmem::Simulated(Arc::new(SimulatedPmem::new(LOG))))
}

async fn copies(pool: &Pool, wanted: u64) {
    for _ in 0..100_000 {
        if pool.log_copies().0 == wanted {
            return;
        }
        reactor::sleep(Duration::from_millis(1)).await;
    }
    panic!("{:?}", pool.log_copies());
}

/// Writes, and ends as a process that is killed.
fn live(
    rig: &Rc<Rig>,
    seed: u64,
    story: impl AsyncFn(&Rig, &Pool, &Volume, &mut Model) + 'static,
) -> Model {
    let rig = Rc::clone(rig);
    reactor::simulate(seed, async move {
        let (pool, v) = rig.create().await;
        let mut model = Model::new();
        scribble(&v, &mut model, 300, seed).await;
        story(&rig, &pool, &v, &mut model).await;
        model
    })
}

/// Memory that was said to survive, and did not: the namespace has all of it.
#[test]
fn either_side_alone_has_all_that_was_acknowledged() {
    for seed in 0..4 {
        let rig = Rc::new(Rig::new(seed));
        let model = live(&rig, seed, async move |_, pool, v, model| {
            assert_eq!(pool.status().await.unwrap().log.kind, LogKind::Remote);
            scribble(v, model, 300, seed + 50).await;
        });
        reactor::simulate(seed, async move {
            let side = if seed % 2 == 0 { rig.here() } else { rig.there() };
            let pool = rig.has(LogSpec::Remote(vec![side]), &model).await;
            let log = pool.status().await.unwrap().log;
            assert_eq!((log.devices, log.failed_devices), (2, 1));
            pool.close().await.unwrap();
        });
    }
}

/// The other target is away for a while, or hangs: writes go on, and it has all of them when it is back.
#[test]
fn a_namespace_that_was_away_has_everything_again() {
    for seed in 0..4 {
        let rig = Rc::new(Rig::new(seed));
        let hangs = seed % 2 == 1;
        let model = live(&rig, seed, async move |rig, pool, v, model| {
            let away = |is_away: bool| match (hangs, is_away) {
                (true, _) => rig.far.set_hanging(is_away),
                (false, true) => rig.far.fail(),
                (false, false) => rig.far.revive(),
            };
            away(true);
            scribble(v, model, 400, seed + 10).await;
            assert_eq!(pool.log_copies(), (1, 2));
            away(false);
            copies(pool, 2).await;
            scribble(v, model, 100, seed + 20).await;
            assert_eq!(pool.log_copies(), (2, 2));
        });
        reactor::simulate(seed, async move {
            let pool = rig.has(LogSpec::Remote(vec![rig.there()]), &model).await;
            pool.close().await.unwrap();
        });
    }
}

/// What it has is old then: nobody goes on with it in silence.
#[test]
fn a_namespace_that_missed_writes_is_not_taken_for_the_log() {
    let rig = Rc::new(Rig::new(1));
    let model = live(&rig, 1, async move |rig, pool, v, model| {
        rig.far.fail();
        scribble(v, model, 400, 2).await;
        assert_eq!(pool.log_copies(), (1, 2));
    });
    rig.far.revive();
    reactor::simulate(2, async move {
        let error = rig.open(LogSpec::Remote(vec![rig.there()])).await.err().unwrap();
        assert_eq!(error.kind, Kind::Loss, "{error}");
        // With what has everything it is opened, and the namespace made whole.
        let pool = rig.has(rig.log(), &model).await;
        copies(&pool, 2).await;
        pool.close().await.unwrap();
    });
}

/// A restart while the other target is away, in order or not.
#[test]
fn a_pool_opens_without_the_other_target_and_has_it_back() {
    for (seed, in_order) in [(1, false), (2, true)] {
        let rig = Rc::new(Rig::new(seed));
        let model = live(&rig, seed, async move |_, pool, _, _| {
            if in_order {
                pool.clone().close().await.unwrap();
            }
        });
        rig.far.fail();
        let here = Rc::clone(&rig);
        let model = reactor::simulate(seed, async move {
            let mut model = model;
            let pool = here.has(here.log(), &model).await;
            scribble(&pool.volume("db").unwrap(), &mut model, 100, seed + 5).await;
            assert_eq!(pool.log_copies(), (1, 2));
            here.far.revive();
            copies(&pool, 2).await;
            scribble(&pool.volume("db").unwrap(), &mut model, 100, seed + 6).await;
            model
        });
        reactor::simulate(seed, async move {
            let log = LogSpec::Remote(vec![LogDevice::Memory(blank()), rig.there()]);
            let pool = rig.has(log, &model).await;
            // The memory is empty, and made whole.
            copies(&pool, 2).await;
            pool.close().await.unwrap();
        });
    }
}

/// With neither there is no log, and nothing is changed.
#[test]
fn a_pool_does_not_open_with_neither() {
    let rig = Rc::new(Rig::new(1));
    let model = live(&rig, 1, async move |_, _, _, _| {});
    reactor::simulate(2, async move {
        rig.far.fail();
        let nothing = LogSpec::Remote(vec![LogDevice::Memory(blank()), rig.there()]);
        assert_eq!(rig.open(nothing).await.err().unwrap().kind, Kind::Loss);
        let silent = rig.open(LogSpec::Remote(vec![rig.there()])).await.err().unwrap();
        assert!(silent.to_string().contains("does not answer"), "{silent}");
        rig.far.revive();
        rig.has(rig.log(), &model).await.close().await.unwrap();
    });
}
