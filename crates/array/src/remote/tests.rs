//! Over real targets on loopback.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use initiator::{HostIdentity, Namespace, Options, Registrant, Remote as Host};
use media::memory::RegionOptions;
use nvme::nqn::Nqn;
use nvme::reservation::Type;
use reactor::cross_core::Watch;
use reactor::{Config, Handle, PollPolicy, Reactor, buffer};
use target::namespace::{Backend, NamespaceSpec};
use target::subsystem::SubsystemSpec;
use target::testing::{Peer, serve};
use target::{Identity, Target};

use super::key::Key;
use super::*;
use crate::limits::{REMOTE_KEEP_ALIVE, REMOTE_OPERATION};

mod random;

const SUBNQN: &str = "nqn.2026-11.io.flashloom:logs";
const LEN: u64 = 4 << 20;
const NODE: Uuid = Uuid::from_u128(1);
const OTHER: Uuid = Uuid::from_u128(2);

/// How long a test may take: what it waits for does not come then.
const PATIENCE: Duration = Duration::from_secs(60);

/// An operation that takes longer has no bound of its own: the machine may be busy.
const LATE: Duration = Duration::from_secs(2 * REMOTE_OPERATION.as_secs());

fn go<F: Future<Output = ()> + 'static>(test: F) {
    let test = async { reactor::timeout(PATIENCE, test).await.expect("what is waited for comes") };
    reactor::run(Config::default(), test).unwrap();
}

fn at(port: u16) -> RemoteNamespace {
    format!("tcp://127.0.0.1:{port}/{SUBNQN}/1").parse().unwrap()
}

fn peer() -> Peer {
    Peer::start(SUBNQN, LEN, 512)
}

async fn filled(len: usize, with: u8) -> Buffer {
    let mut buffer = buffer::alloc(len).await;
    buffer.fill(with);
    buffer
}

async fn write(drive: &Drive, offset: u64, with: u8) -> Result<(), Error> {
    drive.write(offset, filled(4096, with).await, true).await
}

async fn byte(drive: &Drive, offset: u64) -> Result<u8, Error> {
    let read = drive.read(offset, 4096).await?;
    assert!(read.iter().all(|byte| *byte == read[0]), "in part");
    Ok(read[0])
}

/// Writes as soon as the drive takes it.
async fn write_again(drive: &Drive, offset: u64, with: u8) {
    while write(drive, offset, with).await.is_err() {
        reactor::sleep(Duration::from_millis(20)).await;
    }
}

/// The namespace of a target, as this host has it.
async fn attach(port: u16, host: &str) -> Namespace {
    let remote = Host {
        traddr: "127.0.0.1".to_owned(),
        trsvcid: port,
        subnqn: SUBNQN.to_owned(),
        host: HostIdentity::named(&format!("nqn.2026-11.io.flashloom:{host}")),
        options: Options::default(),
    };
    Namespace::attach(&remote, 1).await.unwrap()
}

/// Who is registered there.
async fn registrants(port: u16) -> Vec<Registrant> {
    attach(port, "onlooker").await.registrants().await.unwrap()
}

fn why(drive: &RemoteDrive) -> String {
    match drive.state() {
        RemoteState::Away { why, .. } => why,
        RemoteState::Connected { .. } => panic!("it is connected"),
    }
}

fn elapsed(since: reactor::Nanos) -> Duration {
    Duration::from_nanos(reactor::now_exact() - since)
}

fn start(name: &str) -> Handle {
    let config = Config { cpu: None, poll: PollPolicy::Interrupt, name: name.to_owned() };
    Reactor::start(config).unwrap()
}

