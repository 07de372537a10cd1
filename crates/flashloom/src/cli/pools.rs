//! What is asked of the running daemon about pools, drives and volumes.

use std::path::PathBuf;

use api::v1::{LogPolicy, NewMapping, Raid};
use api::value::{DrivePath, LogPlace, Name, Nqn, Size, SnapshotPath, VolumePath};
use clap::{Args, Subcommand, ValueEnum};

use super::drives::{RebuildVerb, RejoinVerb};
use super::scrub::ScrubVerb;
use super::spares::SpareVerb;
use super::{JobArgs, SureArgs, value};

/// What a pool is made of.
#[derive(Args, Clone, Debug)]
pub struct MadeOf {
    /// A drive: PATH, PATH,size=SIZE to create a file, or memory:SIZE to try and to measure (its
    /// contents end with the daemon); given once for each.
    #[arg(long, value_name = "DRIVE", required = true, value_parser = value::<DrivePath>)]
    pub drive: Vec<DrivePath>,

    /// Where the commit log lies: pmem:PATH (a file on DAX), bbu:PATH (memory that survives a power
    /// loss and a reboot; /dev/shm is for trials), drives, or tcp://ADDR[:PORT]/SUBNQN/NSID (a namespace
    /// of another target; rdma:// likewise); given twice, the two mirror each other.
    #[arg(long, value_name = "PLACE", value_parser = value::<LogPlace>)]
    pub log: Vec<LogPlace>,
}

/// How a pool bears the loss of drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RaidLevel {
    /// Not at all.
    Single,
    /// Two copies: one drive may be lost.
    Mirror,
    /// One drive may be lost.
    Raid5,
    /// Two drives may be lost.
    Raid6,
}

impl From<RaidLevel> for Raid {
    fn from(level: RaidLevel) -> Self {
        match level {
            RaidLevel::Single => Self::Single,
            RaidLevel::Mirror => Self::Mirror,
            RaidLevel::Raid5 => Self::Raid5,
            RaidLevel::Raid6 => Self::Raid6,
        }
    }
}

