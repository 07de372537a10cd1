//! Damage on drives that nobody reads is found and put right, by a scrub that is paused, killed and gone on with.

use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

use super::*;

const BLOCK: u64 = 4096;

/// More than any of this takes.
const PATIENCE: Duration = Duration::from_secs(120);

fn scrub(dir: &Path) -> Value {
    json(dir, "pool scrub show fast")
}

/// Waits until the scrub is as wanted.
fn wait_until(dir: &Path, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let begun = SystemTime::now();
    loop {
        let now = scrub(dir);
        if is(&now) {
            return now;
        }
        assert!(begun.elapsed().unwrap() < PATIENCE, "not so: {what}: {now}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

fn started(dir: &Path, serve: &str) -> Daemon {
    let daemon = Daemon::start(dir, serve);
    let begun = SystemTime::now();
    while json(dir, "pool show fast")["health"] != "online" {
        assert!(begun.elapsed().unwrap() < PATIENCE, "{}", json(dir, "pool show fast"));
        std::thread::park_timeout(Duration::from_millis(20));
    }
    daemon
}

/// Overwrites some of what a drive has, behind everybody's back; how many blocks.
fn damage(drive: &Path) -> u64 {
    let file = std::fs::File::options().read(true).write(true).open(drive).unwrap();
    let blocks = file.metadata().unwrap().len() / BLOCK;
    let (mut block, mut used, mut damaged) = ([0; 4096], 0, 0);
    // Past labels, catalog and log.
    for at in blocks / 4..blocks {
        file.read_exact_at(&mut block, at * BLOCK).unwrap();
        if block.iter().any(|byte| *byte != 0) {
            used += 1;
            if used % 64 == 0 {
                block.iter_mut().for_each(|byte| *byte = !*byte);
                file.write_all_at(&block, at * BLOCK).unwrap();
                damaged += 1;
            }
        }
    }
    file.sync_all().unwrap();
    damaged
}

#[test]
fn a_scrub_puts_right_what_nobody_read_and_goes_on_after_pauses_and_kills() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve memory:1MiB --listen 127.0.0.1:{port} --discovery off");
    let daemon = Daemon::start(dir, &serve);
    let drive = |n| format!("--drive {}/d{n},size=192MiB", dir.display());
    json(dir, &format!("pool create fast {} {} --log-size 16MiB", drive(0), drive(1)));
    assert_eq!(scrub(dir)["state"], "never");
    let (code, said) = failure(dir, "pool scrub pause fast");
    assert!(code == 1 && said.contains("is not being scrubbed"), "{said}");
    json(dir, "volume create fast/v --size 64MiB");
    json(dir, &format!("volume map fast/v --subnqn {NQN}.scrub --allow-any-host"));
    let to = format!("--traddr 127.0.0.1 --trsvcid {port} --subnqn {NQN}.scrub --poll interrupt");
    json(dir, &format!("bench --rw write --bs 64k --size 64MiB --io-size 64MiB --verify {to}"));
    let damaged = damage(&dir.join("d0"));
    assert!(damaged > 20, "{damaged}");

    json(dir, "pool scrub start fast --limit 2MiB --no-wait");
    wait_until(dir, "some is checked", |now| now["done"].as_u64() > Some(0));
    let (code, said) = failure(dir, "pool scrub start fast");
    assert!(code == 1 && said.contains("already"), "{said}");
    let paused = json(dir, "pool scrub pause fast");
    assert_eq!(paused["state"], "paused", "{paused}");
    assert!(paused["done"].as_u64() < paused["bytes"].as_u64(), "{paused}");
    drop(daemon);
    let daemon = started(dir, &serve);
    assert_eq!(scrub(dir), paused, "it waits, a kill or not");
    // It goes on, is cut short, and goes on by itself.
    json(dir, "pool scrub start fast --no-wait");
    wait_until(dir, "it goes on", |now| now["done"].as_u64() > paused["done"].as_u64());
    drop(daemon);
    let _daemon = started(dir, &serve);
    wait_until(dir, "it goes on by itself", |now| {
        now["state"] == "running" && run(dir, "pool scrub limit fast").status.success()
    });
    let done = wait_until(dir, "it is done", |now| now["state"] == "done");
    assert_eq!(done["done"], done["bytes"], "{done}");
    assert_eq!(done["began_ms"], paused["began_ms"], "it is one");
    assert!(done["damaged_blocks"].as_u64() > Some(20), "{damaged}: {done}");
    assert_eq!(done["damaged_blocks"], done["repaired_blocks"], "{done}");
    assert!(done["lost_blocks"] == 0 && done["unchecked_stripes"] == 0, "{done}");
    assert!(done["due_ms"].as_u64() > done["ended_ms"].as_u64(), "{done}");
    let told = "blocks are put right";
    let events = json(dir, "events");
    let is_told = |event: &Value| event["message"].as_str().is_some_and(|said| said.contains(told));
    assert!(events.as_array().unwrap().iter().any(is_told), "{events}");

    let again = json(dir, "pool scrub start fast");
    assert_eq!((&again["state"], &again["damaged_blocks"]), (&"done".into(), &0.into()), "{again}");
    json(dir, "pool scrub start fast --limit 1MiB --no-wait");
    wait_until(dir, "it runs", |now| now["state"] == "running");
    assert_eq!(json(dir, "pool scrub stop fast")["state"], "stopped");
    let metrics = run(dir, "pool show fast");
    assert!(String::from_utf8_lossy(&metrics.stdout).contains("stopped"), "{metrics:?}");
}
