//! Bytes of any kind: no panic, and nothing that depends on how they are cut.

use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::talk::{End, Seen, cuts, terms};
use super::{READ, Terms, WRITE, ch, pdu, sqe};

/// A controller with transfers out, or a host with commands out: states in which much is accepted.
fn busy(terms: Terms, controller: bool) -> End {
    if controller {
        let mut machine = terms.ready_controller();
        machine.begin_transfer(0, 0, 0, 600);
        machine.begin_transfer(1, 1, 100, 50);
        machine.cancel_transfer(1);
        End::Controller(machine)
    } else {
        let mut machine = terms.ready_host();
        machine.capsule_cmd(&sqe(READ, 0, 600), 0);
        machine.capsule_cmd(&sqe(WRITE, 1, 150), 0);
        End::Host(machine)
    }
}

/// One PDU that is nearly right: field values around those that matter.
fn nearly_right(terms: Terms, controller: bool) -> impl Strategy<Value = Vec<u8>> {
    let kinds: &[(u8, u8)] = if controller {
        &[(4, 72), (4, 72), (6, 24), (6, 24), (6, 24), (2, 24), (0, 128)]
    } else {
        &[(5, 24), (7, 24), (7, 24), (7, 24), (9, 24), (9, 24), (3, 24), (1, 128)]
    };
    let digests = u8::from(terms.hdgst) | u8::from(terms.ddgst) << 1;
    let hdgst = u8::from(terms.hdgst) * 4;
    let align = if controller { terms.cpda } else { terms.hpda } * 4 + 4;
    (
        prop::sample::select(kinds),
        prop_oneof![4 => 0..4_u8, 1 => any::<u8>()],
        prop_oneof![Just(0_u32), 1..700_u32],
        0..2_u16,
        prop_oneof![Just(0_u32), Just(100), 0..700_u32],
        prop::collection::vec(any::<u8>(), 800),
        prop_oneof![20 => Just(None), 1 => (0..32_usize, any::<u8>()).prop_map(Some)],
    )
        .prop_map(move |((kind, hlen), more, len, id, offset, junk, damage)| {
            let end = hlen + hdgst;
            let padded = end.checked_next_multiple_of(align).unwrap_or(end);
            let pdo = if len == 0 { end } else { padded };
            let data_digest = if terms.ddgst && len > 0 { 4 } else { 0 };
            let flags = if len == 0 { digests & 1 } else { digests | (more & 3) << 2 };
            let plen = u32::from(pdo) + len + data_digest;
            let mut header = ch(kind, flags, hlen, pdo, plen).as_bytes().to_vec();
            header.resize(usize::from(hlen), 0);
            header[8..10].copy_from_slice(&id.to_le_bytes());
            header[10..12].copy_from_slice(&id.to_le_bytes());
            header[12..16].copy_from_slice(&offset.to_le_bytes());
            header[16..20].copy_from_slice(&len.to_le_bytes());
            if let Some((at, value)) = damage {
                header[at.min(usize::from(hlen) - 1)] = value;
            }
            let mut bytes = pdu(terms, &header, &[]);
            let rest = usize::try_from(plen).unwrap().saturating_sub(bytes.len());
            bytes.extend_from_slice(&junk[..rest.min(junk.len())]);
            bytes
        })
}

fn stream() -> impl Strategy<Value = (Terms, bool, Vec<u8>)> {
    (terms(), any::<bool>()).prop_flat_map(|(terms, controller)| {
        prop::collection::vec(nearly_right(terms, controller), 1..6)
            .prop_map(move |pdus| (terms, controller, pdus.concat()))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_cut_of_a_stream_gives_the_same_events((terms, controller, bytes) in stream(), cuts in cuts()) {
        let whole = busy(terms, controller).feed(&bytes, &[], false);
        let cut = busy(terms, controller).feed(&bytes, &cuts, false);
        let direct = busy(terms, controller).feed(&bytes, &cuts, true);
        prop_assert_eq!(&whole, &cut);
        prop_assert_eq!(&whole, &direct);
    }

    #[test]
    fn arbitrary_bytes_never_panic(terms in terms(), controller: bool, bytes: Vec<u8>, cuts in cuts()) {
        let seen = busy(terms, controller).feed(&bytes, &cuts, true);
        if let Some(Seen::Fatal(fatal)) = seen.last() {
            let request = super::super::controller::term_req(fatal, &bytes);
            prop_assert!(request.len() <= 152);
        }
    }
}
