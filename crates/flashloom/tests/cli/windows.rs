//! Direct write windows of the real programs: a host that writes to the daemon's memory by itself.
//!
//! `FLASHLOOM_KILLS` says how often either side is killed, `FLASHLOOM_SEED` from which seed; the default count suits every
//! run of the tests.

use std::net::SocketAddr;

use stdx::prng::Prng;

use super::crash::Load;
use super::kills::number;
use super::raid::{Attached, Client, Contents};
use super::*;

/// Bytes of acknowledgements noted before a side is killed, at most: some thousands of writes.
const NOTED_MAX: u64 = 60_000;

pub const NQN: &str = "nqn.2026-11.io.flashloom:direct";

/// A daemon with a pool whose log is in memory, of two shards, and a volume that is a namespace.
pub fn made(dir: &Path, at: impl Into<SocketAddr>) -> Daemon {
    let serve = format!("serve memory:1MiB --listen {} --discovery off", at.into());
    let daemon = Daemon::start(dir, &serve);
    let drives: Vec<_> =
        (0..2).map(|n| format!("--drive {}/d{n},size=512MiB", dir.display())).collect();
    let log = format!("--log bbu:{}/log --log-size 16MiB --shards 2", dir.display());
    json(dir, &format!("pool create fast {} --raid mirror {log}", drives.join(" ")));
    json(dir, "volume create fast/v --size 64MiB");
    json(dir, &format!("volume map fast/v --subnqn {NQN} --nsid 1 --allow-any-host"));
    daemon
}

fn left(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.contains(".window-")).collect()
}

#[test]
fn writes_by_a_window_are_read_and_kept_whatever_happens_to_the_volume() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let daemon = made(dir, ([127, 0, 0, 1], port));
    let to = format!("--traddr 127.0.0.1 --trsvcid {port} --subnqn {NQN} --poll interrupt");
    let load = "--rw randrw --rwmixread 30 --size 16MiB --iodepth 1 --verify --window require";
    let load = format!("{load} --runtime 60m --rate-iops 3000 {to}");
    let mut load = Load::keeping(dir, dir.join("acks"), &load);
    assert!(load.goes_on(20_000), "the load is over");
    let status = json(dir, "pool show fast")["status"].take();
    assert_eq!(status["windows"], 1);
    // A ring of 4 MiB for each of two shards.
    let set_aside = serde_json::json!({"size": 256 << 20, "used": 8 << 20});
    assert_eq!(status["window_log"], set_aside);
    let shown = String::from_utf8(run(dir, "pool show fast").stdout).unwrap();
    assert!(shown.contains("1, 8 MiB in use of 256 MiB set aside"), "{shown}");
    json(dir, "snapshot create fast/v@one");
    assert!(load.goes_on(20_000), "the load is over");
    json(dir, "volume resize fast/v 128MiB");
    assert!(load.goes_on(20_000), "the load is over");
    drop(load);
    let check = format!("bench --check --journal {} {to}", dir.join("acks").display());
    let verify = json(dir, &check)["jobs"][0]["flashloom"]["verify"].take();
    assert_eq!(verify["verified_bytes"], verify["acknowledged_bytes"], "{verify}");
    // Whoever has the window is gone, and it with him.
    while json(dir, "pool show fast")["status"]["windows"] != 0 {
        std::thread::yield_now();
    }
    assert_eq!(json(dir, "pool show fast")["status"]["window_log"]["used"], 0);
    assert_eq!(left(dir), [""; 0]);
    let count = "--rw randwrite --size 8MiB --io-size 8MiB --iodepth 1 --window require";
    let report = json(dir, &format!("bench {count} {to}"));
    let direct = report["jobs"][0]["flashloom"]["direct_writes"].as_u64().unwrap();
    assert!(direct > 1000, "{direct} of 2048 writes went by the window");
    daemon.stop();
    assert_eq!(left(dir), [""; 0]);
}

