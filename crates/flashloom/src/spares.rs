//! Commands about spares, which speak to the running daemon.

use std::path::Path;

use api::v1::{NewDrives, Spare};
use api::value::{Name, Size};
use comfy_table::Table;
use hardware::Machine;

use crate::cli::{Global, SpareVerb};
use crate::daemon::ask;
use crate::exit::{Exit, Failure, Outcome};
use crate::manage::absolute_drive;
use crate::output::{gone, or_dash, print, table};

/// `flashloom pool spare ...`
pub fn spare(global: &Global, verb: SpareVerb) -> Outcome {
    match verb {
        SpareVerb::Add { pool, drives, force } => {
            let drives = drives.into_iter().map(absolute_drive).collect::<Outcome<_>>()?;
            let new = NewDrives { drives, force };
            let all = ask(global, async |client| client.add_spares(&pool, &new).await)?;
            print(global.output, &all, |all| spare_table(all))
        }
        SpareVerb::Remove { pool, spare } => {
            let all = ask(global, async |client| client.spares(&pool).await)?;
            let found = find(&all, &spare).ok_or_else(|| none(&pool, &spare))?;
            ask(global, async |client| client.remove_spare(found).await)?;
            gone(global, "spare", &found.path, "removed")
        }
        SpareVerb::List { pool } => {
            let all = ask(global, async |client| match &pool {
                Some(pool) => client.spares(pool).await,
                None => client.all_spares().await,
            })?;
            print(global.output, &all, |all| spare_table(all))
        }
    }
}

/// By its id, or its path: as it was given, or another name of the same.
fn find<'a>(all: &'a [Spare], named: &str) -> Option<&'a Spare> {
    let real = |path: &str| Path::new(path).canonicalize().ok();
    let is_it = |spare: &&Spare| {
        let is_named = spare.id.to_string() == named || spare.path == named;
        is_named || real(named).is_some_and(|named| Some(named) == real(&spare.path))
    };
    all.iter().find(is_it)
}

fn none(pool: &Name, named: &str) -> Failure {
    Failure::new(Exit::Failed, format!("{named} is no spare of pool {pool}"))
        .help("`flashloom pool spare list` shows those there are")
}

/// `spare`, or why it cannot be used, or is not to be relied on.
pub fn state(spare: &Spare) -> String {
    let state = spare.state.name();
    match &spare.problem {
        Some(why) => format!("{state} ({why})"),
        None if spare.hardware.warnings.is_empty() => state.to_owned(),
        None => format!("{state}, warns"),
    }
}

/// What the daemon knows of it; else the machine where this is typed.
fn serial(spare: &Spare) -> Option<String> {
    let here = || Machine::new().drive(Path::new(&spare.path)).ok()??.serial;
    spare.hardware.serial.clone().or_else(here)
}

fn spare_table(all: &[Spare]) -> Table {
    let mut table = table(&["pool", "path", "state", "size", "serial", "id"], &[3]);
    for spare in all {
        table.add_row([
            spare.pool.to_string(),
            spare.path.clone(),
            state(spare),
            Size::new(spare.size).to_string(),
            or_dash(serial(spare)),
            spare.id.to_string(),
        ]);
    }
    table
}
