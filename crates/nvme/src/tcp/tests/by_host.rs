//! What a host can do wrong, and what the controller's machine says of it: the fatal error status and
//! information of section 3.6.2.5 for each.

use zerocopy::IntoBytes;

use super::super::controller::{Event, Machine, term_req};
use super::super::{Fatal, Step, ddgst};
use super::{IN_CAPSULE, MAXH2CDATA, READ, Terms, WRITE, ch, pattern, pdu, sqe};
use crate::pdu::{CommonHeader, Fes, H2cData, IcReq, TermReq};
use crate::sqe::Sqe;

use Fes::{
    DataTransferOutOfRange, HeaderDigestError, InvalidPduHeaderField, LimitExceeded,
    PduSequenceError, UnsupportedParameter,
};

const PLAIN: Terms = Terms { hdgst: false, ddgst: false, hpda: 0, cpda: 0 };

/// Feeds `bytes` whole and in single bytes to two machines made by `make`; both must end in the same
/// fatal error, which is answered, and stay silent afterwards.
#[track_caller]
fn refused(make: impl Fn() -> Machine, bytes: &[u8], fes: Fes, fei: u32) -> Fatal {
    let mut machine = make();
    let whole = first_error(&mut machine, bytes).expect("an error");
    let mut machine = make();
    let single = (1..=bytes.len()).find_map(|len| first_error(&mut machine, &bytes[..len]));
    assert_eq!(single, Some(whole), "cutting the bytes changes the error");
    assert_eq!((whole.fes, whole.fei, whole.answer), (fes, fei, true));
    assert!(
        matches!(machine.next(bytes), Ok(Step::NeedMore { consumed, .. }) if consumed == bytes.len())
    );
    whole
}

/// The error on `input`, if it comes before an event.
fn first_error(machine: &mut Machine, input: &[u8]) -> Option<Fatal> {
    match machine.next(input) {
        Err(fatal) => Some(fatal),
        Ok(Step::NeedMore { consumed: 0, .. }) => None,
        Ok(step) => panic!("{step:?} in place of an error"),
    }
}

fn ready() -> Machine {
    PLAIN.ready_controller()
}

fn common(ch: CommonHeader) -> Vec<u8> {
    ch.as_bytes().to_vec()
}

/// A command capsule with a common header of our choice.
fn capsule(terms: Terms, ch: CommonHeader, sqe: &Sqe, behind: &[u8]) -> Vec<u8> {
    pdu(terms, &[ch.as_bytes(), sqe.as_bytes()].concat(), behind)
}

// ---- Common header ----

#[test]
fn an_unknown_type_is_an_invalid_field_at_byte_0() {
    for unknown in [0x08, 0x0a, 0x0b, 0x7f, 0xff] {
        refused(ready, &common(ch(unknown, 0, 24, 0, 24)), InvalidPduHeaderField, 0);
    }
}

#[test]
fn a_type_that_only_a_controller_sends_is_an_invalid_field_at_byte_0() {
    for (pdu_type, hlen) in [(0x01, 128), (0x03, 24), (0x05, 24), (0x07, 24), (0x09, 24)] {
        let bytes = common(ch(pdu_type, 0, hlen, 0, hlen.into()));
        refused(ready, &bytes, InvalidPduHeaderField, 0);
    }
}

#[test]
fn a_wrong_hlen_is_an_invalid_field_at_byte_2() {
    for hlen in [0, 24, 71, 73, 255] {
        refused(ready, &common(ch(4, 0, hlen, 0, 72)), InvalidPduHeaderField, 2);
    }
    refused(ready, &common(ch(6, 4, 72, 24, 4120)), InvalidPduHeaderField, 2);
    let fresh = || PLAIN.controller();
    refused(fresh, &common(ch(0, 0, 127, 0, 128)), InvalidPduHeaderField, 2);
}

