use super::*;
use crate::pools::sample::drive;

/// Of so many that work, and the second lost.
fn with_one_lost(count: usize) -> Vec<DriveStatus> {
    let mut drives = vec![drive(DriveState::Online); count];
    drives[1].state = DriveState::Failed;
    drives
}

fn def() -> PoolDef {
    serde_json::from_str(
        r#"{"id": "00000000-0000-0000-0000-000000000001", "drives": [], "log": []}"#,
    )
    .unwrap()
}

fn of(drives: &[DriveStatus]) -> Drives<'_> {
    Drives { drives, width: 3, moves: None }
}

#[test]
fn what_is_lost_is_rebuilt_where_there_are_drives_enough() {
    assert_eq!(next(&def(), &of(&with_one_lost(4))), Next::Lost);
    assert_eq!(next(&def(), &of(&with_one_lost(3))), Next::Rest);
    assert_eq!(next(&def(), &of(&vec![drive(DriveState::Online); 4])), Next::Rest);
    let mut vacant = with_one_lost(4);
    vacant[1].vacant = true;
    assert_eq!(next(&def(), &of(&vacant)), Next::Rest);
}

#[test]
fn what_was_begun_before_the_pool_was_opened_goes_on() {
    let mut drives = with_one_lost(4);
    drives[1].leaving = true;
    assert_eq!(next(&def(), &of(&drives)), Next::GoOn);
    // It was given up since: it is tried again later.
    assert_eq!(next(&def(), &Drives { moves: Some(false), ..of(&drives) }), Next::Lost);
    assert_eq!(next(&def(), &Drives { moves: Some(true), ..of(&drives) }), Next::Busy);
    let mut drives = vec![drive(DriveState::Online); 4];
    drives[2].leaving = true;
    assert_eq!(next(&def(), &of(&drives)), Next::Evacuate(2));
    let removing = PoolDef { removing: BTreeMap::from([(2, Uuid::nil())]), ..def() };
    assert_eq!(next(&removing, &of(&drives)), Next::Remove(2));
}

/// A place was remembered, and with it whoever had it by then was emptied and wiped.
#[test]
fn another_drive_in_the_place_of_one_that_was_being_removed_is_left_alone() {
    let removed = BTreeMap::from([(2, Uuid::nil())]);
    let removing = PoolDef { removing: removed.clone(), ..def() };
    let mut drives = vec![drive(DriveState::Online); 4];
    let paused = PausedRebuild::new(Some(2), &drives, true, &Rebuild::default());
    assert!(!paused.is_moot(&drives) && replaced(&removing, &drives).is_empty());
    drives[2].id = [9; 16];
    assert_eq!(next(&removing, &of(&drives)), Next::Rest);
    assert_eq!(replaced(&removing, &drives), removed);
    assert!(paused.is_moot(&drives));
}

/// It began again by itself at the next look.
#[test]
fn what_was_stopped_stays_so_and_what_another_drive_had_is_rebuilt() {
    let stopped = PoolDef { stopped: BTreeSet::from([1]), ..def() };
    let mut drives = with_one_lost(5);
    assert_eq!(next(&stopped, &of(&drives)), Next::Rest);
    let ended = Drives { moves: Some(false), ..of(&drives) };
    assert_eq!(next(&stopped, &ended), Next::Rest);
    drives[2].state = DriveState::Missing;
    assert_eq!(next(&stopped, &of(&drives)), Next::Lost);
}

/// The labels said that it goes on, and it did.
#[test]
fn what_was_being_stopped_when_the_node_ended_is_stopped() {
    let stopped = PoolDef { stopped: BTreeSet::from([1]), ..def() };
    let mut drives = with_one_lost(4);
    drives[1].leaving = true;
    assert_eq!(next(&stopped, &of(&drives)), Next::Stop);
    drives[1].state = DriveState::Online;
    assert_eq!(next(&stopped, &of(&drives)), Next::Stop);
}

#[test]
fn that_it_was_stopped_is_forgotten_with_drives_that_are_whole_or_empty() {
    let stopped = PoolDef { stopped: BTreeSet::from([0, 1, 2, 3, 9]), ..def() };
    let mut drives = vec![drive(DriveState::Online); 4];
    drives[1].state = DriveState::Failed;
    drives[2].slow = true;
    (drives[3].state, drives[3].vacant) = (DriveState::Failed, true);
    assert_eq!(settled(&stopped, &drives), BTreeSet::from([0, 3, 9]));
    // Not before the labels say that it does not go on.
    drives[0].leaving = true;
    assert_eq!(settled(&stopped, &drives), BTreeSet::from([3, 9]));
}
