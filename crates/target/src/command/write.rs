//! Write (NVM Command Set 1.1, section 3.3.6).

use nvme::nvm::Write;
use nvme::sqe::Sqe;
use nvme::status::Status;

use super::gather::{gather, in_capsule};
use super::store::status_of;
use super::{Attached, Reply, Slot};

pub async fn write(
    at: &Attached,
    command: &Write,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<Reply, Status> {
    let run = at.transfer(command.range, sqe)?;
    at.permit_change()?;
    if let Some(region) = at.region().filter(|_| at.ranges().is_free(run.range))
        && let Some(bytes) = in_capsule(sqe, slot, run.bytes())?
    {
        region.copy_in(run.offset, &bytes).map_err(|e| status_of(&e))?;
        return Ok(Reply::SUCCESS);
    }
    let data = gather(sqe, slot, run.bytes()).await?;
    let (data, _under_way) = at.enter_with(data, run.range).await;
    // A reservation may have come while the data was on its way.
    at.permit_change()?;
    at.store(run.offset, data, command.fua).await?;
    Ok(Reply::SUCCESS)
}
