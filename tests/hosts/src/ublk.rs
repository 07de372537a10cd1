//! A remote namespace, and a RAID set, as a block device of a guest's kernel: the program runs in the guest.
use crate::calls::Calls;
use crate::guest::{Equipment, Guest};
use crate::runner::LIMIT;
use crate::target::{Target, program};
use crate::{Kernel, Result, machine, shell};
use std::fs;
use std::process::Command;
use tempfile::TempDir;

/// Bytes of the namespace.
const BYTES: u64 = 64 << 20;

/// # Panics
/// When the device is not as it should be: this is the body of a test.
pub fn run(kernel: Kernel) {
    if let Err(error) = serves(kernel) {
        panic!("{kernel:?}: {error}");
    }
}

fn serves(kernel: Kernel) -> Result<()> {
    machine::prepare()?;
    let home = TempDir::new()?;
    let folder = home.path().join("guest");
    fs::create_dir(&folder)?;
    // Symbols would be most of what the guest unpacks.
    shell::run(Command::new("strip").arg("-o").arg(folder.join("flashloom")).arg(program()?))?;
    let target = Target::start(&format!("file:{BYTES}"), &["--block-size", "4096"], home.path())?;
    let mut calls = Calls::with(target)?;
    let equipment = Equipment { folder: Some(folder), ..Equipment::default() };
    let mut guest = Guest::boot(kernel, &equipment)?;
    for script in ["attach/ublk", "attach/pair"] {
        let outcome = guest.scenario(script, LIMIT, &mut calls)?;
        if outcome.code != 0 {
            return Err(format!("{script}: {}\n{}", outcome.code, outcome.transcript).into());
        }
    }
    Ok(())
}
