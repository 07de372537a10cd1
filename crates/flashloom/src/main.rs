//! The one program users see: daemon and command line.

mod ablation;
mod ask;
mod attach;
mod bench;
mod cli;
mod configuration;
mod confirm;
mod daemon;
mod demo;
mod drives;
mod dump;
mod events;
mod exit;
mod generate;
mod groups;
mod health;
mod jobs;
mod log;
mod manage;
mod output;
mod paths;
mod physical;
mod pools;
mod progress;
mod raid;
mod schedules;
mod scrub;
mod serve;
mod service;
mod snapshots;
mod spares;
mod top;
mod window;

use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};

use crate::cli::{Cli, Command, Output};
use crate::exit::{Exit, Failure, Outcome};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(with_habits(error)),
    };
    let output = cli.global.output;
    if matches!(cli.command, Command::Health) {
        return health::run(&cli.global);
    }
    let outcome = run(cli);
    log::settle();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print(output);
            failure.exit.into()
        }
    }
}

/// Options that fio needs, and a load of this program does not.
const OF_FIO: [&str; 5] =
    ["--direct", "--ioengine", "--time_based", "--group_reporting", "--thread"];

/// What fio's `verify` is given.
const METHODS_OF_FIO: [&str; 14] = [
    "md5",
    "crc64",
    "crc32c",
    "crc32c-intel",
    "crc32",
    "crc16",
    "crc7",
    "xxhash",
    "sha512",
    "sha256",
    "sha1",
    "meta",
    "pattern",
    "null",
];

/// What is wrong, with a tip to those who know other programs: what looks like their word may do something else here.
fn with_habits(mut error: clap::Error) -> clap::Error {
    let word = [ContextKind::InvalidSubcommand, ContextKind::InvalidArg];
    let word = word.into_iter().find_map(|kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        _ => None,
    });
    let Some(word) = word else { return error };
    let tip = match &*word {
        "replace" => {
            "`flashloom drive replace POOL/INDEX DRIVE` puts another drive in a drive's place"
                .to_owned()
        }
        "destroy" => {
            "`flashloom pool delete POOL` deletes it and all its volumes; `pool export` lets go of its drives"
                .to_owned()
        }
        word if word.ends_with(".fio") => {
            "`flashloom bench --job-file FILE` takes jobs in TOML, in fio's words: see --help"
                .to_owned()
        }
        word if METHODS_OF_FIO.contains(&word) || word.starts_with("--verify") => {
            "`--verify` checks all that is read against what was written: leave the method out".to_owned()
        }
        word if OF_FIO.contains(&word) => format!("leave it out: `{word}` is not needed here"),
        _ => return error,
    };
    error.remove(ContextKind::SuggestedSubcommand);
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

/// Prints what is wrong with the command line, for programs if it asks for that; or the help that it asks for.
fn refuse(error: clap::Error) -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let is_json =
        arguments.windows(2).any(|two| matches!(&*two[0], "-o" | "--output") && two[1] == "json")
            || arguments.iter().any(|one| matches!(&**one, "-ojson" | "-o=json" | "--output=json"));
    if !error.use_stderr() || !is_json {
        error.exit();
    }
    let text = error.to_string();
    let text = text.trim().trim_start_matches("error: ");
    Failure::new(Exit::Usage, text).print(Output::Json);
    Exit::Usage.into()
}

fn run(cli: Cli) -> Outcome {
    let global = &cli.global;
    if global.output == Output::Csv && !matches!(cli.command, Command::Bench(_) | Command::Demo(_))
    {
        return Err(Failure::new(Exit::Usage, "only results of bench and demo are printed as CSV")
            .help("use -o json, or leave -o out"));
    }
    match cli.command {
        Command::Serve(args) => serve::run(global, args),
        Command::Demo(args) => demo::run(global, args),
        Command::Attach(args) => attach::run(global, args),
        Command::Bench(args) => bench::run(global, &args),
        Command::Raid { verb } => raid::run(global, verb),
        Command::Discover(args) => ask::discover(global, &args),
        Command::IdCtrl(args) => ask::id_ctrl(global, &args),
        Command::IdNs(args) => ask::id_ns(global, &args),
        Command::Status => manage::status(global),
        // Its exit codes are its own.
        Command::Health => Ok(()),
        Command::Top(args) => top::run(global, &args),
        Command::Subsystem { verb } => manage::subsystem(global, verb),
        Command::Namespace { verb } => manage::namespace(global, verb),
        Command::Listener { verb } => manage::listener(global, verb),
        Command::Referral { verb } => manage::referral(global, verb),
        Command::Host { verb } => manage::host(global, verb),
        Command::Pool { verb } => pools::pool(global, verb),
        Command::Drive { verb } => drives::drive(global, verb),
        Command::Volume { verb } => pools::volume(global, verb),
        Command::Snapshot { verb } => snapshots::snapshot(global, verb),
        Command::Group { verb } => groups::group(global, verb),
        Command::Schedule { verb } => schedules::schedule(global, verb),
        Command::Job { verb } => jobs::job(global, verb),
        Command::Config { verb } => configuration::config(global, verb),
        Command::Controller { verb } => manage::controller(global, verb),
        Command::Events(args) => events::run(global, &args),
        Command::Check { file } => serve::check(global, &file),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { out } => generate::man(out.as_deref()),
        Command::Openapi => generate::openapi(),
    }
}
