//! The workload: hosts that read and write, and a manager that makes and changes volumes.

mod groups;

use crate::contents::BLOCK;
use crate::life::Life;
use crate::model::Target;
use crate::plan::{Action, length};
use reactor::{random, sleep, spawn, sync::Semaphore};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use stdx::Prng;
use stdx::num::{u64_of, usize64};

/// Volumes in use: each with places for its hosts, all of which the manager takes to change it, or none where it is
/// changed beside what they do.
struct Volume {
    target: RefCell<Option<Target>>,
    places: Semaphore,
    /// One change at a time.
    turn: Semaphore,
    snapshots: RefCell<Vec<Target>>,
}

/// Bytes of a small block.
const SMALL: usize = 512;

/// What names of snapshots begin with, and no volume's.
pub const SNAPSHOT: char = 's';

/// Snapshots of a volume at most.
const SNAPSHOTS: usize = 4;

/// Clones beside the other volumes at most, to begin with.
const CLONES: usize = 3;

/// Of so many operations that have to do with snapshots one has to do with those of a group.
const GROUPS: u64 = 6;

/// More than there can be hosts.
const PLACES: usize = 1 << 10;

/// What hosts wait between operations that are refused because too many drives are away.
const REFUSED_PAUSE: Duration = Duration::from_micros(200);

/// Of so many operations one moves the log, where it moves.
const LOG_MOVES: u64 = 100;

struct Yard {
    volumes: Vec<Volume>,
    /// One group at a time.
    grouping: Semaphore,
}

pub use groups::GROUP_SNAPSHOT;

/// Runs all hosts and the manager until each has done its share.
pub async fn work(life: &Rc<Life>) {
    let yard = Rc::new(open_yard(life).await);
    let mut tasks = Vec::new();
    for number in 0..life.run.plan.hosts {
        let (life, yard) = (Rc::clone(life), Rc::clone(&yard));
        tasks.push(spawn(async move { host(&life, &yard, number).await }));
    }
    for task in tasks {
        task.await;
    }
}

/// Takes over the volumes there are, and makes more.
async fn open_yard(life: &Life) -> Yard {
    let present = life.run.model.borrow().present();
    let (snapshots, present): (Vec<_>, Vec<_>) =
        present.into_iter().partition(|v| v.parent.is_some());
    let mut volumes: Vec<Volume> = present.into_iter().map(|v| volume(Some(v))).collect();
    for snapshot in snapshots {
        let is_of = |v: &Volume| v.target.borrow().as_ref().map(|v| v.serial) == snapshot.parent;
        if let Some(of) = volumes.iter().find(|v| is_of(v)) {
            of.snapshots.borrow_mut().push(snapshot);
        }
    }
    let most = usize64(life.run.plan.volumes).max(volumes.len());
    volumes.resize_with(most, || volume(None));
    let volumes = volumes.into_iter().chain(clones(life)).collect();
    let yard = Yard { volumes, grouping: Semaphore::new(1) };
    for volume in yard.volumes[..most].iter().filter(|v| v.target.borrow().is_none()) {
        if !life.is_over() {
            create(life, volume).await;
        }
    }
    yard
}

/// Room for clones, where there are snapshots.
fn clones(life: &Life) -> impl Iterator<Item = Volume> {
    let most = if life.run.plan.snapshot_percent > 0 { CLONES } else { 0 };
    (0..most).map(|_| volume(None))
}

const fn volume(target: Option<Target>) -> Volume {
    Volume {
        target: RefCell::new(target),
        places: Semaphore::new(PLACES),
        turn: Semaphore::new(1),
        snapshots: RefCell::new(Vec::new()),
    }
}

fn size(life: &Life, prng: &mut Prng) -> u64 {
    let sizes = &life.run.plan.sizes;
    sizes.start + prng.below(sizes.end - sizes.start)
}

