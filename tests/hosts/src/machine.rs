//! What this machine must have installed.
use crate::{Result, shell};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// Programs used here, each with the Debian package that brings it.
const PROGRAMS: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("qemu-img", "qemu-utils"),
    ("qemu-io", "qemu-utils"),
    ("nbdinfo", "libnbd-bin"),
    ("fio", "fio"),
    ("fio_jsonplus_clat2csv", "fio"),
    ("fio2gnuplot", "fio"),
    ("cc", "gcc"),
    ("make", "make"),
    ("debootstrap", "debootstrap"),
    ("mkfs.ext4", "e2fsprogs"),
    ("busybox", "busybox-static"),
    ("depmod", "kmod"),
    ("cpio", "cpio"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
    ("strip", "binutils"),
    ("setpriv", "util-linux"),
    ("ip", "iproute2"),
    ("ethtool", "ethtool"),
    ("tshark", "tshark"),
];

const PLACES: &[&str] =
    &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Installs what is missing, once a process. Without root, or where the package manager cannot,
/// the error names the packages.
pub fn prepare() -> Result<()> {
    static DONE: OnceLock<std::result::Result<(), String>> = OnceLock::new();
    DONE.get_or_init(|| install().map_err(|error| error.to_string())).clone().map_err(Into::into)
}

fn install() -> Result<()> {
    let missing: Vec<&str> = PROGRAMS
        .iter()
        .filter(|(program, _)| !PLACES.iter().any(|at| Path::new(at).join(program).exists()))
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let apt = |arguments: &[&str]| {
        shell::run(
            Command::new("apt-get")
                .env("DEBIAN_FRONTEND", "noninteractive")
                .args(arguments)
                .args(if arguments[0] == "install" { &missing[..] } else { &[] }),
        )
    };
    apt(&["update"])
        .and_then(|_| apt(&["install", "--yes", "--no-install-recommends"]))
        .map_err(|error| {
            format!(
                "the tests with real hosts need Debian's packages {}; installing them failed (run as root, or install them by hand): {error}",
                missing.join(" ")
            )
        })?;
    Ok(())
}
