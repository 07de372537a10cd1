//! The log goes to other devices while it is written.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use media::drive::Refusal;
use media::{Operation, Power, Simulated, SimulatedPmem};

use super::*;
use crate::area::read_label;
use crate::format::area as at;
use crate::format::catalog::CatalogArea;
use crate::format::label::LogKind;

const LOG: u64 = 6 * MIB;
const BLOCKS: u64 = 256;

/// A machine whose power goes at one moment.
struct Machine {
    media: Vec<Arc<Simulated>>,
    drives: Vec<Arc<Drive>>,
    memories: Vec<Arc<SimulatedPmem>>,
    devices: Vec<Arc<Pmem>>,
    far: Arc<Drive>,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let power = Arc::<Power>::default();
        let options = |n| SimulatedOptions {
            capacity: 512 * MIB,
            seed: seed * 100 + n,
            power: Arc::clone(&power),
            ..SimulatedOptions::default()
        };
        let media: Vec<_> = (0..6).map(|n| Simulated::new(options(n))).collect();
        let mut drives: Vec<_> =
            media.iter().map(|d| Arc::new(Drive::Simulated(Arc::clone(d)))).collect();
        let far = drives.pop().unwrap();
        let memory = |_| Arc::new(SimulatedPmem::with_power(LOG, Arc::clone(&power)));
        let memories: Vec<_> = (0..3).map(memory).collect();
        let devices = memories.iter().map(|m| Arc::new(Pmem::Simulated(Arc::clone(m)))).collect();
        Self { media, drives, memories, devices, far }
    }

    fn cut(&self, seed: u64) {
        let mut prng = Prng::new(seed);
        self.media.iter().for_each(|drive| drive.power_cut(&mut prng));
        self.memories.iter().for_each(|memory| memory.crash(&mut prng));
    }

    fn pmem(&self, which: &[usize]) -> LogSpec {
        LogSpec::Pmem(which.iter().map(|n| Arc::clone(&self.devices[*n])).collect())
    }

    fn bbu(&self, which: &[usize]) -> LogSpec {
        LogSpec::Bbu(which.iter().map(|n| Arc::clone(&self.devices[*n])).collect())
    }

    /// A namespace of another target beside such memory.
    fn remote(&self, which: &[usize]) -> LogSpec {
        let memory = which.iter().map(|n| LogDevice::Memory(Arc::clone(&self.devices[*n])));
        let there = LogDevice::remote(Arc::clone(&self.far));
        LogSpec::Remote(memory.chain([there]).collect())
    }

    async fn create(&self, log: LogSpec, shards: u16) -> (Pool, Volume) {
        let spec =
            PoolSpec { shards: Some(shards), log_bytes: Some(LOG), ..spec(&self.drives, log) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", BLOCKS * 256 * BLOCK as u64)).await.unwrap();
        (pool, v)
    }

    async fn open(&self, log: LogSpec) -> crate::Result<Pool> {
        Pool::open(self.drives.clone(), log, OpenOptions::default(), &[]).await
    }

    async fn kind(&self) -> LogKind {
        let mut labels = Vec::new();
        for drive in &self.drives {
            labels.push(read_label(drive).await.unwrap().unwrap());
        }
        labels.iter().max_by_key(|label| label.epoch).unwrap().log
    }
}

/// What a host was told of writes to blocks, one in each stretch of a shard.
#[derive(Default)]
struct Told {
    acknowledged: BTreeMap<u64, u64>,
    under_way: Option<(u64, u64)>,
}

impl Told {
    /// The last version that was acknowledged.
    fn last(&self) -> u64 {
        self.acknowledged.values().max().copied().unwrap_or(0)
    }
}

/// Writes until it is told to stop; nothing may fail.
async fn write_on(v: Volume, told: Rc<RefCell<Told>>, stop: Rc<Cell<bool>>) {
    let from = told.borrow().last() + 1;
    for version in from.. {
        if stop.get() {
            return;
        }
        let at = version * 97 % (BLOCKS * 256);
        told.borrow_mut().under_way = Some((at, version));
        v.write(at * BLOCK as u64, &block(at, version)).await.unwrap();
        told.borrow_mut().acknowledged.insert(at, version);
        // A host that is not infinitely fast.
        reactor::sleep(Duration::from_micros(20)).await;
    }
}

