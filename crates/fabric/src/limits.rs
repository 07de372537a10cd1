//! Bounds of the fabric, each with its reason.

/// Bytes one connection may send before its reactor turns to the others: a large transfer delays
/// a small command of another queue by no more than the time to copy this.
pub const SEND_BUDGET_BYTES: usize = 256 * 1024;

/// Pieces of one gather send; the kernel's own limit is 1024, the gain is gone long before.
pub const SEND_PIECES: usize = 128;

/// Bytes a host's connection receives with one call: the data of many small reads, and less than a second level
/// cache, so that it is still near when it is looked at.
pub const HOST_RECEIVE_BYTES: usize = 256 * 1024;

/// R2Ts a host lets a controller have outstanding for one command (MAXR2T + 1): what is asked for is queued at
/// once, so that a few cost nothing.
pub const HOST_MAX_R2T: u32 = 16;
