//! Small durable writes by a direct write window (`docs/anof.md`): beside their floor, our own writes over NVMe/TCP, and
//! SPDK's to a file; what each costs the target, and how many go on for long.
//!
//! One daemon with a volume on drives in memory, its log in shared memory, serves all of ours: it sleeps where nobody asks
//! it, as windows are made for.

use std::time::Duration;

use super::Options;
use super::client::{self, Measured};
use super::process::output;
use super::resources::cpu_seconds;
use super::server::{Flashloom, Server, Spdk, to};
use crate::window;

/// The name of the case.
pub const NAME: &str = "windows";

const SIZES: [u32; 6] = [512, 1024, 2048, 4096, 8192, 16384];

/// What the rows of one size are of.
const PAGE: u32 = 4096;

/// Blocks of SPDK's block device, which is that of a file of a disk.
const SPDK_BLOCK: u32 = 4096;

/// Writes a second where what one takes is asked for, and not how many go: the host never waits for room then.
const RATE: &str = "--rate-iops 20000";

/// The same where it is what they cost a target that may sleep between them.
const RATE_COST: &str = "--rate-iops 5000";

/// After a load whose cost is asked for: what it left in the log is carried to the drives meanwhile.
const SETTLES: Duration = Duration::from_secs(2);

const CPU: usize = 1;

/// Of each volume, beside what a mirror has of its own.
const REGION: &str = "512MiB";

/// A ring as the daemon grants it, which the floor writes over.
const RING: u64 = 4 << 20;

/// Loads of one kind, and whom they ask.
#[derive(Clone)]
struct Way<'a> {
    name: &'static str,
    /// Who is at work meanwhile.
    servers: Vec<&'a dyn Server>,
    /// Where the load goes, as arguments.
    place: String,
    window: bool,
    /// Bytes of its smallest write.
    least: u32,
}

const WINDOW: &str = "window";
const TCP: &str = "TCP";
const V6: &str = "TCP/IPv6";
const TWO_WINDOWS: &str = "two windows, a mirror";
const TWO_TCP: &str = "the mirror by TCP";
const FLOOR: &str = "floor";
const LONG: &str = "16 KiB";
const SPDK: &str = "SPDK's file, TCP";

/// Measures it and prints it.
///
/// # Errors
/// What could not be started or understood, in words.
pub fn print(options: &Options) -> Result<(), String> {
    let program = options.flashloom.as_path();
    let (server, one, other) = (start(options)?, start(options)?, start(options)?);
    let has_v6 = [&server, &other].iter().all(|server| server.listen_on("::1", program).is_ok());
    let second = if has_v6 { "::1" } else { "127.0.0.1" };
    let mirror = format!("{} {}", member(&one, "127.0.0.1"), member(&other, second));
    one.ask(program, &format!("raid create --force --name bench --level raid1 {mirror}"))?;
    let spdk = options.spdk.as_deref().map(Spdk::on_file).transpose()?;
    let mut ways = vec![
        way(WINDOW, &[&server], &to(&server, "127.0.0.1"), true),
        way(TCP, &[&server], &to(&server, "127.0.0.1"), false),
        way(TWO_WINDOWS, &[&one, &other], &mirror, true),
        way(TWO_TCP, &[&one, &other], &mirror, false),
    ];
    if has_v6 {
        ways.push(way(V6, &[&server], &to(&server, "::1"), false));
    }
    if let Some(spdk) = &spdk {
        let spdk = way(SPDK, &[spdk], &to(spdk, "127.0.0.1"), false);
        ways.push(Way { least: SPDK_BLOCK, ..spdk });
    }
    ways.iter().try_for_each(|way| way.run_while(false))?;
    let page = sizes(options, &ways)?;
    let costs = costs(options, &ways[..2])?;
    let most = sustained(options, &ways[..2])?;
    summary(&page, costs, &most);
    Ok(())
}

