//! One path of a namespace: an association that is kept, and made anew when it is lost.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fabric::race;
use nvme::ana;
use reactor::{Nanos, Task, now_exact};

use super::geometry::Geometry;
use super::life::Life;
use super::route::{Candidate, PathPolicy};
use super::session::Session;
use crate::Error;
use crate::association::Options;
use crate::remote::Remote;

/// Where a path is in its life.
enum State {
    Live(Rc<Session>),
    /// The association was lost, or not made yet; the keeper connects.
    Away {
        since: Nanos,
        /// Commands do not wait for it any longer.
        failing: bool,
        why: Arc<Error>,
    },
    /// There will be no other association.
    Over(Arc<Error>),
}

/// What a path is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// It is connected.
    Live,
    /// It is being connected.
    Connecting,
    /// It is given up.
    Over,
}

/// A path as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathInfo {
    /// Transport address.
    pub traddr: String,
    /// Transport service: the TCP port.
    pub trsvcid: u16,
    /// What it is doing.
    pub state: PathState,
    /// Access to the namespace through it, when it is connected.
    pub access: Option<ana::State>,
    /// Identifier of its controller, when it is connected.
    pub cntlid: Option<u16>,
    /// Commands without an answer.
    pub outstanding: u32,
    /// Why it is not connected.
    pub why: Option<String>,
}

impl PathInfo {
    /// Whether only the count of commands differs.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        Self { outstanding: other.outstanding, ..self.clone() } == *other
    }
}

pub struct Path {
    pub remote: Remote,
    state: RefCell<State>,
    keeper: RefCell<Option<Task<()>>>,
    /// It has been connected.
    had: Cell<bool>,
}

pub fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Time from `start` to now.
pub fn since(start: Nanos) -> Duration {
    Duration::from_nanos(now_exact().saturating_sub(start))
}

impl Path {
    /// A path with its first session, or none yet.
    pub fn new(remote: Remote, session: Option<Session>) -> Self {
        let had = Cell::new(session.is_some());
        let state = match session {
            Some(session) => State::Live(Rc::new(session)),
            None => {
                let why = Arc::new(Error::Lost("the path has not been connected yet"));
                State::Away { since: now_exact(), failing: false, why }
            }
        };
        Self { remote, state: RefCell::new(state), keeper: RefCell::default(), had }
    }

    pub fn live(&self) -> Option<Rc<Session>> {
        match &*self.state.borrow() {
            State::Live(session) => Some(Rc::clone(session)),
            State::Away { .. } | State::Over(_) => None,
        }
    }

    pub fn is_live(&self, generation: u64) -> bool {
        matches!(&*self.state.borrow(), State::Live(live) if live.generation == generation)
    }

    pub fn is_over(&self) -> bool {
        matches!(*self.state.borrow(), State::Over(_))
    }

    pub fn over(&self) -> Option<Arc<Error>> {
        match &*self.state.borrow() {
            State::Over(why) => Some(Arc::clone(why)),
            State::Live(_) | State::Away { .. } => None,
        }
    }

    /// Since when commands have not waited for this path, and why it is away.
    pub fn failing(&self) -> Option<(Nanos, Arc<Error>)> {
        match &*self.state.borrow() {
            State::Away { since, failing: true, why } => Some((*since, Arc::clone(why))),
            State::Away { .. } | State::Live(_) | State::Over(_) => None,
        }
    }

    /// What it is to a command.
    #[inline]
    pub fn candidate(&self, policy: PathPolicy) -> Candidate {
        match &*self.state.borrow() {
            State::Live(session) => {
                let counts = policy == PathPolicy::QueueDepth;
                let outstanding = if counts { session.outstanding() } else { 0 };
                Candidate { access: Some(session.access()), outstanding }
            }
            State::Away { .. } | State::Over(_) => Candidate { access: None, outstanding: 0 },
        }
    }

    pub fn info(&self) -> PathInfo {
        let session = self.live();
        let session = session.as_deref();
        let (state, why) = match &*self.state.borrow() {
            State::Live(_) => (PathState::Live, None),
            State::Away { why, .. } => (PathState::Connecting, Some(why.to_string())),
            State::Over(why) => (PathState::Over, Some(why.to_string())),
        };
        PathInfo {
            traddr: self.remote.traddr.clone(),
            trsvcid: self.remote.trsvcid,
            state,
            access: session.map(Session::access),
            cntlid: session.map(Session::cntlid),
            outstanding: session.map_or(0, Session::outstanding),
            why,
        }
    }

    /// The association was lost.
    pub fn away(&self, why: Error) {
        let why = Arc::new(why);
        *self.state.borrow_mut() = State::Away { since: now_exact(), failing: false, why };
    }

