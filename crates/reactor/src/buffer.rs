//! Aligned buffers of one reactor: bounded bytes, committed as they are used, first come first
//! served when they run out.
#![allow(unsafe_code, reason = "buffers are places in one mapping")]

use crate::core;
use crate::limits::{BUFFER_ALIGN, BUFFER_MAX, POOL_BYTES, SCRATCH_BYTES};
use crate::sync::Semaphore;
use std::cell::RefCell;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;
use stdx::num::{u32_of, usize32};

/// Size classes: the powers of two from the alignment to the largest buffer.
const CLASSES: usize = usize32(BUFFER_MAX.ilog2() - BUFFER_ALIGN.ilog2()) + 1;

/// How far into its memory what a socket sends best begins: a cache line short of a page.
///
/// The kernel copies with `rep movsb`, which some processors (AMD's Zen 3 was measured) do 15 times
/// slower when the destination lies 1 to 31 bytes behind the source, both modulo a page. Behind a
/// header of some bytes, at the start of what is sent, that is just where bytes that begin at a page
/// go: 128 KiB went at 2 GB/s, and at 13 GB/s a line before.
pub const SEND_START: usize = BUFFER_ALIGN - 64;

#[derive(Default)]
struct Class {
    /// Places ever used: those from here on are untouched memory.
    used: u32,
    /// Free places whose memory is committed, last used on top.
    warm: Vec<u32>,
    /// Free places whose memory was given back to the kernel.
    cold: Vec<u32>,
}

struct Inner {
    classes: [Class; CLASSES],
    /// Bytes of places in use or warm: what may be resident.
    committed: usize,
}

struct Shared {
    base: NonNull<u8>,
    /// Bytes the pool may give out, and the address space each class has.
    bytes: usize,
    inner: RefCell<Inner>,
    budget: Semaphore,
}

/// A bounded set of buffers. Cloning shares it.
#[derive(Clone)]
pub struct Pool {
    shared: Rc<Shared>,
}

const fn class_bytes(class: usize) -> usize {
    BUFFER_ALIGN << class
}

const fn class_of(len: usize) -> usize {
    let rounded = if len < BUFFER_ALIGN { BUFFER_ALIGN } else { len.next_power_of_two() };
    usize32(rounded.ilog2() - BUFFER_ALIGN.ilog2())
}

impl Pool {
    /// A pool of `bytes` at most, a multiple of the largest buffer. Takes address space now and
    /// memory as it is used.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn new(bytes: usize) -> io::Result<Self> {
        assert!(bytes > 0 && bytes.is_multiple_of(BUFFER_MAX), "not a multiple of a buffer");
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new anonymous mapping anywhere touches no memory of ours.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes * CLASSES, access, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let inner = Inner { classes: Default::default(), committed: 0 };
        Ok(Self {
            shared: Rc::new(Shared {
                base,
                bytes,
                inner: RefCell::new(inner),
                budget: Semaphore::new(bytes),
            }),
        })
    }

    /// A buffer of `len` bytes. What is in it is left over from earlier uses.
    ///
    /// # Panics
    /// When `len` exceeds `BUFFER_MAX`.
    pub async fn alloc(&self, len: usize) -> Buffer {
        assert!(len <= BUFFER_MAX, "{len} bytes exceed the largest buffer");
        let class = class_of(len);
        self.shared.budget.acquire(class_bytes(class)).await;
        self.take(class, len)
    }

    /// As [`alloc`](Self::alloc), unless it would have to wait.
    ///
    /// # Panics
    /// When `len` exceeds `BUFFER_MAX`.
    #[must_use]
    pub fn try_alloc(&self, len: usize) -> Option<Buffer> {
        assert!(len <= BUFFER_MAX, "{len} bytes exceed the largest buffer");
        let class = class_of(len);
        self.shared.budget.try_acquire(class_bytes(class)).then(|| self.take(class, len))
    }

    /// As [`alloc`](Self::alloc), the bytes placed for sending ([`SEND_START`]).
    ///
    /// # Panics
    /// When `len` exceeds `BUFFER_MAX` less `SEND_START`.
    pub async fn alloc_to_send(&self, len: usize) -> Buffer {
        let mut buffer = self.alloc(SEND_START + len).await;
        buffer.show(SEND_START, len);
        buffer
    }

    /// As [`alloc_to_send`](Self::alloc_to_send), unless it would have to wait.
    ///
    /// # Panics
    /// As that.
    #[must_use]
    pub fn try_alloc_to_send(&self, len: usize) -> Option<Buffer> {
        let mut buffer = self.try_alloc(SEND_START + len)?;
        buffer.show(SEND_START, len);
        Some(buffer)
    }

    /// Bytes that can be given out now.
    #[must_use]
    pub fn available(&self) -> usize {
        self.shared.budget.available()
    }

    /// A place of `class`, its bytes taken from the budget already: so there is one.
    fn take(&self, class: usize, len: usize) -> Buffer {
        let mut inner = self.shared.inner.borrow_mut();
        let place = if let Some(place) = inner.classes[class].warm.pop() {
            place
        } else {
            while inner.committed + class_bytes(class) > self.shared.bytes {
                self.shared.cool_one(&mut inner);
            }
            inner.committed += class_bytes(class);
            let of_class = &mut inner.classes[class];
            of_class.cold.pop().unwrap_or_else(|| {
                of_class.used += 1;
                of_class.used - 1
            })
        };
        debug_assert!((usize32(place) + 1) * class_bytes(class) <= self.shared.bytes);
        Buffer { pool: Rc::clone(&self.shared), class: u32_of(class), place, start: 0, len }
    }
}

