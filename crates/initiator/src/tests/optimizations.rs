//! Each optimization does what it says, and nothing of it while it is off: how often something is sent, on which queue,
//! and who receives the answer.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::{SUBNQN, on_reactor, options};
use crate::scripted::{Fault, Script, Scripted};
use crate::{
    Batching, Counters, Fua, HostIdentity, Namespace, Optimization, Optimizations, Options, Remote,
};
use reactor::{Config, PollPolicy, Reactor, Task};

fn with(optimizations: Optimizations) -> Options {
    Options { optimizations, timeout: Duration::from_secs(5), ..options() }
}

async fn attach(peer: &Scripted, options: Options) -> Namespace {
    attach_to(peer.addr, options).await
}

async fn attach_to(addr: std::net::SocketAddr, options: Options) -> Namespace {
    let remote = Remote {
        traddr: addr.ip().to_string(),
        trsvcid: addr.port(),
        subnqn: SUBNQN.to_owned(),
        host: HostIdentity::named("nqn.2026-11.io.flashloom:host"),
        options,
    };
    Namespace::attach(&remote, 1).await.unwrap()
}

/// Lets the reactor run until this task is the only one that could.
async fn settle() {
    loop {
        reactor::yield_now().await;
        if reactor::is_last() {
            return;
        }
    }
}

fn sends(namespace: &Namespace) -> u64 {
    let [default, read, poll] = namespace.counters();
    (default + read + poll).sends
}

/// System calls to send that a command made until its submission returned.
async fn sent_at_submission(optimizations: Optimizations) -> u64 {
    let peer = Scripted::start(Script::default());
    let namespace = attach(&peer, with(optimizations)).await;
    let mut buffer = namespace.buffer(512).await;
    namespace.read(0, 1, &mut buffer).await.unwrap();
    settle().await;
    let before = sends(&namespace);
    let mut read = pin!(namespace.read(0, 1, &mut buffer));
    let polled = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await;
    assert!(polled.is_pending(), "nobody has answered yet");
    let sent = sends(&namespace) - before;
    read.await.unwrap();
    assert_eq!(sends(&namespace) - before, 1, "it is sent once");
    sent
}

#[test]
fn a_command_is_sent_where_it_is_submitted() {
    assert_eq!(on_reactor(sent_at_submission(Optimizations::none().with(Optimization::Direct))), 1);
    assert_eq!(on_reactor(sent_at_submission(Optimizations::none())), 0);
}

fn reader(namespace: &Namespace, lba: u64) -> Task<()> {
    let namespace = namespace.clone();
    reactor::spawn(async move {
        let mut buffer = namespace.buffer(512).await;
        namespace.read(lba, 1, &mut buffer).await.unwrap();
    })
}

/// System calls to send for eight commands that eight tasks submit in one turn.
async fn sends_for_eight(optimizations: Optimizations) -> u64 {
    let peer = Scripted::start(Script::default());
    let namespace = attach(&peer, with(optimizations)).await;
    settle().await;
    let before = sends(&namespace);
    let readers: Vec<_> = (0..8).map(|lba| reader(&namespace, lba)).collect();
    for reader in readers {
        reader.await;
    }
    sends(&namespace) - before
}

#[test]
fn commands_of_one_turn_go_by_one_call_when_they_are_a_list() {
    let list = Optimizations::none().with(Optimization::List);
    assert_eq!(on_reactor(sends_for_eight(list)), 1);
    assert_eq!(
        on_reactor(sends_for_eight(list.with(Optimization::Direct))),
        1,
        "the last one sends"
    );
    assert_eq!(on_reactor(sends_for_eight(Optimizations::none())), 8);
}

#[test]
fn hints_change_nothing_but_how_tcp_cuts() {
    for optimizations in [
        Optimizations::none(),
        Optimizations::none().with(Optimization::List),
        Optimizations::all(),
    ] {
        let on = on_reactor(sends_for_eight(
            optimizations.with(Optimization::Hints).without(Optimization::Batching),
        ));
        let off = on_reactor(sends_for_eight(
            optimizations.without(Optimization::Hints).without(Optimization::Batching),
        ));
        assert_eq!(on, off, "{optimizations}");
    }
}

const BOUNDS: Batching = Batching { commands: 3, bytes: 2000, wait: Duration::from_secs(3600) };

/// Batching alone: with no list either, a batch goes by one call.
fn batching(bounds: Batching) -> Options {
    let mut optimizations =
        Optimizations::none().with(Optimization::Batching).with(Optimization::Maps);
    optimizations.batching = bounds;
    Options { io_timeout: Duration::ZERO, ..with(optimizations) }
}

/// Reads that are never answered, sent before this returns.
async fn stalled(namespace: &Namespace, reads: u64) -> Vec<Task<()>> {
    let readers = (0..reads).map(|lba| reader(namespace, lba)).collect();
    settle().await;
    readers
}

#[test]
fn a_batch_is_sent_when_it_is_full_and_not_before() {
    on_reactor(async {
        let peer = Scripted::start(Script { fault: Fault::Stall, ..Script::default() });
        let namespace = attach(&peer, batching(BOUNDS)).await;
        settle().await;
        let before = sends(&namespace);
        let sent = || sends(&namespace) - before;
        let _on_its_way = stalled(&namespace, 6).await;
        assert_eq!(sent(), 1, "six of one turn go together");
        let _two = stalled(&namespace, 2).await;
        assert_eq!(sent(), 1, "two wait for a third");
        let _third = stalled(&namespace, 1).await;
        assert_eq!(sent(), 2, "three go together");
        // Bytes count too: 4 blocks are 2048.
        let _read = stalled(&namespace, 1).await;
        assert_eq!(sent(), 2);
        let mut buffer = namespace.buffer(2048).await;
        namespace.write(0, 4, &mut buffer, Fua::No).await.unwrap();
        assert_eq!(sent(), 3);
    });
}