/// What to do with pools.
#[derive(Debug, Subcommand)]
pub enum PoolVerb {
    /// Make a pool; what its drives hold is lost.
    #[command(after_long_help = "\
Examples:
  flashloom pool create fast --drive /dev/nvme1n1 --drive /dev/nvme2n1 --drive /dev/nvme3n1 --drive /dev/nvme4n1
  flashloom pool create fast --drive d0,size=4GiB --drive d1,size=4GiB --raid mirror --log pmem:/mnt/pmem/fast.log --log-size 1GiB
  flashloom pool create fast --drive /dev/nvme1n1 --drive /dev/nvme2n1 --drive /dev/nvme3n1 --dry-run
  flashloom pool create fast --drive /dev/nvme1n1 --drive /dev/nvme2n1 --no-wait --request-key rollout-17

The daemon opens the pool again whenever it starts.")]
    Create {
        /// Its name.
        #[arg(value_parser = value::<Name>)]
        name: Name,
        #[command(flatten)]
        of: MadeOf,
        /// How it bears the loss of drives. [default: raid6 with four drives or more, raid5 with
        /// three, mirror with two]
        #[arg(long, value_name = "LEVEL")]
        raid: Option<RaidLevel>,
        /// Size of the commit log. [default: one that suits the drives]
        #[arg(long, value_name = "SIZE", value_parser = value::<Size>)]
        log_size: Option<Size>,
        /// Shards to cut it into for good, 1 to 64: each is served by one reactor. Every shard takes
        /// its share of the log, some segments and up to 100 MiB of memory. [default: one for each
        /// reactor of the daemon, or fewer where there would be less than 128 segments or 16 MiB of
        /// log for each]
        #[arg(long, value_name = "N")]
        shards: Option<u16>,
        /// Take drives and logs that are not blank, such as another pool's or those with a file system:
        /// what they hold is lost.
        #[arg(long)]
        force: bool,
        /// Say what would be made, and what each drive's bytes would be for; change nothing.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Print the pools.
    #[command(after_long_help = "\
Examples:
  flashloom pool list
  flashloom pool list -o json")]
    #[command(alias = "ls")]
    List,
    /// Print how a pool is doing: capacity, log, drives, segments, write amplification.
    #[command(after_long_help = "\
Examples:
  flashloom pool show fast
  flashloom pool show fast -o json")]
    Show {
        /// Its name.
        #[arg(value_parser = value::<Name>)]
        name: Name,
    },
    /// Change where a pool's commit log lies.
    Log {
        #[command(subcommand)]
        verb: LogVerb,
    },
    /// Bring a pool's redundancy back after drives are gone, without new ones.
    Rebuild {
        #[command(subcommand)]
        verb: RebuildVerb,
    },
    /// Say how fast drives are made whole that were away, or are new in their places.
    Rejoin {
        #[command(subcommand)]
        verb: RejoinVerb,
    },
    /// Have drives stand by to take the place of one that fails.
    Spare {
        #[command(subcommand)]
        verb: SpareVerb,
    },
    /// Check what a pool's drives hold, and put right what is damaged.
    Scrub {
        #[command(subcommand)]
        verb: ScrubVerb,
    },
    /// Close a pool so that another node can import it.
    #[command(after_long_help = "\
Examples:
  flashloom pool export fast")]
    Export {
        /// Its name.
        #[arg(value_parser = value::<Name>)]
        name: Name,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Delete a pool and all its volumes: its drives are blank then, and the files of its log are gone.
    #[command(after_long_help = "\
Examples:
  flashloom pool delete fast --dry-run
  flashloom pool delete fast
  flashloom pool delete fast --yes

Its volumes must not be mapped. A pool that is not open can be deleted, too: drives of it that are not there keep what they hold.")]
    Delete {
        /// Its name.
        #[arg(value_parser = value::<Name>)]
        name: Name,
        #[command(flatten)]
        sure: SureArgs,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Open a pool: one that was exported, or that the daemon could not open. Without --drive, its drives are looked
    /// for in /dev/disk/by-id and the daemon's drive-folders.
    #[command(after_long_help = "\
Examples:
  flashloom pool import --dry-run
  flashloom pool import fast
  flashloom pool import --drive /dev/nvme1n1 --drive /dev/nvme2n1 --drive /dev/nvme3n1 --drive /dev/nvme4n1
  flashloom pool import --drive d0 --drive d2 --drive d3 --log bbu:/dev/shm/fast.log --degraded")]
    Import {
        /// The pool, where drives of several are found.
        #[arg(value_parser = value::<Name>)]
        name: Option<Name>,
        /// A drive of it; given once for each. [default: those that are found]
        #[arg(long, value_name = "DRIVE", value_parser = value::<DrivePath>)]
        drive: Vec<DrivePath>,
        /// Where its commit log lies, unless it is on the drives: pmem:PATH, bbu:PATH or
        /// tcp://ADDR[:PORT]/SUBNQN/NSID.
        /// [default: where the node knows it to be]
        #[arg(long, value_name = "PLACE", value_parser = value::<LogPlace>)]
        log: Vec<LogPlace>,
        /// Look at what would be imported, and change nothing.
        #[arg(long)]
        dry_run: bool,
        /// Do it without asking.
        #[arg(long)]
        yes: bool,
        /// Open it with drives missing, as many as it bears; these count as failed from then on.
        #[arg(long)]
        degraded: bool,
        /// Open it without what its commit log lost, or without the log if it is lost as a whole and
        /// --log names a place that is blank: the error that it would not open for says what.
        #[arg(long)]
        accept_loss: bool,
        /// Open it though it was not exported: the node that had it is gone for good.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Check everything a pool's drives hold, as fsck does, and explain it; nothing is changed.
    #[command(after_long_help = "\
Examples:
  flashloom pool dump fast
  flashloom pool dump fast --data -o json
  flashloom pool dump --drive /dev/nvme1n1 --drive /dev/nvme2n1 --log pmem:/mnt/pmem/fast.log --segments

It needs no daemon, and a pool that none has open: one that was exported, that would not open, or whose
daemon is stopped. Drives and log are opened for reading only.

Findings are errors (data or a structure is lost), warnings (redundancy is less than it should be, or a
hint is wrong) and notes. The exit code is 1 when there are errors, else 0.")]
    Dump(DumpArgs),
}

/// What to do with a pool's commit log.
#[derive(Debug, Subcommand)]
pub enum LogVerb {
    /// Move the commit log of an open pool to another place, of another kind too; hosts go on writing.
    #[command(after_long_help = "\
Examples:
  flashloom pool log move fast pmem:/mnt/pmem/fast.log
  flashloom pool log move fast pmem:/mnt/pmem0/fast.log pmem:/mnt/pmem1/fast.log
  flashloom pool log move fast bbu:/dev/shm/fast.log tcp://192.0.2.8/nqn.2026-11.io.flashloom:logs/1
  flashloom pool log move fast drives --dry-run -o json

What it was on before is not used any more, and can be taken away once this is done. To move it to the pool's
drives, room has to be set aside there since the pool was made: docs/management.md says when it is.")]
    Move {
        /// The pool.
        #[arg(value_parser = value::<Name>)]
        name: Name,
        /// Where to: pmem:PATH (a file on DAX), bbu:PATH (memory that survives a power loss and a reboot), drives,
        /// or tcp://ADDR[:PORT]/SUBNQN/NSID (a namespace of another target; rdma:// likewise); given twice, the two
        /// mirror each other. Files that are not there are made.
        #[arg(value_name = "PLACE", required = true, value_parser = value::<LogPlace>)]
        to: Vec<LogPlace>,
        /// Say what would be done, and change nothing.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Say what becomes of writes while the log has fewer copies than it is to have.
    #[command(after_long_help = "\
Examples:
  flashloom pool log policy fast wait
  flashloom pool log policy fast continue

For a log on drives, or on a namespace of another target. With `wait` nothing is acknowledged that only one
side has: while the other is away hosts wait, and reads go on. It is kept with the pool.")]
    Policy {
        /// The pool.
        #[arg(value_parser = value::<Name>)]
        name: Name,
        /// What becomes of them.
        policy: LogLoss,
    },
}

/// What becomes of writes while a log has fewer copies than it is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLoss {
    /// They go on with those it has.
    Continue,
    /// They wait until it has as many as it is to have.
    Wait,
}

impl From<LogLoss> for LogPolicy {
    fn from(loss: LogLoss) -> Self {
        match loss {
            LogLoss::Continue => Self::Continue,
            LogLoss::Wait => Self::Wait,
        }
    }
}

/// What to dump.
#[derive(Args, Clone, Debug)]
pub struct DumpArgs {
    /// The pool, if this node knows it; otherwise name its drives.
    #[arg(value_parser = value::<Name>, required_unless_present = "drive", conflicts_with = "drive")]
    pub name: Option<Name>,

    /// A drive of the pool; given once for each.
    #[arg(long, value_name = "PATH")]
    pub drive: Vec<PathBuf>,

    /// Where the commit log lies, unless it is on the drives: pmem:PATH or bbu:PATH.
    /// [default: where the node knows it to be]
    #[arg(long, value_name = "PLACE", value_parser = value::<LogPlace>)]
    pub log: Vec<LogPlace>,

    /// Read all contents and parity too: takes as long as reading the drives does.
    #[arg(long)]
    pub data: bool,

    /// Print every segment.
    #[arg(long)]
    pub segments: bool,

    /// Print every record of the commit log.
    #[arg(long)]
    pub log_records: bool,
}

/// A volume on the command line.
#[derive(Args, Clone, Debug)]
pub struct OfVolume {
    /// The volume.
    #[arg(value_name = "POOL/NAME", value_parser = value::<VolumePath>)]
    pub volume: VolumePath,
}

/// What a volume or a snapshot is to be mapped as.
#[derive(Args, Clone, Debug)]
pub struct MapArgs {
    /// NQN of the subsystem.
    #[arg(long, short = 'n', value_name = "NQN", value_parser = value::<Nqn>)]
    pub subnqn: Nqn,
    /// Its NSID there. [default: the lowest free one]
    #[arg(long)]
    pub nsid: Option<u32>,
    /// Add the subsystem if need be, and let any host connect to it.
    #[arg(long)]
    pub allow_any_host: bool,
    /// Add the subsystem if need be, and let this host connect to it.
    #[arg(long, value_name = "NQN", value_parser = value::<Nqn>)]
    pub allow_host: Vec<Nqn>,
}

impl From<MapArgs> for NewMapping {
    fn from(args: MapArgs) -> Self {
        let MapArgs { subnqn, nsid, allow_any_host, allow_host } = args;
        Self { subsystem: subnqn, nsid, allow_any_host, hosts: allow_host }
    }
}

/// What to do with volumes.
#[derive(Debug, Subcommand)]
pub enum VolumeVerb {
    /// Make a volume; it takes the space of what is written only.
    #[command(after_long_help = "\
Examples:
  flashloom volume create fast/db --size 2TiB
  flashloom volume create fast/old --size 100GiB --block-size 512
  flashloom volume create fast/db --size 2TiB --quota 500GiB
  flashloom volume create fast/log --size 100GiB --reserve all")]
    Create {
        #[command(flatten)]
        of: OfVolume,
        /// Its size.
        #[arg(long, value_parser = value::<Size>)]
        size: Size,
        /// Logical block size: 512 or 4096. [default: 4096]
        #[arg(long, value_name = "BYTES")]
        block_size: Option<u32>,
        /// What it and all its snapshots may hold together, a multiple of 1MiB, or `none`. [default: none]
        #[arg(long, value_name = "SIZE", value_parser = quota)]
        quota: Option<Size>,
        /// What is kept for its hosts to write, however full the pool is: a multiple of 1MiB, or `all`, or `none`.
        /// [default: none]
        #[arg(long, value_name = "SIZE|all", value_parser = reserve)]
        reserve: Option<Reserve>,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Make a volume that begins with what a snapshot has: nothing is copied, and either is written without the other.
    #[command(after_long_help = "\
Examples:
  flashloom volume clone fast/db@monday fast/dev
  flashloom volume clone fast/db@monday fast/dev --size 3TiB

A clone is a volume in everything: it is mapped, resized, renamed, and has snapshots, and clones, of its own. What it has
in common with the snapshot takes space once. The snapshot may be deleted, and its volume behind it: the clone keeps what
it has of them.")]
    Clone {
        /// The snapshot.
        #[arg(value_name = "POOL/VOLUME@NAME", value_parser = value::<SnapshotPath>)]
        from: SnapshotPath,
        /// The new volume, in the same pool.
        #[arg(value_name = "POOL/NEW", value_parser = value::<VolumePath>)]
        volume: VolumePath,
        /// Its size, if it is to be larger. [default: the snapshot's]
        #[arg(long, value_parser = value::<Size>)]
        size: Option<Size>,
        /// What it and all its snapshots may hold together, without what it begins with, or `none`. [default: none]
        #[arg(long, value_name = "SIZE", value_parser = quota)]
        quota: Option<Size>,
        /// What is kept for its hosts to write, beside what it begins with: SIZE, `all`, or `none`. [default: none]
        #[arg(long, value_name = "SIZE|all", value_parser = reserve)]
        reserve: Option<Reserve>,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Give a clone, or what was rolled back, what it shares with what it was made of as its own; hosts notice nothing.
    #[command(after_long_help = "\
Examples:
  flashloom volume detach fast/dev
  flashloom volume detach fast/dev --no-wait
  flashloom job cancel 7

No contents are copied: they are shared until one side changes. Afterwards reads ask nothing else, clones and rollbacks
of it are as shallow as those of a new volume, and what it was made of gives its space back when that is deleted. Its
snapshots from before keep what they see. It goes on behind what hosts do, over restarts of the daemon, too; a job that is
cancelled leaves the volume as it is by then.

Also called `promote`: what a volume is promoted for elsewhere, so that what it was made of may go, is done so here. Neither
becomes the other's parent: what a clone was made of may be deleted at any time.")]
    #[command(visible_alias = "promote")]
    Detach {
        #[command(flatten)]
        of: OfVolume,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Print the volumes.
    #[command(after_long_help = "\
Examples:
  flashloom volume list
  flashloom volume list -o json")]
    #[command(alias = "ls")]
    List,
    /// Print one volume.
    #[command(after_long_help = "\
Examples:
  flashloom volume show fast/db")]
    Show {
        #[command(flatten)]
        of: OfVolume,
    },
    /// Change a volume's size; connected hosts notice.
    #[command(after_long_help = "\
Examples:
  flashloom volume resize fast/db 3TiB")]
    Resize {
        #[command(flatten)]
        of: OfVolume,
        /// The new size; what lies beyond a smaller one is lost, which is asked about.
        #[arg(value_parser = value::<Size>)]
        size: Size,
        #[command(flatten)]
        sure: SureArgs,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Bound what a volume and all its snapshots may hold together, or take that away.
    #[command(after_long_help = "\
Examples:
  flashloom volume quota fast/db 500GiB
  flashloom volume quota fast/db none

What is written new beyond it fails with Capacity Exceeded, as in a full pool; what replaces contents that no snapshot sees
goes on, and so do discards. A quota below what they hold already is refused.")]
    Quota {
        #[command(flatten)]
        of: OfVolume,
        /// How much, a multiple of 1MiB, or `none`.
        #[arg(value_name = "SIZE", value_parser = quota)]
        quota: Size,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Keep space of the pool for a volume, so that its hosts can write however full the pool is, or end that.
    #[command(after_long_help = "\
Examples:
  flashloom volume reserve fast/db 500GiB
  flashloom volume reserve fast/db all
  flashloom volume reserve fast/db none

Its hosts can write until what they have of their own is that much; `all` is the volume's size, whatever that becomes. What
a snapshot sees as well is not their own: a snapshot of such a volume needs room for all of its reservation again, and is
refused where the pool has none. Nor is what was copied by reference. More than the pool has free is refused.")]
    Reserve {
        #[command(flatten)]
        of: OfVolume,
        /// How much, a multiple of 1MiB, or `all`, or `none`.
        #[arg(value_name = "SIZE|all|none", value_parser = reserve)]
        reserve: Reserve,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Give a volume another name; hosts notice nothing.
    #[command(after_long_help = "\
Examples:
  flashloom volume rename fast/db archive")]
    Rename {
        #[command(flatten)]
        of: OfVolume,
        /// Its new name, without the pool's.
        #[arg(value_parser = value::<Name>)]
        name: Name,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Delete a volume and what it holds; its clones keep what they have of it.
    #[command(after_long_help = "\
Examples:
  flashloom volume delete fast/db
  flashloom volume delete fast/db --yes

A volume that has snapshots is not deleted: they are first. Clones of them are no hindrance; what they have in common with
the volume takes space until they are deleted, too.")]
    Delete {
        #[command(flatten)]
        of: OfVolume,
        #[command(flatten)]
        sure: SureArgs,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Map a volume: hosts see it as a namespace of a subsystem.
    #[command(after_long_help = "\
Examples:
  flashloom volume map fast/db --subnqn nqn.2026-11.io.flashloom:db
  flashloom volume map fast/db --subnqn nqn.2026-11.io.flashloom:db --nsid 1 --allow-any-host")]
    Map {
        #[command(flatten)]
        of: OfVolume,
        #[command(flatten)]
        at: MapArgs,
    },
    /// Take a volume from the hosts; it keeps what it holds.
    #[command(after_long_help = "\
Examples:
  flashloom volume unmap fast/db")]
    Unmap {
        #[command(flatten)]
        of: OfVolume,
        #[command(flatten)]
        sure: SureArgs,
    },
}

/// What is kept for a volume.
#[derive(Clone, Copy, Debug)]
pub enum Reserve {
    /// 0 for nothing.
    Bytes(Size),
    /// As much as its size.
    All,
}

fn reserve(text: &str) -> Result<Reserve, String> {
    match text {
        "all" => Ok(Reserve::All),
        "none" => Ok(Reserve::Bytes(Size::new(0))),
        text => match value::<Size>(text)? {
            size if size.bytes() == 0 => Err("say `none` for no reservation".to_owned()),
            size => Ok(Reserve::Bytes(size)),
        },
    }
}

/// A size, or `none`, which the API writes as 0.
pub(super) fn quota(text: &str) -> Result<Size, String> {
    match text {
        "none" => Ok(Size::new(0)),
        text => match value::<Size>(text)? {
            size if size.bytes() == 0 => Err("say `none` for no quota".to_owned()),
            size => Ok(size),
        },
    }
}
