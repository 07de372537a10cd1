//! The host side for threads that run no reactor.
//!
//! [`Namespace::open`] connects and starts a thread of its own, on which a reactor serves the namespace. Its
//! handles go to any thread: their functions block until a command has ended. A [`Queue`] keeps many commands in
//! flight for one thread, which submits them in batches and reaps their completions, by polling, by sleeping, or
//! from an event loop that watches the queue's descriptor.
//!
//! Between the threads are two rings without locks a queue. Putting commands costs no system call unless the
//! serving thread sleeps; completions cost none unless the other side does. Data is sent from the caller's memory
//! and received into it.

mod buffer;
mod command;
mod error;
pub mod limits;
mod namespace;
mod options;
mod queue;
mod serve;
#[cfg(test)]
mod tests;
mod thread;
mod window;

pub use buffer::{ALIGN, Buffer};
pub use command::Command;
pub use error::Error;
pub use initiator::{
    Address, CopyLimits, Deallocate, DiscoveryLog, Fencing, Fua, Geometry, HostIdentity,
    Optimizations, PathPolicy, Remote, Supports, WindowUse,
};
pub use namespace::Namespace;
pub use options::Options;
pub use queue::{Completion, Queue};
pub use reactor::PollPolicy;
