//! Pages in memory, counted, and a pool's places.

use engine::address::{BLOCK, Encoding, Entry, Location, SegmentId, Version, View};
use engine::map::Pages;
use engine::{Error, Kind, Result};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use stdx::Prng;
use stdx::num::{low32, u64_of, usize64};

/// Data blocks of a segment: 8 units of 4 MiB.
const SLOTS: u64 = 8192;

/// Segments of pages are numbered from here on, so that they are not those of data.
const METADATA: u32 = 1 << 30;

/// Runs a future that never waits for anything but its turn.
pub fn now<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
    }
}

/// Where data goes: the pool's places in order, round and round.
pub struct Pool {
    places: u64,
    scale: u64,
    next: u64,
}

impl Pool {
    /// `places` in the whole pool, of which one in `scale` is used.
    pub const fn new(places: u64, scale: u64) -> Self {
        Self { places, scale, next: 0 }
    }

    pub fn next(&mut self, random: &mut Prng) -> Entry {
        // Among the places the sampled block stands for, any may be its own. Blocks written one
        // after the other lie side by side, but random keys so do not.
        let place = self.next + random.below(self.scale.max(64));
        self.next = (self.next + self.scale) % (self.places - 64 * self.scale);
        let segment = SegmentId::new(low32(place / SLOTS));
        Entry {
            location: Location::new(segment, low32(place % SLOTS)),
            crc: super::any_crc(random),
        }
    }
}

/// Pages kept in memory, verified when read.
#[derive(Default)]
pub struct Counted {
    pages: RefCell<Vec<Option<Box<[u8; BLOCK]>>>>,
    pub appended: Cell<u64>,
    /// Pages read.
    pub read: Cell<u64>,
}

/// The same pages, whichever map is open on them.
pub struct Shared(pub Rc<Counted>);

impl Pages for Shared {
    async fn read(&self, first: Location, crcs: &[u32], out: &mut [u8]) -> Result<()> {
        let pages = self.0.pages.borrow();
        let begin = u64::from(first.segment().get() - METADATA) * SLOTS + u64::from(first.slot());
        for ((page, crc), out) in
            pages[usize64(begin)..].iter().zip(crcs).zip(out.chunks_exact_mut(BLOCK))
        {
            let Some(page) = page.as_ref().filter(|p| stdx::crc32c(&p[..]) == *crc) else {
                return Err(Error::new(Kind::Corrupt, format!("page at {first:?}")));
            };
            out.copy_from_slice(&page[..]);
        }
        self.0.read.set(self.0.read.get() + u64_of(crcs.len()));
        Ok(())
    }

    async fn append(&self, page: &[u8; BLOCK]) -> Result<Entry> {
        let mut pages = self.0.pages.borrow_mut();
        let n = u64_of(pages.len());
        pages.push(Some(Box::new(*page)));
        self.0.appended.set(self.0.appended.get() + 1);
        let segment = SegmentId::new(METADATA + low32(n / SLOTS));
        let location = Location::new(segment, low32(n % SLOTS));
        Ok(Entry { location, crc: stdx::crc32c(page) })
    }

    fn superseded(&self, first: Location, _: Encoding, blocks: u32) {
        let Some(segment) = first.segment().get().checked_sub(METADATA) else { return };
        let begin = usize64(u64::from(segment) * SLOTS + u64::from(first.slot()));
        for page in &mut self.0.pages.borrow_mut()[begin..begin + usize64(u64::from(blocks))] {
            *page = None;
        }
    }

    fn is_needed(&self, _: View, _: Version, _: Version) -> bool {
        false
    }

    fn seen(&self, _: View, _: &mut Vec<Version>) {}

    fn seen_changes(&self) -> u64 {
        0
    }

    fn keeps_holes(&self, _: View) -> bool {
        false
    }
}

const _: () = assert!(SLOTS < 1 << 24);
