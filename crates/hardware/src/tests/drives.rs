//! What is read of each kind of drive.

use super::imitation::{Imitation, NVME, NVME0};
use crate::{Drive, Transport};

/// Model, serial, firmware and identifier.
fn identity(drive: &Drive) -> [Option<&str>; 4] {
    [&drive.model, &drive.serial, &drive.firmware, &drive.wwid].map(|text| text.as_deref())
}

const SAMSUNG: [Option<&str>; 3] =
    [Some("SAMSUNG MZQL23T8HCLS-00A07"), Some("S64HNE0R500123"), Some("GDC5602Q")];

#[test]
fn nvme() {
    let machine = Imitation::new();
    machine.nvme();
    let drive = machine.drive("259:0");
    assert_eq!(drive.kernel_name, "nvme0n1");
    assert_eq!(drive.transport, Transport::Pcie);
    assert_eq!(identity(&drive)[..3], SAMSUNG);
    assert_eq!(drive.wwid.as_deref(), Some("eui.0025385b71b0a4f1"));
    assert_eq!(drive.address.as_deref(), Some("0000:00:04.0"));
    assert!(!drive.rotational);
    assert_eq!(drive.slot, None);
    assert_eq!(machine.drive("259:1"), drive, "a partition is of its disk");

    machine.file("bus/pci/slots/3/address", "0000:00:03\n");
    machine.file("bus/pci/slots/7/address", "0000:00:04\n");
    assert_eq!(machine.drive("259:0").slot.as_deref(), Some("7"));
}

#[test]
fn nvme_of_a_subsystem_has_the_controllers_that_have_the_namespace() {
    let machine = Imitation::new();
    let subsystem = "devices/virtual/nvme-subsystem/nvme-subsys0";
    let head = format!("{subsystem}/nvme0n1");
    machine.disk("259:0", &head, subsystem, "class/nvme-subsystem");
    machine.files(
        subsystem,
        &[
            ("model", "SAMSUNG MZQL23T8HCLS-00A07              \n"),
            ("serial", "S64HNE0R500123      \n"),
            ("firmware_rev", "GDC5602Q\n"),
        ],
    );
    machine.file(&format!("{head}/wwid"), "eui.0025385b71b0a4f1\n");
    for (number, pci) in [(0, "0000:00:04.0"), (2, "0000:00:06.0"), (10, "0000:00:05.0")] {
        let pci = format!("devices/pci0000:00/{pci}");
        machine.controller(number, &pci);
        let controller = format!("{pci}/nvme/nvme{number}");
        machine.link(&format!("{subsystem}/nvme{number}"), &controller);
        if number != 0 {
            let path = format!("{controller}/nvme0c{number}n1");
            machine.files(&path, &[("hidden", "1\n"), ("nsid", "1\n")]);
        }
    }
    let names = |drive: &Drive| -> Vec<String> {
        drive.controllers.iter().map(|controller| controller.name.clone()).collect()
    };
    let drive = machine.drive("259:0");
    assert_eq!(drive.kernel_name, "nvme0n1");
    assert_eq!(identity(&drive)[..3], SAMSUNG);
    assert_eq!(drive.transport, Transport::Pcie);
    assert_eq!(names(&drive), ["nvme2", "nvme10"], "nvme0 is another namespace's");
    assert_eq!(drive.address.as_deref(), Some("0000:00:06.0"));

    machine.file("devices/pci0000:00/0000:00:06.0/nvme/nvme2/state", "resetting\n");
    let drive = machine.drive("259:0");
    assert_eq!(names(&drive), ["nvme10", "nvme2"], "who answers comes first");

    // When no controller says that it has the namespace, each may.
    for controller in ["0000:00:05.0/nvme/nvme10/nvme0c10n1", "0000:00:06.0/nvme/nvme2/nvme0c2n1"] {
        let path = machine.sys(&format!("devices/pci0000:00/{controller}"));
        std::fs::remove_dir_all(path).unwrap();
    }
    assert_eq!(names(&machine.drive("259:0")), ["nvme0", "nvme10", "nvme2"]);
}

