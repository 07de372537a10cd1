//! The initiator's namespace against the real target: every command, many at once, and buffers.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use initiator::{
    Buffer, Deallocate, Error, Fua, HostIdentity, Namespace, Options, PathInfo, PathState, Remote,
};
use nvme::status::Status;
use reactor::{Config, PollPolicy, Task};
use stdx::num::u32_of;
use stdx::prng::Prng;

use super::{BLOCK, Peer, SUBNQN, serve};

/// Runs `test` with a namespace of `mib` MiB attached.
fn attached<F: Future<Output = ()> + 'static>(
    mib: u64,
    options: Options,
    test: impl FnOnce(Namespace) -> F + 'static,
) {
    let peer = serve(mib << 20);
    let remote = remote(&peer, options);
    on_reactor(async move {
        let namespace = Namespace::attach(&remote, 1).await.unwrap();
        test(namespace.clone()).await;
        namespace.shut_down().await.unwrap();
    });
}

/// How long a test may take: what it waits for does not come then.
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) fn on_reactor(test: impl Future<Output = ()> + 'static) {
    let config = Config { cpu: None, poll: PollPolicy::Interrupt, name: "host".into() };
    let test = async { reactor::timeout(PATIENCE, test).await.expect("what is waited for comes") };
    reactor::run(config, test).unwrap();
}

/// Waits until the paths are as wanted.
pub(super) async fn until(namespace: &Namespace, wanted: impl Fn(&[PathInfo]) -> bool) {
    let mut paths = namespace.paths();
    while !wanted(&paths) {
        paths = namespace.paths_changed(&paths).await;
    }
}

fn remote(peer: &Peer, options: Options) -> Remote {
    Remote {
        traddr: "127.0.0.1".to_owned(),
        trsvcid: peer.port,
        subnqn: SUBNQN.to_owned(),
        host: HostIdentity::of_machine(),
        options,
    }
}

async fn random(namespace: &Namespace, blocks: u32, seed: u64) -> Buffer {
    let mut buffer = namespace.buffer((blocks * BLOCK) as usize).await;
    Prng::new(seed).fill(&mut buffer);
    buffer
}

fn status_of(result: Result<(), Error>) -> Status {
    match result {
        Err(Error::Command { status, .. }) => status,
        other => panic!("not a status: {other:?}"),
    }
}

#[test]
fn every_command_does_what_it_says() {
    attached(16, Options::default(), |namespace| async move {
        let geometry = namespace.geometry();
        assert_eq!((geometry.block_bytes, geometry.blocks), (BLOCK, 4096));
        let supports = geometry.supports;
        assert!(supports.write_zeroes && supports.deallocate && supports.compare);
        assert!(supports.verify && geometry.copy.is_some());
        let most = geometry.transfer_max_bytes / BLOCK;
        for blocks in [1, 4, 5, most] {
            let mut sent = random(&namespace, blocks, 7).await;
            namespace.write(9, blocks, &mut sent, Fua::Yes).await.unwrap();
            let mut received = namespace.buffer(sent.len()).await;
            namespace.read(9, blocks, &mut received).await.unwrap();
            assert!(received[..] == sent[..], "{blocks} blocks differ");
            namespace.compare(9, blocks, &mut sent).await.unwrap();
            sent[0] ^= 1;
            let differs = namespace.compare(9, blocks, &mut sent).await;
            assert!(status_of(differs).is(Status::COMPARE_FAILURE));
        }
        namespace.flush().await.unwrap();
        namespace.verify(9, most).await.unwrap();
        namespace.copy(&[(9, 1), (11, 2)], 2000).await.unwrap();
        let mut copied = namespace.buffer(3 * BLOCK as usize).await;
        namespace.read(2000, 3, &mut copied).await.unwrap();
        let original = random(&namespace, most, 7).await;
        let block = |n: usize| &original[n * BLOCK as usize..][..BLOCK as usize];
        assert!(copied[..] == [block(0), block(2), block(3)].concat());
        namespace.write_zeroes(2000, 1, Deallocate::No, Fua::No).await.unwrap();
        namespace.deallocate(&[(2001, 1), (2002, 1)]).await.unwrap();
        namespace.read(2000, 3, &mut copied).await.unwrap();
        assert!(copied.iter().all(|&byte| byte == 0));
    });
}

#[test]
fn what_does_not_fit_is_refused_before_it_is_sent() {
    attached(1, Options::default(), |namespace| async move {
        let mut buffer = namespace.buffer(BLOCK as usize).await;
        for (lba, blocks) in [(0, 0), (256, 1), (255, 2), (u64::MAX, 1), (0, 2)] {
            let refused = namespace.read(lba, blocks, &mut buffer).await;
            assert!(matches!(refused, Err(Error::Unsupported(_))), "{lba} {blocks}: {refused:?}");
        }
        assert!(namespace.deallocate(&[]).await.is_err());
        assert!(namespace.deallocate(&[(0, 1); 257]).await.is_err());
        assert!(namespace.copy(&[(0, 8)], 250).await.is_err());
        namespace.read(255, 1, &mut buffer).await.unwrap();
    });
}

