//! Memory as a medium: one mapping, committed as it is written, given back where it is deallocated.
#![allow(unsafe_code, reason = "the mapping is shared, raw memory")]

use crate::error::{Error, Kind, Operation};
use crate::limits::{LOCK_SPINS, REGION_LOCKS, REGION_MAX, REGION_RESERVE};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use stdx::num::{align_down, align_up, u64_of, usize32, usize64};

/// The granularity in which memory comes and goes.
const PAGE: u64 = 4096;

/// How far into its mapping a region of one core begins, which is sent from where it lies.
const SKEW: u64 = u64_of(reactor::buffer::SEND_START);

/// A region of at most this share of the machine's memory has transparent huge pages: a block at random is
/// found without a walk through page tables that no cache holds. A larger one is thin on purpose: it
/// takes a page, and not 2 MiB, for a block that is written.
const HUGE_SHARE: u64 = 4;

/// Bytes at the start of a range worth fetching ahead: a few lines, from which the processor sees
/// where this is going. 4 KiB at random were copied in 0.45 us so, and in 0.67 without; more lines
/// gained nothing.
const PREFETCH_BYTES: usize = 256;

/// How a region is made.
#[derive(Clone, Copy, Debug)]
pub struct RegionOptions {
    /// The logical block, a power of two from 512 bytes to a page: what is never seen half written.
    pub block_size: u32,
    /// More than one core uses the region: blocks are then copied under locks.
    pub shared: bool,
    /// Takes the memory at once, in transparent huge pages where there are any: nothing faults later,
    /// and what the machine cannot hold is refused now. Otherwise memory comes as it is written.
    pub committed: bool,
}

impl Default for RegionOptions {
    fn default() -> Self {
        Self { block_size: 4096, shared: true, committed: false }
    }
}

/// Zeroed memory of a fixed capacity, usable from every core. A logical block is never seen half
/// written: on one core because copies do not wait, across cores by a lock for each block.
pub struct Region {
    /// The mapping, and its length.
    base: NonNull<u8>,
    reserved: u64,
    /// Where in the mapping the region begins.
    skew: u64,
    len: AtomicU64,
    /// Bytes that were ever within the capacity: they stay accessible.
    opened: AtomicU64,
    block: u32,
    committed: bool,
    /// Empty when only one core uses the region.
    locks: Box<[AtomicBool]>,
}

// SAFETY: the mapping belongs to the region as a whole and stays until it is dropped. Bytes are only
// touched by copies of whole blocks under their locks, or, without locks, from one core only, which
// is what `shared: false` promises.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region").field("len", &self.len()).field("block", &self.block).finish()
    }
}

/// One block's lock, held while it is copied.
struct Locked<'a>(Option<&'a AtomicBool>);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if let Some(lock) = self.0 {
            lock.store(false, Ordering::Release);
        }
    }
}

/// The machine's memory in bytes; 0 where it is not known.
fn machine_memory() -> u64 {
    // SAFETY: a plain question.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).unwrap_or(0).saturating_mul(PAGE)
}

fn open_error(kind: Kind, len: u64) -> Error {
    Error::new(kind, Operation::Open, 0, len)
}

