//! The controller side: queues, commands, admin, subsystems, namespaces, discovery, reservations.

pub mod admin;
pub mod budget;
pub mod canary;
pub mod command;
mod concurrent;
mod connection;
pub mod controller;
pub mod counters;
mod describe;
mod discovery;
pub mod event;
pub mod fabrics;
pub mod host;
pub mod limits;
pub mod listener;
pub mod metrics;
pub mod namespace;
mod persistent_event;
pub mod queue;
mod refusals;
pub mod registry;
pub mod reservation;
#[cfg(any(test, feature = "testing"))]
#[cfg_attr(not(test), allow(dead_code, reason = "the tests here use all of it"))]
mod rig;
pub mod snapshot;
pub mod subsystem;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub mod windows;

pub use connection::serve_connection;
pub use controller::Controller;
pub use refusals::{News, Refused};
pub use registry::{Draining, Identity, ManageError, Target};
