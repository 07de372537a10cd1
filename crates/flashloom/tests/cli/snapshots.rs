//! Snapshots: taken at one instant, read by hosts that cannot change them, kept over all that happens to their volumes.

use nvme::status::Status;

use super::*;

pub const NQN: &str = "nqn.2026-11.io.flashloom:snapshots";
const LEN: usize = 4 << 20;

pub fn open(port: u16, nsid: u32) -> client::Namespace {
    let mut options = client::Options::default();
    options.set("trsvcid", &port.to_string()).unwrap();
    options.set("subnqn", NQN).unwrap();
    client::Namespace::open(&options, nsid).unwrap()
}

/// The first bytes of a namespace are all of this value.
fn holds(namespace: &client::Namespace, byte: u8) {
    let mut data = vec![!byte; LEN];
    namespace.read(0, &mut data).unwrap();
    let other = data.iter().position(|is| *is != byte);
    assert_eq!(other, None, "0x{byte:x} is not there");
}

fn names(dir: &Path, of: &str) -> Vec<String> {
    let all = json(dir, &format!("snapshot list {of}"));
    let name = |snapshot: &Value| snapshot["name"].as_str().unwrap().to_owned();
    all.as_array().unwrap().iter().map(name).collect()
}

/// A pool of two volumes, mapped as namespaces 1 and 2.
pub fn make(dir: &Path) {
    let drives: Vec<_> =
        (0..2).map(|n| format!("--drive {}/d{n},size=256MiB", dir.display())).collect();
    json(dir, &format!("pool create fast {} --log-size 16MiB", drives.join(" ")));
    for (volume, nsid, block) in [("db", 1, 512), ("log", 2, 4096)] {
        json(dir, &format!("volume create fast/{volume} --size 64MiB --block-size {block}"));
        json(dir, &format!("volume map fast/{volume} -n {NQN} --nsid {nsid} --allow-any-host"));
    }
}

/// Of `fast/db`, which was written before both of its snapshots, and has been emptied since.
fn what_changed_is_told(dir: &Path) {
    let extent =
        |bytes: u64, data: bool| serde_json::json!([{ "offset": 0, "bytes": bytes, "data": data }]);
    assert_eq!(json(dir, "snapshot diff fast/db@mon fast/db@tue"), extent(4 << 20, true));
    assert_eq!(json(dir, "snapshot diff fast/log@mon"), extent(4 << 20, true));
    json(dir, "snapshot create fast/db@wed");
    assert_eq!(json(dir, "snapshot diff fast/db@tue fast/db@wed"), extent(4 << 20, false));
    let lines =
        String::from_utf8(run(dir, "snapshot diff fast/db@tue fast/db@wed").stdout).unwrap();
    let words: Vec<&str> = lines.split_whitespace().collect();
    assert_eq!(words, ["offset", "bytes", "what", "0", "4194304", "zeroes"]);
    assert_eq!(json(dir, "snapshot diff fast/db@wed"), Value::Array(Vec::new()));
    json(dir, "snapshot delete fast/db@wed --yes");
}

/// Of `fast/db`, of which each of two snapshots has something that nobody else has.
fn what_is_held_is_counted(dir: &Path) {
    // Of four MiB each, what is held: once by hosts and never again, once by nobody but a snapshot.
    let space = |what: &str, of: &str| json(dir, what)[of].as_u64().map(|bytes| bytes >> 20);
    rig::wait_until("what snapshots hold is counted", || {
        let told = ["fast/db@mon", "fast/db@tue"].map(|name| {
            let show = format!("snapshot show {name}");
            ["referenced", "unique", "shared"].map(|of| space(&show, of))
        });
        let held = space("volume show fast/db", "held_by_snapshots");
        told == [[Some(4), Some(4), Some(0)]; 2] && held == Some(8)
    });
    let held = "flashloom_volume_held_by_snapshots_bytes{pool=\"fast\",volume=\"db\"} 8388608";
    assert!(scrape(dir).lines().any(|line| line == held));
}

/// Of `fast/db`, with two snapshots of which one is mapped; unmaps the volume.
fn what_takes_it_away_is_refused(dir: &Path) {
    let (_, said) = failure(dir, "snapshot delete fast/db@mon --yes");
    assert!(said.contains("is namespace 3 of") && said.contains("snapshot unmap"), "{said}");
    json(dir, "volume unmap fast/db --yes");
    let (_, said) = failure(dir, "volume delete fast/db --yes");
    assert!(said.contains("2 snapshots") && said.contains("snapshot list fast/db"), "{said}");
    let (_, said) = failure(dir, "pool export fast");
    assert!(said.contains("unmap"), "{said}");
}

