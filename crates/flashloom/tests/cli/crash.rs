//! The daemon killed under a verified load: what it acknowledged is there.

use super::*;

/// A load that keeps a journal; killed when the test fails.
struct Load {
    child: Child,
    journal: std::path::PathBuf,
}

impl Load {
    fn start(dir: &Path, arguments: &str) -> Self {
        let journal = dir.join("acks");
        let arguments = format!("bench {arguments} --journal {} -o json", journal.display());
        let mut command = flashloom(dir, &arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { child, journal }
    }

    /// Waits until `bytes` more of acknowledgements have been noted; false when the load is over before.
    fn goes_on(&mut self, bytes: u64) -> bool {
        let length = |load: &Self| fs::metadata(&load.journal).map_or(0, |file| file.len());
        let from = length(self);
        while length(self) < from + bytes {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// Its report, which must be of success.
    fn finish(mut self) -> Value {
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
    let load = "--rw randwrite --bs 8k --iodepth 8 --size 32MiB --rate 1500 --verify";
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
