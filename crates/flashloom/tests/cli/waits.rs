//! How long hosts wait for a pool that is started without one of its drives.

use super::rig::{rig, wait_until};
use super::*;

/// Seconds that a start waits for drives.
const WAIT: Duration = Duration::from_secs(3);

/// From the start until a host's first read is answered: what was configured, and what the opening takes, wanted 3 s.
#[test]
fn a_start_without_a_drive_serves_after_the_configured_wait() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rig = rig(dir);
    rig.configure(0);
    let daemon = rig.start();
    rig.make_pool("fast");
    rig.wait_for_drives(WAIT);
    // Killed: there is a log to be gone through.
    drop(daemon);
    fs::rename(dir.join("fast1"), dir.join("away")).unwrap();
    let begun = SystemTime::now();
    let _daemon = rig.start_closed();
    rig.load("fast", "--rw randread --bs 4k --iodepth 1 --size 4KiB --reconnect 60s");
    let took = begun.elapsed().unwrap();
    println!("{WAIT:?} were configured, and {took:?} passed from the start to the first read");
    assert!(took >= WAIT, "{took:?}");
    // Hosts are served before that is told of.
    wait_until("it is told to be open", || {
        json(dir, "pool show fast")["health"] == "no-redundancy"
    });
}
