//! Messages of NVMe/TCP's sizes: a common header's type and length, and nothing in them.

use crate::report::{Case, Direction};
use std::io::{self, IoSlice};
use stdx::Aligned;

/// PDU types, as in the transport specification.
pub const CAPSULE: u8 = 4;
pub const RESPONSE: u8 = 5;
pub const HOST_DATA: u8 = 6;
pub const DATA: u8 = 7;
pub const READY: u8 = 9;

const CAPSULE_LEN: usize = 72;
const HEAD_LEN: usize = 24;

/// Where in a page the payload begins: a cache line before the next. Behind a header of 24 bytes, data
/// that begins at a page is copied by the kernel 15 times slower on some processors (AMD's Zen 3); the
/// floor would not be one.
const PAYLOAD_START: usize = 4096 - 64;

/// One connection's receive side: tells messages apart, and drops their payload.
pub struct Parser {
    head: [u8; 8],
    have: usize,
    /// Bytes of the current message still to come.
    rest: usize,
    kind: u8,
}

impl Parser {
    pub const fn new() -> Self {
        Self { head: [0; 8], have: 0, rest: 0, kind: 0 }
    }

    /// Calls `ended` with the type of each message that is complete with `bytes`.
    pub fn feed(&mut self, mut bytes: &[u8], mut ended: impl FnMut(u8)) {
        while !bytes.is_empty() {
            if self.rest == 0 {
                let n = bytes.len().min(8 - self.have);
                self.head[self.have..self.have + n].copy_from_slice(&bytes[..n]);
                self.have += n;
                bytes = &bytes[n..];
                if self.have < 8 {
                    return;
                }
                let [kind, _, _, _, len @ ..] = self.head;
                self.kind = kind;
                self.rest = stdx::num::usize32(u32::from_le_bytes(len)).saturating_sub(8);
                self.have = 0;
            }
            let n = bytes.len().min(self.rest);
            self.rest -= n;
            bytes = &bytes[n..];
            if self.rest == 0 {
                ended(self.kind);
            }
        }
    }
}

/// What a message looks like: its header, and how much of the shared payload follows.
struct Shape {
    head: [u8; CAPSULE_LEN],
    head_len: usize,
    payload: usize,
}

impl Shape {
    fn new(kind: u8, head_len: usize, payload: usize) -> Self {
        let mut head = [0; CAPSULE_LEN];
        head[0] = kind;
        head[4..8].copy_from_slice(&stdx::num::u32_of(head_len + payload).to_le_bytes());
        Self { head, head_len, payload }
    }
}

/// The messages of one case.
pub struct Shapes {
    request: Shape,
    answer: Shape,
    ready: Shape,
    host_data: Shape,
    /// Behind [`PAYLOAD_START`] bytes that are not sent.
    payload: Aligned,
    case: Case,
}

impl Shapes {
    pub fn new(case: Case) -> Self {
        let (request, answer) = match case.direction {
            Direction::Read => (0, Shape::new(DATA, HEAD_LEN, case.bytes)),
            Direction::Write if case.asks() => (0, Shape::new(RESPONSE, HEAD_LEN, 0)),
            Direction::Write => (case.bytes, Shape::new(RESPONSE, HEAD_LEN, 0)),
            Direction::Empty => (0, Shape::new(RESPONSE, CAPSULE_LEN, 0)),
        };
        Self {
            request: Shape::new(CAPSULE, CAPSULE_LEN, request),
            answer,
            ready: Shape::new(READY, HEAD_LEN, 0),
            host_data: Shape::new(HOST_DATA, HEAD_LEN, case.bytes),
            payload: Aligned::zeroed(PAYLOAD_START + case.bytes),
            case,
        }
    }

    /// The type of message a server answers to one of type `kind`.
    pub fn answer_to(&self, kind: u8) -> u8 {
        if kind == CAPSULE && self.case.asks() { READY } else { self.answer.head[0] }
    }

    fn shape(&self, kind: u8) -> &Shape {
        match kind {
            CAPSULE => &self.request,
            READY => &self.ready,
            HOST_DATA => &self.host_data,
            _ => &self.answer,
        }
    }
}

/// Messages to send, in order, and how much of the first one is sent.
#[derive(Default)]
pub struct Outbox {
    queue: std::collections::VecDeque<u8>,
    sent: usize,
}

/// Messages gathered for one send: two slices each, and the kernel takes 1024.
const GATHER_MAX: usize = 512;

impl Outbox {
    pub fn push(&mut self, kind: u8) {
        self.queue.push_back(kind);
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The slices of what is next.
    pub fn gather<'a>(&self, shapes: &'a Shapes) -> Vec<IoSlice<'a>> {
        let mut slices = Vec::with_capacity(2 * self.queue.len().min(GATHER_MAX));
        let mut skip = self.sent;
        for &kind in self.queue.iter().take(GATHER_MAX) {
            let shape = shapes.shape(kind);
            for part in
                [&shape.head[..shape.head_len], &shapes.payload[PAYLOAD_START..][..shape.payload]]
            {
                let from = skip.min(part.len());
                skip -= from;
                if from < part.len() {
                    slices.push(IoSlice::new(&part[from..]));
                }
            }
        }
        slices
    }

    /// `bytes` were sent.
    pub fn advance(&mut self, shapes: &Shapes, bytes: usize) {
        self.sent += bytes;
        while let Some(&kind) = self.queue.front() {
            let shape = shapes.shape(kind);
            let len = shape.head_len + shape.payload;
            if self.sent < len {
                return;
            }
            self.sent -= len;
            self.queue.pop_front();
        }
    }

    /// Sends what `send` takes. False when it would block.
    pub fn flush(
        &mut self,
        shapes: &Shapes,
        mut send: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        while !self.is_empty() {
            match send(&self.gather(shapes)) {
                Ok(n) => self.advance(shapes, n),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_survive_any_split(
            kinds in proptest::collection::vec(prop_oneof![Just(CAPSULE), Just(RESPONSE), Just(READY)], 1..20),
            cuts in proptest::collection::vec(1usize..5000, 1..50),
        ) {
            let shapes = Shapes::new(Case { direction: Direction::Write, bytes: 4096 });
            let mut outbox = Outbox::default();
            kinds.iter().for_each(|&k| outbox.push(k));
            let (mut parser, mut seen) = (Parser::new(), Vec::new());
            let mut cuts = cuts.into_iter().cycle();
            while !outbox.is_empty() {
                let cut = cuts.next().unwrap();
                let bytes: Vec<u8> = outbox
                    .gather(&shapes).iter().flat_map(|s| s.to_vec()).take(cut).collect();
                outbox.advance(&shapes, bytes.len());
                parser.feed(&bytes, |kind| seen.push(kind));
            }
            // Response and ready are told by type, and the case's answer is a response.
            prop_assert_eq!(seen, kinds);
        }
    }
}
