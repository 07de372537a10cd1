//! Bugs planted on purpose, so that it can be seen that the simulator finds their like.
//!
//! Only with the feature `canary`, which nothing but the simulator asks for, and only those a thread was told to have.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A write whose data never came whole is executed all the same.
    WritesWhatNeverCame,
    /// A controller whose host has been silent too long lives on, and executes what comes late.
    OutlivesItsHost,
}

impl Canary {
    pub const ALL: [Self; 2] = [Self::WritesWhatNeverCame, Self::OutlivesItsHost];
}

#[cfg(feature = "canary")]
thread_local!(static PLANTED: core::cell::Cell<Option<Canary>> = const { core::cell::Cell::new(None) });

/// Plants a bug in every target that this thread serves, or none.
#[cfg(feature = "canary")]
pub fn plant(canary: Option<Canary>) {
    PLANTED.set(canary);
}

/// What is planted on this thread.
#[cfg(feature = "canary")]
#[must_use]
pub fn planted() -> Option<Canary> {
    PLANTED.get()
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
