//! A split virtqueue (section 2.7): what the driver made available is taken, what was done is given back. The
//! driver may write anything anywhere at any moment: every value is read once and checked.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};

use stdx::num::{usize32, usize64};
use zerocopy::{FromZeros, IntoBytes};

use super::memory::{Area, Memory, NotMemory};
use super::wire::{Descriptor, RingAddress, Used, descriptor, feature};
use crate::limits::RING_MAX;

/// Of a used ring's flags: the driver need not tell when it makes something available.
const NO_NOTIFY: u16 = 1;
/// Of an available ring's flags: the device need not tell when it has used something.
const NO_INTERRUPT: u16 = 1;

/// The driver broke the rules of the queue: nothing in it means anything any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// More than fits was made available.
    #[error("{0} descriptor chains were made available at once")]
    TooMany(u16),
    /// A descriptor that the table does not have.
    #[error("descriptor {0} is not in its table")]
    Index(u16),
    /// A chain that goes in circles, or on for too long.
    #[error("a descriptor chain is too long")]
    Endless,
    /// An indirect table that is none, or where none may be.
    #[error("an indirect descriptor is malformed")]
    Indirect,
    /// What the device reads has to come before what it writes.
    #[error("a readable descriptor follows a writable one")]
    Order,
    /// A table that is not in memory.
    #[error(transparent)]
    Memory(#[from] NotMemory),
    /// The parts of a queue have to be aligned (section 2.7).
    #[error("a part of the queue is not aligned")]
    Alignment,
}

/// Some of the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub address: u64,
    pub bytes: u32,
}

/// Memory of one request: read first, then written.
#[derive(Debug, Default)]
pub struct Chain {
    pub readable: Vec<Segment>,
    pub writable: Vec<Segment>,
}

impl Chain {
    fn clear(&mut self) {
        self.readable.clear();
        self.writable.clear();
    }

    fn take(&mut self, entry: &Descriptor) -> Result<(), Corrupt> {
        let segment = Segment { address: entry.address.get(), bytes: entry.length.get() };
        if entry.flags.get() & descriptor::WRITE != 0 {
            self.writable.push(segment);
        } else if self.writable.is_empty() {
            self.readable.push(segment);
        } else {
            return Err(Corrupt::Order);
        }
        Ok(())
    }
}

/// How far a queue has come: outlasts its views.
#[derive(Debug, Default)]
pub struct Progress {
    /// Taken from the available ring.
    pub taken: Cell<u16>,
    /// Put into the used ring.
    pub used: Cell<u16>,
    /// Of these, the driver was told, or did not want to be.
    pub told: Cell<u16>,
}

/// A queue in the guest's memory.
#[derive(Debug)]
pub struct View {
    pub memory: Rc<Memory>,
    size: u16,
    descriptors: Area,
    available: Area,
    used: Area,
    event_index: bool,
    indirect: bool,
    /// The driver knows no flushes: a write that has ended is durable (section 5.2.5).
    pub write_through: bool,
}

impl View {
    /// Finds a queue of `size` entries (a power of two), used with `features`.
    ///
    /// # Errors
    /// [`Corrupt`] when its parts are not in memory, or not aligned.
    pub fn new(
        memory: &Rc<Memory>,
        address: &RingAddress,
        size: u16,
        features: u64,
    ) -> Result<Self, Corrupt> {
        let entries = usize::from(size);
        let find = |address: u64, bytes: usize, align: usize| {
            let area = memory.of_front_end(address, bytes)?;
            if area.at.is_multiple_of(align) { Ok(area) } else { Err(Corrupt::Alignment) }
        };
        Ok(Self {
            memory: Rc::clone(memory),
            size,
            descriptors: find(address.descriptors.get(), entries * size_of::<Descriptor>(), 16)?,
            available: find(address.available.get(), 4 + 2 * entries + 2, 2)?,
            used: find(address.used.get(), 4 + entries * size_of::<Used>() + 2, 4)?,
            event_index: features & feature::EVENT_INDEX != 0,
            indirect: features & feature::INDIRECT != 0,
            write_through: features & feature::FLUSH == 0,
        })
    }

