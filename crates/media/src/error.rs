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
        let kind = kind_of(&source);
        Self { kind, operation, offset, len, source: Some(source) }
    }
}

/// A write that was refused.
#[derive(Debug)]
pub struct Refused {
    pub error: Error,
    /// What was to be written, where there is no space for it now ([`Kind::Full`]).
    pub data: Option<reactor::buffer::Buffer>,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self { error, data: None }
    }
}

fn kind_of(e: &io::Error) -> Kind {
    if e.kind() == io::ErrorKind::ResourceBusy {
        return Kind::Busy;
    }
    match e.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Kind::Full,
        Some(libc::EROFS | libc::EPERM | libc::EACCES | libc::EBADF) => Kind::ReadOnly,
        Some(libc::ENODEV | libc::ENXIO | libc::ESHUTDOWN | libc::ENOENT) => Kind::Gone,
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY | libc::EINVAL) => Kind::Unsupported,
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
        ] {
            assert_eq!(kind_of(&io::Error::from_raw_os_error(errno)), kind);
        }
    }
}
