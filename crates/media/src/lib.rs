//! Things that keep bytes, and fail: file, block device, memory.

pub mod drive;
mod error;
mod limits;
pub mod memory;
mod power;

pub use drive::{Drive, FaultPlan, Simulated};
pub use error::{Error, Kind, Operation};
pub use limits::REGION_MAX;
pub use power::Power;
