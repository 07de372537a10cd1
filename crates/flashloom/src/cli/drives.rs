//! What is asked of the running daemon about drives of pools.

use api::value::{DrivePath, Name, PoolDrive, Size};
use clap::{Args, Subcommand};

use super::{JobArgs, SureArgs, value};

/// A drive on the command line.
#[derive(Args, Clone, Debug)]
pub struct OfDrive {
    /// The drive: its pool, and its index there.
    #[arg(value_name = "POOL/INDEX", value_parser = value::<PoolDrive>)]
    pub drive: PoolDrive,
}

/// What to do about drives that are gone.
#[derive(Debug, Subcommand)]
pub enum RebuildVerb {
    /// Print how far it is.
    #[command(after_long_help = "\
Examples:
  flashloom pool rebuild show fast")]
    Show {
        /// The pool.
        #[arg(value_parser = value::<Name>)]
        name: Name,
    },
    /// Move what the pool lacks into free space on the drives that work, now.
    #[command(after_long_help = "\
Examples:
  flashloom pool rebuild start fast
  flashloom pool rebuild start fast --limit 500MiB --no-wait

Once that is done the pool bears as much as with all its drives. It takes as many drives as a stripe is wide, and room
on them; the daemon begins it by itself when a drive has been gone for `[node] rebuild-after` seconds (600).")]
    Start {
        /// The pool.
        #[arg(value_parser = value::<Name>)]
        name: Name,
        /// Bytes moved in a second at most. [default: as many as hosts leave time for]
        #[arg(long, value_name = "SIZE", value_parser = value::<Size>)]
        limit: Option<Size>,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Have a rebuild or an evacuation wait, until it is resumed.
    #[command(after_long_help = "\
Examples:
  flashloom pool rebuild pause fast

What was moved stays where it is. It waits over restarts of the daemon, and nothing of the pool is moved by itself
meanwhile, not even where more drives fail: `flashloom health` tells of redundancy that is missing for that.")]
    Pause {
        /// The pool.
        #[arg(value_parser = value::<Name>)]
        name: Name,
    },
    /// Go on with a rebuild or an evacuation that is paused, as fast as it went.
    #[command(after_long_help = "\
Examples:
  flashloom pool rebuild resume fast
  flashloom pool rebuild resume fast --no-wait")]
    Resume {
        /// The pool.
        #[arg(value_parser = value::<Name>)]
        name: Name,
        #[command(flatten)]
        how: JobArgs,
    },
    /// End a rebuild or an evacuation, one that is paused too; what was moved stays where it is.
    #[command(after_long_help = "\
Examples:
  flashloom pool rebuild stop fast

Nothing more of those drives is moved by itself, before `pool rebuild start` asks for it or they are whole again.")]
    Stop {
        /// The pool.
        #[arg(value_parser = value::<Name>)]
        name: Name,
    },
    /// Change how fast it goes.
    #[command(after_long_help = "\
Examples:
  flashloom pool rebuild limit fast 200MiB
  flashloom pool rebuild limit fast")]
    Limit {
        /// The pool.
        #[arg(value_parser = value::<Name>)]
        name: Name,
        /// Bytes moved in a second at most. [default: as many as hosts leave time for]
        #[arg(value_name = "SIZE", value_parser = value::<Size>)]
        limit: Option<Size>,
    },
}

/// How drives are made whole.
#[derive(Debug, Subcommand)]
pub enum RejoinVerb {
    /// Print which are, how far that is, and how fast it may go.
    #[command(after_long_help = "\
Examples:
  flashloom pool rejoin show fast")]
    Show {
        /// The pool.
        #[arg(value_parser = value::<Name>)]
        name: Name,
    },
    /// Change how fast it goes, for those to come too.
    #[command(after_long_help = "\
Examples:
  flashloom pool rejoin limit fast 200MiB
  flashloom pool rejoin limit fast")]
    Limit {
        /// The pool.
        #[arg(value_parser = value::<Name>)]
        name: Name,
        /// Bytes made anew in a second at most. [default: as many as hosts leave time for]
        #[arg(value_name = "SIZE", value_parser = value::<Size>)]
        limit: Option<Size>,
    },
    /// Have them wait where they are, until that is resumed.
    #[command(after_long_help = "\
Examples:
  flashloom pool rejoin pause fast

They wait over restarts of the daemon, and so do drives that come back meanwhile. What is new goes to them all the same,
and the pool lacks them until they are whole: `flashloom health` tells of that.")]
    Pause {
        /// The pool.
        #[arg(value_parser = value::<Name>)]
        name: Name,
    },
    /// Have them go on.
    #[command(after_long_help = "\
Examples:
  flashloom pool rejoin resume fast")]
    Resume {
        /// The pool.
        #[arg(value_parser = value::<Name>)]
        name: Name,
    },
}

/// What to do with drives.
#[derive(Debug, Subcommand)]
pub enum DriveVerb {
    /// Print the drives of all pools.
    #[command(after_long_help = "\
Examples:
  flashloom drive list
  flashloom drive list -o json")]
    #[command(alias = "ls")]
    List,
    /// Print one drive and what it did, and what is known of the hardware: model, serial number, temperature, wear.
    #[command(after_long_help = "\
Examples:
  flashloom drive show fast/0
  flashloom drive show fast/0 -o json
  sudo flashloom drive show fast/0

The daemon reads it every 5 minutes. An NVMe drive tells its health (SMART) to CAP_SYS_ADMIN only: where the daemon does
not have that (docs/security.md says how), the drive is asked by this command, which succeeds for root.")]
    Show {
        #[command(flatten)]
        of: OfDrive,
    },
    /// Light what shows people in which slot a drive is. It takes root, and an enclosure or a port with such a light.
    #[command(after_long_help = "\
Examples:
  sudo flashloom drive locate fast/2
  sudo flashloom drive locate fast/2 --off")]
    Locate {
        #[command(flatten)]
        of: OfDrive,
        /// Clear it.
        #[arg(long)]
        off: bool,
    },
    /// Make a pool wider by new drives: what is written from then on uses them at once, what has to be is moved there.
    #[command(after_long_help = "\
Examples:
  flashloom drive add fast /dev/disk/by-id/nvme-a /dev/disk/by-id/nvme-b
  flashloom drive add fast d8,size=4GiB

A stripe stays as wide as it is: a pool with more drives than that has space to put what a drive that is lost had onto
the others. Where the other drives are too full for new stripes to use all of a new one, what is there is spread over
all of them, behind hosts, as far as that takes; `flashloom pool show` tells how much is left (spreading), and the
capacity grows by and by meanwhile.")]
    Add {
        /// The pool.
        #[arg(value_parser = value::<Name>)]
        pool: Name,
        /// The new drives: PATH, or PATH,size=SIZE to create a file.
        #[arg(value_name = "DRIVE", required = true, value_parser = value::<DrivePath>)]
        drives: Vec<DrivePath>,
        /// Take them although they are not blank: what they hold is lost.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Move what a drive has onto the others, and take it out of use then. The pool bears as much all the while.
    #[command(after_long_help = "\
Examples:
  flashloom drive evacuate fast/2
  flashloom drive evacuate fast/2 --limit 500MiB --no-wait

It takes as many other drives as a stripe is wide, and room on them. Its place is vacant then: the drive can be pulled.
A copy of the commit log on it moves first. What was moved stays where it is when the job is cancelled.")]
    Evacuate {
        #[command(flatten)]
        of: OfDrive,
        /// Bytes moved in a second at most. [default: as many as hosts leave time for]
        #[arg(long, value_name = "SIZE", value_parser = value::<Size>)]
        limit: Option<Size>,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Take a drive out of its pool for good, so that it can be used elsewhere. Its place is vacant then.
    #[command(after_long_help = "\
Examples:
  flashloom drive remove fast/2 --dry-run
  flashloom drive remove fast/2
  flashloom drive remove fast/2 --yes --limit 500MiB --no-wait

A drive that works is emptied onto the others first, as by `drive evacuate`. What one had that failed or is gone is made
anew there, as by `pool rebuild start`. Then what it is known by is wiped, where it is; one that is not there is not
taken back when it returns. It takes as many other drives as a stripe is wide, and room on them: where those are
lacking, `drive replace` or `drive add` comes first. Ended in the midst of it, the daemon goes on when it starts.")]
    #[command(alias = "rm")]
    Remove {
        #[command(flatten)]
        of: OfDrive,
        /// Bytes moved onto the others in a second at most. [default: as many as hosts leave time for]
        #[arg(long, value_name = "SIZE", value_parser = value::<Size>)]
        limit: Option<Size>,
        #[command(flatten)]
        sure: SureArgs,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Take a drive out of use. It stays out until `drive rejoin` or `drive replace`.
    #[command(after_long_help = "\
Examples:
  flashloom drive fail fast/2

It is refused where the others do not have all that the drive has.")]
    Fail {
        #[command(flatten)]
        of: OfDrive,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Take a drive back that is out, and make it whole: what it missed comes from the others.
    #[command(after_long_help = "\
Examples:
  flashloom drive rejoin fast/2
  flashloom drive rejoin fast/2 --no-wait

It is found by its label, where it was or in the daemon's drive-folders. To cancel the job takes it out again.")]
    Rejoin {
        #[command(flatten)]
        of: OfDrive,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Put a new drive in the place of another one, and make it whole. The old one is not of the pool any more.
    #[command(after_long_help = "\
Examples:
  flashloom drive replace fast/2 /dev/disk/by-id/nvme-new
  flashloom drive replace fast/2 d9,size=4GiB --no-wait

A drive that works is taken out first, if the others have all that it has: until the new one is whole, the pool bears
one failure less. The new one has to be as large, and blank. To cancel the job takes the new one out.")]
    Replace {
        #[command(flatten)]
        of: OfDrive,
        /// The new drive: PATH, or PATH,size=SIZE to create a file.
        #[arg(value_name = "DRIVE", value_parser = value::<DrivePath>)]
        new: DrivePath,
        /// Take it although it is not blank: what it holds is lost.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        how: JobArgs,
    },
}
