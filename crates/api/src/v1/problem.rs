//! What is returned when a request is refused.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The kind of a refusal: what a program acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The request's document or path is malformed (400).
    Malformed,
    /// A member has a value that is not allowed (422).
    Invalid,
    /// What the path names does not exist (404).
    NotFound,
    /// What is to be added is there already, or in use (409).
    Conflict,
    /// A named limit would be exceeded (409).
    Limit,
    /// The drive, socket or state directory answered with an error (500).
    Failed,
    /// The daemon is stopping (503).
    Stopping,
}

/// Why a request was refused. Nothing of a refused request has been applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The kind, for programs.
    pub kind: Kind,
    /// What is wrong, for people.
    pub message: String,
    /// What would be right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(out, "; {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Problem {}
