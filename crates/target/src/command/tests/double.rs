//! A host, and a namespace for it.

use std::cell::{Cell, Ref, RefCell};
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use fabric::payload::Payload;
use media::drive::{OpenDrive, SimulatedOptions};
use media::memory::{Region, RegionOptions};
use media::{Drive, Simulated};
use nvme::nqn::Nqn;
use nvme::sqe::{Sgl, Sqe};
use nvme::status::Status;
use reactor::budget::{Account, Grant, Ledger};
use reactor::buffer::Buffer;
use stdx::num::{u32_of, u64_of, usize32};

use crate::budget::Share;
use crate::command::{AtOnce, Attached, Begun, Reply, Slot, begin, execute};
use crate::namespace::{Backend, Namespace, NamespaceSpec};
use crate::reservation::{HostId, Notice};

pub const HOST: HostId = HostId([1; 16]);
pub const OTHER: HostId = HostId([2; 16]);

/// Where a test namespace keeps its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Memory,
    File,
    /// A volume of this reactor.
    Volume,
    /// A volume of two other reactors.
    Elsewhere,
}

pub const EVERYWHERE: [On; 4] = [On::Memory, On::File, On::Volume, On::Elsewhere];

/// A namespace of `blocks` blocks of `block_size` bytes; the file lives as long as this.
pub struct Place {
    pub namespace: Arc<Namespace>,
    _under: Under,
}

/// What goes with a place.
enum Under {
    Nothing,
    File { _directory: tempfile::TempDir },
    Reactors(Vec<reactor::Handle>),
}

impl Drop for Under {
    fn drop(&mut self) {
        if let Self::Reactors(handles) = self {
            for handle in handles {
                handle.stop();
                let _ = handle.join();
            }
        }
    }
}

/// A volume of at least `bytes` on a pool of memory with a shard on each of these reactors, or on
/// this one; the pool lives as long as they.
async fn volume(bytes: u64, block_size: u32, on: Vec<reactor::Handle>) -> engine::Volume {
    pool_on(memory(bytes), log(), bytes, block_size, on).await.1
}

fn memory(bytes: u64) -> Drive {
    let options = RegionOptions { block_size: 4096, shared: true, committed: false };
    Drive::memory((bytes * 3).max(512 << 20), options).unwrap()
}

fn log() -> engine::LogSpec {
    engine::LogSpec::Bbu(vec![Arc::new(media::Pmem::anonymous(8 << 20).unwrap())])
}

/// A volume of a pool on one drive.
async fn pool_on(
    drive: Drive,
    log: engine::LogSpec,
    bytes: u64,
    block_size: u32,
    on: Vec<reactor::Handle>,
) -> (engine::Pool, engine::Volume) {
    let spec = engine::PoolSpec {
        drives: vec![Arc::new(drive)],
        shards: Some(stdx::num::u16_of(on.len().max(1))),
        ..pool_spec(log)
    };
    let pool = engine::Pool::create(spec, &on).await.unwrap();
    let spec = volume_spec(bytes.next_multiple_of(4096), block_size);
    let volume = pool.create_volume(spec).await.unwrap();
    (pool, volume)
}

/// Of no drives yet.
fn pool_spec(log: engine::LogSpec) -> engine::PoolSpec {
    engine::PoolSpec {
        name: "pool".to_owned(),
        id: [7; 16],
        drives: Vec::new(),
        scheme: raid::Scheme::Single,
        log,
        log_bytes: None,
        shards: None,
        au_bytes: None,
        created: 0,
    }
}

fn volume_spec(bytes: u64, block_size: u32) -> engine::VolumeSpec {
    engine::VolumeSpec {
        name: "v".to_owned(),
        id: [9; 16],
        bytes,
        block_size,
        quota: None,
        reservation: None,
    }
}

