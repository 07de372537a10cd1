//! Nodes that start without some of what they had.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::v1::{
    Consent, Kind, Namespace, NewMapping, NewPool, NewVolume, PollPolicy, PoolHealth, PoolImport,
    VolumeChange,
};
use api::value::{Name, VolumePath};
use hardware::Machine;

use crate::node::owner::Owned;
use crate::node::{Node, Options, Source};

mod again;
mod anew;
mod by_hand;
mod by_name;
mod deleted;
mod kept;
mod replaced;
mod returned;
mod strayed;
mod unwritten;
mod wider;
mod windows;

const NQN: &str = "nqn.2026-11.io.flashloom:a";

/// More than any of this takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Starts a node with `settings` under `[node]` and `more` behind.
fn start(dir: &Path, settings: &str, more: &str) -> Arc<Node> {
    start_on(dir, settings, more, Machine::new())
}

/// Likewise on a machine.
fn start_on(dir: &Path, settings: &str, more: &str, machine: Machine) -> Arc<Node> {
    let subsystem = format!("[[subsystem]]\nnqn = \"{NQN}\"\nallow-any-host = true\n");
    let config = dir.join("test.toml");
    fs::write(&config, format!("[node]\n{settings}\n{subsystem}{more}")).unwrap();
    let options = Options {
        state_dir: dir.join("state"),
        source: Source::File(config),
        fresh: false,
        cpus: None,
        poll: Some(PollPolicy::Interrupt),
    };
    let node = Node::start_on(options, machine).unwrap();
    assert!(node.wait_for_openings(PATIENCE));
    node
}

fn open_late(node: &Arc<Node>) {
    node.open_late_pools().unwrap();
    assert!(node.wait_for_openings(PATIENCE));
}

