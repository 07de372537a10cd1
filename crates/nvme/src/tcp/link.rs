//! What two ends agreed on, and the checks and layouts that follow from it alike for both.

use core::ops::Deref;

use stdx::num::{low8, u64_of};
use zerocopy::{Immutable, IntoBytes};

use super::digest::ddgst;
use super::fatal::{Fatal, field};
use super::limits::{DATA_HEAD_BYTES_MAX, HEAD_BYTES_MAX, SHORT_HEAD_BYTES_MAX};
use crate::pdu::{CommonHeader, DIGEST_BYTES, FLAG_DDGST, FLAG_HDGST, Fes, PduType};

/// The bytes of a PDU before its data: header, header digest, padding up to PDO.
///
/// Inline, so that encoding allocates nothing, and no larger than its PDU can need. It derefs to what
/// is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Head<const N: usize = HEAD_BYTES_MAX> {
    bytes: [u8; N],
    len: u8,
}

/// The head of a PDU with a 24-byte header and no data.
pub type ShortHead = Head<SHORT_HEAD_BYTES_MAX>;

/// The head of a PDU with a 24-byte header and data, or a whole ICReq or ICResp.
pub type DataHead = Head<DATA_HEAD_BYTES_MAX>;

impl<const N: usize> Deref for Head<N> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl<const N: usize> Head<N> {
    /// `header` alone: no digest, no data behind it.
    #[inline]
    pub(super) fn bare<T: IntoBytes + Immutable>(header: &T) -> Self {
        let mut bytes = [0; N];
        let header = header.as_bytes();
        bytes[..header.len()].copy_from_slice(header);
        // A header is at most 128 bytes long.
        Self { bytes, len: low8(u64_of(header.len())) }
    }
}

/// Out of line: the way without digests stays short, and what is digested does not have to be where
/// it is sent from.
#[inline(never)]
fn header_digest(header: &[u8]) -> [u8; DIGEST_BYTES] {
    ddgst(header)
}

/// The settings of an initialised connection, seen from one end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// Bytes of a header digest: 0 or 4.
    hdgst: u8,
    /// Bytes of a data digest: 0 or 4.
    ddgst: u8,
    /// PDO of the command capsules we send, and of the data PDUs.
    capsule_pdo: u8,
    data_pdo: u8,
    /// Alignment of the data we receive, bytes.
    recv_align: u8,
}

/// Where the data of a PDU is, from its start, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub start: u32,
    pub len: u32,
}

impl Link {
    /// `send_pda` and `recv_pda` are 0's based dwords, at most 31.
    pub(super) fn new(hdgst: bool, ddgst: bool, send_pda: u8, recv_pda: u8) -> Self {
        let hdgst = u8::from(hdgst) * 4;
        let send_align = (send_pda + 1) * 4;
        // At most HEAD_BYTES_MAX, which fits.
        let pdo = |hlen: u8| (hlen + hdgst).next_multiple_of(send_align);
        Self {
            hdgst,
            ddgst: u8::from(ddgst) * 4,
            capsule_pdo: pdo(PduType::CapsuleCmd.header_bytes()),
            data_pdo: pdo(PduType::C2hData.header_bytes()),
            recv_align: (recv_pda + 1) * 4,
        }
    }

    #[inline]
    pub(super) const fn hdgst(&self) -> bool {
        self.hdgst != 0
    }

    #[inline]
    pub(super) const fn ddgst(&self) -> bool {
        self.ddgst != 0
    }

    /// Bytes of a header of `hlen` bytes and its digest.
    #[inline]
    pub(super) fn header_end(&self, hlen: u8) -> u32 {
        u32::from(hlen) + u32::from(self.hdgst)
    }

    /// The flags that a PDU without data must have, and one with data.
    #[inline]
    pub(super) const fn flags(&self, data: bool) -> u8 {
        let header = if self.hdgst() { FLAG_HDGST } else { 0 };
        if data && self.ddgst() { header | FLAG_DDGST } else { header }
    }

