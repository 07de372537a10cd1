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

const OF_NAMES: &str = "nqn.2026-11.io.flashloom:names";

/// What the namespaces of a subsystem are, by NSID.
fn backends(dir: &Path) -> Vec<String> {
    let all = json(dir, "namespace list");
    let of = all.as_array().unwrap().iter().filter(|one| one["subsystem"] == OF_NAMES);
    of.map(|one| one["backend"].as_str().unwrap().to_owned()).collect()
}

/// A pool `p` with the volumes `v` and `w` and a snapshot of `v`, mapped as namespaces 1, 2 and 3.
fn make_named(dir: &Path) {
    let drives: String =
        (0..2).map(|n| format!(" --drive {}/d{n},size=256MiB", dir.display())).collect();
    json(dir, &format!("pool create p{drives} --log-size 16MiB"));
    json(dir, "volume create p/v --size 8MiB");
    json(dir, "volume create p/w --size 8MiB");
    json(dir, "snapshot create p/v@s");
    json(dir, &format!("volume map p/v -n {OF_NAMES} --nsid 1 --allow-any-host"));
    // By whatever command: what hosts know is this volume, and not the name.
    json(dir, &format!("namespace add volume:p/w --subnqn {OF_NAMES} --nsid 2"));
    json(dir, &format!("snapshot map p/v@s -n {OF_NAMES} --nsid 3"));
}

fn rename(dir: &Path, names: &[(&str, &str)]) {
    names.iter().for_each(|(from, to)| drop(json(dir, &format!("volume rename p/{from} {to}"))));
}

/// Of what is mapped as namespaces 1 and 3 and is called so.
fn what_is_served_is_not_deleted(dir: &Path, volume: &str) {
    assert_eq!(json(dir, &format!("volume show {volume}"))["mapping"]["nsid"], 1);
    let (_, said) = failure(dir, &format!("snapshot delete {volume}@s --yes"));
    assert!(said.contains(&format!("is namespace 3 of {OF_NAMES}")), "{said}");
    let (_, said) = failure(dir, &format!("volume delete {volume} --yes"));
    assert!(said.contains(&format!("is namespace 1 of {OF_NAMES}")), "{said}");
}

/// An older configuration calls volumes as they were called then: what was served under that name could be deleted under
/// its hosts, for nobody knew any more that it was mapped.
#[test]
fn a_configuration_from_before_volumes_were_renamed_means_the_same_volumes() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let daemon = Daemon::start(dir, &serve(port));
    make_named(dir);
    let mut options = client::Options::default();
    options.set("trsvcid", &port.to_string()).unwrap();
    options.set("subnqn", OF_NAMES).unwrap();
    let host = client::Namespace::open(&options, 1).unwrap();
    host.write(0, &[0xa1; 4096], client::Fua::No).unwrap();
    let saved = dir.join("saved.toml");
    let text = String::from_utf8(run(dir, "config export").stdout).unwrap();
    fs::write(&saved, &text).unwrap();
    let import = format!("config import {}", saved.display());

    rename(dir, &[("v", "ren")]);
    let now = ["volume:p/ren", "volume:p/w", "snapshot:p/ren@s"];
    assert_eq!(losses(&json(dir, &format!("{import} --dry-run"))), [""; 0]);
    assert!(run(dir, &import).status.success());
    assert_eq!(backends(dir), now);
    until_event(dir, "volume p/v, by its UUID, is volume p/ren now");
    what_is_served_is_not_deleted(dir, "p/ren");
    assert!(run(dir, "config undo").status.success());
    assert_eq!(backends(dir), now);

    // Names that were swapped, and one that another volume has by now.
    rename(dir, &[("w", "v"), ("ren", "w")]);
    assert!(run(dir, &import).status.success());
    assert_eq!(backends(dir), ["volume:p/w", "volume:p/v", "snapshot:p/w@s"]);
    rename(dir, &[("w", "x"), ("v", "w")]);
    json(dir, "volume create p/v --size 4MiB");
    assert!(run(dir, "config undo").status.success());
    assert_eq!(backends(dir), ["volume:p/x", "volume:p/w", "snapshot:p/x@s"]);
    what_is_served_is_not_deleted(dir, "p/x");
    assert_eq!(json(dir, "volume show p/v")["mapping"], Value::Null);
    assert_eq!(json(dir, "volume delete p/v --yes")["deleted"], true);

    // Without UUIDs a name says what is meant: there is none, or it is a namespace already.
    let nameless: String =
        text.lines().filter(|line| !line.starts_with("uuid")).map(|l| format!("{l}\n")).collect();
    let id = json(dir, "volume show p/x")["id"].as_str().unwrap().to_owned();
    let is = format!("namespace 1 of {OF_NAMES} is volume p/x (UUID {id}): there is no volume p/v");
    let twice = text.replace("snapshot:p/v@s", "volume:p/x");
    let twice: String =
        twice.split_inclusive('\n').rev().skip(1).collect::<Vec<_>>().into_iter().rev().collect();
    let before = backends(dir);
    for (text, why) in [(nameless, is.as_str()), (twice, "volume p/x would be namespace 1 of")] {
        fs::write(&saved, text).unwrap();
        for sure in ["--dry-run", "--yes"] {
            let (_, said) = failure(dir, &format!("{import} {sure}"));
            assert!(said.contains(why), "{said}");
        }
        assert_eq!(backends(dir), before);
    }
    let mut data = [0; 4096];
    host.read(0, &mut data).unwrap();
    assert_eq!(data, [0xa1; 4096]);
    host.shut_down().unwrap();
    daemon.stop();
}

/// Likewise where the file is read again, and at a start.
#[test]
fn a_file_that_is_read_again_means_the_volumes_that_it_meant() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let file = dir.join("flashloom.toml");
    let listener = format!("[[listener]]\naddress = \"127.0.0.1:{}\"\n", free_port());
    let listener = format!("{listener}[[subsystem]]\nnqn = \"{NQN}\"\nallow-any-host = true\n");
    fs::write(&file, &listener).unwrap();
    let serve = format!("serve --config {}", file.display());
    let daemon = Daemon::start(dir, &serve);
    make_named(dir);
    let text = run(dir, "config export").stdout;
    rename(dir, &[("v", "x"), ("w", "v"), ("x", "w")]);
    let now = ["volume:p/w", "volume:p/v", "snapshot:p/w@s"];
    fs::write(&file, &text).unwrap();
    daemon.signal("-HUP");
    until_event(dir, "reloaded");
    assert_eq!(backends(dir), now);
    what_is_served_is_not_deleted(dir, "p/w");
    daemon.stop();

    fs::write(&file, &listener).unwrap();
    let daemon = Daemon::start(dir, &format!("{serve} --fresh"));
    assert_eq!(backends(dir), [""; 0]);
    daemon.stop();
    fs::write(&file, &text).unwrap();
    let daemon = Daemon::start(dir, &serve);
    rig::wait_until("the pool is open", || json(dir, "pool show p")["status"].is_object());
    rig::wait_until("names are those of now", || backends(dir) == now);
    what_is_served_is_not_deleted(dir, "p/w");
    daemon.stop();
}
