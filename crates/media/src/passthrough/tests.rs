use nvme::identify::{IdentifyController, IdentifyNamespace, LbaFormat, NvmIdentifyController};
use zerocopy::IntoBytes;

use super::*;

fn namespace(lbads: u8, metadata: u16) -> IdentifyNamespace {
    let mut id = IdentifyNamespace { nsze: 2048.into(), ..IdentifyNamespace::default() };
    id.lbaf[0] = LbaFormat { lbads, ms: metadata.into(), ..LbaFormat::default() };
    id
}

fn described(
    namespace: &IdentifyNamespace,
    controller: &IdentifyController,
    limits: Option<&NvmIdentifyController>,
) -> Result<Described, Error> {
    let limits = limits.map(IntoBytes::as_bytes);
    Described::new(namespace.as_bytes(), controller.as_bytes(), None, limits)
}

#[test]
fn formats_that_are_not_served_are_refused_with_words() {
    let controller = IdentifyController::default();
    for (namespace, words) in [
        (namespace(9, 8), "8 bytes of metadata"),
        (namespace(12, 64), "64 bytes of metadata"),
        (namespace(13, 0), "blocks of 8192 bytes"),
        (namespace(0, 0), "nothing of its format"),
        (IdentifyNamespace { nsze: 0.into(), ..namespace(9, 0) }, "no size"),
        (IdentifyNamespace { nsze: u64::MAX.into(), ..namespace(12, 0) }, "no size"),
    ] {
        let error = described(&namespace, &controller, None).unwrap_err();
        assert_eq!(error.kind, Kind::Unsupported);
        assert!(error.to_string().contains(words), "{error}");
    }
    for (lbads, block) in [(9, 512), (12, 4096)] {
        let found = described(&namespace(lbads, 0), &controller, None).unwrap();
        assert_eq!((found.block_size(), found.bytes()), (block, 2048 * u64::from(block)));
    }
    assert!(Described::new(&[0; 100], controller.as_bytes(), None, None).is_err());
}

#[test]
fn commands_are_no_longer_than_the_drive_takes() {
    let with_mdts = |mdts| IdentifyController { mdts, ..IdentifyController::default() };
    let of = |mdts, lbads| described(&namespace(lbads, 0), &with_mdts(mdts), None).unwrap();
    assert_eq!(of(5, 9).transfer_max(), 128 << 10);
    // No limit of the drive's: what a command can name.
    assert_eq!(of(0, 9).transfer_max(), 32 << 20);
    assert_eq!(of(255, 12).transfer_max(), 256 << 20);
    let none = of(5, 9);
    assert_eq!(none.zeroes_max(), 128 << 10);
    assert_eq!(none.deallocate_limits(), (usize::MAX, u32::MAX, u32::MAX));
    assert_eq!(none.copy_max(), 0);
    let limits = NvmIdentifyController {
        vsl: 3,
        wzsl: 4,
        dmrl: 8,
        dmrsl: 100.into(),
        dmsl: 50.into(),
        ..NvmIdentifyController::default()
    };
    let limited = described(&namespace(12, 0), &with_mdts(5), Some(&limits)).unwrap();
    assert_eq!((limited.verify_max(), limited.zeroes_max()), (32 << 10, 64 << 10));
    assert_eq!(limited.deallocate_limits(), (8, 100, 50));
}

#[test]
fn atomic_units_are_the_namespaces_where_it_has_its_own() {
    let controller =
        IdentifyController { awun: 7.into(), awupf: 3.into(), ..IdentifyController::default() };
    let units = |id: &IdentifyNamespace| described(id, &controller, None).unwrap().atomic_units();
    let mut id = namespace(9, 0);
    (id.nawun, id.nawupf) = (31.into(), 15.into());
    assert_eq!(units(&id), (7, 3));
    id.nsfeat = nvme::identify::namespace_bits::NSFEAT_ATOMICS;
    assert_eq!(units(&id), (31, 15));
}

