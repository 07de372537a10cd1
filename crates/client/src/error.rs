//! What can go wrong, as kinds to act on.

use std::io;
use std::sync::Arc;

/// Why something failed. Cheap to clone: many commands may share the reason.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The host side says why; [`initiator::Error::Command`] has an NVMe status.
    #[error(transparent)]
    Host(Arc<initiator::Error>),
    /// A direct write window is required, and there is none.
    #[error("there is no direct write window: {0}")]
    NoWindow(Arc<initiator::Error>),
    /// The thread that serves the namespace has ended, or the namespace is closed.
    #[error("the namespace is closed")]
    Closed,
    /// As many commands are outstanding as the queue has room for.
    #[error("the queue is full")]
    Full,
    /// What was asked for makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// A system resource was refused.
    #[error("{what}: {source}")]
    System {
        /// What was wanted.
        what: &'static str,
        /// The kernel's word.
        source: Arc<io::Error>,
    },
}

impl Error {
    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(what.into())
    }

    /// The status of the completion, when the controller refused a command or failed it.
    #[must_use]
    pub fn status(&self) -> Option<nvme::status::Status> {
        let (Self::Host(error) | Self::NoWindow(error)) = self else { return None };
        match **error {
            initiator::Error::Command { status, .. } | initiator::Error::Refused { status, .. } => {
                Some(status)
            }
            _ => None,
        }
    }
}

impl From<initiator::Error> for Error {
    fn from(error: initiator::Error) -> Self {
        Self::Host(Arc::new(error))
    }
}

impl From<reactor::Error> for Error {
    fn from(error: reactor::Error) -> Self {
        initiator::Error::from(error).into()
    }
}

impl From<reactor::Gone> for Error {
    fn from(_: reactor::Gone) -> Self {
        Self::Closed
    }
}
