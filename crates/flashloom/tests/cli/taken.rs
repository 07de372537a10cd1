//! What a pool is made of held nothing before, unless that is forced.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use crate::{Daemon, failure, free_port, json};

/// Makes a file of zeroes but for `mark`.
fn file(path: &Path, len: u64, at: u64, mark: &[u8]) {
    let file = fs::File::create(path).unwrap();
    file.set_len(len).unwrap();
    // Whatever the umask: a log that others may write is refused for that.
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    file.write_all_at(mark, at).unwrap();
}

#[test]
fn a_pool_is_made_of_what_holds_nothing_unless_forced() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let serve = format!("serve memory:1MiB --listen 127.0.0.1:{} --discovery off", free_port());
    let daemon = Daemon::start(dir, &serve);
    let place = |name: &str| dir.join(name).display().to_string();
    let (drive, log, fresh) = (place("drive"), place("log"), place("fresh"));
    let create = |more: &str| format!("pool create fast {more}");
    let refused = |more: &str, because: &str| {
        let (code, said) = failure(dir, &create(more));
        assert!(code == 1 && said.contains(because) && said.contains("--force"), "{said}");
    };

    file(Path::new(&drive), 256 << 20, 0x438, &[0x53, 0xef]);
    refused(&format!("--drive {drive},size=300MiB"), "holds an ext2, ext3 or ext4 file system");
    assert_eq!(fs::metadata(&drive).unwrap().len(), 256 << 20, "a refused file has grown");
    // What is left of a partition table whose beginning was wiped.
    file(Path::new(&drive), 256 << 20, (256 << 20) - 512, b"EFI PART");
    refused(&format!("--drive {drive}"), "holds data");
    // Another pool's log may have what nothing else has.
    file(Path::new(&log), 16 << 20, 0, b"FLMLOGCB");
    refused(
        &format!("--drive {fresh},size=256MiB --log bbu:{log}"),
        "holds the commit log of a pool",
    );
    assert!(!Path::new(&fresh).exists(), "what was made for a pool that was refused stayed");
    let (_, said) = failure(dir, &create(&format!("--drive {drive} --drive {drive} --force")));
    assert!(said.contains("given twice"), "{said}");
    let (_, said) =
        failure(dir, &create(&format!("--drive {drive} --log bbu:{fresh} --log-size 1 --force")));
    assert!(said.contains("the commit log would have 1 B, and needs 3 MiB or more"), "{said}");
    assert!(!Path::new(&fresh).exists(), "a log that was refused stayed");

    json(dir, &create(&format!("--drive {drive} --log bbu:{log} --force")));
    assert!(Path::new(&drive).exists() && Path::new(&log).exists());
    daemon.stop();
}

/// Another pool's log may have what nothing else has; one whose pool was exported has nothing.
#[test]
fn the_new_log_of_an_imported_pool_takes_no_other_ones_place() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve memory:1MiB --listen 127.0.0.1:{port} --discovery off");
    let daemon = Daemon::start(dir, &serve);
    let place = |name: &str| dir.join(name).display().to_string();
    let create = |name: &str| {
        let (drive, log) = (place(&format!("{name}-drive")), place(&format!("{name}-log")));
        json(
            dir,
            &format!(
                "pool create {name} --drive {drive},size=256MiB --log bbu:{log} --log-size 16MiB"
            ),
        );
    };
    create("one");
    create("two");
    json(dir, "volume create two/v --size 64MiB");
    let subnqn = json(dir, "subsystem list")[0]["nqn"].as_str().unwrap().to_owned();
    json(dir, &format!("volume map two/v --subnqn {subnqn} --nsid 2"));
    json(
        dir,
        &format!(
            "bench --traddr 127.0.0.1 --trsvcid {port} --subnqn {subnqn} --nsid 2 --rw write --size 64KiB"
        ),
    );
    json(dir, "pool export one");
    drop(daemon);
    // The other pool's log has what it acknowledged, and no daemon holds it.
    let other = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(other.path(), &serve);
    let import =
        |log: &str| format!("pool import --drive {} --log bbu:{}", place("one-drive"), place(log));
    let before = fs::read(place("two-log")).unwrap();
    let (code, said) = failure(other.path(), &import("two-log"));
    assert!(code == 1 && said.contains("holds the commit log of a pool"), "{said}");
    assert!(fs::read(place("two-log")).unwrap() == before, "a log that was refused has changed");
    file(Path::new(&place("notes")), 16 << 20, 0, &[7; 4096]);
    let (_, said) = failure(other.path(), &import("notes"));
    assert!(said.contains("holds data"), "{said}");
    // Its own is empty since it was exported.
    json(other.path(), &import("one-log"));
    json(other.path(), "pool export one");
    daemon.stop();
}

/// It was opened before its name was looked at, and no longer exported then.
#[test]
fn a_pool_whose_name_is_taken_stays_exported() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let serve = format!("serve memory:1MiB --listen 127.0.0.1:{} --discovery off", free_port());
    let daemon = Daemon::start(dir, &serve);
    let place = |name: &str| dir.join(name).display().to_string();
    let first = format!("--drive {} --log bbu:{}", place("first"), place("log"));
    json(dir, &format!("pool create fast --drive {},size=256MiB", place("first")));
    json(dir, "pool export fast");
    json(dir, &format!("pool create fast --drive {},size=256MiB", place("second")));
    let (code, said) = failure(dir, &format!("pool import --drive {}", place("first")));
    assert!(code == 1 && said.contains("a pool fast is there already"), "{said}");
    json(dir, "pool export fast");
    // An exported pool left nothing in its log, which may lie elsewhere from now on.
    json(dir, &format!("pool import {first}"));
    json(dir, "pool export fast");
    json(dir, &format!("pool import --drive {}", place("first")));
    json(dir, "pool export fast");
    daemon.stop();
}
