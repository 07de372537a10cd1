//! Volumes that were made anew under the name of another.

use super::*;
use crate::pools::Limits;

/// Another node had the pool, and made another volume under the name. Where the mapping said no identity that was served as
/// the one that hosts knew, under its reservations.
#[test]
fn a_volume_made_anew_is_not_served_as_the_one_that_hosts_saw() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    let path = make(&node, dir, "fast");
    node.unmap_volume(&path, Consent::FORCE).unwrap();
    node.stop();
    drop(node);
    let mapped = "[[subsystem.namespace]]\nbackend = \"volume:fast/v\"\n";
    let node = start(dir, "", mapped);
    let before = namespace(&node);
    assert!(before.served);
    let withdraw = |owned: &mut Owned| {
        let state = Arc::clone(&owned.state);
        Ok(owned.serving_mut()?.withdraw(&named("fast"), &state.current).len())
    };
    assert_eq!(node.owner.ask(withdraw).unwrap(), 0);
    let (pool, volume) = (node.view().serving().unwrap().pools.pool(&named("fast")), named("v"));
    let pool = pool.unwrap();
    let attach = || {
        let failed = node.owner.ask(|owned| Ok(owned.attach(&named("fast")))).unwrap();
        failed.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(attach().is_empty());
    assert_eq!(namespace(&node), before, "it is the same");

    node.owner.ask(withdraw).unwrap();
    let block_size = pool.volume(&volume).unwrap().block_size();
    pool.delete_volume(&volume).unwrap();
    pool.create_volume(&volume, 1 << 20, block_size, Limits { quota: None, reservation: None })
        .unwrap();
    let failed = attach();
    assert!(failed.len() == 1 && failed[0].contains("not the one meant"), "{failed:?}");
    open_late(&node);
    let absent = namespace(&node);
    assert!(!absent.served);
    assert_eq!((absent.uuid, absent.size), (before.uuid, before.size));
    // Whoever means the new one maps it: under its own identity.
    let nqn = NQN.parse().unwrap();
    node.remove_namespace(&nqn, 1, Consent::FORCE).unwrap();
    let mapping: NewMapping =
        serde_json::from_str(&format!(r#"{{"subsystem": "{NQN}"}}"#)).unwrap();
    node.map_volume(&path, mapping).unwrap();
    let anew = namespace(&node);
    assert!(anew.served && anew.uuid != before.uuid);
    node.stop();
}
