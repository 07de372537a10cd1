//! Pools that get wider, and do without drives that are gone.

use api::v1::{DriveState, JobKind, JobState, Kind, NewDrives};
use api::value::PoolDrive;

use super::*;
use crate::jobs::{Moving, Work};

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
