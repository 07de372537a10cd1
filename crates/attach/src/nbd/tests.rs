//! The machines alone: any split of a client's bytes leads to the same.

use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use super::export::Export;
use super::handshake::{Handshake, Refused, Settled, Step, Style};
use super::reply::Reply;
use super::request::{self, Broken, Command, Requests};
use super::wire::*;
use crate::disk::{Errno, Refusal, Span};

mod server;

fn export() -> Export {
    Export {
        name: "db".to_owned(),
        description: "a disk".to_owned(),
        size: 1 << 30,
        block_bytes: 4096,
        preferred_bytes: 8192,
        read_only: false,
        trim: true,
        fast_zero: true,
    }
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).unwrap();
    let head =
        OptionHead { magic: OPTION_MAGIC.into(), option: option.into(), length: length.into() };
    [head.as_bytes(), data].concat()
}

/// `NBD_OPT_INFO` and `NBD_OPT_GO`'s data.
fn info(name: &str, kinds: &[u16]) -> Vec<u8> {
    let mut data = u32::try_from(name.len()).unwrap().to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&u16::try_from(kinds.len()).unwrap().to_be_bytes());
    kinds.iter().for_each(|kind| data.extend_from_slice(&kind.to_be_bytes()));
    data
}

fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
    let counted =
        |text: &str| [&u32::try_from(text.len()).unwrap().to_be_bytes(), text.as_bytes()].concat();
    let mut data = counted(name);
    data.extend_from_slice(&u32::try_from(queries.len()).unwrap().to_be_bytes());
    queries.iter().for_each(|query| data.extend_from_slice(&counted(query)));
    data
}

const FLAGS: [u8; 4] = 3u32.to_be_bytes();

/// What came of a negotiation, and the bytes left behind it.
#[derive(Debug, PartialEq)]
enum End {
    Waiting,
    Begun(Settled, Vec<u8>),
    Closed(Refused),
}

/// Negotiates with a client's bytes in pieces of the lengths `cuts`; what was answered, and the end.
fn negotiate(stream: &[u8], cuts: impl IntoIterator<Item = usize>) -> (Vec<u8>, End) {
    let (mut handshake, mut out, mut held) = (Handshake::default(), Vec::new(), Vec::new());
    let mut rest = stream;
    for cut in cuts {
        let (fresh, later) = rest.split_at(cut.min(rest.len()));
        held.extend_from_slice(fresh);
        rest = later;
        loop {
            match handshake.next(&held, &export(), &mut out) {
                Step::NeedMore { consumed } => {
                    held.drain(..consumed);
                    break;
                }
                Step::Next { consumed } => drop(held.drain(..consumed)),
                Step::Begin { consumed, settled } => {
                    held.drain(..consumed);
                    held.extend_from_slice(rest);
                    return (out, End::Begun(settled, held));
                }
                Step::Close(why) => return (out, End::Closed(why)),
            }
        }
        if rest.is_empty() {
            break;
        }
    }
    (out, End::Waiting)
}

/// The replies to options: which option, what kind, what data.
fn replies(mut out: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut replies = Vec::new();
    while let Ok((head, rest)) = OptionReply::ref_from_prefix(out) {
        assert_eq!(head.magic.get(), OPTION_REPLY_MAGIC);
        let (data, rest) = rest.split_at(usize::try_from(head.length.get()).unwrap());
        replies.push((head.option.get(), head.kind.get(), data.to_vec()));
        out = rest;
    }
    assert!(out.is_empty(), "{out:?}");
    replies
}

fn ask(options: &[Vec<u8>]) -> (Vec<(u32, u32, Vec<u8>)>, End) {
    let (out, end) = negotiate(&[&FLAGS[..], &options.concat()].concat(), [usize::MAX]);
    (replies(&out), end)
}

#[test]
fn a_client_learns_all_it_asks_for_and_goes() {
    let kinds = [info::BLOCK_SIZE, info::NAME, info::DESCRIPTION, info::NAME, 77];
    let (replies, end) = ask(&[
        option(option::STRUCTURED_REPLY, &[]),
        option(option::SET_META_CONTEXT, &contexts("", &["x:y", BASE_ALLOCATION])),
        option(option::GO, &info("db", &kinds)),
        b"request".to_vec(),
    ]);
    let settled = Settled { style: Style::Structured, allocation: true, constrained: true };
    assert_eq!(end, End::Begun(settled, b"request".to_vec()));
    let kinds: Vec<_> = replies.iter().map(|(_, kind, _)| *kind).collect();
    let of_go = [reply::INFO, reply::INFO, reply::INFO, reply::INFO, reply::ACK];
    assert_eq!(kinds[..3], [reply::ACK, reply::META_CONTEXT, reply::ACK]);
    assert_eq!(kinds[3..], of_go);
    assert_eq!(replies[3].2[..10], [&[0, 0][..], &(1u64 << 30).to_be_bytes()].concat());
    let sizes = InfoBlockSize::ref_from_bytes(&replies[6].2).unwrap();
    assert_eq!((sizes.minimum.get(), sizes.preferred.get()), (4096, 8192));
}

