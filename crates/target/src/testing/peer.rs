//! A host for tests, over a real socket, that can also misbehave: it sends whatever bytes it is told.
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test says what it met by failing there"
)]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use nvme::cqe::Cqe;
use nvme::fabrics::{CNTLID_DYNAMIC, Connect, ConnectAttributes, ConnectData, PropertySet};
use nvme::fabrics::{ConnectResponse, PropertySize};
use nvme::nvm::{LbaRange, Read, Write};
use nvme::property::{Cc, CommandSetSelected, offset};
use nvme::sqe::{Sgl, Sqe};
use nvme::tcp::host::{Config, Event, Machine};
use nvme::tcp::{Step, ddgst};
use reactor::net::TcpStream;
use stdx::id::Lba;
use zerocopy::IntoBytes;

use crate::rig::{HOST, HOST_ID, SUBSYSTEM, nqn};

/// No answer for this long is a failure; a loaded machine is slow.
const PATIENCE: Duration = Duration::from_secs(20);

/// Something the target sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    Response(Cqe),
    /// All of a command's data, and whether the SUCCESS flag completed it.
    Data {
        cid: u16,
        bytes: Vec<u8>,
        success: bool,
    },
    Ready {
        cid: u16,
        ttag: u16,
        length: u32,
    },
    /// C2HTermReq: Fatal Error Status and Information.
    Terminated(u16, u32),
    /// The connection was closed.
    Closed,
}

pub struct Peer {
    stream: TcpStream,
    machine: Machine,
    inbox: Vec<u8>,
    data: Vec<u8>,
    seen: VecDeque<Seen>,
}

impl Peer {
    pub async fn connect(address: SocketAddr, config: Config) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let machine = Machine::new(config);
        let seen = VecDeque::new();
        Self { stream, machine, inbox: Vec::new(), data: Vec::new(), seen }
    }

    /// Sends bytes as they are.
    pub async fn send(&self, bytes: &[u8]) {
        // A target that closed early is found when it is listened to.
        let _ = self.stream.send_all(bytes).await;
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The target closed the connection, or does not take them for as long as a test may wait.
    pub async fn try_send(&self, bytes: &[u8]) -> std::io::Result<()> {
        let sent = reactor::timeout(PATIENCE, self.stream.send_all(bytes)).await;
        sent.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
    }

    /// Sends what of `bytes` the socket takes now; how many that were.
    pub fn send_some(&self, bytes: &[u8]) -> usize {
        if bytes.is_empty() {
            return 0;
        }
        self.stream.try_send_vectored(&[std::io::IoSlice::new(bytes)]).unwrap_or(0)
    }

    /// ICReq and the answer to it.
    pub async fn initialize(&mut self) {
        let request = self.machine.ic_req();
        self.send(&request).await;
        while !self.step() {
            assert!(self.fill().await, "closed before ICResp");
        }
    }

    /// The bytes of a command capsule.
    pub fn capsule(&mut self, sqe: &Sqe, data: &[u8]) -> Vec<u8> {
        let mut bytes = self.machine.capsule_cmd(sqe, u32::try_from(data.len()).unwrap()).to_vec();
        bytes.extend_from_slice(data);
        if self.machine.data_digest() && !data.is_empty() {
            bytes.extend_from_slice(&ddgst(data));
        }
        bytes
    }

    /// Sends a command, its data in the capsule.
    pub async fn command(&mut self, sqe: &Sqe, data: &[u8]) {
        let bytes = self.capsule(sqe, data);
        self.send(&bytes).await;
    }

    /// The bytes of an H2CData PDU.
    pub fn data(&mut self, cid: u16, ttag: u16, offset: u32, data: &[u8], last: bool) -> Vec<u8> {
        let length = u32::try_from(data.len()).unwrap();
        let mut bytes = self.machine.h2c_data(cid, ttag, offset, length, last).to_vec();
        bytes.extend_from_slice(data);
        if self.machine.data_digest() {
            bytes.extend_from_slice(&ddgst(data));
        }
        bytes
    }

    /// The next thing the target sends.
    pub async fn next(&mut self) -> Seen {
        loop {
            if let Some(seen) = self.seen.pop_front() {
                return seen;
            }
            if !self.step() && !self.fill().await {
                return Seen::Closed;
            }
        }
    }

    /// The response to come next.
    pub async fn response(&mut self) -> Cqe {
        match self.next().await {
            Seen::Response(cqe) => cqe,
            other => panic!("{other:?} in place of a response"),
        }
    }

    /// Runs the machine once; true when something happened.
    fn step(&mut self) -> bool {
        let step = self.machine.next(&self.inbox).unwrap();
        let (consumed, seen) = match step {
            Step::NeedMore { consumed, .. } => {
                self.inbox.drain(..consumed);
                return false;
            }
            Step::Event { consumed, event } => (consumed, Self::read(&mut self.data, event)),
        };
        self.inbox.drain(..consumed);
        self.seen.extend(seen);
        true
    }

    fn read(data: &mut Vec<u8>, event: Event<'_>) -> Option<Seen> {
        match event {
            Event::Initialized(_) => None,
            Event::Response { cqe } => Some(Seen::Response(*cqe)),
            Event::ReadyToTransfer { cid, ttag, length, .. } => {
                Some(Seen::Ready { cid, ttag, length })
            }
            Event::Data { bytes, .. } => {
                data.extend_from_slice(bytes);
                None
            }
            Event::DataEnd { cid, last, success, digest_ok, .. } => {
                assert!(digest_ok, "the target's data digest");
                let bytes = std::mem::take(data);
                last.then_some(Seen::Data { cid, bytes, success })
            }
            Event::Terminated(request) => Some(Seen::Terminated(request.fes, request.fei)),
        }
    }

    /// Receives more; false at the end of the stream.
    async fn fill(&mut self) -> bool {
        let mut bytes = vec![0; 64 * 1024];
        let received = reactor::timeout(PATIENCE, self.stream.recv(&mut bytes)).await;
        let received = received.expect("the target is silent").unwrap_or(0);
        self.inbox.extend_from_slice(&bytes[..received]);
        received > 0
    }
}

