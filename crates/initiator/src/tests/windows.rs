//! Direct write windows: asked for on the admin queue of a scripted controller, and fetched from a socket.

use std::future::Future;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use nvme::status::Status;
use reactor::PacketListener;
use tempfile::TempDir;
use window::{Grant, Phase, RING_BYTES_MIN};

use super::life::{attach, filled, held, options, with};
use crate::association::{Fencing, Options};
use crate::scripted::{Fault, Script, Scripted};
use crate::testing::{self, Taker};
use crate::{Error, Fua, Namespace, NotDone, SharedWindow, WindowUse, Written};

const PATIENCE: Duration = Duration::from_secs(60);

/// On a reactor of the kernel: a simulated one has no descriptors.
fn on_kernel<F: Future<Output = ()> + 'static>(
    test: impl FnOnce(Rc<Scripted>, Namespace) -> F + 'static,
) {
    let test = async {
        let peer = Rc::new(Scripted::start(Script::default()));
        let namespace = attach(&peer, options()).await;
        reactor::timeout(PATIENCE, test(peer, namespace)).await.expect("what is waited for comes");
    };
    reactor::run(reactor::Config::default(), test).unwrap();
}

/// A grant at a socket, and a thread there that gives the rings to the next one who comes.
struct Socket {
    grant: Grant,
    folder: TempDir,
}

impl Socket {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("windows").to_str().unwrap().to_owned();
        Self { grant: Grant { path, ..testing::grant(1, RING_BYTES_MIN) }, folder }
    }

    /// Serves one who comes; the taker has credit for all of its ring.
    fn serve(&self) -> (Taker, JoinHandle<bool>) {
        let (mut taker, descriptors) = Taker::new(&self.grant, 0, 2);
        taker.give_all();
        let grant = self.grant.clone();
        let listener = PacketListener::bind(Path::new(&grant.path), PATIENCE).unwrap();
        let served =
            std::thread::spawn(move || testing::hand_over(&listener, &grant, &[descriptors]));
        (taker, served)
    }
}

#[test]
fn a_window_is_granted_fetched_and_written_by() {
    on_kernel(|peer, namespace| async move {
        let socket = Socket::new();
        peer.grant(socket.grant.clone());
        let (mut taker, served) = socket.serve();
        let mut window = namespace.window(WindowUse::Auto, RING_BYTES_MIN).await.unwrap();
        assert!(served.join().unwrap());
        assert_eq!((window.number(), window.block_bytes()), (7, 512));
        assert_eq!(window.write(1024, &[3; 512]), Written::Done);
        assert_eq!(taker.take(|offset, data| assert_eq!((offset, data[0]), (1024, 3))), Ok(1));
        assert_eq!(peer.windows(), (1, vec![]));
        // No write relies on an association that is over.
        namespace.shut_down().await.unwrap();
        assert_eq!(window.write(1024, &[4; 512]), Written::NotDone(NotDone::Ended));
        assert_eq!(taker.take(|_, _| {}), Ok(0));
    });
}

#[test]
fn what_cannot_be_had_is_told_and_given_back() {
    on_kernel(|peer, namespace| async move {
        let refused = namespace.window(WindowUse::Auto, 0).await.unwrap_err();
        let Error::Command { status, .. } = refused else { panic!("{refused}") };
        assert!(status.is(Status::INVALID_OPCODE));
        let socket = Socket::new();
        peer.grant(socket.grant.clone());
        let nobody = namespace.window(WindowUse::Auto, 0).await.unwrap_err();
        assert!(matches!(nobody, Error::Window { .. }), "{nobody}");
        assert_eq!(peer.windows(), (1, vec![7]));
        let (_taker, served) = socket.serve();
        peer.grant(Grant { token: [1; 16], ..socket.grant.clone() });
        let stranger = namespace.window(WindowUse::Auto, 0).await.unwrap_err();
        assert!(stranger.to_string().contains("token"), "{stranger}");
        assert!(!served.join().unwrap());
        let (_taker, served) = socket.serve();
        peer.grant(Grant { epoch: 1, ..socket.grant.clone() });
        let other = namespace.window(WindowUse::Auto, 0).await.unwrap_err();
        assert!(other.to_string().contains("another direct write window"), "{other}");
        assert!(served.join().unwrap());
        peer.grant(Grant { block_bytes: 4096, ..socket.grant.clone() });
        assert!(matches!(
            namespace.window(WindowUse::Auto, 0).await.unwrap_err(),
            Error::Answer(_)
        ));
        assert_eq!(peer.windows(), (4, vec![7, 7, 7, 7]));
        drop(socket.folder);
    });
}

