//! Drives pulled and given back, the daemon killed at any moment, under a verified load: nothing is lost, the pool is
//! always served again without flags, and it is whole again by itself.
//!
//! `FLASHLOOM_ROUNDS` says how many rounds, `FLASHLOOM_SEED` from which seed, `FLASHLOOM_LOOPS=1` that the drives are
//! loop devices and not files, `FLASHLOOM_KEEP` where the pool stays for whoever wants to see what went wrong.

use std::collections::BTreeSet;
use std::time::SystemTime;

use super::crash::Load;
use super::kills::{cut_opening_short, number};
use super::shelf::Shelf;
use super::*;
use stdx::Prng;

const DRIVES: usize = 6;
const DRIVE_BYTES: u64 = 256 << 20;
/// What RAID 6 bears.
const BEARS: usize = 2;

/// Rounds unless told otherwise.
const ROUNDS: u64 = 3;

const NQN: &str = "nqn.2026-11.io.flashloom:returns";

/// How long the pool may take to be served, or to be whole: more than either takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Between two looks at the pool.
const LOOK: Duration = Duration::from_millis(50);

/// Bytes that the journal grows by between two things that happen, at most.
const NOTED_MAX: u64 = 16_000;

/// How long an opening that is cut short may go on, at most.
const OPENING_MAX_MS: u64 = 600;

/// How often things happened.
#[derive(Default, Debug)]
struct Counts {
    kills: u64,
    openings_cut: u64,
    pulled: u64,
    pulled_hot: u64,
    old_copies: u64,
    /// The longest that a pool took to be whole again once all its drives were there.
    slowest: Duration,
    checked_bytes: u64,
}

struct Rig {
    dir: std::path::PathBuf,
    shelf: Shelf,
    port: u16,
    serve: String,
    daemon: Option<Daemon>,
    can_pull_hot: bool,
    prng: Prng,
    /// Drives that are not there.
    out: BTreeSet<usize>,
    /// Those that are there again, and may lack something still.
    doubtful: BTreeSet<usize>,
    /// Those of them that nobody may have noticed to be away.
    unnoticed: BTreeSet<usize>,
    counts: Counts,
    /// What happened in this round.
    story: Vec<String>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?}\n{:#?}", self.counts, self.story);
        }
    }
}

fn health(pool: &Value, drive: usize) -> &str {
    pool["status"]["drives"][drive]["health"].as_str().unwrap_or_default()
}

impl Rig {
    fn tell(&mut self, what: String) {
        self.story.push(what);
    }

    /// One of them, if there are any.
    fn one_of(&mut self, some: &BTreeSet<usize>) -> Option<usize> {
        let nth = self.prng.below((some.len() as u64).max(1));
        some.iter().nth(usize::try_from(nth).unwrap()).copied()
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.prng.below(one_in) == 0
    }

    fn to(&self) -> String {
        format!("--traddr 127.0.0.1 --trsvcid {} --subnqn {NQN} --poll interrupt", self.port)
    }

    fn show(&self) -> Value {
        let mut shown = json(&self.dir, "pool show fast");
        shown.get_mut(0).map(Value::take).unwrap_or(shown)
    }

