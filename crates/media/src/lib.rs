//! Things that keep bytes, and fail: file, block device, memory, persistent memory.

pub mod drive;
mod error;
mod limits;
pub mod memory;
pub mod pmem;
mod power;

pub use drive::{Drive, FaultPlan, Refusal, Simulated};
pub use error::{Error, Kind, Operation, Refused};
pub use limits::REGION_MAX;
pub use pmem::{Pmem, SimulatedPmem};
pub use power::Power;
