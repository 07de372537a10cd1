//! Pools that get wider, and do without drives that are gone.

use api::v1::{DriveState, JobKind, JobState, Kind, NewDrives};
use api::value::PoolDrive;

use super::*;
use crate::jobs::{Asked, Begun, Made, Moving, Task, Work};
use crate::pools::{OpenPool, PausedRebuild, PoolDef, Reopening};

fn place(index: u16) -> PoolDrive {
    PoolDrive { pool: named("fast"), index }
}

fn done(node: &Arc<Node>, work: Work) -> api::v1::Job {
    let job = node.submit(work, None, false).unwrap();
    let job = node.wait_for_job(job.id, PATIENCE).unwrap();
    assert!(job.state.is_over(), "{job:?}");
    job
}

fn add(node: &Arc<Node>, dir: &Path, names: &[&str]) {
    let drive = |name: &&str| format!("{}/{name},size=192MiB", dir.display()).parse().unwrap();
    let new = NewDrives { drives: names.iter().map(drive).collect(), force: false };
    let job = done(node, Work::AddDrives(named("fast"), new));
    assert_eq!(job.state, JobState::Done, "{job:?}");
}

fn drive_health(node: &Node, index: u16) -> DriveState {
    node.drive(&place(index)).unwrap().health
}

fn def(node: &Node) -> PoolDef {
    node.view().state.pools[&named("fast")].clone()
}

fn open(node: &Node) -> Arc<OpenPool> {
    node.view().serving().unwrap().pools.pool(&named("fast")).unwrap()
}

/// As if that had been paused, of which nothing is left.
fn pause(node: &Node, drive: Option<u16>) {
    let paused = PausedRebuild::new(drive, &[], false, &api::v1::Rebuild::default());
    node.remember(&named("fast"), move |def| def.paused = Some(paused)).unwrap();
}

/// It came back, or another one had its place, before it was empty: the job was done, and anybody could take the drive.
#[test]
fn a_drive_that_is_in_use_is_not_emptied() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    // Nothing is moved any more when it ends.
    pause(&node, None);
    let on = Moving { resumes: true, ..Moving::default() };
    let error = node.move_away(&place(2), on, &Task::default()).unwrap_err();
    assert_eq!(error.kind, Kind::Conflict, "{error}");
    assert!(error.context.contains("came or went"), "{error}");
    assert!(open(&node).own_lock(&dir.join("fast2")).is_some());
    assert_eq!(said(&node, "nothing of pool fast is left on its drive 2"), 0);
    node.stop();
}

/// It was told as failed, and a removal as one that nobody goes on with.
#[test]
fn what_a_pool_is_closed_in_the_midst_of_goes_on_later() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    let before = open(&node);
    let again = Reopening { pool: Arc::clone(&before), why: "a test".to_owned() };
    node.open_again(again).unwrap();
    assert!(node.wait_for_openings(PATIENCE));
    assert_eq!(health(&node, "fast"), PoolHealth::Online);
    let none = Task::default();
    let error = node.empty(&before, None, Moving::default(), &none).unwrap_err();
    assert_eq!(error.kind, Kind::Stopping, "{error}");
    let error = node.empty(&open(&node), None, Moving::default(), &none).unwrap_err();
    assert_eq!(error.kind, Kind::NotFound, "{error}");
    node.stop();
}

/// The one that failed, for the drive is emptied already, had the other one forgotten: a node that was killed then emptied
/// the drive, and did not wipe it.
#[test]
fn a_drive_is_removed_once_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    add(&node, dir, &["more"]);
    let work = || Work::RemoveDrive(place(2), Moving::default(), Consent::FORCE);
    let first = work();
    let begun = node.owner.ask(move |owned| {
        let asked = Asked { by: "a test".to_owned(), key: None, is_async: true, is_own: false };
        owned.jobs.begin(&owned.dir, &owned.state, &first, asked)
    });
    let Begun::New(_, task) = begun.unwrap() else { panic!("it has no key") };
    let id = uuid::Uuid::from_bytes(open(&node).status().unwrap().drives[2].id);
    node.remember(&named("fast"), move |def| _ = def.removing.insert(2, id)).unwrap();
    let error = done(&node, work()).error.unwrap();
    assert!(error.message.contains("being removed already"), "{error:?}");
    assert!(def(&node).removing.contains_key(&2));
    assert_eq!(drive_health(&node, 2), DriveState::Online);
    let end = move |owned: &mut Owned| owned.jobs.end(&owned.dir, &task, Ok(Made::Nothing));
    node.owner.ask(end).unwrap();
    node.stop();
}

