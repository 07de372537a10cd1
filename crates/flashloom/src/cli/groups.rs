//! What is asked of the running daemon about groups of volumes.

use std::str::FromStr;

use api::value::{GroupPath, GroupSnapshotPath, Name, Refused, Size, VolumePath};
use clap::{Args, Subcommand};

use super::pools::quota;
use super::snapshots::KeepArgs;
use super::{JobArgs, SureArgs, value};

/// A group on the command line.
#[derive(Args, Clone, Debug)]
pub struct OfGroup {
    /// The group.
    #[arg(value_name = "POOL/GROUP", value_parser = value::<GroupPath>)]
    pub group: GroupPath,
}

/// The snapshots of a group on the command line.
#[derive(Args, Clone, Debug)]
pub struct OfGroupSnapshot {
    /// The group, and the name of the snapshot of each of its volumes.
    #[arg(value_name = "POOL/GROUP@NAME", value_parser = value::<GroupSnapshotPath>)]
    pub snapshot: GroupSnapshotPath,
}

/// What the clone of a volume is called: `VOLUME=NAME`.
#[derive(Clone, Debug)]
pub struct CloneName {
    pub volume: Name,
    pub name: Name,
}

impl FromStr for CloneName {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        let Some((volume, name)) = text.split_once('=') else {
            let wrong = format!("{text:?} does not say what the clone of which volume is called");
            return Err(Refused::new(wrong, "write VOLUME=NAME, such as db=db-test"));
        };
        Ok(Self { volume: volume.parse()?, name: name.parse()? })
    }
}