    /// There will be no other association.
    pub fn end(&self, why: &Arc<Error>) {
        if !self.is_over() {
            *self.state.borrow_mut() = State::Over(Arc::clone(why));
        }
    }

    /// Keeps the path connected from now on, until it is over.
    pub fn keep(self: &Rc<Self>, life: Rc<Life>) {
        let task = reactor::spawn(Rc::clone(self).kept(life));
        *self.keeper.borrow_mut() = Some(task);
    }

    /// Stops keeping it.
    pub fn abandon(&self) {
        if let Some(keeper) = self.keeper.borrow_mut().take() {
            keeper.abort();
        }
    }

    async fn kept(self: Rc<Self>, life: Rc<Life>) {
        loop {
            if let Some(session) = self.live() {
                let timeout = self.remote.options.io_timeout;
                let noticed = |seen| self.notice(&life, seen);
                let moved = || life.changed.raise();
                let watch = session.watch(life.nsid(), timeout, noticed, moved);
                let lost = async {
                    life.changed.until(|| !self.is_live(session.generation)).await;
                    Error::Lost("the association was lost")
                };
                let why = race(lost, watch).await;
                life.lose(&session, why);
                self.come_back(&life, Some(session)).await;
            } else {
                self.come_back(&life, None).await;
            }
            if self.is_over() {
                return;
            }
        }
    }

    /// Replaces the association that was lost, or ends the path.
    async fn come_back(&self, life: &Life, lost: Option<Rc<Session>>) {
        let State::Away { since: start, .. } = *self.state.borrow() else { return };
        let Options { fast_io_fail, ctrl_loss, timeout, .. } = self.remote.options;
        let failing = async {
            if let Some(after) = fast_io_fail {
                reactor::sleep_until(start.saturating_add(nanos(after))).await;
                self.fail_fast();
                life.changed.raise();
            }
            std::future::pending().await
        };
        let last = RefCell::new(Error::Lost("the association was lost"));
        let attempts = async {
            if let Some(lost) = lost {
                settle(life, &lost).await;
            }
            self.connect_again(life, &last).await;
        };
        let Some(after) = ctrl_loss else { return race(failing, attempts).await };
        // What was never connected was not lost: it has the time of one attempt, whatever the patience with losses.
        let after = if self.had.get() { after } else { after.max(timeout) };
        if reactor::timeout(after, race(failing, attempts)).await.is_err() {
            let why = Arc::new(last.into_inner());
            life.end_path(self, Error::Gone { after, why });
        }
    }

    /// Has commands not wait for this path.
    fn fail_fast(&self) {
        if let State::Away { failing, .. } = &mut *self.state.borrow_mut() {
            *failing = true;
        }
    }

    /// Makes attempts until one succeeds or the path is over; `last` is how the last one failed.
    async fn connect_again(&self, life: &Life, last: &RefCell<Error>) {
        loop {
            match Session::open(&self.remote, life.nsid(), life.next_session()).await {
                Ok(session) if life.is_same(&session.geometry()) => {
                    return self.resume(life, session);
                }
                Ok(_) => return life.end_path(self, Error::Replaced(life.nsid())),
                Err(error) => *last.borrow_mut() = error,
            }
            if self.is_over() {
                return;
            }
            reactor::sleep(self.remote.options.reconnect_delay).await;
        }
    }

    fn resume(&self, life: &Life, session: Session) {
        // It may have been ended meanwhile.
        if self.is_over() {
            return;
        }
        let geometry = session.geometry();
        if self.had.replace(true) {
            life.reconnects.set(life.reconnects.get() + 1);
        }
        life.meet(&session);
        *self.state.borrow_mut() = State::Live(Rc::new(session));
        life.take(geometry);
        life.changed.raise();
    }

    /// Looks at what a change of the namespace was.
    fn notice(&self, life: &Life, seen: Result<Geometry, Error>) {
        match seen {
            Ok(now) if life.is_same(&now) => life.take(now),
            Ok(_) => life.end_path(self, Error::Replaced(life.nsid())),
            Err(Error::Command { .. } | Error::Unsupported(_)) => {
                life.end_path(self, Error::Removed(life.nsid()));
            }
            // The watch over the association meets the same.
            Err(_) => {}
        }
    }
}

/// Proves that a lost association changes nothing any more, if that matters and its controller can be reset.
pub async fn settle(life: &Life, lost: &Session) {
    if life.fence().doubts(lost.generation) && lost.quiesce().await.is_ok() {
        life.fence().settle(lost.generation);
        life.changed.raise();
    }
}
