use nvme::count::ZeroBased8;
use nvme::nvm::{
    Compare, Copy, CopyDescriptor, CopyFormat, CopyRange0, CopyRange1, CopyRange2,
    DatasetManagement, DsmRange, LbaRange, Read, Verify, Write, WriteZeroes,
};
use nvme::opcode::io;
use nvme::sqe::{DataPointer, Fused, Sgl, Sqe};
use nvme::status::Status;
use stdx::Lba;
use zerocopy::IntoBytes;

use super::double::*;
use crate::command::{Attached, Reply, compare_and_write, is_supported};
use crate::limits::{COPY_MAX_BLOCKS, COPY_MAX_RANGE_BLOCKS, TRANSFER_BYTES_MAX};
use crate::reservation::{Command, Type};

pub fn range(lba: u64, blocks: u32) -> LbaRange {
    LbaRange::new(Lba::new(lba), blocks).unwrap()
}

pub fn read_sqe(range: LbaRange) -> Sqe {
    Read { range, fua: false, limited_retry: false }.to_sqe(1, 1)
}

pub fn write_sqe(range: LbaRange) -> Sqe {
    Write { range, fua: false, limited_retry: false, fused: false }.to_sqe(1, 1)
}

/// Reads as a host does: with as many commands as it takes.
pub async fn read(at: &Attached, whole: LbaRange) -> Vec<u8> {
    let most = TRANSFER_BYTES_MAX / at.namespace().block_size;
    let (start, blocks) = (whole.start().get(), whole.blocks());
    let mut found = Vec::new();
    for done in (0..blocks).step_by(usize::try_from(most).unwrap()) {
        let part = range(start + u64::from(done), most.min(blocks - done));
        let host = Double::none();
        let mut sqe = read_sqe(part);
        let length = usize::try_from(part.bytes(at.namespace().block_size)).unwrap();
        host.describe(&mut sqe, length);
        let reply = host.run(at, &sqe).await;
        assert_eq!(reply.status, Status::SUCCESS);
        found.extend(bytes_of(&reply.data));
    }
    found
}

/// Writes as a host does: with as many commands as it takes, until one fails.
pub async fn write(at: &Attached, lba: u64, data: &[u8], by: By) -> Status {
    let block = at.namespace().block_size;
    let most = TRANSFER_BYTES_MAX;
    let mut lba = lba;
    for part in data.chunks(usize::try_from(most).unwrap()) {
        let blocks = u32::try_from(part.len()).unwrap() / block;
        let host = Double::with(part, by);
        let mut sqe = write_sqe(range(lba, blocks));
        host.describe(&mut sqe, part.len());
        let status = host.run(at, &sqe).await.status;
        if status != Status::SUCCESS {
            return status;
        }
        lba += u64::from(blocks);
    }
    Status::SUCCESS
}

fn compare_sqe(range: LbaRange) -> Sqe {
    Compare { range, fua: false, limited_retry: false, fused: false }.to_sqe(1, 1)
}

pub async fn send(at: &Attached, mut sqe: Sqe, data: &[u8]) -> Reply {
    let host = Double::with(data, By::R2t);
    host.describe(&mut sqe, data.len());
    host.run(at, &sqe).await
}

async fn no_data(at: &Attached, sqe: Sqe) -> Status {
    Double::none().run(at, &sqe).await.status
}

fn refused(status: Status) -> Status {
    status.with_dnr()
}

#[test]
fn what_is_written_is_read_whichever_way_it_came() {
    on_reactor(async {
        for on in EVERYWHERE {
            for (size, by) in
                [(512, By::Capsule), (512, By::R2t), (4096, By::Capsule), (4096, By::R2t)]
            {
                let place = Place::new(on, 1, 64, size).await;
                let at = place.attach(HOST);
                let length = usize::try_from(size).unwrap() * 3;
                let data = pattern(7, length);
                assert_eq!(write(&at, 61, &data, by).await, Status::SUCCESS);
                assert_eq!(read(&at, range(61, 3)).await, data);
                assert!(read(&at, range(0, 61)).await.iter().all(|&b| b == 0), "unwritten");
            }
        }
    });
}

