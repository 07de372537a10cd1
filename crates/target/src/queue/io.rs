//! I/O commands on their queue: where they are dispatched, or in a slot; and what a command may ask of its queue.

use core::cell::Ref;
use core::pin::pin;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nvme::identify::NSID_ALL;
use nvme::opcode::{self, io};
use nvme::status::Status;
use reactor::budget::{Grant, Ledger};
use reactor::buffer::Buffer;

use super::dispatch::{Tried, When, Work};
use super::request::Request;
use super::view::Views;
use crate::admin::Outcome;
use crate::budget::address_owner;
use crate::command::{self, AtOnce, Attached, Begun, Reply, Slot};
use crate::controller::Controller;
use crate::limits::{DRIVE_CHARGE_MIN, DRIVE_SHARED_BYTES, DRIVES_LOOK};
use crate::reservation::{HostId, Notice};

/// Executes what a slot of an I/O queue is given.
pub async fn io_work(controller: Arc<Controller>, views: Rc<Views>, work: Work) {
    match work {
        Work::One(request, _) if request.sqe().opcode == opcode::admin::FABRICS => {
            match controller.execute_fabrics(request.queue().qid(), request.sqe()) {
                Outcome::Complete { dw0, dw1 } => request.complete_result(dw0, dw1),
                Outcome::Disconnect => request.disconnect(),
                Outcome::Failed(status) => request.fail(status),
                Outcome::Data
                | Outcome::AsyncEvent
                | Outcome::Abort { .. }
                | Outcome::KeepReservations { .. }
                | Outcome::AskDrive(_)
                | Outcome::GrantWindow(_)
                | Outcome::EndWindow(_) => {
                    request.fail(Status::INVALID_FIELD.with_dnr());
                }
            }
        }
        Work::One(mut request, begun) => {
            let reply = io_command(&views, &mut request, begun).await;
            request.data_sent().await;
            request.complete(reply);
        }
        Work::Pair(mut first, mut second) => {
            let replies = fused_command(&views, &mut first, &mut second).await;
            first.data_sent().await;
            second.data_sent().await;
            first.complete(replies.0);
            second.complete(replies.1);
        }
    }
}

/// Begins an I/O command, and ends it if it need not wait.
pub fn begin_io(views: &Views, mut request: Request, when: When) -> Tried {
    if views.controller().permit_io().is_err() {
        return Tried::Waits(request, Begun::Nothing);
    }
    let Some(local) = views.get(request.sqe().nsid.get()) else {
        return Tried::Waits(request, Begun::Nothing);
    };
    if when == When::Arrived && command::look_ahead(&local.attached, request.sqe()) {
        return Tried::Later(request);
    }
    let slot = IoSlot { request: &request, views };
    match command::begin(&local.attached, request.sqe(), &slot) {
        AtOnce::Waits(begun) => {
            request.begun_on = Some(Rc::clone(&local.attached));
            Tried::Waits(request, begun)
        }
        AtOnce::UnverifiedRead(lent) => {
            request.count_in(local.counters());
            Tried::UnverifiedRead(request, lent)
        }
        AtOnce::Done(reply) => {
            request.count_in(local.counters());
            request.complete(reply);
            Tried::Done
        }
    }
}

/// Executes one I/O command, from where it was left.
async fn io_command(views: &Views, request: &mut Request, mut begun: Begun) -> Reply {
    let sqe = *request.sqe();
    if let Err(status) = views.controller().permit_io() {
        Reply::failed(status)
    } else if !command::is_supported(sqe.opcode) && !command::is_some_drives(sqe.opcode) {
        Reply::failed(Status::INVALID_OPCODE.with_dnr())
    } else if let Some(local) = views.get(sqe.nsid.get()) {
        if request.begun_on.take().is_some_and(|at| !Rc::ptr_eq(&at, &local.attached)) {
            // Another one has its identifier since, or it has another backend: what was begun is none of that one's.
            begun = Begun::Nothing;
        }
        request.count_in(local.counters());
        let slot = IoSlot { request, views };
        command::execute(&local.attached, &sqe, begun, &slot).await
    } else if sqe.opcode == io::FLUSH && sqe.nsid.get() == NSID_ALL {
        command::flush_all(views.current().iter().map(|local| &*local.attached)).await
    } else {
        Reply::failed(Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr())
    }
}

