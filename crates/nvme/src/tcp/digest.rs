//! The CRC-32C that guards headers and data (transport specification, section 3.6.1.4): all ones to
//! start with, reflected, complemented, sent least significant byte first.

use stdx::{crc32c, crc32c_append};

use crate::pdu::DIGEST_BYTES;

/// The data digest of `bytes`, as it goes on the wire.
#[must_use]
#[inline]
pub fn ddgst(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
    crc32c(bytes).to_le_bytes()
}

/// A data digest taken piece by piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataDigest {
    crc: u32,
}

impl DataDigest {
    /// Takes the next piece of the data.
    pub fn update(&mut self, bytes: &[u8]) {
        self.crc = crc32c_append(self.crc, bytes);
    }

    /// The digest of all pieces so far, as it goes on the wire.
    #[must_use]
    pub const fn finish(&self) -> [u8; DIGEST_BYTES] {
        self.crc.to_le_bytes()
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
