//! Debian's kernels, downloaded without touching this machine's own package state.
use crate::{Result, cache, shell};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Loaded at boot, with what they depend on. A kernel that has one built in, or lacks it, is fine.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_blk",
    "e1000e",
    "virtio_rng",
    "crc32c_generic",
    "ext4",
    "xfs",
    "overlay",
    "configfs",
    "nvme-tcp",
    "nvmet-tcp",
    "nfit",
    "nd_pmem",
    "dax_pmem",
    "device_dax",
    "ublk_drv",
    "nvme",
    "rdma_rxe",
    "ib_uverbs",
    "rdma_ucm",
    "nvme-rdma",
    "nvmet-rdma",
];

/// The keyring that Debian's own suites are signed with.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A kernel to test with, by the Debian suite it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// Debian 12's: 6.1, the oldest that is supported.
    Bookworm,
    /// The newest that Debian 13 can run: its backports' (7.3 and later).
    Newest,
}

/// What QEMU boots.
pub struct Boot {
    /// Uncompressed, started by the PVH entry: a compressed one spends seconds unpacking itself.
    pub vmlinux: PathBuf,
    /// Initial RAM disk: modules, busybox and `guest/init`.
    pub initrd: PathBuf,
}

impl Kernel {
    fn suite(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Newest => "trixie-backports",
        }
    }

    /// Where the bootable files are, downloading and unpacking them if needed.
    pub fn boot(self) -> Result<Boot> {
        let suite = self.suite();
        let recipe = (suite, MODULES, include_str!("../guest/init"), include_str!("kernel.rs"));
        let place = cache::entry(&format!("kernel-{suite}"), recipe, |into| make(suite, into))?;
        Ok(Boot { vmlinux: place.join("vmlinux"), initrd: place.join("initrd") })
    }
}

/// Where this machine gets Debian's packages from.
pub fn mirror() -> Result<String> {
    let listed = shell::run(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(ORIGIN) $(LABEL) $(REPO_URI)",
        "Created-By: Packages",
    ]))?;
    String::from_utf8_lossy(&listed)
        .lines()
        .find_map(|line| line.strip_prefix("Debian Debian "))
        .map(|uri| uri.trim_end_matches('/').to_owned())
        .ok_or_else(|| {
            "no Debian mirror in this machine's apt configuration; run apt-get update".into()
        })
}

fn make(suite: &str, into: &Path) -> Result<()> {
    let work = into.join("work");
    let debs = work.join("debs");
    fs::create_dir_all(&debs)?;
    let apt = private_apt(suite, &work)?;
    shell::run(Command::new("apt-get").env("APT_CONFIG", &apt).arg("update"))?;
    let packages = packages(&apt)?;
    shell::run(
        Command::new("apt-get")
            .env("APT_CONFIG", &apt)
            .current_dir(&debs)
            .arg("download")
            .args(&packages),
    )?;
    let unpacked = work.join("unpacked");
    for deb in fs::read_dir(&debs)? {
        shell::run(Command::new("dpkg").arg("-x").arg(deb?.path()).arg(&unpacked))?;
    }
    let (modules, release) = modules_folder(&unpacked)?;
    let image = [unpacked.join(format!("boot/vmlinuz-{release}")), modules.join("vmlinuz")]
        .into_iter()
        .find(|path| path.exists())
        .ok_or("no kernel image in its package")?;
    decompress_kernel(&image, &into.join("vmlinux"))?;
    make_initrd(&modules, &release, &work.join("initrd"), &into.join("initrd"))?;
    fs::write(into.join("release"), &release)?;
    fs::remove_dir_all(&work)?;
    Ok(())
}

/// An apt configuration of our own, with `suite` as its only source, of binary and of source packages.
pub fn private_apt(suite: &str, work: &Path) -> Result<PathBuf> {
    let root = work.join("apt");
    for folder in ["state/lists/partial", "cache/archives/partial", "none"] {
        fs::create_dir_all(root.join(folder))?;
    }
    let sources = root.join("sources.list");
    let mirror = mirror()?;
    fs::write(
        &sources,
        format!(
            "deb [arch=amd64 signed-by={KEYRING}] {mirror} {suite} main\n\
             deb-src [signed-by={KEYRING}] {mirror} {suite} main\n"
        ),
    )?;
    let configuration = root.join("apt.conf");
    let at = root.display();
    fs::write(
        &configuration,
        format!(
            "Dir::State \"{at}/state\";\nDir::State::status \"/dev/null\";\nDir::Cache \"{at}/cache\";\n\
             Dir::Etc::sourcelist \"{at}/sources.list\";\nDir::Etc::sourceparts \"{at}/none\";\n\
             Dir::Etc::parts \"{at}/none\";\nAPT::Architecture \"amd64\";\nAPT::Architectures \"amd64\";\n\
             APT::Sandbox::User \"root\";\nAcquire::Languages \"none\";\nAcquire::Retries \"3\";\n"
        ),
    )?;
    Ok(configuration)
}