#[test]
fn what_a_window_took_is_there_after_kills_of_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let mut daemon = made(dir, ([127, 0, 0, 1], port));
    let to = format!("--traddr 127.0.0.1 --trsvcid {port} --subnqn {NQN} --poll interrupt");
    let load = "--rw randwrite --size 16MiB --iodepth 1 --verify --window auto --reconnect 60s";
    let load = format!("{load} --runtime 60m --rate-iops 5000 {to}");
    let mut load = Load::keeping(dir, dir.join("acks"), &load);
    for _ in 0..4 {
        assert!(load.goes_on(10_000), "the load is over");
        drop(daemon);
        // Another window is asked for, once no command of before can come late.
        daemon = Daemon::start(dir, "serve");
    }
    assert!(load.goes_on(10_000), "the load is over");
    drop(load);
    drop(daemon);
    let daemon = Daemon::start(dir, "serve");
    assert_eq!(left(dir), [""; 0], "what was found is in the log");
    let check = format!("bench --check --journal {} {to}", dir.join("acks").display());
    let verify = json(dir, &check)["jobs"][0]["flashloom"]["verify"].take();
    assert_eq!(verify["verified_bytes"], verify["acknowledged_bytes"], "{verify}");
    assert!(verify["verified_bytes"].as_u64().unwrap() > 1 << 20, "{verify}");
    // A window that is not there is a log that is not there.
    let mut load = Load::keeping(
        dir,
        dir.join("more"),
        &format!(
            "--rw randwrite --size 8MiB --iodepth 1 --window require --verify --runtime 60m {to}"
        ),
    );
    assert!(load.goes_on(10_000), "the load is over");
    drop(daemon);
    drop(load);
    assert!(!left(dir).is_empty());
    left(dir).iter().for_each(|name| fs::remove_file(dir.join(name)).unwrap());
    let daemon = Daemon::start(dir, "serve");
    let listed = json(dir, "pool list").to_string();
    assert!(listed.contains("direct write window of volume v"), "{listed}");
    daemon.stop();
}

/// What an NBD client was answered by `attach --window` is there, whichever of the two programs is killed.
#[test]
fn what_an_attached_disk_wrote_by_a_window_is_there_after_kills() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let daemon = made(dir, ([127, 0, 0, 1], port));
    let to = format!("--traddr 127.0.0.1 --trsvcid {port} --subnqn {NQN} --poll interrupt");
    let attached = Attached::of(dir, &format!("{to} --window require"));
    let mut client = Client::new(&attached.socket);
    let (mut contents, mut prng) = (Contents(vec![vec![0]; 1024]), Prng::new(7));
    contents.load(&mut client, &mut prng, 100);
    // A third of them are longer than a record.
    let of = format!("{{subsystem=\"{NQN}\",nsid=\"1\",operation=\"write\"}} ");
    let metrics = scrape(dir);
    let counted = metrics.lines().find_map(|line| {
        line.strip_prefix("flashloom_namespace_operations_total")?.strip_prefix(&of)
    });
    let commands: u32 = counted.unwrap().parse().unwrap();
    assert!(commands < 60, "{commands} of 100 writes were commands");
    contents.load(&mut client, &mut prng, 300);
    assert_eq!(json(dir, "pool show fast")["status"]["windows"], 1);
    drop(daemon);
    let daemon = Daemon::start(dir, "serve");
    // What was in flight is sent again; what was answered is there.
    contents.verify_all(&mut client);
    contents.load(&mut client, &mut prng, 100);
    drop(attached);
    let attached = Attached::of(dir, &format!("{to} --window require"));
    contents.verify(&mut Client::new(&attached.socket));
    drop(attached);
    daemon.stop();
}

/// Who is killed, by turns.
const KINDS: [&str; 3] = ["host", "daemon", "both"];

#[test]
fn nothing_that_was_written_by_a_window_is_lost_however_often_either_side_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (kills, seed) = (number("FLASHLOOM_KILLS", 6), number("FLASHLOOM_SEED", 1));
    let mut prng = Prng::new(seed);
    let port = free_port();
    let mut daemon = made(dir, ([127, 0, 0, 1], port));
    let to = format!("--traddr 127.0.0.1 --trsvcid {port} --subnqn {NQN} --poll interrupt");
    let mut counts = [0; KINDS.len()];
    for round in 0..kills {
        let journal = dir.join(format!("acks-{round}"));
        let bytes = ["4096", "16384"][usize::from(prng.below(4) == 0)];
        let load = format!("--rw randwrite --size 16MiB --bs {bytes} --iodepth 1 --verify");
        let load = format!("{load} --window require --reconnect 60s --runtime 60m {to}");
        let mut load = Load::keeping(dir, journal.clone(), &load);
        assert!(load.goes_on(1 + prng.below(NOTED_MAX)), "the load is over");
        let kind = usize::try_from(round).unwrap() % KINDS.len();
        match kind {
            0 => drop(load),
            // Dropped is killed, with -9.
            1 => {
                drop(daemon);
                daemon = Daemon::start(dir, "serve");
                assert!(load.goes_on(1), "the load is over");
                drop(load);
            }
            _ => {
                drop((daemon, load));
                daemon = Daemon::start(dir, "serve");
            }
        }
        let check = format!("bench --check --journal {} {to}", journal.display());
        let verify = json(dir, &check)["jobs"][0]["flashloom"]["verify"].take();
        let killed = KINDS[kind];
        assert_eq!(verify["verified_bytes"], verify["acknowledged_bytes"], "{killed}: {verify}");
        println!("seed {seed}, kill {round}, {killed}: {verify}");
        counts[kind] += 1;
        fs::remove_file(&journal).unwrap();
    }
    daemon.stop();
    println!(
        "seed {seed}: {kills} kills {KINDS:?} {counts:?}: nothing that was acknowledged is lost"
    );
}
