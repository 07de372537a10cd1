use super::*;
use crate::limits::BLOCKING_MAX;
use crate::{Config, buffer, run, spawn, timeout};
use std::time::Duration;
use stdx::num::usize32;

const FILE_OPS: u32 = u32_of(crate::limits::FILE_OPS_MAX);

/// A file on the build's own file system (temporary folders are often tmpfs, which is a case of
/// its own).
/// More than any of this takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn folder() -> tempfile::TempDir {
    let near = std::env::current_exe().unwrap();
    tempfile::TempDir::new_in(near.parent().unwrap()).unwrap()
}

async fn filled(len: usize, with: u8) -> Buffer {
    let mut buffer = buffer::alloc(len).await;
    buffer.fill(with);
    buffer
}

fn with_file<F: Future<Output = ()> + 'static>(test: impl FnOnce(File) -> F) {
    let folder = folder();
    let options = OpenOptions { create: true, ..OpenOptions::default() };
    let file = File::open(&folder.path().join("f"), options).unwrap();
    file.set_size(1 << 20).unwrap();
    run(Config::default(), test(file)).unwrap();
}

#[test]
fn what_is_written_is_read() {
    with_file(|file| async move {
        assert_eq!((file.size().unwrap(), file.kind()), (1 << 20, Kind::Regular));
        assert!(file.has_volatile_cache());
        for (dsync, with) in [(false, 1), (true, 2)] {
            let (wrote, _) = file.write_at(filled(8192, with).await, 4096, dsync).await;
            assert_eq!(wrote.unwrap(), 8192);
            let (read, buffer) = file.read_at(filled(16384, 9).await, 0).await;
            assert_eq!(read.unwrap(), 16384);
            let buffer = buffer.unwrap();
            assert!(buffer[..4096].iter().all(|&b| b == 0));
            assert!(buffer[4096..12288].iter().all(|&b| b == with));
        }
        file.sync(true).await.unwrap();
        file.sync(false).await.unwrap();
    });
}

#[test]
fn holes_are_punched_and_ranges_zeroed() {
    with_file(|file| async move {
        let (wrote, _) = file.write_at(filled(1 << 20, 5).await, 0, true).await;
        assert_eq!(wrote.unwrap(), 1 << 20);
        let blocks = || std::fs::metadata(file.path()).unwrap().blocks();
        let before = blocks();
        file.punch_hole(0, 1 << 19).await.unwrap();
        assert!(blocks() < before, "the space is free");
        file.zero_range(1 << 19, 4096).await.unwrap();
        let (_, buffer) = file.read_at(filled(1 << 20, 9).await, 0).await;
        let buffer = buffer.unwrap();
        assert!(buffer[..(1 << 19) + 4096].iter().all(|&b| b == 0));
        assert!(buffer[(1 << 19) + 4096..].iter().all(|&b| b == 5));
    });
}

#[test]
fn reading_past_the_end_is_short() {
    with_file(|file| async move {
        let (read, _) = file.read_at(filled(8192, 1).await, (1 << 20) - 4096).await;
        assert_eq!(read.unwrap(), 4096);
    });
}

