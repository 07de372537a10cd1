//! Events as they happen, and who may ask for them.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;

fn serve() -> String {
    format!("serve memory:16MiB --listen 127.0.0.1:{} --discovery off", free_port())
}

/// `flashloom events --follow -o json`, and its lines.
fn follow(dir: &Path) -> (Child, impl Iterator<Item = Value>) {
    let mut command = flashloom(dir, "events --follow -o json");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()))
}

/// How it ended, once it has.
fn ended(child: Child) -> (i32, Value) {
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap(), serde_json::from_slice(&output.stderr).unwrap())
}

#[test]
fn events_are_followed_until_the_daemon_ends() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let says = |words: &'static str| {
        move |event: &Value| event["message"].as_str().unwrap().contains(words)
    };
    let daemon = Daemon::start(dir, &serve());
    let (child, mut lines) = follow(dir);
    assert!(lines.any(|event| says("started")(&event)), "those from before come first");
    json(dir, "subsystem add nqn.2026-11.io.flashloom:other");
    let Some(added) = lines.find(says("nqn.2026-11.io.flashloom:other")) else {
        panic!("it ended before the daemon did: {:?}", ended(child))
    };
    assert!(added["by"].as_str().unwrap().contains("process"), "{added}");
    daemon.stop();
    let last = lines.last().unwrap();
    assert!(says("stopped")(&last), "{last}");
    let (code, said) = ended(child);
    assert_eq!((code, &said["message"]), (4, &"the daemon has ended".into()), "{said}");
    let next = format!("--from {}", last["id"].as_u64().unwrap() + 1);
    assert!(said["help"].as_str().unwrap().contains(&next), "{said}");

    // One that is killed says nothing.
    let daemon = Daemon::start(dir, &serve());
    let (child, mut lines) = follow(dir);
    let is_new = |event: &Value| event["id"].as_u64() > last["id"].as_u64();
    assert!(lines.any(|event| is_new(&event) && says("started")(&event)));
    drop(daemon);
    lines.for_each(drop);
    assert_eq!(ended(child).0, 4);
}

#[test]
fn the_management_socket_is_for_its_owner_and_a_group_that_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let file = dir.join("flashloom.toml");
    let write = |group: &str| {
        let listen = format!("[[listener]]\naddress = \"127.0.0.1:{}\"\n", free_port());
        let subsystem = format!("[[subsystem]]\nnqn = \"{NQN}\"\n");
        fs::write(&file, format!("{group}{listen}{subsystem}")).unwrap();
    };
    let serve = format!("serve --config {}", file.display());
    let socket = || fs::metadata(dir.join("api.sock")).unwrap();
    write("");
    let daemon = Daemon::start(dir, &serve);
    assert_eq!(socket().permissions().mode() & 0o777, 0o600);
    daemon.stop();
    let group = Command::new("id").arg("-gn").output().unwrap().stdout;
    write(&format!("[node]\nsocket-group = \"{}\"\n", String::from_utf8(group).unwrap().trim()));
    let daemon = Daemon::start(dir, &serve);
    let own = Command::new("id").arg("-g").output().unwrap().stdout;
    let own = String::from_utf8(own).unwrap().trim().parse().unwrap();
    assert_eq!((socket().permissions().mode() & 0o777, socket().gid()), (0o660, own));
    daemon.stop();
    write("[node]\nsocket-group = \"no-such-group\"\n");
    // A directory service may be away for a while: hosts do not wait for it, and a check of the file says it.
    let (code, said) = failure(dir, &format!("check-config {}", file.display()));
    assert!(code == 3 && said.contains("`no-such-group` does not exist"), "{said}");
    let daemon = Daemon::start(dir, &serve);
    assert_eq!(socket().permissions().mode() & 0o777, 0o600);
    let events = json(dir, "events").to_string();
    assert!(events.contains("`no-such-group` does not exist"), "{events}");
    // A file that was cut short is not taken for one that takes everything away.
    fs::write(&file, "").unwrap();
    daemon.signal("-HUP");
    until_event(dir, "has no listener, and had 1 listener");
    assert_eq!(json(dir, "status")["subsystems"], 1);
    daemon.stop();
    let (code, said) = failure(dir, &serve);
    assert!(code != 0 && said.contains("listener = []"), "{said}");
    write("");
    let daemon = Daemon::start(dir, &serve);
    fs::write(&file, "listener = []\nsubsystem = []\n").unwrap();
    daemon.signal("-HUP");
    until_event(dir, "reloaded");
    assert_eq!(json(dir, "status")["subsystems"], 0);
    daemon.stop();
}
