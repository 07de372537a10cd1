//! `flashloom health`: what needs to be looked at, with an exit code for monitors.

use std::process::ExitCode;

use api::v1::{Finding, Health, NodeHealth};
use comfy_table::Table;

use crate::cli::{Global, Output};
use crate::daemon::ask;
use crate::exit::{Failure, Outcome};
use crate::output::{emit, json, or_dash, table};

/// Exit code where nobody knows how the node is.
const UNKNOWN: u8 = 3;

/// `flashloom health`
pub fn run(global: &Global) -> ExitCode {
    match look(global) {
        Ok(Health::Ok) => ExitCode::SUCCESS,
        Ok(Health::Degraded) => ExitCode::from(1),
        Ok(Health::Failed) => ExitCode::from(2),
        Err(failure) => {
            failure.print(global.output);
            ExitCode::from(UNKNOWN)
        }
    }
}

fn look(global: &Global) -> Outcome<Health> {
    if global.output == Output::Csv {
        return Err(Failure::new(crate::exit::Exit::Usage, "health is not printed as CSV"));
    }
    let found = ask(global, async |client| client.health().await)?;
    match global.output {
        Output::Json => json(&found)?,
        Output::Table | Output::Csv => emit(&text(&found))?,
    }
    Ok(found.health)
}

/// The word that a monitor shows, first.
fn text(found: &NodeHealth) -> String {
    let NodeHealth { health, findings } = found;
    match findings.as_slice() {
        [] => format!("{}\n", health.name()),
        all => format!("{}\n{}\n", health.name(), finding_table(all)),
    }
}

fn finding_table(all: &[Finding]) -> Table {
    let mut table = table(&["health", "of", "why", "what to do"], &[]);
    for finding in all {
        table.add_row([
            finding.health.name().to_owned(),
            finding.subject.clone(),
            finding.why.clone(),
            or_dash(finding.help.as_ref()),
        ]);
    }
    table
}
