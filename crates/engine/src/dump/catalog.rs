//! The catalog: its bases and edits on each drive, and the volumes in the newest.

use media::Drive;
use stdx::num::u64_of;

use super::report::{Finding, Structure, VolumeSeen};
use super::{Look, advice};
use crate::area::catalog::{Broken, Trail, load, trails};
use crate::format::Bad;
use crate::format::catalog::{Catalog, PAGE};

/// Looks at the catalogs of all drives, and gives the newest.
pub(super) async fn find(look: &Look<'_>) -> Option<Catalog> {
    let mut all = Vec::new();
    for index in look.set.indices() {
        if let Some(drive) = look.set.drive(index).cloned()
            && let Some(trail) = follow(look, index, &drive).await
        {
            all.push((index, trail));
        }
    }
    all.sort_by_key(|(_, trail)| std::cmp::Reverse(trail.generation));
    let mut found = None;
    for (index, trail) in &all {
        let Some(drive) = look.set.drive(*index).cloned() else { continue };
        match load(&drive, look.label.catalog, look.label.pool, trail.half).await {
            Ok(Ok(catalog)) if catalog.generation == trail.generation => {
                found = Some(catalog);
                break;
            }
            Ok(Ok(_)) => tell(look, *index, trail, "its edits make no sense".into()),
            Ok(Err(bad)) => tell(look, *index, trail, format!("it makes no sense: {bad}")),
            Err(error) => tell(look, *index, trail, format!("it cannot be read: {error}")),
        }
    }
    tell_all(look, &all, found.as_ref());
    found
}

/// How far a drive's newest catalog can be followed. Tells what is wrong with it.
async fn follow(look: &Look<'_>, index: u16, drive: &Drive) -> Option<Trail> {
    let (area, name) = (look.label.catalog, look.name(index));
    let wrong = |what: String, offset: u64| {
        let finding = Finding::warning(Structure::Catalog, what).on(&name).at(offset);
        look.add(finding.advise(advice::OUTVOTED));
    };
    let halves = match trails(drive, area, look.label.pool).await {
        Ok(halves) => halves,
        Err(error) => {
            wrong(format!("it cannot be read: {error}"), area.half_at(0));
            return None;
        }
    };
    let is_blank = halves.iter().all(|half| matches!(half, Err(Bad::Blank)));
    let mut newest: Option<Trail> = None;
    for (half, trail) in (0..).zip(halves) {
        match trail {
            Ok(trail) => {
                look.count_blocks(stdx::num::usize32(trail.next));
                if newest.is_none_or(|newest| newest.generation < trail.generation) {
                    newest = Some(trail);
                }
            }
            Err(Bad::Blank) if !is_blank => {}
            Err(bad) => {
                let what = format!("one of the drive's two bases is not whole: {bad}");
                wrong(what, area.half_at(half));
            }
        }
    }
    if let Some(Trail { half, next, broken: Some(Broken { bad, later }), generation, .. }) = newest
    {
        let what = match later {
            None => format!("the edit after generation {generation} is not whole: {bad}"),
            Some(later) => format!(
                "the edit after generation {generation} is damaged ({bad}): those behind it, to generation {later}, do not count"
            ),
        };
        wrong(what, area.half_at(half) + u64::from(next) * u64_of(PAGE));
    }
    newest
}

fn tell(look: &Look<'_>, index: u16, trail: &Trail, what: String) {
    let at = look.label.catalog.half_at(trail.half);
    let finding = Finding::warning(Structure::Catalog, what).on(look.name(index)).at(at);
    look.add(finding.advise(advice::OUTVOTED));
}

/// Tells how the drives differ, and what is lost on all of them.
fn tell_all(look: &Look<'_>, all: &[(u16, Trail)], found: Option<&Catalog>) {
    let Some(found) = found else {
        let what = "no drive has the catalog: names and sizes of the volumes are lost";
        look.add(Finding::error(Structure::Catalog, what).advise(
            "what the map holds is found below by view; the pool cannot be opened without a \
             catalog",
        ));
        return;
    };
    let newest = found.generation;
    for (index, trail) in all.iter().filter(|(_, trail)| trail.generation < newest) {
        let what = format!("it is of generation {}, the newest of {newest}", trail.generation);
        let at = look.label.catalog.half_at(trail.half);
        look.add(Finding::note(Structure::Catalog, what).on(look.name(*index)).at(at));
    }
    let later = all.iter().filter_map(|(_, trail)| trail.broken?.later).max();
    if let Some(later) = later.filter(|later| *later > newest + 1) {
        let what = format!(
            "the changes after generation {newest}, to {}, are damaged on all drives",
            later - 1
        );
        look.add(Finding::error(Structure::Catalog, what).advise(
            "`flashloom pool import --accept-loss` opens the pool with its volumes as they were before those changes",
        ));
    }
}

/// Lists the volumes there are.
pub(super) fn list(look: &Look<'_>, catalog: &Catalog) {
    let volumes = catalog.objects().filter(|object| object.is_volume());
    let volumes = volumes.map(|volume| VolumeSeen {
        name: volume.name.to_string(),
        id: volume.id,
        view: volume.view.get(),
        bytes: volume.bytes,
        block_size: volume.block_size,
        used: 0,
        deleted: volume.deleted,
        group: volume.group.and_then(|group| Some(catalog.get(group)?.name.to_string())),
    });
    look.report.borrow_mut().volumes = volumes.collect();
}
