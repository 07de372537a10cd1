//! What an operator sees of a drive's life: its state, since when, why, what is done about it; and drives that stay out,
//! over restarts and kills, until they are wanted back.

use std::os::unix::fs::FileExt;

use super::rig::{rig, wait_until};
use super::*;

fn drive(dir: &Path, of: &str) -> Value {
    json(dir, &format!("drive show {of}"))
}

fn is_told(dir: &Path, words: &str) -> bool {
    let events = json(dir, "events");
    let says = |event: &Value| event["message"].as_str().is_some_and(|said| said.contains(words));
    events.as_array().unwrap().iter().any(says)
}

fn says(drive: &Value, field: &str, words: &str) -> bool {
    drive[field].as_str().is_some_and(|said| said.contains(words))
}

/// A drive that came and went was taken back as long as it did, and a restart forgot how often.
#[test]
fn a_drive_that_comes_and_goes_stays_out_over_restarts_until_it_is_wanted_back() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rig = rig(dir);
    rig.configure(0);
    let mut daemon = rig.start();
    rig.make_pool("fast");
    let (at, away) = (dir.join("fast1"), dir.join("away"));
    for n in 1..=5 {
        drop(daemon);
        fs::rename(&at, &away).unwrap();
        daemon = rig.start();
        wait_until("it is missed", || drive(dir, "fast/1")["state"] == "missing");
        let missing = drive(dir, "fast/1");
        assert!(missing["since_ms"].is_u64() && missing["cause"].is_string(), "{missing}");
        assert!(says(&missing, "doing", "taken back once it is there"), "{missing}");
        fs::rename(&away, &at).unwrap();
        wait_until("it is back", || {
            let now = drive(dir, "fast/1");
            now["state"] == "online" && now["returns"] == n && now["since_ms"].is_u64()
        });
    }
    drop(daemon);
    fs::rename(&at, &away).unwrap();
    daemon = rig.start();
    wait_until("it stays out", || drive(dir, "fast/1")["stays_out"] == "returns");
    let told = "drive 1 of pool fast came and went 5 times within 60 minutes";
    wait_until("it is told", || is_told(dir, told));
    fs::rename(&away, &at).unwrap();
    drop(daemon);
    daemon = rig.start();
    let out = drive(dir, "fast/1");
    assert_eq!((&out["state"], &out["stays_out"]), (&"failed".into(), &"returns".into()), "{out}");
    assert!(says(&out, "doing", "`flashloom drive rejoin fast/1` takes it back"), "{out}");
    let listed = String::from_utf8(run(dir, "drive list").stdout).unwrap();
    assert!(listed.contains("as it came and went 5 times"), "{listed}");
    let back = json(dir, "drive rejoin fast/1");
    assert_eq!((&back["state"], &back["returns"]), (&"online".into(), &0.into()), "{back}");
    // It counts anew.
    drop(daemon);
    fs::rename(&at, &away).unwrap();
    let _daemon = rig.start();
    wait_until("it is missed", || drive(dir, "fast/1")["state"] == "missing");
    fs::rename(&away, &at).unwrap();
    wait_until("it is back once more", || {
        let now = drive(dir, "fast/1");
        now["state"] == "online" && now["returns"] == 1
    });
}

/// Has all that a drive holds, past labels, catalog and log, be something else.
fn ruin(drive: &Path) {
    let file = fs::File::options().read(true).write(true).open(drive).unwrap();
    let blocks = file.metadata().unwrap().len() / 4096;
    let mut block = [0; 4096];
    for at in blocks / 4..blocks {
        file.read_exact_at(&mut block, at * 4096).unwrap();
        if block.iter().any(|byte| *byte != 0) {
            block.iter_mut().for_each(|byte| *byte = !*byte);
            file.write_all_at(&block, at * 4096).unwrap();
        }
    }
    file.sync_all().unwrap();
}

