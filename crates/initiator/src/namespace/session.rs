//! One association: a controller, its I/O queues by class, kept alive.

use std::cell::Cell;
use std::rc::Rc;

use reactor::Task;

use super::geometry::Geometry;
use crate::Error;
use crate::ask::Remote;
use crate::channel::Channel;
use crate::controller::Controller;

/// Which of a session's queues a command goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// What is not a read.
    Default,
    /// Reads, when there are queues for them.
    Read,
}

/// Queues that share a class, taken in turn.
struct Map {
    channels: Vec<Channel>,
    next: Cell<usize>,
}

impl Map {
    /// The queue with the fewest commands, from the next one on in a circle.
    fn pick(&self) -> &Channel {
        let count = self.channels.len();
        let first = self.next.get();
        self.next.set((first + 1) % count);
        let in_turn = (first..first + count).map(|at| &self.channels[at % count]);
        in_turn.min_by_key(|channel| channel.outstanding()).unwrap_or(&self.channels[0])
    }
}

/// An association in use. Its tasks end with it.
pub struct Session {
    controller: Rc<Controller>,
    default: Map,
    /// Empty when reads go with everything else.
    read: Map,
    keeper: Task<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Session {
    /// Connects the controller and the queues, and identifies namespace `nsid`.
    pub async fn open(remote: &Remote, nsid: u32) -> Result<(Self, Geometry), Error> {
        let controller = Rc::new(remote.connect().await?);
        let association = controller.association();
        let identity = controller.namespace(nsid).await?;
        let geometry = Geometry::new(controller.identity(), &identity, association.transfer_max())?;
        let options = &remote.options;
        let wanted = options.io_queues.saturating_add(options.write_queues).max(1);
        let granted = controller.set_queue_count(wanted).await?;
        let mut channels = Vec::new();
        for qid in 1..=granted {
            let depth = options.queue_size.min(association.depth_max());
            channels.push(Channel::new(association.connect_queue(qid, depth).await?));
        }
        // With write queues the reads have the others to themselves, as far as the controller grants both.
        let writes = usize::from(options.write_queues).min(channels.len() - 1);
        let read = if writes > 0 { channels.split_off(writes) } else { Vec::new() };
        let map = |channels| Map { channels, next: Cell::new(0) };
        let keeper = reactor::spawn(keep_alive(Rc::clone(&controller)));
        Ok((Self { controller, default: map(channels), read: map(read), keeper }, geometry))
    }

    /// The queue for the next command of `class`.
    pub fn channel(&self, class: Class) -> &Channel {
        match class {
            Class::Read if !self.read.channels.is_empty() => self.read.pick(),
            Class::Read | Class::Default => self.default.pick(),
        }
    }

    fn channels(&self) -> impl Iterator<Item = &Channel> {
        self.default.channels.iter().chain(&self.read.channels)
    }

    /// Ends the association in order: the queues first, then the controller.
    pub async fn shut_down(&self) -> Result<(), Error> {
        self.keeper.abort();
        for channel in self.channels() {
            channel.end(Error::Lost("the namespace was shut down"));
        }
        self.controller.shut_down().await
    }
}

/// Sends Keep Alive until it fails, which ends the admin queue.
async fn keep_alive(controller: Rc<Controller>) {
    let Some(interval) = controller.keep_alive_interval() else { return };
    loop {
        reactor::sleep(interval).await;
        if controller.keep_alive().await.is_err() {
            return;
        }
    }
}
