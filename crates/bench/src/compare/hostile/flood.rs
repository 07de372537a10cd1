//! A host that keeps all entries of many queues busy with one kind of command, as fast as it is answered.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nvme::pdu::R2t;
use nvme::pdu::{C2hData, CapsuleResp, CommonHeader, FLAG_LAST, FLAG_SUCCESS, H2cData, PduType};
use nvme::sqe::Sqe;
use stdx::Prng;
use stdx::num::usize32;
use zerocopy::{FromBytes, IntoBytes};

use super::super::Outcome;
use super::super::server::{Flashloom, Server};
use super::host::{Host, capsule, failed};

const WHO: Host = Host {
    nqn: "nqn.2014-08.org.nvmexpress:uuid:0b7d0f0e-1f2f-4b0e-9a57-3f0f4d1f0c15",
    address: Ipv4Addr::new(127, 0, 0, 3),
};

/// Bytes received or sent at once: what the kernel copies meanwhile keeps others from the CPU.
const CALL_BYTES: usize = 16 << 10;
/// All that the target sends begins with a header of this length.
const HEADER: usize = size_of::<CapsuleResp>();
const _: () = assert!(size_of::<C2hData>() == HEADER && size_of::<R2t>() == HEADER);

/// Makes a command without its identifier and namespace, and the data in its capsule.
pub type Command = fn(&mut Prng) -> (Sqe, Vec<u8>);

/// What is asked for, again and again.
pub struct Flood {
    /// Its case, to choose it by.
    pub case: &'static str,
    pub name: &'static str,
    pub queues: u16,
    pub entries: u16,
    pub command: Command,
}

/// A queue of it.
struct Stream {
    socket: TcpStream,
    header: [u8; HEADER],
    /// Bytes of the header that have come, and bytes of data still to come.
    have: usize,
    skip: usize,
    /// The command that is complete with them.
    completes: Option<u16>,
    out: Vec<u8>,
    sent: usize,
}

/// A flood under way.
pub struct Running<'a> {
    flood: &'a Flood,
    nsid: u32,
    streams: Vec<Stream>,
    _admin: TcpStream,
}

impl Flood {
    /// Connects its queues.
    pub fn connect(&self, server: &Flashloom) -> Outcome<Running<'_>> {
        let (admin, cntlid) = WHO.admin(server)?;
        let mut streams = Vec::new();
        for qid in 1..=self.queues {
            let socket = WHO.queue(server, qid, cntlid, self.entries)?;
            socket.set_nonblocking(true).map_err(failed)?;
            streams.push(Stream {
                socket,
                header: [0; HEADER],
                have: 0,
                skip: 0,
                completes: None,
                out: Vec::new(),
                sent: 0,
            });
        }
        Ok(Running { flood: self, nsid: server.nsid(), streams, _admin: admin })
    }
}

impl Running<'_> {
    /// Goes on until it `ends`, and counts the commands that were answered.
    ///
    /// # Errors
    /// That the target ended a connection or refused a command.
    pub fn run(mut self, ends: &AtomicBool, answered: &AtomicU64) -> Outcome<()> {
        let (mut prng, flood, nsid) = (Prng::new(2), self.flood, self.nsid);
        let mut next = |cid: u16, out: &mut Vec<u8>| {
            let (sqe, data) = (flood.command)(&mut prng);
            let sqe = Sqe { cid: cid.into(), nsid: nsid.into(), ..sqe };
            out.extend_from_slice(&capsule(&sqe, &data));
        };
        for stream in &mut self.streams {
            (0..flood.entries - 1).for_each(|cid| next(cid, &mut stream.out));
        }
        let mut buffer = vec![0; CALL_BYTES];
        while !ends.load(Ordering::Relaxed) {
            for stream in &mut self.streams {
                let done = stream.turn(&mut buffer, &mut next)?;
                answered.fetch_add(done, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

impl Stream {
    /// Takes what there is, and sends what it may; how many commands were answered.
    fn turn(
        &mut self,
        buffer: &mut [u8],
        next: &mut impl FnMut(u16, &mut Vec<u8>),
    ) -> Outcome<u64> {
        let received = match self.socket.read(buffer) {
            Ok(0) => return Err("the target ended a flood's connection".into()),
            Ok(received) => received,
            Err(e) if e.kind() == ErrorKind::WouldBlock => 0,
            Err(e) => return Err(failed(e)),
        };
        let done = self.take(&buffer[..received], next)?;
        if self.sent < self.out.len() {
            let end = self.out.len().min(self.sent + CALL_BYTES);
            match self.socket.write(&self.out[self.sent..end]) {
                Ok(sent) => self.sent += sent,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(failed(e)),
            }
            if self.sent == self.out.len() {
                self.out.clear();
                self.sent = 0;
            }
        }
        Ok(done)
    }

    fn take(&mut self, mut bytes: &[u8], next: &mut impl FnMut(u16, &mut Vec<u8>)) -> Outcome<u64> {
        let mut done = 0;
        while !bytes.is_empty() {
            let header = bytes.len().min(HEADER - self.have);
            self.header[self.have..self.have + header].copy_from_slice(&bytes[..header]);
            self.have += header;
            bytes = &bytes[header..];
            if self.have < HEADER {
                break;
            }
            if header > 0 {
                self.begin()?;
            }
            let data = bytes.len().min(self.skip);
            self.skip -= data;
            bytes = &bytes[data..];
            if self.skip == 0 {
                self.have = 0;
                if let Some(cid) = self.completes.take() {
                    next(cid, &mut self.out);
                    done += 1;
                }
            }
        }
        Ok(done)
    }

    /// A PDU's header is whole.
    fn begin(&mut self) -> Outcome<()> {
        let lost = |_| "a PDU's header".to_owned();
        let (ch, _) =
            CommonHeader::read_from_prefix(&self.header).map_err(|e| lost(e.to_string()))?;
        self.skip = usize32(ch.plen.get()).saturating_sub(HEADER);
        let cid = u16::from_le_bytes([self.header[8], self.header[9]]);
        match PduType::from_raw(ch.pdu_type) {
            Some(PduType::C2hData) => {
                self.completes = (ch.flags & FLAG_SUCCESS != 0).then_some(cid);
            }
            Some(PduType::CapsuleResp) => {
                let response = CapsuleResp::read_from_bytes(&self.header);
                let cqe = response.map_err(|e| lost(e.to_string()))?.cqe;
                if !cqe.status().is_success() {
                    return Err(format!("a flood's command: {:?}", cqe.status()));
                }
                self.completes = Some(cqe.cid.get());
            }
            Some(PduType::R2t) => {
                let r2t = R2t::read_from_bytes(&self.header).map_err(|e| lost(e.to_string()))?;
                self.bring(&r2t);
            }
            other => return Err(format!("a flood was sent {other:?}")),
        }
        Ok(())
    }

    fn bring(&mut self, r2t: &R2t) {
        let mut ch = CommonHeader::whole(PduType::H2cData);
        ch.flags = FLAG_LAST;
        ch.pdo = ch.hlen;
        ch.plen = (u32::from(ch.hlen) + r2t.r2tl.get()).into();
        let (cccid, ttag, datao, datal) = (r2t.cccid, r2t.ttag, r2t.r2to, r2t.r2tl);
        let head = H2cData { ch, cccid, ttag, datao, datal, reserved: [0; 4] };
        self.out.extend_from_slice(head.as_bytes());
        self.out.resize(self.out.len() + usize32(datal.get()), 7);
    }
}