/// Of two snapshots of `fast/old` and one of `fast/log`, all mapped.
fn all_goes_in_any_order(dir: &Path) {
    for name in ["fast/old@mon", "fast/old@tue"] {
        json(dir, &format!("snapshot unmap {name} --yes"));
        let (_, said) = failure(dir, &format!("snapshot delete {name}"));
        assert!(said.contains("would be lost") && said.contains("--yes"), "{said}");
        json(dir, &format!("snapshot delete {name} --yes"));
    }
    assert!(run(dir, "volume delete fast/old --yes").status.success());
    assert_eq!(names(dir, ""), ["fast/log@mon"]);
    assert_eq!(names(dir, "fast"), ["fast/log@mon"]);
    for name in ["snapshot unmap fast/log@mon", "volume unmap fast/log"] {
        json(dir, &format!("{name} --yes"));
    }
    let losses = json(dir, "pool delete fast --dry-run");
    let loss = losses["losses"][0].as_str().unwrap();
    assert!(loss.contains("with its volume, a snapshot and the "), "{loss}");
}

#[test]
fn what_a_snapshot_has_stays_whatever_becomes_of_its_volume() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve --discovery off --listen 127.0.0.1:{port} memory:16MiB");
    let daemon = Daemon::start(dir, &serve);
    make(dir);
    let (db, log) = (open(port, 1), open(port, 2));
    for volume in [&db, &log] {
        volume.write(0, &vec![0xa1; LEN], client::Fua::No).unwrap();
    }
    let taken = json(dir, "snapshot create fast/db@mon fast/log@mon");
    assert_eq!(taken.as_array().unwrap().len(), 2);
    assert_eq!((&taken[0]["name"], &taken[0]["block_size"]), (&"fast/db@mon".into(), &512.into()));
    until_event(dir, "snapshots fast/db@mon, fast/log@mon taken");
    for volume in [&db, &log] {
        volume.write(0, &vec![0xb2; LEN], client::Fua::No).unwrap();
    }
    json(dir, "snapshot create fast/db@tue");
    db.deallocate(&[(0, 128 << 10)]).unwrap();
    assert_eq!(names(dir, ""), ["fast/db@mon", "fast/db@tue", "fast/log@mon"]);
    assert_eq!(names(dir, "fast/db"), ["fast/db@mon", "fast/db@tue"]);
    assert_eq!(json(dir, "volume show fast/db")["snapshots"], 2);
    what_changed_is_told(dir);
    what_is_held_is_counted(dir);

    // To be read, and not to be changed.
    for (nsid, name) in [(3, "db@mon"), (4, "db@tue"), (5, "log@mon")] {
        let mapped = json(dir, &format!("snapshot map fast/{name} -n {NQN} --nsid {nsid}"));
        assert_eq!(mapped["mapping"]["nsid"], nsid);
    }
    let (mon, tue, of_log) = (open(port, 3), open(port, 4), open(port, 5));
    let all = [(&mon, 0xa1), (&tue, 0xb2), (&of_log, 0xa1), (&db, 0), (&log, 0xb2)];
    all.iter().for_each(|(namespace, byte)| holds(namespace, *byte));
    let is_protected = |done: Result<(), client::Error>| {
        let status = done.unwrap_err().status().unwrap();
        assert!(status.is(Status::NAMESPACE_IS_WRITE_PROTECTED) && status.dnr(), "{status:?}");
    };
    let changes = [
        mon.write(0, &[0; 512], client::Fua::No),
        mon.deallocate(&[(0, 8)]),
        mon.copy(&[(8, 8)], 0),
    ];
    changes.into_iter().for_each(is_protected);
    let to = format!("--traddr 127.0.0.1 --trsvcid {port} --subnqn {NQN}");
    assert_eq!(json(dir, &format!("id-ns {to} --nsid 3"))["nsattr"], 1);
    assert_eq!(json(dir, &format!("id-ns {to} --nsid 1"))["nsattr"], 0);
    holds(&mon, 0xa1);

    what_takes_it_away_is_refused(dir);

    // Another name and another size of the volume, and another start.
    json(dir, "volume rename fast/db old");
    holds(&mon, 0xa1);
    json(dir, "volume resize fast/old 1MiB --yes");
    assert_eq!(json(dir, "snapshot show fast/old@mon")["size"], 64 << 20);
    [db, log, mon, tue, of_log].iter().for_each(|one| one.shut_down().unwrap());
    drop(daemon);
    // As if it had ended after the volume was renamed, and before that was written down.
    let file = dir.join("state.json");
    let state = fs::read_to_string(&file).unwrap();
    assert!(state.contains("snapshot:fast/old@mon"), "{state}");
    fs::write(&file, state.replace("fast/old", "fast/db")).unwrap();
    let daemon = Daemon::start(dir, &serve);
    rig::wait_until("the pool is open", || json(dir, "pool show fast")["status"].is_object());
    assert_eq!(names(dir, "fast/old"), ["fast/old@mon", "fast/old@tue"]);
    let mapped = json(dir, "snapshot show fast/old@tue");
    assert_eq!((&mapped["mapping"]["nsid"], &mapped["state"]), (&4.into(), &"online".into()));
    let (mon, tue) = (open(port, 3), open(port, 4));
    holds(&mon, 0xa1);
    holds(&tue, 0xb2);
    is_protected(mon.write(0, &[0; 512], client::Fua::No));
    [mon, tue].iter().for_each(|one| one.shut_down().unwrap());

    all_goes_in_any_order(dir);
    daemon.stop();
}

