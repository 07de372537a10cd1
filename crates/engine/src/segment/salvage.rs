//! Saving what can be saved of a block that has to be moved, and telling what is lost for good from
//! what only cannot be read now.

use super::recover::Target;
use super::{SegmentInfo, Segments};
use crate::address::{BLOCK, Location};
use crate::format::lost::Lost;
use crate::limits::SALVAGE_ATTEMPTS;
use reactor::join_all;

/// What became of a block that was to be read for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Salvaged {
    /// It is there, or could be made of the rest of its stripe.
    Whole,
    /// Every drive of its stripe answers, and what they have does not give it: it is lost. What
    /// stands for a lost block is in its place.
    Lost,
    /// As that, and it was known before.
    KnownLost,
    /// It cannot be had, and drives are away that may have what is lacking.
    Unknown,
}

impl Segments {
    /// Reads the one block at `slot` for the last time: whoever moves it gives its old place up.
    pub async fn salvage(
        &self,
        info: &SegmentInfo,
        slot: u32,
        crc: u32,
        out: &mut [u8],
    ) -> Salvaged {
        // A read may fail once and not again.
        for _ in 0..SALVAGE_ATTEMPTS {
            if self.read(info, slot, &[crc], out).await.is_ok() {
                return Salvaged::Whole;
            }
        }
        if !self.all_answer(info).await {
            return Salvaged::Unknown;
        }
        if let Some(lost) = self.known_lost(info, slot, crc).await {
            // Where it was lost stays said.
            lost.write(self.pool, out);
            return Salvaged::KnownLost;
        }
        Lost { from: Location::new(info.id, slot), contents: crc }.write(self.pool, out);
        Salvaged::Lost
    }

    /// What stands for contents of this checksum that are known to be lost, if that lies at `slot`.
    pub async fn known_lost(&self, info: &SegmentInfo, slot: u32, crc: u32) -> Option<Lost> {
        let (member, at) = self.locate(Target::of(info, slot));
        let block = self.drives.read(member.drive, at, BLOCK, self.memory.reads.clone()).await;
        Lost::read(&block.ok()?, self.pool).ok().filter(|lost| lost.contents == crc)
    }

    /// Whether each member's drive is in use and can be read: what it does not give then, it has
    /// not any more.
    pub async fn all_answer(&self, info: &SegmentInfo) -> bool {
        let headers = info.members.iter().map(|member| {
            let at = self.drives.header_offset(member.drive, member.au);
            self.drives.read(member.drive, at, BLOCK, self.memory.reads.clone())
        });
        join_all(headers).await.iter().all(Result::is_ok)
    }
}
