//! I/O commands of hosts as they execute: entries of any bytes against a namespace in memory and a volume of a small
//! pool, several at a time, on a simulated reactor.
//!
//! Each ends, gives back what it held, and leaves alone what is not of its namespace.

use std::cell::{Cell, Ref, RefCell};
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use engine::{LogSpec, Pool, PoolSpec, Volume, VolumeSpec};
use media::memory::{Region, RegionOptions};
use media::{Drive, Pmem};
use nvme::opcode::io;
use nvme::sqe::{DataPointer, Sgl, Sqe};
use nvme::status::Status;
use reactor::budget::{Account, Grant, Ledger};
use reactor::buffer::Buffer;
use stdx::Prng;
use stdx::num::{u32_of, u64_of, usize32};
use target::command::{AtOnce, Attached, Begun, Reply, Slot, begin, execute, is_supported};
use target::limits::{IO_IN_CAPSULE_BYTES, TRANSFER_BYTES_MAX};
use target::namespace::Backend;
use target::reservation::{HostId, Notice};
use target::testing::namespace;
use zerocopy::FromBytes;

/// Blocks of the namespaces, and of what lies behind them on the same medium.
const BLOCKS: u64 = 256;
const BEHIND: u64 = 64;
const SMALL: u32 = 512;
const LARGE: u32 = 4096;
/// Commands at once, and in all.
const AT_ONCE: usize = 8;
const COMMANDS: usize = 64;
const HOST: HostId = HostId([1; 16]);

/// A command: how its fields are bent, what its data is, and its entry.
#[derive(FromBytes)]
#[repr(C)]
struct Record {
    how: u8,
    seed: u8,
    sqe: Sqe,
}
const _: () = assert!(size_of::<Record>() == 66);

/// Bits of [`Record::how`].
mod how {
    /// The volume, or the memory.
    pub const VOLUME: u8 = 1 << 0;
    /// The address is near the namespace, the length short.
    pub const NEAR: u8 = 1 << 1;
    /// The data is in the capsule, or comes by R2T.
    pub const CAPSULE: u8 = 1 << 2;
    /// The pointer describes as many bytes as the command has blocks.
    pub const FITS: u8 = 1 << 3;
    /// An opcode that there is.
    pub const KNOWN: u8 = 1 << 4;
    /// The host takes nothing for a while.
    pub const FULL: u8 = 1 << 5;
    /// All before has ended.
    pub const APART: u8 = 1 << 6;
}

const OPCODES: [u8; 8] = [
    io::READ,
    io::WRITE,
    io::COMPARE,
    io::WRITE_ZEROES,
    io::VERIFY,
    io::DATASET_MANAGEMENT,
    io::COPY,
    io::FLUSH,
];

/// What the commands are of.
struct World {
    region: Arc<Region>,
    pool: Pool,
    volume: Volume,
    other: Volume,
    attached: [Rc<Attached>; 2],
    account: Rc<Account>,
}

/// The host's side of one command.
struct Host {
    data: RefCell<Vec<u8>>,
    in_capsule: bool,
    /// The capsule is readable: its turn is not over.
    fresh: Cell<bool>,
    full: bool,
    account: Rc<Account>,
    namespaces: [Rc<Attached>; 2],
}

impl Slot for Host {
    fn in_capsule(&self) -> Option<Ref<'_, [u8]>> {
        let readable = self.in_capsule && self.fresh.get();
        readable.then(|| Ref::map(self.data.borrow(), Vec::as_slice))
    }

    async fn receive(&self, length: u32, mut buffer: Buffer) -> Result<Buffer, Status> {
        assert!(length <= TRANSFER_BYTES_MAX, "{length} bytes are asked for");
        reactor::yield_now().await;
        let data = self.data.borrow();
        for (n, byte) in buffer[..usize32(length)].iter_mut().enumerate() {
            *byte = data.get(n).copied().unwrap_or(0x11);
        }
        Ok(buffer)
    }

    fn has_room(&self, _bytes: usize) -> bool {
        !self.full
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
        Ok(self.account.take(1).await)
    }

    async fn unless_aborted<F: Future>(&self, wait: F) -> Result<F::Output, Status> {
        Ok(wait.await)
    }

    async fn share_of(&self, ledger: &Rc<Ledger>, amount: usize) -> Result<Grant, Status> {
        Ok(Account::new(ledger).take(amount).await)
    }

    async fn place(&self, _at: &Attached, _bytes: usize) -> Result<Option<Grant>, Status> {
        Ok(None)
    }

    async fn until_mended(&self, _at: &Attached) -> Result<Rc<Attached>, Status> {
        Err(Status::INTERNAL_PATH_ERROR)
    }

    fn permit(&self) -> Result<(), Status> {
        Ok(())
    }

    fn permit_entry(&self) -> Result<(), Status> {
        Ok(())
    }

    fn namespace(&self, nsid: u32) -> Option<Rc<Attached>> {
        self.namespaces.iter().find(|at| at.namespace().nsid == nsid).cloned()
    }

    fn copy_formats_enabled(&self) -> u16 {
        u16::MAX
    }

    fn controllers(&self, _nsid: u32) -> Vec<(HostId, u16)> {
        vec![(HOST, 1)]
    }

    fn address(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    }

    fn notify(&self, _nsid: u32, _notices: &[Notice]) {}
}

