//! Jobs of a node of its own.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use api::v1::{Consent, Health, Job, JobState, Kind, NewPool, NewVolume, PollPolicy, Severity};
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

/// As whoever waits for its end asks.
fn submit(node: &Arc<Node>, work: Work, key: Option<&str>) -> crate::Result<Job> {
    node.submit(work, key.map(str::to_owned), false)
}

fn done(node: &Arc<Node>, work: Work, key: Option<&str>) -> Job {
    let job = submit(node, work, key).unwrap();
    node.wait_for_job(job.id, PATIENCE).unwrap()
}

/// Whoever lost the answer asked again, and was told of a conflict.
#[test]
fn the_same_key_is_the_same_job_and_a_failed_one_may_be_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir);
    let create = || Work::CreatePool(pool(dir));
    let (one, two) = (submit(&node, create(), Some("k")), submit(&node, create(), Some("k")));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one.id, two.id);
    let first = node.wait_for_job(one.id, PATIENCE).unwrap();
    assert_eq!((first.state, first.result.as_deref()), (JobState::Done, Some("/v1/pools/fast")));
    assert_eq!(done(&node, create(), Some("k")).id, one.id);
    let other = submit(&node, volume("v"), Some("k")).unwrap_err();
    assert_eq!(other.kind, Kind::Conflict);
    assert_eq!(submit(&node, volume("v"), Some("with space")).unwrap_err().kind, Kind::Invalid);
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
        on_behalf_of(who, || submit(&node, volume(name), None)).unwrap()
    });
    assert_eq!(node.job(two.id).unwrap().state, JobState::Queued);
    node.cancel_job(two.id).unwrap();
    let cancelled = node.wait_for_job(two.id, PATIENCE).unwrap();
    assert_eq!(cancelled.state, JobState::Cancelled);
    let error = node.cancel_job(two.id).unwrap_err();
    assert_eq!(error.kind, Kind::Conflict);
    assert!(error.help.unwrap().contains(&format!("`flashloom job show {}`", two.id)));
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
    node.stop();
}

/// It grew with every command: whoever watched it looked again and again at what was as before.
#[test]
fn the_revision_grows_with_changes_and_with_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir);
    node.create_pool(&pool(dir)).unwrap();
    let revision = || node.status().unwrap().revision;
    let look = || {
        let looking = Arc::clone(&node);
        let looks = async move { looking.look_at_space().await.unwrap() };
        reactor::run(reactor::Config::default(), looks).unwrap();
        node.keep_events().unwrap();
        node.finish_changes().unwrap();
        node.open_late_pools().unwrap();
        assert!(node.wait_for_openings(PATIENCE));
    };
    // What is there is found out first.
    look();
    let before = revision();
    look();
    assert_eq!(revision(), before);
    done(&node, volume("v"), None);
    let with_volume = revision();
    assert!(with_volume > before);
    node.add_subsystem(serde_json::from_str(r#"{"nqn": "nqn.2026-11.io.flashloom:s"}"#).unwrap())
        .unwrap();
    let with_subsystem = revision();
    assert!(with_subsystem > with_volume);
    std::fs::remove_file(dir.join("d0")).unwrap();
    look();
    node.export_pool(&named("fast")).unwrap();
    assert!(revision() > with_subsystem);
    node.stop();
}

fn file_of_jobs(dir: &Path) -> Option<serde_json::Value> {
    let text = std::fs::read(dir.join("state/jobs.json")).ok()?;
    Some(serde_json::from_slice(&text).unwrap())
}

/// Each change of a volume wrote the list of all jobs, twice, and waited for the disk.
#[test]
fn what_is_done_in_moments_is_not_written_down_and_what_takes_long_is() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir);
    node.create_pool(&pool(dir)).unwrap();
    done(&node, volume("a"), None);
    let first = file_of_jobs(dir).unwrap();
    assert_eq!(first["jobs"].as_array().unwrap().len(), 0, "but that its number was given");
    done(&node, volume("b"), None);
    assert_eq!(file_of_jobs(dir).unwrap(), first);
    // Nobody waits for this one: its number is all that is known of it.
    let told = node.submit(volume("c"), None, true).unwrap();
    node.wait_for_job(told.id, PATIENCE).unwrap();
    let turn = node.turn(&named("fast"), &Task::default()).unwrap();
    let long = submit(&node, volume("d"), None).unwrap();
    assert_eq!(file_of_jobs(dir).unwrap()["jobs"].as_array().unwrap().len(), 1);
    // As the daemon does, once it takes long.
    while !node.has_jobs_to_keep() {
        std::thread::yield_now();
    }
    node.keep_jobs().unwrap();
    assert!(!node.has_jobs_to_keep());
    let kept = file_of_jobs(dir).unwrap();
    assert_eq!(
        (&kept["jobs"][0]["job"]["id"], &kept["jobs"][1]["job"]["id"]),
        (&told.id.into(), &long.id.into())
    );
    drop(turn);
    node.wait_for_job(long.id, PATIENCE).unwrap();
    let next = node.job(long.id).unwrap().id + 1;
    node.stop();
    drop(node);
    let node = start(dir);
    let ids: Vec<_> = node.jobs().iter().map(|job| (job.id, job.state)).collect();
    assert_eq!(ids, [(told.id, JobState::Done), (long.id, JobState::Done)]);
    // No number is given twice.
    assert_eq!(done(&node, volume("e"), None).id, next);
    node.stop();
}

