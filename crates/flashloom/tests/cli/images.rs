//! Pools as earlier versions left them, kept in `tests/images`: from format 3 on, every version opens them, has all that
//! is in them, and goes on writing to them.
//!
//! Each folder there has what the pools' devices held, packed, what volumes and snapshots hold, and what was told of them
//! (`told.json`). The same that made them (`life`) is tried with every version's own pools, too;
//! `FLASHLOOM_KEEP_IMAGES=DIR` keeps those.
//!
//! **A new set is taken beside those that are there** whenever something new can lie on media (a kind of object, of
//! record, of window, of log, or fields of them that meant nothing before), in the commit that brings it: `life::live`
//! makes such a thing, `told` or what is read shows it, and the folder is called after the format and what came. Sets are
//! never made anew and never deleted while the format is one that versions open. Not among them yet: a log on a namespace
//! of another target, whose bytes are those of one on drives.

use super::*;
use std::collections::BTreeMap;
use std::path::PathBuf;

mod life;
use life::live;

const NQN: &str = "nqn.2026-11.io.flashloom:kept";
const BLOCK: usize = 4096;

/// How a pool is made: its name, how, and the devices that hold it.
const POOLS: [(&str, &str, &[&str]); 2] = [
    ("wide", "--raid raid6 --shards 2 --log-size 16MiB", &["d0", "d1", "d2", "d3", "d4"]),
    ("pair", "--raid mirror --shards 1 --log-size 8MiB", &["m0", "m1", "log"]),
];
const DRIVE_BYTES: &str = "192MiB";
/// What was told of volumes, snapshots and groups when a set was kept.
const TOLD: &str = "told.json";
/// What is read of a volume after further starts: hosts wrote nothing behind it.
const SEEN_AGAIN: usize = 12 << 20;

fn drives(devices: &'static [&'static str]) -> impl Iterator<Item = &'static str> {
    devices.iter().copied().filter(|name| *name != "log")
}

/// A device's contents as runs of the same eight bytes: how many times, in four bytes, and those. Little-endian.
fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut runs: Vec<(u32, &[u8])> = Vec::new();
    for block in bytes.chunks(BLOCK) {
        // Most blocks are of one word, and compared as a whole: a device has millions of words.
        let is_one = block[..block.len() - 8] == block[8..];
        let step = if is_one { block.len() } else { 8 };
        let times = u32::try_from(step / 8).unwrap();
        for word in block.chunks_exact(8).step_by(step / 8) {
            match runs.last_mut() {
                Some((count, last)) if *last == word => *count += times,
                _ => runs.push((times, word)),
            }
        }
    }
    runs.iter().flat_map(|(times, word)| [&times.to_le_bytes()[..], word].concat()).collect()
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
    for (n, block) in bytes.chunks(BLOCK).enumerate().filter(|(_, block)| **block != [0; BLOCK]) {
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

    fn open(&self, nsid: u32, how: &[(&str, &str)]) -> client::Namespace {
        let mut options = client::Options::default();
        how.iter().for_each(|(name, value)| options.set(name, value).unwrap());
        options.set("trsvcid", &self.port.to_string()).unwrap();
        options.set("subnqn", NQN).unwrap();
        client::Namespace::open(&options, nsid).unwrap()
    }
}

/// Makes a volume or a snapshot a namespace.
fn map(dir: &Path, what: &str, nsid: u32) {
    json(dir, &format!("{what} --subnqn {NQN} --nsid {nsid} --allow-any-host"));
}

/// What is told of all there is in the pools, without what changes by itself.
fn told(dir: &Path) -> Value {
    let keys = [
        "name",
        "size",
        "block_size",
        "origin",
        "group",
        "quota",
        "reserve",
        "reserve_all",
        "snapshots",
        "volumes",
    ];
    let of_pool = |one: &Value| POOLS.iter().any(|(pool, ..)| in_pool(one, pool));
    let list = |kind: &str| {
        let listed = json(dir, &format!("{kind} list"));
        let listed = listed.as_array().unwrap().iter().filter(|one| of_pool(one));
        let only = |one: &Value| {
            let kept = keys.iter().filter(|key| !one[**key].is_null());
            kept.map(|key| ((*key).to_owned(), one[*key].clone())).collect::<Value>()
        };
        let mut listed: Vec<Value> = listed.map(only).collect();
        listed.sort_by_key(|one| one["name"].as_str().map(str::to_owned));
        (kind.to_owned(), Value::Array(listed))
    };
    ["volume", "snapshot", "group"].map(list).into_iter().collect()
}

fn in_pool(one: &Value, pool: &str) -> bool {
    one["name"].as_str().unwrap().split_once('/').is_some_and(|(is, _)| is == pool)
}

