//! What cannot be taken back is asked for twice.

use std::io::{BufRead, IsTerminal, Write};

use api::v1::{Consent, Losses};
use control::Client;

use crate::cli::{Global, Output, SureArgs};
use crate::daemon::ask;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{emit, json};

/// Goes on if `yes` was given, or somebody at a terminal says so; `loss` is what will be lost, as a sentence.
///
/// # Errors
/// Nobody said so.
pub fn confirm(loss: &str, yes: bool) -> Outcome {
    if yes {
        return Ok(());
    }
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if !stdin.is_terminal() {
        return Err(Failure::new(Exit::Failed, loss).help("--yes does it without asking"));
    }
    let failed = |error| Failure::new(Exit::Failed, error);
    write!(stderr, "{loss}\nGo on? [y/N] ").and_then(|()| stderr.flush()).map_err(failed)?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer).map_err(failed)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::new(Exit::Failed, "nothing was changed")),
    }
}

/// Has somebody say that what a change takes away is meant to go; `would_lose` asks the daemon what that is. Gives what
/// the daemon is to be told then, or nothing where the losses were all that was asked for: they are printed.
///
/// # Errors
/// Nobody said so; as every request.
pub fn meant<F>(
    global: &Global,
    sure: &SureArgs,
    would_lose: impl FnOnce(Client) -> F,
) -> Outcome<Option<Consent>>
where
    F: Future<Output = control::client::Result<Losses>>,
{
    if sure.yes && !sure.dry_run {
        return Ok(Some(Consent::FORCE));
    }
    let losses = ask(global, would_lose)?;
    if sure.dry_run {
        return print_losses(global, &losses).map(|()| None);
    }
    if losses.losses.is_empty() {
        return Ok(Some(Consent::NONE));
    }
    confirm(&losses.losses.join("\n"), false)?;
    Ok(Some(Consent::FORCE))
}

fn print_losses(global: &Global, losses: &Losses) -> Outcome {
    match (global.output, losses.losses.as_slice()) {
        (Output::Json, _) => json(losses),
        (_, []) => emit("nothing would be lost\n"),
        (_, all) => emit(&format!("{}\n", all.join("\n"))),
    }
}

/// What a removal is answered with: what was lost, for programs.
pub fn removed(global: &Global, losses: &Losses) -> Outcome {
    match global.output {
        Output::Json => json(losses),
        Output::Table | Output::Csv => Ok(()),
    }
}
