//! A namespace's bytes: where commands wait for a backend, and where all backends' errors become statuses. What ends in
//! the call that dispatches it is asked of memory and volumes in `read` and `write`. Each function here that waits counts
//! as use of the backend, which a removal of the namespace waits for.

use std::sync::Arc;

use engine::{Outcome, Reading, Volume, Writing};
use media::Kind;
use media::memory::Region;
use media::passthrough::Failure;
use nvme::nvm::LbaRange;
use nvme::status::Status;
use reactor::buffer::{self, Buffer};
use reactor::turns::Party;
use stdx::num::{u64_of, usize64};

use super::beyond::WAITS_FOR_DRIVES;
use super::blocks::Blocks;
use super::gather::Gathered;
use super::{Attached, Slot};
use crate::limits::{HOLE_BYTES, PART_BYTES, PIECE_BYTES, VOLUME_COMPARE_BYTES};
use crate::namespace::Backend;
use crate::queue::AFTER_SHORTLY;

impl Attached {
    /// `length` bytes from `offset` on, in a pool buffer.
    ///
    /// # Errors
    /// As [`status_of`]: Unrecovered Read Error and others.
    pub(super) async fn load(&self, offset: u64, length: usize) -> Result<Buffer, Status> {
        let _in_use = self.use_backend(offset, u64_of(length))?;
        match &self.namespace().backend {
            Backend::Memory(region) => {
                let mut buffer = buffer::pool().alloc_to_send(length).await;
                region.copy_out(offset, &mut buffer).map_err(|e| status_of(&e))?;
                Ok(buffer)
            }
            Backend::Drive(drive) => drive.read(offset, length).await.map_err(|e| status_of(&e)),
            Backend::Passthrough(drive) => {
                drive.read(offset, length).await.map_err(|e| status_of_drive(&e))
            }
            Backend::Absent { .. } => Err(Status::ANA_INACCESSIBLE),
            Backend::Volume(volume) => {
                let mut buffer = buffer::pool().alloc_to_send(length).await;
                let read = volume.read(offset, &mut buffer[..length]).await;
                read.map_err(|e| status_of_volume(volume, &e, true))?;
                Ok(buffer)
            }
        }
    }

    /// What a command is told that was begun with a volume which is not there any more: it was withdrawn meanwhile, and
    /// comes again.
    fn gone(&self) -> Status {
        match self.namespace().backend.is_absent() {
            true => Status::ANA_INACCESSIBLE,
            false => Status::INTERNAL_ERROR.with_dnr(),
        }
    }

    /// The blocks of a read that was begun.
    ///
    /// # Errors
    /// As [`Attached::load`].
    pub(super) async fn finish(
        &self,
        run: Blocks,
        reading: Reading<Buffer>,
    ) -> Result<Buffer, Status> {
        let _in_use = self.use_backend(run.offset, run.length)?;
        let Backend::Volume(volume) = &self.namespace().backend else {
            return Err(self.gone());
        };
        reading.finish().await.map_err(|e| status_of_volume(volume, &e, true))
    }

    /// Refuses data that is not what the namespace holds from `offset` on.
    ///
    /// # Errors
    /// Compare Failure, and as [`Attached::load`].
    pub(super) async fn check_equal(&self, offset: u64, data: &[u8]) -> Result<(), Status> {
        let _in_use = self.use_backend(offset, u64_of(data.len()))?;
        let differs = match &self.namespace().backend {
            Backend::Memory(region) => region.mismatch(offset, data).map_err(|e| status_of(&e)),
            Backend::Drive(drive) => drive.mismatch(offset, data).await.map_err(|e| status_of(&e)),
            Backend::Passthrough(drive) => {
                drive.mismatch(offset, data).await.map_err(|e| status_of_drive(&e))
            }
            Backend::Absent { .. } => Err(Status::ANA_INACCESSIBLE),
            Backend::Volume(volume) => {
                let differs = mismatch(volume, offset, data).await;
                differs.map_err(|e| status_of_volume(volume, &e, true))
            }
        };
        match differs? {
            None => Ok(()),
            Some(_) => Err(Status::COMPARE_FAILURE.with_dnr()),
        }
    }

