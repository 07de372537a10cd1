//! Threads without a reactor against the real target over loopback.

use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use nvme::status::Status;
use stdx::prng::Prng;
use target::testing::Peer;

use crate::{Buffer, Command, Deallocate, Error, Fua, Namespace, Options};

mod windows;

const SUBNQN: &str = "nqn.2026-11.io.flashloom:client";
const BLOCK: u32 = 512;
const BLOCKS: u64 = 64 * 1024;

fn serve() -> Peer {
    Peer::start(SUBNQN, BLOCKS * u64::from(BLOCK), BLOCK)
}

/// How to open a target's namespace.
trait Opens {
    fn options(&self) -> Options;
    fn open(&self) -> Namespace;
}

impl Opens for Peer {
    fn options(&self) -> Options {
        let mut options = Options::default();
        for (name, value) in [
            ("trsvcid", self.port.to_string().as_str()),
            ("subnqn", SUBNQN),
            ("poll", "interrupt"),
            ("reconnect-delay", "10ms"),
            ("keep-alive-tmo", "1s"),
        ] {
            options.set(name, value).unwrap();
        }
        options
    }

    fn open(&self) -> Namespace {
        Namespace::open(&self.options(), 1).unwrap()
    }
}

fn random(seed: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    Prng::new(seed).fill(&mut data);
    data
}

#[test]
fn every_blocking_command_does_what_it_says() {
    let peer = serve();
    let namespace = peer.open();
    let geometry = namespace.geometry();
    assert_eq!((geometry.block_bytes, geometry.blocks), (BLOCK, BLOCKS));
    // More than a transfer, so that it is cut.
    let bytes = 3 * usize::try_from(geometry.transfer_max_bytes).unwrap() + 512;
    let data = random(1, bytes);
    namespace.write(7, &data, Fua::Yes).unwrap();
    namespace.flush().unwrap();
    let mut back = vec![0; bytes];
    namespace.read(7, &mut back).unwrap();
    assert!(back == data);
    namespace.compare(7, &data).unwrap();
    namespace.verify(0, BLOCKS).unwrap();
    let differs = namespace.compare(6, &data).unwrap_err();
    assert!(differs.status().unwrap().is(Status::COMPARE_FAILURE), "{differs}");
    namespace.copy(&[(7, 4), (20, 4)], 40_000).unwrap();
    let mut copied = vec![0; 8 * 512];
    namespace.read(40_000, &mut copied).unwrap();
    assert!(copied[..2048] == data[..2048] && copied[2048..] == data[13 * 512..17 * 512]);
    namespace.write_zeroes(7, 2, Deallocate::Yes, Fua::No).unwrap();
    let ranges: Vec<_> = (0..300).map(|n| (9 + n, 1)).collect();
    namespace.deallocate(&ranges).unwrap();
    namespace.read(7, &mut copied).unwrap();
    assert!(copied.iter().all(|&byte| byte == 0));
}

#[test]
fn what_cannot_be_is_refused_with_words() {
    let peer = serve();
    let namespace = peer.open();
    let odd = namespace.read(0, &mut [0; 100]).unwrap_err();
    assert!(odd.to_string().contains("whole blocks"), "{odd}");
    let beyond = namespace.read(BLOCKS, &mut [0; 512]).unwrap_err();
    assert!(matches!(beyond, Error::Host(_)), "{beyond}");
    assert!(namespace.verify(u64::MAX, 2).is_err());
    assert!(namespace.queue(0).is_err());
    let nobody = Namespace::open(&peer.options(), 9).unwrap_err();
    assert!(nobody.to_string().contains("not active"), "{nobody}");
    let mut options = peer.options();
    options.set("subnqn", "nqn.2026-11.io.flashloom:none").unwrap();
    assert!(Namespace::open(&options, 1).unwrap_err().status().is_some());
}

#[test]
fn the_discovery_log_is_read() {
    let peer = serve();
    let mut options = peer.options();
    options.set("subnqn", "").unwrap();
    let log = options.discover().unwrap();
    assert!(log.entries.iter().any(|entry| entry.subnqn() == SUBNQN));
}

#[test]
fn many_threads_share_a_namespace() {
    let peer = serve();
    let namespace = peer.open();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let namespace = namespace.clone();
            scope.spawn(move || {
                let mut back = vec![0; 4096];
                for round in 0..50 {
                    let data = random(thread << 32 | round, 4096);
                    namespace.write(thread * 8, &data, Fua::No).unwrap();
                    namespace.read(thread * 8, &mut back).unwrap();
                    assert!(back == data);
                }
            });
        }
    });
}

