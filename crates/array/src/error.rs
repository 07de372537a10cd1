//! Why the node did not do what it was asked.

use api::v1::{Kind, Problem};
use api::value::Refused;

/// The result of asking the node for something.
pub type Result<T> = std::result::Result<T, Error>;

/// A kind to act on, a context to read, and what lies beneath.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct Error {
    /// What a caller acts on.
    pub kind: Kind,
    /// What was being done to what, and why it failed.
    pub context: String,
    /// What would be right, where that is known.
    pub help: Option<String>,
    /// The error beneath.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind`.
    pub fn new(kind: Kind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), help: None, source: None }
    }

    /// With what would be right.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// `context` failed because of `source`.
    pub fn failed(
        context: impl Into<String>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        let context = format!("{}: {source}", context.into());
        Self { kind: Kind::Failed, context, help: None, source: Some(Box::new(source)) }
    }

    /// As the management API returns it.
    pub fn problem(&self) -> Problem {
        Problem { kind: self.kind, message: self.context.clone(), help: self.help.clone() }
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        Self::new(Kind::Invalid, refused.wrong).help(refused.right)
    }
}