/// A drive that had fallen apart was taken back five seconds later, and by every start.
#[test]
fn a_drive_with_thousands_of_faults_stays_out_and_tells_why_over_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve memory:1MiB --listen 127.0.0.1:{port} --discovery off");
    let daemon = Daemon::start(dir, &serve);
    let new = |n| format!("--drive {}/d{n},size=192MiB", dir.display());
    json(dir, &format!("pool create fast {} {} --log-size 16MiB", new(0), new(1)));
    json(dir, "volume create fast/v --size 64MiB");
    json(dir, &format!("volume map fast/v --subnqn {NQN}.lives --allow-any-host"));
    let to = format!("--traddr 127.0.0.1 --trsvcid {port} --subnqn {NQN}.lives --poll interrupt");
    json(dir, &format!("bench --rw write --bs 64k --size 64MiB --io-size 64MiB --verify {to}"));
    ruin(&dir.join("d0"));
    json(dir, "pool scrub start fast --no-wait");
    wait_until("it is out", || drive(dir, "fast/0")["stays_out"] == "faults");
    wait_until("that is told", || {
        is_told(dir, "drive 0 of pool fast is out of use, and stays out")
    });
    let out = drive(dir, "fast/0");
    assert_eq!(out["state"], "failed", "{out}");
    assert!(says(&out, "cause", "faults (reads that failed, damaged blocks)"), "{out}");
    assert!(says(&out, "doing", "`flashloom drive replace fast/0 NEW`"), "{out}");
    drop(daemon);
    let _daemon = Daemon::start(dir, &serve);
    wait_until("it is open", || json(dir, "pool show fast")["status"].is_object());
    let still = drive(dir, "fast/0");
    for field in ["state", "since_ms", "cause", "doing", "stays_out"] {
        assert_eq!(still[field], out[field], "{still}");
    }
    let pool = json(dir, "pool show fast");
    assert!(says(&pool, "problem", "drive 0 is failed: it had more faults"), "{pool}");
    let back = json(dir, "drive rejoin fast/0");
    assert_eq!((&back["state"], &back["cause"]), (&"online".into(), &Value::Null), "{back}");
    let read = format!("bench --rw read --bs 64k --size 64MiB --io-size 64MiB {to}");
    json(dir, "drive fail fast/1");
    json(dir, &read);
    let taken = drive(dir, "fast/1");
    assert_eq!((&taken["stays_out"], &taken["health"]), (&"operator".into(), &"failed".into()));
    assert!(says(&taken, "cause", "an operator took it out"), "{taken}");
}

/// Whoever took it back: a drive that was made whole by itself was no job, and could neither be paused nor slowed down.
#[test]
fn drives_that_are_made_whole_are_jobs_that_wait_over_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rig = rig(dir);
    rig.configure(0);
    let daemon = rig.start();
    rig.make_pool("fast");
    let (at, away) = (dir.join("fast1"), dir.join("away"));
    let limited = json(dir, "pool rejoin limit fast 200MiB");
    assert_eq!(
        (&limited["limit"], &limited["drives"]),
        (&(200 << 20).into(), &Value::Array(vec![]))
    );
    assert_eq!(json(dir, "pool rejoin pause fast")["paused"], true);
    drop(daemon);
    fs::rename(&at, &away).unwrap();
    let daemon = rig.start();
    wait_until("it is missed", || drive(dir, "fast/1")["state"] == "missing");
    fs::rename(&away, &at).unwrap();
    let job = || {
        let all = json(dir, "job list");
        let is_it = |job: &&Value| job["kind"] == "drive-rejoin" && job["state"] == "running";
        all.as_array().unwrap().iter().find(is_it).cloned()
    };
    let is_paused = |job: &Value| {
        job["target"] == "fast/1"
            && job["progress"]["step"] == "is paused"
            && job["by"] == "the node"
    };
    wait_until("it waits, and is a job", || job().as_ref().is_some_and(is_paused));
    let waits = drive(dir, "fast/1");
    assert_eq!(waits["state"], "rejoining", "{waits}");
    assert!(says(&waits, "doing", "`flashloom pool rejoin resume fast`"), "{waits}");
    let is_found = || {
        let is_it = |finding: &Value| says(finding, "why", "wait to be made whole");
        super::rig::findings(dir).iter().any(is_it)
    };
    wait_until("health tells of it", is_found);
    let before = job().unwrap();
    drop(daemon);
    let _daemon = rig.start();
    wait_until("it waits again, and is a job again", || {
        job().as_ref().is_some_and(|job| is_paused(job) && job["id"] != before["id"])
    });
    // It goes on as another one, and nobody has to look at the first.
    let shown = json(dir, &format!("job show {}", before["id"]));
    assert_eq!(shown["state"], "interrupted", "{shown}");
    assert_eq!(shown["continued_by"], job().unwrap()["id"], "{shown}");
    let findings = super::rig::findings(dir);
    assert!(!findings.iter().any(|of| says(of, "why", "cut short")), "{findings:?}");
    let table = String::from_utf8(run(dir, "job list").stdout).unwrap();
    assert!(table.contains("interrupted, goes on as job"), "{table}");
    let shown = json(dir, "pool rejoin show fast");
    assert_eq!((&shown["paused"], &shown["drives"]), (&true.into(), &serde_json::json!([1])));
    let resumed = json(dir, "pool rejoin resume fast");
    assert_eq!((&resumed["paused"], &resumed["limit"]), (&false.into(), &(200 << 20).into()));
    wait_until("it is whole", || drive(dir, "fast/1")["state"] == "online");
    wait_until("the job is done", || job().is_none());
    super::rig::scrub_finds_nothing(dir);
}
