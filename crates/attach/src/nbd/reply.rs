//! Replies, as bytes in front of (and sometimes in place of) data.

use zerocopy::IntoBytes;

use super::handshake::Style;
use super::wire::{
    BASE_ALLOCATION_ID, EXTENDED_REPLY_MAGIC, ExtendedExtent, ExtendedReply, Extent,
    SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, SimpleReply, StructuredReply, chunk,
};
use crate::disk::{Refusal, Span};
use stdx::num::{low32, u16_of, u64_of};

/// Writes the replies to one request with `push`.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// How replies of this connection look.
    pub style: Style,
    /// The request's.
    pub cookie: u64,
    /// Where the request begins; extended headers repeat it.
    pub offset: u64,
}

impl Reply {
    /// Done, without data. Not for reads, unless of nothing.
    pub fn done(self, push: impl FnOnce(&[u8])) {
        match self.style {
            Style::Simple | Style::Structured => push(self.simple(0).as_bytes()),
            Style::Extended => push(self.extended(chunk::DONE, chunk::NONE, 0).as_bytes()),
        }
    }

    /// The end of a read's reply of no data (structured and extended replies end a read so).
    pub fn nothing(self, push: impl FnOnce(&[u8])) {
        match self.style {
            Style::Simple | Style::Extended => self.done(push),
            Style::Structured => push(self.structured(chunk::DONE, chunk::NONE, 0).as_bytes()),
        }
    }

    /// Failed. Only chunks carry words; a simple reply may not follow chunks, so a read or block status
    /// that was answered by chunks ends with one, too.
    pub fn failed(self, why: Refusal, mut push: impl FnMut(&[u8])) {
        let length = u16_of(why.words.len());
        let payload = 6 + u64::from(length);
        match self.style {
            Style::Simple => return push(self.simple(why.errno as u32).as_bytes()),
            Style::Structured => {
                push(self.structured(chunk::DONE, chunk::ERROR, low32(payload)).as_bytes());
            }
            Style::Extended => {
                push(self.extended(chunk::DONE, chunk::ERROR, payload).as_bytes());
            }
        }
        push(&(why.errno as u32).to_be_bytes());
        push(&length.to_be_bytes());
        push(why.words.as_bytes());
    }

    /// What goes before `part` of a read's data. Simple replies have one head, before the first part.
    pub fn data(self, part: Span, last: bool, mut push: impl FnMut(&[u8])) {
        let flags = if last { chunk::DONE } else { 0 };
        // The data's place is part of the payload.
        let payload = part.length + u64_of(size_of::<u64>());
        match self.style {
            Style::Simple if part.offset == self.offset => {
                return push(self.simple(0).as_bytes());
            }
            Style::Simple => return,
            Style::Structured => {
                push(self.structured(flags, chunk::OFFSET_DATA, low32(payload)).as_bytes());
            }
            Style::Extended => {
                push(self.extended(flags, chunk::OFFSET_DATA, payload).as_bytes());
            }
        }
        push(&part.offset.to_be_bytes());
    }

    /// `length` bytes of one kind, by the flags of `base:allocation`. Without extended headers no request
    /// has more than 32 bits of length.
    pub fn extent(self, length: u64, flags: u32, mut push: impl FnMut(&[u8])) {
        if self.style == Style::Extended {
            let extent = ExtendedExtent {
                context: BASE_ALLOCATION_ID.into(),
                count: 1.into(),
                length: length.into(),
                flags: u64::from(flags).into(),
            };
            let payload = u64_of(size_of_val(&extent));
            push(self.extended(chunk::DONE, chunk::BLOCK_STATUS_EXT, payload).as_bytes());
            return push(extent.as_bytes());
        }
        let extent = Extent {
            context: BASE_ALLOCATION_ID.into(),
            length: low32(length).into(),
            flags: flags.into(),
        };
        let payload = low32(u64_of(size_of_val(&extent)));
        push(self.structured(chunk::DONE, chunk::BLOCK_STATUS, payload).as_bytes());
        push(extent.as_bytes());
    }

    fn simple(self, error: u32) -> SimpleReply {
        SimpleReply {
            magic: SIMPLE_REPLY_MAGIC.into(),
            error: error.into(),
            cookie: self.cookie.into(),
        }
    }

    fn structured(self, flags: u16, kind: u16, length: u32) -> StructuredReply {
        StructuredReply {
            magic: STRUCTURED_REPLY_MAGIC.into(),
            flags: flags.into(),
            kind: kind.into(),
            cookie: self.cookie.into(),
            length: length.into(),
        }
    }

    fn extended(self, flags: u16, kind: u16, length: u64) -> ExtendedReply {
        ExtendedReply {
            magic: EXTENDED_REPLY_MAGIC.into(),
            flags: flags.into(),
            kind: kind.into(),
            cookie: self.cookie.into(),
            offset: self.offset.into(),
            length: length.into(),
        }
    }
}
