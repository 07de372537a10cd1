//! Where a set's bytes lie on its members: arithmetic only.

use raid::{Geometry, Shape};
use stdx::num::{align_up, low32, u64_of};

use crate::limits::{
    CHUNK_MAX, CHUNK_MIN, DATA_ALIGN, JOURNAL_AT, JOURNAL_BYTES, MEMBERS_MAX, PAGE, RECORDS_MAX,
    RECORDS_MIN, REGION_MIN, REGIONS_MAX,
};

/// What protects a set's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// RAID 0: nothing.
    Stripe,
    /// RAID 1: whole copies, 2 or 3.
    Mirror,
    /// RAID 5: one parity unit a stripe.
    Raid5,
    /// RAID 6: two parity units a stripe.
    Raid6,
}

impl Level {
    /// The shape of a stripe over so many members, if it can be.
    #[must_use]
    pub fn shape(self, members: usize) -> Option<Shape> {
        let parity = match self {
            Self::Stripe => 0,
            Self::Mirror => {
                members.checked_sub(1).filter(|&m| (1..=raid::PARITY_MAX).contains(&m))?
            }
            Self::Raid5 => 1,
            Self::Raid6 => 2,
        };
        let data = members.checked_sub(parity)?;
        let least = if self == Self::Mirror { 1 } else { 2 };
        let fits = data >= least && data <= raid::DATA_MAX && members <= MEMBERS_MAX;
        fits.then(|| Shape {
            data: stdx::num::low8(u64_of(data)),
            parity: stdx::num::low8(u64_of(parity)),
        })
    }

    /// How many members there must be, in words.
    #[must_use]
    pub const fn wants(self) -> &'static str {
        match self {
            Self::Stripe => "2 to 22 members",
            Self::Mirror => "2 or 3 members",
            Self::Raid5 => "3 to 23 members",
            Self::Raid6 => "4 to 24 members",
        }
    }

    /// As a superblock says it.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Stripe => 0,
            Self::Mirror => 1,
            Self::Raid5 => 5,
            Self::Raid6 => 6,
        }
    }

    pub(crate) const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Stripe),
            1 => Some(Self::Mirror),
            5 => Some(Self::Raid5),
            6 => Some(Self::Raid6),
            _ => None,
        }
    }
}

/// How a set lies on its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub level: Level,
    pub shape: Shape,
    /// Logical block, bytes.
    pub block: u32,
    /// Bytes of a stripe's unit.
    pub chunk: u32,
    pub stripes: u64,
    /// Stripes that share a bit of the bitmap.
    pub region_stripes: u64,
    /// Records of the journal; 0 without one.
    pub records: u64,
    /// Where a member's data begins, bytes.
    pub data_at: u64,
}

/// A part of a set's bytes within one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub stripe: u64,
    /// A data unit, below k.
    pub unit: usize,
    /// From the unit's beginning, bytes.
    pub at: u32,
    pub len: u32,
    /// From the beginning of the request, bytes.
    pub from: usize,
}

