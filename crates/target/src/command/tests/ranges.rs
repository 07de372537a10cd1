//! Many who wait for blocks, and what each of them costs others.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nvme::nvm::LbaRange;
use reactor::sync::Notify;
use stdx::Prng;

use super::double::{at_once, on_reactor};
use super::io::range;
use super::woken::Woken;
use crate::command::fence::Fence;
use crate::command::ranges::Ranges;
use crate::limits::{COUNTED_AT_ONCE, LOOKED_AT_ONCE, MAX_RANGES_IN_FLIGHT, PASSED_MAX};

fn alone() -> Rc<Ranges> {
    Ranges::join(Arc::default())
}

const MANY: usize = 50_000;

/// Each end of a command had all who waited look, before their neighbours' commands had their turn: one address may have some
/// 58,000 entries.
#[test]
fn an_end_wakes_nobody_who_waits_for_something_else_and_few_at_once() {
    on_reactor(async {
        let (ranges, woken) = (alone(), Woken::default());
        let held = at_once(ranges.hold(range(0, 1))).unwrap();
        let other = at_once(ranges.hold(range(100, 1))).unwrap();
        let lost = at_once(ranges.enter(2, range(200, 1))).unwrap();
        ranges.lose(2);
        let elsewhere = at_once(ranges.enter(0, range(300, 1))).unwrap();
        let mut all: Vec<_> =
            (0..MANY).map(|_| Some(Box::pin(ranges.enter(1, range(0, 8))))).collect();
        for (n, waits) in all.iter_mut().flatten().enumerate() {
            assert!(woken.poll(n, waits.as_mut()).is_none());
        }
        drop((elsewhere, other, lost));
        assert_eq!(woken.take(), [], "that is not what they wait for");

        drop(held);
        let (mut polls, mut entered) = (0, Vec::new());
        loop {
            let next = woken.take();
            assert!(next.len() <= LOOKED_AT_ONCE + 1, "others have their turn between");
            if next.is_empty() {
                break;
            }
            for n in next {
                polls += 1;
                let waits = all[n].as_mut().expect("who has entered is not woken");
                if let Some(under_way) = woken.poll(n, waits.as_mut()) {
                    all[n] = None;
                    entered.push(under_way);
                }
            }
        }
        assert_eq!(entered.len(), MANY, "nobody is forgotten");
        assert!(polls <= MANY + MANY / LOOKED_AT_ONCE + 1, "{polls}");
    });
}

/// The same of those who wait for what a lost queue has under way.
#[test]
fn who_waits_for_a_lost_queue_is_woken_by_its_end_alone() {
    on_reactor(async {
        let (ranges, woken) = (alone(), Woken::default());
        let lost = at_once(ranges.enter(2, range(0, 8))).unwrap();
        let also = at_once(ranges.enter(2, range(100, 8))).unwrap();
        ranges.lose(2);
        let wanted = [range(4, 1)];
        let mut all: Vec<_> = (0..MANY).map(|_| Some(Box::pin(ranges.let_go(&wanted)))).collect();
        for (n, waits) in all.iter_mut().flatten().enumerate() {
            assert!(woken.poll(n, waits.as_mut()).is_none());
        }
        for _ in 0..1000 {
            drop(at_once(ranges.hold(range(50, 1))).unwrap());
            drop(at_once(ranges.enter(0, range(50, 1))).unwrap());
        }
        drop(also);
        assert_eq!(woken.take(), []);
        drop(lost);
        assert!(woken.take().len() <= LOOKED_AT_ONCE + 1);
        // Half of them are aborted meanwhile, and with them whoever was to go on.
        all[..MANY / 2].fill_with(|| None);
        let mut done = 0;
        loop {
            let next = woken.take();
            if next.is_empty() {
                break;
            }
            for n in next {
                let Some(waits) = all[n].as_mut() else { continue };
                if woken.poll(n, waits.as_mut()).is_some() {
                    all[n] = None;
                    done += 1;
                }
            }
        }
        assert_eq!(done, MANY / 2);
    });
}

