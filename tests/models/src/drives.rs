//! The place of a drive: who sees how it is doing sees which one is there.

use std::sync::Arc;

use loom::thread;

use crate::explore;
use crate::occupants::{DriveState, Occupants};

type Place = Arc<Occupants<u32, 3>>;

fn place() -> (Place, Arc<u32>) {
    let first = Arc::new(1);
    (Arc::new(Occupants::new(Some(Arc::clone(&first)), false)), first)
}

#[test]
fn who_is_to_write_to_a_drive_that_came_finds_it() {
    explore(|| {
        let (place, _) = place();
        let theirs = Arc::clone(&place);
        let other = thread::spawn(move || {
            assert!(theirs.fail(|_| ()));
            theirs.take_back(Arc::new(2), || ()).unwrap();
        });
        let mut seen = None;
        let found = place.last_if(|state| {
            seen = Some(state);
            state.is_written()
        });
        let found = found.map(|drive| **drive);
        match seen {
            Some(DriveState::Online) => assert_eq!(found, Some(1)),
            Some(DriveState::Rejoining) => {
                assert_eq!(found, Some(2), "what is new does not go there")
            }
            _ => assert_eq!(found, None),
        }
        other.join().unwrap();
    });
}

#[test]
fn what_comes_late_of_a_drive_does_not_take_its_successor_out_of_use() {
    explore(|| {
        let (place, first) = place();
        let theirs = Arc::clone(&place);
        let late = thread::spawn(move || theirs.fail_one(&first, |_| ()));
        place.fail(|_| ());
        place.take_back(Arc::new(2), || ()).unwrap();
        assert!(place.make_online());
        late.join().unwrap();
        assert_eq!(place.look(), (DriveState::Online, 1));
    });
}

/// Two want to take a drive back at once, in the same place.
#[test]
fn one_drive_comes_to_a_place_at_a_time() {
    explore(|| {
        let (place, _) = place();
        assert!(place.fail(|_| ()));
        let theirs = Arc::clone(&place);
        let other = thread::spawn(move || theirs.take_back(Arc::new(2), || ()).is_ok());
        let is_mine = place.take_back(Arc::new(3), || ()).is_ok();
        let is_theirs = other.join().unwrap();
        assert!(is_mine != is_theirs, "two are told that they have it, or none");
        let there = place.last_if(DriveState::is_written).map(|drive| **drive);
        assert_eq!(there, Some(if is_mine { 3 } else { 2 }));
    });
}
