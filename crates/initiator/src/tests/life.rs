//! The life of a namespace against a scripted controller that is slow, goes away, or comes back as another: in
//! simulated time.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use nvme::identify::bits;
use nvme::status::Status;

use super::{SUBNQN, on_reactor};
use crate::limits::RETRIES;
use crate::scripted::{BLOCKS, Fault, Script, Scripted};
use crate::{Buffer, Error, Fencing, Fua, HostIdentity, Namespace, Options, Remote};

/// KATO of these tests; the scripted controller's keep alive is command based, so that a lost association is dead
/// after twice that.
const KATO: Duration = Duration::from_millis(500);

pub fn options() -> Options {
    Options {
        keep_alive: KATO,
        timeout: Duration::from_secs(2),
        reconnect_delay: Duration::from_millis(20),
        ..Options::default()
    }
}

pub async fn attach(peer: &Scripted, options: Options) -> Namespace {
    let remote = Remote {
        traddr: peer.addr.ip().to_string(),
        trsvcid: peer.addr.port(),
        subnqn: SUBNQN.to_owned(),
        host: HostIdentity::named("nqn.2026-11.io.flashloom:host"),
        options,
    };
    Namespace::attach(&remote, 1).await.unwrap()
}

pub fn with<F: Future<Output = ()> + 'static>(
    options: Options,
    test: impl FnOnce(Rc<Scripted>, Namespace) -> F + 'static,
) {
    on_reactor(async move {
        let peer = Rc::new(Scripted::start(Script::default()));
        let namespace = attach(&peer, options).await;
        test(peer, namespace).await;
    });
}

/// All namespaces of a controller that may have one with a cache were flushed.
#[test]
fn a_namespace_says_that_it_has_no_cache_where_its_controller_has_one() {
    for (cache, is_volatile) in [
        ((0, Some(0)), false),
        ((bits::VWC_PRESENT, None), true),
        ((bits::VWC_PRESENT, Some(0)), true),
        ((bits::VWC_PRESENT, Some(1 << 5)), false),
    ] {
        on_reactor(async move {
            let peer = Scripted::start(Script { cache, ..Script::default() });
            let namespace = attach(&peer, options()).await;
            assert_eq!(namespace.geometry().volatile_cache, is_volatile, "{cache:?}");
        });
    }
}

pub async fn filled(namespace: &Namespace, byte: u8) -> Buffer {
    let mut buffer = namespace.buffer(512).await;
    buffer.fill(byte);
    buffer
}

/// Waits until the controller holds a write.
pub async fn held(peer: &Scripted) {
    while peer.held() == 0 {
        reactor::sleep(Duration::from_millis(1)).await;
    }
}

/// A write of 1s is held when its association is lost; the host writes 1s again and then 2s; the old copy is
/// executed at the latest moment the specification leaves to it. Gives what the block holds at last.
fn ghost(fencing: Fencing) -> u8 {
    let last = Rc::new(std::cell::Cell::new(0));
    let result = Rc::clone(&last);
    with(Options { fencing, ..options() }, |peer, namespace| async move {
        peer.set_fault(Fault::HoldWrites);
        let writer = namespace.clone();
        let both = reactor::spawn(async move {
            for byte in [1, 2] {
                let mut data = filled(&writer, byte).await;
                writer.write(5, 1, &mut data, Fua::No).await.unwrap();
            }
        });
        held(&peer).await;
        let lost = reactor::now_exact();
        peer.cut();
        peer.set_fault(Fault::None);
        // A reader does not wait for the old association.
        let mut buffer = namespace.buffer(512).await;
        namespace.read(5, 1, &mut buffer).await.unwrap();
        assert_eq!(peer.seen().0, 2);
        assert!(reactor::now_exact() - lost < 500_000_000);
        // Sleeps: simulated time, until shortly before an old association's write cannot come any more.
        reactor::sleep(KATO * 2 - Duration::from_millis(60)).await;
        peer.haunt();
        both.await.unwrap();
        last.set(peer.byte_of(5));
    });
    result.get()
}

#[test]
fn an_old_write_never_comes_after_a_newer_one() {
    assert_eq!(ghost(Fencing::Proven), 2);
}

/// What the rule is good for: without it the test above finds the old data.
#[test]
fn a_target_trusted_wrongly_shows_the_old_write() {
    assert_eq!(ghost(Fencing::Trusted), 1);
}

