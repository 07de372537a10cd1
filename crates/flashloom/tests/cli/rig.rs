//! A daemon with pools to which things happen: what tests of rebuilds, removals and spares share.

use super::*;

/// More than any of this takes.
const PATIENCE: Duration = Duration::from_secs(120);

pub fn wait_until(what: &str, is: impl Fn() -> bool) {
    let begun = SystemTime::now();
    while !is() {
        assert!(begun.elapsed().unwrap() < PATIENCE, "not so: {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// What `flashloom health` finds, whatever its exit code.
pub fn findings(dir: &Path) -> Vec<Value> {
    let output = run(dir, "health -o json");
    let health: Value = serde_json::from_slice(&output.stdout).unwrap();
    health["findings"].as_array().unwrap().clone()
}

pub fn health(dir: &Path, drive: &str) -> Value {
    json(dir, &format!("drive show {drive}"))["health"].take()
}

/// All that lives in the pool is on its drives, and right.
pub fn scrub_finds_nothing(dir: &Path) {
    let scrub = json(dir, "pool scrub start fast");
    assert_eq!(
        (&scrub["damaged_blocks"], &scrub["lost_blocks"]),
        (&0.into(), &0.into()),
        "{scrub}"
    );
}

pub struct Rig {
    pub dir: std::path::PathBuf,
    config: std::path::PathBuf,
    port: u16,
}

impl Rig {
    pub fn configure(&self, rebuild_after: u64) {
        self.write(&format!("wait-for-drives = 0\nrebuild-after = {rebuild_after}"));
    }

    /// Has a start wait for drives that are not there.
    pub fn wait_for_drives(&self, wait: Duration) {
        self.write(&format!("wait-for-drives = {}\nrebuild-after = 0", wait.as_secs()));
    }

    fn write(&self, of_node: &str) {
        let text = format!(
            "[node]\n{of_node}\n[[listener]]\naddress = \"127.0.0.1:{}\"\n\
             [[subsystem]]\nnqn = \"{NQN}\"\nallow-any-host = true\n",
            self.port
        );
        fs::write(&self.config, text).unwrap();
    }

    pub fn start(&self) -> Daemon {
        self.opened(self.start_closed())
    }

    /// One whose pools may not be open yet.
    pub fn start_closed(&self) -> Daemon {
        Daemon::start(&self.dir, &format!("serve --config {}", self.config.display()))
    }

    /// One whose drives can be slowed, by files in its folder.
    pub fn start_slowable(&self) -> Daemon {
        let serve = format!("serve --config {}", self.config.display());
        let mut command = flashloom(&self.dir, &serve);
        self.opened(Daemon::run(command.env("FLASHLOOM_CANARY", &self.dir), &serve))
    }

    fn opened(&self, daemon: Daemon) -> Daemon {
        let is_open = |pool: &Value| pool["status"].is_object();
        wait_until("the pools are open", || {
            json(&self.dir, "pool list").as_array().unwrap().iter().all(is_open)
        });
        daemon
    }

    /// A pool of four drives with stripes over three, and 48 MiB of a volume written.
    pub fn make_pool(&self, pool: &str) {
        self.make_narrow_pool(pool);
        json(&self.dir, &format!("drive add {pool} {}/{pool}3,size=256MiB", self.dir.display()));
        self.fill_pool(pool);
    }

    /// One of three drives with stripes over all of them, and nothing in it.
    pub fn make_narrow_pool(&self, pool: &str) {
        let drive = |n| format!("{}/{pool}{n},size=256MiB", self.dir.display());
        let drives: Vec<_> = (0..3).map(|n| format!("--drive {}", drive(n))).collect();
        let make = format!("pool create {pool} {} --raid raid5 --shards 1", drives.join(" "));
        json(&self.dir, &make);
    }

    /// Writes 48 MiB of a volume of a pool.
    pub fn fill_pool(&self, pool: &str) {
        json(&self.dir, &format!("volume create {pool}/v --size 64MiB"));
        let nqn = format!("{NQN}.{pool}");
        json(&self.dir, &format!("volume map {pool}/v --subnqn {nqn} --allow-any-host"));
        self.load(pool, "--rw write --bs 64k --size 48MiB --io-size 48MiB --verify");
    }

    /// Puts a load on the volume of a pool.
    pub fn load(&self, pool: &str, load: &str) {
        let to = format!("--traddr 127.0.0.1 --trsvcid {} --subnqn {NQN}.{pool}", self.port);
        json(&self.dir, &format!("bench {load} --poll interrupt {to}"));
    }
}

/// Changes what a node that has ended remembers of pool fast, as if it had been killed in the midst of something.
pub fn remember(dir: &Path, change: impl FnOnce(&mut Value)) {
    let file = dir.join("state.json");
    let mut state: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let pool = &mut state["pools"]["fast"];
    assert!(pool.is_object(), "{pool}");
    change(pool);
    fs::write(&file, serde_json::to_vec(&state).unwrap()).unwrap();
}

pub fn rig(dir: &Path) -> Rig {
    Rig { dir: dir.to_owned(), config: dir.join("test.toml"), port: free_port() }
}
