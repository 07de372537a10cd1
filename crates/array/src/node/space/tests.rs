//! What hosts and operators are told of a pool that lacks something.

use std::path::Path;
use std::sync::Arc;

use api::v1::{NewMapping, NewPool, NewVolume, PollPolicy, PoolImport};
use api::value::VolumePath;

use crate::config;
use crate::node::{Node, Options, Source};

const NQN: &str = "nqn.2026-11.io.flashloom:a";

fn start(dir: &Path) -> Arc<Node> {
    let text = format!("[[subsystem]]\nnqn = \"{NQN}\"\nallow-any-host = true\n");
    let desired = config::parse(Path::new("test.toml"), &text).unwrap().desired;
    let options = Options {
        state_dir: dir.join("state"),
        source: Source::CommandLine(desired),
        fresh: false,
        cpus: None,
        poll: Some(PollPolicy::Interrupt),
    };
    Node::start(options).unwrap()
}

fn look(node: &Arc<Node>) {
    let node = Arc::clone(node);
    reactor::run(reactor::Config::default(), async move { node.look_at_space().await.unwrap() })
        .unwrap();
}

/// Whether the hosts of the subsystem are warned, and how many events say that the pool is degraded.
fn told(node: &Node) -> (bool, usize) {
    let inner = node.inner();
    let health = inner.serving().unwrap().health(&NQN.parse().unwrap()).unwrap();
    let events = node.events(0);
    let said =
        events.iter().filter(|event| event.message.contains("pool fast is degraded: drive 1"));
    (health.reliability_degraded, said.count())
}

/// Hosts were told of a pool's room only: that a further failure may cost their data they were not.
#[test]
fn hosts_of_a_degraded_pool_are_warned() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let drive = |n: u32| format!("{}/d{n},size=192MiB", dir.display()).parse().unwrap();
    let node = start(dir);
    let mut pool: NewPool = serde_json::from_str(r#"{"name": "fast", "drives": []}"#).unwrap();
    (pool.drives, pool.log_size) = (vec![drive(0), drive(1)], Some("16MiB".parse().unwrap()));
    node.create_pool(&pool).unwrap();
    let volume: NewVolume = serde_json::from_str(r#"{"name": "v", "size": 1048576}"#).unwrap();
    node.create_volume(&pool.name, &volume).unwrap();
    let path: VolumePath = "fast/v".parse().unwrap();
    let mapping: NewMapping =
        serde_json::from_str(&format!(r#"{{"subsystem": "{NQN}"}}"#)).unwrap();
    node.map_volume(&path, mapping).unwrap();
    look(&node);
    assert_eq!(told(&node), (false, 0));
    node.stop();
    drop(node);

    std::fs::remove_file(dir.join("d1")).unwrap();
    let node = start(dir);
    let import = serde_json::json!({"drives": [drive(0)], "degraded": true});
    let import: PoolImport = serde_json::from_value(import).unwrap();
    node.import_pool(&import).unwrap();
    look(&node);
    look(&node);
    assert_eq!(told(&node), (true, 1), "told once");
    node.unmap_volume(&path).unwrap();
    look(&node);
    assert_eq!(told(&node), (false, 1), "the subsystem has nothing of that pool any more");
    node.stop();
    drop(node);
}
