//! Small system calls of the loop itself.
#![allow(unsafe_code, reason = "system calls without a safe wrapper")]

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

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

/// Lets this process have as many descriptors as it may: the limit that it may raise itself. Gives how many.
///
/// # Errors
/// As setrlimit(2).
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the answer.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is readable, and filled in.
    let rc = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    if rc == 0 { Ok(limit.rlim_cur) } else { Err(io::Error::last_os_error()) }
}

/// Has what this process creates be for its user alone, files and folders and sockets. To be called before there are
/// other threads that create any.
pub fn create_for_owner_only() {
    // SAFETY: the call takes no pointers and cannot fail.
    unsafe { libc::umask(0o077) };
}

/// The user that this process acts as.
#[must_use]
pub fn user() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// The number of the group `name` of this machine; `None` where there is none.
///
/// # Errors
/// As getgrnam_r(3). `InvalidInput` for a name with a zero byte in it.
pub fn group(name: &str) -> io::Result<Option<u32>> {
    // Members are among what is read: a group has thousands, seldom.
    const MOST: usize = 1 << 20;
    let name = CString::new(name)?;
    let mut room = vec![0; 4096];
    loop {
        let mut found = MaybeUninit::<libc::group>::uninit();
        let mut at = std::ptr::null_mut();
        // SAFETY: `name` ends with a zero byte, and the places to write to are valid for the call, `room` for its
        // length.
        let rc = unsafe {
            let room = (room.as_mut_ptr(), room.len());
            libc::getgrnam_r(name.as_ptr(), found.as_mut_ptr(), room.0, room.1, &raw mut at)
        };
        match rc {
            // SAFETY: it is not null, so `found` is filled in.
            0 if !at.is_null() => return Ok(Some(unsafe { found.assume_init() }.gr_gid)),
            // What getgrnam_r(3) has for "not found".
            0 | libc::ENOENT | libc::ESRCH => return Ok(None),
            libc::EINTR => {}
            libc::ERANGE if room.len() < MOST => room.resize(2 * room.len(), 0),
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// What the calling thread has cost since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user space.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// How often it gave the CPU away to wait.
    pub voluntary_switches: u64,
    /// How often the kernel took the CPU from it for somebody else.
    pub involuntary_switches: u64,
}

/// What the calling thread has cost so far; nothing where the kernel does not say.
#[must_use]
pub fn thread_usage() -> Usage {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is a valid place for the answer.
    let rc = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: all zeroes is a valid rusage, and the kernel fills it in when it succeeds.
    let usage = unsafe { usage.assume_init() };
    if rc != 0 {
        return Usage::default();
    }
    let count = |value: i64| u64::try_from(value).unwrap_or(0);
    let time = |time: libc::timeval| {
        Duration::from_secs(count(time.tv_sec)) + Duration::from_micros(count(time.tv_usec))
    };
    Usage {
        user: time(usage.ru_utime),
        system: time(usage.ru_stime),
        voluntary_switches: count(usage.ru_nvcsw),
        involuntary_switches: count(usage.ru_nivcsw),
    }
}

/// A new event counter, at zero and non-blocking.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes an event counter's count; `WouldBlock` when that is zero, whatever others made of the descriptor's flags: they may
/// have it too.
pub(crate) fn read_count(fd: &OwnedFd) -> io::Result<()> {
    let mut count = [0u8; 8];
    let to = libc::iovec { iov_base: count.as_mut_ptr().cast(), iov_len: count.len() };
    // SAFETY: `to` is one piece, with room for the eight bytes.
    let rc = unsafe { libc::preadv2(fd.as_raw_fd(), &raw const to, 1, -1, libc::RWF_NOWAIT) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Adds one to an event counter.
pub(crate) fn write_count(fd: &OwnedFd) -> io::Result<()> {
    let one = 1u64.to_ne_bytes();
    // SAFETY: `one` is eight readable bytes.
    let rc = unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// As another process may that has it as well.
#[cfg(test)]
pub(crate) fn set_blocking(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: the call takes no pointers.
    let rc = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, 0) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(crate) fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: the calls take no pointers.
    let rc = unsafe {
        let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
        if flags < 0 {
            flags
        } else {
            libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK)
        }
    };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The CPU that this thread runs on now; 0 where the kernel does not say.
#[must_use]
pub fn cpu() -> usize {
    // SAFETY: the call takes no pointers.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    fn limit() -> libc::rlimit {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` is a valid place for the answer.
        let rc = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        assert_eq!(rc, 0);
        limit
    }

    /// Shells and services begin with 1024, which a thousand hosts use up.
    #[test]
    fn a_process_has_as_many_descriptors_as_it_may_have() {
        let most = limit().rlim_max;
        // Hardly fewer: other tests need some, too.
        let fewer = libc::rlimit { rlim_cur: most - 1, rlim_max: most };
        // SAFETY: `fewer` is readable, and filled in.
        let rc = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const fewer) };
        assert_eq!((rc, limit().rlim_cur), (0, most - 1));
        assert_eq!(raise_descriptor_limit().unwrap(), most);
        assert_eq!((limit().rlim_cur, limit().rlim_max), (most, most));
    }
}