    /// As [`check_equal`](Self::check_equal), for data that may be given away: a drive that compares gets it.
    ///
    /// # Errors
    /// As there.
    pub(super) async fn compare(&self, offset: u64, data: Gathered) -> Result<(), Status> {
        match self.namespace().backend.passthrough() {
            Some(drive) if drive.described().has_compare() => {
                let _in_use = self.use_backend(offset, u64_of(data.len()))?;
                let (buffer, _held) = data.into_buffer().await;
                drive.compare(offset, buffer).await.map_err(|e| status_of_drive(&e))
            }
            _ => self.check_equal(offset, &data).await,
        }
    }

    /// Has blocks checked by a drive that does so itself; `false` where it does not.
    ///
    /// # Errors
    /// As [`Attached::load`].
    pub(super) async fn verify(&self, blocks: Blocks) -> Result<bool, Status> {
        match self.namespace().backend.passthrough() {
            Some(drive) if drive.described().has_verify() => {
                let _in_use = self.use_backend(blocks.offset, blocks.length)?;
                let done = drive.verify(blocks.offset, blocks.length).await;
                done.map(|()| true).map_err(|e| status_of_drive(&e))
            }
            _ => Ok(false),
        }
    }

    /// Has blocks give an error when they are read.
    ///
    /// # Errors
    /// Invalid Command Opcode where the backend has no such command; as [`Attached::store`].
    pub(super) async fn write_uncorrectable(
        &self,
        blocks: Blocks,
        slot: &impl Slot,
    ) -> Result<(), Status> {
        match self.namespace().backend.passthrough() {
            Some(drive) if drive.described().has_write_uncorrectable() => {
                for (offset, length) in blocks.of_size(drive.uncorrectable_piece()) {
                    let _turn = slot.work(usize64(PIECE_BYTES)).await?;
                    self.permit_change()?;
                    let _in_use = self.use_backend(offset, length)?;
                    let done = drive.write_uncorrectable(offset, length).await;
                    done.map_err(|e| status_of_drive(&e))?;
                }
                Ok(())
            }
            _ => Err(Status::INVALID_OPCODE.with_dnr()),
        }
    }

    /// Writes `data` at `offset`; with `fua` it is durable when this returns.
    ///
    /// # Errors
    /// As [`status_of`]: Write Fault, Capacity Exceeded and others.
    pub(super) async fn store(&self, offset: u64, data: Gathered, fua: bool) -> Result<(), Status> {
        let _in_use = self.use_backend(offset, u64_of(data.len()))?;
        let stored = match &self.namespace().backend {
            Backend::Memory(region) => copy_in(region, offset, &data).await,
            Backend::Drive(drive) => {
                let (buffer, _held) = data.into_buffer().await;
                drive.write(offset, buffer, fua).await
            }
            Backend::Passthrough(drive) => {
                let (buffer, _held) = data.into_buffer().await;
                let written = drive.write(offset, buffer, fua).await;
                return written.map_err(|e| status_of_drive(&e));
            }
            Backend::Absent { .. } => return Err(Status::ANA_INACCESSIBLE),
            Backend::Volume(volume) => {
                let written = volume.write(offset, &data).await;
                return written.map_err(|e| status_of_volume(volume, &e, false));
            }
        };
        stored.map_err(|e| status_of(&e))
    }

    /// Goes on with a write that the volume began with, durable when this returns. `data` is what it still needs.
    ///
    /// # Errors
    /// As [`Attached::store`].
    pub(super) async fn finish_write(
        &self,
        run: Blocks,
        writing: &mut Writing,
        data: &[u8],
    ) -> Result<(), Status> {
        let _in_use = self.use_backend(run.offset, run.length)?;
        let Backend::Volume(volume) = &self.namespace().backend else {
            return Err(self.gone());
        };
        let written = volume.finish_write(writing, run.offset, data).await;
        written.map_err(|e| status_of_volume(volume, &e, false))
    }

