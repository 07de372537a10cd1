use super::*;
use crate::{Config, run};

const DEADLINE: Deadline =
    Deadline { transfer: Duration::from_secs(30), space: Duration::from_secs(120) };

#[test]
fn a_command_lies_where_the_kernel_looks_for_it() {
    let command = Command { opcode: 0x02, cdw2: 2, cdw3: 3, cdw10: [10, 11, 12, 13, 14, 15] };
    let wire = encode(&command, 7, (0x1122_3344_5566, 4096), 30_000);
    let dword = |at: usize| u32::from_ne_bytes(wire[at..at + 4].try_into().unwrap());
    assert_eq!((wire[0], wire[1], dword(4), dword(8), dword(12)), (2, 0, 7, 2, 3));
    assert_eq!(u64::from_ne_bytes(wire[24..32].try_into().unwrap()), 0x1122_3344_5566);
    assert_eq!((dword(16), dword(20), dword(32), dword(36)), (0, 0, 0, 4096));
    assert_eq!([40, 44, 48, 52, 56, 60].map(dword), [10, 11, 12, 13, 14, 15]);
    assert_eq!((dword(64), dword(68)), (30_000, 0));
}

/// As `linux/nvme_ioctl.h` computes them.
#[test]
fn the_numbers_are_the_kernels() {
    assert_eq!(u64::from(IO_COMMAND), u64_of(72) << 16 | 3 << 30 | u64::from(b'N') << 8 | 0x80);
    assert_eq!(ADMIN_COMMAND, 0xc048_4e41);
    assert_eq!(NAMESPACE_ID, 0x4e40);
}

#[test]
fn an_answer_is_a_status_or_an_error() {
    let of = |outcome| completion(Answer { outcome, result: 9 });
    assert_eq!(of(0).unwrap(), Completion { status: 0, result: 9 });
    // LBA Out of Range, Do Not Retry.
    assert_eq!(of(0x4080).unwrap().status, 0x4080);
    assert_eq!(of(-libc::EINTR).unwrap_err().kind(), io::ErrorKind::Interrupted);
    assert_eq!(of(-libc::ENODEV).unwrap_err().raw_os_error(), Some(libc::ENODEV));
}

#[test]
fn what_is_no_namespace_is_not_opened() {
    for path in ["/dev/null", "/dev/zero"] {
        let refused = Device::open(Path::new(path), DEADLINE).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported, "{path}: {refused}");
    }
    assert!(Device::open(Path::new("/dev/ng99n99"), DEADLINE).is_err());
    let file = tempfile::NamedTempFile::new().unwrap();
    let refused = Device::open(file.path(), DEADLINE).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
}

/// A device whose driver takes no commands: they go through the second ring, and end with an error; the buffer comes
/// back, and the reactor sleeps meanwhile and after.
#[test]
fn commands_go_through_a_ring_of_their_own_and_end() {
    run(Config { poll: crate::PollPolicy::Interrupt, ..Config::default() }, async {
        let file = std::fs::File::open("/dev/zero").unwrap();
        let file = File::of_character(file, Path::new("/dev/zero"), DEADLINE).unwrap();
        let device = Device { file, nsid: 1, deadline: DEADLINE, admin: Arc::default() };
        for _ in 0..3 {
            let buffer = crate::buffer::alloc(4096).await;
            let command = Command { opcode: 2, ..Command::default() };
            let (done, buffer) = device.run(&command, Some(buffer), Pace::Transfer, true).await;
            assert!(done.is_err(), "{done:?}");
            assert_eq!(buffer.unwrap().len(), 4096);
        }
        assert_eq!(device.late_changes(), 0);
        let many = (0..200).map(|_| {
            let device = device.clone();
            crate::spawn(async move {
                let command = Command { opcode: 0, ..Command::default() };
                device.run(&command, None, Pace::Transfer, false).await.0.is_err()
            })
        });
        for one in many.collect::<Vec<_>>() {
            assert!(one.await.unwrap());
        }
        assert_eq!(core::with(|core| core.metrics().operations), 0);
    })
    .unwrap();
}
