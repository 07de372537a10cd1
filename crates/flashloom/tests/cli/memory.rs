//! The daemon's memory beside hosts at their worst.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use nvme::fabrics::{CNTLID_DYNAMIC, Connect, ConnectAttributes, ConnectData, ConnectResponse};
use nvme::fabrics::{PropertySet, PropertySize};
use nvme::nqn::Nqn;
use nvme::opcode::io;
use nvme::pdu::{CapsuleCmd, CapsuleResp, CommonHeader, IcReq, IcResp, PduType};
use nvme::property::{Cc, CommandSetSelected, offset};
use nvme::sqe::{Sgl, Sqe};
use reactor::net::TcpStream as Stream;
use zerocopy::{FromBytes, IntoBytes};

use super::*;

const CONNECTIONS: u64 = 2048;
const QUEUE_ENTRIES: u64 = 16384;
const NAMESPACE_MIB: u64 = 16;

/// What docs/management.md derives for one reactor, in MiB.
const BOUND_MIB: u64 = 64 + (116 + QUEUE_ENTRIES / 256) + CONNECTIONS * 100 / 1024;

/// I/O queues that each host tries to have, and entries of each.
const QUEUES: u16 = 24;
const ENTRIES: u16 = 128;
const BLOCK: u32 = 4096;

fn capsule(sqe: &Sqe, data: &[u8]) -> Vec<u8> {
    let mut ch = CommonHeader::whole(PduType::CapsuleCmd);
    if !data.is_empty() {
        ch.pdo = ch.hlen;
        ch.plen = (u32::from(ch.hlen) + u32::try_from(data.len()).unwrap()).into();
    }
    let mut bytes = CapsuleCmd { ch, sqe: *sqe }.as_bytes().to_vec();
    bytes.extend_from_slice(data);
    bytes
}

fn ask(socket: &mut TcpStream, sqe: &Sqe, data: &[u8]) -> Option<u32> {
    socket.write_all(&capsule(sqe, data)).unwrap();
    let mut response = [0; size_of::<CapsuleResp>()];
    socket.read_exact(&mut response).unwrap();
    let cqe = CapsuleResp::read_from_bytes(&response).unwrap().cqe;
    cqe.status().is_success().then(|| cqe.dw0.get())
}

/// A queue of `host`, unless the daemon gives it none.
fn connect(port: u16, host: &str, qid: u16, cntlid: u16) -> Option<(TcpStream, u32)> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.write_all(IcReq::new(0, 0, 0).as_bytes()).unwrap();
    socket.read_exact(&mut [0; size_of::<IcResp>()]).unwrap();
    let attributes = ConnectAttributes(ConnectAttributes::DISABLE_SQ_FLOW_CONTROL);
    let request = Connect { recfmt: 0, qid, sqsize: ENTRIES - 1, attributes, kato: 0 };
    let (subsystem, host) = (Nqn::new(NQN).unwrap(), Nqn::new(host).unwrap());
    let data = ConnectData::new([0xa5; 16], cntlid, &subsystem, &host);
    let mut sqe = request.to_sqe(0);
    sqe.dptr = Sgl::in_capsule(0, 1024);
    let dw0 = ask(&mut socket, &sqe, data.as_bytes())?;
    Some((socket, dw0))
}

/// A host that sends a command with `data` for each entry of all queues it gets, as far as it is listened to, and takes
/// no answer.
fn flood(port: u16, host: &str, sqe: &Sqe, data: &[u8]) -> Vec<TcpStream> {
    // Whoever comes last may find too little.
    let Some((mut admin, dw0)) = connect(port, host, 0, CNTLID_DYNAMIC) else { return Vec::new() };
    let cntlid = ConnectResponse::from_dw0(dw0).cntlid;
    let value = u64::from(Cc::enable(CommandSetSelected::Nvm).0);
    let enable = PropertySet { offset: offset::CC, size: PropertySize::Four, value };
    ask(&mut admin, &enable.to_sqe(0), &[]).unwrap();
    let mut sockets = vec![admin];
    for qid in 1..=QUEUES {
        let Some((mut socket, _)) = connect(port, host, qid, cntlid) else { break };
        socket.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        for cid in 0..ENTRIES - 1 {
            if socket.write_all(&capsule(&Sqe { cid: cid.into(), ..*sqe }, data)).is_err() {
                break;
            }
        }
        sockets.push(socket);
    }
    sockets
}