#[test]
fn reserved_flags_are_an_invalid_field_at_byte_1() {
    for flags in [0x04, 0x08, 0x10, 0x80] {
        refused(ready, &common(ch(4, flags, 72, 0, 72)), InvalidPduHeaderField, 1);
    }
    // SUCCESS belongs to the controller's data.
    for flags in [0x08, 0x0c, 0x10] {
        refused(ready, &common(ch(6, flags, 24, 24, 28)), InvalidPduHeaderField, 1);
    }
    let fresh = || PLAIN.controller();
    refused(fresh, &common(ch(0, 1, 128, 0, 128)), InvalidPduHeaderField, 1);
}

#[test]
fn a_digest_flag_without_the_digest_negotiated_is_an_invalid_field_at_byte_1() {
    refused(ready, &common(ch(4, 1, 72, 0, 72)), InvalidPduHeaderField, 1);
    refused(ready, &common(ch(4, 2, 72, 72, 76)), InvalidPduHeaderField, 1);
    refused(ready, &common(ch(6, 6, 24, 24, 28)), InvalidPduHeaderField, 1);
}

#[test]
fn a_missing_digest_flag_is_an_invalid_field_at_byte_1() {
    let ready = || Terms::DIGESTS.ready_controller();
    refused(ready, &common(ch(4, 0, 72, 0, 76)), InvalidPduHeaderField, 1);
    refused(ready, &common(ch(4, 1, 72, 76, 84)), InvalidPduHeaderField, 1);
    refused(ready, &common(ch(6, 5, 24, 28, 36)), InvalidPduHeaderField, 1);
}

#[test]
fn data_before_the_end_of_the_header_is_an_invalid_field_at_byte_3() {
    for pdo in [0, 4, 68, 71, 73, 75] {
        refused(ready, &common(ch(4, 0, 72, pdo, 584)), InvalidPduHeaderField, 3);
    }
    // With a header digest the header ends four bytes later.
    let ready = || Terms::DIGESTS.ready_controller();
    refused(ready, &common(ch(4, 3, 72, 72, 592)), InvalidPduHeaderField, 3);
    refused(ready, &common(ch(6, 7, 24, 24, 540)), InvalidPduHeaderField, 3);
}

#[test]
fn data_not_aligned_to_cpda_is_an_invalid_field_at_byte_3() {
    let ready = || Terms { cpda: 15, ..PLAIN }.ready_controller();
    for pdo in [72, 76, 124, 132] {
        refused(ready, &common(ch(4, 0, 72, pdo, 1000)), InvalidPduHeaderField, 3);
    }
    for pdo in [24, 32, 60] {
        refused(ready, &common(ch(6, 4, 24, pdo, 1000)), InvalidPduHeaderField, 3);
    }
}

#[test]
fn a_plen_too_short_is_an_invalid_field_at_byte_4() {
    // Without data PDO says nothing, so a PDU that ends in its header has data before it.
    refused(ready, &common(ch(4, 0, 72, 72, 0)), InvalidPduHeaderField, 4);
    refused(ready, &common(ch(4, 0, 72, 72, 71)), InvalidPduHeaderField, 4);
    refused(ready, &common(ch(6, 4, 24, 24, 24)), InvalidPduHeaderField, 4);
    refused(ready, &common(ch(6, 4, 24, 32, 32)), InvalidPduHeaderField, 4);
    let digests = || Terms::DIGESTS.ready_controller();
    refused(digests, &common(ch(4, 3, 72, 76, 80)), InvalidPduHeaderField, 4);
    refused(digests, &common(ch(6, 7, 24, 28, 32)), InvalidPduHeaderField, 4);
    let fresh = || PLAIN.controller();
    for plen in [0, 127, 129, 256, u32::MAX] {
        refused(fresh, &common(ch(0, 0, 128, 0, plen)), InvalidPduHeaderField, 4);
    }
}

// ---- Sequence ----

#[test]
fn anything_before_icreq_is_a_sequence_error() {
    let fresh = || PLAIN.controller();
    refused(fresh, &common(ch(4, 0, 72, 0, 72)), PduSequenceError, 0);
    refused(fresh, &common(ch(6, 4, 24, 24, 28)), PduSequenceError, 0);
}

