//! NVMe/RDMA over soft RoCE: target and host are in one guest, on an emulated Ethernet card. First the kernel uses our
//! target; then our host side uses that, and the kernel's; then hosts of bad will come, and
//! memory is flushed.
use crate::calls::Calls;
use crate::guest::{Equipment, Guest};
use crate::target::program;
use crate::{Kernel, Result, machine, shell};
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Of each script. Soft RoCE has the guest's one processor do what a card does.
const LIMIT: Duration = Duration::from_secs(600);

/// Bytes of the persistent memory.
const PMEM_BYTES: u64 = 256 << 20;

/// `beside` are the programs `hostile` and `flush`.
///
/// # Panics
/// When the kernel's host and the program do not work together: this is the body of a test.
pub fn run(kernel: Kernel, beside: &[&Path]) {
    if let Err(error) = connects(kernel, beside) {
        panic!("{kernel:?}: {error}");
    }
}

fn connects(kernel: Kernel, beside: &[&Path]) -> Result<()> {
    machine::prepare()?;
    let home = TempDir::new()?;
    let folder = home.path().join("guest");
    fs::create_dir(&folder)?;
    // Symbols would be most of what the guest unpacks.
    let own = [("flashloom", program()?)];
    let beside = beside.iter().map(|of| (of.file_name(), of.to_path_buf()));
    let beside = beside.filter_map(|(name, program)| Some((name?.to_str()?, program)));
    for (name, program) in own.into_iter().chain(beside) {
        shell::run(Command::new("strip").arg("-o").arg(folder.join(name)).arg(program))?;
    }
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
    let scripts = ["target", "host", "windows", "rings", "hostile", "flush"];
    for script in scripts.map(|name| format!("rdma/{name}")) {
        let start = Instant::now();
        let outcome = guest.scenario(&script, LIMIT, &mut calls)?;
        println!("{}{script}: {:.1} s", outcome.transcript, start.elapsed().as_secs_f32());
        if outcome.code != 0 {
            return Err(format!("{script}: {}\n{}", outcome.code, outcome.transcript).into());
        }
    }
    Ok(())
}
