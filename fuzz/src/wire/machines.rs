//! The protocol machines, in conversation: what a peer does is answered as an end would answer it, so
//! that transfers and data are reached. The same bytes go in whole and cut, and must come to the same.

use nvme::opcode::io;
use nvme::pdu::{IcReq, IcResp};
use nvme::sqe::{Sgl, Sqe};
use nvme::tcp::{Fatal, Step, controller, ddgst, host};
use zerocopy::{FromBytes, IntoBytes};

const TAGS: u16 = 4;
const COMMANDS: u16 = 8;
/// Data of one command: enough for several PDUs of a fuzzer's size.
const DATA_BYTES: u32 = 256;

/// The first bytes of an input: how the connection is set up and how the rest is cut.
struct Plan<'a> {
    dgst: u8,
    send_pda: u8,
    recv_pda: u8,
    /// Whether the connection is initialised when the stream starts.
    initialized: bool,
    /// Lengths to cut the stream into, over and over.
    cuts: [usize; 2],
    stream: &'a [u8],
}

impl<'a> Plan<'a> {
    fn read(input: &'a [u8]) -> Option<Self> {
        let (&[flags, send, recv, a, b], stream) = input.split_first_chunk::<5>()?;
        Some(Self {
            dgst: flags & 3,
            send_pda: send % 32,
            recv_pda: recv % 32,
            initialized: flags & 4 == 0,
            cuts: [usize::from(a), usize::from(b) + 1],
            stream,
        })
    }

    /// The stream with a right digest behind every header, if there are any: no fuzzer guesses one.
    fn stream(&self) -> Vec<u8> {
        let mut stream = Vec::new();
        let mut rest = self.stream;
        if self.dgst & 1 == 0 || !self.initialized {
            return rest.to_vec();
        }
        while let [_, _, hlen, _, a, b, c, d, ..] = *rest {
            let plen = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
            let (header, behind) = rest.split_at(usize::from(hlen).max(8).min(rest.len()));
            let body = plen.saturating_sub(header.len() + 4).min(behind.len());
            stream.extend_from_slice(header);
            stream.extend_from_slice(&ddgst(header));
            stream.extend_from_slice(&behind[..body]);
            rest = &behind[body..];
        }
        stream.extend_from_slice(rest);
        stream
    }
}

/// What a machine reported, pieces of data joined.
#[derive(Debug, PartialEq)]
enum Seen {
    Data { id: u16, start: u32, bytes: Vec<u8> },
    Other(String),
    Fatal(Fatal),
}

/// One end in conversation.
trait End {
    /// One step on `input`: consumed, whether an event happened, what to note of it.
    fn step(&mut self, input: &[u8]) -> Result<(usize, bool, Option<Seen>), Fatal>;
    /// Takes bytes in place, if in the middle of data: how many, and what to note of them.
    fn direct(&mut self, bytes: &[u8]) -> Option<(usize, Seen)>;
}

fn note(seen: &mut Vec<Seen>, event: Seen) {
    if let (
        Seen::Data { id, start, bytes },
        Some(Seen::Data { id: before, start: first, bytes: joined }),
    ) = (&event, seen.last_mut())
        && before == id
        && u64::from(*first) + joined.len() as u64 == u64::from(*start)
    {
        joined.extend_from_slice(bytes);
        return;
    }
    seen.push(event);
}

/// Feeds `stream` to `end` in pieces of the lengths `cuts`, in place where it can be.
fn feed(end: &mut impl End, stream: &[u8], cuts: impl Iterator<Item = usize>) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut held = Vec::new();
    let mut rest = stream;
    for cut in cuts {
        let (mut fresh, later) = rest.split_at(cut.min(rest.len()));
        rest = later;
        if held.is_empty()
            && !fresh.is_empty()
            && let Some((len, event)) = end.direct(fresh)
        {
            note(&mut seen, event);
            fresh = &fresh[len..];
        }
        held.extend_from_slice(fresh);
        loop {
            match end.step(&held) {
                Ok((consumed, more, event)) => {
                    held.drain(..consumed);
                    event.into_iter().for_each(|event| note(&mut seen, event));
                    if !more {
                        break;
                    }
                }
                Err(fatal) => {
                    let request = controller::term_req(&fatal, &held);
                    assert!(request.len() <= 152 && request.is_empty() != fatal.answer);
                    seen.push(Seen::Fatal(fatal));
                    return seen;
                }
            }
        }
        if rest.is_empty() {
            break;
        }
    }
    seen
}

