//! What a controller can do wrong, and what the host's machine says of it: the fatal error status and
//! information of section 3.6.2.4 for each.

use zerocopy::IntoBytes;

use super::super::host::{Config, Direct, Event, Machine, term_req};
use super::super::{Fatal, Step, ddgst};
use super::{FLUSH, MAXH2CDATA, READ, Terms, WRITE, ch, pattern, pdu, sqe};
use crate::cqe::Cqe;
use crate::pdu::{C2hData, CommonHeader, Fes, IcResp, R2t, TermReq};
use crate::sqe::Sqe;
use crate::status::Status;

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

fn fresh() -> Machine {
    PLAIN.host()
}

/// A machine with three commands out: 1 reads 4000 bytes, 2 writes 4000 bytes by R2T, 3 has no data.
fn busy(terms: Terms) -> Machine {
    let mut machine = terms.ready_host();
    machine.capsule_cmd(&sqe(READ, 1, 4000), 0);
    machine.capsule_cmd(&sqe(WRITE, 2, 4000), 0);
    machine.capsule_cmd(&sqe(FLUSH, 3, 0), 0);
    machine
}

fn ready() -> Machine {
    busy(PLAIN)
}

fn common(ch: CommonHeader) -> Vec<u8> {
    ch.as_bytes().to_vec()
}

// ---- Common header ----

#[test]
fn an_unknown_type_is_an_invalid_field_at_byte_0() {
    for unknown in [0x08, 0x0a, 0x0b, 0xff] {
        refused(ready, &common(ch(unknown, 0, 24, 0, 24)), InvalidPduHeaderField, 0);
    }
}

#[test]
fn a_type_that_only_a_host_sends_is_an_invalid_field_at_byte_0() {
    for (pdu_type, hlen) in [(0x00, 128), (0x02, 24), (0x04, 72), (0x06, 24)] {
        let bytes = common(ch(pdu_type, 0, hlen, 0, hlen.into()));
        refused(ready, &bytes, InvalidPduHeaderField, 0);
    }
}

#[test]
fn a_wrong_hlen_is_an_invalid_field_at_byte_2() {
    for (pdu_type, flags, pdo) in [(5, 0, 0), (7, 0, 24), (9, 0, 0)] {
        for hlen in [0, 23, 25, 128] {
            let bytes = common(ch(pdu_type, flags, hlen, pdo, 24));
            refused(ready, &bytes, InvalidPduHeaderField, 2);
        }
    }
    refused(fresh, &common(ch(1, 0, 24, 0, 128)), InvalidPduHeaderField, 2);
}

#[test]
fn wrong_flags_are_an_invalid_field_at_byte_1() {
    // Reserved, and digests that were not negotiated.
    for (pdu_type, flags) in [(5, 4), (5, 1), (5, 2), (9, 8), (9, 1), (7, 1), (7, 2), (7, 16)] {
        let bytes = common(ch(pdu_type, flags, 24, 24, 24));
        refused(ready, &bytes, InvalidPduHeaderField, 1);
    }
    // Digests that were negotiated and are not there.
    for (pdu_type, flags) in [(5, 0), (9, 0), (7, 1), (7, 2), (7, 4)] {
        let bytes = common(ch(pdu_type, flags, 24, 28, 40));
        refused(|| busy(Terms::DIGESTS), &bytes, InvalidPduHeaderField, 1);
    }
}

#[test]
fn success_without_last_pdu_is_an_invalid_field_at_byte_1() {
    refused(ready, &common(ch(7, 8, 24, 24, 28)), InvalidPduHeaderField, 1);
}

#[test]
fn a_wrong_pdo_is_an_invalid_field_at_byte_3() {
    for pdo in [0, 20, 23, 25] {
        refused(ready, &common(ch(7, 0, 24, pdo, 100)), InvalidPduHeaderField, 3);
    }
    let aligned = || busy(Terms { hpda: 31, ..PLAIN });
    for pdo in [24, 64, 132] {
        refused(aligned, &common(ch(7, 0, 24, pdo, 4096)), InvalidPduHeaderField, 3);
    }
}

