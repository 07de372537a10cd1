//! `fl_options`.

use std::ffi::{c_char, c_int};
use std::ptr;

use client::Options;

use crate::border::{FlError, given, given_mut, guard, shield, text};

/// Whom to connect to, and how.
pub struct FlOptions(pub Options);

#[unsafe(no_mangle)]
pub extern "C" fn fl_options_new() -> *mut FlOptions {
    shield(ptr::null_mut(), || Box::into_raw(Box::new(FlOptions(Options::default()))))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_options_copy(options: *const FlOptions) -> *mut FlOptions {
    shield(ptr::null_mut(), || {
        // SAFETY: valid or NULL, by the header.
        let Some(options) = (unsafe { options.as_ref() }) else { return ptr::null_mut() };
        Box::into_raw(Box::new(FlOptions(options.0.clone())))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_options_free(options: *mut FlOptions) {
    if !options.is_null() {
        // SAFETY: from `fl_options_new`, and given back once.
        shield((), || drop(unsafe { Box::from_raw(options) }));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_options_set(
    options: *mut FlOptions,
    name: *const c_char,
    value: *const c_char,
    error: *mut FlError,
) -> c_int {
    guard(error, || {
        // SAFETY: valid or NULL, and texts end with a NUL, by the header.
        let (options, name, value) =
            unsafe { (given_mut(options, "options")?, text(name, "name")?, text(value, "value")?) };
        options.0.set(name, value)?;
        Ok(0)
    })
}

/// The options behind a pointer.
///
/// # Safety
/// It is valid for reads for as long as the caller says, or NULL.
pub unsafe fn options_of<'a>(options: *const FlOptions) -> Result<&'a Options, client::Error> {
    // SAFETY: the caller's promise.
    Ok(&unsafe { given(options, "options") }?.0)
}
