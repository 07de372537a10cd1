//! The node: composes the floors below, owns configuration, listeners, events and metrics.
//!
//! What a node serves is one value, [`desired::Desired`]. The configuration file, the command
//! line and the management API all produce a new `Desired`; [`change`] works out the steps from
//! the one to the other, and the node takes all of them or none.

pub mod change;
pub mod config;
pub mod cpus;
pub mod desired;
pub mod dump;
pub mod error;
mod event_logs;
pub mod events;
pub mod generic;
mod history;
mod hosts;
pub mod identity;
pub mod jobs;
pub mod limits;
mod lock;
mod losses;
pub mod node;
pub mod physical;
pub mod pools;
pub mod remote;
pub mod reservations;
pub mod schedules;
pub mod seen;
pub mod serving;
pub mod space;
pub mod state;
pub mod windows;

pub use error::{Error, Result};
