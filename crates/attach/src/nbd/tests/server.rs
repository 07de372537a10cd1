//! The server with a real target behind it, and clients that need not be well-behaved.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use initiator::testing::{Taker, grant};
use initiator::{DirectWindow, HostIdentity, Namespace, Remote, SharedWindow};
use media::memory::{Region, RegionOptions};
use nvme::nqn::Nqn;
use reactor::{Config, Handle, PollPolicy, Reactor};
use stdx::prng::Prng;
use target::namespace::{Backend, NamespaceSpec};
use target::subsystem::SubsystemSpec;
use target::{Identity, Target};
use window::{Phase, RING_BYTES_MIN};
use zerocopy::FromBytes;

use super::{FLAGS, compact, info, option};
use crate::Place;
use crate::limits::{CLIENTS_MAX, READ_BYTES, UNSENT_HEADS_BYTES};
use crate::nbd::wire::{Hello, SimpleReply, command, option as opt};
use crate::nbd::{Listener, Options, Server};

const SUBNQN: &str = "nqn.2026-11.io.flashloom:attach";
const BLOCK: u32 = 4096;
const BYTES: usize = 4 << 20;

/// A target with one namespace in memory, and a server of it, on a reactor of their own.
struct Rig {
    handle: Handle,
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl Rig {
    fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap())
    }

    fn start_in(dir: tempfile::TempDir) -> Self {
        Self::start_with(dir, None)
    }

    /// The same, with its writes going by a window.
    fn start_with(dir: tempfile::TempDir, window: Option<Arc<SharedWindow>>) -> Self {
        let path = dir.path().join("nbd.sock");
        let config = Config { cpu: None, poll: PollPolicy::Interrupt, name: "rig".to_owned() };
        let handle = Reactor::start(config).unwrap();
        let at = path.clone();
        handle.call(move || serve(at, window)).wait().unwrap();
        Self { handle, _dir: dir, path }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.handle.stop();
        let _ = self.handle.join();
    }
}

async fn serve(path: PathBuf, window: Option<Arc<SharedWindow>>) {
    let options = RegionOptions { block_size: BLOCK, shared: true, committed: false };
    let region = Arc::new(Region::new(BYTES as u64, options).unwrap());
    let target = Target::new(Identity::default());
    let nqn = Nqn::new(SUBNQN).unwrap();
    target.add_subsystem(SubsystemSpec::new(nqn.clone())).unwrap();
    target.add_namespace(&nqn, &NamespaceSpec::new(Backend::Memory(region), BLOCK)).unwrap();
    let port = target::testing::serve(target, 0).await;
    let remote = Remote {
        traddr: "127.0.0.1".to_owned(),
        trsvcid: port,
        subnqn: SUBNQN.to_owned(),
        host: HostIdentity::named("nqn.2026-11.io.flashloom:host"),
        options: initiator::Options { io_queues: 2, ..initiator::Options::default() },
    };
    let namespace = Namespace::attach(&remote, 1).await.unwrap();
    let namespace = window.map_or(namespace.clone(), |window| namespace.with_window(window));
    let server = Server::new(namespace, Options::default()).unwrap();
    let listener = Listener::bind(&Place::Unix(path)).unwrap();
    reactor::spawn(server.listen(listener));
}

/// A client that speaks by hand, with simple replies.
struct Hand(UnixStream);

impl Hand {
    fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut hand = Self(stream);
        assert_eq!(hand.receive(size_of::<Hello>())[..8], *b"NBDMAGIC");
        hand.0.write_all(&FLAGS).unwrap();
        hand
    }

    /// Chooses the export, without asking for block sizes.
    fn go(path: &Path) -> Self {
        let mut hand = Self::connect(path);
        hand.0.write_all(&option(opt::GO, &info("", &[]))).unwrap();
        // NBD_INFO_EXPORT, then ACK.
        hand.receive(20 + 12 + 20);
        hand
    }

    fn receive(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Sends a request and takes its reply: the error, and `length` bytes of data when there is none.
    fn ask(&mut self, command: u16, offset: usize, length: usize, data: &[u8]) -> (u32, Vec<u8>) {
        let head = compact(command, 0, offset as u64, u32::try_from(length).unwrap());
        self.0.write_all(&[&head, data].concat()).unwrap();
        let reply = SimpleReply::read_from_bytes(&self.receive(16)).unwrap();
        let error = reply.error.get();
        let data = command == command::READ && error == 0;
        (error, self.receive(if data { length } else { 0 }))
    }

    fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0) | Err(_))
    }
}