fn way<'a>(name: &'static str, servers: &[&'a dyn Server], place: &str, window: bool) -> Way<'a> {
    Way { name, servers: servers.to_vec(), place: place.to_owned(), window, least: SIZES[0] }
}

/// The same as a member of a set.
fn member(server: &dyn Server, address: &str) -> String {
    let (port, nqn, nsid) = (server.port(), server.nqn(), server.nsid());
    format!("--member traddr={address},trsvcid={port},nqn={nqn},nsid={nsid}")
}

/// A daemon with a volume that was written once.
fn start(options: &Options) -> Result<Flashloom, String> {
    let server = Flashloom::with_small_blocks(&options.flashloom, "adaptive")?;
    server.fill(&options.flashloom)?;
    Ok(server)
}

impl Way<'_> {
    /// Lets those that serve it run, or stops them where they are.
    fn run_while(&self, run: bool) -> Result<(), String> {
        self.servers.iter().try_for_each(|server| server.run_while(run))
    }

    /// Runs a load, with nobody else at work.
    fn load(&self, options: &Options, bytes: u32, shape: &str) -> Result<Measured, String> {
        self.run_while(true)?;
        let window = if self.window { "--window require" } else { "" };
        let args = format!(
            "bench {} --rw randwrite --bs {bytes} {shape} {window} --size {REGION} --runtime {}s \
             --cpus {CPU} -o json",
            self.place, options.seconds,
        );
        let args: Vec<_> = args.split_whitespace().collect();
        let text = output(&options.flashloom.display().to_string(), &args)?;
        let measured = client::fio_json(&text, 0)?;
        if self.window && client::direct_writes(&text)? == 0 {
            return Err(format!("{}: no write went by the window", self.name));
        }
        Ok(measured)
    }
}

/// The same bytes copied and fenced into shared memory, nobody else at work.
fn floor(bytes: u32) -> Result<Measured, String> {
    let measured = || {
        reactor::pin_thread(CPU).map_err(|e| format!("cannot run on CPU {CPU}: {e}"))?;
        window::floor_of(RING, stdx::num::usize32(bytes)).map_err(|e| format!("floor: {e}"))
    };
    // On a thread of its own: what is started from here on would take after a pinned one.
    let measured = std::thread::scope(|scope| scope.spawn(measured).join());
    let [p50, p99] = measured.map_err(|_| "the floor panicked".to_owned())??;
    Ok(Measured { p50_us: micros(p50), p99_us: micros(p99), ..Measured::default() })
}

#[allow(clippy::cast_precision_loss, reason = "microseconds, for people")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

