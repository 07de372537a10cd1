//! Writing stripes and the headers of allocation units.

use super::{SegmentInfo, Segments, Stripe, StripeHeader};
use crate::address::BLOCK;
use crate::drives::Company;
use crate::error::{Error, Kind, Result};
use crate::format::Bad;
use crate::format::member::MemberHeader;
use reactor::join_all;
use stdx::num::u32_of;

/// What became of a segment's members: as many losses as there is parity are borne.
fn judge(info: &SegmentInfo, outcomes: impl Iterator<Item = Result<()>>) -> Result<()> {
    let mut lost = 0;
    let mut first = None;
    for error in outcomes.filter_map(Result::err) {
        // Without space behind it a drive is whole, and what is asked of it may succeed later. So it is where the
        // system was short of something.
        if error.may_pass() {
            return Err(error);
        }
        lost += 1;
        first = first.or(Some(error));
    }
    match first {
        Some(error) if lost > info.geometry.parity() => {
            let what = format!("segment {}: {lost} members lost", info.id.get());
            Err(Error::caused(Kind::Failed, what, error))
        }
        _ => Ok(()),
    }
}

impl Segments {
    /// Writes a stripe, all units in parallel, and gives back what is in it. Waits for space where there
    /// is none behind a drive. It is durable after the
    /// next [`flush`](Self::flush).
    ///
    /// # Errors
    /// `Failed` when more members are lost than the redundancy bears, `Full` when there is no space
    /// behind a drive and nobody waits for it any more. The stripe then does not count, and its blocks
    /// must be written elsewhere.
    pub async fn write(&self, stripe: Stripe) -> Result<StripeHeader> {
        let Stripe { info, header, units, permit } = stripe;
        assert!(info.has_header(&header, header.stripe), "a stripe goes where its header says");
        let whole = u64::from(info.geometry.unit_blocks()) * stdx::num::u64_of(BLOCK);
        let is_whole = |unit: &reactor::buffer::Buffer| stdx::num::u64_of(unit.len()) == whole;
        assert!(units.len() == info.members.len() && units.iter().all(is_whole), "a unit a member");
        let first = info.geometry.member_block(header.stripe, 0);
        let end = first + info.geometry.unit_blocks();
        assert!(end <= self.drives.au_blocks(), "a stripe stays in its allocation units");
        let company = Company::new(info.geometry.data());
        let writes = units.into_iter().enumerate().map(|(unit, data)| {
            let member = info.member(header.stripe, unit);
            let at = self.drives.offset(member.drive, member.au, first);
            self.drives.write_when_space(member.drive, at, data, &self.space_wait, &company)
        });
        let outcomes = join_all(writes).await;
        drop(permit);
        judge(&info, outcomes.into_iter())?;
        Ok(header)
    }

    /// Writes the headers of a segment's allocation units: once, when the segment is opened. They
    /// tell what is on a drive; opening a pool does not depend on them.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_member_headers(&self, info: &SegmentInfo) -> Result<()> {
        let company = &Company::new(info.geometry.data());
        let writes = MemberHeader::columns(info).map(|(column, member)| async move {
            let mut block = self.memory.reads.alloc(BLOCK).await;
            MemberHeader::write(info, column, self.pool, &mut block);
            let at = self.drives.header_offset(member.drive, member.au);
            let (drives, space_wait) = (&self.drives, &self.space_wait);
            drives.write_when_space(member.drive, at, block, space_wait, company).await
        });
        judge(info, join_all(writes).await.into_iter())
    }

    /// What an allocation unit says of itself.
    ///
    /// # Errors
    /// The outer one when the drive cannot be read, the inner one when there is no valid header.
    pub async fn read_member_header(
        &self,
        drive: u16,
        au: u32,
    ) -> Result<std::result::Result<MemberHeader, Bad>> {
        let at = self.drives.header_offset(drive, au);
        let block = self.drives.read(drive, at, BLOCK, self.memory.reads.clone()).await?;
        Ok(MemberHeader::read(&block, self.pool))
    }

    /// Makes the stripes written to these segments durable.
    ///
    /// # Errors
    /// `Failed` when one of the segments has lost more members than the redundancy bears: what was
    /// written to it does not count.
    pub async fn flush(&self, segments: &[&SegmentInfo]) -> Result<()> {
        let mut drives: Vec<u16> =
            segments.iter().flat_map(|info| info.members.iter().map(|m| m.drive)).collect();
        drives.sort_unstable();
        drives.dedup();
        self.drives.flush(drives).await;
        for info in segments {
            let lost = self.lost(info);
            if lost > info.geometry.parity() {
                let what = format!("segment {}: {lost} members lost", info.id.get());
                return Err(Error::new(Kind::Failed, what));
            }
        }
        Ok(())
    }

    /// What one stripe costs on the drives, in bytes, its parity included.
    #[must_use]
    pub fn stripe_bytes(info: &SegmentInfo) -> u64 {
        let units = u64::from(u32_of(info.geometry.width()));
        units * u64::from(info.geometry.unit_blocks()) * stdx::num::u64_of(BLOCK)
    }
}
