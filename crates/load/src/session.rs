//! A job's controller and the queues of its workers: connected, kept, and connected again when the target
//! comes back.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use initiator::{Association, Controller, Remote};
use reactor::file::{File, OpenOptions};
use reactor::{Nanos, now_exact};

use crate::Error;
use crate::engine::Message;
use crate::gate::{Gate, Stage};
use crate::job::{Job, Target};
use crate::lane::{FileQueue, Lane};
use crate::limits::{RECONNECT_KEEP_ALIVE_NS, RECONNECT_NS};
use crate::link::Link;
use crate::share::{Session, Share, Via};
use crate::worker::{Before, Fault, Live, Outcome, Worker};

/// How a job connects: one that rides out an absence notices it in time.
fn remote_of(remote: &Remote, job: &Job) -> Remote {
    let mut remote = remote.clone();
    if job.reconnect.is_some() {
        let most = Duration::from_nanos(RECONNECT_KEEP_ALIVE_NS);
        remote.options.keep_alive = remote.options.keep_alive.min(most);
    }
    remote
}

/// What became of a broken connection.
fn gave_up(job: &str, patience: Option<Duration>, source: initiator::Error) -> Error {
    let job = job.to_owned();
    match patience {
        Some(patience) => Error::Away { job, patience, source },
        None => Error::Host { job, source },
    }
}

/// Opens what a job works on, keeps it until the run closes, and closes it.
pub async fn keep_session(index: usize, job: Job, gate: Arc<Gate>, tell: Sender<Message>) {
    match &job.target {
        Target::Namespace { remote, .. } => {
            let remote = remote_of(remote, &job);
            keep_controller(index, remote, &job, &gate, &tell).await;
        }
        Target::File(path) => keep_file(index, path, &job, &gate, &tell).await,
    }
}

async fn keep_file(index: usize, path: &Path, job: &Job, gate: &Gate, tell: &Sender<Message>) {
    let options = OpenOptions { write: job.pattern.writes(), ..OpenOptions::default() };
    let opened = File::open(path, options).and_then(Session::of_file);
    match opened {
        Ok(session) => {
            let _ = tell.send(Message::Session { job: index, session });
            gate.wait(Stage::Close).await;
            let _ = tell.send(Message::Closed);
        }
        Err(source) => {
            let (job, path) = (job.name.clone(), path.to_owned());
            let _ = tell.send(Message::Failed(Error::File { job, path, source }));
        }
    }
}

async fn keep_controller(
    index: usize,
    remote: Remote,
    job: &Job,
    gate: &Gate,
    tell: &Sender<Message>,
) {
    let failed = |patience, source| {
        let _ = tell.send(Message::Failed(gave_up(&job.name, patience, source)));
    };
    let (mut controller, session, link) = match open(&remote, job).await {
        Ok(opened) => opened,
        Err(error) => return failed(None, error),
    };
    let _ = tell.send(Message::Session { job: index, session: session.clone() });
    while let Some(lost) = watch_over(&controller, &link, gate).await {
        if link.patience.is_none() {
            return failed(None, lost);
        }
        drop(controller);
        controller = match connect_again(&remote, job, &session, link.patience).await {
            Ok(controller) => controller,
            Err(error) => return failed(link.patience, error),
        };
        link.mend(controller.association().clone());
    }
    let _ = controller.shut_down().await;
    let _ = tell.send(Message::Closed);
}

async fn open(
    remote: &Remote,
    job: &Job,
) -> Result<(Controller, Session, Arc<Link>), initiator::Error> {
    let controller = remote.connect().await?;
    let namespace = controller.namespace(job.target.nsid()).await?;
    let granted = controller.set_queue_count(job.queues).await?;
    let association = controller.association().clone();
    let link = Arc::new(Link::new(association, job.reconnect));
    let session = Session::new(&link, controller.association(), granted, &namespace)?;
    Ok((controller, session, link))
}

/// What ended the watch over a controller.
enum Ended {
    Closing,
    KeepAliveDue,
    Broken,
}

/// Keeps the controller alive; `None` when the run closes, else what broke, of which the workers know then.
async fn watch_over(controller: &Controller, link: &Link, gate: &Gate) -> Option<initiator::Error> {
    let interval = controller.keep_alive_interval().unwrap_or(Duration::MAX);
    loop {
        let closing = async {
            gate.wait(Stage::Close).await;
            Ended::Closing
        };
        let due = async {
            reactor::sleep(interval).await;
            Ended::KeepAliveDue
        };
        let broken = async {
            link.broken().await;
            Ended::Broken
        };
        match initiator::race(initiator::race(closing, broken), due).await {
            Ended::Closing => return None,
            Ended::Broken => {
                return Some(initiator::Error::Lost("the connection of a queue was lost"));
            }
            Ended::KeepAliveDue => {}
        }
        if let Err(error) = controller.keep_alive().await {
            link.lose_controller();
            return Some(error);
        }
    }
}

