//! Ways to use a remote namespace without a kernel driver.
//!
//! Each is a server that speaks another protocol in front of `initiator::Namespace`: [`nbd`].

pub mod limits;
pub mod nbd;
mod place;

pub use place::{NoPlace, Place};
