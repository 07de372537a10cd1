//! The map of a shard: its tables page by page, and all that they say together.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use stdx::num::{low32, u32_of, u64_of, usize32, usize64};

use super::blocks::{self, Pages};
use super::checkpoint::Checkpoint;
use super::live::Live;
use super::report::{Finding, ShardSeen, Structure};
use super::stripes::Doubtful;
use super::{Look, advice};
use crate::address::{BLOCK, Encoding, Entry, Key, Location, SharedBlockId, Stored, Version, View};
use crate::map::{Checked, Extents, Map, MapLimits, News, PageKind, Period};
use crate::segment::{Owner, OwnerRecord, StripeHeader};
use crate::volume::shard_of;

/// A shard's map as it lies on the drives.
pub(super) type Opened<'a, 'b> = Map<Rc<Pages<'a, 'b>>>;

/// Memory for a map's pages.
const MAP_BYTES_MIN: usize = 4 << 20;
const MAP_BYTES_MAX: usize = 64 << 20;

/// Checks every page of the map, and takes note of those in use.
pub(super) async fn check<'a, 'b>(
    look: &'a Look<'b>,
    found: &Checkpoint,
    live: &mut Live,
    seen: &mut ShardSeen,
) -> Option<Opened<'a, 'b>> {
    let infos = found.table.iter().map(|(id, segment)| (*id, Rc::clone(&segment.info)));
    let pages = Rc::new(Pages::new(look, infos.collect()));
    let units: u64 = look.label.drives.iter().map(|drive| u64::from(drive.au_count)).sum();
    let blocks = units.saturating_mul(look.label.layout.au_bytes) / u64_of(BLOCK);
    let memory = usize64(blocks.saturating_mul(4)).clamp(MAP_BYTES_MIN, MAP_BYTES_MAX);
    let map = match Map::open(&found.map, Rc::clone(&pages), MapLimits::for_dump(memory)) {
        Ok(map) => map,
        Err(error) => {
            let finding = Finding::error(Structure::Map, error.to_string()).shard(found.shard);
            look.add(finding.advise(advice::RESTORE));
            return None;
        }
    };
    let mut use_block = |structure: Structure, at: Entry| {
        let known = found.table.contains_key(&at.location.segment());
        if known && at.location.slot() < look.geometry.slots() {
            let key = Key::new(View::METADATA, 0);
            if !live.add(key, at) {
                let what = format!("{:?} is used twice", at.location);
                look.add(Finding::error(structure, what).shard(found.shard).advise(advice::REPORT));
            }
        }
    };
    for at in &found.blocks {
        use_block(Structure::Manifest, *at);
    }
    look.begin("map", map.status().leaves);
    let mut news = |news: News| match news {
        News::Used(at) => {
            look.advance(1);
            use_block(Structure::Map, at);
        }
        other => tell(look, found, &pages, other),
    };
    let Checked { tables, pages: checked, .. } = map.check(&mut news).await;
    (seen.tables, seen.map_pages) = (tables, checked);
    seen.metadata = checked + u64_of(found.blocks.len());
    Some(map)
}

fn tell(look: &Look<'_>, found: &Checkpoint, pages: &Pages<'_, '_>, news: News) {
    let (at, finding) = match news {
        News::Used(_) => return,
        News::Lost { kind, at, from, to, why } => {
            pages.give_up(at.location, kind);
            let (first, last) = (look.block(from), look.block(to));
            let what = match kind {
                PageKind::Leaf | PageKind::Index => format!(
                    "a {} page is lost: {why}. Where what lies from {first} to {last} is, is not \
                     known",
                    if kind == PageKind::Leaf { "leaf" } else { "index" }
                ),
                PageKind::Filters | PageKind::Holes | PageKind::Filter => {
                    format!("a filter page for {first} to {last} is lost: {why}")
                }
            };
            (at, Finding::error(Structure::Map, what).advise(advice::RESTORE))
        }
        News::Wrong { table, at, what } => {
            let what = format!("table {table}: {what}");
            (at, Finding::error(Structure::Map, what).advise(advice::REPORT))
        }
        News::Denied { table, at, first, blocks } => {
            let what = format!(
                "the filter of table {table} denies {blocks} blocks that it has, {} first",
                look.block(first)
            );
            (at, Finding::error(Structure::Map, what).advise(advice::REPORT))
        }
    };
    look.add(whereabouts(look, found, finding, at.location));
}

