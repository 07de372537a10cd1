//! `bench ablation`: what each optimization of the host's side brings.

use clap::{Args, ValueEnum};
use initiator::Optimization;

use super::connect::ConnectArgs;
use super::serve::Poll;

/// Measure what each optimization of the host's side brings: all off, each one alone, all but each one, all on.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  flashloom bench ablation
  flashloom bench ablation --load qd1,qd32 --seconds 2 --rounds 5 --cpu 1
  flashloom bench ablation --load qd128 --optimization batching --optimizations default
  flashloom bench ablation --traddr 192.0.2.10 --subnqn nqn.2026-11.io.flashloom:db --load beside -o json

The loads: qd1, qd32 and qd128 are random reads of 4 KiB, so many in flight, of one thread; many is 256 of
them over 32 queues, so that each connection has few; beside is 16 synchronous readers of 4 KiB beside a
writer that keeps 16 writes of 1 MiB in flight, which destroys what is on the namespace. Each load is run with the optimizations that concern it. Rounds run every setting once, so
that what is compared ran side by side; the table has the medians, in Markdown.

What --optimizations says is on in every setting, unless the table is about it.

Unless --nr-io-queues says otherwise there is an I/O queue for each CPU, as on a Linux host, and many has 32.")]
pub struct AblationArgs {
    #[command(flatten)]
    pub connect: ConnectArgs,

    /// Loads to run. [default: qd1,qd32,qd128]
    #[arg(long, value_name = "LOAD,...", value_delimiter = ',')]
    pub load: Vec<Load>,

    /// Optimizations to look at. [default: those that concern the load]
    #[arg(long, alias = "cure", value_name = "OPTIMIZATION,...", value_delimiter = ',', value_parser = optimization)]
    pub optimization: Vec<Optimization>,

    /// Seconds that each run is measured.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,

    /// Runs of each setting.
    #[arg(long, value_name = "COUNT", default_value = "3", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,

    /// CPU to run on. [default: any]
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,

    /// How to wait for completions.
    #[arg(long, value_name = "POLICY", default_value = "busy")]
    pub poll: Poll,
}

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// One read in flight.
    Qd1,
    /// 32 of them.
    Qd32,
    /// 128 of them.
    Qd128,
    /// 256 of them, over 32 queues.
    Many,
    /// 16 synchronous readers beside a writer of 1 MiB.
    Beside,
}

impl Load {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qd1 => "qd1",
            Self::Qd32 => "qd32",
            Self::Qd128 => "qd128",
            Self::Many => "many",
            Self::Beside => "beside",
        }
    }
}

fn optimization(text: &str) -> Result<Optimization, String> {
    let names = || Optimization::ALL.map(Optimization::name).join(", ");
    let found = Optimization::ALL.into_iter().find(|optimization| optimization.name() == text);
    found.ok_or_else(|| format!("write one of {}", names()))
}