/// What hosts do not send again is lost to who wrote it: no command may come to anything else than "not here, not
/// now" while the drives of a namespace are on their way.
#[test]
fn commands_for_a_namespace_that_is_not_there_yet_are_to_be_sent_again() {
    on_reactor(async {
        let backend = crate::namespace::Backend::Absent { bytes: 64 * 4096 };
        let subsystem = nvme::nqn::Nqn::new("nqn.2026-11.io.flashloom:test").unwrap();
        let spec = crate::namespace::NamespaceSpec::new(backend, 4096);
        let namespace = crate::namespace::Namespace::new(&subsystem, 1, &spec).unwrap();
        let at = Attached::new(std::sync::Arc::new(namespace), HOST);
        let data = pattern(1, 4096);
        let one = range(5, 1);
        for by in [By::Capsule, By::R2t] {
            assert_eq!(write(&at, 5, &data, by).await, Status::ANA_INACCESSIBLE);
        }
        for mut sqe in [read_sqe(one), Sqe::new(io::FLUSH, 1, 1), Sqe::new(io::COMPARE, 1, 1)] {
            let host = Double::with(&data, By::Capsule);
            host.describe(&mut sqe, data.len());
            let status = host.run(&at, &sqe).await.status;
            assert_eq!(status, Status::ANA_INACCESSIBLE, "opcode {:#x}", sqe.opcode);
        }
    });
}

#[test]
fn memory_reads_and_capsule_writes_end_in_the_first_poll() {
    on_reactor(async {
        let place = Place::new(On::Memory, 1, 64, 4096).await;
        let at = place.attach(HOST);
        let data = pattern(1, 4096);
        let host = Double::with(&data, By::Capsule);
        let mut sqe = write_sqe(range(5, 1));
        host.describe(&mut sqe, 4096);
        assert_eq!(at_once(host.run(&at, &sqe)).unwrap().status, Status::SUCCESS);
        let mut sqe = read_sqe(range(5, 1));
        sqe.dptr = Sgl::transport(4096);
        let reply = at_once(host.run(&at, &sqe)).unwrap();
        assert_eq!(bytes_of(&reply.data), data);
        assert!(matches!(reply.data, Some(fabric::payload::Payload::Region { .. })));
    });
}

/// Large reads of memory are copied for the kernel's sake, but not for a host that takes nothing.
#[test]
fn a_large_read_of_memory_is_copied_while_there_is_room() {
    on_reactor(async {
        let place = Place::new(On::Memory, 1, 64, 4096).await;
        let at = place.attach(HOST);
        let data = pattern(1, 32 * 4096);
        assert_eq!(write(&at, 3, &data, By::R2t).await, Status::SUCCESS);
        let host = Double::none();
        for (blocks, full, copied) in [(15, false, false), (16, false, true), (32, true, false)] {
            host.full.set(full);
            let mut sqe = read_sqe(range(3, blocks));
            sqe.dptr = Sgl::transport(blocks * 4096);
            let reply = at_once(host.run(&at, &sqe)).unwrap();
            assert_eq!(bytes_of(&reply.data), data[..stdx::num::usize32(blocks) * 4096]);
            let is_copy = matches!(reply.data, Some(fabric::payload::Payload::Buffer { .. }));
            assert_eq!(is_copy, copied, "{blocks} blocks");
        }
    });
}

/// A queue takes memory for one of these for each of its entries.
#[test]
fn a_command_in_its_slot_is_small() {
    on_reactor(async {
        let place = Place::new(On::Memory, 1, 64, 4096).await;
        let at = place.attach(HOST);
        let (sqe, host) = (read_sqe(range(0, 1)), Double::none());
        let begun = crate::command::Begun::Nothing;
        let bytes = size_of_val(&crate::command::execute(&at, &sqe, begun, &host));
        // 35 lines of a cache.
        assert!(bytes <= 2240, "{bytes} bytes");
    });
}

