//! Drives: one enum over what keeps the bytes of a namespace.

pub(crate) mod again;
mod faulty;
mod remote;
mod simulated;
mod storage;

pub use crate::limits::{
    PASSING_PATIENCE, SPACE_DEADLINES, TRANSFER_DEADLINE, TRANSFER_DEADLINES, TRANSFER_MAX,
    WRITES_LOOK, WRITES_PATIENCE,
};
pub use faulty::FaultPlan;
pub use reactor::file::Deadline;
pub use remote::{Answer, Remote};
pub use simulated::{
    InFlight, Refusal, SECTOR, Simulated, SimulatedContents, SimulatedCounters, SimulatedFaults,
    SimulatedOptions,
};
pub use storage::{DEADLINE, OpenDrive, deadline, set_deadline};

use crate::error::{Error, Kind, Operation, Refused};
use crate::limits::COMPARE_CHUNK;
use crate::memory::{Region, RegionOptions};
use again::Again;
use faulty::Faulty;
use reactor::buffer::{self, Buffer, Pool};
use reactor::turns;
use std::path::Path;
use std::sync::Arc;
use stdx::num::u64_of;
use storage::Storage;

/// Something that keeps bytes, used through any reactor. Offsets and lengths are in bytes and need
/// no alignment, but of a [`Remote`].
#[derive(Debug)]
pub enum Drive {
    /// A regular file.
    File(Storage),
    /// A block device.
    Block(Storage),
    /// Memory.
    Memory(Arc<Region>),
    /// Another drive, with seeded faults.
    Faulty(Box<Faulty>),
    /// Memory that behaves as a drive at its worst. Its contents outlive the reactor.
    Simulated(Arc<Simulated>),
    /// A drive of another machine.
    Remote(Arc<dyn Remote>),
}

impl Drive {
    /// Opens a file or block device. Blocks: for set-up.
    ///
    /// # Errors
    /// As the system calls; `Unsupported` for what is neither, or is smaller than a block.
    pub fn open(path: &Path, options: OpenDrive) -> Result<Self, Error> {
        let storage = Storage::open(path, options)?;
        Ok(if storage.is_block_device() { Self::Block(storage) } else { Self::File(storage) })
    }

    /// Memory of `len` bytes.
    ///
    /// # Errors
    /// As [`Region::new`].
    pub fn memory(len: u64, options: RegionOptions) -> Result<Self, Error> {
        Region::new(len, options).map(|region| Self::Memory(Arc::new(region)))
    }

    /// This drive with the faults of `plan`.
    #[must_use]
    pub fn with_faults(self, plan: FaultPlan) -> Self {
        Self::Faulty(Box::new(Faulty::new(self, plan)))
    }

