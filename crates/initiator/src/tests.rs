//! The host against a scripted controller, over the simulated network: `FLASHLOOM_SEED` draws other delays and pieces.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use fabric::host;
use nvme::cqe::Cqe;
use nvme::fabrics::ConnectInvalid;
use nvme::nqn::DISCOVERY;
use nvme::opcode::io;
use nvme::sqe::Sqe;
use nvme::status::Status;
use stdx::num::{u32_of, usize32};
use stdx::prng::Prng;

use crate::scripted::{BLOCK, Fault, Script, Scripted};
use crate::{Controller, Data, Error, HostIdentity, Memory, Options, Queue};

mod hostile;
mod life;
mod optimizations;
mod paths;
mod windows;

const SUBNQN: &str = "nqn.2026-11.io.flashloom:test";

/// How long a test may take: what it waits for does not come then.
const PATIENCE: Duration = Duration::from_secs(300);

fn on_reactor<T: 'static>(test: impl Future<Output = T> + 'static) -> T {
    let seed = std::env::var("FLASHLOOM_SEED").ok().and_then(|seed| seed.parse().ok());
    let test = async { reactor::timeout(PATIENCE, test).await.expect("what is waited for comes") };
    reactor::simulate(seed.unwrap_or(1), test)
}

fn options() -> Options {
    Options { timeout: Duration::from_millis(300), ..Options::default() }
}

async fn connect(peer: &Scripted, subnqn: &str, options: &Options) -> Result<Controller, Error> {
    let host = HostIdentity::named("nqn.2026-11.io.flashloom:host");
    let (traddr, trsvcid) = (peer.addr.ip().to_string(), peer.addr.port());
    Controller::connect(&traddr, trsvcid, subnqn, &host, options).await
}

/// Zero is "not reported", and was taken for none.
#[test]
fn a_controller_that_does_not_say_how_long_it_quiesces_is_given_half_a_minute() {
    for (cqt, given) in [(0, 30_000), (700, 700)] {
        on_reactor(async move {
            let peer = Scripted::start(Script { cqt, ..Script::default() });
            let controller = connect(&peer, SUBNQN, &options()).await.unwrap();
            let noticed = 2 * options().keep_alive;
            assert_eq!(controller.quiesce_time(), noticed + Duration::from_millis(given));
            // The user may know better what a controller takes that does not say, and no better than one that does.
            let known = Options { cqt: Duration::from_millis(50), ..options() };
            let controller = connect(&peer, SUBNQN, &known).await.unwrap();
            let expected = if cqt == 0 { known.cqt } else { Duration::from_millis(given) };
            assert_eq!(controller.quiesce_time(), noticed + expected);
        });
    }
}

/// What connecting to a controller with this fault fails with.
fn failure(fault: Fault) -> Error {
    on_reactor(async move {
        let peer = Scripted::start(Script { fault, ..Script::default() });
        connect(&peer, SUBNQN, &options()).await.err().expect("must fail")
    })
}

fn sqe(opcode: u8, lba: u32, bytes: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode, 0, 1);
    sqe.cdw10 = lba.into();
    sqe.cdw12 = (bytes / u32_of(BLOCK) - 1).into();
    sqe
}

async fn run(queue: &mut Queue, sqe: Sqe, data: Data) -> Result<(Cqe, Data), Error> {
    queue.execute("test", sqe, data, Duration::from_secs(5)).await
}

/// Writes and reads back ranges of many sizes, several at a time.
async fn exercise(script: Script, options: Options) {
    let peer = Scripted::start(script);
    let controller = connect(&peer, SUBNQN, &options).await.unwrap();
    assert_eq!(controller.set_queue_count(8).await.unwrap(), 4);
    assert_eq!(controller.namespace(1).await.unwrap().block_bytes(), Some(512));
    assert_eq!(controller.active_namespaces(0).await.unwrap(), [1]);
    let mut queue = controller.association().connect_queue(1, 8).await.unwrap();
    let mut prng = Prng::new(1);
    for bytes in [512, 4096, 8192, 16384, 16896, 131_072, 1 << 20] {
        let sent = random(&mut prng, bytes);
        let memory = Memory::Shared(sent.clone());
        let data = Data::Send { memory, length: bytes };
        let (cqe, _) = run(&mut queue, sqe(io::WRITE, 3, bytes), data).await.unwrap();
        assert!(cqe.status().is_success(), "write of {bytes}");
        let read = run(&mut queue, sqe(io::READ, 3, bytes), Data::page(bytes)).await;
        let (cqe, received) = read.unwrap();
        assert!(cqe.status().is_success(), "read of {bytes}");
        assert!(received.bytes() == &*sent, "{bytes} bytes differ");
    }
    several_at_once(&mut queue).await;
    controller.keep_alive().await.unwrap();
    controller.shut_down().await.unwrap();
}

