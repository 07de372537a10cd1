//! Read (NVM Command Set 1.1, section 3.3.4).

use fabric::payload::Payload;
use nvme::nvm::Read;
use nvme::sqe::Sqe;
use nvme::status::Status;
use reactor::buffer;

use super::store::status_of;
use super::{Attached, Reply, Slot};
use crate::reservation::CommandGroup;

pub async fn read(
    at: &Attached,
    command: &Read,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<Reply, Status> {
    let run = at.transfer(command.range, sqe)?;
    at.permit(CommandGroup::Read)?;
    // Reads wait for nobody: each block is read whole, before or after a write of it.
    if let Some(region) = at.region() {
        let length = run.bytes();
        // Sent from where it lies, when no other core can write half a block meanwhile.
        if !region.is_shared() {
            region.prefetch(run.offset, length);
            let (region, offset) = (region.clone(), run.offset);
            return Ok(Reply::with_data(Payload::Region { region, offset, length }));
        }
        if let Some(mut buffer) = buffer::pool().try_alloc(length) {
            region.copy_out(run.offset, &mut buffer).map_err(|e| status_of(&e))?;
            return Ok(Reply::with_data(Payload::Buffer { buffer, length }));
        }
    }
    slot.room().await;
    let buffer = at.load(run.offset, run.bytes()).await?;
    Ok(Reply::with_data(Payload::Buffer { buffer, length: run.bytes() }))
}
