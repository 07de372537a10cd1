//! Making anew what a drive has of a stripe: from the others, and from the drive itself as far as checksums say that
//! what it has is right.

use super::recover::{Cause, Target, Unrecoverable};
use super::{SegmentInfo, Segments, StripeHeader};
use crate::address::BLOCK;
use crate::drives::Trust;
use crate::error::{Error, Kind, Result};
use crate::format::member::MemberHeader;
use crate::limits::{RECOVER_BLOCKS, SALVAGE_ATTEMPTS};
use reactor::join_all;
use stdx::crc32c;
use stdx::num::{low8, u32_of, u64_of, usize32};

/// What becomes of blocks that too few drives give, although all in use answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// They may be had soon.
    Waited,
    /// They are as lost as they were, and the rest is made anew.
    Lost,
}

/// A stripe, as its header tells what is to be where.
struct Wanted<'a> {
    info: &'a SegmentInfo,
    header: &'a StripeHeader,
    /// The bytes of the header.
    first: Vec<u8>,
    unread: Unread,
}

impl<'a> Wanted<'a> {
    fn new(
        pool: [u8; 16],
        info: &'a SegmentInfo,
        header: &'a StripeHeader,
        unread: Unread,
    ) -> Self {
        let mut first = vec![0; usize32(info.header_blocks()) * BLOCK];
        header.write(pool, &mut first);
        Self { info, header, first, unread }
    }

    fn slot(&self, target: Target<'_>) -> u32 {
        let geometry = self.info.geometry;
        let unit = u32_of(target.unit) * geometry.unit_blocks();
        geometry.stripe_slot(target.stripe) + unit + target.block
    }

    /// Whether a block of data is what belongs there.
    fn fits(&self, slot: u32, block: &[u8]) -> bool {
        let Some(n) = slot.checked_sub(self.header.first_slot) else {
            let at = usize32(slot - self.info.geometry.stripe_slot(self.header.stripe)) * BLOCK;
            return *block == self.first[at..at + BLOCK];
        };
        match self.header.crcs.get(usize32(n)) {
            None => block.iter().all(|byte| *byte == 0),
            Some(crc) => crc32c(block) == *crc,
        }
    }

    fn all_fit(&self, slot: u32, bytes: &[u8]) -> bool {
        (slot..).zip(bytes.chunks_exact(BLOCK)).all(|(slot, block)| self.fits(slot, block))
    }
}

impl Segments {
    /// Makes anew what the drive of this column has of a stripe. Gives how many blocks of the stripe cannot be had from
    /// anywhere, although enough drives answer: they are as lost as they were. `None` where no header can be had, as
    /// where nothing was written. Durable after the drive's next flush.
    ///
    /// # Errors
    /// `Failed` when the drive fails, or too many of the others cannot be read now.
    pub async fn resync(
        &self,
        info: &SegmentInfo,
        stripe: u32,
        column: usize,
        unread: Unread,
    ) -> Result<Option<usize>> {
        let header = match self.read_header(info, stripe).await {
            Err(error) if unread == Unread::Waited => return Err(error),
            Err(_) => {
                self.others_answer(info, unread).await?;
                None
            }
            Ok(header) => header,
        };
        let Some(header) = header else { return Ok(None) };
        let wanted = Wanted::new(self.pool, info, &header, unread);
        let geometry = info.geometry;
        let unit = geometry.unit_of(info.id.get(), stripe, column);
        let (mut block, mut lost) = (0, 0);
        while block < geometry.unit_blocks() {
            let count = usize32(geometry.unit_blocks() - block).min(RECOVER_BLOCKS);
            let target = Target { info, stripe, unit, block };
            lost += match unit.checked_sub(geometry.data()) {
                None => self.make_data(&wanted, target, count).await?,
                Some(n) => self.make_parity(&wanted, target, count, n).await?,
            };
            block += u32_of(count);
        }
        Ok(Some(lost))
    }

    async fn make_data(
        &self,
        wanted: &Wanted<'_>,
        target: Target<'_>,
        count: usize,
    ) -> Result<usize> {
        let mut bytes = vec![0; count * BLOCK];
        let got = self.contents(wanted, target, &mut bytes).await?;
        if !got.is_there {
            self.put_resynced(target, &bytes).await?;
        }
        Ok(got.lost)
    }

    async fn make_parity(
        &self,
        wanted: &Wanted<'_>,
        target: Target<'_>,
        count: usize,
        n: usize,
    ) -> Result<usize> {
        let geometry = wanted.info.geometry;
        let mut data = vec![vec![0; count * BLOCK]; geometry.data()];
        let reads = data.iter_mut().enumerate();
        let reads = reads.map(|(unit, out)| self.contents(wanted, Target { unit, ..target }, out));
        let mut lost = 0;
        for got in join_all(reads).await {
            lost += got?.lost;
        }
        let units: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut parity = vec![vec![0; count * BLOCK]; geometry.parity()];
        let mut slices: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        raid::parity::encode(&units, &mut slices);
        if lost > 0 {
            // Parity made of what is damaged would say that it is right: that of such rows stays as it is.
            for (row, block) in parity[n].chunks_exact(BLOCK).enumerate() {
                let target = Target { block: target.block + u32_of(row), ..target };
                let at = row * BLOCK..(row + 1) * BLOCK;
                let fits = |(unit, data): (usize, &Vec<u8>)| {
                    wanted.fits(wanted.slot(Target { unit, ..target }), &data[at.clone()])
                };
                if data.iter().enumerate().all(fits) {
                    self.put_resynced(target, block).await?;
                }
            }
            return Ok(lost);
        }
        let (member, at) = self.locate(target);
        let reads = self.memory.reads.clone();
        let has = self.drives.read_trusting(Trust::Written, member.drive, at, count * BLOCK, reads);
        let is_there = has.await.is_ok_and(|has| has[..] == parity[n][..]);
        if !is_there {
            self.put_resynced(target, &parity[n]).await?;
        }
        Ok(lost)
    }

