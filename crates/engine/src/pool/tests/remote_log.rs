//! A log that a namespace of another target has, too.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use media::drive::{Answer, Remote, SimulatedContents};
use media::{Refused, Simulated, SimulatedPmem};
use reactor::buffer::Buffer;

use super::*;
use crate::format::label::LogKind;

const LOG: u64 = 6 * MIB;

/// Drives, memory for the log, and another target's namespace.
struct Rig {
    drives: Vec<Arc<Drive>>,
    memory: Arc<Pmem>,
    far: Arc<Simulated>,
    namespace: RefCell<Arc<Drive>>,
}

impl Rig {
    fn new(seed: u64) -> Self {
        let (_, drives) = simulated(4, 128 * MIB, seed * 100);
        let options = SimulatedOptions { capacity: 16 * MIB, seed, ..SimulatedOptions::default() };
        let far = Simulated::new(options);
        let namespace = namespace(&far);
        Self { drives, memory: blank(), far, namespace: RefCell::new(namespace) }
    }

    fn here(&self) -> LogDevice {
        LogDevice::Memory(Arc::clone(&self.memory))
    }

    fn there(&self) -> LogDevice {
        LogDevice::remote(Arc::clone(&self.namespace.borrow()))
    }

    /// The process was started again.
    fn restart(&self) {
        *self.namespace.borrow_mut() = namespace(&self.far);
    }

    /// On both.
    fn log(&self) -> LogSpec {
        LogSpec::Remote(vec![self.here(), self.there()])
    }

    async fn create(&self) -> (Pool, Volume) {
        self.create_on(vec![self.here(), self.there()]).await
    }

    /// With a log on these.
    async fn create_on(&self, log: Vec<LogDevice>) -> (Pool, Volume) {
        let spec = PoolSpec { log_bytes: Some(LOG), ..spec(&self.drives, LogSpec::Remote(log)) };
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

/// A drive that says how long it is once it has answered.
#[derive(Debug)]
struct Namespace {
    drive: Drive,
    is_known: AtomicBool,
    reads: AtomicUsize,
    /// Reads that it does not answer, by number.
    silence: std::ops::Range<usize>,
    writes: AtomicUsize,
    /// As its first write comes, it is reached anew, with what it had once.
    goes_back: Option<SimulatedContents>,
    /// What has the same log here.
    beside: Option<Arc<Pmem>>,
    /// Writes of what that had by then.
    behind: Arc<AtomicUsize>,
}

/// As a process finds it that has just started.
fn namespace(far: &Arc<Simulated>) -> Arc<Drive> {
    breaking_off(far, 0..0)
}

/// One that does not answer these reads.
fn breaking_off(far: &Arc<Simulated>, silence: std::ops::Range<usize>) -> Arc<Drive> {
    made(far, silence, None)
}

fn made(
    far: &Arc<Simulated>,
    silence: std::ops::Range<usize>,
    goes_back: Option<SimulatedContents>,
) -> Arc<Drive> {
    let (drive, is_known) = (Drive::Simulated(Arc::clone(far)), AtomicBool::new(false));
    let (reads, writes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (beside, behind) = (None, Arc::default());
    let namespace =
        Namespace { drive, is_known, reads, silence, writes, goes_back, beside, behind };
    Arc::new(Drive::Remote(Arc::new(namespace)))
}

/// One that counts what it is told to write and is in memory here already.
fn beside(far: &Arc<Simulated>, memory: &Arc<Pmem>) -> (Arc<Drive>, Arc<AtomicUsize>) {
    let behind = Arc::<AtomicUsize>::default();
    let namespace = Namespace {
        drive: Drive::Simulated(Arc::clone(far)),
        is_known: AtomicBool::new(false),
        reads: AtomicUsize::new(0),
        silence: 0..0,
        writes: AtomicUsize::new(0),
        goes_back: None,
        beside: Some(Arc::clone(memory)),
        behind: Arc::clone(&behind),
    };
    (Arc::new(Drive::Remote(Arc::new(namespace))), behind)
}

type Done<T, E> = std::result::Result<T, E>;

/// Another target gives and takes whole blocks.
fn aligned(offset: u64, len: usize) {
    let block = stdx::num::u64_of(BLOCK);
    assert!(offset.is_multiple_of(block) && len.is_multiple_of(BLOCK), "{len} bytes at {offset}");
}

/// By this connection nothing is sent any more.
fn check(drive: &Drive, by: Option<u64>, operation: media::Operation) -> Done<(), media::Error> {
    if by.is_none() || drive.connection() == by {
        return Ok(());
    }
    let kind = media::Kind::Gone;
    Err(media::Error { kind, operation, offset: 0, len: 0, source: None })
}

impl Namespace {
    fn note<T, E>(&self, answer: Done<T, E>) -> Done<T, E> {
        if answer.is_ok() {
            self.is_known.store(true, Ordering::Relaxed);
        }
        answer
    }
}

impl Remote for Namespace {
    fn capacity(&self) -> u64 {
        if self.is_known.load(Ordering::Relaxed) { self.drive.capacity() } else { 0 }
    }

    fn logical_block(&self) -> u32 {
        self.drive.logical_block()
    }

    fn has_volatile_cache(&self) -> bool {
        true
    }

    fn failure(&self) -> Option<media::Kind> {
        None
    }

    fn has_late_changes(&self) -> bool {
        false
    }

    fn connection(&self) -> Option<u64> {
        self.drive.connection()
    }

    fn read(
        &self,
        by: Option<u64>,
        offset: u64,
        len: usize,
        buffer: Buffer,
    ) -> Answer<'_, Done<Buffer, Refused>> {
        Box::pin(async move {
            aligned(offset, len);
            if self.silence.contains(&self.reads.fetch_add(1, Ordering::Relaxed)) {
                let (operation, len) = (media::Operation::Read, stdx::num::u64_of(len));
                let kind = media::Kind::Gone;
                return Err(media::Error { kind, operation, offset, len, source: None }.into());
            }
            check(&self.drive, by, media::Operation::Read)?;
            self.note(self.drive.fill(offset, len, buffer).await.map_err(Refused::from))
        })
    }

    fn write(
        &self,
        by: Option<u64>,
        offset: u64,
        data: Buffer,
        fua: bool,
    ) -> Answer<'_, Done<(), Refused>> {
        aligned(offset, data.len());
        if let Some(memory) = &self.beside
            && memory.with(offset, data.len(), |bytes| *bytes == data[..]).unwrap()
        {
            self.behind.fetch_add(1, Ordering::Relaxed);
        }
        Box::pin(async move {
            if self.writes.fetch_add(1, Ordering::Relaxed) == 0
                && let Some(old) = &self.goes_back
            {
                let Drive::Simulated(far) = &self.drive else { unreachable!() };
                far.fail();
                far.restore(old);
                far.revive();
            }
            check(&self.drive, by, media::Operation::Write)?;
            self.note(self.drive.write_or_return(offset, data, fua).await)
        })
    }

    fn flush(&self) -> Answer<'_, Done<(), media::Error>> {
        Box::pin(self.drive.flush())
    }

