//! A pool's commit log goes elsewhere by command, under a load that verifies.

use super::crash::Load;
use super::*;

const NQN: &str = "nqn.2026-11.io.flashloom:moved";

/// The log of the pool, as `pool show` has it: its kind, copies, and where it lies.
fn log(dir: &Path) -> (String, u64, Value) {
    let mut pool = json(dir, "pool show fast");
    let log = &pool["status"]["log"];
    assert_eq!(log["failed_devices"], 0, "{log}");
    let (kind, copies) = (log["kind"].as_str().unwrap().to_owned(), log["devices"].as_u64());
    (kind, copies.unwrap(), pool["log_places"].take())
}

/// Where the log lies was decided for ever when the pool was made.
#[test]
fn the_log_of_a_pool_moves_while_a_host_writes_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve memory:1MiB --listen 127.0.0.1:{port} --discovery off");
    let daemon = Daemon::start(dir, &serve);
    let place = |name: &str| dir.join(name).display().to_string();
    let (first, second) = (format!("bbu:{}", place("first")), format!("bbu:{}", place("second")));
    let drives = format!("--drive {},size=1GiB --drive {},size=1GiB", place("d0"), place("d1"));
    json(dir, &format!("pool create fast {drives} --log {first} --log-size 16MiB --shards 2"));
    json(dir, "volume create fast/v --size 1GiB");
    json(dir, &format!("volume map fast/v --subnqn {NQN} --allow-any-host"));
    let to = format!("--traddr 127.0.0.1 --trsvcid {port} --subnqn {NQN} --poll interrupt");
    let load = "--rw randwrite --bs 4k --size 64MiB --iodepth 8 --rate-iops 1000 --runtime 600s";
    let mut load =
        Load::keeping(dir, dir.join("acks"), &format!("{load} --verify --reconnect 60s {to}"));

    let would = json(dir, "pool log move fast drives --dry-run");
    assert_eq!((&would["moved"], &would["from"][0]), (&Value::from(false), &Value::from(&*first)));
    assert_eq!(log(dir).0, "bbu");
    for (places, kind, copies) in [
        ("drives".to_owned(), "drives", 2),
        (format!("{first} {second}"), "bbu", 2),
        ("drives".to_owned(), "drives", 2),
        (second.clone(), "bbu", 1),
    ] {
        let noted = load.noted();
        let moved = json(dir, &format!("pool log move fast {places}"));
        assert_eq!(moved["moved"], true, "{moved}");
        let named: Vec<_> = places.split(' ').collect();
        assert_eq!(log(dir), (kind.to_owned(), copies, Value::from(named)));
        while load.noted() < noted + 2000 {
            assert!(!load.is_over(), "the load ended: {}", load.finish());
        }
    }
    let (code, said) = failure(dir, &format!("pool log move fast {second}"));
    assert!(code == 1 && said.contains("already"), "{said}");
    let events = String::from_utf8(run(dir, "events -o json").stdout).unwrap();
    assert!(events.contains("was moved from drives to bbu:"), "{events}");
    // What it was on before is nobody's any more.
    fs::remove_file(place("first")).unwrap();
    // Dropped is killed, with -9.
    drop(daemon);
    let daemon = Daemon::start(dir, &serve);
    let noted = load.noted();
    while load.noted() < noted + 2000 {
        assert!(!load.is_over(), "the load ended: {}", load.finish());
    }
    assert_eq!(log(dir), ("bbu".to_owned(), 1, Value::from(vec![second])));
    drop(load);
    let report = json(dir, &format!("bench --check --journal {} {to}", place("acks")));
    let verify = &report["jobs"][0]["flashloom"]["verify"];
    assert_eq!(verify["verified_bytes"], verify["acknowledged_bytes"]);
    daemon.stop();
}
