//! The program as users run it: daemon, command line and host side against each other.
#![allow(clippy::unwrap_used, reason = "what fails in a helper of these tests fails the test")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;

mod bench;
mod beyond;
mod clones;
mod crash;
mod cut_short;
mod documents;
mod drives;
mod dump;
mod ends;
mod follow;
mod groups;
mod guards;
mod hardware;
mod health;
mod images;
mod jobs;
mod kills;
mod lives;
mod log_move;
mod memory;
mod pauses;
mod quotas;
mod raid;
mod remote_log;
mod removed;
mod reservations;
mod returns;
mod rig;
mod rollback;
mod schedules;
mod scrub;
mod shelf;
mod slow;
mod snapshots;
mod space;
mod spares;
mod strangers;
mod taken;
mod two_rings;
mod used;
mod waits;
mod windows;
mod words;
mod wrong;

const NQN: &str = "nqn.2026-11.io.flashloom:default";

/// A command of the program on the state directory `dir`.
fn flashloom(dir: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashloom"));
    command.arg("--state-dir").arg(dir).args(arguments.split_whitespace());
    command.env_remove("JOURNAL_STREAM").env_remove("NOTIFY_SOCKET").env_remove("FLASHLOOM_LOG");
    command
}

/// Runs a command to its end.
fn run(dir: &Path, arguments: &str) -> Output {
    flashloom(dir, arguments).output().unwrap()
}

