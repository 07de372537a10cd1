//! The host's end: fed what a controller sends.

use stdx::num::usize32;
use zerocopy::FromBytes;

use super::fatal::{self, Fatal, TermReqBytes, Terminated, field};
use super::limits::{COMMANDS_MAX, MAXH2CDATA_MIN, PDA_MAX};
use super::link::{DataHead, Head, Link, Span};
use super::payload::Payload;
use crate::cqe::Cqe;
use crate::pdu::{
    C2hData, CapsuleCmd, CapsuleResp, CommonHeader, DGST_DATA, DGST_HEADER, DIGEST_BYTES,
    FLAG_LAST, FLAG_SUCCESS, Fes, H2cData, IcReq, IcResp, PFV_1_0, PduType, R2t,
};
use crate::sqe::Sqe;

/// What one call of [`Machine::next`] came to.
pub type Step<'a> = super::Step<Event<'a>>;

/// What a host asks for on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// HPDA: alignment of the data a controller sends, 0's based dwords, at most 31.
    pub hpda: u8,
    /// Most outstanding R2Ts of one command, as a count: at least 1.
    pub maxr2t: u32,
    /// Ask for header digests.
    pub hdgst: bool,
    /// Ask for data digests.
    pub ddgst: bool,
    /// Command identifiers, 0 to `commands - 1`; at most [`COMMANDS_MAX`].
    pub commands: u16,
}

/// What a controller's ICResp settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initialized {
    /// CPDA: alignment of the data we send, 0's based dwords.
    pub cpda: u8,
    /// Most data of one H2CData PDU, bytes.
    pub maxh2cdata: u32,
    /// Header digests are on from now.
    pub hdgst: bool,
    /// Data digests are on from now.
    pub ddgst: bool,
}

/// Something a controller did.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The connection is initialised; commands may go.
    Initialized(Initialized),
    /// A command's completion; its identifier is free again.
    Response { cqe: &'a Cqe },
    /// R2T: send `length` bytes from `offset` of the command's buffer by [`Machine::h2c_data`].
    ReadyToTransfer { cid: u16, ttag: u16, offset: u32, length: u32 },
    /// The next piece of a command's data; it goes to `offset` of its buffer.
    Data { cid: u16, offset: u32, bytes: &'a [u8] },
    /// A C2HData PDU ended. `last`: no more for this command. `success`: the command is complete
    /// without a response, its identifier free again. `complete`: all the data it asked for has come;
    /// a `success` without it is a short answer. `digest_ok`: no data digest of this command was wrong
    /// so far; otherwise the command failed, whatever its status.
    DataEnd { cid: u16, last: bool, success: bool, complete: bool, digest_ok: bool },
    /// The controller gives the connection up; close it, answer nothing.
    Terminated(Terminated<'a>),
}

/// Where the rest of the data PDU that is coming in belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct {
    /// Command identifier.
    pub cid: u16,
    /// Where the next byte goes in the command's buffer.
    pub offset: u32,
    /// Bytes of data until the PDU's data ends; at least 1.
    pub remaining: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No ICResp yet.
    Initialize,
    /// Between PDUs.
    Header,
    /// Within the data of a C2HData PDU.
    Payload,
    /// Behind the data of a C2HData PDU.
    PayloadEnd,
    /// After a fatal error or a terminate request: everything is swallowed.
    Closed,
}

/// A command in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Command {
    active: bool,
    /// A C2HData PDU with LAST_PDU came.
    last: bool,
    digest_failed: bool,
    /// Data to come, bytes, and how much has come.
    data_in: u32,
    received: u32,
    /// Data to send outside of the capsule, bytes, and how much of it R2Ts have asked for.
    data_out: u32,
    requested: u32,
    /// R2Ts not answered in full.
    r2ts: u32,
}

/// The machine of one connection.
#[derive(Debug)]
pub struct Machine {
    stage: Stage,
    link: Link,
    payload: Payload,
    /// Flags of the C2HData PDU that is coming in.
    payload_flags: u8,
    commands: Box<[Command]>,
    config: Config,
}

