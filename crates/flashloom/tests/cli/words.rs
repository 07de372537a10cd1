//! What people type is taken, and what is refused is told so that they, and programs, know what to do.

use super::*;

fn serve() -> String {
    format!("serve memory:16MiB --listen 127.0.0.1:{} --discovery off", free_port())
}

/// What a command that must fail tells programs.
fn problem(dir: &Path, arguments: &str) -> (i32, Value) {
    let (code, said) = failure(dir, &format!("{arguments} -o json"));
    (code, serde_json::from_str(&said).unwrap_or_else(|_| panic!("{arguments}: {said}")))
}

/// With `-o json` errors were lines for people, and one exit code for all of them.
#[test]
fn errors_are_json_where_json_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (code, said) = problem(dir, "status");
    assert_eq!((code, &said["kind"], &said["exit"]), (4, &"no-daemon".into(), &4.into()));
    assert!(said["help"].as_str().unwrap().contains("flashloom serve"), "{said}");
    let daemon = Daemon::start(dir, &serve());
    for (what, kind) in [
        ("pool show none", "not-found"),
        ("volume show none/v", "not-found"),
        ("namespace remove 1", "failed"),
        ("namespace add drive:/nowhere/drive", "invalid"),
        ("subsystem add nqn.2026-11.io.flashloom:default", "conflict"),
        ("drive show none/0", "not-found"),
    ] {
        let (code, said) = problem(dir, what);
        assert_eq!((code, &said["kind"]), (1, &kind.into()), "{what}: {said}");
        assert!(!said["message"].as_str().unwrap().is_empty(), "{what}: {said}");
    }
    for what in ["namespace resize", "volume create fast/v --size ten", "stauts"] {
        let (code, said) = problem(dir, what);
        assert_eq!((code, &said["kind"]), (2, &"usage".into()), "{what}: {said}");
    }
    assert_eq!(failure(dir, "pool list -o csv").0, 2);
    let file = dir.join("flashloom.toml");
    fs::write(&file, "[[listener]]\naddress = \"127.0.0.1\"\n").unwrap();
    assert_eq!(json(dir, &format!("check-config {}", file.display()))["listeners"], 1);
    fs::write(&file, "[[listener]]\n").unwrap();
    let (code, said) = problem(dir, &format!("check-config {}", file.display()));
    assert_eq!((code, &said["kind"]), (3, &"invalid".into()), "{said}");
    daemon.stop();
}

#[test]
fn sizes_are_taken_as_people_type_them() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, &serve());
    let drive = dir.join("drive.img");
    for (nsid, (text, bytes)) in (2..).zip([("10MB", 10_002_432), ("1.5MiB", 3 << 19)]) {
        let add = format!("namespace add memory:{text} --nsid {nsid}");
        assert_eq!(json(dir, &add)["size"], bytes, "{text}");
    }
    let add = format!("namespace add drive:{},size=1.5GB --nsid 9", drive.display());
    assert_eq!(json(dir, &add)["size"], 1_500_000_256);
    // A unit was forgotten, most likely.
    let (_, said) = failure(dir, "namespace add memory:1500001");
    assert!(said.contains("not whole blocks"), "{said}");
    fs::write(&drive, "too short").unwrap();
    let (_, said) = failure(dir, &format!("namespace add drive:{}/../other", drive.display()));
    assert!(said.contains("cannot open"), "{said}");
    fs::write(dir.join("small"), "too short").unwrap();
    let (_, said) = failure(dir, &format!("namespace add drive:{}", dir.join("small").display()));
    assert!(said.contains("has 9 bytes, less than a block"), "{said}");
    daemon.stop();
}

/// Whoever looked for the demo was told that no daemon answers.
#[test]
fn a_state_directory_beside_the_one_that_was_named_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let state = dir.join("state");
    let daemon = Daemon::start(&state, &serve());
    let (code, said) = failure(dir, "status");
    let right = format!("--state-dir {}", state.display());
    assert!(code == 4 && said.contains(&right), "{said}");
    daemon.stop();
}

/// A daemon whose terminal was closed went on, and kept its port.
#[test]
fn a_daemon_ends_with_the_terminal_it_was_started_in() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let program = env!("CARGO_BIN_EXE_flashloom");
    let command = format!("{program} --state-dir {} {}", dir.display(), serve());
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &command, "/dev/null"]).env_remove("FLASHLOOM_LOG");
    let mut terminal = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(terminal.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| line.unwrap());
    assert!(lines.any(|line| line.starts_with("nvme connect")));
    let pid = json(dir, "status")["pid"].to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    // Read to its end: the daemon has let go of its terminal.
    lines.for_each(drop);
    drop(terminal.stdin.take());
    assert!(terminal.wait().unwrap().success());
    assert_eq!(failure(dir, "status").0, 4);
    let daemon = Daemon::start(dir, &serve());
    daemon.signal("-HUP");
    let told = || json(dir, "events").to_string().contains("nothing to reload");
    while !told() {}
    daemon.stop();
}
