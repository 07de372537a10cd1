//! Taking what hosts store in their direct write windows (`docs/anof.md`) into the log, before anything else is done
//! with their volumes: in the call that begins that where nothing has to be waited for, else by the window's task.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Task, buffer, yield_now};
use stdx::num::{u64_of, usize64};
use window::{Bad, Look, Phase};

use super::Front;
use super::read::is_whole;
use crate::address::{BLOCK, Key, View};
use crate::canary::{self, Canary};
use crate::error::{Kind, Result};
use crate::limits::SALVAGE_ATTEMPTS;
use crate::log::Reserved;
use crate::shard::base::count;
use crate::shard::capacity::Promise;
use crate::shard::window::{Ring, Stored};
use crate::volume::shard_of;
use crate::volume::state::{BLOCK_BYTES, State};

/// Records that are taken in the call that needs them; more are left to the window's task.
const TAKEN_AT_ONCE: usize = 32;

/// How long what nobody asks for lies in a ring at most.
const TAKEN_AT_LEISURE: Duration = Duration::from_secs(1);

/// A ring, and the tasks that serve it.
type Served = (Rc<Ring>, Vec<Task<()>>);

/// The rings of a shard.
#[derive(Default)]
pub struct Windows {
    rings: RefCell<Vec<Served>>,
}

impl Windows {
    fn of(&self, view: View) -> Option<Rc<Ring>> {
        let rings = self.rings.borrow();
        rings.iter().find(|(ring, _)| ring.volume.view == view).map(|(ring, _)| Rc::clone(ring))
    }

    /// It is served by these tasks from now on.
    pub fn add(&self, ring: Rc<Ring>, tasks: Vec<Task<()>>) {
        assert!(self.of(ring.volume.view).is_none(), "a volume has one ring in a shard");
        self.rings.borrow_mut().push((ring, tasks));
    }

    /// Those whose hosts did what none may, and those that are being ended, or could not be so far.
    #[must_use]
    pub fn to_end(&self) -> Vec<View> {
        let rings = self.rings.borrow();
        let to_end = rings.iter().filter(|(ring, _)| ring.bad().is_some() || !ring.stands());
        to_end.map(|(ring, _)| ring.volume.view).collect()
    }

    async fn remove(&self, view: View) {
        let is_of = |(ring, _): &Served| ring.volume.view == view;
        let found = self.rings.borrow().iter().position(is_of);
        let Some(at) = found else { return };
        let (ring, tasks) = self.rings.borrow_mut().remove(at);
        end(&ring, tasks).await;
    }

    /// Takes nothing more: what is there waits for the next opening.
    pub async fn stop(&self) {
        for (ring, tasks) in self.rings.take() {
            end(&ring, tasks).await;
        }
    }
}

async fn end(ring: &Ring, tasks: Vec<Task<()>>) {
    ring.stop();
    ring.ring_bell();
    for task in tasks {
        task.abort();
        // One that was dropped with its reactor has nothing left to end.
        let _ = task.await;
    }
}

/// What became of a record in a call.
enum Taken {
    Done,
    /// It is the task's.
    Wait,
    Bad(Bad),
}

/// Blocks that so many bytes from `offset` on lie in: the first, and how many.
const fn blocks(offset: u64, length: usize) -> (u64, u64) {
    let (first, end) = (offset / BLOCK_BYTES, (offset + u64_of(length)).div_ceil(BLOCK_BYTES));
    (first, end - first)
}

impl Front {
    /// Whether everything that hosts stored in a window of the volume so far is in the log, after this took what it
    /// could. Where it is not, [wait](Self::catch_up).
    #[inline]
    #[must_use]
    pub fn is_caught_up(&self, volume: &State) -> bool {
        !volume.has_window() || self.catch_up_now(volume.view)
    }

    /// Waits until it is.
    ///
    /// # Errors
    /// `Failed` when the log takes nothing more.
    pub async fn catch_up(&self, volume: &State) -> Result<()> {
        if self.is_caught_up(volume) {
            return Ok(());
        }
        match self.windows.of(volume.view) {
            Some(ring) => ring.taken().await,
            None => Ok(()),
        }
    }

