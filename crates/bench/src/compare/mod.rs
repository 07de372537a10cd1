//! Paired measurements: Flashloom, the loopback floor, and SPDK where it was built, in one run.
//!
//! A figure of this machine at this minute says little; the ratio of two medians taken in turn says
//! much. So every case runs its sides one after the other, several times, and prints both.

mod before;
mod case;
mod client;
mod hostile;
mod management;
mod nbd;
mod open;
mod optimizations;
mod process;
mod resources;
mod scale;
mod server;
mod snapshots;
mod windows;

use std::path::PathBuf;

use self::case::{CASES, Case, Figure};
use self::client::Measured;
use self::server::{Drives, Flashloom, Log, Server, Spdk};

/// The cases that are not loads: idle processor share and resident size; opening after a kill.
const RESOURCES: &str = "resources";
const OPEN: &str = "open";
/// Status and metrics of a node with many namespaces and hosts.
const SCALE: &str = "scale";
/// A neighbour beside hosts at their worst.
const HOSTILE: &str = "hostile";
/// Of them, those that do only what they may, on namespaces in memory, in a file and in a pool, or where a further case
/// says.
const FLOODS: &str = "floods";

type Outcome<T> = Result<T, String>;

/// What to measure, and with what.
#[derive(Clone)]
pub struct Options {
    /// The program under test.
    pub flashloom: PathBuf,
    /// The same program before a change: nothing else is compared then.
    pub before: Option<PathBuf>,
    /// A folder in which SPDK was built; `None` leaves out what needs it.
    pub spdk: Option<PathBuf>,
    /// Paired runs of each case.
    pub runs: usize,
    /// Seconds of each run.
    pub seconds: u32,
    /// Names of the cases to run; empty is all.
    pub cases: Vec<String>,
}

/// Who serves and who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Flashloom's target, Flashloom's client.
    Own,
    /// The same with a target that never sleeps, whatever the case says.
    OwnBusy,
    /// The same with a volume of a pool as the namespace.
    OwnVolume,
    /// The same, its log so short that hosts wait until what they wrote is on the drives.
    OwnShortLog,
    /// The same, its log in the memory of another target too.
    OwnMirrored,
    /// A volume of a pool on files in shared memory.
    OwnShared,
    /// The same, two of the drives lost.
    OwnDegraded,
    /// A volume of a pool on files of a disk.
    OwnOnDisk,
    /// The same, its log on them too.
    OwnLogOnDisk,
    /// Flashloom's target, SPDK's client.
    OwnTarget,
    /// SPDK's target, SPDK's client.
    Spdk,
    /// SPDK's target, Flashloom's client.
    SpdkTarget,
    /// SPDK's target with a file of that disk, Flashloom's client.
    SpdkFile,
    /// The same bytes between two sockets, no NVMe.
    Floor,
    /// The same, and on to a third one before they are answered.
    FloorOnward,
}

/// Runs the cases asked for and prints a table.
///
/// # Errors
/// What could not be started or understood, in words.
pub fn run(options: &Options) -> Result<(), String> {
    let known = |name: &String| {
        [RESOURCES, OPEN, SCALE, HOSTILE, FLOODS, nbd::NAME, windows::NAME, snapshots::NAME]
            .contains(&&**name)
            || hostile::is_choice(name)
            || CASES.iter().any(|c| c.name == *name)
            || optimizations::CASES.iter().any(|c| c.name == *name)
    };
    let unknown = options.cases.iter().find(|name| !known(name));
    if let Some(name) = unknown {
        let optimizations = optimizations::CASES.iter().map(|c| c.name);
        let names: Vec<_> = CASES
            .iter()
            .map(|c| c.name)
            .chain(optimizations)
            .chain([
                RESOURCES,
                OPEN,
                SCALE,
                HOSTILE,
                FLOODS,
                nbd::NAME,
                windows::NAME,
                snapshots::NAME,
            ])
            .collect();
        return Err(format!("no case `{name}`; there are {}", names.join(", ")));
    }
    println!("{} paired runs of {} s each; medians\n", options.runs, options.seconds);
    let chosen =
        |case: &&Case| options.cases.is_empty() || options.cases.iter().any(|n| n == case.name);
    if let Some(before) = &options.before {
        let cases: Vec<_> = CASES.iter().filter(chosen).collect();
        return before::print(options, before, &cases);
    }
    println!("| case | side | IOPS | MB/s | p50 us | p99 us | target busy | ratio |");
    println!("|---|---|---|---|---|---|---|---|");
    for case in CASES.iter().filter(chosen) {
        measure(options, case)?;
    }
    let wanted = |name| options.cases.is_empty() || options.cases.iter().any(|n| n == name);
    for case in optimizations::CASES.iter().filter(|case| wanted(case.name)) {
        optimizations::print(&options.flashloom, case, options.runs, options.seconds)?;
    }
    if wanted(nbd::NAME) {
        nbd::print(&options.flashloom, options.runs, options.seconds)?;
    }
    if wanted(windows::NAME) {
        windows::print(options)?;
    }
    if wanted(snapshots::NAME) {
        snapshots::print(options)?;
    }
    if wanted(RESOURCES) {
        resources::print(&options.flashloom)?;
    }
    if wanted(HOSTILE) {
        hostile::print(options)?;
    }
    if wanted(HOSTILE) || wanted(FLOODS) {
        hostile::print_floods(options)?;
    }
    if wanted(SCALE) {
        scale::print(options)?;
    }
    if wanted(OPEN) {
        open::print(&options.flashloom, options.runs)?;
    }
    Ok(())
}

