//! What destroys data, or takes something from hosts, has to be meant; and what was served before is not forgotten.

use super::*;

fn serve(port: u16) -> String {
    format!("serve memory:16MiB --listen 127.0.0.1:{port} --discovery off")
}

/// A request of the management API; its status and body.
fn rest(dir: &Path, method: &str, path: &str) -> (u16, String) {
    let mut socket = UnixStream::connect(dir.join("api.sock")).unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

fn losses(answer: &Value) -> Vec<String> {
    let all = answer["losses"].as_array().unwrap().iter();
    all.map(|one| one.as_str().unwrap().to_owned()).collect()
}

/// A served file was cut at the first slip of the finger, and what a namespace in memory held was gone.
#[test]
fn data_goes_only_where_that_is_meant() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, &serve(free_port()));
    let drive = dir.join("drive.img");
    json(dir, &format!("namespace add drive:{},size=8MiB --nsid 9", drive.display()));
    let length = || fs::metadata(&drive).unwrap().len();
    // Nobody is at a terminal to be asked.
    let (code, said) = failure(dir, "namespace resize 9 4MiB");
    assert!(code == 1 && said.contains("would be lost") && said.contains("--yes"), "{said}");
    let would = losses(&json(dir, "namespace resize 9 4MiB --dry-run"));
    assert!(would[0].contains("beyond 4 MiB of the 8 MiB of namespace 9"), "{would:?}");
    assert_eq!(length(), 8 << 20);
    assert_eq!(losses(&json(dir, "namespace resize 9 12MiB --dry-run")), [""; 0]);
    assert_eq!(json(dir, "namespace resize 9 12MiB")["size"], 12 << 20, "nothing is lost");
    assert_eq!(json(dir, "namespace resize 9 4MiB --yes")["size"], 4 << 20);
    assert_eq!(length(), 4 << 20);
    assert!(
        json(dir, "config history")[0]["before"].as_str().unwrap().contains("resized to 4 MiB")
    );

    let path = format!("/v1/subsystems/{NQN}/namespaces/1");
    let (status, body) = rest(dir, "DELETE", &path);
    assert!(status == 409 && body.contains("in memory") && body.contains("`force`"), "{body}");
    let (status, body) = rest(dir, "DELETE", &format!("{path}?dry_run=true"));
    assert!(status == 200 && body.contains("in memory"), "{body}");
    assert_eq!(rest(dir, "DELETE", &format!("{path}?forced=true")).0, 400, "what it cannot be");
    assert_eq!(rest(dir, "DELETE", &format!("{path}?force=true")).0, 204);
    assert_eq!(json(dir, "namespace list").as_array().unwrap().len(), 1);
    // What its drive holds stays, and nobody is connected.
    assert_eq!(losses(&json(dir, "namespace remove 9")), [""; 0]);
    assert_eq!(length(), 4 << 20);
    daemon.stop();
}

#[test]
fn what_hosts_are_connected_to_goes_only_where_that_is_meant() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let daemon = Daemon::start(dir, &serve(port));
    let load = format!(
        "bench --traddr 127.0.0.1 --trsvcid {port} --rw read --runtime 10m --poll interrupt --reconnect 10m"
    );
    let mut load = flashloom(dir, &load);
    let mut load = load.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while json(dir, "controller list").as_array().unwrap().is_empty() {
        assert!(load.try_wait().unwrap().is_none(), "the load ended");
    }
    let host = json(dir, "controller list")[0]["host"].as_str().unwrap().to_owned();
    for what in [
        format!("subsystem remove {NQN}"),
        format!("subsystem set {NQN} --allow-any-host false"),
        format!("listener remove 127.0.0.1:{port}"),
        format!("listener set-ana 127.0.0.1:{port} inaccessible"),
    ] {
        let (code, said) = failure(dir, &what);
        assert!(code == 1 && said.contains(&host) && said.contains("--yes"), "{what}: {said}");
    }
    assert_eq!(json(dir, "controller list").as_array().unwrap().len(), 1);
    assert!(run(dir, &format!("subsystem remove {NQN} --yes")).status.success());
    assert_eq!(json(dir, "subsystem list").as_array().unwrap().len(), 0);
    // What was removed with all it had is back.
    assert!(run(dir, "config undo").status.success());
    assert_eq!(json(dir, "namespace list").as_array().unwrap().len(), 1);
    load.kill().unwrap();
    load.wait().unwrap();
    daemon.stop();
}

