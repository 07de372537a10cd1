//! Reading and writing a drive's catalog. Each half of its area has a base, and edits after it that count for as long
//! as each is whole and of the generation after the one before. A new base goes to the half that the newest one is not
//! in: whatever is cut short leaves what was there.

use media::Drive;
use media::drive::TRANSFER_MAX;
use reactor::buffer::Buffer;
use stdx::num::{u32_of, u64_of, usize32};

use crate::error::Result;
use crate::format::Bad;
use crate::format::catalog::{Catalog, CatalogArea, Loader, PAGE, Page, Part};

const PIECE_PAGES: u32 = u32_of(TRANSFER_MAX / PAGE);

/// What can be followed of a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trail {
    pub half: u64,
    /// Of the last edit that counts, or of the base.
    pub generation: u64,
    pub base_pages: u32,
    /// The page of the half at which the next edit goes.
    pub next: u32,
    /// Why it ends there, where that is not for there being no more.
    pub broken: Option<Broken>,
}

/// An edit that cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    pub bad: Bad,
    /// The generation of the last edit behind it that is whole, if any is: the broken one was whole once, since each is
    /// durable before the next is begun.
    pub later: Option<u64>,
}

/// The pages of a half, read some at a time.
struct Pages<'a> {
    drive: &'a Drive,
    at: u64,
    /// Pages of the half.
    all: u32,
    /// What was read last, and the page that it begins with.
    piece: Option<(u32, Buffer)>,
}

impl<'a> Pages<'a> {
    fn new(drive: &'a Drive, area: CatalogArea, half: u64) -> Self {
        Self { drive, at: area.half_at(half), all: area.half_pages(), piece: None }
    }

    /// A page; where it is not there yet so many are read, or as many as one read gives.
    async fn get(&mut self, page: u32, ahead: u32) -> Result<&[u8]> {
        let has = |(first, piece): &(u32, Buffer)| {
            page >= *first && usize32(page - first + 1) * PAGE <= piece.len()
        };
        let (first, piece) = match self.piece.take_if(|piece| has(piece)) {
            Some(piece) => piece,
            None => {
                // Given back before another is asked for.
                self.piece = None;
                let pages = ahead.clamp(1, PIECE_PAGES).min(self.all - page);
                let at = self.at + u64::from(page) * u64_of(PAGE);
                (page, self.drive.read(at, usize32(pages) * PAGE).await?)
            }
        };
        let (_, piece) = self.piece.insert((first, piece));
        let from = usize32(page - first) * PAGE;
        Ok(&piece[from..from + PAGE])
    }
}

/// Follows a half, and has all that counts loaded if that is wanted.
async fn follow(
    drive: &Drive,
    area: CatalogArea,
    pool: [u8; 16],
    half: u64,
    mut loader: Option<&mut Loader>,
) -> Result<std::result::Result<Trail, Bad>> {
    let mut pages = Pages::new(drive, area, half);
    let base = match Page::read(pages.get(0, 1).await?, pool) {
        Ok(base) if base.part != Part::Base || base.pages > area.base_pages_max() => {
            return Ok(Err(Bad::Field("pages")));
        }
        Ok(base) => base,
        Err(bad) => return Ok(Err(bad)),
    };
    if let Err(bad) = take(&mut pages, pool, 0, base, &mut loader).await? {
        return Ok(Err(bad));
    }
    let (generation, base_pages) = (base.generation, base.pages);
    let mut trail = Trail { half, generation, base_pages, next: base_pages, broken: None };
    let end = base_pages + area.edit_pages(base_pages);
    let bad = loop {
        if trail.next == end {
            break None;
        }
        let edit = match Page::read(pages.get(trail.next, end - trail.next).await?, pool) {
            Ok(edit) if edit.part == Part::Edit && edit.generation == trail.generation + 1 => edit,
            // Of a time before this base.
            Ok(_) | Err(Bad::Blank) => break None,
            Err(bad) => break Some(bad),
        };
        if edit.index > 0 || edit.pages > end - trail.next {
            break Some(Bad::Field("pages"));
        }
        if let Err(bad) = take(&mut pages, pool, trail.next, edit, &mut loader).await? {
            break Some(bad);
        }
        trail.next += edit.pages;
        trail.generation = edit.generation;
    };
    let later = last_behind(&mut pages, pool, trail, end).await?;
    let bad = bad.or(later.map(|_| Bad::CutShort));
    trail.broken = bad.map(|bad| Broken { bad, later });
    Ok(Ok(trail))
}

