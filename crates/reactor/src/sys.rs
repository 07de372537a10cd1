//! Small system calls of the loop itself.
#![allow(unsafe_code, reason = "system calls without a safe wrapper")]

use std::io;
use std::mem::MaybeUninit;

/// Pins the calling thread to one CPU, whether it runs a reactor or not.
///
/// # Errors
/// As sched_setaffinity(2): no such CPU, or not one of ours.
pub fn pin(cpu: usize) -> io::Result<()> {
    // SAFETY: a cpu_set_t is a plain bit set; all zeroes is the empty one.
    let mut set: libc::cpu_set_t = unsafe { MaybeUninit::zeroed().assume_init() };
    if cpu >= 8 * size_of_val(&set) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: `cpu` is inside the set, checked above.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: `set` is valid for its own size; 0 is the calling thread.
    let rc = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How often the kernel took the CPU from the calling thread for somebody else.
pub(crate) fn involuntary_switches() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is a valid place for the answer.
    let rc = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: all zeroes is a valid rusage, and the kernel fills it in when it succeeds.
    let usage = unsafe { usage.assume_init() };
    if rc == 0 { usage.ru_nivcsw } else { 0 }
}
