//! Transmission: bytes become requests.

use zerocopy::FromBytes;

use super::export::Export;
use super::handshake::{Settled, Style};
use super::wire::{
    CompactRequest, EXTENDED_REQUEST_MAGIC, ExtendedRequest, REQUEST_MAGIC, command, flag,
};
use crate::disk::{Errno, Refusal, Span};
use crate::limits::SKIP_BYTES_MAX;
use stdx::num::{u64_of, usize64};

/// A request that may be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Data is to be sent; in one chunk when `whole`.
    Read { span: Span, whole: bool },
    /// Data follows; durable before the reply when `fua`.
    Write { span: Span, fua: bool },
    /// The client leaves; there is no reply.
    Disconnect,
    /// All that was answered becomes durable.
    Flush,
    /// The client has no use for this data any more.
    Trim { span: Span, fua: bool },
    /// Reads as zeroes from now on: allocated when `no_hole`, not slower than a write when `fast`.
    WriteZeroes { span: Span, fua: bool, no_hole: bool, fast: bool },
    /// What is data and what a hole.
    BlockStatus { span: Span },
}

const fn refuse<T>(errno: Errno, words: &'static str) -> Result<T, Refusal> {
    Err(Refusal { errno, words })
}

/// What the client asks for, with the cookie that its reply carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The client's mark.
    pub cookie: u64,
    /// Where it begins, as asked; extended replies repeat it.
    pub offset: u64,
    /// What to do.
    pub what: Result<Command, Refusal>,
}

/// A step through the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing can be said before more has been received.
    NeedMore {
        /// Bytes of the input that are done with.
        consumed: usize,
    },
    /// A request. When it is a write that may be carried out, its data is next: [`Requests::payload`].
    Request {
        /// Bytes of the input that are done with.
        consumed: usize,
        /// What is asked for.
        request: Request,
    },
}

/// The client broke the protocol: the connection can only be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Something that is no request.
    #[error("{0:#x} where a request begins")]
    Magic(u32),
    /// Too much data to throw away.
    #[error("a refused request has {0} bytes of data")]
    TooBig(u64),
}

/// The requests of one connection.
#[derive(Debug)]
pub struct Requests {
    settled: Settled,
    /// Data of the current request yet to come, bytes.
    payload: u64,
    /// It belongs to a refused request.
    skip: bool,
}

/// A request's header, compact or extended.
struct Head {
    flags: u16,
    command: u16,
    cookie: u64,
    span: Span,
}

impl Requests {
    /// Those that follow a negotiation.
    #[must_use]
    pub fn new(settled: Settled) -> Self {
        Self { settled, payload: 0, skip: false }
    }

    /// What was negotiated.
    #[must_use]
    pub fn settled(&self) -> Settled {
        self.settled
    }

    /// Data of a write that is yet to come, bytes. It is the caller's to take, and to tell
    /// [`Requests::advance`] of, before it asks for another request.
    #[must_use]
    pub fn payload(&self) -> u64 {
        if self.skip { 0 } else { self.payload }
    }

    /// `length` bytes of the data, [`Requests::payload`] at most, have been taken.
    pub fn advance(&mut self, length: usize) {
        debug_assert!(u64_of(length) <= self.payload(), "more than there is of the payload");
        self.payload -= u64_of(length);
    }

    /// Takes a request at the start of `input`.
    ///
    /// # Errors
    /// [`Broken`]: close.
    pub fn next(&mut self, input: &[u8], export: &Export) -> Result<Step, Broken> {
        debug_assert!(self.payload() == 0, "data of a write is in the way");
        let mut consumed = 0;
        if self.skip {
            consumed = usize64(self.payload.min(u64_of(input.len())));
            self.payload -= u64_of(consumed);
            if self.payload > 0 {
                return Ok(Step::NeedMore { consumed });
            }
            self.skip = false;
        }
        let Some((head, length)) = self.head(&input[consumed..])? else {
            return Ok(Step::NeedMore { consumed });
        };
        consumed += length;
        let what = self.judge(&head, export);
        self.payload = self.payload_of(&head);
        self.skip = what.is_err() && self.payload > 0;
        if self.skip && self.payload > SKIP_BYTES_MAX {
            return Err(Broken::TooBig(self.payload));
        }
        Ok(Step::Request {
            consumed,
            request: Request { cookie: head.cookie, offset: head.span.offset, what },
        })
    }

    fn extended(&self) -> bool {
        self.settled.style == Style::Extended
    }

