//! Runs a plan: reactors, sessions, workers, and the thread that watches over them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use initiator::WindowUse;
use reactor::{Handle, Nanos, Reactor, now_exact};

use crate::cost::Costs;
use crate::gate::{Gate, Stage};
use crate::job::{Job, Plan, Verify};
use crate::journal::{Acks, History, Journal, Region};
use crate::limits::{CLOSE_NS, PROGRESS_NS};
use crate::session::{Message, Post, Task, hold_files, tell_session};
use crate::share::{Session, Share, shares};
use crate::sizes::Sizes;
use crate::watch::Watch;
use crate::worker::{Before, Outcome};
use crate::{Error, Phase, Progress, Report, sum};

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
    /// Of workers of a job on a reactor.
    posts: usize,
    gate: Arc<Gate>,
    tell: Sender<Message>,
    told: Receiver<Message>,
    costs: Costs,
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
    let _held = hold_files(plan)?;
    let mut plan = plan.clone();
    for at in plan.without_window() {
        plan.jobs[at].window = WindowUse::Off;
    }
    let mut histories = plan.jobs.iter_mut().map(history).collect::<Result<Vec<_>, _>>()?;
    let plan = &plan;
    let (tell, told) = channel();
    let gate = Arc::<Gate>::default();
    let reactors = Reactors::default();
    let costs = Costs::default();
    let mut run = Run { plan, reactors, posts: 0, gate, tell, told, costs, progress };
    let sessions = run.open_sessions()?;
    let mark = stdx::num::low32(u64::try_from(wall_clock() >> 10).unwrap_or(0));
    let (mut all, mut befores, mut journals) = (Vec::new(), Vec::new(), Vec::new());
    for (index, (job, session)) in plan.jobs.iter().zip(&sessions).enumerate() {
        let seed = job.seed ^ (u64::from(mark) << 16);
        let mut mine = shares(job, index, session, seed)?;
        let history = &mut histories[index];
        befores.extend(open_journal(job, &mut mine, history, &mut journals)?);
        all.extend(mine.into_iter().map(|share| (index, share)));
    }
    let torn: Vec<u64> = histories
        .iter()
        .map(|history| history.as_ref().map_or(0, |history| history.torn))
        .collect();
    let mut watch = Watch::new(plan, &all);
    run.start_workers(&sessions, &all, befores, &mut watch)?;
    let ramp = all.iter().map(|(_, share)| share.ramp).max().unwrap_or(0);
    run.costs = Costs::new(now_exact().saturating_add(ramp), plan.probe.clone());
    run.costs.look(now_exact(), watch.completed(), &run.reactors.0);
    run.gate.open(Stage::Load);
    run.watch(&mut watch, Phase::Running, all.len(), |message| {
        matches!(message, Message::LoadDone)
    })?;
    run.costs.end(now_exact(), watch.completed(), &run.reactors.0);
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
    journals.iter().try_for_each(|journal| journal.sync())?;
    let outcomes = outcomes.into_iter().flatten().zip(&all).map(|(o, (job, _))| (*job, o));
    Ok(sum::report(plan, outcomes, &torn, wall_clock(), &run.costs))
}

/// What the journal of a job that checks one says; block size and region of the job become the journal's.
fn history(job: &mut Job) -> Result<Option<History>, Error> {
    let (Verify::Check, Some(path)) = (job.verify, &job.journal) else { return Ok(None) };
    let history = Journal::read(path)?;
    let Region { logical, blocks, first_lba, count } = history.region;
    let block = logical.saturating_mul(blocks);
    job.sizes = Sizes::one(block);
    job.offset = first_lba.saturating_mul(logical.into());
    job.region = Some(count.saturating_mul(block.into()));
    Ok(Some(history))
}

