//! Reading blocks, each verified by its checksum.

use super::around::Got;
use super::recover::{Cause, Target, Unrecoverable};
use super::{SegmentInfo, Segments};
use crate::address::BLOCK;
use crate::error::{Error, Kind, Result};
use crate::limits::RECOVER_BLOCKS;
use crate::unverified::UnverifiedRead;
use reactor::buffer::{Buffer, Pool};
use reactor::{ReadGuard, join_all};
use std::rc::Rc;
use stdx::crc32c;
use stdx::num::{u32_of, usize32};

/// Whether every block has its checksum.
fn all_match(crcs: &[u32], bytes: &[u8]) -> bool {
    crcs.iter().zip(bytes.chunks_exact(BLOCK)).all(|(crc, block)| crc32c(block) == *crc)
}

impl Segments {
    /// Reads blocks from `slot` on to `out`, one for each of `crcs`, which it verifies. What cannot
    /// be read or is not what it should be is reconstructed from the rest of its stripe, and written
    /// back where its drive can be used.
    ///
    /// # Errors
    /// `Corrupt` when the redundancy could not give the blocks back, `Failed` when more members are
    /// lost than it bears.
    pub async fn read(
        &self,
        info: &SegmentInfo,
        slot: u32,
        crcs: &[u32],
        out: &mut [u8],
    ) -> Result<()> {
        assert_eq!(out.len(), crcs.len() * BLOCK, "a checksum for each block");
        let first = usize32(info.contiguous(slot, u32_of(crcs.len())));
        if first == crcs.len() {
            return self.read_piece(info, slot, crcs, out).await;
        }
        let mut pieces = Vec::new();
        let (mut slot, mut crcs, mut out) = (slot, crcs, out);
        while !crcs.is_empty() {
            let count = info.contiguous(slot, u32_of(crcs.len()));
            let (these, after) = crcs.split_at(usize32(count));
            let (piece, rest) = out.split_at_mut(these.len() * BLOCK);
            pieces.push(self.read_piece(info, slot, these, piece));
            (slot, crcs, out) = (slot + count, after, rest);
        }
        join_all(pieces).await.into_iter().collect()
    }

    /// Copies what is in drives in memory, if nothing has to be waited for or put right; tells whether it did.
    #[must_use]
    pub fn copy_known(&self, info: &SegmentInfo, slot: u32, crcs: &[u32], out: &mut [u8]) -> bool {
        assert_eq!(out.len(), crcs.len() * BLOCK, "a checksum for each block");
        let (mut slot, mut crcs, mut out) = (slot, crcs, out);
        while !crcs.is_empty() {
            let count = info.contiguous(slot, u32_of(crcs.len()));
            let (these, after) = crcs.split_at(usize32(count));
            let (piece, rest) = out.split_at_mut(these.len() * BLOCK);
            let (member, at) = self.locate(Target::of(info, slot));
            if !self.drives.read_at_once(member.drive, at, piece) || !all_match(these, piece) {
                return false;
            }
            (slot, crcs, out) = (slot + count, after, rest);
        }
        true
    }

    /// Lends blocks that lie in one piece of a drive in memory, one for each of `crcs`. `None` where anything
    /// else comes up, which [`read`](Self::read) sees to.
    #[must_use]
    pub fn lend(
        &self,
        info: &SegmentInfo,
        slot: u32,
        crcs: &[u32],
        guard: ReadGuard,
    ) -> Option<UnverifiedRead> {
        let count = u32_of(crcs.len());
        if info.contiguous(slot, count) != count {
            return None;
        }
        let (member, at) = self.locate(Target::of(info, slot));
        let region = self.regions.get(usize::from(member.drive))?.as_ref()?;
        let usable = self.drives.read_in_place(member.drive, crcs.len() * BLOCK);
        usable.then(|| UnverifiedRead::new(Rc::clone(region), at, crcs, guard))
    }

