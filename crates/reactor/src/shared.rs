//! Memory shared with another process, which may write to it at any moment: nothing in it is ever
//! borrowed, bytes are copied in and out.
#![allow(unsafe_code, reason = "a mapping of somebody else's memory")]

use crate::driver::require_real;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use stdx::num::u64_of;

/// A shared mapping of a part of a file that is memory (memfd, hugetlbfs).
///
/// Whoever else has the file can shrink it: touching what is gone ends this process with `SIGBUS`.
/// So map only for those whose own doing this process serves.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
}

impl Mapping {
    /// Maps `len` bytes of `fd` from `offset` on, a multiple of the page size.
    ///
    /// # Errors
    /// As mmap(2); `InvalidInput` when the file is shorter, or `len` is 0.
    pub fn new(fd: impl AsFd, offset: u64, len: usize) -> io::Result<Self> {
        require_real()?;
        let fd = fd.as_fd();
        let size = std::fs::File::from(fd.try_clone_to_owned()?).metadata()?.len();
        let end = offset.checked_add(u64_of(len));
        if len == 0 || end.is_none_or(|end| end > size) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Self::map(fd, offset, len, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Maps `len` bytes of a device's own memory, to be read.
    pub(crate) fn of_device(fd: impl AsFd, offset: u64, len: usize) -> io::Result<Self> {
        Self::map(fd.as_fd(), offset, len, libc::PROT_READ)
    }

    fn map(fd: BorrowedFd<'_>, offset: u64, len: usize, access: i32) -> io::Result<Self> {
        let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let null = std::ptr::null_mut();
        // SAFETY: a new mapping anywhere touches no memory of ours.
        let base =
            unsafe { libc::mmap(null, len, access, libc::MAP_SHARED, fd.as_raw_fd(), offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len, writable: access & libc::PROT_WRITE != 0 })
    }

    /// New memory of `len` zeroed bytes, with the file by which others may map it.
    ///
    /// # Errors
    /// As memfd_create(2) and mmap(2).
    pub fn create(name: &CStr, len: usize) -> io::Result<(Self, OwnedFd)> {
        // SAFETY: the name ends in a zero byte.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor of ours.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        std::fs::File::from(fd.try_clone()?).set_len(u64_of(len))?;
        Ok((Self::new(&fd, 0, len)?, fd))
    }

    /// Bytes mapped.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no mapping is empty")]
    pub const fn len(&self) -> usize {
        self.len
    }

    fn at(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        let end = offset.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.len), "beyond the mapping");
        // SAFETY: inside the mapping.
        unsafe { self.base.add(offset) }
    }

    /// Copies out what is at `offset` now.
    ///
    /// # Panics
    /// Beyond the mapping.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        let from = self.at(offset, into.len());
        let bytes = into.len();
        // SAFETY: `from` is mapped for so many bytes, and no mapping overlaps memory of ours. Others
        // may write meanwhile: then the bytes are any, which all bytes may be.
        unsafe { from.copy_to_nonoverlapping(NonNull::from(into).cast(), bytes) };
    }

    /// Copies `from` to `offset`.
    ///
    /// # Panics
    /// Beyond the mapping.
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert!(self.writable, "not to be written");
        let to = self.at(offset, from.len());
        // SAFETY: `to` is mapped for so many bytes, and no mapping overlaps memory of ours.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(from).cast(), from.len()) };
    }

    fn word(&self, offset: usize) -> &AtomicU16 {
        let at = self.at(offset, size_of::<u16>()).cast::<u16>();
        assert!(at.is_aligned(), "not aligned");
        // SAFETY: mapped as long as `self`, aligned, and all accesses that matter are atomic.
        unsafe { AtomicU16::from_ptr(at.as_ptr()) }
    }

    /// The 16 bits at `offset`, in this machine's order.
    ///
    /// # Panics
    /// Beyond the mapping, and when `offset` is odd.
    #[must_use]
    pub fn load(&self, offset: usize, order: Ordering) -> u16 {
        self.word(offset).load(order)
    }

    /// Sets the 16 bits at `offset`.
    ///
    /// # Panics
    /// As [`load`](Self::load).
    pub fn store(&self, offset: usize, value: u16, order: Ordering) {
        assert!(self.writable, "not to be written");
        self.word(offset).store(value, order);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing borrows from the mapping for longer than a call.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_of_a_file_show_the_same() {
        let (one, fd) = Mapping::create(c"shared", 8192).unwrap();
        let two = Mapping::new(&fd, 4096, 4096).unwrap();
        one.write(5000, b"hello");
        let mut seen = [0; 5];
        two.read(904, &mut seen);
        assert_eq!((&seen, two.len()), (b"hello", 4096));
        two.store(2, 0x1234, Ordering::Release);
        assert_eq!(one.load(4098, Ordering::Acquire), 0x1234);
        assert!(Mapping::new(&fd, 4096, 4097).is_err(), "beyond the file");
        assert!(Mapping::new(&fd, u64::MAX, 4096).is_err());
        assert!(Mapping::new(&fd, 0, 0).is_err());
    }

    #[test]
    #[should_panic(expected = "beyond the mapping")]
    fn nothing_is_read_beyond_a_mapping() {
        Mapping::create(c"shared", 4096).unwrap().0.read(4090, &mut [0; 7]);
    }
}
