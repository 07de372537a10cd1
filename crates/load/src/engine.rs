//! Runs a plan: reactors, sessions, workers, and the thread that watches over them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use initiator::{HostIdentity, Options, Remote};
use reactor::{Handle, Nanos, Reactor, now_exact};

use crate::gate::{Gate, Stage};
use crate::job::{Job, Plan};
use crate::limits::{CLOSE_NS, PROGRESS_NS, STALL_NS};
use crate::share::{Session, Share, shares};
use crate::watch::Watch;
use crate::worker::{Live, Outcome, Worker};
use crate::{Error, Phase, Progress, Report, sum};

/// What sessions and workers tell the watching thread.
pub enum Message {
    /// The job's controller is connected, or not.
    Session { job: usize, session: Box<Result<Session, initiator::Error>> },
    /// A worker's queue is connected.
    Ready,
    /// A worker has run its load.
    LoadDone,
    /// A worker is done.
    Finished { worker: usize, outcome: Box<Outcome> },
    /// A job lost its controller or a queue.
    Failed { job: usize, error: initiator::Error },
    /// A session is closed.
    Closed,
}

/// The reactors of a run, stopped when it ends, however it ends.
#[derive(Default)]
struct Reactors(Vec<(Option<usize>, Handle)>);

impl Reactors {
    /// The reactor on `cpu`, started by the first job that wants it.
    fn on(&mut self, cpu: Option<usize>, job: &Job) -> Result<Handle, Error> {
        if let Some((_, handle)) = self.0.iter().find(|(on, _)| *on == cpu) {
            return Ok(handle.clone());
        }
        let name = cpu.map_or_else(|| "load".to_owned(), |cpu| format!("load{cpu}"));
        let config = reactor::Config { cpu, poll: job.poll, name };
        let handle = Reactor::start(config).map_err(|source| Error::Reactor { cpu, source })?;
        self.0.push((cpu, handle.clone()));
        Ok(handle)
    }
}

impl Drop for Reactors {
    fn drop(&mut self) {
        for (_, handle) in &self.0 {
            handle.stop();
        }
        for (_, handle) in &self.0 {
            // A reactor that failed has told so by the messages that did not come.
            let _ = handle.join();
        }
    }
}

/// CPU of queue `queue` of a job.
fn cpu_of(job: &Job, queue: usize) -> Option<usize> {
    if job.cpus.is_empty() { None } else { Some(job.cpus[queue % job.cpus.len()]) }
}

struct Run<'a> {
    plan: &'a Plan,
    reactors: Reactors,
    gate: Arc<Gate>,
    tell: Sender<Message>,
    told: Receiver<Message>,
    progress: &'a mut dyn FnMut(&Progress) -> ControlFlow<()>,
}

/// Nanoseconds since 1970.
fn wall_clock() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