#[test]
fn reads_and_writes_are_refused_for_what_is_wrong_with_them() {
    on_reactor(async {
        for on in EVERYWHERE {
            let place = Place::new(on, 1, 1024, 4096).await;
            let at = place.attach(HOST);
            for template in [read_sqe, write_sqe, compare_sqe] {
                let status = async |range, length: u32| {
                    let mut sqe: Sqe = template(range);
                    sqe.dptr = Sgl::transport(length);
                    let host = Double::with(&vec![0; 8192], By::R2t);
                    host.run(&at, &sqe).await.status
                };
                let out = refused(Status::LBA_OUT_OF_RANGE);
                assert_eq!(status(range(1024, 1), 4096).await, out);
                assert_eq!(status(range(1023, 2), 8192).await, out);
                assert_eq!(status(range(u64::MAX, 1), 4096).await, out);
                assert_eq!(status(range(u64::MAX, 2), 8192).await, out);
                let invalid = refused(Status::INVALID_FIELD);
                let above = TRANSFER_BYTES_MAX / 4096 + 1;
                assert_eq!(status(range(0, above), above * 4096).await, invalid, "above MDTS");
                let length = refused(Status::DATA_SGL_LENGTH_INVALID);
                assert_eq!(status(range(0, 2), 8191).await, length);
                assert_eq!(status(range(0, 1), 0).await, length);
                let mut sqe = template(range(0, 1));
                sqe.dptr.id = Sgl::KEYED_DATA_BLOCK;
                let found = Double::none().run(&at, &sqe).await.status;
                assert_eq!(found, refused(Status::SGL_DESCRIPTOR_TYPE_INVALID));
            }
            // A read's data has no place in the capsule that asked for it.
            let mut sqe = read_sqe(range(0, 1));
            sqe.dptr = Sgl::in_capsule(0, 4096);
            let found = Double::none().run(&at, &sqe).await.status;
            assert_eq!(found, refused(Status::SGL_DESCRIPTOR_TYPE_INVALID));
        }
    });
}

#[test]
fn capsule_data_must_lie_within_the_capsule() {
    on_reactor(async {
        let place = Place::new(On::Memory, 1, 8, 512).await;
        let at = place.attach(HOST);
        let data = pattern(1, 1024);
        for (offset, expected) in [
            (512, Status::SUCCESS),
            (513, refused(Status::SGL_OFFSET_INVALID)),
            (u64::MAX, refused(Status::SGL_OFFSET_INVALID)),
        ] {
            let host = Double::with(&data, By::Capsule);
            let mut sqe = write_sqe(range(0, 1));
            sqe.dptr = Sgl::in_capsule(offset, 512);
            assert!(matches!(sqe.dptr.data(), Some(DataPointer::InCapsule { .. })));
            assert_eq!(host.run(&at, &sqe).await.status, expected);
        }
        assert_eq!(read(&at, range(0, 1)).await, data[512..]);
    });
}

#[test]
fn a_failed_transfer_fails_the_command_and_writes_nothing() {
    on_reactor(async {
        for on in EVERYWHERE {
            let place = Place::new(on, 1, 8, 512).await;
            let at = place.attach(HOST);
            let mut host = Double::with(&[9; 512], By::R2t);
            host.fails = Some(Status::TRANSIENT_TRANSPORT_ERROR);
            let mut sqe = write_sqe(range(0, 1));
            host.describe(&mut sqe, 512);
            assert_eq!(host.run(&at, &sqe).await.status, Status::TRANSIENT_TRANSPORT_ERROR);
            assert_eq!(read(&at, range(0, 1)).await, [0; 512]);
        }
    });
}

#[test]
fn unsupported_opcodes_and_fused_halves_are_refused() {
    on_reactor(async {
        let place = Place::new(On::Memory, 1, 8, 512).await;
        let at = place.attach(HOST);
        for opcode in 0..=u8::MAX {
            let status = no_data(&at, Sqe::new(opcode, 1, 1)).await;
            let unknown = status.is(Status::INVALID_OPCODE);
            assert_eq!(unknown, !is_supported(opcode), "opcode {opcode:#04x}: {status}");
        }
        for opcode in [io::WRITE, io::COMPARE, io::READ, io::FLUSH] {
            for fused in [Fused::First, Fused::Second] {
                let mut sqe = Sqe::new(opcode, 1, 1);
                sqe.set_fused(fused);
                assert_eq!(no_data(&at, sqe).await, refused(Status::INVALID_FIELD));
            }
        }
    });
}

#[test]
fn flush_and_fua_succeed_everywhere() {
    on_reactor(async {
        for on in EVERYWHERE {
            let place = Place::new(on, 1, 8, 512).await;
            let at = place.attach(HOST);
            assert_eq!(no_data(&at, Sqe::new(io::FLUSH, 1, 1)).await, Status::SUCCESS);
            let write = Write { range: range(0, 1), fua: true, limited_retry: false, fused: false };
            assert_eq!(send(&at, write.to_sqe(1, 1), &[3; 512]).await.status, Status::SUCCESS);
            let all = crate::command::flush_all([&*at, &*at].into_iter()).await;
            assert_eq!(all.status, Status::SUCCESS);
        }
    });
}

