//! Where to receive, so that the kernel's copy is a fast one.
//!
//! The kernel copies with `rep movsb` where the processor says that this is fast. On some (AMD's Zen 3
//! was measured) it is 15 to 20 times slower when the destination lies 1 to 31 bytes behind the source,
//! both taken modulo a page: 1.5 to 2 us for 4 KiB, not 0.1. The kernel's own end of a socket's copy
//! mostly begins at a page, so ours must not begin a few bytes after one: which is where an allocator
//! puts a large buffer, and where bytes left over from the last receive end.

/// Receives begin at multiples of this, in an inbox that begins at a page: a cache line.
const LANDING_BYTES: usize = 64;

/// Where in an inbox to receive what follows `kept` bytes, which go right in front of it.
pub const fn landing(kept: usize) -> usize {
    kept.next_multiple_of(LANDING_BYTES)
}