/// Five synchronous callers never fill a batch of three while another one is on its way: they do not wait for
/// company (of hours, by these bounds), and neither does one alone.
#[test]
fn few_commands_do_not_wait_for_a_batch() {
    for direct in [false, true] {
        on_reactor(async move {
            let peer = Scripted::start(Script { fault: Fault::Stall, ..Script::default() });
            let mut options = batching(BOUNDS);
            if direct {
                options.optimizations = options.optimizations.with(Optimization::Direct);
            }
            let namespace = attach(&peer, options).await;
            settle().await;
            let before = sends(&namespace);
            for alone in 1..=5 {
                let _reader = stalled(&namespace, 1).await;
                assert_eq!(sends(&namespace) - before, alone, "direct: {direct}");
            }
            let _sixth = stalled(&namespace, 1).await;
            assert_eq!(sends(&namespace) - before, 5, "direct: {direct}");
        });
    }
}

#[test]
fn a_batch_waits_for_its_time_at_most() {
    on_reactor(async {
        let peer = Scripted::start(Script { fault: Fault::Stall, ..Script::default() });
        let wait = Duration::from_millis(5);
        let namespace = attach(&peer, batching(Batching { wait, ..BOUNDS })).await;
        let _on_their_way = stalled(&namespace, 5).await;
        let begun = reactor::now_exact();
        let mut buffer = namespace.buffer(512).await;
        namespace.write(0, 1, &mut buffer, Fua::No).await.unwrap();
        assert!(reactor::now_exact() - begun >= 5_000_000, "it waited for others");
    });
}

#[test]
fn queues_for_polled_commands_do_not_batch() {
    on_reactor(async {
        let peer = Scripted::start(Script { fault: Fault::Stall, ..Script::default() });
        let options = Options { poll_queues: 1, ..batching(BOUNDS) };
        let namespace = attach(&peer, options).await;
        let polled = namespace.polled();
        let _stalled = stalled(&polled, 6).await;
        let mut buffer = namespace.buffer(512).await;
        polled.write(0, 1, &mut buffer, Fua::No).await.unwrap();
        let [.., poll] = namespace.counters();
        assert_eq!(poll.commands, 7);
    });
}

/// Commands on each map after three reads, two writes and a polled read.
async fn commands_by_map(optimizations: Optimizations) -> [u64; 3] {
    let peer = Scripted::start(Script::default());
    let options = Options { write_queues: 1, poll_queues: 1, ..with(optimizations) };
    let namespace = attach(&peer, options).await;
    let mut buffer = namespace.buffer(512).await;
    for _ in 0..3 {
        namespace.read(0, 1, &mut buffer).await.unwrap();
    }
    for _ in 0..2 {
        namespace.write(0, 1, &mut buffer, Fua::No).await.unwrap();
    }
    namespace.polled().read(0, 1, &mut buffer).await.unwrap();
    namespace.counters().map(|map| map.commands)
}

#[test]
fn each_class_has_its_queues() {
    assert_eq!(
        on_reactor(commands_by_map(Optimizations::none().with(Optimization::Maps))),
        [2, 3, 1]
    );
    assert_eq!(on_reactor(commands_by_map(Optimizations::none())), [6, 0, 0]);
}

/// Commands on the busiest of four queues, of 64 by one task.
async fn busiest_of_four(optimizations: Optimizations) -> u64 {
    let peer = Scripted::start(Script::default());
    let namespace = attach(&peer, Options { io_queues: 4, ..with(optimizations) }).await;
    let mut buffer = namespace.buffer(512).await;
    for _ in 0..64 {
        namespace.read(0, 1, &mut buffer).await.unwrap();
    }
    let queues = namespace.queue_counters();
    assert_eq!(queues.len(), 4);
    queues.iter().map(|queue| queue.commands).max().unwrap()
}

#[test]
fn a_cpu_has_its_queue() {
    let config = Config { cpu: Some(0), poll: PollPolicy::Interrupt, name: "pinned".to_owned() };
    let affine = Optimizations::none().with(Optimization::Affinity);
    assert_eq!(reactor::run(config, busiest_of_four(affine)).unwrap(), 64);
    assert_eq!(on_reactor(busiest_of_four(Optimizations::none())), 16);
}

/// Completions found by who waits for them, of reads until there is one, or for long: on a machine with more to
/// do than CPUs, the answer comes while nobody runs who waits.
fn found(optimizations: Optimizations) -> u64 {
    let config = |poll, name: &str| Config { cpu: None, poll, name: name.to_owned() };
    let peer = Reactor::start(config(PollPolicy::Busy, "scripted")).unwrap();
    let addr = peer.call(|| async { Scripted::start(Script::default()).addr }).wait().unwrap();
    let found = reactor::run(config(PollPolicy::Busy, "host"), async move {
        let namespace = attach_to(addr, with(optimizations)).await;
        let mut buffer = namespace.buffer(512).await;
        let mut found = 0;
        let end = reactor::now() + 30_000_000_000;
        for at in 0_u64.. {
            namespace.read(0, 1, &mut buffer).await.unwrap();
            found = namespace.counters().iter().map(|map: &Counters| map.found).sum();
            let enough = !optimizations.has(Optimization::Polled) && at == 100;
            if found > 0 || enough || reactor::now() > end {
                break;
            }
        }
        found
    });
    peer.stop();
    peer.join().unwrap();
    found.unwrap()
}

#[test]
fn who_waits_looks_for_the_completion() {
    assert!(found(Optimizations::none().with(Optimization::Polled).with(Optimization::Direct)) > 0);
    assert_eq!(found(Optimizations::none().with(Optimization::Direct)), 0);
}
