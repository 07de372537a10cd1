//! Tests of the protocol machines: the two talking to each other, and each against a peer that does
//! wrong.

mod arbitrary;
mod by_controller;
mod by_host;
mod talk;

use super::{Step, controller, ddgst, host};
use crate::pdu::{CommonHeader, IcReq, IcResp};
use crate::sqe::{Sgl, Sqe};
use zerocopy::IntoBytes;

/// Opcodes of the NVM command set, for the direction of their data.
const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;

const IN_CAPSULE: u32 = 8192;
const MAXH2CDATA: u32 = 8192;

/// Which digests and alignments a connection has.
#[derive(Clone, Copy, Debug, Default)]
struct Terms {
    hdgst: bool,
    ddgst: bool,
    hpda: u8,
    cpda: u8,
}

impl Terms {
    const DIGESTS: Self = Self { hdgst: true, ddgst: true, hpda: 0, cpda: 0 };

    fn controller(self) -> controller::Machine {
        controller::Machine::new(controller::Config {
            max_in_capsule: IN_CAPSULE,
            maxh2cdata: MAXH2CDATA,
            cpda: self.cpda,
            allow_hdgst: true,
            allow_ddgst: true,
            transfers: 4,
        })
    }

    fn host(self) -> host::Machine {
        host::Machine::new(host::Config {
            hpda: self.hpda,
            maxr2t: 1,
            hdgst: self.hdgst,
            ddgst: self.ddgst,
            commands: 8,
        })
    }

    fn dgst(self) -> u8 {
        u8::from(self.hdgst) | u8::from(self.ddgst) << 1
    }

    /// A controller that has had its ICReq.
    fn ready_controller(self) -> controller::Machine {
        let mut machine = self.controller();
        let request = IcReq::new(self.hpda, self.dgst(), 0);
        assert!(matches!(
            machine.next(request.as_bytes()),
            Ok(Step::Event { consumed: 128, event: controller::Event::Initialize(_) })
        ));
        machine
    }

    /// A host that has had its ICResp.
    fn ready_host(self) -> host::Machine {
        let mut machine = self.host();
        let response = IcResp::new(self.cpda, self.dgst(), MAXH2CDATA);
        assert!(matches!(
            machine.next(response.as_bytes()),
            Ok(Step::Event { consumed: 128, event: host::Event::Initialized(_) })
        ));
        machine
    }
}

fn sqe(opcode: u8, cid: u16, length: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode, cid, 1);
    sqe.dptr = Sgl::transport(length);
    sqe
}

fn ch(pdu_type: u8, flags: u8, hlen: u8, pdo: u8, plen: u32) -> CommonHeader {
    CommonHeader { pdu_type, flags, hlen, pdo, plen: plen.into() }
}

/// Bytes `from..from + len` of a pattern without short periods.
fn pattern(from: u32, len: u32) -> Vec<u8> {
    (from..from + len).map(|i| u8::try_from((i * 31 + (i >> 8) * 7) % 251).unwrap()).collect()
}

/// A PDU: `header` with its digest appended when on, then `behind` it.
fn pdu(terms: Terms, header: &[u8], behind: &[u8]) -> Vec<u8> {
    let mut bytes = header.to_vec();
    if terms.hdgst {
        bytes.extend_from_slice(&ddgst(header));
    }
    bytes.extend_from_slice(behind);
    bytes
}
