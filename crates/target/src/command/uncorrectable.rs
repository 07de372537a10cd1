//! Write Uncorrectable (NVM Command Set 1.1, section 3.3.7): for NVMe drives that have it and get commands as they are.

use nvme::nvm::LbaRange;
use nvme::status::Status;

use super::{Attached, Reply, Slot};

pub async fn write_uncorrectable(
    at: &Attached,
    range: LbaRange,
    slot: &impl Slot,
) -> Result<Reply, Status> {
    let run = at.blocks(range)?;
    at.permit_change()?;
    at.after_lost(&[run.range], slot).await?;
    let _under_way = at.enter(run.range, slot).await?;
    at.write_uncorrectable(run, slot).await?;
    Ok(Reply::SUCCESS)
}
