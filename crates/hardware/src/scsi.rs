//! SCSI disks in sysfs, and SATA drives, which the kernel shows as such.

use crate::drive::Drive;
use crate::sysfs;
use crate::transport::Transport;
use std::path::Path;

/// The Unit Serial Number page of vital product data (SPC-5, 7.7.19).
const UNIT_SERIAL: u8 = 0x80;
/// The ATA Information page (SAT-4, 12.4.2).
const ATA_INFORMATION: u8 = 0x89;
/// Where the answer to IDENTIFY DEVICE begins in that page.
const IDENTIFY: usize = 60;

/// Fills in what a SCSI device says.
pub(crate) fn describe(drive: &mut Drive, device: &Path) {
    let vendor = sysfs::text(&device.join("vendor"));
    drive.transport = transport(device, vendor.as_deref());
    drive.firmware = sysfs::text(&device.join("rev"));
    if let Some(page) = sysfs::bytes(&device.join("vpd_pg80")) {
        drive.serial = unit_serial(&page).or(drive.serial.take());
    }
    // That is no vendor, but the translation from ATA.
    let vendor = vendor.filter(|vendor| vendor != "ATA");
    if let (Some(vendor), Some(model)) = (vendor, &drive.model) {
        drive.model = Some(format!("{vendor} {model}"));
    }
    // SCSI has room for 16 letters of a model and 4 of a revision; ATA has more.
    if let Some(page) = sysfs::bytes(&device.join("vpd_pg89")) {
        drive.model = ata_text(&page, 27, 46).or(drive.model.take());
        drive.firmware = ata_text(&page, 23, 26).or(drive.firmware.take());
    }
}

/// How the device is attached, by what its folder lies in.
fn transport(device: &Path, vendor: Option<&str>) -> Transport {
    let lies_in =
        |found: &dyn Fn(&str) -> bool| device.iter().any(|part| part.to_str().is_some_and(found));
    let numbered = |prefix: &str| lies_in(&|part| sysfs::numbered(part, prefix).is_some());
    if numbered("usb") {
        Transport::Usb
    } else if numbered("ata") || vendor == Some("ATA") {
        Transport::Sata
    } else if lies_in(&|part| part.starts_with("end_device-")) {
        Transport::Sas
    } else if lies_in(&|part| part.starts_with("rport-")) {
        Transport::Fc
    } else if numbered("session") {
        Transport::Other("iscsi".into())
    } else {
        Transport::Scsi
    }
}

/// The serial number in a page of vital product data.
fn unit_serial(page: &[u8]) -> Option<String> {
    let [_, UNIT_SERIAL, high, low, text @ ..] = page else { return None };
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    // A page that promises more than it has is taken for what it has.
    sysfs::clean(text.get(..len).unwrap_or(text))
}

/// Text in the words `first` to `last` of the answer to IDENTIFY DEVICE: the letters of each word are swapped.
fn ata_text(page: &[u8], first: usize, last: usize) -> Option<String> {
    if page.get(1) != Some(&ATA_INFORMATION) {
        return None;
    }
    let words = page.get(IDENTIFY + 2 * first..IDENTIFY + 2 * (last + 1))?;
    let swapped: Vec<u8> = words.chunks(2).flat_map(|word| word.iter().rev().copied()).collect();
    sysfs::clean(&swapped)
}
