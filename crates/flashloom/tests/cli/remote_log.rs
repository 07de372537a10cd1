//! A pool's log is in memory here and on a namespace of another daemon, either of which may be lost.

use super::crash::Load;
use super::rig::wait_until;
use super::*;

const VOLUME: &str = "nqn.2026-11.io.flashloom:volume";
const LOGS: &str = "nqn.2026-11.io.flashloom:logs";

/// Bytes that a journal grows by before something else happens: some hundred writes.
const SOME: u64 = 8000;

/// Two machines: one has a pool, the other a namespace for its log.
struct Pair {
    dir: tempfile::TempDir,
    port: u16,
    other_port: u16,
}

impl Pair {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (port, other_port) = (free_port(), free_port());
        let node = format!(
            "[node]\nwait-for-drives = 0\n[[listener]]\naddress = \"127.0.0.1:{port}\"\n\
             [[subsystem]]\nnqn = \"{NQN}\"\nallow-any-host = true\n"
        );
        fs::write(dir.path().join("node.toml"), node).unwrap();
        Self { dir, port, other_port }
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// The daemon that has the pool.
    fn start(&self) -> Daemon {
        Daemon::start(&self.home(), &format!("serve --config {}", self.at("node.toml").display()))
    }

    fn home(&self) -> std::path::PathBuf {
        self.at("here")
    }

    fn start_other(&self) -> Daemon {
        let (file, port) = (self.at("other.img"), self.other_port);
        let serve = format!("serve drive:{},size=16MiB --subnqn {LOGS}", file.display());
        let serve =
            format!("{serve} --listen 127.0.0.1:{port} --listen 127.0.0.2:{port} --discovery off");
        Daemon::start(&self.at("there"), &serve)
    }

    /// The other target has lost what it had. It does not make a drive anew that it served before.
    fn empty_other(&self) {
        fs::File::create(self.at("other.img")).unwrap().set_len(16 << 20).unwrap();
    }

    fn namespace(&self) -> String {
        format!("tcp://127.0.0.1:{}/{LOGS}/1", self.other_port)
    }

    fn memory(&self, name: &str) -> String {
        format!("bbu:{}", self.at(name).display())
    }

    /// Arguments that name the pool's drives.
    fn drives(&self, size: &str) -> String {
        let drive = |name| format!("--drive {}{size}", self.at(name).display());
        format!("{} {}", drive("d0"), drive("d1"))
    }

    /// Makes the pool with these places for its log, and maps a volume of it.
    fn make(&self, log: &str) {
        let drives = self.drives(",size=320MiB");
        let make = format!("pool create fast {drives} {log} --log-size 12MiB --shards 2");
        json(&self.home(), &make);
        json(&self.home(), "volume create fast/v --size 64MiB");
        json(&self.home(), &format!("volume map fast/v --subnqn {VOLUME} --allow-any-host"));
    }

    fn make_on_both(&self) {
        self.make(&format!("--log {} --log {}", self.memory("log"), self.namespace()));
        self.wait_for_copies(2);
    }

    fn show(&self) -> Value {
        json(&self.home(), "pool show fast")
    }

    /// Copies of the log that there are, and are to be; none while the pool is not open.
    fn copies(&self) -> Option<(u64, u64)> {
        let log = self.show()["status"]["log"].take();
        let devices = log["devices"].as_u64()?;
        assert_eq!(log["kind"], "remote", "{log}");
        Some((devices - log["failed_devices"].as_u64().unwrap(), devices))
    }

    fn wait_for_copies(&self, copies: u64) {
        wait_until("the log has that many copies", || self.copies() == Some((copies, 2)));
    }

    fn to(&self) -> String {
        to(self.port)
    }

    fn load(&self) -> Load {
        let load = "--rw randwrite --bs 4k --size 32MiB --iodepth 8 --rate-iops 1000 --verify";
        let load = format!("{load} --runtime 600s --reconnect 60s {}", self.to());
        Load::keeping(&self.home(), self.at("acks"), &load)
    }

    /// Everything that was acknowledged is there.
    fn check(&self) {
        self.check_at(self.port);
    }

    fn check_at(&self, port: u16) {
        let journal = self.at("acks").display().to_string();
        let report = json(&self.home(), &format!("bench --check --journal {journal} {}", to(port)));
        let verify = &report["jobs"][0]["flashloom"]["verify"];
        assert_eq!(verify["verified_bytes"], verify["acknowledged_bytes"], "{verify}");
        assert!(verify["verified_bytes"].as_u64().unwrap() > 1 << 20, "{verify}");
    }

    /// When its drives, and what the other daemon has of its log, were last written to.
    fn written(&self) -> [SystemTime; 3] {
        ["d0", "d1", "other.img"]
            .map(|name| fs::metadata(self.at(name)).unwrap().modified().unwrap())
    }
}

fn to(port: u16) -> String {
    format!("--traddr 127.0.0.1 --trsvcid {port} --subnqn {VOLUME} --poll interrupt")
}

