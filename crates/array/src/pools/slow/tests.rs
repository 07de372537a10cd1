use super::*;
use crate::pools::sample;

const OLD: Uuid = Uuid::from_u128(1);
const NEW: Uuid = Uuid::from_u128(2);
const IDLE: Seen =
    Seen { id: OLD, is_online: true, is_slow: false, is_vacant: false, operations: 0 };
const FAST: Seen = Seen { operations: FAST_OPERATIONS, ..IDLE };
const SLOW: Seen = Seen { is_slow: true, ..FAST };
const GONE: Seen = Seen { is_online: false, ..FAST };
const AFTER: Duration = Duration::from_nanos(100);

fn was_fast(id: Uuid, has_spare: bool) -> WereFast {
    WereFast::from([(0, WasFast { id, has_spare })])
}

#[test]
fn a_drive_that_stays_slow_is_to_be_emptied_once_in_a_while() {
    let mut slow = SlowDrives::default();
    assert_eq!(slow.see(1, FAST, 0), None);
    assert_eq!(slow.see(1, SLOW, 10), Some(Change::Slow));
    assert_eq!(slow.see(1, SLOW, 60), None);
    assert!(slow.due(AFTER, 109).is_empty());
    assert_eq!(slow.due(AFTER, 110), [1]);
    // Nothing could be done.
    assert_eq!(slow.due(AFTER, 120), [1]);
    slow.try_to_empty(1, 130);
    assert!(slow.due(AFTER, 229).is_empty());
    assert_eq!(slow.due(AFTER, 230), [1]);
}

#[test]
fn two_that_are_slow_at_once_are_due_each_by_itself() {
    let mut slow = SlowDrives::default();
    slow.see(1, SLOW, 10);
    slow.see(4, SLOW, 50);
    assert_eq!(slow.due(AFTER, 120), [1]);
    assert_eq!(slow.due(AFTER, 150), [1, 4]);
    slow.try_to_empty(1, 150);
    assert_eq!(slow.due(AFTER, 160), [4]);
}

#[test]
fn one_that_is_fast_again_begins_anew() {
    let mut slow = SlowDrives::default();
    slow.see(1, SLOW, 10);
    slow.try_to_empty(1, 20);
    assert_eq!(slow.see(1, FAST, 50), Some(Change::Fast));
    assert_eq!(slow.see(1, FAST, 60), None);
    assert_eq!(slow.see(1, SLOW, 100), Some(Change::Slow));
    assert!(slow.due(AFTER, 199).is_empty());
    assert_eq!(slow.due(AFTER, 200), [1]);
}

/// It was forgotten when the node ended, and the drive was never emptied.
#[test]
fn that_a_drive_was_fast_is_remembered_with_what_identifies_it() {
    let mut slow = SlowDrives::default();
    let nothing = WereFast::new();
    slow.see(0, IDLE, 0);
    assert_eq!(slow.were_fast(&nothing, &[IDLE]), None);
    slow.see(0, FAST, 1);
    let known = slow.were_fast(&nothing, &[FAST]).unwrap();
    assert_eq!(known, was_fast(OLD, false));
    // Another node's life, in which it is slow, or gone for a while.
    let mut later = SlowDrives::default();
    later.see(0, Seen { operations: 7, ..SLOW }, 0);
    assert_eq!(later.were_fast(&known, &[Seen { operations: 7, ..SLOW }]), None);
    later.see(0, GONE, 1);
    assert_eq!(later.were_fast(&known, &[GONE]), None);
    // A spare that came for it did so for that one.
    let helped = was_fast(OLD, true);
    assert_eq!(later.were_fast(&helped, &[GONE]), None);
    for over in [Seen { id: NEW, ..SLOW }, Seen { is_vacant: true, ..GONE }] {
        assert_eq!(later.were_fast(&helped, &[over]), Some(nothing.clone()));
    }
}