#[test]
fn parts_of_blocks_are_written_and_nothing_beside_them() {
    let rig = Rig::start();
    let mut hand = Hand::go(&rig.path);
    let mut prng = Prng::new(4);
    let mut model = vec![0; BYTES];
    for _ in 0..200 {
        let offset = usize::try_from(prng.below(BYTES as u64)).unwrap();
        let most = [7, 5000, 70_000, 600_000][usize::try_from(prng.below(4)).unwrap()];
        let length = usize::try_from(prng.below(most)).unwrap().min(BYTES - offset);
        let range = offset..offset + length;
        match prng.below(3) {
            0 => {
                prng.fill(&mut model[range.clone()]);
                let (error, _) = hand.ask(command::WRITE, offset, length, &model[range]);
                assert_eq!(error, 0);
            }
            1 => {
                model[range].fill(0);
                assert_eq!(hand.ask(command::WRITE_ZEROES, offset, length, &[]).0, 0);
            }
            _ => {
                let (error, data) = hand.ask(command::READ, offset, length, &[]);
                assert!(error == 0 && data == model[range], "{length} bytes at {offset}");
            }
        }
    }
    assert!(hand.ask(command::READ, 0, BYTES, &[]).1 == model);
    assert_eq!(hand.ask(command::FLUSH, 0, 0, &[]).0, 0);
}

/// Each writes a part of its own of the same block, at the same time: a block read before another's
/// write and written after it would take that write away.
#[test]
fn parts_of_one_block_written_at_once_all_last() {
    let rig = Rig::start();
    let mut clients: Vec<_> = (0..8).map(|_| Hand::go(&rig.path)).collect();
    for round in 1..20u8 {
        for (n, client) in clients.iter_mut().enumerate() {
            for part in 0..4 {
                let at = n * 512 + part * 128;
                let head = compact(command::WRITE, 0, at as u64, 128);
                client.0.write_all(&[&head[..], &[round; 128]].concat()).unwrap();
            }
        }
        for client in &mut clients {
            let replies = client.receive(4 * 16);
            assert!(replies.chunks(16).all(|reply| reply[4..8] == [0; 4]));
        }
        assert_eq!(clients[0].ask(command::READ, 0, 4096, &[]).1, [round; 4096]);
    }
}

#[test]
fn bad_clients_are_refused_or_closed_and_others_served_on() {
    let rig = Rig::start();
    let mut good = Hand::go(&rig.path);
    // Not NBD at all; flags that nobody offered; a request that is none, after one in flight.
    let mut bad = Hand::connect(&rig.path);
    bad.0.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(bad.is_closed());
    let mut bad = Hand::go(&rig.path);
    assert_eq!(bad.ask(command::READ, BYTES, 1, &[]).0, 22);
    assert_eq!(bad.ask(command::WRITE, BYTES - 1, 2, &[1, 2]).0, 28);
    assert_eq!(bad.ask(99, 0, 0, &[]).0, 22);
    bad.0.write_all(&[7; 28]).unwrap();
    assert!(bad.is_closed());
    // Leaves in the middle of a write's data.
    let mut bad = Hand::go(&rig.path);
    bad.0.write_all(&compact(command::WRITE, 0, 0, 1 << 20)).unwrap();
    bad.0.write_all(&[1; 5000]).unwrap();
    drop(bad);
    // Leaves in order, with a request in flight.
    let mut leaving = Hand::go(&rig.path);
    let both = [compact(command::READ, 0, 0, 4096), compact(command::DISCONNECT, 0, 0, 0)];
    leaving.0.write_all(&both.concat()).unwrap();
    leaving.receive(16 + 4096);
    assert!(leaving.is_closed());
    assert_eq!(good.ask(command::FLUSH, 0, 0, &[]).0, 0);
}