#[track_caller]
fn goes_on(load: &mut Load) {
    assert!(load.goes_on(SOME), "the load is over");
}

#[test]
fn writes_go_on_while_the_target_that_has_the_log_is_killed_or_hangs() {
    let pair = Pair::new();
    let (other, daemon) = (pair.start_other(), pair.start());
    pair.make_on_both();
    let shown = String::from_utf8(run(&pair.home(), "pool show fast").stdout).unwrap();
    assert!(shown.contains("in use, remote") && shown.contains("2 of 2"), "{shown}");
    let window = "--rw randwrite --size 4MiB --iodepth 1 --window require";
    let (_, said) = failure(&pair.home(), &format!("bench {window} {}", pair.to()));
    assert!(said.contains("No Window"), "{said}");
    let mut load = pair.load();
    goes_on(&mut load);
    // Dropped is killed, with -9.
    drop(other);
    goes_on(&mut load);
    pair.wait_for_copies(1);
    until_event(&pair.home(), "its log has 1 of 2 copies");
    assert_eq!(pair.show()["health"], "no-redundancy");
    let other = pair.start_other();
    pair.wait_for_copies(2);
    goes_on(&mut load);
    until_event(&pair.home(), "pool fast is whole again");

    other.signal("-STOP");
    pair.wait_for_copies(1);
    goes_on(&mut load);
    other.signal("-CONT");
    pair.wait_for_copies(2);
    goes_on(&mut load);
    drop(load);
    pair.check();
    daemon.stop();
    other.stop();
}

#[test]
fn a_pool_whose_memory_is_lost_opens_from_the_other_target_and_its_log_is_brought_back() {
    let pair = Pair::new();
    let (other, daemon) = (pair.start_other(), pair.start());
    pair.make_on_both();
    let mut load = pair.load();
    goes_on(&mut load);
    drop(daemon);
    fs::remove_file(pair.at("log")).unwrap();
    let daemon = pair.start();
    goes_on(&mut load);
    // At the same path, from what the other target has.
    pair.wait_for_copies(2);
    drop(load);
    pair.check();

    let mut load = pair.load();
    let places = [pair.memory("second"), format!("{} {}", pair.memory("third"), pair.namespace())];
    for to in places {
        goes_on(&mut load);
        json(&pair.home(), &format!("pool log move fast {to}"));
    }
    pair.wait_for_copies(2);
    goes_on(&mut load);
    drop((load, daemon));
    let daemon = pair.start();
    pair.wait_for_copies(2);
    pair.check();
    daemon.stop();
    other.stop();
}

/// Nobody writes meanwhile, so that no write tells of it.
#[test]
fn a_target_that_lost_what_it_had_while_nobody_wrote_gets_it_again_before_it_counts() {
    let pair = Pair::new();
    let (other, daemon) = (pair.start_other(), pair.start());
    pair.make_on_both();
    let mut load = pair.load();
    goes_on(&mut load);
    drop((load, other));
    pair.wait_for_copies(1);
    pair.empty_other();
    let other = pair.start_other();
    pair.wait_for_copies(2);
    drop(daemon);
    fs::remove_file(pair.at("log")).unwrap();
    let daemon = pair.start();
    pair.check();
    daemon.stop();
    other.stop();
}

#[test]
fn a_pool_opens_from_memory_when_both_targets_were_killed_and_the_other_one_is_lost() {
    let pair = Pair::new();
    let (other, daemon) = (pair.start_other(), pair.start());
    pair.make_on_both();
    let mut load = pair.load();
    goes_on(&mut load);
    drop((other, daemon, load));
    pair.empty_other();
    let daemon = pair.start();
    pair.wait_for_copies(1);
    pair.check();
    // It comes back with nothing in it, and is made whole.
    let other = pair.start_other();
    pair.wait_for_copies(2);
    let mut load = pair.load();
    goes_on(&mut load);
    drop((daemon, load));
    fs::remove_file(pair.at("log")).unwrap();
    let daemon = pair.start();
    pair.wait_for_copies(2);
    pair.check();
    daemon.stop();
    other.stop();
}

#[test]
fn a_namespace_that_missed_writes_opens_no_pool() {
    let pair = Pair::new();
    let (other, daemon) = (pair.start_other(), pair.start());
    pair.make_on_both();
    let mut load = pair.load();
    goes_on(&mut load);
    drop(other);
    pair.wait_for_copies(1);
    goes_on(&mut load);
    drop((daemon, load));
    fs::rename(pair.at("log"), pair.at("away")).unwrap();
    let other = pair.start_other();
    let before = pair.written();
    let daemon = pair.start();
    assert_eq!(pair.show()["health"], "unavailable");
    let import = format!("pool import {} --log {}", pair.drives(""), pair.namespace());
    let (_, said) = failure(&pair.home(), &import);
    assert!(said.contains("an old copy on every device"), "{said}");
    assert_eq!(pair.written(), before, "something was changed");

    fs::rename(pair.at("away"), pair.at("log")).unwrap();
    pair.wait_for_copies(2);
    pair.check();
    daemon.stop();
    other.stop();
}

