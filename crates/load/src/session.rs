//! What a job works on: looked at before it is shared out, and then kept open for its workers on each reactor.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;

use initiator::{Fencing, Namespace, Options, PathState, Remote, WindowUse};
use reactor::file::{File, OpenOptions};

use crate::Error;
use crate::crew::Crew;
use crate::endpoint::Endpoint;
use crate::gate::{Gate, Stage};
use crate::job::{Job, Plan, Target};
use crate::limits::{IO_DEPTH_MAX, RECONNECT_KEEP_ALIVE_NS, RECONNECT_NS};
use crate::set::Open;
use crate::share::{Session, Share};
use crate::worker::{Before, Fault, Live, Outcome, Worker};

/// What sessions and workers tell the thread that watches over them.
pub enum Message {
    /// It is known what the job works on.
    Session { job: usize, session: Session },
    /// A worker is connected.
    Ready,
    /// A worker has run its load.
    LoadDone,
    /// A worker is done.
    Finished { worker: usize, outcome: Box<Outcome> },
    /// A job lost its connections for good, or its journal.
    Failed(Error),
    /// The workers of a job on one reactor are gone.
    Closed,
}

/// How a job connects. It waits for a target that went away as long as it has patience, and notices in time that
/// it went; a write that comes late is for verification to find, not for a fence to prevent.
fn remotes_of(remotes: &[Remote], job: &Job, change: impl Fn(&mut Options)) -> Vec<Remote> {
    let mut remotes = remotes.to_vec();
    for Remote { options, .. } in &mut remotes {
        options.ctrl_loss = Some(job.reconnect.unwrap_or(Duration::ZERO));
        options.fencing = Fencing::Trusted;
        if job.reconnect.is_some() {
            let most = Duration::from_nanos(RECONNECT_KEEP_ALIVE_NS);
            options.keep_alive = options.keep_alive.min(most);
            options.reconnect_delay = Duration::from_nanos(RECONNECT_NS);
        }
        change(options);
    }
    remotes
}

/// What became of a connection.
fn gave_up(job: &Job, source: initiator::Error) -> Error {
    let name = job.name.clone();
    match job.reconnect {
        Some(patience) => Error::Away { job: name, patience, source },
        None => Error::Host { job: name, source },
    }
}

/// Looks what it is that a job works on.
///
/// # Errors
/// [`Error::Host`], [`Error::File`].
async fn look(job: &Job) -> Result<Session, Error> {
    match &job.target {
        Target::Namespace { remotes, nsid, policy } => {
            let remotes = remotes_of(remotes, job, |options| {
                (options.io_queues, options.write_queues, options.poll_queues) = (1, 0, 0);
                options.queue_size = IO_DEPTH_MAX;
            });
            let failed = |source| Error::Host { job: job.name.clone(), source };
            let namespace =
                Namespace::attach_paths(&remotes, *nsid, *policy).await.map_err(failed)?;
            let session = Session::new(&namespace);
            // The association ends either way.
            let _ = namespace.shut_down().await;
            Ok(session)
        }
        Target::Set { members, claim } => {
            let open = Open::of(&job.name, members, *claim, WindowUse::Off).await?;
            let session = Session::of_set(&open.set);
            // The next one finds that it ended in order, and waits for nothing.
            let _ = open.set.shut_down().await;
            Ok(session)
        }
        Target::File(path) => open(path, job)
            .and_then(Session::of_file)
            .map_err(|source| Error::File { job: job.name.clone(), path: path.clone(), source }),
    }
}

fn open(path: &Path, job: &Job) -> std::io::Result<File> {
    File::open(path, OpenOptions { write: job.pattern.writes(), ..OpenOptions::default() })
}

/// Keeps others from what a plan writes to, while what is returned lives: nothing that is mounted, or served, is
/// overwritten. What cannot be held for another reason is for the job that opens it to tell.
///
/// # Errors
/// [`Error::Job`] when it is in use.
pub fn hold_files(plan: &Plan) -> Result<Vec<std::fs::File>, Error> {
    let written = plan.jobs.iter().filter(|job| job.pattern.writes());
    let paths: BTreeSet<_> = written
        .filter_map(|job| match &job.target {
            Target::File(path) => path.canonicalize().ok(),
            Target::Namespace { .. } | Target::Set { .. } => None,
        })
        .collect();
    let mut held = Vec::new();
    for path in paths {
        match reactor::file::hold(&path) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                return Err(Error::Job(format!(
                    "{} is in use (mounted, a part of another device, or served), and writing to it would \
                     destroy what is there: choose another, or end that use",
                    path.display()
                )));
            }
            other => held.extend(other.ok()),
        }
    }
    Ok(held)
}

/// Tells what job `index` works on.
pub async fn tell_session(index: usize, job: Job, tell: Sender<Message>) {
    let message = match look(&job).await {
        Ok(session) => Message::Session { job: index, session },
        Err(error) => Message::Failed(error),
    };
    let _ = tell.send(message);
}

/// One worker as it is sent to its reactor.
pub struct Task {
    pub worker: usize,
    pub share: Share,
    pub before: Before,
    pub live: Arc<Live>,
}

/// The workers of a job on one reactor, and the association that they share.
pub struct Post {
    pub job: Job,
    pub session: Session,
    pub tasks: Vec<Task>,
    pub gate: Arc<Gate>,
    pub tell: Sender<Message>,
}

