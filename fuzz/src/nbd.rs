//! The NBD server's machines, fed with what a client sends.

use attach::nbd::export::Export;
use attach::nbd::handshake::{self, Handshake};
use attach::nbd::request::{Requests, Step};

/// What a target does with an input.
pub type Target = fn(&[u8]);

/// Every target by the name of its file in `fuzz_targets` and its folder in `corpus`.
pub const TARGETS: &[(&str, Target)] = &[("nbd_client", nbd_client)];

fn export(read_only: bool) -> Export {
    Export {
        name: "db".to_owned(),
        description: "a disk".to_owned(),
        size: 1 << 24,
        block_bytes: 4096,
        preferred_bytes: 4096,
        read_only,
        trim: true,
        fast_zero: true,
    }
}

/// What happened, as words: replies to options, requests, and how much data came with them.
fn feed(stream: &[u8], cuts: impl Iterator<Item = usize>, export: &Export) -> Vec<String> {
    let mut handshake = Some(Handshake::default());
    let mut requests: Option<Requests> = None;
    let (mut seen, mut held, mut out, mut rest) = (Vec::new(), Vec::new(), Vec::new(), stream);
    let mut data = 0;
    for cut in cuts {
        let (fresh, later) = rest.split_at(cut.min(rest.len()));
        held.extend_from_slice(fresh);
        rest = later;
        let more = loop {
            if let Some(machine) = &mut handshake {
                match machine.next(&held, export, &mut out) {
                    handshake::Step::NeedMore { consumed } => {
                        held.drain(..consumed);
                        break true;
                    }
                    handshake::Step::Next { consumed } => drop(held.drain(..consumed)),
                    handshake::Step::Begin { consumed, settled } => {
                        held.drain(..consumed);
                        handshake = None;
                        requests = Some(Requests::new(settled));
                    }
                    handshake::Step::Close(why) => {
                        seen.push(why.to_string());
                        break false;
                    }
                }
                continue;
            }
            let Some(machine) = &mut requests else { break false };
            let payload = usize::try_from(machine.payload()).expect("64 bits").min(held.len());
            machine.advance(payload);
            held.drain(..payload);
            data += payload;
            if machine.payload() > 0 {
                break true;
            }
            match machine.next(&held, export) {
                Ok(Step::NeedMore { consumed }) => {
                    held.drain(..consumed);
                    break true;
                }
                Ok(Step::Request { consumed, request }) => {
                    held.drain(..consumed);
                    seen.push(format!("{data} {request:?}"));
                }
                Err(broken) => {
                    seen.push(broken.to_string());
                    break false;
                }
            }
        };
        if !more || rest.is_empty() {
            break;
        }
    }
    seen.push(format!("{data} {out:?}"));
    seen
}

/// What a client sends from its flags on, whole and cut. The input starts with two lengths to cut it into,
/// of which the first says by its lowest bit whether the export is read-only.
pub fn nbd_client(input: &[u8]) {
    let [first, second, stream @ ..] = input else { return };
    let export = export(first & 1 != 0);
    let cuts = [usize::from(*first).max(1), usize::from(*second).max(1)];
    let whole = feed(stream, std::iter::once(usize::MAX), &export);
    assert_eq!(whole, feed(stream, cuts.into_iter().cycle(), &export));
}
