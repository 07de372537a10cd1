//! The host side: `bench`, `discover`, `id-ctrl`, `id-ns`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use api::value::Size;
use clap::{Args, Subcommand, ValueEnum};
use initiator::HostIdentity;

use super::ablation::AblationArgs;
use super::serve::{Cpus, Poll};
use super::value;

/// Which controller to speak to, and as whom.
#[derive(Args, Clone, Debug)]
pub struct To {
    /// Address of the target: IP address or name.
    #[arg(long, short = 'a', value_name = "ADDR", default_value = "127.0.0.1")]
    pub traddr: String,

    /// TCP port of the target.
    #[arg(long, short = 's', value_name = "PORT", default_value = "4420")]
    pub trsvcid: u16,

    /// Host NQN to connect as. [default: this machine's]
    #[arg(long, short = 'q', value_name = "NQN")]
    pub hostnqn: Option<String>,

    /// Host Identifier, a UUID. [default: that of --hostnqn, or this machine's]
    #[arg(long, short = 'I', value_name = "UUID", value_parser = HostIdentity::parse_id)]
    pub hostid: Option<[u8; 16]>,
}

impl To {
    /// Who connects.
    pub fn host(&self) -> HostIdentity {
        HostIdentity::of(self.hostnqn.as_deref(), self.hostid)
    }
}

/// Print the discovery log of a target.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  flashloom discover
  flashloom discover --traddr 192.0.2.10 --trsvcid 8009
  flashloom discover -o json")]
pub struct DiscoverArgs {
    #[command(flatten)]
    pub to: To,
}

/// Print a controller's Identify data.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  flashloom id-ctrl
  flashloom id-ctrl --traddr 192.0.2.10 --subnqn nqn.2026-11.io.flashloom:db -o json")]
pub struct AskArgs {
    #[command(flatten)]
    pub to: To,

    /// NQN of the subsystem.
    #[arg(long, short = 'n', value_name = "NQN", default_value = super::DEFAULT_NQN)]
    pub subnqn: String,
}

/// Print a namespace's Identify data.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  flashloom id-ns --nsid 1
  flashloom id-ns --traddr 192.0.2.10 --subnqn nqn.2026-11.io.flashloom:db --nsid 2 -o json")]
pub struct IdNsArgs {
    #[command(flatten)]
    pub ask: AskArgs,

    /// The namespace.
    #[arg(long, value_name = "NSID", default_value = "1")]
    pub nsid: u32,
}

/// Measure a namespace from user space; the result reads like fio's.
#[derive(Args, Clone, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "\
Examples:
  flashloom bench --rw randread --bs 4k --iodepth 32 --runtime 10s
  flashloom bench --traddr 192.0.2.10 --subnqn nqn.2026-11.io.flashloom:db --nsid 1 --rw randwrite --queues 4
  flashloom bench --rw randrw --rwmixread 70 --size 1GiB --verify
  flashloom bench --rw read --bs 128k --iodepth 8 -o json
  flashloom bench --rw randwrite --runtime 10m --verify --journal acks.jnl --reconnect 2m
  flashloom bench --check --journal acks.jnl

What is written is lost on the namespace: a write test destroys its data.

With --journal the file keeps which write of each block was acknowledged. The target may be killed
at any time: the load connects again, and writes that were in flight may be there or not. --check
reads back, at any time later, everything that the journal says was acknowledged; it lists what is
lost or wrong and exits with 1 if there is any. A journal is continued by a load with the same --bs
and --region; --check takes both from the journal."
)]
pub struct BenchArgs {
    #[command(flatten)]
    pub ask: AskArgs,

    /// The namespace.
    #[arg(long, value_name = "NSID", default_value = "1")]
    pub nsid: u32,

    /// What to do.
    #[arg(long, value_name = "PATTERN", default_value = "randread")]
    pub rw: Pattern,

    /// Share of reads of a mixed pattern, in percent.
    #[arg(long, value_name = "PERCENT", default_value = "50", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub rwmixread: u8,

