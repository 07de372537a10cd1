//! Drives that an operator takes out, has back, and replaces.

use api::v1::{Drive, DriveReplacement, DriveState, Job, JobState, Kind};
use api::value::PoolDrive;

use super::*;
use crate::jobs::Work;

fn place(index: u16) -> PoolDrive {
    PoolDrive { pool: named("fast"), index }
}

fn def(node: &Node) -> crate::pools::PoolDef {
    node.view().state.pools[&named("fast")].clone()
}

fn drive(node: &Node, index: u16) -> Drive {
    node.drive(&place(index)).unwrap()
}

fn done(node: &Arc<Node>, work: Work) -> Job {
    let job = node.submit(work, None, false).unwrap();
    let job = node.wait_for_job(job.id, PATIENCE).unwrap();
    assert!(job.state.is_over(), "{job:?}");
    job
}

fn replacement(path: &Path, force: bool) -> DriveReplacement {
    let size = if path.exists() { "" } else { ",size=192MiB" };
    let drive = format!("{}{size}", path.display()).parse().unwrap();
    DriveReplacement { drive, force }
}

#[test]
fn a_drive_that_is_taken_out_comes_back_when_it_is_asked_for_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    let job = done(&node, Work::FailDrive(place(1)));
    assert_eq!((job.state, &*job.target), (JobState::Done, "fast/1"), "{job:?}");
    assert!(drive(&node, 1).retired);
    let problem = node.pool(&named("fast")).unwrap().problem.unwrap();
    assert!(problem.starts_with("drive 1 was taken out by an operator"), "{problem}");
    // Neither while the pool is open nor when it is opened.
    open_late(&node);
    node.stop();
    drop(node);
    let node = start(dir, "wait-for-drives = 0", "");
    open_late(&node);
    assert_eq!((drive(&node, 1).health, drive(&node, 1).retired), (DriveState::Missing, true));
    let job = done(&node, Work::RejoinDrive(place(1)));
    assert_eq!(job.state, JobState::Done, "{job:?}");
    assert_eq!((drive(&node, 1).health, drive(&node, 1).retired), (DriveState::Online, false));
    let again = done(&node, Work::RejoinDrive(place(1))).error.unwrap();
    assert_eq!(again.kind, Kind::Conflict, "{again:?}");
    let none = done(&node, Work::FailDrive(place(7))).error.unwrap();
    assert_eq!(none.kind, Kind::NotFound, "{none:?}");
    node.stop();
}

#[test]
fn a_new_drive_has_the_place_of_one_that_is_gone_and_of_one_that_works() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    node.stop();
    drop(node);
    fs::rename(dir.join("fast1"), dir.join("gone")).unwrap();
    let node = start(dir, "wait-for-drives = 0", "");
    let before = drive(&node, 1).id;
    let (new, other) = (dir.join("new"), dir.join("other"));
    let job = done(&node, Work::ReplaceDrive(place(1), replacement(&new, false)));
    assert_eq!(job.state, JobState::Done, "{job:?}");
    let replaced = drive(&node, 1);
    assert_eq!(replaced.health, DriveState::Online);
    assert_eq!(replaced.path, Some(new.display().to_string()));
    assert_ne!(replaced.id, before);
    let job = done(&node, Work::ReplaceDrive(place(3), replacement(&other, false)));
    assert_eq!(job.state, JobState::Done, "{job:?}");
    assert!(def(&node).drives_from.is_empty());
    node.stop();
    drop(node);
    // It is found where it is now; what was replaced is nobody's.
    let shelf = dir.join("shelf");
    fs::create_dir(&shelf).unwrap();
    fs::rename(dir.join("gone"), shelf.join("old")).unwrap();
    let searched =
        |wait: u32| format!("wait-for-drives = {wait}\ndrive-folders = [\"{}\"]", shelf.display());
    let node = start(dir, &searched(3600), "");
    assert_eq!(health(&node, "fast"), PoolHealth::Online, "{:?}", node.events(0));
    assert_eq!(drive(&node, 3).path, Some(other.display().to_string()));
    // The node ends as it gives a place away: the drive there was looked for where the other one was only.
    node.keep_both_places(&place(2), &dir.join("blank")).unwrap();
    node.stop();
    drop(node);
    // What was replaced made one that is only late be taken for one that cannot be taken back: a spare came at once.
    let late = dir.join("late");
    fs::rename(&new, &late).unwrap();
    let node = start(dir, &searched(0), "");
    assert_eq!(drive(&node, 2).path, Some(dir.join("fast2").display().to_string()));
    assert_eq!(drive(&node, 2).health, DriveState::Online);
    open_late(&node);
    assert_eq!(drive(&node, 1).health, DriveState::Missing);
    assert_eq!(said(&node, "is not taken back"), 0, "{:?}", node.events(0));
    fs::rename(&late, &new).unwrap();
    returned::wait_until_whole(&node, "fast");
    // Another one is lost: the new ones have everything.
    node.stop();
    drop(node);
    fs::remove_file(dir.join("fast0")).unwrap();
    let node = start(dir, "wait-for-drives = 0", "");
    assert_eq!(health(&node, "fast"), PoolHealth::Degraded);
    assert_eq!(node.volumes().unwrap().len(), 1);
    node.stop();
}

#[test]
fn what_holds_something_or_is_in_use_is_put_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    let full = dir.join("full");
    fs::write(&full, vec![7; 192 << 20]).unwrap();
    let refused =
        |new: DriveReplacement| done(&node, Work::ReplaceDrive(place(1), new)).error.unwrap();
    let error = refused(replacement(&full, false));
    assert_eq!(error.kind, Kind::Conflict, "{error:?}");
    let error = refused(replacement(&dir.join("fast2"), true));
    assert!(error.message.contains("in use"), "{error:?}");
    let small = DriveReplacement {
        drive: format!("{},size=64MiB", dir.join("small").display()).parse().unwrap(),
        force: false,
    };
    let error = refused(small);
    assert!(error.message.contains("needs"), "{error:?}");
    assert!(!dir.join("small").exists(), "it was made for this alone");
    assert_eq!(health(&node, "fast"), PoolHealth::Online);
    assert_eq!(drive(&node, 1).path, Some(dir.join("fast1").display().to_string()));
    let job = done(&node, Work::ReplaceDrive(place(1), replacement(&full, true)));
    assert_eq!(job.state, JobState::Done, "{job:?}");
    // What was there before can be used for something else.
    let old = dir.join("fast1");
    let job = done(&node, Work::ReplaceDrive(place(2), replacement(&old, true)));
    assert_eq!(job.state, JobState::Done, "{job:?}");
    assert_eq!(drive(&node, 2).path, Some(old.display().to_string()));
    assert_eq!(health(&node, "fast"), PoolHealth::Online);
    node.stop();
}