    /// Reads blocks that lie in one piece (see [`SegmentInfo::contiguous`]) into a buffer of `pool`,
    /// otherwise as [`read`](Self::read) does: the buffer can go straight to whoever asked.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn fetch(
        &self,
        info: &SegmentInfo,
        slot: u32,
        crcs: &[u32],
        pool: Pool,
    ) -> Result<Buffer> {
        let count = u32_of(crcs.len());
        assert_eq!(info.contiguous(slot, count), count, "blocks in one piece");
        let target = Target::of(info, slot);
        let len = crcs.len() * BLOCK;
        let mut made = None;
        let make = async || {
            let data = made.insert(pool.alloc(len).await);
            self.rebuild(info, slot, crcs, Cause::Late, data).await
        };
        match self.read_or_make(target, len, &pool, make).await {
            Ok(Got::Read(mut data)) => {
                if !all_match(crcs, &data) {
                    self.repair_blocks(info, slot, crcs, &mut data).await?;
                }
                Ok(data)
            }
            Ok(Got::Made) if let Some(data) = made => Ok(data),
            _ => {
                let mut data = pool.alloc(len).await;
                self.rebuild(info, slot, crcs, Cause::Damage, &mut data).await?;
                Ok(data)
            }
        }
    }

    async fn read_piece(
        &self,
        info: &SegmentInfo,
        slot: u32,
        crcs: &[u32],
        out: &mut [u8],
    ) -> Result<()> {
        let (target, len) = (Target::of(info, slot), out.len());
        let (member, at) = self.locate(target);
        let got = if self.drives.is_memory(member.drive) {
            let read = self.drives.read_into(member.drive, at, out, &self.memory.reads).await;
            read.map(|()| None)
        } else {
            let make = async || self.rebuild(info, slot, crcs, Cause::Late, out).await;
            let got = self.read_or_make(target, len, &self.memory.reads, make).await;
            got.map(Some)
        };
        match got {
            Ok(Some(Got::Made)) => return Ok(()),
            Ok(Some(Got::Read(data))) => out.copy_from_slice(&data),
            Ok(None) => {}
            // What it says is counted; the rest of the stripe decides what comes of it.
            Err(_) => return self.rebuild(info, slot, crcs, Cause::Damage, out).await,
        }
        if all_match(crcs, out) {
            return Ok(());
        }
        self.repair_blocks(info, slot, crcs, out).await
    }

    /// Reconstructs those blocks of a piece that were read and are wrong.
    async fn repair_blocks(
        &self,
        info: &SegmentInfo,
        slot: u32,
        crcs: &[u32],
        out: &mut [u8],
    ) -> Result<()> {
        let (member, _) = self.locate(Target::of(info, slot));
        for (n, (crc, block)) in crcs.iter().zip(out.chunks_exact_mut(BLOCK)).enumerate() {
            if crc32c(block) != *crc {
                self.drives.count_corrupt(member.drive, 1);
                self.rebuild_some(info, slot + u32_of(n), &[*crc], Cause::Damage, block).await?;
            }
        }
        Ok(())
    }

    /// Reconstructs a piece that could not be read.
    async fn rebuild(
        &self,
        info: &SegmentInfo,
        slot: u32,
        crcs: &[u32],
        cause: Cause,
        out: &mut [u8],
    ) -> Result<()> {
        let chunks = crcs.chunks(RECOVER_BLOCKS).zip(out.chunks_mut(RECOVER_BLOCKS * BLOCK));
        let mut slot = slot;
        for (crcs, bytes) in chunks {
            self.rebuild_some(info, slot, crcs, cause, bytes).await?;
            slot += u32_of(crcs.len());
        }
        Ok(())
    }

    async fn rebuild_some(
        &self,
        info: &SegmentInfo,
        slot: u32,
        crcs: &[u32],
        cause: Cause,
        out: &mut [u8],
    ) -> Result<()> {
        let fits = |bytes: &[u8]| all_match(crcs, bytes);
        // On the heap, so that reads that need nothing of this stay small.
        let recovered = Box::pin(self.recover(Target::of(info, slot), cause, out, &fits)).await;
        let is_damaged = match &recovered {
            Ok(()) | Err(Unrecoverable::NoneFits) => true,
            Err(Unrecoverable::TooFew(error)) => {
                !error.says_nothing_of_contents() && self.lost(info) <= info.geometry.parity()
            }
        };
        match recovered {
            Ok(()) => Ok(()),
            // Different blocks may be damaged, or unreadable, on different drives.
            Err(_) if is_damaged && crcs.len() > 1 => {
                for (n, (crc, block)) in crcs.iter().zip(out.chunks_exact_mut(BLOCK)).enumerate() {
                    let (slot, crc) = (slot + u32_of(n), std::slice::from_ref(crc));
                    let one = self.rebuild_some(info, slot, crc, cause, block);
                    Box::pin(one).await?;
                }
                Ok(())
            }
            Err(why) => {
                let lost = self.lost(info) > info.geometry.parity();
                let kind = match &why {
                    _ if lost => Kind::Failed,
                    // Whoever asks again may be given them.
                    Unrecoverable::TooFew(error) if error.says_nothing_of_contents() => Kind::Busy,
                    _ => Kind::Corrupt,
                };
                let what = format!("segment {} slot {slot} cannot be reconstructed", info.id.get());
                Err(match why {
                    Unrecoverable::TooFew(error) => Error::caused(kind, what, error),
                    Unrecoverable::NoneFits => Error::new(kind, what),
                })
            }
        }
    }
}
