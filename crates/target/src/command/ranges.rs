//! Which logical blocks of a namespace are being changed on this core, which are held for a compare and write,
//! and which commands its backend has.
//!
//! A fused Compare and Write is atomic against every other write to its blocks (NVM Command Set
//! 1.1, fused operations). It *holds* its range on every core: commands that come later wait, those
//! under way on the range are waited for. A command that completes within one poll needs no entry
//! here; it only asks whether its range is free, which is one comparison while nobody holds anything.
//!
//! Whoever waits here holds no buffer of the pool: what it waits for may need one. Nor has it its host's turn to work
//! ([`Slot::work`](super::Slot::work)): what is under way on a range waits for that. Places in a drive
//! ([`Slot::place`](super::Slot::place)) are taken before either.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use nvme::nvm::LbaRange;
use reactor::budget::Ledger;
use reactor::sync::Signal;
use reactor::{GracePeriod, Nanos, ReadGuard};
use stdx::Lba;

use super::entering::{Entering, Looked};
use super::fence::{Answer, Ask, Core, Fence, Hold, Joined};
use super::lines::Place;
use crate::limits::{
    BARRED_NANOS, DRIVE_SHARED_BYTES, KEPT_MAX, LOOKED_AT_ONCE, PASSED_MAX, RANGES_TOGETHER_MAX,
    holds_of_core,
};

/// The ranges of one namespace on one core.
#[derive(Debug)]
pub struct Ranges {
    fence: Arc<Fence>,
    core: Arc<Core>,
    entering: RefCell<Entering>,
    /// What is kept from others for lost queues of this core.
    kept: RefCell<Vec<Kept>>,
    /// Holds up to this one were known when this core joined.
    known: u64,
    /// Who was passed too often, and has nobody else claim its blocks.
    barring: Cell<Option<Barring>>,
    /// Somebody looks at when that ends.
    is_timed: Cell<bool>,
    this: Weak<Self>,
    /// Holds that wait for what is under way.
    clearing: RefCell<Vec<Rc<Clearing>>>,
    /// Commands that the backend has.
    in_backend: GracePeriod,
    /// Places in a drive, in bytes, while several hosts are active.
    places: Rc<Ledger>,
    /// Compares and writes that hold a range, or wait to.
    holding: Rc<Ledger>,
    /// Ranges of commands that name many, entered or not yet.
    together: Rc<Ledger>,
    /// The namespace was removed.
    closed: Cell<bool>,
}

/// A waiting command that keeps others from claiming its blocks.
#[derive(Clone, Copy, Debug)]
struct Barring {
    place: Place,
    came: u64,
    /// The number of its bar.
    bar: u64,
    /// Until when it keeps others off.
    until: Nanos,
}

/// Holds that keep others off commands of a lost queue.
#[derive(Debug)]
struct Kept {
    number: u64,
    holds: Vec<u64>,
    /// Commands that have not left yet.
    left: usize,
}

/// A command under way on a range; leaves when dropped.
#[derive(Debug)]
#[must_use]
pub struct UnderWay<'a> {
    ranges: &'a Ranges,
    index: u32,
}

/// A hold that waits for what was under way on its range when it came. Nothing more enters there: what ends is counted, and
/// not looked for among all that is under way, of which there may be much and of holds many.
#[derive(Debug)]
struct Clearing {
    range: LbaRange,
    /// What is under way below this index was looked at: of much, some at a time.
    counted: Cell<u32>,
    left: Cell<usize>,
    done: Signal,
}

/// Forgets it when whoever waits is done or gone.
struct Waits<'a> {
    ranges: &'a Ranges,
    clearing: Rc<Clearing>,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.ranges.clearing.borrow_mut().retain(|other| !Rc::ptr_eq(other, &self.clearing));
    }
}

/// A command that waits, until it has entered or is gone.
struct Waiting<'a> {
    ranges: &'a Ranges,
    place: Place,
}

/// A held range; released when dropped.
#[derive(Debug)]
#[must_use]
pub struct Held<'a> {
    ranges: &'a Ranges,
    id: u64,
}