    fn catch_up_now(&self, view: View) -> bool {
        let Some(ring) = self.windows.of(view) else { return true };
        if ring.has_ended() {
            return true;
        }
        if ring.is_taking.get() || ring.stored.get().is_some() {
            return false;
        }
        let mut is_caught_up = false;
        for _ in 0..TAKEN_AT_ONCE {
            let look = ring.look();
            match self.take_now(&ring, &look) {
                Taken::Done if look == Look::Nothing => {
                    is_caught_up = true;
                    break;
                }
                Taken::Done => ring.advance(&look),
                Taken::Wait => break,
                Taken::Bad(bad) => {
                    ring.end_as_bad(bad);
                    return true;
                }
            }
        }
        // Also where it could not be said before.
        is_caught_up &= ring.is_published() || self.publish(&ring).is_ok();
        is_caught_up
    }

    /// What is there is in the log: the host may store more.
    fn publish(&self, ring: &Ring) -> Result<()> {
        let missing = {
            let promise = ring.promise.borrow();
            let left = promise.as_ref().map_or(0, Promise::left);
            ring.blocks().saturating_sub(left)
        };
        if missing > 0
            && let Some(more) = self.capacity.promise(missing)
            && let Some(promise) = &mut *ring.promise.borrow_mut()
        {
            promise.add(more);
        }
        // What slows others down slows this host down where it begins.
        ring.publish(!self.base.log.is_slowed())
    }

    /// What is wrong with a record, if anything is.
    fn check_record(&self, ring: &Ring, offset: u64, length: usize) -> Option<Bad> {
        let volume = &ring.volume;
        let (block, end) = (u64::from(volume.block_size), offset + u64_of(length));
        if !offset.is_multiple_of(block) || !end.is_multiple_of(block) || end > volume.bytes() {
            return Some(Bad::BeyondVolume);
        }
        let (shard, shards) = (self.base.writer.shard(), usize::from(self.base.common.shards));
        let (first, count) = blocks(offset, length);
        let is_here = |at| shard_of(volume.placement(), at, shards) == usize::from(shard);
        (!is_here(first) || !is_here(first + count - 1)).then_some(Bad::Elsewhere)
    }

    /// Takes a record, if nothing has to be waited for.
    fn take_now(&self, ring: &Ring, look: &Look) -> Taken {
        let (offset, length) = match *look {
            Look::Nothing | Look::Pad => return Taken::Done,
            Look::Bad(bad) => return Taken::Bad(bad),
            Look::Write { offset, length, .. } => (offset, length),
        };
        if let Some(bad) = self.check_record(ring, offset, length) {
            return Taken::Bad(bad);
        }
        if !is_whole(offset, length) || ring.volume.takes_turns() {
            return Taken::Wait;
        }
        let (first, count) = blocks(offset, length);
        self.destage.look_at_log();
        let key = Key::new(ring.volume.view, first);
        let Ok(Some(reserved)) = self.base.log.try_reserve_acknowledged(key, usize64(count)) else {
            return Taken::Wait;
        };
        if !ring.fetch(look) {
            return Taken::Bad(Bad::Checksum);
        }
        let stored = self.store_blocks(ring, look, reserved, &ring.data.borrow()[..length]);
        match stored {
            Ok(true) => Taken::Done,
            // The task sees why, too.
            Ok(false) | Err(_) => Taken::Wait,
        }
    }

    /// Stores blocks of a record; tells whether they are durable.
    fn store_blocks(
        &self,
        ring: &Ring,
        look: &Look,
        mut reserved: Reserved<'_>,
        data: &[u8],
    ) -> Result<bool> {
        assert!(ring.stored.get().is_none(), "one record of a ring is stored at a time");
        reserved.fill(data)?;
        let stored = reserved.commit()?;
        let blocks = u64_of(data.len() / BLOCK);
        let record = *look;
        ring.stored.set(Some(Stored { sequence: stored.sequence, blocks, record }));
        if stored.is_durable {
            self.note_stored(ring);
        }
        Ok(stored.is_durable)
    }

