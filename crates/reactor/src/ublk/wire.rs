//! What the driver and a process say to each other, in bytes.

/// Commands to the driver and of a queue, by number; on the wire as ioctl(2) encodes them.
pub mod number {
    pub const INFO: u32 = 0x02;
    pub const ADD: u32 = 0x04;
    pub const DELETE: u32 = 0x05;
    pub const START: u32 = 0x06;
    pub const STOP: u32 = 0x07;
    pub const SET_PARAMETERS: u32 = 0x08;
    pub const START_RECOVERY: u32 = 0x10;
    pub const END_RECOVERY: u32 = 0x11;
    pub const UPDATE_SIZE: u32 = 0x15;
    pub const FETCH: u32 = 0x20;
    pub const COMMIT_AND_FETCH: u32 = 0x21;
}

/// `_IOWR('u', number, bytes)`; `_IOR` of what only asks.
pub const fn encoded(number: u32, bytes: u32) -> u32 {
    let direction = if number == number::INFO { 0b10 } else { 0b11 };
    direction << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

/// Bytes of the kernel's structures.
pub const CONTROL_BYTES: u32 = 32;
pub const IO_BYTES: u32 = 16;
const INFO_BYTES: usize = 64;
pub const DESCRIPTOR_BYTES: usize = 24;
const PARAMETER_BYTES: usize = 8 + 32 + 20;

/// Of a device's flags.
pub mod flag {
    /// Requests wait for the next process when this one ends.
    pub const RECOVERY: u64 = 1 << 3;
    /// It gets those, too, that this one had not answered.
    pub const REISSUE: u64 = 1 << 4;
    /// Commands are encoded as ioctl(2) does.
    pub const IOCTL_ENCODE: u64 = 1 << 6;
    /// Data is copied by pread(2) and pwrite(2).
    pub const USER_COPY: u64 = 1 << 7;
}

/// [`Info::state`]: nobody serves it, and it waits for somebody.
const QUIESCED: u16 = 2;

/// Where data is in the device's file: from here on, with queue and tag in the upper bits of the offset.
const DATA_AT: u64 = 0x8000_0000;
const TAG_SHIFT: u32 = 25;
const QUEUE_SHIFT: u32 = 41;

/// Where a tag's data is in the device's file, from byte `at` on.
pub fn place(queue: u16, tag: u16, at: u32) -> u64 {
    DATA_AT + (u64::from(queue) << QUEUE_SHIFT) + (u64::from(tag) << TAG_SHIFT) + u64::from(at)
}

/// Where a queue's descriptors are in the device's file: as far apart as those of the deepest queue would be.
pub fn descriptors(queue: u16) -> u64 {
    const DEEPEST: u64 = 4096;
    u64::from(queue) * (DEEPEST * DESCRIPTOR_BYTES as u64).next_multiple_of(4096)
}

/// `struct ublksrv_ctrl_dev_info`, what is used of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    pub queues: u16,
    pub depth: u16,
    pub state: u16,
    pub request_bytes: u32,
    pub id: u32,
    /// Who serves it, or did.
    pub process: u32,
    pub flags: u64,
    /// The driver keeps it and makes nothing of it.
    pub owner: u64,
}

impl Info {
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(INFO_BYTES);
        for half in [self.queues, self.depth, self.state, 0] {
            bytes.extend(half.to_ne_bytes());
        }
        for word in [self.request_bytes, self.id, self.process, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(self.flags.to_ne_bytes());
        bytes.extend(self.owner.to_ne_bytes());
        bytes.resize(INFO_BYTES, 0);
        bytes
    }

    /// # Panics
    /// When they are fewer than the driver gives.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|n| bytes[at + n]));
        let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|n| bytes[at + n]));
        Self {
            queues: half(0),
            depth: half(2),
            state: half(4),
            request_bytes: word(8),
            id: word(12),
            process: word(16),
            flags: long(24),
            owner: long(32),
        }
    }

    /// Whether nobody serves it, and somebody may.
    pub fn is_left(self) -> bool {
        self.state == QUIESCED && self.flags & flag::RECOVERY != 0
    }
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Sectors of 512 bytes.
    pub sectors: u64,
    /// Logical block, as a power of two.
    pub block_shift: u8,
    /// What it is best written in, likewise.
    pub optimal_shift: u8,
    /// Bytes of one request.
    pub request_bytes: u32,
    pub read_only: bool,
    /// There is something to flush.
    pub volatile_cache: bool,
    /// Sectors of one discard; 0 when there is none.
    pub discard_sectors: u32,
    /// Sectors that are zeroed at once.
    pub zeroes_sectors: u32,
}

