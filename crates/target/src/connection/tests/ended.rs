//! What a host that is gone, or is let in no more, had under way.
//!
//! A discard went on piece by piece after its association had ended, and its host had written there by another path.

use std::sync::Arc;
use std::time::Duration;

use media::Drive;
use media::drive::{FaultPlan, OpenDrive};
use nvme::nvm::{LbaRange, WriteZeroes};
use stdx::Lba;

use super::{until_empty, with_target};
use crate::command::tests::double::at_once;
use crate::namespace::{Backend, NamespaceSpec};
use crate::rig::{HOST, SUBSYSTEM, backend, nqn};
use crate::testing::peer::{PLAIN, Seen, admin, io, read, write};

#[test]
fn what_a_lost_host_has_under_way_ends_with_the_piece_that_the_backend_has() {
    const BYTES: u64 = 32 << 20;
    with_target(|address, target| async move {
        let Backend::Memory(region) = backend(BYTES) else { unreachable!() };
        region.copy_in(BYTES - 512, &[1; 512]).unwrap();
        region.copy_in(0, &[1; 512]).unwrap();
        let spec = NamespaceSpec::new(Backend::Memory(Arc::clone(&region)), 512);
        assert_eq!(target.add_namespace(&nqn(SUBSYSTEM), &spec), Ok(2));
        let (admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 32).await;
        let range = LbaRange::new(Lba::new(0), 65_536).unwrap();
        let zeroes = WriteZeroes { range, fua: false, limited_retry: false, deallocate: true };
        queue.command(&zeroes.to_sqe(1, 2), &[]).await;
        while region.mismatch(0, &[0; 512]).unwrap().is_some() {
            reactor::yield_now().await;
        }
        drop((queue, admin));
        until_empty(&target).await;
        assert_eq!(region.mismatch(BYTES - 512, &[1; 512]).unwrap(), None, "it went on");
    });
}

/// It lets go of what it is sending, and may have the command done again while it sends, when it hears of the end.
#[test]
fn a_host_that_sends_data_hears_nothing_of_the_command_when_its_queue_ends() {
    with_target(|address, target| async move {
        let (admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 32).await;
        queue.command(&write(7, 0, 64, false), &[]).await;
        let Seen::Ready { ttag, .. } = queue.next().await else { panic!("no R2T") };
        let pdu = queue.data(7, ttag, 0, &[1; 16_384], false);
        queue.send(&pdu).await;
        drop(admin);
        assert_eq!(queue.next().await, Seen::Closed);
        until_empty(&target).await;
    });
}

/// Its host takes the first for ended, and for done again or not.
#[test]
fn a_write_of_a_lost_association_comes_before_the_next_ones_to_its_blocks() {
    with_target(|address, target| async move {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("drive");
        let options = OpenDrive { create: Some(1 << 20), block_size: 512, ..OpenDrive::default() };
        let slow = Duration::from_millis(100);
        let plan = FaultPlan { delay_ppm: 1_000_000, delay: slow..slow, ..FaultPlan::default() };
        let drive = Drive::open(&path, options).unwrap().with_faults(plan);
        let spec = NamespaceSpec::new(Backend::Drive(Arc::new(drive)), 512);
        assert_eq!(target.add_namespace(&nqn(SUBSYSTEM), &spec), Ok(2));
        let (lost_admin, cntlid) = admin(address).await;
        let mut lost = io(address, cntlid, PLAIN, 32).await;
        let mut sqe = write(1, 0, 8, true);
        sqe.nsid = 2.into();
        let began = reactor::now_exact();
        lost.command(&sqe, &[0xaa; 4096]).await;
        // Its answer comes when the write is the drive's.
        lost.command(&read(3, 0, 1), &[]).await;
        assert!(matches!(lost.next().await, Seen::Data { cid: 3, .. }));
        drop((lost, lost_admin));
        let (_admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 32).await;
        queue.command(&sqe, &[0xbb; 4096]).await;
        assert!(queue.response().await.status().is_success());
        let took = reactor::now_exact() - began;
        assert!(took >= 200_000_000, "the drive had both at once: {took} ns");
        assert_eq!(std::fs::read(&path).unwrap()[..4096], [0xbb; 4096]);
    });
}

/// Five attempts at once are over in milliseconds, and what has to come back takes seconds.
#[test]
fn hosts_that_asked_for_it_are_told_to_wait_before_another_attempt() {
    with_target(|address, target| async move {
        let spec = NamespaceSpec::new(Backend::Absent { bytes: 1 << 20 }, 512);
        assert_eq!(target.add_namespace(&nqn(SUBSYSTEM), &spec), Ok(2));
        let (mut admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 32).await;
        let (mut absent, mut beyond) = (read(3, 0, 1), read(4, 1 << 30, 1));
        absent.nsid = 2.into();
        beyond.nsid = 1.into();
        let mut delays = Vec::new();
        for acre in [0, 1] {
            let fid = nvme::feature::fid::HOST_BEHAVIOR;
            let mut set = nvme::sqe::Sqe::new(nvme::opcode::admin::SET_FEATURES, 5, 0);
            set.cdw10 = u32::from(fid).into();
            set.dptr = nvme::sqe::Sgl::in_capsule(0, 512);
            let mut behavior = [0; 512];
            behavior[0] = acre;
            admin.command(&set, &behavior).await;
            assert!(admin.response().await.status().is_success());
            for sqe in [&absent, &beyond] {
                queue.command(sqe, &[]).await;
                let status = queue.response().await.status();
                assert!(!status.is_success());
                delays.push(status.retry_delay());
            }
        }
        assert_eq!(delays, [0, 0, 2, 0]);
    });
}

#[test]
fn a_denial_is_done_when_no_drive_has_commands_of_the_host() {
    with_target(|address, target| async move {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("drive");
        let options = OpenDrive { create: Some(1 << 20), block_size: 512, ..OpenDrive::default() };
        let slow = Duration::from_millis(50);
        let plan = FaultPlan { delay_ppm: 1_000_000, delay: slow..slow, ..FaultPlan::default() };
        let drive = Drive::open(&path, options).unwrap().with_faults(plan);
        let spec = NamespaceSpec::new(Backend::Drive(Arc::new(drive)), 512);
        assert_eq!(target.add_namespace(&nqn(SUBSYSTEM), &spec), Ok(2));
        let subsystem = nqn(SUBSYSTEM);
        target.allow_host(&subsystem, &nqn(HOST)).unwrap();
        drop(target.set_allow_any(&subsystem, false).unwrap());
        let (_admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 32).await;
        let mut sqe = write(1, 0, 8, true);
        sqe.nsid = 2.into();
        queue.command(&sqe, &[0xaa; 4096]).await;
        // Its answer comes when the write is the drive's.
        queue.command(&read(3, 0, 1), &[]).await;
        assert!(matches!(queue.next().await, Seen::Data { cid: 3, .. }));
        let draining = target.deny_host(&subsystem, &nqn(HOST)).unwrap();
        assert!(at_once(draining.done()).is_none(), "the drive has a write of its");
        draining.done().await;
        assert_eq!(std::fs::read(&path).unwrap()[..4096], [0xaa; 4096]);
    });
}
