//! What a vhost-user front end sends, and what a driver writes into a queue.

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use attach::vhost::memory::Memory;
use attach::vhost::message::{Head, Message, Region};
use attach::vhost::queue::{Chain, Progress, View, bytes_of, gather, scatter};
use attach::vhost::wire::{Header, RingAddress, feature};
use zerocopy::FromBytes;

/// What a target does with an input.
pub type Target = fn(&[u8]);

/// Every target by the name of its file in `fuzz_targets` and its folder in `corpus`.
pub const TARGETS: &[(&str, Target)] =
    &[("vhost_message", vhost_message), ("vhost_queue", vhost_queue)];

/// Bytes of the guest's memory: the queue's parts, and some data.
const GUEST: usize = 8192;
/// Where the guest and the front end see it.
const GUEST_AT: u64 = 0x10_0000;
const FRONT_END_AT: u64 = 0x7000_0000;
/// Entries of the queue.
const SIZE: u16 = 16;

/// A stream of messages without descriptors, until one is not taken.
pub fn vhost_message(mut stream: &[u8]) {
    while let Ok((header, rest)) = Header::read_from_prefix(stream) {
        let Ok(head) = Head::parse(&header) else { return };
        let Some((payload, rest)) = rest.split_at_checked(head.size) else { return };
        let Ok(message) = Message::parse(head.request, payload, Vec::new()) else { return };
        let _ = message.is_question();
        stream = rest;
    }
}

fn file() -> OwnedFd {
    let path = std::env::temp_dir().join(format!("vhost-fuzz-{}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let file = file.expect("a file of our own");
    let _ = std::fs::remove_file(path);
    file.set_len(GUEST as u64).expect("room for it");
    file.into()
}

/// The guest's memory is the input: descriptors, then the available ring, the used ring, and data.
pub fn vhost_queue(input: &[u8]) {
    let region =
        Region { guest: GUEST_AT, size: GUEST, front_end: FRONT_END_AT, offset: 0, file: file() };
    let memory = Rc::new(Memory::map(vec![region]).expect("a mapping"));
    memory.write(GUEST_AT, &input[..input.len().min(GUEST)]).expect("it is there");
    let address = RingAddress {
        index: 0.into(),
        flags: 0.into(),
        descriptors: FRONT_END_AT.into(),
        available: (FRONT_END_AT + 256).into(),
        used: (FRONT_END_AT + 512).into(),
        log: 0.into(),
    };
    let features = feature::INDIRECT | feature::EVENT_INDEX;
    let view = View::new(&memory, &address, SIZE, features).expect("a queue");
    let (progress, mut chain) = (Progress::default(), Chain::default());
    while let Ok(Some(head)) = view.take(&progress) {
        if view.chain(head, &mut chain).is_err() {
            break;
        }
        let mut bytes = [0; 16];
        let _ = gather(&memory, &chain.readable, 0, &mut bytes);
        let room = bytes_of(&chain.writable);
        let _ = scatter(&memory, &chain.writable, room.saturating_sub(1), &[0]);
        view.give_back(&progress, head, 1);
        let _ = view.wants_telling(&progress);
        // What is written may be what is read next.
        if progress.taken.get() > 4 * SIZE {
            break;
        }
    }
    let _ = view.ask_to_be_told(&progress);
}
