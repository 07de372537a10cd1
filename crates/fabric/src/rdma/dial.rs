//! The way to a peer, and its answer.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use reactor::event::Descriptor;
use verbs::{Answer, Dial, Endpoint, Step};

/// A way that is known.
pub struct Way {
    pub dial: Dial,
    /// Readable when the connection manager has something to say of it, or of the connection that it becomes.
    pub events: Descriptor,
}

impl Way {
    /// Waits until the way to `peer` is known, each step for `patience` at most.
    ///
    /// # Errors
    /// As of [`Dial`].
    pub async fn to(peer: SocketAddr, patience: Duration) -> io::Result<Self> {
        let dial = reactor::blocking(move || Dial::start(peer, patience)).await?;
        let events = Descriptor::of(dial.as_fd())?;
        loop {
            match dial.next()? {
                Some(Step::Route) => return Ok(Self { dial, events }),
                Some(Step::Address) => {}
                None => events.readable().await?,
            }
        }
    }
}

/// Waits for what the peer says to who asked for a connection.
///
/// # Errors
/// The connection manager's.
pub async fn answer(endpoint: &Endpoint, events: &Descriptor) -> io::Result<Answer> {
    loop {
        match endpoint.next_answer()? {
            Some(answer) => return Ok(answer),
            None => events.readable().await?,
        }
    }
}

/// Why there is no connection, of an answer that is neither yes nor no.
pub fn failure(answer: &Answer) -> io::Error {
    match answer {
        Answer::Failed(status) if *status < 0 => {
            io::Error::from_raw_os_error(status.saturating_neg())
        }
        Answer::Failed(status) => {
            io::Error::other(format!("the connection manager's reason {status}"))
        }
        _ => io::ErrorKind::ConnectionRefused.into(),
    }
}