/// Says where a block is, if it is anywhere.
fn whereabouts(look: &Look<'_>, found: &Checkpoint, finding: Finding, at: Location) -> Finding {
    let finding = finding.shard(found.shard);
    match found.table.get(&at.segment()) {
        Some(segment) if at.slot() < look.geometry.slots() => {
            blocks::placed(look, finding, &segment.info, at.slot())
        }
        _ => finding.segment(at.segment().get()),
    }
}

/// The map learns stripes that were written after the checkpoint, as opening does.
pub(super) async fn learn(
    look: &Look<'_>,
    map: &Opened<'_, '_>,
    shard: u16,
    headers: &[StripeHeader],
) {
    for header in headers {
        let lost: u32 = header.records.iter().map(OwnerRecord::lost).sum();
        let checksums = header.crcs.len() + 3 * header.references.len() + usize32(lost);
        if map.room() < 2 * header.records.len() + checksums {
            look.not_checked("stripes written since the checkpoint beyond what memory holds");
            return;
        }
        for record in header.placed() {
            match record.owner {
                Owner::Write { key } => {
                    map.insert(key, record.version, record.location, Encoding::PLAIN, record.crcs);
                }
                Owner::Hole { key, blocks } => {
                    map.insert_hole(key.view, record.version, key.block, blocks);
                }
                Owner::Lost { key, old: None } => {
                    map.insert_lost(key, record.version, usize32(record.count));
                }
                Owner::Lost { key, old: Some(old) } => {
                    for n in 0..record.count {
                        let learnt = map.lose_if(forward(key, n), old.offset(n)).await;
                        tell_unlearnt(look, shard, learnt.map(drop));
                    }
                }
                Owner::Refer { key, name } => {
                    let learnt =
                        learn_references(map, key, record.version, name, record.crcs).await;
                    tell_unlearnt(look, shard, learnt);
                }
                Owner::Share { key, name } => {
                    for (n, crc) in (0..).zip(record.crcs) {
                        let (key, name) = (forward(key, n), name.offset(n));
                        let new = Stored::plain(name.reference(), *crc);
                        let learnt = map.replace_if(key, name.origin(), new).await;
                        tell_unlearnt(look, shard, learnt.map(drop));
                    }
                }
                Owner::Move { key, old } => {
                    for (n, crc) in (0..).zip(record.crcs) {
                        let new = Stored::plain(record.location.offset(n), *crc);
                        let learnt = map.replace_if(forward(key, n), old.offset(n), new).await;
                        tell_unlearnt(look, shard, learnt.map(drop));
                    }
                }
            }
        }
    }
}

/// The key `blocks` further on.
fn forward(key: Key, blocks: u32) -> Key {
    Key::new(key.view, key.block + u64::from(blocks))
}

fn tell_unlearnt(look: &Look<'_>, shard: u16, learnt: crate::Result<()>) {
    if let Err(error) = learnt {
        let finding = Finding::error(Structure::Map, error.to_string());
        look.add(finding.shard(shard));
    }
}

async fn learn_references(
    map: &Opened<'_, '_>,
    key: Key,
    version: Version,
    name: SharedBlockId,
    crcs: &[u32],
) -> crate::Result<()> {
    let (first, mut extents) = (name.key(), Extents::default());
    map.lookup(first.view, first.block, u32_of(crcs.len()), &mut extents).await?;
    for extent in extents.iter().filter(|extent| extent.contents.is_empty()) {
        let at = low32(extent.first - first.block);
        let born = name.offset(at);
        let crcs = &crcs[usize32(at)..usize32(at + extent.count)];
        map.insert(born.key(), Version::FIRST, born.origin(), Encoding::PLAIN, crcs);
    }
    map.insert(key, version, name.reference(), Encoding::PLAIN, crcs);
    Ok(())
}

/// What of one view there is.
#[derive(Default)]
struct Usage {
    blocks: u64,
    /// Blocks past the end of its volume, or of none, that nobody gave back.
    beyond: u64,
}

impl Usage {
    /// Adds a block of a volume that ends there, if there is one, and of which so much was given back.
    fn add(&mut self, block: u64, end: Option<u64>, given_back: Option<&Vec<Range<u64>>>) {
        let mut holes = given_back.into_iter().flatten();
        let is_beyond = end.is_none_or(|end| block >= end);
        self.blocks += 1;
        self.beyond += u64::from(is_beyond && !holes.any(|hole| hole.contains(&block)));
    }
}

