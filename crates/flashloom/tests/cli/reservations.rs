//! Reservations, as operators and hosts see them.

use super::*;

const NQN: &str = "nqn.2026-11.io.flashloom:reserved";
const MIB: u64 = 1 << 20;

/// Writes what it is given from a place on, until it is refused; gives where that was.
fn fill(host: &client::Namespace, mut at: u64, end: u64) -> u64 {
    let data = vec![0xa5; 1 << 20];
    while at < end {
        match host.write(at >> 12, &data, client::Fua::No) {
            Ok(()) => at += MIB,
            Err(error) => {
                assert!(error.to_string().contains("Capacity Exceeded"), "{error}");
                break;
            }
        }
    }
    at
}

#[test]
fn a_volume_gets_what_it_has_reserved_while_another_fills_the_pool() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve --discovery off --listen 127.0.0.1:{port} memory:1MiB");
    let daemon = Daemon::start(dir, &serve);
    let drives: Vec<_> =
        (0..2).map(|n| format!("--drive {}/d{n},size=256MiB", dir.display())).collect();
    json(dir, &format!("pool create fast {} --log-size 16MiB", drives.join(" ")));
    for (reserve, says) in [("1000KiB", "multiple of 1MiB"), ("2GiB", "more than the volume has")] {
        let create = format!("volume create fast/db --size 1GiB --reserve {reserve}");
        let (_, said) = failure(dir, &create);
        assert!(said.contains(says), "{said}");
    }
    let (_, said) = failure(dir, "volume create fast/db --size 1GiB --reserve all");
    assert!(said.contains("the reservation of volume db needs 1 GiB more"), "{said}");
    assert!(said.contains("reserve less"), "{said}");
    let made = json(dir, "volume create fast/db --size 64MiB --reserve all");
    let of = |shown: &Value| {
        let bytes = |field: &str| shown[field].as_u64().unwrap_or(0) / MIB;
        (bytes("reserve"), bytes("reserve_kept"), shown["reserve_all"] == true)
    };
    assert_eq!(of(&made), (64, 64, true));
    json(dir, "volume create fast/other --size 1GiB");
    assert_eq!(of(&json(dir, "volume reserve fast/other 8MiB")), (8, 8, false));
    assert_eq!(of(&json(dir, "volume reserve fast/other none")), (0, 0, false));
    let mut options = client::Options::default();
    options.set("trsvcid", &port.to_string()).unwrap();
    options.set("subnqn", NQN).unwrap();
    for (nsid, volume) in [(3, "db"), (4, "other")] {
        let map = format!("volume map fast/{volume} --subnqn {NQN} --nsid {nsid}");
        json(dir, &format!("{map} --allow-any-host"));
    }
    let [db, other] = [3, 4].map(|nsid| client::Namespace::open(&options, nsid).unwrap());
    let taken = fill(&other, 0, 1 << 30);
    assert!(taken > 32 * MIB && taken < 1 << 30, "{taken}");
    until_event(dir, "all that pool fast has free is reserved");
    let (_, said) = failure(dir, "volume create fast/more --size 64MiB --reserve 48MiB");
    assert!(said.contains("needs 48 MiB more to be kept"), "{said}");
    assert_eq!(fill(&db, 0, 64 * MIB), 64 * MIB);
    // What is replaced, and what is given back and written again, is within it.
    assert_eq!(fill(&db, 0, 64 * MIB), 64 * MIB);
    let (_, said) = failure(dir, "snapshot create fast/db@mon");
    assert!(said.contains("the reservation of volume db needs 64 MiB more"), "{said}");
    let shown = json(dir, "pool show fast");
    assert_eq!(shown["status"]["reserved"], 64 * MIB);
    let scraped = scrape(dir);
    for line in [
        format!("flashloom_volume_reserved_bytes{{pool=\"fast\",volume=\"db\"}} {}", 64 * MIB),
        format!("flashloom_pool_reserved_bytes{{pool=\"fast\"}} {}", 64 * MIB),
        "flashloom_pool_reserved_missing_bytes{pool=\"fast\"} 0".to_owned(),
    ] {
        assert!(scraped.lines().any(|other| other == line), "{line}: {scraped}");
    }
    db.shut_down().unwrap();
    other.shut_down().unwrap();
    // Killed.
    drop(daemon);

    let daemon = Daemon::start(dir, &serve);
    let of_db = of(&json(dir, "volume show fast/db"));
    assert_eq!((of_db.0, of_db.2), (64, true));
    let [db, other] = [3, 4].map(|nsid| client::Namespace::open(&options, nsid).unwrap());
    assert_eq!(fill(&other, taken, taken + 64 * MIB), taken);
    assert_eq!(fill(&db, 0, 64 * MIB), 64 * MIB);
    db.shut_down().unwrap();
    other.shut_down().unwrap();
    let shown = String::from_utf8(run(dir, "pool show fast").stdout).unwrap();
    assert!(shown.contains("reserved"), "{shown}");
    assert_eq!(of(&json(dir, "volume reserve fast/db none")), (0, 0, false));
    daemon.stop();
}