/// Makes a RAID 6 pool of four drives with a volume that is mapped.
fn make(node: &Node, dir: &Path, name: &str) -> VolumePath {
    let mut pool: NewPool =
        serde_json::from_str(&format!(r#"{{"name": "{name}", "drives": []}}"#)).unwrap();
    let drive = |n| format!("{}/{name}{n},size=192MiB", dir.display()).parse().unwrap();
    pool.drives = (0..4).map(drive).collect();
    pool.log_size = Some("16MiB".parse().unwrap());
    node.create_pool(&pool).unwrap();
    let volume: NewVolume = serde_json::from_str(r#"{"name": "v", "size": 1048576}"#).unwrap();
    node.create_volume(&pool.name, &volume).unwrap();
    let path: VolumePath = format!("{name}/v").parse().unwrap();
    let mapping: NewMapping =
        serde_json::from_str(&format!(r#"{{"subsystem": "{NQN}"}}"#)).unwrap();
    node.map_volume(&path, mapping).unwrap();
    path
}

fn named(name: &str) -> Name {
    name.parse().unwrap()
}

fn namespace(node: &Node) -> Namespace {
    node.namespace(&NQN.parse().unwrap(), 1).unwrap()
}

fn health(node: &Node, name: &str) -> PoolHealth {
    node.pool(&named(name)).unwrap().health
}

fn said(node: &Node, words: &str) -> usize {
    node.events(0).iter().filter(|event| event.message.contains(words)).count()
}

/// Of a drive that is gone, one that is another's, one that has lost its label or a half of itself: each was an outage until somebody
/// typed all paths of the pool.
#[test]
fn a_pool_that_lacks_what_it_bears_opens_by_itself() {
    for what in ["gone", "blank", "foreign", "short"] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let node = start(dir, "", "");
        make(&node, dir, "fast");
        if what == "foreign" {
            make(&node, dir, "other");
        }
        node.stop();
        drop(node);
        let lost = dir.join("fast1");
        if what == "short" {
            fs::File::options().write(true).open(&lost).unwrap().set_len(96 << 20).unwrap();
        } else {
            fs::remove_file(&lost).unwrap();
        }
        match what {
            "blank" => fs::File::create(&lost).unwrap().set_len(192 << 20).unwrap(),
            "foreign" => fs::rename(dir.join("other0"), &lost).unwrap(),
            _ => {}
        }

        let node = start(dir, "wait-for-drives = 3600", "");
        assert_eq!(health(&node, "fast"), PoolHealth::Unavailable, "{what}");
        let problem = node.pool(&named("fast")).unwrap().problem.unwrap();
        let words = format!("drive 1 is missing, which was {}", lost.display());
        assert!(problem.contains(&words), "{problem}");
        match what {
            "blank" => assert!(problem.contains("carries no label of a pool"), "{problem}"),
            "foreign" => assert!(problem.contains("is of another pool, other"), "{problem}"),
            "short" => assert!(problem.contains("it was cut short"), "{problem}"),
            _ => {}
        }
        assert_eq!(said(&node, "pool fast waits for what it lacks"), 1);
        assert!(!namespace(&node).served);
        node.stop();
        drop(node);

        let node = start(dir, "wait-for-drives = 0", "");
        assert_eq!(health(&node, "fast"), PoolHealth::Degraded, "{what}");
        assert_eq!(said(&node, "pool fast was opened without what it lacks"), 1);
        assert!(namespace(&node).served);
        node.stop();
        drop(node);
    }
}

/// What a resize cut off, and what a deleted volume held, was gone at the first slip of the finger.
#[test]
fn what_loses_data_wants_to_be_meant() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    let path = make(&node, dir, "fast");
    let size = |node: &Node| node.volume(&path).unwrap().size.bytes();
    let smaller: VolumeChange = serde_json::from_str(r#"{"size": 524288}"#).unwrap();
    let would = node.losses_of_change(&path, &smaller).unwrap();
    assert!(would.losses[0].contains("would be lost"), "{would:?}");
    let refused = node.change_volume(&path, &smaller, Consent::NONE).unwrap_err();
    assert!(refused.context.contains("would be lost"), "{refused}");
    assert_eq!((size(&node), namespace(&node).size.bytes()), (1 << 20, 1 << 20));
    node.change_volume(&path, &smaller, Consent::FORCE).unwrap();
    assert_eq!((size(&node), namespace(&node).size.bytes()), (512 << 10, 512 << 10));
    node.unmap_volume(&path, Consent::FORCE).unwrap();
    let refused = node.delete_volume(&path, Consent::NONE).unwrap_err();
    assert!(refused.context.contains("would be lost"), "{refused}");
    assert_eq!(node.volumes().unwrap().len(), 1);
    node.delete_volume(&path, Consent::FORCE).unwrap();
    assert_eq!(node.volumes().unwrap().len(), 0);
    node.stop();
    drop(node);
}

/// An import wanted the paths of all drives; and nothing said what it would take.
#[test]
fn an_import_finds_drives_by_itself_and_looks_first() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let settings = format!("drive-folders = [\"{}\"]", dir.display());
    let node = start(dir, &settings, "");
    let path = make(&node, dir, "fast");
    node.unmap_volume(&path, Consent::FORCE).unwrap();
    node.export_pool(&named("fast")).unwrap();
    fs::rename(dir.join("fast2"), dir.join("else")).unwrap();
    let bytes = |n: u32| fs::read(dir.join(format!("fast{n}"))).unwrap();
    let before = bytes(0);
    let from: PoolImport = serde_json::from_str(r#"{"name": "fast"}"#).unwrap();
    let [found] = node.find_pools(&from).unwrap().try_into().unwrap();
    assert!(found.exported && !found.known);
    assert_eq!((found.bears, found.log.as_str(), found.drives.len()), (2, "drives", 4));
    assert_eq!(found.drives[2].path, Some(dir.join("else").display().to_string()));
    assert!(before == bytes(0), "looking changes nothing");
    let pool = node.import_pool(&from).unwrap();
    assert_eq!(pool.health, PoolHealth::Online);
    assert!(node.find_pools(&from).unwrap().is_empty(), "it is open");
    node.stop();
    drop(node);
}

/// Two of four drives of RAID 6 could have gone on by themselves, elsewhere or before: then those that are here
/// are old, and nothing that they say tells.
#[test]
fn what_may_have_gone_on_elsewhere_is_not_opened_without() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    node.stop();
    drop(node);
    for n in [0, 1] {
        fs::rename(dir.join(format!("fast{n}")), dir.join(format!("away{n}"))).unwrap();
    }
    let node = start(dir, "wait-for-drives = 0", "");
    assert_eq!(health(&node, "fast"), PoolHealth::Unavailable);
    assert_eq!(said(&node, "pool fast cannot be opened"), 1);
    node.stop();
    drop(node);
}

/// The hosts of a pool that was seconds late removed their block devices, with mounted file systems on them.
#[test]
fn hosts_see_the_namespaces_of_a_late_pool_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    let path = make(&node, dir, "fast");
    let grown: VolumeChange = serde_json::from_str(r#"{"size": 2097152}"#).unwrap();
    node.change_volume(&path, &grown, Consent::NONE).unwrap();
    let before = namespace(&node);
    assert!(before.served);
    let listed = |node: &Node| {
        let listed = |owned: &mut Owned| Ok(owned.serving()?.listed(&NQN.parse().unwrap()));
        node.owner.ask_unseen(listed).unwrap()
    };
    let as_hosts_see = listed(&node);
    assert_eq!(as_hosts_see.len(), 1);
    node.stop();
    drop(node);

    for n in 0..4 {
        fs::rename(dir.join(format!("fast{n}")), dir.join(format!("away{n}"))).unwrap();
    }
    // Also when it starts once more in the midst of it.
    for _ in 0..2 {
        let node = start(dir, "wait-for-drives = 0", "");
        let waiting = namespace(&node);
        assert!(!waiting.served);
        assert_eq!((waiting.uuid, waiting.size), (before.uuid, before.size));
        assert_eq!(listed(&node), as_hosts_see);
        assert!(!node.status().unwrap().problems.is_empty());
        node.stop();
        drop(node);
    }
    let node = start(dir, "", "");
    for n in 0..4 {
        fs::rename(dir.join(format!("away{n}")), dir.join(format!("fast{n}"))).unwrap();
    }
    open_late(&node);
    assert_eq!(health(&node, "fast"), PoolHealth::Online);
    assert_eq!(namespace(&node), before);
    assert_eq!(listed(&node), as_hosts_see);
    assert!(node.status().unwrap().problems.is_empty());
    node.stop();
    drop(node);
}

/// Drives were found by the names that they had, which move: each is known by its label.
#[test]
fn drives_are_found_under_other_names() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let shelf = dir.join("shelf");
    fs::create_dir(&shelf).unwrap();
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    node.stop();
    drop(node);
    // Two take each other's names, one is put elsewhere.
    fs::rename(dir.join("fast0"), dir.join("fast")).unwrap();
    fs::rename(dir.join("fast1"), dir.join("fast0")).unwrap();
    fs::rename(dir.join("fast"), dir.join("fast1")).unwrap();
    fs::rename(dir.join("fast2"), shelf.join("moved")).unwrap();
    fs::write(shelf.join("note"), "not a drive").unwrap();

    let node = start(dir, &format!("drive-folders = [\"{}\"]", shelf.display()), "");
    let pool = node.pool(&named("fast")).unwrap();
    assert_eq!(pool.health, PoolHealth::Online);
    let paths = [dir.join("fast1"), dir.join("fast0"), shelf.join("moved"), dir.join("fast3")];
    assert_eq!(pool.paths, paths.map(|path| path.display().to_string()));
    node.stop();
    drop(node);
    // And they are remembered there.
    let node = start(dir, "", "");
    assert_eq!(health(&node, "fast"), PoolHealth::Online);
    node.stop();
    drop(node);
}

/// An import longer than the watchdog's patience ended a node that served well: opening a pool asks nothing of the owner.
#[test]
fn a_pool_is_opened_while_the_owner_is_busy() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    node.stop();
    drop(node);
    for n in 0..4 {
        fs::rename(dir.join(format!("fast{n}")), dir.join(format!("away{n}"))).unwrap();
    }
    let node = start(dir, "", "");
    for n in 0..4 {
        fs::rename(dir.join(format!("away{n}")), dir.join(format!("fast{n}"))).unwrap();
    }
    let (closed, folders, opener) = {
        let view = node.view();
        let pools = &view.serving().unwrap().pools;
        (pools.closed(), pools.folders(), pools.opener())
    };
    let seen = crate::pools::sights(closed, &folders);
    let due = node.owner.ask(|owned| Ok(owned.serving_mut()?.pools_mut().due(seen)));
    let mut attempts = due.unwrap();
    let attempt = attempts.pop().unwrap();
    assert_eq!(health(&node, "fast"), PoolHealth::Opening);
    let name = attempt.name.clone();
    // Whoever owns the node is busy with nothing else meanwhile: an opening asks nothing of it.
    let outcome =
        node.owner.ask_unseen(move |_| Ok(opener.attempt(&attempt, &|_, _| false))).unwrap();
    node.take_opened(&name, outcome);
    assert_eq!(health(&node, "fast"), PoolHealth::Online);
    assert!(namespace(&node).served);
    node.stop();
    drop(node);
}

/// One absent drive, or one absent address, kept everything from being served.
#[test]
fn a_node_starts_without_a_drive_or_an_address_that_is_absent() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let late = dir.join("late");
    let more = format!(
        "[[subsystem.namespace]]\nbackend = \"drive:{}\"\n\
         [[subsystem.namespace]]\nbackend = \"memory:1MiB\"\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\n\
         [[listener]]\naddress = \"192.0.2.1:4420\"\n",
        late.display()
    );
    let node = start(dir, "", &more);
    let served = |node: &Node| {
        [1, 2].map(|nsid| node.namespace(&NQN.parse().unwrap(), nsid).unwrap().served)
    };
    assert_eq!(served(&node), [false, true]);
    assert!(node.bound("127.0.0.1:0".parse().unwrap()).is_some());
    let problems = node.status().unwrap().problems;
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert_eq!(said(&node, "cannot listen on 192.0.2.1:4420"), 1);
    assert_eq!(said(&node, "waits for its drive"), 1);
    // Both can be changed all the same.
    node.remove_listener("192.0.2.1:4420".parse().unwrap(), Consent::NONE).unwrap();
    fs::File::create(&late).unwrap().set_len(1 << 20).unwrap();
    open_late(&node);
    assert_eq!(served(&node), [true, true]);
    let before = namespace(&node);
    assert!(node.status().unwrap().problems.is_empty());
    node.stop();
    drop(node);

    // From now on hosts see it as it was.
    fs::remove_file(&late).unwrap();
    let node = start(dir, "", &more);
    let waiting = namespace(&node);
    assert_eq!((waiting.served, waiting.uuid, waiting.size), (false, before.uuid, before.size));
    node.remove_namespace(&NQN.parse().unwrap(), 1, Consent::FORCE).unwrap();
    node.stop();
    drop(node);
}

/// Nobody could come any more, and nobody said so.
#[test]
fn a_listener_whose_device_was_removed_is_bound_again() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path(), "", "[[listener]]\naddress = \"127.0.0.1:0\"\n");
    let address = "127.0.0.1:0".parse().unwrap();
    open_late(&node);
    assert_eq!(said(&node, "listening on 127.0.0.1:0"), 0);
    let desert = move |owned: &mut Owned| {
        owned.serving()?.desert(address);
        Ok(())
    };
    node.owner.ask_unseen(desert).unwrap();
    open_late(&node);
    assert_eq!(said(&node, "its RDMA device was removed"), 1);
    assert_eq!(said(&node, "listening on 127.0.0.1:0"), 1);
    let bound = node.bound(address).unwrap();
    std::net::TcpStream::connect(bound.socket()).unwrap();
    open_late(&node);
    assert_eq!(said(&node, "its RDMA device was removed"), 1);
    node.stop();
}
