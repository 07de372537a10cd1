//! RAID at the host over real daemons: the attached set killed with -9 under load, targets killed, too, and
//! nothing that was answered is lost.
//!
//! `FLASHLOOM_KILLS` says how often, `FLASHLOOM_SEED` from which seed.

use super::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::SystemTime;
use stdx::Prng;

const BLOCK: usize = 4096;

/// Of all programs that use a set: after three times that, nothing of one that was killed is executed.
pub const KEEP_ALIVE: &str = "--keep-alive-tmo 1s";

/// A client of NBD: requests in flight, and what each block may hold.
pub struct Client {
    socket: UnixStream,
    flying: BTreeMap<u64, (Range<usize>, u64)>,
    cookie: u64,
}

impl Client {
    pub fn new(path: &Path) -> Self {
        let mut socket = UnixStream::connect(path).unwrap();
        let mut hello = [0; 18];
        socket.read_exact(&mut hello).unwrap();
        assert_eq!(hello[..16], *b"NBDMAGICIHAVEOPT");
        let option: [&[u8]; 4] = [&[0, 0, 0, 3], b"IHAVEOPT", &[0, 0, 0, 1], &[0; 4]];
        socket.write_all(&option.concat()).unwrap();
        let mut export = [0; 10];
        socket.read_exact(&mut export).unwrap();
        Self { socket, flying: BTreeMap::new(), cookie: 0 }
    }

    fn ask(&mut self, kind: u16, at: usize, len: usize, data: &[u8]) {
        self.cookie += 1;
        let mut request = Vec::from(0x2560_9513_u32.to_be_bytes());
        request.extend(u32::from(kind).to_be_bytes());
        request.extend(self.cookie.to_be_bytes());
        request.extend((at as u64).to_be_bytes());
        request.extend(u32::try_from(len).unwrap().to_be_bytes());
        request.extend(data);
        self.socket.write_all(&request).unwrap();
    }

    /// The next reply's cookie.
    fn reply(&mut self) -> u64 {
        self.reply_within(None).unwrap()
    }

    /// The same, if one comes within that time.
    fn reply_within(&mut self, time: Option<Duration>) -> Option<u64> {
        self.socket.set_read_timeout(time).unwrap();
        let mut reply = [0; 16];
        match self.socket.read_exact(&mut reply) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return None,
            read => read.unwrap(),
        }
        assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], "an error");
        Some(u64::from_be_bytes(reply[8..].try_into().unwrap()))
    }

    fn read(&mut self, blocks: Range<usize>) -> Vec<u8> {
        let mut data = vec![0; blocks.len() * BLOCK];
        self.ask(0, blocks.start * BLOCK, data.len(), &[]);
        assert_eq!(self.reply(), self.cookie);
        self.socket.read_exact(&mut data).unwrap();
        data
    }
}

/// For each block the stamps that may be in it.
pub struct Contents(pub Vec<Vec<u64>>);

impl Contents {
    /// Writes until `count` requests were sent; some are in flight then.
    pub fn load(&mut self, client: &mut Client, prng: &mut Prng, count: u64) {
        for _ in 0..count {
            let len = 1 + usize::try_from(prng.below(24)).unwrap();
            let from = usize::try_from(prng.below((self.0.len() - len) as u64)).unwrap();
            let blocks = from..from + len;
            let overlaps = |flying: &(Range<usize>, u64)| {
                flying.0.start < blocks.end && blocks.start < flying.0.end
            };
            while client.flying.len() >= 8 || client.flying.values().any(overlaps) {
                let (blocks, stamp) = client.reply_to();
                blocks.for_each(|block| self.0[block] = vec![stamp]);
            }
            let stamp = prng.next_u64() | 1;
            blocks.clone().for_each(|block| self.0[block].push(stamp));
            let data: Vec<u8> = (0..len * BLOCK / 8).flat_map(|_| stamp.to_be_bytes()).collect();
            client.ask(1, from * BLOCK, data.len(), &data);
            client.flying.insert(client.cookie, (blocks, stamp));
        }
    }

    /// Whether every request is answered, none of them later than that after the one before.
    pub fn settles_within(&mut self, client: &mut Client, time: Duration) -> bool {
        while !client.flying.is_empty() {
            let Some(cookie) = client.reply_within(Some(time)) else { return false };
            let (blocks, stamp) = client.flying.remove(&cookie).unwrap();
            blocks.for_each(|block| self.0[block] = vec![stamp]);
        }
        true
    }

    /// Reads all of it when every request has been answered.
    pub fn verify_all(&mut self, client: &mut Client) {
        while !client.flying.is_empty() {
            let (blocks, stamp) = client.reply_to();
            blocks.for_each(|block| self.0[block] = vec![stamp]);
        }
        self.verify(client);
    }

