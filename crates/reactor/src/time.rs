//! The clock.

use crate::core;

/// Nanoseconds of the monotonic clock. Only differences mean anything.
pub type Nanos = u64;

/// The time this loop turn began: one clock read a turn. Outside a reactor, reads the clock.
#[must_use]
pub fn now() -> Nanos {
    core::try_with(|core| core.now.get()).unwrap_or_else(clock)
}

/// Reads the clock; in simulation the time this turn began.
#[must_use]
pub fn now_exact() -> Nanos {
    let virtual_now = |core: &core::Core| core.driver.world().map(|_| core.now.get());
    core::try_with(virtual_now).flatten().unwrap_or_else(clock)
}

/// The real clock.
#[allow(unsafe_code, reason = "the clock is a system call")]
pub(crate) fn clock() -> Nanos {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid place for the answer, and CLOCK_MONOTONIC always exists.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut ts) };
    debug_assert_eq!(rc, 0);
    u64::try_from(ts.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(ts.tv_nsec).unwrap_or(0)
}

/// A duration as nanoseconds, saturating after 584 years.
pub(crate) fn nanos_of(d: std::time::Duration) -> Nanos {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
