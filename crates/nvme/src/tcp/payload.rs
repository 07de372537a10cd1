//! The data of an H2CData or C2HData PDU while it comes in, piece by piece.

use stdx::num::{u32_of, usize32};

use super::digest::DataDigest;
use super::link::Span;

/// A data PDU whose header has been accepted and whose data has not all been received.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Payload {
    /// The transfer tag or command identifier the data belongs to.
    pub id: u16,
    /// Where the next byte goes in the command's data buffer, bytes.
    pub offset: u32,
    /// Bytes of data still to come.
    pub remaining: u32,
    /// Nobody wants the data any more: it is received and dropped.
    pub discard: bool,
    digest: DataDigest,
}

impl Payload {
    pub(super) fn new(id: u16, offset: u32, span: Span, discard: bool) -> Self {
        Self { id, offset, remaining: span.len, discard, digest: DataDigest::default() }
    }

    /// Takes as much of `bytes` as belongs to this PDU, and gives it back.
    #[inline]
    pub(super) fn take<'a>(&mut self, bytes: &'a [u8], digest: bool) -> &'a [u8] {
        let mine = &bytes[..bytes.len().min(usize32(self.remaining))];
        if digest && !self.discard {
            self.digest.update(mine);
        }
        let taken = u32_of(mine.len());
        self.offset += taken;
        self.remaining -= taken;
        mine
    }

    /// Whether `received` is the digest of the data taken. Data that is dropped is not judged.
    pub(super) fn digest_matches(&self, received: &[u8]) -> bool {
        self.discard || self.digest.finish() == received
    }
}
