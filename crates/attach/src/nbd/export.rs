//! What is offered to clients.

use super::wire::transmission;
use crate::limits::REQUEST_BYTES_MAX;

/// What a namespace offers, seen from an NBD client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name; the empty name means it too, as it is the default.
    pub name: String,
    /// For people.
    pub description: String,
    /// Size in bytes, a multiple of `block_bytes`.
    pub size: u64,
    /// Logical block, bytes: the advertised minimum.
    pub block_bytes: u32,
    /// What suits it best, bytes: a power of two, `block_bytes` at least.
    pub preferred_bytes: u32,
    /// Writing is refused.
    pub read_only: bool,
    /// Ranges can be deallocated.
    pub trim: bool,
    /// Ranges can be zeroed without sending zeroes.
    pub fast_zero: bool,
}

impl Export {
    /// Whether a client means this export by `name`.
    #[must_use]
    pub fn is_called(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.name.as_bytes()
    }

    /// Transmission flags. Several connections are as good as one: a flush of any covers what any has
    /// been answered, because there is no cache but the namespace's own.
    #[must_use]
    pub fn flags(&self) -> u16 {
        use transmission as t;
        let mut flags = t::HAS_FLAGS | t::SEND_FLUSH | t::SEND_FUA | t::SEND_DF | t::CAN_MULTI_CONN;
        if self.read_only {
            return flags | t::READ_ONLY;
        }
        flags |= t::SEND_WRITE_ZEROES;
        if self.trim {
            flags |= t::SEND_TRIM;
        }
        if self.fast_zero {
            flags |= t::SEND_FAST_ZERO;
        }
        flags
    }

    /// The largest request, bytes: a multiple of every block size.
    #[must_use]
    pub fn maximum_bytes(&self) -> u32 {
        REQUEST_BYTES_MAX
    }
}
