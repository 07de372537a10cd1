//! How a segment's blocks lie on its members.
//!
//! A segment has k + m members (its columns), each an equal stretch of space, cut into units. Units
//! at the same place of every member are a stripe: units 0 to k - 1 hold data, the last m parity.
//! Which column holds which unit rotates from stripe to stripe. Data blocks are numbered by slots:
//! stripe after stripe, unit after unit, block after block.

use crate::limits::{
    DATA_DEFAULT, DATA_MAX, PARITY_MAX, SLOTS_MAX, STRIPE_BLOCKS_MIN, UNIT_BLOCKS_DEFAULT,
    UNIT_BLOCKS_MAX, WIDTH_MAX,
};
use stdx::num::{u32_of, usize32};

/// What protects a pool's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Nothing: a lost drive loses data.
    Single,
    /// This many whole copies, 2 or 3.
    Mirror { copies: u8 },
    /// One parity unit: any one drive may be lost.
    Raid5,
    /// Two parity units: any two drives may be lost.
    Raid6,
}

/// How many units of a stripe hold data and parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    pub data: u8,
    pub parity: u8,
}

impl Shape {
    /// Units of a stripe.
    #[must_use]
    pub fn width(self) -> usize {
        usize::from(self.data) + usize::from(self.parity)
    }
}

impl Scheme {
    /// Units that may be lost.
    #[must_use]
    pub const fn parity(self) -> u8 {
        match self {
            Self::Single => 0,
            Self::Mirror { copies } => copies.saturating_sub(1),
            Self::Raid5 => 1,
            Self::Raid6 => 2,
        }
    }

    /// The shape for a pool of so many drives: as wide as they allow, up to eight data units.
    /// `None` when there are too few, or the scheme says something that cannot be.
    #[must_use]
    pub fn shape(self, drives: usize) -> Option<Shape> {
        let parity = self.parity();
        if usize::from(parity) > PARITY_MAX || matches!(self, Self::Mirror { copies: 0 | 1 }) {
            return None;
        }
        let room = drives.checked_sub(usize::from(parity))?;
        let data = match self {
            Self::Single | Self::Mirror { .. } => room.min(1),
            Self::Raid5 | Self::Raid6 => room.min(DATA_DEFAULT),
        };
        let least = if matches!(self, Self::Raid5 | Self::Raid6) { 2 } else { 1 };
        (data >= least).then(|| Shape { data: u8::try_from(data).unwrap_or(u8::MAX), parity })
    }
}

/// Why a geometry cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("a stripe has 1 to {DATA_MAX} data units, not {0}")]
    Data(u8),
    #[error("a stripe has at most {PARITY_MAX} parity units, not {0}")]
    Parity(u8),
    #[error("a unit has 1 to {UNIT_BLOCKS_MAX} blocks, not {0}")]
    Unit(u32),
    #[error("a segment has at least one stripe and at most {SLOTS_MAX} blocks, not {0} stripes")]
    Stripes(u32),
}

/// How segments of one kind are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    data: u8,
    parity: u8,
    unit_blocks: u32,
    stripes: u32,
}

/// A data block's place within its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub stripe: u32,
    /// Below k.
    pub unit: u32,
    /// Within the unit.
    pub block: u32,
}

impl Geometry {
    /// # Errors
    /// What does not fit the limits.
    pub fn new(shape: Shape, unit_blocks: u32, stripes: u32) -> Result<Self, Invalid> {
        let Shape { data, parity } = shape;
        if data == 0 || usize::from(data) > DATA_MAX {
            return Err(Invalid::Data(data));
        }
        if usize::from(parity) > PARITY_MAX {
            return Err(Invalid::Parity(parity));
        }
        if unit_blocks == 0 || unit_blocks > UNIT_BLOCKS_MAX {
            return Err(Invalid::Unit(unit_blocks));
        }
        let slots = u64::from(stripes) * u64::from(data) * u64::from(unit_blocks);
        if stripes == 0 || slots > u64::from(SLOTS_MAX) {
            return Err(Invalid::Stripes(stripes));
        }
        Ok(Self { data, parity, unit_blocks, stripes })
    }

