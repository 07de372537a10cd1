//! Write Zeroes (NVM Command Set 1.1, section 3.3.8).

use nvme::nvm::WriteZeroes;
use nvme::status::Status;

use super::{Attached, Reply, Slot, beyond};
use crate::limits::WRITE_ZEROES_BYTES_MAX;

pub async fn write_zeroes(
    at: &Attached,
    command: &WriteZeroes,
    slot: &impl Slot,
) -> Result<Reply, Status> {
    let run = at.blocks(command.range)?;
    if run.length > WRITE_ZEROES_BYTES_MAX {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    at.permit_change()?;
    let mended = beyond::mended(at, slot).await?;
    let at = mended.as_deref().unwrap_or(at);
    at.after_lost(&[run.range], slot).await?;
    let _under_way = at.enter(run.range, slot).await?;
    at.permit_change()?;
    at.zero(run, command.deallocate, command.fua, slot).await?;
    // An NVMe drive was told.
    if command.fua && at.namespace().backend.passthrough().is_none() {
        at.make_durable().await?;
    }
    Ok(Reply::SUCCESS)
}
