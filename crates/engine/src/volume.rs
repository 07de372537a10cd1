//! Volumes: what hosts read and write, of any size, only as large as what is in them.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use reactor::buffer;
use reactor::sync::Signal;
use stdx::num::{u64_of, usize64};

use crate::address::{BLOCK, View};
use crate::error::{Error, Kind, Result};
use crate::format::catalog::VolumeRecord;
use crate::grace::Grace;
use crate::shard::Shard;

const BLOCK_BYTES: u64 = BLOCK as u64;

/// Blocks next to each other that belong to one shard.
const CHUNK_BLOCKS: u64 = 256;

/// What all users of a volume share.
#[derive(Debug)]
pub struct State {
    pub view: View,
    pub id: [u8; 16],
    pub name: RefCell<String>,
    pub bytes: Cell<u64>,
    pub block_size: u32,
    /// Set when the volume or its pool went: whoever still holds it is told.
    pub gone: Cell<bool>,
    /// Writers under way: what is done to the volume as a whole comes after theirs.
    pub writers: Grace,
    partial: Locks,
}

impl State {
    #[must_use]
    pub fn new(record: &VolumeRecord) -> Self {
        Self {
            view: record.view,
            id: record.id,
            name: RefCell::new(record.name.clone()),
            bytes: Cell::new(record.bytes),
            block_size: record.block_size,
            gone: Cell::new(false),
            writers: Grace::default(),
            partial: Locks::default(),
        }
    }
}

/// Ranges of blocks that are being changed in part, which takes a read and a write.
#[derive(Default)]
struct Locks {
    held: RefCell<Vec<Range<u64>>>,
    freed: Signal,
}

impl std::fmt::Debug for Locks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.held.borrow().iter()).finish()
    }
}

struct Held<'a> {
    locks: &'a Locks,
    range: Range<u64>,
}

impl Locks {
    async fn hold(&self, range: Range<u64>) -> Held<'_> {
        let meets = |held: &Range<u64>| held.start < range.end && range.start < held.end;
        self.freed.until(|| !self.held.borrow().iter().any(meets)).await;
        self.held.borrow_mut().push(range.clone());
        Held { locks: self, range }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut held = self.locks.held.borrow_mut();
        if let Some(at) = held.iter().position(|range| *range == self.range) {
            held.swap_remove(at);
        }
        drop(held);
        self.locks.freed.raise();
    }
}

/// An open volume. Cloning shares it. Belongs to its pool's reactor.
#[derive(Clone)]
pub struct Volume {
    pub(crate) shards: Rc<[Rc<Shard>]>,
    pub(crate) state: Rc<State>,
}

