//! Writing to drives, and flushing them: with patience where there is no space behind one, or it keeps others waiting.

use super::counters::count;
use super::{Cause, Company, DriveSet, SpaceWait};
use crate::canary::{self, Canary, Step};
use crate::error::{Error, Kind, Result};
use crate::limits::NO_SPACE_PAUSE;
use media::Refused;
use reactor::buffer::Buffer;
use reactor::{join_all, now};

/// Whether an error says nothing of the drive.
const fn is_passing(kind: media::Kind) -> bool {
    matches!(kind, media::Kind::Full | media::Kind::Passing)
}

impl DriveSet {
    /// Writes. The first failure takes the drive out of use, save that a lack of space behind it is
    /// none of its own, nor is what passes. One that is being made whole is waited for in no case.
    ///
    /// # Errors
    /// `Missing` when the drive cannot be used, `Full` when there is no space behind it, `Busy` when the system
    /// could not do it just now, `Failed` with what it says.
    pub async fn write(&self, drive: u16, offset: u64, data: Buffer) -> Result<()> {
        self.write_or_return(drive, offset, data).await.map_err(|(error, _)| error)
    }

    /// As [`write`](Self::write), but tries again and again where there is no space behind the drive, or the
    /// system is short of something: what the drive has is whole, and space may come back. A drive that keeps
    /// its company waiting is taken out of use.
    ///
    /// # Errors
    /// As [`write`](Self::write); `Full` and `Busy` once nobody has the patience any more.
    pub(crate) async fn write_when_space(
        &self,
        drive: u16,
        offset: u64,
        mut data: Buffer,
        space_wait: &SpaceWait,
        company: &Company,
    ) -> Result<()> {
        let mut waiting = None;
        loop {
            let tried = now();
            let write = async {
                loop {
                    match self.write_or_return(drive, offset, data).await {
                        Err((error, Some(back)))
                            if error.kind == Kind::Busy && !space_wait.has_ended() =>
                        {
                            data = back;
                            reactor::sleep(NO_SPACE_PAUSE).await;
                        }
                        done => return done,
                    }
                }
            };
            let Some(written) = self.in_company(drive, company, write).await else {
                return Err(Error::new(Kind::Failed, format!("drive {drive} does not answer")));
            };
            match written {
                Err((error, Some(back))) if error.kind == Kind::Full && !space_wait.has_ended() => {
                    waiting.get_or_insert_with(|| space_wait.wait());
                    space_wait.refused(tried);
                    data = back;
                    reactor::sleep(NO_SPACE_PAUSE).await;
                }
                done => return done.map_err(|(error, _)| error),
            }
        }
    }

    async fn write_or_return(
        &self,
        drive: u16,
        offset: u64,
        data: Buffer,
    ) -> std::result::Result<(), (Error, Option<Buffer>)> {
        if self.read_only {
            let error = Error::new(Kind::Invalid, format!("drive {drive} is only to be read"));
            return Err((error, None));
        }
        let Some(media) = self.written(drive) else { return Err((self.unusable(drive), None)) };
        let (len, begun) = (data.len(), now());
        match media.write_or_return(offset, data, false).await {
            Ok(()) => {
                self.note_write(drive, now() - begun);
                count(&self.counts(drive).writes, 1);
                count(&self.counts(drive).bytes_written, len);
                Ok(())
            }
            Err(refused)
                if is_passing(refused.error.kind)
                    && self.is_online(drive)
                    && !canary::has(Canary::CondemnsPassing) =>
            {
                let Refused { error, data } = refused;
                let kind = if error.kind == media::Kind::Full { Kind::Full } else { Kind::Busy };
                Err((Error::caused(kind, format!("drive {drive}"), error), data))
            }
            Err(refused) => {
                count(&self.counts(drive).write_errors, 1);
                if refused.error.kind == media::Kind::Timeout {
                    self.note_hang(drive);
                }
                self.fail_one(drive, media, Cause::of("a write", &refused.error));
                let what = format!("drive {drive}");
                Err((Error::caused(Kind::Failed, what, refused.error), None))
            }
        }
    }

    /// Makes all completed writes of these drives durable. One that fails is out of use after: who
    /// relies on it looks whether enough are left.
    pub async fn flush(&self, drives: impl IntoIterator<Item = u16>) {
        // Those that are being made whole, too: what is on its way when they are is relied on once it is flushed.
        let only_online = canary::skips(Step::RejoinFlushesToo);
        let usable = |&drive: &u16| {
            self.written(drive).is_some_and(|d| d.has_volatile_cache())
                && (!only_online || self.is_online(drive))
        };
        let drives: Vec<u16> = drives.into_iter().filter(usable).collect();
        let company = Company::new(drives.len().saturating_sub(self.shared.bears).max(1));
        join_all(drives.iter().map(|&drive| self.flush_one(drive, &company))).await;
    }

    async fn flush_one(&self, drive: u16, company: &Company) {
        let Some(media) = self.written(drive) else { return };
        let flush = async {
            loop {
                match media.flush().await {
                    Err(error) if error.kind == media::Kind::Passing && self.is_online(drive) => {
                        reactor::sleep(NO_SPACE_PAUSE).await;
                    }
                    done => return done,
                }
            }
        };
        let why = match self.in_company(drive, company, flush).await {
            Some(Ok(())) => return,
            Some(Err(error)) => Cause::of("a flush", &error),
            None => Cause::because("it did not answer a flush in time"),
        };
        count(&self.counts(drive).write_errors, 1);
        self.fail_one(drive, media, why);
    }
}
