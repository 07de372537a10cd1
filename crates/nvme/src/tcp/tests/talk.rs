//! The two machines talking to each other, whatever was negotiated and however the bytes are cut.

use proptest::prelude::*;

use super::super::{Fatal, Step, controller, ddgst, host};
use super::{FLUSH, IN_CAPSULE, MAXH2CDATA, READ, Terms, WRITE, pattern, sqe};
use crate::cqe::Cqe;
use crate::sqe::Sqe;
use crate::status::Status;

/// What a controller machine reported, pieces of data joined and everything owned.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    Initialize(controller::Initialize),
    Capsule(Sqe, Vec<u8>, bool),
    Data(u16, u32, Vec<u8>),
    DataEnd(u16, bool, bool),
    Initialized(host::Initialized),
    Response(Cqe),
    ReadyToTransfer(u16, u16, u32, u32),
    HostDataEnd(u16, bool, bool, bool, bool),
    Terminated(u16, u32, Vec<u8>),
    Fatal(Fatal),
}

impl From<controller::Event<'_>> for Seen {
    fn from(event: controller::Event<'_>) -> Self {
        use controller::Event;
        match event {
            Event::Initialize(request) => Self::Initialize(request),
            Event::Capsule { sqe, data, digest_ok } => {
                Self::Capsule(*sqe, data.to_vec(), digest_ok)
            }
            Event::Data { ttag, offset, bytes } => Self::Data(ttag, offset, bytes.to_vec()),
            Event::DataEnd { ttag, complete, digest_ok } => {
                Self::DataEnd(ttag, complete, digest_ok)
            }
            Event::Terminated(t) => Self::Terminated(t.fes, t.fei, t.header.to_vec()),
        }
    }
}

impl From<host::Event<'_>> for Seen {
    fn from(event: host::Event<'_>) -> Self {
        use host::Event;
        match event {
            Event::Initialized(settled) => Self::Initialized(settled),
            Event::Response { cqe } => Self::Response(*cqe),
            Event::ReadyToTransfer { cid, ttag, offset, length } => {
                Self::ReadyToTransfer(cid, ttag, offset, length)
            }
            Event::Data { cid, offset, bytes } => Self::Data(cid, offset, bytes.to_vec()),
            Event::DataEnd { cid, last, success, complete, digest_ok } => {
                Self::HostDataEnd(cid, last, success, complete, digest_ok)
            }
            Event::Terminated(t) => Self::Terminated(t.fes, t.fei, t.header.to_vec()),
        }
    }
}

/// Both ends, so that one feeder serves both.
pub enum End {
    Controller(controller::Machine),
    Host(host::Machine),
}

impl End {
    fn controller(&mut self) -> &mut controller::Machine {
        match self {
            Self::Controller(machine) => machine,
            Self::Host(_) => panic!("not the controller"),
        }
    }

    fn host(&mut self) -> &mut host::Machine {
        match self {
            Self::Host(machine) => machine,
            Self::Controller(_) => panic!("not the host"),
        }
    }

    fn next(&mut self, input: &[u8]) -> Result<(usize, Option<Seen>, usize), Fatal> {
        Ok(match self {
            Self::Controller(machine) => match machine.next(input)? {
                Step::Event { consumed, event } => (consumed, Some(event.into()), 0),
                Step::NeedMore { consumed, at_least } => (consumed, None, at_least),
            },
            Self::Host(machine) => match machine.next(input)? {
                Step::Event { consumed, event } => (consumed, Some(event.into()), 0),
                Step::NeedMore { consumed, at_least } => (consumed, None, at_least),
            },
        })
    }

    /// Receives up to `most` bytes of `fresh` in place when in the middle of data.
    fn direct(&mut self, fresh: &[u8]) -> Option<(Seen, usize)> {
        let (id, offset, remaining) = match self {
            Self::Controller(machine) => {
                machine.direct().map(|d| (d.ttag, d.offset, d.remaining))?
            }
            Self::Host(machine) => machine.direct().map(|d| (d.cid, d.offset, d.remaining))?,
        };
        let bytes = &fresh[..fresh.len().min(usize::try_from(remaining).unwrap())];
        match self {
            Self::Controller(machine) => machine.advance_direct(bytes),
            Self::Host(machine) => machine.advance_direct(bytes),
        }
        Some((Seen::Data(id, offset, bytes.to_vec()), bytes.len()))
    }