/// A hold that comes while some of very many have yet to enter comes behind them.
#[test]
fn all_who_waited_for_a_hold_enter_before_the_next_however_many_they_are() {
    on_reactor(async {
        let (ranges, woken) = (alone(), Woken::default());
        let held = at_once(ranges.hold(range(0, 1))).unwrap();
        let mut all: Vec<_> = (0..500).map(|_| Box::pin(ranges.enter(0, range(0, 8)))).collect();
        for (n, waits) in all.iter_mut().enumerate() {
            assert!(woken.poll(n, waits.as_mut()).is_none());
        }
        let mut next = Box::pin(ranges.hold(range(0, 1)));
        assert!(at_once(next.as_mut()).is_none());
        drop(held);
        for _ in 0..500 / LOOKED_AT_ONCE + 2 {
            assert!(at_once(next.as_mut()).is_none(), "they come first");
        }
        let entered: Vec<_> = all.into_iter().map(|waits| at_once(waits).unwrap()).collect();
        assert!(at_once(next.as_mut()).is_none());
        drop(entered);
        assert!(at_once(next).is_some());
    });
}

/// It was passed for as long as others held one of its blocks each, by turns.
#[test]
fn a_long_range_among_blocks_that_are_held_all_the_time_enters() {
    on_reactor(async {
        let ranges = alone();
        let mut held = at_once(ranges.hold(range(0, 1))).unwrap();
        let mut long = Box::pin(ranges.enter(0, range(0, 64)));
        assert!(at_once(long.as_mut()).is_none());
        let mut turns = 0;
        let mut barred = loop {
            turns += 1;
            assert!(turns < 2 * u64::from(PASSED_MAX), "it is passed for ever");
            let mut next = Box::pin(ranges.hold(range(turns % 64, 1)));
            match at_once(next.as_mut()) {
                Some(next) => drop(std::mem::replace(&mut held, next)),
                None => break next,
            }
            assert!(at_once(long.as_mut()).is_none());
        };
        assert!(at_once(ranges.hold(range(64, 1))).is_some(), "others' blocks are free");
        drop(held);
        let entered = at_once(long).expect("nobody holds a part of it");
        assert!(at_once(barred.as_mut()).is_none(), "it is under way");
        drop(entered);
        assert!(at_once(barred).is_some());
    });
}

/// It waits for what may be long: nobody else has to.
#[test]
fn a_long_range_that_waits_for_a_lost_queue_keeps_nobody_off() {
    on_reactor(async {
        let ranges = alone();
        let mut held = at_once(ranges.hold(range(0, 1))).unwrap();
        let _slow = at_once(ranges.enter(7, range(60, 1))).unwrap();
        let mut long = Box::pin(ranges.enter(0, range(0, 64)));
        assert!(at_once(long.as_mut()).is_none());
        for n in 1..=u64::from(PASSED_MAX) {
            held = at_once(ranges.hold(range(n, 1))).unwrap();
        }
        assert!(at_once(ranges.hold(range(30, 1))).is_none(), "it was passed too often");
        ranges.lose(7);
        assert!(at_once(ranges.hold(range(30, 1))).is_some());
        drop(held);
        assert!(at_once(ranges.hold(range(30, 1))).is_some());
        assert!(at_once(long.as_mut()).is_none());
    });
}

/// A drive that hung with one block had everybody wait who wanted another one of a long command's, which waited for it too.
#[test]
fn a_long_range_keeps_others_off_for_a_second_and_not_for_as_long_as_a_slow_command() {
    on_reactor(async {
        let ranges = alone();
        let mut slow = at_once(ranges.hold(range(0, 1))).unwrap();
        let mut long = Box::pin(ranges.enter(0, range(0, 64)));
        assert!(at_once(long.as_mut()).is_none());
        for n in 1..=u64::from(PASSED_MAX) {
            slow = at_once(ranges.hold(range(n, 1))).unwrap();
        }
        let mut other = Box::pin(ranges.hold(range(30, 1)));
        assert!(at_once(other.as_mut()).is_none(), "the long one was passed too often");
        let other = reactor::timeout(Duration::from_secs(10), other).await;
        drop(other.expect("it waits for a block that is nobody's"));
        assert!(at_once(ranges.hold(range(31, 1))).is_some(), "not barred once more for the same");
        assert!(at_once(long.as_mut()).is_none());
        drop(slow);
        drop(at_once(long).expect("it is first where nothing is held"));
        assert!(ranges.is_idle());
    });
}

