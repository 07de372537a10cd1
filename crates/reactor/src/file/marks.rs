//! Marks of what may be written to, which outlive the process that does: they tell whether the kernel still has operations of
//! one that was killed, whose locks are gone by then.
#![allow(unsafe_code, reason = "locks of open files have no safe wrapper")]

use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::OnceLock;

/// Where no file has a byte: each process has one of these, by which its marks are told from those of others.
pub const MARKS: Range<i64> = i64::MAX - (1 << 40)..i64::MAX - 1;

/// This process's mark: drawn, as numbers of processes come again, within a container always the same ones.
pub fn own() -> i64 {
    static OWN: OnceLock<i64> = OnceLock::new();
    *OWN.get_or_init(|| {
        let drawn = RandomState::new().build_hasher().finish() >> 24;
        MARKS.start + i64::try_from(drawn).unwrap_or_default().min(MARKS.end - MARKS.start - 1)
    })
}

/// A lock of an open file, not of its process: it goes when the last operation is over that the kernel has of it, which may
/// be some time after the process.
fn mark_of(kind: libc::c_int, place: &Range<i64>) -> libc::flock {
    // SAFETY: all zeroes is a valid lock.
    let mut mark: libc::flock = unsafe { MaybeUninit::zeroed().assume_init() };
    // Constants of a few bits.
    mark.l_type = libc::c_short::try_from(kind).unwrap_or_default();
    mark.l_whence = libc::c_short::try_from(libc::SEEK_SET).unwrap_or_default();
    (mark.l_start, mark.l_len) = (place.start, place.end - place.start);
    mark
}

/// Marks a descriptor that something may be written through. Where the file system knows of no such marks nobody is told.
pub fn set(fd: RawFd, own: i64) {
    let mark = mark_of(libc::F_RDLCK, &(own..own + 1));
    // SAFETY: the kernel reads one lock, and `mark` is one.
    let _ = unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const mark) };
}

/// Takes the mark of a descriptor away.
pub fn clear(fd: RawFd, own: i64) {
    let mark = mark_of(libc::F_UNLCK, &(own..own + 1));
    // SAFETY: the kernel reads one lock, and `mark` is one.
    let _ = unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const mark) };
}

/// Whether another process has marked a descriptor of the same file.
pub fn has_others(fd: RawFd, own: i64) -> bool {
    [MARKS.start..own, own + 1..MARKS.end].iter().filter(|place| !place.is_empty()).any(|place| {
        let mut mark = mark_of(libc::F_WRLCK, place);
        // SAFETY: the kernel reads and writes one lock, and `mark` is one.
        let asked = unsafe { libc::fcntl(fd, libc::F_OFD_GETLK, &raw mut mark) };
        asked == 0 && libc::c_int::from(mark.l_type) != libc::F_UNLCK
    })
}