/// The targets that a case asks, each made before it is measured.
struct Servers(Vec<(Asked, Box<dyn Server>)>);

/// Which target serves a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Flashloom's, with the case's poll policy.
    Flashloom,
    /// Flashloom's, spinning.
    Busy,
    /// Flashloom's, with a volume of a pool on such drives, with such a log.
    Volume(Drives, Log),
    /// The same on files in shared memory, of which two were lost.
    Degraded,
    Spdk,
    /// With a file of a disk.
    SpdkFile,
}

impl Servers {
    fn start(options: &Options, case: &Case, sides: &[Side]) -> Result<Self, String> {
        let mut servers: Vec<(Asked, Box<dyn Server>)> = Vec::new();
        for asked in sides.iter().filter_map(|side| side.asks()) {
            if servers.iter().any(|(other, _)| *other == asked) {
                continue;
            }
            let server = start(options, case, asked)?;
            // Until it is asked it must not take the core of the one that is.
            server.run_while(false)?;
            servers.push((asked, server));
        }
        Ok(Self(servers))
    }

    /// Runs `f` with the server of `side`, the only one that is not stopped.
    fn with<T>(
        &self,
        side: Side,
        f: impl FnOnce(Option<&dyn Server>) -> Result<T, String>,
    ) -> Result<T, String> {
        let server = self.0.iter().find(|(asked, _)| side.asks() == Some(*asked));
        let Some((_, server)) = server else { return f(None) };
        server.run_while(true)?;
        let outcome = f(Some(&**server));
        server.run_while(false)?;
        outcome
    }
}

/// Starts what serves a side, its namespace written once.
fn start(options: &Options, case: &Case, asked: Asked) -> Result<Box<dyn Server>, String> {
    let program = options.flashloom.as_path();
    let spdk = || options.spdk.as_deref().ok_or("SPDK's folder was not given");
    let server = match asked {
        Asked::Spdk => return Ok(Box::new(Spdk::start(spdk()?)?)),
        Asked::SpdkFile => return Ok(Box::new(Spdk::on_file(spdk()?)?)),
        Asked::Flashloom => Flashloom::start(program, case.poll)?,
        Asked::Busy => Flashloom::start(program, "busy")?,
        Asked::Volume(drives, log) => Flashloom::with_volume(program, case.poll, drives, log)?,
        Asked::Degraded => Flashloom::with_volume(program, case.poll, Drives::Shared, Log::Memory)?,
    };
    server.fill(program)?;
    if asked == Asked::Degraded {
        server.lose_two_drives(program)?;
    }
    Ok(Box::new(server))
}

