//! Fixed newstyle negotiation: options in, replies out, until an export is chosen.

use zerocopy::{FromBytes, IntoBytes};

use super::export::Export;
use super::wire::{
    BASE_ALLOCATION, BASE_ALLOCATION_ID, CLIENT_FIXED_NEWSTYLE, CLIENT_NO_ZEROES,
    FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, HELLO, Hello, InfoBlockSize, InfoExport, OPTION_MAGIC,
    OPTION_REPLY_MAGIC, OptionHead, OptionReply, info, option, reply,
};
use crate::limits::{OPTION_BYTES_MAX, SKIP_BYTES_MAX};
use stdx::num::{u32_of, u64_of, usize32};

/// How replies look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Simple replies only.
    #[default]
    Simple,
    /// Structured replies to reads and block status.
    Structured,
    /// Extended headers in both directions.
    Extended,
}

/// What was settled when transmission begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// How replies look.
    pub style: Style,
    /// The client chose `base:allocation`.
    pub allocation: bool,
    /// The client was told the block sizes, and so has to obey them.
    pub constrained: bool,
}

/// Why a negotiation ended without an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The client is done.
    #[error("the client ended the negotiation")]
    Aborted,
    /// A flag that nobody announced.
    #[error("unknown handshake flags {0:#x}")]
    Flags(u32),
    /// Something that is no option.
    #[error("{0:#x} where an option begins")]
    Magic(u64),
    /// Too much data to throw away.
    #[error("an option of {0} bytes")]
    TooBig(u32),
    /// `NBD_OPT_EXPORT_NAME` can be refused in no other way.
    #[error("no such export")]
    Unknown,
}

/// What came of a step. The replies written out go to the client in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing can be said before more has been received.
    NeedMore {
        /// Bytes of the input that are done with.
        consumed: usize,
    },
    /// There may be more in the input.
    Next {
        /// Bytes of the input that are done with.
        consumed: usize,
    },
    /// Transmission begins with the next byte.
    Begin {
        /// Bytes of the input that are done with.
        consumed: usize,
        /// What was settled.
        settled: Settled,
    },
    /// Send what there is to send, then close.
    Close(Refused),
}

/// A negotiation.
#[derive(Debug, Default)]
pub struct Handshake {
    /// The client's flags; none before they came.
    flags: Option<u32>,
    /// Data of a refused option yet to be thrown away, bytes.
    skip: usize,
    settled: Settled,
}

/// An option as it arrived.
struct Asked<'a> {
    option: u32,
    data: &'a [u8],
}

/// What an option led to.
enum Outcome {
    More,
    Begin,
    Close(Refused),
}

impl Handshake {
    /// What the server says first.
    #[must_use]
    pub fn hello() -> Hello {
        let flags = FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES;
        Hello { magic: HELLO.into(), style: OPTION_MAGIC.into(), flags: flags.into() }
    }

    /// Takes what is at the start of `input`, one option at most, and appends the replies to `out`.
    pub fn next(&mut self, input: &[u8], export: &Export, out: &mut Vec<u8>) -> Step {
        let Some(flags) = self.flags else { return self.take_flags(input) };
        if self.skip > 0 {
            let consumed = self.skip.min(input.len());
            self.skip -= consumed;
            return if self.skip > 0 {
                Step::NeedMore { consumed }
            } else {
                Step::Next { consumed }
            };
        }
        let Ok((head, rest)) = OptionHead::ref_from_prefix(input) else {
            return Step::NeedMore { consumed: 0 };
        };
        if head.magic.get() != OPTION_MAGIC {
            return Step::Close(Refused::Magic(head.magic.get()));
        }
        let (option, length) = (head.option.get(), head.length.get());
        if usize32(length) > OPTION_BYTES_MAX {
            if u64::from(length) > SKIP_BYTES_MAX || option == option::EXPORT_NAME {
                return Step::Close(Refused::TooBig(length));
            }
            answer(out, option, reply::ERR_TOO_BIG, b"too much data");
            self.skip = usize32(length);
            return Step::Next { consumed: size_of::<OptionHead>() };
        }
        let Some(data) = rest.get(..usize32(length)) else {
            return Step::NeedMore { consumed: 0 };
        };
        let consumed = size_of::<OptionHead>() + data.len();
        match self.take(&Asked { option, data }, flags, export, out) {
            Outcome::More => Step::Next { consumed },
            Outcome::Begin => Step::Begin { consumed, settled: self.settled },
            Outcome::Close(why) => Step::Close(why),
        }
    }

    fn take_flags(&mut self, input: &[u8]) -> Step {
        let Some((bytes, _)) = input.split_first_chunk() else {
            return Step::NeedMore { consumed: 0 };
        };
        let flags = u32::from_be_bytes(*bytes);
        if flags & !(CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES) != 0 {
            return Step::Close(Refused::Flags(flags));
        }
        self.flags = Some(flags);
        Step::Next { consumed: bytes.len() }
    }