/// Files of a direct write window, which are beside the log, and as much a part of the pool.
fn window_files(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.contains(".window-")).collect()
}

/// Packs what the devices in `dir` hold, and what volumes and snapshots should; and keeps what was told of them.
fn keep(dir: &Path, contents: &BTreeMap<String, Vec<u8>>, told: &Value, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let devices = POOLS.iter().flat_map(|(.., devices)| *devices).map(|name| (*name).to_owned());
    for name in devices.chain(window_files(dir)) {
        fs::write(to.join(&name), pack(&fs::read(dir.join(&name)).unwrap())).unwrap();
    }
    for (name, bytes) in contents {
        fs::write(to.join(name.replace('/', ".")), pack(bytes)).unwrap();
    }
    fs::write(to.join(TOLD), format!("{told:#}\n")).unwrap();
}

/// What a namespace holds from its beginning on.
fn read(volume: &client::Namespace, bytes: usize) -> Vec<u8> {
    let mut data = vec![0xa5; bytes];
    for (n, part) in data.chunks_mut(BLOCK << 5).enumerate() {
        volume.read(u64::try_from(n << 5).unwrap(), part).unwrap();
    }
    data
}

/// Has a daemon take the pools that were kept in `from`.
fn import(from: &Path, dir: &Path) {
    window_files(from).iter().for_each(|name| unpack_to(&from.join(name), &dir.join(name)));
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
}

/// A namespace, and what it should hold.
struct Expected {
    nsid: u32,
    name: String,
    bytes: Vec<u8>,
    is_snapshot: bool,
}

/// Maps everything that was told of, whose contents are those in `from`.
fn expected(from: &Path, dir: &Path, told: &Value) -> Vec<Expected> {
    let mut all = Vec::new();
    for kind in ["volume", "snapshot"] {
        for one in told[kind].as_array().unwrap() {
            let name = one["name"].as_str().unwrap().to_owned();
            let file = from.join(name.replace('/', "."));
            // Of one that nobody ever wrote to nothing was kept, and a part is read.
            let packed = fs::read(file).ok();
            let size = usize::try_from(one["size"].as_u64().unwrap()).unwrap();
            let size = if packed.is_some() { size } else { size.min(SEEN_AGAIN) };
            let mut bytes = packed.map_or(Vec::new(), |packed| unpack(&packed));
            bytes.resize(size, 0);
            let nsid = u32::try_from(all.len()).unwrap() + 1;
            map(dir, &format!("{kind} map {name}"), nsid);
            all.push(Expected { nsid, name, bytes, is_snapshot: kind == "snapshot" });
        }
    }
    all
}

/// Opens what was kept in `from`: everything is there, before and after more was written.
fn open_kept(from: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let mut served = Served::start(dir, port);
    import(from, dir);
    let kept: Value = serde_json::from_slice(&fs::read(from.join(TOLD)).unwrap()).unwrap();
    assert_eq!(told(dir), kept, "{}", from.display());
    assert_eq!(window_files(dir), [""; 0], "what a window took is in the log");
    let mut expected = expected(from, dir, &kept);
    for round in 0..3_u8 {
        for Expected { nsid, name, bytes, is_snapshot } in &mut expected {
            let volume = served.open(*nsid, &[]);
            // All of it once, then where something is.
            let len = if round == 0 { bytes.len() } else { bytes.len().min(SEEN_AGAIN) };
            let found = read(&volume, len);
            let differs = (0..len / BLOCK)
                .find(|n| found[n * BLOCK..][..BLOCK] != bytes[n * BLOCK..][..BLOCK]);
            assert_eq!(differs, None, "{}, {name}, start {round}", from.display());
            if !*is_snapshot {
                let part = usize::from(round) << 20..(usize::from(round) << 20) + (3 << 20);
                bytes[part.clone()].fill(round + 1);
                let at = u64::try_from(part.start / BLOCK).unwrap();
                volume.write(at, &bytes[part], client::Fua::No).unwrap();
            }
            volume.shut_down().unwrap();
        }
        served.daemon.stop();
        served = Served::start(dir, port);
    }
    assert_eq!(told(dir), kept, "{}, after it was written to", from.display());
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
    let (contents, told) = live(dir.path());
    assert!(!window_files(dir.path()).is_empty(), "the daemon was killed with a window");
    keep(dir.path(), &contents, &told, kept.path());
    open_kept(kept.path());
    if let Some(to) = std::env::var_os("FLASHLOOM_KEEP_IMAGES") {
        keep(dir.path(), &contents, &told, Path::new(&to));
    }
}
