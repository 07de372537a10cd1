//! A connection's life: Connect makes it a queue, the queue runs until either side ends it.

#[cfg(test)]
mod tests;

use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

use fabric::controller::{Accepted, Capsule, Connection, Flow};
use fabric::limits::INITIALIZE_TIMEOUT;
use nvme::cqe::Cqe;
use nvme::fabrics::ConnectData;
use nvme::sqe::{DataPointer, Sqe};
use nvme::status::Status;
use stdx::num::u32_of;
use zerocopy::FromBytes;

use crate::admin::run::admin_work;
use crate::budget::Share;
use crate::command::{Begun, charge};
use crate::controller::{Controller, Path};
use crate::fabrics::{ConnectParams, Connected, Refusal, connect};
use crate::listener::ListenerId;
use crate::queue::dispatch::{Dispatcher, Tried, When, Work};
use crate::queue::io::{begin_io, io_work};
use crate::queue::request::Request;
use crate::queue::view::Views;
use crate::queue::{Queue, is_connect};
use crate::registry::Target;

/// How often a controller without a nearer deadline looks at its keep alive timer: the host may
/// have set one meanwhile.
const WATCH: Duration = Duration::from_secs(1);

/// Serves one accepted connection until it ends, and tells when it has become a queue. To be run as a task of the
/// reactor that accepted it; the queue and its commands stay there. May be dropped until it is told.
pub async fn serve_connection(
    target: Arc<Target>,
    accepted: Accepted,
    listener: ListenerId,
    connected_told: impl FnOnce(),
) {
    let (Ok(local), Ok(peer)) = (accepted.local(), accepted.peer()) else { return };
    let path = Path { listener, local, peer };
    let stranger = Share::of_address(peer.traddr());
    let Ok(connection) = Connection::new(accepted, stranger.data.clone(), stranger.turns.clone())
    else {
        return;
    };
    let _closing = Closing(connection.clone());
    let handshake = await_connect(&target, &connection, path, &stranger);
    if let Ok(Some((connected, cid))) = reactor::timeout(INITIALIZE_TIMEOUT, handshake).await {
        connected_told();
        serve_queue(&target, connection.clone(), connected, cid).await;
    }
}

/// Closes a connection however its service ends: also when that is dropped.
struct Closing(Connection);

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
    stranger: &Share,
) -> Option<(Connected, u16)> {
    loop {
        let (mut decided, mut elsewhere) = (None, None);
        let take = |capsule: Capsule<'_>| {
            let outcome = if !capsule.digest_ok {
                Err(Refusal { status: Status::TRANSIENT_TRANSPORT_ERROR, dw0: 0 })
            } else if connection.fetches() && is_elsewhere(capsule.sqe) {
                elsewhere = Some(*capsule.sqe);
                return Flow::Pause;
            } else {
                decide(target, capsule.sqe, capsule.data, path)
            };
            decided = Some((capsule.sqe.cid.get(), outcome));
            Flow::Pause
        };
        connection.receive(take, || {}).await.ok()?;
        if let Some(sqe) = elsewhere {
            let data = fetch_connect(connection, &sqe, stranger).await?;
            decided = Some((sqe.cid.get(), decide(target, &sqe, &data, path)));
        }
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

/// Whether it is a Connect whose data is not in the capsule.
fn is_elsewhere(sqe: &Sqe) -> bool {
    let length = u32_of(size_of::<ConnectData>());
    is_connect(sqe) && sqe.dptr.data() == Some(DataPointer::Transport { length })
}

/// Brings a Connect's data, which is then its host's, and nobody's in particular before.
async fn fetch_connect(connection: &Connection, sqe: &Sqe, stranger: &Share) -> Option<Vec<u8>> {
    let length = size_of::<ConnectData>();
    let _held = stranger.data.take(charge(length)).await;
    let buffer = reactor::buffer::alloc(length).await;
    let transfer = connection.transfer(0, sqe.cid.get(), u32_of(length), buffer);
    Some(transfer.await.ok()?.to_vec())
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
async fn serve_queue(target: &Arc<Target>, connection: Connection, connected: Connected, cid: u16) {
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
        |one, _| Tried::Waits(one, Begun::Nothing),
    );
    run(controller, queue, &dispatcher).await;
    events.abort();
    watch.abort();
}

async fn serve_io(target: &Arc<Target>, controller: &Arc<Controller>, queue: &Rc<Queue>) {
    let views = Views::new(target.clone(), controller.clone(), queue.number());
    let dispatcher = Dispatcher::new(
        queue.clone(),
        |work| io_work(controller.clone(), views.clone(), work),
        |request, when| begin_io(&views, request, when),
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
