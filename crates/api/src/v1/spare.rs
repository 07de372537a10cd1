//! Spares: drives that stand by to take the place of one of a pool's.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{DriveHardware, DriveState};
use crate::value::Name;

/// A drive that stands by to take the place of one of a pool's that fails, or has been gone for long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Spare {
    /// Its pool.
    pub pool: Name,
    /// What identifies it.
    pub id: Uuid,
    /// Where it is.
    pub path: String,
    /// As `state`.
    pub health: DriveState,
    /// `spare`, or `missing` when it cannot be used now.
    pub state: DriveState,
    /// Why that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Its bytes.
    pub size: u64,
    /// What the machine says of the hardware behind it.
    #[serde(default)]
    pub hardware: DriveHardware,
}