impl Layout {
    /// The layout over members of which the smallest has `capacity` bytes. `records` and `region` (bytes) are
    /// chosen where nothing is said.
    ///
    /// # Errors
    /// What cannot be, in words.
    pub fn new(
        level: Level,
        members: usize,
        (block, chunk): (u32, u32),
        capacity: u64,
        (records, region): (Option<u64>, Option<u64>),
    ) -> Result<Self, String> {
        let shape = level
            .shape(members)
            .ok_or_else(|| format!("such a set has {}, not {members}", level.wants()))?;
        if !(CHUNK_MIN..=CHUNK_MAX).contains(&chunk) || !chunk.is_power_of_two() {
            return Err(format!(
                "a chunk has a power of two of bytes from {CHUNK_MIN} to {CHUNK_MAX}"
            ));
        }
        if !(512..=PAGE).contains(&block) || !block.is_power_of_two() {
            return Err(format!("members have logical blocks of 512 to {PAGE} bytes, not {block}"));
        }
        let journaled = matches!(level, Level::Raid5 | Level::Raid6);
        let usual = JOURNAL_BYTES / u64::from(chunk + PAGE);
        let records =
            if journaled { records.unwrap_or(usual).clamp(RECORDS_MIN, RECORDS_MAX) } else { 0 };
        let data_at = align_up(JOURNAL_AT + records * u64::from(chunk + PAGE), DATA_ALIGN)
            .ok_or("the members are too small")?;
        let stripes = capacity.saturating_sub(data_at) / u64::from(chunk);
        let region = region.unwrap_or(REGION_MIN).div_ceil(u64::from(chunk)).max(1);
        let mut region_stripes = region.next_power_of_two();
        while stripes.div_ceil(region_stripes) > REGIONS_MAX {
            region_stripes *= 2;
        }
        let layout = Self { level, shape, block, chunk, stripes, region_stripes, records, data_at };
        if stripes == 0 {
            return Err(format!("a member has more than {data_at} bytes, not {capacity}"));
        }
        Ok(layout)
    }

    /// k + m.
    #[must_use]
    pub fn width(&self) -> usize {
        self.shape.width()
    }

    /// k.
    #[must_use]
    pub fn data(&self) -> usize {
        usize::from(self.shape.data)
    }

    /// m: members that may be missing.
    #[must_use]
    pub fn parity(&self) -> usize {
        usize::from(self.shape.parity)
    }

    /// Bytes of a stripe's data.
    #[must_use]
    pub fn stripe_bytes(&self) -> u64 {
        u64::from(self.chunk) * u64_of(self.data())
    }

    /// Bytes of the set.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.stripes * self.stripe_bytes()
    }

    /// Bytes a member must have.
    #[must_use]
    pub fn member_bytes(&self) -> u64 {
        self.data_at + self.stripes * u64::from(self.chunk)
    }

    fn geometry(&self) -> Geometry {
        let unit = self.chunk / PAGE;
        match Geometry::new(self.shape, unit, 1) {
            Ok(geometry) => geometry,
            Err(_) => unreachable!("shape and chunk were checked"),
        }
    }

    /// Which member holds a unit. Mirrors do not rotate: each copy lies where the others do.
    #[must_use]
    pub fn slot(&self, stripe: u64, unit: usize) -> usize {
        if self.level == Level::Mirror {
            return unit;
        }
        let turn = low32(stripe % u64_of(self.width()));
        self.geometry().column(turn, 0, unit)
    }

    /// Which unit a member holds.
    #[must_use]
    pub fn unit(&self, stripe: u64, slot: usize) -> usize {
        if self.level == Level::Mirror {
            return slot;
        }
        let turn = low32(stripe % u64_of(self.width()));
        self.geometry().unit_of(turn, 0, slot)
    }

    /// Where on a member a byte of its unit of `stripe` lies.
    #[must_use]
    pub fn member_at(&self, stripe: u64, at: u32) -> u64 {
        debug_assert!(stripe < self.stripes && at <= self.chunk);
        self.data_at + stripe * u64::from(self.chunk) + u64::from(at)
    }

    /// Where record `number` ends on a member: its descriptor is the page before, its payload lies before that.
    #[must_use]
    pub fn record_end(&self, number: u64) -> u64 {
        debug_assert!(self.records > 0);
        JOURNAL_AT + (number % self.records + 1) * u64::from(self.chunk + PAGE)
    }

    /// Which bit of the bitmap a stripe has.
    #[must_use]
    pub fn region(&self, stripe: u64) -> u64 {
        stripe / self.region_stripes
    }

    /// Bits in use.
    #[must_use]
    pub fn regions(&self) -> u64 {
        self.stripes.div_ceil(self.region_stripes)
    }

    /// The parts of a range that lie in one unit each, in order.
    pub fn segments(&self, offset: u64, len: u64) -> impl Iterator<Item = Segment> + use<> {
        let (this, end) = (*self, offset + len);
        let mut next = offset;
        std::iter::from_fn(move || {
            if next >= end {
                return None;
            }
            let chunk = u64::from(this.chunk);
            let (stripe, rest) = (next / this.stripe_bytes(), next % this.stripe_bytes());
            let at = rest % chunk;
            let len = (chunk - at).min(end - next);
            let segment = Segment {
                stripe,
                unit: stdx::num::usize64(rest / chunk),
                at: low32(at),
                len: low32(len),
                from: stdx::num::usize64(next - offset),
            };
            next += len;
            Some(segment)
        })
    }

    /// The stripes a range touches.
    #[must_use]
    pub fn stripes_of(&self, offset: u64, len: u64) -> std::ops::Range<u64> {
        offset / self.stripe_bytes()..(offset + len).div_ceil(self.stripe_bytes())
    }
}

