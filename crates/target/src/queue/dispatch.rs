//! From capsule to running command: admission, data, fused pairs, slots.

use core::cell::{Cell, RefCell};
use core::future::Future;
use std::rc::Rc;

use engine::UnverifiedRead;
use fabric::controller::{Capsule, Flow};
use fabric::payload::Payload;
use nvme::opcode::io;
use nvme::sqe::{Fused, Sqe};
use nvme::status::Status;

use super::Queue;
use super::request::{InCapsule, Request};
use super::slots::Slots;
use crate::command::{Begun, Reply, charge_to_send};

/// What runs in a slot.
pub enum Work {
    /// From where it was left.
    One(Request, Begun),
    /// A fused Compare and Write.
    Pair(Request, Request),
}

/// When a command is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Arrived,
    /// All capsules of its turn were taken.
    TurnEnds,
}

/// What became of a command that might have been done where it is dispatched.
pub enum Tried {
    Done,
    /// It is to be tried again when the turn ends.
    Later(Request),
    /// Its data is verified at the end of the turn.
    UnverifiedRead(Request, UnverifiedRead),
    /// It has to wait for something, and so needs a slot.
    Waits(Request, Begun),
}

/// Takes a queue's capsules and runs them as `F`, which `run` makes, but for those that `begin` ends.
pub struct Dispatcher<F, R, A> {
    queue: Rc<Queue>,
    slots: Slots<F>,
    run: R,
    /// Begins a command, and completes it if it need not wait.
    begin: A,
    /// Commands of this turn that are tried when it ends.
    later: RefCell<Vec<Request>>,
    /// Reads of this turn whose data has yet to be verified.
    lent: RefCell<Vec<(Request, UnverifiedRead)>>,
    /// The first half of a fused pair, until the next capsule.
    first: RefCell<Option<Request>>,
    overrun: Cell<bool>,
    starved: Cell<bool>,
    took_any: Cell<bool>,
}

