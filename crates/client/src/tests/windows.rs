//! Writes by a direct write window that is put there, beside a target that has none: what the window does not take is at
//! the target.

use std::sync::Arc;

use initiator::DirectWindow;
use initiator::testing::{Taker, grant};
use window::{Phase, RING_BYTES_MIN};

use super::{Opens, random, serve, wait_readable};
use crate::{Buffer, Command, Error, Fua, Namespace, Queue, WindowUse};

/// A namespace with a window, and what takes from that.
fn with_window(options: crate::Options) -> (Namespace, Taker) {
    let options = crate::Options { window: WindowUse::Auto, ..options };
    let namespace = Namespace::open(&options, 1).unwrap();
    let grant = grant(1, RING_BYTES_MIN);
    let (mut taker, descriptors) = Taker::new(&grant, 0, 1);
    taker.give_all();
    let window = DirectWindow::map(grant, vec![descriptors], Arc::default()).unwrap();
    assert!(namespace.window().unwrap().shared().try_put(&mut Some(window)));
    (namespace, taker)
}

/// What was taken from a ring.
fn taken(taker: &mut Taker) -> Vec<(u64, Vec<u8>)> {
    let mut seen = Vec::new();
    taker.take(|offset, data| seen.push((offset, data.to_vec()))).unwrap();
    seen
}

#[test]
fn a_target_without_windows_is_written_to_by_commands_unless_one_is_required() {
    let peer = serve();
    for used in [WindowUse::Off, WindowUse::Auto, WindowUse::Shm] {
        let options = crate::Options { window: used, ..peer.options() };
        let namespace = Namespace::open(&options, 1).unwrap();
        let (data, mut back) = (random(1, 4096), vec![0; 4096]);
        namespace.write(8, &data, Fua::No).unwrap();
        namespace.read(8, &mut back).unwrap();
        assert!(back == data);
        assert_eq!(namespace.direct_writes(), 0);
    }
    let options = crate::Options { window: WindowUse::Require, ..peer.options() };
    let none = Namespace::open(&options, 1).unwrap_err();
    assert!(matches!(none, Error::NoWindow(_)), "{none}");
    assert!(none.to_string().contains("no direct write window"), "{none}");
    assert!(none.status().is_none(), "nothing is asked of a controller that has none");
}

#[test]
fn blocking_writes_go_by_the_window_as_far_as_it_takes_them() {
    let peer = serve();
    let (namespace, mut taker) = with_window(peer.options());
    let (data, mut back) = (random(2, 128 << 10), vec![0; 128 << 10]);
    namespace.write(16, &data[..4096], Fua::No).unwrap();
    assert_eq!(taken(&mut taker), [(16 * 512, data[..4096].to_vec())]);
    // Nothing takes it to this target.
    namespace.read(16, &mut back[..4096]).unwrap();
    assert!(back[..4096].iter().all(|&byte| byte == 0));
    // Too long, and without credit: by commands.
    namespace.write(16, &data, Fua::No).unwrap();
    namespace.read(16, &mut back).unwrap();
    assert!(back == data && taken(&mut taker).is_empty());
    while namespace.direct_writes() < 4 {
        namespace.write(0, &data[..65_536], Fua::No).unwrap();
    }
    namespace.write(0, &data[512..66_048], Fua::No).unwrap();
    namespace.read(0, &mut back[..65_536]).unwrap();
    assert!(back[..65_536] == data[512..66_048], "the ring is full");
    // So is all that comes after the window's end.
    taker.set_phase(Phase::Ended);
    for n in 0..3 {
        namespace.write(n, &data[..512], Fua::Yes).unwrap();
        namespace.read(n, &mut back[..512]).unwrap();
        assert!(back[..512] == data[..512]);
    }
    assert_eq!(namespace.direct_writes(), 4);
}

fn write(queue: &mut Queue, user: u64, byte: u8) {
    let mut buffer = Buffer::new(4096);
    buffer.fill(byte);
    let command = Command::Write { lba: user, blocks: 1, buffer, fua: Fua::No };
    queue.submit(user, command).unwrap();
}

#[test]
fn a_queue_reaps_direct_writes_as_others() {
    let peer = serve();
    let (namespace, mut taker) = with_window(peer.options());
    let mut queue = namespace.queue(4).unwrap();
    write(&mut queue, 1, 1);
    write(&mut queue, 2, 2);
    let seen = taken(&mut taker);
    assert_eq!(seen, [(512, vec![1; 512]), (1024, vec![2; 512])], "the blocks, not the buffer");
    assert_eq!(queue.outstanding(), 2);
    assert!(queue.arm(), "what has ended need not be told by the descriptor");
    let mut users = Vec::new();
    let mut note = |done: crate::Completion| {
        done.result.unwrap();
        assert_eq!(done.buffer.unwrap().len(), 4096);
        users.push(done.user);
    };
    assert_eq!(queue.poll_up_to(1, &mut note), 1);
    assert_eq!(queue.wait(1, None, &mut note), 1);
    users.sort_unstable();
    assert_eq!((users, queue.outstanding()), (vec![1, 2], 0));
}

#[test]
fn a_queue_mixes_commands_and_direct_writes() {
    let peer = serve();
    let (namespace, mut taker) = with_window(peer.options());
    let mut queue = namespace.queue(4).unwrap();
    for round in 0..50 {
        queue.submit(100, Command::Read { lba: 9, blocks: 1, buffer: Buffer::new(512) }).unwrap();
        write(&mut queue, round, 7);
        if round == 25 {
            taker.set_phase(Phase::Ended);
        }
        queue.submit(101, Command::Flush).unwrap();
        if !queue.arm() {
            wait_readable(&queue);
        }
        let mut users = Vec::new();
        queue.wait(3, None, |done| {
            done.result.unwrap();
            users.push(done.user);
        });
        users.sort_unstable();
        assert_eq!(users, [round, 100, 101]);
        // Nothing is taken any more from a window that has ended.
        if round <= 25 {
            assert_eq!(taken(&mut taker).len(), 1);
        }
    }
    // Those after the window's end are at the target.
    let mut block = [0; 512];
    namespace.read(25, &mut block).unwrap();
    assert_eq!(block, [0; 512]);
    namespace.read(26, &mut block).unwrap();
    assert_eq!((block, namespace.direct_writes()), ([7; 512], 26));
}

/// A short buffer is refused as a command; the window takes nothing of it.
#[test]
fn a_buffer_that_is_too_short_is_refused_by_the_namespace() {
    let peer = serve();
    let (namespace, mut taker) = with_window(peer.options());
    let mut queue = namespace.queue(1).unwrap();
    let command = Command::Write { lba: 0, blocks: 2, buffer: Buffer::new(512), fua: Fua::No };
    queue.submit(1, command).unwrap();
    queue.wait(1, None, |done| assert!(done.result.is_err()));
    assert!(taken(&mut taker).is_empty());
}
