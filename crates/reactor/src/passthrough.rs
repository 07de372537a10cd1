//! NVMe namespaces through their generic character devices (`/dev/ngXnY`): commands as the drive itself knows them,
//! through the [ring for commands](crate::commands); admin commands by a call that blocks, as that of a namespace takes
//! none of them by io_uring. The structures are those of Linux' `include/uapi/linux/nvme_ioctl.h`.
#![allow(
    unsafe_code,
    reason = "commands carry pointers the kernel follows, and ioctl has no safe wrapper"
)]

mod admin;

use crate::buffer::Buffer;
use crate::commands::{Answer, CommandFuture, Held};
use crate::core;
use crate::driver::require_real;
use crate::file::{Change, Deadline, File, Unawaited, timed_out};
use crate::limits::DEADLINE_STEPS;
use crate::timer::{Elapsed, timeout_attended};
use io_uring::{opcode, types};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stdx::num::{u32_of, u64_of};

/// Bytes of `struct nvme_uring_cmd`, and of `struct nvme_passthru_cmd`, which differ in their last field only: reserved
/// there, the result here.
const WIRE_BYTES: usize = 72;

/// `NVME_URING_CMD_IO`: `_IOWR('N', 0x80, struct nvme_uring_cmd)`.
const IO_COMMAND: u32 = 0xc048_4e80;
/// `NVME_IOCTL_ADMIN_CMD`: `_IOWR('N', 0x41, struct nvme_passthru_cmd)`.
const ADMIN_COMMAND: libc::Ioctl = libc::_IOWR::<[u8; WIRE_BYTES]>(b'N' as u32, 0x41);
/// `NVME_IOCTL_ID`: `_IO('N', 0x40)`.
const NAMESPACE_ID: libc::Ioctl = libc::_IO(b'N' as u32, 0x40);

/// A command, but for its namespace and the place of its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Command {
    pub opcode: u8,
    /// Command Dwords 2 and 3.
    pub cdw2: u32,
    pub cdw3: u32,
    /// Command Dwords 10 to 15.
    pub cdw10: [u32; 6],
}

/// How a drive completed a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The completion's status field without its phase; 0 is success.
    pub status: u16,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
}

/// How long a command may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As reads, writes and flushes.
    Transfer,
    /// As what frees and zeroes space.
    Space,
}

/// A namespace that is open. May be used on every reactor; cloning shares it.
#[derive(Clone, Debug)]
pub struct Device {
    file: File,
    nsid: u32,
    deadline: Deadline,
    admin: Arc<admin::Turns>,
}

impl Device {
    /// Opens the generic character device at `path` for reading and writing. Blocks: for set-up.
    ///
    /// # Errors
    /// As open(2); `Unsupported` for what is no such device, and in simulation.
    pub fn open(path: &Path, deadline: Deadline) -> io::Result<Self> {
        require_real()?;
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open(path)?;
        if !file.metadata()?.file_type().is_char_device() {
            return Err(unsupported("no character device"));
        }
        // SAFETY: NVME_IOCTL_ID takes no argument.
        let nsid = unsafe { libc::ioctl(file.as_raw_fd(), NAMESPACE_ID) };
        let nsid = u32::try_from(nsid).ok().filter(|&nsid| nsid > 0);
        let nsid = nsid.ok_or_else(|| unsupported("no namespace of an NVMe drive"))?;
        let file = File::of_character(file, path, deadline)?;
        Ok(Self { file, nsid, deadline, admin: Arc::default() })
    }

    /// The namespace's identifier at its drive.
    #[must_use]
    pub const fn nsid(&self) -> u32 {
        self.nsid
    }

