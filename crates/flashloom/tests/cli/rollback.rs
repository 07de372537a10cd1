//! Rollbacks: a volume goes back to a snapshot, whether hosts have it or not, and forth again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::clones::{holds, lba, map, put};
use super::snapshots::{NQN, make, open};
use super::*;

const NO_HOST: &str = "snapshot rollback fast/db@mon";

const SURE: &str = "--yes does it without asking";

fn names(dir: &Path) -> Vec<String> {
    let all = json(dir, "snapshot list fast/db");
    let name = |snapshot: &Value| snapshot["name"].as_str().unwrap().to_owned();
    all.as_array().unwrap().iter().map(name).collect()
}

/// Of `fast/db`, which went back to Monday and is to be again what it was before.
fn it_goes_forth(dir: &Path, port: u16) {
    json(dir, "snapshot unmap fast/db@last --yes");
    json(dir, "volume unmap fast/db --yes");
    let (_, said) = failure(dir, "snapshot rollback fast/db@last --no-keep");
    assert!(said.contains("would be lost") && said.contains(SURE), "{said}");
    let (_, said) = failure(dir, "snapshot rollback fast/db@last --keep-as tue");
    assert!(said.contains("fast/db@tue is there already"), "{said}");
    let forth = json(dir, "snapshot rollback fast/db@last --no-keep --yes");
    assert_eq!((&forth["kept"], &forth["volume"]["size"]), (&Value::Null, &(128 << 20).into()));
    let kept = json(dir, "snapshot rollback fast/db@last")["kept"].take();
    assert!(kept.as_str().unwrap().starts_with("fast/db@before-rollback-2"), "{kept}");
    let db = map(dir, "volume map fast/db", 1, port);
    holds(&db, &[0xb2, 0xb2, 0xb2, 0xb2, 0xc3, 0xc3, 0xc3, 0xc3, 0]);
    let mut end = vec![1; 1 << 20];
    db.read(lba(127), &mut end).unwrap();
    assert!(end.iter().all(|byte| *byte == 0));
    for name in names(dir) {
        json(dir, &format!("snapshot delete {name} --yes"));
    }
    holds(&db, &[0xb2, 0xb2, 0xb2, 0xb2, 0xc3, 0xc3, 0xc3, 0xc3, 0]);
    db.shut_down().unwrap();
}

#[test]
fn a_volume_goes_back_to_a_snapshot_and_forth_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve --discovery off --listen 127.0.0.1:{port} memory:16MiB");
    let daemon = Daemon::start(dir, &serve);
    make(dir);
    let db = open(port, 1);
    put(&db, 0, 0xa1);
    json(dir, "snapshot create fast/db@mon");
    put(&db, 0, 0xb2);
    json(dir, "snapshot create fast/db@tue");
    put(&db, 4, 0xc3);
    json(dir, "volume resize fast/db 128MiB");
    let id = json(dir, "volume show fast/db")["id"].take();

    // Hosts have it: who asks is told so, and nothing is done.
    let (_, said) = failure(dir, NO_HOST);
    assert!(said.contains("namespace 1 of") && said.contains("unmount it"), "{said}");
    let would = json(dir, &format!("{NO_HOST} --no-keep --dry-run"));
    assert_eq!(would["losses"].as_array().unwrap().len(), 2, "{would}");
    holds(&db, &[0xb2, 0xb2, 0xb2, 0xb2, 0xc3, 0xc3, 0xc3, 0xc3, 0]);

    // Meant, the namespace is the same, and has what it had on Monday.
    let back = json(dir, &format!("{NO_HOST} --yes --keep-as last"));
    assert_eq!((&back["kept"], &back["volume"]["id"]), (&"fast/db@last".into(), &id));
    assert_eq!(
        (&back["volume"]["size"], &back["volume"]["origin"]),
        (&(64 << 20).into(), &Value::Null)
    );
    let event = "volume fast/db went back to fast/db@mon; fast/db@last has what it had before";
    until_event(dir, event);
    rig::wait_until("hosts see the size of Monday", || db.geometry().blocks == lba(64));
    holds(&db, &[0xa1, 0xa1, 0xa1, 0xa1, 0, 0]);
    put(&db, 2, 0xd4);
    assert_eq!(names(dir), ["fast/db@mon", "fast/db@tue", "fast/db@last"]);
    let last = map(dir, "snapshot map fast/db@last", 5, port);
    holds(&last, &[0xb2, 0xb2, 0xb2, 0xb2, 0xc3, 0xc3, 0xc3, 0xc3, 0]);
    rig::wait_until("what it went back to is counted", || {
        let volume = json(dir, "volume show fast/db");
        volume["inherited"] == 4 << 20 && volume["used"] == 4 << 20
    });
    // All of now is told, and what Tuesday had beside it.
    json(dir, "snapshot create fast/db@wed");
    let data = serde_json::json!([{ "offset": 0, "bytes": 6 << 20, "data": true }]);
    assert_eq!(json(dir, "snapshot diff fast/db@tue fast/db@wed"), data);
    let (_, said) = failure(dir, "snapshot diff fast/db@wed fast/db@last");
    assert!(said.contains("is not older than"), "{said}");
    let (_, said) = failure(dir, "volume delete fast/db --yes");
    assert!(said.contains("is namespace 1 of"), "{said}");

    // And forth, over a kill.
    last.shut_down().unwrap();
    db.shut_down().unwrap();
    drop(daemon);
    let daemon = Daemon::start(dir, &serve);
    rig::wait_until("the pool is open", || json(dir, "pool show fast")["status"].is_object());
    assert_eq!(names(dir), ["fast/db@mon", "fast/db@tue", "fast/db@last", "fast/db@wed"]);
    it_goes_forth(dir, port);
    daemon.stop();
}