#[test]
fn a_wrong_plen_is_an_invalid_field_at_byte_4() {
    for (pdu_type, plen) in [(5, 23), (5, 28), (9, 0), (9, 25), (7, 24), (7, 0)] {
        refused(ready, &common(ch(pdu_type, 0, 24, 24, plen)), InvalidPduHeaderField, 4);
    }
    refused(fresh, &common(ch(1, 0, 128, 0, 129)), InvalidPduHeaderField, 4);
}

// ---- Sequence ----

#[test]
fn anything_before_icresp_is_a_sequence_error() {
    for pdu_type in [5, 7, 9] {
        refused(fresh, &common(ch(pdu_type, 0, 24, 24, 24)), PduSequenceError, 0);
    }
}

#[test]
fn a_second_icresp_is_a_sequence_error() {
    refused(ready, IcResp::new(0, 0, 4096).as_bytes(), PduSequenceError, 0);
}

#[test]
fn data_after_last_pdu_is_a_sequence_error() {
    let done = || {
        let mut machine = ready();
        receive(&mut machine, &c2h(4, 1, 0, 1000));
        machine
    };
    refused(done, c2h(4, 1, 1000, 1000).as_bytes(), PduSequenceError, 0);
}

// ---- ICResp ----

#[test]
fn another_pdu_format_version_is_an_unsupported_parameter_at_byte_8() {
    let mut response = IcResp::new(0, 0, 4096);
    response.pfv = 0x100.into();
    refused(fresh, response.as_bytes(), UnsupportedParameter, 8);
}

#[test]
fn an_alignment_beyond_31_is_an_invalid_field_at_byte_10() {
    refused(fresh, IcResp::new(32, 0, 4096).as_bytes(), InvalidPduHeaderField, 10);
}

#[test]
fn a_digest_not_asked_for_is_an_invalid_field_at_byte_11() {
    for dgst in [1, 2, 3, 4] {
        refused(fresh, IcResp::new(0, dgst, 4096).as_bytes(), InvalidPduHeaderField, 11);
    }
    let header_only = || Terms { hdgst: true, ..PLAIN }.host();
    refused(header_only, IcResp::new(0, 2, 4096).as_bytes(), InvalidPduHeaderField, 11);
}

#[test]
fn a_wrong_maxh2cdata_is_an_invalid_field_at_byte_12() {
    for maxh2cdata in [0, 4092, 4097] {
        let response = IcResp::new(0, 0, maxh2cdata);
        refused(fresh, response.as_bytes(), InvalidPduHeaderField, 12);
    }
}

#[test]
fn a_controller_may_decline_digests() {
    let mut machine = Terms::DIGESTS.host();
    let step = machine.next(IcResp::new(0, 0, 4096).as_bytes()).map(|_| ());
    assert_eq!(step, Ok(()));
    assert!(!machine.data_digest());
    assert_eq!(machine.capsule_cmd(&sqe(FLUSH, 0, 0), 0).len(), 72);
}

// ---- Response capsules ----

fn response(terms: Terms, cid: u16) -> Vec<u8> {
    let (flags, plen) = if terms.hdgst { (1, 28) } else { (0, 24) };
    let cqe = Cqe::new(cid, Status::SUCCESS);
    pdu(terms, &[ch(5, flags, 24, 0, plen).as_bytes(), cqe.as_bytes()].concat(), &[])
}

#[test]
fn a_response_to_no_command_is_an_invalid_field_at_byte_20() {
    for cid in [0, 4, 8, 0xffff] {
        refused(ready, &response(PLAIN, cid), InvalidPduHeaderField, 20);
    }
}

#[test]
fn a_second_response_is_an_invalid_field_at_byte_20() {
    let answered = || {
        let mut machine = ready();
        assert!(matches!(
            machine.next(&response(PLAIN, 3)),
            Ok(Step::Event { consumed: 24, event: Event::Response { .. } })
        ));
        machine
    };
    refused(answered, &response(PLAIN, 3), InvalidPduHeaderField, 20);
}

