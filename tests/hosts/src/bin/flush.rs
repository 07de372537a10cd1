//! RDMA FLUSH by `verbs`, both ends in this process: `flush ADDRESS DEVICE`, the device one of persistent memory. What is
//! written there and flushed is there; memory that was not registered for it cannot be flushed.
#![allow(
    clippy::disallowed_methods,
    reason = "time is the machine's, and the library's calls return at once: they are made again"
)]
use std::error::Error;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use verbs::{
    Answer, Completion, Dial, Domain, Endpoint, Exposed, Kept, Listener, Memory, Peers, Place,
    Reach, Remote, Sizes, Step,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PATIENCE: Duration = Duration::from_secs(30);

/// What can be mapped of a device, at least.
const BYTES: usize = 2 << 20;
/// Where in it is written, and how much: over the end of a page.
const AT: u64 = 4096 - 64;
const LENGTH: usize = 4096;
const ALL: Place = Place { offset: 0, length: LENGTH };
const SIZES: Sizes = Sizes { sends: 8, receives: 1, memory: 4096 };

fn until<T>(what: &str, mut call: impl FnMut() -> io::Result<Option<T>>) -> Result<T> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(there) = call()? {
            return Ok(there);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(format!("{what}: nothing in {PATIENCE:?}").into())
}

/// Two ends of a connection, and where the memory of the second one is.
struct Pair {
    host: Endpoint,
    staging: Arc<Memory>,
    _target: Endpoint,
    _exposed: [Exposed; 2],
    written: Remote,
    read: Remote,
}

impl Pair {
    /// The target's end exposes the file.
    fn of(listener: &Listener, to: SocketAddr, file: &File, kept: Kept) -> Result<Self> {
        let dial = Dial::start(to, PATIENCE)?;
        until("the way", || Ok(dial.next()?.filter(|step| *step == Step::Route)))?;
        let domain = Arc::new(Domain::open(to.ip())?);
        if !domain.can_flush() {
            return Err("this device has no RDMA FLUSH".into());
        }
        let staging = Arc::new(Memory::register(&domain, LENGTH, Reach::Ours)?);
        let host = Endpoint::to_connect(dial, &domain, &staging, SIZES, 4, true)?;
        if !host.can_flush() {
            return Err("its queue pairs cannot be made to flush".into());
        }
        host.connect(&[])?;
        let request = until("the request", || listener.accept())?;
        let theirs = Arc::new(Domain::open(to.ip())?);
        let exposed = [
            Exposed::of_fd(&theirs, file, BYTES, Peers::Write, kept)?,
            Exposed::of_fd(&theirs, file, BYTES, Peers::Read, kept)?,
        ];
        let shared = Arc::new(Memory::register(&theirs, 4096, Reach::Ours)?);
        let target = Endpoint::build(request, &theirs, &shared, SIZES)?;
        target.accept(&[], 4)?;
        match until("the answer", || host.next_answer())? {
            Answer::Taken(_) => {}
            other => return Err(format!("not taken: {other:?}").into()),
        }
        let [written, read] = [0, 1].map(|at| {
            let Remote { address, key } = exposed[at].remote();
            Remote { address: address + AT, key }
        });
        Ok(Self { host, staging, _target: target, _exposed: exposed, written, read })
    }

    /// Writes and flushes; what came of the flush.
    fn write_and_flush(&self, byte: u8) -> Result<std::result::Result<u32, u32>> {
        self.staging.copy_in(0, &[byte; LENGTH]);
        self.host.post_write(1, ALL, self.written)?;
        self.host.post_flush(2, self.written, LENGTH)?;
        self.end_of(2)
    }

    /// What is there.
    fn read(&self) -> Result<Vec<u8>> {
        self.host.post_read(3, ALL, self.read)?;
        self.end_of(3)?.map_err(|status| format!("a read failed: {status}"))?;
        let mut there = vec![0; LENGTH];
        self.staging.copy_out(0, &mut there);
        Ok(there)
    }

    fn end_of(&self, id: u64) -> Result<std::result::Result<u32, u32>> {
        let mut ended: Vec<Completion> = Vec::new();
        until("an end", || {
            self.host.poll(&mut ended)?;
            Ok(ended.iter().find(|one| one.id == id).map(|one| one.outcome))
        })
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [to, device] = &arguments[..] else { return Err("flush ADDRESS DEVICE".into()) };
    let to: SocketAddr = to.parse()?;
    let listener = Listener::bind(to)?;
    let device = File::options().read(true).write(true).open(device)?;
    let pair = Pair::of(&listener, to, &device, Kept::Flushed)?;
    for byte in 1..=20 {
        pair.write_and_flush(byte)?.map_err(|status| format!("a flush failed: {status}"))?;
        if pair.read()? != [byte; LENGTH] {
            return Err("something else is there".into());
        }
    }
    drop(pair);
    // Registered for it, that is; other memory is not flushed, whatever was written there.
    let other = tempfile::tempfile()?;
    other.set_len(u64::try_from(BYTES)?)?;
    let pair = Pair::of(&listener, to, &other, Kept::Seen)?;
    if pair.write_and_flush(7)?.is_ok() {
        return Err("memory was flushed that is not to be".into());
    }
    let mut there = vec![0; LENGTH];
    other.read_exact_at(&mut there, AT)?;
    if there != [7; LENGTH] {
        return Err("what was written before is not there".into());
    }
    Ok(())
}
