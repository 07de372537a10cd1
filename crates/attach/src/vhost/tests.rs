//! A front end and a driver that break the rules: nothing they say is believed.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use reactor::shared::Mapping;
use zerocopy::IntoBytes;

use super::block::{Order, Request};
use super::memory::{Memory, NotMemory};
use super::message::{Broken, Head, Message, Region};
use super::queue::{Chain, Corrupt, Progress, Segment, View, bytes_of, gather, scatter};
use super::wire::*;

const GUEST: u64 = 0x10_0000;
const FRONT_END: u64 = 0x7f00_0000;
const BYTES: usize = 64 * 1024;
const SIZE: u16 = 8;
const AVAILABLE: usize = 4096;
const USED: usize = 8192;
const DATA: u64 = GUEST + 16384;

/// A guest's memory with a queue in it, and the driver's view of it.
struct Guest {
    own: Mapping,
    memory: Rc<Memory>,
}

fn region(guest: u64, file: OwnedFd) -> Region {
    Region { guest, size: BYTES, front_end: FRONT_END, offset: 0, file }
}

impl Guest {
    fn new() -> Self {
        let (own, file) = Mapping::create(c"guest", BYTES).unwrap();
        let memory = Rc::new(Memory::map(vec![region(GUEST, file)]).unwrap());
        Self { own, memory }
    }

    fn view(&self, features: u64) -> View {
        let at = |at: usize| (FRONT_END + at as u64).into();
        let (descriptors, available, used) = (at(0), at(AVAILABLE), at(USED));
        let address = RingAddress {
            index: 0.into(),
            flags: 0.into(),
            descriptors,
            used,
            available,
            log: 0.into(),
        };
        View::new(&self.memory, &address, SIZE, features).unwrap()
    }

    fn describe(
        &self,
        at: usize,
        index: u16,
        (address, length, flags, next): (u64, u32, u16, u16),
    ) {
        let entry = Descriptor {
            address: address.into(),
            length: length.into(),
            flags: flags.into(),
            next: next.into(),
        };
        self.own.write(at + usize::from(index) * 16, entry.as_bytes());
    }

    fn offer(&self, position: u16, head: u16) {
        let slot = AVAILABLE + 4 + 2 * usize::from(position % SIZE);
        self.own.store(slot, head, Ordering::Relaxed);
        self.own.store(AVAILABLE + 2, position.wrapping_add(1), Ordering::Release);
    }
}

#[test]
fn a_chain_is_taken_and_given_back() {
    let guest = Guest::new();
    let view = guest.view(feature::INDIRECT);
    let progress = Progress::default();
    assert_eq!(view.take(&progress), Ok(None));
    guest.describe(0, 3, (DATA, 16, descriptor::NEXT, 5));
    guest.describe(0, 5, (DATA + 512, 100, descriptor::WRITE | descriptor::NEXT, 6));
    guest.describe(0, 6, (DATA + 1024, 1, descriptor::WRITE, 0));
    guest.offer(0, 3);
    let head = view.take(&progress).unwrap().unwrap();
    let mut chain = Chain::default();
    view.chain(head, &mut chain).unwrap();
    assert_eq!(chain.readable, [Segment { address: DATA, bytes: 16 }]);
    assert_eq!(bytes_of(&chain.writable), 101);
    scatter(&guest.memory, &chain.writable, 98, &[1, 2, 3]).unwrap();
    let mut seen = [0; 3];
    gather(&guest.memory, &chain.writable, 98, &mut seen).unwrap();
    assert_eq!(seen, [1, 2, 3]);
    assert!(gather(&guest.memory, &chain.writable, 99, &mut seen).is_err());
    view.give_back(&progress, head, 101);
    assert_eq!(guest.own.load(USED + 2, Ordering::Acquire), 1);
    assert!(view.wants_telling(&progress));
    assert!(!view.wants_telling(&progress), "it was told");
}

/// Such a driver never flushes: what it had written was in a volatile cache when it was told.
#[test]
fn a_driver_that_knows_no_flushes_has_its_writes_durable() {
    let guest = Guest::new();
    assert!(guest.view(feature::INDIRECT).write_through);
    assert!(!guest.view(feature::FLUSH).write_through);
}