impl Post {
    /// Connects, runs the workers, and closes when the run does.
    pub async fn keep(self) {
        let endpoint = match self.open().await {
            Ok(endpoint) => endpoint,
            Err(error) => {
                let _ = self.tell.send(Message::Failed(error));
                return;
            }
        };
        let Self { job, tasks, gate, tell, .. } = self;
        let job = Rc::new(job);
        let lives: Vec<_> = tasks.iter().map(|task| Arc::clone(&task.live)).collect();
        for (at, task) in tasks.into_iter().enumerate() {
            let (endpoint, job) = (endpoint.of_worker(at), Rc::clone(&job));
            let (gate, tell) = (Arc::clone(&gate), tell.clone());
            // One of them tells what all have in common.
            reactor::spawn(task.run(endpoint, job, gate, tell, at == 0));
        }
        match &endpoint {
            Endpoint::Namespace { namespace, window } => {
                let wanted = job.window;
                let kept = async {
                    match window {
                        Some(window) => namespace.keep_window(window, wanted, 0).await,
                        None => std::future::pending().await,
                    }
                };
                let told = initiator::race(kept, tell_absence(namespace, &lives));
                initiator::race(gate.wait(Stage::Close), told).await;
                let _ = namespace.shut_down().await;
            }
            Endpoint::Set(open) => {
                initiator::race(gate.wait(Stage::Close), open.keep_windows(job.window)).await;
                let _ = open.set.shut_down().await;
            }
            Endpoint::File { .. } => gate.wait(Stage::Close).await,
        }
        let _ = tell.send(Message::Closed);
    }

    async fn open(&self) -> Result<Endpoint, Error> {
        if let Target::Set { members, claim } = &self.job.target {
            let open = Open::of(&self.job.name, members, *claim, self.job.window).await?;
            return Ok(Endpoint::Set(open));
        }
        let Target::Namespace { remotes, nsid, policy } = &self.job.target else {
            let logical = self.session.logical;
            let file = self.session.file.clone();
            let file = file.unwrap_or_else(|| unreachable!("a job without a remote has a file"));
            return Ok(Endpoint::File { file, logical });
        };
        let remotes = remotes_of(remotes, &self.job, |options| self.queues(options));
        let failed = |source| Error::Host { job: self.job.name.clone(), source };
        let namespace = Namespace::attach_paths(&remotes, *nsid, *policy).await.map_err(failed)?;
        let (wanted, granted) = (remotes[0].options.queues(), namespace.queue_depths().len());
        if granted < usize::from(wanted) {
            let what = format!(
                "job `{}`: the controller grants {granted} I/O queues, not {wanted}",
                self.job.name
            );
            return Err(Error::Job(what));
        }
        // A job that asks for polled queues has its commands go there.
        let polled = remotes[0].options.poll_queues > 0;
        let window = namespace.open_window(self.job.window).await.map_err(|source| {
            let name = &self.job.name;
            Error::Job(format!("job `{name}`: there is no direct write window: {source}"))
        })?;
        let namespace = if polled { namespace.polled() } else { namespace };
        Ok(Endpoint::Namespace { namespace, window })
    }

    /// A queue for each worker here, its share of the other queues, and each as deep as the workers need it.
    fn queues(&self, options: &mut Options) {
        let here = stdx::num::u16_of(self.tasks.len());
        let share = |queues: u16| (queues * here).div_ceil(self.job.queues);
        options.io_queues = here;
        options.write_queues = share(options.write_queues);
        options.poll_queues = share(options.poll_queues);
        let commands: u32 = self.tasks.iter().map(|task| u32::from(task.share.lane_depth)).sum();
        let queues = [options.write_queues, options.poll_queues].into_iter().filter(|&n| n > 0);
        let least = u32::from(queues.fold(here, u16::min));
        let depth = u16::try_from(commands.div_ceil(least)).unwrap_or(u16::MAX);
        options.queue_size = depth.min(self.session.depth_max);
    }
}

/// Tells the workers whether there is a connection, for ever.
async fn tell_absence(namespace: &Namespace, lives: &[Arc<Live>]) {
    let mut paths = namespace.paths();
    loop {
        let away = !paths.iter().any(|path| path.state == PathState::Live);
        lives.iter().for_each(|live| live.away.store(away, Ordering::Relaxed));
        paths = namespace.paths_changed(&paths).await;
    }
}

impl Task {
    async fn run(
        self,
        endpoint: Endpoint,
        job: Rc<Job>,
        gate: Arc<Gate>,
        tell: Sender<Message>,
        first: bool,
    ) {
        let worker = self.worker;
        let message = match self.steps(endpoint, &gate, &tell, first).await {
            Ok(outcome) => Message::Finished { worker, outcome: Box::new(outcome) },
            Err(Fault::Host(error)) => Message::Failed(gave_up(&job, error)),
            Err(Fault::Journal(error)) => Message::Failed(error.into()),
        };
        let _ = tell.send(message);
    }

    async fn steps(
        self,
        endpoint: Endpoint,
        gate: &Gate,
        tell: &Sender<Message>,
        first: bool,
    ) -> Result<Outcome, Fault> {
        let Self { share, before, live, .. } = self;
        let crew = Crew::new(Worker::new(share, live, before), endpoint.clone());
        let _ = tell.send(Message::Ready);
        gate.wait(Stage::Load).await;
        crew.worker().begin(reactor::now_exact());
        crew.run(|| gate.stopped()).await?;
        let _ = tell.send(Message::LoadDone);
        gate.wait(Stage::Verify).await;
        crew.worker().begin_verifying();
        crew.run(|| gate.stopped()).await?;
        let mut outcome = crew.worker().finish();
        if first {
            outcome.direct_writes = endpoint.direct_writes();
        }
        if let (true, Endpoint::Namespace { namespace, .. }) = (first, &endpoint) {
            outcome.reconnects = namespace.reconnects();
            outcome.card_queues = namespace.card_queues();
            outcome.counters = namespace.counters();
        }
        Ok(outcome)
    }
}
