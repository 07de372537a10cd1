//! A namespace over several paths: two scripted controllers over one memory, of which either may be lost, slow or
//! told to take no commands: in simulated time.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use nvme::ana::State;

use super::{SUBNQN, on_reactor};
use crate::scripted::{Fault, Script, Scripted};
use crate::{
    Error, Fua, HostIdentity, Namespace, Options, PathInfo, PathPolicy, PathState, Remote,
};

/// KATO of these tests; a lost association is dead after twice that.
const KATO: Duration = Duration::from_millis(500);

fn remote(peer: &Scripted, options: &Options) -> Remote {
    Remote {
        traddr: peer.addr.ip().to_string(),
        trsvcid: peer.addr.port(),
        subnqn: SUBNQN.to_owned(),
        host: HostIdentity::named("nqn.2026-11.io.flashloom:host"),
        options: options.clone(),
    }
}

fn options() -> Options {
    Options {
        keep_alive: KATO,
        timeout: Duration::from_secs(2),
        reconnect_delay: Duration::from_millis(20),
        ..Options::default()
    }
}

/// Two controllers and a namespace over both, connected.
fn with<F: Future<Output = ()> + 'static>(
    policy: PathPolicy,
    options: Options,
    test: impl FnOnce([Rc<Scripted>; 2], Namespace) -> F + 'static,
) {
    on_reactor(async move {
        let first = Scripted::start(Script::default());
        let second = first.beside();
        let remotes = [&first, &second].map(|peer| remote(peer, &options));
        let namespace = Namespace::attach_paths(&remotes, 1, policy).await.unwrap();
        until(&namespace, |paths| paths.iter().all(|path| path.state == PathState::Live)).await;
        test([first, second].map(Rc::new), namespace).await;
    });
}

/// Waits until the paths are as wanted.
async fn until(namespace: &Namespace, wanted: impl Fn(&[PathInfo]) -> bool) {
    let mut paths = namespace.paths();
    while !wanted(&paths) {
        paths = namespace.paths_changed(&paths).await;
    }
}

async fn write(namespace: &Namespace, lba: u64, byte: u8) -> Result<(), Error> {
    let mut buffer = namespace.buffer(512).await;
    buffer.fill(byte);
    namespace.write(lba, 1, &mut buffer, Fua::No).await
}

async fn read(namespace: &Namespace, lba: u64) -> u8 {
    let mut buffer = namespace.buffer(512).await;
    namespace.read(lba, 1, &mut buffer).await.unwrap();
    buffer[0]
}

async fn reads(namespace: &Namespace, count: u64) {
    for lba in 0..count {
        read(namespace, lba).await;
    }
}

