use proptest::prelude::*;
use zerocopy::FromZeros;

use super::*;
use crate::refusal::Location;
use crate::status::Status;

fn any_sqe() -> impl Strategy<Value = Sqe> {
    any::<[u8; 64]>().prop_map(|bytes| {
        Sqe::read_from_bytes(&bytes).unwrap_or_else(|_| unreachable!("64 bytes are an entry"))
    })
}

/// An entry that gets through the checks of the flags, of every opcode there is.
fn plausible_sqe() -> impl Strategy<Value = Sqe> {
    (any_sqe(), prop::sample::select(io::ALL), any::<u32>(), any::<bool>()).prop_map(
        |(mut sqe, (opcode, _), mask, sparse)| {
            sqe.opcode = opcode;
            sqe.flags = 0x40;
            if sparse {
                sqe.cdw10 = (sqe.cdw10.get() & mask & 0xff0f).into();
                sqe.cdw11 = (sqe.cdw11.get() & 7).into();
                sqe.cdw12 = (sqe.cdw12.get() & 0xff00_ffff).into();
            }
            sqe
        },
    )
}

proptest! {
    #[test]
    fn any_bytes_are_a_command_or_a_refusal(sqe in any_sqe()) {
        match Command::parse(&sqe) {
            Ok(command) => prop_assert!(io::known(sqe.opcode).is_some(), "{command:?}"),
            Err(refusal) => {
                prop_assert!(refusal.location.byte < 64 && refusal.location.bit < 8);
                prop_assert!(!refusal.status().is_success() && refusal.status().dnr());
                prop_assert!(!refusal.to_string().is_empty());
            }
        }
    }

    #[test]
    fn a_command_made_of_any_fields_holds_what_they_say(sqe in plausible_sqe()) {
        let Ok(command) = Command::parse(&sqe) else { return Ok(()) };
        if let Some(range) = command.range() {
            let start = u64::from(sqe.cdw11.get()) << 32 | u64::from(sqe.cdw10.get());
            prop_assert_eq!(range.start().get(), start);
            prop_assert_eq!(range.blocks(), (sqe.cdw12.get() & 0xffff) + 1);
        }
        let cid = sqe.cid.get();
        let nsid = sqe.nsid.get();
        let again = match command {
            Command::Read(read) => read.to_sqe(cid, nsid),
            Command::Write(write) => write.to_sqe(cid, nsid),
            Command::Compare(compare) => compare.to_sqe(cid, nsid),
            Command::Verify(verify) => verify.to_sqe(cid, nsid),
            Command::WriteZeroes(zeroes) => zeroes.to_sqe(cid, nsid),
            Command::DatasetManagement(dsm) => dsm.to_sqe(cid, nsid),
            Command::Copy(copy) => copy.to_sqe(cid, nsid),
            _ => return Ok(()),
        };
        prop_assert_eq!(Command::parse(&again), Ok(command));
    }

    #[test]
    fn a_range_is_in_a_namespace_exactly_when_wide_arithmetic_says_so(
        start in prop_oneof![any::<u64>(), Just(u64::MAX), 0..10u64],
        blocks in 1..=u32::MAX,
        capacity in prop_oneof![any::<u64>(), Just(u64::MAX), 0..20u64],
    ) {
        let range = LbaRange::new(Lba::new(start), blocks).unwrap();
        let within = u128::from(start) + u128::from(blocks) <= u128::from(capacity);
        prop_assert_eq!(range.check(capacity).is_ok(), within);
    }

    #[test]
    fn overlap_is_symmetric_and_exact(a in 0..20u64, n in 1..10u32, b in 0..20u64, m in 1..10u32) {
        let (x, y) = (
            LbaRange::new(Lba::new(a), n).unwrap(),
            LbaRange::new(Lba::new(b), m).unwrap(),
        );
        let common = (a..a + u64::from(n)).any(|lba| (b..b + u64::from(m)).contains(&lba));
        prop_assert_eq!(x.overlaps(y), common);
        prop_assert_eq!(y.overlaps(x), common);
    }

    #[test]
    fn ranges_of_any_data_are_read_or_refused(
        nr in any::<u8>(),
        raw_format in 0..4u8,
        data in prop::collection::vec(any::<u8>(), 0..11_000),
    ) {
        let ranges = ZeroBased8::from_raw(nr);
        let dsm = DatasetManagement {
            ranges, integral_read: false, integral_write: false, deallocate: true,
        };
        match dsm.ranges(&data) {
            Ok(found) => prop_assert_eq!(found.len(), usize::from(nr) + 1),
            Err(refusal) => {
                prop_assert!(data.len() < dsm.data_bytes());
                prop_assert!(refusal.status().is(Status::DATA_SGL_LENGTH_INVALID));
            }
        }
        let format = CopyFormat::from_raw(raw_format).unwrap();
        let copy = Copy {
            destination: Lba::new(0), ranges, format, fua: false, limited_retry: false,
        };
        match copy.sources(&data) {
            Ok(found) => {
                prop_assert_eq!(found.len(), usize::from(nr) + 1);
                for source in found {
                    prop_assert_eq!(source.nsid.is_some(), format.names_namespace());
                }
            }
            Err(refusal) if refusal.reason == Reason::Length => {
                prop_assert!(data.len() < copy.data_bytes());
            }
            Err(refusal) => prop_assert_eq!(refusal.reason, Reason::Value),
        }
    }
}

fn read() -> Sqe {
    let range = LbaRange::new(Lba::new(8), 8).unwrap();
    Read { range, fua: false, limited_retry: false }.to_sqe(7, 1)
}