    fn deallocate(&self, offset: u64, len: u64) -> Answer<'_, Done<(), media::Error>> {
        Box::pin(self.drive.deallocate(offset, len))
    }

    fn write_zeroes(
        &self,
        _: Option<u64>,
        offset: u64,
        len: u64,
        dealloc: bool,
    ) -> Answer<'_, Done<(), media::Error>> {
        Box::pin(self.drive.write_zeroes(offset, len, dealloc))
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
    let here = Rc::clone(rig);
    let model = reactor::simulate(seed, async move {
        let (pool, v) = here.create().await;
        let mut model = Model::new();
        scribble(&v, &mut model, 300, seed).await;
        story(&here, &pool, &v, &mut model).await;
        model
    });
    rig.restart();
    model
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

/// A network takes longer than memory: the other target is at it while records are copied here.
#[test]
fn records_are_on_their_way_before_they_are_copied_to_memory() {
    let rig = Rc::new(Rig::new(3));
    let (namespace, behind) = beside(&rig.far, &rig.memory);
    *rig.namespace.borrow_mut() = namespace;
    let model = live(&rig, 3, async move |_, _, v, model| {
        let before = behind.load(Ordering::Relaxed);
        scribble(v, model, 100, 4).await;
        assert_eq!(behind.load(Ordering::Relaxed), before, "what memory had already");
    });
    reactor::simulate(4, async move {
        rig.has(rig.log(), &model).await.close().await.unwrap();
    });
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
        rig.restart();
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
        // The one that has it all is only away.
        let silent = rig.open(nothing).await.err().unwrap();
        assert!(silent.to_string().contains("does not answer"), "{silent}");
        let silent = rig.open(LogSpec::Remote(vec![rig.there()])).await.err().unwrap();
        assert!(silent.to_string().contains("does not answer"), "{silent}");
        rig.far.revive();
        rig.has(rig.log(), &model).await.close().await.unwrap();
    });
}

