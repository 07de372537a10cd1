//! Bytes of volumes, of whatever size: what is not whole blocks is read, changed and written. All of
//! a request lies in blocks of this shard.

use std::collections::{BTreeMap, BTreeSet};

use reactor::buffer;
use stdx::num::{u64_of, usize64};

use super::Front;
use super::read::is_whole;
use crate::address::{BLOCK, Key, View};
use crate::canary::{self, Canary, Step};
use crate::error::Result;
use crate::map::Period;
use crate::volume::state::{BLOCK_BYTES, State};

impl Front {
    /// Writes bytes of a volume whose users take turns, or that keeps parts of blocks.
    pub(super) async fn write_in_turn(
        &self,
        volume: &State,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let first = offset / BLOCK_BYTES;
        let end = (offset + u64_of(data.len())).div_ceil(BLOCK_BYTES);
        let mut turn = self.partial.hold(volume.view, first..end).await;
        let done = match is_whole(offset, data.len()) {
            true => self.write(volume.view, first, data).await,
            false => self.write_parts(volume, offset, data).await,
        };
        turn.ended = true;
        done
    }

    /// As [`write_in_turn`](Self::write_in_turn) where the first or last block keeps a part.
    async fn write_parts(&self, volume: &State, offset: u64, data: &[u8]) -> Result<()> {
        self.partial.settle(&self.base.log).await?;
        let (mut offset, mut data) = (offset, data);
        while !data.is_empty() {
            let skip = usize64(offset % BLOCK_BYTES);
            let take = data.len().min(media::drive::TRANSFER_MAX - BLOCK - skip);
            let len = (skip + take).next_multiple_of(BLOCK);
            let mut whole = buffer::scratch(len).await;
            let first = offset / BLOCK_BYTES;
            if skip > 0 {
                self.read_blocks(volume, first, &mut whole[..BLOCK]).await?;
            }
            if len > skip + take && (len > BLOCK || skip == 0) {
                let last = first + u64_of(len / BLOCK) - 1;
                self.read_blocks(volume, last, &mut whole[len - BLOCK..]).await?;
            }
            let (piece, rest) = data.split_at(take);
            whole[skip..skip + take].copy_from_slice(piece);
            self.write(volume.view, first, &whole).await?;
            (offset, data) = (offset + u64_of(take), rest);
        }
        Ok(())
    }

    /// Makes a hole of those of a volume's blocks that are this shard's; durable when this returns.
    ///
    /// # Errors
    /// As [`Volume::deallocate`](crate::Volume::deallocate).
    pub async fn deallocate_bytes(&self, volume: &State, offset: u64, len: u64) -> Result<()> {
        let _writing = self.writing.enter();
        volume.check_change(offset, len)?;
        if !canary::has(Canary::ClearsPastWindow) {
            self.catch_up(volume).await?;
        }
        let (first, blocks) = (offset / BLOCK_BYTES, len / BLOCK_BYTES);
        let mut turn = if volume.takes_turns() {
            Some(self.partial.hold(volume.view, first..first + blocks).await)
        } else {
            None
        };
        let done = self.deallocate(volume.view, first, blocks).await;
        if let Some(turn) = &mut turn {
            turn.ended = true;
        }
        done?;
        if canary::has(Canary::ClearsAhead) {
            return Ok(());
        }
        self.base.log.until_enough().await.map_err(|e| self.why(e))
    }

    /// Makes a hole for good of what a volume had in these blocks, once whoever still writes there is
    /// done: what they put behind the hole nobody would ever find. Nobody may begin to any more.
    ///
    /// # Errors
    /// As [`deallocate`](Self::deallocate).
    pub async fn drop_blocks(&self, view: View, first: u64, blocks: u64) -> Result<()> {
        if !canary::skips(Step::TakesAwayWriters) {
            self.settle_writes().await;
        }
        self.deallocate(view, first, blocks).await
    }

    /// Waits until whoever writes now is done.
    pub async fn settle_writes(&self) {
        self.writing.pass().await;
    }

    /// Views with contents in the map that no volume has: where `ends` does not tell where one ends, or
    /// beyond that.
    ///
    /// # Errors
    /// Those of reading the map.
    pub async fn orphans(&self, ends: &BTreeMap<View, u64>) -> Result<BTreeSet<View>> {
        let (first, end) = (Key::new(View::METADATA, 0), Key::new(View::SHARED, 0));
        let mut orphans = BTreeSet::new();
        let look = |key: Key, _, count: u32, period: Period| {
            // What snapshots see stays for them.
            if !period.is_newest() {
                return true;
            }
            let end = ends.get(&key.view).copied().unwrap_or(0);
            if key.block + u64::from(count) > end {
                orphans.insert(key.view);
            }
            true
        };
        self.base.map.scan(first, Some(end), look).await?;
        Ok(orphans)
    }
}
