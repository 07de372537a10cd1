//! A namespace in use: its geometry, its buffers and its commands, for the tasks of one reactor.

mod buffer;
mod commands;
mod fence;
mod geometry;
mod life;
mod path;
mod reserve;
mod route;
mod session;
mod window;

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use nvme::cqe::Cqe;
use nvme::sqe::Sqe;
use nvme::status::Status;

pub use buffer::Buffer;
pub use geometry::{CopyLimits, Geometry, Supports};
pub use path::{PathInfo, PathState};
pub use reserve::Registrant;
pub use route::PathPolicy;

use crate::Error;
use crate::channel::{Counters, Outcome};
use crate::limits::{PATH_ERROR_PAUSE, RETRIES};
use crate::queue::Data;
use crate::remote::Remote;
use crate::windows::SharedWindow;
use life::{Claim, Effect, Life};
use reactor::Task;
use session::{Choice, Session};

/// Whether a write is durable when it completes (Force Unit Access), whatever cache the namespace has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fua {
    /// It may be in a volatile cache until a flush.
    No,
    /// It is durable.
    Yes,
}

/// Whether blocks written with zeroes should be deallocated as well (DEAC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deallocate {
    /// They keep their space, where the namespace knows of such a thing.
    No,
    /// Their space may be given back, as long as they read as zeroes.
    Yes,
}

/// A namespace of a remote subsystem. Cloning is cheap and shares it; many commands may be in flight at once.
/// It belongs to the reactor it was attached on.
///
/// LBAs and counts are in logical blocks. A command ends once: `Ok` when the controller said success, otherwise
/// an [`Error`], whose [`Error::Command`] has the NVMe status. A range outside of the namespace, and a buffer
/// shorter than its range, are refused before anything is sent.
///
/// When the association is lost it is replaced, and commands wait for that, or take another path
/// ([`Namespace::attach_paths`]); [`crate::Options`] says for how long. Commands that were in flight are sent again.
/// Others that change the same blocks as those wait until the old association is known to execute nothing any more
/// ([`crate::Fencing`]), so that no caller ever sees an old write come after a newer one. A copy onto its own sources is never sent again: it ends with [`Error::InDoubt`]. So does any
/// command that changes something and was in flight when waiting ended by [`crate::Options::fast_io_fail`] or
/// [`crate::Options::ctrl_loss`].
#[derive(Clone)]
pub struct Namespace {
    inner: Rc<Inner>,
    choice: Choice,
    /// What its writes go by, as far as that takes them.
    window: Option<Arc<SharedWindow>>,
}

struct Inner {
    life: Rc<Life>,
    keeper: Task<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.life.abandon();
        self.keeper.abort();
    }
}

impl Namespace {
    /// Connects to the remote's controller with an admin queue and the I/O queues its options ask for,
    /// identifies namespace `nsid`, and keeps the association alive.
    ///
    /// # Errors
    /// Any of [`Error`].
    ///
    /// # Panics
    /// Outside a reactor.
    pub async fn attach(remote: &Remote, nsid: u32) -> Result<Self, Error> {
        Self::attach_paths(core::slice::from_ref(remote), nsid, PathPolicy::default()).await
    }

    /// The same over several paths: remotes that are one subsystem at several addresses, 1 to
    /// [`crate::limits::PATHS_MAX`], in the order of preference. It is attached when the first of them is
    /// connected; the others are then connected in the background. A command goes to a path with the best access
    /// (ANA) there is, and to another one when its path is lost or takes no commands; among equals `policy`
    /// decides. When no path is left, commands wait as they do for a single one.
    ///
    /// # Errors
    /// Any of [`Error`]: when none can be connected, that of the first.
    ///
    /// # Panics
    /// Outside a reactor.
    pub async fn attach_paths(
        remotes: &[Remote],
        nsid: u32,
        policy: PathPolicy,
    ) -> Result<Self, Error> {
        let life = Life::begin(remotes, nsid, policy).await?;
        let keeper = reactor::spawn(Rc::clone(&life).keep_fence());
        let inner = Rc::new(Inner { life, keeper });
        Ok(Self { inner, choice: Choice::default(), window: None })
    }

    /// Says that this program goes on for one that was killed with commands in flight. What changes something waits
    /// until the controllers there are have noticed and execute nothing of it any more, at most so long as after a
    /// lost association; reads do not.
    pub fn succeed(&self) {
        self.inner.life.succeed();
    }

