//! A mapping whose bytes outlive what wrote them, to the degree its file does.
#![allow(unsafe_code, reason = "the mapping is shared, raw memory, stored to past the cache")]

use super::LINE;
use super::guard::{Damage, page_size};
use crate::error::{Error, Kind, Operation};
use crate::limits::REGION_MAX;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use stdx::num::{u64_of, usize64};

/// From this length on stores may go past the cache.
const STREAM_BYTES: usize = 4096;

/// How a file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// `MAP_SYNC`: a line flushed is a line kept.
    Dax,
    /// Through the page cache: kept while the machine runs.
    Shared,
    /// The file is only read: what is stored stays here.
    Private,
}

/// How much of a file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// As much as there is. Where there is no file, one of so many zeroes is made, if any are wanted.
    All(Option<u64>),
    /// Its first bytes, however many another process made of them since.
    First(u64),
}

/// A mapping of a fixed length.
#[derive(Debug)]
pub struct Mapped {
    base: NonNull<u8>,
    len: u64,
    writable: bool,
    damage: Damage,
    /// The file that it maps.
    path: Option<PathBuf>,
}

// SAFETY: the mapping belongs to the value and stays until it is dropped. Its bytes are plain memory
// that other processes may see too; each range is used by one core at a time, as `Pmem` asks.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

fn open_error(source: io::Error, len: u64) -> Error {
    Error::from_io(source, Operation::Open, 0, len)
}

/// Gives the file its length, with space behind all of it: a store to a hole of a full file system
/// would be a signal, not an error.
fn reserve(file: &File, len: u64) -> io::Result<()> {
    let len = i64::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    loop {
        // SAFETY: the descriptor is open, and no memory of ours is touched.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, len) } {
            0 => return Ok(()),
            libc::EINTR => {}
            rc => return Err(io::Error::from_raw_os_error(rc)),
        }
    }
}

/// Gives the file zeroes up to this length, if it is shorter.
pub(super) fn fill_up(file: &File, path: &Path, len: u64) -> Result<(), Error> {
    reserve(file, len).map_err(|e| open_error(e, len))?;
    // The file's name, length and blocks must be there after a power loss too.
    file.sync_all().map_err(|e| open_error(e, len))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))
        .and_then(|folder| folder.sync_all())
        .map_err(|e| open_error(e, len))
}

impl Mapped {
    pub(super) fn file(path: &Path, length: Length, way: Way) -> Result<Self, Error> {
        let create = match length {
            Length::All(create) if !path.exists() => create,
            _ => None,
        };
        let file = OpenOptions::new()
            .read(true)
            .write(way != Way::Private)
            .create_new(create.is_some())
            .mode(0o600)
            .open(path)
            .map_err(|e| open_error(e, 0))?;
        let made = create.map_or(Ok(()), |len| fill_up(&file, path, len));
        let mapped = made.and_then(|()| Self::of(&file, path, length, way));
        if mapped.is_err() && create.is_some() {
            // Made for nothing. The error tells more than a failure to take it away again.
            let _left = std::fs::remove_file(path);
        }
        mapped
    }

    fn of(file: &File, path: &Path, length: Length, way: Way) -> Result<Self, Error> {
        let has = file.metadata().map_err(|e| open_error(e, 0))?.len();
        let len = match length {
            Length::All(_) => has,
            Length::First(len) => len,
        };
        if len > has {
            return Err(Error::new(Kind::OutOfRange, Operation::Open, 0, len));
        }
        if len == 0 || len > REGION_MAX {
            return Err(Error::new(Kind::Unsupported, Operation::Open, 0, len));
        }
        // One that somebody else made, or gave back sparse: a store to a hole that finds no room would be a signal.
        if way == Way::Shared && matches!(length, Length::All(_)) {
            reserve(file, has).map_err(|e| open_error(e, has))?;
        }
        let flags = match way {
            Way::Dax if cfg!(not(target_arch = "x86_64")) => {
                return Err(Error::new(Kind::Unsupported, Operation::Open, 0, len));
            }
            Way::Dax => libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC | libc::MAP_POPULATE,
            Way::Shared => libc::MAP_SHARED | libc::MAP_POPULATE,
            Way::Private => libc::MAP_PRIVATE | libc::MAP_NORESERVE,
        };
        let mut mapped = Self::map(len, flags, file.as_raw_fd(), true)?;
        mapped.path = Some(path.to_owned());
        if way == Way::Dax {
            mapped.populate();
        }
        Ok(mapped)
    }

