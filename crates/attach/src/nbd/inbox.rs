//! What a client sent and nobody has looked at yet.

use std::io::{self, IoSliceMut};
use std::ops::Range;

use fabric::landing;
use reactor::net::TcpStream;
use stdx::Aligned;

use crate::limits::{BEHIND_BYTES, DIRECT_BYTES, RECEIVE_BYTES};

/// Received bytes, in order.
pub struct Inbox {
    bytes: Aligned,
    unread: Range<usize>,
}

impl Default for Inbox {
    fn default() -> Self {
        Self { bytes: Aligned::zeroed(RECEIVE_BYTES), unread: 0..0 }
    }
}

impl Inbox {
    /// What is there.
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.unread.clone()]
    }

    /// The first `length` bytes are done with.
    pub fn consume(&mut self, length: usize) {
        self.unread.start += length;
    }

    /// Waits for more.
    ///
    /// # Errors
    /// The socket's; `UnexpectedEof` at its end.
    pub async fn fill(&mut self, stream: &TcpStream) -> io::Result<()> {
        let end = landing(self.unread.len());
        let start = end - self.unread.len();
        if self.unread.start > start {
            self.bytes.copy_within(self.unread.clone(), start);
            self.unread = start..end;
        }
        self.unread.end += alive(stream.recv(&mut self.bytes[self.unread.end..]).await?)?;
        Ok(())
    }

    /// Moves the next bytes to `place` until it is full; many of them are received there.
    ///
    /// # Errors
    /// As [`Inbox::fill`].
    pub async fn take(&mut self, stream: &TcpStream, mut place: &mut [u8]) -> io::Result<()> {
        loop {
            let have = self.unread.len().min(place.len());
            let filled;
            (filled, place) = place.split_at_mut(have);
            filled.copy_from_slice(&self.unread()[..have]);
            self.consume(have);
            if place.is_empty() {
                return Ok(());
            }
            if place.len() < DIRECT_BYTES {
                self.fill(stream).await?;
                continue;
            }
            let behind = &mut self.bytes[..BEHIND_BYTES];
            let mut slices = [IoSliceMut::new(&mut *place), IoSliceMut::new(behind)];
            let received = alive(stream.recv_vectored(&mut slices).await?)?;
            let placed = received.min(place.len());
            place = &mut place[placed..];
            self.unread = 0..received - placed;
        }
    }
}

/// A receive of no bytes is the end of the stream.
fn alive(received: usize) -> io::Result<usize> {
    if received == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(received) }
}