/// Makes attempts until the job's patience ends; its error is that of the last one.
async fn connect_again(
    remote: &Remote,
    job: &Job,
    was: &Session,
    patience: Option<Duration>,
) -> Result<Controller, initiator::Error> {
    let started = now_exact();
    loop {
        let error = match open(remote, job).await {
            Ok((controller, now, _)) if now.same_namespace(was) => return Ok(controller),
            Ok(_) => initiator::Error::Unsupported("the namespace is not what it was".to_owned()),
            Err(error) => error,
        };
        if is_over(started, patience) {
            return Err(error);
        }
        reactor::sleep(Duration::from_nanos(RECONNECT_NS)).await;
    }
}

/// Whether who waits since `started` has waited long enough.
fn is_over(started: Nanos, patience: Option<Duration>) -> bool {
    let waited = Duration::from_nanos(now_exact().saturating_sub(started));
    patience.is_none_or(|patience| waited >= patience)
}

fn patience(via: &Via) -> Option<Duration> {
    match via {
        Via::Fabric(link) => link.patience,
        Via::File(_) => None,
    }
}

/// One worker as it is sent to its reactor.
pub struct Task {
    pub worker: usize,
    pub name: String,
    pub qid: u16,
    pub share: Share,
    pub before: Before,
    pub via: Via,
    pub gate: Arc<Gate>,
    pub live: Arc<Live>,
    pub tell: Sender<Message>,
}

/// A worker's place in its job.
struct Post {
    qid: u16,
    depth: u16,
    /// Block and largest command, bytes.
    logical: u32,
    largest: u32,
    via: Via,
    /// How long the target may be away.
    patience: Option<Duration>,
    /// The association of the queue in use.
    generation: u64,
    /// When the connection last broke, and how many commands had been answered by then.
    away: Option<(Nanos, u64)>,
}

impl Task {
    pub async fn run(self) {
        let (worker, tell, name) = (self.worker, self.tell.clone(), self.name.clone());
        let patience = patience(&self.via);
        let message = match self.steps().await {
            Ok(outcome) => Message::Finished { worker, outcome: Box::new(outcome) },
            Err(Fault::Host(error)) => Message::Failed(gave_up(&name, patience, error)),
            Err(Fault::Journal(error)) => Message::Failed(error.into()),
        };
        let _ = tell.send(message);
    }

    async fn steps(self) -> Result<Outcome, Fault> {
        let Self { qid, share, before, via, gate, live, tell, .. } = self;
        let mut post = Post {
            qid,
            depth: share.lane_depth,
            logical: share.logical,
            largest: share.largest(),
            patience: patience(&via),
            via,
            generation: 0,
            away: None,
        };
        let queue = post.connect().await?;
        let mut worker = Worker::new(queue, share, live, before);
        let _ = tell.send(Message::Ready);
        gate.wait(Stage::Load).await;
        while let Err(fault) = post.guard(worker.run(|| gate.stopped())).await {
            post.mend(&mut worker, fault).await?;
        }
        let _ = tell.send(Message::LoadDone);
        gate.wait(Stage::Verify).await;
        while let Err(fault) = post.guard(worker.verify(|| gate.stopped())).await {
            post.mend(&mut worker, fault).await?;
        }
        Ok(worker.finish())
    }
}

impl Post {
    async fn connect(&mut self) -> Result<Lane, initiator::Error> {
        match &self.via {
            Via::Fabric(link) => {
                let (generation, association): (u64, Association) = link.association().await;
                self.generation = generation;
                Ok(Lane::Fabric(association.connect_queue(self.qid, self.depth).await?))
            }
            Via::File(file) => {
                let queue = FileQueue::new(file.clone(), self.logical, self.depth, self.largest);
                Ok(Lane::File(queue.await))
            }
        }
    }

    /// `work`, given up when the association is lost elsewhere. Work can be dropped wherever it waits.
    async fn guard(&self, work: impl Future<Output = Result<(), Fault>>) -> Result<(), Fault> {
        let (Via::Fabric(link), Some(_)) = (&self.via, self.patience) else { return work.await };
        let lost = async {
            link.lost(self.generation).await;
            Err(initiator::Error::Lost("the controller was lost").into())
        };
        initiator::race(work, lost).await
    }

    /// Gives a worker whose connection broke another one.
    async fn mend(&mut self, worker: &mut Worker, fault: Fault) -> Result<(), Fault> {
        let mut error = match fault {
            Fault::Host(error) if self.patience.is_some() => error,
            fault => return Err(fault),
        };
        worker.lose();
        // A target that takes connections and answers nothing is away as well.
        let started = match self.away {
            Some((since, answered)) if answered == worker.answered() => since,
            _ => now_exact(),
        };
        self.away = Some((started, worker.answered()));
        loop {
            if let Via::Fabric(link) = &self.via {
                link.lose(self.generation);
            }
            if is_over(started, self.patience) {
                return Err(error.into());
            }
            match self.connect().await {
                Ok(queue) => {
                    worker.attach(queue);
                    return Ok(());
                }
                Err(again) => error = again,
            }
            reactor::sleep(Duration::from_nanos(RECONNECT_NS)).await;
        }
    }
}
