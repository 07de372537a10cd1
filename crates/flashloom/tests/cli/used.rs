//! How much of a volume is used, wherever that is told.

use super::*;

const NQN: &str = "nqn.2026-11.io.flashloom:used";

/// What everybody says that is used of `fast/db`, once they agree on it and it is so many bytes.
fn until_used(dir: &Path, to: &str, bytes: u64) {
    let line = format!("flashloom_volume_used_bytes{{pool=\"fast\",volume=\"db\"}} {bytes}");
    let mut said = (Value::Null, Value::Null, false);
    let agrees = |said: &(Value, Value, bool)| *said == (bytes.into(), (bytes / 512).into(), true);
    let found = (0..1000).any(|_| {
        said = (
            json(dir, "volume show fast/db")["used"].take(),
            json(dir, &format!("id-ns {to}"))["nuse"].take(),
            scrape(dir).lines().any(|other| other == line),
        );
        agrees(&said)
    });
    assert!(found, "{said:?} in place of {bytes}");
    assert_eq!(json(dir, "volume list")[0]["used"], bytes);
}

#[test]
fn what_is_used_of_a_volume_follows_what_hosts_do() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve --discovery off --listen 127.0.0.1:{port}");
    // Something to be served from the beginning.
    let first = format!("{serve} memory:16MiB");
    let daemon = Daemon::start(dir, &first);
    let drives: Vec<_> =
        (0..2).map(|n| format!("--drive {}/d{n},size=256MiB", dir.display())).collect();
    json(dir, &format!("pool create fast {} --log-size 16MiB", drives.join(" ")));
    assert_eq!(json(dir, "volume create fast/db --size 1GiB --block-size 512")["used"], 0);
    json(dir, &format!("volume map fast/db --subnqn {NQN} --nsid 3 --allow-any-host"));
    let to = format!("--traddr 127.0.0.1 --trsvcid {port} --subnqn {NQN} --nsid 3");
    until_used(dir, &to, 0);

    let mut options = client::Options::default();
    options.set("trsvcid", &port.to_string()).unwrap();
    options.set("subnqn", NQN).unwrap();
    let namespace = client::Namespace::open(&options, 3).unwrap();
    namespace.write(0, &vec![0x5a; 8 << 20], client::Fua::No).unwrap();
    // Again, and parts of blocks.
    namespace.write(4 << 11, &vec![0xa5; 5 << 20], client::Fua::No).unwrap();
    namespace.write(100 << 11, &[0x11; 512], client::Fua::No).unwrap();
    until_used(dir, &to, (9 << 20) + 4096);
    namespace.deallocate(&[(2 << 11, 3 << 11), (100 << 11, 8)]).unwrap();
    until_used(dir, &to, 6 << 20);
    let shown = String::from_utf8(run(dir, "volume list").stdout).unwrap();
    assert!(shown.contains("used") && shown.contains("6 MiB"), "{shown}");
    namespace.shut_down().unwrap();
    drop(daemon);

    let daemon = Daemon::start(dir, &first);
    until_used(dir, &to, 6 << 20);
    assert_eq!(json(dir, "volume resize fast/db 1MiB --yes")["size"], 1 << 20);
    until_used(dir, &to, 1 << 20);
    json(dir, "volume unmap fast/db");
    assert!(run(dir, "volume delete fast/db --yes").status.success());
    assert_eq!(json(dir, "volume create fast/db --size 1GiB")["used"], 0);
    daemon.stop();
}