    /// Whether nobody else can still change what the drive keeps: see [`File::is_alone`].
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.file.is_alone()
    }

    /// Changes that did not end in time, and that the drive may still make.
    #[must_use]
    pub fn late_changes(&self) -> usize {
        self.file.late_changes()
    }

    /// Has the drive execute an admin command that returns `bytes` bytes, on namespace `nsid` of its own, and waits for
    /// it `within` that time. It is done by a thread of its own, one at a time for each device: who comes second waits,
    /// and is refused where the one before him has waited for as long as he would. I/O commands wait for none of it.
    ///
    /// # Errors
    /// As [`ask_now`](Self::ask_now); `TimedOut` where no answer came in time: the thread waits on, and gives the answer
    /// to nobody.
    pub async fn ask(
        &self,
        command: &Command,
        nsid: u32,
        bytes: usize,
        within: Duration,
    ) -> io::Result<Result<Vec<u8>, Completion>> {
        let (device, command) = (self.clone(), *command);
        self.admin.run(within, move || device.ask_now(&command, nsid, bytes)).await
    }

    /// As [`ask`](Self::ask), but blocks as long as the kernel waits for an admin command, a minute: for set-up. The
    /// kernel's time is not shortened, as it resets a drive that lets it pass.
    ///
    /// # Errors
    /// As the ioctl; `PermissionDenied` for a command that the kernel leaves to root: all but Identify, and before Linux
    /// 6.2 that, too.
    pub fn ask_now(
        &self,
        command: &Command,
        nsid: u32,
        bytes: usize,
    ) -> io::Result<Result<Vec<u8>, Completion>> {
        let mut page = vec![0; bytes];
        let data = (page.as_mut_ptr().expose_provenance(), page.len());
        let mut wire = encode(command, nsid, data, 0);
        // SAFETY: `wire` is the structure that this ioctl reads and writes, by its number. It has the kernel read or
        // write as many bytes as `page` has there, which outlives the call. No pointer stays behind.
        let rc = unsafe { libc::ioctl(self.file.as_raw_fd(), ADMIN_COMMAND, wire.as_mut_ptr()) };
        match rc {
            0 => Ok(Ok(page)),
            1.. => Ok(Err(Completion { status: status(rc), result: 0 })),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Has the drive execute an I/O command on all the bytes that `buffer` shows, in whichever direction the command
    /// moves them, and gives that back. `changes` tells that it changes what is kept: where it does not end in
    /// time, it counts among the [late ones](Self::late_changes) until it does.
    ///
    /// # Errors
    /// `Interrupted` for a command that the kernel gave up: it was not answered in time, or the drive went away, and nobody
    /// knows whether it was executed. `TimedOut` for one that the kernel still has. As the driver otherwise.
    pub async fn run(
        &self,
        command: &Command,
        mut buffer: Option<Buffer>,
        pace: Pace,
        changes: bool,
    ) -> (io::Result<Completion>, Option<Buffer>) {
        let within = match pace {
            Pace::Transfer => self.deadline.transfer,
            Pace::Space => self.deadline.space,
        };
        let length = buffer.as_ref().map_or(0, |buffer| buffer.len());
        let file = self.file.local();
        let change = changes.then(|| Change::begin(&file));
        let place = match file.place(length, Some(within)).await {
            Ok(place) => place,
            Err(e) => return (Err(e), buffer),
        };
        let address = buffer.as_mut().map_or(0, |buffer| buffer.as_mut_ptr().expose_provenance());
        let wire = encode(command, self.nsid, (address, length), milliseconds(within));
        let mut bytes = [0; 80];
        bytes[..WIRE_BYTES].copy_from_slice(&wire);
        let fd = types::Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd80::new(fd, IO_COMMAND).cmd(bytes).build();
        let started = core::with(|core| match core.commands() {
            // SAFETY: the entry points into the buffer, whose memory does not move with it, and names the file.
            Ok(ring) => Ok(unsafe { ring.start(entry, Held { file, buffer, place, change }) }),
            Err(e) => Err((e, buffer)),
        });
        match started {
            Ok(op) => finish(op, within).await,
            Err((e, buffer)) => (Err(e), buffer),
        }
    }
}

async fn finish(
    mut op: CommandFuture,
    within: Duration,
) -> (io::Result<Completion>, Option<Buffer>) {
    match timeout_attended(within, DEADLINE_STEPS, &mut op).await {
        Ok((answer, buffer)) => (completion(answer), buffer),
        Err(Elapsed) => {
            op.leave(Unawaited::Late);
            (Err(timed_out()), None)
        }
    }
}

fn completion(Answer { outcome, result }: Answer) -> io::Result<Completion> {
    match outcome {
        0.. => Ok(Completion { status: status(outcome), result }),
        _ => Err(io::Error::from_raw_os_error(-outcome)),
    }
}

/// The status that the kernel gave: more than 0, and never more than the field's 15 bits.
fn status(outcome: i32) -> u16 {
    u16::try_from(outcome).unwrap_or(u16::MAX >> 1)
}

fn milliseconds(within: Duration) -> u32 {
    u32::try_from(within.as_millis()).unwrap_or(u32::MAX)
}

fn unsupported(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, what)
}

/// A command as the kernel wants it: opcode at 0, flags at 1, NSID at 4, CDW2 and CDW3, metadata at 16, data at 24, bytes of
/// metadata at 32 and of data at 36, CDW10 to CDW15 from 40 on, milliseconds at 64.
fn encode(
    command: &Command,
    nsid: u32,
    (address, length): (usize, usize),
    milliseconds: u32,
) -> [u8; WIRE_BYTES] {
    let mut wire = [0; WIRE_BYTES];
    let mut put = |at: usize, bytes: &[u8]| wire[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[command.opcode]);
    put(4, &nsid.to_ne_bytes());
    put(8, &command.cdw2.to_ne_bytes());
    put(12, &command.cdw3.to_ne_bytes());
    put(24, &u64_of(address).to_ne_bytes());
    put(36, &u32_of(length).to_ne_bytes());
    for (dword, at) in command.cdw10.iter().zip((40..).step_by(4)) {
        put(at, &dword.to_ne_bytes());
    }
    put(64, &milliseconds.to_ne_bytes());
    wire
}

#[cfg(test)]
mod tests;
