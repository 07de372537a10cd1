//! The walk of a read: where its blocks are is found out in one call ([`Front::resolve`]), what is in memory of them is
//! copied or lent in the same call, and only what is not is waited for ([`Front::fetch`]), from where the plan
//! was left.
//!
//! A plan outlives awaits by this: what the log had was taken before the first; a place in a segment is not written
//! again while the plan's stay lasts; and what the log had nothing of the map has, then or later, as old or newer.

use std::rc::Rc;
use std::sync::Arc;

use reactor::buffer;
use stdx::crc32c;
use stdx::num::{low32, u32_of, u64_of, usize32, usize64};

use super::Front;
use super::plan::{Piece, Place, Plan, in_doubt, lost};
use crate::address::{BLOCK, Key, Location, SharedBlockId};
use crate::canary::{self, Canary, Step};
use crate::error::{Error, Kind, Result};
use crate::limits::PLANS_KEPT;
use crate::log::Found;
use crate::map::{Contents, Extents};
use crate::shard::Outcome;
use crate::shard::base::count;
use crate::unverified::{LENT_BLOCKS_MAX, UnverifiedRead};
use crate::volume::state::{Ancestor, BLOCK_BYTES, State};

/// Whether bytes are whole blocks.
pub(super) const fn is_whole(offset: u64, len: usize) -> bool {
    offset.is_multiple_of(BLOCK_BYTES) && len.is_multiple_of(BLOCK)
}

impl Front {
    /// Finds out where the blocks of a volume's bytes are. `None` for what is not whole blocks inside of the volume:
    /// [`read_bytes`](Self::read_bytes) reads it, or says why not; and where what a host stored by itself is waited for.
    ///
    /// To be followed by [`lend`](Self::lend) or [`copy_known`](Self::copy_known) in the same call.
    #[must_use]
    pub fn resolve_bytes(&self, volume: &State, offset: u64, len: usize) -> Option<Plan> {
        let is_newest = volume.sees.is_none();
        let fits = is_newest && is_whole(offset, len) && volume.check(offset, u64_of(len)).is_ok();
        let first = Key::new(volume.view, offset / BLOCK_BYTES);
        let fits = fits && (canary::has(Canary::ReadsPastWindow) || self.is_caught_up(volume));
        fits.then(|| self.resolve(first, volume.ancestors(), u32_of(len / BLOCK)))
    }

    /// Finds out where so many blocks are, of a view with these ancestors. This is the one place that asks the log, then
    /// the map.
    pub(super) fn resolve(
        &self,
        first: Key,
        ancestors: Option<&Arc<[Ancestor]>>,
        blocks: u32,
    ) -> Plan {
        let mut plan = self.spare_plan(first);
        assert!(plan.pieces.is_empty() && plan.reading.is_none(), "a spare plan is for nothing");
        assert!(plan.ancestors.is_none(), "nor does it ask anybody");
        let mut at = 0;
        if self.base.log.is_in_doubt(first, u64::from(blocks)) && !canary::skips(Step::DoubtHides) {
            plan.push(0, blocks, Place::Lost(Box::new(in_doubt(first))));
            return plan;
        }
        while at < blocks {
            let key = first.forward(u64::from(at));
            let left = u64::from(blocks - at);
            let (found, run) = self.base.log.lookup(key, left);
            let run = low32(run.min(left));
            assert!(run > 0, "the log says something of each block");
            match found {
                Found::Data(data) => {
                    assert_eq!(run, 1, "the log finds contents block by block");
                    plan.push(at, run, Place::Log(data));
                }
                Found::Hole => plan.push(at, run, Place::Hole),
                Found::Refers { position, index } => {
                    self.resolve_referred(&mut plan, at, run, position, index);
                }
                Found::Lost => plan.push(at, run, Place::Lost(Box::new(lost(key)))),
                Found::Nothing => {
                    let (map, extents) = (&self.base.map, &mut plan.extents);
                    let known = match ancestors {
                        None => map.lookup_known(key.view, key.block, run, extents),
                        Some(_) => map.lookup_own_known(key.view, key.block, run, extents),
                    };
                    plan.learn(at, ancestors.map(|_| 0));
                    if known < run {
                        plan.push(at + known, run - known, Place::Unread);
                    }
                }
            }
            at += run;
        }
        if let Some(ancestors) = ancestors {
            self.inherit_known(&mut plan, ancestors);
            // Held by whoever waits for some of it only: others ask nobody any more.
            plan.ancestors = plan.asks_more().then(|| Arc::clone(ancestors));
        }
        debug_assert!(plan.covers(blocks), "each block has its place");
        plan
    }

