//! Letting writers in: at once where the shard has capacity, or once a search has found some.

use std::sync::Arc;
use std::time::Duration;

use stdx::num::{u32_of, usize32, usize64};

use super::Front;
use crate::address::{Key, Location, Version, View};
use crate::canary::{self, Canary};
use crate::error::{Error, Kind, Result};
use crate::limits::{LOOKED_AT_ONCE, LOOKS_AT_SNAPSHOTS, SPREAD_PATIENCE};
use crate::log::Found;
use crate::map::{Contents, Extent, Extents};
use crate::quotas::{Quota, Stamp};
use crate::shard::bounded::Charge;
use crate::shard::capacity::Promise;
use crate::shard::events::Event;
use crate::volume::state::State;
use crate::volume::{CHUNK_BLOCKS, shard_of};

/// Searches for space that a writer waits for at most because hosts give something back meanwhile: that may be nothing.
const SEARCHES_FOR_HOLES: u32 = 4;

/// Blocks that have contents.
#[derive(Default)]
pub(super) struct Replaced {
    all: u64,
    /// Those whose contents nobody else has.
    pub alone: u64,
    /// There may be some, for all that is known.
    pub is_unknown: bool,
}

/// Where each block of an extent lies, if it has contents.
fn places(extent: Extent<'_>) -> impl Iterator<Item = Option<Location>> {
    let location = match extent.contents {
        Contents::Stored { location, .. } => Some(location),
        Contents::Hole | Contents::Lost | Contents::Absent => None,
    };
    (0..extent.count).map(move |n| location.map(|location| location.offset(n)))
}

impl Replaced {
    fn add_extent(&mut self, extent: &Extent<'_>) {
        if let Contents::Stored { location, .. } = extent.contents {
            self.add(u64::from(extent.count), location.name().is_none());
        }
    }

    const fn add(&mut self, blocks: u64, alone: bool) {
        self.all += blocks;
        self.alone += if alone { blocks } else { 0 };
    }
}

/// How often a writer has what is under a quota counted, where others are let in each time.
const CHARGES_TRIED: u32 = 64;

/// The quotas that were counted for a writer, and what was so before.
#[derive(Default)]
struct Counts(Vec<(Arc<Quota>, Stamp)>);

impl Counts {
    fn note(&mut self, quota: Arc<Quota>, stamp: Stamp) {
        self.0.retain(|(of, _)| !Arc::ptr_eq(of, &quota));
        self.0.push((quota, stamp));
    }

    fn of(&self, quota: &Quota) -> Option<Stamp> {
        let found = self.0.iter().find(|(of, _)| std::ptr::eq(Arc::as_ptr(of), quota));
        found.map(|(_, stamp)| *stamp)
    }

    fn last(&self) -> Option<&Quota> {
        self.0.last().map(|(quota, _)| &**quota)
    }
}

fn full(quota: &Quota) -> Error {
    let bytes = stdx::size::show(quota.bytes());
    Error::new(Kind::Full, format!("{} hold their quota of {bytes}", quota.whose()))
}

impl Front {
    /// Lets in a writer of so many blocks from `key` on. Whoever replaces what is there may use the
    /// slack: it does not make the pool any fuller.
    ///
    /// # Errors
    /// `Full` when there is no space for them, and those of looking blocks up.
    pub async fn admit(&self, key: Key, blocks: u64) -> Result<Promise> {
        match self.try_admit(key, blocks)? {
            Some(promise) => Ok(promise),
            None => self.wait_for_admission(key, blocks).await,
        }
    }

