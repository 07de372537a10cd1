//! NVMe/RDMA over soft RoCE: target and host are in one guest, on an emulated Ethernet card. First the kernel uses our
//! target; then our host side uses that, and the kernel's.
use crate::calls::Calls;
use crate::guest::{Equipment, Guest};
use crate::runner::LIMIT;
use crate::target::program;
use crate::{Kernel, Result, machine, shell};
use std::ffi::OsString;
use std::fs::{self, File};
use std::process::Command;
use std::time::Instant;
use tempfile::TempDir;

/// Bytes of the persistent memory.
const PMEM_BYTES: u64 = 256 << 20;

/// # Panics
/// When the kernel's host and the program do not work together: this is the body of a test.
pub fn run(kernel: Kernel) {
    if let Err(error) = connects(kernel) {
        panic!("{kernel:?}: {error}");
    }
}

fn connects(kernel: Kernel) -> Result<()> {
    machine::prepare()?;
    let home = TempDir::new()?;
    let folder = home.path().join("guest");
    fs::create_dir(&folder)?;
    // Symbols would be most of what the guest unpacks.
    shell::run(Command::new("strip").arg("-o").arg(folder.join("flashloom")).arg(program()?))?;
    let pmem = home.path().join("pmem");
    File::create(&pmem)?.set_len(PMEM_BYTES)?;
    let memory = format!(
        "memory-backend-file,id=pmem,share=on,mem-path={},size={PMEM_BYTES}",
        pmem.display()
    );
    let devices = ["-object", &memory, "-device", "nvdimm,memdev=pmem"].map(OsString::from);
    let equipment =
        Equipment { devices: devices.into(), folder: Some(folder), ..Equipment::default() };
    let mut guest = Guest::boot(kernel, &equipment)?;
    let mut calls = Calls::new()?;
    // Each stands on what the one before has left.
    for script in ["rdma/target", "rdma/host", "rdma/windows"] {
        let start = Instant::now();
        let outcome = guest.scenario(script, LIMIT, &mut calls)?;
        println!("{}{script}: {:.1} s", outcome.transcript, start.elapsed().as_secs_f32());
        if outcome.code != 0 {
            return Err(format!("{script}: {}\n{}", outcome.code, outcome.transcript).into());
        }
    }
    Ok(())
}
