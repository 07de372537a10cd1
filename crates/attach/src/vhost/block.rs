//! A block device as virtio has it (section 5.2): its configuration, and its requests as types.

use initiator::Geometry;
use stdx::num::{low16, low32};

use super::wire::{Config, RangeHead, RequestHead, Status, UNMAP, feature, kind};
use crate::disk::Span;
use crate::limits::{QUEUES_MAX, RANGES_MAX, SEGMENTS_MAX};

/// Bytes of a sector, whatever the device's blocks are.
pub const SECTOR: u64 = 512;

/// Sectors that one range of a discard or of write zeroes is told to have at most.
const RANGE_SECTORS: u32 = 1 << 22;

/// What the device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Bytes.
    pub size: u64,
    /// Logical block, bytes.
    pub block_bytes: u32,
    /// Blocks that writes are best made of.
    optimal_blocks: u32,
    pub read_only: bool,
    trims: bool,
}

impl Device {
    /// What a namespace of `geometry` is.
    #[must_use]
    pub fn new(geometry: &Geometry, read_only: bool) -> Self {
        let block = u64::from(geometry.block_bytes);
        Self {
            size: geometry.blocks.saturating_mul(block),
            block_bytes: geometry.block_bytes,
            optimal_blocks: geometry.optimal_write_blocks,
            read_only: read_only || geometry.read_only,
            trims: geometry.supports.deallocate,
        }
    }

    /// One of `size` bytes that takes everything.
    #[cfg(test)]
    pub(super) const fn test(size: u64, block_bytes: u32) -> Self {
        Self { size, block_bytes, optimal_blocks: 1, read_only: false, trims: true }
    }

    /// Features offered to the driver, and those of the rings.
    #[must_use]
    pub fn features(&self) -> u64 {
        use feature as f;
        let rings = f::INDIRECT | f::EVENT_INDEX | f::PROTOCOL | f::VERSION_1;
        let always = rings | f::SEG_MAX | f::BLOCK_SIZE | f::FLUSH | f::TOPOLOGY | f::MQ;
        if self.read_only {
            return always | f::READ_ONLY;
        }
        always | f::WRITE_ZEROES | if self.trims { f::DISCARD } else { 0 }
    }

    /// The configuration space.
    #[must_use]
    pub fn config(&self) -> Config {
        let block_sectors = self.block_bytes / 512;
        let optimal = self.optimal_blocks.max(4096 / self.block_bytes.clamp(512, 4096));
        let exponent = optimal.checked_ilog2().unwrap_or(0);
        // Zeroes take their place on the wire where the namespace has no command for them: not too many then.
        Config {
            capacity: (self.size / SECTOR).into(),
            seg_max: SEGMENTS_MAX.into(),
            block_size: self.block_bytes.into(),
            physical_exponent: stdx::num::low8(exponent.into()),
            min_io_size: low16(u64::from(optimal)).into(),
            opt_io_size: optimal.into(),
            writeback: 1,
            queues: stdx::num::u16_of(QUEUES_MAX).into(),
            discard_sectors_max: RANGE_SECTORS.into(),
            discard_segments_max: RANGES_MAX.into(),
            discard_alignment: block_sectors.into(),
            zeroes_sectors_max: RANGE_SECTORS.into(),
            zeroes_segments_max: RANGES_MAX.into(),
            zeroes_may_unmap: 1,
            ..Config::default()
        }
    }

    /// Bytes of the device that a request names.
    fn span(&self, sector: u64, bytes: u64) -> Result<Span, Status> {
        let offset = sector.checked_mul(SECTOR).ok_or(Status::Error)?;
        let end = offset.checked_add(bytes).ok_or(Status::Error)?;
        if end > self.size || !bytes.is_multiple_of(SECTOR) {
            return Err(Status::Error);
        }
        Ok(Span { offset, length: bytes })
    }

    /// A range of a discard or of write zeroes, and whether it may be deallocated.
    ///
    /// # Errors
    /// The status to answer.
    pub fn range(&self, range: &RangeHead, order: Order) -> Result<(Span, bool), Status> {
        let (sectors, flags) = (range.sectors.get(), range.flags.get());
        let known = if order == Order::Discard { 0 } else { UNMAP };
        if flags & !known != 0 {
            return Err(Status::Unsupported);
        }
        if sectors > RANGE_SECTORS {
            return Err(Status::Error);
        }
        let span = self.span(range.sector.get(), u64::from(sectors) * SECTOR)?;
        Ok((span, flags & UNMAP != 0))
    }
}

/// What is done to ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Discard,
    Zeroes,
}

/// A request that may be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Read(Span),
    Write(Span),
    Flush,
    /// The device's name is asked for.
    Id,
    /// Something is done to so many ranges.
    Ranges(Order, u32),
}

impl Request {
    /// What a request is: `out` bytes of data follow its head, and there is room for `room` bytes before its status.
    ///
    /// # Errors
    /// The status to answer.
    pub fn parse(device: &Device, head: &RequestHead, out: u64, room: u64) -> Result<Self, Status> {
        let sector = head.sector.get();
        let order = |order| {
            let bytes = size_of::<RangeHead>() as u64;
            let count = out / bytes;
            let sound = out.is_multiple_of(bytes) && (1..=RANGES_MAX.into()).contains(&count);
            if sound { Ok(Self::Ranges(order, low32(count))) } else { Err(Status::Error) }
        };
        let changes = matches!(head.kind.get(), kind::OUT | kind::DISCARD | kind::WRITE_ZEROES);
        if changes && device.read_only {
            return Err(Status::Error);
        }
        match head.kind.get() {
            kind::IN => device.span(sector, room).map(Self::Read),
            kind::OUT => device.span(sector, out).map(Self::Write),
            kind::FLUSH => Ok(Self::Flush),
            kind::GET_ID => Ok(Self::Id),
            kind::DISCARD if device.trims => order(Order::Discard),
            kind::WRITE_ZEROES => order(Order::Zeroes),
            _ => Err(Status::Unsupported),
        }
    }
}