/// The packages that hold the suite's current kernel: one up to 6.12, three from 7 on.
fn packages(apt: &Path) -> Result<BTreeSet<String>> {
    let listed = shell::run(Command::new("apt-cache").env("APT_CONFIG", apt).args([
        "depends",
        "--recurse",
        "--no-recommends",
        "--no-suggests",
        "--no-conflicts",
        "--no-breaks",
        "--no-replaces",
        "--no-enhances",
        "linux-image-amd64",
    ]))?;
    let found: BTreeSet<String> = String::from_utf8_lossy(&listed)
        .lines()
        .filter(|line| {
            ["linux-image-", "linux-modules-", "linux-binary-"].iter().any(|prefix| {
                line.strip_prefix(prefix)
                    .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
            })
        })
        .map(str::to_owned)
        .collect();
    if found.is_empty() {
        return Err("the suite has no linux-image-amd64".into());
    }
    Ok(found)
}

fn modules_folder(unpacked: &Path) -> Result<(PathBuf, String)> {
    for root in ["lib/modules", "usr/lib/modules"] {
        if let Ok(mut folders) = fs::read_dir(unpacked.join(root))
            && let Some(folder) = folders.next()
        {
            let folder = folder?;
            return Ok((folder.path(), folder.file_name().to_string_lossy().into_owned()));
        }
    }
    Err("no modules in the kernel's packages".into())
}

/// Takes the ELF kernel out of a bzImage. Offsets: Documentation/arch/x86/boot.rst, fields
/// `setup_sects`, `payload_offset` and `payload_length`.
fn decompress_kernel(image: &Path, into: &Path) -> Result<()> {
    let bytes = fs::read(image)?;
    let word = |at: usize| -> Result<usize> {
        let field: [u8; 4] = bytes.get(at..at + 4).ok_or("kernel image too short")?.try_into()?;
        Ok(usize::try_from(u32::from_le_bytes(field))?)
    };
    let sectors = match *bytes.get(0x1f1).ok_or("kernel image too short")? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (sectors + 1) * 512 + word(0x248)?;
    // The last four bytes are the unpacked size, appended by the kernel's build.
    let end = start + word(0x24c)? - 4;
    let payload = bytes.get(start..end).ok_or("kernel image shorter than its payload")?;
    let packed = into.with_extension("packed");
    fs::write(&packed, payload)?;
    let program: &[&str] = match payload.get(..4) {
        Some([0xfd, b'7', b'z', b'X']) => &["xz", "--decompress", "--stdout", "--single-stream"],
        Some([0x28, 0xb5, 0x2f, 0xfd]) => &["zstd", "--decompress", "--stdout", "--quiet"],
        _ => return Err("kernel compressed in a way not known here".into()),
    };
    let kernel = shell::run(Command::new(program[0]).args(&program[1..]).arg(&packed))?;
    fs::write(into, kernel)?;
    fs::remove_file(packed)?;
    Ok(())
}

fn make_initrd(modules: &Path, release: &str, tree: &Path, into: &Path) -> Result<()> {
    let base = modules.ancestors().nth(3).ok_or("modules folder too shallow")?;
    shell::run(Command::new("depmod").arg("-b").arg(base).arg(release))?;
    fs::create_dir_all(tree.join("bin"))?;
    fs::create_dir_all(tree.join("modules"))?;
    let busybox = Path::new("/bin/busybox");
    fs::copy(busybox, tree.join("bin/busybox"))?;
    let init = tree.join("init");
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("guest/init"), &init)?;
    shell::run(Command::new("chmod").arg("755").arg(&init))?;
    for (order, module) in load_order(base, release)?.iter().enumerate() {
        let name = module.file_name().ok_or("module without a name")?.to_string_lossy();
        let (stem, packed) = match name.strip_suffix(".xz") {
            Some(stem) => (stem, true),
            None => (name.as_ref(), false),
        };
        let place = tree.join(format!("modules/{order:03}-{stem}"));
        if packed {
            fs::write(&place, shell::run(Command::new("xz").args(["-dc"]).arg(module))?)?;
        } else {
            fs::copy(module, &place)?;
        }
        // Signatures and debug information cost seconds of emulation to check and copy.
        shell::run(
            Command::new("strip").args(["--strip-debug", "--remove-section=.BTF"]).arg(place),
        )?;
    }
    let archive = shell::run(
        Command::new("sh")
            .current_dir(tree)
            .args(["-c", "find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0"]),
    )?;
    fs::write(into, archive)?;
    Ok(())
}

/// Files of the modules wanted, dependencies first, each once.
fn load_order(base: &Path, release: &str) -> Result<Vec<PathBuf>> {
    let mut order = Vec::new();
    for module in MODULES {
        // Asked one by one: a module that this kernel does not have is left out.
        let Ok(listed) = shell::run(Command::new("modprobe").arg("--dirname").arg(base).args([
            "--set-version",
            release,
            "--show-depends",
            "--quiet",
            module,
        ])) else {
            continue;
        };
        for line in String::from_utf8_lossy(&listed).lines() {
            if let Some(path) = line.strip_prefix("insmod ") {
                let path = PathBuf::from(path.split(' ').next().unwrap_or(path));
                if !order.contains(&path) {
                    order.push(path);
                }
            }
        }
    }
    Ok(order)
}
