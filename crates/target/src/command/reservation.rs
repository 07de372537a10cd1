//! Reservation Register, Acquire, Release and Report (Base 2.1, sections 7.6 to 7.9).

use fabric::payload::Payload;
use nvme::reservation::{
    Acquire, AcquireData, Register, RegisterData, Release, ReleaseData, Report,
};
use nvme::sqe::Sqe;
use nvme::status::Status;
use stdx::num::usize64;

use super::gather::{check_length, gather_list};
use super::{Attached, Reply, Slot};
use crate::limits::TRANSFER_BYTES_MAX;
use crate::reservation::{Command, HostId, Refusal, keep};
use crate::windows::NotEnded;

fn status_of(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Conflict => Status::RESERVATION_CONFLICT.with_dnr(),
        Refusal::InvalidField => Status::INVALID_FIELD.with_dnr(),
        // Nothing more fitting is specified. May be retried: an unregistration makes room.
        Refusal::Full => Status::INTERNAL_ERROR,
    }
}

/// Refuses hosts without a Host Identifier (section 8.1.22): by it reservations tell hosts apart, and all of those would be
/// one.
fn check_host(at: &Attached) -> Result<(), Status> {
    match at.host() {
        HostId(id) if id == [0; 16] => Err(Status::HOST_IDENTIFIER_NOT_INITIALIZED.with_dnr()),
        _ => Ok(()),
    }
}

pub async fn register(
    at: &Attached,
    fields: Register,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<Reply, Status> {
    check_host(at)?;
    let data = gather_list(sqe, slot, size_of::<RegisterData>()).await?;
    let keys = RegisterData::read(&data).map_err(|refusal| refusal.status())?;
    change(at, &Command::register(fields, &keys), slot).await
}

pub async fn acquire(
    at: &Attached,
    fields: Acquire,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<Reply, Status> {
    check_host(at)?;
    let data = gather_list(sqe, slot, size_of::<AcquireData>()).await?;
    let keys = AcquireData::read(&data).map_err(|refusal| refusal.status())?;
    change(at, &Command::acquire(fields, &keys).map_err(status_of)?, slot).await
}

pub async fn release(
    at: &Attached,
    fields: Release,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<Reply, Status> {
    check_host(at)?;
    let data = gather_list(sqe, slot, size_of::<ReleaseData>()).await?;
    let keys = ReleaseData::read(&data).map_err(|refusal| refusal.status())?;
    change(at, &Command::release(fields, &keys).map_err(status_of)?, slot).await
}

async fn change(at: &Attached, command: &Command, slot: &impl Slot) -> Result<Reply, Status> {
    let namespace = at.namespace();
    // Writes that go around this must have been taken, and no more come: none is granted until the change is made.
    let bar = namespace.window.bar();
    if !bar.is_clear() {
        // One that changes nothing ends nothing.
        namespace
            .reservation
            .with(|state| state.clone().execute_from(at.host(), slot.address(), command))
            .map_err(status_of)?;
        let ended = slot.unless_aborted(bar.clear()).await?;
        ended.map_err(|NotEnded| Status::INTERNAL_ERROR)?;
    }
    slot.permit()?;
    // What is kept of a namespace is forgotten with it.
    let in_use = at.use_backend(0, 0)?;
    let effects = namespace.reservation.execute(at.host(), slot.address(), command);
    let effects = effects.map_err(status_of)?;
    drop(bar);
    // Whether or not it can be kept, the change is made: what follows from it does too.
    let kept = keep(namespace).await;
    drop(in_use);
    // New commands of a preempted host are refused already. Those that wait for their data are
    // refused when it has come; those that the backend has are waited for.
    if !effects.abort.is_empty() {
        at.ranges().drain().await;
    }
    if !effects.notices.is_empty() {
        slot.notify(namespace.nsid, &effects.notices);
    }
    kept.map(|()| Reply::SUCCESS)
}

pub async fn report(
    at: &Attached,
    fields: Report,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<Reply, Status> {
    check_host(at)?;
    // Fabrics hosts have 128-bit identifiers, for which the short form has no room.
    if !fields.extended {
        return Err(Status::HOST_IDENTIFIER_INCONSISTENT_FORMAT.with_dnr());
    }
    if fields.bytes > u64::from(TRANSFER_BYTES_MAX) {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    check_length(sqe, fields.bytes)?;
    let _held = slot.hold_to_send(usize64(fields.bytes)).await?;
    let namespace = at.namespace();
    let controllers = slot.controllers(namespace.nsid);
    let mut page = Vec::new();
    namespace.reservation.with(|state| state.report(&controllers, &mut page));
    // What the host did not ask for is cut off, what is not there is zeroes.
    page.resize(usize64(fields.bytes), 0);
    Ok(Reply::with_data(Payload::Bytes(page)))
}
