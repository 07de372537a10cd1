//! The CRC-32C that guards headers and data (transport specification, section 3.6.1.4): all ones to
//! start with, reflected, complemented, sent least significant byte first.

use crc_fast::{CrcAlgorithm, Digest};
use stdx::num::low32;

use crate::pdu::DIGEST_BYTES;

/// The data digest of `bytes`, as it goes on the wire.
#[must_use]
#[inline]
pub fn ddgst(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
    crc_fast::crc32_iscsi(bytes).to_le_bytes()
}

/// A data digest taken piece by piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataDigest {
    state: u32,
}

impl Default for DataDigest {
    fn default() -> Self {
        Self { state: u32::MAX }
    }
}

impl DataDigest {
    /// Takes the next piece of the data.
    pub fn update(&mut self, bytes: &[u8]) {
        let mut digest =
            Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(self.state));
        digest.update(bytes);
        // A 32-bit CRC never leaves the low half, so nothing is lost here.
        self.state = low32(digest.get_state());
    }

    /// The digest of all pieces so far, as it goes on the wire.
    #[must_use]
    pub fn finish(&self) -> [u8; DIGEST_BYTES] {
        (!self.state).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_check_value_of_crc_32c() {
        assert_eq!(ddgst(b"123456789"), 0xe306_9283_u32.to_le_bytes());
        assert_eq!(DataDigest::default().finish(), ddgst(b""));
    }

    proptest! {
        #[test]
        fn pieces_give_the_digest_of_the_whole(data: Vec<u8>, cut: prop::sample::Index) {
            let cut = cut.index(data.len() + 1);
            let mut digest = DataDigest::default();
            digest.update(&data[..cut]);
            digest.update(&data[cut..]);
            prop_assert_eq!(digest.finish(), ddgst(&data));
            prop_assert_eq!(ddgst(&data), crc32c::crc32c(&data).to_le_bytes());
        }
    }
}
