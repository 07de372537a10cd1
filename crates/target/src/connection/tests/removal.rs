//! A namespace that is removed, or made smaller, takes late data nowhere.
//!
//! A host's write once waited for its data while its namespace was removed and its drive let go of. The data came, the
//! write was executed, with success, and overwrote what the drive's next owner had written meanwhile.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use media::Drive;
use media::drive::{FaultPlan, OpenDrive};
use nvme::sqe::Sqe;
use nvme::status::Status;

use super::{add_volume, numbered, with_target};
use crate::namespace::{Backend, NamespaceSpec};
use crate::registry::Target;
use crate::rig::{Rig, SUBSYSTEM, backend, nqn};
use crate::testing::peer::{PLAIN, Peer, Seen, admin, io, read, write};

const BYTES: u64 = 1 << 20;
/// Long for a test, and nothing to a drive that is slow.
const SLOW: Duration = Duration::from_millis(100);

fn of_second(mut sqe: Sqe) -> Sqe {
    sqe.nsid = 2.into();
    sqe
}

fn file(path: &Path) -> Drive {
    let options = OpenDrive { create: Some(BYTES), block_size: 512, ..OpenDrive::default() };
    Drive::open(path, options).unwrap()
}

/// Serves `backend` as namespace 2.
fn add(target: &Target, backend: Backend, block_size: u32) {
    let spec = NamespaceSpec::new(backend, block_size);
    assert_eq!(target.add_namespace(&nqn(SUBSYSTEM), &spec), Ok(2));
}

/// Has a write of namespace 2 wait for half its data, removes the namespace, and sends the rest then. A host once heard of
/// the end of a write while it sent for it, and let go of what it was sending.
async fn write_late(queue: &mut Peer, target: &Target, blocks: u16) {
    queue.command(&of_second(write(7, 0, blocks, false)), &[]).await;
    let Seen::Ready { ttag, length, .. } = queue.next().await else { panic!("no R2T") };
    let half = vec![0xee; usize::try_from(length / 2).unwrap()];
    let pdu = queue.data(7, ttag, 0, &half, false);
    queue.send(&pdu).await;
    target.remove_namespace(&nqn(SUBSYSTEM), 2).unwrap().done().await;
    queue.command(&read(6, 0, 1), &[]).await;
    assert!(matches!(queue.next().await, Seen::Data { cid: 6, .. }), "no answer yet");
    let pdu = queue.data(7, ttag, length / 2, &half, true);
    queue.send(&pdu).await;
    let cqe = queue.response().await;
    let status = cqe.status();
    assert!(status.is(Status::INVALID_NAMESPACE_OR_FORMAT) && status.dnr(), "{cqe:?}");
    assert_eq!(cqe.cid, 7);
    // The queue goes on; and what it answers behind the data shows that the data has been taken.
    queue.command(&of_second(read(8, 0, 1)), &[]).await;
    assert!(queue.response().await.status().is(Status::INVALID_NAMESPACE_OR_FORMAT));
    queue.command(&read(9, 0, 1), &[]).await;
    assert!(matches!(queue.next().await, Seen::Data { cid: 9, .. }));
}

#[test]
fn a_write_whose_data_comes_after_its_namespace_was_removed_lands_in_no_drive() {
    with_target(|address, target| async move {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("drive");
        let drive = Arc::new(file(&path));
        add(&target, Backend::Drive(Arc::clone(&drive)), 512);
        let (_admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 32).await;
        let _idle = admin(address).await;
        write_late(&mut queue, &target, 128).await;
        assert_eq!(Arc::strong_count(&drive), 1, "it is let go of");
        assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
    });
}

#[test]
fn a_write_whose_data_comes_after_its_namespace_was_removed_lands_in_no_memory() {
    with_target(|address, target| async move {
        let Backend::Memory(region) = backend(BYTES) else { unreachable!() };
        add(&target, Backend::Memory(Arc::clone(&region)), 512);
        let (_admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 32).await;
        write_late(&mut queue, &target, 128).await;
        assert_eq!(region.mismatch(0, &[0; 1 << 16]).unwrap(), None);
        assert_eq!(Arc::strong_count(&region), 1, "it is let go of");
    });
}

#[test]
fn a_write_whose_data_comes_after_its_namespace_was_removed_lands_in_no_volume() {
    with_target(|address, target| async move {
        let pool = add_volume(&target).await;
        let volume = pool.volume("v").unwrap();
        let (_admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 32).await;
        let mut sqe = of_second(write(7, 1, 16, false));
        sqe.dptr = nvme::sqe::Sgl::transport(16 * 4096);
        queue.command(&sqe, &[]).await;
        let Seen::Ready { ttag, .. } = queue.next().await else { panic!("no R2T") };
        target.remove_namespace(&nqn(SUBSYSTEM), 2).unwrap().done().await;
        let pdu = queue.data(7, ttag, 0, &[0xee; 16 * 4096], true);
        queue.send(&pdu).await;
        assert!(queue.response().await.status().is(Status::INVALID_NAMESPACE_OR_FORMAT));
        queue.command(&read(9, 0, 1), &[]).await;
        assert!(matches!(queue.next().await, Seen::Data { cid: 9, .. }));
        let mut block = vec![0; 4096];
        volume.read(4096, &mut block).await.unwrap();
        assert_eq!(block, numbered(1));
        pool.close().await.unwrap();
    });
}