const _: () = assert!(CHUNK_MAX / PAGE <= raid::UNIT_BLOCKS_MAX);

/// A set of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots(pub u32);

impl Slots {
    #[must_use]
    pub fn has(self, slot: usize) -> bool {
        self.0 & (1 << slot) != 0
    }

    pub fn add(&mut self, slot: usize) {
        self.0 |= 1 << slot;
    }

    pub fn remove(&mut self, slot: usize) {
        self.0 &= !(1 << slot);
    }

    #[must_use]
    pub fn count(self) -> usize {
        stdx::num::usize32(self.0.count_ones())
    }

    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MEMBERS_MAX).filter(move |&slot| self.has(slot))
    }
}

impl FromIterator<usize> for Slots {
    fn from_iter<I: IntoIterator<Item = usize>>(slots: I) -> Self {
        let mut this = Self::default();
        slots.into_iter().for_each(|slot| this.add(slot));
        this
    }
}

const _: () = assert!(MEMBERS_MAX <= 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_place_and_back() {
        for (level, members) in
            [(Level::Stripe, 3), (Level::Mirror, 2), (Level::Raid5, 4), (Level::Raid6, 6)]
        {
            let layout =
                Layout::new(level, members, (512, 8192), 40 << 20, (Some(4), None)).unwrap();
            let mut seen = std::collections::HashSet::new();
            for segment in layout.segments(0, layout.stripe_bytes() * 20) {
                let slot = layout.slot(segment.stripe, segment.unit);
                assert_eq!(layout.unit(segment.stripe, slot), segment.unit);
                assert!(seen.insert((slot, layout.member_at(segment.stripe, segment.at))));
                assert_eq!(segment.len, 8192);
            }
            let slots: Slots = (0..layout.width()).map(|u| layout.slot(7, u)).collect();
            assert_eq!(slots.count(), members);
        }
        let parts: Vec<_> = Layout::new(Level::Raid5, 3, (512, 4096), 20 << 20, (None, None))
            .unwrap()
            .segments(8192 * 5 + 512, 8192)
            .collect();
        assert_eq!(parts.len(), 3);
        assert_eq!((parts[0].stripe, parts[0].unit, parts[0].at, parts[0].len), (5, 0, 512, 3584));
        assert_eq!(
            (parts[2].stripe, parts[2].unit, parts[2].len, parts[2].from),
            (6, 0, 512, 7680)
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let new = |level, members, block, chunk, bytes| {
            Layout::new(level, members, (block, chunk), bytes, (None, None)).is_ok()
        };
        assert!(new(Level::Raid5, 3, 512, 65536, 1 << 30));
        assert!(!new(Level::Raid5, 2, 512, 65536, 1 << 30));
        assert!(!new(Level::Mirror, 4, 512, 65536, 1 << 30));
        assert!(!new(Level::Raid6, 25, 512, 65536, 1 << 30));
        assert!(!new(Level::Raid5, 3, 8192, 65536, 1 << 30));
        assert!(!new(Level::Raid5, 3, 512, 3 << 12, 1 << 30));
        assert!(!new(Level::Raid5, 3, 512, 65536, 16 << 20));
    }
}
