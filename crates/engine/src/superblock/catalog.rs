//! The catalog on all drives: a change is an edit that each of them gets, after a base where it needs one.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use media::Drive;
use reactor::buffer;
use reactor::cross_core::Lock;
use reactor::sync::Semaphore;
use stdx::num::{u32_of, usize32};

use super::{Superblock, What};
use crate::area;
use crate::area::catalog::Trail;
use crate::canary::{self, Step};
use crate::error::{Error, Kind, Result};
use crate::format::catalog::{Base, Catalog, CatalogArea, EDIT_PAGES_MAX, Edit, PAGE};
use crate::limits::NO_SPACE_PAUSE;

/// How much later a catalog is that was not found alike on all drives: one that could not be read may have what was
/// never acknowledged, under generations that would be given anew.
const GENERATIONS_APART: u64 = 1 << 32;

/// Pages of a half that a scrub writes anew at most because they cannot be read, and for how long it does that.
const CLEARED_PAGES: usize = 256;
const CLEARING_PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of a base that are copied for several drives in one turn: of more, each has one of its own.
const COPIED_AT_ONCE: usize = 256 << 10;

/// Where the catalog lies on a drive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// The half that the newest whole base is in, if there is one.
    half: Option<u64>,
    base_pages: u32,
    /// The page of that half at which the next edit goes; `None` where a base has to come first.
    next: Option<u32>,
    /// The half, the page and the pages of an edit that may be there, in part or whole, and does not count.
    begun: Option<(u64, u32, u32)>,
}

impl Place {
    /// Of a drive of which that was found.
    #[must_use]
    pub const fn new(trail: &Trail) -> Self {
        Self {
            half: Some(trail.half),
            base_pages: trail.base_pages,
            next: Some(trail.next),
            begun: None,
        }
    }

    /// Where an edit of so many pages goes, if there is room for it behind the base there is.
    fn room(&self, area: CatalogArea, pages: u32) -> Option<(u64, u32)> {
        let end = self.base_pages + area.edit_pages(self.base_pages);
        self.half.zip(self.next.filter(|next| next + pages <= end))
    }
}

/// The catalog, and where each drive has it.
pub struct Kept {
    area: CatalogArea,
    catalog: Lock<Catalog>,
    /// By drive.
    places: Lock<Vec<Place>>,
    /// A base is to be written: to take back a change that failed, or to drives that missed one.
    owed: AtomicBool,
}

impl Kept {
    #[must_use]
    pub fn new(area: CatalogArea, catalog: Catalog, places: Vec<Place>) -> Self {
        let (catalog, places) = (Lock::new(catalog), Lock::new(places));
        Self { area, catalog, places, owed: AtomicBool::new(false) }
    }

    pub const fn area(&self) -> CatalogArea {
        self.area
    }

    pub fn is_owed(&self) -> bool {
        self.owed.load(Ordering::Acquire)
    }

    fn place(&self, drive: u16) -> Place {
        self.places.lock()[usize::from(drive)]
    }

    /// There is one drive more, which has nothing of it.
    pub fn add_place(&self) {
        self.places.lock().push(Place::default());
    }

    /// Blanks what a drive may have of a change that failed. Unlike a base in its place, that needs no space.
    pub async fn blank_begun(&self, index: u16, drive: &Drive) -> Result<()> {
        match self.place(index).begun {
            Some((half, page, pages)) => {
                area::catalog::blank(drive, self.area, (half, page), pages).await
            }
            None => Ok(()),
        }
    }

    fn has_begun(&self) -> bool {
        self.places.lock().iter().any(|place| place.begun.is_some())
    }

    /// What was begun counts, or is nowhere any more where it could be found.
    fn end_begun(&self) {
        self.places.lock().iter_mut().for_each(|place| place.begun = None);
    }

    /// A drive has nothing of it any more.
    pub fn forget(&self, drive: u16) {
        self.places.lock()[usize::from(drive)] = Place::default();
    }
}

