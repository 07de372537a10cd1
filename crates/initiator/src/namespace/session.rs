//! One association: a controller, its I/O queues by class, kept alive and watched.

use std::cell::Cell;
use std::ops::Add;
use std::rc::Rc;
use std::time::Duration;

use fabric::race;
use nvme::ana::State;
use nvme::event::Event;
use nvme::identify::namespace_bits;
use nvme::opcode::io;
use nvme::status::Status;
use reactor::sync::Notify;

use super::geometry::Geometry;
use crate::Error;
use crate::channel::{Channel, Counters, Manner};
use crate::controller::Controller;
use crate::limits::{ANA_LOOK_MS, TIMEOUT_LOOKS};
use crate::optimizations::Optimization;
use crate::remote::Remote;

/// What a handle of a namespace says of the queues of its commands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice {
    /// They go to those for polled commands, where there are any.
    pub polled: bool,
    /// The queue of each map that is theirs.
    pub home: Option<usize>,
}

/// Queues that share a class.
struct Map {
    channels: Vec<Channel>,
    next: Cell<usize>,
    /// A command takes the queue of the CPU it is submitted on.
    affine: bool,
}

impl Map {
    fn new(channels: Vec<Channel>, affine: bool) -> Self {
        Self { channels, next: Cell::new(0), affine }
    }

    /// The queue that is `home`, or this CPU's, the first one being CPU 0's, as long as it has room; else the queue
    /// with the fewest commands, from the next one on in a circle.
    fn pick(&self, home: Option<usize>) -> &Channel {
        let count = self.channels.len();
        if count == 1 {
            return &self.channels[0];
        }
        if let Some(home) = home.or_else(|| self.affine.then(reactor::cpu)) {
            let own = &self.channels[home % count];
            if own.has_room() {
                return own;
            }
        }
        let first = self.next.get();
        self.next.set((first + 1) % count);
        let in_turn = (first..first + count).map(|at| &self.channels[at % count]);
        // Those that wait for a place count, too: many might wait for the same queue else.
        in_turn.min_by_key(|channel| channel.load()).unwrap_or(&self.channels[0])
    }
}

/// An association in use.
pub struct Session {
    controller: Controller,
    default: Map,
    /// Empty when reads go with everything else.
    read: Map,
    /// Empty when polled commands go with the others.
    poll: Map,
    /// A queue's connection ended.
    trouble: Rc<Notify>,
    /// ANA group of the namespace (ANAGRPID).
    group: Cell<u32>,
    /// Whether the namespace can be accessed here, and how well.
    access: Cell<State>,
    /// The ANA log page is to be read.
    look: Notify,
    /// The controller is deleting a queue: the connections will end.
    leaving: Cell<bool>,
    left: Notify,
    geometry: Cell<Geometry>,
    /// Counts the sessions of a namespace.
    pub generation: u64,
}

impl Session {
    /// Connects the controller and the queues, identifies namespace `nsid`, and asks for the access to it.
    pub async fn open(remote: &Remote, nsid: u32, generation: u64) -> Result<Self, Error> {
        let controller = remote.connect().await?;
        let options = &remote.options;
        let wanted = options.queues();
        let granted = controller.set_queue_count(wanted).await?;
        let association = controller.association();
        let depth = options.queue_size.min(association.depth_max());
        let trouble = Rc::<Notify>::default();
        let [default, read, poll] = options.share(usize::from(granted));
        let mut channels = Vec::new();
        for qid in 1..=granted {
            let queue = association.connect_queue(qid, depth).await?;
            let polled = usize::from(qid) > default + read;
            let manner = Manner::of(&options.optimizations, polled);
            channels.push(Channel::new(queue, manner, Rc::clone(&trouble)));
        }
        // Events are asked for before the namespace is looked at, so that no change goes unnoticed.
        controller.ask_for_events().await?;
        let mut channels = channels.into_iter();
        let affine = options.optimizations.has(Optimization::Affinity);
        let mut map = |count| Map::new(channels.by_ref().take(count).collect(), affine);
        let (default, read, poll) = (map(default), map(read), map(poll));
        let (geometry, group) = identify(&controller, nsid).await?;
        let session = Self {
            controller,
            default,
            read,
            poll,
            trouble,
            group: Cell::new(group),
            access: Cell::new(State::Optimized),
            look: Notify::new(),
            leaving: Cell::new(false),
            left: Notify::new(),
            geometry: Cell::new(geometry),
            generation,
        };
        session.read_access().await?;
        Ok(session)
    }

    async fn identify(&self, nsid: u32) -> Result<Geometry, Error> {
        let (geometry, group) = identify(&self.controller, nsid).await?;
        self.geometry.set(geometry);
        if self.group.replace(group) != group {
            self.look.notify();
        }
        Ok(geometry)
    }