/// Runs a command that must succeed; its JSON.
fn json(dir: &Path, arguments: &str) -> Value {
    let output = run(dir, &format!("{arguments} -o json"));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

/// Runs a command that must fail; its exit code and what it said.
fn failure(dir: &Path, arguments: &str) -> (i32, String) {
    let output = run(dir, arguments);
    assert!(!output.status.success(), "{arguments}");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// A port for the daemons of one test.
fn free_port() -> u16 {
    stdx::port::claim().unwrap()
}

/// A daemon; killed when the test fails.
struct Daemon {
    child: Child,
    announced: Vec<String>,
}

impl Daemon {
    /// Starts one and waits for its connect line.
    fn start(dir: &Path, arguments: &str) -> Self {
        Self::run(&mut flashloom(dir, arguments), arguments)
    }

    /// Likewise, with a command of one's own.
    fn run(command: &mut Command, arguments: &str) -> Self {
        let command = command.stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut announced = Vec::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while !announced.last().is_some_and(|line: &String| line.starts_with("nvme connect")) {
            match lines.next() {
                Some(line) => announced.push(line.unwrap()),
                None => {
                    let mut errors = String::new();
                    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
                    panic!("{arguments}: {errors}");
                }
            }
        }
        Self { child, announced }
    }

    fn signal(&self, name: &str) {
        let kill = Command::new("kill").arg(name).arg(self.child.id().to_string()).status();
        assert!(kill.unwrap().success());
    }

    /// Asks it to stop; it must do so in order.
    fn stop(mut self) {
        self.signal("-TERM");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_ad_hoc_target_serves_and_keeps_its_identity() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve memory:64MiB --listen 127.0.0.1:{port} --discovery off");
    let daemon = Daemon::start(dir, &serve);
    let announced = &daemon.announced;
    assert!(announced.contains(&format!("nvme discover -t tcp -a 127.0.0.1 -s {port}")));
    assert!(announced.contains(&format!("nvme connect -t tcp -a 127.0.0.1 -s {port} -n {NQN}")));

    let to = format!("--traddr 127.0.0.1 --trsvcid {port}");
    let log = json(dir, &format!("discover {to}"));
    let found: Vec<_> = log["records"].as_array().unwrap().iter().collect();
    assert!(found.iter().any(|record| record["subnqn"] == NQN), "{log}");
    let controller = json(dir, &format!("id-ctrl {to}"));
    let namespace = json(dir, &format!("id-ns {to}"));
    assert_eq!(namespace["nsze"], 16384);

    let bench = "--rw randrw --size 8MiB --verify --iodepth 8 --poll interrupt";
    let report = json(dir, &format!("bench {to} {bench}"));
    assert_eq!(report["jobs"][0]["total_err"], 0);
    assert!(report["jobs"][0]["flashloom"]["verify"]["verified_bytes"].as_u64().unwrap() > 0);

    let second = failure(dir, "serve memory:64MiB");
    assert_eq!(second.0, 1);
    assert!(second.1.contains("uses the state directory"), "{}", second.1);
    daemon.stop();
    assert!(!dir.join("api.sock").exists());

    let daemon = Daemon::start(dir, &serve);
    assert_eq!(json(dir, &format!("id-ctrl {to}"))["sn"], controller["sn"]);
    let again = json(dir, &format!("id-ns {to}"));
    assert_eq!(again["nguid"], namespace["nguid"]);
    daemon.stop();
}

#[test]
fn a_running_daemon_is_managed_and_keeps_what_was_changed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let serve = format!("serve memory:16MiB --listen 127.0.0.1:{} --discovery off", free_port());
    let daemon = Daemon::start(dir, &serve);
    assert_eq!(json(dir, "namespace add memory:32MiB --block-size 512")["nsid"], 2);
    assert_eq!(json(dir, "namespace resize 2 48MiB")["size"], 48 << 20);
    let drive = dir.join("drive.img");
    let add = format!("namespace add drive:{},size=8MiB --nsid 9", drive.display());
    assert_eq!(json(dir, &add)["nsid"], 9);
    assert_eq!(fs::metadata(&drive).unwrap().len(), 8 << 20);
    let (code, said) = failure(dir, &format!("namespace add drive:{}", drive.display()));
    assert!(code == 1 && said.contains("is namespace 9 of"), "{said}");
    assert!(run(dir, "namespace remove 1 --yes").status.success());

    let other = "nqn.2026-11.io.flashloom:other";
    json(dir, &format!("subsystem add {other}"));
    let host = "nqn.2014-08.org.nvmexpress:uuid:6f0a2c9e-7c7e-4c55-9c3c-2f0f0f1f9a11";
    json(dir, &format!("host add {host} --subnqn {other}"));
    let port = free_port();
    json(dir, &format!("listener add 127.0.0.1:{port} --advertise 192.0.2.7"));

    // Not on the list: refused, and sees nothing of it.
    let to = format!("--traddr 127.0.0.1 --trsvcid {port}");
    let stranger = "nqn.2026-11.io.flashloom:stranger";
    let ask = format!("id-ctrl {to} --subnqn {other} --hostnqn {stranger}");
    assert_eq!(failure(dir, &ask).0, 5);
    let log = json(dir, &format!("discover {to} --hostnqn {stranger}"));
    assert!(!log.to_string().contains(other), "{log}");
    let log = json(dir, &format!("discover {to} --hostnqn {host}"));
    assert!(log.to_string().contains(other), "{log}");
    assert!(log.to_string().contains("192.0.2.7"), "{log}");

    json(dir, "referral add 192.0.2.9:8009");
    let log = json(dir, &format!("discover {to}"));
    assert!(log.to_string().contains("192.0.2.9"), "{log}");

    // But for what is known of the drive by then.
    let subsystems = || {
        let mut all = json(dir, "subsystem list");
        let of = all.as_array_mut().unwrap().iter_mut();
        for namespace in of.flat_map(|of| of["namespaces"].as_array_mut().unwrap()) {
            let is_drive = namespace["backend"].as_str().unwrap().starts_with("drive:");
            assert_eq!(namespace.as_object_mut().unwrap().remove("hardware").is_some(), is_drive);
        }
        all
    };
    let before = subsystems();
    daemon.stop();
    let daemon = Daemon::start(dir, &serve);
    assert_eq!(json(dir, "referral list").as_array().unwrap().len(), 1);
    run(dir, "referral remove 192.0.2.9:8009");
    assert_eq!(json(dir, "referral list").as_array().unwrap().len(), 0);
    assert_eq!(subsystems(), before);
    assert_eq!(json(dir, "listener list").as_array().unwrap().len(), 2);
    daemon.stop();
    let daemon = Daemon::start(dir, &format!("{serve} --fresh"));
    assert_eq!(json(dir, "namespace list").as_array().unwrap().len(), 1);
    let table = run(dir, "status").stdout;
    assert!(String::from_utf8(table).unwrap().contains("reactor 0"));
    daemon.stop();
}

/// Without anything to serve it was refused, though `serve` alone was not.
#[test]
fn what_was_served_last_is_served_where_the_command_line_says() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let addresses = [(); 3].map(|()| format!("127.0.0.1:{}", free_port()));
    let listeners = || {
        let listeners = json(dir, "listener list");
        let listeners = listeners.as_array().unwrap().iter();
        listeners.map(|l| l["address"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let serve = |n: usize| format!("serve --discovery off --listen {}", addresses[n]);
    let first = Daemon::start(dir, &format!("{} memory:16MiB", serve(0)));
    json(dir, "namespace resize 1 32MiB");
    json(dir, &format!("listener add {}", addresses[1]));
    first.stop();

    let second = Daemon::start(dir, &serve(2));
    assert_eq!(json(dir, "namespace list")[0]["size"], 32 << 20);
    let mut wanted = vec![addresses[1].clone(), addresses[2].clone()];
    let mut found = listeners();
    wanted.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, wanted);
    second.stop();

    let fresh = tempfile::tempdir().unwrap();
    let mut child = flashloom(fresh.path(), &serve(0))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let daemon = Daemon { child, announced: Vec::new() };
    let port = addresses[0].rsplit(':').next().unwrap();
    let discover = format!("nvme discover -t tcp -a 127.0.0.1 -s {port}");
    assert_eq!(lines.next().unwrap().unwrap(), discover);
    daemon.stop();
}

/// More than any event takes to be told, with as many daemons beside as there are tests.
const EVENT_PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `is` is so.
fn until(what: &str, is: impl Fn() -> bool) {
    let begun = SystemTime::now();
    while !is() {
        assert!(begun.elapsed().unwrap() < EVENT_PATIENCE, "not so: {what}");
        std::thread::yield_now();
    }
}

/// Asks for events until one contains `words`.
fn until_event(dir: &Path, words: &str) {
    let begun = SystemTime::now();
    while !json(dir, "events").to_string().contains(words) {
        let patient = begun.elapsed().unwrap() < EVENT_PATIENCE;
        assert!(patient, "no event says {words}: {}", json(dir, "events"));
    }
}

#[test]
fn a_configuration_is_taken_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let file = dir.join("flashloom.toml");
    let listener = format!("[[listener]]\naddress = \"127.0.0.1:{}\"\n", free_port());
    let subsystem = |size: &str| {
        format!(
            "{listener}[[subsystem]]\nnqn = \"{NQN}\"\nallow-any-host = true\n\
             [[subsystem.namespace]]\nbackend = \"memory:{size}\"\n"
        )
    };
    fs::write(&file, subsystem("lots")).unwrap();
    let serve = format!("serve --config {}", file.display());
    for command in [serve.clone(), format!("check-config {}", file.display())] {
        let (code, said) = failure(dir, &command);
        assert_eq!(code, 3, "{said}");
        assert!(said.contains("flashloom.toml:7:11: `lots` is not a size"), "{said}");
        assert!(said.contains("^^^^^^^^^^^^^"), "{said}");
    }

    fs::write(&file, subsystem("16MiB")).unwrap();
    let daemon = Daemon::start(dir, &serve);
    let before = json(dir, "subsystem list");

    fs::write(&file, subsystem("lots")).unwrap();
    daemon.signal("-HUP");
    until_event(dir, "was not taken, nothing changed");
    assert_eq!(json(dir, "subsystem list"), before);

    // The second namespace cannot be opened: the first one is not resized either.
    let missing = "[[subsystem.namespace]]\nbackend = \"drive:/nowhere/drive\"\n";
    fs::write(&file, subsystem("32MiB") + missing).unwrap();
    daemon.signal("-HUP");
    until_event(dir, "/nowhere/drive");
    assert_eq!(json(dir, "subsystem list"), before);

    fs::write(&file, subsystem("32MiB")).unwrap();
    daemon.signal("-HUP");
    until_event(dir, "reloaded");
    assert_eq!(json(dir, "namespace list")[0]["size"], 32 << 20);
    daemon.stop();
}

#[test]
fn the_demo_loses_nothing_while_its_daemon_is_killed_and_drives_go() {
    let dir = tempfile::tempdir().unwrap();
    let demo = format!(
        "demo --once --seconds 1 --size 256MiB --dir {} --listen 127.0.0.1:{}",
        dir.path().join("data").display(),
        free_port()
    );
    let output = run(dir.path(), &demo);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for words in [
        "p99 us",
        "random 4k",
        "sequential 128k",
        "nvme discover",
        "nvme connect",
        "was killed (kill -9), and serves again after",
        "two of the six drives are gone: it serves without them",
        "have what they missed",
        " 0 of them failed",
        " 0 blocks lost or wrong",
        "hosts waited ",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    let widest = text.lines().filter(|line| line.starts_with('│')).map(|line| line.chars().count());
    assert!(widest.max().unwrap() <= 100, "{text}");
    assert!(dir.path().join("data/drive5.img").exists());
}

#[test]
fn exit_codes_say_what_failed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert_eq!(failure(dir, "frobnicate").0, 2);
    let (code, said) = failure(dir, "status");
    assert!(code == 4 && said.contains("flashloom serve"), "{said}");
    let ask = format!("id-ctrl --traddr 127.0.0.1 --trsvcid {}", free_port());
    assert_eq!(failure(dir, &ask).0, 5);
    let (code, said) = failure(dir, "serve drive:/nowhere/drive");
    assert!(code == 1 && said.contains("size=10GiB"), "{said}");
    let (code, said) = failure(dir, "serve memory:1MiB --cpus 9999");
    assert!(code == 1 && said.contains("the CPUs of this machine are"), "{said}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (code, said) = failure(dir, &format!("serve memory:1MiB --listen 127.0.0.1:{port}"));
    assert!(code == 1 && said.contains("another program listens there"), "{said}");
}

#[test]
fn a_service_manager_is_told_of_start_life_and_end() {
    let dir = tempfile::tempdir().unwrap();
    let socket = UnixDatagram::bind(dir.path().join("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut command = flashloom(dir.path(), "serve memory:1MiB --discovery off --listen");
    command.arg(format!("127.0.0.1:{}", free_port())).stdout(Stdio::null()).stderr(Stdio::null());
    command.env("NOTIFY_SOCKET", dir.path().join("notify")).env("WATCHDOG_USEC", "200000");
    let mut daemon = Daemon { child: command.spawn().unwrap(), announced: Vec::new() };
    let mut told = Vec::new();
    let mut until = |words: &str| {
        while !told.iter().any(|line| line == words) {
            let mut message = [0; 512];
            let length = socket.recv(&mut message).unwrap();
            let text = String::from_utf8(message[..length].to_vec()).unwrap();
            told.extend(text.lines().map(str::to_owned));
        }
    };
    until("READY=1");
    until("WATCHDOG=1");
    daemon.signal("-TERM");
    until("STOPPING=1");
    // Asked a second time it would not end in order.
    assert!(daemon.child.wait().unwrap().success());
}

/// The counters of the daemon on `dir`.
fn scrape(dir: &Path) -> String {
    let mut socket = UnixStream::connect(dir.join("api.sock")).unwrap();
    socket.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn metrics_count_what_was_done() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve memory:16MiB --discovery off --listen 127.0.0.1:{port}");
    let daemon = Daemon::start(dir, &serve);
    let bench = "--rw randwrite --size 4MiB --poll interrupt";
    json(dir, &format!("bench --traddr 127.0.0.1 --trsvcid {port} {bench}"));
    let text = scrape(dir);
    let labels = format!("subsystem=\"{NQN}\",nsid=\"1\",operation=\"write\"");
    for line in [
        format!("flashloom_namespace_operations_total{{{labels}}} 1024"),
        format!("flashloom_namespace_bytes_total{{{labels}}} 4194304"),
        format!("flashloom_namespace_errors_total{{{labels}}} 0"),
        format!("flashloom_namespace_latency_seconds_count{{{labels}}} 1024"),
        "flashloom_reactor_operations_total{reactor=\"0\",operation=\"write\"} 1024".to_owned(),
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    assert!(text.contains("flashloom_host_bytes_total{"), "{text}");
    daemon.stop();
}

#[test]
fn completions_pages_and_the_description_are_generated() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for shell in ["bash", "zsh", "fish"] {
        let script = run(dir, &format!("completions {shell}"));
        assert!(script.status.success() && script.stdout.len() > 1000, "{shell}");
    }
    let pages = dir.join("man");
    assert!(run(dir, &format!("man --out {}", pages.display())).status.success());
    for page in ["flashloom.1", "flashloom-serve.1", "flashloom-namespace-add.1"] {
        assert!(pages.join(page).exists(), "{page}");
    }
    let description = json(dir, "openapi");
    assert!(description["paths"]["/v1/subsystems"].is_object());
}