#[test]
fn a_second_icreq_is_a_sequence_error() {
    refused(ready, IcReq::new(0, 0, 0).as_bytes(), PduSequenceError, 0);
}

// ---- ICReq ----

#[test]
fn another_pdu_format_version_is_an_unsupported_parameter_at_byte_8() {
    let mut request = IcReq::new(0, 0, 0);
    request.pfv = 1.into();
    let fatal = refused(|| PLAIN.controller(), request.as_bytes(), UnsupportedParameter, 8);
    // The whole header of the PDU in error goes back, and no more than 128 bytes of it.
    assert_eq!(term_req(&fatal, request.as_bytes())[24..], *request.as_bytes());
}

#[test]
fn an_alignment_beyond_31_is_an_invalid_field_at_byte_10() {
    let request = IcReq::new(32, 0, 0);
    refused(|| PLAIN.controller(), request.as_bytes(), InvalidPduHeaderField, 10);
}

#[test]
fn an_unknown_digest_bit_is_an_invalid_field_at_byte_11() {
    let request = IcReq::new(0, 4, 0);
    refused(|| PLAIN.controller(), request.as_bytes(), InvalidPduHeaderField, 11);
}

#[test]
fn the_largest_maxr2t_is_one_more_than_its_field_holds() {
    let request = IcReq::new(31, 3, u32::MAX);
    match PLAIN.controller().next(request.as_bytes()) {
        Ok(Step::Event { consumed: 128, event: Event::Initialize(request) }) => {
            assert_eq!(request.maxr2t, 1 << 32);
            assert!(request.hdgst && request.ddgst && request.hpda == 31);
        }
        other => panic!("{other:?}"),
    }
}

// ---- Command capsules ----

#[test]
fn too_much_in_capsule_data_exceeds_the_data_transfer_limit() {
    refused(ready, &common(ch(4, 0, 72, 72, 72 + IN_CAPSULE + 1)), LimitExceeded, 0);
    refused(ready, &common(ch(4, 0, 72, 72, u32::MAX)), LimitExceeded, 0);
    // Right up to the limit is fine.
    let bytes = common(ch(4, 0, 72, 72, 72 + IN_CAPSULE));
    assert!(matches!(ready().next(&bytes), Ok(Step::NeedMore { consumed: 0, at_least: 8264 })));
}

#[test]
fn a_damaged_command_header_is_a_header_digest_error_with_the_digest_received() {
    let terms = Terms { hdgst: true, ..PLAIN };
    let mut bytes = capsule(terms, ch(4, 1, 72, 0, 76), &sqe(READ, 0, 512), &[]);
    let digest = u32::from_le_bytes(bytes[72..].try_into().unwrap());
    bytes[40] ^= 1;
    let fatal = refused(|| terms.ready_controller(), &bytes, HeaderDigestError, digest);
    assert_eq!(term_req(&fatal, &bytes)[24..], bytes[..72]);
}

#[test]
fn a_damaged_header_is_noticed_before_its_data_has_come() {
    let terms = Terms { hdgst: true, ..PLAIN };
    let bytes = capsule(terms, ch(4, 1, 72, 76, 588), &sqe(WRITE, 0, 512), &[]);
    let mut damaged = bytes.clone();
    damaged[8] ^= 0x80;
    let digest = u32::from_le_bytes(bytes[72..].try_into().unwrap());
    refused(|| terms.ready_controller(), &damaged, HeaderDigestError, digest);
}

#[test]
fn damaged_in_capsule_data_fails_the_command_and_not_the_connection() {
    let terms = Terms::DIGESTS;
    let (command, data) = (sqe(WRITE, 3, 512), pattern(0, 512));
    let behind = [&data[..], &ddgst(&data)].concat();
    let mut bytes = capsule(terms, ch(4, 3, 72, 76, 592), &command, &behind);
    let mut machine = terms.ready_controller();
    for damaged in [76, 587, 588, 591] {
        bytes[damaged] ^= 0x10;
        match machine.next(&bytes) {
            Ok(Step::Event { consumed: 592, event: Event::Capsule { sqe, digest_ok, .. } }) => {
                assert!(*sqe == command && !digest_ok, "byte {damaged}");
            }
            other => panic!("{other:?}"),
        }
        bytes[damaged] ^= 0x10;
    }
    let good = machine.next(&bytes);
    assert!(matches!(good, Ok(Step::Event { event: Event::Capsule { digest_ok: true, .. }, .. })));
}