/// The opcode is another command with others.
#[test]
fn nothing_is_asked_of_a_controller_that_does_not_say_that_it_has_windows() {
    let script = Script { windows: false, ..Script::default() };
    reactor::simulate(1, async move {
        let peer = Rc::new(Scripted::start(script));
        let namespace = attach(&peer, options()).await;
        peer.grant(testing::grant(1, RING_BYTES_MIN));
        assert!(matches!(
            namespace.window(WindowUse::Auto, 0).await.unwrap_err(),
            Error::Answer(_)
        ));
        assert_eq!(peer.windows(), (0, vec![]));
    });
}

/// What this host had before may be ending yet, and not be told as refused for that.
#[test]
fn one_that_is_required_is_waited_for_where_the_last_is_being_ended() {
    on_kernel(|peer, namespace| async move {
        let socket = Socket::new();
        peer.refuse_windows(3);
        peer.grant(socket.grant.clone());
        let (_taker, served) = socket.serve();
        let shared = namespace.open_window(WindowUse::Require).await.unwrap().unwrap();
        assert!(served.join().unwrap() && shared.stands());
        peer.refuse_windows(u32::MAX);
        let refused = namespace.open_window(WindowUse::Require).await.unwrap_err();
        let Error::Command { status, .. } = refused else { panic!("{refused}") };
        assert!(status.is(Status::WINDOW_BUSY));
        peer.refuse_windows(0);
    });
}

