//! Fatal transport errors and the PDUs that tell of them (transport specification, sections 3.5,
//! 3.6.2.4 and 3.6.2.5).

use core::fmt;
use core::ops::Deref;

use stdx::num::{u32_of, usize32};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::limits::{TERM_REQ_BYTES_MAX, TERM_REQ_DATA_MAX};
use crate::pdu::{CommonHeader, Fes, PduType, TermReq};

/// Bytes of the common header.
const CH_BYTES: u8 = 8;

/// Offsets of the common header's fields, for FEI.
pub(super) mod field {
    pub const PDU_TYPE: u32 = 0;
    pub const FLAGS: u32 = 1;
    pub const HLEN: u32 = 2;
    pub const PDO: u32 = 3;
    pub const PLEN: u32 = 4;
}

/// An error after which the connection cannot go on.
///
/// The end that finds it sends [`term_req`](super::controller::term_req) and closes; the machine that
/// returned it swallows whatever else comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Fatal {
    /// Fatal Error Status.
    pub fes: Fes,
    /// Fatal Error Information; what it means depends on the status, 0 where it is reserved.
    pub fei: u32,
    /// Bytes of the offending header that had been received when the error was found.
    pub header: u8,
    /// Whether the peer is told. A fault in a terminate connection request is not answered by
    /// another one.
    pub answer: bool,
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fes {
            Fes::InvalidPduHeaderField | Fes::UnsupportedParameter => {
                write!(f, "{} at byte {}", self.fes, self.fei)
            }
            Fes::HeaderDigestError => write!(f, "{}: received {:#010x}", self.fes, self.fei),
            Fes::PduSequenceError | Fes::DataTransferOutOfRange | Fes::LimitExceeded => {
                self.fes.fmt(f)
            }
        }
    }
}

impl Fatal {
    /// An error seen in the common header alone.
    #[cold]
    pub(super) const fn early(fes: Fes, fei: u32) -> Self {
        Self { fes, fei, header: CH_BYTES, answer: true }
    }

    /// An error seen with the whole header of `pdu_type` at hand.
    #[cold]
    pub(super) const fn late(pdu_type: PduType, fes: Fes, fei: u32) -> Self {
        Self { fes, fei, header: pdu_type.header_bytes(), answer: true }
    }

    /// A wrong common header field, by its byte offset.
    #[cold]
    pub(super) const fn common_field(fei: u32) -> Self {
        Self::early(Fes::InvalidPduHeaderField, fei)
    }

    /// A malformed terminate connection request: the connection goes down without a word.
    #[cold]
    pub(super) const fn unanswered(fei: u32) -> Self {
        let mut fatal = Self::common_field(fei);
        fatal.answer = false;
        fatal
    }
}

/// A terminate connection request ready to send; no bytes at all when none is due.
#[derive(Clone, Copy, Debug)]
pub struct TermReqBytes {
    bytes: [u8; TERM_REQ_BYTES_MAX],
    len: usize,
}

impl Deref for TermReqBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Encodes a request of `pdu_type` for `fatal`; `offending` starts with the PDU in error.
pub(super) fn encode(pdu_type: PduType, fatal: &Fatal, offending: &[u8]) -> TermReqBytes {
    let mut out = TermReqBytes { bytes: [0; TERM_REQ_BYTES_MAX], len: 0 };
    if !fatal.answer {
        return out;
    }
    let data = usize::from(fatal.header).min(TERM_REQ_DATA_MAX).min(offending.len());
    let hlen = usize::from(pdu_type.header_bytes());
    out.len = hlen + data;
    let mut header = TermReq::new_zeroed();
    header.ch = CommonHeader::whole(pdu_type);
    header.ch.plen = u32_of(out.len).into();
    header.fes = fatal.fes.raw().into();
    header.fei = fatal.fei.into();
    out.bytes[..hlen].copy_from_slice(header.as_bytes());
    out.bytes[hlen..out.len].copy_from_slice(&offending[..data]);
    out
}

/// What the peer's terminate connection request says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminated<'a> {
    /// Fatal Error Status as sent; [`Fes::from_raw`] names it.
    pub fes: u16,
    /// Fatal Error Information.
    pub fei: u32,
    /// The start of the PDU of ours that the peer found wrong: at most 128 bytes.
    pub header: &'a [u8],
}

impl fmt::Display for Terminated<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Fes::from_raw(self.fes) {
            Some(fes) => Fatal { fes, fei: self.fei, header: 0, answer: false }.fmt(f),
            None => write!(f, "reserved fatal error status {:#06x}", self.fes),
        }
    }
}

/// Parses a request whose common header is `ch`; `None` while bytes are missing.
///
/// Digests are never on such a PDU, whatever was negotiated.
pub(super) fn parse<'a>(
    pdu_type: PduType,
    ch: &CommonHeader,
    input: &'a [u8],
) -> Result<Option<(usize, Terminated<'a>)>, Fatal> {
    let hlen = usize::from(pdu_type.header_bytes());
    if ch.hlen != pdu_type.header_bytes() {
        return Err(Fatal::unanswered(field::HLEN));
    }
    let plen = usize32(ch.plen.get());
    if plen < hlen || plen > TERM_REQ_BYTES_MAX {
        return Err(Fatal::unanswered(field::PLEN));
    }
    if input.len() < plen {
        return Ok(None);
    }
    let Ok((request, _)) = TermReq::ref_from_prefix(input) else { return Ok(None) };
    let header = &input[hlen..plen];
    Ok(Some((plen, Terminated { fes: request.fes.get(), fei: request.fei.get(), header })))
}
