//! A state that commands ask on every core: from when whoever changed it is answered, nobody finds what there was before.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use crate::explore;
use crate::published::Published;

#[test]
fn what_was_changed_and_answered_is_what_commands_find() {
    explore(|| {
        let shared = Arc::new((Published::new(1), AtomicBool::new(false)));
        let theirs = Arc::clone(&shared);
        let other = thread::spawn(move || {
            theirs.0.change(|state| *state = 2);
            // By whatever way the answer takes.
            theirs.1.store(true, Ordering::Release);
        });
        let mut cached = None;
        for _ in 0..2 {
            let is_answered = shared.1.load(Ordering::Acquire);
            let found = shared.0.cached(&mut cached, |state| *state);
            assert!(found == 2 || !is_answered, "a command has rights that were taken away");
        }
        other.join().unwrap();
        assert_eq!(
            shared.0.cached(&mut cached, |state| *state),
            2,
            "what was kept is old for good"
        );
    });
}

#[test]
fn what_a_command_found_during_a_change_is_not_kept_for_good() {
    explore(|| {
        let shared = Arc::new(Published::new(0));
        let others: Vec<_> = (0..2)
            .map(|_| {
                let theirs = Arc::clone(&shared);
                thread::spawn(move || theirs.change(|state| *state += 1))
            })
            .collect();
        let mut cached = None;
        let found = shared.cached(&mut cached, |state| *state);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(found <= 2);
        assert_eq!(shared.cached(&mut cached, |state| *state), 2);
    });
}
