//! What goes wrong with a drive of another machine, and whether its incarnation ends with it.

use std::io;
use std::sync::Arc;

use media::{Kind, Operation};
use nvme::status::Status;

/// Why an incarnation ended, or an operation: a kind to act on, and words for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Why {
    pub kind: Kind,
    pub words: Arc<str>,
}

impl Why {
    pub fn new(kind: Kind, words: impl Into<Arc<str>>) -> Self {
        Self { kind, words: words.into() }
    }

    /// Of the connection. It does not pass while somebody waits for it: who uses the drive goes on without it.
    pub fn gone(words: impl Into<Arc<str>>) -> Self {
        Self::new(Kind::Gone, words)
    }

    /// As an operation's error.
    pub fn error(&self, operation: Operation, offset: u64, len: u64) -> media::Error {
        let source = Some(io::Error::other(self.words.to_string()));
        media::Error { kind: self.kind, operation, offset, len, source }
    }
}

/// A command's failure.
#[derive(Debug)]
pub(super) struct Fault {
    pub why: Why,
    /// It tells that this incarnation is of no more use, or that nobody knows what the command did.
    pub ends: bool,
}

impl From<&initiator::Error> for Fault {
    fn from(error: &initiator::Error) -> Self {
        let root = root(error);
        match root {
            initiator::Error::Command { status, .. } => {
                let (kind, ends) = judge(*status);
                let words = if kind == Kind::Busy {
                    format!("another has taken the namespace: {root}")
                } else {
                    root.to_string()
                };
                Self { why: Why::new(kind, words), ends }
            }
            // Refused on this side, before anything was sent.
            initiator::Error::Unsupported(words) => {
                Self { why: Why::new(Kind::Unsupported, words.as_str()), ends: false }
            }
            _ => Self { why: Why::gone(root.to_string()), ends: true },
        }
    }
}

/// What happened first: the rest says what was done about it.
fn root(error: &initiator::Error) -> &initiator::Error {
    use initiator::Error::{Away, Ended, Gone, InDoubt};
    match error {
        Ended(why) | InDoubt(why) | Away { why, .. } | Gone { why, .. } => root(why),
        other => other,
    }
}

/// What kind of failure a status is, and whether the incarnation ends with it.
fn judge(status: Status) -> (Kind, bool) {
    const TAKEN: [Status; 2] = [Status::RESERVATION_CONFLICT, Status::ABORTED_PREEMPT_AND_ABORT];
    const KNOWN: [(Status, Kind); 5] = [
        (Status::CAPACITY_EXCEEDED, Kind::Full),
        (Status::LBA_OUT_OF_RANGE, Kind::OutOfRange),
        (Status::NAMESPACE_IS_WRITE_PROTECTED, Kind::ReadOnly),
        (Status::INVALID_OPCODE, Kind::Unsupported),
        (Status::INTERNAL_ERROR, Kind::Medium),
    ];
    /// Media and Data Integrity Errors (NVMe Base 2.1, section 4.2.3.3).
    const MEDIA: u8 = 2;
    if TAKEN.iter().any(|&taken| status.is(taken)) {
        return (Kind::Busy, true);
    }
    match KNOWN.iter().find(|(known, _)| status.is(*known)) {
        Some((_, kind)) => (*kind, false),
        None if status.code_type() == MEDIA => (Kind::Medium, false),
        None => (Kind::Gone, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_medium_says_is_no_matter_of_the_connection() {
        for (status, kind, ends) in [
            (Status::RESERVATION_CONFLICT.with_dnr(), Kind::Busy, true),
            (Status::ABORTED_PREEMPT_AND_ABORT, Kind::Busy, true),
            (Status::WRITE_FAULT, Kind::Medium, false),
            (Status::UNRECOVERED_READ_ERROR.with_dnr(), Kind::Medium, false),
            (Status::CAPACITY_EXCEEDED, Kind::Full, false),
            (Status::NAMESPACE_IS_WRITE_PROTECTED, Kind::ReadOnly, false),
            (Status::INVALID_NAMESPACE_OR_FORMAT, Kind::Gone, true),
            (Status::ABORT_REQUESTED, Kind::Gone, true),
        ] {
            let fault = Fault::from(&initiator::Error::Command { command: "Write", status });
            assert_eq!((fault.why.kind, fault.ends), (kind, ends), "{status}");
        }
    }

    #[test]
    fn what_happened_first_is_told() {
        let lost = Arc::new(initiator::Error::Lost("the association was lost"));
        let gone = initiator::Error::Gone { after: std::time::Duration::ZERO, why: lost };
        let fault = Fault::from(&initiator::Error::InDoubt(Arc::new(gone)));
        assert_eq!((&*fault.why.words, fault.why.kind), ("the association was lost", Kind::Gone));
        assert!(fault.ends);
        let refused = Fault::from(&initiator::Error::Unsupported("too long".to_owned()));
        assert_eq!((refused.why.kind, refused.ends), (Kind::Unsupported, false));
        let error = fault.why.error(Operation::Write, 4096, 512);
        assert_eq!(error.to_string(), "write of 512 bytes at 4096: the association was lost");
    }
}