#[test]
fn the_oldest_way_to_an_export_works() {
    for (flags, zeroes) in [(1u32, 124), (3, 0)] {
        let stream = [&flags.to_be_bytes()[..], &option(option::EXPORT_NAME, b"")].concat();
        let (out, end) = negotiate(&stream, [usize::MAX]);
        assert_eq!(end, End::Begun(Settled::default(), Vec::new()));
        assert_eq!(out.len(), 10 + zeroes);
    }
    let (_, end) = ask(&[option(option::EXPORT_NAME, b"other")]);
    assert_eq!(end, End::Closed(Refused::Unknown));
}

#[test]
fn what_is_wrong_with_an_option_is_said() {
    let long = vec![0; crate::limits::OPTION_BYTES_MAX + 1];
    let mut miscounted = contexts("db", &["base:allocation"]);
    miscounted[9] = 9;
    for (asked, data, kind) in [
        (option::STARTTLS, &b""[..], reply::ERR_UNSUP),
        (option::STARTTLS, b"x", reply::ERR_INVALID),
        (option::LIST, b"x", reply::ERR_INVALID),
        (option::STRUCTURED_REPLY, b"x", reply::ERR_INVALID),
        (option::INFO, b"", reply::ERR_INVALID),
        (option::GO, &info("other", &[]), reply::ERR_UNKNOWN),
        (option::GO, &info("db", &[1, 2])[..8], reply::ERR_INVALID),
        (option::SET_META_CONTEXT, &contexts("db", &[]), reply::ERR_INVALID),
        (option::LIST_META_CONTEXT, &miscounted, reply::ERR_INVALID),
        (4711, b"whatever", reply::ERR_UNSUP),
        (option::INFO, &long, reply::ERR_TOO_BIG),
    ] {
        // The negotiation goes on.
        let (replies, end) = ask(&[option(asked, data), option(option::ABORT, &[])]);
        let kinds: Vec<_> = replies.iter().map(|reply| (reply.0, reply.1)).collect();
        assert_eq!(kinds, [(asked, kind), (option::ABORT, reply::ACK)]);
        assert_eq!(end, End::Closed(Refused::Aborted));
    }
    let (replies, end) =
        ask(&[option(option::EXTENDED_HEADERS, &[]), option(option::STRUCTURED_REPLY, &[])]);
    assert_eq!(replies[1].1, reply::ERR_EXT_HEADER_REQD);
    assert_eq!(end, End::Waiting);
}

#[test]
fn what_is_no_option_ends_the_negotiation() {
    assert_eq!(negotiate(&[0, 0, 0, 8], [9]).1, End::Closed(Refused::Flags(8)));
    assert_eq!(ask(&[vec![1; 16]]).1, End::Closed(Refused::Magic(0x0101_0101_0101_0101)));
    let mut huge = option(option::INFO, &[]);
    huge[12] = 0xff;
    assert_eq!(ask(&[huge]).1, End::Closed(Refused::TooBig(0xff00_0000)));
}

#[test]
fn a_context_is_listed_and_is_gone_after_a_set_that_names_none() {
    let go = option(option::GO, &info("", &[]));
    let structured = option(option::STRUCTURED_REPLY, &[]);
    for (queries, found) in [(&[][..], 1), (&["base:"][..], 1), (&["qemu:"][..], 0)] {
        let list = option(option::LIST_META_CONTEXT, &contexts("db", queries));
        let (replies, _) = ask(&[structured.clone(), list]);
        assert_eq!(replies.iter().filter(|r| r.1 == reply::META_CONTEXT).count(), found);
    }
    let set = |queries| option(option::SET_META_CONTEXT, &contexts("db", queries));
    let (_, end) = ask(&[structured, set(&[BASE_ALLOCATION]), set(&["base:"]), go]);
    let End::Begun(settled, _) = end else { panic!("{end:?}") };
    assert!(!settled.allocation);
}

fn compact(command: u16, flags: u16, offset: u64, length: u32) -> Vec<u8> {
    let head = CompactRequest {
        magic: REQUEST_MAGIC.into(),
        flags: flags.into(),
        command: command.into(),
        cookie: 7.into(),
        offset: offset.into(),
        length: length.into(),
    };
    head.as_bytes().to_vec()
}

