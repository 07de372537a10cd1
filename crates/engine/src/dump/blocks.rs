//! Reading single blocks of stripes, and telling what it took.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use stdx::num::u32_of;

use super::report::{Finding, Structure};
use super::{Look, advice};
use crate::address::{BLOCK, Encoding, Entry, Location, SegmentId, Version, View};
use crate::error::{Error, Kind, Result};
use crate::map;
use crate::segment::SegmentInfo;
use crate::snapshots::Snapshots;
use stdx::crc32c;

/// The drive and the offset in bytes of a block of a segment.
pub(super) fn locate(look: &Look<'_>, info: &SegmentInfo, slot: u32) -> (u16, u64) {
    let place = info.geometry.place(slot);
    let member = info.member(place.stripe, stdx::num::usize32(place.unit));
    let block = info.geometry.member_block(place.stripe, place.block);
    (member.drive, look.set.offset(member.drive, member.au, block))
}

/// Says where in a finding.
pub(super) fn placed(look: &Look<'_>, finding: Finding, info: &SegmentInfo, slot: u32) -> Finding {
    let (drive, offset) = locate(look, info, slot);
    let stripe = info.geometry.place(slot).stripe;
    finding.on(look.name(drive)).at(offset).segment(info.id.get()).stripe(stripe)
}

/// The block at `at`, from its drive, or from the rest of its stripe, which is told as a warning of
/// `structure`.
///
/// # Errors
/// When it is lost; nothing was told of that yet.
pub(super) async fn read(
    look: &Look<'_>,
    structure: Structure,
    info: &SegmentInfo,
    at: Entry,
    out: &mut [u8],
) -> Result<()> {
    let slot = at.location.slot();
    if slot >= info.geometry.slots() {
        let what = format!("{:?} is beyond the end of its segment", at.location);
        return Err(Error::new(Kind::Corrupt, what));
    }
    look.count_blocks(1);
    let (drive, offset) = locate(look, info, slot);
    let online = look.set.is_online(drive);
    let pool = reactor::buffer::pool();
    let why = match look.set.read(drive, offset, BLOCK, pool).await {
        Ok(data) if crc32c(&data) == at.crc => {
            out.copy_from_slice(&data);
            return Ok(());
        }
        Ok(_) => "its checksum is wrong".to_owned(),
        Err(error) => error.to_string(),
    };
    look.segments.read(info, slot, &[at.crc], out).await?;
    // That a drive is lost was told once.
    if online {
        let what = format!("a block had to be reconstructed: {why}");
        let finding = Finding::warning(structure, what).shard(info.shard).advise(advice::REPAIRS);
        look.add(placed(look, finding, info, slot));
    }
    Ok(())
}

/// The pages of a shard's map, to be read only.
pub(super) struct Pages<'a, 'b> {
    look: &'a Look<'b>,
    infos: BTreeMap<SegmentId, Rc<SegmentInfo>>,
    /// Pages that are lost, with what stands in for them.
    lost: RefCell<BTreeMap<Location, Box<[u8; BLOCK]>>>,
    /// Pages that were read and told of before.
    told: RefCell<BTreeSet<Location>>,
}

impl<'a, 'b> Pages<'a, 'b> {
    pub fn new(look: &'a Look<'b>, infos: BTreeMap<SegmentId, Rc<SegmentInfo>>) -> Self {
        Self { look, infos, lost: RefCell::default(), told: RefCell::default() }
    }

    /// From now on a page that says nothing is read there.
    pub fn give_up(&self, at: Location, kind: map::PageKind) {
        self.lost.borrow_mut().insert(at, Box::new(map::empty_page(kind)));
    }

    async fn read_one(&self, at: Entry, out: &mut [u8]) -> Result<()> {
        if let Some(page) = self.lost.borrow().get(&at.location) {
            out.copy_from_slice(&page[..]);
            return Ok(());
        }
        let nowhere = || {
            Error::new(Kind::Corrupt, format!("{:?} is in no segment of the shard", at.location))
        };
        let info = self.infos.get(&at.location.segment()).ok_or_else(nowhere)?;
        if self.told.borrow_mut().insert(at.location) {
            return read(self.look, Structure::Map, info, at, out).await;
        }
        if at.location.slot() >= info.geometry.slots() {
            return Err(nowhere());
        }
        self.look.segments.read(info, at.location.slot(), &[at.crc], out).await
    }
}

impl map::Pages for Rc<Pages<'_, '_>> {
    async fn read(&self, first: Location, crcs: &[u32], out: &mut [u8]) -> Result<()> {
        for (n, (crc, block)) in crcs.iter().zip(out.chunks_exact_mut(BLOCK)).enumerate() {
            let slot = first.slot().checked_add(u32_of(n));
            let slot = slot.filter(|slot| slot >> crate::address::SLOT_BITS == 0);
            let beyond = || Error::new(Kind::Corrupt, format!("{first:?} and {n} blocks more"));
            let location = Location::new(first.segment(), slot.ok_or_else(beyond)?);
            self.read_one(Entry { location, crc: *crc }, block).await?;
        }
        Ok(())
    }

    async fn append(&self, _: &[u8; BLOCK]) -> Result<Entry> {
        Err(Error::new(Kind::Invalid, "nothing is written while a pool is dumped"))
    }

    fn superseded(&self, _: Location, _: Encoding, _: u32) {}

    fn is_needed(&self, view: View, written: Version, replaced: Version) -> bool {
        let is_needed = |snapshots: &Snapshots| snapshots.is_needed(view, written, replaced);
        // Without a catalog nobody knows.
        self.look.snapshots.get().is_none_or(is_needed)
    }

    // Asked by flushes and merges only: nothing is written here.
    fn seen(&self, view: View, out: &mut Vec<Version>) {
        if let Some(snapshots) = self.look.snapshots.get() {
            snapshots.seen(view, out);
        }
    }

    fn seen_changes(&self) -> u64 {
        0
    }

    fn keeps_holes(&self, view: View) -> bool {
        self.look.snapshots.get().is_none_or(|snapshots| snapshots.is_clone(view))
    }
}
