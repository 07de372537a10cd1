//! Connections of the management socket, and of whoever reads metrics: so many at once, and none that is silent for ever.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Who is at the other end of a connection, in words.
#[derive(Clone, Debug)]
pub struct Caller(pub String);

/// A connection that tells who is at its other end.
pub trait Peer {
    fn caller(&self) -> Caller;
}

impl Peer for UnixStream {
    fn caller(&self) -> Caller {
        let Ok(peer) = self.peer_cred() else { return Caller("unknown".to_owned()) };
        let process = peer.pid().map_or_else(String::new, |pid| format!(", process {pid}"));
        Caller(format!("uid {}{process}", peer.uid()))
    }
}

impl Peer for TcpStream {
    fn caller(&self) -> Caller {
        Caller(self.peer_addr().map_or_else(|_| "unknown".to_owned(), |from| from.to_string()))
    }
}

impl<L> Connected<IncomingStream<'_, Bounded<L>>> for Caller
where
    Bounded<L>: Listener<Addr = Self>,
{
    fn connect_info(stream: IncomingStream<'_, Bounded<L>>) -> Self {
        stream.remote_addr().clone()
    }
}

/// Accepts while fewer than so many are open.
pub struct Bounded<L> {
    listener: L,
    places: Arc<Semaphore>,
    silence: Duration,
}

/// A connection, closed when nothing was received or sent for so long.
pub struct Connection<S> {
    stream: S,
    silence: Duration,
    until: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl<L> Bounded<L> {
    pub fn new(listener: L, most: usize, silence: Duration) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(most)), silence }
    }
}

impl<L> Listener for Bounded<L>
where
    L: Listener<Io: Peer, Addr: std::fmt::Debug>,
{
    type Io = Connection<L::Io>;
    type Addr = Caller;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let place = loop {
            // Never closed.
            if let Ok(place) = Arc::clone(&self.places).acquire_owned().await {
                break place;
            }
        };
        let (stream, _) = Listener::accept(&mut self.listener).await;
        let from = stream.caller();
        let (silence, until) = (self.silence, Box::pin(sleep(self.silence)));
        (Connection { stream, silence, until, _place: place }, from)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(Caller(format!("{:?}", self.listener.local_addr()?)))
    }
}

impl<S> Connection<S> {
    /// The end of its silence is later now.
    fn moved<T>(&mut self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.until.as_mut().reset(Instant::now() + self.silence);
        }
        result
    }

    /// Ends what would wait on beyond the silence.
    fn or_over<T>(
        &mut self,
        result: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if result.is_pending() && self.until.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let read = self.moved(read);
        self.or_over(read, cx)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        let written = self.moved(written);
        self.or_over(written, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.or_over(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.or_over(ended, cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    use super::*;

    /// A thousand connections to the management socket were a gigabyte, and none was ever closed.
    #[tokio::test]
    async fn connections_are_bounded_and_silent_ones_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let mut bounded = Bounded::new(listener, 1, Duration::from_millis(20));
        let mut first = UnixStream::connect(&path).await.unwrap();
        let _second = UnixStream::connect(&path).await.unwrap();
        let (mut one, _) = bounded.accept().await;
        first.write_all(b"x").await.unwrap();
        assert_eq!(one.read_u8().await.unwrap(), b'x');
        let mut another = Box::pin(bounded.accept());
        let more = tokio::time::timeout(Duration::from_millis(1), &mut another).await;
        assert!(more.is_err(), "one is open");
        assert_eq!(one.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(one);
        another.await;
    }

    /// Who asked again and again for what is long, and read nothing, kept its place for ever.
    #[tokio::test]
    async fn who_reads_nothing_of_what_it_asked_for_is_closed_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let mut bounded = Bounded::new(listener, 1, Duration::from_millis(20));
        let _silent = UnixStream::connect(&path).await.unwrap();
        let (mut one, _) = bounded.accept().await;
        let written = async { while one.write_all(&[0; 1 << 16]).await.is_ok() {} };
        let written = tokio::time::timeout(Duration::from_secs(20), written).await;
        assert!(written.is_ok(), "it waits for a client that reads nothing");
    }
}
