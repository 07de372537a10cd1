//! What the log's bytes lie on. Records are always in memory, where reads find them; on drives that
//! memory is an image of the ring, and commits write it out.

use super::control::{Control, SLOT};
use super::limits::{COMMIT_POOL_BYTES, CONTROL_BYTES, PAGE};
use crate::error::{Error, Kind, Result};
use media::drive::TRANSFER_MAX;
use media::{Drive, Pmem};
use reactor::buffer::{Buffer, Pool};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use stdx::num::{u64_of, usize64};

/// A range of persistent memory, from `offset` on.
#[derive(Clone, Debug)]
pub struct Area {
    pub pmem: Arc<Pmem>,
    pub offset: u64,
}

/// A range of a drive, from `offset` on, a multiple of 4 KiB.
#[derive(Clone, Debug)]
pub struct Zone {
    pub drive: Arc<Drive>,
    pub offset: u64,
}

/// Where a shard's log lies: one place, or two that mirror each other.
#[derive(Clone, Debug)]
pub enum Device {
    /// `pmem`, `bbu`, or memory that keeps nothing.
    Memory(Vec<Area>),
    /// Zones on drives, written by group commit.
    Drives(Vec<Zone>),
}

/// A zone and whether a write to it failed: then it is not used any more.
pub(super) struct Member {
    pub zone: Zone,
    pub failed: Cell<bool>,
}

pub(super) enum Store {
    Memory { areas: Vec<Area> },
    Drives { image: Pmem, members: Vec<Member>, pool: Pool },
}

impl Store {
    /// # Errors
    /// `Invalid` for no device, more than two, or one that is too short.
    pub fn new(device: Device, bytes: u64) -> Result<Self> {
        let invalid = |what: &str| Err(Error::new(Kind::Invalid, format!("commit log: {what}")));
        let fits = |offset: u64, capacity: u64| {
            offset.is_multiple_of(PAGE) && offset.checked_add(bytes).is_some_and(|e| e <= capacity)
        };
        match device {
            Device::Memory(areas) => {
                if !(1..=2).contains(&areas.len()) {
                    return invalid("one device, or two that mirror each other");
                }
                if !areas.iter().all(|a| fits(a.offset, a.pmem.capacity())) {
                    return invalid("the device is shorter than the log");
                }
                Ok(Self::Memory { areas })
            }
            Device::Drives(zones) => {
                if !(1..=2).contains(&zones.len()) {
                    return invalid("zones on one drive, or on two that mirror each other");
                }
                if !zones.iter().all(|z| fits(z.offset, z.drive.capacity())) {
                    return invalid("the drive is shorter than the log's zone");
                }
                let image = Pmem::anonymous(bytes - CONTROL_BYTES)?;
                let pool = Pool::new(COMMIT_POOL_BYTES)
                    .map_err(|e| Error::caused(Kind::Failed, "memory for commits", e))?;
                let new = |zone| Member { zone, failed: Cell::new(false) };
                Ok(Self::Drives { image, members: zones.into_iter().map(new).collect(), pool })
            }
        }
    }

    /// Whether an append is durable as soon as it is stored and fenced.
    pub const fn is_memory(&self) -> bool {
        matches!(self, Self::Memory { .. })
    }

    pub const fn members(&self) -> &[Member] {
        match self {
            Self::Memory { .. } => &[],
            Self::Drives { members, .. } => members.as_slice(),
        }
    }

    /// Where records are stored and looked at, and where its ring begins.
    fn image(&self) -> (&Pmem, u64) {
        match self {
            Self::Memory { areas } => (&areas[0].pmem, areas[0].offset + CONTROL_BYTES),
            Self::Drives { image, .. } => (image, 0),
        }
    }

    /// Stores bytes at `at` of the ring, on every device that is memory.
    #[inline]
    pub fn put(&self, at: u64, data: &[u8]) -> Result<()> {
        let (image, base) = self.image();
        image.write(base + at, data)?;
        if let Self::Memory { areas } = self {
            for area in &areas[1..] {
                area.pmem.write(area.offset + CONTROL_BYTES + at, data)?;
            }
        }
        Ok(())
    }

    /// Makes what was put durable, on devices that are memory.
    #[inline]
    pub fn fence(&self) {
        if let Self::Memory { areas } = self {
            for area in areas {
                area.pmem.fence();
            }
        }
    }

    /// Calls `look` with bytes of the ring where they lie.
    #[inline]
    pub fn with<R>(&self, at: u64, len: usize, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let (image, base) = self.image();
        Ok(image.with(base + at, len, look)?)
    }

    /// How many devices there are, failed ones included.
    pub const fn devices(&self) -> usize {
        match self {
            Self::Memory { areas } => areas.len(),
            Self::Drives { members, .. } => members.len(),
        }
    }