    /// As [`Namespace::succeed`], and waits until that time has passed: for who concludes from what it reads what to
    /// write.
    pub async fn outlive(&self) {
        self.inner.life.outlive().await;
    }

    /// Whether the other is a clone of this one.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.inner, &other.inner)
    }

    /// Adds a path, which is connected in the background.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for one that is there already, or of another host or subsystem;
    /// [`Error::Ended`].
    pub fn add_path(&self, remote: &Remote) -> Result<(), Error> {
        self.inner.life.add_path(remote)
    }

    /// Takes a path away. Commands in flight on it are sent again on the others.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when there is no such path, or no other.
    pub async fn remove_path(&self, traddr: &str, trsvcid: u16) -> Result<(), Error> {
        self.inner.life.remove_path(traddr, trsvcid).await
    }

    /// The paths as they are now.
    #[must_use]
    pub fn paths(&self) -> Vec<PathInfo> {
        self.inner.life.paths()
    }

    /// Waits until the paths are others than `seen`, as [`Namespace::paths`] gave them, but for their counts of
    /// commands; gives them.
    pub async fn paths_changed(&self, seen: &[PathInfo]) -> Vec<PathInfo> {
        self.inner.life.paths_changed(seen).await
    }

    /// The same namespace for commands that should be done as soon as can be: they go to the queues for polled
    /// commands ([`crate::Options::poll_queues`]), if there are any, and are never batched there.
    #[must_use]
    pub fn polled(&self) -> Self {
        let choice = Choice { polled: true, ..self.choice };
        Self { choice, ..self.clone() }
    }

    /// The same namespace for one of several submitters that shall not share queues: its commands go to the nth
    /// queue of their map as long as that has room, in a circle.
    #[must_use]
    pub fn at_home(&self, nth: usize) -> Self {
        let choice = Choice { home: Some(nth), ..self.choice };
        Self { choice, ..self.clone() }
    }

    /// What the namespace is, as far as is known now.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.inner.life.geometry()
    }

    /// What the queues of the associations there are have done: those of everything (or of what is no read), those
    /// of reads, and those of polled commands.
    #[must_use]
    pub fn counters(&self) -> [Counters; 3] {
        let sessions = self.inner.life.sessions();
        let each = sessions.iter().map(|session| session.counters());
        each.fold(Default::default(), |[a, b, c], [d, e, f]| [a + d, b + e, c + f])
    }

    /// What each of their I/O queues has done, in the order of their identifiers.
    #[must_use]
    pub fn queue_counters(&self) -> Vec<Counters> {
        self.inner.life.sessions().iter().flat_map(|session| session.queue_counters()).collect()
    }

    /// The network card's queues (NAPI identifiers) that their I/O queues come by, ascending; none within a machine.
    #[must_use]
    pub fn card_queues(&self) -> Vec<u32> {
        let sessions = self.inner.life.sessions();
        let queues: BTreeSet<u32> =
            sessions.iter().flat_map(|session| session.card_queues()).collect();
        queues.into_iter().collect()
    }

    /// How many commands each of their I/O queues holds, in the order of their identifiers.
    #[must_use]
    pub fn queue_depths(&self) -> Vec<u16> {
        self.inner.life.sessions().iter().flat_map(|session| session.queue_depths()).collect()
    }

    /// How often a lost association has been replaced.
    #[must_use]
    pub fn reconnects(&self) -> u64 {
        self.inner.life.reconnects.get()
    }

    /// Waits until the geometry is another than `seen`, as [`Namespace::geometry`] gave it, and gives that: the
    /// namespace was resized, or another controller offers other limits.
    ///
    /// # Errors
    /// Why there will be no change any more: [`Error::Removed`], [`Error::Replaced`] or [`Error::Gone`] within
    /// an [`Error::Ended`].
    pub async fn changed(&self, seen: &Geometry) -> Result<Geometry, Error> {
        self.inner.life.changed(seen).await
    }

    /// A buffer of `bytes`; see [`Buffer::new`].
    ///
    /// # Panics
    /// When `bytes` exceeds the largest buffer; [`Geometry::transfer_max_bytes`] never does.
    pub async fn buffer(&self, bytes: usize) -> Buffer {
        Buffer::new(bytes).await
    }

    /// Ends the association in order. Commands in flight end with an error.
    ///
    /// # Errors
    /// Those of the controller's shutdown.
    pub async fn shut_down(&self) -> Result<(), Error> {
        let mut ended = Ok(());
        for session in self.inner.life.end(Error::Lost("the namespace was shut down")) {
            ended = ended.and(session.shut_down().await);
        }
        ended
    }

    /// Runs a command whose data is in `buffer`.
    async fn move_data(
        &self,
        name: &'static str,
        effect: Effect,
        sqe: Sqe,
        data: Data,
        buffer: &mut Buffer,
    ) -> Result<(), Error> {
        let (result, data) = self.run(effect, sqe, data).await;
        buffer.give(data);
        judge(name, result)
    }

    /// Runs a command that moves no data of the caller's.
    async fn order(
        &self,
        name: &'static str,
        effect: Effect,
        sqe: Sqe,
        data: Data,
    ) -> Result<(), Error> {
        judge(name, self.run(effect, sqe, data).await.0)
    }

    /// Runs a command to its end, on as many associations as that takes.
    async fn run(&self, effect: Effect, sqe: Sqe, mut data: Data) -> (Result<Cqe, Error>, Data) {
        let life = &self.inner.life;
        let mut retries = 0;
        let mut claim = Claim::new(effect);
        loop {
            let session = match life.session(&claim, &sqe).await {
                Ok(session) => session,
                Err(error) if claim.in_doubt() => {
                    return (Err(Error::InDoubt(Arc::new(error))), data);
                }
                Err(error) => return (Err(error), data),
            };
            let channel = session.channel(sqe.opcode, self.choice);
            match channel.run(sqe, data).await {
                Outcome::Answered(cqe, back) => {
                    let status = cqe.status();
                    if claim.in_doubt() && reserve::is_done_before(&sqe, status) {
                        return (Ok(Cqe::new(cqe.cid.get(), Status::SUCCESS)), back);
                    }
                    if effect != Effect::Once && is_elsewhere(&session, status) {
                        data = back;
                        continue;
                    }
                    if effect != Effect::Once && is_path_error(status) {
                        data = back;
                        reactor::sleep(PATH_ERROR_PAUSE).await;
                        continue;
                    }
                    if retries == RETRIES || effect == Effect::Once || !may_succeed_later(status) {
                        return (Ok(cqe), back);
                    }
                    data = back;
                    retries += 1;
                    reactor::sleep(session.retry_delay(status)).await;
                }
                Outcome::Lost(back) => {
                    life.lose(&session, Error::Ended(channel.why()));
                    life.doubt(&session, &mut claim, &sqe);
                    if effect == Effect::Once {
                        return (Err(Error::InDoubt(channel.why())), back);
                    }
                    data = back;
                }
                Outcome::Unsent(back) => {
                    data = back;
                    life.lose(&session, Error::Ended(channel.why()));
                }
            }
        }
    }
}

