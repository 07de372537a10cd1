//! The life of a namespace in use: over one path or several, each of which may be lost and come back, while
//! commands wait or go another way.
//!
//! The rule of what may be sent again (decision record 0009): a lost command that changes nothing is sent again on
//! the next association. For one that changes something, and any other such command, the [`Fence`] says when it
//! may go, because otherwise an old copy might come after a newer write. That an association executes nothing any
//! more is known at once when its controller could be reset over its admin queue; else when the time has passed in
//! which the controller must have noticed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fabric::race;
use nvme::sqe::Sqe;
use reactor::now_exact;
use reactor::sync::Signal;

use super::fence::{Extent, Fence, Ticket};
use super::geometry::Geometry;
use super::path::{Path, PathInfo, nanos, settle, since};
use super::route::{Candidate, PathPolicy, choose, is_usable};
use super::session::Session;
use crate::Error;
use crate::association::Fencing;
use crate::limits::PATHS_MAX;
use crate::remote::Remote;
use crate::windows::Standing;

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

/// What a command has been through.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    effect: Effect,
    /// It was lost with an association.
    ticket: Option<Ticket>,
}

impl Claim {
    pub const fn new(effect: Effect) -> Self {
        Self { effect, ticket: None }
    }

    /// Whether it may have been executed already.
    pub const fn in_doubt(&self) -> bool {
        self.ticket.is_some()
    }
}

/// What the tasks of a namespace share.
pub struct Life {
    nsid: u32,
    policy: PathPolicy,
    fence: Fence,
    geometry: Cell<Geometry>,
    paths: RefCell<Vec<Rc<Path>>>,
    /// Index of the path that the last command took.
    last: Cell<usize>,
    /// Sessions there have been.
    sessions: Cell<u64>,
    /// How long a controller here may execute what was lost with an association: the longest there was.
    quiesce: Cell<Duration>,
    /// Associations that took the place of lost ones.
    pub(super) reconnects: Cell<u64>,
    /// The session that granted the direct write window there is, and what its writers are told.
    window: RefCell<Option<(u64, Arc<Standing>)>>,
    /// Those before it that somebody may still write by.
    windows_before: RefCell<Vec<(u64, Arc<Standing>)>>,
    /// There will be no other association.
    over: RefCell<Option<Arc<Error>>>,
    /// A path, its access, the fence or the geometry changed.
    pub(super) changed: Signal,
}

impl Life {
    /// Attaches for the first time: over the first of the remotes that can be; the others are connected by their
    /// keepers.
    pub async fn begin(
        remotes: &[Remote],
        nsid: u32,
        policy: PathPolicy,
    ) -> Result<Rc<Self>, Error> {
        check(remotes)?;
        let mut failed = Vec::new();
        for (at, remote) in remotes.iter().enumerate() {
            let session = match Session::open(remote, nsid, 0).await {
                Ok(session) => session,
                Err(error) => {
                    failed.push(error);
                    continue;
                }
            };
            let life = Rc::new(Self {
                nsid,
                policy,
                fence: Fence::default(),
                geometry: Cell::new(session.geometry()),
                paths: RefCell::default(),
                last: Cell::new(0),
                sessions: Cell::new(1),
                quiesce: Cell::new(session.quiesce_time()),
                reconnects: Cell::new(0),
                window: RefCell::default(),
                windows_before: RefCell::default(),
                over: RefCell::default(),
                changed: Signal::new(),
            });
            let mut session = Some(session);
            for (other, remote) in remotes.iter().enumerate() {
                let path = if other == at { session.take() } else { None };
                life.add(Path::new(remote.clone(), path));
            }
            return Ok(life);
        }
        // The first remote is the one that was meant first.
        Err(failed.into_iter().next().unwrap_or(Error::Lost("no path was given")))
    }

    /// Keeps a path from now on.
    fn add(self: &Rc<Self>, path: Path) {
        let path = Rc::new(path);
        self.paths.borrow_mut().push(Rc::clone(&path));
        path.keep(Rc::clone(self));
    }

    /// Adds a path to the same namespace, which is connected in the background.
    pub fn add_path(self: &Rc<Self>, remote: &Remote) -> Result<(), Error> {
        let mut remotes: Vec<_> =
            self.paths.borrow().iter().map(|path| path.remote.clone()).collect();
        remotes.push(remote.clone());
        check(&remotes)?;
        if let Some(why) = &*self.over.borrow() {
            return Err(Error::Ended(Arc::clone(why)));
        }
        self.add(Path::new(remote.clone(), None));
        Ok(())
    }

