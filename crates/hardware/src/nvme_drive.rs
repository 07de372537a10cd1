//! NVMe drives in sysfs: one controller, or a subsystem of several.

use crate::controller::Controller;
use crate::drive::Drive;
use crate::sysfs;
use crate::transport::Transport;
use std::path::Path;

/// Fills in what NVMe says. `device` is the disk's: a controller or, with the kernel's multipath, a subsystem.
pub(crate) fn describe(drive: &mut Drive, device: &Path) {
    drive.is_nvme = true;
    drive.controllers = controllers(&drive.kernel_name, device);
    drive.firmware = sysfs::text(&device.join("firmware_rev"));
    match drive.controllers.first() {
        Some(controller) => {
            drive.transport = controller.transport();
            drive.address = sysfs::text(&controller.path.join("address"));
        }
        // Every controller is gone, and the disk waits for one to return.
        None => drive.transport = Transport::Other("nvme".into()),
    }
}

/// The controllers that have the namespace `disk`, live ones first, then by number.
fn controllers(disk: &str, device: &Path) -> Vec<Controller> {
    if sysfs::subsystem(device).as_deref() == Some("nvme") {
        return vec![Controller::new(device.to_owned())];
    }
    let links = sysfs::entries(device);
    let links = links.iter().filter(|link| sysfs::numbered(&sysfs::name(link), "nvme").is_some());
    let mut all: Vec<Controller> =
        links.filter_map(|link| sysfs::place(link)).map(Controller::new).collect();
    // A namespace may be attached to some of its subsystem's controllers only.
    let has = |controller: &Controller| {
        path_name(disk, &controller.name).is_some_and(|name| controller.path.join(name).exists())
    };
    if all.iter().any(has) {
        all.retain(has);
    }
    all.sort_by_key(|controller| {
        (controller.not_live().is_some(), sysfs::numbered(&controller.name, "nvme"))
    });
    all
}

/// The kernel's name for a namespace by way of one controller: `nvme0c3n1` for `nvme0n1` by `nvme3`.
fn path_name(disk: &str, controller: &str) -> Option<String> {
    let (subsystem, namespace) = disk.strip_prefix("nvme")?.split_once('n')?;
    let controller = sysfs::numbered(controller, "nvme")?;
    Some(format!("nvme{subsystem}c{controller}n{namespace}"))
}