#[test]
fn write_zeroes_and_deallocate_leave_zeroes_and_touch_nothing_else() {
    on_reactor(async {
        for on in EVERYWHERE {
            for deallocate in [false, true] {
                let place = Place::new(on, 1, 2048, 512).await;
                let at = place.attach(HOST);
                let data = pattern(3, 2048 * 512);
                assert_eq!(write(&at, 0, &data, By::R2t).await, Status::SUCCESS);
                let zeroes = WriteZeroes {
                    range: range(3, 1000),
                    fua: true,
                    limited_retry: false,
                    deallocate,
                };
                assert_eq!(no_data(&at, zeroes.to_sqe(1, 1)).await, Status::SUCCESS);
                let found = read(&at, range(0, 2048)).await;
                assert_eq!(found[..3 * 512], data[..3 * 512]);
                assert!(found[3 * 512..1003 * 512].iter().all(|&b| b == 0));
                assert_eq!(found[1003 * 512..], data[1003 * 512..]);
                let outside = WriteZeroes { range: range(2047, 2), ..zeroes };
                let status = no_data(&at, outside.to_sqe(1, 1)).await;
                assert_eq!(status, refused(Status::LBA_OUT_OF_RANGE));
            }
        }
    });
}

/// Their host has them done by another path.
#[test]
fn commands_of_a_queue_that_ends_change_nothing() {
    on_reactor(async {
        for on in EVERYWHERE {
            let place = Place::new(on, 1, 64, 4096).await;
            let at = place.attach(HOST);
            let data = pattern(1, 64 * 4096);
            assert_eq!(write(&at, 0, &data, By::R2t).await, Status::SUCCESS);
            let range = range(0, 8);
            let zeroes = WriteZeroes { range, fua: false, limited_retry: false, deallocate: true };
            let commands = [
                (write_sqe(range), vec![1; 8 * 4096]),
                (zeroes.to_sqe(1, 1), Vec::new()),
                dsm(true, &[(0, 8)]),
            ];
            for (mut sqe, bytes) in commands {
                let host = Double::with(&bytes, By::R2t);
                host.ended.set(true);
                if !bytes.is_empty() {
                    host.describe(&mut sqe, bytes.len());
                }
                let status = host.run(&at, &sqe).await.status;
                assert_eq!(status, Status::ABORTED_SQ_DELETION, "{on:?}");
            }
            let whole = LbaRange::new(Lba::new(0), 64).unwrap();
            assert!(read(&at, whole).await == data, "{on:?}");
        }
    });
}

pub fn dsm(deallocate: bool, ranges: &[(u64, u32)]) -> (Sqe, Vec<u8>) {
    let list: Vec<_> = ranges
        .iter()
        .map(|&(lba, blocks)| DsmRange { cattr: 0.into(), blocks: blocks.into(), slba: lba.into() })
        .collect();
    let count = ZeroBased8::new(u16::try_from(ranges.len()).unwrap()).unwrap();
    let command = DatasetManagement {
        ranges: count,
        integral_read: false,
        integral_write: false,
        deallocate,
    };
    (command.to_sqe(1, 1), list.as_bytes().to_vec())
}

#[test]
fn dataset_management_frees_all_its_ranges_or_none() {
    on_reactor(async {
        for on in EVERYWHERE {
            let place = Place::new(on, 1, 256, 4096).await;
            let at = place.attach(HOST);
            let data = pattern(4, 256 * 4096);
            assert_eq!(write(&at, 0, &data, By::R2t).await, Status::SUCCESS);
            let (sqe, list) = dsm(true, &[(0, 1), (255, 2)]);
            let out = refused(Status::LBA_OUT_OF_RANGE);
            assert_eq!(send(&at, sqe, &list).await.status, out);
            let (sqe, list) = dsm(false, &[(0, 256)]);
            assert_eq!(send(&at, sqe, &list).await.status, Status::SUCCESS);
            assert_eq!(read(&at, range(0, 256)).await, data, "nothing was freed");

            let (mut sqe, list) = dsm(true, &[(1, 2), (7, 0), (100, 100)]);
            let short = Double::with(&list, By::R2t);
            short.describe(&mut sqe, list.len() - 1);
            let status = short.run(&at, &sqe).await.status;
            assert_eq!(status, refused(Status::DATA_SGL_LENGTH_INVALID));
            // Linux sends a whole page, whatever the number of ranges.
            let mut page = list.clone();
            page.resize(4096, 0xff);
            assert_eq!(send(&at, sqe, &page).await.status, Status::SUCCESS);
            let found = read(&at, range(0, 256)).await;
            for (block, chunk) in found.chunks(4096).enumerate() {
                let freed = matches!(block, 1..3 | 100..200);
                let same = chunk == &data[block * 4096..][..4096];
                assert_eq!((same, chunk.iter().all(|&b| b == 0)), (!freed, freed), "block {block}");
            }
        }
    });
}

