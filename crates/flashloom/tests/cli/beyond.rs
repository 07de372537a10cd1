//! More drives fail than the redundancy bears, and answer again: what can be read is meanwhile, and the rest waits; the
//! daemon opens the pool again by itself, and what was acknowledged is there.

use super::crash::Load;
use super::shelf::Shelf;
use super::*;

const DRIVES: usize = 6;
const NQN: &str = "nqn.2026-11.io.flashloom:beyond";

/// More than any of this takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Between two looks at the pool.
const LOOK: Duration = Duration::from_millis(50);

/// Bytes that the journal grows by while all is well.
const NOTED: u64 = 16_000;

/// Waits until the pool's health is that.
fn wait_until(dir: &Path, health: &str) {
    let begun = SystemTime::now();
    loop {
        let pool = json(dir, "pool show fast");
        if pool["health"] == health {
            return;
        }
        let events = || json(dir, "events");
        assert!(begun.elapsed().unwrap() < PATIENCE, "not {health}: {pool:#}\n{:#}", events());
        std::thread::park_timeout(LOOK);
    }
}

#[test]
fn a_pool_beyond_its_redundancy_comes_back_without_a_restart_and_has_everything() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut shelf = Shelf::of_files(dir);
    if !shelf.can_pull_hot() {
        eprintln!("skipped: no file can be made to refuse changes here");
        return;
    }
    let port = free_port();
    let serve = format!("serve memory:1MiB --listen 127.0.0.1:{port} --discovery off");
    let daemon = Daemon::start(dir, &serve);
    let drives: Vec<_> =
        (0..DRIVES).map(|n| format!("--drive {},size=256MiB", shelf.at(n).display())).collect();
    json(dir, &format!("pool create fast {} --raid raid6 --shards 2", drives.join(" ")));
    json(dir, "volume create fast/v --size 64MiB");
    json(dir, &format!("volume map fast/v --subnqn {NQN} --allow-any-host"));
    let at = format!("--traddr 127.0.0.1 --trsvcid {port} --subnqn {NQN}");
    let to = format!("{at} --poll interrupt");
    // What is used of it is counted anew.
    let identity = || {
        let mut identity = json(dir, &format!("id-ns {at} --nsid 1"));
        identity.as_object_mut().unwrap().remove("nuse");
        identity
    };
    let before = identity();
    let load = "--rw randwrite --bs 8k --iodepth 8 --rate-iops 1500 --verify --size 64MiB";
    for (round, failing) in [&[0, 1, 2, 3, 4, 5][..], &[4, 5, 3]].into_iter().enumerate() {
        let journal = dir.join(format!("acks{round}"));
        let load = format!("{load} --runtime 60m --reconnect 120s {to}");
        let mut load = Load::keeping(dir, journal.clone(), &load);
        assert!(load.goes_on(NOTED));
        failing.iter().for_each(|&drive| shelf.pull_hot(drive));
        wait_until(dir, "beyond-redundancy");
        failing.iter().for_each(|&drive| shelf.give_back(drive, false));
        wait_until(dir, "online");
        until_event(dir, "pool fast is opened again: its drives answer");
        // Hosts held back what they had, and none of it failed.
        assert!(load.goes_on(NOTED));
        drop(load);
        assert_eq!(identity(), before);
        let check = format!("bench --check --journal {} {to}", journal.display());
        let verify = json(dir, &check)["jobs"][0]["flashloom"]["verify"].take();
        assert_eq!(verify["verified_bytes"], verify["acknowledged_bytes"], "{verify}");
        assert!(verify["verified_bytes"].as_u64().unwrap() > 1 << 20, "{verify}");
    }
    daemon.stop();
}

/// Bytes of the volume that is read, and of each read.
const BYTES: usize = 64 << 20;
const BLOCK: usize = 4096;

/// From one block that is read to the next, in blocks.
const STEP: usize = 32;

/// Longer than the daemon lets a command wait for drives, twice.
const IN_VAIN: Duration = Duration::from_secs(12);

/// What a block holds.
fn contents(block: usize) -> Vec<u8> {
    u64::try_from(block).unwrap().to_le_bytes().repeat(BLOCK / 8)
}

