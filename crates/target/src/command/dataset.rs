//! Dataset Management (NVM Command Set 1.1, section 3.3.3): Deallocate gives space back; the
//! access hints are taken note of by doing nothing.

use nvme::nvm::{DatasetManagement, LbaRange};
use nvme::sqe::Sqe;
use nvme::status::Status;

use super::gather::gather_list;
use super::{Attached, Reply, Slot, beyond};

pub async fn dataset_management(
    at: &Attached,
    command: &DatasetManagement,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<Reply, Status> {
    at.permit_change()?;
    let list = gather_list(sqe, slot, command.data_bytes()).await?;
    let mended = beyond::mended(at, slot).await?;
    let at = mended.as_deref().unwrap_or(at);
    let ranges = command.ranges(&list).map_err(|refusal| refusal.status())?;
    // A range of no blocks is no range.
    let ranges = ranges.iter().filter_map(|range| range.range());
    // Every range is checked before any is touched.
    for range in ranges.clone() {
        at.blocks(range)?;
    }
    if !command.deallocate {
        return Ok(Reply::SUCCESS);
    }
    if at.namespace().backend.passthrough().is_some() {
        return together(at, &ranges.collect::<Vec<_>>(), slot).await;
    }
    for range in ranges {
        let run = at.blocks(range)?;
        at.after_lost(&[run.range], slot).await?;
        let _under_way = at.enter(run.range, slot).await?;
        at.permit_change()?;
        at.deallocate(run, slot).await?;
    }
    Ok(Reply::SUCCESS)
}

/// All ranges together, for a drive that gets commands as they are: as many as it takes at once are a piece.
async fn together(at: &Attached, ranges: &[LbaRange], slot: &impl Slot) -> Result<Reply, Status> {
    let _share = slot.share_of(at.ranges().together(), ranges.len()).await?;
    at.after_lost(ranges, slot).await?;
    let _under_way = at.enter_all(ranges, slot).await?;
    at.permit_change()?;
    at.deallocate_together(ranges, slot).await?;
    Ok(Reply::SUCCESS)
}
