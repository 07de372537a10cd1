//! Hosts that take what they can get and give nothing back, and what is left of the target for others.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use nvme::opcode::admin as admin_opcode;
use nvme::sqe::{Sgl, Sqe};
use nvme::tcp::host::Config;

use super::{add_volume, until_empty, with_target};
use crate::budget::Share;
use crate::limits::DATA_HELD_BYTES;
use crate::rig::HOST;
use crate::testing::peer::{Guest, PLAIN, Peer, Seen, admin, read, write};

const GREEDY: Config = Config { commands: 1024, ..PLAIN };

fn identify(cid: u16) -> Sqe {
    let mut sqe = Sqe::new(admin_opcode::IDENTIFY, cid, 0);
    sqe.cdw10 = 1.into();
    sqe.dptr = Sgl::transport(4096);
    sqe
}

/// Sends `capsule` again and again, and never reads, until the target closes the connection; the bytes that were sent,
/// at most `limit`. What is held for the host is looked at on the way.
async fn never_read(peer: &Peer, capsule: &[u8], limit: usize, share: &Share) -> usize {
    let burst = capsule.repeat(64);
    let mut sent = 0;
    while sent < limit && peer.try_send(&burst).await.is_ok() {
        sent += burst.len();
        assert!(share.data.held() <= 8 << 20, "{} bytes are held", share.data.held());
    }
    sent
}

/// A host that read none of its responses made the target keep them all: 22 MiB of Identify commands filled a gigabyte.
/// Now a command has its place in the queue until its response has been sent, and who sends more than the queue has
/// places for breaks the protocol.
#[test]
fn a_host_that_never_reads_an_admin_queue_fills_no_memory() {
    with_target(|address, _| async move {
        let (mut admin, _) = admin(address).await;
        let capsule = admin.capsule(&identify(1), &[]);
        // Each with its own identifier, as the same one is refused at once.
        let capsules: Vec<u8> = (0..u16::MAX)
            .flat_map(|cid| {
                let mut capsule = capsule.clone();
                capsule[10..12].copy_from_slice(&cid.to_le_bytes());
                capsule
            })
            .collect();
        let sent = never_read(
            &admin,
            &capsules[..72 * 1024],
            16 << 20,
            &Share::of_host(HOST, address.ip()),
        )
        .await;
        assert!(sent < 16 << 20, "it is still listened to");
    });
}

/// The same with the discovery service, which serves hosts that are on no list.
#[test]
fn a_stranger_that_never_reads_the_discovery_service_fills_no_memory() {
    with_target(|address, _| async move {
        let guest = Guest { subsystem: nvme::nqn::DISCOVERY, ..Guest::default() };
        let (mut peer, _) = guest.admin(address).await;
        let capsule = peer.capsule(&identify(1), &[]);
        let sent = never_read(&peer, &capsule, 16 << 20, &Share::of_address(address.ip())).await;
        assert!(sent < 16 << 20, "it is still listened to");
    });
}

/// The same with an I/O queue: reads of memory, which hold no memory but their heads, and what is refused.
#[test]
fn a_host_that_never_reads_an_io_queue_fills_no_memory() {
    with_target(|address, _| async move {
        let guest = Guest::default();
        let (_admin, cntlid) = guest.admin(address).await;
        for sqe in [read(1, 0, 256), Sqe::new(0x7f, 1, 1)] {
            let mut queue = guest.io_when_free(address, cntlid, 1, GREEDY, 1024).await;
            let capsule = queue.capsule(&sqe, &[]);
            let sent =
                never_read(&queue, &capsule, 96 << 20, &Share::of_host(HOST, address.ip())).await;
            assert!(sent < 96 << 20, "it is still listened to");
        }
    });
}

/// And with commands that are refused before Connect: nobody counts them, so they are not taken in any more.
#[test]
fn a_stranger_that_never_reads_its_refusals_fills_no_memory() {
    with_target(|address, _| async move {
        let mut peer = Peer::connect(address, PLAIN).await;
        peer.initialize().await;
        let capsule = peer.capsule(&identify(1), &[]);
        let sent = never_read(&peer, &capsule, 256 << 20, &Share::of_address(address.ip())).await;
        assert!(sent < 256 << 20, "it is still listened to");
    });
}

