//! The host side in use: `attach`.

use std::path::PathBuf;

use attach::Place;
use clap::{ArgGroup, Args};
use initiator::WindowUse;

use super::connect::ConnectArgs;
use super::raid::MemberSpec;
use super::serve::Poll;
use crate::log::Format;

/// Use a namespace of a target without a kernel driver for NVMe/TCP: as a network block device, as a virtual
/// machine's disk, or as a block device of this kernel.
#[derive(Args, Clone, Debug)]
#[command(group(ArgGroup::new("way").required(true)), after_long_help = "\
Examples:
  flashloom attach --nbd unix:/run/db.sock --traddr 192.0.2.10 --subnqn nqn.2026-11.io.flashloom:db
  flashloom attach --nbd 127.0.0.1:10809 --traddr 192.0.2.10 --trsvcid 4420 --nsid 2 --read-only
  flashloom attach --nbd unix:/run/db.sock --nr-io-queues 4 --hdr-digest --data-digest
  flashloom attach --vhost-user-blk /run/db.sock --traddr 192.0.2.10 --subnqn nqn.2026-11.io.flashloom:db
  flashloom attach --ublk --traddr 192.0.2.10 --subnqn nqn.2026-11.io.flashloom:db
  flashloom attach --nbd unix:/run/db.sock --window auto
  flashloom attach --nbd unix:/run/db.sock --member traddr=192.0.2.10 --member traddr=192.0.2.11

It serves until SIGTERM or SIGINT. What reads and writes NBD can use it then, for example:

  nbdinfo 'nbd+unix:///?socket=/run/db.sock'
  qemu-img convert -O raw 'nbd+unix:///?socket=/run/db.sock' db.img
  nbd-client -unix /run/db.sock /dev/nbd0

A virtual machine whose memory is shared uses it by vhost-user-blk:

  qemu-system-x86_64 -m 4G -object memory-backend-memfd,id=m,size=4G,share=on -machine q35,memory-backend=m \\
    -chardev socket,id=c,path=/run/db.sock,reconnect=1 -device vhost-user-blk-pci,chardev=c ...")]
pub struct AttachArgs {
    #[command(flatten)]
    pub connect: ConnectArgs,

    /// Serve it by NBD here: a socket in the file system, or a TCP port.
    #[arg(long, value_name = "unix:PATH|HOST:PORT", group = "way")]
    pub nbd: Option<Place>,

    /// Serve it to a virtual machine as a virtio disk, by vhost-user at this socket.
    #[arg(long, value_name = "PATH", group = "way")]
    pub vhost_user_blk: Option<PathBuf>,

    /// Make it a block device of this kernel (ublk; needs root, and the `ublk_drv` module of Linux 6.5 or later).
    #[arg(long, group = "way")]
    pub ublk: bool,

    /// Serve a RAID set (experimental) instead of one namespace: a member, as `flashloom raid` takes them; given once for each.
    #[arg(long = "member", value_name = "MEMBER", conflicts_with_all = ["path", "all_paths"])]
    pub members: Vec<MemberSpec>,

    /// Serve the set without members that were there when it was last used.
    #[arg(long, requires = "members")]
    pub degraded: bool,

    /// Take the set's members from another host that holds them: only when that is gone for good.
    #[arg(long, requires = "members")]
    pub take_over: bool,

    /// Name of the export (NBD). Clients that name none mean it, too.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true,
        requires = "nbd"
    )]
    pub export: String,

    /// Refuse to write.
    #[arg(long)]
    pub read_only: bool,

    /// Have writes go by a direct write window, where the target has one: off, auto, shm (on this machine), rdma, or
    /// require, which fails without.
    #[arg(long, value_name = "USE", default_value = "off")]
    pub window: WindowUse,

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
