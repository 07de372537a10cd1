//! Tests of the protocol machines: the two talking to each other, and each against a peer that does
//! wrong.

mod talk;

use super::{Fatal, controller, host};
use crate::sqe::{Sgl, Sqe};

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
}

fn sqe(opcode: u8, cid: u16, length: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode, cid, 1);
    sqe.dptr = Sgl::transport(length);
    sqe
}

/// Bytes `from..from + len` of a pattern without short periods.
fn pattern(from: u32, len: u32) -> Vec<u8> {
    (from..from + len).map(|i| u8::try_from((i * 31 + (i >> 8) * 7) % 251).unwrap()).collect()
}