/// Each queue that was lost had all looked at that everybody had under way: a controller has up to 128 of them.
#[test]
fn the_loss_of_a_queue_costs_what_it_had() {
    on_reactor(async {
        let ranges = alone();
        let enter = |queue, n: u64| at_once(ranges.enter(queue, range(n, 1))).unwrap();
        let mut others: Vec<_> = (0..100_000).map(|n| enter(1, n)).collect();
        let lost: Vec<_> = (2..2002).map(|queue| enter(queue, 200_000 + queue)).collect();
        let before = reactor::thread_usage().user;
        for queue in (2..100_000).step_by(2) {
            ranges.lose(queue);
        }
        let spent = reactor::thread_usage().user - before;
        assert!(spent < Duration::from_secs(1), "{spent:?}");
        // Those of each queue are known whoever left between.
        for n in (0..others.len()).rev().step_by(3) {
            drop(others.swap_remove(n));
        }
        let at = range(0, 100_000);
        assert!(!ranges.is_kept(&[at]) && ranges.is_kept(&[range(200_002, 1)]));
        ranges.lose(1);
        drop(lost);
        assert!(ranges.is_kept(&[at]));
        drop(others);
        assert!(ranges.is_idle());
    });
}

/// Who needs room for many waited for as long as others took what was left.
#[test]
fn who_needs_much_room_has_his_turn_before_those_who_came_later() {
    on_reactor(async {
        let ranges = alone();
        let enter = |n| at_once(ranges.enter(0, range(n, 1)));
        let full = u64::try_from(MAX_RANGES_IN_FLIGHT).unwrap();
        let mut under_way: Vec<_> = (0..full).map(|n| enter(n).unwrap()).collect();
        let wanted: Vec<_> = (0..16).map(|n| range(n, 1)).collect();
        let mut many = Box::pin(ranges.enter_all(1, &wanted));
        assert!(at_once(many.as_mut()).is_none());
        let mut late = Box::pin(ranges.enter(2, range(0, 1)));
        for _ in 0..16 {
            assert!(at_once(late.as_mut()).is_none() && at_once(many.as_mut()).is_none());
            assert!(!ranges.may_enter(range(9, 1)));
            drop(under_way.pop());
        }
        assert_eq!(at_once(many.as_mut()).unwrap().len(), 16);
        assert!(at_once(late.as_mut()).is_some());
        // Nobody takes the room of one that was the first and is gone.
        let _rest: Vec<_> = (0..15).filter_map(enter).collect();
        let mut many = Box::pin(ranges.enter_all(1, &wanted));
        let mut late = Box::pin(ranges.enter(2, range(0, 1)));
        assert!(at_once(many.as_mut()).is_none() && at_once(late.as_mut()).is_none());
        drop(many);
        assert!(at_once(late.as_mut()).is_some());
    });
}

/// One that waited had entered when it was aborted, and did not know.
#[test]
fn who_has_entered_and_is_gone_before_it_hears_of_that_leaves_nothing() {
    on_reactor(async {
        let ranges = alone();
        let held = at_once(ranges.hold(range(0, 1))).unwrap();
        let mut waits = Box::pin(ranges.enter(0, range(0, 4)));
        let wanted = [range(2, 1), range(0, 1)];
        let mut many = Box::pin(ranges.enter_all(0, &wanted));
        assert!(at_once(waits.as_mut()).is_none() && at_once(many.as_mut()).is_none());
        drop(held);
        let mut hold = Box::pin(ranges.hold(range(2, 1)));
        assert!(at_once(hold.as_mut()).is_none(), "both are there");
        drop(waits);
        assert!(at_once(hold.as_mut()).is_none());
        drop(many);
        assert!(at_once(hold.as_mut()).is_some());
    });
}

