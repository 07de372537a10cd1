//! A connection's life: Connect makes it a queue, the queue runs until either side ends it.

#[cfg(test)]
mod tests;

use core::cell::Ref;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

use fabric::limits::INITIALIZE_TIMEOUT;
use fabric::payload::Payload;
use fabric::tcp::listen::{Capsule, Connection, Flow};
use nvme::cqe::Cqe;
use nvme::fabrics::ConnectData;
use nvme::opcode::{self, Direction, io};
use nvme::sqe::{DataPointer, Sqe};
use nvme::status::Status;
use reactor::budget::Grant;
use reactor::buffer::Buffer;
use reactor::net::TcpStream;
use stdx::num::usize32;
use zerocopy::FromBytes;

use crate::admin::Outcome;
use crate::budget::Share;
use crate::command::{self, AtOnce, Attached, Reply, Slot, charge};
use crate::controller::{Controller, Path};
use crate::fabrics::{ConnectParams, Connected, Refusal, connect};
use crate::limits::{ADMIN_DATA_BYTES, DRIVE_CHARGE_MIN, DRIVE_SHARED_BYTES, TRANSFER_BYTES_MAX};
use crate::listener::ListenerId;
use crate::queue::Queue;
use crate::queue::dispatch::{Dispatcher, Tried, When, Work};
use crate::queue::request::Request;
use crate::queue::view::Views;
use crate::registry::Target;
use crate::reservation::{self, HostId, Notice};

/// Addresses every namespace.
const NSID_ALL: u32 = u32::MAX;

/// How often a controller without a nearer deadline looks at its keep alive timer: the host may
/// have set one meanwhile.
const WATCH: Duration = Duration::from_secs(1);

/// Serves one accepted connection until it ends, and tells when it has become a queue. To be run as a task of the
/// reactor that owns `stream`; the queue and its commands stay there. May be dropped until it is told.
pub async fn serve_connection(
    target: Arc<Target>,
    stream: TcpStream,
    listener: ListenerId,
    connected_told: impl FnOnce(),
) {
    let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else { return };
    let path = Path { listener, local, peer };
    let stranger = Share::of_address(peer.ip());
    let Ok(connection) = Connection::new(stream, stranger.data.clone(), stranger.turns.clone())
    else {
        return;
    };
    let _closing = Closing(connection.clone());
    let handshake = await_connect(&target, &connection, path);
    if let Ok(Some((connected, cid))) = reactor::timeout(INITIALIZE_TIMEOUT, handshake).await {
        connected_told();
        serve_queue(&target, connection.clone(), connected, cid).await;
    }
}

/// Closes a connection however its service ends: also when that is dropped.
struct Closing(Rc<Connection>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Answers commands until one is a Connect that succeeds; its queue and command identifier.
async fn await_connect(
    target: &Target,
    connection: &Connection,
    path: Path,
) -> Option<(Connected, u16)> {
    loop {
        let mut decided = None;
        let take = |capsule: Capsule<'_>| {
            let outcome = if capsule.digest_ok {
                decide(target, capsule.sqe, capsule.data, path)
            } else {
                Err(Refusal { status: Status::TRANSIENT_TRANSPORT_ERROR, dw0: 0 })
            };
            decided = Some((capsule.sqe.cid.get(), outcome));
            Flow::Pause
        };
        connection.receive(take, || {}).await.ok()?;
        match decided {
            Some((cid, Ok(connected))) => return Some((connected, cid)),
            Some((cid, Err(refusal))) => {
                let mut cqe = Cqe::new(cid, refusal.status);
                cqe.dw0 = refusal.dw0.into();
                connection.respond(&cqe);
            }
            None => {}
        }
    }
}

fn decide(target: &Target, sqe: &Sqe, data: &[u8], path: Path) -> Result<Connected, Refusal> {
    // A command other than Connect has no such data; `connect` says what is wrong with it.
    let empty = [0; size_of::<ConnectData>()];
    let data = if data.is_empty() { &empty } else { data };
    let data = ConnectData::ref_from_bytes(data)
        .map_err(|_| Refusal { status: Status::DATA_SGL_LENGTH_INVALID.with_dnr(), dw0: 0 })?;
    connect(target, &ConnectParams { sqe, data, path, now: reactor::now() })
}

