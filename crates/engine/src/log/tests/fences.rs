//! Logs whose records go through group commit, or are about to: what a moment of each needs, left out.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use media::Simulated;
use media::drive::SimulatedOptions;
use reactor::simulate;
use stdx::Prng;

use super::crash::Memories;
use super::*;
use crate::canary::{Step, misses};

/// A zone of a drive that takes so long for everything.
fn zone(millis: u64) -> Zone {
    let slow = Duration::from_millis(millis);
    let options = SimulatedOptions {
        capacity: 16 << 20,
        transfer: slow..slow,
        ..SimulatedOptions::default()
    };
    Zone::new(Arc::new(Drive::Simulated(Simulated::new(options))), 0)
}

/// On memory, and on such a drive.
fn with_zone(memories: &Memories, millis: u64) -> Device {
    let Device::Memory(areas) = memories.device() else { panic!("memory") };
    let places = areas.into_iter().map(Place::Memory);
    Device::Both(places.chain([Place::Zone(zone(millis))]).collect())
}

async fn opened(device: Device, story: &str) -> Log {
    match Log::open(device, BYTES, RING).await {
        Ok((log, _)) => log,
        Err(error) => panic!("{story}: {error}"),
    }
}

/// The drive was lost with the power, and memory had the last of it in the processor's caches.
#[test]
fn what_group_commit_wrote_to_memory_is_there_without_the_drive() {
    for seed in 0..8 {
        simulate(seed, async move {
            let memories = Memories::new(1);
            let log = Log::create(with_zone(&memories, 1), BYTES, RING).await.unwrap();
            for n in 0..4 {
                write(&log, key(1, n), n..n + 1).await;
            }
            drop(log);
            memories.crash(&mut Prng::new(seed));
            let story = format!("seed {seed}");
            let log = opened(memories.device(), &story).await;
            let tags: Vec<_> = (0..4).map(|n| tag(&log, key(1, n))).collect();
            assert_eq!(tags, [0, 1, 2, 3].map(Some), "{story}");
        });
    }
}

#[test]
fn the_fence_of_group_commit_is_missed() {
    misses(Step::CommitFence, "seed", what_group_commit_wrote_to_memory_is_there_without_the_drive);
}

/// A control block said that the record which skips a page's end is durable, and power had left nothing of it: the log was
/// refused, for what it lacked had to be told of.
#[test]
fn the_page_skipped_before_group_commit_is_there_before_a_control_block_says_so() {
    for seed in 0..16 {
        simulate(seed, async move {
            let memories = Memories::new(1);
            let log = Log::create(memories.device(), BYTES, RING).await.unwrap();
            write(&log, key(1, 0), 0..1).await;
            log.gather().await.unwrap();
            memories.sides[0].cut_at_fence(1);
            log.settle_surely().await.unwrap();
            drop(log);
            memories.crash(&mut Prng::new(seed));
            let story = format!("seed {seed}");
            let log = opened(memories.device(), &story).await;
            assert_eq!(tag(&log, key(1, 0)), Some(0), "{story}");
        });
    }
}

#[test]
fn the_fence_behind_a_page_that_is_skipped_is_missed() {
    misses(
        Step::PadFence,
        "seed",
        the_page_skipped_before_group_commit_is_there_before_a_control_block_says_so,
    );
}