    /// The header at the start of `input` and its length, once it is whole. A wrong magic is told as soon
    /// as it is seen.
    fn head(&self, input: &[u8]) -> Result<Option<(Head, usize)>, Broken> {
        let expected = if self.extended() { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC };
        let Some(magic) = input.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)) else {
            return Ok(None);
        };
        if magic != expected {
            return Err(Broken::Magic(magic));
        }
        if self.extended() {
            let Ok((raw, _)) = ExtendedRequest::ref_from_prefix(input) else { return Ok(None) };
            let span = Span { offset: raw.offset.get(), length: raw.length.get() };
            let (flags, command, cookie) = (raw.flags.get(), raw.command.get(), raw.cookie.get());
            return Ok(Some((Head { flags, command, cookie, span }, size_of_val(raw))));
        }
        let Ok((raw, _)) = CompactRequest::ref_from_prefix(input) else { return Ok(None) };
        let span = Span { offset: raw.offset.get(), length: raw.length.get().into() };
        let (flags, command, cookie) = (raw.flags.get(), raw.command.get(), raw.cookie.get());
        Ok(Some((Head { flags, command, cookie, span }, size_of_val(raw))))
    }

    /// How much data follows. With extended headers a flag says so, which a write has to set; one that does
    /// not is taken for a write all the same, as there is nothing else its length could mean.
    fn payload_of(&self, head: &Head) -> u64 {
        let flagged = self.extended() && head.flags & flag::PAYLOAD_LEN != 0;
        if flagged || head.command == command::WRITE { head.span.length } else { 0 }
    }

    /// Whether a request may be carried out.
    fn judge(&self, head: &Head, export: &Export) -> Result<Command, Refusal> {
        let span = head.span;
        let fua = head.flags & flag::FUA != 0;
        let set = |which: u16| head.flags & which != 0;
        // FUA is allowed with any command, whether it means something there or not.
        let (allowed, what) = match head.command {
            command::READ => (flag::DF, Command::Read { span, whole: set(flag::DF) }),
            command::WRITE => {
                let length = if self.extended() { flag::PAYLOAD_LEN } else { 0 };
                (length, Command::Write { span, fua })
            }
            command::DISCONNECT => return Ok(Command::Disconnect),
            command::FLUSH => (0, Command::Flush),
            command::TRIM => (0, Command::Trim { span, fua }),
            command::WRITE_ZEROES => {
                let (no_hole, fast) = (set(flag::NO_HOLE), set(flag::FAST_ZERO));
                (flag::NO_HOLE | flag::FAST_ZERO, Command::WriteZeroes { span, fua, no_hole, fast })
            }
            // One extent is the answer in any case.
            command::BLOCK_STATUS => (flag::REQ_ONE, Command::BlockStatus { span }),
            _ => return refuse(Errno::Invalid, "unknown command"),
        };
        if head.flags & !(allowed | flag::FUA) != 0 {
            return refuse(Errno::Invalid, "a flag that this command does not take");
        }
        self.judge_span(&what, span, export)?;
        Ok(what)
    }

    fn judge_span(&self, what: &Command, span: Span, export: &Export) -> Result<(), Refusal> {
        let writes = match what {
            Command::Flush | Command::Disconnect => return Ok(()),
            Command::Read { .. } | Command::BlockStatus { .. } => false,
            Command::Write { .. } | Command::Trim { .. } | Command::WriteZeroes { .. } => true,
        };
        let carries = matches!(what, Command::Read { .. } | Command::Write { .. });
        if writes && export.read_only {
            return refuse(Errno::Perm, "the export is read-only");
        }
        if carries && span.length > u64::from(export.maximum_bytes()) {
            return refuse(Errno::Invalid, "longer than the largest request");
        }
        let inside = span.offset.checked_add(span.length).is_some_and(|end| end <= export.size);
        if !inside {
            let grows = matches!(what, Command::Write { .. } | Command::WriteZeroes { .. });
            let errno = if grows { Errno::NoSpace } else { Errno::Invalid };
            return refuse(errno, "beyond the end of the export");
        }
        let block = u64::from(export.block_bytes);
        let aligned = span.offset.is_multiple_of(block) && span.length.is_multiple_of(block);
        if self.settled.constrained && !aligned {
            return refuse(Errno::Invalid, "not a multiple of the minimum block size");
        }
        if let Command::BlockStatus { .. } = what {
            if !self.settled.allocation {
                return refuse(Errno::Invalid, "no metadata context was chosen");
            }
            if span.length == 0 {
                return refuse(Errno::Invalid, "the status of nothing");
            }
        }
        Ok(())
    }
}
