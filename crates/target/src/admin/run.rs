//! Admin commands on their queue: the host's data in, the decision, the data out.

use std::sync::Arc;

use fabric::payload::Payload;
use nvme::identify::NSID_ALL;
use nvme::opcode::Direction;
use nvme::sqe::DataPointer;
use nvme::status::Status;
use reactor::budget::Grant;
use stdx::num::usize32;

use super::{AskedDrive, Fault, Outcome};
use crate::command::charge;
use crate::controller::Controller;
use crate::limits::{ADMIN_DATA_BYTES, TRANSFER_BYTES_MAX};
use crate::queue::dispatch::Work;
use crate::queue::request::Request;
use crate::reservation;

/// Executes what a slot of an admin queue is given.
pub async fn admin_work(controller: Arc<Controller>, work: Work) {
    match work {
        Work::One(request, _) => admin_command(&controller, request).await,
        Work::Pair(first, second) => {
            // No admin command is part of a fused operation (Base 2.1, section 3.4.2).
            first.fail(Status::INVALID_FIELD.with_dnr());
            second.fail(Status::INVALID_FIELD.with_dnr());
        }
    }
}

/// Executes one admin command: its data in, the decision, its data out.
async fn admin_command(controller: &Controller, request: Request) {
    let sqe = *request.sqe();
    let mut out = Vec::new();
    let outcome = match admin_room(&request).await {
        Ok(_held) => match ready(controller, &request).await {
            Ok(data) => controller.execute_admin(&sqe, &data, &mut out),
            Err(status) => Outcome::Failed(status),
        },
        Err(status) => Outcome::Failed(status),
    };
    request.data_sent().await;
    match outcome {
        Outcome::Complete { dw0, dw1 } => request.complete_result(dw0, dw1),
        Outcome::Data => request.complete_data(Payload::Bytes(out)),
        Outcome::Failed(status) => request.fail(status),
        Outcome::AsyncEvent => request.park(),
        Outcome::Abort { sqid, cid } => {
            let aborted = match controller.remote_queue(sqid) {
                Some(queue) => queue.abort(cid).await,
                None => false,
            };
            request.complete_result(u32::from(!aborted), 0);
        }
        Outcome::KeepReservations { nsid } => match keep_reservations(controller, nsid).await {
            Ok(()) => request.complete_result(0, 0),
            Err(status) => request.fail(status),
        },
        Outcome::AskDrive(asked) => match ask_drive(controller, &request, asked).await {
            Ok(page) => request.complete_data(Payload::Bytes(page)),
            Err(fault) => request.fail(controller.failed(&sqe, fault)),
        },
        Outcome::GrantWindow(asked) => match controller.grant_window(asked).await {
            Ok(grant) => request.complete_data(Payload::Bytes(grant)),
            Err(fault) => request.fail(controller.failed(&sqe, fault)),
        },
        Outcome::EndWindow(asked) => match controller.end_window(asked).await {
            Ok(()) => request.complete_result(0, 0),
            Err(fault) => request.fail(controller.failed(&sqe, fault)),
        },
        Outcome::Disconnect => request.disconnect(),
    }
}

/// Brings what a command needs to be decided: the host's data, and what a drive says by now.
async fn ready(controller: &Controller, request: &Request) -> Result<Vec<u8>, Status> {
    if let Some(drive) = controller.drive_to_refresh(request.sqe()) {
        drop(request.work(ADMIN_DATA_BYTES).await?);
        drive.refresh_used().await;
    }
    host_data(request).await
}

/// Has a drive say how it is, when it is the host's turn. Who waits for the drive has no part of the work that the core does:
/// a drive that hangs would keep that for seconds, and longer than it is there.
async fn ask_drive(
    controller: &Controller,
    request: &Request,
    asked: AskedDrive,
) -> Result<Vec<u8>, Fault> {
    drop(request.work(ADMIN_DATA_BYTES).await?);
    controller.ask_drive(asked).await
}

async fn keep_reservations(controller: &Controller, nsid: u32) -> Result<(), Status> {
    for namespace in controller.view().iter() {
        if nsid == NSID_ALL || namespace.nsid == nsid {
            reservation::keep(namespace).await?;
        }
    }
    Ok(())
}

/// Waits until the host may have what an admin command brings or returns.
async fn admin_room(request: &Request) -> Result<Option<Grant>, Status> {
    let sqe = request.sqe();
    match (Direction::of(sqe.opcode), sqe.dptr.data()) {
        // Whatever else its capsule has.
        (Direction::HostToController, Some(DataPointer::Transport { .. })) => {
            request.hold(charge(ADMIN_DATA_BYTES)).await.map(Some)
        }
        (Direction::ControllerToHost, _) => {
            let bytes = request.sgl_bytes().min(usize32(TRANSFER_BYTES_MAX));
            request.hold_to_send(bytes).await.map(Some)
        }
        _ => Ok(None),
    }
}

/// Brings the data that the host has for an admin command.
async fn host_data(request: &Request) -> Result<Vec<u8>, Status> {
    let sqe = request.sqe();
    if Direction::of(sqe.opcode) != Direction::HostToController {
        return Ok(Vec::new());
    }
    match sqe.dptr.data() {
        None | Some(DataPointer::Transport { length: 0 }) => Ok(Vec::new()),
        Some(DataPointer::InCapsule { offset: 0, length }) => {
            let bytes = request.in_capsule().filter(|bytes| bytes.len() == usize32(length));
            bytes.map(|b| b.to_vec()).ok_or(Status::DATA_SGL_LENGTH_INVALID.with_dnr())
        }
        Some(DataPointer::InCapsule { .. }) => Err(Status::SGL_OFFSET_INVALID.with_dnr()),
        Some(DataPointer::Transport { length }) => {
            if length > TRANSFER_BYTES_MAX {
                return Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
            }
            // No command that there is brings more, and what there is not needs none.
            if usize32(length) > ADMIN_DATA_BYTES {
                return Ok(Vec::new());
            }
            let buffer = reactor::buffer::alloc(usize32(length)).await;
            Ok(request.receive(length, buffer).await?.to_vec())
        }
    }
}
