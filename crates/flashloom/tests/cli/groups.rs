//! Groups: volumes by one name, of which snapshots are taken at one instant, kept in their pool.

use super::snapshots::{NQN, make, open};
use super::*;

const LEN: usize = 4 << 20;

/// The first bytes of a namespace are all of this value.
fn holds(namespace: &client::Namespace, byte: u8) {
    let mut data = vec![!byte; LEN];
    namespace.read(0, &mut data).unwrap();
    let other = data.iter().position(|is| *is != byte);
    assert_eq!(other, None, "0x{byte:x} is not there");
}

fn write(namespace: &client::Namespace, byte: u8) {
    namespace.write(0, &vec![byte; LEN], client::Fua::No).unwrap();
}

fn names(all: &Value) -> Vec<String> {
    let name = |one: &Value| one["name"].as_str().unwrap().to_owned();
    all.as_array().unwrap().iter().map(name).collect()
}

/// The volumes of a group, without their pool.
fn volumes(dir: &Path, group: &str) -> Vec<String> {
    let shown = json(dir, &format!("group show {group}"));
    let name = |path: &Value| path.as_str().unwrap().rsplit_once('/').unwrap().1.to_owned();
    shown["volumes"].as_array().unwrap().iter().map(name).collect()
}

fn until_open(dir: &Path) {
    rig::wait_until("the pool is open", || json(dir, "pool show fast")["status"].is_object());
}

/// Of `fast/app` as it was made there are snapshots, and nothing else has changed.
fn is_as_it_was(dir: &Path, made: &Value) {
    let mut shown = json(dir, "group show fast/app");
    assert_eq!(json(dir, "group list"), Value::Array(vec![shown.clone()]));
    let last = shown.as_object_mut().unwrap().remove("last_snapshot_ms").unwrap();
    assert_eq!(shown, *made);
    is_measured(dir, last.as_u64().unwrap() / 1000);
}

/// Metrics tell of `fast/app`, of which there are snapshots of this time.
fn is_measured(dir: &Path, last: u64) {
    let scraped = scrape(dir);
    let of = |name: &str| format!("flashloom_group_{name}{{pool=\"fast\",group=\"app\"}}");
    for line in [format!("{} 2", of("volumes")), format!("{} {last}", of("last_snapshot_seconds"))]
    {
        assert!(scraped.lines().any(|is| is == line), "{line}: {scraped}");
    }
    // Of a group of one without snapshots there is no time.
    json(dir, "group create fast/none --volume fast/web");
    let scraped = scrape(dir);
    assert!(scraped.contains("flashloom_group_volumes{pool=\"fast\",group=\"none\"} 1"));
    assert!(
        !scraped.contains("flashloom_group_last_snapshot_seconds{pool=\"fast\",group=\"none\"}")
    );
    json(dir, "group delete fast/none");
}

/// What `fast/app@mon` has is deleted as one, once hosts have none of it.
fn snapshots_of_a_group_are_deleted_together(dir: &Path) {
    json(dir, &format!("snapshot map fast/log@mon -n {NQN} --nsid 5"));
    let (_, said) = failure(dir, "group delete-snapshot fast/app@mon --yes");
    assert!(said.contains("fast/log@mon is namespace 5"), "{said}");
    assert_eq!(names(&json(dir, "snapshot list fast")), ["fast/db@mon", "fast/log@mon"]);
    json(dir, "snapshot unmap fast/log@mon --yes");
    // Who came later has none of that name, and is in the way of nothing.
    json(dir, "group add fast/app fast/web");
    let losses = json(dir, "group delete-snapshot fast/app@mon --dry-run");
    assert_eq!(losses["losses"].as_array().unwrap().len(), 2, "{losses}");
    let (_, said) = failure(dir, "group delete-snapshot fast/app@mon");
    assert!(said.contains("snapshot fast/db@mon would be lost"), "{said}");
    let gone = json(dir, "group delete-snapshot fast/app@mon --yes");
    assert_eq!(gone, serde_json::json!({ "snapshots": "fast/app@mon", "deleted": true }));
    until_event(dir, "snapshots fast/db@mon, fast/log@mon deleted, of group fast/app");
    assert_eq!(json(dir, "snapshot list fast"), Value::Array(Vec::new()));
    let (_, said) = failure(dir, "group delete-snapshot fast/app@mon --yes");
    assert!(said.contains("no volume of group fast/app has a snapshot mon"), "{said}");
    json(dir, "group remove fast/app fast/web");
}

