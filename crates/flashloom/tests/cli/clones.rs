//! Clones: volumes that begin with what a snapshot has, and are volumes in everything from then on.

use super::snapshots::{NQN, make, open};
use super::*;

const MIB: usize = 1 << 20;

/// `fast/db` has blocks of 512 bytes, and so have its clones.
pub const fn lba(mib: usize) -> u64 {
    (mib * MIB / 512) as u64
}

/// Writes four MiB from the first of them on.
pub fn put(namespace: &client::Namespace, mib: usize, byte: u8) {
    namespace.write(lba(mib), &vec![byte; 4 * MIB], client::Fua::No).unwrap();
}

/// Each MiB of a namespace, from its first one on, is all of this value.
pub fn holds(namespace: &client::Namespace, bytes: &[u8]) {
    for (mib, byte) in bytes.iter().enumerate() {
        let mut data = vec![!byte; MIB];
        namespace.read(lba(mib), &mut data).unwrap();
        let other = data.iter().find(|is| *is != byte);
        assert_eq!(other, None, "MiB {mib} is not all of 0x{byte:x}");
    }
}

pub fn map(dir: &Path, what: &str, nsid: u32, port: u16) -> client::Namespace {
    json(dir, &format!("{what} -n {NQN} --nsid {nsid}"));
    open(port, nsid)
}

fn origin(dir: &Path, volume: &str) -> Value {
    json(dir, &format!("volume show {volume}"))["origin"].take()
}

/// What the table of volumes has in the column of origins.
fn listed_origins(dir: &Path) -> Vec<(String, String)> {
    let table = String::from_utf8(run(dir, "volume list").stdout).unwrap();
    let cells = |line: &str| {
        let cells = line.strip_prefix('│')?.split('┆').map(|cell| cell.trim().to_owned());
        Some(cells.collect::<Vec<_>>())
    };
    let mut lines = table.lines().filter_map(cells);
    let head = lines.next().unwrap();
    let at = head.iter().position(|cell| cell == "origin").unwrap();
    lines.map(|cells| (cells[0].clone(), cells[at].clone())).collect()
}

fn until_open(dir: &Path) {
    rig::wait_until("the pool is open", || json(dir, "pool show fast")["status"].is_object());
}

/// A clone of a clone, resized, of `fast/dev`, whose first four MiB and second four MiB are given.
fn a_clone_is_cloned(dir: &Path, port: u16, dev: &client::Namespace) {
    json(dir, "snapshot create fast/dev@own");
    // What it has data in is told with what it has of others.
    let data = |bytes: usize| serde_json::json!([{ "offset": 0, "bytes": bytes, "data": true }]);
    assert_eq!(json(dir, "snapshot diff fast/dev@own"), data(8 * MIB));
    put(dev, 0, 0xe5);
    let made = json(dir, "volume clone fast/dev@own fast/test --size 128MiB");
    assert_eq!((&made["size"], &made["block_size"]), (&(128 << 20).into(), &512.into()));
    let own = serde_json::json!({ "volume": "fast/dev", "snapshot": "own" });
    assert_eq!(made["origin"], own);
    let test = map(dir, "volume map fast/test", 4, port);
    let was = map(dir, "snapshot map fast/dev@own", 5, port);
    let before = [0xc3, 0xc3, 0xc3, 0xc3, 0xa1, 0xa1, 0xa1, 0xa1, 0];
    holds(&was, &before);
    holds(&test, &before);
    put(&test, 64, 0xf6);
    // What both have of others is moved by reference as anything else.
    test.copy(&[(lba(4), 256)], lba(0)).unwrap();
    let mut data = vec![0; MIB];
    test.read(0, &mut data).unwrap();
    assert!(data[..256 * 512].iter().all(|byte| *byte == 0xa1));
    assert!(data[256 * 512..].iter().all(|byte| *byte == 0xc3));
    holds(&was, &before);
    // What a smaller size cut off is not there any more, and what the snapshot has there is.
    json(dir, "volume resize fast/test 2MiB --yes");
    json(dir, "volume resize fast/test 80MiB");
    let mut data = vec![1; 2 * MIB];
    test.read(lba(1), &mut data).unwrap();
    assert!(data[..MIB].iter().all(|byte| *byte == 0xc3));
    assert!(data[MIB..].iter().all(|byte| *byte == 0));
    test.read(lba(64), &mut data).unwrap();
    assert!(data.iter().all(|byte| *byte == 0));
    holds(&was, &before);
    [test, was].iter().for_each(|one| one.shut_down().unwrap());
    for what in ["volume unmap fast/test", "snapshot unmap fast/dev@own"] {
        json(dir, &format!("{what} --yes"));
    }
}