/// What one did that had the place before said that the next one was fast, slow as that was from the beginning.
#[test]
fn another_drive_in_its_place_has_its_own_history() {
    let mut slow = SlowDrives::default();
    slow.see(0, IDLE, 0);
    slow.see(0, FAST, 1);
    slow.see(0, SLOW, 10);
    let new = Seen { id: NEW, operations: 2 * FAST_OPERATIONS, ..IDLE };
    assert_eq!(slow.see(0, new, 20), None);
    assert_eq!(slow.were_fast(&was_fast(OLD, false), &[new]), Some(WereFast::new()));
    assert!(slow.due(AFTER, 1000).is_empty());
    let later = Seen { operations: 3 * FAST_OPERATIONS, ..new };
    slow.see(0, later, 30);
    assert_eq!(slow.were_fast(&WereFast::new(), &[later]), Some(was_fast(NEW, false)));
    // Its pool was opened anew, and counts anew.
    let anew = Seen { operations: 5, ..new };
    slow.see(0, anew, 40);
    assert_eq!(slow.were_fast(&WereFast::new(), &[anew]), None);
}

fn drive(n: u8) -> DriveStatus {
    DriveStatus { id: [n; 16], slow: n == 1, bytes: 100, ..sample::drive(DriveState::Online) }
}

/// A pool of which drive 1 is slow, and was fast.
fn def() -> PoolDef {
    let def = r#"{"id": "00000000-0000-0000-0000-000000000001", "drives": [], "log": []}"#;
    let def: PoolDef = serde_json::from_str(def).unwrap();
    let of = WasFast { id: Uuid::from_bytes([1; 16]), has_spare: false };
    PoolDef { were_fast: WereFast::from([(1, of)]), ..def }
}

fn spare(id: u128, size: u64) -> SpareDef {
    SpareDef { id: Uuid::from_u128(id), path: "/dev/s".into(), size }
}

/// What becomes of drive 1 of so many, whose stripes are over three.
fn outlook(def: &PoolDef, drives: &[DriveStatus], spares: &[SpareDef]) -> SlowOutlook {
    Means { def, drives, width: 3, spares, moves: true }.outlook(1)
}

/// It was only emptied where there were more drives than a stripe is wide, and left there elsewhere, spares or not.
#[test]
fn a_slow_drive_is_emptied_with_a_spare_or_onto_the_others_and_told_of_where_neither_is() {
    let four: Vec<_> = (0..4).map(drive).collect();
    let small = [spare(7, 99)];
    let fits = [spare(7, 99), spare(8, 100), spare(9, 200)];
    assert_eq!(outlook(&def(), &four[..3], &[]), SlowOutlook::NoRoom);
    assert_eq!(outlook(&def(), &four[..3], &small), SlowOutlook::NoRoom);
    assert_eq!(outlook(&def(), &four[..3], &fits), SlowOutlook::Spare(spare(8, 100)));
    assert_eq!(outlook(&def(), &four, &[]), SlowOutlook::Others);
    assert_eq!(outlook(&def(), &four, &fits), SlowOutlook::Spare(spare(8, 100)));
    // One came for it, and the node ended before it was emptied: a second one would be used up.
    let mut helped = def();
    helped.were_fast.values_mut().for_each(|of| of.has_spare = true);
    assert_eq!(outlook(&helped, &four, &fits), SlowOutlook::Others);
}

#[test]
fn redundancy_comes_before_slow_drives_and_what_an_operator_says_before_both() {
    let mut four: Vec<_> = (0..4).map(drive).collect();
    let stopped = PoolDef { stopped: [1].into(), ..def() };
    assert_eq!(outlook(&stopped, &four, &[spare(8, 100)]), SlowOutlook::Stopped);
    let none = Means { def: &def(), drives: &four, width: 3, spares: &[], moves: false };
    assert_eq!(none.outlook(1), SlowOutlook::ByCommand);
    four[2].state = DriveState::Failed;
    assert_eq!(outlook(&def(), &four, &[spare(8, 100)]), SlowOutlook::Waits);
    four[2].vacant = true;
    assert_eq!(outlook(&def(), &four, &[spare(8, 100)]), SlowOutlook::Spare(spare(8, 100)));
    four[1].leaving = true;
    assert_eq!(outlook(&def(), &four, &[]), SlowOutlook::Leaves);
    // Made slow, or another drive than the one that was fast.
    four[1].leaving = false;
    four[1].id = [9; 16];
    assert_eq!(outlook(&def(), &four, &[spare(8, 100)]), SlowOutlook::AlwaysSlow);
}
