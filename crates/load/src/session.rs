//! A job's controller and the queues of its workers: connected, kept, and connected again when the target
//! comes back.

use std::future::Future;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use initiator::{Association, Controller, HostIdentity, Options, Queue, Remote};
use reactor::{Nanos, now_exact};

use crate::Error;
use crate::engine::Message;
use crate::gate::{Gate, Stage};
use crate::job::Job;
use crate::limits::{RECONNECT_KEEP_ALIVE_NS, RECONNECT_NS, STALL_NS};
use crate::link::Link;
use crate::share::{Session, Share};
use crate::worker::{Before, Fault, Live, Outcome, Worker};

fn remote_of(job: &Job) -> Remote {
    let host = HostIdentity::of(job.target.hostnqn.as_deref(), job.target.hostid);
    let keep_alive = if job.reconnect.is_some() { RECONNECT_KEEP_ALIVE_NS } else { STALL_NS };
    Remote {
        traddr: job.target.traddr.clone(),
        trsvcid: job.target.trsvcid,
        subnqn: job.target.subnqn.clone(),
        host,
        options: Options {
            header_digest: job.header_digest,
            data_digest: job.data_digest,
            keep_alive: Duration::from_nanos(keep_alive),
            ..Options::default()
        },
    }
}

/// What became of a broken connection.
fn gave_up(job: &str, patience: Option<Duration>, source: initiator::Error) -> Error {
    let job = job.to_owned();
    match patience {
        Some(patience) => Error::Away { job, patience, source },
        None => Error::Host { job, source },
    }
}

/// Connects a job's controller, keeps it alive until the run closes, and shuts it down.
pub async fn keep_session(index: usize, job: Job, gate: Arc<Gate>, tell: Sender<Message>) {
    let remote = remote_of(&job);
    let failed = |patience, source| {
        let _ = tell.send(Message::Failed(gave_up(&job.name, patience, source)));
    };
    let (mut controller, session) = match open(&remote, &job).await {
        Ok(opened) => opened,
        Err(error) => return failed(None, error),
    };
    let link = Arc::clone(&session.link);
    let _ = tell.send(Message::Session { job: index, session: session.clone() });
    while let Some(lost) = watch_over(&controller, &link, &gate).await {
        if link.patience.is_none() {
            return failed(None, lost);
        }
        drop(controller);
        controller = match connect_again(&remote, &job, &session).await {
            Ok(controller) => controller,
            Err(error) => return failed(link.patience, error),
        };
        link.mend(controller.association().clone());
    }
    let _ = controller.shut_down().await;
    let _ = tell.send(Message::Closed);
}

async fn open(remote: &Remote, job: &Job) -> Result<(Controller, Session), initiator::Error> {
    let controller = remote.connect().await?;
    let namespace = controller.namespace(job.target.nsid).await?;
    let granted = controller.set_queue_count(job.queues).await?;
    let association = controller.association().clone();
    let session = Session::new(association, granted, &namespace, job.reconnect)?;
    Ok((controller, session))
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
) -> Result<Controller, initiator::Error> {
    let started = now_exact();
    loop {
        let error = match open(remote, job).await {
            Ok((controller, now)) if now.same_namespace(was) => return Ok(controller),
            Ok(_) => initiator::Error::Unsupported("the namespace is not what it was".to_owned()),
            Err(error) => error,
        };
        if is_over(started, was.link.patience) {
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

/// One worker as it is sent to its reactor.
pub struct Task {
    pub worker: usize,
    pub name: String,
    pub qid: u16,
    pub share: Share,
    pub before: Before,
    pub link: Arc<Link>,
    pub gate: Arc<Gate>,
    pub live: Arc<Live>,
    pub tell: Sender<Message>,
}

/// A worker's place in its job.
struct Post {
    qid: u16,
    depth: u16,
    link: Arc<Link>,
    /// The association of the queue in use.
    generation: u64,
    /// When the connection last broke, and how many commands had been answered by then.
    away: Option<(Nanos, u64)>,
}

impl Task {
    pub async fn run(self) {
        let (worker, tell, name) = (self.worker, self.tell.clone(), self.name.clone());
        let patience = self.link.patience;
        let message = match self.steps().await {
            Ok(outcome) => Message::Finished { worker, outcome: Box::new(outcome) },
            Err(Fault::Host(error)) => Message::Failed(gave_up(&name, patience, error)),
            Err(Fault::Journal(error)) => Message::Failed(error.into()),
        };
        let _ = tell.send(message);
    }

    async fn steps(self) -> Result<Outcome, Fault> {
        let Self { qid, share, before, link, gate, live, tell, .. } = self;
        let mut post = Post { qid, depth: share.depth, link, generation: 0, away: None };
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
    async fn connect(&mut self) -> Result<Queue, initiator::Error> {
        let (generation, association): (u64, Association) = self.link.association().await;
        self.generation = generation;
        association.connect_queue(self.qid, self.depth).await
    }

    /// `work`, given up when the association is lost elsewhere. Work can be dropped wherever it waits.
    async fn guard(&self, work: impl Future<Output = Result<(), Fault>>) -> Result<(), Fault> {
        if self.link.patience.is_none() {
            return work.await;
        }
        let lost = async {
            self.link.lost(self.generation).await;
            Err(initiator::Error::Lost("the controller was lost").into())
        };
        initiator::race(work, lost).await
    }

    /// Gives a worker whose connection broke another one.
    async fn mend(&mut self, worker: &mut Worker, fault: Fault) -> Result<(), Fault> {
        let mut error = match fault {
            Fault::Host(error) if self.link.patience.is_some() => error,
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
            self.link.lose(self.generation);
            if is_over(started, self.link.patience) {
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
