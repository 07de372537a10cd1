//! What the NVMe/TCP protocol machines cost: nanoseconds a PDU, on this machine, nothing else.
//!
//! `cargo run --release -p nvme --example pdu_cost`

#![allow(clippy::disallowed_methods, reason = "a measurement needs a clock, and runs no reactor")]

use std::hint::black_box;
use std::time::Instant;

use nvme::cqe::Cqe;
use nvme::sqe::{Sgl, Sqe};
use nvme::status::Status;
use nvme::tcp::{Step, controller, ddgst, host};

const READ: u8 = 0x02;
const WRITE: u8 = 0x01;
/// PDUs in one input, as one receive would bring them.
const BATCH: u16 = 32;
const BLOCK: u32 = 4096;
const ROUNDS: u32 = 50;
/// Short windows, and the best of many: what else runs on the machine disturbs few of them.
const WINDOWS: u32 = 2000;

/// Runs `turn`, which does [`BATCH`] of something, and prints the best time of one.
fn measure(name: &str, mut turn: impl FnMut()) {
    let mut best = f64::INFINITY;
    for _ in 0..WINDOWS {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            turn();
        }
        let each = start.elapsed().as_secs_f64() / f64::from(ROUNDS) / f64::from(BATCH);
        best = best.min(each);
    }
    println!("{name:<46} {:>8.1} ns", best * 1e9);
}

/// Both ends, initialised.
fn ends(hdgst: bool, ddgst: bool) -> (host::Machine, controller::Machine) {
    let mut host =
        host::Machine::new(host::Config { hpda: 0, maxr2t: 1, hdgst, ddgst, commands: 128 });
    let mut controller = controller::Machine::new(controller::Config {
        max_in_capsule: 16384,
        maxh2cdata: 1 << 20,
        cpda: 0,
        allow_hdgst: true,
        allow_ddgst: true,
        transfers: 128,
    });
    controller.next(&host.ic_req()).expect("ICReq");
    host.next(&controller.ic_resp()).expect("ICResp");
    (host, controller)
}

fn sqe(opcode: u8, cid: u16) -> Sqe {
    let mut sqe = Sqe::new(opcode, cid, 1);
    sqe.dptr = Sgl::transport(BLOCK);
    sqe
}

/// Takes every event of `input`; the sum keeps the work alive.
fn drain_controller(machine: &mut controller::Machine, input: &[u8]) -> u64 {
    let (mut at, mut sum) = (0, 0);
    loop {
        match machine.next(&input[at..]).expect("valid PDUs") {
            Step::Event { consumed, event } => {
                at += consumed;
                if let controller::Event::Capsule { sqe, data, digest_ok } = event {
                    sum += u64::from(sqe.cid.get()) + u64::from(digest_ok);
                    black_box(data);
                }
            }
            Step::NeedMore { .. } => return sum,
        }
    }
}

fn drain_host(machine: &mut host::Machine, input: &[u8]) -> u64 {
    let (mut at, mut sum) = (0, 0);
    loop {
        match machine.next(&input[at..]).expect("valid PDUs") {
            Step::Event { consumed, event } => {
                at += consumed;
                if let host::Event::Data { offset, bytes, .. } = event {
                    sum += u64::from(offset);
                    black_box(bytes);
                }
            }
            Step::NeedMore { .. } => return sum,
        }
    }
}

fn commands(hdgst: bool, digest: bool) {
    let (mut host, mut controller) = ends(hdgst, digest);
    let reads: Vec<u8> =
        (0..BATCH).flat_map(|cid| host.capsule_cmd(&sqe(READ, cid), 0).to_vec()).collect();
    measure(&format!("CapsuleCmd, read, hdgst {hdgst}"), || {
        black_box(drain_controller(&mut controller, black_box(&reads)));
    });
    let data = vec![0x5a; 4096];
    let mut writes = Vec::new();
    for cid in BATCH..BATCH * 2 {
        writes.extend_from_slice(&host.capsule_cmd(&sqe(WRITE, cid), BLOCK));
        writes.extend_from_slice(&data);
        if digest {
            writes.extend_from_slice(&ddgst(&data));
        }
    }
    measure(&format!("CapsuleCmd, 4K in capsule, digests {digest}"), || {
        black_box(drain_controller(&mut controller, black_box(&writes)));
    });
}

fn answers(digests: bool) {
    let (mut host, mut controller) = ends(digests, digests);
    measure(&format!("encode CapsuleResp, digests {digests}"), || {
        for cid in 0..BATCH {
            let head = controller.capsule_resp(&Cqe::new(black_box(cid), Status::SUCCESS));
            black_box(&head[..]);
        }
    });
    measure(&format!("encode C2HData, digests {digests}"), || {
        for cid in 0..BATCH {
            black_box(&controller.c2h_data(black_box(cid), 0, BLOCK, true, true)[..]);
        }
    });
    let data = vec![0x5a; 4096];
    let mut stream = Vec::new();
    for cid in 0..BATCH {
        stream.extend_from_slice(&controller.c2h_data(cid, 0, BLOCK, true, true));
        stream.extend_from_slice(&data);
        if digests {
            stream.extend_from_slice(&ddgst(&data));
        }
    }
    measure(&format!("host: encode read, take C2HData, digests {digests}"), || {
        for cid in 0..BATCH {
            black_box(&host.capsule_cmd(&sqe(READ, cid), 0)[..]);
        }
        black_box(drain_host(&mut host, black_box(&stream)));
    });
    let digest = ddgst(&data);
    measure(&format!("R2T and 4K of H2CData, digests {digests}"), || {
        for cid in 0..BATCH {
            black_box(&controller.begin_transfer(cid, cid, 0, BLOCK)[..]);
            let mut input = [0; 64];
            let head = host.h2c_data(cid, cid, 0, BLOCK, true);
            input[..head.len()].copy_from_slice(&head);
            controller.next(&input[..head.len()]).expect("H2CData");
            controller.advance_direct(&data);
            controller.next(if digests { &digest } else { &[] }).expect("its end");
        }
    });
}

fn main() {
    commands(false, false);
    commands(true, true);
    answers(false);
    answers(true);
}
