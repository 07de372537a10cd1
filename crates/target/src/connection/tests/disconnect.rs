//! Disconnect (Base 2.1, section 6.4).
//!
//! It was once completed at once: commands of its queue were executed after it, and a host that takes its completion
//! for the end of its writes could have had an old one land on a newer one's data.

use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::Duration;

use media::Drive;
use media::drive::{FaultPlan, OpenDrive};
use nvme::nvm::CopyFormat;
use nvme::sqe::{Sgl, Sqe};
use nvme::status::Status;
use stdx::num::u32_of;

use super::with_target;
use crate::command::tests::io::{copy_sqe, sources0};
use crate::namespace::{Backend, NamespaceSpec};
use crate::rig::{SUBSYSTEM, nqn};
use crate::testing::peer::{PLAIN, Seen, admin, io, read, write};

fn of_second(mut sqe: Sqe) -> Sqe {
    sqe.nsid = 2.into();
    sqe
}

#[test]
fn disconnect_is_answered_when_no_other_command_of_its_queue_is_left() {
    with_target(|address, target| async move {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("drive");
        let options = OpenDrive { create: Some(1 << 20), block_size: 512, ..OpenDrive::default() };
        let slow = Duration::from_millis(20);
        let plan =
            FaultPlan { delay_ppm: 500_000, delay: slow..slow, seed: 3, ..FaultPlan::default() };
        let drive = Drive::open(&path, options).unwrap().with_faults(plan);
        let spec = NamespaceSpec::new(Backend::Drive(Arc::new(drive)), 512);
        assert_eq!(target.add_namespace(&nqn(SUBSYSTEM), &spec), Ok(2));
        let (_admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 128).await;
        let mut capsules = Vec::new();
        for cid in 0..30 {
            capsules.extend(queue.capsule(&of_second(read(cid, 0, 8)), &[]));
            let at = u64::from(cid) * 8;
            let sqe = of_second(write(100 + cid, at, 8, true));
            capsules.extend(queue.capsule(&sqe, &[1; 4096]));
        }
        // One whose data never comes, and that is not answered.
        capsules.extend(queue.capsule(&of_second(write(200, 512, 64, false)), &[]));
        capsules.extend(queue.capsule(&nvme::fabrics::disconnect_sqe(300), &[]));
        // And one that comes too late.
        capsules.extend(queue.capsule(&of_second(write(301, 1024, 8, true)), &[9; 4096]));
        queue.send(&capsules).await;
        let (mut done, mut aborted, mut late) = (0, 0, 0);
        loop {
            match queue.next().await {
                Seen::Data { .. } => done += 1,
                Seen::Ready { cid: 200, .. } => {}
                Seen::Response(cqe) if cqe.cid.get() == 300 => {
                    assert_eq!(cqe.status(), Status::SUCCESS);
                    break;
                }
                Seen::Response(cqe) if cqe.status().is_success() => done += 1,
                Seen::Response(cqe) => {
                    assert!(cqe.status().is(Status::ABORTED_SQ_DELETION), "{:?}", cqe.status());
                    if cqe.cid.get() == 301 {
                        late += 1;
                        continue;
                    }
                    aborted += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        // The last one may still be on its way when all others are done. What waited for its turn in the drive may be aborted.
        let answered = done + aborted == 60 && done > 0 && late <= 1;
        assert!(answered, "{done} done, {aborted} aborted before Disconnect, {late} after it");
        assert_eq!(queue.next().await, Seen::Closed, "and nothing after it");
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes[1024 * 512..].iter().all(|byte| *byte == 0), "it was not executed");
    });
}

/// What its queue has under way is kept from the next association's writes when it is taken; a Copy went on, piece by
/// piece, and was done after those.
#[test]
fn commands_go_on_to_nothing_more_once_their_queue_is_disconnected() {
    const PIECE: usize = 128 << 10;
    with_target(|address, target| async move {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("drive");
        let options = OpenDrive { create: Some(1 << 20), block_size: 512, ..OpenDrive::default() };
        let slow = Duration::from_millis(100);
        let plan = FaultPlan { delay_ppm: 1_000_000, delay: slow..slow, ..FaultPlan::default() };
        let drive = Drive::open(&path, options).unwrap();
        let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.seek(SeekFrom::Start(1 << 19)).unwrap();
        file.write_all(&[7; 1 << 19]).unwrap();
        let backend = Backend::Drive(Arc::new(drive.with_faults(plan)));
        let spec = NamespaceSpec::new(backend, 512);
        assert_eq!(target.add_namespace(&nqn(SUBSYSTEM), &spec), Ok(2));
        let (_admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 32).await;
        let list = sources0(&[(1024, 512)]);
        let mut copy = of_second(copy_sqe(0, 1, CopyFormat::Format0));
        copy.cid = 1.into();
        copy.dptr = Sgl::in_capsule(0, u32_of(list.len()));
        let mut capsules = queue.capsule(&copy, &list);
        capsules.extend(queue.capsule(&nvme::fabrics::disconnect_sqe(300), &[]));
        queue.send(&capsules).await;
        let Seen::Response(copied) = queue.next().await else { panic!("no answer") };
        assert!(copied.cid.get() == 1 && copied.status().is(Status::ABORTED_SQ_DELETION));
        assert!(queue.response().await.status().is_success(), "and then Disconnect's");
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes[PIECE..2 * PIECE].iter().all(|byte| *byte == 0), "it went on");
    });
}

/// A write that waited for blocks entered after what its queue had was noted, and nobody was kept off it.
#[test]
fn a_write_that_waits_for_blocks_ends_with_its_queue() {
    with_target(|address, target| async move {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("drive");
        let options = OpenDrive { create: Some(1 << 20), block_size: 512, ..OpenDrive::default() };
        let slow = Duration::from_millis(200);
        let plan = FaultPlan { delay_ppm: 1_000_000, delay: slow..slow, ..FaultPlan::default() };
        let drive = Drive::open(&path, options).unwrap().with_faults(plan);
        let spec = NamespaceSpec::new(Backend::Drive(Arc::new(drive)), 512);
        assert_eq!(target.add_namespace(&nqn(SUBSYSTEM), &spec), Ok(2));
        let (_admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 32).await;
        let half = |sqe: Sqe, cid: u16, fused| {
            of_second(Sqe { cid: cid.into(), flags: sqe.flags | fused, ..sqe })
        };
        let compare = Sqe { opcode: nvme::opcode::io::COMPARE, ..write(1, 0, 1, true) };
        let mut capsules = queue.capsule(&half(compare, 1, 1), &[0; 512]);
        capsules.extend(queue.capsule(&half(write(2, 0, 1, true), 2, 2), &[1; 512]));
        capsules.extend(queue.capsule(&of_second(write(3, 0, 8, true)), &[9; 4096]));
        capsules.extend(queue.capsule(&nvme::fabrics::disconnect_sqe(300), &[]));
        queue.send(&capsules).await;
        // It ends at once: before those that the drive has.
        let first = queue.response().await;
        assert_eq!(first.cid.get(), 3);
        assert!(first.status().is(Status::ABORTED_SQ_DELETION), "{:?}", first.status());
        while queue.response().await.cid.get() != 300 {}
        assert_ne!(std::fs::read(&path).unwrap()[512], 9, "it was not executed");
    });
}