/// What the workers of `job` know before they begin: the journal's word, if it has one. A job that writes one
/// opens it here.
fn open_journal(
    job: &Job,
    shares: &mut [Share],
    history: &mut Option<History>,
    journals: &mut Vec<Arc<Journal>>,
) -> Result<Vec<Before>, Error> {
    let (Some(path), Some(first)) = (&job.journal, shares.first()) else {
        return Ok(shares.iter().map(|_| Before::default()).collect());
    };
    let region = Region {
        logical: first.logical,
        blocks: first.blocks,
        first_lba: first.first_lba,
        count: shares.iter().map(|share| share.count).sum(),
    };
    let mut journal = None;
    if job.verify == Verify::On {
        let (opened, before) = Journal::open(path, region, first.run)?;
        let opened = Arc::new(opened);
        journals.push(Arc::clone(&opened));
        journal = Some(opened);
        *history = Some(before);
    }
    let Some(History { acked, upto, run, region: known, .. }) = history else {
        return Ok(shares.iter().map(|_| Before::default()).collect());
    };
    if *known != region {
        let message = format!(
            "job `{}`: the journal is of blocks of {} bytes, the namespace has {}",
            job.name, known.logical, region.logical
        );
        return Err(Error::Job(message));
    }
    let mut rest = std::mem::take(acked);
    let mut befores = Vec::new();
    for share in shares {
        share.run = *run;
        let after = rest.split_off(stdx::num::usize64(share.count));
        let acks = journal.as_ref().map(|journal| Acks::new(Arc::clone(journal), share.first));
        befores.push(Before { acked: std::mem::replace(&mut rest, after), upto: *upto, acks });
    }
    Ok(befores)
}

impl Run<'_> {
    /// Looks what every job works on.
    fn open_sessions(&mut self) -> Result<Vec<Session>, Error> {
        for (index, job) in self.plan.jobs.iter().enumerate() {
            let handle = self.reactors.on(cpu_of(job, 0), job)?;
            let (job, tell) = (job.clone(), self.tell.clone());
            let _ = handle.spawn(move || tell_session(index, job, tell));
        }
        let mut sessions: Vec<Option<Session>> = vec![None; self.plan.jobs.len()];
        while sessions.iter().any(Option::is_none) {
            if let Message::Session { job, session } = self.next_message()? {
                sessions[job] = Some(session);
            }
        }
        Ok(sessions.into_iter().flatten().collect())
    }

    /// Waits for a message while connecting, which has time limits of its own.
    fn next_message(&mut self) -> Result<Message, Error> {
        let started = now_exact();
        loop {
            match self.told.recv_timeout(Duration::from_nanos(PROGRESS_NS)) {
                Ok(Message::Failed(error)) => return Err(error),
                Ok(message) => return Ok(message),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Stalled(self.plan.patience()));
                }
                Err(RecvTimeoutError::Timeout)
                    if Duration::from_nanos(now_exact() - started) > self.plan.patience() =>
                {
                    return Err(Error::Stalled(self.plan.patience()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let connecting = Progress::connecting(now_exact() - started);
            if (self.progress)(&connecting).is_break() {
                return Err(Error::Stopped);
            }
        }
    }

    /// Connects every job on every reactor that it has workers on.
    fn start_workers(
        &mut self,
        sessions: &[Session],
        all: &[(usize, Share)],
        befores: Vec<Before>,
        watch: &mut Watch,
    ) -> Result<(), Error> {
        let mut posts: Vec<(usize, Option<usize>, Vec<Task>)> = Vec::new();
        let mut queue = 0;
        for (worker, ((job, share), before)) in all.iter().zip(befores).enumerate() {
            queue = if worker > 0 && all[worker - 1].0 == *job { queue + 1 } else { 0 };
            let cpu = cpu_of(&self.plan.jobs[*job], queue);
            let task = Task { worker, share: share.clone(), before, live: watch.live(worker) };
            match posts.iter_mut().find(|(of, on, _)| (*of, *on) == (*job, cpu)) {
                Some((.., tasks)) => tasks.push(task),
                None => posts.push((*job, cpu, vec![task])),
            }
        }
        self.posts = posts.len();
        for (job, cpu, tasks) in posts {
            let handle = self.reactors.on(cpu, &self.plan.jobs[job])?;
            let post = Post {
                job: self.plan.jobs[job].clone(),
                session: sessions[job].clone(),
                tasks,
                gate: Arc::clone(&self.gate),
                tell: self.tell.clone(),
            };
            let _ = handle.spawn(move || post.keep());
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
                Ok(Message::Failed(error)) => return Err(error),
                Ok(mut message) => {
                    left -= usize::from(done(&mut message));
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Stalled(self.plan.patience()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = now_exact();
            self.costs.look(now, watch.completed(), &self.reactors.0);
            next = now + PROGRESS_NS;
            if now < self.costs.due {
                next = next.min(self.costs.due);
            }
            let progress = watch.look(now);
            if watch.stalled(now) {
                return Err(Error::Stalled(self.plan.patience()));
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
        let mut left = self.posts;
        while left > 0 {
            let patience = Duration::from_nanos(deadline.saturating_sub(now_exact()));
            match self.told.recv_timeout(patience) {
                Ok(Message::Closed | Message::Failed(_)) => left -= 1,
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
}
