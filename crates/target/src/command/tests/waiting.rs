//! Commands that wait, from where they were left.

use std::pin::pin;
use std::time::Duration;

use nvme::sqe::Sgl;
use nvme::status::Status;

use super::double::*;
use super::io::{range, read_sqe, write_sqe};
use crate::command::{AtOnce, Begun, execute, execute_at_once};

/// A host that leaves its data where it is must not keep a pool from giving space back, or from closing.
#[test]
fn a_read_that_waits_for_its_host_gives_up_what_it_began() {
    on_reactor(async {
        let (pool, place) = Place::slow(1, 64).await;
        let at = place.attach(HOST);
        let data = pattern(5, 4096);
        let mut sqe = write_sqe(range(7, 1));
        let host = Double::with(&data, By::Capsule);
        host.describe(&mut sqe, data.len());
        assert_eq!(host.run(&at, &sqe).await.status, Status::SUCCESS);
        pool.settle_space().await.unwrap();
        let mut sqe = read_sqe(range(7, 1));
        sqe.dptr = Sgl::transport(4096);
        let host = Double::none();
        let reply = host.run(&at, &sqe).await;
        assert_eq!(bytes_of(&reply.data), data, "with room, it goes on from what it began");

        let taken = host.account.take(1 << 30).await;
        let begun = execute_at_once(&at, &sqe, &host);
        let AtOnce::Waits(begun @ Begun::Read(_, Some(_))) = begun else {
            panic!("the drive has to be asked")
        };
        let mut read = pin!(execute(&at, &sqe, begun, &host));
        assert!(at_once(read.as_mut()).is_none(), "its host has no room");
        let closed = reactor::timeout(Duration::from_secs(10), pool.close()).await;
        closed.expect("nothing keeps the pool").unwrap();
        drop(taken);
        assert_eq!(read.await.status, Status::NAMESPACE_NOT_READY);
    });
}
