//! A connection: PDUs in, answers out, I/O commands.

use std::rc::Rc;

use fabric::race;
use nvme::cqe::Cqe;
use nvme::opcode::{admin, io};
use nvme::sqe::{DataPointer, Sqe};
use nvme::status::Status;
use nvme::tcp::controller::{Config, Event, Machine, Step, term_req};
use nvme::tcp::{Fatal, ddgst};
use reactor::net::TcpStream;
use stdx::num::{u16_of, u32_of, usize32};

use super::{BLOCK, Fault, Shared, hostile};

/// One connection.
pub struct Link {
    stream: TcpStream,
    machine: Machine,
    pub(super) shared: Rc<Shared>,
    pub(super) admin: bool,
    /// Writes that wait for their data: entry and what has come.
    transfers: Vec<Option<(Sqe, Vec<u8>)>>,
    out: Vec<u8>,
    pub(super) hang_up: bool,
    /// Sends nothing any more.
    pub(super) muted: bool,
}

/// What a command came to.
pub enum Outcome {
    Done(Cqe),
    Data(Vec<u8>),
    Nothing,
}

impl Link {
    pub fn new(stream: TcpStream, shared: Rc<Shared>) -> Self {
        let script = &shared.script;
        let config = Config {
            max_in_capsule: script.in_capsule.max(8192),
            maxh2cdata: script.maxh2cdata,
            cpda: script.cpda,
            allow_hdgst: script.digests,
            allow_ddgst: script.digests,
            transfers: 64,
        };
        let transfers = vec![None; 64];
        let machine = Machine::new(config);
        Self {
            stream,
            machine,
            shared,
            admin: true,
            transfers,
            out: Vec::new(),
            hang_up: false,
            muted: false,
        }
    }

    pub async fn serve(mut self) {
        let mut input: Vec<u8> = Vec::new();
        let mut buffer = vec![0; 65536];
        while !self.hang_up {
            let shared = Rc::clone(&self.shared);
            let due = || shared.has_news(self.admin);
            let poked = async {
                shared.poked.until(due).await;
                None
            };
            let received = async { Some(self.stream.recv(&mut buffer).await) };
            match race(received, poked).await {
                Some(Ok(bytes @ 1..)) => input.extend_from_slice(&buffer[..bytes]),
                None => self.tell_news(),
                _ => return,
            }
            if let Err(fatal) = self.digest(&mut input) {
                self.out.extend_from_slice(&term_req(&fatal, &input));
                self.hang_up = true;
            }
            let out = std::mem::take(&mut self.out);
            self.muted |= self.shared.fault.get() == Fault::Mute;
            if self.muted {
                continue;
            }
            if self.stream.send_all(&out).await.is_err() {
                return;
            }
        }
    }

    fn tell_news(&mut self) {
        if !self.admin {
            for cid in self.shared.aborted.take() {
                self.respond(&Cqe::new(cid, Status::ABORT_REQUESTED));
            }
            return;
        }
        let Some(cid) = self.shared.requests.borrow_mut().pop() else { return };
        let Some(event) = self.shared.events.borrow_mut().pop_front() else { return };
        let mut cqe = Cqe::new(cid, Status::SUCCESS);
        cqe.dw0 = event.to_dw0().into();
        self.respond(&cqe);
    }

    /// Handles all of `input` that can be.
    fn digest(&mut self, input: &mut Vec<u8>) -> Result<(), Fatal> {
        let mut at = 0;
        loop {
            let (consumed, commands) = match self.machine.next(&input[at..])? {
                Step::NeedMore { consumed, .. } => {
                    input.drain(..at + consumed);
                    return Ok(());
                }
                Step::Event { consumed, event } => (consumed, owned(event)),
            };
            at += consumed;
            self.handle(commands);
        }
    }

    fn handle(&mut self, event: Owned) {
        match event {
            Owned::Initialize => {
                if self.shared.fault.get() != Fault::Silent {
                    self.out.extend_from_slice(&self.machine.ic_resp());
                }
            }
            Owned::Capsule(sqe, data) => self.capsule(&sqe, data),
            Owned::Data(ttag, offset, bytes) => {
                if let Some((_, buffer)) = &mut self.transfers[usize::from(ttag)] {
                    let at = usize32(offset);
                    buffer[at..at + bytes.len()].copy_from_slice(&bytes);
                }
            }
            Owned::DataEnd(ttag) => {
                if let Some((sqe, data)) = self.transfers[usize::from(ttag)].take() {
                    self.write(&sqe, &data);
                }
            }
            Owned::PartEnd | Owned::Terminated => {}
        }
    }

