//! Spares: given, marked, held, and put in the places of drives that fail or stay away, a kill or not.

use super::rig::{Rig, findings, health, remember, rig, scrub_finds_nothing, wait_until};
use super::*;

fn spares(dir: &Path) -> Vec<Value> {
    json(dir, "pool spare list fast").as_array().unwrap().clone()
}

fn add(rig: &Rig, name: &str) -> Value {
    let dir = &rig.dir;
    json(dir, &format!("pool spare add fast {}/{name},size=256MiB", dir.display()))
}

/// A drive that is there, and fails: it is shorter than it was.
fn cut_short(rig: &Rig, name: &str) {
    fs::File::options().write(true).open(rig.dir.join(name)).unwrap().set_len(1 << 20).unwrap();
}

/// A drive that stumbles: for a while it is shorter than it was, where none of its data is.
fn stumble(rig: &Rig, name: &str, drive: &str) {
    let file = fs::File::options().write(true).open(rig.dir.join(name)).unwrap();
    file.set_len(200 << 20).unwrap();
    wait_until("it is noticed", || health(&rig.dir, drive) == "failed");
    file.set_len(256 << 20).unwrap();
}

fn is_in_place(rig: &Rig, name: &str, drive: &str) -> bool {
    let path = rig.dir.join(name).display().to_string();
    let now = json(&rig.dir, &format!("drive show {drive}"));
    now["path"] == path && now["health"] == "online"
}

#[test]
fn a_spare_is_checked_marked_held_and_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rig = rig(dir);
    rig.configure(0);
    let daemon = rig.start();
    rig.make_pool("fast");
    let small = failure(dir, &format!("pool spare add fast {}/small,size=128MiB", dir.display()));
    assert!(small.0 == 1 && small.1.contains("the largest drive of the pool needs"), "{small:?}");
    assert!(!dir.join("small").exists(), "what was made for it is gone");
    let own = failure(dir, &format!("pool spare add fast {}/fast1", dir.display()));
    assert!(own.0 == 1 && own.1.contains("pool fast"), "{own:?}");
    fs::write(dir.join("full"), vec![7; 256 << 20]).unwrap();
    let full = failure(dir, &format!("pool spare add fast {}/full", dir.display()));
    assert!(full.0 == 1 && full.1.contains("holds data"), "{full:?}");
    let none = failure(dir, "pool spare add slow /nowhere");
    assert!(none.0 == 1 && none.1.contains("there is no pool slow"), "{none:?}");

    let given = add(&rig, "s0");
    assert_eq!((&given[0]["health"], &given[0]["size"]), (&"spare".into(), &(256 << 20).into()));
    let all = json(dir, "drive list");
    let listed = all.as_array().unwrap().last().unwrap();
    assert_eq!((&listed["health"], &listed["path"]), (&"spare".into(), &given[0]["path"]), "{all}");
    assert_eq!(json(dir, "pool show fast")["spares"], given);
    let table = String::from_utf8(run(dir, "drive list").stdout).unwrap();
    assert!(table.contains("spare"), "{table}");
    wait_until("it is counted", || {
        scrape(dir).contains("flashloom_pool_spares_ready{pool=\"fast\"} 1")
    });
    let again = failure(dir, &format!("pool spare add fast {}/s0", dir.display()));
    assert!(again.0 == 1 && again.1.contains("is in use"), "{again:?}");
    let create = format!("pool create other --drive {}/s0", dir.display());
    let held = failure(dir, &format!("{create} --force"));
    assert!(held.0 == 1 && held.1.contains("is in use"), "{held:?}");

    // The mark keeps it from another node, too.
    daemon.stop();
    let elsewhere = tempfile::tempdir().unwrap();
    let port = free_port();
    let other =
        Daemon::start(elsewhere.path(), &format!("serve memory:1MiB --listen 127.0.0.1:{port}"));
    let taken = failure(elsewhere.path(), &create);
    assert!(taken.0 == 1 && taken.1.contains("the mark of a spare of a pool"), "{taken:?}");
    other.stop();

    // One that is gone is found out, and back.
    fs::rename(dir.join("s0"), dir.join("away")).unwrap();
    let daemon = rig.start();
    let is_told = |finding: &Value| {
        let why = finding["why"].as_str().unwrap();
        finding["health"] == "degraded" && why.contains("a spare of it cannot be used")
    };
    wait_until("it is found out", || findings(dir).iter().any(is_told));
    assert_eq!(spares(dir)[0]["health"], "missing");
    wait_until("it is counted", || {
        scrape(dir).contains("flashloom_pool_spares_missing{pool=\"fast\"} 1")
    });
    fs::rename(dir.join("away"), dir.join("s0")).unwrap();
    wait_until("it is back", || spares(dir)[0]["health"] == "spare");
    assert!(!findings(dir).iter().any(is_told), "{:?}", findings(dir));

    let (code, said) = failure(dir, "pool spare remove fast /nowhere");
    assert!(code == 1 && said.contains("is no spare of pool fast"), "{said}");
    assert!(run(dir, &format!("pool spare remove fast {}/s0", dir.display())).status.success());
    assert!(spares(dir).is_empty());
    json(dir, &create);
    json(dir, "pool delete other --yes");
    // A pool that goes leaves its spares blank.
    json(dir, &format!("pool spare add fast {}/s0", dir.display()));
    json(dir, "volume unmap fast/v --yes");
    json(dir, "pool delete fast --yes");
    json(dir, &create);
    daemon.stop();
}