#[test]
fn pdo_and_ddgstf_say_nothing_in_a_capsule_without_data() {
    let mut machine = Terms::DIGESTS.ready_controller();
    for (flags, pdo) in [(1, 0), (1, 72), (1, 255), (3, 0)] {
        let bytes = capsule(Terms::DIGESTS, ch(4, flags, 72, pdo, 76), &sqe(READ, 0, 512), &[]);
        let step = machine.next(&bytes);
        assert!(matches!(
            step,
            Ok(Step::Event {
                consumed: 76,
                event: Event::Capsule { data: [], digest_ok: true, .. }
            })
        ));
    }
}

// ---- H2CData ----

/// A machine with an R2T out: tag 1, command 5, bytes 1000 to 3000.
fn transferring(terms: Terms) -> Machine {
    let mut machine = terms.ready_controller();
    machine.begin_transfer(1, 5, 1000, 2000);
    machine
}

/// An H2CData header for it, right but for what the test changes; PLEN follows `datal`.
fn h2c(flags: u8, cccid: u16, ttag: u16, datao: u32, datal: u32) -> H2cData {
    H2cData {
        ch: ch(6, flags, 24, 24, 24 + datal),
        cccid: cccid.into(),
        ttag: ttag.into(),
        datao: datao.into(),
        datal: datal.into(),
        reserved: [0; 4],
    }
}

#[track_caller]
fn h2c_refused(header: &H2cData, fes: Fes, fei: u32) {
    let fatal = refused(|| transferring(PLAIN), header.as_bytes(), fes, fei);
    assert_eq!(term_req(&fatal, header.as_bytes())[24..], *header.as_bytes());
}

#[test]
fn data_for_a_tag_not_in_use_is_an_invalid_field_at_byte_10() {
    for ttag in [0, 2, 4, 0xffff] {
        h2c_refused(&h2c(4, 5, ttag, 1000, 2000), InvalidPduHeaderField, 10);
    }
}

#[test]
fn data_for_another_command_is_an_invalid_field_at_byte_8() {
    h2c_refused(&h2c(4, 6, 1, 1000, 2000), InvalidPduHeaderField, 8);
}

#[test]
fn data_outside_of_the_r2t_is_out_of_range() {
    h2c_refused(&h2c(4, 5, 1, 1000, 2001), DataTransferOutOfRange, 0);
    h2c_refused(&h2c(4, 5, 1, 3000, 1), DataTransferOutOfRange, 0);
    h2c_refused(&h2c(0, 5, 1, 999, 1), DataTransferOutOfRange, 0);
    h2c_refused(&h2c(0, 5, 1, u32::MAX, 8), DataTransferOutOfRange, 0);
}

#[test]
fn data_out_of_order_is_an_invalid_field_at_byte_12() {
    h2c_refused(&h2c(4, 5, 1, 1004, 1996), InvalidPduHeaderField, 12);
}

#[test]
fn data_sent_twice_is_an_invalid_field_at_byte_12() {
    let half_done = || {
        let mut machine = transferring(PLAIN);
        let first = [h2c(0, 5, 1, 1000, 1000).as_bytes(), &pattern(0, 1000)].concat();
        assert!(matches!(machine.next(&first), Ok(Step::Event { consumed: 1024, .. })));
        assert!(matches!(machine.next(&[]), Ok(Step::Event { consumed: 0, .. })));
        machine
    };
    let again = h2c(0, 5, 1, 1000, 1000);
    refused(half_done, again.as_bytes(), InvalidPduHeaderField, 12);
}

