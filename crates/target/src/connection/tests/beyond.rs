//! What waits for drives that a pool lacks: until they are back, and no longer than hosts wait.

use std::time::Duration;

use nvme::sqe::Sqe;
use nvme::status::Status;

use stdx::num::{u16_of, u32_of};

use super::with_target;
use crate::command::tests::double::Place;
use crate::limits::{DRIVES_PATIENCE, DRIVES_PATIENCE_CROWDED, DRIVES_WAITING_PART};
use crate::namespace::{Backend, NamespaceSpec};
use crate::registry::Target;
use crate::rig::{SUBSYSTEM, backend, nqn};
use crate::testing::peer::{PLAIN, Peer, admin, io, write};

const BLOCK: usize = 4096;
const ENTRIES: u16 = 32;

/// How many commands of such a queue wait for long.
const WAITING: u16 = ENTRIES / u16_of(DRIVES_WAITING_PART);

/// A write of a block of namespace 2.
fn of(cid: u16) -> (Sqe, Vec<u8>) {
    let mut sqe = write(cid, cid.into(), 1, true);
    sqe.nsid = 2.into();
    sqe.dptr = nvme::sqe::Sgl::in_capsule(0, u32_of(BLOCK));
    (sqe, vec![cid.to_le_bytes()[0]; BLOCK])
}

async fn send(queue: &mut Peer, cid: u16) {
    let (sqe, data) = of(cid);
    queue.command(&sqe, &data).await;
}

/// Namespace 2 is a volume whose pool has lost two of three drives, and was found to have by a write.
async fn lose_drives(target: &Target, queue: &mut Peer) -> engine::Pool {
    let (media, pool, place) = Place::on_three_drives(2, 64).await;
    let spec = NamespaceSpec::new(place.namespace.backend.clone(), 4096);
    assert_eq!(target.add_namespace(&nqn(SUBSYSTEM), &spec), Ok(2));
    send(queue, 1).await;
    assert_eq!(queue.response().await.status(), Status::SUCCESS);
    media[..2].iter().for_each(|drive| drive.fail());
    send(queue, 2).await;
    assert!(queue.response().await.status().is(Status::INTERNAL_PATH_ERROR));
    pool
}

#[test]
fn a_write_that_waits_for_drives_is_done_when_its_pool_is_open_again() {
    with_target(|address, target| async move {
        let (_admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, ENTRIES).await;
        let _pool = lose_drives(&target, &mut queue).await;
        // The last one finds that the others wait.
        for cid in 0..=WAITING {
            send(&mut queue, cid).await;
        }
        assert_eq!(queue.response().await.cid.get(), WAITING);
        let name = nqn(SUBSYSTEM);
        drop(target.withdraw_namespace(&name, 2).unwrap());
        // Sleeps: as long as an opening takes.
        reactor::sleep(Duration::from_millis(200)).await;
        let Backend::Memory(region) = backend(1 << 20) else { unreachable!() };
        let reopened = Backend::Memory(region.clone());
        target.provide_namespace(&name, 2, reopened, 64 * BLOCK as u64).unwrap();
        for _ in 0..WAITING {
            assert_eq!(queue.response().await.status(), Status::SUCCESS);
        }
        for cid in 0..WAITING {
            let (_, data) = of(cid);
            assert_eq!(region.mismatch(u64::from(cid) * BLOCK as u64, &data).unwrap(), None);
        }
    });
}

#[test]
fn what_waits_for_drives_in_vain_ends_in_time_and_leaves_room_for_others() {
    with_target(|address, target| async move {
        let (_admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, ENTRIES).await;
        let _pool = lose_drives(&target, &mut queue).await;
        let began = reactor::now();
        for cid in 0..=WAITING {
            send(&mut queue, cid).await;
        }
        let mut ended = Vec::new();
        for _ in 0..=WAITING {
            let cqe = queue.response().await;
            assert!(cqe.status().is(Status::INTERNAL_PATH_ERROR) && !cqe.status().dnr());
            ended.push((cqe.cid.get(), Duration::from_nanos(reactor::now() - began)));
        }
        assert!(ended[0].0 == WAITING && ended[0].1 >= DRIVES_PATIENCE_CROWDED, "{ended:?}");
        assert!(ended[0].1 < DRIVES_PATIENCE, "{ended:?}");
        let others = &ended[1..];
        assert!(others.iter().all(|(_, after)| *after >= DRIVES_PATIENCE), "{ended:?}");
        // Linux takes a command for lost after 30 s.
        assert!(others.iter().all(|(_, after)| after.as_secs() < 20), "{ended:?}");
    });
}
