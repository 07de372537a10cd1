//! Volumes: what hosts read and write, of any size, only as large as what is in them.
//!
//! A volume is used from any reactor. Its blocks belong to the shards of its pool by turns; a request
//! goes to the shard that has its blocks, wherever that is, and one whose blocks several have goes to
//! all of them at once.

pub mod state;

use std::ops::DerefMut;
use std::sync::{Arc, Weak};

use stdx::num::{u64_of, usize64};

use crate::address::{BLOCK, Key};
use crate::common::Common;
use crate::error::{Error, Kind, Result};
use crate::limits::CLONES_DEEP_MAX;
use crate::quotas::{QuotaStatus, ReservationStatus};
use crate::reading::Begun;
use crate::shard::{CopyRange, Outcome};
use crate::shard_handle::ShardHandle;
use crate::writing::{Way, Writing};
use reactor::join_all;
pub use state::Origin;
use state::{BLOCK_BYTES, State};

/// Blocks next to each other that belong to one shard.
pub(crate) const CHUNK_BLOCKS: u64 = 256;
pub(crate) const CHUNK_BYTES: u64 = CHUNK_BLOCKS * BLOCK_BYTES;

/// Bytes copied at once where their contents are.
const CONTENTS_BYTES: u64 = 256 << 10;

/// Which of so many shards a block belongs to, by the placement of its volume.
#[must_use]
pub fn shard_of(placement: u32, block: u64, shards: usize) -> usize {
    let chunk = block / CHUNK_BLOCKS + u64::from(placement);
    usize64(chunk % u64_of(shards))
}

/// An open volume. Cloning shares it; used from any reactor.
#[derive(Clone)]
pub struct Volume {
    shards: Arc<[ShardHandle]>,
    pub(crate) state: Arc<State>,
    /// Who holds a volume does not hold the drives of its pool.
    common: Weak<Common>,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").field("state", &self.state).finish_non_exhaustive()
    }
}

/// A part of a request that belongs to one shard: `len` bytes from `offset` on.
#[derive(Clone, Copy)]
struct Piece<'a> {
    shard: &'a ShardHandle,
    offset: u64,
    len: usize,
}

/// The first failure, in the order of the pieces, once all are done.
fn together(done: Vec<Result<()>>) -> Result<()> {
    done.into_iter().find(Result::is_err).unwrap_or(Ok(()))
}

impl Volume {
    pub(crate) fn new(shards: Arc<[ShardHandle]>, state: Arc<State>, common: &Arc<Common>) -> Self {
        Self { shards, state, common: Arc::downgrade(common) }
    }

    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.state.bytes()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that have contents, at most its size: those of blocks written and not deallocated since, also where others
    /// share them. As of a few seconds ago, longer where there is much to count; `None` soon after its pool was opened.
    #[must_use]
    pub fn used(&self) -> Option<u64> {
        self.state.used()
    }

    /// Of the bytes [used](Self::used), those that none of its snapshots sees. Of a snapshot, those that neither hosts nor
    /// another snapshot sees: what comes back when it alone is deleted, if it is not copied by reference elsewhere. As of
    /// the same count as what is used.
    #[must_use]
    pub fn unique(&self) -> Option<u64> {
        self.state.unique()
    }

    /// Bytes that hosts do not see any more, and at least one of its snapshots does: what comes back when all of those are
    /// deleted. As of the same count as what is used.
    #[must_use]
    pub fn held_by_snapshots(&self) -> Option<u64> {
        self.state.held()
    }

    /// Bytes that it began with, as a clone or where it was rolled back, and keeps, whether they were overwritten or given
    /// back since or not: at least what hosts see of them. As of the same count as what is used, which has none of these.
    #[must_use]
    pub fn inherited(&self) -> Option<u64> {
        self.state.inherited()
    }

    /// Its [quota](crate::Pool::set_quota), if it has one.
    #[must_use]
    pub fn quota(&self) -> Option<QuotaStatus> {
        self.common.upgrade()?.quotas.status(self.state.view)
    }

