//! What every function at the border does: look at its pointers, keep panics inside, tell errors.

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use client::Error;

/// `enum fl_code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    Ok = 0,
    Invalid = -1,
    Connect = -2,
    Refused = -3,
    Nvme = -4,
    TimedOut = -5,
    Lost = -6,
    InDoubt = -7,
    Removed = -8,
    Unsupported = -9,
    Closed = -10,
    Full = -11,
    System = -12,
    Panic = -13,
}

const CODES: [(Code, &CStr); 14] = [
    (Code::Ok, c"success"),
    (Code::Invalid, c"an argument makes no sense"),
    (Code::Connect, c"cannot connect"),
    (Code::Refused, c"the controller refused the connection"),
    (Code::Nvme, c"the command failed"),
    (Code::TimedOut, c"no answer came in time"),
    (Code::Lost, c"the association is lost"),
    (Code::InDoubt, c"the outcome of the command is not known"),
    (Code::Removed, c"the namespace was removed or replaced"),
    (Code::Unsupported, c"the controller or the namespace cannot do that"),
    (Code::Closed, c"the namespace is shut down"),
    (Code::Full, c"the queue is full"),
    (Code::System, c"the operating system refused something"),
    (Code::Panic, c"a defect of the library"),
];

impl Code {
    /// As functions return it.
    pub const fn raw(self) -> c_int {
        self as c_int
    }

    pub fn of(error: &Error) -> Self {
        match error {
            Error::Host(why) => Self::of_host(why),
            Error::NoWindow(_) => Self::Unsupported,
            Error::Closed => Self::Closed,
            Error::Full => Self::Full,
            Error::Invalid(_) => Self::Invalid,
            Error::System { .. } => Self::System,
        }
    }

    fn of_host(error: &initiator::Error) -> Self {
        use initiator::Error as Host;
        match error {
            Host::Resolve { .. } | Host::Transport(_) | Host::Answer(_) => Self::Connect,
            Host::Nqn { .. } => Self::Invalid,
            Host::Refused { .. } => Self::Refused,
            Host::Command { .. } => Self::Nvme,
            Host::Timeout { .. } => Self::TimedOut,
            Host::Ended(why) => match Self::of_host(why) {
                // A connection that was made and ended.
                Self::Connect | Self::TimedOut => Self::Lost,
                code => code,
            },
            Host::InDoubt(_) => Self::InDoubt,
            Host::Removed(_) | Host::Replaced(_) => Self::Removed,
            Host::Unsupported(_) => Self::Unsupported,
            Host::Reactor(_) => Self::System,
            _ => Self::Lost,
        }
    }
}

/// `fl_error`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct FlError {
    pub code: i32,
    pub status: u16,
    pub reserved: u16,
    pub message: [c_char; 248],
}

/// The status as `fl_error` has it: 0 when there is none.
pub fn status_of(error: &Error) -> u16 {
    error.status().map_or(0, |status| status.to_field() >> 1)
}

fn tell(to: *mut FlError, code: Code, status: u16, message: &str) {
    // SAFETY: the header has callers pass a valid error, or NULL.
    let Some(to) = (unsafe { to.as_mut() }) else { return };
    to.code = code.raw();
    to.status = status;
    to.reserved = 0;
    set_text(&mut to.message, message);
}

/// Fills a field with text and NULs, one at least; what does not fit is cut.
pub fn set_text(field: &mut [c_char], text: &str) {
    field.fill(0);
    let room = field.len() - 1;
    for (place, byte) in field[..room].iter_mut().zip(text.bytes()) {
        *place = c_char::from_ne_bytes([byte]);
    }
}

/// Runs `body`, whose value is returned as it is, and tells why it failed. A panic is an error as well.
pub fn guard(error: *mut FlError, body: impl FnOnce() -> Result<c_int, Error>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(why)) => {
            let code = Code::of(&why);
            tell(error, code, status_of(&why), &why.to_string());
            code.raw()
        }
        Err(_) => {
            tell(error, Code::Panic, 0, "a defect of the library: it said more on standard error");
            Code::Panic.raw()
        }
    }
}

/// As [`guard`], for what gives something else than a code: `otherwise` when it panics.
pub fn shield<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

pub fn invalid(what: &str) -> Error {
    Error::Invalid(what.to_owned())
}

/// What a pointer points to.
///
/// # Safety
/// It is valid for reads for as long as the caller says, or NULL.
pub unsafe fn given<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Error> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| invalid(&format!("{name} is NULL")))
}

/// What a pointer points to, nobody else's.
///
/// # Safety
/// It is valid for reads and writes for as long as the caller says, or NULL.
pub unsafe fn given_mut<'a, T>(pointer: *mut T, name: &str) -> Result<&'a mut T, Error> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }.ok_or_else(|| invalid(&format!("{name} is NULL")))
}

/// An array.
///
/// # Safety
/// It is valid for reads of `count` elements, or NULL.
pub unsafe fn array<'a, T>(pointer: *const T, count: usize) -> Result<&'a [T], Error> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() || count > isize::MAX as usize / size_of::<T>() {
        return Err(invalid("an array is NULL or too long"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// A text.
///
/// # Safety
/// It ends with a NUL, or is NULL.
pub unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Error> {
    if pointer.is_null() {
        return Err(invalid(&format!("{name} is NULL")));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| invalid(&format!("{name} is not UTF-8")))
}

/// Copies as much of `from` as the caller's structure has room for, and zeroes what that has more.
///
/// # Safety
/// `to` is valid for writes of `size` bytes, or NULL. `T` has no padding.
pub unsafe fn give<T: Copy>(from: &T, to: *mut T, size: usize) -> Result<(), Error> {
    if to.is_null() {
        return Err(invalid("there is nothing to write to"));
    }
    let known = size.min(size_of::<T>());
    // SAFETY: both have as many bytes, and the caller's are its own.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(from).cast::<u8>(), to.cast(), known);
        to.cast::<u8>().add(known).write_bytes(0, size - known);
    }
    Ok(())
}

/// A code in words.
#[unsafe(no_mangle)]
pub extern "C" fn fl_strerror(code: c_int) -> *const c_char {
    let known = CODES.iter().find(|(known, _)| known.raw() == code);
    known.map_or(c"an unknown code", |(_, text)| text).as_ptr()
}
