//! What is offered to clients.

use initiator::Geometry;
use stdx::num::low32;

use super::wire::transmission;
use crate::limits::REQUEST_BYTES_MAX;

/// A page: what suits everything that NBD is used for, where the namespace says nothing larger.
const PAGE_BYTES: u64 = 4096;

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
    /// What is offered of a namespace of `geometry`.
    #[must_use]
    pub fn new(geometry: &Geometry, name: &str, description: &str, read_only: bool) -> Self {
        let block = u64::from(geometry.block_bytes);
        let best = block.saturating_mul(geometry.optimal_write_blocks.into()).max(PAGE_BYTES);
        let most = u64::from(REQUEST_BYTES_MAX);
        Self {
            name: name.to_owned(),
            description: description.to_owned(),
            size: geometry.blocks.saturating_mul(block),
            block_bytes: geometry.block_bytes,
            preferred_bytes: low32(best.checked_next_power_of_two().unwrap_or(most).min(most)),
            read_only: read_only || geometry.read_only,
            trim: geometry.supports.deallocate,
            fast_zero: geometry.supports.write_zeroes,
        }
    }

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