/// All that was configured at run time was gone, silently, once a daemon had been started with another command line.
#[test]
fn another_command_line_keeps_what_was_served_before() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, &serve(free_port()));
    json(dir, "subsystem add nqn.2026-11.io.flashloom:other");
    json(dir, "host add nqn.2026-11.io.flashloom:h --subnqn nqn.2026-11.io.flashloom:other");
    let before = json(dir, "subsystem list");
    let text = String::from_utf8(run(dir, "config export").stdout).unwrap();
    daemon.stop();

    let port = free_port();
    let daemon = Daemon::start(dir, &serve(port).replace("16MiB", "32MiB"));
    assert_eq!(json(dir, "subsystem list").as_array().unwrap().len(), 1);
    let events = json(dir, "events").to_string();
    assert!(events.contains("`flashloom config undo 1` serves it again"), "{events}");
    let history = json(dir, "config history");
    assert_eq!((&history[0]["id"], &history[0]["subsystems"]), (&1.into(), &2.into()));
    let kept = String::from_utf8(run(dir, "config export --id 1").stdout).unwrap();
    assert_eq!(kept, text);
    let (code, said) = failure(dir, "config undo");
    assert!(code == 1 && said.contains("beyond 16 MiB of the 32 MiB"), "{said}");
    assert!(run(dir, "config undo --yes").status.success());
    assert_eq!(json(dir, "subsystem list"), before);
    daemon.stop();
    let daemon = Daemon::start(dir, "serve");
    assert_eq!(json(dir, "subsystem list"), before);
    assert_eq!(json(dir, "config history").as_array().unwrap().len(), 2);
    daemon.stop();
    let daemon = Daemon::start(dir, &format!("{} --fresh", serve(port)));
    let newest = &json(dir, "config history")[0];
    assert_eq!((&newest["id"], &newest["before"]), (&3.into(), &"another command line".into()));
    assert_eq!(run(dir, "config export --id 3").stdout, text.as_bytes());
    daemon.stop();
}

#[test]
fn a_configuration_that_was_exported_is_imported() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (one, other) = (dir.join("one"), dir.join("other"));
    let daemon = Daemon::start(&one, &serve(free_port()));
    json(&one, "subsystem add nqn.2026-11.io.flashloom:db --allow-any-host");
    let drive = dir.join("drive.img");
    let add =
        format!("namespace add drive:{},size=8MiB -n nqn.2026-11.io.flashloom:db", drive.display());
    json(&one, &add);
    let file = dir.join("saved.toml");
    fs::write(&file, run(&one, "config export").stdout).unwrap();
    let asked = run(&one, "config export").stdout;
    daemon.stop();
    assert!(run(&one, &format!("check-config {}", file.display())).status.success());

    let daemon = Daemon::start(&other, &serve(free_port()).replace("16MiB", "32MiB"));
    let import = format!("config import {}", file.display());
    let (code, said) = failure(&other, &import);
    assert!(code == 1 && said.contains("beyond 16 MiB of the 32 MiB"), "{said}");
    assert!(run(&other, &format!("{import} --yes")).status.success());
    assert_eq!(run(&other, "config export").stdout, asked);
    assert_eq!(json(&other, "namespace list").as_array().unwrap().len(), 2);
    // The same again takes nothing away.
    assert!(run(&other, &import).status.success());
    fs::write(&file, "[[listener]]\naddres = \"127.0.0.1\"\n").unwrap();
    let (code, said) = failure(&other, &format!("{import} --yes"));
    assert!(code == 1 && said.contains("addres") && said.contains("saved.toml"), "{said}");
    assert_eq!(run(&other, "config export").stdout, asked);
    let (code, said) = failure(&other, "config export --id 99");
    assert!(code == 1 && said.contains("flashloom config history"), "{said}");
    daemon.stop();
}

/// Wherever a deletion is cut short, the pool is there as it was, or goes without being asked again.
#[test]
fn a_pool_is_deleted_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let serve = serve(free_port());
    let mut daemon = Daemon::start(dir, &serve);
    let mut drives: String =
        (0..4).map(|n| format!(" --drive {}/d{n},size=256MiB", dir.display())).collect();
    for round in 0..6 {
        // What was deleted left blank drives: no --force.
        json(dir, &format!("pool create p{drives}"));
        drives = drives.replace(",size=256MiB", "");
        json(dir, "volume create p/v --size 1GiB");
        let (code, said) = failure(dir, "pool delete p");
        assert!(code == 1 && said.contains("with its volume") && said.contains("--yes"), "{said}");
        let would = losses(&json(dir, "pool delete p --dry-run"));
        assert!(would[0].contains("pool p would be lost"), "{would:?}");
        if round == 0 {
            let (status, body) = rest(dir, "DELETE", "/v1/pools/p");
            assert!(status == 409 && body.contains("`force`"), "{body}");
            assert_eq!(rest(dir, "DELETE", "/v1/pools/p?force=true").0, 204);
        } else if round == 1 {
            assert_eq!(json(dir, "volume delete p/v --yes")["deleted"], true);
            assert_eq!(json(dir, "pool delete p --yes")["pool"], "p");
        } else {
            let mut deletion = flashloom(dir, "pool delete p --yes");
            let mut deletion =
                deletion.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            // At another moment each time: of so many questions, the daemon answers as many.
            for _ in 0..round - 2 {
                json(dir, "pool list");
            }
            daemon.signal("-KILL");
            deletion.wait().unwrap();
            drop(daemon);
            daemon = Daemon::start(dir, &serve);
            loop {
                let pools = json(dir, "pool list");
                let Some(pool) = pools.as_array().unwrap().first() else { break };
                if pool["health"] == "online" {
                    assert_eq!(json(dir, "volume list").as_array().unwrap().len(), 1);
                    json(dir, "pool delete p --yes");
                }
            }
        }
        assert_eq!(json(dir, "pool list"), Value::Array(Vec::new()));
    }
    daemon.stop();
}
