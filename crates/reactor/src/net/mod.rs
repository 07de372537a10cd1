//! TCP: plain non-blocking calls, the ring only for readiness (decision 0002).

mod listener;
mod stream;
mod sys;

pub use listener::{ListenOptions, TcpListener};
pub use stream::TcpStream;

#[cfg(test)]
mod tests;
