//! What hosts and operators are told of a pool that lacks something, and what becomes of it.

use std::path::Path;
use std::sync::Arc;

use api::v1::{Consent, NewMapping, NewPool, NewVolume, PollPolicy, PoolImport};
use api::value::{DrivePath, Name, VolumePath};

use crate::limits::LATE_TRIES;
use crate::node::{Node, Options, Source};

/// More than any of this takes.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);

const NQN: &str = "nqn.2026-11.io.flashloom:a";

fn start(dir: &Path) -> Arc<Node> {
    start_waiting(dir, 3600)
}

/// Starts a node that waits so many seconds for drives.
fn start_waiting(dir: &Path, seconds: u64) -> Arc<Node> {
    let subsystem = format!("[[subsystem]]\nnqn = \"{NQN}\"\nallow-any-host = true\n");
    let text = format!("[node]\nwait-for-drives = {seconds}\n{subsystem}");
    let config = dir.join("test.toml");
    std::fs::write(&config, text).unwrap();
    let options = Options {
        state_dir: dir.join("state"),
        source: Source::File(config),
        fresh: false,
        cpus: None,
        poll: Some(PollPolicy::Interrupt),
    };
    let node = Node::start(options).unwrap();
    assert!(node.wait_for_openings(PATIENCE));
    node
}

/// Opens what is late, and waits for what comes of it.
fn open_late(node: &Arc<Node>) {
    node.open_late_pools().unwrap();
    assert!(node.wait_for_openings(PATIENCE));
}

fn look(node: &Arc<Node>) {
    let node = Arc::clone(node);
    reactor::run(reactor::Config::default(), async move { node.look_at_space().await.unwrap() })
        .unwrap();
}

/// Whether the hosts of the subsystem are warned, and how many events say that its pool lacks a drive.
fn told(node: &Node) -> (bool, usize) {
    let health =
        node.owner.ask_unseen(|owned| Ok(owned.serving()?.health(&NQN.parse().unwrap()).unwrap()));
    let health = health.unwrap();
    let events = node.events(0);
    let words = "pool fast has no redundancy left, another loss costs data: drive 1";
    let said = events.iter().filter(|event| event.message.contains(words));
    (health.reliability_degraded, said.count())
}

fn drive(dir: &Path, n: u32) -> DrivePath {
    format!("{}/d{n},size=192MiB", dir.display()).parse().unwrap()
}

/// Makes a pool of two drives with a volume that is mapped.
fn mirror(node: &Node, dir: &Path) -> (Name, VolumePath) {
    let mut pool: NewPool = serde_json::from_str(r#"{"name": "fast", "drives": []}"#).unwrap();
    pool.drives = vec![drive(dir, 0), drive(dir, 1)];
    pool.log_size = Some("16MiB".parse().unwrap());
    node.create_pool(&pool).unwrap();
    let volume: NewVolume = serde_json::from_str(r#"{"name": "v", "size": 1048576}"#).unwrap();
    node.create_volume(&pool.name, &volume).unwrap();
    let path: VolumePath = "fast/v".parse().unwrap();
    let mapping: NewMapping =
        serde_json::from_str(&format!(r#"{{"subsystem": "{NQN}"}}"#)).unwrap();
    node.map_volume(&path, mapping).unwrap();
    (pool.name, path)
}

/// Hosts were told of a pool's room only: that a further failure may cost their data they were not.
#[test]
fn hosts_of_a_degraded_pool_are_warned() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir);
    let (_, path) = mirror(&node, dir);
    look(&node);
    assert_eq!(told(&node), (false, 0));
    node.stop();
    drop(node);

    std::fs::remove_file(dir.join("d1")).unwrap();
    let node = start(dir);
    let import = serde_json::json!({"drives": [drive(dir, 0)], "degraded": true});
    let import: PoolImport = serde_json::from_value(import).unwrap();
    node.import_pool(&import).unwrap();
    look(&node);
    look(&node);
    assert_eq!(told(&node), (true, 1), "told once");
    node.unmap_volume(&path, Consent::FORCE).unwrap();
    look(&node);
    assert_eq!(told(&node), (false, 1), "the subsystem has nothing of that pool any more");
    node.stop();
    drop(node);
}

/// The pool stayed unavailable until it was imported by hand, although all of it was there a moment later.
#[test]
fn a_pool_whose_drive_comes_late_is_opened_and_served() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir);
    let (pool, _) = mirror(&node, dir);
    node.stop();
    drop(node);

    let (drive, away) = (dir.join("d1"), dir.join("away"));
    std::fs::rename(&drive, &away).unwrap();
    let node = start(dir);
    open_late(&node);
    assert!(node.pool(&pool).unwrap().status.is_none());
    let served = |node: &Node| node.namespace(&NQN.parse().unwrap(), 1).unwrap().served;
    assert!(!served(&node));
    // What probes a new drive holds it for a moment.
    std::fs::rename(&away, &drive).unwrap();
    let probe = reactor::file::hold(&drive).unwrap();
    open_late(&node);
    assert!(node.pool(&pool).unwrap().status.is_none());
    drop(probe);
    open_late(&node);
    assert!(node.pool(&pool).unwrap().status.is_some());
    assert!(served(&node));
    let opened = |node: &Node| {
        node.events(0).iter().filter(|event| event.message.contains("pool fast opened")).count()
    };
    assert_eq!(opened(&node), 1);
    open_late(&node);
    assert_eq!(opened(&node), 1);
    node.stop();
    drop(node);
}

/// What has come and is no part of the pool ends in one word of it.
#[test]
fn a_pool_that_cannot_be_opened_is_not_tried_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir);
    mirror(&node, dir);
    node.stop();
    drop(node);

    std::fs::remove_file(dir.join("d1")).unwrap();
    let node = start_waiting(dir, 0);
    std::fs::File::create(dir.join("d1")).unwrap().set_len(192 << 20).unwrap();
    for _ in 0..3 * LATE_TRIES {
        open_late(&node);
    }
    let said =
        |words: &str| node.events(0).iter().filter(|event| event.message.contains(words)).count();
    assert_eq!(said("pool fast still cannot be opened"), 1);
    node.stop();
    drop(node);
}

/// Looks until that was said.
fn look_for(node: &Arc<Node>, words: &str) {
    let begun = reactor::now_exact();
    while !node.events(0).iter().any(|event| event.message.contains(words)) {
        assert!(
            std::time::Duration::from_nanos(reactor::now_exact() - begun) < PATIENCE,
            "{words}: {:?}",
            node.events(0)
        );
        look(node);
    }
}

/// Both were online, and nothing was said, until the pool could not be opened any more.
#[test]
fn drives_that_lose_their_labels_or_an_end_are_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir);
    mirror(&node, dir);
    let drive = |n: usize| {
        let path = dir.join(format!("d{n}"));
        std::fs::File::options().write(true).open(path).unwrap()
    };
    std::os::unix::fs::FileExt::write_all_at(&drive(0), &[0; 64 << 10], 0).unwrap();
    look_for(&node, "drive 0 of pool fast had lost its labels");
    assert_eq!(told(&node), (false, 0));
    drive(1).set_len(100 << 20).unwrap();
    look_for(&node, "pool fast has no redundancy left, another loss costs data: drive 1 is failed");
    node.stop();
    drop(node);
    let node = start_waiting(dir, 0);
    assert!(node.pool(&"fast".parse().unwrap()).unwrap().status.is_some());
    node.stop();
    drop(node);
}
