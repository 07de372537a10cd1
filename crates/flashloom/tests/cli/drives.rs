//! Drives that fail, are gone, come back, are cut short and rot, and an operator who takes them out, wants them back,
//! replaces, empties and removes them and gives spares, the daemon killed at any moment, under a verified load: nothing is
//! lost, the pool is always served again without flags, and it is whole again.
//!
//! `FLASHLOOM_ROUNDS` says how many rounds, `FLASHLOOM_SEED` from which seed, `FLASHLOOM_KEEP` where the pool stays for
//! whoever wants to see what went wrong.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::SystemTime;

use super::crash::Load;
use super::kills::{cut_opening_short, number};
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

/// How long a drive that is there again, and may be taken back, is left to the node.
const BY_ITSELF: Duration = Duration::from_secs(20);

const DRIVE_BYTES: u64 = 256 << 20;

/// What is left of a drive that is cut short: its log, and a part of its data.
const CUT_BYTES: u64 = 160 << 20;

/// How long an opening that is cut short may go on, at most.
const OPENING_MAX_MS: u64 = 600;

/// How often things happened.
#[derive(Default, Debug)]
struct Counts {
    kills: u64,
    openings_cut: u64,
    asked: u64,
    pulled: u64,
    given_back: u64,
    cut_short: u64,
    rotten_blocks: u64,
    /// The longest that the pool took to be whole again.
    slowest: Duration,
    checked_bytes: u64,
}

struct Rig {
    dir: PathBuf,
    port: u16,
    serve: String,
    daemon: Option<Daemon>,
    prng: Prng,
    /// Files made so far.
    made: u64,
    /// Drives that are not where they were.
    away: Vec<PathBuf>,
    /// Drives that are there, and are to be replaced.
    ruined: BTreeSet<PathBuf>,
    counts: Counts,
    story: Vec<String>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?}\n{:#?}", self.counts, self.story);
        }
    }
}

fn path_of(drive: &Value) -> PathBuf {
    drive["path"].as_str().unwrap_or_default().into()
}

/// Where a drive is while it is not there.
fn away(path: &Path) -> PathBuf {
    path.with_extension("away")
}

fn set_len(drive: &Path, bytes: u64) {
    fs::File::options().write(true).open(drive).unwrap().set_len(bytes).unwrap();
}

impl Rig {
    fn to(&self) -> String {
        format!("--traddr 127.0.0.1 --trsvcid {} --subnqn {NQN} --poll interrupt", self.port)
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.prng.below(one_in) == 0
    }

    fn new_drive(&mut self) -> String {
        self.made += 1;
        format!("{},size={DRIVE_BYTES}", self.dir.join(format!("d{}", self.made)).display())
    }

