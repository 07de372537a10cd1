//! What a connection still has to send, gathered so that one system call sends all of it: PDU heads lie
//! back to back in one buffer, data stays where it is in the owner's data area.

use std::io::{self, IoSlice};
use std::ops::Range;

use crate::limits::{SEND_BUDGET_BYTES, SEND_PIECES};

/// How far [`Gather::send`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Everything is sent.
    All,
    /// The socket takes no more for now.
    Blocked,
    /// One turn's share is sent.
    Shared,
}

/// Bytes to send, in order.
#[derive(Debug, Default)]
pub struct Gather {
    heads: Vec<u8>,
    segments: Vec<Segment>,
    /// Segments sent whole.
    done: usize,
    /// Bytes sent of segment `done`.
    sent: usize,
}

#[derive(Debug)]
enum Segment {
    /// A range of `heads`.
    Heads(Range<usize>),
    /// A range of the data area.
    Area(Range<usize>),
}

impl Gather {
    /// An empty queue with room for `heads` bytes of heads and `segments` segments before it grows.
    #[must_use]
    pub fn with_capacity(heads: usize, segments: usize) -> Self {
        Self {
            heads: Vec::with_capacity(heads),
            segments: Vec::with_capacity(segments),
            done: 0,
            sent: 0,
        }
    }

    /// Whether everything has been sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Appends bytes, copied.
    pub fn push(&mut self, bytes: &[u8]) {
        let start = self.heads.len();
        self.heads.extend_from_slice(bytes);
        match self.segments.last_mut() {
            Some(Segment::Heads(range)) => range.end = self.heads.len(),
            _ => self.segments.push(Segment::Heads(start..self.heads.len())),
        }
    }

    /// Appends a range of the data area, not copied: it has to stay as it is until sent.
    pub fn push_area(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            self.segments.push(Segment::Area(range));
        }
    }

    /// Sends with `send` (a gathering, non-blocking send) until all is sent, `send` would block, or a
    /// turn's share of bytes has gone.
    ///
    /// # Errors
    /// Any other error of `send`; a send of no bytes is [`io::ErrorKind::WriteZero`].
    pub fn send(
        &mut self,
        area: &[u8],
        mut send: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<Sent> {
        let mut share = SEND_BUDGET_BYTES;
        while self.done < self.segments.len() {
            if share == 0 {
                return Ok(Sent::Shared);
            }
            let mut slices = [IoSlice::new(&[]); SEND_PIECES];
            let mut count = 0;
            let mut skip = self.sent;
            for (slice, segment) in slices.iter_mut().zip(&self.segments[self.done..]) {
                let bytes = match segment {
                    Segment::Heads(range) => &self.heads[range.clone()],
                    Segment::Area(range) => &area[range.clone()],
                };
                *slice = IoSlice::new(&bytes[skip..]);
                skip = 0;
                count += 1;
            }
            match send(&slices[..count]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    self.advance(bytes);
                    share = share.saturating_sub(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Sent::Blocked);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.heads.clear();
        self.segments.clear();
        self.done = 0;
        Ok(Sent::All)
    }

    fn advance(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let (Segment::Heads(range) | Segment::Area(range)) = &self.segments[self.done];
            let left = range.len() - self.sent;
            if bytes < left {
                self.sent += bytes;
                return;
            }
            bytes -= left;
            self.done += 1;
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket that takes `step` bytes a call and blocks on every third call.
    fn drain(gather: &mut Gather, area: &[u8], step: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let mut calls = 0;
        loop {
            let all = gather
                .send(area, |slices| {
                    calls += 1;
                    if calls % 3 == 0 {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    let mut left = step;
                    for slice in slices {
                        let take = left.min(slice.len());
                        out.extend_from_slice(&slice[..take]);
                        left -= take;
                    }
                    Ok(step - left)
                })
                .unwrap();
            if all == Sent::All {
                return out;
            }
        }
    }

    #[test]
    fn order_is_kept_whatever_the_socket_takes() {
        let area: Vec<u8> = (0..=255).collect();
        for step in [1, 2, 7, 64, 10_000] {
            let mut gather = Gather::default();
            let mut expected = Vec::new();
            for i in 0..300 {
                gather.push(b"head");
                gather.push(&[0xee; 3]);
                let range = i % 50..i % 50 + i % 7;
                gather.push_area(range.clone());
                expected.extend_from_slice(b"head\xee\xee\xee");
                expected.extend_from_slice(&area[range]);
            }
            assert_eq!(drain(&mut gather, &area, step), expected, "step {step}");
            assert!(gather.is_empty());
        }
    }

    #[test]
    fn heads_in_a_row_are_one_slice() {
        let mut gather = Gather::default();
        gather.push(&[1; 72]);
        gather.push(&[2; 72]);
        let mut slices_seen = 0;
        gather
            .send(&[], |slices| {
                slices_seen = slices.len();
                Ok(slices.iter().map(|s| s.len()).sum())
            })
            .unwrap();
        assert_eq!(slices_seen, 1);
    }

    #[test]
    fn a_dead_socket_is_an_error() {
        let mut gather = Gather::default();
        gather.push(b"x");
        assert_eq!(gather.send(&[], |_| Ok(0)).unwrap_err().kind(), io::ErrorKind::WriteZero);
        let broken = gather.send(&[], |_| Err(io::ErrorKind::BrokenPipe.into())).unwrap_err();
        assert_eq!(broken.kind(), io::ErrorKind::BrokenPipe);
    }
}
