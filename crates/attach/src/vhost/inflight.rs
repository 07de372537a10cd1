//! What a device has taken and not given back, in memory that its front end keeps: a back end that is killed leaves
//! there what the next one has to carry out. QEMU's `docs/interop/vhost-user.rst`, "Inflight I/O tracking", split
//! virtqueues.
//!
//! A program that is killed has made the stores up to some point and none behind it: each is a release, so that the
//! compiler keeps their order.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use reactor::shared::Mapping;
use stdx::num::{u64_of, usize64};
use zerocopy::{FromZeros, IntoBytes};

use super::wire::{InflightHead, InflightRequest, InflightTable};

/// The layout's version, once a table is in use.
const VERSION: u16 = 1;

/// Bytes of a queue of `size` entries.
fn bytes_of(size: u16) -> usize {
    let requests = usize::from(size) * size_of::<InflightRequest>();
    (size_of::<InflightTable>() + requests).next_multiple_of(64)
}

/// The memory for all queues.
#[derive(Clone, Debug)]
pub struct Inflight {
    mapping: Rc<Mapping>,
    queues: u16,
    size: u16,
}

impl Inflight {
    /// New memory for so many queues of so many entries, what to tell of it, and its file.
    ///
    /// # Errors
    /// As memfd_create(2) and mmap(2).
    pub fn create(queues: u16, size: u16) -> io::Result<(InflightHead, OwnedFd)> {
        let bytes = usize::from(queues) * bytes_of(size);
        let (_, file) = Mapping::create(c"inflight", bytes)?;
        let head = InflightHead {
            bytes: u64_of(bytes).into(),
            offset: 0.into(),
            queues: queues.into(),
            size: size.into(),
        };
        Ok((head, file))
    }

    /// Memory that was made for that.
    ///
    /// # Errors
    /// As mmap(2), and when it is not as large as it has to be.
    pub fn map(head: &InflightHead, file: impl AsFd) -> io::Result<Self> {
        let (queues, size) = (head.queues.get(), head.size.get());
        let bytes = usize::from(queues) * bytes_of(size);
        if usize64(head.bytes.get()) < bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mapping = Mapping::new(file, head.offset.get(), bytes)?;
        Ok(Self { mapping: Rc::new(mapping), queues, size })
    }

    /// That of a queue, if it has one.
    #[must_use]
    pub fn queue(&self, index: usize) -> Option<Tracker> {
        let at = index * bytes_of(self.size);
        let mapping = Rc::clone(&self.mapping);
        let tracker = || Tracker { mapping, at, size: self.size, counter: Cell::new(0) };
        (index < usize::from(self.queues)).then(tracker)
    }
}

/// What of one queue is in flight.
#[derive(Debug)]
pub struct Tracker {
    mapping: Rc<Mapping>,
    at: usize,
    size: u16,
    /// Orders what was taken.
    counter: Cell<u64>,
}

impl Tracker {
    fn request(&self, head: u16) -> Option<usize> {
        let at = self.at + size_of::<InflightTable>();
        let place = at + usize::from(head) * size_of::<InflightRequest>();
        (head < self.size).then_some(place)
    }

    fn load(&self, at: usize) -> u16 {
        self.mapping.load(at, Ordering::Acquire)
    }

    fn store(&self, at: usize, value: u16) {
        self.mapping.store(at, value, Ordering::Release);
    }

    /// A chain is taken, and not begun.
    pub fn taken(&self, head: u16) {
        let Some(at) = self.request(head) else { return };
        self.counter.set(self.counter.get() + 1);
        self.mapping.write(at + InflightRequest::COUNTER, self.counter.get().as_bytes());
        self.store(at, 1);
    }

    /// A chain is about to be given back.
    pub fn ending(&self, head: u16) {
        let Some(at) = self.request(head) else { return };
        let last = self.load(self.at + InflightTable::LAST);
        self.store(at + InflightRequest::NEXT, last);
        self.store(self.at + InflightTable::LAST, head);
    }

    /// It was given back: the used ring's index is `used`.
    pub fn ended(&self, head: u16, used: u16) {
        if let Some(at) = self.request(head) {
            self.store(at, 0);
        }
        self.store(self.at + InflightTable::USED, used);
    }

    /// The chains that a back end before this one took and did not give back, in the order in which it took them; the
    /// used ring's index is `used`. A front end may have written anything: none is beyond the table, and none comes twice.
    pub fn left(&self, used: u16) -> Vec<u16> {
        self.store(self.at + InflightTable::VERSION, VERSION);
        self.store(self.at + InflightTable::COUNT, self.size);
        if self.load(self.at + InflightTable::USED) != used {
            // It was killed between giving the last one back and saying so here.
            self.ended(self.load(self.at + InflightTable::LAST), used);
        }
        let mut left: Vec<(u64, u16)> = Vec::new();
        for head in 0..self.size {
            let mut request = InflightRequest::new_zeroed();
            if let Some(at) = self.request(head) {
                self.mapping.read(at, request.as_mut_bytes());
            }
            if request.taken == 1 {
                left.push((request.counter.get(), head));
            }
        }
        left.sort_unstable();
        self.counter.set(left.last().map_or(0, |&(counter, _)| counter));
        left.into_iter().map(|(_, head)| head).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> (Inflight, InflightHead, OwnedFd) {
        let (head, file) = Inflight::create(2, 8).unwrap();
        (Inflight::map(&head, &file).unwrap(), head, file)
    }

    #[test]
    fn what_was_not_given_back_is_left_to_the_next() {
        let (first, head, file) = made();
        let tracker = first.queue(1).unwrap();
        assert_eq!(tracker.left(0), []);
        for chain in [5, 2, 7, 0] {
            tracker.taken(chain);
        }
        tracker.ending(2);
        tracker.ended(2, 1);
        drop((tracker, first));
        let second = Inflight::map(&head, &file).unwrap();
        assert_eq!(second.queue(1).unwrap().left(1), [5, 7, 0]);
        assert_eq!(second.queue(0).unwrap().left(0), []);
        assert!(second.queue(2).is_none());
    }

    #[test]
    fn one_that_was_given_back_when_it_was_killed_is_not_left() {
        let (first, ..) = made();
        let tracker = first.queue(0).unwrap();
        for chain in [3, 4] {
            tracker.taken(chain);
        }
        // Not given back yet: the used ring's index is the old one.
        tracker.ending(3);
        assert_eq!(first.queue(0).unwrap().left(0), [3, 4]);
        // Given back, and not noted.
        assert_eq!(first.queue(0).unwrap().left(1), [4]);
    }

    #[test]
    fn memory_that_is_too_short_is_refused() {
        let (_, head, file) = made();
        let longer = InflightHead { queues: 3.into(), ..head };
        assert!(Inflight::map(&longer, &file).is_err(), "more queues than it has bytes for");
        let longer = InflightHead { bytes: 4096.into(), ..longer };
        assert!(Inflight::map(&longer, &file).is_err(), "a shorter file");
        // Chains that no table has are nobody's.
        let tracker = Inflight::map(&head, &file).unwrap().queue(0).unwrap();
        tracker.taken(8);
        tracker.ending(u16::MAX);
        tracker.ended(u16::MAX, 1);
        assert_eq!(tracker.left(1), []);
    }
}
