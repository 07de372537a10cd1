//! Moves capsules and data between two ends: what hosts and controllers know of transports.
//!
//! [`host`] and [`controller`] are the two ends of a connection, each a closed set of transports with one variant for
//! each; [`TransportAddress`] says where a controller is. A transport has a room of its own here that nobody outside
//! sees. NVMe/TCP's protocol is in `nvme::tcp`, without I/O, and meets a socket of the reactor here, in simulation a
//! simulated one. NVMe/RDMA has little protocol (`nvme::rdma`): what moves its capsules and data is a queue pair of a
//! network card, by `verbs`.
//!
//! Neither end knows of queues or controllers: capsules go up, data and responses go down.

mod address;
mod capsule;
pub mod controller;
mod error;
pub mod gather;
pub mod host;
mod inbox;
mod landing;
pub mod limits;
pub mod notify;
mod options;
pub mod payload;
mod race;
mod rdma;
mod tcp;

pub use address::TransportAddress;
pub use landing::landing;
pub use race::race;
pub use rdma::ring;
