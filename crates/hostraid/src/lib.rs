//! RAID at the host: stripes, mirrors and parity over namespaces of several targets, in place.
//!
//! [`Set`] is used as [`initiator::Namespace`] is; [`Volume`] is either. A write with parity goes to a journal on
//! the members it changes before it changes them, so that a crash leaves no hole even where a member is missing.
//! What the members hold besides data is in [`format`]; the reasons are in decision record 0013.

mod assemble;
mod bitmap;
mod book;
#[cfg(test)]
mod canary;
mod check;
mod claim;
mod create;
mod error;
mod fence;
pub mod format;
mod inner;
mod inspect;
mod journal;
mod layout;
pub mod limits;
mod locks;
mod member;
mod plan;
mod read;
mod rebuild;
mod recover;
mod set;
mod volume;
mod watch;
mod work;
mod write;
mod zero;

pub use assemble::Assemble;
pub use check::Checked;
pub use claim::Claim;
pub use create::Create;
pub use error::Error;
pub use format::{Health, Seat, Superblock};
pub use inspect::{Found, inspect};
pub use layout::{Layout, Level, Slots};
pub use member::Member;
pub use rebuild::{Joined, Progress};
pub use set::{Set, Status};
pub use volume::Volume;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