    /// Whether both are volumes of one pool, which copies between them without moving contents, or one drive that
    /// copies by itself.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        match (&self.namespace().backend, &other.namespace().backend) {
            (Backend::Volume(one), Backend::Volume(other)) => one.is_beside(other),
            (Backend::Passthrough(one), Backend::Passthrough(other)) => {
                Arc::ptr_eq(one, other) && one.copies()
            }
            _ => false,
        }
    }

    /// Whether such a copy moves nothing.
    pub(super) fn shares_with(
        &self,
        other: &Self,
        source: u64,
        destination: u64,
        length: u64,
    ) -> bool {
        match (&self.namespace().backend, &other.namespace().backend) {
            (Backend::Volume(one), Backend::Volume(other)) => {
                one.shares_with(other, source, destination, length)
            }
            _ => false,
        }
    }

    /// Copies `length` bytes from `source` of a namespace that this one [is beside](Self::is_beside). `false` where the
    /// drive does not after all.
    ///
    /// # Errors
    /// As [`Attached::load`] and [`Attached::store`].
    pub(super) async fn copy_within(
        &self,
        from: &Self,
        source: u64,
        destination: u64,
        length: usize,
    ) -> Result<bool, Status> {
        let _in_use = self.use_backend(destination, u64_of(length))?;
        let _source_in_use = from.use_backend(source, u64_of(length))?;
        if let Some(drive) = self.namespace().backend.passthrough() {
            let copied = drive.copy(source, destination, u64_of(length)).await;
            return copied.map_err(|e| status_of_drive(&e));
        }
        let (Backend::Volume(to), Backend::Volume(from)) =
            (&self.namespace().backend, &from.namespace().backend)
        else {
            return Err(if self.namespace().backend.is_absent() { self } else { from }.gone());
        };
        // On the heap: too large for the slot that every command has.
        let copied = Box::pin(to.copy_from(from, source, destination, u64_of(length))).await;
        copied.map(|()| true).map_err(|e| status_of_volume(to, &e, false))
    }

    /// Gives the space of the blocks back as far as the backend can. Where the backend cannot,
    /// nothing happens: a host's wish to deallocate is no promise.
    ///
    /// # Errors
    /// As [`status_of`]; and the command was aborted.
    pub(super) async fn deallocate(&self, blocks: Blocks, slot: &impl Slot) -> Result<(), Status> {
        let _in_use = self.use_backend(blocks.offset, blocks.length)?;
        match &self.namespace().backend {
            Backend::Memory(_) => self.zero(blocks, true, false, slot).await,
            Backend::Drive(drive) => {
                let _turn = slot.work(usize64(PIECE_BYTES)).await?;
                match drive.deallocate(blocks.offset, blocks.length).await {
                    Err(e) if e.kind != Kind::Unsupported => Err(status_of(&e)),
                    _ => Ok(()),
                }
            }
            Backend::Passthrough(_) => self.deallocate_together(&[blocks.range], slot).await,
            Backend::Absent { .. } => Err(Status::ANA_INACCESSIBLE),
            Backend::Volume(volume) => {
                for (offset, length) in blocks.cuts(HOLE_BYTES) {
                    let _turn = slot.work(hole_work(length)).await?;
                    let freed = match volume.write_zeroes(offset, length).await {
                        // Parts of the volume's own blocks want a write; without room, they stay.
                        Err(engine::Error { kind: engine::Kind::Full, .. }) => {
                            volume.deallocate(offset, length).await
                        }
                        done => done,
                    };
                    freed.map_err(|e| status_of_volume(volume, &e, false))?;
                    reactor::yield_now().await;
                }
                Ok(())
            }
        }
    }

    /// As [`deallocate`](Self::deallocate), for all ranges of a command: a drive that gets commands as they are has
    /// them in as few as it takes, each of which waits for the host's turn. What is named by later ones stays where the
    /// host is lost meanwhile: it may have written there by another path.
    ///
    /// # Errors
    /// As there.
    pub(super) async fn deallocate_together(
        &self,
        ranges: &[LbaRange],
        slot: &impl Slot,
    ) -> Result<(), Status> {
        let Some(drive) = self.namespace().backend.passthrough() else { return Err(self.gone()) };
        for piece in drive.deallocations(ranges) {
            let _turn = slot.work(usize64(PIECE_BYTES)).await?;
            self.permit_change()?;
            let mut in_use = None;
            for range in ranges {
                let blocks = self.blocks(*range)?;
                in_use = Some(self.use_backend(blocks.offset, blocks.length)?);
            }
            let done = drive.deallocate(&piece).await;
            drop(in_use);
            match done {
                Err(Failure::Media(e)) if e.kind == Kind::Unsupported => return Ok(()),
                done => done.map_err(|e| status_of_drive(&e))?,
            }
        }
        Ok(())
    }

    /// Makes the blocks read as zeroes; with `deallocate` their space may be given back, with `fua` an NVMe drive is
    /// told that they are to be durable. In memory zeroes take no space either way.
    ///
    /// # Errors
    /// As [`status_of`]; and the command was aborted.
    pub(super) async fn zero(
        &self,
        blocks: Blocks,
        deallocate: bool,
        fua: bool,
        slot: &impl Slot,
    ) -> Result<(), Status> {
        let _in_use = self.use_backend(blocks.offset, blocks.length)?;
        match &self.namespace().backend {
            Backend::Memory(region) => {
                for (offset, length) in blocks.cuts(PIECE_BYTES) {
                    let _turn = slot.work(usize64(length)).await?;
                    region.deallocate(offset, length).map_err(|e| status_of(&e))?;
                    // A piece is a turn's share, also where the next is another range's.
                    reactor::yield_now().await;
                }
                Ok(())
            }
            Backend::Drive(drive) => {
                let _turn = slot.work(usize64(PIECE_BYTES)).await?;
                let done = drive.write_zeroes(blocks.offset, blocks.length, deallocate).await;
                done.map_err(|e| status_of(&e))
            }
            Backend::Passthrough(drive) => {
                let zeroes = async {
                    for (offset, length) in blocks.of_size(drive.zeroes_piece()) {
                        let _turn = slot.work(usize64(PIECE_BYTES)).await?;
                        let done = drive.write_zeroes(offset, length, deallocate, fua).await;
                        done.map_err(|e| status_of_drive(&e))?;
                    }
                    Ok(())
                };
                // On the heap: too large for the slot that every command has.
                Box::pin(zeroes).await
            }
            Backend::Absent { .. } => Err(Status::ANA_INACCESSIBLE),
            // The space is given back either way: there is nothing to be had for keeping it.
            Backend::Volume(volume) => {
                for (offset, length) in blocks.cuts(HOLE_BYTES) {
                    let _turn = slot.work(hole_work(length)).await?;
                    let done = volume.write_zeroes(offset, length).await;
                    done.map_err(|e| status_of_volume(volume, &e, false))?;
                    reactor::yield_now().await;
                }
                Ok(())
            }
        }
    }

    /// Makes durable everything acknowledged so far.
    ///
    /// # Errors
    /// As [`status_of`]: what was acknowledged may not be on the medium.
    pub(super) async fn make_durable(&self) -> Result<(), Status> {
        let _in_use = self.use_backend(0, 0)?;
        match &self.namespace().backend {
            Backend::Memory(_) => Ok(()),
            Backend::Drive(drive) => drive.flush().await.map_err(|e| status_of(&e)),
            Backend::Passthrough(drive) => drive.flush().await.map_err(|e| status_of_drive(&e)),
            Backend::Absent { .. } => Err(Status::ANA_INACCESSIBLE),
            Backend::Volume(volume) => {
                volume.flush().map_err(|e| status_of_volume(volume, &e, false))
            }
        }
    }
}

