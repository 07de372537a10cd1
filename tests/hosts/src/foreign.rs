//! Our host side with a target of others: the kernel's, in a guest.
use crate::array::act;
use crate::engine::lay_library;
use crate::guest::{Equipment, Guest};
use crate::target::free_port;
use crate::{Kernel, Result, machine, shell};
use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tempfile::TempDir;

const SUBSYSTEM: &str = "nqn.2026-11.io.flashloom:foreign";

/// Where the target listens in the guest.
const LISTENS: &str = "10.0.2.15:4420";

/// Bytes of the namespace.
const BYTES: u64 = 64 << 20;

/// # Panics
/// When the two do not get on: this is the body of a test.
pub fn run(kernel: Kernel) {
    if let Err(error) = get_on(kernel) {
        panic!("{kernel:?}: {error}");
    }
}

fn get_on(kernel: Kernel) -> Result<()> {
    machine::prepare()?;
    let home = TempDir::new()?;
    let program = compile(home.path())?;
    let port = free_port()?;
    let forward = format!(",hostfwd=tcp:127.0.0.1:{port}-{LISTENS}");
    let disk = home.path().join("disk");
    File::create(&disk)?.set_len(BYTES)?;
    let drive = format!("file={},if=virtio,format=raw,discard=unmap", disk.display());
    let devices = vec!["-drive".into(), drive.into()];
    let mut guest = Guest::boot(kernel, &Equipment { devices, forward, ..Equipment::default() })?;
    act(&mut guest, "foreign/offer")?;
    let mut host = Host::start(&program, home.path(), port)?;
    host.until_done()?;
    host.go_on()?;
    host.until_done()?;
    // While it writes, the target goes, and comes back.
    host.go_on()?;
    act(&mut guest, "foreign/withdraw")?;
    act(&mut guest, "foreign/return")?;
    host.until_done()?;
    host.go_on()?;
    host.until_done()?;
    host.stop()
}

fn compile(home: &Path) -> Result<PathBuf> {
    lay_library(home)?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = home.join("host");
    shell::run(
        Command::new("cc")
            .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
            .arg(here.join("../../crates/capi/include"))
            .arg(here.join("foreign/host.c"))
            .arg("-o")
            .arg(&program)
            .arg("-L")
            .arg(home)
            .arg("-lflashloom"),
    )?;
    Ok(program)
}

/// `foreign/host.c` at work.
struct Host {
    child: Child,
    orders: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Host {
    fn start(program: &Path, home: &Path, port: u16) -> Result<Self> {
        let mut child = shell::tied(program)
            .args([&port.to_string(), SUBSYSTEM])
            .env("LD_LIBRARY_PATH", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        Ok(Self { child, orders, lines })
    }

    fn go_on(&mut self) -> Result<()> {
        writeln!(self.orders.as_mut().ok_or("it takes no orders")?, "go on")?;
        Ok(())
    }

    fn until_done(&mut self) -> Result<()> {
        for line in self.lines.by_ref() {
            let line = line?;
            println!("{line}");
            if line == "done" {
                return Ok(());
            }
        }
        Err(format!("the host side ended: {}", self.child.wait()?).into())
    }

    fn stop(mut self) -> Result<()> {
        drop(self.orders.take());
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("it ended: {status}").into()) }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}