    /// References in the log, from number `index` of the record at `position` on, are to shared blocks.
    fn resolve_referred(&self, plan: &mut Plan, at: u32, run: u32, position: u64, index: usize) {
        for (at, index) in (at..at + run).zip(index..) {
            match self.base.log.reference(position, index) {
                Ok(to) => match to.stored.encoding.check() {
                    Ok(()) => {
                        let shared = SharedBlockId::of(to.stored.location).reference();
                        plan.push_stored(at, shared, &[to.stored.crc]);
                    }
                    Err(error) => plan.push(at, 1, Place::Lost(Box::new(error))),
                },
                Err(error) => plan.push(at, 1, Place::Lost(Box::new(error))),
            }
        }
    }

    /// Lends what lies whole in a drive in memory: few blocks, in one piece.
    #[must_use]
    pub fn lend(&self, plan: &Plan) -> Option<UnverifiedRead> {
        match plan.pieces.as_slice() {
            [Piece { count, place: Place::Stored { location, .. }, .. }]
                if *count <= u32_of(LENT_BLOCKS_MAX) && self.base.writer.segments().lends() =>
            {
                let table = self.base.table();
                let at = location.name().map_or(*location, SharedBlockId::origin);
                table.info(at).and_then(|info| {
                    let reading = self.base.grace.enter();
                    self.base.writer.segments().lend(info, at.slot(), &plan.crcs, reading)
                })
            }
            _ => None,
        }
    }

    /// Copies to `out` what is in memory of the blocks; the rest of the plan can be waited with.
    pub fn copy_known(&self, mut plan: Plan, out: &mut [u8]) -> Outcome<Plan> {
        debug_assert!(plan.covers(u32_of(out.len() / BLOCK)), "memory for each block");
        self.copy_pieces(&mut plan, out);
        if plan.pieces.is_empty() {
            self.keep_plan(plan);
            return Outcome::Done;
        }
        // Nothing was moved since it was resolved: nobody else ran.
        plan.reading = Some(self.base.grace.enter());
        Outcome::Wait(plan)
    }

    /// Copies what need not be waited for, and leaves the other pieces.
    pub(super) fn copy_pieces(&self, plan: &mut Plan, out: &mut [u8]) {
        let Plan { pieces, crcs, .. } = plan;
        let in_memory = self.base.writer.segments().drives().are_in_memory();
        pieces.retain_mut(|piece| {
            let part = &mut out[piece.bytes()];
            match piece.place {
                Place::Hole => {
                    part.fill(0);
                    false
                }
                Place::Log(data) => match self.base.log.copy_out(data, part) {
                    Ok(()) => false,
                    Err(error) => {
                        piece.place = Place::Damaged { crc: data.crc, error: Box::new(error) };
                        true
                    }
                },
                Place::Stored { location, crcs: first } => {
                    let crcs = &crcs[piece.crcs(first)];
                    !(in_memory && self.copy_stored(location, crcs, part))
                }
                Place::Unread
                | Place::Inherited { .. }
                | Place::Damaged { .. }
                | Place::Lost(_) => true,
            }
        });
    }

    /// Copies blocks of drives in memory; tells whether all are what they should be.
    fn copy_stored(&self, at: Location, crcs: &[u32], out: &mut [u8]) -> bool {
        let table = self.base.table();
        // Shared blocks lie where they were born until their segment is given back.
        let at = at.name().map_or(at, SharedBlockId::origin);
        let Some(info) = table.info(at) else { return false };
        self.base.writer.segments().copy_known(info, at.slot(), crcs, out)
    }

    /// Reads what [`copy_known`](Self::copy_known) left of a plan: the only part of a read that waits.
    ///
    /// # Errors
    /// `Corrupt` when the redundancy could not give a block back, `Failed` when too many drives are
    /// lost.
    pub async fn fetch(&self, mut plan: Plan, out: &mut [u8]) -> Result<()> {
        let fetched = self.fetch_all(&mut plan, out).await;
        match &fetched {
            Ok(()) => self.keep_plan(plan),
            Err(error) if matches!(error.kind, Kind::Corrupt | Kind::Failed) => {
                count(&self.unreadable, 1);
            }
            Err(_) => {}
        }
        fetched
    }

    async fn fetch_all(&self, plan: &mut Plan, out: &mut [u8]) -> Result<()> {
        // Begun before the plan lets go of what it found.
        let _inheriting = plan.ancestors.is_some().then(|| self.inheriting.enter());
        self.fetch_settled(plan, out).await?;
        // Reclaim may have to go on before the log is carried.
        plan.reading = None;
        while let Some(piece) = plan.pieces.pop() {
            let (key, part) = (plan.first.forward(u64::from(piece.at)), &mut out[piece.bytes()]);
            match piece.place {
                Place::Damaged { crc, error } => {
                    if !Box::pin(self.read_destaged(key, crc, part)).await {
                        return Err(*error);
                    }
                }
                Place::Inherited { from } => {
                    let Some(ancestors) = &plan.ancestors else { panic!("one is to be asked") };
                    Box::pin(self.read_inherited(key, Arc::clone(ancestors), from, part)).await?;
                }
                _ => panic!("only what waits for the log to be carried is left"),
            }
        }
        Ok(())
    }

