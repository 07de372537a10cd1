//! Reading drives.

use super::counters::count;
use super::{Cause, DriveSet, DriveState};
use crate::error::{Error, Kind, Result, Unasked};
use crate::limits::{PACED_BYTES, SILENT_FOR};
use media::Drive;
use reactor::buffer::{Buffer, Pool};
use reactor::{Nanos, now};
use std::sync::Arc;

/// Which drives to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    Online,
    /// Those that are being made whole too: for what can be verified.
    Written,
    /// Failed ones too: what they hold may be old, so only for what can be verified, and when
    /// nothing else is left.
    Anyone,
}

/// A read under way, of which is noted how long it took: also where nobody waits for it any more because it is late.
struct Timed<'a> {
    of: &'a DriveSet,
    drive: u16,
    begun: Nanos,
    len: usize,
    is_done: bool,
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        let span = now() - self.begun;
        let is_late = u128::from(span) > self.of.reads.patience().as_nanos();
        if self.len <= PACED_BYTES && (self.is_done || is_late) {
            self.of.note_read(self.drive, span);
        }
    }
}

impl DriveSet {
    fn usable(&self, drive: u16) -> Result<&Arc<Drive>> {
        self.drive(drive).ok_or_else(|| self.unusable(drive))
    }

    /// # Errors
    /// `Missing` when the drive cannot be used.
    pub(crate) fn check_usable(&self, drive: u16) -> Result<()> {
        self.usable(drive).map(|_| ())
    }

    /// A drive that may be read, its state being what is asked for.
    fn readable(&self, drive: u16, trust: Trust) -> Result<&Arc<Drive>> {
        let slot = self.slot(drive);
        let found = slot.drive_if(|state| match trust {
            Trust::Online => state == DriveState::Online,
            Trust::Written => state.is_written(),
            Trust::Anyone => state == DriveState::Online || !slot.health.is_hung(),
        });
        found.ok_or_else(|| {
            let is_silent = slot.drive_if(|_| slot.health.is_hung()).is_some();
            match trust {
                Trust::Anyone if is_silent => {
                    Error::caused(Kind::Missing, format!("drive {drive}"), Unasked)
                }
                _ => self.unusable(drive),
            }
        })
    }

    /// # Errors
    /// Why a drive is not asked.
    pub(crate) fn check_readable(&self, drive: u16, trust: Trust) -> Result<()> {
        self.readable(drive, trust).map(drop)
    }

    fn read_failed(&self, drive: u16, media: &Arc<Drive>, error: media::Error) -> Error {
        let is_out = self.slot(drive).drive_if(DriveState::is_written).is_none();
        match error.kind {
            media::Kind::Passing => {
                return Error::caused(Kind::Busy, format!("drive {drive}"), error);
            }
            // It is out of use for what it did before.
            kind if is_out => {
                match kind {
                    media::Kind::Gone => self.slot(drive).health.rests(SILENT_FOR),
                    media::Kind::Timeout => self.slot(drive).health.hangs(),
                    _ => {}
                }
                return Error::caused(Kind::Failed, format!("drive {drive}"), error);
            }
            media::Kind::Gone => self.fail_one(drive, media, Cause::of("a read", &error)),
            media::Kind::Timeout => {
                self.note_hang(drive);
                self.fail_if_spared(drive, media, Cause::of("a read", &error));
            }
            _ => {}
        }
        count(&self.counts(drive).read_errors, 1);
        self.note_errors(drive, 1);
        Error::caused(Kind::Failed, format!("drive {drive}"), error)
    }

    /// Reads `len` bytes into a buffer of `pool`.
    ///
    /// # Errors
    /// `Missing` when the drive cannot be used, `Failed` with what it says.
    pub async fn read(&self, drive: u16, offset: u64, len: usize, pool: Pool) -> Result<Buffer> {
        self.read_trusting(Trust::Online, drive, offset, len, pool).await
    }

    /// As [`read`](Self::read), of drives that failed too, if so told.
    pub(crate) async fn read_trusting(
        &self,
        trust: Trust,
        drive: u16,
        offset: u64,
        len: usize,
        pool: Pool,
    ) -> Result<Buffer> {
        let media = self.readable(drive, trust)?;
        let buffer = media.buffer(offset, len, &pool).await;
        self.fill_from(drive, media, offset, len, buffer).await
    }

    /// Memory of `pool` for a read, which then waits for the drive alone.
    pub(crate) async fn buffer(&self, drive: u16, at: u64, len: usize, pool: &Pool) -> Buffer {
        match self.slot(drive).drive_if(|_| true) {
            Some(media) => media.buffer(at, len, pool).await,
            None => pool.alloc(len).await,
        }
    }

    /// Reads into the buffer made for it, of a drive that is there whatever its state.
    pub(crate) async fn fill(
        &self,
        drive: u16,
        offset: u64,
        len: usize,
        buffer: Buffer,
    ) -> Result<Buffer> {
        let media = self.readable(drive, Trust::Anyone)?;
        self.fill_from(drive, media, offset, len, buffer).await
    }

    async fn fill_from(
        &self,
        drive: u16,
        media: &Arc<Drive>,
        offset: u64,
        len: usize,
        buffer: Buffer,
    ) -> Result<Buffer> {
        count(&self.counts(drive).reads, 1);
        count(&self.counts(drive).bytes_read, len);
        self.hedges.note_read();
        let mut timed = Timed { of: self, drive, begun: now(), len, is_done: false };
        let data = media.fill(offset, len, buffer).await;
        timed.is_done = data.is_ok();
        drop(timed);
        data.map_err(|error| self.read_failed(drive, media, error))
    }

    /// Reads to where the bytes are wanted, by way of a buffer of `pool` where the drive cannot do
    /// that.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn read_into(
        &self,
        drive: u16,
        offset: u64,
        out: &mut [u8],
        pool: &Pool,
    ) -> Result<()> {
        let media = self.usable(drive)?;
        if let Drive::Memory(region) = &**media {
            count(&self.counts(drive).reads, 1);
            count(&self.counts(drive).bytes_read, out.len());
            let read = region.copy_out(offset, out);
            return read.map_err(|error| self.read_failed(drive, media, error));
        }
        out.copy_from_slice(&self.read(drive, offset, out.len(), pool.clone()).await?);
        Ok(())
    }

    /// Counts what was read where it lies; false for a drive that cannot be used, or is another one than when the
    /// pool was opened.
    pub(crate) fn read_in_place(&self, drive: u16, len: usize) -> bool {
        let usable = self.drive(drive).is_some() && self.returns(drive) == 0;
        if usable {
            count(&self.counts(drive).reads, 1);
            count(&self.counts(drive).bytes_read, len);
        }
        usable
    }

    /// Reads, if that needs no waiting; tells whether it did.
    pub(crate) fn read_at_once(&self, drive: u16, offset: u64, out: &mut [u8]) -> bool {
        let done = self.drive(drive).is_some_and(|media| media.read_at_once(offset, out));
        if done {
            count(&self.counts(drive).reads, 1);
            count(&self.counts(drive).bytes_read, out.len());
        }
        done
    }
}