impl Ranges {
    /// Joins the cores that serve the namespace behind `fence`, and starts the task that answers
    /// them. Call on a reactor.
    pub fn join(fence: Arc<Fence>) -> Rc<Self> {
        let Joined { core, holds, known, closed, cores } = fence.join();
        let ranges = Rc::new_cyclic(|this| Self {
            fence,
            core,
            entering: RefCell::new(Entering::new(holds)),
            kept: RefCell::default(),
            known,
            barring: Cell::new(None),
            is_timed: Cell::new(false),
            this: Weak::clone(this),
            clearing: RefCell::default(),
            in_backend: GracePeriod::default(),
            places: Ledger::new(DRIVE_SHARED_BYTES),
            holding: Ledger::new(holds_of_core(cores)),
            together: Ledger::new(RANGES_TOGETHER_MAX),
            closed: Cell::new(closed),
        });
        reactor::spawn(attend(Arc::clone(&ranges.core), Rc::downgrade(&ranges)));
        ranges
    }

    /// Whether they are of the namespace behind `fence`.
    pub fn are_of(&self, fence: &Arc<Fence>) -> bool {
        Arc::ptr_eq(&self.fence, fence)
    }

    /// Whether a command may go ahead on `range` if it completes at once, and [`enter`](Self::enter) it without waiting else.
    #[inline]
    pub fn may_enter(&self, range: LbaRange) -> bool {
        self.entering.borrow().may_enter(range)
    }

    /// Whether a part of one of these ranges is kept for a [lost](Self::lose) queue.
    #[inline]
    pub fn is_kept(&self, ranges: &[LbaRange]) -> bool {
        self.entering.borrow().is_kept(ranges)
    }

    /// Waits as long as that is so.
    pub async fn let_go(&self, ranges: &[LbaRange]) {
        if self.is_kept(ranges) {
            self.wait(None, ranges).await;
        }
    }

