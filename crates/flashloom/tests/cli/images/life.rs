//! What befalls pools before they are kept: everything that can lie on media has to come about here.

use super::*;
use stdx::Prng;

/// The part of a volume that is written, in blocks.
const WRITTEN: u64 = 2048;
/// Changes between two starts of the daemon.
const CHANGES: u64 = 60;
/// The most blocks of one change.
const CHANGE_MAX: u64 = 48;
/// Writes by a direct write window before its host and its daemon end.
const DIRECT: u64 = 40;
/// Writes until it has taken so many, at most: it is granted behind the first ones.
const TRIED_MAX: u64 = 100_000;

/// A volume as it should be: what each block is full of.
struct Model {
    words: Vec<u64>,
    prng: Prng,
}

impl Model {
    fn range(first: u64, blocks: u64) -> std::ops::Range<usize> {
        usize::try_from(first).unwrap()..usize::try_from(first + blocks).unwrap()
    }

    fn draw(&mut self) -> (u64, u64) {
        let blocks = 1 + self.prng.below(CHANGE_MAX);
        (self.prng.below(WRITTEN - blocks), blocks)
    }

    fn write(&mut self, volume: &client::Namespace, first: u64, blocks: u64) {
        let range = Self::range(first, blocks);
        let word = self.prng.next_u64() | 1;
        self.words[range.clone()].fill(word);
        volume.write(first, &bytes(&self.words[range]), client::Fua::No).unwrap();
    }

    /// Does something to the volume, and the same here.
    fn change(&mut self, volume: &client::Namespace) {
        let (first, blocks) = self.draw();
        let range = Self::range(first, blocks);
        match self.prng.below(8) {
            0 => {
                volume.deallocate(&[(first, u32::try_from(blocks).unwrap())]).unwrap();
                self.words[range].fill(0);
            }
            1 => {
                volume
                    .write_zeroes(first, blocks, client::Deallocate::No, client::Fua::No)
                    .unwrap();
                self.words[range].fill(0);
            }
            2 => {
                let (from, _) = self.draw();
                let from = from.min(WRITTEN - blocks);
                if from.abs_diff(first) < blocks {
                    return;
                }
                volume.copy(&[(from, u32::try_from(blocks).unwrap())], first).unwrap();
                self.words.copy_within(Self::range(from, blocks), range.start);
            }
            _ => self.write(volume, first, blocks),
        }
    }
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes().repeat(BLOCK / 8)).collect()
}

/// What is in the pools, by what it is called.
struct Life<'a> {
    dir: &'a Path,
    /// With the namespaces they are.
    volumes: BTreeMap<String, (u32, Model)>,
    snapshots: BTreeMap<String, Vec<u64>>,
}

