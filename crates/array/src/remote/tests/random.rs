//! In virtual time, over a network that cuts connections, at a target whose drive is late with some writes: from seeds.
//! `FLASHLOOM_SEED` is one of them, `FLASHLOOM_ROUNDS` how many there are.

use std::sync::Mutex;

use reactor::network::{Cut, connections, cut, refuse};
use stdx::Prng;
use stdx::num::{low8, usize64};

use super::*;

const BLOCKS: u64 = 4;
const OPERATIONS: u64 = 80;

/// A drive that is late with some writes.
#[derive(Debug)]
struct Late {
    drive: Drive,
    prng: Mutex<Prng>,
}

impl Late {
    async fn wait(&self) {
        let ms = {
            let mut prng = self.prng.lock().unwrap();
            let most = if prng.chance_ppm(150_000) { 6000 } else { 3 };
            prng.below(most)
        };
        reactor::sleep(Duration::from_millis(ms)).await;
    }
}

impl Remote for Late {
    fn capacity(&self) -> u64 {
        self.drive.capacity()
    }

    fn logical_block(&self) -> u32 {
        self.drive.logical_block()
    }

    fn has_volatile_cache(&self) -> bool {
        false
    }

    fn failure(&self) -> Option<Kind> {
        None
    }

    fn has_late_changes(&self) -> bool {
        false
    }

    fn connection(&self) -> Option<u64> {
        Some(1)
    }

    fn read(
        &self,
        _: Option<u64>,
        offset: u64,
        len: usize,
        buffer: Buffer,
    ) -> Answer<'_, Result<Buffer, Refused>> {
        Box::pin(async move { Ok(self.drive.fill(offset, len, buffer).await?) })
    }

    fn write(
        &self,
        _: Option<u64>,
        offset: u64,
        data: Buffer,
        fua: bool,
    ) -> Answer<'_, Result<(), Refused>> {
        Box::pin(async move {
            self.wait().await;
            self.drive.write_or_return(offset, data, fua).await
        })
    }

    fn flush(&self) -> Answer<'_, Result<(), Error>> {
        Box::pin(self.drive.flush())
    }

    fn deallocate(&self, offset: u64, len: u64) -> Answer<'_, Result<(), Error>> {
        Box::pin(self.drive.deallocate(offset, len))
    }

    fn write_zeroes(
        &self,
        _: Option<u64>,
        offset: u64,
        len: u64,
        deallocate: bool,
    ) -> Answer<'_, Result<(), Error>> {
        Box::pin(self.drive.write_zeroes(offset, len, deallocate))
    }
}

/// What a block may hold.
#[derive(Clone, Debug, Default)]
struct May {
    /// What was acknowledged or read last.
    surely: u8,
    /// Writes that were begun since and not acknowledged.
    maybe: Vec<u8>,
}

struct Rig {
    port: u16,
    prng: Prng,
    drive: Arc<Drive>,
    /// Those of processes that were stopped, and go on after another one has taken over.
    old: Vec<Arc<Drive>>,
    /// The drive did something since it was opened: no older one can write.
    taken: bool,
    blocks: Vec<May>,
    acknowledged: u64,
}