#[test]
fn data_after_the_last_pdu_of_an_r2t_is_for_a_tag_not_in_use() {
    let done = || {
        let mut machine = transferring(PLAIN);
        let all = [h2c(4, 5, 1, 1000, 2000).as_bytes(), &pattern(0, 2000)].concat();
        assert!(matches!(machine.next(&all), Ok(Step::Event { consumed: 2024, .. })));
        let end = Event::DataEnd { ttag: 1, complete: true, digest_ok: true };
        assert_eq!(machine.next(&[]), Ok(Step::Event { consumed: 0, event: end }));
        machine
    };
    refused(done, h2c(4, 5, 1, 1000, 2000).as_bytes(), InvalidPduHeaderField, 10);
}

#[test]
fn last_pdu_too_early_or_missing_is_an_invalid_field_at_byte_1() {
    h2c_refused(&h2c(4, 5, 1, 1000, 1996), InvalidPduHeaderField, 1);
    h2c_refused(&h2c(0, 5, 1, 1000, 2000), InvalidPduHeaderField, 1);
}

#[test]
fn a_data_length_that_is_not_plens_is_an_invalid_field_at_byte_4() {
    for plen in [2023, 2025, 3000] {
        let mut header = h2c(4, 5, 1, 1000, 2000);
        header.ch.plen = plen.into();
        h2c_refused(&header, InvalidPduHeaderField, 4);
    }
}

#[test]
fn a_data_length_of_0_is_an_invalid_field_at_byte_16() {
    let mut header = h2c(0, 5, 1, 1000, 2000);
    header.datal = 0.into();
    h2c_refused(&header, InvalidPduHeaderField, 16);
}

#[test]
fn a_pdu_over_maxh2cdata_exceeds_the_data_transfer_limit() {
    let asked = || {
        let mut machine = ready();
        machine.begin_transfer(1, 5, 0, 1 << 20);
        machine
    };
    let header = h2c(0, 5, 1, 0, MAXH2CDATA + 4);
    refused(asked, header.as_bytes(), LimitExceeded, 0);
    let header = h2c(0, 5, 1, 0, MAXH2CDATA);
    let step = asked().next(header.as_bytes()).map(|step| matches!(step, Step::NeedMore { .. }));
    assert_eq!(step, Ok(true));
}

#[test]
fn a_damaged_data_header_is_a_header_digest_error_with_the_digest_received() {
    let mut header = h2c(7, 5, 1, 1000, 2000);
    header.ch.pdo = 28;
    header.ch.plen = 2032.into();
    let mut bytes = pdu(Terms::DIGESTS, header.as_bytes(), &[]);
    let digest = u32::from_le_bytes(bytes[24..].try_into().unwrap());
    bytes[13] ^= 1;
    refused(|| transferring(Terms::DIGESTS), &bytes, HeaderDigestError, digest);
}

#[test]
fn a_wrong_data_digest_is_remembered_until_the_transfer_is_complete() {
    let terms = Terms { ddgst: true, ..PLAIN };
    let mut machine = transferring(terms);
    for (offset, flags, damage, ok) in [(1000, 2, 1, false), (2000, 6, 0, false)] {
        let mut header = h2c(flags, 5, 1, offset, 1000);
        header.ch.plen = 1028.into();
        let data = pattern(offset, 1000);
        let mut digest = ddgst(&data);
        digest[2] ^= damage;
        let bytes = [header.as_bytes(), &data, &digest].concat();
        assert!(matches!(machine.next(&bytes), Ok(Step::Event { consumed: 1024, .. })));
        let end = Event::DataEnd { ttag: 1, complete: offset == 2000, digest_ok: ok };
        assert_eq!(machine.next(&bytes[1024..]), Ok(Step::Event { consumed: 4, event: end }));
    }
    // The tag's next transfer starts clean.
    machine.begin_transfer(1, 6, 0, 4);
    let mut header = h2c(6, 6, 1, 0, 4);
    header.ch.plen = 32.into();
    let bytes = [header.as_bytes(), b"good", &ddgst(b"good")].concat();
    assert!(matches!(machine.next(&bytes), Ok(Step::Event { consumed: 28, .. })));
    let end = Event::DataEnd { ttag: 1, complete: true, digest_ok: true };
    assert_eq!(machine.next(&bytes[28..]), Ok(Step::Event { consumed: 4, event: end }));
}