/// Keeps `depth` random reads and writes in flight, and checks each read against what was written last.
fn exercise(namespace: &Namespace, depth: u16, count: u64) {
    let mut queue = namespace.queue(depth).unwrap();
    let mut prng = Prng::new(u64::from(depth));
    // Each slot has a block of its own, whose number of writes its content tells.
    let mut written = vec![0u64; usize::from(depth)];
    let mut buffers: Vec<_> = (0..u64::from(depth)).map(|at| (at, Buffer::new(512))).collect();
    let (mut started, mut ended) = (0, 0);
    while ended < count {
        while started < count
            && let Some((at, mut buffer)) = buffers.pop()
        {
            let index = usize::try_from(at).unwrap();
            let command = if prng.below(2) == 0 || written[index] == 0 {
                written[index] += 1;
                buffer[..8].copy_from_slice(&written[index].to_le_bytes());
                Command::Write { lba: at, blocks: 1, buffer, fua: Fua::No }
            } else {
                buffer[..8].fill(0);
                Command::Read { lba: at, blocks: 1, buffer }
            };
            queue.submit(at, command).unwrap();
            started += 1;
        }
        let done = |done: crate::Completion| {
            done.result.unwrap();
            let (at, buffer) = (done.user, done.buffer.unwrap());
            let content = u64::from_le_bytes(buffer[..8].try_into().unwrap());
            assert_eq!(content, written[usize::try_from(at).unwrap()]);
            buffers.push((at, buffer));
        };
        ended += match prng.below(3) {
            0 => queue.poll(done),
            1 => queue.wait(1, None, done),
            _ => queue.wait(usize::from(depth) / 2, Some(Duration::from_micros(300)), done),
        } as u64;
    }
    assert_eq!(queue.outstanding(), 0);
}

#[test]
fn a_queue_loses_nothing_at_any_depth() {
    let peer = serve();
    let namespace = peer.open();
    for depth in [1, 2, 7, 64] {
        exercise(&namespace, depth, 3000);
    }
    let mut options = peer.options();
    options.set("poll", "adaptive").unwrap();
    options.set("nr-io-queues", "2").unwrap();
    options.set("data-digest", "on").unwrap();
    exercise(&Namespace::open(&options, 1).unwrap(), 16, 3000);
}

#[test]
fn a_full_queue_says_so_and_one_that_is_dropped_waits() {
    let peer = serve();
    let namespace = peer.open();
    let mut queue = namespace.queue(2).unwrap();
    queue.submit(1, Command::Flush).unwrap();
    queue.submit(2, Command::Flush).unwrap();
    assert!(matches!(queue.submit(3, Command::Flush), Err(Error::Full)));
    assert_eq!(queue.outstanding(), 2);
    drop(queue);
    namespace.flush().unwrap();
}

#[test]
fn an_event_loop_is_told() {
    let peer = serve();
    let namespace = peer.open();
    let mut queue = namespace.queue(4).unwrap();
    for user in 0..100 {
        let buffer = Buffer::new(512);
        queue.submit(user, Command::Read { lba: user, blocks: 1, buffer }).unwrap();
        let mut seen = 0;
        while seen == 0 {
            if !queue.arm() {
                wait_readable(&queue);
            }
            seen = queue.poll(|done| assert_eq!(done.user, user));
        }
    }
}

/// Waits until the queue's descriptor is readable.
fn wait_readable(queue: &crate::Queue) {
    let mut file = std::fs::File::from(queue.as_fd().try_clone_to_owned().unwrap());
    // It does not block: a read succeeds once it is readable.
    while let Err(error) = file.read(&mut [0; 8]) {
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        std::thread::yield_now();
    }
}

/// Five attempts at what the target says takes seconds were over in milliseconds.
#[test]
fn the_target_is_asked_to_say_when_to_try_again() {
    let peer = serve();
    let _namespace = peer.open();
    assert_eq!(peer.delay_retries(), [true]);
}

#[test]
fn commands_wait_for_a_target_that_comes_back() {
    let mut peer = serve();
    let mut options = peer.options();
    options.set("fencing", "trusted").unwrap();
    let namespace = Namespace::open(&options, 1).unwrap();
    let data = random(5, 8192);
    namespace.write(0, &data, Fua::No).unwrap();
    peer.stop();
    let reader = std::thread::spawn({
        let namespace = namespace.clone();
        move || {
            let mut back = vec![0; 8192];
            namespace.read(0, &mut back).map(|()| back)
        }
    });
    peer.serve_again();
    assert!(reader.join().unwrap().unwrap() == data);
}

#[test]
fn the_end_of_the_association_ends_what_waits() {
    let peer = serve();
    let namespace = peer.open();
    let mut queue = namespace.queue(4).unwrap();
    peer.stop();
    let buffer = Buffer::new(512);
    queue.submit(1, Command::Read { lba: 0, blocks: 1, buffer }).unwrap();
    queue.commit();
    // The target is away; nothing can be told to it.
    let _ = namespace.shut_down();
    let mut results = Vec::new();
    queue.wait(1, None, |done| results.push(done.result));
    assert!(matches!(results[..], [Err(Error::Host(_))]), "{results:?}");
    assert!(namespace.flush().is_err());
}