#[test]
fn a_clone_and_what_it_is_of_are_changed_without_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve --discovery off --listen 127.0.0.1:{port} memory:16MiB");
    let daemon = Daemon::start(dir, &serve);
    make(dir);
    let db = open(port, 1);
    put(&db, 0, 0xa1);
    put(&db, 4, 0xa1);
    json(dir, "snapshot create fast/db@mon");
    put(&db, 0, 0xb2);
    let made = json(dir, "volume clone fast/db@mon fast/dev");
    let mon = serde_json::json!({ "volume": "fast/db", "snapshot": "mon" });
    let told = ["name", "size", "block_size", "snapshots", "origin", "mapping"];
    let right = ["fast/dev".into(), (64 << 20).into(), 512.into(), 0.into(), mon, Value::Null];
    assert_eq!(told.map(|key| made[key].clone()), right);
    assert_ne!(made["id"], json(dir, "volume show fast/db")["id"]);
    until_event(dir, "volume fast/dev made, a clone of fast/db@mon");

    let dev = map(dir, "volume map fast/dev", 2 + 1, port);
    holds(&dev, &[0xa1; 8]);
    put(&dev, 0, 0xc3);
    put(&db, 4, 0xd4);
    holds(&dev, &[0xc3, 0xc3, 0xc3, 0xc3, 0xa1, 0xa1, 0xa1, 0xa1, 0]);
    holds(&db, &[0xb2, 0xb2, 0xb2, 0xb2, 0xd4, 0xd4, 0xd4, 0xd4, 0]);
    let was = map(dir, "snapshot map fast/db@mon", 4, port);
    holds(&was, &[0xa1; 8]);
    was.shut_down().unwrap();
    json(dir, "snapshot unmap fast/db@mon --yes");
    rig::wait_until("what a clone has of its own is counted", || {
        json(dir, "volume show fast/dev")["used"] == 4 << 20
    });
    a_clone_is_cloned(dir, port, &dev);

    // Between its own snapshots, what was written in between.
    json(dir, "snapshot create fast/dev@next");
    let data = serde_json::json!([{ "offset": 0, "bytes": 4 * MIB, "data": true }]);
    assert_eq!(json(dir, "snapshot diff fast/dev@own fast/dev@next"), data);

    // What is taken from a clone reads as zeroes, and not as what its origin has there.
    dev.deallocate(&[(lba(5), 2048)]).unwrap();
    dev.write_zeroes(lba(6), 2048, client::Deallocate::No, client::Fua::No).unwrap();
    holds(&dev, &[0xe5, 0xe5, 0xe5, 0xe5, 0xa1, 0, 0, 0xa1, 0]);
    holds(&db, &[0xb2, 0xb2, 0xb2, 0xb2, 0xd4, 0xd4, 0xd4, 0xd4, 0]);

    // Names are those of now.
    json(dir, "volume rename fast/db old");
    let renamed = serde_json::json!({ "volume": "fast/old", "snapshot": "mon" });
    assert_eq!(origin(dir, "fast/dev"), renamed);
    assert_eq!(origin(dir, "fast/old"), Value::Null);
    let named = [
        ("fast/dev", "fast/old@mon"),
        ("fast/log", "-"),
        ("fast/old", "-"),
        ("fast/test", "fast/dev@own"),
    ];
    let listed = listed_origins(dir);
    let listed: Vec<_> = listed.iter().map(|(name, of)| (name.as_str(), of.as_str())).collect();
    assert_eq!(listed, named);
    [db, dev].iter().for_each(|one| one.shut_down().unwrap());
    daemon.stop();
}