/// Linux zeroed no more with a command than MDTS, as long as no limit was given.
#[test]
fn one_write_zeroes_takes_as_much_as_is_advertised_and_no_more() {
    on_reactor(async {
        let place = Place::new(On::Memory, 1, 9000, 4096).await;
        let at = place.attach(HOST);
        write(&at, 8191, &pattern(3, 8192), By::R2t).await;
        let zero = async |blocks| {
            let command = WriteZeroes {
                range: range(0, blocks),
                fua: false,
                limited_retry: false,
                deallocate: false,
            };
            Double::none().run(&at, &command.to_sqe(1, 1)).await.status
        };
        assert_eq!(zero(8193).await, refused(Status::INVALID_FIELD));
        assert_eq!(zero(8192).await, Status::SUCCESS);
        let left = read(&at, range(8191, 2)).await;
        assert!(left[..4096].iter().all(|byte| *byte == 0));
        assert_eq!(left[4096..], pattern(3, 8192)[4096..]);
    });
}

#[test]
fn compare_tells_equal_from_different() {
    on_reactor(async {
        for on in EVERYWHERE {
            for by in [By::Capsule, By::R2t] {
                let place = Place::new(on, 1, 16, 512).await;
                let at = place.attach(HOST);
                let mut data = pattern(5, 1024);
                write(&at, 2, &data, By::R2t).await;
                let compare = async |data: &[u8]| {
                    let host = Double::with(data, by);
                    let mut sqe = compare_sqe(range(2, 2));
                    host.describe(&mut sqe, data.len());
                    host.run(&at, &sqe).await.status
                };
                assert_eq!(compare(&data).await, Status::SUCCESS);
                data[1023] ^= 1;
                assert_eq!(compare(&data).await, refused(Status::COMPARE_FAILURE));
            }
        }
    });
}

#[test]
fn verify_checks_its_range_and_reads() {
    on_reactor(async {
        for on in EVERYWHERE {
            let place = Place::new(on, 1, 4096, 4096).await;
            let at = place.attach(HOST);
            let verify = |range| Verify { range, fua: false, limited_retry: false }.to_sqe(1, 1);
            assert_eq!(no_data(&at, verify(range(0, 4096))).await, Status::SUCCESS);
            let status = no_data(&at, verify(range(1, 4096))).await;
            assert_eq!(status, refused(Status::LBA_OUT_OF_RANGE));
        }
    });
}

pub fn copy_sqe(destination: u64, ranges: usize, format: CopyFormat) -> Sqe {
    let ranges = ZeroBased8::new(u16::try_from(ranges).unwrap()).unwrap();
    let destination = Lba::new(destination);
    Copy { destination, ranges, format, fua: true, limited_retry: false }.to_sqe(1, 1)
}

fn source(nsid: u32, lba: u64, blocks: u32) -> CopyDescriptor {
    CopyDescriptor {
        snsid: nsid.into(),
        slba: lba.into(),
        nlb: u16::try_from(blocks - 1).unwrap().into(),
        ..CopyDescriptor::default()
    }
}

pub fn sources0(list: &[(u64, u32)]) -> Vec<u8> {
    let entries: Vec<_> = list
        .iter()
        .map(|&(lba, blocks)| CopyRange0 { head: source(0, lba, blocks), ..CopyRange0::default() })
        .collect();
    entries.as_bytes().to_vec()
}