    /// Asks for something that may be refused, by what else goes on; whether it was not.
    fn ask(&mut self, arguments: &str) -> bool {
        let output = run(&self.dir, arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        self.story.push(format!("{arguments}: {} {said}", output.status));
        self.counts.asked += 1;
        output.status.success()
    }

    fn pool(&self) -> Value {
        json(&self.dir, "pool show fast")
    }

    /// Those in its places.
    fn drives(&self) -> Vec<Value> {
        self.pool()["status"]["drives"].as_array().cloned().unwrap_or_default()
    }

    /// How many jobs are not over.
    fn jobs(&self) -> usize {
        let jobs = json(&self.dir, "job list");
        let is_on = |job: &&Value| job["state"] == "running" || job["state"] == "queued";
        jobs.as_array().map_or(0, |jobs| jobs.iter().filter(is_on).count())
    }

    /// A drive that may be lost, whatever the jobs do that were asked for by now.
    fn spared(&mut self) -> Option<(usize, PathBuf)> {
        let (jobs, pool) = (self.jobs(), self.pool());
        let left = pool["status"]["redundancy_left"].as_u64().unwrap_or(0);
        let drives = pool["status"]["drives"].as_array()?;
        let works = |(_, drive): &(usize, &Value)| drive["health"] == "online";
        let some: Vec<_> = drives.iter().enumerate().filter(works).collect();
        if left <= jobs as u64 || some.is_empty() {
            return None;
        }
        let (place, drive) = some[usize::try_from(self.prng.below(some.len() as u64)).unwrap()];
        Some((place, path_of(drive)))
    }

    fn kill(&mut self) {
        self.kill_and(|_| ());
    }

    /// Kills the daemon with -9, does something, and starts it again.
    fn kill_and(&mut self, then: impl FnOnce(&mut Self)) {
        self.daemon = None;
        self.counts.kills += 1;
        self.story.push("killed".into());
        then(self);
        if self.chance(4) {
            let after = Duration::from_millis(self.prng.below(OPENING_MAX_MS));
            self.story.push(format!("an opening is cut short after {after:?}"));
            cut_opening_short(&self.dir, &self.serve, after);
            self.counts.openings_cut += 1;
        }
        self.daemon = Some(Daemon::start(&self.dir, &self.serve));
        self.wait_until("it is served", |rig| {
            matches!(rig.pool()["health"].as_str(), Some("online" | "degraded" | "no-redundancy"))
        });
    }

    fn wait_until(&mut self, what: &str, mut is: impl FnMut(&mut Self) -> bool) -> Duration {
        let begun = SystemTime::now();
        while !is(self) {
            let waited = begun.elapsed().unwrap();
            assert!(waited < PATIENCE, "not so: {what}: {:#}", self.pool());
            std::thread::park_timeout(LOOK);
        }
        let waited = begun.elapsed().unwrap();
        self.story.push(format!("{what} after {waited:?}"));
        waited
    }

    fn something(&mut self) {
        let place = format!("fast/{}", self.prng.below(self.drives().len() as u64));
        match self.prng.below(14) {
            0 | 1 => _ = self.ask(&format!("drive fail {place} --no-wait")),
            2 => _ = self.ask(&format!("drive rejoin {place} --no-wait")),
            3 | 4 => self.replace(&place),
            5 => _ = self.ask(&format!("drive evacuate {place} --no-wait")),
            6 => _ = self.ask(&format!("drive remove {place} --yes --no-wait")),
            7 => _ = self.ask("pool rebuild start fast --no-wait"),
            8 => {
                let new = self.new_drive();
                self.ask(&format!("pool spare add fast {new}"));
            }
            9 | 10 => self.pull(),
            11 => self.give_back(),
            12 => self.cut_short(),
            _ => self.rot(),
        }
        if self.chance(3) {
            self.kill();
        }
    }

    fn replace(&mut self, place: &str) {
        let new = self.new_drive();
        self.ask(&format!("drive replace {place} {new} --no-wait"));
    }

    /// The daemon is killed, and started without a drive.
    fn pull(&mut self) {
        let Some((place, path)) = self.spared() else { return };
        self.story.push(format!("{} in place {place} is pulled", path.display()));
        self.counts.pulled += 1;
        self.kill_and(|rig| {
            fs::rename(&path, away(&path)).unwrap();
            rig.away.push(path);
        });
    }

    /// One that was pulled is there again, whether or not another has its place by now.
    fn give_back(&mut self) {
        let Some(path) = self.away.pop() else { return };
        self.story.push(format!("{} is given back", path.display()));
        self.counts.given_back += 1;
        fs::rename(away(&path), &path).unwrap();
    }

    /// A drive loses its end under the daemon, and gets it back as zeroes, or does not.
    fn cut_short(&mut self) {
        let Some((place, path)) = self.spared() else { return };
        self.story.push(format!("{} in place {place} is cut short", path.display()));
        self.counts.cut_short += 1;
        set_len(&path, CUT_BYTES);
        if self.chance(3) {
            self.kill();
        }
        // Given back before, nobody could know.
        self.wait_until("it is noticed", |rig| {
            let drive = &rig.drives()[place];
            drive["health"] != "online" || path_of(drive) != path
        });
        if self.chance(2) {
            set_len(&path, DRIVE_BYTES);
        } else {
            self.ruined.insert(path);
        }
    }

    /// Blocks of a drive are something else, until a scrub has put them right or the drive is out for them.
    fn rot(&mut self) {
        if self.jobs() > 0 || self.pool()["health"] != "online" {
            return;
        }
        let Some((place, path)) = self.spared() else { return };
        let file = fs::File::options().read(true).write(true).open(&path).unwrap();
        let (mut block, mut rotten) = ([0; 4096], 0);
        let one_in = 1 + self.prng.below(16);
        // Labels, and what else is at the ends, is left as it is.
        for at in (DRIVE_BYTES / 4..DRIVE_BYTES * 15 / 16).step_by(4096) {
            file.read_exact_at(&mut block, at).unwrap();
            if block.iter().any(|byte| *byte != 0) && self.chance(one_in) {
                block.iter_mut().for_each(|byte| *byte = !*byte);
                file.write_all_at(&block, at).unwrap();
                rotten += 1;
            }
        }
        self.story.push(format!("{rotten} blocks of {} in {place} rot", path.display()));
        self.counts.rotten_blocks += rotten;
        self.ask("pool scrub start fast --no-wait");
        if self.chance(2) {
            self.kill();
        }
        // From one end to the other, whatever became of the first.
        self.wait_until("all is looked at", |rig| {
            rig.jobs() == 0 && rig.ask("pool scrub start fast")
        });
        let scrub = json(&self.dir, "pool scrub show fast");
        assert_eq!(scrub["lost_blocks"], 0, "{scrub}");
    }

    /// Has everything that is out come back, or be replaced. What may be taken back by the node is left to it.
    fn make_whole(&mut self) {
        while !self.away.is_empty() {
            self.give_back();
        }
        let (begun, mut asked) = (SystemTime::now(), None);
        let took = self.wait_until("it is whole", |rig| {
            if rig.jobs() > 0 {
                return false;
            }
            let pool = rig.pool();
            let drives = pool["status"]["drives"].as_array().unwrap();
            let Some(place) = drives.iter().position(|drive| drive["health"] != "online") else {
                return pool["health"] == "online";
            };
            let drive = &drives[place];
            let is_ruined = rig.ruined.contains(&path_of(drive));
            let is_left = drive["stays_out"].is_null() && drive["health"] != "vacant" && !is_ruined;
            if drive["health"] == "rejoining" || (is_left && begun.elapsed().unwrap() < BY_ITSELF) {
                return false;
            }
            // Some are there, others were given up before they had a label.
            if is_ruined || asked.replace(place) == Some(place) {
                rig.replace(&format!("fast/{place}"));
            } else {
                rig.ask(&format!("drive rejoin fast/{place} --no-wait"));
            }
            false
        });
        self.counts.slowest = self.counts.slowest.max(took);
        self.clear_away();
    }

    /// Removes the files that are of no use any more.
    fn clear_away(&mut self) {
        let pool = self.pool();
        let lists = [&pool["status"]["drives"], &pool["spares"]];
        let used: BTreeSet<_> =
            lists.iter().filter_map(|list| list.as_array()).flatten().map(path_of).collect();
        for number in 1..=self.made {
            let path = self.dir.join(format!("d{number}"));
            if !used.contains(&path) {
                self.ruined.remove(&path);
                let _is_there = fs::remove_file(path);
            }
        }
    }

    fn check(&mut self, journal: &Path) {
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
        for _ in 0..3 + self.prng.below(4) {
            let more = 1 + self.prng.below(NOTED_MAX);
            if !load.goes_on(more) {
                panic!("the load is over: {}", load.finish());
            }
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
fn drives_fail_and_are_changed_in_any_order_and_nothing_is_lost() {
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
    let serve = format!("serve --config {}", config.display());
    let daemon = Some(Daemon::start(&dir, &serve));
    let mut rig = Rig {
        dir: dir.clone(),
        port,
        serve,
        daemon,
        prng: Prng::new(seed),
        made: 0,
        away: Vec::new(),
        ruined: BTreeSet::new(),
        counts: Counts::default(),
        story: Vec::new(),
    };
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
            println!("{} rounds: {:?}", number + 1, rig.counts);
        }
    }
    println!("seed {seed}, {rounds} rounds: {:?}", rig.counts);
    rig.daemon.take().unwrap().stop();
}