impl Region {
    /// `len` zero bytes. Unless they are to be committed, none takes memory until it is written.
    ///
    /// # Errors
    /// `Unsupported` for a block size that is not a power of two from 512 to 4096, or a length that
    /// is not a multiple of it; `TooLarge` past `REGION_MAX`; `Full` when there is no address space, or no memory to commit.
    pub fn new(len: u64, options: RegionOptions) -> Result<Self, Error> {
        let block = options.block_size;
        let fits = block.is_power_of_two() && (512..=4096).contains(&block);
        if !fits || len == 0 || !len.is_multiple_of(u64::from(block)) {
            return Err(open_error(Kind::Unsupported, len));
        }
        if len > REGION_MAX {
            return Err(open_error(Kind::TooLarge, len));
        }
        let reserved = align_up(len.max(REGION_RESERVE), PAGE).unwrap_or(REGION_MAX) + PAGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // Reserved without access, and opened as far as the region reaches.
        // SAFETY: a new anonymous mapping anywhere touches no memory of ours.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), usize64(reserved), libc::PROT_NONE, flags, -1, 0)
        };
        let base = match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => base,
            _ => {
                let source = io::Error::last_os_error();
                let words = format!(
                    "{} GiB of address space, of which it uses what it needs, are not to be had (`ulimit -v` must be \
                     unlimited): {source}",
                    reserved >> 30
                );
                let source = io::Error::new(source.kind(), words);
                return Err(Error { source: Some(source), ..open_error(Kind::Full, len) });
            }
        };
        let locks = if options.shared { REGION_LOCKS } else { 0 };
        let region = Self {
            base,
            reserved,
            skew: if options.shared { 0 } else { SKEW },
            len: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            block,
            committed: options.committed,
            locks: (0..locks).map(|_| AtomicBool::new(false)).collect(),
        };
        region.resize(len)?;
        Ok(region)
    }

    /// Capacity in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The logical block in bytes.
    #[must_use]
    pub const fn block_size(&self) -> u32 {
        self.block
    }

    /// Whether blocks are locked while they are copied.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        !self.locks.is_empty()
    }

    /// Changes the capacity. What lies beyond a smaller one is gone for good; what a larger one adds
    /// is zero.
    ///
    /// # Errors
    /// `Unsupported` for a length that is not a multiple of the block, `TooLarge` past the address
    /// space reserved.
    pub fn resize(&self, len: u64) -> Result<(), Error> {
        let error = |kind| Error::new(kind, Operation::Resize, 0, len);
        if len == 0 || !len.is_multiple_of(u64::from(self.block)) {
            return Err(error(Kind::Unsupported));
        }
        let end = len.checked_add(self.skew).and_then(|end| align_up(end, PAGE));
        let end = end.ok_or_else(|| error(Kind::TooLarge))?;
        if len > self.reserved - PAGE {
            return Err(error(Kind::TooLarge));
        }
        let old = self.len();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // Pages once opened stay open, so that a copy racing with a smaller size meets zeroes, not
        // a fault.
        // SAFETY: the range is the beginning of our own mapping.
        let rc = unsafe { libc::mprotect(self.base.as_ptr().cast(), usize64(end), access) };
        if rc != 0 {
            let source = io::Error::last_os_error();
            return Err(Error { source: Some(source), ..error(Kind::Full) });
        }
        if self.committed || len <= machine_memory() / HUGE_SHARE {
            // A kernel without huge pages refuses: pages of the usual size do as well.
            let _ = self.advise(end, libc::MADV_HUGEPAGE);
        }
        if self.committed {
            self.advise(end, libc::MADV_POPULATE_WRITE)
                .map_err(|source| Error { source: Some(source), ..error(Kind::Full) })?;
        }
        if len < old {
            self.zero(len, old - len);
        }
        self.opened.fetch_max(len, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        Ok(())
    }

    /// Advice on the accessible part of the mapping, up to `end`, that changes nothing in it.
    fn advise(&self, end: u64, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: the accessible part of our own mapping; callers give advice that keeps its bytes.
        match unsafe { libc::madvise(self.base.as_ptr().cast(), usize64(end), advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn check(&self, operation: Operation, offset: u64, len: u64) -> Result<(), Error> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len() => Ok(()),
            _ => Err(Error::new(Kind::OutOfRange, operation, offset, len)),
        }
    }

    /// The address of a checked offset.
    fn at(&self, offset: u64) -> *mut u8 {
        debug_assert!(self.skew + offset <= self.reserved);
        // SAFETY: callers checked that `offset` is inside the region, and so inside the mapping.
        unsafe { self.base.as_ptr().add(usize64(self.skew + offset)) }
    }

    #[inline]
    fn lock(&self, offset: u64) -> Locked<'_> {
        if self.locks.is_empty() {
            return Locked(None);
        }
        let block = usize64(offset / u64::from(self.block));
        let lock = &self.locks[block % REGION_LOCKS];
        let mut spins = 0;
        while lock.swap(true, Ordering::Acquire) {
            spins += 1;
            if spins % LOCK_SPINS == 0 {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        Locked(Some(lock))
    }

    /// Calls `f` for each part of a range that lies within one block, or once for all of it when no
    /// other core can see it.
    #[inline]
    fn pieces(&self, offset: u64, len: usize, mut f: impl FnMut(*mut u8, usize, usize)) {
        if self.locks.is_empty() {
            f(self.at(offset), 0, len);
            return;
        }
        let block = usize32(self.block);
        let mut done = 0;
        while done < len {
            let at = offset + u64_of(done);
            let rest = block - usize64(at % u64_of(block));
            let n = rest.min(len - done);
            let _locked = self.lock(at);
            f(self.at(at), done, n);
            done += n;
        }
    }

    /// Stores `data` at `offset`.
    ///
    /// # Errors
    /// `OutOfRange`.
    #[inline]
    pub fn copy_in(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.check(Operation::Write, offset, u64_of(data.len()))?;
        self.pieces(offset, data.len(), |to, from, n| {
            // SAFETY: the range is inside the mapping, checked above, and `data` is elsewhere: no
            // slice of the region is ever given out for longer than a call.
            unsafe { stream::copy(&data[from..from + n], to) };
        });
        Ok(())
    }

    /// Fetches `out.len()` bytes from `offset`.
    ///
    /// # Errors
    /// `OutOfRange`.
    #[inline]
    pub fn copy_out(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.check(Operation::Read, offset, u64_of(out.len()))?;
        self.pieces(offset, out.len(), |from, to, n| {
            // SAFETY: as in `copy_in`.
            unsafe { std::ptr::copy_nonoverlapping(from, out[to..to + n].as_mut_ptr(), n) };
        });
        Ok(())
    }

    /// The index of the first byte that differs from `data` at `offset`, if any does.
    ///
    /// # Errors
    /// `OutOfRange`.
    pub fn mismatch(&self, offset: u64, data: &[u8]) -> Result<Option<usize>, Error> {
        self.check(Operation::Read, offset, u64_of(data.len()))?;
        let mut first = None;
        self.pieces(offset, data.len(), |from, at, n| {
            if first.is_none() {
                // SAFETY: inside the mapping, checked above; nobody writes these bytes meanwhile:
                // other cores are kept out by the lock, and this core is here.
                let stored = unsafe { std::slice::from_raw_parts(from, n) };
                let given = &data[at..at + n];
                if stored != given {
                    let differs = stored.iter().zip(given).position(|(a, b)| a != b);
                    first = differs.map(|i| at + i);
                }
            }
        });
        Ok(first)
    }

    /// Copies `len` bytes within the region, block by block. Ranges that overlap give what a copy
    /// from the lowest block upwards gives.
    ///
    /// # Errors
    /// `OutOfRange`.
    pub fn copy_within(&self, from: u64, to: u64, len: u64) -> Result<(), Error> {
        self.check(Operation::Read, from, len)?;
        self.check(Operation::Write, to, len)?;
        let mut block = [0u8; 4096];
        let step = u64::from(self.block);
        let mut done = 0;
        while done < len {
            let n = step.min(len - done);
            let part = &mut block[..usize64(n)];
            self.copy_out(from + done, part)?;
            self.copy_in(to + done, part)?;
            done += n;
        }
        Ok(())
    }

    /// Gives whole pages of a range back and zeroes the rest: all of it reads as zeroes after.
    ///
    /// # Errors
    /// `OutOfRange`.
    pub fn deallocate(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.check(Operation::Deallocate, offset, len)?;
        self.zero(offset, len);
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) {
        // The whole pages in the range, as offsets into the mapping.
        let (start, end) = (self.skew + offset, self.skew + offset + len);
        let last = align_down(end, PAGE);
        let first = align_up(start, PAGE).unwrap_or(last);
        if first >= last {
            self.fill_zero(offset, len);
        } else {
            self.fill_zero(offset, first - start);
            self.fill_zero(last - self.skew, end - last);
            if !self.give_back(first, last) {
                self.fill_zero(first - self.skew, last - first);
            }
        }
        if self.skew != 0 {
            // Blocks do not end where pages do: what they share a page with may have gone before.
            self.give_back_if_zero(align_down(start, PAGE));
            self.give_back_if_zero(align_down(end, PAGE));
        }
    }

    /// Gives the pages of a part of the mapping back: they read as zeroes then. False for memory that
    /// is locked.
    fn give_back(&self, from: u64, to: u64) -> bool {
        let len = usize64(to - from);
        // SAFETY: whole pages of our own mapping. A copy running on another core meanwhile sees
        // each page before or after, and a block is never larger than a page.
        unsafe {
            let at = self.base.as_ptr().add(usize64(from));
            libc::madvise(at.cast(), len, libc::MADV_DONTNEED) == 0
        }
    }

    /// Gives a page of the mapping back when nothing is in it. For a region of one core.
    fn give_back_if_zero(&self, page: u64) {
        if page >= self.skew + self.opened.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: a page of the accessible part of our mapping, and nobody writes to it meanwhile:
        // there is no other core.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.base.as_ptr().add(usize64(page)), usize64(PAGE))
        };
        if bytes.iter().all(|&b| b == 0) {
            // Memory that is locked stays, zero as it is.
            self.give_back(page, page + PAGE);
        }
    }

    fn fill_zero(&self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        self.pieces(offset, usize64(len), |at, _, n| {
            // SAFETY: callers checked the range, and writers are kept out as in `copy_in`.
            unsafe { at.write_bytes(0, n) };
        });
    }

    /// The bytes themselves, for sending them from where they lie. They are what the region holds
    /// when they are looked at: use the slice within the call that got it, never over an await, and
    /// only for a region of one core ([`is_shared`](Self::is_shared) is false) when it matters that
    /// blocks are whole. A range that a smaller size has cut off since it was checked is zeroes.
    ///
    /// # Errors
    /// `OutOfRange` for what was never within the capacity.
    #[inline]
    pub fn bytes(&self, offset: u64, len: usize) -> Result<&[u8], Error> {
        let end = offset.checked_add(u64_of(len));
        if end.is_none_or(|end| end > self.opened.load(Ordering::Relaxed)) {
            return Err(Error::new(Kind::OutOfRange, Operation::Read, offset, u64_of(len)));
        }
        // SAFETY: inside the accessible part of the mapping, checked above, which lives as long as
        // the region. The slice is handed to a system call, which takes the bytes as they are.
        Ok(unsafe { std::slice::from_raw_parts(self.at(offset), len) })
    }

    /// Has the processor fetch the start of a range that is going to be sent or copied.
    #[inline]
    pub fn prefetch_start(&self, offset: u64, len: usize) {
        self.prefetch(offset, len.min(PREFETCH_BYTES));
    }

    /// Has the processor fetch a range.
    #[inline]
    pub fn prefetch(&self, offset: u64, len: usize) {
        if let Ok(bytes) = self.bytes(offset, len) {
            stream::prefetch(bytes);
        }
    }

    /// Bytes of the region that are resident, by mincore(2). Slow: for status and tests.
    ///
    /// # Errors
    /// As the system call.
    pub fn resident(&self) -> io::Result<u64> {
        const CHUNK: u64 = 1 << 30;
        let mut pages = vec![0u8; usize64(CHUNK / PAGE)];
        let end = self.skew + self.len();
        let (mut at, mut total) = (0, 0);
        while at < end {
            let len = usize64(CHUNK.min(end - at));
            // SAFETY: the range is inside the mapping, and `pages` has a byte for each of its pages.
            let rc = unsafe {
                let from = self.base.as_ptr().add(usize64(at));
                libc::mincore(from.cast(), len, pages.as_mut_ptr())
            };
            if rc != 0 {
                return Err(io::Error::last_os_error());
            }
            let count = len.div_ceil(usize64(PAGE));
            total += u64_of(pages[..count].iter().filter(|&&p| p & 1 != 0).count()) * PAGE;
            at += CHUNK;
        }
        Ok(total)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and nobody can use it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), usize64(self.reserved)) };
    }
}

mod pinned;
mod stream;

pub use pinned::{PinnedRead, SharedRegion};
pub use stream::prefetch;

#[cfg(test)]
mod tests;
