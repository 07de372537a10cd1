//! Limits of the structures, as small as they can be.

/// Two ranges that are held at once: who wants a third waits for one of them to be released.
pub const HOLDS_MAX: usize = 2;