/// What is written of the catalog: an edit, to drives that have what it is of. Others get a base before. Without an
/// edit all do.
pub struct Writing<'a> {
    kept: &'a Kept,
    pool: [u8; 16],
    edit: &'a [u8],
    /// Made for the first drive that needs it; others that do wait for that.
    base: OnceCell<Vec<u8>>,
    making: Semaphore,
}

impl<'a> Writing<'a> {
    const fn new(kept: &'a Kept, pool: [u8; 16], edit: &'a [u8]) -> Self {
        Self { kept, pool, edit, base: OnceCell::new(), making: Semaphore::new(1) }
    }

    fn needs_base(&self, index: u16) -> bool {
        let pages = u32_of(self.edit.len() / PAGE);
        pages == 0 || self.kept.place(index).room(self.kept.area, pages).is_none()
    }

    /// Writes to one drive. May be called again after a failure: the same goes to the same place.
    pub async fn write(&self, index: u16, drive: &Drive) -> Result<()> {
        let area = self.kept.area;
        assert!(self.edit.len().is_multiple_of(PAGE), "whole pages are written");
        let pages = u32_of(self.edit.len() / PAGE);
        let place = self.kept.place(index);
        let at = match place.room(area, pages).filter(|_| pages > 0) {
            Some(at) => at,
            None => self.write_base(index, drive, place).await?,
        };
        if pages > 0 {
            self.kept.places.lock()[usize::from(index)].begun = Some((at.0, at.1, pages));
            area::catalog::write(drive, area, at, self.edit).await?;
            self.kept.places.lock()[usize::from(index)].next = Some(at.1 + pages);
        }
        Ok(())
    }

    /// The catalog as a base. It is made some pages at a time, between which whoever waits for this core has it. The catalog
    /// stays what it is meanwhile: whoever writes it has the turn in which alone it is changed, until all is written.
    async fn base(&self) -> &[u8] {
        let _making = self.making.hold(1).await;
        if let Some(base) = self.base.get() {
            if base.len() > COPIED_AT_ONCE {
                reactor::yield_now().await;
            }
            return base;
        }
        let mut base = Base::new(&self.kept.catalog.lock(), self.pool);
        while !base.step(&self.kept.catalog.lock()) {
            // Also where one host alone is active: it waits as well.
            reactor::yield_now().await;
        }
        self.base.get_or_init(|| base.into_bytes())
    }

    /// Writes a base to the half that has the older one; gives where edits go after it.
    async fn write_base(&self, index: u16, drive: &Drive, place: Place) -> Result<(u64, u32)> {
        let half = match place.half {
            Some(half) if canary::skips(Step::CatalogHalf) => half,
            half => half.map_or(0, |half| 1 - half),
        };
        let base = self.base().await;
        area::catalog::write(drive, self.kept.area, (half, 0), base).await?;
        let base_pages = u32_of(base.len() / PAGE);
        let place = Place { half: Some(half), base_pages, next: Some(base_pages), begun: None };
        self.kept.places.lock()[usize::from(index)] = place;
        Ok((half, base_pages))
    }
}

/// A change under way. Where it does not come to its end nobody knows which drives have it: it is taken back, under a
/// later generation.
struct Pending<'a> {
    kept: &'a Kept,
    generation: u64,
}

impl Pending<'_> {
    fn done(self, edit: &Edit) -> Result<()> {
        let mut catalog = self.kept.catalog.lock();
        let is_next = catalog.generation + 1 == self.generation;
        assert!(is_next, "one change of the catalog is made at a time");
        catalog.apply(edit).map_err(refused)?;
        catalog.generation = self.generation;
        drop(catalog);
        self.kept.end_begun();
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if canary::skips(Step::CatalogTakesBack) {
            return;
        }
        self.kept.catalog.lock().generation = self.generation;
        self.kept.owed.store(true, Ordering::Release);
    }
}