/// Takes all pages of a base or an edit of which the first, at `from`, is known.
async fn take(
    pages: &mut Pages<'_>,
    pool: [u8; 16],
    from: u32,
    first: Page,
    loader: &mut Option<&mut Loader>,
) -> Result<std::result::Result<(), Bad>> {
    for index in 0..first.pages {
        let block = pages.get(from + index, first.pages - index).await?;
        let page = match Page::read(block, pool) {
            Ok(page) => page,
            Err(Bad::Blank) => return Ok(Err(Bad::CutShort)),
            Err(bad) => return Ok(Err(bad)),
        };
        if !page.goes_on(&first, index) {
            return Ok(Err(Bad::CutShort));
        }
        if let Some(loader) = loader
            && let Err(bad) = loader.take(page, block)
        {
            return Ok(Err(bad));
        }
    }
    Ok(Ok(()))
}

/// The generation of the last edit that is whole behind where a trail ends, which is not of the edit it ends before.
async fn last_behind(
    pages: &mut Pages<'_>,
    pool: [u8; 16],
    trail: Trail,
    end: u32,
) -> Result<Option<u64>> {
    let mut last = None;
    for at in trail.next..end {
        if let Ok(page) = Page::read(pages.get(at, end - at).await?, pool)
            && page.part == Part::Edit
            && page.generation > trail.generation + 1
        {
            last = last.max(Some(page.generation));
        }
    }
    Ok(last)
}

/// How far each half of a drive can be followed, or what is wrong with its base.
///
/// # Errors
/// When the drive cannot be read.
pub async fn trails(
    drive: &Drive,
    area: CatalogArea,
    pool: [u8; 16],
) -> Result<[std::result::Result<Trail, Bad>; 2]> {
    let first = follow(drive, area, pool, 0, None).await?;
    Ok([first, follow(drive, area, pool, 1, None).await?])
}

/// The newest of two halves.
///
/// # Errors
/// Why neither has one.
pub fn newest(trails: [std::result::Result<Trail, Bad>; 2]) -> std::result::Result<Trail, Bad> {
    super::newest(trails, |trail| trail.generation)
}

/// The catalog in a half of a drive.
///
/// # Errors
/// The outer one when the drive cannot be read, the inner one when there is none.
pub async fn load(
    drive: &Drive,
    area: CatalogArea,
    pool: [u8; 16],
    half: u64,
) -> Result<std::result::Result<Catalog, Bad>> {
    let mut loader = Loader::default();
    let followed = follow(drive, area, pool, half, Some(&mut loader)).await?;
    Ok(followed.map(|_| loader.catalog()))
}

/// The newest catalog that a drive carries.
///
/// # Errors
/// As [`load`].
pub async fn read(
    drive: &Drive,
    area: CatalogArea,
    pool: [u8; 16],
) -> Result<std::result::Result<Catalog, Bad>> {
    match newest(trails(drive, area, pool).await?) {
        Ok(trail) => load(drive, area, pool, trail.half).await,
        Err(bad) => Ok(Err(bad)),
    }
}

/// Writes pages from one of a half's on; durable when this returns.
///
/// # Errors
/// When the drive fails.
pub async fn write(
    drive: &Drive,
    area: CatalogArea,
    (half, page): (u64, u32),
    bytes: &[u8],
) -> Result<()> {
    super::write(drive, area.half_at(half) + u64::from(page) * u64_of(PAGE), bytes).await
}

/// Takes pages from one of a half's on away, also where there is no space behind the drive; durable when this returns.
///
/// # Errors
/// When the drive fails.
pub async fn blank(
    drive: &Drive,
    area: CatalogArea,
    (half, page): (u64, u32),
    pages: u32,
) -> Result<()> {
    let at = area.half_at(half) + u64::from(page) * u64_of(PAGE);
    drive.write_zeroes(at, u64::from(pages) * u64_of(PAGE), true).await?;
    Ok(drive.flush().await?)
}

/// Where pages begin that cannot be read, from one of a half's on, `most` at most.
///
/// # Errors
/// When the drive fails, or does not answer in time.
pub async fn unreadable(
    drive: &Drive,
    area: CatalogArea,
    (half, page): (u64, u32),
    most: usize,
) -> Result<Vec<u64>> {
    let offset = |page: u32| area.half_at(half) + u64::from(page) * u64_of(PAGE);
    let is_bad = async |page: u32, pages: u32| {
        let read = drive.read(offset(page), usize32(pages) * PAGE).await.map(drop);
        match read.map_err(crate::Error::from) {
            Err(error) if !error.is_of_medium() => Err(error),
            read => Ok(read.is_err()),
        }
    };
    let (mut at, mut found) = (page, Vec::new());
    while at < area.half_pages() && found.len() < most {
        let pages = PIECE_PAGES.min(area.half_pages() - at);
        if is_bad(at, pages).await? {
            for page in at..at + pages {
                if found.len() < most && is_bad(page, 1).await? {
                    found.push(offset(page));
                }
            }
        }
        at += pages;
    }
    Ok(found)
}