/// Begins to write to a volume.
///
/// # Errors
/// As [`Attached::store`].
#[inline]
pub(super) fn begin_write(
    volume: &Volume,
    run: Blocks,
    data: &[u8],
) -> Result<Outcome<Writing>, Status> {
    volume.begin_write(run.offset, data).map_err(|e| status_of_volume(volume, &e, false))
}

/// Copies `data` to memory, in parts where others are active.
async fn copy_in(region: &Region, offset: u64, data: &[u8]) -> Result<(), media::Error> {
    if !Party::is_bounded() {
        return region.copy_in(offset, data);
    }
    for (part, at) in data.chunks(PART_BYTES).zip((offset..).step_by(PART_BYTES)) {
        if at > offset {
            reactor::yield_now().await;
        }
        region.copy_in(at, part)?;
    }
    Ok(())
}

/// What a hole of so many bytes takes as long as, in bytes moved.
fn hole_work(bytes: u64) -> usize {
    usize64(bytes) / 32
}

/// The index of the first byte of a volume that differs from `data` at `offset`, if any does.
async fn mismatch(volume: &Volume, offset: u64, data: &[u8]) -> engine::Result<Option<usize>> {
    // On the heap: the data compared may hold all buffers there are.
    let mut stored = vec![0; data.len().min(VOLUME_COMPARE_BYTES)];
    let mut done = 0;
    for part in data.chunks(VOLUME_COMPARE_BYTES) {
        let stored = &mut stored[..part.len()];
        volume.read(offset + u64_of(done), stored).await?;
        if let Some(differs) = stored.iter().zip(part).position(|(a, b)| a != b) {
            return Ok(Some(done + differs));
        }
        done += part.len();
    }
    Ok(None)
}

