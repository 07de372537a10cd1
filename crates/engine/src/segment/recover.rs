//! Reconstructing blocks from the rest of their stripe.
//!
//! Whoever asks can tell right contents from wrong (by checksums), which says more than parity alone
//! could: when what comes out is wrong although enough units could be read, another of them must be
//! wrong too, and each is suspected in turn.

use super::{Member, SegmentInfo, Segments};
use crate::address::BLOCK;
use crate::drives::Trust;
use crate::error::{Error, Kind, Result};
use raid::parity::reconstruct;
use reactor::buffer::Buffer;
use reactor::{Elapsed, Task, timeout};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use stdx::num::usize32;

use super::memory::{Repair, Workspace};

/// Blocks of a unit of a stripe.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) info: &'a SegmentInfo,
    pub(super) stripe: u32,
    pub(super) unit: usize,
    /// The first one.
    pub(super) block: u32,
}

impl<'a> Target<'a> {
    pub(super) fn of(info: &'a SegmentInfo, slot: u32) -> Self {
        let place = info.geometry.place(slot);
        Self { info, stripe: place.stripe, unit: usize32(place.unit), block: place.block }
    }
}

/// Why blocks are made of the rest of their stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// What their drive gives is wrong, or it gives nothing.
    Damage,
    /// It is only late: what it has is not wrong.
    Late,
}

/// Why blocks cannot be reconstructed.
#[derive(Debug)]
pub(super) enum Unrecoverable {
    /// Too few units of the stripe can be read.
    TooFew(Error),
    /// Nothing that can be made of them is what was asked for.
    NoneFits,
}

/// The units of a stripe, as far as they were read.
struct Gathered {
    units: Vec<Option<Buffer>>,
    /// Not read yet.
    spare: Vec<usize>,
}

/// Which of two reasons tells more of whether blocks are lost: that what one drive keeps is not known says that they may not be.
fn telling(first: Option<Error>, other: Error) -> Error {
    match first {
        Some(first) if first.says_nothing_of_contents() || !other.says_nothing_of_contents() => {
            first
        }
        _ => other,
    }
}

fn no_redundancy() -> Error {
    Error::new(Kind::Failed, "there is no redundancy")
}

impl Segments {
    /// Where blocks lie: the member and the offset on its drive in bytes.
    pub(super) fn locate(&self, target: Target<'_>) -> (Member, u64) {
        let Target { info, stripe, unit, block } = target;
        let member = info.member(stripe, unit);
        let block = info.geometry.member_block(stripe, block);
        (member, self.drives.offset(member.drive, member.au, block))
    }

    /// Fills `out` with what the blocks should be, as told by `fits`, and writes it back where their
    /// drive can be used, unless it is only late.
    pub(super) async fn recover(
        &self,
        target: Target<'_>,
        cause: Cause,
        out: &mut [u8],
        fits: &dyn Fn(&[u8]) -> bool,
    ) -> std::result::Result<(), Unrecoverable> {
        let width = target.info.geometry.width();
        // One for each unit, and one to keep a suspect's own contents aside.
        let space = self.memory.workspace(width + 1, out.len()).await;
        let mut gathered = match self.gather(target, &space, out.len(), Trust::Online).await {
            Err(Unrecoverable::TooFew(mut error)) => {
                // Drives that failed may still hold what is asked for, and `fits` tells whether.
                let (member, at) = self.locate(target);
                let pool = space.pool();
                let direct =
                    self.drives.read_trusting(Trust::Anyone, member.drive, at, out.len(), pool);
                match direct.await {
                    Ok(data) if fits(&data) => {
                        out.copy_from_slice(&data);
                        return Ok(());
                    }
                    Ok(_) => {}
                    Err(own) => error = telling(Some(error), own),
                }
                let all = self.gather(target, &space, out.len(), Trust::Anyone).await;
                all.map_err(|_| Unrecoverable::TooFew(error))?
            }
            gathered => gathered?,
        };
        let mut units = Vec::with_capacity(width);
        let mut absent = Vec::with_capacity(width);
        for (n, unit) in gathered.units.iter_mut().enumerate() {
            units.push(match unit.take() {
                Some(data) => data,
                None => {
                    absent.push(n);
                    space.buffer().await
                }
            });
        }
        solve(target, &mut units, &absent);
        let mut wrong = None;
        if !fits(&units[target.unit]) {
            let spare = &gathered.spare;
            wrong = Some(self.suspect(target, &space, &mut units, absent, spare, fits).await?);
        }
        out.copy_from_slice(&units[target.unit]);
        for (unit, data) in units.into_iter().enumerate() {
            let drive = target.info.member(target.stripe, unit).drive;
            let is_wrong = Some(unit) == wrong
                || unit == target.unit && cause == Cause::Damage && !self.drives.is_avoided(drive);
            if is_wrong && let Some(written) = self.put_right(Target { unit, ..target }, data) {
                // It is aborted by nobody, and goes on without us where its drive does not answer.
                let _ = timeout(self.drives.hedge(), written).await;
            }
        }
        Ok(())
    }