impl Place {
    /// A volume of this reactor on a drive that answers later, and its pool.
    pub async fn slow(nsid: u32, blocks: u64) -> (engine::Pool, Self) {
        let bytes = blocks * 4096;
        let drive = memory(bytes).with_faults(media::FaultPlan::default());
        let (pool, volume) = pool_on(drive, log(), bytes, 4096, Vec::new()).await;
        (pool, Self::of(Backend::Volume(volume), Under::Nothing, nsid, blocks, 4096))
    }

    /// A volume of this reactor whose log is on its drive, and its pool.
    pub async fn logged_on_drive(nsid: u32, blocks: u64) -> (engine::Pool, Self) {
        let bytes = blocks * 4096;
        let log = engine::LogSpec::Drives;
        let (pool, volume) = pool_on(memory(bytes), log, bytes, 4096, Vec::new()).await;
        (pool, Self::of(Backend::Volume(volume), Under::Nothing, nsid, blocks, 4096))
    }

    /// For one core.
    pub async fn new(on: On, nsid: u32, blocks: u64, block_size: u32) -> Self {
        Self::make(on, nsid, blocks, block_size, false).await
    }

    /// For several cores.
    pub async fn shared(on: On, nsid: u32, blocks: u64, block_size: u32) -> Self {
        Self::make(on, nsid, blocks, block_size, true).await
    }

    /// A volume of this reactor on three drives of which one may be lost, those drives, and its pool.
    pub async fn on_three_drives(
        nsid: u32,
        blocks: u64,
    ) -> (Vec<Arc<Simulated>>, engine::Pool, Self) {
        let options = SimulatedOptions { capacity: 128 << 20, ..SimulatedOptions::default() };
        let media: Vec<_> = (0..3).map(|_| Simulated::new(options.clone())).collect();
        let drives = media.iter().map(|drive| Arc::new(Drive::Simulated(Arc::clone(drive))));
        let spec = engine::PoolSpec {
            drives: drives.collect(),
            scheme: raid::Scheme::Raid5,
            shards: Some(1),
            ..pool_spec(engine::LogSpec::Drives)
        };
        let pool = engine::Pool::create(spec, &[]).await.unwrap();
        let volume = pool.create_volume(volume_spec(blocks * 4096, 4096)).await.unwrap();
        (media, pool, Self::of(Backend::Volume(volume), Under::Nothing, nsid, blocks, 4096))
    }

    async fn make(on: On, nsid: u32, blocks: u64, block_size: u32, shared: bool) -> Self {
        let bytes = blocks * u64::from(block_size);
        let (backend, under) = match on {
            On::Memory => {
                let options = RegionOptions { block_size, shared, committed: false };
                (Backend::Memory(Arc::new(Region::new(bytes, options).unwrap())), Under::Nothing)
            }
            On::File => {
                let directory = tempfile::tempdir().unwrap();
                let path = directory.path().join("drive");
                let options = OpenDrive { create: Some(bytes), block_size, ..OpenDrive::default() };
                let drive = Drive::open(&path, options).unwrap();
                (Backend::Drive(Arc::new(drive)), Under::File { _directory: directory })
            }
            On::Volume => {
                (Backend::Volume(volume(bytes, block_size, Vec::new()).await), Under::Nothing)
            }
            On::Elsewhere => {
                let poll = reactor::PollPolicy::Interrupt;
                let start = |name: &str| {
                    let config = reactor::Config { cpu: None, poll, name: name.to_owned() };
                    reactor::Reactor::start(config).unwrap()
                };
                let handles = vec![start("one"), start("other")];
                let on = handles.clone();
                let made = handles[0].call(move || volume(bytes, block_size, on)).await;
                (Backend::Volume(made.unwrap()), Under::Reactors(handles))
            }
        };
        Self::of(backend, under, nsid, blocks, block_size)
    }

    /// What keeps its bytes is the caller's.
    pub fn on(backend: Backend, nsid: u32, blocks: u64, block_size: u32) -> Self {
        Self::of(backend, Under::Nothing, nsid, blocks, block_size)
    }

