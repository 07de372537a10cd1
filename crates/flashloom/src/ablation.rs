//! `flashloom bench ablation`: the host's side with each optimization off, on, and with all of them.

mod drive;

use indicatif::ProgressBar;
use initiator::{Optimization, Optimizations, Remote};
use reactor::{Config, Reactor};
use serde::Serialize;

use crate::cli::ablation::{AblationArgs, Load};
use crate::cli::{Global, Output};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{emit, json};
use crate::progress;
use drive::{Measured, Run};

/// Queues of the load that has many.
const MANY_QUEUES: u16 = 32;

/// A setting and what came of it: medians over the rounds.
#[derive(Debug, Serialize)]
struct Row {
    load: &'static str,
    /// What is on, in words of the table.
    setting: String,
    /// The optimizations that were on.
    optimizations: String,
    #[serde(flatten)]
    measured: Measured,
    /// Reads a second, in those of the setting with all off.
    ratio: f64,
}

/// `flashloom bench ablation`
pub fn run(global: &Global, args: &AblationArgs) -> Outcome {
    let mut rows = Vec::new();
    let bar = progress::bar(0, progress::SHARE);
    let loads = if args.load.is_empty() {
        vec![Load::Qd1, Load::Qd32, Load::Qd128]
    } else {
        args.load.clone()
    };
    let runs = loads.iter().map(|&load| settings_of(args, load).len()).sum::<usize>();
    bar.set_length(u64::try_from(runs).unwrap_or(0) * u64::from(args.rounds));
    for load in loads {
        rows.extend(measure(args, load, &bar)?);
    }
    bar.finish_and_clear();
    match global.output {
        Output::Json => json(&rows),
        Output::Table | Output::Csv => emit(&markdown(&rows)),
    }
}

/// The optimizations that a load is about.
fn concerned(load: Load) -> &'static [Optimization] {
    match load {
        Load::Qd1 => &[
            Optimization::Affinity,
            Optimization::Direct,
            Optimization::Polled,
            Optimization::Hints,
            Optimization::BusyPoll,
            Optimization::Groups,
        ],
        Load::Qd32 => &[
            Optimization::Affinity,
            Optimization::Direct,
            Optimization::Polled,
            Optimization::List,
            Optimization::Hints,
            Optimization::BusyPoll,
            Optimization::Groups,
        ],
        Load::Qd128 => &[
            Optimization::Affinity,
            Optimization::Direct,
            Optimization::List,
            Optimization::Hints,
            Optimization::Batching,
        ],
        Load::Many => {
            &[Optimization::Direct, Optimization::List, Optimization::Hints, Optimization::Batching]
        }
        Load::Beside => &[
            Optimization::Maps,
            Optimization::Affinity,
            Optimization::List,
            Optimization::Hints,
            Optimization::Batching,
        ],
    }
}

/// The settings of a table: all off, each optimization alone, all but each optimization, all on. Optimizations of
/// `base` that the table is not about stay as they are.
fn settings(optimizations: &[Optimization], base: Optimizations) -> Vec<(String, Optimizations)> {
    let none = optimizations.iter().fold(base, |on, &optimization| on.without(optimization));
    let all = optimizations.iter().fold(none, |on, &optimization| on.with(optimization));
    let alone = optimizations
        .iter()
        .map(|&optimization| (format!("{optimization} alone"), none.with(optimization)));
    let but = optimizations
        .iter()
        .map(|&optimization| (format!("all but {optimization}"), all.without(optimization)));
    let mut settings = vec![("all off".to_owned(), none)];
    settings.extend(alone);
    if optimizations.len() > 1 {
        settings.extend(but);
        settings.push(("all on".to_owned(), all));
    }
    settings
}

/// The settings of a load's table.
fn settings_of(args: &AblationArgs, load: Load) -> Vec<(String, Optimizations)> {
    let optimizations =
        if args.optimization.is_empty() { concerned(load) } else { &args.optimization };
    settings(optimizations, args.connect.optimizations.unwrap_or(Optimizations::none()))
}

