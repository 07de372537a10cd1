//! Saving what can be saved of a block that has to be moved, and telling what is lost for good from
//! what only cannot be read now.

use super::{SegmentInfo, Segments};
use crate::address::BLOCK;
use crate::limits::SALVAGE_ATTEMPTS;
use reactor::join_all;

/// What became of a block that was to be read for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// It is there, or could be made of the rest of its stripe.
    Whole,
    /// Every drive of its stripe answers, and what they have does not give it: it is lost.
    Lost,
    /// It cannot be had, and drives are away that may have what is lacking.
    Unknown,
}

impl Segments {
    /// Reads the one block at `slot` for the last time: whoever moves it gives its old place up.
    pub async fn recover_block(
        &self,
        info: &SegmentInfo,
        slot: u32,
        crc: u32,
        out: &mut [u8],
    ) -> Recovered {
        // A read may fail once and not again.
        for _ in 0..SALVAGE_ATTEMPTS {
            if self.read(info, slot, &[crc], out).await.is_ok() {
                return Recovered::Whole;
            }
        }
        if self.all_answer(info).await { Recovered::Lost } else { Recovered::Unknown }
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
