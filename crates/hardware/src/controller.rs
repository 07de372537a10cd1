//! Controllers of NVMe drives in sysfs.

use crate::sysfs;
use crate::transport::Transport;
use std::path::PathBuf;

/// A controller, as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Controller {
    /// Its name, as in `nvme0`; not always that of its namespaces.
    pub name: String,
    /// Its folder.
    pub path: PathBuf,
}

impl Controller {
    pub fn new(path: PathBuf) -> Self {
        Self { name: sysfs::name(&path), path }
    }

    /// Its state as the kernel says it, when that is not `live`.
    pub fn not_live(&self) -> Option<String> {
        sysfs::text(&self.path.join("state")).filter(|state| state != "live")
    }

    /// The folder of the PCI function that it is, if it is one.
    pub fn pci_function(&self) -> Option<PathBuf> {
        let function = sysfs::place(&self.path.join("device"))?;
        sysfs::is_pci_function(&sysfs::name(&function)).then_some(function)
    }

    pub fn transport(&self) -> Transport {
        match sysfs::text(&self.path.join("transport")) {
            Some(name) => match name.as_str() {
                "pcie" => Transport::Pcie,
                "tcp" => Transport::Tcp,
                "rdma" => Transport::Rdma,
                "fc" => Transport::Fc,
                _ => Transport::Other(name),
            },
            None if self.pci_function().is_some() => Transport::Pcie,
            None => Transport::Other("nvme".into()),
        }
    }
}
