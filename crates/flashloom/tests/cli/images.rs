//! Pools as earlier versions left them, kept in `tests/images`: from format 3 on, every version opens them, has all that
//! is in them, and goes on writing to them.
//!
//! Each folder there has what a pool's devices held, packed, and what its volumes hold. The same that made them is tried
//! with every version's own pools, too; `FLASHLOOM_KEEP_IMAGES=DIR` keeps those, to be taken into `tests/images` when a
//! version changes what lies on media.

use super::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use stdx::Prng;

const NQN: &str = "nqn.2026-11.io.flashloom:kept";
const BLOCK: usize = 4096;
/// Of a volume, in blocks: most of it is never written.
const SIZE: u64 = 64 << 20 >> 12;
/// The part of it that is written, in blocks.
const WRITTEN: u64 = 2048;
/// Changes between two starts of the daemon.
const CHANGES: u64 = 60;
/// The most blocks of one change.
const CHANGE_MAX: u64 = 48;

/// How a pool is made: its name, how, and the devices that hold it.
const POOLS: [(&str, &str, &[&str]); 2] = [
    ("wide", "--raid raid6 --shards 2 --log-size 16MiB", &["d0", "d1", "d2", "d3", "d4"]),
    ("pair", "--raid mirror --shards 1 --log-size 8MiB", &["m0", "m1", "log"]),
];
const DRIVE_BYTES: &str = "160MiB";

fn drives(devices: &'static [&'static str]) -> impl Iterator<Item = &'static str> {
    devices.iter().copied().filter(|name| *name != "log")
}

/// A device's contents as runs of the same eight bytes: how many times, in four bytes, and those. Little-endian.
fn pack(bytes: &[u8]) -> Vec<u8> {
    let words: Vec<&[u8]> = bytes.chunks_exact(8).collect();
    let runs = words.chunk_by(|one, next| one == next);
    let run =
        |run: &[&[u8]]| [&u32::try_from(run.len()).unwrap().to_le_bytes()[..], run[0]].concat();
    runs.flat_map(run).collect()
}

fn unpack(packed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for run in packed.chunks_exact(12) {
        let (times, word) = run.split_at(4);
        let times = u32::from_le_bytes(times.try_into().unwrap());
        bytes.extend_from_slice(&word.repeat(usize::try_from(times).unwrap()));
    }
    bytes
}

/// Writes a device's contents, with holes where they are zero.
fn unpack_to(packed: &Path, to: &Path) {
    let bytes = unpack(&fs::read(packed).unwrap());
    let file = fs::File::create(to).unwrap();
    file.set_len(u64::try_from(bytes.len()).unwrap()).unwrap();
    for (n, block) in bytes.chunks(BLOCK).enumerate().filter(|(_, b)| b.iter().any(|b| *b != 0)) {
        std::os::unix::fs::FileExt::write_all_at(&file, block, u64::try_from(n * BLOCK).unwrap())
            .unwrap();
    }
}

/// A daemon without pools of its own in `dir`, and how a host finds a namespace of it.
struct Served {
    daemon: Daemon,
    port: u16,
}

impl Served {
    /// `port` is the same for each start: another command line would be another wish.
    fn start(dir: &Path, port: u16) -> Self {
        let serve = format!("serve memory:1MiB --discovery off --listen 127.0.0.1:{port}");
        Self { daemon: Daemon::start(dir, &serve), port }
    }

    fn open(&self, nsid: u32) -> client::Namespace {
        let mut options = client::Options::default();
        options.set("trsvcid", &self.port.to_string()).unwrap();
        options.set("subnqn", NQN).unwrap();
        client::Namespace::open(&options, nsid).unwrap()
    }
}

/// A volume as it should be.
struct Model {
    words: Vec<u64>,
    prng: Prng,
}

impl Model {
    fn new(seed: u64) -> Self {
        Self { words: vec![0; usize::try_from(WRITTEN).unwrap()], prng: Prng::new(seed) }
    }

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes().repeat(BLOCK / 8)).collect()
    }

    fn range(first: u64, blocks: u64) -> std::ops::Range<usize> {
        usize::try_from(first).unwrap()..usize::try_from(first + blocks).unwrap()
    }

    fn draw(&mut self) -> (u64, u64) {
        let blocks = 1 + self.prng.below(CHANGE_MAX);
        (self.prng.below(WRITTEN - blocks), blocks)
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
            _ => {
                let word = self.prng.next_u64() | 1;
                self.words[range.clone()].fill(word);
                volume.write(first, &Self::bytes(&self.words[range]), client::Fua::No).unwrap();
            }
        }
    }
}