/// Of very much some is looked at in one go. What ends meanwhile is not waited for, looked at or not.
#[test]
fn a_hold_among_very_much_under_way_waits_for_what_is_on_its_blocks_alone() {
    on_reactor(async {
        let ranges = alone();
        let enter = |n: u64| Some(at_once(ranges.enter(0, range(n, 1))).unwrap());
        let on = |n: u64| if n.is_multiple_of(1000) { 0 } else { n };
        let many = u64::from(3 * COUNTED_AT_ONCE);
        let mut under_way: Vec<_> = (0..many).map(|n| enter(on(n))).collect();
        let mut hold = Box::pin(ranges.hold(range(0, 1)));
        assert!(at_once(hold.as_mut()).is_none());
        under_way[0] = None;
        under_way[3000] = None;
        // In the place of one of these.
        let _other = enter(many);
        for _ in 0..6 {
            assert!(at_once(hold.as_mut()).is_none());
        }
        under_way[1000] = None;
        assert!(at_once(hold.as_mut()).is_none());
        under_way[2000] = None;
        assert!(at_once(hold.as_mut()).is_some());
    });
}

// ---- Anything at random --------------------------------------------------------------------

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Enter,
    EnterAll,
    Hold,
    LetGo,
}

/// A command of one of two cores.
struct Actor {
    kind: Kind,
    blocks: Vec<LbaRange>,
    core: usize,
    queue: u64,
    /// It has what it waited for since this step.
    has: Rc<Cell<Option<usize>>>,
    /// Its queue was lost in this step.
    lost: Option<usize>,
    end: Rc<Notify>,
    task: reactor::Task<()>,
}

impl Actor {
    fn overlaps(&self, other: &Self) -> bool {
        self.blocks.iter().any(|one| other.blocks.iter().any(|two| one.overlaps(*two)))
    }

    fn is_under_way(&self) -> bool {
        matches!(self.kind, Kind::Enter | Kind::EnterAll) && self.has.get().is_some()
    }

    fn is_held(&self) -> bool {
        self.kind == Kind::Hold && self.has.get().is_some()
    }
}

struct World {
    cores: [Rc<Ranges>; 2],
    actors: Vec<Actor>,
    now: Rc<Cell<usize>>,
    prng: Prng,
    /// In which order holds were had, by when they began.
    had: Rc<RefCell<Vec<(LbaRange, usize)>>>,
}

/// Everybody does what there is to do.
async fn settle() {
    for _ in 0..10 {
        reactor::yield_now().await;
    }
}

type Run = Pin<Box<dyn Future<Output = ()>>>;

impl World {
    fn new(seed: u64) -> Self {
        let fence = Arc::<Fence>::default();
        let cores = [Ranges::join(Arc::clone(&fence)), Ranges::join(fence)];
        let (now, prng, had) = (Rc::default(), Prng::new(seed), Rc::default());
        Self { cores, actors: Vec::new(), now, prng, had }
    }

    fn below(&mut self, n: u64) -> usize {
        usize::try_from(self.prng.below(n)).unwrap()
    }

    fn some_range(&mut self) -> LbaRange {
        let first = self.prng.below(10);
        range(first, u32::try_from(1 + self.prng.below(4)).unwrap())
    }

    fn begin(&mut self) {
        let kind =
            [Kind::Enter, Kind::EnterAll, Kind::Hold, Kind::Hold, Kind::LetGo][self.below(5)];
        let blocks = match kind {
            Kind::Hold => {
                let blocks = u32::try_from(1 + self.prng.below(2)).unwrap();
                vec![range(self.prng.below(10), blocks)]
            }
            Kind::EnterAll => (0..3).map(|_| self.some_range()).collect(),
            Kind::Enter | Kind::LetGo => vec![self.some_range()],
        };
        let (core, queue, began) = (self.below(2), self.prng.below(3), self.now.get());
        let (has, end) = (Rc::new(Cell::new(None)), Rc::new(Notify::new()));
        let ranges = Rc::clone(&self.cores[core]);
        let (tells, ends, wanted) = (Rc::clone(&has), Rc::clone(&end), blocks.clone());
        let (now, had) = (Rc::clone(&self.now), Rc::clone(&self.had));
        let run: Run = Box::pin(async move {
            let tell = || tells.set(Some(now.get()));
            match kind {
                Kind::Enter => {
                    let _under_way = ranges.enter(queue, wanted[0]).await;
                    tell();
                    ends.notified().await;
                }
                Kind::EnterAll => {
                    let _under_way = ranges.enter_all(queue, &wanted).await;
                    tell();
                    ends.notified().await;
                }
                Kind::Hold => {
                    let _held = ranges.hold(wanted[0]).await;
                    had.borrow_mut().push((wanted[0], began));
                    tell();
                    ends.notified().await;
                }
                Kind::LetGo => {
                    ranges.let_go(&wanted).await;
                    tell();
                }
            }
        });
        let task = reactor::spawn(run);
        self.actors.push(Actor { kind, blocks, core, queue, has, lost: None, end, task });
    }

