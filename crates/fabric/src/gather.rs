//! What a connection still has to send, gathered so that one system call sends all of it: PDU heads
//! lie back to back in one buffer, data stays where it is.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use reactor::net::Behind;

use crate::limits::{HEADS_KEPT_BYTES, SEND_BUDGET_BYTES, SEND_PIECES};

/// How far [`Gather::send`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Everything is sent.
    All,
    /// The socket takes no more for now.
    Blocked,
    /// One turn's share is sent.
    Share,
}

/// A run of bytes in sending order.
#[derive(Debug)]
enum Segment<D> {
    /// The next bytes of the heads.
    Heads(usize),
    Data(D),
}

/// Bytes to send, in order. `D` names data that stays where it is until it is sent.
#[derive(Debug)]
pub struct Gather<D> {
    heads: Vec<u8>,
    /// Bytes of `heads` already sent.
    heads_sent: usize,
    segments: VecDeque<Segment<D>>,
    /// Bytes of the first segment already sent.
    sent: usize,
    /// Lengths of the records that go by themselves, oldest first, less what is sent of the first; empty when
    /// all goes together.
    records: VecDeque<usize>,
}

impl<D> Default for Gather<D> {
    fn default() -> Self {
        Self::with_capacity(0, 0)
    }
}

impl<D> Gather<D> {
    /// An empty queue with room for `heads` bytes of heads and `segments` segments before it grows.
    #[must_use]
    pub fn with_capacity(heads: usize, segments: usize) -> Self {
        Self {
            heads: Vec::with_capacity(heads),
            heads_sent: 0,
            segments: VecDeque::with_capacity(segments),
            sent: 0,
            records: VecDeque::new(),
        }
    }

    /// Has the next `length` bytes sent by a call of their own. All that is queued must be in such records, or
    /// none of it.
    pub fn part(&mut self, length: usize) {
        self.records.push_back(length);
    }

    /// Whether everything has been sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Bytes of heads that have not been sent.
    #[must_use]
    pub fn unsent_heads(&self) -> usize {
        self.heads.len() - self.heads_sent
    }

    /// Appends bytes, copied.
    pub fn push(&mut self, bytes: &[u8]) {
        self.heads.extend_from_slice(bytes);
        match self.segments.back_mut() {
            Some(Segment::Heads(length)) => *length += bytes.len(),
            _ => self.segments.push_back(Segment::Heads(bytes.len())),
        }
    }

    /// Appends data, not copied; it must not be empty.
    pub fn push_data(&mut self, data: D) {
        self.segments.push_back(Segment::Data(data));
    }

    /// Calls `f` with all data that is not sent whole; what it makes of it must have the same length.
    pub fn for_each(&mut self, mut f: impl FnMut(&mut D)) {
        for segment in &mut self.segments {
            if let Segment::Data(data) = segment {
                f(data);
            }
        }
    }

    /// The data at the front of which some bytes are sent, and how many.
    pub fn cut(&mut self) -> Option<(&mut D, usize)> {
        match self.segments.front_mut() {
            Some(Segment::Data(data)) if self.sent > 0 => Some((data, self.sent)),
            _ => None,
        }
    }

    /// Puts `data` in place of the front, of which nothing counts as sent then.
    pub fn replace_front(&mut self, data: impl DoubleEndedIterator<Item = D>) {
        self.segments.pop_front();
        self.sent = 0;
        data.rev().for_each(|data| self.segments.push_front(Segment::Data(data)));
    }

