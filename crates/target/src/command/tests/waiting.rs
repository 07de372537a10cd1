//! Commands that wait, from where they were left.

use std::pin::pin;
use std::time::Duration;

use nvme::nvm::CopyFormat;
use nvme::opcode::io;
use nvme::sqe::{Sgl, Sqe};
use nvme::status::Status;
use reactor::budget::{Account, Ledger};

use super::double::*;
use super::io::{copy_sqe, range, read_sqe, sources0, write_sqe};
use crate::command::{AtOnce, Begun, begin, execute};

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
        let begun = begin(&at, &sqe, &host);
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

/// Its data goes straight from the capsule to the log: nothing is kept for it, and nothing is asked of its host.
#[test]
fn a_write_that_is_in_the_log_waits_to_be_durable() {
    on_reactor(async {
        let (pool, place) = Place::logged_on_drive(1, 64).await;
        let at = place.attach(HOST);
        let data = pattern(6, 2 * 4096);
        let host = Double::with(&data, By::Capsule);
        let mut sqe = write_sqe(range(7, 2));
        host.describe(&mut sqe, data.len());
        let free = reactor::buffer::pool().available();
        let AtOnce::Waits(Begun::Write(rest)) = begin(&at, &sqe, &host) else {
            panic!("the drive has yet to take it")
        };
        assert!(rest.writing.as_ref().is_some_and(|writing| !writing.needs_data()));
        let mut write = pin!(host.guard(execute(&at, &sqe, Begun::Write(rest), &host)));
        assert!(at_once(write.as_mut()).is_none());
        assert_eq!(reactor::buffer::pool().available(), free, "no buffer has the data");
        // Whoever compares and writes there waits for it.
        let mut hold = pin!(at.ranges().hold(range(8, 1)));
        assert!(at_once(hold.as_mut()).is_none(), "a write is under way");
        assert_eq!(write.await.status, Status::SUCCESS);
        drop(hold.await);
        let read = async |blocks| {
            let mut sqe = read_sqe(range(7, blocks));
            sqe.dptr = Sgl::transport(blocks * 4096);
            bytes_of(&Double::none().run(&at, &sqe).await.data)
        };
        assert_eq!(read(2).await, data);

        // A host that is asked for its data has the same end.
        let other = pattern(8, 4096);
        let host = Double::with(&other, By::R2t);
        let mut sqe = write_sqe(range(7, 1));
        host.describe(&mut sqe, other.len());
        assert_eq!(host.run(&at, &sqe).await.status, Status::SUCCESS);
        assert_eq!(read(1).await, other);
        pool.close().await.unwrap();
        assert_eq!(host.run(&at, &sqe).await.status, Status::NAMESPACE_NOT_READY);
    });
}

/// A log of 8 MiB does not take 16 as fast as they come.
#[test]
fn writes_that_wait_for_room_in_the_log_keep_their_data() {
    on_reactor(async {
        let place = Place::new(On::Volume, 1, 4096, 4096).await;
        let at = place.attach(HOST);
        let mut waited = 0;
        for block in 0..4096 {
            let data = pattern(block, 4096);
            let host = Double::with(&data, By::Capsule);
            let mut sqe = write_sqe(range(block, 1));
            host.describe(&mut sqe, data.len());
            let status = match begin(&at, &sqe, &host) {
                AtOnce::Done(reply) => reply.status,
                AtOnce::Waits(begun @ Begun::Write(_)) => {
                    waited += 1;
                    host.guard(execute(&at, &sqe, begun, &host)).await.status
                }
                _ => panic!("a write of a volume is begun"),
            };
            assert_eq!(status, Status::SUCCESS);
        }
        assert!(waited > 0);
        for block in 0..4096 {
            let mut sqe = read_sqe(range(block, 1));
            sqe.dptr = Sgl::transport(4096);
            let read = Double::none().run(&at, &sqe).await.data;
            assert!(bytes_of(&read) == pattern(block, 4096), "block {block}");
        }
    });
}

/// A Compare and Write waited for a Write Zeroes of its blocks, that for its host's turn, and the Copy that had the turn for the
/// blocks. None of them ended, nor did anybody's command for these blocks.
#[test]
fn who_has_the_turn_waits_for_no_blocks() {
    on_reactor(async {
        let place = Place::new(On::File, 1, 64, 4096).await;
        let at = place.attach(HOST);
        let turns = Account::new(&Ledger::new(1));
        let list = sources0(&[(32, 8)]);
        let run = |mut sqe: Sqe, data: &[u8]| {
            let (at, turns) = (at.clone(), turns.clone());
            let mut host = Double::with(data, By::Capsule);
            host.turns = turns;
            if !data.is_empty() {
                host.describe(&mut sqe, data.len());
            }
            Box::pin(async move { host.run(&at, &sqe).await.status })
        };
        let mut copy = run(copy_sqe(0, 1, CopyFormat::Format0), &list);
        assert!(at_once(copy.as_mut()).is_none(), "it reads, and has the turn");
        let mut zeroes = Sqe::new(io::WRITE_ZEROES, 1, 1);
        zeroes.cdw12 = 7.into();
        let mut zeroes = run(zeroes, &[]);
        assert!(at_once(zeroes.as_mut()).is_none(), "it waits for its turn");
        let held = at.clone();
        let mut hold = Box::pin(async move { drop(held.ranges().hold(range(0, 8)).await) });
        assert!(at_once(hold.as_mut()).is_none(), "both are under way");
        let (copy, zeroes) = (reactor::spawn(copy), reactor::spawn(zeroes));
        reactor::timeout(Duration::from_secs(10), hold).await.expect("they end");
        let done = Some(Status::SUCCESS);
        assert_eq!((copy.await, zeroes.await), (done, done));
    });
}