#[test]
fn nothing_is_acknowledged_that_one_side_has_where_writes_are_to_wait() {
    let pair = Pair::new();
    let (other, daemon) = (pair.start_other(), pair.start());
    pair.make_on_both();
    let policy = |to| json(&pair.home(), &format!("pool log policy fast {to}"));
    assert_eq!(policy("wait")["status"]["log"]["policy"], "wait");
    let mut load = pair.load();
    goes_on(&mut load);
    drop(other);
    until_event(&pair.home(), "its log has 1 of 2 copies, writes wait for the others");
    let other = pair.start_other();
    pair.wait_for_copies(2);
    goes_on(&mut load);
    // It goes with the pool.
    drop((other, daemon));
    let (daemon, other) = (pair.start(), pair.start_other());
    pair.wait_for_copies(2);
    assert_eq!(pair.show()["status"]["log"]["policy"], "wait");
    goes_on(&mut load);
    drop(load);
    pair.check();
    json(&pair.home(), &format!("pool log move fast {}", pair.memory("alone")));
    let (_, said) = failure(&pair.home(), "pool log policy fast wait");
    assert!(said.contains("a log on memory alone"), "{said}");
    daemon.stop();
    other.stop();
}

/// A machine burnt down; its drives did not.
#[test]
fn another_node_imports_a_pool_with_what_the_other_target_has_of_its_log() {
    let pair = Pair::new();
    let (other, daemon) = (pair.start_other(), pair.start());
    pair.make_on_both();
    let mut load = pair.load();
    goes_on(&mut load);
    drop((daemon, load));
    fs::remove_file(pair.at("log")).unwrap();
    let (heir, port) = (pair.at("heir"), free_port());
    let serve = format!("serve memory:1MiB --listen 127.0.0.1:{port} --discovery off");
    let daemon = Daemon::start(&heir, &serve);
    let import = format!("pool import {} --log {}", pair.drives(""), pair.namespace());
    let (_, said) = failure(&heir, &import);
    assert!(said.contains("--force"), "{said}");
    assert_eq!(json(&heir, &format!("{import} --force"))["name"], "fast");
    json(&heir, &format!("volume map fast/v --subnqn {VOLUME} --allow-any-host"));
    pair.check_at(port);
    // What hosts wrote does not stay on the other machine.
    json(&heir, "volume unmap fast/v --yes");
    json(&heir, "pool delete fast --yes");
    assert!(fs::read(pair.at("other.img")).unwrap().iter().all(|&byte| byte == 0));
    daemon.stop();
    other.stop();
}

#[test]
fn places_that_cannot_have_a_log_are_refused_in_words() {
    let pair = Pair::new();
    let (other, daemon) = (pair.start_other(), pair.start());
    let drives = pair.drives(",size=320MiB");
    let (memory, namespace) = (pair.memory("log"), pair.namespace());
    let absent = namespace.replace(&format!("{LOGS}/1"), &format!("{LOGS}/7"));
    let by_another_way = namespace.replace("127.0.0.1", "127.0.0.2");
    let nobody = format!("tcp://127.0.0.1:{}/{LOGS}/1", free_port());
    let refused = |log: &[&str]| {
        let log = log.iter().map(|place| format!(" --log {place}")).collect::<String>();
        let (code, said) =
            failure(&pair.home(), &format!("pool create fast {drives} --log-size 12MiB{log}"));
        assert_eq!(code, 1, "{said}");
        assert!(!pair.at("log").exists() && !pair.at("d0").exists(), "what was made is left");
        said
    };
    for (log, words) in [
        (vec![&*memory, &absent], "namespace 7 is not active"),
        (vec![&memory, &nobody], "cannot connect to 127.0.0.1"),
        (vec![&namespace, &namespace], "is given twice"),
        (vec![&namespace, &by_another_way], "uses the namespace already"),
        (vec![&memory, &namespace, &absent], "make no commit log together"),
        (vec!["drives", &namespace], "make no commit log together"),
    ] {
        let said = refused(&log);
        assert!(said.contains(words), "{log:?}: {said}");
    }

    // Another node has its log there.
    let third = pair.at("third");
    let serve = format!("serve memory:1MiB --listen 127.0.0.1:{} --discovery off", free_port());
    let third_daemon = Daemon::start(&third, &serve);
    let theirs = |name| format!("--drive {},size=320MiB", pair.at(name).display());
    let make = format!("pool create theirs {} {}", theirs("t0"), theirs("t1"));
    json(&third, &format!("{make} --log {namespace} --log-size 12MiB"));
    let said = refused(&[&memory, &namespace]);
    assert!(said.contains("another node uses the namespace"), "{said}");
    assert_eq!(json(&third, "pool show theirs")["health"], "online");
    // In order, it leaves it.
    third_daemon.stop();
    let said = refused(&[&memory, &namespace]);
    assert!(said.contains("holds the commit log of a pool"), "{said}");
    daemon.stop();
    other.stop();
}