/// A request that is to be known again, and cannot be written down, is not begun; what need not be goes on.
#[test]
fn a_state_directory_that_refuses_keeps_nobody_from_brief_changes() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir);
    node.create_pool(&pool(dir)).unwrap();
    let in_the_way = dir.join("state/jobs.json.new");
    std::fs::create_dir(&in_the_way).unwrap();
    let refused = submit(&node, volume("a"), Some("k")).unwrap_err();
    assert!(refused.kind == Kind::Failed && refused.help.is_some(), "{refused}");
    assert!(node.jobs().is_empty() && node.volumes().unwrap().is_empty());
    assert_eq!(done(&node, volume("b"), None).state, JobState::Done);
    // What came of one that is written down cannot be: it is known all the same, and written down later.
    std::fs::remove_dir(&in_the_way).unwrap();
    let turn = node.turn(&named("fast"), &Task::default()).unwrap();
    let job = submit(&node, volume("c"), Some("k")).unwrap();
    std::fs::create_dir(&in_the_way).unwrap();
    drop(turn);
    assert_eq!(node.wait_for_job(job.id, PATIENCE).unwrap().state, JobState::Done);
    let said = |node: &Node| {
        let events = node.events(0);
        events.iter().filter(|event| event.message.contains("not written down")).count()
    };
    assert!(node.has_jobs_to_keep());
    while said(&node) == 0 {
        std::thread::yield_now();
    }
    node.keep_jobs().unwrap();
    assert_eq!(said(&node), 1, "once");
    std::fs::remove_dir(&in_the_way).unwrap();
    node.keep_jobs().unwrap();
    assert!(!node.has_jobs_to_keep());
    let kept = file_of_jobs(dir).unwrap();
    assert_eq!(kept["jobs"][0]["job"]["state"], "done", "{kept}");
    node.stop();
}

/// Hosts wait for the daemon to start, whatever somebody did to the list of jobs.
#[test]
fn a_list_of_jobs_that_is_none_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir);
    node.create_pool(&pool(dir)).unwrap();
    done(&node, volume("v"), Some("k"));
    node.stop();
    drop(node);
    let file = dir.join("state/jobs.json");
    let whole = std::fs::read(&file).unwrap();
    let huge = br#"{"version": 1, "next": 18446744073709551615, "jobs": []}"#;
    for damage in [&whole[..whole.len() / 2], b"", b"\xff\x00", huge, br#"{"version": 2}"#] {
        std::fs::write(&file, damage).unwrap();
        let node = start(dir);
        let aside = dir.join("state/jobs.json.damaged");
        assert_eq!(std::fs::read(&aside).unwrap(), damage);
        let told = node.events(0);
        assert!(told.iter().any(|event| event.message.contains("jobs.json.damaged")), "{told:?}");
        assert!(node.jobs().is_empty());
        assert_eq!(done(&node, volume("v"), Some("k")).state, JobState::Failed, "it is there");
        node.stop();
        drop(node);
        std::fs::remove_file(&aside).unwrap();
    }
    std::fs::write(&file, &whole).unwrap();
    let node = start(dir);
    assert_eq!(done(&node, volume("v"), Some("k")).state, JobState::Done);
    node.stop();
}

