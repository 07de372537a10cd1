//! `flashloom config ...`: what is served as a whole, now and before.

use std::io::Read;
use std::path::Path;

use api::v1::{Consent, KeptConfiguration};
use comfy_table::Table;
use control::Client;

use crate::cli::{ConfigVerb, Global, Output, SureArgs};
use crate::confirm::{meant, removed};
use crate::daemon::ask;
use crate::exit::{Exit, Failure, Outcome};
use crate::manage::time;
use crate::output::{emit, json, or_dash, print, table};

/// `flashloom config ...`
pub fn config(global: &Global, verb: ConfigVerb) -> Outcome {
    match verb {
        ConfigVerb::Export { id } => {
            let text = ask(global, async |client: Client| match id {
                Some(id) => client.kept_configuration(id).await,
                None => client.export_configuration().await,
            })?;
            match global.output {
                Output::Json => json(&serde_json::json!({ "toml": text })),
                Output::Table | Output::Csv => emit(&text),
            }
        }
        ConfigVerb::Import { file, sure } => {
            let text = read(&file)?;
            import(global, &file.display().to_string(), &text, sure)
        }
        ConfigVerb::History => {
            let all = ask(global, async |client| client.configuration_history().await)?;
            print(global.output, &all, |all| history_table(all))
        }
        ConfigVerb::Undo { id, sure } => {
            let id = match id {
                Some(id) => id,
                None => latest(global)?,
            };
            let text = ask(global, async |client| client.kept_configuration(id).await)?;
            import(global, &format!("{id} of the history"), &text, sure)
        }
    }
}

fn import(global: &Global, name: &str, text: &str, sure: SureArgs) -> Outcome {
    let import = async |client: Client, consent: Consent| {
        client.import_configuration(name, text, consent).await
    };
    let dry_run = async |client: Client| import(client, Consent::DRY_RUN).await;
    let Some(consent) = meant(global, &sure, dry_run)? else { return Ok(()) };
    let losses = ask(global, async |client| import(client, consent).await)?;
    removed(global, &losses)
}

fn latest(global: &Global) -> Outcome<u64> {
    let all = ask(global, async |client| client.configuration_history().await)?;
    all.first().map(|kept| kept.id).ok_or_else(|| {
        Failure::new(Exit::Failed, "nothing else was served before that is kept")
            .help("`flashloom config history` shows what is kept, and --help when")
    })
}

fn read(file: &Path) -> Outcome<String> {
    let mut text = String::new();
    let read = match file.to_str() {
        Some("-") => std::io::stdin().lock().read_to_string(&mut text).map(|_| text),
        _ => std::fs::read_to_string(file),
    };
    read.map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", file.display())))
}

fn history_table(all: &[KeptConfiguration]) -> Table {
    let header = ["id", "kept at", "listeners", "subsystems", "namespaces", "before", "by"];
    let mut table = table(&header, &[0, 2, 3, 4]);
    for kept in all {
        table.add_row([
            kept.id.to_string(),
            or_dash(time(kept.time_ms)),
            kept.listeners.to_string(),
            kept.subsystems.to_string(),
            kept.namespaces.to_string(),
            kept.before.clone(),
            or_dash(kept.by.as_ref()),
        ]);
    }
    table
}