/// Runs a connected queue to its end: no more commands, those that run drained, the lease given back.
async fn serve_queue(
    target: &Arc<Target>,
    connection: Rc<Connection>,
    connected: Connected,
    cid: u16,
) {
    let flow_control = !connected.flow_control_disabled;
    let (cid_of_connect, dw0) = (cid, connected.dw0);
    let lease = Rc::new(connected.lease);
    let Connected { seat, entries, .. } = connected;
    let queue = Queue::new(connection.clone(), lease.clone(), seat, entries, flow_control);
    queue.accept_connect(cid_of_connect, dw0);
    let attendant = {
        let remote = queue.remote.clone();
        let queue = Rc::downgrade(&queue);
        reactor::spawn(async move { remote.attend(queue).await })
    };
    lease.attach(queue.remote.clone());
    if lease.qid() == 0 {
        serve_admin(lease.controller(), &queue).await;
    } else {
        connection.become_io_queue();
        serve_io(target, lease.controller(), &queue).await;
    }
    attendant.abort();
}

async fn serve_admin(controller: &Arc<Controller>, queue: &Rc<Queue>) {
    let events = reactor::spawn(send_events(controller.clone(), queue.clone()));
    let watch = reactor::spawn(keep_alive(controller.clone()));
    let dispatcher = Dispatcher::new(
        queue.clone(),
        |work| admin_work(controller.clone(), work),
        |one, _| Tried::Waits(one),
    );
    run(controller, queue, &dispatcher).await;
    events.abort();
    watch.abort();
}

async fn serve_io(target: &Arc<Target>, controller: &Arc<Controller>, queue: &Rc<Queue>) {
    let views = Views::new(target.clone(), controller.clone());
    let dispatcher = Dispatcher::new(
        queue.clone(),
        |work| io_work(controller.clone(), views.clone(), work),
        |request, when| io_at_once(&views, request, when),
    );
    run(controller, queue, &dispatcher).await;
}

/// Feeds a queue's dispatcher until the connection or the queue ends, then drains it.
async fn run<F, R, A>(controller: &Controller, queue: &Rc<Queue>, dispatcher: &Dispatcher<F, R, A>)
where
    F: Future<Output = ()> + 'static,
    R: Fn(Work) -> F,
    A: Fn(Request, When) -> Tried,
{
    let connection = &queue.connection;
    loop {
        let turn =
            connection.receive(|capsule| dispatcher.take(&capsule), || dispatcher.end_turn());
        let received = unless(turn, queue.ended.wait()).await;
        if dispatcher.took_any() {
            controller.touch(reactor::now());
        }
        if !matches!(received, Some(Ok(()))) || dispatcher.overrun() {
            break;
        }
        if dispatcher.starved() {
            let kept = unless(queue.until_can_keep(), queue.ended.wait()).await;
            if kept.is_none() {
                break;
            }
        }
    }
    queue.abort_waiting();
    connection.fail_transfers();
    dispatcher.drained().await;
    if let Some(disconnect) = queue.disconnect.take() {
        disconnect.complete_result(0, 0);
    }
    connection.finish().await;
}

/// Runs `future` to its end unless `stop` ends first.
async fn unless<F: Future>(future: F, stop: impl Future<Output = ()>) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut stop = pin!(stop);
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        stop.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// Completes Asynchronous Event Requests as events come.
async fn send_events(controller: Arc<Controller>, queue: Rc<Queue>) {
    poll_fn(|cx| {
        controller.set_event_waker(cx.waker().clone());
        while let Some(cid) = controller.next_dropped_request() {
            queue.drop_parked(cid);
        }
        while let Some(cqe) = controller.next_event() {
            queue.complete_parked(cqe);
        }
        Poll::<()>::Pending
    })
    .await;
}

/// Ends the controller when its host has been silent too long (Base 2.1, section 3.9).
async fn keep_alive(controller: Arc<Controller>) {
    let watch = u64::try_from(WATCH.as_nanos()).unwrap_or(u64::MAX);
    loop {
        let next = reactor::now().saturating_add(watch);
        let deadline = controller.keep_alive_deadline().map_or(next, |deadline| deadline.min(next));
        reactor::sleep_until(deadline).await;
        if controller.expired(reactor::now()) {
            return;
        }
    }
}

async fn admin_work(controller: Arc<Controller>, work: Work) {
    match work {
        Work::One(request) => {
            let tail = request.tail();
            admin_command(&controller, request).await;
            tail.end().await;
        }
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
        Ok(_held) => match host_data(&request).await {
            Ok(data) => controller.execute_admin(&sqe, &data, &mut out),
            Err(status) => Outcome::Failed(status),
        },
        Err(status) => Outcome::Failed(status),
    };
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
        Outcome::Disconnect => disconnect(request),
    }
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