impl Shared {
    fn address(&self, class: usize, place: u32) -> NonNull<u8> {
        let offset = class * self.bytes + usize32(place) * class_bytes(class);
        // SAFETY: class and place are inside the mapping of `bytes * CLASSES`.
        unsafe { self.base.add(offset) }
    }

    /// Gives the memory of one warm place back to the kernel.
    fn cool_one(&self, inner: &mut Inner) {
        let largest = (0..CLASSES).rev().find(|&c| !inner.classes[c].warm.is_empty());
        let Some(class) = largest else {
            unreachable!("committed bytes are in use or warm, and those in use fit the budget")
        };
        let Some(place) = inner.classes[class].warm.pop() else { return };
        inner.classes[class].cold.push(place);
        inner.committed -= class_bytes(class);
        let address = self.address(class, place);
        // SAFETY: the place is free, so nobody looks at its bytes; the kernel is done with it too,
        // because an operation owns its buffer until it completes.
        unsafe { libc::madvise(address.as_ptr().cast(), class_bytes(class), libc::MADV_DONTNEED) };
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: every buffer holds a reference to us, so none is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes * CLASSES) };
    }
}

/// Bytes aligned to 4 KiB, given back to their pool when dropped.
pub struct Buffer {
    pool: Rc<Shared>,
    class: u32,
    place: u32,
    start: usize,
    len: usize,
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer").field("start", &self.start).field("len", &self.len).finish()
    }
}