impl Life<'_> {
    /// Has hosts see a volume that holds this.
    fn map(&mut self, name: String, words: Vec<u64>) {
        let nsid = u32::try_from(self.volumes.len()).unwrap() + 1;
        map(self.dir, &format!("volume map {name}"), nsid);
        self.volumes.insert(name, (nsid, Model { words, prng: Prng::new(u64::from(nsid)) }));
    }

    fn words(&self, volume: &str) -> Vec<u64> {
        self.volumes[volume].1.words.clone()
    }

    /// What a snapshot that was just taken has.
    fn taken(&mut self, volume: &str, name: &str) {
        self.snapshots.insert(format!("{volume}@{name}"), self.words(volume));
    }

    fn snapshot(&mut self, volume: &str, name: &str) {
        json(self.dir, &format!("snapshot create {volume}@{name}"));
        self.taken(volume, name);
    }

    fn clone(&mut self, snapshot: &str, volume: String) {
        json(self.dir, &format!("volume clone {snapshot} {volume}"));
        self.map(volume, self.snapshots[snapshot].clone());
    }

    fn create(&mut self, pool: &str) {
        let zeroes = vec![0; usize::try_from(WRITTEN).unwrap()];
        json(self.dir, &format!("volume create {pool}/gone --size 16MiB"));
        for volume in ["kept", "late", "direct"] {
            json(self.dir, &format!("volume create {pool}/{volume} --size 16MiB"));
            self.map(format!("{pool}/{volume}"), zeroes.clone());
        }
        json(self.dir, &format!("volume create {pool}/sure --size 8MiB --reserve all"));
        self.map(format!("{pool}/sure"), zeroes);
    }

    /// After the first writes: snapshots, a group with a quota and one of a volume, a part of a volume's space reserved,
    /// a clone.
    fn divide(&mut self, pool: &str) {
        let [kept, late] = ["kept", "late"].map(|volume| format!("{pool}/{volume}"));
        self.snapshot(&kept, "first");
        let of = format!("--volume {kept} --volume {late}");
        json(self.dir, &format!("group create {pool}/both {of} --quota 1GiB"));
        json(self.dir, &format!("group snapshot {pool}/both@mon"));
        self.taken(&kept, "mon");
        self.taken(&late, "mon");
        json(self.dir, &format!("volume quota {kept} 128MiB"));
        json(self.dir, &format!("volume reserve {late} 8MiB"));
        self.clone(&format!("{kept}@first"), format!("{pool}/dev"));
    }

    /// A clone of a clone, something that goes, something that nobody writes to.
    fn grow(&mut self, pool: &str) {
        let dev = format!("{pool}/dev");
        self.snapshot(&dev, "own");
        self.clone(&format!("{dev}@own"), format!("{pool}/test"));
        json(self.dir, &format!("volume delete {pool}/gone --yes"));
        json(self.dir, &format!("volume create {pool}/new --size 1GiB"));
    }

    /// A volume goes back, a clone gets what it inherits, a snapshot goes.
    fn go_back(&mut self, pool: &str) {
        let [kept, late] = ["kept", "late"].map(|volume| format!("{pool}/{volume}"));
        json(self.dir, &format!("snapshot rollback {late}@mon --yes --keep-as before"));
        self.taken(&late, "before");
        let mon = self.snapshots[&format!("{late}@mon")].clone();
        self.volumes.get_mut(&late).unwrap().1.words = mon;
        self.clone(&format!("{kept}@mon"), format!("{pool}/cut"));
        json(self.dir, &format!("volume detach {pool}/cut"));
        json(self.dir, &format!("snapshot create {kept}@gone"));
        json(self.dir, &format!("snapshot delete {kept}@gone --yes"));
    }

    /// A host writes by a window of its own, which it has when the daemon is killed.
    fn write_directly(&mut self, served: &Served, pool: &str) -> client::Namespace {
        let (nsid, model) = self.volumes.get_mut(&format!("{pool}/direct")).unwrap();
        let volume = served.open(*nsid, &[("window", "require")]);
        for _ in 0..TRIED_MAX {
            if volume.direct_writes() >= DIRECT {
                return volume;
            }
            let (first, blocks) = model.draw();
            model.write(&volume, first, blocks);
        }
        panic!("{} of {TRIED_MAX} writes went by the window", volume.direct_writes());
    }

    fn contents(self) -> BTreeMap<String, Vec<u8>> {
        let volumes = self.volumes.into_iter().map(|(name, (_, model))| (name, model.words));
        volumes.chain(self.snapshots).map(|(name, words)| (name, bytes(&words))).collect()
    }
}

/// Makes the pools, has them live through stops and kills, and gives what is in them at the end, by volume and
/// snapshot, and what is told of them.
pub fn live(dir: &Path) -> (BTreeMap<String, Vec<u8>>, Value) {
    let port = free_port();
    let mut served = Some(Served::start(dir, port));
    let mut life = Life { dir, volumes: BTreeMap::new(), snapshots: BTreeMap::new() };
    for (pool, how, devices) in &POOLS {
        let of = drives(devices)
            .map(|name| format!("--drive {}/{name},size={DRIVE_BYTES}", dir.display()));
        let of = of.collect::<Vec<_>>().join(" ");
        let log = match devices.contains(&"log") {
            true => format!("--log bbu:{}/log", dir.display()),
            false => "--log drives".to_owned(),
        };
        json(dir, &format!("pool create {pool} {of} {how} {log}"));
        life.create(pool);
    }
    for round in 0..4 {
        let now = served.take().unwrap_or_else(|| Served::start(dir, port));
        for (nsid, model) in life.volumes.values_mut() {
            let volume = now.open(*nsid, &[]);
            (0..CHANGES).for_each(|_| model.change(&volume));
            volume.shut_down().unwrap();
        }
        for (pool, ..) in &POOLS {
            match round {
                0 => life.divide(pool),
                1 => life.grow(pool),
                2 => life.go_back(pool),
                _ => {}
            }
        }
        // By turns in order, and by kill -9, which is how it ends.
        match round {
            0 | 2 => now.daemon.stop(),
            1 => drop(now),
            _ => served = Some(now),
        }
    }
    let served = served.unwrap();
    let told = told(dir);
    let in_memory = POOLS.iter().filter(|(.., devices)| devices.contains(&"log"));
    let hosts: Vec<_> = in_memory.map(|(pool, ..)| life.write_directly(&served, pool)).collect();
    // The daemon first: it has the windows to the end.
    drop(served);
    drop(hosts);
    (life.contents(), told)
}
