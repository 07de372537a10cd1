//! rdma-core's libraries, loaded when they are first needed.
#![allow(unsafe_code, reason = "a library is loaded")]

use core::ffi::{CStr, c_int, c_void};
use std::io;
use std::sync::OnceLock;

use crate::ffi::{Functions, Which};

static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();

/// Loads the libraries, if they are not yet.
///
/// # Errors
/// `Unsupported`: this build, or this machine, has none; with words for an administrator.
pub fn load() -> io::Result<()> {
    functions().map(drop)
}

/// The functions, loaded by whoever asks first.
pub fn functions() -> io::Result<&'static Functions> {
    let loaded = FUNCTIONS.get_or_init(find);
    loaded.as_ref().map_err(|why| io::Error::new(io::ErrorKind::Unsupported, why.as_str()))
}

fn find() -> Result<Functions, String> {
    if !cfg!(feature = "rdma") {
        return Err("this program was built without RDMA (cargo feature `rdma`)".to_owned());
    }
    let [verbs, cm] = [Which::Verbs, Which::Cm].map(open);
    let (verbs, cm) = (verbs?, cm?);
    // SAFETY: these are rdma-core's libraries by the names under which it keeps its interface compatible.
    unsafe {
        Functions::find(|which, name| {
            let library = if which == Which::Cm { cm } else { verbs };
            let found = libc::dlsym(library, name.as_ptr());
            match found.is_null() {
                false => Ok(found),
                true => Err(format!(
                    "{} of this machine has no {}: rdma-core is too old",
                    which.file().to_string_lossy(),
                    name.to_string_lossy()
                )),
            }
        })
    }
}

/// Opens a library; it stays open.
fn open(which: Which) -> Result<*mut c_void, String> {
    // SAFETY: rdma-core's libraries have no initializers that need anything of the program.
    let library = unsafe { libc::dlopen(which.file().as_ptr(), libc::RTLD_NOW) };
    if !library.is_null() {
        return Ok(library);
    }
    // SAFETY: after a failed call this is its message, a string, or null; it is copied before another call.
    let why = unsafe {
        let text = libc::dlerror();
        if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into() }
    };
    Err(format!("this machine has no rdma-core: {why}"))
}

/// What a function of librdmacm, or one of libibverbs that returns -1, says.
pub fn checked(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What a function says that returns the error's number.
pub fn numbered(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        // Some drivers say -1 where others say which.
        ..0 => Err(io::Error::last_os_error()),
        _ => Err(io::Error::from_raw_os_error(result)),
    }
}
