use super::*;
use proptest::prelude::*;
use reactor::{Config, run, spawn};
use std::time::Duration;
use stdx::num::usize64;

const LEN: u64 = 1 << 20;

/// On the build's own file system: temporary folders are often tmpfs, which is a case of its own.
fn folder() -> tempfile::TempDir {
    let near = std::env::current_exe().unwrap();
    tempfile::TempDir::new_in(near.parent().unwrap()).unwrap()
}

fn file_drive(folder: &tempfile::TempDir, options: OpenDrive) -> Drive {
    let options = OpenDrive { create: Some(LEN), ..options };
    Drive::open(&folder.path().join("drive"), options).unwrap()
}

fn memory_drive() -> Drive {
    Drive::memory(LEN, RegionOptions { block_size: 512, ..RegionOptions::default() }).unwrap()
}

async fn filled(len: usize, with: u8) -> Buffer {
    let mut buffer = buffer::alloc(len).await;
    buffer.fill(with);
    buffer
}

fn go<F: Future<Output = ()> + 'static>(future: F) {
    run(Config::default(), future).unwrap();
}

#[test]
fn drives_tell_the_truth_about_themselves() {
    let folder = folder();
    let file = file_drive(&folder, OpenDrive::default());
    assert!(matches!(file, Drive::File(_)));
    assert_eq!(file.capacity(), LEN);
    assert!(file.has_volatile_cache() && file.zeroes_when_deallocated());
    assert!(file.logical_block() >= 512);
    let memory = memory_drive();
    assert_eq!((memory.capacity(), memory.logical_block()), (LEN, 512));
    assert!(!memory.has_volatile_cache());
    assert_eq!(memory.failure(), None);
}

#[test]
fn what_cannot_be_opened_says_why() {
    let folder = folder();
    let missing = Drive::open(&folder.path().join("missing"), OpenDrive::default()).unwrap_err();
    assert_eq!((missing.kind, missing.operation), (Kind::Gone, Operation::Open));
    let path = folder.path().join("tiny");
    std::fs::write(&path, b"x").unwrap();
    let tiny = Drive::open(&path, OpenDrive::default()).unwrap_err();
    assert_eq!(tiny.kind, Kind::Unsupported);
}

#[test]
fn ranges_and_lengths_are_checked() {
    go(async {
        let drive = memory_drive();
        assert_eq!(drive.read(LEN, 1).await.unwrap_err().kind, Kind::OutOfRange);
        assert_eq!(drive.read(u64::MAX, 2).await.unwrap_err().kind, Kind::OutOfRange);
        assert_eq!(drive.read(0, TRANSFER_MAX + 1).await.unwrap_err().kind, Kind::TooLarge);
        let data = filled(4096, 1).await;
        assert_eq!(drive.write(LEN - 1, data, false).await.unwrap_err().kind, Kind::OutOfRange);
        assert_eq!(drive.deallocate(1, LEN).await.unwrap_err().kind, Kind::OutOfRange);
        assert_eq!(drive.write_zeroes(LEN, 1, true).await.unwrap_err().kind, Kind::OutOfRange);
    });
}

#[test]
fn deallocating_a_file_gives_space_back() {
    use std::os::unix::fs::MetadataExt;
    let folder = folder();
    let drive = file_drive(&folder, OpenDrive::default());
    let path = folder.path().join("drive");
    go(async move {
        drive.write(0, filled(usize64(LEN), 7).await, true).await.unwrap();
        let before = std::fs::metadata(&path).unwrap().blocks();
        drive.deallocate(0, LEN / 2).await.unwrap();
        assert!(std::fs::metadata(&path).unwrap().blocks() < before);
        drive.write_zeroes(LEN / 2, LEN / 4, false).await.unwrap();
        drive.flush().await.unwrap();
        let bytes = drive.read(0, usize64(LEN)).await.unwrap();
        let zeroes = usize64(LEN / 4 * 3);
        assert!(bytes[..zeroes].iter().all(|&b| b == 0));
        assert!(bytes[zeroes..].iter().all(|&b| b == 7));
    });
}

