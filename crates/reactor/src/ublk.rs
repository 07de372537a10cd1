//! Block devices of this kernel that a process serves (ublk): Linux' `include/uapi/linux/ublk_cmd.h` and
//! `Documentation/block/ublk.rst`. Needs the `ublk_drv` module of Linux 6.5 or later, and root.
//!
//! Data is copied by calls (`UBLK_F_USER_COPY`): the kernel never has an address of ours.
#![allow(unsafe_code, reason = "commands through the ring, and positional reads of a device")]

use crate::blocking;
use crate::core;
use crate::limits::{UBLK_DEPTH_MAX, UBLK_OPEN_NANOS, UBLK_OPEN_PAUSE};
use crate::ring::{Hold, OpFuture};
use crate::shared::Mapping;
use crate::time::now;
use crate::timer::sleep;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use stdx::num::{u16_of, u64_of};

const CONTROL: &str = "/dev/ublk-control";

/// Commands to the driver and of a queue, by number; on the wire as ioctl(2) encodes them.
mod number {
    pub const ADD: u32 = 0x04;
    pub const DELETE: u32 = 0x05;
    pub const START: u32 = 0x06;
    pub const STOP: u32 = 0x07;
    pub const SET_PARAMETERS: u32 = 0x08;
    pub const FETCH: u32 = 0x20;
    pub const COMMIT_AND_FETCH: u32 = 0x21;
}

