//! `flashloom top`.

use std::time::Duration;

use clap::Args;

use super::hosts::duration;

/// Show what hosts do, live.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  flashloom top
  flashloom top --interval 5s
  flashloom top --count 1 -o json

Reads and writes are those of each interval, latencies from receiving a command to its completion. On a terminal each
interval takes the place of the one before; elsewhere they follow each other. Ctrl-C ends it.")]
pub struct TopArgs {
    /// How long an interval is.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub interval: Duration,

    /// End after so many intervals. [default: never]
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,

    /// Show so many namespaces and hosts, the busiest.
    #[arg(long, value_name = "N", default_value = "20")]
    pub rows: usize,
}
