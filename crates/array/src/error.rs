//! Why the node did not do what it was asked.

use std::path::Path;

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

    /// The drive at `path` cannot be opened; `create` is what to do when there is none.
    pub fn cannot_open(path: &Path, source: media::Error, create: &str) -> Self {
        if source.kind == media::Kind::Unsupported
            && let Ok(found) = std::fs::metadata(path)
            && found.is_file()
        {
            let what = format!("{} has {} bytes, less than a block", path.display(), found.len());
            return Self::new(Kind::Invalid, what).help("name its size, as in PATH,size=10GiB");
        }
        if source.kind == media::Kind::Gone && !path.exists() {
            return Self::new(Kind::Invalid, format!("{} is not there", path.display()))
                .help(create);
        }
        let help = match source.kind {
            media::Kind::Full => {
                "there is no room for a file of that size: choose a smaller one, or another place"
            }
            _ => "name a regular file or a block device that this user may write to",
        };
        // What whoever asked can put right is no failure of this node.
        let is_asked_wrong = !path.exists() || source.kind == media::Kind::Unsupported;
        let kind = if is_asked_wrong { Kind::Invalid } else { Kind::Failed };
        let failed = Self::failed(format!("cannot open {}", path.display()), source);
        Self { kind, ..failed.help(help) }
    }

    /// What went wrong and, where that is known, what would be right.
    pub fn advised(&self) -> String {
        let help = self.help.as_ref().map(|help| format!(": {help}"));
        format!("{}{}", self.context, help.unwrap_or_default())
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
