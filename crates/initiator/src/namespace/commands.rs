//! The commands of a namespace, as entries of a submission queue.

use nvme::count::ZeroBased8;
use nvme::nvm::{
    Compare, Copy, CopyDescriptor, CopyFormat, CopyRange0, DatasetManagement, DsmRange, LbaRange,
    Read, Verify, Write, WriteZeroes,
};
use nvme::opcode::io;
use nvme::sqe::Sqe;
use stdx::Lba;
use stdx::num::{low16, usize32};
use zerocopy::IntoBytes;

use super::life::Effect;
use super::{Buffer, Deallocate, Fua, Namespace};
use crate::Error;
use crate::limits::ZEROES_BYTES;
use crate::queue::Data;

impl Namespace {
    /// Reads `blocks` from `lba` on into the start of `buffer`.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub async fn read(&self, lba: u64, blocks: u32, buffer: &mut Buffer) -> Result<(), Error> {
        let (range, bytes) = self.transfer(lba, blocks, buffer)?;
        let command = Read { range, fua: false, limited_retry: false };
        let data = buffer.receive(bytes);
        self.move_data(
            "Read",
            Effect::None,
            command.to_sqe(0, self.inner.life.nsid()),
            data,
            buffer,
        )
        .await
    }

    /// Reads `blocks` from `lba` on, and keeps nothing of them: for who measures.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub async fn read_past(&self, lba: u64, blocks: u32) -> Result<(), Error> {
        let (range, length) = self.transferable(lba, blocks)?;
        let command = Read { range, fua: false, limited_retry: false };
        let sqe = command.to_sqe(0, self.inner.life.nsid());
        self.order("Read", Effect::None, sqe, Data::Discard { length }).await
    }

    /// Writes `blocks` from `lba` on from the start of `buffer`, which is as it was afterwards: by the direct write window
    /// that it was [given](Namespace::with_window), if that takes it, else by a command.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub async fn write(
        &self,
        lba: u64,
        blocks: u32,
        buffer: &mut Buffer,
        fua: Fua,
    ) -> Result<(), Error> {
        let (range, bytes) = self.transfer(lba, blocks, buffer)?;
        if self.write_directly(lba, &buffer[..usize32(bytes)]) {
            return Ok(());
        }
        let fua = fua == Fua::Yes;
        let command = Write { range, fua, limited_retry: false, fused: false };
        let data = buffer.send(bytes);
        let sqe = command.to_sqe(0, self.inner.life.nsid());
        self.move_data("Write", Effect::Same, sqe, data, buffer).await
    }

    /// Compares `blocks` from `lba` on with the start of `buffer`. A difference is an [`Error::Command`] of
    /// status Compare Failure.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub async fn compare(&self, lba: u64, blocks: u32, buffer: &mut Buffer) -> Result<(), Error> {
        let (range, bytes) = self.transfer(lba, blocks, buffer)?;
        let command = Compare { range, fua: false, limited_retry: false, fused: false };
        let data = buffer.send(bytes);
        let sqe = command.to_sqe(0, self.inner.life.nsid());
        self.move_data("Compare", Effect::None, sqe, data, buffer).await
    }

    /// Makes every write that has completed durable.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub async fn flush(&self) -> Result<(), Error> {
        let sqe = Sqe::new(io::FLUSH, 0, self.inner.life.nsid());
        self.order("Flush", Effect::None, sqe, Data::None).await
    }

    /// Writes zeroes over `blocks` from `lba` on, at most 65,536: by several commands, one after the other, where that
    /// is more than [`ZEROES_BYTES`](crate::limits::ZEROES_BYTES).
    ///
    /// # Errors
    /// See [`Namespace`]. What was before the place that failed may be zero by then.
    pub async fn write_zeroes(
        &self,
        lba: u64,
        blocks: u32,
        deallocate: Deallocate,
        fua: Fua,
    ) -> Result<(), Error> {
        self.range(lba, blocks)?;
        let step = (ZEROES_BYTES / self.geometry().block_bytes).max(1);
        let mut done = 0;
        while done < blocks {
            let count = (blocks - done).min(step);
            let command = WriteZeroes {
                range: self.range(lba + u64::from(done), count)?,
                fua: fua == Fua::Yes,
                limited_retry: false,
                deallocate: deallocate == Deallocate::Yes,
            };
            let sqe = command.to_sqe(0, self.inner.life.nsid());
            self.order("Write Zeroes", Effect::Same, sqe, Data::None).await?;
            done += count;
        }
        Ok(())
    }

    /// Reads `blocks` from `lba` on, at most 65,536, at the controller's end only: an error if they cannot be.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub async fn verify(&self, lba: u64, blocks: u32) -> Result<(), Error> {
        let range = self.range(lba, blocks)?;
        let command = Verify { range, fua: false, limited_retry: false };
        self.order("Verify", Effect::None, command.to_sqe(0, self.inner.life.nsid()), Data::None)
            .await
    }

    /// Tells the controller that the blocks of `ranges` (first block and count, 1 to 256 ranges) are not needed.
    /// What they read as afterwards is up to [`Supports::deallocated_reads_zeroes`].
    ///
    /// # Errors
    /// See [`Namespace`].
    pub async fn deallocate(&self, ranges: &[(u64, u32)]) -> Result<(), Error> {
        let count = self.ranges_of(ranges)?;
        let list: Vec<_> = ranges
            .iter()
            .map(|&(lba, blocks)| DsmRange {
                cattr: 0.into(),
                blocks: blocks.into(),
                slba: lba.into(),
            })
            .collect();
        let command = DatasetManagement {
            ranges: count,
            integral_read: false,
            integral_write: false,
            deallocate: true,
        };
        let sqe = command.to_sqe(0, self.inner.life.nsid());
        self.order("Dataset Management", Effect::Same, sqe, Data::copy_of(list.as_bytes())).await
    }

    /// Copies the blocks of `sources` (first block and count), one behind the other, to `destination` on, within
    /// [`Geometry::copy`]'s limits.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub async fn copy(&self, sources: &[(u64, u32)], destination: u64) -> Result<(), Error> {
        let count = self.ranges_of(sources)?;
        let total = sources.iter().map(|&(_, blocks)| u64::from(blocks)).sum::<u64>();
        let fits = destination.checked_add(total).is_some_and(|end| end <= self.geometry().blocks);
        if !fits || sources.iter().any(|&(_, blocks)| blocks > 1 << 16) {
            return Err(Error::Unsupported("a copy goes beyond the namespace".to_owned()));
        }
        let entry = |&(lba, blocks): &(u64, u32)| CopyRange0 {
            head: CopyDescriptor {
                slba: lba.into(),
                nlb: low16(u64::from(blocks - 1)).into(),
                ..CopyDescriptor::default()
            },
            ..CopyRange0::default()
        };
        let list: Vec<_> = sources.iter().map(entry).collect();
        let command = Copy {
            destination: Lba::new(destination),
            ranges: count,
            format: CopyFormat::Format0,
            fua: false,
            limited_retry: false,
        };
        let sqe = command.to_sqe(0, self.inner.life.nsid());
        let effect = copy_effect(sources, destination, total);
        self.order("Copy", effect, sqe, Data::copy_of(list.as_bytes())).await
    }

    /// A range of the namespace that one command can name.
    fn range(&self, lba: u64, blocks: u32) -> Result<LbaRange, Error> {
        let range = LbaRange::new(Lba::new(lba), blocks).filter(|range| {
            range.to_wire().is_some() && range.check(self.geometry().blocks).is_ok()
        });
        range.ok_or_else(|| {
            Error::Unsupported(format!(
                "{blocks} blocks from block {lba} are none that a command can name"
            ))
        })
    }

    /// A range that one command can move, and its length in bytes.
    fn transferable(&self, lba: u64, blocks: u32) -> Result<(LbaRange, u32), Error> {
        let range = self.range(lba, blocks)?;
        let geometry = self.geometry();
        let bytes = range.bytes(geometry.block_bytes);
        if bytes > u64::from(geometry.transfer_max_bytes) {
            return Err(Error::Unsupported(format!(
                "{bytes} bytes exceed the largest transfer of {}",
                geometry.transfer_max_bytes
            )));
        }
        Ok((range, stdx::num::low32(bytes)))
    }

    /// The same, where `buffer` has room for it.
    fn transfer(&self, lba: u64, blocks: u32, buffer: &Buffer) -> Result<(LbaRange, u32), Error> {
        let (range, bytes) = self.transferable(lba, blocks)?;
        if buffer.len() < usize32(bytes) {
            let has = buffer.len();
            return Err(Error::Unsupported(format!("a buffer of {has} bytes is too small")));
        }
        Ok((range, bytes))
    }

    /// The number of a command's ranges, all of which lie in the namespace.
    fn ranges_of(&self, ranges: &[(u64, u32)]) -> Result<ZeroBased8, Error> {
        for &(lba, blocks) in ranges {
            let range = LbaRange::new(Lba::new(lba), blocks);
            if range.is_none_or(|range| range.check(self.geometry().blocks).is_err()) {
                return Err(Error::Unsupported(format!(
                    "{blocks} blocks from block {lba} are not in the namespace"
                )));
            }
        }
        u16::try_from(ranges.len())
            .ok()
            .and_then(ZeroBased8::new)
            .ok_or_else(|| Error::Unsupported("a command takes 1 to 256 ranges".to_owned()))
    }
}

/// A copy onto blocks that it copies from finds other sources the second time.
fn copy_effect(sources: &[(u64, u32)], destination: u64, total: u64) -> Effect {
    let overlaps = |&(lba, blocks): &(u64, u32)| {
        lba < destination + total && destination < lba + u64::from(blocks)
    };
    if sources.iter().any(overlaps) { Effect::Once } else { Effect::Same }
}