    /// Somebody who has what it waited for ends, or one that waits is aborted.
    fn end_one(&mut self, aborts: bool) {
        let which = |actor: &Actor| actor.has.get().is_none() == aborts;
        let found: Vec<usize> =
            (0..self.actors.len()).filter(|n| which(&self.actors[*n])).collect();
        if found.is_empty() {
            return;
        }
        let at = found[self.below(found.len().try_into().unwrap())];
        let actor = self.actors.swap_remove(at);
        match aborts {
            true => actor.task.abort(),
            false => actor.end.notify(),
        }
    }

    fn lose(&mut self) {
        let (core, queue) = (self.below(2), self.prng.below(3));
        self.cores[core].lose(queue);
        for actor in &mut self.actors {
            let is_its = actor.core == core && actor.queue == queue && actor.is_under_way();
            if is_its && actor.lost.is_none() {
                actor.lost = Some(self.now.get());
            }
        }
    }

    async fn step(&mut self) {
        self.now.set(self.now.get() + 1);
        match self.below(10) {
            0..=3 => self.begin(),
            4..=6 => self.end_one(false),
            7 => self.end_one(true),
            8 => self.lose(),
            // Several at once.
            _ => {
                self.end_one(false);
                self.begin();
                self.end_one(true);
                self.end_one(false);
            }
        }
        settle().await;
        self.check();
    }

    /// Rules that hold whenever nobody has anything to do.
    fn check(&self) {
        for (n, one) in self.actors.iter().enumerate() {
            for two in self.actors.iter().skip(n + 1).filter(|two| one.overlaps(two)) {
                let both = |is: fn(&Actor) -> bool, and: fn(&Actor) -> bool| {
                    is(one) && and(two) || and(one) && is(two)
                };
                assert!(!both(Actor::is_held, Actor::is_held), "two hold a block");
                assert!(!both(Actor::is_held, Actor::is_under_way), "it is held");
                for (old, new) in [(one, two), (two, one)] {
                    let is_kept = old.lost.is_some_and(|lost| new.has.get() > Some(lost));
                    assert!(!is_kept, "a lost queue has something under way there");
                }
            }
            if one.has.get().is_some() {
                continue;
            }
            let is_kept_off = self.actors.iter().enumerate().any(|(at, other)| {
                let keeps = match one.kind {
                    Kind::Enter | Kind::EnterAll => other.kind == Kind::Hold,
                    Kind::Hold => other.kind != Kind::LetGo,
                    Kind::LetGo => false,
                };
                at != n && one.overlaps(other) && (keeps || other.lost.is_some())
            });
            assert!(is_kept_off, "nobody wakes {:?} of {:?}", one.kind, one.blocks);
        }
    }

    /// Everybody has what it wants once those before it end.
    async fn finish(mut self) {
        while !self.actors.is_empty() {
            self.now.set(self.now.get() + 1);
            let had = self.actors.len();
            self.end_one(false);
            assert!(self.actors.len() < had, "all wait for each other");
            settle().await;
            self.check();
        }
        for ranges in &self.cores {
            assert!(at_once(ranges.enter(0, range(0, 100))).is_some());
        }
        let had = self.had.borrow();
        for (n, (block, began)) in had.iter().enumerate() {
            let passed = had[..n].iter().any(|(of, later)| of == block && later > began);
            assert!(!passed, "holds of the same blocks come in their order");
        }
    }
}

/// Entering, holding, losing and aborting on two cores against the plain rules.
#[test]
fn whoever_waits_has_its_turn_and_nobody_is_where_another_is() {
    on_reactor(async {
        let seed = std::env::var("FLASHLOOM_SEED").ok().and_then(|seed| seed.parse().ok());
        let seeds = seed.map_or(0..80, |seed: u64| seed..seed + 1);
        for seed in seeds {
            let mut world = World::new(seed);
            let run = async {
                for _ in 0..100 {
                    world.step().await;
                }
                world.finish().await;
            };
            reactor::timeout(Duration::from_secs(60), run).await.expect("it ends");
        }
    });
}
