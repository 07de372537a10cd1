//! The two vendor specific admin commands: their opcodes, fields and statuses.

use crate::grant::GRANT_BYTES;

/// Window End: the window of this number is given back.
pub const END: u8 = 0xc0;
/// Window Receive: a window is asked for.
pub const RECEIVE: u8 = 0xc2;

/// Status code type of what is command specific.
pub const STATUS_TYPE: u8 = 1;
/// The namespace cannot have a window; comes with Do Not Retry.
pub const NO_WINDOW: u8 = 0xc0;
/// Another host has it, or there is no room.
pub const WINDOW_BUSY: u8 = 0xc1;

/// CDW11: memory of this machine.
pub const FABRIC_SHM: u32 = 1;

/// Bytes that the ring's length is asked for in.
pub const RING_UNIT: u64 = 4096;

/// CDW10 to CDW12 of a Window Receive for rings of so many bytes each; 0 leaves that to the target.
#[must_use]
pub const fn receive(fabric: u32, ring_bytes: u64) -> [u32; 3] {
    let dwords = stdx::num::u32_of(GRANT_BYTES / 4);
    [dwords - 1, fabric, stdx::num::low32(ring_bytes / RING_UNIT)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_of_512_bytes_is_asked_for() {
        assert_eq!(receive(FABRIC_SHM, 0), [127, 1, 0]);
        assert_eq!(receive(FABRIC_SHM, 1 << 20), [127, 1, 256]);
    }
}