    /// Its [reservation](crate::Pool::set_reservation), if it has one.
    #[must_use]
    pub fn reservation(&self) -> Option<ReservationStatus> {
        self.common.upgrade()?.quotas.reservation(self.state.view)
    }

    /// Whether nothing can begin with what it has any more: it is the clone of too many, one behind another, and a rollback
    /// makes one, too.
    #[must_use]
    pub fn is_too_deep(&self) -> bool {
        self.state.ancestors().is_some_and(|all| all.len() >= CLONES_DEEP_MAX)
    }

    /// Whether it reads what others have where it has nothing: it is a clone, or was rolled back, and was not detached.
    #[must_use]
    pub fn inherits(&self) -> bool {
        self.state.ancestors().is_some()
    }

    /// Bytes looked through while it is [detached](crate::Pool::detach_volume).
    #[must_use]
    pub fn detaching(&self) -> Option<u64> {
        self.state.detaching()
    }

    /// Where it came from, if it is a clone.
    #[must_use]
    pub fn origin(&self) -> Option<Origin> {
        self.state.lineage.origin.filter(|_| self.inherits())
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
        self.state.name.lock().clone()
    }

    /// Whether the pool could not keep what it was given.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.state.has_failed()
    }

    /// Whether the pool lost more than its redundancy bears, or was let go of since: what failed then may be done once it
    /// is open again.
    #[must_use]
    pub fn is_beyond_redundancy(&self) -> bool {
        self.common.upgrade().is_none_or(|common| common.superblock.beyond().is_some())
    }

    /// As [`is_beyond_redundancy`](Self::is_beyond_redundancy), of a pool that nobody let go of.
    #[must_use]
    pub fn waits_for_drives(&self) -> bool {
        self.common.upgrade().is_some_and(|common| common.superblock.beyond().is_some())
    }

    /// Passes a result on, having noted what it says of the volume.
    fn noted<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(Error { kind: Kind::Failed, .. }) = result {
            self.state.note_failed();
        }
        result
    }

    /// The shard that the byte at `offset` belongs to.
    fn shard(&self, offset: u64) -> &ShardHandle {
        let block = offset / BLOCK_BYTES;
        &self.shards[shard_of(self.state.placement(), block, self.shards.len())]
    }

    /// How many of `len` bytes from `offset` on belong to the shard of the first.
    fn run(&self, offset: u64, len: usize) -> usize {
        match self.shards.len() {
            1 => len,
            _ => len.min(usize64(CHUNK_BYTES - offset % CHUNK_BYTES)),
        }
    }

    /// A request cut at the borders of shards.
    fn pieces(&self, mut offset: u64, mut len: usize) -> impl Iterator<Item = Piece<'_>> {
        std::iter::from_fn(move || {
            let run = self.run(offset, len);
            let piece = Piece { shard: self.shard(offset), offset, len: run };
            (offset, len) = (offset + u64_of(run), len - run);
            (run > 0).then_some(piece)
        })
    }

    /// Reads bytes from `offset` on.
    ///
    /// # Errors
    /// `OutOfRange`, `Gone`, `Corrupt` when the redundancy could not give them back, `Failed` when
    /// too many drives are lost.
    pub async fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let len = u64_of(out.len());
        self.state.check(offset, len)?;
        self.read_pieces(offset, out).await?;
        // What was taken from the volume meanwhile has read as zeroes: nobody gets those for its contents, a
        // copy least of all.
        self.state.check(offset, len)
    }

    async fn read_pieces(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        if self.run(offset, out.len()) == out.len() {
            return self.shard(offset).read(&self.state, offset, out).await;
        }
        let mut rest = out;
        let mut reads = Vec::new();
        for Piece { shard, offset, len } in self.pieces(offset, rest.len()) {
            let (out, after) = rest.split_at_mut(len);
            rest = after;
            reads.push(shard.read(&self.state, offset, out));
        }
        assert!(rest.is_empty(), "each byte of a read is of some shard");
        together(join_all(reads).await)
    }

    /// Has the processor fetch what reading at `offset` looks at first, if its shard is on this reactor; tells
    /// whether it is.
    #[must_use]
    pub fn look_ahead(&self, offset: u64) -> bool {
        let inside = self.state.check(offset, 1).is_ok();
        inside && self.shard(offset).look_ahead(Key::new(self.state.view, offset / BLOCK_BYTES))
    }

    /// Begins to read `len` bytes from `offset` on, and ends it in the same call if nothing has to be waited for: whole
    /// blocks of a shard on this reactor. Few of them, in one piece of a drive in memory, are lent as they are now,
    /// where they lie; of others what is in memory goes to what `memory` gives, which has room for `len` bytes. The shard
    /// gives no space back while any of it is lent, or the rest is waited for.
    #[must_use]
    pub fn begin_read<B: DerefMut<Target = [u8]> + 'static>(
        &self,
        offset: u64,
        len: usize,
        memory: impl FnOnce() -> Option<B>,
    ) -> Begun<B> {
        match len > 0 && self.run(offset, len) == len {
            true => self.shard(offset).begin_read(&self.state, offset, len, memory),
            false => Begun::Not,
        }
    }

    /// Begins to write bytes from `offset` on, and ends it in the same call if nothing has to be waited for: whole
    /// blocks of a shard on this reactor, whose log has room to spare. They are durable when it is done.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    #[inline]
    pub fn begin_write(&self, offset: u64, data: &[u8]) -> Result<Outcome<Writing>> {
        if self.run(offset, data.len()) == data.len()
            && let Some(begun) = self.shard(offset).begin_write(&self.state, offset, data)
        {
            return self.noted(begun);
        }
        self.state.check_change(offset, u64_of(data.len()))?;
        Ok(Outcome::Wait(Writing(Way::Elsewhere)))
    }

    /// Goes on with a write of these bytes, from where [`begin_write`](Self::begin_write) left it; durable when this
    /// returns. Of one that [needs](Writing::needs_data) its data no more they are not looked at.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn finish_write(
        &self,
        writing: &mut Writing,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let done = match &mut writing.0 {
            Way::Here(shard, rest) => {
                shard.front.finish_write(rest, &self.state, offset, data).await
            }
            Way::Elsewhere => self.write_pieces(offset, data).await,
        };
        self.noted(done)
    }

    /// Writes bytes from `offset` on; durable when this returns. Each block of 4096 bytes changes as
    /// a whole or not at all.
    ///
    /// # Errors
    /// `OutOfRange`, `Gone`, `Full` when the pool has no space for more contents, `Failed` when the
    /// log or too many drives failed.
    pub async fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let begun = self.begin_write(offset, data)?;
        let Outcome::Wait(mut writing) = begun else { return Ok(()) };
        self.finish_write(&mut writing, offset, data).await
    }

    /// Has the shards that have the blocks write them: one on another reactor, or several.
    async fn write_pieces(&self, offset: u64, data: &[u8]) -> Result<()> {
        if self.run(offset, data.len()) == data.len() {
            return self.shard(offset).send_write(&self.state, offset, data).await;
        }
        let (begin, mut end) = (offset, offset);
        let writes = self.pieces(offset, data.len()).map(|Piece { shard, offset, len }| {
            assert_eq!(offset, end, "pieces of a write lie one behind another");
            end = offset + u64_of(len);
            let at = usize64(offset - begin);
            shard.write(&self.state, offset, &data[at..at + len])
        });
        together(join_all(writes).await)
    }

    /// Makes bytes read as zeroes and gives the space of whole blocks back; durable when this
    /// returns.
    ///
    /// # Errors
    /// As [`write`](Self::write); `Full` only where a block keeps a part.
    pub async fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        self.state.check_change(offset, len)?;
        let end = offset + len;
        let (first, last) = (offset.div_ceil(BLOCK_BYTES), end / BLOCK_BYTES);
        if first > last {
            // Within one block.
            return self.zero_part(offset, len).await;
        }
        if first * BLOCK_BYTES > offset {
            self.zero_part(offset, first * BLOCK_BYTES - offset).await?;
        }
        if last * BLOCK_BYTES < end {
            self.zero_part(last * BLOCK_BYTES, end - last * BLOCK_BYTES).await?;
        }
        self.deallocate_blocks(first, last).await
    }

    /// Writes zeroes to a part of a block.
    async fn zero_part(&self, offset: u64, len: u64) -> Result<()> {
        const ZEROES: [u8; BLOCK] = [0; BLOCK];
        self.write(offset, &ZEROES[..usize64(len)]).await
    }

    /// Gives the space of the whole blocks within a range back; they read as zeroes after. Parts of
    /// blocks at its ends stay as they are.
    ///
    /// # Errors
    /// As [`write`](Self::write), but for `Full`.
    pub async fn deallocate(&self, offset: u64, len: u64) -> Result<()> {
        self.state.check_change(offset, len)?;
        let (first, last) = (offset.div_ceil(BLOCK_BYTES), (offset + len) / BLOCK_BYTES);
        self.deallocate_blocks(first, last.max(first)).await
    }

    /// Makes a hole of blocks, in each shard that has any of them. A shard has no blocks of the
    /// others, so that a hole over theirs does nothing there.
    async fn deallocate_blocks(&self, first: u64, end: u64) -> Result<()> {
        assert!(first <= end, "what is given back is a range");
        if first == end {
            return Ok(());
        }
        let (offset, len) = (first * BLOCK_BYTES, (end - first) * BLOCK_BYTES);
        let chunks = first / CHUNK_BLOCKS..end.div_ceil(CHUNK_BLOCKS);
        if self.shards.len() == 1 || chunks.end - chunks.start == 1 {
            return self.noted(self.shard(offset).deallocate(&self.state, offset, len).await);
        }
        let shards = chunks.take(self.shards.len()).map(|chunk| self.shard(chunk * CHUNK_BYTES));
        let done = join_all(shards.map(|shard| shard.deallocate(&self.state, offset, len))).await;
        self.noted(together(done))
    }

    /// Whether it is of the same pool as another, or the same.
    #[must_use]
    pub fn is_beside(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shards, &other.shards)
    }

    /// Copies `len` bytes from `from` of a volume of the same pool (this one, perhaps) to `to` of this
    /// one; durable when this returns. Whole blocks whose source and target belong to one shard are not
    /// moved: they are shared until one of them changes. Everything else is read and written. Each
    /// block of 4096 bytes changes as a whole or not at all. Ranges that overlap end as if all had been
    /// read before anything was written.
    ///
    /// # Errors
    /// As [`read`](Self::read) and [`write`](Self::write); `Invalid` for volumes of different pools.
    pub async fn copy_from(&self, source: &Self, from: u64, to: u64, len: u64) -> Result<()> {
        source.state.check(from, len)?;
        self.state.check_change(to, len)?;
        if !self.is_beside(source) {
            return Err(Error::new(Kind::Invalid, "the volumes are of different pools"));
        }
        let same = Arc::ptr_eq(&self.state, &source.state);
        if same && from == to {
            return Ok(());
        }
        let overlaps = same && from.abs_diff(to) < len;
        let mut done = 0;
        while done < len {
            let left = len - done;
            let piece = match overlaps {
                true => left.min(CONTENTS_BYTES),
                false => self.piece_to_copy(source, from + done, to + done, left),
            };
            assert!((1..=left).contains(&piece), "a copy comes to its end");
            // From the end, where the beginning would be overwritten before it was read.
            let at = if overlaps && to > from { left - piece } else { done };
            let copied = match overlaps || !self.can_share(source, from + at, to + at, piece) {
                true => self.copy_contents(source, from + at, to + at, piece).await,
                false => {
                    let copy = CopyRange { from: from + at, to: to + at, length: piece };
                    match self.shard(to + at).copy(&self.state, &source.state, copy).await {
                        // It has got a reservation since.
                        Err(_) if !self.can_share(source, from + at, to + at, piece) => continue,
                        copied => copied,
                    }
                }
            };
            self.noted(copied)?;
            done += piece;
        }
        Ok(())
    }

    /// Whether [`copy_from`](Self::copy_from) would move no contents.
    #[must_use]
    pub fn shares_with(&self, source: &Self, from: u64, to: u64, len: u64) -> bool {
        let same = Arc::ptr_eq(&self.state, &source.state);
        if !self.is_beside(source) || (same && from.abs_diff(to) < len) {
            return false;
        }
        let mut done = 0;
        while done < len {
            let piece = self.piece_to_copy(source, from + done, to + done, len - done);
            if !self.can_share(source, from + done, to + done, piece) {
                return false;
            }
            done += piece;
        }
        true
    }

    /// How much of a copy can be made at once: parts of blocks apart from whole ones, and no piece
    /// across a border of shards.
    fn piece_to_copy(&self, source: &Self, from: u64, to: u64, left: u64) -> u64 {
        let block = from % BLOCK_BYTES;
        if block != to % BLOCK_BYTES {
            return left.min(CONTENTS_BYTES);
        }
        if block > 0 || left < BLOCK_BYTES {
            return left.min(BLOCK_BYTES - block);
        }
        let to_border = CHUNK_BYTES - (from % CHUNK_BYTES).max(to % CHUNK_BYTES);
        let piece = left.min(to_border) / BLOCK_BYTES * BLOCK_BYTES;
        match self.can_share(source, from, to, piece) {
            true => piece,
            false => piece.min(CONTENTS_BYTES),
        }
    }

    /// Whether a piece can be copied without its contents: whole blocks of one shard.
    fn can_share(&self, source: &Self, from: u64, to: u64, piece: u64) -> bool {
        let shard = |of: &Self, at: u64| {
            shard_of(of.state.placement(), at / BLOCK_BYTES, self.shards.len())
        };
        let is_whole = (from | to | piece).is_multiple_of(BLOCK_BYTES);
        // What a snapshot sees, or a clone inherits, has no name yet.
        let is_own = source.state.sees.is_none() && source.state.ancestors().is_none();
        // What is shared its hosts do not have for themselves, as they were promised.
        let is_reserved = self.reservation().is_some() || source.reservation().is_some();
        is_whole && is_own && !is_reserved && shard(self, to) == shard(source, from)
    }

    /// Copies a piece by reading and writing it. What reads as zeroes takes no space after.
    async fn copy_contents(&self, source: &Self, from: u64, to: u64, len: u64) -> Result<()> {
        let mut data = reactor::buffer::scratch(usize64(len)).await;
        let data = &mut data[..usize64(len)];
        source.read(from, data).await?;
        let is_zero = |part: &&[u8]| part.iter().all(|byte| *byte == 0);
        // The first part ends where a block does.
        let head = data.len().min(BLOCK - usize64(to % BLOCK_BYTES));
        let (head, rest) = data.split_at(head);
        let parts: Vec<&[u8]> = std::iter::once(head).chain(rest.chunks(BLOCK)).collect();
        let mut at = to;
        for run in parts.chunk_by(|a, b| is_zero(a) == is_zero(b)) {
            let len: usize = run.iter().map(|part| part.len()).sum();
            let begin = usize64(at - to);
            match run.first().is_some_and(is_zero) {
                true => self.write_zeroes(at, u64_of(len)).await?,
                false => self.write(at, &data[begin..begin + len]).await?,
            }
            at += u64_of(len);
        }
        assert_eq!(at, to + len, "all of a copy is written");
        Ok(())
    }

    /// Makes durable what was written: it is, as soon as a write returns.
    ///
    /// # Errors
    /// `Gone`.
    pub fn flush(&self) -> Result<()> {
        self.state.check(0, 0)
    }
}
