//! The daemon killed with -9 at moments drawn from a seed, also while it opens its pools, under loads that verify:
//! nothing acknowledged is ever lost, whatever the redundancy and wherever the log is.
//!
//! `FLASHLOOM_KILLS` says how often, `FLASHLOOM_SEED` from which seed; the default count suits every run of the tests.

use super::crash::Load;
use super::*;
use std::sync::mpsc;
use stdx::Prng;

/// How often the daemon is killed unless told otherwise.
const KILLS: u64 = 6;

/// Kills between two checks of everything that was acknowledged.
const KILLS_A_ROUND: u64 = 10;

/// Bytes that the journals of all loads grow by before a kill, at most.
const NOTED_MAX: u64 = 24_000;

/// How long an opening that is to be cut short may go on, at most: longer than most take.
const OPENING_MAX_MS: u64 = 600;

/// What is tested: name, drives, redundancy, log, shards.
const POOLS: [(&str, u32, &str, &str, u32); 4] = [
    ("six-bbu", 6, "raid6", "bbu", 3),
    ("six-drives", 6, "raid6", "drives", 2),
    ("mirror-bbu", 2, "mirror", "bbu", 1),
    ("mirror-drives", 2, "mirror", "drives", 1),
];

const NQN: &str = "nqn.2026-11.io.flashloom:kills";

pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Makes the pools, each with a volume that is a namespace; gives what `volume show` says of each.
fn make(dir: &Path) -> Vec<Value> {
    let volumes = POOLS.iter().zip(1..).map(|((name, drives, raid, log, shards), nsid)| {
        let drives: Vec<_> = (0..*drives)
            .map(|n| format!("--drive {}/{name}-{n},size=192MiB", dir.display()))
            .collect();
        let log = match *log {
            "bbu" => format!("bbu:{}/{name}-log", dir.display()),
            other => other.to_owned(),
        };
        let of = drives.join(" ");
        let of = format!("{of} --raid {raid} --log {log} --log-size 16MiB --shards {shards}");
        let made = json(dir, &format!("pool create {name} {of}"));
        assert_eq!(made["status"]["shards"], *shards);
        json(dir, &format!("volume create {name}/v --size 1TiB"));
        let map = format!("volume map {name}/v --subnqn {NQN} --nsid {nsid} --allow-any-host");
        json(dir, &map)
    });
    volumes.collect()
}

/// Starts a daemon and kills it `after` that time, or as soon as it is open.
pub fn cut_opening_short(dir: &Path, serve: &str, after: Duration) {
    let mut command = flashloom(dir, serve);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (tell, open) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in output.lines() {
            let _unheard = tell.send(line);
        }
    });
    let _either = open.recv_timeout(after);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
}

/// The loads of all pools.
struct Loads(Vec<Load>);

impl Loads {
    fn start(dir: &Path, to: &str) -> Self {
        let load = "--rw randrw --rwmixread 30 --size 12MiB --iodepth 4 --queues 3 --rate-iops 500 --verify";
        let each = POOLS.iter().zip(1..).map(|((name, ..), nsid)| {
            let arguments = format!("{load} --runtime 60m --reconnect 60s --nsid {nsid} {to}");
            Load::keeping(dir, dir.join(format!("{name}-acks")), &arguments)
        });
        Self(each.collect())
    }

    /// Waits until every load has connected for the first time: it gives up when that fails.
    fn begin(&mut self) {
        let from: Vec<u64> = self.0.iter().map(Load::noted).collect();
        while self.0.iter().zip(&from).any(|(load, from)| load.noted() == *from) {
            self.look();
        }
    }

    /// Waits until the journals have grown by `bytes`.
    fn go_on(&mut self, bytes: u64) {
        let noted = |loads: &Self| loads.0.iter().map(Load::noted).sum::<u64>();
        let until = noted(self) + bytes;
        while noted(self) < until {
            self.look();
        }
    }

    /// A load that is over has seen an error.
    fn look(&mut self) {
        if let Some(over) = self.0.iter_mut().position(Load::is_over) {
            let over = self.0.swap_remove(over);
            panic!("a load is over: {}", over.finish());
        }
        std::thread::yield_now();
    }
}

/// Reads back everything acknowledged; how many bytes that is.
fn check(dir: &Path, to: &str) -> u64 {
    let each = POOLS.iter().zip(1..).map(|((name, ..), nsid)| {
        let journal = dir.join(format!("{name}-acks"));
        let check = format!("bench --check --journal {} --nsid {nsid} {to}", journal.display());
        let verify = json(dir, &check)["jobs"][0]["flashloom"]["verify"].take();
        assert_eq!(verify["verified_bytes"], verify["acknowledged_bytes"], "{name}: {verify}");
        verify["verified_bytes"].as_u64().unwrap()
    });
    each.sum()
}

#[test]
fn pools_keep_what_they_acknowledged_however_often_the_daemon_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (kills, seed) = (number("FLASHLOOM_KILLS", KILLS), number("FLASHLOOM_SEED", 1));
    let mut prng = Prng::new(seed);
    let port = free_port();
    let several = match std::thread::available_parallelism() {
        Ok(cpus) if cpus.get() > 1 => "serve --cpus 0-1",
        _ => "serve --cpus 0",
    };
    let serve = format!("{several} memory:1MiB --listen 127.0.0.1:{port} --discovery off");
    let to = format!("--traddr 127.0.0.1 --trsvcid {port} --subnqn {NQN} --poll interrupt");
    let mut daemon = Daemon::start(dir, &serve);
    let mapped = make(dir);
    let mut killed = 0;
    while killed < kills {
        let mut loads = Loads::start(dir, &to);
        loads.begin();
        let round = (kills - killed).min(KILLS_A_ROUND);
        for _ in 0..round {
            loads.go_on(1 + prng.below(NOTED_MAX));
            // Dropped is killed, with -9.
            drop(daemon);
            killed += 1;
            if prng.below(3) == 0 {
                cut_opening_short(dir, "serve", Duration::from_millis(prng.below(OPENING_MAX_MS)));
            }
            // Nothing named: what was served last, pools and all. Shards share a reactor now and then.
            let on = if prng.below(3) == 0 { "serve --cpus 0" } else { several };
            daemon = Daemon::start(dir, on);
        }
        drop(loads);
        let checked = check(dir, &to);
        println!("seed {seed}: {killed} kills, {checked} acknowledged bytes are there");
        assert!(checked > 1 << 20, "the loads wrote next to nothing");
    }
    for mut volume in mapped {
        let name = volume["name"].as_str().unwrap();
        let mut there = json(dir, &format!("volume show {name}"));
        // What is used of them changed, or is not counted yet.
        for volume in [&mut there, &mut volume] {
            let volume = volume.as_object_mut().unwrap();
            volume.retain(|what, _| {
                !["used", "inherited", "held_by_snapshots"].contains(&what.as_str())
            });
        }
        assert_eq!(there, volume);
    }
    daemon.stop();
}