/// Whole and cut, the same must be seen.
fn compare<E: End>(plan: &Plan<'_>, make: impl Fn() -> E) {
    let stream = plan.stream();
    let whole = feed(&mut make(), &stream, std::iter::once(usize::MAX));
    let cut = feed(&mut make(), &stream, plan.cuts.into_iter().cycle());
    assert_eq!(whole, cut);
}

struct Controller {
    machine: controller::Machine,
    /// Of each tag in use: where its data goes on, and where it ends.
    open: [Option<(u32, u32)>; TAGS as usize],
}

impl Controller {
    fn new(plan: &Plan<'_>) -> Self {
        let mut machine = controller::Machine::new(controller::Config {
            max_in_capsule: 512,
            maxh2cdata: 4096,
            cpda: plan.recv_pda,
            allow_hdgst: true,
            allow_ddgst: true,
            transfers: TAGS,
        });
        if plan.initialized {
            let request = IcReq::new(plan.send_pda, plan.dgst, 0);
            machine.next(request.as_bytes()).expect("a valid ICReq");
        }
        Self { machine, open: [None; TAGS as usize] }
    }

    fn command(&mut self, sqe: &Sqe, data: &[u8]) {
        let tag = sqe.cid.get() % TAGS;
        let open = &mut self.open[usize::from(tag)];
        let length = sqe.dptr.length.get() % DATA_BYTES;
        let offset = sqe.cdw10.get() % DATA_BYTES;
        if sqe.opcode == io::WRITE && data.is_empty() && open.is_none() && length > 0 {
            *open = Some((offset, offset + length));
            self.machine.begin_transfer(tag, sqe.cid.get(), offset, length);
        } else if sqe.opcode == io::FLUSH {
            // As good a reason as any to lose interest.
            assert_eq!(self.machine.cancel_transfer(tag), open.is_some());
        }
    }

    fn data(&mut self, ttag: u16, offset: u32, len: usize) {
        let (next, end) = self.open[usize::from(ttag)].as_mut().expect("a tag in use");
        assert_eq!(*next, offset, "data out of order");
        *next += u32::try_from(len).expect("less than was asked for");
        assert!(next <= end && len > 0, "data beyond what was asked for");
    }
}

impl End for Controller {
    fn step(&mut self, input: &[u8]) -> Result<(usize, bool, Option<Seen>), Fatal> {
        let (consumed, event) = match self.machine.next(input)? {
            Step::Event { consumed, event } => (consumed, event),
            Step::NeedMore { consumed, at_least } => {
                assert!(input.len() - consumed < at_least);
                return Ok((consumed, false, None));
            }
        };
        let seen = match event {
            controller::Event::Data { ttag, offset, bytes } => {
                self.data(ttag, offset, bytes.len());
                Seen::Data { id: ttag, start: offset, bytes: bytes.to_vec() }
            }
            controller::Event::Capsule { sqe, data, digest_ok } => {
                let seen = format!("{sqe:?} {data:?} {digest_ok}");
                let (sqe, data) = (*sqe, data.to_vec());
                self.command(&sqe, &data);
                Seen::Other(seen)
            }
            controller::Event::DataEnd { ttag, complete, .. } => {
                let open = &mut self.open[usize::from(ttag)];
                assert!(open.is_some(), "the end of nothing");
                if complete {
                    *open = None;
                }
                Seen::Other(format!("{event:?}"))
            }
            controller::Event::Initialize(_) => {
                assert_eq!(self.machine.ic_resp().len(), 128);
                Seen::Other(format!("{event:?}"))
            }
            controller::Event::Terminated(_) => Seen::Other(format!("{event:?}")),
        };
        Ok((consumed, true, Some(seen)))
    }

    fn direct(&mut self, bytes: &[u8]) -> Option<(usize, Seen)> {
        let controller::Direct { ttag, offset, remaining } = self.machine.direct()?;
        let bytes = &bytes[..bytes.len().min(usize::try_from(remaining).ok()?)];
        self.data(ttag, offset, bytes.len());
        self.machine.advance_direct(bytes);
        Some((bytes.len(), Seen::Data { id: ttag, start: offset, bytes: bytes.to_vec() }))
    }
}

