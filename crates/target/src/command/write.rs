//! Write (NVM Command Set 1.1, section 3.3.6).

use nvme::nvm::Write;
use nvme::sqe::Sqe;
use nvme::status::Status;

use super::gather::{gather, in_capsule};
use super::store::status_of;
use super::{Attached, Reply, Slot};
use crate::namespace::Backend;

/// A write of data in the capsule to memory, or to a volume whose log takes it as it comes; `None` for
/// one that has to wait.
///
/// # Errors
/// The status that completes the command.
#[inline]
pub fn at_once(
    at: &Attached,
    command: &Write,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<Option<Reply>, Status> {
    let backend = &at.namespace().backend;
    if matches!(backend, Backend::Drive(_) | Backend::Absent { .. }) {
        return Ok(None);
    }
    let run = at.transfer(command.range, sqe)?;
    at.permit_change()?;
    if !at.ranges().is_free(run.range) {
        return Ok(None);
    }
    let Some(bytes) = in_capsule(sqe, slot, run.bytes())? else { return Ok(None) };
    let done = match backend {
        Backend::Memory(region) => region.copy_in(run.offset, &bytes).map(|()| true),
        Backend::Volume(volume) => Ok(volume.write_at_once(run.offset, &bytes)),
        Backend::Drive(_) | Backend::Absent { .. } => Ok(false),
    };
    Ok(done.map_err(|e| status_of(&e))?.then_some(Reply::SUCCESS))
}

pub async fn write(
    at: &Attached,
    command: &Write,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<Reply, Status> {
    if let Some(reply) = at_once(at, command, sqe, slot)? {
        return Ok(reply);
    }
    let run = at.transfer(command.range, sqe)?;
    at.permit_change()?;
    let data = gather(sqe, slot, run.bytes()).await?;
    let _place = slot.place(at, run.bytes()).await;
    let (data, _under_way) = at.enter_with(data, run.range).await;
    // A reservation may have come while the data was on its way.
    at.permit_change()?;
    at.store(run.offset, data, command.fua).await?;
    Ok(Reply::SUCCESS)
}
