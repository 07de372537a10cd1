//! The protocol machines of NVMe/TCP: bytes in, events out, no I/O.
//!
//! [`controller::Machine`] is fed what a host sends, [`host::Machine`] what a controller sends. Both
//! work alike. The caller owns a receive buffer and calls `next` with the bytes it has not consumed
//! yet:
//!
//! - [`Step::Event`]: something happened; drop `consumed` bytes (it may be 0) and **call again, even
//!   with no bytes left**: the end of a transfer is an event of its own.
//! - [`Step::NeedMore`]: drop `consumed` bytes, receive more, call again.
//! - `Err(Fatal)`: send what `term_req` gives, then close. The machine swallows all further input.
//!
//! Capsules come whole, borrowed from the input: nothing is copied and nothing allocated. The data of
//! H2CData and C2HData comes in pieces as it arrives; between pieces `direct` says where the rest
//! belongs, so that the caller can receive it in place and report it with `advance_direct`.
//!
//! How the bytes are cut never changes what is reported, except where the pieces of data are cut.
//!
//! Section numbers without a document name are those of the NVMe TCP Transport Specification 1.1.

pub mod controller;
mod digest;
mod fatal;
pub mod host;
pub mod limits;
mod link;
mod payload;
#[cfg(test)]
mod tests;

pub use digest::{DataDigest, ddgst};
pub use fatal::{Fatal, TermReqBytes, Terminated};
pub use link::{DataHead, Head, ShortHead};

/// What one call of `next` came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<E> {
    /// `consumed` bytes of the input are done with, and `event` happened. Call again.
    Event { consumed: usize, event: E },
    /// `consumed` bytes of the input are done with; no event before the input holds at least
    /// `at_least` bytes beyond those. That is how far the machine can see, not a promise.
    NeedMore { consumed: usize, at_least: usize },
}
