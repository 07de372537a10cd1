//! Block devices of this kernel that a process serves (ublk): Linux' `include/uapi/linux/ublk_cmd.h` and
//! `Documentation/block/ublk.rst`. Needs the `ublk_drv` module of Linux 6.5 or later, and root.
//!
//! Data is copied by calls (`UBLK_F_USER_COPY`): the kernel never has an address of ours. A device outlives the
//! process that serves it, when that is killed: its requests wait, those that were not answered too
//! (`UBLK_F_USER_RECOVERY_REISSUE`), until another process takes it over.
#![allow(unsafe_code, reason = "commands through the ring, and positional reads of a device")]

mod wire;

use crate::blocking;
use crate::core;
use crate::limits::{UBLK_DEPTH_MAX, UBLK_OPEN_NANOS, UBLK_OPEN_PAUSE, UBLK_QUEUES_MAX};
use crate::ring::OpFuture;
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
use wire::{CONTROL_BYTES, DESCRIPTOR_BYTES, IO_BYTES, Info, encoded, flag, number};
pub use wire::{Descriptor, Order, Parameters};

const CONTROL: &str = "/dev/ublk-control";

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
                return answer(done.result()).map(|()| buffer);
            }
        }
    })
    .await
}

/// What the driver's answer to a command says.
fn answer(result: i32) -> io::Result<()> {
    /// Linux' `ENOTSUPP`, which is not for programs and which nothing has a name for: the driver said it of commands
    /// it does not know until it took to `EOPNOTSUPP`.
    const ENOTSUPP: i32 = 524;
    match -result {
        errno if errno <= 0 => Ok(()),
        ENOTSUPP => Err(io::ErrorKind::Unsupported.into()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// A place for one request of a device at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub queue: u16,
    pub tag: u16,
}

/// How much of a device there is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Queues, 1 to [`UBLK_QUEUES_MAX`]; the kernel makes no more than it has processors.
    pub queues: u16,
    /// Requests at once of each, 1 to [`UBLK_DEPTH_MAX`].
    pub depth: u16,
    /// By what another process knows the device as its own when this one was killed; 0 when none shall, and it
    /// vanishes.
    pub owner: u64,
}

/// A device, all of whose queues this reactor serves. Delete it when done: it outlives this otherwise, and what uses
/// it waits for who takes it over, or sees errors where nobody may.
pub struct Device {
    info: Info,
    /// It had been served by another process.
    taken: bool,
    fd: Rc<OwnedFd>,
    file: File,
    /// By queue.
    descriptors: Vec<Mapping>,
}

impl Device {
    /// Makes a device; the kernel chooses its number. It is to be seen after [`Device::start`].
    ///
    /// # Errors
    /// As the driver: not allowed, or `NotFound` when there is none.
    pub async fn create(parameters: Parameters, shape: Shape) -> io::Result<Self> {
        assert!((1..=UBLK_DEPTH_MAX).contains(&shape.depth), "a depth that no device has");
        assert!((1..=UBLK_QUEUES_MAX).contains(&shape.queues), "queues that no device has");
        let recovery = if shape.owner == 0 { 0 } else { flag::RECOVERY | flag::REISSUE };
        let wanted = Info {
            queues: shape.queues,
            depth: shape.depth,
            request_bytes: parameters.request_bytes,
            id: u32::MAX,
            flags: flag::IOCTL_ENCODE | flag::USER_COPY | recovery,
            owner: shape.owner,
            ..Info::default()
        };
        let info = control(number::ADD, u32::MAX, 0, wanted.to_bytes()).await?;
        let info = Info::from_bytes(&info);
        let made = async {
            if info.flags & flag::USER_COPY == 0 {
                let words = "the kernel's ublk driver has no user copy: it came with Linux 6.5";
                return Err(io::Error::new(io::ErrorKind::Unsupported, words));
            }
            control(number::SET_PARAMETERS, info.id, 0, parameters.to_bytes()).await?;
            Self::open(info, false).await
        };
        match made.await {
            Ok(device) => Ok(device),
            Err(error) => {
                // It is of no use: the first error tells why.
                let _ = control(number::DELETE, info.id, 0, Vec::new()).await;
                Err(error)
            }
        }
    }

    /// Takes over a device that a process with this `owner` left behind, when it was killed, if there is one. One
    /// whose process is just ending is waited for. It goes on after [`Device::start`].
    ///
    /// # Errors
    /// As the driver.
    pub async fn take_over(owner: u64) -> io::Result<Option<Self>> {
        let until = now() + UBLK_OPEN_NANOS;
        for id in blocking(numbers).await? {
            loop {
                let Ok(info) = Self::info(id).await else { break };
                if info.owner != owner || info.flags & flag::RECOVERY == 0 {
                    break;
                }
                if info.is_left() {
                    match control(number::START_RECOVERY, id, 0, Vec::new()).await {
                        Ok(_) => return Self::open(info, true).await.map(Some),
                        // What the process had open is not closed yet.
                        Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {}
                        Err(e) => return Err(e),
                    }
                } else if blocking(move || Ok(is_alive(info.process))).await? {
                    break;
                }
                if now() >= until {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                sleep(UBLK_OPEN_PAUSE).await;
            }
        }
        Ok(None)
    }

    async fn info(id: u32) -> io::Result<Info> {
        let bytes = control(number::INFO, id, 0, Info::default().to_bytes()).await?;
        Ok(Info::from_bytes(&bytes))
    }

    async fn open(info: Info, taken: bool) -> io::Result<Self> {
        let path = format!("/dev/ublkc{}", info.id);
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
        let bytes = (usize::from(info.depth) * DESCRIPTOR_BYTES).next_multiple_of(4096);
        let map = |queue| Mapping::of_device(&file, wire::descriptors(queue), bytes);
        let descriptors = (0..info.queues).map(map).collect::<io::Result<_>>()?;
        let fd = Rc::new(OwnedFd::from(file.try_clone()?));
        Ok(Self { info, taken, fd, file, descriptors })
    }

    /// The block device.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/dev/ublkb{}", self.info.id)
    }

    /// Whether it had been served by another process.
    #[must_use]
    pub fn is_taken_over(&self) -> bool {
        self.taken
    }

    /// Every place for a request: one that was taken over has those it was made with.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        let Info { queues, depth, .. } = self.info;
        (0..queues).flat_map(move |queue| (0..depth).map(move |tag| Slot { queue, tag }))
    }

    /// Has it appear, or go on. Every slot must have been fetched before, and is served meanwhile: the kernel looks for
    /// partitions.
    ///
    /// # Errors
    /// As the driver.
    pub async fn start(&self) -> io::Result<()> {
        let process = u64::from(std::process::id());
        let command = if self.taken { number::END_RECOVERY } else { number::START };
        control(command, self.info.id, process, Vec::new()).await.map(drop)
    }

    /// Gives it another size.
    ///
    /// # Errors
    /// `Unsupported` where the driver cannot: it came with Linux 6.16.
    pub async fn resize(&self, sectors: u64) -> io::Result<()> {
        control(number::UPDATE_SIZE, self.info.id, sectors, Vec::new()).await.map(drop)
    }

    /// Has it vanish: fetches end with an error. Requests in flight are served meanwhile.
    ///
    /// # Errors
    /// As the driver.
    pub async fn stop(&self) -> io::Result<()> {
        control(number::STOP, self.info.id, 0, Vec::new()).await.map(drop)
    }

    /// Removes it, and waits until the last who has it open has closed it, this one among them.
    ///
    /// # Errors
    /// As the driver.
    pub async fn delete(self) -> io::Result<()> {
        let id = self.info.id;
        drop(self);
        control(number::DELETE, id, 0, Vec::new()).await.map(drop)
    }

    /// Waits for the first request of a slot.
    ///
    /// # Errors
    /// `NotConnected` when the device is being stopped; as the driver; when the ring takes no more operations.
    pub async fn fetch(&self, slot: Slot) -> io::Result<Descriptor> {
        self.next(number::FETCH, slot, 0).await
    }

    /// Ends a slot's request, with the bytes it moved or an error number, and waits for its next.
    ///
    /// # Errors
    /// As [`Device::fetch`].
    pub async fn commit(&self, slot: Slot, result: Result<u32, i32>) -> io::Result<Descriptor> {
        let result = match result {
            Ok(bytes) => i32::try_from(bytes).unwrap_or(i32::MAX),
            Err(errno) => -errno,
        };
        self.next(number::COMMIT_AND_FETCH, slot, result).await
    }

    async fn next(&self, number: u32, slot: Slot, result: i32) -> io::Result<Descriptor> {
        let (outcome, _) = self.command(number, slot, result)?.await;
        if outcome < 0 {
            return Err(io::Error::from_raw_os_error(-outcome));
        }
        let mut bytes = [0; DESCRIPTOR_BYTES];
        let at = usize::from(slot.tag) * DESCRIPTOR_BYTES;
        self.descriptors[usize::from(slot.queue)].read(at, &mut bytes);
        Ok(Descriptor::from_bytes(&bytes))
    }

    fn command(&self, number: u32, slot: Slot, result: i32) -> io::Result<OpFuture> {
        assert!(slot.queue < self.info.queues && slot.tag < self.info.depth, "no such slot");
        // And no address: data is copied by calls.
        let mut command = [0u8; 16];
        command[..2].copy_from_slice(&slot.queue.to_ne_bytes());
        command[2..4].copy_from_slice(&slot.tag.to_ne_bytes());
        command[4..8].copy_from_slice(&result.to_ne_bytes());
        let fd = types::Fd(self.fd.as_raw_fd());
        let entry = opcode::UringCmd16::new(fd, encoded(number, IO_BYTES)).cmd(command).build();
        core::with(|core| {
            let ring = core.driver.ring()?;
            // SAFETY: the entry points to nothing.
            let started = unsafe { ring.start_wait(entry, &self.fd) };
            started.ok_or_else(|| io::ErrorKind::ResourceBusy.into())
        })
    }

    /// Copies data of a slot's write, from byte `at` on. A copy in memory, which does not wait for anything.
    ///
    /// # Errors
    /// As pread(2).
    pub fn read(&self, slot: Slot, at: u32, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, wire::place(slot.queue, slot.tag, at))
    }

    /// Copies data to a slot's read, to byte `at` and on.
    ///
    /// # Errors
    /// As pwrite(2).
    pub fn write(&self, slot: Slot, at: u32, from: &[u8]) -> io::Result<()> {
        self.file.write_all_at(from, wire::place(slot.queue, slot.tag, at))
    }
}

/// Numbers of the devices there are.
fn numbers() -> io::Result<Vec<u32>> {
    let entries = std::fs::read_dir("/dev")?.filter_map(Result::ok);
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.strip_prefix("ublkc")?.parse().ok()).collect())
}

/// Whether a process is there that has not ended.
fn is_alive(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything, comes the state.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Older drivers answer a command that they do not know, such as that for another size, by 524, which read "Unknown error 524".
    #[test]
    fn a_command_that_the_driver_does_not_know_is_unsupported() {
        const EOPNOTSUPP: i32 = 95;
        const EBUSY: i32 = 16;
        for unknown in [524, EOPNOTSUPP] {
            let error = answer(-unknown).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
            assert!(!error.to_string().contains("Unknown"), "{error}");
        }
        assert_eq!(answer(-EBUSY).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        assert!(answer(0).is_ok() && answer(1).is_ok());
    }
}
