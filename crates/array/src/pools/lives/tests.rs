use engine::format::label::StaysOut;

use super::*;
use crate::pools::sample;

const HOUR: u64 = 3_600_000;
const NOW: u64 = 1_700_000_000_000;

fn drive(state: InUse) -> DriveStatus {
    DriveStatus { id: [1; 16], ..sample::drive(state) }
}

fn seen(state: DriveState, changed_ms: Option<u64>, cause: Option<&str>) -> Seen {
    Seen { id: Uuid::from_u128(1), state, changed_ms, cause: cause.map(str::to_owned) }
}

fn life(state: DriveState, since_ms: Option<u64>, cause: Option<&str>) -> Life {
    let (id, cause) = (Uuid::from_u128(1), cause.map(str::to_owned));
    Life { id, state, since_ms, cause, returns_ms: Vec::new() }
}

#[test]
fn each_state_is_decided_in_one_place() {
    let of = |state, change: fn(&mut DriveStatus)| {
        let mut drive = drive(state);
        change(&mut drive);
        (state_of(&drive), health_of_drive(&drive))
    };
    let works = DriveState::Online;
    assert_eq!(of(InUse::Online, |_| ()), (works, works));
    assert_eq!(of(InUse::Online, |d| d.slow = true), (DriveState::Slow, works));
    let leaves = |d: &mut DriveStatus| (d.slow, d.leaving) = (true, true);
    assert_eq!(of(InUse::Online, leaves), (DriveState::Evacuating, works));
    for (state, word) in
        [(InUse::Failed, DriveState::Failed), (InUse::Missing, DriveState::Missing)]
    {
        assert_eq!(of(state, |d| d.slow = true), (word, word));
        assert_eq!(of(state, |d| d.leaving = true), (DriveState::Rebuilding, word));
        let vacant = DriveState::Vacant;
        assert_eq!(of(state, |d| d.vacant = true), (vacant, vacant));
    }
    // Whether it is there is not known, and does not matter.
    let (failed, missing) = (DriveState::Failed, DriveState::Missing);
    let stays = |d: &mut DriveStatus| d.stays_out = Some(StaysOut::Operator);
    assert_eq!(of(InUse::Missing, stays), (failed, missing));
    let rejoins = DriveState::Rejoining;
    assert_eq!(of(InUse::Rejoining, |d| d.vacant = true), (rejoins, rejoins));
    assert_eq!(of(InUse::Rejoining, |d| d.slow = true), (rejoins, rejoins));
}

/// `docs/drives.md` has a row for each state, and an API document no other.
#[test]
fn all_states_are_in_the_documentation() {
    let text = include_str!("../../../../../docs/drives.md");
    for state in DriveState::ALL {
        assert!(text.contains(&format!("\n| {} |", state.name())), "{}", state.name());
        let json = serde_json::to_string(&state).unwrap();
        assert_eq!(json, format!("\"{}\"", state.name()));
    }
}

#[test]
fn since_when_and_why_are_those_of_the_failure() {
    let online = life(DriveState::Online, Some(5), None);
    let failed = seen(DriveState::Failed, Some(NOW - 700), Some("a write: timed out"));
    let out = Life::see(Some(&online), &failed, NOW);
    assert_eq!((out.state, out.since_ms), (DriveState::Failed, Some(NOW - 700)));
    assert_eq!(out.cause.as_deref(), Some("a write: timed out"));
    // It stays so however often it is looked at.
    assert_eq!(Life::see(Some(&out), &failed, NOW + HOUR), out);
    // Why it was away is told until it is whole.
    let back = seen(DriveState::Rejoining, Some(NOW + 9), None);
    let back = Life::see(Some(&out), &back, NOW + 10);
    assert_eq!((back.since_ms, back.cause.as_deref()), (Some(NOW + 9), out.cause.as_deref()));
    let whole = seen(DriveState::Online, Some(NOW + 20), None);
    let whole = Life::see(Some(&back), &whole, NOW + 22);
    assert_eq!((whole.since_ms, whole.cause), (Some(NOW + 20), None));
}

#[test]
fn a_restart_forgets_nothing_and_makes_nothing_up() {
    let out = life(DriveState::Failed, Some(5), Some("a write: timed out"));
    // The labels alone say that it failed, or it was not there at all.
    for (state, cause) in [(DriveState::Failed, None), (DriveState::Missing, Some("not there"))] {
        let after = Life::see(Some(&out), &seen(state, None, cause), NOW);
        assert_eq!((after.since_ms, after.cause.as_deref()), (Some(5), out.cause.as_deref()));
    }
    let online = life(DriveState::Online, Some(5), None);
    let same = Life::see(Some(&online), &seen(DriveState::Online, None, None), NOW);
    assert_eq!(same.since_ms, Some(5));
    // It failed, and the daemon ended before that was written down: nobody knows when and why.
    let after = Life::see(Some(&online), &seen(DriveState::Failed, None, None), NOW);
    assert_eq!((after.since_ms, after.cause), (None, None));
    let missing = seen(DriveState::Missing, None, Some("not there"));
    let missing = Life::see(Some(&online), &missing, NOW);
    assert_eq!((missing.since_ms, missing.cause.as_deref()), (Some(NOW), Some("not there")));
    // A pool that another node had.
    let first = Life::see(None, &seen(DriveState::Online, None, None), NOW);
    assert_eq!((first.since_ms, first.cause), (None, None));
}