    /// What an operator must know of how safe the contents are.
    pub fn protection(&self) -> &'static str {
        match self {
            Self::Memory { areas } => areas[0].pmem.protection(),
            Self::Drives { .. } => "drives: contents survive power loss",
        }
    }

    /// Bytes of the ring as the `n`th device has them, zeroes where its medium does not give them;
    /// `None` when it does not answer.
    pub async fn read_copy(&self, n: usize, at: u64, len: usize) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; len];
        match self {
            Self::Memory { areas } => {
                areas[n].pmem.read(areas[n].offset + CONTROL_BYTES + at, &mut bytes)?;
            }
            Self::Drives { members, .. } => {
                let zone = &members[n].zone;
                let mut done = 0;
                while done < len {
                    let part = (len - done).min(TRANSFER_MAX);
                    let offset = zone.offset + CONTROL_BYTES + at + u64_of(done);
                    let out = &mut bytes[done..done + part];
                    if !read_what_there_is(&zone.drive, offset, out).await {
                        return Ok(None);
                    }
                    done += part;
                }
            }
        }
        Ok(Some(bytes))
    }

    /// Whether every device has these bytes of the ring as the image has them.
    pub async fn is_everywhere(&self, at: u64, len: usize) -> Result<bool> {
        // Memory's image is its first device.
        let first = usize::from(self.is_memory());
        for n in first..self.devices() {
            let same = match self.read_copy(n, at, len).await? {
                Some(copy) => self.with(at, len, |image| image == copy)?,
                None => false,
            };
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Stores bytes of the ring again, as the image has them, on every device. Durable after the next
    /// fence.
    pub async fn rewrite(&self, at: u64, len: usize) -> Result<()> {
        if !self.is_memory() {
            return self.commit(at, len).await;
        }
        let bytes = self.with(at, len, <[u8]>::to_vec)?;
        self.put(at, &bytes)
    }

    /// Copies a part of the ring from the `n`th device into the image, if all of it can be read.
    pub async fn load_from(&self, n: usize, at: u64, len: usize) -> Result<()> {
        let Self::Drives { image, members, .. } = self else { return Ok(()) };
        let zone = &members[n].zone;
        if let Ok(read) = zone.drive.read(zone.offset + CONTROL_BYTES + at, len).await {
            image.write(at, &read)?;
        }
        Ok(())
    }

    /// Fills the image from the zones: from the first, and where it cannot be read from the second.
    /// What neither has is left as it is: no record will be found there.
    pub async fn load(&self, ring: u64) -> Result<()> {
        let Self::Drives { image, members, .. } = self else { return Ok(()) };
        let mut at = 0;
        while at < ring {
            let len = commit_len(at, ring - at, ring);
            for member in members {
                let offset = member.zone.offset + CONTROL_BYTES + at;
                if let Ok(read) = member.zone.drive.read(offset, len).await {
                    image.write(at, &read)?;
                    break;
                }
                // Pages the next member may have. Without it, a sector that cannot be read must not
                // hide the records around it.
                let mut bytes = vec![0; len];
                if read_what_there_is(&member.zone.drive, offset, &mut bytes).await {
                    image.write(at, &bytes)?;
                }
            }
            at += u64_of(len);
        }
        Ok(())
    }

    /// Calls `look` with bytes of the ring as the mirror has them, if there is one in memory.
    pub fn with_mirror<R>(
        &self,
        at: u64,
        len: usize,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let Self::Memory { areas } = self else { return Ok(None) };
        let Some(area) = areas.get(1) else { return Ok(None) };
        Ok(Some(area.pmem.with(area.offset + CONTROL_BYTES + at, len, look)?))
    }

    /// Writes a control slot to every device; durable when this returns.
    ///
    /// # Errors
    /// `Failed` when no device took it.
    pub async fn write_control(&self, control: &Control) -> Result<()> {
        self.write_slot(control.offset(), control.encode()).await
    }

    /// Puts zeroes into both control slots of every device; durable when this returns.
    ///
    /// # Errors
    /// As [`write_control`](Self::write_control).
    pub async fn erase_controls(&self) -> Result<()> {
        self.write_slot(0, [0; SLOT]).await?;
        self.write_slot(PAGE, [0; SLOT]).await
    }

    async fn write_slot(&self, offset: u64, bytes: [u8; SLOT]) -> Result<()> {
        match self {
            Self::Memory { areas } => {
                for area in areas {
                    area.pmem.write(area.offset + offset, &bytes)?;
                    area.pmem.fence();
                }
                Ok(())
            }
            Self::Drives { members, pool, .. } => {
                let page = |_: &Member| async move {
                    let mut page = pool.alloc(usize64(PAGE)).await;
                    page.fill(0);
                    page[..SLOT].copy_from_slice(&bytes);
                    page
                };
                write_members(members, offset, page).await
            }
        }
    }

    /// Writes bytes of the ring from the image to the zones, at most a transfer and not past the
    /// ring's end; durable when this returns. Nothing to do for memory.
    ///
    /// # Errors
    /// `Failed` when no zone took them.
    pub async fn commit(&self, at: u64, len: usize) -> Result<()> {
        debug_assert!(len <= TRANSFER_MAX);
        let Self::Drives { image, members, pool } = self else { return Ok(()) };
        let copy = |_: &Member| async move {
            let mut buffer = pool.alloc(len).await;
            // In range: the ring is as long as the image.
            let _ = image.read(at, &mut buffer);
            buffer
        };
        write_members(members, CONTROL_BYTES + at, copy).await
    }

    /// What the `n`th device has in a control slot.
    pub async fn read_slot(&self, n: usize, slot: u64) -> Result<[u8; SLOT]> {
        let offset = slot * PAGE;
        match self {
            Self::Memory { areas } => {
                let mut bytes = [0; SLOT];
                areas[n].pmem.read(areas[n].offset + offset, &mut bytes)?;
                Ok(bytes)
            }
            Self::Drives { members, .. } => {
                let zone = &members[n].zone;
                let page = zone.drive.read(zone.offset + offset, usize64(PAGE)).await?;
                Ok(std::array::from_fn(|n| page[n]))
            }
        }
    }

    /// As [`read_slot`](Self::read_slot), zeroes where the medium does not give what is there; `None` where
    /// the device does not answer.
    pub async fn read_slot_left(&self, n: usize, slot: u64) -> Result<Option<[u8; SLOT]>> {
        let Self::Drives { members, .. } = self else {
            return self.read_slot(n, slot).await.map(Some);
        };
        let (zone, mut page) = (&members[n].zone, vec![0; usize64(PAGE)]);
        let answers = read_what_there_is(&zone.drive, zone.offset + slot * PAGE, &mut page).await;
        Ok(answers.then(|| std::array::from_fn(|n| page[n])))
    }

    /// The control slots found, newest first, and what was wrong with one that was not whole.
    pub async fn read_controls(&self) -> (Vec<Control>, Option<Error>) {
        let mut found = Vec::new();
        let mut wrong = None;
        for slot in 0..2 {
            for n in 0..self.devices() {
                note(self.read_slot(n, slot).await, &mut found, &mut wrong);
            }
        }
        found.sort_by_key(|c: &Control| std::cmp::Reverse(c.generation));
        (found, wrong)
    }
}

/// Reads a range, at most a transfer; pages that the medium does not give are zeroes. False when the
/// drive does not answer.
async fn read_what_there_is(drive: &Drive, offset: u64, out: &mut [u8]) -> bool {
    match drive.read(offset, out.len()).await {
        Ok(read) => {
            out.copy_from_slice(&read);
            return true;
        }
        Err(error) if error.kind == media::Kind::Medium => {}
        Err(_) => return false,
    }
    let mut done = 0;
    while done < out.len() {
        let at = offset + u64_of(done);
        let part = usize64(PAGE - at % PAGE).min(out.len() - done);
        match drive.read(at, part).await {
            Ok(read) => out[done..done + part].copy_from_slice(&read),
            Err(_) => out[done..done + part].fill(0),
        }
        done += part;
    }
    true
}

fn note(bytes: Result<[u8; SLOT]>, found: &mut Vec<Control>, wrong: &mut Option<Error>) {
    let control = bytes.and_then(|bytes| {
        let missing = |bad| Error::caused(Kind::Missing, "commit log control block", bad);
        Control::decode(&bytes).map_err(missing)
    });
    match control {
        Ok(control) => found.push(control),
        // A slot that was read says more of what there is than one that was not.
        Err(error) if wrong.as_ref().is_none_or(|w| w.kind != Kind::Missing) => {
            *wrong = Some(error);
        }
        Err(_) => {}
    }
}

/// Writes the same range of every member that works, at once; those that fail are not used again.
async fn write_members<F: Future<Output = Buffer>>(
    members: &[Member],
    offset: u64,
    make: impl Fn(&Member) -> F,
) -> Result<()> {
    let write = async |member: Option<&Member>| -> Option<media::Error> {
        let member = member.filter(|m| !m.failed.get())?;
        let buffer = make(member).await;
        let error = member.zone.drive.write(member.zone.offset + offset, buffer, true).await.err();
        if error.is_some() {
            member.failed.set(true);
        }
        error
    };
    let (a, b) = both(write(members.first()), write(members.get(1))).await;
    if members.iter().any(|m| !m.failed.get()) {
        return Ok(());
    }
    let context = "no drive takes the commit log's writes";
    Err(match a.or(b) {
        Some(source) => Error::caused(Kind::Failed, context, source),
        None => Error::new(Kind::Failed, context),
    })
}

/// Runs two futures side by side.
async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut of_a, mut of_b) = (None, None);
    poll_fn(|cx| {
        if of_a.is_none()
            && let Poll::Ready(value) = a.as_mut().poll(cx)
        {
            of_a = Some(value);
        }
        if of_b.is_none()
            && let Poll::Ready(value) = b.as_mut().poll(cx)
        {
            of_b = Some(value);
        }
        match (of_a.take(), of_b.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (of_a, of_b) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}

/// Bytes of the longest commit from `at` on that stays within a transfer and the ring.
pub(super) fn commit_len(at: u64, rest: u64, ring: u64) -> usize {
    usize64(rest.min(ring - at).min(u64_of(TRANSFER_MAX)))
}
