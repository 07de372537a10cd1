//! Schedules of a node of its own, by a clock of its own.

use std::path::Path;

use api::v1::{Consent, NewPool, NewSchedule, NewVolume, PollPolicy};

use super::*;
use crate::node::{Options, Source};
use crate::state::late;

mod groups;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);
const HOUR: u64 = 3600;

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

fn make_pool(node: &Node, dir: &Path, volumes: &[&str]) {
    let mut new: NewPool = serde_json::from_str(r#"{"name": "fast", "drives": []}"#).unwrap();
    let drive = |n| format!("{}/d{n},size=192MiB", dir.display()).parse().unwrap();
    new.drives = (0..2).map(drive).collect();
    new.log_size = Some("16MiB".parse().unwrap());
    node.create_pool(&new).unwrap();
    for name in volumes {
        let new = format!(r#"{{"name": "{name}", "size": 1048576}}"#);
        let new: NewVolume = serde_json::from_str(&new).unwrap();
        node.create_volume(&pool(), &new).unwrap();
    }
}

/// A node with a pool of two volumes that have a schedule, and the hour in which it was made.
fn scheduled(dir: &Path, keep: u32) -> (Arc<Node>, u64) {
    let node = start(dir);
    make_pool(&node, dir, &["db", "log"]);
    let new = format!(
        r#"{{"volumes": ["fast/db", "fast/log"], "rules": [{{"every": "1h", "keep": {keep}}}]}}"#
    );
    let new: NewSchedule = serde_json::from_str(&new).unwrap();
    let before = now();
    node.create_schedule(&new).unwrap();
    (node, before - before % HOUR)
}

fn pool() -> Name {
    "fast".parse().unwrap()
}

fn names(node: &Node, of: &str) -> Vec<String> {
    let all = node.snapshots(None, Some(&of.parse().unwrap())).unwrap();
    all.into_iter().map(|snapshot| snapshot.name.snapshot.to_string()).collect()
}

fn named(time: u64) -> String {
    format!("1h-{}", written(time))
}

fn rule(node: &Node) -> Rule {
    let view = node.view();
    view.state.schedules.0.values().next().unwrap().rules.values().next().unwrap().clone()
}

fn told(node: &Node, what: &str) -> usize {
    node.events(0).iter().filter(|event| event.message.contains(what)).count()
}

#[test]
fn each_hour_has_one_run_and_so_many_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (node, hour) = scheduled(dir.path(), 2);
    node.run_due_schedules(&pool(), || hour + HOUR - 1).unwrap();
    assert_eq!(names(&node, "fast/db"), [""; 0]);
    for at in 1..=4 {
        for second in [1, 2, 1800] {
            node.run_due_schedules(&pool(), || hour + at * HOUR + second).unwrap();
        }
    }
    let kept = [named(hour + 3 * HOUR), named(hour + 4 * HOUR)];
    assert_eq!((names(&node, "fast/db"), names(&node, "fast/log")), (kept.to_vec(), kept.to_vec()));
    assert_eq!((rule(&node).made.len(), rule(&node).last), (2, Some(hour + 4 * HOUR)));
    // Seven hours later, after a restart, one makes up for all.
    node.stop();
    drop(node);
    let node = start(dir.path());
    let late = hour + 11 * HOUR + 600;
    node.run_due_schedules(&pool(), || late).unwrap();
    node.run_due_schedules(&pool(), || late + 1).unwrap();
    assert_eq!(names(&node, "fast/db"), [named(hour + 4 * HOUR), named(late)]);
    // The clock comes from far ahead, and goes through the same hour again: nothing stops, nothing is called alike.
    node.run_due_schedules(&pool(), || hour + 4 * HOUR - 7).unwrap();
    assert_eq!(told(&node, "the clock was set back"), 1);
    node.run_due_schedules(&pool(), || hour + 4 * HOUR).unwrap();
    assert_eq!(names(&node, "fast/db"), [named(late), named(hour + 4 * HOUR) + "-2"]);
    node.stop();
}

/// The daemon was killed after the snapshot was taken and before that was written down: it was taken again.
#[test]
fn a_run_that_was_not_written_down_is_not_done_again() {
    let dir = tempfile::tempdir().unwrap();
    let (node, hour) = scheduled(dir.path(), 2);
    node.run_due_schedules(&pool(), || hour + HOUR).unwrap();
    let id = *node.view().state.schedules.0.keys().next().unwrap();
    node.change_rule(id, "1h".parse().unwrap(), move |rule| rule.settled = hour).unwrap();
    node.run_due_schedules(&pool(), || hour + HOUR + 5).unwrap();
    assert_eq!(names(&node, "fast/db"), [named(hour + HOUR)]);
    assert_eq!(rule(&node).settled, hour + HOUR);
    node.stop();
}

#[test]
fn a_run_that_fails_is_told_shown_and_tried_again_at_the_next_time() {
    let dir = tempfile::tempdir().unwrap();
    let (node, hour) = scheduled(dir.path(), 2);
    for at in 1..=2 {
        late::refuse(node.state_dir());
        node.run_due_schedules(&pool(), || hour + at * HOUR).unwrap();
        node.run_due_schedules(&pool(), || hour + at * HOUR + 1).unwrap();
        let rule = rule(&node);
        assert_eq!((rule.failed, rule.last, rule.made.len()), (at, None, 0));
        assert!(rule.error.unwrap().contains("state.json"));
        let found = node.health().unwrap().findings;
        assert!(found.iter().any(|it| it.subject == "schedule of fast/db, fast/log"), "{found:?}");
    }
    assert_eq!(told(&node, "no snapshot was taken"), 1, "the same again is not told again");
    assert_eq!(names(&node, "fast/db"), [""; 0]);
    node.run_due_schedules(&pool(), || hour + 3 * HOUR).unwrap();
    assert_eq!((rule(&node).failed, rule(&node).error), (2, None));
    assert!(!node.health().unwrap().findings.iter().any(|it| it.subject.starts_with("schedule")));
    assert_eq!(names(&node, "fast/log"), [named(hour + 3 * HOUR)]);
    node.stop();
}

#[test]
fn a_schedule_waits_for_its_pool_and_goes_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (node, hour) = scheduled(dir.path(), 2);
    node.export_pool(&pool()).unwrap();
    for second in 0..3 {
        assert!(node.pools_with_due(hour + 2 * HOUR + second).unwrap().is_empty());
    }
    assert_eq!(told(&node, "waits, and makes up for one run then"), 1);
    let shown = node.schedule(&"fast/log".parse().unwrap()).unwrap();
    assert!(shown.problem.unwrap().contains("no pool fast"));
    let drives = [0, 1].map(|n| format!("{}/d{n}", dir.path().display()));
    let from = serde_json::json!({ "drives": drives });
    let from = serde_json::from_value(from).unwrap();
    let name = node.import_pool(&from).unwrap().name;
    let now = hour + 5 * HOUR + 300;
    assert_eq!(node.pools_with_due(now).unwrap(), BTreeSet::from([name.clone()]));
    node.run_due_schedules(&name, || now).unwrap();
    assert_eq!(names(&node, &format!("{name}/db")), [named(now)]);
    assert_eq!(node.schedules(Some(&name)).unwrap().len(), 1);
    node.delete_pool(&name, Consent::FORCE).unwrap();
    assert!(node.schedules(None).unwrap().is_empty());
    assert_eq!(told(&node, "dropped with it"), 1);
    node.stop();
}