/// Ends a queue for its Disconnect, which is completed when no other command of the queue is left: nothing of
/// the queue is processed after that completion (Base 2.1, section 6.4).
fn disconnect(request: Request) {
    let queue = request.queue().clone();
    queue.disconnect.replace(Some(request));
    queue.ended.notify();
}

async fn io_work(controller: Arc<Controller>, views: Rc<Views>, work: Work) {
    match work {
        Work::One(request) if request.sqe().opcode == opcode::admin::FABRICS => {
            match controller.execute_fabrics(request.queue().qid(), request.sqe()) {
                Outcome::Complete { dw0, dw1 } => request.complete_result(dw0, dw1),
                Outcome::Disconnect => disconnect(request),
                Outcome::Failed(status) => request.fail(status),
                Outcome::Data
                | Outcome::AsyncEvent
                | Outcome::Abort { .. }
                | Outcome::KeepReservations { .. } => {
                    request.fail(Status::INVALID_FIELD.with_dnr());
                }
            }
        }
        Work::One(request) => {
            let tail = request.tail();
            io_command(&views, request).await;
            tail.end().await;
        }
        Work::Pair(first, mut second) => {
            // Of the second half the tag is the pair's as long as this lives.
            let (tails, spare) = ([first.tail(), second.tail()], second.take_spare());
            fused_command(&views, first, second).await;
            for tail in tails {
                tail.end().await;
            }
            drop(spare);
        }
    }
}

/// Executes an I/O command that need not wait.
fn io_at_once(views: &Views, mut request: Request, when: When) -> Tried {
    if views.controller().permit_io().is_err() {
        return Tried::Waits(request);
    }
    let Some(local) = views.get(request.sqe().nsid.get()) else { return Tried::Waits(request) };
    if when == When::Arrived && command::look_ahead(&local.attached, request.sqe()) {
        return Tried::Later(request);
    }
    let slot = IoSlot { request: &request, views };
    match command::execute_at_once(&local.attached, request.sqe(), &slot) {
        AtOnce::Waits => Tried::Waits(request),
        AtOnce::Lent(lent) => {
            request.count_in(local.counters());
            Tried::Lent(request, lent)
        }
        AtOnce::Done(reply) => {
            request.count_in(local.counters());
            request.complete(reply);
            Tried::Done
        }
    }
}

/// Executes one I/O command.
async fn io_command(views: &Views, mut request: Request) {
    let sqe = *request.sqe();
    let reply = if let Err(status) = views.controller().permit_io() {
        Reply::failed(status)
    } else if !command::is_supported(sqe.opcode) {
        Reply::failed(Status::INVALID_OPCODE.with_dnr())
    } else if let Some(local) = views.get(sqe.nsid.get()) {
        request.count_in(local.counters());
        let slot = IoSlot { request: &request, views };
        command::execute(&local.attached, &sqe, &slot).await
    } else if sqe.opcode == io::FLUSH && sqe.nsid.get() == NSID_ALL {
        command::flush_all(views.current().iter().map(|local| &*local.attached)).await
    } else {
        Reply::failed(Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr())
    };
    request.complete(reply);
}

/// Executes a fused Compare and Write.
async fn fused_command(views: &Views, mut first: Request, mut second: Request) {
    if let Err(status) = views.controller().permit_io() {
        first.fail(status);
        second.fail(Status::ABORTED_FAILED_FUSED);
        return;
    }
    let Some(local) = views.get(first.sqe().nsid.get()) else {
        first.fail(Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr());
        second.fail(Status::ABORTED_FAILED_FUSED);
        return;
    };
    first.count_in(local.counters());
    second.count_in(local.counters());
    let (compare, write) = (*first.sqe(), *second.sqe());
    let slots = [&first, &second].map(|request| IoSlot { request, views });
    let replies =
        command::compare_and_write(&local.attached, (&compare, &slots[0]), (&write, &slots[1]))
            .await;
    first.complete(replies.0);
    second.complete(replies.1);
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

    async fn place(&self, at: &Attached, bytes: usize) -> Option<Grant> {
        let share = self.request.queue().share();
        let account = at.places(|places| share.account_of(places))?;
        Some(account.take(charge_in_drive(bytes)).await)
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

    fn notify(&self, nsid: u32, notices: &[Notice]) {
        self.views.target().reservation_notices(self.views.controller(), nsid, notices);
    }
}