    /// The used ring's index.
    pub fn used(&self) -> u16 {
        self.used.mapping.load(self.used.at + 2, Ordering::Acquire)
    }

    fn slot(&self, at: u16) -> usize {
        usize::from(at & (self.size - 1))
    }

    /// The next chain's head, if there is one.
    ///
    /// # Errors
    /// [`Corrupt`].
    pub fn take(&self, progress: &Progress) -> Result<Option<u16>, Corrupt> {
        let taken = progress.taken.get();
        let there = self.waiting(taken);
        if there > self.size {
            return Err(Corrupt::TooMany(there));
        }
        if there == 0 {
            return Ok(None);
        }
        let at = self.available.at + 4 + 2 * self.slot(taken);
        let head = self.available.mapping.load(at, Ordering::Relaxed);
        progress.taken.set(taken.wrapping_add(1));
        Ok(Some(head))
    }

    /// Chains made available and not taken.
    fn waiting(&self, taken: u16) -> u16 {
        let index = self.available.mapping.load(self.available.at + 2, Ordering::Acquire);
        index.wrapping_sub(taken)
    }

    /// Reads the chain that begins at `head`.
    ///
    /// # Errors
    /// [`Corrupt`].
    pub fn chain(&self, head: u16, chain: &mut Chain) -> Result<(), Corrupt> {
        chain.clear();
        let mut next = Some(head);
        // A chain that has more entries than the table goes in circles.
        for _ in 0..self.size {
            let Some(at) = next else { return Ok(()) };
            if at >= self.size {
                return Err(Corrupt::Index(at));
            }
            let mut entry = Descriptor::new_zeroed();
            let place = self.descriptors.at + usize::from(at) * size_of::<Descriptor>();
            self.descriptors.mapping.read(place, entry.as_mut_bytes());
            let flags = entry.flags.get();
            let more = flags & descriptor::NEXT != 0;
            if flags & descriptor::INDIRECT != 0 {
                if more || !self.indirect {
                    return Err(Corrupt::Indirect);
                }
                return self.indirect(&entry, chain);
            }
            chain.take(&entry)?;
            next = more.then(|| entry.next.get());
        }
        if next.is_none() { Ok(()) } else { Err(Corrupt::Endless) }
    }

    /// Reads a chain from a table of its own (section 2.7.5.3).
    fn indirect(&self, table: &Descriptor, chain: &mut Chain) -> Result<(), Corrupt> {
        let bytes = usize32(table.length.get());
        let entries = bytes / size_of::<Descriptor>();
        if !bytes.is_multiple_of(size_of::<Descriptor>())
            || !(1..=usize::from(RING_MAX)).contains(&entries)
        {
            return Err(Corrupt::Indirect);
        }
        let mut at = 0;
        for _ in 0..entries {
            if usize::from(at) >= entries {
                return Err(Corrupt::Index(at));
            }
            let mut entry = Descriptor::new_zeroed();
            let offset = u64::from(at) * 16;
            let address = table.address.get().checked_add(offset).ok_or(Corrupt::Indirect)?;
            self.memory.read(address, entry.as_mut_bytes())?;
            if entry.flags.get() & descriptor::INDIRECT != 0 {
                return Err(Corrupt::Indirect);
            }
            chain.take(&entry)?;
            if entry.flags.get() & descriptor::NEXT == 0 {
                return Ok(());
            }
            at = entry.next.get();
        }
        Err(Corrupt::Endless)
    }