    fn of(backend: Backend, under: Under, nsid: u32, blocks: u64, block_size: u32) -> Self {
        let subsystem = Nqn::new("nqn.2026-11.io.flashloom:test").unwrap();
        let spec = NamespaceSpec::new(backend, block_size);
        let namespace = Namespace::new(&subsystem, nsid, &spec).unwrap();
        namespace.set_blocks(blocks);
        Self { namespace: Arc::new(namespace), _under: under }
    }

    pub fn attach(&self, host: HostId) -> Rc<Attached> {
        Rc::new(Attached::new(Arc::clone(&self.namespace), host))
    }
}

/// How a command's data reaches the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Capsule,
    R2t,
}

/// The host's side of one command.
pub struct Double {
    data: RefCell<Vec<u8>>,
    in_capsule: bool,
    /// The capsule is readable: its turn is not over.
    fresh: Cell<bool>,
    /// R2T data comes after this many polls.
    pub delay: Cell<u32>,
    pub received: Cell<u32>,
    /// It has yet to take what is held for it.
    pub full: Cell<bool>,
    pub fails: Option<Status>,
    /// Its queue ends.
    pub ended: Cell<bool>,
    pub others: Vec<Rc<Attached>>,
    pub formats: u16,
    pub controllers: Vec<(HostId, u16)>,
    pub notices: RefCell<Vec<Notice>>,
    /// Its share, of which there is plenty.
    pub account: Rc<Account>,
    /// Its share of turns to work.
    pub turns: Rc<Account>,
    /// What its namespace is once it has waited for drives; the same, and it waits in vain, without.
    pub mended: RefCell<Option<Rc<Attached>>>,
    /// How often it has waited so.
    pub lacked: Cell<u32>,
    /// Its queue ends before the piece of work behind so many.
    pub pieces: Cell<u32>,
    /// Where it is, for its share of other things; each its own unless told otherwise.
    pub share: Option<Rc<Share>>,
}

impl Default for Double {
    fn default() -> Self {
        Self {
            data: RefCell::default(),
            in_capsule: false,
            fresh: Cell::default(),
            delay: Cell::default(),
            received: Cell::default(),
            full: Cell::default(),
            fails: None,
            ended: Cell::default(),
            others: Vec::new(),
            formats: 0,
            controllers: Vec::new(),
            notices: RefCell::default(),
            account: Account::new(&Ledger::new(1 << 30)),
            turns: Account::new(&Ledger::new(1 << 30)),
            mended: RefCell::default(),
            lacked: Cell::default(),
            pieces: Cell::new(u32::MAX),
            share: None,
        }
    }
}

impl Double {
    pub fn none() -> Self {
        Self::default()
    }

    pub fn with(data: &[u8], by: By) -> Self {
        let in_capsule = by == By::Capsule;
        let data = RefCell::new(data.to_vec());
        Self { data, in_capsule, fresh: Cell::new(true), delay: Cell::new(2), ..Self::default() }
    }

    /// Points the entry at this host's data, `length` bytes of it.
    pub fn describe(&self, sqe: &mut Sqe, length: usize) {
        let length = u32_of(length);
        sqe.dptr =
            if self.in_capsule { Sgl::in_capsule(0, length) } else { Sgl::transport(length) };
    }

    /// Executes a command; the capsule is taken away after the first poll.
    pub async fn run(&self, at: &Attached, sqe: &Sqe) -> Reply {
        let as_a_queue_does = async {
            let begun = match begin(at, sqe, self) {
                AtOnce::Done(reply) => return reply,
                AtOnce::UnverifiedRead(lent) => match lent.verified() {
                    Some(pinned) => return Reply::with_data(Payload::PinnedRead(pinned)),
                    None => Begun::Nothing,
                },
                AtOnce::Waits(begun) => begun,
            };
            execute(at, sqe, begun, self).await
        };
        self.guard(as_a_queue_does).await
    }

    pub async fn guard<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| {
            let polled = future.as_mut().poll(cx);
            self.fresh.set(false);
            polled
        })
        .await
    }
}

