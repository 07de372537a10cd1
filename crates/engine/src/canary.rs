//! Bugs planted on purpose, so that it can be seen that the simulator finds their like.
//!
//! Only with the feature `canary`, which nothing but the simulator asks for, and only those a thread
//! was told to have.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A write is acknowledged before the log's drives have it.
    AcknowledgesEarly,
    /// A record in persistent memory is not fenced.
    SkipsFence,
    /// The log is trimmed of what is still in the drives' caches.
    TrimsEarly,
    /// Stripes are written without their parity.
    ForgetsParity,
    /// Stripes are rolled forward newest first.
    ReplaysInWrongOrder,
    /// Reclaim moves a block for the key it was written under, not for those that refer to it.
    ForgetsReferences,
    /// A sweep does not look at what the log refers to.
    SweepsWhatLogRefersTo,
    /// A block that the map gives up is counted down twice, so that a segment with live blocks seems dead.
    CountsDownTwice,
    /// Without its log a shard goes on with every stripe that has a header, whole or not.
    TrustsHeaders,
    /// Without its log a shard goes on with its last checkpoint alone.
    ForgetsStripes,
    /// Without its log a shard takes a stripe for torn that the redundancy would give back.
    TakesDamagedForTorn,
    /// Without its log a shard goes on with its last checkpoint where the stripes since cannot be read, because drives
    /// are away.
    TakesAbsentForTorn,
}

impl Canary {
    pub const ALL: [Self; 12] = [
        Self::AcknowledgesEarly,
        Self::SkipsFence,
        Self::TrimsEarly,
        Self::ForgetsParity,
        Self::ReplaysInWrongOrder,
        Self::ForgetsReferences,
        Self::SweepsWhatLogRefersTo,
        Self::CountsDownTwice,
        Self::TrustsHeaders,
        Self::ForgetsStripes,
        Self::TakesDamagedForTorn,
        Self::TakesAbsentForTorn,
    ];
}

#[cfg(feature = "canary")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Canary>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug in every pool this thread opens, or none.
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