impl Volume {
    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.state.bytes.get()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The logical block hosts see, in bytes: 512 or 4096.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.state.block_size
    }

    /// What identifies it for ever.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.state.id
    }

    #[must_use]
    pub fn name(&self) -> String {
        self.state.name.borrow().clone()
    }

    fn check(&self, offset: u64, len: u64) -> Result<()> {
        if self.state.gone.get() {
            return Err(Error::new(Kind::Gone, "the volume was closed or deleted"));
        }
        match offset.checked_add(len) {
            Some(end) if end <= self.len() => Ok(()),
            _ => {
                let context = format!("{len} bytes at {offset} are not inside the volume");
                Err(Error::new(Kind::OutOfRange, context))
            }
        }
    }

    fn shard(&self, block: u64) -> &Rc<Shard> {
        let chunk = block / CHUNK_BLOCKS + u64::from(self.state.view.get());
        &self.shards[usize64(chunk % u64_of(self.shards.len()))]
    }

    /// How many of `blocks` from `first` on belong to the shard of the first.
    fn run(&self, first: u64, blocks: u64) -> u64 {
        if self.shards.len() == 1 {
            blocks
        } else {
            blocks.min(CHUNK_BLOCKS - first % CHUNK_BLOCKS)
        }
    }

    async fn read_blocks(&self, mut first: u64, mut out: &mut [u8]) -> Result<()> {
        while !out.is_empty() {
            let run = self.run(first, u64_of(out.len() / BLOCK));
            let (piece, rest) = out.split_at_mut(usize64(run) * BLOCK);
            self.shard(first).read(self.state.view, first, piece).await?;
            (first, out) = (first + run, rest);
        }
        Ok(())
    }

    async fn write_blocks(&self, mut first: u64, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let run = self.run(first, u64_of(data.len() / BLOCK));
            let (piece, rest) = data.split_at(usize64(run) * BLOCK);
            self.shard(first).write(self.state.view, first, piece).await?;
            (first, data) = (first + run, rest);
        }
        Ok(())
    }

    /// Reads bytes from `offset` on.
    ///
    /// # Errors
    /// `OutOfRange`, `Gone`, `Corrupt` when the redundancy could not give them back, `Failed` when
    /// too many drives are lost.
    pub async fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.check(offset, u64_of(out.len()))?;
        if offset.is_multiple_of(BLOCK_BYTES) && out.len().is_multiple_of(BLOCK) {
            return self.read_blocks(offset / BLOCK_BYTES, out).await;
        }
        // Through a buffer, a megabyte at a time.
        let (mut offset, mut out) = (offset, out);
        while !out.is_empty() {
            let skip = usize64(offset % BLOCK_BYTES);
            let take = out.len().min(media::drive::TRANSFER_MAX - BLOCK - skip);
            let mut whole = buffer::scratch((skip + take).next_multiple_of(BLOCK)).await;
            self.read_blocks(offset / BLOCK_BYTES, &mut whole).await?;
            let (piece, rest) = out.split_at_mut(take);
            piece.copy_from_slice(&whole[skip..skip + take]);
            (offset, out) = (offset + u64_of(take), rest);
        }
        Ok(())
    }

    /// Writes bytes from `offset` on; durable when this returns. Each block of 4096 bytes changes as
    /// a whole or not at all.
    ///
    /// # Errors
    /// `OutOfRange`, `Gone`, `Full` when the pool has no space for more contents, `Failed` when the
    /// log or too many drives failed.
    pub async fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check(offset, u64_of(data.len()))?;
        if data.is_empty() {
            return Ok(());
        }
        let _writing = self.state.writers.enter();
        let whole = offset.is_multiple_of(BLOCK_BYTES) && data.len().is_multiple_of(BLOCK);
        if whole && u64::from(self.state.block_size) == BLOCK_BYTES {
            return self.write_blocks(offset / BLOCK_BYTES, data).await;
        }
        // Among users of smaller blocks everybody takes turns: a write of a part must not bring back
        // what a whole one replaced.
        let first = offset / BLOCK_BYTES;
        let end = (offset + u64_of(data.len())).div_ceil(BLOCK_BYTES);
        let _turn = self.state.partial.hold(first..end).await;
        if whole {
            return self.write_blocks(first, data).await;
        }
        self.write_parts(offset, data).await
    }

    /// As [`write`](Self::write) where the first or last block keeps a part.
    async fn write_parts(&self, offset: u64, data: &[u8]) -> Result<()> {
        let (mut offset, mut data) = (offset, data);
        while !data.is_empty() {
            let skip = usize64(offset % BLOCK_BYTES);
            let take = data.len().min(media::drive::TRANSFER_MAX - BLOCK - skip);
            let len = (skip + take).next_multiple_of(BLOCK);
            let mut whole = buffer::scratch(len).await;
            let first = offset / BLOCK_BYTES;
            if skip > 0 {
                self.read_blocks(first, &mut whole[..BLOCK]).await?;
            }
            if len > skip + take && (len > BLOCK || skip == 0) {
                let last = first + u64_of(len / BLOCK) - 1;
                self.read_blocks(last, &mut whole[len - BLOCK..]).await?;
            }
            let (piece, rest) = data.split_at(take);
            whole[skip..skip + take].copy_from_slice(piece);
            self.write_blocks(first, &whole).await?;
            (offset, data) = (offset + u64_of(take), rest);
        }
        Ok(())
    }

    /// Makes bytes read as zeroes and gives the space of whole blocks back; durable when this
    /// returns.
    ///
    /// # Errors
    /// As [`write`](Self::write); `Full` only where a block keeps a part.
    pub async fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        self.check(offset, len)?;
        let end = offset + len;
        let (first, last) = (offset.div_ceil(BLOCK_BYTES), end / BLOCK_BYTES);
        const ZEROES: [u8; BLOCK] = [0; BLOCK];
        if first > last {
            // Within one block.
            return self.write(offset, &ZEROES[..usize64(len)]).await;
        }
        if first * BLOCK_BYTES > offset {
            self.write(offset, &ZEROES[..usize64(first * BLOCK_BYTES - offset)]).await?;
        }
        if last * BLOCK_BYTES < end {
            self.write(last * BLOCK_BYTES, &ZEROES[..usize64(end - last * BLOCK_BYTES)]).await?;
        }
        self.punch(first, last).await
    }

    /// Gives the space of the whole blocks within a range back; they read as zeroes after. Parts of
    /// blocks at its ends stay as they are.
    ///
    /// # Errors
    /// As [`write`](Self::write), but for `Full`.
    pub async fn deallocate(&self, offset: u64, len: u64) -> Result<()> {
        self.check(offset, len)?;
        let (first, last) = (offset.div_ceil(BLOCK_BYTES), (offset + len) / BLOCK_BYTES);
        self.punch(first, last.max(first)).await
    }

    async fn punch(&self, first: u64, end: u64) -> Result<()> {
        if first == end {
            return Ok(());
        }
        let _writing = self.state.writers.enter();
        let small = u64::from(self.state.block_size) < BLOCK_BYTES;
        let _turn = if small { Some(self.state.partial.hold(first..end).await) } else { None };
        punch_all(&self.shards, self.state.view, first, end).await
    }

    /// Makes durable what was written: it is, as soon as a write returns.
    ///
    /// # Errors
    /// `Gone`.
    pub fn flush(&self) -> Result<()> {
        self.check(0, 0)
    }
}

/// Makes holes of a view's blocks, whichever shards they belong to.
pub async fn punch_all(shards: &[Rc<Shard>], view: View, first: u64, end: u64) -> Result<()> {
    // A shard has no blocks of the others, so a hole over theirs does nothing there.
    for shard in shards {
        shard.punch(view, first, end - first).await?;
    }
    Ok(())
}