#[test]
fn what_is_written_there_is_read_there() {
    go(async {
        let peer = peer();
        let (remote, drive) = RemoteDrive::open(at(peer.port), NODE);
        assert_eq!((drive.capacity(), why(&remote).as_str()), (0, "nobody has used it yet"));
        // Longer than one command may be, by several; and by one.
        let mut long = filled(1 << 20, 0).await;
        for (at, byte) in long.iter_mut().enumerate() {
            *byte = stdx::num::low8(u64_of(at / 512)) | 1;
        }
        let sent = long.to_vec();
        drive.write(4096, long, false).await.unwrap();
        assert_eq!((drive.capacity(), drive.logical_block()), (LEN, 512));
        assert!(matches!(remote.state(), RemoteState::Connected { .. }));
        assert_eq!(drive.read(4096, sent.len()).await.unwrap()[..], sent[..]);
        assert_eq!(drive.read(8192, 4096).await.unwrap()[..], sent[4096..8192]);
        drive.write_zeroes(8192, 1 << 19, true).await.unwrap();
        drive.flush().await.unwrap();
        assert!(drive.read(8192, 1 << 19).await.unwrap().iter().all(|&byte| byte == 0));
        assert_eq!(drive.read(4096, 4096).await.unwrap()[..], sent[..4096]);
        drive.deallocate(0, LEN).await.unwrap();
        let beyond = drive.read(LEN - 4096, 8192).await.unwrap_err();
        assert_eq!(beyond.kind, Kind::OutOfRange);
        assert_eq!(drive.read(100, 512).await.unwrap_err().kind, Kind::Unsupported);
        assert!(matches!(remote.state(), RemoteState::Connected { .. }), "no matter of it");
    });
}

#[test]
fn all_reactors_are_one_host_and_leave_together() {
    go(async {
        let peer = peer();
        let (remote, drive) = RemoteDrive::open(at(peer.port), NODE);
        let other = start("other");
        let theirs = Arc::clone(&drive);
        let both = other.call(move || async move { write(&theirs, 0, 1).await.is_ok() });
        write(&drive, 4096, 2).await.unwrap();
        assert!(both.await.unwrap());
        let theirs = Arc::clone(&drive);
        let read = other.call(move || async move { byte(&theirs, 4096).await.unwrap() });
        assert_eq!((byte(&drive, 0).await.unwrap(), read.await.unwrap()), (1, 2));
        let found = registrants(peer.port).await;
        // The report has one entry for each controller.
        let [first, second] = found[..] else { panic!("{found:?}") };
        assert!(first.holds && first == second, "{found:?}");

        drop(drive);
        remote.closed().await;
        assert_eq!(registrants(peer.port).await, []);
        other.stop();
        other.join().unwrap();
    });
}

#[test]
fn a_target_that_went_away_is_told_of_at_once_and_comes_back() {
    go(async {
        let mut peer = peer();
        let (remote, drive) = RemoteDrive::open(at(peer.port), NODE);
        write(&drive, 0, 1).await.unwrap();
        let before = drive.connection();
        peer.stop();
        let begun = reactor::now_exact();
        let error = write(&drive, 0, 2).await.unwrap_err();
        assert_eq!(error.kind, Kind::Gone, "{error}");
        assert!(elapsed(begun) < LATE);
        assert!(!why(&remote).is_empty());
        assert_eq!(byte(&drive, 0).await.unwrap_err().kind, Kind::Gone);
        assert_eq!(drive.flush().await.unwrap_err().kind, Kind::Gone);
        assert_eq!(drive.capacity(), LEN, "as it was");

        peer.serve_again();
        write_again(&drive, 4096, 3).await;
        assert_eq!((byte(&drive, 0).await.unwrap(), byte(&drive, 4096).await.unwrap()), (1, 3));
        assert!(matches!(remote.state(), RemoteState::Connected { .. }));

        // What was to go by the connection before is not sent.
        let Drive::Remote(used) = &*drive else { panic!("{drive:?}") };
        assert!(before.is_some() && used.connection() != before);
        let refused = used.write(before, 4096, filled(4096, 4).await, true).await.unwrap_err();
        assert_eq!(refused.error.kind, Kind::Gone, "{}", refused.error);
        let buffer = buffer::alloc(4096).await;
        assert_eq!(used.read(before, 0, 4096, buffer).await.unwrap_err().error.kind, Kind::Gone);
        let zeroed = used.write_zeroes(before, 4096, 4096, true).await;
        assert_eq!(zeroed.unwrap_err().kind, Kind::Gone);
        assert_eq!(byte(&drive, 4096).await.unwrap(), 3);
    });
}