/// A backend's failure as what the host can act on. Without Do Not Retry where another attempt, or
/// another path, may fare better.
pub(super) fn status_of(error: &media::Error) -> Status {
    use media::Operation;
    let reading =
        matches!(error.operation, Operation::Read | Operation::Compare | Operation::Verify);
    match error.kind {
        // The namespace shrank under the command.
        Kind::OutOfRange => Status::LBA_OUT_OF_RANGE.with_dnr(),
        Kind::Full => Status::CAPACITY_EXCEEDED.with_dnr(),
        Kind::ReadOnly => Status::NAMESPACE_IS_WRITE_PROTECTED.with_dnr(),
        Kind::Medium if reading => Status::UNRECOVERED_READ_ERROR.with_dnr(),
        Kind::Medium | Kind::Latched => Status::WRITE_FAULT.with_dnr(),
        // The host may try again: none of these says anything of what the drive keeps.
        Kind::Passing => Status::NAMESPACE_NOT_READY.with_retry_delay(AFTER_SHORTLY),
        Kind::Gone | Kind::Busy | Kind::Timeout => Status::NAMESPACE_NOT_READY,
        Kind::TooLarge | Kind::Unsupported => Status::INTERNAL_ERROR.with_dnr(),
    }
}

/// What became of a command that an NVMe drive got as it was: the drive's word is the host's.
pub(super) fn status_of_drive(failure: &Failure) -> Status {
    match failure {
        // But for its delays (Command Retry Delay), which are not ours.
        Failure::Drive(status) if status.retry_delay() != 0 => {
            status.with_retry_delay(AFTER_SHORTLY)
        }
        Failure::Drive(status) => *status,
        // It may come again: hosts hold back what they have for it.
        Failure::Media(error) if error.kind == Kind::Gone => Status::ANA_INACCESSIBLE,
        Failure::Media(error) => status_of(error),
    }
}

/// A volume's failure as what the host can act on.
fn status_of_volume(volume: &Volume, error: &engine::Error, reading: bool) -> Status {
    use engine::Kind;
    match error.kind {
        // Its pool is opened again once its drives answer.
        Kind::Corrupt | Kind::Loss | Kind::Failed if volume.is_beyond_redundancy() => {
            WAITS_FOR_DRIVES
        }
        // What a host stored in its direct write window is not taken before that, either.
        Kind::Busy | Kind::Gone if volume.waits_for_drives() => WAITS_FOR_DRIVES,
        // The volume shrank under the command.
        Kind::OutOfRange => Status::LBA_OUT_OF_RANGE.with_dnr(),
        Kind::Full => Status::CAPACITY_EXCEEDED.with_dnr(),
        // A write of part of a block reads the rest.
        Kind::Corrupt | Kind::Loss => Status::UNRECOVERED_READ_ERROR.with_dnr(),
        Kind::Failed if reading => Status::UNRECOVERED_READ_ERROR.with_dnr(),
        Kind::Failed => Status::WRITE_FAULT.with_dnr(),
        // Its pool was closed, and may be open elsewhere or again.
        Kind::Gone | Kind::Missing => Status::NAMESPACE_NOT_READY,
        Kind::Busy => Status::NAMESPACE_NOT_READY.with_retry_delay(AFTER_SHORTLY),
        Kind::Invalid | Kind::Exists | Kind::NotFound | Kind::Unsupported => {
            Status::INTERNAL_ERROR.with_dnr()
        }
    }
}