#[test]
fn copy_gathers_its_sources_in_order() {
    on_reactor(async {
        for on in EVERYWHERE {
            let place = Place::new(on, 1, 256, 4096).await;
            let at = place.attach(HOST);
            let data = pattern(6, 128 * 4096);
            write(&at, 0, &data, By::R2t).await;
            let list = sources0(&[(5, 2), (0, 1), (64, 64)]);
            let reply = send(&at, copy_sqe(150, 3, CopyFormat::Format0), &list).await;
            assert_eq!(reply.status, Status::SUCCESS);
            let block = |lba: usize, blocks: usize| &data[lba * 4096..(lba + blocks) * 4096];
            let expected = [block(5, 2), block(0, 1), block(64, 64)].concat();
            assert_eq!(read(&at, range(150, 67)).await, expected);

            let entry = CopyRange1 { head: source(0, 9, 1), ..CopyRange1::default() };
            let sqe = copy_sqe(255, 1, CopyFormat::Format1);
            assert_eq!(send(&at, sqe, entry.as_bytes()).await.status, Status::SUCCESS);
            assert_eq!(read(&at, range(255, 1)).await, block(9, 1));
        }
    });
}

#[test]
fn copy_is_refused_at_the_range_that_is_wrong() {
    on_reactor(async {
        let place = Place::new(On::Memory, 1, u64::from(COPY_MAX_BLOCKS) * 3, 512).await;
        let at = place.attach(HOST);
        let status = async |destination, list: &[(u64, u32)]| {
            let sqe = copy_sqe(destination, list.len(), CopyFormat::Format0);
            let reply = send(&at, sqe, &sources0(list)).await;
            (reply.status.kind(), reply.dw0)
        };
        let limit = Status::COMMAND_SIZE_LIMIT_EXCEEDED;
        let most = COPY_MAX_RANGE_BLOCKS;
        assert_eq!(status(200_000 - 70_000, &[(0, most), (0, most + 1)]).await, (limit, 1));
        let many = vec![(0, most); 17];
        assert_eq!(status(100_000, &many).await, (limit, 16), "MCL");
        assert_eq!(status(100_000, &many[..16]).await, (Status::SUCCESS, 0));
        assert_eq!(status(100_000, &[(0, 1); 129]).await, (limit, 0), "MSRC");
        let end = u64::from(COPY_MAX_BLOCKS) * 3;
        let out = Status::LBA_OUT_OF_RANGE;
        assert_eq!(status(100_000, &[(0, 1), (end, 1)]).await, (out, 1));
        assert_eq!(status(end - 1, &[(0, 1), (1, 1)]).await, (out, 1));
        assert_eq!(status(u64::MAX, &[(0, 1), (1, 1)]).await, (out, 0));
        let overlap = Status::OVERLAPPING_IO_RANGE;
        assert_eq!(status(10, &[(0, 2), (9, 2)]).await, (overlap, 1));
        let sqe = copy_sqe(0, 1, CopyFormat::Format2);
        let entry = CopyRange2 { head: source(1, 9, 1), ..CopyRange2::default() };
        let reply = send(&at, sqe, entry.as_bytes()).await;
        assert_eq!(reply.status, refused(Status::INVALID_FIELD), "not enabled by the host");
    });
}

#[test]
fn copy_between_namespaces_when_the_host_enabled_it() {
    on_reactor(async {
        let here = Place::new(On::Memory, 1, 64, 512).await;
        let there = Place::new(On::File, 2, 64, 512).await;
        let coarse = Place::new(On::Memory, 3, 64, 4096).await;
        let (at, from) = (here.attach(HOST), there.attach(HOST));
        let data = pattern(8, 512 * 4);
        write(&from, 4, &data, By::R2t).await;
        let copy = async |nsid, fast: bool| {
            let mut entry = CopyRange2 { head: source(nsid, 4, 4), ..CopyRange2::default() };
            entry.head.sopt = (u16::from(fast) << 15).into();
            let mut host = Double::with(entry.as_bytes(), By::Capsule);
            host.formats = 0b1100;
            host.others = vec![there.attach(HOST), coarse.attach(HOST)];
            let mut sqe = copy_sqe(20, 1, CopyFormat::Format2);
            host.describe(&mut sqe, size_of::<CopyRange2>());
            host.run(&at, &sqe).await.status
        };
        assert_eq!(copy(2, false).await, Status::SUCCESS);
        assert_eq!(read(&at, range(20, 4)).await, data);
        assert_eq!(copy(1, false).await, Status::SUCCESS, "its own by name");
        assert_eq!(copy(9, false).await, refused(Status::INVALID_NAMESPACE_OR_FORMAT));
        assert_eq!(copy(3, false).await, refused(Status::INCOMPATIBLE_NAMESPACE_OR_FORMAT));
        assert_eq!(copy(2, true).await, refused(Status::FAST_COPY_NOT_POSSIBLE));
        // A reservation of another host on the source forbids reading it.
        for command in [
            Command::Register {
                new_key: 1,
                persistence: crate::reservation::ChangePersistence::NoChange,
            },
            Command::Acquire { current_key: 1, kind: Type::ExclusiveAccess },
        ] {
            let from = std::net::Ipv4Addr::LOCALHOST.into();
            there.namespace.reservation.execute(OTHER, from, &command).unwrap();
        }
        assert_eq!(copy(2, false).await, refused(Status::RESERVATION_CONFLICT));
    });
}

