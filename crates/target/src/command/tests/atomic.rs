//! Compare and Write against itself and against plain writes, on one core and on two.

use std::sync::Arc;

use nvme::status::Status;
use reactor::{Config, Handle, Reactor, yield_now};

use super::double::*;
use super::io::{exchange, range, read, write};
use crate::command::Attached;
use crate::namespace::Namespace;

const BLOCK: u64 = 3;

fn field(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*block[at..].first_chunk().unwrap())
}

/// Adds one to the block's second number if the block is still what was read.
async fn increment(at: &Attached, by: By) -> bool {
    let old = read(at, range(BLOCK, 1)).await;
    let mut new = old.clone();
    new[8..16].copy_from_slice(&(field(&old, 8) + 1).to_le_bytes());
    exchange(at, BLOCK, &old, &new, by).await.0 == Status::SUCCESS
}

/// Adds `count`, with as many tries as it takes.
async fn add(at: &Attached, by: By, count: u32) {
    for _ in 0..count {
        while !increment(at, by).await {
            yield_now().await;
        }
        yield_now().await;
    }
}

/// Writes ever larger first numbers plainly, over more than the block, and sees that no compare and
/// write brings an older one back.
async fn overwrite(at: &Attached, rounds: u64) {
    for round in 1..=rounds {
        let mut data = vec![0; 3 * 512];
        data[512..520].copy_from_slice(&round.to_le_bytes());
        let by = if round % 2 == 0 { By::Capsule } else { By::R2t };
        assert_eq!(write(at, BLOCK - 1, &data, by).await, Status::SUCCESS);
        for _ in 0..4 {
            yield_now().await;
            assert_eq!(field(&read(at, range(BLOCK, 1)).await, 0), round, "undone");
        }
    }
}

#[test]
fn additions_by_compare_and_write_are_never_lost() {
    on_reactor(async {
        for on in EVERYWHERE {
            let place = Place::new(on, 1, 16, 512).await;
            let tasks: Vec<_> = [By::Capsule, By::R2t, By::Capsule, By::R2t]
                .into_iter()
                .map(|by| {
                    let at = place.attach(HOST);
                    reactor::spawn(async move { add(&at, by, 25).await })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            let found = read(&place.attach(HOST), range(BLOCK, 1)).await;
            assert_eq!(field(&found, 8), 4 * 25);
        }
    });
}

#[test]
fn a_plain_write_is_never_undone_by_a_compare_and_write() {
    on_reactor(async {
        for on in EVERYWHERE {
            let place = Place::new(on, 1, 16, 512).await;
            for by in [By::Capsule, By::R2t, By::R2t] {
                let at = place.attach(OTHER);
                reactor::spawn(async move {
                    loop {
                        increment(&at, by).await;
                        yield_now().await;
                    }
                });
            }
            overwrite(&place.attach(HOST), 40).await;
        }
    });
}

fn start(name: &str) -> Handle {
    Reactor::start(Config { name: name.into(), ..Config::default() }).unwrap()
}

fn attach(namespace: Arc<Namespace>) -> Attached {
    Attached::new(namespace, HOST)
}

#[test]
fn both_hold_between_two_cores() {
    let cores = [start("one"), start("two")];
    // A volume is at home on a reactor that stays.
    for on in EVERYWHERE.into_iter().filter(|on| *on != On::Volume) {
        let place = on_reactor(Place::shared(on, 1, 16, 512));
        let calls = cores.each_ref().map(|core| {
            let namespace = Arc::clone(&place.namespace);
            core.call(move || async move {
                let at = attach(namespace);
                add(&at, By::Capsule, 40).await;
            })
        });
        for call in calls {
            call.wait().unwrap();
        }
        let (first, second) = (Arc::clone(&place.namespace), Arc::clone(&place.namespace));
        let adding = cores[0].call(move || async move {
            let at = attach(first);
            add(&at, By::R2t, 60).await;
            field(&read(&at, range(BLOCK, 1)).await, 8)
        });
        let writing = cores[1].call(move || async move {
            let at = attach(second);
            let before = field(&read(&at, range(BLOCK, 1)).await, 8);
            overwrite(&at, 25).await;
            before
        });
        assert!((80..=140).contains(&writing.wait().unwrap()), "every addition counted");
        adding.wait().unwrap();
    }
    for core in cores {
        core.stop();
        core.join().unwrap();
    }
}