    /// Sends with `send` (a gathering, non-blocking send, told whether more is queued behind) until all is sent, `send` would block, or a
    /// turn's share of bytes has gone. `bytes` gives the bytes of data, which may lie in an `area`; data sent
    /// to its end goes to `sent_whole`.
    ///
    /// # Errors
    /// Any other error of `send`; a send of no bytes is [`io::ErrorKind::WriteZero`].
    pub fn send<A: ?Sized>(
        &mut self,
        area: &A,
        bytes: impl for<'x> Fn(&'x A, &'x D) -> &'x [u8],
        send: impl FnMut(&[IoSlice<'_>], Behind) -> io::Result<usize>,
        sent_whole: impl FnMut(D),
    ) -> io::Result<Sent> {
        self.send_share(SEND_BUDGET_BYTES, area, bytes, send, sent_whole)
    }

    /// As [`Gather::send`], with another share than most have.
    ///
    /// # Errors
    /// As there.
    pub fn send_share<A: ?Sized>(
        &mut self,
        mut share: usize,
        area: &A,
        bytes: impl for<'x> Fn(&'x A, &'x D) -> &'x [u8],
        mut send: impl FnMut(&[IoSlice<'_>], Behind) -> io::Result<usize>,
        mut sent_whole: impl FnMut(D),
    ) -> io::Result<Sent> {
        while !self.segments.is_empty() {
            if share == 0 {
                return Ok(Sent::Share);
            }
            let most = self.records.front().map_or(share, |&record| record.min(share));
            let (offered, outcome) = self.offer(area, &bytes, &mut send, most);
            match outcome {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(taken) => {
                    self.advance(taken, |data| bytes(area, data).len(), &mut sent_whole);
                    if taken < offered {
                        return Ok(Sent::Blocked);
                    }
                    share = share.saturating_sub(taken);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Sent::Blocked);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.heads.clear();
        self.heads_sent = 0;
        Ok(Sent::All)
    }

    /// One gathering call over the oldest segments, of `share` bytes at most.
    fn offer<A: ?Sized>(
        &self,
        area: &A,
        bytes: impl for<'x> Fn(&'x A, &'x D) -> &'x [u8],
        send: &mut impl FnMut(&[IoSlice<'_>], Behind) -> io::Result<usize>,
        share: usize,
    ) -> (usize, io::Result<usize>) {
        let mut slices = [IoSlice::new(&[]); SEND_PIECES];
        let mut count = 0;
        let mut offered = 0;
        let mut heads = self.heads_sent;
        let mut skip = self.sent;
        let mut cut = false;
        for (slice, segment) in slices.iter_mut().zip(&self.segments) {
            if offered >= share {
                break;
            }
            let run = match segment {
                Segment::Heads(length) => {
                    let run = &self.heads[heads..heads + length - skip];
                    heads += run.len();
                    run
                }
                Segment::Data(data) => &bytes(area, data)[skip..],
            };
            let take = run.len().min(share - offered);
            cut = take < run.len();
            *slice = IoSlice::new(&run[..take]);
            offered += take;
            count += 1;
            skip = 0;
        }
        let more = cut || count < self.segments.len();
        (offered, send(&slices[..count], if more { Behind::More } else { Behind::Nothing }))
    }

    fn advance(
        &mut self,
        mut taken: usize,
        length_of: impl Fn(&D) -> usize,
        sent_whole: &mut impl FnMut(D),
    ) {
        if let Some(record) = self.records.front_mut() {
            *record -= taken;
            if *record == 0 {
                self.records.pop_front();
            }
        }
        while taken > 0 {
            let Some(front) = self.segments.front() else { break };
            let (length, heads) = match front {
                Segment::Heads(length) => (*length, true),
                Segment::Data(data) => (length_of(data), false),
            };
            let step = taken.min(length - self.sent);
            self.heads_sent += if heads { step } else { 0 };
            self.sent += step;
            taken -= step;
            if self.sent == length {
                self.sent = 0;
                if let Some(Segment::Data(data)) = self.segments.pop_front() {
                    sent_whole(data);
                }
            }
        }
        // A connection that never runs empty must not keep what it has sent.
        if self.heads_sent >= HEADS_KEPT_BYTES {
            self.heads.drain(..self.heads_sent);
            self.heads_sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    /// A socket that takes `step` bytes a call and blocks on every third call.
    fn drain(gather: &mut Gather<Range<usize>>, area: &[u8], step: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let mut calls = 0;
        loop {
            let all = gather
                .send(
                    area,
                    |area, range| &area[range.clone()],
                    |slices, _| {
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
                    },
                    drop,
                )
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
            let mut gather = Gather::<Range<usize>>::default();
            let mut expected = Vec::new();
            for i in 0..300 {
                gather.push(b"head");
                gather.push(&[0xee; 3]);
                let range = i % 50..i % 50 + i % 7;
                if !range.is_empty() {
                    gather.push_data(range.clone());
                }
                expected.extend_from_slice(b"head\xee\xee\xee");
                expected.extend_from_slice(&area[range]);
            }
            assert_eq!(drain(&mut gather, &area, step), expected, "step {step}");
            assert!(gather.is_empty());
        }
    }

    #[test]
    fn heads_in_a_row_are_one_slice() {
        let mut gather = Gather::<Range<usize>>::default();
        gather.push(&[1; 72]);
        gather.push(&[2; 72]);
        let mut slices_seen = 0;
        gather
            .send(
                &(),
                |(), _| &[],
                |slices, _| {
                    slices_seen = slices.len();
                    Ok(slices.iter().map(|s| s.len()).sum())
                },
                drop,
            )
            .unwrap();
        assert_eq!(slices_seen, 1);
    }

    /// What each call sends, and whether it was told that more follows.
    fn calls(gather: &mut Gather<Range<usize>>, area: &[u8]) -> Vec<(usize, bool)> {
        let mut calls = Vec::new();
        let send = |slices: &[IoSlice<'_>], behind| {
            let bytes = slices.iter().map(|slice| slice.len()).sum();
            calls.push((bytes, behind == Behind::More));
            Ok(bytes)
        };
        let sent = gather.send(area, |area, range| &area[range.clone()], send, drop);
        assert_eq!(sent.unwrap(), Sent::All);
        calls
    }

    #[test]
    fn records_go_by_themselves_and_only_the_last_has_nothing_behind() {
        let area = vec![7; 4096];
        let mut gather = Gather::default();
        for _ in 0..3 {
            gather.push(&[1; 72]);
            gather.push_data(0..4096);
            gather.push(&[2; 4]);
            gather.part(72 + 4096 + 4);
        }
        gather.push(&[1; 72]);
        gather.part(72);
        assert_eq!(
            calls(&mut gather, &area),
            [(4172, true), (4172, true), (4172, true), (72, false)]
        );
    }

    #[test]
    fn what_one_call_cannot_take_is_announced() {
        let area = vec![7; 16];
        let mut gather = Gather::default();
        for _ in 0..SEND_PIECES {
            gather.push(&[1; 72]);
            gather.push_data(0..16);
        }
        let half = SEND_PIECES / 2 * (72 + 16);
        assert_eq!(calls(&mut gather, &area), [(half, true), (half, false)]);
    }

    #[test]
    fn a_dead_socket_is_an_error() {
        let mut gather = Gather::<Range<usize>>::default();
        gather.push(b"x");
        assert_eq!(
            gather.send(&(), |(), _| &[], |_, _| Ok(0), drop).unwrap_err().kind(),
            io::ErrorKind::WriteZero
        );
        let broken = gather
            .send(&(), |(), _| &[], |_, _| Err(io::ErrorKind::BrokenPipe.into()), drop)
            .unwrap_err();
        assert_eq!(broken.kind(), io::ErrorKind::BrokenPipe);
    }
}