    /// Feeds `stream`, cut as `cuts` says (a cut of 0 bytes is fine), and joins pieces of data.
    pub fn feed(&mut self, stream: &[u8], cuts: &[usize], direct: bool) -> Vec<Seen> {
        let mut seen = Vec::new();
        let mut buffer: Vec<u8> = Vec::new();
        let mut rest = stream;
        let mut cuts = cuts.iter().copied();
        loop {
            let len = cuts.next().unwrap_or(usize::MAX).min(rest.len());
            let (mut fresh, later) = rest.split_at(len);
            rest = later;
            if direct
                && !fresh.is_empty()
                && buffer.is_empty()
                && let Some((data, len)) = self.direct(fresh)
            {
                note(&mut seen, data);
                fresh = &fresh[len..];
            }
            buffer.extend_from_slice(fresh);
            loop {
                match self.next(&buffer) {
                    Ok((consumed, event, at_least)) => {
                        buffer.drain(..consumed);
                        if let Some(event) = event {
                            note(&mut seen, event);
                        } else {
                            assert!(at_least > buffer.len(), "needs less than there is");
                            break;
                        }
                    }
                    Err(fatal) => {
                        seen.push(Seen::Fatal(fatal));
                        return seen;
                    }
                }
            }
            if rest.is_empty() {
                return seen;
            }
        }
    }
}

fn note(seen: &mut Vec<Seen>, event: Seen) {
    if let Seen::Data(id, offset, bytes) = &event {
        assert!(!bytes.is_empty(), "an empty piece of data");
        if let Some(Seen::Data(before, start, joined)) = seen.last_mut()
            && before == id
            && *start + u32::try_from(joined.len()).unwrap() == *offset
        {
            joined.extend_from_slice(bytes);
            return;
        }
    }
    seen.push(event);
}

pub fn terms() -> impl Strategy<Value = Terms> {
    (any::<bool>(), any::<bool>(), 0..=31_u8, 0..=31_u8)
        .prop_map(|(hdgst, ddgst, hpda, cpda)| Terms { hdgst, ddgst, hpda, cpda })
}

/// Lengths to cut a stream into: short ones, so that every header is cut too.
pub fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        prop::collection::vec(0..40_usize, 0..400),
        prop::collection::vec(0..3000_usize, 0..40),
    ]
}

/// Appends a PDU: its head, its data, the digest of the data when on.
fn put(stream: &mut Vec<u8>, head: &[u8], data: &[u8], digest: bool) {
    stream.extend_from_slice(head);
    stream.extend_from_slice(data);
    if digest && !data.is_empty() {
        stream.extend_from_slice(&ddgst(data));
    }
}

/// One command and how it is carried out.
#[derive(Clone, Debug)]
enum Act {
    Flush,
    /// In-capsule data of this length.
    WriteInCapsule(u32),
    /// Data by R2T, in H2CData PDUs of this length at most.
    WriteByR2t {
        length: u32,
        pdu: u32,
    },
    /// Data in C2HData PDUs of this length at most; completed by SUCCESS or by a response.
    Read {
        length: u32,
        pdu: u32,
        success: bool,
    },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        Just(Act::Flush),
        (1..=IN_CAPSULE).prop_map(Act::WriteInCapsule),
        (1..20_000_u32, 1..=MAXH2CDATA)
            .prop_map(|(length, pdu)| Act::WriteByR2t { length, pdu: pdu.max(length / 50) }),
        (1..20_000_u32, 1..=10_000_u32, any::<bool>()).prop_map(|(length, pdu, success)| {
            Act::Read { length, pdu: pdu.max(length / 50), success }
        }),
    ];
    prop::collection::vec(act, 1..6)
}

/// `length` in pieces of at most `pdu`: offset, length, whether it is the last.
fn pieces(length: u32, pdu: u32) -> impl Iterator<Item = (u32, u32, bool)> {
    (0..length.div_ceil(pdu)).map(move |i| {
        let offset = i * pdu;
        let len = pdu.min(length - offset);
        (offset, len, offset + len == length)
    })
}

/// The two ends and how their bytes are cut on the way.
struct Talk {
    host: End,
    controller: End,
    digest: bool,
    cuts: Vec<usize>,
    direct: bool,
}