fn random(prng: &mut Prng, bytes: u32) -> Rc<[u8]> {
    let mut random = vec![0; usize32(bytes)];
    prng.fill(&mut random);
    random.into()
}

/// Fills the queue with reads and writes of different sizes and lets all complete.
async fn several_at_once(queue: &mut Queue) {
    let sent = random(&mut Prng::new(2), 512 << 7);
    let mut left = 200u32;
    let mut completed = 0;
    while completed < 200 {
        while left > 0 && queue.vacant().is_some() {
            let bytes = 512 << (left % 8);
            let data = match left % 3 {
                0 => Data::Send { memory: Memory::Shared(sent.clone()), length: bytes },
                1 => Data::page(bytes),
                _ => Data::Discard { length: bytes },
            };
            let opcode = if left.is_multiple_of(3) { io::WRITE } else { io::READ };
            queue.submit(sqe(opcode, left, bytes), data);
            left -= 1;
        }
        queue.wait().await.unwrap();
        queue
            .poll(|completion| {
                assert!(completion.cqe.status().is_success());
                completed += 1;
            })
            .unwrap();
    }
    assert_eq!(queue.outstanding(), 0);
}

#[test]
fn data_survives_plain() {
    on_reactor(exercise(Script::default(), options()));
}

#[test]
fn data_survives_digests_alignment_and_small_pdus() {
    let script =
        Script { cpda: 31, maxh2cdata: 4096, c2h_max: 3000, in_capsule: 4096, ..Script::default() };
    let options = Options { header_digest: true, data_digest: true, ..options() };
    on_reactor(exercise(script, options));
}

#[test]
fn data_survives_without_capsule_data_and_success_flag() {
    let script = Script { in_capsule: 0, success_flag: false, ..Script::default() };
    on_reactor(exercise(script, options()));
}

#[test]
fn small_writes_need_no_r2t_and_large_ones_do() {
    on_reactor(async {
        let peer = Scripted::start(Script::default());
        let controller = connect(&peer, SUBNQN, &options()).await.unwrap();
        let mut queue = controller.association().connect_queue(1, 4).await.unwrap();
        for (bytes, r2ts) in [(4096, 0), (16384, 0), (16896, 1)] {
            let memory = Memory::Shared(random(&mut Prng::new(1), bytes));
            let data = Data::Send { memory, length: bytes };
            run(&mut queue, sqe(io::WRITE, 0, bytes), data).await.unwrap();
            assert_eq!(peer.r2ts(), r2ts, "{bytes}");
        }
    });
}

#[test]
fn a_refused_port_is_told_with_advice() {
    let error = on_reactor(async {
        let (host, options) = (HostIdentity::of_machine(), options());
        let connect = Controller::connect("127.0.0.1", 4420, SUBNQN, &host, &options);
        connect.await.err().expect("nothing listens there")
    });
    assert!(matches!(error, Error::Transport(host::Error::Connect { .. })), "{error}");
    assert!(error.advice().unwrap().contains("--trsvcid"));
}

#[test]
fn a_silent_peer_is_given_up() {
    let error = failure(Fault::Silent);
    assert!(matches!(error, Error::Transport(host::Error::Silent { .. })), "{error}");
}

#[test]
fn refusals_of_connect_are_told() {
    let invalid = ConnectInvalid { offset: 256, in_data: true };
    let error = failure(Fault::Refuse(Status::CONNECT_INVALID_PARAMETERS, invalid.to_dw0()));
    assert!(error.to_string().contains("SUBNQN"), "{error}");
    assert!(error.advice().is_some());
    let error = failure(Fault::Refuse(Status::CONNECT_INVALID_HOST.with_dnr(), 0));
    assert!(error.to_string().contains("Connect Invalid Host"), "{error}");
}

