//! Requests to a shard of another reactor.
//!
//! A request is a box that the sender's [`RequestQueue`] owns: it moves to the shard's reactor by a ring, with its
//! data, and comes back by another with what was read. It is used again and again, so that neither way allocates
//! anything once it is warm, and neither takes a lock or an atomic read-modify-write. There are no more boxes than the
//! rings have room for: who finds none free waits for one.
//!
//! There, [`serve`](server::serve) begins a request as it would be begun on its own reactor; only what has to wait goes
//! to a worker.
//!
//! Every end is told by dropping: a shard that closes, or whose reactor ends, drops its ends of the rings once nothing
//! of them is under way, and what has not come back by then is refused. A sender that is gone first says so in its
//! request, and its box is free when it comes back.

mod link;
pub mod queue;
pub mod reception;
pub mod server;
mod workers;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use queue::RequestQueue;
use reactor::duplex::End;

use crate::error::{Error, Kind, Result};
use crate::volume::state::State;

/// What is asked of the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
    Deallocate,
    /// From this place of the request's source to where it says.
    Copy {
        from: u64,
    },
}

/// One request, with the data it moves.
#[derive(Debug)]
pub struct RemoteRequest {
    /// Its number in its queue.
    slot: usize,
    /// Set when the sender is gone: its command was aborted, or its queue ended.
    given_up: Arc<AtomicBool>,
    /// Which of the volumes that both ends know.
    volume: usize,
    /// That volume, where the other end does not know it yet.
    introduced: Option<Arc<State>>,
    asked: Asked,
    /// What became of it.
    done: Result<()>,
}

/// What is asked.
#[derive(Debug)]
struct Asked {
    operation: Operation,
    /// What is copied from.
    source: Option<Arc<State>>,
    offset: u64,
    length: u64,
    /// What is written, or was read.
    bytes: Vec<u8>,
}

/// What a queue sends.
#[derive(Debug)]
pub enum Message {
    Request(Box<RemoteRequest>),
    /// Whoever attends to the request of this slot is to look whether its sender is gone.
    GivenUp(usize),
}

/// A shard's end of the rings of one queue.
pub type ShardEnd = End<Box<RemoteRequest>, Message>;

pub fn gone() -> Error {
    Error::new(Kind::Gone, "the volume was closed or deleted")
}

impl RemoteRequest {
    fn new(slot: usize, given_up: Arc<AtomicBool>) -> Self {
        let (operation, bytes) = (Operation::Read, Vec::new());
        let asked = Asked { operation, source: None, offset: 0, length: 0, bytes };
        Self { slot, given_up, volume: 0, introduced: None, asked, done: Ok(()) }
    }
}
