//! The daemon killed under a verified load: what it acknowledged is there.

use super::*;

/// A load that keeps a journal; killed when the test fails.
pub struct Load {
    child: Child,
    journal: std::path::PathBuf,
}

impl Load {
    fn start(dir: &Path, arguments: &str) -> Self {
        Self::keeping(dir, dir.join("acks"), arguments)
    }

    /// A load whose journal lies, or will lie, at `journal`.
    pub fn keeping(dir: &Path, journal: std::path::PathBuf, arguments: &str) -> Self {
        let arguments = format!("bench {arguments} --journal {} -o json", journal.display());
        let mut command = flashloom(dir, &arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { child, journal }
    }

    /// Waits until `bytes` more of acknowledgements have been noted; false when the load is over before.
    pub fn goes_on(&mut self, bytes: u64) -> bool {
        let from = self.noted();
        while self.noted() < from + bytes {
            if self.is_over() {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// Length of the journal, bytes.
    pub fn noted(&self) -> u64 {
        fs::metadata(&self.journal).map_or(0, |file| file.len())
    }

    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Its report, which must be of success.
    pub fn finish(mut self) -> Value {
        let (mut report, mut errors) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut report).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(self.child.wait().unwrap().success(), "{errors}");
        serde_json::from_str(&report).unwrap()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_daemon_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (port, drive) = (free_port(), dir.join("drive.img"));
    let serve = format!(
        "serve drive:{},size=16MiB --listen 127.0.0.1:{port} --discovery off",
        drive.display()
    );
    let to = format!("--traddr 127.0.0.1 --trsvcid {port} --poll interrupt");
    let mut daemon = Daemon::start(dir, &serve);
    let load = "--rw randwrite --bs 8k --iodepth 8 --io-size 32MiB --rate-iops 1500 --verify";
    let mut load = Load::start(dir, &format!("{load} --reconnect 60s {to}"));
    let mut kills = 0;
    while kills < 4 && load.goes_on(8000) {
        kills += 1;
        // Dropped is killed, with -9.
        drop(daemon);
        daemon = Daemon::start(dir, &serve);
    }
    assert!(kills >= 2, "the load was over before the daemon could be killed");
    let report = load.finish();
    assert!(report["jobs"][0]["flashloom"]["reconnects"].as_u64().unwrap() >= 1, "{report}");
    drop(daemon);

    let daemon = Daemon::start(dir, &serve);
    let check = format!("bench --check --journal {} {to}", dir.join("acks").display());
    let report = json(dir, &check);
    let verify = &report["jobs"][0]["flashloom"]["verify"];
    assert_eq!(verify["verified_bytes"], verify["acknowledged_bytes"]);
    assert!(verify["verified_bytes"].as_u64().unwrap() > 1 << 20, "{verify}");
    daemon.stop();

    let mut bytes = fs::read(&drive).unwrap();
    let stamped = (0..bytes.len() / 4096).map(|block| block * 4096);
    let written: Vec<usize> = stamped.filter(|at| bytes[*at..][..8] == *b"flashblk").collect();
    bytes[written[3]..][..4096].fill(0);
    fs::write(&drive, bytes).unwrap();
    let daemon = Daemon::start(dir, &serve);
    let output = run(dir, &format!("{check} -o json"));
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let listed = report["jobs"][0]["flashloom"]["verify"]["listed"].as_array().unwrap();
    assert_eq!((listed.len(), &listed[0]["offset"]), (1, &Value::from(written[3])), "{listed:?}");
    let (code, said) = failure(dir, &format!("bench --journal acks {to}"));
    assert!(code == 1 && said.contains("--verify"), "{said}");
    daemon.stop();
}

#[test]
fn pools_and_volumes_come_change_move_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let nqn = "nqn.2026-11.io.flashloom:db";
    let serve = format!("serve memory:1MiB --listen 127.0.0.1:{port} --discovery off");
    let daemon = Daemon::start(dir, &serve);
    let drive = |n: u32| format!("--drive {}/d{n}", dir.display());
    let sized: Vec<_> = (0..2).map(|n| drive(n) + ",size=512MiB").collect();
    let (code, said) = failure(dir, &format!("pool create fast {} --raid raid6", sized.join(" ")));
    assert!(code == 1 && said.contains("4 or more"), "{said}");
    json(dir, &format!("pool create fast {}", sized.join(" ")));
    let (_, said) = failure(dir, &format!("pool create other {}", sized.join(" ")));
    assert!(said.contains("is in use"), "{said}");
    let drives = json(dir, "drive list");
    assert_eq!((drives.as_array().unwrap().len(), &drives[1]["health"]), (2, &"online".into()));
    assert_eq!(json(dir, "drive show fast/1")["id"], drives[1]["id"]);

    json(dir, "volume create fast/a --size 1GiB --block-size 512");
    let (_, said) = failure(dir, "volume create fast/a --size 1GiB");
    assert!(said.contains("already"), "{said}");
    let (_, said) = failure(dir, "volume show slow/a");
    assert!(said.contains("no pool slow"), "{said}");
    json(dir, &format!("volume map fast/a --subnqn {nqn} --nsid 7 --allow-any-host"));
    let (_, said) = failure(dir, "volume delete fast/a");
    assert!(said.contains("volume unmap fast/a"), "{said}");
    let to = format!("--traddr 127.0.0.1 --trsvcid {port} --subnqn {nqn} --nsid 7");
    let before = json(dir, &format!("id-ns {to}"));
    assert_eq!(before["nsze"], 2 << 20);
    let load = "--rw randrw --bs 2k --size 4MiB --verify --poll interrupt";
    assert_eq!(json(dir, &format!("bench {load} {to}"))["jobs"][0]["total_err"], 0);
    let text = scrape(dir);
    for line in [
        "flashloom_pool_open{pool=\"fast\"} 1",
        "flashloom_drive_online{pool=\"fast\",drive=\"1\"} 1",
        "flashloom_volume_size_bytes{pool=\"fast\",volume=\"a\"} 1073741824",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    let written = "flashloom_pool_written_bytes_total{pool=\"fast\"} ";
    let written = text.lines().find_map(|line| line.strip_prefix(written)).unwrap();
    assert!(written.parse::<u64>().unwrap() >= 1 << 20, "{written}");
    assert_eq!(json(dir, "volume rename fast/a b")["name"], "fast/b");
    assert_eq!(json(dir, "volume resize fast/b 2GiB")["size"], 2_u64 << 30);
    // What cannot be taken back is asked about, and nobody is there to answer.
    let (_, said) = failure(dir, "volume resize fast/b 1GiB");
    assert!(said.contains("lost") && said.contains("--yes"), "{said}");
    assert_eq!(json(dir, "volume show fast/b")["size"], 2_u64 << 30);
    let after = json(dir, &format!("id-ns {to}"));
    assert_eq!((&after["nsze"], &after["nguid"]), (&(4 << 20).into(), &before["nguid"]));

    let (_, said) = failure(dir, "pool export fast");
    assert!(said.contains("volume unmap fast/b"), "{said}");
    run(dir, "volume unmap fast/b");
    assert!(run(dir, "pool export fast").status.success());
    assert_eq!(json(dir, "pool list").as_array().unwrap().len(), 0);
    let import = format!("pool import {} {}", drive(1), drive(0));
    let found = &json(dir, &format!("{import} --dry-run"))[0];
    assert_eq!((&found["name"], &found["exported"]), (&"fast".into(), &true.into()));
    assert_eq!(found["needs"], Value::Null);
    let half = &json(dir, &format!("pool import {} --dry-run", drive(0)))[0];
    assert_eq!(half["needs"][0], "all its drives, or --degraded");
    assert_eq!(json(dir, "pool list").as_array().unwrap().len(), 0);
    assert_eq!(json(dir, &import)["status"]["volumes"], 1);
    assert_eq!(json(dir, "volume list")[0]["size"], 2_u64 << 30);
    let (_, said) = failure(dir, "volume delete fast/b");
    assert!(said.contains("lost") && said.contains("--yes"), "{said}");
    assert!(run(dir, "volume delete fast/b --yes").status.success());
    daemon.stop();
}

#[test]
fn a_pool_that_lacks_a_drive_is_served_once_that_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let nqn = "nqn.2026-11.io.flashloom:db";
    let serve = format!("serve memory:1MiB --listen 127.0.0.1:{port} --discovery off");
    let daemon = Daemon::start(dir, &serve);
    let drive = |n: u32| format!("--drive {}/d{n}", dir.display());
    let sized: Vec<_> = (0..2).map(|n| drive(n) + ",size=512MiB").collect();
    json(dir, &format!("pool create fast {}", sized.join(" ")));
    json(dir, "volume create fast/c --size 1GiB");
    json(dir, &format!("volume map fast/c --subnqn {nqn} --allow-any-host"));
    let listed = || {
        let mut all = json(dir, "volume list");
        assert_eq!(all.as_array().unwrap().len(), 1);
        let volume = all[0].as_object_mut().unwrap();
        // What is known of an open pool only.
        let counted = ["used", "inherited", "held_by_snapshots", "snapshots"];
        volume.retain(|what, _| !counted.contains(&what.as_str()));
        (volume.remove("state").unwrap(), all[0].take())
    };
    let before = listed();
    assert_eq!(before.0, "online");
    daemon.stop();

    // The rest is served, and what to do is said.
    fs::rename(dir.join("d1"), dir.join("gone")).unwrap();
    let daemon = Daemon::start(dir, &serve);
    let pool = &json(dir, "pool list")[0];
    assert_eq!(pool["health"], "unavailable");
    // It is listed as what it was: hosts wait for it.
    assert_eq!(listed(), ("inaccessible".into(), before.1.clone()));
    let (_, said) = failure(dir, "volume show fast/c -o json");
    assert!(said.contains("--degraded") && said.contains(r#""kind":"conflict""#), "{said}");
    let served = || {
        let all = json(dir, "namespace list");
        let of = |found: &Value| found["backend"] == "volume:fast/c";
        all.as_array().unwrap().iter().find(|found| of(found)).unwrap()["served"].clone()
    };
    assert_eq!(served(), false);
    assert!(daemon.announced.iter().any(|line| line.contains("fast/c, not served")));
    assert_eq!(json(dir, "status")["namespaces"], 1);
    json(dir, &format!("pool import --degraded --yes {}", drive(0)));
    assert_eq!(json(dir, "pool show fast")["health"], "no-redundancy");
    assert_eq!(listed(), before);
    assert_eq!((served(), &json(dir, "status")["namespaces"]), (true.into(), &2.into()));
    let to = format!("--traddr 127.0.0.1 --trsvcid {port} --subnqn {nqn}");
    assert_eq!(json(dir, &format!("id-ns {to}"))["nsze"], 1 << 18);
    daemon.stop();
}

/// It could be opened no more, whatever its drives had.
/// Nobody is told to accept a loss where there is none.
#[test]
fn a_pool_one_of_whose_logs_devices_is_lost_is_imported_with_the_other() {
    let (made, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (dir, other) = (made.path(), other.path());
    let port = free_port();
    let serve = format!("serve memory:1MiB --listen 127.0.0.1:{port} --discovery off");
    let daemon = Daemon::start(dir, &serve);
    let place = |name: &str| format!("{}/{name}", dir.display());
    let drives = format!("--drive {},size=512MiB --drive {},size=512MiB", place("d0"), place("d1"));
    let (one, two) = (format!("--log bbu:{}", place("l0")), format!("--log bbu:{}", place("l1")));
    json(dir, &format!("pool create fast {drives} {one} {two} --log-size 12MiB"));
    json(dir, "volume create fast/a --size 1GiB");
    // Killed: something may be in the log.
    drop(daemon);
    fs::remove_file(dir.join("l1")).unwrap();
    let daemon = Daemon::start(other, &serve);
    let import = format!("pool import --drive {} --drive {}", place("d0"), place("d1"));
    let (_, said) = failure(other, &format!("{import} {one} {two}"));
    assert!(said.contains("other device alone") && !said.contains("accept-loss"), "{said}");
    json(other, &format!("{import} {one} --force --yes"));
    assert_eq!(json(other, "volume list")[0]["size"], 1 << 30);
    daemon.stop();
}

#[test]
fn a_pool_whose_log_is_lost_opens_for_whoever_accepts_that() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve memory:1MiB --listen 127.0.0.1:{port} --discovery off");
    let daemon = Daemon::start(dir, &serve);
    let drive = |n: u32| format!("--drive {}/d{n}", dir.display());
    let log = format!("--log bbu:{}/log", dir.display());
    let sized: Vec<_> = (0..2).map(|n| drive(n) + ",size=512MiB").collect();
    json(dir, &format!("pool create fast {} {log} --log-size 12MiB", sized.join(" ")));
    json(dir, "volume create fast/a --size 1GiB");
    // Killed: something may be in the log.
    drop(daemon);

    fs::remove_file(dir.join("log")).unwrap();
    let daemon = Daemon::start(dir, &serve);
    assert_eq!(json(dir, "pool list")[0]["health"], "unavailable");
    let (_, said) = failure(dir, "volume show fast/a");
    assert!(said.contains("commit log"), "{said}");
    let import = format!("pool import {} {} {log}", drive(0), drive(1));
    let (_, said) = failure(dir, &import);
    assert!(said.contains("no such file") && said.contains("--accept-loss"), "{said}");
    assert!(!dir.join("log").exists(), "its path may have been wrong");
    let output = run(dir, &format!("{import} --accept-loss --yes"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("may be"), "{said}");
    assert_eq!(json(dir, "pool show fast")["health"], "online");
    assert_eq!(json(dir, "volume list")[0]["size"], 1 << 30);
    let events = json(dir, "events").to_string();
    assert!(events.contains("pool fast was opened without its commit log"), "{events}");
    assert_eq!(fs::metadata(dir.join("log")).unwrap().len(), 12 << 20);
    daemon.stop();
    let daemon = Daemon::start(dir, &serve);
    assert_eq!(json(dir, "pool list")[0]["health"], "online");
    daemon.stop();

    // Closed in order it left nothing in its log: one that is gone then is made anew, and nothing is lost.
    fs::remove_file(dir.join("log")).unwrap();
    let daemon = Daemon::start(dir, &serve);
    assert_eq!(json(dir, "pool list")[0]["health"], "unavailable", "it is waited for first");
    json(dir, &import);
    assert_eq!(json(dir, "pool show fast")["health"], "online");
    assert_eq!(json(dir, "volume list")[0]["size"], 1 << 30);
    daemon.stop();
}
