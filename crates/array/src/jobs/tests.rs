//! Jobs that were cut short, and what goes on with them.

use std::fs;

use super::*;

fn of(kind: JobKind) -> Work {
    let of: PoolDrive = "fast/1".parse().unwrap();
    match kind {
        JobKind::DriveRejoin => Work::FollowRejoin(of),
        JobKind::DriveReplace => Work::UseSpare(of, Uuid::nil()),
        other => panic!("{other:?}"),
    }
}

/// Jobs as they come, in a state directory.
struct Book {
    jobs: Jobs,
    dir: StateDir,
    state: State,
}

impl Book {
    fn begin(&mut self, kind: JobKind) -> Result<(u64, Task)> {
        self.begin_as(kind, false)
    }

    /// The node's own, or somebody's.
    fn begin_as(&mut self, kind: JobKind, is_own: bool) -> Result<(u64, Task)> {
        let asked = Asked { by: "uid 0".to_owned(), key: None, is_async: false, is_own };
        match self.jobs.begin(&self.dir, &self.state, &of(kind), asked)? {
            Begun::New(job, task) => Ok((job.id, task)),
            Begun::Before(job) => panic!("{job:?}"),
        }
    }

    /// One that the daemon's end cuts short in this step.
    fn cut_short(&mut self, kind: JobKind, step: Option<u32>) -> u64 {
        let (id, task) = self.begin(kind).unwrap();
        step.into_iter().for_each(|done| task.step(done, 3, "some").unwrap());
        self.end(&task, Err(Error::new(Kind::Stopping, "the daemon is stopping")));
        id
    }

    fn end(&mut self, task: &Task, result: Result<Made>) {
        self.jobs.end(&self.dir, task, result).unwrap();
    }

    fn continued_by(&self, id: u64) -> Option<u64> {
        self.jobs.listed()[&id].job.continued_by
    }
}

fn book() -> (Book, tempfile::TempDir) {
    let at = tempfile::tempdir().unwrap();
    let dir = StateDir::open(&at.path().join("state")).unwrap();
    let state = dir.load().unwrap();
    let (jobs, _) = Jobs::load(&dir, &state);
    (Book { jobs, dir, state }, at)
}

/// The old drive came back to a place that the new one was not given yet, and whoever had asked for that thought it done.
#[test]
fn a_replacement_goes_on_as_a_return_only_where_the_new_drive_has_the_place() {
    for (step, goes_on) in [(None, false), (Some(0), false), (Some(1), false), (Some(2), true)] {
        let (mut book, _at) = book();
        let cut = book.cut_short(JobKind::DriveReplace, step);
        assert_eq!(super::goes_on(&book.jobs.listed()[&cut].job), goes_on, "{step:?}");
        let (next, _) = book.begin(JobKind::DriveRejoin).unwrap();
        assert_eq!(book.continued_by(cut), goes_on.then_some(next), "{step:?}");
    }
}

/// Redundancy did not come back while the state directory was full.
#[test]
fn what_the_node_does_itself_begins_although_it_cannot_be_written_down() {
    let (mut book, _at) = book();
    let blocker = book.dir.path().join("jobs.json.new");
    fs::create_dir(&blocker).unwrap();
    assert!(book.begin(JobKind::DriveRejoin).is_err());
    let (id, _) = book.begin_as(JobKind::DriveRejoin, true).unwrap();
    assert!(book.jobs.is_unsaved() && book.jobs.listed().contains_key(&id));
    fs::remove_dir(&blocker).unwrap();
    book.jobs.keep(&book.dir, None).unwrap();
    assert!(!book.jobs.is_unsaved());
}

/// A job that could not be written down, and so was not begun, was said to go on with another.
#[test]
fn what_is_not_begun_goes_on_with_nothing() {
    let (mut book, _at) = book();
    let cut = book.cut_short(JobKind::DriveRejoin, None);
    let blocker = book.dir.path().join("jobs.json.new");
    fs::create_dir(&blocker).unwrap();
    book.begin(JobKind::DriveRejoin).unwrap_err();
    assert_eq!(book.continued_by(cut), None);
    fs::remove_dir(&blocker).unwrap();
    let (next, _) = book.begin(JobKind::DriveRejoin).unwrap();
    assert_eq!(book.continued_by(cut), Some(next));
}

/// What was done since is not gone on with by what comes long after.
#[test]
fn what_was_done_again_is_over() {
    let (mut book, _at) = book();
    let cut = book.cut_short(JobKind::DriveReplace, Some(2));
    let (again, task) = book.begin(JobKind::DriveReplace).unwrap();
    book.end(&task, Ok(Made::Nothing));
    book.jobs.change(cut, |job| job.continued_by = None);
    book.begin(JobKind::DriveRejoin).unwrap();
    assert_eq!((book.continued_by(cut), book.continued_by(again)), (None, None));
}
