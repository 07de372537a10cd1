//! What NBD adds to a read: the same namespace by the library, and by `flashloom attach --nbd` and a client that
//! waits in the kernel, one read at a time, in turn.
//!
//! There are two CPUs for three programs: the target spins on the first, the other has the library's load, or the
//! NBD server and its client, none of which spins, as they would only keep each other from running.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use stdx::histogram::Histogram;
use stdx::prng::Prng;

use super::client::{self, median};
use super::process::{Process, favour};
use super::server::{Flashloom, Folder, Server};

/// The name of the case.
pub const NAME: &str = "nbd-qd1";

const BLOCK: usize = 4096;
const CPU: usize = 1;

/// How often it is looked whether the server is there, and for how long in all.
const PROBES: u32 = 200;
const PROBE: Duration = Duration::from_millis(25);

/// Measures it and prints it.
///
/// # Errors
/// What could not be started or understood, in words.
pub fn print(program: &Path, runs: usize, seconds: u32) -> Result<(), String> {
    let server = Flashloom::start(program, "busy")?;
    server.fill(program)?;
    let folder = Folder::new("flashloom-compare")?;
    let socket = format!("{}/nbd", folder.0);
    let words = format!(
        "attach --nbd unix:{socket} --traddr 127.0.0.1 --trsvcid {} --subnqn {} --nsid {} --cpu {CPU} \
         --poll interrupt",
        server.port(),
        server.nqn(),
        server.nsid()
    );
    let args: Vec<_> = words.split_whitespace().collect();
    let _attached = Process::start(&program.display().to_string(), &args)?;
    favour(std::process::id());
    // On a thread of its own: what is started from here on would take after a pinned one.
    let read = || {
        reactor::pin_thread(CPU).map_err(|e| format!("cannot run on CPU {CPU}: {e}"))?;
        Nbd::connect(Path::new(&socket))?.p50(seconds)
    };
    let (mut library, mut through, mut floor) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs {
        library.push(client::read_waiting(program, seconds, &server)?);
        let measured = std::thread::scope(|scope| scope.spawn(read).join());
        through.push(measured.map_err(|_| "the NBD client panicked".to_owned())??);
        server.run_while(false)?;
        floor.push(client::floor_qd1(seconds)?);
        server.run_while(true)?;
    }
    let [library, through, floor] = [library, through, floor].map(median);
    let added = through - library;
    println!("\n| case | library p50 us | NBD p50 us | added us | floor p50 us | added, floors |");
    println!("|---|---|---|---|---|---|");
    println!(
        "| {NAME} | {library:.1} | {through:.1} | {added:.1} | {floor:.1} | {:.2} |",
        added / floor
    );
    Ok(())
}

/// A client that speaks NBD with simple replies.
struct Nbd {
    stream: UnixStream,
    bytes: u64,
}

impl Nbd {
    fn connect(path: &Path) -> Result<Self, String> {
        let failed = |error| format!("NBD at {}: {error}", path.display());
        let mut connected = UnixStream::connect(path);
        for _ in 0..PROBES {
            if connected.is_ok() {
                break;
            }
            std::thread::park_timeout(PROBE);
            connected = UnixStream::connect(path);
        }
        let mut stream = connected.map_err(failed)?;
        let mut hello = [0; 18];
        stream.read_exact(&mut hello).map_err(failed)?;
        // Fixed newstyle, no zeroes; then NBD_OPT_EXPORT_NAME, the default export.
        let mut answer = vec![0, 0, 0, 3];
        answer.extend_from_slice(b"IHAVEOPT");
        answer.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0]);
        stream.write_all(&answer).map_err(failed)?;
        let mut export = [0; 10];
        stream.read_exact(&mut export).map_err(failed)?;
        let [size @ .., _, _] = export;
        Ok(Self { stream, bytes: u64::from_be_bytes(size) })
    }

    /// Median latency of random reads, microseconds.
    #[allow(clippy::cast_precision_loss, reason = "microseconds, for people")]
    fn p50(&mut self, seconds: u32) -> Result<f64, String> {
        let mut latency = Histogram::new();
        let mut prng = Prng::new(u64::from(seconds));
        let end = reactor::now_exact() + u64::from(seconds) * 1_000_000_000;
        loop {
            let block = prng.below(self.bytes / stdx::num::u64_of(BLOCK));
            let begun = reactor::now_exact();
            if begun >= end {
                return Ok(latency.percentile(50.0) as f64 / 1000.0);
            }
            self.read(block * stdx::num::u64_of(BLOCK)).map_err(|e| format!("NBD read: {e}"))?;
            latency.record(reactor::now_exact() - begun);
        }
    }

    fn read(&mut self, offset: u64) -> std::io::Result<()> {
        let mut request = [0; 28];
        request[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
        request[8..16].copy_from_slice(&offset.to_be_bytes());
        request[16..24].copy_from_slice(&offset.to_be_bytes());
        request[24..].copy_from_slice(&stdx::num::u32_of(BLOCK).to_be_bytes());
        self.stream.write_all(&request)?;
        let mut reply = [0; 16 + BLOCK];
        self.stream.read_exact(&mut reply[..16])?;
        let good = reply[..4] == 0x6744_6698_u32.to_be_bytes() && reply[4..8] == [0; 4];
        if !good || reply[8..16] != offset.to_be_bytes() {
            return Err(std::io::Error::other("the read failed"));
        }
        self.stream.read_exact(&mut reply[16..])
    }
}
