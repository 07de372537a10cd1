//! What cannot be taken back is asked for twice.

use std::io::{BufRead, IsTerminal, Write};

use crate::exit::{Exit, Failure, Outcome};

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
