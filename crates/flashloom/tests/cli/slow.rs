//! Drives that get slower than the others, and stay so: told of, and emptied, a restart or not.

use super::rig::{Rig, findings, health, remember, rig, scrub_finds_nothing, wait_until};
use super::*;

const READS: &str = "--rw randread --bs 4k --size 48MiB --iodepth 8 --runtime 1s";

/// A drive takes so much longer for all it is asked, or as long as ever.
fn slow_down(rig: &Rig, drive: &str, micros: u64) {
    fs::write(rig.dir.join(format!("slow-{drive}")), micros.to_string()).unwrap();
}

/// Reads until that is so.
fn read_until(rig: &Rig, what: &str, is: impl Fn() -> bool) {
    wait_until(what, || {
        rig.load("fast", READS);
        is()
    });
}

/// Places of the drives that the node remembers to have been as fast as the others.
fn were_fast(dir: &Path) -> Vec<String> {
    let state: Value = serde_json::from_slice(&fs::read(dir.join("state.json")).unwrap()).unwrap();
    let known = state["pools"]["fast"]["were_fast"].as_object();
    known.map(|known| known.keys().cloned().collect()).unwrap_or_default()
}

/// A pool whose stripes are over all of its three drives, which have worked for a while.
fn worked(rig: &Rig) {
    rig.make_narrow_pool("fast");
    rig.fill_pool("fast");
    read_until(rig, "all are known to be fast", || were_fast(&rig.dir).len() == 3);
}

fn is_slow(rig: &Rig, drive: &str) -> bool {
    json(&rig.dir, &format!("drive show {drive}"))["slow"] == true
}

fn add_spare(rig: &Rig, name: &str) {
    json(&rig.dir, &format!("pool spare add fast {}/{name},size=256MiB", rig.dir.display()));
}

/// A drive is empty, and redundancy was whole all the while.
fn wait_until_vacant(rig: &Rig, drive: &str) {
    wait_until("the slow drive is empty", || {
        assert_eq!(json(&rig.dir, "pool show fast")["health"], "online");
        health(&rig.dir, drive) == "vacant"
    });
}

/// It stayed in its place, slow as it was: a spare was only used for drives that failed.
#[test]
fn a_drive_that_stays_slow_is_emptied_onto_a_spare_and_redundancy_is_whole_all_the_while() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rig = rig(dir);
    rig.configure(1);
    let daemon = rig.start_slowable();
    worked(&rig);
    add_spare(&rig, "s0");
    slow_down(&rig, "fast1", 20_000);
    read_until(&rig, "it is slow", || is_slow(&rig, "fast/1") || health(dir, "fast/1") == "vacant");
    let path = |name: &str| dir.join(name).display().to_string();
    until_event(dir, &format!("drive fast/1 stays slower than the others: spare {}", path("s0")));
    wait_until_vacant(&rig, "fast/1");
    let came = json(dir, "drive show fast/3");
    assert_eq!((&came["path"], &came["health"]), (&path("s0").into(), &"online".into()));
    assert!(json(dir, "pool spare list fast").as_array().unwrap().is_empty());
    let jobs = json(dir, "job list");
    assert!(jobs.to_string().contains("drive-evacuate"), "{jobs}");
    scrub_finds_nothing(dir);

    // Another one gets slow. The vacant place is left to an operator: redundancy would not be whole while it is filled.
    read_until(&rig, "the spare is known, too", || were_fast(dir) == ["0", "2", "3"]);
    add_spare(&rig, "s1");
    slow_down(&rig, "fast2", 20_000);
    read_until(&rig, "it is slow", || is_slow(&rig, "fast/2") || health(dir, "fast/2") == "vacant");
    wait_until_vacant(&rig, "fast/2");
    let came = json(dir, "drive show fast/4");
    assert_eq!((&came["path"], &came["health"]), (&path("s1").into(), &"online".into()));
    json(dir, &format!("drive replace fast/1 {}/new,size=256MiB", dir.display()));
    assert_eq!(health(dir, "fast/1"), "online");
    scrub_finds_nothing(dir);
    daemon.stop();
}

/// Where nothing could be done nobody was told, and after a restart nobody knew that the drive had been fast.
#[test]
fn a_slow_drive_without_room_is_told_of_with_what_to_do_and_a_restart_knows_that_it_was_fast() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rig = rig(dir);
    rig.configure(1);
    let daemon = rig.start_slowable();
    worked(&rig);
    slow_down(&rig, "fast1", 20_000);
    let is_told = |why: &str, help: &str| {
        let has = |finding: &Value, field: &str, words: &str| {
            finding[field].as_str().is_some_and(|said| said.contains(words))
        };
        findings(dir).iter().any(|finding| {
            has(finding, "why", "drive 1 is slower than the others")
                && has(finding, "why", why)
                && has(finding, "help", help)
        })
    };
    read_until(&rig, "it is told", || is_told("it cannot be emptied", "pool spare add fast DRIVE"));
    let shown = String::from_utf8(run(dir, "drive show fast/1").stdout).unwrap();
    assert!(shown.contains("it cannot be emptied"), "{shown}");
    assert_eq!(health(dir, "fast/1"), "online");
    drop(daemon);

    // Nothing is emptied by itself now.
    rig.configure(0);
    let daemon = rig.start_slowable();
    read_until(&rig, "it is told", || is_told("nothing is emptied by itself", "drive evacuate"));
    daemon.stop();
    rig.configure(1);
    let daemon = rig.start_slowable();
    add_spare(&rig, "s0");
    read_until(&rig, "a spare comes", || health(dir, "fast/1") == "vacant");
    scrub_finds_nothing(dir);
    let said = json(dir, "events").to_string();
    assert!(!said.contains("no redundancy"), "{said}");
    daemon.stop();
}

/// The node had written down where the spare was to be, and the labels did not come to say so.
#[test]
fn a_spare_that_did_not_come_to_its_place_stands_by_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rig = rig(dir);
    rig.configure(0);
    let daemon = rig.start();
    rig.make_narrow_pool("fast");
    rig.fill_pool("fast");
    add_spare(&rig, "s0");
    daemon.stop();
    let path = dir.join("s0").display().to_string();
    remember(dir, |pool| pool["drives"].as_array_mut().unwrap().push(path.clone().into()));
    let daemon = rig.start();
    wait_until("it stands by", || {
        let spares = json(dir, "pool spare list fast");
        spares[0]["path"] == path && spares[0]["health"] == "spare"
    });
    assert_eq!(json(dir, "pool show fast")["health"], "online");
    assert_eq!(failure(dir, "drive show fast/3").0, 1);
    json(dir, &format!("drive add fast {}/more,size=256MiB", dir.display()));
    assert_eq!(health(dir, "fast/3"), "online");
    scrub_finds_nothing(dir);
    daemon.stop();
}
