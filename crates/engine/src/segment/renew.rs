//! Making stripes whole that count although power may have failed while they were written.

use super::recover::Target;
use super::{SegmentInfo, Segments, StripeHeader};
use crate::address::BLOCK;
use crate::canary::{self, Canary};
use crate::error::{Kind, Result};
use crate::limits::RECOVER_BLOCKS;
use stdx::num::{u32_of, usize32};

impl Segments {
    /// Reads all contents of a stripe, with what the redundancy gives back, and makes all of its units what they
    /// should be. False where some contents are not there: then nothing was changed but what could be put right.
    ///
    /// # Errors
    /// `Failed` when more members are lost than the redundancy bears.
    pub async fn make_whole(&self, info: &SegmentInfo, header: &StripeHeader) -> Result<bool> {
        let geometry = info.geometry;
        let bytes = usize32(geometry.unit_blocks()) * BLOCK;
        let (mut data, mut parity) =
            (vec![vec![0; bytes]; geometry.data()], vec![vec![0; bytes]; geometry.parity()]);
        header.write(self.pool, &mut data[0][..usize32(info.header_blocks()) * BLOCK]);
        let mut at = 0;
        while at < header.crcs.len() {
            let slot = header.first_slot + u32_of(at);
            let count = usize32(info.contiguous(slot, u32_of(header.crcs.len() - at)));
            let (place, crcs) = (geometry.place(slot), &header.crcs[at..at + count]);
            let out = &mut data[usize32(place.unit)][usize32(place.block) * BLOCK..];
            let drive = info.member(place.stripe, usize32(place.unit)).drive;
            let mended = || self.drives.counters(drive).reconstructed;
            let before = mended();
            match self.read(info, slot, crcs, &mut out[..count * BLOCK]).await {
                Err(error) if error.kind == Kind::Corrupt => return Ok(false),
                read => read?,
            }
            if canary::has(Canary::TakesDamagedForTorn) && mended() > before {
                return Ok(false);
            }
            at += count;
        }
        let units: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut slices: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        raid::parity::encode(&units, &mut slices);
        for (unit, wanted) in data.iter().chain(&parity).enumerate() {
            let pieces = wanted.chunks(RECOVER_BLOCKS * BLOCK);
            for (block, wanted) in (0..).step_by(RECOVER_BLOCKS).zip(pieces) {
                self.make(Target { info, stripe: header.stripe, unit, block }, wanted).await;
            }
        }
        Ok(true)
    }

    /// Writes a piece of a unit where it is not as it should be.
    async fn make(&self, target: Target<'_>, wanted: &[u8]) {
        let space = self.memory.workspace(2, wanted.len()).await;
        let (member, at) = self.locate(target);
        let found = self.drives.read(member.drive, at, wanted.len(), space.pool()).await;
        if !found.is_ok_and(|found| found[..] == *wanted) {
            let mut data = space.buffer().await;
            data.copy_from_slice(wanted);
            if let Some(written) = self.put_right(target, data) {
                // Whoever makes a stripe whole flushes it after. It is aborted by nobody.
                let _ = written.await;
            }
        }
    }
}
