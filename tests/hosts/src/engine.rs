//! fio with the engine that is made of libflashloom, on this machine: no guest.
use crate::target::{Target, library};
use crate::{Result, cache, kernel, machine, shell};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// # Panics
/// When fio finds anything wrong: this is the body of a test.
pub fn run() {
    if let Err(error) = serves() {
        panic!("{error}");
    }
}

fn serves() -> Result<()> {
    machine::prepare()?;
    let home = TempDir::new()?;
    lay_library(home.path())?;
    let engine = home.path().join("flashloom.so");
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/fio");
    let given = |name: &str, path: &Path| format!("{name}={}", path.display());
    shell::run(Command::new("make").arg("-C").arg(packaging).args([
        given("FIO_SOURCE", &source()?),
        given("LIBRARY", home.path()),
        given("OUT", &engine),
    ]))?;
    let target = Target::start("memory:128MiB", &[], home.path())?;
    let fio = |extra: &[&str]| load(&target, &engine, home.path(), extra);
    fio(&["--rw=randrw", "--size=16M"])?;
    fio(&["--rw=randwrite", "--size=8M", "--hdr_digest=on", "--data_digest=on", "--bs=16k"])?;
    let split = ["--size=8M", "--numjobs=2", "--offset_increment=32M", "--fsync=32"];
    fio(&[&split[..], &["--rw=randrw", "--nr_io_queues=1", "--nr_write_queues=1"]].concat())?;
    fio(&["--rw=randtrim", "--size=8M", "--connect=io-timeout=off;timeout=20s", "--verify=0"])?;
    let wrong = fio(&["--rw=read", "--connect=colour=blue"]);
    let said = wrong.err().ok_or("a wrong option was taken")?.to_string();
    if said.contains("no option `colour`") { Ok(()) } else { Err(said.into()) }
}

/// Puts libflashloom into `folder`, by its names.
pub fn lay_library(folder: &Path) -> Result<()> {
    for name in ["libflashloom.so", "libflashloom.so.0"] {
        symlink(library()?, folder.join(name))?;
    }
    Ok(())
}

/// A load that verifies what it wrote.
fn load(target: &Target, engine: &Path, home: &Path, extra: &[&str]) -> Result<()> {
    let (port, subsystem) = target.address();
    shell::run(
        Command::new("fio")
            .arg("--name=load")
            .arg(format!("--ioengine=external:{}", engine.display()))
            .args(["--traddr=127.0.0.1", &format!("--trsvcid={port}")])
            .args([&format!("--subnqn={subsystem}"), "--poll_policy=interrupt"])
            .arg(format!("--aux-path={}", home.display()))
            .args(["--bs=4k", "--iodepth=32", "--verify=crc32c", "--verify_fatal=1"])
            .arg("--verify_state_save=0")
            .args(extra),
    )?;
    Ok(())
}

/// The source of the fio that is installed, configured: an engine is compiled with its headers.
fn source() -> Result<PathBuf> {
    let asked = shell::run(Command::new("dpkg-query").args([
        "--show",
        "--showformat=${source:Version}",
        "fio",
    ]))?;
    let version = String::from_utf8(asked)?;
    let place = cache::entry("fio", &version, |into| {
        let work = into.join("work");
        fs::create_dir_all(&work)?;
        let apt = kernel::private_apt(&codename()?, &work)?;
        let get = |arguments: &[&str]| {
            let mut command = Command::new("apt-get");
            shell::run(command.env("APT_CONFIG", &apt).current_dir(&work).args(arguments))
        };
        get(&["update"])?;
        get(&["source", "--download-only", &format!("fio={version}")])?;
        let archives = fs::read_dir(&work)?.filter_map(|file| Some(file.ok()?.path()));
        let archive = archives
            .filter(|path| path.to_string_lossy().contains(".orig.tar."))
            .find(|path| path.extension().is_some_and(|kind| kind != "asc"))
            .ok_or("no source in the source package")?;
        let source = into.join("source");
        fs::create_dir(&source)?;
        let mut tar = Command::new("tar");
        shell::run(tar.arg("-xf").arg(archive).arg("-C").arg(&source).arg("--strip-components=1"))?;
        shell::run(Command::new("./configure").arg("--disable-native").current_dir(&source))?;
        Ok(fs::remove_dir_all(&work)?)
    })?;
    Ok(place.join("source"))
}

/// This machine's release of Debian.
fn codename() -> Result<String> {
    let release = fs::read_to_string("/etc/os-release")?;
    let name = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(name.ok_or("this machine's Debian has no code name")?.to_owned())
}
