//! How drives are attached.

use std::fmt;

/// How a drive is attached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// NVMe on PCI Express.
    Pcie,
    /// NVMe over TCP.
    Tcp,
    /// NVMe over RDMA.
    Rdma,
    /// NVMe or SCSI over Fibre Channel.
    Fc,
    /// A SATA drive, behind whichever controller.
    Sata,
    /// A SAS drive.
    Sas,
    /// A SCSI disk of another kind: of a RAID controller, or of a hypervisor.
    Scsi,
    /// A disk on USB.
    Usb,
    /// A virtio block device.
    Virtio,
    /// eMMC or an SD card.
    Mmc,
    /// Any other, by the kernel's name of it.
    Other(String),
}

impl Transport {
    /// The transport's name: one word in small letters.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Pcie => "pcie",
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
            Self::Fc => "fc",
            Self::Sata => "sata",
            Self::Sas => "sas",
            Self::Scsi => "scsi",
            Self::Usb => "usb",
            Self::Virtio => "virtio",
            Self::Mmc => "mmc",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
