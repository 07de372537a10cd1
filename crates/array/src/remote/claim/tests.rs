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
    assert_eq!(plan(&[], ours, Takes::Nodes).unwrap(), Plan { from: None, stale: vec![] });
    let (held, stale) = (key(2, 1).settled(), key(3, 1).claiming());
    let found = [one(stale, false), one(held, true), one(stale, false), one(held, true)];
    let taken = plan(&found, ours, Takes::Nodes).unwrap();
    assert_eq!(taken, Plan { from: Some(held), stale: vec![stale] });
}

#[test]
fn what_another_node_holds_is_not_taken() {
    let other = Key::new(Uuid::from_u128(8), 1, 3).settled();
    let why = plan(&[one(other, true)], key(1, 3), Takes::Nodes).unwrap_err();
    assert_eq!(why.kind, Kind::Busy);
    assert!(why.words.contains(&format!("{other:#018x}")), "{why:?}");
    // One that is registered and holds nothing cannot write, and is let be.
    let plan = plan(&[one(other, false)], key(1, 3), Takes::Nodes).unwrap();
    assert_eq!(plan, Plan { from: None, stale: vec![] });
}

/// An operator says that the node is gone for good.
#[test]
fn what_another_node_holds_is_taken_where_that_is_asked_for() {
    let other = Key::new(Uuid::from_u128(8), 1, 3).settled();
    let (stale, third) = (key(2, 1).settled(), Key::new(Uuid::from_u128(9), 1, 1).settled());
    let found = [one(other, true), one(stale, false), one(third, false)];
    let taken = plan(&found, key(1, 3), Takes::Anybodys).unwrap();
    assert_eq!(taken, Plan { from: Some(other), stale: vec![stale] });
}

/// A process that was stopped, and went on after another one of its node had taken over, must not take it back.
#[test]
fn what_another_process_took_over_is_not_taken_back() {
    let (ours, newer) = (key(1, 4), key(2, 1).settled());
    assert!(plan(&[one(newer, true)], ours, Takes::Nodes).is_ok());
    let why = plan(&[one(newer, true)], ours, Takes::Own).unwrap_err();
    assert!(why.words.contains("another process of this node"), "{why:?}");
    let own = key(1, 3).settled();
    assert_eq!(plan(&[one(own, true)], ours, Takes::Own).unwrap().from, Some(own));
}
