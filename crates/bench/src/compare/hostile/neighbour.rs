//! The host beside a flood: reads of 4 KiB, one at a time, from another address than the flood's.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use nvme::opcode::io;
use nvme::pdu::{C2hData, PduType};
use nvme::sqe::{Sgl, Sqe};
use stdx::{Histogram, Prng};

use super::super::Outcome;
use super::super::server::{Flashloom, Server};
use super::host::{Host, capsule, failed};
use super::{BLOCK, HALF_BLOCKS};
use crate::rank;

const WHO: Host = Host {
    nqn: "nqn.2014-08.org.nvmexpress:uuid:0b7d0f0e-1f2f-4b0e-9a57-3f0f4d1f0c14",
    address: Ipv4Addr::new(127, 0, 0, 2),
};

/// Where clients run.
pub const CLIENTS_CPU: usize = 1;

/// What it waits for its answers, microseconds.
#[derive(Clone, Copy)]
pub struct Waits {
    pub p50: f64,
    pub p99: f64,
}

/// Measures for `seconds`.
///
/// # Errors
/// That the target did not answer as it should.
pub fn measure(server: &Flashloom, seconds: u32) -> Outcome<Waits> {
    // A thread of its own, as it is the thread that the scheduler favours.
    std::thread::scope(|scope| {
        let measured = scope.spawn(|| {
            rank::take(CLIENTS_CPU, rank::FIRST);
            read(server, Duration::from_secs(seconds.into()))
        });
        measured.join().map_err(|_| "the neighbour ended".to_owned())?
    })
}

#[allow(
    clippy::disallowed_methods,
    reason = "a blocking client is measured, which runs no reactor"
)]
fn read(server: &Flashloom, time: Duration) -> Outcome<Waits> {
    let (_admin, cntlid) = WHO.admin(server)?;
    let mut socket = WHO.queue(server, 1, cntlid, 32)?;
    let (mut waits, mut prng) = (Histogram::new(), Prng::new(1));
    let begin = Instant::now();
    while begin.elapsed() < time {
        let asked = Instant::now();
        one(&mut socket, server.nsid(), prng.below(HALF_BLOCKS))?;
        waits.record(u64::try_from(asked.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    let micros = |percent| waits.percentile(percent) as f64 / 1000.0;
    Ok(Waits { p50: micros(50.0), p99: micros(99.0) })
}

fn one(socket: &mut TcpStream, nsid: u32, block: u64) -> Outcome<()> {
    let mut sqe = Sqe { dptr: Sgl::transport(BLOCK), ..Sqe::new(io::READ, 1, nsid) };
    sqe.cdw10 = u32::try_from(block).unwrap_or(0).into();
    socket.write_all(&capsule(&sqe, &[])).map_err(failed)?;
    let mut answer = [0; size_of::<C2hData>() + BLOCK as usize];
    socket.read_exact(&mut answer).map_err(failed)?;
    if answer[0] == PduType::C2hData.raw() { Ok(()) } else { Err("a read failed".into()) }
}
