//! What a host, or strangers, can do to the others: a neighbour's reads alone, and beside each of those at its worst.

mod flood;
mod floods;
mod host;
mod neighbour;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nvme::opcode::io;
use nvme::pdu::CapsuleResp;
use nvme::sqe::{Sgl, Sqe};
use reactor::net::TcpStream as Stream;
use zerocopy::FromBytes;

pub use self::floods::{is_choice, print as print_floods};
pub use self::host::Host;
use self::host::capsule;
use super::client::{median, read_beside};
use super::resources::resident_mib;
use super::server::{Flashloom, Server};
use super::{Options, Outcome};

/// Connections of strangers, if this process may have as many files.
const STRANGERS: usize = 16_000;
/// Addresses that they come from: one may have a part of the places only.
const ADDRESSES: usize = 300;
/// I/O queues of the host at its worst, and entries of each.
const QUEUES: u16 = 32;
const ENTRIES: u16 = 128;
/// Blocks of 4 KiB of its commands: 1 MiB, and all that a Verify can name.
const BLOCKS: u16 = 256;
const VERIFY_BLOCKS: u16 = 8192;
const BLOCK: u32 = 4096;
/// Bytes of what it brings unasked.
const CAPSULE_BLOCKS: u16 = 4;
/// Half of a namespace: the neighbour has the first, the flood the second.
const HALF_BLOCKS: u64 = (1 << 29) / BLOCK as u64;
/// How long a socket may take no more before it counts as full.
const FULL_AFTER: Duration = Duration::from_millis(50);
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:0b7d0f0e-1f2f-4b0e-9a57-3f0f4d1f0c13";

/// What somebody does at its worst.
struct Attack {
    name: &'static str,
    begin: fn(&Flashloom) -> Outcome<Held>,
}

/// Connections as they were left. Dropped, they end.
struct Held {
    sockets: Vec<TcpStream>,
    /// Commands are sent again as they are answered.
    again: Option<Sqe>,
}

const ATTACKS: &[Attack] = &[
    Attack { name: "strangers that say nothing", begin: |server| strangers(server, &[]) },
    Attack {
        name: "strangers that begin a PDU",
        begin: |server| strangers(server, &[0, 0, 128, 0, 128]),
    },
    Attack { name: "a host that reads 1 MiB and takes nothing", begin: |s| flood(s, &read(), &[]) },
    Attack {
        name: "a host that writes 1 MiB and brings nothing",
        begin: |s| flood(s, &write(), &[]),
    },
    Attack {
        name: "a host that brings 16 KiB in each capsule and takes no answers",
        begin: |s| flood(s, &write_here(), &vec![7; usize::from(CAPSULE_BLOCKS) * BLOCK as usize]),
    },
    Attack {
        name: "a host that verifies 32 MiB with each command, again and again",
        begin: |s| {
            let verify = command(io::VERIFY, VERIFY_BLOCKS);
            Ok(Held { again: Some(verify), ..flood(s, &verify, &[])? })
        },
    },
];

/// Measures a neighbour beside each of them, and the daemon's memory.
///
/// # Errors
/// What could not be started or read.
pub fn print(options: &Options) -> Outcome<()> {
    let files =
        reactor::raise_descriptor_limit().map_err(|e| format!("the limit of files: {e}"))?;
    if files < STRANGERS as u64 + 100 {
        return Err(format!(
            "{STRANGERS} connections need more files than the {files} that this process may have"
        ));
    }
    let server = Flashloom::start(&options.flashloom, "adaptive")?;
    println!(
        "\n| who is beside 4K reads at depth 1 | connections | p50 us | p99 us, alone just before | beside | ratio | the daemon, MiB |"
    );
    println!("|---|---|---|---|---|---|---|");
    for attack in ATTACKS {
        let (mut alone, mut beside, mut halves, mut ratios) = (vec![], vec![], vec![], vec![]);
        let (mut resident, mut connections) = (0.0_f64, 0);
        for _ in 0..options.runs {
            let before = read_beside(options, &server)?.p99_us;
            let held = (attack.begin)(&server)?;
            connections = held.sockets.len();
            let measured = held.during(|| read_beside(options, &server))?;
            resident = resident.max(resident_mib(server.id())?);
            drop(held);
            ratios.push(measured.p99_us / before);
            alone.push(before);
            beside.push(measured.p99_us);
            halves.push(measured.p50_us);
        }
        println!(
            "| {} | {connections} | {:.1} | {:.1} | {:.1} | {:.2} | {resident:.0} |",
            attack.name,
            median(halves),
            median(alone),
            median(beside),
            median(ratios)
        );
    }
    Ok(())
}

