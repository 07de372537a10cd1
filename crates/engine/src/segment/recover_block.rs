//! Saving what can be saved of a block that has to be moved, and telling what is lost for good from
//! what only cannot be read now.

use super::{SegmentInfo, Segments};
use crate::address::BLOCK;
use crate::error::Kind;
use crate::limits::SALVAGE_ATTEMPTS;
use reactor::join_all;

/// What became of a block that was to be read for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// It is there, or could be made of the rest of its stripe.
    Whole,
    /// Every drive of its stripe answered each time, and what they have does not give it: it is lost.
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
        let mut says_contents = true;
        // A read may fail once and not again.
        for _ in 0..SALVAGE_ATTEMPTS {
            match self.read(info, slot, &[crc], out).await {
                Ok(()) => return Recovered::Whole,
                // What passes says nothing of what is there, though it has passed by the time that drives are asked.
                Err(error) => says_contents &= error.kind == Kind::Corrupt,
            }
        }
        if says_contents && self.all_answer(info).await {
            Recovered::Lost
        } else {
            Recovered::Unknown
        }
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