#[test]
fn a_damaged_response_is_a_header_digest_error_with_the_digest_received() {
    let mut bytes = response(Terms::DIGESTS, 3);
    let digest = u32::from_le_bytes(bytes[24..].try_into().unwrap()) ^ 1;
    bytes[24] ^= 1;
    refused(|| busy(Terms::DIGESTS), &bytes, HeaderDigestError, digest);
}

// ---- R2T ----

fn r2t(cid: u16, offset: u32, length: u32) -> Vec<u8> {
    let header = R2t {
        ch: ch(9, 0, 24, 0, 24),
        cccid: cid.into(),
        ttag: 77.into(),
        r2to: offset.into(),
        r2tl: length.into(),
        reserved: [0; 4],
    };
    header.as_bytes().to_vec()
}

#[test]
fn an_r2t_for_no_command_is_an_invalid_field_at_byte_8() {
    for cid in [0, 4, 9, 0xffff] {
        refused(ready, &r2t(cid, 0, 512), InvalidPduHeaderField, 8);
    }
}

#[test]
fn an_r2t_beyond_the_commands_data_is_out_of_range() {
    for (cid, offset, length) in
        [(2, 0, 4001), (2, 4000, 1), (2, u32::MAX, 2), (1, 0, 4), (3, 0, 4)]
    {
        refused(ready, &r2t(cid, offset, length), DataTransferOutOfRange, 0);
    }
}

#[test]
fn an_r2t_for_data_that_went_in_the_capsule_is_out_of_range() {
    let in_capsule = || {
        let mut machine = PLAIN.ready_host();
        machine.capsule_cmd(&sqe(WRITE, 0, 512), 512);
        machine
    };
    refused(in_capsule, &r2t(0, 0, 512), DataTransferOutOfRange, 0);
}

#[test]
fn an_r2t_out_of_order_is_an_invalid_field_at_byte_12() {
    refused(ready, &r2t(2, 512, 512), InvalidPduHeaderField, 12);
}

#[test]
fn an_r2t_for_nothing_is_an_invalid_field_at_byte_16() {
    refused(ready, &r2t(2, 0, 0), InvalidPduHeaderField, 16);
}

#[test]
fn more_r2ts_than_maxr2t_exceed_the_r2t_limit() {
    let asked = || {
        let mut machine = ready();
        let event = Event::ReadyToTransfer { cid: 2, ttag: 77, offset: 0, length: 1000 };
        assert_eq!(machine.next(&r2t(2, 0, 1000)), Ok(Step::Event { consumed: 24, event }));
        machine
    };
    refused(asked, &r2t(2, 1000, 1000), LimitExceeded, 0);
    // Not before the last H2CData of the first has gone.
    let half_answered = || {
        let mut machine = asked();
        machine.h2c_data(2, 77, 0, 500, false);
        machine
    };
    refused(half_answered, &r2t(2, 1000, 1000), LimitExceeded, 0);
    let mut machine = half_answered();
    machine.h2c_data(2, 77, 500, 500, true);
    assert!(matches!(machine.next(&r2t(2, 1000, 3000)), Ok(Step::Event { .. })));
}

#[test]
fn as_many_r2ts_as_maxr2t_are_fine() {
    let mut machine =
        Machine::new(Config { hpda: 0, maxr2t: 3, hdgst: false, ddgst: false, commands: 8 });
    assert_eq!(machine.ic_req()[12..16], [2, 0, 0, 0]);
    assert!(machine.next(IcResp::new(0, 0, MAXH2CDATA).as_bytes()).is_ok());
    machine.capsule_cmd(&sqe(WRITE, 2, 4000), 0);
    for i in 0..3 {
        assert!(matches!(machine.next(&r2t(2, i * 1000, 1000)), Ok(Step::Event { .. })));
    }
    assert_eq!(machine.next(&r2t(2, 3000, 1000)).unwrap_err().fes, LimitExceeded);
}