#[test]
fn a_drive_that_lost_its_end_reports_it() {
    let folder = folder();
    let drive = file_drive(&folder, OpenDrive::default());
    let file = std::fs::File::options().write(true).open(folder.path().join("drive")).unwrap();
    file.set_len(LEN / 2).unwrap();
    go(async move {
        let e = drive.read(LEN / 2 - 4096, 8192).await.unwrap_err();
        assert_eq!((e.kind, e.offset, e.len), (Kind::Medium, LEN / 2 - 4096, 8192));
    });
}

#[test]
fn resizing_moves_the_end() {
    let folder = folder();
    for drive in [file_drive(&folder, OpenDrive::default()), memory_drive()] {
        drive.resize(2 * LEN).unwrap();
        assert_eq!(drive.capacity(), 2 * LEN);
        assert_eq!(drive.resize(1000).unwrap_err().kind, Kind::Unsupported);
        go(async move {
            drive.write(2 * LEN - 4096, filled(4096, 1).await, false).await.unwrap();
        });
    }
}

#[test]
fn reading_only_is_reading_only() {
    let folder = folder();
    drop(file_drive(&folder, OpenDrive::default()));
    let options = OpenDrive { read_only: true, ..OpenDrive::default() };
    let drive = Drive::open(&folder.path().join("drive"), options).unwrap();
    go(async move {
        drive.read(0, 4096).await.unwrap();
        let e = drive.write(0, filled(4096, 1).await, false).await.unwrap_err();
        assert_eq!(e.kind, Kind::ReadOnly);
    });
}

