//! Read (NVM Command Set 1.1, section 3.3.4).

use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;

use engine::{Reading, Volume};
use fabric::payload::Payload;
use nvme::nvm::Read;
use nvme::sqe::Sqe;
use nvme::status::Status;
use reactor::buffer::{self, Buffer};

use super::blocks::Blocks;
use super::gather::charge_to_send;
use super::store::status_of;
use super::{AtOnce, Attached, Begun, Reply, Slot, beyond};
use crate::namespace::Backend;
use crate::reservation::CommandGroup;

/// From this length on reads of memory are sent from a copy. The kernel copies badly from memory that no cache
/// holds: 128 KiB at a time, reads are 1.19 times as many with a copy before that (`bench compare read-128k`); of
/// 32 KiB and less they are not.
const COPIED_BYTES: usize = 64 << 10;

/// Whether a read is better looked at once its turn's other commands have come: of a volume, where the processor
/// has much to fetch from memory. It begins to here.
#[inline]
pub fn look_ahead(at: &Attached, command: &Read) -> bool {
    let Backend::Volume(volume) = &at.namespace().backend else { return false };
    let offset = command.range.start().get().checked_mul(u64::from(volume.block_size()));
    offset.is_some_and(|offset| volume.look_ahead(offset))
}

/// A read of memory, or of a volume that has all of it in memory.
///
/// # Errors
/// The status that completes the command.
#[inline]
pub fn begin(at: &Attached, command: &Read, sqe: &Sqe, slot: &impl Slot) -> Result<AtOnce, Status> {
    if matches!(at.namespace().backend, Backend::Absent { .. }) {
        return Ok(AtOnce::Waits(Begun::Nothing));
    }
    let run = at.transfer(command.range, sqe)?;
    at.permit(CommandGroup::Read)?;
    Ok(match &at.namespace().backend {
        Backend::Memory(_) => of_memory(at, run, slot)?,
        Backend::Volume(volume) => of_volume(volume, run, slot),
        Backend::Drive(_) | Backend::Passthrough(_) | Backend::Absent { .. } => {
            AtOnce::Waits(Begun::Read(run, None))
        }
    })
}

fn of_volume(volume: &Volume, run: Blocks, slot: &impl Slot) -> AtOnce {
    let length = run.bytes();
    if !slot.has_room(charge_to_send(length)) {
        return AtOnce::Waits(Begun::Read(run, None));
    }
    match volume.begin_read(run.offset, length, || buffer::pool().try_alloc_to_send(length)) {
        engine::Begun::UnverifiedRead(lent) => AtOnce::UnverifiedRead(lent),
        engine::Begun::Done(buffer) => {
            AtOnce::Done(Reply::with_data(Payload::Buffer { buffer, length }))
        }
        engine::Begun::Wait(reading) => AtOnce::Waits(Begun::Read(run, Some(reading))),
        engine::Begun::Not => AtOnce::Waits(Begun::Read(run, None)),
    }
}

#[inline]
fn of_memory(at: &Attached, run: Blocks, slot: &impl Slot) -> Result<AtOnce, Status> {
    let waits = Ok(AtOnce::Waits(Begun::Read(run, None)));
    let Some(region) = at.region() else { return waits };
    // Reads wait for nobody: each block is read whole, before or after a write of it.
    let length = run.bytes();
    let has_room = || slot.has_room(charge_to_send(length));
    if (region.is_shared() || slot.copies()) && !has_room() {
        return waits;
    }
    if region.is_shared() || (length >= COPIED_BYTES && has_room()) {
        if let Some(mut buffer) = buffer::pool().try_alloc_to_send(length) {
            region.copy_out(run.offset, &mut buffer).map_err(|e| status_of(&e))?;
            return Ok(AtOnce::Done(Reply::with_data(Payload::Buffer { buffer, length })));
        }
        if region.is_shared() {
            return waits;
        }
    }
    // Sent from where it lies: no other core can write half a block meanwhile.
    region.prefetch_start(run.offset, length);
    let (region, offset) = (region.clone(), run.offset);
    Ok(AtOnce::Done(Reply::with_data(Payload::Region { region, offset, length })))
}

/// A read that has to wait, for room or for what is not in memory, from where it was left.
///
/// # Errors
/// The status that completes the command.
pub async fn go_on(
    at: &Attached,
    run: Blocks,
    mut reading: Option<Reading<Buffer>>,
    slot: &impl Slot,
) -> Result<Reply, Status> {
    let read = async |at: &Attached| read_now(at, run, reading.take(), slot).await;
    beyond::read_when_mended(at, slot, read).await
}

/// As that, without waiting for drives.
async fn read_now(
    at: &Attached,
    run: Blocks,
    mut reading: Option<Reading<Buffer>>,
    slot: &impl Slot,
) -> Result<Reply, Status> {
    let length = run.bytes();
    let _held = {
        let mut held = pin!(slot.hold_to_send(charge_to_send(length)));
        match poll_fn(|cx| Poll::Ready(held.as_mut().poll(cx))).await {
            Poll::Ready(held) => held?,
            Poll::Pending => {
                // No pool waits for a host: what was begun is given up.
                reading = None;
                held.await?
            }
        }
    };
    let _place = slot.place(at, length).await?;
    at.permit(CommandGroup::Read)?;
    let buffer = match reading {
        Some(reading) => at.finish(run, reading).await?,
        None => at.load(run.offset, length).await?,
    };
    Ok(Reply::with_data(Payload::Buffer { buffer, length }))
}
