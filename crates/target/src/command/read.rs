//! Read (NVM Command Set 1.1, section 3.3.4).

use engine::Volume;
use fabric::payload::Payload;
use nvme::nvm::Read;
use nvme::sqe::Sqe;
use nvme::status::Status;
use reactor::buffer;

use super::gather::charge_to_send;
use super::store::status_of;
use super::{AtOnce, Attached, Reply, Slot};
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
pub fn at_once(
    at: &Attached,
    command: &Read,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<AtOnce, Status> {
    match &at.namespace().backend {
        Backend::Memory(_) => of_memory(at, command, sqe, slot).map(AtOnce::done),
        Backend::Volume(volume) => of_volume(at, volume, command, sqe, slot),
        Backend::Drive(_) | Backend::Absent { .. } => Ok(AtOnce::Waits),
    }
}

fn of_volume(
    at: &Attached,
    volume: &Volume,
    command: &Read,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<AtOnce, Status> {
    let run = at.transfer(command.range, sqe)?;
    at.permit(CommandGroup::Read)?;
    let length = run.bytes();
    if !slot.has_room(charge_to_send(length)) {
        return Ok(AtOnce::Waits);
    }
    if let Some(lent) = volume.lend(run.offset, length) {
        return Ok(AtOnce::Lent(lent));
    }
    let Some(mut buffer) = buffer::pool().try_alloc_to_send(length) else {
        return Ok(AtOnce::Waits);
    };
    let done = volume.read_at_once(run.offset, &mut buffer[..length]);
    Ok(AtOnce::done(done.then(|| Reply::with_data(Payload::Buffer { buffer, length }))))
}

#[inline]
fn of_memory(
    at: &Attached,
    command: &Read,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<Option<Reply>, Status> {
    let Some(region) = at.region() else { return Ok(None) };
    let run = at.transfer(command.range, sqe)?;
    at.permit(CommandGroup::Read)?;
    // Reads wait for nobody: each block is read whole, before or after a write of it.
    let length = run.bytes();
    let has_room = || slot.has_room(charge_to_send(length));
    if (region.is_shared() || slot.copies()) && !has_room() {
        return Ok(None);
    }
    if region.is_shared() || (length >= COPIED_BYTES && has_room()) {
        if let Some(mut buffer) = buffer::pool().try_alloc_to_send(length) {
            region.copy_out(run.offset, &mut buffer).map_err(|e| status_of(&e))?;
            return Ok(Some(Reply::with_data(Payload::Buffer { buffer, length })));
        }
        if region.is_shared() {
            return Ok(None);
        }
    }
    // Sent from where it lies: no other core can write half a block meanwhile.
    region.prefetch_start(run.offset, length);
    let (region, offset) = (region.clone(), run.offset);
    Ok(Some(Reply::with_data(Payload::Region { region, offset, length })))
}

pub async fn read(
    at: &Attached,
    command: &Read,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<Reply, Status> {
    if let Some(reply) = of_memory(at, command, sqe, slot)? {
        return Ok(reply);
    }
    let run = at.transfer(command.range, sqe)?;
    let _held = slot.hold_to_send(charge_to_send(run.bytes())).await?;
    let _place = slot.place(at, run.bytes()).await;
    at.permit(CommandGroup::Read)?;
    let buffer = at.load(run.offset, run.bytes()).await?;
    Ok(Reply::with_data(Payload::Buffer { buffer, length: run.bytes() }))
}
