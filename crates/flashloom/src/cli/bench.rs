//! `bench`: what to run, where, and what to make of it.
//!
//! What a job is made of is text here: `bench::spec` gives it its meaning, the same for an option, for `--job`
//! and for a job file.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use api::value::Size;
use clap::{Args, Subcommand, ValueEnum};
use initiator::Address;

use super::ablation::AblationArgs;
use super::connect::ConnectArgs;
use super::hosts::duration;
use super::raid::MemberSpec;
use super::serve::Poll;
use super::value;
use crate::bench::spec::{self, checked};

/// Measure a namespace from user space; the result reads like fio's.
#[derive(Args, Clone, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "\
Examples:
  flashloom bench --rw randread --bs 4k --iodepth 32 --runtime 10s
  flashloom bench --traddr 192.0.2.10 --subnqn nqn.2026-11.io.flashloom:db --nsid 1 --rw randwrite --nr-io-queues 4
  flashloom bench --rw randrw --rwmixread 70 --size 1GiB --verify
  flashloom bench --rw randread --bssplit 4k/70:64k/30 --random-distribution zipf:1.2 --ramp-time 2s
  flashloom bench --job name=readers,rw=randread,iodepth=1,numjobs=16 --job name=writer,rw=write,bs=1m,iodepth=16
  flashloom bench --job-file mixed.toml --out mixed
  flashloom bench --rw randread --iodepth 1,2,4,8,16,32,64,128 --runtime 3s --out depths
  flashloom bench --rw read --bs 128k --iodepth 8 -o json
  flashloom bench --rw randread --filename /dev/nvme0n1
  flashloom bench --rw randwrite --rate-iops 20000 --cpu-of daemon
  flashloom bench --rw randwrite --runtime 10m --verify --journal acks.jnl --reconnect 2m
  flashloom bench --check --journal acks.jnl
  flashloom bench report --out report

What is written is lost on the namespace: a write test destroys its data.

Options are fio's where fio has them. They describe one job, or what all jobs of --job and --job-file have
in common. A job file is TOML: [global] and one [[job]] table for each job, with the same words:

  [global]
  runtime = \"30s\"

  [[job]]
  name = \"readers\"
  rw = \"randread\"
  iodepth = 4

  [[job]]
  name = \"writer\"
  rw = \"write\"
  bs = \"1m\"
  rate = \"200m\"

With --journal the file keeps which write of each block was acknowledged. The target may be killed
at any time: the load connects again, and writes that were in flight may be there or not. --check
reads back, at any time later, everything that the journal says was acknowledged; it lists what is
lost or wrong and exits with 1 if there is any. A journal is continued by a load with the same --bs
and --size; --check takes both from the journal."
)]
pub struct BenchArgs {
    #[command(flatten)]
    pub connect: ConnectArgs,

    #[command(flatten)]
    pub load: LoadArgs,

    /// Work on a RAID set (see `flashloom raid`) of these namespaces: traddr=ADDR,trsvcid=PORT,nqn=NQN,nsid=NSID, given once
    /// for each.
    #[arg(long = "member", value_name = "MEMBER", conflicts_with_all = ["path", "all_paths", "filename"])]
    pub members: Vec<MemberSpec>,

    /// A job with what it does not have in common with others: the options' names and values. Several
    /// run at the same time and are reported one by one.
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = spec::inline)]
    pub job: Vec<spec::Inline>,

    /// Jobs of a TOML file.
    #[arg(long, value_name = "FILE")]
    pub job_file: Option<PathBuf>,

    /// Run no load: read back what --journal says was acknowledged.
    #[arg(long, requires = "journal", conflicts_with_all = ["verify", "runtime", "size", "io_size", "job", "job_file"])]
    pub check: bool,

    /// What of the target to ask for CPU time: the process with this number, or the daemon of --state-dir.
    #[arg(long, value_name = "PID|daemon")]
    pub cpu_of: Option<CpuOf>,

    /// Write everything into this directory: result, time series, HDR histograms, fio's logs, plots.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// With -o json: how often each latency came, as fio's json+.
    #[arg(long)]
    pub bins: bool,

    #[command(subcommand)]
    pub verb: Option<BenchVerb>,
}

/// What else can be measured.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchVerb {
    /// Measure what each optimization of the host's side brings: all off, each one alone, all but each one, all on.
    Ablation(Box<AblationArgs>),
    /// Compare a file or device used locally with the same one served over the fabric: tables and plots.
    Report(Box<ReportArgs>),
}