async fn create(life: &Life, volume: &Volume) {
    let mut prng = Prng::new(random());
    let name = format!("v{}", prng.below(1_000_000_000));
    let small = prng.below(100) < life.run.plan.small_percent && life.store.has_small_blocks();
    let unit = if small { SMALL } else { BLOCK };
    life.create(&name, size(life, &mut prng) * u64_of(BLOCK / unit), unit).await;
    let present = life.run.model.borrow().present();
    volume.target.replace(present.into_iter().find(|v| v.name == name));
}

async fn host(life: &Rc<Life>, yard: &Yard, number: u32) {
    let mut prng = Prng::new(random() ^ u64::from(number));
    let mut done = 0;
    while done < life.operations && !life.is_over() {
        done += 1;
        if life.run.world.is_broken() {
            // All that is asked is refused at once: who asks again at once asks without end while hardly any time
            // goes by, and each write that failed is one more that any block may hold.
            sleep(REFUSED_PAUSE).await;
        }
        let at = usize64(prng.below(u64_of(yard.volumes.len())));
        let volume = &yard.volumes[at];
        if prng.below(if life.run.plan.beside_percent > 0 { 50 } else { 200 }) == 0 {
            let share = life.run.plan.beside_percent;
            let beside = share > 0 && prng.below(100) < share;
            let places = if beside { 1 } else { PLACES };
            volume.places.acquire(places).await;
            volume.turn.acquire(1).await;
            manage(life, volume, !beside, &mut prng).await;
            volume.turn.release(1);
            volume.places.release(places);
            continue;
        }
        let snapshots = life.run.plan.snapshot_percent;
        if snapshots > 0 && prng.below(100) < snapshots {
            if prng.below(GROUPS) == 0 {
                groups::group(life, yard, &mut prng).await;
                continue;
            }
            volume.places.acquire(1).await;
            snapshot(life, yard, volume, &mut prng).await;
            volume.places.release(1);
            continue;
        }
        if life.run.plan.moves_log && prng.below(LOG_MOVES) == 0 {
            life.move_log().await;
            continue;
        }
        let settles = life.run.plan.settles;
        if settles > 0 && prng.below(10_000) < settles {
            life.settle().await;
            continue;
        }
        let copies = life.run.plan.copy_percent;
        if copies > 0 && prng.below(100) < copies {
            copy(life, yard, at, &mut prng).await;
            continue;
        }
        volume.places.acquire(1).await;
        operate(life, volume, &mut prng).await;
        volume.places.release(1);
    }
}

/// Changes a volume, or makes another in its place.
async fn manage(life: &Life, volume: &Volume, is_alone: bool, prng: &mut Prng) {
    let target = volume.target.borrow().clone();
    let Some(target) = target else { return create(life, volume).await };
    let snapshots = volume.snapshots.borrow().len();
    // Whoever wrote meanwhile would be told that the volume is gone.
    if snapshots > 0 && is_alone && prng.below(2) == 0 {
        return roll_back(life, volume, &target, prng).await;
    }
    match prng.below(5) {
        0 | 1 => {
            while !volume.snapshots.borrow().is_empty() {
                if !delete_snapshot(life, volume, prng).await {
                    return;
                }
            }
            volume.target.replace(None);
            let done = life.delete(&target).await;
            volume.target.replace((!done && !life.is_over()).then_some(target));
        }
        2 => {
            let name = format!("v{}", prng.below(1_000_000_000));
            let done = life.rename(&target, &name).await;
            volume.target.replace(Some(if done { Target { name, ..target } } else { target }));
        }
        _ => {
            let size = size(life, prng) * u64_of(BLOCK / target.unit);
            let done = life.resize(&target, size).await;
            volume.target.replace(Some(if done { Target { size, ..target } } else { target }));
        }
    }
}

