//! Quotas, as operators and hosts see them.

use super::*;

const NQN: &str = "nqn.2026-11.io.flashloom:quota";

#[test]
fn the_volumes_of_a_group_hold_no_more_than_its_quota() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve --discovery off --listen 127.0.0.1:{port} memory:1MiB");
    let daemon = Daemon::start(dir, &serve);
    let drives: Vec<_> =
        (0..2).map(|n| format!("--drive {}/d{n},size=256MiB", dir.display())).collect();
    json(dir, &format!("pool create fast {} --log-size 16MiB", drives.join(" ")));
    for volume in ["db", "log"] {
        json(dir, &format!("volume create fast/{volume} --size 1GiB"));
    }
    let (_, said) = failure(dir, "group create fast/app --quota 1000KiB");
    assert!(said.contains("multiple of 1MiB"), "{said}");
    let made = json(dir, "group create fast/app --volume fast/db --quota 8MiB");
    assert_eq!(made["quota"], 8 << 20);
    json(dir, "group add fast/app fast/log");
    let mut options = client::Options::default();
    options.set("trsvcid", &port.to_string()).unwrap();
    options.set("subnqn", NQN).unwrap();
    for (nsid, volume) in [(3, "db"), (4, "log")] {
        let map = format!("volume map fast/{volume} --subnqn {NQN} --nsid {nsid}");
        json(dir, &format!("{map} --allow-any-host"));
    }
    let [db, log] = [3, 4].map(|nsid| client::Namespace::open(&options, nsid).unwrap());
    let data = vec![0x5a; 4 << 20];
    db.write(0, &data, client::Fua::No).unwrap();
    log.write(0, &data, client::Fua::No).unwrap();
    let error = log.write(4 << 8, &data[..4096], client::Fua::No).unwrap_err().to_string();
    assert!(error.contains("Capacity Exceeded"), "{error}");
    until_event(
        dir,
        "group fast/app and their snapshots hold 100 % of its quota of 8 MiB (critical from 95 %)",
    );
    let scraped = scrape(dir);
    for series in ["quota_bytes", "quota_used_bytes"] {
        let line = format!("flashloom_group_{series}{{pool=\"fast\",group=\"app\"}} {}", 8 << 20);
        assert!(scraped.lines().any(|other| other == line), "{scraped}");
    }
    let (_, said) = failure(dir, "group quota fast/app 4MiB");
    let held = "pool fast: the volumes of group app and their snapshots hold 8 MiB already";
    assert!(said.contains(held) && said.contains("larger quota"), "{said}");
    assert_eq!(json(dir, "group quota fast/app 64MiB")["quota"], 64 << 20);
    until_event(dir, "enough is left again");
    log.write(4 << 8, &data, client::Fua::No).unwrap();
    db.shut_down().unwrap();
    log.shut_down().unwrap();
    let shown = String::from_utf8(run(dir, "group list").stdout).unwrap();
    assert!(shown.contains("64 MiB"), "{shown}");
    assert_eq!(json(dir, "group quota fast/app none")["quota"], Value::Null);
    daemon.stop();
}

#[test]
fn a_volume_holds_no_more_than_its_quota() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve --discovery off --listen 127.0.0.1:{port} memory:1MiB");
    let daemon = Daemon::start(dir, &serve);
    let drives: Vec<_> =
        (0..2).map(|n| format!("--drive {}/d{n},size=256MiB", dir.display())).collect();
    json(dir, &format!("pool create fast {} --log-size 16MiB", drives.join(" ")));
    for (quota, says) in [("1000KiB", "multiple of 1MiB"), ("8PiB", "at most")] {
        let (_, said) = failure(dir, &format!("volume create fast/db --size 1GiB --quota {quota}"));
        assert!(said.contains(says), "{said}");
    }
    let none = json(dir, "volume create fast/none --size 1GiB --quota none");
    assert_eq!(none["quota"], Value::Null);
    let made = json(dir, "volume create fast/db --size 1GiB --quota 8MiB");
    assert_eq!((&made["quota"], &made["quota_used"]), (&(8 << 20).into(), &0.into()));
    json(dir, &format!("volume map fast/db --subnqn {NQN} --nsid 3 --allow-any-host"));
    let mut options = client::Options::default();
    options.set("trsvcid", &port.to_string()).unwrap();
    options.set("subnqn", NQN).unwrap();
    let host = client::Namespace::open(&options, 3).unwrap();
    let write = |at: u64, bytes: usize| host.write(at >> 12, &vec![0x5a; bytes], client::Fua::No);
    let is_full = |at| {
        let error = write(at, 4096).unwrap_err().to_string();
        assert!(error.contains("Capacity Exceeded"), "{error}");
    };
    write(0, 8 << 20).unwrap();
    is_full(8 << 20);
    // What is replaced is no more than there was.
    write(0, 8 << 20).unwrap();
    until_event(
        dir,
        "fast/db and its snapshots hold 100 % of its quota of 8 MiB (critical from 95 %)",
    );
    let scraped = scrape(dir);
    for series in ["quota_bytes", "quota_used_bytes"] {
        let line = format!("flashloom_volume_{series}{{pool=\"fast\",volume=\"db\"}} {}", 8 << 20);
        assert!(scraped.lines().any(|other| other == line), "{scraped}");
    }
    let (_, said) = failure(dir, "volume quota fast/db 4MiB");
    let held = "pool fast: volume db and its snapshots hold 8 MiB already, more than 4 MiB";
    assert!(said.contains(held) && said.contains("larger one"), "{said}");
    // Snapshots hold what is replaced.
    json(dir, "volume quota fast/db 12MiB");
    json(dir, "snapshot create fast/db@mon");
    write(0, 4 << 20).unwrap();
    is_full(4 << 20);
    write(0, 4 << 20).unwrap();
    host.shut_down().unwrap();
    drop(daemon);

    let daemon = Daemon::start(dir, &serve);
    assert_eq!(json(dir, "volume show fast/db")["quota"], 12 << 20);
    let host = client::Namespace::open(&options, 3).unwrap();
    let write = |at: u64, bytes: usize| host.write(at >> 12, &vec![0xa5; bytes], client::Fua::No);
    assert!(write(4 << 20, 4096).is_err());
    assert!(run(dir, "snapshot delete fast/db@mon --yes").status.success());
    write(8 << 20, 4 << 20).unwrap();
    until_event(dir, "hold 100 % of its quota of 12 MiB");
    json(dir, "volume quota fast/db 64MiB");
    until_event(dir, "enough is left again");
    assert_eq!(json(dir, "volume quota fast/db none")["quota"], Value::Null);
    write(64 << 20, 4 << 20).unwrap();
    host.shut_down().unwrap();
    let shown = String::from_utf8(run(dir, "volume list").stdout).unwrap();
    assert!(shown.contains("quota"), "{shown}");
    daemon.stop();
}
