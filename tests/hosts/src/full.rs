//! Pools whose drives are files on file systems that get full: the array and its host are in one guest.
use crate::array::act;
use crate::guest::{Equipment, Guest};
use crate::target::program;
use crate::{Kernel, Result, machine, shell};
use std::ffi::OsString;
use std::fs::{self, File};
use std::process::Command;
use tempfile::TempDir;

/// Bytes of the devices for ext4 and xfs: the least that mkfs.xfs takes, and some.
const BYTES: u64 = 320 << 20;

/// # Panics
/// When anything acknowledged is lost, or a full file system is more than a lack of space: this is the
/// body of a test.
pub fn run(kernel: Kernel) {
    if let Err(error) = fills(kernel) {
        panic!("{kernel:?}: {error}");
    }
}

fn fills(kernel: Kernel) -> Result<()> {
    machine::prepare()?;
    let home = TempDir::new()?;
    let folder = home.path().join("guest");
    fs::create_dir(&folder)?;
    // Symbols would be most of what the guest unpacks.
    shell::run(Command::new("strip").arg("-o").arg(folder.join("flashloom")).arg(program()?))?;
    let mut devices: Vec<OsString> = Vec::new();
    for name in ["ext4", "xfs"] {
        let image = home.path().join(name);
        File::create(&image)?.set_len(BYTES)?;
        devices.push("-drive".into());
        let options = "if=virtio,format=raw,cache=unsafe,discard=unmap";
        devices.push(format!("file={},{options}", image.display()).into());
    }
    let equipment = Equipment { devices, folder: Some(folder), ..Equipment::default() };
    let mut guest = Guest::boot(kernel, &equipment)?;
    act(&mut guest, "array/full")
}
