//! Verify (NVM Command Set 1.1, section 3.3.5): reads, transfers nothing.

use nvme::nvm::Verify;
use nvme::status::Status;

use super::{Attached, Reply};
use crate::limits::PIECE_BYTES;
use crate::reservation::CommandGroup;

pub async fn verify(at: &Attached, command: &Verify) -> Result<Reply, Status> {
    let run = at.blocks(command.range)?;
    at.permit(CommandGroup::Read)?;
    // Memory holds what it holds: there is nothing to find out by reading it.
    if at.region().is_none() {
        for (offset, length) in run.pieces(PIECE_BYTES) {
            at.load(offset, length).await?;
        }
    }
    Ok(Reply::SUCCESS)
}
