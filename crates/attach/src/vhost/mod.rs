//! A back end of the vhost-user protocol: a virtual machine's disk (virtio-blk) whose requests this process takes
//! from the machine's memory.
//!
//! [`message`], [`block`] and [`queue`] turn bytes into what is wanted; none of them waits for anything. The
//! protocol and the rings are our own: what there is to be had brings threads, locks and an event loop of its own.

pub mod block;
mod front_end;
pub mod inflight;
pub mod memory;
pub mod message;
pub mod queue;
mod ring;
mod server;
#[cfg(test)]
mod tests;
pub mod wire;

pub use server::Server;