impl Held {
    fn during<T>(&self, measure: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            if let Some(again) = &self.again {
                scope.spawn(|| self.keep_asking(again, &ends));
            }
            let measured = measure();
            ends.store(true, Ordering::Relaxed);
            measured
        })
    }

    /// Sends a command for each that was answered.
    fn keep_asking(&self, sqe: &Sqe, ends: &AtomicBool) {
        let mut answers = [0; 24 * ENTRIES as usize];
        while !ends.load(Ordering::Relaxed) {
            for mut socket in &self.sockets {
                let answered = socket.read(&mut answers).unwrap_or(0) / size_of::<CapsuleResp>();
                for response in answers.chunks(size_of::<CapsuleResp>()).take(answered) {
                    let Ok((response, _)) = CapsuleResp::read_from_prefix(response) else { return };
                    let next = Sqe { cid: response.cqe.cid, ..*sqe };
                    if socket.write_all(&capsule(&next, &[])).is_err() {
                        return;
                    }
                }
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

fn strangers(server: &Flashloom, say: &'static [u8]) -> Outcome<Held> {
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
    let dial = async move {
        let mut sockets = Vec::with_capacity(STRANGERS);
        for n in 0..STRANGERS {
            let [high, low] = u16::try_from(n % ADDRESSES).unwrap_or(0).to_be_bytes();
            let from = SocketAddr::from((Ipv4Addr::new(127, 1, high, low), 0));
            let socket = Stream::connect_from(Some(from), to).await?;
            // The target may have hung up.
            let _ = socket.send_all(say).await;
            sockets.push(TcpStream::from(socket.into_fd()?));
        }
        Ok(sockets)
    };
    let sockets: std::io::Result<_> =
        reactor::run(reactor::Config::default(), dial).map_err(|e| e.to_string())?;
    Ok(Held { sockets: sockets.map_err(|e| format!("a stranger: {e}"))?, again: None })
}

fn command(opcode: u8, blocks: u16) -> Sqe {
    let mut sqe = Sqe::new(opcode, 0, 1);
    sqe.cdw12 = u32::from(blocks - 1).into();
    sqe
}

fn read() -> Sqe {
    Sqe { dptr: Sgl::transport(u32::from(BLOCKS) * BLOCK), ..command(io::READ, BLOCKS) }
}

fn write() -> Sqe {
    Sqe { dptr: Sgl::transport(u32::from(BLOCKS) * BLOCK), ..command(io::WRITE, BLOCKS) }
}

fn write_here() -> Sqe {
    let bytes = u32::from(CAPSULE_BLOCKS) * BLOCK;
    Sqe { dptr: Sgl::in_capsule(0, bytes), ..command(io::WRITE, CAPSULE_BLOCKS) }
}

/// A host that fills all its queues with a command, as far as the target takes them, and reads no answer.
fn flood(server: &Flashloom, sqe: &Sqe, data: &[u8]) -> Outcome<Held> {
    let host = Host { nqn: HOST, address: Ipv4Addr::LOCALHOST };
    let (admin, cntlid) = host.admin(server)?;
    let mut sockets = Vec::new();
    for qid in 1..=QUEUES {
        // The target may give fewer entries to one host.
        let Ok(mut socket) = host.queue(server, qid, cntlid, ENTRIES) else { break };
        socket.set_write_timeout(Some(FULL_AFTER)).map_err(|e| e.to_string())?;
        for cid in 0..ENTRIES - 1 {
            let sqe = Sqe { cid: cid.into(), ..*sqe };
            if socket.write_all(&capsule(&sqe, data)).is_err() {
                break;
            }
        }
        socket.set_nonblocking(true).map_err(|e| e.to_string())?;
        sockets.push(socket);
    }
    if sockets.is_empty() {
        return Err("the target gave a host no queue".into());
    }
    admin.set_nonblocking(true).map_err(|e| e.to_string())?;
    sockets.push(admin);
    Ok(Held { sockets, again: None })
}