/// What a request is taken for.
fn judged(settled: Settled, export: &Export, bytes: &[u8]) -> Result<Command, Errno> {
    let step = Requests::new(settled).next(bytes, export).unwrap();
    let request::Step::Request { consumed, request } = step else { panic!("{step:?}") };
    assert_eq!((consumed, request.cookie), (bytes.len(), 7));
    request.what.map_err(|refusal| refusal.errno)
}

#[test]
fn requests_that_cannot_be_are_refused_with_the_error_that_says_why() {
    use command as c;
    let plain = Settled::default();
    let told = Settled { constrained: true, ..plain };
    let (end, reader) = (1 << 30, Export { read_only: true, ..export() });
    for (settled, export, bytes, errno) in [
        (plain, export(), compact(c::READ, 0, end, 1), Errno::Invalid),
        (plain, export(), compact(c::READ, 0, u64::MAX, 1), Errno::Invalid),
        (plain, export(), compact(c::READ, 0, 0, (32 << 20) + 1), Errno::Invalid),
        (plain, export(), compact(c::READ, flag::NO_HOLE, 0, 1), Errno::Invalid),
        (plain, export(), compact(c::WRITE, 0, end - 1, 2), Errno::NoSpace),
        (plain, export(), compact(c::WRITE, flag::PAYLOAD_LEN, 0, 1), Errno::Invalid),
        (plain, export(), compact(c::WRITE_ZEROES, 0, 0, u32::MAX), Errno::NoSpace),
        (plain, export(), compact(c::TRIM, 0, end, 4096), Errno::Invalid),
        (plain, export(), compact(c::BLOCK_STATUS, 0, 0, 4096), Errno::Invalid),
        (plain, export(), compact(5, 0, 0, 4096), Errno::Invalid),
        (plain, export(), compact(c::FLUSH, flag::DF, 0, 0), Errno::Invalid),
        (told, export(), compact(c::READ, 0, 512, 4096), Errno::Invalid),
        (told, export(), compact(c::WRITE, 0, 0, 512), Errno::Invalid),
        (plain, reader.clone(), compact(c::WRITE, 0, 0, 4096), Errno::Perm),
        (plain, reader.clone(), compact(c::TRIM, 0, 0, 4096), Errno::Perm),
        (plain, reader, compact(c::WRITE_ZEROES, 0, 0, 4096), Errno::Perm),
    ] {
        assert_eq!(judged(settled, &export, &bytes), Err(errno), "{bytes:?}");
    }
    let wrong = Requests::new(plain).next(&[1; 4], &export());
    assert_eq!(wrong, Err(Broken::Magic(0x0101_0101)));
    let huge = Requests::new(plain).next(&compact(c::WRITE, 0, 0, u32::MAX), &export());
    assert_eq!(huge, Err(Broken::TooBig(u32::MAX.into())));
}

#[test]
fn requests_are_taken_for_what_they_are() {
    let settled = Settled { allocation: true, ..Settled::default() };
    let span = Span { offset: 4096, length: 512 };
    for (command, flags, expected) in [
        (command::READ, 0, Command::Read { span, whole: false }),
        (command::READ, flag::DF, Command::Read { span, whole: true }),
        (command::WRITE, flag::FUA, Command::Write { span, fua: true }),
        (command::TRIM, flag::FUA, Command::Trim { span, fua: true }),
        (command::FLUSH, 0, Command::Flush),
        (command::DISCONNECT, 0, Command::Disconnect),
        (command::BLOCK_STATUS, flag::REQ_ONE, Command::BlockStatus { span }),
        (
            command::WRITE_ZEROES,
            flag::FAST_ZERO | flag::NO_HOLE,
            Command::WriteZeroes { span, fua: false, no_hole: true, fast: true },
        ),
    ] {
        assert_eq!(judged(settled, &export(), &compact(command, flags, 4096, 512)), Ok(expected));
    }
}