/// What a clone has of others is there as long as the clone, whatever they come to, and whatever ends the daemon.
#[test]
fn a_clone_outlives_what_it_is_of_and_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve --discovery off --listen 127.0.0.1:{port} memory:16MiB");
    let daemon = Daemon::start(dir, &serve);
    make(dir);
    let db = open(port, 1);
    put(&db, 0, 0xa1);
    put(&db, 4, 0xa1);
    json(dir, "snapshot create fast/db@mon");
    put(&db, 0, 0xb2);
    json(dir, "volume clone fast/db@mon fast/dev");
    let dev = map(dir, "volume map fast/dev", 3, port);
    put(&dev, 4, 0xc3);
    let mut now = [0xa1, 0xa1, 0xa1, 0xa1, 0xc3, 0xc3, 0xc3, 0xc3, 0];
    holds(&dev, &now);

    let (_, said) = failure(dir, "snapshot delete fast/db@mon");
    assert!(said.contains("would be lost") && said.contains("clones keep"), "{said}");
    json(dir, "snapshot delete fast/db@mon --yes");
    assert_eq!(origin(dir, "fast/dev"), serde_json::json!({ "volume": "fast/db" }));
    assert_eq!(listed_origins(dir)[1], ("fast/dev".into(), "fast/db".into()));
    holds(&dev, &now);
    // Whatever its volume has in those places by then.
    put(&db, 0, 0xd4);
    holds(&dev, &now);
    db.shut_down().unwrap();
    json(dir, "volume unmap fast/db --yes");
    let (_, said) = failure(dir, "volume delete fast/db");
    assert!(said.contains("that no clone has"), "{said}");
    let (_, said) = failure(dir, "volume delete fast/log");
    assert!(!said.contains("clone"), "{said}");
    json(dir, "volume delete fast/db --yes");
    assert_eq!(origin(dir, "fast/dev"), serde_json::json!({}));
    let all = [("fast/dev".into(), "deleted".into()), ("fast/log".into(), "-".into())];
    assert_eq!(listed_origins(dir), all);
    holds(&dev, &now);
    // Its name is free, and another one of that name is not it.
    json(dir, "volume create fast/db --size 64MiB --block-size 512");
    assert_eq!(origin(dir, "fast/dev"), serde_json::json!({}));
    let db = map(dir, "volume map fast/db", 1, port);
    holds(&db, &[0; 9]);
    put(&db, 0, 0xee);
    holds(&dev, &now);

    put(&dev, 1, 0xe5);
    now = [0xa1, 0xe5, 0xe5, 0xe5, 0xe5, 0xc3, 0xc3, 0xc3, 0];
    [db, dev].iter().for_each(|one| one.shut_down().unwrap());
    // Dropped is killed, with -9.
    drop(daemon);
    let daemon = Daemon::start(dir, &serve);
    until_open(dir);
    let dev = open(port, 3);
    holds(&dev, &now);
    assert_eq!(origin(dir, "fast/dev"), serde_json::json!({}));
    put(&dev, 4, 0xf6);
    now = [0xa1, 0xe5, 0xe5, 0xe5, 0xf6, 0xf6, 0xf6, 0xf6, 0];
    dev.shut_down().unwrap();
    daemon.stop();
    let daemon = Daemon::start(dir, &serve);
    until_open(dir);
    let dev = open(port, 3);
    holds(&dev, &now);
    dev.shut_down().unwrap();
    json(dir, "volume unmap fast/dev --yes");
    let (_, said) = failure(dir, "volume delete fast/dev");
    assert!(said.contains("and all it holds"), "{said}");
    json(dir, "volume delete fast/dev --yes");
    daemon.stop();
}

