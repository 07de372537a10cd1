//! Which drives that a pool lacks have a spare take their place, and when. Most that stumble are taken back by themselves
//! a few seconds later and need what they missed only: none is used up for those.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use engine::format::label::StaysOut;
use reactor::Nanos;
use uuid::Uuid;

use super::SpareDef;
use crate::limits::FAILED_LATELY;

/// How often a drive failed, each time within [`FAILED_LATELY`] of the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Failures {
    /// Which drive: another one in its place has its own history.
    id: [u8; 16],
    times: u32,
    last: Nanos,
}

impl Failures {
    /// Takes notice of one more, of this drive; how many there are then.
    pub fn note(&mut self, id: [u8; 16], now: Nanos) -> u32 {
        let lately = Nanos::try_from(FAILED_LATELY.as_nanos()).unwrap_or(Nanos::MAX);
        let goes_on = self.id == id && now.saturating_sub(self.last) < lately;
        let before = if goes_on { self.times } else { 0 };
        *self = Self { id, times: before.saturating_add(1), last: now };
        self.times
    }

    /// How many there are of this drive.
    pub fn of(&self, id: [u8; 16]) -> u32 {
        if self.id == id { self.times } else { 0 }
    }
}

/// What is known of a drive that a pool lacks, as far as it matters to spares.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lack {
    /// For how long.
    pub gone: Duration,
    /// How often it failed lately.
    pub failures: u32,
    /// It was there, and could not be taken back.
    pub is_refused: bool,
    /// It is out until an operator wants it back: why.
    pub stays_out: Option<StaysOut>,
    /// An operator said that it is to be, since the daemon started.
    pub is_given_up: bool,
    /// A spare was to have its place when the node ended, and cannot be used.
    pub was_given: bool,
}

/// Why a spare takes the place of a drive now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The node ended as it gave the spare this place.
    Begun,
    /// An operator took the drive out.
    GivenUp,
    /// It failed, was taken back, and failed again.
    FailedAgain,
    /// It had more faults than are borne, or came and went too often: it stays out.
    StaysOut,
    /// It is there, and cannot be taken back.
    Refused,
    /// It was lost for as long as such drives are waited for.
    Gone,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Begun => "that was begun before",
            Self::GivenUp => "an operator took it out",
            Self::StaysOut => "it is not taken back by itself any more",
            Self::FailedAgain => "it failed again after it was taken back",
            Self::Refused => "it is there and cannot be taken back",
            Self::Gone => "it is lost for as long as `rebuild-after` says",
        })
    }
}

/// Whether a spare is to take the place of such a drive now: where `after` is `None`, time alone is no reason.
fn reason(of: Lack, after: Option<Duration>) -> Option<Reason> {
    match of.stays_out {
        _ if of.was_given => return Some(Reason::Begun),
        Some(StaysOut::Operator) if of.is_given_up => return Some(Reason::GivenUp),
        // What it did before an operator had it out says nothing of why it is.
        Some(StaysOut::Operator) => {}
        Some(StaysOut::Faults | StaysOut::Returns) => return Some(Reason::StaysOut),
        None if of.failures >= 2 => return Some(Reason::FailedAgain),
        None if of.is_refused => return Some(Reason::Refused),
        None => {}
    }
    after.is_some_and(|after| of.gone >= after).then_some(Reason::Gone)
}

/// A place whose drive is lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub index: u16,
    /// Bytes that a drive there has to have.
    pub bytes: u64,
    /// `None` for one that is being made whole.
    pub lack: Option<Lack>,
    /// The spare that was given this place when the node ended, unless that has failed since.
    pub half: Option<Uuid>,
}

/// A spare that takes a place now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Use {
    pub index: u16,
    pub spare: Uuid,
    pub why: Reason,
}

