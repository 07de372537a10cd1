//! Direct write windows of a node's volumes, as far as no pool grants one.

use std::sync::Arc;

use target::reservation::HostId;
use target::windows::{Asker, Refused, Shared, Wanted, Who};

use super::{make, start};
use crate::node::Node;
use crate::windows::{Windows, socket_path};

fn windows(node: &Node) -> Option<Arc<Windows>> {
    node.owner.ask(|owned| Ok(owned.serving()?.windows())).unwrap()
}

/// What a host is told that asks for a window of a volume.
fn asked(windows: &Arc<Windows>, volume: [u8; 16]) -> Refused {
    let windows = Arc::clone(windows) as Arc<dyn target::windows::Windows>;
    let who = Who { host: HostId([1; 16]), association: Arc::default() };
    let wanted = Wanted { fabric: nvme::window::Fabric::Shm, ring_bytes: None, flushes: false };
    let asker = Asker { who, windows, volume, wanted };
    let ask = async move { Arc::new(Shared::default()).grant(asker, || Ok(())).await };
    reactor::run(reactor::Config::default(), ask).unwrap().unwrap_err()
}

#[test]
fn the_pool_that_has_a_volume_is_asked_and_what_has_no_pool_may_be_asked_for_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    let path = make(&node, dir, "fast");
    let socket = socket_path(node.state_dir());
    assert!(socket.exists());
    let volume = node.view().serving().unwrap().pools.volume(&path).unwrap().id();
    let granting = windows(&node).unwrap();
    // Its log is on its drives.
    assert_eq!(asked(&granting, volume), Refused::Never);
    assert_eq!(asked(&granting, [9; 16]), Refused::Busy);
    node.stop();
    assert!(!socket.exists());
    drop(node);
    assert_eq!(asked(&granting, volume), Refused::Failed, "its reactors have stopped");

    let node = start(dir, "windows = \"off\"", "");
    assert!(windows(&node).is_none() && !socket.exists());
    node.stop();
}

/// The kernel takes no longer ones, and a daemon has to be where it is.
#[test]
fn a_node_whose_folder_has_a_name_too_long_for_a_socket_grants_none() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("x".repeat(100));
    std::fs::create_dir(&dir).unwrap();
    let node = start(&dir, "", "");
    assert!(windows(&node).is_none() && !socket_path(node.state_dir()).exists());
    node.stop();
}
