//! A mirror at the host over volumes of two targets, each written to by a direct write window: what was answered is in the
//! rings of both, and outlives the loss of either.
//!
//! `FLASHLOOM_KILLS` says how often somebody is killed, `FLASHLOOM_SEED` from which seed; the default has each kind once.

use std::net::TcpListener;

use stdx::Prng;

use super::kills::number;
use super::raid::{Attached, Client, Contents, KEEP_ALIVE};
use super::windows::{NQN, made};
use super::*;

/// Who is killed, by turns.
const KINDS: [&str; 4] = ["host", "target", "host and target", "all three"];

/// Two targets with a volume each, the second one reached by IPv6 where this machine has it.
struct Sides {
    dir: tempfile::TempDir,
    addresses: [&'static str; 2],
    ports: [u16; 2],
    daemons: [Option<Daemon>; 2],
}

impl Sides {
    fn new() -> Self {
        let second = TcpListener::bind("[::1]:0").map_or("127.0.0.2", |_| "::1");
        let mut sides = Self {
            dir: tempfile::tempdir().unwrap(),
            addresses: ["127.0.0.1", second],
            ports: [free_port(), free_port()],
            daemons: [None, None],
        };
        for n in 0..2 {
            let at = std::net::SocketAddr::new(sides.addresses[n].parse().unwrap(), sides.ports[n]);
            fs::create_dir_all(sides.home(n)).unwrap();
            sides.daemons[n] = Some(made(&sides.home(n), at));
        }
        let create = "raid create --name db --level raid1 --chunk 16k";
        json(sides.dir.path(), &format!("{create} {}", sides.members()));
        sides
    }

    fn home(&self, n: usize) -> std::path::PathBuf {
        self.dir.path().join(format!("t{n}"))
    }

    fn members(&self) -> String {
        let member = |n: usize| {
            let (address, port) = (self.addresses[n], self.ports[n]);
            format!("--member traddr={address},trsvcid={port},nqn={NQN},nsid=1")
        };
        format!("{} {}", member(0), member(1))
    }

    fn start(&mut self, n: usize) {
        self.daemons[n] = Some(Daemon::start(&self.home(n), "serve"));
    }

    fn kill(&mut self, n: usize) {
        self.daemons[n] = None;
    }

    fn attach(&self, more: &str) -> (Attached, Client) {
        let how = "--window require --fast-io-fail-tmo 2s";
        let attached = Attached::of(self.dir.path(), &format!("{} {how} {more}", self.members()));
        let client = Client::new(&attached.socket);
        (attached, client)
    }

    fn has_window(&self, n: usize) -> bool {
        json(&self.home(n), "pool show fast")["status"]["windows"] == 1
    }

    /// Commands that wrote to the volume of a target.
    fn commands(&self, n: usize) -> u64 {
        let of = format!("{{subsystem=\"{NQN}\",nsid=\"1\",operation=\"write\"}} ");
        let metrics = scrape(&self.home(n));
        let counted = metrics.lines().find_map(|line| {
            line.strip_prefix("flashloom_namespace_operations_total")?.strip_prefix(&of)
        });
        counted.unwrap().parse().unwrap()
    }

    /// Waits until both members say that both have everything.
    fn until_in_sync(&self) {
        let show = format!("raid show {}", self.members());
        let whole = |one: &Value| {
            one["state"] == "in sync" && one["missing"].as_array().is_some_and(Vec::is_empty)
        };
        until("the members are in sync", || {
            json(self.dir.path(), &show).as_array().unwrap().iter().all(whole)
        });
    }