    /// The geometry for members of `au_blocks` blocks, with units of a size that suits the shape:
    /// as many stripes as fit.
    ///
    /// # Errors
    /// As [`new`](Self::new): members smaller than a unit have no stripe.
    pub fn for_au(shape: Shape, au_blocks: u32) -> Result<Self, Invalid> {
        let unit = Self::default_unit(shape.data);
        Self::new(shape, unit, au_blocks / unit)
    }

    /// Blocks of a unit where nobody says: a power of two, larger for narrow stripes, so that the
    /// header of a stripe takes about a hundredth of it.
    #[must_use]
    pub fn default_unit(data: u8) -> u32 {
        let mut unit = UNIT_BLOCKS_DEFAULT;
        while unit < UNIT_BLOCKS_MAX && unit * u32::from(data) < STRIPE_BLOCKS_MIN {
            unit *= 2;
        }
        unit
    }

    #[must_use]
    pub const fn shape(self) -> Shape {
        Shape { data: self.data, parity: self.parity }
    }

    /// k: data units of a stripe.
    #[must_use]
    pub const fn data(self) -> usize {
        usize32(self.data as u32)
    }

    /// m: parity units of a stripe, and members that may be lost.
    #[must_use]
    pub const fn parity(self) -> usize {
        usize32(self.parity as u32)
    }

    /// k + m.
    #[must_use]
    pub const fn width(self) -> usize {
        self.data() + self.parity()
    }

    #[must_use]
    pub const fn unit_blocks(self) -> u32 {
        self.unit_blocks
    }

    #[must_use]
    pub const fn stripes(self) -> u32 {
        self.stripes
    }

    /// Data blocks of a stripe.
    #[must_use]
    pub const fn stripe_blocks(self) -> u32 {
        self.data as u32 * self.unit_blocks
    }

    /// Data blocks of a segment: slots are below this.
    #[must_use]
    pub const fn slots(self) -> u32 {
        self.stripes * self.stripe_blocks()
    }

    /// Blocks of each member that stripes take.
    #[must_use]
    pub const fn member_blocks(self) -> u32 {
        self.stripes * self.unit_blocks
    }

    /// # Panics
    /// When the slot is not of this segment.
    #[must_use]
    pub fn place(self, slot: u32) -> Place {
        assert!(slot < self.slots(), "slot {slot} of {}", self.slots());
        let (stripe, rest) = (slot / self.stripe_blocks(), slot % self.stripe_blocks());
        Place { stripe, unit: rest / self.unit_blocks, block: rest % self.unit_blocks }
    }

    #[must_use]
    pub fn slot(self, place: Place) -> u32 {
        debug_assert!(place.stripe < self.stripes && place.block < self.unit_blocks);
        debug_assert!(place.unit < u32::from(self.data));
        place.stripe * self.stripe_blocks() + place.unit * self.unit_blocks + place.block
    }

    /// The first slot of a stripe.
    #[must_use]
    pub const fn stripe_slot(self, stripe: u32) -> u32 {
        stripe * self.stripe_blocks()
    }

    /// The column that holds a unit (data or parity, below k + m). Segments begin their rotation at
    /// different columns, so that no drive gets more parity than others.
    #[must_use]
    pub fn column(self, segment: u32, stripe: u32, unit: usize) -> usize {
        debug_assert!(unit < self.width());
        let width = u64::from(u32_of(self.width()));
        let turned = u64::from(segment) + u64::from(stripe) + u64::from(u32_of(unit));
        usize32(stdx::num::low32(turned % width))
    }

    /// The unit that a column holds in a stripe.
    #[must_use]
    pub fn unit_of(self, segment: u32, stripe: u32, column: usize) -> usize {
        debug_assert!(column < self.width());
        let first = self.column(segment, stripe, 0);
        (column + self.width() - first) % self.width()
    }

    /// Blocks from the beginning of a member to block `block` of its unit in `stripe`.
    #[must_use]
    pub fn member_block(self, stripe: u32, block: u32) -> u32 {
        debug_assert!(stripe < self.stripes && block < self.unit_blocks);
        stripe * self.unit_blocks + block
    }
}

const _: () = assert!(WIDTH_MAX == DATA_MAX + PARITY_MAX);

#[cfg(test)]
mod tests;