fn measure(args: &AblationArgs, load: Load, bar: &ProgressBar) -> Outcome<Vec<Row>> {
    let settings = settings_of(args, load);
    let mut runs = vec![Vec::new(); settings.len()];
    for round in 1..=args.rounds {
        for ((setting, optimizations), runs) in settings.iter().zip(&mut runs) {
            let (load_name, rounds) = (load.name(), args.rounds);
            bar.set_message(format!("{load_name}, round {round} of {rounds}: {setting}"));
            runs.push(one(args, load, *optimizations)?);
            bar.inc(1);
        }
    }
    let medians: Vec<_> = runs.iter().map(|runs| Measured::median(runs)).collect();
    let off = medians[0].iops;
    let rows = settings.into_iter().zip(medians).map(|((setting, optimizations), measured)| Row {
        load: load.name(),
        setting,
        optimizations: optimizations.to_string(),
        ratio: if off > 0.0 { measured.iops / off } else { 0.0 },
        measured,
    });
    Ok(rows.collect())
}

/// The remote with these optimizations, and queues enough for them to matter.
fn remote(args: &AblationArgs, load: Load, optimizations: Optimizations) -> Remote {
    let mut remote = args.connect.remote();
    let options = &mut remote.options;
    options.optimizations = optimizations;
    if options.io_queues == 1 {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let cpus = u16::try_from(cpus).unwrap_or(1);
        options.io_queues = if load == Load::Many { MANY_QUEUES } else { cpus };
    }
    if load == Load::Beside {
        options.write_queues = options.write_queues.max(1);
    }
    remote
}

/// One run of one setting.
fn one(args: &AblationArgs, load: Load, optimizations: Optimizations) -> Outcome<Measured> {
    let name = "flashloom-bench".to_owned();
    let config = Config { cpu: args.cpu, poll: args.poll.policy(), name };
    let failed = |error: reactor::Error| Failure::new(Exit::Failed, error);
    let reactor = Reactor::start(config).map_err(failed)?;
    let run = Run {
        remote: remote(args, load, optimizations),
        nsid: args.connect.nsid,
        load,
        seconds: args.seconds,
        reactor: reactor.clone(),
    };
    let measured = reactor.call(move || drive::drive(run)).wait();
    reactor.stop();
    let ended = reactor.join();
    let measured = measured.map_err(|gone| Failure::new(Exit::Failed, gone))??;
    ended.map_err(failed)?;
    Ok(measured)
}

/// The table, as Markdown.
fn markdown(rows: &[Row]) -> String {
    let head = "| load | optimizations | reads/s | mean us | p50 us | p99 us | p99.99 us | writer MB/s \
                | busy us per I/O | sends per I/O | ratio to all off |\n\
                |---|---|---|---|---|---|---|---|---|---|---|\n";
    let line = |row: &Row| {
        let Measured { iops, mean_us, p50_us, p99_us, p9999_us, .. } = row.measured;
        let Measured { writer_mb, busy_us, sends, .. } = row.measured;
        format!(
            "| {} | {} | {iops:.0} | {mean_us:.1} | {p50_us:.1} | {p99_us:.1} | {p9999_us:.1} \
             | {writer_mb:.0} | {busy_us:.2} | {sends:.3} | {:.2} |\n",
            row.load, row.setting, row.ratio
        )
    };
    rows.iter().map(line).fold(head.to_owned(), |text, line| text + &line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cure_is_measured_alone_and_left_out() {
        let settings = settings(&[Optimization::List, Optimization::Hints], Optimizations::none());
        let shown: Vec<_> = settings
            .iter()
            .map(|(name, optimizations)| (name.as_str(), optimizations.to_string()))
            .collect();
        let wanted = [
            ("all off", "none"),
            ("list alone", "list"),
            ("hints alone", "hints"),
            ("all but list", "hints"),
            ("all but hints", "list"),
            ("all on", "list,hints"),
        ];
        assert!(
            shown.iter().map(|(name, optimizations)| (*name, optimizations.as_str())).eq(wanted)
        );
    }

    #[test]
    fn what_is_not_looked_at_stays() {
        let base = Optimizations::none().with(Optimization::Direct).with(Optimization::Maps);
        let [off, on] = &super::settings(&[Optimization::Maps], base)[..] else { panic!() };
        assert_eq!((off.1, on.1), (base.without(Optimization::Maps), base));
    }

    #[test]
    fn the_table_is_markdown_and_quotes_ratios() {
        let measured = Measured { iops: 1000.0, ..Measured::default() };
        let row = Row {
            load: "qd1",
            setting: "all on".to_owned(),
            optimizations: "direct".to_owned(),
            measured,
            ratio: 1.254,
        };
        let text = markdown(&[row]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.matches('|').count() == 12), "{text}");
        assert!(lines[2].starts_with("| qd1 | all on | 1000 |") && lines[2].ends_with("| 1.25 |"));
    }
}