/// Prints what a write takes by size; what those of a page took, the floor first.
fn sizes(options: &Options, ways: &[Way<'_>]) -> Result<Vec<(&'static str, Measured)>, String> {
    let names: Vec<_> = ways.iter().map(|way| format!(" {} p50, p99 us |", way.name)).collect();
    println!("\n| durable write, one at a time | floor p50, p99 us |{}", names.concat());
    println!("|---:|---:|{}", "---:|".repeat(ways.len()));
    let mut page = Vec::new();
    for bytes in SIZES {
        let mut runs = vec![Vec::new(); ways.len() + 1];
        for _ in 0..options.runs {
            runs[0].push(floor(bytes)?);
            for (way, runs) in ways.iter().zip(&mut runs[1..]) {
                if bytes < way.least {
                    continue;
                }
                runs.push(way.load(options, bytes, &format!("--iodepth 1 {RATE}"))?);
                way.run_while(false)?;
            }
        }
        let shown = |runs: &Vec<Measured>| match Measured::median(runs) {
            _ if runs.is_empty() => " - |".to_owned(),
            Measured { p50_us, p99_us, .. } => format!(" {p50_us:.2}, {p99_us:.2} |"),
        };
        println!("| {bytes} |{}", runs.iter().map(shown).collect::<String>());
        if bytes == PAGE {
            let medians = runs.iter().map(|runs| Measured::median(runs));
            page = std::iter::once(FLOOR)
                .chain(ways.iter().map(|way| way.name))
                .zip(medians)
                .collect();
        } else if bytes == 4 * PAGE {
            page.push((LONG, Measured::median(&runs[1])));
        }
    }
    Ok(page)
}

/// Microseconds of the target for each write, what it left in the log included: at work by its own account, and of CPU by the
/// system's.
fn costs(options: &Options, ways: &[Way<'_>]) -> Result<[[f64; 2]; 2], String> {
    let mut runs = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    for _ in 0..options.runs {
        for (way, runs) in ways.iter().zip(&mut runs) {
            way.run_while(true)?;
            let server = way.servers[0];
            let id = server.id();
            let spent = || Ok::<_, String>([server.busy()?.as_secs_f64(), cpu_seconds(id)?]);
            let before = spent()?;
            let writes = way.load(options, PAGE, &format!("--iodepth 1 {RATE_COST}"))?.iops
                * f64::from(options.seconds);
            std::thread::park_timeout(SETTLES);
            let after = spent()?;
            way.run_while(false)?;
            for (at, runs) in runs.iter_mut().enumerate() {
                runs.push((after[at] - before[at]) * 1e6 / writes);
            }
        }
    }
    Ok(runs.map(|way| way.map(client::median)))
}

/// As many as go.
fn sustained(options: &Options, ways: &[Way<'_>]) -> Result<Vec<Measured>, String> {
    let mut runs = vec![Vec::new(); ways.len()];
    for _ in 0..options.runs {
        for (way, runs) in ways.iter().zip(&mut runs) {
            runs.push(way.load(options, PAGE, "--iodepth 32")?);
            way.run_while(false)?;
        }
    }
    Ok(runs.iter().map(|runs| Measured::median(runs)).collect())
}

/// What is asked for, and what was measured.
fn summary(page: &[(&str, Measured)], costs: [[f64; 2]; 2], most: &[Measured]) {
    let of = |name: &str| page.iter().find(|(of, _)| *of == name).map(|(_, measured)| measured);
    println!("\n| 4K write | by the window | beside it | ratio | wanted |");
    println!("|---|---|---|---|---|");
    let (Some(window), [direct, tcp], [most, most_tcp]) = (of(WINDOW), costs, most) else {
        return;
    };
    for (what, mine, wanted) in [("p50", window.p50_us, "3 us"), ("p99", window.p99_us, "6 us")] {
        println!("| one at a time, {what} | {mine:.2} us | | | at most {wanted} |");
    }
    let against = |what: &str, mine: f64, name: &str, wanted: &str| match of(name) {
        Some(other) => println!(
            "| {what}, p50 against {name} | {mine:.2} us | {:.2} us | {:.2} | {wanted} |",
            other.p50_us,
            mine / other.p50_us
        ),
        None => println!(
            "| {what} against {name} | not compared: it was not given, or is not here | | | |"
        ),
    };
    against("one at a time", window.p50_us, FLOOR, "at most 2");
    against("one at a time", window.p50_us, TCP, "at most 0.1");
    against("one at a time", window.p50_us, SPDK, "at most 0.3");
    if let Some(two) = of(TWO_WINDOWS) {
        println!("| two rings, p50, p99 | {:.2}, {:.2} us | | | |", two.p50_us, two.p99_us);
        against("two rings", two.p50_us, WINDOW, "");
        against("two rings", two.p50_us, TWO_TCP, "");
    }
    if let (Some(v6), Some(v4)) = (of(V6), of(TCP)) {
        let ratio = v6.p50_us / v4.p50_us;
        println!(
            "| by TCP/IPv6, p50 against IPv4 | {:.2} us | {:.2} us | {ratio:.2} | |",
            v6.p50_us, v4.p50_us
        );
    }
    if let Some(long) = of(LONG) {
        println!("| 16 KiB, p50 | {:.2} us | | | below 8 us |", long.p50_us);
    }
    for (at, what) in ["at work", "of CPU"].iter().enumerate() {
        println!(
            "| target, {what}, each, against TCP | {:.2} us | {:.2} us | {:.2} | at most 0.33 |",
            direct[at],
            tcp[at],
            direct[at] / tcp[at]
        );
    }
    println!(
        "| as many as go, depth 32, against TCP | {:.0} IOPS | {:.0} IOPS | {:.2} | at least 1 |",
        most.iops,
        most_tcp.iops,
        most.iops / most_tcp.iops
    );
}
