//! Rebuilds and evacuations that are paused: they wait, a kill or not, nothing begins beside them, and they go on when
//! they are resumed.

use super::rig::{findings, health, remember, rig, scrub_finds_nothing, wait_until};
use super::*;

pub fn rebuild(dir: &Path, pool: &str) -> Value {
    json(dir, &format!("pool rebuild show {pool}"))
}

fn jobs(dir: &Path, state: &str) -> usize {
    let all = json(dir, "job list");
    all.as_array().unwrap().iter().filter(|job| job["state"] == state).count()
}

/// How it is, if there is any.
fn shown(dir: &Path, pool: &str) -> Option<Value> {
    let now = run(dir, &format!("pool rebuild show {pool} -o json"));
    serde_json::from_slice(&now.stdout).ok()
}

pub fn is_running(dir: &Path, pool: &str) -> bool {
    shown(dir, pool).is_some_and(|now| now["running"] == true)
}

fn has_moved(dir: &Path, pool: &str) -> bool {
    shown(dir, pool).is_some_and(|now| now["done"].as_u64() > Some(0))
}

/// Waits until it has begun, and pauses it.
pub fn pause(dir: &Path, pool: &str) -> Value {
    wait_until("it runs", || is_running(dir, pool));
    let paused = json(dir, &format!("pool rebuild pause {pool}"));
    assert_eq!((&paused["paused"], &paused["running"]), (&true.into(), &false.into()), "{paused}");
    assert_eq!(json(dir, &format!("pool rebuild pause {pool}")), paused, "it is, already");
    paused
}

#[test]
fn a_rebuild_waits_from_pause_to_resume_and_no_other_begins() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rig = rig(dir);
    rig.configure(0);
    let daemon = rig.start();
    rig.make_pool("fast");
    rig.make_pool("other");
    let (code, said) = failure(dir, "pool rebuild pause fast");
    assert!(code == 1 && said.contains("is being rebuilt or emptied"), "{said}");
    let (code, said) = failure(dir, "pool rebuild resume fast");
    assert!(code == 1 && said.contains("is paused"), "{said}");
    json(dir, "drive fail fast/1");
    json(dir, "pool rebuild start fast --limit 2MiB --no-wait");
    wait_until("some is moved", || has_moved(dir, "fast"));
    let paused = pause(dir, "fast");
    assert!(paused["done"].as_u64() > Some(0), "{paused}");
    assert_eq!(paused["drives"], serde_json::json!([1]));
    assert_eq!(jobs(dir, "paused"), 1, "{}", json(dir, "job list"));
    assert_eq!(json(dir, "pool show fast")["status"]["rebuild"], paused);
    let is_told = |finding: &Value| {
        let why = finding["why"].as_str().unwrap();
        finding["health"] == "degraded"
            && why.contains("rebuild is paused, and redundancy is missing")
    };
    wait_until("it is found", || findings(dir).iter().any(is_told));
    assert!(scrape(dir).contains("flashloom_pool_rebuild_paused{pool=\"fast\"} 1"));
    assert!(scrape(dir).contains("flashloom_pool_rebuild_paused{pool=\"other\"} 0"));
    let shown = run(dir, "pool show fast");
    assert!(String::from_utf8_lossy(&shown.stdout).contains("paused, "), "{shown:?}");
    let (code, said) = failure(dir, "pool rebuild start fast");
    assert!(code == 1 && said.contains("rebuild of pool fast is paused"), "{said}");
    let limited = json(dir, "pool rebuild limit fast 3MiB");
    assert_eq!(limited["limit"], 3 << 20, "it goes on as fast as that");
    until_event(dir, "the rebuild of pool fast is paused");

    // Beside it, what another pool lacks is rebuilt by itself.
    drop(daemon);
    rig.configure(1);
    let daemon = rig.start();
    assert_eq!(rebuild(dir, "fast"), limited, "it waits, a kill or not");
    assert_eq!(jobs(dir, "paused"), 1, "{}", json(dir, "job list"));
    json(dir, "drive fail other/1");
    wait_until("another pool is rebuilt", || json(dir, "drive show other/1")["health"] == "vacant");
    assert_eq!(rebuild(dir, "fast"), limited, "nothing began in its place");
    assert_eq!(json(dir, "pool show fast")["health"], "no-redundancy");

    json(dir, "pool rebuild resume fast --no-wait");
    wait_until("it goes on", || {
        let now = rebuild(dir, "fast");
        now["running"] == true && now["done"].as_u64() > Some(0)
    });
    assert_eq!(rebuild(dir, "fast")["limit"], 3 << 20);
    drop(daemon);
    let _daemon = rig.start();
    wait_until("it goes on by itself", || is_running(dir, "fast"));
    assert_eq!(rebuild(dir, "fast")["limit"], 3 << 20, "no faster than before");
    json(dir, "pool rebuild limit fast");
    wait_until("it is done", || json(dir, "drive show fast/1")["health"] == "vacant");
    wait_until("it is whole", || json(dir, "pool show fast")["health"] == "online");
    scrub_finds_nothing(dir);
    assert!(!findings(dir).iter().any(is_told), "{:?}", findings(dir));
}