    async fn put_resynced(&self, target: Target<'_>, bytes: &[u8]) -> Result<()> {
        let (member, at) = self.locate(target);
        let mut data = self.memory.reads.alloc(bytes.len()).await;
        data.copy_from_slice(bytes);
        self.drives.write(member.drive, at, data).await
    }

    /// What blocks of a data unit are to be.
    async fn contents(
        &self,
        wanted: &Wanted<'_>,
        target: Target<'_>,
        out: &mut [u8],
    ) -> Result<Got> {
        let (member, at) = self.locate(target);
        let slot = wanted.slot(target);
        let reads = self.memory.reads.clone();
        let read = self.drives.read_trusting(Trust::Written, member.drive, at, out.len(), reads);
        if let Ok(found) = read.await {
            out.copy_from_slice(&found);
            if wanted.all_fit(slot, out) {
                return Ok(Got { is_there: true, lost: 0 });
            }
        }
        let fits = |bytes: &[u8]| wanted.all_fit(slot, bytes);
        match Box::pin(self.recover(target, Cause::Damage, out, &fits)).await {
            Ok(()) => return Ok(Got { is_there: false, lost: 0 }),
            Err(Unrecoverable::TooFew(error)) if wanted.unread == Unread::Waited => {
                return Err(not_now(target, error));
            }
            Err(_) => {}
        }
        // Different blocks may be damaged on different drives.
        let mut lost = 0;
        for (n, block) in out.chunks_exact_mut(BLOCK).enumerate() {
            let target = Target { block: target.block + u32_of(n), ..target };
            let is_had = wanted.fits(slot + u32_of(n), block)
                || self.one_block(wanted, target, block).await?;
            lost += usize::from(!is_had);
        }
        Ok(Got { is_there: false, lost })
    }

    /// One block that is not as it should be on its drive; false where nothing gives it. What is there stays then.
    async fn one_block(
        &self,
        wanted: &Wanted<'_>,
        target: Target<'_>,
        out: &mut [u8],
    ) -> Result<bool> {
        let slot = wanted.slot(target);
        let fits = |bytes: &[u8]| wanted.fits(slot, bytes);
        // A read may fail once and not again.
        for _ in 0..SALVAGE_ATTEMPTS {
            self.others_answer(target.info, wanted.unread).await?;
            match Box::pin(self.recover(target, Cause::Damage, out, &fits)).await {
                Ok(()) => return Ok(true),
                Err(Unrecoverable::TooFew(error)) if wanted.unread == Unread::Waited => {
                    return Err(not_now(target, error));
                }
                Err(_) => {}
            }
        }
        Ok(false)
    }

    /// Makes sure that the drives in use can be read: what they do not give then, they have not any more. Where that is
    /// lost, they are to be as many as it takes, and one that says that it cannot read a sector answers, too.
    async fn others_answer(&self, info: &SegmentInfo, unread: Unread) -> Result<()> {
        let online = info.members.iter().filter(|member| self.drives.is_online(member.drive));
        let is_lost = unread == Unread::Lost;
        if is_lost && online.clone().count() < info.geometry.data() {
            return Err(Error::new(Kind::Failed, "too few drives are in use"));
        }
        let headers = online.map(|member| {
            let at = self.drives.header_offset(member.drive, member.au);
            self.drives.read(member.drive, at, BLOCK, self.memory.reads.clone())
        });
        let answers = join_all(headers).await.into_iter().map(|read| read.map(drop));
        answers.filter(|answer| !(is_lost && answer.as_ref().is_err_and(is_of_medium))).collect()
    }

    /// Writes the header of a column's allocation unit anew, where it is not on the drive as it should be.
    ///
    /// # Errors
    /// `Failed` when the drive fails.
    pub async fn resync_member_header(&self, info: &SegmentInfo, column: usize) -> Result<()> {
        let member = info.members[column];
        let mut block = vec![0; BLOCK];
        MemberHeader::write(info, low8(u64_of(column)), self.pool, &mut block);
        let at = self.drives.header_offset(member.drive, member.au);
        let reads = self.memory.reads.clone();
        let has = self.drives.read_trusting(Trust::Written, member.drive, at, BLOCK, reads).await;
        if has.is_ok_and(|has| has[..] == block[..]) {
            return Ok(());
        }
        self.make_member_header(info, column).await
    }

    /// Writes the header of a column's allocation unit anew.
    ///
    /// # Errors
    /// `Failed` when the drive fails.
    pub async fn make_member_header(&self, info: &SegmentInfo, column: usize) -> Result<()> {
        let member = info.members[column];
        let mut block = self.memory.reads.alloc(BLOCK).await;
        MemberHeader::write(info, low8(u64_of(column)), self.pool, &mut block);
        let at = self.drives.header_offset(member.drive, member.au);
        self.drives.write(member.drive, at, block).await
    }
}

/// How contents were come by.
struct Got {
    /// They are on their drive.
    is_there: bool,
    /// Blocks that nothing gives.
    lost: usize,
}

/// Whether a drive answered that it cannot read something.
fn is_of_medium(error: &Error) -> bool {
    let source = error.source.as_deref().and_then(|source| source.downcast_ref::<media::Error>());
    source.is_some_and(|source| source.kind == media::Kind::Medium)
}

fn not_now(target: Target<'_>, error: Error) -> Error {
    let what = format!("stripe {} of segment {}", target.stripe, target.info.id.get());
    Error::caused(Kind::Failed, what, error)
}