    fn capsule(&mut self, sqe: &Sqe, data: Vec<u8>) {
        let outcome = match sqe.opcode {
            admin::FABRICS => self.fabrics(sqe, &data),
            _ if self.admin => self.admin_command(sqe, &data),
            _ if self.shared.access.get().refusal().is_some() => {
                self.shared.refused.set(self.shared.refused.get() + 1);
                done(sqe, self.shared.access.get().refusal().unwrap())
            }
            io::READ | io::WRITE if self.shared.fault.get() == Fault::Hostile => {
                let noise = hostile::answer(&mut self.shared.chance.borrow_mut(), sqe);
                self.out.extend_from_slice(&noise);
                Outcome::Nothing
            }
            io::READ => self.read(sqe),
            io::WRITE => match sqe.dptr.data() {
                Some(DataPointer::Transport { length }) => {
                    let free = self.transfers.iter().position(Option::is_none).unwrap();
                    let head = self.machine.begin_transfer(u16_of(free), sqe.cid.get(), 0, length);
                    self.out.extend_from_slice(&head);
                    self.transfers[free] = Some((*sqe, vec![0; usize32(length)]));
                    self.shared.r2ts.set(self.shared.r2ts.get() + 1);
                    Outcome::Nothing
                }
                _ => {
                    self.write(sqe, &data);
                    Outcome::Nothing
                }
            },
            io::COPY => {
                self.shared.copies.set(self.shared.copies.get() + 1);
                if self.shared.fault.get() == Fault::HoldWrites {
                    Outcome::Nothing
                } else {
                    done(sqe, Status::SUCCESS)
                }
            }
            // Those with data in the capsule; who sends one is not registered.
            io::RESERVATION_REGISTER if self.shared.fault.get() == Fault::HoldWrites => {
                self.shared.copies.set(self.shared.copies.get() + 1);
                Outcome::Nothing
            }
            io::RESERVATION_REGISTER => done(sqe, Status::RESERVATION_CONFLICT),
            io::FLUSH => done(sqe, Status::SUCCESS),
            _ => done(sqe, Status::INVALID_OPCODE),
        };
        match outcome {
            Outcome::Done(cqe) => self.respond(&cqe),
            Outcome::Data(data) => self.send_data(sqe, &data),
            Outcome::Nothing => {}
        }
    }

    fn respond(&mut self, cqe: &Cqe) {
        self.out.extend_from_slice(&self.machine.capsule_resp(cqe));
    }

    /// Sends a command's data in PDUs of the script's size, and completes it.
    fn send_data(&mut self, sqe: &Sqe, data: &[u8]) {
        let (script, fault) = (self.shared.script.clone(), self.shared.fault.get());
        let read = !self.admin;
        let success = script.success_flag && read;
        let cid = sqe.cid.get();
        let end = if fault == Fault::HalfRead && read { data.len() / 2 } else { data.len() };
        let mut at = 0;
        while at < end {
            let piece = &data[at..end.min(at + script.c2h_max)];
            let last = at + piece.len() == end;
            let length = u32_of(piece.len());
            let head = self.machine.c2h_data(cid, u32_of(at), length, last, last && success);
            self.out.extend_from_slice(&head);
            self.out.extend_from_slice(piece);
            if self.machine.data_digest() {
                let mut digest = ddgst(piece);
                if fault == Fault::Digest && read {
                    digest[0] ^= 1;
                }
                self.out.extend_from_slice(&digest);
            }
            at += piece.len();
        }
        if !success {
            self.respond(&Cqe::new(cid, Status::SUCCESS));
        }
    }

    pub(super) fn span(sqe: &Sqe) -> std::ops::Range<usize> {
        let first = usize32(sqe.cdw10.get()) * BLOCK;
        first..first + (usize32(sqe.cdw12.get() & 0xffff) + 1) * BLOCK
    }

    fn read(&mut self, sqe: &Sqe) -> Outcome {
        self.shared.reads.set(self.shared.reads.get() + 1);
        match self.shared.fault.get() {
            Fault::FailReads(status) if self.shared.acre.get() => return done(sqe, status),
            Fault::FailReads(status) => return done(sqe, status.with_retry_delay(0)),
            Fault::StrangeCid => {
                return Outcome::Done(Cqe::new(sqe.cid.get() + 1, Status::SUCCESS));
            }
            Fault::Close => {
                self.hang_up = true;
                return Outcome::Nothing;
            }
            Fault::Stall | Fault::StallAborts => return Outcome::Nothing,
            Fault::Terminate => {
                let fes = nvme::pdu::Fes::InvalidPduHeaderField;
                let fatal = Fatal { fes, fei: 8, header: 0, answer: true };
                self.out.extend_from_slice(&term_req(&fatal, &[]));
                self.hang_up = true;
                return Outcome::Nothing;
            }
            _ => {}
        }
        match self.shared.memory.borrow().get(Self::span(sqe)) {
            Some(bytes) => Outcome::Data(bytes.to_vec()),
            None => done(sqe, Status::LBA_OUT_OF_RANGE.with_dnr()),
        }
    }

    fn write(&mut self, sqe: &Sqe, data: &[u8]) {
        if self.shared.fault.get() == Fault::HoldWrites {
            self.shared.held.borrow_mut().push((*sqe, data.to_vec()));
            return;
        }
        let status = match self.shared.memory.borrow_mut().get_mut(Self::span(sqe)) {
            Some(bytes) => {
                bytes.copy_from_slice(data);
                Status::SUCCESS
            }
            None => Status::LBA_OUT_OF_RANGE.with_dnr(),
        };
        self.respond(&Cqe::new(sqe.cid.get(), status));
    }
}

pub fn done(sqe: &Sqe, status: Status) -> Outcome {
    Outcome::Done(Cqe::new(sqe.cid.get(), status))
}

/// An event that borrows nothing.
enum Owned {
    Initialize,
    Capsule(Sqe, Vec<u8>),
    Data(u16, u32, Vec<u8>),
    DataEnd(u16),
    PartEnd,
    Terminated,
}

fn owned(event: Event<'_>) -> Owned {
    match event {
        Event::Initialize(_) => Owned::Initialize,
        Event::Capsule { sqe, data, digest_ok } => {
            assert!(digest_ok, "the host's digest is wrong");
            Owned::Capsule(*sqe, data.to_vec())
        }
        Event::Data { ttag, offset, bytes } => Owned::Data(ttag, offset, bytes.to_vec()),
        Event::DataEnd { ttag, complete: true, digest_ok } => {
            assert!(digest_ok, "the host's digest is wrong");
            Owned::DataEnd(ttag)
        }
        Event::DataEnd { .. } => Owned::PartEnd,
        Event::Terminated(_) => Owned::Terminated,
    }
}