    /// What the namespace is here.
    pub fn geometry(&self) -> Geometry {
        self.geometry.get()
    }

    /// Whether the namespace can be accessed here, and how well.
    pub fn access(&self) -> State {
        if self.leaving.get() { State::Inaccessible } else { self.access.get() }
    }

    /// The controller has deleted a queue. What is in the queues is still answered, then they end.
    pub fn leave(&self) {
        self.leaving.set(true);
        self.left.notify();
    }

    /// What admin commands go to.
    pub const fn controller(&self) -> &Controller {
        &self.controller
    }

    /// Identifier of the controller.
    pub fn cntlid(&self) -> u16 {
        self.controller.association().cntlid()
    }

    /// Commands without an answer.
    pub fn outstanding(&self) -> u32 {
        self.channels().map(|channel| u32::from(channel.outstanding())).sum()
    }

    /// A command told that the namespace cannot be accessed here: no others are to come until the log page says
    /// that it can. `false` when the status says nothing of the kind.
    pub fn refused(&self, status: Status) -> bool {
        let refusing = [State::Inaccessible, State::PersistentLoss, State::Change];
        let told = |state: &State| state.refusal().is_some_and(|refusal| status.is(refusal));
        let Some(state) = refusing.into_iter().find(told) else { return false };
        // A controller that does not report the access has no page to take this back by.
        if self.controller.reports_ana() {
            self.access.set(state);
            self.look.notify();
        }
        self.controller.reports_ana()
    }

    /// Reads the ANA log page, if there is one.
    async fn read_access(&self) -> Result<(), Error> {
        if !self.controller.reports_ana() {
            return Ok(());
        }
        let groups = self.controller.ana_groups().await?;
        let own = groups.iter().find(|group| group.id == self.group.get());
        let own = own.ok_or(Error::Answer("an ANA log page without the namespace's group"))?;
        self.access.set(own.state);
        Ok(())
    }

    /// The queue for the next command of this opcode.
    pub fn channel(&self, opcode: u8, choice: Choice) -> &Channel {
        if choice.polled && !self.poll.channels.is_empty() {
            self.poll.pick(choice.home)
        } else if opcode == io::READ && !self.read.channels.is_empty() {
            self.read.pick(choice.home)
        } else {
            self.default.pick(choice.home)
        }
    }

    /// I/O queues in the order of their identifiers, from 1.
    fn channels(&self) -> impl Iterator<Item = &Channel> {
        [&self.default, &self.read, &self.poll].into_iter().flat_map(|map| &map.channels)
    }

    /// Delay before a command with this status is sent again, by its CRD field (section 3.3.3.2.1).
    pub fn retry_delay(&self, status: nvme::status::Status) -> Duration {
        let identity = self.controller.identity();
        let tenths = match status.retry_delay() {
            1 => identity.crdt1.get(),
            2 => identity.crdt2.get(),
            3 => identity.crdt3.get(),
            _ => 0,
        };
        Duration::from_millis(100 * u64::from(tenths))
    }

    /// What the queues of each map have done: of everything or what is no read, of reads, of polled commands.
    pub fn counters(&self) -> [Counters; 3] {
        [&self.default, &self.read, &self.poll].map(|map| {
            map.channels.iter().map(Channel::counters).fold(Counters::default(), Counters::add)
        })
    }

    /// What each queue has done, in the order of their identifiers.
    pub fn queue_counters(&self) -> Vec<Counters> {
        self.channels().map(Channel::counters).collect()
    }

    /// The network card's queues (NAPI identifiers) that the data of the I/O queues comes by.
    pub fn card_queues(&self) -> impl Iterator<Item = u32> {
        self.channels().filter_map(Channel::card_queue)
    }

    /// Commands that each queue holds, in the order of their identifiers.
    pub fn queue_depths(&self) -> Vec<u16> {
        self.channels().map(Channel::depth).collect()
    }

    /// Ends the queues: what is in them is lost.
    pub fn end_queues(&self, why: &'static str) {
        for channel in self.channels() {
            channel.end(Error::Lost(why));
        }
    }

    /// Commands that change something and were in the queues when they ended.
    pub fn in_doubt(&self) -> usize {
        self.channels().map(Channel::in_doubt).sum()
    }

    /// Watches over the association until it is of no more use, and tells why. `noticed` learns of changes to the
    /// namespace, `moved` of changes to the access.
    pub async fn watch(
        &self,
        nsid: u32,
        io_timeout: Duration,
        noticed: impl Fn(Result<Geometry, Error>),
        moved: impl Fn(),
    ) -> Error {
        let trouble = async {
            self.trouble.notified().await;
            let broken = self.channels().find(|channel| channel.is_broken());
            broken.map_or(Error::Lost("a queue ended"), |channel| Error::Ended(channel.why()))
        };
        let left = async {
            self.left.notified().await;
            reactor::sleep(self.controller.association().options.timeout).await;
            Error::Lost("the controller deleted a queue")
        };
        let events = race(self.follow_access(moved), self.follow_events(nsid, noticed));
        let events = race(left, events);
        let alive = race(self.keep_alive(), events);
        race(race(trouble, self.keep_time(io_timeout)), alive).await
    }