/// One job.
#[derive(Args, Clone, Debug, Default)]
pub struct LoadArgs {
    /// What to do. [default: randread]
    #[arg(long, value_name = "PATTERN")]
    pub rw: Option<Pattern>,

    /// Share of reads of a mixed pattern, in percent. [default: 50]
    #[arg(long, value_name = "PERCENT", value_parser = checked("rwmixread"))]
    pub rwmixread: Option<String>,

    /// Bytes of one command; of reads and of writes with a comma between. [default: 4k]
    #[arg(long, value_name = "SIZE[,SIZE]", value_parser = checked("bs"))]
    pub bs: Option<String>,

    /// Sizes of commands and their shares in percent; of reads and of writes with a comma between.
    #[arg(long, value_name = "SIZE/PERCENT:...", value_parser = checked("bssplit"), conflicts_with = "bs")]
    pub bssplit: Option<String>,

    /// How random addresses are drawn: random (each block once before any comes again), or by Zipf's
    /// law. [default: random]
    #[arg(long, value_name = "random|zipf:EXPONENT", value_parser = checked("random-distribution"))]
    pub random_distribution: Option<String>,

    /// Commands outstanding on each queue; several depths are run one after the other. [default: 32]
    #[arg(long, value_name = "COUNT[,COUNT]", value_delimiter = ',', value_parser = checked("iodepth"))]
    pub iodepth: Vec<String>,

    /// Copies of the job, each with a controller of its own.
    #[arg(long, value_name = "COUNT", value_parser = checked("numjobs"))]
    pub numjobs: Option<String>,

    /// Stop after this time. [default: 10s unless --size or --io-size is given]
    #[arg(long, value_name = "TIME", value_parser = checked("runtime"))]
    pub runtime: Option<String>,

    /// Run for so long before that, unmeasured.
    #[arg(long, value_name = "TIME", value_parser = checked("ramp-time"))]
    pub ramp_time: Option<String>,

    /// First byte to work on.
    #[arg(long, value_name = "SIZE", value_parser = checked("offset"))]
    pub offset: Option<String>,

    /// Bytes from there to stay within, and to move unless --io-size or --runtime is given. [default:
    /// all of the namespace]
    #[arg(long, value_name = "SIZE", value_parser = checked("size"))]
    pub size: Option<String>,

    /// Stop after this many bytes.
    #[arg(long, value_name = "SIZE", value_parser = checked("io-size"), conflicts_with = "runtime")]
    pub io_size: Option<String>,

    /// Bytes a second over all queues at most.
    #[arg(long, value_name = "SIZE", value_parser = checked("rate"))]
    pub rate: Option<String>,

    /// Commands a second over all queues at most.
    #[arg(long, value_name = "IOPS", value_parser = checked("rate-iops"))]
    pub rate_iops: Option<String>,

    /// Pause of each queue once its commands are done.
    #[arg(long, value_name = "TIME", value_parser = checked("thinktime"))]
    pub thinktime: Option<String>,

    /// Commands between two pauses. [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = checked("thinktime-blocks"), requires = "thinktime")]
    pub thinktime_blocks: Option<String>,

    /// Check what is read against what was written.
    #[arg(long)]
    pub verify: bool,

    /// Keep what is acknowledged in this file, for --check.
    #[arg(long, value_name = "FILE")]
    pub journal: Option<String>,

    /// How long the target may be away before the run is given up. [default: 60s with --journal,
    /// else a lost connection ends the run]
    #[arg(long, value_name = "TIME", value_parser = checked("reconnect"))]
    pub reconnect: Option<String>,

    /// Have writes go by a direct write window, where the target has one: off, auto, shm (on this machine), rdma, or
    /// require, which fails without. [default: off]
    #[arg(long, value_name = "USE", value_parser = checked("window"))]
    pub window: Option<String>,

    /// Work on this file or device of this machine in place of a namespace.
    #[arg(long, value_name = "PATH")]
    pub filename: Option<String>,

    /// CPUs to spread the queues over. [default: one thread, not pinned]
    #[arg(long, value_name = "LIST", value_parser = checked("cpus"))]
    pub cpus: Option<String>,

    /// How to wait for completions. [default: busy]
    #[arg(long, value_name = "POLICY")]
    pub poll: Option<Poll>,

    /// Seed of addresses, directions and data.
    #[arg(long, value_name = "NUMBER", value_parser = checked("randseed"))]
    pub randseed: Option<String>,

    /// Interval of the time series; off keeps none. [default: 1s]
    #[arg(long, value_name = "TIME|off", value_parser = checked("log-interval"))]
    pub log_interval: Option<String>,