/// A pool that was there before is not what a job had made that was cut short.
#[test]
fn what_became_of_a_job_is_not_guessed_from_what_was_there_before() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir);
    node.create_pool(&pool(dir)).unwrap();
    let refused = done(&node, Work::CreatePool(pool(dir)), Some("again"));
    let gone = done(&node, Work::ExportPool(named("nothing")), Some("gone"));
    assert_eq!((refused.state, gone.state), (JobState::Failed, JobState::Failed));
    node.stop();
    drop(node);
    // As they are when a kill comes before their ends.
    let mut kept = file_of_jobs(dir).unwrap();
    for record in kept["jobs"].as_array_mut().unwrap() {
        record["job"]["state"] = "queued".into();
        record["job"].as_object_mut().unwrap().remove("error");
    }
    std::fs::write(dir.join("state/jobs.json"), kept.to_string()).unwrap();
    let node = start(dir);
    for id in [refused.id, gone.id] {
        assert_eq!(node.job(id).unwrap().state, JobState::Interrupted);
    }
    node.stop();
}

/// Scripts that make many volumes made the node forget the keys of others.
#[test]
fn keys_are_not_forgotten_for_what_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir);
    let gone =
        |key| done(&node, Work::DeleteVolume("no/v".parse().unwrap(), Default::default()), key);
    node.create_pool(&pool(dir)).unwrap();
    let keyed = done(&node, volume("v"), Some("k"));
    for _ in 0..crate::limits::JOBS_KEPT + 8 {
        gone(None);
    }
    assert_eq!(node.jobs().len(), crate::limits::JOBS_KEPT + 1);
    assert_eq!(done(&node, volume("v"), Some("k")).id, keyed.id);
    node.stop();
}

/// One that was refused in its second half was said to have changed nothing.
#[test]
fn a_change_that_is_half_done_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir);
    node.create_pool(&pool(dir)).unwrap();
    done(&node, volume("a"), None);
    done(&node, volume("b"), None);
    let both = serde_json::from_str(r#"{"size": 2097152, "name": "b"}"#).unwrap();
    let job = done(&node, Work::ChangeVolume("fast/a".parse().unwrap(), both, Consent::NONE), None);
    let told = job.error.unwrap().message;
    assert!(
        job.state == JobState::Failed && told.contains("has 2 MiB now, but is not renamed"),
        "{told}"
    );
    let volume = node.volume(&"fast/a".parse().unwrap()).unwrap();
    assert_eq!(volume.size.bytes(), 2 << 20);
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
    let job = submit(&node, volume("v"), Some("k")).unwrap();
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

/// It went on without its key: whoever asked again was told that there is no such pool.
#[test]
fn a_deletion_that_goes_on_after_a_restart_is_the_one_that_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir);
    node.create_pool(&pool(dir)).unwrap();
    let turn = node.turn(&named("fast"), &Task::default()).unwrap();
    let delete = || Work::DeletePool(named("fast"), Consent::FORCE);
    submit(&node, delete(), Some("k")).unwrap();
    // As they are when a kill comes as it is begun.
    let [state, jobs] = ["state", "jobs"].map(|name| dir.join(format!("state/{name}.json")));
    let kept = std::fs::read(&jobs).unwrap();
    let mut begun: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&state).unwrap()).unwrap();
    begun["pools"]["fast"]["deleting"] = true.into();
    drop(turn);
    node.stop();
    drop(node);
    std::fs::write(jobs, kept).unwrap();
    std::fs::write(state, begun.to_string()).unwrap();
    let node = start(dir);
    let again = done(&node, delete(), Some("k"));
    assert_eq!(again.state, JobState::Done, "{again:?}");
    assert!(node.pools().unwrap().is_empty());
    node.stop();
}
