//! The host side in use: `attach`, and how to connect.

use std::str::FromStr;
use std::time::Duration;

use attach::Place;
use clap::Args;

use super::hosts::{AskArgs, duration};
use super::serve::Poll;
use crate::log::Format;

/// How to connect to a namespace; the names are those of nvme-cli.
#[derive(Args, Clone, Debug)]
pub struct ConnectArgs {
    #[command(flatten)]
    pub ask: AskArgs,

    /// The namespace.
    #[arg(long, value_name = "NSID", default_value = "1")]
    pub nsid: u32,

    /// I/O queues, each on a connection of its own.
    #[arg(long, short = 'i', value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u16).range(1..))]
    pub nr_io_queues: u16,

    /// I/O queues beside them for what is no read.
    #[arg(long, short = 'W', value_name = "COUNT", default_value = "0")]
    pub nr_write_queues: u16,

    /// Commands outstanding on each queue.
    #[arg(long, short = 'Q', value_name = "COUNT", default_value = "128", value_parser = clap::value_parser!(u16).range(2..))]
    pub queue_size: u16,

    /// Keep Alive Timeout. [default: 5s]
    #[arg(long, short = 'k', value_name = "TIME", value_parser = duration)]
    pub keep_alive_tmo: Option<Duration>,

    /// Time between attempts to connect again. [default: 10s]
    #[arg(long, short = 'c', value_name = "TIME", value_parser = duration)]
    pub reconnect_delay: Option<Duration>,

    /// How long it is tried to connect again; off is for ever. [default: 600s]
    #[arg(long, short = 'l', value_name = "TIME|off")]
    pub ctrl_loss_tmo: Option<Patience>,

    /// After this long without the target commands fail; off has them wait. [default: off]
    #[arg(long, short = 'F', value_name = "TIME|off")]
    pub fast_io_fail_tmo: Option<Patience>,

    /// Type of service of what is sent, or its traffic class.
    #[arg(long, short = 'T', value_name = "TOS")]
    pub tos: Option<u8>,

    /// Priority of the connections, by which network cards choose the outbound queue.
    #[arg(long, value_name = "PRIORITY")]
    pub so_priority: Option<i32>,

    /// Ask for header digests.
    #[arg(long, short = 'g')]
    pub hdr_digest: bool,

    /// Ask for data digests.
    #[arg(long, short = 'G')]
    pub data_digest: bool,
}

/// A time, or for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience(pub Option<Duration>);

impl FromStr for Patience {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self(None)),
            time => duration(time).map(Some).map(Self).map_err(|right| format!("{right}, or off")),
        }
    }
}

/// Use a namespace of a target as a network block device, without a kernel driver for NVMe/TCP.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  flashloom attach --nbd unix:/run/db.sock --traddr 192.0.2.10 --subnqn nqn.2026-11.io.flashloom:db
  flashloom attach --nbd 127.0.0.1:10809 --traddr 192.0.2.10 --trsvcid 4420 --nsid 2 --read-only
  flashloom attach --nbd unix:/run/db.sock --nr-io-queues 4 --hdr-digest --data-digest

It serves until SIGTERM or SIGINT. What reads and writes NBD can use it then, for example:

  nbdinfo 'nbd+unix:///?socket=/run/db.sock'
  qemu-img convert -O raw 'nbd+unix:///?socket=/run/db.sock' db.img
  nbd-client -unix /run/db.sock /dev/nbd0")]
pub struct AttachArgs {
    #[command(flatten)]
    pub connect: ConnectArgs,

    /// Serve it by NBD here: a socket in the file system, or a TCP port.
    #[arg(long, value_name = "unix:PATH|HOST:PORT")]
    pub nbd: Place,

    /// Name of the export. Clients that name none mean it, too.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub export: String,

    /// Refuse to write.
    #[arg(long)]
    pub read_only: bool,

    /// CPU to run on. [default: any]
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,

    /// How to wait for work.
    #[arg(long, value_name = "POLICY", default_value = "adaptive")]
    pub poll: Poll,

    /// How to log.
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub log: Format,
}
