//! Moves capsules and data between two ends: NVMe/TCP, listen and connect sides.
//!
//! The protocol itself is in `nvme::tcp`, without I/O; here it meets a socket of the reactor. The
//! listen side hands command capsules up and carries data and responses back; it knows neither
//! queues nor controllers.

pub mod limits;
pub mod notify;
pub mod payload;
mod race;
pub mod tcp;

pub use race::race;
