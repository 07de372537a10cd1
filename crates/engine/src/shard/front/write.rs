//! The walk of a write: it is let in, a range of the log is reserved for it, filled and committed, and what is durable
//! then is acknowledged. What need not wait is done in the call that begins it ([`Front::begin_write`]); what has to
//! ([`Front::finish_write`]) goes on from where it was left.

use std::num::NonZeroU32;

use reactor::ReadGuard;
use stdx::num::{u32_of, u64_of, usize32};

use super::Front;
use super::read::is_whole;
use crate::address::{BLOCK, Key, View};
use crate::canary::{self, Canary};
use crate::error::{Error, Result};
use crate::log::{Append, RECORD_BLOCKS_MAX, Reserved};
use crate::shard::Outcome;
use crate::shard::base::count;
use crate::shard::capacity::Promise;
use crate::volume::state::{BLOCK_BYTES, State};

/// A write that has to wait, and what is done of it.
#[derive(Debug)]
pub struct Writing {
    step: Step,
    /// Whoever takes the volume away waits for it.
    _stay: ReadGuard,
}

#[derive(Debug)]
enum Step {
    /// Nothing was done: users of parts of blocks take turns, or what a host stored by itself comes first.
    Turn,
    Blocks(Walk),
}

/// How far a write of whole blocks is.
#[derive(Debug)]
struct Walk {
    first: Key,
    blocks: u32,
    /// Blocks that are durable.
    kept: u32,
    /// Leave for the others; none before the write was let in.
    promise: Option<Promise>,
    /// A record of blocks after those, which was committed and may not be durable yet.
    committed: Option<Committed>,
}

#[derive(Clone, Copy, Debug)]
struct Committed {
    sequence: u64,
    blocks: NonZeroU32,
}

impl Writing {
    /// Whether some of its data is not in the log yet.
    #[must_use]
    pub fn needs_data(&self) -> bool {
        match &self.step {
            Step::Turn => true,
            Step::Blocks(walk) => walk.left() > 0,
        }
    }
}

impl Walk {
    fn new(first: Key, data: &[u8]) -> Self {
        assert!(data.len().is_multiple_of(BLOCK), "whole blocks are written");
        let blocks = u32_of(data.len() / BLOCK);
        Self { first, blocks, kept: 0, promise: None, committed: None }
    }

    /// Blocks that are in no record yet.
    fn left(&self) -> u32 {
        self.blocks - self.kept - self.committed.map_or(0, |committed| committed.blocks.get())
    }

    /// The blocks of the next record: the first, and how many.
    fn next(&self) -> (Key, usize) {
        let at = self.blocks - self.left();
        (self.first.forward(u64::from(at)), usize32(self.left()).min(RECORD_BLOCKS_MAX))
    }

    /// What was committed is durable: the log counts it from now on.
    fn keep(&mut self) {
        let Some(Committed { blocks, .. }) = self.committed.take() else { return };
        let blocks = blocks.get();
        self.kept += blocks;
        let Some(promise) = &mut self.promise else {
            panic!("a write is let in before it is stored")
        };
        promise.kept(u64::from(blocks));
        let left = u64::from(self.blocks - self.kept);
        assert_eq!(promise.left(), left, "what was promised was kept");
    }
}

impl Front {
    /// Writes bytes of a volume, as far as nothing has to be waited for; durable when it is done.
    ///
    /// # Errors
    /// As [`Volume::write`](crate::Volume::write).
    #[inline]
    pub fn begin_write(
        &self,
        volume: &State,
        offset: u64,
        data: &[u8],
    ) -> Result<Outcome<Writing>> {
        volume.check_change(offset, u64_of(data.len()))?;
        // Among users of smaller blocks everybody takes turns: a write of a part must not bring back
        // what a whole one replaced.
        let goes_at_once = is_whole(offset, data.len()) && !volume.takes_turns();
        let is_caught_up = || canary::has(Canary::WritesPastWindow) || self.is_caught_up(volume);
        let step = if goes_at_once && is_caught_up() {
            let key = Key::new(volume.view, offset / BLOCK_BYTES);
            match self.begin_blocks(key, data)? {
                Outcome::Done => return Ok(Outcome::Done),
                Outcome::Wait(walk) => Step::Blocks(walk),
            }
        } else {
            Step::Turn
        };
        Ok(Outcome::Wait(Writing { step, _stay: self.writing.enter() }))
    }

    /// Goes on with a write of these bytes, from where it was left; durable when this returns. The bytes are looked at
    /// only if it [needs](Writing::needs_data) them.
    ///
    /// # Errors
    /// As [`Volume::write`](crate::Volume::write).
    pub async fn finish_write(
        &self,
        writing: &mut Writing,
        volume: &State,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        match &mut writing.step {
            Step::Turn => {
                if !canary::has(Canary::WritesPastWindow) {
                    self.catch_up(volume).await?;
                }
                self.write_in_turn(volume, offset, data).await
            }
            Step::Blocks(walk) => {
                let first = Key::new(volume.view, offset / BLOCK_BYTES);
                assert_eq!(walk.first, first, "a write goes on where it was begun");
                self.finish_blocks(walk, data).await
            }
        }
    }