/// From each shard's blocks to the other's, in blocks of 512 bytes.
const STEP: u64 = 2048;

/// A host that writes all the while: none of its commands fails, and what was acknowledged before is in the snapshot kept.
#[test]
fn hosts_that_have_a_volume_wait_while_it_goes_back() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve --discovery off --listen 127.0.0.1:{port} memory:16MiB");
    let daemon = Daemon::start(dir, &serve);
    let drives: Vec<_> =
        (0..2).map(|n| format!("--drive {}/d{n},size=512MiB", dir.display())).collect();
    json(dir, &format!("pool create fast {} --log-size 16MiB --shards 2", drives.join(" ")));
    json(dir, "volume create fast/db --size 64MiB --block-size 512");
    json(dir, &format!("volume map fast/db -n {NQN} --nsid 1 --allow-any-host"));
    let db = Arc::new(open(port, 1));
    json(dir, "snapshot create fast/db@mon");
    let (ends, told) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writer = std::thread::spawn({
        let (db, ends, told) = (Arc::clone(&db), Arc::clone(&ends), Arc::clone(&told));
        move || {
            for number in 1.. {
                if ends.load(Ordering::Acquire) {
                    return number - 1;
                }
                let mut data = [0; 512];
                data[..8].copy_from_slice(&u64::to_le_bytes(number));
                db.write(number % 64 * STEP, &data, client::Fua::No).unwrap();
                told.store(number, Ordering::Release);
            }
            0
        }
    });
    let newest = |namespace: &client::Namespace| {
        let number = |at: u64| {
            let mut data = [0; 512];
            namespace.read(at * STEP, &mut data).unwrap();
            u64::from_le_bytes(data[..8].try_into().unwrap())
        };
        (0..64).map(number).max().unwrap()
    };
    for round in 0..24 {
        let from = told.load(Ordering::Acquire);
        rig::wait_until("the host writes", || told.load(Ordering::Acquire) > from + 64);
        let before = told.load(Ordering::Acquire);
        json(dir, &format!("snapshot rollback fast/db@mon --yes --keep-as kept{round}"));
        let after = told.load(Ordering::Acquire);
        let was = map(dir, &format!("snapshot map fast/db@kept{round}"), 9, port);
        let kept = newest(&was);
        assert!((before..=after + 1).contains(&kept), "{before} to {after}, not {kept}");
        was.shut_down().unwrap();
        json(dir, &format!("snapshot unmap fast/db@kept{round} --yes"));
    }
    ends.store(true, Ordering::Release);
    let last = writer.join().unwrap();
    assert_eq!(newest(&db), last);
    drop(db);
    daemon.stop();
}

#[test]
fn the_volumes_of_a_group_go_back_together_or_none_does() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve --discovery off --listen 127.0.0.1:{port} memory:16MiB");
    let daemon = Daemon::start(dir, &serve);
    make(dir);
    json(dir, "group create fast/app --volume fast/db --volume fast/log");
    let all = [open(port, 1), open(port, 2)];
    let blocks = |n: usize| if n == 0 { 8 } else { 1 };
    let is = |n: usize, byte: u8| {
        let mut data = vec![!byte; 4096];
        all[n].read(blocks(n), &mut data).unwrap();
        data.iter().all(|is| *is == byte)
    };
    let write = |byte: u8| {
        for (n, volume) in all.iter().enumerate() {
            volume.write(blocks(n), &[byte; 4096], client::Fua::No).unwrap();
        }
    };
    write(0xa1);
    json(dir, "group snapshot fast/app@mon");
    write(0xb2);
    json(dir, "snapshot create fast/db@tue");
    let (_, said) = failure(dir, "group rollback fast/app@tue --yes");
    assert!(said.contains("no snapshot fast/log@tue"), "{said}");
    let (_, said) = failure(dir, "group rollback fast/app@mon");
    assert!(said.contains("namespace 1 of") && said.contains("namespace 2 of"), "{said}");
    assert!(said.contains(SURE), "{said}");
    let (_, said) = failure(dir, "group rollback fast/app@mon --yes --keep-as tue");
    assert!(said.contains("fast/db@tue is there already"), "{said}");
    assert!(is(0, 0xb2) && is(1, 0xb2));
    let done = json(dir, "group rollback fast/app@mon --yes --keep-as last");
    let kept = |n: usize| done[n]["kept"].as_str().unwrap();
    assert_eq!((kept(0), kept(1)), ("fast/db@last", "fast/log@last"));
    until_event(dir, "volumes of group fast/app went back to fast/app@mon; snapshots last have");
    assert!(is(0, 0xa1) && is(1, 0xa1));
    assert_eq!(
        json(dir, "group show fast/app")["volumes"],
        serde_json::json!(["fast/db", "fast/log"])
    );
    json(dir, "group rollback fast/app@last --yes --no-keep");
    assert!(is(0, 0xb2) && is(1, 0xb2));
    // What they were before holds up nothing.
    json(dir, "group delete fast/app --yes");
    all.iter().for_each(|volume| volume.shut_down().unwrap());
    daemon.stop();
}