/// As many clients as may come, each with more asked for than it may hold, none of which reads: one that
/// does is served, as long as it is let in.
#[test]
fn clients_that_take_no_replies_hold_only_their_share() {
    let rig = Rig::start();
    let mut good = Hand::go(&rig.path);
    let mut idle = Vec::new();
    for _ in 1..CLIENTS_MAX {
        let mut hand = Hand::go(&rig.path);
        let reads = compact(command::READ, 0, 0, 256 << 10).repeat(4 * READ_BYTES / (256 << 10));
        hand.0.write_all(&reads).unwrap();
        idle.push(hand);
    }
    // Its bytes are not looked at once so many replies wait.
    let flushes = compact(command::FLUSH, 0, 0, 0).repeat(2 * UNSENT_HEADS_BYTES / 16);
    idle[0].0.set_nonblocking(true).unwrap();
    let _ = idle[0].0.write(&flushes);
    for _ in 0..10 {
        assert_eq!(good.ask(command::READ, 0, 256 << 10, &[]).0, 0);
        assert_eq!(good.ask(command::WRITE, 0, 4096, &[1; 4096]).0, 0);
    }
    let mut one_more = UnixStream::connect(&rig.path).unwrap();
    assert!(matches!(one_more.read(&mut [0]), Ok(0) | Err(_)));
    idle.pop();
    // Its place is free as soon as the server has seen it leave.
    while Hand::try_hello(&rig.path).is_none() {}
}

/// A program that was killed leaves its socket, and maybe writes in flight, which must not come after those of this one.
#[test]
fn writes_wait_for_those_of_a_server_that_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    drop(std::os::unix::net::UnixListener::bind(dir.path().join("nbd.sock")).unwrap());
    let rig = Rig::start_in(dir);
    let mut hand = Hand::go(&rig.path);
    let write = [&compact(command::WRITE, 0, 0, 4096)[..], &[1; 4096]].concat();
    hand.0.write_all(&write).unwrap();
    // The read's reply comes first, and is longer.
    let (error, data) = hand.ask(command::READ, 0, 4096, &[]);
    assert!(error == 0 && data == [0; 4096]);
}

impl Hand {
    fn try_hello(path: &Path) -> Option<()> {
        let mut stream = UnixStream::connect(path).ok()?;
        let mut hello = [0; size_of::<Hello>()];
        stream.read_exact(&mut hello).ok()
    }
}

/// Writes by a window that is put there, beside a target that has none: what the window does not take is at the target.
#[test]
fn writes_go_by_the_window_as_far_as_it_takes_them() {
    let grant = grant(1, RING_BYTES_MIN);
    let (mut taker, descriptors) = Taker::new(&grant, 0, 1);
    let window = DirectWindow::map(grant, vec![descriptors], Arc::default()).unwrap();
    let shared = Arc::<SharedWindow>::default();
    assert!(shared.try_put(&mut Some(window)));
    let rig = Rig::start_with(tempfile::tempdir().unwrap(), Some(Arc::clone(&shared)));
    let mut hand = Hand::go(&rig.path);
    let (ones, zeroes) = (vec![1; 128 << 10], vec![0; 128 << 10]);
    let mut write = |offset, length| hand.ask(command::WRITE, offset, length, &ones[..length]).0;
    assert_eq!(write(0, 4096), 0, "there is no credit");
    assert_eq!(taker.take(|_, _| {}), Ok(0));
    taker.give_all();
    assert_eq!((write(8192, 4096), write(20_480 + 100, 50)), (0, 0));
    assert_eq!(write(1 << 20, 128 << 10), 0, "longer than a record");
    let mut taken = Vec::new();
    taker.take(|offset, data| taken.push((offset, data.to_vec()))).unwrap();
    let part = [&zeroes[..100], &ones[..50], &zeroes[..4096 - 150]].concat();
    assert_eq!(taken, [(8192, ones[..4096].to_vec()), (20_480, part)]);
    // What a write waits for when the window ends is whether the target took it.
    taker.set_phase(Phase::Ended);
    assert_eq!((write(40_960, 4096), write(45_056, 4096)), (0, 0));
    assert_eq!(hand.ask(command::FLUSH, 0, 0, &[]).0, 0);
    let mut read = |offset, length| hand.ask(command::READ, offset, length, &[]).1;
    // Nobody has this target take what is in the window.
    for (offset, length, at_target) in [
        (0, 4096, &ones),
        (8192, 4096, &zeroes),
        (1 << 20, 128 << 10, &ones),
        (40_960, 8192, &ones),
    ] {
        assert!(read(offset, length) == at_target[..length], "{length} bytes at {offset}");
    }
    assert_eq!(hand.ask(command::TRIM, 0, 4096, &[]).0, 0);
    assert!(hand.ask(command::READ, 0, 4096, &[]).1 == zeroes[..4096]);
    assert_eq!(shared.writes(), 2);
}