#[test]
fn a_group_has_snapshots_of_all_its_volumes_and_is_kept_in_its_pool() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve --discovery off --listen 127.0.0.1:{port} memory:16MiB");
    let daemon = Daemon::start(dir, &serve);
    make(dir);
    json(dir, "volume create fast/web --size 8MiB");
    let made = json(dir, "group create fast/app --volume fast/log --volume fast/db");
    assert_eq!(made["name"], "fast/app");
    assert_eq!(made["volumes"], serde_json::json!(["fast/db", "fast/log"]));
    assert!(made["id"].is_string() && made["created_ms"].as_u64().unwrap() > 0);
    until_event(dir, "group fast/app made of fast/log, fast/db");
    assert_eq!(json(dir, "volume show fast/db")["group"], "fast/app");
    assert_eq!(json(dir, "volume show fast/web")["group"], Value::Null);
    let (db, log) = (open(port, 1), open(port, 2));
    [&db, &log].into_iter().for_each(|volume| write(volume, 0xa1));
    let taken = json(dir, "group snapshot fast/app@mon");
    assert_eq!(names(&taken), ["fast/db@mon", "fast/log@mon"]);
    until_event(dir, "snapshots fast/db@mon, fast/log@mon taken, of group fast/app");
    [&db, &log].into_iter().for_each(|volume| write(volume, 0xb2));
    for (nsid, name) in [(3, "fast/db@mon"), (4, "fast/log@mon")] {
        json(dir, &format!("snapshot map {name} -n {NQN} --nsid {nsid}"));
        let snapshot = open(port, nsid);
        holds(&snapshot, 0xa1);
        snapshot.shut_down().unwrap();
        json(dir, &format!("snapshot unmap {name} --yes"));
    }
    [db, log].iter().for_each(|one| one.shut_down().unwrap());

    // Killed, it is there as it was.
    drop(daemon);
    let report = json(dir, "pool dump fast");
    assert_eq!(report["summary"]["clean"], true, "{report}");
    let of = |nth: usize| (&report["volumes"][nth]["name"], &report["volumes"][nth]["group"]);
    assert_eq!([of(0), of(2)], [(&"db".into(), &"app".into()), (&"web".into(), &Value::Null)]);
    let daemon = Daemon::start(dir, &serve);
    until_open(dir);
    is_as_it_was(dir, &made);
    snapshots_of_a_group_are_deleted_together(dir);

    // Members come and go, and are what they are whatever they are called.
    json(dir, "group add fast/app fast/web");
    json(dir, "volume rename fast/web shop");
    assert_eq!(volumes(dir, "fast/app"), ["db", "log", "shop"]);
    let taken = json(dir, "group snapshot fast/app@tue");
    assert_eq!(names(&taken), ["fast/db@tue", "fast/log@tue", "fast/shop@tue"]);
    json(dir, "group remove fast/app fast/log fast/shop");
    assert_eq!(names(&json(dir, "group snapshot fast/app@wed")), ["fast/db@wed"]);
    assert_eq!(names(&json(dir, "snapshot list fast/log")), ["fast/log@tue"]);
    let renamed = json(dir, "group rename fast/app job");
    assert_eq!((&renamed["name"], &renamed["id"]), (&"fast/job".into(), &made["id"]));
    until_event(dir, "group fast/app changed: it is called fast/job");
    json(dir, "group add fast/job fast/shop");
    json(dir, "snapshot delete fast/shop@tue --yes");
    json(dir, "volume delete fast/shop --yes");
    assert_eq!(volumes(dir, "fast/job"), ["db"]);
    json(dir, "group create fast/rest");

    // It goes where its pool goes.
    for volume in ["fast/db", "fast/log"] {
        json(dir, &format!("volume unmap {volume} --yes"));
    }
    let before = json(dir, "group list fast");
    json(dir, "pool export fast");
    assert_eq!(json(dir, "group list"), Value::Array(Vec::new()));
    let drives = [0, 1].map(|n| format!("--drive {}/d{n}", dir.display()));
    json(dir, &format!("pool import fast {}", drives.join(" ")));
    assert_eq!(json(dir, "group list fast"), before);
    assert_eq!(names(&before), ["fast/job", "fast/rest"]);
    assert!(run(dir, "group delete fast/job").status.success());
    assert!(run(dir, "group delete fast/rest --yes").status.success());
    until_event(dir, "group fast/job deleted: its volumes stay");
    assert_eq!(json(dir, "group list"), Value::Array(Vec::new()));
    assert_eq!(json(dir, "volume show fast/db")["snapshots"], 2);
    daemon.stop();
}