    /// Enters a command of the queue with this number that takes more than one poll, unless it has to wait for that.
    #[inline]
    pub fn try_enter(&self, queue: u64, range: LbaRange) -> Option<UnderWay<'_>> {
        let index = self.entering.borrow_mut().enter(queue, range)?;
        Some(UnderWay { ranges: self, index })
    }

    /// The same as soon as nobody holds its range.
    pub async fn enter(&self, queue: u64, range: LbaRange) -> UnderWay<'_> {
        if let Some(entered) = self.try_enter(queue, range) {
            return entered;
        }
        let index = self.wait(Some(queue), slice::from_ref(&range)).await[0];
        UnderWay { ranges: self, index }
    }

    /// Enters a command of many ranges, of all at once: one that had some of them and waited for another would wait for whoever
    /// holds that, who may wait for what it has.
    pub async fn enter_all(&self, queue: u64, ranges: &[LbaRange]) -> Vec<UnderWay<'_>> {
        let entered = self.entering.borrow_mut().enter_all(queue, ranges);
        let entered = match entered {
            Some(entered) => entered,
            None => self.wait(Some(queue), ranges).await,
        };
        entered.into_iter().map(|index| UnderWay { ranges: self, index }).collect()
    }

    /// Holds `range` on every core, and waits for what is under way there.
    pub async fn hold(&self, range: LbaRange) -> Held<'_> {
        let hold = self.fence.claim(range).await;
        // Released also when this is given up while it waits.
        let held = Held { ranges: self, id: hold.id };
        let others = self.fence.ask_others(&self.core, |answer| Ask::Hold(hold, answer));
        self.place(hold).await;
        self.cleared(range).await;
        poll_fn(|cx| others.poll(cx)).await;
        held
    }

    /// A queue is lost: what it has under way here comes before everything that enters from now on, on whatever core. Its
    /// host takes those commands for ended some time after the loss, and writes there by another queue; but nothing takes
    /// them back from a backend that is slow.
    pub fn lose(&self, queue: u64) {
        let mut entering = self.entering.borrow_mut();
        let lost: Vec<_> = entering
            .of_queue(queue)
            .filter(|(_, entered)| entered.kept.is_none())
            .map(|(index, entered)| (index, entered.range))
            .collect();
        if lost.is_empty() {
            return;
        }
        let ranges: Vec<LbaRange> = lost.iter().map(|(_, range)| *range).collect();
        let is_few = ranges.len() <= KEPT_MAX;
        let holds = self.fence.keep(if is_few { ranges } else { stretches(ranges) }, &self.core);
        let together = holds[0].id;
        for (n, (index, _)) in lost.iter().enumerate() {
            if let Some(entered) = entering.under_way_mut().get_mut(*index) {
                entered.kept = Some(if is_few { holds[n].id } else { together });
            }
        }
        let mut kept = self.kept.borrow_mut();
        if is_few {
            let one = |hold: &Hold| Kept { number: hold.id, holds: vec![hold.id], left: 1 };
            kept.extend(holds.iter().map(one));
        } else {
            let ids = holds.iter().map(|hold| hold.id).collect();
            kept.push(Kept { number: together, holds: ids, left: lost.len() });
        }
        drop((kept, entering));
        self.note_kept(holds);
    }

    /// A command of a lost queue has left: with the last of those that are kept together nothing is kept for them any more.
    fn give_back(&self, number: u64) {
        let mut kept = self.kept.borrow_mut();
        let at = kept.iter().position(|of| of.number == number).expect("what is kept is known");
        kept[at].left -= 1;
        if kept[at].left > 0 {
            return;
        }
        let ids = kept.swap_remove(at).holds;
        drop(kept);
        self.fence.release_kept(&ids, &self.core);
        self.lift(&ids);
    }

    /// Whether the namespace was removed.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Counts a command among those that the backend has, until what is returned is dropped.
    pub fn use_backend(&self) -> ReadGuard {
        self.in_backend.enter()
    }

    pub const fn places(&self) -> &Rc<Ledger> {
        &self.places
    }

    /// How many compares and writes hold a range, or wait to: to be asked for a place there before [`hold`](Self::hold).
    pub const fn holding(&self) -> &Rc<Ledger> {
        &self.holding
    }

    /// How many ranges commands name that name many: to be asked for so many before [`enter_all`](Self::enter_all).
    pub const fn together(&self) -> &Rc<Ledger> {
        &self.together
    }

    /// Waits until every command that the backend has now, of any core, has ended; later ones do not matter.
    pub async fn drain(&self) {
        let others = self.fence.ask_others(&self.core, Ask::Drain);
        self.in_backend.pass().await;
        poll_fn(|cx| others.poll(cx)).await;
    }

    /// Whether nobody is under way here, holds anything, or waits.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let entering = self.entering.borrow();
        let is_empty = entering.under_way().is_empty() && entering.holds() == 0;
        let waiting = entering.waiting() + self.clearing.borrow().len() + self.kept.borrow().len();
        is_empty && waiting == 0 && self.barring.get().is_none() && self.fence.is_idle()
    }

    /// Notes a hold, of this core or of another; it may be known from joining. Commands that waited for the hold
    /// before it enter first: where one follows the other they would wait for ever.
    async fn place(&self, hold: Hold) {
        let mut ahead = self.entering.borrow().waiting();
        while ahead > 0 && self.go_on() {
            ahead = ahead.saturating_sub(LOOKED_AT_ONCE);
            reactor::yield_now().await;
            // What is kept for lost queues does not wait for that: their hosts go on soon.
            self.core.kept().into_iter().for_each(|holds| self.note_kept(holds));
        }
        self.note(hold);
    }

    fn note(&self, hold: Hold) {
        if hold.id > self.known {
            self.entering.borrow_mut().note(hold);
        }
    }

    fn note_kept(&self, holds: Vec<Hold>) {
        holds.into_iter().for_each(|hold| self.note(hold));
        if let Some(Barring { place, .. }) = self.barring.get()
            && self.entering.borrow_mut().waits_for_kept(place)
        {
            self.unbar(place);
        }
    }

    fn lift(&self, ids: &[u64]) {
        let was_nobody = self.entering.borrow_mut().lift(ids);
        if was_nobody {
            self.go_on();
        }
    }

    /// Looks at some of those whom nothing seems to keep off any more. With many of them the first that is left is woken, and
    /// goes on with them then: other tasks have their turn between. Tells whether there are such.
    fn go_on(&self) -> bool {
        for _ in 0..LOOKED_AT_ONCE {
            let looked = self.entering.borrow_mut().look();
            match looked {
                None => return false,
                Some(Looked::Goes(place, waker)) => {
                    self.unbar(place);
                    waker.wake();
                }
                Some(Looked::Kept(place)) => self.unbar(place),
                Some(Looked::HeldOff(place)) => self.bar(place),
            }
        }
        let next = self.entering.borrow_mut().next();
        let is_more = next.is_some();
        if let Some((_, waker)) = next {
            waker.wake();
        }
        is_more
    }

    /// One that was passed by many holds, as a long range among short ones may be for ever, has later ones wait for it. They
    /// have nothing then that it could wait for. Of several it is the one that has waited the longest. What it waits for
    /// itself may be slow, and is nobody's who wants other blocks of its range: they wait for [`BARRED_NANOS`] at most.
    fn bar(&self, place: Place) {
        let mut entering = self.entering.borrow_mut();
        let (came, passed) = entering.age(place);
        let is_behind = |other: Barring| other.came <= came;
        if passed < PASSED_MAX || self.barring.get().is_some_and(is_behind) {
            return;
        }
        let bar = self.fence.bar(entering.ranges_of(place));
        drop(entering);
        let until = reactor::now().saturating_add(BARRED_NANOS);
        if let Some(other) = self.barring.replace(Some(Barring { place, came, bar, until })) {
            self.fence.unbar(other.bar);
        }
        if !self.is_timed.replace(true) {
            reactor::spawn(end_bars(Weak::clone(&self.this)));
        }
    }

    /// It has entered, is gone, or waits for what may be long: nobody waits for that with it.
    fn unbar(&self, place: Place) {
        if let Some(barring) = self.barring.get()
            && barring.place == place
        {
            self.barring.set(None);
            self.fence.unbar(barring.bar);
        }
    }

    /// Waits until nobody holds a part of these ranges, and has entered them then for the queue. Without one it waits for what
    /// is kept for lost queues only, and enters nothing.
    async fn wait(&self, queue: Option<u64>, ranges: &[LbaRange]) -> Vec<u32> {
        let place = self.entering.borrow_mut().wait(queue, ranges);
        let waiting = Waiting { ranges: self, place };
        poll_fn(|cx| waiting.poll(cx)).await
    }

    /// Something has left this range.
    fn count_down(&self, index: u32, range: LbaRange) {
        let all = self.clearing.borrow();
        let has_counted = |clearing: &&Rc<Clearing>| {
            index < clearing.counted.get() && clearing.range.overlaps(range)
        };
        for clearing in all.iter().filter(has_counted) {
            // One whose hold was given up counts what came after, too, and nobody asks.
            clearing.left.set(clearing.left.get().saturating_sub(1));
            if clearing.left.get() == 0 {
                clearing.done.raise();
            }
        }
    }

    async fn cleared(&self, range: LbaRange) {
        let (left, counted) = self.entering.borrow().count_on(range, 0);
        if left == 0 && self.entering.borrow().are_below(counted) {
            return;
        }
        let (left, counted) = (Cell::new(left), Cell::new(counted));
        let clearing = Rc::new(Clearing { range, counted, left, done: Signal::new() });
        self.clearing.borrow_mut().push(Rc::clone(&clearing));
        let waits = Waits { ranges: self, clearing };
        let Clearing { counted, left, .. } = &*waits.clearing;
        while !self.entering.borrow().are_below(counted.get()) {
            reactor::yield_now().await;
            let (more, to) = self.entering.borrow().count_on(range, counted.get());
            left.set(left.get() + more);
            counted.set(to);
        }
        waits.clearing.done.until(|| left.get() == 0).await;
    }
}