/// What to do with groups.
#[derive(Debug, Subcommand)]
pub enum GroupVerb {
    /// Make a group of volumes of a pool, of which snapshots are taken at one instant from then on; hosts notice nothing.
    #[command(after_long_help = "\
Examples:
  flashloom group create fast/app --volume fast/db --volume fast/log
  flashloom group create fast/app --quota 2TiB

A group is kept in its pool, and goes where that goes. A volume is in one group at most, a group has 500 at most, and its
name is one that no volume of the pool has.")]
    Create {
        #[command(flatten)]
        of: OfGroup,
        /// A volume that it begins with; once for each.
        #[arg(long = "volume", value_name = "POOL/VOLUME", value_parser = value::<VolumePath>)]
        volumes: Vec<VolumePath>,
        /// What all its volumes and their snapshots may hold together, a multiple of 1MiB, or `none`. [default: none]
        #[arg(long, value_name = "SIZE", value_parser = quota)]
        quota: Option<Size>,
    },
    /// Add volumes to a group.
    #[command(after_long_help = "\
Examples:
  flashloom group add fast/app fast/web
  flashloom group add fast/app fast/web fast/cache")]
    Add {
        #[command(flatten)]
        of: OfGroup,
        /// The volumes, of the same pool and in no other group.
        #[arg(value_name = "POOL/VOLUME", required = true, value_parser = value::<VolumePath>)]
        volumes: Vec<VolumePath>,
    },
    /// Take volumes out of a group; they stay, and so do their snapshots.
    #[command(after_long_help = "\
Examples:
  flashloom group remove fast/app fast/web")]
    Remove {
        #[command(flatten)]
        of: OfGroup,
        /// The volumes.
        #[arg(value_name = "POOL/VOLUME", required = true, value_parser = value::<VolumePath>)]
        volumes: Vec<VolumePath>,
    },
    /// Give a group another name.
    #[command(after_long_help = "\
Examples:
  flashloom group rename fast/app shop")]
    Rename {
        #[command(flatten)]
        of: OfGroup,
        /// The new name.
        #[arg(value_name = "NAME", value_parser = value::<Name>)]
        to: Name,
    },
    /// Bound what all volumes of a group and their snapshots may hold together, or not any more.
    #[command(after_long_help = "\
Examples:
  flashloom group quota fast/app 2TiB
  flashloom group quota fast/app none

As `flashloom volume quota` does for one volume: writes of new contents beyond it fail with Capacity Exceeded; what replaces
contents that no snapshot sees goes on, and so do discards. Its volumes may have quotas of their own beside it. A quota below
what they hold already is refused, and so are volumes that join for which it has no room.")]
    Quota {
        #[command(flatten)]
        of: OfGroup,
        /// How much, a multiple of 1MiB, or `none`.
        #[arg(value_name = "SIZE", value_parser = quota)]
        quota: Size,
    },
    /// Print the groups and their volumes.
    #[command(after_long_help = "\
Examples:
  flashloom group list
  flashloom group list fast -o json")]
    #[command(alias = "ls")]
    List {
        /// The pool. [default: all]
        #[arg(value_name = "POOL", value_parser = value::<Name>)]
        pool: Option<Name>,
    },
    /// Print one group and its volumes.
    #[command(after_long_help = "\
Examples:
  flashloom group show fast/app")]
    Show {
        #[command(flatten)]
        of: OfGroup,
    },
    /// Delete a group; its volumes stay, and so do their snapshots.
    #[command(after_long_help = "\
Examples:
  flashloom group delete fast/app

Its schedule goes with it, if it has one: that has to be meant.")]
    #[command(alias = "rm")]
    Delete {
        #[command(flatten)]
        of: OfGroup,
        #[command(flatten)]
        sure: SureArgs,
    },
    /// Take a snapshot of each volume of a group, all at one instant; nothing is copied, hosts notice nothing.
    #[command(after_long_help = "\
Examples:
  flashloom group snapshot fast/app@monday

With the volumes fast/db and fast/log this takes fast/db@monday and fast/log@monday: where a host waited for one write
before it sent another, no snapshot has the later without the earlier. They are snapshots as others are, in `flashloom
snapshot list` and elsewhere. What a file system has in memory only is not in them: `fsfreeze` or `sync` puts it there
first.")]
    Snapshot {
        #[command(flatten)]
        of: OfGroupSnapshot,
    },
    /// Give each volume of a group what its snapshot of this name has: all of them, or none.
    #[command(after_long_help = "\
Examples:
  flashloom group rollback fast/app@monday
  flashloom group rollback fast/app@monday --keep-as broken --yes

As `flashloom snapshot rollback` of each of its volumes, in one step: a crash leaves all as they were, or all taken back. It
goes by the volumes that are in the group now; each has to have a snapshot of that name.")]
    Rollback {
        #[command(flatten)]
        of: OfGroupSnapshot,
        #[command(flatten)]
        keep: KeepArgs,
        #[command(flatten)]
        sure: SureArgs,
    },
    /// Make a clone of each volume of a group, of its snapshot of this name, and a group of the clones: all, or nothing.
    #[command(after_long_help = "\
Examples:
  flashloom group clone fast/app@monday fast/test
  flashloom group clone fast/app@monday fast/test --volume db=db-test --volume log=log-test
  flashloom group clone fast/app@monday fast/test --request-key nightly-17 -o json

As `flashloom volume clone` of each of its volumes, in one step: a crash leaves all of the clones and their group, or nothing
of them. With the volumes fast/db and fast/log the first makes fast/test-db and fast/test-log: a clone is called after the
new group and its volume, unless --volume says otherwise. It goes by the volumes that are in the group now; each has to have
a snapshot of that name. The clones are a group as others are, and need the first one no more.")]
    Clone {
        #[command(flatten)]
        of: OfGroupSnapshot,
        /// The new group, in the same pool.
        #[arg(value_name = "POOL/NEW", value_parser = value::<GroupPath>)]
        to: GroupPath,
        /// What the clone of a volume is called; once for each. [default: NEW-VOLUME]
        #[arg(long = "volume", value_name = "VOLUME=NAME", value_parser = value::<CloneName>)]
        volumes: Vec<CloneName>,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Delete the snapshot of this name of each volume of a group that has one: all of them, or none.
    #[command(after_long_help = "\
Examples:
  flashloom group delete-snapshot fast/app@monday
  flashloom group delete-snapshot fast/app@monday --yes

It goes by the volumes that are in the group now, and passes over those without a snapshot of that name. While one of these
snapshots is mapped, none is deleted. They go in one step: a crash leaves all of them, or none.")]
    DeleteSnapshot {
        #[command(flatten)]
        of: OfGroupSnapshot,
        #[command(flatten)]
        sure: SureArgs,
    },
}