/// Takes a volume back to one of its snapshots.
async fn roll_back(life: &Life, volume: &Volume, target: &Target, prng: &mut Prng) {
    let Some(to) = any_snapshot(volume, prng) else { return };
    let has_room = volume.snapshots.borrow().len() < SNAPSHOTS;
    let keep =
        (has_room && prng.below(3) > 0).then(|| format!("{SNAPSHOT}{}", prng.below(1_000_000_000)));
    let (done, kept) = life.roll_back(target, &to, keep.as_deref()).await;
    volume.snapshots.borrow_mut().extend(kept);
    if done {
        let target = Target { size: to.size, inherits: true, ..target.clone() };
        volume.target.replace(Some(target.clone()));
        if prng.below(2) == 0 {
            life.detach(&target, false).await;
        }
    }
}

/// Makes a clone of a volume's snapshot where no volume is. Whoever calls has the turn of the volume.
async fn clone(life: &Life, yard: &Yard, volume: &Volume, prng: &mut Prng) {
    let Some(free) = yard.volumes.iter().find(|v| v.target.borrow().is_none()) else { return };
    let Some(snapshot) = any_snapshot(volume, prng) else { return };
    if !free.turn.try_acquire(1) {
        return;
    }
    // It may have been taken meanwhile.
    if free.target.borrow().is_none() {
        let name = format!("v{}", prng.below(1_000_000_000));
        let ratio = u64_of(BLOCK / snapshot.unit);
        let size = snapshot.size.max(size(life, prng) * ratio);
        let made = life.clone_volume(&snapshot, &name, size).await;
        free.target.replace(made.clone());
        if let Some(made) = made.filter(|_| prng.below(2) == 0) {
            life.detach(&made, false).await;
        }
    }
    free.turn.release(1);
}

/// Takes a snapshot of a volume, makes a clone of one, detaches a clone, deletes a snapshot, reads one, or copies from one.
async fn snapshot(life: &Life, yard: &Yard, volume: &Volume, prng: &mut Prng) {
    let target = volume.target.borrow().clone();
    let Some(target) = target else { return sleep(Duration::from_micros(10)).await };
    let action = prng.below(10);
    if action < 4 {
        volume.turn.acquire(1).await;
        // It may have gone meanwhile.
        let target = volume.target.borrow().clone();
        if let Some(target) = target {
            if action == 3 {
                clone(life, yard, volume, prng).await;
            } else if action == 2 && target.inherits && prng.below(2) == 0 {
                life.detach(&target, prng.below(8) == 0).await;
            } else if action == 0 || volume.snapshots.borrow().len() >= SNAPSHOTS {
                delete_snapshot(life, volume, prng).await;
            } else {
                let name = format!("{SNAPSHOT}{}", prng.below(1_000_000_000));
                let taken = life.take_snapshot(&target, &name).await;
                volume.snapshots.borrow_mut().extend(taken);
            }
        }
        volume.turn.release(1);
        return;
    }
    let Some(snapshot) = any_snapshot(volume, prng) else { return };
    let count = length(prng, life.run.plan.longest).min(snapshot.size).min(target.size);
    let (from, to) = (prng.below(snapshot.size - count + 1), prng.below(target.size - count + 1));
    match action {
        4 => life.copy((&snapshot, from), (&target, to), count, None).await,
        _ => life.read(&snapshot, from, count, patience(life, prng)).await,
    }
}

fn any_snapshot(volume: &Volume, prng: &mut Prng) -> Option<Target> {
    let snapshots = volume.snapshots.borrow();
    let nth = usize64(prng.below(u64_of(snapshots.len()).max(1)));
    snapshots.get(nth).cloned()
}

/// Deletes one of a volume's snapshots; tells whether that is done. Whoever calls has the turn.
async fn delete_snapshot(life: &Life, volume: &Volume, prng: &mut Prng) -> bool {
    let Some(snapshot) = any_snapshot(volume, prng) else { return true };
    volume.snapshots.borrow_mut().retain(|other| other.serial != snapshot.serial);
    let done = life.delete(&snapshot).await;
    if !done && !life.is_over() {
        volume.snapshots.borrow_mut().push(snapshot);
    }
    done
}

