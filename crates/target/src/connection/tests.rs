//! Connections over real sockets: what a host may do, and what a hostile one tries.

mod beyond;
mod disconnect;
mod ended;
mod hoarding;
mod removal;
mod scripted;
mod windows;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fabric::TransportAddress;
use fabric::controller::Listener;
use nvme::fabrics::{PropertySet, PropertySize};
use nvme::opcode::{admin as admin_opcode, io as io_opcode};
use nvme::pdu::Fes;
use nvme::property::{Cc, CommandSetSelected, offset};
use nvme::sqe::{Fused, Sqe};
use nvme::status::Status;
use nvme::tcp::host::Config;
use zerocopy::FromBytes;

use super::serve_connection;
use crate::registry::Target;
use crate::rig::Rig;
use crate::testing::peer::{PLAIN, Peer, Seen, admin, connect_queue, io, read, write};

/// Serves a fresh target and runs `test` against its address.
fn with_target<F>(test: impl FnOnce(SocketAddr, Arc<Target>) -> F + 'static)
where
    F: Future<Output = ()> + 'static,
{
    reactor::run(reactor::Config::default(), async move {
        let rig = Rig::new();
        let target = rig.target.clone();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Listener::bind(TransportAddress::Tcp(any)).unwrap();
        let address = listener.address().unwrap().socket();
        let server = reactor::spawn(async move {
            loop {
                let accepted = listener.accept().await.unwrap();
                reactor::spawn(serve_connection(
                    target.clone(),
                    accepted,
                    rig.path.listener,
                    || {},
                ));
            }
        });
        test(address, rig.target.clone()).await;
        server.abort();
    })
    .unwrap();
}

/// A connection that was to make room for another, before it had become a queue, stayed open: the task that sends for it
/// kept it.
#[test]
fn a_connection_whose_service_is_dropped_is_closed() {
    reactor::run(reactor::Config::default(), async {
        let rig = Rig::new();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Listener::bind(TransportAddress::Tcp(any)).unwrap();
        let client =
            reactor::net::TcpStream::connect(listener.address().unwrap().socket()).await.unwrap();
        let accepted = listener.accept().await.unwrap();
        let served = serve_connection(rig.target.clone(), accepted, rig.path.listener, || {});
        let service = reactor::spawn(served);
        reactor::yield_now().await;
        service.abort();
        let mut byte = [0];
        let ended = reactor::timeout(Duration::from_secs(30), client.recv(&mut byte));
        assert_eq!(ended.await.expect("the end of the stream").unwrap(), 0);
    })
    .unwrap();
}

/// Waits until the target has no controller left.
async fn until_empty(target: &Target) {
    let empty = async {
        while !target.controllers().is_empty() {
            reactor::sleep(Duration::from_millis(1)).await;
        }
    };
    reactor::timeout(Duration::from_secs(30), empty).await.expect("a controller is left");
}

#[test]
fn data_written_in_capsule_and_by_r2t_is_read_back() {
    with_target(|address, _| async move {
        let (_admin, cntlid) = admin(address).await;
        for (hdgst, ddgst, hpda) in [(false, false, 0), (true, true, 0), (false, true, 31)] {
            let config = Config { hpda, hdgst, ddgst, ..PLAIN };
            let mut queue = io(address, cntlid, config, 128).await;
            let small: Vec<u8> = (0..4096u32).map(|i| i.to_le_bytes()[0]).collect();
            queue.command(&write(1, 8, 8, true), &small).await;
            assert_eq!(queue.response().await.status(), Status::SUCCESS);
            let large: Vec<u8> = (0..65_536u32).map(|i| (i / 7).to_le_bytes()[0]).collect();
            queue.command(&write(2, 64, 128, false), &[]).await;
            let Seen::Ready { cid: 2, ttag, length: 65_536 } = queue.next().await else {
                panic!("no R2T");
            };
            // Two PDUs, cut in the middle.
            let mut pdus = queue.data(2, ttag, 0, &large[..1000], false);
            pdus.extend(queue.data(2, ttag, 1000, &large[1000..], true));
            let (head, tail) = pdus.split_at(777);
            queue.send(head).await;
            queue.send(tail).await;
            assert_eq!(queue.response().await.status(), Status::SUCCESS);
            queue.command(&read(3, 8, 8), &[]).await;
            let seen = queue.next().await;
            assert_eq!(seen, Seen::Data { cid: 3, bytes: small, success: true });
            queue.command(&read(4, 64, 128), &[]).await;
            assert_eq!(queue.next().await, Seen::Data { cid: 4, bytes: large, success: true });
        }
    });
}

#[test]
fn broken_pdus_are_answered_with_a_termination_that_says_why() {
    let sequence = Fes::PduSequenceError.raw();
    let field = Fes::InvalidPduHeaderField.raw();
    // PDU type, flags, HLEN, PDO, PLEN of a first PDU, and the answer.
    let cases: [([u8; 8], u16); 5] = [
        // A command before ICReq.
        ([4, 0, 72, 0, 72, 0, 0, 0], sequence),
        // No such PDU type.
        ([0x77, 0, 24, 0, 24, 0, 0, 0], field),
        // An ICResp, which only a controller sends.
        ([1, 0, 128, 0, 128, 0, 0, 0], field),
        // ICReq with a wrong header length, and with a wrong length.
        ([0, 0, 127, 0, 128, 0, 0, 0], field),
        ([0, 0, 128, 0, 255, 255, 0, 0], field),
    ];
    with_target(move |address, _| async move {
        for (head, fes) in cases {
            let mut peer = Peer::connect(address, PLAIN).await;
            let mut pdu = vec![0; 256];
            pdu[..8].copy_from_slice(&head);
            peer.send(&pdu).await;
            assert!(matches!(peer.next().await, Seen::Terminated(f, _) if f == fes), "{head:?}");
        }
    });
}

#[test]
fn data_that_nobody_asked_for_ends_the_connection_and_its_controller() {
    with_target(|address, target| async move {
        let (admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 32).await;
        let pdu = queue.data(5, 99, 0, &[0; 512], true);
        queue.send(&pdu).await;
        assert!(matches!(queue.next().await, Seen::Terminated(..)));
        assert_eq!(queue.next().await, Seen::Closed);
        drop((queue, admin));
        until_empty(&target).await;
    });
}

#[test]
fn data_beyond_what_was_asked_for_ends_the_connection() {
    with_target(|address, _| async move {
        let (_admin, cntlid) = admin(address).await;
        for (offset, length) in [(512u32, 512usize), (0, 1024), (u32::MAX - 511, 512)] {
            let mut queue = Peer::connect(address, PLAIN).await;
            // Queue 1 is free again once the last connection is drained.
            while !connect_queue(&mut queue, 1, cntlid, 32).await.status().is_success() {
                queue = Peer::connect(address, PLAIN).await;
            }
            queue.command(&write(1, 0, 1, false), &[]).await;
            let Seen::Ready { ttag, .. } = queue.next().await else { panic!("no R2T") };
            let pdu = queue.data(1, ttag, offset, &vec![0; length], true);
            queue.send(&pdu).await;
            let out_of_range = Fes::DataTransferOutOfRange.raw();
            let seen = queue.next().await;
            assert!(matches!(seen, Seen::Terminated(fes, _) if fes == out_of_range), "{seen:?}");
            assert_eq!(queue.next().await, Seen::Closed);
        }
    });
}

#[test]
fn a_damaged_data_digest_fails_the_command_and_not_the_connection() {
    with_target(|address, _| async move {
        let (_admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, Config { ddgst: true, ..PLAIN }, 32).await;
        let mut capsule = queue.capsule(&write(1, 0, 1, true), &[7; 512]);
        *capsule.last_mut().unwrap() ^= 1;
        queue.send(&capsule).await;
        let cqe = queue.response().await;
        assert!(cqe.status().is(Status::TRANSIENT_TRANSPORT_ERROR), "{:?}", cqe.status());
        queue.command(&write(2, 0, 64, false), &[]).await;
        let Seen::Ready { ttag, .. } = queue.next().await else { panic!("no R2T") };
        let mut pdu = queue.data(2, ttag, 0, &[7; 32_768], true);
        *pdu.last_mut().unwrap() ^= 1;
        queue.send(&pdu).await;
        let cqe = queue.response().await;
        assert!(cqe.status().is(Status::TRANSIENT_TRANSPORT_ERROR), "{:?}", cqe.status());
        queue.command(&read(3, 0, 1), &[]).await;
        let expected = Seen::Data { cid: 3, bytes: vec![0; 512], success: true };
        assert_eq!(queue.next().await, expected, "nothing of it was written");
    });
}

#[test]
fn a_command_identifier_in_use_is_refused() {
    with_target(|address, _| async move {
        let (_admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 32).await;
        queue.command(&write(9, 0, 64, false), &[]).await;
        assert!(matches!(queue.next().await, Seen::Ready { cid: 9, .. }));
        // The machine would not send it twice; another's does.
        let mut second = Peer::connect(address, PLAIN).await;
        queue.send(&second.capsule(&read(9, 0, 1), &[])).await;
        let cqe = queue.response().await;
        assert!(cqe.status().is(Status::COMMAND_ID_CONFLICT), "{:?}", cqe.status());
    });
}

#[test]
fn a_host_that_overruns_its_queue_loses_the_connection() {
    with_target(|address, target| async move {
        let (admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 4).await;
        // None of them completes before its data has come.
        for cid in 0..16 {
            queue.command(&write(cid, 0, 64, false), &[]).await;
        }
        while queue.next().await != Seen::Closed {}
        drop(admin);
        until_empty(&target).await;
    });
}

#[test]
fn abort_ends_a_write_that_waits_for_its_data_once_that_was_sent() {
    with_target(|address, _| async move {
        let (mut admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 32).await;
        queue.command(&write(7, 0, 64, false), &[]).await;
        let Seen::Ready { ttag, .. } = queue.next().await else { panic!("no R2T") };
        let mut abort = Sqe::new(admin_opcode::ABORT, 3, 0);
        abort.cdw10 = (7u32 << 16 | 1).into();
        admin.command(&abort, &[]).await;
        let cqe = admin.response().await;
        assert_eq!((cqe.status(), cqe.dw0.get()), (Status::SUCCESS, 1), "not at once");
        // Its host lets go of what it is sending when it hears of the end.
        queue.command(&read(6, 0, 1), &[]).await;
        assert!(matches!(queue.next().await, Seen::Data { cid: 6, .. }));
        let pdu = queue.data(7, ttag, 0, &[1; 32_768], true);
        queue.send(&pdu).await;
        let cqe = queue.response().await;
        assert!(cqe.cid == 7 && cqe.status().is(Status::ABORT_REQUESTED), "{cqe:?}");
        // The queue goes on.
        queue.command(&read(8, 0, 1), &[]).await;
        let expected = Seen::Data { cid: 8, bytes: vec![0; 512], success: true };
        assert_eq!(queue.next().await, expected, "nothing of it was written");
        admin.command(&abort, &[]).await;
        assert_eq!(admin.response().await.dw0.get(), 1, "there is nothing to abort");
    });
}

/// The host that resets its controller once got completions of requests that it had forgotten by then.
#[test]
fn a_reset_lets_go_of_event_requests_and_says_nothing_of_them() {
    with_target(|address, _| async move {
        let (mut admin, _) = admin(address).await;
        let cc = |cid, cc: Cc| {
            let value = u64::from(cc.0);
            PropertySet { offset: offset::CC, size: PropertySize::Four, value }.to_sqe(cid)
        };
        let aer = |cid| Sqe::new(admin_opcode::ASYNC_EVENT_REQUEST, cid, 0);
        // More often than the queue has entries: none of them stays taken.
        for round in 0..40 {
            admin.command(&aer(100 + round), &[]).await;
            let enable = Cc::enable(CommandSetSelected::Nvm);
            for (cid, cc) in [(10, cc(10, Cc(0))), (11, cc(11, enable))] {
                admin.command(&cc, &[]).await;
                let cqe = admin.response().await;
                assert_eq!((cqe.cid.get(), cqe.status()), (cid, Status::SUCCESS));
            }
        }
    });
}

#[test]
fn compare_and_write_is_one_operation_and_a_lone_half_is_aborted() {
    with_target(|address, _| async move {
        let (_admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 32).await;
        let mut compare = write(1, 3, 1, true);
        compare.opcode = io_opcode::COMPARE;
        compare.set_fused(Fused::First);
        let mut second = write(2, 3, 1, true);
        second.set_fused(Fused::Second);
        // The halves arrive apart.
        queue.command(&compare, &[0; 512]).await;
        queue.command(&second, &[5; 512]).await;
        assert_eq!(queue.response().await.status(), Status::SUCCESS);
        assert_eq!(queue.response().await.status(), Status::SUCCESS);
        queue.command(&compare, &[0; 512]).await;
        queue.command(&second, &[6; 512]).await;
        assert!(queue.response().await.status().is(Status::COMPARE_FAILURE));
        assert!(queue.response().await.status().is(Status::ABORTED_FAILED_FUSED));
        queue.command(&compare, &[0; 512]).await;
        queue.command(&read(3, 3, 1), &[]).await;
        assert!(queue.response().await.status().is(Status::ABORTED_MISSING_FUSED));
        assert_eq!(
            queue.next().await,
            Seen::Data { cid: 3, bytes: vec![5; 512], success: true },
            "the failed pair wrote nothing"
        );
        queue.command(&second, &[6; 512]).await;
        assert!(queue.response().await.status().is(Status::ABORTED_MISSING_FUSED));
    });
}

/// The second half of one pair came damaged, and so did the first half of the next: what was left of both was taken for a pair,
/// and one's data was written where the other's compared.
#[test]
fn halves_of_two_pairs_are_no_pair() {
    with_target(|address, _| async move {
        let (_admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, Config { ddgst: true, ..PLAIN }, 32).await;
        let halves = |cids: [u16; 2]| {
            let [mut compare, mut second] = cids.map(|cid| write(cid, 3, 1, true));
            compare.opcode = io_opcode::COMPARE;
            compare.set_fused(Fused::First);
            second.set_fused(Fused::Second);
            (compare, second)
        };
        let (one, other) = (halves([1, 2]), halves([3, 4]));
        queue.command(&one.0, &[0; 512]).await;
        for damaged in [one.1, other.0] {
            let mut bytes = queue.capsule(&damaged, &[1; 512]);
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            queue.send(&bytes).await;
        }
        queue.command(&other.1, &[5; 512]).await;
        let mut statuses = [Status::SUCCESS; 4];
        for _ in 0..4 {
            let cqe = queue.response().await;
            statuses[usize::from(cqe.cid.get()) - 1] = cqe.status().kind();
        }
        let (alone, damaged) = (Status::ABORTED_MISSING_FUSED, Status::TRANSIENT_TRANSPORT_ERROR);
        assert_eq!(statuses, [alone, damaged, damaged, alone]);
        queue.command(&read(5, 3, 1), &[]).await;
        let kept = Seen::Data { cid: 5, bytes: vec![0; 512], success: true };
        assert_eq!(queue.next().await, kept);
    });
}

#[test]
fn a_host_that_goes_away_in_the_middle_of_a_transfer_leaves_nothing_behind() {
    with_target(|address, target| async move {
        let all = reactor::buffer::pool().available();
        for _ in 0..20 {
            let (admin, cntlid) = admin(address).await;
            let mut queue = io(address, cntlid, PLAIN, 32).await;
            queue.command(&write(1, 0, 128, false), &[]).await;
            let Seen::Ready { ttag, .. } = queue.next().await else { panic!("no R2T") };
            let pdu = queue.data(1, ttag, 0, &[1; 65_536], true);
            queue.send(&pdu[..20_000]).await;
            drop(queue);
            drop(admin);
        }
        until_empty(&target).await;
        assert_eq!(reactor::buffer::pool().available(), all, "every buffer is back");
    });
}

#[test]
fn a_host_that_does_not_read_delays_nobody_else() {
    with_target(|address, _| async move {
        let (_admin, cntlid) = admin(address).await;
        let mut greedy = io(address, cntlid, Config { commands: 1024, ..PLAIN }, 1024).await;
        let mut commands = Vec::new();
        for cid in 0..1000 {
            commands.extend(greedy.capsule(&read(cid, 0, 256), &[]));
        }
        greedy.send(&commands).await;
        let (_other_admin, other) = admin(address).await;
        let mut queue = io(address, other, PLAIN, 32).await;
        for cid in 0..100 {
            queue.command(&read(cid, 0, 1), &[]).await;
            assert!(matches!(queue.next().await, Seen::Data { .. }));
        }
        // It gets all it asked for when it reads at last.
        for _ in 0..20 {
            let seen = greedy.next().await;
            assert!(matches!(&seen, Seen::Data { bytes, .. } if bytes.len() == 128 << 10));
        }
    });
}

#[test]
fn a_failed_io_command_is_in_the_error_log() {
    with_target(|address, target| async move {
        let (_admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 32).await;
        queue.command(&read(7, 1 << 40, 8), &[]).await;
        let status = queue.response().await.status();
        assert!(status.is(Status::LBA_OUT_OF_RANGE) && status.more());
        let page = target.controllers()[0].lock().errors.page();
        let (entry, _) = nvme::log::ErrorEntry::read_from_prefix(&page).unwrap();
        assert_eq!((entry.error_count.get(), entry.sqid.get(), entry.cid.get()), (1, 1, 7));
        assert_eq!((entry.nsid.get(), entry.opcode), (1, io_opcode::READ));
    });
}

#[test]
fn a_second_connect_of_an_io_queue_is_not_in_the_error_log() {
    with_target(|address, target| async move {
        let (_admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 32).await;
        let mut sqe = Sqe::new(admin_opcode::FABRICS, 7, 0);
        sqe.nsid = u32::from(nvme::opcode::fabrics::CONNECT).into();
        sqe.dptr = nvme::sqe::Sgl::in_capsule(0, 1024);
        queue.command(&sqe, &[0; 1024]).await;
        let status = queue.response().await.status();
        assert!(status.is(Status::COMMAND_SEQUENCE_ERROR) && !status.more(), "{status:?}");
        assert_eq!(target.controllers()[0].lock().errors.count(), 0);
    });
}

/// Adds a volume of 4 MiB in memory as namespace 2, each of its blocks full of its number, all carried to drives.
async fn add_volume(target: &Target) -> engine::Pool {
    let options = media::memory::RegionOptions { shared: false, ..Default::default() };
    let drive = || Arc::new(media::Drive::memory(128 << 20, options).unwrap());
    let spec = engine::PoolSpec {
        name: "fast".into(),
        id: [7; 16],
        drives: (0..4).map(|_| drive()).collect(),
        scheme: raid::Scheme::Raid6,
        log: engine::LogSpec::Bbu(vec![Arc::new(media::Pmem::anonymous(8 << 20).unwrap())]),
        log_bytes: None,
        shards: None,
        au_bytes: None,
        created: 0,
    };
    let pool = engine::Pool::create(spec, &[]).await.unwrap();
    let spec = engine::VolumeSpec {
        name: "v".into(),
        id: [1; 16],
        bytes: 4 << 20,
        block_size: 4096,
        quota: None,
        reservation: None,
    };
    let volume = pool.create_volume(spec).await.unwrap();
    for at in 0..1024_u64 {
        volume.write(at * 4096, &numbered(at)).await.unwrap();
    }
    pool.settle_space().await.unwrap();
    let backend = crate::namespace::Backend::Volume(volume.clone());
    let spec = crate::namespace::NamespaceSpec::new(backend, 4096);
    assert_eq!(target.add_namespace(&crate::rig::nqn(crate::rig::SUBSYSTEM), &spec), Ok(2));
    pool
}

fn numbered(at: u64) -> Vec<u8> {
    at.to_le_bytes().repeat(512)
}

/// The capsules of 1000 reads of namespace 2, each of `blocks` blocks of 4 KiB, from block 0 on and round.
fn volume_reads(queue: &mut Peer, blocks: u16) -> Vec<u8> {
    let mut capsules = Vec::new();
    for cid in 0..1000 {
        let mut sqe = read(cid, u64::from(cid % (1024 / blocks) * blocks), blocks);
        sqe.nsid = 2.into();
        sqe.dptr = nvme::sqe::Sgl::transport(u32::from(blocks) * 4096);
        capsules.extend(queue.capsule(&sqe, &[]));
    }
    capsules
}

/// Takes answers to [`volume_reads`]: data that is right, or a refusal; how many had data.
async fn take_volume_reads(queue: &mut Peer, blocks: u16, answers: usize) -> usize {
    let mut with_data = 0;
    for _ in 0..answers {
        match queue.next().await {
            Seen::Data { cid, bytes, .. } => {
                let first = u64::from(cid % (1024 / blocks) * blocks);
                let wanted: Vec<u8> =
                    (first..first + u64::from(blocks)).flat_map(numbered).collect();
                assert!(bytes == wanted, "{cid}");
                with_data += 1;
            }
            Seen::Response(cqe) => assert!(cqe.status().is(Status::NAMESPACE_NOT_READY)),
            other => panic!("{other:?}"),
        }
    }
    with_data
}

#[test]
fn what_a_pool_lends_is_sent_with_and_without_digests() {
    with_target(|address, target| async move {
        let pool = add_volume(&target).await;
        let (_admin, cntlid) = admin(address).await;
        for (blocks, ddgst) in [(1, false), (1, true), (3, false), (8, false)] {
            let config = Config { commands: 1024, ddgst, ..PLAIN };
            let mut queue = io(address, cntlid, config, 1024).await;
            let capsules = volume_reads(&mut queue, blocks);
            queue.send(&capsules).await;
            assert_eq!(take_volume_reads(&mut queue, blocks, 1000).await, 1000);
        }
        pool.close().await.unwrap();
    });
}

/// Data that is sent from where it lies in a drive in memory holds back whoever wants to use the space again.
#[test]
fn a_host_that_does_not_read_holds_nothing_that_a_pool_lends() {
    with_target(|address, target| async move {
        let pool = add_volume(&target).await;
        let (_admin, cntlid) = admin(address).await;
        let config = Config { commands: 1024, ..PLAIN };
        let mut greedy = io(address, cntlid, config, 1024).await;
        // 32 MiB, far more than a socket takes.
        let capsules = volume_reads(&mut greedy, 8);
        greedy.send(&capsules).await;
        assert!(matches!(greedy.next().await, Seen::Data { .. }));
        let closed = reactor::timeout(Duration::from_secs(20), pool.close()).await;
        closed.expect("nothing is lent any more").unwrap();
        let with_data = take_volume_reads(&mut greedy, 8, 999).await;
        assert!((1..999).contains(&with_data), "{with_data} of 999");
    });
}