/// Of three, one made of the other, the first and the second are deleted, in either order, and the last has all it had.
#[test]
fn a_clone_of_a_clone_outlives_both() {
    for first in ["fast/db", "fast/mid"] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let port = free_port();
        let serve = format!("serve --discovery off --listen 127.0.0.1:{port} memory:16MiB");
        let daemon = Daemon::start(dir, &serve);
        make(dir);
        let db = open(port, 1);
        put(&db, 0, 0xa1);
        json(dir, "snapshot create fast/db@one");
        json(dir, "volume clone fast/db@one fast/mid");
        let mid = map(dir, "volume map fast/mid", 3, port);
        put(&mid, 2, 0xb2);
        json(dir, "snapshot create fast/mid@two");
        json(dir, "volume clone fast/mid@two fast/leaf");
        let leaf = map(dir, "volume map fast/leaf", 4, port);
        put(&leaf, 4, 0xc3);
        // What they have by then is in no snapshot.
        put(&db, 0, 0xd4);
        put(&mid, 0, 0xe5);
        let now = [0xa1, 0xa1, 0xb2, 0xb2, 0xc3, 0xc3, 0xc3, 0xc3, 0];
        holds(&leaf, &now);
        let second = if first == "fast/db" { "fast/mid" } else { "fast/db" };
        for one in [first, second] {
            json(dir, &format!("volume unmap {one} --yes"));
            let snapshot = if one == "fast/db" { "fast/db@one" } else { "fast/mid@two" };
            // Also where only what is deleted by now was made of it.
            let (_, said) = failure(dir, &format!("snapshot delete {snapshot}"));
            assert!(said.contains("clones keep"), "{said}");
            json(dir, &format!("snapshot delete {snapshot} --yes"));
            let (_, said) = failure(dir, &format!("volume delete {one}"));
            assert!(said.contains("that no clone has"), "{said}");
            json(dir, &format!("volume delete {one} --yes"));
            holds(&leaf, &now);
        }
        [db, mid, leaf].iter().for_each(|one| one.shut_down().unwrap());
        // Dropped is killed, with -9.
        drop(daemon);
        let daemon = Daemon::start(dir, &serve);
        until_open(dir);
        let leaf = open(port, 4);
        holds(&leaf, &now);
        leaf.shut_down().unwrap();
        daemon.stop();
    }
}

/// A script that lost the answer asks again, as for any volume.
#[test]
fn a_clone_is_made_by_a_job_like_any_volume() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve --discovery off --listen 127.0.0.1:{port} memory:16MiB");
    let mut daemon = Daemon::start(dir, &serve);
    make(dir);
    json(dir, "snapshot create fast/db@one");
    let keyed = "volume clone fast/db@one fast/a --request-key a";
    let made = json(dir, keyed);
    assert_eq!(made, json(dir, keyed));
    let (code, said) = failure(dir, "volume clone fast/db@one fast/b --request-key a");
    assert!(code == 1 && said.contains("another request"), "{said}");
    let id = json(dir, "volume clone fast/db@one fast/b --no-wait")["id"].as_u64().unwrap();
    let over = json(dir, &format!("job wait {id}"));
    let told = ["kind", "target", "state", "result"].map(|key| over[key].as_str().unwrap());
    assert_eq!(told, ["volume-create", "fast/b", "done", "/v1/pools/fast/volumes/b"]);
    for n in 0..3 {
        let keyed = format!("volume clone fast/db@one fast/c{n} --request-key c{n}");
        let id = json(dir, &format!("{keyed} --no-wait"))["id"].as_u64().unwrap();
        // Dropped is killed, with -9.
        drop(daemon);
        daemon = Daemon::start(dir, &serve);
        until_open(dir);
        let job = json(dir, &format!("job show {id}"));
        let all = json(dir, "volume list");
        let is_there =
            all.as_array().unwrap().iter().any(|one| one["name"] == format!("fast/c{n}"));
        let is_right = match job["state"].as_str().unwrap() {
            "done" => is_there,
            "interrupted" => job["error"]["help"].as_str().unwrap().contains("ask again"),
            _ => false,
        };
        assert!(is_right, "{job}");
        // It is there as a whole, or is made by the same request.
        if !is_there {
            json(dir, &keyed);
        }
        let whole = serde_json::json!({ "volume": "fast/db", "snapshot": "one" });
        assert_eq!(origin(dir, &format!("fast/c{n}")), whole);
    }
    assert_eq!(json(dir, keyed)["name"], "fast/a");
    daemon.stop();
}

