//! A host as its bytes: what the floods and the neighbour send themselves, so that nothing of a client stands between
//! them and the target.

use std::io::{Error, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use nvme::fabrics::{CNTLID_DYNAMIC, Connect, ConnectAttributes, ConnectData, ConnectResponse};
use nvme::fabrics::{PropertySet, PropertySize};
use nvme::nqn::Nqn;
use nvme::pdu::{CapsuleCmd, CapsuleResp, CommonHeader, IcReq, IcResp, PduType};
use nvme::property::{Cc, CommandSetSelected, offset};
use nvme::sqe::{Sgl, Sqe};
use reactor::net::TcpStream as Stream;
use zerocopy::{FromBytes, IntoBytes};

use super::super::Outcome;
use super::super::server::{Flashloom, Server};

/// How long a queue's Connect may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Who connects, and from where.
pub struct Host<'n> {
    pub nqn: &'n str,
    pub address: Ipv4Addr,
}

impl Host<'_> {
    /// An admin queue with its controller enabled, and the controller's identifier.
    pub fn admin(&self, server: &Flashloom) -> Outcome<(TcpStream, u16)> {
        let (mut admin, dw0) = self.connect(server, 0, CNTLID_DYNAMIC, 32)?;
        let cntlid = ConnectResponse::from_dw0(dw0).cntlid;
        let value = u64::from(Cc::enable(CommandSetSelected::Nvm).0);
        let enable = PropertySet { offset: offset::CC, size: PropertySize::Four, value };
        ask(&mut admin, &enable.to_sqe(0), &[])?;
        Ok((admin, cntlid))
    }

    /// An I/O queue of a controller.
    pub fn queue(
        &self,
        server: &Flashloom,
        qid: u16,
        cntlid: u16,
        entries: u16,
    ) -> Outcome<TcpStream> {
        self.connect(server, qid, cntlid, entries).map(|(socket, _)| socket)
    }

    fn dial(&self, server: &Flashloom) -> Outcome<TcpStream> {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
        let from = SocketAddr::from((self.address, 0));
        let dial = async move { Stream::connect_from(Some(from), to).await?.into_fd() };
        let fd: Result<_, Error> =
            reactor::run(reactor::Config::default(), dial).map_err(|e| e.to_string())?;
        let socket = fd.map(TcpStream::from).map_err(|e| format!("{to}: {e}"))?;
        socket.set_nonblocking(false).map_err(failed)?;
        Ok(socket)
    }

    fn connect(
        &self,
        server: &Flashloom,
        qid: u16,
        cntlid: u16,
        entries: u16,
    ) -> Outcome<(TcpStream, u32)> {
        let mut socket = self.dial(server)?;
        socket.set_nodelay(true).map_err(failed)?;
        socket.set_read_timeout(Some(ANSWER_WITHIN)).map_err(failed)?;
        socket.write_all(IcReq::new(0, 0, 0).as_bytes()).map_err(failed)?;
        socket.read_exact(&mut [0; size_of::<IcResp>()]).map_err(failed)?;
        let attributes = ConnectAttributes(ConnectAttributes::DISABLE_SQ_FLOW_CONTROL);
        let request = Connect { recfmt: 0, qid, sqsize: entries - 1, attributes, kato: 0 };
        let name = |name: &str| Nqn::new(name).map_err(|e| format!("{name}: {e}"));
        let data = ConnectData::new([0xa5; 16], cntlid, &name(server.nqn())?, &name(self.nqn)?);
        let mut sqe = request.to_sqe(0);
        sqe.dptr = Sgl::in_capsule(0, 1024);
        let dw0 = ask(&mut socket, &sqe, data.as_bytes())?;
        Ok((socket, dw0))
    }
}

pub fn failed(error: Error) -> String {
    format!("a host's connection: {error}")
}

pub fn capsule(sqe: &Sqe, data: &[u8]) -> Vec<u8> {
    let mut ch = CommonHeader::whole(PduType::CapsuleCmd);
    if !data.is_empty() {
        ch.pdo = ch.hlen;
        ch.plen = (u32::from(ch.hlen) + u32::try_from(data.len()).unwrap_or(0)).into();
    }
    let mut bytes = CapsuleCmd { ch, sqe: *sqe }.as_bytes().to_vec();
    bytes.extend_from_slice(data);
    bytes
}

fn ask(socket: &mut TcpStream, sqe: &Sqe, data: &[u8]) -> Outcome<u32> {
    socket.write_all(&capsule(sqe, data)).map_err(failed)?;
    let mut response = [0; size_of::<CapsuleResp>()];
    socket.read_exact(&mut response).map_err(failed)?;
    let response = CapsuleResp::read_from_bytes(&response).map_err(|_| "a response")?;
    let status = response.cqe.status();
    if status.is_success() { Ok(response.cqe.dw0.get()) } else { Err(format!("{status:?}")) }
}
