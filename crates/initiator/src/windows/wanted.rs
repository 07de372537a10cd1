//! Whether a program wants a window, by the names that its options have for it.

use std::str::FromStr;

use nvme::discovery::TransportType;
use nvme::window::Fabric;

/// Whether writes go by a direct write window (`docs/anof.md`): memory of the target to which this process appends them by
/// itself. They are durable when they have ended, and what the window does not take goes as a
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
    /// By one in memory of the target's that is written by RDMA, as its controller was connected to.
    Rdma,
    /// As [`WindowUse::Auto`], and without a window to begin with there is no namespace.
    Require,
}

impl WindowUse {
    /// The fabric of a window that is asked for by an association of this transport; none where none is wanted.
    #[must_use]
    pub const fn fabric(self, transport: TransportType) -> Option<Fabric> {
        match (self, transport) {
            (Self::Off, _) => None,
            (Self::Shm, _) => Some(Fabric::Shm),
            (Self::Rdma, _) | (Self::Auto | Self::Require, TransportType::Rdma) => {
                Some(Fabric::Rdma)
            }
            // The target says whether it is of this machine.
            (Self::Auto | Self::Require, _) => Some(Fabric::Shm),
        }
    }
}

impl FromStr for WindowUse {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            "shm" => Ok(Self::Shm),
            "require" => Ok(Self::Require),
            "rdma" => Ok(Self::Rdma),
            _ => Err("off, auto, shm, rdma or require".to_owned()),
        }
    }
}