impl<F, R, A> Dispatcher<F, R, A>
where
    F: Future<Output = ()> + 'static,
    R: Fn(Work) -> F,
    A: Fn(Request, When) -> Tried,
{
    pub fn new(queue: Rc<Queue>, run: R, begin: A) -> Self {
        let slots = Slots::new(queue.size());
        Self {
            queue,
            slots,
            run,
            begin,
            later: RefCell::default(),
            lent: RefCell::default(),
            first: RefCell::default(),
            overrun: Cell::default(),
            starved: Cell::default(),
            took_any: Cell::default(),
        }
    }

    /// Whether the host sent more commands than its queue has entries, or than it was told have been
    /// taken: nothing says what it meant then, and the connection must end.
    pub fn overrun(&self) -> bool {
        self.overrun.get()
    }

    /// Whether the host's commands keep as much of their capsules as they may; asked once.
    pub fn starved(&self) -> bool {
        self.starved.take()
    }

    /// Whether commands came since this was asked last.
    pub fn took_any(&self) -> bool {
        self.took_any.take()
    }

    /// Waits until no command runs any more.
    pub async fn drained(&self) {
        self.part();
        self.slots.drained().await;
    }

    /// Takes one capsule.
    pub fn take(&self, capsule: &Capsule<'_>) -> Flow {
        self.took_any.set(true);
        let cid = capsule.sqe.cid.get();
        if self.queue.is_full() {
            self.overrun.set(true);
            return Flow::Pause;
        }
        if !self.queue.admit(cid) {
            self.part();
            self.queue.refuse(cid, Status::COMMAND_ID_CONFLICT.with_dnr());
            return Flow::Continue;
        }
        if self.queue.closing() {
            self.part();
            self.queue.retire(cid);
            self.queue.refuse(cid, Status::ABORTED_SQ_DELETION);
            return Flow::Continue;
        }
        let data = match capsule.sqe.fused() {
            Some(Fused::First) => InCapsule::Kept(RefCell::new(capsule.data.to_vec())),
            _ => InCapsule::Place(capsule.place.clone()),
        };
        let request = Request {
            queue: self.queue.clone(),
            sqe: *capsule.sqe,
            tag: 0,
            data,
            arrived: reactor::now(),
            counters: None,
            begun_on: None,
            _spare: None,
            completed: Cell::new(false),
        };
        if !capsule.digest_ok {
            self.part();
            request.fail(Status::TRANSIENT_TRANSPORT_ERROR);
            return Flow::Continue;
        }
        let with_data = !capsule.data.is_empty();
        match self.pair(request) {
            Some(Work::One(request, _)) => self.begin(request, When::Arrived),
            Some(pair) => self.start(pair),
            None => {}
        }
        // What commands keep of their capsules is given back without the host: the next is not taken until its share
        // allows for it, or the pool has memory again.
        if with_data && !self.queue.can_keep() {
            self.starved.set(true);
            return Flow::Pause;
        }
        if self.overrun.get() { Flow::Pause } else { Flow::Continue }
    }

    fn begin(&self, request: Request, when: When) {
        match (self.begin)(request, when) {
            Tried::Done => {}
            Tried::Later(request) => self.later.borrow_mut().push(request),
            Tried::UnverifiedRead(request, lent) => self.lent.borrow_mut().push((request, lent)),
            Tried::Waits(request, begun) => self.start(Work::One(request, begun)),
        }
    }

    /// All capsules of a turn were taken: completes what was left until now. What each step looks at is on its
    /// way to the processor since the one before, for all commands at once.
    pub fn end_turn(&self) {
        let mut later = self.later.take();
        for request in later.drain(..) {
            self.begin(request, When::TurnEnds);
        }
        // Its memory, for the next turn.
        self.later.replace(later);
        let mut lent = self.lent.take();
        for (request, lent) in lent.drain(..) {
            // What is lent is copied where the host does not take it.
            let room = request.has_room(charge_to_send(request.sgl_bytes()));
            let pinned = if room { lent.verified() } else { None };
            match pinned {
                Some(pinned) => request.complete(Reply::with_data(Payload::PinnedRead(pinned))),
                // The slow way waits for room, counts damage, and puts it right.
                None => self.start(Work::One(request, Begun::Nothing)),
            }
        }
        self.lent.replace(lent);
    }

    /// Aborts the first half of a fused operation, behind which another command stands than its second: one that is none, for
    /// its identifier or its data. The next second half is another operation's.
    fn part(&self) {
        if let Some(first) = self.first.take() {
            first.fail(Status::ABORTED_MISSING_FUSED);
        }
    }

    /// Joins the two halves of a fused operation (Base 2.1, section 3.4.2): they stand next to each
    /// other in the submission queue, or the one that is alone is aborted.
    fn pair(&self, request: Request) -> Option<Work> {
        let first = self.first.take();
        match (request.sqe.fused(), first) {
            (Some(Fused::Normal), None) => Some(Work::One(request, Begun::Nothing)),
            (Some(Fused::Normal), Some(first)) => {
                first.fail(Status::ABORTED_MISSING_FUSED);
                Some(Work::One(request, Begun::Nothing))
            }
            (Some(Fused::First), first) => {
                if let Some(first) = first {
                    first.fail(Status::ABORTED_MISSING_FUSED);
                }
                *self.first.borrow_mut() = Some(request);
                None
            }
            (Some(Fused::Second), Some(first)) if fusible(&first.sqe, &request.sqe) => {
                Some(Work::Pair(first, request))
            }
            (Some(Fused::Second), Some(first)) => {
                first.fail(Status::INVALID_FIELD.with_dnr());
                request.fail(Status::INVALID_FIELD.with_dnr());
                None
            }
            (Some(Fused::Second), None) => {
                request.fail(Status::ABORTED_MISSING_FUSED);
                None
            }
            (None, first) => {
                if let Some(first) = first {
                    first.fail(Status::ABORTED_MISSING_FUSED);
                }
                request.fail(Status::INVALID_FIELD.with_dnr());
                None
            }
        }
    }

    fn start(&self, mut work: Work) {
        // Each half of a pair has a tag of its own, because they fetch their data at once.
        let spare = match &work {
            Work::One(..) => None,
            Work::Pair(..) => self.slots.take_spare(),
        };
        match (&mut work, self.slots.take(), spare) {
            (Work::One(one, _), Some(tag), _) => one.tag = tag,
            (Work::Pair(first, second), Some(tag), Some(spare)) => {
                first.tag = tag;
                second.tag = spare.tag();
                second._spare = Some(spare);
            }
            _ => return self.overrun_by(work),
        }
        let (Work::One(first, _) | Work::Pair(first, _)) = &work;
        self.slots.start(first.tag, (self.run)(work));
    }

    /// The host sent more commands than its queue has entries.
    fn overrun_by(&self, work: Work) {
        self.overrun.set(true);
        match work {
            Work::One(one, _) => one.fail(Status::INTERNAL_ERROR),
            Work::Pair(first, second) => {
                first.fail(Status::INTERNAL_ERROR);
                second.fail(Status::INTERNAL_ERROR);
            }
        }
    }
}

/// The one fused operation there is: Compare and Write of the same blocks.
fn fusible(first: &Sqe, second: &Sqe) -> bool {
    first.opcode == io::COMPARE && second.opcode == io::WRITE && first.nsid == second.nsid
}