fn refused(bad: crate::format::Bad) -> Error {
    Error::caused(Kind::Invalid, "a change of the catalog that makes no sense", bad)
}

impl Superblock {
    /// What `look` wants to know of the catalog, as it is on the drives.
    pub fn catalog<R>(&self, look: impl FnOnce(&Catalog) -> R) -> R {
        look(&self.kept.catalog.lock())
    }

    /// How many objects the pool can have.
    pub fn objects_max(&self) -> usize {
        self.kept.area.objects_max()
    }

    /// Changes the catalog, for good when this returns. `change` gives what changes.
    ///
    /// # Errors
    /// What `change` refuses, and as [`write_labels`](Self::write_labels).
    pub async fn change_catalog<R>(
        &self,
        change: impl FnOnce(&Catalog) -> Result<(Edit, R)>,
    ) -> Result<R> {
        let _turn = self.turn.hold().await;
        self.take_back().await?;
        let (edit, result, bytes, generation) = {
            let mut catalog = self.kept.catalog.lock();
            let (edit, result) = change(&catalog)?;
            let objects = catalog.check(&edit).map_err(refused)?;
            let generation = catalog.generation + 1;
            let bytes = edit.to_pages(self.pool, generation, objects);
            (edit, result, bytes, generation)
        };
        if bytes.len() > usize32(EDIT_PAGES_MAX) * PAGE {
            return Err(Error::new(Kind::Invalid, "a change of the catalog that is too large"));
        }
        let pending = Pending { kept: &self.kept, generation };
        let writing = Writing::new(&self.kept, self.pool, &bytes);
        self.prepare(&writing).await;
        let put = match self.put(What::Catalog(&writing)).await {
            Ok(()) if self.has_news() && !canary::skips(Step::CatalogTells) => {
                self.put_labels(self.label()).await
            }
            put => put,
        };
        if let Err(error) = put {
            // It is not to happen at the next opening, when everybody was told that it did not.
            drop(pending);
            if self.take_back().await.is_err() {
                let _ = self.blank_begun().await;
            }
            return Err(error);
        }
        pending.done(&edit)?;
        Ok(result)
    }

    /// Makes the base that some drive needs before any is written to: the time that it takes is no drive's.
    async fn prepare(&self, writing: &Writing<'_>) {
        let is_used = |index: &u16| self.drives.drive(*index).is_some();
        if self.drives.indices().filter(is_used).any(|index| writing.needs_base(index)) {
            writing.base().await;
        }
    }

    /// Has every drive carry the catalog, of which an older one was found on some. What a drive has no space for is
    /// owed to it as long as no opening can miss the newest one.
    ///
    /// # Errors
    /// As [`change_catalog`](Self::change_catalog).
    pub async fn spread_catalog(&self) -> Result<()> {
        {
            let _turn = self.turn.hold().await;
            if !canary::skips(Step::OpeningApart) {
                self.kept.catalog.lock().generation += GENERATIONS_APART;
            }
            self.kept.owed.store(true, Ordering::Release);
        }
        match self.settle_catalog().await {
            Err(error) if error.may_pass() && self.is_catalog_spread().await => {}
            done => done?,
        }
        if canary::skips(Step::CatalogTells) { Ok(()) } else { self.tell_failures().await }
    }

    /// Whether more drives have the contents of the catalog than an opening may lack.
    async fn is_catalog_spread(&self) -> bool {
        let mut having = 0;
        for index in self.drives.indices() {
            if let Some(drive) = self.drives.drive(index)
                && let Ok(Ok(found)) = area::catalog::read(drive, self.kept.area, self.pool).await
            {
                having += usize::from(self.catalog(|catalog| catalog.has_same(&found)));
            }
        }
        self.is_more_than_may_go(having)
    }