/// Waits until the controller holds a write.
async fn held(peer: &Scripted) {
    while peer.held() == 0 {
        reactor::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn the_policy_spreads_commands_over_equals() {
    for (policy, first) in
        [(PathPolicy::Numa, 8), (PathPolicy::RoundRobin, 4), (PathPolicy::QueueDepth, 4)]
    {
        with(policy, options(), move |[a, b], namespace| async move {
            reads(&namespace, 8).await;
            assert_eq!((a.reads(), b.reads()), (first, 8 - first), "{policy:?}");
        });
    }
}

#[test]
fn access_decides_which_path_is_taken() {
    with(PathPolicy::RoundRobin, options(), |[a, b], namespace| async move {
        let seen = |a: State, b: State| {
            move |paths: &[PathInfo]| [paths[0].access, paths[1].access] == [Some(a), Some(b)]
        };
        a.set_access(State::NonOptimized);
        until(&namespace, seen(State::NonOptimized, State::Optimized)).await;
        reads(&namespace, 4).await;
        assert_eq!((a.reads(), b.reads()), (0, 4));
        b.set_access(State::Inaccessible);
        until(&namespace, seen(State::NonOptimized, State::Inaccessible)).await;
        reads(&namespace, 4).await;
        assert_eq!((a.reads(), b.reads()), (4, 4));
        assert_eq!((a.refused(), b.refused()), (0, 0));
    });
}

#[test]
fn a_command_that_is_refused_for_access_takes_the_other_path() {
    with(PathPolicy::Numa, options(), |[a, b], namespace| async move {
        for state in [State::Inaccessible, State::PersistentLoss, State::Change] {
            // The host is not told, and finds out by the status.
            a.set_access_silently(state);
            write(&namespace, 3, 7).await.unwrap();
            assert_eq!((a.refused(), a.byte_of(3)), (1, 7));
            a.set_access(State::Optimized);
            until(&namespace, |paths| paths[0].access == Some(State::Optimized)).await;
            reads(&namespace, 1).await;
            a.forget_counts();
            b.forget_counts();
        }
    });
}

#[test]
fn without_access_anywhere_commands_wait() {
    with(PathPolicy::Numa, options(), |[a, b], namespace| async move {
        a.set_access_silently(State::Inaccessible);
        b.set_access_silently(State::Change);
        let writer = namespace.clone();
        let writing = reactor::spawn(async move { write(&writer, 3, 7).await });
        while (a.refused(), b.refused()) != (1, 1) {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        // A state that does not last is looked at again, without an event.
        b.set_access_silently(State::NonOptimized);
        writing.await.unwrap().unwrap();
        assert_eq!((b.byte_of(3), a.refused()), (7, 1));
    });
}

/// A controller whose log page contradicts its commands is not asked without a pause.
#[test]
fn a_page_that_lies_costs_little() {
    with(PathPolicy::Numa, options(), |[a, b], namespace| async move {
        b.cut();
        b.set_fault(Fault::Silent);
        until(&namespace, |paths| paths[1].state != PathState::Live).await;
        a.set_fault(Fault::FalseAccess);
        a.set_access_silently(State::Inaccessible);
        let reading = reactor::timeout(Duration::from_millis(300), read(&namespace, 0)).await;
        assert!(reading.is_err());
        assert!((2..=10).contains(&a.refused()), "{}", a.refused());
        a.set_access_silently(State::Optimized);
        assert_eq!(read(&namespace, 0).await, 0);
    });
}

#[test]
fn a_page_without_the_namespaces_group_is_no_answer() {
    on_reactor(async {
        let script = Script { fault: Fault::NoGroup, ..Script::default() };
        let peer = Scripted::start(script);
        let error = Namespace::attach(&remote(&peer, &options()), 1).await.err().unwrap();
        assert!(matches!(error, Error::Answer(_)), "{error}");
    });
}

#[test]
fn a_lost_path_is_left_at_once_and_used_again_when_it_is_back() {
    with(PathPolicy::Numa, options(), |[a, b], namespace| async move {
        a.set_fault(Fault::Silent);
        a.cut();
        reads(&namespace, 4).await;
        assert!(a.reads() <= 1, "but for what was on its way when the host heard of it");
        assert_eq!(b.reads(), 4);
        let paths = namespace.paths();
        assert_eq!((paths[0].state, paths[0].access), (PathState::Connecting, None));
        a.set_fault(Fault::None);
        until(&namespace, |paths| paths[0].state == PathState::Live).await;
        a.forget_counts();
        reads(&namespace, 4).await;
        assert_eq!((a.reads(), b.reads()), (4, 4));
    });
}

/// A write is lost with its path: it goes the other way at once, and so do writes of other blocks. Those of the
/// same block wait until the lost association is dead, so that its old copy never comes last.
#[test]
fn only_what_overlaps_a_write_in_doubt_waits() {
    with(PathPolicy::Numa, options(), |[a, b], namespace| async move {
        a.set_fault(Fault::HoldWrites);
        let writer = namespace.clone();
        let first = reactor::spawn(async move {
            write(&writer, 5, 1).await.unwrap();
            reactor::now_exact()
        });
        held(&a).await;
        let lost = reactor::now_exact();
        a.set_fault(Fault::Silent);
        a.cut();
        let quick = Duration::from_millis(300);
        assert!(first.await.unwrap() - lost < 300_000_000);
        assert_eq!(b.byte_of(5), 1);
        reactor::timeout(quick, write(&namespace, 6, 3)).await.unwrap().unwrap();
        let writer = namespace.clone();
        let second = reactor::spawn(async move { write(&writer, 5, 2).await.unwrap() });
        // Sleeps: simulated time, until shortly before an old association's write cannot come any more.
        reactor::sleep(KATO * 2 - Duration::from_millis(60) - quick).await;
        assert_eq!(b.byte_of(5), 1);
        a.haunt();
        second.await.unwrap();
        assert!(reactor::now_exact() - lost >= 2 * 500_000_000);
        assert_eq!((b.byte_of(5), b.byte_of(6)), (2, 3));
    });
}

#[test]
fn a_namespace_outlives_all_paths_but_one() {
    let ctrl_loss = Some(Duration::from_millis(100));
    with(PathPolicy::Numa, Options { ctrl_loss, ..options() }, |[a, b], namespace| async move {
        a.set_fault(Fault::Silent);
        a.cut();
        until(&namespace, |paths| paths[0].state == PathState::Over).await;
        write(&namespace, 3, 7).await.unwrap();
        b.set_fault(Fault::Silent);
        b.cut();
        let error = namespace.changed(&namespace.geometry()).await.unwrap_err();
        assert!(matches!(error, Error::Ended(_)), "{error}");
        assert!(write(&namespace, 3, 8).await.is_err());
        assert_eq!(a.byte_of(3), 7);
    });
}

#[test]
fn commands_fail_fast_when_no_path_is_left_to_wait_for() {
    let fast_io_fail = Some(Duration::from_millis(50));
    with(PathPolicy::Numa, Options { fast_io_fail, ..options() }, |[a, b], namespace| async move {
        for peer in [&a, &b] {
            peer.set_fault(Fault::Silent);
            peer.cut();
        }
        until(&namespace, |paths| paths.iter().all(|path| path.state != PathState::Live)).await;
        let error = write(&namespace, 3, 7).await.unwrap_err();
        assert!(matches!(error, Error::Away { .. }), "{error}");
        b.set_fault(Fault::None);
        until(&namespace, |paths| paths[1].state == PathState::Live).await;
        write(&namespace, 3, 7).await.unwrap();
    });
}

#[test]
fn paths_come_and_go_in_use() {
    with(PathPolicy::Numa, options(), |[a, b], namespace| async move {
        let third = a.beside();
        namespace.add_path(&remote(&third, &options())).unwrap();
        assert!(namespace.add_path(&remote(&third, &options())).is_err());
        for peer in [&*a, &*b] {
            let (traddr, trsvcid) = (peer.addr.ip().to_string(), peer.addr.port());
            namespace.remove_path(&traddr, trsvcid).await.unwrap();
        }
        write(&namespace, 3, 7).await.unwrap();
        assert_eq!(namespace.paths().len(), 1);
        assert_eq!(third.byte_of(3), 7);
        let last = namespace.remove_path("127.0.0.1", third.addr.port()).await;
        assert!(matches!(last, Err(Error::Unsupported(_))));
        namespace.shut_down().await.unwrap();
    });
}

#[test]
fn a_path_to_another_namespace_is_given_up() {
    on_reactor(async {
        let first = Scripted::start(Script::default());
        let other = first.beside();
        other.change(100, 2);
        let remotes = [&first, &other].map(|peer| remote(peer, &options()));
        let namespace = Namespace::attach_paths(&remotes, 1, PathPolicy::Numa).await.unwrap();
        until(&namespace, |paths| paths[1].state == PathState::Over).await;
        write(&namespace, 3, 7).await.unwrap();
        let why = namespace.paths()[1].why.clone().unwrap();
        assert!(why.contains("not the one it was"), "{why}");
    });
}

#[test]
fn what_cannot_be_paths_of_one_namespace_is_refused() {
    on_reactor(async {
        let peer = Scripted::start(Script::default());
        let one = remote(&peer, &options());
        let other = Remote { subnqn: "nqn.2026-11.io.flashloom:other".to_owned(), ..one.clone() };
        for remotes in [vec![], vec![one.clone(), one.clone()], vec![one.clone(), other]] {
            let result = Namespace::attach_paths(&remotes, 1, PathPolicy::Numa).await;
            assert!(matches!(result.err(), Some(Error::Unsupported(_))));
        }
        // The second of them is there.
        let nobody = Remote { trsvcid: 1, ..one.clone() };
        let namespace = Namespace::attach_paths(&[nobody, one], 1, PathPolicy::Numa).await.unwrap();
        write(&namespace, 3, 7).await.unwrap();
    });
}

#[test]
fn discovery_tells_where_else_a_subsystem_is() {
    on_reactor(async {
        let peer = Scripted::start(Script::default());
        let subnqn = "nqn.2026-11.io.flashloom:1".to_owned();
        let asked = Remote { subnqn, ..remote(&peer, &options()) };
        let paths = asked.paths().await.unwrap();
        let expected = Remote { traddr: "192.0.2.1".to_owned(), trsvcid: 4420, ..asked };
        assert_eq!(paths, [expected]);
    });
}