#[test]
fn an_evacuation_waits_goes_on_or_is_ended_and_is_forgotten_when_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rig = rig(dir);
    rig.configure(1);
    let daemon = rig.start();
    rig.make_pool("fast");
    json(dir, "drive evacuate fast/2 --limit 2MiB --no-wait");
    let paused = pause(dir, "fast");
    let (code, said) = failure(dir, "drive evacuate fast/3");
    assert!(
        code == 1 && said.contains("the evacuation of drive 2 of pool fast is paused"),
        "{said}"
    );
    let is_told = |finding: &Value| {
        let why = finding["why"].as_str().unwrap();
        finding["health"] == "ok" && why.contains("evacuation of its drive 2 is paused")
    };
    assert!(findings(dir).iter().any(is_told), "{:?}", findings(dir));
    drop(daemon);
    let daemon = rig.start();
    assert_eq!(rebuild(dir, "fast"), paused, "it waits, a kill or not");
    assert_eq!(json(dir, "drive show fast/2")["health"], "online");
    assert!(run(dir, "pool rebuild stop fast").status.success());
    let (code, said) = failure(dir, "pool rebuild stop fast");
    assert!(code == 1 && said.contains("is being rebuilt or emptied"), "{said}");
    assert!(!findings(dir).iter().any(is_told), "{:?}", findings(dir));

    json(dir, "drive evacuate fast/0 --limit 2MiB --no-wait");
    pause(dir, "fast");
    let done = json(dir, "pool rebuild limit fast");
    assert_eq!(done["limit"], 0);
    let done = json(dir, "pool rebuild resume fast");
    assert_eq!((&done["running"], &done["paused"]), (&false.into(), &false.into()), "{done}");
    assert_eq!(json(dir, "drive show fast/0")["health"], "vacant");

    // What a rebuild is for comes back while that is paused.
    json(dir, &format!("drive replace fast/0 {}/new,size=256MiB", dir.display()));
    json(dir, "drive fail fast/1");
    json(dir, "pool rebuild start fast --limit 2MiB --no-wait");
    pause(dir, "fast");
    json(dir, "drive rejoin fast/1");
    until_event(dir, "nothing is left to rebuild of pool fast");
    wait_until("it is forgotten", || rebuild(dir, "fast")["paused"] == false);
    daemon.stop();
}

/// It began again by itself, at once or with the next start.
#[test]
fn a_rebuild_that_was_stopped_stays_so_a_kill_or_not_until_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rig = rig(dir);
    rig.configure(0);
    let daemon = rig.start();
    rig.make_pool("fast");
    rig.make_pool("other");
    json(dir, "drive fail fast/1");
    json(dir, "pool rebuild start fast --limit 2MiB --no-wait");
    wait_until("some is moved", || has_moved(dir, "fast"));
    // Killed as it is stopped: the labels say that it goes on.
    drop(daemon);
    remember(dir, |pool| pool["stopped"] = serde_json::json!([1]));
    let daemon = rig.start();
    let is_told = |finding: &Value| {
        let why = finding["why"].as_str().unwrap();
        finding["health"] == "degraded"
            && why.contains("of fast/1 was stopped, and does not begin by itself")
    };
    wait_until("it is found", || findings(dir).iter().any(is_told));
    wait_until("the labels say so", || json(dir, "drive show fast/1")["leaving"] == false);
    // Stopped when it runs.
    json(dir, "pool rebuild start fast --limit 2MiB --no-wait");
    wait_until("it runs", || has_moved(dir, "fast"));
    assert!(!findings(dir).iter().any(is_told), "{:?}", findings(dir));
    assert!(run(dir, "pool rebuild stop fast").status.success());
    drop(daemon);
    rig.configure(1);
    let _daemon = rig.start();
    json(dir, "drive fail other/1");
    wait_until("another pool is rebuilt", || health(dir, "other/1") == "vacant");
    assert!(findings(dir).iter().any(is_told), "{:?}", findings(dir));
    assert_ne!(health(dir, "fast/1"), "vacant");

    // Until it is asked for.
    json(dir, "pool rebuild start fast");
    assert_eq!(health(dir, "fast/1"), "vacant");
    assert!(!findings(dir).iter().any(is_told), "{:?}", findings(dir));
    scrub_finds_nothing(dir);
}
