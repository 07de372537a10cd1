//! States of Asymmetric Namespace Access.

use std::fmt;
use std::str::FromStr;

use super::{Refused, text_value};

/// What the hosts that are connected through a listener are told of its access to the namespaces
/// (Base 2.1, section 8.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AnaState {
    /// The best way to the namespaces.
    #[default]
    Optimized,
    /// A way that hosts use when there is no optimized one.
    NonOptimized,
    /// No commands are taken; hosts wait or go another way.
    Inaccessible,
    /// No commands are taken, and never will be.
    PersistentLoss,
    /// Another state is about to come; hosts try again.
    Change,
}

impl AnaState {
    /// Every state.
    pub const ALL: [Self; 5] = [
        Self::Optimized,
        Self::NonOptimized,
        Self::Inaccessible,
        Self::PersistentLoss,
        Self::Change,
    ];

    /// The name, as it is read and written; that of the Linux host.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Optimized => "optimized",
            Self::NonOptimized => "non-optimized",
            Self::Inaccessible => "inaccessible",
            Self::PersistentLoss => "persistent-loss",
            Self::Change => "change",
        }
    }
}

impl FromStr for AnaState {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        Self::ALL.into_iter().find(|state| state.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Refused::new(format!("{text:?} is not an ANA state"), format!("choose one of {names}"))
        })
    }
}

impl fmt::Display for AnaState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

text_value!(AnaState, "optimized", "An ANA state.");