    /// Takes a path away; commands on it are sent again on others. The last one stays.
    pub async fn remove_path(&self, traddr: &str, trsvcid: u16) -> Result<(), Error> {
        let Some(session) = self.take_path(traddr, trsvcid)? else { return Ok(()) };
        settle(self, &session).await;
        // Nothing is lost by a controller that is not shut down: it notices by itself.
        let _ = session.shut_down().await;
        Ok(())
    }

    /// Forgets a path; gives its session, if there is one.
    fn take_path(&self, traddr: &str, trsvcid: u16) -> Result<Option<Rc<Session>>, Error> {
        let mut paths = self.paths.borrow_mut();
        let is = |path: &Rc<Path>| path.remote.traddr == traddr && path.remote.trsvcid == trsvcid;
        let Some(at) = paths.iter().position(is) else {
            return Err(Error::Unsupported(format!("there is no path {traddr}:{trsvcid}")));
        };
        if paths.len() == 1 {
            return Err(Error::Unsupported("the last path cannot be removed".to_owned()));
        }
        let path = paths.remove(at);
        drop(paths);
        let session = path.live();
        if let Some(session) = &session {
            self.close(&path, session, 0, "the path was removed");
        }
        path.end(&Arc::new(Error::Lost("the path was removed")));
        self.settle_when_over();
        self.changed.raise();
        Ok(session)
    }

    pub fn paths(&self) -> Vec<PathInfo> {
        self.paths.borrow().iter().map(|path| path.info()).collect()
    }

    /// Waits until the paths are others than `seen`.
    pub async fn paths_changed(&self, seen: &[PathInfo]) -> Vec<PathInfo> {
        let mut now = self.paths();
        self.changed
            .until(|| {
                now = self.paths();
                let same = |(a, b): (&PathInfo, &PathInfo)| a.is_like(b);
                now.len() != seen.len() || !now.iter().zip(seen).all(same)
            })
            .await;
        now
    }

    pub fn geometry(&self) -> Geometry {
        self.geometry.get()
    }

    pub fn nsid(&self) -> u32 {
        self.nsid
    }

    /// The number of the next session.
    pub(super) fn next_session(&self) -> u64 {
        self.sessions.replace(self.sessions.get() + 1)
    }

    pub(super) const fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Waits until the geometry is another than `seen`, or the namespace is over.
    pub async fn changed(&self, seen: &Geometry) -> Result<Geometry, Error> {
        let news = || {
            if let Some(why) = &*self.over.borrow() {
                return Some(Err(Error::Ended(Arc::clone(why))));
            }
            let now = self.geometry.get();
            (now != *seen).then_some(Ok(now))
        };
        self.changed.until(|| news().is_some()).await;
        news().unwrap_or(Err(Error::Lost("the namespace is over")))
    }

    /// A session that a command may go to, once there is one.
    pub async fn session(&self, claim: &Claim, sqe: &Sqe) -> Result<Rc<Session>, Error> {
        if let Some(found) = self.try_session(claim, sqe) {
            return found;
        }
        let mut found = None;
        self.changed
            .until(|| {
                found = self.try_session(claim, sqe);
                found.is_some()
            })
            .await;
        found.unwrap_or(Err(Error::Lost("the namespace is over")))
    }

    fn try_session(&self, claim: &Claim, sqe: &Sqe) -> Option<Result<Rc<Session>, Error>> {
        let changes = claim.effect != Effect::None;
        if changes {
            self.hear_of_doubt();
        }
        let Some(session) = self.pick() else { return self.verdict().map(Err) };
        let may = !changes || self.fence.permits(|| Extent::of(sqe), claim.ticket);
        may.then_some(Ok(session))
    }

    /// The session that the next command takes.
    fn pick(&self) -> Option<Rc<Session>> {
        let paths = self.paths.borrow();
        if let [only] = paths.as_slice() {
            return only.live().filter(|session| is_usable(session.access()));
        }
        let mut candidates = [Candidate { access: None, outstanding: 0 }; PATHS_MAX];
        for (candidate, path) in candidates.iter_mut().zip(paths.iter()) {
            *candidate = path.candidate(self.policy);
        }
        let chosen = choose(self.policy, self.last.get(), &candidates[..paths.len()])?;
        self.last.set(chosen);
        paths[chosen].live()
    }

    /// Why a command need not wait for a path any longer.
    fn verdict(&self) -> Option<Error> {
        if let Some(why) = &*self.over.borrow() {
            return Some(Error::Ended(Arc::clone(why)));
        }
        let paths = self.paths.borrow();
        let mut failing = None;
        for path in paths.iter().filter(|path| !path.is_over()) {
            // One that is connected and not accessible now, or not given up yet, is waited for.
            failing = Some(path.failing()?);
        }
        failing.map(|(start, why)| Error::Away { after: since(start), why })
    }