/// Whether the controller refused the command for what it is itself: another path, or the next association, may
/// take it.
fn is_elsewhere(session: &Session, status: Status) -> bool {
    let deleted = status.is(Status::ABORTED_SQ_DELETION);
    if deleted {
        session.leave();
    }
    deleted || session.refused(status)
}

/// Whether the controller could not serve the command for what lies behind it, and says nothing of the command: it is
/// sent again for as long as that takes, as the Linux host does over native multipath.
const fn is_path_error(status: Status) -> bool {
    const PATH_RELATED: u8 = 3;
    !status.dnr() && status.code_type() == PATH_RELATED
}

/// Whether the controller says that the command may succeed when it is sent again: it did not fail for what it
/// is, but for what happened around it (section 4.2.3).
fn may_succeed_later(status: Status) -> bool {
    const LATER: [Status; 5] = [
        Status::DATA_TRANSFER_ERROR,
        Status::ABORT_REQUESTED,
        Status::COMMAND_INTERRUPTED,
        Status::TRANSIENT_TRANSPORT_ERROR,
        Status::NAMESPACE_NOT_READY,
    ];
    !status.dnr() && LATER.iter().any(|&later| status.is(later))
}

fn judge(command: &'static str, result: Result<Cqe, Error>) -> Result<(), Error> {
    let status = result?.status();
    if status.is_success() { Ok(()) } else { Err(Error::Command { command, status }) }
}
