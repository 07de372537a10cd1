//! Whether a program wants a window, by the names that its options have for it.

use std::str::FromStr;

/// Whether writes go by a direct write window (`docs/anof.md`): memory of the target, on this machine, to which this
/// process appends them by itself. They are durable when they have ended, and what the window does not take goes as a
/// command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WindowUse {
    /// All writes are commands.
    #[default]
    Off,
    /// By a window of whatever kind can be had.
    Auto,
    /// By one in memory that this machine shares with the target.
    Shm,
    /// As [`WindowUse::Auto`], and without a window to begin with there is no namespace.
    Require,
}

impl FromStr for WindowUse {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            "shm" => Ok(Self::Shm),
            "require" => Ok(Self::Require),
            "rdma" => Err("windows by RDMA are not there yet; shm is".to_owned()),
            _ => Err("off, auto, shm or require".to_owned()),
        }
    }
}