/// Makes the pools, has them live through stops and kills, and gives what they hold at the end, by volume.
fn live(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut models = BTreeMap::new();
    let port = free_port();
    let served = Served::start(dir, port);
    for ((pool, how, devices), nsid) in POOLS.iter().zip(1_u32..) {
        let of = drives(devices)
            .map(|name| format!("--drive {}/{name},size={DRIVE_BYTES}", dir.display()));
        let of = of.collect::<Vec<_>>().join(" ");
        let log = match devices.contains(&"log") {
            true => format!("--log bbu:{}/log", dir.display()),
            false => "--log drives".to_owned(),
        };
        json(dir, &format!("pool create {pool} {of} {how} {log}"));
        for volume in ["gone", "kept", "late"] {
            json(dir, &format!("volume create {pool}/{volume} --size 64MiB"));
        }
        for (volume, nsid) in ["kept", "late"].into_iter().zip([nsid, nsid + 10]) {
            let name = format!("{pool}/{volume}");
            json(dir, &format!("volume map {name} --subnqn {NQN} --nsid {nsid} --allow-any-host"));
            models.insert((name, nsid), Model::new(u64::from(nsid)));
        }
    }
    let mut served = Some(served);
    for round in 0..4 {
        let now = served.take().unwrap_or_else(|| Served::start(dir, port));
        for ((_, nsid), model) in &mut models {
            let volume = now.open(*nsid);
            (0..CHANGES).for_each(|_| model.change(&volume));
            volume.shut_down().unwrap();
        }
        for (pool, ..) in POOLS.iter().filter(|_| round == 1) {
            json(dir, &format!("volume delete {pool}/gone --yes"));
            json(dir, &format!("volume create {pool}/new --size 1GiB"));
        }
        // By turns in order, and by kill -9, which is how it ends.
        if round % 2 == 0 {
            now.daemon.stop();
        }
    }
    models.into_iter().map(|((name, _), model)| (name, Model::bytes(&model.words))).collect()
}

/// Packs what the devices in `dir` hold, and what the volumes should.
fn keep(dir: &Path, contents: &BTreeMap<String, Vec<u8>>, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for name in POOLS.iter().flat_map(|(.., devices)| *devices) {
        fs::write(to.join(name), pack(&fs::read(dir.join(name)).unwrap())).unwrap();
    }
    for (name, bytes) in contents {
        fs::write(to.join(name.replace('/', ".")), pack(bytes)).unwrap();
    }
}

/// What a volume holds.
fn read(volume: &client::Namespace) -> Vec<u8> {
    let mut bytes = vec![0xa5; usize::try_from(SIZE).unwrap() * BLOCK];
    for (n, part) in bytes.chunks_mut(BLOCK << 5).enumerate() {
        volume.read(u64::try_from(n << 5).unwrap(), part).unwrap();
    }
    bytes
}

/// Opens what was kept in `from`: everything is there, before and after more was written.
fn open_kept(from: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let mut served = Served::start(dir, port);
    for (pool, _, devices) in &POOLS {
        for name in *devices {
            unpack_to(&from.join(name), &dir.join(name));
        }
        let of = drives(devices).map(|name| format!("--drive {}/{name}", dir.display()));
        let mut of = of.collect::<Vec<_>>().join(" ");
        if devices.contains(&"log") {
            of.push_str(&format!(" --log bbu:{}/log", dir.display()));
        }
        let dumped = json(dir, &format!("pool dump {of} --data"));
        assert_eq!(dumped["summary"]["clean"], true, "{}, {pool}: {dumped}", from.display());
        // It was killed: nobody says that it has the pool no more.
        json(dir, &format!("pool import {of} --force"));
    }
    let mut expected = BTreeMap::new();
    for ((pool, ..), nsid) in POOLS.iter().zip(1_u32..) {
        let listed = json(dir, "volume list");
        let names = listed.as_array().unwrap().iter().map(|volume| volume["name"].as_str());
        let mut names: Vec<_> = names.flatten().filter(|n| n.starts_with(pool)).collect();
        names.sort_unstable();
        assert_eq!(names, ["kept", "late", "new"].map(|volume| format!("{pool}/{volume}")));
        for (volume, nsid) in ["kept", "late"].into_iter().zip([nsid, nsid + 10]) {
            let name = format!("{pool}/{volume}");
            json(dir, &format!("volume map {name} --subnqn {NQN} --nsid {nsid} --allow-any-host"));
            let mut bytes = unpack(&fs::read(from.join(name.replace('/', "."))).unwrap());
            bytes.resize(usize::try_from(SIZE).unwrap() * BLOCK, 0);
            expected.insert(nsid, (name, bytes));
        }
    }
    for round in 0..3_u8 {
        for (nsid, (name, bytes)) in &mut expected {
            let volume = served.open(*nsid);
            let found = read(&volume);
            let differs = (0..found.len() / BLOCK)
                .find(|n| found[n * BLOCK..][..BLOCK] != bytes[n * BLOCK..][..BLOCK]);
            assert_eq!(differs, None, "{}, {name}, start {round}", from.display());
            let part = usize::from(round) << 20..(usize::from(round) << 20) + (3 << 20);
            bytes[part.clone()].fill(round + 1);
            let at = u64::try_from(part.start / BLOCK).unwrap();
            volume.write(at, &bytes[part], client::Fua::No).unwrap();
            volume.shut_down().unwrap();
        }
        served.daemon.stop();
        served = Served::start(dir, port);
    }
}

#[test]
fn pools_of_earlier_versions_open_with_all_they_hold() {
    let kept = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/images"));
    let mut names: Vec<_> = fs::read_dir(kept).unwrap().map(|f| f.unwrap().path()).collect();
    names.sort_unstable();
    assert!(!names.is_empty());
    names.iter().for_each(|from| open_kept(from));
}

#[test]
fn pools_of_this_version_open_from_what_is_kept_of_them() {
    let (dir, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let contents = live(dir.path());
    keep(dir.path(), &contents, kept.path());
    open_kept(kept.path());
    if let Some(to) = std::env::var_os("FLASHLOOM_KEEP_IMAGES") {
        keep(dir.path(), &contents, Path::new(&to));
    }
}
