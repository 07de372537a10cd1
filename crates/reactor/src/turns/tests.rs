use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::*;
use crate::{now, simulate, spawn, yield_now};

/// What one does in a turn of its own.
const UNIT: usize = 16 << 10;
const UNITS_A_TURN: usize = 4;
const _: () = assert!((UNITS_A_TURN * UNIT) as i64 == TURN_BYTES);

/// A task that works whenever it has a turn, and counts.
fn worker(party: &Rc<Party>) -> Rc<Cell<usize>> {
    let (party, done) = (Rc::clone(party), Rc::new(Cell::new(0)));
    let counted = Rc::clone(&done);
    spawn(async move {
        loop {
            party.is_active();
            party.work(UNIT).await;
            counted.set(counted.get() + 1);
            if !Party::is_bounded() {
                yield_now().await;
            }
        }
    });
    done
}

fn sum(workers: &[Rc<Cell<usize>>]) -> usize {
    workers.iter().map(|worker| worker.get()).sum()
}

/// Several parties count as active from here on.
fn share_the_core() {
    for _ in 0..2 {
        let party = Party::of(&Group::new());
        party.is_active();
        party.is_active();
    }
}

/// Uses up a group's turn: nobody of it begins before all wait.
async fn use_up(party: &Rc<Party>) {
    party.work(usize::try_from(TURN_BYTES).unwrap()).await;
}

#[test]
fn who_is_alone_does_what_it_likes() {
    simulate(1, async {
        let party = Party::of(&Group::new());
        let workers: Vec<_> = (0..100).map(|_| worker(&party)).collect();
        for _ in 0..10 {
            yield_now().await;
        }
        assert!(sum(&workers) >= 900, "{}", sum(&workers));
    });
}

#[test]
fn a_turn_is_as_long_however_many_of_one_group_want_it_and_others_have_theirs() {
    simulate(1, async {
        share_the_core();
        let flood = Group::new();
        let parties = [Party::of(&flood), Party::of(&flood)];
        use_up(&parties[0]).await;
        let flooding: Vec<_> = (0..100).map(|n| worker(&parties[n % 2])).collect();
        let neighbour = Party::of(&Group::new());
        for _ in 0..100 {
            let before = sum(&flooding);
            neighbour.work(UNIT).await;
            yield_now().await;
            let done = sum(&flooding) - before;
            assert!(done <= 2 * UNITS_A_TURN, "{done} units in two turns");
        }
        // The flood had all of its turns, and each of its tasks as many.
        let each: Vec<_> = flooding.iter().map(|worker| worker.get()).collect();
        let (least, most) = (each.iter().min().unwrap(), each.iter().max().unwrap());
        assert!(*least >= 2 && most - least <= 1, "{least} to {most}");
    });
}

/// One that asks again only when it was served came behind the others once more each time.
#[test]
fn parties_of_a_group_take_turns_however_many_wait_in_one() {
    simulate(1, async {
        share_the_core();
        let group = Group::new();
        let parties = [50, 1, 7].map(|tasks| (tasks, Party::of(&group)));
        use_up(&parties[0].1).await;
        let of_each =
            parties.map(|(tasks, party)| (0..tasks).map(|_| worker(&party)).collect::<Vec<_>>());
        for turns in 1..=60 {
            yield_now().await;
            let done = of_each.each_ref().map(|workers| sum(workers));
            let (least, most) = (done.iter().min().unwrap(), done.iter().max().unwrap());
            assert!(most - least <= 1, "{done:?}");
            assert!(done.iter().sum::<usize>() >= (turns - 1) * UNITS_A_TURN, "{done:?}");
        }
    });
}

/// An idle host keeps its controller with a command every few seconds.
#[test]
fn who_does_something_now_and_then_bounds_nobody() {
    simulate(1, async {
        let (busy, idle) = (Party::of(&Group::new()), Party::of(&Group::new()));
        for _ in 0..3 {
            idle.is_active();
            for _ in 0..10 {
                busy.is_active();
                yield_now().await;
                assert!(!Party::is_bounded());
            }
            crate::sleep(Duration::from_nanos(LATELY_NANOS)).await;
        }
        for _ in 0..2 {
            busy.is_active();
            idle.is_active();
        }
        assert!(Party::is_bounded());
    });
}

#[test]
fn what_was_done_beyond_a_turn_is_made_up_for() {
    simulate(1, async {
        share_the_core();
        let party = Party::of(&Group::new());
        let turns = 10;
        party.work(turns * usize::try_from(TURN_BYTES).unwrap()).await;
        let begin = now();
        party.work(1).await;
        let waited = (now() - begin) / crate::TURN_NANOS;
        assert!((9..=11).contains(&waited), "{waited} turns");
    });
}

/// A task that was called and went away kept the rest of its group from ever being called.
#[test]
fn who_goes_away_before_or_after_it_is_called_lets_the_next_one_go() {
    simulate(1, async {
        share_the_core();
        let party = Party::of(&Group::new());
        use_up(&party).await;
        let waits = |done: &Rc<Cell<bool>>| {
            let (party, done) = (Rc::clone(&party), Rc::clone(done));
            spawn(async move {
                party.work(1).await;
                done.set(true);
            })
        };
        let (first, second, third) = (Rc::default(), Rc::default(), Rc::default());
        let (one, two) = (waits(&first), waits(&second));
        waits(&third);
        yield_now().await;
        two.abort();
        // Aborted in the turn in which it is called, before it runs.
        one.abort();
        for _ in 0..3 {
            yield_now().await;
        }
        assert!(!first.get() && !second.get() && third.get());
    });
}

#[test]
fn those_who_wait_go_on_once_they_are_alone() {
    simulate(1, async {
        share_the_core();
        let party = Party::of(&Group::new());
        let workers: Vec<_> = (0..20).map(|_| worker(&party)).collect();
        yield_now().await;
        assert!(sum(&workers) <= 2 * UNITS_A_TURN);
        while Party::is_bounded() {
            yield_now().await;
        }
        let before = sum(&workers);
        for _ in 0..4 {
            yield_now().await;
        }
        assert!(sum(&workers) - before >= 40, "{}", sum(&workers) - before);
    });
}