    /// As [`admit`](Self::admit), if nothing has to be waited for. `None` where a page of the map is to be read, or
    /// space to be looked for.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub(super) fn try_admit(&self, key: Key, blocks: u64) -> Result<Option<Promise>> {
        self.base.writer.check()?;
        let Some(charge) = self.quotas.try_charge(key.view, blocks) else { return Ok(None) };
        match self.capacity.promise(blocks) {
            Some(promise) => Ok(Some(promise.charged(charge))),
            None => {
                self.check_refused()?;
                if self.quotas.reserve(key.view).is_some() {
                    return Ok(None);
                }
                // What it has of its own: what a clone inherits stays where it is.
                let plan = self.resolve(key, None, u32_of(usize64(blocks)));
                let replaces = plan.is_own() == Some(true) && !self.is_kept(key.view);
                self.keep_plan(plan);
                let promise = if replaces { self.let_in_to_replace(blocks) } else { None };
                Ok(promise.map(|promise| promise.charged(charge)))
            }
        }
    }

    /// Lets in a writer that [had to wait](Self::try_admit).
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub(super) async fn wait_for_admission(&self, key: Key, blocks: u64) -> Result<Promise> {
        // On the heap: rare, and too large for all that may come to it.
        Box::pin(self.admit_after_search(key, blocks)).await
    }

    /// Lets in a writer of references from `key` on, which take no space.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub(super) async fn admit_references(
        &self,
        key: Key,
        blocks: u64,
    ) -> Result<(Promise, Charge)> {
        let charge = match self.quotas.try_charge(key.view, blocks) {
            Some(charge) => charge,
            None => Box::pin(self.charge(key, blocks)).await?,
        };
        Ok((self.admit(key, 0).await?, charge))
    }

    async fn admit_after_search(&self, key: Key, blocks: u64) -> Result<Promise> {
        let charge = self.charge(key, blocks).await?;
        let promise = match self.capacity.promise(blocks) {
            Some(promise) => promise,
            None => self.search_for(key, blocks).await?,
        };
        Ok(promise.charged(charge))
    }

    /// Lets in a writer of so many blocks as far as quotas are concerned, its volume's and its group's: what it replaces, and
    /// no snapshot sees, is no more than there was. Where one of them has no room, the other is charged nothing.
    ///
    /// # Errors
    /// `Full` when there is no room for the others, and those of looking blocks up.
    async fn charge(&self, key: Key, blocks: u64) -> Result<Charge> {
        if let Some(charge) = self.quotas.try_charge(key.view, blocks) {
            return Ok(charge);
        }
        let mut counts = Counts::default();
        // Each time somebody else was let in, or it was counted.
        for _ in 0..CHARGES_TRIED {
            let Some(bounded) = self.quotas.of(key.view) else { break };
            if bounded.is_closed() {
                bounded.opened().await;
                self.base.writer.check()?;
            }
            let new = blocks - self.replaced(key, blocks, None).await?.all;
            let lacking = if new == 0 { None } else { bounded.lacks_room(new) };
            let Some(quota) = lacking else {
                if new == 0 || !bounded.is_closed() {
                    return Ok(bounded.charge(new));
                }
                continue;
            };
            let is_counted = !canary::has(Canary::QuotaRefusesUncounted);
            if self.is_full(&quota, new, &counts) || !is_counted && quota.counted().is_some() {
                return Err(full(&quota));
            }
            let (quotas, used) = (&self.base.common.quotas, &self.base.common.used);
            let stamp = quota.stamp(used.changes());
            // What cannot be counted is in need of more than a quota: its hosts go on.
            if !quotas.recount_members(&quota, used).await {
                return Ok(bounded.charge(new));
            }
            counts.note(quota, stamp);
        }
        match (counts.last(), self.quotas.of(key.view)) {
            (Some(quota), Some(_)) => Err(full(quota)),
            (None, Some(bounded)) => Ok(bounded.charge(blocks)),
            (_, None) => Ok(Charge::default()),
        }
    }

    /// Whether so many new blocks are beyond a quota, however often it is counted.
    fn is_full(&self, quota: &Quota, new: u64, counts: &Counts) -> bool {
        if quota.counted().is_none_or(|held| held + new <= quota.limit()) {
            return false;
        }
        if let Some(stamp) = counts.of(quota) {
            quota.note_full(stamp);
            return true;
        }
        quota.is_full(quota.stamp(self.base.common.used.changes()))
    }

    async fn search_for(&self, key: Key, blocks: u64) -> Result<Promise> {
        if let Some(promise) = Box::pin(self.admit_reserved(key, blocks)).await? {
            return Ok(promise);
        }
        let replaces = self.replaces(key, blocks).await?;
        if replaces && let Some(promise) = self.let_in_to_replace(blocks) {
            return Ok(promise);
        }
        let mut searches_for_holes = SEARCHES_FOR_HOLES;
        loop {
            let (others, holes) = self.capacity.let_in_and_holes();
            let queued = self.capacity.queue(blocks);
            if !canary::has(Canary::RefusesUnsearched) {
                self.search.find().await;
            }
            drop(queued);
            self.base.writer.check()?;
            self.check_refused()?;
            if let Some(promise) = self.capacity.promise_after_search(blocks, replaces) {
                return Ok(promise);
            }
            // As long as others are let in, and leave what they replaced to be found, a turn comes.
            let is_full = !replaces && self.capacity.was_found_full(blocks);
            let (others_now, holes_now) = self.capacity.let_in_and_holes();
            if is_full || others_now == others {
                // What was given back while the search was under way is found by the next one.
                if holes_now == holes || searches_for_holes == 0 {
                    break;
                }
                searches_for_holes -= 1;
            }
        }
        self.base.common.ask_others(self.base.writer.shard()).await;
        if let Some(promise) = self.capacity.promise_after_search(blocks, replaces) {
            return Ok(promise);
        }
        // What is kept for others may be less than it was: they wrote some of it since they were counted.
        let (quotas, used) = (&self.base.common.quotas, &self.base.common.used);
        // Whatever that finds: it may have been found since this writer was refused.
        quotas.recount_reserved(Some(key.view), used).await;
        self.base.writer.check()?;
        if let Some(promise) = self.capacity.promise_after_search(blocks, replaces) {
            return Ok(promise);
        }
        if let Some(promise) = self.wait_for_spreading(blocks, replaces).await? {
            return Ok(promise);
        }
        if canary::has(Canary::OthersTakeReserved)
            && let Some(promise) = self.take_of_others(key, blocks).await
        {
            return Ok(promise);
        }
        Err(Error::new(Kind::Full, "the pool is full"))
    }

    /// Lets in a writer of so many blocks once the pool may hold more: what is there is being spread over drives that
    /// came. `None` where it is not, or takes longer than a host can wait.
    async fn wait_for_spreading(&self, blocks: u64, replaces: bool) -> Result<Option<Promise>> {
        let common = &self.base.common;
        let patience = u64::try_from(SPREAD_PATIENCE.as_nanos()).unwrap_or(u64::MAX);
        let due = reactor::now().saturating_add(patience);
        while common.uneven() != 0 {
            let left = Duration::from_nanos(due.saturating_sub(reactor::now()));
            let before = common.space.capacity();
            let more = || {
                let is_more = common.uneven() == 0 || common.space.capacity() != before;
                is_more || self.base.is_hindered()
            };
            let wait = self.base.events.until(Event::Advanced, more);
            if reactor::timeout(left, wait).await.is_err() {
                return Ok(None);
            }
            self.base.writer.check()?;
            self.check_refused()?;
            if let Some(promise) = self.capacity.promise_after_search(blocks, replaces) {
                return Ok(Some(promise));
            }
        }
        Ok(None)
    }

    pub(super) fn check_refused(&self) -> Result<()> {
        self.base.refuses().map_or(Ok(()), |why| Err(why.error()))
    }

    /// Whether snapshots may see what is replaced in a view: then it gives no room.
    fn is_kept(&self, view: View) -> bool {
        self.base.common.snapshots.has(view)
    }

    /// Whether each of these blocks has contents that nobody else has, and no snapshot sees.
    async fn replaces(&self, key: Key, blocks: u64) -> Result<bool> {
        Ok(self.replaced(key, blocks, None).await?.alone == blocks)
    }

    /// How many of these blocks have contents that nobody else has, and no snapshot sees; `None` where that cannot be
    /// found out, as nothing leaves the log.
    pub(super) async fn alone(&self, key: Key, blocks: u64) -> Result<Option<u64>> {
        let replaced = self.replaced(key, blocks, None).await?;
        Ok((!replaced.is_unknown).then_some(replaced.alone))
    }

    /// How many of these blocks have contents that no snapshot sees; where the volume is told, of those the shard has.
    pub(super) async fn replaced(
        &self,
        key: Key,
        blocks: u64,
        of: Option<&State>,
    ) -> Result<Replaced> {
        let mut replaced = Replaced::default();
        let sees = self.base.common.snapshots.last_seen(key.view);
        if let Some(sees) = sees {
            // From then on what the log has of the view is newer than what they see.
            match self.carry.carry(key.view, sees).await {
                Ok(()) => {}
                Err(error) if error.kind == Kind::Busy => {
                    return Ok(Replaced { is_unknown: true, ..replaced });
                }
                Err(error) => return Err(error),
            }
        }
        let mut extents = Extents::default();
        let mut at = 0;
        let mut since_yield = 0;
        while at < blocks {
            if since_yield >= LOOKED_AT_ONCE {
                reactor::yield_now().await;
                since_yield = 0;
            }
            let from = Key::new(key.view, key.block + at);
            let (is_here, most) = self.part_from(from.block, of);
            let most = most.min(blocks - at).min(LOOKED_AT_ONCE);
            if !is_here {
                // The next chunk at most: a step that costs little.
                (at, since_yield) = (at + most, since_yield + 1);
                continue;
            }
            let (found, run) = self.base.log.lookup(from, most);
            let run = run.min(most);
            match found {
                Found::Data(_) => replaced.add(run, true),
                Found::Refers { .. } => replaced.add(run, false),
                Found::Hole | Found::Lost => {}
                Found::Nothing => {
                    let _reading = self.base.grace.enter();
                    let count = u32_of(usize64(run));
                    match sees {
                        None => {
                            let (map, Key { view, block }) = (&self.base.map, from);
                            map.lookup(view, block, count, &mut extents).await?;
                            extents.iter().for_each(|extent| replaced.add_extent(&extent));
                        }
                        Some(sees) => self.add_unseen(from, count, sees, &mut replaced).await?,
                    }
                }
            }
            (at, since_yield) = (at + run, since_yield + run);
        }
        let Replaced { all, alone, .. } = replaced;
        assert!(alone <= all && all <= blocks, "no more is replaced than is written");
        Ok(replaced)
    }

    /// Whether the shard has a block of a volume, and how many from it on are of the same.
    fn part_from(&self, block: u64, of: Option<&State>) -> (bool, u64) {
        let shards = usize::from(self.base.common.shards);
        match of {
            Some(state) if shards > 1 => {
                let is_here = shard_of(state.placement(), block, shards)
                    == usize::from(self.base.writer.shard());
                (is_here, CHUNK_BLOCKS - block % CHUNK_BLOCKS)
            }
            _ => (true, u64::MAX),
        }
    }

    /// Adds those of some blocks, which the log says nothing of, that have other contents than the last snapshot sees.
    async fn add_unseen(
        &self,
        from: Key,
        count: u32,
        sees: Version,
        replaced: &mut Replaced,
    ) -> Result<()> {
        let (map, view) = (&self.base.map, from.view);
        let (mut newest, mut seen) = (Extents::default(), Extents::default());
        // Of fewer at once where the cache does not keep the pages of all.
        let (mut at, mut piece, mut failed) = (0, count, 0);
        while at < count {
            let (block, left) = (from.block + u64::from(at), piece.min(count - at));
            map.lookup(view, block, left, &mut newest).await?;
            map.lookup_as_of(view, sees, block, left, &mut seen).await?;
            // Both as of one instant: what is moved in between would be another place.
            let known = map.lookup_known(view, block, left, &mut newest);
            let known = known.min(map.lookup_known_as_of(view, sees, block, left, &mut seen));
            let seen: Vec<_> = seen.iter().flat_map(places).take(usize32(known)).collect();
            let newest = newest.iter().flat_map(places);
            for (newest, seen) in newest.zip(seen) {
                if let Some(location) = newest.filter(|_| newest != seen) {
                    replaced.add(1, location.name().is_none());
                }
            }
            at += known;
            if known == 0 {
                if failed == LOOKS_AT_SNAPSHOTS {
                    replaced.is_unknown = true;
                    break;
                }
                (piece, failed) = ((piece / 2).max(1), failed + 1);
                reactor::yield_now().await;
            }
        }
        Ok(())
    }

    /// Leave for so many blocks that replace others.
    fn let_in_to_replace(&self, blocks: u64) -> Option<Promise> {
        let promise = self.capacity.promise_to_replace(blocks)?;
        if self.capacity.is_strained() {
            self.search.ask();
        }
        Some(promise)
    }
}