/// What the backend has is waited for, and nothing else.
#[test]
fn a_removal_is_done_when_the_drive_has_none_of_its_commands() {
    with_target(|address, target| async move {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("drive");
        let delay = SLOW..SLOW;
        let plan = FaultPlan { delay_ppm: 1_000_000, delay, ..FaultPlan::default() };
        let drive = Arc::new(file(&path).with_faults(plan));
        add(&target, Backend::Drive(Arc::clone(&drive)), 512);
        let (_admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 32).await;
        queue.command(&of_second(write(1, 0, 8, true)), &[0xaa; 4096]).await;
        queue.command(&of_second(read(2, 0, 8)), &[]).await;
        // Its answer comes when the two before it are the drive's.
        queue.command(&read(3, 0, 1), &[]).await;
        assert!(matches!(queue.next().await, Seen::Data { cid: 3, .. }));
        let draining = target.remove_namespace(&nqn(SUBSYSTEM), 2).unwrap();
        let over = Rc::new(Cell::new(false));
        let told = Rc::clone(&over);
        let removal = reactor::spawn(async move {
            draining.done().await;
            told.set(true);
        });
        let mut answers = 0;
        while answers < 2 {
            assert!(!over.get() || answers > 0, "the drive had both");
            match queue.next().await {
                Seen::Response(cqe) => assert_eq!(cqe.status(), Status::SUCCESS),
                Seen::Data { cid: 2, .. } => {}
                other => panic!("{other:?}"),
            }
            answers += 1;
        }
        removal.await;
        assert_eq!(std::fs::read(&path).unwrap()[..4096], [0xaa; 4096], "acknowledged");
        assert_eq!(Arc::strong_count(&drive), 1);
    });
}

/// A device keeps its size: less of it is served.
#[test]
fn a_write_whose_data_comes_after_its_blocks_were_cut_off_lands_nowhere() {
    with_target(|address, target| async move {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("drive");
        add(&target, Backend::Drive(Arc::new(file(&path))), 512);
        let (_admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 32).await;
        queue.command(&of_second(write(7, 1024, 64, false)), &[]).await;
        let Seen::Ready { ttag, .. } = queue.next().await else { panic!("no R2T") };
        target.resize_namespace(&nqn(SUBSYSTEM), 2, BYTES / 2).unwrap().done().await;
        let pdu = queue.data(7, ttag, 0, &[0xee; 32_768], true);
        queue.send(&pdu).await;
        assert!(queue.response().await.status().is(Status::LBA_OUT_OF_RANGE));
        assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
    });
}

/// Hosts of two reactors write, with data in capsules and asked for, while the namespace is removed by a third
/// thread. What the next owner writes once that is through stays.
#[test]
fn nothing_of_a_loaded_namespace_reaches_its_drive_after_its_removal() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive");
    let Rig { target, .. } = Rig::new();
    let config = || reactor::Config {
        cpu: None,
        poll: reactor::PollPolicy::Interrupt,
        name: "target".to_owned(),
    };
    let reactors = [0; 2].map(|_| reactor::Reactor::start(config()).unwrap());
    for _ in 0..10 {
        let drive = Arc::new(file(&path));
        add(&target, Backend::Drive(Arc::clone(&drive)), 512);
        let hosts = reactors.each_ref().map(|reactor| {
            let target = Arc::clone(&target);
            let (began, begun) = std::sync::mpsc::channel();
            let host = reactor.spawn(move || async move {
                let port = crate::testing::serve(target, 0).await;
                let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
                let (_admin, cntlid) = admin(address).await;
                write_until_refused(io(address, cntlid, PLAIN, 32).await, began).await;
            });
            host.unwrap();
            begun
        });
        hosts.iter().for_each(|begun| begun.recv().unwrap());
        let draining = target.remove_namespace(&nqn(SUBSYSTEM), 2).unwrap();
        assert!(draining.wait(Duration::from_secs(20)));
        let next = vec![0x11; usize::try_from(BYTES).unwrap()];
        std::fs::write(&path, &next).unwrap();
        // The channel's end is dropped when the host has seen all of its answers.
        hosts.iter().for_each(|begun| assert!(begun.recv().is_err()));
        assert!(std::fs::read(&path).unwrap() == next, "what the next owner wrote");
        assert_eq!(Arc::strong_count(&drive), 1);
        std::fs::remove_file(&path).unwrap();
    }
    for reactor in reactors {
        reactor.stop();
        let _ = reactor.join();
    }
}

/// Keeps 16 writes of namespace 2 under way until each was refused, as the namespace is gone. `began` hears when some
/// have succeeded.
async fn write_until_refused(mut queue: Peer, began: std::sync::mpsc::Sender<()>) {
    let sqe = |cid: u16| of_second(write(cid, u64::from(cid) * 64, 16, cid.is_multiple_of(2)));
    for cid in 0..16u16 {
        let data = if cid.is_multiple_of(2) { &[0xee; 8192][..] } else { &[] };
        queue.command(&sqe(cid), data).await;
    }
    let (mut written, mut open) = (0, 16);
    while open > 0 {
        match queue.next().await {
            Seen::Ready { cid, ttag, .. } => {
                let pdu = queue.data(cid, ttag, 0, &[0xee; 8192], true);
                queue.send(&pdu).await;
            }
            Seen::Response(cqe) if cqe.status().is_success() => {
                written += 1;
                if written == 64 {
                    began.send(()).unwrap();
                }
                let cid = cqe.cid.get();
                let data = if cid.is_multiple_of(2) { &[0xee; 8192][..] } else { &[] };
                queue.command(&sqe(cid), data).await;
            }
            Seen::Response(cqe) => {
                assert!(cqe.status().is(Status::INVALID_NAMESPACE_OR_FORMAT), "{:?}", cqe.status());
                open -= 1;
            }
            other => panic!("{other:?}"),
        }
    }
}
