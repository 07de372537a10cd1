//! What the engine says when it cannot do what was asked.

use std::fmt;

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request makes no sense: outside the volume, a bad name, an impossible geometry.
    Invalid,
    /// The range is not inside the volume.
    OutOfRange,
    /// There is no space left for more contents; reading and deallocating go on.
    Full,
    /// Bytes were found damaged, and the redundancy could not give them back.
    Corrupt,
    /// What was acknowledged is damaged so that nothing tells what it was: an operator may accept that.
    Loss,
    /// A drive, or more of them than the redundancy bears, failed.
    Failed,
    /// A needed drive or log device is missing, stale, blank, or another pool's.
    Missing,
    /// Something of this name is there already.
    Exists,
    /// Nothing of this name is there.
    NotFound,
    /// It is in use: opened elsewhere, or mapped. Or the system could not do it just now, which says nothing of
    /// the drive asked.
    Busy,
    /// The pool or volume was closed under the request.
    Gone,
    /// The pool, as it is, can never do it.
    Unsupported,
}

/// A failed request: the kind to act on, what was being done, and why.
#[derive(Debug, thiserror::Error)]
pub struct Error {
    pub kind: Kind,
    /// What was being done, for people.
    pub context: String,
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    #[must_use]
    pub fn new(kind: Kind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), source: None }
    }

    /// With what caused it.
    #[must_use]
    pub fn caused(
        kind: Kind,
        context: impl Into<String>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self { kind, context: context.into(), source: Some(Box::new(source)) }
    }
}

/// Why nothing is known of what a drive keeps.
#[derive(Debug)]
pub(crate) struct Unasked;

impl fmt::Display for Unasked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it did not answer lately")
    }
}

impl std::error::Error for Unasked {}

impl Error {
    /// What a device said, where that is the cause.
    fn of_device(&self) -> Option<media::Kind> {
        let source = self.source.as_ref()?;
        source.downcast_ref::<media::Error>().map(|error| error.kind)
    }

    /// Whether a medium did not give what it has, though its device answered.
    pub(crate) fn is_of_medium(&self) -> bool {
        self.of_device() == Some(media::Kind::Medium)
    }

    /// Whether whoever tries again may succeed.
    pub fn may_pass(&self) -> bool {
        matches!(self.kind, Kind::Full | Kind::Busy)
    }

    /// Whether a device did not answer in time.
    pub(crate) fn is_timeout(&self) -> bool {
        self.of_device() == Some(media::Kind::Timeout)
    }

    /// Whether a drive's failure says nothing of what it keeps: it could not answer just now, it is gone, or it is not even
    /// asked for that.
    pub(crate) fn says_nothing_of_contents(&self) -> bool {
        let is_silent = matches!(self.of_device(), Some(media::Kind::Timeout | media::Kind::Gone));
        let is_unasked = self.source.as_ref().is_some_and(|source| source.is::<Unasked>());
        self.kind == Kind::Busy || is_silent || is_unasked
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl From<media::Error> for Error {
    fn from(source: media::Error) -> Self {
        let kind = match source.kind {
            media::Kind::OutOfRange | media::Kind::TooLarge | media::Kind::Unsupported => {
                Kind::Invalid
            }
            media::Kind::Busy | media::Kind::Passing => Kind::Busy,
            media::Kind::Full => Kind::Full,
            _ => Kind::Failed,
        };
        Self::caused(kind, "drive", source)
    }
}