    /// Bytes of one command.
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = value::<Size>)]
    pub bs: Size,

    /// Commands outstanding on each queue.
    #[arg(long, value_name = "COUNT", default_value = "32", value_parser = clap::value_parser!(u16).range(1..))]
    pub iodepth: u16,

    /// I/O queues, each on a connection of its own.
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u16).range(1..))]
    pub queues: u16,

    /// Stop after this time. [default: 10s unless --size is given]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "size")]
    pub runtime: Option<Duration>,

    /// Stop after this many bytes.
    #[arg(long, value_name = "SIZE", value_parser = value::<Size>)]
    pub size: Option<Size>,

    /// Stay within this many bytes of the namespace.
    #[arg(long, value_name = "SIZE", value_parser = value::<Size>)]
    pub region: Option<Size>,

    /// Check what is read against what was written.
    #[arg(long)]
    pub verify: bool,

    /// Run no load: read back what --journal says was acknowledged.
    #[arg(long, requires = "journal", conflicts_with_all = ["verify", "runtime", "size", "region", "beside"])]
    pub check: bool,

    /// Keep what is acknowledged in this file, for --check.
    #[arg(long, value_name = "FILE", conflicts_with = "beside")]
    pub journal: Option<PathBuf>,

    /// How long the target may be away before the run is given up. [default: 60s with --journal,
    /// else a lost connection ends the run]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub reconnect: Option<Duration>,

    /// Commands a second over all queues at most.
    #[arg(long, value_name = "IOPS")]
    pub rate: Option<u64>,

    /// Ask for header digests.
    #[arg(long)]
    pub hdr_digest: bool,

    /// Ask for data digests.
    #[arg(long)]
    pub data_digest: bool,

    /// CPUs to spread the queues over. [default: one thread, not pinned]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<Cpus>,

    /// How to wait for completions.
    #[arg(long, value_name = "POLICY", default_value = "busy")]
    pub poll: Poll,

    /// Name in the report.
    #[arg(long, value_name = "NAME", default_value = "bench")]
    pub name: String,

    /// A second load on the same CPUs at the same time, on a queue of its own: a pattern, a size and
    /// a depth. Reported as a job of its own.
    #[arg(long, value_name = "PATTERN,SIZE,DEPTH")]
    pub beside: Option<Beside>,

    #[command(subcommand)]
    pub verb: Option<BenchVerb>,
}

/// What else can be measured.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchVerb {
    /// Measure what each cure of the host's side brings: all off, each one alone, all but each one, all on.
    Ablation(Box<AblationArgs>),
}

/// `write,1m,16`: one queue's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    pub rw: Pattern,
    pub bs: Size,
    pub iodepth: u16,
}

impl FromStr for Beside {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let right = || format!("write a pattern, a size and a depth such as write,1m,16: `{text}`");
        let mut parts = text.split(',');
        let (Some(rw), Some(bs), Some(depth), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(right());
        };
        let iodepth = depth.parse().ok().filter(|&depth| depth > 0).ok_or_else(right)?;
        Ok(Self {
            rw: <Pattern as ValueEnum>::from_str(rw, false)?,
            bs: value::<Size>(bs)?,
            iodepth,
        })
    }
}

/// fio's names of what a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    /// Read in ascending order.
    Read,
    /// Write in ascending order.
    Write,
    /// Read in random order.
    Randread,
    /// Write in random order.
    Randwrite,
    /// Both in ascending order.
    Rw,
    /// Both in random order.
    Randrw,
}

/// `10`, `10s`, `500ms`, `2m`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|char: char| char.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| RIGHT.to_owned())?;
    const RIGHT: &str = "write a time such as 10s, 500ms or 2m";
    let duration = match unit {
        "" | "s" => Duration::from_secs(number),
        "ms" => Duration::from_millis(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        _ => return Err(RIGHT.to_owned()),
    };
    if duration.is_zero() {
        return Err("a run takes some time; ".to_owned() + RIGHT);
    }
    Ok(duration)
}