    /// Capacity in bytes; 0 while a drive of another machine has not answered yet.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        match self {
            Self::File(s) | Self::Block(s) => s.capacity(),
            Self::Memory(region) => region.len(),
            Self::Faulty(f) => f.inner().capacity(),
            Self::Simulated(s) => s.capacity(),
            Self::Remote(r) => r.capacity(),
        }
    }

    /// Major and minor number of the block device that was opened, if it is one.
    #[must_use]
    pub fn device_number(&self) -> Option<(u32, u32)> {
        match self {
            Self::File(s) | Self::Block(s) => s.device_number(),
            Self::Faulty(f) => f.inner().device_number(),
            Self::Memory(_) | Self::Simulated(_) | Self::Remote(_) => None,
        }
    }

    /// Whether nobody else can still write to it: see [`reactor::file::File::is_alone`].
    #[must_use]
    pub fn is_alone(&self) -> bool {
        match self {
            Self::File(s) | Self::Block(s) => s.is_alone(),
            Self::Faulty(f) => f.inner().is_alone(),
            Self::Simulated(s) => s.is_alone(),
            // Of a drive of another machine, whoever reaches it keeps others away.
            Self::Memory(_) | Self::Remote(_) => true,
        }
    }

    /// What its capacity is by now, which is less where something was cut off; `None` when that cannot be said. Asks the
    /// system, and may block where that hangs.
    #[must_use]
    pub fn capacity_now(&self) -> Option<u64> {
        match self {
            Self::File(s) | Self::Block(s) => s.capacity_now(),
            Self::Faulty(f) => f.inner().capacity_now(),
            Self::Memory(_) | Self::Simulated(_) | Self::Remote(_) => Some(self.capacity()),
        }
    }

    /// The smallest unit the drive writes without reading, in bytes; at least 512. Smaller writes
    /// work, and cost a read and their turn.
    #[must_use]
    pub fn logical_block(&self) -> u32 {
        match self {
            Self::File(s) | Self::Block(s) => s.logical_block(),
            Self::Memory(region) => region.block_size(),
            Self::Faulty(f) => f.inner().logical_block(),
            Self::Simulated(_) => stdx::num::low32(SECTOR),
            Self::Remote(r) => r.logical_block(),
        }
    }

    /// Whether acknowledged writes can be lost with power until a flush. Memory answers false: it
    /// has nothing that a flush would make safer.
    #[must_use]
    pub fn has_volatile_cache(&self) -> bool {
        match self {
            Self::File(s) | Self::Block(s) => s.has_volatile_cache(),
            Self::Memory(_) => false,
            Self::Faulty(f) => f.inner().has_volatile_cache(),
            Self::Simulated(s) => s.has_volatile_cache(),
            Self::Remote(r) => r.has_volatile_cache(),
        }
    }

    /// Whether I/O goes past the page cache; memory has none and answers true.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        match self {
            Self::File(s) | Self::Block(s) => s.is_direct(),
            Self::Memory(_) | Self::Simulated(_) | Self::Remote(_) => true,
            Self::Faulty(f) => f.inner().is_direct(),
        }
    }

    /// Whether deallocated blocks are sure to read as zeroes.
    #[must_use]
    pub fn zeroes_when_deallocated(&self) -> bool {
        match self {
            Self::File(_) | Self::Memory(_) | Self::Simulated(_) => true,
            Self::Block(s) => s.unmaps_with_zeroes(),
            Self::Faulty(f) => f.inner().zeroes_when_deallocated(),
            Self::Remote(_) => false,
        }
    }

    /// The first failure that makes the drive refuse writes, if there was one.
    #[must_use]
    pub fn failure(&self) -> Option<Kind> {
        match self {
            Self::File(s) | Self::Block(s) => s.failure(),
            Self::Memory(_) => None,
            Self::Faulty(f) => f.inner().failure(),
            Self::Simulated(s) => s.failure(),
            Self::Remote(r) => r.failure(),
        }
    }

    /// The connection by which a drive of another machine is used; `None` while there is none, and of drives of this one.
    #[must_use]
    pub fn connection(&self) -> Option<u64> {
        match self {
            Self::Remote(remote) => remote.connection(),
            Self::Simulated(s) => s.connection(),
            Self::Faulty(f) => f.inner().connection(),
            Self::File(_) | Self::Block(_) | Self::Memory(_) => None,
        }
    }

    /// Why a drive of another machine cannot be used, in words that name it, if it cannot.
    #[must_use]
    pub fn away(&self) -> Option<String> {
        match self {
            Self::Remote(remote) => remote.away(),
            Self::Faulty(f) => f.inner().away(),
            Self::File(_) | Self::Block(_) | Self::Memory(_) | Self::Simulated(_) => None,
        }
    }

    /// Whether a change that was given up may still come: nothing else is to be written there before.
    #[must_use]
    pub fn has_late_changes(&self) -> bool {
        match self {
            Self::File(s) | Self::Block(s) => s.has_late_changes(),
            Self::Memory(_) => false,
            Self::Simulated(s) => s.has_late_changes(),
            Self::Faulty(f) => f.inner().has_late_changes(),
            Self::Remote(r) => r.has_late_changes(),
        }
    }

    /// Likewise of any change that it was asked for and that has not ended, be it that somebody waits for it: whoever has
    /// let go of it has those over, once there are none. What goes to another machine is not among them, nor memory.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        match self {
            Self::File(s) | Self::Block(s) => s.has_changes(),
            Self::Simulated(s) => s.has_changes(),
            Self::Faulty(f) => f.inner().has_changes(),
            Self::Memory(_) | Self::Remote(_) => false,
        }
    }

    /// Lets other processes have it though it stays open: see [`reactor::file::File::unmark`].
    pub fn unmark(&self) {
        match self {
            Self::File(s) | Self::Block(s) => s.unmark(),
            Self::Faulty(f) => f.inner().unmark(),
            Self::Memory(_) | Self::Simulated(_) | Self::Remote(_) => {}
        }
    }

    /// Has a change be known while it is tried again, or begins with a read.
    fn begin_change(&self) -> Option<reactor::file::Change> {
        match self {
            Self::File(s) | Self::Block(s) => Some(s.begin_change()),
            Self::Faulty(f) => f.inner().begin_change(),
            Self::Memory(_) | Self::Simulated(_) | Self::Remote(_) => None,
        }
    }

    /// Whether it is a drive of another machine.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        match self {
            Self::Remote(_) => true,
            Self::Faulty(f) => f.inner().is_remote(),
            Self::File(_) | Self::Block(_) | Self::Memory(_) | Self::Simulated(_) => false,
        }
    }

    fn check(&self, operation: Operation, offset: u64, len: u64) -> Result<(), Error> {
        let capacity = match self.capacity() {
            // Whoever reaches it looks once it is known.
            0 if self.is_remote() => u64::MAX,
            capacity => capacity,
        };
        match offset.checked_add(len) {
            Some(end) if end <= capacity => Ok(()),
            _ => Err(Error::new(Kind::OutOfRange, operation, offset, len)),
        }
    }

    fn check_transfer(&self, operation: Operation, offset: u64, len: usize) -> Result<(), Error> {
        if len > TRANSFER_MAX {
            return Err(Error::new(Kind::TooLarge, operation, offset, u64_of(len)));
        }
        self.check(operation, offset, u64_of(len))
    }

    fn check_connection(
        &self,
        by: Option<u64>,
        operation: Operation,
        offset: u64,
        len: u64,
    ) -> Result<(), Error> {
        if by.is_none() || self.connection() == by {
            return Ok(());
        }
        Err(Error::new(Kind::Gone, operation, offset, len))
    }

    /// Reads `len` bytes at `offset` into a buffer of this reactor's pool.
    ///
    /// # Errors
    /// `OutOfRange`, `TooLarge` past `TRANSFER_MAX`, and what the drive says.
    pub async fn read(&self, offset: u64, len: usize) -> Result<Buffer, Error> {
        self.read_from(offset, len, buffer::pool()).await
    }

    /// As [`read`](Self::read), by this [`connection`](Self::connection) only, where one is given.
    ///
    /// # Errors
    /// As [`read`](Self::read); `Gone` when that connection is over.
    pub async fn read_by(&self, by: Option<u64>, offset: u64, len: usize) -> Result<Buffer, Error> {
        self.check_transfer(Operation::Read, offset, len)?;
        let buffer = self.buffer(offset, len, &buffer::pool()).await;
        self.fill_by(by, offset, len, buffer).await
    }

    /// As [`read`](Self::read), for callers that hold a buffer of the pool while they wait: if all of
    /// them took a second one there, none might get it. This one comes from the scratch pool; drop
    /// it before taking another.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn read_scratch(&self, offset: u64, len: usize) -> Result<Buffer, Error> {
        self.read_from(offset, len, buffer::scratch_pool()).await
    }

    /// As [`read`](Self::read), into a buffer of `pool`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn read_from(&self, offset: u64, len: usize, pool: Pool) -> Result<Buffer, Error> {
        self.check_transfer(Operation::Read, offset, len)?;
        let buffer = self.buffer(offset, len, &pool).await;
        self.fill(offset, len, buffer).await
    }

    /// Memory of `pool` to read `len` bytes at `offset` into: what comes after is the drive's time alone.
    pub async fn buffer(&self, offset: u64, len: usize, pool: &Pool) -> Buffer {
        match self {
            Self::File(s) | Self::Block(s) => s.buffer(offset, len, pool).await,
            Self::Memory(_) | Self::Simulated(_) | Self::Remote(_) => pool.alloc(len).await,
            Self::Faulty(f) => Box::pin(f.inner().buffer(offset, len, pool)).await,
        }
    }

    /// Reads `len` bytes at `offset` into the [`buffer`](Self::buffer) made for them.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn fill(&self, offset: u64, len: usize, buffer: Buffer) -> Result<Buffer, Error> {
        self.fill_by(None, offset, len, buffer).await
    }

    async fn fill_by(
        &self,
        by: Option<u64>,
        offset: u64,
        len: usize,
        buffer: Buffer,
    ) -> Result<Buffer, Error> {
        self.check_transfer(Operation::Read, offset, len)?;
        let (mut again, mut buffer) = (Again::default(), buffer);
        loop {
            let Refused { error, data } = match self.fill_once(by, offset, len, buffer).await {
                Ok(filled) => return Ok(filled),
                Err(refused) => refused,
            };
            match data {
                Some(back) if again.pause(&error).await => buffer = back,
                _ => return Err(error),
            }
        }
    }

    async fn fill_once(
        &self,
        by: Option<u64>,
        offset: u64,
        len: usize,
        buffer: Buffer,
    ) -> Result<Buffer, Refused> {
        self.check_connection(by, Operation::Read, offset, u64_of(len))?;
        match self {
            Self::File(s) | Self::Block(s) => s.fill(offset, len, buffer).await,
            Self::Memory(region) => {
                let mut out = buffer;
                region.copy_out(offset, &mut out)?;
                Ok(out)
            }
            Self::Faulty(f) => {
                f.before(Operation::Read, offset, u64_of(len)).await?;
                Ok(Box::pin(f.inner().fill_by(by, offset, len, buffer)).await?)
            }
            Self::Simulated(s) => {
                let read = s.read(offset, len, buffer).await?;
                self.check_connection(by, Operation::Read, offset, u64_of(len))?;
                Ok(read)
            }
            Self::Remote(r) => r.read(by, offset, len, buffer).await,
        }
    }

    /// Reads to where the bytes are wanted; drives that cannot do that read into a buffer of `pool`
    /// first.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn read_into(&self, offset: u64, out: &mut [u8], pool: &Pool) -> Result<(), Error> {
        if let Self::Memory(region) = self {
            self.check_transfer(Operation::Read, offset, out.len())?;
            return region.copy_out(offset, out);
        }
        out.copy_from_slice(&self.read_from(offset, out.len(), pool.clone()).await?);
        Ok(())
    }

    /// Reads, if that needs no waiting: memory does not. Tells whether it did.
    #[must_use]
    pub fn read_at_once(&self, offset: u64, out: &mut [u8]) -> bool {
        match self {
            Self::Memory(region) => region.copy_out(offset, out).is_ok(),
            _ => false,
        }
    }

    /// The index of the first byte that differs from `data` at `offset`, if any does. The caller may
    /// hold `data` in a pool buffer.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn mismatch(&self, offset: u64, data: &[u8]) -> Result<Option<usize>, Error> {
        if let Self::Memory(region) = self {
            return region.mismatch(offset, data);
        }
        let mut done = 0;
        for part in data.chunks(COMPARE_CHUNK) {
            let stored = self.read_scratch(offset + u64_of(done), part.len()).await?;
            if stored[..] != *part {
                let differs = stored.iter().zip(part).position(|(a, b)| a != b);
                return Ok(differs.map(|i| done + i));
            }
            done += part.len();
        }
        Ok(None)
    }

    /// Writes what `data` shows at `offset`; with `fua` it is durable when this returns.
    ///
    /// # Errors
    /// `OutOfRange`, `TooLarge` past `TRANSFER_MAX`, `Latched`, and what the drive says.
    pub async fn write(&self, offset: u64, data: Buffer, fua: bool) -> Result<(), Error> {
        self.write_or_return(offset, data, fua).await.map_err(|refused| refused.error)
    }

    /// As [`write`](Self::write), by this [`connection`](Self::connection) only, where one is given: by another one nothing
    /// is written.
    ///
    /// # Errors
    /// As [`write`](Self::write); `Gone` when that connection is over.
    pub async fn write_by(
        &self,
        by: Option<u64>,
        offset: u64,
        data: Buffer,
        fua: bool,
    ) -> Result<(), Error> {
        self.try_write(by, offset, data, fua).await.map_err(|refused| refused.error)
    }

    /// As [`write`](Self::write); where there is no space for it, what was to be written comes back,
    /// to be written again.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_or_return(
        &self,
        offset: u64,
        data: Buffer,
        fua: bool,
    ) -> Result<(), Refused> {
        self.try_write(None, offset, data, fua).await
    }

    async fn try_write(
        &self,
        by: Option<u64>,
        offset: u64,
        data: Buffer,
        fua: bool,
    ) -> Result<(), Refused> {
        self.check_transfer(Operation::Write, offset, data.len())?;
        let _change = self.begin_change();
        let (mut again, mut data) = (Again::default(), data);
        loop {
            let mut refused = match self.write_once(by, offset, data, fua).await {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            match refused.data.take() {
                Some(back) if again.pause(&refused.error).await => data = back,
                back => return Err(Refused { data: back, ..refused }),
            }
        }
    }

    async fn write_once(
        &self,
        by: Option<u64>,
        offset: u64,
        data: Buffer,
        fua: bool,
    ) -> Result<(), Refused> {
        self.check_connection(by, Operation::Write, offset, u64_of(data.len()))?;
        match self {
            Self::File(s) | Self::Block(s) => s.write(offset, data, fua).await,
            Self::Memory(region) => {
                // A stripe's members are written together: those who are served wait for one at a time.
                turns::give_way().await;
                Ok(region.copy_in(offset, &data)?)
            }
            Self::Faulty(f) => {
                f.before(Operation::Write, offset, u64_of(data.len())).await?;
                Box::pin(f.inner().try_write(by, offset, data, fua)).await
            }
            Self::Simulated(s) => {
                let len = u64_of(data.len());
                s.write(offset, data, fua).await?;
                Ok(self.check_connection(by, Operation::Write, offset, len)?)
            }
            Self::Remote(r) => r.write(by, offset, data, fua).await,
        }
    }

    /// Makes every completed write durable.
    ///
    /// # Errors
    /// What the drive says. After a failure, writes that were acknowledged may be lost, so the drive
    /// latches: no write or flush succeeds again.
    pub async fn flush(&self) -> Result<(), Error> {
        Again::until_it_passed(async || self.flush_once().await).await
    }

    async fn flush_once(&self) -> Result<(), Error> {
        match self {
            Self::File(s) | Self::Block(s) => s.flush().await,
            Self::Memory(_) => Ok(()),
            Self::Faulty(f) => {
                f.before(Operation::Flush, 0, 0).await?;
                Box::pin(f.inner().flush()).await
            }
            Self::Simulated(s) => s.flush().await,
            Self::Remote(r) => r.flush().await,
        }
    }

    /// Frees the space of a range. It reads as zeroes after if
    /// [`zeroes_when_deallocated`](Self::zeroes_when_deallocated).
    ///
    /// # Errors
    /// `OutOfRange`, `Latched`, `Unsupported` when the drive has no way to free space, and what it
    /// says.
    pub async fn deallocate(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.check(Operation::Deallocate, offset, len)?;
        let _change = self.begin_change();
        Again::until_it_passed(async || self.deallocate_once(offset, len).await).await
    }

    async fn deallocate_once(&self, offset: u64, len: u64) -> Result<(), Error> {
        match self {
            Self::File(s) | Self::Block(s) => s.deallocate(offset, len).await,
            Self::Memory(region) => region.deallocate(offset, len),
            Self::Faulty(f) => {
                f.before(Operation::Deallocate, offset, len).await?;
                Box::pin(f.inner().deallocate(offset, len)).await
            }
            Self::Simulated(s) => s.zero(Operation::Deallocate, offset, len).await,
            Self::Remote(r) => r.deallocate(offset, len).await,
        }
    }

    /// Makes a range read as zeroes; with `deallocate` its space may be freed too. Durable after the
    /// next flush, as writes are.
    ///
    /// # Errors
    /// `OutOfRange`, `Latched`, and what the drive says.
    pub async fn write_zeroes(&self, offset: u64, len: u64, deallocate: bool) -> Result<(), Error> {
        self.write_zeroes_by(None, offset, len, deallocate).await
    }

    /// As [`write_zeroes`](Self::write_zeroes), by this [`connection`](Self::connection) only, where one is given: by another
    /// one nothing is changed.
    ///
    /// # Errors
    /// As [`write_zeroes`](Self::write_zeroes); `Gone` when that connection is over.
    pub async fn write_zeroes_by(
        &self,
        by: Option<u64>,
        offset: u64,
        len: u64,
        deallocate: bool,
    ) -> Result<(), Error> {
        self.check(Operation::WriteZeroes, offset, len)?;
        let _change = self.begin_change();
        Again::until_it_passed(async || self.zero_once(by, offset, len, deallocate).await).await
    }

    async fn zero_once(
        &self,
        by: Option<u64>,
        offset: u64,
        len: u64,
        deallocate: bool,
    ) -> Result<(), Error> {
        self.check_connection(by, Operation::WriteZeroes, offset, len)?;
        match self {
            Self::File(s) | Self::Block(s) => s.write_zeroes(offset, len, deallocate).await,
            // Memory has no space of its own to keep: freeing is the cheapest zero.
            Self::Memory(region) => region.deallocate(offset, len),
            Self::Faulty(f) => {
                f.before(Operation::WriteZeroes, offset, len).await?;
                Box::pin(f.inner().write_zeroes_by(by, offset, len, deallocate)).await
            }
            Self::Simulated(s) => s.zero(Operation::WriteZeroes, offset, len).await,
            Self::Remote(r) => r.write_zeroes(by, offset, len, deallocate).await,
        }
    }

    /// Sets aside the space behind a range that reads as zeroes, so that writing there later does not
    /// fail for want of it. Only files can lack space.
    ///
    /// # Errors
    /// `Full` when there is none, `OutOfRange`, `Latched`, and what the drive says.
    pub async fn preallocate(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.check(Operation::WriteZeroes, offset, len)?;
        let _change = self.begin_change();
        Again::until_it_passed(async || self.preallocate_once(offset, len).await).await
    }

    async fn preallocate_once(&self, offset: u64, len: u64) -> Result<(), Error> {
        match self {
            Self::File(s) | Self::Block(s) => s.preallocate(offset, len).await,
            Self::Memory(_) | Self::Remote(_) => Ok(()),
            Self::Faulty(f) => Box::pin(f.inner().preallocate(offset, len)).await,
            Self::Simulated(s) => s.preallocate(offset, len),
        }
    }

    /// Whether deallocating gives back what others can use: memory of a drive in memory is what it
    /// was made of.
    #[must_use]
    pub fn has_space_to_free(&self) -> bool {
        match self {
            Self::File(_) | Self::Block(_) | Self::Simulated(_) | Self::Remote(_) => true,
            Self::Memory(_) => false,
            Self::Faulty(f) => f.inner().has_space_to_free(),
        }
    }

    /// Changes the capacity of a file or of memory, or takes over a device's new size (`len` is
    /// then what it must have now). Blocks: for management.
    ///
    /// # Errors
    /// `Unsupported` when the drive cannot have that size.
    pub fn resize(&self, len: u64) -> Result<(), Error> {
        match self {
            Self::File(s) | Self::Block(s) => s.resize(len),
            Self::Memory(region) => region.resize(len),
            Self::Faulty(f) => f.inner().resize(len),
            Self::Simulated(s) => s.resize(len),
            Self::Remote(_) => Err(Error::new(Kind::Unsupported, Operation::Resize, 0, len)),
        }
    }
}

#[cfg(test)]
mod tests;