/// It began again with the next look: nothing was moved yet.
#[test]
fn what_is_stopped_before_anything_moves_stays_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    let turn = node.turn(&named("fast"), &Task::default()).unwrap();
    let relieve = Work::RelieveDrive(place(2), uuid::Uuid::nil());
    let job = node.submit(relieve, None, true).unwrap();
    node.stop_rebuild(&named("fast")).unwrap();
    assert_eq!(node.job(job.id).unwrap().state, JobState::Cancelled);
    assert!(def(&node).stopped.contains(&2));
    drop(turn);
    node.stop();
}

#[test]
fn what_a_drive_had_that_is_gone_is_rebuilt_on_the_others_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    add(&node, dir, &["more"]);
    assert_eq!(drive_health(&node, 4), DriveState::Online);
    node.stop();
    drop(node);
    fs::rename(dir.join("fast1"), dir.join("away")).unwrap();
    let node = start(dir, "wait-for-drives = 0\nrebuild-after = 1", "");
    assert_eq!(health(&node, "fast"), PoolHealth::Degraded);
    returned::wait_until_whole(&node, "fast");
    assert_eq!(drive_health(&node, 1), DriveState::Vacant);
    let job = node.jobs().into_iter().find(|job| job.kind == JobKind::PoolRebuild).unwrap();
    let job = node.wait_for_job(job.id, PATIENCE).unwrap();
    assert_eq!((job.state, &*job.by), (JobState::Done, "the node"), "{job:?}");
    assert_eq!(said(&node, "the redundancy of pool fast is whole"), 1);
    // One that failed while an operator had it emptied was taken back by itself.
    assert!(!node.drive(&place(1)).unwrap().retired);
    pause(&node, Some(1));
    let on = Moving { resumes: true, ..Moving::default() };
    node.move_away(&place(1), on, &Task::default()).unwrap();
    assert!(node.drive(&place(1)).unwrap().retired);
    node.stop();
    drop(node);
    // What was on it is on the others.
    fs::remove_file(dir.join("fast0")).unwrap();
    let node = start(dir, "wait-for-drives = 0\nrebuild-after = 0", "");
    assert_eq!(health(&node, "fast"), PoolHealth::Degraded);
    assert_eq!(node.volumes().unwrap().len(), 1);
    node.stop();
}

#[test]
fn a_drive_that_is_emptied_can_be_taken_away_and_its_place_be_filled_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    let how = Moving::default();
    let error = done(&node, Work::EvacuateDrive(place(2), how)).error.unwrap();
    assert!(error.message.contains("too few drives"), "{error:?}");
    add(&node, dir, &["more", "last"]);
    let job = done(&node, Work::EvacuateDrive(place(2), how));
    assert_eq!(job.state, JobState::Done, "{job:?}");
    assert_eq!(drive_health(&node, 2), DriveState::Vacant);
    assert_eq!(health(&node, "fast"), PoolHealth::Online);
    // Nobody holds it any more.
    fs::remove_file(dir.join("fast2")).unwrap();
    let error = done(&node, Work::Rebuild(named("fast"), how)).error.unwrap();
    assert_eq!(error.kind, Kind::NotFound, "{error:?}");
    let new = api::v1::DriveReplacement {
        drive: format!("{}/new,size=192MiB", dir.display()).parse().unwrap(),
        force: false,
    };
    let job = done(&node, Work::ReplaceDrive(place(2), new));
    assert_eq!(job.state, JobState::Done, "{job:?}");
    assert_eq!(drive_health(&node, 2), DriveState::Online);
    node.stop();
    drop(node);
    let node = start(dir, "wait-for-drives = 3600", "");
    assert_eq!(health(&node, "fast"), PoolHealth::Online, "{:?}", node.events(0));
    assert_eq!(node.drives().unwrap().len(), 6);
    node.stop();
}
