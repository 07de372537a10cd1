//! Running other programs, with an error that says which one failed and what it said.
use crate::Result;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs to the end and returns standard output. An exit code other than 0 is an error that
/// carries both outputs.
pub fn run(command: &mut Command) -> Result<Vec<u8>> {
    let shown = format!("{command:?}");
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| format!("{shown}: {error}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!(
        "{shown}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
    .into())
}

/// A command that is killed when the thread that starts it ends: nothing outlives the harness.
pub fn tied(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program.as_ref());
    command.stdin(Stdio::null());
    command
}
