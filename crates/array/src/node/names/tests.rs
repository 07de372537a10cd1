//! What is served counts, also where the state has another name for it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::v1::{Consent, Kind, NewPool, NewVolume, PollPolicy};
use api::value::{Name, VolumePath};

use crate::node::{Node, Options, Source};

const PATIENCE: Duration = Duration::from_secs(120);

/// A node with a pool of the volumes `v`, with the snapshot `s`, and `w`; `v` and `v@s` are mapped.
fn mapped(dir: &Path) -> Arc<Node> {
    let options = Options {
        state_dir: dir.join("state"),
        source: Source::State,
        fresh: false,
        cpus: None,
        poll: Some(PollPolicy::Interrupt),
    };
    let node = Node::start(options).unwrap();
    assert!(node.wait_for_openings(PATIENCE));
    let mut new: NewPool = serde_json::from_str(r#"{"name": "p", "drives": []}"#).unwrap();
    let drive = |n| format!("{}/d{n},size=192MiB", dir.display()).parse().unwrap();
    new.drives = (0..2).map(drive).collect();
    new.log_size = Some("16MiB".parse().unwrap());
    node.create_pool(&new).unwrap();
    let pool: Name = "p".parse().unwrap();
    for name in ["v", "w"] {
        let new = format!(r#"{{"name": "{name}", "size": 1048576}}"#);
        let new: NewVolume = serde_json::from_str(&new).unwrap();
        node.create_volume(&pool, &new).unwrap();
    }
    node.take_snapshots(&serde_json::from_str(r#"{"names": ["p/v@s"]}"#).unwrap()).unwrap();
    let new = |nsid: u32| {
        let nqn = "nqn.2026-11.io.flashloom:a";
        let new = format!(r#"{{"subsystem": "{nqn}", "nsid": {nsid}, "allow_any_host": true}}"#);
        serde_json::from_str(&new).unwrap()
    };
    node.map_volume(&path("p/v"), new(1)).unwrap();
    node.map_snapshot(&"p/v@s".parse().unwrap(), new(2)).unwrap();
    node
}

fn path(text: &str) -> VolumePath {
    text.parse().unwrap()
}

/// Has the state call what is served by the name of another volume, as no change can.
fn miscall(node: &Node) {
    let miscalled = node.owner.ask(|owned| {
        let mut all = Arc::make_mut(&mut owned.state).current.subsystems.values_mut();
        for def in all.by_ref().flat_map(|def| def.namespaces.values_mut()) {
            def.backend = def.backend.to_string().replace("p/v", "p/w").parse().unwrap();
        }
        Ok(())
    });
    miscalled.unwrap();
}

#[test]
fn what_is_served_is_not_deleted_whatever_the_state_calls_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = mapped(dir.path());
    miscall(&node);
    let error = node.delete_volume(&path("p/v"), Consent::FORCE).unwrap_err();
    assert!(error.kind == Kind::Conflict && error.context.contains("is namespace 1"), "{error}");
    let snapshot = "p/v@s".parse().unwrap();
    let error = node.delete_snapshot(&snapshot, Consent::FORCE).unwrap_err();
    assert!(error.kind == Kind::Conflict && error.context.contains("is namespace 2"), "{error}");
    // The other one is not served: it neither can be unmapped nor is it kept.
    assert_eq!(node.volume(&path("p/w")).unwrap().mapping, None);
    assert!(node.unmap_volume(&path("p/w"), Consent::FORCE).is_err());
    node.delete_volume(&path("p/w"), Consent::FORCE).unwrap();
    // Hosts are shown the size of what they have.
    let change = serde_json::from_str(r#"{"size": 2097152}"#).unwrap();
    node.change_volume(&path("p/v"), &change, Consent::FORCE).unwrap();
    let nqn = "nqn.2026-11.io.flashloom:a".parse().unwrap();
    assert_eq!(node.namespace(&nqn, 1).unwrap().size.bytes(), 2 << 20);
    node.unmap_snapshot(&snapshot, Consent::FORCE).unwrap();
    node.unmap_volume(&path("p/v"), Consent::FORCE).unwrap();
    node.delete_snapshot(&snapshot, Consent::FORCE).unwrap();
    node.delete_volume(&path("p/v"), Consent::FORCE).unwrap();
    node.stop();
}
