//! Drives that are taken out of their pool for good: emptied, wiped, of use elsewhere; those that were away, and return.

use super::pauses::{is_running, pause, rebuild};
use super::rig::{Rig, findings, health, remember, rig, scrub_finds_nothing, wait_until};
use super::*;

/// Whether another pool takes what is at a path for blank.
fn is_taken_for_blank(rig: &Rig, name: &str) -> bool {
    let dir = &rig.dir;
    let made = run(dir, &format!("pool create other --drive {}/{name}", dir.display()));
    if made.status.success() {
        json(dir, "pool delete other --yes");
    }
    made.status.success()
}

fn check(dir: &Path) {
    wait_until("it is whole", || json(dir, "pool show fast")["health"] == "online");
    scrub_finds_nothing(dir);
}

#[test]
fn a_drive_that_works_is_emptied_and_wiped_a_kill_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rig = rig(dir);
    rig.configure(0);
    let daemon = rig.start();
    rig.make_pool("fast");
    let (code, said) = failure(dir, "drive remove fast/9");
    assert!(code == 1 && said.contains("has no drive 9"), "{said}");
    let would = json(dir, "drive remove fast/0 --dry-run");
    assert!(would.to_string().contains("would be emptied onto the others and wiped"), "{would}");
    let (code, said) = failure(dir, "drive remove fast/0");
    assert!(code == 1 && said.contains("--yes does it"), "{said}");
    assert_eq!(health(dir, "fast/0"), "online");

    // So slow that a busy machine sees it. Paused, killed, gone on with, killed again.
    json(dir, "drive remove fast/0 --yes --limit 256KiB --no-wait");
    wait_until("it goes on", || is_running(dir, "fast"));
    assert_eq!(rebuild(dir, "fast")["limit"], 256 << 10);
    pause(dir, "fast");
    drop(daemon);
    let daemon = rig.start();
    assert_eq!(rebuild(dir, "fast")["paused"], true);
    assert_eq!(health(dir, "fast/0"), "online");
    json(dir, "pool rebuild resume fast --no-wait");
    wait_until("it goes on", || is_running(dir, "fast"));
    drop(daemon);
    let daemon = rig.start();
    // It may not have been gone on with as yet, or be over.
    let is_faster = || run(dir, "pool rebuild limit fast").status.success();
    wait_until("it is as fast as can be", || is_faster() || health(dir, "fast/0") == "vacant");
    until_event(dir, "drive 0 is out of pool fast for good, and blank");
    assert_eq!(health(dir, "fast/0"), "vacant");
    assert!(json(dir, "drive show fast/0")["path"].is_null());
    assert!(is_taken_for_blank(&rig, "fast0"));
    assert!(run(dir, "drive remove fast/0").status.success(), "nothing is left to be done");
    check(dir);

    // Too few are left for a stripe.
    let (code, said) = failure(dir, "drive remove fast/1 --yes");
    assert!(code == 1 && said.contains("too few drives would be left"), "{said}");
    assert_eq!(health(dir, "fast/1"), "online");
    drop(daemon);
    let daemon = rig.start();
    check(dir);
    assert_eq!(health(dir, "fast/1"), "online", "it does not go on with what was refused");
    json(dir, &format!("drive replace fast/0 {}/fast0", dir.display()));
    assert_eq!(health(dir, "fast/0"), "online");
    json(dir, "drive remove fast/0 --yes");
    assert_eq!(health(dir, "fast/0"), "vacant");
    check(dir);
    // Of use to another daemon, too, while this one goes on: it was said to be in use until the pool was closed.
    let elsewhere = tempfile::tempdir().unwrap();
    let serve = format!("serve memory:1MiB --discovery off --listen 127.0.0.1:{}", free_port());
    let other = Daemon::start(elsewhere.path(), &serve);
    json(elsewhere.path(), &format!("pool create other --drive {}/fast0", dir.display()));
    drop(other);
    daemon.stop();
}