    /// Refuses to read other units where too few drives may be read: those would be asked in vain by whoever asks again and
    /// again.
    fn check_enough(
        &self,
        target: Target<'_>,
        trust: Trust,
    ) -> std::result::Result<(), Unrecoverable> {
        let geometry = target.info.geometry;
        let (mut enough, mut absent) = (0, None);
        for unit in (0..geometry.width()).filter(|&unit| unit != target.unit) {
            let drive = target.info.member(target.stripe, unit).drive;
            match self.drives.check_readable(drive, trust) {
                Ok(()) => enough += 1,
                Err(error) => absent = Some(telling(absent, error)),
            }
        }
        if enough >= geometry.data() {
            return Ok(());
        }
        Err(Unrecoverable::TooFew(absent.unwrap_or_else(no_redundancy)))
    }

    /// Reads as many other units as it takes, data and P first. Those that are slow are not waited for while
    /// there are others.
    async fn gather(
        &self,
        target: Target<'_>,
        space: &Workspace,
        len: usize,
        trust: Trust,
    ) -> std::result::Result<Gathered, Unrecoverable> {
        self.check_enough(target, trust)?;
        let geometry = target.info.geometry;
        let mut units: Vec<Option<Buffer>> = (0..geometry.width()).map(|_| None).collect();
        let drive = |unit: usize| target.info.member(target.stripe, unit).drive;
        let mut spare: VecDeque<usize> =
            (0..geometry.width()).filter(|&u| u != target.unit).collect();
        // Those that are slow, and then those that failed, come last.
        spare.make_contiguous().sort_by_key(|&unit| {
            (!self.drives.is_online(drive(unit)), self.drives.is_avoided(drive(unit)))
        });
        let mut reads = Vec::new();
        let (mut missing, mut in_time) = (geometry.data(), 0);
        let (mut first_error, mut was_late) = (None, false);
        while missing > 0 {
            while in_time < missing
                && let Some(unit) = spare.pop_front()
            {
                reads.push((
                    unit,
                    Box::pin(self.read_unit(Target { unit, ..target }, space, len, trust)),
                ));
                in_time += 1;
            }
            if reads.is_empty() {
                let error = first_error.unwrap_or_else(no_redundancy);
                return Err(Unrecoverable::TooFew(error));
            }
            let (late, hedge) = (self.drives.patience(), self.drives.hedge());
            let patience = match spare.is_empty() {
                true => Duration::MAX,
                false if was_late => hedge.saturating_sub(late),
                false => late,
            };
            match timeout(patience, first_of(&mut reads)).await {
                Ok((unit, read)) => {
                    in_time = in_time.saturating_sub(1);
                    match read {
                        Ok(data) => {
                            units[unit] = Some(data);
                            missing -= 1;
                        }
                        Err(error) => first_error = Some(telling(first_error, error)),
                    }
                }
                // What is only late is waited for where too much was asked of others already.
                Err(Elapsed) if !was_late && !self.drives.may_hedge() => was_late = true,
                Err(Elapsed) => {
                    if was_late {
                        reads.iter().for_each(|(unit, _)| self.drives.note_slow(drive(*unit)));
                    }
                    (in_time, was_late) = (0, false);
                }
            }
        }
        // Those that were not waited for can still be read, should one of the others be wrong.
        spare.extend(reads.iter().map(|(unit, _)| *unit));
        Ok(Gathered { units, spare: spare.into() })
    }