/// Many small writes into the same unit of a drive: each must survive its neighbours, which were
/// read and written back around it.
#[test]
fn neighbours_within_a_unit_do_not_lose_each_other() {
    let folder = folder();
    let drive = Arc::new(file_drive(&folder, OpenDrive::default()));
    go(async move {
        let tasks: Vec<_> = (0..64u8)
            .map(|n| {
                let drive = Arc::clone(&drive);
                spawn(async move {
                    let at = u64::from(n) * 100;
                    drive.write(at, filled(100, n + 1).await, n % 2 == 0).await.unwrap();
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let bytes = drive.read(0, 6400).await.unwrap();
        for (i, &b) in bytes.iter().enumerate() {
            assert_eq!(usize::from(b), i / 100 + 1, "at {i}");
        }
    });
}

#[test]
fn faults_come_from_the_seed() {
    let outcomes = |seed| {
        let (sent, outcomes) = std::sync::mpsc::channel();
        go(async move {
            let plan = FaultPlan {
                seed,
                read_error_ppm: 300_000,
                delay_ppm: 100_000,
                delay: Duration::from_micros(10)..Duration::from_micros(50),
                gone_after: Some(90),
                ..FaultPlan::default()
            };
            let drive = memory_drive().with_faults(plan);
            for _ in 0..100 {
                sent.send(drive.read(0, 512).await.map(|_| ()).map_err(|e| e.kind)).unwrap();
            }
        });
        outcomes.iter().collect::<Vec<_>>()
    };
    let first = outcomes(1);
    assert_eq!(first, outcomes(1));
    assert_ne!(first, outcomes(2));
    assert!(first[..90].iter().any(Result::is_ok));
    assert!(first[..90].contains(&Err(Kind::Medium)));
    assert!(first[90..].iter().all(|o| *o == Err(Kind::Gone)));
}

#[derive(Clone, Debug)]
enum Op {
    Write(u64, usize, u8, bool),
    Zero(u64, u64, bool),
    Deallocate(u64, u64),
    Read(u64, usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let at = || 0..LEN - 70_000;
    let op = prop_oneof![
        (at(), 0usize..70_000, any::<u8>(), any::<bool>())
            .prop_map(|(o, l, b, f)| Op::Write(o, l, b, f)),
        (0u64..200, 1usize..16, any::<u8>(), any::<bool>()).prop_map(|(o, l, b, f)| Op::Write(
            o * 4096,
            l * 4096,
            b,
            f
        )),
        (at(), 0u64..70_000, any::<bool>()).prop_map(|(o, l, d)| Op::Zero(o, l, d)),
        (at(), 0u64..70_000).prop_map(|(o, l)| Op::Deallocate(o, l)),
        (at(), 0usize..70_000).prop_map(|(o, l)| Op::Read(o, l)),
    ];
    proptest::collection::vec(op, 1..20)
}

async fn behaves_as_bytes(drive: Drive, ops: Vec<Op>) {
    let mut model = vec![0u8; usize64(LEN)];
    for op in ops {
        match op {
            Op::Write(o, l, b, fua) => {
                drive.write(o, filled(l, b).await, fua).await.unwrap();
                model[usize64(o)..][..l].fill(b);
            }
            Op::Zero(o, l, d) => {
                drive.write_zeroes(o, l, d).await.unwrap();
                model[usize64(o)..][..usize64(l)].fill(0);
            }
            Op::Deallocate(o, l) => {
                drive.deallocate(o, l).await.unwrap();
                model[usize64(o)..][..usize64(l)].fill(0);
            }
            Op::Read(o, l) => {
                let got = drive.read(o, l).await.unwrap();
                assert!(got[..] == model[usize64(o)..][..l], "read {l} at {o}");
            }
        }
    }
    drive.flush().await.unwrap();
    let got = drive.read(0, usize64(LEN)).await.unwrap();
    assert!(got[..] == model[..]);
    assert_eq!(drive.mismatch(0, &model).await.unwrap(), None);
    model[200_001] ^= 1;
    assert_eq!(drive.mismatch(1, &model[1..]).await.unwrap(), Some(200_000));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn every_drive_behaves_as_an_array_of_bytes(ops in ops()) {
        let folder = folder();
        for (n, buffered) in [false, true].into_iter().enumerate() {
            let path = folder.path().join(n.to_string());
            let options = OpenDrive { create: Some(LEN), buffered, ..OpenDrive::default() };
            let drive = Drive::open(&path, options).unwrap();
            assert!(drive.is_direct() != buffered);
            go(behaves_as_bytes(drive, ops.clone()));
        }
        go(behaves_as_bytes(memory_drive(), ops.clone()));
        let options = SimulatedOptions { capacity: LEN, ..SimulatedOptions::default() };
        let simulated = Drive::Simulated(Simulated::new(options));
        reactor::simulate(1, behaves_as_bytes(simulated, ops));
    }
}

#[test]
fn a_drive_opened_exclusively_is_opened_so_by_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    let options = OpenDrive { create: Some(LEN), exclusive: true, ..OpenDrive::default() };
    let first = Drive::open(&path, options).unwrap();
    assert_eq!(Drive::open(&path, options).unwrap_err().kind, Kind::Busy);
    drop(first);
    Drive::open(&path, options).unwrap();
}

#[test]
fn a_file_that_cannot_have_its_size_is_not_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    let options = OpenDrive { create: Some(i64::MAX.unsigned_abs()), ..OpenDrive::default() };
    assert_eq!(Drive::open(&path, options).unwrap_err().kind, Kind::Full);
    assert!(!path.exists());
}

#[test]
fn deadlines_are_the_operators() {
    let before = deadline();
    assert_eq!(before, DEADLINE);
    let asked = Deadline { transfer: TRANSFER_DEADLINES.0, space: SPACE_DEADLINES.1 };
    set_deadline(asked);
    assert_eq!(deadline(), asked);
    set_deadline(before);
}

/// A daemon that was killed between making a drive's file and giving it its size could not make the pool again.
#[test]
fn a_file_without_a_size_gets_the_one_that_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d0");
    std::fs::write(&path, "").unwrap();
    assert_eq!(Drive::open(&path, OpenDrive::default()).unwrap_err().kind, Kind::Unsupported);
    let options = OpenDrive { create: Some(LEN), read_only: true, ..OpenDrive::default() };
    Drive::open(&path, options).unwrap_err();
    let options = OpenDrive { create: Some(LEN), ..OpenDrive::default() };
    let drive = Drive::open(&path, options).unwrap();
    assert_eq!(drive.capacity(), LEN);
    // What has one keeps it.
    let options = OpenDrive { create: Some(2 * LEN), ..OpenDrive::default() };
    assert_eq!(Drive::open(&path, options).unwrap().capacity(), LEN);
}