    /// Says that a session is of no more use. Commands wait for the next one, or take another path, from now on.
    pub fn lose(&self, session: &Rc<Session>, why: Error) {
        self.lose_with(session, 0, why);
    }

    /// The same, with so many direct writes that are in doubt as well.
    fn lose_with(&self, session: &Rc<Session>, direct: usize, why: Error) {
        let path = {
            let paths = self.paths.borrow();
            let lost = paths.iter().find(|path| path.is_live(session.generation)).cloned();
            let Some(path) = lost else { return };
            path
        };
        self.close(&path, session, direct, "the association was lost");
        path.away(why);
        self.changed.raise();
    }

    /// Ends a session's queues. What they have in flight that changes something is in doubt.
    fn close(&self, path: &Path, session: &Session, direct: usize, why: &'static str) {
        session.end_queues(why);
        self.close_window(session.generation);
        let until = now_exact().saturating_add(nanos(session.quiesce_time()));
        // What is trusted is that its own connections are closed there with it: a ring's is another.
        let lost = match path.remote.options.fencing {
            Fencing::Proven => session.in_doubt() + direct,
            Fencing::Trusted => direct,
        };
        self.fence.close(session.generation, lost, until);
        self.hold_window();
    }

    /// A direct write may arrive of which nobody will be told. What changes something waits until its window has ended, as
    /// that ends with its association.
    fn hear_of_doubt(&self) {
        let in_doubt = |(generation, standing): &(u64, Arc<Standing>)| {
            standing.take_doubt().then_some(*generation)
        };
        let doubted = self.window.borrow().iter().find_map(in_doubt);
        let doubted = doubted.or_else(|| self.windows_before.borrow().iter().find_map(in_doubt));
        let Some(generation) = doubted else { return };
        let sessions = self.sessions();
        if let Some(session) = sessions.iter().find(|session| session.generation == generation) {
            self.lose_with(session, 1, Error::Lost("the connection of its direct write window"));
        } else {
            // Lost before, and nobody has asked since whether that has been noticed there.
            let until = now_exact().saturating_add(nanos(self.quiesce.get()));
            self.fence.close(generation, 1, until);
            self.changed.raise();
        }
    }

    /// The session by which a direct write window may be asked for: there is nothing that its writes might overtake.
    pub fn for_window(&self) -> Result<Rc<Session>, Error> {
        self.hear_of_doubt();
        if self.fence.next().is_some() {
            return Err(Error::Lost("commands of a lost association are in doubt"));
        }
        let away = || Error::Lost("the namespace is not connected");
        self.pick().ok_or_else(|| self.verdict().unwrap_or_else(away))
    }

    /// A window is asked for by this session. Nothing is written by the one before any more.
    pub fn stand(&self, session: &Session, standing: Arc<Standing>) {
        self.hear_of_doubt();
        let before = self.window.replace(Some((session.generation, standing)));
        before.iter().for_each(|(_, before)| before.hold());
        let mut all = self.windows_before.borrow_mut();
        // Whose writers are all gone says nothing more, once it was heard.
        all.retain_mut(|(_, standing)| Arc::get_mut(standing).is_none_or(|it| it.is_doubtful()));
        all.extend(before);
    }

    /// What the writers of the window that was asked for last are told.
    #[cfg(test)]
    pub fn standing(&self) -> Option<Arc<Standing>> {
        self.window.borrow().as_ref().map(|(_, standing)| Arc::clone(standing))
    }

    /// Whether writes may begin by the window that was asked for last.
    pub fn window_is_usable(&self) -> bool {
        self.window.borrow().as_ref().is_some_and(|(_, standing)| standing.is_usable())
    }

    /// A window of this session has no association any more.
    fn close_window(&self, generation: u64) {
        if let Some((of, standing)) = &*self.window.borrow()
            && *of == generation
        {
            standing.lose();
        }
    }

    /// No write begins that might overtake a command in doubt.
    fn hold_window(&self) {
        if let (true, Some((_, standing))) = (self.fence.next().is_some(), &*self.window.borrow()) {
            standing.hold();
        }
    }

    /// Takes it that associations of a process before this one were lost a moment ago, with nobody to tell what they
    /// had in flight.
    pub fn succeed(&self) {
        let until = now_exact().saturating_add(nanos(self.quiesce.get()));
        self.fence.close(PREDECESSOR, 1, until);
        self.hold_window();
        self.changed.raise();
    }

