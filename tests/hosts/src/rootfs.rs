//! The guest's user land: a small Debian 13 with the tools that a host administrator uses.
use crate::{Result, cache, kernel, shell};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const SUITE: &str = "trixie";

const PACKAGES: &[&str] = &[
    "nvme-cli",
    "fio",
    "e2fsprogs",
    "xfsprogs",
    "jq",
    "kmod",
    "iproute2",
    "procps",
    "udev",
    "ndctl",
    "ibverbs-providers",
    "librdmacm1t64",
];

/// What no scenario reads and only makes the image larger.
const UNUSED: &[&str] = &[
    "usr/share/doc",
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/zoneinfo",
    "var/lib/apt/lists",
    "var/cache/apt",
];

/// Room beside the files, in MiB: for ext4's own structures.
const SLACK_MIB: u64 = 96;

/// The image (ext4, never written to), made by debootstrap if it is not there yet.
pub fn image() -> Result<PathBuf> {
    let recipe = (SUITE, PACKAGES, UNUSED);
    let place = cache::entry("rootfs", recipe, |into| {
        let tree = into.join("tree");
        shell::run(
            Command::new("debootstrap")
                .args(["--variant=minbase", "--merged-usr"])
                .arg(format!("--include={}", PACKAGES.join(",")))
                .arg(SUITE)
                .arg(&tree)
                .arg(kernel::mirror()?),
        )?;
        for path in UNUSED {
            let path = tree.join(path);
            if path.exists() {
                fs::remove_dir_all(path)?;
            }
        }
        let used = shell::run(Command::new("du").args(["-sm", "--"]).arg(&tree))?;
        let used: u64 =
            String::from_utf8_lossy(&used).split_whitespace().next().unwrap_or("0").parse()?;
        shell::run(
            Command::new("mkfs.ext4")
                .args(["-q", "-F", "-O", "^has_journal", "-m", "0", "-d"])
                .arg(&tree)
                .arg(into.join("root.ext4"))
                .arg(format!("{}M", used + used / 8 + SLACK_MIB)),
        )?;
        fs::remove_dir_all(tree)?;
        Ok(())
    })?;
    Ok(place.join("root.ext4"))
}
