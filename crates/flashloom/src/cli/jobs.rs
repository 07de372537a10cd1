//! What is asked of the running daemon about jobs.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::duration;

/// How to ask for what takes long.
#[derive(Args, Clone, Debug)]
pub struct JobArgs {
    /// Print the job and do not wait for its end: `flashloom job wait` does.
    #[arg(long)]
    pub no_wait: bool,

    /// A name for this request: the same request with the same key again, by a script that lost the answer, gives what
    /// came of the first.
    #[arg(long, value_name = "KEY")]
    pub request_key: Option<String>,
}

/// What to do with jobs.
#[derive(Debug, Subcommand)]
pub enum JobVerb {
    /// Print the jobs that are under way, and the latest that are over.
    #[command(after_long_help = "\
Examples:
  flashloom job list
  flashloom job list -o json")]
    #[command(alias = "ls")]
    List,
    /// Print one job: how far it is, who asked for it, and why it failed.
    #[command(after_long_help = "\
Examples:
  flashloom job show 7
  flashloom job show 7 -o json")]
    Show {
        /// Its number.
        id: u64,
    },
    /// Wait until a job is over, and print it.
    #[command(after_long_help = "\
Examples:
  flashloom job wait 7
  flashloom job wait 7 --timeout 30s -o json

Exit codes:
  0  it is done
  1  it failed, was cancelled or interrupted, or is not over after the time given
  4  no daemon answers on the management socket")]
    Wait {
        /// Its number.
        id: u64,
        /// How long to wait at most. [default: until it is over]
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        timeout: Option<Duration>,
    },
    /// Ask a job to stop before it changes anything; one that changes something by now goes on.
    #[command(after_long_help = "\
Examples:
  flashloom job cancel 7

A job that waits for its turn is cancelled at once. One that makes or imports a pool stops with its next step, until it
writes to the drives; a step waits for a drive that does not answer until its time is over.")]
    Cancel {
        /// Its number.
        id: u64,
    },
}