impl Talk {
    fn begin(terms: Terms, cuts: Vec<usize>, direct: bool) -> Self {
        let mut talk = Self {
            host: End::Host(terms.host()),
            controller: End::Controller(terms.controller()),
            digest: terms.ddgst,
            cuts,
            direct,
        };
        let request = talk.host.host().ic_req();
        let Terms { hdgst, ddgst, hpda, cpda } = terms;
        assert_eq!(
            talk.tell_controller(&request),
            [Seen::Initialize(controller::Initialize { hpda, maxr2t: 1, hdgst, ddgst })]
        );
        let response = talk.controller.controller().ic_resp();
        assert_eq!(
            talk.tell_host(&response),
            [Seen::Initialized(host::Initialized { cpda, maxh2cdata: MAXH2CDATA, hdgst, ddgst })]
        );
        assert_eq!(talk.controller.controller().data_digest(), ddgst);
        assert_eq!(talk.host.host().data_digest(), ddgst);
        talk
    }

    fn tell_controller(&mut self, stream: &[u8]) -> Vec<Seen> {
        self.controller.feed(stream, &self.cuts, self.direct)
    }

    fn tell_host(&mut self, stream: &[u8]) -> Vec<Seen> {
        self.host.feed(stream, &self.cuts, self.direct)
    }

    fn command(&mut self, sqe: &Sqe, data: &[u8]) {
        let len = u32::try_from(data.len()).unwrap();
        let mut stream = Vec::new();
        put(&mut stream, &self.host.host().capsule_cmd(sqe, len), data, self.digest);
        assert_eq!(self.tell_controller(&stream), [Seen::Capsule(*sqe, data.to_vec(), true)]);
    }

    fn response(&mut self, cid: u16) {
        let cqe = Cqe::new(cid, Status::SUCCESS);
        let head = self.controller.controller().capsule_resp(&cqe);
        assert_eq!(self.tell_host(&head), [Seen::Response(cqe)]);
    }

    fn write_by_r2t(&mut self, cid: u16, length: u32, pdu: u32) {
        self.command(&sqe(WRITE, cid, length), &[]);
        let ttag = cid % 4;
        let r2t = self.controller.controller().begin_transfer(ttag, cid, 0, length);
        assert_eq!(self.tell_host(&r2t), [Seen::ReadyToTransfer(cid, ttag, 0, length)]);
        let (mut stream, mut expected) = (Vec::new(), Vec::new());
        for (offset, len, last) in pieces(length, pdu) {
            let data = pattern(offset, len);
            let head = self.host.host().h2c_data(cid, ttag, offset, len, last);
            put(&mut stream, &head, &data, self.digest);
            expected.push(Seen::Data(ttag, offset, data));
            expected.push(Seen::DataEnd(ttag, last, true));
        }
        assert_eq!(self.tell_controller(&stream), expected);
        self.response(cid);
    }

    fn read(&mut self, cid: u16, length: u32, pdu: u32, success: bool) {
        self.command(&sqe(READ, cid, length), &[]);
        let (mut stream, mut expected) = (Vec::new(), Vec::new());
        for (offset, len, last) in pieces(length, pdu) {
            let data = pattern(offset, len);
            let machine = self.controller.controller();
            let head = machine.c2h_data(cid, offset, len, last, last && success);
            put(&mut stream, &head, &data, self.digest);
            expected.push(Seen::Data(cid, offset, data));
            expected.push(Seen::HostDataEnd(cid, last, last && success, last, true));
        }
        assert_eq!(self.tell_host(&stream), expected);
        if !success {
            self.response(cid);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Decoding gives back what was encoded, for every digest and alignment, however cut.
    #[test]
    fn both_ends_understand_each_other(
        terms in terms(), cuts in cuts(), direct: bool, acts in acts(),
    ) {
        let mut talk = Talk::begin(terms, cuts, direct);
        for (act, cid) in acts.into_iter().zip((0..8).cycle()) {
            match act {
                Act::Flush => {
                    talk.command(&sqe(FLUSH, cid, 0), &[]);
                    talk.response(cid);
                }
                Act::WriteInCapsule(length) => {
                    talk.command(&sqe(WRITE, cid, length), &pattern(0, length));
                    talk.response(cid);
                }
                Act::WriteByR2t { length, pdu } => talk.write_by_r2t(cid, length, pdu),
                Act::Read { length, pdu, success } => talk.read(cid, length, pdu, success),
            }
        }
    }
}
