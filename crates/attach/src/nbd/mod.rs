//! Network block devices: a server of the NBD protocol (fixed newstyle).
//!
//! [`handshake`] and [`request`] turn bytes into what a client wants, [`reply`] makes the answers; none
//! of them does I/O.

mod client;
pub mod export;
pub mod handshake;
mod inbox;
pub mod reply;
pub mod request;
mod server;
#[cfg(test)]
mod tests;
pub mod wire;

pub use server::{Listener, Options, Server, TooLong};