impl Waiting<'_> {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Vec<u32>> {
        let Self { ranges, place } = *self;
        let mut entering = ranges.entering.borrow_mut();
        if let Some(entered) = entering.goes(place) {
            return Poll::Ready(entered);
        }
        if entering.next().is_some_and(|(next, _)| next == place) {
            // It need not be woken for what it finds now.
            entering.renew(place, Waker::noop());
            drop(entering);
            ranges.go_on();
            entering = ranges.entering.borrow_mut();
            if let Some(entered) = entering.goes(place) {
                return Poll::Ready(entered);
            }
        }
        entering.renew(place, cx.waker());
        Poll::Pending
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Self { ranges, place } = *self;
        ranges.unbar(place);
        let (entered, was_next) = ranges.entering.borrow_mut().give_up(place);
        for index in entered.into_iter().flatten() {
            drop(UnderWay { ranges, index });
        }
        if was_next {
            ranges.go_on();
        }
    }
}

/// Stretches that have all of these ranges: about [`KEPT_MAX`].
fn stretches(mut ranges: Vec<LbaRange>) -> Vec<LbaRange> {
    ranges.sort_by_key(|range| range.start());
    let last = |range: &LbaRange| range.start().get() + u64::from(range.blocks() - 1);
    let mut all = Vec::with_capacity(KEPT_MAX);
    for some in ranges.chunks(ranges.len().div_ceil(KEPT_MAX)) {
        let mut start = some[0].start().get();
        let end = some.iter().map(last).max().unwrap_or(start);
        while start <= end {
            let blocks = u32::try_from(end - start + 1).unwrap_or(u32::MAX);
            all.extend(LbaRange::new(Lba::new(start), blocks));
            start += u64::from(blocks);
        }
    }
    all
}

