//! Volumes as namespaces hold them: at home on the reactor of their pool, reached from any.
//!
//! A command that is executed on the pool's reactor calls the volume. One that is executed elsewhere sends a
//! parcel there, in which the data travels by copy, and awaits it back. Parcels are used again and hands, the
//! tasks that attend to them, live as long as the pool, so that this way allocates nothing once it is warm. The
//! way at home puts the volume's part of a command on the heap: it has several kilobytes, too many for the slot
//! that every command of every queue has.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::{Error, Kind, Result, Volume};
use stdx::num::u64_of;

use crate::limits::VOLUME_COMPARE_BYTES;

mod parcel;

use parcel::{Lane, Request};

/// Where the home reactor keeps a volume: a place, and a number by which another volume in the same place of
/// this or another reactor is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    slot: usize,
    id: u64,
}

/// Numbers of volumes in this process, never used again.
static IDS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The volumes at home on this reactor.
    static HOME: RefCell<Vec<Option<(u64, Volume)>>> = const { RefCell::new(Vec::new()) };
}

/// The volume `key` stands for, if it is at home on this reactor.
fn at_home(key: Key) -> Option<Volume> {
    HOME.with_borrow(|home| match home.get(key.slot) {
        Some(Some((id, volume))) if *id == key.id => Some(volume.clone()),
        _ => None,
    })
}

/// A pool's reactor as others reach it.
#[derive(Clone, Debug)]
pub struct Home(Arc<Lane>);

impl Home {
    /// Makes this reactor the home of volumes. `hands` commands of other reactors are attended to at a time;
    /// 0 when there is no other.
    #[must_use]
    pub fn new(hands: usize) -> Self {
        let lane = Arc::<Lane>::default();
        for _ in 0..hands {
            reactor::spawn(parcel::attend(Arc::clone(&lane)));
        }
        Self(lane)
    }

    /// Opens the door to a volume of this reactor.
    #[must_use]
    pub fn open(&self, volume: Volume) -> Door {
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let about = About {
            bytes: AtomicU64::new(volume.len()),
            block_size: volume.block_size(),
            uuid: volume.id(),
            failed: AtomicBool::new(false),
        };
        let slot = HOME.with_borrow_mut(|home| {
            let slot = home.iter().position(Option::is_none).unwrap_or(home.len());
            if slot == home.len() {
                home.push(None);
            }
            home[slot] = Some((id, volume));
            slot
        });
        Door { key: Key { slot, id }, lane: Arc::clone(&self.0), about: Arc::new(about) }
    }

    /// On the home reactor: closes a door. Whoever comes through it finds the volume gone.
    pub fn close(door: &Door) {
        HOME.with_borrow_mut(|home| match home.get_mut(door.key.slot) {
            Some(place) if place.as_ref().is_some_and(|(id, _)| *id == door.key.id) => {
                *place = None
            }
            _ => {}
        });
    }

    /// Lets the hands go. What is under way is finished, what waits is refused.
    pub fn end(&self) {
        self.0.close();
    }
}

/// What is known of a volume wherever it is looked at.
#[derive(Debug)]
struct About {
    bytes: AtomicU64,
    block_size: u32,
    uuid: [u8; 16],
    /// Set once the pool could not keep what it was given.
    failed: AtomicBool,
}

/// A way to a volume, from any reactor.
#[derive(Clone, Debug)]
pub struct Door {
    key: Key,
    lane: Arc<Lane>,
    about: Arc<About>,
}

impl Door {
    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.about.bytes.load(Ordering::Relaxed)
    }

    /// Notes a changed size.
    pub fn set_bytes(&self, bytes: u64) {
        self.about.bytes.store(bytes, Ordering::Relaxed);
    }

    /// The logical block hosts see, in bytes: 512 or 4096.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.about.block_size
    }

    /// What identifies the volume for ever.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.about.uuid
    }

    /// Whether the pool could not keep what it was given.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.about.failed.load(Ordering::Relaxed)
    }

    /// Passes a result on, having noted what it says of the volume.
    fn noted<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(Error { kind: Kind::Failed, .. }) = result {
            self.about.failed.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Reads bytes from `offset` on.
    ///
    /// # Errors
    /// As [`Volume::read`]; `Gone` when the volume is not there any more.
    pub async fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        match at_home(self.key) {
            Some(volume) => Box::pin(volume.read(offset, out)).await,
            None => {
                let parcel = self.lane.parcel(self.key, Request::Read, offset, u64_of(out.len()));
                self.lane.carry(parcel, |bytes| out.copy_from_slice(bytes)).await
            }
        }
    }

    /// Writes bytes from `offset` on; durable when this returns.
    ///
    /// # Errors
    /// As [`Volume::write`]; `Gone` when the volume is not there any more.
    pub async fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let done = match at_home(self.key) {
            Some(volume) => Box::pin(volume.write(offset, data)).await,
            None => {
                let length = u64_of(data.len());
                let mut parcel = self.lane.parcel(self.key, Request::Write, offset, length);
                parcel.bytes.extend_from_slice(data);
                self.lane.carry(parcel, |_| {}).await
            }
        };
        self.noted(done)
    }

    /// Makes bytes read as zeroes; durable when this returns.
    ///
    /// # Errors
    /// As [`Volume::write_zeroes`]; `Gone` when the volume is not there any more.
    pub async fn write_zeroes(&self, offset: u64, length: u64) -> Result<()> {
        let done = match at_home(self.key) {
            Some(volume) => Box::pin(volume.write_zeroes(offset, length)).await,
            None => {
                let parcel = self.lane.parcel(self.key, Request::Zero, offset, length);
                self.lane.carry(parcel, |_| {}).await
            }
        };
        self.noted(done)
    }

    /// Gives the space of the whole blocks within a range back.
    ///
    /// # Errors
    /// As [`Volume::deallocate`]; `Gone` when the volume is not there any more.
    pub async fn deallocate(&self, offset: u64, length: u64) -> Result<()> {
        let done = match at_home(self.key) {
            Some(volume) => Box::pin(volume.deallocate(offset, length)).await,
            None => {
                let parcel = self.lane.parcel(self.key, Request::Deallocate, offset, length);
                self.lane.carry(parcel, |_| {}).await
            }
        };
        self.noted(done)
    }

    /// Makes durable what was acknowledged: it is already, so this says whether the volume is there.
    ///
    /// # Errors
    /// `Gone`.
    pub async fn flush(&self) -> Result<()> {
        match at_home(self.key) {
            Some(volume) => volume.flush(),
            None => {
                let parcel = self.lane.parcel(self.key, Request::Flush, 0, 0);
                self.lane.carry(parcel, |_| {}).await
            }
        }
    }

    /// The index of the first byte that differs from `data` at `offset`, if any does.
    ///
    /// # Errors
    /// As [`Door::read`].
    pub async fn mismatch(&self, offset: u64, data: &[u8]) -> Result<Option<usize>> {
        // On the heap: the data compared may hold all buffers there are.
        let mut stored = vec![0; data.len().min(VOLUME_COMPARE_BYTES)];
        let mut done = 0;
        for part in data.chunks(VOLUME_COMPARE_BYTES) {
            let stored = &mut stored[..part.len()];
            self.read(offset + u64_of(done), stored).await?;
            if let Some(differs) = stored.iter().zip(part).position(|(a, b)| a != b) {
                return Ok(Some(done + differs));
            }
            done += part.len();
        }
        Ok(None)
    }
}