#[test]
fn the_data_of_a_cancelled_transfer_is_dropped_and_its_tag_comes_free() {
    let mut machine = transferring(PLAIN);
    assert!(!machine.cancel_transfer(0) && !machine.cancel_transfer(99));
    let bytes = [h2c(4, 5, 1, 1000, 2000).as_bytes(), &pattern(0, 2000)].concat();
    // In the middle of its data.
    assert!(matches!(machine.next(&bytes[..500]), Ok(Step::Event { consumed: 500, .. })));
    assert!(machine.cancel_transfer(1));
    assert_eq!(machine.direct(), None);
    assert_eq!(machine.next(&bytes[500..700]), Ok(Step::NeedMore { consumed: 200, at_least: 1 }));
    let end = Event::DataEnd { ttag: 1, complete: true, digest_ok: true };
    assert_eq!(machine.next(&bytes[700..]), Ok(Step::Event { consumed: 1324, event: end }));
    assert!(!machine.cancel_transfer(1));
    // Before any of it.
    machine.begin_transfer(1, 5, 1000, 2000);
    assert!(machine.cancel_transfer(1));
    let end = Event::DataEnd { ttag: 1, complete: true, digest_ok: true };
    assert_eq!(machine.next(&bytes), Ok(Step::Event { consumed: 2024, event: end }));
}

// ---- Terminate requests ----

#[test]
fn a_terminate_request_is_understood_in_any_state() {
    for make in [|| PLAIN.controller(), || Terms::DIGESTS.ready_controller()] {
        let mut machine = make();
        let mut request =
            TermReq { ch: ch(2, 0, 24, 0, 48), fes: 5.into(), fei: 7.into(), reserved: [0; 10] };
        let header = pattern(0, 24);
        let bytes = [request.as_bytes(), &header].concat();
        assert_eq!(machine.next(&bytes[..30]), Ok(Step::NeedMore { consumed: 0, at_least: 48 }));
        match machine.next(&bytes) {
            Ok(Step::Event { consumed: 48, event: Event::Terminated(terminated) }) => {
                assert_eq!((terminated.fes, terminated.fei), (5, 7));
                assert_eq!(terminated.header, header);
                assert!(terminated.to_string().contains("Limit Exceeded"));
            }
            other => panic!("{other:?}"),
        }
        request.fes = 0x4321.into();
        let silent = machine.next(request.as_bytes());
        assert_eq!(silent, Ok(Step::NeedMore { consumed: 24, at_least: 1 }));
    }
}

#[test]
fn a_malformed_terminate_request_is_fatal_and_not_answered() {
    for (hlen, plen) in [(23, 24), (24, 23), (24, 153), (24, u32::MAX)] {
        let bytes = common(ch(2, 0, hlen, 0, plen));
        let fatal = ready().next(&bytes).unwrap_err();
        assert!(!fatal.answer);
        assert!(term_req(&fatal, &bytes).is_empty());
    }
}

#[test]
fn our_terminate_request_has_the_layout_of_the_specification() {
    let bytes = [common(ch(4, 0, 71, 0, 0x0102_0304)), vec![0xee; 64]].concat();
    let fatal = ready().next(&bytes).unwrap_err();
    assert_eq!(fatal.to_string(), "Invalid PDU Header Field at byte 2");
    let mut expected = vec![0x03, 0, 24, 0, 32, 0, 0, 0, 1, 0, 2, 0, 0, 0];
    expected.extend_from_slice(&[0; 10]);
    expected.extend_from_slice(&[4, 0, 71, 0, 4, 3, 2, 1]);
    assert_eq!(*term_req(&fatal, &bytes), expected[..]);
}