    /// The same blocks of another unit of the stripe.
    async fn read_unit(
        &self,
        target: Target<'_>,
        space: &Workspace,
        len: usize,
        trust: Trust,
    ) -> Result<Buffer> {
        let (member, at) = self.locate(target);
        self.drives.read_trusting(trust, member.drive, at, len, space.pool()).await
    }

    /// Enough units were read, and what they make is wrong: one of them is. With a parity unit to
    /// spare, takes each in turn for lost. Gives the one that was, which is now right too.
    async fn suspect(
        &self,
        target: Target<'_>,
        space: &Workspace,
        units: &mut [Buffer],
        mut absent: Vec<usize>,
        spare: &[usize],
        fits: &dyn Fn(&[u8]) -> bool,
    ) -> std::result::Result<usize, Unrecoverable> {
        assert!(absent.contains(&target.unit), "what is sought is made of the others");
        // Why one could not be read that may tell more later.
        let mut silent = None;
        for &unit in spare {
            let (member, at) = self.locate(Target { unit, ..target });
            let pool = space.pool();
            let out = &mut units[unit];
            match self.drives.read_into(member.drive, at, out, &pool).await {
                Ok(()) => absent.retain(|&a| a != unit),
                Err(error) if error.says_nothing_of_contents() => silent = Some(error),
                Err(_) => {}
            }
        }
        let none_fits = |silent: Option<Error>| match silent {
            Some(error) => Unrecoverable::TooFew(error),
            None => Unrecoverable::NoneFits,
        };
        if absent.len() >= target.info.geometry.parity() {
            return Err(none_fits(silent));
        }
        let mut aside = space.buffer().await;
        for suspect in (0..units.len()).filter(|u| *u != target.unit && !spare.contains(u)) {
            aside.copy_from_slice(&units[suspect]);
            solve(target, units, &[target.unit, suspect]);
            if fits(&units[target.unit]) {
                let (member, _) = self.locate(Target { unit: suspect, ..target });
                self.drives.count_corrupt(member.drive, aside.len() / BLOCK);
                return Ok(suspect);
            }
            units[suspect].copy_from_slice(&aside);
        }
        Err(none_fits(silent))
    }

    /// Writes reconstructed blocks back, in a task of its own: whoever reads may go at any moment,
    /// and a write under way must not be forgotten. That they cannot be written is the drive's
    /// failure, not the reader's. `None` where the drive cannot be used now.
    pub(super) fn put_right(&self, target: Target<'_>, data: Buffer) -> Option<Task<()>> {
        let (member, at) = self.locate(target);
        let blocks = data.len() / BLOCK;
        self.drives.count_reconstructed(member.drive, blocks);
        if !self.drives.is_online(member.drive) {
            return None;
        }
        let (drives, repair) = (Arc::clone(&self.drives), Repair::new(&self.memory));
        Some(reactor::spawn(async move {
            if drives.write(member.drive, at, data).await.is_ok() {
                drives.count_repaired(member.drive, blocks);
            }
            drop(repair);
        }))
    }
}

/// Waits for the first of some reads, and takes it from them.
async fn first_of<F: Future>(reads: &mut Vec<(usize, Pin<Box<F>>)>) -> (usize, F::Output) {
    poll_fn(|cx| {
        for n in 0..reads.len() {
            if let Poll::Ready(value) = reads[n].1.as_mut().poll(cx) {
                return Poll::Ready((reads.swap_remove(n).0, value));
            }
        }
        Poll::Pending
    })
    .await
}

/// Computes the units of `lost` that are needed from the others.
fn solve(target: Target<'_>, units: &mut [Buffer], lost: &[usize]) {
    let (data, parity) = (target.info.geometry.data(), target.info.geometry.parity());
    let is_borne = (1..=parity).contains(&lost.len()) && lost.contains(&target.unit);
    assert!(is_borne, "what is sought is lost, and no more than parity gives back");
    let mut slices: Vec<&mut [u8]> = units.iter_mut().map(|unit| &mut unit[..]).collect();
    match lost {
        // Without Q in the picture, the rest is what one parity unit protects.
        [one, q] if *q == data + 1 => reconstruct(&mut slices[..=data], data, &[*one]),
        _ => reconstruct(&mut slices, data, lost),
    }
}