/// A volume that the command line does not ask for so.
fn post(dir: &Path, body: &str) -> String {
    let mut socket = UnixStream::connect(dir.join("api.sock")).unwrap();
    let head = "POST /v1/pools/fast/volumes HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                content-type: application/json";
    write!(socket, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_wrong_request_for_a_clone_changes_nothing_and_says_what_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let serve = format!("serve --discovery off --listen 127.0.0.1:{} memory:16MiB", free_port());
    let daemon = Daemon::start(dir, &serve);
    make(dir);
    let drives = [2, 3].map(|n| format!("--drive {}/d{n},size=192MiB", dir.display()));
    json(dir, &format!("pool create slow {} --log-size 16MiB", drives.join(" ")));
    json(dir, "snapshot create fast/db@one");
    let before = json(dir, "volume list");
    let wrong = [
        ("fast/db fast/dev", "POOL/VOLUME@NAME"),
        ("fast/db@one dev", "write POOL/NAME"),
        ("fast/db@one fast/-", "is not a name"),
        ("fast/db@two fast/dev", "snapshot list fast/db"),
        ("fast/none@one fast/dev", "no volume fast/none"),
        ("none/db@one none/dev", "no pool none"),
        ("fast/db@one slow/dev", "clone it as fast/dev"),
        ("fast/db@one fast/log", "volume list"),
        ("fast/db@one fast/db", "volume list"),
        ("fast/db@one fast/dev --size 60MiB", "at least its 64 MiB"),
        ("fast/db@one fast/dev --size 67109888", "multiple of 4096"),
        ("fast/db@one fast/dev --size 0", "choose a size"),
    ];
    for (asked, right) in wrong {
        let (_, said) = failure(dir, &format!("volume clone {asked}"));
        assert!(said.contains(right), "{asked}: {said}");
    }
    let wrong = [
        ("\"name\":\"dev\",\"from\":\"fast/db@one\",\"block_size\":4096", "blocks of 512 bytes"),
        ("\"name\":\"dev\",\"from\":\"fast/db@one\",\"block_size\":1024", "choose 512 or 4096"),
        ("\"name\":\"dev\"", "needs a size"),
    ];
    for (asked, right) in wrong {
        let answer = post(dir, &format!("{{{asked}}}"));
        assert!(answer.starts_with("HTTP/1.1 4") && answer.contains(right), "{asked}: {answer}");
    }
    assert_eq!(json(dir, "volume list"), before);
    let right = "\"name\":\"dev\",\"from\":\"fast/db@one\",\"block_size\":512,\"size\":\"64MiB\"";
    let answer = post(dir, &format!("{{{right}}}"));
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let named = "\"origin\":{\"volume\":\"fast/db\",\"snapshot\":\"one\"}";
    assert!(answer.contains(named), "{answer}");

    // A configuration says that it is mapped, and not what it is of.
    json(dir, &format!("volume map fast/dev -n {NQN}"));
    let exported = run(dir, "config export").stdout;
    assert!(String::from_utf8_lossy(&exported).contains("volume:fast/dev"));
    let saved = dir.join("saved.toml");
    fs::write(&saved, &exported).unwrap();
    let import = format!("config import {} --yes", saved.display());
    json(dir, "volume unmap fast/dev --yes");
    assert!(run(dir, &import).status.success());
    assert_eq!(json(dir, "volume show fast/dev")["mapping"]["subsystem"], NQN);
    // Another clone of the same snapshot is not what hosts know by that UUID.
    json(dir, "volume unmap fast/dev --yes");
    json(dir, "volume delete fast/dev --yes");
    json(dir, "volume clone fast/db@one fast/dev");
    let (_, said) = failure(dir, &import);
    assert!(said.contains("it is not the one meant"), "{said}");
    daemon.stop();
}

#[test]
fn clones_of_clones_are_so_deep_and_no_deeper() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let serve = format!("serve --discovery off --listen 127.0.0.1:{} memory:16MiB", free_port());
    let daemon = Daemon::start(dir, &serve);
    make(dir);
    let mut last = "fast/db".to_owned();
    for depth in 1..=64 {
        json(dir, &format!("snapshot create {last}@s"));
        let next = format!("fast/c{depth}");
        json(dir, &format!("volume clone {last}@s {next}"));
        last = next;
    }
    json(dir, &format!("snapshot create {last}@s"));
    let (_, said) = failure(dir, &format!("volume clone {last}@s fast/more"));
    assert!(said.contains("64 deep") && said.contains("flashloom volume detach"), "{said}");
    json(dir, "volume clone fast/c63@s fast/beside");
    // Nor together with one that is not deep: it says which of them is.
    json(dir, &format!("group create fast/app --volume fast/db --volume {last}"));
    let (_, said) = failure(dir, "group clone fast/app@s fast/new");
    assert!(said.contains("too deep, of fast/c64\n") && said.contains("64 deep"), "{said}");
    json(dir, &format!("volume detach {last}"));
    json(dir, &format!("snapshot create {last}@again"));
    json(dir, &format!("volume clone {last}@again fast/more"));
    daemon.stop();
}