impl Machine {
    /// # Panics
    /// When `config` breaks one of the bounds its fields state.
    #[must_use]
    pub fn new(config: Config) -> Self {
        assert!(config.hpda <= PDA_MAX, "HPDA is at most 31");
        assert!(config.maxr2t > 0, "MAXR2T is at least 1");
        assert!(config.commands <= COMMANDS_MAX, "too many command identifiers");
        Self {
            stage: Stage::Initialize,
            link: Link::new(false, false, 0, config.hpda),
            payload: Payload::default(),
            payload_flags: 0,
            commands: vec![Command::default(); usize::from(config.commands)].into(),
            config,
        }
    }

    /// Takes the next step on `input`, the bytes received and not yet consumed; see [`super`].
    ///
    /// # Errors
    /// The fatal error of section 3.5 that the controller made; `input` then starts with the PDU in
    /// error.
    #[inline]
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Result<Step<'a>, Fatal> {
        let step = match self.stage {
            Stage::Closed => Ok(Step::NeedMore { consumed: input.len(), at_least: 1 }),
            Stage::Payload => Ok(self.payload(input, 0)),
            Stage::PayloadEnd => Ok(self.payload_end(input, 0)),
            Stage::Initialize | Stage::Header => match CommonHeader::ref_from_prefix(input) {
                Ok((ch, _)) => self.header(*ch, input),
                Err(_) => Ok(Step::NeedMore { consumed: 0, at_least: size_of::<CommonHeader>() }),
            },
        };
        if step.is_err() {
            self.stage = Stage::Closed;
        }
        step
    }

    #[inline]
    fn header<'a>(&mut self, ch: CommonHeader, input: &'a [u8]) -> Result<Step<'a>, Fatal> {
        let initialized = self.stage == Stage::Header;
        match PduType::from_raw(ch.pdu_type) {
            Some(PduType::CapsuleResp) if initialized => self.response(&ch, input),
            Some(PduType::C2hData) if initialized => self.c2h_data(&ch, input),
            Some(PduType::R2t) if initialized => self.ready_to_transfer(&ch, input),
            Some(PduType::IcResp) if !initialized => self.initialize(&ch, input),
            Some(PduType::C2hTermReq) => self.terminated(&ch, input),
            // Before ICResp, or ICResp a second time (section 3.4).
            Some(PduType::IcResp | PduType::CapsuleResp | PduType::C2hData | PduType::R2t) => {
                Err(Fatal::early(Fes::PduSequenceError, 0))
            }
            // Types that do not exist, and those that only a host sends.
            _ => Err(Fatal::common_field(field::PDU_TYPE)),
        }
    }

    fn terminated<'a>(&mut self, ch: &CommonHeader, input: &'a [u8]) -> Result<Step<'a>, Fatal> {
        match fatal::parse(PduType::C2hTermReq, ch, input)? {
            Some((consumed, terminated)) => {
                self.stage = Stage::Closed;
                Ok(Step::Event { consumed, event: Event::Terminated(terminated) })
            }
            None => Ok(Step::NeedMore { consumed: 0, at_least: usize32(ch.plen.get()) }),
        }
    }

    /// ICResp (section 3.6.2.3). The link is still without digests here, as it must be.
    fn initialize<'a>(&mut self, ch: &CommonHeader, input: &'a [u8]) -> Result<Step<'a>, Fatal> {
        let end = usize32(self.link.check_dataless(ch, PduType::IcResp.header_bytes())?);
        let Ok((response, _)) = IcResp::ref_from_prefix(input) else {
            return Ok(Step::NeedMore { consumed: 0, at_least: end });
        };
        let late = |fes, fei| Err(Fatal::late(PduType::IcResp, fes, fei));
        if response.pfv.get() != PFV_1_0 {
            return late(Fes::UnsupportedParameter, 8);
        }
        if response.cpda > PDA_MAX {
            return late(Fes::InvalidPduHeaderField, 10);
        }
        // A digest may be on only if it was asked for.
        if response.dgst & !self.digests_asked() != 0 {
            return late(Fes::InvalidPduHeaderField, 11);
        }
        let maxh2cdata = response.maxh2cdata.get();
        if maxh2cdata < MAXH2CDATA_MIN || !maxh2cdata.is_multiple_of(4) {
            return late(Fes::InvalidPduHeaderField, 12);
        }
        let event = Initialized {
            cpda: response.cpda,
            maxh2cdata,
            hdgst: response.dgst & DGST_HEADER != 0,
            ddgst: response.dgst & DGST_DATA != 0,
        };
        self.link = Link::new(event.hdgst, event.ddgst, event.cpda, self.config.hpda);
        self.stage = Stage::Header;
        Ok(Step::Event { consumed: end, event: Event::Initialized(event) })
    }

    /// A response capsule (section 3.6.2.7).
    #[inline]
    fn response<'a>(&mut self, ch: &CommonHeader, input: &'a [u8]) -> Result<Step<'a>, Fatal> {
        let end = usize32(self.link.check_dataless(ch, PduType::CapsuleResp.header_bytes())?);
        if input.len() < end {
            return Ok(Step::NeedMore { consumed: 0, at_least: end });
        }
        self.link.check_header_digest(PduType::CapsuleResp, input)?;
        let Ok((CapsuleResp { cqe, .. }, _)) = CapsuleResp::ref_from_prefix(input) else {
            return Ok(Step::NeedMore { consumed: 0, at_least: end });
        };
        match self.commands.get_mut(usize::from(cqe.cid.get())) {
            Some(command) if command.active => command.active = false,
            // Bytes 12 and 13 of the queue entry, which stands at byte 8.
            _ => return Err(Fatal::late(PduType::CapsuleResp, Fes::InvalidPduHeaderField, 20)),
        }
        Ok(Step::Event { consumed: end, event: Event::Response { cqe } })
    }

    /// R2T (section 3.6.2.10).
    fn ready_to_transfer<'a>(
        &mut self,
        ch: &CommonHeader,
        input: &'a [u8],
    ) -> Result<Step<'a>, Fatal> {
        let end = usize32(self.link.check_dataless(ch, PduType::R2t.header_bytes())?);
        if input.len() < end {
            return Ok(Step::NeedMore { consumed: 0, at_least: end });
        }
        self.link.check_header_digest(PduType::R2t, input)?;
        let Ok((header, _)) = R2t::ref_from_prefix(input) else {
            return Ok(Step::NeedMore { consumed: 0, at_least: end });
        };
        let late = |fes, fei| Err(Fatal::late(PduType::R2t, fes, fei));
        let (cid, offset, length) = (header.cccid.get(), header.r2to.get(), header.r2tl.get());
        let Some(command) = self.commands.get_mut(usize::from(cid)).filter(|c| c.active) else {
            return late(Fes::InvalidPduHeaderField, 8);
        };
        if length == 0 {
            return late(Fes::InvalidPduHeaderField, 16);
        }
        match offset.checked_add(length) {
            Some(end) if end <= command.data_out => {}
            _ => return late(Fes::DataTransferOutOfRange, 0),
        }
        if offset != command.requested {
            return late(Fes::InvalidPduHeaderField, 12);
        }
        if command.r2ts >= self.config.maxr2t {
            return late(Fes::LimitExceeded, 0);
        }
        command.r2ts += 1;
        command.requested += length;
        let ttag = header.ttag.get();
        let event = Event::ReadyToTransfer { cid, ttag, offset, length };
        Ok(Step::Event { consumed: end, event })
    }

    /// The header of a C2HData PDU (section 3.6.2.9), and the first piece of its data when there.
    #[inline]
    fn c2h_data<'a>(&mut self, ch: &CommonHeader, input: &'a [u8]) -> Result<Step<'a>, Fatal> {
        let hlen = PduType::C2hData.header_bytes();
        self.link.check_common(ch, hlen, true, FLAG_LAST | FLAG_SUCCESS)?;
        // The command is not complete while data is missing.
        if ch.flags & (FLAG_LAST | FLAG_SUCCESS) == FLAG_SUCCESS {
            return Err(Fatal::common_field(field::FLAGS));
        }
        let span = self.link.data_span(ch, hlen)?;
        let start = usize32(span.start);
        if input.len() >= usize32(self.link.header_end(hlen)) {
            self.link.check_header_digest(PduType::C2hData, input)?;
            if let Ok((header, _)) = C2hData::ref_from_prefix(input) {
                let payload = self.accept(header, span)?;
                if input.len() >= start {
                    self.payload = payload;
                    self.payload_flags = ch.flags;
                    self.stage = Stage::Payload;
                    return Ok(self.payload(input, start));
                }
            }
        }
        Ok(Step::NeedMore { consumed: 0, at_least: start })
    }

    /// Checks a C2HData header against the command it names.
    #[inline]
    fn accept(&self, header: &C2hData, span: Span) -> Result<Payload, Fatal> {
        let late = |fes, fei| Err(Fatal::late(PduType::C2hData, fes, fei));
        let (cid, datao, datal) = (header.cccid.get(), header.datao.get(), header.datal.get());
        if datal == 0 {
            return late(Fes::InvalidPduHeaderField, 16);
        }
        if datal != span.len {
            return late(Fes::InvalidPduHeaderField, field::PLEN);
        }
        let Some(command) = self.commands.get(usize::from(cid)).filter(|c| c.active) else {
            return late(Fes::InvalidPduHeaderField, 8);
        };
        // LAST_PDU was the controller's word that there is no more.
        if command.last {
            return late(Fes::PduSequenceError, 0);
        }
        match datao.checked_add(datal) {
            Some(end) if end <= command.data_in => {}
            _ => return late(Fes::DataTransferOutOfRange, 0),
        }
        if datao != command.received {
            return late(Fes::InvalidPduHeaderField, 12);
        }
        Ok(Payload::new(cid, datao, span, false))
    }

    /// Data of a C2HData PDU; `skip` bytes of `input` are done with already.
    #[inline]
    fn payload<'a>(&mut self, input: &'a [u8], skip: usize) -> Step<'a> {
        let Payload { id: cid, offset, .. } = self.payload;
        let bytes = self.payload.take(&input[skip..], self.link.ddgst());
        let consumed = skip + bytes.len();
        if self.payload.remaining == 0 {
            self.stage = Stage::PayloadEnd;
        }
        if bytes.is_empty() {
            return Step::NeedMore { consumed, at_least: 1 };
        }
        Step::Event { consumed, event: Event::Data { cid, offset, bytes } }
    }

    /// Behind the data of a C2HData PDU: its digest, and the account.
    fn payload_end<'a>(&mut self, input: &'a [u8], skip: usize) -> Step<'a> {
        let mut consumed = skip;
        let mut digest_ok = true;
        if self.link.ddgst() {
            let Some(received) = input[skip..].first_chunk::<DIGEST_BYTES>() else {
                return Step::NeedMore { consumed: skip, at_least: DIGEST_BYTES };
            };
            digest_ok = self.payload.digest_matches(received);
            consumed += DIGEST_BYTES;
        }
        self.stage = Stage::Header;
        let cid = self.payload.id;
        let last = self.payload_flags & FLAG_LAST != 0;
        let success = self.payload_flags & FLAG_SUCCESS != 0;
        let command = &mut self.commands[usize::from(cid)];
        command.received = self.payload.offset;
        command.last = last;
        command.digest_failed |= !digest_ok;
        command.active = !success;
        let complete = command.received == command.data_in;
        let digest_ok = !command.digest_failed;
        let event = Event::DataEnd { cid, last, success, complete, digest_ok };
        Step::Event { consumed, event }
    }

    /// Where the bytes that come next belong, while data of a C2HData PDU is outstanding.
    #[must_use]
    #[inline]
    pub fn direct(&self) -> Option<Direct> {
        if self.stage != Stage::Payload {
            return None;
        }
        let Payload { id: cid, offset, remaining, .. } = self.payload;
        Some(Direct { cid, offset, remaining })
    }

    /// Reports that `bytes` were received straight to where [`Self::direct`] says. Then call
    /// [`Self::next`], with no bytes if there are none.
    ///
    /// # Panics
    /// When [`Self::direct`] has nothing, or has less than that.
    pub fn advance_direct(&mut self, bytes: &[u8]) {
        let direct = self.direct().expect("data is outstanding");
        assert!(bytes.len() <= usize32(direct.remaining), "more than the PDU's data");
        self.payload.take(bytes, self.link.ddgst());
        if self.payload.remaining == 0 {
            self.stage = Stage::PayloadEnd;
        }
    }

    /// The digests we ask for, as DGST has them.
    const fn digests_asked(&self) -> u8 {
        let header = if self.config.hdgst { DGST_HEADER } else { 0 };
        let data = if self.config.ddgst { DGST_DATA } else { 0 };
        header | data
    }

    /// Whether data digests are on: the caller appends one to in-capsule data and to the data of each
    /// H2CData PDU.
    #[must_use]
    #[inline]
    pub const fn data_digest(&self) -> bool {
        self.link.ddgst()
    }

    /// ICReq, the first thing to send (section 3.6.2.2).
    #[must_use]
    pub fn ic_req(&self) -> DataHead {
        let request = IcReq::new(self.config.hpda, self.digests_asked(), self.config.maxr2t - 1);
        Head::bare(&request)
    }

    /// What stands before `in_capsule` bytes of in-capsule data of a command (section 3.6.2.6); behind
    /// the data goes its digest if [`Self::data_digest`].
    ///
    /// The machine notes the command, and checks what comes back against its opcode's direction and
    /// the length of its SGL descriptor.
    ///
    /// # Panics
    /// When the command identifier is in use or beyond [`Config::commands`].
    pub fn capsule_cmd(&mut self, sqe: &Sqe, in_capsule: u32) -> Head {
        let cid = sqe.cid.get();
        let command = &mut self.commands[usize::from(cid)];
        assert!(!command.active, "command identifier {cid} is in use");
        let length = sqe.dptr.length.get();
        let (out, back) = directions(sqe);
        *command = Command {
            active: true,
            data_in: if back { length } else { 0 },
            data_out: if out && in_capsule == 0 { length } else { 0 },
            ..Command::default()
        };
        let ch = self.link.common(PduType::CapsuleCmd, 0, in_capsule);
        self.link.head(ch, &CapsuleCmd { ch, sqe: *sqe })
    }

    /// What stands before `length` bytes of data that answer an R2T (section 3.6.2.8); behind the data
    /// goes its digest if [`Self::data_digest`]. `last`: the R2T is answered in full with this. A PDU
    /// holds at most [`Initialized::maxh2cdata`] bytes.
    ///
    /// # Panics
    /// When `length` is 0.
    pub fn h2c_data(
        &mut self,
        cid: u16,
        ttag: u16,
        offset: u32,
        length: u32,
        last: bool,
    ) -> DataHead {
        assert!(length > 0, "not an H2CData PDU");
        let flags = if last { FLAG_LAST } else { 0 };
        if let Some(command) = self.commands.get_mut(usize::from(cid)).filter(|_| last) {
            // The command may have been completed meanwhile, and its identifier used again.
            command.r2ts = command.r2ts.saturating_sub(1);
        }
        let ch = self.link.common(PduType::H2cData, flags, length);
        let header = H2cData {
            ch,
            cccid: cid.into(),
            ttag: ttag.into(),
            datao: offset.into(),
            datal: length.into(),
            reserved: [0; 4],
        };
        self.link.head(ch, &header)
    }
}

/// Whether a command sends data, and whether it gets data: bits 1:0 of its opcode, or of FCTYPE for a
/// Fabrics command (Base Specification 2.1, Figures 89 and 541).
const fn directions(sqe: &Sqe) -> (bool, bool) {
    const FABRICS: u8 = 0x7f;
    let code = if sqe.opcode == FABRICS {
        // FCTYPE is the byte where other commands have the first of NSID.
        sqe.nsid.to_bytes()[0]
    } else {
        sqe.opcode
    };
    (code & 0b01 != 0, code & 0b10 != 0)
}

/// The H2CTermReq for `fatal` (section 3.6.2.4); `input` is what [`Machine::next`] was called with.
/// Nothing is to be sent when it is empty.
#[must_use]
pub fn term_req(fatal: &Fatal, input: &[u8]) -> TermReqBytes {
    fatal::encode(PduType::H2cTermReq, fatal, input)
}