impl Parameters {
    /// `struct ublk_params` with basic and discard parameters.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let bit = |set: bool, bit: u32| if set { 1u32 << bit } else { 0 };
        let attributes =
            bit(self.read_only, 0) | bit(self.volatile_cache, 2) | bit(self.volatile_cache, 3);
        let discards = self.discard_sectors > 0 || self.zeroes_sectors > 0;
        let mut bytes = Vec::with_capacity(PARAMETER_BYTES);
        let length = u32::try_from(PARAMETER_BYTES).unwrap_or(0);
        bytes.extend(length.to_ne_bytes());
        bytes.extend((1 | bit(discards, 1)).to_ne_bytes());
        bytes.extend(attributes.to_ne_bytes());
        let optimal = self.optimal_shift.max(self.block_shift);
        bytes.extend([self.block_shift, optimal, optimal, self.block_shift]);
        bytes.extend((self.request_bytes / 512).to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend(self.sectors.to_ne_bytes());
        bytes.extend(0u64.to_ne_bytes());
        let granularity = 1u32 << self.block_shift;
        for word in [granularity, granularity, self.discard_sectors, self.zeroes_sectors] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(1u16.to_ne_bytes());
        bytes.extend(0u16.to_ne_bytes());
        debug_assert_eq!(bytes.len(), PARAMETER_BYTES);
        bytes
    }
}

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes,
    Other(u8),
}

/// A request, as the kernel describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    pub order: Order,
    /// Durable when it ends (`UBLK_IO_F_FUA`).
    pub fua: bool,
    /// Zeroes are not to be deallocated (`UBLK_IO_F_NOUNMAP`).
    pub no_unmap: bool,
    /// Sectors of 512 bytes.
    pub first: u64,
    pub sectors: u32,
}

impl Descriptor {
    pub(super) fn from_bytes(bytes: &[u8; DESCRIPTOR_BYTES]) -> Self {
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let first: [u8; 8] = std::array::from_fn(|at| bytes[8 + at]);
        let flags = word(0);
        let order = match flags.to_le_bytes()[0] {
            0 => Order::Read,
            1 => Order::Write,
            2 => Order::Flush,
            3 => Order::Discard,
            5 => Order::WriteZeroes,
            other => Order::Other(other),
        };
        Self {
            order,
            fua: flags & 1 << 13 != 0,
            no_unmap: flags & 1 << 15 != 0,
            first: u64::from_ne_bytes(first),
            sectors: word(4),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_numbered_as_the_kernel_does() {
        assert_eq!(encoded(number::ADD, CONTROL_BYTES), 0xc020_7504);
        assert_eq!(encoded(number::FETCH, IO_BYTES), 0xc010_7520);
        assert_eq!(encoded(number::INFO, CONTROL_BYTES), 0x8020_7502);
    }

    #[test]
    fn what_a_device_is_goes_there_and_back() {
        let info = Info {
            queues: 4,
            depth: 128,
            state: 2,
            request_bytes: 1 << 19,
            id: 7,
            process: 4711,
            flags: flag::RECOVERY | flag::USER_COPY,
            owner: u64::MAX - 1,
        };
        let bytes = info.to_bytes();
        assert_eq!((bytes.len(), Info::from_bytes(&bytes)), (INFO_BYTES, info));
        assert!(info.is_left() && !Info { state: 1, ..info }.is_left());
        assert!(!Info { flags: 0, ..info }.is_left());
    }

    #[test]
    fn queues_and_tags_do_not_share_places() {
        assert_eq!(descriptors(1), 24 * 4096);
        assert_eq!(place(0, 1, 0) - place(0, 0, 0), 1 << 25);
        assert_eq!(place(1, 0, 0) - place(0, 0, 0), 1 << 41);
    }

    #[test]
    fn a_descriptor_is_read() {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        bytes[..4].copy_from_slice(&(1u32 | 1 << 13).to_ne_bytes());
        bytes[4..8].copy_from_slice(&8u32.to_ne_bytes());
        bytes[8..16].copy_from_slice(&0x1_0000_0002u64.to_ne_bytes());
        let read = Descriptor::from_bytes(&bytes);
        let (order, first) = (Order::Write, 0x1_0000_0002);
        assert_eq!(read, Descriptor { order, fua: true, no_unmap: false, first, sectors: 8 });
    }
}