    /// Name in the report. [default: bench]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

impl LoadArgs {
    /// What was given, as words and values; depths are the caller's.
    pub fn given(&self) -> Vec<(&'static str, String)> {
        let name =
            |value: Option<clap::builder::PossibleValue>| value.map(|v| v.get_name().to_owned());
        let texts = [
            ("rw", name(self.rw.and_then(|rw| rw.to_possible_value()))),
            ("rwmixread", self.rwmixread.clone()),
            ("bs", self.bs.clone()),
            ("bssplit", self.bssplit.clone()),
            ("random-distribution", self.random_distribution.clone()),
            ("numjobs", self.numjobs.clone()),
            ("runtime", self.runtime.clone()),
            ("ramp-time", self.ramp_time.clone()),
            ("offset", self.offset.clone()),
            ("size", self.size.clone()),
            ("io-size", self.io_size.clone()),
            ("rate", self.rate.clone()),
            ("rate-iops", self.rate_iops.clone()),
            ("thinktime", self.thinktime.clone()),
            ("thinktime-blocks", self.thinktime_blocks.clone()),
            ("verify", self.verify.then(|| "true".to_owned())),
            ("journal", self.journal.clone()),
            ("reconnect", self.reconnect.clone()),
            ("window", self.window.clone()),
            ("filename", self.filename.clone()),
            ("cpus", self.cpus.clone()),
            ("poll", name(self.poll.and_then(|poll| poll.to_possible_value()))),
            ("randseed", self.randseed.clone()),
            ("log-interval", self.log_interval.clone()),
            ("name", self.name.clone()),
        ];
        texts.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
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

/// Whom to ask what the load costs the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuOf {
    /// A process on this machine.
    Process(u32),
    /// The running daemon.
    Daemon,
}

impl FromStr for CpuOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("daemon", _) => Ok(Self::Daemon),
            (_, Ok(pid)) => Ok(Self::Process(pid)),
            _ => Err("write the number of a process, or daemon".to_owned()),
        }
    }
}

/// Compare a file or device used locally with the same one served over the fabric: tables and plots.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  flashloom bench report --out report
  flashloom bench report --out report --size 4GiB --runtime 30s --cpu 1 --target-cpu 0
  flashloom bench report --out report --local /dev/nvme1n1 --overwrite
  flashloom bench report --out report --local /dev/nvme1n1 --overwrite --traddr 192.0.2.10 --subnqn nqn.2026-11.io.flashloom:db

Local is the file or device itself, past the page cache, through the same reactor and the same load generator.
Fabric is the same file or device, served by this program over NVMe/TCP on 127.0.0.1; with --traddr it is
whatever is served there. A namespace in memory, served the same way, shows what the fabric alone costs.
Where it is served here there are durable writes of 512 bytes to 16 KiB, too: to a volume of a pool of files
in DIR with its log in /dev/shm, by NVMe/TCP and by a direct write window.")]
pub struct ReportArgs {
    /// Where report.md, the plots and the results go.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,

    /// The file or device. [default: a file in DIR, removed at the end]
    #[arg(long, value_name = "PATH", requires = "overwrite")]
    pub local: Option<PathBuf>,

    /// Confirm that what is on --local may be overwritten.
    #[arg(long)]
    pub overwrite: bool,

    /// Bytes to work on.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = value::<Size>)]
    pub size: Size,

    /// How long each of the loads runs.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub runtime: Duration,

    /// Address of a target that serves the same device, or another one, elsewhere: its namespace is overwritten.
    #[arg(long, short = 'a', value_name = "[rdma://]ADDR[:PORT]", requires = "overwrite")]
    pub traddr: Option<Address>,

    /// Port of that target.
    #[arg(long, short = 's', value_name = "PORT", default_value = "4420")]
    pub trsvcid: u16,

    /// NQN of its subsystem.
    #[arg(long, short = 'n', value_name = "NQN", default_value = super::DEFAULT_NQN)]
    pub subnqn: String,

    /// Its namespace.
    #[arg(long, value_name = "NSID", default_value = "1")]
    pub nsid: u32,

    /// CPU of the load. [default: any]
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,

    /// CPU of the target that is started here. [default: any]
    #[arg(long, value_name = "CPU", conflicts_with = "traddr")]
    pub target_cpu: Option<usize>,

    /// How to wait for completions.
    #[arg(long, value_name = "POLICY", default_value = "adaptive")]
    pub poll: Poll,
}