impl Slot for Double {
    fn in_capsule(&self) -> Option<Ref<'_, [u8]>> {
        let readable = self.in_capsule && self.fresh.get();
        readable.then(|| Ref::map(self.data.borrow(), |data| &data[..]))
    }

    async fn receive(&self, length: u32, mut buffer: Buffer) -> Result<Buffer, Status> {
        for _ in 0..self.delay.get() {
            reactor::yield_now().await;
        }
        self.received.set(self.received.get() + 1);
        let length = usize32(length);
        buffer[..length].copy_from_slice(&self.data.borrow()[..length]);
        self.fails.map_or(Ok(buffer), Err)
    }

    fn has_room(&self, _bytes: usize) -> bool {
        !self.full.get()
    }

    fn copies(&self) -> bool {
        false
    }

    async fn hold(&self, bytes: usize) -> Result<Grant, Status> {
        Ok(self.account.take(bytes).await)
    }

    async fn hold_to_send(&self, bytes: usize) -> Result<Grant, Status> {
        Ok(self.account.take(bytes).await)
    }

    fn keep(&self, bytes: usize) -> Grant {
        self.account.grant(bytes)
    }

    async fn work(&self, _bytes: usize) -> Result<Grant, Status> {
        let grant = self.turns.take(1).await;
        match self.pieces.get().checked_sub(1) {
            Some(left) => self.pieces.set(left),
            None => self.ended.set(true),
        }
        self.permit().map(|()| grant)
    }

    async fn unless_aborted<F: Future>(&self, wait: F) -> Result<F::Output, Status> {
        let mut wait = pin!(wait);
        poll_fn(|cx| match self.permit() {
            Err(aborted) => Poll::Ready(Err(aborted)),
            Ok(()) => wait.as_mut().poll(cx).map(Ok),
        })
        .await
    }

    async fn place(&self, _at: &Attached, _bytes: usize) -> Result<Option<Grant>, Status> {
        self.permit().map(|()| None)
    }

    async fn share_of(&self, ledger: &Rc<Ledger>, amount: usize) -> Result<Grant, Status> {
        let account = match &self.share {
            Some(share) => share.account_of(ledger),
            None => Account::new(ledger),
        };
        self.unless_aborted(account.take(amount)).await
    }

    async fn until_mended(&self, at: &Attached) -> Result<Rc<Attached>, Status> {
        self.lacked.set(self.lacked.get() + 1);
        reactor::yield_now().await;
        self.mended.take().ok_or_else(|| at.waited_in_vain())
    }

    fn permit(&self) -> Result<(), Status> {
        if self.ended.get() { Err(Status::ABORTED_SQ_DELETION) } else { Ok(()) }
    }

    fn permit_entry(&self) -> Result<(), Status> {
        self.permit()
    }

    fn namespace(&self, nsid: u32) -> Option<Rc<Attached>> {
        self.others.iter().find(|at| at.namespace().nsid == nsid).cloned()
    }

    fn copy_formats_enabled(&self) -> u16 {
        self.formats
    }

    fn controllers(&self, _nsid: u32) -> Vec<(HostId, u16)> {
        self.controllers.clone()
    }

    fn address(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    }

    fn notify(&self, _nsid: u32, notices: &[Notice]) {
        self.notices.borrow_mut().extend_from_slice(notices);
    }
}

/// Polls once: what a command does within the turn in which it came.
pub fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

pub fn bytes_of(payload: &Option<Payload>) -> Vec<u8> {
    payload.as_ref().map_or_else(Vec::new, |payload| payload.bytes().to_vec())
}

/// Runs a test on a reactor of its own.
pub fn on_reactor<F: Future + 'static>(test: F) -> F::Output {
    reactor::run(reactor::Config::default(), test).unwrap()
}

/// `blocks` blocks of bytes that tell where they come from.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    stdx::prng::Prng::new(seed ^ u64_of(bytes)).fill(&mut data);
    data
}
