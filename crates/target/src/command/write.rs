//! Write (NVM Command Set 1.1, section 3.3.6).

use nvme::nvm::Write;
use nvme::sqe::Sqe;
use nvme::status::Status;

use super::blocks::Blocks;
use super::gather::{gather, in_capsule};
use super::store::status_of;
use super::{AtOnce, Attached, Begun, Reply, Slot};
use crate::namespace::Backend;

/// A write of data in the capsule to memory, or to a volume whose log takes it as it comes.
///
/// # Errors
/// The status that completes the command.
#[inline]
pub fn at_once(
    at: &Attached,
    command: &Write,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<AtOnce, Status> {
    let backend = &at.namespace().backend;
    if matches!(backend, Backend::Absent { .. }) {
        return Ok(AtOnce::Waits(Begun::Nothing));
    }
    let run = at.transfer(command.range, sqe)?;
    at.permit_change()?;
    let waits = AtOnce::Waits(Begun::Write { run, fua: command.fua });
    if matches!(backend, Backend::Drive(_)) || !at.ranges().is_free(run.range) {
        return Ok(waits);
    }
    let Some(bytes) = in_capsule(sqe, slot, run.bytes())? else { return Ok(waits) };
    let done = match backend {
        Backend::Memory(region) => region.copy_in(run.offset, &bytes).map(|()| true),
        Backend::Volume(volume) => Ok(volume.write_at_once(run.offset, &bytes)),
        Backend::Drive(_) | Backend::Absent { .. } => Ok(false),
    };
    let done = done.map_err(|e| status_of(&e))?;
    Ok(if done { AtOnce::Done(Reply::SUCCESS) } else { waits })
}

/// A write that was not looked at where it was dispatched.
///
/// # Errors
/// The status that completes the command.
pub async fn write(
    at: &Attached,
    command: &Write,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<Reply, Status> {
    let run = at.transfer(command.range, sqe)?;
    at.permit_change()?;
    go_on(at, run, command.fua, sqe, slot).await
}

/// A write that has to wait, for its data or for the backend.
///
/// # Errors
/// The status that completes the command.
pub async fn go_on(
    at: &Attached,
    run: Blocks,
    fua: bool,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<Reply, Status> {
    let data = gather(sqe, slot, run.bytes()).await?;
    let _place = slot.place(at, run.bytes()).await;
    let (data, _under_way) = at.enter_with(data, run.range).await;
    // A reservation may have come while the data was on its way.
    at.permit_change()?;
    at.store(run.offset, data, fua).await?;
    Ok(Reply::SUCCESS)
}