    /// Gives a chain back, with the number of bytes that were written to it.
    pub fn give_back(&self, progress: &Progress, head: u16, length: u32) {
        let used = progress.used.get();
        let entry = Used { head: u32::from(head).into(), length: length.into() };
        let at = self.used.at + 4 + self.slot(used) * size_of::<Used>();
        self.used.mapping.write(at, entry.as_bytes());
        progress.used.set(used.wrapping_add(1));
        self.used.mapping.store(self.used.at + 2, used.wrapping_add(1), Ordering::Release);
    }

    /// Whether the driver wants to be told of what was given back since it was last told (section 2.7.7.2).
    /// It counts as told.
    pub fn wants_telling(&self, progress: &Progress) -> bool {
        let (new, old) = (progress.used.get(), progress.told.get());
        if new == old {
            return false;
        }
        progress.told.set(new);
        // What was given back is seen before it is asked whether the driver still looks.
        fence(Ordering::SeqCst);
        if self.event_index {
            let wanted_at = self.available.at + 4 + 2 * usize::from(self.size);
            let wanted = self.available.mapping.load(wanted_at, Ordering::Relaxed);
            new.wrapping_sub(wanted).wrapping_sub(1) < new.wrapping_sub(old)
        } else {
            let flags = self.available.mapping.load(self.available.at, Ordering::Relaxed);
            flags & NO_INTERRUPT == 0
        }
    }

    /// Has the driver not tell of what it makes available.
    pub fn look_by_itself(&self) {
        // With an event index it tells once for the index it was given, which is past by now.
        if !self.event_index {
            self.used.mapping.store(self.used.at, NO_NOTIFY, Ordering::Relaxed);
        }
    }

    /// Has the driver tell of the next chain. True when there is one already, of which it may not tell.
    pub fn ask_to_be_told(&self, progress: &Progress) -> bool {
        let taken = progress.taken.get();
        if self.event_index {
            let at = self.used.at + 4 + usize::from(self.size) * size_of::<Used>();
            self.used.mapping.store(at, taken, Ordering::Relaxed);
        } else {
            self.used.mapping.store(self.used.at, 0, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        self.waiting(taken) > 0
    }
}

/// What `segments` have from byte `skip` on, as addresses and bytes.
fn stretches(segments: &[Segment], mut skip: u64) -> impl Iterator<Item = (u64, usize)> {
    segments.iter().filter_map(move |segment| {
        let past = skip.min(segment.bytes.into());
        skip -= past;
        let left = u64::from(segment.bytes) - past;
        // An address that wraps is in no memory: nor is its end.
        (left > 0).then(|| (segment.address.wrapping_add(past), usize64(left)))
    })
}

/// Copies what `segments` have from byte `skip` on, until `into` is full.
///
/// # Errors
/// [`NotMemory`]; so is what is beyond the segments.
pub fn gather(
    memory: &Memory,
    segments: &[Segment],
    skip: u64,
    into: &mut [u8],
) -> Result<(), NotMemory> {
    let mut left = into;
    for (address, bytes) in stretches(segments, skip) {
        if left.is_empty() {
            break;
        }
        let (now, later) = left.split_at_mut(bytes.min(left.len()));
        memory.read(address, now)?;
        left = later;
    }
    if left.is_empty() { Ok(()) } else { Err(NotMemory(skip)) }
}

/// Copies `from` to where `segments` have byte `skip` and what follows.
///
/// # Errors
/// As [`gather`].
pub fn scatter(
    memory: &Memory,
    segments: &[Segment],
    skip: u64,
    from: &[u8],
) -> Result<(), NotMemory> {
    let mut left = from;
    for (address, bytes) in stretches(segments, skip) {
        if left.is_empty() {
            break;
        }
        let (now, later) = left.split_at(bytes.min(left.len()));
        memory.write(address, now)?;
        left = later;
    }
    if left.is_empty() { Ok(()) } else { Err(NotMemory(skip)) }
}

/// Bytes of segments.
#[must_use]
pub fn bytes_of(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.bytes)).sum()
}