/// As after a kill: nobody unregistered what the first one left.
#[test]
fn a_newer_process_of_the_node_fences_the_older_one_for_good() {
    go(async {
        let peer = peer();
        let (old, first) = RemoteDrive::open(at(peer.port), NODE);
        write(&first, 0, 1).await.unwrap();
        let (_new, second) = RemoteDrive::open(at(peer.port), NODE);
        write(&second, 0, 2).await.unwrap();
        let error = write(&first, 0, 3).await.unwrap_err();
        assert_eq!(error.kind, Kind::Busy);
        assert!(error.to_string().contains("Reservation Conflict"), "{error}");
        assert_eq!(byte(&second, 0).await.unwrap(), 2);

        while !why(&old).contains("another process of this node") {
            assert_eq!(write(&first, 0, 4).await.unwrap_err().kind, Kind::Busy);
            reactor::sleep(Duration::from_millis(20)).await;
        }
        write(&second, 4096, 5).await.unwrap();
        assert_eq!(byte(&second, 0).await.unwrap(), 2);
        assert_eq!(registrants(peer.port).await.len(), 1, "the older one left nothing");
    });
}

#[test]
fn another_node_is_refused_until_the_namespace_is_left() {
    go(async {
        let peer = peer();
        let (ours, drive) = RemoteDrive::open(at(peer.port), NODE);
        write(&drive, 0, 1).await.unwrap();
        let (theirs, other) = RemoteDrive::open(at(peer.port), OTHER);
        let error = write(&other, 0, 2).await.unwrap_err();
        assert_eq!(error.kind, Kind::Busy);
        assert!(error.to_string().contains("another node uses the namespace"), "{error}");
        assert!(why(&theirs).contains("reservation key 0x"));
        assert_eq!(byte(&drive, 0).await.unwrap(), 1);
        write(&drive, 0, 3).await.unwrap();

        drop(drive);
        ours.closed().await;
        write_again(&other, 4096, 4).await;
        assert_eq!(byte(&other, 0).await.unwrap(), 3);
    });
}

#[test]
fn a_target_that_never_answers_is_given_up_in_time() {
    let silent = TcpListener::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)).unwrap();
    let port = silent.local_addr().unwrap().port();
    go(async move {
        let (remote, drive) = RemoteDrive::open(at(port), NODE);
        let begun = reactor::now_exact();
        let error = write(&drive, 0, 1).await.unwrap_err();
        assert_eq!(error.kind, Kind::Gone, "{error}");
        assert!(elapsed(begun) < LATE);
        let again = write(&drive, 0, 1).await.unwrap_err();
        assert_eq!(again.to_string(), error.to_string());
        assert!(error.to_string().ends_with(&why(&remote)), "{error}");
    });
}

/// A drive whose first write waits until it is told to go on: what others write meanwhile it overwrites.
#[derive(Debug)]
struct Stuck {
    drive: Drive,
    writes: AtomicU32,
    goes_on: Watch<bool>,
}

