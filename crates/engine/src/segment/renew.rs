//! Writing parity anew, for stripes that count although power may have failed while they were written.

use super::recover::Target;
use super::verify::wrong_blocks;
use super::{SegmentInfo, Segments, StripeHeader};
use crate::address::BLOCK;
use crate::limits::{RECOVER_BLOCKS, SALVAGE_ATTEMPTS};
use reactor::buffer::Buffer;
use reactor::join_all;
use stdx::num::{u32_of, usize32};

impl Segments {
    /// Writes the parity of a stripe anew where it does not belong to the contents, as far as all of those can be
    /// read and are what they should be.
    pub async fn renew_parity(&self, info: &SegmentInfo, header: &StripeHeader) {
        let mut block = 0;
        while block < info.geometry.unit_blocks() {
            let count = usize32(info.geometry.unit_blocks() - block).min(RECOVER_BLOCKS);
            let target = Target { info, stripe: header.stripe, unit: 0, block };
            for _ in 0..SALVAGE_ATTEMPTS {
                if self.renew_rows(target, count, header).await {
                    break;
                }
            }
            block += u32_of(count);
        }
    }

    /// False where contents cannot be read, or are not what they should be.
    async fn renew_rows(&self, target: Target<'_>, count: usize, header: &StripeHeader) -> bool {
        let geometry = target.info.geometry;
        let len = count * BLOCK;
        let space = self.memory.workspace(geometry.width() + geometry.parity(), len).await;
        let read = |unit| {
            let (member, at) = self.locate(Target { unit, ..target });
            self.drives.read(member.drive, at, len, space.pool())
        };
        let units = join_all((0..geometry.data()).map(read)).await;
        let Ok(units) = units.into_iter().collect::<Result<Vec<Buffer>, _>>() else {
            return false;
        };
        if !self.are_right(target, &units, header) {
            return false;
        }
        let data: Vec<&[u8]> = units.iter().map(|unit| &unit[..]).collect();
        let computed = space.encode(geometry, &data).await;
        for (unit, computed) in (geometry.data()..).zip(computed) {
            let found = read(unit).await;
            if !found.is_ok_and(|found| found[..] == computed[..]) {
                self.put_right(Target { unit, ..target }, computed).await;
            }
        }
        true
    }

    /// Whether rows of the data units are what the header says, itself among them.
    fn are_right(&self, target: Target<'_>, units: &[Buffer], header: &StripeHeader) -> bool {
        let header_bytes = usize32(target.info.header_blocks()) * BLOCK;
        let itself = || {
            let bytes = units[0].get(..header_bytes);
            let found = bytes.map(|b| StripeHeader::read(b, self.pool, target.info.geometry));
            found.is_some_and(|found| found.is_ok_and(|found| found == *header))
        };
        let contents = units.iter().enumerate().all(|(unit, data)| {
            wrong_blocks(Target { unit, ..target }.slot(), data, header).next().is_none()
        });
        contents && (target.block > 0 || itself())
    }
}
