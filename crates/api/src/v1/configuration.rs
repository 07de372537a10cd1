//! Configurations that were served before, and can be served again.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A configuration as it was before a change that left something of it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptConfiguration {
    /// Grows by one with every configuration that is kept.
    pub id: u64,
    /// When it was kept: milliseconds since 1970-01-01 00:00:00 UTC.
    pub time_ms: u64,
    /// What came after it.
    pub before: String,
    /// Who asked for that, if somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Its listeners.
    pub listeners: usize,
    /// Its subsystems.
    pub subsystems: usize,
    /// Its namespaces.
    pub namespaces: usize,
}