/// What a neighbour's commands take: one R2T write and one read at a time, each of which has to end.
pub async fn neighbour_works(address: SocketAddr, nsid: u32, rounds: u16) {
    let guest = Guest { host: "nqn.2026-11.io.flashloom:neighbour", ..Guest::default() };
    let (_admin, cntlid) = guest.admin(address).await;
    let mut queue = guest.io(address, cntlid, 1, PLAIN, 32).await;
    let data: Vec<u8> = (0..32_768_u32).map(|i| i.to_le_bytes()[0]).collect();
    for cid in 0..rounds {
        let mut sqe = write(cid, 0, 64, false);
        sqe.nsid = nsid.into();
        if nsid == 2 {
            sqe.cdw12 = 7.into();
        }
        queue.command(&sqe, &[]).await;
        let Seen::Ready { ttag, .. } = queue.next().await else { panic!("no R2T") };
        let pdu = queue.data(cid, ttag, 0, &data, true);
        queue.send(&pdu).await;
        assert!(queue.response().await.status().is_success());
        let mut sqe = read(cid, 0, 8);
        sqe.nsid = nsid.into();
        if nsid == 2 {
            sqe.cdw12 = 0.into();
        }
        queue.command(&sqe, &[]).await;
        let seen = queue.next().await;
        assert_eq!(seen, Seen::Data { cid, bytes: data[..4096].to_vec(), success: true });
    }
}

/// 512 writes of 128 KiB without their data, 36 KiB sent, had all buffers of a reactor: no other host's write was
/// asked for its data as long as that one pleased.
#[test]
fn a_host_that_owes_data_for_all_it_may_leaves_buffers_for_others() {
    with_target(|address, target| async move {
        let _pool = add_volume(&target).await;
        let guest = Guest::default();
        let (admin, cntlid) = guest.admin(address).await;
        let mut greedy = guest.io(address, cntlid, 1, GREEDY, 1024).await;
        let capsules: Vec<u8> =
            (0..512).flat_map(|cid| greedy.capsule(&write(cid, 0, 256, false), &[])).collect();
        greedy.send(&capsules).await;
        // It is asked for as much as its share is.
        let share = Share::of_host(HOST, address.ip());
        for _ in 0..share.data.held().max(128 << 10) / (128 << 10) {
            assert!(matches!(greedy.next().await, Seen::Ready { .. }));
        }
        assert!(share.data.held() <= DATA_HELD_BYTES / 3 * 2);
        for nsid in [1, 2] {
            neighbour_works(address, nsid, 50).await;
        }
        drop((greedy, admin));
        until_gone(&target).await;
    });
}

/// A host that stopped with reads under way on many queues had all buffers, until its connections were given up.
#[test]
fn a_host_that_takes_no_read_data_leaves_buffers_for_others() {
    with_target(|address, target| async move {
        let _pool = add_volume(&target).await;
        let guest = Guest::default();
        let (_admin, cntlid) = guest.admin(address).await;
        let mut queues = Vec::new();
        for qid in 1..=20 {
            let mut queue = guest.io(address, cntlid, qid, GREEDY, 1024).await;
            let mut capsules = Vec::new();
            for cid in 0..120 {
                let mut sqe = read(cid, 0, 32);
                sqe.nsid = 2.into();
                sqe.dptr = Sgl::transport(128 << 10);
                capsules.extend(queue.capsule(&sqe, &[]));
            }
            queue.send(&capsules).await;
            queues.push(queue);
        }
        neighbour_works(address, 2, 50).await;
        assert!(
            Share::of_host(HOST, address.ip()).data.held() <= DATA_HELD_BYTES / 3 * 2 + (1 << 20)
        );
        // And it gets what it asked for when it goes on.
        let readers = queues.into_iter().map(|mut queue| {
            reactor::spawn(async move {
                for _ in 0..120 {
                    let seen = queue.next().await;
                    assert!(matches!(&seen, Seen::Data { bytes, .. } if bytes.len() == 128 << 10));
                }
            })
        });
        for reader in readers.collect::<Vec<_>>() {
            reader.await.unwrap();
        }
    });
}

