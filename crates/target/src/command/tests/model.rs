//! A random workload from a seed against a map of blocks.

use nvme::count::ZeroBased8;
use nvme::nvm::{
    Copy, CopyDescriptor, CopyFormat, CopyRange0, DatasetManagement, DsmRange, LbaRange,
    WriteZeroes,
};
use nvme::opcode::io;
use nvme::sqe::Sqe;
use nvme::status::Status;
use stdx::Lba;
use stdx::num::{low32, usize32, usize64};
use stdx::prng::Prng;
use zerocopy::IntoBytes;

use super::double::*;
use super::io::{range, read, write};
use crate::command::Attached;

const BLOCKS: u64 = 96;

/// Block by block what the namespace holds: the seed its contents were made from, 0 for zeroes.
struct Model {
    seeds: Vec<u64>,
    size: usize,
}

impl Model {
    fn contents(&self, range: LbaRange) -> Vec<u8> {
        let start = usize64(range.start().get());
        self.seeds[start..start + usize32(range.blocks())]
            .iter()
            .flat_map(|&seed| block(seed, self.size))
            .collect()
    }

    fn fill(&mut self, range: LbaRange, seed: impl Fn(u64) -> u64) {
        for offset in 0..u64::from(range.blocks()) {
            self.seeds[usize64(range.start().get() + offset)] = seed(offset);
        }
    }
}

fn block(seed: u64, size: usize) -> Vec<u8> {
    if seed == 0 { vec![0; size] } else { pattern(seed, size) }
}

fn some_range(random: &mut Prng) -> LbaRange {
    let blocks = random.below(17) + 1;
    range(random.below(BLOCKS - blocks + 1), low32(blocks))
}

fn some_way(random: &mut Prng) -> By {
    if random.below(2) == 0 { By::Capsule } else { By::R2t }
}

async fn send(at: &Attached, mut sqe: Sqe, data: &[u8], by: By) -> Status {
    let host = Double::with(data, by);
    host.describe(&mut sqe, data.len());
    host.run(at, &sqe).await.status
}

async fn step(at: &Attached, model: &mut Model, random: &mut Prng) {
    let (target, by) = (some_range(random), some_way(random));
    match random.below(8) {
        0..3 => {
            let seed = random.next_u64() | 1;
            model.fill(target, |offset| seed.wrapping_add(offset));
            let data = model.contents(target);
            assert_eq!(write(at, target.start().get(), &data, by).await, Status::SUCCESS);
        }
        3 => assert_eq!(read(at, target).await, model.contents(target)),
        4 => {
            let deallocate = random.below(2) == 0;
            model.fill(target, |_| 0);
            let command =
                WriteZeroes { range: target, fua: false, limited_retry: false, deallocate };
            let status = Double::none().run(at, &command.to_sqe(1, 1)).await.status;
            assert_eq!(status, Status::SUCCESS);
        }
        5 => {
            let ranges = [target, some_range(random), some_range(random)];
            let list = ranges.map(|range| DsmRange {
                cattr: 0.into(),
                blocks: range.blocks().into(),
                slba: range.start().get().into(),
            });
            for range in ranges {
                model.fill(range, |_| 0);
            }
            let command = DatasetManagement {
                ranges: ZeroBased8::from_raw(2),
                integral_read: false,
                integral_write: true,
                deallocate: true,
            };
            let status = send(at, command.to_sqe(1, 1), list.as_bytes(), by).await;
            assert_eq!(status, Status::SUCCESS);
        }
        6 => copy(at, model, random, target, by).await,
        _ => {
            let mut data = model.contents(target);
            let mut sqe = Sqe::new(io::COMPARE, 1, 1);
            sqe.cdw10 = low32(target.start().get()).into();
            sqe.cdw12 = (target.blocks() - 1).into();
            let differs = random.below(2) == 0;
            let expected = if differs { Status::COMPARE_FAILURE } else { Status::SUCCESS };
            if differs {
                let at = usize64(random.below(data.len() as u64));
                data[at] ^= 0x10;
            }
            assert_eq!(send(at, sqe, &data, by).await.kind(), expected);
        }
    }
}

async fn copy(at: &Attached, model: &mut Model, random: &mut Prng, source: LbaRange, by: By) {
    let to = random.below(BLOCKS);
    let destination = range(to, source.blocks());
    let entry = CopyRange0 {
        head: CopyDescriptor {
            slba: source.start().get().into(),
            nlb: source.to_wire().unwrap().raw().into(),
            ..CopyDescriptor::default()
        },
        ..CopyRange0::default()
    };
    let command = Copy {
        destination: Lba::new(to),
        ranges: ZeroBased8::from_raw(0),
        format: CopyFormat::Format0,
        fua: false,
        limited_retry: false,
    };
    let expected = if destination.check(BLOCKS).is_err() {
        Status::LBA_OUT_OF_RANGE
    } else if destination.overlaps(source) {
        Status::OVERLAPPING_IO_RANGE
    } else {
        let seeds = model.seeds.clone();
        let from = source.start().get();
        model.fill(destination, |offset| seeds[usize64(from + offset)]);
        Status::SUCCESS
    };
    assert_eq!(send(at, command.to_sqe(1, 1), entry.as_bytes(), by).await.kind(), expected);
}

#[test]
fn random_commands_agree_with_a_map_of_blocks() {
    for on in EVERYWHERE {
        for seed in 0..6 {
            on_reactor(async move {
                let size = if seed % 2 == 0 { 512 } else { 4096 };
                let place = Place::new(on, 1, BLOCKS, size).await;
                let at = place.attach(HOST);
                let mut random = Prng::new(seed);
                let mut model = Model { seeds: vec![0; usize64(BLOCKS)], size: usize32(size) };
                for _ in 0..300 {
                    step(&at, &mut model, &mut random).await;
                }
                let all = range(0, low32(BLOCKS));
                assert!(read(&at, all).await == model.contents(all), "{on:?}, seed {seed}");
            });
        }
    }
}

/// Sixteen clients at once, each with blocks of its own, so that the result of each is known: what
/// one does, to the last byte, does not depend on the others.
#[test]
fn clients_with_blocks_of_their_own_do_not_disturb_each_other() {
    for on in EVERYWHERE {
        on_reactor(async move {
            let place = Place::new(on, 1, 64, 512).await;
            let tasks: Vec<_> = (0..16u64)
                .map(|client| {
                    let at = place.attach(HOST);
                    reactor::spawn(async move {
                        let mut random = Prng::new(client);
                        for round in 1..40u64 {
                            // Four blocks each, from an offset that is no multiple of a page.
                            let data = pattern(client * 1000 + round, 4 * 512);
                            let by = some_way(&mut random);
                            let status = write(&at, client * 4, &data, by).await;
                            assert_eq!(status, Status::SUCCESS);
                            assert!(read(&at, range(client * 4, 4)).await == data);
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
    }
}