#[test]
fn a_spare_takes_the_place_of_a_drive_that_fails_a_kill_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rig = rig(dir);
    rig.configure(0);
    let daemon = rig.start();
    rig.make_pool("fast");
    add(&rig, "s0");
    cut_short(&rig, "fast1");
    until_event(dir, "takes the place of drive 1 of pool fast");
    // In the midst of it, perhaps.
    drop(daemon);
    let daemon = rig.start();
    wait_until("the spare is whole", || is_in_place(&rig, "s0", "fast/1"));
    assert!(spares(dir).is_empty());
    wait_until("it is whole", || json(dir, "pool show fast")["health"] == "online");
    scrub_finds_nothing(dir);

    // Two fail, one after the other, and there is one spare.
    add(&rig, "s1");
    cut_short(&rig, "fast2");
    wait_until("the spare is whole", || is_in_place(&rig, "s1", "fast/2"));
    scrub_finds_nothing(dir);
    cut_short(&rig, "fast0");
    wait_until("another fails", || health(dir, "fast/0") == "failed");
    assert_eq!(json(dir, "pool show fast")["health"], "no-redundancy");
    // One that comes then is used at once.
    add(&rig, "s2");
    wait_until("the spare is whole", || is_in_place(&rig, "s2", "fast/0"));
    scrub_finds_nothing(dir);

    // The first choice is gone when it is wanted: the next one is taken.
    add(&rig, "s3");
    add(&rig, "s4");
    fs::remove_file(dir.join("s3")).unwrap();
    wait_until("one is missed", || spares(dir).iter().any(|spare| spare["health"] == "missing"));
    cut_short(&rig, "fast3");
    wait_until("the other is whole", || is_in_place(&rig, "s4", "fast/3"));
    scrub_finds_nothing(dir);
    assert_eq!(spares(dir).len(), 1);

    // One fails as soon as it has the place, and has it no longer than until the next one does.
    add(&rig, "s5");
    add(&rig, "s6");
    cut_short(&rig, "s0");
    until_event(dir, &format!("spare {} takes the place of drive 1", dir.join("s5").display()));
    cut_short(&rig, "s5");
    wait_until("the next one is whole", || is_in_place(&rig, "s6", "fast/1"));
    scrub_finds_nothing(dir);
    daemon.stop();
}

#[test]
fn a_spare_waits_for_a_drive_that_is_gone_and_which_is_not_taken_back_then() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rig = rig(dir);
    rig.configure(0);
    let daemon = rig.start();
    rig.make_pool("fast");
    add(&rig, "s0");
    daemon.stop();
    fs::rename(dir.join("fast1"), dir.join("away")).unwrap();
    let daemon = rig.start();
    assert_eq!(health(dir, "fast/1"), "missing");
    // It is back before it was gone for long.
    fs::rename(dir.join("away"), dir.join("fast1")).unwrap();
    wait_until("it is back", || health(dir, "fast/1") == "online");
    assert_eq!(spares(dir).len(), 1, "the spare stands by");
    daemon.stop();

    fs::rename(dir.join("fast1"), dir.join("away")).unwrap();
    rig.configure(1);
    let daemon = rig.start();
    until_event(dir, "takes the place of drive 1 of pool fast");
    fs::rename(dir.join("away"), dir.join("fast1")).unwrap();
    wait_until("the spare is whole", || is_in_place(&rig, "s0", "fast/1"));
    let jobs = json(dir, "job list");
    let is_rebuild = |job: &Value| job["kind"] == "pool-rebuild";
    assert!(!jobs.as_array().unwrap().iter().any(is_rebuild), "in place of a rebuild: {jobs}");
    assert!(jobs.to_string().contains("the node"), "{jobs}");
    scrub_finds_nothing(dir);
    daemon.stop();
    let daemon = rig.start();
    assert!(is_in_place(&rig, "s0", "fast/1"), "{}", json(dir, "drive show fast/1"));
    assert_eq!(json(dir, "pool show fast")["health"], "online");
    daemon.stop();
}

