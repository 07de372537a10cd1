//! What a change takes away is gone when the change is kept, and not before.

use super::*;

/// Reservations were forgotten by a change that could not be written down, and by a reload that served the same in another
/// way.
#[test]
fn reservations_are_forgotten_when_their_namespace_is_gone_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let nqn = NQN.parse().unwrap();
    let asked = |more: &str| {
        let path = dir.join("a").display().to_string();
        format!("[[subsystem.namespace]]\nbackend = \"drive:{path},size=1MiB\"\n{more}")
    };
    let node = start(dir, "", &asked(""));
    let uuid = namespace(&node).uuid;
    let file = dir.join(format!("state/reservations/{uuid}.json"));
    let text = r#"{"version": 1, "generation": 1, "registrations": [{"host":
        "00000000-0000-0000-0000-000000000007", "key": 1}], "held": null}"#;
    fs::write(&file, text).unwrap();
    let blocker = dir.join("state/state.json.new");
    fs::create_dir(&blocker).unwrap();
    node.remove_namespace(&nqn, 1, Consent::FORCE).unwrap_err();
    assert!(namespace(&node).served && file.exists());
    fs::remove_dir(&blocker).unwrap();
    let subsystem = format!("[[subsystem]]\nnqn = \"{NQN}\"\nallow-any-host = true\n");
    let text = format!("{subsystem}{}", asked("block-size = 512\n"));
    fs::write(dir.join("test.toml"), text).unwrap();
    node.reload().unwrap();
    assert_eq!((namespace(&node).block_size, namespace(&node).uuid), (512, uuid));
    assert!(file.exists());
    node.remove_namespace(&nqn, 1, Consent::FORCE).unwrap();
    assert!(!file.exists());
    node.stop();
}

/// Namespaces of drives and volumes were gone for good, with their reservations, as if somebody had removed them.
#[test]
fn a_subsystem_that_gets_another_serial_by_a_reload_keeps_its_namespaces() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let nqn: api::value::Nqn = NQN.parse().unwrap();
    let drive = |name: &str| format!("drive:{},size=1MiB", dir.join(name).display());
    let asked = format!("[[subsystem.namespace]]\nnsid = 9\nbackend = \"{}\"\n", drive("a"));
    let node = start(dir, "", &asked);
    make(&node, dir, "fast");
    let new = serde_json::from_str(&format!(r#"{{"backend": "{}"}}"#, drive("b"))).unwrap();
    node.add_namespace(&nqn, new).unwrap();
    let before = node.subsystem(&nqn).unwrap().namespaces;
    assert!(before.len() == 3 && before.iter().all(|namespace| namespace.served));
    let file = dir.join(format!("state/reservations/{}.json", before[0].uuid));
    let text = r#"{"version": 1, "generation": 1, "registrations": [{"host":
        "00000000-0000-0000-0000-000000000007", "key": 1}], "held": null}"#;
    fs::write(&file, text).unwrap();
    let subsystem = format!("[[subsystem]]\nnqn = \"{NQN}\"\nallow-any-host = true\n");
    let text = format!("{subsystem}serial = \"NEW\"\n{asked}");
    fs::write(dir.join("test.toml"), &text).unwrap();
    node.reload().unwrap();
    let after = node.subsystem(&nqn).unwrap();
    assert_eq!((&*after.serial, after.namespaces), ("NEW", before));
    assert!(file.exists());
    node.stop();
}

/// A host that was not let in, as it was told, was let in by the next start.
#[test]
fn what_could_not_be_kept_is_not_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    let host = "nqn.2014-08.org.nvmexpress:uuid:6f0a2c9e-7c7e-4c55-9c3c-2f0f0f1f9a11";
    let new = serde_json::from_str(&format!(r#"{{"nqn": "{host}"}}"#)).unwrap();
    crate::state::late::refuse(&dir.join("state"));
    node.add_host(&NQN.parse().unwrap(), new).unwrap_err();
    let kept = || fs::read_to_string(dir.join("state/state.json")).unwrap();
    assert!(!kept().contains(host));
    node.stop();
}
