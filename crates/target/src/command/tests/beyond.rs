//! A volume whose pool has lost more drives than its redundancy bears: what is answered, and what waits.

use std::rc::Rc;

use nvme::nvm::WriteZeroes;
use nvme::opcode::io;
use nvme::sqe::Sqe;
use nvme::status::Status;

use super::double::*;
use super::io::{range, read, read_sqe, write, write_sqe};
use crate::command::Attached;

/// A volume of 64 blocks, with all of it written, whose pool has lost two of its three drives, and that knows.
async fn beyond() -> (engine::Pool, Place, Rc<Attached>, Vec<u8>) {
    let (media, pool, place) = Place::on_three_drives(1, 64).await;
    let at = place.attach(HOST);
    let data = pattern(3, 64 * 4096);
    assert_eq!(write(&at, 0, &data, By::R2t).await, Status::SUCCESS);
    media[..2].iter().for_each(|drive| drive.fail());
    // It may be the one that finds out, while it is under way.
    assert_eq!(write(&at, 63, &data[63 * 4096..], By::R2t).await, Status::INTERNAL_PATH_ERROR);
    (pool, place, at, data)
}

#[test]
fn a_volume_beyond_redundancy_is_accessible_and_read() {
    reactor::simulate(1, async {
        let (_pool, place, at, data) = beyond().await;
        let namespace = &place.namespace;
        assert!(!namespace.backend.is_inaccessible() && namespace.backend.has_failed());
        assert_eq!(read(&at, range(0, 63)).await, data[..63 * 4096]);
        // What was acknowledged is durable.
        assert_eq!(
            Double::none().run(&at, &Sqe::new(io::FLUSH, 1, 1)).await.status,
            Status::SUCCESS
        );
        // A write of it may be done.
        let host = Double::none();
        let mut sqe = read_sqe(range(63, 1));
        host.describe(&mut sqe, 4096);
        assert_eq!(host.run(&at, &sqe).await.status, Status::INTERNAL_PATH_ERROR);
        assert_eq!(host.lacked.get(), 1);
    });
}

/// Commands that change something, with their data.
fn changes(data: &[u8]) -> Vec<(Sqe, Vec<u8>)> {
    let zeroes =
        WriteZeroes { range: range(8, 2), fua: false, limited_retry: false, deallocate: false };
    let deallocate = {
        let mut sqe = Sqe::new(io::DATASET_MANAGEMENT, 1, 1);
        sqe.cdw11 = 4.into();
        let mut list = vec![0; 16];
        list[4..8].copy_from_slice(&2_u32.to_le_bytes());
        list[8..].copy_from_slice(&10_u64.to_le_bytes());
        (sqe, list)
    };
    vec![
        (write_sqe(range(4, 2)), data[..8192].to_vec()),
        (zeroes.to_sqe(1, 1), Vec::new()),
        deallocate,
    ]
}

#[test]
fn what_cannot_be_made_safe_waits_and_is_to_be_sent_again() {
    reactor::simulate(2, async {
        let (_pool, _place, at, data) = beyond().await;
        for by in [By::Capsule, By::R2t] {
            for (mut sqe, bytes) in changes(&data) {
                let host = Double::with(&bytes, by);
                host.describe(&mut sqe, bytes.len());
                let status = host.run(&at, &sqe).await.status;
                let what = format!("opcode {:#x} by {by:?}", sqe.opcode);
                // Without Do Not Retry.
                assert_eq!(status, Status::INTERNAL_PATH_ERROR, "{what}");
                assert_eq!(host.lacked.get(), 1, "{what}");
                // A write's data is not asked for in vain.
                assert!(sqe.opcode != io::WRITE || host.received.get() == 0, "{what}");
            }
        }
        assert_eq!(read(&at, range(0, 63)).await, data[..63 * 4096]);
    });
}

#[test]
fn what_waited_for_drives_is_done_where_they_came_back() {
    reactor::simulate(3, async {
        let (_pool, _place, at, data) = beyond().await;
        for by in [By::Capsule, By::R2t] {
            let mended = Place::new(On::Memory, 1, 64, 4096).await.attach(HOST);
            assert_eq!(write(&mended, 0, &data, By::R2t).await, Status::SUCCESS);
            for (mut sqe, bytes) in changes(&data) {
                let host = Double::with(&bytes, by);
                host.describe(&mut sqe, bytes.len());
                host.mended.replace(Some(Rc::clone(&mended)));
                assert_eq!(host.run(&at, &sqe).await.status, Status::SUCCESS);
                assert_eq!(host.lacked.get(), 1);
            }
            let mut wanted = data.clone();
            wanted[4 * 4096..6 * 4096].copy_from_slice(&data[..8192]);
            wanted[8 * 4096..12 * 4096].fill(0);
            assert_eq!(read(&mended, range(0, 64)).await, wanted);
            let host = Double::none();
            host.mended.replace(Some(mended));
            let mut sqe = read_sqe(range(63, 1));
            host.describe(&mut sqe, 4096);
            let reply = host.run(&at, &sqe).await;
            assert_eq!(bytes_of(&reply.data), data[63 * 4096..]);
        }
    });
}
