//! Checking a stripe on the drives before anybody needs it, and putting right what is wrong there.

use super::recover::Target;
use super::{SegmentInfo, Segments, StripeFaults, StripeHeader};
use crate::address::BLOCK;
use crate::error::{Kind, Result};
use crate::format::member::MemberHeader;
use crate::limits::SALVAGE_ATTEMPTS;
use std::ops::AddAssign;
use stdx::num::{u32_of, u64_of, usize32};

/// What a check of a stripe found, in blocks; a unit with a part that cannot be read counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Not as they should be, on drives in use.
    pub damaged: u64,
    /// Of those, read again and right by then.
    pub repaired: u64,
    /// Blocks of data that nothing gives, although enough drives answer.
    pub lost: u64,
}

impl AddAssign for Scrubbed {
    fn add_assign(&mut self, more: Self) {
        self.damaged += more.damaged;
        self.repaired += more.repaired;
        self.lost += more.lost;
    }
}

impl Segments {
    /// Reads a whole stripe, and puts right what is wrong on drives in use. `None` when the stripe was not written in
    /// the segment's present life. The stripe must be on the drives, and its segment held. Durable after the drives'
    /// next flush.
    ///
    /// # Errors
    /// `Failed` when nothing can be said, because too many members are lost.
    pub async fn scrub(&self, info: &SegmentInfo, stripe: u32) -> Result<Option<Scrubbed>> {
        // It is put right where it is read through its stripe.
        let header_damaged = self.is_header_damaged(info, stripe).await;
        let Some((header, first)) = self.verify(info, stripe).await? else { return Ok(None) };
        // What its rows' parity says was counted with it, if it is not yet put right.
        let hidden = if header_damaged { info.header_blocks() } else { 0 };
        let mut damaged = u64::from(header_damaged);
        if self.count(info, &header, &first, hidden) > 0 {
            // A read may fail once and not again.
            let Some((_, again)) = self.verify(info, stripe).await? else { return Ok(None) };
            damaged += self.count(info, &header, &again, hidden);
        }
        if damaged == 0 {
            return Ok(Some(Scrubbed::default()));
        }
        let mut lost = 0;
        if !self.make_whole(info, &header).await? {
            // Parity is left as it is: with a drive that comes back, it may give what is lost.
            lost = self.repair_each(info, &header).await?;
        }
        // Else what is on its way would be told of as damaged still. It would never be told of as put right: that is what is
        // found right now, and what is found was written, and is flushed with the rest.
        self.repaired().await;
        let Some((_, after)) = self.verify(info, stripe).await? else { return Ok(None) };
        let is_header_left = self.is_header_damaged(info, stripe).await;
        let left = self.count(info, &header, &after, 0) + u64::from(is_header_left);
        Ok(Some(Scrubbed { damaged, repaired: damaged.saturating_sub(left), lost }))
    }

    /// Checks the headers of a segment's allocation units on drives in use, and writes those anew that are damaged. As
    /// [`scrub`](Self::scrub) otherwise.
    pub async fn scrub_headers(&self, info: &SegmentInfo) -> Scrubbed {
        let mut found = Scrubbed::default();
        let online = info.members.iter().enumerate();
        for (column, _) in online.filter(|(_, member)| self.drives.is_online(member.drive)) {
            if !self.has_member_header(info, column).await {
                found.damaged += 1;
                let is_written = self.make_member_header(info, column).await.is_ok();
                found.repaired +=
                    u64::from(is_written && self.has_member_header(info, column).await);
            }
        }
        found
    }

    async fn has_member_header(&self, info: &SegmentInfo, column: usize) -> bool {
        let member = info.members[column];
        let is_it =
            |header: MemberHeader| header.segment == *info && usize::from(header.column) == column;
        // A read may fail once and not again.
        for _ in 0..2 {
            let found = self.read_member_header(member.drive, member.au).await;
            if let Ok(Ok(header)) = found
                && is_it(header)
            {
                return true;
            }
        }
        false
    }

    /// Whether the header lies on a drive in use, and not as it should.
    async fn is_header_damaged(&self, info: &SegmentInfo, stripe: u32) -> bool {
        let len = usize32(info.header_blocks()) * BLOCK;
        let (member, at) = self.locate(Target { info, stripe, unit: 0, block: 0 });
        if !self.drives.is_online(member.drive) {
            return false;
        }
        for _ in 0..2 {
            let found = self.drives.read(member.drive, at, len, self.memory.reads.clone()).await;
            let is_it = |bytes: &[u8]| {
                let header = StripeHeader::read(bytes, self.pool, info.geometry);
                header.is_ok_and(|header| info.has_header(&header, stripe))
            };
            if found.is_ok_and(|bytes| is_it(&bytes)) {
                return false;
            }
        }
        self.read_header(info, stripe).await.is_ok_and(|header| header.is_some())
    }

    /// What is wrong on drives in use, in blocks. Rows before `hidden` have the header.
    fn count(
        &self,
        info: &SegmentInfo,
        header: &StripeHeader,
        faults: &StripeFaults,
        hidden: u32,
    ) -> u64 {
        let is_used =
            |unit: &&usize| self.drives.is_online(info.member(header.stripe, **unit).drive);
        let unreadable = faults.unreadable.iter().filter(is_used).count();
        let blocks = faults.wrong.len() + faults.not_blank.len();
        let row = |slot: &u32| info.geometry.place(*slot).block;
        let rows: Vec<u32> = faults.wrong.iter().chain(&faults.not_blank).map(row).collect();
        // A wrong block shows in its row's parity too.
        let parity = faults.parity.iter().filter(|row| **row >= hidden && !rows.contains(row));
        u64_of(unreadable + blocks + parity.count())
    }

    /// Reads each block of a stripe, which puts right those that the redundancy gives. How many it does not.
    async fn repair_each(&self, info: &SegmentInfo, header: &StripeHeader) -> Result<u64> {
        let (mut lost, mut block) = (0, vec![0; BLOCK]);
        for (n, crc) in header.crcs.iter().enumerate() {
            let slot = header.first_slot + u32_of(n);
            // A read may fail once and not again.
            for left in (0..SALVAGE_ATTEMPTS).rev() {
                match self.read(info, slot, &[*crc], &mut block).await {
                    Err(error) if error.kind == Kind::Corrupt => lost += u64::from(left == 0),
                    read => {
                        read?;
                        break;
                    }
                }
            }
        }
        Ok(lost)
    }
}
