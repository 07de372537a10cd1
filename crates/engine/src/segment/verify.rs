//! Checking stripes as they lie on the drives: every block against its checksum, all units against
//! each other. Changes nothing.

use super::recover::Target;
use super::{SegmentInfo, Segments, StripeHeader};
use crate::address::BLOCK;
use crate::error::Result;
use crate::limits::RECOVER_BLOCKS;
use reactor::buffer::Buffer;
use reactor::join_all;
use stdx::crc32c;
use stdx::num::{u32_of, usize32};

/// What is wrong with a stripe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StripeFaults {
    /// Units of which something could not be read, because of an error or because their drive
    /// cannot be used.
    pub unreadable: Vec<usize>,
    /// Slots of data blocks that are not what the header says.
    pub wrong: Vec<u32>,
    /// Unused slots that are not zero.
    pub not_blank: Vec<u32>,
    /// Blocks of the units, by number within them, whose parity does not belong to their data.
    pub parity: Vec<u32>,
}

impl StripeFaults {
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.unreadable.is_empty()
            && self.wrong.is_empty()
            && self.not_blank.is_empty()
            && self.parity.is_empty()
    }
}

impl Segments {
    /// Reads a whole stripe and tells what is wrong with it, and its header. `None` when the stripe
    /// was not written in the segment's present life.
    ///
    /// # Errors
    /// As [`read_header`](Self::read_header).
    pub async fn verify(
        &self,
        info: &SegmentInfo,
        stripe: u32,
    ) -> Result<Option<(StripeHeader, StripeFaults)>> {
        let Some(header) = self.read_header(info, stripe).await? else { return Ok(None) };
        let mut faults = StripeFaults::default();
        let mut block = 0;
        while block < info.geometry.unit_blocks() {
            let count = usize32(info.geometry.unit_blocks() - block).min(RECOVER_BLOCKS);
            let target = Target { info, stripe, unit: 0, block };
            self.verify_rows(target, count, &header, &mut faults).await;
            block += u32_of(count);
        }
        faults.unreadable.sort_unstable();
        faults.unreadable.dedup();
        faults.wrong.sort_unstable();
        faults.not_blank.sort_unstable();
        Ok(Some((header, faults)))
    }

    /// Checks `count` blocks of every unit, from the target's on.
    async fn verify_rows(
        &self,
        target: Target<'_>,
        count: usize,
        header: &StripeHeader,
        faults: &mut StripeFaults,
    ) {
        let geometry = target.info.geometry;
        let len = count * BLOCK;
        let space = self.memory.workspace(geometry.width() + geometry.parity(), len).await;
        let reads = (0..geometry.width()).map(|unit| {
            let (member, at) = self.locate(Target { unit, ..target });
            self.drives.read(member.drive, at, len, space.pool())
        });
        let mut units: Vec<Option<Buffer>> =
            join_all(reads).await.into_iter().map(Result::ok).collect();
        let absent = units.iter().enumerate().filter(|(_, unit)| unit.is_none());
        faults.unreadable.extend(absent.map(|(unit, _)| unit));
        for (unit, data) in units[..geometry.data()].iter().enumerate() {
            let first = geometry.stripe_slot(target.stripe)
                + u32_of(unit) * geometry.unit_blocks()
                + target.block;
            if let Some(data) = data {
                check_blocks(first, data, header, faults);
            }
        }
        let parity = units.split_off(geometry.data());
        let data: Vec<&[u8]> = units.iter().flatten().map(|unit| &unit[..]).collect();
        if data.len() < geometry.data() {
            return;
        }
        let mut computed = Vec::with_capacity(geometry.parity());
        for _ in 0..geometry.parity() {
            computed.push(space.buffer().await);
        }
        let mut slices: Vec<&mut [u8]> = computed.iter_mut().map(|unit| &mut unit[..]).collect();
        raid::parity::encode(&data, &mut slices);
        for row in 0..count {
            let bytes = row * BLOCK..(row + 1) * BLOCK;
            let differs = parity.iter().zip(&computed).any(|(found, computed)| {
                found.as_ref().is_some_and(|found| found[bytes.clone()] != computed[bytes.clone()])
            });
            if differs {
                faults.parity.push(target.block + u32_of(row));
            }
        }
    }
}

/// Checks blocks of a data unit, the first of which has slot `first`.
fn check_blocks(first: u32, data: &[u8], header: &StripeHeader, faults: &mut StripeFaults) {
    for (slot, block) in (first..).zip(data.chunks_exact(BLOCK)) {
        // The header itself was checked.
        let Some(n) = slot.checked_sub(header.first_slot) else { continue };
        match header.crcs.get(usize32(n)) {
            Some(crc) if crc32c(block) != *crc => faults.wrong.push(slot),
            None if block.iter().any(|b| *b != 0) => faults.not_blank.push(slot),
            _ => {}
        }
    }
}