#[test]
fn a_wrong_request_for_snapshots_changes_nothing_and_says_what_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let serve = format!("serve --discovery off --listen 127.0.0.1:{} memory:16MiB", free_port());
    let daemon = Daemon::start(dir, &serve);
    make(dir);
    json(dir, "snapshot create fast/db@one");
    let wrong = [
        ("create fast/db", "POOL/VOLUME@NAME"),
        ("create fast/db@two fast/db@three", "named twice"),
        ("create fast/db@two slow/db@two", "two pools"),
        ("create fast/none@two", "no volume"),
        ("create slow/db@two", "pool slow"),
        ("create fast/log@two fast/db@one", "already"),
        ("create fast/db@-", "is not a name"),
        ("show fast/db@two", "snapshot list fast/db"),
        ("delete fast/db@two --yes", "snapshot list fast/db"),
        ("unmap fast/db@one", "is not mapped"),
        ("diff fast/db@one fast/log@one", "of one volume"),
        ("diff fast/db@one fast/db@one", "not older"),
        ("diff fast/db@two fast/db@one", "snapshot list fast/db"),
    ];
    for (asked, right) in wrong {
        let (_, said) = failure(dir, &format!("snapshot {asked}"));
        assert!(said.contains(right), "{asked}: {said}");
    }
    assert_eq!(names(dir, ""), ["fast/db@one"]);
    json(dir, &format!("snapshot map fast/db@one -n {NQN}"));
    let (_, said) = failure(dir, &format!("namespace add --subnqn {NQN} snapshot:fast/db@one"));
    assert!(said.contains("already"), "{said}");
    let exported = String::from_utf8(run(dir, "config export").stdout).unwrap();
    assert!(exported.contains("snapshot:fast/db@one"), "{exported}");
    // Another one of the same name is not what hosts know by that UUID.
    let saved = dir.join("saved.toml");
    fs::write(&saved, &exported).unwrap();
    let import = format!("config import {} --yes", saved.display());
    assert!(run(dir, &import).status.success());
    json(dir, "snapshot unmap fast/db@one --yes");
    json(dir, "snapshot delete fast/db@one --yes");
    json(dir, "snapshot create fast/db@one");
    let (_, said) = failure(dir, &import);
    assert!(said.contains("it is not the one meant"), "{said}");
    let other = "11111111-2222-4333-8444-555555555555";
    let add = format!("namespace add --subnqn {NQN} snapshot:fast/db@one --uuid {other}");
    let (_, said) = failure(dir, &add);
    assert!(said.contains(other), "{said}");
    assert_eq!(json(dir, "snapshot show fast/db@one")["mapping"], Value::Null);
    let diff = run(dir, "snapshot diff fast/db@one fast/db@none -o json");
    assert!(!diff.status.success() && diff.stdout.is_empty());
    for nothing in ["slow", "fast/none"] {
        assert!(!run(dir, &format!("snapshot list {nothing}")).status.success());
    }
    daemon.stop();
}