/// Which spares take which places now. Those that are `ready` are the smallest first.
pub(super) fn uses(
    places: &[Place],
    mut ready: Vec<SpareDef>,
    after: Option<Duration>,
) -> Vec<Use> {
    let halves: BTreeSet<Uuid> = places.iter().filter_map(|place| place.half).collect();
    ready.retain(|spare| !halves.contains(&spare.id));
    let mut uses = Vec::new();
    for place in places {
        if let Some(spare) = place.half {
            uses.push(Use { index: place.index, spare, why: Reason::Begun });
            continue;
        }
        let Some(why) = place.lack.and_then(|lack| reason(lack, after)) else { continue };
        if let Some(at) = ready.iter().position(|spare| spare.size >= place.bytes) {
            uses.push(Use { index: place.index, spare: ready.remove(at).id, why });
        }
    }
    uses
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Option<Duration> = Some(Duration::from_secs(600));
    const DAY: Nanos = 24 * 3600 * 1_000_000_000;

    fn lack(failures: u32, seconds: u64) -> Lack {
        Lack { gone: Duration::from_secs(seconds), failures, ..Lack::default() }
    }

    fn spare(id: u128, size: u64) -> SpareDef {
        SpareDef { id: Uuid::from_u128(id), path: format!("/dev/s{id}").into(), size }
    }

    fn place(index: u16, lack: Lack) -> Place {
        Place { index, bytes: 100, lack: Some(lack), half: None }
    }

    /// One was used up for each drive that failed and was there: those mostly come back.
    #[test]
    fn a_drive_that_stumbled_once_keeps_its_place() {
        assert_eq!(reason(lack(1, 0), AFTER), None);
        assert_eq!(reason(lack(1, 599), AFTER), None);
        assert_eq!(reason(lack(2, 0), AFTER), Some(Reason::FailedAgain));
        assert_eq!(reason(Lack { is_refused: true, ..lack(1, 0) }, AFTER), Some(Reason::Refused));
    }

    #[test]
    fn one_that_is_gone_keeps_its_place_for_as_long_as_is_waited() {
        assert_eq!(reason(lack(0, 599), AFTER), None);
        assert_eq!(reason(lack(0, 600), AFTER), Some(Reason::Gone));
        assert_eq!(reason(lack(1, 600), AFTER), Some(Reason::Gone));
    }

    #[test]
    fn with_nothing_by_itself_time_is_no_reason_but_failures_are() {
        assert_eq!(reason(lack(1, 1 << 20), None), None);
        assert_eq!(reason(lack(2, 0), None), Some(Reason::FailedAgain));
        assert_eq!(reason(Lack { is_refused: true, ..lack(1, 0) }, None), Some(Reason::Refused));
    }

    #[test]
    fn one_that_an_operator_took_out_is_replaced_at_once() {
        let out = Lack { stays_out: Some(StaysOut::Operator), ..lack(0, 0) };
        let said = Lack { is_given_up: true, ..out };
        assert_eq!(reason(said, AFTER), Some(Reason::GivenUp));
        assert_eq!(reason(said, None), Some(Reason::GivenUp));
        // Wanted back meanwhile, and not here yet.
        assert_eq!(reason(Lack { stays_out: None, ..said }, AFTER), None);
        // Out for a job that was cancelled, or since before the daemon started.
        assert_eq!(reason(out, AFTER), None);
        assert_eq!(reason(Lack { failures: 5, is_refused: true, ..out }, AFTER), None);
        assert_eq!(
            reason(Lack { gone: Duration::from_secs(600), ..out }, AFTER),
            Some(Reason::Gone)
        );
    }

    /// A drive that falls apart was taken back after five seconds, over and over.
    #[test]
    fn one_that_stays_out_by_itself_is_replaced_at_once() {
        for why in [StaysOut::Faults, StaysOut::Returns] {
            let out = Lack { stays_out: Some(why), ..lack(1, 0) };
            assert_eq!(reason(out, AFTER), Some(Reason::StaysOut));
            assert_eq!(reason(out, None), Some(Reason::StaysOut));
        }
    }

    #[test]
    fn failures_count_within_a_day_of_each_other_and_of_the_same_drive() {
        let mut failures = Failures::default();
        assert_eq!(failures.note([1; 16], 5), 1);
        assert_eq!(failures.note([1; 16], DAY), 2);
        assert_eq!(failures.of([1; 16]), 2);
        // Well for a day.
        assert_eq!(failures.note([1; 16], 2 * DAY), 1);
        assert_eq!(failures.note([1; 16], 2 * DAY + 1), 2);
        // Another drive took its place.
        assert_eq!(failures.of([2; 16]), 0);
        assert_eq!(failures.note([2; 16], 2 * DAY + 2), 1);
    }

    #[test]
    fn the_smallest_that_fits_is_taken_and_none_twice() {
        let ready = vec![spare(1, 50), spare(2, 100), spare(3, 200)];
        let places = [
            place(0, lack(2, 0)),
            place(1, lack(1, 0)),
            place(2, lack(0, 600)),
            place(3, lack(9, 9)),
        ];
        let taken = uses(&places, ready, AFTER);
        let taken: Vec<_> = taken.iter().map(|of| (of.index, of.spare.as_u128(), of.why)).collect();
        assert_eq!(taken, [(0, 2, Reason::FailedAgain), (2, 3, Reason::Gone)]);
    }

    /// It was tried again and again where it had gone meanwhile, and no other one took the place.
    #[test]
    fn a_place_that_was_half_given_goes_to_the_same_spare_and_to_another_when_that_fails() {
        let half = Some(Uuid::from_u128(7));
        let whole = Place { half: None, ..place(1, lack(0, 600)) };
        let begun = Place { half, ..place(0, lack(0, 0)) };
        let taken = uses(&[begun, whole], vec![spare(7, 100)], AFTER);
        assert_eq!(taken, [Use { index: 0, spare: Uuid::from_u128(7), why: Reason::Begun }]);
        // At once: what the first was for is so still.
        for after in [AFTER, None] {
            let rests = Place { half: None, ..place(0, Lack { was_given: true, ..lack(0, 0) }) };
            let taken = uses(&[rests], vec![spare(8, 100)], after);
            assert_eq!(taken, [Use { index: 0, spare: Uuid::from_u128(8), why: Reason::Begun }]);
        }
    }

    #[test]
    fn one_that_is_being_made_whole_is_left_to_that() {
        let coming = Place { index: 0, bytes: 100, lack: None, half: None };
        assert!(uses(&[coming], vec![spare(1, 100)], AFTER).is_empty());
    }
}
