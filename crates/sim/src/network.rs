//! Real hosts and targets over a simulated network: `initiator`, `fabric`, `target` and a pool of the engine, with
//! connections that are cut, machines that stop and return, and restarts of either side.
//!
//! Two hosts write to one volume, each to blocks of its own. The one that is troubled has two paths; the other, its
//! neighbour, has one that nothing happens to, and is to be served as if it were alone.

mod trouble;
mod worker;

pub use worker::Truth;

use crate::contents::BLOCK;
use crate::life::{PATIENCE, Run};
use crate::model::Violation;
use crate::plan::Ending;
use crate::store::{Refusal, Store};
use engine::Volume;
use fabric::TransportAddress;
use fabric::controller::Listener;
use initiator::{Error, HostIdentity, Namespace, Options, PathPolicy, Remote};
use nvme::fabrics::{ConnectData, ConnectInvalid};
use nvme::nqn::Nqn;
use reactor::{Handle, Task, random, sleep, spawn, timeout, yield_now};
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use target::listener::{ListenerId, ListenerInfo};
use target::namespace::{Backend, NamespaceSpec};
use target::subsystem::SubsystemSpec;
use target::{Identity, Target};
use worker::{BLOCKS, NEIGHBOUR, WORKERS};

const fn at(machine: u8, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 1, machine)), port)
}

/// The two paths of the host that is troubled, and the neighbour's.
const EAST: SocketAddr = at(1, 4420);
const WEST: SocketAddr = at(2, 4420);
const QUIET: SocketAddr = at(2, 4421);

const SUBSYSTEM: &str = "nqn.2026-11.io.flashloom:simulated";
const VOLUME: &str = "simulated";

/// Times that a host comes and goes in a life that is closed.
const VISITS: u64 = 3;

/// Times in each that its workers begin, and trouble comes while what they sent is under way.
const ROUNDS: u64 = 3;

/// Operations of a worker in each of those.
const STEPS: u64 = 12;

/// How long the neighbour may wait for an answer: nothing is wrong with its path, nor with the drives.
const SERVED: Duration = Duration::from_secs(2);

/// One life of the array: whether it ended in a crash.
pub async fn live(
    run: Rc<Run>,
    truth: Rc<Truth>,
    reactors: Vec<Handle>,
    number: usize,
    ending: Ending,
) -> Result<bool, Violation> {
    run.begin();
    let planted = target::canary::planted();
    for reactor in &reactors {
        let plant = reactor.call(move || async move { target::canary::plant(planted) });
        plant.await.expect("a simulated reactor lives as long as the first");
    }
    let body = body(Rc::clone(&run), truth, reactors.clone(), number, ending);
    let ended = match ending {
        Ending::Killed(after) | Ending::PowerCut(after) => match timeout(after, body).await {
            Ok(result) => result.map(|()| false),
            Err(_) => {
                end_connections(&reactors).await;
                Ok(true)
            }
        },
        _ => body.await.map(|()| false),
    };
    run.end();
    ended
}

fn refused(what: &str) -> impl Fn(Refusal) -> Violation {
    move |refusal| Violation(format!("{what}: {refusal:?}"))
}

async fn body(
    run: Rc<Run>,
    truth: Rc<Truth>,
    reactors: Vec<Handle>,
    number: usize,
    ending: Ending,
) -> Result<(), Violation> {
    run.world.move_to(reactors.clone()).await;
    let store = run.world.open(number).await.map_err(refused("opening"))?;
    if !store.volumes().contains_key(VOLUME) {
        store.create(VOLUME, BLOCKS, BLOCK).await.map_err(refused("creating"))?;
    }
    serve(volume(&store)?, &reactors);
    run.note(format_args!("serves"));
    let is_closed = ending == Ending::Closed;
    let trouble = spawn(trouble::make(Rc::clone(&run)));
    let neighbour = spawn(neighbour(Rc::clone(&run), Rc::clone(&truth)));
    let visits = if is_closed { VISITS } else { u64::MAX };
    for _ in 0..visits {
        visit(&run, &truth).await;
    }
    trouble.abort();
    neighbour.abort();
    let host = attach("after", &[QUIET]).await;
    truth.settle(&run, &host, 0..BLOCKS).await;
    let ended = host.shut_down().await;
    ended.map_err(|error| Violation(format!("ending an association in order: {error}")))?;
    end_connections(&reactors).await;
    let closed = timeout(PATIENCE, store.close(false)).await;
    closed.map_err(|_| Violation("closing is stuck".into()))?.map_err(refused("closing"))
}

fn volume(store: &Store) -> Result<Volume, Violation> {
    match store {
        Store::Array(array) => array.volume(VOLUME).map_err(refused("the volume")),
        Store::Reference(_) => Err(Violation("only the engine has volumes for a target".into())),
    }
}