/// What lies at `block` of a medium before anything is written: nothing else does.
fn canary(block: u64, size: u32) -> Vec<u8> {
    let mut bytes = vec![0; usize32(size)];
    Prng::new(block ^ 0x6361_6e61_7279).fill(&mut bytes);
    bytes
}

fn attach(nsid: u32, backend: Backend, block_size: u32) -> Rc<Attached> {
    let namespace = namespace(nsid, backend, block_size, BLOCKS);
    Rc::new(Attached::new(Arc::new(namespace), HOST))
}

impl World {
    async fn new() -> Self {
        let options = RegionOptions { block_size: SMALL, shared: false, committed: false };
        let region = Region::new((BLOCKS + BEHIND) * u64::from(SMALL), options);
        let region = Arc::new(region.expect("memory"));
        for block in 0..BEHIND {
            let at = (BLOCKS + block) * u64::from(SMALL);
            region.copy_in(at, &canary(block, SMALL)).expect("a block of memory");
        }
        let options = RegionOptions { block_size: LARGE, shared: false, committed: false };
        let drive = || Arc::new(Drive::memory(96 << 20, options).expect("a drive"));
        let spec = PoolSpec {
            name: "p".into(),
            id: [7; 16],
            drives: (0..3).map(|_| drive()).collect(),
            scheme: raid::Scheme::Raid5,
            log: LogSpec::Bbu(vec![Arc::new(Pmem::anonymous(8 << 20).expect("a log"))]),
            log_bytes: None,
            shards: None,
            au_bytes: None,
            created: 0,
        };
        let pool = Pool::create(spec, &[]).await.expect("a pool");
        let spec = |name: &str, id, blocks: u64| VolumeSpec {
            name: name.into(),
            id: [id; 16],
            bytes: blocks * u64::from(LARGE),
            block_size: LARGE,
            quota: None,
            reservation: None,
        };
        let volume = pool.create_volume(spec("v", 1, BLOCKS + BEHIND)).await.expect("a volume");
        let other = pool.create_volume(spec("w", 2, BEHIND)).await.expect("a volume");
        for block in 0..BEHIND {
            let bytes = canary(block, LARGE);
            let behind = volume.write((BLOCKS + block) * u64::from(LARGE), &bytes).await;
            behind.expect("a block of the volume");
            other.write(block * u64::from(LARGE), &bytes).await.expect("a block of another");
        }
        let attached = [
            attach(1, Backend::Memory(region.clone()), SMALL),
            attach(2, Backend::Volume(volume.clone()), LARGE),
        ];
        let account = Account::new(&Ledger::new(1 << 30));
        Self { region, pool, volume, other, attached, account }
    }

    /// Nothing behind a namespace has changed, and nothing is held.
    async fn check(self) {
        assert_eq!(self.account.held(), 0, "something is held");
        for block in 0..BEHIND {
            let mut found = vec![0; usize32(SMALL)];
            let at = (BLOCKS + block) * u64::from(SMALL);
            self.region.copy_out(at, &mut found).expect("a block of memory");
            assert!(found == canary(block, SMALL), "block {block} behind the memory has changed");
            let mut found = vec![0; usize32(LARGE)];
            let at = (BLOCKS + block) * u64::from(LARGE);
            self.volume.read(at, &mut found).await.expect("a block of the volume");
            assert!(found == canary(block, LARGE), "block {block} behind the volume has changed");
            let read = self.other.read(block * u64::from(LARGE), &mut found).await;
            read.expect("a block of another");
            assert!(found == canary(block, LARGE), "block {block} of another has changed");
        }
        drop(self.attached);
        self.pool.close().await.expect("a close in order");
    }
}

/// The entry as it is sent, and its data.
fn bend(record: &Record) -> (Sqe, Vec<u8>) {
    let (mut sqe, how, mut prng) = (record.sqe, record.how, Prng::new(record.seed.into()));
    let (nsid, size) = if how & how::VOLUME != 0 { (2, LARGE) } else { (1, SMALL) };
    sqe.nsid = nsid.into();
    if how & how::KNOWN != 0 {
        sqe.opcode = OPCODES[usize::from(sqe.opcode) % OPCODES.len()];
        sqe.flags = 0x40;
    }
    if how & how::NEAR != 0 {
        sqe.cdw10 = (sqe.cdw10.get() % u32::try_from(BLOCKS + 8).unwrap_or(1)).into();
        sqe.cdw11 = 0.into();
        sqe.cdw12 = (sqe.cdw12.get() & 0xffff_003f).into();
    }
    let data = match sqe.opcode {
        io::COPY => copy_list(&mut prng),
        io::DATASET_MANAGEMENT => deallocate_list(&mut prng),
        _ => {
            let mut data = vec![0; usize::from(u8::MAX) * 64];
            prng.fill(&mut data);
            data
        }
    };
    if sqe.opcode == io::DATASET_MANAGEMENT && how & how::NEAR != 0 {
        sqe.cdw10 = (u32::from(record.seed) % 4).into();
    }
    if how & how::FITS != 0 {
        let blocks = (sqe.cdw12.get() & 0xffff) + 1;
        let bytes = match sqe.opcode {
            io::COPY | io::DATASET_MANAGEMENT => u32_of(data.len()),
            _ => blocks * size,
        };
        let in_capsule = how & how::CAPSULE != 0 && sqe.opcode != io::READ;
        sqe.dptr = if in_capsule { Sgl::in_capsule(0, bytes) } else { Sgl::transport(bytes) };
    }
    (sqe, data)
}