/// With the other target away nothing is acknowledged that it has not: neither at once, nor after a restart.
#[test]
fn writes_wait_for_the_other_target_where_that_is_wanted() {
    for hangs in [false, true] {
        let rig = Rc::new(Rig::new(7));
        let model = live(&rig, 7, async move |rig, pool, v, model| {
            pool.have_log_wait(true).await.unwrap();
            let away = |is_away: bool| match (hangs, is_away) {
                (true, _) => rig.far.set_hanging(is_away),
                (false, true) => rig.far.fail(),
                (false, false) => rig.far.revive(),
            };
            scribble(v, model, 50, 1).await;
            away(true);
            let (data, told) = (block(9, 9), Rc::new(Cell::new(false)));
            let (writer, done) = (v.clone(), Rc::clone(&told));
            let write = reactor::spawn(async move {
                writer.write(9 * BLOCK as u64, &data).await.unwrap();
                done.set(true);
            });
            let (copier, copied) = (v.clone(), Rc::clone(&told));
            let copy = reactor::spawn(async move {
                let last = copier.len() - BLOCK as u64;
                copier.copy_from(&copier, last, last - BLOCK as u64, BLOCK as u64).await.unwrap();
                copied.set(true);
            });
            let (clearer, cleared) = (v.clone(), Rc::clone(&told));
            let clear = reactor::spawn(async move {
                let last = clearer.len() - 3 * BLOCK as u64;
                clearer.deallocate(last, BLOCK as u64).await.unwrap();
                cleared.set(true);
            });
            reactor::sleep(Duration::from_secs(60)).await;
            assert!(!told.get(), "one side alone has it");
            let mut bytes = vec![0; BLOCK];
            v.read(0, &mut bytes).await.unwrap();
            assert!(pool.status().await.unwrap().log.waits);
            away(false);
            assert!(write.await.is_some() && copy.await.is_some() && clear.await.is_some());
            assert_eq!(pool.log_copies(), (2, 2), "both have it");
            let blocks = v.len() / BLOCK as u64;
            model.insert(9, 9);
            model.remove(&(blocks - 2));
            model.remove(&(blocks - 3));
            assert!(!model.contains_key(&(blocks - 1)), "what was copied is a hole");
            away(true);
        });
        rig.far.set_hanging(false);
        rig.far.fail();
        reactor::simulate(8, async move {
            let pool = rig.has(rig.log(), &model).await;
            let v = pool.volume("db").unwrap();
            let data = block(9, 10);
            let write = v.write(9 * BLOCK as u64, &data);
            assert!(reactor::timeout(Duration::from_secs(60), write).await.is_err());
            // Whoever waits when the pool is closed is told to try again.
            let write = reactor::spawn(async move { v.write(0, &data).await.unwrap_err().kind });
            reactor::sleep(Duration::from_secs(1)).await;
            pool.close().await.unwrap();
            assert_eq!(write.await, Some(Kind::Busy));
            rig.far.revive();
            rig.restart();
            let pool = rig.open(rig.log()).await.unwrap();
            pool.have_log_wait(false).await.unwrap();
            rig.far.fail();
            pool.volume("db").unwrap().write(0, &block(0, 11)).await.unwrap();
            // Memory alone waits for nothing.
            pool.move_log(LogSpec::Bbu(vec![blank()])).await.unwrap();
            assert_eq!(pool.have_log_wait(true).await.unwrap_err().kind, Kind::Invalid);
            pool.close().await.unwrap();
        });
    }
}

/// What was not answered was taken for the end of the log, and written over once the namespace answered again.
#[test]
fn a_namespace_that_breaks_off_while_it_is_read_is_not_taken_for_a_shorter_log() {
    let (mut refused, mut opened) = (0, 0);
    for from in 0..24 {
        let rig = Rc::new(Rig::new(3));
        let here = Rc::clone(&rig);
        // Few: nothing of it is on the drives.
        let model = reactor::simulate(3, async move {
            let (_pool, v) = here.create().await;
            let mut model = Model::new();
            scribble(&v, &mut model, 20, 3).await;
            model
        });
        *rig.namespace.borrow_mut() = breaking_off(&rig.far, from..from + 20);
        let has_it = reactor::simulate(from as u64, async move {
            let alone = LogSpec::Remote(vec![rig.there()]);
            if let Ok(pool) = rig.open(alone.clone()).await {
                verify(&pool.volume("db").unwrap(), &model).await;
                pool.close().await.unwrap();
                return true;
            }
            rig.restart();
            let alone = LogSpec::Remote(vec![rig.there()]);
            rig.has(alone, &model).await.close().await.unwrap();
            false
        });
        *if has_it { &mut opened } else { &mut refused } += 1;
    }
    assert!(
        refused > 5 && opened > 5,
        "{refused} refused, {opened} opened: it breaks off at other moments"
    );
}

