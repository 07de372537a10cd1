//! Asking an NVMe drive for its SMART / Health log page, by the kernel's passthrough.
#![allow(unsafe_code, reason = "ioctl has no safe wrapper")]

use crate::controller::Controller;
use crate::drive::Drive;
use crate::error::{Error, Result};
use crate::sysfs;
use nvme::identify::NSID_ALL;
use nvme::log::{GetLogPage, lid};
use nvme::status::Status;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Bytes of the page.
const PAGE: usize = 512;

/// `struct nvme_passthru_cmd` of the kernel's `linux/nvme_ioctl.h`.
#[derive(Default)]
#[repr(C)]
struct Passthrough {
    opcode: u8,
    flags: u8,
    reserved: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    address: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    result: u32,
}
const _: () = assert!(size_of::<Passthrough>() == 72);
const _: () = assert!(offset_of!(Passthrough, address) == 24);
const _: () = assert!(offset_of!(Passthrough, cdw10) == 40);
const _: () = assert!(offset_of!(Passthrough, result) == 68);

/// `NVME_IOCTL_ADMIN_CMD`: `_IOWR('N', 0x41, struct nvme_passthru_cmd)`.
pub(crate) const ADMIN_COMMAND: libc::Ioctl = libc::_IOWR::<Passthrough>(b'N' as u32, 0x41);

/// What is needed to ask.
const NEEDS: &str =
    "CAP_SYS_ADMIN, and to be the node's owner, or in group disk for the node of the namespace";

/// The page of the first of the drive's controllers that gives it. The last one's error when none does.
pub(crate) fn page(dev: &Path, drive: &Drive) -> Result<[u8; PAGE]> {
    let mut failed = Error::Gone { drive: drive.kernel_name.clone() };
    for controller in &drive.controllers {
        match ask(dev, drive, controller) {
            Ok(page) => return Ok(page),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Asks one controller: by its own node, or by that of the namespace when it cannot be opened.
fn ask(dev: &Path, drive: &Drive, controller: &Controller) -> Result<[u8; PAGE]> {
    // Of one that is not live the kernel would hold the command back, or refuse it.
    if let Some(state) = controller.not_live() {
        return Err(Error::NotLive { controller: controller.name.clone(), state });
    }
    let path = dev.join(&controller.name);
    let unopened = match open(&path, &controller.path) {
        Ok(node) => return get_log_page(&node, &path, drive),
        Err(error) => error,
    };
    let path = dev.join(&drive.kernel_name);
    match open(&path, &drive.disk) {
        Ok(node) => get_log_page(&node, &path, drive),
        // Why it could not be asked the usual way says more.
        Err(_) => Err(unopened),
    }
}

/// Opens the node `path` of the device whose folder in sysfs is `device`.
fn open(path: &Path, device: &Path) -> Result<File> {
    let failed = |source| Error::of("open", path, NEEDS, source);
    // Commands need no right to write; whatever else lies there must not be waited for.
    let mut options = OpenOptions::new();
    let node = options.read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?;
    let number = node.metadata().map_err(failed)?.rdev();
    let number = format!("{}:{}", libc::major(number), libc::minor(number));
    // In a container, or after a drive went and another came, the node may be another's.
    match sysfs::text(&device.join("dev")) {
        Some(meant) if meant == number => Ok(node),
        _ => Err(failed(io::Error::other("the node is another device's"))),
    }
}

/// One Get Log Page command of the page of the whole controller.
fn get_log_page(node: &File, path: &Path, drive: &Drive) -> Result<[u8; PAGE]> {
    let mut page = [0; PAGE];
    let sqe = GetLogPage {
        // What is asked for the drive's health must not take an event from who waits for it.
        retain_event: true,
        ..GetLogPage::new(lid::SMART, NSID_ALL, stdx::num::u64_of(PAGE))
    }
    .to_sqe(0);
    let mut command = Passthrough {
        opcode: sqe.opcode,
        nsid: sqe.nsid.get(),
        address: stdx::num::u64_of(page.as_mut_ptr().expose_provenance()),
        data_len: stdx::num::u32_of(PAGE),
        cdw10: sqe.cdw10.get(),
        cdw11: sqe.cdw11.get(),
        cdw12: sqe.cdw12.get(),
        cdw13: sqe.cdw13.get(),
        cdw14: sqe.cdw14.get(),
        // 0 is the kernel's own, 60 s. Less would have it reset a drive that is only slow.
        timeout_ms: 0,
        ..Passthrough::default()
    };
    // SAFETY: `command` is the structure that this ioctl reads and writes, by its number. It has the kernel write
    // `data_len` bytes to `address`: `page`, which is as long and outlives the call. No pointer stays behind.
    let rc = unsafe { libc::ioctl(node.as_raw_fd(), ADMIN_COMMAND, &raw mut command) };
    let name = || drive.kernel_name.clone();
    match rc {
        0 => Ok(page),
        // More than 0 is the completion's status, without its phase.
        1.. => Err(Error::Refused { drive: name(), status: status(rc) }),
        _ => {
            let source = io::Error::last_os_error();
            Err(match source.raw_os_error() {
                Some(libc::ENODEV | libc::ENXIO) => Error::Gone { drive: name() },
                // The kernel's word for a command that it cancelled after its time.
                Some(libc::EINTR) => Error::NoAnswer { drive: name() },
                _ => Error::of("ask for the health of", path, NEEDS, source),
            })
        }
    }
}

/// The status that the ioctl gave.
pub(crate) fn status(rc: i32) -> Status {
    Status::from_field(stdx::num::low16(u64::from(rc.unsigned_abs()) << 1))
}