/// How long a host waits for an answer, if it may not wait until there is one.
fn patience(life: &Life, prng: &mut Prng) -> Option<Duration> {
    let impatient = prng.below(100) < life.run.plan.impatience;
    impatient.then(|| {
        let most = 1 << prng.below(life.run.plan.patience);
        Duration::from_nanos(prng.below(most))
    })
}

/// Copies from volume number `at` to another, or within it.
async fn copy(life: &Rc<Life>, yard: &Yard, at: usize, prng: &mut Prng) {
    let to = usize64(prng.below(u64_of(yard.volumes.len())));
    // In the order of their numbers, as everybody takes them.
    let places = [at.min(to), at.max(to)];
    let places = &places[..1 + usize::from(at != to)];
    for n in places {
        yard.volumes[*n].places.acquire(1).await;
    }
    let target = |n: usize| yard.volumes[n].target.borrow().clone();
    match (target(at), target(to)) {
        (Some(source), Some(target)) if source.unit == target.unit => {
            copy_some(life, &source, &target, prng).await;
        }
        _ => sleep(Duration::from_micros(10)).await,
    }
    for n in places {
        yard.volumes[*n].places.release(1);
    }
}

async fn copy_some(life: &Rc<Life>, source: &Target, target: &Target, prng: &mut Prng) {
    let plan = &life.run.plan;
    let least = source.size.min(target.size);
    let ratio = u64_of(BLOCK / source.unit);
    let mut count = length(prng, plan.longest * ratio).min(least);
    let hot = prng.below(100) < plan.hot_percent;
    let mut first = |v: &Target| {
        let within = if hot { plan.hot_blocks.clamp(count, v.size) } else { v.size };
        prng.below(within - count + 1)
    };
    let (mut from, mut to) = (first(source), first(target));
    // Often whole blocks: others cannot be shared.
    if prng.below(4) > 0 && count >= ratio {
        (from, to, count) = (from / ratio * ratio, to / ratio * ratio, count / ratio * ratio);
    }
    // A block that is copied to itself stays as it is, and so does what may yet come to it.
    if source.serial == target.serial && from == to {
        return;
    }
    let patience = patience(life, prng);
    let apart = source.serial != target.serial || from.abs_diff(to) >= count;
    let moves = plan.move_percent > 0 && apart && prng.below(100) < plan.move_percent;
    let gone = moves.then(|| {
        let (life, source) = (Rc::clone(life), source.clone());
        let most = 1 << prng.below(24);
        let pause = Duration::from_nanos(prng.below(most));
        spawn(async move {
            sleep(pause).await;
            life.zero(&source, from..from + count, true, None).await;
        })
    });
    life.copy((source, from), (target, to), count, patience).await;
    if let Some(gone) = gone {
        gone.await;
    }
}

async fn operate(life: &Life, volume: &Volume, prng: &mut Prng) {
    let plan = &life.run.plan;
    let target = volume.target.borrow().clone();
    let Some(v) = target else { return sleep(Duration::from_micros(10)).await };
    let count = length(prng, plan.longest).min(v.size);
    let hot = prng.below(100) < plan.hot_percent;
    let within = if hot { plan.hot_blocks.clamp(count, v.size) } else { v.size };
    let first = prng.below(within - count + 1);
    let patience = patience(life, prng);
    match plan.mix.pick(prng) {
        Action::Write => life.write(&v, first, count, patience).await,
        Action::Read => life.read(&v, first, count, patience).await,
        Action::Zero => life.zero(&v, first..first + count, false, patience).await,
        Action::Deallocate => life.zero(&v, first..first + count, true, patience).await,
        Action::Flush => life.flush(&v).await,
        Action::Rest => sleep(Duration::from_nanos(prng.below(life.run.plan.longest_rest()))).await,
    }
}