async fn check(v: &Volume, told: &Told, what: &str) {
    let mut got = vec![0; BLOCK];
    for (at, version) in &told.acknowledged {
        v.read(at * BLOCK as u64, &mut got).await.unwrap();
        let last = told.under_way.filter(|(block, _)| block == at).map(|(_, last)| last);
        let fits = got == block(*at, *version) || last.is_some_and(|v| got == block(*at, v));
        assert!(fits, "{what}: block {at}, version {version}");
    }
}

/// The log could be moved only by making the pool anew.
#[test]
fn a_log_moves_to_every_kind_of_device_and_back_while_it_is_written() {
    for shards in [1, 2] {
        let machine = Rc::new(Machine::new(u64::from(shards)));
        let here = Rc::clone(&machine);
        let told = reactor::simulate(1, async move {
            let (pool, v) = here.create(here.pmem(&[0]), shards).await;
            let told = Rc::new(RefCell::new(Told::default()));
            let hops = [
                (LogSpec::Drives, LogKind::Drives, 3),
                (here.bbu(&[1, 2]), LogKind::Bbu, 2),
                (here.remote(&[0]), LogKind::Remote, 2),
                (here.pmem(&[1]), LogKind::Pmem, 1),
                (here.remote(&[]), LogKind::Remote, 1),
                (LogSpec::Drives, LogKind::Drives, 3),
                (here.remote(&[0]), LogKind::Remote, 2),
                (here.pmem(&[1]), LogKind::Pmem, 1),
                (here.bbu(&[2, 0]), LogKind::Bbu, 2),
            ];
            for (to, kind, copies) in hops {
                let stop = Rc::new(Cell::new(false));
                let writes = write_on(v.clone(), Rc::clone(&told), Rc::clone(&stop));
                let moves = async {
                    reactor::sleep(Duration::from_millis(5)).await;
                    let before = told.borrow().last();
                    pool.move_log(to).await.unwrap();
                    reactor::sleep(Duration::from_millis(5)).await;
                    assert!(told.borrow().last() > before, "writes stood still");
                    stop.set(true);
                };
                reactor::join_all([
                    Box::pin(writes) as std::pin::Pin<Box<dyn Future<Output = ()>>>,
                    Box::pin(moves),
                ])
                .await;
                let log = pool.status().await.unwrap().log;
                assert_eq!((log.kind, log.devices, log.failed_devices), (kind, copies, 0));
                let so_far = told.take();
                check(&v, &so_far, "while open").await;
                told.replace(so_far);
            }
            here.cut(1);
            told.take()
        });
        machine.media.iter().for_each(|drive| drive.power_on());
        reactor::simulate(2, async move {
            // What it was on before is not taken for it.
            for old in [LogSpec::Drives, machine.pmem(&[1]), machine.bbu(&[1]), machine.remote(&[])]
            {
                assert!(machine.open(old).await.is_err());
            }
            let pool = machine.open(machine.bbu(&[0, 2])).await.unwrap();
            check(&pool.volume("db").unwrap(), &told, "after a crash").await;
            pool.close().await.unwrap();
        });
    }
}