    /// The first `len` bytes of a file that another process made, whole pages.
    pub(super) fn of_fd(
        fd: BorrowedFd<'_>,
        len: u64,
        writable: bool,
        way: Way,
    ) -> Result<Self, Error> {
        let file = fd.try_clone_to_owned().map(File::from).map_err(|e| open_error(e, len))?;
        let has = file.metadata().map_err(|e| open_error(e, len))?.len();
        if len == 0 || len > has.min(REGION_MAX) || !usize64(len).is_multiple_of(page_size()) {
            return Err(Error::new(Kind::Unsupported, Operation::Open, 0, len));
        }
        let kept = match way {
            Way::Dax => libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC,
            Way::Shared => libc::MAP_SHARED,
            Way::Private => libc::MAP_PRIVATE,
        };
        let mapped = Self::map(len, kept | libc::MAP_POPULATE, file.as_raw_fd(), writable)?;
        if writable {
            mapped.populate();
            mapped.keep_from_children();
        }
        Ok(mapped)
    }

    /// A child that this process forks does not have it: two would store as one. It is ended by a signal where it tries.
    fn keep_from_children(&self) {
        // SAFETY: our own mapping, whose contents it leaves alone.
        unsafe {
            libc::madvise(self.base.as_ptr().cast(), usize64(self.len), libc::MADV_DONTFORK);
        }
    }

    /// Has every page there, to be written. The first store to a page of a mapping that is to be synchronous commits
    /// the file system's journal: now, not under the first writes. Only advice: older kernels do not know it.
    fn populate(&self) {
        // SAFETY: our own mapping, whose contents it leaves alone.
        unsafe {
            let whole = usize64(self.len);
            libc::madvise(self.base.as_ptr().cast(), whole, libc::MADV_POPULATE_WRITE);
        }
    }

