//! Drives that are served as they are: what is at their path may be another by now, or not there.

use std::os::unix::fs::symlink;

use super::*;

fn served_from(path: &Path) -> String {
    format!("[[subsystem.namespace]]\nbackend = \"drive:{}\"\n", path.display())
}

/// A blank file was made and served as what hosts had, where its file system was not mounted in time.
#[test]
fn what_was_served_is_not_made_anew_where_it_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (mount, away) = (dir.join("mount"), dir.join("away"));
    let file = mount.join("a");
    let asked = format!("{},size=1MiB", file.display());
    let asked = served_from(Path::new(&asked));
    fs::create_dir(&mount).unwrap();
    let node = start(dir, "", &asked);
    let before = namespace(&node);
    assert!(before.served);
    node.stop();
    drop(node);
    fs::rename(&mount, &away).unwrap();
    fs::create_dir(&mount).unwrap();
    let node = start(dir, "", &asked);
    for _ in 0..2 {
        let absent = namespace(&node);
        assert!(!absent.served && !file.exists());
        assert_eq!((absent.uuid, absent.size), (before.uuid, before.size));
        open_late(&node);
    }
    for len in [0, 4096] {
        fs::File::create(&file).unwrap().set_len(len).unwrap();
        open_late(&node);
        assert!(!namespace(&node).served);
        assert_eq!(fs::metadata(&file).unwrap().len(), len);
    }
    fs::remove_dir_all(&mount).unwrap();
    fs::rename(&away, &mount).unwrap();
    open_late(&node);
    assert_eq!(namespace(&node), before);
    // What an operator adds anew is.
    let nqn = NQN.parse().unwrap();
    node.remove_namespace(&nqn, 1, Consent::FORCE).unwrap();
    fs::remove_file(&file).unwrap();
    let add = |path: &str| {
        let new = format!(r#"{{"backend": "drive:{path},size=1MiB"}}"#);
        node.add_namespace(&nqn, serde_json::from_str(&new).unwrap())
    };
    add(&file.display().to_string()).unwrap();
    let none = "/dev/flashloom-has-no-such-drive";
    add(none).unwrap_err();
    assert!(!Path::new(none).exists());
    node.stop();
}

/// Names of drives go from one to the other: a drive of a pool was served raw before its pool was open.
#[test]
fn a_name_that_leads_to_a_drive_of_a_pool_is_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let name = dir.join("name");
    fs::File::create(&name).unwrap().set_len(1 << 20).unwrap();
    let asked = served_from(&name);
    let node = start(dir, "", &asked);
    let volume = make(&node, dir, "fast");
    node.unmap_volume(&volume, Consent::FORCE).unwrap();
    assert!(namespace(&node).served);
    node.stop();
    drop(node);
    for n in [0, 1] {
        fs::rename(dir.join(format!("fast{n}")), dir.join(format!("away{n}"))).unwrap();
    }
    let lead = |to: &str| {
        fs::remove_file(&name).unwrap();
        symlink(dir.join(to), &name).unwrap();
    };
    lead("away0");
    let node = start(dir, "wait-for-drives = 3600", &asked);
    assert!(!namespace(&node).served);
    lead("nothing");
    open_late(&node);
    lead("away1");
    open_late(&node);
    assert!(!namespace(&node).served);
    let more = format!("{asked}{}", served_from(&dir.join("away0")));
    let subsystem = format!("[[subsystem]]\nnqn = \"{NQN}\"\nallow-any-host = true\n");
    let text = format!("[node]\nwait-for-drives = 3600\n{subsystem}{more}");
    fs::write(dir.join("test.toml"), text).unwrap();
    let refused = node.reload().unwrap_err().to_string();
    assert!(refused.contains("away0 is a drive of pool fast"), "{refused}");
    node.stop();
}
