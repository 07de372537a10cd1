//! A virtual machine whose root and whose data are remote namespaces, by vhost-user-blk, beside a RAID set of two.
use crate::attached::Attached;
use crate::calls::Calls;
use crate::guest::{Equipment, Guest, MEMORY_BYTES, Root};
use crate::runner::LIMIT;
use crate::target::{Target, program};
use crate::{Kernel, Result, machine, rootfs, shell};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Bytes of the data namespace.
const BYTES: u64 = 64 << 20;

/// Short times, so that a killed target is soon written to again.
const TIMES: [&str; 2] = ["--keep-alive-tmo=1s", "--reconnect-delay=1s"];

/// # Panics
/// When the machine does not find what it wrote: this is the body of a test.
pub fn run(kernel: Kernel) {
    if let Err(error) = lives(kernel) {
        panic!("{kernel:?}: {error}");
    }
}

fn lives(kernel: Kernel) -> Result<()> {
    machine::prepare()?;
    let home = TempDir::new()?;
    let at = |name: &str| home.path().join(name);
    let image = at("root");
    shell::run(Command::new("cp").args(["--sparse=always"]).arg(rootfs::image()?).arg(&image))?;
    let root = format!("drive:{}", image.display());
    let root = Target::start(&root, &["--block-size", "512"], home.path())?;
    let target = Target::start(&format!("file:{BYTES}"), &["--block-size", "4096"], home.path())?;
    let (root_socket, socket) = (at("root.sock"), at("data.sock"));
    let serve = |target: &Target, socket: &Path, log: &str, more: &[&str]| {
        let socket = socket.display().to_string();
        let arguments = [&["--vhost-user-blk", &socket], more].concat();
        Attached::start(target, &at(log), &arguments)
    };
    let root_disk = serve(&root, &root_socket, "root.log", &["--read-only"])?;
    let disk = serve(&target, &socket, "data.log", &[&["--nr-io-queues=2"], &TIMES[..]].concat())?;
    let halves = [pair_member(home.path())?, pair_member(home.path())?];
    let members = halves.each_ref().map(member);
    let members = ["--member", &members[0], "--member", &members[1]];
    let create = ["raid", "create", "--name", "pair", "--level", "raid1"];
    shell::run(Command::new(program()?).args(create).args(members))?;
    let pair_socket = at("pair.sock");
    let pair = serve(&halves[0], &pair_socket, "pair.log", &[&members, &TIMES[..]].concat())?;

    let equipment = || Equipment {
        devices: [
            "-object".into(),
            format!("memory-backend-memfd,id=ram,size={MEMORY_BYTES},share=on").into(),
            "-machine".into(),
            "memory-backend=ram".into(),
        ]
        .into_iter()
        .chain(device("data", &socket))
        .chain(device("pair", &pair_socket))
        .collect(),
        root: Root::Device(device("root", &root_socket)),
        ..Equipment::default()
    };
    let mut calls = Calls::with(target)?;
    calls.attached = Some(disk);
    let mut guest = Guest::boot(kernel, &equipment())?;
    let act = |guest: &mut Guest, script: &str, calls: &mut Calls| -> Result<()> {
        let outcome = guest.scenario(&format!("attach/{script}"), LIMIT, calls)?;
        match outcome.code {
            0 => Ok(()),
            code => {
                let logged = calls.attached.as_ref().map(Attached::logged).unwrap_or_default();
                Err(format!("{script}: exit code {code}\n{}\n{logged}", outcome.transcript).into())
            }
        }
    };
    act(&mut guest, "vhost", &mut calls)?;
    act(&mut guest, "writes", &mut calls)?;
    drop(guest);
    let mut guest = Guest::boot(kernel, &equipment())?;
    act(&mut guest, "again", &mut calls)?;
    drop(guest);
    root_disk.stop()?;
    pair.stop()?;
    calls.attached.take().ok_or("nothing is attached")?.stop()
}

/// A target with room for half of a mirror.
fn pair_member(home: &Path) -> Result<Target> {
    Target::start("memory:48MiB", &["--block-size", "4096"], home)
}

/// A target's namespace as `flashloom raid` takes it.
fn member(target: &Target) -> String {
    let (port, subsystem) = target.address();
    format!("traddr=127.0.0.1,trsvcid={port},nqn={subsystem}")
}

/// What QEMU is told of a disk whose back end is at `socket`.
fn device(name: &str, socket: &Path) -> Vec<OsString> {
    vec![
        "-chardev".into(),
        format!("socket,id={name},path={},reconnect=1", socket.display()).into(),
        "-device".into(),
        format!("vhost-user-blk-pci,chardev={name}").into(),
    ]
}
