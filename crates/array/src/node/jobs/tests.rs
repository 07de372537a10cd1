//! Jobs of a node of its own.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use api::v1::{Health, Job, JobState, Kind, NewPool, NewVolume, PollPolicy, Severity};
use api::value::Name;

use crate::events::on_behalf_of;
use crate::jobs::{Task, Work};
use crate::node::{Node, Options, Source};

/// More than any of this takes.
const PATIENCE: Duration = Duration::from_secs(120);

fn start(dir: &Path) -> Arc<Node> {
    let options = Options {
        state_dir: dir.join("state"),
        source: Source::State,
        fresh: false,
        cpus: None,
        poll: Some(PollPolicy::Interrupt),
    };
    let node = Node::start(options).unwrap();
    assert!(node.wait_for_openings(PATIENCE));
    node
}

fn pool(dir: &Path) -> NewPool {
    let mut new: NewPool = serde_json::from_str(r#"{"name": "fast", "drives": []}"#).unwrap();
    let drive = |n| format!("{}/d{n},size=192MiB", dir.display()).parse().unwrap();
    new.drives = (0..2).map(drive).collect();
    new.log_size = Some("16MiB".parse().unwrap());
    new
}

fn volume(name: &str) -> Work {
    let text = format!(r#"{{"name": "{name}", "size": 1048576}}"#);
    let new: NewVolume = serde_json::from_str(&text).unwrap();
    Work::CreateVolume(named("fast"), new)
}

fn named(name: &str) -> Name {
    name.parse().unwrap()
}

fn done(node: &Arc<Node>, work: Work, key: Option<&str>) -> Job {
    let job = node.submit(work, key.map(str::to_owned)).unwrap();
    node.wait_for_job(job.id, PATIENCE).unwrap()
}

/// Whoever lost the answer asked again, and was told of a conflict.
#[test]
fn the_same_key_is_the_same_job_and_a_failed_one_may_be_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir);
    let create = || Work::CreatePool(pool(dir));
    let (one, two) =
        (node.submit(create(), Some("k".into())), node.submit(create(), Some("k".into())));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one.id, two.id);
    let first = node.wait_for_job(one.id, PATIENCE).unwrap();
    assert_eq!((first.state, first.result.as_deref()), (JobState::Done, Some("/v1/pools/fast")));
    assert_eq!(done(&node, create(), Some("k")).id, one.id);
    let other = node.submit(volume("v"), Some("k".into())).unwrap_err();
    assert_eq!(other.kind, Kind::Conflict);
    assert_eq!(
        node.submit(volume("v"), Some("with space".into())).unwrap_err().kind,
        Kind::Invalid
    );
    // Without the key it is another request.
    let again = done(&node, create(), None);
    assert_eq!((again.state, again.error.unwrap().kind), (JobState::Failed, Kind::Conflict));
    // Over a restart, too.
    node.stop();
    drop(node);
    let node = start(dir);
    assert_eq!(done(&node, create(), Some("k")).id, one.id);
    node.export_pool(&named("fast")).unwrap();
    let refused = done(&node, volume("v"), Some("v"));
    assert_eq!(refused.state, JobState::Failed);
    assert!(done(&node, volume("v"), Some("v")).id > refused.id, "it changed nothing");
    node.stop();
}

#[test]
fn jobs_of_a_pool_take_turns_and_one_that_waits_is_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir);
    node.create_pool(&pool(dir)).unwrap();
    let turn = node.turn(&named("fast"), &Task::default()).unwrap();
    let [one, two, three] = ["a", "b", "c"].map(|name| {
        let who = Some(format!("uid {name}"));
        on_behalf_of(who, || node.submit(volume(name), None)).unwrap()
    });
    assert_eq!(node.job(two.id).unwrap().state, JobState::Queued);
    node.cancel_job(two.id).unwrap();
    let cancelled = node.wait_for_job(two.id, PATIENCE).unwrap();
    assert_eq!(cancelled.state, JobState::Cancelled);
    assert_eq!(node.cancel_job(two.id).unwrap_err().kind, Kind::Conflict);
    assert_eq!(node.cancel_job(999).unwrap_err().kind, Kind::NotFound);
    assert_eq!(node.job(one.id).unwrap().state, JobState::Queued);
    drop(turn);
    for id in [one.id, three.id] {
        assert_eq!(node.wait_for_job(id, PATIENCE).unwrap().state, JobState::Done);
    }
    let volumes: Vec<_> = node.volumes().unwrap().into_iter().map(|v| v.name.to_string()).collect();
    assert_eq!(volumes, ["fast/a", "fast/c"]);
    let events = node.events(0);
    let made = events.iter().find(|event| event.message == "volume fast/c made").unwrap();
    assert_eq!(made.by.as_deref(), Some("uid c"));
    node.stop();
}

/// One that looked waited for whoever changed something, as long as a drive took to answer.
#[test]
fn whoever_looks_waits_for_no_command() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir);
    node.create_pool(&pool(dir)).unwrap();
    let ((begun, begins), (go_on, goes_on)) = (channel(), channel::<()>());
    let busy = Arc::clone(&node);
    let hangs = std::thread::spawn(move || {
        busy.owner.ask(move |_| {
            begun.send(()).unwrap();
            goes_on.recv().unwrap();
            Ok(())
        })
    });
    begins.recv().unwrap();
    let status = node.status().unwrap();
    assert_eq!((status.health.health, status.pools["fast"].health), (Health::Ok, Health::Ok));
    assert_eq!(node.pools().unwrap().len(), 1);
    assert!(node.volumes().unwrap().is_empty() && node.jobs().is_empty());
    node.metrics();
    for answer in node.pulse() {
        answer.wait().unwrap();
    }
    go_on.send(()).unwrap();
    hangs.join().unwrap().unwrap();
    assert!(node.status().unwrap().revision > status.revision);
    node.stop();
}

/// What was under way when the daemon was killed was gone without a word.
#[test]
fn a_job_that_was_under_way_is_told_of_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir);
    node.create_pool(&pool(dir)).unwrap();
    let turn = node.turn(&named("fast"), &Task::default()).unwrap();
    let job = node.submit(volume("v"), Some("k".into())).unwrap();
    // As it is when a kill comes now.
    let kept = std::fs::read(dir.join("state/jobs.json")).unwrap();
    drop(turn);
    node.wait_for_job(job.id, PATIENCE).unwrap();
    node.stop();
    drop(node);
    std::fs::write(dir.join("state/jobs.json"), kept).unwrap();
    let node = start(dir);
    let told = node.job(job.id).unwrap();
    assert_eq!(told.state, JobState::Interrupted);
    assert!(told.error.unwrap().help.unwrap().contains("volume list"));
    let is_told = |event: &api::v1::Event| {
        event.severity == Severity::Warning && event.message.contains(&told.target)
    };
    assert!(node.events(0).iter().any(is_told));
    node.stop();
}
