//! NVMe namespaces by their generic character devices (`/dev/ngXnY`), through which commands are sent as they are.

use crate::error::{Error, Result};
use crate::limits::PAGE_BYTES;
use crate::{Machine, resolve, sysfs};
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A namespace with a generic character device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generic {
    /// The kernel's name of the device, as in `ng0n1`. May be another's after the next start.
    pub kernel_name: String,
    /// The node of the same namespace's block device, which is what the kernel's own uses hold.
    pub block_node: PathBuf,
    /// Bytes of a logical block.
    pub block_size: u32,
    /// The most bytes that the kernel has one command move, whatever pages they lie in: a power of two, and a page at
    /// least.
    pub transfer_bytes: u32,
    /// The world wide identifier of the namespace, with its kind.
    pub wwid: Option<String>,
    /// The block device's folder in sysfs.
    pub(crate) disk: PathBuf,
}

impl Generic {
    /// Bytes that the kernel says the namespace has now; `None` when it is gone. Waits for nothing.
    #[must_use]
    pub fn bytes_now(&self) -> Option<u64> {
        // In sectors, whatever the size of a block.
        let sectors = sysfs::number(&self.disk.join("size"))?;
        u64::try_from(sectors).ok().map(|sectors| sectors * 512)
    }
}

impl Machine {
    /// The namespace behind the generic character device at `path`, or a link to it.
    ///
    /// # Errors
    /// [`Error::Path`] when `path` cannot be looked at, [`Error::NotGeneric`] for anything else, with what to name in
    /// its place.
    pub fn generic(&self, path: &Path) -> Result<Generic> {
        let found =
            fs::metadata(path).map_err(|e| Error::Path { path: path.to_owned(), source: e })?;
        let refuse = |is: String, instead: String| {
            Err(Error::NotGeneric { path: path.to_owned(), is, instead })
        };
        let number = found.rdev();
        let (major, minor) = (libc::major(number), libc::minor(number));
        if !found.file_type().is_char_device() {
            let (is, instead) = self.of_another_kind(&found, path);
            return refuse(is, instead);
        }
        let link = self.sys.join(format!("dev/char/{major}:{minor}"));
        let Some(device) = sysfs::place(&link) else {
            let is = format!("a character device {major}:{minor} that the kernel does not know");
            return refuse(is, "the drive is gone, or sysfs is not mounted".to_owned());
        };
        let name = sysfs::name(&device);
        match sysfs::subsystem(&device).as_deref() {
            Some("nvme-generic") => {}
            Some("nvme") => {
                return refuse(
                    format!("the controller {name}, not one of its namespaces"),
                    self.namespaces_of(&device),
                );
            }
            _ => {
                return refuse(
                    "a character device, and of no NVMe namespace".to_owned(),
                    NAME_ONE.to_owned(),
                );
            }
        }
        let Some(disk) = sibling(&device, "nvme") else {
            return refuse(
                "a namespace without a block device".to_owned(),
                "Linux makes none for formats and command sets that it does not know, which are not served either"
                    .to_owned(),
            );
        };
        match sysfs::text(&disk.join("queue/zoned")).as_deref() {
            None | Some("none") => {}
            Some(zoned) => {
                return refuse(
                    format!("a zoned namespace ({zoned})"),
                    "zones are not served".to_owned(),
                );
            }
        }
        Ok(self.describe_generic(name, disk))
    }

    /// The namespace that `wwid` identifies, and the node of its generic character device, whatever the kernel calls
    /// it.
    #[must_use]
    pub fn generic_with(&self, wwid: &str) -> Option<(PathBuf, Generic)> {
        let all = sysfs::entries(&self.sys.join("class/nvme-generic"));
        let nodes = all.iter().map(|device| self.dev.join(sysfs::name(device)));
        nodes
            .filter_map(|node| Some((node.clone(), self.generic(&node).ok()?)))
            .find(|(_, found)| found.wwid.as_deref() == Some(wwid))
    }

    fn describe_generic(&self, kernel_name: String, disk: PathBuf) -> Generic {
        let limit = |name: &str| {
            let limit = sysfs::number(&disk.join("queue").join(name))?;
            u64::try_from(limit).ok()
        };
        // The kernel cuts no command: what is more, or lies in more pages, is refused. An end that is not a page's makes one
        // more of them.
        let moved = limit("max_hw_sectors_kb").map_or(u64::MAX, |kib| kib.saturating_mul(1024));
        let segments = limit("max_segments").map_or(u64::MAX, |n| n.saturating_sub(1));
        let most = moved.min(segments.saturating_mul(PAGE_BYTES)).clamp(PAGE_BYTES, 1 << 30);
        Generic {
            kernel_name,
            block_node: self.dev.join(sysfs::name(&disk)),
            block_size: limit("logical_block_size").map_or(512, stdx::num::low32),
            transfer_bytes: 1 << most.ilog2(),
            wwid: resolve::wwid(&disk),
            disk,
        }
    }

    /// What a path is that is no character device, and what to name in its place.
    fn of_another_kind(&self, found: &Metadata, path: &Path) -> (String, String) {
        if !found.file_type().is_block_device() {
            let is = if found.is_dir() { "a folder" } else { "no device" };
            return (is.to_owned(), format!("for a file write drive:{}", path.display()));
        }
        let number = found.rdev();
        let link =
            self.sys.join(format!("dev/block/{}:{}", libc::major(number), libc::minor(number)));
        let device = sysfs::place(&link).unwrap_or_default();
        let drive = format!("write drive:{} to serve it as a block device", path.display());
        if device.join("partition").exists() {
            return ("a partition: commands are a whole namespace's".to_owned(), drive);
        }
        let name = sysfs::name(&device);
        match sibling(&device, "ng").filter(|_| name.starts_with("nvme")) {
            Some(generic) => (
                "the namespace's block device".to_owned(),
                format!(
                    "write passthrough:{}, its character device",
                    self.dev.join(sysfs::name(&generic)).display()
                ),
            ),
            None => ("a block device that is no NVMe namespace".to_owned(), drive),
        }
    }

    /// What to name instead of a controller.
    fn namespaces_of(&self, controller: &Path) -> String {
        let entries = sysfs::entries(controller);
        let names = entries.iter().map(|entry| sysfs::name(entry));
        let nodes: Vec<String> = names
            .filter(|name| name.starts_with("ng"))
            .map(|name| self.dev.join(name).display().to_string())
            .collect();
        if nodes.is_empty() {
            return NAME_ONE.to_owned();
        }
        format!("name one of its namespaces: {}", nodes.join(", "))
    }
}

/// The other device of the same namespace, of those whose names begin with `prefix`. The kernel numbers the one by the
/// controller and the other by the subsystem, which differ where a drive came again; the namespace's number behind is the
/// same, and so is the folder.
fn sibling(device: &Path, prefix: &str) -> Option<PathBuf> {
    let namespace = |name: &str, prefix: &str| {
        let (owner, namespace) = name.strip_prefix(prefix)?.split_once('n')?;
        let numbers = [owner, namespace].map(|digits| digits.parse::<u32>().ok());
        numbers[0].and(numbers[1])
    };
    let name = sysfs::name(device);
    let own = ["ng", "nvme"].iter().find_map(|prefix| namespace(&name, prefix))?;
    let all = sysfs::entries(device.parent()?);
    all.into_iter().find(|entry| namespace(&sysfs::name(entry), prefix) == Some(own))
}

const NAME_ONE: &str = "name a namespace's generic character device, such as /dev/ng0n1";