/// A spare was used up for each drive that failed, though most are back a few seconds later.
#[test]
fn a_drive_that_stumbles_keeps_its_place_and_loses_it_when_it_does_so_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rig = rig(dir);
    rig.configure(0);
    let daemon = rig.start();
    rig.make_pool("fast");
    add(&rig, "s0");
    stumble(&rig, "fast1", "fast/1");
    wait_until("it is back", || health(dir, "fast/1") == "online");
    assert_eq!(spares(dir).len(), 1, "the spare stands by");
    assert!(is_in_place(&rig, "fast1", "fast/1"));
    stumble(&rig, "fast1", "fast/1");
    until_event(
        dir,
        "drive fast/1 is to be replaced by a spare: it failed again after it was taken back",
    );
    wait_until("the spare is whole", || is_in_place(&rig, "s0", "fast/1"));
    scrub_finds_nothing(dir);

    // What an operator takes out is replaced at once.
    add(&rig, "s1");
    json(dir, "drive fail fast/2");
    until_event(dir, "drive fast/2 is to be replaced by a spare: an operator took it out");
    wait_until("the spare is whole", || is_in_place(&rig, "s1", "fast/2"));
    scrub_finds_nothing(dir);

    // None is left for the next one.
    let is_told = |finding: &Value| {
        let why = finding["why"].as_str().unwrap();
        finding["health"] == "degraded" && why.contains("no spare of it is left")
    };
    assert_eq!(json(dir, "pool show fast")["spares_used_up"], true);
    assert!(scrape(dir).contains("flashloom_pool_spares_used_up{pool=\"fast\"} 1"));
    wait_until("nothing is missing", || !findings(dir).iter().any(is_told));
    json(dir, "drive fail fast/0");
    wait_until("it is found", || findings(dir).iter().any(is_told));
    add(&rig, "s2");
    wait_until("the spare is whole", || is_in_place(&rig, "s2", "fast/0"));
    // An operator who takes the last one back wants none.
    add(&rig, "s3");
    assert!(run(dir, &format!("pool spare remove fast {}/s3", dir.display())).status.success());
    assert!(json(dir, "pool show fast")["spares_used_up"].is_null());
    daemon.stop();
}

/// It was tried with every look, and no other one was taken.
#[test]
fn a_place_that_was_half_given_when_the_daemon_was_killed_goes_to_that_spare_or_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rig = rig(dir);
    rig.configure(0);
    let daemon = rig.start();
    rig.make_pool("fast");
    let place = |name: &str| Value::from(dir.join(name).display().to_string());
    add(&rig, "s0");
    daemon.stop();
    fs::remove_file(dir.join("fast1")).unwrap();
    remember(dir, |pool| pool["drives"][1] = place("s0"));
    let daemon = rig.start();
    wait_until("the spare is whole", || is_in_place(&rig, "s0", "fast/1"));
    assert!(spares(dir).is_empty());
    scrub_finds_nothing(dir);

    add(&rig, "s1");
    add(&rig, "s2");
    daemon.stop();
    fs::remove_file(dir.join("fast2")).unwrap();
    fs::rename(dir.join("s1"), dir.join("away")).unwrap();
    remember(dir, |pool| pool["drives"][2] = place("s1"));
    // At once, though what is lost is not rebuilt by itself.
    let daemon = rig.start();
    wait_until("the other is whole", || is_in_place(&rig, "s2", "fast/2"));
    scrub_finds_nothing(dir);
    let events = json(dir, "events").to_string();
    let tries = events.matches("s1 cannot be used").count();
    assert!(tries <= 2, "{tries} tries: {events}");
    fs::rename(dir.join("away"), dir.join("s1")).unwrap();
    wait_until("it stands by", || spares(dir)[0]["health"] == "spare");
    daemon.stop();
}

/// They kept their marks, and nobody knew them any more.
#[test]
fn spares_are_given_back_by_an_export_that_was_cut_short() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rig = rig(dir);
    rig.configure(0);
    let daemon = rig.start();
    rig.make_pool("fast");
    add(&rig, "s0");
    json(dir, "volume unmap fast/v --yes");
    let (state, mark) = (dir.join("state.json"), dir.join("s0"));
    let (before, marked) = (fs::read(&state).unwrap(), fs::read(&mark).unwrap());
    json(dir, "pool export fast");
    drop(daemon);
    // As if it had been killed between the two.
    fs::write(&state, before).unwrap();
    fs::write(&mark, marked).unwrap();
    remember(dir, |pool| pool["exporting"] = true.into());
    let port = free_port();
    let daemon = Daemon::start(dir, &format!("serve memory:1MiB --listen 127.0.0.1:{port}"));
    until_event(dir, "pool fast exported");
    assert!(json(dir, "pool list").as_array().unwrap().is_empty());
    json(dir, &format!("pool create other --drive {}/s0", dir.display()));
    daemon.stop();
}