#[test]
fn a_wrong_request_for_groups_changes_nothing_and_says_what_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let serve = format!("serve --discovery off --listen 127.0.0.1:{} memory:16MiB", free_port());
    let daemon = Daemon::start(dir, &serve);
    make(dir);
    json(dir, "volume create fast/web --size 8MiB");
    json(dir, "group create fast/app --volume fast/db");
    json(dir, "group create fast/none");
    json(dir, "snapshot create fast/db@mon");
    // Used bytes are counted meanwhile.
    let there_is = || {
        let named = ["volume", "snapshot"].map(|kind| names(&json(dir, &format!("{kind} list"))));
        (json(dir, "group list"), named)
    };
    let before = there_is();
    let wrong = [
        ("group create app", "write POOL/GROUP"),
        ("group create fast/-", "is not a name"),
        ("group create fast/app", "choose another name"),
        ("group create fast/web", "a volume is called web already"),
        ("group create slow/app", "pool slow"),
        ("group create fast/new --volume slow/db", "not of pool fast"),
        ("group create fast/new --volume fast/x", "no volume is called x"),
        ("group create fast/new --volume fast/none", "none is a group, not a volume"),
        ("group create fast/new --volume fast/web --volume fast/web", "named twice"),
        ("group create fast/new --volume fast/web --volume fast/db", "in group app"),
        ("group add fast/app fast/web fast/db", "is in group app already"),
        ("group add fast/none fast/db", "takes a volume out of one"),
        ("group add fast/app", "required"),
        ("group add fast/gone fast/web", "there is no group fast/gone"),
        ("group remove fast/app fast/web", "not in group app"),
        ("group remove fast/web fast/db", "fast/web is a volume, not a group"),
        ("group rename fast/app web", "choose another name"),
        ("group show fast/gone", "group list"),
        ("group list slow", "pool slow"),
        ("group delete fast/web", "fast/web is a volume, not a group"),
        ("group snapshot fast/app", "POOL/GROUP@NAME"),
        ("group snapshot fast/app@mon", "already"),
        ("group snapshot fast/none@mon", "group add fast/none"),
        ("group snapshot fast/web@tue", "fast/web is a volume"),
        ("group delete-snapshot fast/app@tue --yes", "has a snapshot tue"),
        ("volume create fast/app --size 8MiB", "choose another name"),
        ("volume rename fast/web app", "a group is called app already"),
        ("volume rename fast/web app", "choose another name"),
        ("volume rename fast/web db", "choose another name"),
        ("volume clone fast/db@mon fast/app", "choose another name"),
        ("volume delete fast/app --yes", "fast/app is a group, not a volume"),
        ("volume show fast/app", "group show fast/app"),
        ("volume resize fast/app 16MiB", "fast/app is a group, not a volume"),
        ("volume map fast/app -n nqn.2026-11.io.flashloom:x --allow-any-host", "is a group"),
        ("snapshot create fast/app@tue", "app is a group, not a volume"),
        ("snapshot list fast/app", "fast/app is a group, not a volume"),
        ("schedule create fast/app fast/db --every 1h --keep 2", "a group, and other volumes"),
        ("schedule show fast/app", "group fast/app has no schedule"),
    ];
    for (asked, right) in wrong {
        let (_, said) = failure(dir, asked);
        assert!(said.contains(right), "{asked}: {said}");
    }
    assert_eq!(there_is(), before);
    let table = String::from_utf8(run(dir, "group list").stdout).unwrap();
    assert!(table.contains("fast/app") && table.contains("db"), "{table}");
    daemon.stop();
}