/// Measures one case over all its sides.
fn measure(options: &Options, case: &Case) -> Result<(), String> {
    let sides: Vec<Side> =
        case.sides.iter().copied().filter(|s| options.spdk.is_some() || !s.needs_spdk()).collect();
    if sides.is_empty() {
        println!("| {} | not compared: SPDK's folder was not given | | | | | | |", case.name);
        return Ok(());
    }
    let servers = Servers::start(options, case, &sides)?;
    let mut results: Vec<Vec<Measured>> = vec![Vec::new(); sides.len()];
    for _ in 0..options.runs {
        for (side, results) in sides.iter().zip(&mut results) {
            let run = |server: Option<&dyn Server>| client::run(options, case, *side, server);
            results.push(servers.with(*side, run)?);
        }
    }
    let medians: Vec<Measured> = results.iter().map(|r| Measured::median(r)).collect();
    print(case, &sides, &medians);
    Ok(())
}

fn print(case: &Case, sides: &[Side], medians: &[Measured]) {
    // What it is held against: the last side, a peer or the floor. Alone it is held against nothing.
    let against = medians.last().filter(|_| medians.len() > 1);
    for (side, measured) in sides.iter().zip(medians) {
        let ratio = against.map_or(String::new(), |a| {
            let (mine, theirs) = match case.figure {
                Figure::Iops => (measured.iops, a.iops),
                Figure::P50 => (measured.p50_us, a.p50_us),
                Figure::Bandwidth => (measured.bytes_per_second, a.bytes_per_second),
            };
            format!("{:.2}", mine / theirs)
        });
        let busy = measured.busy.map_or(String::new(), |share| format!("{:.0} %", share * 100.0));
        println!(
            "| {} | {} | {:.0} | {:.0} | {:.1} | {:.1} | {busy} | {ratio} |",
            case.name,
            side.name(),
            measured.iops,
            measured.bytes_per_second / 1e6,
            measured.p50_us,
            measured.p99_us
        );
        if let Some(writer) = measured.writer_bytes_per_second {
            println!(
                "| {} | {}: its writer | | {:.0} | | | | |",
                case.name,
                side.name(),
                writer / 1e6
            );
        }
    }
}

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::Own => "flashloom serve, flashloom bench",
            Self::OwnBusy => "flashloom serve --poll busy, flashloom bench",
            Self::OwnVolume => "flashloom serve of a volume, RAID 6 8+2, flashloom bench",
            Self::OwnShortLog => "the same, its log of 16 MiB, flashloom bench",
            Self::OwnMirrored => "the same, its log on another target too, flashloom bench",
            Self::OwnShared => {
                "flashloom serve of a volume, drives in shared memory, flashloom bench"
            }
            Self::OwnDegraded => "the same, two of ten drives lost",
            Self::OwnOnDisk => "flashloom serve of a volume, drives on a disk, flashloom bench",
            Self::OwnLogOnDisk => "the same, its log on the drives, flashloom bench",
            Self::SpdkFile => "nvmf_tgt of a file on that disk (aio), flashloom bench",
            Self::OwnTarget => "flashloom serve, spdk_nvme_perf",
            Self::Spdk => "nvmf_tgt, spdk_nvme_perf",
            Self::SpdkTarget => "nvmf_tgt, flashloom bench",
            Self::Floor => "loopback floor",
            Self::FloorOnward => "loopback floor of two exchanges, one after the other",
        }
    }

    const fn needs_spdk(self) -> bool {
        matches!(self, Self::OwnTarget | Self::Spdk | Self::SpdkTarget | Self::SpdkFile)
    }

    /// The target that serves this side.
    const fn asks(self) -> Option<Asked> {
        match self {
            Self::Own | Self::OwnTarget => Some(Asked::Flashloom),
            Self::OwnBusy => Some(Asked::Busy),
            Self::OwnVolume => Some(Asked::Volume(Drives::Memory, Log::Memory)),
            Self::OwnShortLog => Some(Asked::Volume(Drives::Memory, Log::Short)),
            Self::OwnMirrored => Some(Asked::Volume(Drives::Memory, Log::Mirrored)),
            Self::OwnShared => Some(Asked::Volume(Drives::Shared, Log::Memory)),
            Self::OwnDegraded => Some(Asked::Degraded),
            Self::OwnOnDisk => Some(Asked::Volume(Drives::Disk, Log::Memory)),
            Self::OwnLogOnDisk => Some(Asked::Volume(Drives::Disk, Log::Drives)),
            Self::SpdkFile => Some(Asked::SpdkFile),
            Self::Spdk | Self::SpdkTarget => Some(Asked::Spdk),
            Self::Floor | Self::FloorOnward => None,
        }
    }
}