fn errors_of(dir: &Path, operation: &str) -> u64 {
    let wanted = format!("operation=\"{operation}\"");
    let text = scrape(dir);
    let mut lines = text
        .lines()
        .filter(|line| line.starts_with("flashloom_subsystem_errors_total") && line.contains(NQN));
    let line = lines.find(|line| line.contains(&wanted));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

/// Reads some blocks all over the volume and writes one; those that have ended.
struct Commands {
    queue: client::Queue,
    read: std::collections::BTreeSet<usize>,
    is_written: bool,
}

/// The block that is written.
const WRITTEN: usize = 7;

impl Commands {
    fn submit(namespace: &client::Namespace) -> Self {
        let mut queue = namespace.queue(1024).unwrap();
        let buffer = |block| {
            let mut buffer = client::Buffer::new(BLOCK);
            buffer.copy_from_slice(&contents(block));
            buffer
        };
        for block in (0..BYTES / BLOCK).step_by(STEP) {
            let lba = u64::try_from(block).unwrap();
            let read = client::Command::Read { lba, blocks: 1, buffer: buffer(block + 1) };
            queue.submit(lba, read).unwrap();
        }
        let buffer = buffer(WRITTEN + 1);
        let write = client::Command::Write { lba: 7, blocks: 1, buffer, fua: client::Fua::No };
        queue.submit(u64::MAX, write).unwrap();
        Self { queue, read: std::collections::BTreeSet::new(), is_written: false }
    }

    /// Waits until none has ended for so long, or all have.
    fn reap(&mut self, patience: Duration) {
        let (read, is_written) = (&mut self.read, &mut self.is_written);
        let mut ended = |end: client::Completion| {
            end.result.unwrap();
            match usize::try_from(end.user).unwrap() {
                usize::MAX => *is_written = true,
                block => {
                    assert!(end.buffer.unwrap()[..] == contents(block), "block {block}");
                    assert!(read.insert(block));
                }
            }
        };
        while self.queue.wait(1, Some(patience), &mut ended) > 0 {}
    }
}

#[test]
fn what_can_be_read_is_while_drives_are_away_and_all_else_waits_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut shelf = Shelf::of_files(dir);
    if !shelf.can_pull_hot() {
        eprintln!("skipped: no file can be made to refuse changes here");
        return;
    }
    let port = free_port();
    let serve = format!("serve memory:1MiB --listen 127.0.0.1:{port} --discovery off");
    let daemon = Daemon::start(dir, &serve);
    let drives: Vec<_> =
        (0..4).map(|n| format!("--drive {},size=256MiB", shelf.at(n).display())).collect();
    let drives = drives.join(" ");
    json(dir, &format!("pool create fast {drives} --raid raid5 --shards 1 --log-size 16MiB"));
    json(dir, "volume create fast/v --size 64MiB --block-size 4096");
    json(dir, &format!("volume map fast/v --subnqn {NQN} --allow-any-host"));
    let mut options = client::Options::default();
    options.set("trsvcid", &port.to_string()).unwrap();
    options.set("subnqn", NQN).unwrap();
    let namespace = client::Namespace::open(&options, 1).unwrap();
    let all: Vec<u8> = (0..BYTES / BLOCK).flat_map(contents).collect();
    for (piece, at) in all.chunks(1 << 20).zip((0_u64..).step_by(256)) {
        namespace.write(at, piece, client::Fua::No).unwrap();
    }

    // Which pages of the map are in memory is known to those who have read: what only drives have may be lost with them.
    for _ in 0..2 {
        let mut got = vec![0; 1 << 20];
        for (piece, at) in all.chunks(1 << 20).zip((0_u64..).step_by(256)) {
            namespace.read(at, &mut got).unwrap();
            assert!(got == piece);
        }
    }

    // Three take no writes, and two of them have nothing any more.
    (0..3).for_each(|drive| shelf.pull_hot(drive));
    let mut commands = Commands::submit(&namespace);
    wait_until(dir, "beyond-redundancy");
    (0..2).for_each(|drive| shelf.empty(drive));
    let mut later = Commands::submit(&namespace);
    // Should this fail, it ends first, and with it what waits for it.
    let daemon = daemon;
    later.reap(IN_VAIN);
    let (served, there) = (later.read.len(), BYTES / BLOCK / STEP);
    assert!(served > there / 8 && served < there - there / 8, "{served} of {there}");
    assert!(!later.is_written);
    // They waited no longer than that, and hosts were told to send them again.
    rig::wait_until("errors are told", || {
        errors_of(dir, "read") > 0 && errors_of(dir, "write") > 0
    });
    assert_eq!(json(dir, "volume show fast/v")["state"], "waiting");
    namespace.flush().unwrap();

    (0..2).for_each(|drive| shelf.put_back(drive));
    shelf.give_back(2, false);
    wait_until(dir, "online");
    for commands in [&mut later, &mut commands] {
        commands.reap(PATIENCE);
        assert!(commands.is_written && commands.read.len() == there);
    }
    assert_eq!(json(dir, "volume show fast/v")["state"], "online");
    for (block, wanted) in all.chunks(BLOCK).enumerate() {
        let mut got = vec![0; BLOCK];
        namespace.read(u64::try_from(block).unwrap(), &mut got).unwrap();
        let wanted = if block == WRITTEN { &contents(WRITTEN + 1)[..] } else { wanted };
        assert!(got == wanted, "block {block}");
    }
    daemon.stop();
}