    /// Waits until the pool is as that.
    fn wait_until(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Duration {
        let begun = SystemTime::now();
        loop {
            let pool = self.show();
            self.want_back(&pool);
            if is(&pool) {
                self.tell(format!("{what} after {:?}", begun.elapsed().unwrap()));
                return begun.elapsed().unwrap();
            }
            let events = || json(&self.dir, "events");
            assert!(
                begun.elapsed().unwrap() < PATIENCE,
                "not so: {what}: {pool:#}\n{:#}",
                events()
            );
            std::thread::park_timeout(LOOK);
        }
    }

    /// What comes and goes as often as this stays out by and by, until an operator has it back.
    fn want_back(&mut self, pool: &Value) {
        for drive in 0..DRIVES {
            if !self.out.contains(&drive)
                && pool["status"]["drives"][drive]["stays_out"] == "returns"
            {
                let asked = run(&self.dir, &format!("drive rejoin fast/{drive} --no-wait"));
                self.tell(format!("drive {drive} is wanted back: {}", asked.status));
            }
        }
    }

    fn start(&mut self) {
        let several = match std::thread::available_parallelism() {
            Ok(cpus) if cpus.get() > 1 && !self.chance(3) => "--cpus 0-1",
            _ => "--cpus 0",
        };
        self.daemon = Some(Daemon::start(&self.dir, &format!("{} {several}", self.serve)));
        self.wait_until("it is served", |pool| {
            matches!(pool["health"].as_str(), Some("online" | "degraded" | "no-redundancy"))
        });
    }

    /// With -9.
    fn kill(&mut self) {
        self.daemon = None;
        // What it did not notice did no harm, or the labels say so.
        self.unnoticed.clear();
        self.counts.kills += 1;
        self.tell("killed".into());
    }

    /// Drives that can be pulled, as far as the others bear it.
    fn spared(&mut self) -> BTreeSet<usize> {
        let lacking = &self.out | &self.doubtful;
        let some = match lacking.len() < BEARS {
            true => (0..DRIVES).collect(),
            false => lacking,
        };
        &some - &self.out
    }

    fn pull(&mut self) {
        let spared = self.spared();
        let aged: BTreeSet<usize> =
            spared.iter().copied().filter(|n| self.shelf.has_old(*n)).collect();
        let some = if aged.is_empty() || self.chance(3) { spared } else { aged };
        let Some(drive) = self.one_of(&some) else { return };
        self.tell(format!("drive {drive} is pulled"));
        self.shelf.pull(drive);
        self.counts.pulled += 1;
        self.is_gone(drive);
    }

    fn is_gone(&mut self, drive: usize) {
        self.out.insert(drive);
        self.doubtful.remove(&drive);
    }

    fn pull_hot(&mut self) {
        let spared = self.spared();
        let Some(drive) = self.one_of(&spared).filter(|_| self.can_pull_hot) else { return };
        self.tell(format!("drive {drive} is pulled under the daemon"));
        self.shelf.pull_hot(drive);
        self.counts.pulled_hot += 1;
        self.is_gone(drive);
        if self.chance(3) {
            self.unnoticed.insert(drive);
        } else {
            self.wait_until("it is noticed", |pool| health(pool, drive) != "online");
        }
    }

    fn give_back(&mut self) {
        let out = self.out.clone();
        let Some(drive) = self.one_of(&out) else { return };
        // Under a daemon that did not notice, nobody could know.
        let may_be_old = self.shelf.has_old(drive) && !self.unnoticed.contains(&drive);
        let old = may_be_old && !self.chance(4);
        self.counts.old_copies += u64::from(old);
        self.tell(format!("drive {drive} is given back, as an old copy: {old}"));
        self.shelf.give_back(drive, old);
        self.out.remove(&drive);
        self.doubtful.insert(drive);
    }

    /// Drives are pulled, and given back.
    fn shuffle(&mut self) {
        for _ in 0..self.prng.below(4) {
            if self.chance(2) { self.pull() } else { self.give_back() }
        }
    }

    /// The daemon is killed, and started with other drives.
    fn crash(&mut self) {
        self.kill();
        if self.chance(2) {
            let there: BTreeSet<usize> = (0..DRIVES).filter(|n| !self.out.contains(n)).collect();
            if let Some(drive) = self.one_of(&there) {
                self.tell(format!("a copy of drive {drive} is put aside"));
                self.shelf.put_aside(drive);
            }
        }
        self.shuffle();
        if self.chance(3) {
            let after = Duration::from_millis(self.prng.below(OPENING_MAX_MS));
            self.tell(format!("an opening is cut short after {after:?}"));
            cut_opening_short(&self.dir, &self.serve, after);
            self.counts.openings_cut += 1;
            self.shuffle();
        }
        self.start();
    }

    fn look(&mut self) {
        // Not drive by drive: the log may still be on its way to where others have it.
        if self.unnoticed.is_empty() && self.show()["health"] == "online" {
            self.doubtful.clear();
        }
    }

    fn something(&mut self) {
        self.look();
        match self.prng.below(8) {
            0..3 => self.crash(),
            3 | 4 => self.pull_hot(),
            5 | 6 => self.give_back(),
            _ if self.doubtful.is_empty() => {}
            _ => {
                let doubtful = self.doubtful.clone();
                let is_coming = move |pool: &Value| {
                    doubtful.iter().any(|n| matches!(health(pool, *n), "rejoining" | "online"))
                };
                self.wait_until("a drive is taken back", is_coming);
            }
        }
    }

    /// Gives everything back, and waits for the pool to be whole.
    fn make_whole(&mut self) {
        while !self.out.is_empty() {
            self.give_back();
        }
        let took = self.wait_until("it is whole again", |pool| pool["health"] == "online");
        self.counts.slowest = self.counts.slowest.max(took);
        self.doubtful.clear();
        self.unnoticed.clear();
    }

    /// Reads back everything that was acknowledged, without two drives perhaps.
    fn check(&mut self, journal: &Path) {
        if self.chance(2) {
            self.kill();
            self.pull();
            self.pull();
            self.start();
        }
        let check = format!("bench --check --journal {} {}", journal.display(), self.to());
        let verify = json(&self.dir, &check)["jobs"][0]["flashloom"]["verify"].take();
        assert_eq!(verify["verified_bytes"], verify["acknowledged_bytes"], "{verify}");
        self.counts.checked_bytes += verify["verified_bytes"].as_u64().unwrap();
    }

    fn round(&mut self, number: u64) {
        self.story = vec![format!("round {number}")];
        let journal = self.dir.join(format!("acks{number}"));
        let load = "--rw randrw --rwmixread 20 --bs 8k --iodepth 8 --rate-iops 1500 --verify";
        let load = format!("{load} --size 64MiB --runtime 60m --reconnect 120s {}", self.to());
        let mut load = Load::keeping(&self.dir, journal.clone(), &load);
        // It gives up where the first connection fails.
        assert!(load.goes_on(1));
        for _ in 0..3 + self.prng.below(4) {
            let more = 1 + self.prng.below(NOTED_MAX);
            if !load.goes_on(more) {
                panic!("the load is over: {}", load.finish());
            }
            self.something();
        }
        assert!(load.goes_on(1), "the load is over");
        self.make_whole();
        assert!(load.goes_on(NOTED_MAX), "the load is over");
        drop(load);
        self.check(&journal);
        fs::remove_file(journal).unwrap();
    }
}

#[test]
fn drives_go_and_come_back_in_any_order_and_nothing_is_lost() {
    let kept = tempfile::tempdir().unwrap();
    let dir = std::env::var_os("FLASHLOOM_KEEP").map_or(kept.path().to_owned(), Into::into);
    let (rounds, seed) = (number("FLASHLOOM_ROUNDS", ROUNDS), number("FLASHLOOM_SEED", 1));
    let port = free_port();
    let config = dir.join("test.toml");
    fs::write(
        &config,
        format!(
            "[node]\nwait-for-drives = 0\n[[listener]]\naddress = \"127.0.0.1:{port}\"\n\
             [[subsystem]]\nnqn = \"{NQN}\"\nallow-any-host = true\n"
        ),
    )
    .unwrap();
    let (shelf, size) = match number("FLASHLOOM_LOOPS", 0) {
        0 => (Shelf::of_files(&dir), format!(",size={DRIVE_BYTES}")),
        _ => (Shelf::of_loops(&dir, DRIVES, DRIVE_BYTES), String::new()),
    };
    let mut rig = Rig {
        can_pull_hot: shelf.can_pull_hot(),
        shelf,
        port,
        serve: format!("serve --config {}", config.display()),
        daemon: None,
        prng: Prng::new(seed),
        out: BTreeSet::new(),
        doubtful: BTreeSet::new(),
        unnoticed: BTreeSet::new(),
        counts: Counts::default(),
        story: Vec::new(),
        dir: dir.clone(),
    };
    rig.daemon = Some(Daemon::start(&dir, &rig.serve));
    let drives: Vec<_> =
        (0..DRIVES).map(|n| format!("--drive {}{size}", rig.shelf.at(n).display())).collect();
    let drives = drives.join(" ");
    json(&dir, &format!("pool create fast {drives} --raid raid6 --log drives --shards 2"));
    json(&dir, "volume create fast/v --size 64MiB");
    json(&dir, &format!("volume map fast/v --subnqn {NQN}"));
    for number in 0..rounds {
        rig.round(number);
        if (number + 1) % 10 == 0 {
            println!("{} rounds: {:?}", number + 1, rig.counts);
        }
    }
    rig.make_whole();
    println!("seed {seed}, {rounds} rounds: {:?}", rig.counts);
    rig.daemon.take().unwrap().stop();
}