/// Serves the volume at all addresses, each on a reactor.
fn serve(volume: Volume, reactors: &[Handle]) {
    let made = "a target of one subsystem, with one namespace";
    let target = Target::new(Identity::default());
    let nqn = Nqn::new(SUBSYSTEM).expect(made);
    target.add_subsystem(SubsystemSpec::new(nqn.clone())).expect(made);
    let block = stdx::num::u32_of(BLOCK);
    target.add_namespace(&nqn, &NamespaceSpec::new(Backend::Volume(volume), block)).expect(made);
    for (address, reactor) in [EAST, WEST, QUIET].into_iter().zip(reactors.iter().cycle().skip(1)) {
        let info = ListenerInfo::new(TransportAddress::Tcp(address));
        let listener = target.add_listener(info).expect(made);
        let target = Arc::clone(&target);
        let listening = reactor.spawn(move || accept(target, address, listener));
        listening.expect("a simulated reactor lives as long as the first");
    }
}

async fn accept(target: Arc<Target>, address: SocketAddr, listener: ListenerId) {
    let socket = Listener::bind(TransportAddress::Tcp(address));
    let socket = socket.expect("nobody else has the address");
    while let Ok(accepted) = socket.accept().await {
        let served =
            spawn(target::serve_connection(Arc::clone(&target), accepted, listener, || {}));
        SERVED_HERE.with_borrow_mut(|tasks| tasks.push(served));
    }
}

thread_local! {
    /// The connections that this reactor serves, or did.
    static SERVED_HERE: RefCell<Vec<Task<()>>> = const { RefCell::new(Vec::new()) };
}

/// Ends the target's connections before everything is dropped: a command that is dropped while its connection lives is
/// a defect.
async fn end_connections(reactors: &[Handle]) {
    for reactor in reactors {
        let end = || async {
            SERVED_HERE.take().iter().for_each(Task::abort);
            yield_now().await;
        };
        reactor.call(end).await.expect("a simulated reactor lives as long as the first");
    }
}

/// A host attaches the namespace, as often as that takes.
async fn attach(host: &str, paths: &[SocketAddr]) -> Namespace {
    let options = Options {
        keep_alive: Duration::from_secs(1),
        timeout: Duration::from_secs(1),
        io_timeout: Duration::from_secs(2),
        reconnect_delay: Duration::from_millis(10),
        ctrl_loss: None,
        io_queues: 2,
        queue_size: 16,
        ..Options::default()
    };
    let remote = |path: &SocketAddr| Remote {
        traddr: path.ip().to_string(),
        trsvcid: path.port(),
        subnqn: SUBSYSTEM.to_owned(),
        host: HostIdentity::named(&format!("nqn.2026-11.io.flashloom:{host}")),
        options: options.clone(),
    };
    let remotes: Vec<Remote> = paths.iter().map(remote).collect();
    loop {
        match Namespace::attach_paths(&remotes, 1, PathPolicy::default()).await {
            Ok(namespace) => return namespace,
            // What a network that is cut makes of it: to a queue the controller may have ended with its admin queue.
            Err(
                Error::Transport(_)
                | Error::Timeout { .. }
                | Error::Ended(_)
                | Error::Lost(_)
                | Error::Refused {
                    qid: 1..,
                    invalid: Some(ConnectInvalid { in_data: true, offset: ConnectData::CNTLID_AT }),
                    ..
                },
            ) => {
                sleep(Duration::from_millis(10)).await;
            }
            Err(error) => panic!("{host} cannot attach: {error}"),
        }
    }
}

/// The troubled host comes, finds what it had been told is there, works, and goes: in order, or killed.
async fn visit(run: &Rc<Run>, truth: &Rc<Truth>) {
    let host = attach("troubled", &[EAST, WEST]).await;
    host.outlive().await;
    truth.settle(run, &host, 0..NEIGHBOUR).await;
    run.note(format_args!("has come"));
    for _ in 0..ROUNDS {
        let worker =
            |n| spawn(worker::work(Rc::clone(run), Rc::clone(truth), host.clone(), n, STEPS));
        let workers: Vec<_> = (0..WORKERS).map(worker).collect();
        if random().is_multiple_of(4) {
            sleep(Duration::from_micros(random() % 1000)).await;
            trouble::cut_all(trouble::any());
            workers.iter().for_each(Task::abort);
            run.note(format_args!("is killed"));
            return;
        }
        spawn(trouble::make_soon(Rc::clone(run)));
        for worker in workers {
            worker.await.expect("a worker ends, or what it found is told");
        }
    }
    // Its connections may be cut by then.
    let _ = host.shut_down().await;
    run.note(format_args!("has gone"));
}

/// Is served all the time.
async fn neighbour(run: Rc<Run>, truth: Rc<Truth>) {
    let host = attach("neighbour", &[QUIET]).await;
    host.outlive().await;
    truth.settle(&run, &host, NEIGHBOUR..BLOCKS).await;
    loop {
        let step = worker::step(&run, &truth, &host, WORKERS);
        assert!(timeout(SERVED, step).await.is_ok(), "the neighbour is not served");
        sleep(Duration::from_micros(random() % 100_000)).await;
    }
}