    /// Reads all of it: what was answered is there.
    pub fn verify(&mut self, client: &mut Client) {
        for from in (0..self.0.len()).step_by(64) {
            let blocks = from..self.0.len().min(from + 64);
            let data = client.read(blocks.clone());
            for (block, bytes) in blocks.zip(data.chunks_exact(BLOCK)) {
                let stamp = u64::from_be_bytes(bytes[..8].try_into().unwrap());
                assert!(self.0[block].contains(&stamp), "block {block} holds {stamp}");
                assert!(bytes.chunks_exact(8).all(|word| *word == bytes[..8]), "block {block}");
                self.0[block] = vec![stamp];
            }
        }
    }
}

impl Client {
    fn reply_to(&mut self) -> (Range<usize>, u64) {
        let cookie = self.reply();
        self.flying.remove(&cookie).unwrap()
    }
}

/// The program that serves a set, or a namespace; killed with -9 when dropped.
pub struct Attached {
    child: Child,
    pub socket: PathBuf,
}

impl Attached {
    fn start(dir: &Path, members: &str, more: &str) -> Self {
        Self::of(dir, &format!("{members} {more} --fast-io-fail-tmo 1s"))
    }

    /// Of whatever the arguments say.
    pub fn of(dir: &Path, arguments: &str) -> Self {
        let socket = dir.join("nbd.sock");
        let nbd = format!("attach --nbd unix:{} {arguments}", socket.display());
        let mut child = flashloom(dir, &format!("{nbd} {KEEP_ALIVE} --reconnect-delay 1s"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.any(|line| line.unwrap().starts_with("nbdinfo"));
        assert!(ready, "the set is not served");
        Self { child, socket }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A target with one member.
fn target(dir: &Path, n: usize, port: u16) -> Daemon {
    let own = dir.join(format!("t{n}"));
    fs::create_dir_all(&own).unwrap();
    let drive = format!("drive:{},size=20MiB", own.join("drive").display());
    let listen = format!("--listen 127.0.0.1:{port} --discovery off");
    Daemon::start(&own, &format!("serve {drive} {listen}"))
}

/// Targets with a member each, and the set of them.
struct Members {
    dir: PathBuf,
    ports: Vec<u16>,
    targets: Vec<Option<Daemon>>,
}

impl Members {
    fn new(dir: &Path, count: usize) -> Self {
        let ports: Vec<_> = (0..count).map(|_| free_port()).collect();
        let mut members = Self { dir: dir.to_owned(), ports, targets: Vec::new() };
        members.targets.resize_with(count, || None);
        (0..count).for_each(|n| members.start(n));
        members
    }

    /// As arguments, those from `first` on.
    fn arguments(&self, first: usize) -> String {
        let member = |port: &u16| format!("--member traddr=127.0.0.1,trsvcid={port}");
        self.ports[first..].iter().map(member).collect::<Vec<_>>().join(" ")
    }

    fn start(&mut self, n: usize) {
        self.targets[n] = Some(target(&self.dir, n, self.ports[n]));
    }

    fn kill(&mut self, n: usize) {
        self.targets[n] = None;
    }

    fn attach(&self, more: &str) -> (Attached, Client) {
        let attached = Attached::start(&self.dir, &self.arguments(0), more);
        let client = Client::new(&attached.socket);
        (attached, client)
    }

    /// Reads all of it, and finds parity and copies true.
    fn check(&self) {
        let checked = json(&self.dir, &format!("raid check {} {KEEP_ALIVE}", self.arguments(0)));
        assert_eq!((&checked["mismatched"], &checked["degraded"]), (&0.into(), &0.into()));
        assert!(checked["stripes"].as_u64().unwrap() > 0);
    }

    /// Asks the members until all of them say that all of them have everything.
    fn until_in_sync(&self) {
        let show = format!("raid show {}", self.arguments(0));
        let whole = |one: &Value| {
            one["state"] == "in sync" && one["missing"].as_array().is_some_and(Vec::is_empty)
        };
        let all = || json(&self.dir, &show).as_array().unwrap().iter().all(whole);
        assert!((0..1000).any(|_| all()), "{}", json(&self.dir, &show));
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// Kills the host of a set of `count` members and as many targets as `level` bears, again and again.
fn outlives(level: &str, count: usize, bears: usize) {
    let mut prng = Prng::new(number("FLASHLOOM_SEED", 1));
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut set = Members::new(dir, count);
    let create = format!("raid create --name db --level {level} --chunk 16k {}", set.arguments(0));
    let shown = json(dir, &create);
    assert_eq!((&shown[0]["level"], &shown[1]["slot"]), (&level.into(), &1.into()));
    let (code, said) = failure(dir, &create);
    assert!(code == 1 && said.contains("belongs to the set db"), "{said}");
    let (_, said) = failure(dir, &format!("raid check {}", set.arguments(1)));
    assert!(said.contains("--degraded"), "{said}");

    let mut contents = Contents(vec![vec![0]; 1024]);
    for round in 0..number("FLASHLOOM_KILLS", 3) {
        let (attached, mut client) = set.attach("");
        contents.verify(&mut client);
        contents.load(&mut client, &mut prng, 150);
        assert!(!client.flying.is_empty());
        let first = usize::try_from(round).unwrap();
        let victims: Vec<_> = (first..first + bears).map(|n| n % count).collect();
        // With requests in flight the targets die, and the host soon enough not to know, or after it went on without them.
        victims.iter().for_each(|&n| set.kill(n));
        if prng.below(2) == 0 {
            contents.load(&mut client, &mut prng, 60);
        }
        drop(attached);
        let (attached, mut client) = set.attach("--degraded");
        contents.verify(&mut client);
        contents.load(&mut client, &mut prng, 60);
        drop(attached);
        victims.iter().for_each(|&n| set.start(n));
        json(dir, &format!("raid rebuild {} {KEEP_ALIVE}", set.arguments(0)));
        set.check();
    }
    // A target that comes back while the set is in use gets what it missed.
    let (attached, mut client) = set.attach("");
    contents.verify(&mut client);
    set.kill(1);
    contents.load(&mut client, &mut prng, 60);
    set.start(1);
    set.until_in_sync();
    contents.load(&mut client, &mut prng, 60);
    drop(attached);
    let (attached, mut client) = set.attach("");
    contents.verify(&mut client);
    drop(attached);
    set.check();
}

#[test]
fn a_mirror_outlives_kill_9_of_its_host_and_of_a_target() {
    outlives("raid1", 2, 1);
}

#[test]
fn raid5_outlives_kill_9_of_its_host_and_of_a_target() {
    outlives("raid5", 3, 1);
}

#[test]
fn raid6_outlives_kill_9_of_its_host_and_of_two_targets() {
    outlives("raid6", 4, 2);
}

#[test]
fn two_hosts_cannot_use_a_set_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let set = Members::new(dir, 2);
    json(dir, &format!("raid create --name db --level raid1 --chunk 16k {}", set.arguments(0)));
    let (attached, mut client) = set.attach("");
    let mut contents = Contents(vec![vec![0]; 256]);
    contents.load(&mut client, &mut Prng::new(1), 20);
    // Another program of this host; another host, which may look.
    let check = format!("raid check {}", set.arguments(0));
    let (code, said) = failure(dir, &check);
    assert!(code == 1 && said.contains("another program of this machine"), "{said}");
    let other = "--hostnqn nqn.2026-11.io.flashloom:other";
    drop(attached);
    // It was killed: what it holds, it holds.
    let (code, said) = failure(dir, &format!("{check} {other}"));
    assert!(code == 1 && said.contains("--take-over") && said.contains("another host"), "{said}");
    let shown = json(dir, &format!("raid show {} {other}", set.arguments(0)));
    assert_eq!(shown[0]["state"], "in sync");
    // The same host goes on, when what the killed program had in flight has ended. One that ends in order leaves nothing.
    let begin = SystemTime::now();
    set.check();
    let waited = begin.elapsed().unwrap();
    assert!(waited >= Duration::from_secs(3), "{waited:?}");
    json(dir, &format!("{check} {other}"));
    // Taken over, the first one is out.
    let (attached, _) = set.attach("");
    drop(attached);
    json(dir, &format!("{check} {other} --take-over"));
    let (attached, mut client) = set.attach("");
    contents.verify(&mut client);
    drop(attached);
}

#[test]
fn a_stripe_set_holds_data_and_a_blank_namespace_takes_a_members_place() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut prng = Prng::new(3);
    let set = Members::new(dir, 3);
    let create = |level: &str, of: &str, more: &str| {
        json(dir, &format!("raid create --name db --level {level} --chunk 16k {of} {more}"))
    };
    create("raid0", &set.arguments(0), "");
    let (attached, mut client) = set.attach("");
    let mut contents = Contents(vec![vec![0]; 1024]);
    contents.load(&mut client, &mut prng, 150);
    contents.verify_all(&mut client);
    drop(attached);
    let (attached, mut client) = set.attach("");
    contents.verify(&mut client);
    drop(attached);
    let (_, said) = failure(dir, &format!("raid check --degraded {}", set.arguments(1)));
    assert!(said.contains("too few"), "{said}");

    // A mirror of two of them; the third takes the place of one that is gone.
    let mut set = Members::new(&dir.join("mirror"), 3);
    let of = set.arguments(1);
    create("raid1", &of, "");
    let attached = Attached::start(dir, &of, "");
    let mut client = Client::new(&attached.socket);
    let mut contents = Contents(vec![vec![0]; 1024]);
    contents.load(&mut client, &mut prng, 150);
    contents.verify_all(&mut client);
    drop(attached);
    set.kill(1);
    let (left, new) = (set.arguments(2), set.ports[0]);
    let add = format!("--add traddr=127.0.0.1,trsvcid={new}");
    json(dir, &format!("raid rebuild --degraded {left} {add} {KEEP_ALIVE}"));
    let both = format!("{left} --member traddr=127.0.0.1,trsvcid={new}");
    let checked = json(dir, &format!("raid check {both}"));
    assert_eq!((&checked["mismatched"], &checked["degraded"]), (&0.into(), &0.into()));
    set.kill(2);
    let alone = format!("--member traddr=127.0.0.1,trsvcid={new} --degraded");
    let attached = Attached::start(dir, &alone, "");
    contents.verify(&mut Client::new(&attached.socket));
}