    /// The same, and waits until those associations execute nothing any more.
    pub async fn outlive(&self) {
        self.succeed();
        self.changed.until(|| !self.fence.doubts(PREDECESSOR)).await;
    }

    /// A path has a new session.
    pub(super) fn meet(&self, session: &Session) {
        self.quiesce.set(self.quiesce.get().max(session.quiesce_time()));
    }

    /// A command was lost with a session: it tells what it changes.
    pub fn doubt(&self, session: &Session, claim: &mut Claim, sqe: &Sqe) {
        if claim.effect == Effect::None {
            return;
        }
        let ticket = self.fence.tell(session.generation, Extent::of(sqe), claim.ticket);
        claim.ticket = Some(ticket);
        self.changed.raise();
    }

    /// A path is over. So is the namespace with the last one.
    pub(super) fn end_path(&self, path: &Path, why: Error) {
        if let Some(session) = path.live() {
            self.close(path, &session, 0, "the path is over");
        }
        path.end(&Arc::new(why));
        self.settle_when_over();
        self.changed.raise();
    }

    fn settle_when_over(&self) {
        let paths = self.paths.borrow();
        if let Some(why) = paths.iter().map(|path| path.over()).collect::<Option<Vec<_>>>()
            && let Some(last) = why.into_iter().next_back()
        {
            self.over.borrow_mut().get_or_insert(last);
        }
    }

    /// Ends the namespace; gives the sessions there were.
    pub fn end(&self, why: Error) -> Vec<Rc<Session>> {
        let why = Arc::new(why);
        self.over.borrow_mut().get_or_insert_with(|| Arc::clone(&why));
        let paths = self.paths.borrow();
        let sessions: Vec<_> = paths.iter().filter_map(|path| path.live()).collect();
        for session in &sessions {
            session.end_queues("the namespace is over");
            self.close_window(session.generation);
        }
        paths.iter().for_each(|path| path.end(&why));
        drop(paths);
        self.changed.raise();
        sessions
    }

    /// The sessions there are.
    pub fn sessions(&self) -> Vec<Rc<Session>> {
        self.paths.borrow().iter().filter_map(|path| path.live()).collect()
    }

    /// Stops the keepers of the paths.
    pub fn abandon(&self) {
        self.paths.borrow().iter().for_each(|path| path.abandon());
    }

    /// Opens the fence when its time has come, for as long as the namespace lives.
    pub async fn keep_fence(self: Rc<Self>) {
        loop {
            let next = self.fence.next();
            let due = async {
                match next {
                    Some(due) => reactor::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            race(due, self.changed.until(|| self.fence.next() != next)).await;
            if self.fence.next().is_some_and(|due| due <= now_exact()) {
                self.fence.expire(now_exact());
                self.changed.raise();
            }
        }
    }

    pub(super) fn is_same(&self, now: &Geometry) -> bool {
        let was = self.geometry.get();
        (was.identity, was.block_bytes) == (now.identity, now.block_bytes)
    }

    /// Takes what a path says the namespace is now. Transfers fit every path.
    pub(super) fn take(&self, now: Geometry) {
        let least = {
            let paths = self.paths.borrow();
            let sessions = paths.iter().filter_map(|path| path.live());
            sessions.map(|session| session.geometry().transfer_max_bytes).min()
        };
        let least = least.map_or(now.transfer_max_bytes, |least| least.min(now.transfer_max_bytes));
        let now = Geometry { transfer_max_bytes: least, ..now };
        if self.geometry.replace(now) != now {
            self.changed.raise();
        }
    }
}

/// No session of ours has this generation.
const PREDECESSOR: u64 = u64::MAX;

/// Whether these can be the paths of one namespace.
fn check(remotes: &[Remote]) -> Result<(), Error> {
    let unsupported = |why: &str| Err(Error::Unsupported(why.to_owned()));
    let Some(first) = remotes.first() else { return unsupported("no path was given") };
    if remotes.len() > PATHS_MAX {
        return unsupported("a namespace has at most 16 paths");
    }
    for (at, remote) in remotes.iter().enumerate() {
        if (&remote.subnqn, &remote.host) != (&first.subnqn, &first.host) {
            return unsupported("the paths of a namespace are one host's to one subsystem");
        }
        let same =
            |other: &Remote| (&other.traddr, other.trsvcid) == (&remote.traddr, remote.trsvcid);
        if remotes[..at].iter().any(same) {
            return unsupported("a path is given twice");
        }
        let options = &remote.options;
        if options.keep_alive.is_zero() && options.fencing == Fencing::Proven {
            return unsupported(
                "without a keep alive timeout a lost association cannot be proven dead",
            );
        }
    }
    Ok(())
}