    /// Reads what the log does not have, and leaves the other pieces.
    async fn fetch_settled(&self, plan: &mut Plan, out: &mut [u8]) -> Result<()> {
        assert!(plan.reading.is_some(), "what was found stays where it is");
        self.learn_unread(plan, out).await?;
        if plan.ancestors.is_some() {
            self.inherit(plan).await?;
            self.copy_pieces(plan, out);
        }
        // Known before, or told by a page just now.
        if let Some(error) = plan.take_lost() {
            return Err(error);
        }
        for piece in &plan.pieces {
            let Place::Stored { location, crcs } = piece.place else { continue };
            let (crcs, part) = (&plan.crcs[piece.crcs(crcs)], &mut out[piece.bytes()]);
            // An old version stays where it was in the map, and is moved under its name.
            let was_moved = || self.base.table().info(location).is_none();
            let moved = || was_moved().then(|| SharedBlockId::of(location));
            match location.name().or_else(moved) {
                None => {
                    if let Err(error) = self.read_segment(location, crcs, part).await {
                        let name = SharedBlockId::of(location);
                        Box::pin(self.read_elsewhere(name, crcs, part, error)).await?;
                    }
                }
                Some(name) => Box::pin(self.read_shared(name, crcs, part)).await?,
            }
        }
        plan.pieces.retain(|piece| !matches!(piece.place, Place::Stored { .. }));
        Ok(())
    }

    /// Has the map read the pages that it lacked, and copies what is in memory of what they tell.
    async fn learn_unread(&self, plan: &mut Plan, out: &mut [u8]) -> Result<()> {
        let (mut n, mut learnt) = (0, false);
        while n < plan.pieces.len() {
            if !matches!(plan.pieces[n].place, Place::Unread) {
                n += 1;
                continue;
            }
            // What the pages tell comes behind the others.
            let Piece { at, count: blocks, .. } = plan.pieces.swap_remove(n);
            let key = plan.first.forward(u64::from(at));
            let (map, extents) = (&self.base.map, &mut plan.extents);
            let next = plan.ancestors.as_ref().map(|_| 0);
            match next {
                None => map.lookup(key.view, key.block, blocks, extents).await?,
                Some(_) => map.lookup_own(key.view, key.block, blocks, extents).await?,
            }
            plan.learn(at, next);
            learnt = true;
        }
        if learnt {
            self.copy_pieces(plan, out);
        }
        Ok(())
    }

    /// Reads a block that is damaged in the log from where destage has carried it, perhaps: tells whether it has.
    async fn read_destaged(&self, key: Key, crc: u32, out: &mut [u8]) -> bool {
        let is_there = async |out: &mut [u8]| {
            let mut plan = self.spare_plan(key);
            plan.reading = Some(self.base.grace.enter());
            plan.push(0, 1, Place::Unread);
            let read = self.fetch_settled(&mut plan, out).await;
            read.is_ok() && crc32c(out) == crc
        };
        if is_there(out).await {
            return true;
        }
        // On its way there, it is in the map before the log forgets it.
        self.destage.run_unless_hindered().await;
        is_there(out).await
    }

    /// Reads blocks where the map says they are.
    pub async fn read_segment(&self, at: Location, crcs: &[u32], out: &mut [u8]) -> Result<()> {
        let info = self.base.table().info(at).map(Rc::clone);
        let nowhere =
            || Error::new(Kind::Corrupt, format!("the map points to {at:?}, of no segment"));
        let info = info.ok_or_else(nowhere)?;
        self.base.writer.segments().read(&info, at.slot(), crcs, out).await
    }

