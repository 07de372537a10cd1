//! Write Uncorrectable (NVM Command Set 1.1, section 3.3.7): for NVMe drives that have it and get commands as they are.

use nvme::nvm::LbaRange;
use nvme::status::Status;
use stdx::num::usize64;

use super::{Attached, Reply, Slot};
use crate::limits::PIECE_BYTES;

pub async fn write_uncorrectable(
    at: &Attached,
    range: LbaRange,
    slot: &impl Slot,
) -> Result<Reply, Status> {
    let run = at.blocks(range)?;
    at.permit_change()?;
    let _turn = slot.work(usize64(PIECE_BYTES)).await?;
    let _under_way = at.ranges().enter(run.range).await;
    slot.permit()?;
    at.permit_change()?;
    at.write_uncorrectable(run).await?;
    Ok(Reply::SUCCESS)
}