    /// What the next record says is in the log for good.
    fn note_stored(&self, ring: &Ring) {
        let Some(Stored { blocks, .. }) = ring.stored.take() else { return };
        if let Some(promise) = &mut *ring.promise.borrow_mut() {
            promise.kept(blocks.min(promise.left()));
        }
        count(&self.written, blocks);
        self.counting.note_change();
    }

    /// Takes all that is there by now. A host that goes on storing stores no further than it has credit for.
    async fn take_all(&self, ring: &Ring) -> Result<()> {
        let (mut taken, until) = (0, ring.credit());
        // Before anything is looked at: it is in the log, whatever its host made of it since.
        if let Some(Stored { record, .. }) = ring.stored.get() {
            self.make_stored_durable(ring).await?;
            ring.advance(&record);
            taken += 1;
        }
        while ring.position() < until {
            let look = ring.look();
            match look {
                Look::Nothing => break,
                Look::Bad(bad) => {
                    ring.end_as_bad(bad);
                    break;
                }
                Look::Pad => {}
                Look::Write { offset, length, .. } => {
                    if let Err(bad) = self.take(ring, &look, offset, length).await? {
                        ring.end_as_bad(bad);
                        break;
                    }
                }
            }
            ring.advance(&look);
            taken += 1;
            if taken % TAKEN_AT_ONCE == 0 {
                self.publish(ring)?;
                yield_now().await;
            }
        }
        // Also what could not be said before.
        if (taken > 0 || !ring.is_published()) && !ring.has_ended() {
            self.publish(ring)?;
        }
        Ok(())
    }

    /// Takes a record; durable when this returns.
    async fn take(
        &self,
        ring: &Ring,
        look: &Look,
        offset: u64,
        length: usize,
    ) -> Result<std::result::Result<(), Bad>> {
        if let Some(bad) = self.check_record(ring, offset, length) {
            return Ok(Err(bad));
        }
        if !ring.fetch(look) {
            return Ok(Err(Bad::Checksum));
        }
        let (first, count) = blocks(offset, length);
        if !is_whole(offset, length) || ring.volume.takes_turns() {
            return self.take_in_turn(ring, look, offset, length).await.map(Ok);
        }
        self.destage.look_at_log();
        let key = Key::new(ring.volume.view, first);
        let reserved = self.base.log.reserve_acknowledged(key, usize64(count)).await?;
        self.store_blocks(ring, look, reserved, &ring.data.borrow()[..length])?;
        self.make_stored_durable(ring).await.map(Ok)
    }

    /// Waits until what the next record says is in the log for good.
    async fn make_stored_durable(&self, ring: &Ring) -> Result<()> {
        if let Some(Stored { sequence, .. }) = ring.stored.get() {
            self.base.log.make_durable(sequence).await?;
            self.note_stored(ring);
        }
        Ok(())
    }

    /// Takes a record of parts of blocks, or of a volume whose users take turns.
    async fn take_in_turn(
        &self,
        ring: &Ring,
        look: &Look,
        offset: u64,
        length: usize,
    ) -> Result<()> {
        let (first, count) = blocks(offset, length);
        let mut turn = self.partial.hold(ring.volume.view, first..first + count).await;
        let taken = self.take_parts(ring, look, offset, length).await;
        turn.ended = true;
        taken
    }