#[test]
fn a_copy_that_must_be_fast_is_one_that_moves_nothing() {
    on_reactor(async {
        let place = Place::new(On::Volume, 1, 1024, 512).await;
        let at = place.attach(HOST);
        let data = pattern(3, 512 * 8);
        write(&at, 16, &data, By::R2t).await;
        let copy = async |from, blocks, to| {
            let mut entry = CopyRange2 { head: source(1, from, blocks), ..CopyRange2::default() };
            entry.head.sopt = (1 << 15).into();
            let mut host = Double::with(entry.as_bytes(), By::Capsule);
            host.formats = 0b1100;
            let mut sqe = copy_sqe(to, 1, CopyFormat::Format2);
            host.describe(&mut sqe, size_of::<CopyRange2>());
            host.run(&at, &sqe).await.status
        };
        assert_eq!(copy(16, 8, 64).await, Status::SUCCESS);
        assert_eq!(read(&at, range(64, 8)).await, data);
        let moves = refused(Status::FAST_COPY_NOT_POSSIBLE);
        assert_eq!(copy(16, 4, 128).await, moves, "half of a block of 4 KiB");
        assert_eq!(copy(16, 8, 132).await, moves, "into two of them");
        assert_eq!(read(&at, range(128, 12)).await, [0; 12 * 512]);
    });
}

fn fused_pair(at: u64) -> (Sqe, Sqe) {
    let mut pair = (compare_sqe(range(at, 1)), write_sqe(range(at, 1)));
    pair.0.set_fused(Fused::First);
    pair.1.set_fused(Fused::Second);
    (pair.0, pair.1)
}

pub async fn exchange(at: &Attached, lba: u64, old: &[u8], new: &[u8], by: By) -> (Status, Status) {
    let (expected, data) = (Double::with(old, by), Double::with(new, by));
    let (mut compare, mut write) = fused_pair(lba);
    expected.describe(&mut compare, old.len());
    data.describe(&mut write, new.len());
    let both = compare_and_write(at, (&compare, &expected), (&write, &data));
    let replies = data.guard(expected.guard(both)).await;
    (replies.0.status, replies.1.status)
}

#[test]
fn compare_and_write_does_both_or_neither() {
    on_reactor(async {
        for on in EVERYWHERE {
            for by in [By::Capsule, By::R2t] {
                let place = Place::new(on, 1, 16, 512).await;
                let at = place.attach(HOST);
                let (old, new) = (pattern(1, 512), pattern(2, 512));
                let failed = (refused(Status::COMPARE_FAILURE), Status::ABORTED_FAILED_FUSED);
                assert_eq!(exchange(&at, 3, &old, &new, by).await, failed);
                assert_eq!(read(&at, range(3, 1)).await, [0; 512]);
                let done = (Status::SUCCESS, Status::SUCCESS);
                assert_eq!(exchange(&at, 3, &[0; 512], &old, by).await, done);
                assert_eq!(exchange(&at, 3, &old, &new, by).await, done);
                assert_eq!(read(&at, range(3, 1)).await, new);
            }
        }
    });
}

