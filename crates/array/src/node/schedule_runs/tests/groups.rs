//! Schedules of groups, whose members come and go between the runs.

use api::value::GroupPath;

use super::*;

fn group(text: &str) -> GroupPath {
    text.parse().unwrap()
}

fn json<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap()
}

/// A node with a pool of three volumes, of which a group has two, and a schedule of that which keeps two runs; and the hour
/// in which it was made.
fn grouped(dir: &Path) -> (Arc<Node>, u64) {
    let node = start(dir);
    make_pool(&node, dir, &["db", "log", "web"]);
    let new = r#"{"name": "fast/app", "volumes": ["fast/db", "fast/log"]}"#;
    node.create_group(&json(new)).unwrap();
    let new: NewSchedule =
        json(r#"{"volumes": ["fast/app"], "rules": [{"every": "1h", "keep": 2}]}"#);
    let before = now();
    let made = node.create_schedule(&new).unwrap();
    assert_eq!(made.group, Some(group("fast/app")));
    assert_eq!(made.volumes.len(), 2);
    let again = node.create_schedule(&new).unwrap_err();
    assert!(again.context.contains("group fast/app has a schedule"), "{again}");
    (node, before - before % HOUR)
}

/// How many of the schedule's snapshots there are of `db`, `log` and `web`.
fn counts(node: &Node) -> [usize; 3] {
    ["fast/db", "fast/log", "fast/web"].map(|of| names(node, of).len())
}

fn former(node: &Node) -> usize {
    let view = node.view();
    let of = view.state.schedules.0.values().find_map(|of| of.group.as_ref()).unwrap();
    of.former.len()
}

#[test]
fn each_run_is_of_the_volumes_that_the_group_has_by_then() {
    let dir = tempfile::tempdir().unwrap();
    let (node, hour) = grouped(dir.path());
    let ran = |node: &Arc<Node>, at: u64| {
        node.run_due_schedules(&pool(), || hour + at * HOUR).unwrap();
        counts(node)
    };
    // A volume may have one of its own beside that of its group.
    let own: NewSchedule =
        json(r#"{"volumes": ["fast/db"], "rules": [{"every": "1d", "keep": 1}]}"#);
    assert_eq!(node.create_schedule(&own).unwrap().group, None);
    let volume = "fast/db".parse().unwrap();
    assert_eq!(node.schedule(&volume).unwrap().volumes, std::slice::from_ref(&volume));
    node.delete_schedule(&volume, Consent::FORCE).unwrap();
    assert_eq!(ran(&node, 1), [1, 1, 0]);
    let change = r#"{"name": "shop", "add": ["fast/web"], "remove": ["fast/log"]}"#;
    node.change_group(&group("fast/app"), &json(change)).unwrap();
    assert_eq!(ran(&node, 2), [2, 1, 1]);
    assert_eq!(names(&node, "fast/web"), [named(hour + 2 * HOUR)]);
    let shown = node.schedule(&"fast/shop".parse().unwrap()).unwrap();
    assert_eq!(shown.group, Some(group("fast/shop")));
    assert!(shown.volumes.iter().map(ToString::to_string).eq(["fast/db", "fast/web"]));
    assert!(node.schedule(&"fast/app".parse().unwrap()).is_err());
    // One that is made by hand is nobody's to delete; what the rule made of who left is its own.
    node.take_snapshots(&json(r#"{"names": ["fast/log@1h-hand"]}"#)).unwrap();
    assert_eq!(former(&node), 1);
    assert_eq!(ran(&node, 3), [2, 1, 2]);
    assert_eq!((names(&node, "fast/log"), former(&node)), (vec!["1h-hand".to_owned()], 0));
    // Over a restart it is known what is whose.
    node.stop();
    drop(node);
    let node = start(dir.path());
    assert_eq!(ran(&node, 4), [2, 1, 2]);
    assert_eq!(names(&node, "fast/db"), [named(hour + 3 * HOUR), named(hour + 4 * HOUR)]);
    assert_eq!(told(&node, "schedule of group fast/shop, every 1h: snapshots fast/db@1h-"), 3);
    node.stop();
}

#[test]
fn what_a_run_of_a_group_made_is_kept_whole_while_hosts_have_some_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let (node, hour) = grouped(dir.path());
    let ran = |at: u64| {
        node.run_due_schedules(&pool(), || hour + at * HOUR).unwrap();
        counts(&node)
    };
    ran(1);
    let first = format!("fast/log@{}", named(hour + HOUR)).parse().unwrap();
    let nqn = "nqn.2026-11.io.flashloom:s";
    let mapping = format!(r#"{{"subsystem": "{nqn}", "allow_any_host": true}}"#);
    node.map_snapshot(&first, json(&mapping)).unwrap();
    assert_eq!([ran(2), ran(3), ran(4)], [[2, 2, 0], [3, 3, 0], [3, 3, 0]]);
    assert_eq!(told(&node, "is beyond the 2 that are kept"), 1);
    node.unmap_snapshot(&first, Consent::FORCE).unwrap();
    assert_eq!(ran(5), [2, 2, 0]);
    node.stop();
}

#[test]
fn a_schedule_of_a_group_waits_without_volumes_and_goes_with_the_group() {
    let dir = tempfile::tempdir().unwrap();
    let (node, hour) = grouped(dir.path());
    node.run_due_schedules(&pool(), || hour + HOUR).unwrap();
    let none = r#"{"remove": ["fast/db", "fast/log"]}"#;
    node.change_group(&group("fast/app"), &json(none)).unwrap();
    assert!(node.pools_with_due(hour + 2 * HOUR).unwrap().is_empty());
    assert_eq!(told(&node, "waits, and makes up for one run then"), 1);
    let shown = node.schedule(&"fast/app".parse().unwrap()).unwrap();
    assert!(shown.problem.unwrap().contains("group fast/app has no volumes"));
    // It outlasts its volumes, and not the group: that has to be meant.
    node.delete_volume(&"fast/web".parse().unwrap(), Consent::FORCE).unwrap();
    let refused = node.delete_group(&group("fast/app"), Consent::default()).unwrap_err();
    assert_eq!(refused.kind, Kind::Conflict, "{refused}");
    assert_eq!(node.schedules(Some(&pool())).unwrap().len(), 1);
    node.delete_group(&group("fast/app"), Consent::FORCE).unwrap();
    assert!(node.schedules(None).unwrap().is_empty());
    assert_eq!(told(&node, "schedule of group fast/app dropped with it"), 1);
    assert_eq!((names(&node, "fast/db").len(), names(&node, "fast/log").len()), (1, 1));
    node.stop();
}
