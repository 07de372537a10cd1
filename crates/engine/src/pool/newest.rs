//! The newest catalog of all drives that an opening has.

use reactor::join_all;

use crate::area;
use crate::area::catalog::Trail;
use crate::drives::DriveSet;
use crate::error::{Error, Kind, Result};
use crate::format::catalog::Catalog;
use crate::format::label::Label;
use crate::superblock::{Kept, Place};

/// The catalog that counts.
pub(super) struct Newest {
    catalog: Catalog,
    /// Where it lies, by drive.
    places: Vec<Place>,
    /// Each of them has it.
    pub alike: bool,
}

impl Newest {
    pub fn kept(self, label: &Label) -> Kept {
        Kept::new(label.catalog, self.catalog, self.places)
    }
}

/// The newest whole catalog that any of these drives has; that of one that cannot be read, or is damaged, is outvoted.
///
/// # Errors
/// `Corrupt` or `Failed` when no drive has one, `Loss` when changes that were acknowledged are damaged on all drives and
/// that is not accepted.
pub(super) async fn newest_catalog(
    drives: &DriveSet,
    label: &Label,
    accept_loss: bool,
) -> Result<Newest> {
    let (area, pool) = (label.catalog, label.pool);
    let looks = drives.indices().filter_map(|index| Some((index, drives.drive(index)?.clone())));
    let looks = looks.map(|(index, drive)| async move {
        let trails = area::catalog::trails(&drive, area, pool).await;
        (index, trails.map(area::catalog::newest))
    });
    let mut places = vec![Place::default(); drives.len()];
    let (mut trails, mut unread, mut alike) = (Vec::new(), None, true);
    for (index, seen) in join_all(looks).await {
        match seen {
            Ok(Ok(trail)) => {
                places[usize::from(index)] = Place::new(&trail);
                trails.push((index, trail));
            }
            Ok(Err(_)) => alike = false,
            Err(error) => (unread, alike) = (Some(error), false),
        }
    }
    trails.sort_by_key(|(_, trail)| std::cmp::Reverse(trail.generation));
    for (index, trail) in &trails {
        let Some(drive) = drives.drive(*index) else { continue };
        match area::catalog::load(drive, area, pool, trail.half).await {
            // What it says since it was followed, and of others that it cannot be loaded from.
            Ok(Ok(catalog)) if catalog.generation == trail.generation => {
                // What lies behind a damaged edit would count again behind a new one.
                let is_same = |(_, other): &(u16, Trail)| {
                    other.generation == trail.generation
                        && other.broken.is_none_or(|broken| broken.later.is_none())
                };
                alike &= trails.iter().all(is_same);
                check_lost(&catalog, &trails, accept_loss)?;
                return Ok(Newest { catalog, places, alike });
            }
            Ok(_) => alike = false,
            Err(error) => (unread, alike) = (Some(error), false),
        }
    }
    let what = "no drive has the pool's catalog";
    Err(match unread {
        Some(error) => Error::caused(Kind::Failed, what, error),
        None => Error::new(Kind::Corrupt, what),
    })
}

/// Refuses a catalog of which later changes are lost.
fn check_lost(catalog: &Catalog, trails: &[(u16, Trail)], accept_loss: bool) -> Result<()> {
    let later = trails.iter().filter_map(|(_, trail)| trail.broken?.later).max();
    // Of the last one that a drive has it is not known whether it was acknowledged.
    if later.is_some_and(|later| later > catalog.generation + 1) && !accept_loss {
        let context =
            "changes of the pool's volumes that were acknowledged are damaged on all of its drives";
        return Err(Error::new(Kind::Loss, context));
    }
    Ok(())
}