/// Power fails at one moment after another while the log moves.
#[test]
fn power_may_fail_at_any_moment_of_a_move_of_the_log() {
    let (mut old, mut new) = (0, 0);
    for step in 0..80 {
        let machine = Rc::new(Machine::new(step));
        let here = Rc::clone(&machine);
        let (to_drives, remote) = (step % 2 == 0, step >= 40);
        let step = step % 40;
        let drives = move |machine: &Machine| match remote {
            true => machine.remote(&[2]),
            false => LogSpec::Drives,
        };
        let told = reactor::simulate(step, async move {
            let memory = here.bbu(&[0, 1]);
            let (from, to) =
                if to_drives { (memory, drives(&here)) } else { (drives(&here), memory) };
            let (pool, v) = here.create(from, 1 + (step / 2 % 2) as u16).await;
            let told = Rc::new(RefCell::new(Told::default()));
            let stop = Rc::new(Cell::new(false));
            let writes = write_on(v.clone(), Rc::clone(&told), stop);
            assert!(reactor::timeout(Duration::from_millis(3), writes).await.is_err());
            let writes = write_on(v, Rc::clone(&told), Rc::default());
            reactor::spawn(async move {
                // Until the power is off.
                let _ = pool.move_log(to).await;
                std::future::pending::<()>().await;
            });
            let span = Duration::from_micros(20 + step * 40);
            assert!(reactor::timeout(span, writes).await.is_err());
            here.cut(step);
            told.take()
        });
        machine.media.iter().for_each(|drive| drive.power_on());
        let is_moved = reactor::simulate(step, async move {
            let kind = machine.kind().await;
            let is_there = kind != LogKind::Bbu;
            let log = if is_there { drives(&machine) } else { machine.bbu(&[1, 0]) };
            let pool = machine.open(log).await.unwrap();
            check(&pool.volume("db").unwrap(), &told, &format!("step {step}")).await;
            pool.close().await.unwrap();
            is_there == to_drives
        });
        *if is_moved { &mut new } else { &mut old } += 1;
    }
    assert!(old >= 16 && new >= 16, "{old} before and {new} after: the moments are chosen badly");
}

/// A move that fails leaves the log where it is, and it can be tried again.
#[test]
fn a_log_stays_where_it_is_when_a_drive_does_not_take_it() {
    let machine = Machine::new(1);
    reactor::simulate(1, async move {
        let (pool, v) = machine.create(machine.bbu(&[0]), 2).await;
        let mut model = Model::new();
        scribble(&v, &mut model, 500, 1).await;
        let zone = CatalogArea::LEAST.end()..CatalogArea::LEAST.end() + LOG;
        let (operation, kind) = (Some(Operation::Write), media::Kind::Medium);
        machine.media[1].refuse(Refusal { operation, range: zone, kind, times: Some(1) });
        let error = pool.move_log(LogSpec::Drives).await.unwrap_err();
        assert_eq!(error.kind, Kind::Failed, "{error}");
        assert_eq!(pool.status().await.unwrap().log.kind, LogKind::Bbu);
        scribble(&v, &mut model, 500, 2).await;
        for not_blank in [machine.bbu(&[0]), machine.pmem(&[0])] {
            assert_eq!(pool.move_log(not_blank).await.unwrap_err().kind, Kind::Invalid);
        }
        pool.move_log(LogSpec::Drives).await.unwrap();
        scribble(&v, &mut model, 500, 3).await;
        verify(&v, &model).await;
        assert_eq!(pool.move_log(LogSpec::Drives).await.unwrap_err().kind, Kind::Invalid);
        pool.close().await.unwrap();
        let pool = machine.open(LogSpec::Drives).await.unwrap();
        verify(&pool.volume("db").unwrap(), &model).await;
        pool.close().await.unwrap();
    });
}

