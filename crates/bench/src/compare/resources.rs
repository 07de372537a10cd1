//! What the target costs when little or nothing happens: processor while idle, memory with many queues.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use super::process::Process;
use super::server::{Flashloom, Server};

/// How long the idle share is measured.
const IDLE: Duration = Duration::from_secs(10);
/// Commands a second of a host that has little to do.
const RATES: [u32; 3] = [100, 1000, 10_000];
/// How long clients may take to connect.
const CONNECT_PROBES: u32 = 200;
const PROBE: Duration = Duration::from_millis(50);

/// Prints the rows of idle processor share and resident memory.
///
/// # Errors
/// What could not be started or read.
pub fn print(program: &Path) -> Result<(), String> {
    println!("\n| case | figure |");
    println!("|---|---|");
    let server = Flashloom::start(program, "adaptive")?;
    let idle = with_queues(program, &server, (16, 1), Some(1), || share(server.id()))?;
    println!(
        "| idle processor share, 16 connected queues, adaptive | {:.2} % of a core |",
        idle * 100.0
    );
    let (before, after) = (resident_mib(server.id())?, {
        with_queues(program, &server, (128, 128), None, || {
            std::thread::park_timeout(Duration::from_secs(2));
            resident_mib(server.id())
        })?
    });
    println!("| resident size, no queue | {before:.0} MiB |");
    println!(
        "| resident size, 128 queues of depth 128 under 4K random reads of 64 MiB | {after:.0} MiB |"
    );
    for poll in ["adaptive", "eager"] {
        let server = Flashloom::start(program, poll)?;
        for rate in RATES {
            let share = with_queues(program, &server, (1, 1), Some(rate), || share(server.id()))?;
            let share = share * 100.0;
            println!(
                "| processor share, one host at {rate} IOPS, {poll} | {share:.2} % of a core |"
            );
        }
    }
    Ok(())
}

/// What a process takes of a core meanwhile.
fn share(id: u32) -> Result<f64, String> {
    let before = cpu_seconds(id)?;
    std::thread::park_timeout(IDLE);
    Ok((cpu_seconds(id)? - before) / IDLE.as_secs_f64())
}

/// Runs `measure` while a client holds so many connected queues of a depth, with so many commands a second over all
/// of them at most: one keeps them open without using them.
fn with_queues<T>(
    program: &Path,
    server: &Flashloom,
    (queues, depth): (u16, u16),
    rate: Option<u32>,
    measure: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    let rate = rate.map_or(String::new(), |rate| format!("--rate-iops {rate}"));
    let args = format!(
        "bench --traddr 127.0.0.1 --trsvcid {} --subnqn {} --nsid 1 --rw randread --bs 4k --size 64MiB \
         --iodepth {depth} --queues {queues} --runtime 60s --cpus 1 --poll interrupt {rate} -o json",
        server.port(),
        server.nqn()
    );
    let args: Vec<_> = args.split_whitespace().collect();
    let client = Process::start(&program.display().to_string(), &args)?;
    let wanted = usize::from(queues) + 1;
    let mut connected = 0;
    for _ in 0..CONNECT_PROBES {
        connected = established(server.port())?;
        if connected >= wanted {
            break;
        }
        std::thread::park_timeout(PROBE);
    }
    if connected < wanted {
        return Err(format!("{connected} of {wanted} connections came up"));
    }
    let result = measure();
    drop(client);
    // The next client must find the target with nobody connected.
    let _ = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], server.port())));
    result
}

/// Connections that the kernel lists as established with this local port, on the server's side.
fn established(port: u16) -> Result<usize, String> {
    let table =
        std::fs::read_to_string("/proc/net/tcp").map_err(|e| format!("/proc/net/tcp: {e}"))?;
    let local = format!("0100007F:{port:04X}");
    let is_ours = |line: &&str| {
        let mut words = line.split_whitespace();
        words.nth(1) == Some(&local) && words.nth(1) == Some("01")
    };
    Ok(table.lines().filter(is_ours).count())
}

/// User and system time of a process so far, seconds.
///
/// # Errors
/// That it is gone.
pub fn cpu_seconds(id: u32) -> Result<f64, String> {
    let path = format!("/proc/{id}/stat");
    let stat = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    let behind = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 =
        behind.split_whitespace().skip(11).take(2).filter_map(|w| w.parse::<u64>().ok()).sum();
    // USER_HZ is 100 on every platform Linux has.
    #[allow(clippy::cast_precision_loss, reason = "ticks of one process stay far below 2^52")]
    let ticks = ticks as f64;
    Ok(ticks / 100.0)
}

/// Resident size of a process, MiB, the pages of its namespace that the load touched included.
///
/// # Errors
/// That it is gone.
pub fn resident_mib(id: u32) -> Result<f64, String> {
    let path = format!("/proc/{id}/status");
    let status = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kib: f64 = line
        .and_then(|l| l.split_whitespace().next()?.parse().ok())
        .ok_or_else(|| format!("{path}: no VmRSS"))?;
    Ok(kib / 1024.0)
}
