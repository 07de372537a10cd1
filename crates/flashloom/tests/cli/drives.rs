//! Drives taken out, wanted back, replaced, added, emptied and rebuilt without by an operator, the daemon killed at any
//! moment, under a verified load: nothing is lost, and the pool is whole again.
//!
//! `FLASHLOOM_ROUNDS` says how many rounds, `FLASHLOOM_SEED` from which seed.

use std::time::SystemTime;

use super::crash::Load;
use super::kills::number;
use super::*;
use stdx::Prng;

const NQN: &str = "nqn.2026-11.io.flashloom:drives";

/// Rounds unless told otherwise.
const ROUNDS: u64 = 2;

/// How long the pool may take to be whole: more than it does.
const PATIENCE: Duration = Duration::from_secs(120);

/// Between two looks at the pool.
const LOOK: Duration = Duration::from_millis(50);

/// Bytes that the journal grows by between two things that happen, at most.
const NOTED_MAX: u64 = 16_000;

struct Rig {
    dir: std::path::PathBuf,
    port: u16,
    serve: String,
    daemon: Option<Daemon>,
    prng: Prng,
    /// Files made so far.
    made: u64,
    kills: u64,
    story: Vec<String>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} kills\n{:#?}", self.kills, self.story);
        }
    }
}

impl Rig {
    fn to(&self) -> String {
        format!("--traddr 127.0.0.1 --trsvcid {} --subnqn {NQN} --poll interrupt", self.port)
    }

    fn new_drive(&mut self) -> String {
        self.made += 1;
        format!("{},size=256MiB", self.dir.join(format!("d{}", self.made)).display())
    }

    /// Asks for something that may be refused, by what else goes on.
    fn ask(&mut self, arguments: &str) {
        let output = run(&self.dir, arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        self.story.push(format!("{arguments}: {} {said}", output.status));
    }

    fn drives(&self) -> Vec<Value> {
        json(&self.dir, "drive list").as_array().cloned().unwrap_or_default()
    }

    fn kill(&mut self) {
        self.daemon = None;
        self.kills += 1;
        self.story.push("killed".into());
        self.daemon = Some(Daemon::start(&self.dir, &self.serve));
        self.wait_until("it is served", |rig| {
            let pool = json(&rig.dir, "pool show fast");
            matches!(pool["health"].as_str(), Some("online" | "degraded" | "no-redundancy"))
        });
    }

    fn wait_until(&mut self, what: &str, mut is: impl FnMut(&mut Self) -> bool) {
        let begun = SystemTime::now();
        while !is(self) {
            let waited = begun.elapsed().unwrap();
            assert!(waited < PATIENCE, "not so: {what}: {:#?}", self.drives());
            std::thread::park_timeout(LOOK);
        }
        self.story.push(format!("{what} after {:?}", begun.elapsed().unwrap()));
    }

    fn something(&mut self) {
        let count = self.drives().len() as u64;
        let place = format!("fast/{}", self.prng.below(count));
        match self.prng.below(6) {
            0 => self.ask(&format!("drive fail {place} --no-wait")),
            1 => self.ask(&format!("drive rejoin {place} --no-wait")),
            2 | 3 => {
                let new = self.new_drive();
                self.ask(&format!("drive replace {place} {new} --no-wait"));
            }
            4 => self.ask(&format!("drive evacuate {place} --no-wait")),
            _ => self.ask("pool rebuild start fast --no-wait"),
        }
        if self.prng.below(3) == 0 {
            self.kill();
        }
    }

    /// Has everything that is out come back, or be replaced.
    fn make_whole(&mut self) {
        let mut asked = None;
        self.wait_until("it is whole", |rig| {
            let is_out = |drive: &Value| drive["health"] != "online";
            let jobs = json(&rig.dir, "job list");
            let is_over = |job: &Value| job["state"] != "running" && job["state"] != "queued";
            if !jobs.as_array().is_some_and(|jobs| jobs.iter().all(is_over)) {
                return false;
            }
            let drives = rig.drives();
            let Some(place) = drives.iter().position(is_out) else {
                return json(&rig.dir, "pool show fast")["health"] == "online";
            };
            if drives[place]["health"] == "rejoining" {
                return false;
            }
            // Some are there, others were given up before they had a label.
            match asked.replace(place) == Some(place) {
                true => {
                    let new = rig.new_drive();
                    rig.ask(&format!("drive replace fast/{place} {new} --no-wait"));
                }
                false => rig.ask(&format!("drive rejoin fast/{place} --no-wait")),
            }
            false
        });
    }

    fn check(&mut self, journal: &Path) {
        let check = format!("bench --check --journal {} {}", journal.display(), self.to());
        let verify = json(&self.dir, &check)["jobs"][0]["flashloom"]["verify"].take();
        assert_eq!(verify["verified_bytes"], verify["acknowledged_bytes"], "{verify}");
    }

    fn round(&mut self, number: u64) {
        self.story = vec![format!("round {number}")];
        let journal = self.dir.join(format!("acks{number}"));
        let load = "--rw randrw --rwmixread 20 --bs 8k --iodepth 8 --rate-iops 1500 --verify";
        let load = format!("{load} --size 64MiB --runtime 60m --reconnect 120s {}", self.to());
        let mut load = Load::keeping(&self.dir, journal.clone(), &load);
        for _ in 0..3 + self.prng.below(3) {
            let more = 1 + self.prng.below(NOTED_MAX);
            assert!(load.goes_on(more), "the load is over");
            self.something();
        }
        self.make_whole();
        assert!(load.goes_on(NOTED_MAX), "the load is over");
        drop(load);
        // All of it, without two of the drives.
        for place in [number % 4, (number + 2) % 4] {
            json(&self.dir, &format!("drive fail fast/{place}"));
        }
        self.check(&journal);
        self.make_whole();
        fs::remove_file(journal).unwrap();
    }
}

#[test]
fn an_operator_changes_drives_in_any_order_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_owned();
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
    let serve = format!("serve --config {}", config.display());
    let daemon = Some(Daemon::start(&dir, &serve));
    let (prng, story) = (Prng::new(seed), Vec::new());
    let mut rig = Rig { dir: dir.clone(), port, serve, daemon, prng, made: 0, kills: 0, story };
    let drives: Vec<_> = (0..4).map(|_| format!("--drive {}", rig.new_drive())).collect();
    let drives = drives.join(" ");
    json(&dir, &format!("pool create fast {drives} --raid raid6 --log drives --shards 2"));
    json(&dir, "volume create fast/v --size 64MiB");
    json(&dir, &format!("volume map fast/v --subnqn {NQN}"));
    let new = rig.new_drive();
    json(&dir, &format!("drive add fast {new}"));
    assert_eq!(rig.drives().len(), 5);
    for number in 0..rounds {
        rig.round(number);
        if (number + 1) % 10 == 0 {
            println!("{} rounds, {} kills", number + 1, rig.kills);
        }
    }
    println!("seed {seed}, {rounds} rounds, {} kills", rig.kills);
    rig.daemon.take().unwrap().stop();
}
