//! Ways to use a remote namespace without a kernel driver.
//!
//! Each is a server that speaks another protocol in front of `hostraid::Volume`, a namespace or a set of them:
//! [`nbd`], [`ublk`] and [`vhost`].

mod crew;
pub mod disk;
pub mod limits;
pub mod nbd;
mod place;
mod ranges;
pub mod ublk;
pub mod vhost;

pub use place::{NoPlace, Place};