#[test]
fn drivers_that_break_the_rules_stop_their_queue() {
    let guest = Guest::new();
    let view = guest.view(feature::INDIRECT);
    let mut chain = Chain::default();
    let mut refused = |index, entry: (u64, u32, u16, u16)| {
        guest.describe(0, index, entry);
        view.chain(index, &mut chain).unwrap_err()
    };
    assert_eq!(refused(0, (DATA, 1, descriptor::NEXT, 0)), Corrupt::Endless);
    assert_eq!(refused(0, (DATA, 1, descriptor::NEXT, SIZE)), Corrupt::Index(SIZE));
    let table = |bytes, flags| (DATA, bytes, descriptor::INDIRECT | flags, 1);
    assert_eq!(refused(1, table(17, 0)), Corrupt::Indirect);
    assert_eq!(refused(1, table(0, 0)), Corrupt::Indirect);
    assert_eq!(refused(1, table(!15, 0)), Corrupt::Indirect);
    assert_eq!(refused(1, table(16, descriptor::NEXT)), Corrupt::Indirect);
    let table = (16384, DATA);
    guest.describe(table.0, 0, (DATA, 16, descriptor::INDIRECT, 0));
    assert_eq!(refused(1, (table.1, 16, descriptor::INDIRECT, 0)), Corrupt::Indirect);
    guest.describe(table.0, 0, (DATA, 1, descriptor::NEXT, 1));
    guest.describe(table.0, 1, (DATA, 1, descriptor::NEXT, 0));
    assert_eq!(refused(1, (table.1, 32, descriptor::INDIRECT, 0)), Corrupt::Endless);
    let nowhere = (u64::MAX - 4, 32, descriptor::INDIRECT, 0);
    assert!(matches!(refused(1, nowhere), Corrupt::Indirect | Corrupt::Memory(_)));
    assert!(matches!(guest.view(0).chain(1, &mut chain), Err(Corrupt::Indirect)), "not offered");
    guest.describe(0, 0, (DATA, 1, descriptor::WRITE | descriptor::NEXT, 1));
    guest.describe(0, 1, (DATA, 1, 0, 0));
    assert_eq!(view.chain(0, &mut chain), Err(Corrupt::Order));
    guest.own.store(AVAILABLE + 2, SIZE + 1, Ordering::Release);
    assert_eq!(view.take(&Progress::default()), Err(Corrupt::TooMany(SIZE + 1)));
}

#[test]
fn no_byte_beyond_the_guest_is_touched() {
    let guest = Guest::new();
    let end = GUEST + BYTES as u64;
    let mut byte = [0];
    assert_eq!(guest.memory.read(end, &mut byte), Err(NotMemory(end)));
    assert_eq!(guest.memory.read(GUEST - 1, &mut byte), Err(NotMemory(GUEST - 1)));
    assert!(guest.memory.write(u64::MAX, &[0; 2]).is_err());
    assert!(guest.memory.write(end - 1, &[0; 2]).is_err());
    assert!(guest.memory.of_front_end(FRONT_END + BYTES as u64 - 1, 2).is_err());
    assert!(guest.memory.of_front_end(FRONT_END, usize::MAX).is_err());
    // A file that is shorter than its region is not mapped.
    let (_, file) = Mapping::create(c"short", BYTES - 4096).unwrap();
    assert!(Memory::map(vec![region(GUEST, file)]).is_err());
}

#[test]
fn a_driver_is_told_when_it_wants_to_be() {
    let guest = Guest::new();
    let view = guest.view(feature::EVENT_INDEX);
    let progress = Progress::default();
    let wanted_at = AVAILABLE + 4 + 2 * usize::from(SIZE);
    guest.own.store(wanted_at, 1, Ordering::Release);
    view.give_back(&progress, 0, 0);
    assert!(!view.wants_telling(&progress), "only of the second");
    view.give_back(&progress, 1, 0);
    assert!(view.wants_telling(&progress));
    guest.offer(0, 0);
    assert!(view.ask_to_be_told(&progress), "there is one already");
    let plain = guest.view(0);
    plain.look_by_itself();
    assert_eq!(guest.own.load(USED, Ordering::Acquire), 1);
    plain.ask_to_be_told(&progress);
    assert_eq!(guest.own.load(USED, Ordering::Acquire), 0);
    guest.own.store(AVAILABLE, 1, Ordering::Release);
    plain.give_back(&progress, 2, 0);
    assert!(!plain.wants_telling(&progress));
}

fn header(request: u32, flags: u32, size: u32) -> Header {
    Header { request: request.into(), flags: flags.into(), size: size.into() }
}

