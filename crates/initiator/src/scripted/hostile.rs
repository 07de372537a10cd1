//! What a controller sends that means harm, or is broken: PDUs that are nearly right.

use nvme::cqe::Cqe;
use nvme::pdu::{FLAG_LAST, FLAG_SUCCESS};
use nvme::sqe::Sqe;
use nvme::status::Status;
use stdx::num::{low8, low16, low32, u32_of, usize64};
use stdx::prng::Prng;
use zerocopy::IntoBytes;

/// One to four PDUs in answer to a command; none in one case of eight.
pub fn answer(chance: &mut Prng, sqe: &Sqe) -> Vec<u8> {
    let mut bytes = Vec::new();
    let count = if chance.below(8) == 0 { 0 } else { 1 + chance.below(4) };
    for _ in 0..count {
        bytes.extend_from_slice(&pdu(chance, sqe));
    }
    bytes
}

/// A value that is right, near to it, at an end, or any.
fn near(chance: &mut Prng, right: u32) -> u32 {
    match chance.below(8) {
        0 => right.wrapping_sub(1),
        1 => right.wrapping_add(1),
        2 => 0,
        3 => u32::MAX,
        4 => low32(chance.below(1 << 32)),
        _ => right,
    }
}

fn pdu(chance: &mut Prng, sqe: &Sqe) -> Vec<u8> {
    let cid = low16(near(chance, sqe.cid.get().into()).into());
    let whole = sqe.dptr.length.get();
    match chance.below(6) {
        0 => {
            let mut bytes = head(chance, 0x05, 0, 24, 0, 24);
            bytes.extend_from_slice(Cqe::new(cid, Status::SUCCESS).as_bytes());
            bytes
        }
        1 => {
            let mut bytes = head(chance, 0x09, 0, 24, 0, 24);
            for field in [u32::from(cid), near(chance, 0), near(chance, whole), 0] {
                bytes.extend_from_slice(&field.to_le_bytes());
            }
            bytes
        }
        2 => (0..chance.below(200)).map(|_| low8(chance.below(256))).collect(),
        3 => {
            let kind = low8(chance.below(12));
            head(chance, kind, 0, 24, 0, 24)
        }
        _ => data(chance, cid, whole),
    }
}

/// C2HData of what was asked for, or of something like it.
fn data(chance: &mut Prng, cid: u16, whole: u32) -> Vec<u8> {
    let length = near(chance, whole).min(1 << 20);
    let flags = [0, FLAG_LAST, FLAG_LAST | FLAG_SUCCESS, FLAG_SUCCESS][usize64(chance.below(4))];
    let mut bytes = head(chance, 0x07, flags, 24, 24, 24 + length);
    for field in [u32::from(cid), near(chance, 0), near(chance, length), 0] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    bytes.resize(bytes.len() + usize::try_from(length).unwrap(), 0xee);
    bytes
}

/// A common header; one in sixteen has a damaged byte.
fn head(chance: &mut Prng, kind: u8, flags: u8, hlen: u8, pdo: u8, plen: u32) -> Vec<u8> {
    let mut bytes = vec![kind, flags, hlen, pdo];
    bytes.extend_from_slice(&plen.to_le_bytes());
    if chance.below(16) == 0 {
        let at = usize64(chance.below(u64::from(u32_of(bytes.len()))));
        bytes[at] = low8(chance.below(256));
    }
    bytes
}