/// Records that waited for a commit under way were in the image only, which nobody needed any more.
#[test]
fn what_gathered_is_on_memory_before_records_go_straight_there() {
    simulate(1, async move {
        let memories = Memories::new(1);
        let log = Rc::new(Log::create(with_zone(&memories, 5), BYTES, RING).await.unwrap());
        let appended = Rc::new(Cell::new(0));
        let mut appends = Vec::new();
        for n in 0..3 {
            let (log, appended) = (Rc::clone(&log), Rc::clone(&appended));
            appends.push(spawn(async move {
                let data = block(n);
                let append = Append::Write { key: key(1, n), data: &[&data] };
                let done = log.append(append).await;
                appended.set(appended.get() + u64::from(done.is_ok()));
            }));
            // The first commit has the first record alone.
            reactor::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(appended.get(), 0, "the first commit is under way");
        log.go_straight().await.unwrap();
        for append in appends {
            append.await.unwrap();
        }
        assert_eq!(appended.get(), 3, "what was appended is not there");
        drop(log);
        memories.crash(&mut Prng::new(1));
        let log = opened(memories.device(), "after a crash").await;
        let tags: Vec<_> = (0..3).map(|n| tag(&log, key(1, n))).collect();
        assert_eq!(tags, [0, 1, 2].map(Some));
    });
}

#[test]
fn the_wait_for_what_gathered_is_missed() {
    misses(Step::StraightSettles, "", what_gathered_is_on_memory_before_records_go_straight_there);
}

/// A commit was under way when a device joined: it went by the device, and what was copied ended before it.
#[test]
fn what_was_on_its_way_when_a_device_joined_is_there_too() {
    simulate(1, async move {
        let memories = Memories::new(1);
        let Device::Memory(areas) = memories.device() else { panic!("memory") };
        let device = Device::Drives(vec![zone(5)]);
        let log = Rc::new(Log::create(device, BYTES, RING).await.unwrap());
        let first = spawn({
            let log = Rc::clone(&log);
            async move { write(&log, key(1, 0), 0..1).await }
        });
        reactor::sleep(Duration::from_millis(1)).await;
        let tenant = log.shared.store.owner().members().begin([1; 16]).unwrap();
        let place = Place::Memory(areas[0].clone());
        log.join(Joining { tenant, drive: None, place }).await.unwrap();
        first.await.unwrap();
        write(&log, key(1, 1), 1..2).await;
        drop(log);
        memories.crash(&mut Prng::new(1));
        let log = opened(memories.device(), "of the one that joined").await;
        let tags: Vec<_> = (0..2).map(|n| tag(&log, key(1, n))).collect();
        assert_eq!(tags, [Some(0), Some(1)], "of the one that joined");
    });
}

#[test]
fn the_wait_for_what_is_on_its_way_when_a_device_joins_is_missed() {
    misses(
        Step::JoinSettles,
        "of the one that joined",
        what_was_on_its_way_when_a_device_joined_is_there_too,
    );
}

/// A device had a part of the log, from a move that was cut short, and one slot that says so. The next move was cut short in
/// the midst of that slot: what was left said nothing, and was taken for a device of the log that lost its control block.
#[test]
fn a_device_with_a_part_of_the_log_says_whose_it_is_at_any_moment() {
    for (blank, seed, fence) in (0..2).flat_map(|blank| {
        (0..8).flat_map(move |seed| (1..5).map(move |fence| (blank, seed, fence)))
    }) {
        simulate(seed, async move {
            let memories = Memories::new(2);
            let Device::Memory(areas) = memories.device() else { panic!("memory") };
            let log = Log::create(Device::Memory(areas[..1].to_vec()), BYTES, RING).await.unwrap();
            write(&log, key(1, 0), 0..4).await;
            let part = &areas[1].pmem;
            part.write(0, &memories.sides[0].contents()).unwrap();
            part.write(blank * limits::PAGE, &[0; 128]).unwrap();
            part.write((1 - blank) * limits::PAGE, &memories.sides[0].contents()[..128]).unwrap();
            part.fence();
            let tenant = log.shared.store.owner().members().begin([2; 16]).unwrap();
            let place = Place::Memory(areas[1].clone());
            memories.sides[1].cut_at_fence(fence);
            let _ = log.join(Joining { tenant, drive: None, place: place.clone() }).await;
            drop(log);
            memories.crash(&mut Prng::new(seed));
            let found = identify(&[place], BYTES, [0; 16], RING, true).await.unwrap();
            let story = format!("slot {blank}, seed {seed}, fence {fence}");
            assert!(matches!(found, Identity::Member { .. }), "{story}: {found:?}");
        });
    }
}

#[test]
fn the_fence_behind_what_a_device_says_it_is_is_missed() {
    misses(
        Step::MarkFence,
        "Records",
        a_device_with_a_part_of_the_log_says_whose_it_is_at_any_moment,
    );
}
