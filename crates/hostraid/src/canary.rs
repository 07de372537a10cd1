//! What is planted for the simulator to find: each is a rule of the protocol that is not kept.

/// A rule that is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Stripes are changed without a record.
    SkipJournal,
    /// A write is acknowledged before the others know that a member is gone.
    EarlyAcknowledgement,
    /// Parity stays what it was.
    ForgetParity,
    /// A member that comes back gets nothing of what it missed.
    ForgetBits,
    /// Copies of a mirror are left different after a crash.
    SkipResync,
    /// Copies are changed before it is durable that they may differ.
    EarlyChange,
    /// What is being written is forgotten with the rest.
    EarlyClear,
    /// A rebuild goes on before what it wrote is durable.
    EarlyFrontier,
    /// A set that lost too many members writes superblocks nevertheless.
    StoreStopped,
    /// What a member holds when a set is put together is taken for durable.
    TrustCaches,
}