async fn until(mut found: impl FnMut() -> bool) {
    while !found() {
        reactor::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn another_window_is_asked_for_when_one_has_ended_and_after_the_association() {
    on_kernel(|peer, namespace| async move {
        let socket = Socket::new();
        let shared = Arc::new(SharedWindow::default());
        let (kept, at) = (namespace.clone(), Arc::clone(&shared));
        let keeper = reactor::spawn(async move { kept.keep_window(&at, WindowUse::Auto, 0).await });
        peer.grant(socket.grant.clone());
        let (taker, served) = socket.serve();
        until(|| shared.stands()).await;
        assert!(served.join().unwrap());
        assert_eq!(shared.write(0, &[1; 512]), Written::Done);
        // It ends, as for a snapshot: who writes finds out.
        taker.set_phase(Phase::Ended);
        assert_eq!(shared.write(0, &[1; 512]), Written::NotDone(NotDone::Ended));
        let (_taker, served) = socket.serve();
        until(|| shared.stands()).await;
        assert!(served.join().unwrap());
        assert_eq!((shared.write(0, &[1; 512]), peer.windows().0), (Written::Done, 2));
        // The connection ends, and nobody writes: the next window comes all the same.
        let (_taker, served) = socket.serve();
        peer.set_fault(Fault::Close);
        let reader = namespace.clone();
        let reading = reactor::spawn(async move {
            let mut buffer = reader.buffer(512).await;
            reader.read(5, 1, &mut buffer).await
        });
        until(|| namespace.reconnects() > 0).await;
        peer.set_fault(Fault::None);
        reading.await.unwrap().unwrap();
        until(|| shared.write(0, &[1; 512]) == Written::Done).await;
        assert!(served.join().unwrap() && peer.windows().0 >= 3);
        keeper.abort();
    });
}

/// A write was lost with an association and sent again; one by a window that was asked for then must not come before
/// the lost copy of it.
#[test]
fn no_window_is_asked_for_while_a_lost_write_may_come_late() {
    with(options(), |peer, namespace| async move {
        peer.set_fault(Fault::HoldWrites);
        let writer = namespace.clone();
        let writing = reactor::spawn(async move {
            let mut data = filled(&writer, 1).await;
            writer.write(5, 1, &mut data, Fua::No).await.unwrap();
        });
        held(&peer).await;
        peer.cut();
        peer.set_fault(Fault::None);
        peer.grant(testing::grant(1, RING_BYTES_MIN));
        writing.await.unwrap();
        let early = namespace.window(WindowUse::Auto, 0).await.unwrap_err();
        assert!(early.to_string().contains("in doubt"), "{early}");
        assert_eq!(peer.windows().0, 0);
        // Granted once that is over; here it cannot be had, for want of descriptors.
        // Sleeps: simulated time, until no write of the old association can come any more.
        reactor::sleep(options().keep_alive * 3).await;
        let late = namespace.window(WindowUse::Auto, 0).await.unwrap_err();
        assert!(matches!(late, Error::Window { .. }), "{late}");
        assert_eq!(peer.windows(), (1, vec![7]));
    });
}

/// A window was asked for, and cannot be had here, for want of descriptors: that suffices for a write by it to be in doubt.
async fn doubt(peer: &Scripted, namespace: &Namespace) {
    peer.grant(testing::grant(1, RING_BYTES_MIN));
    let none = namespace.window(WindowUse::Auto, 0).await.unwrap_err();
    assert!(matches!(none, Error::Window { .. }), "{none}");
}

async fn write_one(namespace: &Namespace) -> Duration {
    let (begun, mut data) = (reactor::now_exact(), filled(namespace, 1).await);
    namespace.write(5, 1, &mut data, Fua::No).await.unwrap();
    Duration::from_nanos(reactor::now_exact() - begun)
}

/// A record that may be on its way through a network must not arrive over what a command wrote: its window has to have
/// ended before, and that is proven by a reset.
#[test]
fn what_changes_something_waits_for_the_end_of_a_window_that_may_be_written_yet() {
    with(options(), |peer, namespace| async move {
        doubt(&peer, &namespace).await;
        write_one(&namespace).await;
        assert_eq!(namespace.reconnects(), 0, "there is no doubt");
        namespace.doubt_direct_write();
        let mut buffer = namespace.buffer(512).await;
        namespace.read(5, 1, &mut buffer).await.unwrap();
        assert_eq!(namespace.reconnects(), 0, "a read changes nothing");
        write_one(&namespace).await;
        assert_eq!(namespace.reconnects(), 1, "the association was given up");
        write_one(&namespace).await;
        assert_eq!(namespace.reconnects(), 1, "once");
        // The window is another's by then.
        doubt(&peer, &namespace).await;
    });
}

/// Who trusts a target to execute nothing of connections that are closed says nothing of a ring's, which was not.
#[test]
fn a_target_that_is_trusted_with_commands_is_not_with_records() {
    with(Options { fencing: Fencing::Trusted, ..options() }, |peer, namespace| async move {
        doubt(&peer, &namespace).await;
        namespace.doubt_direct_write();
        write_one(&namespace).await;
        assert_eq!(namespace.reconnects(), 1, "the association was given up");
        // Another window has taken its place, and somebody writes by the one before yet.
        doubt(&peer, &namespace).await;
        let writer = namespace.standing();
        doubt(&peer, &namespace).await;
        writer.doubt();
        write_one(&namespace).await;
        assert_eq!(namespace.reconnects(), 2);
    });
}

/// The same where the association was lost before, with nothing else in doubt: nobody knows whether it has been noticed.
#[test]
fn it_waits_as_well_where_the_association_is_another_already() {
    with(options(), |peer, namespace| async move {
        doubt(&peer, &namespace).await;
        peer.cut();
        until(|| namespace.reconnects() > 0).await;
        assert!(write_one(&namespace).await < options().keep_alive, "nothing is in doubt");
        namespace.doubt_direct_write();
        assert!(write_one(&namespace).await >= options().keep_alive);
        assert!(write_one(&namespace).await < options().keep_alive, "that is over");
    });
}