/// Labels that some drives had and others not were left so. Writes went to the new devices alone, while labels called the
/// old ones current: drives with those opened with an old log, and nobody was told.
#[test]
fn a_log_whose_move_not_all_drives_could_be_told_of_goes_on_in_both_places() {
    for (times, is_late) in [(Some(2), false), (None, false), (None, true)] {
        let machine = Machine::new(5);
        reactor::simulate(5, async move {
            let (pool, v) = machine.create(LogSpec::Drives, 1).await;
            let mut model = Model::new();
            scribble(&v, &mut model, 500, 1).await;
            let (operation, kind) = (Some(Operation::Write), media::Kind::Full);
            let range = at::LABEL..at::LABEL + 2 * BLOCK as u64;
            for drive in &machine.media[1..5] {
                drive.refuse(Refusal { operation, range: range.clone(), kind, times });
            }
            let moved = pool.move_log(machine.bbu(&[0])).await;
            assert_eq!(moved.is_ok(), times.is_some(), "{moved:?}");
            if times.is_none() {
                // Nor is the log taken from the old place by a move that fails after that one.
                machine.memories[1].poison(LOG / 2..LOG);
                assert!(pool.move_log(machine.bbu(&[1])).await.is_err());
            }
            scribble(&v, &mut model, 500, 2).await;
            if is_late {
                machine.media.iter().for_each(|drive| drive.refuse_nothing());
                pool.look_at_drives().await.unwrap();
                assert!(pool.0.half_moved.borrow().is_none(), "it is ended");
                scribble(&v, &mut model, 500, 3).await;
            }
            pool.abandon().await;
            machine.media.iter().for_each(|drive| drive.refuse_nothing());
            let (log, first) = match times {
                None if !is_late => (LogSpec::Drives, 1),
                _ => (machine.bbu(&[0]), 0),
            };
            let drives = machine.drives[first..].to_vec();
            let options = OpenOptions { degraded: first > 0, ..OpenOptions::default() };
            let pool = Pool::open(drives, log, options, &[]).await.unwrap();
            verify(&pool.volume("db").unwrap(), &model).await;
            pool.close().await.unwrap();
        });
    }
}

/// Labels of another change could not be written everywhere. The move failed before its own were, these were written at
/// the next attempt, and it was called done: the log was where it had been, and nobody knew.
#[test]
fn a_move_that_failed_is_not_called_done_as_labels_of_another_change_are_written() {
    let machine = Machine::new(6);
    reactor::simulate(6, async move {
        let (pool, v) = machine.create(machine.bbu(&[0, 1]), 1).await;
        let mut model = Model::new();
        scribble(&v, &mut model, 500, 1).await;
        let (operation, kind) = (Some(Operation::Write), media::Kind::Full);
        let range = at::LABEL..at::LABEL + 2 * BLOCK as u64;
        machine.media[2].refuse(Refusal { operation, range, kind, times: Some(2) });
        let superblock = &pool.0.common.superblock;
        let other = superblock.write_labels(|label| label.term += 1).await;
        assert_eq!(other.unwrap_err().kind, Kind::Full);
        let moved = pool.move_log(machine.bbu(&[2])).await;
        reactor::sleep(Duration::from_secs(20)).await;
        let is_there = superblock.label().current_members().count() == 1;
        assert_eq!(moved.is_ok(), is_there, "{moved:?}");
        assert_eq!(superblock.members.current(), if is_there { 1 } else { 2 });
        scribble(&v, &mut model, 500, 2).await;
        pool.abandon().await;
        let log = if is_there { machine.bbu(&[2]) } else { machine.bbu(&[0, 1]) };
        let pool = machine.open(log).await.unwrap();
        verify(&pool.volume("db").unwrap(), &model).await;
        pool.close().await.unwrap();
    });
}

/// The device that the log is on, its control blocks damaged, looks like a copy that was left of it: who was told to make that
/// blank would have lost the log.
#[test]
fn a_copy_that_does_not_say_what_it_is_is_made_blank_and_the_log_itself_is_not() {
    let machine = Machine::new(2);
    reactor::simulate(1, async move {
        let (pool, v) = machine.create(machine.bbu(&[0]), 1).await;
        let mut model = Model::new();
        scribble(&v, &mut model, 300, 1).await;
        let device = |n: usize| &machine.devices[n];
        device(1).write(0, &machine.memories[0].contents()).unwrap();
        for n in [0, 1] {
            [0, 4096].iter().for_each(|at| device(n).write(*at, &[0xA5; 64]).unwrap());
            device(n).fence();
        }
        let refused = pool.move_log(machine.pmem(&[0])).await.unwrap_err();
        assert!(refused.to_string().contains("has the log already"), "{refused}");
        let refused = pool.move_log(machine.bbu(&[1])).await.unwrap_err();
        assert!(refused.to_string().contains("write zeroes"), "{refused}");
        device(1).write(0, &vec![0; usize64(LOG)]).unwrap();
        pool.move_log(machine.bbu(&[1])).await.unwrap();
        scribble(&v, &mut model, 300, 2).await;
        verify(&v, &model).await;
        pool.close().await.unwrap();
        let pool = machine.open(machine.bbu(&[1])).await.unwrap();
        verify(&pool.volume("db").unwrap(), &model).await;
        pool.close().await.unwrap();
    });
}