#[test]
fn an_entry_as_the_linux_host_sends_it_is_read() {
    // nvme-tcp: opcode 02h, SGL flag, namespace 1, 8 blocks from block 2, no flags.
    let mut bytes = [0u8; 64];
    bytes[0] = 0x02;
    bytes[1] = 0x40;
    bytes[2..4].copy_from_slice(&[0x34, 0x12]);
    bytes[4] = 1;
    bytes[32..36].copy_from_slice(&4096u32.to_le_bytes());
    bytes[39] = 0x5a;
    bytes[40] = 2;
    bytes[48] = 7;
    let sqe = Sqe::read_from_bytes(&bytes).unwrap();
    let range = LbaRange::new(Lba::new(2), 8).unwrap();
    assert_eq!(
        Command::parse(&sqe),
        Ok(Command::Read(Read { range, fua: false, limited_retry: false }))
    );
    assert_eq!(sqe.cid.get(), 0x1234);
    assert_eq!(sqe.dptr.data(), Some(crate::sqe::DataPointer::Transport { length: 4096 }));
}

#[test]
fn each_refusal_names_the_field_at_fault() {
    let change = |edit: fn(&mut Sqe)| {
        let mut sqe = read();
        edit(&mut sqe);
        Command::parse(&sqe).unwrap_err()
    };
    type Edit = fn(&mut Sqe);
    let cases: [(Edit, Refusal); 9] = [
        (|sqe| sqe.opcode = 0x7e, Refusal::at(Reason::Opcode, 0, 0)),
        (|sqe| sqe.flags = 0x00, Refusal::at(Reason::DataPointerType, 0, 14)),
        (|sqe| sqe.flags = 0xc0, Refusal::at(Reason::DataPointerType, 0, 14)),
        (|sqe| sqe.flags = 0x44, Refusal::at(Reason::Reserved, 0, 10)),
        (|sqe| sqe.flags = 0x43, Refusal::at(Reason::Fused, 0, 8)),
        (|sqe| sqe.flags = 0x41, Refusal::at(Reason::Fused, 0, 8)),
        (|sqe| sqe.cdw12 = (1 << 25).into(), Refusal::at(Reason::Reserved, 12, 25)),
        (|sqe| sqe.cdw12 = (1 << 16).into(), Refusal::at(Reason::Value, 12, 16)),
        (|sqe| sqe.cdw12 = (1 << 20).into(), Refusal::at(Reason::Reserved, 12, 20)),
    ];
    for (edit, refusal) in cases {
        assert_eq!(change(edit), refusal);
    }
    assert_eq!(Location::dword(12, 25).to_field(), 0x0133);
}

#[test]
fn only_compare_then_write_can_be_fused() {
    let range = LbaRange::new(Lba::new(0), 1).unwrap();
    let compare = Compare { range, fua: false, limited_retry: false, fused: true };
    let write = Write { range, fua: false, limited_retry: false, fused: true };
    assert_eq!(Command::parse(&compare.to_sqe(1, 1)), Ok(Command::Compare(compare)));
    assert_eq!(Command::parse(&write.to_sqe(2, 1)), Ok(Command::Write(write)));

    let mut second = compare.to_sqe(1, 1);
    second.set_fused(Fused::Second);
    let mut first = write.to_sqe(1, 1);
    first.set_fused(Fused::First);
    for sqe in [second, first] {
        assert_eq!(Command::parse(&sqe).unwrap_err().reason, Reason::Fused);
    }
}

#[test]
fn flags_of_write_zeroes_are_told_apart() {
    let range = LbaRange::new(Lba::new(5), 65_536).unwrap();
    let zeroes = WriteZeroes { range, fua: true, limited_retry: false, deallocate: true };
    let sqe = zeroes.to_sqe(1, 1);
    assert_eq!(sqe.cdw12.get(), 0x4200_ffff);
    assert_eq!(Command::parse(&sqe), Ok(Command::WriteZeroes(zeroes)));
    let mut whole = sqe;
    whole.cdw12 = (sqe.cdw12.get() | 1 << 23).into();
    assert_eq!(Command::parse(&whole).unwrap_err(), Refusal::at(Reason::Reserved, 12, 23));
}

#[test]
fn an_empty_dsm_range_is_none() {
    assert_eq!(DsmRange::new_zeroed().range(), None);
    let range = DsmRange { slba: 9.into(), blocks: u32::MAX.into(), ..DsmRange::default() };
    assert_eq!(range.range().map(|range| range.blocks()), Some(u32::MAX));
}

#[test]
fn copy_sources_are_read_in_each_format() {
    for format in CopyFormat::ALL {
        let copy = Copy {
            destination: Lba::new(100),
            ranges: ZeroBased8::from_raw(0),
            format: *format,
            fua: true,
            limited_retry: false,
        };
        assert_eq!(Command::parse(&copy.to_sqe(1, 1)), Ok(Command::Copy(copy)));
        let mut entry = vec![0; format.bytes()];
        entry[0] = 3;
        entry[8] = 16;
        entry[16] = 7;
        entry[23] = 0x80;
        let sources: Vec<_> = copy.sources(&entry).unwrap().collect();
        let named = format.names_namespace();
        assert_eq!(
            sources,
            [CopySource {
                nsid: named.then_some(3),
                range: LbaRange::new(Lba::new(16), 8).unwrap(),
                fast_only: named,
            }]
        );
        entry[18] = 1;
        assert!(copy.sources(&entry).is_err());
    }
    let mut sqe = read();
    sqe.opcode = io::COPY;
    sqe.cdw12 = 0x400.into();
    assert_eq!(Command::parse(&sqe).unwrap_err(), Refusal::at(Reason::Format, 12, 8));
}