/// Of `fast/app` and `fast/test`, the group of its clones: what has none of a snapshot, or a name twice, changes nothing.
fn clones_that_cannot_be_are_refused(dir: &Path) {
    json(dir, "snapshot create fast/db@tue");
    json(dir, "group create fast/none");
    let long = "x".repeat(63);
    let too_long = format!("group clone fast/app@mon fast/{long}");
    // Used bytes are counted meanwhile.
    let there_is = || (json(dir, "group list"), names(&json(dir, "volume list")));
    let before = there_is();
    let wrong = [
        ("group clone fast/app fast/new", "POOL/GROUP@NAME"),
        ("group clone fast/app@mon new", "write POOL/GROUP"),
        ("group clone fast/app@mon fast/new --volume db", "write VOLUME=NAME"),
        ("group clone fast/app@mon fast/new --volume db=a --volume db=b", "called twice"),
        ("group clone fast/app@mon slow/new", "clone it as fast/new"),
        ("group clone slow/app@mon slow/new", "pool slow"),
        ("group clone fast/gone@mon fast/new", "there is no group fast/gone"),
        ("group clone fast/db@mon fast/new", "fast/db is a volume, not a group"),
        ("group clone fast/none@mon fast/new", "group add fast/none"),
        (
            "group clone fast/app@tue fast/new",
            "volume fast/log of group fast/app has no snapshot tue",
        ),
        ("group clone fast/app@tue fast/new", "group remove fast/app"),
        (
            "group clone fast/app@wed fast/new",
            "volumes fast/db, fast/log of group fast/app have no",
        ),
        ("group clone fast/app@mon fast/test", "a group is called test already"),
        ("group clone fast/app@mon fast/test", "choose another name for the group than test"),
        ("group clone fast/app@mon fast/log", "choose another name for the group"),
        ("group clone fast/app@mon fast/new --volume db=log", "--volume VOLUME=NAME"),
        (
            "group clone fast/app@mon fast/new --volume db=x --volume log=x",
            "would be called fast/x",
        ),
        ("group clone fast/app@mon fast/new --volume db=new", "would be called fast/new"),
        ("group clone fast/app@mon fast/new --volume web=x", "fast/web is not in group fast/app"),
        (&too_long, "--volume db=NAME"),
    ];
    for (asked, right) in wrong {
        let (_, said) = failure(dir, asked);
        assert!(said.contains(right), "{asked}: {said}");
    }
    assert_eq!(there_is(), before);
}