/// What most tests ask for.
pub const PLAIN: Config = Config { hpda: 0, maxr2t: 1, hdgst: false, ddgst: false, commands: 1024 };

/// Who connects, and to what.
#[derive(Clone, Copy)]
pub struct Guest {
    pub subsystem: &'static str,
    pub host: &'static str,
    /// Host Identifier.
    pub id: [u8; 16],
    /// Keep Alive Timeout in ms.
    pub kato: u32,
}

impl Default for Guest {
    fn default() -> Self {
        Self { subsystem: SUBSYSTEM, host: HOST, id: HOST_ID, kato: 0 }
    }
}

impl Guest {
    /// Connects queue `qid` of controller `cntlid` with `entries` entries; the Connect's completion.
    pub async fn connect(self, peer: &mut Peer, qid: u16, cntlid: u16, entries: u16) -> Cqe {
        peer.initialize().await;
        let connect = Connect {
            recfmt: 0,
            qid,
            sqsize: entries - 1,
            attributes: ConnectAttributes(ConnectAttributes::DISABLE_SQ_FLOW_CONTROL),
            kato: if qid == 0 { self.kato } else { 0 },
        };
        let data = ConnectData::new(self.id, cntlid, &nqn(self.subsystem), &nqn(self.host));
        let mut sqe = connect.to_sqe(0);
        sqe.dptr = Sgl::in_capsule(0, 1024);
        peer.command(&sqe, data.as_bytes()).await;
        peer.response().await
    }

    /// An admin queue with its controller enabled, and the controller's identifier.
    pub async fn admin(self, address: SocketAddr) -> (Peer, u16) {
        let mut peer = Peer::connect(address, PLAIN).await;
        let cqe = self.connect(&mut peer, 0, CNTLID_DYNAMIC, 32).await;
        assert!(cqe.status().is_success(), "{:?}", cqe.status());
        let cntlid = ConnectResponse::from_dw0(cqe.dw0.get()).cntlid;
        let value = u64::from(Cc::enable(CommandSetSelected::Nvm).0);
        let set = PropertySet { offset: offset::CC, size: PropertySize::Four, value };
        peer.command(&set.to_sqe(0), &[]).await;
        assert!(peer.response().await.status().is_success());
        (peer, cntlid)
    }

    /// An I/O queue of a controller.
    pub async fn io(
        self,
        address: SocketAddr,
        cntlid: u16,
        qid: u16,
        config: Config,
        entries: u16,
    ) -> Peer {
        let mut peer = Peer::connect(address, config).await;
        let cqe = self.connect(&mut peer, qid, cntlid, entries).await;
        assert!(cqe.status().is_success(), "{:?}", cqe.status());
        peer
    }

    /// The same for one that another connection may have yet.
    pub async fn io_when_free(
        self,
        address: SocketAddr,
        cntlid: u16,
        qid: u16,
        config: Config,
        entries: u16,
    ) -> Peer {
        loop {
            let mut peer = Peer::connect(address, config).await;
            if self.connect(&mut peer, qid, cntlid, entries).await.status().is_success() {
                return peer;
            }
        }
    }
}

/// Connects queue `qid` of controller `cntlid` with `entries` entries; the Connect's completion.
pub async fn connect_queue(peer: &mut Peer, qid: u16, cntlid: u16, entries: u16) -> Cqe {
    Guest::default().connect(peer, qid, cntlid, entries).await
}

/// An admin queue with its controller enabled, and the controller's identifier.
pub async fn admin(address: SocketAddr) -> (Peer, u16) {
    Guest::default().admin(address).await
}

/// I/O queue 1 of a controller.
pub async fn io(address: SocketAddr, cntlid: u16, config: Config, entries: u16) -> Peer {
    Guest::default().io(address, cntlid, 1, config, entries).await
}

fn range(lba: u64, blocks: u16) -> LbaRange {
    LbaRange::new(Lba::new(lba), u32::from(blocks)).unwrap()
}

/// A Read of 512-byte blocks.
pub fn read(cid: u16, lba: u64, blocks: u16) -> Sqe {
    let command = Read { range: range(lba, blocks), fua: false, limited_retry: false };
    let mut sqe = command.to_sqe(cid, 1);
    sqe.dptr = Sgl::transport(u32::from(blocks) * 512);
    sqe
}

/// A Write of 512-byte blocks, its data in the capsule or to be asked for.
pub fn write(cid: u16, lba: u64, blocks: u16, in_capsule: bool) -> Sqe {
    let range = range(lba, blocks);
    let command = Write { range, fua: false, limited_retry: false, fused: false };
    let mut sqe = command.to_sqe(cid, 1);
    let length = u32::from(blocks) * 512;
    sqe.dptr = if in_capsule { Sgl::in_capsule(0, length) } else { Sgl::transport(length) };
    sqe
}
