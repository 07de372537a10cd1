//! What is asked of the running daemon about spares.

use api::value::{DrivePath, Name};
use clap::Subcommand;

use super::value;

/// What to do about a pool's spares.
#[derive(Debug, Subcommand)]
pub enum SpareVerb {
    /// Give a pool drives that stand by: one takes the place of a drive that fails, by itself.
    #[command(after_long_help = "\
Examples:
  flashloom pool spare add fast /dev/disk/by-id/nvme-a /dev/disk/by-id/nvme-b
  flashloom pool spare add fast s0,size=4GiB

A spare is as large as the largest of the pool's drives, and blank. The daemon holds it, and marks it, so that nobody
else takes it for blank. It takes the place of a drive that fails again within a day after it was taken back, that is
there and cannot be taken back, or that `drive fail` took out, at once; of any other when it is lost for `[node]
rebuild-after` seconds (600), before what that had would be put onto the other drives. A drive that stumbles once is
taken back by itself, and keeps its place.")]
    Add {
        /// The pool.
        #[arg(value_parser = value::<Name>)]
        pool: Name,
        /// The drives: PATH, or PATH,size=SIZE to create a file.
        #[arg(value_name = "DRIVE", required = true, value_parser = value::<DrivePath>)]
        drives: Vec<DrivePath>,
        /// Take them although they are not blank: what they hold is lost.
        #[arg(long)]
        force: bool,
    },
    /// Take a spare back from its pool: it is blank then.
    #[command(after_long_help = "\
Examples:
  flashloom pool spare remove fast /dev/disk/by-id/nvme-a
  flashloom pool spare remove fast 0b0f7c1e-5f0c-4d0e-9d4b-0c2a1f6d7e11")]
    #[command(alias = "rm")]
    Remove {
        /// The pool.
        #[arg(value_parser = value::<Name>)]
        pool: Name,
        /// The spare: its path, or its id.
        #[arg(value_name = "PATH|ID")]
        spare: String,
    },
    /// Print the spares of a pool, or of all.
    #[command(after_long_help = "\
Examples:
  flashloom pool spare list
  flashloom pool spare list fast -o json")]
    #[command(alias = "ls")]
    List {
        /// The pool. [default: all]
        #[arg(value_parser = value::<Name>)]
        pool: Option<Name>,
    },
}