fn command(opcode: u8, blocks: u32, dptr: Sgl) -> Sqe {
    Sqe { cdw12: (blocks - 1).into(), dptr, ..Sqe::new(opcode, 0, 1) }
}

/// Connections from many addresses that say nothing.
fn strangers(port: u16, count: u16) -> Vec<std::os::fd::OwnedFd> {
    let dial = async move {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut silent = Vec::new();
        for n in 0..count {
            let [high, low] = (n % 100).to_be_bytes();
            let from = SocketAddr::from((Ipv4Addr::new(127, 1, high, low), 0));
            silent.push(Stream::connect_from(Some(from), to).await.unwrap().into_fd().unwrap());
        }
        silent
    };
    reactor::run(reactor::Config::default(), dial).unwrap()
}

fn resident_mib(daemon: &Daemon) -> u64 {
    let process = fs::read_to_string(format!("/proc/{}/status", daemon.child.id())).unwrap();
    let resident = process.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    resident.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

/// Who sent 22 MiB and read nothing had the daemon take 1.5 GiB; nobody could say how much it may take at all.
#[test]
fn hosts_at_their_worst_take_no_more_memory_than_the_manual_says() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, port) = (dir.path(), free_port());
    let config = dir.join("c.toml");
    let text = format!(
        "[node]\ncpus = \"0\"\n[serving]\nconnections = {CONNECTIONS}\nqueue-entries = {QUEUE_ENTRIES}\n\
         [[listener]]\naddress = \"127.0.0.1:{port}\"\n\
         [[subsystem]]\nnqn = \"{NQN}\"\nallow-any-host = true\n\
         [[subsystem.namespace]]\nbackend = \"drive:{}/d,size={NAMESPACE_MIB}MiB\"\n",
        dir.display()
    );
    fs::write(&config, text).unwrap();
    let daemon = Daemon::start(dir, &format!("serve --config {}", config.display()));
    reactor::raise_descriptor_limit().unwrap();
    let silent = strangers(port, 1500);
    let mut hosts = Vec::new();
    let here = vec![7; 4 * 4096];
    for n in 0..3 {
        let host = |what: &str| format!("nqn.2026-11.io.flashloom:{what}{n}");
        let read = command(io::READ, 256, Sgl::transport(256 * BLOCK));
        hosts.push(flood(port, &host("reads-nothing"), &read, &[]));
        let write = command(io::WRITE, 256, Sgl::transport(256 * BLOCK));
        hosts.push(flood(port, &host("brings-nothing"), &write, &[]));
        let write = command(io::WRITE, 4, Sgl::in_capsule(0, 4 * BLOCK));
        hosts.push(flood(port, &host("brings-much"), &write, &here));
        let flush = command(io::FLUSH, 1, Sgl::transport(0));
        hosts.push(flood(port, &host("takes-no-answer"), &flush, &[]));
    }
    // Those that come late get less, and the first ones not all.
    assert!(hosts[0].len() > 1);
    let resident = resident_mib(&daemon);
    assert!(resident < BOUND_MIB, "{resident} MiB of {BOUND_MIB}");

    // What they hold is to be seen, and that they wanted more.
    let mut socket = UnixStream::connect(dir.join("api.sock")).unwrap();
    socket.write_all(b"GET /metrics HTTP/1.0\r\nhost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    let value = |name: &str, what: &str| -> u64 {
        let start = format!("flashloom_budget_{name}{{reactor=\"0\",what=\"{what}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("{start}: {text}")).parse().unwrap()
    };
    assert_eq!(value("limit", "queue_entries"), QUEUE_ENTRIES);
    assert!(value("used", "data_bytes") > value("limit", "data_bytes") / 2);
    assert!(value("missed_total", "data_bytes") > 0);
    drop((silent, hosts));
    daemon.stop();
}
