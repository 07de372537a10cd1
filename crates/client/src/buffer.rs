//! Memory for data, owned.
#![allow(unsafe_code, reason = "aligned memory comes from the allocator by address")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment: a page, so that the kernel's copies begin where they are fast.
pub const ALIGN: usize = reactor::BUFFER_ALIGN;

/// Bytes aligned to [`ALIGN`], zeroed when made. A command takes it and its completion gives it back; the data is
/// sent from and received into where it is.
#[derive(Debug)]
pub struct Buffer {
    bytes: NonNull<[u8]>,
}

// SAFETY: it owns its bytes, as a box does.
unsafe impl Send for Buffer {}
// SAFETY: shared, it is only read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A buffer of `bytes`.
    ///
    /// # Panics
    /// When `bytes` is 0 or half of the address space.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self::try_new(bytes).unwrap_or_else(|| handle_alloc_error(Self::layout(bytes)))
    }

    /// As [`Buffer::new`]; `None` when there is no memory.
    ///
    /// # Panics
    /// When `bytes` is 0 or half of the address space.
    #[must_use]
    pub fn try_new(bytes: usize) -> Option<Self> {
        assert!(bytes > 0, "a buffer of no bytes");
        // SAFETY: the layout is of more than no bytes.
        let at = NonNull::new(unsafe { alloc_zeroed(Self::layout(bytes)) })?;
        Some(Self { bytes: NonNull::slice_from_raw_parts(at, bytes) })
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, ALIGN)
            .expect("a buffer has less than half of the address space")
    }

    /// Where the bytes are.
    pub(crate) const fn as_raw(&mut self) -> NonNull<[u8]> {
        self.bytes
    }

    /// Gives the bytes up, to whoever frees them with [`Buffer::from_raw`].
    #[must_use]
    pub fn into_raw(self) -> NonNull<[u8]> {
        let bytes = self.bytes;
        std::mem::forget(self);
        bytes
    }

    /// Takes back bytes that were given up.
    ///
    /// # Safety
    /// `bytes` comes from [`Buffer::into_raw`], and is taken back once.
    #[must_use]
    pub const unsafe fn from_raw(bytes: NonNull<[u8]>) -> Self {
        Self { bytes }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.bytes.as_ptr().cast(), Self::layout(self.bytes.len())) };
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: ours, and zeroed when made.
        unsafe { self.bytes.as_ref() }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: ours alone, and zeroed when made.
        unsafe { self.bytes.as_mut() }
    }
}