#[test]
fn a_controller_that_never_gets_ready_is_given_up() {
    let error = failure(Fault::NeverReady);
    assert!(matches!(error, Error::Timeout { command: "CC.EN", .. }), "{error}");
    assert!(matches!(failure(Fault::CfsSet), Error::Fatal));
}

/// What a read over a controller with this fault comes to.
fn read_with(fault: Fault, options: Options) -> Result<Cqe, Error> {
    on_reactor(async move {
        let peer = Scripted::start(Script { fault, ..Script::default() });
        let controller = connect(&peer, SUBNQN, &options).await.unwrap();
        let mut queue = controller.association().connect_queue(1, 4).await.unwrap();
        let read = run(&mut queue, sqe(io::READ, 0, 4096), Data::page(4096)).await;
        read.map(|(cqe, _)| cqe)
    })
}

#[test]
fn a_wrong_data_digest_fails_the_command_not_the_connection() {
    let with_digest = Options { data_digest: true, ..options() };
    let cqe = read_with(Fault::Digest, with_digest).unwrap();
    assert!(cqe.status().is(Status::TRANSIENT_TRANSPORT_ERROR), "{}", cqe.status());
}

#[test]
fn a_short_read_is_no_success() {
    let cqe = read_with(Fault::HalfRead, options()).unwrap();
    assert!(cqe.status().is(Status::DATA_TRANSFER_ERROR), "{}", cqe.status());
}

#[test]
fn a_failed_read_gives_its_status() {
    let status = Status::UNRECOVERED_READ_ERROR;
    let cqe = read_with(Fault::FailReads(status), options()).unwrap();
    assert!(cqe.status().is(status));
}

#[test]
fn a_broken_protocol_ends_the_queue() {
    let error = read_with(Fault::StrangeCid, options()).unwrap_err();
    assert!(matches!(error, Error::Transport(host::Error::Protocol(_))), "{error}");
}

#[test]
fn a_terminate_request_is_told_in_words() {
    let error = read_with(Fault::Terminate, options()).unwrap_err();
    assert!(error.to_string().contains("Invalid PDU Header Field at byte 8"), "{error}");
}

#[test]
fn a_closed_connection_is_told() {
    let error = read_with(Fault::Close, options()).unwrap_err();
    assert!(matches!(error, Error::Transport(host::Error::Closed)), "{error}");
}

#[test]
fn a_namespace_that_is_not_there_is_told() {
    on_reactor(async {
        let peer = Scripted::start(Script::default());
        let controller = connect(&peer, SUBNQN, &options()).await.unwrap();
        let error = controller.namespace(2).await.unwrap_err();
        assert_eq!(error.to_string(), "namespace 2 is not active");
        let error = controller.namespace(3).await.unwrap_err();
        assert!(error.advice().unwrap().contains("--nsid"), "{error}");
    });
}

#[test]
fn a_queue_deeper_than_the_controllers_is_refused_here() {
    on_reactor(async {
        let peer = Scripted::start(Script::default());
        let controller = connect(&peer, SUBNQN, &options()).await.unwrap();
        assert_eq!(controller.association().depth_max(), 128);
        let error = controller.association().connect_queue(1, 129).await.err().unwrap();
        assert!(error.to_string().contains("128"), "{error}");
    });
}

#[test]
fn a_discovery_log_of_several_reads_comes_whole() {
    on_reactor(async {
        for records in [0, 1, 16, 40] {
            let peer = Scripted::start(Script { records, ..Script::default() });
            let controller = connect(&peer, DISCOVERY, &options()).await.unwrap();
            let log = controller.discovery_log().await.unwrap();
            assert_eq!((log.generation, log.entries.len()), (7, records));
            for (index, entry) in log.entries.iter().enumerate() {
                assert_eq!(entry.subnqn(), format!("nqn.2026-11.io.flashloom:{index}"));
                assert_eq!((entry.traddr(), entry.trsvcid()), ("192.0.2.1".into(), "4420".into()));
            }
        }
    });
}

#[test]
fn a_restless_discovery_log_is_given_up() {
    on_reactor(async {
        let script = Script { fault: Fault::RestlessLog, ..Script::default() };
        let peer = Scripted::start(script);
        let controller = connect(&peer, DISCOVERY, &options()).await.unwrap();
        let error = controller.discovery_log().await.unwrap_err();
        assert!(error.to_string().contains("generation counter"), "{error}");
    });
}