#[test]
fn front_ends_that_break_the_protocol_are_closed() {
    let refused = |header: &Header| Head::parse(header).unwrap_err();
    assert!(matches!(refused(&header(1, 2, 0)), Broken::Flags { .. }));
    assert!(matches!(refused(&header(1, 1 | flag::REPLY, 0)), Broken::Flags { .. }));
    assert!(matches!(refused(&header(5, 1, 1 << 20)), Broken::TooLong { .. }));
    let parse = |number, payload: &[u8]| Message::parse(number, payload, Vec::new()).unwrap_err();
    let ring = |index: u32, number: u32| [index.to_le_bytes(), number.to_le_bytes()].concat();
    assert_eq!(parse(99, &[]), Broken::Unknown(99));
    for number in [0, 3, 1 << 16] {
        let size = parse(request::SET_VRING_NUM, &ring(0, number));
        assert_eq!(size, Broken::Malformed(request::SET_VRING_NUM), "{number} entries");
    }
    assert!(matches!(parse(request::SET_VRING_ENABLE, &ring(64, 1)), Broken::Malformed(_)));
    assert!(matches!(parse(request::SET_VRING_BASE, &[0; 7]), Broken::Malformed(_)));
    // A kick that has no descriptor, and does not say so; regions without files.
    assert!(matches!(parse(request::SET_VRING_KICK, &[0; 8]), Broken::Descriptors(_)));
    let mut table = ring(1, 0);
    table.extend([0; 32]);
    assert!(matches!(parse(request::SET_MEM_TABLE, &table), Broken::Descriptors(_)));
    table[0] = 200;
    assert!(matches!(parse(request::SET_MEM_TABLE, &table), Broken::Malformed(_)));
    let config = [&250u32.to_le_bytes()[..], &7u32.to_le_bytes(), &[0; 11]].concat();
    assert!(matches!(parse(request::GET_CONFIG, &config), Broken::Malformed(_)));
    let file = || std::fs::File::open("/dev/null").unwrap().into();
    let message = Message::parse(request::GET_FEATURES, &[], vec![file()]);
    assert!(matches!(message, Err(Broken::Descriptors(_))), "a descriptor nobody asked for");
}

proptest! {
    #[test]
    fn whatever_a_driver_writes_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..512), heads in proptest::collection::vec(0u16..SIZE + 2, 0..8)) {
        let guest = Guest::new();
        let view = guest.view(feature::INDIRECT | feature::EVENT_INDEX);
        guest.own.write(0, &bytes[..bytes.len().min(128)]);
        guest.own.write(16384, &bytes);
        let (progress, mut chain) = (Progress::default(), Chain::default());
        for (position, head) in (0u16..).zip(&heads) {
            guest.offer(position, *head);
            if let Ok(Some(head)) = view.take(&progress) && view.chain(head, &mut chain).is_ok() {
                let count = chain.readable.len() + chain.writable.len();
                prop_assert!(count <= usize::from(crate::limits::RING_MAX));
                view.give_back(&progress, head, 0);
            }
        }
    }
}

#[test]
fn requests_beyond_the_device_or_its_rights_are_refused() {
    let mut device = super::block::Device::test(1 << 20, 4096);
    let head = |kind: u32, sector: u64| RequestHead {
        kind: kind.into(),
        reserved: 0.into(),
        sector: sector.into(),
    };
    let read = |sector, room| Request::parse(&device, &head(kind::IN, sector), 0, room);
    assert!(matches!(read(2047, 512), Ok(Request::Read(_))));
    assert_eq!(read(2047, 1024), Err(Status::Error));
    assert_eq!(read(u64::MAX, 512), Err(Status::Error));
    assert_eq!(read(0, 511), Err(Status::Error));
    let order = |kind, out| Request::parse(&device, &head(kind, 0), out, 0);
    assert_eq!(order(kind::DISCARD, 32), Ok(Request::Ranges(Order::Discard, 2)));
    assert_eq!(order(kind::DISCARD, 0), Err(Status::Error));
    assert_eq!(order(kind::WRITE_ZEROES, 17), Err(Status::Error));
    assert_eq!(order(kind::DISCARD, 1 << 20), Err(Status::Error), "too many ranges");
    assert_eq!(order(77, 0), Err(Status::Unsupported));
    let range = |sector: u64, sectors: u32, flags: u32| RangeHead {
        sector: sector.into(),
        sectors: sectors.into(),
        flags: flags.into(),
    };
    assert!(device.range(&range(0, 2048, 0), Order::Discard).is_ok());
    assert_eq!(device.range(&range(1, 2048, 0), Order::Discard), Err(Status::Error));
    assert_eq!(device.range(&range(0, 1, 1), Order::Discard), Err(Status::Unsupported));
    assert!(device.range(&range(0, 8, 1), Order::Zeroes).is_ok_and(|(_, unmap)| unmap));
    device.read_only = true;
    assert_eq!(Request::parse(&device, &head(kind::OUT, 0), 512, 0), Err(Status::Error));
    assert_eq!(device.features() & (feature::DISCARD | feature::READ_ONLY), feature::READ_ONLY);
}
