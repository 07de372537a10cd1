//! Verify (NVM Command Set 1.1, section 3.3.5): a drive that has it checks, all others are read; nothing is transferred.

use nvme::nvm::Verify;
use nvme::status::Status;
use stdx::num::usize64;

use super::{Attached, Reply, Slot};
use crate::limits::PIECE_BYTES;
use crate::reservation::CommandGroup;

pub async fn verify(at: &Attached, command: &Verify, slot: &impl Slot) -> Result<Reply, Status> {
    let run = at.blocks(command.range)?;
    at.permit(CommandGroup::Read)?;
    let turn = slot.work(usize64(PIECE_BYTES)).await?;
    if at.verify(run).await? {
        return Ok(Reply::SUCCESS);
    }
    drop(turn);
    // Memory holds what it holds: there is nothing to find out by reading it.
    if at.region().is_none() {
        for (offset, length) in run.pieces(PIECE_BYTES) {
            let _place = slot.place(at, length).await?;
            let _turn = slot.work(length).await?;
            at.load(offset, length).await?;
            // What is in memory is read without waiting.
            reactor::yield_now().await;
        }
    }
    Ok(Reply::SUCCESS)
}