    /// The common header for a PDU we send, and where its head ends. `extra` is flags beyond the
    /// digests'.
    #[inline]
    pub(super) fn common(&self, pdu_type: PduType, extra: u8, data: u32) -> CommonHeader {
        let hlen = pdu_type.header_bytes();
        let (pdo, plen) = if data == 0 {
            (0, self.header_end(hlen))
        } else {
            let pdo = match pdu_type {
                PduType::CapsuleCmd => self.capsule_pdo,
                _ => self.data_pdo,
            };
            (pdo, u32::from(pdo) + data + u32::from(self.ddgst))
        };
        CommonHeader {
            pdu_type: pdu_type.raw(),
            flags: self.flags(data != 0) | extra,
            hlen,
            pdo,
            plen: plen.into(),
        }
    }

    /// The bytes before the data of a PDU whose header is `header`, made with [`Self::common`].
    #[inline]
    pub(super) fn head<const N: usize, T: IntoBytes + Immutable>(
        &self,
        ch: CommonHeader,
        header: &T,
    ) -> Head<N> {
        let mut head = Head::bare(header);
        let hlen = usize::from(head.len);
        if self.hdgst() {
            let digest = header_digest(header.as_bytes());
            head.bytes[hlen..hlen + DIGEST_BYTES].copy_from_slice(&digest);
        }
        head.len = ch.pdo.max(head.len + self.hdgst);
        head
    }

    /// Checks HLEN and FLAGS of a PDU received; `extra` are flags its type may have beyond the
    /// digests'.
    #[inline]
    pub(super) fn check_common(
        &self,
        ch: &CommonHeader,
        hlen: u8,
        data: bool,
        extra: u8,
    ) -> Result<(), Fatal> {
        if ch.hlen != hlen {
            return Err(Fatal::common_field(field::HLEN));
        }
        if ch.flags & !extra != self.flags(data) {
            return Err(Fatal::common_field(field::FLAGS));
        }
        Ok(())
    }

    /// Checks a PDU that must be its header and digest and nothing else.
    pub(super) fn check_dataless(&self, ch: &CommonHeader, hlen: u8) -> Result<u32, Fatal> {
        self.check_common(ch, hlen, false, 0)?;
        let end = self.header_end(hlen);
        if ch.plen.get() != end {
            return Err(Fatal::common_field(field::PLEN));
        }
        Ok(end)
    }

    /// Where the data of a PDU is that has some: checks PDO (behind header and digest, aligned) and
    /// that PLEN leaves room for at least one byte of data and its digest.
    #[inline]
    pub(super) fn data_span(&self, ch: &CommonHeader, hlen: u8) -> Result<Span, Fatal> {
        let start = u32::from(ch.pdo);
        if start < self.header_end(hlen) || !ch.pdo.is_multiple_of(self.recv_align) {
            return Err(Fatal::common_field(field::PDO));
        }
        match ch.plen.get().checked_sub(start + u32::from(self.ddgst)) {
            Some(len) if len > 0 => Ok(Span { start, len }),
            _ => Err(Fatal::common_field(field::PLEN)),
        }
    }

    /// Checks the header digest; `input` holds at least the header and the digest.
    #[inline]
    pub(super) fn check_header_digest(&self, pdu_type: PduType, input: &[u8]) -> Result<(), Fatal> {
        if !self.hdgst() {
            return Ok(());
        }
        let (header, rest) = input.split_at(usize::from(pdu_type.header_bytes()));
        match rest.first_chunk::<DIGEST_BYTES>() {
            Some(received) if *received == header_digest(header) => Ok(()),
            received => {
                let received = received.map_or(0, |bytes| u32::from_le_bytes(*bytes));
                Err(Fatal::late(pdu_type, Fes::HeaderDigestError, received))
            }
        }
    }
}
