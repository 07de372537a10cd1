//! Looking for an answer in the context that waits for it, instead of giving the turn back.

use crate::core;
use crate::limits::SPIN_TURN_NANOS;
use crate::time::{clock, nanos_of};
use std::time::Duration;

/// Whether no other task waits to run in this turn: what this one has gathered by now is all that there will be.
///
/// # Panics
/// Outside a reactor.
#[inline]
#[must_use]
pub fn is_last() -> bool {
    core::with(|core| !core.executor.has_normal())
}

/// What came of [`spin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spun<T> {
    /// What was looked for.
    Found(T),
    /// The time was up.
    InVain,
    /// The reactor has something else to do, or is one that sleeps instead: nothing is known.
    Stopped,
}

/// Calls `look` until it finds something, for at most `most`, and only as long as this reactor has nothing else
/// to do: no task can run, there is no mail, no timer is due, and its turn is not too old. A reactor that does
/// not poll its sockets does not look at all. The time counts as spinning, not as work.
///
/// # Panics
/// Outside a reactor.
#[inline]
pub fn spin<T>(most: Duration, mut look: impl FnMut() -> Option<T>) -> Spun<T> {
    let begin = clock();
    let found = core::with(|core| {
        let timer = core.timers.borrow().next_deadline().unwrap_or(u64::MAX);
        let turn = core.now.get() + SPIN_TURN_NANOS;
        (core.polls_sockets && begin < timer.min(turn)).then(|| timer.min(turn))
    });
    let Some(limit) = found else { return Spun::Stopped };
    let end = begin.saturating_add(nanos_of(most));
    loop {
        // Not while the core is borrowed: it may wake tasks and send.
        let found = look();
        let now = clock();
        let stop = core::with(|core| {
            if found.is_some() || core.executor.has_runnable() || core.mailbox().has_mail() {
                return true;
            }
            now >= limit || now >= end
        });
        if !stop {
            std::hint::spin_loop();
            continue;
        }
        core::with(|core| core.spun(now - begin));
        return match found {
            Some(found) => Spun::Found(found),
            None if now >= end => Spun::InVain,
            None => Spun::Stopped,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, PollPolicy, run, spawn, yield_now};
    use std::cell::Cell;
    use std::rc::Rc;

    fn on<T: 'static>(poll: PollPolicy, test: impl Future<Output = T> + 'static) -> T {
        run(Config { cpu: None, poll, name: "spin".to_owned() }, test).unwrap()
    }

    const LONG: Duration = Duration::from_secs(5);

    #[test]
    fn what_is_found_is_given_and_time_is_bounded() {
        on(PollPolicy::Busy, async {
            yield_now().await;
            let mut left = 3;
            let found = spin(LONG, || {
                left -= 1;
                (left == 0).then_some(17)
            });
            // On a loaded machine the turn may be too old before the third look.
            assert!(found == Spun::Found(17) || found == Spun::Stopped);
            yield_now().await;
            let nothing = spin(Duration::from_nanos(1), || None::<()>);
            assert!(nothing != Spun::Found(()));
            // A turn's bound ends it, however much time there is.
            assert_eq!(spin(LONG, || None::<()>), Spun::Stopped);
        });
    }

    #[test]
    fn other_tasks_come_first() {
        on(PollPolicy::Busy, async {
            yield_now().await;
            assert!(is_last());
            let ran = Rc::new(Cell::new(false));
            let set = Rc::clone(&ran);
            let task = spawn(async move { set.set(true) });
            assert!(!is_last());
            let mut looks = 0;
            let spun = spin(LONG, || {
                looks += 1;
                None::<()>
            });
            assert_eq!(spun, Spun::Stopped);
            assert!(looks <= 1 && !ran.get());
            task.await;
            assert!(ran.get());
        });
    }

    #[test]
    fn a_reactor_that_sleeps_does_not_look() {
        on(PollPolicy::Interrupt, async {
            assert_eq!(spin(LONG, || Some(())), Spun::Stopped);
        });
    }
}
