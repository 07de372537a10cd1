//! The life of a namespace in use: its association may be lost and replaced, while commands wait.
//!
//! The rule of what may be sent again (decision record 0009): a lost command that changes nothing is sent again
//! on the next association. One that changes something, and any other such command, goes to the next association
//! only when the lost one executes nothing any more, because otherwise an old copy might come after a newer
//! write. That is known at once when nothing of the kind was in flight, or when the controller could be reset
//! over its admin queue; else when the time has passed in which the controller must have noticed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fabric::race;
use reactor::sync::Signal;
use reactor::{Nanos, now_exact};

use super::geometry::Geometry;
use super::session::Session;
use crate::Error;
use crate::ask::Remote;
use crate::association::{Fencing, Options};

/// What a command may do when it is executed twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing.
    None,
    /// Twice is the same as once.
    Same,
    /// Twice is not the same: it is never sent again.
    Once,
}

/// Where a namespace is in its life.
enum State {
    Live(Rc<Session>),
    /// The association was lost; the keeper connects again.
    Away {
        since: Nanos,
        /// Commands do not wait any longer.
        failing: bool,
        why: Arc<Error>,
    },
    /// There will be no other association.
    Over(Arc<Error>),
}

/// Until when a lost association may execute commands that change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fence {
    Open,
    Until(Nanos),
    /// It is being found out.
    Closed,
}

/// What the tasks of a namespace share.
pub struct Life {
    remote: Remote,
    nsid: u32,
    state: RefCell<State>,
    fence: Cell<Fence>,
    geometry: Cell<Geometry>,
    /// State, fence or geometry changed.
    changed: Signal,
}

fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn since(start: Nanos) -> Duration {
    Duration::from_nanos(now_exact().saturating_sub(start))
}

impl Life {
    /// Attaches for the first time.
    pub async fn begin(remote: &Remote, nsid: u32) -> Result<Self, Error> {
        if remote.options.keep_alive.is_zero() && remote.options.fencing == Fencing::Proven {
            let why = "without a keep alive timeout a lost association cannot be proven dead";
            return Err(Error::Unsupported(why.to_owned()));
        }
        let (session, geometry) = Session::open(remote, nsid, 0).await?;
        Ok(Self {
            remote: remote.clone(),
            nsid,
            state: RefCell::new(State::Live(Rc::new(session))),
            fence: Cell::new(Fence::Open),
            geometry: Cell::new(geometry),
            changed: Signal::new(),
        })
    }

    pub fn geometry(&self) -> Geometry {
        self.geometry.get()
    }

    pub fn nsid(&self) -> u32 {
        self.nsid
    }

    /// Waits until the geometry is another than `seen`, or the namespace is over.
    pub async fn changed(&self, seen: &Geometry) -> Result<Geometry, Error> {
        let news = || {
            if let State::Over(why) = &*self.state.borrow() {
                return Some(Err(Error::Ended(Arc::clone(why))));
            }
            let now = self.geometry.get();
            (now != *seen).then_some(Ok(now))
        };
        self.changed.until(|| news().is_some()).await;
        news().unwrap_or(Err(Error::Lost("the namespace is over")))
    }

    /// A session that a command of this effect may go to, once there is one.
    pub async fn session(&self, effect: Effect) -> Result<Rc<Session>, Error> {
        if let Some(found) = self.try_session(effect) {
            return found;
        }
        self.changed.until(|| self.try_session(effect).is_some()).await;
        self.try_session(effect).unwrap_or(Err(Error::Lost("the namespace is over")))
    }

    fn try_session(&self, effect: Effect) -> Option<Result<Rc<Session>, Error>> {
        match &*self.state.borrow() {
            State::Live(session) => {
                let may = effect == Effect::None || self.fence.get() == Fence::Open;
                may.then(|| Ok(Rc::clone(session)))
            }
            State::Away { since: start, failing: true, why } => {
                Some(Err(Error::Away { after: since(*start), why: Arc::clone(why) }))
            }
            State::Away { .. } => None,
            State::Over(why) => Some(Err(Error::Ended(Arc::clone(why)))),
        }
    }

    /// Says that a session is of no more use. Commands wait for the next one from now on.
    pub fn lose(&self, session: &Rc<Session>, why: Error) {
        if !self.is_live(session.generation) {
            return;
        }
        // Those that wait for a new session must not come before those that are lost now are known to be.
        session.end_queues("the association was lost");
        if session.in_doubt() && self.remote.options.fencing == Fencing::Proven {
            self.fence.set(Fence::Closed);
        }
        let why = Arc::new(why);
        *self.state.borrow_mut() = State::Away { since: now_exact(), failing: false, why };
        self.changed.raise();
    }

    /// Ends the namespace; gives its session, if there was one.
    pub fn end(&self, why: Error) -> Option<Rc<Session>> {
        let over = State::Over(Arc::new(why));
        let session = match self.state.replace(over) {
            State::Live(session) => Some(session),
            State::Away { .. } | State::Over(_) => None,
        };
        if let Some(session) = &session {
            session.end_queues("the namespace is over");
        }
        self.changed.raise();
        session
    }