/// Reads that waited for memory that their own connection held kept a queue from ending, and its controller with it,
/// until TCP gave the host up half a minute later.
#[test]
fn a_queue_ends_though_its_commands_wait_for_what_it_holds_itself() {
    with_target(|address, target| async move {
        let _pool = add_volume(&target).await;
        let guest = Guest::default();
        let (admin, cntlid) = guest.admin(address).await;
        let mut queues = Vec::new();
        for qid in 1..=8 {
            let mut queue = guest.io(address, cntlid, qid, GREEDY, 1024).await;
            let mut capsules = Vec::new();
            for cid in 0..1000 {
                let mut sqe = read(cid, 0, 32);
                sqe.nsid = 2.into();
                sqe.dptr = Sgl::transport(128 << 10);
                capsules.extend(queue.capsule(&sqe, &[]));
            }
            queue.send(&capsules).await;
            queues.push(queue);
        }
        while Share::of_host(HOST, address.ip()).data.held() < DATA_HELD_BYTES / 3 {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        drop(admin);
        let ended = reactor::timeout(Duration::from_secs(10), until_gone(&target)).await;
        ended.expect("the controller is still there");
        drop(queues);
    });
}

pub async fn until_gone(target: &crate::Target) {
    while !target.controllers().is_empty() {
        reactor::sleep(Duration::from_millis(1)).await;
    }
}

/// Where others wait that have less, who owes data for too long is given up.
#[test]
fn who_owes_data_while_others_wait_loses_the_connection() {
    with_target(|address, target| async move {
        let greedy = Guest::default();
        let poor = Guest { host: "nqn.2026-11.io.flashloom:poor", ..greedy };
        let (one, cntlid) = greedy.admin(address).await;
        let (another, other) = poor.admin(address).await;
        let mut hoard = greedy.io(address, cntlid, 1, GREEDY, 1024).await;
        let mut wants = poor.io(address, other, 1, GREEDY, 1024).await;
        for queue in [&mut hoard, &mut wants] {
            let capsules: Vec<u8> =
                (0..512).flat_map(|cid| queue.capsule(&write(cid, 0, 256, false), &[])).collect();
            queue.send(&capsules).await;
            assert!(matches!(queue.next().await, Seen::Ready { .. }));
        }
        while hoard.next().await != Seen::Closed {}
        assert_eq!(target.controllers().len(), 2, "its controller may go on");
        // What that one held is the other's now.
        let mut asked = 1;
        while asked < 128 {
            assert!(matches!(wants.next().await, Seen::Ready { .. }), "after {asked}");
            asked += 1;
        }
        drop((wants, one, another));
        until_gone(&target).await;
    });
}

/// Any byte restarted the Keep Alive Timer, so that a host that never finished a command lived on.
#[test]
fn a_trickle_of_bytes_does_not_keep_a_controller_alive() {
    with_target(|address, target| async move {
        let guest = Guest { kato: 1000, ..Guest::default() };
        let (mut admin, _) = guest.admin(address).await;
        let capsule = admin.capsule(&identify(1), &[]);
        let trickled = Rc::new(Cell::new(0));
        let trickle = async {
            for byte in &capsule[..71] {
                admin.send(std::slice::from_ref(byte)).await;
                trickled.set(trickled.get() + 1);
                // Sleeps: the host is as slow as that.
                reactor::sleep(Duration::from_millis(200)).await;
            }
        };
        let gone = until_gone(&target);
        fabric::race(trickle, gone).await;
        assert!(trickled.get() < 71, "the controller outlived all of it");
        until_empty(&target).await;
    });
}