#[test]
fn a_subsystem_that_lost_its_controllers_is_a_drive_still() {
    let machine = Imitation::new();
    let subsystem = "devices/virtual/nvme-subsystem/nvme-subsys1";
    machine.disk("259:0", &format!("{subsystem}/nvme1n1"), subsystem, "class/nvme-subsystem");
    machine.file(&format!("{subsystem}/model"), "Linux\n");
    let drive = machine.drive("259:0");
    assert_eq!(drive.model.as_deref(), Some("Linux"));
    assert_eq!(drive.transport, Transport::Other("nvme".into()));
}

#[test]
fn nvme_over_fabrics() {
    for (name, transport) in [
        ("tcp", Transport::Tcp),
        ("rdma", Transport::Rdma),
        ("fc", Transport::Fc),
        ("loop", Transport::Other("loop".into())),
    ] {
        let machine = Imitation::new();
        let controller = "devices/virtual/nvme-fabrics/ctl/nvme0";
        machine.disk("259:0", &format!("{controller}/nvme0n1"), controller, "class/nvme");
        let address = "traddr=192.0.2.7,trsvcid=4420";
        machine.files(controller, &[("transport", name), ("address", address)]);
        let drive = machine.drive("259:0");
        assert_eq!(drive.transport, transport);
        assert_eq!(drive.transport.to_string(), name);
        assert_eq!(drive.address.as_deref(), Some(address));
        assert_eq!(drive.slot, None);
    }
}

#[test]
fn sata() {
    let machine = Imitation::new();
    let device = "devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0";
    machine.disk("8:0", &format!("{device}/block/sda"), device, "bus/scsi");
    machine.files(
        device,
        &[("vendor", "ATA     \n"), ("model", "Micron_5300_MTFD\n"), ("rev", "U001\n")],
    );
    machine.file(&format!("{device}/wwid"), "naa.500a0751e1b2c3d4\n");
    machine.file(&format!("{device}/vpd_pg80"), b"\0\x80\0\x14        2023E1B2C3D4");
    let drive = machine.drive("8:0");
    assert_eq!(drive.kernel_name, "sda");
    assert_eq!(drive.transport, Transport::Sata);
    let wwid = Some("naa.500a0751e1b2c3d4");
    assert_eq!(
        identity(&drive),
        [Some("Micron_5300_MTFD"), Some("2023E1B2C3D4"), Some("U001"), wwid]
    );
    assert_eq!(drive.address.as_deref(), Some("0:0:0:0"));

    // What ATA itself says is not cut.
    let mut page = vec![0; 572];
    page[1] = 0x89;
    for (word, text) in [(23, "D3MU001 "), (27, "Micron_5300_MTFDDAK3T8TDS               ")] {
        let at = 60 + 2 * word;
        page[at..at + text.len()].copy_from_slice(text.as_bytes());
        page[at..at + text.len()].chunks_mut(2).for_each(<[u8]>::reverse);
    }
    machine.file(&format!("{device}/vpd_pg89"), &page);
    let drive = machine.drive("8:0");
    assert_eq!(identity(&drive)[0], Some("Micron_5300_MTFDDAK3T8TDS"));
    assert_eq!(identity(&drive)[2], Some("D3MU001"));

    machine.file(&format!("{device}/vpd_pg89"), &page[..100]);
    assert_eq!(identity(&machine.drive("8:0"))[0], Some("Micron_5300_MTFD"));
}

#[test]
fn sas_in_an_enclosure() {
    for linked in [true, false] {
        let machine = Imitation::new();
        machine.sas(linked);
        let drive = machine.drive("8:0");
        assert_eq!(drive.transport, Transport::Sas);
        let wwid = Some("naa.5000c500cb2a1b2f");
        let serial = Some("ZL2AB1CD0000C1234567");
        assert_eq!(identity(&drive), [Some("SEAGATE ST16000NM002G"), serial, Some("E004"), wwid]);
        assert_eq!(drive.slot.as_deref(), Some("Slot 03 of enclosure 0x5000ccab0405db00"));
    }
}

