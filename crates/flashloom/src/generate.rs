//! What is generated from the command line's own description: completions, manual pages, OpenAPI.

use std::fs;
use std::io;
use std::path::Path;

use clap::CommandFactory;

use crate::cli::Cli;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::emit;

fn failed(error: io::Error) -> Failure {
    Failure::new(Exit::Failed, error)
}

/// Prints the completion script of `shell`.
pub fn completions(shell: clap_complete::Shell) -> Outcome {
    // Into memory first: the generator panics on a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "flashloom", &mut script);
    emit(&String::from_utf8_lossy(&script))
}

/// Prints the manual page, or writes one page per command into `out`.
pub fn man(out: Option<&Path>) -> Outcome {
    let command = Cli::command();
    let Some(out) = out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page).map_err(failed)?;
        return emit(&String::from_utf8_lossy(&page));
    };
    fs::create_dir_all(out).map_err(failed)?;
    clap_mangen::generate_to(command, out).map_err(failed)
}

/// Prints the OpenAPI description of the management API.
pub fn openapi() -> Outcome {
    crate::output::json(&control::openapi())
}