    /// Writes the catalog as it is over a change that failed, and that some drives may have.
    async fn take_back(&self) -> Result<()> {
        if !self.kept.is_owed() {
            return Ok(());
        }
        self.kept.catalog.lock().generation += 1;
        let writing = Writing::new(&self.kept, self.pool, &[]);
        self.prepare(&writing).await;
        self.put(What::Catalog(&writing)).await?;
        // A drive that may have what was begun, and is out of use by now: no opening looks there once the labels say so.
        if self.kept.has_begun() && self.has_news() {
            self.put_labels(self.label()).await?;
        }
        self.kept.end_begun();
        self.kept.owed.store(false, Ordering::Release);
        Ok(())
    }

    /// Blanks a change that failed where it lies, since a base in its place finds no space. A drive that may have it and is
    /// out of use by now is told of: no opening looks there.
    async fn blank_begun(&self) -> Result<()> {
        if !self.kept.has_begun() || canary::skips(Step::CatalogBlanks) {
            return Ok(());
        }
        self.put(What::NoEdit(&self.kept)).await?;
        if self.has_news() {
            self.put_labels(self.label()).await?;
        }
        self.kept.end_begun();
        Ok(())
    }

    /// Whether an opening may find a change done that failed.
    pub fn may_find_failed(&self) -> bool {
        self.kept.has_begun()
    }

    /// Writes the catalog to all drives once more, and on those of `lacking` over what else of its area cannot be read: one
    /// such sector anywhere hides the newest edit from whoever looks for it.
    ///
    /// # Errors
    /// As [`change_catalog`](Self::change_catalog).
    pub(super) async fn renew_catalog(&self, lacking: &[u16]) -> Result<()> {
        let _turn = self.turn.hold().await;
        self.kept.owed.store(true, Ordering::Release);
        self.take_back().await?;
        for index in lacking {
            // Nobody changes anything meanwhile: a drive that keeps this waiting is looked at by the next scrub again.
            let found = reactor::timeout(CLEARING_PATIENCE, self.unreadable_rest(*index)).await;
            for at in found.unwrap_or_default() {
                let mut blank = buffer::alloc(PAGE).await;
                blank.fill(0);
                // As any write: one that is late takes the drive out of use, and never comes after a newer one.
                if self.drives.write(*index, at, blank).await.is_err() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Where pages beside the catalog, in its area of a drive, cannot be read.
    async fn unreadable_rest(&self, index: u16) -> Vec<u64> {
        let (area, place) = (self.kept.area, self.kept.place(index));
        let mut all = Vec::new();
        if let Some(drive) = self.drives.drive(index)
            && let (Some(half), Some(next)) = (place.half, place.next)
        {
            for from in [(half, next), (1 - half, 0)] {
                let found = area::catalog::unreadable(drive, area, from, CLEARED_PAGES).await;
                all.extend(found.unwrap_or_default());
            }
        }
        all
    }

    /// Takes a change of the catalog back that failed, if that could not be done so far.
    ///
    /// # Errors
    /// As [`change_catalog`](Self::change_catalog).
    pub async fn settle_catalog(&self) -> Result<()> {
        self.settled_generation().await.map(drop)
    }

    /// Waits until no opening can find a change done that failed: for whoever lets hosts go on as if it had never been. Not
    /// where more drives fail than the redundancy bears, nor once `is_over`: then it [may](Self::may_find_failed).
    pub async fn taken_back(&self, is_over: impl Fn() -> bool) {
        let blanked = async || {
            let _turn = self.turn.hold().await;
            self.blank_begun().await
        };
        while !is_over() && blanked().await.is_err_and(|error| error.may_pass()) {
            reactor::sleep(NO_SPACE_PAUSE).await;
        }
    }

    /// As [`settle_catalog`](Self::settle_catalog). Gives the generation that all drives in use have then: outside of a turn
    /// it may be that of a catalog which is being written.
    ///
    /// # Errors
    /// As [`change_catalog`](Self::change_catalog).
    pub(super) async fn settled_generation(&self) -> Result<u64> {
        let _turn = self.turn.hold().await;
        self.take_back().await?;
        Ok(self.catalog(|catalog| catalog.generation))
    }
}