/// A program is killed with a write of 1s in flight; another one takes over as `how` says, and writes 2s. The old
/// write is executed at the latest moment that the specification leaves to it. Gives what the block holds at last.
fn inherited<F: Future<Output = ()>>(how: impl FnOnce(Namespace) -> F + 'static) -> u8 {
    let last = Rc::new(std::cell::Cell::new(0));
    let result = Rc::clone(&last);
    with(options(), |peer, killed| async move {
        peer.set_fault(Fault::HoldWrites);
        let mut data = filled(&killed, 1).await;
        let write = killed.write(5, 1, &mut data, Fua::No);
        assert!(reactor::timeout(Duration::from_millis(20), write).await.is_err());
        held(&peer).await;
        drop(killed);
        let died = reactor::now_exact();
        peer.cut();
        peer.set_fault(Fault::None);
        let heir = attach(&peer, options()).await;
        how(heir.clone()).await;
        // Who reads does not wait for the time to pass, unless it was asked for.
        let before = reactor::now_exact();
        let mut buffer = heir.buffer(512).await;
        heir.read(5, 1, &mut buffer).await.unwrap();
        assert!(reactor::now_exact() - before < 500_000_000);
        let writer = heir.clone();
        let write = reactor::spawn(async move {
            let mut data = filled(&writer, 2).await;
            writer.write(5, 1, &mut data, Fua::No).await.unwrap();
        });
        let latest = KATO * 2 - Duration::from_millis(60);
        // Sleeps: simulated time, until shortly before an old association's write cannot come any more.
        reactor::sleep_until(died + u64::try_from(latest.as_nanos()).unwrap()).await;
        peer.haunt();
        write.await.unwrap();
        last.set(peer.byte_of(5));
    });
    result.get()
}

#[test]
fn who_succeeds_a_killed_program_writes_after_what_that_had_in_flight() {
    assert_eq!(inherited(|heir| async move { heir.succeed() }), 2);
}

/// What the rule is good for.
#[test]
fn who_does_not_say_that_it_succeeds_one_finds_the_old_write() {
    assert_eq!(inherited(|_| async {}), 1);
}

