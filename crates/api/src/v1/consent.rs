//! What a change takes away, and whether that is meant.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::value::Size;

/// Whether what a change destroys, or takes from hosts, is meant to go; behind the question mark.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, IntoParams,
)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Consent {
    /// It is meant: without this, a change that takes something away is refused.
    #[serde(default)]
    pub force: bool,
    /// Change nothing, and answer with what would be lost.
    #[serde(default)]
    pub dry_run: bool,
}

impl Consent {
    /// Nothing may be lost.
    pub const NONE: Self = Self { force: false, dry_run: false };
    /// Whatever is lost is meant to go.
    pub const FORCE: Self = Self { force: true, dry_run: false };
    /// Only tell what would be lost.
    pub const DRY_RUN: Self = Self { force: false, dry_run: true };

    /// As it stands behind a path.
    #[must_use]
    pub fn query(self) -> String {
        format!("?force={}&dry_run={}", self.force, self.dry_run)
    }
}

/// How a drive is taken out of its pool for good; behind the question mark.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, IntoParams,
)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DriveRemoval {
    /// It is meant: without this it is refused.
    #[serde(default)]
    pub force: bool,
    /// Change nothing, and answer with what would be lost.
    #[serde(default)]
    pub dry_run: bool,
    /// Bytes moved onto the others in a second at most; as many as hosts leave time for when left out, or 0.
    #[serde(default)]
    pub limit: Option<Size>,
}

impl DriveRemoval {
    #[must_use]
    pub const fn consent(&self) -> Consent {
        Consent { force: self.force, dry_run: self.dry_run }
    }

    /// As it stands behind a path.
    #[must_use]
    pub fn query(&self) -> String {
        let limit = self.limit.map(|limit| format!("&limit={}", limit.bytes()));
        self.consent().query() + &limit.unwrap_or_default()
    }
}

/// What a change is answered with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Changed<T> {
    /// It is made: how things are now.
    Made(T),
    /// With `dry_run`: what it would take away.
    WouldLose(Losses),
}

/// What a change takes away, or would.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Losses {
    /// A sentence for each thing: data that is destroyed, hosts that lose what they are connected to.
    pub losses: Vec<String>,
}
