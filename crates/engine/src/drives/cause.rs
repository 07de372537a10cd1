//! Why drives are out of use.

use crate::limits::ERROR_WINDOW;
use std::fmt;

/// Why a drive was taken out of use. Its first failure is the one that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// So many reads that failed and damaged blocks within an hour: more than are borne. It is not taken back by itself.
    Faults(u64),
    /// Anything else, in words.
    Failure(String),
    /// An operator wanted it out.
    Operator,
}

impl Cause {
    /// What a drive did that failed, and what it says of it.
    pub(crate) fn of(what: &str, error: &impl fmt::Display) -> Self {
        Self::Failure(format!("{what}: {error}"))
    }

    /// Likewise where there is nothing more to be said.
    pub(crate) fn because(words: &str) -> Self {
        Self::Failure(words.to_owned())
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Faults(count) => {
                let minutes = ERROR_WINDOW.as_secs() / 60;
                write!(
                    f,
                    "{count} faults (reads that failed, damaged blocks) within {minutes} minutes"
                )
            }
            Self::Failure(words) => f.write_str(words),
            Self::Operator => f.write_str("an operator took it out"),
        }
    }
}