/// Ends the bar of this core when its time is over, and those that come meanwhile.
async fn end_bars(ranges: Weak<Ranges>) {
    loop {
        let barring = match ranges.upgrade() {
            Some(ranges) => {
                let barring = ranges.barring.get();
                ranges.is_timed.set(barring.is_some());
                barring
            }
            None => return,
        };
        let Some(Barring { bar, until, .. }) = barring else { return };
        reactor::sleep_until(until).await;
        let Some(ranges) = ranges.upgrade() else { return };
        if let Some(now) = ranges.barring.get()
            && now.bar == bar
        {
            ranges.entering.borrow_mut().begin_anew(now.place);
            ranges.unbar(now.place);
        }
    }
}

/// Does what other cores ask of this one, until the namespace is used here no more.
async fn attend(core: Arc<Core>, ranges: Weak<Ranges>) {
    loop {
        let asked = poll_fn(|cx| core.poll_asked(cx)).await;
        let Some(ranges) = ranges.upgrade() else { return };
        // What is kept for lost queues comes first: their hosts go on soon, and a hold may take its time to be noted.
        let (keeps, others): (Vec<_>, Vec<_>) =
            asked.into_iter().partition(|ask| matches!(ask, Ask::Keep(_)));
        for ask in keeps.into_iter().chain(others) {
            match ask {
                Ask::Hold(hold, answer) => {
                    ranges.place(hold).await;
                    reactor::spawn(answer_cleared(Rc::clone(&ranges), hold.range, answer));
                }
                Ask::Keep(holds) => ranges.note_kept(holds),
                Ask::Release(ids) => ranges.lift(&ids),
                Ask::Cores(cores) => ranges.holding.set_total(holds_of_core(cores)),
                Ask::Drain(answer) => {
                    reactor::spawn(answer_drained(Rc::clone(&ranges), answer));
                }
                Ask::Close(answer) => {
                    ranges.closed.set(true);
                    crate::queue::view::refresh_all();
                    reactor::spawn(answer_drained(Rc::clone(&ranges), answer));
                }
            }
        }
    }
}

async fn answer_cleared(ranges: Rc<Ranges>, range: LbaRange, answer: Answer) {
    ranges.cleared(range).await;
    drop(answer);
}

async fn answer_drained(ranges: Rc<Ranges>, answer: Answer) {
    ranges.in_backend.pass().await;
    drop(answer);
}

impl Drop for Ranges {
    fn drop(&mut self) {
        self.fence.leave(&self.core);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let entered = self.ranges.entering.borrow_mut().leave(self.index);
        assert!(entered.is_some(), "a command that leaves has entered");
        let Some(entered) = entered else { return };
        if let Some(number) = entered.kept {
            self.ranges.give_back(number);
        }
        self.ranges.count_down(self.index, entered.range);
        let is_short = self.ranges.entering.borrow().is_short();
        if is_short {
            self.ranges.go_on();
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.ranges.fence.release(self.id, &self.ranges.core);
        self.ranges.lift(&[self.id]);
    }
}

#[cfg(test)]
mod tests;
