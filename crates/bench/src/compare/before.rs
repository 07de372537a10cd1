//! The program before a change and after it, each with its own target and its own client, in turn.

use std::path::Path;

use super::case::{Case, Figure};
use super::client::{self, Measured, median};
use super::server::Server;
use super::{Options, Side, start};

/// One of the two programs, serving.
struct Program {
    options: Options,
    server: Box<dyn Server>,
}

impl Program {
    fn start(options: &Options, program: &Path, case: &Case, side: Side) -> Result<Self, String> {
        let options = Options { flashloom: program.to_owned(), ..options.clone() };
        let asked = side.asks().ok_or("nobody serves this")?;
        let server = start(&options, case, asked)?;
        // Until it is asked it must not take the core of the other.
        server.run_while(false)?;
        Ok(Self { options, server })
    }

    fn run(&self, case: &Case, side: Side) -> Result<Measured, String> {
        self.server.run_while(true)?;
        let measured = client::run(&self.options, case, side, Some(&*self.server));
        self.server.run_while(false)?;
        measured
    }
}

/// The figure of a case, larger where it is better.
fn speed(case: &Case, measured: &Measured) -> f64 {
    match case.figure {
        Figure::Iops => measured.iops,
        Figure::P50 => 1e6 / measured.p50_us,
        Figure::Bandwidth => measured.bytes_per_second,
    }
}

fn own_side(case: &Case) -> Option<Side> {
    let own = |side: &Side| match side {
        // Its load is the same whoever asks.
        Side::OwnTarget => Some(Side::Own),
        Side::Own
        | Side::OwnBusy
        | Side::OwnVolume
        | Side::OwnShortLog
        | Side::OwnMirrored
        | Side::OwnShared
        | Side::OwnDegraded
        | Side::OwnOnDisk
        | Side::OwnLogOnDisk => Some(*side),
        Side::Spdk | Side::SpdkTarget | Side::SpdkFile | Side::Floor | Side::FloorOnward => None,
    };
    case.sides.iter().find_map(own)
}

/// Compares both programs by each of the cases, and says which ones of those asked for are no such cases.
///
/// # Errors
/// What could not be started or understood, in words.
pub fn print(options: &Options, before: &Path, cases: &[&Case]) -> Result<(), String> {
    println!(
        "| case | side | before: IOPS | p50 us | p99 us | CPU us | now: IOPS | p50 us | p99 us | CPU us | ratio |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for case in cases {
        match own_side(case) {
            Some(side) => print_case(options, before, (case, side))?,
            None => say_not_compared(case.name),
        }
    }
    let is_load = |name: &&String| cases.iter().any(|case| case.name == **name);
    options.cases.iter().filter(|name| !is_load(name)).for_each(|name| say_not_compared(name));
    Ok(())
}

fn say_not_compared(name: &str) {
    println!("| {name} | not compared: it is no load that both programs serve | | | | | | | | | |");
}

/// Measures a case with both programs, and prints what the new one makes of the old one's figure: the median of the ratios
/// of the runs, of half of them with either program started first. Which one is matters: a program compared with itself was
/// seen at 0.9 for the memory that the other had left it.
fn print_case(options: &Options, before: &Path, (case, side): (&Case, Side)) -> Result<(), String> {
    let (mut olds, mut news, mut ratio) = (Vec::new(), Vec::new(), 1.0);
    for now_first in [true, false] {
        let ratios = half(options, before, (case, side), now_first, &mut olds, &mut news)?;
        ratio *= median(ratios);
    }
    let (new, old) = (Measured::median(&news), Measured::median(&olds));
    let figures = |m: &Measured| {
        let cpu = m.cpu_us().map_or(String::new(), |us| format!("{us:.1}"));
        format!("{:.0} | {:.1} | {:.1} | {cpu}", m.iops, m.p50_us, m.p99_us)
    };
    println!(
        "| {} | {} | {} | {} | {:.2} |",
        case.name,
        side.name(),
        figures(&old),
        figures(&new),
        ratio.sqrt()
    );
    Ok(())
}

/// Half of the runs of a case; gives their ratios.
fn half(
    options: &Options,
    before: &Path,
    (case, side): (&Case, Side),
    now_first: bool,
    olds: &mut Vec<Measured>,
    news: &mut Vec<Measured>,
) -> Result<Vec<f64>, String> {
    let begin = |program: &Path| Program::start(options, program, case, side);
    let (now, before) = if now_first {
        let now = begin(&options.flashloom)?;
        (now, begin(before)?)
    } else {
        let before = begin(before)?;
        (begin(&options.flashloom)?, before)
    };
    let mut ratios = Vec::new();
    for run in 0..options.runs.div_ceil(2) {
        // Each is first by turns: what the machine does meanwhile is shared.
        let (new, old) = if run % 2 == 0 {
            let new = now.run(case, side)?;
            (new, before.run(case, side)?)
        } else {
            let old = before.run(case, side)?;
            (now.run(case, side)?, old)
        };
        ratios.push(speed(case, &new) / speed(case, &old));
        news.push(new);
        olds.push(old);
    }
    Ok(ratios)
}

#[cfg(test)]
mod tests {
    use super::super::case::CASES;
    use super::*;

    /// Of a case with drives on a disk nothing was printed.
    #[test]
    fn each_case_has_a_side_that_both_programs_serve() {
        let without: Vec<_> =
            CASES.iter().filter(|case| own_side(case).is_none()).map(|case| case.name).collect();
        assert!(without.is_empty(), "{without:?}");
        let mirrored = CASES.iter().find(|case| case.name == "volume-write-mirrored-qd1").unwrap();
        assert_eq!(own_side(mirrored), Some(Side::OwnMirrored));
    }
}