/// The pool itself waits for no copies: an opening that ended a deletion never came to its end.
#[test]
fn a_volume_is_deleted_while_writes_wait() {
    let rig = Rc::new(Rig::new(5));
    let _ = live(&rig, 5, async |rig, pool, _, _| {
        let old =
            pool.create_volume(VolumeSpec { id: [9; 16], ..volume("old", MIB) }).await.unwrap();
        old.write(0, &block(0, 1)).await.unwrap();
        drop(old);
        pool.have_log_wait(true).await.unwrap();
        rig.far.fail();
        reactor::timeout(Duration::from_secs(60), pool.delete_volume("old"))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(pool.log_copies(), (1, 2));
    });
}

/// By now it is another's: what lies at the beginning, or where a file system begins that leaves the first pages alone.
#[test]
fn a_namespace_that_comes_back_with_something_else_is_left_alone() {
    for at in [2048, 0x1_0040] {
        let rig = Rc::new(Rig::new(6));
        let _ = live(&rig, 6, async move |rig, pool, v, model| {
            rig.far.fail();
            scribble(v, model, 50, 1).await;
            let somebodys = block(1, 77);
            rig.far.poke(0, &vec![0; stdx::num::usize64(LOG)]);
            rig.far.poke(at, &somebodys);
            rig.far.revive();
            reactor::sleep(Duration::from_secs(120)).await;
            assert_eq!(pool.log_copies(), (1, 2));
            let mut there = vec![0; BLOCK];
            rig.far.peek(at, &mut there);
            assert!(there == somebodys, "it was written over");
            let away = pool.status().await.unwrap().log.away;
            assert!(away[0].contains("has something else by now"), "{away:?}");
        });
    }
}

/// The other target lost its power, and with it what it had, while nobody wrote: it is no copy any more before that is
/// made whole, whoever finds out, a look or the next write.
#[test]
fn a_namespace_that_comes_back_without_what_it_had_is_no_copy_until_it_is_made_whole() {
    for looks in [false, true] {
        let rig = Rc::new(Rig::new(5));
        let nothing = rig.far.contents();
        let model = live(&rig, 5, async move |rig, pool, v, model| {
            assert_eq!(pool.log_copies(), (2, 2));
            rig.far.fail();
            rig.far.restore(&nothing);
            rig.far.revive();
            let made = pool.log_copies_made();
            if looks {
                pool.look_at_drives().await.unwrap();
            } else {
                scribble(v, model, 1, 77).await;
            }
            assert_eq!(pool.log_copies(), (1, 2));
            copies(pool, 2).await;
            assert_eq!(pool.log_copies_made(), made + 1);
            scribble(v, model, 20, 78).await;
        });
        reactor::simulate(6, async move {
            let pool = rig.has(LogSpec::Remote(vec![rig.there()]), &model).await;
            pool.close().await.unwrap();
        });
    }
}

/// Somebody else has one of two devices by now, another pool or a file system: the other one has the log, and what is
/// there stays.
#[test]
fn a_device_that_has_something_else_by_now_is_left_alone_and_the_pool_opens_with_the_other() {
    for (in_order, is_pool) in [(false, true), (true, true), (false, false), (true, false)] {
        let rig = Rc::new(Rig::new(6));
        let nothing = rig.far.contents();
        let model = live(&rig, 6, async move |_, pool, _, _| {
            if in_order {
                pool.clone().close().await.unwrap();
            }
        });
        rig.far.restore(&nothing);
        rig.far.poke(0x1_0040, &block(1, 77));
        if is_pool {
            let far = Arc::clone(&rig.far);
            reactor::simulate(8, async move {
                let others = Rig::new(60);
                let log = LogSpec::Remote(vec![LogDevice::remote(namespace(&far))]);
                let spec =
                    PoolSpec { id: [8; 16], log_bytes: Some(LOG), ..spec(&others.drives, log) };
                Pool::create(spec, &[]).await.unwrap().close().await.unwrap();
            });
        }
        let is = rig.far.contents();
        reactor::simulate(7, async move {
            let error = rig.open(LogSpec::Remote(vec![rig.there()])).await.err().unwrap();
            assert_eq!(error.kind, Kind::Missing, "{error}");
            let mut model = model;
            let pool = rig.has(rig.log(), &model).await;
            scribble(&pool.volume("db").unwrap(), &mut model, 50, 9).await;
            reactor::sleep(Duration::from_secs(60)).await;
            assert_eq!(pool.log_copies(), (1, 2));
            let away = pool.status().await.unwrap().log.away;
            assert!(away.iter().any(|why| why.contains("something else")), "{away:?}");
            pool.close().await.unwrap();
            assert_eq!(rig.far.difference(&is), None);
        });
    }
}