    /// Takes a record whose first or last block keeps a part, by space that was set aside for it.
    async fn take_parts(&self, ring: &Ring, look: &Look, offset: u64, length: usize) -> Result<()> {
        self.partial.settle(&self.base.log).await?;
        let (first, count) = blocks(offset, length);
        let (skip, bytes) = (usize64(offset % BLOCK_BYTES), usize64(count) * BLOCK);
        let mut whole = buffer::scratch(bytes).await;
        let ends_in_part = !(skip + length).is_multiple_of(BLOCK);
        let edges = [(skip > 0, 0), (ends_in_part, usize64(count) - 1)];
        for (_, at) in edges.into_iter().filter(|(is_part, _)| *is_part) {
            let block = &mut whole[at * BLOCK..(at + 1) * BLOCK];
            if self.is_lost(ring, first + u64_of(at), block).await? {
                // With the rest of the block what was to be a part of it is lost: as it is told of a block.
                ring.note_lost();
                return Ok(());
            }
        }
        whole[skip..skip + length].copy_from_slice(&ring.data.borrow()[..length]);
        self.destage.look_at_log();
        let key = Key::new(ring.volume.view, first);
        let reserved = self.base.log.reserve_acknowledged(key, usize64(count)).await?;
        self.store_blocks(ring, look, reserved, &whole[..bytes])?;
        self.make_stored_durable(ring).await
    }

    /// Reads a block of which a record keeps a part; whether nothing gives it back.
    async fn is_lost(&self, ring: &Ring, block: u64, out: &mut [u8]) -> Result<bool> {
        // A read may fail once and not again, and what its host was told is complete is not given up for that.
        for _ in 0..SALVAGE_ATTEMPTS {
            match self.read_blocks(&ring.volume, block, out).await {
                Ok(()) => return Ok(false),
                Err(error) if error.kind == Kind::Corrupt => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The task of a ring: takes what is there when it is asked to, when the host rings, and at leisure.
    pub async fn serve_window(&self, ring: &Ring) {
        while !ring.has_ended() && !self.base.is_over() {
            let asked = ring.asked();
            assert!(!ring.is_taking.replace(true), "one task takes what is in a ring");
            let taken = self.take_all(ring).await;
            ring.is_taking.set(false);
            if taken.is_err() {
                // What is in the way may pass, as drives that are missing; whoever waits is told meanwhile.
                ring.refuse(asked);
                if !self.base.is_over() && !self.base.log.has_ended() {
                    let _ = reactor::timeout(TRIED_AGAIN, ring.woken()).await;
                }
                if self.base.log.has_ended() {
                    break;
                }
                continue;
            }
            ring.answer(asked);
            let lacks = ring.lacks_credit() && self.publish(ring).is_ok() && ring.lacks_credit();
            if ring.asked() == asked {
                let pause = if lacks { CREDIT_PAUSE } else { TAKEN_AT_LEISURE };
                // Whether it was asked or time has passed, it looks.
                let _ = reactor::timeout(pause, ring.woken()).await;
            }
        }
        ring.stop();
    }

    /// Ends a window: what was stored before is in the log then, and nothing more ever will be. Tells whether records
    /// that were there are damaged, and what its host did that none may.
    ///
    /// # Errors
    /// `Failed` when the log takes nothing more: what is there waits for the next opening.
    pub async fn end_window(&self, view: View) -> Result<(bool, Option<Bad>)> {
        let Some(ring) = self.windows.of(view) else { return Ok((false, None)) };
        if !ring.has_ended() {
            if !canary::has(Canary::DrainsBeforeEnd) {
                ring.set_phase(Phase::Ending)?;
            }
            ring.taken().await?;
            ring.look_for_damage().await;
            // A record that its host stored late is in the log, and told of, or not begun.
            let is_in_midst = || ring.is_taking.get() || ring.stored.get().is_some();
            while !ring.has_ended() {
                if is_in_midst() {
                    ring.taken().await?;
                    continue;
                }
                let position = ring.position();
                // The ring, which has it as well, goes.
                self.base.log.settle_surely().await?;
                if ring.position() == position && !is_in_midst() {
                    break;
                }
            }
            ring.finish();
        }
        self.windows.remove(view).await;
        Ok((ring.has_lost(), ring.bad()))
    }
}

/// Between two looks whether a host can be given more credit.
const CREDIT_PAUSE: Duration = Duration::from_millis(5);

/// Between two attempts to take what could not be.
const TRIED_AGAIN: Duration = Duration::from_millis(100);

const _: () = assert!(window::DATA_BYTES_MAX / BLOCK < crate::log::RECORD_BLOCKS_MAX);
