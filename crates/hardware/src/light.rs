//! Where a drive sits, and the light that shows it.

use crate::drive::Drive;
use crate::error::{Error, Result};
use crate::{Machine, sysfs};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What is needed to switch a light.
const NEEDS: &str = "root and a writable sysfs (a systemd unit: ProtectKernelTunables=no)";

impl Machine {
    /// Lights (`on`) or clears the light that tells people which drive this is. Blocks until the enclosure answered.
    ///
    /// # Errors
    /// [`Error::NoLight`] when the kernel knows none, [`Error::Denied`] to who is not root, [`Error::Io`] when the
    /// enclosure failed.
    pub fn locate(&self, drive: &Drive, on: bool) -> Result<()> {
        let file = find(&self.sys, drive).map_err(|looked_for| Error::NoLight {
            drive: drive.kernel_name.clone(),
            looked_for,
        })?;
        // Never created: what is not there any more is an error.
        let mut open = OpenOptions::new();
        let written = open
            .write(true)
            .open(&file)
            .and_then(|mut light| light.write_all(if on { b"1" } else { b"0" }));
        written.map_err(|source| Error::of("write to the light", &file, NEEDS, source))
    }

    /// Whether the light is on; `None` when there is none, or it does not say. Blocks as
    /// [`locate`](Self::locate) does.
    #[must_use]
    pub fn is_located(&self, drive: &Drive) -> Option<bool> {
        let file = find(&self.sys, drive).ok()?;
        sysfs::number(&file).map(|value| value != 0)
    }
}

/// The file that switches the light, or what was looked for in vain.
fn find(sys: &Path, drive: &Drive) -> std::result::Result<PathBuf, Vec<String>> {
    let mut looked_for = Vec::new();
    for function in pci_functions(drive) {
        let light = sys.join(format!("class/leds/{function}:enclosure:locate/brightness"));
        if light.exists() {
            return Ok(light);
        }
        looked_for.push(light.display().to_string());
    }
    match component(sys, drive).map(|component| component.join("locate")) {
        Some(light) if light.exists() => return Ok(light),
        Some(light) => looked_for.push(light.display().to_string()),
        None => {
            let all = sys.join("class/enclosure");
            looked_for.push(format!("an enclosure's slot with it in {}", all.display()));
        }
    }
    Err(looked_for)
}

/// The PCI functions that may have the light (NPEM): the drive's own, and the port it is plugged into.
fn pci_functions(drive: &Drive) -> Vec<String> {
    let mut names = Vec::new();
    for function in drive.controllers.iter().filter_map(|controller| controller.pci_function()) {
        let port = function.parent().map(sysfs::name);
        names.push(sysfs::name(&function));
        // Only the nearest: one further up is a switch's, with other drives below it.
        names.extend(port.filter(|port| sysfs::is_pci_function(port)));
    }
    names
}

/// The drive's place in a SCSI enclosure: the folder of the component.
fn component(sys: &Path, drive: &Drive) -> Option<PathBuf> {
    let devices = drive.devices();
    for device in &devices {
        let entries = sysfs::entries(device);
        let mut links = entries.iter().filter(|e| sysfs::name(e).starts_with("enclosure_device:"));
        if let Some(component) = links.find_map(|link| sysfs::place(link)) {
            return Some(component);
        }
    }
    let enclosures = sysfs::entries(&sys.join("class/enclosure"));
    let components = enclosures.iter().flat_map(|enclosure| sysfs::entries(enclosure));
    components
        .filter(|component| {
            sysfs::place(&component.join("device")).is_some_and(|device| {
                // A component has a `locate`; an enclosure's own `device` does not lie beside one.
                devices.contains(&device) && component.join("locate").exists()
            })
        })
        .find_map(|component| sysfs::place(&component))
}

/// Where the drive sits: a PCI slot by its label, else a component of an enclosure.
pub(crate) fn slot(sys: &Path, drive: &Drive) -> Option<String> {
    pci_slot(sys, drive).or_else(|| {
        let component = component(sys, drive)?;
        let name = sysfs::clean(sysfs::name(&component).as_bytes())?;
        // Its number of identification lasts over starts of the machine, its SCSI address may not.
        match sysfs::text(&component.parent()?.join("id")) {
            Some(id) => Some(format!("{name} of enclosure {id}")),
            None => Some(name),
        }
    })
}

/// The label of the PCI slot with the drive's function in it.
fn pci_slot(sys: &Path, drive: &Drive) -> Option<String> {
    let functions = drive.controllers.iter().filter_map(|controller| controller.pci_function());
    let functions: Vec<String> = functions.map(|function| sysfs::name(&function)).collect();
    // A slot has the address of a device: without the function.
    let is_in = |address: &str| {
        functions.iter().any(|f| f.split_once('.').is_some_and(|(device, _)| device == address))
    };
    let slots = sysfs::entries(&sys.join("bus/pci/slots"));
    let mut slots = slots
        .iter()
        .filter(|slot| sysfs::text(&slot.join("address")).is_some_and(|address| is_in(&address)));
    slots.next().and_then(|slot| sysfs::clean(sysfs::name(slot).as_bytes()))
}