/// Blocks that the map knows as lost, in runs.
#[derive(Default)]
struct LostRuns(Vec<(Key, u64)>);

impl LostRuns {
    fn add(&mut self, key: Key) {
        match self.0.last_mut() {
            Some((first, blocks))
                if first.view == key.view && first.block + *blocks == key.block =>
            {
                *blocks += 1;
            }
            _ => self.0.push((key, 1)),
        }
    }

    fn tell(self, look: &Look<'_>, shard: u16, live: &mut Live) {
        for (first, blocks) in self.0 {
            for n in 0..blocks {
                if let Some(name) = SharedBlockId::of_key(first.forward(n)) {
                    live.add_lost(name);
                }
            }
            let more =
                if blocks > 1 { format!(", and {} after it,", blocks - 1) } else { String::new() };
            let what = format!(
                "{}{more} is known to be lost: reads fail until it is written",
                look.block(first)
            );
            look.add(Finding::error(Structure::Data, what).shard(shard).advise(advice::RESTORE));
        }
    }
}

/// Whether a block lies where it may be known by its name and another key. The map on media may have learnt a stripe in
/// part: who shares it has not yet a reference to its name. The log has the record, and opening learns it again. And what
/// an old version has stays where it is.
fn is_shared_too(look: &Look<'_>, live: &Live, key: Key, at: Location) -> bool {
    let born = SharedBlockId::of_key(key).is_some_and(|name| name.origin() == at);
    born && (!look.label.closed || live.is_old(at))
}

/// Blocks that the log gives back, by their view: the map on the drives may not have learnt of that.
fn given_back(seen: &ShardSeen) -> BTreeMap<View, Vec<Range<u64>>> {
    let mut all: BTreeMap<View, Vec<Range<u64>>> = BTreeMap::new();
    for (key, blocks) in seen.log.iter().flat_map(|log| &log.holes) {
        let range = key.block..key.block.saturating_add(*blocks);
        all.entry(key.view).or_default().push(range);
    }
    all
}

/// Walks through everything that has contents, or has lost them, and takes note of it.
pub(super) async fn walk(
    look: &Look<'_>,
    found: &Checkpoint,
    map: &Opened<'_, '_>,
    live: &mut Live,
    seen: &mut ShardSeen,
) {
    let header = crate::format::stripe::header_blocks(look.geometry);
    let mut used: BTreeMap<View, Usage> = BTreeMap::new();
    look.begin("blocks", found.table.values().map(|segment| u64::from(segment.hint)).sum());
    let (mut counted, mut lost) = (0, LostRuns::default());
    let given_back = given_back(seen);
    let see = |key: Key, at: Option<Stored>, period: Period| {
        let is_newest = period.is_newest();
        // What nobody sees any more, and merges have not come upon.
        if !look.snapshots.get().is_none_or(|snapshots| snapshots.see(key.view, period)) {
            return;
        }
        counted += 1;
        if counted % 4096 == 0 {
            look.advance(4096);
        }
        let shared = key.view.is_shared();
        if !shared && is_newest {
            let end = look.volume(key.view).map(|v| v.bytes.max(v.shrunk_from) / u64_of(BLOCK));
            used.entry(key.view).or_default().add(key.block, end, given_back.get(&key.view));
        }
        let Some(at) = at else { return lost.add(key) };
        let wrong = |what: &str| {
            let what = format!("{}: {what}", look.block(key));
            let finding = Finding::error(Structure::Map, what).advise(advice::RESTORE);
            look.add(whereabouts(look, found, finding, at.location));
        };
        if let Err(error) = at.encoding.check() {
            return wrong(&error.to_string());
        }
        let slot = at.location.slot();
        // What no volume has is where it was, or one was deleted: nothing tells where it belongs.
        let shard = look
            .volume(key.view)
            .map(|volume| shard_of(volume.placement, key.block, look.label.shards.into()));
        if shard.is_some_and(|shard| shard != usize::from(found.shard)) {
            return wrong("the map of this shard has a block of another's");
        }
        if let Some(name) = at.location.name() {
            return match shared {
                true => wrong("a shared block is a reference itself"),
                false => live.add_reference(name),
            };
        }
        if !found.table.contains_key(&at.location.segment()) {
            // An old version stays where it was, and what is moved of it goes under its name.
            if !is_newest {
                return live.add_reference(SharedBlockId::of(at.location));
            }
            return wrong("the map has it in a segment that the checkpoint does not name");
        }
        if slot >= look.geometry.slots() || slot % look.geometry.stripe_blocks() < header {
            return wrong("the map has it where no contents can be");
        }
        let entry = Entry { location: at.location, crc: at.crc };
        let is_new = if is_newest { live.add(key, entry) } else { live.add_old(key, entry) };
        if !is_new && !is_shared_too(look, live, key, at.location) {
            wrong("the map has it where it has another block, too");
        }
    };
    if let Err(error) = map.walk(see).await {
        let finding = Finding::error(Structure::Map, error.to_string()).shard(found.shard);
        look.add(finding.advise(advice::RESTORE));
    }
    seen.blocks = counted;
    lost.tell(look, found.shard, live);
    tell_usage(look, found.shard, &used);
    tell_references(look, found.shard, live);
}

