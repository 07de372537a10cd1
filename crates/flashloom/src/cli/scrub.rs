//! What is asked of the running daemon about scrubs.

use api::value::{Name, Size};
use clap::Subcommand;

use super::{JobArgs, value};

/// What to do about a pool's scrub.
#[derive(Debug, Subcommand)]
pub enum ScrubVerb {
    /// Check everything that a pool's drives hold, and put right what is damaged.
    #[command(after_long_help = "\
Examples:
  flashloom pool scrub start fast
  flashloom pool scrub start fast --limit 500MiB --no-wait

Data, parity and headers of all that lives are read from every drive, behind what hosts ask for. One that is paused
goes on where it was; so does one that the daemon's end cut short, by itself. The daemon begins one when the last
was over for `[node] scrub-days` days (30).")]
    Start {
        /// The pool.
        #[arg(value_parser = value::<Name>)]
        name: Name,
        /// Bytes checked in a second at most. [default: as for the last one; at first, as many as hosts leave time for]
        #[arg(long, value_name = "SIZE", value_parser = value::<Size>)]
        limit: Option<Size>,
        #[command(flatten)]
        how: JobArgs,
    },
    /// Have a scrub wait where it is, until it is started again.
    #[command(after_long_help = "\
Examples:
  flashloom pool scrub pause fast")]
    Pause {
        /// The pool.
        #[arg(value_parser = value::<Name>)]
        name: Name,
    },
    /// End a scrub, one that is paused too; the next one checks everything anew.
    #[command(after_long_help = "\
Examples:
  flashloom pool scrub stop fast")]
    Stop {
        /// The pool.
        #[arg(value_parser = value::<Name>)]
        name: Name,
    },
    /// Change how fast it goes.
    #[command(after_long_help = "\
Examples:
  flashloom pool scrub limit fast 200MiB
  flashloom pool scrub limit fast")]
    Limit {
        /// The pool.
        #[arg(value_parser = value::<Name>)]
        name: Name,
        /// Bytes checked in a second at most. [default: as many as hosts leave time for]
        #[arg(value_name = "SIZE", value_parser = value::<Size>)]
        limit: Option<Size>,
    },
    /// Print how far the scrub is, or what the last one found.
    #[command(after_long_help = "\
Examples:
  flashloom pool scrub show fast
  flashloom pool scrub show fast -o json")]
    Show {
        /// The pool.
        #[arg(value_parser = value::<Name>)]
        name: Name,
    },
}