/// The only place that the log has is reached by another connection: it has what it had, and hosts notice nothing; or it
/// has not, and nothing more is acknowledged.
#[test]
fn a_log_on_a_namespace_alone_goes_on_over_a_new_connection_with_what_it_had() {
    for is_blank in [false, true] {
        let rig = Rc::new(Rig::new(9));
        let nothing = rig.far.contents();
        let here = Rc::clone(&rig);
        let model = reactor::simulate(9, async move {
            let (pool, v) = here.create_on(vec![here.there()]).await;
            let mut model = Model::new();
            scribble(&v, &mut model, 100, 1).await;
            here.far.fail();
            if is_blank {
                here.far.restore(&nothing);
            }
            here.far.revive();
            pool.look_at_drives().await.unwrap();
            if is_blank {
                v.write(0, &block(0, 5)).await.unwrap_err();
                assert_eq!(
                    here.far.difference(&nothing),
                    None,
                    "what is not known is not written to"
                );
            } else {
                scribble(&v, &mut model, 100, 2).await;
                assert_eq!(pool.log_copies(), (1, 1));
            }
            model
        });
        if !is_blank {
            rig.restart();
            reactor::simulate(10, async move {
                let alone = LogSpec::Remote(vec![rig.there()]);
                rig.has(alone, &model).await.close().await.unwrap();
            });
        }
    }
}

/// The only place that the log has loses its connection in the midst of an opening, and comes back with what it had long
/// ago: that is not the log, whatever names it has.
#[test]
fn an_old_log_that_comes_back_in_the_midst_of_an_opening_is_not_the_log() {
    let rig = Rc::new(Rig::new(11));
    let (here, old) = (Rc::clone(&rig), Rc::new(RefCell::new(None)));
    let before = Rc::clone(&old);
    let model = reactor::simulate(11, async move {
        let (pool, v) = here.create_on(vec![here.there()]).await;
        let mut model = Model::new();
        scribble(&v, &mut model, 100, 1).await;
        *before.borrow_mut() = Some(here.far.contents());
        pool.close().await.unwrap();
        let pool = here.open(LogSpec::Remote(vec![here.there()])).await.unwrap();
        scribble(&pool.volume("db").unwrap(), &mut model, 100, 2).await;
        model
    });
    let is = rig.far.contents();
    reactor::simulate(12, async move {
        let comes_back = made(&rig.far, 0..0, old.borrow_mut().take());
        let error = rig.open(LogSpec::Remote(vec![LogDevice::remote(comes_back)])).await;
        assert_eq!(error.err().map(|error| error.kind), Some(Kind::Failed));
        rig.far.restore(&is);
        rig.restart();
        let pool = rig.has(LogSpec::Remote(vec![rig.there()]), &model).await;
        pool.close().await.unwrap();
    });
}

/// The only place of a log was away for longer than anything waits, and came back: it has all that there is, and keeps its
/// name, though the log has ended by then.
#[test]
fn the_last_place_of_a_log_keeps_its_name_however_long_it_was_away() {
    let rig = Rc::new(Rig::new(13));
    let here = Rc::clone(&rig);
    let model = reactor::simulate(13, async move {
        let (pool, v) = here.create_on(vec![here.there()]).await;
        let mut model = Model::new();
        scribble(&v, &mut model, 100, 1).await;
        here.far.fail();
        v.write(0, &block(0, 5)).await.unwrap_err();
        here.far.revive();
        reactor::sleep(Duration::from_secs(120)).await;
        // Nothing is acknowledged by this log any more.
        assert!(pool.look_at_drives().await.is_err());
        reactor::sleep(Duration::from_secs(120)).await;
        model
    });
    rig.restart();
    reactor::simulate(14, async move {
        let pool = rig.has(LogSpec::Remote(vec![rig.there()]), &model).await;
        pool.close().await.unwrap();
    });
}