impl Rig {
    fn new(seed: u64, port: u16) -> Self {
        Self {
            port,
            prng: Prng::new(seed),
            drive: RemoteDrive::open(at(port), NODE).1,
            old: Vec::new(),
            taken: false,
            blocks: vec![May::default(); usize64(BLOCKS)],
            acknowledged: 0,
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.prng.chance_ppm(percent * 10_000)
    }

    /// Writes a value of its own, or gives that up.
    async fn write(&mut self, block: u64, value: u8) {
        let patience = if self.chance(30) { self.prng.below(1500) } else { 60_000 };
        let drive = Arc::clone(&self.drive);
        let written = write(&drive, block * 4096, value);
        let written = reactor::timeout(Duration::from_millis(patience), written).await;
        let may = &mut self.blocks[usize64(block)];
        if matches!(written, Ok(Ok(()))) {
            *may = May { surely: value, maybe: Vec::new() };
            self.taken = true;
            self.acknowledged += 1;
        } else {
            may.maybe.push(value);
        }
    }

    /// What was read stays, whatever was given up before.
    async fn read(&mut self, block: u64) {
        let Ok(read) = byte(&self.drive, block * 4096).await else { return };
        self.taken = true;
        let may = &mut self.blocks[usize64(block)];
        assert!(read == may.surely || may.maybe.contains(&read), "{read} of {may:?}");
        *may = May { surely: read, maybe: Vec::new() };
    }

    /// Another process has the drive from now on; the one before ended in order, or not.
    fn succeed(&mut self) {
        let (_, next) = RemoteDrive::open(at(self.port), NODE);
        let before = std::mem::replace(&mut self.drive, next);
        // One that never held it would be taken for the newer one.
        if self.taken && self.chance(50) {
            self.old.push(before);
        }
        self.taken = false;
    }

    /// What went on writes something that is never read.
    async fn haunt(&mut self, block: u64) {
        let Some(old) = self.old.last().filter(|_| self.taken) else { return };
        write(old, block * 4096, GHOST).await.unwrap_err();
    }

    async fn step(&mut self, number: u64) {
        let block = self.prng.below(BLOCKS);
        match self.prng.below(100) {
            0..50 => self.write(block, low8(number)).await,
            50..85 => self.read(block).await,
            85..90 => self.succeed(),
            90..95 => self.haunt(block).await,
            _ => reactor::sleep(Duration::from_millis(self.prng.below(1500))).await,
        }
    }
}

const GHOST: u8 = 255;

/// Cuts connections, and refuses new ones for a while.
async fn trouble(seed: u64, port: u16) {
    let mut prng = Prng::new(seed);
    // In some runs commands have the time to go unanswered.
    let between = 3000 * (1 + prng.below(8));
    loop {
        reactor::sleep(Duration::from_millis(prng.below(between))).await;
        let all = connections();
        let which = prng.below(u64_of(all.len()).max(1));
        if let Some(connected) = all.get(usize64(which)) {
            let how = [Cut::Reset, Cut::HalfOpen, Cut::Silent];
            cut(connected.id, how[usize64(prng.below(3))]);
        }
        if prng.chance_ppm(200_000) {
            let listener = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
            refuse(listener, true);
            reactor::sleep(Duration::from_millis(prng.below(3000))).await;
            refuse(listener, false);
        }
    }
}

/// Gives how many writes were acknowledged.
async fn run(seed: u64) -> u64 {
    let drive = Drive::memory(LEN, RegionOptions::default()).unwrap();
    let late = Late { drive, prng: Mutex::new(Prng::new(seed)) };
    let backend = Backend::Drive(Arc::new(Drive::Remote(Arc::new(late))));
    let port = serve(target(backend), 4420).await;
    let trouble = reactor::spawn(trouble(seed, port));
    let mut rig = Rig::new(seed, port);
    for number in 1..=OPERATIONS {
        rig.step(number).await;
    }
    trouble.abort();
    let acknowledged = rig.acknowledged;
    drop(rig);
    // The target ends with nothing under way.
    reactor::sleep(Duration::from_secs(30)).await;
    acknowledged
}

#[test]
fn what_was_acknowledged_or_read_is_never_undone_by_what_was_given_up() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("FLASHLOOM_SEED");
    let rounds = number("FLASHLOOM_ROUNDS").unwrap_or(if first.is_some() { 1 } else { 40 });
    let first = first.unwrap_or(1);
    let mut acknowledged = 0;
    for seed in first..first + rounds {
        let ran = std::panic::catch_unwind(|| reactor::simulate(seed, run(seed)));
        acknowledged += ran.unwrap_or_else(|_| panic!("FLASHLOOM_SEED={seed}"));
    }
    assert!(acknowledged > rounds * OPERATIONS / 20, "{acknowledged} in {rounds} rounds");
}