    /// Writes bytes of a volume; durable when this returns.
    ///
    /// # Errors
    /// As [`Volume::write`](crate::Volume::write).
    pub async fn write_bytes(&self, volume: &State, offset: u64, data: &[u8]) -> Result<()> {
        let begun = self.begin_write(volume, offset, data)?;
        let Outcome::Wait(mut writing) = begun else { return Ok(()) };
        self.finish_write(&mut writing, volume, offset, data).await
    }

    /// Writes whole blocks from `first` on; durable when this returns.
    ///
    /// # Errors
    /// `Full` when the pool has no space for more contents, `Failed` when the log or too many drives
    /// failed.
    pub async fn write(&self, view: View, first: u64, data: &[u8]) -> Result<()> {
        let begun = self.begin_blocks(Key::new(view, first), data)?;
        let Outcome::Wait(mut walk) = begun else { return Ok(()) };
        self.finish_blocks(&mut walk, data).await
    }

    #[inline]
    fn begin_blocks(&self, first: Key, data: &[u8]) -> Result<Outcome<Walk>> {
        let mut walk = Walk::new(first, data);
        walk.promise = self.try_admit(first, u64::from(walk.blocks))?;
        if walk.promise.is_none() {
            return Ok(Outcome::Wait(walk));
        }
        while walk.left() > 0 {
            self.destage.look_at_log();
            let (key, blocks) = walk.next();
            let reserved = self.base.log.try_reserve(key, blocks).map_err(|e| self.why(e))?;
            let Some(reserved) = reserved else { return Ok(Outcome::Wait(walk)) };
            self.store(&mut walk, reserved, data)?;
            if walk.committed.is_some() {
                return Ok(Outcome::Wait(walk));
            }
        }
        assert_eq!(walk.kept, walk.blocks, "what is acknowledged is durable");
        count(&self.written, u64::from(walk.blocks));
        Ok(Outcome::Done)
    }

    async fn finish_blocks(&self, walk: &mut Walk, data: &[u8]) -> Result<()> {
        if walk.promise.is_none() {
            let promise = self.wait_for_admission(walk.first, u64::from(walk.blocks)).await?;
            walk.promise = Some(promise);
        }
        loop {
            if let Some(Committed { sequence, .. }) = walk.committed {
                self.base.log.make_durable(sequence).await.map_err(|e| self.why(e))?;
                walk.keep();
                self.counting.note_change();
            }
            if walk.left() == 0 {
                break;
            }
            self.destage.look_at_log();
            let (key, blocks) = walk.next();
            let reserved = self.base.log.reserve(key, blocks).await.map_err(|e| self.why(e))?;
            self.store(walk, reserved, data)?;
        }
        assert_eq!(walk.kept, walk.blocks, "what is acknowledged is durable");
        count(&self.written, u64::from(walk.blocks));
        if canary::has(Canary::WritesAhead) {
            return Ok(());
        }
        self.base.log.until_enough().await.map_err(|e| self.why(e))
    }

    /// Stores a write's next blocks in what was reserved for them.
    #[inline]
    fn store(&self, walk: &mut Walk, mut reserved: Reserved<'_>, data: &[u8]) -> Result<()> {
        assert_eq!(data.len(), usize32(walk.blocks) * BLOCK, "a write keeps its data");
        assert!(walk.committed.is_none(), "one record of a write is stored at a time");
        assert!(walk.promise.is_some(), "a write is let in before it is stored");
        let begin = usize32(walk.blocks - walk.left()) * BLOCK;
        reserved.fill(&data[begin..begin + reserved.left()]).map_err(|e| self.why(e))?;
        let Some(blocks) = NonZeroU32::new(u32_of(walk.next().1)) else {
            panic!("a record has blocks")
        };
        let stored = reserved.commit().map_err(|e| self.why(e))?;
        walk.committed = Some(Committed { sequence: stored.sequence, blocks });
        if let Some(promise) = &mut walk.promise {
            promise.committed();
        }
        if stored.is_durable {
            walk.keep();
            self.counting.note_change();
        }
        Ok(())
    }

    /// Makes blocks read as zeroes and gives their space back; durable when this returns.
    ///
    /// # Errors
    /// As [`write`](Self::write), but for `Full`.
    pub async fn deallocate(&self, view: View, first: u64, blocks: u64) -> Result<()> {
        self.base.writer.check()?;
        // On the heap, so that commands of volumes without a reservation stay small.
        let lowering = match self.is_reserved(view) {
            true => {
                let lowering = Box::pin(self.begin_lowering(Key::new(view, first), blocks));
                lowering.await?.map(Box::new)
            }
            false => None,
        };
        self.destage.look_at_log();
        let hole = Append::Hole { key: Key::new(view, first), count: blocks };
        self.appended(self.base.log.append(hole).await)?;
        if let Some(lowering) = lowering {
            lowering.done();
        }
        self.capacity.note_hole(blocks);
        self.quotas.note_change(view);
        Ok(())
    }

    /// Takes note of a record that was appended, or says why it was not.
    pub(super) fn appended(&self, done: Result<u64>) -> Result<()> {
        done.map_err(|e| self.why(e))?;
        self.counting.note_change();
        Ok(())
    }

    /// What is said of an error of the log: one that takes no more because the shard failed says why that was.
    pub(super) fn why(&self, error: Error) -> Error {
        self.base.writer.check().err().unwrap_or(error)
    }
}
