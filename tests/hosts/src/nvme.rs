//! NVMe drives: the program and its host are in one guest with some that the emulator makes. They can be pulled, and
//! plugged again with what they hold.
use crate::calls::Calls;
use crate::guest::{Equipment, Guest};
use crate::monitor::Monitor;
use crate::runner::LIMIT;
use crate::target::program;
use crate::{Kernel, Result, machine, shell};
use serde_json::json;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use tempfile::TempDir;

/// The drive that gets commands as they are, and its sector that cannot be read.
const WHOLE: &str = "whole";
const BAD_SECTOR: u64 = 200_000;

/// The drive that gets commands as they are, and those of the pool; their names are their serial numbers too.
const DRIVES: [(&str, u64); 6] = [
    (WHOLE, 128 << 20),
    ("pool0", 256 << 20),
    ("pool1", 256 << 20),
    ("pool2", 256 << 20),
    ("pool3", 256 << 20),
    ("pool4", 256 << 20),
];

/// # Panics
/// When anything acknowledged is lost, or a drive is not as it was: this is the body of a test.
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
    let socket = home.path().join("monitor");
    let devices = devices(home.path(), &socket)?;
    let mut guest =
        Guest::boot(kernel, &Equipment { devices, folder: Some(folder), ..Equipment::default() })?;
    let mut calls = Calls::new()?;
    calls.drives = Some(Drives { monitor: Monitor::connect(&socket)? });
    for script in ["array/passthrough", "array/nobody", "array/pulled"] {
        let start = Instant::now();
        let outcome = guest.scenario(script, LIMIT, &mut calls)?;
        let took = start.elapsed().as_secs_f32();
        println!("{}{script}: {took:.1} s", outcome.transcript);
        if outcome.code != 0 {
            return Err(format!("{script}: {}\n{}", outcome.code, outcome.transcript).into());
        }
    }
    Ok(())
}

/// Drives behind ports that they can be pulled from, and the monitor that does so.
fn devices(home: &Path, socket: &Path) -> Result<Vec<OsString>> {
    let mut words: Vec<OsString> = Vec::new();
    let mut word = |text: String| words.push(text.into());
    for (index, (name, bytes)) in DRIVES.iter().enumerate() {
        let image: PathBuf = home.join(name);
        File::create(&image)?.set_len(*bytes)?;
        word("-blockdev".to_owned());
        // A node of its own outlives the drive that is pulled.
        let file = match *name {
            // One block cannot be read: who writes it, and reads those beside it, does not notice.
            WHOLE => {
                format!(
                    "file.driver=blkdebug,file.inject-error.0.event=none,file.inject-error.0.iotype=read,\
                     file.inject-error.0.sector={BAD_SECTOR},file.image.driver=file,file.image.filename={}",
                    image.display()
                )
            }
            _ => format!("file.driver=file,file.filename={}", image.display()),
        };
        word(format!("driver=raw,node-name=image-{name},discard=unmap,cache.no-flush=on,{file}"));
        word("-device".to_owned());
        word(format!("pcie-root-port,id=port-{name},chassis={},slot={}", index + 1, index + 1));
        word("-device".to_owned());
        word(format!("nvme,id={name},serial={name},drive=image-{name},bus=port-{name}"));
    }
    word("-qmp".to_owned());
    word(format!("unix:{},server=on,wait=off", socket.display()));
    Ok(words)
}

/// The drives of the guest, for whoever pulls them.
pub struct Drives {
    monitor: Monitor,
}

impl Drives {
    /// Pulls a drive, and waits until it is out.
    pub fn pull(&mut self, name: &str) -> Result<()> {
        self.monitor.execute("device_del", &json!({ "id": name }))?;
        self.monitor.wait_for("DEVICE_DELETED", name)
    }

    /// Plugs a drive in that was pulled.
    pub fn plug(&mut self, name: &str) -> Result<()> {
        let drive = json!({
            "driver": "nvme", "id": name, "serial": name,
            "drive": format!("image-{name}"), "bus": format!("port-{name}"),
        });
        self.monitor.execute("device_add", &drive)
    }
}