#[test]
fn scsi_of_other_kinds() {
    for (path, vendor, transport) in [
        ("pci0000:00/0000:05:00.0/host0/port-0:0/end_device-0:0", "ATA", Transport::Sata),
        ("pci0000:00/0000:00:03.0/virtio2/host0", "QEMU", Transport::Scsi),
        ("pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host0", "ATA", Transport::Usb),
        ("pci0000:00/0000:05:00.0/host0/rport-0:0-1", "NETAPP", Transport::Fc),
        ("platform/host0/session1", "LIO-ORG", Transport::Other("iscsi".into())),
        ("pci0000:00/0000:05:00.0/host0", "AVAGO", Transport::Scsi),
    ] {
        let machine = Imitation::new();
        let device = format!("devices/{path}/target0:0:0/0:0:0:0");
        machine.disk("8:16", &format!("{device}/block/sdb"), &device, "bus/scsi");
        machine.file(&format!("{device}/vendor"), vendor);
        assert_eq!(machine.drive("8:16").transport, transport, "{path}");
    }
}

#[test]
fn virtio() {
    let machine = Imitation::new();
    let device = "devices/pci0000:00/0000:00:02.0/virtio1";
    machine.disk("254:0", &format!("{device}/block/vda"), device, "bus/virtio");
    // As the kernel gives it: cut at 20 letters, without an end.
    machine.file(&format!("{device}/block/vda/serial"), "vol-0123456789abcdef");
    machine.file(&format!("{device}/block/vda/queue/rotational"), "1\n");
    let drive = machine.drive("254:0");
    assert_eq!(drive.transport, Transport::Virtio);
    assert_eq!(identity(&drive), [None, Some("vol-0123456789abcdef"), None, None]);
    assert_eq!(drive.address.as_deref(), Some("virtio1"));
    assert!(drive.rotational);
}

#[test]
fn mmc_and_what_has_no_name_here() {
    let machine = Imitation::new();
    let device = "devices/platform/soc/mmc_host/mmc0/mmc0:0001";
    machine.disk("179:0", &format!("{device}/block/mmcblk0"), device, "bus/mmc");
    machine.files(device, &[("name", "DG4064\n"), ("serial", "0x2d15c5b1\n"), ("fwrev", "0x1\n")]);
    machine.file(&format!("{device}/cid"), "450100444734303634012d15c5b14700\n");
    let drive = machine.drive("179:0");
    assert_eq!(drive.transport, Transport::Mmc);
    let cid = Some("450100444734303634012d15c5b14700");
    assert_eq!(identity(&drive), [Some("DG4064"), Some("0x2d15c5b1"), Some("0x1"), cid]);

    let device = "devices/vbd-51712";
    machine.disk("202:0", &format!("{device}/block/cciss!c0d0"), device, "bus/xen");
    let drive = machine.drive("202:0");
    assert_eq!(drive.transport, Transport::Other("xen".into()));
    assert_eq!(drive.kernel_name, "cciss/c0d0");
}

#[test]
fn what_a_drive_says_of_itself_is_not_trusted() {
    let machine = Imitation::new();
    machine.nvme();
    machine.file(&format!("{NVME0}/model"), b"\0\0 \x1b[31mEVIL\xff\xfe \n\0");
    machine.file(&format!("{NVME0}/serial"), " \0 \n");
    machine.file(&format!("{NVME0}/firmware_rev"), vec![b'x'; 1 << 20]);
    machine.file(&format!("{NVME}/queue/rotational"), "maybe\n");
    std::fs::remove_file(machine.sys(&format!("{NVME}/wwid"))).unwrap();
    let drive = machine.drive("259:0");
    assert_eq!(drive.model.as_deref(), Some("\u{fffd}[31mEVIL\u{fffd}\u{fffd}"));
    assert_eq!(drive.serial, None);
    assert_eq!(drive.firmware.map(|text| text.len()), Some(4096));
    assert_eq!(drive.wwid, None);
    assert!(!drive.rotational);
}

#[test]
fn a_serial_number_that_promises_too_much_or_is_none() {
    for (page, serial) in [
        (&b"\0\x80\x01\0SHORT"[..], Some("SHORT")),
        (b"\0\x80\0\x02LONGER", Some("LO")),
        (b"\0\x83\0\x04AAAA", None),
        (b"\0\x80", None),
        (b"", None),
    ] {
        let machine = Imitation::new();
        machine.sas(true);
        machine.file(&format!("{}/vpd_pg80", super::imitation::SAS), page);
        assert_eq!(machine.drive("8:0").serial.as_deref(), serial, "{page:?}");
    }
}