#[test]
fn replies_are_laid_out_as_negotiated() {
    let written = |style, f: fn(Reply, &mut Vec<u8>)| {
        let mut out = Vec::new();
        f(Reply { style, cookie: 7, offset: 4096 }, &mut out);
        out
    };
    let done = |style| written(style, |reply, out| reply.done(|b| out.extend_from_slice(b)));
    assert_eq!(done(Style::Simple), [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    assert_eq!((done(Style::Structured).len(), done(Style::Extended).len()), (16, 32));
    let why = Refusal { errno: Errno::NoSpace, words: "full" };
    assert_eq!(why.words.len(), 4);
    let failed = |style| {
        written(style, |reply, out| {
            let why = Refusal { errno: Errno::NoSpace, words: "full" };
            reply.failed(why, |b| out.extend_from_slice(b));
        })
    };
    assert_eq!(failed(Style::Simple)[4..8], [0, 0, 0, 28]);
    assert_eq!(failed(Style::Structured)[16..], *b"\0\0\0\x0a\0\0\0\x1c\0\x04full");
    assert_eq!(failed(Style::Extended)[24..], *b"\0\0\0\0\0\0\0\x0a\0\0\0\x1c\0\x04full");
    let data = |style| {
        written(style, |reply, out| {
            let part = Span { offset: 8192, length: 512 };
            reply.data(part, true, |b| out.extend_from_slice(b));
        })
    };
    assert_eq!(data(Style::Simple).len(), 0);
    assert_eq!(data(Style::Structured)[16..], *b"\0\0\x02\x08\0\0\0\0\0\0\x20\0");
    assert_eq!(data(Style::Extended).len(), 40);
}

fn options() -> impl Strategy<Value = Vec<u8>> {
    let data = proptest::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        (0u32..13, data).prop_map(|(kind, data)| option(kind, &data)),
        Just(option(option::STRUCTURED_REPLY, &[])),
        Just(option(option::EXTENDED_HEADERS, &[])),
        Just(option(option::SET_META_CONTEXT, &contexts("db", &[BASE_ALLOCATION]))),
        Just(option(option::INFO, &info("db", &[1, 2, 3]))),
        Just(option(option::INFO, &vec![0; 20_000])),
    ]
}

fn requests() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![0u32..5000, any::<u32>()];
    (0u16..10, any::<u8>(), 0u64..1 << 31, length).prop_map(|(command, flags, offset, length)| {
        let mut bytes = compact(command, u16::from(flags), offset, length);
        if command == command::WRITE && length < 5000 {
            bytes.resize(bytes.len() + usize::try_from(length).unwrap(), 0xaa);
        }
        bytes
    })
}

/// The requests in a stream that comes in pieces of the lengths `cuts`.
fn transmit(stream: &[u8], cuts: impl IntoIterator<Item = usize>) -> Vec<String> {
    let mut requests = Requests::new(Settled { allocation: true, ..Settled::default() });
    let (mut seen, mut held, mut rest) = (Vec::new(), Vec::new(), stream);
    let mut data = 0;
    for cut in cuts {
        let (fresh, later) = rest.split_at(cut.min(rest.len()));
        held.extend_from_slice(fresh);
        rest = later;
        loop {
            let payload = usize::try_from(requests.payload()).unwrap().min(held.len());
            data += payload;
            requests.advance(payload);
            held.drain(..payload);
            if requests.payload() > 0 {
                break;
            }
            match requests.next(&held, &export()) {
                Ok(request::Step::NeedMore { consumed }) => {
                    held.drain(..consumed);
                    break;
                }
                Ok(request::Step::Request { consumed, request }) => {
                    held.drain(..consumed);
                    seen.push(format!("{data} {request:?}"));
                }
                Err(broken) => {
                    seen.push(format!("{data} {broken}"));
                    return seen;
                }
            }
        }
        if rest.is_empty() {
            break;
        }
    }
    seen.push(format!("{data} in all"));
    seen
}

proptest! {
    #[test]
    fn any_split_of_options_is_answered_alike(
        options in proptest::collection::vec(options(), 0..8),
        go in any::<bool>(),
        cuts in proptest::collection::vec(1usize..50, 1..8),
    ) {
        let mut stream = [&FLAGS[..], &options.concat()].concat();
        if go {
            stream.extend_from_slice(&option(option::GO, &info("", &[3])));
        }
        let whole = negotiate(&stream, [usize::MAX]);
        prop_assert_eq!(whole, negotiate(&stream, cuts.into_iter().cycle()));
    }

    #[test]
    fn any_split_of_requests_is_understood_alike(
        requests in proptest::collection::vec(requests(), 0..8),
        cuts in proptest::collection::vec(1usize..50, 1..8),
    ) {
        let stream = requests.concat();
        prop_assert_eq!(transmit(&stream, [usize::MAX]), transmit(&stream, cuts.into_iter().cycle()));
    }

    #[test]
    fn no_bytes_are_too_odd(
        stream in proptest::collection::vec(any::<u8>(), 0..300),
        cuts in proptest::collection::vec(1usize..50, 1..8),
    ) {
        prop_assert_eq!(
            negotiate(&stream, [usize::MAX]),
            negotiate(&stream, cuts.iter().copied().cycle())
        );
        prop_assert_eq!(transmit(&stream, [usize::MAX]), transmit(&stream, cuts.into_iter().cycle()));
    }
}