impl Remote for Stuck {
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
            if self.writes.fetch_add(1, Ordering::Relaxed) == 0 {
                self.goes_on.until(|goes_on| goes_on.then_some(())).await;
            }
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

/// A target with this behind its namespace.
fn target(backend: Backend) -> Arc<Target> {
    let served = Target::new(Identity::default());
    let nqn = Nqn::new(SUBNQN).unwrap();
    served.add_subsystem(SubsystemSpec::new(nqn.clone())).unwrap();
    served.add_namespace(&nqn, &NamespaceSpec::new(backend, 512)).unwrap();
    served
}

/// A target whose drive's first write gets stuck.
fn stuck() -> (Arc<Stuck>, Handle, u16) {
    let options = RegionOptions { block_size: 512, shared: true, committed: false };
    let stuck = Arc::new(Stuck {
        drive: Drive::memory(LEN, options).unwrap(),
        writes: AtomicU32::new(0),
        goes_on: Watch::new(false),
    });
    let drive = Drive::Remote(Arc::clone(&stuck) as Arc<dyn Remote>);
    let served = target(Backend::Drive(Arc::new(drive)));
    let handle = start("target");
    let port = handle.call(move || serve(served, 0)).wait().unwrap();
    (stuck, handle, port)
}

/// Without a new incarnation the write that was given up would come last.
#[test]
fn a_write_that_was_given_up_never_comes_after_a_newer_one() {
    let (stuck, target, port) = stuck();
    go(async move {
        let (remote, drive) = RemoteDrive::open(at(port), NODE);
        assert_eq!(byte(&drive, 0).await.unwrap(), 0);
        let held = Arc::clone(&stuck);
        let reaches = async move {
            while held.writes.load(Ordering::Relaxed) == 0 {
                reactor::sleep(Duration::from_millis(1)).await;
            }
            None
        };
        let given_up = fabric::race(async { Some(write(&drive, 0, 1).await) }, reaches).await;
        assert!(given_up.is_none());
        assert!(why(&remote).contains("given up"), "{}", why(&remote));

        // As long as it has not ended, nothing else is written or read.
        while !write(&drive, 0, 2).await.unwrap_err().to_string().contains("in flight") {
            reactor::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(byte(&drive, 0).await.unwrap_err().kind, Kind::Gone);
        assert_eq!(stuck.writes.load(Ordering::Relaxed), 1);
        stuck.goes_on.change(|goes_on| *goes_on = true);
        write_again(&drive, 0, 2).await;
        assert_eq!(byte(&drive, 0).await.unwrap(), 2);
        assert_eq!(stuck.writes.load(Ordering::Relaxed), 2);
        target.stop();
        target.join().unwrap();
    });
}

#[test]
fn a_write_that_is_not_answered_ends_in_time() {
    let (stuck, target, port) = stuck();
    go(async move {
        let (remote, drive) = RemoteDrive::open(at(port), NODE);
        let begun = reactor::now_exact();
        let error = write(&drive, 0, 1).await.unwrap_err();
        assert_eq!(error.kind, Kind::Gone);
        assert!(error.to_string().contains("not answered within 3 s"), "{error}");
        let took = elapsed(begun);
        assert!(took > REMOTE_OPERATION / 2 && took < LATE, "{took:?}");
        assert!(why(&remote).contains("not answered"));
        stuck.goes_on.change(|goes_on| *goes_on = true);
        target.stop();
        target.join().unwrap();
    });
}

/// One process was killed before it held the namespace, another one while it took it from a third: that what the third had
/// in flight has ended was seen by nobody.
#[test]
fn what_was_killed_while_it_took_the_namespace_is_waited_out() {
    reactor::simulate(1, async {
        let drive = Drive::memory(LEN, RegionOptions::default()).unwrap();
        let port = serve(target(Backend::Drive(Arc::new(drive))), 4420).await;
        let (stale, killed) = (Key::new(NODE, 1, 1), Key::new(NODE, 2, 1));
        attach(port, "stale").await.register(stale.claiming()).await.unwrap();
        let taking = attach(port, "killed").await;
        taking.register(killed.claiming()).await.unwrap();
        taking.acquire(killed.claiming(), Type::WriteExclusive).await.unwrap();
        drop(taking);

        let (_remote, drive) = RemoteDrive::open(at(port), NODE);
        let begun = reactor::now_exact();
        let error = write(&drive, 0, 1).await.unwrap_err();
        assert_eq!(error.kind, Kind::Gone, "{error}");
        write_again(&drive, 0, 1).await;
        assert!(elapsed(begun) >= REMOTE_KEEP_ALIVE * 2, "{:?}", elapsed(begun));
        let found = registrants(port).await;
        let [Registrant { key, holds: true, .. }] = found[..] else { panic!("{found:?}") };
        assert!(stale.is_of_node(key) && !stale.is_of_drive(key) && !killed.is_of_drive(key));
        assert_eq!(byte(&drive, 0).await.unwrap(), 1);
    });
}