#[test]
fn a_fused_pair_that_does_not_fit_is_refused_whole() {
    on_reactor(async {
        let place = Place::new(On::Memory, 1, 16, 512).await;
        let at = place.attach(HOST);
        let run = async |compare: Sqe, write: Sqe| {
            let host = Double::with(&[0; 1024], By::R2t);
            let (mut compare, mut write) = (compare, write);
            host.describe(&mut compare, 1024);
            host.describe(&mut write, 1024);
            let replies = compare_and_write(&at, (&compare, &host), (&write, &host)).await;
            (replies.0.status, replies.1.status)
        };
        let invalid = refused(Status::INVALID_FIELD);
        let failed = Status::ABORTED_FAILED_FUSED;
        let (compare, write) = fused_pair(1);
        assert_eq!(run(compare, fused_pair(2).1).await, (invalid, invalid), "other blocks");
        assert_eq!(run(write, compare).await, (invalid, invalid), "swapped");
        assert_eq!(run(compare_sqe(range(1, 1)), write).await, (invalid, invalid), "not fused");
        let (compare, write) = fused_pair(16);
        let out = refused(Status::LBA_OUT_OF_RANGE);
        assert_eq!(run(compare, write).await, (out, failed));
        let (mut compare, mut write) = fused_pair(1);
        (compare.cdw12, write.cdw12) = (1.into(), 1.into());
        let exceeded = refused(Status::ATOMIC_WRITE_UNIT_EXCEEDED);
        assert_eq!(run(compare, write).await, (exceeded, failed));
    });
}

#[test]
fn a_write_protected_namespace_can_be_read_and_not_changed() {
    on_reactor(async {
        let place = Place::new(On::Memory, 1, 16, 512).await;
        let at = place.attach(HOST);
        place.namespace.set_write_protected(true);
        let protected = refused(Status::NAMESPACE_IS_WRITE_PROTECTED);
        assert_eq!(write(&at, 0, &[1; 512], By::Capsule).await, protected);
        let zeroes =
            WriteZeroes { range: range(0, 1), fua: false, limited_retry: false, deallocate: true };
        assert_eq!(no_data(&at, zeroes.to_sqe(1, 1)).await, protected);
        let (sqe, list) = dsm(true, &[(0, 1)]);
        assert_eq!(send(&at, sqe, &list).await.status, protected);
        let list = sources0(&[(0, 1)]);
        let copied = send(&at, copy_sqe(8, 1, CopyFormat::Format0), &list).await;
        assert_eq!(copied.status, protected);
        let pair = exchange(&at, 0, &[0; 512], &[1; 512], By::Capsule).await;
        assert_eq!(pair, (Status::ABORTED_FAILED_FUSED, protected));
        assert_eq!(read(&at, range(0, 1)).await, [0; 512]);
        assert_eq!(no_data(&at, Sqe::new(io::FLUSH, 1, 1)).await, Status::SUCCESS);
    });
}

/// 256 ranges of exactly a mebibyte were one poll: milliseconds in which no other command got on.
#[test]
fn a_long_command_lets_others_run_between_its_pieces() {
    on_reactor(async {
        for on in [On::Memory, On::Volume] {
            let place = Place::new(on, 1, 64 << 8, 4096).await;
            let at = place.attach(HOST);
            let turns = std::rc::Rc::new(std::cell::Cell::new(0));
            let counted = turns.clone();
            let others = reactor::spawn(async move {
                loop {
                    counted.set(counted.get() + 1);
                    reactor::yield_now().await;
                }
            });
            let ranges: Vec<u8> = (0..64_u64)
                .flat_map(|n| [(256_u64 << 32).to_le_bytes(), (n * 256).to_le_bytes()].concat())
                .collect();
            let mut deallocate = Sqe::new(io::DATASET_MANAGEMENT, 1, 1);
            deallocate.cdw10 = 63.into();
            deallocate.cdw11 = 4.into();
            let mut zeroes = Sqe::new(io::WRITE_ZEROES, 1, 1);
            zeroes.cdw12 = 0x1fff.into();
            let mut verify = zeroes;
            verify.opcode = io::VERIFY;
            for (sqe, pieces) in [(deallocate, 64), (zeroes, 2), (verify, 64)] {
                if on == On::Memory && sqe.opcode == io::VERIFY {
                    continue;
                }
                let host = Double::with(&ranges, By::Capsule);
                let mut sqe = sqe;
                if sqe.opcode == io::DATASET_MANAGEMENT {
                    host.describe(&mut sqe, ranges.len());
                }
                let before = turns.get();
                assert_eq!(host.run(&at, &sqe).await.status, Status::SUCCESS, "{sqe:?}");
                assert!(turns.get() - before >= pieces, "{on:?} {sqe:?}");
            }
            others.abort();
        }
    });
}