#[test]
fn a_drive_that_was_removed_while_it_was_away_is_not_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rig = rig(dir);
    rig.configure(0);
    let daemon = rig.start();
    rig.make_pool("fast");
    json(dir, &format!("drive add fast {}/fast4,size=256MiB", dir.display()));
    daemon.stop();
    for name in ["fast1", "fast2"] {
        fs::rename(dir.join(name), dir.join(format!("away-{name}"))).unwrap();
    }
    fs::rename(dir.join("away-fast2"), dir.join("fast2")).unwrap();
    let daemon = rig.start();
    assert_eq!(health(dir, "fast/1"), "missing");
    json(dir, "drive remove fast/1 --yes");
    assert_eq!(health(dir, "fast/1"), "vacant");
    until_event(dir, "should it return, it is not taken back");
    check(dir);
    daemon.stop();

    // Both return, and one of them is taken back.
    fs::rename(dir.join("fast2"), dir.join("away-fast2")).unwrap();
    let daemon = rig.start();
    assert_eq!(health(dir, "fast/2"), "missing");
    for name in ["fast1", "fast2"] {
        fs::rename(dir.join(format!("away-{name}")), dir.join(name)).unwrap();
    }
    wait_until("the other is back", || health(dir, "fast/2") == "online");
    assert_eq!(health(dir, "fast/1"), "vacant", "it is not taken back");
    let created = failure(dir, &format!("pool create other --drive {}/fast1", dir.display()));
    assert!(created.1.contains("of pool fast"), "{created:?}");
    daemon.stop();
    let daemon = rig.start();
    check(dir);
    assert_eq!(health(dir, "fast/1"), "vacant");
    assert!(findings(dir).iter().all(|finding| finding["health"] == "ok"), "{:?}", findings(dir));

    // One that failed, and is there.
    json(dir, "drive fail fast/3");
    json(dir, "drive remove fast/3 --yes");
    assert_eq!(health(dir, "fast/3"), "vacant");
    assert!(is_taken_for_blank(&rig, "fast3"));
    check(dir);
    daemon.stop();
}

#[test]
fn a_drive_that_is_pulled_while_it_is_removed_is_out_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rig = rig(dir);
    rig.configure(0);
    let daemon = rig.start();
    rig.make_pool("fast");
    // It had begun, and goes on no faster than it went.
    let begin = |daemon: Daemon, drive: u16| {
        let id = json(dir, &format!("drive show fast/{drive}"))["id"].take();
        assert!(id.is_string(), "{id}");
        daemon.stop();
        remember(dir, |pool| {
            pool["removing"] = serde_json::json!({ drive.to_string(): id });
            pool["rebuild_limit"] = (2 << 20).into();
        });
        let daemon = rig.start();
        wait_until("it goes on", || is_running(dir, "fast"));
        assert_eq!(rebuild(dir, "fast")["limit"], 2 << 20);
        daemon
    };
    let cut_short = |name: &str| {
        let file = fs::File::options().write(true).open(dir.join(name)).unwrap();
        file.set_len(1 << 20).unwrap();
    };
    let daemon = begin(daemon, 0);
    cut_short("fast0");
    wait_until("it is gone", || health(dir, "fast/0") == "failed");
    json(dir, "pool rebuild limit fast");
    until_event(dir, "drive 0 is out of pool fast for good");
    assert_eq!(health(dir, "fast/0"), "vacant");
    check(dir);

    // Likewise, and killed in the midst of that.
    json(dir, &format!("drive add fast {}/new,size=256MiB", dir.display()));
    let daemon = begin(daemon, 1);
    fs::rename(dir.join("fast1"), dir.join("away-fast1")).unwrap();
    drop(daemon);
    let daemon = rig.start();
    until_event(dir, "drive 1 is out of pool fast for good");
    fs::rename(dir.join("away-fast1"), dir.join("fast1")).unwrap();
    check(dir);
    assert_eq!(health(dir, "fast/1"), "vacant", "it is not taken back");
    daemon.stop();
}
