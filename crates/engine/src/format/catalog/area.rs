//! Where the catalog lies on a drive, and how much it can hold.

use stdx::num::{u32_of, usize32};

use super::page::{PAGE, RECORDS};
use crate::format::area::CATALOG;
use crate::limits::OBJECTS_MAX;

const MIB: u64 = 1 << 20;

/// Pages of half a MiB.
const HALF_MIB_PAGES: u32 = u32_of((1 << 19) / PAGE);

/// The share of a drive that its catalog takes.
const SHARE: u64 = 256;

/// Pages of edits that may follow a base, however short that is: an opening reads them all.
const EDIT_PAGES: u32 = 256;

/// Pages of one edit at most: what belongs together and is more goes in several.
pub const EDIT_PAGES_MAX: u32 = 64;

/// The catalog's area of a drive: two halves, each with room for a base and the edits that follow it. As large on every
/// drive of a pool, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogArea {
    mib: u8,
}

impl CatalogArea {
    /// The smallest area, for small pools.
    pub const LEAST: Self = Self { mib: 3 };
    /// The largest area, which holds all objects that a pool can have.
    pub const MOST: Self = Self { mib: 64 };

    /// What suits a pool whose smallest drive has so many bytes.
    #[must_use]
    pub fn for_drive(bytes: u64) -> Self {
        let mib = u8::try_from(bytes / SHARE / MIB).unwrap_or(u8::MAX);
        Self { mib: mib.clamp(Self::LEAST.mib, Self::MOST.mib) }
    }

    /// One of so many MiB; `None` for one that no pool has.
    #[must_use]
    pub fn from_mib(mib: u8) -> Option<Self> {
        (Self::LEAST.mib..=Self::MOST.mib).contains(&mib).then_some(Self { mib })
    }

    #[must_use]
    pub const fn mib(self) -> u8 {
        self.mib
    }

    /// Where it ends on a drive, in bytes from the drive's beginning. Log zones follow, and the allocation units.
    #[must_use]
    pub const fn end(self) -> u64 {
        CATALOG + self.mib as u64 * MIB
    }

    /// Where a half (0 or 1) begins on a drive, in bytes from the drive's beginning.
    #[must_use]
    pub const fn half_at(self, half: u64) -> u64 {
        CATALOG + half * (self.mib as u64 * MIB / 2)
    }

    /// Pages of one half.
    #[must_use]
    pub const fn half_pages(self) -> u32 {
        self.mib as u32 * HALF_MIB_PAGES
    }

    /// Pages of a base at most: two thirds of a half, the rest being for edits.
    #[must_use]
    pub const fn base_pages_max(self) -> u32 {
        self.half_pages() / 3 * 2
    }

    /// Pages that the edits of a base may take. As many as the base has, where there is room for them: then writing a
    /// new one costs each edit a page more.
    #[must_use]
    pub fn edit_pages(self, base_pages: u32) -> u32 {
        base_pages.max(EDIT_PAGES).min(self.half_pages().saturating_sub(base_pages))
    }

    /// Objects that it has room for.
    #[must_use]
    pub fn objects_max(self) -> usize {
        (usize32(self.base_pages_max()) * RECORDS).min(OBJECTS_MAX)
    }
}

const LEAST: CatalogArea = CatalogArea::LEAST;
const MOST: CatalogArea = CatalogArea::MOST;
const _: () = assert!(MOST.base_pages_max() as usize * RECORDS >= OBJECTS_MAX);
const _: () = assert!(LEAST.half_pages() - LEAST.base_pages_max() >= EDIT_PAGES_MAX);

#[test]
fn small_pools_give_up_no_more_than_before_and_large_ones_hold_all_objects() {
    let area = |bytes| CatalogArea::for_drive(bytes);
    assert_eq!(area(64 * MIB).end(), 4 * MIB);
    assert_eq!(area(64 * MIB).objects_max(), 6400);
    assert!(area(15 << 30).objects_max() < OBJECTS_MAX);
    assert_eq!(area(16 << 30).objects_max(), OBJECTS_MAX);
    assert_eq!(area(u64::MAX).end(), 65 * MIB);
    for mib in 0..=255 {
        let Some(area) = CatalogArea::from_mib(mib) else { continue };
        let most = super::page::base_pages(area.objects_max());
        assert!(most + area.edit_pages(most) <= area.half_pages());
        assert!(area.edit_pages(most) >= EDIT_PAGES_MAX && area.edit_pages(1) >= EDIT_PAGES_MAX);
        assert_eq!(area.half_at(1) + u64::from(area.half_pages()) * PAGE as u64, area.end());
    }
}