    /// Keeps the namespace in its association, or another one, until it is over.
    pub async fn keep(self: Rc<Self>) {
        while let Some(session) = self.live() {
            let timeout = self.remote.options.io_timeout;
            let watch = session.watch(self.nsid, timeout, |seen| self.notice(seen));
            let lost = async {
                self.changed.until(|| !self.is_live(session.generation)).await;
                Error::Lost("the association was lost")
            };
            let why = race(lost, watch).await;
            self.lose(&session, why);
            self.come_back(session).await;
        }
    }

    fn is_live(&self, generation: u64) -> bool {
        matches!(&*self.state.borrow(), State::Live(live) if live.generation == generation)
    }

    fn live(&self) -> Option<Rc<Session>> {
        match &*self.state.borrow() {
            State::Live(session) => Some(Rc::clone(session)),
            State::Away { .. } | State::Over(_) => None,
        }
    }

    /// Replaces the association that was lost, or ends the namespace.
    async fn come_back(&self, lost: Rc<Session>) {
        let State::Away { since: start, .. } = *self.state.borrow() else { return };
        let Options { fast_io_fail, ctrl_loss, .. } = self.remote.options;
        let failing = async {
            if let Some(after) = fast_io_fail {
                reactor::sleep_until(start.saturating_add(nanos(after))).await;
                self.fail_fast();
            }
            std::future::pending().await
        };
        let last = RefCell::new(Error::Lost("the association was lost"));
        let attempts = async {
            self.settle_fence(&lost, start).await;
            let next = lost.generation + 1;
            drop(lost);
            self.connect_again(next, &last).await;
        };
        let Some(after) = ctrl_loss else { return race(failing, attempts).await };
        if reactor::timeout(after, race(failing, attempts)).await.is_err() {
            let why = Arc::new(last.into_inner());
            drop(self.end(Error::Gone { after, why }));
        }
    }

    /// Finds out until when the lost association may still change something, if that matters.
    async fn settle_fence(&self, lost: &Session, start: Nanos) {
        if self.fence.get() != Fence::Closed {
            return;
        }
        match lost.quiesce().await {
            Ok(()) => self.fence.set(Fence::Open),
            Err(time) => self.fence.set(Fence::Until(start.saturating_add(nanos(time)))),
        }
        self.changed.raise();
    }

    /// Opens the fence when its time has come, for as long as the namespace lives.
    pub async fn keep_fence(self: Rc<Self>) {
        loop {
            let due = Cell::new(0);
            self.changed
                .until(|| match self.fence.get() {
                    Fence::Until(time) => {
                        due.set(time);
                        true
                    }
                    Fence::Open | Fence::Closed => false,
                })
                .await;
            reactor::sleep_until(due.get()).await;
            if self.fence.get() == Fence::Until(due.get()) {
                self.fence.set(Fence::Open);
                self.changed.raise();
            }
        }
    }

    /// Has commands fail while the controller is away.
    fn fail_fast(&self) {
        if let State::Away { failing, .. } = &mut *self.state.borrow_mut() {
            *failing = true;
        }
        self.changed.raise();
    }

    /// Makes attempts until one succeeds or the namespace is over; `last` is how the last one failed.
    async fn connect_again(&self, next: u64, last: &RefCell<Error>) {
        loop {
            match Session::open(&self.remote, self.nsid, next).await {
                Ok((session, geometry)) if self.is_same(&geometry) => {
                    return self.resume(session, geometry);
                }
                Ok(_) => return drop(self.end(Error::Replaced(self.nsid))),
                Err(error) => *last.borrow_mut() = error,
            }
            if matches!(*self.state.borrow(), State::Over(_)) {
                return;
            }
            reactor::sleep(self.remote.options.reconnect_delay).await;
        }
    }

    fn resume(&self, session: Session, geometry: Geometry) {
        // The namespace may have been ended meanwhile.
        if matches!(*self.state.borrow(), State::Over(_)) {
            return;
        }
        self.geometry.set(geometry);
        *self.state.borrow_mut() = State::Live(Rc::new(session));
        self.changed.raise();
    }

    /// Looks at what a change of the namespace was.
    fn notice(&self, seen: Result<Geometry, Error>) {
        match seen {
            Ok(now) if self.is_same(&now) => self.take(now),
            Ok(_) => drop(self.end(Error::Replaced(self.nsid))),
            Err(Error::Command { .. } | Error::Unsupported(_)) => {
                drop(self.end(Error::Removed(self.nsid)));
            }
            // The watch over the association meets the same.
            Err(_) => {}
        }
    }

    fn is_same(&self, now: &Geometry) -> bool {
        let was = self.geometry.get();
        (was.identity, was.block_bytes) == (now.identity, now.block_bytes)
    }

    fn take(&self, now: Geometry) {
        if self.geometry.replace(now) != now {
            self.changed.raise();
        }
    }
}
