//! What a drive says when it cannot do what was asked.

use std::fmt;
use std::io;

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The range is not inside the drive.
    OutOfRange,
    /// Longer than one transfer may be.
    TooLarge,
    /// No space is left behind the drive.
    Full,
    /// The drive takes no writes.
    ReadOnly,
    /// These bytes could not be read or written; others may be well.
    Medium,
    /// The drive is gone.
    Gone,
    /// An earlier failure latched: what was acknowledged may be lost, so nothing more is taken.
    Latched,
    /// Another has it open and shares it with nobody.
    Busy,
    /// The system could not do it just now: interrupted, busy, out of memory. Says nothing of the drive.
    Passing,
    /// No answer came in time. What was to be changed may still be.
    Timeout,
    /// The drive cannot do this at all.
    Unsupported,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfRange => "not inside the drive",
            Self::TooLarge => "more than can be had",
            Self::Full => "no space left",
            Self::ReadOnly => "not permitted, or read-only",
            Self::Medium => "the medium failed",
            Self::Gone => "the drive is gone",
            Self::Latched => "the drive failed before",
            Self::Busy => "another has it",
            Self::Passing => "the system could not do it just now",
            Self::Timeout => "no answer in time",
            Self::Unsupported => "not supported",
        })
    }
}

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Open,
    Read,
    Write,
    Flush,
    Deallocate,
    WriteZeroes,
    Compare,
    Verify,
    Resize,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Deallocate => "deallocate",
            Self::WriteZeroes => "write zeroes",
            Self::Compare => "compare",
            Self::Verify => "verify",
            Self::Resize => "resize",
        })
    }
}

/// A failed operation: what kind of failure, on what, and why.
#[derive(Debug, thiserror::Error)]
pub struct Error {
    pub kind: Kind,
    pub operation: Operation,
    pub offset: u64,
    pub len: u64,
    pub source: Option<io::Error>,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation {
            // It has no place, and who opens something knows which.
            Operation::Open => f.write_str("open")?,
            Operation::Resize => write!(f, "resize to {} bytes", self.len)?,
            other => write!(f, "{other} of {} bytes at {}", self.len, self.offset)?,
        }
        // The system's word says more than its kind.
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => write!(f, ": {}", self.kind),
        }
    }
}

impl Error {
    pub(crate) const fn new(kind: Kind, operation: Operation, offset: u64, len: u64) -> Self {
        Self { kind, operation, offset, len, source: None }
    }

    pub(crate) fn from_io(source: io::Error, operation: Operation, offset: u64, len: u64) -> Self {
        let kind = match operation {
            // Another has it: that does not pass by itself.
            Operation::Open if source.kind() == io::ErrorKind::ResourceBusy => Kind::Busy,
            _ => kind_of(&source),
        };
        Self { kind, operation, offset, len, source: Some(source) }
    }
}

/// A read or write that was refused.
#[derive(Debug)]
pub struct Refused {
    pub error: Error,
    /// Its buffer, where it may succeed later ([`Kind::Full`], [`Kind::Passing`]).
    pub data: Option<reactor::buffer::Buffer>,
}

impl Refused {
    /// With its buffer, if it may be of use.
    pub(crate) fn with(error: Error, data: Option<reactor::buffer::Buffer>) -> Self {
        let again = matches!(error.kind, Kind::Full | Kind::Passing);
        Self { error, data: data.filter(|_| again) }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self { error, data: None }
    }
}

fn kind_of(e: &io::Error) -> Kind {
    match e.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Kind::Full,
        Some(libc::EROFS | libc::EPERM | libc::EACCES | libc::EBADF) => Kind::ReadOnly,
        Some(libc::ENODEV | libc::ENXIO | libc::ESHUTDOWN | libc::ENOENT) => Kind::Gone,
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY | libc::EINVAL) => Kind::Unsupported,
        Some(libc::EAGAIN | libc::EINTR | libc::ENOMEM | libc::ENOBUFS | libc::EBUSY) => {
            Kind::Passing
        }
        Some(libc::ETIMEDOUT | libc::ETIME) => Kind::Timeout,
        _ => Kind::Medium,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_tell_kind_and_place() {
        let e = Error::from_io(io::Error::from_raw_os_error(libc::EIO), Operation::Read, 4096, 512);
        assert_eq!(e.kind, Kind::Medium);
        assert_eq!(e.to_string(), "read of 512 bytes at 4096: Input/output error (os error 5)");
        let e = Error::from_io(io::Error::from_raw_os_error(libc::ENOENT), Operation::Open, 0, 0);
        assert_eq!(e.to_string(), "open: No such file or directory (os error 2)");
        let e = Error::new(Kind::Latched, Operation::Flush, 0, 0);
        assert_eq!(e.to_string(), "flush of 0 bytes at 0: the drive failed before");
        for (errno, kind) in [
            (libc::ENOSPC, Kind::Full),
            (libc::EROFS, Kind::ReadOnly),
            (libc::ENXIO, Kind::Gone),
            (libc::EOPNOTSUPP, Kind::Unsupported),
            (libc::ETIMEDOUT, Kind::Timeout),
        ] {
            assert_eq!(kind_of(&io::Error::from_raw_os_error(errno)), kind);
        }
    }

    /// Memory that was short for a moment condemned every drive of a pool for good.
    #[test]
    fn what_passes_is_no_verdict_on_a_drive() {
        for errno in [libc::EAGAIN, libc::EINTR, libc::ENOMEM, libc::EBUSY, libc::ENOBUFS] {
            let source = || io::Error::from_raw_os_error(errno);
            let error = Error::from_io(source(), Operation::Write, 0, 512);
            assert_eq!(error.kind, Kind::Passing, "{error}");
        }
        let busy = io::Error::from_raw_os_error(libc::EBUSY);
        assert_eq!(Error::from_io(busy, Operation::Open, 0, 0).kind, Kind::Busy);
    }
}
