//! More drives fail under a verified load than the redundancy bears, and answer again: the daemon opens the pool again by
//! itself, and what was acknowledged is there.

use super::crash::Load;
use super::shelf::Shelf;
use super::*;

const DRIVES: usize = 6;
const NQN: &str = "nqn.2026-11.io.flashloom:beyond";

/// More than any of this takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Between two looks at the pool.
const LOOK: Duration = Duration::from_millis(50);

/// Bytes that the journal grows by while all is well.
const NOTED: u64 = 16_000;

/// Waits until the pool's health is that.
fn wait_until(dir: &Path, health: &str) {
    let begun = SystemTime::now();
    loop {
        let pool = json(dir, "pool show fast");
        if pool["health"] == health {
            return;
        }
        let events = || json(dir, "events");
        assert!(begun.elapsed().unwrap() < PATIENCE, "not {health}: {pool:#}\n{:#}", events());
        std::thread::park_timeout(LOOK);
    }
}

#[test]
fn a_pool_beyond_its_redundancy_comes_back_without_a_restart_and_has_everything() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut shelf = Shelf::of_files(dir);
    if !shelf.can_pull_hot() {
        eprintln!("skipped: no file can be made to refuse changes here");
        return;
    }
    let port = free_port();
    let serve = format!("serve memory:1MiB --listen 127.0.0.1:{port} --discovery off");
    let daemon = Daemon::start(dir, &serve);
    let drives: Vec<_> =
        (0..DRIVES).map(|n| format!("--drive {},size=256MiB", shelf.at(n).display())).collect();
    json(dir, &format!("pool create fast {} --raid raid6 --shards 2", drives.join(" ")));
    json(dir, "volume create fast/v --size 64MiB");
    json(dir, &format!("volume map fast/v --subnqn {NQN} --allow-any-host"));
    let at = format!("--traddr 127.0.0.1 --trsvcid {port} --subnqn {NQN}");
    let to = format!("{at} --poll interrupt");
    // What is used of it is counted anew.
    let identity = || {
        let mut identity = json(dir, &format!("id-ns {at} --nsid 1"));
        identity.as_object_mut().unwrap().remove("nuse");
        identity
    };
    let before = identity();
    let load = "--rw randwrite --bs 8k --iodepth 8 --rate-iops 1500 --verify --size 64MiB";
    for (round, failing) in [&[0, 1, 2, 3, 4, 5][..], &[4, 5, 3]].into_iter().enumerate() {
        let journal = dir.join(format!("acks{round}"));
        let load = format!("{load} --runtime 60m --reconnect 120s {to}");
        let mut load = Load::keeping(dir, journal.clone(), &load);
        assert!(load.goes_on(NOTED));
        failing.iter().for_each(|&drive| shelf.pull_hot(drive));
        wait_until(dir, "beyond-redundancy");
        failing.iter().for_each(|&drive| shelf.give_back(drive, false));
        wait_until(dir, "online");
        until_event(dir, "pool fast is opened again: its drives answer");
        // Hosts held back what they had, and none of it failed.
        assert!(load.goes_on(NOTED));
        drop(load);
        assert_eq!(identity(), before);
        let check = format!("bench --check --journal {} {to}", journal.display());
        let verify = json(dir, &check)["jobs"][0]["flashloom"]["verify"].take();
        assert_eq!(verify["verified_bytes"], verify["acknowledged_bytes"], "{verify}");
        assert!(verify["verified_bytes"].as_u64().unwrap() > 1 << 20, "{verify}");
    }
    daemon.stop();
}