pub fn run(
    plan: &Plan,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Report, Error> {
    plan.check()?;
    let (tell, told) = channel();
    let gate = Arc::<Gate>::default();
    let reactors = Reactors::default();
    let mut run = Run { plan, reactors, gate, tell, told, progress };
    let sessions = run.open_sessions()?;
    let mark = stdx::num::low32(u64::try_from(wall_clock() >> 10).unwrap_or(0));
    let mut all = Vec::new();
    for (index, (job, session)) in plan.jobs.iter().zip(&sessions).enumerate() {
        let seed = job.seed ^ (u64::from(mark) << 16);
        all.extend(shares(job, index, session, seed)?.into_iter().map(|share| (index, share)));
    }
    let mut watch = Watch::new(plan, &all);
    run.start_workers(&sessions, &all, &mut watch)?;
    run.gate.open(Stage::Load);
    run.watch(&mut watch, Phase::Running, all.len(), |message| {
        matches!(message, Message::LoadDone)
    })?;
    run.gate.open(Stage::Verify);
    let mut outcomes: Vec<Option<Box<Outcome>>> = Vec::new();
    outcomes.resize_with(all.len(), || None);
    run.watch(&mut watch, Phase::Verifying, all.len(), |message| match message {
        Message::Finished { worker, outcome } => {
            outcomes[*worker] = Some(std::mem::take(outcome));
            true
        }
        _ => false,
    })?;
    run.close();
    let outcomes = outcomes.into_iter().flatten().zip(&all).map(|(o, (job, _))| (*job, o));
    Ok(sum::report(plan, outcomes, wall_clock()))
}

impl Run<'_> {
    /// Connects every job's controller.
    fn open_sessions(&mut self) -> Result<Vec<Session>, Error> {
        for (index, job) in self.plan.jobs.iter().enumerate() {
            let handle = self.reactors.on(cpu_of(job, 0), job)?;
            let (remote, job) = (remote_of(job), job.clone());
            let (tell, gate) = (self.tell.clone(), Arc::clone(&self.gate));
            let _ = handle.spawn(move || keep_session(index, remote, job, gate, tell));
        }
        let mut sessions: Vec<Option<Session>> = vec![None; self.plan.jobs.len()];
        while sessions.iter().any(Option::is_none) {
            if let Message::Session { job, session } = self.next_message()? {
                sessions[job] = Some((*session).map_err(|source| self.host_error(job, source))?);
            }
        }
        Ok(sessions.into_iter().flatten().collect())
    }

    fn host_error(&self, job: usize, source: initiator::Error) -> Error {
        Error::Host { job: self.plan.jobs[job].name.clone(), source }
    }

    /// Waits for a message while connecting, which has time limits of its own.
    fn next_message(&mut self) -> Result<Message, Error> {
        let started = now_exact();
        loop {
            match self.told.recv_timeout(Duration::from_nanos(PROGRESS_NS)) {
                Ok(Message::Failed { job, error }) => return Err(self.host_error(job, error)),
                Ok(message) => return Ok(message),
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Stalled),
                Err(RecvTimeoutError::Timeout) if now_exact() - started > STALL_NS => {
                    return Err(Error::Stalled);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let connecting = Progress::connecting(now_exact() - started);
            if (self.progress)(&connecting).is_break() {
                return Err(Error::Stopped);
            }
        }
    }

    /// Connects every queue.
    fn start_workers(
        &mut self,
        sessions: &[Session],
        all: &[(usize, Share)],
        watch: &mut Watch,
    ) -> Result<(), Error> {
        let mut queue = 0;
        for (worker, (job, share)) in all.iter().enumerate() {
            // Queue identifiers count from 1 in each job.
            queue = if worker > 0 && all[worker - 1].0 == *job { queue + 1 } else { 0 };
            let owner = &self.plan.jobs[*job];
            let handle = self.reactors.on(cpu_of(owner, queue), owner)?;
            let task = Task {
                worker,
                job: *job,
                qid: stdx::num::u16_of(queue + 1),
                share: share.clone(),
                session: sessions[*job].clone(),
                gate: Arc::clone(&self.gate),
                live: watch.live(worker),
                tell: self.tell.clone(),
            };
            let _ = handle.spawn(move || task.run());
        }
        for _ in all {
            while !matches!(self.next_message()?, Message::Ready) {}
        }
        Ok(())
    }

    /// Waits for `workers` messages that `done` takes, reporting progress meanwhile.
    fn watch(
        &mut self,
        watch: &mut Watch,
        phase: Phase,
        workers: usize,
        mut done: impl FnMut(&mut Message) -> bool,
    ) -> Result<(), Error> {
        let mut left = workers;
        watch.enter(phase, now_exact());
        let mut next: Nanos = now_exact() + PROGRESS_NS;
        while left > 0 {
            let patience = next.saturating_sub(now_exact());
            match self.told.recv_timeout(Duration::from_nanos(patience)) {
                Ok(Message::Failed { job, error }) => return Err(self.host_error(job, error)),
                Ok(mut message) => {
                    left -= usize::from(done(&mut message));
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Stalled),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = now_exact();
            next = now + PROGRESS_NS;
            let progress = watch.look(now);
            if watch.stalled(now) {
                return Err(Error::Stalled);
            }
            if (self.progress)(&progress).is_break() {
                self.gate.stop();
            }
        }
        Ok(())
    }

    /// Shuts the controllers down; one that does not answer any more is left to its keep alive timeout.
    fn close(&mut self) {
        self.gate.open(Stage::Close);
        let deadline = now_exact() + CLOSE_NS;
        let mut left = self.plan.jobs.len();
        while left > 0 {
            let patience = Duration::from_nanos(deadline.saturating_sub(now_exact()));
            match self.told.recv_timeout(patience) {
                Ok(Message::Closed | Message::Failed { .. }) => left -= 1,
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
}

fn remote_of(job: &Job) -> Remote {
    let host =
        job.target.hostnqn.as_deref().map_or_else(HostIdentity::of_machine, HostIdentity::named);
    Remote {
        traddr: job.target.traddr.clone(),
        trsvcid: job.target.trsvcid,
        subnqn: job.target.subnqn.clone(),
        host,
        options: Options {
            header_digest: job.header_digest,
            data_digest: job.data_digest,
            keep_alive: Duration::from_nanos(STALL_NS),
            ..Options::default()
        },
    }
}

/// Connects a job's controller, keeps it alive until the run closes, and shuts it down.
async fn keep_session(
    index: usize,
    remote: Remote,
    job: Job,
    gate: Arc<Gate>,
    tell: Sender<Message>,
) {
    let opened = async {
        let mut controller = remote.connect().await?;
        let namespace = controller.namespace(job.target.nsid).await?;
        let granted = controller.set_queue_count(job.queues).await?;
        let session = Session::new(controller.association().clone(), granted, &namespace)?;
        Ok((controller, session))
    };
    let mut controller = match opened.await {
        Ok((controller, session)) => {
            let _ = tell.send(Message::Session { job: index, session: Box::new(Ok(session)) });
            controller
        }
        Err(error) => {
            let _ = tell.send(Message::Session { job: index, session: Box::new(Err(error)) });
            return;
        }
    };
    let interval = controller.keep_alive_interval().unwrap_or(Duration::MAX);
    loop {
        let closing = async {
            gate.wait(Stage::Close).await;
            true
        };
        let due = async {
            reactor::sleep(interval).await;
            false
        };
        if initiator::race(closing, due).await {
            break;
        }
        if let Err(error) = controller.keep_alive().await {
            let _ = tell.send(Message::Failed { job: index, error });
            return;
        }
    }
    let _ = controller.shut_down().await;
    let _ = tell.send(Message::Closed);
}

/// One worker as it is sent to its reactor.
struct Task {
    worker: usize,
    job: usize,
    qid: u16,
    share: Share,
    session: Session,
    gate: Arc<Gate>,
    live: Arc<Live>,
    tell: Sender<Message>,
}

impl Task {
    async fn run(self) {
        let (job, worker, tell) = (self.job, self.worker, self.tell.clone());
        let message = match self.steps().await {
            Ok(outcome) => Message::Finished { worker, outcome: Box::new(outcome) },
            Err(error) => Message::Failed { job, error },
        };
        let _ = tell.send(message);
    }

    async fn steps(self) -> Result<Outcome, initiator::Error> {
        let Self { qid, share, session, gate, live, tell, .. } = self;
        let (depth, area) = (share.depth, share.area_bytes());
        let queue = session.association.connect_queue(qid, depth, area).await?;
        let mut worker = Worker::new(queue, share, live);
        let _ = tell.send(Message::Ready);
        gate.wait(Stage::Load).await;
        worker.run(|| gate.stopped()).await?;
        let _ = tell.send(Message::LoadDone);
        gate.wait(Stage::Verify).await;
        worker.verify(|| gate.stopped()).await?;
        Ok(worker.finish())
    }
}
