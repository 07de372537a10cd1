//! Disconnect (Base 2.1, section 6.4).
//!
//! It was once completed at once: commands of its queue were executed after it, and a host that takes its completion
//! for the end of its writes could have had an old one land on a newer one's data.

use std::sync::Arc;
use std::time::Duration;

use media::Drive;
use media::drive::{FaultPlan, OpenDrive};
use nvme::sqe::Sqe;
use nvme::status::Status;

use super::with_target;
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
        let (mut done, mut aborted) = (0, 0);
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
                    assert_eq!(cqe.cid.get(), 301);
                    aborted += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        // The last one may still be on its way when all others are done.
        assert!(done == 60 && aborted <= 1, "{done} done, {aborted} aborted before Disconnect");
        assert_eq!(queue.next().await, Seen::Closed, "and nothing after it");
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes[1024 * 512..].iter().all(|byte| *byte == 0), "it was not executed");
    });
}
