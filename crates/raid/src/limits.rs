//! Every bound of this crate, with its reason.

/// Data units of a stripe. Wider ones save little more space, and lose more drives' worth of
/// bandwidth to each reconstructed block.
pub const DATA_MAX: usize = 22;

/// Parity units of a stripe: what P and Q can say.
pub const PARITY_MAX: usize = 2;

/// Units of a stripe.
pub const WIDTH_MAX: usize = DATA_MAX + PARITY_MAX;

/// Blocks of a unit: 1 MiB of 4 KiB blocks, what one drive transfer carries.
pub const UNIT_BLOCKS_MAX: u32 = 256;

/// Data blocks of a segment: what the 24 bits of a slot can say.
pub const SLOTS_MAX: u32 = 1 << 24;

/// Bytes of each unit worked on at once where sums are kept meanwhile: they stay in the first-level
/// cache, and on the stack when units are reconstructed.
pub(crate) const STRIP: usize = 2048;

/// Units read side by side when sums are computed: a core follows only so many streams ahead of
/// time. From memory, P and Q of 22 units took 1.8 times as long as a copy with all of them at once,
/// and as long as one in groups of 8 (`bench parity`).
pub(crate) const UNITS_AT_ONCE: usize = 8;

/// Data units a scheme takes when nobody says: wider stripes need wider pools to rebuild into.
pub(crate) const DATA_DEFAULT: usize = 8;

/// Blocks a stripe should have at least: its header takes one of them.
pub(crate) const STRIPE_BLOCKS_MIN: u32 = 96;

/// Blocks of a unit at least, where nobody says: 64 KiB, a transfer that drives do at full speed.
pub(crate) const UNIT_BLOCKS_DEFAULT: u32 = 16;
