//! Bugs planted on purpose, so that it can be seen that the simulator finds their like.
//!
//! Only with the feature `canary`, which nothing but the simulator asks for, and only those a thread was told to have.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A write by a window is complete before its record is fenced.
    ReportsBeforeFence,
    /// Whoever writes by a window does not look whether it stands.
    ReportsWithoutLook,
}

impl Canary {
    pub const ALL: [Self; 2] = [Self::ReportsBeforeFence, Self::ReportsWithoutLook];
}

#[cfg(feature = "canary")]
thread_local!(static PLANTED: core::cell::Cell<Option<Canary>> = const { core::cell::Cell::new(None) });

/// Plants a bug in what this thread writes by windows, or none.
#[cfg(feature = "canary")]
pub fn plant(canary: Option<Canary>) {
    PLANTED.set(canary);
}

/// Whether this bug is planted on this thread. Never, without the feature.
#[inline]
pub(crate) fn has(canary: Canary) -> bool {
    #[cfg(feature = "canary")]
    return PLANTED.get() == Some(canary);
    #[cfg(not(feature = "canary"))]
    {
        let _ = canary;
        false
    }
}