/// Executes a fused Compare and Write.
async fn fused_command(views: &Views, first: &mut Request, second: &mut Request) -> (Reply, Reply) {
    let failed = |status| (Reply::failed(status), Reply::failed(Status::ABORTED_FAILED_FUSED));
    if let Err(status) = views.controller().permit_io() {
        return failed(status);
    }
    let Some(local) = views.get(first.sqe().nsid.get()) else {
        return failed(Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr());
    };
    first.count_in(local.counters());
    second.count_in(local.counters());
    let (compare, write) = (*first.sqe(), *second.sqe());
    let slots = [&*first, &*second].map(|request| IoSlot { request, views });
    command::compare_and_write(&local.attached, (&compare, &slots[0]), (&write, &slots[1])).await
}

/// What `bytes` under way in a drive count for there: a command takes a drive some time however short it is, and one of
/// any length has to find a place.
fn charge_in_drive(bytes: usize) -> usize {
    bytes.clamp(DRIVE_CHARGE_MIN, DRIVE_SHARED_BYTES / 3)
}

/// What a command may ask of the queue it runs on.
struct IoSlot<'a> {
    request: &'a Request,
    views: &'a Views,
}

impl Slot for IoSlot<'_> {
    fn in_capsule(&self) -> Option<Ref<'_, [u8]>> {
        self.request.in_capsule()
    }

    async fn receive(&self, length: u32, buffer: Buffer) -> Result<Buffer, Status> {
        self.request.receive(length, buffer).await
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.request.has_room(bytes)
    }

    fn copies(&self) -> bool {
        self.request.queue().connection.copies()
    }

    async fn hold(&self, bytes: usize) -> Result<Grant, Status> {
        self.request.hold(bytes).await
    }

    async fn hold_to_send(&self, bytes: usize) -> Result<Grant, Status> {
        self.request.hold_to_send(bytes).await
    }

    fn keep(&self, bytes: usize) -> Grant {
        self.request.keep(bytes)
    }

    async fn work(&self, bytes: usize) -> Result<Grant, Status> {
        self.request.work(bytes).await
    }

    async fn unless_aborted<F: Future>(&self, wait: F) -> Result<F::Output, Status> {
        self.request.unless_aborted(pin!(wait)).await
    }

    async fn place(&self, at: &Attached, bytes: usize) -> Result<Option<Grant>, Status> {
        let share = self.request.queue().share();
        match at.places(|places| share.account_of(places)) {
            Some(account) => {
                let place = self.request.take(account, charge_in_drive(bytes)).await?;
                self.request.permit().map(|()| Some(place))
            }
            None => Ok(None),
        }
    }

    async fn share_of(&self, ledger: &Rc<Ledger>, amount: usize) -> Result<Grant, Status> {
        let account = self.request.queue().share().account_of(ledger);
        self.request.take(&account, amount).await
    }

    async fn until_mended(&self, at: &Attached) -> Result<Rc<Attached>, Status> {
        let (patience, _waits) = self.request.queue().wait_for_drives();
        let waited = || Duration::from_nanos(reactor::now().saturating_sub(self.request.arrived()));
        loop {
            let Some(now) = self.namespace(at.namespace().nsid) else {
                return Err(Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr());
            };
            if now.is_mended(at) {
                return Ok(now);
            }
            if waited() >= patience {
                return Err(now.waited_in_vain());
            }
            self.request.unless_aborted(pin!(reactor::sleep(DRIVES_LOOK))).await?;
        }
    }

    fn permit(&self) -> Result<(), Status> {
        self.request.permit()
    }

    fn permit_entry(&self) -> Result<(), Status> {
        match self.request.queue().is_ending() {
            true => Err(Status::ABORTED_SQ_DELETION),
            false => Ok(()),
        }
    }

    fn namespace(&self, nsid: u32) -> Option<Rc<Attached>> {
        self.views.get(nsid).map(|local| local.attached.clone())
    }

    fn copy_formats_enabled(&self) -> u16 {
        self.views.controller().copy_formats_enabled()
    }

    fn controllers(&self, nsid: u32) -> Vec<(HostId, u16)> {
        self.views.target().attached_controllers(self.views.controller(), nsid)
    }

    fn address(&self) -> IpAddr {
        address_owner(self.views.controller().path().peer.traddr())
    }

    fn notify(&self, nsid: u32, notices: &[Notice]) {
        self.views.target().reservation_notices(self.views.controller(), nsid, notices);
    }
}
