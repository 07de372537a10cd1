//! The devices of a log: one that fails is told of, and is no other than the one that failed.

use loom::sync::Arc;
use loom::thread;

use crate::explore;
use crate::tenancy::{MemberId, Tenancy};

const FIRST: MemberId = [1; 16];
const SECOND: MemberId = [2; 16];

fn one() -> Arc<Tenancy<1>> {
    Arc::new(Tenancy::new([(FIRST, true)].into_iter()))
}

/// Writes labels until nothing failed meanwhile, as `Superblock::put_labels` does; gives how many failures they tell of.
fn write_labels(slots: &Tenancy<1>) -> u64 {
    loop {
        let told = slots.reported();
        if slots.is_lost(0) {
            slots.let_go(0, FIRST);
        }
        if slots.reported() == told {
            return told;
        }
    }
}

#[test]
fn what_labels_do_not_tell_of_is_known_to_be_left() {
    explore(|| {
        let slots = one();
        let theirs = Arc::clone(&slots);
        let reporter = thread::spawn(move || theirs.report(theirs.tenant(0)));
        let told = write_labels(&slots);
        reporter.join().unwrap();
        let has_news = slots.reported() != told;
        assert!(has_news || !slots.is_lost(0), "nobody would tell of it");
        write_labels(&slots);
        assert!(!slots.is_current(slots.tenant(0)) && !slots.is_lost(0));
    });
}

#[test]
fn who_finds_a_device_lost_finds_that_there_is_something_to_tell() {
    explore(|| {
        let slots = one();
        let theirs = Arc::clone(&slots);
        let other = thread::spawn(move || {
            if theirs.is_lost(0) {
                assert!(theirs.reported() > 0, "an answer would go out before the labels");
            }
        });
        slots.report(slots.tenant(0));
        other.join().unwrap();
    });
}

/// A shard meets the failure of a device late, when another has its slot.
#[test]
fn what_comes_late_of_a_device_does_not_meet_its_successor() {
    explore(|| {
        let slots = one();
        let before = slots.tenant(0);
        let late = Arc::clone(&slots);
        let late = thread::spawn(move || late.report(before));
        slots.report(before);
        slots.let_go(0, FIRST);
        let next = slots.begin(SECOND).expect("the slot is vacant");
        assert!(slots.admit(next), "it failed for what another one did");
        late.join().unwrap();
        assert!(slots.is_current(next) && !slots.takes(before));
    });
}

/// Likewise of one that is known by its name alone.
#[test]
fn a_name_that_somebody_had_says_nothing_of_who_has_the_slot_by_now() {
    explore(|| {
        let slots = one();
        let late = Arc::clone(&slots);
        let late = thread::spawn(move || late.report_member(0, FIRST));
        slots.report(slots.tenant(0));
        slots.let_go(0, FIRST);
        let next = slots.begin(SECOND).expect("the slot is vacant");
        assert!(slots.takes(next) && slots.admit(next), "it failed for what another one did");
        late.join().unwrap();
        assert!(slots.is_current(next));
    });
}

/// A device fails while it is called whole: either it was not, or the labels have to tell.
#[test]
fn a_device_that_fails_as_it_is_admitted_is_told_of_or_was_never_admitted() {
    explore(|| {
        let slots = one();
        slots.give_up(slots.tenant(0));
        let next = slots.begin(SECOND).expect("the slot is vacant");
        let theirs = Arc::clone(&slots);
        let reporter = thread::spawn(move || theirs.report(next));
        let is_admitted = slots.admit(next);
        assert!(reporter.join().unwrap(), "it is news");
        assert_eq!(slots.is_lost(0), is_admitted);
        assert!(!slots.takes(next) && slots.reported() > 0);
    });
}
