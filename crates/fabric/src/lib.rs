//! Moves capsules and data between two ends: NVMe/TCP, listen and connect sides.

pub mod limits;
mod race;
pub mod tcp;

pub use race::race;
