//! What is asked of the running daemon about drives of pools.

use api::value::{DrivePath, PoolDrive};
use clap::{Args, Subcommand};

use super::{JobArgs, value};

/// A drive on the command line.
#[derive(Args, Clone, Debug)]
pub struct OfDrive {
    /// The drive: its pool, and its index there.
    #[arg(value_name = "POOL/INDEX", value_parser = value::<PoolDrive>)]
    pub drive: PoolDrive,
}

/// What to do with drives.
#[derive(Debug, Subcommand)]
pub enum DriveVerb {
    /// Print the drives of all pools.
    #[command(after_long_help = "\
Examples:
  flashloom drive list
  flashloom drive list -o json")]
    List,
    /// Print one drive and what it did.
    #[command(after_long_help = "\
Examples:
  flashloom drive show fast/0")]
    Show {
        #[command(flatten)]
        of: OfDrive,
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
