//! What is asked of the running daemon about its configuration as a whole.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Whether what a change takes away is meant to go.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct SureArgs {
    /// Do it without asking, whatever is lost.
    #[arg(long)]
    pub yes: bool,
    /// Say what would be lost, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigVerb {
    /// Print a configuration file that asks for what is served.
    #[command(after_long_help = "\
Examples:
  flashloom config export
  flashloom config export --id 3

Pools and volumes are on their drives, and not a part of it; what volumes are mapped as is. Settings of the node
([node], [serving], [drives], [metrics]) are in the file that `serve --config` reads.")]
    Export {
        /// What was served before: its number in the history.
        #[arg(long, value_name = "ID")]
        id: Option<u64>,
    },
    /// Serve what a configuration file asks for, and nothing else; what was served is kept.
    #[command(after_long_help = "\
Examples:
  flashloom config import saved.toml --dry-run
  flashloom config import saved.toml
  flashloom config import - --yes")]
    Import {
        /// The file; - reads standard input.
        file: PathBuf,
        #[command(flatten)]
        sure: SureArgs,
    },
    /// Print what was served before changes that left something out.
    #[command(after_long_help = "\
Examples:
  flashloom config history
  flashloom config export --id 3

A configuration is kept before a change that takes something away, before another one is imported, and before a start
that serves something else (another command line, --fresh, a changed file). The latest 32 are kept.")]
    History,
    /// Serve what was served before; what is served now is kept, so that this can be undone.
    #[command(after_long_help = "\
Examples:
  flashloom config undo --dry-run
  flashloom config undo
  flashloom config undo 3

What namespaces in memory held is gone for good.")]
    Undo {
        /// Its number in the history. [default: the latest]
        id: Option<u64>,
        #[command(flatten)]
        sure: SureArgs,
    },
}