/// Tells of references that lead nowhere, and of shared blocks that nothing refers to.
fn tell_references(look: &Look<'_>, shard: u16, live: &Live) {
    let (missing, first, unused) = live.references();
    if let Some(first) = first {
        let what = format!("{missing} shared blocks are referred to and nowhere, {first:?} first");
        let finding = Finding::error(Structure::Map, what).shard(shard);
        look.add(finding.advise(advice::RESTORE));
    }
    if unused > 0 {
        let what = format!("{unused} shared blocks are referred to no more");
        let advice = "nothing is wrong: their space comes back when it is wanted";
        look.add(Finding::note(Structure::Map, what).shard(shard).advise(advice));
    }
}

fn tell_usage(look: &Look<'_>, shard: u16, used: &BTreeMap<View, Usage>) {
    for (view, usage) in used {
        let mut report = look.report.borrow_mut();
        let volume = report.volumes.iter_mut().find(|volume| volume.view == view.get());
        let what = match volume {
            Some(volume) => {
                volume.used += usage.blocks * u64_of(BLOCK);
                if usage.beyond == 0 {
                    continue;
                }
                format!("{} blocks lie past the end of volume {}", usage.beyond, volume.name)
            }
            None if usage.beyond == 0 => continue,
            None if look.catalog.get().is_none() => {
                format!("view {} has {} blocks", view.get(), usage.blocks)
            }
            None => {
                format!("{} blocks are of view {}, which is no volume's", usage.beyond, view.get())
            }
        };
        drop(report);
        let advice = "space that nobody can use: nothing else is wrong with it";
        look.add(Finding::warning(Structure::Volume, what).shard(shard).advise(advice));
    }
}

/// Tells which blocks it is that a stripe's header and the map disagree about.
pub(super) async fn explain(
    look: &Look<'_>,
    shard: u16,
    map: &Opened<'_, '_>,
    mut doubtful: Doubtful,
) {
    if doubtful.is_empty() {
        return;
    }
    look.begin("doubtful stripes", u64_of(doubtful.len()));
    let see = |key: Key, at: Option<Stored>, _: Period| {
        let Some(at) = at else { return };
        let stripe = at.location.slot() / look.geometry.stripe_blocks();
        let Some(found) = doubtful.get_mut(&(at.location.segment(), stripe)) else { return };
        let says = found.of(at.location);
        let born = SharedBlockId::of_key(key).is_some_and(|name| name.origin() == at.location);
        if says == Some((key, at.crc)) || born && says.is_some_and(|(_, crc)| crc == at.crc) {
            return;
        }
        found.wrong += 1;
        if found.first.is_none() {
            let says = match says {
                Some((other, _)) if other == key => "has another checksum for it".to_owned(),
                Some((other, _)) => format!("gives it to {}", look.block(other)),
                None => "has nothing there".to_owned(),
            };
            let at = at.location;
            found.first = Some(format!("{} at {at:?}, the header {says}", look.block(key)));
        }
    };
    // What could not be walked was told before.
    let _ = map.walk(see).await;
    for ((id, stripe), found) in doubtful {
        let first = found.first.unwrap_or_else(|| "a page of metadata".to_owned());
        let what = format!(
            "map and header disagree on {} blocks. First of them: the map has {first}",
            u32_of(found.wrong.max(1))
        );
        let finding = Finding::error(Structure::StripeHeader, what).advise(advice::REPORT);
        look.add(finding.shard(shard).segment(id.get()).stripe(stripe));
    }
}
