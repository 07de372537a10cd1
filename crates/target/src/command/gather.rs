//! A command's data on its way in: out of the capsule, or by a transfer.

use std::cell::Ref;
use std::ops::Deref;

use nvme::nvm::LbaRange;
use nvme::opcode::Direction;
use nvme::sqe::{DataPointer, Sqe};
use nvme::status::Status;
use reactor::budget::Grant;
use reactor::buffer::{self, Buffer, SEND_START};
use stdx::num::{u32_of, u64_of, usize64};

use super::ranges::UnderWay;
use super::{Attached, Slot};
use crate::limits::TRANSFER_CHARGE_MIN;

/// Data from a host, gathered, and what of the host's share it takes.
pub struct Gathered {
    bytes: Bytes,
    held: Option<Grant>,
}

enum Bytes {
    Pool(Buffer),
    /// Small data, or in-capsule data that had to be kept while the pool was empty; never more than
    /// a capsule carries.
    Heap(Vec<u8>),
}

impl Deref for Gathered {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Pool(buffer) => buffer,
            Bytes::Heap(bytes) => bytes,
        }
    }
}

impl Gathered {
    pub fn of_pool(buffer: Buffer, held: Option<Grant>) -> Self {
        Self { bytes: Bytes::Pool(buffer), held }
    }

    pub fn of_heap(bytes: Vec<u8>, held: Option<Grant>) -> Self {
        Self { bytes: Bytes::Heap(bytes), held }
    }

    /// The data without a pool buffer, for whoever has to wait for what may need one.
    fn onto_heap(self) -> Self {
        match self.bytes {
            Bytes::Pool(buffer) => Self::of_heap(buffer.to_vec(), self.held),
            Bytes::Heap(bytes) => Self::of_heap(bytes, self.held),
        }
    }

    /// The data in a pool buffer, as a drive wants it, and what is held for it. No other pool buffer may be held.
    pub async fn into_buffer(self) -> (Buffer, Option<Grant>) {
        let buffer = match self.bytes {
            Bytes::Pool(buffer) => buffer,
            Bytes::Heap(bytes) => {
                let mut buffer = buffer::alloc(bytes.len()).await;
                buffer.copy_from_slice(&bytes);
                buffer
            }
        };
        (buffer, self.held)
    }
}

/// What a transfer of `bytes` into a pool buffer counts for.
pub const fn charge(bytes: usize) -> usize {
    let place = bytes.next_power_of_two();
    if place < TRANSFER_CHARGE_MIN { TRANSFER_CHARGE_MIN } else { place }
}

/// What data of `bytes` counts for that is read into a pool buffer and sent from there.
pub const fn charge_to_send(bytes: usize) -> usize {
    charge(bytes + SEND_START)
}

impl Attached {
    /// Enters `range` with data to be written to it. While the range is held, or nobody can enter for want of room, the
    /// data waits on the heap: rare, and short but where a lost queue has a slow command there.
    ///
    /// # Errors
    /// As [`Slot::unless_aborted`].
    pub async fn enter_with(
        &self,
        data: Gathered,
        range: LbaRange,
        slot: &impl Slot,
    ) -> Result<(Gathered, UnderWay<'_>), Status> {
        let data = if self.ranges().may_enter(range) { data } else { data.onto_heap() };
        Ok((data, self.enter(range, slot).await?))
    }
}

/// The first `length` bytes of the data in the capsule; `None` when the data is not in it.
///
/// # Errors
/// SGL Offset Invalid when the descriptor points behind the capsule's end.
#[inline]
pub fn in_capsule<'a>(
    sqe: &Sqe,
    slot: &'a impl Slot,
    length: usize,
) -> Result<Option<Ref<'a, [u8]>>, Status> {
    let Some(DataPointer::InCapsule { offset, .. }) = sqe.dptr.data() else { return Ok(None) };
    let Some(capsule) = slot.in_capsule() else {
        // Asked for after its turn; no command does that.
        debug_assert!(false, "in-capsule data was not kept");
        return Err(Status::DATA_TRANSFER_ERROR);
    };
    let start = usize64(offset);
    match start.checked_add(length).filter(|&end| end <= capsule.len()) {
        Some(end) => Ok(Some(Ref::map(capsule, |bytes| &bytes[start..end]))),
        None => Err(Status::SGL_OFFSET_INVALID.with_dnr()),
    }
}

/// The first `length` bytes of the command's data, wherever they come from. Must be polled first in
/// the turn in which the capsule arrived.
///
/// # Errors
/// The status that completes the command.
pub async fn gather(sqe: &Sqe, slot: &impl Slot, length: usize) -> Result<Gathered, Status> {
    if let Some(bytes) = in_capsule(sqe, slot, length)? {
        let held = Some(slot.keep(length));
        return Ok(match buffer::pool().try_alloc(length) {
            Some(mut buffer) => {
                buffer.copy_from_slice(&bytes);
                Gathered::of_pool(buffer, held)
            }
            None => Gathered::of_heap(bytes.to_vec(), held),
        });
    }
    let held = slot.hold(charge(length)).await?;
    let buffer = buffer::alloc(length).await;
    let buffer = slot.receive(u32_of(length), buffer).await?;
    Ok(Gathered::of_pool(buffer, Some(held)))
}

/// [`gather`] for a command whose data is a list or keys: small, and kept without a pool buffer.
///
/// # Errors
/// Data SGL Length Invalid, and as [`gather`].
pub async fn gather_list(sqe: &Sqe, slot: &impl Slot, length: usize) -> Result<Gathered, Status> {
    check_length(sqe, u64_of(length))?;
    match kept(sqe, slot, length)? {
        Some(bytes) => Ok(bytes),
        None => {
            let held = slot.hold(charge(length)).await?;
            Ok(Gathered::of_heap(fetched(slot, length).await?, Some(held)))
        }
    }
}

/// A copy of the first `length` bytes in the capsule; `None` when the data is not in it.
///
/// # Errors
/// As [`in_capsule`].
pub fn kept(sqe: &Sqe, slot: &impl Slot, length: usize) -> Result<Option<Gathered>, Status> {
    let kept = |bytes: Ref<'_, [u8]>| Gathered::of_heap(bytes.to_vec(), Some(slot.keep(length)));
    Ok(in_capsule(sqe, slot, length)?.map(kept))
}

/// `length` bytes by a transfer, the pool buffer given back. The caller holds what they count for.
///
/// # Errors
/// The status that completes the command.
pub async fn fetched(slot: &impl Slot, length: usize) -> Result<Vec<u8>, Status> {
    let buffer = buffer::alloc(length).await;
    slot.receive(u32_of(length), buffer).await.map(|buffer| buffer[..length].to_vec())
}

/// Refuses a data pointer that describes fewer than `needed` bytes. More is allowed: hosts send a
/// fixed buffer for a list of any length.
///
/// # Errors
/// Data SGL Length Invalid; SGL Descriptor Type Invalid.
#[inline]
pub fn check_length(sqe: &Sqe, needed: u64) -> Result<(), Status> {
    let described = sqe.dptr.data().ok_or(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr())?;
    // In-capsule data is the host's: its command capsule has no place for data that comes back.
    let returns = Direction::of(sqe.opcode) == Direction::ControllerToHost;
    if returns && matches!(described, DataPointer::InCapsule { .. }) {
        return Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr());
    }
    if u64::from(described.length()) < needed {
        return Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
    }
    Ok(())
}
