//! What the workload does with groups: volumes of which snapshots are taken at one instant, and cloned and deleted together.

use super::{SNAPSHOTS, Volume, Yard, any_snapshot};
use crate::life::Life;
use crate::model::{Copied, Target};
use reactor::spawn;
use std::cell::Cell;
use std::rc::Rc;
use stdx::Prng;
use stdx::num::{u64_of, usize64};

/// What names of snapshots begin with that several volumes have together.
pub const GROUP_SNAPSHOT: &str = "sg";

/// Volumes of a group at most.
const MEMBERS: u64 = 3;

/// Writes to each of them while its snapshot is taken, at most: that may have to wait for long.
const ROUNDS: u64 = 100;

/// Takes snapshots of some volumes at one instant, while somebody writes to them one after another, and clones these, or
/// deletes what they have together.
pub async fn group(life: &Rc<Life>, yard: &Yard, prng: &mut Prng) {
    yard.grouping.acquire(1).await;
    let mut numbers: Vec<usize> = (0..2 + prng.below(MEMBERS - 1))
        .map(|_| usize64(prng.below(u64_of(yard.volumes.len()))))
        .collect();
    // In the order of their numbers, as everybody takes them.
    numbers.sort_unstable();
    numbers.dedup();
    let all: Vec<&Volume> = numbers.iter().map(|number| &yard.volumes[*number]).collect();
    for volume in &all {
        volume.places.acquire(1).await;
        volume.turn.acquire(1).await;
    }
    let there = all.iter().copied().filter(|volume| volume.target.borrow().is_some());
    let there: Vec<&Volume> = there.collect();
    let has_room = there.iter().all(|volume| volume.snapshots.borrow().len() < SNAPSHOTS);
    if there.len() > 1 && (!has_room || prng.below(4) == 0) {
        delete_some(life, &there, prng).await;
    } else if there.len() > 1 {
        take(life, yard, &there, prng).await;
    }
    for volume in &all {
        volume.turn.release(1);
        volume.places.release(1);
    }
    yard.grouping.release(1);
}

/// Deletes a snapshot of each of some volumes in one step.
async fn delete_some(life: &Life, volumes: &[&Volume], prng: &mut Prng) {
    let some = volumes.iter().filter_map(|volume| any_snapshot(volume, prng));
    let some: Vec<Target> = some.collect();
    if some.is_empty() {
        return;
    }
    let is_some = |other: &Target| some.iter().any(|one| one.serial == other.serial);
    for volume in volumes {
        volume.snapshots.borrow_mut().retain(|other| !is_some(other));
    }
    if !life.delete_together(&some).await && !life.is_over() {
        for volume in volumes {
            let target = volume.target.borrow().as_ref().map(|v| v.serial);
            let own = some.iter().filter(|one| one.parent == target).cloned();
            volume.snapshots.borrow_mut().extend(own);
        }
    }
}

async fn take(life: &Rc<Life>, yard: &Yard, volumes: &[&Volume], prng: &mut Prng) {
    let of = volumes.iter().filter_map(|volume| volume.target.borrow().clone());
    let of: Vec<Target> = of.collect();
    let blocks: Vec<u64> = of.iter().map(|v| prng.below(v.size)).collect();
    let name = format!("{GROUP_SNAPSHOT}{}", prng.below(1_000_000_000));
    let is_done = Rc::new(Cell::new(false));
    let mut writing = None;
    let begun = |copies: &[u64]| {
        let copied = |((v, block), copy): ((&Target, &u64), &u64)| Copied {
            copy: *copy,
            of: v.serial,
            block: *block,
        };
        let copies = of.iter().zip(&blocks).zip(copies).map(copied).collect();
        let instant = life.run.model.borrow_mut().begin_instant(copies);
        let all = of.iter().cloned().zip(blocks.iter().copied()).collect();
        writing = Some(spawn(write(Rc::clone(life), instant, all, Rc::clone(&is_done))));
    };
    if let Some(taken) = life.take_group(&of, &name, begun).await {
        for (volume, snapshot) in volumes.iter().zip(&taken) {
            volume.snapshots.borrow_mut().push(snapshot.clone());
        }
        if prng.below(2) == 0 {
            clone(life, yard, (&of, &name), &taken, prng).await;
        }
        life.check_instants().await;
    }
    is_done.set(true);
    if let Some(writing) = writing {
        writing.await;
    }
}

/// Writes to volumes one after another, each once the one before was answered.
async fn write(life: Rc<Life>, instant: u64, all: Vec<(Target, u64)>, is_done: Rc<Cell<bool>>) {
    for _ in 0..ROUNDS {
        if is_done.get() || life.is_over() {
            return;
        }
        for (number, (v, block)) in all.iter().enumerate() {
            if !life.write_in_order(instant, number, (v, *block)).await {
                return;
            }
        }
    }
}

/// Makes a clone of each of a group's snapshots where no volumes are.
async fn clone(
    life: &Life,
    yard: &Yard,
    of: (&[Target], &str),
    snapshots: &[Target],
    prng: &mut Prng,
) {
    let is_free = |v: &&Volume| v.target.borrow().is_none() && v.turn.try_acquire(1);
    let free: Vec<&Volume> = yard.volumes.iter().filter(is_free).take(snapshots.len()).collect();
    if free.len() == snapshots.len() {
        let names = snapshots.iter().map(|_| format!("v{}", prng.below(1_000_000_000)));
        let names: Vec<String> = names.collect();
        for (clone, free) in
            life.clone_group(of, snapshots, &names).await.into_iter().flatten().zip(&free)
        {
            if prng.below(4) == 0 {
                life.detach(&clone, false).await;
            }
            free.target.replace(Some(clone));
        }
    }
    free.iter().for_each(|free| free.turn.release(1));
}
