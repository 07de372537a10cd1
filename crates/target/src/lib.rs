//! The controller side: queues, commands, admin, subsystems, namespaces, discovery, reservations.

pub mod limits;
pub mod reservation;