#[test]
fn a_status_is_passed_on_as_it_is() {
    let of = |status: u16| outcome(Completion { status, result: 0 });
    assert_eq!(of(0), Outcome::Success);
    assert_eq!(of(0x80), Outcome::Drive(Status::LBA_OUT_OF_RANGE));
    assert_eq!(of(0x4080), Outcome::Drive(Status::LBA_OUT_OF_RANGE.with_dnr()));
    assert_eq!(of(0x0285), Outcome::Drive(Status::COMPARE_FAILURE));
    // A vendor's own.
    assert_eq!(of(0x47c1), Outcome::Drive(Status::new(7, 0xc1).with_dnr()));
    // More and Command Retry Delay speak of the drive's own log and times.
    assert_eq!(of(0x2000 | 0x1800 | 0x0281), Outcome::Drive(Status::UNRECOVERED_READ_ERROR));
    // Host Path Error, Host Aborted Command: the kernel's.
    assert_eq!((of(0x0370), of(0x0371)), (Outcome::Kernel, Outcome::Kernel));
}

/// As the drive's own side would read it.
#[test]
fn a_command_is_what_the_drive_is_to_do() {
    use nvme::nvm::{Command as Read, LbaRange};
    use nvme::sqe::Sqe;
    use stdx::Lba;
    let span = Span { operation: Operation::Read, offset: (5 << 32) * 512, len: 65536 * 512 };
    let range = LbaRange::new(Lba::new(5 << 32), 65536).unwrap();
    let read_back = |opcode, flags| {
        let command = ranged(512, opcode, span, flags);
        let mut sqe = Sqe::new(command.opcode, 1, 1);
        [sqe.cdw10, sqe.cdw11, sqe.cdw12] = [0, 1, 2].map(|n| command.cdw10[n].into());
        assert_eq!(command.cdw10[3..], [0; 3]);
        Read::parse(&sqe).unwrap()
    };
    for opcode in [io::READ, io::WRITE, io::COMPARE, io::VERIFY] {
        for flags in [0, FUA] {
            let (found, fua) = match read_back(opcode, flags) {
                Read::Read(command) => (command.range, command.fua),
                Read::Write(command) => (command.range, command.fua),
                Read::Compare(command) => (command.range, command.fua),
                Read::Verify(command) => (command.range, command.fua),
                other => panic!("{other:?}"),
            };
            assert_eq!((found, fua), (range, flags == FUA));
        }
    }
    match read_back(io::WRITE_ZEROES, FUA | DEAC) {
        Read::WriteZeroes(zeroes) => {
            assert_eq!((zeroes.range, zeroes.fua, zeroes.deallocate), (range, true, true));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(read_back(io::WRITE_UNCORRECTABLE, 0), Read::WriteUncorrectable(range));
}

/// A drive that has no Copy, or not with descriptors of format 0h, has none of its own.
#[test]
fn a_drive_copies_by_itself_where_it_says_so_with_its_limits() {
    use nvme::identify::bits;
    let of = |oncs: u16, cdfs: u16| {
        let mut id = namespace(9, 0);
        (id.mssrl, id.mcl) = (128.into(), 64.into());
        let (oncs, cdfs) = (oncs.into(), cdfs.into());
        let controller = IdentifyController { oncs, cdfs, ..IdentifyController::default() };
        described(&id, &controller, None).unwrap().copy_max()
    };
    assert_eq!(of(bits::ONCS_COPY, 1), 64);
    assert_eq!((of(bits::ONCS_COPY, 0b10), of(0, 1)), (0, 0));
}

#[test]
fn a_long_range_goes_in_pieces() {
    let pieces = |blocks, most| {
        let range = LbaRange::new(stdx::Lba::new(7), blocks).unwrap();
        cut(range, most).collect::<Vec<_>>()
    };
    assert_eq!(pieces(10, 4), [(7, 4), (11, 4), (15, 2)]);
    assert_eq!(pieces(4, 4), [(7, 4)]);
    assert_eq!(pieces(u32::MAX, u32::MAX), [(7, u32::MAX)]);
}