#[test]
fn another_drive_in_the_place_has_a_life_of_its_own() {
    let mut before = life(DriveState::Failed, Some(5), Some("a write: timed out"));
    before.returns_ms = vec![NOW - 1; RETURNS_BORNE];
    let new = seen(DriveState::Rejoining, Some(NOW - 3), None);
    let new = Life::see(Some(&before), &Seen { id: Uuid::from_u128(2), ..new }, NOW);
    assert_eq!((new.since_ms, &new.cause, new.returns(NOW)), (Some(NOW - 3), &None, 0));
}

fn comes_and_goes(life: &Life, at: u64) -> Life {
    let back = Life::see(Some(life), &seen(DriveState::Rejoining, Some(at), None), at);
    Life::see(Some(&back), &seen(DriveState::Failed, Some(at + 1), Some("gone")), at + 1)
}

#[test]
fn returns_count_within_an_hour_and_over_restarts() {
    let mut flapping = life(DriveState::Failed, Some(5), None);
    for n in 0..20 {
        // One every quarter of an hour: never more than four within one.
        flapping = comes_and_goes(&flapping, NOW + n * HOUR / 4);
        assert!(flapping.returns(NOW + n * HOUR / 4) < RETURNS_BORNE, "{n}");
    }
    assert!(flapping.returns_ms.len() <= RETURNS_BORNE);
    let mut flapping = life(DriveState::Failed, Some(5), None);
    for n in 0..RETURNS_BORNE as u64 {
        // Written down, and read by the next daemon, which sees that it came back.
        let text = serde_json::to_string(&flapping).unwrap();
        flapping = comes_and_goes(&serde_json::from_str(&text).unwrap(), NOW + n);
    }
    assert_eq!(flapping.returns(NOW + 10), RETURNS_BORNE);
    assert_eq!(flapping.returns(NOW + 2 * HOUR), 0);
    flapping.welcome(false);
    assert_eq!((flapping.returns(NOW + 10), flapping.state), (0, DriveState::Failed));
    // What an operator has come back is no return of its own.
    flapping.welcome(true);
    let back = Life::see(Some(&flapping), &seen(DriveState::Rejoining, Some(NOW), None), NOW);
    assert_eq!(back.returns(NOW), 0);
}

/// A daemon that ends in the midst of it finds the drive where it was: it did not come and go.
#[test]
fn a_rejoin_that_a_restart_begins_anew_is_no_return() {
    let rejoining = life(DriveState::Rejoining, Some(5), None);
    let again = Life::see(Some(&rejoining), &seen(DriveState::Rejoining, Some(NOW), None), NOW);
    assert_eq!((again.returns(NOW), again.since_ms), (0, Some(5)));
}

/// Returns of the future would have counted until the clock came there: for years.
#[test]
fn a_clock_that_goes_back_keeps_no_drive_out_for_ever() {
    let mut ahead = life(DriveState::Online, Some(NOW), None);
    ahead.returns_ms = vec![NOW + 1000 * HOUR; RETURNS_BORNE - 1];
    let now = Life::see(Some(&ahead), &seen(DriveState::Online, None, None), NOW);
    assert_eq!(now.returns(NOW), RETURNS_BORNE - 1);
    let later = Life::see(Some(&now), &seen(DriveState::Online, None, None), NOW + HOUR);
    assert_eq!(later.returns(NOW + HOUR), 0);
}

#[test]
fn what_others_changed_meanwhile_is_left_as_it_is() {
    let before = life(DriveState::Failed, Some(5), None);
    let after = life(DriveState::Rejoining, Some(6), None);
    let change = || LifeChange { index: 1, before: Some(before.clone()), after: after.clone() };
    let mut lives = BTreeMap::from([(1, before.clone())]);
    assert!(change().take(&mut lives));
    assert_eq!(lives[&1], after);
    // An operator asked for it, and it is written down as such.
    assert!(!change().take(&mut lives));
    assert_eq!(lives[&1], after);
    let (fast, slow) = (life(DriveState::Online, None, None), life(DriveState::Slow, None, None));
    let mut lives = BTreeMap::from([(1, fast.clone())]);
    let fleeting = LifeChange { index: 1, before: Some(fast), after: slow.clone() };
    assert!(!fleeting.take(&mut lives));
    assert_eq!(lives[&1], slow);
}

/// Why it failed was lost where an operator asked for it right then.
#[test]
fn what_was_seen_of_a_drive_is_kept_though_an_operator_wanted_it_back_meanwhile() {
    let mut before = life(DriveState::Online, Some(5), None);
    before.returns_ms = vec![NOW - 9, NOW - 8];
    let failed = seen(DriveState::Failed, Some(NOW), Some("a write: timed out"));
    let after = Life::see(Some(&before), &failed, NOW);
    let change = LifeChange { index: 1, before: Some(before.clone()), after };
    before.welcome(false);
    let mut lives = BTreeMap::from([(1, before)]);
    assert!(change.take(&mut lives));
    assert_eq!(lives[&1], life(DriveState::Failed, Some(NOW), Some("a write: timed out")));
}

#[test]
fn spans_are_told_in_one_unit() {
    let told = [5, 119, 120, 7199, 7200, 200_000].map(|s| span(Duration::from_secs(s)));
    assert_eq!(told, ["5 s", "119 s", "2 min", "119 min", "2 h", "2 days"]);
}
