//! The controller's end: fed what a host sends.

use stdx::num::usize32;
use zerocopy::FromBytes;

use super::fatal::{self, Fatal, TermReqBytes, Terminated, field};
use super::limits::{MAXH2CDATA_MIN, PDA_MAX, TRANSFERS_MAX};
use super::link::{DataHead, Head, Link, ShortHead, Span};
use super::payload::Payload;
use crate::cqe::Cqe;
use crate::pdu::{
    C2hData, CapsuleCmd, CapsuleResp, CommonHeader, DGST_DATA, DGST_HEADER, DIGEST_BYTES,
    FLAG_DDGST, FLAG_LAST, FLAG_SUCCESS, Fes, H2cData, IcReq, IcResp, PFV_1_0, PduType, R2t,
};
use crate::sqe::Sqe;

/// What one call of [`Machine::next`] came to.
pub type Step<'a> = super::Step<Event<'a>>;

/// What a controller offers on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most in-capsule data of one command, bytes.
    pub max_in_capsule: u32,
    /// MAXH2CDATA: most data of one H2CData PDU, bytes; a multiple of four, at least 4096.
    pub maxh2cdata: u32,
    /// CPDA: alignment of the data a host sends, 0's based dwords, at most 31. Linux hosts take 0 only.
    pub cpda: u8,
    /// Agree to header digests when the host asks for them.
    pub allow_hdgst: bool,
    /// Agree to data digests when the host asks for them.
    pub allow_ddgst: bool,
    /// Transfer tags, 0 to `transfers - 1`; at most [`TRANSFERS_MAX`].
    pub transfers: u16,
}

/// What a host's ICReq asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initialize {
    /// HPDA: alignment of the data we send, 0's based dwords.
    pub hpda: u8,
    /// Most outstanding R2Ts of one command: MAXR2T as a count, at least 1.
    pub maxr2t: u64,
    /// Header digests are on from now.
    pub hdgst: bool,
    /// Data digests are on from now.
    pub ddgst: bool,
}

/// Something a host did.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// ICReq accepted; send [`Machine::ic_resp`].
    Initialize(Initialize),
    /// A command, its in-capsule data whole (empty when there is none). With `digest_ok` false the
    /// data is damaged: the command fails with Transient Transport Error, the connection lives.
    Capsule { sqe: &'a Sqe, data: &'a [u8], digest_ok: bool },
    /// The next piece of a transfer's data; it goes to `offset` of the command's buffer.
    Data { ttag: u16, offset: u32, bytes: &'a [u8] },
    /// An H2CData PDU ended. `complete`: the whole R2T is satisfied and the tag is free again.
    /// `digest_ok`: no data digest of this transfer was wrong so far.
    DataEnd { ttag: u16, complete: bool, digest_ok: bool },
    /// The host gives the connection up; close it, answer nothing.
    Terminated(Terminated<'a>),
}

/// Where the rest of the data PDU that is coming in belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct {
    /// Transfer tag.
    pub ttag: u16,
    /// Where the next byte goes in the command's buffer.
    pub offset: u32,
    /// Bytes of data until the PDU's data ends; at least 1.
    pub remaining: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No ICReq yet.
    Initialize,
    /// Between PDUs.
    Header,
    /// Within the data of an H2CData PDU.
    Payload,
    /// Behind the data of an H2CData PDU.
    PayloadEnd,
    /// After a fatal error or a terminate request: everything is swallowed.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum TransferState {
    #[default]
    Free,
    /// An R2T is out.
    Open,
    /// An R2T is out, but its data is not wanted any more.
    Cancelled,
}

/// One R2T.
#[derive(Clone, Copy, Debug, Default)]
struct Transfer {
    cid: u16,
    state: TransferState,
    digest_failed: bool,
    /// Where the R2T's range starts.
    start: u32,
    /// Offset that the next H2CData must have.
    next: u32,
    /// Offset where the R2T's range ends.
    end: u32,
}

