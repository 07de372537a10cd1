//! Files in use that somebody moves or removes.

use super::*;

/// A drive's file was removed while it was served, and nobody was told until the daemon had ended, and it was gone.
#[test]
fn a_file_that_is_moved_or_removed_while_in_use_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let raw = dir.join("raw");
    let more = format!(
        "[[subsystem.namespace]]\nnsid = 9\nbackend = \"drive:{},size=16MiB\"\n",
        raw.display()
    );
    let node = start(dir, "", &more);
    make(&node, dir, "fast");
    open_late(&node);
    let findings = |node: &Node| {
        let findings = node.health().unwrap().findings;
        let all = findings.into_iter().filter(|finding| finding.why.contains("moved or removed"));
        all.map(|finding| finding.why).collect::<Vec<_>>()
    };
    assert_eq!(findings(&node), [""; 0]);
    let (drive, aside) = (dir.join("fast2"), dir.join("aside"));
    fs::rename(&drive, &aside).unwrap();
    fs::remove_file(&raw).unwrap();
    for _ in 0..2 {
        open_late(&node);
        let found = findings(&node);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("fast2 of pool fast is in use"), "{found:?}");
        assert!(found[1].contains(&format!("raw of namespace 9 of {NQN} is in use")), "{found:?}");
        assert_eq!(said(&node, "was moved or removed: nothing is lost until"), 2);
    }
    assert_eq!(node.status().unwrap().health.health, api::v1::Health::Degraded);
    assert_eq!(health(&node, "fast"), PoolHealth::Online);

    // Another file at its path is not it.
    fs::write(&drive, "").unwrap();
    open_late(&node);
    assert_eq!(findings(&node).len(), 2);
    fs::rename(&aside, &drive).unwrap();
    open_late(&node);
    assert_eq!(findings(&node).len(), 1);
    assert_eq!(said(&node, "fast2 of pool fast is at its path again"), 1);
    // What is not in use any more is nobody's concern.
    node.remove_namespace(&NQN.parse().unwrap(), 9, Consent::FORCE).unwrap();
    open_late(&node);
    assert_eq!(findings(&node), [""; 0]);
    assert_eq!(said(&node, "at its path again"), 1);
    node.stop();
}