    pub(super) fn anonymous(len: u64) -> Result<Self, Error> {
        if len == 0 || len > REGION_MAX {
            return Err(Error::new(Kind::Unsupported, Operation::Open, 0, len));
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        Self::map(len, flags, -1, true)
    }

    fn map(len: u64, flags: i32, fd: i32, writable: bool) -> Result<Self, Error> {
        let access = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new mapping anywhere touches no memory of ours.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), usize64(len), access, flags, fd, 0) };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => {
                Ok(Self { base, len, writable, damage: Damage::new(usize64(len)), path: None })
            }
            _ => Err(open_error(io::Error::last_os_error(), len)),
        }
    }

    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// The file that it maps, if there is one.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// A word of 8 bytes, aligned, that another process may read or store at any moment.
    fn word(&self, offset: u64) -> &AtomicU64 {
        let at = self.at(offset, size_of::<u64>()).cast::<u64>();
        assert!(at.is_aligned(), "a word is aligned");
        // SAFETY: mapped as long as `self`, aligned, and whoever shares it stores it whole.
        unsafe { AtomicU64::from_ptr(at) }
    }

    /// `None` when it cannot be had.
    pub(super) fn load(&self, offset: u64) -> Option<u64> {
        let word = self.word(offset);
        self.watch(offset, size_of::<u64>(), || u64::from_le(word.load(Ordering::Acquire)))
    }

    /// Stores a word, and has it leave the cache where that is not as safe as the memory.
    pub(super) fn store(&self, offset: u64, value: u64, flush: bool) {
        self.word(offset).store(value.to_le(), Ordering::Release);
        #[cfg(target_arch = "x86_64")]
        if flush {
            // SAFETY: the address is inside the mapping, and every x86-64 has the instruction.
            unsafe { std::arch::x86_64::_mm_clflush(self.at(offset, size_of::<u64>())) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = flush;
    }

    /// Has the lines of a range leave the cache.
    pub(super) fn flush_lines(&self, offset: u64, len: usize) {
        let from = usize64(offset) / LINE * LINE;
        let lines = (from..usize64(offset) + len).step_by(LINE);
        #[cfg(target_arch = "x86_64")]
        for line in lines {
            // SAFETY: the line is inside the mapping, which is pages; every x86-64 has the instruction, and it changes
            // nothing.
            unsafe { std::arch::x86_64::_mm_clflush(self.at(u64_of(line), 1)) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        drop(lines);
    }

    /// Copies out what is there now, which another process may change meanwhile; false when it cannot be had.
    #[inline]
    pub(super) fn copy_out(&self, offset: u64, out: &mut [u8]) -> bool {
        let from = self.at(offset, out.len());
        let len = out.len();
        let copy = || {
            // SAFETY: `at` asserts the range, and `out` is elsewhere. Where others store meanwhile the bytes are any.
            unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        };
        self.watch(offset, len, copy).is_some()
    }

    /// Runs `work`, which touches a range and nothing else; `None` when that cannot be reached.
    #[inline]
    fn watch<R>(&self, offset: u64, len: usize, work: impl FnOnce() -> R) -> Option<R> {
        let (whole, from) = (usize64(self.len), usize64(offset));
        self.damage.watch((self.base.as_ptr(), whole), from..from + len, work)
    }

    /// The address of a range inside the mapping.
    fn at(&self, offset: u64, len: usize) -> *mut u8 {
        assert!(offset.checked_add(u64_of(len)).is_some_and(|end| end <= self.len));
        // SAFETY: inside the mapping, asserted above.
        unsafe { self.base.as_ptr().add(usize64(offset)) }
    }

    /// Calls `look` with bytes where they lie; `None` when they cannot be had.
    #[inline]
    pub(super) fn look<R>(
        &self,
        offset: u64,
        len: usize,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        let from = self.at(offset, len);
        // SAFETY: `at` asserts the range; nobody writes it while it is looked at, as `Pmem` asks.
        let bytes = unsafe { std::slice::from_raw_parts(from, len) };
        self.watch(offset, len, || look(bytes))
    }

    /// Changes bytes by `change`; false when they cannot be reached, or others could not before: what fails in
    /// part is written no more. Neither can those of a mapping that is only looked at.
    #[inline]
    pub(super) fn change(&self, change: impl FnOnce(&Self)) -> bool {
        self.writable && self.watch(0, usize64(self.len), || change(self)).is_some()
    }

    /// Stores where the cache is as safe as the memory. With `past` what is long goes past the cache
    /// all the same: to fetch lines first only to overwrite them is half of a copy's time.
    #[inline]
    pub(super) fn copy_in(&self, offset: u64, data: &[u8], past: bool) {
        let to = self.at(offset, data.len());
        #[cfg(target_arch = "x86_64")]
        if past && data.len() >= STREAM_BYTES && to.align_offset(LINE) == 0 {
            let (lines, rest) = (data.len() / LINE, data.len() % LINE);
            // SAFETY: as below; `to` is aligned, and the last, partial line is left out.
            unsafe { stream_lines(to, data.as_ptr(), lines) };
            let done = data.len() - rest;
            return self.copy_in(offset + u64_of(done), &data[done..], false);
        }
        // SAFETY: `at` asserts the range, and `data` is elsewhere: no slice of the mapping outlives
        // the call it was given to.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
    }

    /// Stores past the cache: whole lines by non-temporal stores, the ends through the cache and
    /// then flushed.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn stream(&self, offset: u64, data: &[u8]) {
        let to = self.at(offset, data.len());
        let head = to.align_offset(LINE).min(data.len());
        let whole = (data.len() - head) / LINE * LINE;
        self.flush_in(offset, &data[..head]);
        // SAFETY: the range is asserted above, `to + head` is aligned to a line, and `whole` bytes
        // from there are inside both ranges, which do not overlap.
        unsafe { stream_lines(to.add(head), data[head..head + whole].as_ptr(), whole / LINE) };
        self.flush_in(offset + u64_of(head + whole), &data[head + whole..]);
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn stream(&self, offset: u64, data: &[u8]) {
        self.copy_in(offset, data, false);
    }

    /// Stores less than a line through the cache and flushes the line.
    #[cfg(target_arch = "x86_64")]
    fn flush_in(&self, offset: u64, data: &[u8]) {
        debug_assert!(data.len() < LINE);
        if data.is_empty() {
            return;
        }
        self.copy_in(offset, data, false);
        // SAFETY: the address is inside the mapping, and every x86-64 has the instruction. The bytes
        // lie within one line: they end or begin at its border.
        unsafe { std::arch::x86_64::_mm_clflush(self.at(offset, data.len())) };
    }
}

/// Copies lines past the cache.
///
/// # Safety
/// `to` is aligned to a line; `lines` lines are readable at `from` and writable at `to`, and do not
/// overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn stream_lines(to: *mut u8, from: *const u8, lines: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    for line in 0..lines {
        for part in 0..LINE / size_of::<__m128i>() {
            let at = line * LINE + part * size_of::<__m128i>();
            // SAFETY: within the lines promised, and aligned as streams must be.
            unsafe { _mm_stream_si128(to.add(at).cast(), _mm_loadu_si128(from.add(at).cast())) };
        }
    }
}

/// Orders every store before it, non-temporal ones and flushes too, before any after it.
#[inline]
pub(super) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, and it touches no memory.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// As [`fence`], and before anything that is read after it.
#[inline]
pub(super) fn full_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, and it touches no memory.
    unsafe {
        std::arch::x86_64::_mm_mfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and nobody can use it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), usize64(self.len)) };
    }
}