/// The machine of one connection.
#[derive(Debug)]
pub struct Machine {
    stage: Stage,
    link: Link,
    payload: Payload,
    /// As many as were ever in use at once: most connections never ask for data.
    transfers: Vec<Transfer>,
    config: Config,
}

impl Machine {
    /// # Panics
    /// When `config` breaks one of the bounds its fields state.
    #[must_use]
    pub fn new(config: Config) -> Self {
        assert!(config.cpda <= PDA_MAX, "CPDA is at most 31");
        assert!(config.transfers <= TRANSFERS_MAX, "too many transfer tags");
        assert!(
            config.maxh2cdata >= MAXH2CDATA_MIN && config.maxh2cdata.is_multiple_of(4),
            "MAXH2CDATA is a multiple of four and at least 4096"
        );
        Self {
            stage: Stage::Initialize,
            link: Link::new(false, false, 0, config.cpda),
            payload: Payload::default(),
            transfers: Vec::new(),
            config,
        }
    }

    /// Changes the bound on in-capsule data, once Connect has told which queue this is.
    pub const fn set_max_in_capsule(&mut self, bytes: u32) {
        self.config.max_in_capsule = bytes;
    }

    /// Takes the next step on `input`, the bytes received and not yet consumed; see [`super`].
    ///
    /// # Errors
    /// The fatal error of section 3.5 that the host made; `input` then starts with the PDU in error.
    #[inline]
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Result<Step<'a>, Fatal> {
        let step = if self.stage == Stage::Header {
            match CommonHeader::ref_from_prefix(input) {
                Ok((ch, _)) if ch.pdu_type == PduType::CapsuleCmd.raw() => self.capsule(ch, input),
                Ok((ch, _)) => self.other(*ch, input),
                Err(_) => Ok(Step::NeedMore { consumed: 0, at_least: size_of::<CommonHeader>() }),
            }
        } else {
            self.elsewhere(input)
        };
        if step.is_err() {
            self.stage = Stage::Closed;
        }
        step
    }

    /// A command capsule (section 3.6.2.6).
    #[inline]
    fn capsule<'a>(&self, ch: &CommonHeader, input: &'a [u8]) -> Result<Step<'a>, Fatal> {
        let hlen = PduType::CapsuleCmd.header_bytes();
        let header_end = self.link.header_end(hlen);
        let plen = ch.plen.get();
        let data = if plen == header_end {
            // DDGSTF says nothing when there is no data, PDO neither.
            let ddgst = if self.link.ddgst() { FLAG_DDGST } else { 0 };
            self.link.check_common(ch, hlen, false, ddgst)?;
            Span { start: header_end, len: 0 }
        } else {
            self.link.check_common(ch, hlen, true, 0)?;
            let span = self.link.data_span(ch, hlen)?;
            if span.len > self.config.max_in_capsule {
                return Err(Fatal::early(Fes::LimitExceeded, 0));
            }
            span
        };
        let whole = usize32(plen);
        if input.len() >= usize32(header_end) {
            self.link.check_header_digest(PduType::CapsuleCmd, input)?;
        }
        if input.len() < whole {
            return Ok(Step::NeedMore { consumed: 0, at_least: whole });
        }
        let Ok((CapsuleCmd { sqe, .. }, _)) = CapsuleCmd::ref_from_prefix(input) else {
            return Ok(Step::NeedMore { consumed: 0, at_least: whole });
        };
        let end = usize32(data.start + data.len);
        let digest_ok = data.len == 0
            || !self.link.ddgst()
            || super::ddgst(&input[usize32(data.start)..end]) == input[end..whole];
        let data = &input[usize32(data.start)..end];
        Ok(Step::Event { consumed: whole, event: Event::Capsule { sqe, data, digest_ok } })
    }

    /// Any stage but [`Stage::Header`].
    fn elsewhere<'a>(&mut self, input: &'a [u8]) -> Result<Step<'a>, Fatal> {
        match self.stage {
            Stage::Closed => Ok(Step::NeedMore { consumed: input.len(), at_least: 1 }),
            Stage::Payload => Ok(self.payload(input, 0)),
            Stage::PayloadEnd => Ok(self.payload_end(input, 0)),
            Stage::Initialize | Stage::Header => match CommonHeader::ref_from_prefix(input) {
                Ok((ch, _)) => self.other(*ch, input),
                Err(_) => Ok(Step::NeedMore { consumed: 0, at_least: size_of::<CommonHeader>() }),
            },
        }
    }

    /// Any PDU but a command capsule after initialisation.
    #[inline(never)]
    fn other<'a>(&mut self, ch: CommonHeader, input: &'a [u8]) -> Result<Step<'a>, Fatal> {
        let initialized = self.stage == Stage::Header;
        match PduType::from_raw(ch.pdu_type) {
            Some(PduType::H2cTermReq) => self.terminated(&ch, input),
            Some(PduType::IcReq) if !initialized => self.initialize(&ch, input),
            Some(PduType::H2cData) if initialized => self.h2c_data(&ch, input),
            // Before ICReq, or ICReq a second time (section 3.4).
            Some(PduType::IcReq | PduType::H2cData | PduType::CapsuleCmd) => {
                Err(Fatal::early(Fes::PduSequenceError, 0))
            }
            // Types that do not exist, and those that only a controller sends.
            _ => Err(Fatal::common_field(field::PDU_TYPE)),
        }
    }

    fn terminated<'a>(&mut self, ch: &CommonHeader, input: &'a [u8]) -> Result<Step<'a>, Fatal> {
        match fatal::parse(PduType::H2cTermReq, ch, input)? {
            Some((consumed, terminated)) => {
                self.stage = Stage::Closed;
                Ok(Step::Event { consumed, event: Event::Terminated(terminated) })
            }
            None => Ok(Step::NeedMore { consumed: 0, at_least: usize32(ch.plen.get()) }),
        }
    }

    /// ICReq (section 3.6.2.2). The link is still without digests here, as it must be.
    fn initialize<'a>(&mut self, ch: &CommonHeader, input: &'a [u8]) -> Result<Step<'a>, Fatal> {
        let end = usize32(self.link.check_dataless(ch, PduType::IcReq.header_bytes())?);
        let Ok((request, _)) = IcReq::ref_from_prefix(input) else {
            return Ok(Step::NeedMore { consumed: 0, at_least: end });
        };
        let late = |fes, fei| Err(Fatal::late(PduType::IcReq, fes, fei));
        if request.pfv.get() != PFV_1_0 {
            return late(Fes::UnsupportedParameter, 8);
        }
        if request.hpda > PDA_MAX {
            return late(Fes::InvalidPduHeaderField, 10);
        }
        if request.dgst & !(DGST_HEADER | DGST_DATA) != 0 {
            return late(Fes::InvalidPduHeaderField, 11);
        }
        let event = Initialize {
            hpda: request.hpda,
            maxr2t: u64::from(request.maxr2t.get()) + 1,
            hdgst: self.config.allow_hdgst && request.dgst & DGST_HEADER != 0,
            ddgst: self.config.allow_ddgst && request.dgst & DGST_DATA != 0,
        };
        self.link = Link::new(event.hdgst, event.ddgst, event.hpda, self.config.cpda);
        self.stage = Stage::Header;
        Ok(Step::Event { consumed: end, event: Event::Initialize(event) })
    }

    /// The header of an H2CData PDU (section 3.6.2.8), and the first piece of its data when there.
    fn h2c_data<'a>(&mut self, ch: &CommonHeader, input: &'a [u8]) -> Result<Step<'a>, Fatal> {
        let hlen = PduType::H2cData.header_bytes();
        self.link.check_common(ch, hlen, true, FLAG_LAST)?;
        let span = self.link.data_span(ch, hlen)?;
        let start = usize32(span.start);
        if input.len() >= usize32(self.link.header_end(hlen)) {
            self.link.check_header_digest(PduType::H2cData, input)?;
            if let Ok((header, _)) = H2cData::ref_from_prefix(input) {
                let payload = self.accept(header, span)?;
                if input.len() >= start {
                    self.payload = payload;
                    self.stage = Stage::Payload;
                    return Ok(self.payload(input, start));
                }
            }
        }
        Ok(Step::NeedMore { consumed: 0, at_least: start })
    }

    /// Checks an H2CData header against the R2T it claims to answer.
    fn accept(&self, header: &H2cData, span: Span) -> Result<Payload, Fatal> {
        let late = |fes, fei| Err(Fatal::late(PduType::H2cData, fes, fei));
        let (ttag, datao, datal) = (header.ttag.get(), header.datao.get(), header.datal.get());
        if datal == 0 {
            return late(Fes::InvalidPduHeaderField, 16);
        }
        if datal != span.len {
            return late(Fes::InvalidPduHeaderField, field::PLEN);
        }
        let Some(transfer) = self
            .transfers
            .get(usize::from(ttag))
            .filter(|transfer| transfer.state != TransferState::Free)
        else {
            return late(Fes::InvalidPduHeaderField, 10);
        };
        if header.cccid.get() != transfer.cid {
            return late(Fes::InvalidPduHeaderField, 8);
        }
        if datal > self.config.maxh2cdata {
            return late(Fes::LimitExceeded, 0);
        }
        match datao.checked_add(datal) {
            Some(end) if end <= transfer.end && datao >= transfer.start => {}
            _ => return late(Fes::DataTransferOutOfRange, 0),
        }
        // The data of one R2T comes in order and once.
        if datao != transfer.next {
            return late(Fes::InvalidPduHeaderField, 12);
        }
        let last = header.ch.flags & FLAG_LAST != 0;
        if last != (datao + datal == transfer.end) {
            return late(Fes::InvalidPduHeaderField, field::FLAGS);
        }
        Ok(Payload::new(ttag, datao, span, transfer.state == TransferState::Cancelled))
    }

    /// Data of an H2CData PDU; `skip` bytes of `input` are done with already.
    fn payload<'a>(&mut self, input: &'a [u8], skip: usize) -> Step<'a> {
        let offset = self.payload.offset;
        let bytes = self.payload.take(&input[skip..], self.link.ddgst());
        let consumed = skip + bytes.len();
        if self.payload.remaining == 0 {
            self.stage = Stage::PayloadEnd;
        }
        if !self.payload.discard && !bytes.is_empty() {
            return Step::Event {
                consumed,
                event: Event::Data { ttag: self.payload.id, offset, bytes },
            };
        }
        if self.stage == Stage::PayloadEnd {
            return self.payload_end(input, consumed);
        }
        Step::NeedMore { consumed, at_least: 1 }
    }

    /// Behind the data of an H2CData PDU: its digest, and the account.
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
        let ttag = self.payload.id;
        let transfer = &mut self.transfers[usize::from(ttag)];
        transfer.digest_failed |= !digest_ok;
        transfer.next = self.payload.offset;
        let complete = transfer.next == transfer.end;
        if complete {
            transfer.state = TransferState::Free;
        }
        let digest_ok = !transfer.digest_failed;
        Step::Event { consumed, event: Event::DataEnd { ttag, complete, digest_ok } }
    }

    /// Where the bytes that come next belong, while data of an H2CData PDU is outstanding. `None`
    /// also while data is being dropped.
    #[must_use]
    #[inline]
    pub fn direct(&self) -> Option<Direct> {
        if self.stage != Stage::Payload || self.payload.discard {
            return None;
        }
        let Payload { id: ttag, offset, remaining, .. } = self.payload;
        Some(Direct { ttag, offset, remaining })
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

    /// Expects `length` bytes for `offset` of command `cid`'s buffer under transfer tag `ttag`, and
    /// gives the R2T that asks for them (section 3.6.2.10).
    ///
    /// How many a command may have at once is the caller's to keep: [`Initialize::maxr2t`].
    ///
    /// # Panics
    /// When the tag is in use or beyond [`Config::transfers`], or the range is empty or beyond 4 GiB.
    pub fn begin_transfer(&mut self, ttag: u16, cid: u16, offset: u32, length: u32) -> ShortHead {
        assert!(ttag < self.config.transfers, "transfer tag {ttag} is not one");
        let index = usize::from(ttag);
        if index >= self.transfers.len() {
            self.transfers.resize(index + 1, Transfer::default());
        }
        let transfer = &mut self.transfers[index];
        assert!(transfer.state == TransferState::Free, "transfer tag {ttag} is in use");
        assert!(length > 0, "an R2T asks for something");
        let end = offset.checked_add(length).expect("a command's data is below 4 GiB");
        *transfer = Transfer {
            cid,
            state: TransferState::Open,
            digest_failed: false,
            start: offset,
            next: offset,
            end,
        };
        let ch = self.link.common(PduType::R2t, 0, 0);
        let header = R2t {
            ch,
            cccid: cid.into(),
            ttag: ttag.into(),
            r2to: offset.into(),
            r2tl: length.into(),
            reserved: [0; 4],
        };
        self.link.head(ch, &header)
    }

    /// Gives up on a transfer. The host has been asked and will send: its data is received and
    /// dropped without [`Event::Data`], and the tag is free after the [`Event::DataEnd`] that says
    /// `complete`. Whether there will be one is what this returns; `false` for a tag not in use.
    pub fn cancel_transfer(&mut self, ttag: u16) -> bool {
        let Some(transfer) = self.transfers.get_mut(usize::from(ttag)) else { return false };
        if transfer.state == TransferState::Free {
            return false;
        }
        transfer.state = TransferState::Cancelled;
        if matches!(self.stage, Stage::Payload | Stage::PayloadEnd) && self.payload.id == ttag {
            self.payload.discard = true;
        }
        true
    }

    /// Whether data digests are on: the caller appends one to the data of each C2HData PDU.
    #[must_use]
    #[inline]
    pub const fn data_digest(&self) -> bool {
        self.link.ddgst()
    }

    /// ICResp, the answer to [`Event::Initialize`] (section 3.6.2.3).
    #[must_use]
    pub fn ic_resp(&self) -> DataHead {
        let mut dgst = 0;
        if self.link.hdgst() {
            dgst |= DGST_HEADER;
        }
        if self.link.ddgst() {
            dgst |= DGST_DATA;
        }
        Head::bare(&IcResp::new(self.config.cpda, dgst, self.config.maxh2cdata))
    }

    /// A response capsule (section 3.6.2.7).
    #[must_use]
    #[inline]
    pub fn capsule_resp(&self, cqe: &Cqe) -> ShortHead {
        let ch = self.link.common(PduType::CapsuleResp, 0, 0);
        self.link.head(ch, &CapsuleResp { ch, cqe: *cqe })
    }

    /// What stands before `length` bytes of data for `offset` of command `cid`'s buffer (section
    /// 3.6.2.9). Behind the data goes its digest if [`Self::data_digest`].
    ///
    /// `last`: the last of the command. `success`: with it the command is complete without a response
    /// capsule; only on the last, and only when SQ flow control is off.
    ///
    /// # Panics
    /// When `length` is 0, or `success` is set without `last`.
    #[must_use]
    #[inline]
    pub fn c2h_data(
        &self,
        cid: u16,
        offset: u32,
        length: u32,
        last: bool,
        success: bool,
    ) -> DataHead {
        assert!(length > 0 && (last || !success), "not a C2HData PDU");
        let mut flags = 0;
        if last {
            flags |= FLAG_LAST;
        }
        if success {
            flags |= FLAG_SUCCESS;
        }
        let ch = self.link.common(PduType::C2hData, flags, length);
        let header = C2hData {
            ch,
            cccid: cid.into(),
            reserved10: [0; 2],
            datao: offset.into(),
            datal: length.into(),
            reserved20: [0; 4],
        };
        self.link.head(ch, &header)
    }
}

/// The C2HTermReq for `fatal` (section 3.6.2.5); `input` is what [`Machine::next`] was called with.
/// Nothing is to be sent when it is empty.
#[must_use]
pub fn term_req(fatal: &Fatal, input: &[u8]) -> TermReqBytes {
    fatal::encode(PduType::C2hTermReq, fatal, input)
}
