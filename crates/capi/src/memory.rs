//! `fl_alloc`.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use client::Buffer;

use crate::border::shield;

/// The largest buffer, bytes: far beyond what any machine has, and within what an allocation may be.
const MOST: usize = isize::MAX as usize / 2;

#[unsafe(no_mangle)]
pub extern "C" fn fl_alloc(bytes: usize) -> *mut c_void {
    if bytes == 0 || bytes > MOST {
        return ptr::null_mut();
    }
    shield(ptr::null_mut(), || {
        Buffer::try_new(bytes).map_or(ptr::null_mut(), |buffer| buffer.into_raw().as_ptr().cast())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_free(memory: *mut c_void, bytes: usize) {
    let Some(memory) = NonNull::new(memory.cast::<u8>()) else { return };
    let bytes = NonNull::slice_from_raw_parts(memory, bytes);
    // SAFETY: from `fl_alloc` with as many bytes, and given back once, by the header.
    shield((), || drop(unsafe { Buffer::from_raw(bytes) }));
}