/// What a host sends, to the controller's machine.
pub fn controller_machine(input: &[u8]) {
    if let Some(plan) = Plan::read(input) {
        compare(&plan, || Controller::new(&plan));
    }
}

struct Host {
    machine: host::Machine,
    /// Of each command that reads: where its data goes on.
    next: [u32; COMMANDS as usize],
}

impl Host {
    fn new(plan: &Plan<'_>) -> Self {
        let mut machine = host::Machine::new(host::Config {
            hpda: plan.recv_pda,
            maxr2t: 2,
            hdgst: plan.dgst & 1 != 0,
            ddgst: plan.dgst & 2 != 0,
            commands: COMMANDS,
        });
        if plan.initialized {
            let response = IcResp::new(plan.send_pda, plan.dgst, 4096);
            machine.next(response.as_bytes()).expect("a valid ICResp");
        }
        let mut host = Self { machine, next: [0; COMMANDS as usize] };
        (0..COMMANDS).for_each(|cid| host.submit(cid));
        host
    }

    /// Even identifiers read, odd ones write.
    fn submit(&mut self, cid: u16) {
        let mut sqe = Sqe::new(if cid.is_multiple_of(2) { io::READ } else { io::WRITE }, cid, 1);
        sqe.dptr = Sgl::transport(DATA_BYTES);
        self.next[usize::from(cid)] = 0;
        let head = self.machine.capsule_cmd(&sqe, 0);
        assert!(nvme::pdu::CapsuleCmd::ref_from_prefix(&head).is_ok_and(|(pdu, _)| pdu.sqe == sqe));
    }

    fn data(&mut self, cid: u16, offset: u32, len: usize) {
        let next = &mut self.next[usize::from(cid)];
        assert!(cid.is_multiple_of(2) && *next == offset && len > 0, "data nobody asked for");
        *next += u32::try_from(len).expect("less than was asked for");
        assert!(*next <= DATA_BYTES, "data beyond what was asked for");
    }
}

impl End for Host {
    fn step(&mut self, input: &[u8]) -> Result<(usize, bool, Option<Seen>), Fatal> {
        let (consumed, event) = match self.machine.next(input)? {
            Step::Event { consumed, event } => (consumed, event),
            Step::NeedMore { consumed, at_least } => {
                assert!(input.len() - consumed < at_least);
                return Ok((consumed, false, None));
            }
        };
        let seen = Seen::Other(format!("{event:?}"));
        let seen = match event {
            host::Event::Data { cid, offset, bytes } => {
                self.data(cid, offset, bytes.len());
                Seen::Data { id: cid, start: offset, bytes: bytes.to_vec() }
            }
            host::Event::Response { cqe } => {
                self.submit(cqe.cid.get());
                seen
            }
            host::Event::DataEnd { cid, success, complete, .. } => {
                assert_eq!(complete, self.next[usize::from(cid)] == DATA_BYTES);
                if success {
                    self.submit(cid);
                }
                seen
            }
            host::Event::ReadyToTransfer { cid, ttag, offset, length } => {
                assert!(!cid.is_multiple_of(2) && length > 0 && offset + length <= DATA_BYTES);
                // Answered at once, or left open for the limit to be reached.
                if ttag.is_multiple_of(2) {
                    self.machine.h2c_data(cid, ttag, offset, length, true);
                }
                seen
            }
            host::Event::Initialized(_) | host::Event::Terminated(_) => seen,
        };
        Ok((consumed, true, Some(seen)))
    }

    fn direct(&mut self, bytes: &[u8]) -> Option<(usize, Seen)> {
        let host::Direct { cid, offset, remaining } = self.machine.direct()?;
        let bytes = &bytes[..bytes.len().min(usize::try_from(remaining).ok()?)];
        self.data(cid, offset, bytes.len());
        self.machine.advance_direct(bytes);
        Some((bytes.len(), Seen::Data { id: cid, start: offset, bytes: bytes.to_vec() }))
    }
}

/// What a controller sends, to the host's machine.
pub fn host_machine(input: &[u8]) {
    if let Some(plan) = Plan::read(input) {
        compare(&plan, || Host::new(&plan));
    }
}
