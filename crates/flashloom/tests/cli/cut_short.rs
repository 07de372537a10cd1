//! Memory of a log whose file is cut short under the daemon: a device that failed, and never the daemon's end.

use super::crash::Load;
use super::*;

const NQN: &str = "nqn.2026-11.io.flashloom:cut";

/// Bytes that the journal grows by while all is well.
const NOTED: u64 = 16_000;

#[test]
fn memory_that_is_cut_short_is_a_device_that_failed() {
    let made = tempfile::tempdir().unwrap();
    let dir = made.path();
    let port = free_port();
    let serve = format!("serve memory:1MiB --listen 127.0.0.1:{port} --discovery off");
    let daemon = Daemon::start(dir, &serve);
    let place = |name: &str| format!("{}/{name}", dir.display());
    let drives = format!("--drive {},size=256MiB --drive {},size=256MiB", place("d0"), place("d1"));
    let logs = format!("--log bbu:{} --log bbu:{}", place("l0"), place("l1"));
    json(dir, &format!("pool create fast {drives} {logs} --log-size 12MiB"));
    json(dir, "volume create fast/v --size 64MiB");
    json(dir, &format!("volume map fast/v --subnqn {NQN} --allow-any-host"));
    let at = format!("--traddr 127.0.0.1 --trsvcid {port}");
    let load = format!(
        "--rw randwrite --bs 8k --iodepth 8 --rate-iops 1500 --verify --size 64MiB --runtime 60m --poll interrupt \
         {at} --subnqn {NQN}"
    );
    let mut load = Load::keeping(dir, dir.join("acks"), &load);
    assert!(load.goes_on(NOTED));
    let cut =
        |name: &str| fs::OpenOptions::new().write(true).open(dir.join(name)).unwrap().set_len(0);
    let health = || json(dir, "pool show fast")["health"].as_str().unwrap().to_owned();

    // One of two: hosts notice nothing.
    cut("l1").unwrap();
    rig::wait_until("one of the log's devices failed", || health() != "online");
    assert!(load.goes_on(NOTED), "{:#}", json(dir, "events"));
    // The last one: nothing more is acknowledged, and what has nothing to do with that goes on.
    cut("l0").unwrap();
    rig::wait_until("nothing of the log is left", || {
        !["online", "degraded", "no-redundancy"].contains(&health().as_str())
    });
    json(
        dir,
        &format!(
            "bench --rw randrw --verify --bs 4k --io-size 256k --poll interrupt {at} --subnqn {}",
            super::NQN
        ),
    );
    drop(load);
    daemon.stop();
}

/// As long as nobody wrote, nobody was told: the log of such a pool had one copy, and was called whole.
#[test]
fn memory_that_is_cut_short_is_told_of_though_nobody_writes() {
    let made = tempfile::tempdir().unwrap();
    let dir = made.path();
    let serve = format!("serve memory:1MiB --listen 127.0.0.1:{} --discovery off", free_port());
    let daemon = Daemon::start(dir, &serve);
    let place = |name: &str| format!("{}/{name}", dir.display());
    for (pool, is_put_back) in [("fast", false), ("other", true)] {
        let part = |name: &str| place(&format!("{pool}-{name}"));
        let drives =
            format!("--drive {},size=256MiB --drive {},size=256MiB", part("d0"), part("d1"));
        let logs = format!("--log bbu:{} --log bbu:{}", part("l0"), part("l1"));
        json(dir, &format!("pool create {pool} {drives} {logs} --log-size 12MiB"));
        let file = fs::OpenOptions::new().write(true).open(part("l1")).unwrap();
        let bytes = file.metadata().unwrap().len();
        file.set_len(0).unwrap();
        if is_put_back {
            // All that it had is gone.
            file.set_len(bytes).unwrap();
        }
        let show = || json(dir, &format!("pool show {pool}"));
        rig::wait_until("one of two failed", || show()["status"]["log"]["failed_devices"] == 1);
        assert_eq!(show()["health"], "no-redundancy");
        let shown = String::from_utf8(run(dir, &format!("pool show {pool}")).stdout).unwrap();
        let words = format!("{} was cut short, or cannot be reached", part("l1"));
        assert!(shown.contains("log copy away") && shown.contains(&words), "{shown}");
    }
    daemon.stop();
}