    fn take(
        &mut self,
        asked: &Asked<'_>,
        flags: u32,
        export: &Export,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let &Asked { option, data } = asked;
        match option {
            option::EXPORT_NAME => {
                if !export.is_called(data) {
                    return Outcome::Close(Refused::Unknown);
                }
                out.extend_from_slice(&export.size.to_be_bytes());
                out.extend_from_slice(&export.flags().to_be_bytes());
                if flags & CLIENT_NO_ZEROES == 0 {
                    out.extend_from_slice(&[0; 124]);
                }
                return Outcome::Begin;
            }
            option::ABORT => {
                answer(out, option, reply::ACK, &[]);
                return Outcome::Close(Refused::Aborted);
            }
            option::INFO | option::GO => return self.inform(asked, export, out),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.contexts(asked, export, out);
            }
            option::LIST
            | option::STARTTLS
            | option::STRUCTURED_REPLY
            | option::EXTENDED_HEADERS
                if !data.is_empty() =>
            {
                answer(out, option, reply::ERR_INVALID, b"this option takes no data");
            }
            option::LIST => {
                let name = export.name.as_bytes();
                let mut entry = u32_of(name.len()).to_be_bytes().to_vec();
                entry.extend_from_slice(name);
                entry.extend_from_slice(export.description.as_bytes());
                answer(out, option, reply::SERVER, &entry);
                answer(out, option, reply::ACK, &[]);
            }
            option::STRUCTURED_REPLY if self.settled.style == Style::Extended => {
                answer(out, option, reply::ERR_EXT_HEADER_REQD, b"headers are extended already");
            }
            option::STRUCTURED_REPLY => {
                self.settled.style = Style::Structured;
                answer(out, option, reply::ACK, &[]);
            }
            option::EXTENDED_HEADERS => {
                self.settled.style = Style::Extended;
                answer(out, option, reply::ACK, &[]);
            }
            option::STARTTLS => answer(out, option, reply::ERR_UNSUP, b"no TLS here"),
            _ => answer(out, option, reply::ERR_UNSUP, b"unknown option"),
        }
        Outcome::More
    }

    /// `NBD_OPT_INFO` and `NBD_OPT_GO`.
    fn inform(&mut self, asked: &Asked<'_>, export: &Export, out: &mut Vec<u8>) -> Outcome {
        let &Asked { option, data } = asked;
        let Some((name, wanted)) = parse_info(data) else {
            answer(out, option, reply::ERR_INVALID, b"malformed request");
            return Outcome::More;
        };
        if !export.is_called(name) {
            answer(out, option, reply::ERR_UNKNOWN, b"no such export");
            return Outcome::More;
        }
        let whole = InfoExport {
            kind: info::EXPORT.into(),
            size: export.size.into(),
            flags: export.flags().into(),
        };
        answer(out, option, reply::INFO, whole.as_bytes());
        // Each once, however often it is asked for.
        let asked_for = |kind: u16| wanted.chunks_exact(2).any(|each| each == kind.to_be_bytes());
        let text = |kind: u16, text: &str| [&kind.to_be_bytes()[..], text.as_bytes()].concat();
        if asked_for(info::NAME) {
            answer(out, option, reply::INFO, &text(info::NAME, &export.name));
        }
        if asked_for(info::DESCRIPTION) {
            answer(out, option, reply::INFO, &text(info::DESCRIPTION, &export.description));
        }
        let told = asked_for(info::BLOCK_SIZE);
        if told {
            let sizes = InfoBlockSize {
                kind: info::BLOCK_SIZE.into(),
                minimum: export.block_bytes.into(),
                preferred: export.preferred_bytes.into(),
                maximum: export.maximum_bytes().into(),
            };
            answer(out, option, reply::INFO, sizes.as_bytes());
        }
        answer(out, option, reply::ACK, &[]);
        if option == option::INFO {
            return Outcome::More;
        }
        self.settled.constrained = told;
        Outcome::Begin
    }

    /// `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`. The contexts that a failed or empty
    /// set replaces are gone.
    fn contexts(&mut self, asked: &Asked<'_>, export: &Export, out: &mut Vec<u8>) {
        let &Asked { option, data } = asked;
        let set = option == option::SET_META_CONTEXT;
        if set {
            self.settled.allocation = false;
        }
        if self.settled.style == Style::Simple {
            answer(out, option, reply::ERR_INVALID, b"structured replies come first");
            return;
        }
        let Some((name, queries)) = parse_contexts(data) else {
            answer(out, option, reply::ERR_INVALID, b"malformed request");
            return;
        };
        if !export.is_called(name) {
            answer(out, option, reply::ERR_UNKNOWN, b"no such export");
            return;
        }
        let named = |query: &[u8]| query == BASE_ALLOCATION.as_bytes();
        let found = if set {
            queries.iter().any(|query| named(query))
        } else {
            queries.is_empty() || queries.iter().any(|query| named(query) || *query == b"base:")
        };
        if found {
            let id = if set { BASE_ALLOCATION_ID } else { 0 };
            let entry = [&id.to_be_bytes()[..], BASE_ALLOCATION.as_bytes()].concat();
            answer(out, option, reply::META_CONTEXT, &entry);
            self.settled.allocation |= set;
        }
        answer(out, option, reply::ACK, &[]);
    }
}

/// Appends a reply to an option.
fn answer(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    let head = OptionReply {
        magic: OPTION_REPLY_MAGIC.into(),
        option: option.into(),
        kind: kind.into(),
        length: u32_of(data.len()).into(),
    };
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(data);
}

/// A counted string at the start of `data`, and what is behind it.
fn string(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_first_chunk()?;
    rest.split_at_checked(usize32(u32::from_be_bytes(*length)))
}

/// Name and kinds of information wanted, two bytes each.
fn parse_info(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, rest) = string(data)?;
    let (count, kinds) = rest.split_first_chunk()?;
    (kinds.len() == 2 * usize::from(u16::from_be_bytes(*count))).then_some((name, kinds))
}

/// Name and queries.
fn parse_contexts(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let (name, rest) = string(data)?;
    let (count, mut rest) = rest.split_first_chunk()?;
    let count = u32::from_be_bytes(*count);
    // A query takes four bytes at least, so the data bounds what a count may say.
    if u64::from(count) * 4 > u64_of(rest.len()) {
        return None;
    }
    let mut queries = Vec::new();
    for _ in 0..count {
        let query;
        (query, rest) = string(rest)?;
        queries.push(query);
    }
    rest.is_empty().then_some((name, queries))
}