// ---- C2HData ----

fn c2h(flags: u8, cid: u16, datao: u32, datal: u32) -> C2hData {
    C2hData {
        ch: ch(7, flags, 24, 24, 24 + datal),
        cccid: cid.into(),
        reserved10: [0; 2],
        datao: datao.into(),
        datal: datal.into(),
        reserved20: [0; 4],
    }
}

/// Has the machine receive a whole PDU without digests, and gives its end.
fn receive(machine: &mut Machine, header: &C2hData) -> Event<'static> {
    let data = pattern(header.datao.get(), header.datal.get());
    let bytes = [header.as_bytes(), &data].concat();
    let event = Event::Data { cid: header.cccid.get(), offset: header.datao.get(), bytes: &data };
    assert_eq!(machine.next(&bytes), Ok(Step::Event { consumed: bytes.len(), event }));
    match machine.next(&[]) {
        Ok(Step::Event { consumed: 0, event }) => event,
        other => panic!("{other:?}"),
    }
}

#[test]
fn data_for_no_command_is_an_invalid_field_at_byte_8() {
    for cid in [0, 4, 8, 0xffff] {
        refused(ready, c2h(0, cid, 0, 1000).as_bytes(), InvalidPduHeaderField, 8);
    }
}

#[test]
fn data_beyond_what_the_command_asked_for_is_out_of_range() {
    for (cid, offset, length) in
        [(1, 0, 4001), (1, 4000, 1), (1, u32::MAX, 2), (2, 0, 4), (3, 0, 4)]
    {
        refused(ready, c2h(0, cid, offset, length).as_bytes(), DataTransferOutOfRange, 0);
    }
}

#[test]
fn data_out_of_order_is_an_invalid_field_at_byte_12() {
    refused(ready, c2h(0, 1, 4, 1000).as_bytes(), InvalidPduHeaderField, 12);
    let started = || {
        let mut machine = ready();
        receive(&mut machine, &c2h(0, 1, 0, 1000));
        machine
    };
    refused(started, c2h(0, 1, 0, 1000).as_bytes(), InvalidPduHeaderField, 12);
    refused(started, c2h(4, 1, 2000, 2000).as_bytes(), InvalidPduHeaderField, 12);
}

#[test]
fn a_data_length_that_is_not_plens_is_an_invalid_field_at_byte_4() {
    let mut header = c2h(0, 1, 0, 1000);
    header.ch.plen = 1025.into();
    let fatal = refused(ready, header.as_bytes(), InvalidPduHeaderField, 4);
    assert_eq!(term_req(&fatal, header.as_bytes())[24..], *header.as_bytes());
}

#[test]
fn a_data_length_of_0_is_an_invalid_field_at_byte_16() {
    let mut header = c2h(0, 1, 0, 1000);
    header.datal = 0.into();
    refused(ready, header.as_bytes(), InvalidPduHeaderField, 16);
}

#[test]
fn success_completes_the_command_and_frees_its_identifier() {
    let mut machine = ready();
    assert_eq!(
        receive(&mut machine, &c2h(12, 1, 0, 4000)),
        Event::DataEnd { cid: 1, last: true, success: true, complete: true, digest_ok: true }
    );
    let again: Sqe = sqe(READ, 1, 512);
    machine.capsule_cmd(&again, 0);
    refused(
        || {
            let mut machine = ready();
            receive(&mut machine, &c2h(12, 1, 0, 4000));
            machine
        },
        &response(PLAIN, 1),
        InvalidPduHeaderField,
        20,
    );
}

#[test]
fn success_with_data_missing_is_seen_as_a_short_answer() {
    assert_eq!(
        receive(&mut ready(), &c2h(12, 1, 0, 3999)),
        Event::DataEnd { cid: 1, last: true, success: true, complete: false, digest_ok: true }
    );
}

