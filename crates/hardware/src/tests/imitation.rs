//! An imitation of sysfs: files, and links that are relative as the kernel's are.

use crate::{Drive, Machine};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A machine of files. Paths are from its `sys`, unless they begin with `dev`.
pub(crate) struct Imitation {
    folder: TempDir,
}

impl Imitation {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sys")).unwrap();
        fs::create_dir(folder.path().join("dev")).unwrap();
        Self { folder }
    }

    pub(crate) fn machine(&self) -> Machine {
        Machine::at(self.sys(""))
    }

    pub(crate) fn sys(&self, path: &str) -> PathBuf {
        self.folder.path().join("sys").join(path)
    }

    /// Where a device node is to be.
    pub(crate) fn node(&self, name: &str) -> PathBuf {
        self.folder.path().join("dev").join(name)
    }

    /// An attribute.
    pub(crate) fn file(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        fs::create_dir_all(self.sys(path).parent().unwrap()).unwrap();
        fs::write(self.sys(path), content).unwrap();
        self
    }

    /// Attributes of one folder.
    pub(crate) fn files(&self, folder: &str, files: &[(&str, &str)]) -> &Self {
        for (name, content) in files {
            self.file(&format!("{folder}/{name}"), content);
        }
        self
    }

    /// A link at `path` that leads to `to`.
    pub(crate) fn link(&self, path: &str, to: &str) -> &Self {
        fs::create_dir_all(self.sys(path).parent().unwrap()).unwrap();
        let up = "../".repeat(Path::new(path).iter().count() - 1);
        symlink(format!("{up}{to}"), self.sys(path)).unwrap();
        self
    }

    /// A block device, or a partition of one.
    pub(crate) fn block(&self, number: &str, folder: &str) -> &Self {
        self.file(&format!("{folder}/dev"), format!("{number}\n"));
        self.link(&format!("dev/block/{number}"), folder)
    }

    /// A whole disk of `device`, which is of the class or bus `subsystem`.
    pub(crate) fn disk(&self, number: &str, folder: &str, device: &str, subsystem: &str) -> &Self {
        fs::create_dir_all(self.sys(folder).join("slaves")).unwrap();
        self.block(number, folder).file(&format!("{folder}/queue/rotational"), "0\n");
        self.link(&format!("{folder}/device"), device);
        if !self.sys(device).join("subsystem").is_symlink() {
            self.link(&format!("{device}/subsystem"), subsystem);
        }
        self
    }

    /// A device without hardware, on `slaves`.
    pub(crate) fn stacked(&self, number: &str, name: &str, slaves: &[&str]) -> &Self {
        let folder = format!("devices/virtual/block/{name}");
        fs::create_dir_all(self.sys(&folder).join("slaves")).unwrap();
        for slave in slaves {
            let name = Path::new(slave).file_name().unwrap().to_str().unwrap();
            self.link(&format!("{folder}/slaves/{name}"), slave);
        }
        self.block(number, &folder)
    }

    /// An NVMe drive of one controller: 259:0, and 259:1 for its first partition.
    pub(crate) fn nvme(&self) -> &Self {
        self.controller(0, "devices/pci0000:00/0000:00:04.0");
        self.disk("259:0", NVME, NVME0, "class/nvme");
        self.file(&format!("{NVME}/wwid"), "eui.0025385b71b0a4f1\n");
        self.block("259:1", NVME_PARTITION).file(&format!("{NVME_PARTITION}/partition"), "1\n");
        self
    }

    /// A controller on the PCI function in `pci`.
    pub(crate) fn controller(&self, number: u32, pci: &str) -> &Self {
        let folder = format!("{pci}/nvme/nvme{number}");
        let address = pci.rsplit('/').next().unwrap();
        self.link(&format!("{folder}/device"), pci);
        self.link(&format!("{folder}/subsystem"), "class/nvme");
        self.file(&format!("{folder}/dev"), format!("242:{number}\n"));
        self.file(&format!("{folder}/address"), format!("{address}\n"));
        self.files(
            &folder,
            &[
                ("model", "SAMSUNG MZQL23T8HCLS-00A07              \n"),
                ("serial", "S64HNE0R500123      \n"),
                ("firmware_rev", "GDC5602Q\n"),
                ("transport", "pcie\n"),
                ("state", "live\n"),
            ],
        )
    }

    /// A SAS disk, 8:0, in slot 3 of an enclosure. `linked`: also the disk says where it is.
    pub(crate) fn sas(&self, linked: bool) -> &Self {
        self.disk("8:0", &format!("{SAS}/block/sda"), SAS, "bus/scsi");
        self.files(
            SAS,
            &[("vendor", "SEAGATE \n"), ("model", "ST16000NM002G   \n"), ("rev", "E004\n")],
        );
        self.file(&format!("{SAS}/wwid"), "naa.5000c500cb2a1b2f\n");
        self.file(&format!("{SAS}/vpd_pg80"), b"\0\x80\0\x14ZL2AB1CD0000C1234567");
        self.link("class/enclosure/0:0:8:0", ENCLOSURE);
        self.file(&format!("{ENCLOSURE}/id"), "0x5000ccab0405db00\n");
        self.link(&format!("{ENCLOSURE}/device"), &format!("{SCSI_HOST}/target0:0:8/0:0:8:0"));
        for slot in ["Slot 02", "Slot 03"] {
            let slot = format!("{ENCLOSURE}/{slot}");
            self.files(&slot, &[("locate", "0\n"), ("fault", "0\n"), ("type", "device\n")]);
        }
        self.link(&format!("{ENCLOSURE}/Slot 03/device"), SAS);
        if linked {
            let link = format!("{SAS}/enclosure_device:Slot 03");
            self.link(&link, &format!("{ENCLOSURE}/Slot 03"));
        }
        self
    }

    /// The drive behind a device, which has to be one.
    pub(crate) fn drive(&self, number: &str) -> Drive {
        self.try_drive(number).expect("a drive")
    }

    /// The drive behind a device, if there is one.
    pub(crate) fn try_drive(&self, number: &str) -> Option<Drive> {
        let (major, minor) = number.split_once(':').unwrap();
        self.machine().drive_of(major.parse().unwrap(), minor.parse().unwrap()).unwrap()
    }
}

pub(crate) const NVME0: &str = "devices/pci0000:00/0000:00:04.0/nvme/nvme0";
pub(crate) const NVME: &str = "devices/pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1";
pub(crate) const NVME_PARTITION: &str =
    "devices/pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1/nvme0n1p1";
pub(crate) const SCSI_HOST: &str = "devices/pci0000:00/0000:00:05.0/0000:05:00.0/host0";
pub(crate) const SAS: &str = "devices/pci0000:00/0000:00:05.0/0000:05:00.0/host0/port-0:0/\
     expander-0:0/port-0:0:3/end_device-0:0:3/target0:0:3/0:0:3:0";
pub(crate) const ENCLOSURE: &str = "devices/pci0000:00/0000:00:05.0/0000:05:00.0/host0/\
     target0:0:8/0:0:8:0/enclosure/0:0:8:0";
