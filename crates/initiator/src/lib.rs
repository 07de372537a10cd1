//! The host side in user space: connect, discover, queues, submit, poll.
//!
//! [`Controller::connect`] makes the admin queue and enables the controller; its [`Association`] goes to
//! whichever reactor shall own an I/O [`Queue`]. A [`Namespace`] is all of that for the tasks of one reactor: it
//! keeps the association, its queues and buffers, and has a function for each command. [`discover`], [`identify_controller`] and
//! [`identify_namespace`] are for callers without a reactor: each blocks its thread for one question.

mod address;
mod ana;
mod ask;
mod association;
mod batch;
pub mod canary;
mod channel;
mod controller;
mod discovery;
mod error;
mod host;
pub mod limits;
mod namespace;
mod optimizations;
mod poll_backoff;
mod queue;
mod remote;
#[cfg(test)]
mod scripted;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod windows;

pub use address::Address;
pub use ask::{discover, identify_controller, identify_namespace};
pub use association::{Association, Fencing, Options};
pub use channel::Counters;
pub use controller::Controller;
pub use discovery::DiscoveryLog;
pub use error::Error;
pub use fabric::race;
pub use host::HostIdentity;
pub use namespace::{
    Buffer, CopyLimits, Deallocate, Fua, Geometry, Namespace, PathInfo, PathPolicy, PathState,
    Registrant, Supports,
};
pub use nvme::ana::State as AnaState;
pub use optimizations::{Batching, Optimization, Optimizations};
pub use queue::{Completion, Data, Memory, Queue};
pub use remote::Remote;
pub use windows::{Descriptors, DirectWindow, NotDone, SharedWindow, Standing, WindowUse, Written};
#[cfg(feature = "testing")]
pub use windows::{Ring, RingCopies, RingCopy, Step, Writing};