impl Buffer {
    /// The most bytes it can show, from its aligned beginning.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        class_bytes(usize32(self.class))
    }

    /// Shows `len` bytes from `start` of its memory, whatever it showed before: a read that had to
    /// begin earlier for alignment shows only what was asked for.
    ///
    /// # Panics
    /// When that exceeds the capacity.
    pub fn show(&mut self, start: usize, len: usize) {
        let end = start.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.capacity()), "beyond the buffer");
        self.start = start;
        self.len = len;
    }

    /// Where the shown bytes begin in its memory.
    #[must_use]
    pub const fn start(&self) -> usize {
        self.start
    }

    fn address(&self) -> NonNull<u8> {
        // SAFETY: `start` is inside this buffer's place.
        unsafe { self.pool.address(usize32(self.class), self.place).add(self.start) }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the place is ours alone and mapped, and fresh mappings are zeroed.
        unsafe { std::slice::from_raw_parts(self.address().as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and we are borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.address().as_ptr(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.inner.borrow_mut().classes[usize32(self.class)].warm.push(self.place);
        self.pool.budget.release(self.capacity());
    }
}

/// This reactor's pool, of `POOL_BYTES`.
///
/// # Panics
/// Outside a reactor.
#[must_use]
pub fn pool() -> Pool {
    core::with(|core| core.pool.clone())
}

/// A buffer of `len` bytes from this reactor's pool, waiting for its turn when there is none.
///
/// # Panics
/// Outside a reactor, and when `len` exceeds `BUFFER_MAX`.
pub async fn alloc(len: usize) -> Buffer {
    pool().alloc(len).await
}

/// This reactor's small second pool, of `SCRATCH_BYTES`, for whoever holds a buffer of the first
/// one and needs another to go on: waiting in the first pool for that could wait for ever. Order:
/// the pool, then the scratch pool, one buffer of it at a time.
///
/// # Panics
/// Outside a reactor.
#[must_use]
pub fn scratch_pool() -> Pool {
    core::with(|core| core.scratch.clone())
}

/// A buffer of the scratch pool.
///
/// # Panics
/// As [`alloc`].
pub async fn scratch(len: usize) -> Buffer {
    scratch_pool().alloc(len).await
}

/// Whether this reactor's pool could not give out a largest buffer now.
///
/// # Panics
/// Outside a reactor.
#[must_use]
pub fn is_exhausted() -> bool {
    core::with(|core| core.pool.available() < BUFFER_MAX)
}

const _: () = assert!(POOL_BYTES.is_multiple_of(BUFFER_MAX));
const _: () = assert!(SCRATCH_BYTES.is_multiple_of(BUFFER_MAX));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, run, spawn, yield_now};
    use proptest::prelude::*;
    use std::cell::Cell;

    #[test]
    fn classes() {
        assert_eq!(class_of(0), 0);
        assert_eq!(class_of(4096), 0);
        assert_eq!(class_of(4097), 1);
        assert_eq!(class_of(BUFFER_MAX), CLASSES - 1);
    }

    #[test]
    fn buffers_are_aligned_writable_and_bounded() {
        let pool = Pool::new(BUFFER_MAX).unwrap();
        let mut whole = pool.try_alloc(BUFFER_MAX).unwrap();
        assert!(whole.as_ptr().addr().is_multiple_of(BUFFER_ALIGN));
        whole.fill(7);
        assert!(pool.try_alloc(1).is_none());
        drop(whole);
        let mut small = pool.try_alloc(100).unwrap();
        assert_eq!((small.len(), small.capacity()), (100, 4096));
        small.show(512, 1024);
        assert_eq!((small.start(), small.len()), (512, 1024));
        assert!(small.as_ptr().addr() % BUFFER_ALIGN == 512);
        let to_send = pool.try_alloc_to_send(4096).unwrap();
        assert_eq!((to_send.start(), to_send.len()), (SEND_START, 4096));
    }

    #[test]
    #[should_panic(expected = "beyond the buffer")]
    fn a_view_stays_inside() {
        Pool::new(BUFFER_MAX).unwrap().try_alloc(1).unwrap().show(4096, 1);
    }

    #[test]
    fn who_waits_is_served_in_order() {
        run(Config::default(), async {
            let pool = Pool::new(BUFFER_MAX).unwrap();
            let held = pool.alloc(BUFFER_MAX).await;
            let served = Rc::new(Cell::new(0));
            let tasks: Vec<_> = (1..=3)
                .map(|n| {
                    let (pool, served) = (pool.clone(), Rc::clone(&served));
                    spawn(async move {
                        let _mine = pool.alloc(BUFFER_MAX / 2).await;
                        assert_eq!(served.replace(n), n - 1);
                        yield_now().await;
                    })
                })
                .collect();
            yield_now().await;
            assert_eq!(served.get(), 0);
            drop(held);
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!((served.get(), pool.available()), (3, BUFFER_MAX));
        })
        .unwrap();
    }

    proptest! {
        #[test]
        fn no_two_buffers_share_bytes_and_memory_stays_bounded(
            ops in proptest::collection::vec((any::<bool>(), 1usize..=BUFFER_MAX, any::<prop::sample::Index>()), 1..120)
        ) {
            let pool = Pool::new(2 * BUFFER_MAX).unwrap();
            let mut live: Vec<(u8, Buffer)> = Vec::new();
            for (n, (alloc, len, which)) in ops.into_iter().enumerate() {
                if alloc {
                    if let Some(mut buffer) = pool.try_alloc(len) {
                        let tag = stdx::num::low8(n as u64);
                        let last = len - 1;
                        buffer[0] = tag;
                        buffer[last] = tag;
                        live.push((tag, buffer));
                    }
                } else if !live.is_empty() {
                    live.swap_remove(which.index(live.len()));
                }
                for (tag, buffer) in &live {
                    prop_assert_eq!((buffer[0], buffer[buffer.len() - 1]), (*tag, *tag));
                }
                let used: usize = live.iter().map(|(_, b)| b.capacity()).sum();
                prop_assert_eq!(pool.available(), 2 * BUFFER_MAX - used);
                prop_assert!(pool.shared.inner.borrow().committed <= 2 * BUFFER_MAX);
            }
        }
    }
}