    /// Reads both copies, which are equal.
    fn check(&self) {
        let check = format!("raid check {} {KEEP_ALIVE}", self.members());
        let checked = json(self.dir.path(), &check);
        assert_eq!((&checked["mismatched"], &checked["degraded"]), (&0.into(), &0.into()));
    }
}

#[test]
fn what_two_rings_have_is_there_whoever_is_killed_or_stays_away() {
    let (kills, seed) = (number("FLASHLOOM_KILLS", 4), number("FLASHLOOM_SEED", 1));
    let mut prng = Prng::new(seed);
    let mut sides = Sides::new();
    let mut contents = Contents(vec![vec![0]; 1024]);
    let mut counts = [0; KINDS.len()];
    for round in 0..kills {
        let kind = usize::try_from(round).unwrap() % KINDS.len();
        let (attached, mut client) = sides.attach("");
        contents.verify(&mut client);
        [0, 1].into_iter().for_each(|n| until("it has a window", || sides.has_window(n)));
        let before = [0, 1].map(|n| sides.commands(n));
        contents.load(&mut client, &mut prng, 150);
        let after = [0, 1].map(|n| sides.commands(n));
        // Each request is several writes, some thousand in all. Later a member may have been made whole beside them.
        let few = |n: usize| after[n] - before[n] < 500;
        assert!(round > 0 || few(0) && few(1), "{before:?} commands wrote, then {after:?}");
        let n = usize::from(prng.below(2) == 1);
        match kind {
            0 => drop(attached),
            1 => {
                sides.kill(n);
                contents.load(&mut client, &mut prng, 60);
                sides.start(n);
                sides.until_in_sync();
                contents.load(&mut client, &mut prng, 60);
                drop(attached);
            }
            2 => {
                // The target dies before its host, which goes on without it or not, or at the same moment.
                sides.kill(n);
                if prng.below(2) == 0 {
                    contents.load(&mut client, &mut prng, 60);
                }
                drop(attached);
                // What was answered is on the other side.
                let (attached, mut client) = sides.attach("--degraded");
                contents.verify(&mut client);
                contents.load(&mut client, &mut prng, 60);
                drop(attached);
                sides.start(n);
                let rebuild = format!("raid rebuild {} {KEEP_ALIVE}", sides.members());
                json(sides.dir.path(), &rebuild);
            }
            _ => {
                [0, 1].into_iter().for_each(|n| sides.kill(n));
                drop(attached);
                [0, 1].into_iter().for_each(|n| sides.start(n));
            }
        }
        counts[kind] += 1;
        println!("seed {seed}, kill {round}: {}", KINDS[kind]);
    }
    let (attached, mut client) = sides.attach("");
    contents.verify(&mut client);
    drop(attached);
    sides.check();
    println!("seed {seed}: {kills} kills {KINDS:?} {counts:?}: nothing that was answered is lost");
}

/// With `--fast-io-fail-tmo off` nothing is answered that one side alone has.
#[test]
fn writes_wait_for_the_second_ring_where_they_are_to() {
    let mut sides = Sides::new();
    let how = "--window require --fast-io-fail-tmo off";
    let attached = Attached::of(sides.dir.path(), &format!("{} {how}", sides.members()));
    let mut client = Client::new(&attached.socket);
    let (mut contents, mut prng) = (Contents(vec![vec![0]; 256]), Prng::new(1));
    contents.load(&mut client, &mut prng, 20);
    contents.verify_all(&mut client);
    sides.kill(1);
    // Until its end is seen, the ring of the killed target takes what its next life finds there.
    let mut waits = false;
    for _ in 0..1000 {
        contents.load(&mut client, &mut prng, 1);
        waits = !contents.settles_within(&mut client, Duration::from_secs(3));
        if waits {
            break;
        }
    }
    assert!(waits, "one side alone had what was answered");
    sides.start(1);
    contents.verify_all(&mut client);
    drop(attached);
    sides.check();
    let load = "--rw randrw --bs 4k --iodepth 4 --size 8MiB --verify --window require";
    let bench = format!("bench {load} --poll interrupt {}", sides.members());
    let report = json(sides.dir.path(), &bench);
    let extra = &report["jobs"][0]["flashloom"];
    assert!(extra["direct_writes"].as_u64() > Some(500), "{report}");
    assert!(extra["verify"]["verified_bytes"].as_u64() > Some(1 << 20), "{report}");
    let (_, said) = failure(sides.dir.path(), &format!("{bench} --nr-io-queues 2"));
    assert!(said.contains("one queue of one thread uses a set"), "{said}");
}
