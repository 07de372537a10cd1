//! Read (NVM Command Set 1.1, section 3.3.4).

use engine::Volume;
use fabric::payload::Payload;
use nvme::nvm::Read;
use nvme::sqe::Sqe;
use nvme::status::Status;
use reactor::buffer;

use super::store::status_of;
use super::{Attached, Reply, Slot};
use crate::namespace::Backend;
use crate::reservation::CommandGroup;

/// A read of memory, or of a volume that has all of it in memory; `None` for one that has to wait.
///
/// # Errors
/// The status that completes the command.
#[inline]
pub fn at_once(
    at: &Attached,
    command: &Read,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<Option<Reply>, Status> {
    match &at.namespace().backend {
        Backend::Memory(_) => of_memory(at, command, sqe),
        Backend::Volume(volume) => of_volume(at, volume, command, sqe, slot),
        Backend::Drive(_) => Ok(None),
    }
}

fn of_volume(
    at: &Attached,
    volume: &Volume,
    command: &Read,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<Option<Reply>, Status> {
    let run = at.transfer(command.range, sqe)?;
    at.permit(CommandGroup::Read)?;
    if !slot.has_room() {
        return Ok(None);
    }
    let length = run.bytes();
    let Some(mut buffer) = buffer::pool().try_alloc_to_send(length) else { return Ok(None) };
    let done = volume.read_at_once(run.offset, &mut buffer[..length]);
    Ok(done.then(|| Reply::with_data(Payload::Buffer { buffer, length })))
}

#[inline]
fn of_memory(at: &Attached, command: &Read, sqe: &Sqe) -> Result<Option<Reply>, Status> {
    let Some(region) = at.region() else { return Ok(None) };
    let run = at.transfer(command.range, sqe)?;
    at.permit(CommandGroup::Read)?;
    // Reads wait for nobody: each block is read whole, before or after a write of it.
    let length = run.bytes();
    // Sent from where it lies, when no other core can write half a block meanwhile.
    if !region.is_shared() {
        region.prefetch(run.offset, length);
        let (region, offset) = (region.clone(), run.offset);
        return Ok(Some(Reply::with_data(Payload::Region { region, offset, length })));
    }
    let Some(mut buffer) = buffer::pool().try_alloc_to_send(length) else { return Ok(None) };
    region.copy_out(run.offset, &mut buffer).map_err(|e| status_of(&e))?;
    Ok(Some(Reply::with_data(Payload::Buffer { buffer, length })))
}

pub async fn read(
    at: &Attached,
    command: &Read,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<Reply, Status> {
    if let Some(reply) = of_memory(at, command, sqe)? {
        return Ok(reply);
    }
    let run = at.transfer(command.range, sqe)?;
    at.permit(CommandGroup::Read)?;
    slot.room().await;
    let buffer = at.load(run.offset, run.bytes()).await?;
    Ok(Reply::with_data(Payload::Buffer { buffer, length: run.bytes() }))
}