/// Four entries of 32 bytes: where each begins is at byte 8, how long it is at 16.
fn copy_list(prng: &mut Prng) -> Vec<u8> {
    let mut list = vec![0; 4 * 32];
    for entry in list.chunks_mut(32) {
        entry[8..16].copy_from_slice(&prng.below(BLOCKS + 4).to_le_bytes());
        entry[16..18].copy_from_slice(&u16::try_from(prng.below(24)).unwrap_or(0).to_le_bytes());
    }
    list
}

/// Four entries of 16 bytes: how long each is at byte 4, where it begins at 8.
fn deallocate_list(prng: &mut Prng) -> Vec<u8> {
    let mut list = vec![0; 4 * 16];
    for entry in list.chunks_mut(16) {
        entry[4..8].copy_from_slice(&u32::try_from(prng.below(40)).unwrap_or(0).to_le_bytes());
        entry[8..16].copy_from_slice(&prng.below(BLOCKS + 4).to_le_bytes());
    }
    list
}

/// Runs a command as a queue does; its answer.
async fn run(at: Rc<Attached>, sqe: Sqe, host: Host) -> Reply {
    if !is_supported(sqe.opcode) {
        return Reply { status: Status::INVALID_OPCODE, dw0: 0, data: None };
    }
    let begun = match begin(&at, &sqe, &host) {
        AtOnce::Done(reply) => return reply,
        AtOnce::Waits(begun) => begun,
        AtOnce::UnverifiedRead(_) => Begun::Nothing,
    };
    let mut command = pin!(execute(&at, &sqe, begun, &host));
    poll_fn(|cx| {
        let polled = command.as_mut().poll(cx);
        host.fresh.set(false);
        polled
    })
    .await
}

/// An answer must be one that its host can take.
fn check_reply(sqe: &Sqe, size: u32, reply: &Reply) {
    let Some(data) = &reply.data else { return };
    assert!(reply.status.is_success(), "data and {:?}", reply.status);
    if sqe.opcode == io::READ {
        let bytes = u64::from((sqe.cdw12.get() & 0xffff) + 1) * u64::from(size);
        assert_eq!(u64_of(data.len()), bytes, "a read of another length");
    }
}

async fn play(records: Vec<(u8, Sqe, Vec<u8>)>) {
    let world = World::new().await;
    let mut running = Vec::new();
    for (how, sqe, data) in records {
        let at = world.attached[usize::from(how & how::VOLUME != 0)].clone();
        let size = if how & how::VOLUME != 0 { LARGE } else { SMALL };
        let mut data = data;
        let in_capsule = match sqe.dptr.data() {
            Some(DataPointer::InCapsule { .. }) => {
                data.truncate(usize32(IO_IN_CAPSULE_BYTES));
                true
            }
            _ => false,
        };
        let host = Host {
            data: RefCell::new(data),
            in_capsule,
            fresh: Cell::new(true),
            full: how & how::FULL != 0,
            account: world.account.clone(),
            namespaces: world.attached.clone(),
        };
        running.push(reactor::spawn(async move {
            let reply = run(at, sqe, host).await;
            check_reply(&sqe, size, &reply);
        }));
        if running.len() == AT_ONCE || how & how::APART != 0 {
            end(&mut running).await;
        }
    }
    end(&mut running).await;
    world.check().await;
}

/// Each command has to end: a wait for ever is a deadlock, which the simulated reactor tells.
async fn end(running: &mut Vec<reactor::Task<()>>) {
    for command in running.drain(..) {
        assert!(command.await.is_some(), "a command was dropped");
    }
}

/// Executes what the input says.
pub fn io_commands(input: &[u8]) {
    let (records, _) = input.as_chunks::<{ size_of::<Record>() }>();
    let records: Vec<_> = records
        .iter()
        .take(COMMANDS)
        .filter_map(|bytes| Record::read_from_bytes(bytes).ok())
        .map(|record| {
            let (sqe, data) = bend(&record);
            (record.how, sqe, data)
        })
        .collect();
    let seed = records.len() as u64;
    reactor::simulate(seed, play(records));
}