/// `_IOWR('u', number, bytes)`.
const fn encoded(number: u32, bytes: u32) -> u32 {
    0b11 << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

/// Bytes of the kernel's structures.
const CONTROL_BYTES: u32 = 32;
const IO_BYTES: u32 = 16;
const INFO_BYTES: usize = 64;
const DESCRIPTOR_BYTES: usize = 24;
const PARAMETER_BYTES: usize = 8 + 32 + 20;

/// Of a device's flags: commands are encoded as ioctl(2) does.
const IOCTL_ENCODE: u64 = 1 << 6;
/// Of a device's flags: data is copied by pread(2) and pwrite(2).
const USER_COPY: u64 = 1 << 7;

/// Where data is in the device's file: from here on, with queue and tag in the upper bits of the offset.
const DATA_AT: u64 = 0x8000_0000;
const TAG_SHIFT: u32 = 25;

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
    fn to_bytes(self) -> Vec<u8> {
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
    fn from_bytes(bytes: &[u8; DESCRIPTOR_BYTES]) -> Self {
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

/// A command to the driver, on a helper thread and a ring of its own: some wait for I/O that this reactor does.
/// Gives `buffer` back, which the kernel reads or fills in.
async fn control(number: u32, device: u32, data: u64, mut buffer: Vec<u8>) -> io::Result<Vec<u8>> {
    blocking(move || {
        let file = File::options().read(true).write(true).open(CONTROL)?;
        let mut ring: IoUring<squeue::Entry128, cqueue::Entry> = IoUring::builder().build(1)?;
        let mut command = [0u8; 80];
        command[..4].copy_from_slice(&device.to_ne_bytes());
        command[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
        command[6..8].copy_from_slice(&u16_of(buffer.len()).to_ne_bytes());
        command[8..16]
            .copy_from_slice(&u64_of(buffer.as_mut_ptr().expose_provenance()).to_ne_bytes());
        command[16..24].copy_from_slice(&data.to_ne_bytes());
        let operation = encoded(number, CONTROL_BYTES);
        let fd = types::Fd(file.as_raw_fd());
        let entry = opcode::UringCmd80::new(fd, operation).cmd(command).build();
        // SAFETY: the command names `buffer`, which is not touched before the completion.
        unsafe { ring.submission().push(&entry) }.map_err(|_| io::ErrorKind::QuotaExceeded)?;
        loop {
            match ring.submit_and_wait(1) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
                Ok(_) => {}
            }
            let done = ring.completion().next();
            if let Some(done) = done {
                let failed = done.result() < 0;
                return if failed {
                    Err(io::Error::from_raw_os_error(-done.result()))
                } else {
                    Ok(buffer)
                };
            }
        }
    })
    .await
}

/// A device with one queue, which this reactor serves. Delete it when done: it outlives this otherwise, and
/// what uses it sees errors.
pub struct Device {
    id: u32,
    depth: u16,
    fd: Rc<OwnedFd>,
    file: File,
    descriptors: Mapping,
}

impl Device {
    /// Makes a device with room for `depth` requests; the kernel chooses its number. It is to be seen after
    /// [`Device::start`].
    ///
    /// # Errors
    /// As the driver: not allowed, or `NotFound` when there is none.
    pub async fn create(parameters: Parameters, depth: u16) -> io::Result<Self> {
        assert!((1..=UBLK_DEPTH_MAX).contains(&depth), "a depth that no device has");
        let mut info = vec![0u8; INFO_BYTES];
        info[..2].copy_from_slice(&1u16.to_ne_bytes());
        info[2..4].copy_from_slice(&depth.to_ne_bytes());
        info[8..12].copy_from_slice(&parameters.request_bytes.to_ne_bytes());
        info[12..16].copy_from_slice(&u32::MAX.to_ne_bytes());
        info[24..32].copy_from_slice(&(IOCTL_ENCODE | USER_COPY).to_ne_bytes());
        let info = control(number::ADD, u32::MAX, 0, info).await?;
        let id = u32::from_ne_bytes([info[12], info[13], info[14], info[15]]);
        let flags = info[24..32].try_into().map_or(0, u64::from_ne_bytes);
        let made = async {
            if flags & USER_COPY == 0 {
                let words = "the kernel's ublk driver has no user copy: it came with Linux 6.5";
                return Err(io::Error::new(io::ErrorKind::Unsupported, words));
            }
            control(number::SET_PARAMETERS, id, 0, parameters.to_bytes()).await?;
            Self::open(id, depth).await
        };
        match made.await {
            Ok(device) => Ok(device),
            Err(error) => {
                // It is of no use: the first error tells why.
                let _ = control(number::DELETE, id, 0, Vec::new()).await;
                Err(error)
            }
        }
    }

    async fn open(id: u32, depth: u16) -> io::Result<Self> {
        let path = format!("/dev/ublkc{id}");
        let until = now() + UBLK_OPEN_NANOS;
        let file = loop {
            // udev makes the node, in its own time.
            match File::options().read(true).write(true).open(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound && now() < until => {
                    sleep(UBLK_OPEN_PAUSE).await;
                }
                other => break other?,
            }
        };
        let bytes = usize::from(depth) * DESCRIPTOR_BYTES;
        let descriptors = Mapping::of_device(&file, 0, bytes.next_multiple_of(4096))?;
        let fd = Rc::new(OwnedFd::from(file.try_clone()?));
        Ok(Self { id, depth, fd, file, descriptors })
    }

    /// The block device.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/dev/ublkb{}", self.id)
    }

    /// Has it appear. Every tag must have been fetched before, and is served meanwhile: the kernel looks for
    /// partitions.
    ///
    /// # Errors
    /// As the driver.
    pub async fn start(&self) -> io::Result<()> {
        let process = u64::from(std::process::id());
        control(number::START, self.id, process, Vec::new()).await.map(drop)
    }

    /// Has it vanish: fetches end with an error. Requests in flight are served meanwhile.
    ///
    /// # Errors
    /// As the driver.
    pub async fn stop(&self) -> io::Result<()> {
        control(number::STOP, self.id, 0, Vec::new()).await.map(drop)
    }

    /// Removes it, and waits until the last who has it open has closed it, this one among them.
    ///
    /// # Errors
    /// As the driver.
    pub async fn delete(self) -> io::Result<()> {
        let id = self.id;
        drop(self);
        control(number::DELETE, id, 0, Vec::new()).await.map(drop)
    }

    /// Waits for the first request of a tag.
    ///
    /// # Errors
    /// `NotConnected` when the device is being stopped; as the driver; when the ring takes no more operations.
    pub async fn fetch(&self, tag: u16) -> io::Result<Descriptor> {
        self.next(number::FETCH, tag, 0).await
    }

    /// Ends a tag's request, with the bytes it moved or an error number, and waits for its next.
    ///
    /// # Errors
    /// As [`Device::fetch`].
    pub async fn commit(&self, tag: u16, result: Result<u32, i32>) -> io::Result<Descriptor> {
        let result = match result {
            Ok(bytes) => i32::try_from(bytes).unwrap_or(i32::MAX),
            Err(errno) => -errno,
        };
        self.next(number::COMMIT_AND_FETCH, tag, result).await
    }

    async fn next(&self, number: u32, tag: u16, result: i32) -> io::Result<Descriptor> {
        let (outcome, _) = self.command(number, tag, result)?.await;
        if outcome < 0 {
            return Err(io::Error::from_raw_os_error(-outcome));
        }
        let mut bytes = [0; DESCRIPTOR_BYTES];
        self.descriptors.read(usize::from(tag) * DESCRIPTOR_BYTES, &mut bytes);
        Ok(Descriptor::from_bytes(&bytes))
    }

    fn command(&self, number: u32, tag: u16, result: i32) -> io::Result<OpFuture> {
        assert!(tag < self.depth, "a tag that the queue does not have");
        // Queue 0, and no address: data is copied by calls.
        let mut command = [0u8; 16];
        command[2..4].copy_from_slice(&tag.to_ne_bytes());
        command[4..8].copy_from_slice(&result.to_ne_bytes());
        let fd = types::Fd(self.fd.as_raw_fd());
        let entry = opcode::UringCmd16::new(fd, encoded(number, IO_BYTES)).cmd(command).build();
        core::with(|core| {
            let ring = core.driver.ring()?;
            // SAFETY: the entry points to nothing; the descriptor stays open with the slot.
            unsafe { ring.start(entry, Hold::Fd(Rc::clone(&self.fd))) }.map_err(|(e, _)| e)
        })
    }

    fn place(tag: u16, at: u32) -> u64 {
        DATA_AT + (u64::from(tag) << TAG_SHIFT) + u64::from(at)
    }

    /// Copies data of a tag's write, from byte `at` on. A copy in memory, which does not wait for anything.
    ///
    /// # Errors
    /// As pread(2).
    pub fn read(&self, tag: u16, at: u32, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, Self::place(tag, at))
    }

    /// Copies data to a tag's read, to byte `at` and on.
    ///
    /// # Errors
    /// As pwrite(2).
    pub fn write(&self, tag: u16, at: u32, from: &[u8]) -> io::Result<()> {
        self.file.write_all_at(from, Self::place(tag, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_numbered_as_the_kernel_does() {
        assert_eq!(encoded(number::ADD, CONTROL_BYTES), 0xc020_7504);
        assert_eq!(encoded(number::FETCH, IO_BYTES), 0xc010_7520);
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