    /// Reads shared blocks with adjacent names, wherever they are. To be called inside the grace.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn read_shared(
        &self,
        name: SharedBlockId,
        crcs: &[u32],
        out: &mut [u8],
    ) -> Result<()> {
        // Where they were born they still lie, until their segment is given back.
        if self.base.table().info(name.origin()).is_none() {
            return self.read_moved(name, crcs, out).await;
        }
        match self.read_segment(name.origin(), crcs, out).await {
            Ok(()) => Ok(()),
            Err(error) => self.read_elsewhere(name, crcs, out, error).await,
        }
    }

    /// Reads blocks that could not be read where they were born, where reclaim has moved them to: what lies where
    /// nothing lives any more is neither watched over nor made anew.
    ///
    /// # Errors
    /// `error`, for a block that was not moved.
    async fn read_elsewhere(
        &self,
        name: SharedBlockId,
        crcs: &[u32],
        out: &mut [u8],
        error: Error,
    ) -> Result<()> {
        for (at, out) in (0..).zip(out.chunks_exact_mut(BLOCK)) {
            let (name, crcs) = (name.offset(at), &crcs[usize32(at)..][..1]);
            let born = self.read_segment(name.origin(), crcs, out).await;
            if born.is_err() && self.read_moved(name, crcs, out).await.is_err() {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Reads shared blocks with adjacent names where the map has them.
    async fn read_moved(&self, name: SharedBlockId, crcs: &[u32], out: &mut [u8]) -> Result<()> {
        let (first, blocks) = (name.key(), u32_of(crcs.len()));
        let mut extents = Extents::default();
        self.base.map.lookup(first.view, first.block, blocks, &mut extents).await?;
        for extent in extents.iter() {
            let at = usize32(low32(extent.first - first.block));
            let end = at + usize32(extent.count);
            let (location, crcs) = match extent.contents {
                Contents::Stored { location, encoding, crcs } => {
                    encoding.check()?;
                    (location, crcs)
                }
                Contents::Lost => {
                    let what = format!("{:?} is lost", name.offset(u32_of(at)));
                    return Err(Error::new(Kind::Corrupt, what));
                }
                Contents::Hole | Contents::Absent => {
                    let what = format!("{:?} is referred to and nowhere", name.offset(u32_of(at)));
                    return Err(Error::new(Kind::Corrupt, what));
                }
            };
            self.read_segment(location, crcs, &mut out[at * BLOCK..end * BLOCK]).await?;
        }
        Ok(())
    }

    /// Reads whole blocks from `first` on, of a view with these ancestors.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub async fn read(
        &self,
        first: Key,
        ancestors: Option<&Arc<[Ancestor]>>,
        out: &mut [u8],
    ) -> Result<()> {
        assert!(out.len().is_multiple_of(BLOCK), "whole blocks are read");
        let plan = self.resolve(first, ancestors, u32_of(out.len() / BLOCK));
        match self.copy_known(plan, out) {
            Outcome::Done => Ok(()),
            // On the heap: a drive is asked, and what does that is too large for all that may come to it.
            Outcome::Wait(plan) => Box::pin(self.fetch(plan, out)).await,
        }
    }

    /// Reads bytes of a volume.
    ///
    /// # Errors
    /// As [`Volume::read`](crate::Volume::read).
    pub async fn read_bytes(&self, volume: &State, offset: u64, out: &mut [u8]) -> Result<()> {
        volume.check(offset, u64_of(out.len()))?;
        if !canary::has(Canary::ReadsPastWindow) {
            self.catch_up(volume).await?;
        }
        if is_whole(offset, out.len()) {
            return self.read_blocks(volume, offset / BLOCK_BYTES, out).await;
        }
        // Through a buffer, a megabyte at a time.
        let (mut offset, mut out) = (offset, out);
        while !out.is_empty() {
            let skip = usize64(offset % BLOCK_BYTES);
            let take = out.len().min(media::drive::TRANSFER_MAX - BLOCK - skip);
            let mut whole = buffer::scratch((skip + take).next_multiple_of(BLOCK)).await;
            self.read_blocks(volume, offset / BLOCK_BYTES, &mut whole).await?;
            let (piece, rest) = out.split_at_mut(take);
            piece.copy_from_slice(&whole[skip..skip + take]);
            (offset, out) = (offset + u64_of(take), rest);
        }
        Ok(())
    }

    /// Reads whole blocks of a volume or snapshot.
    pub(super) async fn read_blocks(
        &self,
        volume: &State,
        first: u64,
        out: &mut [u8],
    ) -> Result<()> {
        let (first, ancestors) = (Key::new(volume.view, first), volume.ancestors());
        match volume.sees {
            None => self.read(first, ancestors, out).await,
            Some(sees) => Box::pin(self.read_as_of(first, sees, ancestors, out)).await,
        }
    }

    /// A plan without pieces, of a read that begins there.
    pub(super) fn spare_plan(&self, first: Key) -> Plan {
        match self.spare_plans.borrow_mut().pop() {
            Some(plan) => Plan { first, ..plan },
            None => Plan::new(first),
        }
    }

    /// Takes the memory of a plan that nobody needs any more.
    pub fn keep_plan(&self, mut plan: Plan) {
        plan.clear();
        let mut spare = self.spare_plans.borrow_mut();
        if spare.len() < PLANS_KEPT {
            spare.push(plan);
        }
    }
}