/// It was once counted for the paths that were connected at that moment, which may be none.
#[test]
fn who_outlives_a_killed_program_waits_also_while_it_has_no_path() {
    with(options(), |peer, namespace| async move {
        peer.set_fault(Fault::Refuse(Status::INTERNAL_ERROR, 0));
        peer.cut();
        let gone = |path: &crate::PathInfo| path.state != crate::PathState::Live;
        while !namespace.paths().iter().all(gone) {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        let start = reactor::now_exact();
        namespace.outlive().await;
        assert!(reactor::now_exact() - start >= 2 * 500_000_000);
    });
}

#[test]
fn a_read_that_takes_too_long_is_aborted_and_sent_again() {
    let (io_timeout, keep_alive) = (Duration::from_millis(100), Duration::from_secs(20));
    let timeout = Duration::from_secs(10);
    with(
        Options { io_timeout, keep_alive, timeout, ..options() },
        move |peer, namespace| async move {
            peer.set_fault(Fault::Stall);
            let mut buffer = namespace.buffer(512).await;
            namespace.read(0, 1, &mut buffer).await.unwrap();
            assert_eq!((peer.seen(), peer.reads()), ((1, 1, 0), 2));
        },
    );
}

#[test]
fn a_controller_that_does_not_abort_is_reset_and_writes_go_on_at_once() {
    let (io_timeout, keep_alive) = (Duration::from_millis(60), Duration::from_secs(20));
    with(Options { io_timeout, keep_alive, ..options() }, move |peer, namespace| async move {
        peer.set_fault(Fault::HoldWrites);
        let writer = namespace.clone();
        let started = reactor::now_exact();
        let write = reactor::spawn(async move {
            let mut data = filled(&writer, 1).await;
            writer.write(5, 1, &mut data, Fua::No).await.unwrap();
        });
        write.await.unwrap();
        assert_eq!((peer.seen(), peer.byte_of(5)), ((2, 1, 1), 1));
        // The reset proves the old association dead: nobody waits for three times KATO.
        assert!(reactor::now_exact() - started < 2_000_000_000);
    });
}

/// The end of the association waited for the answer to an Abort of each command, one after the other.
#[test]
fn a_controller_that_answers_no_abort_is_given_up_in_time() {
    let (io_timeout, keep_alive) = (Duration::from_millis(100), Duration::from_secs(60));
    let timeout = Duration::from_secs(10);
    with(
        Options { io_timeout, keep_alive, timeout, ..options() },
        move |peer, namespace| async move {
            peer.set_fault(Fault::StallAborts);
            let started = reactor::now_exact();
            let reads = [(); 4].map(|()| {
                let reader = namespace.clone();
                reactor::spawn(async move {
                    let mut buffer = reader.buffer(512).await;
                    reader.read(0, 1, &mut buffer).await
                })
            });
            while peer.seen().0 < 2 {
                reactor::sleep(Duration::from_millis(1)).await;
            }
            assert!(reactor::now_exact() - started < 5_000_000_000);
            peer.set_fault(Fault::None);
            for read in reads {
                read.await.unwrap().unwrap();
            }
        },
    );
}

#[test]
fn a_forgotten_write_fences_as_well() {
    with(options(), |peer, namespace| async move {
        peer.set_fault(Fault::HoldWrites);
        let mut data = filled(&namespace, 1).await;
        let write = namespace.write(5, 1, &mut data, Fua::No);
        assert!(reactor::timeout(Duration::from_millis(20), write).await.is_err());
        assert!(data.is_empty());
        held(&peer).await;
        let lost = reactor::now_exact();
        peer.cut();
        peer.set_fault(Fault::None);
        let mut data = filled(&namespace, 2).await;
        namespace.write(5, 1, &mut data, Fua::No).await.unwrap();
        assert!(reactor::now_exact() - lost >= 2 * 500_000_000);
    });
}

#[test]
fn a_copy_onto_its_source_is_in_doubt() {
    with(options(), |peer, namespace| async move {
        peer.set_fault(Fault::HoldWrites);
        let copying = namespace.clone();
        let copy = reactor::spawn(async move { copying.copy(&[(0, 4)], 2).await });
        let apart = namespace.clone();
        let other = reactor::spawn(async move { apart.copy(&[(0, 4)], 8).await });
        while peer.copies() < 2 {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        peer.cut();
        peer.set_fault(Fault::None);
        let error = copy.await.unwrap().unwrap_err();
        assert!(matches!(error, Error::InDoubt(_)), "{error}");
        other.await.unwrap().unwrap();
        assert_eq!(peer.copies(), 3);
    });
}

/// It was executed the first time, and the answer was lost.
#[test]
fn who_unregisters_again_and_is_not_registered_is_done() {
    with(options(), |peer, namespace| async move {
        let stranger = namespace.unregister(7).await.unwrap_err();
        assert!(matches!(stranger, Error::Command { .. }), "{stranger}");
        peer.set_fault(Fault::HoldWrites);
        let leaving = namespace.clone();
        let leave = reactor::spawn(async move { leaving.unregister(7).await });
        while peer.copies() < 1 {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        peer.cut();
        peer.set_fault(Fault::None);
        leave.await.unwrap().unwrap();
    });
}

#[test]
fn a_write_that_fast_fails_is_in_doubt() {
    let fast_io_fail = Some(Duration::from_millis(30));
    with(Options { fast_io_fail, ..options() }, |peer, namespace| async move {
        peer.set_fault(Fault::HoldWrites);
        let writer = namespace.clone();
        let write = reactor::spawn(async move {
            let mut data = filled(&writer, 1).await;
            writer.write(5, 1, &mut data, Fua::No).await
        });
        held(&peer).await;
        peer.set_fault(Fault::Silent);
        peer.cut();
        let error = write.await.unwrap().unwrap_err();
        assert!(matches!(error, Error::InDoubt(_)), "{error}");
        let mut data = filled(&namespace, 1).await;
        let error = namespace.write(5, 1, &mut data, Fua::No).await.unwrap_err();
        assert!(matches!(error, Error::Away { .. }), "{error}");
    });
}

#[test]
fn connections_take_a_type_of_service_and_a_priority() {
    with(Options { tos: Some(0x10), priority: Some(3), ..options() }, |_, namespace| async move {
        namespace.flush().await.unwrap();
    });
}

#[test]
fn a_resize_is_noticed() {
    with(options(), |peer, namespace| async move {
        let seen = namespace.geometry();
        for blocks in [2 * BLOCKS as u64, 100] {
            let before = namespace.geometry();
            peer.change(blocks, 1);
            let now = namespace.changed(&before).await.unwrap();
            assert_eq!((now.blocks, now.block_bytes), (blocks, seen.block_bytes));
        }
        let mut buffer = namespace.buffer(512).await;
        assert!(namespace.read(100, 1, &mut buffer).await.is_err());
    });
}

#[test]
fn a_removed_namespace_is_over_and_so_is_a_replaced_one() {
    for (blocks, nguid, words) in [(0, 1, "has been removed"), (100, 2, "is not the one it was")] {
        with(options(), move |peer, namespace| async move {
            let seen = namespace.geometry();
            peer.change(blocks, nguid);
            let error = namespace.changed(&seen).await.unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert!(namespace.flush().await.unwrap_err().to_string().contains(words));
        });
    }
}

#[test]
fn another_namespace_after_a_reconnect_is_not_written_to() {
    with(options(), |peer, namespace| async move {
        peer.change(100, 2);
        peer.cut();
        let mut data = filled(&namespace, 1).await;
        while namespace.write(5, 1, &mut data, Fua::No).await.is_ok() {}
        assert_eq!(peer.byte_of(5), 0);
    });
}

#[test]
fn statuses_that_say_later_are_tried_again_and_others_are_not() {
    let later = Status::COMMAND_INTERRUPTED;
    for (status, reads) in [(later, 6), (later.with_dnr(), 1), (Status::UNRECOVERED_READ_ERROR, 1)]
    {
        with(options(), move |peer, namespace| async move {
            peer.set_fault(Fault::FailReads(status));
            let mut buffer = namespace.buffer(512).await;
            let error = namespace.read(0, 1, &mut buffer).await.unwrap_err();
            assert!(matches!(error, Error::Command { .. }), "{error}");
            assert_eq!(peer.reads(), reads, "{status}");
        });
    }
}

/// It asked for none, and its five attempts were over in a moment, whatever a controller said.
#[test]
fn attempts_are_as_far_apart_as_the_controller_says() {
    let later = Status::NAMESPACE_NOT_READY;
    for (crdt, behaves, index, tenths) in [
        ([10, 50, 7], true, 1, 10),
        ([10, 50, 7], true, 2, 50),
        ([0, 0, 7], true, 3, 7),
        ([10, 50, 7], true, 0, 0),
        ([0; 3], true, 2, 0),
        ([10, 50, 7], false, 2, 0),
    ] {
        on_reactor(async move {
            let peer = Scripted::start(Script { crdt, behaves, ..Script::default() });
            let namespace = attach(&peer, options()).await;
            assert_eq!(peer.delays_retries(), crdt != [0; 3] && behaves);
            peer.set_fault(Fault::FailReads(later.with_retry_delay(index)));
            let mut buffer = namespace.buffer(512).await;
            let began = reactor::now_exact();
            namespace.read(0, 1, &mut buffer).await.unwrap_err();
            assert_eq!(peer.reads(), 6);
            let took = Duration::from_nanos(reactor::now_exact() - began);
            let least = 5 * Duration::from_millis(100 * tenths);
            let most = least + Duration::from_millis(100);
            assert!(took >= least && took < most, "{took:?} of {crdt:?} by {index}");
        });
    }
}

/// A pool that has lost drives is whole again in its own time: five attempts may be over by then.
#[test]
fn a_path_error_is_tried_again_for_as_long_as_it_takes() {
    with(options(), |peer, namespace| async move {
        peer.set_fault(Fault::FailReads(Status::INTERNAL_PATH_ERROR));
        let reader = namespace.clone();
        let read = reactor::spawn(async move {
            let mut buffer = reader.buffer(512).await;
            reader.read(0, 1, &mut buffer).await
        });
        while peer.reads() < 3 * (RETRIES + 1) {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        peer.set_fault(Fault::None);
        read.await.unwrap().unwrap();
        peer.set_fault(Fault::FailReads(Status::INTERNAL_PATH_ERROR.with_dnr()));
        let before = peer.reads();
        let mut buffer = namespace.buffer(512).await;
        namespace.read(0, 1, &mut buffer).await.unwrap_err();
        assert_eq!(peer.reads(), before + 1, "it was said not to");
    });
}

#[test]
fn silence_is_noticed_by_the_keep_alive() {
    with(options(), |peer, namespace| async move {
        peer.set_fault(Fault::Mute);
        let reader = namespace.clone();
        let read = reactor::spawn(async move {
            let mut buffer = reader.buffer(512).await;
            reader.read(0, 1, &mut buffer).await
        });
        // The I/O queue has heard nothing, and the admin queue will not.
        while peer.reads() == 0 {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        // Sleeps: simulated time, as long as the keep-alive takes.
        reactor::sleep(KATO).await;
        peer.set_fault(Fault::None);
        read.await.unwrap().unwrap();
        assert_eq!(peer.seen().0, 2);
    });
}