/// More tasks than the queues hold, each with a block of its own, written and read over and over.
fn many_at_once(options: Options) {
    attached(4, options, |namespace| async move {
        let tasks: Vec<_> = (0..64u64)
            .map(|lba| {
                let namespace = namespace.clone();
                reactor::spawn(async move {
                    for round in 0..20 {
                        let mut sent = random(&namespace, 1, lba << 8 | round).await;
                        namespace.write(lba, 1, &mut sent, Fua::No).await.unwrap();
                        let mut received = namespace.buffer(sent.len()).await;
                        namespace.read(lba, 1, &mut received).await.unwrap();
                        assert!(received[..] == sent[..], "block {lba} in round {round}");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("a task failed");
        }
    });
}

#[test]
fn tasks_wait_in_turn_for_a_place_in_the_queue() {
    many_at_once(Options { queue_size: 4, ..Options::default() });
}

#[test]
fn reads_and_writes_have_queues_of_their_own() {
    let digests = Options { header_digest: true, data_digest: true, ..Options::default() };
    many_at_once(Options { io_queues: 2, write_queues: 2, queue_size: 8, ..digests });
}

#[test]
fn a_dropped_command_leaves_its_memory_to_the_queue() {
    attached(4, Options { queue_size: 2, ..Options::default() }, |namespace| async move {
        for round in 0..50u32 {
            let mut buffer = random(&namespace, 16, round.into()).await;
            let all = u32_of(buffer.len()) / BLOCK;
            let write = namespace.write(0, all, &mut buffer, Fua::No);
            // Dropped once it is in the queue: elapsed at once, or when the timer wheel says so.
            let dropped = reactor::timeout(Duration::ZERO, write).await.is_err();
            assert_eq!(buffer.is_empty(), dropped, "round {round}");
            let mut other = namespace.buffer(16 * BLOCK as usize).await;
            other.fill(0xaa);
            namespace.read(100, 1, &mut other).await.unwrap();
            assert!(other[BLOCK as usize..].iter().all(|&byte| byte == 0xaa));
        }
    });
}

/// What a namespace whose target goes away and comes back is tested with: short waits.
pub(super) fn impatient() -> Options {
    Options {
        keep_alive: Duration::from_millis(600),
        timeout: Duration::from_millis(500),
        reconnect_delay: Duration::from_millis(50),
        ..Options::default()
    }
}

/// Writers and readers of blocks of their own, counting what they did, until told to stop.
pub(super) fn busy(
    namespace: &Namespace,
    tasks: u64,
    stop: &Rc<Cell<bool>>,
) -> (Rc<Cell<u64>>, Vec<Task<()>>) {
    let done = Rc::new(Cell::new(0));
    let tasks = (0..tasks).map(|lba| {
        let (namespace, stop, done) = (namespace.clone(), Rc::clone(stop), Rc::clone(&done));
        reactor::spawn(async move {
            let mut round = 0;
            while !stop.get() {
                round += 1;
                let mut sent = random(&namespace, 1, lba << 32 | round).await;
                namespace.write(lba, 1, &mut sent, Fua::No).await.unwrap();
                let mut received = namespace.buffer(sent.len()).await;
                namespace.read(lba, 1, &mut received).await.unwrap();
                assert!(received[..] == sent[..], "block {lba} in round {round}");
                done.set(done.get() + 1);
            }
        })
    });
    let tasks = tasks.collect();
    (done, tasks)
}

pub(super) async fn grows(count: &Cell<u64>) {
    let before = count.get();
    while count.get() < before + 100 {
        reactor::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn io_goes_on_when_the_target_comes_back() {
    let mut peer = serve(1 << 20);
    let remote = remote(&peer, impatient());
    on_reactor(async move {
        let namespace = Namespace::attach(&remote, 1).await.unwrap();
        let stop = Rc::new(Cell::new(false));
        let (done, tasks) = busy(&namespace, 32, &stop);
        for _ in 0..2 {
            grows(&done).await;
            peer.stop();
            until(&namespace, |paths| paths.iter().all(|path| path.state != PathState::Live)).await;
            peer.serve_again();
            grows(&done).await;
        }
        stop.set(true);
        for task in tasks {
            task.await.expect("a task failed");
        }
        namespace.shut_down().await.unwrap();
    });
}

#[test]
fn a_target_that_stays_away_ends_the_namespace() {
    let peer = serve(1 << 20);
    let after = Duration::from_millis(400);
    let remote = remote(&peer, Options { ctrl_loss: Some(after), ..impatient() });
    on_reactor(async move {
        let namespace = Namespace::attach(&remote, 1).await.unwrap();
        let seen = namespace.geometry();
        peer.stop();
        let mut buffer = namespace.buffer(BLOCK as usize).await;
        let error = namespace.read(0, 1, &mut buffer).await.unwrap_err();
        let told = error.to_string();
        assert!(told.contains("did not come back within 400 ms"), "{told}");
        assert!(told.contains("cannot connect"), "{told}");
        assert_eq!(buffer.len(), BLOCK as usize);
        assert!(namespace.changed(&seen).await.is_err());
        assert!(namespace.flush().await.is_err());
    });
}

#[test]
fn commands_fail_fast_while_the_target_is_away_and_work_again_after() {
    let mut peer = serve(1 << 20);
    let fast_io_fail = Some(Duration::from_millis(50));
    let remote = remote(&peer, Options { fast_io_fail, ..impatient() });
    on_reactor(async move {
        let namespace = Namespace::attach(&remote, 1).await.unwrap();
        peer.stop();
        let mut buffer = namespace.buffer(BLOCK as usize).await;
        let error = namespace.read(0, 1, &mut buffer).await.unwrap_err();
        assert!(matches!(error, Error::Away { .. }), "{error}");
        peer.serve_again();
        while let Err(error) = namespace.read(0, 1, &mut buffer).await {
            assert!(matches!(error, Error::Away { .. }), "{error}");
            reactor::sleep(Duration::from_millis(5)).await;
        }
        namespace.write(0, 1, &mut buffer, Fua::No).await.unwrap();
    });
}
