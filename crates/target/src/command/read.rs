//! Read (NVM Command Set 1.1, section 3.3.4).

use fabric::payload::Payload;
use nvme::nvm::Read;
use nvme::sqe::Sqe;
use nvme::status::Status;
use reactor::buffer;

use super::store::status_of;
use super::{Attached, Reply, Slot};
use crate::reservation::CommandGroup;

/// A read of memory, if it need not wait; `None` otherwise.
///
/// # Errors
/// The status that completes the command.
#[inline]
pub fn at_once(at: &Attached, command: &Read, sqe: &Sqe) -> Result<Option<Reply>, Status> {
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
    let Some(mut buffer) = buffer::pool().try_alloc(length) else { return Ok(None) };
    region.copy_out(run.offset, &mut buffer).map_err(|e| status_of(&e))?;
    Ok(Some(Reply::with_data(Payload::Buffer { buffer, length })))
}

pub async fn read(
    at: &Attached,
    command: &Read,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<Reply, Status> {
    if let Some(reply) = at_once(at, command, sqe)? {
        return Ok(reply);
    }
    let run = at.transfer(command.range, sqe)?;
    at.permit(CommandGroup::Read)?;
    slot.room().await;
    let buffer = at.load(run.offset, run.bytes()).await?;
    Ok(Reply::with_data(Payload::Buffer { buffer, length: run.bytes() }))
}
