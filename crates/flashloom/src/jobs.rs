//! Jobs: work that takes long, which the daemon does.

use std::time::Duration;

use api::v1::{Job, JobBytes, JobState, Problem};
use api::value::Size;
use comfy_table::Table;
use control::Client;
use control::client::{Asking, Begun};

use crate::cli::{Global, JobArgs, JobVerb};
use crate::daemon::ask;
use crate::exit::{Exit, Failure, Outcome};
use crate::manage::time;
use crate::output::{facts, or_dash, print, table};
use crate::progress::bar;

/// How often progress is asked for, in seconds. The end of a job is told at once.
const LOOK: u64 = 1;

/// `flashloom job ...`
pub fn job(global: &Global, verb: JobVerb) -> Outcome {
    match verb {
        JobVerb::List => {
            let all = ask(global, async |client| client.jobs().await)?;
            print(global.output, &all, |all| job_table(all))
        }
        JobVerb::Show { id } => {
            let job = ask(global, async |client| client.job(id, 0).await)?;
            print(global.output, &job, job_facts)
        }
        JobVerb::Wait { id, timeout } => {
            let job = ask(global, async |client| wait(&client, id, timeout).await)?;
            print(global.output, &job, job_facts)?;
            if !job.state.is_over() {
                let what = format!("{} is not over yet", job.title());
                return Err(Failure::new(Exit::Failed, what));
            }
            succeeded(job).map(drop)
        }
        JobVerb::Cancel { id } => {
            let job = ask(global, async |client| client.cancel_job(id).await)?;
            print(global.output, &job, job_facts)
        }
    }
}

/// Has the daemon begin a job, waits for its end, and gives what came of it: what it was answered with where it was
/// over soon, else what `outcome` asks for. `None` if nobody is to wait: the job is printed then.
pub fn follow<T, F, O>(
    global: &Global,
    how: &JobArgs,
    begin: impl FnOnce(Client, Asking) -> F,
    outcome: impl FnOnce(Client, Job) -> O,
) -> Outcome<Option<T>>
where
    F: Future<Output = control::client::Result<Begun<T>>>,
    O: Future<Output = control::client::Result<T>>,
{
    let asking = Asking { key: how.request_key.clone(), wait: if how.no_wait { 0 } else { LOOK } };
    let job = match ask(global, |client| begin(client, asking))? {
        Begun::Over(outcome) => return Ok(Some(outcome)),
        Begun::Job(job) => job,
    };
    if how.no_wait {
        print(global.output, &*job, job_facts)?;
        return Ok(None);
    }
    let over = succeeded(ask(global, async |client| wait(&client, job.id, None).await)?)?;
    ask(global, |client| outcome(client, over)).map(Some)
}

/// Waits until a job is over, or for so long, and shows how far it is.
async fn wait(client: &Client, id: u64, limit: Option<Duration>) -> control::client::Result<Job> {
    let progress = bar(1, "{prefix} [{bar:40}] {pos} of {len}: {msg}");
    let begun = reactor::now_exact();
    let waited = || Duration::from_nanos(reactor::now_exact().saturating_sub(begun));
    let mut job = client.job(id, 0).await?;
    while !job.state.is_over() {
        let left = limit.map(|limit| limit.saturating_sub(waited()));
        if left.is_some_and(|left| left.is_zero()) {
            break;
        }
        progress.set_prefix(job.title());
        progress.set_length(job.progress.steps.into());
        progress.set_position(job.progress.done.into());
        let moved = job.progress.bytes.as_ref().map_or_else(String::new, moved);
        progress.set_message(format!("{}{moved}", job.progress.step));
        let seconds = left.map_or(LOOK, |left| LOOK.min(left.as_secs().max(1)));
        job = client.job(id, seconds).await?;
    }
    progress.finish_and_clear();
    Ok(job)
}

/// The failure of a job is that of whoever asked for it.
fn succeeded(job: Job) -> Outcome<Job> {
    let state_now = state(&job);
    match job.error {
        None => Ok(job),
        Some(Problem { message, help, .. }) if job.state == JobState::Interrupted => {
            let what = format!("job {} is {state_now}: {message}", job.id);
            Err(Failure { exit: Exit::Failed, kind: None, message: what, help })
        }
        Some(problem) => Err(problem.into()),
    }
}

fn job_table(all: &[Job]) -> Table {
    let header = ["job", "what", "of", "state", "progress", "asked for by", "at"];
    let mut table = table(&header, &[0]);
    for job in all {
        table.add_row([
            job.id.to_string(),
            job.kind.name().to_owned(),
            job.target.clone(),
            state(job),
            progress(job),
            job.by.clone(),
            or_dash(time(job.created_ms)),
        ]);
    }
    table
}

fn state(job: &Job) -> String {
    let cancelling = if job.cancelling && !job.state.is_over() { ", to be cancelled" } else { "" };
    let goes_on = job.continued_by.map_or_else(String::new, |by| format!(", goes on as job {by}"));
    format!("{}{cancelling}{goes_on}", job.state.name())
}

fn progress(job: &Job) -> String {
    let at = &job.progress;
    match job.state {
        JobState::Queued | JobState::Running => {
            let moved = at.bytes.as_ref().map_or_else(String::new, moved);
            format!("{} of {}: {}{moved}", at.done, at.steps, at.step)
        }
        _ => format!("{} of {}", at.done, at.steps),
    }
}

/// `, 3 GiB of 10 GiB, 1 GiB/s, 7 s left`
fn moved(bytes: &JobBytes) -> String {
    let size = |bytes| Size::new(bytes);
    let left = bytes.left_seconds.map_or_else(String::new, |left| format!(", {left} s left"));
    let (done, all) = (size(bytes.done), size(bytes.all));
    format!(", {done} of {all}, {}/s{left}", size(bytes.per_second))
}

fn job_facts(job: &Job) -> Table {
    let mut rows = vec![
        ("job".to_owned(), job.id.to_string()),
        ("what".to_owned(), job.kind.name().to_owned()),
        ("of".to_owned(), job.target.clone()),
        ("state".to_owned(), state(job)),
        ("progress".to_owned(), progress(job)),
        ("asked for by".to_owned(), job.by.clone()),
        ("at".to_owned(), or_dash(time(job.created_ms))),
        ("over at".to_owned(), or_dash(job.ended_ms.and_then(time))),
        ("request key".to_owned(), or_dash(job.key.as_ref())),
    ];
    rows.extend(job.error.iter().map(|error| ("error".to_owned(), error.to_string())));
    facts(rows)
}
