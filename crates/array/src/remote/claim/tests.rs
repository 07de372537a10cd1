use uuid::Uuid;

use super::*;

const NODE: Uuid = Uuid::from_u128(7);

fn key(line: u32, number: u64) -> Key {
    Key::new(NODE, line, number)
}

fn one(key: u64, holds: bool) -> Registrant {
    Registrant { key, host: [1; 16], holds }
}

#[test]
fn what_this_node_left_is_taken() {
    let ours = key(1, 3);
    assert_eq!(plan(&[], ours, false).unwrap(), Plan { from: None, stale: vec![] });
    let (held, stale) = (key(2, 1).settled(), key(3, 1).claiming());
    let found = [one(stale, false), one(held, true), one(stale, false), one(held, true)];
    let taken = plan(&found, ours, false).unwrap();
    assert_eq!(taken, Plan { from: Some(held), stale: vec![stale] });
}

#[test]
fn what_another_node_holds_is_not_taken() {
    let other = Key::new(Uuid::from_u128(8), 1, 3).settled();
    let why = plan(&[one(other, true)], key(1, 3), false).unwrap_err();
    assert_eq!(why.kind, Kind::Busy);
    assert!(why.words.contains(&format!("{other:#018x}")), "{why:?}");
    // One that is registered and holds nothing cannot write, and is let be.
    let plan = plan(&[one(other, false)], key(1, 3), false).unwrap();
    assert_eq!(plan, Plan { from: None, stale: vec![] });
}

/// A process that was stopped, and went on after another one of its node had taken over, must not take it back.
#[test]
fn what_another_process_took_over_is_not_taken_back() {
    let (ours, newer) = (key(1, 4), key(2, 1).settled());
    assert!(plan(&[one(newer, true)], ours, false).is_ok());
    let why = plan(&[one(newer, true)], ours, true).unwrap_err();
    assert!(why.words.contains("another process of this node"), "{why:?}");
    let own = key(1, 3).settled();
    assert_eq!(plan(&[one(own, true)], ours, true).unwrap().from, Some(own));
}
