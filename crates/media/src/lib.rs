//! Things that keep bytes, and fail: file, block device, NVMe namespace, memory, persistent memory.

mod concurrent;
pub mod drive;
mod error;
mod limits;
pub mod memory;
pub mod passthrough;
pub mod pmem;
mod power;

pub use drive::{Drive, FaultPlan, Refusal, Simulated};
pub use error::{Error, Kind, Operation, Refused};
pub use limits::REGION_MAX;
pub use passthrough::Passthrough;
pub use pmem::{Access, Pmem, SimulatedPmem};
pub use power::Power;