/// Of `fast/app@mon`: the request with its key is the same job, and a killed daemon leaves all of a group, or nothing.
fn groups_are_cloned_by_jobs(dir: &Path, serve: &str, mut daemon: Daemon) -> Daemon {
    let keyed = "group clone fast/app@mon fast/a --request-key a";
    let made = json(dir, keyed);
    assert_eq!(made, json(dir, keyed));
    let (code, said) = failure(dir, "group clone fast/app@mon fast/b --request-key a");
    assert!(code == 1 && said.contains("another request"), "{said}");
    let id = json(dir, "group clone fast/app@mon fast/b --no-wait")["id"].as_u64().unwrap();
    let over = json(dir, &format!("job wait {id}"));
    let told = ["kind", "target", "state", "result"].map(|key| over[key].as_str().unwrap());
    assert_eq!(told, ["group-clone", "fast/b", "done", "/v1/pools/fast/groups/b"]);
    for n in 0..3 {
        let keyed = format!("group clone fast/app@mon fast/c{n} --request-key c{n}");
        let id = json(dir, &format!("{keyed} --no-wait"))["id"].as_u64().unwrap();
        // Dropped is killed, with -9.
        drop(daemon);
        daemon = Daemon::start(dir, serve);
        until_open(dir);
        let job = json(dir, &format!("job show {id}"));
        let is_there = names(&json(dir, "group list")).contains(&format!("fast/c{n}"));
        let clones = names(&json(dir, "volume list"));
        let clones = clones.iter().filter(|name| name.contains(&format!("/c{n}-"))).count();
        assert_eq!(clones, if is_there { 2 } else { 0 }, "all of them, or none");
        let is_right = match job["state"].as_str().unwrap() {
            "done" => is_there,
            "interrupted" => job["error"]["help"].as_str().unwrap().contains("ask again"),
            _ => false,
        };
        assert!(is_right, "{job}");
        if !is_there {
            json(dir, &keyed);
        }
        assert_eq!(
            volumes(dir, &format!("fast/c{n}")),
            ["db", "log"].map(|of| format!("c{n}-{of}"))
        );
    }
    daemon
}

#[test]
fn a_group_is_cloned_as_it_was_at_one_instant() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve --discovery off --listen 127.0.0.1:{port} memory:16MiB");
    let daemon = Daemon::start(dir, &serve);
    make(dir);
    json(dir, "group create fast/app --volume fast/db --volume fast/log");
    let (db, log) = (open(port, 1), open(port, 2));
    [&db, &log].into_iter().for_each(|volume| write(volume, 0xa1));
    json(dir, "group snapshot fast/app@mon");
    [&db, &log].into_iter().for_each(|volume| write(volume, 0xb2));
    let made = json(dir, "group clone fast/app@mon fast/test --volume log=journal");
    assert_eq!(made["name"], "fast/test");
    assert_eq!(made["volumes"], serde_json::json!(["fast/journal", "fast/test-db"]));
    until_event(dir, "group fast/test made of fast/test-db, fast/journal: clones of fast/app@mon");
    let of_log = json(dir, "volume show fast/journal");
    let origin = serde_json::json!({ "volume": "fast/log", "snapshot": "mon" });
    assert_eq!((&of_log["group"], &of_log["origin"]), (&"fast/test".into(), &origin));
    for (nsid, name) in [(3, "fast/test-db"), (4, "fast/journal")] {
        json(dir, &format!("volume map {name} -n {NQN} --nsid {nsid}"));
        let clone = open(port, nsid);
        holds(&clone, 0xa1);
        write(&clone, 0xc3);
        clone.shut_down().unwrap();
    }
    [&db, &log].into_iter().for_each(|volume| holds(volume, 0xb2));
    [db, log].iter().for_each(|one| one.shut_down().unwrap());
    clones_that_cannot_be_are_refused(dir);

    // Killed, both are there as they were, and each is a group of its own.
    drop(daemon);
    let daemon = Daemon::start(dir, &serve);
    until_open(dir);
    assert_eq!(json(dir, "group show fast/test"), made, "of clones there is no snapshot");
    assert_eq!(volumes(dir, "fast/app"), ["db", "log"]);
    [(1, 0xb2), (2, 0xb2), (3, 0xc3), (4, 0xc3)].into_iter().for_each(|(nsid, byte)| {
        let volume = open(port, nsid);
        holds(&volume, byte);
        volume.shut_down().unwrap();
    });
    assert_eq!(names(&json(dir, "group snapshot fast/test@own")).len(), 2);
    let made = json(dir, "group clone fast/test@own fast/deeper");
    assert_eq!(made["volumes"], serde_json::json!(["fast/deeper-journal", "fast/deeper-test-db"]));
    groups_are_cloned_by_jobs(dir, &serve, daemon).stop();
}
