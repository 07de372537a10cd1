//! Write (NVM Command Set 1.1, section 3.3.6).

use engine::{Outcome, Writing};
use nvme::nvm::Write;
use nvme::sqe::Sqe;
use nvme::status::Status;

use super::beyond::{WAITS_FOR_DRIVES, mended};
use super::blocks::Blocks;
use super::gather::{gather, in_capsule, kept};
use super::store::{begin_write, status_of};
use super::{AtOnce, Attached, Begun, Reply, Slot};
use crate::namespace::Backend;

/// What is left of a write whose blocks and rights were looked at.
#[derive(Debug)]
pub struct Rest {
    pub(super) run: Blocks,
    pub(super) fua: bool,
    pub(super) writing: Option<Writing>,
}

/// A write of data in the capsule to memory, or to a volume whose log takes it as it comes.
///
/// # Errors
/// The status that completes the command.
#[inline]
pub fn begin(
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
    let waits = |writing| Ok(AtOnce::Waits(Begun::Write(Rest { run, fua: command.fua, writing })));
    let is_drive = matches!(backend, Backend::Drive(_) | Backend::Passthrough(_));
    if is_drive || !at.ranges().may_enter(run.range) {
        return waits(None);
    }
    let Some(bytes) = in_capsule(sqe, slot, run.bytes())? else { return waits(None) };
    match backend {
        Backend::Memory(region) => {
            region.copy_in(run.offset, &bytes).map_err(|e| status_of(&e))?;
            Ok(AtOnce::Done(Reply::SUCCESS))
        }
        Backend::Volume(volume) => match begin_write(volume, run, &bytes) {
            Ok(Outcome::Done) => Ok(AtOnce::Done(Reply::SUCCESS)),
            Ok(Outcome::Wait(writing)) => waits(Some(writing)),
            Err(status) if status.is(WAITS_FOR_DRIVES) => waits(None),
            Err(status) => Err(status),
        },
        Backend::Drive(_) | Backend::Passthrough(_) | Backend::Absent { .. } => waits(None),
    }
}

/// A write that has to wait, for its data or for the backend, from where it was left. Must be polled first in the turn
/// in which the capsule arrived.
///
/// # Errors
/// The status that completes the command.
pub async fn go_on(
    at: &Attached,
    rest: &mut Rest,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<Reply, Status> {
    let (run, fua) = (rest.run, rest.fua);
    if let Some(writing) = &mut rest.writing {
        let data = match writing.needs_data() {
            true => Some(gather(sqe, slot, run.bytes()).await?),
            false => None,
        };
        // Nobody ran since it was begun: what is in the capsule was still there, and the range is entered at once.
        let _under_way = at.enter(run.range, slot).await?;
        if data.is_some() {
            slot.permit()?;
        }
        at.finish_write(run, writing, data.as_deref().unwrap_or_default()).await?;
        return Ok(Reply::SUCCESS);
    }
    // Data is asked for when it can be kept, but what is in the capsule is there only now.
    let lacks = at.lacks_drives();
    let kept = if lacks { kept(sqe, slot, run.bytes())? } else { None };
    let mended = if lacks { mended(at, slot).await? } else { None };
    let at = mended.as_deref().unwrap_or(at);
    let data = match kept {
        Some(data) => data,
        None => gather(sqe, slot, run.bytes()).await?,
    };
    at.after_lost(&[run.range], slot).await?;
    let _place = slot.place(at, run.bytes()).await?;
    let (data, _under_way) = at.enter_with(data, run.range, slot).await?;
    // A reservation may have come while the data was on its way, and the host may have gone.
    slot.permit()?;
    at.permit_change()?;
    at.store(run.offset, data, fua).await?;
    Ok(Reply::SUCCESS)
}