/// A clone gets what it shares as its own under its host, over a kill, and so does a volume that was rolled back.
#[test]
fn a_clone_is_detached_under_its_host() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve --discovery off --listen 127.0.0.1:{port} memory:16MiB");
    let daemon = Daemon::start(dir, &serve);
    make(dir);
    let db = open(port, 1);
    put(&db, 0, 0xa1);
    put(&db, 4, 0xa1);
    json(dir, "snapshot create fast/db@mon");
    put(&db, 0, 0xb2);
    let (_, said) = failure(dir, "volume promote fast/db");
    assert!(said.contains("shares nothing") && said.contains("used as it is"), "{said}");
    json(dir, "volume clone fast/db@mon fast/dev");
    json(dir, "volume clone fast/db@mon fast/test");
    let dev = map(dir, "volume map fast/dev", 3, port);
    put(&dev, 2, 0xc3);
    let now = [0xa1, 0xa1, 0xc3, 0xc3, 0xc3, 0xc3, 0xa1, 0xa1, 0];
    json(dir, "snapshot create fast/dev@before");
    let detached = json(dir, "volume detach fast/dev");
    assert_eq!((&detached["origin"], &detached["name"]), (&Value::Null, &"fast/dev".into()));
    until_event(dir, "volume fast/dev is detached");
    let done = |job: &Value| {
        (&job["kind"], &job["target"], &job["state"])
            == (&"volume-detach".into(), &"fast/dev".into(), &"done".into())
    };
    assert!(json(dir, "job list").as_array().unwrap().iter().any(done));
    rig::wait_until("all is its own", || {
        let dev = json(dir, "volume show fast/dev");
        (&dev["used"], &dev["inherited"]) == (&(8 << 20).into(), &0.into())
    });
    holds(&dev, &now);
    // The other one is in the midst of it, or about to begin, when the daemon is killed.
    let job = json(dir, "volume detach fast/test --no-wait");
    assert_eq!(job["kind"], "volume-detach");
    [db, dev].iter().for_each(|one| one.shut_down().unwrap());
    drop(daemon);
    let daemon = Daemon::start(dir, &serve);
    until_open(dir);
    // It may not have begun.
    let test = json(dir, "volume show fast/test");
    if test["origin"] != Value::Null && test["detaching"] == Value::Null {
        json(dir, "volume detach fast/test");
    }
    rig::wait_until("it went on", || origin(dir, "fast/test") == Value::Null);
    let was = map(dir, "snapshot map fast/dev@before", 4, port);
    json(dir, "volume unmap fast/db --yes");
    json(dir, "snapshot delete fast/db@mon --yes");
    json(dir, "volume delete fast/db --yes");
    let (dev, test) = (open(port, 3), map(dir, "volume map fast/test", 5, port));
    holds(&dev, &now);
    holds(&was, &now);
    holds(&test, &[0xa1, 0xa1, 0xa1, 0xa1, 0xa1, 0xa1, 0xa1, 0xa1, 0]);
    put(&dev, 0, 0xd4);
    json(dir, "snapshot rollback fast/dev@before --yes --no-keep");
    json(dir, "volume detach fast/dev");
    holds(&dev, &now);
    put(&dev, 4, 0xe5);
    [dev, was, test].iter().for_each(|one| one.shut_down().unwrap());
    json(dir, "snapshot unmap fast/dev@before --yes");
    json(dir, "snapshot delete fast/dev@before --yes");
    drop(daemon);
    let daemon = Daemon::start(dir, &serve);
    until_open(dir);
    let dev = open(port, 3);
    holds(&dev, &[0xa1, 0xa1, 0xc3, 0xc3, 0xe5, 0xe5, 0xe5, 0xe5, 0]);
    dev.shut_down().unwrap();
    daemon.stop();
}