#[test]
fn a_failing_call_gives_the_buffer_back() {
    let folder = folder();
    let path = folder.path().join("ro");
    std::fs::write(&path, vec![1; 4096]).unwrap();
    let file = File::open(&path, OpenOptions { write: false, ..OpenOptions::default() }).unwrap();
    run(Config::default(), async move {
        let (wrote, buffer) = file.write_at(filled(4096, 1).await, 0, false).await;
        assert_eq!(wrote.unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(buffer.unwrap().len(), 4096);
    })
    .unwrap();
}

#[test]
fn operations_dropped_early_keep_their_buffers_until_they_complete() {
    with_file(|file| async move {
        let pool = buffer::pool();
        let all = pool.available();
        for n in 0..50u8 {
            let file = file.clone();
            let task = spawn(async move {
                let buffer = filled(65536, n).await;
                file.write_at(buffer, 0, true).await.0.unwrap();
            });
            let _ = timeout(Duration::from_micros(u64::from(n)), task).await;
        }
        let _ = timeout(Duration::ZERO, file.read_at(filled(4096, 0).await, 0)).await;
        file.sync(true).await.unwrap();
        while pool.available() != all {
            crate::yield_now().await;
        }
    });
}

#[test]
fn more_operations_than_the_ring_takes_wait_for_their_turn() {
    with_file(|file| async move {
        let tasks: Vec<_> = (0..6000u64)
            .map(|n| {
                let file = file.clone();
                spawn(async move {
                    let (read, _) = file.read_at(filled(4096, 1).await, n % 256 * 4096).await;
                    assert_eq!(read.unwrap(), 4096);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn a_file_system_without_direct_io_is_told_apart() {
    // /dev/shm is tmpfs, whose direct I/O depends on the kernel: both answers must work.
    let Ok(folder) = tempfile::TempDir::new_in("/dev/shm") else { return };
    let options = OpenOptions { create: true, ..OpenOptions::default() };
    let file = File::open(&folder.path().join("f"), options).unwrap();
    assert!(file.is_direct() || file.align() == 1);
    run(Config::default(), async move {
        let (wrote, _) = file.write_at(filled(4096, 3).await, 0, false).await;
        assert_eq!(wrote.unwrap(), 4096);
    })
    .unwrap();
}

#[test]
fn folders_are_refused() {
    let folder = folder();
    let options = OpenOptions { write: false, ..OpenOptions::default() };
    let error = File::open(folder.path(), options).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
}

#[test]
fn a_dropped_file_closes_on_the_reactor_that_used_it() {
    with_file(|file| async move {
        file.sync(true).await.unwrap();
        let weak = Arc::downgrade(&file.inner);
        drop(file);
        let closed = async {
            while weak.upgrade().is_some() {
                crate::sleep(Duration::from_micros(100)).await;
            }
        };
        crate::timeout(Duration::from_secs(60), closed).await.unwrap();
    });
}

/// Each reactor kept it open for the others: a pulled drive's descriptor stayed for ever.
#[test]
fn a_dropped_file_closes_on_all_reactors_that_used_it() {
    let folder = folder();
    let path = folder.path().join("f");
    std::fs::write(&path, [0; 4096]).unwrap();
    let exclusive = OpenOptions { exclusive: true, ..OpenOptions::default() };
    let file = File::open(&path, exclusive).unwrap();
    let config = || Config { cpu: None, poll: crate::PollPolicy::Interrupt, name: "f".into() };
    let others: Vec<_> = (0..2).map(|_| crate::Reactor::start(config()).unwrap()).collect();
    for other in &others {
        let file = file.clone();
        let used = other.call(move || async move { file.sync(true).await });
        used.wait().unwrap().unwrap();
    }
    drop(file);
    run(Config::default(), async move {
        let closed = async {
            while hold(&path).is_err() {
                crate::sleep(Duration::from_millis(1)).await;
            }
        };
        crate::timeout(PATIENCE, closed).await.unwrap();
    })
    .unwrap();
    others.iter().for_each(crate::Handle::stop);
}

#[test]
fn discarding_is_for_block_devices() {
    with_file(|file| async move {
        assert!(file.discard(0, 4096).await.is_err());
    });
}

/// A device that hung had all helper threads with eight discards, and so those of the other drives, and what keeps
/// reservations. What never got that far counted as a change that the kernel still has.
#[test]
fn discards_of_a_device_that_hangs_leave_the_helper_threads_to_others() {
    crate::run(crate::Config::default(), async {
        let (_reader, writer) = std::io::pipe().unwrap();
        let file = hanging(writer, Duration::from_millis(5));
        let hangs = Discarding::begin(Arc::clone(&file.inner)).await;
        let discards = (0..BLOCKING_MAX * 2).map(|_| file.discard(0, 4096));
        for outcome in crate::join_all(discards).await {
            assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(file.late_changes(), 0);
        crate::blocking(|| Ok(())).await.unwrap();
        drop(hangs);
        let error = file.discard(0, 4096).await.unwrap_err();
        assert_ne!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    })
    .unwrap();
}

/// Its host gave it up: the drive was taken for one to which nothing can come any more.
#[test]
fn a_discard_is_known_until_it_ends_whoever_waits() {
    let (_reader, writer) = std::io::pipe().unwrap();
    let again = hanging(writer.try_clone().unwrap(), Duration::from_secs(60));
    let file = hanging(writer, Duration::from_secs(60));
    let calls = [(); 3].map(|()| Call::begin(&file.inner));
    assert!(file.has_changes() && !again.is_alone() && file.is_alone());
    assert!(!file.has_unawaited_changes());
    let [in_time, late, left] = calls;
    drop(Running(Arc::clone(&in_time)));
    drop(Awaited(in_time));
    assert!(!file.has_unawaited_changes(), "it had ended");
    late.leave(Unawaited::Late);
    drop(Awaited(Arc::clone(&late)));
    assert_eq!((file.late_changes(), again.late_changes()), (1, 1), "however it is opened");
    drop(Running(late));
    assert!(file.has_changes() && !file.has_unawaited_changes());
    drop(Awaited(Arc::clone(&left)));
    assert!(file.has_unawaited_changes());
    assert_eq!(file.late_changes(), 0, "others may go on");
    drop(Running(left));
    assert!(!file.has_changes() && !file.has_unawaited_changes() && again.is_alone());
}

#[test]
fn what_is_held_is_held_by_nobody_else() {
    let folder = folder();
    let path = folder.path().join("f");
    std::fs::write(&path, b"x").unwrap();
    let busy = io::ErrorKind::ResourceBusy;
    let held = hold(&path).unwrap();
    assert_eq!(hold(&path).unwrap_err().kind(), busy);
    let exclusive = OpenOptions { exclusive: true, ..OpenOptions::default() };
    assert_eq!(File::open(&path, exclusive).unwrap_err().kind(), busy);
    File::open(&path, OpenOptions::default()).unwrap();
    drop(held);
    hold(&path).unwrap();
}

/// A pipe that nobody reads: what a drive is like that does not answer, once the pipe is full.
fn hanging(writer: std::io::PipeWriter, transfer: Duration) -> File {
    let writer = std::fs::File::from(OwnedFd::from(writer));
    let inner = Inner {
        changes: Changes::of(&writer.metadata().unwrap()),
        fd: writer.into(),
        path: PathBuf::new(),
        kind: Kind::Regular,
        direct: false,
        align: 1,
        deadline: Some(Deadline { transfer, space: transfer }),
        discarding: AtomicBool::new(false),
        closing: Closing::Here,
    };
    File::of(inner)
}

/// Whoever gave a write up before its deadline once left no trace of it, and could not know that it may still come. A drive
/// that did not answer was let go of, and taken by the same process at once: what the kernel still had came over what was
/// written there then, and so did what a task that was left of who had it before was still waiting for.
#[test]
fn what_is_asked_for_by_one_handle_is_known_by_another_until_it_ends() {
    run(Config::default(), async {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let (_, elsewhere) = std::io::pipe().unwrap();
        let elsewhere = hanging(elsewhere, Duration::from_secs(60));
        let again = hanging(writer.try_clone().unwrap(), Duration::from_secs(60));
        let file = hanging(writer, Duration::from_secs(60));
        let write = async || file.write_at(filled(1 << 16, 1).await, 0, false).await;
        while crate::timeout(Duration::from_millis(5), write()).await.is_ok() {
            assert!(!file.has_changes() && again.is_alone());
        }
        assert!(file.has_unawaited_changes() && !again.is_alone(), "it is under way");
        assert_eq!(file.late_changes(), 0, "others may write");
        assert!(file.is_alone() && elsewhere.is_alone(), "it was asked for that itself");
        // It was asked to give up, and does.
        while file.has_changes() {
            crate::sleep(Duration::from_millis(1)).await;
        }
        assert!(again.is_alone());
        let waits = spawn({
            let file = file.clone();
            async move { file.write_at(filled(1 << 16, 1).await, 0, false).await.0 }
        });
        drop(file);
        while again.is_alone() {
            crate::sleep(Duration::from_millis(1)).await;
        }
        assert!(!again.has_unawaited_changes());
        let read = crate::blocking(move || {
            let read = std::io::Read::read(&mut reader, &mut [0; 1 << 17])?;
            Ok((read, reader))
        });
        let (read, _reader) = read.await.unwrap();
        assert!(read > 0);
        assert!(waits.await.unwrap().unwrap() > 0);
        assert!(again.is_alone());
    })
    .unwrap();
}

#[test]
fn a_drive_that_hangs_is_waited_for_no_longer_than_its_deadline() {
    run(Config::default(), async {
        let (_reader, writer) = std::io::pipe().unwrap();
        let file = hanging(writer, Duration::from_millis(5));
        let (ended, late) = loop {
            let (wrote, buffer) = file.write_at(filled(1 << 16, 1).await, 0, false).await;
            match wrote {
                Ok(_) => assert!(buffer.is_some()),
                Err(e) => break (e, (buffer.is_some(), file.late_changes())),
            }
        };
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        assert_eq!(late, (false, 1), "the kernel has the buffer, and may still write it");
        // It was asked to give up, and does.
        while file.late_changes() > 0 {
            crate::sleep(Duration::from_millis(1)).await;
        }
    })
    .unwrap();
}

/// What the kernel has of a drive that hangs, it may still use: neither is the buffer given to somebody else, nor the
/// descriptor closed, whoever has given up.
#[test]
fn what_a_drive_that_hangs_was_given_is_kept_until_it_is_done() {
    run(Config::default(), async {
        let (reader, writer) = std::io::pipe().unwrap();
        let file = hanging(writer, Duration::from_secs(60));
        let kept = Arc::downgrade(&file.inner);
        let free = || crate::buffer::pool().available();
        let all = free();
        let mut writes = Vec::new();
        // A pipe takes 64 KiB: the later one stays with the kernel.
        for _ in 0..2 {
            let (file, buffer) = (file.clone(), filled(1 << 16, 1).await);
            writes.push(Box::pin(async move { file.write_at(buffer, 0, false).await }));
        }
        let mut second = writes.pop().unwrap();
        crate::timeout(PATIENCE, writes.pop().unwrap()).await.unwrap().0.unwrap();
        assert!(crate::timeout(Duration::from_millis(5), &mut second).await.is_err());
        drop((second, file));
        assert!(free() < all && kept.upgrade().is_some(), "given up, and not done");
        crate::timeout(PATIENCE, async {
            while free() < all || kept.upgrade().is_some() {
                crate::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .unwrap();
        drop(reader);
    })
    .unwrap();
}

/// One drive that did not answer held every operation and every buffer that its reactor had: the others stopped
/// with it, and so did whoever waited for a place behind it, for ever.
#[test]
fn a_drive_that_hangs_leaves_the_others_what_they_need() {
    with_file(|other| async move {
        let (_reader, writer) = std::io::pipe().unwrap();
        let file = hanging(writer, Duration::from_millis(200));
        // What timed out stays with the kernel: as on a drive that never answers.
        let operations =
            core::with(|core| Rc::clone(&core.files.local(&file, &core.file_ops).operations));
        let mut held = Vec::new();
        while let Some(grant) = operations.try_take(1) {
            held.push(grant);
        }
        assert_eq!(held.len(), crate::limits::FILE_OPS_OF_ONE);
        let (wrote, buffer) = file.write_at(filled(1 << 20, 1).await, 0, false).await;
        assert_eq!(wrote.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(buffer.is_some(), "it was never given to the kernel");
        assert!(!file.has_changes());
        let reads = (0..2 * FILE_OPS).map(|n| {
            let other = other.clone();
            spawn(async move {
                let (read, _) =
                    other.read_at(filled(4096, 1).await, u64::from(n % 256) * 4096).await;
                assert_eq!(read.unwrap(), 4096);
            })
        });
        for read in reads.collect::<Vec<_>>() {
            crate::timeout(PATIENCE, read).await.unwrap().unwrap();
        }
    });
}

/// Silent connections took every slot of the ring, and file operations were answered EBUSY: a pool's log and drives
/// were given up for it, all of them, until a restart.
#[test]
fn waits_without_number_leave_files_their_slots() {
    with_file(|file| async move {
        let silent = Rc::new(crate::sys::eventfd().unwrap());
        let poll =
            || core::with(|core| core.driver.ring().unwrap().start_poll(&silent, libc::POLLIN));
        let mut waits = Vec::new();
        while let Some(wait) = poll() {
            waits.push(wait);
        }
        assert_eq!(waits.len() + usize32(FILE_OPS), crate::limits::OPS_MAX);
        let tasks: Vec<_> = (0..2 * FILE_OPS)
            .map(|n| {
                let file = file.clone();
                spawn(async move {
                    let (read, _) =
                        file.read_at(filled(4096, 1).await, u64::from(n % 256) * 4096).await;
                    assert_eq!(read.unwrap(), 4096);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        file.sync(true).await.unwrap();
        drop(waits);
        while poll().is_none() {
            crate::yield_now().await;
        }
    });
}

/// The file appeared where nobody had asked for one, in another folder and of root perhaps.
#[test]
fn nothing_is_made_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let (link, target) = (dir.path().join("link"), dir.path().join("target"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let options = OpenOptions { create: true, ..OpenOptions::default() };
    let error = File::open(&link, options).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(!target.exists());
    std::fs::write(&target, [0; 8192]).unwrap();
    File::open(&link, options).unwrap();
}

/// A daemon that was killed holds nothing any more, and the kernel may still have writes of it.
#[test]
fn what_another_process_may_still_write_is_seen_until_the_last_descriptor_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d0");
    std::fs::write(&path, [0; 8192]).unwrap();
    let open = || File::open(&path, OpenOptions { write: true, ..OpenOptions::default() }).unwrap();
    let (file, second) = (open(), open());
    assert!(file.is_alone() && second.is_alone(), "both are of this process");
    drop(second);
    for another in [marks::MARKS.start, marks::own() - 1, marks::own() + 1, marks::MARKS.end - 1] {
        let other = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        assert!(file.is_alone(), "nobody marked it");
        marks::set(other.as_raw_fd(), another);
        assert!(!file.is_alone());
        // As an operation that is under way has it.
        let kept = other.try_clone().unwrap();
        drop(other);
        assert!(!file.is_alone());
        drop(kept);
        assert!(file.is_alone());
    }
    // The other one sees this one's, until it is let go of.
    let seen = || marks::has_others(file.fd(), marks::MARKS.start);
    let second = open();
    assert!(seen());
    file.unmark();
    assert!(seen(), "the second one may be written through");
    second.unmark();
    assert!(!seen());
}