/// Another pool's log had come to lie where this one's had been, shorter than what was left of that: it was taken for this
/// pool's, with damaged control blocks, and written to.
#[test]
fn a_device_that_another_pool_has_by_now_is_not_taken_for_the_log() {
    let machine = Rc::new(Machine::new(3));
    let here = Rc::clone(&machine);
    reactor::simulate(1, async move {
        let (pool, v) = here.create(here.bbu(&[0]), 1).await;
        let mut model = Model::new();
        scribble(&v, &mut model, 300, 1).await;
        drop(pool);
        let (_, drives) = simulated(4, 96 * MIB, 77);
        let spec = PoolSpec { id: [8; 16], ..spec(&drives, here.bbu(&[0])) };
        let spec = PoolSpec { name: "another".into(), log_bytes: Some(3 * MIB), ..spec };
        let another = Pool::create(spec, &[]).await.unwrap();
        let v = another.create_volume(volume("db", 16 * MIB)).await.unwrap();
        v.write(0, &block(0, 1)).await.unwrap();
    });
    let before = machine.memories[0].contents();
    reactor::simulate(2, async move {
        let accepting = OpenOptions { accept_loss: true, ..OpenOptions::default() };
        for options in [OpenOptions::default(), accepting] {
            let (drives, log) = (machine.drives.clone(), machine.bbu(&[0]));
            assert!(Pool::open(drives, log, options, &[]).await.is_err());
            assert!(machine.memories[0].contents() == before, "another pool's log is written to");
        }
    });
}

/// Shorter than the old copy of this log that was there before, it left some of that: it was written over with the rest.
#[test]
fn a_log_is_not_moved_over_another_pool_s_that_lies_beside_an_old_copy() {
    let machine = Machine::new(4);
    reactor::simulate(1, async move {
        let (pool, v) = machine.create(machine.bbu(&[0]), 2).await;
        let mut model = Model::new();
        scribble(&v, &mut model, 300, 1).await;
        pool.move_log(machine.bbu(&[1])).await.unwrap();
        let (_, drives) = simulated(4, 96 * MIB, 77);
        let spec = PoolSpec { id: [8; 16], ..spec(&drives, machine.bbu(&[0])) };
        let spec = PoolSpec { name: "another".into(), log_bytes: Some(LOG / 2), ..spec };
        let another = Pool::create(spec, &[]).await.unwrap();
        let other = another.create_volume(volume("db", 16 * MIB)).await.unwrap();
        other.write(0, &block(0, 1)).await.unwrap();
        let before = machine.memories[0].contents();
        let refused = pool.move_log(machine.bbu(&[0])).await.unwrap_err();
        assert!(refused.to_string().contains("beside it"), "{refused}");
        assert!(machine.memories[0].contents() == before, "another pool's log is written to");
        scribble(&v, &mut model, 100, 2).await;
        verify(&v, &model).await;
        pool.close().await.unwrap();
    });
}

/// A log too long to have room set aside for it says so.
#[test]
fn a_log_that_is_long_for_its_drives_does_not_move_to_them() {
    reactor::simulate(1, async move {
        let (_, all) = simulated(5, 128 * MIB, 1);
        let log = LogSpec::Bbu(vec![pmem(16 * MIB)]);
        let pool = Pool::create(spec(&all, log), &[]).await.unwrap();
        let error = pool.move_log(LogSpec::Drives).await.unwrap_err();
        assert!(error.kind == Kind::Invalid && error.to_string().contains("too long"), "{error}");
        pool.close().await.unwrap();
    });
}
