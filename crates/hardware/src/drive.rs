//! A drive, as sysfs describes it.

use crate::controller::Controller;
use crate::sysfs;
use crate::transport::Transport;
use std::path::PathBuf;

/// A physical drive, or what a hypervisor or a remote target gives for one. What is `None` the kernel does
/// not say. Texts have neither padding nor control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drive {
    /// The kernel's name of the disk, as in `nvme0n1`. May be another's after the next start.
    pub kernel_name: String,
    pub transport: Transport,
    /// The model; of a SCSI disk with its vendor before it.
    pub model: Option<String>,
    pub serial: Option<String>,
    /// The revision of its firmware.
    pub firmware: Option<String>,
    /// The world wide identifier of the namespace or logical unit, with its kind, as in `eui.0025385b71b0a4f1`.
    pub wwid: Option<String>,
    /// Whether it has to turn to reach data.
    pub rotational: bool,
    /// Where it is on its transport: a PCI address, a remote port, a SCSI address.
    pub address: Option<String>,
    /// Where it sits, as the machine labels it: a PCI slot, or a slot of an enclosure.
    pub slot: Option<String>,
    /// The disk's folder in sysfs.
    pub(crate) disk: PathBuf,
    /// Whether it is NVMe, by whichever transport.
    pub(crate) is_nvme: bool,
    /// NVMe only: those that have the namespace, live ones first.
    pub(crate) controllers: Vec<Controller>,
}

impl Drive {
    /// The folders of the devices that are this drive: the disk's, its controllers', their PCI functions'.
    pub(crate) fn devices(&self) -> Vec<PathBuf> {
        let mut devices: Vec<PathBuf> =
            sysfs::place(&self.disk.join("device")).into_iter().collect();
        for controller in &self.controllers {
            devices.push(controller.path.clone());
            devices.extend(controller.pci_function());
        }
        devices.dedup();
        devices
    }
}
