//! Paired measurements: Flashloom, the loopback floor, and SPDK where it was built, in one run.
//!
//! A figure of this machine at this minute says little; the ratio of two medians taken in turn says
//! much. So every case runs its sides one after the other, several times, and prints both.

mod case;
mod client;
mod process;
mod resources;
mod server;

use std::path::PathBuf;

use self::case::{CASES, Case, Figure};
use self::client::Measured;
use self::server::{Flashloom, Server, Spdk};

/// The case that is not a load: idle processor share and resident size.
const RESOURCES: &str = "resources";

/// What to measure, and with what.
pub struct Options {
    /// The program under test.
    pub flashloom: PathBuf,
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
    /// Flashloom's target, SPDK's client.
    OwnTarget,
    /// SPDK's target, SPDK's client.
    Spdk,
    /// SPDK's target, Flashloom's client.
    SpdkTarget,
    /// The same bytes between two sockets, no NVMe.
    Floor,
}

/// Runs the cases asked for and prints a table.
///
/// # Errors
/// What could not be started or understood, in words.
pub fn run(options: &Options) -> Result<(), String> {
    let known = |name: &String| name == RESOURCES || CASES.iter().any(|c| c.name == *name);
    let unknown = options.cases.iter().find(|name| !known(name));
    if let Some(name) = unknown {
        let names: Vec<_> = CASES.iter().map(|c| c.name).chain([RESOURCES]).collect();
        return Err(format!("no case `{name}`; there are {}", names.join(", ")));
    }
    println!("{} paired runs of {} s each; medians\n", options.runs, options.seconds);
    println!("| case | side | IOPS | MB/s | p50 us | p99 us | ratio |");
    println!("|---|---|---|---|---|---|---|");
    let chosen =
        |case: &&Case| options.cases.is_empty() || options.cases.iter().any(|n| n == case.name);
    for case in CASES.iter().filter(chosen) {
        measure(options, case)?;
    }
    if options.cases.is_empty() || options.cases.iter().any(|n| n == RESOURCES) {
        resources::print(&options.flashloom)?;
    }
    Ok(())
}

/// Measures one case over all its sides.
fn measure(options: &Options, case: &Case) -> Result<(), String> {
    let sides: Vec<Side> =
        case.sides.iter().copied().filter(|s| options.spdk.is_some() || !s.needs_spdk()).collect();
    let flashloom = Flashloom::start(&options.flashloom, case.poll)?;
    flashloom.fill(&options.flashloom)?;
    let spdk = match &options.spdk {
        Some(folder) if sides.iter().any(|s| s.asks_spdk()) => Some(Spdk::start(folder)?),
        _ => None,
    };
    let mut results: Vec<Vec<Measured>> = vec![Vec::new(); sides.len()];
    for _ in 0..options.runs {
        for (side, results) in sides.iter().zip(&mut results) {
            let server: Option<&dyn Server> = match side {
                Side::Own | Side::OwnTarget => Some(&flashloom),
                Side::Spdk | Side::SpdkTarget => spdk.as_ref().map(|s| s as &dyn Server),
                Side::Floor => None,
            };
            // The server that is not asked must not take the core of the one that is.
            flashloom.run_while(!side.asks_spdk() && *side != Side::Floor)?;
            if let Some(spdk) = &spdk {
                spdk.run_while(side.asks_spdk())?;
            }
            results.push(client::run(options, case, *side, server)?);
        }
    }
    let medians: Vec<Measured> = results.iter().map(|r| Measured::median(r)).collect();
    print(case, &sides, &medians);
    Ok(())
}

fn print(case: &Case, sides: &[Side], medians: &[Measured]) {
    // What it is held against: the last side, a peer or the floor.
    let against = medians.last();
    for (side, measured) in sides.iter().zip(medians) {
        let ratio = against.map_or(String::new(), |a| {
            let (mine, theirs) = match case.figure {
                Figure::Iops => (measured.iops, a.iops),
                Figure::P50 => (measured.p50_us, a.p50_us),
                Figure::Bandwidth => (measured.bytes_per_second, a.bytes_per_second),
            };
            format!("{:.2}", mine / theirs)
        });
        println!(
            "| {} | {} | {:.0} | {:.0} | {:.1} | {:.1} | {ratio} |",
            case.name,
            side.name(),
            measured.iops,
            measured.bytes_per_second / 1e6,
            measured.p50_us,
            measured.p99_us
        );
        if let Some(writer) = measured.writer_bytes_per_second {
            println!(
                "| {} | {}: its writer | | {:.0} | | | |",
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
            Self::OwnTarget => "flashloom serve, spdk_nvme_perf",
            Self::Spdk => "nvmf_tgt, spdk_nvme_perf",
            Self::SpdkTarget => "nvmf_tgt, flashloom bench",
            Self::Floor => "loopback floor",
        }
    }

    const fn needs_spdk(self) -> bool {
        matches!(self, Self::OwnTarget | Self::Spdk | Self::SpdkTarget)
    }

    /// Whether SPDK's target serves this side.
    const fn asks_spdk(self) -> bool {
        matches!(self, Self::Spdk | Self::SpdkTarget)
    }
}
