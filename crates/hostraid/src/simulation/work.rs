//! What is done to a set while it is used.

use std::ops::Range;
use std::time::Duration;

use initiator::{Buffer, Deallocate, Fua};
use reactor::sleep;
use stdx::num::{low32, u64_of, usize64};

use super::Outcome;
use super::model::{SECTOR, fill};
use super::world::World;
use crate::{Health, Set};

pub(super) async fn work(world: &World, set: &Set, operations: u64) -> Outcome {
    for _ in 0..operations {
        if set.inner.usable().is_err() {
            return Ok(());
        }
        let sectors = world.model.borrow().sectors();
        let longest = if world.chance(30) { 96 } else { 9 };
        let count = 1 + world.below(longest.min(sectors));
        let start = world.below(sectors - count + 1);
        let range = start..start + count;
        if !world.model.borrow_mut().take(&range) {
            sleep(Duration::from_micros(world.below(200))).await;
            continue;
        }
        let done = match world.below(10) {
            0..=2 => read(world, set, &range).await,
            3 => zero(world, set, &range).await,
            _ => write(world, set, &range).await,
        };
        world.model.borrow_mut().give(&range);
        done?;
        if world.chance(20) {
            sleep(Duration::from_micros(world.below(300))).await;
        }
    }
    Ok(())
}

pub(super) async fn write(world: &World, set: &Set, range: &Range<u64>) -> Outcome {
    let count = range.end - range.start;
    let stamp = world.model.borrow_mut().next_stamp();
    let mut buffer = Buffer::new(usize64(count) * SECTOR).await;
    fill(&mut buffer, range.start, stamp);
    world.model.borrow_mut().begin(range, stamp);
    let done = set.write(range.start, low32(count), &mut buffer, Fua::No).await;
    settled(world, set, range, stamp, "write", done)
}

pub(super) async fn zero(world: &World, set: &Set, range: &Range<u64>) -> Outcome {
    let stripe = set.layout().stripe_bytes() / u64_of(SECTOR);
    let gives_up = world.chance(30);
    let (count, mut inside) = (low32(range.end - range.start), range.clone());
    if gives_up {
        inside = range.start.next_multiple_of(stripe)..range.end / stripe * stripe;
    }
    world.model.borrow_mut().begin(&inside, 0);
    let done = if gives_up {
        set.deallocate(&[(range.start, count)]).await
    } else {
        set.write_zeroes(range.start, count, Deallocate::Yes, Fua::No).await
    };
    settled(world, set, &inside, 0, "zero", done)
}

pub(super) fn settled(
    world: &World,
    set: &Set,
    range: &Range<u64>,
    stamp: u64,
    what: &str,
    done: Result<(), initiator::Error>,
) -> Outcome {
    world.note((range.start, range.end, stamp, done.is_ok()));
    match done {
        Ok(()) => {
            world.count(|c| c.writes += 1);
            world.model.borrow_mut().end(range, stamp);
            Ok(())
        }
        Err(_) if set.inner.usable().is_err() => {
            world.count(|c| c.broken += 1);
            Ok(())
        }
        Err(error) => Err(format!("{what} of {range:?} failed: {error}")),
    }
}

pub(super) async fn read(world: &World, set: &Set, range: &Range<u64>) -> Outcome {
    let count = range.end - range.start;
    let mut buffer = Buffer::new(usize64(count) * SECTOR).await;
    match set.read(range.start, low32(count), &mut buffer).await {
        Ok(()) => {
            world.count(|c| c.reads += 1);
            world.note((range.start, count, buffer[..16].to_vec()));
            world.model.borrow_mut().check(range.start, &buffer)
        }
        Err(_) if set.inner.usable().is_err() => {
            world.count(|c| c.broken += 1);
            Ok(())
        }
        Err(error) => Err(format!("read of {range:?} failed: {error}")),
    }
}

/// Kills members, brings them back, damages sectors.
pub(super) async fn disturb(world: &World, set: &Set) -> Outcome {
    let kills = world.chance(60) && !world.damaged.get();
    let all = world.members.len();
    loop {
        sleep(Duration::from_micros(100 + world.below(3_000))).await;
        if set.inner.usable().is_err() {
            return Ok(());
        }
        let out = set.status().seats.iter().filter(|s| s.health != Health::InSync).count();
        let dead: Vec<_> = (0..all).filter(|&slot| world.dead.borrow()[slot]).collect();
        match world.below(4) {
            0 if kills => {
                let slot = usize64(world.below(u64_of(all)));
                // Now and then one more than it can do without: then it must stop.
                let most = world.tolerates() + usize::from(world.reckless && world.chance(40));
                let hits = usize::from(set.status().seats[slot].health == Health::InSync);
                if !world.dead.borrow()[slot] && out.max(dead.len()) + hits.max(1) <= most {
                    world.note(("kill", slot));
                    world.kill(slot);
                }
            }
            1 if !dead.is_empty() => {
                let slot = dead[usize64(world.below(u64_of(dead.len())))];
                world.note(("revive", slot));
                world.revive(slot);
            }
            2 => join_missing(world, set).await?,
            3 if !kills && out == 0 && dead.is_empty() && !world.damaged.get() => {
                damage(world, set);
            }
            _ => {}
        }
    }
}

/// Makes sectors of one member unreadable, in its data or its journal.
pub(super) fn damage(world: &World, set: &Set) {
    let slot = usize64(world.below(u64_of(world.members.len())));
    world.damaged.set(true);
    world.count(|c| c.damaged += 1);
    let layout = set.layout();
    for _ in 0..1 + world.below(6) {
        let journal = layout.data_at - crate::limits::JOURNAL_AT;
        let (at, len) = if world.chance(30) && layout.records > 0 {
            (crate::limits::JOURNAL_AT, journal)
        } else {
            (layout.data_at, layout.stripes * u64::from(layout.chunk))
        };
        let sector = world.below(len / u64_of(SECTOR));
        world.members[slot].damage(at + sector * u64_of(SECTOR), 512 << world.below(4));
    }
}

/// Takes in and rebuilds what is alive and missing.
pub(super) async fn join_missing(world: &World, set: &Set) -> Outcome {
    for slot in world.alive() {
        if set.status().seats[slot].health != Health::Missing {
            continue;
        }
        let joined = set.join(world.member(slot), [0; 16], false).await;
        world.note(("join", slot, joined.is_ok()));
        if let Ok(joined) = joined {
            let partial = joined.partial;
            world.count(|c| *(if partial { &mut c.partial } else { &mut c.whole }) += 1);
        }
    }
    for slot in set.to_rebuild() {
        let rebuilt = set.rebuild(slot, None, |_| {}).await;
        world.note(("rebuilt", slot, rebuilt.is_ok()));
        if rebuilt.is_ok() && world.chance(25) {
            world.doom.set(true);
            world.doomed.borrow().raise();
        }
        // It may have died meanwhile, or another one.
        let excused = world.alive().len() < world.members.len() || !set.inner.all_in_sync();
        if let Err(error) = rebuilt
            && set.inner.usable().is_ok()
            && !excused
        {
            return Err(format!("the rebuild of {slot} failed: {error}"));
        }
    }
    Ok(())
}