#[test]
fn a_wrong_data_digest_is_remembered_until_the_command_is_complete() {
    let mut machine = busy(Terms { ddgst: true, ..PLAIN });
    for (offset, flags, damage) in [(0, 2, 1), (2000, 6, 0)] {
        let mut header = c2h(flags, 1, offset, 2000);
        header.ch.plen = 2028.into();
        let data = pattern(offset, 2000);
        let mut digest = ddgst(&data);
        digest[0] ^= damage;
        let bytes = [header.as_bytes(), &data, &digest].concat();
        assert!(matches!(machine.next(&bytes), Ok(Step::Event { consumed: 2024, .. })));
        let last = offset == 2000;
        let event =
            Event::DataEnd { cid: 1, last, success: false, complete: last, digest_ok: false };
        assert_eq!(machine.next(&bytes[2024..]), Ok(Step::Event { consumed: 4, event }));
    }
    assert!(matches!(machine.next(&response(PLAIN, 1)), Ok(Step::Event { .. })));
}

#[test]
fn data_received_in_place_counts_like_data_received_through_the_buffer() {
    let mut machine = busy(Terms { ddgst: true, ..PLAIN });
    let mut header = c2h(14, 1, 0, 4000);
    header.ch.plen = 4028.into();
    let data = pattern(0, 4000);
    assert_eq!(machine.next(header.as_bytes()), Ok(Step::NeedMore { consumed: 24, at_least: 1 }));
    assert_eq!(machine.direct(), Some(Direct { cid: 1, offset: 0, remaining: 4000 }));
    machine.advance_direct(&data[..100]);
    assert_eq!(machine.direct(), Some(Direct { cid: 1, offset: 100, remaining: 3900 }));
    machine.advance_direct(&data[100..]);
    assert_eq!(machine.direct(), None);
    assert_eq!(machine.next(&[]), Ok(Step::NeedMore { consumed: 0, at_least: 4 }));
    let event =
        Event::DataEnd { cid: 1, last: true, success: true, complete: true, digest_ok: true };
    assert_eq!(machine.next(&ddgst(&data)), Ok(Step::Event { consumed: 4, event }));
}

// ---- Terminate requests ----

#[test]
fn a_terminate_request_is_understood_in_any_state() {
    let request =
        TermReq { ch: ch(3, 0, 24, 0, 24), fes: 0x99.into(), fei: 0.into(), reserved: [0; 10] };
    for make in [fresh, || busy(Terms::DIGESTS)] {
        match make().next(request.as_bytes()) {
            Ok(Step::Event { consumed: 24, event: Event::Terminated(terminated) }) => {
                assert!(terminated.header.is_empty());
                assert_eq!(terminated.to_string(), "reserved fatal error status 0x0099");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_malformed_terminate_request_is_fatal_and_not_answered() {
    for (hlen, plen) in [(128, 24), (24, 8), (24, 153)] {
        let bytes = common(ch(3, 0, hlen, 0, plen));
        let fatal = ready().next(&bytes).unwrap_err();
        assert!(!fatal.answer && term_req(&fatal, &bytes).is_empty());
    }
}

// ---- What the host sends ----

#[test]
fn a_fabrics_command_has_its_direction_in_fctype() {
    let mut machine = PLAIN.ready_host();
    // FCTYPE 01h, Connect, carries data to the controller; 04h, Property Get, none.
    let mut connect = sqe(0x7f, 0, 1024);
    connect.nsid = 1.into();
    machine.capsule_cmd(&connect, 0);
    assert!(matches!(machine.next(&r2t(0, 0, 1024)), Ok(Step::Event { .. })));
    let refused = machine.next(c2h(4, 0, 0, 1024).as_bytes()).unwrap_err();
    assert_eq!(refused.fes, DataTransferOutOfRange);
}

#[test]
#[should_panic(expected = "command identifier 1 is in use")]
fn a_command_identifier_is_not_used_twice_at_once() {
    ready().capsule_cmd(&sqe(READ, 1, 512), 0);
}
