//! What is asked of the running daemon about snapshots.

use std::str::FromStr;

use api::v1::NewRollback;
use api::value::{Name, Refused, SnapshotPath, VolumePath};
use clap::{Args, Subcommand};

use super::{MapArgs, SureArgs, value};

/// Whose snapshots.
#[derive(Clone, Debug)]
pub enum Whose {
    Pool(Name),
    Volume(VolumePath),
}

impl FromStr for Whose {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        match text.contains('/') {
            true => text.parse().map(Self::Volume),
            false => text.parse().map(Self::Pool),
        }
    }
}

/// A snapshot on the command line.
#[derive(Args, Clone, Debug)]
pub struct OfSnapshot {
    /// The snapshot.
    #[arg(value_name = "POOL/VOLUME@NAME", value_parser = value::<SnapshotPath>)]
    pub snapshot: SnapshotPath,
}

/// Whether what was there before a rollback is kept.
#[derive(Args, Clone, Debug)]
pub struct KeepArgs {
    /// What the snapshot is called that has what the volume had before. [default: before-rollback- and the time]
    #[arg(long, value_name = "NAME", value_parser = value::<Name>, conflicts_with = "no_keep")]
    pub keep_as: Option<Name>,
    /// Take no snapshot of what the volume has: that is gone for good.
    #[arg(long)]
    pub no_keep: bool,
}

impl From<KeepArgs> for NewRollback {
    fn from(keep: KeepArgs) -> Self {
        Self { keep: !keep.no_keep, keep_as: keep.keep_as }
    }
}

/// What to do with snapshots.
#[derive(Debug, Subcommand)]
pub enum SnapshotVerb {
    /// Take a snapshot of a volume, or of several at one instant; nothing is copied, hosts notice nothing.
    #[command(after_long_help = "\
Examples:
  flashloom snapshot create fast/db@monday
  flashloom snapshot create fast/db@monday fast/log@monday

Of several volumes, all are taken at one instant: where a host waited for one write before it sent another, no snapshot
has the later without the earlier. What a file system has in memory only is not in a snapshot: `fsfreeze` or `sync` puts
it there first; without, the file system finds what it would after a crash.")]
    #[command(alias = "take")]
    Create {
        /// The snapshots, one for each volume, all of one pool.
        #[arg(value_name = "POOL/VOLUME@NAME", required = true, value_parser = value::<SnapshotPath>)]
        snapshots: Vec<SnapshotPath>,
    },
    /// Print the snapshots of a volume, of a pool, or of all; those of a volume, the oldest first.
    #[command(after_long_help = "\
Examples:
  flashloom snapshot list
  flashloom snapshot list fast/db
  flashloom snapshot list fast -o json")]
    #[command(alias = "ls")]
    List {
        /// The volume, or the pool. [default: all]
        #[arg(value_name = "POOL[/VOLUME]", value_parser = value::<Whose>)]
        of: Option<Whose>,
    },
    /// Print one snapshot.
    #[command(after_long_help = "\
Examples:
  flashloom snapshot show fast/db@monday")]
    Show {
        #[command(flatten)]
        of: OfSnapshot,
    },
    /// Print what a snapshot has otherwise than an older one of the same volume; of one alone, all that it has data in.
    #[command(after_long_help = "\
Examples:
  flashloom snapshot diff fast/db@monday fast/db@tuesday
  flashloom snapshot diff fast/db@monday fast/db@tuesday -o json
  flashloom snapshot diff fast/db@monday

One line, or one object, for each extent: its offset and its length in bytes, and whether it has data or was deallocated
(zeroes) since. It is printed as it is found. Whoever copied the older snapshot has the newer by reading these extents.")]
    Diff {
        /// The older snapshot, then the newer; or one alone.
        #[arg(value_name = "POOL/VOLUME@NAME", required = true, num_args = 1..=2, value_parser = value::<SnapshotPath>)]
        snapshots: Vec<SnapshotPath>,
    },
    /// Give a volume what one of its snapshots has; what it had until then is kept in a snapshot, and later snapshots stay.
    #[command(after_long_help = "\
Examples:
  flashloom snapshot rollback fast/db@monday
  flashloom snapshot rollback fast/db@monday --keep-as before-monday
  flashloom snapshot rollback fast/db@monday --no-keep --yes

Nothing is copied. The volume gets the size that it had then. Unmount it on its hosts first, or shut the database down: what
they keep of it in memory would be wrong. Hosts that have it all the same wait for a moment, and are told that their
namespace changed. It can be undone: by a rollback to the snapshot that was kept.")]
    Rollback {
        #[command(flatten)]
        of: OfSnapshot,
        #[command(flatten)]
        keep: KeepArgs,
        #[command(flatten)]
        sure: SureArgs,
    },
    /// Delete a snapshot; the space of what it alone had comes back, and clones of it stay.
    #[command(after_long_help = "\
Examples:
  flashloom snapshot delete fast/db@monday
  flashloom snapshot delete fast/db@monday --yes

Snapshots are deleted in any order; none needs another. Clones of one keep what they have of it, which takes space until
they are deleted, too. The space is counted as free once it is looked for, soon after.")]
    #[command(alias = "rm")]
    Delete {
        #[command(flatten)]
        of: OfSnapshot,
        #[command(flatten)]
        sure: SureArgs,
    },
    /// Map a snapshot: hosts see it as a namespace that they can read, and that is write protected.
    #[command(after_long_help = "\
Examples:
  flashloom snapshot map fast/db@monday --subnqn nqn.2026-11.io.flashloom:backup --allow-any-host

A file system that was in use has a journal to be replayed, which needs writes: mount it with `-o ro,noload` (ext4) or
`-o ro,norecovery,nouuid` (xfs).")]
    Map {
        #[command(flatten)]
        of: OfSnapshot,
        #[command(flatten)]
        at: MapArgs,
    },
    /// Take a snapshot from the hosts; it stays what it is.
    #[command(after_long_help = "\
Examples:
  flashloom snapshot unmap fast/db@monday")]
    Unmap {
        #[command(flatten)]
        of: OfSnapshot,
        #[command(flatten)]
        sure: SureArgs,
    },
}