    /// Sends Keep Alive until it fails.
    async fn keep_alive(&self) -> Error {
        let interval = self.controller.keep_alive_interval();
        loop {
            // Without a keep alive timer the connections tell.
            reactor::sleep(interval.unwrap_or(Duration::from_secs(3600))).await;
            if interval.is_some()
                && let Err(error) = self.controller.keep_alive().await
            {
                return error;
            }
        }
    }

    /// Takes events until the admin queue ends, and looks at the namespace when it may have changed.
    async fn follow_events(&self, nsid: u32, noticed: impl Fn(Result<Geometry, Error>)) -> Error {
        loop {
            match self.controller.event().await {
                Ok(Some(Event::NamespaceAttribute)) => {
                    // Reading the page clears the event (section 5.1.12.1.5). It may name none or too many: the
                    // namespace itself tells.
                    let page = Event::NamespaceAttribute.log_page();
                    let read = self.controller.log_page(page, 0, 4096).await;
                    match read.map(drop) {
                        Ok(()) | Err(Error::Command { .. }) => noticed(self.identify(nsid).await),
                        Err(error) => return error,
                    }
                }
                // Reading the page clears the event.
                Ok(Some(Event::AnaChange)) => self.look.notify(),
                Ok(_) => {}
                // A controller that takes no more requests has no events to tell.
                Err(Error::Command { .. }) => std::future::pending().await,
                Err(error) => return error,
            }
        }
    }

    /// Reads the ANA log page whenever that is due.
    async fn follow_access(&self, moved: impl Fn()) -> Error {
        loop {
            self.look.notified().await;
            match self.read_access().await {
                Ok(()) => moved(),
                // The next look may find more.
                Err(Error::Command { .. } | Error::Timeout { .. }) => self.look.notify(),
                Err(error) => return error,
            }
            if self.access.get() == State::Change {
                // It does not last; should the event be missed, the next look finds what came of it.
                self.look.notify();
            }
            reactor::sleep(Duration::from_millis(ANA_LOOK_MS)).await;
        }
    }

    /// Sends an Abort for each command that exceeds the timeout; returns when one exceeds it once more.
    async fn keep_time(&self, timeout: Duration) -> Error {
        if timeout.is_zero() {
            return std::future::pending().await;
        }
        let limit = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let is_over = || {
            let since = reactor::now().saturating_sub(limit.saturating_mul(2));
            self.channels().any(|channel| channel.overdue_since(since))
        };
        loop {
            reactor::sleep(timeout / TIMEOUT_LOOKS).await;
            let since = reactor::now().saturating_sub(limit);
            for (qid, channel) in (1..).zip(self.channels()) {
                for cid in channel.overdue(since) {
                    if is_over() {
                        return overdue(timeout);
                    }
                    // An Abort that fails leaves the command to the next look. One without an answer takes no longer than
                    // from one to the next: the end is not to wait for each.
                    let abort = self.controller.abort(qid, cid);
                    let _ = reactor::timeout(timeout / TIMEOUT_LOOKS, abort).await;
                }
            }
            if is_over() {
                return overdue(timeout);
            }
        }
    }

    /// Has the controller execute nothing of this association any more, if it can still be reached.
    ///
    /// # Errors
    /// Why it cannot be.
    pub async fn quiesce(&self) -> Result<(), Error> {
        self.controller.reset().await
    }

    /// How long after the loss the controller may go on.
    pub fn quiesce_time(&self) -> Duration {
        self.controller.quiesce_time()
    }

    /// Shuts the controller down in order.
    pub async fn shut_down(&self) -> Result<(), Error> {
        self.controller.shut_down().await
    }
}

fn overdue(timeout: Duration) -> Error {
    Error::Timeout { command: "an I/O command", after: timeout * 2 }
}

/// The namespace's geometry and ANA group.
async fn identify(controller: &Controller, nsid: u32) -> Result<(Geometry, u32), Error> {
    let identity = controller.namespace(nsid).await?;
    let transfer_max = controller.association().transfer_max();
    let mut geometry = Geometry::new(controller.identity(), &identity, transfer_max)?;
    // A controller that may have namespaces with a cache says of each that has none.
    if geometry.volatile_cache
        && let Some(common) = controller.independent_namespace(nsid).await?
    {
        let without = namespace_bits::INDEPENDENT_NSFEAT_NO_VOLATILE_CACHE;
        geometry.volatile_cache = common.nsfeat & without == 0;
    }
    Ok((geometry, identity.anagrpid.get()))
}
