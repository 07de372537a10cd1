//! Why a set cannot be made, put together or changed.

/// What went wrong, and what would be right.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A member failed.
    #[error("member {index}: {source}")]
    Member {
        /// As given, from 0.
        index: usize,
        source: initiator::Error,
    },
    /// It was refused: nothing was changed.
    #[error("{what}")]
    Refused { what: String, help: &'static str },
    /// The set in use failed.
    #[error(transparent)]
    Set(#[from] initiator::Error),
    /// The system has not got what it takes.
    #[error("the system refuses buffers or a lock: {0}")]
    Memory(#[from] std::io::Error),
}

impl Error {
    pub(crate) fn refused(what: impl Into<String>, help: &'static str) -> Self {
        Self::Refused { what: what.into(), help }
    }

    pub(crate) fn member(index: usize) -> impl Fn(initiator::Error) -> Self {
        move |source| Self::Member { index, source }
    }

    /// What would be right.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Refused { help, .. } => Some(help),
            Self::Member { source, .. } | Self::Set(source) => source.advice(),
            Self::Memory(_) => None,
        }
    }
}
